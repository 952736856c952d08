//! `gesta tree`: a trajectory, who delegated to it, and everything that it delegated.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{DelegatedBy, Mandate, Purpose};
use gesta_core::content::Content;
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{Principal, StepId, TrajectoryId};
use gesta_core::projection::Status;
use gesta_core::writ::Effect;
use gesta_store::{Chain, Follow, Store};
use serde::Serialize;

use crate::deeds::{self, job_name};
use crate::escape::visible;
use crate::live::brief_id;
use crate::reference;
use crate::session::Session;
use crate::timeline::{cost, cut};

/// Show what a job delegated, and what became of it
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is a trajectory: the step that it works for, its id, its job, how it stands, what it has
used of what was carved out for it, and what it answered. `gesta verify ID` proves the links.

Examples:
  gesta tree t_4f2a
  gesta tree t_4f2a --json | jq '.children[].status'")]
pub(crate) struct Arguments {
    /// The trajectory; the first digits of its id are enough
    #[arg(value_name = "ID")]
    trajectory: String,
}

/// A trajectory and everything below it.
#[derive(Serialize)]
struct Member {
    /// The step of the parent that it works for.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepId>,
    trajectory: TrajectoryId,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<TrajectoryId>,
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
}

/// What of a chain is told.
#[derive(Clone, Default)]
struct Told {
    mandate: Option<Arc<Mandate>>,
    job: Option<String>,
    answer: Option<Content>,
    error: Option<String>,
    delegations: Vec<Arc<Entry>>,
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
                *self = Self { mandate, job, ..Self::default() };
            }
            Body::Plan(plan) => self.job = plan.steps.iter().find_map(job_name),
            Body::Delegation(_) => self.delegations.push(Arc::new(entry.clone())),
            Body::Completed(completed) => self.answer = Some(completed.answer.clone()),
            Body::Failed(stopped) | Body::Cancelled(stopped) => {
                self.error = Some(stopped.error.message.clone());
            }
            _ => {}
        }
    }
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store()?;
    let trajectory = session.wait(reference::trajectory(&store, &arguments.trajectory))?;
    session.wait(reference::is_job(&store, trajectory))?;
    let member = session.wait(read(&store, trajectory, None))?;
    if session.out.is_json() {
        session.out.document(&member)?;
    } else {
        if let Some(parent) = member.parent {
            session.out.line(format!("{parent} delegated to it"))?;
        }
        print(session, &member, "", "")?;
    }
    Ok(0)
}

/// Boxed, since a child is read as its parent is.
type Reading<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Member>> + 'a>>;

fn read(store: &Arc<dyn Store>, trajectory: TrajectoryId, step: Option<StepId>) -> Reading<'_> {
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
                children.push(read(store, delegation.child, step).await?);
            } else {
                children.push(unbegun(trajectory, delegation));
            }
        }
        Ok(Member {
            step,
            trajectory,
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
    }
}

fn print(session: &mut Session, member: &Member, before: &str, below: &str) -> Result<()> {
    let Member { step, trajectory, job, principal, status, answer, error, .. } = member;
    let step = step.as_ref().map(|step| format!("{step}: ")).unwrap_or_default();
    let job = job.as_deref().map(visible).unwrap_or_else(|| "not begun".to_owned());
    let status = status.map_or("owed its beginning", Status::as_str);
    let id = brief_id(*trajectory);
    session.out.line(format!("{before}{step}{id} {job} as {principal}, {status}"))?;
    let result = match (answer, error) {
        (Some(answer), _) => Some(format!("answers {}", visible(&cut(&answer.to_string())))),
        (None, Some(error)) => Some(visible(error)),
        (None, None) => None,
    };
    for line in std::iter::once(used(member)).chain(result) {
        session.out.line(format!("{below}    {line}"))?;
    }
    for (number, child) in member.children.iter().enumerate() {
        let last = number + 1 == member.children.len();
        let (branch, trunk) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        print(session, child, &format!("{below}{branch}"), &format!("{below}{trunk}"))?;
    }
    Ok(())
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
