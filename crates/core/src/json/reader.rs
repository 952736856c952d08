//! Reads a type from text and checks, in the same pass, that the text is canonical.
//!
//! Takes nothing on trust: every byte that it passes over was compared with what the writer would
//! have written. What it refuses may still be fit for another reader, so it only says *no*: whoever
//! asked reads again the long way, for a reason or for a value. A type is read in the one spelling
//! that [`super::strict`] lets through.
//!
//! Knows the writer's rules (escapes, numbers, the order of keys, depth), and nothing of documents.

#[cfg(test)]
mod tests;
mod typed;

use std::cmp::Ordering;
use std::fmt;

use serde::Deserialize;

use super::keys::key_order;
use super::writer::plain_length;
use super::{Limits, MAX_SAFE_INTEGER};

/// What stands before text that was checked, when it is handed to [`super::Canon`]. It is known by
/// its address and not by what it spells, so no document, whoever reads it, can hold it.
pub(super) static CHECKED: [u8; 24] = *b"text that Reader checked";

/// Reads the whole of `text`, which must be canonical and nested no deeper than by default.
pub(super) fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    let mut reader = Reader::new(text, Limits::DEFAULT.max_depth);
    let value = T::deserialize(&mut reader).ok()?;
    reader.rest.is_empty().then_some(value)
}

/// Whether the whole of `text` is canonical, nested no deeper than `max_depth`.
pub(super) fn is_canonical(text: &str, max_depth: usize) -> bool {
    let mut reader = Reader::new(text, max_depth);
    reader.pass().is_ok() && reader.rest.is_empty()
}

/// A no, without a reason.
#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

impl serde::de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

struct Reader<'de> {
    text: &'de str,
    /// What is left to read.
    rest: &'de [u8],
    /// How many more arrays and objects may be opened inside each other.
    depth_left: usize,
}

/// A number in its canonical spelling.
enum Number {
    Natural(u64),
    Negative(i64),
    Fraction(f64),
}

/// A string as it stands, between its quotes.
#[derive(Clone, Copy)]
struct Quoted<'de> {
    text: &'de str,
    escaped: bool,
}

impl<'de> Reader<'de> {
    fn new(text: &'de str, max_depth: usize) -> Self {
        Self { text, rest: text.as_bytes(), depth_left: max_depth }
    }

    fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn since(&self, start: usize) -> Result<&'de str, Refused> {
        self.text.get(start..self.offset()).ok_or(Refused)
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), Refused> {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(Refused),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Refused> {
        self.rest = self.rest.strip_prefix(word).ok_or(Refused)?;
        Ok(())
    }

    /// Opens an array or object.
    fn open(&mut self, bracket: u8) -> Result<(), Refused> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or(Refused)?;
        self.expect(bracket)
    }

    fn close(&mut self, bracket: u8) -> Result<(), Refused> {
        self.depth_left += 1;
        self.expect(bracket)
    }

    /// Reads a string with both of its quotes.
    fn quoted(&mut self) -> Result<Quoted<'de>, Refused> {
        self.expect(b'"')?;
        let start = self.offset();
        let mut escaped = false;
        loop {
            let (_, special) = self.rest.split_at(plain_length(self.rest));
            match special {
                [b'"', rest @ ..] => {
                    self.rest = special;
                    let text = self.since(start)?;
                    self.rest = rest;
                    return Ok(Quoted { text, escaped });
                }
                [b'\\', after @ ..] => {
                    escaped = true;
                    self.rest = escape(after).ok_or(Refused)?.1;
                }
                _ => return Err(Refused),
            }
        }
    }

    /// Reads a key and its colon. It must come after `previous`.
    fn key(&mut self, previous: Option<Quoted<'de>>) -> Result<Quoted<'de>, Refused> {
        let key = self.quoted()?;
        if let Some(previous) = previous
            && key_order(previous.text.as_bytes(), key.text.as_bytes()) != Ordering::Less
        {
            return Err(Refused);
        }
        self.expect(b':')?;
        Ok(key)
    }

    fn number(&mut self) -> Result<Number, Refused> {
        let start = self.rest;
        let negative = self.expect(b'-').is_ok();
        let unsigned = self.rest;
        let mut magnitude = 0_u64;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            magnitude = magnitude.saturating_mul(10).saturating_add(u64::from(digit & 0x0f));
            self.rest = rest;
        }
        if let [b'.' | b'e', ..] = self.rest {
            return self.fraction(start).map(Number::Fraction);
        }
        let digits = unsigned.len() - self.rest.len();
        let zero_first = matches!(unsigned, [b'0', ..]);
        if digits == 0 || (zero_first && (digits > 1 || negative)) || magnitude > MAX_SAFE_INTEGER {
            return Err(Refused);
        }
        if !negative {
            return Ok(Number::Natural(magnitude));
        }
        i64::try_from(magnitude).map(|magnitude| Number::Negative(-magnitude)).map_err(|_| Refused)
    }

    /// Reads what is not an integer: it must be what the writer makes of its value.
    fn fraction(&mut self, start: &'de [u8]) -> Result<f64, Refused> {
        while let [b'0'..=b'9' | b'.' | b'e' | b'+' | b'-', rest @ ..] = self.rest {
            self.rest = rest;
        }
        let (text, _) = start.split_at(start.len() - self.rest.len());
        let text = std::str::from_utf8(text).map_err(|_| Refused)?;
        let value: f64 = text.parse().map_err(|_| Refused)?;
        let unsafe_integer = value.abs() > MAX_SAFE_INTEGER as f64 && value.abs() < 1e21;
        let mut buffer = ryu_js::Buffer::new();
        if !value.is_finite() || unsafe_integer || buffer.format_finite(value) != text {
            return Err(Refused);
        }
        Ok(value)
    }

    /// Passes over one value of any shape.
    fn pass(&mut self) -> Result<(), Refused> {
        match self.peek() {
            Some(b'"') => self.quoted().map(|_| ()),
            Some(b'{') => {
                self.open(b'{')?;
                let mut previous = None;
                while self.more(b'}', previous.is_none())? {
                    previous = Some(self.key(previous)?);
                    self.pass()?;
                }
                self.close(b'}')
            }
            Some(b'[') => {
                self.open(b'[')?;
                let mut first = true;
                while self.more(b']', first)? {
                    first = false;
                    self.pass()?;
                }
                self.close(b']')
            }
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            _ => self.number().map(|_| ()),
        }
    }

    /// Whether another member follows, past its comma.
    fn more(&mut self, bracket: u8, first: bool) -> Result<bool, Refused> {
        if self.peek() == Some(bracket) {
            return Ok(false);
        }
        if !first {
            self.expect(b',')?;
        }
        Ok(true)
    }
}

impl<'de> Quoted<'de> {
    fn unescaped(self) -> Result<String, Refused> {
        let mut text = String::with_capacity(self.text.len());
        let mut rest = self.text;
        while let Some((plain, after)) = rest.split_once('\\') {
            text.push_str(plain);
            let (character, after) = escape(after.as_bytes()).ok_or(Refused)?;
            text.push(char::from(character));
            // An escape is ASCII, so what follows it begins at a character.
            rest = rest.get(rest.len() - after.len()..).ok_or(Refused)?;
        }
        text.push_str(rest);
        Ok(text)
    }
}

/// The character that an escape stands for, given what follows its backslash, and the rest. Only
/// escapes that the writer makes.
fn escape(after: &[u8]) -> Option<(u8, &[u8])> {
    let (character, rest) = match after {
        [plain @ (b'"' | b'\\'), rest @ ..] => (*plain, rest),
        [b'b', rest @ ..] => (0x08, rest),
        [b't', rest @ ..] => (b'\t', rest),
        [b'n', rest @ ..] => (b'\n', rest),
        [b'f', rest @ ..] => (0x0c, rest),
        [b'r', rest @ ..] => (b'\r', rest),
        [b'u', b'0', b'0', high @ (b'0' | b'1'), low @ (b'0'..=b'9' | b'a'..=b'f'), rest @ ..] => {
            let low = if low.is_ascii_digit() { low - b'0' } else { low - b'a' + 10 };
            ((high - b'0') << 4 | low, rest)
        }
        _ => return None,
    };
    let long = matches!(after, [b'u', ..]);
    // What has a short form has no other.
    (!long || !matches!(character, 0x08 | b'\t' | b'\n' | 0x0c | b'\r'))
        .then_some((character, rest))
}
