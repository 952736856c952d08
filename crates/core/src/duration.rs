//! Lengths of time as people write them: `500ms`, `30s`, `5m`, `24h`, `7d`, or a number of
//! milliseconds. One spelling for settings, manifests and plans.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

/// A length of time in milliseconds, at most ten years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct DurationMs(u64);

/// A length of time that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    /// It is no number with a unit.
    #[error(
        "`{0}` is not a length of time; write a whole number and a unit, as in `500ms`, `30s`, `5m`, `24h` or `7d`"
    )]
    Spelling(String),
    /// Nobody waits that long.
    #[error("`{0}` is longer than ten years")]
    TooLong(String),
}

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const LONGEST_MS: u64 = 3_650 * 86_400_000;

impl DurationMs {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A length of time in milliseconds; beyond ten years, ten years.
    pub const fn from_ms(ms: u64) -> Self {
        Self(if ms > LONGEST_MS { LONGEST_MS } else { ms })
    }

    /// In milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// As the standard library's type.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    fn checked(ms: u64, text: &str) -> Result<Self, BadDuration> {
        if ms > LONGEST_MS { Err(BadDuration::TooLong(text.to_owned())) } else { Ok(Self(ms)) }
    }
}

impl FromStr for DurationMs {
    type Err = BadDuration;

    fn from_str(text: &str) -> Result<Self, BadDuration> {
        let spelling = || BadDuration::Spelling(text.to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits).ok_or_else(spelling)?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(spelling)?;
        if number.is_empty() {
            return Err(spelling());
        }
        // All digits, so the only way to fail is to be too large.
        let ms = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
        Self::checked(ms.unwrap_or(u64::MAX), text)
    }
}

/// In the largest unit that tells it exactly.
impl fmt::Display for DurationMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact =
            UNITS.iter().rev().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        let (unit, factor) = exact.copied().unwrap_or(("ms", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl<'de> Deserialize<'de> for DurationMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = DurationMs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a length of time (`500ms`, `30s`, `5m`, `24h`, `7d`) or a number of milliseconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationMs, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, ms: u64) -> Result<DurationMs, E> {
                DurationMs::checked(ms, &ms.to_string()).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, ms: i64) -> Result<DurationMs, E> {
                match u64::try_from(ms) {
                    Ok(ms) => self.visit_u64(ms),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(ms), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, ms) in [
            ("0ms", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("24h", 86_400_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(text.parse::<DurationMs>().unwrap().ms(), ms, "{text}");
        }
        assert_eq!(serde_json::from_str::<DurationMs>("1500").unwrap().ms(), 1_500);
        assert_eq!(serde_json::from_str::<DurationMs>("\"2s\"").unwrap().ms(), 2_000);
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["", "s", "5", "-1s", "1.5s", "5 s", "5S", "5min", "1h30m", "٣s"] {
            assert!(matches!(text.parse::<DurationMs>(), Err(BadDuration::Spelling(_))), "{text}");
        }
        for text in ["3651d", "99999999999999999999h"] {
            assert!(matches!(text.parse::<DurationMs>(), Err(BadDuration::TooLong(_))), "{text}");
        }
        for json in ["-1", "1.5", "true", "null"] {
            assert!(serde_json::from_str::<DurationMs>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn it_is_shown_in_the_largest_exact_unit() {
        for text in ["0ms", "1500ms", "90s", "5m", "1h", "1d"] {
            assert_eq!(text.parse::<DurationMs>().unwrap().to_string(), text);
        }
    }
}
