//! Amounts that many calls change at once, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

use gesta_core::amounts::Amounts;

/// Amounts that many change at once, each dimension by itself.
#[derive(Default)]
pub(super) struct Cells([AtomicU64; 4]);

impl Cells {
    pub(super) fn get(&self) -> Amounts {
        Amounts::of(self.0.each_ref().map(|cell| cell.load(Ordering::SeqCst)))
    }

    pub(super) fn set(&self, amounts: Amounts) {
        for (cell, amount) in self.0.iter().zip(amounts.values()) {
            cell.store(amount, Ordering::SeqCst);
        }
    }

    pub(super) fn add(&self, amounts: Amounts) {
        for (cell, amount) in self.0.iter().zip(amounts.values()) {
            cell.fetch_add(amount, Ordering::SeqCst);
        }
    }

    /// Takes all of it, or nothing.
    pub(super) fn take(&self, amounts: Amounts) -> bool {
        let got = self.take_up_to(amounts);
        if got != amounts {
            self.add(got);
        }
        got == amounts
    }

    /// Takes as much of it as there is, in each dimension.
    pub(super) fn take_up_to(&self, amounts: Amounts) -> Amounts {
        let mut got = [0; 4];
        for ((cell, amount), got) in self.0.iter().zip(amounts.values()).zip(&mut got) {
            let less = |there: u64| Some(there.saturating_sub(amount));
            // It always changes: the closure never declines.
            let before = cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
            *got = before.unwrap_or_default().min(amount);
        }
        Amounts::of(got)
    }

    pub(super) fn take_all(&self) -> Amounts {
        Amounts::of(self.0.each_ref().map(|cell| cell.swap(0, Ordering::SeqCst)))
    }
}
