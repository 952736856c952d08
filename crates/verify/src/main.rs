//! `gesta-verify`: verifies a bundle against a trust root, offline. The report goes to standard
//! output, progress to standard error if that is a terminal.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use gesta_core::trust::{TrustRoot, TrustedKey};
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Options, Progress, verify};
use gesta_verify::report::Report;

const HELP: &str = "\
Verify a Gesta bundle, offline.

usage: gesta-verify --trust FILE [options] BUNDLE

  --trust FILE   the trust root: the keys that count, with their roles (required)
  --json         write the report as JSON
  --partial      the bundle is a part of a whole: what leads out of it is listed,
                 and does not make it incomplete
  --threads N    how many threads to use (as many as there are processors)
  --quiet        write nothing; the exit code tells
  --help         show this text
  --version      show the version

exit codes:
  0  sound: everything was examined and holds
  1  the verification could not be made
  2  bad usage
  3  tampered: something was changed, moved, cut or forged
  4  untrusted: intact, but signed by someone who is not trusted for it
  5  incomplete: something that is needed to tell is missing
  6  unreadable: not a bundle, or of a version that this program does not know

If several apply, the first of 3, 4, 6, 5 is returned; the report has them all.
";

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

#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Version,
    Verify(Args),
}

#[derive(Debug, PartialEq, Eq)]
struct Args {
    trust: PathBuf,
    bundle: PathBuf,
    json: bool,
    partial: bool,
    quiet: bool,
    threads: NonZeroUsize,
}

fn parse(words: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let (mut trust, mut bundle, mut threads) = (None, None, None);
    let (mut json, mut partial, mut quiet, mut only_paths) = (false, false, false, false);
    let mut words = words;
    while let Some(word) = words.next() {
        let mut value = |name: &str| words.next().ok_or_else(|| format!("`{name}` needs a value"));
        match word.to_str().filter(|_| !only_paths) {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("--version" | "-V") => return Ok(Command::Version),
            Some("--json") => json = true,
            Some("--partial") => partial = true,
            Some("--quiet" | "-q") => quiet = true,
            Some("--trust") => trust = Some(PathBuf::from(value("--trust")?)),
            Some("--threads") => threads = Some(count(&value("--threads")?)?),
            Some("--") => only_paths = true,
            Some(option) if option.starts_with('-') => {
                return Err(format!("unknown option `{option}`; `gesta-verify --help` lists them"));
            }
            _ if bundle.is_some() => {
                let second = word.to_string_lossy();
                return Err(format!("one bundle at a time; what is `{second}`?"));
            }
            _ => bundle = Some(PathBuf::from(word)),
        }
    }
    let bundle = bundle.ok_or("name a bundle: `gesta-verify --trust FILE BUNDLE`")?;
    let trust = trust.ok_or(
        "a verifier brings its own trust root: give it with `--trust FILE` (`gesta init` wrote one \
         as `trust.json`; take it from whoever answers for the keys, not from whoever sent the bundle)",
    )?;
    let threads =
        threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    Ok(Command::Verify(Args { trust, bundle, json, partial, quiet, threads }))
}

fn count(text: &OsString) -> Result<NonZeroUsize, String> {
    let parsed = text.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("`{}` is not a number of threads", text.to_string_lossy()))
}

fn run(args: &Args) -> Result<ExitCode, String> {
    let path = args.trust.display();
    let text = fs::read(&args.trust)
        .map_err(|error| format!("the trust root `{path}` cannot be read: {error}"))?;
    let root = TrustRoot::parse(&text).map_err(|error| format!("`{path}`: {error}"))?;
    let keyring = root.keyring().map_err(|error| format!("`{path}`: {error}"))?;

    let (report, hints) = match Bundle::open(&args.bundle) {
        Err(finding) => (Report::of_finding(finding), Vec::new()),
        Ok(bundle) => {
            let bar = Bar::new(bundle.entry_bytes());
            let shown = io::stderr().is_terminal() && !args.quiet;
            let show = |progress| bar.show(progress);
            let options = Options {
                threads: args.threads,
                partial: args.partial,
                progress: shown.then_some(&show),
                ..Options::default()
            };
            let report = verify(&bundle, &keyring, &options);
            if shown {
                bar.clear();
            }
            (report, bundle.hints().to_vec())
        }
    };
    if !args.quiet {
        let text = if args.json {
            serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n"
        } else {
            report.to_string() + &told(&report, &hints)
        };
        show(&text);
    }
    Ok(ExitCode::from(report.exit_code()))
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

fn show(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(code: u8, error: &str) -> ExitCode {
    // There is nowhere left to say that standard error is closed.
    let _ = writeln!(io::stderr(), "error: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Command, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn a_trust_root_is_required() {
        assert!(parsed(&["b.tar"]).unwrap_err().contains("--trust FILE"));
        assert!(parsed(&["--trust", "t.json"]).unwrap_err().contains("name a bundle"));
        assert!(parsed(&["--trust"]).unwrap_err().contains("needs a value"));
    }

    #[test]
    fn options_are_read() {
        let Ok(Command::Verify(args)) =
            parsed(&["--json", "--threads", "3", "--trust", "t.json", "--partial", "--", "--b"])
        else {
            panic!("not read");
        };
        assert_eq!(args.threads.get(), 3);
        assert_eq!(args.bundle, PathBuf::from("--b"));
        assert!(args.json && args.partial && !args.quiet);
        assert_eq!(parsed(&["--help"]), Ok(Command::Help));
        for bad in [&["--threads", "0", "b"][..], &["--fast", "b"], &["--trust", "t", "a", "b"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
