//! The transparency log through the front door: sealing, proofs, witnesses, and what is found when somebody
//! cuts, drops, rewrites or rolls back.

use std::path::Path;
use std::time::{Duration, Instant};

use gesta_core::log::evidence::EntryProof;
use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Demand, Options, verify, verify_proof};
use gesta_verify::report::{Report, Verdict};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::world::{Ran, World};

const PATIENCE: Duration = Duration::from_secs(60);

/// What an auditor does with a bundle who demands that nothing was cut.
pub(crate) fn audit(world: &World, bundle: &str, demand: &Demand) -> Report {
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

    // A proof that leads elsewhere is named as that, and accuses nobody.
    export("log");
    grow(&world, "ida");
    world.gesta(&["seal"]).ok();
    for (since, leads) in [
        (size, format!("from {size} to {}", size + 5)),
        (size + 3, format!("from {} to {}", size + 3, size + 5)),
    ] {
        world.gesta(&["proof", "--since", &since.to_string(), "-o", "since.json"]).ok();
        let other = sign("log/checkpoint", &["--consistency", "since.json"]).expect(2);
        let wanted = format!("one from {} to {} leaves of", size + 3, size + 4);
        assert!(other.err.contains(&leads) && other.err.contains(&wanted), "{}", other.err);
        assert!(!other.err.contains("split view"), "{}", other.err);
    }

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

/// What the newest checkpoint of the log is signed as.
fn origin(world: &World) -> String {
    status(world)["checkpoint"]["origin"].as_str().unwrap().to_owned()
}

/// A backup forgets what was sealed after it: what is sealed from there on would be a split view of what
/// witnesses have signed. So it is another log.
#[test]
fn what_goes_on_after_a_restore_is_another_log() {
    let world = World::with_workspace();
    world.gesta(&["seal"]).ok();
    with_witness(&world);
    let sign = |directory: &str| {
        let checkpoint = format!("{directory}/checkpoint");
        world.gesta(&["witness", "sign", "w", &checkpoint, "--tiles", directory, "-o", "cosigned"])
    };
    world.gesta(&["seal", "export", "log"]).ok();
    sign("log").expect(0);
    world.gesta(&["backup", "b.db"]).ok();
    grow(&world, "ada");
    world.gesta(&["seal"]).ok();
    world.gesta(&["seal", "export", "log"]).ok();
    sign("log").expect(0);
    let first = origin(&world);

    let restored = world.gesta(&["restore", "b.db", "--force"]).ok();
    let second = format!("{first}/epoch-2");
    assert!(restored.contains(&format!("goes on as `{second}`")), "{restored}");
    // What was published stays what it is.
    let behind = world.gesta(&["seal", "export", "log"]).expect(3);
    assert!(behind.err.contains("does not replace what was published"), "{}", behind.err);
    grow(&world, "bob");
    world.gesta(&["seal"]).ok();
    assert_eq!(origin(&world), second);
    world.gesta(&["verify", "--sealed"]).ok();
    let mixed = world.gesta(&["seal", "export", "log"]).expect(1);
    assert!(mixed.err.contains(&format!("is of the log `{first}`")), "{}", mixed.err);
    world.gesta(&["seal", "export", "log-2"]).ok();

    // A witness takes it for another log, once it is told of it, and remembers both.
    let unknown = sign("log-2").expect(4);
    assert!(unknown.err.contains("is not watched"), "{}", unknown.err);
    assert!(unknown.err.contains("`gesta witness add DIR --log KEY`"), "{}", unknown.err);
    let key = status(&world)["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with(&second), "{key}");
    let added = world.gesta(&["witness", "add", "w", "--log", &key]).ok();
    assert!(added.contains("nothing of it was seen yet"), "{added}");
    sign("log-2").expect(0);
    world.gesta(&["seal", "cosign", "cosigned"]).ok();
    grow(&world, "cyd");
    world.gesta(&["seal"]).ok();
    world.gesta(&["seal", "export", "log-2"]).ok();
    sign("log-2").expect(0);
    let aside = "gesta.db.before-epoch-2";
    world.gesta(&["seal", "export", "was", "--store", aside]).ok();
    sign("was").expect(0);
    world.gesta(&["seal", "export", "cut", "--store", "b.db"]).ok();
    assert!(sign("cut").expect(3).err.contains("rolled back"));

    // Whoever verifies by name takes it for another log too.
    world.gesta(&["export", "--all", "-o", "all.gesta"]).ok();
    let named = |name: &str| Demand { origin: Some(name.to_owned()), ..sealed() };
    assert_eq!(audit(&world, "all.gesta", &named(&second)).verdict, Verdict::Sound);
    assert_eq!(audit(&world, "all.gesta", &named(&first)).findings[0].code, "log_origin");
}

/// An older copy of the store, put in its place beside the anchor.
#[test]
fn a_store_that_was_rolled_back_is_noticed_without_a_worker() {
    let world = World::with_workspace();
    world.gesta(&["seal"]).ok();
    std::fs::copy(world.path("gesta.db"), world.path("old.db")).unwrap();
    grow(&world, "ada");
    world.gesta(&["seal"]).ok();
    let published = told_size(&world);
    for command in [&["verify", "--sealed"][..], &["doctor"], &["seal"]] {
        world.gesta(command).ok();
    }
    std::fs::copy(world.path("old.db"), world.path("gesta.db")).unwrap();

    // By itself it is whole: only who remembers can tell.
    world.gesta(&["verify"]).ok();
    let told = world.gesta(&["verify", "--sealed"]).expect(3);
    assert!(told.out.contains("(rolled_back)"), "{}", told.out);
    assert!(told.out.contains(&format!("a checkpoint with {published} leaves")), "{}", told.out);
    let told = world.gesta(&["doctor"]).expect(1);
    assert!(told.out.contains("WRONG     anchor"), "{}", told.out);
    let behind = told_size(&world);
    // As many leaves as were published, and others.
    for name in ["bob", "cyd"] {
        grow(&world, name);
        let refused = world.gesta(&["seal"]).expect(3);
        assert!(refused.err.contains("nothing was sealed: the store is behind"), "{}", refused.err);
        assert!(refused.err.contains("`gesta restore --in-place`"), "{}", refused.err);
    }
    assert_eq!(told_size(&world), behind, "nothing was signed");

    world.gesta(&["restore", "--in-place"]).ok();
    world.gesta(&["seal"]).ok();
    assert!(origin(&world).ends_with("/epoch-2"));
    for command in [&["verify", "--sealed"][..], &["doctor"], &["seal"]] {
        world.gesta(command).ok();
    }
}

#[test]
fn a_witness_accepts_a_new_key_and_forgets_nothing() {
    let world = World::with_workspace();
    world.gesta(&["seal"]).ok();
    with_witness(&world);
    let sign = || {
        world.gesta(&["seal", "export", "log"]).ok();
        let with = ["--tiles", "log", "-o", "cosigned"];
        world.gesta(&[&["witness", "sign", "w", "log/checkpoint"][..], &with].concat())
    };
    sign().expect(0);
    let size = told_size(&world);
    let handed_over = world.read("trust.json");
    let rotated = world.gesta(&["keys", "rotate", "sealer"]).ok();
    let key = status(&world)["key"].as_str().unwrap().to_owned();
    assert!(rotated.contains(&format!("  log    {key}")), "{rotated}");
    assert!(rotated.contains("  trust  {"), "{rotated}");
    world.gesta(&["seal"]).ok();
    let refused = sign().expect(4);
    assert!(refused.err.contains("if its sealer has a new key"), "{}", refused.err);
    world.gesta(&["witness", "init", "w", "--name", "w.example", "--log", &key]).expect(1);
    let added = world.gesta(&["witness", "add", "w", "--log", &key]).ok();
    assert!(added.contains(&format!("it goes on from {size} leaves")), "{added}");
    sign().expect(0);

    // Whoever checks a proof has no registry: the trust root must name the new key.
    let registry = world.gesta(&["log", "--json"]).json_lines()[0]["trajectory"].clone();
    let entry = format!("{}:1", registry.as_str().unwrap());
    let proof = world.gesta(&["proof", &entry]).ok();
    let proof = EntryProof::parse(proof.as_bytes()).unwrap();
    let judged = |trust: &str| {
        let trust = TrustRoot::parse(trust.as_bytes()).unwrap().keyring().unwrap();
        verify_proof(&proof, &trust, &Demand::default()).exit_code()
    };
    assert_eq!(judged(&handed_over), 4);
    assert_eq!(judged(&world.read("trust.json")), 0, "it names the new key");
    let printed = rotated.lines().find_map(|line| line.trim().strip_prefix("trust  ")).unwrap();
    let mut trust: Value = serde_json::from_str(&handed_over).unwrap();
    trust["keys"].as_array_mut().unwrap().push(serde_json::from_str(printed).unwrap());
    assert_eq!(judged(&trust.to_string()), 0);

    // What an earlier version remembered is taken over.
    let state: Value = serde_json::from_str(&world.read("w/witness.json")).unwrap();
    let last = state["logs"][0]["last"].clone();
    let one = json!({ "type": "gesta.witness.v1", "name": "w.example", "log": key, "last": last });
    std::fs::write(world.path("w/witness.json"), one.to_string()).unwrap();
    sign().expect(0);
    let state: Value = serde_json::from_str(&world.read("w/witness.json")).unwrap();
    assert_eq!((&state["type"], &state["logs"][0]["last"]), (&json!("gesta.witness.v2"), &last));
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
