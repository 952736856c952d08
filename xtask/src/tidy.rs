//! `cargo xtask tidy`: the style that rustfmt and clippy cannot see, checked as text.
//!
//! Reads every file that git tracks or would offer to track. Each check takes a path and a text and
//! returns findings; none touches the disk. Sizes are a ratchet: `tidy/ratchet.txt` holds the exceptions.

mod layout;
mod lexer;
mod markdown;
mod prose;
mod rust;
mod sizes;
mod text;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tool;

/// What fuzzing has found is not for people to read.
const CORPUS: &str = "fuzz/corpus/";

/// Something to repair: where, what, and the remedy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(arg) = args.first() {
        bail!("unknown argument `{arg}`; `tidy` takes none");
    }
    let (files, findings) = inspect(&tool::root())?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            eprintln!("{files} files are tidy");
            Ok(())
        }
        count => bail!("{count} findings of tidy"),
    }
}

/// The number of files read, and the findings in order.
fn inspect(root: &Path) -> Result<(usize, Vec<Finding>)> {
    let paths = list(root)?;
    let mut findings = Vec::new();
    let mut oversizes = Vec::new();
    for path in &paths {
        findings.extend(layout::check(path));
        if path.starts_with(CORPUS) {
            continue;
        }
        let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read `{path}`"))?;
        let Ok(content) = String::from_utf8(bytes) else { continue };
        findings.extend(text::check(path, &content));
        if path.ends_with(".rs") {
            let lines = lexer::lines(&content);
            findings.extend(rust::check(path, &content, &lines));
            findings.extend(prose::check_rust(path, &lines));
            oversizes.extend(sizes::measure(path, &lines));
        } else if path.ends_with(".md") {
            let commands: Vec<&str> = crate::COMMANDS.iter().map(|command| command.name).collect();
            findings.extend(markdown::check_links(path, &content, |to| root.join(to).exists()));
            findings.extend(markdown::check_commands(path, &content, &commands));
        } else {
            findings.extend(prose::check_script(path, &content));
        }
    }
    let ratchet = fs::read_to_string(root.join(sizes::RATCHET));
    findings.extend(sizes::judge(&oversizes, &ratchet.context("cannot read the ratchet")?));
    findings.sort();
    Ok((paths.len(), findings))
}

/// Paths relative to the root, of files that exist and git does not ignore.
fn list(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    let printed = tool::output(git.current_dir(root))?;
    let paths = printed.split('\0').filter(|path| !path.is_empty());
    Ok(paths.filter(|path| root.join(path).is_file()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let (files, findings) = inspect(&tool::root()).unwrap();
        assert!(files > 0);
        let shown: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(shown.is_empty(), "{}", shown.join("\n"));
    }

    #[test]
    fn findings_read_as_a_compiler_would_print_them() {
        let finding = Finding::new("crates/core/src/lib.rs", 7, "tab; use spaces");
        assert_eq!(finding.to_string(), "crates/core/src/lib.rs:7: tab; use spaces");
    }
}
