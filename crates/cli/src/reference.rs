//! Naming trajectories and entries on the command line: whole ids, or as much as tells them apart.

use std::sync::Arc;

use anyhow::Result;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::TrajectoryKind;
use gesta_store::{Store, StoredEntry};

use crate::problem::Problem;

/// How many candidates of an ambiguous name are shown.
const SHOWN: usize = 10;
/// How many entries are read at a time.
const PAGE: usize = 512;
/// An entry's number has fewer digits than this; more digits are the beginning of its id.
const ID_DIGITS: usize = 8;

/// The trajectory that a text names: its id or a beginning of it, with or without `t_`.
pub(crate) async fn trajectory(store: &Arc<dyn Store>, text: &str) -> Result<TrajectoryId> {
    let digits = text.strip_prefix("t_").unwrap_or(text);
    let hexadecimal = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if digits.is_empty() || digits.len() > 32 || !hexadecimal {
        return Err(Problem::new(format!("`{text}` is not the id of a trajectory"))
            .hint("an id is `t_` and 32 hexadecimal digits; the first few are enough. `gesta log` lists them")
            .into());
    }
    let prefix = format!("t_{digits}");
    let found = beginning_with(store, digits, &prefix).await?;
    match found.as_slice() {
        [only] => Ok(*only),
        [] => Err(Problem::new(format!("there is no trajectory `{text}` in this store"))
            .hint("`gesta log` lists the trajectories")
            .into()),
        several => {
            let more = if several.len() > SHOWN { "\n  …" } else { "" };
            let list: String = several.iter().take(SHOWN).map(|id| format!("\n  {id}")).collect();
            Err(Problem::new(format!("`{text}` names several trajectories:{list}{more}"))
                .hint("give more digits")
                .into())
        }
    }
}

/// Refuses a trajectory that nobody drives.
pub(crate) async fn is_job(store: &Arc<dyn Store>, trajectory: TrajectoryId) -> Result<()> {
    let row = store.trajectory(trajectory).await?;
    match row.map(|row| row.summary.kind) {
        Some(TrajectoryKind::Job) => Ok(()),
        kind => {
            let kind = kind.map_or_else(|| "not there".to_owned(), |kind| format!("a {kind}"));
            Err(Problem::new(format!("{trajectory} is {kind}, not a job"))
                .hint("`gesta jobs` lists the jobs")
                .into())
        }
    }
}

/// Trajectories whose id begins so; one more than is shown at most.
async fn beginning_with(
    store: &Arc<dyn Store>,
    digits: &str,
    prefix: &str,
) -> Result<Vec<TrajectoryId>> {
    let lowest: Option<TrajectoryId> = format!("t_{digits:0<32}").parse().ok();
    let Some(lowest) = lowest else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    if store.mending().trace(lowest).await?.is_there() {
        found.push(lowest);
    }
    let page = store.mending().traces(Some(lowest), SHOWN).await?;
    let fitting = page.iter().filter(|trace| trace.is_there()).map(|trace| trace.trajectory);
    found.extend(fitting.take_while(|id| id.to_string().starts_with(prefix)));
    Ok(found)
}

/// The entry that a text names: `ID:NUMBER`, `ID/NUMBER`, `ID:BEGINNING-OF-ITS-ID`, or its whole id.
pub(crate) async fn entry(
    store: &Arc<dyn Store>,
    text: &str,
) -> Result<(TrajectoryId, StoredEntry)> {
    let nothing = |what: String| Problem::new(what).hint("`gesta log ID` lists the entries");
    let Some((id, place)) = text.split_once([':', '/']) else {
        let Some(digest) = Digest::from_hex(text) else {
            return Err(Problem::new(format!("`{text}` does not name an entry"))
                .hint("write `ID:NUMBER`, as in `t_4f2a:7`, or the entry's whole id")
                .into());
        };
        let located = store.locate(EntryId::new(digest)).await?;
        let (trajectory, seq) =
            located.ok_or_else(|| nothing(format!("there is no entry `{text}` in this store")))?;
        let found = store.entries(trajectory, seq, 1).await?.into_iter().next();
        let stored = found.ok_or_else(|| nothing(format!("there is no entry `{text}`")))?;
        return Ok((trajectory, stored));
    };
    let trajectory = trajectory(store, id).await?;
    let is_number = place.len() < ID_DIGITS && place.bytes().all(|b| b.is_ascii_digit());
    let found = match place.parse::<u64>() {
        Ok(seq) if is_number => {
            let page = store.entries(trajectory, seq, 1).await?;
            page.into_iter().find(|stored| stored.seq == seq)
        }
        _ => by_id(store, trajectory, place).await?,
    };
    found
        .map(|stored| (trajectory, stored))
        .ok_or_else(|| nothing(format!("there is no entry `{place}` in {trajectory}")).into())
}

/// The place that a text names by number, `ID:NUMBER`, whether or not the entry is at hand.
pub(crate) async fn numbered(
    store: &Arc<dyn Store>,
    text: &str,
) -> Result<Option<(TrajectoryId, u64)>> {
    let Some((id, place)) = text.split_once([':', '/']) else { return Ok(None) };
    let is_number = place.len() < ID_DIGITS && place.bytes().all(|b| b.is_ascii_digit());
    match place.parse::<u64>() {
        Ok(seq) if is_number => Ok(Some((trajectory(store, id).await?, seq))),
        _ => Ok(None),
    }
}

async fn by_id(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    prefix: &str,
) -> Result<Option<StoredEntry>> {
    let mut found: Option<StoredEntry> = None;
    let mut from = 0;
    loop {
        let page = store.entries(trajectory, from, PAGE).await?;
        let full = page.len() == PAGE;
        for stored in page {
            from = stored.seq + 1;
            if !prefix.is_empty() && stored.id.to_string().starts_with(prefix) {
                if let Some(first) = &found {
                    let (one, other) = (first.seq, stored.seq);
                    return Err(Problem::new(format!(
                        "`{prefix}` names several entries, {one} and {other} among them"
                    ))
                    .hint("give more digits")
                    .into());
                }
                found = Some(stored);
            }
        }
        if !full {
            return Ok(found);
        }
    }
}
