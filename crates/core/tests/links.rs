//! What an entry names in other trajectories, and under which id it was kept.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use gesta_core::body::{
    Branch, BranchMode, DelegatedBy, Delivered, Delivery, Mandate, Purpose, RegistryHead,
};
use gesta_core::digest::{Digest, EntryId, Seed};
use gesta_core::entry::{Body, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::sample::{Cast, Dice, EPOCH, person};
use gesta_core::state::State;
use gesta_core::verification::{Class, Link, Verifier, links};

const ID: TrajectoryId = TrajectoryId::from_bytes([7; 16]);
const PARENT: TrajectoryId = TrajectoryId::from_bytes([1; 16]);
const REGISTRY: TrajectoryId = TrajectoryId::from_bytes([2; 16]);
const SOURCE: TrajectoryId = TrajectoryId::from_bytes([3; 16]);

fn head(of: &str, seq: u64) -> Head {
    Head { id: EntryId::new(Digest::of(of.as_bytes())), seq }
}

/// A mandate of a child, under a registry.
fn mandate() -> Mandate {
    let delegation = head("delegation", 4).id;
    Mandate {
        delegated_by: Some(DelegatedBy { delegation, trajectory: PARENT }),
        registry: Some(RegistryHead { head: head("registry", 5), trajectory: REGISTRY }),
        ..Cast::new(1).mandate(ID).unwrap()
    }
}

fn link(what: &'static str, trajectory: TrajectoryId, to: Head, numbered: bool) -> Link {
    Link { what, trajectory, entry: to.id, seq: numbered.then_some(to.seq) }
}

#[test]
fn what_a_beginning_names_elsewhere_is_linked() {
    let cast = Cast::new(1);
    let above = [
        link("delegation", PARENT, head("delegation", 4), false),
        link("registry head", REGISTRY, head("registry", 5), true),
    ];
    for purpose in [Purpose::Job(mandate()), Purpose::Session(mandate())] {
        assert_eq!(links(&cast.root(purpose).unwrap()), above);
    }
    let alone = Purpose::Job(cast.mandate(ID).unwrap());
    assert_eq!(links(&cast.root(alone).unwrap()), []);
    assert_eq!(links(&cast.registry_root().unwrap()), []);
    let branch = Body::Branch(Box::new(Branch {
        compiler: String::new(),
        mandate: mandate(),
        mode: BranchMode::Ask,
        note: String::new(),
        principal: person().unwrap(),
        seed: Seed::new(Digest::of(b"branch")),
        source: SOURCE,
        source_commit: head("commit", 1).id,
        source_head: head("source", 6),
    }));
    let [delegation, registry] = above;
    let source = link("source head", SOURCE, head("source", 6), true);
    assert_eq!(links(&branch), [delegation, registry, source]);
}

#[test]
fn parent_and_child_name_each_other() {
    let delivered = |what, step: Option<&str>| {
        let step = step.map(|step| step.parse().unwrap());
        Body::Delivered(Box::new(Delivered { head: head("other", 8), step, to: PARENT, what }))
    };
    let there = [link("delivery", PARENT, head("other", 8), true)];
    assert_eq!(links(&delivered(Delivery::Result, None)), there);
    assert_eq!(links(&delivered(Delivery::Beginning, Some("research"))), there);
    // Of histories, only what was pulled from a child and what was owed to one leads elsewhere.
    let mut linked = BTreeSet::new();
    for seed in 0..40 {
        let mut admission = Cast::new(1).begin_job(ID).unwrap();
        let mut dice = Dice::new(seed);
        Cast::new(1).wander(&mut admission, 60, &mut { EPOCH }, &mut dice).unwrap();
        for entry in admission.entries() {
            let body = &entry.payload().body;
            let (links, expected) = (links(body), leads_to(body));
            assert_eq!(links.first().map(|link| (link.trajectory, link.entry)), expected);
            linked.extend(links.iter().map(|link| link.what));
        }
    }
    assert_eq!(linked, BTreeSet::from(["child head", "delivery"]));
}

fn leads_to(body: &Body) -> Option<(TrajectoryId, EntryId)> {
    match body {
        Body::DelegationResult(result) => Some((result.child, result.head.id)),
        Body::Delivered(delivered) => Some((delivered.to, delivered.head.id)),
        _ => None,
    }
}

#[test]
fn an_entry_kept_under_the_id_of_another_is_tampered_with() {
    let cast = Cast::new(1);
    let admission = cast.begin_job(ID).unwrap();
    let entries = admission.entries();
    let keyring = cast.trust_root().keyring().unwrap();
    let mut verifier = Verifier::new(State::new(ID), &keyring);
    let finding = verifier.entry(entries[0].bytes(), Some(entries[1].id())).unwrap_err();
    assert_eq!((finding.class, finding.code), (Class::Tampered, "id"));
    assert_eq!((finding.seq, finding.entry), (Some(0), Some(entries[0].id())));
    // It was not taken in: the same bytes under their own id are.
    for entry in entries {
        verifier.entry(entry.bytes(), Some(entry.id())).unwrap();
    }
    assert_eq!(verifier.state().head(), admission.state().head());
}
