//! A store that a program of one's own has made, seen from the command line.

use std::sync::Arc;

use gesta_core::document::ApprovalVerdict;
use gesta_core::projection::Status;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
use gesta_runtime::{Gesta, Keys, job};
use gesta_store::sqlite::{Options, SqliteStore};
use tokio::sync::watch;

use crate::world::World;

const JOB: &str = "job: pay\nsteps:\n  - { id: go, wait: { signal: go } }\n  - { id: pay, tool: pay, needs: [go] }\nanswer: ${steps.pay.result}\n";

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let directory = world.path("own");
    Keys::kept_in(&directory).unwrap();
    assert_eq!(world.files("own"), 2, "nothing but the keys");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(directory.join("owner.pem"), open).unwrap();
    let refused = Keys::kept_in(&directory).unwrap_err().to_string();
    assert!(refused.contains("open to others (mode 0644)"), "{refused}");
}

#[test]
fn what_a_program_recorded_is_verified_from_outside() {
    let world = World::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let id = runtime.block_on(async {
        let store = SqliteStore::open(world.path("own.db"), Options::default()).unwrap();
        let pay = Manifest::new("pay".parse().unwrap(), Effect::External);
        let tools = Catalogue::builder()
            .function(pay, async |_: FunctionCall| Ok::<_, FunctionError>(serde_json::json!(7)))
            .build()
            .unwrap();
        let keys = Keys::kept_in(&world.path("own")).unwrap();
        assert_eq!(Keys::kept_in(&world.path("own")).unwrap().owner.id(), keys.owner.id());
        let gesta = Gesta::open(Arc::new(store), keys, tools).await.unwrap();
        let trust = serde_json::to_string(gesta.trust_root()).unwrap();
        std::fs::write(world.path("own.json"), trust).unwrap();
        let pay = job::load("pay.yaml", JOB, gesta.tools()).unwrap();
        let id = gesta.submit(&pay, &[], Some("once")).await.unwrap();
        let waits = gesta.run(id).await.unwrap();
        assert_eq!((waits.status, waits.answer), (Status::Parked, None));
        // Somebody else signals; a worker of this process drives it to its end.
        world.gesta(&["--store", "own.db", "signal", &id.to_string(), "go"]).ok();
        // Without a policy, whatever does more than read waits for somebody's word.
        let asks = gesta.run(id).await.unwrap();
        assert_eq!((asks.status, asks.answer), (Status::Parked, None));
        let step = "pay".parse().unwrap();
        gesta.answer(id, &step, ApprovalVerdict::Approve).await.unwrap();
        let worker = gesta.worker().await.unwrap();
        let (stop, stopped) = watch::channel(false);
        let (ran, outcome) = tokio::join!(worker.run(stopped), async {
            let outcome = gesta.wait(id).await.unwrap();
            stop.send(true).unwrap();
            outcome
        });
        ran.unwrap();
        assert_eq!(outcome.answer.unwrap().to_string(), "7");
        assert_eq!(gesta.submit(&pay, &[], Some("once")).await.unwrap(), id);
        id
    });
    assert!(world.gesta(&["--store", "own.db", "jobs"]).ok().contains("completed"));
    let report = world.gesta(&["--store", "own.db", "verify", "--trust", "own.json"]).ok();
    assert!(report.contains("sound"), "{report}");
    assert!(world.gesta(&["--store", "own.db", "log", &id.to_string()]).ok().contains("pay"));
}
