//! A store, a registry, keys, tools and workers, all in one process. The clock is tokio's, so a test
//! can hold it still and move it.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::body::RegistryHead;
use gesta_core::digest::{Digest, Seed};
use gesta_core::document::RegistryItem;
use gesta_core::entry::{Author, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::keys::PrivateKey;
use gesta_core::sample::{Cast, EPOCH, person};
use gesta_core::state::State;
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Keyring, Role, TrustedKey};
use gesta_core::verification::Verifier;
use gesta_policy::{PolicyDocument, PolicyFile};
use gesta_runtime::Options;
use gesta_runtime::authority;
use gesta_runtime::job::Compiled;
use gesta_runtime::jobs::Submission;
use gesta_runtime::replay::{Asked, Library, Report, Session, replay};
use gesta_runtime::tools::Catalogue;
use gesta_store::memory::MemoryStore;
use gesta_store::{Chain, Store};
use tokio::time::Instant;

pub(crate) const REGISTRY: TrajectoryId = TrajectoryId::from_bytes([0xee; 16]);

/// Everything that a test needs.
pub(crate) struct Scene {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cast: Cast,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) options: Options,
    pub(crate) started: Instant,
}

impl Scene {
    pub(crate) async fn new(catalogue: Catalogue) -> Self {
        let started = Instant::now();
        let clock = Arc::new(move || now_since(started));
        Self::on(Arc::new(MemoryStore::new(clock)), catalogue, started).await
    }

    pub(crate) async fn on(store: Arc<dyn Store>, catalogue: Catalogue, started: Instant) -> Self {
        let scene = Self::founded(store, catalogue, started).await;
        let (policies, owner) = (everything(&scene.catalogue), &scene.cast.owner);
        authority::publish(&scene.store, REGISTRY, &policies, owner, EPOCH).await.unwrap();
        scene
    }

    /// Where nobody has published any policy.
    pub(crate) async fn founded(
        store: Arc<dyn Store>,
        catalogue: Catalogue,
        started: Instant,
    ) -> Self {
        let cast = Cast::new(1);
        found_registry(&store, &cast).await;
        Self { store, cast, catalogue: Arc::new(catalogue), options: Options::default(), started }
    }

    pub(crate) fn now(&self) -> UnixMs {
        now_since(self.started)
    }

    /// The key of every worker: it decides and executes.
    pub(crate) fn worker_key() -> PrivateKey {
        PrivateKey::from_seed(&[0x77; 32])
    }

    /// What a job that was compiled is submitted with.
    pub(crate) async fn submission_of(
        &self,
        number: u8,
        compiled: Compiled,
        input: &[(&str, &str)],
    ) -> Submission {
        let given: BTreeMap<String, String> =
            input.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let trajectory = TrajectoryId::from_bytes([number; 16]);
        let standing = self.cast.standing_writ().unwrap();
        let writ = self.cast.narrow(&standing, trajectory).unwrap();
        let row = self.store.trajectory(REGISTRY).await.unwrap().unwrap();
        Submission {
            trajectory,
            key: None,
            principal: person().unwrap(),
            seed: Seed::new(Digest::of(&[number])),
            input: compiled.input(&given).unwrap(),
            plan: compiled.plan,
            writs: vec![standing, writ],
            environment: gesta_core::document::Environment {
                config: Digest::of(b"test"),
                policy: everything(&self.catalogue).digest().unwrap(),
                tools: self.catalogue.digest(),
            },
            registry: Some(RegistryHead { head: row.head, trajectory: REGISTRY }),
        }
    }
}

/// A policy set that lets everything happen: what is tested here are other stages.
pub(crate) fn everything(catalogue: &Catalogue) -> PolicyDocument {
    policies(catalogue, r#"@id("everything") permit(principal, action, resource);"#)
}

/// A policy set.
pub(crate) fn policies(catalogue: &Catalogue, text: &str) -> PolicyDocument {
    PolicyDocument {
        policies: vec![PolicyFile { name: "policy.cedar".to_owned(), text: text.to_owned() }],
        tools: catalogue.shapes().unwrap(),
        ..PolicyDocument::default()
    }
}

pub(crate) fn now_since(started: Instant) -> UnixMs {
    EPOCH.plus(u64::try_from(started.elapsed().as_millis()).unwrap())
}

fn forever() -> Window {
    Window { not_before: UnixMs(0), not_after: UnixMs::LAST }
}

pub(crate) fn worker_trust() -> TrustedKey {
    TrustedKey {
        key: Scene::worker_key().id(),
        name: "worker".to_owned(),
        revoked_at: None,
        roles: [Role::Guardian, Role::Executor].into(),
        tenant: None,
        valid: forever(),
    }
}

/// The keys that count: the cast's, and the workers'.
pub(crate) fn keyring(cast: &Cast) -> Keyring {
    let mut keyring = cast.trust_root().keyring().unwrap();
    keyring.enrol(worker_trust());
    keyring
}

async fn found_registry(store: &Arc<dyn Store>, cast: &Cast) {
    let mut chain = Chain::unbegun(Arc::clone(store), REGISTRY);
    let by = Author::Principal(person().unwrap());
    let named = |name: &str| cast.trust_root().keys.into_iter().find(|key| key.name == name);
    let others = ["issuer", "approver", "operator"].map(|name| named(name).unwrap());
    chain
        .append(|admission| {
            admission.push(EPOCH, by.clone(), cast.registry_root().unwrap())?;
            for key in [worker_trust()].into_iter().chain(others.clone()) {
                let state = admission.state();
                let body = cast.registration(state, RegistryItem::Key(key), EPOCH).unwrap();
                admission.push(EPOCH, by.clone(), body)?;
            }
            Ok(())
        })
        .await
        .unwrap();
}

/// Derives a whole chain again, and says what does not come out as it is recorded.
pub(crate) async fn replayed(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
) -> Result<Report, String> {
    let mut library = Library::new(Arc::clone(store));
    let asked = Asked::default();
    let (report, _) = replay(&mut library, trajectory, &asked, &mut |_| ())
        .await
        .map_err(|error| error.to_string())?;
    match &report.session {
        Session::Complete if report.run_hash.is_none_or(|hash| hash == report.replay_hash) => {
            Ok(report)
        }
        other => Err(format!("{other:#?}")),
    }
}

/// Reads a whole chain and verifies it with signatures.
pub(crate) async fn verified(
    store: &dyn Store,
    trajectory: TrajectoryId,
    keyring: &Keyring,
) -> Result<Vec<Entry>, String> {
    let mut verifier = Verifier::new(State::new(trajectory), keyring);
    let mut entries = Vec::new();
    loop {
        let page = store.entries(trajectory, entries.len() as u64, 512).await.unwrap();
        if page.is_empty() {
            return Ok(entries);
        }
        for stored in page {
            match verifier.entry(&stored.bytes, Some(stored.id)) {
                Ok(entry) => entries.push(entry),
                Err(finding) => return Err(finding.to_string()),
            }
        }
    }
}
