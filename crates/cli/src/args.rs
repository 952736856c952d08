//! The command line: options that every command has, and the list of commands.

use std::io;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::commands::{completions, demo, doctor, export, init, keys, log, show, verify};
use crate::session::Session;

const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  error: it could not be done, or `doctor` found something wrong
  2  usage: the command line was not understood
  3  tampered: something was changed, moved, cut or forged
  4  untrusted: intact, but signed by a key that is not trusted for it
  5  incomplete: something that is needed to tell is missing
  6  unreadable: damaged, or made by a newer gesta";

/// A ledger for agents that act: authorised before, provable afterwards.
#[derive(Debug, Parser)]
#[command(name = "gesta", version, after_help = EXIT_CODES, propagate_version = false)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The store: a SQLite file or a postgres:// URL [default: from gesta.toml]
    #[arg(long, global = true, value_name = "PLACE", env = "GESTA_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// The certificate authority of a PostgreSQL server, PEM
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "GESTA_STORE_CA",
        hide_env_values = true
    )]
    pub(crate) store_ca: Option<PathBuf>,
    /// Print JSON: one document, or one a line where there are many
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Tell more on stderr; twice, still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How logs are written
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Color {
    pub(crate) fn choice(self, stream: &impl anstream::stream::RawStream) -> anstream::ColorChoice {
        match self {
            Self::Auto => anstream::AutoStream::choice(stream),
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
    }
}

/// How logs are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::Arguments),
    Keys(keys::Arguments),
    Log(log::Arguments),
    Show(show::Arguments),
    Verify(verify::Arguments),
    Export(export::Arguments),
    Doctor(doctor::Arguments),
    Demo(demo::Arguments),
    Completions(completions::Arguments),
}

impl Command {
    /// Runs it. What comes back is the exit code.
    pub(crate) fn run(self, session: &mut Session) -> anyhow::Result<u8> {
        match self {
            Self::Init(arguments) => init::run(session, &arguments),
            Self::Keys(arguments) => keys::run(session, arguments),
            Self::Log(arguments) => log::run(session, &arguments),
            Self::Show(arguments) => show::run(session, &arguments),
            Self::Verify(arguments) => verify::run(session, &arguments),
            Self::Export(arguments) => export::run(session, &arguments),
            Self::Doctor(arguments) => doctor::run(session, &arguments),
            Self::Demo(arguments) => demo::run(session, &arguments),
            Self::Completions(arguments) => completions::run(session, &arguments),
        }
    }
}

/// Begins logging to stderr: warnings, with `-v` what Gesta does, with `-vv` everything.
pub(crate) fn start_logs(global: &Global) {
    let filter = match global.verbose {
        0 => "warn",
        1 => "info,gesta=debug,gesta_store=debug",
        _ => "trace",
    };
    let logs = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(io::stderr)
        .with_ansi(global.color.choice(&io::stderr()) != anstream::ColorChoice::Never);
    match global.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}
