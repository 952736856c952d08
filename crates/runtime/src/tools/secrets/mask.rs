//! Replaces secret values by `[secret NAME]`, and sensitive ones by `[sensitive]`, however they are written: as they are, in base64 of
//! either alphabet at any alignment, in hexadecimal, percent-encoded or JSON-escaped in any
//! spelling. Two encodings on top of each other are beyond it.

use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;
use zeroize::Zeroizing;

use super::Secrets;

/// The longest spelling of one byte that is recognised: `\u0041`.
const LONGEST_SPELLING: usize = 6;

/// Recognises the secrets of one call.
pub(crate) struct Mask {
    patterns: Vec<Pattern>,
    longest: usize,
}

/// One way to write one secret.
struct Pattern {
    /// What is put in its place.
    label: Arc<str>,
    bytes: Zeroizing<Vec<u8>>,
    /// Whether the character before, or after, tells some bits of the secret too: base64 packs bits
    /// of two neighbouring bytes into one character.
    shares: (bool, bool),
}

impl Mask {
    pub(in crate::tools) fn new(secrets: &Secrets) -> Self {
        Self::of(secrets.iter().map(|(name, value)| (format!("[secret {name}]").into(), value)))
    }

    /// Recognises values by what is put in their place.
    pub(crate) fn of<'v>(values: impl IntoIterator<Item = (Arc<str>, &'v [u8])>) -> Self {
        let mut patterns = Vec::new();
        let mut longest = 0;
        for (label, value) in values {
            longest = longest.max(value.len());
            let mut add = |bytes: Vec<u8>, shares| {
                let bytes = Zeroizing::new(bytes);
                patterns.push(Pattern { label: Arc::clone(&label), bytes, shares });
            };
            add(value.to_vec(), (false, false));
            add(hex(value, b"0123456789abcdef"), (false, false));
            add(hex(value, b"0123456789ABCDEF"), (false, false));
            for offset in 0..3 {
                for url_safe in [false, true] {
                    let (bytes, shares) = base64_inside(value, offset, url_safe);
                    add(bytes, shares);
                }
            }
        }
        Self { patterns, longest }
    }

    /// How much of a text's edge may be a part of a secret whose rest was cut off.
    pub(in crate::tools) fn margin(&self) -> usize {
        self.longest * LONGEST_SPELLING
    }

    /// The bytes with every secret replaced.
    pub(in crate::tools) fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        self.apply_from(bytes, 0)
    }

    /// The bytes from `start` on with every secret replaced, those that begin before it included.
    pub(in crate::tools) fn apply_from(&self, bytes: &[u8], start: usize) -> Vec<u8> {
        let mut masked = Vec::with_capacity(bytes.len().saturating_sub(start));
        let mut done = start;
        for (range, label) in self.find(bytes) {
            if range.end <= start {
                continue;
            }
            masked.extend_from_slice(bytes.get(done..range.start).unwrap_or_default());
            masked.extend_from_slice(label.as_bytes());
            done = range.end;
        }
        masked.extend_from_slice(bytes.get(done..).unwrap_or_default());
        masked
    }

    /// The same of a text.
    pub(crate) fn apply_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.apply(text.as_bytes())).into_owned()
    }

    /// Where secrets stand, from left to right; what touches or overlaps is one.
    fn find(&self, bytes: &[u8]) -> Vec<(Range<usize>, &str)> {
        if self.patterns.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        self.find_in(&View::plain(bytes), &mut found);
        if bytes.contains(&b'%') {
            self.find_in(&View::decoded(bytes, percent), &mut found);
        }
        if bytes.contains(&b'\\') {
            self.find_in(&View::decoded(bytes, json_escape), &mut found);
        }
        found.sort_by_key(|(range, _)| (range.start, range.end));
        let mut merged: Vec<(Range<usize>, &str)> = Vec::new();
        for (range, name) in found {
            match merged.last_mut() {
                Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push((range, name)),
            }
        }
        merged
    }

    fn find_in<'m>(&'m self, view: &View<'_>, found: &mut Vec<(Range<usize>, &'m str)>) {
        for pattern in &self.patterns {
            let finder = Finder::new(pattern.bytes.as_slice());
            let mut from = 0;
            while let Some(at) = view.bytes().get(from..).and_then(|rest| finder.find(rest)) {
                let mut range = from + at..from + at + pattern.bytes.len();
                from = range.start + 1;
                if pattern.shares.0 && range.start > 0 && view.is_base64(range.start - 1) {
                    range.start -= 1;
                }
                if pattern.shares.1 && view.is_base64(range.end) {
                    range.end += 1;
                }
                found.push((view.source(range), &*pattern.label));
            }
        }
    }
}

fn hex(value: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let digit = |nibble: u8| digits.get(usize::from(nibble)).copied().unwrap_or_default();
    value.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What base64 always makes of `value` when it stands `offset` bytes (modulo 3) into what is encoded:
/// the characters that depend on no other byte, and whether their neighbours hold some bits as well.
fn base64_inside(value: &[u8], offset: usize, url_safe: bool) -> (Vec<u8>, (bool, bool)) {
    let mut padded = Zeroizing::new(vec![0; offset]);
    padded.extend_from_slice(value);
    let encoded = if url_safe {
        URL_SAFE_NO_PAD.encode(padded.as_slice())
    } else {
        STANDARD_NO_PAD.encode(padded.as_slice())
    };
    let encoded = Zeroizing::new(encoded);
    let (first_bit, last_bit) = (offset * 8, padded.len() * 8);
    let whole = first_bit.div_ceil(6)..last_bit / 6;
    let inside = encoded.as_bytes().get(whole).unwrap_or_default().to_vec();
    (inside, (!first_bit.is_multiple_of(6), !last_bit.is_multiple_of(6)))
}

/// A text with one layer of escapes taken off, and where each byte came from.
enum View<'a> {
    Plain(&'a [u8]),
    Decoded { bytes: Zeroizing<Vec<u8>>, starts: Vec<usize>, source_len: usize },
}

/// What an escape stands for: its length, and the bytes. `None` where there is none.
type Decode = fn(&[u8]) -> Option<(usize, Escaped)>;

/// At most four bytes: one character.
struct Escaped {
    bytes: [u8; 4],
    len: usize,
}

impl Escaped {
    fn byte(byte: u8) -> Self {
        Self { bytes: [byte, 0, 0, 0], len: 1 }
    }

    fn char(c: char) -> Self {
        let mut bytes = [0; 4];
        let len = c.encode_utf8(&mut bytes).len();
        Self { bytes, len }
    }
}

impl<'a> View<'a> {
    fn plain(bytes: &'a [u8]) -> Self {
        Self::Plain(bytes)
    }

    fn decoded(source: &[u8], decode: Decode) -> Self {
        let mut bytes = Zeroizing::new(Vec::with_capacity(source.len()));
        let mut starts = Vec::with_capacity(source.len());
        let mut at = 0;
        while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
            let plain = || rest.first().map(|byte| (1, Escaped::byte(*byte)));
            let Some((read, unit)) = decode(rest).or_else(plain) else { break };
            for byte in unit.bytes.iter().take(unit.len) {
                bytes.push(*byte);
                starts.push(at);
            }
            at += read;
        }
        Self::Decoded { bytes, starts, source_len: source.len() }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Decoded { bytes, .. } => bytes,
        }
    }

    fn is_base64(&self, at: usize) -> bool {
        let byte = self.bytes().get(at);
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))
    }

    /// The bytes of the source that a part of the view came from.
    fn source(&self, range: Range<usize>) -> Range<usize> {
        match self {
            Self::Plain(_) => range,
            Self::Decoded { starts, source_len, .. } => {
                let start_of = |at: usize| starts.get(at).copied().unwrap_or(*source_len);
                let last = start_of(range.end.saturating_sub(1));
                // The bytes of one escape share its start: its end is where the next one begins.
                let after = (range.end..starts.len()).map(start_of).find(|start| *start > last);
                start_of(range.start)..after.unwrap_or(*source_len)
            }
        }
    }
}

fn percent(rest: &[u8]) -> Option<(usize, Escaped)> {
    match rest {
        [b'%', high, low, ..] => Some((3, Escaped::byte(nibble(*high)? << 4 | nibble(*low)?))),
        _ => None,
    }
}

fn json_escape(rest: &[u8]) -> Option<(usize, Escaped)> {
    let byte = match rest {
        [b'\\', b'b', ..] => 8,
        [b'\\', b'f', ..] => 12,
        [b'\\', b'n', ..] => b'\n',
        [b'\\', b'r', ..] => b'\r',
        [b'\\', b't', ..] => b'\t',
        [b'\\', byte @ (b'"' | b'\\' | b'/'), ..] => *byte,
        _ => return unicode_escape(rest),
    };
    Some((2, Escaped::byte(byte)))
}

fn unicode_escape(rest: &[u8]) -> Option<(usize, Escaped)> {
    let first = code_unit(rest)?;
    let second = rest.get(6..).and_then(code_unit);
    let units = [first, second.unwrap_or_default()];
    let used = if (0xd800..0xdc00).contains(&first) { 2 } else { 1 };
    let c = char::decode_utf16(units.into_iter().take(used)).next()?.ok()?;
    Some((6 * used, Escaped::char(c)))
}

fn code_unit(rest: &[u8]) -> Option<u16> {
    let [b'\\', b'u', digits @ ..] = rest else { return None };
    let digits = digits.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | u16::from(nibble(*digit)?)))
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    /// Every byte class: letters, both characters that the base64 alphabets spell differently, what
    /// JSON escapes and what URLs escape.
    const SECRET: &[u8] = "s3cr\"et\\ /?>\u{fb}~é€𝄞 tail".as_bytes();

    fn mask(values: &[(&str, &[u8])]) -> Mask {
        let secrets = values
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), Zeroizing::new(value.to_vec())));
        Mask::new(&Secrets(secrets.collect()))
    }

    fn check(text: impl AsRef<[u8]>, expected: &str) {
        let masked = mask(&[("KEY", SECRET)]).apply(text.as_ref());
        assert_eq!(String::from_utf8_lossy(&masked), expected);
    }

    #[test]
    fn the_value_itself_is_masked() {
        check(
            [b"<", SECRET, b"> and <", SECRET, b">"].concat(),
            "<[secret KEY]> and <[secret KEY]>",
        );
        check([SECRET, SECRET].concat(), "[secret KEY][secret KEY]");
        check("nothing to see", "nothing to see");
    }

    #[test]
    fn base64_is_masked_at_every_alignment() {
        for before in 0..7 {
            for after in 0..4 {
                let text = [&b"0123456"[..before], SECRET, &b"9999"[..after]].concat();
                for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
                    let masked = mask(&[("KEY", SECRET)]).apply_text(&encoded);
                    assert!(masked.contains("[secret KEY]"), "{encoded}");
                    // No byte of the secret can be told from what is left on either side.
                    let (left, right) = masked.split_once("[secret KEY]").unwrap();
                    assert!(left.len() * 6 / 8 <= before, "{encoded}: {left}");
                    let right = right.trim_end_matches('=');
                    assert!(right.len() * 6 / 8 <= after, "{encoded}: {right}");
                }
            }
        }
    }

    #[test]
    fn percent_encoding_is_masked_in_any_spelling() {
        let unreserved = |b: u8| b.is_ascii_alphanumeric();
        let spell = |keep: fn(u8) -> bool, upper: bool| -> String {
            let one = |b: &u8| match (keep(*b), upper) {
                (true, _) => char::from(*b).to_string(),
                (false, true) => format!("%{b:02X}"),
                (false, false) => format!("%{b:02x}"),
            };
            SECRET.iter().map(one).collect()
        };
        for upper in [true, false] {
            check(format!("a?k={}&b=%20", spell(unreserved, upper)), "a?k=[secret KEY]&b=%20");
            check(spell(|_| false, upper), "[secret KEY]");
            check(
                spell(|b| b.is_ascii_alphanumeric() || b"/?~".contains(&b), upper),
                "[secret KEY]",
            );
        }
    }

    #[test]
    fn json_escapes_are_masked_in_any_spelling() {
        let text = std::str::from_utf8(SECRET).unwrap();
        let plain = serde_json::to_string(text).unwrap();
        check(format!("{{\"a\":{plain}}}"), "{\"a\":\"[secret KEY]\"}");
        check(plain.replace('/', "\\/"), "\"[secret KEY]\"");
        for upper in [true, false] {
            let unit = |u: u16| if upper { format!("\\u{u:04X}") } else { format!("\\u{u:04x}") };
            let escaped: String = text.encode_utf16().map(unit).collect();
            check(format!("\"\\n{escaped}\\t\""), "\"\\n[secret KEY]\\t\"");
        }
    }

    #[test]
    fn hexadecimal_is_masked() {
        check(format!("<{}>", hex::encode(SECRET)), "<[secret KEY]>");
        check(format!("<{}>", hex::encode_upper(SECRET)), "<[secret KEY]>");
    }

    mod hex {
        pub(super) fn encode(bytes: &[u8]) -> String {
            bytes.iter().map(|b| format!("{b:02x}")).collect()
        }

        pub(super) fn encode_upper(bytes: &[u8]) -> String {
            bytes.iter().map(|b| format!("{b:02X}")).collect()
        }
    }

    #[test]
    fn overlapping_secrets_leave_nothing() {
        let mask = mask(&[("A", b"abcdef"), ("B", b"defghi"), ("C", b"aaaa")]);
        assert_eq!(mask.apply_text("<abcdefghi>"), "<[secret A]>");
        assert_eq!(mask.apply_text("aaaaaa"), "[secret C]");
    }

    #[test]
    fn broken_escapes_are_left_alone() {
        for text in ["%", "%2", "%zz", "100%", "\\", "\\u12", "\\ud800", "\\ud800\\u0041", "\\x"] {
            check(text, text);
        }
    }
}
