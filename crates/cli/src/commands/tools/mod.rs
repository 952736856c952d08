//! `gesta tools`: what tools there are, accepting them as they are, and trying whether what they
//! declare of their recovery holds.

mod list;
mod pin;
mod publish;
mod trial;
mod under_test;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::session::Session;

pub(crate) use under_test::{Arguments as UnderTest, COMMAND as UNDER_TEST, run as under_test};

/// List tools, pin and publish them, and test what they declare
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta tools list
  gesta tools pin
  gesta tools publish
  gesta tools test orders.read --args '{\"order\":1042}'")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the tools of the workspace
    #[command(after_help = "\
MCP servers that were pinned are started or reached, and asked whether they still offer what they
did: a tool that has changed since is frozen.

Examples:
  gesta tools list
  gesta tools list --offline --json | jq .digest")]
    List(list::Arguments),
    /// Accept the tools as they are
    #[command(after_help = "\
Writes gesta.lock: the digest of each tool's declaration. From then on a tool that is not as it was
pinned is frozen: no call of it is allowed until it is pinned again.

MCP servers are started or reached, and asked what they offer; that is written down as they say it.
Before it is pinned, a server has no tools.

Examples:
  gesta tools pin --dry-run
  gesta tools pin
  gesta tools pin --offline")]
    Pin(pin::Arguments),
    /// Make the tools as they are the only ones that any worker may call
    #[command(after_help = "\
The registry then names this catalogue, signed with the owner's key, and it binds every worker of
the store, whatever its own configuration says: a tool that is not in it is refused
(`unknown_tool`), and one that a worker has otherwise is frozen (`tool_frozen`) until the worker
has it as it was published, or it is published again. Nothing published binds nobody.

Examples:
  gesta tools publish --dry-run
  gesta tools publish
  gesta tools publish --json | jq -r .digest")]
    Publish(publish::Arguments),
    Test(trial::Arguments),
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    match &arguments.command {
        Command::List(arguments) => list::run(session, arguments),
        Command::Pin(arguments) => pin::run(session, arguments),
        Command::Publish(arguments) => publish::run(session, arguments),
        Command::Test(arguments) => trial::run(session, arguments),
    }
}
