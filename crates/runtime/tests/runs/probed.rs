//! A doubt that a probe looks into while its executor reports.

use std::sync::Arc;
use std::time::Duration;

use gesta_core::amounts::Amounts;
use gesta_core::content::Content;
use gesta_core::document::{CallResult, EffectReport, Recovery, ResolvedBy, Settlement};
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::signed::{Signed, Tag};
use gesta_core::time::UnixMs;
use gesta_core::world::Delta;
use gesta_core::writ::Effect;
use gesta_runtime::Left;
use gesta_runtime::duration::DurationMs;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError};
use gesta_store::Store;
use gesta_store::memory::MemoryStore;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::{Scene, now_since};
use crate::stage::{Witness, manifest};

const JOB: &str = "
job: parcel
steps:
  - { id: ship, tool: ship }
answer: \"${steps.ship.result}\"
";

/// What the executor of the call that is in doubt has seen after all.
async fn report(store: &dyn Store, trajectory: TrajectoryId, at: UnixMs) -> Signed<EffectReport> {
    let entries = store.entries(trajectory, 0, usize::MAX).await.unwrap();
    let entries = entries.iter().map(|entry| Entry::from_bytes(&entry.bytes).unwrap());
    let mut started = entries.filter(|it| matches!(it.payload().body, Body::Started(_)));
    let key = Scene::worker_key();
    let observation = Content::Inline(Canon::of(&json!("sent")).unwrap());
    let (cost, delta) = (Amounts { calls: 1, ..Amounts::default() }, Delta::default());
    let report = EffectReport {
        at,
        key: key.id(),
        result: CallResult::Succeeded(Settlement { cost, delta, observation }),
        started: started.next().unwrap().id(),
        step: "ship".parse().unwrap(),
        trajectory,
        type_: Tag::default(),
    };
    Signed::sign(report, &key).unwrap()
}

/// The probe finds nothing; while it looks, the report arrives. It is the report that counts, and nothing is sent again.
#[tokio::test(start_paused = true)]
async fn a_report_is_believed_before_a_probe_that_is_under_way() {
    let begun = Instant::now();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(move || now_since(begun))));
    let mut ship = manifest("ship", Effect::External);
    (ship.recovery, ship.probe) = (Recovery::Probe, Some("parcel".parse().unwrap()));
    ship.timeout = DurationMs::from_ms(5_000);
    let (sent, asked) = (Witness::default(), Witness::default());
    let (sending, asking, inbox) = (sent.clone(), asked.clone(), Arc::clone(&store));
    let tools = Catalogue::builder()
        .function(ship, move |call: FunctionCall| {
            sending.saw(&call.key);
            async {
                std::future::pending::<()>().await;
                Ok::<_, FunctionError>(Value::Null)
            }
        })
        .function(manifest("parcel", Effect::Read), move |call: FunctionCall| {
            asking.saw("parcel");
            let inbox = Arc::clone(&inbox);
            async move {
                let report = report(&*inbox, call.trajectory, now_since(begun)).await;
                inbox.put_effect(&report).await.unwrap();
                Ok::<_, FunctionError>(json!({ "happened": false }))
            }
        })
        .build()
        .unwrap();
    let scene = Scene::on(store, tools, begun).await;
    let job = scene.submit(1, JOB, &[]).await;
    assert_eq!(scene.drive(job).await, Left::Parked);
    // Nobody is asked before it can land no more.
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(scene.drive(job).await, Left::Ended);

    let ran = scene.ran(job).await;
    assert_eq!(ran.answer(), "\"sent\"");
    assert_eq!((sent.total(), asked.total()), (1, 1));
    let resolved = ran.entries.iter().filter_map(|entry| match &entry.payload().body {
        Body::Resolution(resolution) => Some(resolution.statement.doc().source),
        _ => None,
    });
    assert_eq!(resolved.collect::<Vec<_>>(), [ResolvedBy::Inbox]);
}
