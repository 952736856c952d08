//! How workers behave, as `[worker]` in `gesta.toml` says it, and the digest of what decisions rest on.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use gesta_core::guardian::Rate;
use gesta_core::ids::Tenant;
use gesta_runtime::Options;
use gesta_runtime::duration::DurationMs;
use gesta_runtime::tools::SizeBytes;
use serde::{Deserialize, Serialize};

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
    /// How fast one job may call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<RateSettings>,
    /// The largest arguments of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_args: Option<SizeBytes>,
}

/// So many calls in such a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateSettings {
    calls: u64,
    per: DurationMs,
}

/// The shortest lease that heartbeats can hold.
const SHORTEST_LEASE_MS: u64 = 300;

impl WorkerSettings {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What the runtime is told. The lease is what the store suggests, unless it is given.
    pub(crate) fn options(&self, lease_ms: u64) -> Options {
        let Self { lease, skew, jobs, poll, grace, rate, max_args } = self;
        let default = Options::default();
        let ms = |given: &Option<DurationMs>, default: u64| given.map_or(default, DurationMs::ms);
        Options {
            lease_ms: ms(lease, lease_ms).max(SHORTEST_LEASE_MS),
            skew_ms: ms(skew, default.skew_ms),
            max_args_bytes: max_args.map_or(default.max_args_bytes, SizeBytes::bytes),
            rate: rate.map(|RateSettings { calls, per }| Rate { calls, per_ms: per.ms() }),
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
            "lease = \"5s\"\nskew = \"0ms\"\njobs = 3\npoll = 50\ngrace = \"1m\"\nmax_args = \"1KiB\"\nrate = { calls = 5, per = \"1m\" }\n",
        );
        assert_eq!((given.lease_ms, given.skew_ms, given.jobs), (5_000, 0, 3));
        assert_eq!((given.poll_ms, given.grace_ms, given.max_args_bytes), (50, 60_000, 1024));
        assert_eq!(given.rate, Some(Rate { calls: 5, per_ms: 60_000 }));
        let of = |text: &str| read(text).digest().unwrap();
        assert_eq!(of(""), of("jobs = 9\npoll = 7\ngrace = \"1s\"\n"));
        assert_ne!(of(""), of("skew = \"5s\"\n"));
    }
}
