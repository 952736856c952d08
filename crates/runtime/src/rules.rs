//! What a tool's declaration says of the world: what must hold before a call, and what a call
//! changes. Expressions over `args`, `result` and the world, compiled when the catalogue is loaded.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::body::ConfirmationMode;
use gesta_core::document::Failing;
use gesta_core::ids::{ResourceType, ToolName};
use gesta_core::json::Canon;
use gesta_core::sensitive::Marks;
use gesta_core::world::{Change, Delta, DeltaError, ResourceRef, World};

use crate::desk::failing;
use crate::error::RunError;
use crate::job::{EvalError, Expr, ExprError, Template, evaluate_with, looks_into, test_with};
use crate::tools::{Catalogue, Manifest, Tool};

/// A tool's rules, compiled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    preconditions: Vec<Expr>,
    changes: Vec<Rule>,
    verify: Vec<VerifyRule>,
}

/// How a resource that the tool changed is verified, compiled.
#[derive(Clone, Debug)]
pub(crate) struct VerifyRule {
    type_: ResourceType,
    pub(crate) verifier: ToolName,
    pub(crate) args: Template,
    pub(crate) holds: Expr,
    pub(crate) confirm: Option<ConfirmationMode>,
}

#[derive(Clone, Debug)]
struct Rule {
    type_: ResourceType,
    id: Template,
    value: Template,
    retract: bool,
}

impl Rules {
    /// Compiles what a manifest declares.
    pub(crate) fn of(manifest: &Manifest) -> Result<Self, ExprError> {
        let marks = |schema: &Option<serde_json::Value>| {
            schema.as_ref().and_then(|schema| Marks::of(schema).ok()).unwrap_or_default()
        };
        let sensitive = (marks(&manifest.input), marks(&manifest.output));
        let closed = |expr: &Expr, whole| match looks_into(expr, &sensitive, whole) {
            None => Ok(()),
            Some(path) => Err(ExprError {
                expression: expr.source().to_owned(),
                at: 0,
                message: format!("`{path}` is sensitive: no expression can look into it"),
                hint: None,
            }),
        };
        let preconditions = manifest
            .preconditions
            .iter()
            .map(|text| {
                let expr = Expr::of(text)?;
                expr.check(&["args", "world"])?;
                closed(&expr, false)?;
                Ok(expr)
            })
            .collect::<Result<_, ExprError>>()?;
        let changes = manifest
            .changes
            .iter()
            .map(|change| {
                let template = |text: &str, whole| {
                    closed(&Expr::of(text)?, whole)?;
                    let template = Template::of(&format!("${{{text}}}").into())?;
                    template.check(&["args", "result"])?;
                    Ok::<_, ExprError>(template)
                };
                Ok(Rule {
                    type_: change.type_.clone(),
                    id: template(&change.id, false)?,
                    value: template(change.value.as_deref().unwrap_or("result"), true)?,
                    retract: change.retract,
                })
            })
            .collect::<Result<_, ExprError>>()?;
        let verify = manifest
            .verify
            .iter()
            .map(|verify| {
                Ok(VerifyRule {
                    type_: verify.type_.clone(),
                    verifier: verify.verifier.clone(),
                    args: Template::of(&verify.args)?,
                    holds: Expr::of(&verify.holds)?,
                    confirm: verify.confirm,
                })
            })
            .collect::<Result<_, ExprError>>()?;
        Ok(Self { preconditions, changes, verify })
    }

    /// Compiles what all tools of a catalogue declare.
    pub(crate) fn of_all(catalogue: &Catalogue) -> Result<BTreeMap<ToolName, Self>, RunError> {
        let compile = |tool: &Tool| match Self::of(tool.manifest()) {
            Ok(rules) => Ok((tool.name().clone(), rules)),
            Err(error) => Err(RunError::Rule { tool: tool.name().clone(), why: error.to_string() }),
        };
        catalogue.iter().map(compile).collect()
    }

    /// How a resource that the tool changed is verified, if it is.
    pub(crate) fn verify(&self, resource: &ResourceRef) -> Option<&VerifyRule> {
        self.verify.iter().find(|verify| verify.type_ == resource.type_)
    }

    /// Whether anything that the tool changes is verified.
    pub(crate) fn verifies(&self) -> bool {
        !self.verify.is_empty()
    }

    /// Whether a call looks at the world before it is made.
    pub(crate) fn looks_at_world(&self) -> bool {
        self.preconditions.iter().any(|expr| expr.references().names.contains("world"))
    }

    /// Each condition, with what became of it.
    pub(crate) fn preconditions(
        &self,
        args: &Canon,
        world: &World,
    ) -> Vec<(String, Result<bool, String>)> {
        self.preconditions
            .iter()
            .map(|expr| {
                let outcome = test_with(expr, &[("args", args)], Some(world));
                (expr.source().to_owned(), outcome.map_err(|error| error.to_string()))
            })
            .collect()
    }

    /// Whether what a call changes can be told from what it returned, whatever the world is like.
    pub(crate) fn tells(&self, args: &Canon, result: &Canon) -> Result<(), Failing> {
        let mut seen = BTreeSet::new();
        for rule in &self.changes {
            if !rule.retract {
                evaluate_with(&rule.value, &[("args", args), ("result", result)])
                    .map_err(|error| untold(&error))?;
            }
            let resource = rule.resource(args, result)?;
            if !seen.insert(resource.clone()) {
                let error = DeltaError::Twice(resource);
                return Err(failing("delta_does_not_apply", &error.to_string()));
            }
        }
        Ok(())
    }

    /// What a call changes, given what it returned and the world as it stands.
    pub(crate) fn delta(
        &self,
        args: &Canon,
        result: &Canon,
        world: &World,
    ) -> Result<Delta, Failing> {
        let mut changes = Vec::with_capacity(self.changes.len());
        for rule in &self.changes {
            let vars = [("args", args), ("result", result)];
            let resource = rule.resource(args, result)?;
            let version = world.get(&resource).map(|resource| resource.version);
            let value = || evaluate_with(&rule.value, &vars).map_err(|error| untold(&error));
            changes.extend(match (rule.retract, version) {
                (true, None) => None,
                (true, Some(expected)) => Some(Change::Retract { expected, resource }),
                (false, None) => Some(Change::Create { external: None, resource, value: value()? }),
                (false, Some(expected)) => {
                    Some(Change::Replace { expected, external: None, resource, value: value()? })
                }
            });
        }
        Ok(Delta(changes))
    }
}

impl Rule {
    /// Which resource a call changes.
    fn resource(&self, args: &Canon, result: &Canon) -> Result<ResourceRef, Failing> {
        let vars = [("args", args), ("result", result)];
        let id = evaluate_with(&self.id, &vars).map_err(|error| untold(&error))?;
        let id: String = id.read().map_err(|_| {
            failing("delta_not_computed", "the id of a changed resource is not a string")
        })?;
        Ok(ResourceRef { id: id.into(), type_: self.type_.clone() })
    }
}

fn untold(error: &EvalError) -> Failing {
    failing("delta_not_computed", &format!("what it changed cannot be told: {error}"))
}

/// What a call would change, as far as its arguments tell.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Foreseen {
    /// The resource.
    pub resource: ResourceRef,
    /// What it is now; none when there is none.
    pub now: Option<Canon>,
    /// What it would be; none when only the result will tell.
    pub then: Option<Canon>,
    /// Whether it would cease to be.
    pub retracted: bool,
}

/// What a tool demands of the world before a call, each with what became of it.
pub fn preconditions(
    manifest: &Manifest,
    args: &Canon,
    world: &World,
) -> Vec<(String, Result<bool, String>)> {
    Rules::of(manifest).unwrap_or_default().preconditions(args, world)
}

/// What a call would change in the world, as its tool declares it and its arguments tell.
pub fn foreseen(manifest: &Manifest, args: &Canon, world: &World) -> Vec<Foreseen> {
    let vars = [("args", args)];
    let foresee = |rule: Rule| {
        let id: String = evaluate_with(&rule.id, &vars).ok()?.read().ok()?;
        let resource = ResourceRef { id: id.into(), type_: rule.type_.clone() };
        let now = world.get(&resource).map(|resource| resource.value.clone());
        let then = evaluate_with(&rule.value, &vars).ok().filter(|_| !rule.retract);
        Some(Foreseen { resource, now, then, retracted: rule.retract })
    };
    let rules = Rules::of(manifest).unwrap_or_default();
    rules.changes.into_iter().filter_map(foresee).collect()
}

/// What a call that returned `result` changes in the world, as its tool declares it.
pub fn delta_of(
    manifest: &Manifest,
    args: &Canon,
    result: &Canon,
    world: &World,
) -> Result<Delta, Failing> {
    let rules = Rules::of(manifest)
        .map_err(|error| failing("delta_not_computed", &format!("a bad expression: {error}")))?;
    rules.delta(args, result, world)
}
