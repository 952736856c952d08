//! `gesta tree`: a trajectory, who delegated to it, what it branched from, and everything that it
//! delegated or that branched from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{Branch, BranchMode, DelegatedBy, Mandate, Purpose};
use gesta_core::content::Content;
use gesta_core::digest::EntryId;
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{Principal, StepId, TrajectoryId};
use gesta_core::projection::{Status, TrajectoryKind};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_store::{Chain, Follow, Store};
use serde::Serialize;

use crate::chains;
use crate::deeds::{self, job_name};
use crate::escape::visible;
use crate::live::brief_id;
use crate::reference;
use crate::session::Session;
use crate::timeline::{cost, cut, word};

/// Show what a job delegated and what branched from it, and what became of them
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is a trajectory: the step that it works for, or the commit that it branched from and how;
its id, its job, how it stands, what it has used of what was carved out for it, and what it
answered. `gesta verify ID` proves the links. Branches are found by the first entry of every job
that began later.

Examples:
  gesta tree t_4f2a
  gesta tree t_4f2a --mermaid
  gesta tree t_4f2a --json | jq '.children[].status, .branches[].trajectory'")]
pub(crate) struct Arguments {
    /// The trajectory; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: String,
    /// Print a Mermaid diagram
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
}

/// Where a trajectory branched from.
#[derive(Clone, Serialize)]
struct From {
    source: TrajectoryId,
    commit: EntryId,
    /// The step that was committed there, if its source is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepId>,
    mode: BranchMode,
    #[serde(skip_serializing_if = "String::is_empty")]
    note: String,
}

/// The branches of every trajectory, oldest first.
type Branches = BTreeMap<TrajectoryId, Vec<(TrajectoryId, From)>>;

/// A trajectory and everything below it.
#[derive(Serialize)]
struct Member {
    /// The step of the parent that it works for.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepId>,
    trajectory: TrajectoryId,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<TrajectoryId>,
    /// Where it branched from.
    #[serde(skip_serializing_if = "Option::is_none")]
    branched: Option<From>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    principal: Principal,
    /// None if it was delegated and has not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    effect: Effect,
    depth: u64,
    budget: Budget,
    spent: Amounts,
    reserved: Amounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    children: Vec<Member>,
    branches: Vec<Member>,
}

/// What of a chain is told.
#[derive(Clone, Default)]
struct Told {
    mandate: Option<Arc<Mandate>>,
    job: Option<String>,
    answer: Option<Content>,
    error: Option<String>,
    delegations: Vec<Arc<Entry>>,
    branched: Option<Arc<From>>,
    /// Its own commits.
    commits: BTreeMap<EntryId, StepId>,
}

impl Follow for Told {
    fn follow(&mut self, entry: &Entry) {
        match &entry.payload().body {
            Body::Root(root) => {
                if let Purpose::Job(mandate) | Purpose::Session(mandate) = &root.purpose {
                    self.mandate = Some(Arc::new(mandate.clone()));
                }
            }
            Body::Branch(branch) => {
                let (mandate, job) = (Some(Arc::new(branch.mandate.clone())), self.job.take());
                let branched = Some(Arc::new(From::of(branch)));
                *self = Self { mandate, job, branched, ..Self::default() };
            }
            Body::Plan(plan) => self.job = plan.steps.iter().find_map(job_name),
            Body::Delegation(_) => self.delegations.push(Arc::new(entry.clone())),
            Body::Completed(completed) => self.answer = Some(completed.answer.clone()),
            Body::Failed(stopped) | Body::Cancelled(stopped) => {
                self.error = Some(stopped.error.message.clone());
            }
            body => {
                let done = matches!(
                    body,
                    Body::Commit(_) | Body::Resolution(_) | Body::DelegationResult(_)
                );
                if let Some(step) = body.step().filter(|_| done) {
                    self.commits.insert(entry.id(), step.clone());
                }
            }
        }
    }
}

impl From {
    fn of(branch: &Branch) -> Self {
        let (source, commit) = (branch.source, branch.source_commit);
        Self { source, commit, step: None, mode: branch.mode, note: branch.note.clone() }
    }
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let trajectory = session.wait(reference::trajectory(&store, &arguments.trajectory))?;
    session.wait(reference::is_job(&store, trajectory))?;
    let branches = session.wait(branches(&store, trajectory))?;
    let member = session.wait(read(&store, trajectory, None, &branches))?;
    if session.out.is_json() {
        session.out.document(&member)?;
    } else if arguments.mermaid {
        session.out.line("flowchart TD")?;
        diagram(session, &member)?;
    } else {
        if let Some(parent) = member.parent {
            session.out.line(format!("{parent} delegated to it"))?;
        }
        if let Some(From { source, mode, note, .. }) = &member.branched {
            session.out.line(format!(
                "it branched from {source} ({}){}",
                word(mode),
                told(note)
            ))?;
        }
        print(session, &member, "", "")?;
    }
    Ok(0)
}

/// Everything that branched from anything since a trajectory began.
async fn branches(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Result<Branches> {
    let rows = chains::all(store).await?;
    let begun = rows.iter().find(|row| row.trajectory == trajectory);
    let begun = begun.map(|row| row.summary.begun_at).unwrap_or_default();
    let mut found: Vec<(UnixMs, TrajectoryId, From)> = Vec::new();
    for row in rows.iter().filter(|row| row.summary.begun_at >= begun) {
        if row.summary.kind != TrajectoryKind::Job {
            continue;
        }
        let first = store.entries(row.trajectory, 0, 1).await?;
        let first = first.first().and_then(|stored| Entry::from_bytes(&stored.bytes).ok());
        if let Some(Body::Branch(branch)) = first.as_ref().map(|entry| &entry.payload().body) {
            found.push((row.summary.begun_at, row.trajectory, From::of(branch)));
        }
    }
    found.sort_by_key(|(at, id, _)| (*at, *id));
    let mut branches = Branches::new();
    for (_, id, from) in found {
        branches.entry(from.source).or_default().push((id, from));
    }
    Ok(branches)
}

/// Boxed, since a child is read as its parent is.
type Reading<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Member>> + 'a>>;

fn read<'a>(
    store: &'a Arc<dyn Store>,
    trajectory: TrajectoryId,
    step: Option<StepId>,
    branches: &'a Branches,
) -> Reading<'a> {
    Box::pin(async move {
        let chain = Chain::<Told>::follow(Arc::clone(store), trajectory).await?;
        let (state, told) = (chain.state(), chain.view());
        let writ = told.mandate.as_ref().and_then(|mandate| mandate.writs.last());
        let writ = writ.ok_or(gesta_runtime::RunError::NotBegun)?.doc();
        let parent = |by: &DelegatedBy| by.trajectory;
        let answer = match &told.answer {
            Some(answer) => Some(deeds::value(store, answer).await?),
            None => None,
        };
        let mut children = Vec::new();
        for entry in &told.delegations {
            let Body::Delegation(delegation) = &entry.payload().body else { continue };
            let step = Some(delegation.step.clone());
            if store.trajectory(delegation.child).await?.is_some() {
                children.push(read(store, delegation.child, step, branches).await?);
            } else {
                children.push(unbegun(trajectory, delegation));
            }
        }
        let mut below = Vec::new();
        for (id, from) in branches.get(&trajectory).into_iter().flatten() {
            let mut member = read(store, *id, None, branches).await?;
            let step = told.commits.get(&from.commit).cloned();
            member.branched = Some(From { step, ..from.clone() });
            below.push(member);
        }
        Ok(Member {
            step,
            trajectory,
            branched: told.branched.as_deref().cloned(),
            parent: told
                .mandate
                .as_ref()
                .and_then(|mandate| mandate.delegated_by.as_ref())
                .map(parent),
            job: told.job.clone(),
            principal: writ.principal.clone(),
            status: state.summary().map(|summary| summary.status),
            effect: writ.effect,
            depth: writ.depth,
            budget: writ.budget,
            spent: state.spent(),
            reserved: state.reserved(),
            answer,
            error: told.error.clone(),
            children,
            branches: below,
        })
    })
}

fn unbegun(parent: TrajectoryId, delegation: &gesta_core::body::Delegation) -> Member {
    let writ = delegation.writ.doc();
    Member {
        step: Some(delegation.step.clone()),
        trajectory: delegation.child,
        parent: Some(parent),
        job: None,
        principal: writ.principal.clone(),
        status: None,
        effect: writ.effect,
        depth: writ.depth,
        budget: writ.budget,
        spent: Amounts::default(),
        reserved: Amounts::default(),
        answer: None,
        error: None,
        children: Vec::new(),
        branches: Vec::new(),
        branched: None,
    }
}

fn print(session: &mut Session, member: &Member, before: &str, below: &str) -> Result<()> {
    let Member { step, trajectory, job, principal, status, answer, error, .. } = member;
    let step = match (step, &member.branched) {
        (Some(step), _) => format!("{step}: "),
        (None, Some(From { step: Some(step), mode, .. })) if !before.is_empty() => {
            format!("branch at {step} ({}): ", word(mode))
        }
        (None, Some(From { mode, .. })) if !before.is_empty() => {
            format!("branch ({}): ", word(mode))
        }
        (None, _) => String::new(),
    };
    let job = job.as_deref().map(visible).unwrap_or_else(|| "not begun".to_owned());
    let status = status.map_or("owed its beginning", Status::as_str);
    let id = brief_id(*trajectory);
    session.out.line(format!("{before}{step}{id} {job} as {principal}, {status}"))?;
    let result = match (answer, error) {
        (Some(answer), _) => Some(format!("answers {}", visible(&cut(&answer.to_string())))),
        (None, Some(error)) => Some(visible(error)),
        (None, None) => None,
    };
    let note = member.branched.as_ref().map(|from| visible(&from.note));
    let note = note.filter(|note| !note.is_empty() && !before.is_empty());
    for line in std::iter::once(used(member)).chain(note).chain(result) {
        session.out.line(format!("{below}    {line}"))?;
    }
    let all = member.children.len() + member.branches.len();
    for (number, child) in member.children.iter().chain(&member.branches).enumerate() {
        let last = number + 1 == all;
        let (branch, trunk) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        print(session, child, &format!("{below}{branch}"), &format!("{below}{trunk}"))?;
    }
    Ok(())
}

/// A note, after what it is about.
fn told(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(": {}", visible(note)) }
}

/// The tree as a diagram: solid lines to children, dotted ones to branches.
fn diagram(session: &mut Session, member: &Member) -> Result<()> {
    let Member { trajectory, job, status, .. } = member;
    let job = job.as_deref().map(visible).unwrap_or_else(|| "not begun".to_owned());
    let status = status.map_or("owed its beginning", Status::as_str);
    let id = brief_id(*trajectory);
    session.out.line(format!("  {trajectory}[\"{}<br/>{id}<br/>{status}\"]", plain(&job)))?;
    for child in &member.children {
        diagram(session, child)?;
        let step = child.step.as_ref().map(ToString::to_string).unwrap_or_default();
        session.out.line(format!("  {trajectory} -->|{step}| {}", child.trajectory))?;
    }
    for branch in &member.branches {
        diagram(session, branch)?;
        let step = branch.branched.as_ref().and_then(|from| from.step.as_ref());
        let label = step.map(|step| format!("|{step}|")).unwrap_or_default();
        session.out.line(format!("  {trajectory} -.->{label} {}", branch.trajectory))?;
    }
    Ok(())
}

/// Text that cannot end a label.
fn plain(text: &str) -> String {
    text.replace('"', "'")
}

/// What was used of what there is, and what is set aside for children and open calls.
fn used(member: &Member) -> String {
    let spent = if member.spent == Amounts::default() {
        "nothing used".to_owned()
    } else {
        format!("used {}", cost(&Amounts { wall_ms: 0, ..member.spent }))
    };
    let limits = member.budget.dimensions();
    let limits: Vec<String> =
        limits.iter().filter_map(|(name, most)| Some(format!("{name} {}", (*most)?))).collect();
    let limits = match limits.is_empty() {
        true => String::new(),
        false => format!(" of {}", limits.join(", ")),
    };
    let aside = match member.reserved == Amounts::default() {
        true => String::new(),
        false => format!("; set aside: {}", cost(&member.reserved)),
    };
    format!("up to {}, {spent}{limits}{aside}", member.effect)
}
