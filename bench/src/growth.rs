//! Whether an append gets dearer as the history or the world grows.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use gesta_core::entry::Body;
use gesta_core::json::Canon;
use gesta_core::sample::{Cast, Dice, EPOCH, author};
use gesta_core::state::{Act, Admission, Offer, Scope, State};
use gesta_core::world::{Change, Delta, ResourceRef};
use gesta_store::Store;
use gesta_store::sqlite::{Options, SqliteStore};
use tokio::runtime::Runtime;

use crate::history::{call, cast, done, trajectory};
use crate::table::{Table, median};

const LONG: usize = 1_000_000;
const RESOURCES: usize = 100_000;
const TIMED: usize = 1500;

/// One trajectory in hand, and the store that it is in.
struct Subject {
    store: Arc<dyn Store>,
    state: State,
    cast: Cast,
    dice: Dice,
}

pub(crate) fn append(place: &Path, runtime: &Runtime, table: &mut Table) -> Result<()> {
    let store: Arc<dyn Store> =
        Arc::new(SqliteStore::open(place.join("growth.db"), Options::default())?);
    let young = runtime.block_on(async {
        let mut subject = Subject::begin(&store, 1).await?;
        subject.grow(1000, 0).await?;
        subject.timed().await
    })?;
    let old = runtime.block_on(async {
        let mut subject = Subject::begin(&store, 2).await?;
        subject.grow(LONG, 0).await?;
        ensure!(done(&subject.state) >= LONG, "the long history was not written");
        subject.timed().await
    })?;
    let large = runtime.block_on(async {
        let mut subject = Subject::begin(&store, 3).await?;
        subject.grow(RESOURCES / 100, 100).await?;
        ensure!(subject.state.world().len() == RESOURCES, "the large world was not made");
        subject.timed().await
    })?;
    for (what, at, goal) in [
        ("append at entry 1,000", young, ""),
        ("append at entry 1,000,000", old, "≤ 1.2 of entry 1,000"),
        ("append in a world of 100,000 resources", large, "≤ 1.2 of entry 1,000"),
    ] {
        let figure = format!("{:.0} µs, of which {:.0} µs decide, sign and fold", at.whole, at.cpu);
        table.ratio(what, figure, at.whole / young.whole, goal);
    }
    Ok(())
}

/// Microseconds for one append.
#[derive(Clone, Copy)]
struct Cost {
    whole: f64,
    cpu: f64,
}

impl Subject {
    async fn begin(store: &Arc<dyn Store>, number: u64) -> Result<Self> {
        let cast = cast();
        let (admitted, state) =
            cast.begin_session(trajectory(number))?.finish().context("a session begins")?;
        store.append(admitted).await?;
        Ok(Self { store: Arc::clone(store), state, cast, dice: Dice::new(number) })
    }

    /// Adds `commits` computed commits, each creating `resources` resources, many to an append.
    async fn grow(&mut self, commits: usize, resources: usize) -> Result<()> {
        let mut left = commits;
        while left > 0 {
            let batch = left.min(500);
            let mut admission = self.state.admit();
            for i in 0..batch {
                self.computed(&mut admission, left - i, resources)?;
            }
            self.store_all(admission).await?;
            left -= batch;
        }
        Ok(())
    }

    fn computed(
        &mut self,
        admission: &mut Admission,
        number: usize,
        resources: usize,
    ) -> Result<()> {
        let offer = Offer { act: Act::CommitComputed, on: Scope::NewStep };
        let mut body = self.cast.body(admission.state(), &offer, EPOCH, &mut self.dice)?;
        if let Body::Commit(commit) = &mut body {
            let create = |i| -> Result<Change> {
                let id = format!("{number}-{i}");
                let resource = ResourceRef { id: id.as_str().into(), type_: "thing".parse()? };
                Ok(Change::Create { external: None, resource, value: Canon::of(&id)? })
            };
            commit.delta = Delta((0..resources).map(create).collect::<Result<_>>()?);
        }
        let by = author(admission.state(), offer.act)?;
        admission.push(EPOCH, by, body)?;
        Ok(())
    }

    async fn store_all(&mut self, admission: Admission) -> Result<()> {
        let (admitted, next) = admission.finish().context("entries were added")?;
        self.store.append(admitted).await?;
        self.state = next;
        Ok(())
    }

    /// The median cost of an append of one entry of a call.
    async fn timed(&mut self) -> Result<Cost> {
        let (mut whole, mut cpu) = (Vec::new(), Vec::new());
        for _ in 0..TIMED {
            let begun = Instant::now();
            let mut admission = self.state.admit();
            call(&self.cast, &mut admission, EPOCH, &mut self.dice)?;
            cpu.push(begun.elapsed().as_secs_f64() * 1e6);
            self.store_all(admission).await?;
            whole.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Cost { whole: median(whole), cpu: median(cpu) })
    }
}
