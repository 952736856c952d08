//! Recorded time: milliseconds since the Unix epoch. No clock is read here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// The last moment that canonical JSON can tell.
    pub const LAST: Self = Self((1 << 53) - 1);

    /// This moment and `ms` later.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

impl fmt::Display for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A span of time with both ends inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The first moment of validity.
    pub not_before: UnixMs,
    /// The last moment of validity.
    pub not_after: UnixMs,
}

impl Window {
    /// Whether `at` lies inside.
    pub fn contains(&self, at: UnixMs) -> bool {
        self.not_before <= at && at <= self.not_after
    }

    /// Whether `other` lies wholly inside.
    pub fn covers(&self, other: &Self) -> bool {
        self.not_before <= other.not_before && other.not_after <= self.not_after
    }
}
