//! The auditor's side of Gesta: the bundle that trajectories travel in, and the verification of many
//! trajectories with all that spans them.
//!
//! It stands on the core and on reading files, and on nothing else: no store, no network, no clock.
//! What one trajectory must satisfy is [`gesta_core::verification`]'s to say; what lies between
//! trajectories (blobs, registries, branches, delegations) is checked in [`engine`].

pub mod bundle;
pub mod engine;
pub mod moment;
pub mod report;
