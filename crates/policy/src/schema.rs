//! The Cedar schema of a policy document: who asks, what for, and in which context. Fixed, but for the
//! tools: each has actions of its own, so that its arguments have types of their own.

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema, SchemaFragment};
use gesta_core::ids::ToolName;
use gesta_core::writ::Effect;
use serde_json::{Map, Value, json};

use crate::arguments::{self, Field};
use crate::document::{PolicyDocument, ToolShape};
use crate::error::PolicyError;

/// May it be called?
pub(crate) const CALL: &str = "call";
/// May it be called without asking anybody?
pub(crate) const UNATTENDED: &str = "call_unattended";
/// Both questions about one tool.
const TOOL: &str = "tool";

/// The action of one question about one tool. No two are alike: what stands before the first `:` is
/// fixed, and a name without one is none of a tool's.
pub(crate) fn action_of(question: &str, tool: &ToolName) -> String {
    format!("{question}:{tool}")
}

/// The groups of actions that a question about a tool belongs to.
pub(crate) fn action_groups(question: &str, tool: &ToolName) -> [String; 2] {
    [question.to_owned(), action_of(TOOL, tool)]
}

/// The groups that a tool belongs to, spelled as a writ spells them: `mail.*` for `mail.send`.
pub(crate) fn tool_groups(tool: &ToolName) -> Vec<String> {
    let name = tool.as_str();
    let ends = name.char_indices().filter(|(_, c)| ".:/".contains(*c)).map(|(at, _)| at + 1);
    ends.filter_map(|end| Some(format!("{}*", name.get(..end).filter(|_| end < name.len())?)))
        .collect()
}

/// How far an effect reaches, as a number that policies compare.
pub(crate) fn level(effect: Effect) -> i64 {
    match effect {
        Effect::Read => 0,
        Effect::Write => 1,
        Effect::External => 2,
        Effect::Irreversible => 3,
    }
}

/// The name of one thing of a type. Cedar parses the type: not for every question.
pub(crate) fn uid(type_: &str, id: &str) -> Result<EntityUid, PolicyError> {
    let name: EntityTypeName =
        type_.parse().map_err(|error| PolicyError::whole(format!("{error}")))?;
    Ok(EntityUid::from_type_name_and_id(name, EntityId::new(id)))
}

/// The schema, to check policies against.
pub(crate) fn build(document: &PolicyDocument) -> Result<Schema, PolicyError> {
    Schema::from_json_value(json(document)).map_err(|error| PolicyError::whole(error.to_string()))
}

/// The schema, to be read.
pub(crate) fn text(document: &PolicyDocument) -> Result<String, PolicyError> {
    let fragment = SchemaFragment::from_json_value(json(document));
    let fragment = fragment.map_err(|error| PolicyError::whole(error.to_string()))?;
    fragment.to_cedarschema().map_err(|error| PolicyError::whole(error.to_string()))
}

fn json(document: &PolicyDocument) -> Value {
    json!({ "": {
        "commonTypes": common_types(),
        "entityTypes": entity_types(),
        "actions": actions(document),
    }})
}

/// A type by its name, as people would write it.
pub(crate) fn named(name: &str) -> Value {
    json!({ "type": "EntityOrCommon", "name": name })
}

fn record<const N: usize>(attributes: [(&str, Value); N]) -> Value {
    let attributes: Map<String, Value> =
        attributes.into_iter().map(|(name, type_)| (name.to_owned(), type_)).collect();
    json!({ "type": "Record", "attributes": attributes })
}

fn common_types() -> Value {
    let long = || named("Long");
    let maybe = || json!({ "type": "EntityOrCommon", "name": "Long", "required": false });
    let texts = || json!({ "type": "Set", "element": named("String") });
    json!({
        "Spent": record([("calls", long()), ("money_micros", long()), ("tokens", long()), ("wall_ms", long())]),
        "Left": record([("calls", maybe()), ("money_micros", maybe()), ("tokens", maybe()), ("wall_ms", maybe())]),
        "Now": record([("ms", long()), ("hour", long()), ("minute", long()), ("weekday", long())]),
        "Approvals": record([("by", texts()), ("count", long())]),
    })
}

fn entity_types() -> Value {
    let effects = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
    let (text, long) = (named("String"), named("Long"));
    json!({
        "Agent": { "memberOfTypes": ["Role", "Tenant"], "shape": record([("name", text.clone())]) },
        "Role": {},
        "Tenant": {},
        "Effect": { "enum": effects.map(|effect| effect.to_string()) },
        "Tool": { "memberOfTypes": ["ToolGroup"], "shape": record([
            ("name", text),
            ("effect", named("Effect")),
            ("level", long),
            ("risk", json!({ "type": "EntityOrCommon", "name": "Long", "required": false })),
        ]) },
        "ToolGroup": {},
    })
}

fn actions(document: &PolicyDocument) -> Value {
    let mut actions = Map::new();
    for question in [CALL, UNATTENDED] {
        // What holds of every tool; it has no argument in common.
        actions.insert(question.to_owned(), json!({ "appliesTo": applies_to(&[]) }));
    }
    for (tool, ToolShape { input, .. }) in &document.tools {
        let fields = arguments::fields(input);
        actions.insert(action_of(TOOL, tool), json!({}));
        for question in [CALL, UNATTENDED] {
            let groups = action_groups(question, tool).map(|id| json!({ "id": id }));
            let action = json!({ "memberOf": groups, "appliesTo": applies_to(&fields) });
            actions.insert(action_of(question, tool), action);
        }
    }
    Value::Object(actions)
}

fn applies_to(fields: &[Field]) -> Value {
    let context = record([
        ("args", arguments::record_type(fields)),
        ("now", named("Now")),
        ("tries", named("Long")),
        ("spent", named("Spent")),
        ("left", named("Left")),
        ("approvals", named("Approvals")),
        ("evidence", json!({ "type": "Set", "element": named("String") })),
    ]);
    json!({ "principalTypes": ["Agent"], "resourceTypes": ["Tool"], "context": context })
}
