//! What a job does when nothing goes wrong, or only what tools do wrong.

use std::sync::Arc;

use gesta_core::document::Recovery;
use gesta_core::entry::Kind;
use gesta_core::writ::Effect;
use gesta_runtime::Left;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError};
use serde_json::{Value, json};

use crate::scene::Scene;
use crate::stage::{Witness, manifest};

fn args(call: &FunctionCall) -> Value {
    serde_json::from_str(call.args.as_str()).unwrap()
}

fn echo() -> gesta_runtime::tools::CatalogueBuilder {
    Catalogue::builder().function(manifest("echo", Effect::Read), async |call: FunctionCall| {
        Ok::<_, FunctionError>(args(&call))
    })
}

/// More than one append takes is added by the next, of the same attempt.
#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_one_append_comes_with_the_next() {
    let scene = Scene::new(echo().build().unwrap()).await;
    let mut file = String::from("job: wide\nsteps:\n");
    for step in 0..600 {
        file += &format!("  - {{ id: s{step}, set: {step} }}\n");
    }
    let (left, ran) = scene.run(&file, &[]).await;
    assert_eq!(left, Left::Ended);
    let attempts = ran.entries.iter().filter(|entry| entry.kind() == Kind::Attempt).count();
    assert_eq!(attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_answer() {
    let paid = Witness::default();
    let witness = paid.clone();
    let tools = echo()
        .function(manifest("pay", Effect::External), move |call: FunctionCall| {
            let times = witness.saw(&call.key);
            async move {
                Ok::<_, FunctionError>(json!({ "paid": args(&call)["cents"], "times": times }))
            }
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let (left, ran) = scene
        .run(
            r#"
job: refund
input: { order: integer }
steps:
  - id: order
    tool: echo
    args: { id: "${input.order}", amount: 12 }
  - id: total
    set: { cents: "${steps.order.result.amount * 100}" }
  - id: pay
    tool: pay
    args: { cents: "${steps.total.result.cents}" }
  - id: never
    tool: pay
    args: { cents: 1 }
    when: "steps.order.result.amount > 100"
answer: { paid: "${steps.pay.result.paid}", skipped: "${steps.never.skipped}" }
"#,
            &[("order", "7")],
        )
        .await;
    assert_eq!(left, Left::Ended, "{:?}", ran.kinds());
    assert_eq!(ran.answer(), r#"{"paid":1200,"skipped":true}"#);
    assert_eq!(paid.total(), 1);
    let kinds = ran.kinds().join(" ");
    assert_eq!(
        kinds,
        "root plan attempt started commit commit commit started commit commit completed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_definite_failure_is_tried_again_and_no_more_than_allowed() {
    let tried = Witness::default();
    let witness = tried.clone();
    let tools = Catalogue::builder()
        .function(manifest("flaky", Effect::External), move |call: FunctionCall| {
            let times = witness.saw("flaky");
            let enough = args(&call)["enough"].as_u64().unwrap();
            async move {
                if times < enough {
                    Err(FunctionError::retry("not today"))
                } else {
                    Ok(json!(times))
                }
            }
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let job = r"
job: flaky
input: { enough: integer }
steps:
  - id: it
    tool: flaky
    args: { enough: '${input.enough}' }
    retry: { attempts: 3 }
";
    let (left, ran) = scene.run(job, &[("enough", "3")]).await;
    assert_eq!(left, Left::Ended);
    assert_eq!(ran.answer(), r#"{"it":3}"#);
    assert_eq!(ran.count("failure"), 2);

    let second = scene.submit(2, job, &[("enough", "99")]).await;
    assert_eq!(scene.drive(second).await, Left::Ended);
    let ran = scene.ran(second).await;
    assert_eq!(tried.total(), 6);
    assert_eq!(ran.count("failure"), 3);
    assert_eq!(ran.error().1, "step `it` failed: not today");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_parks_what_may_not_run_again() {
    let tools = Catalogue::builder()
        .function(manifest("mail", Effect::Irreversible), async |_: FunctionCall| {
            Err::<Value, _>(FunctionError::unknown("the line went dead"))
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let job = "job: mail\nsteps:\n  - { id: it, tool: mail, args: {} }\n";
    let (left, ran) = scene.run(job, &[]).await;
    assert_eq!(left, Left::Parked);
    assert_eq!(ran.kinds().last().unwrap(), "in_doubt");
}

#[tokio::test(start_paused = true)]
async fn a_keyed_call_of_unknown_outcome_is_sent_again_with_the_same_key_once_it_cannot_land() {
    let sent = Witness::default();
    let witness = sent.clone();
    let mut keyed = manifest("pay", Effect::External);
    keyed.recovery = Recovery::Keyed;
    let tools = Catalogue::builder()
        .function(keyed, move |call: FunctionCall| {
            let times = witness.saw(&call.key);
            async move {
                if times == 1 {
                    Err(FunctionError::unknown("the line went dead"))
                } else {
                    Ok(json!({ "times": times }))
                }
            }
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let trajectory =
        scene.submit(1, "job: pay\nsteps:\n  - { id: it, tool: pay, args: {} }\n", &[]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked, "until it cannot land any more");
    let row = scene.store.trajectory(trajectory).await.unwrap().unwrap();
    assert!(!row.summary.runnable);
    let wake = row.summary.wake_at.unwrap();
    tokio::time::advance(std::time::Duration::from_millis(wake.0 - scene.now().0)).await;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(ran.answer(), r#"{"it":{"times":2}}"#);
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_runs_each_item_once_and_gathers_the_results() {
    let scene = Scene::new(echo().build().unwrap()).await;
    let job = r#"
job: fan
parallel: 3
steps:
  - id: all
    each: "${[10, 20, 30, 40, 50]}"
    tool: echo
    args: { value: "${item + index}" }
    when: "item != 20"
answer: "${steps.all.result}"
"#;
    let (left, ran) = scene.run(job, &[]).await;
    assert_eq!(left, Left::Ended, "{:?}", ran.kinds());
    assert_eq!(ran.answer(), r#"[{"value":10},null,{"value":32},{"value":43},{"value":54}]"#);
}

#[tokio::test(start_paused = true)]
async fn an_expression_that_fails_fails_its_step() {
    let scene = Scene::new(echo().build().unwrap()).await;
    let job =
        "job: bad\nsteps:\n  - { id: it, tool: echo, args: { x: '${1 / (now() - now())}' } }\n";
    let (left, ran) = scene.run(job, &[]).await;
    assert_eq!(left, Left::Ended);
    assert_eq!(ran.error().0, "expression_failed");
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_tool_is_gone_is_left_alone() {
    let mut scene = Scene::new(echo().build().unwrap()).await;
    let trajectory =
        scene.submit(1, "job: gone\nsteps:\n  - { id: it, tool: echo, args: {} }\n", &[]).await;
    scene.catalogue = Arc::new(Catalogue::builder().build().unwrap());
    for _ in 0..12 {
        assert_eq!(scene.drive(trajectory).await, Left::Parked);
    }
    assert_eq!(scene.ran(trajectory).await.kinds(), ["root", "plan"]);
    scene.catalogue = Arc::new(echo().build().unwrap());
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(scene.ran(trajectory).await.answer(), r#"{"it":{}}"#);
}

#[tokio::test(start_paused = true)]
async fn the_other_side_says_when_to_try_again() {
    let tools = Catalogue::builder()
        .function(manifest("busy", Effect::External), {
            let tried = Witness::default();
            move |_: FunctionCall| {
                let times = tried.saw("busy");
                async move {
                    if times == 1 {
                        Err(FunctionError::retry("later").after_ms(90_000))
                    } else {
                        Ok(json!(times))
                    }
                }
            }
        })
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let begun = scene.now();
    let trajectory =
        scene.submit(1, "job: busy\nsteps:\n  - { id: it, tool: busy, args: {} }\n", &[]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked, "nobody needs to hold it meanwhile");
    let row = scene.store.trajectory(trajectory).await.unwrap().unwrap();
    assert!(!row.summary.runnable);
    let wake = row.summary.wake_at.unwrap();
    assert!(wake >= begun.plus(90_000), "{wake} {begun}");
    tokio::time::advance(std::time::Duration::from_millis(wake.0 - scene.now().0)).await;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    assert_eq!(scene.ran(trajectory).await.answer(), r#"{"it":2}"#);
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_ask_something_of_the_world_and_change_it() {
    let mut reserve = manifest("reserve", Effect::Write);
    reserve.preconditions = vec!["!(args.seat in world.seat)".to_owned()];
    reserve.changes = vec![gesta_runtime::tools::Change {
        type_: "seat".parse().unwrap(),
        id: "args.seat".to_owned(),
        value: Some("result".to_owned()),
        retract: false,
    }];
    let tools = Catalogue::builder()
        .function(reserve, async |call: FunctionCall| Ok::<_, FunctionError>(args(&call)))
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    let job = r#"
job: seats
steps:
  - { id: one, tool: reserve, args: { seat: 12a, who: ada } }
  - { id: seen, set: "${world.seat['12a'].who}", needs: [one] }
  - { id: two, tool: reserve, args: { seat: 12a, who: bob }, needs: [seen] }
"#;
    let (left, ran) = scene.run(job, &[]).await;
    assert_eq!(left, Left::Ended);
    assert_eq!(ran.error().0, "precondition_failed");
    assert_eq!(ran.count("rejection"), 1);
    assert_eq!(ran.result("seen"), r#""ada""#);
}
