//! `gesta receipt`: the signed record of how a call ended, or of a refusal, for others to check.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gesta_core::body::{Origin, Started};
use gesta_core::content::Content;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::Receipt;
use gesta_core::entry::{Body, Entry, Payload};
use gesta_core::ids::TrajectoryId;
use gesta_core::keys::{KeyId, PrivateKey};
use gesta_core::signed::Signed;
use gesta_core::verification::Class;
use gesta_store::{Chain, Store};

use crate::dsse::{self, Bound, Call, Place};
use crate::problem::Problem;
use crate::session::Session;
use crate::timeline::word;
use crate::{key_file, moment, reference};

/// Show receipts, or sign them over as in-toto statements
#[derive(Debug, Args)]
#[command(after_help = "\
A `commit` of a call, a `failure` and a `rejection` hold receipts. With `--dsse`, the receipt and what
it binds become the predicate of an in-toto statement (v1) about the entry and what the call returned,
in a DSSE envelope that is signed anew: by the key that signed the receipt, if it is in this
workspace, or by the one that `--as` names. Arguments stand in it as their digest. Of a trajectory
every receipt is printed, one envelope a line; `gesta keys export NAME --pem` prints the key to
check them with.

Examples:
  gesta receipt t_4f2a:7
  gesta receipt t_4f2a:7 --dsse > refund.intoto.jsonl
  gesta receipt t_4f2a --dsse > everything.intoto.jsonl
  gesta receipt t_4f2a:7 --dsse --as auditor")]
pub(crate) struct Arguments {
    /// The entry, as for `gesta show`, or a trajectory: every receipt in it
    #[arg(value_name = "ENTRY|ID")]
    entry: String,
    /// Print a DSSE envelope with an in-toto statement, on one line
    #[arg(long)]
    dsse: bool,
    /// The key to sign the envelope with [default: that of the receipt]
    #[arg(long = "as", value_name = "NAME", requires = "dsse")]
    signer: Option<String>,
}

/// How many entries are read at a time.
const PAGE: usize = 512;

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let named = arguments.entry.as_str();
    let whole = !named.contains([':', '/']) && Digest::from_hex(named).is_none();
    let mut out = Out { arguments, whole, keys: BTreeMap::new(), shown: 0 };
    if whole {
        let trajectory = session.wait(reference::trajectory(&store, named))?;
        every(session, &store, trajectory, &mut out)?;
        return Ok(0);
    }
    let (trajectory, stored) = session.wait(reference::entry(&store, named))?;
    // The whole chain is folded: a receipt that stands in no legal chain is worth nothing.
    session.wait(Chain::load(Arc::clone(&store), trajectory))?;
    let entry = Entry::from_bytes(&stored.bytes)?;
    let Some((_, _, started)) = parts(&entry) else {
        return Err(Problem::new(format!(
            "entry {} is a `{}` without a receipt",
            entry.seq(),
            entry.kind()
        ))
        .hint(
            "commits of calls, failures and rejections have one: `gesta log ID` lists the entries",
        )
        .bad_input()
        .into());
    };
    let opened = match started {
        Some(started) => session.wait(opened(&store, trajectory, started, entry.seq()))?,
        None => None,
    };
    out.put(session, &entry, opened.as_ref())?;
    Ok(0)
}

/// All receipts of a trajectory, in the order of its entries.
fn every(
    session: &mut Session,
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    out: &mut Out<'_>,
) -> Result<()> {
    session.wait(Chain::load(Arc::clone(store), trajectory))?;
    let mut opened: BTreeMap<EntryId, Started> = BTreeMap::new();
    let mut from = 0;
    loop {
        let page = session.wait(store.entries(trajectory, from, PAGE))?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        for stored in &page {
            let entry = Entry::from_bytes(&stored.bytes)?;
            if let Body::Started(started) = &entry.payload().body {
                opened.insert(entry.id(), (**started).clone());
            } else if let Some((_, _, started)) = parts(&entry) {
                let opened = started.and_then(|started| opened.get(&started));
                out.put(session, &entry, opened)?;
            }
        }
    }
    if out.shown == 0 {
        session.hint(&format!("{trajectory} has no receipts: no call of it has ended yet"))?;
    }
    Ok(())
}

/// Where receipts go, in the form that is asked for.
struct Out<'a> {
    arguments: &'a Arguments,
    /// Whether a whole trajectory is asked for.
    whole: bool,
    /// The keys that have signed something, by id: each is read once.
    keys: BTreeMap<KeyId, PrivateKey>,
    shown: u64,
}

impl Out<'_> {
    fn put(
        &mut self,
        session: &mut Session,
        entry: &Entry,
        opened: Option<&Started>,
    ) -> Result<()> {
        let Some((receipt, observation, _)) = parts(entry) else { return Ok(()) };
        if !receipt.verifies() {
            let trajectory = entry.payload().trajectory;
            let what =
                format!("the signature of the receipt in entry {} does not hold", entry.seq());
            return Err(Problem::new(what)
                .hint(format!("`gesta verify {trajectory}` gives a full report"))
                .class(Class::Tampered)
                .into());
        }
        let bound = Bound { call: opened.map(Call::of), entry: place(entry), receipt };
        self.shown += 1;
        if self.arguments.dsse {
            let key = self.signer(receipt)?;
            session.out.json_line(&dsse::sign(&bound, observation, key)?)?;
        } else if session.out.is_json() && self.whole {
            session.out.json_line(&bound)?;
        } else if session.out.is_json() {
            session.out.document(&bound)?;
        } else {
            if self.shown > 1 {
                session.out.line("")?;
            }
            print(session, entry, receipt, opened)?;
        }
        Ok(())
    }

    /// The key that signs the envelope.
    fn signer(&mut self, receipt: &Signed<Receipt>) -> Result<&PrivateKey> {
        let id = receipt.doc().key;
        match self.keys.entry(id) {
            Vacant(free) => Ok(free.insert(signer(self.arguments.signer.as_deref(), receipt)?)),
            Occupied(known) => Ok(known.into_mut()),
        }
    }
}

/// The receipt of an entry, what the call returned, and the `started` that it closes.
fn parts(entry: &Entry) -> Option<(&Signed<Receipt>, Option<&Content>, Option<EntryId>)> {
    match &entry.payload().body {
        Body::Commit(commit) => match &commit.origin {
            Origin::Effect { receipt, started, .. } => {
                Some((receipt, Some(&commit.observation), Some(*started)))
            }
            _ => None,
        },
        Body::Failure(failure) => Some((&failure.receipt, None, failure.started)),
        Body::Rejection(rejection) => Some((&rejection.receipt, None, None)),
        _ => None,
    }
}

fn place(entry: &Entry) -> Place {
    let Payload { at, trajectory, .. } = entry.payload();
    let (id, kind, seq) = (entry.id(), entry.kind(), entry.seq());
    Place { at: *at, id, kind, seq, trajectory: *trajectory }
}

/// The `started` that an entry closes; it is before it in the same chain.
async fn opened(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
    started: EntryId,
    before: u64,
) -> Result<Option<Started>> {
    let mut from = 0;
    while from < before {
        let page = store.entries(trajectory, from, PAGE).await?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        if let Some(found) = page.iter().find(|stored| stored.id == started) {
            let entry = Entry::from_bytes(&found.bytes)?;
            return Ok(match &entry.payload().body {
                Body::Started(started) => Some((**started).clone()),
                _ => None,
            });
        }
    }
    Ok(None)
}

/// The key that signs the envelope.
fn signer(name: Option<&str>, receipt: &Signed<Receipt>) -> Result<PrivateKey> {
    let keys = Session::workspace()?.keys();
    if let Some(name) = name {
        return key_file::read(&key_file::path(&keys, name));
    }
    let key = receipt.doc().key;
    key_file::find(&keys, key)?.ok_or_else(|| {
        Problem::new(format!("the key `{key}`, which signed the receipt, is not in this workspace"))
            .hint("run it where the worker's keys are, or name another key with `--as`")
            .into()
    })
}

fn print(
    session: &mut Session,
    entry: &Entry,
    receipt: &Signed<Receipt>,
    opened: Option<&Started>,
) -> Result<()> {
    let doc = receipt.doc();
    let of = |name: &str, value: &str| format!("{name:<9}{value}");
    let result = serde_json::to_string(&doc.result)?;
    let mut lines = vec![
        of("receipt", &receipt.id().to_string()),
        of("entry", &format!("{}:{} ({})", doc.trajectory, entry.seq(), word(&entry.kind()))),
        of("at", &moment::utc(doc.at)),
        of("step", doc.step.as_str()),
        of("result", &result),
        of("number", &doc.lamport.to_string()),
        of("signed", &format!("by {}", doc.key)),
    ];
    if let Some(started) = opened {
        lines.insert(4, of("tool", started.proposal.tool.as_str()));
    }
    lines.iter().try_for_each(|line| session.out.line(line))?;
    Ok(())
}
