//! What expressions find: values of the blob store that were needed before, and results by step.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gesta_core::content::Content;
use gesta_core::digest::Digest;
use gesta_core::ids::StepId;
use gesta_core::json::Canon;

use crate::facts::Facts;
use crate::job::{Results, StepResult};

/// Values that are in the blob store and were needed before.
#[derive(Default)]
pub(crate) struct Blobs(Mutex<BTreeMap<Digest, Canon>>);

impl Blobs {
    pub(crate) fn get(&self, digest: &Digest) -> Option<Canon> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }

    pub(crate) fn put(&self, digest: Digest, value: Canon) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, value);
    }
}

/// Results by step, noting the blobs that are not here yet.
pub(super) struct Lookup<'a> {
    pub(super) facts: &'a Facts,
    pub(super) blobs: &'a Blobs,
    pub(super) missing: Mutex<Vec<Digest>>,
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
