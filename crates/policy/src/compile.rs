//! From a document to a set that answers: parse, read annotations, check against the schema, and sort
//! the policies by the tools they can apply to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Authorizer, Entities, Entity, EntityUid, Policy, PolicyId,
    ResourceConstraint, RestrictedExpression, ValidationMode, ValidationWarning, Validator,
};
use gesta_core::digest::Digest;
use gesta_core::ids::{Channel, Principal, ToolName};
use gesta_core::policy::Channels;
use gesta_core::writ::Effect;
use miette::Diagnostic;

use crate::annotations::{Annotations, check_id};
use crate::arguments::{self, Field};
use crate::askers::Askers;
use crate::document::{PolicyDocument, PolicyFile, ToolShape};
use crate::error::{PolicyError, Problem};
use crate::evaluate::CHANNEL;
use crate::literals;
use crate::looks::Looks;
use crate::places::Place;
use crate::schema::{self, CALL, UNATTENDED, uid};

/// A policy document, compiled: it answers, and always the same.
pub struct PolicySet {
    pub(crate) digest: Digest,
    pub(crate) authorizer: Authorizer,
    pub(crate) annotations: BTreeMap<String, Annotations>,
    pub(crate) tools: BTreeMap<ToolName, Rules>,
    /// The roles of each principal that has any.
    pub(crate) roles: BTreeMap<Principal, Vec<EntityUid>>,
    /// Whose word counts on which channel.
    channels: Channels,
    /// Who has asked for what lately.
    pub(crate) askers: Askers,
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, annotations, tools, .. } = self;
        let mut shown = f.debug_struct("PolicySet");
        shown.field("digest", digest).field("policies", &annotations.len());
        shown.field("tools", &tools.len()).finish_non_exhaustive()
    }
}

/// What bears on the calls of one tool.
pub(crate) struct Rules {
    pub(crate) effect: Effect,
    pub(crate) fields: Vec<Field>,
    pub(crate) tool: EntityUid,
    pub(crate) call: Question,
    pub(crate) unattended: Question,
    /// The tool and its actions, with everything that they are in.
    pub(crate) entities: Entities,
    /// What of the context the policies look at.
    pub(crate) looks_at: Looks,
}

/// One of the two questions about one tool.
pub(crate) struct Question {
    pub(crate) action: EntityUid,
    /// Those that can apply.
    pub(crate) policies: Arc<cedar_policy::PolicySet>,
}

/// One policy, and where it stands.
pub(crate) struct Read<'a> {
    pub(crate) id: String,
    pub(crate) policy: Policy,
    pub(crate) place: Place<'a>,
    looks_at: Looks,
    annotations: Annotations,
}

/// Whether policies that cannot apply to a tool are left out of its questions.
#[derive(Clone, Copy)]
enum Index {
    ByTool,
    #[cfg(test)]
    None,
}

impl PolicySet {
    /// Checks a document and makes it ready to answer. What is wrong is told whole, not one at a time.
    pub fn compile(document: &PolicyDocument) -> Result<Self, PolicyError> {
        Self::indexed(document, Index::ByTool)
    }

    #[cfg(test)]
    pub(crate) fn compile_unindexed(document: &PolicyDocument) -> Result<Self, PolicyError> {
        Self::indexed(document, Index::None)
    }

    /// The digest of the document.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whose word counts on which channel.
    pub fn channels(&self) -> &Channels {
        &self.channels
    }

    /// The channels that have names and that no policy asks on: mistakes, mostly.
    pub fn unasked(&self) -> impl Iterator<Item = &Channel> {
        let asks = |channel: &Channel| {
            channel.as_str() == CHANNEL
                || self.annotations.values().any(|notes| notes.channels.contains(channel))
        };
        self.channels.keys().filter(move |channel| !asks(channel))
    }

    /// How many policies there are.
    pub fn policies(&self) -> usize {
        self.annotations.len()
    }

    fn indexed(document: &PolicyDocument, index: Index) -> Result<Self, PolicyError> {
        let digest = document.digest().map_err(|error| PolicyError::whole(error.to_string()))?;
        let read = read(document)?;
        check(document, &read)?;
        enough(&document.channels, &read)?;
        let mut tools = BTreeMap::new();
        let mut shared = BTreeMap::new();
        for (name, shape) in &document.tools {
            tools.insert(name.clone(), rules(name, shape, &read, index, &mut shared)?);
        }
        let mut roles: BTreeMap<Principal, Vec<EntityUid>> = BTreeMap::new();
        for (role, members) in &document.roles {
            for member in members {
                roles.entry(member.clone()).or_default().push(uid("Role", role)?);
            }
        }
        let annotations = read.into_iter().map(|read| (read.id, read.annotations)).collect();
        let (authorizer, askers) = (Authorizer::new(), Askers::default());
        let channels = document.channels.clone();
        Ok(Self { digest, authorizer, annotations, tools, roles, channels, askers })
    }
}

/// Every policy of every file, with its id and its annotations.
fn read(document: &PolicyDocument) -> Result<Vec<Read<'_>>, PolicyError> {
    let (mut read, mut problems) = (Vec::new(), Vec::new());
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    for file in &document.policies {
        for (policy, place) in parse(file, &mut problems) {
            let Some(id) = policy.annotation("id").map(str::to_owned) else {
                let problem = place.problem(None, "a policy without an id");
                let hint = Some("write `@id(\"…\")` before it: decisions name it".to_owned());
                problems.push(Problem { hint, ..problem });
                continue;
            };
            let here = place.of("@id");
            if let Err(why) = check_id(&id) {
                problems.push(here.problem(None, why));
                continue;
            }
            if let Some(other) = ids.insert(id.clone(), file.name.clone()) {
                let message = format!("the id is taken by another policy in {other}");
                problems.push(here.problem(Some(&id), message));
                continue;
            }
            match Annotations::read(policy.annotations(), &document.tools) {
                Ok(annotations) => {
                    let policy = policy.new_id(PolicyId::new(&id));
                    let looks_at = Looks::of(&policy);
                    read.push(Read { id, policy, place, looks_at, annotations });
                }
                Err(wrong) => problems.extend(wrong.into_iter().map(|(name, why)| {
                    let here = place.of(&format!("@{name}"));
                    here.problem(Some(&id), format!("`@{name}`: {why}"))
                })),
            }
        }
    }
    PolicyError::check(problems)?;
    Ok(read)
}

/// The policies of a file in the order in which they stand there.
fn parse<'a>(file: &'a PolicyFile, problems: &mut Vec<Problem>) -> Vec<(Policy, Place<'a>)> {
    let start = Place { file, offset: 0 };
    let parsed: cedar_policy::PolicySet = match file.text.parse() {
        Ok(parsed) => parsed,
        Err(errors) => {
            let errors: cedar_policy::ParseErrors = errors;
            let of =
                |error: &cedar_policy::ParseError| start.diagnosed(None, error.to_string(), error);
            problems.extend(errors.iter().map(of));
            return Vec::new();
        }
    };
    for template in parsed.templates() {
        let message = "a template: nothing here fills its slots";
        let place = start.of(&template.to_cedar());
        problems.push(place.problem(None, message));
    }
    let number = |policy: &Policy| {
        policy.id().to_string().trim_start_matches("policy").parse::<usize>().unwrap_or(usize::MAX)
    };
    let mut policies: Vec<Policy> = parsed.policies().cloned().collect();
    policies.sort_by_key(number);
    let mut placed = Vec::with_capacity(policies.len());
    let mut from = start;
    for policy in policies {
        let text = policy.to_cedar().unwrap_or_default();
        let place = from.of(&text);
        from = Place { offset: place.offset + text.len(), ..place };
        placed.push((policy, place));
    }
    placed
}

/// Checks policies against the schema, and the names in them against the document.
fn check(document: &PolicyDocument, read: &[Read<'_>]) -> Result<(), PolicyError> {
    let schema = schema::build(document)?;
    let every = |read: &Read<'_>| read.policy.clone();
    let every = cedar_policy::PolicySet::from_policies(read.iter().map(every))
        .map_err(|error| PolicyError::whole(error.to_string()))?;
    let validated = Validator::new(schema).validate(&every, ValidationMode::Strict);
    let found = |id: &PolicyId| {
        let id: &str = id.as_ref();
        read.iter().find(|read| read.id == id)
    };
    // One problem a place, whatever order Cedar finds them in: what is wrong for one tool is mostly
    // wrong for all.
    let mut problems: BTreeMap<(&str, u32, u32), Problem> = BTreeMap::new();
    for error in validated.validation_errors() {
        let Some(read) = found(error.policy_id()) else { continue };
        let problem = literals::with_hint(document, read, told(read, error));
        let place = (read.id.as_str(), problem.line, problem.column);
        if problems.get(&place).is_none_or(|other| problem < *other) {
            problems.insert(place, problem);
        }
    }
    for read in read {
        for problem in literals::check(document, read) {
            problems.entry((&read.id, problem.line, problem.column)).or_insert(problem);
        }
    }
    let wrong: BTreeSet<&str> = problems.keys().map(|(id, _, _)| *id).collect();
    for warning in validated.validation_warnings() {
        // Letters of several scripts in a text that is compared are nothing wrong.
        let harmless = matches!(warning, ValidationWarning::MixedScriptString(_));
        let Some(read) = found(warning.policy_id()) else { continue };
        // That it applies to nothing follows from what is wrong with it.
        if !harmless && !wrong.contains(read.id.as_str()) {
            problems.insert((&read.id, 0, 0), told(read, warning));
        }
    }
    PolicyError::check(problems.into_values().collect())
}

/// Whether enough people are heard where a policy asks.
fn enough(channels: &Channels, read: &[Read<'_>]) -> Result<(), PolicyError> {
    let mut problems = Vec::new();
    for read in read {
        let Annotations { channels: asked, quorum, .. } = &read.annotations;
        let names: Option<Vec<_>> = asked.iter().map(|channel| channels.get(channel)).collect();
        let Some(names) = names.filter(|names| !names.is_empty()) else { continue };
        let (names, quorum) =
            (names.into_iter().flatten().collect::<BTreeSet<_>>().len(), quorum.unwrap_or(1));
        if (names as u64) < quorum {
            let message =
                format!("`@channel`: {quorum} must agree, and {names} are bound to what it names");
            let hint = Some("[policy.channels] in gesta.toml binds names to channels".to_owned());
            let problem = read.place.of("@channel").problem(Some(&read.id), message);
            problems.push(Problem { hint, ..problem });
        }
    }
    PolicyError::check(problems)
}

/// What Cedar finds wrong with a policy, without saying again which.
fn told<D: Diagnostic>(read: &Read<'_>, diagnostic: &D) -> Problem {
    let plain = |text: &str| {
        let prefixes = [", ", ": "].map(|mark| format!("for policy `{}`{mark}", read.id));
        let rest = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix.as_str()));
        rest.unwrap_or(text).to_owned()
    };
    let message = plain(&diagnostic.to_string());
    let problem = read.place.diagnosed(Some(&read.id), message, diagnostic);
    Problem { hint: problem.hint.as_deref().map(plain), ..problem }
}

type Shared = BTreeMap<Vec<usize>, Arc<cedar_policy::PolicySet>>;

fn rules(
    name: &ToolName,
    shape: &ToolShape,
    read: &[Read<'_>],
    index: Index,
    shared: &mut Shared,
) -> Result<Rules, PolicyError> {
    let mut looks_at = match index {
        Index::ByTool => Looks::default(),
        #[cfg(test)]
        Index::None => Looks::AtAll,
    };
    let mut question = |question: &str| -> Result<(Question, Entity), PolicyError> {
        let scope = Scope::of(question, name)?;
        let applies = |read: &Read<'_>| match index {
            Index::ByTool => scope.admits(&read.policy),
            #[cfg(test)]
            Index::None => true,
        };
        let chosen: Vec<usize> =
            (0..).zip(read).filter(|(_, read)| applies(read)).map(|(at, _)| at).collect();
        chosen.iter().filter_map(|at| read.get(*at)).for_each(|read| looks_at.join(&read.looks_at));
        let policies = match shared.get(&chosen) {
            Some(policies) => Arc::clone(policies),
            None => {
                let some = chosen.iter().filter_map(|at| read.get(*at)).map(|r| r.policy.clone());
                let some = cedar_policy::PolicySet::from_policies(some)
                    .map_err(|error| PolicyError::whole(error.to_string()))?;
                Arc::clone(shared.entry(chosen).or_insert(Arc::new(some)))
            }
        };
        let entity =
            Entity::new_no_attrs(scope.action.clone(), scope.action_groups.into_iter().collect());
        Ok((Question { action: scope.action, policies }, entity))
    };
    let (call, call_entity) = question(CALL)?;
    let (unattended, unattended_entity) = question(UNATTENDED)?;
    let entities = [tool_entity(name, shape)?, call_entity, unattended_entity];
    let entities = Entities::from_entities(entities, None)
        .map_err(|error| PolicyError::whole(error.to_string()))?;
    Ok(Rules {
        effect: shape.effect,
        fields: arguments::fields(&shape.input),
        tool: uid("Tool", name.as_str())?,
        call,
        unattended,
        entities,
        looks_at,
    })
}

fn tool_entity(name: &ToolName, shape: &ToolShape) -> Result<Entity, PolicyError> {
    let effect = uid("Effect", &shape.effect.to_string())?;
    let attributes = [
        ("name", RestrictedExpression::new_string(name.to_string())),
        ("effect", RestrictedExpression::new_entity_uid(effect)),
        ("level", RestrictedExpression::new_long(schema::level(shape.effect))),
    ];
    let risk = shape.risk.map(|risk| ("risk", RestrictedExpression::new_long(risk.into())));
    let attributes = attributes.into_iter().chain(risk);
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value)).collect();
    let groups = named("ToolGroup", &schema::tool_groups(name))?.into_iter().collect();
    Entity::new(uid("Tool", name.as_str())?, attributes, groups)
        .map_err(|error| PolicyError::whole(error.to_string()))
}

fn named(type_: &str, ids: &[String]) -> Result<Vec<EntityUid>, PolicyError> {
    ids.iter().map(|id| uid(type_, id)).collect()
}

/// One question about one tool, and everything that it is in.
pub(crate) struct Scope {
    action: EntityUid,
    action_groups: Vec<EntityUid>,
    tool: EntityUid,
    tool_groups: Vec<EntityUid>,
}

impl Scope {
    pub(crate) fn of(question: &str, tool: &ToolName) -> Result<Self, PolicyError> {
        let action_groups = schema::action_groups(question, tool);
        let tool_groups = schema::tool_groups(tool);
        Ok(Self {
            action: uid("Action", &schema::action_of(question, tool))?,
            action_groups: named("Action", &action_groups)?,
            tool: uid("Tool", tool.as_str())?,
            tool_groups: named("ToolGroup", &tool_groups)?,
        })
    }

    /// Whether the head of a policy can fit. Whatever is not sure to miss is let through: Cedar decides.
    pub(crate) fn admits(&self, policy: &Policy) -> bool {
        let within = |uid: &EntityUid| *uid == self.action || self.action_groups.contains(uid);
        let action = match policy.action_constraint() {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(uid) => uid == self.action,
            ActionConstraint::In(uids) => uids.iter().any(within),
        };
        let within = |uid: &EntityUid| *uid == self.tool || self.tool_groups.contains(uid);
        action
            && match policy.resource_constraint() {
                ResourceConstraint::Any | ResourceConstraint::Is(_) => true,
                ResourceConstraint::Eq(uid) => uid == self.tool,
                ResourceConstraint::In(uid) | ResourceConstraint::IsIn(_, uid) => within(&uid),
            }
    }
}
