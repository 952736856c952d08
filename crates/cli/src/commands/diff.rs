//! `gesta diff`: two trajectories, step by step, and the worlds that they came to.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::content::Content;
use gesta_core::digest::Digest;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::projection::Status;
use gesta_core::world::{Resource, ResourceRef, World};
use gesta_store::{Chain, Store};
use serde::Serialize;

use crate::course::{Course, Passage};
use crate::escape::visible;
use crate::live::brief_id;
use crate::output::counted;
use crate::reference;
use crate::session::Session;
use crate::timeline::cut;

/// Compare two jobs step by step: what is the same, what changed, what only one of them did
#[derive(Debug, Args)]
#[command(after_help = "\
Steps are compared by their name: tool, arguments, outcome, result. What a branch inherited is the
same as in its source. Then the worlds are compared: the resources that only one of them has, and
those that differ.

Exit codes:
  0 the same, 1 they differ

Examples:
  gesta diff t_4f2a t_91c0
  gesta diff t_4f2a t_91c0 --json | jq '.steps[] | select(.verdict != \"same\")'")]
pub(crate) struct Arguments {
    /// A trajectory; the first digits of its id are enough
    #[arg(value_name = "A")]
    one: String,
    /// Another
    #[arg(value_name = "B")]
    other: String,
}

/// How a step of the one is to that of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Same,
    Changed,
    OnlyA,
    OnlyB,
}

#[derive(Serialize)]
struct Row {
    step: StepId,
    verdict: Verdict,
    /// What differs: tool, args, outcome, result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<Passage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<Passage>,
}

/// A resource that differs.
#[derive(Serialize)]
struct Differing {
    resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<serde_json::Value>,
}

/// A side of the comparison.
#[derive(Serialize)]
struct Side {
    trajectory: TrajectoryId,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Where it branched from.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<TrajectoryId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_seq: Option<u64>,
    world: Digest,
}

#[derive(Serialize)]
struct Difference {
    a: Side,
    b: Side,
    same: bool,
    steps: Vec<Row>,
    world: Vec<Differing>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let mut chains = Vec::new();
    for text in [&arguments.one, &arguments.other] {
        let trajectory = session.wait(reference::trajectory(&store, text))?;
        chains.push(session.wait(read(&store, trajectory))?);
    }
    let [one, other] = chains.as_slice() else { return Ok(1) };
    let steps = rows(one.view(), other.view());
    let world = worlds(one.state().world(), other.state().world())?;
    let same = world.is_empty() && steps.iter().all(|row| row.verdict == Verdict::Same);
    let difference = Difference { a: side(one), b: side(other), same, steps, world };
    if session.out.is_json() {
        session.out.document(&difference)?;
    } else {
        print(session, &difference)?;
    }
    Ok(u8::from(!same))
}

async fn read(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Result<Chain<Course>> {
    reference::is_job(store, trajectory).await?;
    Ok(Chain::<Course>::follow(Arc::clone(store), trajectory).await?)
}

fn side(chain: &Chain<Course>) -> Side {
    let (state, course) = (chain.state(), chain.view());
    Side {
        trajectory: state.trajectory(),
        job: course.job.clone(),
        status: state.summary().map(|summary| summary.status),
        source: course.source.map(|(source, _)| source),
        source_seq: course.source.map(|(_, seq)| seq),
        world: state.world().digest(),
    }
}

/// All steps of both: in the order of the one, then those that only the other has.
fn rows(one: &Course, other: &Course) -> Vec<Row> {
    let only = other.order.iter().filter(|step| !one.steps.contains_key(*step));
    let rows = one.order.iter().chain(only).map(|step| {
        let (a, b) = (one.steps.get(step).cloned(), other.steps.get(step).cloned());
        let (verdict, changed) = match (&a, &b) {
            (Some(a), Some(b)) => match differences(a, b) {
                changed if changed.is_empty() => (Verdict::Same, changed),
                changed => (Verdict::Changed, changed),
            },
            (Some(_), None) => (Verdict::OnlyA, Vec::new()),
            (None, _) => (Verdict::OnlyB, Vec::new()),
        };
        Row { step: step.clone(), verdict, changed, a, b }
    });
    rows.collect()
}

fn differences(a: &Passage, b: &Passage) -> Vec<&'static str> {
    let digest = |passage: &Passage| passage.result.as_ref().map(Content::digest);
    let parts = [
        ("tool", a.tool != b.tool),
        ("args", a.args != b.args),
        ("outcome", a.outcome != b.outcome || a.error != b.error),
        ("result", digest(a) != digest(b)),
    ];
    parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part).collect()
}

fn worlds(one: &World, other: &World) -> Result<Vec<Differing>> {
    let mut all: BTreeMap<&ResourceRef, (Option<&Resource>, Option<&Resource>)> = BTreeMap::new();
    one.iter().for_each(|(resource, value)| all.entry(resource).or_default().0 = Some(value));
    other.iter().for_each(|(resource, value)| all.entry(resource).or_default().1 = Some(value));
    let value = |resource: Option<&Resource>| {
        resource.map(|resource| serde_json::from_str(resource.value.as_str())).transpose()
    };
    let mut differing = Vec::new();
    for (resource, (a, b)) in all {
        if a.map(|a| &a.value) != b.map(|b| &b.value) {
            let resource = resource.to_string();
            differing.push(Differing { resource, a: value(a)?, b: value(b)? });
        }
    }
    Ok(differing)
}

fn print(session: &mut Session, difference: &Difference) -> Result<()> {
    for (name, side) in [("A", &difference.a), ("B", &difference.b)] {
        let job = side.job.as_deref().map(visible).unwrap_or_default();
        let status = side.status.map_or("", Status::as_str);
        let from = match (side.source, side.source_seq) {
            (Some(source), Some(seq)) => format!(", branched from {}:{seq}", brief_id(source)),
            _ => String::new(),
        };
        session.out.line(format!("{name}  {} {job}, {status}{from}", side.trajectory))?;
    }
    let width = difference.steps.iter().map(|row| row.step.as_str().len()).max().unwrap_or(0);
    for row in &difference.steps {
        let mark = match row.verdict {
            Verdict::Same => '=',
            Verdict::Changed => '~',
            Verdict::OnlyA => '-',
            Verdict::OnlyB => '+',
        };
        let (what, more) = told(row);
        session.out.line(format!("  {mark} {:width$}  {what}", row.step.as_str()))?;
        for line in more {
            session.out.line(format!("    {:width$}  {line}", ""))?;
        }
    }
    if difference.world.is_empty() {
        session.out.line("the worlds are the same")?;
    } else {
        let count = difference.world.len() as u64;
        session
            .out
            .line(format!("the worlds differ in {}", counted(count, "resource", "resources")))?;
    }
    for Differing { resource, a, b } in &difference.world {
        let shown = |value: &serde_json::Value| visible(&cut(&value.to_string()));
        let line = match (a, b) {
            (Some(a), Some(b)) => format!("~ {} {} → {}", visible(resource), shown(a), shown(b)),
            (Some(a), None) => format!("- {} {}", visible(resource), shown(a)),
            (None, b) => {
                let value = b.as_ref().map(shown).unwrap_or_default();
                format!("+ {} {value}", visible(resource))
            }
        };
        session.out.line(format!("  {line}"))?;
    }
    Ok(())
}

/// A row for people: in a word or two, and what differs.
fn told(row: &Row) -> (String, Vec<String>) {
    let came = |passage: &Passage| {
        let how = match (&passage.recorded_from, passage.inherited) {
            (_, true) => " (inherited)",
            (Some(_), false) => " (recorded)",
            (None, false) => "",
        };
        format!("{}{how}", passage.outcome)
    };
    let (a, b) = match (&row.a, &row.b) {
        (Some(a), Some(b)) => (a, b),
        (Some(only), None) | (None, Some(only)) => {
            let side = if row.a.is_some() { "A" } else { "B" };
            return (format!("only in {side}: {}", came(only)), Vec::new());
        }
        (None, None) => return (String::new(), Vec::new()),
    };
    if row.verdict == Verdict::Same {
        return (came(b), Vec::new());
    }
    let lines = row.changed.iter().map(|part| {
        let (before, after) = (shown(a, part), shown(b, part));
        format!("{part}: {before} → {after}")
    });
    (format!("{} changed", row.changed.join(", ")), lines.collect())
}

fn shown(passage: &Passage, part: &str) -> String {
    let text = match part {
        "tool" => passage.tool.as_ref().map(ToString::to_string),
        "args" => passage.args.as_ref().map(ToString::to_string),
        "outcome" => Some(match &passage.error {
            Some(error) => format!("{} ({error})", passage.outcome),
            None => passage.outcome.clone(),
        }),
        _ => passage.result.as_ref().map(|result| match result {
            Content::Inline(value) => value.to_string(),
            Content::Blob(blob) => format!("blob {}", blob.sha256),
        }),
    };
    visible(&cut(&text.unwrap_or_else(|| "nothing".to_owned())))
}
