//! What was observed, in words: the table of `docs/guarantees.md`, and whether the document has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::case::{CLASSES, Case, Class, Kind, Mode};
use crate::scene::Played;

const BEGIN: &str = "<!-- crash matrix: written by the test, GESTA_BLESS=1 writes it again -->";
const REPORT_ENDS: &str = "its report ends the doubt";
const REPORT_LATE: &str = "its report comes late";
const END: &str = "<!-- end of the crash matrix -->";

/// What the chain held when the first worker was cut off.
fn held<'a>(case: &Case, played: &'a Played) -> &'a [Value] {
    let entries = &played.entries;
    if case.mode == Mode::Spare {
        let started = entries.iter().position(|entry| entry["kind"] == "started").unwrap();
        return &entries[..=started];
    }
    let second = entries.iter().position(|entry| {
        entry["by"]["worker"].as_str().is_some_and(|worker| worker.starts_with("second-"))
    });
    &entries[..second.unwrap_or(entries.len())]
}

fn kinds(entries: &[Value]) -> String {
    let names: Vec<String> =
        entries.iter().map(|entry| format!("`{}`", entry["kind"].as_str().unwrap())).collect();
    if names.is_empty() { "–".to_owned() } else { names.join(" ") }
}

/// What followed, in words, for each step that had no result yet; what steps have in common is said
/// once.
fn story(case: &Case, played: &Played) -> String {
    let before = held(case, played);
    let after = &played.entries[before.len()..];
    if before.iter().any(|entry| entry["kind"] == "completed") {
        return "nothing is left to do".to_owned();
    }
    let mut steps: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (entry, new) in
        before.iter().map(|entry| (entry, false)).chain(after.iter().map(|e| (e, true)))
    {
        let Some(step) = step_of(&entry["body"]) else { continue };
        let told = steps.entry(step).or_default();
        if entry["kind"] == "started" && !new {
            told.push("");
        } else if new && let Some(what) = said(case, entry, !told.is_empty()) {
            told.push(what);
        }
    }
    let told = steps.into_values().map(|mut told| {
        // A report that has ended a doubt may be found once more before it leaves the inbox.
        let used = told.contains(&REPORT_ENDS);
        told.retain(|what| !(what.is_empty() || used && *what == REPORT_LATE));
        told.join(", ")
    });
    let mut told: Vec<String> = told.filter(|told| !told.is_empty()).collect();
    told.dedup();
    told.join(" – next item: ")
}

fn step_of(body: &Value) -> Option<&str> {
    [&body["step"], &body["proposal"]["step"]].into_iter().find_map(Value::as_str)
}

/// What an entry means for its step.
fn said(case: &Case, entry: &Value, begun: bool) -> Option<&'static str> {
    let body = &entry["body"];
    Some(match entry["kind"].as_str().unwrap() {
        "started" if begun => "sent again",
        "started" => "sent",
        "in_doubt" => "in doubt",
        "resolution" => resolved(&body["statement"]["doc"]),
        // A safe call that lost its worker is abandoned: whether it still reports is a matter of luck.
        "late_effect" if case.class != Class::Safe => REPORT_LATE,
        "commit" if !body["origin"]["effect"]["evidence"].is_null() => "committed from its report",
        // A fan-out all of whose items wait says so: the items have told it.
        "waiting" if case.kind != Kind::Each => "waits",
        "timer" => "its time comes",
        "commit" if case.kind == Kind::Set && body["step"] == "a" => "computed",
        _ => return None,
    })
}

fn resolved(statement: &Value) -> &'static str {
    let happened = statement["verdict"]["happened"].is_object();
    match (statement["source"].as_str().unwrap_or_default(), happened) {
        ("probe", true) => "the probe has it",
        ("probe", false) => "the probe denies it",
        ("inbox", _) => REPORT_ENDS,
        (_, true) => "an operator has seen it",
        (_, false) => "an operator denies it",
    }
}

/// The most effects that one item has had.
fn effects(played: &Played) -> String {
    match played.at_end.values().max() {
        Some(most) => format!(": **{most}**"),
        None => String::new(),
    }
}

type Row = (usize, String, String);

const TITLES: [(Mode, &str); 3] = [
    (Mode::Kill, "### Killed with SIGKILL, another worker takes over"),
    (Mode::Freeze, "### Frozen with SIGSTOP past its lease, another worker takes over, woken"),
    (Mode::Spare, "### Nobody dies, but the tool does not answer before its deadline"),
];

/// All tables.
pub(crate) fn write(played: &BTreeMap<Case, Played>) -> String {
    let mut text = String::new();
    for (mode, title) in TITLES {
        writeln!(text, "{title}\n").unwrap();
        let of = |fits: &dyn Fn(Kind) -> bool| {
            rows(played.iter().filter(|(case, _)| case.mode == mode && fits(case.kind)))
        };
        let calls = of(&|kind| kind.items() > 0);
        writeln!(
            text,
            "| cut | the chain holds | safe | keyed | keyed_concurrent | probe | never |"
        )
        .unwrap();
        writeln!(text, "| --- | --- | --- | --- | --- | --- | --- |").unwrap();
        for ((_, cut, chain), cells) in &calls {
            let cell = |class: &Class| {
                let cell = cells.get(class).map(|told| told.iter().cloned().collect::<Vec<_>>());
                cell.map_or_else(String::new, |told| told.join("; "))
            };
            let cells: Vec<String> = CLASSES.iter().map(cell).collect();
            writeln!(text, "| {cut} | {chain} | {} |", cells.join(" | ")).unwrap();
        }
        writeln!(text).unwrap();
        if mode == Mode::Spare {
            continue;
        }
        writeln!(text, "| step | cut | the chain holds | what resuming does |").unwrap();
        writeln!(text, "| --- | --- | --- | --- |").unwrap();
        for kind in [Kind::Set, Kind::Wait] {
            for ((_, cut, chain), cells) in &of(&|other| other == kind) {
                let told: Vec<String> = cells.values().flatten().cloned().collect();
                writeln!(text, "| {} | {cut} | {chain} | {} |", kind.name(), told.join("; "))
                    .unwrap();
            }
        }
        writeln!(text).unwrap();
    }
    text
}

/// One row for each cut and chain, and what each class came to.
fn rows<'a>(
    played: impl Iterator<Item = (&'a Case, &'a Played)>,
) -> BTreeMap<Row, BTreeMap<Class, BTreeSet<String>>> {
    let mut rows: BTreeMap<Row, BTreeMap<Class, BTreeSet<String>>> = BTreeMap::new();
    for (case, played) in played {
        let (row, told) = row(case, played);
        rows.entry(row).or_default().entry(case.class).or_default().insert(told);
    }
    rows
}

/// The row that a case stands in, and what it came to.
fn row(case: &Case, played: &Played) -> (Row, String) {
    let name = case.cut.text();
    let name = if case.cut.is_point() { format!("`{name}`") } else { name };
    let name = if case.kind == Kind::Each { format!("{name}, in a fan-out") } else { name };
    let told = format!("{}{}", story(case, played), effects(played));
    ((case.cut.order(), name, kinds(held(case, played))), told)
}

/// The document, and in it the tables.
pub(crate) struct Document {
    path: PathBuf,
    head: String,
    tables: String,
    tail: String,
    /// Whether it is given what is seen, instead of being compared with it.
    is_written: bool,
}

impl Document {
    pub(crate) fn read() -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guarantees.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = text.split_once(BEGIN).expect("the document has the first marker");
        let (tables, tail) = rest.split_once(END).expect("the document has the second marker");
        let is_written = std::env::var_os("GESTA_BLESS").is_some();
        Self { head: head.into(), tables: tables.into(), tail: tail.into(), path, is_written }
    }

    /// Whether it tells of a case what was seen.
    pub(crate) fn tells(&self, case: &Case, played: &Played) -> bool {
        let ((_, cut, chain), told) = row(case, played);
        let (begins, column) = if case.kind.items() > 0 {
            (format!("| {cut} | {chain} |"), CLASSES.iter().position(|it| *it == case.class))
        } else {
            (format!("| {} | {cut} | {chain} |", case.kind.name()), Some(0))
        };
        let (_, title) = TITLES.iter().find(|(mode, _)| *mode == case.mode).unwrap();
        let rows = self.tables.lines().skip_while(|line| line != title).skip(1);
        let mut rows = rows.take_while(|line| !line.starts_with('#'));
        let cells = rows.find_map(|row| row.strip_prefix(&begins)).unwrap_or_default();
        let cell = column.and_then(|column| cells.split('|').nth(column));
        self.is_written || cell.is_some_and(|cell| cell.trim() == told)
    }

    /// That it has these tables.
    pub(crate) fn check(&self, tables: &str) {
        let tables = format!("\n\n{tables}");
        if self.is_written {
            let text = [&self.head, BEGIN, &tables, END, &self.tail].concat();
            std::fs::write(&self.path, text).unwrap();
        } else {
            assert_eq!(
                self.tables, tables,
                "docs/guarantees.md differs; GESTA_BLESS=1 writes it again"
            );
        }
    }
}
