//! Rules for Rust files that need code and comments told apart.

use super::Finding;
use super::lexer::Line;

const VAGUE_NAMES: [&str; 10] = [
    "common", "handler2", "helper", "helpers", "manager", "misc", "service", "services", "util",
    "utils",
];

pub(super) fn check(path: &str, source: &str, lines: &[Line]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !source.starts_with("//!") {
        let what = "does not begin with `//!`; say what lives here and what it refuses to know";
        findings.push(Finding::new(path, 1, what));
    }
    let tests = test_lines(path, lines);
    for (number, line) in (1..).zip(lines) {
        let in_test = tests.iter().any(|(first, last)| (*first..=*last).contains(&number));
        let faults = [attribute(line), skipped_doc_test(line), vague_module(line)];
        let sleep = if in_test { sleep(line) } else { None };
        let found = faults.into_iter().flatten().chain(sleep);
        findings.extend(found.map(|what| Finding::new(path, number, what)));
    }
    findings
}

/// Whether a module or file may not have this name, because it says nothing about its content.
pub(super) fn is_vague(name: &str) -> bool {
    name.split(['_', '-']).any(|word| VAGUE_NAMES.contains(&word))
}

fn attribute(line: &Line) -> Option<String> {
    let code = line.code.trim_start();
    let attribute = code.strip_prefix("#![").or_else(|| code.strip_prefix("#["))?;
    if attribute.starts_with("allow(") {
        return Some("`allow` attribute; use `#[expect(.., reason = \"..\")]`".to_owned());
    }
    let ignores = attribute.starts_with("ignore")
        || (attribute.starts_with("cfg_attr(") && attribute.contains("ignore"));
    ignores.then(|| "ignored test; what it needs, `cargo xtask test` sets up".to_owned())
}

fn skipped_doc_test(line: &Line) -> Option<String> {
    line.comment.contains("```ignore").then(|| {
        "ignored doc test; make it compile (`no_run`, `compile_fail`) or mark it `text`".to_owned()
    })
}

fn vague_module(line: &Line) -> Option<String> {
    let mut words = line.code.split_whitespace().skip_while(|word| word.starts_with("pub"));
    words.next().filter(|word| *word == "mod")?;
    let name = words.next()?.trim_end_matches([';', '{']);
    is_vague(name).then(|| format!("module `{name}` says nothing; name it after its noun"))
}

fn sleep(line: &Line) -> Option<String> {
    let called = line.code.match_indices("sleep(").any(|(at, _)| {
        let before = line.code.get(..at).and_then(|before| before.chars().last());
        !before.is_some_and(|c| c == '.' || c == '_' || c.is_alphanumeric())
    });
    let imported = line.code.contains("thread::sleep;") || line.code.contains("time::sleep;");
    (called || imported)
        .then(|| "sleep in a test; inject the clock or wait for the event".to_owned())
}

/// First and last line of everything that only tests compile.
fn test_lines(path: &str, lines: &[Line]) -> Vec<(usize, usize)> {
    let is_test_file = path.split('/').any(|part| part == "tests" || part == "tests.rs");
    if is_test_file {
        return vec![(1, lines.len())];
    }
    let begins = |code: &str| code.contains("#[cfg(test)]").then_some(());
    blocks(lines, begins).into_iter().map(|((), first, last)| (first, last)).collect()
}

/// What `begins` recognised on a line, with the first and last line of the braces that follow it.
/// A semicolon before the brace means that there is no block.
pub(super) fn blocks<T>(
    lines: &[Line],
    begins: impl Fn(&str) -> Option<T>,
) -> Vec<(T, usize, usize)> {
    let starts = (1..).zip(lines).filter_map(|(number, line)| Some((begins(&line.code)?, number)));
    starts
        .filter_map(|(found, first)| {
            let rest = lines.get(first - 1..)?;
            Some((found, first, first + lines_of_block(rest)? - 1))
        })
        .collect()
}

fn lines_of_block(lines: &[Line]) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (number, line) in (1..).zip(lines) {
        for c in line.code.chars() {
            match c {
                '{' => braces += 1,
                '}' if braces <= 1 => return (braces == 1).then_some(number),
                '}' => braces -= 1,
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::lexer;
    use super::*;

    fn check(source: &str) -> Vec<String> {
        let source = format!("//! Sample.\n{source}");
        let findings = super::check("src/a.rs", &source, &lexer::lines(&source));
        findings.iter().map(Finding::to_string).collect()
    }

    fn check_one(source: &str, expected: &str) {
        let findings = check(source);
        assert_eq!(findings.len(), 1, "{source}: {findings:?}");
        assert!(findings[0].contains(expected), "{source}: {findings:?}");
    }

    #[test]
    fn files_begin_with_their_purpose() {
        let lines = lexer::lines("use std::fmt;\n");
        let findings = super::check("src/a.rs", "use std::fmt;\n", &lines);
        assert!(findings[0].what.starts_with("does not begin with `//!`"));
        assert!(check("use std::fmt;\n").is_empty());
    }

    #[test]
    fn ignored_tests_are_found() {
        check_one("#[ignore]\nfn t() {}\n", "a.rs:2: ignored test");
        check_one("#[ignore = \"slow\"]\nfn t() {}\n", "ignored test");
        check_one("#[cfg_attr(miri, ignore)]\nfn t() {}\n", "ignored test");
        check_one("/// ```ignore\n/// x\n/// ```\nfn t() {}\n", "ignored doc test");
        assert!(check("#[serde(ignore_unknown)]\nconst X: &str = \"#[ignore]\";\n").is_empty());
    }

    #[test]
    fn allow_is_found_and_expect_is_not() {
        check_one("#[allow(dead_code)]\nfn t() {}\n", "`allow` attribute");
        check_one("#![allow(dead_code)]\n", "`allow` attribute");
        assert!(check("#[expect(dead_code, reason = \"..\")]\nfn t() {}\n").is_empty());
    }

    #[test]
    fn sleeps_are_found_in_tests_only() {
        let in_test =
            |code: &str| format!("fn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n    {code}\n}}\n");
        check_one(&in_test("fn t() { std::thread::sleep(x); }"), "a.rs:6: sleep in a test");
        check_one(&in_test("async fn t() { sleep(x).await; }"), "sleep in a test");
        check_one(&in_test("use tokio::time::sleep;"), "sleep in a test");
        assert!(check(&in_test("fn t() { clock.sleep(x); } fn sleeps() {}")).is_empty());
        assert!(check("fn a() { std::thread::sleep(x); }\n#[cfg(test)]\nmod tests;\n").is_empty());
    }

    #[test]
    fn vague_modules_are_found() {
        check_one("pub(crate) mod utils;\n", "module `utils`");
        check_one("mod store_helpers {\n}\n", "module `store_helpers`");
        assert!(check("mod chain;\npub mod commonly_named;\nlet module = utils;\n").is_empty());
    }
}
