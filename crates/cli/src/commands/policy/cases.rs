//! `gesta policy test`: what policies should answer, written down and compared.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use gesta_core::amounts::{Amounts, Budget};
use gesta_core::document::Verdict;
use gesta_core::ids::{Principal, Tenant, ToolName};
use gesta_core::json::Canon;
use gesta_core::policy::{Answer, Evidence, Query};
use gesta_core::time::UnixMs;
use gesta_policy::{PolicyDocument, PolicySet, explain, verdict};
use gesta_runtime::job;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::escape::visible_lines;
use crate::output::counted;
use crate::problem::Problem;
use crate::session::Session;

/// Who asks, unless a case says otherwise.
const PRINCIPAL: &str = "agent:main";
const TENANT: &str = "main";

/// Test policies with cases: what is asked, and what should come of it
#[derive(Debug, Args)]
#[command(after_help = "\
A case is a request and the verdict that is expected of it: allow, deny or escalate. The policies
that should decide can be named too. A case without a time is asked now.

  cases:
    - name: small refunds run
      request: { tool: payments.refund, args: { order: 1042, cents: 500 } }
      expect: allow
      policies: [small-refunds]

Nothing is called and nothing is written. The exit code is 1 if a case fails.

Examples:
  gesta policy test cases.yaml
  gesta policy test cases.yaml --policy draft.cedar
  gesta policy test cases.yaml --json | jq '.cases[] | select(.ok | not)'")]
pub(super) struct Arguments {
    /// The cases, YAML or JSON
    #[arg(value_name = "CASES")]
    cases: PathBuf,
    /// A file of policies, in place of those that gesta.toml names; give it again for more
    #[arg(long = "policy", value_name = "FILE")]
    policies: Vec<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    name: Option<String>,
    request: Asked,
    expect: Verdict,
    #[serde(default)]
    policies: Option<BTreeSet<String>>,
}

/// What is asked. What is absent is nothing, or what is usual.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    tool: ToolName,
    #[serde(default)]
    args: Value,
    #[serde(default)]
    principal: Option<Principal>,
    #[serde(default)]
    tenant: Option<Tenant>,
    /// RFC 3339, or milliseconds.
    #[serde(default)]
    at: Option<Moment>,
    #[serde(default)]
    tries: u64,
    #[serde(default)]
    spent: Spent,
    #[serde(default)]
    left: Budget,
    #[serde(default)]
    approvals: Vec<Principal>,
    #[serde(default)]
    evidence: Vec<Evidence>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Spent {
    calls: u64,
    money_micros: u64,
    tokens: u64,
    wall_ms: u64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Moment {
    Ms(UnixMs),
    Text(String),
}

impl Moment {
    fn unix_ms(&self) -> Result<UnixMs, String> {
        let text = match self {
            Self::Ms(ms) => return Ok(*ms),
            Self::Text(text) => text,
        };
        let time: Option<jiff::Timestamp> = text.parse().ok();
        let ms = time.and_then(|time| u64::try_from(time.as_millisecond()).ok());
        ms.map(UnixMs).ok_or_else(|| format!("`{text}` is not a time like `2026-11-16T09:30:00Z`"))
    }
}

/// What came of a case.
struct Outcome {
    name: String,
    answer: Answer,
    verdict: Verdict,
    decided: BTreeSet<String>,
    /// What differs from what was expected.
    differences: Vec<String>,
}

pub(super) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let label = arguments.cases.display().to_string();
    let text = std::fs::read_to_string(&arguments.cases)
        .map_err(|error| Problem::new(format!("cannot read `{label}`: {error}")).bad_input())?;
    let refused = |why: String| Problem::new(why).bad_input();
    let cases = job::read_value(&label, &text).map_err(|problems| refused(problems.to_string()))?;
    let Cases { cases } = serde_json::from_str(cases.as_str())
        .map_err(|error| refused(format!("{label}: {}", without_place(&error))))?;
    let document = super::written(&arguments.policies)?;
    let set = PolicySet::compile(&document).map_err(|error| refused(error.to_string()))?;
    let outcomes = (1..).zip(&cases).map(|(number, case)| judge(&document, &set, number, case));
    let outcomes = outcomes.collect::<Result<Vec<Outcome>>>()?;
    report(session, &outcomes)?;
    Ok(u8::from(outcomes.iter().any(|outcome| !outcome.differences.is_empty())))
}

/// The places of the canonical form mean nothing to whoever wrote the file.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_owned())
}

fn judge(document: &PolicyDocument, set: &PolicySet, number: u32, case: &Case) -> Result<Outcome> {
    let name = case.name.clone().unwrap_or_else(|| format!("case {number}"));
    let Asked { tool, args, principal, tenant, at, .. } = &case.request;
    let refused = |why: String| Problem::new(format!("{name}: {why}")).bad_input();
    let shape = document.tools.get(tool).ok_or_else(|| {
        refused(format!("there is no tool `{tool}`")).hint("`gesta tools list` shows the tools")
    })?;
    let none = json!({});
    let args = Canon::of(if args.is_null() { &none } else { args });
    let Spent { calls, money_micros, tokens, wall_ms } = case.request.spent;
    let answer = set.answer(&Query {
        principal: &principal.clone().map_or_else(|| PRINCIPAL.parse(), Ok)?,
        tenant: &tenant.clone().map_or_else(|| TENANT.parse(), Ok)?,
        tool,
        effect: shape.effect,
        args: &args.map_err(|error| refused(error.to_string()))?,
        now: at.as_ref().map_or_else(|| Ok(Session::now()), Moment::unix_ms).map_err(refused)?,
        tries: case.request.tries,
        spent: Amounts { calls, money_micros, tokens, wall_ms },
        left: case.request.left,
        approvals: case.request.approvals.clone(),
        evidence: &case.request.evidence,
    });
    let (verdict, decided) = (verdict(&answer), decided(&answer));
    let mut differences = Vec::new();
    if verdict != case.expect {
        differences.push(format!("expected {}, is {}", word(case.expect), word(verdict)));
    }
    if let Some(expected) = case.policies.as_ref().filter(|expected| **expected != decided) {
        let missing = expected.difference(&decided).map(|id| format!("`{id}` did not decide"));
        let more = decided.difference(expected).map(|id| format!("`{id}` decided"));
        differences.extend(missing.chain(more));
    }
    Ok(Outcome { name, answer, verdict, decided, differences })
}

/// The policies that the verdict rests on.
fn decided(answer: &Answer) -> BTreeSet<String> {
    let Answer { call, unattended, .. } = answer;
    let ids = |ruling: &gesta_core::policy::Ruling| -> BTreeSet<String> {
        ruling.by.iter().map(|by| by.id.clone()).collect()
    };
    match verdict(answer) {
        Verdict::Allow => ids(call).union(&ids(unattended)).cloned().collect(),
        Verdict::Deny => ids(call),
        Verdict::Escalate if unattended.by.is_empty() => ids(call),
        Verdict::Escalate => ids(unattended),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Deny => "deny",
        Verdict::Escalate => "escalate",
    }
}

fn report(session: &mut Session, outcomes: &[Outcome]) -> Result<()> {
    let failed = outcomes.iter().filter(|outcome| !outcome.differences.is_empty()).count() as u64;
    if session.out.is_json() {
        let of = |outcome: &Outcome| {
            let Outcome { name, answer, verdict, decided, differences } = outcome;
            json!({ "name": name, "ok": differences.is_empty(), "verdict": verdict, "policies": decided, "differences": differences, "answer": answer })
        };
        let cases: Vec<Value> = outcomes.iter().map(of).collect();
        return session.out.document(&json!({ "ok": failed == 0, "cases": cases }));
    }
    for Outcome { name, answer, verdict, differences, .. } in outcomes {
        let mark = if differences.is_empty() { "ok    " } else { "FAILED" };
        session.out.line(visible_lines(&format!("{mark}  {name}: {}", word(*verdict))))?;
        if differences.is_empty() {
            continue;
        }
        for line in differences {
            session.out.line(visible_lines(&format!("        {line}")))?;
        }
        for line in explain(answer) {
            session.out.line(visible_lines(&format!("        because {line}")))?;
        }
    }
    let all = counted(outcomes.len() as u64, "case", "cases");
    session.out.line(match failed {
        0 => format!("{all}, all as expected"),
        _ => format!("{all}, {failed} not as expected"),
    })?;
    Ok(())
}
