//! Calls that were under way when their worker was killed: doubts, resolutions, keys, probes.

use std::time::{Duration, Instant};

use gesta_core::amounts::Amounts;
use gesta_core::content::Content;
use gesta_core::document::{CallResult, EffectReport, Settlement};
use gesta_core::json::{Canon, to_canonical};
use gesta_core::keys::PrivateKey;
use gesta_core::signed::{Signed, Tag};
use gesta_core::time::UnixMs;
use gesta_core::world::Delta;
use gesta_store::Store as _;
use gesta_store::sqlite::{Options, SqliteStore};
#[cfg(feature = "cuts")]
use rustix::process::Signal;

use crate::world::World;

/// A tool that says that it was reached, leaves its mark, and then waits.
pub(crate) fn hanging(recovery: &str, timeout: &str) -> String {
    format!(
        "[tools.hang]\neffect = \"external\"\nrecovery = \"{recovery}\"\ntimeout = \"{timeout}\"\noutput = {{ type = \"object\", required = [\"n\"] }}\n[tools.hang.driver.process]\ncommand = '''\nread -r args; mkdir -p marks; : > \"marks/$GESTA_KEY-$$\"\n[ -e calm ] || {{ echo reached > reached; cat pause; }}\necho '{{\"n\":1}}'\n'''\nshell = true\nenv = [\"PATH\"]\n"
    )
}

pub(crate) const JOB: &str = "job: hang\nsteps:\n  - { id: a, tool: hang, args: { order: 7 } }\nanswer: ${steps.a.result.n}\n";

/// A job whose only call was killed in the middle.
fn killed(tools: &str) -> (World, String) {
    let world = World::with_tools(tools);
    world.write("job.yaml", JOB);
    world.fifo("reached");
    world.fifo("pause");
    let run = world.start(&["run", "job.yaml"]);
    world.hear("reached");
    run.kill();
    world.write("calm", "");
    let id = world.job();
    (world, id)
}

#[test]
fn a_doubt_shows_what_the_tool_said_last() {
    let tool = "[tools.half]\neffect = \"external\"\n[tools.half.driver.process]\ncommand = '''\necho 'charged, reference x7'; kill -9 $$\n'''\nshell = true\nenv = [\"PATH\"]\n";
    let world = World::with_tools(tool);
    world.write("job.yaml", "job: half\nsteps:\n  - { id: a, tool: half, args: {} }\n");
    world.gesta(&["run", "job.yaml"]).expect(12);
    let told = world.gesta(&["doubts"]).ok();
    assert!(told.contains("output     charged, reference x7"), "{told}");
    let listed = world.gesta(&["doubts", "--json"]).json_lines();
    assert_eq!(listed[0]["output"], "charged, reference x7\n");
}

#[test]
fn a_doubt_is_laid_out_and_resolved_by_an_operator() {
    let (world, id) = killed(&hanging("never", "50s"));
    let resumed = world.gesta(&["resume", &id]).expect(12);
    assert!(resumed.err.contains("`gesta doubts` shows what is known"), "{}", resumed.err);
    assert!(resumed.out.contains("perhaps: nobody knows"), "{}", resumed.out);
    let line = resumed.err.lines().find(|line| line.contains("in doubt")).unwrap();
    assert!(line.contains("hang"), "the tool of a dead attempt's call is named: {line}");
    let told = world.gesta(&["doubts"]).ok();
    for what in [
        "hang: external, recovery never",
        "{\"order\":7}",
        "key        gesta-",
        "attempt 1",
        "worker_lost",
        "--happened",
    ] {
        assert!(told.contains(what), "{what}:\n{told}");
    }
    let listed = world.gesta(&["doubts", "--json"]).json_lines();
    assert_eq!((&listed[0]["step"], &listed[0]["recovery"]), (&"a".into(), &"never".into()));
    assert!(world.gesta(&["jobs"]).ok().contains("a in doubt"));

    let off = world.gesta(&["resolve", &id, "--happened", "{\"m\":1}"]).expect(2);
    assert!(off.err.contains("does not fit the tool's schema"), "{}", off.err);
    let early = world.gesta(&["resolve", &id, "--did-not-happen"]).expect(1);
    assert!(
        early.err.contains("can still land until") && early.err.contains("--force"),
        "{}",
        early.err
    );
    let none = world.gesta(&["resolve", &format!("{id}/b"), "--give-up"]).expect(1);
    assert!(none.err.contains("step `b`"), "{}", none.err);
    world.gesta(&["resolve", &id, "--happened", "{\"n\":9}", "--give-up"]).expect(2);

    let step = format!("{id}/a");
    world
        .gesta(&["resolve", &step, "--happened", "{\"n\":9}", "--evidence", "seen in the ledger"])
        .ok();
    let resumed = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!((&resumed["status"], &resumed["answer"]), (&"completed".into(), &9.into()));
    assert_eq!(world.files("marks"), 1, "it was called once");
    assert!(world.gesta(&["doubts"]).expect(0).err.contains("nothing is in doubt"));
    let resolution = &world.bodies(&id, "resolution")[0];
    assert_eq!(
        resolution["statement"]["doc"]["evidence"]["inline"]["operator"],
        "seen in the ledger"
    );
    world.gesta(&["verify", &id]).ok();
}

#[test]
fn what_did_not_happen_is_done_again_and_what_nobody_knows_fails() {
    let (world, id) = killed(&hanging("never", "50s"));
    world.gesta(&["resume", &id]).expect(12);
    world.gesta(&["resolve", &id, "--did-not-happen", "--force"]).ok();
    assert_eq!(world.bodies(&id, "resolution")[0]["statement"]["doc"]["forced"], true);
    assert_eq!(world.gesta(&["resume", &id, "--json"]).json()["answer"], 1);
    assert_eq!(world.files("marks"), 2);

    let (world, id) = killed(&hanging("never", "50s"));
    world.gesta(&["resume", &id]).expect(12);
    world.gesta(&["resolve", &id, "--give-up"]).ok();
    let failed = world.gesta(&["resume", &id]).expect(10);
    assert!(failed.out.contains("failed  hang"), "{}", failed.out);
    assert_eq!(world.files("marks"), 1);
}

/// What its worker saw, signed by the executor.
fn seen(world: &World, id: &str) -> Signed<EffectReport> {
    let lines = world.gesta(&["log", id, "--json"]).json_lines();
    let started = lines.iter().find(|line| line["entry"]["kind"] == "started").unwrap();
    let key = PrivateKey::from_pem(&world.read("keys/worker.pem")).unwrap();
    let report = EffectReport {
        at: UnixMs(started["entry"]["at"].as_u64().unwrap()),
        key: key.id(),
        result: CallResult::Succeeded(Settlement {
            cost: Amounts::ONE_CALL,
            delta: Delta::default(),
            observation: Content::Inline(Canon::parse(br#"{"n":1}"#).unwrap()),
        }),
        started: serde_json::from_value(started["id"].clone()).unwrap(),
        step: "a".parse().unwrap(),
        trajectory: id.parse().unwrap(),
        type_: Tag::default(),
    };
    Signed::sign(report, &key).unwrap()
}

/// The same, as it is spooled where the store cannot be reached.
pub(crate) fn spooled(world: &World, id: &str) {
    let report = seen(world, id);
    std::fs::create_dir_all(world.path("gesta.db.spool")).unwrap();
    let name = format!("gesta.db.spool/{}.json", report.digest());
    world.write(&name, &String::from_utf8(to_canonical(&report).unwrap()).unwrap());
}

/// The job was given up and has ended when its worker's machine comes back with what it saw: a late effect, which
/// is told of and counts once, at what it cost.
#[test]
fn what_was_spooled_is_a_late_effect_once_its_job_has_ended() {
    let world = World::with_tools(&hanging("never", "50s"));
    world.write("job.yaml", JOB);
    world.fifo("reached");
    world.fifo("pause");
    let issue = ["writ", "issue", "--effect", "external", "--tools", "*", "--budget", "calls=5"];
    world.gesta(&[&issue[..], &["-o", "w.json"]].concat()).ok();
    let run = world.start(&["run", "job.yaml", "--writ", "w.json"]);
    world.hear("reached");
    run.kill();
    let id = world.job();
    world.gesta(&["resume", &id]).expect(12);
    world.gesta(&["resolve", &id, "--give-up"]).ok();
    world.gesta(&["resume", &id]).expect(10);
    spooled(&world, &id);
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.kinds(&id).last().unwrap(), "late_effect");
    assert_eq!(world.files("gesta.db.spool"), 0);
    let told = world.gesta(&["notices"]).ok();
    assert!(told.contains("late_effect"), "{told}");
    let writ = world.gesta(&["writ", "inspect", "w.json"]).ok();
    assert!(writ.contains("calls 1 used, 0 reserved, 4 left"), "{writ}");
    // There is nothing left to be taken up.
    let entries = world.kinds(&id).len();
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.kinds(&id).len(), entries);
    world.gesta(&["verify"]).ok();
    world.gesta(&["replay", &id]).ok();
}

/// A report about a call that may still land, before it may be sent again, is taken up as soon as it is there: nobody
/// waits until the call can land no more. By a worker, and by whoever resumes the job.
#[test]
fn a_report_about_a_call_that_may_still_land_is_taken_up_at_once() {
    for command in ["worker", "resume"] {
        let (world, id) = killed(&hanging("keyed", "100s"));
        let mut other = match command {
            "worker" => world.start(&["worker"]),
            _ => world.start(&["resume", &id]),
        };
        // It has taken over, and leaves the call alone for as long as it may land.
        other.says("attempt 2");
        let begun = Instant::now();
        while world.gesta(&["jobs", "--json"]).json_lines()[0]["status"] != "parked" {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", other.told);
        }
        let store = SqliteStore::open(world.path("gesta.db"), Options::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(store.put_effect(&seen(&world, &id))).unwrap();
        other.says("completed");
        let told = &world.bodies(&id, "resolution")[0]["statement"]["doc"];
        assert_eq!(told["source"], "inbox", "{told}");
        assert_eq!(world.files("marks"), 1, "it is not sent again");
        world.gesta(&["verify", &id]).ok();
        world.gesta(&["replay", &id]).ok();
    }
}

/// The same while somebody is awaited who knows: the report ends the doubt, and the job goes on.
#[test]
fn what_was_spooled_ends_a_doubt() {
    let (world, id) = killed(&hanging("never", "50s"));
    world.gesta(&["resume", &id]).expect(12);
    spooled(&world, &id);
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.kinds(&id).last().unwrap(), "completed");
    assert_eq!(world.files("marks"), 1, "it is not sent again");
    world.gesta(&["verify"]).ok();
    world.gesta(&["replay", &id]).ok();
}

/// Whoever answers a doubt on the machine that knows better is told so, before a payment is sent twice.
#[test]
fn what_was_spooled_is_believed_before_an_operator() {
    let (world, id) = killed(&hanging("never", "50s"));
    world.gesta(&["resume", &id]).expect(12);
    spooled(&world, &id);
    let told = world.gesta(&["resolve", &id, "--did-not-happen", "--force"]).expect(1);
    assert!(told.err.contains("the executor has reported"), "{}", told.err);
    assert_eq!(world.files("gesta.db.spool"), 0);
    let resumed = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!((&resumed["status"], &resumed["answer"]), (&"completed".into(), &1.into()));
    assert_eq!(world.files("marks"), 1, "it is not sent again");
    world.gesta(&["verify", &id]).ok();
}

/// The same where the report arrives while the operator's word is on its way, after it was looked for: what they say is
/// not recorded. A report that nobody signed who may is no answer, and holds nobody up.
#[cfg(feature = "cuts")]
#[test]
fn a_report_is_believed_before_an_operator_whose_word_is_on_its_way() {
    let resolve = |forged: bool| {
        let (world, id) = killed(&hanging("never", "50s"));
        world.gesta(&["resume", &id]).expect(12);
        let argv = ["resolve", &id, "--did-not-happen", "--force"];
        let mut word = world.start_with(&argv, &[("GESTA_CUT", "before_resolve:stop")]);
        word.stands_still();
        let report = seen(&world, &id);
        let stranger = PrivateKey::from_seed(&[9; 32]);
        let report = if forged {
            let doc = EffectReport { key: stranger.id(), ..report.doc().clone() };
            Signed::sign(doc, &stranger).unwrap()
        } else {
            report
        };
        let store = SqliteStore::open(world.path("gesta.db"), Options::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(store.put_effect(&report)).unwrap();
        drop(store);
        word.signal(Signal::CONT);
        let (status, told) = word.ends();
        (status.code(), told, world, id)
    };

    let (code, told, world, id) = resolve(false);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("the executor has reported"), "{told}");
    assert_eq!(world.kinds(&id).last().unwrap(), "in_doubt", "nothing was recorded");
    let resumed = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!((&resumed["status"], &resumed["answer"]), (&"completed".into(), &1.into()));
    assert_eq!(world.files("marks"), 1, "it is not sent again");
    world.gesta(&["verify", &id]).ok();

    let (code, told, world, id) = resolve(true);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(world.kinds(&id).last().unwrap(), "resolution");
}

/// The example's payment, killed after the money has left and before anybody knows.
#[test]
fn a_payment_that_was_killed_in_the_middle_happens_once() {
    let world = World::with_examples();
    let script = world.read("examples/refund/bin/refund.sh");
    let pausing = "[ -e ../../calm ] || { echo reached > ../../reached; cat ../../pause; }\n";
    world.write("examples/refund/bin/refund.sh", &format!("{script}{pausing}"));
    world.fifo("reached");
    world.fifo("pause");
    let run = world.start(&["run", "examples/refund/job.yaml", "--input", "order=1042"]);
    world.hear("reached");
    run.kill();
    world.write("calm", "");
    assert_eq!(world.files("examples/refund/outside/ledger"), 1, "the money has left");
    assert_eq!(world.files("examples/refund/outside/outbox"), 0);

    let id = world.job();
    let resumed = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!(
        (&resumed["status"], &resumed["answer"]["cents"]),
        (&"completed".into(), &4200.into())
    );
    assert_eq!(world.files("examples/refund/outside/ledger"), 1, "it left once");
    assert_eq!(world.files("examples/refund/outside/outbox"), 1);
    let pay =
        world.bodies(&id, "started").iter().filter(|it| it["proposal"]["step"] == "pay").count();
    assert_eq!(pay, 2, "it was sent twice, under one key");
    world.gesta(&["verify", &id]).ok();
}

/// Resumes after a probe has said this, and counts how often the tool was called in all.
fn probed(answer: &str) -> usize {
    let probe = format!(
        "[tools.asked]\neffect = \"read\"\ndriver.process = {{ command = [\"echo\", '{answer}'], env = [\"PATH\"] }}\n"
    );
    let hang = hanging("probe", "5s").replace("recovery", "probe = \"asked\"\nrecovery");
    let (world, id) = killed(&format!("{hang}{probe}"));
    let resumed = world.gesta(&["resume", &id, "--json"]).json();
    assert_eq!(resumed["status"], "completed", "{resumed}");
    assert_eq!(world.bodies(&id, "resolution")[0]["statement"]["doc"]["source"], "probe");
    world.files("marks")
}

#[test]
fn what_a_probe_knows_of_is_not_done_again() {
    assert_eq!(probed("{\"happened\":true,\"result\":{\"n\":5}}"), 1);
}

#[test]
fn what_a_probe_denies_is_done_again() {
    assert_eq!(probed("{\"happened\":false}"), 2);
}
