//! What a decision found, read back from its trace and put into words. For people alone: what becomes
//! part of an entry is said by [`super::why`], whose words are on record and stay as they are.

use serde::Deserialize;

use super::{Unpublished, why_of};
use crate::document::{Decision, Reason, Stage};
use crate::duration::DurationMs;
use crate::json::Canon;
use crate::policy::{Answer, Asking, Requirement, Ruling};
use crate::temporal::{Pace, Whose};

/// What the stage `policy` found, as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyFound {
    /// How people are asked, if they must be.
    pub asking: Option<Asking>,
    /// Whether it may be called.
    pub call: Ruling,
    /// Who had agreed.
    pub granted: Vec<String>,
    /// What was demanded and not there.
    pub missing: Vec<Requirement>,
    /// Why no policy could be asked, if none could.
    pub refused: Option<String>,
    /// What must be committed before.
    pub requires: Vec<Requirement>,
    /// Whether it may be called without asking anybody.
    pub unattended: Ruling,
}

impl PolicyFound {
    /// What the policies said when this was decided; none if they were not asked, or it cannot be read.
    pub fn of(decision: &Decision) -> Option<Self> {
        let stage = decision.trace.iter().find(|stage| stage.stage == "policy")?;
        stage.found.as_ref()?.read().ok()
    }

    /// What the policies answered, if they could be asked.
    pub fn answer(&self) -> Option<Answer> {
        let Self { asking, call, refused, requires, unattended, .. } = self.clone();
        refused.is_none().then_some(Answer { call, requires, unattended, asking })
    }
}

/// Why a decision is no, in plain words; none if it is not.
pub fn refusal(decision: &Decision) -> Option<String> {
    refused(decision.reason, &decision.trace)
}

/// Why a verdict is no, in plain words, from what its stages found.
pub fn refused(reason: Option<Reason>, trace: &[Stage]) -> Option<String> {
    let reason = reason?;
    let told = trace.last().and_then(|stage| match stage.stage.as_str() {
        "tool" if reason == Reason::UnknownTool => {
            let unpublished = Unpublished::Absent.why();
            Some(match why_of(Some(reason), trace) {
                why if why == unpublished => why,
                _ => "no tool of that name is in the worker's catalogue".to_owned(),
            })
        }
        "types" => Some(mismatches(&read::<Vec<String>>(stage)?)),
        "preconditions" => Some(conditions(&read::<Vec<Condition>>(stage)?)),
        "temporal" => Some(paces(&read::<Vec<Pace>>(stage)?)),
        "envelope" => {
            let most = read::<Envelope>(stage)?.max_args_bytes;
            Some(format!("the arguments are larger than {most} bytes, or are not an object"))
        }
        "policy" if reason == Reason::MissingRequirement => {
            let found = read::<PolicyFound>(stage)?;
            let missing: Vec<String> = found.missing.iter().map(ToString::to_string).collect();
            Some(format!("it must be committed first, and is not: {}", missing.join(", ")))
        }
        _ => None,
    });
    Some(told.unwrap_or_else(|| why_of(Some(reason), trace)))
}

#[derive(Deserialize)]
struct Condition {
    condition: String,
    #[serde(default)]
    error: Option<String>,
    held: bool,
}

#[derive(Deserialize)]
struct Envelope {
    max_args_bytes: u64,
}

fn read<T: serde::de::DeserializeOwned>(stage: &Stage) -> Option<T> {
    serde_json::from_str(stage.found.as_ref().map(Canon::as_str)?).ok()
}

fn mismatches(found: &[String]) -> String {
    format!("the arguments do not fit the tool's schema: {}", found.join("; "))
}

fn conditions(found: &[Condition]) -> String {
    let failed = found.iter().filter(|condition| !condition.held);
    let told = failed.map(|Condition { condition, error, .. }| match error {
        Some(error) => format!("`{condition}` cannot be evaluated: {error}"),
        None => format!("`{condition}` does not hold"),
    });
    format!("the world is not as the tool demands: {}", told.collect::<Vec<_>>().join("; "))
}

fn paces(found: &[Pace]) -> String {
    let told = found.iter().filter(|pace| pace.full()).map(|pace| {
        let whose = match pace.whose {
            Whose::Trajectory => "job",
            Whose::Principal => "principal",
        };
        let (calls, per) = (pace.rule.calls, DurationMs::from_ms(pace.rule.per_ms));
        format!("the {whose} may make {calls} calls in {per}, and has made {}", pace.in_window)
    });
    told.collect::<Vec<_>>().join("; ")
}
