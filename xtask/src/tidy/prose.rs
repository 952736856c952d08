//! Words that comments may not contain: they speak of plans and of the past, not of the code.

use super::Finding;
use super::lexer::Line;

const HASTY: [&str; 3] = ["for now", "previously", "no longer"];
const MARKERS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

pub(super) fn check_rust(path: &str, lines: &[Line]) -> Vec<Finding> {
    let comments = lines.iter().map(|line| line.comment.as_str());
    check(path, comments)
}

/// Files whose comments begin with `#` or `--`, by their name.
pub(super) fn check_script(path: &str, content: &str) -> Vec<Finding> {
    let marker = match path.rsplit_once('.') {
        Some((_, "sql")) => "--",
        Some((_, "sh" | "toml")) => "#",
        _ if path == ".ci/run" => "#",
        _ => return Vec::new(),
    };
    let comments = content.lines().map(|line| line.find(marker).and_then(|at| line.get(at..)));
    check(path, comments.map(Option::unwrap_or_default))
}

fn check<'a>(path: &str, comments: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let numbered = (1..).zip(comments);
    numbered
        .filter_map(|(number, comment)| {
            let word = forbidden(comment)?;
            let what = format!("`{word}` in a comment; say why the code is as it is, or do it");
            Some(Finding::new(path, number, what))
        })
        .collect()
}

fn forbidden(comment: &str) -> Option<String> {
    if let Some(marker) = MARKERS.iter().find(|marker| has_word(comment, marker)) {
        return Some((*marker).to_owned());
    }
    // A bound is not a memory: "no longer than 64 bytes".
    let lower = comment.to_lowercase().replace("no longer than", "");
    if let Some(words) = HASTY.iter().find(|words| has_word(&lower, words)) {
        return Some((*words).to_owned());
    }
    let numbered = lower.split("phase ").skip(1);
    let numbers = numbered.filter_map(|rest| rest.chars().next().filter(char::is_ascii_digit));
    numbers.map(|digit| format!("phase {digit}")).next()
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().last());
        let after = text.get(at + word.len()..).and_then(|after| after.chars().next());
        [before, after].iter().flatten().all(|c| !c.is_alphanumeric() && *c != '_')
    })
}

#[cfg(test)]
mod tests {
    use super::super::lexer;
    use super::*;

    fn check_rust(source: &str) -> Vec<String> {
        let findings = super::check_rust("a.rs", &lexer::lines(source));
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn hasty_comments_are_found() {
        for (comment, word) in [
            ("// TODO: sort", "TODO"),
            ("/// For now unsorted", "for now"),
            ("/* Phase 2 sorts */", "phase 2"),
            ("// previously a list", "previously"),
            ("//! is no longer a list", "no longer"),
        ] {
            let findings = check_rust(&format!("let a = 1;\nlet b = 2; {comment}\n"));
            assert_eq!(findings.len(), 1, "{comment}");
            assert!(
                findings[0].starts_with(&format!("a.rs:2: `{word}` in a comment")),
                "{findings:?}"
            );
        }
    }

    #[test]
    fn code_strings_and_harmless_words_pass() {
        let source = "let todo = \"TODO for now\"; // no longer than 64 bytes, in this phase\n// for nowhere\n";
        assert_eq!(check_rust(source), Vec::<String>::new());
    }

    #[test]
    fn scripts_and_settings_are_read_too() {
        assert_eq!(check_script("a.toml", "x = 1 # FIXME\n").len(), 1);
        assert_eq!(check_script("a.sql", "SELECT 1; -- for now\n").len(), 1);
        assert_eq!(check_script("a.json", "# TODO\n").len(), 0);
        assert_eq!(check_script("a.sh", "# sorted\n").len(), 0);
    }
}
