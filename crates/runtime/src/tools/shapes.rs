//! What policies know of the tools of a catalogue.

use std::collections::BTreeMap;

use gesta_core::ids::ToolName;
use gesta_core::json::JsonError;
use gesta_core::writ::Effect;
use gesta_policy::ToolShape;
use serde_json::json;

use super::catalogue::Catalogue;

impl Catalogue {
    /// The shape of every tool: effect, risk, and the schema of its arguments as it is enforced. Handing a
    /// task to a child has one too, for each effect that a child may have.
    pub fn shapes(&self) -> Result<BTreeMap<ToolName, ToolShape>, JsonError> {
        let shape = |tool: &super::tool::Tool| {
            let manifest = tool.manifest();
            let input = tool.input_schema().read()?;
            let shape = ToolShape { effect: manifest.effect, input, risk: manifest.risk };
            Ok((tool.name().clone(), shape))
        };
        let effects = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
        self.iter().map(shape).chain(effects.map(|effect| Ok(delegation(effect)))).collect()
    }
}

/// What policies see of handing a task to a child. What the child is given has no type in common.
fn delegation(effect: Effect) -> (ToolName, ToolShape) {
    let limit = || json!({ "type": "integer" });
    let input = json!({
        "type": "object",
        "properties": {
            "budget": { "type": "object", "properties": {
                "calls": limit(), "money_micros": limit(), "tokens": limit(), "wall_ms": limit(),
            } },
            "depth": { "type": "integer" },
            "effect": { "type": "string" },
            "input": { "type": "object" },
            "job": { "type": "string" },
            "plan": { "type": "string" },
            "principal": { "type": "string" },
            "tools": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["budget", "depth", "effect", "input", "job", "plan", "principal", "tools"],
    });
    (ToolName::of_delegation(effect), ToolShape { effect, input, risk: None })
}
