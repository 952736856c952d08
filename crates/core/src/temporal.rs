//! How fast may be called: sliding windows over recorded times, and what follows when one is full.

use serde::{Deserialize, Serialize};

use crate::time::UnixMs;

/// What follows when a window is full, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The step waits until there is room.
    Throttle,
    /// A person is asked.
    Interrupt,
    /// Everything of whoever the window counts, trajectory or principal, is refused until a person lifts it.
    Quarantine,
    /// Everything of the tenant is refused until a person lifts it.
    Close,
}

/// A sliding window: so many calls in such a time, and what follows at the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// So many calls,
    pub calls: u64,
    /// in so many milliseconds;
    pub per_ms: u64,
    /// at the next one, this.
    pub then: Grade,
}

/// Whose calls a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// Those of the trajectory.
    Trajectory,
    /// Those of the principal, on every worker.
    Principal,
}

/// All windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Temporal {
    /// For each principal.
    pub principal: Vec<Rule>,
    /// For each trajectory.
    pub trajectory: Vec<Rule>,
}

/// How full a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// When there is room, if there is none now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_at: Option<UnixMs>,
    /// How many calls were started in it.
    pub in_window: u64,
    /// The window.
    pub rule: Rule,
    /// Whose calls it counts.
    pub whose: Whose,
}

impl Pace {
    /// How full a window is, given when calls were started, in any order. What began exactly as long ago
    /// as the window is wide has left it.
    pub fn of(rule: Rule, whose: Whose, starts: impl Iterator<Item = UnixMs>, now: UnixMs) -> Self {
        let mut inside: Vec<UnixMs> = starts.filter(|at| at.plus(rule.per_ms) > now).collect();
        inside.sort_unstable();
        let in_window = inside.len() as u64;
        let over = in_window.checked_sub(rule.calls).and_then(|over| usize::try_from(over).ok());
        let free_at = over.map(|over| {
            // With no calls allowed at all there never is room; look again when the window has passed.
            inside.get(over).map_or(now, |oldest| *oldest).plus(rule.per_ms)
        });
        Self { free_at, in_window, rule, whose }
    }

    /// Whether the next call is one too many.
    pub fn full(&self) -> bool {
        self.in_window >= self.rule.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(calls: u64, starts: &[u64], now: u64) -> (bool, u64, Option<u64>) {
        let rule = Rule { calls, per_ms: 1000, then: Grade::Throttle };
        let starts = starts.iter().map(|at| UnixMs(*at));
        let pace = Pace::of(rule, Whose::Trajectory, starts, UnixMs(now));
        (pace.full(), pace.in_window, pace.free_at.map(|at| at.0))
    }

    #[test]
    fn windows_slide() {
        assert_eq!(pace(2, &[], 5000), (false, 0, None));
        assert_eq!(pace(2, &[4500], 5000), (false, 1, None));
        assert_eq!(pace(2, &[4500, 4600], 5000), (true, 2, Some(5500)));
        assert_eq!(pace(2, &[4500, 4600], 5499), (true, 2, Some(5500)));
        assert_eq!(pace(2, &[4500, 4600], 5500), (false, 1, None));
        // A burst inside one millisecond is a burst.
        assert_eq!(pace(3, &[5000, 5000, 5000, 5000], 5000), (true, 4, Some(6000)));
        assert_eq!(pace(0, &[], 5000), (true, 0, Some(6000)));
        // Any order: principals have many trajectories.
        assert_eq!(pace(2, &[4900, 4200, 4600], 5000), (true, 3, Some(5600)));
    }
}
