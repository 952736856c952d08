//! Limits that hold across workers: how many calls each may have under way at once.
//!
//! A worker holds a share of a limit and uses it without asking. Shares never add up to more than
//! the limit. Each ends by itself at a time that leaves room for the last call made under it, so the
//! share of a dead worker comes back. Who waits goes before who holds, and who has held for longest
//! gives way first.
//!
//! Workers say with their heartbeats what they take each limit to be. The smallest that a live worker
//! has declared binds all: where their settings differ, the strictest hold.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use gesta_core::ids::WorkerId;
use gesta_core::time::UnixMs;

/// What a worker asks of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ration {
    /// The most calls at once, of all workers together.
    pub limit: u32,
    /// How many it has under way.
    pub using: u32,
    /// How many it would like to have under way, those included.
    pub wanted: u32,
    /// How long its share counts without being asked for again.
    pub ttl_ms: u64,
}

impl Ration {
    /// The same, within what a live worker has declared.
    pub(crate) fn within(self, declared: Option<NonZeroU32>) -> Self {
        let limit = declared.map_or(self.limit, |declared| self.limit.min(declared.get()));
        Self { limit, ..self }
    }
}

/// Of each limit the smallest that any of these has declared.
pub(crate) fn smallest<'a>(
    declared: impl IntoIterator<Item = (&'a str, NonZeroU32)>,
) -> BTreeMap<String, NonZeroU32> {
    let mut smallest: BTreeMap<String, NonZeroU32> = BTreeMap::new();
    for (name, limit) in declared {
        smallest
            .entry(name.to_owned())
            .and_modify(|least| *least = limit.min(*least))
            .or_insert(limit);
    }
    smallest
}

/// Declared limits in one text, a line each. No name holds a line's end.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn joined(limits: &BTreeMap<String, NonZeroU32>) -> String {
    let lines: Vec<String> = limits.iter().map(|(name, limit)| format!("{limit} {name}")).collect();
    lines.join("\n")
}

/// The declared limits in a text.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn split(text: &str) -> Option<Vec<(&str, NonZeroU32)>> {
    let parts = text.lines().map(|line| line.split_once(' '));
    parts.map(|parts| parts.and_then(|(limit, name)| Some((name, limit.parse().ok()?)))).collect()
}

/// A worker's share of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) held: u32,
    pub(crate) wanted: u32,
    /// When it began to hold something, or to wait.
    pub(crate) since: UnixMs,
    pub(crate) until: UnixMs,
}

/// Gives a worker its share, and says how many calls it may have under way. Fewer than it has: it
/// must not begin another until some have ended.
pub(crate) fn share(
    shares: &mut BTreeMap<WorkerId, Share>,
    worker: &WorkerId,
    ask: Ration,
    now: UnixMs,
) -> u32 {
    let Ration { limit, using, wanted, ttl_ms } = ask;
    let wanted = wanted.max(using);
    shares.retain(|holder, share| share.until >= now || holder == worker);
    if wanted == 0 {
        shares.remove(worker);
        return 0;
    }
    let (held, since) = shares.get(worker).map_or((0, now), |share| (share.held, share.since));
    let since = if using == 0 && held > 0 { now } else { since };
    let mine = Share { held: using, wanted, since, until: now.plus(ttl_ms) };
    shares.insert(worker.clone(), mine);

    let turns = turns(shares, limit);
    let sum = |count: &dyn Fn(&Turn) -> u32| turns.iter().map(count).fold(0, u32::saturating_add);
    let place = turns.iter().position(|turn| turn.worker == *worker).unwrap_or(0);
    let mine = turns.get(place).map_or(0, |turn| turn.due);
    let others = sum(&|turn| if turn.worker == *worker { 0 } else { turn.held.max(turn.due) });
    let most = mine.max(limit.saturating_sub(others));
    let free = limit.saturating_sub(sum(&|turn| turn.held));
    let unmet = |turn: &Turn| turn.due.saturating_sub(turn.held);
    let before_me = turns.iter().take(place).map(unmet).fold(0, u32::saturating_add);
    let all = sum(&unmet).saturating_sub(mine.saturating_sub(using));
    let more = mine.saturating_sub(using).min(free.saturating_sub(before_me));
    let more = more.max(free.saturating_sub(all)).min(wanted - using);
    let granted = if using > most { most } else { using + more };
    if let Some(share) = shares.get_mut(worker) {
        share.held = granted.max(using);
        if held == 0 && share.held > 0 {
            share.since = now;
        }
    }
    granted
}

struct Turn {
    worker: WorkerId,
    held: u32,
    due: u32,
}

/// Whose turn it is, and what each is due: an equal part, and one more of what is left over for those
/// whose turn comes first.
fn turns(shares: &BTreeMap<WorkerId, Share>, limit: u32) -> Vec<Turn> {
    let mut turns: Vec<(&WorkerId, &Share)> = shares.iter().collect();
    turns.sort_by(|(a, left), (b, right)| {
        let waits = |share: &Share| share.held == 0;
        waits(right).cmp(&waits(left)).then_with(|| {
            let older = left.since.cmp(&right.since).then_with(|| a.cmp(b));
            if waits(left) { older } else { older.reverse() }
        })
    });
    let count = u32::try_from(turns.len()).unwrap_or(u32::MAX).max(1);
    let (part, over) = (limit / count, limit % count);
    (0..)
        .zip(turns)
        .map(|(turn, (worker, share))| {
            let part = part + u32::from(turn < over);
            let due = part.min(share.wanted.max(share.held));
            Turn { worker: worker.clone(), held: share.held, due }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u32) -> WorkerId {
        format!("w{number}").parse().unwrap()
    }

    /// Workers that always want more each get their turn, and shares never add up to more than the
    /// limit.
    #[test]
    fn everyone_gets_a_turn() {
        for (limit, workers) in [(1, 2), (1, 5), (2, 3), (3, 2), (4, 4), (7, 3)] {
            let mut shares = BTreeMap::new();
            let mut using = vec![0_u32; workers];
            let mut turns = vec![0_u32; workers];
            for moment in 0..600_u64 {
                for (number, using) in using.iter_mut().enumerate() {
                    // A call ends.
                    *using = using.saturating_sub(u32::from(moment % 3 == 0));
                    let me = worker(u32::try_from(number).unwrap());
                    let ask = Ration { limit, using: *using, wanted: 9, ttl_ms: 1000 };
                    let granted = share(&mut shares, &me, ask, UnixMs(moment));
                    turns[number] += granted.saturating_sub(*using);
                    *using = granted.max(*using);
                    let held: u32 = shares.values().map(|share| share.held).sum();
                    assert!(held <= limit, "{held} of {limit}");
                }
            }
            let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
            assert!(*least > 20 && least * 3 >= *most, "{limit} {workers}: {turns:?}");
        }
    }

    #[test]
    fn what_is_not_wanted_goes_to_others_and_the_dead_are_forgotten() {
        let mut shares = BTreeMap::new();
        let ask = |using, wanted| Ration { limit: 4, using, wanted, ttl_ms: 100 };
        assert_eq!(share(&mut shares, &worker(1), ask(0, 1), UnixMs(0)), 1);
        assert_eq!(share(&mut shares, &worker(2), ask(0, 9), UnixMs(0)), 3);
        assert_eq!(share(&mut shares, &worker(1), ask(1, 3), UnixMs(1)), 1, "none is left");
        assert_eq!(
            share(&mut shares, &worker(2), ask(3, 9), UnixMs(2)),
            2,
            "one must be given back"
        );
        assert_eq!(share(&mut shares, &worker(2), ask(2, 9), UnixMs(3)), 2);
        assert_eq!(share(&mut shares, &worker(1), ask(1, 3), UnixMs(4)), 2);
        assert_eq!(share(&mut shares, &worker(1), ask(0, 0), UnixMs(5)), 0);
        assert!(!shares.contains_key(&worker(1)));
        assert_eq!(share(&mut shares, &worker(3), ask(0, 4), UnixMs(50)), 2);
        assert_eq!(share(&mut shares, &worker(3), ask(2, 4), UnixMs(104)), 4, "the other is dead");
    }
}
