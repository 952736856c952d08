//! The outbox: notices that wait to be delivered.
//!
//! A notice is written in the transaction of what it tells of, so none is lost. One worker at a time
//! has it in hand; when that one dies the next delivers it again, under the same id.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::digest::Digest;
use gesta_core::ids::WorkerId;
use gesta_core::projection::Notice;
use gesta_core::time::UnixMs;

/// A notice that nobody has tried to deliver for so long is forgotten: nobody wants it.
pub(crate) const WANTED_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// A notice in the outbox, and how its delivery stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeRow {
    /// The notice.
    pub notice: Notice,
    /// How often it was tried.
    pub tries: u32,
    /// Who has it already, by name.
    pub reached: BTreeSet<String>,
    /// Why it could not be delivered the last time.
    pub error: Option<String>,
    /// Whether it is tried no more unless somebody asks for that.
    pub failed: bool,
}

/// What became of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// Everybody has it: it leaves the outbox.
    Delivered,
    /// Somebody does not.
    Lacking {
        /// Who has it, by name.
        reached: BTreeSet<String>,
        /// Why not everybody.
        error: String,
        /// When to try again; none when it is given up.
        again_in_ms: Option<u64>,
    },
}

/// A row as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    row: NoticeRow,
    due_at: UnixMs,
    owner: Option<(WorkerId, UnixMs)>,
}

/// The outbox of the memory store.
#[derive(Default)]
pub(crate) struct Outbox(BTreeMap<Digest, Kept>);

impl Outbox {
    pub(crate) fn put(&mut self, notice: &Notice) {
        let row = NoticeRow {
            notice: notice.clone(),
            tries: 0,
            reached: BTreeSet::new(),
            error: None,
            failed: false,
        };
        let kept = Kept { row, due_at: UnixMs(0), owner: None };
        self.0.entry(notice.id).or_insert(kept);
    }

    fn in_order(&self) -> Vec<Digest> {
        let mut ids: Vec<_> = self.0.iter().map(|(id, kept)| (kept.row.notice.at, *id)).collect();
        ids.sort();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    pub(crate) fn list(&self, max: usize) -> Vec<NoticeRow> {
        let rows = self.in_order().into_iter().filter_map(|id| self.0.get(&id));
        rows.map(|kept| kept.row.clone()).take(max).collect()
    }

    pub(crate) fn claim(
        &mut self,
        worker: &WorkerId,
        max: usize,
        lease_ms: u64,
        now: UnixMs,
    ) -> Vec<NoticeRow> {
        self.0.retain(|_, kept| kept.row.tries > 0 || kept.row.notice.at.plus(WANTED_MS) >= now);
        let mut claimed = Vec::new();
        for id in self.in_order() {
            let Some(kept) = self.0.get_mut(&id) else { continue };
            let free = kept.owner.as_ref().is_none_or(|(_, until)| *until < now);
            if claimed.len() < max && free && !kept.row.failed && kept.due_at <= now {
                kept.owner = Some((worker.clone(), now.plus(lease_ms)));
                claimed.push(kept.row.clone());
            }
        }
        claimed
    }

    pub(crate) fn settle(&mut self, worker: &WorkerId, id: Digest, tried: &Tried, now: UnixMs) {
        let Some(kept) = self.0.get_mut(&id) else { return };
        if kept.owner.as_ref().is_none_or(|(owner, _)| owner != worker) {
            return;
        }
        match tried {
            Tried::Delivered => {
                self.0.remove(&id);
            }
            Tried::Lacking { reached, error, again_in_ms } => {
                kept.owner = None;
                kept.due_at = now.plus(again_in_ms.unwrap_or(0));
                kept.row.tries += 1;
                kept.row.reached = reached.clone();
                kept.row.error = Some(error.clone());
                kept.row.failed = again_in_ms.is_none();
            }
        }
    }

    pub(crate) fn retry(&mut self) -> u64 {
        let failed = self.0.values_mut().filter(|kept| kept.row.failed);
        failed.map(|kept| (kept.row.failed, kept.due_at) = (false, UnixMs(0))).count() as u64
    }
}
