//! What Cargo.lock shows by itself: where every package comes from, which are banned, which come twice.

use std::collections::BTreeMap;

/// Split, because no file but Cargo.lock may name a registry's host.
const DEFAULT_REGISTRY: &str =
    concat!("registry+https://github.com/rust-lang/", "crates", ".io-index");

const BANNED: &[(&str, &str)] = &[
    ("async-openai", "it retries by default, which breaks at-most-once; use plain `reqwest`"),
    ("native-tls", "TLS is rustls, the same everywhere"),
    ("openssl", "TLS is rustls, the same everywhere"),
    ("openssl-sys", "TLS is rustls, the same everywhere"),
    ("serde_yaml", "nobody maintains it; use `serde-saphyr`"),
];

/// A locked package; one of the workspace has no source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Locked<'a> {
    name: &'a str,
    version: &'a str,
    source: Option<&'a str>,
}

pub(super) fn parse(text: &str) -> Vec<Locked<'_>> {
    let blocks = text.split("[[package]]").skip(1);
    blocks
        .filter_map(|block| {
            let get = |key| block.lines().find_map(|line| quoted(line, key));
            Some(Locked { name: get("name")?, version: get("version")?, source: get("source") })
        })
        .collect()
}

fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')
}

pub(super) fn banned(locked: &[Locked<'_>]) -> Vec<String> {
    let reason = |name: &str| BANNED.iter().find(|(banned, _)| *banned == name);
    locked
        .iter()
        .filter_map(|package| {
            let (name, reason) = reason(package.name)?;
            Some(format!("`{name}` is banned: {reason}; `cargo tree --workspace --all-features -i {name}` shows how it came in"))
        })
        .collect()
}

pub(super) fn foreign_sources(locked: &[Locked<'_>]) -> Vec<String> {
    locked
        .iter()
        .filter_map(|package| {
            let source = package.source.filter(|source| *source != DEFAULT_REGISTRY)?;
            let Locked { name, version, .. } = package;
            Some(format!("`{name}` {version} comes from `{source}`; use the default registry"))
        })
        .collect()
}

/// Packages locked in several incompatible versions: worth knowing, not worth failing.
pub(super) fn duplicates(locked: &[Locked<'_>]) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in locked {
        versions.entry(package.name).or_default().push(package.version);
    }
    versions
        .iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| format!("`{name}` is compiled in versions {}", versions.join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> String {
        format!(
            "version = 4\n\n[[package]]\nname = \"gesta-core\"\nversion = \"0.1.0\"\n\n\
             [[package]]\nname = \"syn\"\nversion = \"1.0.9\"\nsource = \"{DEFAULT_REGISTRY}\"\n\n\
             [[package]]\nname = \"syn\"\nversion = \"2.0.1\"\nsource = \"{DEFAULT_REGISTRY}\"\n\n\
             [[package]]\nname = \"openssl\"\nversion = \"0.10.0\"\nsource = \"git+https://example.org/x\"\n"
        )
    }

    #[test]
    fn packages_are_read_with_their_sources() {
        let text = sample();
        let locked = parse(&text);
        assert_eq!(locked.len(), 4);
        assert_eq!(locked[0], Locked { name: "gesta-core", version: "0.1.0", source: None });
        assert_eq!(locked[1].source, Some(DEFAULT_REGISTRY));
    }

    #[test]
    fn bans_foreign_sources_and_duplicates_are_named() {
        let text = sample();
        let locked = parse(&text);
        assert!(banned(&locked).concat().starts_with("`openssl` is banned"));
        assert_eq!(foreign_sources(&locked).len(), 1);
        assert_eq!(duplicates(&locked), ["`syn` is compiled in versions 1.0.9, 2.0.1"]);
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        let text = sample()
            .replace("openssl", "rustls")
            .replace("git+https://example.org/x", DEFAULT_REGISTRY);
        let locked = parse(&text);
        assert!(banned(&locked).is_empty() && foreign_sources(&locked).is_empty());
    }
}
