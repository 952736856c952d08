//! MCP servers through the public door: the reference servers, a server on the official SDK that speaks
//! the newest protocol, and one that misbehaves and counts what reaches it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod certainty;
mod declared;
mod http;
mod modern;
mod pins;
mod real;
mod stdio;
mod world;
