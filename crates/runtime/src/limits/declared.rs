//! What workers take limits to be. Each says so with its heartbeats; each asks what the others have said.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, MutexGuard, PoisonError};

use gesta_core::ids::{Tenant, ToolName};

use super::Rations;
use crate::desk::{Event, Shared};
use crate::options::Options;
use crate::tools::Catalogue;

/// The name of a tool's limit,
pub(super) fn of_tool(tool: &ToolName) -> String {
    format!("tool {tool}")
}

/// and of a tenant's.
pub(super) fn of_tenant(tenant: &Tenant) -> String {
    format!("tenant {tenant}")
}

/// What these settings say.
pub(crate) fn declared(catalogue: &Catalogue, options: &Options) -> BTreeMap<String, NonZeroU32> {
    let tools = catalogue
        .iter()
        .filter_map(|tool| Some((of_tool(tool.name()), tool.manifest().concurrency?)));
    let tenants = options.tenant_calls.iter().map(|(tenant, limit)| (of_tenant(tenant), *limit));
    tools.chain(tenants).collect()
}

/// Learns what live workers have declared, and tells of what binds this one although its own settings
/// say otherwise. What cannot be learnt now is learnt with the next heartbeat; shares are given by what
/// the store knows.
pub(crate) async fn learn(shared: &Shared) {
    let found = match shared.store.limits().await {
        Ok(found) => found,
        Err(error) => return tracing::warn!(%error, "the limits of other workers cannot be had"),
    };
    let before = std::mem::replace(&mut *shared.limits.told(), found.clone());
    if before == found {
        return;
    }
    let own = declared(&shared.catalogue, &shared.options);
    shared.limits.rebind(&own);
    let concerns = |scope: &str| {
        let mut tools = shared.catalogue.iter().map(|tool| of_tool(tool.name()));
        !scope.starts_with("tool ") || tools.any(|tool| tool == scope)
    };
    for (scope, limit) in found.iter().filter(|(scope, limit)| before.get(*scope) != Some(*limit)) {
        let says = match own.get(scope) {
            Some(own) if own <= limit => continue,
            Some(own) => format!("this one {own}"),
            None if !concerns(scope) => continue,
            None => "this one none".to_owned(),
        };
        let note = format!(
            "limit of {scope}: another worker declares {limit} at once, {says}; {limit} holds for all"
        );
        shared.tell(|| Event::Note(note));
    }
    shared.freed.notify_waiters();
}

/// Learns it again, as often as workers say it.
pub(crate) async fn follow(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(shared.options.beat()).await;
        learn(&shared).await;
    }
}

impl Rations {
    fn told(&self) -> MutexGuard<'_, BTreeMap<String, NonZeroU32>> {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit that binds a call, if any does: the smallest of what these settings and those of other
    /// live workers say.
    pub(super) fn binding(&self, own: Option<NonZeroU32>, scope: &str) -> Option<NonZeroU32> {
        own.into_iter().chain(self.told().get(scope).copied()).min()
    }

    /// Has what is under way count towards what was heard of now, whether or not another call comes.
    fn rebind(&self, own: &BTreeMap<String, NonZeroU32>) {
        // Looked up while it is locked, as calls do: none of them comes in between.
        let mut scopes = self.scopes();
        for (name, scope) in scopes.iter_mut().filter(|(_, scope)| scope.ahead.is_none()) {
            scope.bind(self.binding(own.get(name).copied(), name));
        }
        self.asked.notify_one();
    }
}
