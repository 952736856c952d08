//! Names in policies that Cedar cannot check, because it takes any text for a tool, a group, a role: a
//! name that nothing has is a mistake. And what Cedar allows and can never be meant: asking with `has` after
//! an argument that no tool has, and comparing the action with a group of actions.

use std::collections::BTreeSet;

use cedar_policy::{ActionConstraint, EntityUid};
use gesta_core::ids::{Principal, Tenant, ToolName};
use serde_json::Value;

use crate::arguments::{self, Field};
use crate::compile::{Read, Scope};
use crate::document::PolicyDocument;
use crate::error::Problem;
use crate::schema::{self, CALL, UNATTENDED};

/// What is wrong with the names in one policy.
pub(crate) fn check(document: &PolicyDocument, read: &Read<'_>) -> Vec<Problem> {
    let literals: BTreeSet<EntityUid> = read.policy.entity_literals().into_iter().collect();
    let mut problems: Vec<Problem> =
        literals.iter().filter_map(|literal| unknown(document, read, literal)).collect();
    let mut found = Found::default();
    match read.policy.to_json() {
        Ok(json) => found.look(&json),
        Err(error) => problems.push(read.place.problem(Some(&read.id), error.to_string())),
    }
    if let ActionConstraint::Eq(action) = read.policy.action_constraint() {
        found.equals(action.id().unescaped());
    }
    for group in found.groups {
        let written = format!("Action::\"{group}\"");
        let message = format!("`{written}` is a group of actions, and nothing is equal to it");
        let problem = read.place.of(&written).problem(Some(&read.id), message);
        problems.push(Problem { hint: Some(format!("write `action in {written}`")), ..problem });
    }
    let known: BTreeSet<String> = applicable(document, read)
        .flat_map(|(_, fields)| fields)
        .filter(|field| field.type_.is_some())
        .map(|field| field.name)
        .collect();
    for name in found.asked.difference(&known) {
        let message = format!("no tool that it can apply to has an argument `{name}`");
        let problem = read.place.of(name).problem(Some(&read.id), message);
        let hint = "`gesta policy schema` shows the arguments that policies can see".to_owned();
        problems.push(Problem { hint: Some(hint), ..problem });
    }
    problems
}

/// Tools that the head of a policy can fit, with their arguments.
fn applicable<'a>(
    document: &'a PolicyDocument,
    read: &'a Read<'_>,
) -> impl Iterator<Item = (&'a ToolName, Vec<Field>)> {
    let fits = |tool: &ToolName| {
        let scopes = [CALL, UNATTENDED].into_iter().filter_map(|q| Scope::of(q, tool).ok());
        scopes.into_iter().any(|scope| scope.admits(&read.policy))
    };
    let tools = document.tools.iter().filter(move |(tool, _)| fits(tool));
    tools.map(|(tool, shape)| (tool, arguments::fields(&shape.input)))
}

fn unknown(document: &PolicyDocument, read: &Read<'_>, literal: &EntityUid) -> Option<Problem> {
    let (type_, id) = (literal.type_name().to_string(), literal.id().unescaped().to_owned());
    let group = |group: &str| {
        document.tools.keys().any(|tool| schema::tool_groups(tool).iter().any(|g| g == group))
    };
    let (known, hint) = match type_.as_str() {
        "Tool" => (
            id.parse::<ToolName>().is_ok_and(|tool| document.tools.contains_key(&tool)),
            "`gesta tools list` shows the tools".to_owned(),
        ),
        "ToolGroup" => (
            group(&id),
            "a group is the beginning of tools' names and a star, as in `mail.*`".to_owned(),
        ),
        "Role" => (
            document.roles.contains_key(&id),
            format!("say who has it: `{id} = [\"agent:main\"]` under [policy.roles] in gesta.toml"),
        ),
        "Agent" => {
            (id.parse::<Principal>().is_ok(), "it is not the name of a principal".to_owned())
        }
        "Tenant" => (id.parse::<Tenant>().is_ok(), "it is not the name of a tenant".to_owned()),
        _ => return None,
    };
    if known {
        return None;
    }
    let written = format!("{type_}::\"{id}\"");
    let problem =
        read.place.of(&written).problem(Some(&read.id), format!("there is no `{written}`"));
    Some(Problem { hint: Some(hint), ..problem })
}

/// What Cedar passes over without a word.
#[derive(Default)]
struct Found {
    /// Arguments that are asked after: `context.args has NAME`.
    asked: BTreeSet<String>,
    /// Groups that the action is compared with: `action == Action::"call"`.
    groups: BTreeSet<String>,
}

impl Found {
    fn look(&mut self, json: &Value) {
        match json {
            Value::Array(values) => values.iter().for_each(|value| self.look(value)),
            Value::Object(object) => {
                if let Some(has) = object.get("has").filter(|has| is_args(has.get("left")))
                    && let Some(name) = has.get("attr").and_then(Value::as_str)
                {
                    self.asked.insert(name.to_owned());
                }
                for compared in ["==", "!="].iter().filter_map(|sign| object.get(*sign)) {
                    let sides = [("left", "right"), ("right", "left")];
                    for (one, other) in sides.map(|(a, b)| (compared.get(a), compared.get(b))) {
                        let id = other.and_then(|other| other.pointer("/Value/__entity/id"));
                        if is_var(one, "action")
                            && let Some(id) = id.and_then(Value::as_str)
                        {
                            self.equals(id);
                        }
                    }
                }
                object.values().for_each(|value| self.look(value));
            }
            _ => {}
        }
    }

    fn equals(&mut self, action: &str) {
        if [CALL, UNATTENDED].contains(&action) || action.starts_with("tool:") {
            self.groups.insert(action.to_owned());
        }
    }
}

fn is_var(json: Option<&Value>, name: &str) -> bool {
    json.and_then(|json| json.get("Var")).and_then(Value::as_str) == Some(name)
}

fn is_args(json: Option<&Value>) -> bool {
    let access = json.and_then(|json| json.get("."));
    let attribute = access.and_then(|access| access.get("attr")).and_then(Value::as_str);
    attribute == Some("args") && is_var(access.and_then(|access| access.get("left")), "context")
}

/// A problem that Cedar has found, and what to do about it where that can be told better.
pub(crate) fn with_hint(document: &PolicyDocument, read: &Read<'_>, problem: Problem) -> Problem {
    let mentions = |name: &str| problem.message.contains(&format!("`args.{name}`"));
    let unseen = applicable(document, read).find_map(|(tool, fields)| {
        let field = fields.into_iter().find(|field| field.type_.is_none() && mentions(&field.name));
        let field = field?;
        Some((tool.clone(), field.name, field.sensitive))
    });
    let hint = if let Some((tool, field, true)) = &unseen {
        format!(
            "`{field}` of `{tool}` is sensitive, and policies do not see sensitive arguments; decide on another argument, or unmark it"
        )
    } else if let Some((tool, field, false)) = unseen {
        format!(
            "the schema of `{tool}` gives `{field}` no type that policies can hold; a `number` needs `\"x-gesta-scale\": 100`, which shows it in hundredths"
        )
    } else if problem.message.starts_with("attribute `args.") && of_every_tool(&problem.message) {
        "arguments differ from tool to tool: name one, as in `action in Action::\"tool:NAME\"`"
            .to_owned()
    } else {
        return problem;
    };
    Problem { hint: Some(hint), ..problem }
}

fn of_every_tool(message: &str) -> bool {
    [CALL, UNATTENDED].iter().any(|action| message.contains(&format!("Action::\"{action}\"")))
}
