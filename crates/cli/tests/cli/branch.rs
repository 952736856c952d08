//! Branches through the door: what they inherit, what they ask about, what they never do twice; from
//! sources that run, have failed or are branches themselves; and processes that die on the way.

use gesta_verify::report::Verdict;
use serde_json::{Value, json};

use crate::export::audit;
use crate::world::World;

/// A tool that only looks, one that acts and keeps one file an effect, one that undoes, one that fails
/// while a file is there, and one that nobody can say anything about once it was sent.
const TOOLS: &str = r#"
[tools.look]
effect = "read"
recovery = "safe"
[tools.look.driver.process]
command = '''
read -r args; echo x >> looked; echo '{"seen":1}'
'''
shell = true
env = ["PATH"]

[tools.act]
effect = "external"
recovery = "keyed_concurrent"
compensate = { tool = "undo", args = {} }
[tools.act.input]
type = "object"
additionalProperties = false
properties = { to = { type = "string" }, n = { type = "integer" } }
[tools.act.driver.process]
command = '''
read -r args; mkdir -p done
test -e "done/$GESTA_KEY" || echo "$args" > "done/$GESTA_KEY"
echo '{"ok":true}'
'''
shell = true
env = ["PATH"]

[tools.undo]
effect = "external"
recovery = "keyed_concurrent"
[tools.undo.driver.process]
command = '''
read -r args; mkdir -p undone; echo x >> "undone/$GESTA_KEY"; echo '{"ok":true}'
'''
shell = true
env = ["PATH"]

[tools.picky]
effect = "external"
[tools.picky.driver.process]
command = '''
read -r args; test -e closed && exit 10
mkdir -p done; echo "$args" >> "done/$GESTA_KEY"; echo '{"ok":true}'
'''
shell = true
env = ["PATH"]
exit = { 10 = "did_not_happen" }

[tools.blind]
effect = "irreversible"
[tools.blind.driver.process]
command = '''
read -r args; mkdir -p done; echo "$args" >> "done/$GESTA_KEY"
test -e closed && exit 3
echo '{"ok":true}'
'''
shell = true
env = ["PATH"]
"#;

pub(crate) const JOB: &str = "job: shop
input: { who: string }
steps:
  - { id: read, tool: look }
  - { id: charge, tool: act, args: { to: '${input.who}' }, needs: [read] }
  - { id: again, tool: look, needs: [charge] }
  - { id: ship, tool: act, args: { to: '${input.who}', n: 1 }, needs: [again] }
answer: ${steps.ship.result}
";

pub(crate) fn world(job: &str) -> World {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", job);
    world
}

/// The shop, after its job has run.
pub(crate) fn shop() -> (World, String) {
    let world = world(JOB);
    let ran = world.gesta(&["run", "job.yaml", "--input", "who=ada", "--json"]).json();
    (world, ran["trajectory"].as_str().unwrap().to_owned())
}

/// Makes a branch and leaves it alone.
pub(crate) fn branch(world: &World, source: &str, more: &[&str]) -> String {
    let made = world.gesta(&[&["branch", source, "--submit", "--json"], more].concat()).json();
    assert_eq!((&made["new"], &made["source"]), (&json!(true), &json!(source)));
    made["trajectory"].as_str().unwrap().to_owned()
}

/// What a step asks, after a worker has driven everything as far as it goes.
fn asked(world: &World, id: &str) -> Vec<Value> {
    world.gesta(&["worker", "--once"]).ok();
    world.bodies(id, "pending_approval")
}

fn steps(world: &World, id: &str, kind: &str) -> Vec<String> {
    let of = |body: &Value| match kind {
        "started" => body["proposal"]["step"].as_str().unwrap().to_owned(),
        _ => body["step"].as_str().unwrap().to_owned(),
    };
    world.bodies(id, kind).iter().map(of).collect()
}

/// What was done outside: one line an effect, and no effect twice.
fn effects(world: &World) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(world.path("done")) else { return Vec::new() };
    let read = |file: std::fs::DirEntry| std::fs::read_to_string(file.path()).unwrap();
    let mut all: Vec<String> = files.map(|file| read(file.unwrap())).collect();
    assert!(all.iter().all(|effect| effect.lines().count() == 1), "{all:?}");
    all.sort();
    all.iter().map(|effect| effect.trim().to_owned()).collect()
}

#[test]
fn what_was_recorded_is_taken_over_at_no_cost() {
    let (world, source) = shop();
    let (looked, did) = (world.read("looked"), effects(&world));
    let ran =
        world.gesta(&["branch", &source, "--at", "charge", "--mode", "recorded", "--json"]).json();
    assert_eq!((&ran["status"], &ran["answer"]), (&json!("completed"), &json!({ "ok": true })));
    let id = ran["trajectory"].as_str().unwrap();
    assert_eq!(steps(&world, id, "commit"), ["again", "ship", "answer"]);
    assert!(steps(&world, id, "started").is_empty());
    assert_eq!((world.read("looked"), effects(&world)), (looked, did));
    let source_commits = world.gesta(&["log", &source, "--json"]).json_lines();
    let taken = &world.bodies(id, "commit")[1];
    let from = &taken["origin"]["recorded_from"]["commit"];
    assert!(source_commits.iter().any(|line| line["id"] == *from), "{taken}");
    assert_eq!(taken["cost"], json!({}));
    assert_eq!(world.bodies(id, "branch")[0]["mode"], "recorded");
    world.gesta(&["verify"]).ok();
    world.gesta(&["export", id, "-o", "b.gesta"]).ok();
    let report = audit(&world.path("b.gesta"), &world.path("trust.json"));
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
}

#[test]
fn what_the_source_did_after_the_point_is_asked_about() {
    let (world, source) = shop();
    let key = format!("{:?}", std::fs::read_dir(world.path("done")).unwrap().collect::<Vec<_>>());
    let id = branch(&world, &source, &["--at", "6", "--note", "once more"]);
    let asks = asked(&world, &id);
    let reason = asks[0]["reason"].as_str().unwrap();
    assert_eq!((asks.len(), &asks[0]["proposal"]["step"]), (1, &json!("ship")));
    let told = format!("`ship` of {source} happened, sent ");
    assert!(reason.contains(&told) && reason.contains(" UTC with the key `gesta-"), "{reason}");
    let external = reason.rsplit('`').nth(1).unwrap();
    assert!(key.contains(external), "{reason}: {key}");
    // It looked again, for that is free, and did nothing else.
    assert_eq!(steps(&world, &id, "started"), ["again"]);
    assert_eq!((world.read("looked").lines().count(), effects(&world).len()), (3, 2));

    world.gesta(&["approve", &format!("{id}/ship")]).ok();
    let ran = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!(ran["status"], "completed", "{ran}");
    assert_eq!(effects(&world).len(), 3);
    world.gesta(&["verify"]).ok();

    let id = branch(&world, &source, &["--at", "charge"]);
    asked(&world, &id);
    world.gesta(&["deny", &format!("{id}/ship"), "--note", "no"]).ok();
    world.gesta(&["resume", &id]).expect(10);
    assert_eq!(effects(&world).len(), 3);
}

#[test]
fn a_live_branch_runs_and_any_number_begin_at_one_commit() {
    let (world, source) = shop();
    for n in 3..6 {
        world.gesta(&["branch", &source, "--at", "charge", "--mode", "live"]).ok();
        assert_eq!(effects(&world).len(), n);
    }
    assert_eq!(world.jobs().len(), 4);
    world.gesta(&["verify"]).ok();
    world.gesta(&["doctor"]).ok();
}

#[test]
fn other_arguments_run_on_and_are_not_what_was_recorded() {
    let (world, source) = shop();
    let set = ["--at", "charge", "--set", "ship.args.n=2", "--set", "ship.args.to=Ada ${1 + 1}"];
    let id = branch(&world, &source, &[&set[..], &["--mode", "recorded"]].concat());
    let asks = asked(&world, &id);
    assert_eq!(asks[0]["proposal"]["args"], json!({ "n": 2, "to": "Ada 2" }));
    assert_eq!(steps(&world, &id, "commit"), ["again"], "what is the same is taken over");
    world.gesta(&["approve", &format!("{id}/ship")]).ok();
    world.gesta(&["resume", &id]).ok();
    assert!(
        effects(&world).contains(&r#"{"n":2,"to":"Ada 2"}"#.to_owned()),
        "{:?}",
        effects(&world)
    );

    let id = branch(&world, &source, &["--at", "charge", "--input", "who=bob", "--mode", "live"]);
    world.gesta(&["resume", &id]).ok();
    assert!(effects(&world).contains(&r#"{"n":1,"to":"bob"}"#.to_owned()));

    // What an argument mentions is needed from then on, and the plan is what it would have been compiled to.
    let mentions = "ship.args.to=${steps.charge.skipped ? 'nobody' : 'cyd'}";
    let id = branch(&world, &source, &["--at", "charge", "--set", mentions, "--mode", "live"]);
    world.gesta(&["resume", &id]).ok();
    assert!(effects(&world).contains(&r#"{"n":1,"to":"cyd"}"#.to_owned()));
    let plan = &world.bodies(&id, "plan")[0];
    let ship = plan["steps"].as_array().unwrap().iter().find(|step| step["id"] == "ship");
    assert_eq!(ship.unwrap()["needs"], json!(["again", "charge"]));
    world.gesta(&["verify"]).ok();
    world.gesta(&["replay", "--all"]).ok();
}

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    let (world, source) = shop();
    let whole = format!("{source}:0");
    let nearest = "4 (`read`), 6 (`charge`), 8 (`again`), 10 (`ship`), 11 (`answer`)";
    let cases: [(&[&str], &str); 16] = [
        (&["--at", "5"], nearest),
        (&["--at", "5"], "entry 5 of"),
        (&["--at", &whole], nearest),
        (&["--at", "99"], "has no entry 99"),
        (&["--at", "nothing"], "has no commit of step `nothing`"),
        (&["--at", "Nothing!"], "neither an entry nor a step"),
        (&["--at", &"0".repeat(64)], "has no commit"),
        (&["--at", "charge", "--set", "charge.args.n=1"], "step `charge` is done"),
        (&["--at", "charge", "--set", "ship.args.x=1"], "`x`"),
        (&["--at", "charge", "--set", "ship.args.n=one"], "`n`"),
        (&["--at", "charge", "--set", "ship.args.to=${steps.shop.result}"], "unknown step `shop`"),
        (&["--at", "charge", "--set", "ship.args.to=${steps.answer.result}"], "`answer`"),
        (&["--at", "charge", "--set", "answer.args.x=1"], "calls no tool"),
        (&["--at", "charge", "--set", "shop.args.x=1"], "no step `shop`"),
        (&["--at", "charge", "--set", "ship.x=1"], "STEP.args.PATH=VALUE"),
        (&["--at", "charge", "--input", "whom=1"], "no input `whom`"),
    ];
    for (arguments, told) in cases {
        let refused = world.gesta(&[&["branch", &source, "--submit"], arguments].concat());
        assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains(told), "{arguments:?}: {}", refused.err);
    }
    let registry = world.gesta(&["log", "--json"]).json_lines();
    let registry = registry.iter().find(|row| row["summary"]["kind"] == "registry").unwrap();
    let registry = registry["trajectory"].as_str().unwrap();
    let refused = world.gesta(&["branch", registry, "--at", "1"]).expect(2);
    assert!(refused.err.contains("is not a job"), "{}", refused.err);
    assert_eq!(world.jobs().len(), 1);
}

#[test]
fn another_plan_agrees_with_what_is_done() {
    let (world, source) = shop();
    let plan = |text: &str| {
        world.write("other.yaml", text);
        ["--at", "charge", "--plan", "other.yaml"]
    };
    let other = plan(&JOB.replace("to: '${input.who}' }", "to: '${input.who}', n: 7 }"));
    let refused = world.gesta(&[&["branch", &source], &other[..]].concat()).expect(2);
    assert!(refused.err.contains("step `charge` is done"), "{}", refused.err);
    let gone = plan(&JOB.replace("id: charge", "id: bill").replace("[charge]", "[bill]"));
    let refused = world.gesta(&[&["branch", &source], &gone[..]].concat()).expect(2);
    assert!(refused.err.contains("step `charge`") && refused.err.contains("does not have it"));
    assert_eq!(effects(&world).len(), 2);

    // A step by another name does the same once more, so it is asked about; one that is new is not.
    let renamed = JOB.replace("id: ship", "id: send").replace("steps.ship", "steps.send");
    let extra = "  - { id: thank, tool: act, args: { to: thanks }, needs: [again] }\nanswer";
    let renamed = plan(&renamed.replace("answer", extra));
    let id = branch(&world, &source, &renamed);
    let asks = asked(&world, &id);
    assert_eq!((asks.len(), &asks[0]["proposal"]["step"]), (1, &json!("send")));
    assert!(asks[0]["reason"].as_str().unwrap().contains("`ship` of"), "{asks:?}");
    assert_eq!(effects(&world).len(), 3);
    world.gesta(&["approve", &format!("{id}/send")]).ok();
    world.gesta(&["resume", &id]).ok();
    assert_eq!(effects(&world).len(), 4);
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_branch_has_branches_and_all_above_it_counts() {
    let (world, source) = shop();
    let first = branch(&world, &source, &["--at", "read"]);
    asked(&world, &first);
    world.gesta(&["approve", &format!("{first}/charge")]).ok();
    let asks = asked(&world, &first);
    assert_eq!(asks.len(), 2, "charge, and then ship");
    assert_eq!(effects(&world).len(), 3);
    // The branch has charged and not shipped; its source has shipped.
    let second = branch(&world, &first, &["--at", "charge"]);
    let asks = asked(&world, &second);
    assert_eq!((asks.len(), &asks[0]["proposal"]["step"]), (1, &json!("ship")));
    assert!(asks[0]["reason"].as_str().unwrap().contains(&source), "{asks:?}");
    let recorded = ["branch", &first, "--at", "charge", "--mode", "recorded", "--json"];
    assert_eq!(world.gesta(&recorded).json()["status"], "completed");
    assert_eq!(effects(&world).len(), 3);

    let refused = world.gesta(&["branch", &first, "--at", "read"]).expect(2);
    let told = format!("`read` was committed by entry 4 of {source}");
    assert!(refused.err.contains(&told), "{}", refused.err);
    world.gesta(&["verify"]).ok();
}

#[test]
fn the_same_key_is_the_same_branch() {
    let (world, source) = shop();
    let make = |more: &[&str]| {
        world.gesta(&[&["branch", &source, "--submit", "--json", "--key", "k"], more].concat())
    };
    let first = make(&["--at", "charge"]).json();
    let again = make(&["--at", "6"]).json();
    assert_eq!(first["trajectory"], again["trajectory"]);
    assert_eq!(again["new"], false);
    for other in [
        &["--at", "read"][..],
        &["--at", "charge", "--mode", "live"],
        &["--at", "charge", "--input", "who=bob"],
        &["--at", "charge", "--set", "ship.args.n=2"],
    ] {
        make(other).expect(2);
    }
    assert_eq!(world.jobs().len(), 2);
}

const PICKY: &str = "job: shop
steps:
  - { id: charge, tool: act }
  - { id: ship, tool: picky, needs: [charge] }
";

#[test]
fn a_source_that_failed_is_gone_on_from() {
    let world = world(PICKY);
    world.write("closed", "");
    world.gesta(&["run", "job.yaml"]).expect(10);
    let source = world.job();
    std::fs::remove_file(world.path("closed")).unwrap();
    // It did not happen, so there is nothing to repeat; whoever wants what was recorded is asked.
    let recorded = branch(&world, &source, &["--at", "charge", "--mode", "recorded"]);
    let asks = asked(&world, &recorded);
    assert!(asks[0]["reason"].as_str().unwrap().contains("did not happen"), "{asks:?}");
    let ran = world.gesta(&["branch", &source, "--at", "charge", "--json"]).json();
    assert_eq!(ran["status"], "completed", "{ran}");
    assert_eq!(effects(&world).len(), 2);
    world.gesta(&["verify"]).ok();
}

#[test]
fn what_nobody_knows_of_the_source_is_asked_about() {
    let world = world(&PICKY.replace("picky", "blind"));
    world.write("closed", "");
    world.gesta(&["run", "job.yaml"]).expect(12);
    let source = world.job();
    std::fs::remove_file(world.path("closed")).unwrap();
    for mode in ["ask", "recorded"] {
        let id = branch(&world, &source, &["--at", "charge", "--mode", mode]);
        let asks = asked(&world, &id);
        let reason = asks[0]["reason"].as_str().unwrap();
        assert!(reason.contains("`ship` of") && reason.contains("may have happened"), "{reason}");
    }
    assert_eq!(effects(&world).len(), 2);
    world.gesta(&["verify"]).ok();
}

#[test]
fn what_was_undone_is_not_inherited_as_done() {
    let world = world(
        &format!("{PICKY}on_failure: compensate\n")
            .replace("tool: act", "tool: act, needs: [read]")
            .replace("steps:\n", "steps:\n  - { id: read, tool: look }\n"),
    );
    world.write("closed", "");
    world.gesta(&["run", "job.yaml"]).expect(10);
    assert_eq!(world.files("undone"), 1);
    let source = world.job();
    std::fs::remove_file(world.path("closed")).unwrap();
    for at in ["charge", "charge/undo"] {
        let refused = world.gesta(&["branch", &source, "--at", at]).expect(2);
        assert!(refused.err.contains("step `charge` was undone by entry"), "{}", refused.err);
    }
    // What was undone is not taken over, but asked about; what a branch did itself, it undoes itself.
    let id = branch(&world, &source, &["--at", "read", "--mode", "recorded"]);
    let asks = asked(&world, &id);
    assert!(asks[0]["reason"].as_str().unwrap().contains("was undone"), "{asks:?}");
    world.gesta(&["approve", &format!("{id}/charge")]).ok();
    asked(&world, &id);
    world.gesta(&["deny", &format!("{id}/ship"), "--note", "no"]).ok();
    world.gesta(&["resume", &id]).expect(10);
    assert_eq!(world.files("undone"), 2);
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_branch_leaves_what_it_inherited_when_it_is_rolled_back() {
    let world = world(&format!("{PICKY}on_failure: compensate\n"));
    world.gesta(&["run", "job.yaml"]).ok();
    world.write("closed", "");
    let source = world.job();
    let failed = world.gesta(&["branch", &source, "--at", "charge", "--mode", "live"]).expect(10);
    assert_eq!(world.files("undone"), 0, "{}", failed.out);
    let id = world.jobs().into_iter().find(|id| *id != source).unwrap();
    world.gesta(&["verify", &id]).ok();
}

const WAITS: &str = "job: shop
steps:
  - { id: charge, tool: act }
  - { id: gate, wait: { signal: go }, needs: [charge] }
  - { id: ship, tool: act, args: { n: 1 }, needs: [gate] }
";

#[test]
fn a_source_that_runs_on_is_watched() {
    let world = world(WAITS);
    let source = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    world.gesta(&["worker", "--once"]).ok();
    let plan = WAITS.replace("needs: [gate]", "needs: [gate, charge]");
    world.write("other.yaml", &plan);
    // Made by one process and run by another, while the source waits.
    let id = branch(&world, &source, &["--at", "charge", "--plan", "other.yaml"]);
    world.gesta(&["worker", "--once"]).ok();
    // Its source's signals are not its own.
    world.gesta(&["signal", &source, "go"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(effects(&world).len(), 2);
    world.gesta(&["signal", &id, "go"]).ok();
    let asks = asked(&world, &id);
    assert_eq!(asks.len(), 1, "its source has shipped since: {asks:?}");
    assert_eq!(effects(&world).len(), 2);

    // A branch that is ahead of its source is not asked about.
    let (first, ahead) = ("first", "ahead");
    let source = world.gesta(&["submit", "job.yaml", "--key", first]).ok().trim().to_owned();
    world.gesta(&["worker", "--once"]).ok();
    let id = branch(&world, &source, &["--at", "charge", "--key", ahead]);
    world.gesta(&["signal", &id, "go"]).ok();
    assert!(asked(&world, &id).is_empty());
    assert_eq!(effects(&world).len(), 4);
    world.gesta(&["verify"]).ok();
}

/// Somebody agreed before the source did it too: they did not know, so they are asked again.
#[test]
fn consent_is_to_what_was_known() {
    let world = world(WAITS);
    let source = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    world.gesta(&["worker", "--once"]).ok();
    let attended = "@id(\"call\") permit (principal, action in Action::\"call\", resource);\n";
    world.write("policy.cedar", attended);
    world.gesta(&["policy", "publish"]).ok();
    let id = branch(&world, &source, &["--at", "charge"]);
    world.gesta(&["signal", &id, "go"]).ok();
    let asks = asked(&world, &id);
    assert!(!asks[0]["reason"].as_str().unwrap().contains("has sent it before"), "{asks:?}");
    world.gesta(&["approve", &format!("{id}/ship")]).ok();
    world.gesta(&["signal", &source, "go"]).ok();
    let free = "@id(\"all\") permit (principal, action, resource);\n";
    world.write("policy.cedar", free);
    world.gesta(&["policy", "publish"]).ok();
    world.gesta(&["resume", &source]).ok();
    assert_eq!(effects(&world).len(), 2);
    let asks = asked(&world, &id);
    assert_eq!(asks.len(), 2, "{asks:?}");
    assert!(asks[1]["reason"].as_str().unwrap().contains("has sent it before"), "{asks:?}");
    assert_eq!(effects(&world).len(), 2);
    world.gesta(&["approve", &format!("{id}/ship")]).ok();
    world.gesta(&["resume", &id]).ok();
    assert_eq!(effects(&world).len(), 3);
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_task_that_was_handed_out_is_not_handed_out_again() {
    let world = world(
        "job: shop\nsteps:\n  - { id: charge, tool: act }\n  - { id: ask, delegate: { job: child.yaml }, needs: [charge] }\n",
    );
    world.write("child.yaml", "job: child\nsteps:\n  - { id: act, tool: act, args: { n: 1 } }\n");
    world.gesta(&["run", "job.yaml"]).ok();
    let jobs = world.jobs();
    let parent = |id: &&String| world.gesta(&["tree", id, "--json"]).json()["parent"].is_null();
    let source = jobs.iter().find(parent).unwrap();
    assert_eq!(effects(&world).len(), 2);
    for mode in ["ask", "recorded"] {
        let branch = ["branch", source, "--at", "charge", "--mode", mode];
        let failed = world.gesta(&branch).expect(10);
        assert!(failed.out.contains("a child of this branch would do all of it again"));
    }
    assert_eq!(effects(&world).len(), 2);
    // What the child has answered is inherited; a live branch hands the task out anew.
    world.gesta(&["branch", source, "--at", "ask"]).ok();
    assert_eq!(effects(&world).len(), 2);
    world.gesta(&["branch", source, "--at", "charge", "--mode", "live"]).ok();
    assert_eq!(effects(&world).len(), 3);
    world.gesta(&["verify"]).ok();
}

/// A process that dies anywhere between making a branch and its end.
#[cfg(feature = "cuts")]
#[test]
fn a_branch_that_is_killed_anywhere_goes_on_and_does_everything_once() {
    let calls = ["after_gate", "after_dispatch", "after_examine"];
    let calls = calls.iter().flat_map(|point| (1..=2).map(move |n| format!("{point}:{n}")));
    let appends = ["before_append", "after_append"];
    let appends = appends.iter().flat_map(|point| (1..=3).map(move |n| format!("{point}:{n}")));
    for cut in calls.chain(appends).chain(["after_branch".to_owned()]) {
        let (world, source) = shop();
        let live = ["branch", &source, "--at", "charge", "--mode", "live", "--key", "k"];
        let killed = world.gesta_with(&live, &[("GESTA_CUT", &cut)]);
        assert_eq!(killed.code, None, "{cut}: it was not killed:\n{}", killed.err);
        // Asking for it again goes on with it.
        let ran = world.gesta(&[&live[..], &["--json"]].concat()).json();
        assert_eq!(ran["status"], "completed", "{cut}: {ran}");
        assert_eq!(effects(&world).len(), 3, "{cut}");
        assert_eq!(world.jobs().len(), 2, "{cut}");
        world.gesta(&["verify"]).ok();
    }
}

/// The same where results are taken over, by a worker that was not asked for anything.
#[cfg(feature = "cuts")]
#[test]
fn a_worker_goes_on_with_a_branch_that_was_killed() {
    for cut in ["after_branch", "before_append:1", "after_append:1"] {
        let (world, source) = shop();
        let recorded = ["branch", &source, "--at", "read", "--mode", "recorded"];
        let killed = world.gesta_with(&recorded, &[("GESTA_CUT", cut)]);
        assert_eq!(killed.code, None, "{cut}: it was not killed:\n{}", killed.err);
        world.gesta(&["worker", "--once"]).ok();
        let ended = world.gesta(&["jobs", "--status", "completed", "--json"]).json_lines();
        assert_eq!((ended.len(), effects(&world).len()), (2, 2), "{cut}");
        world.gesta(&["verify"]).ok();
    }
}

#[cfg(feature = "postgres")]
#[test]
fn branches_on_postgres_are_the_same() {
    let database = crate::postgres::Database::new("branch");
    let url = database.url();
    let world = World::new();
    world.free();
    world.gesta(&["init", "--store", &url]).ok();
    world.set_tools(TOOLS);
    world.write("job.yaml", JOB);
    let run = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    run(&["policy", "publish"]).ok();
    let ran = run(&["run", "job.yaml", "--input", "who=ada", "--json"]).json();
    let source = ran["trajectory"].as_str().unwrap();
    let recorded =
        run(&["branch", source, "--at", "charge", "--mode", "recorded", "--json"]).json();
    assert_eq!(recorded["status"], "completed", "{recorded}");
    let made = run(&["branch", source, "--at", "charge", "--submit"]).ok();
    let id = made.trim();
    run(&["worker", "--once"]).ok();
    assert_eq!(effects(&world).len(), 2);
    run(&["approve", &format!("{id}/ship")]).ok();
    run(&["worker", "--once"]).ok();
    assert_eq!(effects(&world).len(), 3);
    let completed = run(&["jobs", "--status", "completed", "--json"]).json_lines();
    assert_eq!(completed.len(), 3);
    run(&["verify"]).ok();
}
