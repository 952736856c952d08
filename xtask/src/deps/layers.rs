//! Which crate of the workspace may stand on which, and what must be provably absent from one.

use std::fs;

use anyhow::{Context, Result, bail};

use super::closure::{self, Package, Selection};

/// A directory of `crates/`, the ones below it, and crates that must not reach it by any path.
struct Layer {
    dir: &'static str,
    below: &'static [&'static str],
    absent: &'static [&'static str],
}

const OUTSIDE_WORLD: &[&str] = &["hyper", "mio", "reqwest", "rusqlite", "tokio", "tokio-postgres"];

#[rustfmt::skip]
const LAYERS: &[Layer] = &[
    Layer { dir: "core", below: &[], absent: OUTSIDE_WORLD },
    Layer { dir: "policy", below: &["core"], absent: OUTSIDE_WORLD },
    Layer { dir: "verify", below: &["core"], absent: OUTSIDE_WORLD },
    Layer { dir: "store", below: &["core"], absent: &["hyper", "reqwest"] },
    Layer { dir: "runtime", below: &["core", "policy", "store"], absent: &[] },
    Layer { dir: "server", below: &["core", "policy", "runtime", "store"], absent: &[] },
    Layer { dir: "cli", below: &["core", "policy", "runtime", "server", "store", "verify"], absent: &[] },
];

/// A crate of the workspace.
pub(super) struct Member {
    dir: String,
    package: String,
}

/// The crates in `crates/`.
pub(super) fn members() -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for entry in fs::read_dir("crates").context("cannot list crates/")? {
        let entry = entry.context("cannot list crates/")?;
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        let dir = entry.file_name().to_string_lossy().into_owned();
        match package_name(&manifest) {
            Some(package) => members.push(Member { dir, package: package.to_owned() }),
            None => bail!("crates/{dir}/Cargo.toml has no `name = \"..\"` line"),
        }
    }
    members.sort_by(|a, b| a.dir.cmp(&b.dir));
    Ok(members)
}

pub(super) fn check(members: &[Member]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for member in members {
        let closure = closure::of(Selection::Package(&member.package))?;
        findings.extend(judge(member, members, &closure));
    }
    Ok(findings)
}

fn judge(member: &Member, members: &[Member], closure: &[Package]) -> Vec<String> {
    let Member { dir, package } = member;
    let Some(layer) = LAYERS.iter().find(|layer| layer.dir == dir) else {
        return vec![format!(
            "crates/{dir}: not in the table of layers; add it in xtask/src/deps/layers.rs"
        )];
    };
    let reached = |name: &str| closure.iter().any(|package| package.name == name);
    let upwards = members
        .iter()
        .filter(|other| other.dir != *dir && !layer.below.contains(&other.dir.as_str()))
        .filter(|other| reached(&other.package))
        .map(|other| format!("crates/{dir}: must not depend on `{}`; dependencies point one way (ARCHITECTURE.md)", other.package));
    let forbidden = layer.absent.iter().filter(|name| reached(name)).map(|name| {
        format!("crates/{dir}: `{name}` must be absent; `cargo tree -p {package} -i {name}` shows how it came in")
    });
    upwards.chain(forbidden).collect()
}

fn package_name(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dir: &str, reached: &[&str]) -> Vec<String> {
        let member = |dir: &str| Member { dir: dir.to_owned(), package: format!("gesta-{dir}") };
        let package = |name: &&str| Package {
            name: (*name).to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT".to_owned(),
        };
        let closure: Vec<Package> = reached.iter().map(package).collect();
        judge(&member(dir), &["core", "store", "verify"].map(member), &closure)
    }

    #[test]
    fn dependencies_that_point_down_pass() {
        assert!(check("core", &["gesta-core", "sha2"]).is_empty());
        assert!(check("store", &["gesta-store", "gesta-core", "rusqlite"]).is_empty());
    }

    #[test]
    fn a_dependency_that_points_up_is_found() {
        let findings = check("core", &["gesta-core", "gesta-store"]);
        assert!(findings.concat().contains("must not depend on `gesta-store`"), "{findings:?}");
        assert_eq!(check("verify", &["gesta-core", "gesta-store"]).len(), 1);
    }

    #[test]
    fn the_verifier_reaches_no_network_and_no_database() {
        let findings = check("verify", &["gesta-core", "tokio", "rusqlite"]);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        assert!(check("ledgers", &[]).concat().contains("not in the table of layers"));
    }

    #[test]
    fn the_package_name_is_read_from_the_manifest() {
        assert_eq!(package_name("[package]\nname = \"gesta-core\"\n"), Some("gesta-core"));
        assert_eq!(package_name("[package]\n"), None);
    }
}
