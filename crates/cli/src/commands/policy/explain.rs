//! `gesta policy explain`: why a call was allowed, refused or put before people, from the decision itself.

use anyhow::Result;
use clap::Args;
use gesta_core::document::{Decision, Reason, Verdict};
use gesta_core::entry::Body;
use gesta_core::guardian::{PolicyFound, refusal};
use gesta_core::ids::ToolName;
use gesta_core::policy::Answer;
use gesta_core::verification::Class;
use gesta_policy::explain;
use gesta_runtime::shortage;
use serde_json::json;

use crate::approvals;
use crate::escape::visible_lines;
use crate::problem::Problem;
use crate::reference;
use crate::session::Session;
use crate::timeline::read;

/// The stage of a decision that holds the policy's answer.
const STAGE: &str = "policy";

/// Explain why a call or a delegation was allowed, refused or put before people
#[derive(Debug, Args)]
#[command(after_help = "\
The entry is a `started`, a `rejection`, a `pending_approval` or a `delegation`; `gesta log ID`
lists them. What is told comes from the signed decision in it, not from the policy of today.

Examples:
  gesta policy explain t_4f2a:7
  gesta policy explain t_4f2a:7 --json | jq .answer")]
pub(super) struct Arguments {
    /// The entry: TRAJECTORY:NUMBER, or its whole id
    #[arg(value_name = "ENTRY")]
    entry: String,
}

pub(super) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let (trajectory, stored) = session.wait(reference::entry(&store, &arguments.entry))?;
    let entry = read(&stored).map_err(|why| {
        Problem::new(format!("entry {} of {trajectory} was altered: {why}", stored.seq))
            .hint(format!("`gesta verify {trajectory}` gives a full report"))
            .class(Class::Tampered)
    })?;
    let Some((decision, tool)) = decided(&entry.payload().body) else {
        let what = format!(
            "entry {} of {trajectory} is a {}: nothing was decided in it",
            stored.seq,
            entry.kind()
        );
        return Err(Problem::new(what)
            .hint("`started`, `rejection`, `pending_approval` and `delegation` hold decisions; `gesta log ID` lists them")
            .bad_input()
            .into());
    };
    let unapproved = session.wait(approvals::unapproved(&store, trajectory, decision))?;
    let told = Told::of(decision, unapproved);
    if session.out.is_json() {
        session.out.document(&json!({
            "trajectory": trajectory,
            "seq": stored.seq,
            "step": decision.step,
            "tool": tool,
            "verdict": decision.verdict,
            "reason": decision.reason,
            "answer": told.answer,
            "granted": told.granted,
            "why": told.lines,
        }))?;
        return Ok(0);
    }
    let verdict = match decision.verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "refused",
        Verdict::Escalate => "put before people",
    };
    let reason =
        decision.reason.map(|reason| format!(" ({})", reason.as_str())).unwrap_or_default();
    let head = format!("{}: `{}` was {verdict}{reason}", decision.step, tool);
    session.out.line(visible_lines(&head))?;
    for line in &told.lines {
        session.out.line(visible_lines(&format!("  {line}")))?;
    }
    Ok(0)
}

/// The decision in an entry, and what it is about.
fn decided(body: &Body) -> Option<(&Decision, ToolName)> {
    let (decision, tool) = match body {
        Body::Started(started) => (&started.decision, started.proposal.tool.clone()),
        Body::Rejection(rejection) => (&rejection.decision, rejection.proposal.tool.clone()),
        Body::PendingApproval(pending) => (&pending.decision, pending.proposal.tool.clone()),
        Body::Delegation(delegation) => {
            (&delegation.decision, ToolName::of_delegation(delegation.task.effect))
        }
        _ => return None,
    };
    Some((decision.doc(), tool))
}

/// What a decision says of its policy, and why it is no, if it is.
#[derive(Debug, Default)]
struct Told {
    answer: Option<Answer>,
    granted: Option<Vec<String>>,
    lines: Vec<String>,
}

impl Told {
    /// `unapproved` is what people made of it, if they were asked and that is why.
    fn of(decision: &Decision, unapproved: Option<String>) -> Self {
        let mut told = Self::default();
        let asked = decision.trace.iter().any(|stage| stage.stage == STAGE);
        if let Some(found) = PolicyFound::of(decision) {
            told.answer = found.answer();
            told.lines = told.answer.as_ref().map(explain).unwrap_or_default();
            if !found.granted.is_empty() {
                told.lines.push(format!("agreed: {}", found.granted.join(", ")));
                told.granted = Some(found.granted);
            }
        } else if asked {
            told.lines.push("the policy had nothing to say".to_owned());
        } else if unapproved.is_none() {
            told.lines.push("no policy was asked".to_owned());
        }
        // Only the last stage can have refused; what a policy forbids is told above.
        let forbids = decision.reason == Some(Reason::PolicyDenied) && told.answer.is_some();
        let why = unapproved.or_else(|| shortage(decision)).or_else(|| refusal(decision));
        told.lines.extend(why.filter(|_| !forbids).map(|why| format!("it was refused: {why}")));
        told
    }
}

#[cfg(test)]
mod tests {
    use gesta_core::json::Canon;
    use serde_json::Value;

    use super::*;

    /// A decision with this trace.
    fn decision(verdict: Verdict, reason: Option<Reason>, trace: &Value) -> Decision {
        let digest = "0".repeat(64);
        let key = gesta_core::keys::PrivateKey::from_seed(&[7; 32]).id();
        let mut decision = json!({
            "at": 1, "environment": digest, "key": key, "parent": digest, "proposal": digest,
            "step": "pay", "trace": trace, "trajectory": format!("t_{}", "0".repeat(32)),
            "type": "gesta.decision.v1", "verdict": verdict, "writ": digest,
        });
        if let Some(reason) = reason {
            decision["reason"] = json!(reason);
        }
        Canon::of(&decision).unwrap().read().unwrap()
    }

    fn told(verdict: Verdict, reason: Option<Reason>, trace: &Value) -> String {
        Told::of(&decision(verdict, reason, trace), None).lines.join("\n")
    }

    #[test]
    fn an_answer_is_told_with_who_agreed_and_what_refused_after_it() {
        let by = json!([{ "id": "refunds" }]);
        let large = json!([{ "annotations": { "reason": "much" }, "id": "large" }]);
        let found = json!({
            "call": { "allowed": true, "by": by },
            "unattended": { "allowed": false, "by": large },
            "asking": { "channels": ["finance"], "quorum": 2, "reason": "much", "within_ms": 3_600_000 },
            "granted": ["al", "bo"],
        });
        let policy = json!({ "stage": "policy", "found": found });
        let lines = "it may be called: `refunds` allows it\nit may not be called unattended: `large` (much) forbids it\nso 2 people of `finance` must agree within 1h: much\nagreed: al, bo";
        assert_eq!(told(Verdict::Allow, None, &json!([{ "stage": "tool" }, policy])), lines);
        let budget = json!({ "stage": "budget", "found": { "exceeded": "calls" } });
        let refused = told(Verdict::Deny, Some(Reason::BudgetExhausted), &json!([policy, budget]));
        let after = "it was refused: the budget `calls` does not reach";
        assert_eq!(refused, format!("{lines}\n{after}"));
    }

    #[test]
    fn a_decision_without_a_policy_says_so() {
        let trace = json!([{ "stage": "tool", "found": { "refused": "no such tool" } }]);
        assert_eq!(
            told(Verdict::Deny, Some(Reason::UnknownTool), &trace),
            "no policy was asked\nit was refused: no tool of that name is in the worker's catalogue"
        );
    }
}
