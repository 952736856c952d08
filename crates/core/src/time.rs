//! Recorded time: milliseconds since the Unix epoch. No clock is read here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

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

    /// The day that it belongs to, in UTC.
    pub const fn day(self) -> Day {
        let days = self.0 / Day::MS;
        // The last moment that JSON can tell is far before the last day that fits.
        Day(if days > u32::MAX as u64 { u32::MAX } else { days as u32 })
    }
}

impl fmt::Display for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A day in UTC, counted from 1970-01-01. Shown as people write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u32);

impl Day {
    /// How long a day lasts.
    pub const MS: u64 = 24 * 60 * 60 * 1000;
    /// From the first of March of the year 0.
    const TO_YEAR_0: u64 = 719_468;

    /// Its first moment.
    pub const fn begins(self) -> UnixMs {
        UnixMs(self.0 as u64 * Self::MS)
    }
}

impl fmt::Display for Day {
    /// `2026-11-16`. Years are counted from March, so that the odd day of a leap year is the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAYS_400: u64 = 146_097;
        let days = u64::from(self.0) + Self::TO_YEAR_0;
        let (era, of_era) = (days / DAYS_400, days % DAYS_400);
        let leaps = of_era / 1_460 + of_era / 146_096;
        let year = (of_era + of_era / 36_524 - leaps) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Day {
    type Err = NotADay;

    /// What [`fmt::Display`] writes, and nothing else.
    fn from_str(text: &str) -> Result<Self, NotADay> {
        let mut parts = text.split('-').map(|part| part.parse::<u64>().ok());
        let (
            Some(Some(year @ 1970..=9999)),
            Some(Some(month @ 1..=12)),
            Some(Some(day @ 1..=31)),
            None,
        ) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotADay);
        };
        let (year, from_march) = (year - u64::from(month <= 2), (month + 9) % 12);
        let of_year = (153 * from_march + 2) / 5 + day - 1;
        let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - Self::TO_YEAR_0;
        let day = u32::try_from(days).map(Self).map_err(|_| NotADay)?;
        // The 30th of February has a number, and it is another day's.
        if day.to_string() == text { Ok(day) } else { Err(NotADay) }
    }
}

/// A text that names no day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a day such as `2026-11-16`")]
pub struct NotADay;

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_read_as_people_write_them() {
        let shown = |ms: u64| UnixMs(ms).day().to_string();
        assert_eq!(shown(0), "1970-01-01");
        assert_eq!(shown(Day::MS - 1), "1970-01-01");
        assert_eq!(shown(951_782_400_000), "2000-02-29");
        assert_eq!(shown(1_794_787_199_999), "2026-11-15");
        assert_eq!(shown(1_794_787_200_000), "2026-11-16");
        assert_eq!(shown(4_107_542_400_000), "2100-03-01");
        assert_eq!(UnixMs(1_794_787_200_250).day().begins(), UnixMs(1_794_787_200_000));
    }

    #[test]
    fn days_follow_each_other() {
        let mut before = String::new();
        for day in 0..80_000 {
            let shown = Day(day).to_string();
            assert!(shown > before, "{shown} after {before}");
            assert_eq!(shown.parse(), Ok(Day(day)));
            before = shown;
        }
        for text in ["2026-02-30", "2026-2-03", "2026-13-01", "2026-11", "x-1-1", "1969-12-31"] {
            assert_eq!(text.parse::<Day>(), Err(NotADay), "{text}");
        }
    }
}
