//! agentplane: a run whose skill performs one effect after another, each announced and recorded in its journal, in redb or in
//! PostgreSQL, unsigned. The lease of whoever was killed lasts two seconds.

#[path = "../../steps.rs"]
mod steps;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentplane::core::{Effect, EffectDescriptor, EffectError, Recovery};
use agentplane::prelude::*;
use agentplane::store::PostgresStore;
use serde_json::{Value, json};
use steps::{Asked, done, say};

const LEASE: Duration = Duration::from_secs(2);
const CONNECTIONS: usize = 16;

#[derive(Debug)]
struct Step {
    asked: Asked,
    number: usize,
}

#[async_trait]
impl Effect for Step {
    type Output = Value;

    fn descriptor(&self) -> EffectDescriptor {
        EffectDescriptor::new("step", json!({ "number": self.number }))
    }

    fn recovery(&self) -> Recovery {
        Recovery::Retry
    }

    async fn perform(&self) -> Result<Value, EffectError> {
        self.asked.body(self.number).await;
        Ok(json!({ "ok": true }))
    }
}

#[derive(Debug)]
struct Job(Asked);

#[async_trait]
impl Skill for Job {
    fn descriptor(&self) -> SkillDescriptor {
        SkillDescriptor::new("job")
    }

    async fn invoke(
        &self,
        context: &mut StepCtx<'_>,
        input: Tainted<Value>,
    ) -> Result<Outcome, SkillError> {
        for number in 0..self.0.steps {
            context.effect(Step { asked: self.0.clone(), number }).await?;
        }
        Ok(Outcome::done(input))
    }
}

#[tokio::main]
async fn main() {
    let asked = Asked::read();
    say("ready");
    let store: Arc<dyn JournalStore> = if asked.store == "postgres" {
        let store = PostgresStore::connect_sized(&asked.postgres, Some(CONNECTIONS)).await;
        Arc::new(store.expect("a store"))
    } else {
        Arc::new(RedbStore::open(asked.place.join("agentplane.redb")).expect("a store"))
    };
    let runtime = Runtime::builder(Arc::clone(&store))
        .owner(asked.mode.clone())
        .lease_ttl(LEASE)
        .skill(Job(asked.clone()))
        .build();
    if asked.mode == "resume" {
        // The lease's end is noticed by looking, as its own sweep does.
        loop {
            for run in store.abandoned_runs(1).await.expect("a list") {
                runtime.replay(run, Mode::Resume).await.expect("a run");
                std::process::exit(0);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let begun = Instant::now();
    let runs: Vec<_> = (0..asked.jobs)
        .map(|_| {
            let runtime = Arc::clone(&runtime);
            tokio::spawn(
                async move { runtime.start("job", Tainted::trusted(json!({}))).run().await },
            )
        })
        .collect();
    let mut ended = Vec::new();
    for run in runs {
        let run = run.await.expect("a task").expect("a run");
        assert_eq!(run.status, RunStatus::Succeeded);
        ended.push(run.run_id);
    }
    let took = begun.elapsed();
    let mut shown = 0;
    for run in ended {
        let records = store.read(run, Default::default()).await.expect("a journal");
        shown +=
            records.iter().filter(|record| record.body.kind.kind_str() == "EffectDone").count();
    }
    done(took, shown)
}
