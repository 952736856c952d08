//! Documents point at files that exist, and name commands that exist.

use super::Finding;

/// Relative links; `exists` answers for a path relative to the repository's root.
pub(super) fn check_links(
    path: &str,
    content: &str,
    exists: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let mut findings = Vec::new();
    for (number, line) in prose(content) {
        for target in targets(&line) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !resolve(dir, file).is_some_and(|to| exists(&to)) {
                let what = format!("links to `{file}`, which does not exist; correct the link");
                findings.push(Finding::new(path, number, what));
            }
        }
    }
    findings
}

/// Commands in console blocks: every `cargo xtask X` is one of `commands`.
pub(super) fn check_commands(path: &str, content: &str, commands: &[&str]) -> Vec<Finding> {
    let shown = fenced(content).filter(|(_, block, _)| ["console", "sh", "bash"].contains(block));
    shown
        .filter_map(|(number, _, line)| {
            let (_, command) = line.split_once("cargo xtask ")?;
            let name = command.split_whitespace().next()?;
            let what = format!("shows `cargo xtask {name}`, which does not exist; correct it");
            (!commands.contains(&name)).then(|| Finding::new(path, number, what))
        })
        .collect()
}

/// Each line with its number and the info string of the fence it stands in; fences left out.
fn fenced(content: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut fence = None;
    (1..).zip(content.lines()).filter_map(move |(number, line)| {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(info.trim()) };
            return None;
        }
        Some((number, fence?, line))
    })
}

/// The lines outside fences, without inline code.
fn prose(content: &str) -> impl Iterator<Item = (usize, String)> {
    let mut in_fence = false;
    (1..).zip(content.lines()).filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
            return None;
        }
        let outside_code = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        (!in_fence).then_some((number, outside_code))
    })
}

/// What the links of one line point at: `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let defined = definition.and_then(|(_, target)| target.split(' ').next());
    inline.chain(defined).collect()
}

/// The path from the root, or none if it leaves the repository.
fn resolve(dir: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(path: &str, content: &str) -> Vec<String> {
        let exists = |to: &str| ["README.md", "docs/a.md", "docs"].contains(&to);
        check_links(path, content, exists).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn links_to_existing_files_pass() {
        let content = "[a](a.md#x) and [readme](../README.md) ![d](.)\n[b]: a.md\n\
                       [w](https://example.org/x) [s](#part) `[c](gone.md)`\n```\n[d](gone.md)\n```\n";
        assert_eq!(links("docs/b.md", content), Vec::<String>::new());
    }

    #[test]
    fn links_to_nothing_are_found() {
        let found = |content| links("docs/b.md", content).concat();
        let expected = "docs/b.md:2: links to `gone.md`, which does not exist; correct the link";
        assert_eq!(found("x\n[a](gone.md \"title\")\n"), expected);
        assert!(found("[a]: gone.md\n").contains("`gone.md`"));
        assert!(found("[a](../../README.md)\n").contains("does not exist"));
        assert!(found("[a](/README.md)\n").contains("does not exist"));
    }

    #[test]
    fn only_commands_that_exist_are_shown() {
        let check = |content| check_commands("README.md", content, &["test", "tidy"]);
        assert!(check("```console\n$ cargo xtask test\n```\ncargo xtask gone\n").is_empty());
        assert!(check("```text\ncargo xtask gone\n```\n").is_empty());
        let findings = check("```console\n$ cargo xtask gone --x\n```\n");
        assert!(findings[0].to_string().starts_with("README.md:2: shows `cargo xtask gone`"));
    }
}
