//! duroxide: an orchestration that awaits one activity after another, in SQLite. It sets the file's `synchronous` by
//! itself, to what amounts to `NORMAL`: its steps survive a kill, not a loss of power, and that cannot be changed.
//!
//! It looks for work at an interval; shorter than this is slower. What is locked by whoever was killed is locked
//! for two seconds.

#[path = "../../steps.rs"]
mod steps;

use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{
    ActivityContext, Client, EventKind, OrchestrationContext, OrchestrationRegistry,
    OrchestrationStatus,
};
use steps::{Asked, done, say};

const LOOKS_EVERY: Duration = Duration::from_millis(5);
const LOCKED_FOR: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() {
    let asked = Asked::read();
    say("ready");
    let file = asked.place.join("duroxide.sqlite");
    let url = format!("sqlite:{}?mode=rwc", file.display());
    let store = Arc::new(SqliteProvider::new(&url, None).await.expect("a store"));
    let runtime = start(&asked, Arc::clone(&store)).await;
    let client = Client::new(store);
    let names: Vec<String> = (0..asked.jobs).map(|job| format!("job-{job}")).collect();
    let begun = Instant::now();
    if asked.mode != "resume" {
        for name in &names {
            let begun = client.start_orchestration(name, "job", asked.steps.to_string()).await;
            begun.expect("a job");
        }
    }
    for name in &names {
        let ended = client.wait_for_orchestration(name, PATIENCE).await.expect("an end");
        assert!(matches!(ended, OrchestrationStatus::Completed { .. }), "{ended:?}");
    }
    let took = begun.elapsed();
    let mut shown = 0;
    for name in &names {
        let events = client.read_execution_history(name, 1).await.expect("a history");
        let is_step = |kind: &EventKind| matches!(kind, EventKind::ActivityCompleted { .. });
        shown += events.iter().filter(|event| is_step(&event.kind)).count();
    }
    drop(runtime);
    done(took, shown)
}

async fn start(asked: &Asked, store: Arc<SqliteProvider>) -> Arc<Runtime> {
    let asked = asked.clone();
    let step = move |_: ActivityContext, number: String| {
        let asked = asked.clone();
        async move {
            asked.body(number.parse().map_err(|_| number)?).await;
            Ok("{\"ok\":true}".to_owned())
        }
    };
    let job = |context: OrchestrationContext, steps: String| async move {
        for number in 0..steps.parse::<usize>().map_err(|_| steps)? {
            context.schedule_activity("step", number.to_string()).await?;
        }
        Ok::<_, String>(String::new())
    };
    let activities = ActivityRegistry::builder().register("step", step).build();
    let orchestrations = OrchestrationRegistry::builder().register("job", job).build();
    let options = RuntimeOptions {
        dispatcher_min_poll_interval: LOOKS_EVERY,
        orchestrator_lock_timeout: LOCKED_FOR,
        worker_lock_timeout: LOCKED_FOR,
        ..RuntimeOptions::default()
    };
    Runtime::start_with_options(store, activities, orchestrations, options).await
}
