//! How long files and functions may be, and the ratchet that holds the exceptions.

use super::Finding;
use super::lexer::Line;
use super::rust::blocks;

pub(super) const RATCHET: &str = "xtask/src/tidy/ratchet.txt";
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// A file or function over its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Oversize {
    path: String,
    /// None for the file itself.
    function: Option<String>,
    line: usize,
    lines: usize,
}

impl Oversize {
    /// As the ratchet names it.
    fn key(&self) -> String {
        match &self.function {
            Some(function) => format!("{}::{function}", self.path),
            None => self.path.clone(),
        }
    }

    fn limit(&self) -> usize {
        if self.function.is_some() { FUNCTION_LINES_MAX } else { FILE_LINES_MAX }
    }
}

/// What of this file is over the general limits.
pub(super) fn measure(path: &str, lines: &[Line]) -> Vec<Oversize> {
    let file = Oversize { path: path.to_owned(), function: None, line: 1, lines: lines.len() };
    let functions = functions(lines).into_iter().map(|(name, line, lines)| Oversize {
        path: path.to_owned(),
        function: Some(name),
        line,
        lines,
    });
    [file].into_iter().chain(functions).filter(|size| size.lines > size.limit()).collect()
}

/// Compares what is over the limits with what the ratchet grants.
pub(super) fn judge(oversizes: &[Oversize], ratchet: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut granted = Vec::new();
    for (line, entry) in (1..).zip(ratchet.lines()) {
        if entry.starts_with('#') || entry.is_empty() {
            continue;
        }
        let parsed =
            entry.split_once(' ').and_then(|(key, limit)| Some((key, limit.parse().ok()?)));
        match parsed {
            Some((key, limit)) if oversizes.iter().any(|size| size.key() == key) => {
                granted.push((key, limit));
            }
            Some((key, _)) => {
                let what = format!("`{key}` is within the general limit or gone; delete the entry");
                findings.push(Finding::new(RATCHET, line, what));
            }
            None => {
                let what = format!("`{entry}` is not `PATH LIMIT` or `PATH::FUNCTION LIMIT`");
                findings.push(Finding::new(RATCHET, line, what));
            }
        }
    }
    for size in oversizes {
        let key = size.key();
        let entry = granted.iter().find(|(granted, _)| *granted == key);
        let limit = entry.map_or(size.limit(), |(_, limit)| *limit);
        if size.lines > limit {
            let thing = size.function.as_ref().map_or("file".to_owned(), |f| format!("`{f}`"));
            let what = format!("{thing} has {} lines, the limit is {limit}; split it", size.lines);
            findings.push(Finding::new(&size.path, size.line, what));
        }
    }
    findings
}

/// Name, first line and number of lines of each function that has a body.
fn functions(lines: &[Line]) -> Vec<(String, usize, usize)> {
    blocks(lines, function_name)
        .into_iter()
        .map(|(name, first, last)| (name, first, last - first + 1))
        .collect()
}

/// The function whose signature begins on this line.
fn function_name(code: &str) -> Option<String> {
    let (before, after) = code.split_once("fn ")?;
    if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::lexer;

    fn sample(body_lines: usize) -> String {
        let body = "    step(\"}\"); // }\n".repeat(body_lines);
        format!(
            "trait T {{\n    fn declared(&self, x: [u8; 2]);\n}}\nfn long(\n    f: fn(u8),\n) {{\n{body}}}\n"
        )
    }

    fn check(source: &str, ratchet: &str) -> Vec<String> {
        let oversizes = measure("a.rs", &lexer::lines(source));
        judge(&oversizes, ratchet).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        assert_eq!(functions(&lexer::lines(&sample(5))), [("long".to_owned(), 4, 9)]);
    }

    #[test]
    fn what_is_within_the_limits_passes() {
        assert_eq!(check(&sample(66), ""), Vec::<String>::new());
    }

    #[test]
    fn a_long_function_and_a_long_file_are_found() {
        assert_eq!(
            check(&sample(67), ""),
            ["a.rs:4: `long` has 71 lines, the limit is 70; split it"]
        );
        let findings = check(&"x();\n".repeat(601), "");
        assert_eq!(findings, ["a.rs:1: file has 601 lines, the limit is 600; split it"]);
    }

    #[test]
    fn the_ratchet_grants_up_to_its_limit() {
        assert_eq!(check(&sample(67), "# why\na.rs::long 71\n"), Vec::<String>::new());
        assert_eq!(
            check(&sample(68), "a.rs::long 71\n"),
            ["a.rs:4: `long` has 72 lines, the limit is 71; split it"]
        );
    }

    #[test]
    fn entries_without_need_or_sense_are_found() {
        let findings = check(&sample(5), "a.rs::long 71\nnonsense\n");
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("xtask/src/tidy/ratchet.txt:1: `a.rs::long` is within"));
        assert!(findings[1].contains("`nonsense` is not"));
    }
}
