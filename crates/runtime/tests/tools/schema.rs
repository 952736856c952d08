//! Schemas: closed inputs, bounded reports, nothing fetched.

use std::time::{Duration, Instant};

use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, CatalogueError, Manifest};
use serde_json::{Value, json};

fn catalogue(input: Option<Value>, output: Option<Value>) -> Result<Catalogue, CatalogueError> {
    let mut manifest = Manifest::new("t".parse().unwrap(), Effect::Read);
    (manifest.input, manifest.output) = (input, output);
    Catalogue::builder().function(manifest, |_| async { Ok(json!(null)) }).build()
}

fn input(schema: Value, args: &Value) -> Vec<String> {
    let catalogue = catalogue(Some(schema), None).unwrap();
    let mismatches = catalogue.iter().next().unwrap().check_input(&Canon::of(args).unwrap());
    mismatches.iter().map(ToString::to_string).collect()
}

fn refused(schema: Value) -> String {
    catalogue(Some(schema), None).unwrap_err().to_string()
}

#[test]
fn an_input_schema_is_closed_unless_it_says_otherwise() {
    let fields = json!({"properties": {"a": {"type": "integer"}}});
    let with = |more: Value| {
        let mut schema = fields.clone();
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let extra = json!({"a": 1, "b": 2});
    for open in [
        json!({"additionalProperties": true}),
        json!({"unevaluatedProperties": true}),
        json!({"patternProperties": {"^b$": true}}),
    ] {
        assert!(input(with(open), &extra).is_empty());
    }
    for closed in [json!({}), json!({"type": "object"}), json!({"additionalProperties": false})] {
        let found = input(with(closed), &extra);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("'b'"), "{found:?}");
    }
    assert!(input(fields, &json!({"a": 1})).is_empty());
}

#[test]
fn a_composed_schema_is_closed_around_all_its_parts() {
    let schema = json!({
        "$defs": {"base": {"properties": {"a": {"type": "integer"}}}},
        "$ref": "#/$defs/base",
        "allOf": [{"properties": {"b": true}}],
        "properties": {"c": true},
    });
    assert!(input(schema.clone(), &json!({"a": 1, "b": 2, "c": 3})).is_empty());
    assert_eq!(input(schema.clone(), &json!({"d": 1})).len(), 1);
    let mut old = schema;
    old["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert!(refused(old.clone()).contains("cannot be closed against unknown fields"));
    old["additionalProperties"] = json!(false);
    assert!(refused(old).contains("cannot be closed against unknown fields"));
}

#[test]
fn without_a_schema_any_object_is_taken() {
    let catalogue = catalogue(None, None).unwrap();
    let tool = catalogue.iter().next().unwrap();
    assert!(tool.check_input(&Canon::of(&json!({"any": ["thing"]})).unwrap()).is_empty());
    assert_eq!(tool.check_input(&Canon::of(&json!([1])).unwrap()).len(), 1);
    assert!(tool.check_output(&Canon::of(&json!([1])).unwrap()).is_empty());
}

#[test]
fn older_dialects_are_read_as_such() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"n": {"type": "number"}},
        "properties": {"a": {"$ref": "#/definitions/n"}, "b": {"items": [{"type": "string"}]}},
    });
    assert!(input(schema.clone(), &json!({"a": 1.5, "b": ["x", 2]})).is_empty());
    let found = input(schema, &json!({"b": [1]}));
    assert!(found.len() == 1 && found[0].starts_with("at `/b/0`: "), "{found:?}");
}

#[test]
fn mismatches_are_few_and_do_not_repeat_the_value() {
    let schema = json!({"properties": {"list": {"items": {"type": "integer"}}}});
    let secret = "hunter2".repeat(1_000);
    let found = input(schema, &json!({"list": vec![secret.as_str(); 100]}));
    assert_eq!(found.len(), 16);
    assert!(found[0].starts_with("at `/list/0`: "), "{}", found[0]);
    assert!(found.iter().all(|text| text.len() < 400 && !text.contains("hunter2")), "{found:?}");
    let names = json!({"x".repeat(10_000): 1});
    assert!(input(json!({"type": "object"}), &names)[0].len() < 1_000);
}

#[test]
fn results_are_checked_against_their_own_schema() {
    let output = json!({"type": "object", "required": ["id"], "properties": {"at": {"format": "date-time"}}});
    let catalogue = catalogue(None, Some(output)).unwrap();
    let tool = catalogue.iter().next().unwrap();
    let check = |value: Value| tool.check_output(&Canon::of(&value).unwrap()).len();
    assert_eq!(check(json!({"id": 1, "more": 2, "at": "yesterday"})), 0);
    assert_eq!(check(json!({})), 1);
    assert_eq!(check(json!([])), 1);
    let dated = json!({"properties": {"at": {"format": "date-time"}}});
    assert_eq!(input(dated, &json!({"at": "yesterday"})).len(), 1, "arguments are held to formats");
}

#[test]
fn schemas_that_cannot_be_used_are_refused() {
    assert!(
        refused(json!(true)).contains("the input schema cannot be used: a schema is a JSON object")
    );
    assert!(refused(json!({"type": "array"})).contains("arguments are objects"));
    assert!(
        refused(json!({"properties": {"a": {"type": "strin"}}})).contains("/properties/a/type")
    );
    assert!(refused(json!({"properties": {"a": {"pattern": "("}}})).contains("cannot be used"));
    assert!(refused(json!({"title": 9_007_199_254_740_993_u64})).contains("is beyond"));
    // A pattern that needs backtracking has no place here.
    assert!(
        refused(json!({"properties": {"a": {"pattern": "(?=a)b"}}})).contains("cannot be used")
    );
}

#[test]
fn nothing_is_fetched() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/schema.json", listener.local_addr().unwrap());
    for schema in [
        json!({"properties": {"a": {"$ref": url}}}),
        json!({"$schema": url, "type": "object"}),
        json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
    ] {
        assert!(refused(schema).contains("cannot be used"));
    }
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn patterns_take_linear_time() {
    let schema = json!({"properties": {"a": {"pattern": "^(a+)+$"}}});
    let started = Instant::now();
    let found = input(schema, &json!({"a": format!("{}!", "a".repeat(100_000))}));
    assert_eq!(found.len(), 1);
    assert!(started.elapsed() < Duration::from_secs(20));
}
