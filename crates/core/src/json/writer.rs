//! The one writer of canonical JSON (RFC 8785): escapes, numbers, the order of keys, limits.
//!
//! Knows nothing of where values come from: the parser and the serializer both drive it, and
//! both answer for calling it in a grammatical order. It always knows its position, so an error
//! is only a [`Problem`]; whoever began the document asks for the [`Writer::pointer`].

use std::cmp::Ordering;
use std::io::Write as _;
use std::ops::Range;

use super::keys::{key_order, unescape};
use super::{Limits, MAX_SAFE_INTEGER, Problem};

#[derive(Debug)]
pub(super) struct Writer {
    out: Vec<u8>,
    frames: Vec<Frame>,
    /// Members of all open objects, the outermost object's first.
    members: Vec<Member>,
    /// Where the key begun last begins; it is a member only once it is complete.
    key_start: usize,
    /// Whether the position is a value, rather than between the members of the innermost frame.
    inside: bool,
    limits: Limits,
}

/// An open array or object.
#[derive(Debug, Clone, Copy)]
enum Frame {
    Array {
        count: usize,
    },
    /// `first` indexes `members`; `sorted` as long as the keys arrive in canonical order.
    Object {
        first: usize,
        sorted: bool,
    },
}

/// Offsets of one member of an object in the output. Sorting an inner object moves bytes only
/// within that object, so the offsets of the outer ones stay true.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: usize,
    key_end: usize,
    /// Set only when the object has to be sorted.
    end: usize,
}

impl Member {
    /// The key as written, escaped, without its quotes.
    fn key(self, out: &[u8]) -> &[u8] {
        span(out, self.start + 1..self.key_end)
    }
}

impl Writer {
    pub(super) fn new(capacity: usize, limits: Limits) -> Self {
        Self {
            out: Vec::with_capacity(capacity),
            frames: Vec::with_capacity(8),
            members: Vec::with_capacity(16),
            key_start: 0,
            inside: true,
            limits,
        }
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, Problem> {
        if self.out.len() > self.limits.max_bytes {
            return Err(Problem::TooLarge { limit: self.limits.max_bytes });
        }
        Ok(self.out)
    }

    /// How many arrays and objects are open.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// How many more may be opened, as far as the stack of a recursive reader goes.
    pub(super) fn depth_left(&self) -> usize {
        let left = self.limits.max_depth.saturating_sub(self.frames.len());
        left.min(Limits::DEFAULT.max_depth)
    }

    pub(super) fn in_object(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Object { .. }))
    }

    pub(super) fn begin_array(&mut self) -> Result<(), Problem> {
        self.open(b'[', Frame::Array { count: 0 })
    }

    /// Announces the next element of the innermost array.
    pub(super) fn element(&mut self) {
        if let Some(Frame::Array { count }) = self.frames.last_mut() {
            if *count > 0 {
                self.out.push(b',');
            }
            *count += 1;
        }
        self.inside = true;
    }

    pub(super) fn end_array(&mut self) {
        self.frames.pop();
        self.out.push(b']');
        self.inside = true;
    }

    pub(super) fn begin_object(&mut self) -> Result<(), Problem> {
        self.open(b'{', Frame::Object { first: self.members.len(), sorted: true })
    }

    pub(super) fn key(&mut self, key: &str) -> Result<(), Problem> {
        self.begin_key();
        self.text(key);
        self.end_key()
    }

    /// Opens a key; [`Self::run`] and [`Self::character`] spell it.
    pub(super) fn begin_key(&mut self) {
        self.inside = false;
        if let Some(Frame::Object { first, .. }) = self.frames.last()
            && self.members.len() > *first
        {
            self.out.push(b',');
        }
        self.key_start = self.out.len();
        self.out.push(b'"');
    }

    pub(super) fn end_key(&mut self) -> Result<(), Problem> {
        let member = Member { start: self.key_start, key_end: self.out.len(), end: 0 };
        self.out.extend_from_slice(b"\":");
        if let Some(Frame::Object { first, sorted: sorted @ true }) = self.frames.last_mut()
            && let Some(previous) = self.members.get(*first..).and_then(<[_]>::last)
        {
            let key = member.key(&self.out);
            match key_order(previous.key(&self.out), key) {
                Ordering::Less => {}
                Ordering::Equal => return Err(Problem::DuplicateKey(unescape(key))),
                Ordering::Greater => *sorted = false,
            }
        }
        self.members.push(member);
        self.inside = true;
        Ok(())
    }

    pub(super) fn end_object(&mut self) -> Result<(), Problem> {
        self.inside = false;
        if let Some(&Frame::Object { first, sorted }) = self.frames.last() {
            if !sorted {
                self.sort(first)?;
            }
            self.members.truncate(first);
        }
        self.frames.pop();
        self.out.push(b'}');
        self.inside = true;
        Ok(())
    }

    /// Says that the value begun last is complete, so that what follows is between members.
    pub(super) fn leave(&mut self) {
        self.inside = false;
    }

    /// A whole value that is canonical already, no deeper than [`Self::depth_left`].
    pub(super) fn canonical(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(b"null");
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(super) fn string(&mut self, text: &str) {
        self.begin_string();
        self.text(text);
        self.end_string();
    }

    pub(super) fn begin_string(&mut self) {
        self.out.push(b'"');
    }

    pub(super) fn end_string(&mut self) {
        self.out.push(b'"');
    }

    /// A part of a string in which, as by [`plain_length`], nothing needs an escape.
    pub(super) fn run(&mut self, plain: &[u8]) {
        self.out.extend_from_slice(plain);
    }

    /// One character of a string, escaped if it must be.
    pub(super) fn character(&mut self, character: char) {
        let short = match character {
            '"' => b'"',
            '\\' => b'\\',
            '\u{8}' => b'b',
            '\t' => b't',
            '\n' => b'n',
            '\u{c}' => b'f',
            '\r' => b'r',
            '\0'..='\u{1f}' => {
                let code = u32::from(character);
                let hex = |digit| char::from_digit(digit, 16).map_or(b'0', |c| c as u8);
                self.out.extend_from_slice(b"\\u00");
                self.out.extend_from_slice(&[hex(code >> 4), hex(code & 15)]);
                return;
            }
            _ => {
                self.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return;
            }
        };
        self.out.extend_from_slice(&[b'\\', short]);
    }

    pub(super) fn int(&mut self, value: i128) -> Result<(), Problem> {
        if value.unsigned_abs() > u128::from(MAX_SAFE_INTEGER) {
            return Err(Problem::IntegerOutOfRange(value.to_string()));
        }
        // Within the range just checked, so the narrowing loses nothing.
        self.write(value as i64);
        Ok(())
    }

    /// An integer within the safe range, already in its canonical spelling.
    pub(super) fn int_text(&mut self, text: &[u8]) {
        self.out.extend_from_slice(text);
    }

    pub(super) fn float(&mut self, value: f64) -> Result<(), Problem> {
        if !value.is_finite() {
            return Err(Problem::NotFinite(value.to_string()));
        }
        let mut buffer = ryu_js::Buffer::new();
        let text = buffer.format_finite(value);
        // From 1e21 on the canonical form is exponential and cannot be taken for an integer.
        if value.abs() > MAX_SAFE_INTEGER as f64 && value.abs() < 1e21 {
            return Err(Problem::IntegerOutOfRange(text.to_owned()));
        }
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// The RFC 6901 pointer of the present position.
    pub(super) fn pointer(&self) -> String {
        self.pointer_of(self.frames.len() - usize::from(!self.inside && !self.frames.is_empty()))
    }

    /// The pointer of the value begun last, be it complete or not.
    pub(super) fn pointer_of_last(&self) -> String {
        self.pointer_of(self.frames.len())
    }

    fn pointer_of(&self, depth: usize) -> String {
        let mut tokens = Vec::with_capacity(depth);
        let mut upper = self.members.len();
        for (index, frame) in self.frames.iter().enumerate().rev() {
            let token = match frame {
                Frame::Array { count } => count.checked_sub(1).map(|index| index.to_string()),
                Frame::Object { first, .. } => {
                    let members = self.members.get(*first..upper).unwrap_or_default();
                    upper = *first;
                    members.last().map(|member| {
                        unescape(member.key(&self.out)).replace('~', "~0").replace('/', "~1")
                    })
                }
            };
            if index < depth {
                tokens.extend(token);
            }
        }
        tokens.iter().rev().flat_map(|token| ["/", token]).collect()
    }

    fn open(&mut self, bracket: u8, frame: Frame) -> Result<(), Problem> {
        if self.frames.len() >= self.limits.max_depth {
            return Err(Problem::TooDeep { limit: self.limits.max_depth });
        }
        self.out.push(bracket);
        self.frames.push(frame);
        self.inside = false;
        Ok(())
    }

    fn text(&mut self, text: &str) {
        let mut rest = text;
        loop {
            let (plain, special) = rest.split_at(plain_length(rest.as_bytes()));
            self.run(plain.as_bytes());
            let mut characters = special.chars();
            let Some(character) = characters.next() else { return };
            self.character(character);
            rest = characters.as_str();
        }
    }

    fn write(&mut self, value: i64) {
        let written = write!(self.out, "{value}");
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
    }

    /// Puts the members of the innermost object, those from `first` on, into canonical order.
    fn sort(&mut self, first: usize) -> Result<(), Problem> {
        let Self { out, members, .. } = self;
        let members = members.get_mut(first..).unwrap_or_default();
        let start = members.first().map_or(out.len(), |member| member.start);
        let mut end = out.len();
        for member in members.iter_mut().rev() {
            member.end = end;
            end = member.start - 1;
        }
        members.sort_unstable_by(|a, b| key_order(a.key(out), b.key(out)));
        let mut sorted = Vec::with_capacity(out.len() - start);
        let mut previous: Option<&[u8]> = None;
        for member in members.iter() {
            let key = member.key(out);
            if previous == Some(key) {
                return Err(Problem::DuplicateKey(unescape(key)));
            }
            if previous.is_some() {
                sorted.push(b',');
            }
            sorted.extend_from_slice(span(out, member.start..member.end));
            previous = Some(key);
        }
        out.truncate(start);
        out.extend_from_slice(&sorted);
        Ok(())
    }
}

/// How many leading bytes can stand in a string as they are.
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zeroes = |word: u64| word.wrapping_sub(ONES) & !word;
    let mut rest = bytes;
    // Eight bytes at a time. A borrow can mark a byte falsely, but only above a true mark, and
    // the lowest mark is the one taken.
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let special =
            (control | zeroes(word ^ (ONES * 0x22)) | zeroes(word ^ (ONES * 0x5c))) & HIGH;
        if special != 0 {
            return bytes.len() - rest.len() + special.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    let tail = rest.iter().position(|b| matches!(b, 0..=0x1f | b'"' | b'\\'));
    bytes.len() - rest.len() + tail.unwrap_or(rest.len())
}

#[expect(clippy::indexing_slicing, reason = "offsets the writer itself recorded in `out`")]
fn span(out: &[u8], range: Range<usize>) -> &[u8] {
    &out[range]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_length_stops_at_the_first_byte_that_needs_an_escape() {
        for length in 0..40 {
            let plain = "aé~ \u{7f}𝄞".repeat(6).into_bytes();
            let plain = &plain[..length];
            assert_eq!(plain_length(plain), length);
            for special in [0, 1, 0x1f, b'"', b'\\'] {
                for at in 0..length {
                    let mut bytes = plain.to_vec();
                    bytes[at] = special;
                    bytes[length - 1] = special;
                    assert_eq!(plain_length(&bytes), at);
                }
            }
        }
    }
}
