//! `cargo xtask deps`: what each crate may stand on.
//!
//! Layers between the workspace's crates, the core's allowlist, licences, banned crates and sources.
//! Asks `cargo tree` and reads Cargo.lock; needs no tool that cargo does not bring.

mod closure;
mod layers;
mod licence;
mod lockfile;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};

use closure::Selection;

const ALLOWLIST: &str = "crates/core/dependencies.allow";
const BLESS: &str = "`cargo xtask deps --bless`";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let bless = match args {
        [] => false,
        [flag] if flag == "--bless" => true,
        _ => bail!("`deps` takes no argument but `--bless`"),
    };
    let mut findings = layers::check(&layers::members()?)?;
    findings.extend(core_allowlist(bless)?);

    let every_package = closure::of(Selection::Workspace)?;
    findings.extend(every_package.iter().filter_map(|package| {
        let fault = licence::check(&package.licence).err()?;
        Some(format!("{} {}: {fault}", package.name, package.version))
    }));

    let locked = fs::read_to_string("Cargo.lock").context("cannot read Cargo.lock")?;
    let locked = lockfile::parse(&locked);
    findings.extend(lockfile::banned(&locked));
    findings.extend(lockfile::foreign_sources(&locked));
    for duplicate in lockfile::duplicates(&locked) {
        eprintln!("note: {duplicate}");
    }

    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            eprintln!("{} packages checked", every_package.len());
            Ok(())
        }
        count => bail!("{count} dependency findings"),
    }
}

/// The names of everything compiled into the core, on any platform, against the checked-in list.
fn core_allowlist(bless: bool) -> Result<Vec<String>> {
    let closure = closure::of(Selection::Package("gesta-core"))?;
    let found: BTreeSet<&str> = closure
        .iter()
        .map(|package| package.name.as_str())
        .filter(|n| *n != "gesta-core")
        .collect();
    if bless {
        let list: String = found.iter().map(|name| format!("{name}\n")).collect();
        fs::write(ALLOWLIST, list).with_context(|| format!("cannot write {ALLOWLIST}"))?;
    }
    let list = fs::read_to_string(ALLOWLIST)
        .with_context(|| format!("cannot read {ALLOWLIST}; {BLESS} writes it"))?;
    Ok(compare_allowlist(&found, &list))
}

fn compare_allowlist(found: &BTreeSet<&str>, list: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut allowed = BTreeMap::new();
    let mut previous = "";
    for (line, name) in (1..).zip(list.lines()) {
        if name <= std::mem::replace(&mut previous, name) {
            findings.push(format!("{ALLOWLIST}:{line}: `{name}` is out of order; {BLESS} sorts"));
        }
        allowed.insert(name, line);
    }
    for name in found.iter().filter(|name| !allowed.contains_key(*name)) {
        findings.push(format!("{ALLOWLIST}: the core now compiles in `{name}`; drop the dependency, or accept it with {BLESS}"));
    }
    for (name, line) in allowed.iter().filter(|(name, _)| !found.contains(*name)) {
        findings.push(format!("{ALLOWLIST}:{line}: the core does not use `{name}`; run {BLESS}"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(found: &[&str], list: &str) -> Vec<String> {
        compare_allowlist(&found.iter().copied().collect(), list)
    }

    #[test]
    fn the_list_and_the_closure_agree() {
        assert_eq!(check(&["hex", "sha2"], "hex\nsha2\n"), Vec::<String>::new());
    }

    #[test]
    fn additions_leftovers_and_disorder_are_found() {
        let findings = check(&["hex", "sha2", "tokio"], "sha2\nhex\nold\n");
        let expected =
            ["2: `hex` is out of order", "compiles in `tokio`", "3: the core does not use `old`"];
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, part) in findings.iter().zip(expected) {
            assert!(finding.contains(part), "{finding}");
        }
    }

    #[test]
    fn unknown_arguments_are_refused() {
        assert!(run(&["--blss".to_owned()]).is_err());
    }
}
