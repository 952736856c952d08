//! `gesta show`: one entry with everything in it, its signatures, links and blobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::body::{Mandate, Purpose};
use gesta_core::digest::EntryId;
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::{Tenant, TrajectoryId};
use gesta_core::sensitive::commitments;
use gesta_core::trust::Keyring;
use gesta_core::verification::{Class, blobs, links};
use gesta_store::{Store, StoredEntry};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::escape::{visible, visible_lines};
use crate::problem::Problem;
use crate::registry::Registry;
use crate::session::Session;
use crate::sight::{Reveal, Sight};
use crate::signatures::{Looking, SignatureStatus};
use crate::timeline::read;
use crate::{moment, reference};

/// Show one entry: content, signatures, links, blobs
#[derive(Debug, Args)]
#[command(after_help = "\
An entry is named by trajectory and number (`t_4f2a:7` or `t_4f2a/7`), by trajectory and the first
digits of its id (`t_4f2a:9be1`), or by its whole id.

Examples:
  gesta show t_4f2a:7
  gesta show t_4f2a:7 --json | jq .signatures
  gesta show t_4f2a:0 --reveal")]
pub(crate) struct Arguments {
    /// The entry
    #[arg(value_name = "ENTRY")]
    entry: String,
    #[command(flatten)]
    reveal: Reveal,
}

#[derive(Serialize)]
struct Shown {
    trajectory: TrajectoryId,
    seq: u64,
    id: EntryId,
    bytes: usize,
    signatures: Vec<SignatureStatus>,
    links: Vec<ShownLink>,
    blobs: Vec<ShownBlob>,
    entry: Box<RawValue>,
    /// The sensitive values, by where they stand in the entry.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    revealed: BTreeMap<String, Value>,
    /// What the tool returned, where that is kept beside the entry; not if it is sealed, unless it is revealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

#[derive(Serialize)]
struct ShownLink {
    what: &'static str,
    trajectory: TrajectoryId,
    seq: Option<u64>,
    entry: EntryId,
}

#[derive(Serialize)]
struct ShownBlob {
    sha256: gesta_core::digest::Digest,
    size: u64,
    present: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let (trajectory, stored) = session.wait(reference::entry(&store, &arguments.entry))?;
    let entry = read(&stored).map_err(|why| {
        Problem::new(format!("entry {} of {trajectory} was altered: {why}", stored.seq))
            .hint(format!("`gesta verify {trajectory}` gives a full report"))
            .class(Class::Tampered)
    })?;
    let mut shown = look(session, &store, trajectory, &stored, &entry)?;
    let sight = Sight::of(session, &store, trajectory, arguments.reveal)?;
    if sight.is_open() {
        shown.revealed = revealed(&sight, &stored)?;
    }
    shown.output = output(session, &store, &sight, &entry)?;
    if session.out.is_json() {
        session.out.document(&shown)?;
    } else {
        print(session, &shown, &entry, &sight)?;
    }
    Ok(0)
}

/// The sensitive values of an entry, by where they stand.
fn revealed(sight: &Sight, stored: &StoredEntry) -> Result<BTreeMap<String, Value>> {
    let value: Value = serde_json::from_slice(&stored.bytes)?;
    let mut found = BTreeMap::new();
    for (pointer, commitment) in commitments(&value) {
        let mut value = commitment.value();
        sight.value(&mut value)?;
        found.insert(pointer, value);
    }
    Ok(found)
}

/// What a tool returned in a call that came to nothing, or of which nobody knows what it came to.
fn output(
    session: &Session,
    store: &Arc<dyn Store>,
    sight: &Sight,
    entry: &Entry,
) -> Result<Option<String>> {
    let kept = match &entry.payload().body {
        Body::Failure(failure) => failure.output,
        Body::InDoubt(doubt) => doubt.output,
        _ => None,
    };
    let Some(kept) = kept else { return Ok(None) };
    let Some(bytes) = session.wait(store.blob(kept.sha256))? else { return Ok(None) };
    Ok(sight.output(&bytes)?.map(|output| String::from_utf8_lossy(&output).into_owned()))
}

fn look(
    session: &Session,
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    stored: &StoredEntry,
    entry: &Entry,
) -> Result<Shown> {
    let body = &entry.payload().body;
    let keyring = keyring(session, store);
    let row = session.wait(store.trajectory(trajectory))?;
    let tenant: Option<Tenant> = mandate(body)
        .and_then(|mandate| mandate.writs.last())
        .map(|writ| writ.doc().tenant.clone());
    let tenant = tenant.or_else(|| row.and_then(|row| row.summary.tenant));
    let looking =
        Looking { keyring: keyring.as_ref(), tenant: tenant.as_ref(), at: entry.payload().at };
    let mut found = Vec::new();
    for blob in blobs(body) {
        let present = session.wait(store.blob(blob.sha256))?.is_some();
        found.push(ShownBlob { sha256: blob.sha256, size: blob.size, present });
    }
    let link = |link: gesta_core::verification::Link| ShownLink {
        what: link.what,
        trajectory: link.trajectory,
        seq: link.seq,
        entry: link.entry,
    };
    let text = String::from_utf8(stored.bytes.clone())?;
    Ok(Shown {
        trajectory,
        seq: stored.seq,
        id: stored.id,
        bytes: stored.bytes.len(),
        signatures: looking.at(body),
        links: links(body).into_iter().map(link).collect(),
        blobs: found,
        entry: RawValue::from_string(text)?,
        revealed: BTreeMap::new(),
        output: None,
    })
}

/// The keys of the trust root and of the registry, as far as there are any. Who is trusted is for
/// `gesta verify` to say in earnest; here it helps to read.
fn keyring(session: &Session, store: &Arc<dyn Store>) -> Option<Keyring> {
    let trust = Session::trust(None).ok().and_then(|root| root.keyring().ok());
    let registry = Registry::open(session, store).ok();
    match (trust, registry) {
        (Some(mut keyring), Some(registry)) => {
            keyring.extend(registry.keys());
            Some(keyring)
        }
        (Some(keyring), None) => Some(keyring),
        (None, registry) => registry.map(|registry| registry.keys().clone()),
    }
}

fn mandate(body: &Body) -> Option<&Mandate> {
    match body {
        Body::Root(root) => match &root.purpose {
            Purpose::Job(mandate) | Purpose::Session(mandate) => Some(mandate),
            Purpose::Registry { .. } => None,
        },
        Body::Branch(branch) => Some(&branch.mandate),
        _ => None,
    }
}

fn print(session: &mut Session, shown: &Shown, entry: &Entry, sight: &Sight) -> Result<()> {
    let payload = entry.payload();
    let out = &mut session.out;
    out.line(format!("entry {} of {}: {}", shown.seq, shown.trajectory, entry.kind()))?;
    out.line(format!("  id         {}", shown.id))?;
    out.line(format!("  at         {} ({} ms)", moment::utc(payload.at), payload.at.0))?;
    out.line(format!("  by         {}", visible(&payload.by.to_string())))?;
    out.line(format!("  bytes      {}", shown.bytes))?;
    for signature in &shown.signatures {
        let SignatureStatus { type_, key, name, genuine, trusted, why } = signature;
        let name = name.as_deref().map(visible).unwrap_or_else(|| "unknown key".to_owned());
        let genuine = if *genuine { "genuine" } else { "FORGED" };
        let trusted = match trusted {
            Some(true) => "trusted",
            Some(false) => "NOT TRUSTED",
            None => "not compared",
        };
        out.line(format!("  signature  {type_} by {name} {key}: {genuine}, {trusted} ({why})"))?;
    }
    for ShownLink { what, trajectory, seq, entry } in &shown.links {
        let seq = seq.map(|seq| format!(" entry {seq}")).unwrap_or_default();
        out.line(format!("  link       {what}: {trajectory}{seq} {entry}"))?;
    }
    for ShownBlob { sha256, size, present } in &shown.blobs {
        let present = if *present { "present" } else { "MISSING" };
        out.line(format!("  blob       {sha256} of {size} bytes, {present}"))?;
    }
    if let Some(output) = &shown.output {
        out.line("  output")?;
        for line in visible_lines(output).lines() {
            out.line(format!("    {line}"))?;
        }
    }
    let mut value: Value = serde_json::from_str(shown.entry.get())?;
    sight.value(&mut value)?;
    out.document(&value)
}
