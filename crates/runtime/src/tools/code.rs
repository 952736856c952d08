//! The stable codes of what goes wrong between a worker and a tool. Messages are for people and may
//! change; programs and policies compare these.

/// A secret that the tool declares is missing, unreadable or unusable; nothing was sent.
pub const SECRET_UNAVAILABLE: &str = "secret_unavailable";
/// The arguments cannot be put into the form that the tool takes; nothing was sent.
pub const ARGUMENTS_UNSENDABLE: &str = "arguments_unsendable";
/// The program, or the supervisor that runs it, could not be started.
pub const TOOL_NOT_STARTED: &str = "tool_not_started";
/// The tool says that it failed.
pub const TOOL_FAILED: &str = "tool_failed";
/// The tool says that it cannot do this at present.
pub const TOOL_BUSY: &str = "tool_busy";
/// The tool was ended by a signal, or a function by a panic.
pub const TOOL_CRASHED: &str = "tool_crashed";
/// The supervisor, or the connection, ended without telling how the call went.
pub const REPLY_LOST: &str = "reply_lost";
/// The deadline passed. What is known of the effect tells whether the call had been sent.
pub const DEADLINE_PASSED: &str = "deadline_passed";
/// The tool returned more than its declaration allows.
pub const OUTPUT_TOO_LARGE: &str = "output_too_large";
/// No connection came about; nothing was sent.
pub const NOT_CONNECTED: &str = "not_connected";
/// The name leads to an address that tools may not reach; nothing was sent.
pub const ADDRESS_REFUSED: &str = "address_refused";
/// The other side answers with another place; that is not followed.
pub const REDIRECT_REFUSED: &str = "redirect_refused";
/// The tool is not what was pinned; nothing was sent.
pub const TOOL_FROZEN: &str = "tool_frozen";
/// The MCP server answers with an error, or with something that is no result.
pub const MCP_ERROR: &str = "mcp_error";
/// The other side answers with a status that means failure.
pub const HTTP_STATUS: &str = "http_status";
