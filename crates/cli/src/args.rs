//! The command line: options that every command has, and the list of commands.

use std::io;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::commands::{
    approvals, approve, archive, backup, branch, budget, calls, cancel, check, completions,
    confirm, conformance, demo, diff, doctor, doubts, erase, export, freeze, graph, help, import,
    init, jobs, keys, log, notices, policy, proof, quarantine, receipt, release, replay, resolve,
    restore, resume, run, seal, show, signal, submit, tools, tree, verify, witness, worker,
    workers, writ,
};
use crate::session::Session;

const EXIT_CODES: &str = "\
Exit codes:
  0  ok
  1  error: it could not be done, or `doctor` found something wrong
  2  bad input: the command line, a job file, its input, tools or settings were refused
  3  tampered: something was changed, moved, cut or forged
  4  untrusted: intact, but signed by a key that is not trusted for it
  5  incomplete: something that is needed to tell is missing
  6  unreadable: damaged, or made by a newer gesta
  7  diverged: a replay came out otherwise than it is recorded, or the outside is not as it was left
  10 failed: the job has failed, or a tool is not what it declares
  11 cancelled: the job was cancelled
  12 in doubt: the job waits for an operator; see `gesta doubts`
  13 interrupted: told to stop; `gesta resume` goes on
  14 cannot tell: what was tried does not show whether a tool is what it declares";

/// A runtime for agents that act: authorised before, at most once, provable afterwards.
#[derive(Debug, Parser)]
#[command(name = "gesta", version, after_help = EXIT_CODES, propagate_version = false, disable_help_subcommand = true)]
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
    Run(run::Arguments),
    Check(check::Arguments),
    Graph(graph::Arguments),
    Submit(submit::Arguments),
    Worker(worker::Arguments),
    Workers(workers::Arguments),
    Jobs(jobs::Arguments),
    Resume(resume::Arguments),
    Branch(branch::Arguments),
    Signal(signal::Arguments),
    Cancel(cancel::Arguments),
    Approvals(approvals::Arguments),
    Approve(approve::Arguments),
    Deny(approve::Denial),
    Doubts(doubts::Arguments),
    Resolve(resolve::Arguments),
    Confirm(confirm::Arguments),
    Freeze(freeze::Arguments),
    Unfreeze(freeze::UnfreezeArguments),
    Quarantine(quarantine::Arguments),
    Notices(notices::Arguments),
    Tools(tools::Arguments),
    Policy(policy::Arguments),
    Init(init::Arguments),
    Keys(keys::Arguments),
    Writ(writ::Arguments),
    Budget(budget::Arguments),
    Calls(calls::Arguments),
    Log(log::Arguments),
    Show(show::Arguments),
    Receipt(receipt::Arguments),
    Tree(tree::Arguments),
    Replay(replay::Arguments),
    Diff(diff::Arguments),
    Verify(verify::Arguments),
    Export(export::Arguments),
    Import(import::Arguments),
    Conformance(conformance::Arguments),
    Seal(seal::Arguments),
    Proof(proof::Arguments),
    Witness(witness::Arguments),
    Erase(erase::Arguments),
    Archive(archive::Arguments),
    Backup(backup::Arguments),
    Restore(restore::Arguments),
    Release(release::Arguments),
    Doctor(doctor::Arguments),
    Demo(demo::Arguments),
    Completions(completions::Arguments),
    Help(help::Arguments),
}

impl Command {
    /// Runs it. What comes back is the exit code.
    pub(crate) fn run(self, session: &mut Session) -> anyhow::Result<u8> {
        match self {
            Self::Run(arguments) => run::run(session, &arguments),
            Self::Check(arguments) => check::run(session, &arguments),
            Self::Graph(arguments) => graph::run(session, &arguments),
            Self::Submit(arguments) => submit::run(session, &arguments),
            Self::Worker(arguments) => worker::run(session, &arguments),
            Self::Workers(arguments) => workers::run(session, &arguments),
            Self::Jobs(arguments) => jobs::run(session, &arguments),
            Self::Resume(arguments) => resume::run(session, &arguments),
            Self::Branch(arguments) => branch::run(session, &arguments),
            Self::Signal(arguments) => signal::run(session, &arguments),
            Self::Cancel(arguments) => cancel::run(session, &arguments),
            Self::Approvals(arguments) => approvals::run(session, &arguments),
            Self::Approve(arguments) => approve::run(session, &arguments),
            Self::Deny(arguments) => approve::deny(session, &arguments),
            Self::Doubts(arguments) => doubts::run(session, &arguments),
            Self::Resolve(arguments) => resolve::run(session, &arguments),
            Self::Confirm(arguments) => confirm::run(session, &arguments),
            Self::Freeze(arguments) => freeze::freeze(session, &arguments),
            Self::Unfreeze(arguments) => freeze::unfreeze(session, &arguments),
            Self::Quarantine(arguments) => quarantine::run(session, &arguments),
            Self::Notices(arguments) => notices::run(session, &arguments),
            Self::Tools(arguments) => tools::run(session, &arguments),
            Self::Policy(arguments) => policy::run(session, &arguments),
            Self::Init(arguments) => init::run(session, &arguments),
            Self::Keys(arguments) => keys::run(session, arguments),
            Self::Writ(arguments) => writ::run(session, &arguments),
            Self::Budget(arguments) => budget::run(session, &arguments),
            Self::Calls(arguments) => calls::run(session, &arguments),
            Self::Log(arguments) => log::run(session, &arguments),
            Self::Show(arguments) => show::run(session, &arguments),
            Self::Receipt(arguments) => receipt::run(session, &arguments),
            Self::Tree(arguments) => tree::run(session, &arguments),
            Self::Replay(arguments) => replay::run(session, &arguments),
            Self::Diff(arguments) => diff::run(session, &arguments),
            Self::Verify(arguments) => verify::run(session, &arguments),
            Self::Export(arguments) => export::run(session, &arguments),
            Self::Import(arguments) => import::run(session, &arguments),
            Self::Conformance(arguments) => conformance::run(session, &arguments),
            Self::Seal(arguments) => seal::run(session, &arguments),
            Self::Proof(arguments) => proof::run(session, &arguments),
            Self::Witness(arguments) => witness::run(session, &arguments),
            Self::Erase(arguments) => erase::run(session, &arguments),
            Self::Archive(arguments) => archive::run(session, &arguments),
            Self::Backup(arguments) => backup::run(session, &arguments),
            Self::Restore(arguments) => restore::run(session, &arguments),
            Self::Release(arguments) => release::run(session, &arguments),
            Self::Doctor(arguments) => doctor::run(session, &arguments),
            Self::Demo(arguments) => demo::run(session, &arguments),
            Self::Completions(arguments) => completions::run(session, &arguments),
            Self::Help(arguments) => help::run(session, &arguments),
        }
    }
}

/// Commands that this program gives to itself: they are in no list and no help.
#[derive(Debug, Parser)]
#[command(name = "gesta")]
pub(crate) struct Internal {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: InternalCommand,
}

/// See [`Internal`].
#[derive(Debug, Subcommand)]
pub(crate) enum InternalCommand {
    UnderTest(tools::UnderTest),
}

impl InternalCommand {
    /// Runs it. What comes back is the exit code.
    pub(crate) fn run(self, session: &mut Session) -> anyhow::Result<u8> {
        match self {
            Self::UnderTest(arguments) => tools::under_test(session, &arguments),
        }
    }
}

/// Begins logging to stderr: warnings, with `-v` what Gesta does, with `-vv` everything but what the
/// MCP library says: it writes out messages, and they may hold secrets.
pub(crate) fn start_logs(global: &Global) {
    let filter = match global.verbose {
        0 => "warn,rmcp=off",
        1 => "info,gesta=debug,gesta_store=debug,gesta_runtime=debug,rmcp=off",
        _ => "trace,rmcp=off",
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
