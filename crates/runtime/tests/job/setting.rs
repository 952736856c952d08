//! A small shop's tools, and scopes to evaluate expressions in.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use gesta_core::digest::{Digest, Seed};
use gesta_core::document::Recovery;
use gesta_core::ids::StepId;
use gesta_core::json::Canon;
use gesta_core::time::UnixMs;
use gesta_core::world::{Change, Delta, ResourceRef, World};
use gesta_core::writ::Effect;
use gesta_runtime::job::{Compiled, EvalError, Results, Scope, StepResult, Template, load};
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
use serde_json::{Value, json};

/// The tools that the job files of these tests call.
pub(crate) fn tools() -> &'static Catalogue {
    static MADE: OnceLock<Catalogue> = OnceLock::new();
    MADE.get_or_init(make_tools)
}

fn make_tools() -> Catalogue {
    let mut builder = Catalogue::builder();
    let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required });
    let order = object(json!({ "id": { "type": "string" } }), json!(["id"]));
    let refund = object(
        json!({
            "order": { "type": "string", "minLength": 3 },
            "cents": { "type": "integer", "minimum": 1 },
            "reason": { "enum": ["late", "broken"] },
            "note": { "type": "object", "properties": { "text": { "type": "string" } }, "additionalProperties": false },
            "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 2 },
        }),
        json!(["order", "cents"]),
    );
    let mail =
        object(json!({ "to": { "type": "string" }, "body": { "type": "string" } }), json!(["to"]));
    let price = json!({
        "type": "object",
        "properties": { "kind": { "type": "string" }, "amount": { "type": ["integer", "null"] } },
        "if": { "properties": { "kind": { "const": "fixed" } } },
        "then": { "required": ["amount"], "properties": { "amount": { "minimum": 10 } } },
    });
    let measure = json!({
        "type": "object",
        "properties": { "amount": { "type": ["integer", "null"] }, "unit": { "type": "string" } },
        "if": { "properties": { "amount": { "type": "integer" } } },
        "then": { "required": ["unit"] },
    });
    for (name, effect, recovery, schema) in [
        ("orders.read", Effect::Read, Recovery::Safe, Some(order)),
        ("payments.refund", Effect::Irreversible, Recovery::Keyed, Some(refund)),
        ("mail.send", Effect::External, Recovery::Never, Some(mail)),
        ("measure", Effect::Read, Recovery::Safe, Some(measure)),
        ("price.set", Effect::Write, Recovery::Keyed, Some(price)),
        (
            "any",
            Effect::Read,
            Recovery::Safe,
            Some(json!({ "type": "object", "additionalProperties": true })),
        ),
    ] {
        let mut manifest = Manifest::new(name.parse().unwrap(), effect);
        manifest.recovery = recovery;
        manifest.input = schema;
        builder = builder.function(manifest, |_: FunctionCall| async {
            Ok::<Value, FunctionError>(Value::Null)
        });
    }
    builder.build().unwrap()
}

/// Compiles a job file that is all right.
pub(crate) fn compiled(text: &str) -> Compiled {
    load("job.yaml", text, tools()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Everything that is wrong with a job file, as a person would see it.
pub(crate) fn refused(text: &str) -> String {
    load("job.yaml", text, tools()).unwrap_err().to_string()
}

pub(crate) fn canon(value: &Value) -> Canon {
    Canon::of(value).unwrap()
}

/// What expressions can see, with nothing in it at first.
pub(crate) struct Setting {
    pub(crate) input: Value,
    pub(crate) results: BTreeMap<StepId, StepResult>,
    pub(crate) world: World,
    pub(crate) seed: Seed,
    pub(crate) item: Option<(u64, Value)>,
}

impl Results for BTreeMapOf<'_> {
    fn result(&self, step: &StepId) -> Option<StepResult> {
        self.0.get(step).cloned()
    }
}

struct BTreeMapOf<'a>(&'a BTreeMap<StepId, StepResult>);

pub(crate) const NOW: UnixMs = UnixMs(1_794_787_200_000);

impl Setting {
    pub(crate) fn new() -> Self {
        Self {
            input: json!({}),
            results: BTreeMap::new(),
            world: World::default(),
            seed: Seed::new(Digest::of(b"a step")),
            item: None,
        }
    }

    pub(crate) fn result(mut self, step: &str, value: &Value) -> Self {
        self.results
            .insert(step.parse().unwrap(), StepResult { value: canon(value), skipped: false });
        self
    }

    pub(crate) fn skipped(mut self, step: &str) -> Self {
        self.results
            .insert(step.parse().unwrap(), StepResult { value: Canon::null(), skipped: true });
        self
    }

    pub(crate) fn resource(mut self, type_: &str, id: &str, value: &Value) -> Self {
        let resource = ResourceRef { id: id.into(), type_: type_.parse().unwrap() };
        let create = Change::Create { external: None, resource, value: canon(value) };
        self.world.apply(&Delta(vec![create])).unwrap();
        self
    }

    /// Calls with the scope.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Scope<'_>) -> T) -> T {
        let input = canon(&self.input);
        let results = BTreeMapOf(&self.results);
        f(&Scope {
            input: &input,
            results: &results,
            world: &self.world,
            now: NOW,
            seed: self.seed,
            item: self.item.as_ref().map(|(index, item)| (*index, item)),
        })
    }

    pub(crate) fn resolve(&self, template: &Value) -> Result<Canon, EvalError> {
        let template = Template::of(template)
            .map_err(|error| EvalError { expression: error.expression, message: error.message })?;
        self.with(|scope| template.resolve(scope))
    }

    /// What an expression comes to, as JSON.
    pub(crate) fn value(&self, expression: &str) -> String {
        match self.resolve(&json!(format!("${{{expression}}}"))) {
            Ok(value) => value.to_string(),
            Err(error) => format!("error: {}", error.message),
        }
    }
}
