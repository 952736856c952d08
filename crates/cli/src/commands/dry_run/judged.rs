//! What the Guardian would say to one call, as far as that can be known before anything has happened.

use std::collections::BTreeSet;

use anyhow::Result;
use gesta_core::amounts::Amounts;
use gesta_core::body::Proposal;
use gesta_core::document::{Reason, Verdict};
use gesta_core::guardian::{self, Inputs, Judgement, ToolFacts, Unpublished};
use gesta_core::ids::StepId;
use gesta_core::json::Canon;
use gesta_core::policy::{Answer, Channels, Evidence, Query, Ruling};
use gesta_core::repeat::Repeats;
use gesta_core::state::State;
use gesta_core::temporal::{Grade, Pace, Whose};
use gesta_runtime::job::CallSpec;
use gesta_runtime::tools::{Change, Tool};

use super::Preview;

static EVERYONE: Channels = Channels::new();

/// What the calls before would have used, and may have committed.
#[derive(Default)]
pub(super) struct Used {
    pub(super) amounts: Amounts,
    pub(super) calls: u64,
    commits: BTreeSet<Evidence>,
}

impl Used {
    /// A call of this tool may be made before what follows.
    pub(super) fn may_call(&mut self, tool: &Tool) {
        let by =
            |change: &Change| Evidence { by: tool.name().clone(), type_: change.type_.to_string() };
        self.commits.extend(tool.manifest().changes.iter().map(by));
    }
}

impl Preview<'_> {
    /// What the Guardian would say, and what of the steps before that depends on, if it does: the most and
    /// the least that they may have committed by then are tried.
    pub(super) fn judged(
        &self,
        proposal: &Proposal,
        tool: Option<&Tool>,
        used: &Used,
    ) -> Result<(Judgement, Option<String>)> {
        let demanded = tool.map(|tool| {
            gesta_runtime::preconditions(tool.manifest(), &proposal.args, self.state.world())
        });
        let demanded = demanded.unwrap_or_default();
        let judge = |evidence: &[Evidence], preconditions| {
            let policy = self.asked(proposal, tool, evidence);
            let inputs = self.inputs(proposal, tool, used.calls);
            let inputs = Inputs { policy, evidence, preconditions, ..inputs };
            guardian::judge(proposal, &self.state, &inputs)
        };
        let least = judge(&[], demanded.clone())?;
        if used.commits.is_empty() {
            return Ok((least, None));
        }
        let all: Vec<Evidence> = used.commits.iter().cloned().collect();
        let held = demanded.iter().map(|(condition, _)| (condition.clone(), Ok(true))).collect();
        let most = judge(&all, held)?;
        let refused = |one: &Judgement| one.reason.filter(|_| one.verdict == Verdict::Deny);
        let world = demanded.iter().map(|(condition, _)| format!("`{condition}`"));
        Ok(match (refused(&least), refused(&most)) {
            (Some(least), Some(most_reason)) if least == most_reason => (most, None),
            _ if !demanded.is_empty() && refused(&most).is_none() => {
                let on =
                    format!("what the world is then: {}", world.collect::<Vec<_>>().join(", "));
                (most, Some(on))
            }
            _ if (least.verdict, least.reason) == (most.verdict, most.reason) => (most, None),
            _ => (most, Some("what the steps before it will have committed".to_owned())),
        })
    }

    /// What is certain of a call whose arguments are not known yet, or why it is refused whatever they are.
    pub(super) fn certain(
        &self,
        step: &StepId,
        call: &CallSpec,
        used: &mut Used,
    ) -> Result<Result<String, (Reason, String)>> {
        let args = Canon::parse(b"{}")?;
        let proposal = Proposal { args, step: step.clone(), tool: call.tool.clone() };
        let tool = self.tools.catalogue.get(&call.tool);
        let ruling = || Ruling { allowed: true, ..Ruling::default() };
        let (call, unattended) = (ruling(), ruling());
        let answer = Answer { call, requires: Vec::new(), unattended, asking: None };
        let inputs = self.inputs(&proposal, tool, used.calls);
        let inputs = Inputs { mismatches: Vec::new(), policy: Ok(answer), ..inputs };
        let Judgement { reason, trace, .. } = guardian::judge(&proposal, &self.state, &inputs)?;
        let early = [Reason::UnknownTool, Reason::ToolFrozen, Reason::InvalidAuthority];
        if let Some(reason) = reason.filter(|reason| early.contains(reason)) {
            let why = guardian::refused(Some(reason), &trace).unwrap_or_default();
            return Ok(Err((reason, format!("whatever its arguments: {why}"))));
        }
        let effect = tool.map_or(self.writ.effect, |tool| tool.manifest().effect);
        tool.into_iter().for_each(|tool| used.may_call(tool));
        Ok(Ok(format!("the writ covers the tool and its effect `{effect}`")))
    }

    /// What the policies would say.
    fn asked(
        &self,
        proposal: &Proposal,
        tool: Option<&Tool>,
        evidence: &[Evidence],
    ) -> Result<Answer, String> {
        let tool = tool.ok_or_else(|| "there is no such tool".to_owned())?;
        let spent = self.state.spent().plus(self.state.reserved());
        Ok(self.policies.answer(&Query {
            principal: &self.writ.principal,
            tenant: &self.writ.tenant,
            tool: &proposal.tool,
            effect: tool.manifest().effect,
            args: &proposal.args,
            now: self.now,
            tries: 0,
            spent,
            left: self.writ.budget.left(&spent),
            approvals: Vec::new(),
            evidence,
        }))
    }

    fn inputs(&self, proposal: &Proposal, tool: Option<&Tool>, calls: u64) -> Inputs<'_> {
        let mismatches = tool.map(|tool| tool.check_committed(&proposal.args)).unwrap_or_default();
        Inputs {
            now: self.now,
            tool: tool.map(|tool| ToolFacts {
                effect: tool.manifest().effect,
                reserve: tool.manifest().cost,
                frozen: tool.frozen().map(str::to_owned),
            }),
            published: match &self.published {
                Some(Ok(published)) => self.tools.catalogue.as_published(published, &proposal.tool),
                Some(Err(_)) if tool.is_some() => Err(Unpublished::Unreadable),
                Some(Err(_)) | None => Ok(()),
            },
            writ: self.writ_holds.clone(),
            writ_chain: &self.writ_chain,
            mismatches: mismatches.iter().map(ToString::to_string).collect(),
            preconditions: Vec::new(),
            policy: self.asked(proposal, tool, &[]),
            evidence: &[],
            approvals: Vec::new(),
            // Nobody has agreed to anything yet.
            channels: &EVERYONE,
            registry: self.registry.as_ref().map(State::registry),
            // What a tenant or a standing writ has left is the store's to say, at the time.
            account: None,
            standing: Vec::new(),
            pace: self
                .options
                .temporal
                .trajectory
                .iter()
                // What only waits is no refusal.
                .filter(|rule| rule.then != Grade::Throttle)
                .map(|rule| {
                    let whose = Whose::Trajectory;
                    Pace { free_at: None, in_window: calls, rule: *rule, whose }
                })
                .collect(),
            max_args_bytes: self.options.max_args_bytes,
            repeats: Repeats::default(),
        }
    }
}
