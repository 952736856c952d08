//! What a worker leaves alone for a while, claimed, so that nobody turns in circles: what could not be driven, what had
//! nothing to do although it looked so, and what is held. It is looked at again when its time is over, and at once when
//! something was added to it or the registry has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use tokio::time::Instant;

use crate::desk::Shared;

/// How long it is left alone: this, doubled up to a few minutes;
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(300);
/// and up to that while it is held: a tool may be as it was again.
const HELD_MOST: Duration = Duration::from_secs(30);

/// What is left alone.
#[derive(Default)]
pub(crate) struct Alone {
    all: BTreeMap<TrajectoryId, Left>,
    registry: Option<Head>,
}

struct Left {
    until: Instant,
    pause: Duration,
    /// Where it stood, if that could be told.
    head: Option<Head>,
}

impl Alone {
    /// Leaves one alone that stands there, for longer than the last time.
    pub(crate) fn leave(&mut self, trajectory: TrajectoryId, head: Option<Head>, held: bool) {
        let most = if held { HELD_MOST } else { MOST };
        let before = self.all.get(&trajectory).map(|left| left.pause);
        let pause = before.map_or(FIRST, |pause| (pause * 2).min(most));
        self.all.insert(trajectory, Left { until: Instant::now() + pause, pause, head });
    }

    /// One was driven and goes on.
    pub(crate) fn forget(&mut self, trajectory: TrajectoryId) {
        self.all.remove(&trajectory);
    }

    /// What is left alone.
    pub(crate) fn all(&self) -> Vec<TrajectoryId> {
        self.all.keys().copied().collect()
    }

    /// What was left alone for long enough, or must be looked at. It stays in the list, so that the next pause is
    /// longer; what is driven again meanwhile is not to be given back.
    pub(crate) fn due(&mut self, held: &BTreeSet<TrajectoryId>) -> Vec<TrajectoryId> {
        let now = Instant::now();
        let mut due = Vec::new();
        let over = self.all.iter_mut().filter(|(id, it)| it.until <= now && !held.contains(id));
        for (trajectory, left) in over {
            left.until = now + MOST * 2;
            due.push(*trajectory);
        }
        due
    }

    /// Something was added to it: it is to be looked at, unless it is to be given back anyway.
    pub(crate) fn stir(&mut self, trajectory: &TrajectoryId) {
        let now = Instant::now();
        if let Some(left) = self.all.get_mut(trajectory).filter(|it| it.until <= now + it.pause) {
            left.until = now;
        }
    }

    /// The registry stands there now. Where it has moved, everything is to be looked at.
    fn registry(&mut self, head: Option<Head>) {
        if std::mem::replace(&mut self.registry, head) != head {
            let all: Vec<TrajectoryId> = self.all.keys().copied().collect();
            all.iter().for_each(|trajectory| self.stir(trajectory));
        }
    }
}

/// Looks what has changed: the registry, and, where nothing is heard of others, every row.
pub(crate) async fn look(shared: &Shared, rows_too: bool) {
    shared.alone().registry(shared.registry_head().map(|(_, head)| head));
    if !rows_too {
        return;
    }
    let stood: Vec<(TrajectoryId, Head)> = {
        let alone = shared.alone();
        alone.all.iter().filter_map(|(id, left)| Some((*id, left.head?))).collect()
    };
    for (trajectory, head) in stood {
        let row = shared.store.trajectory(trajectory).await;
        if row.is_ok_and(|row| row.is_none_or(|row| row.head != head)) {
            shared.alone().stir(&trajectory);
        }
    }
}
