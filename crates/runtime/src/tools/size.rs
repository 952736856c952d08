//! Amounts of bytes as people write them: `64KiB`, `1MiB`, or a number of bytes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

const UNITS: [(&str, usize); 3] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20)];
const EXPECTED: &str =
    "a size from 1 byte to 16 MiB (`512B`, `64KiB`, `1MiB`) or a number of bytes";
/// No larger document is taken as a result. What is larger belongs into a file that the tool names.
const LARGEST: usize = 16 << 20;

/// How many bytes, from 1 to 16 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SizeBytes(usize);

impl SizeBytes {
    /// 1 MiB.
    pub const MIB: Self = Self(1 << 20);

    /// So many times as much.
    pub(super) const fn times(self, times: usize) -> Self {
        Self(self.0 * times)
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }

    fn new(bytes: usize) -> Option<Self> {
        (1..=LARGEST).contains(&bytes).then_some(Self(bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        number.parse::<usize>().ok()?.checked_mul(*factor).and_then(Self::new)
    }
}

impl fmt::Display for SizeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().rev().find(|(_, factor)| self.0.is_multiple_of(*factor));
        let (unit, factor) = exact.copied().unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl<'de> Deserialize<'de> for SizeBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = SizeBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SizeBytes, E> {
                SizeBytes::parse(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<SizeBytes, E> {
                let size = usize::try_from(bytes).ok().and_then(SizeBytes::new);
                size.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(bytes), &self))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<SizeBytes, E> {
                let size = usize::try_from(bytes).ok().and_then(SizeBytes::new);
                size.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(bytes), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for text in ["512B", "64KiB", "1MiB", "16MiB"] {
            assert_eq!(SizeBytes::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(serde_json::from_str::<SizeBytes>("1536").unwrap().bytes(), 1536);
        for text in ["", "1", "0B", "1MB", "1 MiB", "-1B", "17MiB", "99999999999999999999MiB"] {
            assert_eq!(SizeBytes::parse(text), None, "{text}");
        }
    }
}
