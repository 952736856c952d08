//! Tools of MCP servers. A server is started or reached when the first call needs it, shared by the
//! calls of a worker, and asked anew who it is and what it offers whenever it was gone. Nothing of
//! what it says of itself is believed beyond what somebody has pinned.

mod declaration;
mod exchange;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
mod gated;
mod headers;
mod http;
mod inbox;
mod offer;
mod server;
mod session;
mod sse;
mod stdio;
mod tool;
mod wire;

pub(super) use declaration::Way;
pub use declaration::{BadServer, BadServerName, McpDeclaration, ServerName};
pub use offer::Offer;
pub use server::Asking;
pub(super) use server::Server;
pub(super) use tool::{ErrorRules, McpTool, manifest};
