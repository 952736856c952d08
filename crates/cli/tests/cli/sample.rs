//! Stores with more in them than the commands can write yet: the core's sample trajectories.

use std::sync::Arc;

use gesta_core::body::{Attempt, Purpose};
use gesta_core::content::Content;
use gesta_core::entry::{Author, Body};
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::{self, Cast, Dice, EPOCH};
use gesta_core::state::{Act, Admission, Offer, Scope, State};
use gesta_core::trust::TrustRoot;
use gesta_store::Store;

/// A job that waits for an approval and for a signal.
pub(crate) const PARKED: TrajectoryId = TrajectoryId::from_bytes([0xa1; 16]);
/// A session whose input is a blob.
pub(crate) const SESSION: TrajectoryId = TrajectoryId::from_bytes([0xb2; 16]);

/// What the session's worker says of itself: it clears the screen, turns the line around and hides.
pub(crate) const UNSEEN: &str = "claimed\u{1b}[2J\u{202e}\u{9b}\u{200b}";

/// Writes both, and says whom to trust.
pub(crate) fn write(store: &Arc<dyn Store>) -> TrustRoot {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(fill(store))
}

/// As [`write`], into a SQLite file.
pub(crate) fn write_file(path: &std::path::Path) -> TrustRoot {
    use gesta_store::sqlite::{Options, SqliteStore};
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, Options::default()).unwrap());
    write(&store)
}

pub(crate) async fn fill(store: &Arc<dyn Store>) -> TrustRoot {
    let cast = Cast::new(3);
    let mut dice = Dice::new(7);

    let mut job = cast.begin_job(PARKED).unwrap();
    for (act, step) in [(Act::Escalate, "fetch"), (Act::Wait, "pause")] {
        let offer = Offer { act, on: Scope::Step(step.parse().unwrap()) };
        cast.push(&mut job, &offer, EPOCH.plus(10), &mut dice).unwrap();
    }
    append(store, job).await;

    let blob = store.put_blob(b"{\"large\":\"input\"}").await.unwrap();
    let mut mandate = cast.mandate(SESSION).unwrap();
    mandate.input = Content::Blob(blob);
    let root = cast.root(Purpose::Session(mandate)).unwrap();
    let mut session = State::new(SESSION).admit();
    session.push(EPOCH, Author::Principal(sample::person().unwrap()), root).unwrap();
    let claim = Body::Attempt(Box::new(Attempt {
        died: None,
        environment: gesta_core::sample::environment(),
        note: UNSEEN.to_owned(),
        restored: None,
    }));
    let by = sample::author(session.state(), Act::Attempt).unwrap();
    session.push(EPOCH, by, claim).unwrap();
    let mut now = EPOCH;
    for _ in 0..60 {
        now = now.plus(dice.below(400));
        let mut offers = session.state().next(now);
        // Children would have to be here too, and ends would make it short.
        offers.retain(|offer| {
            use Act::{Complete, Delegate, EndCancelled, EndFailed, RequestCancel};
            !matches!(offer.act, Delegate | RequestCancel | Complete | EndFailed | EndCancelled)
        });
        let offer = dice.pick(&offers).unwrap().clone();
        cast.push(&mut session, &offer, now, &mut dice).unwrap();
    }
    append(store, session).await;
    cast.trust_root()
}

async fn append(store: &Arc<dyn Store>, admission: Admission) {
    let (admitted, _) = admission.finish().unwrap();
    store.append(admitted).await.unwrap();
}
