//! `gesta archive`: what has ended goes to a bundle and out of the store; heads, branches and proofs stay.
//!
//! The bundle is written, synced and verified first, and nothing leaves the store before. Then one trajectory
//! after the other goes, each in one transaction that also says where it is. Killed before the bundle is in
//! its place, nothing has happened; killed after it, the same command finds the bundle and goes on; killed
//! between two trajectories, the rest goes into another bundle.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::digest::Digest;
use gesta_core::ids::TrajectoryId;
use gesta_core::time::UnixMs;
use gesta_runtime::cut;
use gesta_runtime::duration::DurationMs;
use gesta_store::{Archived, Archiving, Size, Store, Which};
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{self, Chains as _, Options};
use gesta_verify::report::Report;
use serde_json::json;

use super::export::{self, Proofs, Wanted};
use super::verify;
use crate::archiving::{self, Chosen, Left, Pick, Wish};
use crate::durable::{self, Beside, Readers};
use crate::output::counted;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::session::Session;
use crate::workspace::Workspace;
use crate::{archive, moment, place, reference, sealing};

/// Blobs that somebody has put within this time stay: whoever puts one is about to name it.
const RECENT_MS: u64 = 24 * 60 * 60 * 1000;

/// Move trajectories that have ended to a bundle and out of the store
#[derive(Debug, Args)]
#[command(after_help = "\
The bundle is what `gesta export` writes: anyone can verify it. It is written, synced and verified before
anything leaves the store. What stays is each trajectory's row: its head, how it ended, what the
transparency log holds of it, and where its bundle is. As long as the bundle is there, or under the same
name in the directory of `[retention]`, everything reads it as before; whatever is added to an archived
trajectory brings it back first. Killed anywhere, the same command goes on.
Left is what has not ended, what an open trajectory is tied to, what a report waits for, and, where
somebody seals, what is not sealed. The registry is never archived.

With `[retention]` in gesta.toml nothing needs to be said:
  archive_after = \"90d\"
  to = \"archive/\"

Examples:
  gesta archive
  gesta archive --older-than 90d --to /mnt/archive --dry-run
  gesta archive t_4f2a -o refund.gesta
  gesta archive --restore t_4f2a")]
pub(crate) struct Arguments {
    /// The trajectories; all that have ended long enough ago if none is named
    #[arg(value_name = "ID")]
    trajectories: Vec<String>,
    /// Only what has ended, and not changed since, before this time
    #[arg(long, value_name = "TIME", value_parser = moment::parse, conflicts_with = "older_than")]
    before: Option<UnixMs>,
    /// Only what has ended, and not changed since, this long ago [default: from gesta.toml]
    #[arg(long, value_name = "TIME")]
    older_than: Option<DurationMs>,
    /// The directory to put the bundle into [default: from gesta.toml]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", conflicts_with = "to")]
    output: Option<PathBuf>,
    /// Say what would be archived and what would be left, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Bring trajectories back into the store
    #[arg(long, requires = "trajectories", conflicts_with_all = ["before", "older_than", "to", "output", "dry_run"])]
    restore: bool,
    /// Make a SQLite file smaller afterwards; nobody else can write meanwhile
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    vacuum: bool,
    /// Whom to trust when the bundle is verified [default: from gesta.toml]
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    if arguments.vacuum && session.place()?.file().is_none() {
        return Err(Problem::new("`--vacuum` is for SQLite files; nothing was archived")
            .hint("PostgreSQL uses the room again by itself; `VACUUM FULL entries, blobs` gives it back to the disk")
            .bad_input()
            .into());
    }
    let store = match arguments.dry_run {
        true => session.store_to_read()?,
        false => session.store()?,
    };
    let mut named = Vec::new();
    for text in &arguments.trajectories {
        named.push(session.wait(reference::trajectory(&store, text))?);
    }
    if arguments.restore {
        return restore(session, &store, &named);
    }
    let workspace = Session::find_workspace()?;
    let wish = wish(session, &store, workspace.as_ref(), arguments, named)?;
    let target = match arguments.dry_run {
        true => None,
        false => Some(target(workspace.as_ref(), arguments)?),
    };
    let chosen = session.wait(archiving::choose(&store, &wish))?;
    let missed = !wish.named.is_empty() && chosen.left.iter().any(|left| !left.done);
    let mut told = Told { dry_run: arguments.dry_run, ..Told::default() };
    told.store.0 = session.wait(store.archives().size())?;
    if let Some(target) = target.filter(|_| !chosen.picked.is_empty()) {
        let (path, started) = (target.file(&chosen.picked)?, Instant::now());
        let bundle = match bundle(session, &store, (&path, &chosen.picked), arguments)? {
            Ok(bundle) => bundle,
            Err(report) => return refused(session, &path, &report, started.elapsed()),
        };
        cut::here("archive_durable");
        let archived = place_of(&path, &bundle)?;
        told.bytes = bundle.digest()?.size;
        told.file = Some(archived.clone());
        remove(session, &store, chosen, &archived, &mut told)?;
    } else {
        told.went = chosen.picked.iter().map(|one| (one.trajectory, one.head.seq + 1)).collect();
        told.left = chosen.left;
    }
    if arguments.vacuum {
        drop(store);
        vacuum(session)?;
        told.store.1 = session.wait(session.store()?.archives().size())?;
    } else {
        told.store.1 = session.wait(store.archives().size())?;
    }
    told.print(session)?;
    Ok(u8::from(missed || told.changed))
}

/// What is meant: what is named, or what is old enough.
fn wish(
    session: &Session,
    store: &Arc<dyn Store>,
    workspace: Option<&Workspace>,
    arguments: &Arguments,
    named: Vec<TrajectoryId>,
) -> Result<Wish> {
    let configured = workspace.and_then(|here| here.config.retention.archive_after);
    let age = arguments.older_than.or(configured.filter(|_| named.is_empty()));
    let before = match (arguments.before, age) {
        (Some(before), _) => Some(before),
        (None, Some(age)) => Some(UnixMs(Session::now().0.saturating_sub(age.ms()))),
        (None, None) if named.is_empty() => {
            return Err(Problem::new("nothing says what is to be archived")
                .hint("name trajectories, give `--older-than 90d`, or set `archive_after` under [retention] in gesta.toml")
                .bad_input()
                .into());
        }
        (None, None) => None,
    };
    // A key is enough: it may not have sealed anything yet.
    let log = session.wait(store.log().checkpoint(Which::Newest))?;
    let sealed = log.is_some() || workspace.is_some_and(sealing::has_sealer);
    Ok(Wish { named, before, sealed })
}

/// Where the bundle goes.
enum Target {
    File(PathBuf),
    Directory(PathBuf),
}

fn target(workspace: Option<&Workspace>, arguments: &Arguments) -> Result<Target> {
    if let Some(file) = &arguments.output {
        return Ok(Target::File(file.clone()));
    }
    let directory = arguments.to.clone().or_else(|| workspace.and_then(Workspace::archive));
    directory.map(Target::Directory).ok_or_else(|| {
        Problem::new("nothing says where the bundle is to be put")
            .hint("give `--to DIR` or `-o FILE`, or set `to` under [retention] in gesta.toml")
            .bad_input()
            .into()
    })
}

impl Target {
    /// The file. In a directory it is called by what goes into it, so that whoever asks again after a crash
    /// finds it.
    fn file(&self, picked: &[Pick]) -> Result<PathBuf> {
        match self {
            Self::File(file) => Ok(file.clone()),
            Self::Directory(directory) => {
                let heads = picked.iter().map(|one| one.head.id);
                let heads: Vec<u8> = heads.flat_map(|id| *id.as_bytes()).collect();
                let name = Digest::of(&heads).to_string();
                durable::private_directory(directory)?;
                Ok(directory.join(format!("{}.gesta", name.get(..16).unwrap_or(&name))))
            }
        }
    }
}

/// The bundle, durable and verified: written, or found where somebody who was cut off has left it. One that
/// does not hold is no reason to remove anything.
fn bundle(
    session: &Session,
    store: &Arc<dyn Store>,
    (path, picked): (&Path, &[Pick]),
    arguments: &Arguments,
) -> Result<Result<Bundle, Box<Report>>> {
    let trust = Session::trust(arguments.trust.as_deref())?.keyring()?;
    let fresh = !path.exists();
    if fresh {
        let mut asked: Vec<TrajectoryId> = picked.iter().map(|one| one.trajectory).collect();
        asked.extend(Registry::find(session, store)?);
        let wanted = Wanted { follow: true, all: false, proofs: Proofs::Newest };
        let (contents, _) = export::contents(session, store, &asked, &wanted)?;
        let mut beside = Beside::new(path, Readers::Owner)?;
        session.wait(export::write(store, contents, beside.file()))?;
        cut::here("archive_written");
        beside.create()?;
    } else {
        durable::sync(path)?;
    }
    let unreadable = |finding: gesta_core::verification::Finding| {
        Problem::new(format!("`{}`: {finding}", path.display())).class(finding.class)
    };
    let bundle = Bundle::open(path).map_err(unreadable)?;
    let options = Options {
        threads: NonZeroUsize::new(place::threads()).unwrap_or(NonZeroUsize::MIN),
        ..Options::default()
    };
    let report = engine::verify(&bundle, &trust, &options);
    let holds = |one: &Pick| bundle.expected_head(one.trajectory) == Some(one.head);
    if !fresh && !picked.iter().all(holds) {
        return Err(Problem::new(format!(
            "`{}` exists already, and something else is in it",
            path.display()
        ))
        .hint("bundles are never replaced; give another name")
        .into());
    }
    if report.exit_code() != 0 || !picked.iter().all(holds) {
        if fresh {
            std::fs::remove_file(path)
                .with_context(|| format!("cannot remove `{}`", path.display()))?;
        }
        return Ok(Err(Box::new(report)));
    }
    Ok(Ok(bundle))
}

fn refused(session: &mut Session, path: &Path, report: &Report, took: Duration) -> Result<u8> {
    verify::print(session, report, took)?;
    Session::note(&format!("`{}` does not hold; nothing was archived", path.display()));
    Ok(report.exit_code().max(1))
}

/// What rows say of the bundle.
fn place_of(path: &Path, bundle: &Bundle) -> Result<Archived> {
    let whole = path.canonicalize().with_context(|| format!("cannot find `{}`", path.display()))?;
    let file = whole.to_str().ok_or_else(|| {
        Problem::new(format!("`{}` cannot be written down: it is not UTF-8", whole.display()))
    })?;
    let sha256 = bundle.digest().context("cannot read the bundle")?.sha256;
    Ok(Archived { bundle: file.to_owned(), sha256, at: Session::now() })
}

/// Lets the store go of what is in the bundle, one after the other.
fn remove(
    session: &Session,
    store: &Arc<dyn Store>,
    chosen: Chosen,
    archived: &Archived,
    told: &mut Told,
) -> Result<()> {
    told.left = chosen.left;
    let unused_since = UnixMs(archived.at.0.saturating_sub(RECENT_MS));
    let mut kept: BTreeSet<Digest> = BTreeSet::new();
    for Pick { trajectory, head, names, blobs } in chosen.picked {
        let blobs = blobs.into_iter().filter(|blob| !kept.contains(blob)).collect();
        let archived = archived.clone();
        let asked = Archiving { trajectory, head, archived, blobs, unused_since };
        // Commit point: its entries are in the bundle and nowhere else.
        match session.wait(store.archives().archive(&asked))? {
            Some(blobs) => {
                told.went.push((trajectory, head.seq + 1));
                told.blobs += blobs;
            }
            None => {
                kept.extend(names);
                told.changed = true;
                let why = "it has grown or is reported about since; ask again".to_owned();
                told.left.push(Left { trajectory, why, done: false });
            }
        }
        cut::here("archive_removed");
    }
    Ok(())
}

fn restore(session: &mut Session, store: &Arc<dyn Store>, named: &[TrajectoryId]) -> Result<u8> {
    let mut back = Vec::new();
    for trajectory in named {
        let row = session.wait(store.trajectory(*trajectory))?;
        let Some(archived) = row.and_then(|row| row.archived) else { continue };
        if !session.wait(archive::bring_back(&**store, *trajectory))? {
            return Err(
                Problem::new(format!("{trajectory} has changed meanwhile; ask again")).into()
            );
        }
        back.push((*trajectory, archived.bundle));
    }
    if session.out.is_json() {
        let back: Vec<_> =
            back.iter().map(|(id, bundle)| json!({ "trajectory": id, "from": bundle })).collect();
        session.out.document(&json!({ "restored": back }))?;
        return Ok(0);
    }
    for (trajectory, bundle) in &back {
        session.out.line(format!("{trajectory} is back, from `{bundle}`"))?;
    }
    if back.len() < named.len() {
        session.out.line("the others were not archived")?;
    }
    Ok(0)
}

/// What was done, for whoever asked.
#[derive(Default)]
struct Told {
    dry_run: bool,
    /// Whether something did not stand still.
    changed: bool,
    file: Option<Archived>,
    bytes: u64,
    /// With how many entries.
    went: Vec<(TrajectoryId, u64)>,
    blobs: u64,
    left: Vec<Left>,
    /// Before and after.
    store: (Size, Size),
}

impl Told {
    fn print(&self, session: &mut Session) -> Result<()> {
        let entries: u64 = self.went.iter().map(|(_, entries)| entries).sum();
        let (before, after) = self.store;
        if session.out.is_json() {
            let left = |left: &Left| json!({ "trajectory": left.trajectory, "why": left.why });
            return session.out.document(&json!({
                "dry_run": self.dry_run,
                "file": self.file.as_ref().map(|file| &file.bundle),
                "sha256": self.file.as_ref().map(|file| file.sha256),
                "bytes": self.bytes,
                "archived": self.went.iter().map(|(id, _)| id).collect::<Vec<_>>(),
                "entries": entries,
                "blobs": self.blobs,
                "left": self.left.iter().map(left).collect::<Vec<_>>(),
                "store": { "bytes_before": before.bytes, "bytes_after": after.bytes, "free": after.free },
            }));
        }
        for Left { trajectory, why, .. } in &self.left {
            session.out.line(format!("left {trajectory}: {why}"))?;
        }
        let count = counted(self.went.len() as u64, "trajectory", "trajectories");
        let entries = counted(entries, "entry", "entries");
        let Some(file) = &self.file else {
            for (trajectory, entries) in &self.went {
                let entries = counted(*entries, "entry", "entries");
                session.out.line(format!("would archive {trajectory}, {entries}"))?;
            }
            if self.went.is_empty() {
                session.out.line("nothing is to be archived")?;
            }
            return Ok(());
        };
        session.out.line(format!(
            "archived {count} with {entries} in `{}` ({} bytes, SHA-256 {}); {} went with them",
            file.bundle,
            self.bytes,
            file.sha256,
            counted(self.blobs, "blob", "blobs"),
        ))?;
        session.out.line(format!(
            "the store: {} bytes before, {} after, {} of them free",
            before.bytes, after.bytes, after.free
        ))?;
        if after.free > 0 && session.place()?.file().is_some() {
            session.hint("what is free is used again; `--vacuum` gives it back to the disk while no worker runs")?;
        }
        Ok(())
    }
}

/// Makes the file of a store smaller.
#[cfg(feature = "sqlite")]
fn vacuum(session: &Session) -> Result<()> {
    use gesta_store::sqlite;
    match session.place()?.file() {
        Some(path) => Ok(sqlite::compact(path, &sqlite::Options::default())?),
        None => Ok(()),
    }
}

#[cfg(not(feature = "sqlite"))]
fn vacuum(_: &Session) -> Result<()> {
    Ok(())
}
