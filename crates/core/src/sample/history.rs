//! Whole histories drawn from a number: jobs, sessions, registries and branches, some with little to spend,
//! some with steps that rest before they are tried again.

use super::{CALL_COST, Cast, Dice, EPOCH, SampleError, author, compiler, person, sample_plan};
use crate::amounts::Budget;
use crate::body::{Branch, BranchMode};
use crate::digest::{Digest, Seed};
use crate::entry::{Author, Body};
use crate::ids::TrajectoryId;
use crate::projection::Admitted;
use crate::state::{Act, Admission, Offer, Scope, State};
use crate::time::UnixMs;

/// A history, and what it takes to go on with it.
#[derive(Clone, Debug)]
pub struct History {
    /// Who acts in it.
    pub cast: Cast,
    /// What was there before: nothing, or the source of a branch, or what was taken.
    pub base: State,
    /// Everything that was added since.
    pub admission: Admission,
    /// The trajectory that it branches from, as one append.
    pub source: Option<Admitted>,
    /// How late it is.
    pub now: UnixMs,
    /// What happens next.
    pub dice: Dice,
}

impl History {
    /// A trajectory that has begun and is claimed, if it is of a kind that is.
    pub fn begin(trajectory: TrajectoryId, mut dice: Dice) -> Result<Self, SampleError> {
        let mut cast = Cast::new(1);
        cast.style.rests = dice.below(2) == 0;
        if dice.below(3) == 0 {
            cast.style.budget = Budget {
                calls: Some(CALL_COST.calls * (2 + dice.below(8))),
                money_micros: (dice.below(2) == 0).then_some(CALL_COST.money_micros * 6),
                ..Budget::default()
            };
        }
        let nothing = State::new(trajectory);
        let (mut base, mut now, mut source) = (nothing.clone(), EPOCH, None);
        let admission = match dice.below(8) {
            0 => {
                let mut admission = nothing.admit();
                let by = author(admission.state(), Act::Begin)?;
                admission.push(now, by, cast.registry_root()?)?;
                admission
            }
            1 => cast.begin_session(trajectory)?,
            2..=4 => cast.begin_job(trajectory)?,
            _ => {
                let from = cast.source_of(trajectory, &mut now, &mut dice)?;
                base = from.commit.branching(trajectory);
                source = from.admitted;
                cast.begin_branch(&base, &from.commit, now, &mut dice)?
            }
        };
        Ok(Self { cast, base, admission, source, now, dice })
    }

    /// Adds `length` entries at random.
    pub fn wander(&mut self, length: usize) -> Result<(), SampleError> {
        self.cast.wander(&mut self.admission, length, &mut self.now, &mut self.dice)
    }

    /// Adds what the offer is about.
    pub fn push(&mut self, offer: &Offer) -> Result<(), SampleError> {
        self.cast.push(&mut self.admission, offer, self.now, &mut self.dice)
    }

    /// Takes what was added, as one append. None when nothing was.
    pub fn take(&mut self) -> Option<Admitted> {
        let next = self.admission.state().admit();
        let (admitted, state) = std::mem::replace(&mut self.admission, next).finish()?;
        self.base = state;
        Some(admitted)
    }

    /// Asks for it to stop. False when that is not offered.
    pub fn cancel(&mut self) -> Result<bool, SampleError> {
        let offer = Offer { act: Act::RequestCancel, on: Scope::Trajectory };
        let offered = self.admission.state().next(self.now).contains(&offer);
        if offered {
            self.push(&offer)?;
        }
        Ok(offered)
    }
}

/// Where a branch begins.
struct Source {
    /// The source, folded up to one of its commits.
    commit: State,
    admitted: Option<Admitted>,
}

impl Cast {
    /// A job or session with some past, as it stood at one of its commits.
    fn source_of(
        &self,
        trajectory: TrajectoryId,
        now: &mut UnixMs,
        dice: &mut Dice,
    ) -> Result<Source, SampleError> {
        let id = TrajectoryId::of_child(trajectory, &"source".parse()?, 1);
        // One that fails early may have no commit, and never gets one.
        for _ in 0..64 {
            let (mut at, mut commits) = (*now, Vec::new());
            let mut source = match dice.below(4) {
                0 => self.begin_session(id)?,
                _ => self.begin_job(id)?,
            };
            for _ in 0..=dice.below(40) {
                self.wander(&mut source, 1, &mut at, dice)?;
                let state = source.state();
                if state.last_commit() == state.head().map(|head| head.id) {
                    commits.push(state.clone());
                }
            }
            if let Some(commit) = dice.pick(&commits).cloned() {
                *now = at;
                let admitted = source.finish().map(|(admitted, _)| admitted);
                return Ok(Source { commit, admitted });
            }
        }
        Err(SampleError::NothingTo(Act::Begin))
    }

    fn begin_branch(
        &self,
        base: &State,
        source: &State,
        now: UnixMs,
        dice: &mut Dice,
    ) -> Result<Admission, SampleError> {
        let modes = [BranchMode::Recorded, BranchMode::Ask, BranchMode::Live];
        let nothing = || SampleError::NothingTo(Act::Begin);
        let head = source.head().ok_or_else(nothing)?;
        let branch = Branch {
            compiler: compiler(),
            mandate: self.mandate(base.trajectory())?,
            mode: dice.pick(&modes).copied().ok_or_else(nothing)?,
            note: "what if".to_owned(),
            principal: person()?,
            seed: Seed::new(Digest::of(b"branch")),
            source: source.trajectory(),
            source_commit: head.id,
            source_head: head,
        };
        let mut admission = base.admit();
        let by = Author::Principal(person()?);
        admission.push(now, by.clone(), Body::Branch(Box::new(branch)))?;
        let replans = admission.state().next(now).iter().any(|offer| offer.act == Act::Plan);
        if replans && dice.below(3) == 0 {
            admission.push(now, by, Body::Plan(Box::new(sample_plan()?)))?;
        }
        let claim = Offer { act: Act::Attempt, on: Scope::Trajectory };
        self.push(&mut admission, &claim, now, dice)?;
        Ok(admission)
    }
}
