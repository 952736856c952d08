//! An answer in plain words, from what a decision's trace holds. Needs neither the policies nor the tools.

use gesta_core::document::Verdict;
use gesta_core::duration::DurationMs;
use gesta_core::policy::{Answer, Asking, Deciding, Requirement, Ruling};

/// What an answer comes to by itself: before evidence, budgets and the rest are looked at.
pub fn verdict(answer: &Answer) -> Verdict {
    let Answer { call, unattended, .. } = answer;
    if !call.allowed || !call.errors.is_empty() || !unattended.errors.is_empty() {
        Verdict::Deny
    } else if unattended.allowed {
        Verdict::Allow
    } else {
        Verdict::Escalate
    }
}

/// Why, one sentence a line.
pub fn explain(answer: &Answer) -> Vec<String> {
    let Answer { call, requires, unattended, asking } = answer;
    let mut lines = Vec::new();
    ruled(&mut lines, call, "it may be called", "it may not be called");
    if call.allowed {
        let (may, may_not) = ("it may be called unattended", "it may not be called unattended");
        ruled(&mut lines, unattended, may, may_not);
    }
    for Requirement { by, type_ } in requires {
        let by = by.as_ref().map(|tool| format!(" by `{tool}`")).unwrap_or_default();
        lines.push(format!("a `{type_}` must have been committed{by} before"));
    }
    if let Some(Asking { channels, quorum, reason, within_ms }) = asking {
        let channels: Vec<String> = channels.iter().map(|one| format!("`{one}`")).collect();
        let people =
            if *quorum == 1 { "one person".to_owned() } else { format!("{quorum} people") };
        let within = DurationMs::from_ms(*within_ms);
        lines.push(format!(
            "so {people} of {} must agree within {within}: {reason}",
            channels.join(", ")
        ));
    }
    lines
}

fn ruled(lines: &mut Vec<String>, ruling: &Ruling, may: &str, may_not: &str) {
    let Ruling { allowed, by, errors } = ruling;
    for error in errors {
        lines.push(format!("{may_not}, because something could not be evaluated: {error}"));
    }
    if !errors.is_empty() {
        return;
    }
    match (allowed, by.as_slice()) {
        (true, by) => lines.push(format!("{may}: {}", named(by, "allows", "allow"))),
        (false, []) => lines.push(format!("{may_not}: no policy allows it")),
        (false, by) => lines.push(format!("{may_not}: {}", named(by, "forbids", "forbid"))),
    }
}

fn named(by: &[Deciding], one: &str, many: &str) -> String {
    let verb = if by.len() == 1 { one } else { many };
    let name = |by: &Deciding| match by.annotations.get("reason") {
        Some(reason) => format!("`{}` ({reason})", by.id),
        None => format!("`{}`", by.id),
    };
    let names: Vec<String> = by.iter().map(name).collect();
    format!("{} {verb} it", names.join(", "))
}
