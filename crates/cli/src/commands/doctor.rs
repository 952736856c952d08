//! `gesta doctor`: whether a workspace and its store are in order, and mending what can be rebuilt.

use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use clap::Args;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_core::trust::Role;
use gesta_store::{BundleRow, Store, Trace};
use gesta_verify::bundle::Bundle;
use serde::Serialize;
use serde_json::json;

use super::verify::bar;
use crate::escape::visible;
use crate::output::counted;
use crate::place::Place;
use crate::projections::{self, Compared};
use crate::session::Session;
use crate::workspace::Workspace;
use crate::{archive, chains, key_file, moment, output, sealing};

/// How far in the future an entry may be before a clock is called wrong.
const SKEW_MS: u64 = 5 * 60 * 1000;
/// When this was written: a clock that shows less is wrong.
const WRITTEN: UnixMs = UnixMs(1_790_000_000_000);

/// Check the workspace and the store, and rebuild projections
#[derive(Debug, Args)]
#[command(after_help = "\
Checked are the store and its schema, that every trajectory folds, that the projections (status,
queue, parked steps) are what folding gives, that the store is not behind its anchor file,
that bundles of archived trajectories are there, key files, where data keys are, the trust root, and
the clock. Signatures are for `gesta verify`. The exit code is 1 if something is wrong and was not repaired.

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
    /// Nothing is wrong, and something is not as it could be.
    Warning,
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
    data_keys(&place, workspace.as_ref(), &mut examination)?;
    let opened = match arguments.rebuild {
        true => session.wait(place.open()),
        false => session.wait(place.open_to_read()),
    };
    match opened {
        Err(error) => examination.add("store", Health::Wrong, format!("{error:#}")),
        Ok(store) => {
            schema(&place, &mut examination);
            let traces = session.wait(chains::traces(&store))?;
            let folded = fold(session, &store, &traces, arguments.rebuild)?;
            clock(folded.newest, &mut examination);
            folded.tell(arguments.rebuild, &mut examination);
            anchor(session, &store, &mut examination);
            bundles(session, &store, workspace.as_ref(), &mut examination)?;
            if let Some(workspace) = &workspace {
                registry(workspace, &traces, &mut examination);
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
                Health::Warning => ("warning", AnsiColor::Yellow),
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

/// A store that opens, and whether its tables are what this program makes of them.
fn schema(place: &Place, examination: &mut Examination) {
    match place.behind() {
        None => {
            let good = format!("`{place}` opens; its schema is current");
            examination.add("store", Health::Ok, good);
        }
        Some((version, newest)) => examination.add(
            "store",
            Health::Warning,
            format!(
                "`{place}` has schema version {version} of {newest} and is read from a copy; whatever writes brings \
                 it up to date, as `gesta doctor --rebuild`"
            ),
        ),
    }
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

/// Whether the keys of sensitive values are where copies of the store do not take them along: what is erased would
/// come back with one.
fn data_keys(
    store: &Place,
    workspace: Option<&Workspace>,
    examination: &mut Examination,
) -> Result<()> {
    let at = match workspace {
        Some(workspace) => workspace.data_keys_at(store)?,
        None => store.data_keys_at(),
    };
    let (check, shown) = ("data keys", at.to_string());
    if shown != store.to_string() {
        examination.add(check, Health::Ok, format!("`{shown}`, apart from the store"));
    } else {
        examination.add(check, Health::Warning, "those of sensitive values are in the store's database: copies of it have them, and erasing does not reach a copy; name a file or another database with `data_keys` in gesta.toml before there are any, or leave the schema `gesta_keys` out of every copy");
    }
    Ok(())
}

fn registry(workspace: &Workspace, traces: &[Trace], examination: &mut Examination) {
    let id = workspace.config.registry;
    let bad = match traces.iter().any(|trace| trace.trajectory == id && trace.is_there()) {
        true => Vec::new(),
        false => vec![format!("the registry {id} of gesta.toml is not in this store")],
    };
    examination.judge("registry", format!("{id} is there"), bad);
}

fn clock(newest: UnixMs, examination: &mut Examination) {
    let now = Session::now();
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

/// What folding every trajectory that is here has told.
#[derive(Default)]
struct Folded {
    trajectories: u64,
    entries: u64,
    /// When the newest entry is of.
    newest: UnixMs,
    broken: Vec<String>,
    /// Rows that differ from what folding gives, or did.
    differing: Vec<String>,
}

/// Folds every trajectory that is here, compares its rows with what comes out, and writes them again if that
/// is asked for.
fn fold(
    session: &Session,
    store: &Arc<dyn Store>,
    traces: &[Trace],
    rebuild: bool,
) -> Result<Folded> {
    let mut folded = Folded::default();
    let here = || traces.iter().filter(|trace| !trace.is_archived());
    let ends = here().filter_map(Trace::head);
    let expected = ends.fold(0, |sum: u64, head| sum.saturating_add(head.seq).saturating_add(1));
    let bar = bar(output::shows_progress(session.out.is_json()), expected);
    for trace in here() {
        let id = trace.trajectory;
        match &trace.row {
            _ if trace.entries => {
                let compared = session.wait(projections::compare(store, id));
                if let Some(compared) = folded.take(id, compared).filter(|_| rebuild) {
                    session.wait(projections::rebuild(store, &compared))?;
                }
            }
            Some(row) => folded.broken.push(format!(
                "{id}: its row ends at entry {}, and it has no entries; take them from a backup or a bundle",
                row.seq
            )),
            // One that began since the list was made is no stray.
            None if session.wait(store.mending().trace(id))?.is_there() => continue,
            None => {
                folded.differing.push(format!("{id}: parked rows without a trajectory"));
                if rebuild {
                    session.wait(store.mending().drop_parked(id))?;
                }
                continue;
            }
        }
        folded.trajectories += 1;
        bar.set_position(folded.entries);
    }
    bar.finish_and_clear();
    Ok(folded)
}

impl Folded {
    /// Takes note of one. Handed back if its rows differ.
    fn take(&mut self, id: TrajectoryId, compared: Result<Compared>) -> Option<Compared> {
        match compared {
            Err(error) => {
                self.broken.push(format!("{id}: {error:#}"));
                None
            }
            Ok(compared) => {
                self.entries += compared.state.head().map_or(0, |head| head.seq + 1);
                self.newest = self.newest.max(compared.state.at());
                self.differing.extend(compared.differences.iter().cloned());
                (!compared.differences.is_empty()).then_some(compared)
            }
        }
    }

    fn tell(mut self, rebuilt: bool, examination: &mut Examination) {
        let trajectories = counted(self.trajectories, "trajectory", "trajectories");
        let entries = counted(self.entries, "entry", "entries");
        let good = format!("{trajectories} with {entries}, all legal");
        examination.judge("chains", good, self.broken);
        if rebuilt {
            for what in self.differing.drain(..) {
                examination.add("projections", Health::Repaired, what);
            }
        }
        examination.judge("projections", "all rows are what folding gives", self.differing);
    }
}
