//! Programs as tools: what they are given, and what their end means.

use std::collections::BTreeSet;
use std::time::Duration;

use gesta_core::document::Certainty::{DidNotHappen, Happened, Unknown};
use gesta_core::ids::TrajectoryId;
use gesta_runtime::tools::{Catalogue, ProcessOptions, Reply, code};
use serde_json::json;

use crate::world::{World, answer, ask, call_within, check_failure, failure, options, send};

/// A tool of this effect that runs a line in the shell.
fn line(effect: &str, line: &str, more: &str) -> String {
    let line = serde_json::to_string(line).unwrap();
    format!(
        "[tools.t]\neffect = \"{effect}\"\n[tools.t.driver.process]\nshell = true\ncommand = {line}\n{more}\n"
    )
}

async fn run(toml: &str) -> Reply {
    ask(&World::new().catalogue(toml), "t", &json!({"b": 1, "a": "é"})).await
}

#[tokio::test]
async fn arguments_are_one_line_of_canonical_json_and_the_output_is_the_answer() {
    let output = answer(run(&line("write", "cat; cat; echo end", "")).await);
    assert_eq!(output, "{\"a\":\"é\",\"b\":1}\nend\n");
}

#[tokio::test]
async fn the_environment_holds_what_is_declared_and_nothing_else() {
    let toml = "[tools.t]\neffect = \"read\"\n[tools.t.driver.process]\ncommand = [\"env\"]\n\
        env = [\"HOME\", \"GESTA_TEST_NOT_SET\"]\nset = { MODE = \"fast\" }\n";
    assert!(std::env::var_os("PATH").is_some());
    let output = answer(run(toml).await);
    let home = std::env::var("HOME").unwrap();
    let trajectory = TrajectoryId::from_bytes([7; 16]);
    let expected = [
        format!("HOME={home}"),
        "MODE=fast".to_owned(),
        "GESTA_KEY=gesta-0123".to_owned(),
        format!("GESTA_TRAJECTORY={trajectory}"),
        "GESTA_STEP=pay/1".to_owned(),
        "GESTA_ATTEMPT=3".to_owned(),
        "GESTA_TOOL=t".to_owned(),
    ];
    let found: BTreeSet<String> = output.lines().map(str::to_owned).collect();
    assert_eq!(found, BTreeSet::from(expected));
}

#[tokio::test]
async fn the_supervisor_has_no_environment_at_all() {
    assert_eq!(answer(run(&line("read", "wc -c </proc/$PPID/environ", "")).await).trim(), "0");
}

#[tokio::test]
async fn a_program_is_found_beside_its_declaration_and_runs_there() {
    let world = World::new();
    std::fs::create_dir(world.path("sub")).unwrap();
    world.script("tool", "pwd; echo \"$1\"");
    for (cwd, expected) in [("", world.path("")), ("cwd = \"sub\"", world.path("sub"))] {
        let toml = format!(
            "[tools.t]\neffect = \"read\"\n[tools.t.driver.process]\ncommand = [\"./tool\", \"$HOME;x\"]\n{cwd}\n"
        );
        let output = answer(ask(&world.catalogue(&toml), "t", &json!({})).await);
        let mut lines = output.lines();
        let at = std::path::Path::new(lines.next().unwrap()).canonicalize().unwrap();
        assert_eq!(at, expected.canonicalize().unwrap());
        assert_eq!(lines.next(), Some("$HOME;x"), "no shell touches an argument");
    }
}

#[tokio::test]
async fn exit_codes_tell_what_is_known() {
    let unknown = (Unknown, true, code::TOOL_FAILED);
    let permanent = (DidNotHappen, false, code::TOOL_FAILED);
    let retry = (DidNotHappen, true, code::TOOL_BUSY);
    for (effect, exit, (certainty, retryable, code)) in [
        ("write", 75, retry),
        ("irreversible", 75, retry),
        ("write", 64, permanent),
        ("external", 69, permanent),
        ("external", 78, permanent),
        ("write", 70, unknown),
        ("write", 74, unknown),
        ("write", 76, unknown),
        ("write", 1, unknown),
        ("write", 63, unknown),
        ("write", 79, unknown),
        ("external", 255, unknown),
        ("read", 1, permanent),
        ("read", 75, retry),
    ] {
        let reply = run(&line(effect, &format!("echo why >&2; echo out; exit {exit}"), "")).await;
        let Reply::Failed { output, error, .. } = &reply else { panic!("{reply:?}") };
        assert_eq!(output, b"out\n");
        assert_eq!(error.message, format!("`/bin/sh` exited with code {exit}: why"));
        check_failure(reply, certainty, retryable, code);
    }
}

#[tokio::test]
async fn a_declaration_says_what_its_exit_codes_mean() {
    let exit = "exit = { \"3\" = \"happened\", \"4\" = \"did_not_happen\", \"5\" = \"retry\", \
        \"75\" = \"unknown\", \"7\" = \"answered\", \"8\" = \"permanent\", \"0\" = \"unknown\" }";
    for (code, expected) in [
        (3, (Happened, false, code::TOOL_FAILED)),
        (4, (DidNotHappen, false, code::TOOL_FAILED)),
        (5, (DidNotHappen, true, code::TOOL_BUSY)),
        (75, (Unknown, true, code::TOOL_FAILED)),
        (8, (DidNotHappen, false, code::TOOL_FAILED)),
        (0, (Unknown, true, code::TOOL_FAILED)),
    ] {
        let reply = run(&line("write", &format!("exit {code}"), exit)).await;
        check_failure(reply, expected.0, expected.1, expected.2);
    }
    assert_eq!(answer(run(&line("write", "echo 1; exit 7", exit)).await), "1\n");
}

#[tokio::test]
async fn a_signal_leaves_the_effect_unknown_unless_there_is_none() {
    let reply = run(&line("write", "kill -9 $$", "")).await;
    check_failure(reply, Unknown, true, code::TOOL_CRASHED);
    let reply = run(&line("read", "kill -SEGV $$", "")).await;
    check_failure(reply, DidNotHappen, false, code::TOOL_CRASHED);
}

#[tokio::test]
async fn what_cannot_be_started_did_not_happen() {
    let world = World::new();
    world.write("plain", "#!/bin/sh\n");
    world.script("tool", "true");
    let orphan = world.script("orphan", "");
    std::fs::write(&orphan, "#!/nonexistent/interpreter\n").unwrap();
    for (command, more, expected) in [
        ("./missing", "", "is not an executable file"),
        ("./plain", "", "is not an executable file"),
        (".", "", "no program `.`"),
        ("./", "", "is not an executable file"),
        ("gesta-no-such-program", "", "in the worker's PATH"),
        ("./orphan", "", "No such file"),
        ("./tool", "cwd = \"missing\"", "No such file"),
    ] {
        let toml = format!(
            "[tools.t]\neffect = \"irreversible\"\n[tools.t.driver.process]\ncommand = [\"{command}\"]\n{more}\n"
        );
        let reply = ask(&world.catalogue(&toml), "t", &json!({})).await;
        let (found, message) = failure(reply);
        assert_eq!(found, (DidNotHappen, false, code::TOOL_NOT_STARTED.to_owned()));
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn without_a_supervisor_nothing_happens() {
    let world = World::new();
    let build = |options: ProcessOptions| {
        let toml = line("write", "true", "");
        Catalogue::builder().process(options).file("f", &toml, world.dir.path()).unwrap().build()
    };
    let missing = ProcessOptions { supervisor: vec!["/nonexistent/supervisor".into()] };
    let reply = ask(&build(missing).unwrap(), "t", &json!({})).await;
    check_failure(reply, DidNotHappen, false, code::TOOL_NOT_STARTED);
    let error = build(ProcessOptions { supervisor: Vec::new() }).unwrap_err();
    assert!(error.to_string().contains("no supervisor"), "{error}");
}

#[tokio::test]
async fn a_supervisor_that_says_nothing_leaves_the_effect_unknown() {
    let world = World::new();
    let toml = line("write", "true", "");
    for supervisor in ["/bin/true", "/bin/cat"] {
        let options = ProcessOptions { supervisor: vec![supervisor.into()] };
        let catalogue = Catalogue::builder().process(options);
        let catalogue = catalogue.file("f", &toml, world.dir.path()).unwrap().build().unwrap();
        let reply = ask(&catalogue, "t", &json!({})).await;
        check_failure(reply, Unknown, true, code::REPLY_LOST);
    }
}

#[tokio::test]
async fn a_flood_is_ended() {
    for (effect, certainty, retryable) in [("write", Unknown, true), ("read", DidNotHappen, false)]
    {
        let reply = run(&line(effect, "yes", "max_output = \"64KiB\"")).await;
        check_failure(reply, certainty, retryable, code::OUTPUT_TOO_LARGE);
    }
    let exactly = "head -c 1024 /dev/zero | tr '\\0' x";
    let reply = run(&line("write", exactly, "max_output = 1024")).await;
    assert_eq!(answer(reply).len(), 1024);
    let reply = run(&line("write", exactly, "max_output = 1023")).await;
    check_failure(reply, Unknown, true, code::OUTPUT_TOO_LARGE);
}

#[tokio::test]
async fn a_flood_of_complaints_is_not_one_of_output() {
    let complain =
        "i=0; while [ $i -lt 3000 ]; do echo \"complaint $i\" >&2; i=$((i+1)); done; exit 64";
    let (found, message) = failure(run(&line("write", complain, "")).await);
    assert_eq!(found, (DidNotHappen, false, code::TOOL_FAILED.to_owned()));
    assert!(message.ends_with("complaint 2998\ncomplaint 2999"), "{message}");
    assert!(message.len() < 5_000 && !message.contains("complaint 1\n"), "{}", message.len());
}

#[tokio::test]
async fn binary_output_comes_back_byte_by_byte() {
    let reply = run(&line("write", "printf '\\377\\000\\200'", "")).await;
    assert_eq!(reply, Reply::Answered { output: vec![0xff, 0, 0x80], cost: None });
}

#[tokio::test]
async fn large_arguments_may_be_left_unread() {
    let args = json!({ "text": "x".repeat(512 * 1024) });
    let world = World::new();
    let catalogue = world.catalogue(&line("write", "exec <&-; echo done", ""));
    assert_eq!(answer(ask(&catalogue, "t", &args).await), "done\n");
    let catalogue = world.catalogue(&line("write", "wc -c", ""));
    let read: usize = answer(ask(&catalogue, "t", &args).await).trim().parse().unwrap();
    assert_eq!(read, 512 * 1024 + "{\"text\":\"\"}\n".len());
}

#[tokio::test]
async fn after_the_deadline_nothing_is_started() {
    let world = World::new();
    let catalogue = world.catalogue(&line("write", "touch ran", ""));
    let reply = send(&catalogue, "t", call_within(&json!({}), Duration::ZERO)).await;
    check_failure(reply, DidNotHappen, true, code::DEADLINE_PASSED);
    assert!(!world.path("ran").exists());
}

#[test]
fn declarations_that_make_no_sense_are_refused() {
    let check = |process: &str, expected: &str| {
        let toml = format!(
            "[tools.t]\neffect = \"write\"\nsecrets = {{ KEY = {{ env = \"X\" }} }}\n[tools.t.driver.process]\n{process}\n"
        );
        let error = World::new().try_catalogue(&toml).unwrap_err().to_string();
        assert!(error.starts_with("tools.toml:1:8: tool `t`: "), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    check("command = []", "`command` is empty");
    check("command = [\"\"]", "`command` is empty");
    check("command = \"ls | wc\"", "with `shell = true`");
    check("command = [\"ls\"]\nshell = true", "with `shell = true`");
    check("command = [\"ls\"]\nenv = [\"GESTA_KEY\"]", "`GESTA_KEY` is given twice");
    check("command = [\"ls\"]\nset = { GESTA_LAUNCH = \"x\" }", "`GESTA_LAUNCH` is given twice");
    check("command = [\"ls\"]\nset = { KEY = \"x\" }", "`KEY` is given twice");
    check("command = [\"ls\"]\nenv = [\"A=B\"]", "`A=B` is not the name");
    check("command = [\"ls\"]\nexit = { \"256\" = \"retry\" }", "`256`, which is not an exit code");
    check("command = [\"ls\"]\nexit = { \"07\" = \"retry\" }", "`07`, which is not an exit code");
    check("command = [\"a\\u0000b\"]", "NUL");
    assert!(!options().supervisor.is_empty());
}
