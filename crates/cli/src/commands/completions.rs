//! `gesta completions`: completions for a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::session::Session;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta completions bash > /etc/bash_completion.d/gesta
  gesta completions zsh > ~/.zfunc/_gesta
  gesta completions fish > ~/.config/fish/completions/gesta.fish")]
pub(crate) struct Arguments {
    /// Which shell
    shell: Shell,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    let mut command = crate::args::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "gesta", &mut script);
    session.out.text(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
