//! What is wrong with a policy: file, line, column, the policy, and the remedy.

use std::fmt;

/// Something to repair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file; empty if the problem is in none.
    pub file: String,
    /// The line, counted from 1; 0 if there is no place.
    pub line: u32,
    /// The character in that line, counted from 1.
    pub column: u32,
    /// The id of the policy, if the problem is in one that has an id.
    pub policy: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, policy, message, hint } = self;
        match (file.as_str(), line) {
            ("", _) => {}
            (file, 0) => write!(f, "{file}: ")?,
            (file, line) => write!(f, "{file}:{line}:{column}: ")?,
        }
        if let Some(policy) = policy {
            write!(f, "policy `{policy}`: ")?;
        }
        f.write_str(message)?;
        match hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a policy document, in the order of its files and lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The problems, at least one.
    pub problems: Vec<Problem>,
}

impl PolicyError {
    /// Nothing if the list is empty; else all of it, once each.
    pub(crate) fn check(mut problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort();
        problems.dedup();
        Err(Self { problems })
    }

    /// A problem of the document as a whole.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        let problem = Problem {
            file: String::new(),
            line: 0,
            column: 0,
            policy: None,
            message: message.into(),
            hint: None,
        };
        Self { problems: vec![problem] }
    }
}

impl std::error::Error for PolicyError {}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}
