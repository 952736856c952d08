//! What is in force for whatever a worker decides: configuration, tools, policies. The registry says
//! which policy set; without one, reads are allowed and people are asked about everything else.

use std::sync::{Arc, Mutex, PoisonError};

use gesta_core::digest::Digest;
use gesta_core::document::Environment;
use gesta_core::policy::{Answer, Channels, Query};
use gesta_core::state::State;
use gesta_policy::{PolicyDocument, PolicySet};
use gesta_store::Store;

use crate::error::RunError;
use crate::tools::Catalogue;

/// What is in force.
pub(crate) struct InForce {
    pub(crate) environment: Environment,
    /// What decisions name it by.
    pub(crate) digest: Digest,
    policies: Result<Arc<PolicySet>, String>,
}

/// How many compiled policy sets a process remembers.
const REMEMBERED: usize = 8;
/// The newest last. Compiling takes milliseconds, and many workers of one process ask for the same.
static COMPILED: Mutex<Vec<Arc<PolicySet>>> = Mutex::new(Vec::new());

/// Compiles a policy set, unless that was done before.
pub(crate) fn compiled(document: &PolicyDocument) -> Result<Arc<PolicySet>, RunError> {
    let digest = document.digest()?;
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = compiled.iter().find(|known| known.digest() == digest) {
        return Ok(Arc::clone(known));
    }
    let set = PolicySet::compile(document).map_err(|error| RunError::Policy(error.to_string()))?;
    let set = Arc::new(set);
    if compiled.len() >= REMEMBERED {
        compiled.remove(0);
    }
    compiled.push(Arc::clone(&set));
    Ok(set)
}

/// The policy set that is in force: the registry's, or what stands for none.
pub async fn policies(
    store: &dyn Store,
    registry: Option<&State>,
    catalogue: &Catalogue,
) -> Result<Arc<PolicySet>, RunError> {
    let digest = registry.and_then(|registry| registry.registry().policy());
    let document = match digest {
        None => PolicyDocument::default_for(catalogue.shapes()?),
        Some(digest) => {
            let bytes = store.blob(digest).await?.ok_or_else(|| {
                RunError::Policy(format!("the content of {digest} is not in the store"))
            })?;
            PolicyDocument::parse(&bytes).map_err(|error| RunError::Policy(error.to_string()))?
        }
    };
    compiled(&document)
}

/// Whose word counts on which channel, by what is published.
pub async fn channels(store: &dyn Store, registry: &State) -> Result<Channels, RunError> {
    let Some(digest) = registry.registry().policy() else { return Ok(Channels::new()) };
    let bytes = store.blob(digest).await?;
    let missing = || RunError::Policy(format!("the content of {digest} is not in the store"));
    let document = PolicyDocument::parse(&bytes.ok_or_else(missing)?);
    Ok(document.map_err(|error| RunError::Policy(error.to_string()))?.channels)
}

/// Which policy set is in force: the registry's, or what stands for none.
pub(crate) async fn policy_digest(
    store: &dyn Store,
    registry: Option<&State>,
    catalogue: &Catalogue,
) -> Result<Digest, RunError> {
    match registry.and_then(|registry| registry.registry().policy()) {
        Some(digest) => Ok(digest),
        None => {
            let document = PolicyDocument::default_for(catalogue.shapes()?).canonical()?;
            Ok(store.put_blob(document.as_bytes()).await?.sha256)
        }
    }
}

impl InForce {
    /// Reads what is in force. A policy set that cannot be had or understood is in force all the same,
    /// and denies everything.
    pub(crate) async fn read(
        store: &dyn Store,
        registry: Option<&State>,
        catalogue: &Catalogue,
        config: Digest,
    ) -> Result<Self, RunError> {
        let policy = policy_digest(store, registry, catalogue).await?;
        let policies = match policies(store, registry, catalogue).await {
            Err(RunError::Policy(why)) => Err(format!("the policy set {policy}: {why}")),
            other => Ok(other?),
        };
        if let Err(why) = &policies {
            tracing::error!("{why}; every call is refused");
        }
        let environment = Environment { config, policy, tools: catalogue.digest() };
        Ok(Self { digest: environment.digest()?, environment, policies })
    }

    /// What was in force, as far as it could be read.
    pub(crate) fn recorded(
        environment: Environment,
        policies: Result<Arc<PolicySet>, String>,
    ) -> Result<Self, RunError> {
        Ok(Self { digest: environment.digest()?, environment, policies })
    }

    /// Whose word counts on which channel. Policies that cannot be understood let nothing happen anyway.
    pub(crate) fn channels(&self) -> Channels {
        self.policies.as_ref().map(|policies| policies.channels().clone()).unwrap_or_default()
    }

    /// What the policies say.
    pub(crate) fn answer(&self, query: &Query<'_>) -> Result<Answer, String> {
        self.policies.as_ref().map(|policies| policies.answer(query)).map_err(Clone::clone)
    }
}
