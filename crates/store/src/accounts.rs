//! Accounts: what a tenant may use in a day, and what all trajectories below a standing writ may use,
//! drawn in slices.
//!
//! A holder draws an amount and uses it without asking: of a tenant's account a worker does, of a
//! writ's account a trajectory. What all holders have drawn never adds up to more than the limit, unless
//! calls cost more than was set aside for them. A slice ends by no lease and no clock: what its holder
//! does not give back counts as used, so a holder that died, or that everybody takes for dead, can never
//! make anybody exceed a limit. Slices are the smaller the less is left.

use std::collections::BTreeMap;

use gesta_core::amounts::{Amounts, Budget, Span};
use gesta_core::ids::Tenant;
use gesta_core::projection::Notice;
use gesta_core::time::{Day, UnixMs};

/// A slice is at most this part of what is left, unless a single call needs more.
const PART: u64 = 16;
/// For how long after its last word a holder is believed to be able to give something back.
const ALIVE_MS: u64 = 5_000;
/// How many silent holders are named at most.
const SILENT_MOST: usize = 16;

/// Whose account, and of what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// Whose.
    pub tenant: Tenant,
    /// Of what.
    pub span: Span,
}

impl Account {
    /// The day, if it is the account of one.
    pub fn day(&self) -> Option<Day> {
        match self.span {
            Span::Day(day) => Some(day),
            Span::Writ(_) => None,
        }
    }

    /// The day and the writ, as databases hold them.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn columns(&self) -> (u32, String) {
        match self.span {
            Span::Day(day) => (day.0, String::new()),
            Span::Writ(writ) => (0, writ.to_string()),
        }
    }
}

/// What a holder tells and asks. Everything is absolute, so that the same may be sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Its number, from 1. What was sent before a later one counts no more, whenever it arrives.
    pub seq: u64,
    /// What may be used in all.
    pub limit: Budget,
    /// What the holder goes on to rely on: what it has used, set aside, and would like to keep.
    pub keep: Amounts,
    /// What it has used in all.
    pub used: Amounts,
    /// What of `keep` it has no use for at present.
    pub idle: Amounts,
    /// What it needs beyond `keep`, at least; nothing when it only tells.
    pub need: Amounts,
    /// What it would like beyond `keep`.
    pub want: Amounts,
    /// Thresholds to warn at, in percent of the limit.
    pub warn_at: Vec<u8>,
}

/// What a holder has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// What it has drawn in all: at least `keep`, and `need` beyond it if that was there.
    pub drawn: Amounts,
    /// What nobody has drawn, in limited dimensions.
    pub left: Amounts,
    /// Whether what it needs would be there if others gave back what they have no use for.
    pub comes_back: bool,
    /// A threshold, in percent, that was reached just now and never before.
    pub reached: Option<u8>,
    /// The highest threshold that was ever reached, in percent; 0 when none was.
    pub stands_at: u8,
    /// What all holders have used, as far as they have told.
    pub used: Amounts,
    /// Where what it needs is not there: some of those who have told nothing for a while and hold more
    /// than they have used.
    pub silent: Vec<String>,
}

/// An account, with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    /// Which.
    pub account: Account,
    /// What was used, as far as holders have told.
    pub used: Amounts,
    /// What was drawn, that included.
    pub drawn: Amounts,
    /// The highest threshold that was reached, in percent; 0 when none was.
    pub reached: u8,
}

/// A holder's slice, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) seq: u64,
    pub(crate) drawn: Amounts,
    pub(crate) used: Amounts,
    pub(crate) idle: Amounts,
    /// When the holder last told of itself.
    pub(crate) told_at: UnixMs,
}

impl Slice {
    /// Whether its holder has something that it has not used.
    fn holds(&self) -> bool {
        self.drawn != self.used
    }
}

/// An account: what all its holders have, the highest threshold that was reached, and the slices that
/// matter to a draw. Those are the holder's own, and others that hold something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Book {
    pub(crate) drawn: Amounts,
    pub(crate) used: Amounts,
    pub(crate) reached: u8,
    pub(crate) slices: BTreeMap<String, Slice>,
}

impl Book {
    /// Gives a holder its slice, inside the account's lock.
    pub(crate) fn draw(&mut self, holder: &str, ask: &Draw, now: UnixMs) -> Drawn {
        let mine = self.slices.get(holder).copied();
        let known = mine.filter(|slice| slice.seq >= ask.seq);
        let mine = mine.unwrap_or_default();
        let keep = known.map_or(ask.keep, |slice| slice.drawn);
        let taken = self.drawn.minus(mine.drawn);
        let left = left(&ask.limit, taken.plus(keep));
        let lacks = known.is_none() && !fits(&ask.limit, ask.need, left);
        let others = || self.slices.iter().filter(|(of, slice)| *of != holder && slice.holds());
        let alive = |slice: &Slice| slice.told_at.plus(ALIVE_MS) >= now;
        let spare = others()
            .filter(|(_, slice)| alive(slice))
            .fold(left, |sum, (_, slice)| sum.plus(slice.idle));
        let comes_back = lacks && fits(&ask.limit, ask.need, spare);
        let silent = others().filter(|(_, slice)| lacks && !alive(slice)).map(|(of, _)| of.clone());
        let silent = silent.take(SILENT_MOST).collect();
        if known.is_some() {
            // The same again, or an older one that comes late.
            let (stands_at, used) = (self.reached, self.used);
            return Drawn { drawn: keep, left, comes_back, reached: None, stands_at, used, silent };
        }
        let more = more(ask, left);
        // What is drawn ahead is not needed yet.
        let idle = ask.idle.plus(more.minus(ask.need));
        let (drawn, used) = (ask.keep.plus(more), ask.used);
        let slice = Slice { seq: ask.seq, drawn, used, idle, told_at: now };
        self.slices.insert(holder.to_owned(), slice);
        self.drawn = taken.plus(drawn);
        self.used = self.used.minus(mine.used).plus(used);
        let reached = self.cross(ask);
        let (left, stands_at, used) = (left.minus(more), self.reached, self.used);
        Drawn { drawn, left, comes_back, reached, stands_at, used, silent }
    }

    /// The highest threshold that is reached now and was not before.
    fn cross(&mut self, ask: &Draw) -> Option<u8> {
        let highest = ask.limit.reached(&self.used, &ask.warn_at)?;
        (highest > self.reached).then(|| {
            self.reached = highest;
            highest
        })
    }

    /// What somebody is to be told of a draw: that a threshold was reached.
    pub(crate) fn notice(
        &self,
        account: &Account,
        ask: &Draw,
        drawn: &Drawn,
        now: UnixMs,
    ) -> Option<Notice> {
        let reached = drawn.reached?;
        let of = (&account.tenant, account.span);
        Some(Notice::of_budget(of, reached, &ask.limit, self.used, now))
    }

    /// The account in one row.
    pub(crate) fn row(&self, account: Account) -> AccountRow {
        let Self { drawn, used, reached, .. } = *self;
        AccountRow { account, used, drawn, reached }
    }
}

/// What a limit leaves, in limited dimensions.
fn left(limit: &Budget, taken: Amounts) -> Amounts {
    limit.carved().minus(taken)
}

fn fits(limit: &Budget, need: Amounts, left: Amounts) -> bool {
    limit.where_limited(left).exceeded_by(&need).is_none()
}

/// What a holder gets beyond what it keeps: nothing, or at least what it needs in every dimension.
fn more(ask: &Draw, left: Amounts) -> Amounts {
    if ask.need == Amounts::default() || !fits(&ask.limit, ask.need, left) {
        return Amounts::default();
    }
    let mut more = [0; 4];
    let limits = ask.limit.dimensions().map(|(_, limit)| limit);
    let (need, want, left) = (ask.need.values(), ask.want.values(), left.values());
    let dimensions = limits.into_iter().zip(need).zip(want.into_iter().zip(left));
    for (more, ((limit, need), (want, left))) in more.iter_mut().zip(dimensions) {
        if limit.is_some() {
            *more = want.min(left / PART).max(need);
        }
    }
    Amounts::of(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = UnixMs(1_000_000);

    fn account() -> Account {
        Account { tenant: "t".parse().unwrap(), span: Span::Day(Day(1)) }
    }

    fn calls(calls: u64) -> Amounts {
        Amounts { calls, ..Amounts::default() }
    }

    fn ask(seq: u64, limit: u64, keep: u64, need: u64, want: u64) -> Draw {
        Draw {
            seq,
            limit: Budget { calls: Some(limit), ..Budget::default() },
            keep: calls(keep),
            need: calls(need),
            want: calls(want),
            ..Draw::default()
        }
    }

    /// Holders that always want more never draw more than there is, together they get all of it, and
    /// the last units come one by one.
    #[test]
    fn slices_shrink_and_add_up_to_the_limit() {
        for (limit, holders) in [(1, 3), (64, 4), (1000, 1), (1000, 7), (5000, 3)] {
            let mut book = Book::default();
            let mut drawn = vec![0; holders];
            let mut sizes = Vec::new();
            for seq in 1..=5000 {
                for (number, drawn) in drawn.iter_mut().enumerate() {
                    let draw = ask(seq, limit, *drawn, 1, 4096);
                    let now = book.draw(&number.to_string(), &draw, NOW).drawn.calls;
                    sizes.extend(Some(now - *drawn).filter(|more| *more > 0));
                    *drawn = now;
                    let row = book.row(account());
                    assert!(row.drawn.calls <= limit, "{row:?}");
                }
            }
            assert_eq!(drawn.iter().sum::<u64>(), limit);
            assert!(sizes.iter().rev().take(16).all(|size| *size == 1), "{sizes:?}");
            assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1]), "{sizes:?}");
        }
    }

    #[test]
    fn what_is_sent_again_changes_nothing_and_what_comes_late_counts_no_more() {
        let mut book = Book::default();
        let first = ask(1, 100, 0, 1, 50);
        assert_eq!(book.draw("a", &first, NOW).drawn, calls(6));
        assert_eq!(book.draw("a", &first, NOW).drawn, calls(6));
        assert_eq!(book.draw("a", &ask(2, 100, 2, 0, 0), NOW).drawn, calls(2), "given back");
        assert_eq!(book.draw("b", &ask(1, 100, 0, 98, 98), NOW).drawn, calls(98));
        let late = book.draw("a", &first, NOW);
        assert_eq!((late.drawn, late.left), (calls(2), calls(0)), "it relies on no more");
    }

    #[test]
    fn a_call_that_cost_more_is_counted_and_nobody_draws_below_nothing() {
        let mut book = Book::default();
        assert_eq!(book.draw("a", &ask(1, 10, 0, 1, 1), NOW).drawn, calls(1));
        let over = book.draw("a", &ask(2, 10, 12, 0, 0), NOW);
        assert_eq!((over.drawn, over.left), (calls(12), calls(0)));
        assert_eq!(book.draw("b", &ask(1, 10, 0, 1, 1), NOW).drawn, calls(0));
    }

    #[test]
    fn who_needs_waits_for_what_a_live_holder_does_not_use() {
        let mut book = Book::default();
        book.draw("a", &Draw { idle: calls(3), ..ask(1, 10, 10, 0, 0) }, NOW);
        let wait = book.draw("b", &ask(1, 10, 0, 2, 2), NOW.plus(10));
        assert!(wait.comes_back && wait.drawn == calls(0));
        assert!(!book.draw("b", &ask(2, 10, 0, 4, 4), NOW.plus(10)).comes_back, "too much");
        assert!(!book.draw("b", &ask(3, 10, 0, 2, 2), NOW.plus(60_000)).comes_back, "it is dead");
    }

    #[test]
    fn who_is_refused_is_told_of_those_who_hold_something_and_are_silent() {
        let mut book = Book::default();
        book.draw("a", &Draw { used: calls(3), ..ask(1, 10, 7, 0, 0) }, NOW);
        book.draw("b", &Draw { used: calls(3), ..ask(1, 10, 3, 0, 0) }, NOW);
        let silent = |book: &mut Book, seq, need, at: UnixMs| {
            book.draw("c", &ask(seq, 10, 0, need, need), at).silent
        };
        assert!(silent(&mut book, 1, 1, NOW).is_empty(), "it has just told");
        assert_eq!(silent(&mut book, 2, 1, NOW.plus(60_000)), ["a"]);
        assert!(silent(&mut book, 3, 0, NOW.plus(60_000)).is_empty(), "nothing lacks");
    }

    #[test]
    fn a_threshold_is_reached_once() {
        let mut book = Book::default();
        let mut told = |seq, used| {
            let warn_at = vec![50, 80, 100];
            let draw = Draw { used: calls(used), warn_at, ..ask(seq, 10, used, 0, 0) };
            book.draw("a", &draw, NOW).reached
        };
        assert_eq!([told(1, 4), told(2, 5), told(3, 6)], [None, Some(50), None]);
        assert_eq!([told(4, 9), told(5, 9), told(6, 10)], [Some(80), None, Some(100)]);
    }

    #[test]
    fn dimensions_without_a_limit_are_drawn_by_nobody() {
        let mut book = Book::default();
        let mut draw = ask(1, 10, 0, 1, 1);
        draw.need.money_micros = 500;
        draw.want.money_micros = 500;
        assert_eq!(book.draw("a", &draw, NOW).drawn, calls(1));
        draw.limit.money_micros = Some(499);
        draw.seq = 2;
        assert_eq!(book.draw("a", &draw, NOW).drawn, calls(0), "all of it, or nothing");
    }
}
