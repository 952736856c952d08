//! Decisions, permits, approvals and writs that are forged, swapped, replayed, expired, edited or bound to
//! something else, brought in by whoever can write a bundle or the store: each is refused with its code, and
//! nothing is sent for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gesta_core::body::Started;
use gesta_core::digest::Digest;
use gesta_core::document::{ApprovalStatement, ApprovalVerdict, Recovery};
use gesta_core::entry::Body;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::sample::{Cast, Dice};
use gesta_core::signed::{Document, Signed};
use gesta_core::state::{Act, Offer, Scope};
use gesta_core::writ::Effect;
use gesta_store::sqlite::{Options, SqliteStore};
use gesta_store::{Chain, Store};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::World;

/// A tool that leaves a mark for every call. The sample's forged calls name it too.
const TOOLS: &str = "[tools.\"pay.refund\"]\neffect = \"external\"\nrecovery = \"safe\"\n[tools.\"pay.refund\".driver.process]\ncommand = 'mkdir -p marks; cat > \"marks/$$\"; echo {}'\nshell = true\nenv = [\"PATH\"]\n";
const JOB: &str = "job: pay\nsteps:\n  - { id: pay, tool: pay.refund, args: { amount: 1 } }\n  - { id: pause, wait: { signal: go }, needs: [pay] }\n";

pub(crate) fn world() -> World {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", JOB);
    world
}

pub(crate) fn submitted(world: &World) -> String {
    world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned()
}

/// Everybody who would go on from the chain refuses it with this code, and nothing is sent.
#[track_caller]
pub(crate) fn refused(world: &World, id: &str, code: &str, exit: i32, sent: usize) {
    let named = match code {
        "illegal" => ILLEGAL.to_owned(),
        code => format!("is forged ({code})"),
    };
    refused_as(world, id, (code, &named), exit, sent);
}

/// What whoever folds a chain says of one that breaks the rules.
pub(crate) const ILLEGAL: &str = "is not legal";

/// The verifier names the code, and whoever would go on says this.
#[track_caller]
pub(crate) fn refused_as(
    world: &World,
    id: &str,
    (code, named): (&str, &str),
    exit: i32,
    sent: usize,
) {
    let verified = world.gesta(&["verify", id]).expect(exit);
    assert!(verified.out.contains(&format!("({code})")), "{code}: {}", verified.out);
    let before = head(world, id);
    let resumed = world.gesta(&["resume", id]).expect(exit);
    assert!(resumed.err.contains(named), "{code}: {}", resumed.err);
    world.gesta(&["worker", "--once"]);
    assert_eq!(world.files("marks"), sent, "nothing was sent for it");
    assert_eq!(head(world, id), before, "nothing goes on from it");
}

fn head(world: &World, id: &str) -> u64 {
    let db = rusqlite::Connection::open(world.path("gesta.db")).unwrap();
    let query = "SELECT head_seq FROM trajectories WHERE trajectory = ?";
    db.query_row(query, [trajectory(id)], |row| row.get(0)).unwrap()
}

fn trajectory(id: &str) -> Vec<u8> {
    hex::decode(id.strip_prefix("t_").unwrap()).unwrap()
}

/// Adds a claim and a `started` of its own to a chain, as whoever can write to the store and knows the rules.
fn forge(world: &World, id: &str, change: impl Fn(&Cast, &mut Started)) {
    append(world, id, Act::Start, |cast, body| {
        let Body::Started(mut started) = body else { panic!("a start was asked for") };
        change(cast, &mut started);
        Body::Started(started)
    });
}

/// The same of what else may be done.
fn append(world: &World, id: &str, act: Act, change: impl Fn(&Cast, Body) -> Body) {
    let path = world.path("gesta.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, Options::default()).unwrap());
        let mut chain = Chain::load(store, id.parse().unwrap()).await.unwrap();
        let mut cast = Cast::new(9);
        cast.style.fixed = Some((Effect::External, Recovery::Safe));
        let appended = chain.append(|admission| {
            let now = admission.state().at().plus(1);
            let dice = &mut Dice::new(1);
            let claim = Offer { act: Act::Attempt, on: Scope::Trajectory };
            cast.push(admission, &claim, now, dice).unwrap();
            let offer = Offer { act, on: Scope::Step("pay".parse().unwrap()) };
            let body = cast.body(admission.state(), &offer, now, dice).unwrap();
            let by = gesta_core::sample::author(admission.state(), act).unwrap();
            admission.push(now, by, change(&cast, body))?;
            Ok(())
        });
        appended.await.unwrap();
    });
}

#[test]
fn a_strangers_decision_and_permit_are_refused() {
    let world = world();
    let id = submitted(&world);
    forge(&world, &id, |_, _| ());
    refused(&world, &id, "unknown_key", 4, 0);
}

/// A task that was handed to a child by nobody who may: no child is begun for it.
#[test]
fn a_strangers_decision_to_hand_on_is_refused() {
    let world = World::with_tools(TOOLS);
    let child = "job: child\nsteps:\n  - { id: pay, tool: pay.refund, args: { amount: 1 } }\n";
    world.write("child.yaml", child);
    world.write("job.yaml", "job: pay\nsteps:\n  - { id: pay, delegate: { job: child.yaml } }\n");
    let id = submitted(&world);
    append(&world, &id, Act::Delegate, |_, body| body);
    refused(&world, &id, "unknown_key", 4, 0);
    assert_eq!(world.jobs(), [id]);
}

/// The document as somebody would leave it who says that another key has signed it.
fn claimed<D: Document + DeserializeOwned + Clone>(signed: &Signed<D>, key: &Value) -> Signed<D> {
    let mut value = serde_json::to_value(signed).unwrap();
    value["doc"]["key"] = key.clone();
    Canon::of(&value).unwrap().read().unwrap()
}

/// Lets nothing happen unless somebody says so.
const ASK: &str = r#"
@id("ask") @channel("finance") @quorum("1") @expires("1h") @reason("money")
permit (principal, action in Action::"call", resource);
"#;

/// A job that waits for somebody's word.
pub(crate) fn asking(world: &World) -> String {
    world.write("policy.cedar", ASK);
    world.gesta(&["policy", "publish"]).ok();
    let id = submitted(world);
    world.gesta(&["worker", "--once"]).ok();
    id
}

/// Somebody says yes or no without having been asked.
fn speak(world: &World, id: &str, verdict: ApprovalVerdict, as_whom: Option<&Value>) {
    append(world, id, Act::Approve, |cast, body| {
        let Body::Approval(mut approval) = body else { panic!("an approval was asked for") };
        let doc = ApprovalStatement { verdict, ..approval.statement.doc().clone() };
        let signed = Signed::sign(doc, &cast.approver).unwrap();
        approval.statement = as_whom.map_or(signed.clone(), |key| claimed(&signed, key));
        Body::Approval(approval)
    });
}

fn key_of(world: &World, name: &str) -> Value {
    let keys = world.gesta(&["keys", "list", "--json"]).json();
    let keys = keys["keys"].as_array().unwrap();
    keys.iter().find(|key| key["name"] == name).unwrap()["key"].clone()
}

#[test]
fn a_word_that_nobody_has_signed_is_refused() {
    for verdict in [ApprovalVerdict::Approve, ApprovalVerdict::Deny] {
        let world = world();
        let id = asking(&world);
        speak(&world, &id, verdict, Some(&key_of(&world, "owner")));
        refused(&world, &id, "signature", 3, 0);
    }
}

/// A denial ends the matter, so it must be by somebody who may deny. A stranger's yes counts for nothing.
#[test]
fn a_strangers_word_ends_nothing() {
    let world = world();
    let id = asking(&world);
    speak(&world, &id, ApprovalVerdict::Deny, None);
    refused(&world, &id, "unknown_key", 4, 0);

    let id = asking(&world);
    speak(&world, &id, ApprovalVerdict::Approve, None);
    world.gesta(&["worker", "--once"]);
    assert_eq!(world.files("marks"), 0, "nothing was sent for it");
    let shown = world.gesta(&["approvals", "--json"]).json();
    assert_eq!(shown["approved"], json!([]), "{shown}");
}

#[test]
fn a_signature_that_is_made_up_is_refused() {
    let world = world();
    let id = submitted(&world);
    let worker = &key_of(&world, "worker");
    forge(&world, &id, |cast, started| {
        started.decision = claimed(&started.decision, worker);
        let mut permit = started.permit.doc().clone();
        permit.decision = started.decision.id();
        started.permit = claimed(&Signed::sign(permit, &cast.guardian).unwrap(), worker);
    });
    refused(&world, &id, "signature", 3, 0);
}

/// The entries of a trajectory, to be written again.
pub(crate) fn rewrite(world: &World, id: &str, change: impl FnOnce(&mut Vec<Value>)) {
    let db = rusqlite::Connection::open(world.path("gesta.db")).unwrap();
    let trajectory = trajectory(id);
    let mut lines = {
        let mut query =
            db.prepare("SELECT bytes FROM entries WHERE trajectory = ? ORDER BY seq").unwrap();
        let rows = query.query_map([&trajectory], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        // An append is a row: its entries, one a line.
        let lines = rows.map(|row| String::from_utf8(row.unwrap()).unwrap()).collect::<Vec<_>>();
        let lines = lines.iter().flat_map(|row| row.lines());
        lines.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    change(&mut lines);
    db.execute("DELETE FROM entries WHERE trajectory = ?", [&trajectory]).unwrap();
    let mut parent: Option<Digest> = None;
    for (seq, line) in lines.iter_mut().enumerate() {
        (line["seq"], line["trajectory"]) = (seq.into(), id.into());
        if let Some(parent) = parent {
            line["parent"] = json!(parent.to_string());
        }
        let bytes = Canon::of(line).unwrap().as_bytes().to_vec();
        let digest = Digest::of(&bytes);
        let head = digest.as_bytes().to_vec();
        let insert = "INSERT INTO entries (trajectory, seq, ids, bytes) VALUES (?, ?, ?, ?)";
        db.execute(insert, rusqlite::params![trajectory, seq, head, bytes]).unwrap();
        let update = "UPDATE trajectories SET head_seq = ?, head_id = ? WHERE trajectory = ?";
        db.execute(update, rusqlite::params![seq, head, trajectory]).unwrap();
        parent = Some(digest);
    }
}

fn started(lines: &[Value]) -> usize {
    lines.iter().position(|line| line["kind"] == "started").unwrap()
}

/// A job that has paid and waits.
pub(crate) fn parked(world: &World) -> String {
    let id = submitted(world);
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.files("marks"), 1);
    world.gesta(&["verify", &id]).ok();
    id
}

/// Edits the `started` of a parked job, hashes everything after it anew, and wakes the job.
#[track_caller]
fn edited(pointer: &str, change: fn(&mut Value)) {
    let world = world();
    let id = parked(&world);
    rewrite(&world, &id, |lines| {
        let at = started(lines);
        change(lines[at]["body"].pointer_mut(pointer).unwrap());
    });
    world.gesta(&["signal", &id, "go"]);
    // What follows named it by its digest, so the fold breaks before anybody asks who signed it.
    refused_as(&world, &id, ("signature", ILLEGAL), 3, 1);
}

#[test]
fn an_edited_permit_is_refused() {
    edited("/permit/doc/dispatch_by", |value| *value = (value.as_u64().unwrap() + 1).into());
}

#[test]
fn an_edited_decision_is_refused() {
    edited("/decision/doc/at", |value| *value = (value.as_u64().unwrap() - 1).into());
}

#[test]
fn a_decision_and_a_permit_that_were_used_before_are_refused() {
    let world = world();
    let first = parked(&world);
    let mut spent = Vec::new();
    rewrite(&world, &first, |lines| spent.clone_from(lines));
    let second = submitted(&world);
    // The claim and the `started` of the other job, with its real signatures.
    let at = started(&spent);
    rewrite(&world, &second, |lines| lines.extend(spent[at - 1..=at].iter().cloned()));
    refused(&world, &second, "illegal", 3, 1);
}

#[test]
fn a_permit_that_was_bound_to_another_decision_is_refused() {
    let world = world();
    let id = submitted(&world);
    let stranger = PrivateKey::from_seed(&[0x99; 32]);
    let mut other = None;
    forge(&world, &id, |_, _| ());
    rewrite(&world, &id, |lines| {
        let at = started(lines);
        let permit = &mut lines[at]["body"]["permit"];
        permit["doc"]["decision"] = json!(Digest::of(b"another").to_string());
        permit["doc"]["key"] = json!(stranger.id());
        let doc: gesta_core::document::Permit = Canon::of(&permit["doc"]).unwrap().read().unwrap();
        *permit = serde_json::to_value(Signed::sign(doc, &stranger).unwrap()).unwrap();
        other = Some(at);
    });
    assert!(other.is_some());
    refused(&world, &id, "illegal", 3, 0);
}

/// A job whose call was made under a guardian's key that is not valid any more goes on.
#[test]
fn what_a_retired_key_signed_in_its_time_is_gone_on_from() {
    let world = world();
    let id = parked(&world);
    world.gesta(&["keys", "rotate", "worker"]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    world.gesta(&["resume", &id]).ok();
    assert_eq!(world.files("marks"), 1);
    world.gesta(&["verify", &id]).ok();
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/bundles")
}

/// Every forged bundle of the vectors, given to whoever takes in bundles: the report is the one that is
/// written down, and nothing is made of it.
#[test]
fn forged_bundles_are_not_imported() {
    let world = World::new();
    let kinds = [
        "approval-",
        "arguments-",
        "decision-",
        "edited-",
        "permit-",
        "signature-",
        "stale-",
        "writ-",
    ];
    let mut tried = 0;
    for file in std::fs::read_dir(vectors()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is = |kind: &&str| name.starts_with(*kind);
        if path.extension().is_none_or(|it| it != "tar") || !kinds.iter().any(is) {
            continue;
        }
        let own = vectors().join(format!("{name}.trust.json"));
        let trust = if own.exists() { own } else { vectors().join("trust.json") };
        let report = std::fs::read(vectors().join(format!("{name}.report.json"))).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        let exit = if report["findings"][0]["class"] == "untrusted" { 4 } else { 3 };
        let (bundle, trust) = (path.to_string_lossy(), trust.to_string_lossy());
        let import = ["--store", "other.db", "import", &bundle, "--open", "--trust", &trust];
        let told = world.gesta(&import).expect(exit);
        let code = report["findings"][0]["code"].as_str().unwrap();
        assert!(told.out.contains(&format!("({code})")), "{name}: {}", told.out);
        assert!(!world.path("other.db").exists(), "{name}");
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}
