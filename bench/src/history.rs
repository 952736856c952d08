//! Histories to append and verify: calls of a session, entries of about 1 KiB, made beforehand so
//! that making them is not what is measured.

use anyhow::{Context, Result};
use gesta_core::content::Content;
use gesta_core::document::Recovery;
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::projection::Admitted;
use gesta_core::sample::{Cast, Dice, EPOCH, author};
use gesta_core::state::{Act, Admission, Offer, Scope, State, Status};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;

/// The cast of every benchmark: calls that leave no resources behind.
pub(crate) fn cast() -> Cast {
    let mut cast = Cast::new(9);
    cast.style.fixed = Some((Effect::External, Recovery::Keyed));
    cast.style.quiet = true;
    cast.style.padding = 64;
    cast
}

/// A trajectory with this number.
pub(crate) fn trajectory(number: u64) -> TrajectoryId {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(number.to_be_bytes()) {
        *to = from;
    }
    TrajectoryId::from_bytes(bytes)
}

/// Adds one entry: closes the call that is open, or opens one.
pub(crate) fn call(
    cast: &Cast,
    admission: &mut Admission,
    now: UnixMs,
    dice: &mut Dice,
) -> Result<()> {
    let open = admission.state().next(now).into_iter().find_map(|offer| match offer {
        Offer { act: Act::CommitEffect, on: Scope::Step(step) } => Some(step),
        _ => None,
    });
    let offer = match open {
        Some(step) => Offer { act: Act::CommitEffect, on: Scope::Step(step) },
        None => Offer { act: Act::Start, on: Scope::NewStep },
    };
    cast.push(admission, &offer, now, dice)?;
    Ok(())
}

/// The first append of a session, and `entries` appends of one entry each.
pub(crate) fn session(number: u64, entries: usize) -> Result<Vec<Admitted>> {
    let cast = cast();
    let mut dice = Dice::new(number);
    let mut list = Vec::with_capacity(entries + 1);
    let (begun, mut state) =
        cast.begin_session(trajectory(number))?.finish().context("a session begins")?;
    list.push(begun);
    for i in 0..entries {
        let mut admission = state.admit();
        call(&cast, &mut admission, EPOCH.plus(i as u64), &mut dice)?;
        let (admitted, next) = admission.finish().context("one entry was added")?;
        list.push(admitted);
        state = next;
    }
    Ok(list)
}

/// The first append of a session, and one append of `entries` results of about 1 KiB that no call
/// stands behind: entries without signatures.
pub(crate) fn results(number: u64, entries: usize) -> Result<Vec<Admitted>> {
    let cast = cast();
    let mut dice = Dice::new(number);
    let (begun, state) =
        cast.begin_session(trajectory(number))?.finish().context("a session begins")?;
    let mut admission = state.admit();
    let observation = Content::Inline(Canon::of(&vec!["a line of text".repeat(3); 12])?);
    for _ in 0..entries {
        let offer = Offer { act: Act::CommitComputed, on: Scope::NewStep };
        let mut body = cast.body(admission.state(), &offer, EPOCH, &mut dice)?;
        if let Body::Commit(commit) = &mut body {
            commit.observation = observation.clone();
        }
        let by = author(admission.state(), offer.act)?;
        admission.push(EPOCH, by, body)?;
    }
    let (admitted, _) = admission.finish().context("entries were added")?;
    Ok(vec![begun, admitted])
}

/// How many steps of a state are done: what a benchmark claims to have made must be there.
pub(crate) fn done(state: &State) -> usize {
    state.steps().filter(|(_, step)| matches!(step.status, Status::Done { .. })).count()
}
