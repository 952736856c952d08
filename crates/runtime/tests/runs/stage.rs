//! Driving jobs in a scene, looking at what became of them, and counting what tools did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gesta_core::entry::{Body, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::Cast;
use gesta_runtime::jobs::{self, Submission, Submitted};
use gesta_runtime::tools::{Catalogue, Manifest};
use gesta_runtime::{Left, RunError, Setup, Spool, Worker, job};
use gesta_store::Store;
use tokio::sync::watch;

use crate::scene::{REGISTRY, Scene, keyring, replayed, verified};

impl Scene {
    /// Submits a job file.
    pub(crate) async fn submit(
        &self,
        number: u8,
        file: &str,
        input: &[(&str, &str)],
    ) -> TrajectoryId {
        let submission = self.submission(number, file, input).await;
        assert_eq!(jobs::submit(&self.store, &submission, self.now()).await, Ok(Submitted::New));
        submission.trajectory
    }

    pub(crate) async fn submission(
        &self,
        number: u8,
        file: &str,
        input: &[(&str, &str)],
    ) -> Submission {
        let compiled = job::load("job.yaml", file, &*self.catalogue).unwrap();
        self.submission_of(number, compiled, input).await
    }

    /// The same place with other tools.
    pub(crate) fn with_tools(&self, catalogue: Catalogue) -> Self {
        let (store, options) = (Arc::clone(&self.store), self.options.clone());
        let (cast, catalogue) = (Cast::new(1), Arc::new(catalogue));
        Self { store, cast, catalogue, options, started: self.started }
    }

    pub(crate) async fn worker(&self) -> Worker {
        self.worker_on(Arc::clone(&self.store)).await.unwrap()
    }

    pub(crate) async fn worker_on(&self, store: Arc<dyn Store>) -> Result<Worker, RunError> {
        self.worker_with(store, None).await
    }

    pub(crate) async fn worker_with(
        &self,
        store: Arc<dyn Store>,
        spool: Option<Spool>,
    ) -> Result<Worker, RunError> {
        static WORKERS: AtomicU64 = AtomicU64::new(0);
        let number = WORKERS.fetch_add(1, Ordering::Relaxed);
        self.worker_named(store, &format!("worker-{number}"), spool).await
    }

    pub(crate) async fn worker_named(
        &self,
        store: Arc<dyn Store>,
        name: &str,
        spool: Option<Spool>,
    ) -> Result<Worker, RunError> {
        Worker::start(Setup {
            store,
            worker: name.parse().unwrap(),
            key: Self::worker_key(),
            guardian: None,
            sealer: None,
            catalogue: Arc::clone(&self.catalogue),
            registry: Some(REGISTRY),
            options: self.options.clone(),
            listener: None,
            spool,
            vault: None,
            presence: None,
            anchor: None,
            host: "test".to_owned(),
        })
        .await
    }

    /// Submits a job, drives it with one worker as far as it goes, and verifies what is there.
    pub(crate) async fn run(&self, file: &str, input: &[(&str, &str)]) -> (Left, Ran) {
        let trajectory = self.submit(1, file, input).await;
        let left = self.drive(trajectory).await;
        (left, self.ran(trajectory).await)
    }

    /// Drives a job with a new worker.
    pub(crate) async fn drive(&self, trajectory: TrajectoryId) -> Left {
        let worker = self.worker().await;
        let (_stop, stopped) = watch::channel(false);
        let left = worker.run_one(trajectory, stopped).await.unwrap();
        worker.retire().await.unwrap();
        left
    }

    /// What is in the store, verified as an outsider would.
    pub(crate) async fn ran(&self, trajectory: TrajectoryId) -> Ran {
        let entries = verified(&*self.store, trajectory, &keyring(&self.cast)).await.unwrap();
        if let Err(why) = replayed(&self.store, trajectory).await {
            panic!("{trajectory} does not replay: {why}");
        }
        Ran { entries }
    }
}

/// A chain that was read and verified.
pub(crate) struct Ran {
    pub(crate) entries: Vec<Entry>,
}

impl Ran {
    /// The kinds of all entries, in order.
    pub(crate) fn kinds(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.kind().to_string()).collect()
    }

    /// How many entries there are of a kind.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.kinds().iter().filter(|found| *found == kind).count()
    }

    /// The answer of a completed job, as JSON text.
    pub(crate) fn answer(&self) -> String {
        match &self.entries.last().unwrap().payload().body {
            Body::Completed(completed) => match &completed.answer {
                gesta_core::content::Content::Inline(value) => value.as_str().to_owned(),
                gesta_core::content::Content::Blob(blob) => format!("blob {}", blob.sha256),
            },
            other => panic!("not completed: {other:?}"),
        }
    }

    /// What a step's commit holds, as JSON text.
    pub(crate) fn result(&self, step: &str) -> String {
        let commit = self.entries.iter().find_map(|entry| match &entry.payload().body {
            Body::Commit(commit) if commit.step.as_str() == step => Some(commit),
            _ => None,
        });
        match &commit.unwrap().observation {
            gesta_core::content::Content::Inline(value) => value.as_str().to_owned(),
            gesta_core::content::Content::Blob(blob) => format!("blob {}", blob.sha256),
        }
    }

    /// Why a job failed or was cancelled.
    pub(crate) fn error(&self) -> (String, String) {
        match &self.entries.last().unwrap().payload().body {
            Body::Failed(stopped) | Body::Cancelled(stopped) => {
                (stopped.error.code.clone(), stopped.error.message.clone())
            }
            other => panic!("not stopped: {other:?}"),
        }
    }
}

/// Counts what a tool did, by key.
#[derive(Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<BTreeMap<String, u64>>>);

impl Witness {
    pub(crate) fn saw(&self, key: &str) -> u64 {
        let mut seen = self.0.lock().unwrap();
        let times = seen.entry(key.to_owned()).or_default();
        *times += 1;
        *times
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.lock().unwrap().values().sum()
    }
}

/// A manifest with nothing but a name and an effect.
pub(crate) fn manifest(name: &str, effect: gesta_core::writ::Effect) -> Manifest {
    Manifest::new(name.parse().unwrap(), effect)
}
