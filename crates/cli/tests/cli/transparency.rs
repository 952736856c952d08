//! The transparency log through the front door: sealing, proofs, witnesses, and what is found when somebody
//! cuts, drops, rewrites or rolls back.

use std::path::Path;
use std::time::{Duration, Instant};

use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Demand, Options, verify};
use gesta_verify::report::{Report, Verdict};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::world::{Ran, World};

const PATIENCE: Duration = Duration::from_secs(60);

/// What an auditor does with a bundle who demands that nothing was cut.
fn audit(world: &World, bundle: &str, demand: &Demand) -> Report {
    let trust = TrustRoot::parse(&std::fs::read(world.path("trust.json")).unwrap()).unwrap();
    let bundle = Bundle::open(&world.path(bundle)).unwrap();
    verify(&bundle, &trust.keyring().unwrap(), &Options { demand, ..Options::default() })
}

fn sealed() -> Demand {
    Demand { sealed: true, ..Demand::default() }
}

fn grow(world: &World, name: &str) {
    world.gesta(&["keys", "add", name, "--roles", "approver"]).ok();
}

fn status(world: &World) -> Value {
    world.gesta(&["seal", "status", "--json"]).json()
}

/// Makes a witness of the workspace's log, and has it trusted.
fn with_witness(world: &World) {
    let key = status(world)["key"].as_str().unwrap().to_owned();
    let made =
        world.gesta(&["witness", "init", "w", "--name", "w.example", "--log", &key, "--json"]);
    let made = made.json();
    let mut trust: Value = serde_json::from_str(&world.read("trust.json")).unwrap();
    trust["keys"].as_array_mut().unwrap().push(made["trust"].clone());
    std::fs::write(world.path("trust.json"), trust.to_string()).unwrap();
}

#[test]
fn what_is_sealed_is_proved_and_what_is_not_is_told() {
    let world = World::with_workspace();
    assert_eq!(status(&world)["checkpoint"], Value::Null);
    assert!(world.gesta(&["seal", "status"]).ok().contains("nothing is sealed yet"));
    world.gesta(&["export", "--all", "-o", "bare.gesta"]).ok();
    let bare = audit(&world, "bare.gesta", &Demand::default());
    assert_eq!((bare.verdict, bare.log), (Verdict::Sound, None));

    assert!(world.gesta(&["seal"]).ok().starts_with("sealed: the log has "));
    assert_eq!(world.gesta(&["seal"]).ok(), "nothing is new\n");
    let told = status(&world);
    assert_eq!(told["lag"], json!({ "trajectories": 0, "entries": 0 }));
    world.gesta(&["verify", "--sealed"]).ok();
    for file in ["one.gesta", "other.gesta"] {
        world.gesta(&["export", "--all", "-o", file]).ok();
    }
    let bytes = |file: &str| std::fs::read(world.path(file)).unwrap();
    assert_eq!(bytes("one.gesta"), bytes("other.gesta"), "the same log, the same bytes");
    let whole = Demand { all: true, ..sealed() };
    let report = audit(&world, "one.gesta", &whole);
    assert_eq!(report.verdict, Verdict::Sound, "{report}");

    grow(&world, "ada");
    assert_eq!(status(&world)["lag"], json!({ "trajectories": 1, "entries": 1 }));
    world.gesta(&["verify"]).ok();
    let told = world.gesta(&["verify", "--sealed"]).expect(5);
    assert!(
        told.out.contains("(sealed_in_part)") && told.out.contains("sealed up to entry"),
        "{}",
        told.out
    );
    world.gesta(&["export", "--all", "-o", "grown.gesta"]).ok();
    assert_eq!(audit(&world, "grown.gesta", &whole).findings[0].code, "sealed_in_part");

    let registry = world.gesta(&["log", "--json"]).json_lines()[0]["trajectory"].clone();
    let registry = registry.as_str().unwrap();
    let proof = world.gesta(&["proof", &format!("{registry}:1")]).json();
    assert_eq!((&proof["type"], &proof["entry"]["seq"]), (&json!("gesta.proof.v1"), &json!(1)));
    let size = told_size(&world);
    let early = world.gesta(&["proof", &format!("{registry}:{size}")]).expect(1);
    assert!(
        early.err.contains("is not in the log yet") && early.err.contains("`gesta seal`"),
        "{}",
        early.err
    );
    let beyond = world.gesta(&["proof", "--since", "9999"]).expect(2);
    assert!(beyond.err.contains("less than 9999"), "{}", beyond.err);
}

fn told_size(world: &World) -> u64 {
    status(world)["checkpoint"]["size"].as_u64().unwrap()
}

#[test]
fn a_run_leaves_its_trajectory_sealed() {
    let world = World::with_examples();
    world.gesta(&["run", "examples/refund/job.yaml", "--input", "order=1042"]).ok();
    let id = world.job();
    world.gesta(&["verify", "--sealed"]).ok();
    world.gesta(&["export", &id, "-o", "refund.gesta"]).ok();
    let report = audit(&world, "refund.gesta", &sealed());
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    world.gesta(&["proof", &format!("{id}:3"), "-o", "proof.json"]).ok();
    let proof: Value = serde_json::from_str(&world.read("proof.json")).unwrap();
    assert_eq!(proof["entry"]["trajectory"], json!(id));
}

#[test]
fn a_worker_seals_by_itself() {
    let world = World::with_tools("[log]\nevery = \"20ms\"\n");
    grow(&world, "ada");
    assert!(status(&world)["lag"]["entries"].as_u64().unwrap() > 0);
    let worker = world.start(&["worker"]);
    let since = Instant::now();
    while status(&world)["lag"]["entries"] != 0 {
        assert!(since.elapsed() < PATIENCE, "nothing is sealed: {}", status(&world));
    }
    worker.kill();
    world.gesta(&["verify", "--sealed"]).ok();
}

#[test]
fn a_witness_signs_what_goes_on_and_nothing_else() {
    let world = World::with_workspace();
    world.gesta(&["seal"]).ok();
    with_witness(&world);
    let sign = |checkpoint: &str, more: &[&str]| {
        world.gesta(&[&["witness", "sign", "w", checkpoint, "-o", "cosigned"][..], more].concat())
    };
    let export = |directory: &str| drop(world.gesta(&["seal", "export", directory]).ok());
    export("log");
    sign("log/checkpoint", &[]).expect(0);
    assert_eq!(status(&world)["witnesses"], 0);
    world.gesta(&["seal", "cosign", "cosigned"]).ok();
    assert_eq!(status(&world)["witnesses"], 1);
    std::fs::copy(world.path("gesta.db"), world.path("old.db")).unwrap();

    // It grows: shown by the files of the log, or by a proof.
    let size = told_size(&world);
    for name in ["ada", "bob"] {
        grow(&world, name);
        world.gesta(&["seal"]).ok();
    }
    export("log");
    let unshown = sign("log/checkpoint", &[]).expect(5);
    assert!(unshown.err.contains("nothing shows that the log goes on"), "{}", unshown.err);
    world.gesta(&["proof", "--since", &size.to_string(), "-o", "since.json"]).ok();
    sign("log/checkpoint", &["--consistency", "since.json"]).expect(0);
    grow(&world, "cyd");
    world.gesta(&["seal"]).ok();
    export("log");
    sign("log/checkpoint", &["--tiles", "log"]).expect(0);
    world.gesta(&["seal", "cosign", "cosigned"]).ok();
    grow(&world, "dan");
    world.gesta(&["seal"]).ok();
    let told = status(&world);
    assert_eq!((&told["witnesses"], &told["witnessed"]["witnesses"]), (&json!(0), &json!(1)));
    let witnessed = Demand { witnesses: 1, ..Demand::default() };
    world.gesta(&["export", "--all", "-o", "new.gesta"]).ok();
    assert_eq!(audit(&world, "new.gesta", &witnessed).findings[0].code, "too_few_witnesses");
    world.gesta(&["export", "--all", "--witnessed", "-o", "seen.gesta"]).ok();
    let report = audit(&world, "seen.gesta", &witnessed);
    assert_eq!(report.verdict, Verdict::Sound, "{report}");

    refuses_another_history(&world, size, &sign);
}

/// Somebody brings the old store back, and goes on in another way.
fn refuses_another_history(world: &World, size: u64, sign: &dyn Fn(&str, &[&str]) -> Ran) {
    let state = world.read("w/witness.json");
    world.gesta(&["seal", "export", "rolled", "--store", "old.db"]).ok();
    let refused = sign("rolled/checkpoint", &["--tiles", "rolled"]).expect(3);
    assert!(
        refused.err.contains(&format!(
            "rolled back: the log had {} leaves before, and has {size} now",
            size + 3
        )),
        "{}",
        refused.err
    );
    for name in ["eve", "fay", "gil"] {
        world.gesta(&["keys", "add", name, "--roles", "approver", "--store", "old.db"]).ok();
    }
    world.gesta(&["seal", "--store", "old.db"]).ok();
    world.gesta(&["seal", "export", "split", "--store", "old.db"]).ok();
    let refused = sign("split/checkpoint", &["--tiles", "split"]).expect(3);
    assert!(refused.err.contains("split view: the log with"), "{}", refused.err);
    world.gesta(&["keys", "add", "hal", "--roles", "approver", "--store", "old.db"]).ok();
    world.gesta(&["seal", "--store", "old.db"]).ok();
    world.gesta(&["seal", "export", "forked", "--store", "old.db"]).ok();
    let refused = sign("forked/checkpoint", &["--tiles", "forked"]).expect(3);
    assert!(refused.err.contains("does not begin with"), "{}", refused.err);
    assert_eq!(world.read("w/witness.json"), state, "what it refuses it forgets");
    let split = world.gesta(&["seal", "cosign", "cosigned", "--store", "old.db"]).expect(3);
    assert!(
        split.err.contains("split view") || split.err.contains("no checkpoint"),
        "{}",
        split.err
    );
}

/// Runs SQL on the store, as somebody who can write to its file would.
fn tamper(world: &World, sql: &str) {
    Connection::open(world.path("gesta.db")).unwrap().execute_batch(sql).unwrap();
}

/// Cuts the last append off every trajectory, and makes the head fit.
const CUT: &str = "
    DELETE FROM entries WHERE (trajectory, seq) IN (
        SELECT trajectory, max(seq) FROM entries GROUP BY trajectory);
    UPDATE trajectories SET
        head_id = (SELECT substr(ids, -32) FROM entries AS e
            WHERE e.trajectory = trajectories.trajectory ORDER BY seq DESC LIMIT 1),
        head_seq = head_seq - 1;";

#[test]
fn a_tail_that_was_cut_off_is_found_and_not_sealed_over() {
    let world = World::with_workspace();
    grow(&world, "ada");
    world.gesta(&["seal"]).ok();
    tamper(&world, CUT);
    let cut = world.gesta(&["verify"]).expect(3);
    assert!(cut.out.contains("(cut_tail)"), "{}", cut.out);
    world.gesta(&["export", "--all", "-o", "cut.gesta"]).ok();
    assert_eq!(audit(&world, "cut.gesta", &Demand::default()).findings[0].code, "cut_tail");
    // What is written over it does not go on from what the log holds.
    grow(&world, "bob");
    let rewritten = world.gesta(&["verify"]).expect(3);
    assert!(rewritten.out.contains("(other_than_sealed)"), "{}", rewritten.out);
    grow(&world, "cyd");
    let refused = world.gesta(&["seal"]).expect(3);
    assert!(refused.err.contains("does not go on from what the log holds"), "{}", refused.err);
}

#[test]
fn a_trajectory_that_was_dropped_is_found() {
    let world = World::with_examples();
    world.gesta(&["run", "examples/refund/job.yaml", "--input", "order=1042"]).ok();
    let id = world.job();
    let blob = format!("x'{}'", id.trim_start_matches("t_"));
    tamper(
        &world,
        &format!(
            "DELETE FROM trajectories WHERE trajectory = {blob};
             DELETE FROM entries WHERE trajectory = {blob};"
        ),
    );
    let dropped = world.gesta(&["verify"]).expect(3);
    assert!(dropped.out.contains(&format!("(dropped) in {id}")), "{}", dropped.out);
    world.gesta(&["export", "--all", "-o", "all.gesta"]).ok();
    assert_eq!(audit(&world, "all.gesta", &Demand::default()).findings[0].code, "dropped");
    // Whoever drops it from the log too has another log than was signed.
    tamper(&world, &format!("DELETE FROM log_runs WHERE trajectory = {blob};"));
    let hidden = world.gesta(&["verify"]).expect(3);
    assert!(hidden.out.contains("(log_proof)"), "{}", hidden.out);
}

#[test]
fn nobody_seals_without_a_key_that_counts() {
    let world = World::with_workspace();
    let config = world.read("gesta.toml");
    std::fs::write(world.path("gesta.toml"), format!("{config}\n[log]\nkey = \"notary\"\n"))
        .unwrap();
    let missing = world.gesta(&["seal"]).expect(1);
    assert!(missing.err.contains("nobody seals here: there is no key"), "{}", missing.err);
    assert!(missing.err.contains("`gesta keys add notary --roles sealer`"), "{}", missing.err);
    world.gesta(&["keys", "add", "notary", "--roles", "sealer"]).ok();
    world.gesta(&["seal"]).ok();
    world.gesta(&["verify", "--sealed"]).ok();
    world.gesta(&["keys", "revoke", "notary"]).ok();
    let revoked = world.gesta(&["seal"]).expect(1);
    assert!(
        revoked.err.contains("nothing was sealed") && revoked.err.contains("was revoked"),
        "{}",
        revoked.err
    );
    let distrusted = world.gesta(&["verify"]).expect(4);
    assert!(distrusted.out.contains("(log_key)"), "{}", distrusted.out);
}

/// Killed before and after the one commit point: nothing is lost, doubled or forked.
#[cfg(feature = "cuts")]
#[test]
fn a_sealer_that_is_killed_leaves_the_log_whole() {
    let world = World::with_workspace();
    for (round, cut) in ["before_seal", "after_seal", "before_seal"].into_iter().enumerate() {
        grow(&world, &format!("key-{round}"));
        let killed = world.gesta_with(&["seal"], &[("GESTA_CUT", cut)]);
        assert_eq!(killed.code, None, "{cut}: {}", killed.err);
        let done = status(&world)["lag"]["entries"] == 0;
        assert_eq!(done, cut == "after_seal");
        world.gesta(&["verify"]).ok();
        world.gesta(&["seal"]).ok();
        world.gesta(&["verify", "--sealed"]).ok();
    }
}

#[cfg(feature = "postgres")]
#[test]
fn the_log_is_the_same_on_postgres() {
    let database = crate::postgres::Database::new("transparency");
    let (url, world) = (database.url(), World::new());
    let with = [("GESTA_STORE", url.as_str())];
    let gesta = |arguments: &[&str]| world.gesta_with(arguments, &with);
    gesta(&["init"]).ok();
    gesta(&["seal"]).ok();
    gesta(&["keys", "add", "ada", "--roles", "approver"]).ok();
    assert!(gesta(&["verify", "--sealed"]).expect(5).out.contains("(sealed_in_part)"));
    gesta(&["seal"]).ok();
    gesta(&["verify", "--sealed"]).ok();
    gesta(&["export", "--all", "-o", "all.gesta"]).ok();
    let report = audit(&world, "all.gesta", &Demand { all: true, ..sealed() });
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    gesta(&["seal", "export", "log"]).ok();
    assert!(Path::new(&world.path("log/tile/0/000.p")).exists());
}
