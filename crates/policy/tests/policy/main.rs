//! Policy documents through the public door: what is refused when it is loaded, and what is answered.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod answers;
mod arguments;
mod asking;
mod loading;
mod shop;
