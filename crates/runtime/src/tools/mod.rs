//! Tools: what they declare, how they are reached, what came back.

mod catalogue;
pub mod code;
mod declaration;
mod definitions;
mod driver;
mod error;
mod function;
mod http;
mod manifest;
mod mcp;
mod pins;
mod process;
mod recorded;
mod schema;
mod secrets;
mod shapes;
mod size;
mod tool;
mod verdict;
mod verifier;
mod webhook;

pub use catalogue::{Catalogue, CatalogueBuilder};
pub use definitions::Definitions;
pub use driver::{Call, Driver, Progress, Reply};
pub use error::{CatalogueError, Place, Problem};
pub use function::{FunctionCall, FunctionError, Returned};
pub use http::{BadHttp, Body, HttpDeclaration};
pub use manifest::{COMPENSATE_NAMES, Change, Compensate, Manifest, Retry, VERIFY_NAMES, Verify};
#[cfg(feature = "fuzz")]
pub use mcp::fuzzed;
pub use mcp::{Asking, BadServer, BadServerName, McpDeclaration, Offer, ServerName};
pub use pins::{BadPins, PinProblem, Pins};
pub use process::{BadProcess, Command, ProcessDeclaration, ProcessOptions, supervise};
pub use schema::{BadSchema, Mismatch};
pub(crate) use secrets::Mask;
pub use secrets::{BadSecretName, SecretName, SecretSource};
pub use size::SizeBytes;
pub use tool::Tool;
pub use verdict::Verdict;
pub use verifier::{Verifier, VerifierDeclaration};
pub use webhook::{Webhook, WebhookDeclaration};
