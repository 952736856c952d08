//! Attacks on a store while it is in use, on one in a temporary directory.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::Admitted;
use gesta_core::sample::{Cast, Dice, EPOCH};
use gesta_core::state::{Act, Offer, Scope, State};
use gesta_runtime::tools::Catalogue;
use gesta_runtime::{Anchored, Options, RunError, Setup, Unfit, Worker};
use gesta_store::{AppendError, Chain, ChainError, Store};

use super::Tried;
use crate::place::Place;

const SESSION: TrajectoryId = TrajectoryId::from_bytes([0x5e; 16]);

/// A store with a session that was begun and claimed, and whoever has its keys.
struct Scene {
    cast: Cast,
    store: Arc<dyn Store>,
    state: State,
}

/// Every case.
pub(super) async fn cases() -> Result<Vec<Tried>> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    Ok(vec![
        forked_head(&Scene::new(&at("forked.db")).await?).await?,
        sent_twice(&Scene::new(&at("twice.db")).await?).await?,
        stale_fence(&Scene::new(&at("fence.db")).await?).await?,
        rolled_back(directory.path()).await?,
    ])
}

fn tried(name: &str, said: String, expected: &str) -> Tried {
    let wrong = (said != expected).then(|| expected.to_owned());
    Tried { part: "store", name: name.to_owned(), said, expected: wrong }
}

fn told(appended: &Result<gesta_core::entry::Head, AppendError>) -> String {
    match appended {
        Ok(head) => format!("appended as entry {}", head.seq),
        Err(error) => format!("refused: {error}"),
    }
}

impl Scene {
    async fn new(file: &Path) -> Result<Self> {
        let store = Place::Sqlite(file.to_owned()).make().await?;
        let cast = Cast::new(7);
        let (begun, state) = cast.begin_session(SESSION)?.finish().context("nothing was begun")?;
        store.append(begun).await?;
        Ok(Self { cast, store, state })
    }

    /// What may follow on the session as it is known here.
    fn next(&self, act: Act, on: Option<&str>) -> Result<(Admitted, State)> {
        let on = match on {
            Some(step) => Scope::Step(step.parse()?),
            None => Scope::Trajectory,
        };
        let mut admission = self.state.admit();
        self.cast.push(&mut admission, &Offer { act, on }, EPOCH.plus(5), &mut Dice::new(1))?;
        admission.finish().context("nothing was added")
    }

    async fn length(&self) -> Result<usize> {
        Ok(self.store.entries(SESSION, 0, 100).await?.len())
    }
}

/// Two entries on one head: the second loses, and leaves no trace.
async fn forked_head(scene: &Scene) -> Result<Tried> {
    let (first, _) = scene.next(Act::Start, Some("pay"))?;
    let (second, _) = scene.next(Act::Start, Some("ship"))?;
    scene.store.append(first).await?;
    let lost = told(&scene.store.append(second).await);
    let said = format!("{lost}; {} entries are there", scene.length().await?);
    let expected = "refused: another entry was appended first; 3 entries are there";
    Ok(tried("one-head-forked", said, expected))
}

/// The same `started` sent twice is one: its permit is spent once.
async fn sent_twice(scene: &Scene) -> Result<Tried> {
    let (started, _) = scene.next(Act::Start, Some("pay"))?;
    scene.store.append(started.clone()).await?;
    let again = told(&scene.store.append(started).await);
    let said = format!("{again}; {} entries are there", scene.length().await?);
    Ok(tried("one-start-sent-twice", said, "appended as entry 2; 3 entries are there"))
}

/// Whoever has lost a trajectory to a newer attempt writes as if it still had it.
async fn stale_fence(scene: &Scene) -> Result<Tried> {
    let (late, _) = scene.next(Act::Start, Some("pay"))?;
    let (claimed, _) = scene.next(Act::Attempt, None)?;
    scene.store.append(claimed).await?;
    let lost = told(&scene.store.append(late).await);
    let mut chain = Chain::load(Arc::clone(&scene.store), SESSION).await?;
    let by = gesta_core::sample::author(&scene.state, Act::Start)?;
    let offer = Offer { act: Act::Start, on: Scope::Step("pay".parse()?) };
    let body = scene.cast.body(chain.state(), &offer, EPOCH.plus(9), &mut Dice::new(1))?;
    let rebuilt = chain
        .append(|admission| {
            admission.push(EPOCH.plus(9), by.clone(), body.clone())?;
            Ok(())
        })
        .await;
    let rebuilt = match rebuilt {
        Err(ChainError::Admit(why)) => why.to_string(),
        other => format!("{other:?}"),
    };
    let expected = "refused: attempt 2 has taken over this trajectory; entry 3 (`started`) may not follow in state `live`: it is by attempt 1, but attempt 2 owns the trajectory";
    Ok(tried("stale-fence", format!("{lost}; {rebuilt}"), expected))
}

/// An older copy of the file is put in the place of the store, and a worker is started on it.
async fn rolled_back(directory: &Path) -> Result<Tried> {
    let (file, copy, anchor) =
        (directory.join("store.db"), directory.join("copy.db"), directory.join("store.anchor"));
    drop(Scene::new(&file).await?);
    std::fs::copy(&file, &copy)?;
    let store = Place::Sqlite(file.clone()).make().await?;
    let mut chain = Chain::load(Arc::clone(&store), SESSION).await?;
    let cast = Cast::new(7);
    let head = chain
        .append(|admission| {
            let offer = Offer { act: Act::Start, on: Scope::Step("pay".parse().map_err(sample)?) };
            let pushed = cast.push(admission, &offer, EPOCH.plus(5), &mut Dice::new(1));
            pushed.map_err(sample)
        })
        .await?;
    let epoch = store.epochs().epoch().await?;
    let heads = vec![(SESSION, head)];
    Anchored { store: epoch.store, epoch: epoch.number, log: None, heads }.write(&anchor)?;
    drop((chain, store));
    std::fs::copy(&copy, &file)?;

    let setup = Setup {
        store: Place::Sqlite(file).make().await?,
        worker: gesta_core::sample::worker()?,
        key: cast.executor.clone(),
        guardian: None,
        catalogue: Arc::new(Catalogue::builder().build()?),
        registry: None,
        options: Options::default(),
        sealer: None,
        listener: None,
        spool: None,
        vault: None,
        presence: None,
        anchor: Some(anchor),
        host: "conformance".to_owned(),
    };
    let said = match Worker::start(setup).await {
        Ok(_) => "a worker works on it".to_owned(),
        Err(RunError::Unfit(unfit)) => match *unfit {
            Unfit::Behind { known, found, .. } => format!(
                "refused: the store is behind its anchor, at entry {} of {}",
                found.map_or(0, |found| found.seq),
                known.seq
            ),
            other => other.to_string(),
        },
        Err(other) => other.to_string(),
    };
    let expected = "refused: the store is behind its anchor, at entry 1 of 2";
    Ok(tried("store-rolled-back", said, expected))
}

/// A sample that cannot be made is a fault of this program.
fn sample(why: impl std::fmt::Display) -> ChainError {
    ChainError::Store(gesta_store::StoreError::Refused { why: why.to_string() })
}
