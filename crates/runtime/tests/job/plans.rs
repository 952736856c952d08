//! The plans that job files become.

use gesta_core::body::{Plan, StepKind};
use gesta_core::json::Canon;
use gesta_runtime::job::{ANSWER, JobFacts, OnCancel, OnFailure, Spec, Work, load, mermaid, parse};
use serde_json::json;

use crate::setting::{Setting, compiled, tools};

const REFUND: &str = include_str!("refund.yaml");

fn ids(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| step.id.as_str()).collect()
}

#[test]
fn steps_come_after_what_they_need_and_otherwise_as_in_the_file() {
    let job = compiled(REFUND);
    assert_eq!(
        ids(&job.plan),
        ["order", "total", "notify", "broadcast", "approval", "pay", "pause", "later", "answer"]
    );
    let needs: Vec<String> = job
        .plan
        .steps
        .iter()
        .map(|step| step.needs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        needs,
        [
            "",
            "order",
            "order",
            "order",
            "",
            "approval order total",
            "",
            "",
            "broadcast later notify pause pay"
        ]
    );
    use StepKind::{Call, Compute, Loop, Wait};
    let kinds: Vec<StepKind> = job.plan.steps.iter().map(|step| step.kind).collect();
    assert_eq!(kinds, [Call, Compute, Loop, Loop, Wait, Call, Wait, Wait, Compute]);
    assert_eq!(job.plan.hash, Plan::hash_of(&job.plan.steps).unwrap());
}

#[test]
fn a_step_holds_everything_that_running_it_needs() {
    let job = compiled(REFUND);
    let spec = |id: &str| {
        job.plan.steps.iter().find(|step| step.id.as_str() == id).unwrap().spec.to_string()
    };
    assert_eq!(
        spec("order"),
        r#"{"work":{"call":{"args":{"id":"${input.order}"},"on_cancel":"stop","tool":"orders.read"}}}"#
    );
    assert_eq!(
        spec("pay"),
        r#"{"when":"steps.order.result.paid == true","work":{"call":{"args":{"cents":"${steps.total.result.cents}","order":"${input.order}"},"on_cancel":"finish","retry":{"attempts":5,"backoff_ms":200,"factor":3,"max_backoff_ms":5000},"timeout_ms":10000,"tool":"payments.refund"}}}"#
    );
    assert_eq!(
        spec("total"),
        r#"{"work":{"set":{"value":{"cents":"${steps.order.result.amount * 100}"}}}}"#
    );
    // A condition on the item is asked of each item, any other one of the step.
    assert_eq!(
        spec("notify"),
        r#"{"work":{"each":{"call":{"args":{"to":"${item.email}"},"on_cancel":"finish","tool":"mail.send"},"over":"${steps.order.result.lines}","when":"item.email != \"\" && steps.order.result.paid"}}}"#
    );
    assert_eq!(
        spec("broadcast"),
        r#"{"when":"steps.order.result.paid","work":{"each":{"call":{"args":{"to":"${item}"},"on_cancel":"finish","tool":"mail.send"},"over":["a@x","${input.order}@x"]}}}"#
    );
    assert_eq!(
        spec("approval"),
        r#"{"work":{"wait":{"for_ms":3600000,"signal":"ok-${input.order}"}}}"#
    );
    assert_eq!(spec("pause"), r#"{"work":{"wait":{"for_ms":5000}}}"#);
    assert_eq!(spec("later"), r#"{"work":{"wait":{"until":"${now() + 1000}"}}}"#);
    assert_eq!(
        spec("answer"),
        r#"{"job":{"name":"refund","parallel":4},"work":{"set":{"value":{"refunded":"${steps.pay.result.id}"}}}}"#
    );
}

#[test]
fn a_recorded_plan_is_read_back_and_run() {
    let job = compiled(REFUND);
    let recorded = Canon::of(&job.plan).unwrap();
    let plan: Plan = recorded.read().unwrap();
    assert_eq!(plan, job.plan);
    let setting = Setting { input: json!({ "order": "o-1" }), ..Setting::new() }
        .result("order", &json!({ "amount": 12, "paid": true }))
        .result("total", &json!({ "cents": 1200 }));
    let spec = |id: &str| {
        Spec::of(plan.steps.iter().find(|step| step.id.as_str() == id).unwrap()).unwrap()
    };

    let pay = spec("pay");
    assert!(setting.with(|scope| pay.when.as_ref().unwrap().test(scope)).unwrap());
    let call = pay.call().unwrap();
    let args = setting.with(|scope| call.args.resolve(scope)).unwrap();
    assert_eq!(args.as_str(), r#"{"cents":1200,"order":"o-1"}"#);
    let retry = call.retry.unwrap();
    assert_eq!((retry.attempts.get(), retry.backoff.ms(), retry.factor.get()), (5, 200, 3));
    assert_eq!(
        (retry.max_backoff.ms(), call.timeout_ms, call.on_cancel),
        (5000, Some(10_000), OnCancel::Finish)
    );

    let Work::Each { over, when: None, .. } = spec("broadcast").work else {
        panic!("not a fan-out")
    };
    let over = setting.with(|scope| over.resolve(scope)).unwrap();
    assert_eq!(over.as_str(), r#"["a@x","o-1@x"]"#);
    let Work::Wait { signal: Some(signal), until: None, for_ms: Some(3_600_000) } =
        spec("approval").work
    else {
        panic!("not a wait")
    };
    assert_eq!(setting.with(|scope| signal.resolve(scope)).unwrap().as_str(), r#""ok-o-1""#);
    let facts = JobFacts {
        confirm: None,
        name: "refund".to_owned(),
        on_failure: OnFailure::Keep,
        parallel: 4,
    };
    assert_eq!(spec(ANSWER).job, Some(facts));
}

#[test]
fn a_compiled_job_says_what_its_writ_needs() {
    let job = compiled(REFUND);
    assert_eq!(
        (job.name.as_str(), job.description.as_deref(), job.parallel),
        ("refund", Some("Pays an order back"), 4)
    );
    assert_eq!(
        (job.budget.calls, job.budget.money_micros, job.budget.tokens),
        (Some(20), Some(5_000_000), None)
    );
    let tools: Vec<&str> = job.tools.iter().map(gesta_core::ids::ToolName::as_str).collect();
    assert_eq!(tools, ["mail.send", "orders.read", "payments.refund"]);
}

#[test]
fn without_an_answer_the_last_results_are_it() {
    let job = compiled(
        "job: a\nsteps:\n  - { id: one, set: 1 }\n  - { id: two-b, set: '${steps.one.result}' }\n  - { id: three, set: 3 }\n",
    );
    let answer = job.plan.steps.last().unwrap();
    assert_eq!(
        answer.spec.as_str(),
        r#"{"job":{"name":"a","parallel":8},"work":{"set":{"value":{"three":"${steps[\"three\"].result}","two-b":"${steps[\"two-b\"].result}"}}}}"#
    );
    let Work::Set { value } = Spec::of(answer).unwrap().work else { panic!("not computed") };
    let setting = Setting::new().result("two-b", &json!(2)).result("three", &json!(3));
    assert_eq!(
        setting.with(|scope| value.resolve(scope)).unwrap().as_str(),
        r#"{"three":3,"two-b":2}"#
    );
}

#[test]
fn the_answer_needs_what_it_mentions_and_whatever_is_last() {
    let job = compiled(
        "job: a\nsteps:\n  - { id: one, set: 1 }\n  - { id: two, set: '${steps.one.result}' }\nanswer: '${steps.one.result}'\n",
    );
    let needs: Vec<String> = job.plan.steps[2].needs.iter().map(ToString::to_string).collect();
    assert_eq!(needs, ["one", "two"]);
}

#[test]
fn yaml_and_json_of_one_job_give_one_plan() {
    let yaml = "job: a\nsteps:\n- id: s\n  tool: any\n  args:\n    b: [1, 'x']\n    a: ${input.q}\ninput: {q: string}\n";
    let json = r#"{"input":{"q":"string"},"steps":[{"args":{"a":"${input.q}","b":[1,"x"]},"tool":"any","id":"s"}],"job":"a"}"#;
    let bytes =
        |text: &str| Canon::of(&parse("a", text).unwrap().compile(tools()).unwrap().plan).unwrap();
    assert_eq!(bytes(yaml), bytes(json));
    assert_eq!(bytes(yaml), Canon::of(&load("b", yaml, tools()).unwrap().plan).unwrap());
}

#[test]
fn a_spec_that_says_more_than_it_should_is_not_read() {
    let mut step = compiled(REFUND).plan.steps.remove(0);
    for spec in [
        r#"{"work":{"set":{"value":1}},"more":1}"#,
        r#"{"work":{"set":{"value":1,"more":1}}}"#,
        r#"{"work":{"set":{"value":1}},"when":null}"#,
        r#"{"work":{"call":{"args":{},"on_cancel":"finish","retry":null,"tool":"a"}}}"#,
        r#"{"work":{"call":{"args":{},"on_cancel":"perhaps","tool":"a"}}}"#,
        r#"{"work":{"sing":{}}}"#,
    ] {
        step.spec = Canon::parse(spec.as_bytes()).unwrap();
        assert!(Spec::of(&step).is_err(), "{spec}");
    }
}

#[test]
fn a_plan_can_be_drawn() {
    let job = compiled(REFUND);
    let expected = r#"graph TD
  n0["order<br/>orders.read"]
  n1("total")
  n2[["notify<br/>each: mail.send"]]
  n3[["broadcast<br/>each: mail.send"]]
  n4{{"approval<br/>wait"}}
  n5["pay<br/>payments.refund"]
  n6{{"pause<br/>wait"}}
  n7{{"later<br/>wait"}}
  n8(["answer"])
  n0 --> n1
  n0 --> n2
  n0 --> n3
  n4 -.-> n5
  n0 --> n5
  n1 --> n5
  n3 -.-> n8
  n7 -.-> n8
  n2 -.-> n8
  n6 -.-> n8
  n5 --> n8
"#;
    assert_eq!(job.mermaid(), expected);
    assert_eq!(mermaid(&job.plan), expected);
}
