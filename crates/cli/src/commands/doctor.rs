//! `gesta doctor`: whether a workspace and its store are in order, and mending what can be rebuilt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use clap::Args;
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::projection::{Parked, Projection};
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_core::trust::Role;
use gesta_store::{BundleRow, Chain, ParkedListing, Store, TrajectoryRow};
use gesta_verify::bundle::Bundle;
use serde::Serialize;
use serde_json::{Value, json};

use super::verify::bar;
use crate::escape::visible;
use crate::output::counted;
use crate::session::Session;
use crate::workspace::Workspace;
use crate::{archive, chains, key_file, moment, output, sealing};

/// How many rows are read at a time.
const PAGE: usize = 512;
/// How often a trajectory that grows meanwhile is read again.
const REREADS: usize = 5;
/// How far in the future an entry may be before a clock is called wrong.
const SKEW_MS: u64 = 5 * 60 * 1000;
/// When this was written: a clock that shows less is wrong.
const WRITTEN: UnixMs = UnixMs(1_790_000_000_000);

/// Check the workspace and the store, and rebuild projections
#[derive(Debug, Args)]
#[command(after_help = "\
Checked are the store and its schema, that every trajectory folds, that the projections (status,
queue, parked steps) are what folding gives, that the store is not behind its anchor file, that bundles of archived trajectories are there, key files, the trust root, and the clock. Signatures are
for `gesta verify`. The exit code is 1 if something is wrong and was not repaired.

Examples:
  gesta doctor
  gesta doctor --rebuild")]
pub(crate) struct Arguments {
    /// Rewrite projections that differ from what the chains say
    #[arg(long)]
    rebuild: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    Ok,
    Repaired,
    Wrong,
}

/// What one check came to.
#[derive(Debug, Serialize)]
struct Checked {
    check: &'static str,
    health: Health,
    what: String,
}

#[derive(Default)]
struct Examination(Vec<Checked>);

impl Examination {
    fn add(&mut self, check: &'static str, health: Health, what: impl Into<String>) {
        self.0.push(Checked { check, health, what: what.into() });
    }

    /// Good, or bad and why.
    fn judge(&mut self, check: &'static str, good: impl Into<String>, bad: Vec<String>) {
        if bad.is_empty() {
            self.add(check, Health::Ok, good);
        }
        bad.into_iter().for_each(|what| self.add(check, Health::Wrong, what));
    }
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let mut examination = Examination::default();
    let workspace = Session::find_workspace()?;
    if let Some(workspace) = &workspace {
        keys(workspace, &mut examination);
        trust(workspace, &mut examination);
    }
    let place = session.place()?;
    match session.wait(place.open()) {
        Err(error) => examination.add("store", Health::Wrong, format!("{error:#}")),
        Ok(store) => {
            examination.add("store", Health::Ok, format!("`{place}` opens; its schema is current"));
            let rows = session.wait(chains::all(&store))?;
            clock(&rows, &mut examination);
            folds(session, &store, &rows, arguments.rebuild, &mut examination)?;
            anchor(session, &store, &mut examination);
            bundles(session, &store, workspace.as_ref(), &mut examination)?;
            if let Some(workspace) = &workspace {
                registry(workspace, &rows, &mut examination);
            }
        }
    }
    print(session, &examination)
}

fn print(session: &mut Session, examination: &Examination) -> Result<u8> {
    let wrong = examination.0.iter().filter(|checked| checked.health == Health::Wrong).count();
    if session.out.is_json() {
        session.out.document(&json!({ "ok": wrong == 0, "checks": examination.0 }))?;
    } else {
        for Checked { check, health, what } in &examination.0 {
            let (word, colour) = match health {
                Health::Ok => ("ok", AnsiColor::Green),
                Health::Repaired => ("repaired", AnsiColor::Yellow),
                Health::Wrong => ("WRONG", AnsiColor::Red),
            };
            let style = Style::new().fg_color(Some(colour.into()));
            session
                .out
                .line(format!("{style}{word:<8}{style:#}  {check:<11}  {}", visible(what)))?;
        }
    }
    let rebuildable =
        |checked: &Checked| checked.health == Health::Wrong && checked.check == "projections";
    if examination.0.iter().any(rebuildable) {
        Session::note("hint: `gesta doctor --rebuild` rewrites projections from the chains");
    }
    Ok(u8::from(wrong > 0))
}

fn keys(workspace: &Workspace, examination: &mut Examination) {
    let directory = workspace.keys();
    let mut bad = Vec::new();
    let mut found: u64 = 0;
    match std::fs::metadata(&directory) {
        Ok(metadata) => {
            if let Some(mode) = key_file::readable_by_others(&metadata) {
                let shown = directory.display();
                bad.push(format!(
                    "`{shown}` is open to others (mode {mode:04o}); run `chmod 700 {shown}`"
                ));
            }
        }
        Err(_) => {
            let what =
                format!("there is no directory `{}`: no private keys here", directory.display());
            return examination.add("keys", Health::Ok, what);
        }
    }
    let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    for path in
        files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "pem"))
    {
        found += 1;
        if let Err(error) = key_file::read(&path) {
            bad.push(format!(
                "{error:#}; `chmod 600 {}` if only its mode is wrong",
                path.display()
            ));
        }
    }
    examination.judge("keys", format!("{}, private", counted(found, "key file", "key files")), bad);
}

fn trust(workspace: &Workspace, examination: &mut Examination) {
    match Session::trust(Some(&workspace.trust())) {
        Err(error) => examination.add("trust", Health::Wrong, format!("{error:#}")),
        Ok(root) => {
            let owners = root.keys.iter().filter(|key| key.roles.contains(&Role::Owner));
            let bad = match owners.count() {
                0 => vec![
                    "the trust root names no key with the role `owner`: no registry counts"
                        .to_owned(),
                ],
                _ => Vec::new(),
            };
            let keys = counted(root.keys.len() as u64, "key", "keys");
            examination.judge("trust", format!("{keys} in the trust root"), bad);
        }
    }
}

fn registry(workspace: &Workspace, rows: &[TrajectoryRow], examination: &mut Examination) {
    let id = workspace.config.registry;
    let bad = match rows.iter().any(|row| row.trajectory == id) {
        true => Vec::new(),
        false => vec![format!("the registry {id} of gesta.toml is not in this store")],
    };
    examination.judge("registry", format!("{id} is there"), bad);
}

fn clock(rows: &[TrajectoryRow], examination: &mut Examination) {
    let now = Session::now();
    let newest = rows.iter().map(|row| row.summary.changed_at).max().unwrap_or_default();
    let mut bad = Vec::new();
    if now < WRITTEN {
        bad.push(format!("the clock of this machine shows {}", moment::utc(now)));
    } else if newest > now.plus(SKEW_MS) {
        bad.push(format!(
            "the newest entry is of {}, and the clock of this machine shows {}",
            moment::utc(newest),
            moment::utc(now)
        ));
    }
    examination.judge("clock", format!("{}, behind no entry", moment::utc(now)), bad);
}

/// Whether the store has what this machine remembers of it.
fn anchor(session: &Session, store: &Arc<dyn Store>, examination: &mut Examination) {
    let bad = match sealing::behind(session, &**store) {
        Ok(found) => found.map(|finding| finding.what),
        Err(error) => Some(format!("{error:#}")),
    };
    examination.judge(
        "anchor",
        "nothing that was acknowledged is missing",
        bad.into_iter().collect(),
    );
}

/// Whether the bundles of what is archived are there, as they were written.
fn bundles(
    session: &Session,
    store: &Arc<dyn Store>,
    workspace: Option<&Workspace>,
    examination: &mut Examination,
) -> Result<()> {
    let bundles = session.wait(store.archives().bundles())?;
    if bundles.is_empty() {
        return Ok(());
    }
    let directory = workspace.and_then(Workspace::archive);
    let (mut bad, mut archived) = (Vec::new(), 0);
    for BundleRow { bundle, sha256, trajectories } in &bundles {
        archived += trajectories;
        let of = counted(*trajectories, "trajectory", "trajectories");
        let found = archive::find(bundle, directory.as_deref());
        let Some(path) = found else {
            bad.push(format!("`{bundle}` with {of} is not there"));
            continue;
        };
        let digest = Bundle::open(&path).ok().and_then(|bundle| bundle.digest().ok());
        if digest.map(|found| found.sha256) != Some(*sha256) {
            bad.push(format!("`{}` with {of} is not what was archived", path.display()));
        }
    }
    let archived = counted(archived, "trajectory", "trajectories");
    let files = counted(bundles.len() as u64, "bundle", "bundles");
    examination.judge("archive", format!("{archived} in {files}, all there"), bad);
    Ok(())
}

/// Folds every trajectory that is here and compares its rows with what comes out.
fn folds(
    session: &Session,
    store: &Arc<dyn Store>,
    rows: &[TrajectoryRow],
    rebuild: bool,
    examination: &mut Examination,
) -> Result<()> {
    let here: Vec<&TrajectoryRow> = rows.iter().filter(|row| row.archived.is_none()).collect();
    let entries: u64 = here.iter().map(|row| row.head.seq + 1).sum();
    let bar = bar(output::shows_progress(session.out.is_json()), entries);
    let (mut broken, mut differing, mut repaired) = (Vec::new(), Vec::new(), Vec::new());
    for row in &here {
        match session.wait(compare(store, row.trajectory)) {
            Err(error) => broken.push(format!("{}: {error:#}", row.trajectory)),
            Ok((_, differences)) if differences.is_empty() => {}
            Ok((state, differences)) if rebuild => {
                session.wait(reproject(store, &state))?;
                repaired.extend(differences);
            }
            Ok((_, differences)) => differing.extend(differences),
        }
        bar.inc(row.head.seq + 1);
    }
    bar.finish_and_clear();
    let strays = session.wait(strays(store, rows))?;
    differing.extend(strays);
    let count = counted(here.len() as u64, "trajectory", "trajectories");
    let entries = counted(entries, "entry", "entries");
    examination.judge("chains", format!("{count} with {entries}, all legal"), broken);
    for what in &repaired {
        examination.add("projections", Health::Repaired, what.as_str());
    }
    examination.judge("projections", "all rows are what folding gives", differing);
    Ok(())
}

/// The folded state, and how the trajectory's rows differ from it. One that grows meanwhile is read
/// again.
async fn compare(store: &Arc<dyn Store>, id: TrajectoryId) -> Result<(State, Vec<String>)> {
    let mut chain = Chain::load(Arc::clone(store), id).await?;
    for _ in 0..REREADS {
        let row = store.trajectory(id).await?;
        let parked = parked(store, id).await?;
        chain.refresh().await?;
        let state = chain.state().clone();
        let settled =
            store.trajectory(id).await?.map(|row| row.head) == row.as_ref().map(|row| row.head);
        if settled {
            let differences = differences(&state, row.as_ref(), &parked)?;
            return Ok((state, differences));
        }
    }
    Ok((chain.state().clone(), Vec::new()))
}

async fn parked(store: &Arc<dyn Store>, id: TrajectoryId) -> Result<BTreeMap<StepId, Parked>> {
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
    row: Option<&TrajectoryRow>,
    parked: &BTreeMap<StepId, Parked>,
) -> Result<Vec<String>> {
    let id = state.trajectory();
    let mut found = Vec::new();
    let Some(row) = row else { return Ok(vec![format!("{id}: its row is gone")]) };
    if Some(row.head) != state.head() {
        // The row's head is what appends are compared with: it is not rebuilt from a shorter chain.
        anyhow::bail!("its row ends at entry {}, and its chain elsewhere", row.head.seq);
    }
    let (Value::Object(is), Value::Object(should)) = (json!(row.summary), json!(state.summary()))
    else {
        anyhow::bail!("it has not begun");
    };
    for (field, should) in &should {
        match is.get(field) {
            Some(is) if is == should => {}
            is => found.push(format!(
                "{id}: {field} is {}, should be {should}",
                is.unwrap_or(&Value::Null)
            )),
        }
    }
    let mut expected: BTreeMap<StepId, Parked> =
        state.parked().map(|parked| (parked.step.clone(), parked)).collect();
    for (step, is) in parked {
        match expected.remove(step) {
            Some(should) if should == *is => {}
            Some(_) => found.push(format!("{id}: the row of parked step `{step}` differs")),
            None => found.push(format!("{id}: step `{step}` has a row and is not parked")),
        }
    }
    found.extend(expected.keys().map(|step| format!("{id}: parked step `{step}` has no row")));
    Ok(found)
}

async fn reproject(store: &Arc<dyn Store>, state: &State) -> Result<()> {
    let (Some(head), Some(summary)) = (state.head(), state.summary()) else { return Ok(()) };
    let projection = Projection { summary, unparked: Vec::new(), parked: state.parked().collect() };
    Ok(store.reproject(state.trajectory(), head, &projection).await?)
}

/// Parked rows of trajectories that are not there.
async fn strays(store: &Arc<dyn Store>, rows: &[TrajectoryRow]) -> Result<BTreeSet<String>> {
    let known: BTreeSet<TrajectoryId> = rows.iter().map(|row| row.trajectory).collect();
    let mut found = BTreeSet::new();
    let mut listing = ParkedListing::default();
    loop {
        let page = store.parked(&listing, PAGE).await?;
        for row in page.iter().filter(|row| !known.contains(&row.trajectory)) {
            // One that began since the list was made is no stray.
            if store.trajectory(row.trajectory).await?.is_none() {
                found.insert(format!("{}: parked rows without a trajectory", row.trajectory));
            }
        }
        listing.after = page.last().map(|row| (row.trajectory, row.parked.step.clone()));
        if page.len() < PAGE {
            return Ok(found);
        }
    }
}
