//! The strict reader of JSON text. It keeps no tree: what it reads goes straight to the writer.
//!
//! Refuses what two readers could take differently. Knows nothing of keys already seen, of
//! depth or of canonical form: those are the writer's.

use super::writer::{Writer, plain_length};
use super::{MAX_SAFE_INTEGER, Problem};

/// Reads one document from `text` and writes it as the value that `writer` stands at.
pub(super) fn parse_into(text: &str, writer: &mut Writer) -> Result<(), Problem> {
    Parser { rest: text.as_bytes(), length: text.len(), writer }.document()
}

struct Parser<'t, 'w> {
    /// What is left to read; always at a character boundary when outside an escape.
    rest: &'t [u8],
    length: usize,
    writer: &'w mut Writer,
}

impl<'t> Parser<'t, '_> {
    fn document(&mut self) -> Result<(), Problem> {
        if self.rest.starts_with("\u{feff}".as_bytes()) {
            return Err(self.syntax("unexpected byte order mark"));
        }
        let floor = self.writer.depth();
        loop {
            let mut first = self.value()?;
            // On to the next value, closing what closes before it.
            loop {
                if self.writer.depth() == floor {
                    return self.end();
                }
                self.writer.leave();
                if self.member(first)? {
                    break;
                }
                first = false;
            }
        }
    }

    fn end(&mut self) -> Result<(), Problem> {
        self.skip_space();
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Problem::TrailingData { offset: self.offset() })
    }

    /// Reads a scalar, or only the opening bracket of an array or object; says if the latter.
    fn value(&mut self) -> Result<bool, Problem> {
        self.skip_space();
        match self.rest {
            [b'{', rest @ ..] => {
                self.writer.begin_object()?;
                self.rest = rest;
                return Ok(true);
            }
            [b'[', rest @ ..] => {
                self.writer.begin_array()?;
                self.rest = rest;
                return Ok(true);
            }
            [b'"', rest @ ..] => {
                self.rest = rest;
                self.writer.begin_string();
                self.string()?;
                self.writer.end_string();
            }
            [b'-' | b'0'..=b'9', ..] => self.number()?,
            [b't', b'r', b'u', b'e', rest @ ..] => {
                self.rest = rest;
                self.writer.bool(true);
            }
            [b'f', b'a', b'l', b's', b'e', rest @ ..] => {
                self.rest = rest;
                self.writer.bool(false);
            }
            [b'n', b'u', b'l', b'l', rest @ ..] => {
                self.rest = rest;
                self.writer.null();
            }
            _ => return Err(self.syntax("expected a value")),
        }
        Ok(false)
    }

    /// Reads up to the next member's value, or closes the array or object; says if the former.
    fn member(&mut self, first: bool) -> Result<bool, Problem> {
        self.skip_space();
        let object = self.writer.in_object();
        match (self.rest, object) {
            ([b'}', rest @ ..], true) => {
                self.writer.end_object()?;
                self.rest = rest;
                return Ok(false);
            }
            ([b']', rest @ ..], false) => {
                self.writer.end_array();
                self.rest = rest;
                return Ok(false);
            }
            _ if first => {}
            ([b',', rest @ ..], _) => self.rest = rest,
            (_, true) => return Err(self.syntax("expected `,` or `}`")),
            (_, false) => return Err(self.syntax("expected `,` or `]`")),
        }
        if object {
            self.key()?;
        } else {
            self.writer.element();
        }
        Ok(true)
    }

    fn key(&mut self) -> Result<(), Problem> {
        self.skip_space();
        let [b'"', rest @ ..] = self.rest else { return Err(self.syntax("expected a key")) };
        self.rest = rest;
        self.writer.begin_key();
        self.string()?;
        self.writer.end_key()?;
        self.skip_space();
        let [b':', rest @ ..] = self.rest else { return Err(self.syntax("expected `:`")) };
        self.rest = rest;
        Ok(())
    }

    /// Reads the rest of a string whose opening quote has been read.
    fn string(&mut self) -> Result<(), Problem> {
        loop {
            let (plain, special) = self.rest.split_at(plain_length(self.rest));
            self.writer.run(plain);
            self.rest = special;
            match special {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Ok(());
                }
                [b'\\', rest @ ..] => {
                    let character = self.escape(rest)?;
                    self.writer.character(character);
                }
                [] => return Err(self.syntax("unterminated string")),
                _ => return Err(self.syntax("unescaped control character")),
            }
        }
    }

    /// Reads an escape, given what follows its backslash.
    fn escape(&mut self, after: &'t [u8]) -> Result<char, Problem> {
        let (character, rest) = match after {
            [b'u', rest @ ..] => return self.unicode_escape(rest),
            [plain @ (b'"' | b'\\' | b'/'), rest @ ..] => (char::from(*plain), rest),
            [b'b', rest @ ..] => ('\u{8}', rest),
            [b'f', rest @ ..] => ('\u{c}', rest),
            [b'n', rest @ ..] => ('\n', rest),
            [b'r', rest @ ..] => ('\r', rest),
            [b't', rest @ ..] => ('\t', rest),
            _ => return Err(self.syntax("unknown escape")),
        };
        self.rest = rest;
        Ok(character)
    }

    fn unicode_escape(&mut self, digits: &'t [u8]) -> Result<char, Problem> {
        let Some((unit, rest)) = code_unit(digits) else {
            return Err(self.syntax("`\\u` without four hexadecimal digits"));
        };
        self.rest = rest;
        if let Some(character) = char::from_u32(u32::from(unit)) {
            return Ok(character);
        }
        if let [b'\\', b'u', digits @ ..] = rest
            && let Some((low, rest)) = code_unit(digits)
            && let Some(Ok(character)) = char::decode_utf16([unit, low]).next()
        {
            self.rest = rest;
            return Ok(character);
        }
        Err(Problem::LoneSurrogate(unit))
    }

    fn number(&mut self) -> Result<(), Problem> {
        let whole = self.rest;
        if let [b'-', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if let [b'0', b'0'..=b'9', ..] = self.rest {
            return Err(self.syntax("number with a leading zero"));
        }
        let digits = self.digits()?;
        let mut integer = true;
        if let [b'.', rest @ ..] = self.rest {
            integer = false;
            self.rest = rest;
            self.digits()?;
        }
        if let [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] = self.rest {
            integer = false;
            self.rest = rest;
            self.digits()?;
        }
        let (text, _) = whole.split_at(whole.len() - self.rest.len());
        if !integer {
            return self.float(text);
        }
        let magnitude = digits.iter().fold(0_u64, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u64::from(digit & 0x0f))
        });
        match magnitude {
            0 => self.writer.int_text(b"0"),
            1..=MAX_SAFE_INTEGER => self.writer.int_text(text),
            _ => return Err(Problem::IntegerOutOfRange(excerpt(text))),
        }
        Ok(())
    }

    fn float(&mut self, text: &[u8]) -> Result<(), Problem> {
        let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        match value {
            Some(value) if value.is_finite() => self.writer.float(value),
            _ => Err(Problem::NotFinite(excerpt(text))),
        }
    }

    fn digits(&mut self) -> Result<&'t [u8], Problem> {
        let length = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if length == 0 {
            return Err(self.syntax("expected a digit"));
        }
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(digits)
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn offset(&self) -> usize {
        self.length - self.rest.len()
    }

    fn syntax(&self, what: &'static str) -> Problem {
        Problem::Syntax { offset: self.offset(), what }
    }
}

fn code_unit(digits: &[u8]) -> Option<(u16, &[u8])> {
    let (four, rest) = digits.split_first_chunk::<4>()?;
    let unit = four
        .iter()
        .try_fold(0, |unit: u32, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))?;
    Some((u16::try_from(unit).ok()?, rest))
}

/// The text of a number for a message: whole, unless it is absurdly long.
fn excerpt(number: &[u8]) -> String {
    const LONGEST: usize = 40;
    let text = String::from_utf8_lossy(number);
    match text.split_at_checked(LONGEST) {
        Some((head, tail)) if !tail.is_empty() => format!("{head}…"),
        _ => text.into_owned(),
    }
}
