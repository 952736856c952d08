//! `gesta witness`: watches the log of somebody else. It remembers the last checkpoint it has signed, and
//! signs the next one only if that goes on where the last one ended. It needs no store and no workspace.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use gesta_core::digest::Digest;
use gesta_core::keys::PrivateKey;
use gesta_core::log::checkpoint::TreeHead;
use gesta_core::log::evidence::{ConsistencyProof, follows};
use gesta_core::log::note::{Algorithm, Note, NoteKey};
use gesta_core::log::tiles::{Tiles, WIDTH};
use gesta_core::log::tree;
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Role, TrustedKey};
use gesta_core::verification::Class;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::durable::{self, Beside, Readers};
use crate::key_file;
use crate::problem::Problem;
use crate::session::Session;

/// The files of a witness.
const STATE: &str = "witness.json";
const KEY: &str = "witness";

/// Watch somebody's transparency log, and sign its checkpoints
#[derive(Debug, Args)]
#[command(after_help = "\
A witness keeps the last checkpoint it has signed. It signs the next one only if the log has grown from
there, and refuses a log that was rolled back or shows different things to different people.

Examples:
  gesta witness init ~/witness --name witness.example --log 'gesta/t_4f2a…+1c2d3e4f+AQID…'
  gesta witness sign ~/witness public/log/checkpoint --tiles public/log -o checkpoint.cosigned
  gesta witness add ~/witness --log 'gesta/t_4f2a…+5a6b7c8d+AQID…'")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a witness: a key, and what it watches
    #[command(after_help = "\
It prints the key as tools that read notes take it, and the lines for the trust roots of those who verify.

Examples:
  gesta witness init ~/witness --name witness.example --log 'gesta/t_4f2a…+1c2d3e4f+AQID…'")]
    Init {
        /// Where it keeps its key and what it has seen; made if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// What it is called
        #[arg(long)]
        name: String,
        /// The log's key, as `gesta seal status` shows it
        #[arg(long, value_name = "KEY")]
        log: String,
    },
    /// Accept a new key of a log, or watch one more log; what was seen is kept
    #[command(after_help = "\
A log whose sealer was given a new key, and one that goes on under another name after a restore, come
with a key that the witness does not know. Ask the log's owner, over a channel you trust, before you add
it: whoever has a key of the log can have checkpoints signed.

Examples:
  gesta witness add ~/witness --log 'gesta/t_4f2a…+5a6b7c8d+AQID…'
  gesta witness add ~/witness --log 'gesta/t_4f2a…/epoch-2+9e8d7c6b+AQID…'")]
    Add {
        /// Where the witness keeps its key and what it has seen
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The log's key, as `gesta seal status` shows it
        #[arg(long, value_name = "KEY")]
        log: String,
    },
    /// Check a checkpoint against what was seen before, and sign it
    #[command(after_help = "\
Examples:
  gesta witness sign ~/witness public/log/checkpoint --tiles public/log -o checkpoint.cosigned
  gesta witness sign ~/witness checkpoint --consistency consistency.json > checkpoint.cosigned")]
    Sign {
        /// Where the witness keeps its key and what it has seen
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The checkpoint
        #[arg(value_name = "CHECKPOINT")]
        checkpoint: PathBuf,
        /// The log as files, as `gesta seal export` writes them
        #[arg(long, value_name = "DIR", conflicts_with = "consistency")]
        tiles: Option<PathBuf>,
        /// A proof that the log has grown, as `gesta proof --since SIZE` writes it
        #[arg(long, value_name = "FILE")]
        consistency: Option<PathBuf>,
        /// The file to write, in place of standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// What a witness remembers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    #[serde(rename = "type")]
    type_: String,
    /// What it is called.
    name: String,
    /// The logs that it watches, one for each name.
    logs: Vec<Watched>,
}

/// A log, and what the witness remembers of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Watched {
    /// Its keys, the newest last; all of one name.
    keys: Vec<String>,
    /// The text of the last checkpoint that was signed.
    last: Option<String>,
}

/// What a witness remembered when it watched one key of one log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateOfOne {
    #[serde(rename = "type")]
    type_: String,
    name: String,
    log: String,
    last: Option<String>,
}

const TYPE: &str = "gesta.witness.v2";
const TYPE_OF_ONE: &str = "gesta.witness.v1";

impl State {
    fn read(path: &Path) -> Result<Self> {
        let bytes = read(path)?;
        let cannot = || format!("cannot read `{}`", path.display());
        if let Ok(one) = serde_json::from_slice::<StateOfOne>(&bytes)
            && one.type_ == TYPE_OF_ONE
        {
            let logs = vec![Watched { keys: vec![one.log], last: one.last }];
            return Ok(Self { type_: TYPE.to_owned(), name: one.name, logs });
        }
        let state: Self = serde_json::from_slice(&bytes).with_context(cannot)?;
        if state.type_ != TYPE {
            let what = format!("`{}` has the type `{}`", path.display(), state.type_);
            return Err(Problem::new(what).into());
        }
        Ok(state)
    }

    fn write(&self, path: &Path) -> Result<()> {
        let mut beside = Beside::new(path, Readers::Owner)?;
        serde_json::to_writer_pretty(beside.file(), self)?;
        beside.replace()
    }

    /// The log that goes by this name.
    fn watched(&mut self, name: &str) -> Option<&mut Watched> {
        let called = |key: &String| NoteKey::parse(key).is_ok_and(|key| key.name == name);
        self.logs.iter_mut().find(|log| log.keys.iter().any(called))
    }
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    match &arguments.command {
        Command::Init { directory, name, log } => init(session, directory, name, log),
        Command::Add { directory, log } => add(session, directory, log),
        Command::Sign { directory, checkpoint, tiles, consistency, output } => {
            let proof = Source { tiles: tiles.as_deref(), consistency: consistency.as_deref() };
            sign(session, directory, checkpoint, &proof, output.as_deref())
        }
    }
}

/// The key comes first: what is remembered of a log without a key would be of no use.
fn init(session: &mut Session, directory: &Path, name: &str, log: &str) -> Result<u8> {
    let bad = |error: gesta_core::log::note::NoteError| Problem::new(error.to_string()).bad_input();
    let watched = key_of_log(log)?;
    let state = directory.join(STATE);
    if state.exists() {
        return Err(Problem::new(format!(
            "`{}` exists already; nothing was changed",
            state.display()
        ))
        .hint("`gesta witness add` has it accept another key, or watch another log")
        .into());
    }
    durable::private_directory(directory)?;
    let path = key_file::path(directory, KEY);
    let key = if path.exists() {
        key_file::read(&path)?
    } else {
        let key = key_file::draw()?;
        key_file::create(&path, &key, None)?;
        key
    };
    let note_key = NoteKey::new(name, Algorithm::Cosignature, key.id()).map_err(bad)?;
    let (type_, name) = (TYPE.to_owned(), name.to_owned());
    let logs = vec![Watched { keys: vec![log.to_owned()], last: None }];
    let text = serde_json::to_string_pretty(&State { type_, name: name.clone(), logs })?;
    durable::create(&state, text.as_bytes(), Readers::Owner)?;
    let trusted = TrustedKey {
        key: key.id(),
        name,
        revoked_at: None,
        roles: [Role::Witness].into(),
        tenant: None,
        valid: Window { not_before: UnixMs(0), not_after: UnixMs::LAST },
    };
    if session.out.is_json() {
        session.out.document(&json!({ "key": note_key.to_string(), "trust": trusted }))?;
    } else {
        session.out.line(format!(
            "made a witness of `{}` in `{}`",
            watched.name,
            directory.display()
        ))?;
        session.out.line(format!("  key    {note_key}"))?;
        session.out.line(format!("  trust  {}", serde_json::to_string(&trusted)?))?;
    }
    Ok(0)
}

fn key_of_log(text: &str) -> Result<NoteKey> {
    let key = NoteKey::parse(text).map_err(|error| Problem::new(error.to_string()).bad_input())?;
    if key.algorithm != Algorithm::Ed25519 {
        let what = format!("`{text}` is the key of a witness, not of a log");
        return Err(Problem::new(what).bad_input().into());
    }
    Ok(key)
}

/// A log that is watched goes on from the last checkpoint, whichever of its keys signs; one of another
/// name begins anew.
fn add(session: &mut Session, directory: &Path, log: &str) -> Result<u8> {
    let key = key_of_log(log)?;
    let path = directory.join(STATE);
    let _lock = lock(&path)?;
    let mut state = State::read(&path)?;
    let what = match state.watched(&key.name) {
        Some(watched) if watched.keys.iter().any(|known| known == log) => "knew this key of",
        Some(watched) => {
            watched.keys.push(log.to_owned());
            "accepts a new key of"
        }
        None => {
            state.logs.push(Watched { keys: vec![log.to_owned()], last: None });
            "watches from now on"
        }
    };
    let last = state.watched(&key.name).and_then(|watched| watched.last.clone());
    let last = last.as_deref().map(TreeHead::parse).transpose()?;
    state.write(&path)?;
    if session.out.is_json() {
        let size = last.map(|last| last.size);
        session
            .out
            .document(&json!({ "log": key.name, "logs": state.logs.len(), "seen": size }))?;
        return Ok(0);
    }
    let seen = match last {
        Some(last) => format!("it goes on from {} leaves", last.size),
        None => "nothing of it was seen yet".to_owned(),
    };
    session.out.line(format!("`{}` {what} `{}`; {seen}", state.name, key.name))?;
    Ok(0)
}

/// Where the proof comes from that the log has grown.
struct Source<'a> {
    tiles: Option<&'a Path>,
    consistency: Option<&'a Path>,
}

impl Source<'_> {
    /// The proof that the log goes on from the last checkpoint that was signed.
    fn proof(&self, last: &TreeHead, head: &TreeHead) -> Result<Vec<Digest>> {
        let (from, to) = (last.size, head.size);
        let Some(ranges) = tree::consistency(from, to).filter(|_| from < to) else {
            return Ok(Vec::new());
        };
        if let Some(path) = self.consistency {
            let shown = path.display();
            let bytes = std::fs::read(path).with_context(|| format!("cannot read `{shown}`"))?;
            let proof = ConsistencyProof::parse(&bytes)
                .map_err(|error| Problem::new(format!("`{shown}`: {error}")).bad_input())?;
            let proof = proof.between(last, head).map_err(|error| {
                Problem::new(format!("`{shown}`: {error}"))
                    .hint(format!("`gesta proof --since {from}` leads to the newest checkpoint, which `gesta seal export` writes"))
                    .bad_input()
            })?;
            return Ok(proof.to_vec());
        }
        let Some(directory) = self.tiles.filter(|_| !ranges.is_empty()) else {
            if ranges.is_empty() {
                return Ok(Vec::new());
            }
            return Err(Problem::new(format!("nothing shows that the log goes on where it ended with {from} leaves"))
                .hint(format!(
                    "`--tiles DIR` names the log as files; or `--consistency FILE`, from `gesta proof --since {from}`"
                ))
                .class(Class::Incomplete)
                .into());
        };
        let mut tiles = Vec::new();
        for id in Tiles::wanted(&ranges) {
            // A tile that has grown since holds what it held before.
            let paths = [id.width(to), WIDTH].map(|width| directory.join(id.path(width)));
            let found = paths.iter().find_map(|path| std::fs::read(path).ok());
            let found = found.ok_or_else(|| {
                Problem::new(format!("`{}` is missing", id.path(id.width(to))))
                    .class(Class::Incomplete)
            })?;
            tiles.push((id, found));
        }
        Ok(Tiles::new(tiles)?.read(&ranges)?)
    }
}

fn sign(
    session: &mut Session,
    directory: &Path,
    checkpoint: &Path,
    source: &Source<'_>,
    output: Option<&Path>,
) -> Result<u8> {
    let path = directory.join(STATE);
    let _lock = lock(&path)?;
    let mut state = State::read(&path)?;
    let key = key_file::read(&key_file::path(directory, KEY))?;
    let (note, head, watched) = signed_checkpoint(checkpoint, &mut state)?;
    let last = watched.last.as_deref().map(TreeHead::parse).transpose()?;
    if let Some(last) = &last {
        let proof = if last.size < head.size { source.proof(last, &head)? } else { Vec::new() };
        follows(last, &head, &proof).map_err(|breach| {
            Problem::new(format!("not signed: {breach}"))
                .hint(format!(
                    "keep both checkpoints: the last one signed is in `{}`",
                    path.display()
                ))
                .class(Class::Tampered)
        })?;
    }
    // What is remembered is durable before anybody has the signature.
    watched.last = Some(note.text.clone());
    state.write(&path)?;
    give(session, &state, &key, note, output)
}

/// Signs, and gives it out.
fn give(
    session: &mut Session,
    state: &State,
    key: &PrivateKey,
    note: Note,
    output: Option<&Path>,
) -> Result<u8> {
    let head = TreeHead::parse(&note.text)?;
    let cosigned = note.cosign(&state.name, key, Session::now().0 / 1000)?.to_string();
    if let Some(output) = output {
        let mut beside = Beside::new(output, Readers::Everyone)?;
        std::io::Write::write_all(beside.file(), cosigned.as_bytes())?;
        beside.replace()?;
    }
    if session.out.is_json() {
        let document = json!({ "origin": head.origin, "size": head.size, "cosigned": cosigned });
        session.out.document(&document)?;
    } else if let Some(output) = output {
        let shown = output.display();
        session
            .out
            .line(format!("signed `{}` with {} leaves: `{shown}`", head.origin, head.size))?;
    } else {
        session.out.text(&cosigned)?;
    }
    Ok(0)
}

/// A checkpoint that a watched log has signed.
fn signed_checkpoint<'a>(
    path: &Path,
    state: &'a mut State,
) -> Result<(Note, TreeHead, &'a mut Watched)> {
    let shown = path.display();
    let refused = |what: &dyn std::fmt::Display| Problem::new(format!("`{shown}`: {what}"));
    let note = Note::parse(&read(path)?).map_err(|error| refused(&error).bad_input())?;
    let head = TreeHead::parse(&note.text).map_err(|error| refused(&error).bad_input())?;
    let untrusted = |what: &str, hint: &str| refused(&what).hint(hint).class(Class::Untrusted);
    let Some(watched) = state.watched(&head.origin) else {
        let what = format!("it is of the log `{}`, which is not watched", head.origin);
        let hint = "a log goes on under another name after a restore; ask its owner, then `gesta witness add DIR --log KEY` watches it";
        return Err(untrusted(&what, hint).into());
    };
    let signed = |key: &String| {
        let key = NoteKey::parse(key).ok()?;
        (note.signed_by(key.key)? == head.origin).then_some(())
    };
    if watched.keys.iter().find_map(signed).is_none() {
        let what = format!("no key of `{}` that is known here has signed it", head.origin);
        let hint = "if its sealer has a new key, ask its owner, then `gesta witness add DIR --log KEY` accepts it";
        return Err(untrusted(&what, hint).into());
    }
    Ok((note, head, watched))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// Keeps a second one out: two at once could sign two different logs.
fn lock(state: &Path) -> Result<File> {
    let directory = state.parent().unwrap_or(Path::new("."));
    let lock =
        File::open(directory).with_context(|| format!("cannot read `{}`", directory.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(Problem::new("another one signs here at the moment").into())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock `{}`", directory.display()))
        }
    }
}
