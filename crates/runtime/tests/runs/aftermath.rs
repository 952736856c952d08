//! The other run that is written down: what becomes of jobs when a store is cut off, a call is in doubt, a job is
//! cancelled, the world has changed, a job is branched, and what was sensitive is erased.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gesta_core::amounts::Budget;
use gesta_core::body::{BranchMode, ConfirmationMode};
use gesta_core::digest::Digest;
use gesta_core::document::{Recovery, ResolutionVerdict};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::sample::person;
use gesta_core::writ::Effect;
use gesta_runtime::duration::DurationMs;
use gesta_runtime::job;
use gesta_runtime::jobs::{self, Finding};
use gesta_runtime::tools::{
    Catalogue, Change, Compensate, FunctionCall, FunctionError, VerifierDeclaration, Verify,
};
use gesta_runtime::{At, BranchOrder, Entropy, Home, Left, Order, Setup, Spool, Worker, erase};
use gesta_store::faulty::{Fault, FaultyStore};
use gesta_store::{MemoryDataKeys, Store};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{REGISTRY, Scene};
use crate::stage::manifest;
use crate::written::consent;

/// Tells somebody something that nobody else is to know, and waits. What it wrote is looked at before it goes on.
const TOLD: &str = r#"
job: told
input:
  to: { type: string, sensitive: true }
steps:
  - { id: write, tool: write, args: { name: a, text: one } }
  - { id: plain, tool: use, args: { n: 1 }, needs: [write] }
  - { id: tell, tool: tell, args: { to: "${input.to}", note: private }, needs: [plain] }
  - { id: hold, wait: { signal: go }, needs: [tell] }
  - { id: use, tool: use, args: {}, needs: [hold, write] }
answer: "${steps.use.result}"
"#;
/// Its payment is lost with the store; what it booked is undone.
const LOST: &str = r#"
job: lost
steps:
  - { id: book, tool: book, args: { room: 7 } }
  - { id: pay, tool: pay, args: { n: 1 }, needs: [book] }
"#;
/// Its parcel is found by asking.
const FOUND: &str = r#"
job: found
steps:
  - { id: ship, tool: ship, args: { to: here } }
answer: "${steps.ship.result}"
"#;

/// What there is outside.
#[derive(Clone, Default)]
struct Outside {
    text: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
}

fn tools(outside: &Outside) -> Catalogue {
    let mut write = manifest("write", Effect::Write);
    write.changes = vec![change("document", "args.name", Some("args.text"), false)];
    write.verify = vec![Verify {
        args: json!({ "name": "${id}" }),
        confirm: Some(ConfirmationMode::Human),
        holds: "found.text == value".to_owned(),
        type_: "document".parse().unwrap(),
        verifier: "library".parse().unwrap(),
    }];
    let mut tell = manifest("tell", Effect::External);
    let sensitive = json!({ "type": "string", "x-gesta-sensitive": true });
    tell.input =
        Some(json!({ "type": "object", "properties": { "to": sensitive, "note": sensitive } }));
    tell.output = Some(json!({ "type": "object", "properties": { "told": sensitive } }));
    let mut book = manifest("book", Effect::External);
    book.changes = vec![change("room", "string(args.room)", None, false)];
    let undo = json!({ "room": "${args.room}" });
    book.compensate = Some(Compensate { args: undo, tool: "unbook".parse().unwrap() });
    let mut unbook = manifest("unbook", Effect::External);
    unbook.changes = vec![change("room", "string(args.room)", None, true)];
    let mut ship = manifest("ship", Effect::External);
    (ship.recovery, ship.probe) = (Recovery::Probe, Some("parcel".parse().unwrap()));
    ship.timeout = DurationMs::from_ms(5_000);
    let (reads, cuts) = (outside.clone(), Arc::clone(&outside.cut));
    let library = VerifierDeclaration {
        file: None,
        git: None,
        http: None,
        secrets: BTreeMap::new(),
        timeout: "5s".parse().unwrap(),
        tool: Some("read".parse().unwrap()),
    };
    let done = async |_: FunctionCall| Ok::<_, FunctionError>(json!("done"));
    Catalogue::builder()
        .function(write, done)
        .function(manifest("read", Effect::Read), move |_: FunctionCall| {
            let changed = reads.text.load(Ordering::SeqCst);
            let text = if changed { "another" } else { "one" };
            async move { Ok::<_, FunctionError>(json!({ "text": text })) }
        })
        .function(tell, async |call: FunctionCall| {
            let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
            Ok::<_, FunctionError>(json!({ "told": args["to"] }))
        })
        .function(manifest("use", Effect::External), done)
        .function(book, done)
        .function(unbook, done)
        .function(manifest("pay", Effect::External), move |_: FunctionCall| {
            // From here its worker does not reach the store.
            cuts.store(true, Ordering::SeqCst);
            async { Ok::<_, FunctionError>(json!({ "paid": 1 })) }
        })
        .function(ship, async |_: FunctionCall| {
            std::future::pending::<()>().await;
            Ok::<_, FunctionError>(Value::Null)
        })
        .function(manifest("parcel", Effect::Read), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!({ "happened": true, "result": "on its way" }))
        })
        .verifier("library".parse().unwrap(), library, std::path::Path::new(""))
        .build()
        .unwrap()
}

fn change(type_: &str, id: &str, value: Option<&str>, retract: bool) -> Change {
    let value = value.map(str::to_owned);
    Change { type_: type_.parse().unwrap(), id: id.to_owned(), value, retract }
}

/// Bytes that look random, and are the same every time.
fn entropy() -> Entropy {
    let drawn = AtomicU64::new(0);
    Arc::new(move |bytes: &mut [u8]| {
        let number = drawn.fetch_add(1, Ordering::SeqCst);
        let digest = Digest::of(&number.to_be_bytes());
        bytes.iter_mut().zip(digest.as_bytes().iter().cycle()).for_each(|(to, from)| *to = *from);
        Ok(())
    })
}

/// The jobs, one after the other, each with everything that befalls it. Says which there are.
pub(crate) async fn run(store: Arc<dyn Store>, started: Instant) -> (Scene, Vec<TrajectoryId>) {
    let outside = Outside::default();
    let mut scene = Scene::on(store, tools(&outside), started).await;
    scene.options.checkpoint_every = 2;
    let catalogue = Arc::clone(&scene.catalogue);
    let home =
        Home::new(Arc::clone(&scene.store), catalogue, REGISTRY, scene.options.clone()).unwrap();
    let home = home.with_data_keys(Arc::new(MemoryDataKeys::default())).drawing_from(entropy());
    let place = Place { scene, home, outside };
    let told = place.told().await;
    let branch = place.branched(told).await;
    place.erased(told).await;
    let lost = place.lost().await;
    let found = place.found().await;
    (place.scene, vec![told, branch, lost, found])
}

struct Place {
    scene: Scene,
    home: Home,
    outside: Outside,
}

impl Place {
    async fn submit(&self, file: &str, input: &[(&str, &str)]) -> TrajectoryId {
        let job = job::load("job.yaml", file, &*self.scene.catalogue).unwrap();
        let given = input.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let input = job.input(&given.collect()).unwrap();
        let order = Order { job: &job, input, budget: Budget::default(), key: None };
        let authority = (vec![self.scene.cast.standing_writ().unwrap()], &self.scene.cast.agent);
        self.home.submit(&order, authority, self.scene.now()).await.unwrap().0
    }

    async fn worker(&self, store: &Arc<dyn Store>, spool: Option<Spool>) -> Worker {
        let setup = Setup {
            store: Arc::clone(store),
            worker: "worker".parse().unwrap(),
            key: Scene::worker_key(),
            guardian: None,
            sealer: None,
            catalogue: Arc::clone(&self.scene.catalogue),
            registry: Some(REGISTRY),
            options: self.scene.options.clone(),
            listener: None,
            spool,
            vault: self.home.vault.clone(),
            presence: None,
            anchor: None,
            host: "test".to_owned(),
        };
        Worker::start(setup).await.unwrap()
    }

    async fn drive(&self, job: TrajectoryId) -> Left {
        let worker = self.worker(&self.scene.store, None).await;
        let (_stop, stopped) = tokio::sync::watch::channel(false);
        let left = worker.run_one(job, stopped).await.unwrap();
        worker.retire().await.unwrap();
        left
    }

    async fn signal(&self, job: TrajectoryId) {
        let (key, person) = (|| "go".parse().unwrap(), person().unwrap());
        let (store, now) = (&self.scene.store, self.scene.now());
        jobs::signal(store, job, &person, (key(), key()), &Canon::null(), now).await.unwrap();
    }

    /// While it waits, somebody has changed what it wrote; a person says to go on.
    async fn told(&self) -> TrajectoryId {
        let job = self.submit(TOLD, &[("to", "bob@example.org")]).await;
        assert_eq!(self.drive(job).await, Left::Parked);
        self.signal(job).await;
        self.outside.text.store(true, Ordering::SeqCst);
        assert_eq!(self.drive(job).await, Left::Parked, "somebody has to look");
        let (store, person) = (&self.scene.store, person().unwrap());
        jobs::confirm(store, job, &person, None, self.scene.now()).await.unwrap();
        assert_eq!(self.drive(job).await, Left::Ended);
        self.outside.text.store(false, Ordering::SeqCst);
        job
    }

    /// From what was written on, with what came of the rest. What is committed to anew is not what was sent: a
    /// person is asked.
    async fn branched(&self, source: TrajectoryId) -> TrajectoryId {
        let order = BranchOrder {
            source,
            at: At::Step("write".parse().unwrap()),
            mode: BranchMode::Recorded,
            note: "as if nobody had changed it",
            plan: None,
            edits: &[],
            input: &BTreeMap::new(),
            budget: Budget::default(),
            key: None,
        };
        let authority = (vec![self.scene.cast.standing_writ().unwrap()], &self.scene.cast.agent);
        let (branch, _) = self.home.branch(&order, authority, self.scene.now()).await.unwrap();
        self.signal(branch).await;
        assert_eq!(self.drive(branch).await, Left::Parked, "somebody has to say so");
        consent(&self.scene, branch, "tell").await;
        assert_eq!(self.drive(branch).await, Left::Ended);
        branch
    }

    async fn erased(&self, job: TrajectoryId) {
        let vault = self.home.vault.as_ref().unwrap();
        let (store, person) = (&self.scene.store, person().unwrap());
        erase(store, vault, (job, true), (&person, "bob asked for it"), self.scene.now())
            .await
            .unwrap();
    }

    /// The call is made, and its worker cannot say so. A person is asked, denies it and cancels; the rest is
    /// undone, and then the report arrives.
    async fn lost(&self) -> TrajectoryId {
        let job = self.submit(LOST, &[]).await;
        let spooled = tempfile::tempdir().unwrap();
        let spool = || Some(Spool::new(spooled.path().join("spool")));
        let cut = Arc::clone(&self.outside.cut);
        let fault = move |_| cut.load(Ordering::SeqCst).then_some(Fault::Lost);
        let store: Arc<dyn Store> =
            Arc::new(FaultyStore::new(Arc::clone(&self.scene.store), Box::new(fault)));
        let worker = self.worker(&store, spool()).await;
        let (_stop, stopped) = tokio::sync::watch::channel(false);
        assert_eq!(worker.run_one(job, stopped).await.unwrap(), Left::Lost);
        drop(worker);
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(self.drive(job).await, Left::Parked, "nobody knows");
        let (store, person, now) = (&self.scene.store, person().unwrap(), self.scene.now());
        jobs::cancel(store, job, &person, ("too much", true), now).await.unwrap();
        let (step, verdict) = ("pay".parse().unwrap(), ResolutionVerdict::DidNotHappen);
        let evidence = Canon::parse(br#"{"statement":"no such payment"}"#).unwrap();
        let finding = Finding { step, verdict, evidence, forced: false };
        let operator = &self.scene.cast.operator;
        jobs::resolve(store, job, &person, operator, &finding, now).await.unwrap();
        assert_eq!(self.drive(job).await, Left::Ended);
        let worker = self.worker(&self.scene.store, spool()).await;
        worker.retire().await.unwrap();
        job
    }

    /// A call that does not come back is asked about.
    async fn found(&self) -> TrajectoryId {
        let job = self.submit(FOUND, &[]).await;
        let mut left = self.drive(job).await;
        for _ in 0..20 {
            if left == Left::Ended {
                break;
            }
            tokio::time::advance(Duration::from_secs(60)).await;
            left = self.drive(job).await;
        }
        assert_eq!(left, Left::Ended);
        job
    }
}
