//! Rules for every text file: whitespace, and no host names of package registries.
//!
//! Golden vectors and snapshots keep the bytes they have; Cargo.lock is written by cargo.

use super::Finding;

/// Split, so that this file passes its own check.
const REGISTRY_HOSTS: [&str; 8] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("yarnpkg", ".com"),
    concat!("deb.", "debian.org"),
    concat!("archive.", "ubuntu.com"),
];

pub(super) fn check(path: &str, content: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(content.split('\n')) {
        if let Some(what) = line_fault(path, line) {
            findings.push(Finding::new(path, number, what));
        }
    }
    if !content.is_empty() && !content.ends_with('\n') && !is_golden(path) {
        let what = "no newline at the end of the file; add it";
        findings.push(Finding::new(path, content.lines().count(), what));
    }
    findings
}

fn line_fault(path: &str, line: &str) -> Option<String> {
    let host = REGISTRY_HOSTS.iter().find(|host| line.contains(**host));
    if let Some(host) = host.filter(|_| path != "Cargo.lock") {
        return Some(format!("names the registry host `{host}`; leave that to the user's setup"));
    }
    if line.ends_with(char::is_whitespace) && !is_golden(path) {
        return Some("space at the end of the line; remove it".to_owned());
    }
    (path.ends_with(".rs") && line.contains('\t')).then(|| "tab; use spaces, or `\\t`".to_owned())
}

fn is_golden(path: &str) -> bool {
    path.starts_with("vectors/") || path.ends_with(".snap")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, content: &str, expected: &str) {
        let findings = check(path, content);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].to_string().starts_with(expected), "{findings:?}");
    }

    #[test]
    fn clean_text_passes() {
        assert!(check("a.rs", "//! A.\n\nfn a() {}\n").is_empty());
        assert!(check("a.txt", "").is_empty());
    }

    #[test]
    fn whitespace_is_checked() {
        check_one("a.md", "a\nb \n", "a.md:2: space at the end");
        check_one("a.md", "a\r\nb\n", "a.md:1: space at the end");
        check_one("a.rs", "//! A.\n\tfn a() {}\n", "a.rs:2: tab");
        check_one("a.rs", "//! A.\nfn a() {}", "a.rs:2: no newline");
    }

    #[test]
    fn golden_bytes_are_left_alone() {
        assert!(check("vectors/a.json", "{} ").is_empty());
        assert!(check("crates/cli/tests/a.snap", "a  \n").is_empty());
    }

    #[test]
    fn registry_hosts_are_found_outside_the_lock_file() {
        for host in REGISTRY_HOSTS {
            let content = format!("see https://{host}/x\n");
            check_one("docs/a.md", &content, "docs/a.md:1: names the registry host");
            assert!(check("Cargo.lock", &content).is_empty());
        }
    }
}
