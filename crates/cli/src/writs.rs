//! The writ that every job of a workspace is narrowed from.

use anyhow::{Context as _, Result};
use gesta_core::json::Canon;
use gesta_core::signed::Signed;
use gesta_core::writ::Writ;
use gesta_runtime::{RunError, Unauthorised};

use crate::problem::Problem;
use crate::workspace::{ROOT_WRIT, Workspace};

/// The writ that the workspace's jobs are narrowed from.
pub(crate) fn root(workspace: &Workspace) -> Result<Signed<Writ>> {
    let path = workspace.directory.join(ROOT_WRIT);
    let shown = path.display();
    let bytes = std::fs::read(&path).map_err(|error| {
        Problem::new(format!("cannot read the root writ `{shown}`: {error}"))
            .hint("`gesta init` makes it; without it no job can be given authority")
    })?;
    let writ = Canon::parse(&bytes).and_then(|canon| canon.read());
    writ.with_context(|| format!("`{shown}` is not a writ"))
}

/// An error of the runtime; one about authority with what to do about it.
pub(crate) fn hinted(error: RunError) -> anyhow::Error {
    let hint = match &error {
        RunError::Unauthorised(Unauthorised::NotNow) => {
            "have whoever issues writs sign a new one, and check the clock of this machine"
                .to_owned()
        }
        RunError::Unauthorised(_) => {
            format!("`{ROOT_WRIT}` is what every job of this workspace is narrowed from")
        }
        _ => return error.into(),
    };
    Problem::new(error.to_string()).hint(hint).into()
}
