//! What replays rest on beside the chain: catalogues, policy sets and options by their digests, and the
//! registry as it stood. Read once for all trajectories.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::digest::Digest;
use gesta_core::document::Environment;
use gesta_core::entry::Head;
use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_core::state::State;
use gesta_policy::PolicyDocument;
use gesta_store::Store;

use crate::error::RunError;
use crate::in_force::{self, InForce};
use crate::options::Options;
use crate::published;
use crate::rules::Rules;
use crate::tools::{Catalogue, Definitions};

/// How many entries are read at a time.
const PAGE: usize = 512;

/// A catalogue, and what its tools say of the world.
pub(super) type Tools = (Arc<Catalogue>, Arc<BTreeMap<ToolName, Rules>>);

/// What was in force at some time, ready to decide with.
#[derive(Clone)]
pub(super) struct Recorded {
    pub(super) tools: Tools,
    pub(super) in_force: Arc<InForce>,
    pub(super) document: Arc<PolicyDocument>,
    pub(super) options: Options,
}

/// What replays rest on.
pub struct Library {
    pub(super) store: Arc<dyn Store>,
    known: BTreeMap<Digest, Recorded>,
    registries: BTreeMap<TrajectoryId, Arc<State>>,
    published: BTreeMap<Digest, Arc<Definitions>>,
}

impl Library {
    /// What is in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (known, registries, published) = Default::default();
        Self { store, known, registries, published }
    }

    /// What an attempt says was in force; an error for people if its content cannot be had.
    pub(super) async fn environment(
        &mut self,
        environment: Environment,
    ) -> Result<Result<Recorded, String>, RunError> {
        let digest = environment.digest()?;
        if let Some(known) = self.known.get(&digest) {
            return Ok(Ok(known.clone()));
        }
        let Environment { config, policy, tools } = environment;
        let tools = match self.document("the tool catalogue", tools).await? {
            Ok(bytes) => Catalogue::recorded(&bytes)
                .map_err(|why| format!("the tool catalogue {tools} cannot be read: {why}"))
                .and_then(|catalogue| with_rules(Arc::new(catalogue))),
            Err(why) => Err(why),
        };
        let options = match self.document("the configuration", config).await? {
            Ok(bytes) => Options::recorded(&bytes)
                .map_err(|why| format!("the configuration {config} cannot be read: {why}")),
            Err(why) => Err(why),
        };
        let policies = match self.document("the policy set", policy).await? {
            Ok(bytes) => PolicyDocument::parse(&bytes)
                .map_err(RunError::from)
                .and_then(|document| Ok((in_force::compiled(&document)?, Arc::new(document))))
                .map_err(|error| format!("the policy set {policy}: {error}")),
            Err(why) => Err(why),
        };
        let recorded = tools.and_then(|tools| Ok((tools, options?, policies?)));
        let (tools, options, (policies, document)) = match recorded {
            Ok(recorded) => recorded,
            Err(why) => return Ok(Err(why)),
        };
        let in_force = Arc::new(InForce::recorded(environment, Ok(policies))?);
        let recorded = Recorded { tools, in_force, options, document };
        self.known.insert(digest, recorded.clone());
        Ok(Ok(recorded))
    }

    /// A tool catalogue that a registry names.
    pub(super) async fn published(
        &mut self,
        digest: Digest,
    ) -> Result<Result<Arc<Definitions>, String>, RunError> {
        if let Some(known) = self.published.get(&digest) {
            return Ok(Ok(Arc::clone(known)));
        }
        let read = published::read(&*self.store, digest).await?.map(Arc::new);
        if let Ok(read) = &read {
            self.published.insert(digest, Arc::clone(read));
        }
        Ok(read)
    }

    async fn document(
        &self,
        what: &str,
        digest: Digest,
    ) -> Result<Result<Vec<u8>, String>, RunError> {
        let found = self.store.blob(digest).await?;
        Ok(found.ok_or_else(|| format!("{what} {digest} is not at hand")))
    }

    /// The registry as it stood at a head.
    pub(super) async fn registry(
        &mut self,
        registry: TrajectoryId,
        head: Head,
    ) -> Result<Result<Arc<State>, String>, RunError> {
        let known = self
            .registries
            .get(&registry)
            .filter(|state| state.head().is_some_and(|known| known.seq <= head.seq));
        let mut state = known.cloned().unwrap_or_else(|| Arc::new(State::new(registry)));
        while state.head().is_none_or(|known| known.seq < head.seq) {
            let from = state.head().map_or(0, |known| known.seq + 1);
            let most = usize::try_from(head.seq + 1 - from).unwrap_or(PAGE).min(PAGE);
            let page = self.store.entries(registry, from, most).await?;
            if page.is_empty() {
                return Ok(Err(format!(
                    "entry {} of the registry {registry} is not at hand",
                    head.seq
                )));
            }
            let mut next = (*state).clone();
            for stored in &page {
                let entry = gesta_store::read_entry(registry, stored)?;
                if let Err(illegal) = next.apply(&entry) {
                    return Ok(Err(format!("the registry {registry}: {illegal}")));
                }
            }
            state = Arc::new(next);
        }
        self.registries.insert(registry, Arc::clone(&state));
        if state.head() == Some(head) {
            Ok(Ok(state))
        } else {
            Ok(Err(format!(
                "entry {} of the registry {registry} is another than the decision names",
                head.seq
            )))
        }
    }
}

/// A catalogue with what its tools say of the world.
pub(super) fn with_rules(catalogue: Arc<Catalogue>) -> Result<Tools, String> {
    let rules = Rules::of_all(&catalogue).map_err(|error| error.to_string())?;
    Ok((catalogue, Arc::new(rules)))
}
