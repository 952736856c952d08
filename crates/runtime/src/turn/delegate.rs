//! Handing a task to a child: its input, the writ that is carved out for it, and the refusal if what is
//! asked for is more than there is. The child's own chain begins once this is durable.

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{Delegation, Delivered, Proposal, Task};
use gesta_core::content::{BlobRef, Content, MAX_INLINE_BYTES};
use gesta_core::document::{Decision, Failing, Reason, Stage, Verdict};
use gesta_core::entry::Body;
use gesta_core::guardian::Judgement;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::keys::Sign as _;
use gesta_core::sensitive::Marks;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{AdmitError, State, Why};
use gesta_core::writ::{ToolPattern, Writ};
use gesta_store::Draft;
use serde_json::Value;

use super::{Made, Turn, expression};
use crate::decide::{self, Decided};
use crate::delegation::Refused;
use crate::desk::failing;
use crate::error::RunError;
use crate::facts::Facts;
use crate::job::{DelegateSpec, complete_input, sensitive_input};
use crate::pipeline;

impl Turn<'_> {
    /// Notes what the other chains have, as far as it is still owed to them.
    pub(super) fn note_delivered(&self, draft: &mut Draft<Facts>) -> Result<(), RunError> {
        for Delivered { head, step, to, what } in self.delivered {
            let owed = draft
                .state()
                .owed()
                .any(|owed| (owed.0, owed.1) == (*what, *to) && Some(owed.2) == step.as_ref());
            if owed {
                let (head, step, to, what) = (*head, step.clone(), *to, *what);
                let body = Body::Delivered(Box::new(Delivered { head, step, to, what }));
                draft.push(self.now, self.desk.author(), body)?;
            }
        }
        Ok(())
    }

    /// Proposes to hand the task out: the frozen proposal, or a new one.
    pub(super) fn delegate(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        spec: &DelegateSpec,
        item: Option<(u64, &Value)>,
        made: &mut Made,
    ) -> Result<(), RunError> {
        let state = draft.state();
        let may = state.delegable(step, self.now) || state.lapsed(step, self.now);
        if !self.may_open || !may || self.handed_before(draft, step)? {
            return Ok(());
        }
        let asked = draft.view().asked(step).map(|asked| asked.proposal.args.read());
        let task = match asked {
            Some(task) => task?,
            None => match self.task(draft, step, spec, item, made)? {
                None => return Ok(()),
                Some(Err(error)) => return self.fail(draft, step, error),
                Some(Ok(task)) => task,
            },
        };
        self.hand_out(draft, step, spec, task)
    }

    /// What the child is to do, and what it may. None when something must be fetched, stored or sealed
    /// first.
    fn task(
        &self,
        draft: &Draft<Facts>,
        step: &StepId,
        spec: &DelegateSpec,
        item: Option<(u64, &Value)>,
        made: &mut Made,
    ) -> Result<Option<Result<Task, Failing>>, RunError> {
        let given = self.evaluate(draft, step, item, made, |scope| spec.input.resolve(scope));
        let input = match given {
            None => return Ok(None),
            Some(Err(error)) => return Ok(Some(Err(expression(&error)))),
            Some(Ok(given)) => match complete_input(&spec.inputs, &given) {
                Ok(input) => input,
                Err(why) => {
                    let message = format!("the input does not fit the job `{}`: {why}", spec.job);
                    return Ok(Some(Err(failing("input_refused", &message))));
                }
            },
        };
        let (marks, to) = (sensitive_input(&spec.inputs), format!("the job `{}`", spec.job));
        let (_, parent) = draft.state().writ().ok_or(RunError::NotBegun)?;
        let handed = self.handed_on(step, &input, (&marks, &to), made);
        Ok(handed.map(|input| {
            Ok(Task {
                budget: spec.budget,
                depth: spec.depth,
                effect: spec.effect.min(parent.effect),
                input: input?,
                job: spec.job.clone(),
                plan: spec.plan.digest(),
                principal: spec.principal.clone().unwrap_or_else(|| parent.principal.clone()),
                tools: spec.tools.iter().cloned().map(ToolPattern::Exact).collect(),
            })
        }))
    }

    /// Asks the Guardian, as about a call; then hands the task out, puts it before people, or refuses.
    fn hand_out(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        spec: &DelegateSpec,
        task: Task,
    ) -> Result<(), RunError> {
        let proposal = task.proposal(step)?;
        let outside = match self.recorded {
            Some(recorded) => recorded.clone(),
            None => decide::gather_for_child(self.desk, draft, self.now),
        };
        let Decided { decision, asking, passes } =
            decide::decide(self.desk, draft, &proposal, None, &outside, self.now)?;
        match (decision.doc().verdict, asking) {
            (Verdict::Allow, _) => {}
            (Verdict::Escalate, Some(asking)) => {
                pipeline::escalate(self.desk, draft, proposal, decision, asking, self.now)?;
                return Ok(());
            }
            _ if self.recorded.is_none() && decide::is_held(draft, step, &decision, passes) => {
                return Ok(());
            }
            _ => {
                pipeline::refuse(self.desk, draft, proposal, decision, passes, self.now)?;
                return Ok(());
            }
        }
        let delegation = Delegation {
            child: self.child(draft.state(), step),
            decision: decision.clone(),
            on_failure: spec.on_failure,
            on_stop: spec.on_stop,
            step: step.clone(),
            writ: self.carve(draft.state(), step, &task)?,
            task,
        };
        let body = Body::Delegation(Box::new(delegation));
        match draft.push(self.now, self.desk.author(), body) {
            Ok(_) => {
                decide::rest_on(self.desk, draft, decision.doc().registry);
                Ok(())
            }
            Err(error) => match exceeds(&error) {
                Some(refusal) => self.refuse_to_delegate(draft, proposal, decision.doc(), refusal),
                None => Err(error.into()),
            },
        }
    }

    fn child(&self, state: &State, step: &StepId) -> TrajectoryId {
        let generation = state.step(step).map_or(1, |step| step.generation);
        TrajectoryId::of_child(self.desk.trajectory, step, generation)
    }

    /// A child's input as it stands in an entry. None when something must be stored or sealed first.
    fn handed_on(
        &self,
        step: &StepId,
        input: &Canon,
        to: (&Marks, &str),
        made: &mut Made,
    ) -> Option<Result<Content, Failing>> {
        if !to.0.is_empty() && self.desk.safe().is_none() && self.desk.shared.vault.is_some() {
            made.wants_safe = true;
            return None;
        }
        match self.committed(step, input, to, made)? {
            Ok(input) => self.kept(&input, made).map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    /// A value as it stands in an entry. None when it must be a blob first.
    fn kept(&self, value: &Canon, made: &mut Made) -> Option<Content> {
        if value.as_bytes().len() <= MAX_INLINE_BYTES {
            return Some(Content::Inline(value.clone()));
        }
        let blob = BlobRef::of(value.as_bytes());
        if self.blobs.get(&blob.sha256).is_none() {
            made.to_keep.push(value.clone());
            return None;
        }
        Some(Content::Blob(blob))
    }

    /// The child's writ. What is asked for in so many words is asked for as it is: whether it can be had is
    /// the state machine's to say. Where nothing is said, it is what the parent has left.
    fn carve(&self, state: &State, step: &StepId, task: &Task) -> Result<Signed<Writ>, RunError> {
        let (id, parent) = state.writ().ok_or(RunError::NotBegun)?;
        let used = state.spent().plus(state.reserved());
        self.desk.sign(Writ {
            budget: carved(&task.budget, &parent.budget, &used),
            depth: task.depth,
            effect: task.effect,
            guardians: true,
            holder: parent.holder,
            key: self.desk.shared.guardian.id(),
            parent: Some(id),
            principal: task.principal.clone(),
            tenant: parent.tenant.clone(),
            tools: task.tools.clone(),
            trajectory: Some(self.child(state, step)),
            type_: Tag::default(),
            window: parent.window,
        })
    }

    /// Says no, as to a call: the Guardian would let it, but there is not that much to hand on.
    fn refuse_to_delegate(
        &self,
        draft: &mut Draft<Facts>,
        proposal: Proposal,
        allowed: &Decision,
        (reason, why): (Reason, String),
    ) -> Result<(), RunError> {
        let found = Some(Canon::of(&Refused { refused: why })?);
        let mut trace = allowed.trace.clone();
        trace.push(Stage { found, stage: "delegation".to_owned() });
        let (verdict, reason) = (Verdict::Deny, Some(reason));
        let judgement =
            Judgement { verdict, reason, trace, asking: None, hold: None, quarantine: None };
        let judged = (judgement, allowed.registry);
        let decision = decide::decision(self.desk, draft, &proposal, judged, self.now)?;
        pipeline::refuse(self.desk, draft, proposal, decision, None, self.now)?;
        Ok(())
    }
}

/// What the child may use, dimension by dimension: what is said, or else what is left.
fn carved(said: &Budget, limits: &Budget, used: &Amounts) -> Budget {
    let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
    Budget {
        calls: said.calls.or_else(|| left(limits.calls, used.calls)),
        money_micros: said.money_micros.or_else(|| left(limits.money_micros, used.money_micros)),
        tokens: said.tokens.or_else(|| left(limits.tokens, used.tokens)),
        wall_ms: said.wall_ms.or_else(|| left(limits.wall_ms, used.wall_ms)),
    }
}

/// Why a delegation is refused rather than impossible.
fn exceeds(error: &AdmitError) -> Option<(Reason, String)> {
    let AdmitError::Illegal(illegal) = error else { return None };
    let reason = match &illegal.why {
        Why::Widening(_) | Why::Budget(_) => Reason::DelegationExceedsAuthority,
        Why::WritWindow => Reason::InvalidAuthority,
        _ => return None,
    };
    Some((reason, illegal.why.to_string()))
}
