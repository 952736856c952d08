//! What the first entry of a trajectory says, read before anything is verified: it decides in which
//! order trajectories are examined and what to look for in others. Nothing here is believed yet.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gesta_core::body::{BranchMode, DelegatedBy, Mandate, Purpose, RegistryHead};
use gesta_core::digest::{EntryId, WritId};
use gesta_core::entry::{Body, Entry, Head};
use gesta_core::ids::TrajectoryId;

use super::Chains;

/// How a trajectory begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// As a registry.
    Registry,
    /// From a commit of another.
    Branch {
        source: TrajectoryId,
        commit: EntryId,
        head: Head,
        /// Whether it may take over results that were recorded above it.
        recorded: bool,
    },
    /// By itself, or in a way that its verification will refuse.
    Alone,
}

/// What the first entry names.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) as_: Begins,
    pub(super) delegated_by: Option<DelegatedBy>,
    pub(super) registry: Option<RegistryHead>,
    /// The writ that roots the trajectory.
    pub(super) writ: Option<WritId>,
    /// The trajectory that a writ above that one roots, if it does not say that it delegated.
    pub(super) uncarved: Option<TrajectoryId>,
}

impl Beginning {
    /// Reads the first entry. What cannot be read is left to the verification.
    pub(super) fn peek(chains: &dyn Chains, trajectory: TrajectoryId) -> Self {
        let mut first = None;
        let read = chains.entries(trajectory, &mut |bytes, _| {
            first = Entry::from_bytes(bytes).ok();
            ControlFlow::Break(())
        });
        let nothing = Self {
            as_: Begins::Alone,
            delegated_by: None,
            registry: None,
            writ: None,
            uncarved: None,
        };
        let Some(first) = first.filter(|_| read.is_ok()) else { return nothing };
        match &first.payload().body {
            Body::Root(root) => match &root.purpose {
                Purpose::Job(mandate) | Purpose::Session(mandate) => {
                    Self::under(mandate, Begins::Alone)
                }
                Purpose::Registry { .. } => Self { as_: Begins::Registry, ..nothing },
            },
            Body::Branch(branch) => {
                let (source, commit) = (branch.source, branch.source_commit);
                let (head, recorded) = (branch.source_head, branch.mode == BranchMode::Recorded);
                let begins = Begins::Branch { source, commit, head, recorded };
                Self::under(&branch.mandate, begins)
            }
            _ => nothing,
        }
    }

    fn under(mandate: &Mandate, as_: Begins) -> Self {
        Self {
            as_,
            delegated_by: mandate.delegated_by.clone(),
            registry: mandate.registry.clone(),
            writ: mandate.writs.last().map(|writ| writ.id()),
            uncarved: mandate.uncarved(),
        }
    }

    /// The entries of other trajectories that are looked for while those are examined.
    pub(super) fn names(&self) -> impl Iterator<Item = (TrajectoryId, EntryId)> {
        let delegation = self.delegated_by.as_ref().map(|by| (by.trajectory, by.delegation));
        let source = match self.as_ {
            Begins::Branch { source, commit, head, .. } => {
                [Some((source, commit)), Some((source, head.id))]
            }
            Begins::Registry | Begins::Alone => [None, None],
        };
        source.into_iter().flatten().chain(delegation)
    }
}

/// The trajectories above a branch, its source first. One that descends from itself is refused elsewhere.
pub(super) fn above(
    beginnings: &BTreeMap<TrajectoryId, Beginning>,
    branch: &Beginning,
) -> Vec<TrajectoryId> {
    let mut above = Vec::new();
    let mut at = Some(branch);
    while let Some(Begins::Branch { source, .. }) = at.map(|beginning| beginning.as_) {
        if above.contains(&source) {
            break;
        }
        above.push(source);
        at = beginnings.get(&source);
    }
    above
}
