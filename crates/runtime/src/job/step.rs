//! One step of a job file.

use std::num::NonZeroU32;

use gesta_core::body::ConfirmationMode;
use gesta_core::ids::{StepId, ToolName};

use super::delegate::{self, Delegate};
use super::fields::{Fields, confirmation_mode, duration, expected, integer, name, one_of, text};
use super::located::{Located, Slot, Source, condition};
use super::problem::{Place, Problem};
use super::spec::{ANSWER, OnCancel};
use super::tree::{Entry, Kind, Node};
use crate::tools::Retry;

/// The longest id of a step: the steps of a fan-out have theirs below it.
const MAX_ID: usize = 100;

/// How often a call may be tried.
const MAX_ATTEMPTS: u64 = 100;

/// A step as it stands in the file.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) id: StepId,
    pub(super) place: Place,
    pub(super) when: Option<Slot>,
    pub(super) confirm: Option<ConfirmationMode>,
    /// The steps that `needs` names, and where.
    pub(super) needs: Vec<(StepId, Place)>,
    pub(super) work: Work,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    Call(Box<Call>),
    Set(Located),
    Wait { signal: Option<Located>, until: Option<Located>, for_ms: Option<u64> },
    Delegate(Box<Delegate>),
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) tool: ToolName,
    pub(super) tool_place: Place,
    pub(super) args: Located,
    pub(super) each: Option<Located>,
    /// Whether the file says `each`, even if what it says cannot be read.
    pub(super) fans_out: bool,
    pub(super) retry: Option<Retry>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) on_cancel: OnCancel,
    pub(super) on_cancel_place: Place,
    pub(super) undo: Undo,
}

/// How a call is undone.
#[derive(Clone, Debug)]
pub(super) enum Undo {
    /// As its tool says.
    AsDeclared,
    /// Not at all.
    None,
    /// By this call.
    Call { tool: ToolName, tool_place: Place, args: Located },
}

const KEYS: [&str; 14] = [
    "id",
    "tool",
    "args",
    "set",
    "wait",
    "delegate",
    "each",
    "when",
    "retry",
    "timeout",
    "on_cancel",
    "compensate",
    "confirm",
    "needs",
];

/// The keys that only a call has.
const CALL_KEYS: [&str; 6] = ["args", "each", "retry", "timeout", "on_cancel", "compensate"];

/// Reads a step. Its id is handed over even if the rest cannot be read, so that references to it are
/// not taken for mistakes.
pub(super) fn read(
    node: &Node,
    source: &Source,
    problems: &mut Vec<Problem>,
) -> (Option<StepId>, Option<Step>) {
    let Some(fields) = Fields::of(node, "a step", &KEYS, problems) else { return (None, None) };
    let id = id(&fields, problems);
    let when = fields.get("when").and_then(|node| condition(node, source, problems));
    let needs = fields.get("needs").map(|node| needs(node, problems)).unwrap_or_default();
    let confirm = fields.get("confirm").and_then(|node| confirmation_mode(node, problems));
    let work = work(&fields, source, problems);
    let Some((id, place)) = id else { return (None, None) };
    let step = work.map(|work| Step { id: id.clone(), place, when, confirm, needs, work });
    (Some(id), step)
}

fn id(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<(StepId, Place)> {
    let Some(node) = fields.get("id") else {
        problems.push(Problem::new(fields.place, "this step has no `id`"));
        return None;
    };
    let given = text(node, "the id of a step", problems)?;
    let id = given.parse::<StepId>().ok().filter(|id| id.is_node() && given.len() <= MAX_ID);
    let Some(id) = id else {
        let problem = Problem::new(node.place, format!("`{given}` is not the id of a step"));
        problems.push(problem.hint(format!("use at most {MAX_ID} of `a-z`, `0-9`, `_` and `-`")));
        return None;
    };
    if given == ANSWER {
        let problem = Problem::new(node.place, "the id `answer` is reserved");
        problems.push(problem.hint("say what the job answers under the key `answer` of the job"));
        return None;
    }
    Some((id, node.place))
}

fn needs(node: &Node, problems: &mut Vec<Problem>) -> Vec<(StepId, Place)> {
    let Kind::List(nodes) = &node.kind else {
        problems.push(expected(node, "a list of steps"));
        return Vec::new();
    };
    let read = |node: &Node| Some((name(node, "the id of a step", problems)?, node.place));
    nodes.iter().filter_map(read).collect()
}

fn work(fields: &Fields<'_>, source: &Source, problems: &mut Vec<Problem>) -> Option<Work> {
    let kinds = ["tool", "set", "wait", "delegate"].map(|key| fields.entry(key));
    let found: Vec<&Entry> = kinds.into_iter().flatten().collect();
    let entry = match found.as_slice() {
        [entry] => *entry,
        [] => {
            let problem = Problem::new(fields.place, "this step does nothing");
            problems.push(problem.hint("give it one of `tool`, `set`, `wait` and `delegate`"));
            return None;
        }
        [_, second, ..] => {
            let message = format!(
                "a step has one of `tool`, `set`, `wait` and `delegate`; this one has `{}` too",
                second.key
            );
            problems.push(Problem::new(second.place, message).hint("make it two steps"));
            return None;
        }
    };
    if entry.key == "tool" {
        return call(fields, &entry.value, source, problems).map(|call| Work::Call(Box::new(call)));
    }
    let fans_out = |key: &str| key == "each" && entry.key == "delegate";
    let keys = CALL_KEYS.into_iter().filter(|key| !fans_out(key));
    for misplaced in keys.filter_map(|key| fields.entry(key)) {
        let message =
            format!("`{}` belongs to a call, and this step has `{}`", misplaced.key, entry.key);
        problems.push(Problem::new(misplaced.place, message));
    }
    match entry.key.as_str() {
        "set" => Located::read(&entry.value, source, problems).map(Work::Set),
        "delegate" => {
            let fans_out = fields.get("each").is_some();
            let each = fields.get("each").and_then(|node| each(node, source, problems));
            let mut delegate = delegate::read(&entry.value, source, problems)?;
            (delegate.each, delegate.fans_out) = (each, fans_out);
            Some(Work::Delegate(Box::new(delegate)))
        }
        _ => wait(&entry.value, source, problems),
    }
}

fn call(
    fields: &Fields<'_>,
    tool: &Node,
    source: &Source,
    problems: &mut Vec<Problem>,
) -> Option<Call> {
    let name = name(tool, "the name of a tool", problems);
    let args = args(fields, source, problems);
    let each = fields.get("each").and_then(|node| each(node, source, problems));
    let retry = fields.get("retry").and_then(|node| retry(node, problems));
    let timeout_ms = fields.get("timeout").and_then(|node| positive(node, problems));
    let on_cancel = fields.get("on_cancel");
    let on_cancel_place = on_cancel.map_or(fields.place, |node| node.place);
    let on_cancel = on_cancel.and_then(|node| {
        let known = [("finish", OnCancel::Finish), ("stop", OnCancel::Stop)];
        one_of(node, "on_cancel", known, problems)
    });
    let undo = fields.get("compensate").and_then(|node| undo(node, source, problems));
    Some(Call {
        tool: name?,
        tool_place: tool.place,
        args: args?,
        each,
        fans_out: fields.get("each").is_some(),
        retry,
        timeout_ms,
        on_cancel: on_cancel.unwrap_or_default(),
        on_cancel_place,
        undo: undo.unwrap_or(Undo::AsDeclared),
    })
}

fn undo(node: &Node, source: &Source, problems: &mut Vec<Problem>) -> Option<Undo> {
    if matches!(&node.kind, Kind::Text(text) if text == "none") {
        return Some(Undo::None);
    }
    if !matches!(node.kind, Kind::Map(_)) {
        problems.push(expected(node, "`none`, or the `tool` that undoes the call and its `args`"));
        return None;
    }
    let fields = Fields::of(node, "`compensate`", &["tool", "args"], problems)?;
    let Some(tool) = fields.get("tool") else {
        let problem = Problem::new(fields.place, "`compensate` has no `tool`");
        problems.push(problem.hint("name the tool that undoes this call, or write `none`"));
        return None;
    };
    let args = args(&fields, source, problems);
    let name = name(tool, "the name of a tool", problems);
    Some(Undo::Call { tool: name?, tool_place: tool.place, args: args? })
}

fn args(fields: &Fields<'_>, source: &Source, problems: &mut Vec<Problem>) -> Option<Located> {
    let Some(node) = fields.get("args") else {
        let node = Node { place: fields.place, span: (0, 0), kind: Kind::Map(Vec::new()) };
        return Located::read(&node, source, problems);
    };
    let located = Located::read(node, source, problems)?;
    if matches!(node.kind, Kind::Map(_)) || located.is_expression() {
        return Some(located);
    }
    problems.push(expected(node, "arguments: an object, or one `${…}` that yields one"));
    None
}

fn each(node: &Node, source: &Source, problems: &mut Vec<Problem>) -> Option<Located> {
    let located = Located::read(node, source, problems)?;
    if matches!(node.kind, Kind::List(_)) || located.is_expression() {
        return Some(located);
    }
    problems.push(expected(node, "what to go through: a list, or one `${…}` that yields one"));
    None
}

fn retry(node: &Node, problems: &mut Vec<Problem>) -> Option<Retry> {
    let fields =
        Fields::of(node, "`retry`", &["attempts", "backoff", "max_backoff", "factor"], problems)?;
    let mut retry = Retry::default();
    let count = |key: &str, most: u64, problems: &mut Vec<Problem>| {
        let value = integer(fields.get(key)?, &format!("`{key}`"), 1, most, problems)?;
        u32::try_from(value).ok().and_then(NonZeroU32::new)
    };
    retry.attempts = count("attempts", MAX_ATTEMPTS, problems).unwrap_or(retry.attempts);
    retry.factor = count("factor", 100, problems).unwrap_or(retry.factor);
    let backoff = fields.get("backoff").and_then(|node| duration(node, problems));
    retry.backoff = backoff.unwrap_or(retry.backoff);
    let longest = fields.get("max_backoff").and_then(|node| duration(node, problems));
    retry.max_backoff = longest.unwrap_or(retry.max_backoff.max(retry.backoff));
    if let Some(longest) = fields.get("max_backoff")
        && retry.max_backoff < retry.backoff
    {
        problems.push(Problem::new(longest.place, "`max_backoff` is shorter than `backoff`"));
    }
    Some(retry)
}

fn positive(node: &Node, problems: &mut Vec<Problem>) -> Option<u64> {
    let ms = duration(node, problems)?.ms();
    if ms == 0 {
        problems.push(Problem::new(node.place, "this must be longer than no time at all"));
        return None;
    }
    Some(ms)
}

fn wait(node: &Node, source: &Source, problems: &mut Vec<Problem>) -> Option<Work> {
    let fields = Fields::of(node, "`wait`", &["signal", "timeout", "until", "for"], problems)?;
    let signal = fields.entry("signal");
    let ends: Vec<&Entry> =
        ["timeout", "until", "for"].into_iter().filter_map(|key| fields.entry(key)).collect();
    let refuse = |place: Place, message: &str, hint: &str| Problem::new(place, message).hint(hint);
    match (signal, ends.as_slice()) {
        (_, [_, second, ..]) => {
            let message = format!("`wait` ends once, so not by `{}` too", second.key);
            problems.push(Problem::new(second.place, message));
            return None;
        }
        (None, []) => {
            problems.push(refuse(
                fields.place,
                "this waits for nothing",
                "give it `signal`, `for` or `until`",
            ));
            return None;
        }
        (None, [end]) if end.key == "timeout" => {
            problems.push(refuse(
                end.place,
                "`timeout` without `signal`",
                "to wait for a time, write `for`",
            ));
            return None;
        }
        (Some(_), [end]) if end.key == "for" => {
            problems.push(refuse(
                end.place,
                "`for` beside `signal`",
                "to limit the wait for a signal, write `timeout`",
            ));
            return None;
        }
        _ => {}
    }
    let for_ms = ends.iter().find(|end| end.key != "until");
    let for_ms = for_ms.and_then(|end| positive(&end.value, problems));
    let until = fields.get("until").and_then(|node| moment(node, source, problems));
    let signal = signal.and_then(|entry| {
        text(&entry.value, "the key of a signal", problems)?;
        Located::read(&entry.value, source, problems)
    });
    Some(Work::Wait { signal, until, for_ms })
}

fn moment(node: &Node, source: &Source, problems: &mut Vec<Problem>) -> Option<Located> {
    let located = Located::read(node, source, problems)?;
    if matches!(node.kind, Kind::Int(0..)) || located.is_expression() {
        return Some(located);
    }
    problems
        .push(expected(node, "a time: milliseconds since 1970, or one `${…}` that yields them"));
    None
}
