//! What runs write, byte for byte: from fixed input, keys, clock and seeds the same chains, bundles and run
//! hashes on every store. They are in `vectors/runs`, three bundles for each version, and every later version
//! replays them (`cli/tests/cli/replay.rs`). Between them they hold every kind of entry, and evaluate every
//! function of expressions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gesta_core::amounts::Budget;
use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::document::ApprovalVerdict;
use gesta_core::entry::Entry;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::projection::TrajectoryKind;
use gesta_core::sample::{Cast, person};
use gesta_core::signed::Signed;
use gesta_core::state::{State, Status};
use gesta_core::trust::TrustRoot;
use gesta_core::verification::{blobs, in_force};
use gesta_core::writ::{Effect, Writ};
use gesta_runtime::approvals::{Word, speak};
use gesta_runtime::job::{self, Files};
use gesta_runtime::jobs::{self, Submission, Submitted};
use gesta_runtime::tools::{Catalogue, Change, Compensate, FunctionCall, FunctionError};
use gesta_runtime::{COMPILER, authority};
use gesta_store::memory::MemoryStore;
use gesta_store::{Chain, Listing, Store};
use gesta_verify::bundle::{Bundle, Contents, Writer};
use gesta_verify::engine::{Options, verify};
use gesta_verify::report::Verdict;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{REGISTRY, Scene, now_since, policies, replayed, worker_trust};
use crate::stage::{Witness, manifest};
use crate::stores::{on_postgres, on_sqlite};
use crate::{aftermath, expressions};

/// Mail waits for a person, everything else happens.
const POLICY: &str = r#"
@id("all") permit(principal, action, resource) unless { resource == Tool::"mail" };
@id("mail") @reason("people read it") permit(principal, action in Action::"call", resource == Tool::"mail");
"#;

/// Something of everything, and a task for another job.
const EVERYTHING: &str = r#"
job: everything
parallel: 2
input:
  n: integer
steps:
  - { id: draw, set: { dice: "${random_int(1, 1000000)}", name: "${uuid()}" } }
  - { id: read, tool: look, args: { n: "${input.n}" } }
  - { id: pay, tool: pay, args: { n: "${steps.read.result.n}" } }
  - { id: flaky, tool: flaky, args: {} }
  - { id: each, each: "${[1, 2, 3]}", tool: look, args: { n: "${item}" } }
  - { id: mail, tool: mail, args: { to: "${steps.draw.result.name}" }, needs: [pay] }
  - { id: hold, wait: { signal: go, timeout: 1h } }
  - { id: pause, wait: { for: 2s }, needs: [hold] }
  - { id: off, tool: pay, args: { n: 2 }, when: "input.n > 100" }
  - { id: ask, delegate: { job: child.yaml }, needs: [mail] }
answer: "${steps.draw.result.dice}"
"#;
const CHILD: &str = "job: child\nsteps:\n  - { id: act, tool: pay, args: { n: 9 } }\n";
/// What was done is undone.
const UNDONE: &str = r#"
job: undone
on_failure: compensate
parallel: 1
steps:
  - { id: pay, tool: pay, args: { n: 3 } }
  - { id: broken, tool: fail, args: {}, needs: [pay] }
"#;
/// What does not fit its tool is refused.
const REFUSED: &str = r#"
job: refused
steps:
  - { id: text, set: "seven" }
  - { id: pay, tool: pay, args: { n: "${steps.text.result}" } }
"#;

struct Child;

impl Files for Child {
    fn read(&self, _: &str, path: &str) -> Result<(String, String), String> {
        Ok((path.to_owned(), CHILD.to_owned()))
    }
}

fn tools() -> Catalogue {
    let flaky = Witness::default();
    let payment = |retract| {
        let id = "string(args.n)".to_owned();
        vec![Change { type_: "payment".parse().unwrap(), id, value: None, retract }]
    };
    let numbered = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let mut pay = manifest("pay", Effect::External);
    pay.input = Some(numbered.clone());
    pay.changes = payment(false);
    let given = json!({ "n": "${args.n}" });
    pay.compensate = Some(Compensate { args: given, tool: "refund".parse().unwrap() });
    let mut refund = manifest("refund", Effect::External);
    refund.input = Some(numbered);
    refund.changes = payment(true);
    let number = |call: &FunctionCall| {
        let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
        args["n"].clone()
    };
    Catalogue::builder()
        .function(manifest("look", Effect::Read), move |call: FunctionCall| {
            let n = number(&call);
            async move { Ok::<_, FunctionError>(json!({ "n": n })) }
        })
        .function(pay, move |call: FunctionCall| {
            let n = number(&call);
            // Large enough to be a blob, the third time.
            let fill = if n == 3 { "x".repeat(20_000) } else { String::new() };
            async move { Ok::<_, FunctionError>(json!({ "paid": n, "fill": fill })) }
        })
        .function(refund, async |_: FunctionCall| Ok::<_, FunctionError>(json!("back")))
        .function(manifest("mail", Effect::Irreversible), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!("sent"))
        })
        .function(manifest("fail", Effect::External), async |_: FunctionCall| {
            Err::<Value, _>(FunctionError::did_not_happen("no"))
        })
        .function(manifest("flaky", Effect::External), move |_: FunctionCall| {
            let times = flaky.saw("flaky");
            async move {
                if times == 1 { Err(FunctionError::retry("again")) } else { Ok(json!(times)) }
            }
        })
        .build()
        .unwrap()
}

async fn submit(scene: &Scene, number: u8, file: &str, input: &[(&str, &str)]) {
    let compiled = job::load_with("job.yaml", file, &*scene.catalogue, &Child).unwrap();
    for blob in &compiled.blobs {
        scene.store.put_blob(blob.as_bytes()).await.unwrap();
    }
    let submission = scene.submission_of(number, compiled, input).await;
    let standing = scene.cast.standing_writ().unwrap();
    // Workers may narrow it for a child.
    let writ = Writ {
        budget: Budget::default(),
        depth: 1,
        guardians: true,
        key: scene.cast.agent.id(),
        parent: Some(standing.id()),
        trajectory: Some(submission.trajectory),
        ..standing.doc().clone()
    };
    let writ = Signed::sign(writ, &scene.cast.agent).unwrap();
    let submission = Submission { writs: vec![standing, writ], ..submission };
    assert_eq!(jobs::submit(&scene.store, &submission, scene.now()).await, Ok(Submitted::New));
    let (job, person) = (submission.trajectory, person().unwrap());
    let go = || "go".parse().unwrap();
    jobs::signal(&scene.store, job, &person, (go(), go()), &Canon::null(), scene.now())
        .await
        .unwrap();
}

/// Every job there is, in the order of their ids.
async fn all(store: &Arc<dyn Store>) -> Vec<TrajectoryId> {
    let rows = store.list(&Listing::default(), 1_000).await.unwrap();
    let jobs = rows.into_iter().filter(|row| row.summary.kind == TrajectoryKind::Job);
    let mut ids: Vec<TrajectoryId> = jobs.map(|row| row.trajectory).collect();
    ids.sort();
    ids
}

/// Says yes to a step, if it waits for that.
pub(crate) async fn consent(scene: &Scene, job: TrajectoryId, step: &str) {
    let chain = Chain::load(Arc::clone(&scene.store), job).await.unwrap();
    let registry = Chain::load(Arc::clone(&scene.store), REGISTRY).await.unwrap();
    let step = step.parse().unwrap();
    if let Some(Status::Pending(pending)) = chain.state().step(&step).map(|step| &step.status) {
        let (pending, verdict) = (pending.entry, ApprovalVerdict::Approve);
        let expires = scene.now().plus(60_000);
        let word = Word { step: &step, pending, verdict, expires, note: None };
        let by = (registry.state(), &scene.cast.approver);
        speak(&scene.store, job, &word, by, scene.now()).await.unwrap();
    }
}

/// Runs all jobs with one worker after the other. Says which there are, children included.
pub(crate) async fn run(store: Arc<dyn Store>, started: Instant) -> (Scene, Vec<TrajectoryId>) {
    let scene = Scene::on(store, tools(), started).await;
    let policy = policies(&scene.catalogue, POLICY);
    let owner = &scene.cast.owner;
    authority::publish(&scene.store, REGISTRY, &policy, owner, scene.now()).await.unwrap();
    submit(&scene, 1, EVERYTHING, &[("n", "7")]).await;
    submit(&scene, 2, UNDONE, &[]).await;
    submit(&scene, 3, REFUSED, &[]).await;
    for _ in 0..20 {
        let mut open = false;
        for job in all(&scene.store).await {
            if scene.store.trajectory(job).await.unwrap().unwrap().summary.status.ended() {
                continue;
            }
            open = true;
            let worker = scene.worker_named(Arc::clone(&scene.store), "worker", None).await;
            let worker = worker.unwrap();
            let (_stop, stopped) = tokio::sync::watch::channel(false);
            worker.run_one(job, stopped).await.unwrap();
            worker.retire().await.unwrap();
            consent(&scene, job, "mail").await;
        }
        if !open {
            break;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let trajectories = all(&scene.store).await;
    assert_eq!(trajectories.len(), 4, "three jobs and a child");
    (scene, trajectories)
}

/// The bundle of what was run, once all of it has ended and can be derived again.
async fn written((scene, mut trajectories): (Scene, Vec<TrajectoryId>)) -> Vec<u8> {
    for job in &trajectories {
        let row = scene.store.trajectory(*job).await.unwrap().unwrap();
        assert!(row.summary.status.ended(), "{job}: {:?}", row.summary.status);
        replayed(&scene.store, *job).await.unwrap();
    }
    trajectories.push(REGISTRY);
    bundle(&scene.store, &trajectories).await
}

/// What `gesta export` writes of them.
async fn bundle(store: &Arc<dyn Store>, trajectories: &[TrajectoryId]) -> Vec<u8> {
    let mut contents = Contents::default();
    let mut documents = BTreeSet::new();
    let mut registry = State::new(REGISTRY);
    for trajectory in trajectories {
        for stored in store.entries(*trajectory, 0, usize::MAX).await.unwrap() {
            let entry = Entry::from_bytes(&stored.bytes).unwrap();
            contents.entry(*trajectory, entry.head(), stored.bytes.len() as u64);
            blobs(&entry.payload().body).into_iter().for_each(|blob| contents.blob(blob));
            documents.extend(in_force(&entry.payload().body));
            if *trajectory == REGISTRY {
                registry.apply(&entry).unwrap();
            }
        }
    }
    for digest in documents {
        if let Some(bytes) = store.blob(digest).await.unwrap() {
            contents.blob(BlobRef::of(&bytes));
        }
    }
    registry.registry().keys().iter().cloned().for_each(|key| contents.key(key));
    let order: Vec<TrajectoryId> = contents.trajectories().map(|(id, _)| id).collect();
    let named: Vec<BlobRef> = contents.blobs().collect();
    let mut writer = Writer::new(Vec::new(), contents).unwrap();
    for trajectory in order {
        for stored in store.entries(trajectory, 0, usize::MAX).await.unwrap() {
            writer.entry(trajectory, &stored.bytes).unwrap();
        }
    }
    for blob in named {
        writer.blob(&store.blob(blob.sha256).await.unwrap().unwrap()).unwrap();
    }
    writer.finish().unwrap()
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/runs")
}

/// The bundle of this name that is checked in for this version, with the keys that count in it.
fn checked_in(name: &str, bundle: &[u8], trust: &TrustRoot) -> Vec<u8> {
    let name = COMPILER.replace(' ', "-") + name;
    let path = vectors().join(format!("{name}.tar"));
    if std::env::var_os("GESTA_BLESS").is_some() {
        let trust = serde_json::to_string_pretty(trust).unwrap() + "\n";
        std::fs::write(&path, bundle).unwrap();
        std::fs::write(vectors().join(format!("{name}.trust.json")), trust).unwrap();
    }
    std::fs::read(path).unwrap_or_default()
}

/// The same on every store, and what is checked in under this name.
macro_rules! written_on_every_store {
    ($run:path, $name:expr) => {{
        let started = Instant::now();
        let clock = Arc::new(move || now_since(started));
        let in_memory = written($run(Arc::new(MemoryStore::new(clock)), started).await).await;
        let home = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let on_file = written($run(on_sqlite(started, home.path()).await, started).await).await;
        assert_eq!(Digest::of(&on_file), Digest::of(&in_memory), "SQLite and memory differ");
        let started = Instant::now();
        let on_server = written($run(on_postgres(started).await, started).await).await;
        assert_eq!(Digest::of(&on_server), Digest::of(&in_memory), "PostgreSQL and memory differ");
        sound_and_checked_in($name, &in_memory);
    }};
}

fn sound_and_checked_in(name: &str, bundle: &Vec<u8>) {
    let mut keys = Cast::new(1).trust_root().keys;
    keys.push(worker_trust());
    let trust = TrustRoot::new(keys);
    let read = Bundle::read(Box::new(bundle.clone())).unwrap();
    let report = verify(&read, &trust.keyring().unwrap(), &Options::default());
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    assert!(
        checked_in(name, bundle, &trust) == *bundle,
        "runs of this version write something else than `vectors/runs` has of it: what is released must \
         not change. `cargo xtask vectors` writes the vectors of a version that is not"
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_jobs_give_the_same_bundle_on_every_store_and_the_one_that_is_checked_in() {
    written_on_every_store!(run, "");
}

#[tokio::test(start_paused = true)]
async fn what_befalls_jobs_is_written_the_same_on_every_store_and_as_it_is_checked_in() {
    written_on_every_store!(aftermath::run, "-aftermath");
}

#[tokio::test(start_paused = true)]
async fn what_expressions_come_to_is_written_the_same_on_every_store_and_as_it_is_checked_in() {
    written_on_every_store!(expressions::run, "-expressions");
}
