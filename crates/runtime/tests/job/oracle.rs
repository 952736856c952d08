//! Our CEL against the crate `cel`, on expressions made at random.

use std::collections::HashMap;
use std::sync::Arc;

use cel::{Context, Env, ExecutionError, extensions};
use gesta_core::json::Canon;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::setting::Setting;

/// What both may look at.
fn input() -> Value {
    json!({
        "n": 7, "big": 9_007_199_254_740_991_i64, "x": 2.5, "s": "héllo", "t": "",
        "flag": true, "none": null, "ns": [3, 1, 2], "ss": ["b", "a"], "o": { "a": 1, "b": { "c": [1, 2] } },
    })
}

/// Expressions that should be integers, up to this depth.
fn integer(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        (-9_i64..10).prop_map(|n| n.to_string()),
        prop::sample::select(vec![
            "input.n",
            "input.big",
            "9223372036854775807",
            "-9223372036854775808",
            "0x7f",
            "input.ns[0]",
            "input.ns[5]",
            "input.o.a",
            "input.o.b.c[1]",
            "input.o.zz",
            "input.none",
            "input.x",
            "input.s",
        ])
        .prop_map(str::to_owned),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let d = depth - 1;
    prop_oneof![
        leaf,
        (integer(d), prop::sample::select(vec!["+", "-", "*", "/", "%"]), integer(d))
            .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
        (integer(d), integer(d), integer(d)).prop_map(|(a, b, c)| format!("{a} + {b} * {c}")),
        integer(d).prop_map(|a| format!("-({a})")),
        (boolean(d), integer(d), integer(d)).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        (list(d)).prop_map(|l| format!("size({l})")),
        (text(d)).prop_map(|s| format!("({s}).size()")),
        (text(d), text(d)).prop_map(|(s, t)| format!("({s}).indexOf({t})")),
        double(d).prop_map(|x| format!("int({x})")),
        text(d).prop_map(|x| format!("int({x})")),
        integer(d).prop_map(|x| format!("math.abs({x})")),
        (integer(d), integer(d)).prop_map(|(a, b)| format!("math.greatest({a}, {b})")),
        (list(d), integer(d)).prop_map(|(l, i)| format!("{l}[{i}]")),
    ]
    .boxed()
}

fn double(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop::sample::select(vec![
        "1.5", "-0.25", "1e3", "0.0", "input.x", "1e308", ".5", "input.n",
    ])
    .prop_map(str::to_owned);
    if depth == 0 {
        return leaf.boxed();
    }
    let d = depth - 1;
    prop_oneof![
        leaf,
        (double(d), prop::sample::select(vec!["+", "-", "*", "/"]), double(d))
            .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
        integer(d).prop_map(|n| format!("double({n})")),
        (prop::sample::select(vec!["ceil", "floor", "round", "abs"]), double(d))
            .prop_map(|(f, x)| format!("math.{f}({x})")),
    ]
    .boxed()
}

fn text(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop::sample::select(vec![
        "'a'",
        "\"b\\n\"",
        "''",
        "input.s",
        "input.t",
        "r'\\d'",
        "'''it's'''",
        "'42'",
        "'a,b,a'",
        "'\\u00e9\\x41'",
        "input.n",
    ])
    .prop_map(str::to_owned);
    if depth == 0 {
        return leaf.boxed();
    }
    let d = depth - 1;
    prop_oneof![
        leaf,
        (text(d), text(d)).prop_map(|(a, b)| format!("({a} + {b})")),
        (boolean(d), text(d), text(d)).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        integer(d).prop_map(|n| format!("string({n})")),
        boolean(d).prop_map(|n| format!("string({n})")),
        text(d).prop_map(|s| format!("({s}).upperAscii().lowerAscii().trim()")),
        (text(d), integer(d)).prop_map(|(s, i)| format!("({s}).substring({i})")),
        (text(d), integer(d), integer(d))
            .prop_map(|(s, i, j)| format!("({s}).substring({i}, {j})")),
        (text(d), text(d), text(d)).prop_map(|(s, a, b)| format!("({s}).replace({a}, {b})")),
        (text(d), text(d)).prop_map(|(s, by)| format!("({s}).split({by}).join('-')")),
        Just("input.ss.join(',')".to_owned()),
    ]
    .boxed()
}

fn boolean(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop::sample::select(vec!["true", "false", "input.flag", "input.n", "input.o.zz"])
        .prop_map(str::to_owned);
    if depth == 0 {
        return leaf.boxed();
    }
    let d = depth - 1;
    let compare = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    prop_oneof![
        leaf,
        (boolean(d), prop::sample::select(vec!["&&", "||"]), boolean(d))
            .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
        (boolean(d), boolean(d), boolean(d)).prop_map(|(a, b, c)| format!("{a} || {b} && !({c})")),
        (integer(d), compare.clone(), integer(d)).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
        (integer(d), compare.clone(), double(d)).prop_map(|(a, o, b)| format!("({a} {o} {b})")),
        (text(d), compare, text(d)).prop_map(|(a, o, b)| format!("({a} {o} {b})")),
        (list(d), list(d)).prop_map(|(a, b)| format!("({a} == {b})")),
        (integer(d), list(d)).prop_map(|(a, b)| format!("({a} in {b})")),
        (list(d), boolean(d)).prop_map(|(l, b)| format!("{l}.all(n, n > 0 || {b})")),
        (list(d), boolean(d)).prop_map(|(l, b)| format!("{l}.exists(n, 6 / n == 2 && {b})")),
        list(d).prop_map(|l| format!("{l}.exists_one(n, n == 1)")),
        (text(d), text(d)).prop_map(|(a, b)| format!("({a}).contains({b})")),
        (text(d), text(d)).prop_map(|(a, b)| format!("({a}).startsWith({b})")),
        (text(d), text(d)).prop_map(|(a, b)| format!("({a}).endsWith({b})")),
        text(d).prop_map(|a| format!("({a}).matches('^[a-z]+$')")),
        prop::sample::select(vec![
            "has(input.o.a)",
            "has(input.o.zz)",
            "'a' in input.o",
            "'q' in input.o",
            "has(input.n.x)",
            "input.o == {'b': {'c': [1, 2.0]}, 'a': 1}"
        ])
        .prop_map(str::to_owned),
        boolean(d).prop_map(|b| format!("!({b})")),
    ]
    .boxed()
}

fn list(depth: u32) -> BoxedStrategy<String> {
    let leaf = prop::sample::select(vec![
        "input.ns",
        "[]",
        "[1, 2, 3]",
        "[0]",
        "input.o.b.c",
        "input.none",
    ])
    .prop_map(str::to_owned);
    if depth == 0 {
        return leaf.boxed();
    }
    let d = depth - 1;
    prop_oneof![
        leaf,
        prop::collection::vec(integer(d), 0..3).prop_map(|parts| format!("[{}]", parts.join(", "))),
        (list(d), list(d)).prop_map(|(a, b)| format!("({a} + {b})")),
        (list(d), integer(d)).prop_map(|(l, n)| format!("{l}.map(n, n + {n})")),
        (list(d), integer(d)).prop_map(|(l, n)| format!("{l}.map(n, n > 1, n * {n})")),
        (list(d), boolean(d)).prop_map(|(l, b)| format!("{l}.filter(n, n < 3 && {b})")),
    ]
    .boxed()
}

/// JSON as the crate's values. Its own conversion makes unsigned integers, which JSON does not have.
fn given(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => cel::Value::Int(integer),
            None => cel::Value::Float(number.as_f64().unwrap()),
        },
        Value::String(text) => cel::Value::from(text.as_str()),
        Value::Array(values) => values.iter().map(given).collect::<Vec<_>>().into(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), given(value)))
            .collect::<HashMap<_, _>>()
            .into(),
    }
}

/// What the crate makes of an expression. On a stack of its own: its parser needs a large one.
fn theirs(source: &str) -> Result<Value, ExecutionError> {
    let source = source.to_owned();
    let evaluate = move || {
        let mut env = Env::stdlib();
        env.add_extension(extensions::strings).unwrap();
        env.add_extension(extensions::math).unwrap();
        let program = env.compile(&source).unwrap_or_else(|errors| panic!("{source}: {errors}"));
        let mut context = Context::with_env(Arc::new(env));
        context.add_variable_from_value("input", given(&input()));
        program.execute(&context).map(|value| value.json().unwrap())
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(evaluate).unwrap().join().unwrap()
}

/// Whether the crate refuses what we allow: an integer and a double in one operation.
fn mixed(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::UnsupportedBinaryOperator(_, left, right) => {
            use cel::Value::{Float, Int};
            matches!((left, right), (Int(_), Float(_)) | (Float(_), Int(_)))
        }
        // `math.ceil(1)` and the like: JSON does not tell 1 from 1.0.
        ExecutionError::NoSuchOverload(overload) => overload.function().starts_with("math."),
        _ => false,
    }
}

fn agree(source: &str) -> Result<(), TestCaseError> {
    let ours = Setting { input: input(), ..Setting::new() }.value(source);
    match theirs(source) {
        Ok(value) => {
            // Canonical JSON has no large integers and no infinities, which serde_json makes null.
            match Canon::of(&value) {
                Ok(canon) if value.is_null() => {
                    prop_assert!(ours.starts_with("error: number") || ours == canon.as_str());
                }
                Ok(canon) => prop_assert_eq!(ours, canon.as_str(), "{}", source),
                Err(_) => {
                    prop_assert!(ours.starts_with("error: "), "{}: {} {}", source, ours, value);
                }
            }
        }
        Err(error) if mixed(&error) => {}
        Err(error) => prop_assert!(ours.starts_with("error: "), "{}: {} {}", source, ours, error),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn we_agree_with_the_crate(source in prop_oneof![integer(3), double(2), text(3), boolean(3), list(3)]) {
        agree(&source)?;
    }
}
