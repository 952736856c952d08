//! Whether the outside still agrees with what a trajectory did: its verifiers are asked now. Nothing is
//! appended, and nothing outside is changed.

use std::sync::Arc;

use gesta_core::body::Check;
use gesta_core::content::Content;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_store::{Chain, StoreError};

use crate::desk::{Desk, OUTPUT_LIMITS, Shared};
use crate::error::RunError;
use crate::facts::Facts;
use crate::home::Home;
use crate::in_force::InForce;
use crate::rules::Rules;
use crate::vault::Held;
use crate::verify::{self, Question};

/// Looks at everything that a trajectory has changed and that this place's tools say how to look at.
pub async fn confirm(home: &Home, trajectory: TrajectoryId) -> Result<Vec<Check>, RunError> {
    let chain = Chain::<Facts>::follow(Arc::clone(&home.store), trajectory).await?;
    let mandate = chain.view().mandate().ok_or(RunError::NotBegun)?;
    let rules = Arc::new(Rules::of_all(&home.catalogue)?);
    let registry = match home.store.trajectory(home.registry).await? {
        Some(_) => Some(Chain::load(Arc::clone(&home.store), home.registry).await?.state().clone()),
        None => None,
    };
    let config = home.options.digest()?;
    let in_force = InForce::read(&*home.store, registry.as_ref(), &home.catalogue, config).await?;
    let in_force = Arc::new(in_force);
    let key = mandate.writs.first().ok_or(RunError::NotBegun)?.doc().key;
    let tools = (Arc::clone(&home.catalogue), Arc::clone(&rules));
    let told = (Arc::clone(&in_force), home.options.clone());
    let store = Arc::clone(&home.store);
    let worker = "replay".parse().map_err(|_| RunError::WorkerName("replay".to_owned()))?;
    let shared = Shared::of_record(store, worker, key, tools, told);
    if let Ok(mut known) = shared.registry.write() {
        *known = registry.map(Arc::new);
    }
    let claimed = (0, chain.state().attempt(), in_force);
    let desk = Arc::new(Desk::new(Arc::new(shared), claimed, chain.state(), mandate));
    // A verifier compares with what was sent, so it takes the data key; without it nothing can be told.
    if let (true, Some(vault)) = (chain.view().sensitive(), &home.vault)
        && let Held::Safe(safe) = vault.held(vault.family(trajectory).await?).await?
    {
        desk.take_safe(safe);
    }
    let mut checks = Vec::new();
    for (resource, changed) in chain.view().changed() {
        let rule = rules.get(&changed.proposal.tool).and_then(|rules| rules.verify(resource));
        let Some(rule) = rule.cloned() else { continue };
        let result = match &changed.result {
            Content::Inline(value) => value.clone(),
            Content::Blob(blob) => {
                let missing = || StoreError::Damaged { what: format!("the blob {}", blob.sha256) };
                let bytes = home.store.blob(blob.sha256).await?.ok_or_else(missing)?;
                Canon::parse_within(&bytes, OUTPUT_LIMITS)?
            }
        };
        let generation = chain.state().step(&changed.step).map_or(1, |step| step.generation);
        let (resource, changed) = (resource.clone(), Arc::clone(changed));
        let question = Question { resource, changed, rule, result, patient: false };
        checks.push(verify::look(Arc::clone(&desk), question, generation).await);
    }
    Ok(checks)
}
