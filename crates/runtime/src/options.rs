//! How a worker behaves, and the part of it that decisions rest on.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use gesta_core::digest::Digest;
use gesta_core::ids::Tenant;
use gesta_core::json::{Canon, JsonError};
use gesta_core::temporal::Temporal;
use gesta_store::{Reach, Store};
use serde::{Deserialize, Serialize};

use crate::tools::Webhook;

/// How a worker behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a lease lasts without a heartbeat.
    pub lease_ms: u64,
    /// How far clocks may differ.
    pub skew_ms: u64,
    /// The largest arguments, in bytes.
    pub max_args_bytes: usize,
    /// How fast may be called.
    pub temporal: Temporal,
    /// How many trajectories are driven at once.
    pub jobs: usize,
    /// How often the store is asked for work, and a quiet trajectory for what others have added.
    pub poll_ms: u64,
    /// How long running calls are waited for when the worker is to stop.
    pub grace_ms: u64,
    /// How many attempts in a row may leave nothing behind before a job is given up.
    pub fruitless_most: u64,
    /// After how many commits the digest of the world is written down.
    pub checkpoint_every: u64,
    /// How many calls of a tenant may be under way at once, of all workers together.
    pub tenant_calls: BTreeMap<Tenant, NonZeroU32>,
    /// At which parts of a tenant's daily budget somebody is warned, in percent.
    pub warn_at: Vec<u8>,
    /// Who is told when something waits for a person.
    pub webhooks: Vec<Webhook>,
    /// What is broken on purpose.
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<crate::Sabotage>,
}

impl Options {
    /// How often a worker says that it is alive.
    pub(crate) fn beat(&self) -> Duration {
        Duration::from_millis((self.lease_ms / 3).max(1))
    }

    /// The defaults for a store.
    pub fn of(store: &dyn Store) -> Self {
        Self { lease_ms: store.reach().lease_ms(), ..Self::default() }
    }

    /// What decisions rest on, as it is kept for whoever replays them.
    pub fn canonical(&self) -> Result<Canon, JsonError> {
        let (lease_ms, skew_ms) = (self.lease_ms, self.skew_ms);
        let (max_args_bytes, temporal) = (self.max_args_bytes, self.temporal.clone());
        let type_ = Decisive::TYPE.to_owned();
        Canon::of(&Decisive { lease_ms, max_args_bytes, skew_ms, temporal, type_ })
    }

    /// The digest of what decisions rest on.
    pub fn digest(&self) -> Result<Digest, JsonError> {
        self.canonical().map(|canon| Digest::of(canon.as_bytes()))
    }

    /// What decisions rested on, read again.
    pub(crate) fn recorded(bytes: &[u8]) -> Result<Self, String> {
        let canon = Canon::parse(bytes).map_err(|error| error.to_string())?;
        let decisive: Decisive = canon.read().map_err(|error| error.to_string())?;
        let Decisive { lease_ms, max_args_bytes, skew_ms, temporal, type_ } = decisive;
        if type_ != Decisive::TYPE {
            return Err(format!("its type is `{type_}`"));
        }
        Ok(Self { lease_ms, max_args_bytes, skew_ms, temporal, ..Self::default() })
    }
}

/// The part of the options that decisions rest on.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decisive {
    lease_ms: u64,
    max_args_bytes: usize,
    skew_ms: u64,
    temporal: Temporal,
    #[serde(rename = "type")]
    type_: String,
}

impl Decisive {
    const TYPE: &'static str = "gesta.config.v1";
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease_ms: Reach::Process.lease_ms(),
            skew_ms: 1_000,
            max_args_bytes: 256 * 1024,
            temporal: Temporal::default(),
            jobs: 64,
            poll_ms: 200,
            grace_ms: 30_000,
            fruitless_most: 8,
            checkpoint_every: 1_000,
            tenant_calls: BTreeMap::new(),
            warn_at: vec![80],
            webhooks: Vec::new(),
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}
