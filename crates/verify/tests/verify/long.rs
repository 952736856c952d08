//! Trajectories whose steps do not stay in memory: what was put away counts to the end.

use std::ops::ControlFlow;

use gesta_core::body::Completed;
use gesta_core::content::{BlobRef, Content};
use gesta_core::digest::Digest;
use gesta_core::entry::{Body, Entry, Payload};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::sample::{Cast, author};
use gesta_core::state::Act;
use gesta_core::verification::{Class, Finding};
use gesta_verify::engine::{Chains, Each, Options, verify};
use gesta_verify::report::{Report, Verdict};

use crate::scene::Chain;

/// More than are kept in memory.
const STEPS: u32 = 30_000;
const LONG: TrajectoryId = TrajectoryId::from_bytes([0x3c; 16]);

struct Long(Vec<Entry>);

impl Chains for Long {
    fn trajectories(&self) -> Result<Vec<TrajectoryId>, Finding> {
        Ok(vec![LONG])
    }

    fn entries(&self, _: TrajectoryId, each: &mut Each<'_>) -> Result<(), Finding> {
        let all = self.0.iter().try_for_each(|entry| each(entry.bytes(), Some(entry.id())));
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = all;
        Ok(())
    }

    fn blob(&self, _: Digest) -> Result<Option<BlobRef>, Finding> {
        Ok(None)
    }
}

/// A session of many steps, and all its entries.
fn session() -> (Chain, Vec<Entry>) {
    let cast = Cast::new(7);
    let (begun, state) = cast.begin_session(LONG).unwrap().finish().unwrap();
    let mut chain = Chain::new(state);
    for n in 0..STEPS {
        // Some come in order, the others wherever they belong.
        let id = if n % 3 == 0 { format!("s{:08x}", n.reverse_bits()) } else { format!("t{n:05}") };
        chain.act(&cast, Act::CommitComputed, &id);
    }
    let entries = begun.entries().iter().chain(&chain.entries).cloned().collect();
    (chain, entries)
}

/// An entry that follows a chain, whatever the state says to it.
fn following(chain: &Chain, act: Act, body: Body) -> Entry {
    let head = chain.state.head().unwrap();
    let (by, at) = (author(&chain.state, act).unwrap(), chain.state.at().plus(10));
    let (parent, seq, trajectory) = (Some(head.id), head.seq + 1, LONG);
    Entry::new(Payload { at, body, by, parent, seq, trajectory }).unwrap()
}

fn verified(entries: &[Entry], last: Option<Entry>) -> Report {
    let trust = Cast::new(7).trust_root().keyring().unwrap();
    let options = Options { signatures: false, partial: true, ..Options::default() };
    verify(&Long(entries.iter().cloned().chain(last).collect()), &trust, &options)
}

#[test]
fn a_long_trajectory_is_verified_to_its_end() {
    let (chain, entries) = session();
    let answer = Content::Inline(Canon::null());
    let ending = |run_hash| {
        let body = Body::Completed(Box::new(Completed { answer: answer.clone(), run_hash }));
        following(&chain, Act::Complete, body)
    };

    let run_hash = chain.state.run_hash().unwrap();
    let report = verified(&entries, Some(ending(run_hash)));
    assert_eq!(report.verdict, Verdict::Sound, "{:?}", report.findings);
    assert_eq!(report.counts.entries, entries.len() as u64 + 1);

    let report = verified(&entries, Some(ending(Digest::of(b"another run"))));
    let [finding] = report.findings.as_slice() else { panic!("{:?}", report.findings) };
    assert_eq!((finding.class, finding.code), (Class::Tampered, "illegal"));
    assert_eq!(finding.seq, Some(entries.len() as u64), "{finding}");
}

#[test]
fn a_step_that_was_put_away_may_not_run_again() {
    let (chain, entries) = session();
    // Entries behind the beginning: one of the first steps, one of the last, and one somewhere.
    for n in [3, STEPS / 2, STEPS] {
        let mut again = entries[entries.len() - 1 - (STEPS - n) as usize].payload().body.clone();
        if let Body::Commit(commit) = &mut again {
            commit.parent_commit = chain.state.last_commit();
        }
        let again = following(&chain, Act::CommitComputed, again);
        let report = verified(&entries, Some(again));
        let [finding] = report.findings.as_slice() else { panic!("{:?}", report.findings) };
        assert_eq!((finding.class, finding.code), (Class::Tampered, "illegal"));
        assert_eq!(finding.seq, Some(entries.len() as u64), "{finding}");
        assert!(finding.what.contains("is done"), "{finding}");
    }
}
