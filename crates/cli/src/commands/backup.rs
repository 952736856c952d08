//! `gesta backup`: a copy of the store at one moment, made while workers run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use gesta_store::Copied;
use serde_json::json;

use super::verify::bar;
use crate::durable::{Beside, Readers};
use crate::moment;
use crate::output::{self, counted};
use crate::place::Place;
use crate::problem::Problem;
use crate::session::Session;

/// Copy the store to a file while workers run
#[derive(Debug, Args)]
#[command(after_help = "\
The copy is of one moment; nobody waits for it. It holds every chain, blob, report, notice and account,
and neither private keys nor the data keys of sensitive values: keep those apart. What is started after
that moment is not in it: `gesta restore` puts it in place so that nothing of that is done again.

A PostgreSQL store is copied by PostgreSQL itself: see `docs/backup.md`.

Examples:
  gesta backup /mnt/backups/gesta-monday.db
  gesta backup latest.db --force")]
pub(crate) struct Arguments {
    /// The file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Arguments { file, force } = arguments;
    let place = session.place()?;
    let Some(path) = place.file() else { return Err(dump(&place).into()) };
    if file.exists() && !force {
        return Err(Problem::new(format!("`{}` exists already", file.display()))
            .hint("`--force` replaces it")
            .into());
    }
    // Opened by this program first, so that it is there and of a version that this program knows.
    drop(session.wait(place.open())?);
    let beside = Beside::new(file, Readers::Owner)?;
    let bar = bar(output::shows_progress(session.out.is_json()), 0);
    let copied = copy(path, &beside, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let copied = copied?;
    if *force {
        beside.replace()?;
    } else {
        beside.create()?;
    }
    let bytes = std::fs::metadata(file).map(|data| data.len()).unwrap_or_default();
    let at = copied.epoch.copied_at.unwrap_or_default();
    if session.out.is_json() {
        session.out.document(&json!({
            "file": file,
            "bytes": bytes,
            "at": at,
            "store": copied.epoch.store,
            "epoch": copied.epoch.number,
            "trajectories": copied.trajectories,
            "open": copied.open,
        }))?;
        return Ok(0);
    }
    session.out.line(format!(
        "wrote {} to `{}` as of {} ({bytes} bytes); {} of them not ended",
        counted(copied.trajectories, "trajectory", "trajectories"),
        file.display(),
        moment::utc(at),
        copied.open,
    ))?;
    session.out.line("not in it: private keys, and the data keys of sensitive values")?;
    Ok(0)
}

#[cfg(feature = "sqlite")]
fn copy(path: &Path, beside: &Beside<'_>, progress: impl FnMut(u64, u64)) -> Result<Copied> {
    use gesta_store::sqlite::{self, Options};
    Ok(sqlite::copy(path, beside.meanwhile(), &Options::default(), progress)?)
}

#[cfg(not(feature = "sqlite"))]
fn copy(_: &Path, _: &Beside<'_>, _: impl FnMut(u64, u64)) -> Result<Copied> {
    Err(Problem::new("this gesta was built without SQLite").into())
}

/// How a database is copied. It has tools for that which know it better than anyone else.
fn dump(place: &Place) -> Problem {
    Problem::new(format!("`{place}` is copied by PostgreSQL itself")).hint(format!(
        "`pg_dump --format=custom --exclude-schema=gesta_keys --exclude-table-data='*.workers' --exclude-table-data='*.shares' --file=FILE '{place}'` takes one consistent copy while workers run; once `pg_restore` has put it in place, run `gesta restore --in-place` before any worker"
    ))
}
