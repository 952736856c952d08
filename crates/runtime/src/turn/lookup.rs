//! What expressions see of the results of other steps.

use std::sync::{Mutex, PoisonError};

use gesta_core::content::Content;
use gesta_core::digest::Digest;
use gesta_core::ids::StepId;

use super::Blobs;
use crate::facts::Facts;
use crate::job::{Results, StepResult};

/// Results by step, noting the blobs that are not here yet.
pub(super) struct Lookup<'a> {
    facts: &'a Facts,
    blobs: &'a Blobs,
    missing: Mutex<Vec<Digest>>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(facts: &'a Facts, blobs: &'a Blobs) -> Self {
        Self { facts, blobs, missing: Mutex::default() }
    }

    /// The blobs that were asked for and are not here.
    pub(super) fn missing(self) -> Vec<Digest> {
        self.missing.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Results for Lookup<'_> {
    fn result(&self, step: &StepId) -> Option<StepResult> {
        let recorded = self.facts.result(step)?;
        let value = match &recorded.content {
            Content::Inline(value) => value.clone(),
            Content::Blob(blob) => match self.blobs.get(&blob.sha256) {
                Some(value) => value,
                None => {
                    let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
                    missing.push(blob.sha256);
                    return None;
                }
            },
        };
        Some(StepResult { value, skipped: recorded.skipped })
    }
}
