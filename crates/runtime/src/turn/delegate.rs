//! Handing a task to a child: its input, the writ that is carved out for it, and the refusal if what is
//! asked for is more than there is. The child's own chain begins once this is durable.

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{Delegation, Delivered, Proposal};
use gesta_core::content::{BlobRef, Content, MAX_INLINE_BYTES};
use gesta_core::document::{Decision, Failing, Reason, Stage, Verdict};
use gesta_core::entry::Body;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::keys::Sign as _;
use gesta_core::sensitive::Marks;
use gesta_core::signed::{Signed, Tag};
use gesta_core::state::{AdmitError, State, Why};
use gesta_core::writ::{ToolPattern, Writ};
use gesta_store::Draft;
use serde::Serialize;

use super::{Made, Turn, expression};
use crate::delegation::{Refused, Task};
use crate::desk::failing;
use crate::error::RunError;
use crate::facts::Facts;
use crate::job::{DelegateSpec, complete_input, sensitive_input};
use crate::pipeline;

/// What stands for a tool in the refusal of a delegation.
const DELEGATE: &str = "delegate";

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

    /// Hands the task out, or refuses to.
    pub(super) fn delegate(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        spec: &DelegateSpec,
        made: &mut Made,
    ) -> Result<(), RunError> {
        if !self.may_open || self.handed_before(draft, step)? {
            return Ok(());
        }
        let given = self.evaluate(draft, step, None, made, |scope| spec.input.resolve(scope));
        let input = match given {
            None => return Ok(()),
            Some(Err(error)) => return self.fail(draft, step, expression(&error)),
            Some(Ok(given)) => match complete_input(&spec.inputs, &given) {
                Ok(input) => input,
                Err(why) => {
                    let message = format!("the input does not fit the job `{}`: {why}", spec.job);
                    return self.fail(draft, step, failing("input_refused", &message));
                }
            },
        };
        let (marks, to) = (sensitive_input(&spec.inputs), format!("the job `{}`", spec.job));
        let input = match self.handed_on(step, &input, (&marks, &to), made) {
            None => return Ok(()),
            Some(Err(error)) => return self.fail(draft, step, error),
            Some(Ok(input)) => input,
        };
        let task = Task { input, job: spec.job.clone(), plan: spec.plan.digest() };
        let writ = self.carve(draft.state(), step, spec)?;
        let delegation = Delegation {
            child: self.child(draft.state(), step),
            on_failure: spec.on_failure,
            on_stop: spec.on_stop,
            step: step.clone(),
            task: Content::Inline(Canon::of(&task)?),
            writ: writ.clone(),
        };
        let body = Body::Delegation(Box::new(delegation));
        match draft.push(self.now, self.desk.author(), body) {
            Ok(_) => Ok(()),
            Err(error) => match exceeds(&error) {
                Some((reason, why)) => {
                    self.refuse_to_delegate(draft, step, (writ.doc(), &spec.job), (reason, &why))
                }
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
    fn carve(
        &self,
        state: &State,
        step: &StepId,
        spec: &DelegateSpec,
    ) -> Result<Signed<Writ>, RunError> {
        let (id, parent) = state.writ().ok_or(RunError::NotBegun)?;
        let used = state.spent().plus(state.reserved());
        self.desk.sign(Writ {
            budget: carved(&spec.budget, &parent.budget, &used),
            depth: spec.depth,
            effect: spec.effect.min(parent.effect),
            guardians: true,
            holder: parent.holder,
            key: self.desk.shared.guardian.id(),
            parent: Some(id),
            principal: spec.principal.clone().unwrap_or_else(|| parent.principal.clone()),
            tenant: parent.tenant.clone(),
            tools: spec.tools.iter().cloned().map(ToolPattern::Exact).collect(),
            trajectory: Some(self.child(state, step)),
            type_: Tag::default(),
            window: parent.window,
        })
    }

    /// Says no, as to a call.
    fn refuse_to_delegate(
        &self,
        draft: &mut Draft<Facts>,
        step: &StepId,
        (writ, job): (&Writ, &str),
        (reason, why): (Reason, &str),
    ) -> Result<(), RunError> {
        let args = Canon::of(&Asked { job, writ })?;
        let tool = Canon::of(DELEGATE)?.read()?;
        let proposal = Proposal { args, step: step.clone(), tool };
        let state = draft.state();
        let registry = self.desk.shared.registry();
        let found = Some(Canon::of(&Refused { refused: why.to_owned() })?);
        let decision = self.desk.sign(Decision {
            at: self.now,
            environment: self.desk.in_force.digest,
            key: self.desk.shared.guardian.id(),
            parent: state.head().map(|head| head.id).ok_or(RunError::NotBegun)?,
            proposal: proposal.id()?,
            reason: Some(reason),
            registry: registry.as_ref().and_then(|state| state.head()),
            step: step.clone(),
            trace: vec![Stage { found, stage: "delegation".to_owned() }],
            trajectory: self.desk.trajectory,
            type_: Tag::default(),
            verdict: Verdict::Deny,
            writ: state.writ().map(|(id, _)| id).ok_or(RunError::NotBegun)?,
        })?;
        pipeline::refuse(self.desk, draft, proposal, decision, None, self.now)?;
        Ok(())
    }
}

/// What a refused delegation asked for.
#[derive(Serialize)]
struct Asked<'a> {
    job: &'a str,
    writ: &'a Writ,
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
