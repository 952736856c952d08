//! Whose turn it is. PostgreSQL says the same in SQL; the conformance suite compares them.

use std::collections::BTreeMap;

use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_core::time::UnixMs;

/// A trajectory that could be claimed. Ordered by whose turn it is within a tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// The less, the earlier.
    pub(crate) rank: i16,
    pub(crate) changed_at: UnixMs,
    pub(crate) trajectory: TrajectoryId,
    pub(crate) tenant: String,
}

/// What is known of a tenant when turns are taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// How many of its trajectories are in hand.
    pub(crate) in_hand: u64,
    /// When it was last chosen while others waited: the greater, the later.
    pub(crate) given: u64,
}

/// Whether tenants stand in each other's way: only then it matters who was given what.
pub(crate) fn contested(candidates: &[Candidate]) -> bool {
    let mut tenants = candidates.iter().map(|candidate| &candidate.tenant);
    let first = tenants.next();
    tenants.any(|other| Some(other) != first)
}

/// The next `max`: by rank, then whose tenant has the fewest in hand, each one chosen counting as
/// one more, then whose tenant was chosen longest ago, then longest unchanged.
pub(crate) fn next(
    mut candidates: Vec<Candidate>,
    mut standing: BTreeMap<String, Standing>,
    max: usize,
) -> Vec<Candidate> {
    candidates.sort();
    let mut turns: Vec<_> = candidates
        .into_iter()
        .map(|candidate| {
            let Standing { in_hand, given } = standing.entry(candidate.tenant.clone()).or_default();
            *in_hand += 1;
            ((candidate.rank, *in_hand, *given), candidate)
        })
        .collect();
    turns.sort();
    turns.into_iter().take(max).map(|(_, candidate)| candidate).collect()
}

/// Where a priority stands: the greatest comes first.
pub(crate) fn rank(priority: u8) -> i16 {
    -i16::from(priority)
}

/// The priority that stands there.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn priority(rank: i16) -> Option<u8> {
    u8::try_from(-i32::from(rank)).ok()
}

/// Tools in one text. No name holds a blank.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn joined(tools: &[ToolName]) -> String {
    let names: Vec<&str> = tools.iter().map(ToolName::as_str).collect();
    names.join(" ")
}

/// The tools in a text.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn split(text: &str) -> Option<Vec<ToolName>> {
    text.split_terminator(' ').map(|name| name.parse().ok()).collect()
}

/// Whether a worker with tools `has` can drive what needs these.
pub(crate) fn fits(needs: &[ToolName], has: &[ToolName]) -> bool {
    needs.iter().all(|tool| has.binary_search(tool).is_ok())
}
