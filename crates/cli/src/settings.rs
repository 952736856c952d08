//! How workers behave, as `[worker]` in `gesta.toml` says it, and the digest of what decisions rest on.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use gesta_core::ids::{Principal, Tenant};
use gesta_core::policy::Channels;
use gesta_core::temporal::{Grade, Rule, Temporal};
use gesta_runtime::duration::DurationMs;
use gesta_runtime::tools::SizeBytes;
use gesta_runtime::{Options, STARTS};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::problem::Problem;

/// `[worker]`. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerSettings {
    /// How long a lease lasts without a heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<DurationMs>,
    /// How far clocks may differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skew: Option<DurationMs>,
    /// How many jobs one worker drives at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jobs: Option<usize>,
    /// How often the store is asked for work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) poll: Option<DurationMs>,
    /// How long running calls are waited for when a worker is to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grace: Option<DurationMs>,
    /// The largest arguments of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_args: Option<SizeBytes>,
    /// Which keys sign what.
    #[serde(default, skip_serializing_if = "WorkerKeys::is_default")]
    pub(crate) keys: WorkerKeys,
}

/// `keys = { guardian = NAME, executor = NAME }`: names of keys; what is absent is `worker`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerKeys {
    /// Signs decisions and permits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) guardian: Option<String>,
    /// Signs receipts and reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) executor: Option<String>,
}

impl WorkerKeys {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[log]`: the transparency log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogSettings {
    /// What the log is called; for good, once something is sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<String>,
    /// How often workers seal, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) every: Option<DurationMs>,
    /// The name of the key that signs checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl LogSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[retention]`: what `gesta archive` does unless it is told otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionSettings {
    /// How long what has ended stays in the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) archive_after: Option<DurationMs>,
    /// The directory that bundles are put into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<PathBuf>,
}

impl RetentionSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[temporal]`: windows, and what follows when one is full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemporalSettings {
    /// For each job.
    #[serde(default)]
    trajectory: Vec<RuleSettings>,
    /// For each principal.
    #[serde(default)]
    principal: Vec<RuleSettings>,
}

/// So many calls in such a time, and what follows at the next one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSettings {
    #[serde(deserialize_with = "countable")]
    calls: u64,
    per: DurationMs,
    then: Grade,
}

/// No more than a worker remembers of a job.
fn countable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        calls if calls <= STARTS as u64 => Ok(calls),
        _ => Err(D::Error::custom(format!(
            "at most {STARTS} calls can be counted; use a shorter time"
        ))),
    }
}

impl TemporalSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What the runtime is told.
    pub(crate) fn temporal(&self) -> Temporal {
        let rules = |rules: &[RuleSettings]| {
            let rule = |rule: &RuleSettings| Rule {
                calls: rule.calls,
                per_ms: rule.per.ms(),
                then: rule.then,
            };
            rules.iter().map(rule).collect()
        };
        Temporal { principal: rules(&self.principal), trajectory: rules(&self.trajectory) }
    }
}

/// The shortest lease that heartbeats can hold.
const SHORTEST_LEASE_MS: u64 = 300;

impl WorkerSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What the runtime is told. The lease is what the store suggests, unless it is given.
    pub(crate) fn options(&self, lease_ms: u64) -> Options {
        let Self { lease, skew, jobs, poll, grace, max_args, keys: _ } = self;
        let default = Options::default();
        let ms = |given: &Option<DurationMs>, default: u64| given.map_or(default, DurationMs::ms);
        Options {
            lease_ms: ms(lease, lease_ms).max(SHORTEST_LEASE_MS),
            skew_ms: ms(skew, default.skew_ms),
            max_args_bytes: max_args.map_or(default.max_args_bytes, SizeBytes::bytes),
            jobs: jobs.unwrap_or(default.jobs).max(1),
            poll_ms: ms(poll, default.poll_ms).max(1),
            grace_ms: ms(grace, default.grace_ms),
            ..default
        }
    }
}

/// `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitSettings {
    /// By tenant.
    #[serde(default)]
    tenants: BTreeMap<Tenant, TenantLimits>,
    /// At which parts of a tenant's daily budget somebody is warned, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warn_at: Option<Vec<u8>>,
}

/// `[limits.tenants.NAME]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantLimits {
    /// How many calls may be under way at once, of all workers together.
    calls: NonZeroU32,
}

impl LimitSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Where to warn; what is not said stays as it is.
    pub(crate) fn warn_at(&self, default: Vec<u8>) -> Vec<u8> {
        self.warn_at.clone().unwrap_or(default)
    }

    pub(crate) fn tenant_calls(&self) -> BTreeMap<Tenant, NonZeroU32> {
        self.tenants.iter().map(|(tenant, limits)| (tenant.clone(), limits.calls)).collect()
    }
}

/// `[policy]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicySettings {
    /// Files of policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<PathBuf>,
    /// Whose word counts on which channel.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) channels: Channels,
    /// Who has which role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) roles: BTreeMap<String, BTreeSet<Principal>>,
}

impl PolicySettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[postgres]`. What is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PostgresSettings {
    /// The most connections for statements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<NonZeroU32>,
    /// How long the server may work on a statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<DurationMs>,
    /// The certificate authority of the server, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// A file that holds the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_file: Option<PathBuf>,
    /// A variable of the environment that holds the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_env: Option<String>,
}

impl PostgresSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// With paths that are meant from this directory.
    pub(crate) fn within(mut self, directory: &Path) -> Self {
        for path in self.ca.iter_mut().chain(&mut self.password_file) {
            *path = directory.join(&*path);
        }
        self
    }

    /// The password, if it stands somewhere else than in the URL.
    pub(crate) fn password(&self) -> Result<Option<String>, Problem> {
        if let Some(file) = &self.password_file {
            let text = std::fs::read_to_string(file).map_err(|error| {
                let shown = file.display();
                Problem::new(format!("cannot read the password file `{shown}`: {error}"))
            })?;
            return Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()));
        }
        let Some(name) = &self.password_env else { return Ok(None) };
        std::env::var(name).map(Some).map_err(|_| {
            Problem::new(format!("the variable `{name}` does not hold a password"))
                .hint("`password_env` under [postgres] in gesta.toml names it")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_options_and_only_some_of_them_decide() {
        let read = |text: &str| toml::from_str::<WorkerSettings>(text).unwrap().options(10_000);
        let given = read(
            "lease = \"5s\"\nskew = \"0ms\"\njobs = 3\npoll = 50\ngrace = \"1m\"\nmax_args = \"1KiB\"\n",
        );
        assert_eq!((given.lease_ms, given.skew_ms, given.jobs), (5_000, 0, 3));
        assert_eq!((given.poll_ms, given.grace_ms, given.max_args_bytes), (50, 60_000, 1024));
        let windows = "principal = [{ calls = 5, per = \"1m\", then = \"close\" }]\n";
        let temporal = toml::from_str::<TemporalSettings>(windows).unwrap().temporal();
        let rule = Rule { calls: 5, per_ms: 60_000, then: Grade::Close };
        assert_eq!((temporal.principal, temporal.trajectory), (vec![rule], vec![]));
        assert!(toml::from_str::<TemporalSettings>(&windows.replace("5", "5000")).is_err());
        let of = |text: &str| read(text).digest().unwrap();
        assert_eq!(of(""), of("jobs = 9\npoll = 7\ngrace = \"1s\"\n"));
        assert_ne!(of(""), of("skew = \"5s\"\n"));
    }
}
