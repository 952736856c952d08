//! Properties of generated jobs: their plans are legal, the same every time, and read back whole.

use gesta_core::body::{Plan, Purpose};
use gesta_core::entry::{Author, Body};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::json::Canon;
use gesta_core::sample::{Cast, EPOCH, person};
use gesta_core::state::State;
use gesta_runtime::job::{Spec, load};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::setting::{Setting, compiled, tools};

/// A step that may mention any of the steps with lower numbers, under ids in another order.
fn step(
    number: usize,
    ids: &[String],
    kind: u8,
    needs: &[prop::sample::Index],
    named: bool,
) -> Value {
    let before = &ids[..number];
    let mentioned: Vec<&String> = if before.is_empty() {
        Vec::new()
    } else {
        needs.iter().map(|need| need.get(before)).collect()
    };
    let values: Vec<String> =
        mentioned.iter().map(|id| format!("${{steps['{id}'].result}}")).collect();
    let mut step = match kind {
        0 => json!({ "tool": "any", "args": { "values": values, "q": "${input.q}" } }),
        1 => json!({ "set": values }),
        2 => json!({ "wait": { "signal": format!("k-{number}"), "timeout": "5s" } }),
        3 => {
            json!({ "tool": "any", "each": values, "args": { "a": "${item}", "b": "${index}" }, "when": "index < 5" })
        }
        _ => json!({ "wait": { "for": "1s" } }),
    };
    let map = step.as_object_mut().unwrap();
    map.insert("id".to_owned(), json!(ids[number]));
    if named {
        map.insert("needs".to_owned(), json!(mentioned));
    }
    step
}

prop_compose! {
    fn job()(count in 1..25_usize)(
        order in Just((0..count).collect::<Vec<_>>()).prop_shuffle(),
        ids in prop::collection::hash_set("[a-z0-9_-]{1,8}", count).prop_map(|ids| ids.into_iter().filter(|id| id != "answer").collect::<Vec<_>>()),
        kinds in prop::collection::vec(0..5_u8, count),
        needs in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), count),
        named in any::<bool>(),
    ) -> Value {
        let count = ids.len();
        let mut ids = ids;
        ids.sort();
        let steps: Vec<Value> = order.into_iter().filter(|n| *n < count).map(|n| step(n, &ids, kinds[n], &needs[n], named)).collect();
        json!({ "job": "made", "input": { "q": "string" }, "steps": steps })
    }
}

/// Begins a trajectory with a plan.
fn begin(plan: Plan) -> State {
    let cast = Cast::new(1);
    let trajectory = TrajectoryId::from_bytes([7; 16]);
    let by = Author::Principal(person().unwrap());
    let mut admission = State::new(trajectory).admit();
    let root = cast.root(Purpose::Job(cast.mandate(trajectory).unwrap())).unwrap();
    admission.push(EPOCH, by.clone(), root).unwrap();
    admission.push(EPOCH, by, Body::Plan(Box::new(plan))).unwrap();
    admission.state().clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_legal_and_the_same_every_time(job in job()) {
        let text = job.to_string();
        let compiled = compiled(&text);
        let again = load("again", &text, tools()).unwrap();
        prop_assert_eq!(Canon::of(&compiled.plan).unwrap(), Canon::of(&again.plan).unwrap());

        begin(compiled.plan.clone());
        let mut seen: Vec<&StepId> = Vec::new();
        for step in &compiled.plan.steps {
            prop_assert!(step.needs.iter().all(|need| seen.contains(&need)), "{} is too early", step.id);
            prop_assert!(step.needs.is_sorted());
            let spec = Spec::of(step).unwrap();
            prop_assert_eq!(Canon::of(&spec).unwrap(), step.spec.clone());
            prop_assert!(spec.references().steps.iter().all(|mentioned| step.needs.contains(mentioned)));
            seen.push(&step.id);
        }
        // Every step is done when the answer is: whatever it does not need itself, something else does.
        let last = compiled.plan.steps.last().unwrap();
        prop_assert_eq!(last.id.as_str(), "answer");
        for step in &compiled.plan.steps[..compiled.plan.steps.len() - 1] {
            prop_assert!(compiled.plan.steps.iter().any(|other| other.needs.contains(&step.id)), "nothing waits for {}", step.id);
        }
    }

    #[test]
    fn a_broken_file_is_refused_and_never_a_panic(job in job(), at in any::<prop::sample::Index>(), with in "\\PC{0,4}|[\\[\\]{}:,\"'$&*!|>%@` \\n\\t#-]{1,3}") {
        let mut text = job.to_string();
        let at = at.index(text.len());
        if text.is_char_boundary(at) {
            text.insert_str(at, &with);
        }
        let _ = load("broken", &text, tools());
    }

    #[test]
    fn any_text_is_refused_or_read_and_never_a_panic(text in "(\\PC|[\\n\\t {}\\[\\]:,\"'$-]){0,60}") {
        let _ = load("text", &text, tools());
        let _ = load("text", &format!("job: a\nsteps:\n- id: s\n  set: {text}"), tools());
        let value = Setting::new().value(&text);
        prop_assert_eq!(value, Setting::new().value(&text));
    }

    #[test]
    fn a_template_comes_to_the_same_every_time(
        seed in any::<[u8; 32]>(),
        parts in prop::collection::btree_map("[a-z]{1,3}", prop::sample::select(vec!["${random()}", "${uuid()}", "${random_int(0, 9)}-${uuid()}", "${now()}", "${[3, 1].map(x, random_int(0, x))}", "x"]), 1..6),
    ) {
        let setting = Setting { seed: gesta_core::digest::Seed::new(gesta_core::digest::Digest::from_bytes(seed)), ..Setting::new() };
        let first = setting.resolve(&json!(parts)).unwrap();
        prop_assert_eq!(&first, &setting.resolve(&json!(parts)).unwrap());
        // Written in another order, it is evaluated in the same one.
        let reversed: serde_json::Map<String, Value> = parts.iter().rev().map(|(key, value)| (key.clone(), json!(value))).collect();
        prop_assert_eq!(first, setting.resolve(&Value::Object(reversed)).unwrap());
    }
}

#[test]
fn the_deepest_and_largest_plan_that_compiles_fits_into_an_entry() {
    let nested = |levels: usize| {
        format!("job: a\nsteps:\n- {{ id: s, set: {}{} }}", "[".repeat(levels), "]".repeat(levels))
    };
    let deepest =
        (1..64).take_while(|levels| load("a", &nested(*levels), tools()).is_ok()).last().unwrap();
    assert!(deepest > 40, "{deepest}");
    begin(compiled(&nested(deepest)).plan);

    // One large string, and another one to come to the exact size.
    let sized = |bytes: usize| {
        let (most, rest) = ("x".repeat(bytes / 64 * 64), "x".repeat(bytes % 64));
        format!("job: a\nsteps:\n- {{ id: s, set: [{most}, '{rest}'] }}")
    };
    let fits = |bytes: &usize| load("a", &sized(*bytes), tools()).is_ok();
    let sizes: Vec<usize> = (1_000_000..1 << 20).collect();
    let largest = sizes[sizes.partition_point(fits) - 1];
    assert!(largest + 5_000 > 1 << 20, "{largest}");
    begin(compiled(&sized(largest)).plan);
}
