//! `gesta doctor`.

use rusqlite::Connection;

use crate::sample;
use crate::world::World;

/// Every projected row, as it is in the file.
fn rows(world: &World) -> Vec<String> {
    let db = Connection::open(world.path("s.db")).unwrap();
    let tables = [
        "SELECT hex(trajectory) || head_seq || hex(head_id) || attempt || kind || status || coalesce(tenant, '-')
            || principal || runnable || coalesce(wake_at, '-') || begun_at || changed_at
         FROM trajectories ORDER BY trajectory",
        "SELECT hex(trajectory) || step || on_what || hex(entry) || coalesce(key, '-')
            || coalesce(until, '-') || note FROM parked ORDER BY trajectory, step",
    ];
    let read = |sql: &str| {
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        rows.collect::<Result<Vec<_>, _>>().unwrap()
    };
    tables.into_iter().flat_map(read).collect()
}

#[test]
fn altered_projections_are_found_and_rebuilt_to_the_same_rows() {
    let world = World::new();
    sample::write_file(&world.path("s.db"));
    let before = rows(&world);
    assert!(before.len() >= 4, "two trajectories and two parked steps: {before:?}");
    let doctor = ["--store", "s.db", "doctor"];
    world.gesta(&doctor).ok();

    for (damage, said) in [
        ("UPDATE trajectories SET status = 'completed', runnable = 0", "status is \"completed\""),
        ("UPDATE trajectories SET principal = 'user:eve'", "principal is \"user:eve\""),
        (
            "UPDATE parked SET note = 'harmless', until = 1",
            "the row of parked step `fetch` differs",
        ),
        ("DELETE FROM parked", "parked step `fetch` has no row"),
        (
            "INSERT INTO parked SELECT trajectory, 'ghost', on_what, entry, key, until, note FROM parked LIMIT 1",
            "step `ghost` has a row and is not parked",
        ),
    ] {
        Connection::open(world.path("s.db")).unwrap().execute(damage, []).unwrap();
        let found = world.gesta(&doctor).expect(1);
        assert!(found.out.contains(said), "{damage}:\n{}", found.out);
        assert!(found.err.contains("--rebuild"), "{}", found.err);
        assert_ne!(rows(&world), before);
        let rebuilt = world.gesta(&["--store", "s.db", "doctor", "--rebuild"]).ok();
        assert!(rebuilt.contains("repaired") && rebuilt.contains(said), "{rebuilt}");
        assert_eq!(rows(&world), before, "{damage}");
        world.gesta(&doctor).ok();
    }
}

#[test]
fn rows_that_cannot_be_read_are_rebuilt() {
    let world = World::new();
    sample::write_file(&world.path("s.db"));
    let before = rows(&world);
    for (damage, said) in [
        ("UPDATE trajectories SET status = 'nonsense'", "its row cannot be read"),
        ("UPDATE trajectories SET rank = 'high'", "its row cannot be read"),
        ("UPDATE trajectories SET attempt = 'first', tools = x'00'", "its row cannot be read"),
        (
            "UPDATE trajectories SET kind = '', tenant = '', runnable = 'no'",
            "its row cannot be read",
        ),
        ("UPDATE parked SET on_what = 'nothing'", "rows of its parked steps cannot be read"),
        (
            "UPDATE parked SET entry = x'00', until = 'soon'",
            "rows of its parked steps cannot be read",
        ),
        ("UPDATE trajectories SET head_id = x'00'", "its row does not say where it ends"),
        ("UPDATE trajectories SET head_seq = -1", "its row does not say where it ends"),
        ("UPDATE trajectories SET head_seq = 'x'", "its row ends at entry 0, and its entries at"),
        ("UPDATE trajectories SET head_seq = head_seq + 5", "and its entries at"),
        (
            "UPDATE trajectories SET head_seq = 1, head_id = randomblob(32)",
            "its row ends at entry 1",
        ),
        ("UPDATE trajectories SET head_id = randomblob(32)", "its row ends with another entry"),
        ("DELETE FROM trajectories", "its row is gone"),
        (
            "INSERT INTO parked VALUES (randomblob(16), 'ghost', 'nothing', x'', NULL, NULL, '')",
            "parked rows without a trajectory",
        ),
    ] {
        assert!(Connection::open(world.path("s.db")).unwrap().execute(damage, []).unwrap() > 0);
        let found = world.gesta(&["--store", "s.db", "doctor"]).expect(1);
        assert!(found.out.contains(said), "{damage}:\n{}", found.out);
        assert!(found.err.contains("--rebuild"), "{}", found.err);
        let rebuilt = world.gesta(&["--store", "s.db", "doctor", "--rebuild"]).ok();
        assert!(rebuilt.contains("repaired") && rebuilt.contains(said), "{damage}:\n{rebuilt}");
        assert_eq!(rows(&world), before, "{damage}");
        world.gesta(&["--store", "s.db", "doctor"]).ok();
    }
}

#[test]
fn a_row_that_tells_of_more_than_there_is_stands() {
    let world = World::new();
    sample::write_file(&world.path("s.db"));
    let damage = "UPDATE trajectories SET head_seq = head_seq + 1, head_id = randomblob(32)";
    assert_eq!(Connection::open(world.path("s.db")).unwrap().execute(damage, []).unwrap(), 2);
    let before = rows(&world);
    let refused = world.gesta(&["--store", "s.db", "doctor", "--rebuild"]).expect(1);
    assert!(refused.out.contains("what is between was cut off"), "{}", refused.out);
    assert_eq!(rows(&world), before);
    Connection::open(world.path("s.db")).unwrap().execute("DELETE FROM entries", []).unwrap();
    let refused = world.gesta(&["--store", "s.db", "doctor", "--rebuild"]).expect(1);
    assert!(refused.out.contains("and it has no entries"), "{}", refused.out);
    assert_eq!(rows(&world), before);
}

#[test]
fn a_chain_that_does_not_fold_is_not_rebuilt() {
    let world = World::with_demo();
    let report =
        world.gesta(&["--store", "tampered.db", "doctor", "--rebuild", "--json"]).expect(1);
    let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["ok"], false);
    let wrong: Vec<&str> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["health"] == "wrong")
        .map(|check| check["check"].as_str().unwrap())
        .collect();
    assert!(!wrong.is_empty() && wrong.iter().all(|check| *check == "chains"), "{wrong:?}");
}

#[test]
fn what_is_missing_is_told() {
    let world = World::with_workspace();
    std::fs::remove_file(world.path("trust.json")).unwrap();
    let told = world.gesta(&["doctor"]).expect(1);
    assert!(told.out.contains("cannot read the trust root"), "{}", told.out);
    std::fs::remove_file(world.path("gesta.db")).unwrap();
    let told = world.gesta(&["doctor"]).expect(1);
    assert!(told.out.contains("there is no store"), "{}", told.out);
}
