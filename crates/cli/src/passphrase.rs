//! Passphrases: from the environment, from a file that it names, or from whoever is at the terminal.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};

use anyhow::{Context as _, Result};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::problem::Problem;

/// The variable that holds the passphrase, and the one that names a file with it.
const HELD: &str = "GESTA_PASSPHRASE";
const IN_FILE: &str = "GESTA_PASSPHRASE_FILE";
/// The same for a new passphrase.
const NEW_HELD: &str = "GESTA_NEW_PASSPHRASE";
const NEW_IN_FILE: &str = "GESTA_NEW_PASSPHRASE_FILE";
/// Anything shorter is guessed.
const SHORTEST: usize = 8;

/// The passphrase of a key file that is encrypted.
pub(crate) fn of(what: &str) -> Result<Zeroizing<String>> {
    match given(HELD, IN_FILE)? {
        Some(given) => Ok(given),
        None => ask(&format!("passphrase of {what}: "))?.ok_or_else(|| {
            Problem::new(format!(
                "{what} is encrypted, and there is nobody to ask for its passphrase"
            ))
            .hint(format!("set `{HELD}`, or `{IN_FILE}` to a file that holds it"))
            .into()
        }),
    }
}

/// A passphrase for a key file that is about to be written, asked for twice.
pub(crate) fn new(what: &str, changes: bool) -> Result<Zeroizing<String>> {
    let (held, in_file) = if changes { (NEW_HELD, NEW_IN_FILE) } else { (HELD, IN_FILE) };
    let passphrase = match given(held, in_file)? {
        Some(given) => given,
        None => {
            let first = ask(&format!("new passphrase for {what}: "))?;
            let second = ask("the same again: ")?;
            match (first, second) {
                (Some(first), Some(second)) if first == second => first,
                (Some(_), Some(_)) => return Err(Problem::new("they differ").bad_input().into()),
                _ => {
                    return Err(Problem::new("there is nobody to ask for a passphrase")
                        .hint(format!("set `{held}`, or `{in_file}` to a file that holds it"))
                        .into());
                }
            }
        }
    };
    if passphrase.chars().count() < SHORTEST {
        return Err(Problem::new(format!("a passphrase has at least {SHORTEST} characters"))
            .bad_input()
            .into());
    }
    Ok(passphrase)
}

fn given(held: &str, in_file: &str) -> Result<Option<Zeroizing<String>>> {
    if let Ok(passphrase) = std::env::var(held) {
        return Ok(Some(Zeroizing::new(passphrase)));
    }
    let Some(path) = std::env::var_os(in_file) else { return Ok(None) };
    let text = std::fs::read_to_string(&path).map(Zeroizing::new).with_context(|| {
        format!("cannot read the file `{}` that `{in_file}` names", path.display())
    })?;
    Ok(Some(Zeroizing::new(text.trim_end_matches(['\n', '\r']).to_owned())))
}

/// Asks at the terminal, without showing what is typed. None where there is no terminal.
fn ask(prompt: &str) -> Result<Option<Zeroizing<String>>> {
    let Ok(mut terminal) = File::options().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    let shown = tcgetattr(&terminal).context("cannot ask at the terminal")?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    terminal.write_all(prompt.as_bytes())?;
    tcsetattr(&terminal, OptionalActions::Flush, &hidden).context("cannot ask at the terminal")?;
    let mut line = Zeroizing::new(String::new());
    let read = BufReader::new(&terminal).read_line(&mut line);
    tcsetattr(&terminal, OptionalActions::Flush, &shown).context("cannot restore the terminal")?;
    terminal.write_all(b"\n")?;
    read.context("cannot read from the terminal")?;
    Ok(Some(Zeroizing::new(line.trim_end_matches(['\n', '\r']).to_owned())))
}
