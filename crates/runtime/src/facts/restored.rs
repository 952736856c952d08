//! What is remembered of going on in a restored copy.

use std::sync::Arc;

use gesta_core::body::Restored;
use gesta_core::entry::{Author, Entry};
use gesta_core::ids::StepId;
use gesta_core::time::UnixMs;
use rpds::RedBlackTreeSetSync;

use super::Facts;

impl Facts {
    /// That the trajectory goes on in a restored copy.
    pub fn restored(&self) -> Option<&Restored> {
        self.restored.as_deref()
    }

    /// Whether it has been found out since what became of a step's call before.
    pub(crate) fn asked_since_restore(&self, step: &StepId) -> bool {
        self.since_restore.contains(step)
    }

    /// An attempt goes on in a copy. What an earlier copy did not know is not known now either.
    pub(super) fn goes_on(&mut self, restored: &Restored) {
        let before = self.restored().map_or(restored.copied_at, |before| before.copied_at);
        let copied_at = restored.copied_at.min(before);
        self.restored = Some(Arc::new(Restored { copied_at, ..restored.clone() }));
        self.since_restore = RedBlackTreeSetSync::default();
    }

    /// When a call that begins at this time may have been sent first.
    pub(super) fn first_sent(&mut self, step: &StepId, at: UnixMs) -> UnixMs {
        let Some(restored) = &self.restored else { return at };
        if self.since_restore.contains(step) {
            return at;
        }
        let first = restored.copied_at.min(at);
        self.since_restore.insert_mut(step.clone());
        first
    }

    /// A person has said what became of a call: that counts for whatever was sent before.
    pub(super) fn vouched(&mut self, step: &StepId, entry: &Entry) {
        if self.restored.is_some() && matches!(entry.payload().by, Author::Principal(_)) {
            self.since_restore.insert_mut(step.clone());
        }
    }
}
