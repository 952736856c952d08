//! What a job is given: from the command line and from JSON.

use std::collections::BTreeMap;

use gesta_core::json::Canon;
use gesta_runtime::job::Compiled;
use serde_json::{Value, json};

use crate::setting::{canon, compiled};

fn job() -> Compiled {
    compiled(
        "job: a
input:
  order: string
  amount: { type: integer, default: 100, description: in cents }
  rate: { type: number, default: 1.5 }
  fast: { type: boolean, default: false }
  lines: { type: array, default: [] }
  kind: { type: string, enum: [big, small], default: big }
  extra: { type: object, default: null }
steps: [{ id: s, set: 1 }]",
    )
}

fn given(pairs: &[(&str, &str)]) -> Result<String, String> {
    let pairs: BTreeMap<String, String> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    shown(job().input(&pairs))
}

fn given_json(value: &Value) -> Result<String, String> {
    shown(job().input_json(&canon(value)))
}

fn shown(result: Result<Canon, gesta_runtime::job::Problems>) -> Result<String, String> {
    result.map(|input| input.to_string()).map_err(|problems| problems.to_string())
}

#[test]
fn defaults_complete_what_is_given() {
    let all = r#"{"amount":100,"extra":null,"fast":false,"kind":"big","lines":[],"order":"o-1","rate":1.5}"#;
    assert_eq!(given(&[("order", "o-1")]).unwrap(), all);
    assert_eq!(given_json(&json!({ "order": "o-1" })).unwrap(), all);
    assert_eq!(given_json(&json!({ "order": "o-1", "extra": null })).unwrap(), all);
}

#[test]
fn the_declared_type_decides_how_text_is_read() {
    let pairs = [
        ("order", "42"),
        ("amount", "7"),
        ("rate", "2"),
        ("fast", "true"),
        ("lines", r#"[1, {"a": "b"}]"#),
        ("kind", "small"),
        ("extra", r#"{"x": null}"#),
    ];
    assert_eq!(
        given(&pairs).unwrap(),
        r#"{"amount":7,"extra":{"x":null},"fast":true,"kind":"small","lines":[1,{"a":"b"}],"order":"42","rate":2}"#
    );
}

#[test]
fn what_does_not_fit_is_refused_and_everything_at_once() {
    assert_eq!(
        given(&[("amount", "1.5"), ("rate", "fast"), ("kind", "medium"), ("ordr", "x")])
            .unwrap_err(),
        "job.yaml: input `rate` is of type number; `fast` is not JSON of that type\n\
         job.yaml: unknown input `ordr`\n  hint: did you mean `order`?\n\
         job.yaml: input `order` is missing\n  hint: it is of type string\n\
         job.yaml: input `amount` is of type integer, not a number\n\
         job.yaml: input `kind` must be one of `\"big\"`, `\"small\"`"
    );
    assert_eq!(
        given(&[("order", "x"), ("amount", "9007199254740992")]).unwrap_err(),
        "job.yaml: input `amount` is of type integer; `9007199254740992` is not JSON of that type"
    );
    assert_eq!(
        given_json(&json!({ "order": 5, "lines": {}, "extra": [], "fast": null })).unwrap_err(),
        "job.yaml: input `order` is of type string, not an integer\n\
         job.yaml: input `fast` is of type boolean, not null\n\
         job.yaml: input `lines` is of type array, not an object\n\
         job.yaml: input `extra` is of type object, not a list"
    );
    assert_eq!(
        given_json(&json!([])).unwrap_err(),
        "job.yaml: the input of a job is an object, not a list"
    );
}
