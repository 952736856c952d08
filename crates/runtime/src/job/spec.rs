//! What a step of a plan does, in full: everything that is needed to run it from the recorded plan
//! alone, in another process, years later.

use gesta_core::amounts::Budget;
use gesta_core::body::{ConfirmationMode, OnChildFailure, OnStop, PlanStep, StepKind};
use gesta_core::content::Content;
use gesta_core::ids::{Principal, ToolName};
use gesta_core::json::{Canon, JsonError};
use gesta_core::writ::Effect;
use serde::{Deserialize, Deserializer, Serialize};

use super::expr::Expr;
use super::input::InputSpec;
use super::names::References;
use super::template::Template;
use crate::tools::Retry;

/// The id of a plan's last step, which computes the job's answer.
pub const ANSWER: &str = "answer";

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What a mismatch of what it uses leads to, if not what the tool that left it or the job says.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub confirm: Option<ConfirmationMode>,
    /// Facts about the whole job; on the step `answer` only.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub job: Option<JobFacts>,
    /// Unless it holds, the step is skipped.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub when: Option<Expr>,
    /// What to do.
    pub work: Work,
}

/// What a plan says about its job as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFacts {
    /// What a mismatch leads to, unless a tool or a step says otherwise.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub confirm: Option<ConfirmationMode>,
    /// The job's name.
    pub name: String,
    /// What becomes of what was done when the job fails.
    #[serde(default, skip_serializing_if = "OnFailure::is_default")]
    pub on_failure: OnFailure,
    /// How many calls may be open at once.
    pub parallel: u32,
}

/// What becomes of what was done when a job fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is undone, newest first, as far as it can be.
    Compensate,
}

impl OnFailure {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// Calls a tool.
    Call(CallSpec),
    /// Calls a tool for each item of a list, in steps of their own below this one.
    Each {
        /// The call.
        call: CallSpec,
        /// The list.
        over: Template,
        /// Unless it holds for an item, that item is skipped.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        when: Option<Expr>,
    },
    /// Hands a task to a child trajectory.
    Delegate(Box<DelegateSpec>),
    /// Hands a task to a child for each item of a list, in steps of their own below this one.
    Delegates {
        /// The task.
        delegate: Box<DelegateSpec>,
        /// The list.
        over: Template,
        /// Unless it holds for an item, that item is skipped.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        when: Option<Expr>,
    },
    /// Computes a value.
    Set {
        /// The value.
        value: Template,
    },
    /// Waits for a signal, or for a time, or for whichever comes first.
    Wait {
        /// For how long, in milliseconds.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        for_ms: Option<u64>,
        /// The key of the signal.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        signal: Option<Template>,
        /// Until when, in milliseconds since 1970.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        until: Option<Template>,
    },
}

impl Work {
    /// The kind of a step that does this.
    pub(super) fn kind(&self) -> StepKind {
        match self {
            Self::Call(_) => StepKind::Call,
            Self::Each { .. } | Self::Delegates { .. } => StepKind::Loop,
            Self::Delegate(_) => StepKind::Delegate,
            Self::Set { .. } => StepKind::Compute,
            Self::Wait { .. } => StepKind::Wait,
        }
    }
}

/// A task for a child: its plan, what it is given, and the authority that is carved out for it. Part of
/// the plan, so that whoever goes on with the parent can begin the child with nothing but the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegateSpec {
    /// The most that it may use; where nothing is said, what its parent has left.
    pub budget: Budget,
    /// How often it may hand on in turn.
    pub depth: u64,
    /// The most that its tools may do to the world, unless its parent may do less.
    pub effect: Effect,
    /// What it is given.
    pub input: Template,
    /// What it declares that it is given.
    pub inputs: Vec<InputSpec>,
    /// The name of its job.
    pub job: String,
    /// What it means if it does not complete.
    pub on_failure: OnChildFailure,
    /// What becomes of it if its parent stops first.
    pub on_stop: OnStop,
    /// Its plan; a large one, or one that hands on in turn, is in the blob store.
    pub plan: Content,
    /// Who acts in it, if not who acts in its parent.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub principal: Option<Principal>,
    /// The tools that it may call, in order.
    pub tools: Vec<ToolName>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSpec {
    /// The arguments.
    pub args: Template,
    /// The call that undoes it, as its step or its tool declared it when the plan was made.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub compensate: Option<UndoSpec>,
    /// What happens to it when the job is cancelled.
    pub on_cancel: OnCancel,
    /// How often it is tried, if not as often as the tool says.
    #[serde(default, with = "retry", skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long it may take, in milliseconds, if not as long as the tool says.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The tool.
    pub tool: ToolName,
}

/// A call that undoes another. Part of the plan, so that whoever undoes derives the same call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoSpec {
    /// The arguments: over `args`, `result` and `key` of the call that is undone.
    pub args: Template,
    /// The tool.
    pub tool: ToolName,
}

/// What happens to an open call when its job is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCancel {
    /// It is let finish.
    #[default]
    Finish,
    /// It is given up at once; only for tools that may run again anyway.
    Stop,
}

impl Spec {
    /// What a recorded step does.
    pub fn of(step: &PlanStep) -> Result<Self, JsonError> {
        step.spec.read()
    }

    /// The call that it makes, once or for each item.
    pub fn call(&self) -> Option<&CallSpec> {
        match &self.work {
            Work::Call(call) | Work::Each { call, .. } => Some(call),
            Work::Set { .. } | Work::Wait { .. } | Work::Delegate(_) | Work::Delegates { .. } => {
                None
            }
        }
    }

    /// The task that it hands to a child, once or for each item.
    pub fn delegate(&self) -> Option<&DelegateSpec> {
        match &self.work {
            Work::Delegate(delegate) | Work::Delegates { delegate, .. } => Some(delegate),
            Work::Call(_) | Work::Each { .. } | Work::Set { .. } | Work::Wait { .. } => None,
        }
    }

    pub(super) fn canon(&self) -> Result<Canon, JsonError> {
        Canon::of(self)
    }

    /// What all its expressions mention.
    pub fn references(&self) -> References {
        let (templates, test) = match &self.work {
            Work::Call(call) => (vec![&call.args], None),
            Work::Each { call, over, when } => (vec![&call.args, over], when.as_ref()),
            Work::Set { value } => (vec![value], None),
            Work::Delegate(delegate) => (vec![&delegate.input], None),
            Work::Delegates { delegate, over, when } => {
                (vec![&delegate.input, over], when.as_ref())
            }
            Work::Wait { signal, until, .. } => (signal.iter().chain(until).collect(), None),
        };
        let mut all = References::default();
        let found = templates.into_iter().map(Template::references);
        let tests = self.when.iter().chain(test).map(Expr::references);
        for References { steps, inputs, names } in found.chain(tests) {
            all.steps.extend(steps);
            all.inputs.extend(inputs);
            all.names.extend(names);
        }
        all
    }
}

/// Reads an optional field that is present: absence is the only spelling of none.
pub(super) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Retries as a plan keeps them: in one spelling, that of milliseconds. A manifest has others.
pub(crate) mod retry {
    use std::num::NonZeroU32;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Retry;
    use crate::duration::DurationMs;

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Kept {
        attempts: NonZeroU32,
        backoff_ms: u64,
        factor: NonZeroU32,
        max_backoff_ms: u64,
    }

    pub(crate) fn serialize<S: Serializer>(
        retry: &Option<Retry>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let kept = retry.map(|retry| Kept {
            attempts: retry.attempts,
            backoff_ms: retry.backoff.ms(),
            factor: retry.factor,
            max_backoff_ms: retry.max_backoff.ms(),
        });
        kept.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Retry>, D::Error> {
        let kept = Kept::deserialize(deserializer)?;
        Ok(Some(Retry {
            attempts: kept.attempts,
            backoff: DurationMs::from_ms(kept.backoff_ms),
            factor: kept.factor,
            max_backoff: DurationMs::from_ms(kept.max_backoff_ms),
        }))
    }
}
