//! Whether a package's licence lets us ship it: SPDX expressions over a list of permissive licences.
//!
//! Reads `OR`, `AND`, `WITH`, parentheses, and the old slash for `OR`. What it cannot read, it refuses.

const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
const EXCEPTIONS: &[&str] = &["LLVM-exception"];

/// The fault, ready to be shown, if the licence is not permissive.
pub(super) fn check(expression: &str) -> Result<(), String> {
    if expression.is_empty() {
        return Err("declares no licence; replace the crate".to_owned());
    }
    let tokens = tokenize(expression);
    let mut rest = tokens.as_slice();
    match either(&mut rest) {
        Some(permitted) if rest.is_empty() => {
            if permitted {
                return Ok(());
            }
            Err(format!(
                "its licence `{expression}` is not on the list of permissive ones; replace the crate, or extend xtask/src/deps/licence.rs"
            ))
        }
        _ => Err(format!("its licence `{expression}` is not an SPDX expression")),
    }
}

fn tokenize(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

fn either(rest: &mut &[String]) -> Option<bool> {
    let mut permitted = both(rest)?;
    while take(rest, "OR") {
        permitted |= both(rest)?;
    }
    Some(permitted)
}

fn both(rest: &mut &[String]) -> Option<bool> {
    let mut permitted = term(rest)?;
    while take(rest, "AND") {
        permitted &= term(rest)?;
    }
    Some(permitted)
}

fn term(rest: &mut &[String]) -> Option<bool> {
    if take(rest, "(") {
        let permitted = either(rest)?;
        return take(rest, ")").then_some(permitted);
    }
    let mut permitted = PERMISSIVE.contains(&word(rest)?);
    if take(rest, "WITH") {
        permitted &= EXCEPTIONS.contains(&word(rest)?);
    }
    Some(permitted)
}

fn word<'a>(rest: &mut &'a [String]) -> Option<&'a str> {
    let (first, others) = rest.split_first()?;
    if matches!(first.as_str(), "(" | ")" | "AND" | "OR" | "WITH") {
        return None;
    }
    *rest = others;
    Some(first)
}

fn take(rest: &mut &[String], token: &str) -> bool {
    match rest.split_first() {
        Some((first, others)) if first == token => {
            *rest = others;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissive_expressions_pass() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "Unlicense OR MIT",
        ] {
            assert_eq!(check(expression), Ok(()), "{expression}");
        }
    }

    #[test]
    fn others_do_not() {
        for expression in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH Odd-exception", ""] {
            assert!(check(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn and_binds_closer_than_or() {
        assert!(check("MIT OR GPL-3.0 AND GPL-2.0").is_ok());
        assert!(check("(MIT OR GPL-3.0) AND GPL-2.0").is_err());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for expression in ["MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "WITH MIT"] {
            assert!(check(expression).unwrap_err().contains("not an SPDX"), "{expression}");
        }
    }
}
