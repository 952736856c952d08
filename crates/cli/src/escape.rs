//! Text that others wrote, made safe to look at: what would move the cursor, hide or reverse
//! characters is spelled out instead.

use std::fmt::Write as _;

/// One line: everything that cannot be seen is spelled out, new lines included.
pub(crate) fn visible(text: &str) -> String {
    spell(text, is_unseen)
}

/// As [`visible`], but lines stay lines.
pub(crate) fn visible_lines(text: &str) -> String {
    spell(text, |c| c != '\n' && is_unseen(c))
}

/// One line of at most `max` characters.
pub(crate) fn short(text: &str, max: usize) -> String {
    let shown = visible(text);
    if shown.chars().count() <= max {
        return shown;
    }
    let mut cut: String = shown.chars().take(max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// JSON text in which nothing hides: characters outside ASCII stand inside strings only, where an
/// escape means the same.
pub(crate) fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() || !is_unseen(c) {
            shown.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

fn spell(text: &str, unseen: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if unseen(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Controls, and characters that take no room, change direction or look like nothing.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        assert_eq!(visible("a\u{1b}[31mb"), "a\\u{1b}[31mb");
        assert_eq!(visible("pay\u{202e}yap\nx"), "pay\\u{202e}yap\\nx");
        assert_eq!(visible("naïve – 日本"), "naïve – 日本");
        assert_eq!(visible_lines("a\nb\t"), "a\nb\\t");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({ "a": "x\u{202e}\u{9b}\u{e0041}é\n" });
        let shown = json(&value.to_string());
        assert_eq!(shown, r#"{"a":"x\u202e\u009b\udb40\udc41é\n"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(short("abcd", 4), "abcd");
    }
}
