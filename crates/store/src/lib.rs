//! Gesta's stores: one narrow port, and SQLite, PostgreSQL and memory behind it.
//!
//! The embedded default is one SQLite file; PostgreSQL serves many workers on many machines; memory
//! is for simulation. Each is a Cargo feature but memory. One conformance suite runs against all.

mod accounts;
mod archive;
pub mod chain;
mod claims;
pub mod clock;
mod data_keys;
mod epoch;
pub mod error;
pub mod faulty;
mod log;
pub mod memory;
mod mending;
pub mod news;
mod outbox;
pub mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
mod rations;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use accounts::{Account, AccountRow, Draw, Drawn};
pub use archive::{Archived, Archives, Archiving, BundleRow, Size, Whole};
pub use chain::{Chain, ChainError, Draft, Follow, Rehearsed, Written, as_of, read_entry};
pub use data_keys::{DataKey, DataKeys, Kept, MemoryDataKeys};
pub use epoch::{Copied, Epoch, Epochs, HeldListing, HeldRow, Opening, Release};
pub use error::{AppendError, StoreError};
pub use gesta_core::amounts::Span;
pub use log::{CheckpointRow, Lag, LogStore, Run, Seal, UnsealedRow, Which};
pub use mending::{Mark, Mending, Trace};
pub use news::{Hearing, Listening, News};
pub use outbox::{NoticeRow, Tried};
pub use port::{
    Listing, ParkedListing, ParkedRow, Profile, Reach, Store, StoredEntry, TrajectoryRow, WorkerRow,
};
pub use rations::Ration;
