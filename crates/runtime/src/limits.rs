//! Rations on calls under way that hold across workers: per tool, as it declares, and per tenant.
//!
//! The store divides each limit between those who ask. What a worker is given it uses without asking
//! again, for as long as a lease would last, and gives back when it has not needed it for a while. A
//! share that nobody renews outlasts the last call that could have been made under it.
//!
//! A worker says with every heartbeat what its own settings allow, and learns what those of others do:
//! the smallest binds all, also those whose settings name no limit. Calls are counted where nothing limits
//! them, too: those under way when a limit is heard of count towards it from then on.

mod declared;
mod windows;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gesta_core::ids::WorkerId;
use gesta_store::Ration;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::declared::{declared, follow, learn};
pub(crate) use self::windows::Pass;
use crate::desk::{Desk, Shared};
use crate::error::RunError;
use crate::tools::Tool;

/// How soon to ask again while something waits.
const WAITING: Duration = Duration::from_millis(50);
/// How often to ask while something is held: others may be waiting.
const HOLDING: Duration = Duration::from_millis(300);

/// What a call counts towards.
struct Claim {
    /// The limit's name.
    scope: String,
    /// The most calls at once, as this worker's own settings say.
    own: Option<NonZeroU32>,
}

/// There is no place at present.
pub(crate) struct Busy;

/// A place for a call of this tool. To be had before the call is permitted, so that no permit expires in
/// the queue.
pub(crate) fn slot(
    desk: &Desk,
    tool: Option<&Tool>,
    timeout_ms: Option<u64>,
) -> Result<Option<Slot>, Busy> {
    let claims = claims(desk, tool);
    let (Some(tool), false) = (tool, claims.is_empty()) else { return Ok(None) };
    let manifest = tool.manifest();
    let timeout_ms = timeout_ms.unwrap_or(manifest.timeout.ms());
    let linger_ms = timeout_ms + manifest.settle.ms() + desk.shared.options.skew_ms;
    desk.shared.limits.take(&claims, linger_ms).map(Some).ok_or(Busy)
}

fn claims(desk: &Desk, tool: Option<&Tool>) -> Vec<Claim> {
    #[cfg(feature = "sabotage")]
    if desk.shared.options.sabotage == Some(crate::Sabotage::IgnoreLimits) {
        return Vec::new();
    }
    let of_tool = tool.map(|tool| {
        let (scope, own) = (declared::of_tool(tool.name()), tool.manifest().concurrency);
        Claim { scope, own }
    });
    let of_tenant = desk.state_at_claim.tenant().map(|tenant| {
        let own = desk.shared.options.tenant_calls.get(tenant).copied();
        Claim { scope: declared::of_tenant(tenant), own }
    });
    of_tool.into_iter().chain(of_tenant).collect()
}

/// What this worker's calls count towards.
#[derive(Default)]
pub(crate) struct Rations {
    scopes: Mutex<BTreeMap<String, Scope>>,
    asked: Notify,
    /// Who holds places in windows.
    process: Option<WorkerId>,
    /// What live workers have declared.
    declared: Mutex<BTreeMap<String, NonZeroU32>>,
}

struct Scope {
    /// The most calls at once; 0 where nobody is known to limit them.
    limit: u32,
    /// How many calls may be under way,
    granted: u32,
    /// for how long that may be relied on,
    until: Instant,
    /// and how long after that a call made under it may still act.
    linger_ms: u64,
    using: u32,
    /// Until when those of them count that were abandoned: nobody waits for them, but they may still act.
    abandoned: Vec<Instant>,
    /// The most under way since the store was last asked.
    peak: u32,
    waiting: u32,
    asked_at: Option<Instant>,
    /// Of a window: how many places are held ahead, where there are enough,
    ahead: Option<u32>,
    /// whether a call has taken one since the store was asked, how many were taken and wanted then,
    fresh: bool,
    told: Option<(u32, u32)>,
    /// and since when the store has had none for what waits.
    refused: Option<Instant>,
}

/// A place among the calls under way. Dropping it gives it up, at once or when the call that was
/// made under it can act no more.
pub(crate) struct Slot {
    limits: Arc<Rations>,
    /// Each with whether it was limited when the place was taken.
    scopes: Vec<(String, bool)>,
    acts_until: Option<Instant>,
}

impl Slot {
    /// A call is made that acts until then, whatever becomes of whoever waits for it.
    pub(crate) fn sent(&mut self, acts_until: Instant) {
        self.acts_until = Some(acts_until);
    }

    /// The call is over.
    pub(crate) fn answered(&mut self) {
        self.acts_until = None;
    }

    /// Whether what it rests on may still be relied on.
    pub(crate) fn holds(&self) -> bool {
        let now = Instant::now();
        let scopes = self.limits.scopes();
        let mut shares = self.scopes.iter().filter(|(_, limited)| *limited);
        shares.all(|(name, _)| scopes.get(name).is_some_and(|scope| now < scope.until))
    }
}

#[cfg(test)]
impl Slot {
    /// A place under a limit of which nothing is left.
    pub(crate) fn lapsed() -> Self {
        Self { limits: Arc::default(), scopes: vec![("gone".to_owned(), true)], acts_until: None }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut scopes = self.limits.scopes();
        let mut limited = false;
        for (name, _) in &self.scopes {
            let Some(scope) = scopes.get_mut(name) else { continue };
            limited |= scope.limit > 0;
            match self.acts_until {
                Some(until) => scope.abandoned.push(until),
                None => scope.using = scope.using.saturating_sub(1),
            }
        }
        if limited {
            self.limits.asked.notify_one();
        }
    }
}

impl Rations {
    pub(crate) fn of(worker: &WorkerId) -> Result<Self, RunError> {
        Ok(Self { process: Some(windows::process(worker)?), ..Self::default() })
    }

    fn scopes(&self) -> MutexGuard<'_, BTreeMap<String, Scope>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a call that may act for `linger_ms`, if all its limits have one. What lacks is
    /// asked for.
    fn take(self: &Arc<Self>, claims: &[Claim], linger_ms: u64) -> Option<Slot> {
        let now = Instant::now();
        let mut scopes = self.scopes();
        let mut free = true;
        for Claim { scope: name, own } in claims {
            let limit = self.binding(*own, name);
            let scope = scopes.entry(name.clone()).or_insert_with(|| Scope::new(now));
            scope.bind(limit);
            scope.forget(now);
            if scope.linger_ms < linger_ms {
                scope.linger_ms = linger_ms;
                scope.granted = scope.using;
            }
            if scope.limit > 0 && (scope.using >= scope.granted || now >= scope.until) {
                scope.waiting = (scope.waiting + 1).min(scope.limit);
                free = false;
            }
        }
        if !free {
            self.asked.notify_one();
            return None;
        }
        let mut taken = Vec::with_capacity(claims.len());
        for Claim { scope: name, .. } in claims {
            if let Some(scope) = scopes.get_mut(name) {
                scope.using += 1;
                scope.peak = scope.peak.max(scope.using);
                taken.push((name.clone(), scope.limit > 0));
            }
        }
        Some(Slot { limits: Arc::clone(self), scopes: taken, acts_until: None })
    }

    /// What to ask the store now, and when to look again. Nothing new begins while it is asked.
    fn asks(&self, lease_ms: u64) -> (Vec<(String, Ration, bool)>, Option<Instant>) {
        let now = Instant::now();
        let mut asks = Vec::new();
        let mut next: Option<Instant> = None;
        for (name, scope) in self.scopes().iter_mut().filter(|(_, scope)| scope.limit > 0) {
            scope.forget(now);
            if scope.settled() {
                // Nothing is to be told until something leaves the window.
                next = [next, scope.abandoned.iter().min().copied()].into_iter().flatten().min();
                continue;
            }
            let apart = if scope.waiting > 0 { WAITING } else { HOLDING };
            let due = scope.asked_at.map_or(now, |asked_at| asked_at + apart);
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            scope.granted = scope.using;
            let wanted = scope.wanted().min(scope.limit);
            (scope.told, scope.fresh) = (Some((scope.using, wanted)), false);
            let held_ms = if scope.ahead.is_some() { windows::HELD_MS } else { lease_ms };
            let ttl_ms = held_ms.saturating_add(scope.linger_ms);
            let ask = Ration { limit: scope.limit, using: scope.using, wanted, ttl_ms };
            asks.push((name.clone(), ask, scope.ahead.is_some()));
        }
        (asks, next)
    }

    /// The store has answered. True when something that waited may go on.
    fn answered(&self, name: &str, ask: Ration, granted: u32, valid_until: Instant) -> bool {
        let now = Instant::now();
        let mut scopes = self.scopes();
        let Some(scope) = scopes.get_mut(name) else { return false };
        let idle = scope.waiting == 0 && scope.using == 0;
        if ask.wanted.max(ask.using) == 0 && idle {
            scopes.remove(name);
            return false;
        }
        scope.asked_at = Some(now);
        scope.granted = granted;
        scope.until = valid_until;
        scope.peak = scope.using;
        let room = scope.granted > scope.using;
        let short = granted < ask.wanted;
        scope.refused = if short { scope.refused.or(Some(now)) } else { None };
        if scope.ahead.is_some() {
            // Whoever waits for a place in a window looks whether there is one, or whether it is full.
            return std::mem::take(&mut scope.waiting) > 0;
        }
        if room {
            scope.waiting = 0;
        }
        room
    }

    fn unanswered(&self, name: &str) {
        if let Some(scope) = self.scopes().get_mut(name) {
            scope.asked_at = Some(Instant::now());
        }
    }
}

impl Scope {
    /// The limit is this from now on. What was granted under none counts for nothing.
    fn bind(&mut self, limit: Option<NonZeroU32>) {
        let limit = limit.map_or(0, NonZeroU32::get);
        if self.limit == 0 && limit > 0 {
            (self.granted, self.peak) = (0, self.using);
        }
        self.limit = limit;
    }

    fn new(now: Instant) -> Self {
        Self {
            limit: 0,
            granted: 0,
            until: now,
            linger_ms: 0,
            using: 0,
            abandoned: Vec::new(),
            peak: 0,
            waiting: 0,
            asked_at: None,
            ahead: None,
            fresh: false,
            told: None,
            refused: None,
        }
    }

    /// Whether the store knows of a window what it must: nobody waits, nothing is held ahead, and as many
    /// places are taken as it was told, and no more are wanted.
    fn settled(&self) -> bool {
        let told = self.told == Some((self.using, self.using)) && self.granted <= self.using;
        self.ahead.is_some() && self.waiting == 0 && told
    }

    /// How many places it would be good to have. Those of a window stay taken, so that each call needs
    /// another one.
    fn wanted(&self) -> u32 {
        let Some(ahead) = self.ahead else { return self.peak.saturating_add(self.waiting) };
        let waits = self.waiting.min(1);
        let eager = self.refused.is_none() && (self.fresh || waits > 0);
        let more = if eager { ahead } else { waits };
        self.using.saturating_add(more)
    }

    /// Abandoned calls that can act no more.
    fn forget(&mut self, now: Instant) {
        let before = self.abandoned.len();
        self.abandoned.retain(|until| *until > now);
        let over = u32::try_from(before - self.abandoned.len()).unwrap_or(u32::MAX);
        self.using = self.using.saturating_sub(over);
    }
}

/// Who holds a share of a limit, or places in a window.
fn holder(shared: &Shared, window: bool) -> &WorkerId {
    shared.limits.process.as_ref().filter(|_| window).unwrap_or(&shared.worker)
}

/// Gives back what is not in use, for a worker that ends.
pub(crate) async fn give_back(shared: &Shared) {
    windows::leave(shared).await;
    let idle: Vec<(String, u32)> = {
        let scopes = shared.limits.scopes();
        let shares = |it: &Scope| it.limit > 0 && it.ahead.is_none();
        let idle = scopes.iter().filter(|(_, it)| it.using == 0 && shares(it));
        idle.map(|(name, scope)| (name.clone(), scope.limit)).collect()
    };
    for (name, limit) in idle {
        let nothing = Ration { limit, using: 0, wanted: 0, ttl_ms: 0 };
        if let Err(error) = shared.store.ration(&shared.worker, &name, nothing).await {
            tracing::debug!(limit = name, %error, "a share is not given back and ends by itself");
        }
    }
}

/// Asks the store for what this worker needs of its limits, and gives back what it does not.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let lease_ms = shared.options.lease_ms;
    loop {
        let (asks, next) = shared.limits.asks(lease_ms);
        if asks.is_empty() {
            let asked = shared.limits.asked.notified();
            match next {
                None => asked.await,
                Some(next) => {
                    let _whichever = tokio::time::timeout_at(next, asked).await;
                }
            }
            continue;
        }
        for (name, ask, window) in asks {
            let held_ms = if window { windows::HELD_MS } else { lease_ms };
            let valid_until = Instant::now() + Duration::from_millis(held_ms);
            match shared.store.ration(holder(&shared, window), &name, ask).await {
                Ok(granted) => {
                    if shared.limits.answered(&name, ask, granted, valid_until) {
                        shared.freed.notify_waiters();
                    }
                }
                Err(error) => {
                    tracing::warn!(limit = name, %error, "a limit's share cannot be had");
                    shared.limits.unanswered(&name);
                }
            }
        }
    }
}
