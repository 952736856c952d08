//! What people and servers write: job files, expressions, policies, MCP messages.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use gesta_core::digest::{Digest, Seed};
use gesta_core::ids::StepId;
use gesta_core::json::Canon;
use gesta_core::sample::Dice;
use gesta_core::time::UnixMs;
use gesta_core::world::World;
use gesta_core::writ::Effect;
use gesta_policy::{PolicyDocument, PolicyFile, PolicySet, ToolShape};
use gesta_runtime::job::{Results, Scope, StepResult, Template, load};
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest, fuzzed};
use serde_json::{Value, json};

fn tools() -> &'static Catalogue {
    static MADE: OnceLock<Catalogue> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut builder = Catalogue::builder();
        for name in ["orders.read", "payments.refund", "mail.send"] {
            let mut manifest = Manifest::new(name.parse().unwrap(), Effect::External);
            manifest.input = Some(json!({ "type": "object", "properties": { "to": { "type": "string" }, "n": { "type": "integer" } } }));
            builder = builder.function(manifest, |_: FunctionCall| async {
                Ok::<Value, FunctionError>(Value::Null)
            });
        }
        builder.build().unwrap()
    })
}

/// Job files: the same text gives the same plan, byte for byte, or problems that can be shown.
pub(crate) fn jobs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match load("job.yaml", text, tools()) {
        Ok(compiled) => {
            let again = load("job.yaml", text, tools()).expect("it was read before");
            assert_eq!(compiled.plan, again.plan);
            Canon::of(&compiled.plan).expect("a plan can be written");
        }
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
}

struct Done(BTreeMap<StepId, StepResult>);

impl Results for Done {
    fn result(&self, step: &StepId) -> Option<StepResult> {
        self.0.get(step).cloned()
    }
}

/// Expressions: bounded, without a panic, and always to the same.
pub(crate) fn expressions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let template = match text.contains("${") {
        true => Template::of(&json!(text)),
        false => Template::of(&json!(format!("${{{text}}}"))),
    };
    let Ok(template) = template else { return };
    let input = Canon::of(&json!({
        "n": 7, "big": 9_007_199_254_740_991_i64, "x": 2.5, "s": "héllo", "t": "", "flag": true,
        "none": null, "ns": [3, 1, 2], "ss": ["b", "a"], "o": { "a": 1, "b": { "c": [1, 2] } },
    }));
    let input = input.unwrap();
    let value = Canon::of(&json!({ "ok": true, "list": [1, "two", 3.5] })).unwrap();
    let done = ("order".parse().unwrap(), StepResult { value, skipped: false });
    let results = Done([done].into());
    let world = World::default();
    let evaluate = || {
        template.resolve(&Scope {
            input: &input,
            results: &results,
            world: &world,
            now: UnixMs(1_794_787_200_000),
            seed: Seed::new(Digest::of(b"a step")),
            item: None,
        })
    };
    assert_eq!(evaluate(), evaluate());
}

/// Policy documents, and texts in the language of policies.
pub(crate) fn policies(data: &[u8]) {
    if let Ok(document) = PolicyDocument::parse(data) {
        assert_eq!(document.canonical().unwrap().as_bytes(), data, "a document has one form");
        let _ = PolicySet::compile(&document);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let input = json!({ "type": "object", "properties": { "cents": { "type": "integer" } } });
    let shape = ToolShape { effect: Effect::External, input, risk: Some(7) };
    let shapes = [("payments.refund".parse().unwrap(), shape)].into();
    let file = PolicyFile { name: "policy.cedar".to_owned(), text: text.to_owned() };
    let document = PolicyDocument::new(vec![file], BTreeMap::new(), shapes);
    match PolicySet::compile(&document) {
        Ok(set) => assert_eq!(set.digest(), document.digest().unwrap()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What MCP servers send: events however they are cut, lists of tools, greetings.
pub(crate) fn mcp(data: &[u8]) {
    let whole = fuzzed::events(&[data], 1 << 16);
    let at = Dice::new(data.len() as u64).below(data.len() as u64 + 1);
    let (left, right) = data.split_at(usize::try_from(at).unwrap());
    assert_eq!(whole, fuzzed::events(&[left, right], 1 << 16), "cut at {at}");
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(tools) = fuzzed::tools(text) {
        for (_, raw) in tools {
            assert!(text.contains(&raw), "a tool is kept as it was written");
        }
    }
    let identity = fuzzed::identity(text);
    assert!(identity == "null" || text.contains(&identity));
}
