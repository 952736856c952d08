//! `gesta verify`: whether trajectories of a store hold, against a trust root.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use gesta_core::ids::TrajectoryId;
use gesta_core::trust::Keyring;
use gesta_store::{Store, Which};
use gesta_verify::engine::{self, Demand, Options, Progress};
use gesta_verify::report::Report;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::chains::{self, StoreChains};
use crate::problem::Problem;
use crate::registry::Registry;
use crate::session::Session;
use crate::{output, place, reference, sealing};

/// Verify trajectories of the store
#[derive(Debug, Args)]
#[command(after_help = "\
Checked are canonical bytes, ids, links, signatures, roles, the legality of every entry, blobs,
writs, what trajectories say of each other, and what the transparency log held of them. With ids, what those rest on is verified too:
registries, sources of branches, parents and children. What is archived is read from its bundle. With
`--sealed` the store is also compared with the anchor file, which tells when an older copy was put in
its place. The exit code says what was found.

Examples:
  gesta verify
  gesta verify t_4f2a --trust auditors.json
  gesta verify --json | jq .findings")]
pub(crate) struct Arguments {
    /// The trajectories; all of them if none is named
    #[arg(value_name = "ID")]
    trajectories: Vec<String>,
    /// Whom to trust [default: from gesta.toml]
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    /// Only the trajectories named: what they rest on is listed as not checked
    #[arg(long, requires = "trajectories")]
    only: bool,
    /// Every trajectory must be in the transparency log, to its last entry
    #[arg(long)]
    sealed: bool,
    /// Only what is in the store: bundles of archived trajectories are not read
    #[arg(long, conflicts_with = "trajectories")]
    here: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    if let Some(file) = arguments.trajectories.iter().find(|text| is_file(text)) {
        return Err(Problem::new(format!("`{file}` is a file, and no trajectory of the store"))
            .hint(format!("`gesta-verify --trust FILE {file}` verifies a bundle"))
            .bad_input()
            .into());
    }
    let trust = Session::trust(arguments.trust.as_deref())?.keyring()?;
    let store = session.store_to_read()?;
    let mut asked = Vec::new();
    for text in &arguments.trajectories {
        asked.push(session.wait(reference::trajectory(&store, text))?);
    }
    if arguments.here {
        let traces = session.wait(chains::traces(&store))?;
        let here = traces.into_iter().filter(|trace| trace.is_there() && !trace.is_archived());
        asked.extend(here.map(|trace| trace.trajectory));
    }
    let started = Instant::now();
    let demand = Demand { sealed: arguments.sealed, ..Demand::default() };
    let only = arguments.only || arguments.here;
    let mut report = verify(session, &store, &asked, &trust, (only, &demand))?;
    if arguments.sealed
        && let Some(finding) = sealing::behind(session, &*store)?
    {
        report = report.and(finding);
    }
    print(session, &report, started.elapsed())?;
    Ok(report.exit_code())
}

/// Whether somebody who has a bundle takes this for the program that verifies it.
fn is_file(text: &str) -> bool {
    !text.starts_with("t_") && text.contains(['.', '/']) && Path::new(text).is_file()
}

/// Verifies some trajectories and what they rest on, or all.
pub(super) fn verify(
    session: &Session,
    store: &Arc<dyn Store>,
    asked: &[TrajectoryId],
    trust: &Keyring,
    (only, demand): (bool, &Demand),
) -> Result<Report> {
    let chains = chains(session, store, asked, only)?;
    let bar = bar(output::shows_progress(session.out.is_json()), chains.entry_count());
    let progress = |progress: Progress| bar.set_position(progress.entries);
    let options = Options {
        threads: NonZeroUsize::new(place::threads()).unwrap_or(NonZeroUsize::MIN),
        partial: only,
        demand,
        progress: Some(&progress),
        ..Options::default()
    };
    let report = engine::verify(&chains, trust, &options);
    bar.finish_and_clear();
    Ok(report)
}

/// The trajectories with what the log held of them. The checkpoint is chosen first: what is read after it
/// has at least what it holds.
fn chains(
    session: &Session,
    store: &Arc<dyn Store>,
    asked: &[TrajectoryId],
    only: bool,
) -> Result<StoreChains> {
    let mut from = asked.to_vec();
    if !asked.is_empty() && !only {
        // Whoever signs may be known to a registry that no trajectory names.
        from.extend(Registry::find(session, store)?);
    }
    for _ in 0..sealing::TRIES {
        let row = session.wait(store.log().checkpoint(Which::Newest))?;
        let ends = if asked.is_empty() {
            session.wait(chains::ends(store))?
        } else {
            session.wait(chains::walk(store, &from, !only, |_| Ok(())))?
        };
        let made =
            |ends, sealing| StoreChains::new(Arc::clone(store), session.handle(), ends, sealing);
        let Some(row) = row else { return Ok(made(ends, None)) };
        let some: Vec<TrajectoryId> = ends.keys().copied().collect();
        let some = (!asked.is_empty()).then_some(some.as_slice());
        if let Some(sealing) = session.wait(sealing::evidence(&**store, &row, some))? {
            return Ok(made(ends, Some(sealing)));
        }
    }
    Err(sealing::not_shown().into())
}

/// A bar on stderr, if it is a terminal.
pub(super) fn bar(shown: bool, length: u64) -> ProgressBar {
    if !shown {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10));
    let style = "{wide_bar} {human_pos}/{human_len} entries, {per_sec}, {eta} left";
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Prints a report, with the time it took for people.
pub(super) fn print(session: &mut Session, report: &Report, took: Duration) -> Result<()> {
    if session.out.is_json() {
        return session.out.document(report);
    }
    session.out.text(&crate::escape::visible_lines(&report.to_string()))?;
    Session::note(&format!("verified in {:.2} s", took.as_secs_f64()));
    Ok(())
}
