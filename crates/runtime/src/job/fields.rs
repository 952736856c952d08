//! Reading objects of a file field by field: unknown fields are refused, wrong types are named.

use gesta_core::body::ConfirmationMode;

use super::problem::{Place, Problem};
use super::tree::{Entry, Kind, Node};
use crate::duration::DurationMs;

/// An object and the fields it may have.
pub(super) struct Fields<'n> {
    pub(super) place: Place,
    entries: &'n [Entry],
}

impl<'n> Fields<'n> {
    /// An object with no other fields than these; `what` says what it is.
    pub(super) fn of(
        node: &'n Node,
        what: &str,
        known: &[&str],
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            problems.push(expected(node, what));
            return None;
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = format!("unknown key `{}` in {what}", entry.key);
            let problem = Problem::new(entry.place, message);
            problems.push(problem.did_you_mean(&entry.key, known.iter().copied()));
        }
        Some(Self { place: node.place, entries })
    }

    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(super) fn entry(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

pub(super) fn expected(node: &Node, what: &str) -> Problem {
    Problem::new(node.place, format!("expected {what}, found {}", node.type_name()))
}

pub(super) fn text<'n>(node: &'n Node, what: &str, problems: &mut Vec<Problem>) -> Option<&'n str> {
    match &node.kind {
        Kind::Text(text) => Some(text),
        _ => {
            problems.push(expected(node, what));
            None
        }
    }
}

/// An integer between two bounds, both included.
pub(super) fn integer(
    node: &Node,
    what: &str,
    least: u64,
    most: u64,
    problems: &mut Vec<Problem>,
) -> Option<u64> {
    let value = match node.kind {
        Kind::Int(value) => {
            u64::try_from(value).ok().filter(|value| (least..=most).contains(value))
        }
        _ => {
            problems.push(expected(node, what));
            return None;
        }
    };
    if value.is_none() {
        let message = format!("{what} must be between {least} and {most}");
        problems.push(Problem::new(node.place, message));
    }
    value
}

/// A length of time with its unit.
pub(super) fn duration(node: &Node, problems: &mut Vec<Problem>) -> Option<DurationMs> {
    let text = text(node, "a length of time such as `10s`", problems)?;
    text.parse().map_err(|error| problems.push(Problem::new(node.place, format!("{error}")))).ok()
}

/// A name that must be spelled as its type demands.
pub(super) fn name<T: std::str::FromStr<Err: std::fmt::Display>>(
    node: &Node,
    what: &str,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let text = text(node, what, problems)?;
    text.parse().map_err(|error| problems.push(Problem::new(node.place, format!("{error}")))).ok()
}

/// One of a few words, and what it stands for.
pub(super) fn one_of<T, const N: usize>(
    node: &Node,
    key: &str,
    known: [(&str, T); N],
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let words: Vec<String> = known.iter().map(|(word, _)| format!("`{word}`")).collect();
    let words = words.join(" or ");
    let given = text(node, &words, problems)?;
    let names = known.each_ref().map(|(word, _)| *word);
    let found = known.into_iter().find(|(word, _)| *word == given).map(|(_, value)| value);
    if found.is_none() {
        let problem = Problem::new(node.place, format!("unknown `{key}` `{given}`"));
        problems.push(problem.hint(format!("it is {words}")).did_you_mean(given, names));
    }
    found
}

/// What a mismatch between the world and what was recorded of it leads to.
pub(super) fn confirmation_mode(
    node: &Node,
    problems: &mut Vec<Problem>,
) -> Option<ConfirmationMode> {
    let known = [
        ("strict", ConfirmationMode::Strict),
        ("warn", ConfirmationMode::Warn),
        ("human", ConfirmationMode::Human),
    ];
    one_of(node, "confirm", known, problems)
}
