//! `gesta seal`: the transparency log. Sealing now, how far it is behind, giving it out as files that other
//! tools read, and taking in what witnesses have signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use gesta_core::entry::Head;
use gesta_core::log::Leaf;
use gesta_core::log::checkpoint::{Checkpoint, TreeHead};
use gesta_core::log::evidence::witnesses;
use gesta_core::log::note::Note;
use gesta_core::log::tiles::{TileId, WIDTH, entries_path};
use gesta_core::verification::Class;
use gesta_runtime::{Anchored, Prover, Sealed};
use gesta_store::{CheckpointRow, Store, Which};
use serde_json::json;

use crate::durable::{Beside, Readers};
use crate::output::counted;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::session::Session;
use crate::{moment, sealing};

/// How many tiles are read at a time.
const PAGE: usize = 64;
const HASH_BYTES: u64 = 32;

/// Seal what is new in the transparency log
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The log shows that nothing was cut: each checkpoint holds every entry, and the last one of every
trajectory. Workers seal by themselves (`every` under [log] in gesta.toml); this does it now. A store
that is behind what was sealed before is refused: `gesta restore` begins a log of another name.

Examples:
  gesta seal
  gesta seal status
  gesta seal export public/log
  gesta seal cosign checkpoint.cosigned"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show how far the log is, and how far behind
    #[command(after_help = "Examples:\n  gesta seal status\n  gesta seal status --json")]
    Status,
    /// Write the log as files: checkpoint, tiles, entries (C2SP tlog-tiles)
    #[command(after_help = "\
What is there already is kept, so that the same directory can be written again and again and be served
as it is. The checkpoint comes last.

Examples:
  gesta seal export public/log
  gesta seal export /srv/log --json")]
    Export {
        /// Where; made if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Take in a checkpoint that witnesses have cosigned
    #[command(after_help = "\
The witnesses must be in the trust root, with the role `witness`.

Examples:
  gesta seal cosign checkpoint.cosigned")]
    Cosign {
        /// The checkpoint, with cosignatures
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    match &arguments.command {
        None => seal(session),
        Some(Command::Status) => status(session),
        Some(Command::Export { directory }) => export(session, directory),
        Some(Command::Cosign { file }) => cosign(session, file),
    }
}

fn seal(session: &mut Session) -> Result<u8> {
    let sealer = sealing::needed(&Session::workspace()?)?;
    let store = session.store()?;
    let registry = Registry::open(session, &store)?;
    let now = Session::now();
    sealer.may_sign(registry.keys(), now).map_err(|distrust| {
        Problem::new(format!("nothing was sealed: {distrust}")).hint(
            "`gesta keys list` shows who may seal; `key` under [log] in gesta.toml names another",
        )
    })?;
    let anchor = sealing::refuse_behind(session, &*store)?;
    let Sealed { checkpoint, left_out, .. } = session.wait(sealer.seal(&*store, now))?;
    if let Some(checkpoint) = &checkpoint {
        session.wait(Anchored::note_checkpoint(anchor, &*store, checkpoint))?;
    }
    if session.out.is_json() {
        let left_out: Vec<_> = left_out
            .iter()
            .map(|(trajectory, why)| json!({ "trajectory": trajectory, "why": why }))
            .collect();
        session.out.document(&json!({
            "checkpoint": checkpoint.as_ref().map(shown),
            "left_out": left_out,
        }))?;
    } else {
        session.out.line(match &checkpoint {
            Some(checkpoint) => format!("sealed: the log has {}", leaves(checkpoint.size)),
            None => "nothing is new".to_owned(),
        })?;
        for (trajectory, why) in &left_out {
            Session::note(&format!("warning: {trajectory} is not sealed: {why}"));
        }
    }
    match left_out.first() {
        None => Ok(0),
        Some((trajectory, _)) => {
            session.hint(&format!("`gesta verify {trajectory}` gives a full report"))?;
            Ok(Class::Tampered.exit_code())
        }
    }
}

fn leaves(size: u64) -> String {
    counted(size, "leaf", "leaves")
}

fn shown(checkpoint: &Checkpoint) -> serde_json::Value {
    let Checkpoint { origin, size, root, map, at } = checkpoint;
    json!({ "origin": origin, "size": size, "root": root, "map": map, "at": at })
}

fn status(session: &mut Session) -> Result<u8> {
    let workspace = Session::find_workspace()?;
    let store = session.store_to_read()?;
    let (newest, witnessed, lag) = session.wait(async {
        let log = store.log();
        let newest = log.checkpoint(Which::Newest).await?;
        anyhow::Ok((newest, log.checkpoint(Which::Witnessed).await?, log.lag().await?))
    })?;
    let newest = newest.map(|row| Prover::new(&*store, row)).transpose()?;
    let sealer = workspace.as_ref().map(sealing::of).transpose()?.flatten();
    let key = sealer.map(|it| session.wait(sealing::note_key(&it, &*store))).transpose()?;
    let now = Session::now();
    if session.out.is_json() {
        return session
            .out
            .document(&json!({
                "checkpoint": newest.as_ref().map(|it| shown(&it.checkpoint)),
                "age_ms": newest.as_ref().map(|it| now.0.saturating_sub(it.checkpoint.at.0)),
                "witnesses": newest.as_ref().map(|it| it.row.witnesses),
                "witnessed": witnessed.as_ref().map(|row| {
                    json!({ "size": row.size, "at": row.at, "witnesses": row.witnesses })
                }),
                "lag": { "trajectories": lag.trajectories, "entries": lag.entries },
                "key": key.map(|key| key.to_string()),
            }))
            .map(|()| 0);
    }
    let out = &mut session.out;
    match &newest {
        None => out.line("nothing is sealed yet")?,
        Some(Prover { checkpoint, row, .. }) => {
            out.line(format!("log         {}", checkpoint.origin))?;
            out.line(format!("size        {}", leaves(checkpoint.size)))?;
            let (at, age) = (moment::utc(checkpoint.at), moment::since(checkpoint.at, now));
            out.line(format!("checkpoint  {at}, {} ago", age.trim_start_matches('+')))?;
            out.line(format!("witnesses   {}", row.witnesses))?;
        }
    }
    if let Some(row) = &witnessed {
        let count = counted(u64::from(row.witnesses), "witness", "witnesses");
        out.line(format!("witnessed   {}, by {count}", leaves(row.size)))?;
    }
    let trajectories = counted(lag.trajectories, "trajectory", "trajectories");
    let entries = counted(lag.entries, "entry", "entries");
    out.line(format!("not sealed  {entries} of {trajectories}"))?;
    if let Some(key) = key {
        out.line(format!("key         {key}"))?;
    }
    Ok(0)
}

fn nothing_sealed() -> Problem {
    Problem::new("nothing is sealed yet")
        .hint("`gesta seal` does it now; workers do it by themselves")
}

/// The checkpoint that is asked for.
pub(super) fn pick(
    session: &Session,
    store: &Arc<dyn Store>,
    witnessed: bool,
) -> Result<CheckpointRow> {
    let which = if witnessed { Which::Witnessed } else { Which::Newest };
    session.wait(store.log().checkpoint(which))?.ok_or_else(|| match witnessed {
        true => Problem::new("no checkpoint of this log was witnessed yet")
            .hint("`gesta seal cosign FILE` takes in what a witness has signed")
            .into(),
        false => nothing_sealed().into(),
    })
}

fn export(session: &mut Session, directory: &Path) -> Result<u8> {
    let store = session.store_to_read()?;
    let row = pick(session, &store, false)?;
    let size = row.size;
    goes_on(directory, &Prover::new(&*store, row.clone())?.checkpoint)?;
    let written = session.wait(async {
        let tiles = write_tiles(&store, directory, size).await?;
        anyhow::Ok(tiles + write_entries(&store, directory, size).await?)
    })?;
    put(&directory.join("checkpoint"), row.note.as_bytes())?;
    if session.out.is_json() {
        let document = json!({ "directory": directory, "size": size, "files": written + 1 });
        session.out.document(&document)?;
    } else {
        session.out.line(format!(
            "wrote the log with {} to `{}`",
            leaves(size),
            directory.display()
        ))?;
    }
    Ok(0)
}

/// Refuses a directory that holds another log, or more of this one: what is there would be mixed up with
/// what is written.
fn goes_on(directory: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let path = directory.join("checkpoint");
    let Ok(bytes) = std::fs::read(&path) else { return Ok(()) };
    let shown = path.display();
    let there = Note::parse(&bytes).ok().and_then(|note| TreeHead::parse(&note.text).ok());
    let there = there.ok_or_else(|| Problem::new(format!("`{shown}` is no checkpoint")))?;
    if there.origin != checkpoint.origin {
        let what = format!(
            "`{shown}` is of the log `{}`, and this one is `{}`",
            there.origin, checkpoint.origin
        );
        return Err(Problem::new(what)
            .hint("give another directory; after a restore the log goes on under another name")
            .into());
    }
    if there.size > checkpoint.size {
        let what = format!(
            "`{shown}` has {}, and this log {}",
            leaves(there.size),
            leaves(checkpoint.size)
        );
        return Err(Problem::new(what)
            .hint("an older copy of the store does not replace what was published; after `gesta restore`, `gesta seal` goes on under another name")
            .class(Class::Tampered)
            .into());
    }
    Ok(())
}

/// Writes the tiles that are not there. Tiles only grow, so what is there is right.
async fn write_tiles(store: &Arc<dyn Store>, directory: &Path, size: u64) -> Result<u64> {
    let path = |id: &TileId| directory.join(id.path(id.width(size)));
    let missing: Vec<TileId> = TileId::all(size).filter(|id| !path(id).exists()).collect();
    for page in missing.chunks(PAGE) {
        let found = store.log().tiles(page).await?;
        for id in page {
            let length = usize::try_from(id.width(size) * HASH_BYTES)?;
            let tile = found.iter().find(|(found, _)| found == id);
            let tile = tile.and_then(|(_, bytes)| bytes.get(..length));
            let tile =
                tile.with_context(|| format!("the log is damaged: {} is missing", id.path(WIDTH)))?;
            put(&path(id), tile)?;
        }
    }
    Ok(missing.len() as u64)
}

/// Writes the leaves that are not there, in bundles of 256.
async fn write_entries(store: &Arc<dyn Store>, directory: &Path, size: u64) -> Result<u64> {
    let path = |number: u64| {
        let width = (size - number * WIDTH).min(WIDTH);
        directory.join(entries_path(number, width))
    };
    let first = (0..size.div_ceil(WIDTH)).find(|number| !path(*number).exists());
    let Some(first) = first else { return Ok(0) };
    let (mut next, mut bundle, mut written) = (first * WIDTH, Vec::new(), 0);
    while next < size {
        let page = store.log().runs(next, PAGE).await?;
        let before = next;
        for run in &page {
            let last = run.first_leaf + run.ids.len() as u64;
            for (leaf, id) in (run.first_leaf..last.min(size)).zip(&run.ids) {
                if leaf != next {
                    continue;
                }
                let seq = run.first_seq + (leaf - run.first_leaf);
                let bytes = Leaf::new(run.trajectory, Head { id: *id, seq }).to_bytes()?;
                bundle.extend(u16::try_from(bytes.len())?.to_be_bytes());
                bundle.extend(bytes);
                next += 1;
                if next.is_multiple_of(WIDTH) || next == size {
                    put(&path((next - 1) / WIDTH), &std::mem::take(&mut bundle))?;
                    written += 1;
                }
            }
        }
        if next == before {
            return Err(Problem::new(format!("the log is damaged: leaf {next} is missing")).into());
        }
    }
    Ok(written)
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make `{}`", parent.display()))?;
    }
    let mut beside = Beside::new(path, Readers::Everyone)?;
    std::io::Write::write_all(beside.file(), bytes)?;
    beside.replace()
}

fn cosign(session: &mut Session, file: &Path) -> Result<u8> {
    let shown = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read `{shown}`"))?;
    let given = Note::parse(&bytes)
        .map_err(|error| Problem::new(format!("`{shown}`: {error}")).bad_input())?;
    let size = Checkpoint::parse(&given.text)
        .map_err(|error| Problem::new(format!("`{shown}`: {error}")).bad_input())?
        .size;
    let store = session.store()?;
    let trust = sealing::keyring(session, &store)?;
    if witnesses(&given, &trust).is_empty() {
        return Err(Problem::new(format!("no witness that is trusted here has signed `{shown}`"))
            .hint("add the witness to the trust root, with the role `witness`: `gesta witness init` prints the lines")
            .class(Class::Untrusted)
            .into());
    }
    let row = loop {
        let old = session.wait(store.log().checkpoint(Which::Size(size)))?;
        let Some(old) = old else {
            return Err(Problem::new(format!("this log has no checkpoint with {}", leaves(size)))
                .class(Class::Tampered)
                .into());
        };
        let mut note = Note::parse(old.note.as_bytes())?;
        if note.text != given.text {
            let what = format!("`{shown}` is not the checkpoint of this log with {}", leaves(size));
            return Err(Problem::new(format!("split view: {what}")).class(Class::Tampered).into());
        }
        let own = note.signatures.clone();
        for signature in given.signatures.iter().filter(|signature| !own.contains(signature)) {
            note = note.with(signature.clone());
        }
        let count = u32::try_from(witnesses(&note, &trust).len()).unwrap_or(u32::MAX);
        let new = CheckpointRow { witnesses: count, note: note.to_string(), ..old.clone() };
        if session.wait(store.log().cosign(&old, &new))? {
            break new;
        }
    };
    if session.out.is_json() {
        session.out.document(&json!({ "size": row.size, "witnesses": row.witnesses }))?;
    } else {
        let count = counted(u64::from(row.witnesses), "witness", "witnesses");
        session.out.line(format!("the checkpoint with {} has {count}", leaves(row.size)))?;
    }
    Ok(0)
}
