//! What can be wrong with a catalogue, and where it is written.

use std::fmt;

use gesta_core::ids::ToolName;
use gesta_core::json::JsonError;

use super::http::BadHttp;
use super::mcp::{BadServer, ServerName};
use super::process::BadProcess;
use super::schema::BadSchema;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as its reader called it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Place {
    pub(super) fn new(file: &str, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(start..).unwrap_or_default().chars().count() + 1;
        Self { file: file.to_owned(), line, column }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column } = self;
        write!(f, "{file}:{line}:{column}")
    }
}

/// Why there is no catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueError {
    /// Where it is written; a tool that a program declares is written nowhere.
    pub place: Option<Place>,
    /// Which tool.
    pub tool: Option<ToolName>,
    /// What is wrong.
    pub problem: Box<Problem>,
}

impl fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        if let Some(tool) = &self.tool {
            write!(f, "tool `{tool}`: ")?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for CatalogueError {}

/// What is wrong with a declaration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not TOML, or not of the shape of a tool.
    #[error("{0}")]
    Toml(String),
    /// Two tools of one name.
    #[error("declared twice; rename one of them")]
    Twice,
    /// The name stands for handing a task to a child.
    #[error("the name is taken: policies call handing a task to a child so; rename it")]
    Reserved,
    /// Recovery by probe needs a probe.
    #[error("`recovery = \"probe\"` needs `probe`, the name of a read-only tool")]
    ProbeMissing,
    /// A probe that would never be asked.
    #[error("`probe` is asked only with `recovery = \"probe\"`; add that, or remove it")]
    ProbeUnused,
    /// The probe is not in the catalogue.
    #[error("its probe `{0}` is not declared")]
    ProbeUnknown(ToolName),
    /// Finding out must not change anything.
    #[error("its probe `{0}` is not read-only; a probe has `effect = \"read\"`")]
    ProbeWrites(ToolName),
    /// What undoes it is not in the catalogue.
    #[error("its compensation `{0}` is not declared")]
    CompensationUnknown(ToolName),
    /// Undoing changes something.
    #[error("its compensation `{0}` is read-only; undoing changes something")]
    CompensationReads(ToolName),
    /// What changes nothing needs no undo.
    #[error("it is read-only, so there is nothing to compensate; remove `compensate`")]
    NothingToCompensate,
    /// The arguments of its compensation cannot be computed.
    #[error("the arguments of its compensation: {0}")]
    CompensationArgs(String),
    /// It verifies what it does not change.
    #[error("it verifies `{0}`, which it does not change; add it to `changes`, or remove it")]
    VerifiesUnchanged(String),
    /// The verifier is not in the catalogue.
    #[error("its verifier `{0}` is not declared; write `[verifiers.{0}]`")]
    VerifierUnknown(ToolName),
    /// An expression of a verification cannot be used.
    #[error("its verification of `{type_}`: {why}")]
    VerifyExpression {
        /// Of which resources.
        type_: String,
        /// What is wrong.
        why: String,
    },
    /// An expression of `preconditions` or `changes` cannot be used.
    #[error("it declares a bad expression: {0}")]
    Rule(String),
    /// A verifier that is declared in no way, or in several.
    #[error("a verifier has exactly one of `http`, `file`, `git` and `tool`")]
    VerifierKind,
    /// A verifier asks a tool that is not there.
    #[error("it asks the tool `{0}`, which is not declared")]
    VerifierTool(ToolName),
    /// A verifier asks a tool that changes something.
    #[error("it asks the tool `{0}`, which is not read-only")]
    VerifierWrites(ToolName),
    /// Every call is at least one call.
    #[error("`cost.calls` is at least 1")]
    NoCalls,
    /// No call can end in no time.
    #[error("`timeout` is at least 1ms")]
    NoTimeout,
    /// The other side may forget the key while the call is under way.
    #[error(
        "`key_ttl` is shorter than `timeout`: a call that takes that long could never be sent again; make it longer, or the tool `recovery = \"never\"`"
    )]
    KeyTooShort,
    /// More than everything is at stake.
    #[error("`risk` is a number from 0 to 100")]
    RiskTooGreat,
    /// A tool that is tried a hundred times is broken.
    #[error("`retry.attempts` is at most 100")]
    TooManyAttempts,
    /// A change gives a value or takes the resource away, not both.
    #[error("a change of `{0}` has a `value` and `retract = true`; remove one of them")]
    ValueOrRetract(String),
    /// A schema file cannot be read.
    #[error("cannot read the schema `{path}`: {why}")]
    SchemaFile {
        /// Which file.
        path: String,
        /// Why not.
        why: String,
    },
    /// A schema cannot be used.
    #[error("the {which} schema cannot be used: {why}")]
    Schema {
        /// `input` or `output`.
        which: &'static str,
        /// Why not.
        why: BadSchema,
    },
    /// The declaration of a process is wrong.
    #[error("{0}")]
    Process(#[from] BadProcess),
    /// The declaration of an HTTP request is wrong.
    #[error("{0}")]
    Http(#[from] BadHttp),
    /// The declaration of an MCP server is wrong, or what it offered.
    #[error("MCP server `{server}`: {why}")]
    Server {
        /// Which server.
        server: ServerName,
        /// What is wrong.
        why: BadServer,
    },
    /// It cannot be written as canonical JSON.
    #[error("cannot be written as canonical JSON: {0}")]
    Uncanonical(#[from] JsonError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let text = "a\nbé€c = 1\n";
        let at = text.find('c').unwrap();
        assert_eq!(Place::new("f", text, at).to_string(), "f:2:4");
        assert_eq!(Place::new("f", text, 0).to_string(), "f:1:1");
        assert_eq!(Place::new("f", text, 999).to_string(), "f:3:1");
    }
}
