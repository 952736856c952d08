//! `gesta proof`: that an entry is in the transparency log, as a file that anyone checks offline.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::digest::EntryId;
use gesta_core::ids::TrajectoryId;
use gesta_runtime::Prover;
use gesta_store::{Store, StoreError};
use serde::Serialize;

use super::seal;
use crate::durable::{Beside, Readers};
use crate::problem::Problem;
use crate::reference;
use crate::session::Session;

/// Prove that an entry is in the transparency log
#[derive(Debug, Args)]
#[command(after_help = "\
The proof holds the checkpoint, the way from the entry to its root, and the way from the last entry of the
trajectory to the root of the map of heads. `gesta-verify --proof FILE --trust TRUST` checks it, and so does
whatever reads C2SP checkpoints and RFC 6962 proofs.

Examples:
  gesta proof t_4f2a:7 -o proof.json
  gesta proof t_4f2a:7 --witnessed
  gesta proof --since 1042 -o consistency.json")]
pub(crate) struct Arguments {
    /// The entry: ID:NUMBER, or its whole id
    #[arg(value_name = "ENTRY", required_unless_present = "since")]
    entry: Option<String>,
    /// That the log goes on where it ended when it had SIZE leaves, instead
    #[arg(long, value_name = "SIZE", conflicts_with = "entry")]
    since: Option<u64>,
    /// Against the newest checkpoint that a witness has signed
    #[arg(long)]
    witnessed: bool,
    /// The file to write, in place of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Arguments { entry, since, witnessed, output } = arguments;
    let store = session.store_to_read()?;
    let prover = Prover::new(&*store, seal::pick(session, &store, *witnessed)?)?;
    if let Some(since) = since {
        let size = prover.checkpoint.size;
        if *since > size {
            let what = format!("the log has {size} leaves, less than {since}");
            return Err(Problem::new(what).bad_input().into());
        }
        let proof = session.wait(prover.consistency(*since))?;
        return write(session, &proof, output.as_deref());
    }
    let text = entry.as_deref().unwrap_or_default();
    let (trajectory, seq, id) = session.wait(named(&store, text))?;
    let proof = session.wait(prover.entry(trajectory, seq))?;
    let proof = proof.ok_or_else(|| {
        let what = format!("entry {seq} of {trajectory} is not in the log yet");
        Problem::new(what)
            .hint("`gesta seal` seals it now; `gesta seal status` shows how far the log is")
    })?;
    if id.is_some_and(|id| proof.entry.id != id) {
        let what = format!("the log holds another entry {seq} of {trajectory}");
        return Err(Problem::new(what).class(gesta_core::verification::Class::Tampered).into());
    }
    write(session, &proof, output.as_deref())
}

/// The entry that is meant, with its id where it is at hand. What is archived in a bundle that is away is in
/// the log all the same, by its number.
async fn named(store: &Arc<dyn Store>, text: &str) -> Result<(TrajectoryId, u64, Option<EntryId>)> {
    match reference::entry(store, text).await {
        Ok((trajectory, stored)) => Ok((trajectory, stored.seq, Some(stored.id))),
        Err(error) => match error.downcast_ref::<StoreError>() {
            Some(StoreError::Archived { .. }) => match reference::numbered(store, text).await? {
                Some((trajectory, seq)) => Ok((trajectory, seq, None)),
                None => Err(error),
            },
            _ => Err(error),
        },
    }
}

fn write(session: &mut Session, proof: &impl Serialize, output: Option<&Path>) -> Result<u8> {
    let Some(path) = output else {
        session.out.document(proof)?;
        return Ok(0);
    };
    let mut beside = Beside::new(path, Readers::Everyone)?;
    writeln!(beside.file(), "{}", serde_json::to_string_pretty(proof)?)?;
    beside.replace()?;
    Session::note(&format!("wrote the proof to `{}`", path.display()));
    Ok(0)
}
