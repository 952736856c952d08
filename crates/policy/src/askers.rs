//! Who asks, as Cedar knows them: the same few ask for the same few tools again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cedar_policy::{Entities, Entity, EntityUid, RestrictedExpression};
use gesta_core::ids::{Principal, Tenant, ToolName};
use gesta_core::policy::Query;

use crate::compile::{PolicySet, Rules};
use crate::schema::uid;

/// How many are remembered.
const MOST: usize = 1_024;

type Key = (Principal, Tenant, ToolName);

/// Those who have asked lately.
#[derive(Default)]
pub(crate) struct Askers(Mutex<BTreeMap<Key, Arc<Asker>>>);

/// Somebody who asks for a tool.
pub(crate) struct Asker {
    pub(crate) agent: EntityUid,
    /// The asker, the tool, its actions, and everything that they are in.
    pub(crate) entities: Entities,
}

impl PolicySet {
    /// Who asks. Nothing but the document and the query bears on it.
    pub(crate) fn asker(&self, query: &Query<'_>, rules: &Rules) -> Result<Arc<Asker>, String> {
        let key = (query.principal.clone(), query.tenant.clone(), query.tool.clone());
        let mut known = self.askers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asker) = known.get(&key) {
            return Ok(Arc::clone(asker));
        }
        let asker = Arc::new(self.new_asker(query, rules)?);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, Arc::clone(&asker));
        Ok(asker)
    }

    fn new_asker(&self, query: &Query<'_>, rules: &Rules) -> Result<Asker, String> {
        let named = |type_: &str, id: &str| uid(type_, id).map_err(|error| error.to_string());
        let agent = named("Agent", query.principal.as_str())?;
        let tenant = named("Tenant", query.tenant.as_str())?;
        let roles = self.roles.get(query.principal).into_iter().flatten().cloned();
        let name = RestrictedExpression::new_string(query.principal.to_string());
        let attributes = [("name".to_owned(), name)].into_iter().collect();
        let entity = Entity::new(agent.clone(), attributes, roles.chain([tenant]).collect())
            .map_err(|error| error.to_string())?;
        let entities = rules.entities.clone().add_entities([entity], None);
        Ok(Asker { agent, entities: entities.map_err(|error| error.to_string())? })
    }
}
