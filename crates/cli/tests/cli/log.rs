//! `gesta log` and `gesta show`.

use gesta_core::entry::Kind;

use crate::sample;
use crate::world::World;

#[test]
fn every_entry_is_told_as_text_and_as_json() {
    let world = World::with_demo();
    let mut kinds = Vec::new();
    for row in world.gesta(&["log", "--json"]).json_lines() {
        let id = row["trajectory"].as_str().unwrap();
        let text = world.gesta(&["log", id]).ok();
        let lines = world.gesta(&["log", id, "--json"]).json_lines();
        assert_eq!(lines.len() as u64, row["entries"].as_u64().unwrap());
        for line in lines {
            let kind = line["entry"]["kind"].as_str().unwrap().to_owned();
            let summary = line["summary"].as_str().unwrap();
            assert!(
                text.lines().any(|it| it.contains(&kind) && it.ends_with(summary)),
                "{summary}"
            );
            kinds.push(kind);
        }
    }
    assert!(Kind::ALL.iter().all(|kind| kinds.iter().any(|it| it == kind.as_str())));
}

#[test]
fn an_unended_trajectory_is_listed_with_its_status() {
    let world = World::new();
    sample::write_file(&world.path("s.db"));
    let log = world.gesta(&["--store", "s.db", "log"]).ok();
    let line = log.lines().find(|line| line.starts_with(&sample::PARKED.to_string())).unwrap();
    assert!(line.contains("job") && line.contains("user:ada"), "{line}");
}

#[test]
fn untrusted_text_cannot_move_the_cursor_or_hide() {
    let world = World::new();
    sample::write_file(&world.path("s.db"));
    let session = sample::SESSION.to_string();
    let entry = format!("{session}:1");
    let unseen = |c: char| c != '\n' && sample::UNSEEN.contains(c) && !c.is_ascii_graphic();
    for arguments in [&["log", &session][..], &["log", &session, "--json"], &["show", &entry]] {
        let mut all = vec!["--store", "s.db"];
        all.extend(arguments);
        let told = world.gesta(&all).ok();
        assert!(!told.contains(unseen), "{told:?}");
        assert!(told.contains("claimed\\u"), "{told:?}");
    }
    let lines = world.gesta(&["--store", "s.db", "log", &session, "--json"]).json_lines();
    assert_eq!(lines[1]["entry"]["body"]["note"], sample::UNSEEN);
    let refused = world.gesta(&["--store", "s.db", "log", "a\u{1b}[31m\u{202e}b"]).expect(1);
    assert!(refused.err.contains(r"a\u{1b}[31m\u{202e}b"), "{:?}", refused.err);
}

#[test]
fn a_prefix_is_enough_unless_it_is_ambiguous() {
    let world = World::with_demo();
    let ids: Vec<String> = world
        .gesta(&["log", "--json"])
        .json_lines()
        .iter()
        .map(|row| row["trajectory"].as_str().unwrap().to_owned())
        .collect();
    let beginning = |id: &str, digits: usize| id.chars().take(2 + digits).collect::<String>();
    let (one, other) = ids
        .iter()
        .zip(ids.iter().skip(1))
        .find(|(one, other)| beginning(one, 1) == beginning(other, 1))
        .expect("two of the demo's ids begin alike");
    let ambiguous = world.gesta(&["log", &beginning(one, 1)]).expect(1);
    assert!(ambiguous.err.contains(one) && ambiguous.err.contains(other), "{}", ambiguous.err);
    assert!(ambiguous.err.contains("hint: give more digits"), "{}", ambiguous.err);
    let told = world.gesta(&["log", &beginning(other, 6)]).ok();
    assert!(told.starts_with(other), "{told}");
    let without = world.gesta(&["log", beginning(other, 6).trim_start_matches("t_")]).ok();
    assert_eq!(told, without);
}

#[test]
fn an_entry_is_found_by_number_and_by_id() {
    let world = World::with_demo();
    let rows = world.gesta(&["log", "--json"]).json_lines();
    let id = rows[3]["trajectory"].as_str().unwrap();
    let shown = world.gesta(&["show", &format!("{id}:3"), "--json"]).json();
    assert_eq!((shown["seq"].as_u64(), shown["trajectory"].as_str()), (Some(3), Some(id)));
    assert_eq!(shown["entry"]["kind"], "started");
    let signatures = shown["signatures"].as_array().unwrap();
    assert_eq!(signatures.len(), 2);
    for signature in signatures {
        assert_eq!(signature["genuine"], true);
        assert_eq!(
            (signature["trusted"].as_bool(), signature["name"].as_str()),
            (Some(true), Some("guardian"))
        );
    }
    let entry = shown["id"].as_str().unwrap();
    for name in [format!("{id}/3"), entry.to_owned(), format!("{id}:{}", &entry[..10])] {
        assert_eq!(world.gesta(&["show", &name, "--json"]).json(), shown, "{name}");
    }
    let text = world.gesta(&["show", &format!("{id}:3")]).ok();
    assert!(
        text.contains("gesta.permit.v1 by guardian") && text.contains("genuine, trusted"),
        "{text}"
    );
}

#[test]
fn blobs_and_links_are_shown() {
    let world = World::new();
    sample::write_file(&world.path("s.db"));
    let entry = format!("{}:0", sample::SESSION);
    let shown = world.gesta(&["--store", "s.db", "show", &entry, "--json"]).json();
    assert_eq!(shown["blobs"][0]["present"], true);
    let demo = World::with_demo();
    let rows = demo.gesta(&["log", "--json"]).json_lines();
    let id = rows.iter().find(|row| row["summary"]["status"] == "failed").unwrap();
    let branch = format!("{}:0", id["trajectory"].as_str().unwrap());
    let shown = demo.gesta(&["show", &branch, "--json"]).json();
    let links: Vec<&str> = shown["links"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| link["what"].as_str().unwrap())
        .collect();
    assert_eq!(links, ["registry head", "source head"]);
}

/// Nobody reads from the first byte on; what the command finds out still counts.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::with_demo();
    for (arguments, code) in [
        (&["log", "--json"][..], 0),
        (&["log"], 0),
        (&["completions", "bash"], 0),
        (&["verify"], 0),
        (&["--store", "tampered.db", "verify", "--json"], 3),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = world.command().args(arguments).stdout(writer).output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {err}");
        assert!(!err.contains("error") && !err.contains("panic"), "{arguments:?}: {err}");
    }
}

#[test]
fn colour_comes_only_when_it_is_asked_for() {
    let world = World::with_demo();
    let id =
        world.gesta(&["log", "--json"]).json_lines()[0]["trajectory"].as_str().unwrap().to_owned();
    assert!(!world.gesta(&["log", &id]).ok().contains('\u{1b}'));
    assert!(world.gesta(&["--color", "always", "log", &id]).ok().contains("\u{1b}["));
    assert!(!world.gesta(&["--color", "always", "--json", "log", &id]).ok().contains('\u{1b}'));
}
