//! Gesta's runtime: the path of a call, the jobs that make calls, the workers that drive jobs, and
//! the drivers that reach the tools.

pub mod authority;
mod budgets;
mod clock;
mod closing;
mod cut;
mod desk;
pub mod duration;
mod effects;
mod error;
mod facts;
mod gesta;
mod home;
pub mod job;
pub mod jobs;
mod limits;
mod notify;
mod pipeline;
mod presence;
mod probe;
mod rules;
mod runner;
#[cfg(feature = "sabotage")]
mod sabotage;
mod signer;
mod spool;
pub mod tools;
mod turn;
mod verify;
mod worker;

pub use authority::{Keys, Unauthorised};
pub use budgets::shortage;
pub use desk::{COMPILER, Event, Listener, Options, no_policy};
pub use error::RunError;
pub use facts::Facts;
pub use gesta::Gesta;
pub use home::{Belongings, Home, Order, Outcome};
pub use rules::delta_of;
pub use runner::Left;
#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;
pub use spool::Spool;
pub use worker::{Setup, Worker, has_work};
