//! Bundles, good and bad, through the public door.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot set up its scene has failed"
)]

mod golden;
mod long;
mod program;
mod scene;
mod sealed;
mod seen;
mod tampering;
mod vectors;
mod writing;
