//! `gesta import`: the trajectories of a bundle into a store, once the bundle is verified.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{self, Chains as _, Options, Progress};
use serde_json::json;

use super::verify;
use crate::output::{self, counted};
use crate::problem::Problem;
use crate::session::Session;
use crate::{importing, place};

/// Take the trajectories of a bundle into the store
#[derive(Debug, Args)]
#[command(after_help = "\
The bundle is verified first, against whom you trust; one that does not hold is refused, and nothing
is written. What the store has already is left as it is; where the two differ, the import is refused
with the first entry that does. Killed in the middle, the same import goes on. What was archived comes
back.
A trajectory that has not ended is refused: workers here would go on with it, beside those where it
comes from. `--open` takes it all the same, for when the other store is gone.
The exit codes are those of `gesta verify`.

Examples:
  gesta import refund.gesta
  gesta import everything.gesta --trust theirs.json --store archive.db")]
pub(crate) struct Arguments {
    /// The bundle
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Whom to trust [default: from gesta.toml]
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
    /// Take trajectories that have not ended, too: workers of this store go on with them
    #[arg(long)]
    open: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let trust = Session::trust(arguments.trust.as_deref())?.keyring()?;
    let bundle = Bundle::open(&arguments.file).map_err(|finding| {
        Problem::new(format!("`{}`: {finding}", arguments.file.display())).class(finding.class)
    })?;
    let started = Instant::now();
    let bar = verify::bar(output::shows_progress(session.out.is_json()), bundle.entry_bytes());
    let progress = |progress: Progress| bar.set_position(progress.bytes);
    let options = Options {
        threads: NonZeroUsize::new(place::threads()).unwrap_or(NonZeroUsize::MIN),
        progress: Some(&progress),
        ..Options::default()
    };
    let report = engine::verify(&bundle, &trust, &options);
    bar.finish_and_clear();
    if report.exit_code() != 0 {
        verify::print(session, &report, started.elapsed())?;
        Session::note("nothing was imported");
        return Ok(report.exit_code());
    }
    let place = session.place()?;
    let store = session.wait(place.make())?;
    let planned = session.wait(importing::plan(&store, &bundle, arguments.open))?;
    let added = session.wait(importing::carry_out(&store, &bundle, &planned))?;
    let new = planned.iter().filter(|one| one.there.is_none()).count() as u64;
    let back = planned.iter().filter(|one| one.archived).count() as u64;
    let grown = planned.iter().filter(|one| one.there.is_some() && one.missing > 0);
    let extended = grown.count() as u64 - back;
    let blobs = bundle.listed_blobs().map_or(0, |listed| listed.len() as u64);
    if session.out.is_json() {
        let ids: Vec<_> = planned.iter().map(|one| one.trajectory).collect();
        session.out.document(&json!({
            "file": arguments.file,
            "trajectories": ids,
            "new": new,
            "extended": extended,
            "restored": back,
            "entries": added,
            "blobs": blobs,
        }))?;
        return Ok(0);
    }
    let known = planned.len() as u64 - new - extended - back;
    session.out.line(format!(
        "imported {}, {} and {}; {known} were here already, {extended} had a part here",
        counted(new, "trajectory", "trajectories"),
        counted(added, "entry", "entries"),
        counted(blobs, "blob", "blobs"),
    ))?;
    if back > 0 {
        let back = counted(back, "archived trajectory", "archived trajectories");
        session.out.line(format!("{back} came back"))?;
    }
    Ok(0)
}
