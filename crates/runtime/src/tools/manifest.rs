//! What a tool declares of itself: effect, recovery, limits, schemas. Knows nothing of files, nor of
//! how the tool is reached.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use gesta_core::amounts::Amounts;
use gesta_core::body::ConfirmationMode;
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::Recovery;
use gesta_core::ids::{ResourceType, ToolName};
use gesta_core::writ::Effect;
use serde::{Deserialize, Serialize};

use super::secrets::{SecretName, SecretSource};
use crate::duration::DurationMs;

/// What a tool declares of itself. [`Manifest::new`] gives every field its default.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Its name.
    pub name: ToolName,
    /// What it does, for people and models.
    pub description: String,
    /// What it does to the world.
    pub effect: Effect,
    /// How much is at stake, from 0 to 100: for policies to compare, and for nothing else.
    pub risk: Option<u8>,
    /// How it may be recovered after an unknown outcome.
    pub recovery: Recovery,
    /// The read-only tool that tells whether it happened; with [`Recovery::Probe`] only.
    pub probe: Option<ToolName>,
    /// For how long the other side remembers a key.
    pub key_ttl: DurationMs,
    /// How long after its deadline an effect may still land.
    pub settle: DurationMs,
    /// How long one call may take.
    pub timeout: DurationMs,
    /// How often it is tried, and after which pauses.
    pub retry: Retry,
    /// What is reserved for one call.
    pub cost: Amounts,
    /// How many calls of it may be under way at a time, of all workers of the store together; without
    /// it, as many as there are.
    pub concurrency: Option<NonZeroU32>,
    /// The JSON Schema of the arguments. Without it, any object.
    pub input: Option<serde_json::Value>,
    /// The JSON Schema of the result. Without it, any value.
    pub output: Option<serde_json::Value>,
    /// What a successful call changes in the world.
    pub changes: Vec<Change>,
    /// What must hold of the arguments and the world before a call: expressions over `args` and
    /// `world`.
    pub preconditions: Vec<String>,
    /// The call that undoes a successful one, unless a step says otherwise.
    pub compensate: Option<Compensate>,
    /// How to find out whether the outside still agrees with what a call has changed.
    pub verify: Vec<Verify>,
    /// The secrets it needs, and where they are found at each call.
    pub secrets: BTreeMap<SecretName, SecretSource>,
}

impl Manifest {
    /// A tool with this effect, and the default for everything else.
    pub fn new(name: ToolName, effect: Effect) -> Self {
        Self {
            name,
            description: String::new(),
            effect,
            risk: None,
            recovery: default_recovery(effect),
            probe: None,
            key_ttl: DEFAULT_KEY_TTL,
            settle: DurationMs::ZERO,
            timeout: DEFAULT_TIMEOUT,
            retry: Retry::default(),
            cost: Amounts::ONE_CALL,
            concurrency: None,
            input: None,
            output: None,
            changes: Vec::new(),
            preconditions: Vec::new(),
            compensate: None,
            verify: Vec::new(),
            secrets: BTreeMap::new(),
        }
    }
}

/// 24 hours.
pub(super) const DEFAULT_KEY_TTL: DurationMs = DurationMs::from_ms(24 * 3_600_000);
/// 30 seconds.
pub(super) const DEFAULT_TIMEOUT: DurationMs = DurationMs::from_ms(30_000);

/// What changes nothing may run again; of anything else only an operator can tell.
pub(super) fn default_recovery(effect: Effect) -> Recovery {
    match effect {
        Effect::Read => Recovery::Safe,
        Effect::Write | Effect::External | Effect::Irreversible => Recovery::Never,
    }
}

/// A resource of the world that a successful call changes. `id` and `value` are expressions over the
/// call; whoever folds the call into the world evaluates them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// What kind of thing.
    #[serde(rename = "type")]
    pub type_: ResourceType,
    /// An expression that yields its id.
    pub id: String,
    /// An expression that yields its new value. Without one, that is the whole result; what is
    /// retracted has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Whether the resource ceases to be.
    #[serde(default)]
    pub retract: bool,
}

/// The call that undoes another. Its arguments are JSON with expressions over `args`, `result` and `key`
/// of the call that is undone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compensate {
    /// Its arguments.
    #[serde(default = "no_args")]
    pub args: serde_json::Value,
    /// The tool.
    pub tool: ToolName,
}

/// What the expressions of a compensation may use.
pub const COMPENSATE_NAMES: [&str; 3] = ["args", "result", "key"];

/// How to find out whether the outside still agrees with a resource that a call has changed. `args` is
/// JSON with expressions over [`VERIFY_NAMES`]; `holds` may look at `found` too, which is what the verifier
/// found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// What the verifier is asked.
    #[serde(default = "no_args")]
    pub args: serde_json::Value,
    /// What a mismatch leads to, if not what the job says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<ConfirmationMode>,
    /// What must hold of what it finds.
    pub holds: String,
    /// Which of the resources that the tool changes.
    #[serde(rename = "type")]
    pub type_: ResourceType,
    /// The verifier, by its name in the catalogue.
    pub verifier: ToolName,
}

/// What the expressions of a verification may use: arguments, result and key of the call, and id and
/// value of the resource as the call left it.
pub const VERIFY_NAMES: [&str; 5] = ["args", "result", "key", "id", "value"];

fn no_args() -> serde_json::Value {
    serde_json::Value::Object(serde_json::Map::new())
}

/// How often a call is tried, and after which pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// How often altogether, the first time included.
    pub attempts: NonZeroU32,
    /// The pause after the first failure.
    #[serde(rename(serialize = "backoff_ms"))]
    pub backoff: DurationMs,
    /// By how much each pause is longer than the one before.
    pub factor: NonZeroU32,
    /// The longest pause.
    #[serde(rename(serialize = "max_backoff_ms"))]
    pub max_backoff: DurationMs,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: NonZeroU32::MIN.saturating_add(2),
            backoff: DurationMs::from_ms(200),
            factor: NonZeroU32::MIN.saturating_add(1),
            max_backoff: DurationMs::from_ms(30_000),
        }
    }
}

impl Retry {
    /// The pause after so many failures in a row: growing, capped, and between half and the whole of
    /// that by the seed, so that workers who failed together do not come back together. The same
    /// seed gives the same pause, in a replay too.
    pub fn delay_ms(&self, failures: u64, seed: Seed) -> u64 {
        let Some(steps) = failures.checked_sub(1) else { return 0 };
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let grown = u64::from(self.factor.get()).saturating_pow(steps);
        let full = self.backoff.ms().saturating_mul(grown).min(self.max_backoff.ms());
        let half = full / 2;
        full - draw(failures, seed) % (half + 1)
    }
}

fn draw(failures: u64, seed: Seed) -> u64 {
    let (seed, failures) = (seed.to_string(), failures.to_string());
    let digest = Digest::of_parts(&[b"gesta.backoff", seed.as_bytes(), failures.as_bytes()]);
    let (first, _) = digest.as_bytes().as_chunks::<8>();
    first.first().copied().map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(byte: u8) -> Seed {
        Seed::new(Digest::from_bytes([byte; 32]))
    }

    #[test]
    fn pauses_grow_to_their_cap_and_spread_over_the_upper_half() {
        let retry = Retry::default();
        for (failures, full) in
            [(1, 200), (2, 400), (3, 800), (8, 25_600), (9, 30_000), (u64::MAX, 30_000)]
        {
            for byte in 0..50 {
                let delay = retry.delay_ms(failures, seed(byte));
                assert!((full / 2..=full).contains(&delay), "{failures}: {delay}");
            }
        }
        assert_eq!(retry.delay_ms(0, seed(1)), 0);
    }

    #[test]
    fn a_pause_depends_on_seed_and_failures_and_on_nothing_else() {
        let retry = Retry::default();
        assert_eq!(retry.delay_ms(3, seed(1)), retry.delay_ms(3, seed(1)));
        let by_seed: std::collections::BTreeSet<u64> =
            (0..50).map(|byte| retry.delay_ms(9, seed(byte))).collect();
        assert!(by_seed.len() > 40, "{by_seed:?}");
        assert_ne!(retry.delay_ms(20, seed(1)), retry.delay_ms(21, seed(1)));
    }
}
