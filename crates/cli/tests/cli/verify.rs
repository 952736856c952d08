//! `gesta verify`.

use crate::sample;
use crate::world::World;

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
fn another_trust_root_does_not_trust() {
    let world = World::with_demo();
    let other = World::with_workspace();
    std::fs::copy(other.path("trust.json"), world.path("other.json")).unwrap();
    let report = world.gesta(&["verify", "--trust", "other.json"]).expect(4);
    assert!(report.out.contains("untrusted (unknown_key)"), "{}", report.out);
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
