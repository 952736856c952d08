//! The run that is written down for what expressions come to: every function, macro and operator that there is,
//! in steps, conditions, fan-outs, arguments and the answer. A version in which one of them means something else
//! does not replay it. That none is left out is for the table of functions to say
//! (`the_vector_names_every_function`).

use std::sync::Arc;

use gesta_core::ids::TrajectoryId;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError};
use gesta_store::Store;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::scene::Scene;
use crate::stage::manifest;

const JOB: &str = r#"
job: expressions
input:
  name: string
  n: integer
steps:
  - id: text
    set:
      contains: "${input.name.contains('Love')}"
      starts: "${input.name.startsWith('Ada')}"
      ends: "${input.name.endsWith('lace')}"
      matches: "${[input.name.matches('^A.*e'), matches(input.name, '[0-9]')]}"
      lower: "${input.name.lowerAscii()}"
      upper: "${input.name.upperAscii()}"
      trim: "${('  ' + input.name + ' ').trim()}"
      split: "${input.name.split(' ')}"
      join: "${[input.name.split(' ').join('-'), ['a', 'b'].join()]}"
      replace: "${input.name.replace('a', 'o')}"
      substring: "${[input.name.substring(4), input.name.substring(0, 3)]}"
      index: "${[input.name.indexOf('L'), input.name.indexOf('z')]}"
      size: "${[size(input.name), input.name.size(), size([1, 2]), size({'k': 1})]}"
      beyond_ascii: "${['grün'.size(), 'grün'.substring(2), 'GRÜN'.lowerAscii()]}"
  - id: numbers
    set:
      int: "${[int('42'), int(2.9), int(-2.9)]}"
      double: "${[double('1.5'), double(3)]}"
      bool: "${[bool('true'), bool('false')]}"
      string: "${[string(1), string(1.5), string(true), string('s')]}"
      greatest: "${[math.greatest(1, 3, 2), math.greatest([1.5, 2.5])]}"
      least: "${[math.least(1, 3, 2), math.least([1.5, 2.5])]}"
      abs: "${[math.abs(-7), math.abs(-7.5)]}"
      ceil: "${math.ceil(1.2)}"
      floor: "${math.floor(-1.2)}"
      round: "${[math.round(1.5), math.round(2.5), math.round(-1.5)]}"
  - id: json
    set:
      written: "${to_json({'b': [1, 2.5, null], 'a': 'x'})}"
      read: "${from_json('{\"k\":[1,{\"l\":2}]}').k[1].l}"
  - id: lists
    set:
      all: "${[1, 2, 3].all(x, x > 0)}"
      exists: "${[1, 2, 3].exists(x, x == 2)}"
      exists_one: "${[1, 2, 2].exists_one(x, x == 2)}"
      filter: "${[1, 2, 3].filter(x, x % 2 == 1)}"
      map: "${[1, 2, 3].map(x, x * x)}"
      has: "${[has(steps.json.result.read), has(steps.json.result.nothing)]}"
  - id: operators
    set:
      sums: "${[1 + 2, 5 - 7, 3 * 4, 9 / 2, 9 % 4, -input.n]}"
      texts: "${'a' + 'b'}"
      orders: "${[1 < 2, 2 <= 2, 3 > 4, 4 >= 4, 1 == 1.0, 1 != 2]}"
      words: "${[true && !false, false || true, 2 in [1, 2], 'k' in {'k': 1}]}"
      choice: "${input.n > 5 ? 'many' : 'few'}"
  - id: drawn
    set:
      now: "${now()}"
      random: "${[random(), random()]}"
      random_int: "${[random_int(1, 6), random_int(-3, 3)]}"
      uuid: "${[uuid(), uuid()]}"
  - id: off
    when: "steps.lists.result.all && size(steps.text.result.split) > 2"
    set: 1
  - { id: each, each: "${steps.lists.result.map}", tool: look, args: { n: "${item + input.n}", at: "${uuid()}" } }
answer: "${[steps.text.result, steps.numbers.result, steps.json.result, steps.lists.result, steps.operators.result, steps.drawn.result, steps.each.result.map(it, it.n)]}"
"#;

fn tools() -> Catalogue {
    Catalogue::builder()
        .function(manifest("look", Effect::Read), async |call: FunctionCall| {
            let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
            Ok::<_, FunctionError>(json!({ "n": args["n"] }))
        })
        .build()
        .unwrap()
}

/// Runs the job with one worker. Says which there are.
pub(crate) async fn run(store: Arc<dyn Store>, started: Instant) -> (Scene, Vec<TrajectoryId>) {
    let scene = Scene::on(store, tools(), started).await;
    let job = scene.submit(1, JOB, &[("name", "Ada Lovelace"), ("n", "7")]).await;
    let worker = scene.worker_named(Arc::clone(&scene.store), "worker", None).await.unwrap();
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    worker.run_one(job, stopped).await.unwrap();
    worker.retire().await.unwrap();
    let answer: Value = serde_json::from_str(&scene.ran(job).await.answer()).unwrap();
    // What a reader can check by eye; the rest is in the vector.
    assert_eq!(answer[0]["split"], json!(["Ada", "Lovelace"]), "{answer:#}");
    assert_eq!(answer[0]["join"], json!(["Ada-Lovelace", "ab"]), "{answer:#}");
    assert_eq!(answer[1]["int"], json!([42, 2, -2]), "{answer:#}");
    assert_eq!(answer[2]["read"], 2, "{answer:#}");
    assert_eq!(answer[3]["map"], json!([1, 4, 9]), "{answer:#}");
    assert_eq!(answer[4]["sums"], json!([3, -2, 12, 4, 1, -7]), "{answer:#}");
    assert_eq!(answer[6], json!([8, 11, 16]), "{answer:#}");
    (scene, vec![job])
}
