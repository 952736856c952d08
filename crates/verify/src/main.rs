//! `gesta-verify`: verifies a bundle against a trust root, offline. The report goes to standard
//! output, progress to standard error if that is a terminal.

mod args;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gesta_core::log::checkpoint::TreeHead;
use gesta_core::log::evidence::{ConsistencyProof, EntryProof};
use gesta_core::log::note::Note;
use gesta_core::trust::{Keyring, TrustRoot, TrustedKey};
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Demand, Options, Progress, Seen, verify, verify_proof};
use gesta_verify::report::{Report, Verdict};

use args::{Args, Command, HELP, LogArgs, What, parse};

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    match parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => show(HELP),
        Ok(Command::Version) => show(concat!("gesta-verify ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(Command::Verify(args)) => run(&args).unwrap_or_else(|error| fail(1, &error)),
        Err(error) => fail(2, &error),
    }
}

fn run(args: &Args) -> Result<ExitCode, String> {
    let path = args.trust.display();
    let text = fs::read(&args.trust)
        .map_err(|error| format!("the trust root `{path}` cannot be read: {error}"))?;
    let root = TrustRoot::parse(&text).map_err(|error| format!("`{path}`: {error}"))?;
    let keyring = root.keyring().map_err(|error| format!("`{path}`: {error}"))?;

    let demand = demand(&args.log)?;
    let (report, hints) = match &args.what {
        What::Proof(proof) => (prove(proof, &keyring, &demand)?, Vec::new()),
        What::Bundle(bundle) => examine(bundle, args, &keyring, &demand),
    };
    if !args.quiet {
        let text = if args.json {
            serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n"
        } else {
            visible(&(report.to_string() + &told(&report, &hints) + &unsealed(&report)))
        };
        show(&text);
    }
    Ok(ExitCode::from(report.exit_code()))
}

/// Verifies a bundle. The keys that came along are told as hints.
fn examine(
    path: &Path,
    args: &Args,
    keyring: &Keyring,
    demand: &Demand,
) -> (Report, Vec<TrustedKey>) {
    let bundle = match Bundle::open(path) {
        Ok(bundle) => bundle,
        Err(finding) => return (Report::of_finding(finding), Vec::new()),
    };
    let bar = Bar::new(bundle.entry_bytes());
    let shown = io::stderr().is_terminal() && !args.quiet;
    let show = |progress| bar.show(progress);
    let options = Options {
        threads: args.threads,
        partial: args.partial,
        demand,
        progress: shown.then_some(&show),
        ..Options::default()
    };
    let report = verify(&bundle, keyring, &options);
    if shown {
        bar.clear();
    }
    (report, bundle.hints().to_vec())
}

/// Checks the proof of one entry.
fn prove(path: &Path, keyring: &Keyring, demand: &Demand) -> Result<Report, String> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|error| format!("`{shown}` cannot be read: {error}"))?;
    let proof = EntryProof::parse(&bytes).map_err(|error| format!("`{shown}`: {error}"))?;
    Ok(verify_proof(&proof, keyring, demand))
}

/// What is demanded of the log, with what the verifier has kept.
fn demand(log: &LogArgs) -> Result<Demand, String> {
    let LogArgs { sealed, all, after, witnesses, origin, seen, consistency } = log;
    let read = |path: &Path| {
        fs::read(path).map_err(|error| format!("`{}` cannot be read: {error}", path.display()))
    };
    let seen = match seen {
        None => None,
        Some(path) => {
            let bad = |error: &dyn std::fmt::Display| format!("`{}`: {error}", path.display());
            let note = Note::parse(&read(path)?).map_err(|error| bad(&error))?;
            let head = TreeHead::parse(&note.text).map_err(|error| bad(&error))?;
            let proof = match consistency {
                None => None,
                Some(path) => {
                    let proof = ConsistencyProof::parse(&read(path)?);
                    Some(proof.map_err(|error| format!("`{}`: {error}", path.display()))?)
                }
            };
            Some(Seen { head, consistency: proof })
        }
    };
    let (sealed, all, after, witnesses) = (*sealed, *all, *after, *witnesses);
    Ok(Demand { sealed, all, after, witnesses, origin: origin.clone(), seen })
}

/// What the bundle says of keys that the trust root does not know. Nobody vouches for it.
fn told(report: &Report, hints: &[TrustedKey]) -> String {
    let unknown = report.findings.iter().filter(|finding| finding.code == "unknown_key");
    let unknown: Vec<&str> = unknown.map(|finding| finding.what.as_str()).collect();
    let mut text = String::new();
    for hint in hints {
        let key = hint.key.to_string();
        if unknown.iter().any(|what| what.contains(&key)) {
            let name = hint.name.escape_default();
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "hint: the bundle itself calls `{key}` `{name}`; ask, do not believe"
            );
        }
    }
    text
}

/// What a sound bundle without a checkpoint does not show.
fn unsealed(report: &Report) -> String {
    if report.log.is_some() || report.verdict != Verdict::Sound {
        return String::new();
    }
    "note: no checkpoint of a transparency log came along: that a tail was cut, or a trajectory left out, is not excluded; `--sealed` demands one\n".to_owned()
}

/// What others wrote, made safe to look at: a name in a bundle must not move the cursor, nor turn a line
/// around and make it say something else.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter == '\n'
            || letter == '±'
            || letter.is_alphanumeric()
            || (' '..='~').contains(&letter)
        {
            shown.push(letter);
        } else {
            shown.extend(letter.escape_default());
        }
    }
    shown
}

fn show(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(code: u8, error: &str) -> ExitCode {
    // There is nowhere left to say that standard error is closed.
    let _ = writeln!(io::stderr(), "error: {}", visible(error));
    ExitCode::from(code)
}

/// A line on a terminal that says how far it is.
struct Bar {
    bytes: u64,
    shown: Mutex<Instant>,
}

impl Bar {
    fn new(bytes: u64) -> Self {
        Self { bytes, shown: Mutex::new(Instant::now()) }
    }

    fn show(&self, Progress { entries, bytes }: Progress) {
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.elapsed() < PROGRESS {
            return;
        }
        *shown = Instant::now();
        let percent = bytes.saturating_mul(100).checked_div(self.bytes).unwrap_or(100).min(100);
        let _ = write!(io::stderr(), "\r{percent:3} %  {entries} entries");
    }

    fn clear(&self) {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}
