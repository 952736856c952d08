//! What a trajectory may use of the standing writs above it: its slices of their accounts.
//!
//! Each trajectory is a holder of its own. What it has used is in its fold, so an account says only how
//! much there is for it, and whoever drives the trajectory next goes on with what is in the chain:
//! nothing dies with a worker. Draws are numbered by attempt and order, so that the word of one who has
//! lost the trajectory counts no more than its entries do. What a child uses it draws itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::Mandate;
use gesta_core::guardian::Standing;
use gesta_core::ids::TrajectoryId;
use gesta_core::state::State;
use gesta_store::{Account, Chain, Draft, Draw, Drawn, Span};
use tokio::time::Instant;

use crate::budgets::{Wait, larger, only_limited, part, times};
use crate::desk::{Desk, Event, Shared};
use crate::error::RunError;
use crate::facts::Facts;
use crate::thresholds;
use crate::tools::Tool;

/// How soon to ask again while the trajectory waits for what others hold.
const WAITING: Duration = Duration::from_millis(50);
/// How often to tell what was used, and to give back what was not.
const TELLING: Duration = Duration::from_secs(1);
/// For how long the store's word that nothing is left is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// For how many calls like the one that lacks something is drawn at once, where there is plenty.
const AHEAD: u64 = 64;
/// Draws of one attempt have numbers below those of the next.
const ATTEMPT_BITS: u32 = 32;

/// What a trajectory's own calls have used, and may have used: all that counts against its writ, but for
/// what children were given.
pub(crate) fn used(state: &State, facts: &Facts) -> Amounts {
    state.spent().plus(state.reserved()).minus(facts.given_to_children())
}

/// The accounts of the standing writs above one trajectory, as far as they are limited.
pub(crate) struct StandingWrits {
    trajectory: TrajectoryId,
    attempt: u64,
    holdings: Vec<Holding>,
}

/// A slice of one account.
struct Holding {
    account: Account,
    limit: Budget,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    /// How often the store was asked in this attempt.
    asked: u64,
    /// What may be relied on.
    drawn: Amounts,
    /// The draw that has not been answered: it is sent again as it is.
    sent: Option<Draw>,
    /// What the trajectory would have used in all, with a call that lacks something.
    lacking: Option<Amounts>,
    /// What the store said was left, and until when that is believed.
    nothing: Option<(Amounts, Instant)>,
    /// What nobody had drawn, as of the last answer.
    left: Amounts,
    told: Amounts,
    asked_at: Option<Instant>,
}

impl StandingWrits {
    pub(crate) fn above(trajectory: TrajectoryId, attempt: u64, mandate: &Mandate) -> Self {
        let limited = mandate.writs.iter().filter(|writ| {
            let writ = writ.doc();
            writ.trajectory.is_none() && writ.budget.limits()
        });
        let holdings = limited.map(|writ| Holding {
            account: Account { tenant: writ.doc().tenant.clone(), span: Span::Writ(writ.id()) },
            limit: writ.doc().budget,
            book: Mutex::default(),
        });
        Self { trajectory, attempt, holdings: holdings.collect() }
    }

    /// What each account has for a call of this tool. The Guardian is told where nothing is left; what
    /// only lacks here must be drawn first.
    pub(crate) fn ask(
        &self,
        draft: &Draft<Facts>,
        tool: Option<&Tool>,
    ) -> Result<Vec<Standing>, Wait> {
        let (Some(tool), false) = (tool, self.holdings.is_empty()) else { return Ok(Vec::new()) };
        let used = used(draft.state(), draft.view());
        let reserve = tool.manifest().cost;
        let asked: Vec<_> =
            self.holdings.iter().map(|holding| holding.ask(used, reserve)).collect();
        asked.into_iter().collect::<Option<_>>().ok_or(Wait)
    }

    /// Draws what lacks, tells what was used and gives back what is not needed, each if it is time.
    /// True when what lacked may be there.
    pub(crate) async fn keep(&self, desk: &Desk, chain: &Chain<Facts>) -> bool {
        let used = used(chain.state(), chain.view());
        let mut came = false;
        for holding in &self.holdings {
            let Some(draw) = holding.next(used, self.seq(), &desk.shared) else { continue };
            came |= self.draw(&desk.shared, holding, &draw).await;
        }
        came
    }

    /// Tells what the trajectory has used and gives everything else back: it is not driven any further
    /// here. Whatever is lost of it, the next attempt tells it again, and for one that has ended whoever
    /// lacks something does.
    pub(crate) async fn leave(&self, shared: &Shared, chain: &Chain<Facts>) {
        let used = used(chain.state(), chain.view());
        for holding in &self.holdings {
            let draw = holding.last_word(used, self.seq(), &shared.options.warn_at);
            // An earlier attempt may have drawn what this one never asked about.
            if let Some(draw) = draw.filter(|_| self.attempt > 1 || holding.book().asked > 1) {
                self.draw(shared, holding, &draw).await;
            }
        }
    }

    /// Tells what the trajectory has used, if it has ended: something was added to its chain since, and
    /// whoever drove it has had the last word. Told twice it counts once; on an error it must be told again.
    pub(crate) async fn afterwards(
        &self,
        shared: &Shared,
        chain: &Chain<Facts>,
    ) -> Result<(), RunError> {
        for Holding { account, limit, .. } in &self.holdings {
            let like =
                Draw { limit: *limit, warn_at: shared.options.warn_at.clone(), ..Draw::default() };
            let settled = settle_ended(shared, account, chain, &like).await?;
            if let Some((draw, drawn)) = settled {
                thresholds::register(shared, account, &draw, &drawn).await;
            }
        }
        Ok(())
    }

    /// Tells what the trajectory has used, now. False when some account may not know.
    pub(crate) async fn tell(&self, shared: &Shared, chain: &Chain<Facts>) -> bool {
        let used = used(chain.state(), chain.view());
        for holding in &self.holdings {
            let Some(draw) = holding.word(used, self.seq(), &shared.options.warn_at) else {
                continue;
            };
            self.draw(shared, holding, &draw).await;
            if !holding.knows(used) {
                return false;
            }
        }
        true
    }

    fn seq(&self) -> u64 {
        self.attempt << ATTEMPT_BITS
    }

    async fn draw(&self, shared: &Shared, holding: &Holding, draw: &Draw) -> bool {
        let (account, holder) = (&holding.account, self.trajectory.to_string());
        let drawn = match shared.store.draw(account, &holder, draw).await {
            Ok(drawn) => drawn,
            Err(error) => {
                tracing::warn!(trajectory = %self.trajectory, %error, "a writ's account cannot be drawn on yet");
                holding.book().asked_at = Some(Instant::now());
                return false;
            }
        };
        if let (Some(percent), Span::Writ(writ)) = (drawn.reached, account.span) {
            let tenant = &account.tenant;
            let note =
                format!("tenant `{tenant}` has reached {percent} % of what writ `{writ}` allows");
            tracing::info!("{note}");
            shared.tell(|| Event::Note(note));
        }
        thresholds::register(shared, account, draw, &drawn).await;
        let mut freed = false;
        for silent in &drawn.silent {
            match settle_silent(shared, account, silent, draw).await {
                Ok(settled) => freed |= settled,
                Err(error) => tracing::warn!(holder = silent, %error, "a slice cannot be settled"),
            }
        }
        holding.answered(draw, &drawn, freed)
    }
}

/// A holder has told nothing for a while. If its trajectory has ended, whoever drove it died before it
/// could give back what was not used: that is done for it. True when it was.
async fn settle_silent(
    shared: &Shared,
    account: &Account,
    holder: &str,
    like: &Draw,
) -> Result<bool, RunError> {
    let Ok(trajectory) = holder.parse::<TrajectoryId>() else { return Ok(false) };
    let chain = Chain::<Facts>::follow(shared.store.clone(), trajectory).await?;
    Ok(settle_ended(shared, account, &chain, like).await?.is_some())
}

/// Says what a trajectory has used that has ended, and gives back the rest. What is said on more of the chain
/// counts more than what was said on less, and more than anything that was said before the end.
async fn settle_ended(
    shared: &Shared,
    account: &Account,
    chain: &Chain<Facts>,
    like: &Draw,
) -> Result<Option<(Draw, Drawn)>, RunError> {
    let state = chain.state();
    let (Some(_), Some(head)) = (state.ended(), state.head()) else { return Ok(None) };
    let used = only_limited(&like.limit, used(state, chain.view()));
    let seq = ((state.attempt() + 1) << ATTEMPT_BITS) + head.seq;
    let (limit, warn_at) = (like.limit, like.warn_at.clone());
    let draw = Draw { seq, limit, keep: used, used, warn_at, ..Draw::default() };
    let drawn = shared.store.draw(account, &state.trajectory().to_string(), &draw).await?;
    Ok(Some((draw, drawn)))
}

impl Holding {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is for a call, if that is known.
    fn ask(&self, used: Amounts, reserve: Amounts) -> Option<Standing> {
        let mut book = self.book();
        let (used, reserve) = (only_limited(&self.limit, used), only_limited(&self.limit, reserve));
        let fits = |left: Amounts| self.limit.where_limited(left).exceeded_by(&reserve).is_none();
        let here = book.drawn.minus(used);
        // What was used beyond what was drawn is no room in another dimension.
        let covered = self.limit.where_limited(book.drawn).exceeded_by(&used).is_none();
        let left = match book.nothing {
            _ if covered && fits(here) => here,
            Some((left, until)) if Instant::now() < until && !fits(left) => left,
            _ => {
                book.lacking = Some(used.plus(reserve));
                return None;
            }
        };
        let Span::Writ(writ) = self.account.span else { return None };
        let left = self.limit.where_limited(left);
        Some(Standing { left, limit: self.limit, reserve, writ })
    }

    /// What to ask the store now, if anything.
    fn next(&self, used: Amounts, base: u64, shared: &Shared) -> Option<Draw> {
        let used = only_limited(&self.limit, used);
        let now = Instant::now();
        let mut book = self.book();
        let apart = if book.lacking.is_some() { WAITING } else { TELLING };
        if book.asked_at.is_some_and(|asked_at| now < asked_at + apart) {
            return None;
        }
        if let Some(sent) = &book.sent {
            return Some(sent.clone());
        }
        let warn_at = shared.options.warn_at.clone();
        let lacking = book.lacking.take();
        let idle = book.drawn.minus(used);
        if lacking.is_none() && book.told == used && idle == Amounts::default() {
            return None;
        }
        // What is not needed is given back before the store is told so.
        let spare =
            if lacking.is_some() { Amounts::default() } else { idle.minus(part(book.left)) };
        book.drawn = larger(book.drawn.minus(spare), used);
        let need = lacking.map_or_else(Amounts::default, |total| total.minus(book.drawn));
        let idle = book.drawn.minus(used);
        let want = times(need, AHEAD);
        let telling = self.telling(used, book.drawn);
        Some(book.send(base, Draw { idle, need, want, warn_at, ..telling }))
    }

    /// Whether the store knows what was used.
    fn knows(&self, used: Amounts) -> bool {
        let book = self.book();
        book.sent.is_none() && book.told == only_limited(&self.limit, used)
    }

    /// What is told in between, if the store does not know: what is not used is kept. Whatever was asked
    /// before counts no more.
    fn word(&self, used: Amounts, base: u64, warn_at: &[u8]) -> Option<Draw> {
        if self.knows(used) {
            return None;
        }
        let used = only_limited(&self.limit, used);
        let mut book = self.book();
        book.drawn = larger(book.drawn, used);
        let (idle, warn_at) = (book.drawn.minus(used), warn_at.to_vec());
        let telling = self.telling(used, book.drawn);
        Some(book.send(base, Draw { idle, warn_at, ..telling }))
    }

    /// What is told at the end: whatever was asked before counts no more.
    fn last_word(&self, used: Amounts, base: u64, warn_at: &[u8]) -> Option<Draw> {
        let used = only_limited(&self.limit, used);
        let mut book = self.book();
        if book.asked > 0 && book.sent.is_none() && book.drawn == used && book.told == used {
            return None;
        }
        book.drawn = used;
        let warn_at = warn_at.to_vec();
        Some(book.send(base, Draw { warn_at, ..self.telling(used, used) }))
    }

    fn telling(&self, used: Amounts, keep: Amounts) -> Draw {
        Draw { limit: self.limit, keep, used, ..Draw::default() }
    }

    /// The store has answered a draw. True when whoever waits may look again.
    fn answered(&self, draw: &Draw, drawn: &Drawn, freed: bool) -> bool {
        let now = Instant::now();
        let mut book = self.book();
        book.sent = None;
        book.asked_at = Some(now);
        book.left = drawn.left;
        book.told = draw.used;
        book.drawn = draw.keep.plus(drawn.drawn.minus(draw.keep));
        if draw.need == Amounts::default() {
            return false;
        }
        let granted = drawn.drawn != draw.keep;
        let comes_back = !granted && (drawn.comes_back || freed);
        let left = drawn.left.plus(book.drawn.minus(draw.used));
        book.nothing = (!granted && !comes_back).then(|| (left, now + BELIEVED));
        !comes_back || freed
    }
}

impl Book {
    fn send(&mut self, base: u64, draw: Draw) -> Draw {
        self.asked += 1;
        let draw = Draw { seq: base + self.asked, ..draw };
        self.sent = Some(draw.clone());
        draw
    }
}
