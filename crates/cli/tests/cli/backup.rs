//! Backups under a live workload, copies that somebody puts back by hand, restores, and what is not
//! repeated after them.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::shop::Running;
use crate::world::World;

/// `pay` is `keyed`: the other side keeps one payment a key, whatever is sent. `mail` is `never`: each
/// execution is one more mail. `look` only reads.
pub(crate) const TOOLS: &str = r#"
[tools.pay]
effect = "external"
recovery = "keyed"
[tools.pay.driver.process]
command = 'mkdir -p sent payments; : > "sent/$GESTA_KEY-$$"; : > "payments/$GESTA_KEY"; echo "{}"'
shell = true
env = ["PATH"]

[tools.mail]
effect = "external"
[tools.mail.driver.process]
command = 'mkdir -p mails; : > "mails/$GESTA_KEY-$$"; echo "{}"'
shell = true
env = ["PATH"]

[tools.look]
effect = "read"
[tools.look.driver.process]
command = 'mkdir -p looks; : > "looks/$$"; echo "{}"'
shell = true
env = ["PATH"]
"#;

pub(crate) const JOB: &str = "job: order\nsteps:\n  - { id: deposit, tool: pay, args: { cents: 1 } }\n  - { id: go, wait: { signal: go }, needs: [deposit] }\n  - { id: look, tool: look, needs: [go] }\n  - { id: rest, tool: pay, args: { cents: 2 }, needs: [look] }\n  - { id: tell, tool: mail, needs: [rest] }\nanswer: done\n";

fn world() -> World {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", JOB);
    world
}

fn submit(world: &World) -> String {
    let told = world.gesta(&["submit", "job.yaml", "--json"]).json();
    told["trajectory"].as_str().unwrap().to_owned()
}

/// Waits until every job stands so.
#[track_caller]
fn all(world: &World, status: &str) {
    let begun = Instant::now();
    loop {
        let rows = world.gesta(&["jobs", "--json"]).json_lines();
        if rows.iter().all(|row| row["status"] == status) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{rows:?}");
    }
}

fn stop(worker: Running) {
    worker.signal(Signal::TERM);
    assert!(worker.ends().0.success());
}

/// Makes a backup look like a file that somebody has copied by other means, and puts it back.
fn put_back(world: &World, backup: &str) {
    std::fs::copy(world.path(backup), world.path("gesta.db")).unwrap();
    let db = Connection::open(world.path("gesta.db")).unwrap();
    db.execute("UPDATE epoch SET copied_at = NULL", []).unwrap();
}

/// Payments and mails that there are outside, payments that were sent, and reads.
fn outside(world: &World) -> [usize; 4] {
    ["payments", "mails", "sent", "looks"].map(|what| world.files(what))
}

/// Two orders that were paid for and told of after the backup was made, while workers ran.
fn overtaken() -> (World, [String; 2]) {
    let world = world();
    let (one, two) = (world.start(&["worker"]), world.start(&["worker"]));
    let ids = [submit(&world), submit(&world)];
    all(&world, "parked");
    let told = world.gesta(&["backup", "b.db"]).ok();
    assert!(told.contains("2 of them not ended") && told.contains("data keys"), "{told}");
    for id in &ids {
        world.gesta(&["signal", id, "go"]).ok();
    }
    all(&world, "completed");
    stop(one);
    stop(two);
    assert_eq!(outside(&world), [4, 2, 4, 2]);
    (world, ids)
}

#[test]
fn an_old_copy_that_was_put_back_by_hand_is_refused() {
    let (world, ids) = overtaken();
    std::fs::copy(world.path("b.db"), world.path("gesta.db")).unwrap();
    let refused = world.gesta(&["worker", "--once"]).expect(1);
    assert!(refused.err.contains("is a backup that was copied here"), "{}", refused.err);
    put_back(&world, "b.db");
    for command in [&["worker", "--once"][..], &["resume", &ids[0]], &["run", "job.yaml"]] {
        let refused = world.gesta(command).expect(1);
        assert!(refused.err.contains("behind its anchor"), "{}", refused.err);
        assert!(refused.err.contains("gesta restore --in-place"), "{}", refused.err);
    }
    assert_eq!(outside(&world), [4, 2, 4, 2], "nothing was done again");
    // Heads alone tell whoever only looks, and whoever would seal what is there.
    let anchor = world.read("gesta.db.anchor");
    let heads: String = anchor
        .lines()
        .filter(|line| !line.starts_with("log "))
        .map(|line| format!("{line}\n"))
        .collect();
    world.write("gesta.db.anchor", &heads);
    for (command, code) in [(&["verify", "--sealed"][..], 3), (&["doctor"], 1), (&["seal"], 3)] {
        let told = world.gesta(command).expect(code);
        let told = format!("{}{}", told.out, told.err);
        assert!(told.contains("the store is behind its anchor"), "{told}");
    }

    // Going on with it takes an epoch, and then everything that was open is held.
    let restored = world.gesta(&["restore", "--in-place", "--json"]).json();
    assert_eq!(restored["epoch"], 2);
    let forgotten: Vec<&str> = restored["forgotten"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["trajectory"].as_str().unwrap())
        .collect();
    assert!(ids.iter().all(|id| forgotten.contains(&id.as_str())), "{restored:#}");
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(outside(&world), [4, 2, 4, 2]);
    // And the first copy is older than that epoch.
    put_back(&world, "b.db");
    let refused = world.gesta(&["worker", "--once"]).expect(1);
    assert!(refused.err.contains("in epoch 1, and its anchor"), "{}", refused.err);
}

/// An older copy is played into the store under a worker that runs: it notices, and goes on with nothing.
#[test]
fn a_worker_whose_store_is_set_back_under_it_stops() {
    let world = world();
    let worker = world.start(&["worker"]);
    let id = submit(&world);
    all(&world, "parked");
    world.gesta(&["backup", "b.db"]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    all(&world, "completed");
    let done = outside(&world);
    let db = rusqlite::Connection::open(world.path("gesta.db")).unwrap();
    let backup = world.path("b.db");
    db.execute("ATTACH ?1 AS older", [backup.to_str().unwrap()]).unwrap();
    let table = |table: &str| {
        format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM older.{table};")
    };
    let played = ["entries", "trajectories", "parked"].map(table).concat();
    db.execute_batch(&format!("BEGIN IMMEDIATE; {played} COMMIT;")).unwrap();
    let (status, told) = worker.ends();
    assert!(!status.success(), "{told}");
    assert!(told.contains("is behind its anchor"), "{told}");
    assert_eq!(outside(&world), done);
}

#[test]
fn nothing_is_repeated_after_a_restore() {
    let (world, [one, two]) = overtaken();
    let refused = world.gesta(&["restore", "b.db"]).expect(1);
    assert!(refused.err.contains("--force` moves it aside"), "{}", refused.err);
    let told = world.gesta(&["restore", "b.db", "--force"]).ok();
    assert!(told.contains("gesta.db.before-epoch-2"), "{told}");
    assert!(told.contains("may have been carried out since: go, look, rest, tell"), "{told}");
    assert!(told.contains("are known to have been written"), "{told}");
    let before = world.gesta(&["log", &one, "--store", "gesta.db.before-epoch-2"]).ok();
    assert!(before.contains("completed"), "the old store is whole: {before}");

    // Held: neither workers nor signals nor a resume bring it on.
    world.gesta(&["signal", &one, "go"]).ok();
    world.gesta(&["signal", &two, "go"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let held = world.gesta(&["resume", &one]).expect(1);
    assert!(held.err.contains("is held since the store was restored (epoch 2)"), "{}", held.err);
    assert!(world.gesta(&["jobs"]).ok().contains("held"));
    assert_eq!(outside(&world), [4, 2, 4, 2]);

    // Released: the keyed payment is sent under its old key, the mail waits for somebody's word.
    world.gesta(&["release", &one[..8], "--note", "looked"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(outside(&world), [4, 2, 5, 3], "the other side knew the key; no mail was sent");
    let doubts = world.gesta(&["doubts", "--json"]).json_lines();
    assert_eq!(doubts.len(), 1, "{doubts:?}");
    assert_eq!(
        (&doubts[0]["trajectory"], &doubts[0]["step"]),
        (&one.as_str().into(), &"tell".into())
    );
    world.gesta(&["resolve", &one, "--happened", "{}", "--evidence", "in the outbox"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(outside(&world), [4, 2, 5, 3]);

    // With `--ask` the payment waits too. What did not happen is done once.
    world.gesta(&["release", "--all", "--ask"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(outside(&world), [4, 2, 5, 4], "a read is a read");
    world.gesta(&["resolve", &two, "--happened", "{}"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    world.gesta(&["resolve", &two, "--did-not-happen", "--force"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(outside(&world), [4, 3, 5, 4], "somebody has said that the mail was not sent");
    all(&world, "completed");

    let restored = |id: &str| -> Vec<Value> {
        let attempts = world.bodies(id, "attempt");
        attempts.iter().filter(|body| !body["restored"].is_null()).cloned().collect()
    };
    let said = restored(&one);
    assert_eq!(said.len(), 1, "said once");
    assert_eq!(
        (&said[0]["restored"]["epoch"], &said[0]["restored"]["note"]),
        (&2.into(), &"looked".into())
    );
    assert_eq!(restored(&two)[0]["restored"]["ask"], true);
    world.gesta(&["verify"]).ok();
    world.gesta(&["replay", &one]).ok();
    world.gesta(&["replay", &two]).ok();
    assert!(world.gesta(&["release"]).ok().contains("nothing is held"));
    world.gesta(&["release", &one]).expect(1);
}

/// A copy that was taken while workers were in the middle of jobs, and put back after they had gone on.
#[test]
fn a_backup_from_the_middle_of_work_repeats_nothing() {
    const JOBS: usize = 24;
    let world = world();
    // A few at a time, so that there is a middle.
    let config = world.read("gesta.toml").replace("[worker]\n", "[worker]\njobs = 3\n");
    world.write("gesta.toml", &config);
    world.write("job.yaml", "job: order\nsteps:\n  - { id: deposit, tool: pay, args: { cents: 1 } }\n  - { id: tell, tool: mail, needs: [deposit] }\n  - { id: rest, tool: pay, args: { cents: 2 }, needs: [tell] }\n");
    for _ in 0..JOBS {
        submit(&world);
    }
    let worker = world.start(&["worker"]);
    // One that knows of some jobs that they were done, of some that they were begun, and of some nothing.
    let begun = Instant::now();
    loop {
        let done = |rows: &[Value]| rows.iter().filter(|row| row["status"] == "completed").count();
        let told = world.gesta(&["backup", "b.db", "--force", "--json"]).json();
        let open = usize::try_from(told["open"].as_u64().unwrap()).unwrap();
        assert!(open > 0 && begun.elapsed() < Duration::from_secs(60), "{told}");
        let copied = world.gesta(&["jobs", "--json", "--store", "b.db"]).json_lines();
        if done(&copied) > 0 && copied.iter().any(|row| row["status"] == "running") {
            break;
        }
    }
    all(&world, "completed");
    stop(worker);
    let before = outside(&world);
    assert_eq!((before[0], before[1]), (2 * JOBS, JOBS));

    world.gesta(&["restore", "b.db", "--force"]).ok();
    world.gesta(&["verify"]).ok();
    world.gesta(&["release", "--all"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let [payments, mails, ..] = outside(&world);
    assert_eq!((payments, mails), (2 * JOBS, JOBS), "nothing was done again");
    // Of each mail that the copy knows nothing of, a person has to say what became of it.
    assert!(!world.gesta(&["doubts", "--json"]).json_lines().is_empty());
    world.gesta(&["verify"]).ok();
    world.gesta(&["replay", "--all"]).ok();
}

#[test]
fn a_backup_replaces_nothing_and_a_restore_waits_for_workers() {
    let world = world();
    submit(&world);
    world.write("b.db", "precious");
    world.gesta(&["backup", "b.db"]).expect(1);
    assert_eq!(world.read("b.db"), "precious");
    let told = world.gesta(&["backup", "b.db", "--force", "--json"]).json();
    assert_eq!(
        (&told["trajectories"], &told["open"], &told["epoch"]),
        (&2.into(), &1.into(), &1.into())
    );

    let mut worker = world.start(&["worker"]);
    worker.says("serves");
    let refused = world.gesta(&["restore", "b.db", "--force"]).expect(1);
    assert!(refused.err.contains("is at work on this store"), "{}", refused.err);
    world.gesta(&["restore", "--in-place"]).expect(1);
    all(&world, "parked");
    stop(worker);

    for (text, why, code) in [
        ("nonsense, but long enough to be read", "not a database", 6),
        ("", "there is no store in it", 1),
    ] {
        world.write("bad.db", text);
        let refused = world.gesta(&["restore", "bad.db", "--force"]).expect(code);
        assert!(refused.err.contains("`bad.db`") && refused.err.contains(why), "{}", refused.err);
    }
    world.gesta(&["worker", "--once"]).ok();

    // Cut off in the middle of a restore, nothing begins until it is done again.
    let anchor = world.read("gesta.db.anchor").replace("epoch 1", "epoch 2");
    world.write("gesta.db.anchor", &anchor);
    let refused = world.gesta(&["worker", "--once"]).expect(1);
    assert!(refused.err.contains("a restore was cut short"), "{}", refused.err);
    std::fs::remove_file(world.path("gesta.db")).unwrap();
    assert_eq!(world.gesta(&["restore", "b.db", "--json"]).json()["epoch"], 3);
    world.gesta(&["worker", "--once"]).ok();
    world.write("gesta.db.anchor", "gesta anchor 1\nstore 12\n");
    world.gesta(&["worker", "--once"]).expect(1);
}

/// A child that was begun after the backup is begun again: what it did may have happened too.
#[test]
fn a_child_of_a_restored_job_is_in_as_much_doubt() {
    let world = world();
    world.write("child.yaml", "job: child\nsteps:\n  - { id: tell, tool: mail }\nanswer: told\n");
    world.write("job.yaml", "job: parent\nsteps:\n  - { id: go, wait: { signal: go } }\n  - { id: hand, needs: [go], delegate: { job: child.yaml } }\n");
    let id = submit(&world);
    world.gesta(&["backup", "b.db"]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    all(&world, "completed");
    assert_eq!(world.files("mails"), 1);
    world.gesta(&["restore", "b.db", "--force"]).ok();
    world.gesta(&["release", "--all"]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.files("mails"), 1);
    assert_eq!(world.gesta(&["doubts", "--json"]).json_lines().len(), 1);
}

/// A worker that was stopped in the middle of writing the anchor holds its lock for as long as it is stopped.
#[test]
fn a_worker_that_holds_the_anchor_stops_nobody() {
    let world = world();
    world.write("look.yaml", "job: look\nsteps:\n  - { id: look, tool: look }\n");
    world.gesta(&["run", "look.yaml"]).ok();
    let stopped = std::fs::File::open(world.path("gesta.db.anchor.lock")).unwrap();
    stopped.lock().unwrap();
    let told = world.gesta(&["run", "look.yaml"]).expect(0);
    assert!(told.err.contains("writing the anchor"), "{}", told.err);
    drop(stopped);
    world.gesta(&["run", "look.yaml"]).ok();
    assert_eq!(outside(&world), [0, 0, 0, 3]);
}
