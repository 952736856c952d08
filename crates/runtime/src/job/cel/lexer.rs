//! The words of CEL, one at a time, each with the byte at which it begins.

use std::fmt;
use std::iter::Peekable;
use std::str::CharIndices;

/// Why a text is not an expression, and at which byte of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::job) struct SyntaxError {
    pub(in crate::job) at: usize,
    pub(in crate::job) message: String,
    pub(in crate::job) hint: Option<String>,
}

impl SyntaxError {
    pub(in crate::job) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None }
    }

    pub(in crate::job) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    /// An integer without its sign, so that the least of all can be written.
    Int(u64),
    Double(f64),
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Int(_) | Self::Double(_) => f.write_str("a number"),
            Self::Text(_) => f.write_str("a string"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// The longest first, so that `<=` is not read as `<`.
const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}",
];

pub(super) struct Lexer<'a> {
    source: &'a str,
    rest: Peekable<CharIndices<'a>>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self { source, rest: source.char_indices().peekable() }
    }

    /// The next word and where it begins.
    pub(super) fn next(&mut self) -> Result<(usize, Token), SyntaxError> {
        self.skip_blanks();
        let Some(&(at, first)) = self.rest.peek() else {
            return Ok((self.source.len(), Token::End));
        };
        let token = match first {
            '0'..='9' => self.number(at)?,
            '.' if self.following(at).starts_with(|c: char| c.is_ascii_digit()) => {
                self.number(at)?
            }
            '"' | '\'' => self.string(at, false)?,
            'a'..='z' | 'A'..='Z' | '_' => self.name(at)?,
            _ => self.sign(at, first)?,
        };
        Ok((at, token))
    }

    /// What follows the character at `at`.
    fn following(&self, at: usize) -> &'a str {
        self.source.get(at + 1..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        while let Some(&(at, c)) = self.rest.peek() {
            if c == '/' && self.following(at).starts_with('/') {
                while self.rest.next_if(|(_, c)| *c != '\n').is_some() {}
            } else if c.is_ascii_whitespace() {
                self.rest.next();
            } else {
                return;
            }
        }
    }

    /// Takes characters as long as they fit, and hands back the text from `start`.
    fn take_while(&mut self, start: usize, fits: fn(char) -> bool) -> &'a str {
        while self.rest.next_if(|(_, c)| fits(*c)).is_some() {}
        let end = self.rest.peek().map_or(self.source.len(), |(at, _)| *at);
        self.source.get(start..end).unwrap_or_default()
    }

    fn name(&mut self, at: usize) -> Result<Token, SyntaxError> {
        let name = self.take_while(at, |c| c.is_ascii_alphanumeric() || c == '_');
        let quoted = matches!(self.rest.peek(), Some((_, '"' | '\'')));
        match name {
            "r" | "R" if quoted => self.string(at, true),
            _ if quoted => Err(SyntaxError::new(at, format!("unknown kind of string `{name}`"))
                .hint("JSON has no bytes; write plain strings, or raw ones as r'…'")),
            "in" => Ok(Token::Sign("in")),
            _ => Ok(Token::Name(name.to_owned())),
        }
    }

    fn sign(&mut self, at: usize, first: char) -> Result<Token, SyntaxError> {
        let here = self.source.get(at..).unwrap_or_default();
        let Some(sign) = SIGNS.into_iter().find(|sign| here.starts_with(sign)) else {
            let error = SyntaxError::new(at, format!("unexpected `{first}`"));
            return Err(match first {
                '=' => error.hint("compare with `==`"),
                '&' | '|' => error.hint(format!("write `{first}{first}`")),
                _ => error,
            });
        };
        for _ in sign.chars() {
            self.rest.next();
        }
        Ok(Token::Sign(sign))
    }

    fn number(&mut self, at: usize) -> Result<Token, SyntaxError> {
        let bad = |text: &str| SyntaxError::new(at, format!("`{text}` is not a number"));
        let here = self.source.get(at..).unwrap_or_default();
        if here.starts_with("0x") || here.starts_with("0X") {
            let text = self.take_while(at, |c| c.is_ascii_alphanumeric());
            let digits = text.get(2..).unwrap_or_default();
            return u64::from_str_radix(digits, 16).map(Token::Int).map_err(|_| bad(text));
        }
        let mut text = self.take_while(at, |c| c.is_ascii_digit());
        let mut whole = true;
        if let Some(&(dot, '.')) = self.rest.peek()
            && self.following(dot).starts_with(|c: char| c.is_ascii_digit())
        {
            self.rest.next();
            text = self.take_while(at, |c| c.is_ascii_digit());
            whole = false;
        }
        if self.rest.next_if(|(_, c)| matches!(c, 'e' | 'E')).is_some() {
            self.rest.next_if(|(_, c)| matches!(c, '+' | '-'));
            text = self.take_while(at, |c| c.is_ascii_digit());
            whole = false;
        }
        if matches!(self.rest.peek(), Some((_, c)) if c.is_ascii_alphabetic() || *c == '_') {
            let text = self.take_while(at, |c| c.is_ascii_alphanumeric() || c == '_');
            let unsigned = text.ends_with(['u', 'U']);
            let error = bad(text);
            return Err(if unsigned {
                error.hint("JSON has no unsigned integers; leave out the `u`")
            } else {
                error
            });
        }
        if whole {
            return text.parse().map(Token::Int).map_err(|_| bad(text));
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Token::Double(value)),
            _ => Err(bad(text)),
        }
    }

    /// A string, from its first quote, or from the `r` before it.
    fn string(&mut self, start: usize, raw: bool) -> Result<Token, SyntaxError> {
        let open = || SyntaxError::new(start, "this string has no end");
        let Some((at, quote)) = self.rest.next() else { return Err(open()) };
        let triple = self.following(at).chars().take(2).filter(|c| *c == quote).count() == 2;
        if triple {
            self.rest.next();
            self.rest.next();
        }
        let mut text = String::new();
        loop {
            let Some((at, c)) = self.rest.next() else { return Err(open()) };
            if c == quote && !triple {
                return Ok(Token::Text(text));
            }
            let closes = self.following(at).chars().take(2).filter(|c| *c == quote).count() == 2;
            if c == quote && closes {
                self.rest.next();
                self.rest.next();
                return Ok(Token::Text(text));
            }
            match c {
                '\\' if !raw => text.push(self.escape(at)?),
                '\n' | '\r' if !triple => return Err(open()),
                _ => text.push(c),
            }
        }
    }

    /// The character that an escape stands for, after its backslash.
    fn escape(&mut self, at: usize) -> Result<char, SyntaxError> {
        let bad = || {
            SyntaxError::new(at, "unknown escape in a string").hint("write a backslash as `\\\\`")
        };
        let (_, c) = self.rest.next().ok_or_else(bad)?;
        Ok(match c {
            '\\' | '?' | '"' | '\'' | '`' => c,
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            'x' | 'X' => self.code(at, "", 2, 16)?,
            'u' => self.code(at, "", 4, 16)?,
            'U' => self.code(at, "", 8, 16)?,
            '0'..='3' => self.code(at, c.encode_utf8(&mut [0; 4]), 2, 8)?,
            _ => return Err(bad()),
        })
    }

    fn code(
        &mut self,
        at: usize,
        first: &str,
        digits: usize,
        radix: u32,
    ) -> Result<char, SyntaxError> {
        let mut text = first.to_owned();
        for _ in 0..digits {
            text.extend(self.rest.next_if(|(_, c)| c.is_digit(radix)).map(|(_, c)| c));
        }
        let complete = text.len() == first.len() + digits;
        u32::from_str_radix(&text, radix)
            .ok()
            .filter(|_| complete)
            .and_then(char::from_u32)
            .ok_or_else(|| SyntaxError::new(at, "this escape is not a character"))
    }
}

/// Where the expression that begins `text` meets the brace that closes it.
pub(in crate::job) fn closing_brace(text: &str) -> Result<usize, SyntaxError> {
    let mut lexer = Lexer::new(text);
    let mut open = 0_usize;
    loop {
        match lexer.next()? {
            (_, Token::Sign("{")) => open += 1,
            (at, Token::Sign("}")) => match open.checked_sub(1) {
                Some(less) => open = less,
                None => return Ok(at),
            },
            (_, Token::End) => {
                return Err(SyntaxError::new(0, "`${` has no closing `}`")
                    .hint("write `$${` for the characters themselves"));
            }
            _ => {}
        }
    }
}
