//! Rows of a store beside what folding gives: how they differ, and writing them again. Nothing that a row
//! says is believed but where it ends, and that only as far as the entries bear it out; one that cannot be
//! read differs like any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use gesta_core::entry::Head;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::projection::{Parked, Projection};
use gesta_core::state::State;
use gesta_store::{Chain, Mark, ParkedListing, Store, StoreError, Trace, TrajectoryRow};
use serde_json::{Value, json};

/// How many rows are read at a time.
const PAGE: usize = 512;
/// How often a trajectory that grows meanwhile is read again.
const REREADS: usize = 5;

/// A folded trajectory beside its rows.
pub(crate) struct Compared {
    pub(crate) state: State,
    /// What its row said of where it ends.
    row: Option<Mark>,
    /// How its rows differ from what folding gives.
    pub(crate) differences: Vec<String>,
}

/// Folds a trajectory and compares its rows with what comes out. One that grows meanwhile is read again.
pub(crate) async fn compare(store: &Arc<dyn Store>, id: TrajectoryId) -> Result<Compared> {
    let mut chain = Chain::load(Arc::clone(store), id).await?;
    for _ in 0..REREADS {
        let trace = store.mending().trace(id).await?;
        let row = readable(store.trajectory(id).await)?;
        let parked = readable(parked(store, id).await)?;
        chain.refresh().await?;
        if store.mending().trace(id).await?.row == trace.row {
            let state = chain.state().clone();
            let differences = differences(&state, &trace, row, parked)?;
            return Ok(Compared { state, row: trace.row, differences });
        }
    }
    // Whoever appends writes rows with every append.
    Ok(Compared { state: chain.state().clone(), row: None, differences: Vec::new() })
}

/// Writes the rows of a trajectory again.
pub(crate) async fn rebuild(store: &Arc<dyn Store>, compared: &Compared) -> Result<()> {
    let Compared { state, row, .. } = compared;
    let (Some(head), Some(summary)) = (state.head(), state.summary()) else { return Ok(()) };
    let id = state.trajectory();
    if row.as_ref().and_then(Mark::head) != Some(head)
        && !store.mending().put_row(id, row.as_ref(), head, &summary).await?
    {
        bail!("{id} has changed meanwhile; try again");
    }
    let projection = Projection { summary, unparked: Vec::new(), parked: state.parked().collect() };
    Ok(store.reproject(id, head, &projection).await?)
}

/// What was read, or what is said of damage.
fn readable<T>(read: Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(StoreError::Damaged { what }) => Ok(Err(what)),
        Err(error) => Err(error),
    }
}

async fn parked(
    store: &Arc<dyn Store>,
    id: TrajectoryId,
) -> Result<BTreeMap<StepId, Parked>, StoreError> {
    let mut found = BTreeMap::new();
    let mut listing = ParkedListing { trajectory: Some(id), ..ParkedListing::default() };
    loop {
        let page = store.parked(&listing, PAGE).await?;
        listing.after = page.last().map(|row| (row.trajectory, row.parked.step.clone()));
        let full = page.len() == PAGE;
        found.extend(page.into_iter().map(|row| (row.parked.step.clone(), row.parked)));
        if !full {
            return Ok(found);
        }
    }
}

fn differences(
    state: &State,
    trace: &Trace,
    row: Result<Option<TrajectoryRow>, String>,
    parked: Result<BTreeMap<StepId, Parked>, String>,
) -> Result<Vec<String>> {
    let id = state.trajectory();
    let (Some(head), Some(summary)) = (state.head(), state.summary()) else {
        bail!("it has not begun")
    };
    let mut found = ended(trace.row.as_ref(), head)?;
    match row {
        Err(what) => found.push(format!("its row cannot be read: {what}")),
        Ok(None) => found.push("its row is gone".to_owned()),
        Ok(Some(row)) => found.extend(fields(&json!(row.summary), &json!(summary))),
    }
    match parked {
        Err(what) => found.push(format!("rows of its parked steps cannot be read: {what}")),
        Ok(parked) => found.extend(steps(state, &parked)),
    }
    Ok(found.into_iter().map(|what| format!("{id}: {what}")).collect())
}

/// Whether the row ends where the entries end. A row that tells of more than there is stands for entries
/// that are gone: it is all that shows that they were there, and going on without them would do again what
/// they tell of.
fn ended(row: Option<&Mark>, head: Head) -> Result<Vec<String>> {
    let Some(row) = row else { return Ok(Vec::new()) };
    match row.head() {
        Some(there) if there == head => Ok(Vec::new()),
        // An id is of one place only, so it is the number that is wrong.
        Some(there) if there.seq > head.seq && there.id != head.id => bail!(
            "its row ends at entry {}, and its entries at {}: what is between was cut off; \
             take it from a backup or a bundle",
            there.seq,
            head.seq
        ),
        Some(there) if there.seq != head.seq => Ok(vec![format!(
            "its row ends at entry {}, and its entries at {}",
            there.seq, head.seq
        )]),
        Some(_) => Ok(vec![format!("its row ends with another entry {} than is there", head.seq)]),
        None => Ok(vec!["its row does not say where it ends".to_owned()]),
    }
}

fn fields(is: &Value, should: &Value) -> Vec<String> {
    let should = should.as_object().into_iter().flatten();
    let differs = should.filter(|(field, should)| is.get(field) != Some(should));
    differs
        .map(|(field, should)| {
            format!("{field} is {}, should be {should}", is.get(field).unwrap_or(&Value::Null))
        })
        .collect()
}

fn steps(state: &State, parked: &BTreeMap<StepId, Parked>) -> Vec<String> {
    let mut found = Vec::new();
    let mut expected: BTreeMap<StepId, Parked> =
        state.parked().map(|parked| (parked.step.clone(), parked)).collect();
    for (step, is) in parked {
        match expected.remove(step) {
            Some(should) if should == *is => {}
            Some(_) => found.push(format!("the row of parked step `{step}` differs")),
            None => found.push(format!("step `{step}` has a row and is not parked")),
        }
    }
    found.extend(expected.keys().map(|step| format!("parked step `{step}` has no row")));
    found
}
