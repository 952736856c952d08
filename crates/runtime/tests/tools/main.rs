//! Tools through their public door: real processes, real connections, and a count of what arrived.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod catalogue;
mod ending;
mod function;
mod http;
mod http_failures;
mod pins;
mod process;
mod schema;
mod secrets;
mod server;
mod tls;
mod world;
