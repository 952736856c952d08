//! What goes wrong, how it is said, and the exit code.

use crate::world::{World, filters};

#[test]
fn errors_say_what_and_what_to_do() {
    let empty = World::new();
    let demo = World::with_demo();
    let newer = World::with_workspace();
    let version = "PRAGMA user_version = 99";
    rusqlite::Connection::open(newer.path("gesta.db")).unwrap().execute_batch(version).unwrap();
    let other = World::new();
    let foreign = "CREATE TABLE mine (x); PRAGMA user_version = 3";
    rusqlite::Connection::open(other.path("o.db")).unwrap().execute_batch(foreign).unwrap();
    std::fs::write(
        other.path("text.db"),
        "not a database, but long enough to be read as one".repeat(99),
    )
    .unwrap();

    let cases: [(&World, &[&str], i32); 14] = [
        (&empty, &["log"], 1),
        (&empty, &["--store", "no.db", "log"], 1),
        (&empty, &["--store", "mysql://h/d", "log"], 1),
        (&empty, &["--store", "postgres://u:secret@127.0.0.1:1/d", "log"], 1),
        (&empty, &["verify"], 1),
        (&empty, &["nonsense"], 2),
        (&empty, &["export", "-o", "x"], 2),
        (&demo, &["log", "t_00000000000000000000000000000000"], 1),
        (&demo, &["log", "refund"], 1),
        (&demo, &["show", "9999"], 1),
        (&demo, &["show", "t_bb:999"], 1),
        (&newer, &["log"], 6),
        (&other, &["--store", "o.db", "log"], 1),
        (&other, &["--store", "text.db", "log"], 6),
    ];
    let mut told = String::new();
    for (world, arguments, code) in cases {
        let ran = world.gesta(arguments);
        assert!(!ran.err.contains("secret") && !ran.out.contains("secret"));
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.err);
        told.push_str(&format!("$ gesta {}\n{}\n\n", arguments.join(" "), ran.whole()));
    }
    insta::with_settings!({ filters => filters() }, {
        insta::assert_snapshot!("errors", told);
    });
}

#[test]
fn logs_are_structured_and_apart_from_data() {
    let world = World::with_workspace();
    let ran = world.gesta(&["-vv", "--log-format", "json", "log", "--json"]);
    let logs: Vec<serde_json::Value> =
        ran.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(logs.iter().any(|log| log["fields"]["message"] == "opened the store"), "{}", ran.err);
    assert_eq!(ran.json_lines().len(), 1);
}

#[test]
fn whoever_asks_for_json_gets_errors_in_json() {
    let empty = World::new();
    let ran = empty.gesta(&["run", "nothere.yaml", "--json"]);
    let told: serde_json::Value = serde_json::from_str(ran.err.trim()).unwrap();
    assert_eq!(told["exit_code"].as_i64(), ran.code.map(i64::from), "{told}");
    assert!(told["error"].as_str().unwrap().contains("nothere.yaml"), "{told}");
    let told = empty.gesta(&["log", "--json"]).err;
    let told: serde_json::Value = serde_json::from_str(told.trim()).unwrap();
    assert!(told["hint"].as_str().unwrap().contains("gesta init"), "{told}");
    let ran = empty.gesta(&["log", "--nonsense", "--json"]).expect(2);
    let told: serde_json::Value = serde_json::from_str(ran.err.trim()).unwrap();
    assert_eq!(told["exit_code"], 2, "{told}");
    assert!(told["error"].as_str().unwrap().contains("unexpected argument '--nonsense'"), "{told}");
    assert!(empty.gesta(&["log", "--help", "--json"]).expect(0).out.contains("Usage:"));
}
