//! What expressions come to, what they may not do, and that they always come to the same.

use std::collections::BTreeSet;

use gesta_core::digest::{Digest, Seed};
use gesta_core::json::Canon;
use gesta_core::world::World;
use gesta_runtime::job::{Expr, Template, evaluate_with, test_with};
use serde_json::{Value, json};

use crate::setting::{Setting, canon};

fn shop() -> Setting {
    let mut setting = Setting::new()
        .result("order", &json!({ "amount": 12, "paid": true, "lines": [{ "email": "a@x" }, { "email": "b@x" }] }))
        .result("my-step", &json!("dashed"))
        .skipped("pay")
        .resource("order", "42", &json!({ "state": "open" }));
    setting.input = json!({ "order": "o-1", "amount": 7, "rate": 1.5, "flag": true, "none": null, "list": [3, 1, 2] });
    setting
}

fn check(cases: &[(&str, &str)]) {
    let setting = shop();
    for (expression, expected) in cases {
        assert_eq!(setting.value(expression), *expected, "{expression}");
    }
}

#[test]
fn names_lead_to_what_the_scope_holds() {
    check(&[
        ("input.order", r#""o-1""#),
        ("input['order']", r#""o-1""#),
        ("steps.order.result.amount", "12"),
        ("steps['my-step'].result", r#""dashed""#),
        ("steps.order.skipped", "false"),
        ("steps.pay.skipped", "true"),
        ("steps.pay.result", "null"),
        ("steps.order.result.lines[1].email", r#""b@x""#),
        ("world.order['42'].state", r#""open""#),
        ("world['order']['42']", r#"{"state":"open"}"#),
        ("'42' in world.order", "true"),
        ("'43' in world.order", "false"),
        ("has(world.order.x)", "false"),
        ("world.order['43']", "error: the world has no `order` with the id `43`"),
        ("world.refund['1']", "error: the world has no `refund` with the id `1`"),
        ("steps.later.result", "error: step `later` has no result yet"),
        (
            "steps.order.result.total",
            "error: no field `total`; there are `amount`, `lines`, `paid`",
        ),
        ("steps.pay.result.id", "error: null has no field `id`"),
        ("nonsense", "error: unknown name `nonsense`"),
        ("world", "error: `world` is not a value"),
        ("steps", "error: `steps` is not a value"),
        ("[world.order]", "error: the resources of a type is not a value"),
        ("steps == steps", "error: cannot compare `steps` with `steps`"),
    ]);
}

#[test]
fn arithmetic_is_exact_or_refused() {
    check(&[
        ("steps.order.result.amount * 100", "1200"),
        ("7 / 2", "3"),
        ("-7 / 2", "-3"),
        ("-7 % 3", "-1"),
        ("7.0 / 2.0", "3.5"),
        ("input.amount * input.rate", "10.5"),
        ("1 + 1.5", "2.5"),
        ("2 + 3 * 4 - 10 / 5", "12"),
        ("(2 + 3) * 4", "20"),
        ("10 - 3 // minus\n - 2 + 1", "6"),
        ("100 / 10 / 5 * 3", "6"),
        ("9007199254740991", "9007199254740991"),
        (
            "9007199254740991 + 1",
            "error: integer `9007199254740992` is beyond ±9007199254740991, write it as a string",
        ),
        ("9223372036854775807 + 1", "error: integer overflow when trying to add"),
        ("-9223372036854775808 - 1", "error: integer overflow when trying to subtract"),
        ("9223372036854775807 * 2", "error: integer overflow when trying to multiply"),
        ("-9223372036854775808 / -1", "error: integer overflow when trying to divide"),
        (
            "-9223372036854775808 % -1",
            "error: integer overflow when trying to take the remainder of",
        ),
        ("-(-9223372036854775808)", "error: integer overflow when trying to subtract"),
        ("math.abs(-9223372036854775808)", "error: integer overflow in `math.abs`"),
        ("1 / 0", "error: division by zero"),
        ("1 % 0", "error: division by zero"),
        ("1.0 / 0.0", "error: number `inf` is not finite"),
        ("0.0 / 0.0", "error: number `NaN` is not finite"),
        ("1e308 * 10.0", "error: number `inf` is not finite"),
        ("int(1e300)", "error: `int` is out of range"),
        ("int(-9223372036854775808.0)", "error: `int` is out of range"),
        ("int(9.9)", "9"),
        ("1 - 'a'", "error: cannot subtract an integer and a string"),
        ("'a' + 1", "error: cannot add a string and an integer"),
        ("-'a'", "error: `-` cannot be used on a string"),
        ("0x1F", "31"),
    ]);
}

#[test]
fn conditions_are_true_or_false() {
    check(&[
        ("input.flag && steps.order.result.paid", "true"),
        ("true || 1 / 0 == 1", "true"),
        ("1 / 0 == 1 || true", "true"),
        ("1 / 0 == 1 && false", "false"),
        ("1 / 0 == 1 || false", "error: division by zero"),
        ("1 && true", "error: a condition must be true or false, not an integer"),
        ("!input.flag", "false"),
        ("!1", "error: `!` cannot be used on an integer"),
        ("input.flag ? 'yes' : 'no'", r#""yes""#),
        ("1 ? 2 : 3", "error: the condition before `?` must be true or false, not an integer"),
        ("1 == 1.0", "true"),
        ("9007199254740993 == 9007199254740992.0", "false"),
        ("9007199254740993 > 9007199254740992.0", "true"),
        ("1 == '1'", "false"),
        ("null == null", "true"),
        ("[1, {'a': 2.0}] == [1.0, {'a': 2}]", "true"),
        ("'a' < 'b' && 'Z' < 'a'", "true"),
        ("false < true", "true"),
        ("1 < 'a'", "error: cannot compare an integer with a string"),
        ("1 < 1.5 && 2 > 1.5", "true"),
        ("2 in input.list", "true"),
        ("'x' in {'x': 1}", "true"),
        ("1 in 'text'", "error: `in` cannot look for an integer in a string"),
        ("has(steps.order.result.paid)", "true"),
        ("has(steps.order.result.gone)", "false"),
        ("has(steps.pay.result.id)", "false"),
        ("has(input.order.x)", "error: a string has no field `x`"),
    ]);
}

#[test]
fn lists_and_objects_are_walked_in_order() {
    check(&[
        ("input.list.map(x, x * 2)", "[6,2,4]"),
        ("input.list.map(x, x > 1, x * 2)", "[6,4]"),
        ("input.list.filter(x, x > 1)", "[3,2]"),
        ("input.list.all(x, x > 0)", "true"),
        ("input.list.exists(x, x == 2)", "true"),
        ("input.list.exists_one(x, x > 2)", "true"),
        ("input.list.existsOne(x, x > 1)", "false"),
        ("[0, 1].exists(x, 1 / x == 1)", "true"),
        ("[0, 2].exists(x, 1 / x == 1)", "error: division by zero"),
        ("[1, 0].all(x, 1 / x == 2)", "false"),
        ("{'b': 1, 'a': 2, 'c': 3}.map(k, k)", r#"["a","b","c"]"#),
        ("steps.order.result.map(k, k)", r#"["amount","lines","paid"]"#),
        ("input.list.map(input, input + 1)", "[4,2,3]"),
        ("[[1, 2], [3]].map(x, x.map(y, y + size(x)))", "[[3,4],[4]]"),
        ("input.list + [4]", "[3,1,2,4]"),
        ("input.list[0]", "3"),
        ("input.list[0.0]", "3"),
        ("input.list[3]", "error: a list of 3 has nothing at this index"),
        ("input.list[-1]", "error: a list of 3 has nothing at this index"),
        ("input.list['a']", "error: a list has no field `a`"),
        ("5.map(x, x)", "error: an integer has no elements to go through"),
        ("{'a': 1, 'a': 2}", "error: the key `a` stands twice in this object"),
        ("{1: 2}", "error: the keys of an object are strings"),
        ("[1, 2,]", "[1,2]"),
        ("{}", "{}"),
        // The name of an element is gone after the macro, also when the macro fails.
        ("[1].all(x, x / 0 == 1) || x == 1", "error: division by zero"),
        ("[1].map(x, x / 0) == [] || x == 1", "error: division by zero"),
        ("[1].exists(x, true) && x == 1", "error: unknown name `x`"),
    ]);
}

#[test]
fn functions_do_what_cel_says() {
    check(&[
        ("size('héé')", "3"),
        ("'héé'.size()", "3"),
        ("size(input.list) + size({'a': 1})", "4"),
        ("'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')", "true"),
        ("'2026-11'.matches('^[0-9]{4}-[0-9]{2}$')", "true"),
        ("matches('abc', 'b')", "true"),
        ("'abc'.matches('(')", "error: `matches` cannot read this pattern"),
        ("' A b '.trim().lowerAscii() + 'x'.upperAscii()", r#""a bX""#),
        ("'a,b,,c'.split(',')", r#"["a","b","","c"]"#),
        ("'héy'.split('')", r#"["h","é","y"]"#),
        ("['a', 'b'].join('-') + ['c', 'd'].join()", r#""a-bcd""#),
        ("[1].join()", "error: `join` joins strings, not an integer"),
        ("'a.b.c'.replace('.', '/')", r#""a/b/c""#),
        ("'tacocat'.substring(4) + 'tacocat'.substring(0, 4)", r#""cattaco""#),
        (
            "'abc'.substring(2, 1)",
            "error: `substring` from 2 to 1 is outside a string of 3 characters",
        ),
        ("'héllo'.indexOf('llo')", "2"),
        ("'a'.indexOf('b')", "-1"),
        ("string(1.50) + string(12) + string(true) + string('x')", r#""1.512truex""#),
        ("string(null)", "error: `string` cannot be used on null"),
        ("int('42') + int(4.9)", "46"),
        ("int('4.2')", "error: `int` cannot read this string"),
        ("double('1.5') + double(1)", "2.5"),
        ("double('inf')", "error: `double` cannot read this string"),
        ("bool('true')", "true"),
        ("bool('yes')", "error: `bool` cannot read this string"),
        ("math.greatest(1, 2.5, 2)", "2.5"),
        ("math.least([3, 1])", "1"),
        ("math.least([])", "error: `math.least` of nothing"),
        ("math.round(2.5) + math.floor(2.9) + math.ceil(2.1) + math.abs(-1)", "9"),
        ("to_json({'b': 1, 'a': [null]})", r#""{\"a\":[null],\"b\":1}""#),
        (r#"from_json('{"a": [1, 2]}').a[1]"#, "2"),
        ("from_json('{')", "error: `from_json`: expected a key at byte 1"),
        ("size(5)", "error: `size` cannot be used on an integer"),
        ("now()", "1794787200000"),
        (r"'\u00e9\x41\n' + r'\n' + '''it's'''", r#""éA\n\\nit's""#),
    ]);
}

#[test]
fn what_is_no_expression_is_refused_where_it_goes_wrong() {
    for (source, at, message) in [
        ("1 +", 3, "expected a value, found the end"),
        ("a b", 2, "expected an operator, found `b`"),
        ("(1", 2, "expected `)`, found the end"),
        ("f(1)", 0, "unknown function `f`"),
        ("x.siz()", 2, "unknown function `siz`"),
        ("size()", 0, "`size` takes 1 argument, not 0"),
        ("x.size(1)", 2, "`size` takes 0 arguments, not 1"),
        ("'a'.substring()", 4, "`substring` takes 1 to 2 arguments, not 0"),
        ("math.greatest()", 5, "`math.greatest` takes at least 1 argument, not 0"),
        (
            "x.map(1, 2)",
            6,
            "the first argument of `map` is the name of an element, as in `x.map(e, …)`",
        ),
        ("x.all(e)", 2, "`all` takes 2 arguments, not 1"),
        ("has(x)", 4, "`has` asks for a field, as in `has(x.field)`"),
        ("a = b", 2, "unexpected `=`"),
        ("a & b", 2, "unexpected `&`"),
        ("'abc", 0, "this string has no end"),
        (r"'\q'", 1, "unknown escape in a string"),
        (r"'\ud800'", 1, "this escape is not a character"),
        ("b'abc'", 0, "unknown kind of string `b`"),
        ("1u", 0, "`1u` is not a number"),
        ("12abc", 0, "`12abc` is not a number"),
        ("1e999", 0, "`1e999` is not a number"),
        ("9223372036854775808", 0, "integer `9223372036854775808` is out of range"),
        ("a.?b", 2, "optional values are not supported"),
        ("a[?0]", 2, "optional values are not supported"),
        ("a.1", 1, "expected an operator, found a number"),
        ("a.'b'", 2, "expected the name of a field, found a string"),
        ("é", 0, "unexpected `é`"),
        ("", 0, "expected a value, found the end"),
        ("1 2 // and a comment", 2, "expected an operator, found a number"),
    ] {
        let error = Expr::of(source).unwrap_err();
        assert_eq!((error.at, error.message.as_str()), (at, message), "{source}");
    }
    assert_eq!(
        Expr::of("steps.a.siz()").unwrap_err().to_string(),
        "in `steps.a.siz()`: unknown function `siz`; did you mean `size`?"
    );
}

#[test]
fn an_expression_alone_keeps_its_type_and_text_around_it_makes_a_string() {
    let setting = shop();
    for (template, expected) in [
        (json!("${input.amount}"), "7"),
        (json!(" ${input.amount}"), r#"" 7""#),
        (
            json!("${input.order}/${input.amount}/${input.rate}/${input.flag}"),
            r#""o-1/7/1.5/true""#,
        ),
        (json!("costs $${input.amount} or $$5"), r#""costs ${input.amount} or $$5""#),
        (json!("${{'a': {'}': '}'}}}"), r#"{"a":{"}":"}"}}"#),
        (
            json!({ "b": ["${input.list}"], "a": null, "c": 1.5 }),
            r#"{"a":null,"b":[[3,1,2]],"c":1.5}"#,
        ),
        (json!("plain"), r#""plain""#),
        (json!(""), r#""""#),
    ] {
        assert_eq!(setting.resolve(&template).unwrap().as_str(), expected, "{template}");
    }
    for (template, message) in [
        (
            json!("a ${input.list}"),
            "in `input.list`: a list cannot stand inside a string; write it with `to_json`, or alone as one `${…}`",
        ),
        (
            json!("a ${input.none}"),
            "in `input.none`: null cannot stand inside a string; write it with `to_json`, or alone as one `${…}`",
        ),
        (json!("a ${b"), "in `b`: `${` has no closing `}`"),
        (json!("${1 +}"), "in `1 +`: expected a value, found the end"),
    ] {
        assert_eq!(setting.resolve(&template).unwrap_err().to_string(), message);
    }
}

#[test]
fn random_values_follow_from_the_seed_and_the_order_of_evaluation() {
    let setting = shop();
    let template = json!({
        "b": "${random_int(1, 6)}", "a": "${uuid()}", "c": ["${random()}", "${[1, 2].map(x, random_int(0, 99))}"], "d": "${now()}",
    });
    let first = setting.resolve(&template).unwrap();
    // The SHA-256 of the seed's text, a NUL and 0, 1, …: keys in order, lists from the front.
    let expected = r#"{"a":"UUID","b":B,"c":[C,[D,E]],"d":1794787200000}"#;
    let draw = |number: u64| {
        let seed = setting.seed.to_string();
        let digest = Digest::of_parts(&[seed.as_bytes(), number.to_string().as_bytes()]);
        u128::from_be_bytes(digest.as_bytes()[..16].try_into().unwrap())
    };
    let uuid = draw(0) & !(0xf << 76) | 0x4 << 76;
    let uuid = format!("{:032x}", uuid & !(0b11 << 62) | 0b10 << 62);
    let uuid = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]].join("-");
    let random = (draw(2) >> 75) as f64 / (1_u64 << 53) as f64;
    let expected = expected
        .replace("UUID", &uuid)
        .replace('B', &(draw(1) % 6 + 1).to_string())
        .replace('C', Canon::of(&random).unwrap().as_str())
        .replace('D', &(draw(3) % 100).to_string())
        .replace('E', &(draw(4) % 100).to_string());
    assert_eq!(first.as_str(), expected);
    assert_eq!(setting.resolve(&template).unwrap(), first);

    let other = Setting { seed: Seed::new(Digest::of(b"another step")), ..shop() };
    assert_ne!(other.resolve(&template).unwrap(), first);

    let drawn: BTreeSet<String> = (0..300)
        .map(|i| {
            let seed = Seed::new(Digest::of(&[u8::try_from(i % 256).unwrap(), 1]));
            Setting { seed, ..Setting::new() }.value("random_int(-1, 1)")
        })
        .collect();
    assert_eq!(drawn, ["-1", "0", "1"].map(str::to_owned).into());
    assert_eq!(
        setting.value("random_int(2, 1)"),
        "error: `random_int` has nothing between 2 and 1"
    );
    assert!(
        setting.value("random_int(-9223372036854775808, 9223372036854775807) < 0 || true")
            == "true"
    );
}

#[test]
fn a_condition_draws_other_values_than_the_arguments() {
    let expr = Expr::of("random() < 0.1").unwrap();
    let settings =
        (0..200_u8).map(|i| Setting { seed: Seed::new(Digest::of(&[i])), ..Setting::new() });
    let happened: Vec<f64> = settings
        .filter(|setting| setting.with(|scope| expr.test(scope)).unwrap())
        .map(|setting| setting.value("random()").parse().unwrap())
        .collect();
    assert!(happened.len() > 5 && happened.iter().any(|drawn| *drawn > 0.5), "{happened:?}");
}

#[test]
fn item_and_index_are_those_of_the_fan_out() {
    let setting = Setting { item: Some((3, json!({ "email": "a@x" }))), ..shop() };
    assert_eq!(setting.value("item.email + ' ' + string(index)"), r#""a@x 3""#);
    assert_eq!(shop().value("item"), "error: unknown name `item`");
}

#[test]
fn no_expression_takes_more_work_or_memory_than_it_may() {
    let many: Vec<u64> = (0..2_000).collect();
    let mut setting = shop();
    setting.input = json!({ "many": many, "long": "x".repeat(100_000) });
    let tired = "error: this takes too much work; compute it in parts, or in a tool";
    let nested = "input.many.map(a, input.many.map(b, input.many.map(c, a * b * c)))";
    let quadratic = "input.many.all(a, input.many.all(b, a + b >= 0))";
    let doubling = format!("[input.long]{}.size()", ".map(s, s + s)".repeat(40));
    let growing = format!("[[1]]{}.size()", ".map(l, l + l)".repeat(60));
    let replaced = "input.long.replace('', input.long)";
    let equal = format!("[[1]]{0} == [[1]]{0}", ".map(l, [l, l])".repeat(40));
    let absorbed = format!("({quadratic}) || true");
    let either = format!("[1].exists(x, {quadratic} || x == 1)");
    for expression in [nested, quadratic, &doubling, &growing, replaced, &equal, &absorbed, &either]
    {
        assert_eq!(setting.value(expression), tired, "{expression}");
    }
    let large = json!("x".repeat(100_000));
    let reading =
        (0..10).fold(shop(), |setting, i| setting.resource("big", &i.to_string(), &large));
    let ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let looked_up = format!("{ten}.all(i, {ten}.all(j, {ten}.all(k, string(j) in world.big)))");
    assert_eq!(reading.value(&looked_up), tired);
    let wide = format!("[1]{}", ".map(l, [l, l, l, l])".repeat(30));
    assert_eq!(setting.value(&wide), "error: the result is larger than 1048576 bytes");
    assert_eq!(setting.value("[1, 2].map(x, input.many).size()"), "2");

    for deep in [
        &format!("{}1{}", "(".repeat(32), ")".repeat(32)),
        &format!("{}a", "!".repeat(65)),
        &format!("{}1", "-".repeat(65)),
        &format!("{}1{}", "[".repeat(32), "]".repeat(32)),
        &format!("a{}", ".b".repeat(65)),
        &format!("1{}", " + 1".repeat(64)),
        &format!("{}1", "true ? 1 : ".repeat(32)),
        &format!("1{}", ".map(x, 1)".repeat(64)),
        &format!("{}1{}", "size(".repeat(32), ")".repeat(32)),
    ] {
        let error = Expr::of(deep).unwrap_err();
        assert!(
            error.message.starts_with("this expression is nested deeper than "),
            "{deep}: {error}"
        );
    }
    let long = format!("'{}'", "x".repeat(4096));
    assert_eq!(Expr::of(&long).unwrap_err().message, "this expression is longer than 4096 bytes");
}

#[test]
fn deep_expressions_fit_into_a_small_stack() {
    let deep = |open: &str, inner: &str, close: &str, n: usize| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    let cases = [
        deep("(", "1", ")", 31),
        deep("[", "1", "]", 31),
        deep("-", "1", "", 63),
        deep("", "1", " + 1", 63),
        deep("true ? 1 : ", "1", "", 31),
        deep("[0].map(x, ", "1", ")", 31),
        deep("", "[0]", ".map(x, x)", 62),
        deep("{'a': ", "1", "}", 31),
        deep("", "true", " && true", 63),
        deep("true && (", "true", ")", 31),
        deep("-(", "1", ")", 31),
    ];
    let evaluate = move || {
        for expression in &cases {
            let value = Setting::new().value(expression);
            assert!(!value.starts_with("error"), "{expression}: {value}");
        }
    };
    std::thread::Builder::new().stack_size(512 * 1024).spawn(evaluate).unwrap().join().unwrap();
}

#[test]
fn the_world_is_looked_up_and_never_walked() {
    let mut setting = Setting::new();
    for i in 0..2_000 {
        setting = setting.resource("order", &i.to_string(), &json!({ "n": i }));
    }
    assert_eq!(setting.value("world['order']['1999'].n + world.order['7'].n"), "2006");
    assert_eq!(
        setting.value("world.order.map(x, x)"),
        "error: the resources of a type has no elements to go through"
    );
    assert_eq!(setting.value("size(world)"), "error: `size` cannot be used on `world`");
}

#[test]
fn a_manifests_expressions_see_what_they_are_given() {
    let (args, result) = (canon(&json!({ "order": "o-1" })), canon(&json!({ "id": 5 })));
    let vars = [("args", &args), ("result", &result)];
    let template =
        Template::of(&json!({ "id": "${args.order}", "n": "${result.id + 1}" })).unwrap();
    template.check(&["args", "result"]).unwrap();
    assert_eq!(evaluate_with(&template, &vars).unwrap().as_str(), r#"{"id":"o-1","n":6}"#);

    for (expression, message) in [
        ("now()", "`now` has no meaning here"),
        ("uuid()", "random values have no meaning here"),
        ("steps.a.result", "unknown name `steps`"),
        ("world.a.b", "unknown name `world`"),
    ] {
        let template = Template::of(&json!(format!("${{{expression}}}"))).unwrap();
        assert_eq!(evaluate_with(&template, &vars).unwrap_err().message, message);
    }
    let refused = Template::of(&json!("${args.a + resul.b}")).unwrap().check(&["args", "result"]);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "in `args.a + resul.b`: unknown name `resul`; it may use `args` and `result`"
    );

    let world: World = Setting::new().resource("order", "o-1", &json!({ "open": true })).world;
    let expr = Expr::of("world.order[args.order].open").unwrap();
    assert!(expr.check(&["args"]).is_err());
    expr.check(&["args", "world"]).unwrap();
    assert!(test_with(&expr, &vars, Some(&world)).unwrap());
    assert!(test_with(&expr, &vars, None).is_err());
    let number = Expr::of("1").unwrap();
    assert_eq!(
        test_with(&number, &vars, None).unwrap_err().to_string(),
        "in `1`: a condition must be true or false, not an integer"
    );
}

#[test]
fn templates_tell_what_they_mention() {
    let template = json!({
        "a": "${steps.one.result + steps['two-b'].skipped + input.x}",
        "b": ["text ${[1].map(steps, steps.three)} ${item.a}", "${world[input.kind].x}"],
    });
    let references = Template::of(&template).unwrap().references();
    let steps: Vec<&str> = references.steps.iter().map(gesta_core::ids::StepId::as_str).collect();
    assert_eq!(steps, ["one", "two-b"]);
    assert_eq!(references.inputs, ["kind", "x"].map(str::to_owned).into());
    assert_eq!(references.names, ["input", "item", "steps", "world"].map(str::to_owned).into());
    assert!(references.item());
}

#[test]
fn templates_are_stored_as_they_are_written() {
    let template: Value = json!({ "a": ["$${x} ${input.y}", 1.5] });
    let canon = canon(&template);
    let read: Template = canon.read().unwrap();
    assert_eq!(Canon::of(&read).unwrap(), canon);
    assert_eq!(read, Template::of(&template).unwrap());
    let broken: Template = Canon::of("${1 +}").unwrap().read().unwrap();
    assert_eq!(broken.check(&[]).unwrap_err().message, "expected a value, found the end");
}
