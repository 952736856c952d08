//! What `gesta-verify` is told on its command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use gesta_core::time::UnixMs;
use gesta_verify::moment;

/// What it says about itself.
pub(crate) const HELP: &str = "\
Verify a Gesta bundle, offline.

usage: gesta-verify --trust FILE [options] BUNDLE
       gesta-verify --trust FILE [options] --proof FILE

  --trust FILE   the trust root: the keys that count, with their roles (required)
  --json         write the report as JSON
  --partial      the bundle is a part of a whole: what leads out of it is listed,
                 and does not make it incomplete
  --threads N    how many threads to use (as many as there are processors)
  --quiet        write nothing; the exit code tells
  --help         show this text
  --version      show the version

against cutting, dropping, rolling back and showing different things to different people:
  --sealed                  every trajectory is in the transparency log, to its last entry
  --all                     every trajectory that the log knows is in the bundle
  --checkpoint-after TIME   the checkpoint is no older (2026-11-16T09:30:00Z)
  --witnesses N             at least N witnesses of the trust root have cosigned it
  --log NAME                it is a checkpoint of this log
  --seen FILE               it goes on from this checkpoint, which you have kept
  --consistency FILE        shows that it does (`gesta proof --since SIZE`)
  --proof FILE              check the proof of one entry (`gesta proof`), not a bundle

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

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Version,
    Verify(Args),
}

/// What to verify, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) trust: PathBuf,
    pub(crate) what: What,
    pub(crate) json: bool,
    pub(crate) partial: bool,
    pub(crate) quiet: bool,
    pub(crate) threads: NonZeroUsize,
    pub(crate) log: LogArgs,
}

/// What is to be verified.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    Bundle(PathBuf),
    Proof(PathBuf),
}

/// What is demanded of the transparency log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LogArgs {
    pub(crate) sealed: bool,
    pub(crate) all: bool,
    pub(crate) after: Option<UnixMs>,
    pub(crate) witnesses: usize,
    pub(crate) origin: Option<String>,
    pub(crate) seen: Option<PathBuf>,
    pub(crate) consistency: Option<PathBuf>,
}

/// The words so far.
#[derive(Default)]
struct Words {
    trust: Option<PathBuf>,
    bundle: Option<PathBuf>,
    proof: Option<PathBuf>,
    threads: Option<NonZeroUsize>,
    json: bool,
    partial: bool,
    quiet: bool,
    log: LogArgs,
}

/// Reads the command line.
pub(crate) fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let (mut read, mut only_paths) = (Words::default(), false);
    while let Some(word) = words.next() {
        match word.to_str().filter(|_| !only_paths) {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("--version" | "-V") => return Ok(Command::Version),
            Some("--") => only_paths = true,
            Some(option) if option.starts_with('-') => {
                let (option, given) = match option.split_once('=') {
                    Some((option, value)) => (option, Some(OsString::from(value))),
                    None => (option, None),
                };
                match (read.flag(option), given) {
                    (true, None) => {}
                    (true, Some(_)) => return Err(format!("`{option}` takes no value")),
                    (false, given) => read.option(option, given.or_else(|| words.next()))?,
                }
            }
            _ if read.bundle.is_some() => {
                let second = word.to_string_lossy();
                return Err(format!("one bundle at a time; what is `{second}`?"));
            }
            _ => read.bundle = Some(PathBuf::from(word)),
        }
    }
    read.finish().map(Command::Verify)
}

impl Words {
    /// Takes an option without a value, if it is one.
    fn flag(&mut self, option: &str) -> bool {
        let flag = match option {
            "--json" => &mut self.json,
            "--partial" => &mut self.partial,
            "--quiet" | "-q" => &mut self.quiet,
            "--sealed" => &mut self.log.sealed,
            "--all" => &mut self.log.all,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// Takes an option with its value.
    fn option(&mut self, option: &str, given: Option<OsString>) -> Result<(), String> {
        let value = || given.ok_or_else(|| format!("`{option}` needs a value"));
        match option {
            "--trust" => self.trust = Some(PathBuf::from(value()?)),
            "--proof" => self.proof = Some(PathBuf::from(value()?)),
            "--threads" => self.threads = Some(number(&value()?, "a number of threads")?),
            "--witnesses" => {
                self.log.witnesses =
                    number::<NonZeroUsize>(&value()?, "a number of witnesses")?.get();
            }
            "--checkpoint-after" => {
                let text = value()?.to_string_lossy().into_owned();
                let after = moment::parse(&text);
                self.log.after = Some(after.ok_or_else(|| {
                    format!("`{text}` is not a time; write it as 2026-11-16T09:30:00Z")
                })?);
            }
            "--log" => self.log.origin = Some(value()?.to_string_lossy().into_owned()),
            "--seen" => self.log.seen = Some(PathBuf::from(value()?)),
            "--consistency" => self.log.consistency = Some(PathBuf::from(value()?)),
            _ => {
                return Err(format!("unknown option `{option}`; `gesta-verify --help` lists them"));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Args, String> {
        let Self { trust, bundle, proof, threads, json, partial, quiet, log } = self;
        let what = match (bundle, proof) {
            (Some(bundle), None) => What::Bundle(bundle),
            (None, Some(proof)) => What::Proof(proof),
            (Some(_), Some(_)) => return Err("a bundle or a proof, not both".to_owned()),
            (None, None) => {
                return Err("name a bundle: `gesta-verify --trust FILE BUNDLE`".to_owned());
            }
        };
        let trust = trust.ok_or(
            "a verifier brings its own trust root: give it with `--trust FILE` (`gesta init` wrote one \
             as `trust.json`; take it from whoever answers for the keys, not from whoever sent the bundle)",
        )?;
        if log.consistency.is_some() && log.seen.is_none() {
            return Err(
                "`--consistency` goes with `--seen`: the checkpoint that you have kept".to_owned()
            );
        }
        if log.all && matches!(what, What::Proof(_)) {
            return Err("`--all` is demanded of a bundle: a proof is of one entry".to_owned());
        }
        let threads =
            threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        Ok(Args { trust, what, json, partial, quiet, threads, log })
    }
}

fn number<T: std::str::FromStr>(text: &OsString, what: &str) -> Result<T, String> {
    let parsed = text.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("`{}` is not {what}", text.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        assert_eq!(args.what, What::Bundle(PathBuf::from("--b")));
        assert!(args.json && args.partial && !args.quiet);
        assert_eq!(args.log, LogArgs::default());
        assert_eq!(parsed(&["--help"]), Ok(Command::Help));
        let spelled = parsed(&["--threads=3", "--trust=a=b.json", "b"]);
        assert_eq!(spelled, parsed(&["--trust", "a=b.json", "--threads", "3", "b"]));
        let Ok(Command::Verify(Args { trust, .. })) = spelled else { panic!("not read") };
        assert_eq!(trust, Path::new("a=b.json"));
        assert!(parsed(&["--trust=t", "--json=yes", "b"]).unwrap_err().contains("takes no value"));
        for bad in [&["--threads", "0", "b"][..], &["--fast", "b"], &["--trust", "t", "a", "b"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn demands_on_the_log_are_read() {
        let words = "--trust t --sealed --all --witnesses 2 --log l --seen s --consistency c \
                     --checkpoint-after 1970-01-01T00:00:01Z b";
        let Ok(Command::Verify(Args { log, .. })) = parsed(&words.split(' ').collect::<Vec<_>>())
        else {
            panic!("not read");
        };
        assert!(log.sealed && log.all);
        assert_eq!((log.witnesses, log.after), (2, Some(UnixMs(1000))));
        assert_eq!(log.origin.as_deref(), Some("l"));
        assert_eq!((log.seen, log.consistency), (Some("s".into()), Some("c".into())));
        for bad in [
            &["--witnesses", "0", "b"][..],
            &["--checkpoint-after", "yesterday", "b"],
            &["--trust", "t", "--consistency", "c", "b"],
            &["--trust", "t", "--proof", "p", "b"],
            &["--trust", "t", "--proof", "p", "--all"],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
