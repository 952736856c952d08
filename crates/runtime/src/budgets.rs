//! What tenants may use in a day: the slices of their accounts that this worker holds.
//!
//! A call sets its reserve aside from a slice in memory, by atomic arithmetic, before it is decided.
//! It gives it back when nothing was sent or nothing happened, settles it with the real cost when that
//! is known, and leaves it when nobody knows. The store is asked by one task beside the trajectories:
//! for more when a call lacks something, and to tell what was used. At any moment, for each slice,
//! `drawn + over = used + set aside + free`; the store is told `drawn + over`, so whatever is lost of
//! this worker's memory, the account counts no less than what was used.

mod cells;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::document::{Certainty, Decision, Reason};
use gesta_core::guardian::Allowance;
use gesta_core::ids::{Tenant, WorkerId};
use gesta_core::time::{Day, UnixMs};
use gesta_store::{Account, Draw, Drawn, Span};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::cells::Cells;
use crate::desk::{Desk, Event, Shared};
use crate::error::RunError;
use crate::home;
use crate::pipeline::How;
use crate::thresholds;
use crate::tools::Tool;

/// How soon to ask again while something waits for what others hold.
const WAITING: Duration = Duration::from_millis(50);
/// How often to tell what was used, and to give back what was not.
const TELLING: Duration = Duration::from_millis(300);
/// For how long the store's word that nothing is left is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// Who draws again this soon gets twice as much.
const EAGER: Duration = Duration::from_secs(1);
const EAGER_MOST: u32 = 12;
/// What is kept free is at most this part of what is left, so that slices shrink with it.
const PART: u64 = 16;
/// How many times in a row a slice is told of that nobody takes from, before it is given back.
const QUIET_MOST: u32 = 2;

/// The store must be asked first.
pub(crate) struct Wait;

/// Sets aside what a call of this tool may use of its tenant's account. Nothing is to be set aside
/// where nothing limits the tenant, and nothing can be where nothing is left: then the Guardian is
/// told what is.
pub(crate) fn reserve(
    desk: &Desk,
    tool: Option<&Tool>,
    timeout_ms: Option<u64>,
    now: UnixMs,
) -> Result<Option<(Allowance, Option<Hold>)>, Wait> {
    let (Some(tool), Some(tenant)) = (tool, desk.state_at_claim.tenant()) else { return Ok(None) };
    let registry = desk.shared.registry();
    let limit = registry.as_ref().and_then(|state| state.registry().limit(tenant).copied());
    let Some(limit) = limit.filter(Budget::limits) else { return Ok(None) };
    let cost = tool.manifest().cost;
    // How long a call takes is not declared, but how long it may take is.
    let most_ms = timeout_ms.unwrap_or(tool.manifest().timeout.ms());
    let (calls, wall_ms) = (cost.calls.max(1), cost.wall_ms.max(most_ms));
    let reserve = Amounts { calls, wall_ms, ..cost };
    let slice = desk.slice.of(&desk.shared.budgets, tenant, now.day());
    let told = |left: Amounts| Allowance {
        day: slice.day,
        left: limit.where_limited(left),
        limit,
        reached: Some(slice.reached.load(Ordering::Relaxed)).filter(|reached| *reached > 0),
        reserve: only_limited(&limit, reserve),
        tenant: tenant.clone(),
    };
    match slice.take(&limit, reserve) {
        Some((hold, left)) => Ok(Some((told(left), Some(hold)))),
        None => match slice.lacks(&limit, reserve) {
            Some(left) => Ok(Some((told(left), None))),
            None => {
                desk.shared.budgets.asked.notify_one();
                Err(Wait)
            }
        },
    }
}

/// Which account does not reach, and what is left of it, if that is why it was refused.
pub fn shortage(decision: &Decision) -> Option<String> {
    if decision.reason != Some(Reason::BudgetExhausted) {
        return None;
    }
    let found = decision.trace.last()?.found.as_ref()?;
    let found: serde_json::Value = serde_json::from_str(found.as_str()).ok()?;
    let what = found.get("exceeded")?.as_str()?;
    let number = |account: &serde_json::Value, of: &str| {
        account.get(of)?.get(what).map_or(Some(0), serde_json::Value::as_u64)
    };
    let short = |account: &serde_json::Value| {
        let (left, needed) = (number(account, "left")?, number(account, "reserve")?);
        let limit = number(account, "limit").filter(|_| left < needed)?;
        Some((left, limit, needed))
    };
    let name = |account: &serde_json::Value, of: &str| Some(account.get(of)?.as_str()?.to_owned());
    if let Some(account) = found.get("account")
        && let Some((left, limit, needed)) = short(account)
    {
        let (tenant, day) = (name(account, "tenant")?, name(account, "day")?);
        return Some(format!(
            "tenant `{tenant}` has {left} of its {limit} {what} of {day} left, and the call needs {needed}"
        ));
    }
    let writs = found.get("writs")?.as_array()?;
    writs.iter().find_map(|account| {
        let (left, limit, needed) = short(account)?;
        let writ = name(account, "writ")?;
        Some(format!(
            "writ `{writ}` has {left} of its {limit} {what} left, and the call needs {needed}"
        ))
    })
}

/// Amounts in limited dimensions.
pub(crate) fn only_limited(limit: &Budget, amounts: Amounts) -> Amounts {
    limit.where_limited(amounts).carved()
}

/// The slices that this worker holds.
pub(crate) struct Budgets {
    /// What this process is called in accounts: never the same twice, whatever the worker's name.
    name: String,
    slices: Mutex<Vec<Arc<Slice>>>,
    /// How many there have been.
    made: AtomicU64,
    asked: Notify,
}

impl Budgets {
    pub(crate) fn of(worker: &WorkerId) -> Result<Self, RunError> {
        let name = format!("{worker} {:016x}", u64::from_be_bytes(home::random()?));
        Ok(Self { name, slices: Mutex::default(), made: AtomicU64::new(0), asked: Notify::new() })
    }

    /// No slices: whoever replays sets nothing aside.
    pub(crate) fn none() -> Self {
        let name = String::new();
        Self { name, slices: Mutex::default(), made: AtomicU64::new(0), asked: Notify::new() }
    }

    fn slices(&self) -> MutexGuard<'_, Vec<Arc<Slice>>> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slice of an account. Each is a holder of its own: one that was forgotten is never found
    /// again under the same name, whatever the clock does.
    fn slice(&self, tenant: &Tenant, day: Day) -> Arc<Slice> {
        let mut slices = self.slices();
        let known = slices.iter().find(|slice| {
            let of = (&slice.account.tenant, slice.account.span);
            of == (tenant, Span::Day(day)) && !slice.is_forgotten()
        });
        if let Some(known) = known {
            return Arc::clone(known);
        }
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let slice = Arc::new(Slice::new((tenant.clone(), day), format!("{}-{number}", self.name)));
        slices.push(Arc::clone(&slice));
        slice
    }
}

/// The slice that one trajectory takes from, so that its calls look for it once a day.
#[derive(Default)]
pub(crate) struct Current(Mutex<Option<Arc<Slice>>>);

impl Current {
    fn of(&self, budgets: &Budgets, tenant: &Tenant, day: Day) -> Arc<Slice> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(slice) if slice.day == day && !slice.is_forgotten() => Arc::clone(slice),
            _ => Arc::clone(current.insert(budgets.slice(tenant, day))),
        }
    }
}

/// A slice of an account.
struct Slice {
    account: Account,
    day: Day,
    holder: String,
    /// What may be set aside,
    free: Cells,
    /// what was used,
    used: Cells,
    /// and what of that was neither set aside nor free: calls that cost more.
    over: Cells,
    /// How many calls have something set aside.
    open: AtomicU64,
    /// How often something was taken.
    taken: AtomicU64,
    /// The limit under which it was drawn; under another nothing is taken.
    limit: Cells,
    /// The highest threshold that was reached, in percent.
    reached: AtomicU8,
    forgotten: AtomicBool,
    book: Mutex<Book>,
}

/// What only those see who ask the store, or lack something.
#[derive(Default)]
struct Book {
    seq: u64,
    drawn: Amounts,
    /// The draw that has not been answered: it is sent again as it is.
    sent: Option<Draw>,
    /// What some call lacks: the most that one needs, what all of them want, under which limit.
    lacking: Option<(Amounts, Amounts, Budget)>,
    /// What the store said was left, under which limit, and until when that is believed.
    nothing: Option<(Amounts, Budget, Instant)>,
    /// What nobody had drawn, as of the last answer.
    left: Amounts,
    /// How much was told of.
    told: (Amounts, u64),
    asked_at: Option<Instant>,
    drew_at: Option<Instant>,
    eager: u32,
    quiet: u32,
}

impl Slice {
    fn new((tenant, day): (Tenant, Day), holder: String) -> Self {
        Self {
            account: Account { tenant, span: Span::Day(day) },
            day,
            holder,
            free: Cells::default(),
            used: Cells::default(),
            over: Cells::default(),
            open: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            limit: Cells::default(),
            reached: AtomicU8::new(0),
            forgotten: AtomicBool::new(false),
            book: Mutex::default(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// Sets an amount aside, if it is there, and says what there was.
    fn take(self: &Arc<Self>, limit: &Budget, reserve: Amounts) -> Option<(Hold, Amounts)> {
        // Counted first: a slice with something open is not forgotten.
        self.open.fetch_add(1, Ordering::SeqCst);
        let taken = only_limited(limit, reserve);
        let usable = !self.is_forgotten() && self.limit.get() == bounds(limit);
        if usable && self.free.take(taken) {
            self.taken.fetch_add(1, Ordering::Relaxed);
            let left = self.free.get().plus(taken);
            return Some((Hold { slice: Arc::clone(self), taken, sent: false }, left));
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        None
    }

    /// A call lacks something. What there is, when the store has just said that it is too little.
    fn lacks(&self, limit: &Budget, reserve: Amounts) -> Option<Amounts> {
        let mut book = self.book();
        if let Some((left, under, until)) = &book.nothing
            && under == limit
            && Instant::now() < *until
            && limit.where_limited(*left).exceeded_by(&reserve).is_some()
        {
            return Some(*left);
        }
        let reserve = only_limited(limit, reserve);
        book.lacking = match book.lacking {
            Some((need, want, under)) if under == *limit => {
                Some((larger(need, reserve), want.plus(reserve), under))
            }
            _ => Some((reserve, reserve, *limit)),
        };
        None
    }

    /// What to ask the store now, if anything, and when to look again.
    fn ask(&self, warn_at: &[u8], today: Day, now: Instant) -> (Option<Draw>, Option<Instant>) {
        let mut book = self.book();
        let apart = if book.lacking.is_some() { WAITING } else { TELLING };
        let due = book.asked_at.map_or(now, |asked_at| asked_at + apart);
        let (used, taken) = (self.used.get(), self.taken.load(Ordering::Relaxed));
        let free = self.free.get();
        let told = book.told.0 == used && self.over.get() == Amounts::default();
        if book.sent.is_none() && book.lacking.is_none() && told && free == Amounts::default() {
            return (None, None);
        }
        if due > now {
            return (None, Some(due));
        }
        if let Some(sent) = &book.sent {
            return (Some(sent.clone()), None);
        }
        let lacking = book.lacking.take();
        let limit = lacking.map_or_else(|| unbounds(self.limit.get()), |(.., limit)| limit);
        let changed = self.limit.get() != bounds(&limit);
        book.quiet = if taken == book.told.1 { book.quiet + 1 } else { 0 };
        // What is not needed is given back before the store is told so.
        let over = changed || self.day < today || book.quiet > QUIET_MOST;
        let most = if over { Amounts::default() } else { part(book.left) };
        let spare = if lacking.is_some() && !over { Amounts::default() } else { free.minus(most) };
        let back = self.free.take_up_to(spare);
        book.drawn = book.drawn.minus(back).plus(self.over.take_all());
        self.limit.set(bounds(&limit));
        let free = self.free.get();
        let (need, want) = match lacking {
            Some((need, want, _)) => {
                let eager = book.drew_at.is_some_and(|drew_at| now < drew_at + EAGER);
                book.eager = if eager { (book.eager + 1).min(EAGER_MOST) } else { 0 };
                book.drew_at = Some(now);
                (need.minus(free), larger(want, times(need, 1 << book.eager)))
            }
            None => (Amounts::default(), Amounts::default()),
        };
        book.seq += 1;
        book.told = (used, taken);
        let (seq, keep, warn_at) = (book.seq, book.drawn, warn_at.to_vec());
        let draw = Draw { seq, limit, keep, used, idle: free, need, want, warn_at };
        book.sent = Some(draw.clone());
        (Some(draw), None)
    }

    /// The store has answered a draw. True when whoever waits may look again.
    fn answered(&self, draw: &Draw, drawn: &Drawn, now: Instant) -> bool {
        let mut book = self.book();
        if book.seq != draw.seq {
            return false;
        }
        book.sent = None;
        book.asked_at = Some(now);
        book.left = drawn.left;
        if let Some(reached) = drawn.reached {
            self.reached.store(reached, Ordering::Relaxed);
        }
        let more = drawn.drawn.minus(draw.keep);
        book.drawn = draw.keep.plus(more);
        self.free.add(more);
        if draw.need == Amounts::default() {
            return true;
        }
        let granted = more != Amounts::default();
        if !granted && drawn.comes_back {
            book.nothing = None;
            return false;
        }
        let left = drawn.left.plus(self.free.get());
        book.nothing = (!granted).then(|| (left, draw.limit, now + BELIEVED));
        true
    }

    fn unanswered(&self, now: Instant) {
        self.book().asked_at = Some(now);
    }

    /// Whether nothing can be taken from it or settled with it any more.
    fn forget(&self, today: Day) -> bool {
        let over = self.day.0 + 1 < today.0;
        let book = self.book();
        let told = book.sent.is_none()
            && book.told.0 == self.used.get()
            && self.over.get() == Amounts::default()
            && self.free.get() == Amounts::default();
        if !over || !told || self.open.load(Ordering::SeqCst) > 0 {
            return false;
        }
        self.forgotten.store(true, Ordering::SeqCst);
        if self.open.load(Ordering::SeqCst) > 0 {
            // Somebody came in between; whoever comes later sees that it is forgotten.
            self.forgotten.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }
}

/// What is set aside for one call. Dropping it gives it back, or leaves it when the call was made and
/// nobody knows what became of it.
pub(crate) struct Hold {
    slice: Arc<Slice>,
    taken: Amounts,
    sent: bool,
}

impl Hold {
    /// From here on the call may cost something.
    pub(crate) fn sent(&mut self) {
        self.sent = true;
    }

    /// The call is over. What nobody knows about stays set aside.
    pub(crate) fn charge(mut self, how: &How) {
        match how {
            How::Succeeded { cost, .. }
            | How::Failed { certainty: Certainty::Happened, cost, .. } => self.settle(*cost),
            How::TurnedAway(_) | How::Failed { certainty: Certainty::DidNotHappen, .. } => {
                self.sent = false;
            }
            How::Failed { certainty: Certainty::Unknown, .. } => {}
        }
    }

    /// The call cost this, be it more or less than was set aside.
    fn settle(&mut self, cost: Amounts) {
        let taken = std::mem::take(&mut self.taken);
        self.slice.used.add(cost);
        self.slice.free.add(taken.minus(cost));
        let more = cost.minus(taken);
        let rest = more.minus(self.slice.free.take_up_to(more));
        self.slice.over.add(rest);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.sent {
            self.slice.used.add(self.taken);
        } else {
            self.slice.free.add(self.taken);
        }
        self.slice.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A limit as amounts that can be compared: one more than it says, or nothing.
fn bounds(limit: &Budget) -> Amounts {
    Amounts::of(
        limit.dimensions().map(|(_, limit)| limit.map_or(0, |limit| limit.saturating_add(1))),
    )
}

fn unbounds(bounds: Amounts) -> Budget {
    let of = |bound: u64| bound.checked_sub(1);
    Budget {
        calls: of(bounds.calls),
        money_micros: of(bounds.money_micros),
        tokens: of(bounds.tokens),
        wall_ms: of(bounds.wall_ms),
    }
}

pub(crate) fn larger(one: Amounts, other: Amounts) -> Amounts {
    one.plus(other.minus(one))
}

pub(crate) fn part(left: Amounts) -> Amounts {
    Amounts::of(left.values().map(|left| left / PART))
}

pub(crate) fn times(amounts: Amounts, factor: u64) -> Amounts {
    Amounts::of(amounts.values().map(|amount| amount.saturating_mul(factor)))
}

/// Draws what this worker needs of its tenants' accounts, tells what it has used, and gives back what
/// it does not need.
pub(crate) async fn keep(shared: Arc<Shared>) {
    loop {
        let now = Instant::now();
        let today = shared.pulse.now().day();
        let slices: Vec<Arc<Slice>> = shared.budgets.slices().clone();
        let mut next: Option<Instant> = None;
        let mut draws = Vec::new();
        for slice in slices {
            let (draw, again) = slice.ask(&shared.options.warn_at, today, now);
            next = [next, again].into_iter().flatten().min();
            draws.extend(draw.map(|draw| (slice, draw)));
        }
        shared.budgets.slices().retain(|slice| !slice.forget(today));
        if draws.is_empty() {
            let asked = shared.budgets.asked.notified();
            // What is open will be settled, and that must be told.
            let next = next.unwrap_or(now + TELLING);
            if shared.budgets.slices().is_empty() {
                asked.await;
            } else {
                let _whichever = tokio::time::timeout_at(next, asked).await;
            }
            continue;
        }
        for (slice, draw) in draws {
            draw_now(&shared, &slice, &draw).await;
        }
    }
}

async fn draw_now(shared: &Shared, slice: &Slice, draw: &Draw) {
    let account = &slice.account;
    match shared.store.draw(account, &slice.holder, draw).await {
        Ok(drawn) => {
            if let Some(percent) = drawn.reached {
                let (tenant, day) = (&account.tenant, slice.day);
                let note =
                    format!("tenant `{tenant}` has reached {percent} % of its budget of {day}");
                tracing::info!("{note}");
                shared.tell(|| Event::Note(note));
            }
            if slice.answered(draw, &drawn, Instant::now()) {
                shared.freed.notify_waiters();
            }
            thresholds::register(shared, account, draw, &drawn).await;
        }
        Err(error) => {
            tracing::warn!(tenant = %account.tenant, %error, "a budget cannot be drawn on yet");
            slice.unanswered(Instant::now());
        }
    }
}

/// Gives back what is not in use, for a worker that ends.
pub(crate) async fn give_back(shared: &Shared) {
    let slices: Vec<Arc<Slice>> = shared.budgets.slices().clone();
    for slice in slices {
        let draw = slice.last_word(&shared.options.warn_at);
        if let Some(draw) = draw {
            draw_now(shared, &slice, &draw).await;
        }
    }
}

impl Slice {
    /// What is told at the end: whatever was asked before counts no more.
    fn last_word(&self, warn_at: &[u8]) -> Option<Draw> {
        let mut book = self.book();
        let back = self.free.take_all();
        let over = self.over.take_all();
        let used = self.used.get();
        let nothing = book.sent.is_none()
            && (back, over) == (Amounts::default(), Amounts::default())
            && book.told.0 == used;
        if nothing {
            return None;
        }
        book.drawn = book.drawn.minus(back).plus(over);
        book.seq += 1;
        book.told.0 = used;
        let draw = Draw {
            seq: book.seq,
            limit: unbounds(self.limit.get()),
            keep: book.drawn,
            used,
            warn_at: warn_at.to_vec(),
            ..Draw::default()
        };
        book.sent = Some(draw.clone());
        Some(draw)
    }
}
