//! `gesta run` and what surrounds it: the example, dry runs, refusals, interruptions.

use gesta_verify::report::Verdict;
use rustix::process::Signal;

use crate::export::audit;
use crate::world::{World, filters};

const EXAMPLE: &str = "examples/refund/job.yaml";

/// The README's first command, in a directory with nothing but the example.
#[test]
fn the_example_runs_without_any_set_up_and_is_proved() {
    let world = World::with_examples();
    let ran = world.gesta(&["run", EXAMPLE, "--input", "order=1042"]).expect(0);
    for told in [
        "made a workspace",
        "tool_files",
        "risk.score",
        "retry",
        "payments.refund",
        "gesta verify t_",
    ] {
        assert!(ran.err.contains(told), "{told}:\n{}", ran.err);
    }
    for told in [
        "completed  refund t_",
        "\"cents\": 4200",
        "pay  payments.refund",
        "mail  mail.send",
        "receipt ",
    ] {
        assert!(ran.out.contains(told), "{told}:\n{}", ran.out);
    }
    assert_eq!(world.files("examples/refund/outside/ledger"), 1);
    assert_eq!(world.files("examples/refund/outside/outbox"), 1);

    let id = world.job();
    world.gesta(&["verify", &id]).ok();
    assert!(world.gesta(&["log", &id]).ok().contains("side effect committed"));
    let shown = world.gesta(&["show", &format!("{id}:3"), "--json"]).json();
    assert!(shown["signatures"].as_array().unwrap().iter().all(|it| it["trusted"] == true));
    world.gesta(&["export", &id, "-o", "refund.gesta"]).ok();
    let report = audit(&world.path("refund.gesta"), &world.path("trust.json"));
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    world.gesta(&["doctor"]).ok();

    let told_again = world.gesta(&["resume", &id]).ok();
    assert_eq!(told_again, ran.out);
    world.gesta(&["run", EXAMPLE, "--input", "order=1043"]).ok();
    assert_eq!(world.files("examples/refund/outside/ledger"), 2);
}

#[test]
fn what_a_run_came_to_is_one_document() {
    let world = World::with_examples();
    let ran = world.gesta(&["run", EXAMPLE, "--input", "order=1042", "--json"]).json();
    assert_eq!(ran["status"], "completed");
    assert_eq!(ran["answer"]["cents"], 4200);
    let effects = ran["effects"].as_array().unwrap();
    let told: Vec<_> = effects.iter().map(|it| (&it["step"], &it["tool"], &it["known"])).collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], (&"pay".into(), &"payments.refund".into(), &"happened".into()));
    assert_eq!(effects[0]["receipt"].as_str().unwrap().len(), 64);
    let id = ran["trajectory"].as_str().unwrap();
    let seq = effects[1]["seq"].as_u64().unwrap();
    let shown = world.gesta(&["show", &format!("{id}:{seq}"), "--json"]).json();
    assert_eq!(
        (&shown["entry"]["kind"], &shown["entry"]["body"]["step"]),
        (&"commit".into(), &"mail".into())
    );
}

#[test]
fn a_dry_run_shows_decisions_and_leaves_nothing_behind() {
    let world = World::with_examples();
    let ran = world.gesta(&["run", EXAMPLE, "--input", "order=1042", "--dry-run"]);
    insta::with_settings!({ filters => filters() }, {
        insta::assert_snapshot!("dry-run", ran.whole());
    });
    assert_eq!(world.files("."), 1, "only the examples are there");

    world.gesta(&["run", EXAMPLE, "--input", "order=1042"]).ok();
    let before = world.gesta(&["log", "--json"]).ok();
    let told =
        world.gesta(&["run", EXAMPLE, "--input", "order=1042", "--dry-run", "--json"]).json();
    assert_eq!((&told["steps"][0]["what"], &told["denied"]), (&"allow".into(), &0.into()));
    let denied = world
        .gesta(&[
            "run",
            EXAMPLE,
            "--input",
            "order=1042",
            "--dry-run",
            "--json",
            "--budget",
            "calls=0",
        ])
        .json();
    let (what, reason) = (&denied["steps"][0]["what"], &denied["steps"][0]["reason"]);
    assert_eq!((what, reason), (&"deny".into(), &"budget_exhausted".into()));
    assert_eq!(world.gesta(&["log", "--json"]).ok(), before);
    assert_eq!(world.files("examples/refund/outside/ledger"), 1);
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let world = World::with_examples();
    world.write("broken.yaml", "job: broken\nsteps:\n  - id: a\n    tool: nowhere\n");
    world.write("input.json", "{\"order\": 12345678901234567890}");
    let cases: [(&[&str], &str); 7] = [
        (&["run", EXAMPLE], "input `order` is missing"),
        (&["run", EXAMPLE, "--input", "order=x"], "is not JSON of that type"),
        (&["run", EXAMPLE, "--input", "order=1", "--input", "order=2"], "is given twice"),
        (&["run", EXAMPLE, "--input-file", "input.json"], "/order"),
        (&["run", EXAMPLE, "--input", "ordr=1"], "did you mean `order`?"),
        (&["run", "broken.yaml"], "broken.yaml:4:11: unknown tool `nowhere`"),
        (&["submit", "nothing.yaml"], "cannot read the job file"),
    ];
    for (arguments, what) in cases {
        let ran = world.gesta(arguments).expect(2);
        assert!(ran.err.contains(what), "{arguments:?}: {}", ran.err);
    }
    assert!(!world.path("gesta.toml").exists());
}

const SLOW: &str = r#"
[tools.slow]
effect = "write"
timeout = "50s"
driver.process = { command = "echo reached > reached; cat pause > /dev/null; echo '{}'", shell = true, env = ["PATH"] }
"#;
const SLOW_JOB: &str =
    "job: slow\nsteps:\n  - { id: a, tool: slow }\n  - { id: b, tool: slow, needs: [a] }\n";

/// The first signal lets the call end and hands the rest over.
#[test]
fn an_interrupted_run_finishes_its_call_and_can_be_resumed() {
    for signal in [Signal::INT, Signal::TERM] {
        let world = World::with_tools(SLOW);
        world.write("job.yaml", SLOW_JOB);
        world.fifo("reached");
        world.fifo("pause");
        let mut run = world.start(&["run", "job.yaml"]);
        world.hear("reached");
        run.signal(signal);
        run.says("stopping: calls that are running have 30 s");
        std::fs::write(world.path("pause"), "").unwrap();
        let (status, told) = run.ends();
        assert_eq!(status.code(), Some(13), "{told}");
        assert!(told.contains("`gesta resume t_"), "{told}");
        let id = world.job();
        assert_eq!(world.bodies(&id, "commit").len(), 1, "{told}");

        let resume = world.start(&["resume", &id]);
        world.hear("reached");
        std::fs::write(world.path("pause"), "").unwrap();
        assert_eq!(resume.ends().0.code(), Some(0));
        assert_eq!(world.bodies(&id, "started").len(), 2);
    }
}

#[test]
fn a_call_that_outlasts_the_grace_time_is_left_to_the_next_attempt() {
    let world = World::with_tools(SLOW);
    let config = world.read("gesta.toml");
    world.write("gesta.toml", &config.replace("[worker]\n", "[worker]\ngrace = \"50ms\"\n"));
    world.write("job.yaml", SLOW_JOB);
    world.fifo("reached");
    world.fifo("pause");
    let run = world.start(&["run", "job.yaml"]);
    world.hear("reached");
    run.signal(Signal::TERM);
    let (status, told) = run.ends();
    assert_eq!(status.code(), Some(13), "{told}");
    let id = world.job();
    assert_eq!(world.kinds(&id).last().unwrap(), "started");
    world.gesta(&["resume", &id]).expect(12);
}

#[test]
fn a_second_signal_ends_at_once() {
    let world = World::with_tools(SLOW);
    world.write("job.yaml", SLOW_JOB);
    world.fifo("reached");
    world.fifo("pause");
    let mut run = world.start(&["run", "job.yaml"]);
    world.hear("reached");
    run.signal(Signal::INT);
    run.says("stopping");
    run.signal(Signal::INT);
    assert_eq!(run.ends().0.code(), Some(13));
    assert_eq!(world.kinds(&world.job()).last().unwrap(), "started");
}

/// What a tool does wrong is on record, and the exit code says that the job failed.
#[test]
fn a_tool_that_misbehaves_fails_its_step_and_nothing_else() {
    let cases = [
        ("binary", "printf '\\377\\376'", "connector_contract_drift"),
        ("text", "echo hello", "connector_contract_drift"),
        ("large", "echo 9007199254740993", "connector_contract_drift"),
        ("flood", "yes", "output_too_large"),
        ("gone", "kill -9 $$", "tool_crashed"),
        ("refusing", "echo no >&2; exit 65", "tool_failed"),
        ("offcontract", "echo '{\"n\":\"x\"}'", "connector_contract_drift"),
    ];
    let mut tools = String::new();
    for (name, script, _) in cases {
        tools.push_str(&format!(
            "[tools.{name}]\neffect = \"read\"\nretry = {{ attempts = 1 }}\noutput = {{ type = \"object\", properties = {{ n = {{ type = \"integer\" }} }} }}\n[tools.{name}.driver.process]\ncommand = '''{script}'''\nshell = true\nenv = [\"PATH\"]\nmax_output = \"64KiB\"\n"
        ));
    }
    let world = World::with_tools(&tools);
    for (name, _, code) in cases {
        world.write("job.yaml", &format!("job: bad\nsteps:\n  - {{ id: a, tool: {name} }}\n"));
        let ran = world.gesta(&["run", "job.yaml", "--json"]).expect(10);
        let told: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(told["status"], "failed", "{name}");
        assert_eq!(told["error"]["code"], code, "{name}: {told}");
    }
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_budget_on_the_command_line_only_narrows() {
    let world = World::with_examples();
    let ran =
        world.gesta(&["run", EXAMPLE, "--input", "order=1042", "--budget", "calls=2"]).expect(10);
    assert!(ran.out.contains("failed  refund"), "{}", ran.out);
    assert!(ran.err.contains("budget exhausted"), "{}", ran.err);
    let bad = world.gesta(&["run", EXAMPLE, "--budget", "cals=2"]).expect(2);
    assert!(bad.err.contains("calls, money_micros, tokens and wall_ms"), "{}", bad.err);
}

#[test]
fn settings_are_checked_with_their_place() {
    let world = World::with_free_workspace();
    let config = world.read("gesta.toml");
    world.write("job.yaml", "job: x\nsteps:\n  - { id: a, set: 1 }\n");
    for (more, what) in [
        ("[worker]\nleas = \"5s\"\n", "gesta.toml:10:1: unknown field `leas`"),
        ("[worker]\nlease = \"5 sec\"\n", "gesta.toml:10:9: `5 sec` is not a length of time"),
        ("[tools.x]\neffect = \"writ\"\n", "gesta.toml:10:10: unknown variant `writ`"),
        (
            "[tools.x]\neffect = \"read\"\ndriver.process = { command = [] }\n",
            "gesta.toml:9:8: tool `x`: ",
        ),
        ("[tool.x]\n", "gesta.toml:9:2: unknown field `tool`"),
    ] {
        world.write("gesta.toml", &format!("{config}{more}"));
        let ran = world.gesta(&["run", "job.yaml"]).expect(2);
        assert!(ran.err.contains(what), "{what}: {}", ran.err);
    }
    world.write("gesta.toml", &format!("tool_files = [\"none.toml\"]\n{config}"));
    let ran = world.gesta(&["run", "job.yaml"]).expect(2);
    assert!(ran.err.contains("cannot read the tools in `none.toml`"), "{}", ran.err);
    world.write("gesta.toml", &config);
    world.gesta(&["run", "job.yaml"]).ok();
    std::fs::remove_file(world.path("keys/worker.pem")).unwrap();
    let ran = world.gesta(&["run", "job.yaml"]).expect(1);
    assert!(ran.err.contains("there is no key file"), "{}", ran.err);
}

#[test]
fn tools_beside_a_job_are_not_mixed_with_the_workspaces() {
    let world = World::with_tools(SLOW);
    world.write("jobs/job.yaml", "job: x\nsteps:\n  - { id: a, tool: mine }\n");
    world.write(
        "jobs/tools.toml",
        "[tools.mine]\neffect = \"read\"\ndriver.process = { command = [\"echo\", \"1\"], env = [\"PATH\"] }\n",
    );
    let ran = world.gesta(&["run", "jobs/job.yaml"]).expect(2);
    assert!(ran.err.contains("unknown tool `mine`"), "{}", ran.err);
    assert!(ran.err.contains("hint: `jobs/tools.toml` was not read"), "{}", ran.err);
    let config = world.read("gesta.toml");
    world.write("gesta.toml", &format!("tool_files = [\"jobs/tools.toml\"]\n{config}"));
    world.gesta(&["run", "jobs/job.yaml"]).ok();
}

/// The limits of `[worker]` are the Guardian's to enforce.
#[test]
fn what_is_too_much_is_refused_with_its_reason() {
    let echo = "[tools.echo]\neffect = \"read\"\ninput = { type = \"object\", additionalProperties = true }\ndriver.process = { command = [\"cat\"], env = [\"PATH\"] }\n";
    let world = World::with_tools(echo);
    world.write(
        "job.yaml",
        "job: much\nsteps:\n  - { id: a, tool: echo, args: { text: \"0123456789012345678901234567890\" } }\n  - { id: b, tool: echo, needs: [a] }\n",
    );
    let config = world.read("gesta.toml");
    let windows =
        "[temporal]\ntrajectory = [{ calls = 1, per = \"1h\", then = \"interrupt\" }]\n[worker]";
    world.write("gesta.toml", &config.replace("[worker]", windows));
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("calls come faster than they may by themselves");
    run.kill();
    world.write("gesta.toml", &config.replace("[worker]", "[worker]\nmax_args = \"16B\""));
    let ran = world.gesta(&["run", "job.yaml", "--json"]).expect(10);
    assert!(ran.out.contains("envelope_invalid"), "{}", ran.out);
    world.write("gesta.toml", &config);
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    assert_eq!(ran["effects"], serde_json::json!([]));
    let version = "PRAGMA user_version = 99";
    rusqlite::Connection::open(world.path("gesta.db")).unwrap().execute_batch(version).unwrap();
    world.gesta(&["run", "job.yaml"]).expect(6);
}

/// A job that nobody here could drive is not left for others to find.
#[test]
fn without_the_workers_key_nothing_is_submitted() {
    let world = World::with_tools(
        "[tools.one]\neffect = \"read\"\ndriver.process = { command = [\"echo\", \"1\"], env = [\"PATH\"] }\n",
    );
    world.write("job.yaml", "job: one\nsteps:\n  - { id: a, tool: one, args: {} }\n");
    let key = world.path("keys/worker.pem");
    std::fs::rename(&key, world.path("kept.pem")).unwrap();
    for text in [None, Some("nonsense")] {
        if let Some(text) = text {
            std::fs::write(&key, text).unwrap();
        }
        let failed = world.gesta(&["run", "job.yaml"]);
        assert_ne!(failed.code, Some(0));
        assert!(failed.err.contains("worker.pem"), "{}", failed.err);
        assert!(world.jobs().is_empty(), "nothing was submitted");
    }
    std::fs::rename(world.path("kept.pem"), &key).unwrap();
    world.gesta(&["run", "job.yaml"]).ok();
    assert_eq!(world.jobs().len(), 1);
}

/// What it returned is all that is left to look at, and it is there.
#[test]
fn a_result_whose_changes_cannot_be_told_is_kept() {
    for (changes, why) in [
        ("{ type = \"refund\", id = \"result.nope\" }", "what it changed cannot be told"),
        ("{ type = \"refund\", id = \"'x'\", value = \"result.nope\" }", "cannot be told"),
        ("{ type = \"refund\", id = \"'x'\" }, { type = \"refund\", id = \"'x'\" }", "twice"),
    ] {
        let world = World::with_tools(&format!(
            "[tools.pay]\neffect = \"external\"\nchanges = [{changes}]\n[tools.pay.driver.process]\ncommand = \"echo paid >> paid; echo '{{\\\"reference\\\":\\\"rf_4711\\\"}}'\"\nshell = true\nenv = [\"PATH\"]\n"
        ));
        world.write("job.yaml", "job: pay\nsteps:\n  - { id: a, tool: pay, args: {} }\n");
        let failed = world.gesta(&["run", "job.yaml"]).expect(10);
        assert!(failed.out.contains(why), "{}", failed.out);
        assert_eq!(world.read("paid"), "paid\n");
        let id = world.job();
        let failure = &world.bodies(&id, "failure")[0];
        assert_eq!(failure["certainty"], "happened");
        let seq = world.kinds(&id).iter().position(|kind| kind == "failure").unwrap();
        // The hint names the entry that shows it.
        assert!(failed.err.contains(&format!(":{seq}` what failed")), "{}", failed.err);
        let shown = world.gesta(&["show", &format!("{id}:{seq}")]).ok();
        assert!(shown.contains("rf_4711"), "{shown}");
        let shown = world.gesta(&["show", &format!("{id}:{seq}"), "--json"]).json();
        assert_eq!(shown["output"], "{\"reference\":\"rf_4711\"}\n");
        world.gesta(&["verify", &id]).ok();
        world.gesta(&["replay", &id]).ok();
    }
}

/// What a dry run says of each step: its verdict, and the rest of the line.
fn foreseen(world: &World, job: &str) -> Vec<(String, String, String)> {
    world.write("job.yaml", job);
    let told = world.gesta(&["run", "job.yaml", "--dry-run", "--json"]).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let steps = told["steps"].as_array().unwrap().iter();
    steps.map(|step| (text(&step["what"]), text(&step["reason"]), text(&step["note"]))).collect()
}

/// Evidence and preconditions are about what the steps before will have done.
#[test]
fn a_dry_run_says_what_depends_on_the_steps_before() {
    let world = World::with_tools(
        "[tools.look]\neffect = \"read\"\nchanges = [{ type = \"order\", id = \"'7'\" }]\n\
         driver.process = { command = [\"true\"] }\n\
         [tools.pay]\neffect = \"external\"\ndriver.process = { command = [\"true\"] }\n\
         [tools.ship]\neffect = \"write\"\npreconditions = [\"'7' in world.order\"]\n\
         driver.process = { command = [\"true\"] }\n",
    );
    let policy = "@id(\"rest\") permit (principal, action, resource) when { resource != Tool::\"pay\" };\n\
         @id(\"paying\") @requires(\"order by look\") permit (principal, action in Action::\"tool:pay\", resource);\n";
    world.write("policy.cedar", policy);
    world.gesta(&["policy", "publish"]).ok();
    let row = |what: &str, reason: &str, note: &str| {
        (what.to_owned(), reason.to_owned(), note.to_owned())
    };

    let alone = "job: one\nsteps:\n  - { id: pay, tool: pay }\n  - { id: ship, tool: ship }\n";
    let missing = "it must be committed first, and is not: a `order` by `look`";
    let demands = "the world is not as the tool demands: `'7' in world.order` ";
    let told = foreseen(&world, alone);
    assert_eq!(told[0], row("deny", "missing_requirement", missing));
    assert_eq!((told[1].0.as_str(), told[1].1.as_str()), ("deny", "precondition_failed"));
    assert!(told[1].2.starts_with(demands), "{told:?}");

    let after = "job: one\nsteps:\n  - { id: look, tool: look }\n  - { id: pay, tool: pay, needs: [look] }\n  - { id: ship, tool: ship, needs: [look] }\n";
    let told = foreseen(&world, after);
    assert_eq!(told[0], row("allow", "", ""));
    assert_eq!(told[1], row("depends", "", "on what the steps before it will have committed"));
    assert_eq!(told[2], row("depends", "", "on what the world is then: `'7' in world.order`"));

    let of = "job: one\nsteps:\n  - { id: look, tool: look }\n  - { id: ship, tool: ship, args: { it: '${steps.look.result}' } }\n";
    let certain = "on `look`; the writ covers the tool and its effect `write`";
    assert_eq!(foreseen(&world, of)[1], row("depends", "", certain));
    world.gesta(&["freeze", "tool", "ship"]).ok();
    let told = foreseen(&world, of);
    assert_eq!(told[1], row("deny", "tool_frozen", "whatever its arguments: the tool is frozen"));
}
