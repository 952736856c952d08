//! One simulated history: several workers, jobs, clients and an operator in virtual time. Everything
//! that happens follows from the seed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gesta_core::amounts::Amounts;
use gesta_core::body::external_key;
use gesta_core::content::Content;
use gesta_core::document::{ResolutionVerdict, Settlement};
use gesta_core::ids::{Principal, StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::projection::ParkedOn;
use gesta_core::sample::{Dice, person};
use gesta_core::time::Day;
use gesta_core::world::Delta;
use gesta_runtime::jobs::{self, Finding};
use gesta_runtime::{Options, Setup, Worker};
use gesta_store::{Chain, Listing, ParkedListing};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::asked::Asked;
use crate::auditor::{audit, crowded};
use crate::authority;
use crate::delegations::{self, Chains};
use crate::family;
use crate::hostile::{Cas, Health, Hostile, pass};
use crate::outside::{CLASSES, Outside};
use crate::scene::{REGISTRY, Scene, keyring, replayed, verified};

/// How long the trouble lasts, in virtual time.
const TROUBLE: Duration = Duration::from_secs(40);
/// How long everything may take after that.
const PATIENCE: Duration = Duration::from_secs(1_200);
const WORKERS: u64 = 3;
const JOBS: u8 = 3;
const LEASE_MS: u64 = 4_000;

/// No job of a history has this much to say.
const ENTRIES_MOST: usize = 1_000;

/// A simulation that went wrong.
pub(crate) struct Wrong(pub(crate) Vec<String>);

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    LostCas,
    #[cfg(feature = "sabotage")]
    Runtime(gesta_runtime::Sabotage),
}

/// What a history leaves behind: every byte of its chains, and what happened outside, in order.
pub(crate) type Left = (Vec<Vec<u8>>, String);

/// Runs one history and audits it.
pub(crate) async fn simulate(seed: u64, broken: Broken) -> (Left, Result<(), Wrong>) {
    let calm_at = Instant::now() + TROUBLE;
    let outside = Outside::new(seed ^ 0x0a, calm_at);
    let mut scene = Scene::new(outside.tools(&Health::new(), None)).await;
    scene.options = options(broken);
    let scene = Arc::new(scene);
    let mut dice = Dice::new(seed);
    let record = authority::found(&scene, &mut dice).await;
    let limit = family::limit(&scene, &mut dice).await;
    let mut asked = Asked::default();
    for number in 1..=JOBS {
        asked.submitted(family::submit(&scene, number, seed, &mut dice).await);
    }
    let mut tasks = JoinSet::new();
    for number in 0..WORKERS {
        let life = Life {
            scene: Arc::clone(&scene),
            outside: outside.clone(),
            dice: Dice::new(seed.wrapping_mul(31).wrapping_add(number)),
            number,
            calm_at,
            broken,
        };
        tasks.spawn(life.live());
    }
    tasks.spawn(trouble_makers(Arc::clone(&scene), Dice::new(seed ^ 0x77)));
    tasks.spawn(vandal(outside.clone(), Dice::new(seed ^ 0x55)));
    tasks.spawn(operator(Arc::clone(&scene), outside.clone(), Dice::new(seed ^ 0x99)));
    let approvers = authority::approvers(Arc::clone(&scene), Dice::new(seed ^ 0x33), calm_at);
    tasks.spawn(approvers);
    let owners = Dice::new(seed ^ 0x44);
    tasks.spawn(authority::owners(Arc::clone(&scene), record.clone(), owners, calm_at));
    let ended = all_ended(&scene);
    let _waited = tokio::time::timeout(TROUBLE + PATIENCE, ended).await;
    // What is on its way may still land.
    pass(30_000).await;
    tasks.shutdown().await;
    let rows = scene.store.accounts(None, Day(0)).await.unwrap();
    let mut wrong = {
        let ledger = outside.ledger.lock().unwrap();
        let mut wrong = crowded(&ledger);
        wrong.extend(delegations::accounts(limit, &rows, &ledger));
        wrong
    };
    let chains = chains(&scene, &mut wrong).await;
    let stored = stored(&scene).await;
    let ledger = outside.ledger.lock().unwrap();
    for (id, chain) in &chains {
        if chain.len() > ENTRIES_MOST {
            wrong.push(format!(
                "{id} has {} entries: something is added again and again",
                chain.len()
            ));
            continue;
        }
        let found = authority::audit(chain, &record).into_iter().chain(audit(id, chain, &ledger));
        wrong.extend(found.map(|what| format!("{id}: {what}\n{}", told(chain))));
    }
    for (id, what) in delegations::audit(&chains) {
        wrong.push(format!("{id}: {what}\n{}", told(&chains[&id])));
    }
    for (id, what) in asked.audit(&chains, &ledger) {
        let chain = chains.get(&id).map(Vec::as_slice).unwrap_or_default();
        wrong.push(format!("{id}: {what}\n{}", told(chain)));
    }
    let left = (stored, format!("{:?}\n{:?}", ledger.landed, ledger.sent));
    (left, if wrong.is_empty() { Ok(()) } else { Err(Wrong(wrong)) })
}

/// Every entry there is.
async fn stored(scene: &Scene) -> Vec<Vec<u8>> {
    let mut stored = Vec::new();
    for row in scene.store.list(&Listing::default(), usize::MAX).await.unwrap() {
        let entries = scene.store.entries(row.trajectory, 0, usize::MAX).await.unwrap();
        stored.extend(entries.into_iter().map(|entry| entry.bytes.to_vec()));
    }
    stored
}

/// What is in the store, as far as it verifies, and whether it replays.
async fn chains(scene: &Scene, wrong: &mut Vec<String>) -> Chains {
    let mut chains = Chains::new();
    let keyring = authority::trusted(keyring(&scene.cast));
    for trajectory in family::ids(&scene.store).await {
        let entries = match verified(&*scene.store, trajectory, &keyring).await {
            Ok(entries) => entries,
            Err(finding) => {
                wrong.push(finding);
                continue;
            }
        };
        if let Err(why) = replayed(&scene.store, trajectory).await {
            wrong.push(format!("{trajectory} does not replay: {why}"));
        }
        let chain = entries.iter().map(|entry| serde_json::from_slice(entry.bytes()).unwrap());
        chains.insert(trajectory.to_string(), chain.collect());
    }
    chains
}

fn options(broken: Broken) -> Options {
    let options = Options { lease_ms: LEASE_MS, skew_ms: 1_000, ..Options::default() };
    match broken {
        Broken::Nothing | Broken::LostCas => options,
        #[cfg(feature = "sabotage")]
        Broken::Runtime(sabotage) => Options { sabotage: Some(sabotage), ..options },
    }
}

/// A chain in a line an entry, for a person who looks for the reason.
fn told(chain: &[Value]) -> String {
    let line = |entry: &Value| {
        let body = &entry["body"];
        let step = body["step"].as_str().or(body["proposal"]["step"].as_str()).unwrap_or("");
        let error = body["error"]["message"].as_str().or(body["known"]["message"].as_str());
        format!(
            "  {} {} {step} {} {}",
            entry["at"],
            entry["kind"],
            entry["by"],
            error.unwrap_or("")
        )
    };
    chain.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Whoever runs one seed wants to know more.
fn notes() -> gesta_runtime::Listener {
    Arc::new(|event| {
        if let gesta_runtime::Event::Note(note) = event {
            eprintln!("{note}");
        }
    })
}

/// One worker process: it starts, works, dies, starts again.
struct Life {
    scene: Arc<Scene>,
    outside: Outside,
    dice: Dice,
    number: u64,
    calm_at: Instant,
    broken: Broken,
}

impl Life {
    async fn live(mut self) {
        for birth in 0.. {
            let health = Health::new();
            let store = Hostile {
                inner: Arc::clone(&self.scene.store),
                health: Arc::clone(&health),
                dice: Mutex::new(Dice::new(self.dice.roll())),
                calm_at: self.calm_at,
                cas: if self.broken == Broken::LostCas { Cas::Dropped } else { Cas::Honest },
                skew_ms: self.dice.below(1_000),
            };
            let lacks = self.lacks();
            let setup = Setup {
                store: Arc::new(store),
                worker: format!("worker-{}-{birth}", self.number).parse().unwrap(),
                key: Scene::worker_key(),
                guardian: None,
                sealer: None,
                catalogue: Arc::new(self.outside.tools(&health, lacks)),
                registry: Some(REGISTRY),
                options: self.scene.options.clone(),
                listener: crate::number("GESTA_SIM_SEED").map(|_| notes()),
                spool: None,
                vault: None,
                presence: None,
                anchor: None,
                host: "simulation".to_owned(),
            };
            let mut process = JoinSet::new();
            process.spawn(async move {
                let (_stop, stopped) = watch::channel(false);
                if let Ok(worker) = Worker::start(setup).await {
                    let _ended = worker.run(stopped).await;
                }
            });
            self.suffer(&health, &mut process).await;
            process.shutdown().await;
            pass(self.dice.below(3_000)).await;
        }
    }

    /// A tool that this worker does not have. The first has them all.
    fn lacks(&mut self) -> Option<&'static str> {
        let lacks = self.dice.below(2) == 0 && self.number > 0;
        self.dice.pick(&CLASSES).filter(|_| lacks).map(|(tool, _)| *tool)
    }

    /// Freezes, cuts off, and in the end kills the worker; leaves it alone once it is calm.
    async fn suffer(&mut self, health: &Health, process: &mut JoinSet<()>) {
        let until_death = Duration::from_millis(self.dice.below(12_000));
        let mut dies_at = Instant::now() + until_death;
        loop {
            let pause = Duration::from_millis(200 + self.dice.below(4_000));
            let calm = Instant::now() >= self.calm_at;
            let next =
                if calm { Instant::now() + pause } else { dies_at.min(Instant::now() + pause) };
            tokio::select! {
                biased;
                _ = process.join_next() => return,
                () = tokio::time::sleep_until(next) => {}
            }
            if Instant::now() >= self.calm_at {
                continue;
            }
            if Instant::now() >= dies_at {
                // Most who are frozen wake up before they die: that is when they do harm.
                let wakes_at = health.wakes_at();
                if wakes_at <= Instant::now() || self.dice.below(4) == 0 {
                    return;
                }
                dies_at = wakes_at + Duration::from_millis(self.dice.below(2_000));
            }
            match self.dice.below(4) {
                0 => health.freeze(self.dice.below(6 * LEASE_MS)),
                1 => health.cut_off(self.dice.below(2 * LEASE_MS)),
                _ => {}
            }
        }
    }
}

/// Clients: signals, some of them twice, and now and then a cancel.
async fn trouble_makers(scene: Arc<Scene>, mut dice: Dice) {
    let person = person().unwrap();
    for round in 0..12_u64 {
        pass(dice.below(6_000)).await;
        let trajectories = family::ids(&scene.store).await;
        let Some(trajectory) = dice.pick(&trajectories).copied() else { return };
        if dice.below(8) == 0 {
            let how = ("enough", dice.below(3) > 0);
            let _asked = jobs::cancel(&scene.store, trajectory, &person, how, scene.now()).await;
            continue;
        }
        let id = format!("signal-{}", round / 2).parse().unwrap();
        let key = "go".parse().unwrap();
        let payload = Canon::null();
        let _sent =
            jobs::signal(&scene.store, trajectory, &person, (id, key), &payload, scene.now()).await;
    }
}

/// Somebody who makes away with what jobs have done, now and then.
async fn vandal(outside: Outside, mut dice: Dice) {
    while dice.below(3) == 0 {
        pass(dice.below(60_000)).await;
        let mut ledger = outside.ledger.lock().unwrap();
        if let Some(landed) = dice.pick(&ledger.landed) {
            let key = landed.key.clone();
            ledger.vandalised.insert(key);
        }
    }
}

/// Somebody who can find out: looks outside, and says what is so. Never says that something did not
/// happen while it still could.
async fn operator(scene: Arc<Scene>, outside: Outside, mut dice: Dice) {
    let person = person().unwrap();
    loop {
        pass(5_000 + dice.below(5_000)).await;
        for row in scene.store.parked(&ParkedListing::default(), 100).await.unwrap() {
            let (trajectory, step): (_, StepId) = (row.trajectory, row.parked.step);
            match row.parked.on {
                ParkedOn::Doubt => {}
                ParkedOn::Undo => {
                    // It did not happen: it is tried again, or left undone.
                    let verdict = match dice.below(4) {
                        0 => ResolutionVerdict::GiveUp,
                        _ => ResolutionVerdict::DidNotHappen,
                    };
                    say(&scene, &person, trajectory, step, verdict).await;
                    continue;
                }
                ParkedOn::Confirmation => {
                    let now = scene.now();
                    let _said =
                        jobs::confirm(&scene.store, trajectory, &person, Some(&step), now).await;
                    continue;
                }
                _ => continue,
            }
            let chain = Chain::load(Arc::clone(&scene.store), trajectory).await.unwrap();
            let generation = chain.state().step(&step).map_or(1, |step| step.generation);
            let key = external_key(trajectory, &step, generation);
            let happened = outside.ledger.lock().unwrap().has(&key);
            let late = row.parked.until.is_some_and(|dead_at| scene.now() < dead_at);
            let verdict = match (happened, late) {
                (true, _) => ResolutionVerdict::Happened(Settlement {
                    cost: Amounts::ONE_CALL,
                    delta: Delta::default(),
                    observation: Content::Inline(Canon::null()),
                }),
                (false, true) => continue,
                (false, false) if dice.below(8) == 0 => ResolutionVerdict::GiveUp,
                (false, false) => ResolutionVerdict::DidNotHappen,
            };
            say(&scene, &person, trajectory, step, verdict).await;
        }
    }
}

async fn say(
    scene: &Scene,
    person: &Principal,
    trajectory: TrajectoryId,
    step: StepId,
    verdict: ResolutionVerdict,
) {
    let finding = Finding { step, verdict, evidence: Canon::null(), forced: false };
    let key = &scene.cast.operator;
    let _said = jobs::resolve(&scene.store, trajectory, person, key, &finding, scene.now()).await;
}

async fn all_ended(scene: &Scene) {
    loop {
        let jobs = family::jobs(&scene.store).await;
        if jobs.iter().all(|row| row.summary.status.ended()) {
            return;
        }
        pass(1_000).await;
    }
}
