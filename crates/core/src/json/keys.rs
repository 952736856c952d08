//! The order of keys, and what an escaped key spells.
//!
//! Works on keys as they stand in the output. Knows only the escapes that the writer makes.

use std::cmp::Ordering;

/// The order of two escaped keys by the UTF-16 code units of what they spell.
pub(super) fn key_order(a: &[u8], b: &[u8]) -> Ordering {
    for (&x, &y) in a.iter().zip(b) {
        if x == b'\\' || y == b'\\' {
            return Unescape(a).map(utf16_rank).cmp(Unescape(b).map(utf16_rank));
        }
        if x != y {
            return utf16_rank(x).cmp(&utf16_rank(y));
        }
    }
    a.len().cmp(&b.len())
}

/// UTF-8 bytes compare like UTF-16 units, except that U+E000..=U+FFFF (lead bytes EE and EF)
/// come after the surrogate pairs (lead bytes F0 to F4).
fn utf16_rank(byte: u8) -> u8 {
    if matches!(byte, 0xee | 0xef) { byte + 0x10 } else { byte }
}

pub(super) fn unescape(escaped: &[u8]) -> String {
    String::from_utf8_lossy(&Unescape(escaped).collect::<Vec<u8>>()).into_owned()
}

/// The bytes that an escaped string stands for, of the escapes that the writer makes.
struct Unescape<'a>(&'a [u8]);

impl Iterator for Unescape<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match *self.0 {
            [b'\\', b'u', b'0', b'0', high, low, ref rest @ ..] => {
                (hex(high) << 4 | hex(low), rest)
            }
            [b'\\', b'b', ref rest @ ..] => (0x08, rest),
            [b'\\', b't', ref rest @ ..] => (b'\t', rest),
            [b'\\', b'n', ref rest @ ..] => (b'\n', rest),
            [b'\\', b'f', ref rest @ ..] => (0x0c, rest),
            [b'\\', b'r', ref rest @ ..] => (b'\r', rest),
            [b'\\', byte, ref rest @ ..] | [byte, ref rest @ ..] => (byte, rest),
            [] => return None,
        };
        self.0 = rest;
        Some(byte)
    }
}

fn hex(digit: u8) -> u8 {
    char::from(digit).to_digit(16).map_or(0, |digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, writer::Writer};
    use super::*;

    #[test]
    fn keys_are_ordered_by_their_utf16_units() {
        let mut keys =
            ["", "\0", "\n", "\r", "\"", "\"a", "!", "1", "\\", "]", "a", "a\n", "a\"", "a!", "ab"]
                .map(str::to_owned)
                .to_vec();
        keys.extend(
            ["\u{7f}", "\u{80}", "ö", "€", "\u{d7ff}", "\u{e000}", "דּ", "\u{ffff}"]
                .map(str::to_owned),
        );
        keys.extend(
            ["\u{10000}", "😀", "\u{10ffff}", "a\u{e000}", "a😀", "\u{1f}", "\u{1}"]
                .map(str::to_owned),
        );
        let escaped = |key: &str| {
            let mut writer = Writer::new(0, Limits::DEFAULT);
            writer.string(key);
            let quoted = writer.finish().unwrap();
            quoted[1..quoted.len() - 1].to_vec()
        };
        for a in &keys {
            assert_eq!(&unescape(&escaped(a)), a);
            for b in &keys {
                let expected = a.encode_utf16().cmp(b.encode_utf16());
                assert_eq!(key_order(&escaped(a), &escaped(b)), expected, "{a:?} {b:?}");
            }
        }
    }
}
