//! What gets compiled for a package, as `cargo tree` resolves it: every feature, every platform.
//!
//! `cargo tree` rather than `cargo metadata`, because the latter unites the features of the whole
//! workspace and would charge one crate with what another one switched on.

use anyhow::{Context, Result};

use crate::tool;

/// Which part of the workspace to ask about.
#[derive(Clone, Copy)]
pub(super) enum Selection<'a> {
    /// All members, with what only their builds and tests need.
    Workspace,
    /// One member as others depend on it: without its build and test dependencies.
    Package(&'a str),
}

/// One package of a closure.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// The SPDX expression; empty if the package declares none.
    pub(super) licence: String,
}

/// Sorted, each package once, the selected ones among them.
pub(super) fn of(selection: Selection<'_>) -> Result<Vec<Package>> {
    let mut tree = tool::cargo(&["tree", "--quiet", "--all-features", "--target", "all"]);
    tree.args(["--prefix", "none", "--format", "{p}|{l}"]);
    match selection {
        Selection::Workspace => tree.args(["--workspace", "--edges", "normal,build,dev"]),
        Selection::Package(name) => tree.args(["--package", name, "--edges", "normal"]),
    };
    parse(&tool::output(&mut tree)?)
}

fn parse(printed: &str) -> Result<Vec<Package>> {
    let lines = printed.lines().filter(|line| !line.is_empty());
    let mut packages = lines.map(parse_line).collect::<Result<Vec<_>>>()?;
    packages.sort();
    packages.dedup();
    Ok(packages)
}

fn parse_line(line: &str) -> Result<Package> {
    let fields = || {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split_whitespace();
        let name = words.next()?.to_owned();
        let version = words.next()?.strip_prefix('v')?.to_owned();
        let licence = licence.strip_suffix("(*)").unwrap_or(licence).trim().to_owned();
        Some(Package { name, version, licence })
    };
    fields().with_context(|| format!("cannot read `{line}` from `cargo tree`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_packages_count_once() {
        let printed = "gesta-core v0.1.0 (/x/crates/core)|Apache-2.0\n\
                       syn v2.0.1|MIT\nserde_derive v1.0.2 (proc-macro)|MIT OR Apache-2.0\nsyn v2.0.1|MIT (*)\n";
        let packages = parse(printed).unwrap();
        let shown: Vec<_> =
            packages.iter().map(|p| (p.name.as_str(), p.licence.as_str())).collect();
        let expected =
            [("gesta-core", "Apache-2.0"), ("serde_derive", "MIT OR Apache-2.0"), ("syn", "MIT")];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_line_of_another_shape_is_an_error() {
        assert!(parse("what is this").unwrap_err().to_string().contains("what is this"));
    }
}
