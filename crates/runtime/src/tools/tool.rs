//! One tool of a catalogue: its manifest, its compiled schemas, the way to it.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use gesta_core::amounts::Amounts;
use gesta_core::digest::Digest;
use gesta_core::document::Recovery;
use gesta_core::ids::ToolName;
use gesta_core::json::{Canon, JsonError};
use gesta_core::sensitive::{BadMark, Marks};
use gesta_core::writ::Effect;
use serde::Serialize;

use super::driver::{Call, Driver, Reply};
use super::error::Problem;
use super::manifest::{Change, Compensate, Manifest, Retry, Verify};
use super::schema::{Mismatch, Schema};
use super::secrets::{SecretName, SecretSource};

/// A tool that can be called.
pub struct Tool {
    manifest: Manifest,
    input: Schema,
    output: Option<Schema>,
    /// The arguments with commitments in place of what is sensitive.
    committed: Option<Schema>,
    sensitive: (Marks, Marks),
    canonical: Canon,
    digest: Digest,
    driver: Arc<dyn Driver>,
    frozen: Option<String>,
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, frozen, .. } = self;
        let mut shown = f.debug_struct("Tool");
        shown.field("manifest", &self.manifest).field("digest", digest);
        shown.field("frozen", frozen).finish_non_exhaustive()
    }
}

impl Tool {
    /// Compiles the schemas and computes the digest. `declaration` says how the tool is reached.
    pub(super) fn new(
        manifest: Manifest,
        declaration: &Canon,
        driver: Arc<dyn Driver>,
    ) -> Result<Self, Problem> {
        let bad = |which| move |why| Problem::Schema { which, why };
        let input = Schema::of_input(manifest.input.as_ref()).map_err(bad("input"))?;
        let output = manifest.output.as_ref().map(Schema::of_output).transpose();
        let output = output.map_err(bad("output"))?;
        let marks = |marks: Result<Marks, BadMark>, which| {
            marks.map_err(|why| Problem::Schema { which, why: why.into() })
        };
        let declared = value_of(input.canonical())?;
        let taken = marks(Marks::of_arguments(&declared), "input")?;
        let returned = match &output {
            Some(output) => marks(Marks::of(&value_of(output.canonical())?), "output")?,
            None => Marks::default(),
        };
        let committed = match taken.is_empty() {
            true => None,
            false => {
                let schema = taken.committed(&declared);
                Some(Schema::of_input(Some(&schema)).map_err(bad("input"))?)
            }
        };
        let canonical = Document::of(&manifest, &input, output.as_ref(), declaration)?;
        Ok(Self {
            digest: Digest::of(canonical.as_bytes()),
            canonical,
            manifest,
            input,
            output,
            committed,
            sensitive: (taken, returned),
            driver,
            frozen: None,
        })
    }

    /// Its name.
    pub fn name(&self) -> &ToolName {
        &self.manifest.name
    }

    /// What it declares.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Everything that is declared about it, as canonical JSON: manifest, schemas as they are
    /// enforced, and how it is reached. Holds no secret.
    pub fn canonical(&self) -> &Canon {
        &self.canonical
    }

    /// The digest of [`Tool::canonical`]: what a pin holds.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The schema of the arguments as it is enforced.
    pub fn input_schema(&self) -> &Canon {
        self.input.canonical()
    }

    /// The schema of the result, if there is one.
    pub fn output_schema(&self) -> Option<&Canon> {
        self.output.as_ref().map(Schema::canonical)
    }

    /// How arguments depart from the input schema: nothing if they fit.
    pub fn check_input(&self, args: &Canon) -> Vec<Mismatch> {
        self.input.check(args)
    }

    /// How arguments depart from the input schema where commitments stand for what is sensitive: nothing
    /// if they fit.
    pub fn check_committed(&self, args: &Canon) -> Vec<Mismatch> {
        self.committed.as_ref().unwrap_or(&self.input).check(args)
    }

    /// Which of its arguments are sensitive, and what of its result.
    pub fn sensitive(&self) -> &(Marks, Marks) {
        &self.sensitive
    }

    /// Whether calls of it carry sensitive values, one way or the other.
    pub fn is_sensitive(&self) -> bool {
        let (taken, returned) = &self.sensitive;
        !taken.is_empty() || !returned.is_empty()
    }

    /// How a result departs from the output schema: nothing if it fits, or if there is none.
    pub fn check_output(&self, output: &Canon) -> Vec<Mismatch> {
        self.output.as_ref().map(|schema| schema.check(output)).unwrap_or_default()
    }

    /// Why it may not be called, if it may not: it is not what was pinned.
    pub fn frozen(&self) -> Option<&str> {
        self.frozen.as_deref().or_else(|| self.driver.frozen())
    }

    pub(super) fn freeze(&mut self, reason: Option<String>) {
        self.frozen = reason;
    }

    /// Makes the call. What may be called is for others to decide.
    pub async fn call(&self, call: Call) -> Reply {
        self.driver.call(call).await
    }
}

fn value_of(canon: &Canon) -> Result<serde_json::Value, JsonError> {
    canon.read()
}

/// What a tool's digest covers. Field order is alphabetical, as the canonical form wants it.
#[derive(Serialize)]
struct Document<'a> {
    changes: &'a [Change],
    #[serde(skip_serializing_if = "Option::is_none")]
    compensate: Option<&'a Compensate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<NonZeroU32>,
    cost: Amounts,
    description: &'a str,
    driver: &'a Canon,
    effect: Effect,
    input: &'a Canon,
    key_ttl_ms: u64,
    name: &'a ToolName,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Canon>,
    preconditions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<&'a ToolName>,
    recovery: Recovery,
    retry: Retry,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<u8>,
    secrets: &'a BTreeMap<SecretName, SecretSource>,
    settle_ms: u64,
    timeout_ms: u64,
    #[serde(skip_serializing_if = "<[Verify]>::is_empty")]
    verify: &'a [Verify],
}

impl Document<'_> {
    /// Destructured whole, so that no new field of a manifest can stay outside the digest.
    fn of(
        manifest: &Manifest,
        input_schema: &Schema,
        output_schema: Option<&Schema>,
        driver: &Canon,
    ) -> Result<Canon, JsonError> {
        let Manifest {
            name,
            description,
            effect,
            risk,
            recovery,
            probe,
            key_ttl,
            settle,
            timeout,
            retry,
            cost,
            concurrency,
            input: _,
            output: _,
            changes,
            preconditions,
            compensate,
            verify,
            secrets,
        } = manifest;
        Canon::of(&Document {
            changes,
            compensate: compensate.as_ref(),
            concurrency: *concurrency,
            cost: *cost,
            description,
            driver,
            effect: *effect,
            input: input_schema.canonical(),
            key_ttl_ms: key_ttl.ms(),
            name,
            output: output_schema.map(Schema::canonical),
            preconditions,
            probe: probe.as_ref(),
            recovery: *recovery,
            retry: *retry,
            risk: *risk,
            secrets,
            settle_ms: settle.ms(),
            timeout_ms: timeout.ms(),
            verify,
        })
    }
}
