//! What a caller's key stands for, and to whom.

use std::sync::Arc;

use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::keys::PrivateKey;
use gesta_core::writ::Effect;
use gesta_runtime::jobs::{self, Submitted};
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError};
use gesta_runtime::{Gesta, Home, Keys, Order, job};
use gesta_store::Store;
use gesta_store::clock;
use gesta_store::memory::MemoryStore;
use serde_json::json;

use crate::scene::{REGISTRY, Scene};
use crate::stage::{Witness, manifest};

const JOB: &str = "job: pay\nsteps:\n  - { id: pay, tool: pay, args: {} }\n";

fn tools(paid: &Witness) -> Catalogue {
    let paid = paid.clone();
    Catalogue::builder()
        .function(manifest("pay", Effect::External), move |call: FunctionCall| {
            paid.saw(&call.key);
            async { Ok::<_, FunctionError>(json!({})) }
        })
        .build()
        .unwrap()
}

/// The other side knows a payment by its key: two who count their orders from 1 must not share it.
#[tokio::test]
async fn one_key_in_two_workspaces_is_two_payments() {
    let paid = Witness::default();
    let shared: Arc<dyn Store> = Arc::new(MemoryStore::new(clock::system()));
    let apart: Arc<dyn Store> = Arc::new(MemoryStore::new(clock::system()));
    let policy = r#"@id("all") permit (principal, action, resource);"#;
    let mut ids = Vec::new();
    for (owner, store) in [(1, &shared), (2, &shared), (3, &apart)] {
        let keys = Keys {
            owner: PrivateKey::from_seed(&[owner; 32]),
            worker: PrivateKey::from_seed(&[owner + 100; 32]),
            sealer: None,
        };
        let gesta = Gesta::open(Arc::clone(store), keys, tools(&paid)).await.unwrap();
        let gesta = gesta.governed_by(policy).await.unwrap();
        let pay = job::load("pay.yaml", JOB, gesta.tools()).unwrap();
        let id = gesta.submit(&pay, &[], Some("order-1")).await.unwrap();
        assert_eq!(gesta.submit(&pay, &[], Some("order-1")).await.unwrap(), id);
        gesta.run(id).await.unwrap();
        ids.push(id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), paid.all().len(), paid.total()), (3, 3, 3));
}

/// Ids were made of tenant and key alone once: what was submitted then is found, by whoever submitted it.
#[tokio::test(start_paused = true)]
async fn a_job_that_an_older_version_submitted_is_found() {
    let scene = Scene::new(tools(&Witness::default())).await;
    let standing = scene.cast.standing_writ().unwrap();
    let digest = Digest::of_parts(&[b"gesta.job", b"acme", b"order-1"]);
    let old = TrajectoryId::from_bytes(digest.as_bytes()[..16].try_into().unwrap());
    let mut submission = scene.submission(1, JOB, &[]).await;
    submission.trajectory = old;
    submission.writs = vec![standing.clone(), scene.cast.narrow(&standing, old).unwrap()];
    assert_eq!(jobs::submit(&scene.store, &submission, scene.now()).await, Ok(Submitted::New));

    let compiled = job::load("job.yaml", JOB, &*scene.catalogue).unwrap();
    let submit = async |registry, key| {
        let (store, tools) = (Arc::clone(&scene.store), Arc::clone(&scene.catalogue));
        let home = Home::new(store, tools, registry, scene.options.clone()).unwrap();
        let (input, budget) = (submission.input.clone(), compiled.budget);
        let order = Order { job: &compiled, input, budget, key: Some(key) };
        let authority = (vec![standing.clone()], &scene.cast.agent);
        home.submit(&order, authority, scene.now()).await.unwrap()
    };
    assert_eq!(submit(REGISTRY, "order-1").await, (old, Submitted::Known));
    assert_eq!(submit(REGISTRY, "order-2").await.1, Submitted::New);
    let other = scene.submit(9, JOB, &[]).await;
    let (id, submitted) = submit(other, "order-1").await;
    assert_eq!((id == old, submitted), (false, Submitted::New), "another workspace's key");
}
