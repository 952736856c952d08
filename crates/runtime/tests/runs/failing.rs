//! Every write of a whole job fails, in both ways, once and many times in a row. The job must end
//! the same, and the outside must have been touched exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gesta_core::content::MAX_INLINE_BYTES;
use gesta_core::document::Recovery;
use gesta_core::ids::TrajectoryId;
use gesta_core::writ::Effect;
use gesta_runtime::Left;
use gesta_runtime::tools::{Catalogue, CatalogueBuilder, FunctionCall, FunctionError};
use gesta_store::Store;
use gesta_store::faulty::{Fault, FaultyStore};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::confirm::signal;
use crate::scene::Scene;
use crate::stage::{Witness, manifest};
use crate::stores::on_postgres;

const JOB: &str = r#"
job: everything
steps:
  - { id: read, tool: look, args: { n: 1 } }
  - { id: pay, tool: pay, args: { n: "${steps.read.result.n}" } }
  - { id: flaky, tool: flaky, args: {} }
  - { id: each, each: "${[1, 2, 3]}", tool: mail, args: { to: "${item}" } }
  - { id: sum, set: "${steps.pay.result.n + size(steps.each.result)}" }
  - { id: wait, wait: { signal: "go", timeout: 1h } }
  - { id: off, tool: pay, args: { n: 2 }, when: "steps.sum.result > 100" }
answer: "${steps.sum.result}"
"#;

/// And a step of every other way of recovering, some with results that are too large for an entry.
const RECOVERED: &str = r"
  - { id: copy, tool: copy, args: {} }
  - { id: book, tool: book, args: {}, needs: [copy] }
  - { id: order, tool: order, args: {} }
  - { id: ship, tool: ship, args: {} }
answer";

/// Too much for an entry.
fn large() -> serde_json::Value {
    json!({ "all": "x".repeat(2 * MAX_INLINE_BYTES) })
}

/// What may run again, what the other side tells apart by its key, and what can be asked about.
fn recoverable(effects: &Witness) -> CatalogueBuilder {
    let recovers = |name: &str, effect, recovery| {
        let mut manifest = manifest(name, effect);
        manifest.recovery = recovery;
        manifest
    };
    let mut ship = recovers("ship", Effect::Irreversible, Recovery::Probe);
    ship.probe = Some("shipped".parse().unwrap());
    let keys = Witness::default();
    let builder = Catalogue::builder()
        .function(recovers("copy", Effect::Write, Recovery::Safe), async |_: FunctionCall| {
            Ok::<_, FunctionError>(large())
        });
    let once = |keys: &Witness| {
        let (keys, effects) = (keys.clone(), effects.clone());
        move |call: FunctionCall| {
            if keys.saw(&call.key) == 1 {
                effects.saw(&format!("once {}", call.step));
            }
            async { Ok::<_, FunctionError>(json!({ "ok": true })) }
        }
    };
    let book = recovers("book", Effect::External, Recovery::Keyed);
    let order = recovers("order", Effect::External, Recovery::KeyedConcurrent);
    let (shipped, asked, shipping) = (keys.clone(), keys.clone(), effects.clone());
    builder
        .function(book, once(&keys))
        .function(order, once(&keys))
        .function(ship, move |call: FunctionCall| {
            shipped.saw(&call.key);
            shipping.saw(&format!("ship {}", call.step));
            async { Ok::<_, FunctionError>(large()) }
        })
        .function(manifest("shipped", Effect::Read), move |call: FunctionCall| {
            let happened = asked.all().contains_key(&call.key);
            async move { Ok::<_, FunctionError>(json!({ "happened": happened, "result": large() })) }
        })
}

pub(crate) fn tools(effects: &Witness) -> Catalogue {
    let (paid, mailed, flaky) = (effects.clone(), effects.clone(), Witness::default());
    recoverable(effects)
        .function(manifest("look", Effect::Read), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!({ "n": 1 }))
        })
        .function(manifest("pay", Effect::External), move |call: FunctionCall| {
            paid.saw(&format!("pay {}", call.step));
            async { Ok::<_, FunctionError>(json!({ "n": 7 })) }
        })
        .function(manifest("mail", Effect::Irreversible), move |call: FunctionCall| {
            mailed.saw(&format!("mail {}", call.step));
            async { Ok::<_, FunctionError>(json!("sent")) }
        })
        .function(manifest("flaky", Effect::External), move |_: FunctionCall| {
            let times = flaky.saw("flaky");
            async move {
                if times == 1 { Err(FunctionError::retry("again")) } else { Ok(json!(times)) }
            }
        })
        .build()
        .unwrap()
}

/// The job, with what it waits for.
pub(crate) async fn submitted(scene: &Scene, number: u8) -> TrajectoryId {
    let trajectory = scene.submit(number, JOB, &[]).await;
    signal(scene, trajectory).await;
    trajectory
}

/// Runs the job with one worker whose writes fail as told, and then with others until it has ended.
/// Says how many writes the first worker made.
async fn run(scene: &Scene, number: u8, fault: Fault, first: u64, burst: u64) -> u64 {
    let effects = Witness::default();
    let scene = scene.with_tools(tools(&effects));
    let job = JOB.replace("\nanswer", RECOVERED);
    let trajectory = scene.submit(number, &job, &[]).await;
    signal(&scene, trajectory).await;
    let failed = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&failed);
    let faulty = Arc::new(FaultyStore::new(
        Arc::clone(&scene.store),
        Box::new(move |write| {
            let fails = write >= first && write < first + burst;
            counted.fetch_add(u64::from(fails), Ordering::Relaxed);
            fails.then_some(fault)
        }),
    ));
    let store: Arc<dyn Store> = Arc::<FaultyStore>::clone(&faulty);
    let mut ended = drive(&scene, store, trajectory).await;
    for _ in 0..20 {
        if ended {
            break;
        }
        // Whoever comes next waits for the lease of the one who gave up, or is told of its death.
        tokio::time::advance(std::time::Duration::from_millis(scene.options.lease_ms + 1)).await;
        for row in scene.store.workers().await.unwrap() {
            scene.store.retire(&row.worker).await.unwrap();
        }
        ended = drive(&scene, Arc::clone(&scene.store), trajectory).await;
    }
    let ran = scene.ran(trajectory).await;
    let what = format!("{fault:?} from write {first}, {burst} of them: {:?}", ran.kinds());
    assert!(ended, "{what}");
    assert_eq!(ran.answer(), "10", "{what}");
    for (effect, times) in effects.all() {
        assert_eq!(times, 1, "{effect}: {what}");
    }
    assert_eq!(effects.all().len(), 7, "{what}");
    assert!(ran.result("copy").starts_with("blob "), "{what}");
    faulty.writes()
}

async fn drive(scene: &Scene, store: Arc<dyn Store>, trajectory: TrajectoryId) -> bool {
    let Ok(worker) = scene.worker_on(store).await else { return false };
    let (_stop, stopped) = watch::channel(false);
    matches!(worker.run_one(trajectory, stopped).await, Ok(Left::Ended))
}

#[tokio::test(start_paused = true)]
async fn every_write_of_a_job_may_fail_in_both_ways() {
    let scene = async || Scene::new(tools(&Witness::default())).await;
    let writes = run(&scene().await, 1, Fault::Lost, u64::MAX, 0).await;
    assert!(writes > 7, "{writes}");
    for fault in [Fault::Lost, Fault::Unanswered] {
        for first in 0..writes {
            run(&scene().await, 1, fault, first, 1).await;
            // More than an append is sent again: its fate stays unknown for a while.
            run(&scene().await, 1, fault, first, 12).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_write_of_a_job_may_fail_in_both_ways_on_postgres() {
    let started = Instant::now();
    let store = on_postgres(started).await;
    let scene = Scene::on(store, tools(&Witness::default()), started).await;
    let mut number = 0;
    let mut run = async |fault, first, burst| {
        number += 1;
        run(&scene, number, fault, first, burst).await
    };
    let writes = run(Fault::Lost, u64::MAX, 0).await;
    assert!(writes > 7, "{writes}");
    for fault in [Fault::Lost, Fault::Unanswered] {
        for first in 0..writes {
            run(fault, first, 1).await;
            run(fault, first, 12).await;
        }
    }
}
