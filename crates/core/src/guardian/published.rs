//! What stands between a tool that a worker has and the catalogue that the registry names.

/// Why a tool is not one that the published catalogue lets be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpublished {
    /// The catalogue has no tool of that name.
    Absent,
    /// The worker has it otherwise.
    Differs,
    /// What is published cannot be had or understood.
    Unreadable,
}

impl Unpublished {
    /// Why, and what to do about it. Part of what is recorded.
    pub fn why(self) -> &'static str {
        match self {
            Self::Absent => {
                "it is not in the published catalogue; look at it and run `gesta tools publish`"
            }
            Self::Differs => {
                "the worker has it otherwise than it was published; `gesta tools list` shows it, `gesta tools publish` accepts it"
            }
            Self::Unreadable => {
                "the published catalogue cannot be read; `gesta tools publish` publishes one again"
            }
        }
    }
}
