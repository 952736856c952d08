//! The same history on two stores: every answer must be the same, and so must every row and byte in
//! the end. The history is drawn from a seed; memory is the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::digest::{Digest, WritId};
use gesta_core::ids::{TrajectoryId, WorkerId};
use gesta_core::projection::{Admitted, ParkedOn, Status};
use gesta_core::sample::{self, Dice};
use gesta_core::time::{Day, UnixMs};
use gesta_store::memory::MemoryStore;
use gesta_store::{
    Account, Draw, Drawn, Listing, ParkedListing, Profile, Ration, Span, Store, StoreError,
};

use super::{Job, Subject, Time, report, worker};

const SEEDS: u64 = 4;
const ACTS: u64 = 400;
const WORKERS: [&str; 3] = ["ada", "ben", "cleo"];

/// How many trajectories of every kind.
const WANDERERS: usize = 40;

/// Longer than any test runs. Nothing here depends on the stores' clocks.
const LONG_MS: u64 = 600_000;
const LONG_AGO: UnixMs = UnixMs(1_000);
const FAR_OFF: UnixMs = UnixMs(1 << 52);

pub(crate) async fn agrees_with_memory(subject: Subject) {
    let (time, clock) = Time::manual();
    let model = MemoryStore::new(clock);
    let mut history = History::new(&model, &*subject.store);
    for seed in 0..SEEDS {
        history.dice = Dice::new(seed);
        for act in 0..ACTS {
            history.step = format!("seed {seed}, act {act}");
            // Who came first counts, so that no two acts may share a moment.
            time.pass().await;
            subject.time.pass().await;
            history.act().await;
        }
    }
    history.compare_everything().await;
}

struct History<'a> {
    model: &'a dyn Store,
    other: &'a dyn Store,
    dice: Dice,
    step: String,
    jobs: Vec<Job>,
    /// Jobs as they once were, for those who have not heard.
    memories: Vec<Job>,
    sent: Vec<Arc<Admitted>>,
    names: usize,
    /// Trajectories of every kind, whose steps come to wait for everything that steps wait for.
    wanderers: Vec<sample::History>,
    /// What steps were seen to wait for.
    parked_on: BTreeSet<ParkedOn>,
}

/// Not everyone has every tool.
fn profile(worker: &WorkerId) -> Profile {
    let tools: &[&str] = match worker.as_str() {
        "ada" => &["mail", "pay"],
        "ben" => &["mail"],
        _ => &[],
    };
    let tools = tools.iter().map(|tool| tool.parse().unwrap()).collect();
    Profile { tools, ..Profile::default() }
}

/// Asks both stores and compares the answers.
macro_rules! both {
    ($history:expr, $store:ident => $ask:expr) => {{
        let $store = $history.model;
        let expected = $ask.await;
        let $store = $history.other;
        assert_eq!($ask.await, expected, "{}", $history.step);
        expected
    }};
}

impl<'a> History<'a> {
    fn new(model: &'a dyn Store, other: &'a dyn Store) -> Self {
        let (jobs, memories, sent) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            model,
            other,
            dice: Dice::new(0),
            step: String::new(),
            jobs,
            memories,
            sent,
            names: 0,
            wanderers: Vec::new(),
            parked_on: BTreeSet::new(),
        }
    }

    async fn act(&mut self) {
        match self.dice.below(20) {
            0 | 1 => self.begin().await,
            2..=6 => self.grow().await,
            7 => self.append_late().await,
            8 => {
                if let Some(again) = self.dice.pick(&self.sent).cloned() {
                    self.append(again).await;
                }
            }
            9..=12 => self.lease().await,
            13 => self.reproject().await,
            14 if self.dice.below(2) == 0 => self.ration().await,
            14 => self.draw().await,
            15..=18 => self.wander().await,
            _ => self.keep_contents().await,
        }
    }

    async fn append(&mut self, admitted: Arc<Admitted>) {
        let answer = both!(self, store => store.append(Admitted::clone(&admitted)));
        if answer.is_ok() {
            self.sent.push(admitted);
        }
    }

    async fn begin(&mut self) {
        // At 41 ids are far from their order of birth, and all different.
        let number = u8::try_from(self.jobs.len() * 41 % 251).unwrap();
        if self.jobs.len() < 251 {
            let needs = *self.dice.pick(&[&[][..], &["mail"], &["mail", "pay"]]).unwrap();
            let tenant = *self.dice.pick(&["acme", "best", "cora"]).unwrap();
            let priority = *self.dice.pick(&[0, 0, 0, 7]).unwrap();
            let job = Job::new(number, UnixMs(1_000_000 + self.dice.below(5)));
            let mut job = job.needing(needs).of(tenant).urgent(priority);
            let admitted = job.begin();
            self.append(Arc::new(admitted)).await;
            self.jobs.push(job);
        }
    }

    async fn grow(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.dice.below(self.jobs.len() as u64) as usize;
        let before = self.jobs[at].clone();
        let mut job = before.clone();
        job.at = job.at.plus(self.dice.below(3));
        if let Some(admitted) = self.extend(&mut job) {
            if self.dice.below(4) == 0 {
                self.memories.push(before);
            }
            self.jobs[at] = job;
            self.append(Arc::new(admitted)).await;
        }
    }

    /// Something legal, if the job still goes on. A job remembers nothing of who owns it, so its
    /// number of attempts names its worker.
    fn extend(&mut self, job: &mut Job) -> Option<Admitted> {
        if job.state.ended().is_some() {
            return None;
        }
        let attempt = usize::try_from(job.state.attempt()).unwrap();
        let owner = WORKERS[attempt % WORKERS.len()];
        let may_wait = |job: &Job, step: &str| job.state.step(&step.parse().unwrap()).is_none();
        match self.dice.below(10) {
            0..=2 => Some(job.attempt(WORKERS[(attempt + 1) % WORKERS.len()])),
            3 if attempt > 0 => Some(job.cancel(owner)),
            4 if attempt > 0 && may_wait(job, "first") => Some(job.wait(owner, "first", None)),
            5 | 6 if attempt > 0 && may_wait(job, "second") => {
                let until = self.dice.pick(&[LONG_AGO, FAR_OFF]).copied();
                Some(job.wait(owner, "second", until))
            }
            7 => Some(job.signals(&[&self.name(), &self.name(), &self.name()])),
            _ => Some(job.signal(&self.name())),
        }
    }

    /// A trajectory begins or goes on, by one entry or a few in one append; then every row of what is
    /// parked is compared.
    async fn wander(&mut self) {
        let begun = self.wanderers.len();
        if begun == 0 || (begun < WANDERERS && self.dice.below(4) == 0) {
            let mut bytes = [0xee; 16];
            bytes[0] = u8::try_from(begun * 41 % 251).unwrap();
            let id = TrajectoryId::from_bytes(bytes);
            let dice = Dice::new(self.dice.roll());
            let mut wanderer = sample::History::begin(id, dice).unwrap();
            if let Some(source) = wanderer.source.take() {
                self.append(Arc::new(source)).await;
            }
            self.wanderers.push(wanderer);
        }
        let which = usize::try_from(self.dice.below(self.wanderers.len() as u64)).unwrap();
        let entries = usize::try_from(1 + self.dice.below(4)).unwrap();
        let wanderer = &mut self.wanderers[which];
        wanderer.wander(entries).unwrap();
        if self.dice.below(12) == 0 {
            wanderer.cancel().unwrap();
        }
        let Some(admitted) = wanderer.take() else { return };
        self.append(Arc::new(admitted)).await;
        let listing = ParkedListing::default();
        let rows = both!(self, store => store.parked(&listing, usize::MAX)).unwrap();
        self.parked_on.extend(rows.iter().map(|row| row.parked.on));
    }

    async fn append_late(&mut self) {
        if let Some(mut job) = self.dice.pick(&self.memories).cloned()
            && let Some(admitted) = self.extend(&mut job)
        {
            // It loses, unless it says exactly what was said back then.
            let _ = both!(self, store => store.append(admitted.clone()));
        }
    }

    async fn lease(&mut self) {
        let me = worker(self.dice.pick(&WORKERS).unwrap());
        match self.dice.below(8) {
            0 | 1 => {
                for store in [self.model, self.other] {
                    store.heartbeat(&me, &profile(&me), LONG_MS).await.unwrap();
                }
            }
            2..=4 => {
                let max = self.dice.below(4) as usize;
                both!(self, store => store.claim(&me, max)).unwrap();
            }
            5 | 6 => {
                if let Some(job) = self.dice.pick(&self.jobs).map(Job::id) {
                    both!(self, store => store.release(&me, job)).unwrap();
                }
            }
            _ => both!(self, store => store.retire(&me)).unwrap(),
        }
    }

    async fn ration(&mut self) {
        let me = worker(self.dice.pick(&WORKERS).unwrap());
        let using = u32::try_from(self.dice.below(2)).unwrap();
        let wanted = u32::try_from(self.dice.below(4)).unwrap();
        let ask = Ration { limit: 3, using, wanted, ttl_ms: LONG_MS };
        both!(self, store => store.ration(&me, "tool pay", ask)).unwrap();
    }

    async fn draw(&mut self) {
        let tenant = self.dice.pick(&["acme", "best"]).unwrap().parse().unwrap();
        let span = match self.dice.below(3) {
            2 => Span::Writ(WritId::new(Digest::of(b"a writ"))),
            day => Span::Day(Day(day as u32)),
        };
        let account = Account { tenant, span };
        let holder = *self.dice.pick(&WORKERS).unwrap();
        let mut amounts = |most: u64| Amounts::of([0; 4].map(|_: u64| self.dice.below(most)));
        let (keep, used, need, want) = (amounts(30), amounts(20), amounts(3), amounts(50));
        let limit = Budget { calls: Some(200), tokens: Some(150), ..Budget::default() };
        let (seq, warn_at) = (self.dice.below(40), vec![20, 40]);
        // What is idle comes back while its holder is alive, by the clock.
        let idle = Amounts::default();
        let draw = Draw { seq, limit, keep, used, idle, need, want, warn_at };
        both!(self, store => async {
            // Who is silent is so by the clock.
            let drawn = store.draw(&account, holder, &draw).await?;
            Ok::<_, StoreError>(Drawn { silent: Vec::new(), ..drawn })
        })
        .unwrap();
        both!(self, store => store.account(&account)).unwrap();
    }

    async fn reproject(&mut self) {
        let jobs = if self.dice.below(3) == 0 { &self.memories } else { &self.jobs };
        if let Some(job) = self.dice.pick(jobs).cloned() {
            let (head, projection) = (job.state.head().unwrap(), job.projection());
            let _ = both!(self, store => store.reproject(job.id(), head, &projection));
        }
    }

    async fn keep_contents(&mut self) {
        let Some(job) = self.dice.pick(&self.jobs).map(Job::id) else { return };
        let report = report(job, UnixMs(self.dice.below(3)));
        let size = self.dice.below(5_000) as usize;
        match self.dice.below(3) {
            0 => both!(self, store => store.put_effect(&report)).unwrap(),
            1 => both!(self, store => store.drop_effect(&report)).unwrap(),
            _ => drop(both!(self, store => store.put_blob(&vec![7; size])).unwrap()),
        }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("name-{}", self.names)
    }

    async fn compare_everything(&mut self) {
        let rows = both!(self, store => store.list(&Listing::default(), usize::MAX)).unwrap();
        let expected: Vec<ParkedOn> = ParkedOn::ALL.to_vec();
        assert_eq!(Vec::from_iter(self.parked_on.clone()), expected, "the history was too tame");
        let branches = rows.len() - self.jobs.len() - self.wanderers.len();
        assert!(branches > 3, "{branches} branches");
        for wanderer in &self.wanderers {
            let (id, state) = (wanderer.base.trajectory(), &wanderer.base);
            let row = rows.iter().find(|row| row.trajectory == id).unwrap();
            assert_eq!(Some(&row.summary), state.summary().as_ref());
            both!(self, store => store.entries(id, 0, usize::MAX)).unwrap();
            let listing = ParkedListing { trajectory: Some(id), ..ParkedListing::default() };
            let parked = both!(self, store => store.parked(&listing, usize::MAX)).unwrap();
            let mut folded: Vec<_> = state.parked().collect();
            folded.sort_by(|one, other| one.step.cmp(&other.step));
            assert_eq!(parked.into_iter().map(|row| row.parked).collect::<Vec<_>>(), folded);
        }
        for job in &self.jobs {
            let row = rows.iter().find(|row| row.trajectory == job.id()).unwrap();
            assert_eq!(Some(&row.summary), job.state.summary().as_ref());
            both!(self, store => store.entries(job.id(), 0, usize::MAX)).unwrap();
            both!(self, store => store.effects(job.id())).unwrap();
        }
        let accounts = both!(self, store => store.accounts(None, Day(0))).unwrap();
        assert!(accounts.len() == 4, "{accounts:?}");
        let parked = both!(self, store => store.parked(&ParkedListing::default(), usize::MAX));
        let listing = Listing { status: Some(Status::Cancelled), after: None };
        let cancelled = both!(self, store => store.list(&listing, usize::MAX)).unwrap();
        assert!(parked.unwrap().len() > 5 && cancelled.len() > 5, "the history was too tame");
        for name in WORKERS {
            both!(self, store => store.claim(&worker(name), usize::MAX)).unwrap();
        }
    }
}
