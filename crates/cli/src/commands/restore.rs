//! `gesta restore`: puts a backup in place and opens a new epoch, in which nothing that was open goes on
//! until somebody has released it.
//!
//! In this order: the anchor is raised, so that no worker begins on what is there; nobody may be at work;
//! the copy is made beside the store, with its new epoch in it; the old store is moved aside; the copy is
//! moved to its place; the anchor is lowered to what the copy says. After a crash anywhere in between,
//! workers refuse to begin, and the same command goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_runtime::{Anchored, Recalled, alive, log_name, recall};
use gesta_store::{Epoch, Opening, Store};
use serde_json::json;

use super::release;
#[cfg(feature = "sqlite")]
use crate::durable::{self, Beside, Readers};
use crate::place::Place;
#[cfg(feature = "sqlite")]
use crate::place::beside;
use crate::problem::Problem;
use crate::session::Session;
use crate::{chains, moment, sealing, workshop};

/// Put a backup in place; nothing goes on until it is released
#[derive(Debug, Args)]
#[command(after_help = "\
A backup does not know what was started after it was made. So every trajectory that had not ended is
held: it is not driven, and no call of it is made, until `gesta release` lets it go on. A store that is
there is moved aside, never removed. All workers must have stopped. The transparency log goes on under
another name, since what was sealed after the backup is forgotten too.

With `--in-place` the store stays as it is: somebody has put an older copy there by other means, such as
`pg_restore` or a snapshot of the disk.

Examples:
  gesta restore /mnt/backups/gesta-monday.db --force
  gesta restore --in-place
  gesta release")]
pub(crate) struct Arguments {
    /// The backup
    #[arg(value_name = "FILE", required_unless_present = "in_place")]
    file: Option<PathBuf>,
    /// The store is such a copy already: only open the epoch
    #[arg(long, conflicts_with = "file")]
    in_place: bool,
    /// Move the store that is there aside
    #[arg(long, conflicts_with = "in_place")]
    force: bool,
}

/// What is being restored, and where.
struct Restoring {
    place: Place,
    anchor: PathBuf,
    presence: Option<PathBuf>,
    /// What this machine's workers remember.
    remembered: Option<Anchored>,
}

/// What a restore came to.
struct Restored {
    store: Arc<dyn Store>,
    epoch: Epoch,
    copied_at: UnixMs,
    aside: Option<PathBuf>,
    /// Heads that are known and lie beyond the copy.
    beyond: BTreeMap<TrajectoryId, Head>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let directory = Session::workspace()?.directory;
    let place = session.place()?;
    let anchor = place.anchor(&directory);
    let remembered = Anchored::read(&anchor)?;
    let (presence, _) = place.of_workers(&directory);
    let restoring = Restoring { place, anchor, presence, remembered };
    let restored = match &arguments.file {
        None => restoring.in_place(session)?,
        Some(file) => restoring.from(session, file, arguments.force)?,
    };
    let recalled = said_again(session, &restored.store);
    tell(session, &restored, &recalled)
}

/// What was erased after the copy was made is said again in its chains. The values are gone whether that succeeds
/// or not, and the epoch is open: a failure is told, and keeps nobody.
fn said_again(session: &Session, store: &Arc<dyn Store>) -> Recalled {
    let recalling = || {
        let (vault, by) = (session.vault(store)?, workshop::operator()?);
        let why = (&by, "erased before; the store was restored from an older copy");
        anyhow::Ok(session.wait(recall(store, &vault, why, Session::now()))?)
    };
    recalling().unwrap_or_else(|error| {
        Session::note(&format!(
            "warning: what was erased since the copy was made cannot be told: {error:#}\nhint: `gesta erase ID --reason …` says it in the chain of ID"
        ));
        Recalled::default()
    })
}

impl Restoring {
    /// Opens an epoch in the store that is there.
    fn in_place(&self, session: &Session) -> Result<Restored> {
        let store = session.wait(self.place.open())?;
        let now = session.wait(store.epochs().epoch())?;
        let heads = session.wait(heads(&store))?;
        let copied_at = now.copied_at.unwrap_or(heads.changed_at);
        // On one machine signs of life tell; a copy's leases do not.
        let live =
            if self.presence.is_some() { Vec::new() } else { session.wait(store.workers())? };
        let live: Vec<String> = live.iter().map(|row| row.worker.to_string()).collect();
        self.nobody_works(&live)?;
        let raised = self.raise(now)?;
        self.still_nobody()?;
        let known = self.known(now);
        let opening = Opening {
            by: workshop::operator()?,
            copied_at,
            known: known.clone(),
            above: raised - 1,
        };
        let epoch = session.wait(store.epochs().open_epoch(&opening))?;
        self.settle(epoch)?;
        Ok(Restored { store, epoch, copied_at, aside: None, beyond: heads.beyond(known) })
    }

    #[cfg(not(feature = "sqlite"))]
    fn from(&self, _: &Session, _: &Path, _: bool) -> Result<Restored> {
        Err(Problem::new("this gesta was built without SQLite").into())
    }

    /// Puts a copy in place of the store.
    #[cfg(feature = "sqlite")]
    fn from(&self, session: &Session, file: &Path, force: bool) -> Result<Restored> {
        use gesta_store::sqlite::{Options, SqliteStore, check};
        let Some(path) = self.place.file() else {
            return Err(Problem::new(format!("`{}` is restored by PostgreSQL itself", self.place))
                .hint("stop all workers, run `pg_restore`, then `gesta restore --in-place`")
                .into());
        };
        if beside(file, "-wal").exists() {
            return Err(Problem::new(format!(
                "`{}` is in use, or was cut off in use",
                file.display()
            ))
            .hint("give a file that `gesta backup` has made")
            .into());
        }
        if path.exists() && !force {
            return Err(Problem::new(format!("there is a store at `{}`", path.display()))
                .hint("`--force` moves it aside, and removes nothing")
                .into());
        }
        let mut copy = Beside::new(path, Readers::Owner)?;
        let mut from = std::fs::File::open(file)
            .with_context(|| format!("cannot read `{}`", file.display()))?;
        std::io::copy(&mut from, copy.file())
            .and_then(|_| std::io::Write::flush(copy.file()))
            .with_context(|| format!("cannot copy `{}`", file.display()))?;
        let found = check(copy.meanwhile())
            .with_context(|| format!("`{}` is no whole backup", file.display()))?
            .epoch;
        self.nobody_works(&[])?;
        let raised = self.raise(found)?;
        self.still_nobody()?;

        let store =
            Arc::new(SqliteStore::open(copy.meanwhile(), Options::default())?) as Arc<dyn Store>;
        let heads = session.wait(heads(&store))?;
        let copied_at = found.copied_at.unwrap_or(heads.changed_at);
        let mut known = self.known(found);
        known.extend(session.wait(self.replaced(found)));
        let opening = Opening {
            by: workshop::operator()?,
            copied_at,
            known: known.clone(),
            above: raised - 1,
        };
        let epoch = session.wait(store.epochs().open_epoch(&opening))?;
        // The last connection moves the log into the file.
        drop(store);
        let aside = set_aside(path, epoch.number)?;
        copy.create()?;
        self.settle(epoch)?;
        let store = session.wait(self.place.open())?;
        Ok(Restored { store, epoch, copied_at, aside, beyond: heads.beyond(known) })
    }

    /// Has the anchor tell of an epoch that no store has yet: from here on no worker begins. Says which.
    fn raise(&self, found: Epoch) -> Result<u64> {
        let above = self.remembered.as_ref().map_or(0, |anchored| anchored.epoch);
        let epoch = above.max(found.number) + 1;
        let (log, heads) = match &self.remembered {
            Some(anchored) => (anchored.log, anchored.heads.clone()),
            None => (None, Vec::new()),
        };
        Anchored { store: found.store, epoch, log, heads }.write(&self.anchor)?;
        Ok(epoch)
    }

    /// The epoch is open: the anchor begins anew with it.
    fn settle(&self, epoch: Epoch) -> Result<()> {
        let Epoch { store, number, .. } = epoch;
        Ok(Anchored { store, epoch: number, log: None, heads: Vec::new() }.write(&self.anchor)?)
    }

    /// Refuses while somebody is at work.
    fn nobody_works(&self, leases: &[String]) -> Result<()> {
        let mut live = leases.to_vec();
        if let Some(presence) = &self.presence {
            live.extend(alive(presence).context("cannot tell which workers are alive")?);
        }
        match live.first() {
            None => Ok(()),
            Some(worker) => Err(Problem::new(format!("`{worker}` is at work on this store"))
                .hint("stop all workers first: what they do now would be forgotten")
                .into()),
        }
    }

    /// Refuses if somebody began before the anchor was raised, and leaves it as it was.
    fn still_nobody(&self) -> Result<()> {
        let refused = self.nobody_works(&[]);
        if refused.is_err() {
            match &self.remembered {
                Some(anchored) => anchored.write(&self.anchor)?,
                None => std::fs::remove_file(&self.anchor).context("cannot remove the anchor")?,
            }
        }
        refused
    }

    /// What this machine's workers remember of this store.
    fn known(&self, found: Epoch) -> Vec<(TrajectoryId, Head)> {
        let same = self.remembered.as_ref().filter(|anchored| anchored.store == found.store);
        same.map_or(Vec::new(), |anchored| anchored.heads.clone())
    }

    /// What the store that is replaced knows, if it can still be read and is the same.
    #[cfg(feature = "sqlite")]
    async fn replaced(&self, found: Epoch) -> Vec<(TrajectoryId, Head)> {
        let read = async {
            let store = self.place.open().await?;
            let epoch = store.epochs().epoch().await?;
            let rows = chains::all(&store).await?;
            anyhow::Ok((epoch, rows))
        };
        match read.await {
            Ok((epoch, rows)) if epoch.store == found.store => {
                rows.into_iter().map(|row| (row.trajectory, row.head)).collect()
            }
            Ok(_) => Vec::new(),
            Err(error) => {
                tracing::info!(%error, "nothing can be learnt from the store that is replaced");
                Vec::new()
            }
        }
    }
}

/// The heads of a copy.
struct Heads {
    heads: BTreeMap<TrajectoryId, Head>,
    /// When it was changed last: if nobody says when it was made, it was made later.
    changed_at: UnixMs,
}

impl Heads {
    /// Of what is known, what the copy does not have.
    fn beyond(&self, known: Vec<(TrajectoryId, Head)>) -> BTreeMap<TrajectoryId, Head> {
        let have = |id: &TrajectoryId| self.heads.get(id).map(|head| head.seq);
        let mut beyond: BTreeMap<TrajectoryId, Head> = BTreeMap::new();
        for (id, head) in known.into_iter().filter(|(id, head)| have(id) < Some(head.seq)) {
            let newest = beyond.entry(id).or_insert(head);
            if newest.seq < head.seq {
                *newest = head;
            }
        }
        beyond
    }
}

async fn heads(store: &Arc<dyn Store>) -> Result<Heads> {
    let rows = chains::all(store).await?;
    let changed_at = rows.iter().map(|row| row.summary.changed_at).max().unwrap_or(UnixMs(0));
    Ok(Heads { heads: rows.iter().map(|row| (row.trajectory, row.head)).collect(), changed_at })
}

/// Moves a store to a name of its own, with what SQLite keeps beside it. A log that stayed behind would
/// be taken for the next store's.
#[cfg(feature = "sqlite")]
fn set_aside(path: &Path, epoch: u64) -> Result<Option<PathBuf>> {
    let aside = beside(path, &format!(".before-epoch-{epoch}"));
    let mut moved = false;
    for what in ["", "-wal", "-shm"] {
        let from = beside(path, what);
        if from.exists() {
            durable::rename(&from, &beside(&aside, what))?;
            moved = true;
        }
    }
    Ok(moved.then_some(aside))
}

/// What the log is called from now on, if anybody seals here.
fn log(epoch: Epoch) -> Result<Option<String>> {
    let workspace = Session::workspace()?;
    let name = || log_name(&sealing::origin(&workspace), epoch.number);
    Ok(sealing::has_sealer(&workspace).then(name))
}

fn tell(session: &mut Session, restored: &Restored, recalled: &Recalled) -> Result<u8> {
    let Restored { store, epoch, copied_at, aside, beyond } = restored;
    let held = session.wait(release::held(store))?;
    let log = log(*epoch)?;
    if session.out.is_json() {
        let beyond: Vec<_> = beyond
            .iter()
            .map(|(id, head)| json!({ "trajectory": id, "seq": head.seq, "id": head.id }))
            .collect();
        session.out.document(&json!({
            "epoch": epoch.number,
            "copied_at": copied_at,
            "moved_aside": aside,
            "held": held,
            "forgotten": beyond,
            "log": log,
            "erased": recalled.said.iter().map(|(id, seq)| json!({ "trajectory": id, "seq": seq })).collect::<Vec<_>>(),
            "erased_and_open": recalled.open,
        }))?;
        return Ok(0);
    }
    session.out.line(format!(
        "epoch {} is open; the copy knows nothing that happened after {}",
        epoch.number,
        moment::utc(*copied_at)
    ))?;
    if let Some(aside) = aside {
        session.out.line(format!("the store that was there is now `{}`", aside.display()))?;
    }
    for (trajectory, head) in beyond {
        session.out.line(format!("forgotten: {trajectory} was at entry {} before", head.seq))?;
    }
    for (trajectory, seq) in &recalled.said {
        session.out.line(format!(
            "erased: {trajectory} says so again, at entry {seq}; its data key was destroyed before"
        ))?;
    }
    for trajectory in &recalled.open {
        session.out.line(format!(
            "erased: the sensitive values of {trajectory} are gone, and in this copy it has not ended: cancel it, then `gesta erase` puts that on record"
        ))?;
    }
    session.out.line(
        "keys revoked, policies published and freezes set since then are forgotten too: look at the registry with `gesta keys` and `gesta policy show` first",
    )?;
    if let Some(log) = log {
        session.out.line(format!(
            "the transparency log goes on as `{log}`: tell witnesses and those who verify (docs/transparency.md)"
        ))?;
    }
    release::print(session, &held)?;
    Ok(0)
}
