//! `gesta verify`.

use rusqlite::Connection;
use serde_json::Value;

use crate::sample;
use crate::world::World;

/// With a job that is done and sealed, and its registry.
fn with_a_sealed_job() -> World {
    let world = World::with_examples();
    world.gesta(&["run", "examples/refund/job.yaml", "--input", "order=1042"]).ok();
    world.gesta(&["verify", "--sealed"]).ok();
    world
}

/// Does something to the store that no command does.
fn damage(world: &World, sql: &str) -> usize {
    Connection::open(world.path("gesta.db")).unwrap().execute(sql, []).unwrap()
}

/// The id of a trajectory that stands so, and the same as SQLite writes it.
fn standing(world: &World, status: &str) -> (String, String) {
    let rows = world.gesta(&["log", "--json"]).json_lines();
    let row = rows.iter().find(|row| row["summary"]["status"] == status).unwrap();
    let id = row["trajectory"].as_str().unwrap().to_owned();
    let literal = format!("x'{}'", id.strip_prefix("t_").unwrap());
    (id, literal)
}

/// Sets the row of a trajectory back to an entry of it: what follows is to be forgotten.
fn set_back(world: &World, (id, literal): &(String, String), seq: usize) {
    let entries = world.gesta(&["log", id, "--json"]).json_lines();
    assert!(entries.len() > seq + 1, "{id} has {} entries", entries.len());
    let head = entries[seq]["id"].as_str().unwrap();
    let sql = format!(
        "UPDATE trajectories SET head_seq = {seq}, head_id = x'{head}' WHERE trajectory = {literal}"
    );
    assert_eq!(damage(world, &sql), 1);
}

/// Whatever is asked, it says that this was tampered with, and nothing is exported.
fn is_tampered(world: &World, id: &str, said: &str) {
    for arguments in
        [&["verify"][..], &["verify", id], &["verify", id, "--only"], &["verify", "--sealed"]]
    {
        let told = world.gesta(arguments).expect(3);
        assert!(told.out.contains(said), "{arguments:?}:\n{}", told.out);
    }
    for what in [id, "--all"] {
        world.gesta(&["export", what, "-o", "cut.gesta"]).expect(3);
        assert!(!world.path("cut.gesta").exists());
    }
}

/// The trajectory and the number of the entry that the demo changed.
fn changed(world: &World) -> (String, u64) {
    let report = world.gesta(&["--store", "tampered.db", "verify", "--json"]).expect(3);
    let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
    let first = &report["findings"][0];
    assert_eq!((first["class"].as_str(), first["code"].as_str()), (Some("tampered"), Some("id")));
    (first["trajectory"].as_str().unwrap().to_owned(), first["seq"].as_u64().unwrap())
}

#[test]
fn a_changed_byte_is_named() {
    let world = World::with_demo();
    world.gesta(&["verify"]).ok();
    let (trajectory, seq) = changed(&world);
    let text = world.gesta(&["--store", "tampered.db", "verify"]).expect(3);
    let expected = format!("tampered (id) in {trajectory} at entry {seq}: its bytes do not hash");
    assert!(text.out.contains(&expected), "{}", text.out);

    let log = world.gesta(&["--store", "tampered.db", "log", &trajectory]).expect(3);
    let line = log.out.lines().find(|line| line.contains("ALTERED")).unwrap();
    assert!(line.trim_start().starts_with(&seq.to_string()), "{line}");
    world.gesta(&["--store", "tampered.db", "show", &format!("{trajectory}:{seq}")]).expect(3);
    world.gesta(&["--store", "tampered.db", "export", &trajectory, "-o", "x.gesta"]).expect(3);
    assert!(!world.path("x.gesta").exists());
}

#[test]
fn a_tail_that_was_cut_off_is_named() {
    let world = World::with_demo();
    let db = rusqlite::Connection::open(world.path("gesta.db")).unwrap();
    // What was added last to a trajectory goes, and its row still tells of it.
    let cut = "DELETE FROM entries WHERE (trajectory, seq) IN (
        SELECT trajectory, max(seq) FROM entries JOIN trajectories USING (trajectory)
        WHERE status = 'failed' GROUP BY trajectory)";
    assert!(db.execute(cut, []).unwrap() > 0);
    drop(db);
    let cut = world.gesta(&["verify"]).expect(3);
    assert!(cut.out.contains("tampered (truncated)"), "{}", cut.out);
}

#[test]
fn a_row_that_was_set_back_hides_nothing() {
    for status in ["completed", "standing"] {
        let world = with_a_sealed_job();
        let what = standing(&world, status);
        set_back(&world, &what, 2);
        let said = format!("tampered (beyond_head) in {} at entry 3:", what.0);
        is_tampered(&world, &what.0, &said);
        let told = world.gesta(&["verify", "--json"]).expect(3);
        let told: Value = serde_json::from_str(&told.out).unwrap();
        assert_eq!(told["findings"].as_array().unwrap().len(), 1, "{told:#}");
    }
}

#[test]
fn an_entry_past_a_gap_is_found() {
    let world = World::with_demo();
    let (id, literal) = standing(&world, "completed");
    let stray = format!(
        "INSERT INTO entries (trajectory, seq, ids, bytes)
         SELECT trajectory, 999, ids, bytes FROM entries WHERE trajectory = {literal} LIMIT 1"
    );
    assert_eq!(damage(&world, &stray), 1);
    is_tampered(&world, &id, &format!("tampered (beyond_head) in {id} at entry 999:"));
}

#[test]
fn a_trajectory_without_a_row_is_named_and_comes_back() {
    for status in ["completed", "standing"] {
        let world = with_a_sealed_job();
        let (id, literal) = standing(&world, status);
        let rows = world.gesta(&["log", "--json"]).ok();
        let unsealed = world.gesta(&["seal", "status", "--json"]).json()["lag"].clone();
        assert_eq!(
            damage(&world, &format!("DELETE FROM trajectories WHERE trajectory = {literal}")),
            1
        );
        is_tampered(&world, &id, &format!("tampered (no_row) in {id}:"));
        let found = world.gesta(&["doctor"]).expect(1);
        assert!(found.out.contains(&format!("{id}: its row is gone")), "{}", found.out);
        let rebuilt = world.gesta(&["doctor", "--rebuild"]).ok();
        assert!(rebuilt.contains(&format!("{id}: its row is gone")), "{rebuilt}");
        world.gesta(&["doctor"]).ok();
        world.gesta(&["verify", "--sealed"]).ok();
        assert_eq!(world.gesta(&["log", "--json"]).ok(), rows);
        // What the log holds of it is not to be sealed again.
        assert_eq!(world.gesta(&["seal", "status", "--json"]).json()["lag"], unsealed);
        assert_eq!(world.gesta(&["seal"]).ok(), "nothing is new\n");
    }
}

#[test]
fn what_a_row_says_beside_its_end_is_not_asked() {
    let world = World::with_demo();
    assert!(
        damage(&world, "UPDATE trajectories SET status = 'nonsense', rank = 'x', tools = 7") > 0
    );
    let workspace = world.gesta(&["verify"]).ok();
    assert!(workspace.starts_with("sound"), "{workspace}");
}

#[test]
fn documents_that_were_in_force_are_checked_if_they_are_here() {
    let world = World::with_workspace();
    let sound = world.gesta(&["verify"]).ok();
    assert!(sound.contains("1 references to blobs") && !sound.contains("not checked"), "{sound}");
    assert_eq!(damage(&world, "UPDATE blobs SET bytes = CAST('permit' AS BLOB)"), 1);
    let changed = world.gesta(&["verify"]).expect(3);
    assert!(changed.out.contains("tampered (blob)"), "{}", changed.out);
    assert_eq!(damage(&world, "DELETE FROM blobs"), 1);
    let absent = world.gesta(&["verify"]).ok();
    let said = "not checked: policy, catalogue or configuration: the blob `";
    assert!(absent.contains(said) && absent.contains("0 references to blobs"), "{absent}");
}

#[test]
fn another_trust_root_does_not_trust() {
    let world = World::with_demo();
    let other = World::with_workspace();
    std::fs::copy(other.path("trust.json"), world.path("other.json")).unwrap();
    let report = world.gesta(&["verify", "--trust", "other.json"]).expect(4);
    assert!(report.out.contains("untrusted (unknown_key)"), "{}", report.out);
}

#[test]
fn what_is_wrong_is_said_once() {
    let world = World::with_workspace();
    let mut trust: Value = serde_json::from_str(&world.read("trust.json")).unwrap();
    trust["extra"] = true.into();
    std::fs::write(world.path("extra.json"), trust.to_string()).unwrap();
    let told = world.gesta(&["verify", "--trust", "extra.json"]);
    assert_ne!(told.code, Some(0));
    assert_eq!(told.err.matches("unknown field `extra`").count(), 1, "{}", told.err);

    world.gesta(&["export", "--all", "-o", "all.gesta"]).ok();
    let told = world.gesta(&["verify", "all.gesta"]).expect(2);
    assert!(told.err.contains("hint: `gesta-verify --trust FILE all.gesta`"), "{}", told.err);
}

#[test]
fn one_trajectory_is_verified_with_what_it_rests_on() {
    let world = World::with_demo();
    let rows = world.gesta(&["log", "--json"]).json_lines();
    let branch = rows.iter().find(|row| row["summary"]["status"] == "failed").unwrap();
    let id = branch["trajectory"].as_str().unwrap();
    let report = world.gesta(&["verify", id, "--json"]).json();
    // The branch, its source, the source's child, and the registry: not the cancelled order.
    assert_eq!(report["counts"]["trajectories"], 4);
    let only = world.gesta(&["verify", id, "--only", "--json"]);
    let only: serde_json::Value = serde_json::from_str(&only.out).unwrap();
    assert_eq!(only["counts"]["trajectories"], 1);
}

#[test]
fn a_missing_blob_makes_it_incomplete_and_a_changed_one_tampered() {
    let world = World::new();
    let trust = sample::write_file(&world.path("s.db"));
    std::fs::write(world.path("t.json"), serde_json::to_vec(&trust).unwrap()).unwrap();
    let verify = ["--store", "s.db", "verify", "--trust", "t.json"];
    world.gesta(&verify).ok();
    let run = |sql: &str| {
        rusqlite::Connection::open(world.path("s.db")).unwrap().execute(sql, []).unwrap()
    };
    assert_eq!(run("UPDATE blobs SET bytes = CAST('{\"large\":\"other\"}' AS BLOB)"), 1);
    let changed = world.gesta(&verify).expect(3);
    assert!(changed.out.contains("tampered (blob)"), "{}", changed.out);
    assert_eq!(run("DELETE FROM blobs"), 1);
    let missing = world.gesta(&verify).expect(5);
    assert!(missing.out.contains("missing_blob"), "{}", missing.out);
}
