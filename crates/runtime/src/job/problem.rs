//! What is wrong with a job file: where, what, and the remedy. Knows nothing of job files, but that tools may be missing.

use std::fmt;

use gesta_core::ids::ToolName;

/// A place in a file, both numbers counted from 1. The default is no place at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// Something to repair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, counted from 1; 0 if the problem is not in the file.
    pub line: u32,
    /// The character in that line, counted from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

const UNKNOWN_TOOL: &str = "unknown tool";

impl Problem {
    pub(super) fn unknown_tool(place: Place, name: &ToolName) -> Self {
        Self::new(place, format!("{UNKNOWN_TOOL} `{name}`"))
    }

    pub(super) fn new(place: Place, message: impl Into<String>) -> Self {
        Self { line: place.line, column: place.column, message: message.into(), hint: None }
    }

    /// A problem whose place is told later, or that is not in the file.
    pub(super) fn anywhere(message: impl Into<String>) -> Self {
        Self::new(Place::default(), message)
    }

    pub(super) fn at(self, place: Place) -> Self {
        Self { line: place.line, column: place.column, ..self }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same problem, and what it is about.
    pub(super) fn about(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Adds the nearest of the names that would have been right, if one is near.
    pub(super) fn did_you_mean<'a>(
        self,
        given: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        match nearest(given, names) {
            Some(name) => self.hint(format!("did you mean `{name}`?")),
            None => self,
        }
    }
}

/// How many problems are looked for: nobody repairs more at a time, and suggestions cost.
const MAX_PROBLEMS: usize = 100;

/// Whether there are so many problems that looking for more is no use.
pub(super) fn enough(problems: &[Problem]) -> bool {
    problems.len() >= MAX_PROBLEMS
}

/// Everything that is wrong with one file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The name of the file.
    pub label: String,
    /// The problems, at least one.
    pub list: Vec<Problem>,
}

impl Problems {
    /// Nothing if the list is empty; else all of it, sorted.
    pub(super) fn check(label: &str, mut list: Vec<Problem>) -> Result<(), Self> {
        if list.is_empty() {
            return Ok(());
        }
        list.sort();
        list.dedup();
        Err(Self { label: label.to_owned(), list })
    }

    pub(super) fn one(label: &str, problem: Problem) -> Self {
        Self { label: label.to_owned(), list: vec![problem] }
    }

    /// Whether a tool is missing: then more is to be said than a file can tell.
    pub fn miss_a_tool(&self) -> bool {
        self.list.iter().any(|problem| problem.message.starts_with(UNKNOWN_TOOL))
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            let Problem { line, column, message, hint } = problem;
            match line {
                0 => write!(f, "{}: {message}", self.label)?,
                _ => write!(f, "{}:{line}:{column}: {message}", self.label)?,
            }
            if let Some(hint) = hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

/// The name that is nearest to the given one: at most a third of its characters away, and of two
/// characters one.
pub(super) fn nearest<'a>(
    given: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Names are short; what is longer is no slip of the fingers.
    if given.len() > 128 {
        return None;
    }
    let reach = match given.chars().count() {
        0 | 1 => return None,
        2 => 1,
        length => length / 3,
    };
    names
        .into_iter()
        .filter(|name| name.len() <= 128)
        .map(|name| (distance(given, name), name))
        .filter(|(distance, _)| *distance <= reach)
        .min()
        .map(|(_, name)| name)
}

/// How many insertions, deletions, replacements and swaps of neighbours lie between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut last = None;
    for (i, from) in a.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        let mut left = i + 1;
        for (j, to) in b.iter().enumerate() {
            let at =
                |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
            let replaced = at(&row, j) + usize::from(from != *to);
            let mut best = replaced.min(left + 1).min(at(&row, j + 1) + 1);
            let swapped = j > 0 && last == Some(*to) && b.get(j - 1) == Some(&from);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
            left = best;
        }
        before = std::mem::replace(&mut row, next);
        last = Some(from);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["orders.read", "orders.write", "mail.send"];
        assert_eq!(nearest("orders.raed", names), Some("orders.read"));
        assert_eq!(nearest("mail.sent", names), Some("mail.send"));
        assert_eq!(nearest("payments.refund", names), None);
        assert_eq!(nearest("stesp", ["steps", "input"]), Some("steps"));
        assert_eq!(nearest("on", ["one", "two"]), Some("one"));
        assert_eq!(nearest("a", ["b", "ab"]), None);
    }

    #[test]
    fn problems_read_as_a_compiler_would_print_them() {
        let place = Place { line: 12, column: 5 };
        let list = vec![
            Problem::new(place, "unknown tool `x`").hint("did you mean `y`?"),
            Problem::new(Place::default(), "input `order` is missing"),
        ];
        let problems = Problems::check("job.yaml", list).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "job.yaml: input `order` is missing\njob.yaml:12:5: unknown tool `x`\n  hint: did you mean `y`?"
        );
    }
}
