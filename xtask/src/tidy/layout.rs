//! Where files may be and what they may be called.

use super::Finding;
use super::rust::is_vague;

const ROOT_FILES: [&str; 11] = [
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "rustfmt.toml",
];
const ROOT_DIRECTORIES: [&str; 11] = [
    ".cargo", ".config", ".ci", "bench", "crates", "docs", "examples", "fuzz", "schemas",
    "vectors", "xtask",
];

pub(super) fn check(path: &str) -> Vec<Finding> {
    let misplaced = match path.split_once('/') {
        Some((dir, _)) => !ROOT_DIRECTORIES.contains(&dir),
        None => !ROOT_FILES.contains(&path),
    };
    let misplaced = misplaced.then(|| {
        "has no place in the root; move it, or extend xtask/src/tidy/layout.rs".to_owned()
    });
    let vague = vague_part(path)
        .map(|part| format!("the name `{part}` says nothing; name it after its noun"));
    misplaced.into_iter().chain(vague).map(|what| Finding::new(path, 1, what)).collect()
}

/// The first directory, or the name of a Rust file, that says nothing.
fn vague_part(path: &str) -> Option<&str> {
    let (dirs, file) = path.rsplit_once('/').unwrap_or(("", path));
    let mut parts = dirs.split('/').chain(file.strip_suffix(".rs"));
    parts.find(|part| is_vague(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_for_few() {
        for path in ["README.md", ".ci/run", "crates/core/src/lib.rs", "vectors/a.json"] {
            assert!(check(path).is_empty(), "{path}");
        }
        for path in ["STATUS.md", "scripts/x.sh", "Makefile"] {
            assert!(check(path)[0].what.starts_with("has no place in the root"), "{path}");
        }
    }

    #[test]
    fn vague_names_are_found() {
        for (path, part) in [
            ("crates/core/src/utils.rs", "utils"),
            ("crates/core/tests/common/mod.rs", "common"),
            ("crates/store/src/lock_manager.rs", "lock_manager"),
        ] {
            assert!(check(path)[0].what.contains(&format!("`{part}`")), "{path}");
        }
        assert!(check("crates/core/src/commons_log.rs").is_empty());
    }
}
