//! The pure core of Gesta: canonical JSON, ids, signed documents, entries, the state machine.
//!
//! Nothing in here reads a clock, a file, the environment or a random source, and nothing is async:
//! time, entropy and bytes enter by value. Append, recovery, replay and offline verification all go
//! through [`state::State::apply`], so an illegal chain can be neither written, loaded nor verified.

pub mod amounts;
pub mod body;
pub mod codes;
pub mod content;
pub mod digest;
pub mod document;
pub mod duration;
pub mod entry;
pub mod guardian;
pub mod ids;
pub mod json;
pub mod keys;
pub mod log;
pub mod policy;
pub mod projection;
pub mod repeat;
pub mod sample;
pub mod sensitive;
pub mod signed;
pub mod state;
pub mod temporal;
pub mod time;
pub mod trust;
pub mod verification;
pub mod world;
pub mod writ;
