//! Splits Rust source into what the compiler reads and what people read, line by line.
//!
//! Just enough of Rust's grammar to tell code, comments and literals apart; it does not parse.

/// One line of a source file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The code; literals keep their quotes and lose their content.
    pub(super) code: String,
    /// The comments, with their markers.
    pub(super) comment: String,
}

pub(super) fn lines(source: &str) -> Vec<Line> {
    let mut lexer = Lexer { chars: source.chars().collect(), at: 0, lines: vec![Line::default()] };
    while let Some(next) = lexer.peek(0) {
        match (next, lexer.peek(1)) {
            ('/', Some('/')) => lexer.line_comment(),
            ('/', Some('*')) => lexer.block_comment(),
            ('"', _) => lexer.string(),
            ('r', Some('"' | '#')) if !lexer.in_word() => lexer.raw_string(),
            ('\'', _) => lexer.quote(),
            _ => lexer.code(),
        }
    }
    let mut lines = lexer.lines;
    if source.ends_with('\n') {
        lines.pop();
    }
    lines
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    lines: Vec<Line>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Whether the next character continues an identifier; `b` and `c` may stand before a raw string.
    fn in_word(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).and_then(|at| self.chars.get(at));
        let continues = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
        match before(1) {
            Some('b' | 'c') => continues(before(2)),
            other => continues(other),
        }
    }

    /// Moves past one character and gives it to `part` of the current line.
    fn take(&mut self, part: fn(&mut Line) -> Option<&mut String>) {
        let Some(next) = self.peek(0) else { return };
        self.at += 1;
        if next == '\n' {
            self.lines.push(Line::default());
        } else if let Some(text) = self.lines.last_mut().and_then(part) {
            text.push(next);
        }
    }

    fn code(&mut self) {
        self.take(|line| Some(&mut line.code));
    }

    fn comment(&mut self) {
        self.take(|line| Some(&mut line.comment));
    }

    fn skip(&mut self) {
        self.take(|_| None);
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|next| next != '\n') {
            self.comment();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(next) = self.peek(0) {
            match (next, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.comment();
                    continue;
                }
            }
            self.comment();
            self.comment();
            if depth == 0 {
                break;
            }
        }
    }

    fn string(&mut self) {
        self.code();
        loop {
            match self.peek(0) {
                None => return,
                Some('"') => return self.code(),
                Some('\\') => {
                    self.skip();
                    self.skip();
                }
                Some(_) => self.skip(),
            }
        }
    }

    /// A raw string, or a raw identifier, which stays code.
    fn raw_string(&mut self) {
        let hashes = (1..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        if self.peek(1 + hashes) != Some('"') {
            return self.code();
        }
        for _ in 0..hashes + 2 {
            self.code();
        }
        while let Some(next) = self.peek(0) {
            let closes = next == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if closes {
                (0..=hashes).for_each(|_| self.code());
                return;
            }
            self.skip();
        }
    }

    /// A character literal, or a lifetime, which stays code.
    fn quote(&mut self) {
        self.code();
        if self.peek(0) == Some('\\') {
            self.skip();
            self.skip();
            while self.peek(0).is_some_and(|next| next != '\'') {
                self.skip();
            }
            self.code();
        } else if self.peek(1) == Some('\'') {
            self.skip();
            self.code();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, code: &[&str], comment: &[&str]) {
        let lines = lines(source);
        assert_eq!(lines.iter().map(|l| l.code.as_str()).collect::<Vec<_>>(), code);
        assert_eq!(lines.iter().map(|l| l.comment.as_str()).collect::<Vec<_>>(), comment);
    }

    #[test]
    fn comments_leave_the_code() {
        check(
            "let a = 1; // one\n/* x /* y */\n z */ b\n",
            &["let a = 1; ", "", " b"],
            &["// one", "/* x /* y */", " z */"],
        );
    }

    #[test]
    fn literals_lose_their_content() {
        check(r#"f("// \" no", '"', '\'', 'a')"#, &["f(\"\", '', '', '')"], &[""]);
        check("r#\"a\" // {\"#; br\"{\"; r#type", &["r#\"\"#; br\"\"; r#type"], &[""]);
    }

    #[test]
    fn lifetimes_stay_code() {
        check("fn f<'a>(x: &'a str) {}", &["fn f<'a>(x: &'a str) {}"], &[""]);
    }

    #[test]
    fn a_string_over_several_lines_keeps_the_line_count() {
        check("\"a\n{\nb\" x\n", &["\"", "", "\" x"], &["", "", ""]);
    }
}
