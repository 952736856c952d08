//! What an exit code or a status means for the effect, in the words of a declaration.

use std::collections::BTreeMap;

use gesta_core::document::{Certainty, Failing};
use serde::{Deserialize, Serialize};

use super::driver::Reply;

/// What a reply means for the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did what was asked; what it returned is the result.
    Answered,
    /// It failed, and the effect happened all the same.
    Happened,
    /// The effect did not happen, and will not if the same is asked again.
    #[serde(alias = "permanent")]
    DidNotHappen,
    /// The effect did not happen; the same may be asked again.
    Retry,
    /// Nobody knows.
    Unknown,
}

/// Verdicts by code or by class of codes, as declared.
pub(super) type Verdicts = BTreeMap<String, Verdict>;

impl Verdict {
    /// The reply that this verdict makes of what was received.
    pub(super) fn reply(self, output: Vec<u8>, error: Failing) -> Reply {
        let (certainty, retryable) = match self {
            Self::Answered => return Reply::Answered { output, cost: None },
            Self::Happened => (Certainty::Happened, false),
            Self::DidNotHappen => (Certainty::DidNotHappen, false),
            Self::Retry => (Certainty::DidNotHappen, true),
            Self::Unknown => (Certainty::Unknown, true),
        };
        Reply::Failed { certainty, retryable, retry_after_ms: None, error, output }
    }

    /// A failure of which nothing came back.
    pub(super) fn failed(self, code: &str, message: impl Into<String>) -> Reply {
        self.reply(Vec::new(), failing(code, message))
    }
}

/// An error as data.
pub(super) fn failing(code: &str, message: impl Into<String>) -> Failing {
    Failing { code: code.to_owned(), message: message.into() }
}
