//! Sensitive values on their way into a proposal or a child's input: those that are committed to are handed
//! on as they are; those that are clear are committed to first, which takes random bytes and the store.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gesta_core::body::Proposal;
use gesta_core::digest::Digest;
use gesta_core::document::Failing;
use gesta_core::ids::StepId;
use gesta_core::json::Canon;
use gesta_core::sensitive::{Commitment, Marks, may_hold};
use serde_json::Value;

use super::{Made, Turn};
use crate::desk::failing;

/// Where a value was to go, and its digest.
pub(crate) type Place = (StepId, String, Digest);

/// Commitments that were made in this attempt: a turn that runs again uses the same.
#[derive(Default)]
pub(crate) struct Sealed(Mutex<BTreeMap<Place, Commitment>>);

impl Sealed {
    fn get(&self, place: &Place) -> Option<Commitment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(place).copied()
    }

    pub(crate) fn put(&self, place: Place, commitment: Commitment) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place, commitment);
    }
}

impl Turn<'_> {
    /// A new proposal with what is sensitive committed to. None when something must be sealed first.
    pub(super) fn protected(
        &self,
        proposal: Proposal,
        made: &mut Made,
    ) -> Option<Result<Proposal, Failing>> {
        let tool = self.desk.shared.catalogue.get(&proposal.tool);
        let sensitive = tool.is_some_and(|tool| tool.is_sensitive());
        // A replay takes commitments from the record, and opens none.
        if sensitive && self.recorded.is_none() && self.desk.safe().is_none() {
            if self.desk.shared.vault.is_none() {
                let message = format!(
                    "`{}` takes or returns sensitive values, and this worker has no place for data keys",
                    proposal.tool
                );
                return Some(Err(failing("no_data_keys", &message)));
            }
            made.wants_safe = true;
            return None;
        }
        let none = Marks::default();
        let marks = tool.map_or(&none, |tool| &tool.sensitive().0);
        let to = format!("`{}`", proposal.tool);
        let args = self.committed(&proposal.step, &proposal.args, (marks, &to), made)?;
        Some(args.map(|args| Proposal { args, ..proposal }))
    }

    /// A value with what is marked committed to. None when something must be sealed first; an error when
    /// something committed to stands where it is not marked.
    pub(super) fn committed(
        &self,
        step: &StepId,
        value: &Canon,
        (marks, to): (&Marks, &str),
        made: &mut Made,
    ) -> Option<Result<Canon, Failing>> {
        if marks.is_empty() && !may_hold(value.as_bytes()) {
            return Some(Ok(value.clone()));
        }
        let Ok(mut tree) = serde_json::from_str::<Value>(value.as_str()) else {
            return Some(Err(failing("expression_failed", "the arguments cannot be read")));
        };
        if let Some(pointer) = marks.strays(&tree).into_iter().next() {
            let message = format!(
                "`{pointer}` of {to} is given a sensitive value and is not marked so; mark it with `x-gesta-sensitive`, or do not hand it on"
            );
            return Some(Err(failing("sensitive_astray", &message)));
        }
        let mut missing = false;
        for (pointer, clear) in marks.clear(&tree) {
            let digest = Digest::of(clear.to_string().as_bytes());
            let place = (step.clone(), pointer.clone(), digest);
            match (self.sealed.get(&place), tree.pointer_mut(&pointer)) {
                (Some(commitment), Some(at)) => *at = commitment.value(),
                _ => {
                    made.to_seal.push((place, clear));
                    missing = true;
                }
            }
        }
        if missing {
            return None;
        }
        Some(Canon::of(&tree).map_err(|error| failing("expression_failed", &error.to_string())))
    }
}
