//! `gesta export`: trajectories with all they rest on in one file, the same bytes from every store.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::body::Purpose;
use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::entry::{Body, Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::sensitive::{Commitment, commitments, may_hold};
use gesta_core::state::State;
use gesta_core::verification::{Class, blobs, in_force};
use gesta_runtime::Held;
use gesta_store::{Store, Which};
use gesta_verify::bundle::{Contents, Disclosed, Writer};
use serde_json::json;

use super::seal;
use crate::chains::{self, Visited};
use crate::durable::{Beside, Readers};
use crate::output::counted;
use crate::problem::Problem;
use crate::reference;
use crate::registry::Registry;
use crate::sealing;
use crate::session::Session;

/// Everything that can be disclosed.
const ALL: &str = "all";
/// How many entries are read at a time.
const PAGE: usize = 512;

/// Write trajectories to one file that anyone can verify
#[derive(Debug, Args)]
#[command(after_help = "\
The bundle holds the trajectories named and what they rest on: registries, sources of branches,
parents, children, blobs; and what the transparency log shows of them, if something was sealed.
Whoever has it verifies it with `gesta-verify FILE --trust TRUST`.
Sensitive values are withheld: the bundle holds commitments to them, and still verifies. `--disclose`
attaches chosen ones in clear, and whoever verifies finds that they are what was committed to.

Examples:
  gesta export t_4f2a -o refund.gesta
  gesta export t_4f2a -o refund.gesta --disclose /email
  gesta export --all -o everything.gesta")]
pub(crate) struct Arguments {
    /// The trajectories
    #[arg(value_name = "ID", required_unless_present = "all")]
    trajectories: Vec<String>,
    /// Every trajectory of the store
    #[arg(long, conflicts_with = "trajectories")]
    all: bool,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Attach sensitive values in clear: `all`, or where they stand, as a JSON pointer into entries or the
    /// end of one
    #[arg(long, value_name = "POINTER")]
    disclose: Vec<String>,
    /// Only the trajectories named, without what they rest on
    #[arg(long, conflicts_with = "all")]
    only: bool,
    /// With proofs against the newest checkpoint that a witness has signed
    #[arg(long)]
    witnessed: bool,
    /// Without what the transparency log shows: two stores that hold the same give the same bytes
    #[arg(long, conflicts_with = "witnessed")]
    unsealed: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let Arguments { output, force, .. } = arguments;
    if output.exists() && !force {
        return Err(Problem::new(format!("`{}` exists already", output.display()))
            .hint("`--force` replaces it")
            .into());
    }
    let store = session.store_to_read()?;
    let asked = asked(session, &store, arguments)?;
    let wanted = Wanted {
        follow: !arguments.only,
        all: arguments.all,
        proofs: match (arguments.witnessed, arguments.unsealed) {
            (true, _) => Proofs::Witnessed,
            (false, true) => Proofs::None,
            (false, false) => Proofs::Newest,
        },
    };
    let (mut contents, hidden) = contents(session, &store, &asked, &wanted)?;
    disclose(session, &store, &hidden, arguments, &mut contents)?;
    let disclosed = contents.disclosed() as u64;
    let erased = erased(session, &store, &hidden)?;
    let hidden = hidden.len() as u64;
    let withheld = hidden.saturating_sub(disclosed + erased);

    let mut beside = Beside::new(output, Readers::Everyone)?;
    session.wait(write(&store, contents.clone(), beside.file()))?;
    if *force {
        beside.replace()?;
    } else {
        beside.create()?;
    }

    let size = std::fs::metadata(output).map(|metadata| metadata.len()).unwrap_or_default();
    let trajectories = contents.trajectories().count() as u64;
    let blobs = contents.blobs().count() as u64;
    let entries: u64 = contents.trajectories().map(|(_, head)| head.seq + 1).sum();
    if session.out.is_json() {
        session.out.document(&json!({
            "file": output,
            "bytes": size,
            "trajectories": contents.trajectories().map(|(id, _)| id).collect::<Vec<_>>(),
            "entries": entries,
            "blobs": blobs,
            "disclosed": disclosed,
            "withheld": withheld,
            "erased": erased,
        }))?;
    } else {
        session.out.line(format!(
            "wrote {}, {} and {} to `{}` ({size} bytes)",
            counted(trajectories, "trajectory", "trajectories"),
            counted(entries, "entry", "entries"),
            counted(blobs, "blob", "blobs"),
            output.display()
        ))?;
        if hidden > 0 {
            let values = counted(hidden, "sensitive value", "sensitive values");
            let gone = if erased > 0 { format!(", {erased} erased") } else { String::new() };
            let told = format!("{values}: {disclosed} disclosed, {withheld} withheld{gone}");
            session.out.line(told)?;
        }
    }
    Ok(0)
}

/// How many of the values are nowhere any more, as their trajectories say.
fn erased(session: &Session, store: &Arc<dyn Store>, hidden: &Hidden) -> Result<u64> {
    let within: BTreeSet<TrajectoryId> = hidden.values().map(|(id, _)| *id).collect();
    let within: Vec<TrajectoryId> = within.into_iter().collect();
    let mut gone: BTreeSet<TrajectoryId> = BTreeSet::new();
    session.wait(chains::walk(store, &within, false, |visited| {
        let erased = |entry: &Entry| matches!(entry.payload().body, Body::Erased(_));
        if visited.entry.is_some_and(erased) {
            gone.insert(visited.trajectory);
        }
        Ok(())
    }))?;
    Ok(hidden.values().filter(|(id, _)| gone.contains(id)).count() as u64)
}

fn asked(
    session: &Session,
    store: &Arc<dyn Store>,
    arguments: &Arguments,
) -> Result<Vec<TrajectoryId>> {
    let mut asked = Vec::new();
    if arguments.all {
        asked.extend(session.wait(chains::ends(store))?.into_keys());
        if asked.is_empty() {
            return Err(Problem::new("there is nothing in this store to export").into());
        }
    }
    for text in &arguments.trajectories {
        asked.push(session.wait(reference::trajectory(store, text))?);
    }
    if !arguments.only {
        asked.extend(Registry::find(session, store)?);
    }
    Ok(asked)
}

/// What goes into a bundle beside the trajectories that are asked for.
pub(super) struct Wanted {
    /// What they rest on.
    pub(super) follow: bool,
    /// Whether they are all there are.
    pub(super) all: bool,
    pub(super) proofs: Proofs,
}

/// Which checkpoint of the log is shown.
pub(super) enum Proofs {
    None,
    Newest,
    Witnessed,
}

/// What the bundle will hold, with what the log shows of it. The checkpoint is chosen before the chains are
/// read, so that these have all that it holds.
pub(super) fn contents(
    session: &Session,
    store: &Arc<dyn Store>,
    asked: &[TrajectoryId],
    wanted: &Wanted,
) -> Result<(Contents, Hidden)> {
    for _ in 0..sealing::TRIES {
        let row = match wanted.proofs {
            Proofs::Witnessed => Some(seal::pick(session, store, true)?),
            Proofs::None => None,
            Proofs::Newest => session.wait(store.log().checkpoint(Which::Newest))?,
        };
        let (mut contents, hidden) = session.wait(count(store, asked, wanted.follow))?;
        let Some(row) = row else { return Ok((contents, hidden)) };
        let trajectories: Vec<_> = contents.trajectories().map(|(id, _)| id).collect();
        let some = (!wanted.all).then_some(trajectories.as_slice());
        if let Some(sealing) = session.wait(sealing::evidence(&**store, &row, some))? {
            contents.sealing(sealing);
            return Ok((contents, hidden));
        }
    }
    Err(sealing::not_shown().into())
}

/// The first pass: what the bundle will hold. A chain that was altered is not exported: whoever got
/// it would blame whoever made it.
async fn count(
    store: &Arc<dyn Store>,
    asked: &[TrajectoryId],
    follow: bool,
) -> Result<(Contents, Hidden)> {
    let mut contents = Contents::default();
    let mut hidden = Hidden::new();
    let mut last: BTreeMap<TrajectoryId, Head> = BTreeMap::new();
    let mut registries: BTreeMap<TrajectoryId, State> = BTreeMap::new();
    let mut documents: BTreeSet<Digest> = BTreeSet::new();
    let ends = chains::walk(store, asked, follow, |visited| {
        let Visited { trajectory, stored, entry } = visited;
        let entry = entry.filter(|entry| entry.id() == stored.id);
        let entry = entry.ok_or_else(|| altered(trajectory, stored.seq))?;
        contents.entry(trajectory, entry.head(), stored.bytes.len() as u64);
        last.insert(trajectory, entry.head());
        if may_hold(&stored.bytes) {
            for (pointer, commitment) in commitments(&serde_json::from_slice(&stored.bytes)?) {
                hidden.entry(commitment).or_insert((trajectory, Vec::new())).1.push(pointer);
            }
        }
        blobs(&entry.payload().body).into_iter().for_each(|blob| contents.blob(blob));
        documents.extend(in_force(&entry.payload().body));
        if begins_registry(entry) {
            registries.insert(trajectory, State::new(trajectory));
        }
        if let Some(registry) = registries.get_mut(&trajectory) {
            registry.apply(entry).map_err(|_| altered(trajectory, stored.seq))?;
        }
        Ok(())
    })
    .await?;
    for (trajectory, end) in ends {
        let Some(end) = end else { return Err(unended(trajectory).into()) };
        match last.get(&trajectory) {
            Some(last) if *last == end => {}
            Some(last) if last.seq > end.seq => {
                return Err(altered(trajectory, end.seq + 1).into());
            }
            _ => return Err(altered(trajectory, end.seq).into()),
        }
    }
    // Policies, tools and options: whoever replays decides under what was in force.
    for digest in documents {
        if let Some(bytes) = store.blob(digest).await? {
            contents.blob(BlobRef::of(&bytes));
        }
    }
    // The keys of registries as hints: whoever verifies learns whom to ask.
    for registry in registries.values() {
        registry.registry().keys().iter().cloned().for_each(|key| contents.key(key));
    }
    Ok((contents, hidden))
}

/// What entries commit to: the first trajectory that does, and every place.
pub(super) type Hidden = BTreeMap<Commitment, (TrajectoryId, Vec<String>)>;

/// Attaches the values that were asked for. What is erased cannot be disclosed.
fn disclose(
    session: &Session,
    store: &Arc<dyn Store>,
    hidden: &Hidden,
    arguments: &Arguments,
    contents: &mut Contents,
) -> Result<()> {
    let mut found = BTreeSet::new();
    for (commitment, (trajectory, places)) in hidden {
        let meant = |asked: &&String| {
            asked.as_str() == ALL || places.iter().any(|place| place.ends_with(asked.as_str()))
        };
        let meant: Vec<&String> = arguments.disclose.iter().filter(meant).collect();
        if meant.is_empty() {
            continue;
        }
        let vault = session.vault(store)?;
        let family = session.wait(vault.family(*trajectory))?;
        let all = meant.iter().all(|asked| asked.as_str() == ALL);
        found.extend(meant);
        match session.wait(vault.held(family))? {
            Held::Erased(_) if all => {}
            _ => {
                let safe = session.wait(vault.safe(family))?;
                contents.opening(Disclosed::new(session.wait(safe.opening(commitment))?)?);
            }
        }
    }
    let missed = arguments.disclose.iter().find(|asked| !found.contains(asked));
    match missed.filter(|asked| asked.as_str() != ALL) {
        None => Ok(()),
        Some(missed) => Err(Problem::new(format!("no sensitive value stands at `{missed}`"))
            .hint("`gesta verify ID` lists the sensitive values and where they stand")
            .bad_input()
            .into()),
    }
}

fn begins_registry(entry: &Entry) -> bool {
    matches!(&entry.payload().body, Body::Root(root) if matches!(root.purpose, Purpose::Registry { .. }))
}

fn altered(trajectory: TrajectoryId, seq: u64) -> Problem {
    Problem::new(format!("entry {seq} of {trajectory} was altered; nothing was exported"))
        .hint(format!("`gesta verify {trajectory}` gives a full report"))
        .class(Class::Tampered)
}

fn unended(trajectory: TrajectoryId) -> Problem {
    let what = format!("no row says where {trajectory} ends; nothing was exported");
    Problem::new(what)
        .hint("`gesta doctor --rebuild` makes the row again from the entries")
        .class(Class::Tampered)
}

/// The second pass: the bytes.
pub(super) async fn write(
    store: &Arc<dyn Store>,
    contents: Contents,
    out: &mut impl Write,
) -> Result<()> {
    let trajectories: Vec<_> = contents.trajectories().collect();
    let blobs: Vec<_> = contents.blobs().collect();
    let mut writer = Writer::new(out, contents)?;
    for (trajectory, head) in trajectories {
        let mut from = 0;
        while from <= head.seq {
            let page = store.entries(trajectory, from, PAGE).await?;
            for stored in page.iter().filter(|stored| stored.seq <= head.seq) {
                writer.entry(trajectory, &stored.bytes)?;
            }
            from =
                page.last().with_context(|| format!("entry {from} of {trajectory} is gone"))?.seq
                    + 1;
        }
    }
    for blob in blobs {
        let bytes = store.blob(blob.sha256).await?;
        let missing = || {
            Problem::new(format!("the blob `{}` is not in the store", blob.sha256))
                .class(Class::Incomplete)
        };
        writer.blob(&bytes.ok_or_else(missing)?)?;
    }
    writer.finish()?;
    Ok(())
}
