//! Gesta's runtime: the path of a call, the jobs that make calls, the workers that drive jobs, and
//! the drivers that reach the tools.

mod anchor;
pub mod approvals;
pub mod authority;
mod branches;
mod budgets;
mod clock;
mod closing;
#[doc(hidden)]
pub mod cut;
mod decide;
mod delegation;
mod desk;
pub use gesta_core::duration;
mod effects;
mod erase;
mod error;
mod examine;
mod facts;
mod gesta;
mod home;
mod in_force;
pub mod job;
mod job_files;
pub mod jobs;
mod limits;
mod lineage;
mod notify;
mod options;
mod pipeline;
mod presence;
mod probe;
mod proofs;
mod quarantine;
pub mod replay;
mod restored;
mod rules;
mod runner;
#[cfg(feature = "sabotage")]
mod sabotage;
mod sealing;
mod signer;
mod spool;
pub mod tools;
mod tree;
mod turn;
mod vault;
mod veil;
mod verify;
mod vouch;
mod worker;

pub use anchor::{Anchored, Unfit};
pub use authority::{Keys, Unauthorised};
pub use branches::{At, BranchOrder};
pub use budgets::shortage;
pub use desk::{COMPILER, Event, Listener};
pub use erase::{Erasure, erase};
pub use error::RunError;
pub use facts::{Descent, Facts, Point, STARTS};
pub use gesta::Gesta;
pub use home::{Belongings, Home, Order, Outcome};
pub use in_force::policies;
pub use job_files::JobFiles;
pub use options::Options;
pub use presence::alive;
pub use proofs::Prover;
pub use rules::{Foreseen, delta_of, foreseen};
pub use runner::Left;
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use sealing::{SealError, Sealed, Sealer};
pub use spool::Spool;
pub use tree::family;
pub use vault::{Entropy, Held, Safe, Vault, above};
pub use worker::{Setup, Worker, has_work};
