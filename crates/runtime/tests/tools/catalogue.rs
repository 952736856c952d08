//! Declarations: what is read, what is refused, what the digest covers.

use gesta_core::document::Recovery;
use gesta_core::ids::ToolName;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, Manifest, Tool};
use serde_json::{Value, json};

use crate::world::World;

const PLAIN: &str =
    "[tools.t]\neffect = \"write\"\n[tools.t.driver.process]\ncommand = [\"true\"]\n";

fn tool<'a>(catalogue: &'a Catalogue, name: &str) -> &'a Tool {
    catalogue.get(&name.parse().unwrap()).unwrap()
}

#[test]
fn everything_has_its_default() {
    let catalogue = World::new().catalogue(PLAIN);
    let manifest = tool(&catalogue, "t").manifest();
    let defaults = Manifest::new("t".parse().unwrap(), Effect::Write);
    assert_eq!(*manifest, defaults);
    assert_eq!(manifest.recovery, Recovery::Never);
    assert_eq!((manifest.timeout.ms(), manifest.settle.ms()), (30_000, 0));
    assert_eq!((manifest.key_ttl.ms(), manifest.cost.calls), (86_400_000, 1));
    assert_eq!((manifest.retry.attempts.get(), manifest.retry.backoff.ms()), (3, 200));
    let reading = World::new().catalogue(&PLAIN.replace("write", "read"));
    assert_eq!(tool(&reading, "t").manifest().recovery, Recovery::Safe);
}

#[test]
fn everything_can_be_declared() {
    let world = World::new();
    world.write("in.json", "{\"properties\": {\"order\": {\"type\": \"string\"}}}");
    let catalogue = world.catalogue(
        r#"
[tools."shop.refund"]
description = "Refunds an order"
effect = "irreversible"
recovery = "probe"
probe = "shop.refunded"
key_ttl = "7d"
settle = "2s"
timeout = 1500
retry = { attempts = 5, backoff = "1s", factor = 3, max_backoff = "1m" }
cost = { money_micros = 5, tokens = 6, wall_ms = 7 }
concurrency = 2
input = "in.json"
output = { type = "object", required = ["id"] }
changes = [{ type = "refund", id = "args.order", value = "result" }, { type = "hold", id = "args.order", retract = true }]
secrets = { API_KEY = { env = "SHOP_KEY" }, OTHER = { file = "key" } }

[tools."shop.refund".driver.http]
method = "POST"
url = "https://shop.example/refunds/{order}"
headers = { Authorization = "Bearer {secret:API_KEY}" }

[tools."shop.refunded"]
effect = "read"
driver.process = { command = ["true"] }
"#,
    );
    let refund = tool(&catalogue, "shop.refund");
    let manifest = refund.manifest();
    assert_eq!(manifest.recovery, Recovery::Probe);
    assert_eq!(manifest.probe, Some("shop.refunded".parse().unwrap()));
    assert_eq!((manifest.key_ttl.ms(), manifest.settle.ms()), (604_800_000, 2_000));
    assert_eq!((manifest.timeout.ms(), manifest.retry.factor.get()), (1_500, 3));
    assert_eq!((manifest.cost.calls, manifest.cost.wall_ms), (1, 7));
    assert_eq!(manifest.changes.len(), 2);
    assert_eq!(refund.manifest().concurrency.map(|most| most.get()), Some(2));
    let canonical: Value = serde_json::from_str(catalogue.canonical().as_str()).unwrap();
    let declared = &canonical["tools"]["shop.refund"];
    assert_eq!(declared["secrets"]["API_KEY"], json!({"env": "SHOP_KEY"}));
    assert_eq!(declared["input"]["additionalProperties"], json!(false));
    assert_eq!(declared["retry"]["max_backoff_ms"], json!(60_000));
    let names: Vec<&ToolName> = catalogue.iter().map(Tool::name).collect();
    assert_eq!(
        names,
        ["shop.refund", "shop.refunded"].map(|n| n.parse().unwrap()).iter().collect::<Vec<_>>()
    );
}

/// The whole message, place included.
fn check(toml: &str, expected: &str) {
    let error = World::new().try_catalogue(toml).unwrap_err().to_string();
    assert_eq!(error, expected);
}

fn check_begins(toml: &str, expected: &str) {
    let error = World::new().try_catalogue(toml).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn mistakes_are_told_with_line_and_column() {
    check_begins("[tools.t]\neffect = \"write\n", "tools.toml:2:");
    check_begins(
        "[tools.t]\ndriver.process = { command = [\"x\"] }\n",
        "tools.toml:1:1: missing field `effect`",
    );
    check_begins(
        "[tools.t]\n  effect = \"destroy\"\n",
        "tools.toml:2:12: unknown variant `destroy`",
    );
    check_begins("[tools.t]\neffect = \"read\"\n", "tools.toml:1:1: missing field `driver`");
    check_begins("[store]\npath = \"x\"\n", "tools.toml:1:2: unknown field `store`");
    check_begins(&PLAIN.replace("command", "comand"), "tools.toml:4:1: unknown field `comand`");
    let with = |line: &str| PLAIN.replace("effect", &format!("{line}\neffect"));
    check_begins(&with("colour = 1"), "tools.toml:2:1: unknown field `colour`");
    check_begins(
        &with("timeout = \"5 min\""),
        "tools.toml:2:11: `5 min` is not a length of time; write a whole number and a unit",
    );
    check_begins(&with("retry = { attempts = 0 }"), "tools.toml:2:22: ");
    check_begins(&with("retry = { tries = 2 }"), "tools.toml:2:11: unknown field `tries`");
    check_begins(
        &with("secrets = { \"1X\" = { env = \"A\" } }"),
        "tools.toml:2:13: `1X` is not the name",
    );
    check_begins(
        &with("secrets = { X = { vault = \"A\" } }"),
        "tools.toml:2:19: unknown variant `vault`",
    );
    check_begins(
        "[tools.\"a b\"]\neffect = \"read\"\n",
        "tools.toml:1:8: `a b` is not a tool name",
    );
    check_begins(
        &PLAIN.replace("process", "carrier_pigeon"),
        "tools.toml:3:17: unknown variant `carrier_pigeon`",
    );
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let with = |line: &str| PLAIN.replace("effect", &format!("{line}\neffect"));
    let tool = "tools.toml:1:8: tool `t`: ";
    check(
        &with("recovery = \"probe\""),
        &format!("{tool}`recovery = \"probe\"` needs `probe`, the name of a read-only tool"),
    );
    check(
        &with("probe = \"p\""),
        &format!("{tool}`probe` is asked only with `recovery = \"probe\"`; add that, or remove it"),
    );
    let undone = |by: &str| with(&format!("compensate = {{ tool = \"{by}\" }}"));
    check(&undone("p"), &format!("{tool}its compensation `p` is not declared"));
    check(
        &with("compensate = { tool = \"t\", args = { a = \"${input.x}\" } }"),
        &format!(
            "{tool}the arguments of its compensation: in `input.x`: unknown name `input`; it may use `args` and `result` and `key`"
        ),
    );
    let probing = with("recovery = \"probe\"\nprobe = \"p\"");
    check(&probing, &format!("{tool}its probe `p` is not declared"));
    let writing = PLAIN.replace("tools.t", "tools.p");
    check(
        &format!("{probing}{writing}"),
        &format!("{tool}its probe `p` is not read-only; a probe has `effect = \"read\"`"),
    );
    World::new().catalogue(&format!("{probing}{}", writing.replace("write", "read")));
    check(&with("cost = { calls = 0 }"), &format!("{tool}`cost.calls` is at least 1"));
    check(&with("timeout = \"0s\""), &format!("{tool}`timeout` is at least 1ms"));
    let short = "`key_ttl` is shorter than `timeout`: a call that takes that long could never be sent again; make it longer, or the tool `recovery = \"never\"`";
    for recovery in ["keyed", "keyed_concurrent"] {
        let keyed = |ttl: &str| {
            with(&format!("recovery = \"{recovery}\"\ntimeout = \"2s\"\nkey_ttl = \"{ttl}\""))
        };
        check(&keyed("1999ms"), &format!("{tool}{short}"));
        World::new().catalogue(&keyed("2s"));
    }
    World::new().catalogue(&with("timeout = \"25h\""));
    check(&with("retry = { attempts = 101 }"), &format!("{tool}`retry.attempts` is at most 100"));
    check(
        &with("changes = [{ type = \"order\", id = \"i\", value = \"v\", retract = true }]"),
        &format!(
            "{tool}a change of `order` has a `value` and `retract = true`; remove one of them"
        ),
    );
    for bad in ["preconditions = [\"sum < 5\"]", "changes = [{ type = \"order\", id = \"sum\" }]"] {
        check_begins(&with(bad), &format!("{tool}it declares a bad expression: in `sum"));
    }
    check_begins(&with("input = \"missing.json\""), &format!("{tool}cannot read the schema `"));
}

#[test]
fn one_name_is_one_tool_across_files() {
    let world = World::new();
    let builder = Catalogue::builder().process(crate::world::options());
    let builder = builder.file("a.toml", PLAIN, world.dir.path()).unwrap();
    let twice = builder.section("gesta.toml", PLAIN, world.dir.path()).unwrap().build();
    assert_eq!(
        twice.unwrap_err().to_string(),
        "gesta.toml:1:8: tool `t`: declared twice; rename one of them"
    );
}

#[test]
fn tools_may_stand_among_other_settings() {
    let world = World::new();
    let text = format!("[store]\npath = \"x\"\n\n{PLAIN}");
    let builder = Catalogue::builder().process(crate::world::options());
    let catalogue = builder.section("gesta.toml", &text, world.dir.path()).unwrap().build();
    assert_eq!(catalogue.unwrap().iter().count(), 1);
    let builder = Catalogue::builder().process(crate::world::options());
    let error = builder.section("gesta.toml", &text.replace("effect", "affect"), world.dir.path());
    let error = error.err().unwrap().to_string();
    assert!(error.starts_with("gesta.toml:5:1: unknown field `affect`"), "{error}");
}

#[test]
fn the_digest_covers_every_declaration_and_no_spelling() {
    let world = World::new();
    world.write("in.json", "{\"type\": \"object\"}");
    let digest = |toml: &str| world.catalogue(toml).digest();
    let plain = digest(PLAIN);
    let respelled = "# a comment\n[tools]\nt = { driver = { process = { command = ['true'] } }, effect = 'write', timeout = 30000 }\n";
    assert_eq!(plain, digest(respelled));
    let mut seen = vec![plain];
    for line in [
        "description = \"x\"",
        "recovery = \"safe\"",
        "timeout = \"31s\"",
        "settle = \"1s\"",
        "key_ttl = \"1h\"",
        "retry = { attempts = 4 }",
        "cost = { tokens = 1 }",
        "concurrency = 1",
        "input = \"in.json\"",
        "output = { type = \"object\" }",
        "changes = [{ type = \"a\", id = \"args.b\", retract = true }]",
        "secrets = { A = { env = \"B\" } }",
    ] {
        seen.push(digest(&PLAIN.replace("effect", &format!("{line}\neffect"))));
    }
    for (from, to) in [
        ("\"write\"", "\"external\""),
        ("[\"true\"]", "[\"false\"]"),
        ("[\"true\"]", "[\"true\"]\nmax_output = 5"),
        ("[\"true\"]", "[\"true\"]\nenv = [\"A\"]"),
        ("[\"true\"]", "[\"true\"]\nexit = { \"1\" = \"retry\" }"),
        ("tools.t", "tools.u"),
    ] {
        seen.push(digest(&PLAIN.replace(from, to)));
    }
    let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len());
    world.write("in.json", "{\"type\": \"object\", \"title\": \"x\"}");
    let changed = digest(&PLAIN.replace("effect", "input = \"in.json\"\neffect"));
    assert!(!seen.contains(&changed), "a schema file is covered by its content");
}
