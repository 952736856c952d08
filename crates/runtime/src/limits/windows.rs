//! How fast a principal may call, across workers. So many calls in such a time are so many places, each
//! taken for as long as the window is wide: a limit on calls under way, but for how long one counts. So
//! windows are rationed like those, under a name that no other process has: what one that died had
//! started counts until it has left the window.
//!
//! Some places are held ahead, so that a call does not wait for the store; while the store has less than
//! is asked for, none are. A window is full when this process alone has filled it, or when the store has
//! refused another place for so long that everybody has given back what was held ahead.

use std::sync::Arc;
use std::time::Duration;

use gesta_core::ids::{Principal, WorkerId};
use gesta_core::temporal::{Pace, Rule, Whose};
use gesta_core::time::UnixMs;
use gesta_store::Ration;
use tokio::time::Instant;

use super::{Busy, HOLDING, Rations, Scope, holder};
use crate::desk::Shared;
use crate::error::RunError;
use crate::home;

/// For how long places that are held ahead may be relied on without asking again.
pub(super) const HELD_MS: u64 = 2_000;
/// A worker holds this part of a window ahead.
const AHEAD: u32 = 16;
/// How long the store must go on refusing: every other worker has asked twice meanwhile.
const CERTAIN: Duration = HOLDING.saturating_mul(3);
/// How soon a step is proposed again that others left no room for, by the width of the window.
const AGAIN: u64 = 4;
const AGAIN_LEAST_MS: u64 = 100;
const AGAIN_MOST_MS: u64 = 5_000;
/// Room for what makes a name unique.
const NAME_MOST: usize = 100;

/// A place in every window of a principal. Dropping it gives it up, unless the call was started.
pub(crate) struct Pass {
    limits: Arc<Rations>,
    scopes: Vec<(String, u64)>,
}

impl Pass {
    /// The call's `started` is durable: it counts from now on, for as long as each window is wide.
    pub(crate) fn started(&mut self) {
        let now = Instant::now();
        let mut scopes = self.limits.scopes();
        for (name, per_ms) in self.scopes.drain(..) {
            if let Some(scope) = scopes.get_mut(&name) {
                scope.abandoned.push(now + Duration::from_millis(per_ms));
            }
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut scopes = self.limits.scopes();
        for (name, _) in &self.scopes {
            if let Some(scope) = scopes.get_mut(name) {
                scope.using = scope.using.saturating_sub(1);
            }
        }
        self.limits.asked.notify_one();
    }
}

/// A name for this process that none has had before.
pub(super) fn process(worker: &WorkerId) -> Result<WorkerId, RunError> {
    let name: String = worker.as_str().chars().take(NAME_MOST).collect();
    let name = format!("{name}:{:016x}", u64::from_be_bytes(home::random()?));
    Ok(name.parse().unwrap_or_else(|_| worker.clone()))
}

/// Gives back what is held ahead, for a worker that ends. What it has started counts until it has left
/// each window.
pub(super) async fn leave(shared: &Shared) {
    let now = Instant::now();
    let mut last = Vec::new();
    for (name, scope) in shared.limits.scopes().iter_mut().filter(|(_, it)| it.ahead.is_some()) {
        scope.forget(now);
        let leaves = scope.abandoned.iter().max();
        let ttl_ms = leaves.map_or(0, |at| at.saturating_duration_since(now).as_millis());
        let ttl_ms = u64::try_from(ttl_ms).unwrap_or(scope.linger_ms);
        let (limit, using) = (scope.limit, scope.using);
        last.push((name.clone(), Ration { limit, using, wanted: using, ttl_ms }));
    }
    for (name, ask) in last {
        if let Err(error) = shared.store.ration(holder(shared, true), &name, ask).await {
            tracing::debug!(window = name, %error, "places are not given back and end by themselves");
        }
    }
}

impl Rations {
    /// A place in every window of a principal, and how full each is; to be waited for where that is not
    /// known. A full window has a place too: whether it is used is for the Guardian to say.
    pub(crate) fn pass(
        self: &Arc<Self>,
        who: &Principal,
        rules: &[Rule],
        now: UnixMs,
    ) -> Result<(Vec<Pace>, Option<Pass>), Busy> {
        if rules.is_empty() {
            return Ok((Vec::new(), None));
        }
        let at = Instant::now();
        let mut scopes = self.scopes();
        let mut paces = Vec::with_capacity(rules.len());
        let mut names = Vec::with_capacity(rules.len());
        let mut unknown = false;
        for rule in rules {
            let name = format!("principal {who} {} per {} ms", rule.calls, rule.per_ms);
            let scope = scopes.entry(name.clone()).or_insert_with(|| Scope::new(at));
            scope.limit = u32::try_from(rule.calls).unwrap_or(u32::MAX);
            scope.ahead = Some((scope.limit / AHEAD).max(1));
            scope.linger_ms = rule.per_ms;
            scope.forget(at);
            let pace = scope.pace(*rule, at, now);
            if pace.is_none() {
                scope.waiting = (scope.waiting + 1).min(scope.limit);
            }
            unknown |= pace.is_none();
            paces.extend(pace);
            names.push((name, rule.per_ms));
        }
        if unknown {
            self.asked.notify_one();
            return Err(Busy);
        }
        for (name, _) in &names {
            if let Some(scope) = scopes.get_mut(name) {
                scope.using = scope.using.saturating_add(1);
                scope.fresh = true;
            }
        }
        Ok((paces, Some(Pass { limits: Arc::clone(self), scopes: names })))
    }
}

impl Scope {
    /// How full a window is, if that is known.
    fn pace(&self, rule: Rule, at: Instant, now: UnixMs) -> Option<Pace> {
        let here = u64::from(self.using);
        let pace = |in_window, free_at| Pace { free_at, in_window, rule, whose: Whose::Principal };
        if let Some(over) = here.checked_sub(rule.calls) {
            return Some(pace(here, Some(self.free_at(over, rule, at, now))));
        }
        if self.using < self.granted && at < self.until {
            return Some(pace(here, None));
        }
        let certain = self.refused.is_some_and(|refused| at >= refused + CERTAIN);
        certain.then(|| {
            let again_ms = (rule.per_ms / AGAIN).clamp(AGAIN_LEAST_MS, AGAIN_MOST_MS);
            pace(rule.calls, Some(now.plus(again_ms)))
        })
    }

    /// When enough of what this process has started leaves the window.
    fn free_at(&self, over: u64, rule: Rule, at: Instant, now: UnixMs) -> UnixMs {
        let mut leave = self.abandoned.clone();
        leave.sort_unstable();
        let leaves = usize::try_from(over).ok().and_then(|over| leave.get(over));
        leaves.map_or(now.plus(rule.per_ms), |leaves| {
            let left = leaves.saturating_duration_since(at).as_millis();
            // To the next millisecond: it is gone then.
            now.plus(u64::try_from(left).unwrap_or(rule.per_ms).saturating_add(1))
        })
    }
}
