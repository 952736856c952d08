//! One line for each kind of entry. The words come from the entry and are not made safe here.

use gesta_core::amounts::{Amounts, Span};
use gesta_core::body::{
    Branch, Check, Commit, Confirmation, Delegation, Delivered, Delivery, Failure, Origin,
    PendingApproval, Proposal, Purpose, Rejection, Root, Started, Waiting,
};
use gesta_core::content::Content;
use gesta_core::document::{
    CallResult, Failing, FreezeTarget, RegistryItem, ResolutionStatement, ResolutionVerdict,
    Threshold,
};
use gesta_core::entry::Body;
use gesta_core::trust::TrustedKey;
use serde::Serialize;

use crate::moment;
use crate::sight::hidden;

/// How much of a value is shown.
const VALUE_LENGTH: usize = 60;

/// What an entry says, in one line.
pub(super) fn summary(body: &Body) -> String {
    match body {
        Body::Root(root) => of_root(root),
        Body::Branch(branch) => of_branch(branch),
        Body::Plan(plan) => {
            let steps: Vec<&str> = plan.steps.iter().map(|step| step.id.as_str()).collect();
            format!("{}; plan {}", cut(&steps.join(", ")), brief(&plan.hash))
        }
        Body::Attempt(attempt) => attempt.note.clone(),
        Body::Started(started) => of_started(started),
        Body::Commit(commit) => of_commit(commit),
        Body::Failure(failure) => of_failure(failure),
        Body::Rejection(rejection) => of_rejection(rejection),
        Body::PendingApproval(pending) => of_pending(pending),
        Body::Approval(approval) => {
            let said = approval.statement.doc();
            format!(
                "{} by {} until {}",
                word(&said.verdict),
                said.approver,
                moment::utc(said.expires)
            )
        }
        Body::InDoubt(doubt) => failing(&doubt.known),
        Body::Resolution(resolution) => of_resolution(resolution.statement.doc()),
        Body::LateEffect(late) => format!("arrived late: {}", result(&late.report.doc().result)),
        Body::Confirmation(confirmation) => of_confirmation(confirmation),
        Body::Compensation(compensation) => {
            let steps: Vec<&str> =
                compensation.undo.iter().map(|undo| undo.step.as_str()).collect();
            format!("undo {}: {}", cut(&steps.join(", ")), compensation.reason)
        }
        Body::Waiting(waiting) => of_waiting(waiting),
        Body::Signal(signal) => {
            format!("`{}` ({}) {}", signal.key, signal.id, value(&signal.payload))
        }
        Body::Timer(_) => "the time has come".to_owned(),
        Body::Delegation(delegation) => of_delegation(delegation),
        Body::DelegationResult(result) => format!(
            "{} {}: {}; {}",
            result.child,
            word(&result.end),
            value(&result.answer),
            cost(&result.spent)
        ),
        Body::Delivered(delivered) => of_delivered(delivered),
        Body::Checkpoint(checkpoint) => format!("world {}", brief(&checkpoint.world)),
        Body::Registration(registration) => {
            let statement = registration.statement.doc();
            let note = statement.note.iter().map(|note| format!(": {}", cut(note)));
            format!("{}{}", of_item(&statement.item), note.collect::<String>())
        }
        Body::Erased(erased) => format!("{}: {}", brief(&erased.what), erased.reason),
        Body::CancelRequested(request) => match request.compensate {
            true => format!("{}; undo what was done", request.reason),
            false => format!("{}; leave what was done", request.reason),
        },
        Body::Completed(done) => format!("{}; run {}", value(&done.answer), brief(&done.run_hash)),
        Body::Failed(stopped) | Body::Cancelled(stopped) => {
            format!("{}; run {}", failing(&stopped.error), brief(&stopped.run_hash))
        }
    }
}

fn of_root(root: &Root) -> String {
    match &root.purpose {
        Purpose::Job(mandate) => format!("job for {}: {}", root.principal, value(&mandate.input)),
        Purpose::Session(mandate) => {
            format!("session for {}: {}", root.principal, value(&mandate.input))
        }
        Purpose::Registry { owner } => format!("registry owned by key {}", brief(owner)),
    }
}

fn of_branch(branch: &Branch) -> String {
    format!(
        "from {} of {} ({}): {}",
        brief(&branch.source_commit),
        branch.source,
        word(&branch.mode),
        branch.note
    )
}

fn of_started(started: &Started) -> String {
    let permit = started.permit.doc();
    let mut text = format!(
        "{}; {}, recovery {}",
        call(&started.proposal),
        permit.effect,
        word(&permit.recovery)
    );
    if permit.generation > 1 {
        text.push_str(&format!("; generation {}", permit.generation));
    }
    if let Some(commit) = &started.compensates {
        text.push_str(&format!("; undoes {}", brief(commit)));
    }
    text
}

fn of_commit(commit: &Commit) -> String {
    let how = match &commit.origin {
        Origin::Effect { .. } => word(&commit.outcome),
        Origin::Computed => "computed".to_owned(),
        Origin::Skipped => "skipped".to_owned(),
        Origin::Woken { by } => format!("woken by {}", brief(by)),
        Origin::RecordedFrom { commit, .. } => format!("recorded from {}", brief(commit)),
    };
    let mut text = format!("{how}: {}", value(&commit.observation));
    if commit.cost != Amounts::default() {
        text.push_str(&format!("; {}", cost(&commit.cost)));
    }
    text
}

fn of_failure(failure: &Failure) -> String {
    let (outcome, certainty) = (word(&failure.outcome), word(&failure.certainty));
    format!("{outcome}, {certainty}: {}", failing(&failure.error))
}

fn of_rejection(rejection: &Rejection) -> String {
    let reason = rejection.decision.doc().reason.map(|reason| word(&reason));
    let short = gesta_runtime::shortage(rejection.decision.doc());
    let short = short.map(|short| format!("; {short}")).unwrap_or_default();
    let reason = reason.unwrap_or_else(|| "refused".to_owned());
    let again = rejection.retry_at.map(|at| format!(", again at {}", moment::utc(at)));
    format!("{reason}{}; {}{short}", again.unwrap_or_default(), call(&rejection.proposal))
}

fn of_pending(pending: &PendingApproval) -> String {
    let channels: Vec<&str> = pending.channels.iter().map(|channel| channel.as_str()).collect();
    format!(
        "{}; asks {} of {} until {}: {}",
        call(&pending.proposal),
        pending.quorum,
        channels.join(", "),
        moment::utc(pending.deadline),
        pending.reason
    )
}

fn of_resolution(said: &ResolutionStatement) -> String {
    let verdict = match &said.verdict {
        ResolutionVerdict::Happened(settlement) => {
            format!("happened: {}", value(&settlement.observation))
        }
        ResolutionVerdict::DidNotHappen => "did not happen".to_owned(),
        ResolutionVerdict::GiveUp => "given up".to_owned(),
    };
    let forced = if said.forced { ", forced" } else { "" };
    format!("{verdict}; says the {}{forced}: {}", word(&said.source), value(&said.evidence))
}

fn of_confirmation(confirmation: &Confirmation) -> String {
    if let Some(confirms) = &confirmation.confirms {
        return format!("a person confirms {}", brief(confirms));
    }
    let one = |check: &Check| {
        format!("{} {} by {}", check.resource, word(&check.verdict), check.verifier)
    };
    let checks: Vec<String> = confirmation.checks.iter().map(one).collect();
    format!("{} ({})", cut(&checks.join(", ")), word(&confirmation.mode))
}

fn of_waiting(waiting: &Waiting) -> String {
    let until = waiting.until.map(|until| format!("until {}", moment::utc(until)));
    let key = waiting.key.as_ref().map(|key| format!("for the signal `{key}`"));
    key.into_iter().chain(until).collect::<Vec<_>>().join(" or ")
}

fn of_delegation(delegation: &Delegation) -> String {
    let Delegation { child, task, writ, .. } = delegation;
    let writ = writ.doc();
    let limits = writ.budget.dimensions();
    let limits = limits.iter().filter_map(|(name, most)| Some(format!(", {name} {}", (*most)?)));
    let limits: String = limits.collect();
    let (input, job) = (value(&task.input), &task.job);
    format!("to {child} as {}, up to {}{limits}: {job} {input}", writ.principal, writ.effect)
}

fn of_delivered(delivered: &Delivered) -> String {
    let Delivered { head, to, what, .. } = delivered;
    let told = match what {
        Delivery::Beginning => "has begun",
        Delivery::Cancel => "was asked to stop",
        Delivery::Result => "has the result",
    };
    format!("{to} {told}, entry {}", head.seq)
}

/// What was registered.
fn of_item(item: &RegistryItem) -> String {
    match item {
        RegistryItem::Key(key) => format!("key `{}` {}: {}", key.name, brief(&key.key), roles(key)),
        RegistryItem::RevokeKey(revocation) => {
            let since = moment::utc(revocation.at);
            format!("key {} is revoked since {since}", brief(&revocation.key))
        }
        RegistryItem::RevokeWrit(writ) => format!("writ {} is revoked", brief(writ)),
        RegistryItem::Policy(digest) => format!("policy {}", brief(digest)),
        RegistryItem::Catalogue(digest) => format!("tool catalogue {}", brief(digest)),
        RegistryItem::Limit(limit) => {
            let limits = limit.daily.dimensions();
            let limits =
                limits.iter().filter_map(|(name, most)| Some(format!("{name} {}", (*most)?)));
            format!("limit of `{}`: {} a day", limit.tenant, limits.collect::<Vec<_>>().join(", "))
        }
        RegistryItem::Freeze(target) => format!("freeze {}", frozen(target)),
        RegistryItem::Unfreeze(target) => format!("unfreeze {}", frozen(target)),
        RegistryItem::Quarantine(target) => format!("quarantine {}", frozen(target)),
        RegistryItem::Lift(target) => format!("lift the quarantine of {}", frozen(target)),
        RegistryItem::Reached(Threshold { of, percent, tenant, .. }) => match of {
            Span::Day(day) => {
                format!("tenant `{tenant}` has reached {percent} % of its budget of {day}")
            }
            Span::Writ(writ) => {
                format!("tenant `{tenant}` has reached {percent} % of what writ `{writ}` allows")
            }
        },
    }
}

fn frozen(target: &FreezeTarget) -> String {
    match target {
        FreezeTarget::Tool(tool) => format!("the tool `{tool}`"),
        FreezeTarget::Principal(principal) => format!("the principal `{principal}`"),
        FreezeTarget::Tenant(tenant) => format!("the tenant `{tenant}`"),
        FreezeTarget::Trajectory(trajectory) => format!("the job {trajectory}"),
        FreezeTarget::All => "everything".to_owned(),
    }
}

fn roles(key: &TrustedKey) -> String {
    key.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

fn result(result: &CallResult) -> String {
    match result {
        CallResult::Succeeded(settlement) => value(&settlement.observation),
        CallResult::Failed { certainty, error, .. } => {
            format!("failed, {}: {}", word(certainty), failing(error))
        }
    }
}

fn call(proposal: &Proposal) -> String {
    format!("{} {}", proposal.tool, cut(proposal.args.as_str()))
}

fn failing(failing: &Failing) -> String {
    format!("{}: {}", failing.code, failing.message)
}

fn value(content: &Content) -> String {
    match content {
        Content::Inline(value) => cut(value.as_str()),
        Content::Blob(blob) => format!("blob {} of {} bytes", brief(&blob.sha256), blob.size),
    }
}

/// What something cost, without what it did not.
pub(crate) fn cost(amounts: &Amounts) -> String {
    let Amounts { calls, money_micros, tokens, wall_ms } = *amounts;
    let mut parts = Vec::new();
    if calls > 0 {
        parts.push(format!("{calls} call{}", if calls == 1 { "" } else { "s" }));
    }
    if tokens > 0 {
        parts.push(format!("{tokens} tokens"));
    }
    if money_micros > 0 {
        let cents = format!("{:06}", money_micros % 1_000_000);
        parts.push(format!(
            "{}.{:0<2} money",
            money_micros / 1_000_000,
            cents.trim_end_matches('0')
        ));
    }
    if wall_ms > 0 {
        parts.push(format!("{wall_ms} ms"));
    }
    if parts.is_empty() { "no cost".to_owned() } else { parts.join(", ") }
}

/// As much of a text as fits into a line.
pub(crate) fn cut(text: &str) -> String {
    let text = hidden(text);
    if text.chars().count() <= VALUE_LENGTH {
        return text;
    }
    let head: String = text.chars().take(VALUE_LENGTH - 1).collect();
    format!("{head}…")
}

/// The first eight digits of an id.
pub(crate) fn brief(id: &impl ToString) -> String {
    id.to_string().chars().take(8).collect()
}

/// A value that is written as a word.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_read_well() {
        let amounts = Amounts { calls: 1, money_micros: 1_500, tokens: 20, wall_ms: 30 };
        assert_eq!(cost(&amounts), "1 call, 20 tokens, 0.0015 money, 30 ms");
        assert_eq!(cost(&Amounts { money_micros: 2_500_000, ..Amounts::default() }), "2.50 money");
        assert_eq!(cost(&Amounts::default()), "no cost");
    }
}
