//! A tool whose driver finds out that it is not what was pinned.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use gesta_core::document::Reason;
use gesta_core::entry::Body;
use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use gesta_runtime::Left;
use gesta_runtime::tools::{Call, Catalogue, Driver, Reply};

use crate::scene::Scene;
use crate::stage::{Witness, manifest};

/// Frozen from the second time on that somebody asks: after the decision, before the gate.
struct Freezing {
    asked: AtomicUsize,
    called: Witness,
}

#[async_trait]
impl Driver for Freezing {
    async fn call(&self, call: Call) -> Reply {
        self.called.saw(&call.key);
        Reply::Answered { output: b"null".to_vec(), cost: None }
    }

    fn frozen(&self) -> Option<&str> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        (asked > 0).then_some("its server describes it otherwise")
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_frozen_after_the_decision_is_not_called() {
    let called = Witness::default();
    let driver = Freezing { asked: AtomicUsize::new(0), called: called.clone() };
    let declaration = Canon::of("freezing").unwrap();
    let tools = Catalogue::builder()
        .driver(manifest("pay", Effect::External), declaration, Arc::new(driver))
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let (left, ran) = scene.run("job: x\nsteps:\n  - { id: it, tool: pay }\n", &[]).await;
    assert_eq!(left, Left::Parked);
    assert!(called.all().is_empty());
    // Turned away at the gate, then held by the Guardian until somebody pins it again.
    assert_eq!((ran.count("started"), ran.count("failure")), (1, 1));
    let mut held = ran.entries.iter().filter_map(|entry| match &entry.payload().body {
        Body::Rejection(rejection) => Some(rejection),
        _ => None,
    });
    assert!(ran.count("rejection") > 0);
    assert!(held.all(|held| {
        held.decision.doc().reason == Some(Reason::ToolFrozen) && held.retry_at.is_some()
    }));
}
