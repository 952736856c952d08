//! Writs in files: one signed writ, or the chain of them from the first to the narrowest.

use std::path::Path;

use anyhow::{Context as _, Result};
use gesta_core::json::{self, Canon};
use gesta_core::keys::PrivateKey;
use gesta_core::signed::Signed;
use gesta_core::time::UnixMs;
use gesta_core::trust::Role;
use gesta_core::writ::{self, Writ};
use gesta_runtime::{RunError, Unauthorised};

use crate::key_file;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::workspace::{ROOT_WRIT, Workspace};

/// The writ that the workspace's jobs are narrowed from, unless another is named.
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

/// The chain of writs in a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Signed<Writ>>> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        Problem::new(format!("cannot read the writ `{shown}`: {error}")).bad_input()
    })?;
    let read = Canon::parse(&bytes).and_then(|canon| match canon.as_bytes().first() {
        Some(b'[') => canon.read(),
        _ => canon.read().map(|one| vec![one]),
    });
    read.map_err(|error| {
        Problem::new(format!("`{shown}` is not a writ: {error}")).bad_input().into()
    })
}

/// How a chain stands in a file.
pub(crate) fn text(chain: &[Signed<Writ>]) -> Result<String> {
    let bytes = match chain {
        [only] => json::to_canonical(only)?,
        chain => json::to_canonical(&chain)?,
    };
    Ok(String::from_utf8(bytes)?)
}

/// The narrowest writ of a chain, if each narrows the one before it.
pub(crate) fn leaf<'a>(path: &Path, chain: &'a [Signed<Writ>]) -> Result<&'a Signed<Writ>> {
    let shown = path.display();
    Ok(writ::leaf(chain)
        .map_err(|error| Problem::new(format!("`{shown}`: {error}")).bad_input())?)
}

/// The private key that holds a writ, if the workspace has it.
pub(crate) fn holder_of(workspace: &Workspace, writ: &Signed<Writ>) -> Result<PrivateKey> {
    let holder = writ.doc().holder;
    key_file::find(&workspace.keys(), holder)?.ok_or_else(|| {
        Problem::new(format!("the key `{holder}`, which holds this writ, is not in this workspace"))
            .hint("whoever has it can narrow the writ for a key that is: `gesta writ attenuate --holder`")
            .into()
    })
}

/// Whether a chain of writs counts now: who signed it, when it may be used, what was revoked.
pub(crate) fn counts(
    chain: &[Signed<Writ>],
    registry: &Registry,
    now: UnixMs,
) -> Result<(), String> {
    let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
        return Err("there is no writ".to_owned());
    };
    if let Some(forged) = chain.iter().find(|writ| !writ.verifies()) {
        return Err(format!("the signature of {} does not hold", forged.id()));
    }
    let (key, tenant) = (first.doc().key, &first.doc().tenant);
    let trusted = registry.keys().check(key, &[Role::Issuer], Some(tenant), now);
    trusted.map_err(|distrust| distrust.to_string())?;
    if let Some(revoked) = chain.iter().find(|writ| registry.state().is_revoked(&writ.id())) {
        return Err(format!("{} was revoked", revoked.id()));
    }
    if last.doc().window.contains(now) { Ok(()) } else { Err("it is not valid now".to_owned()) }
}

/// An error of the runtime; one about authority with what to do about it.
pub(crate) fn hinted(error: RunError) -> anyhow::Error {
    let hint = match &error {
        RunError::Unauthorised(Unauthorised::NotNow) => {
            "have whoever issues writs sign a new one, and check the clock of this machine"
        }
        RunError::Unauthorised(Unauthorised::Bound(_)) => {
            "use the standing writ that it was narrowed from; a job hands on a part of its own with a `delegate` step"
        }
        RunError::Unauthorised(_) => "`gesta writ inspect FILE` shows what a writ allows",
        _ => return error.into(),
    };
    Problem::new(error.to_string()).hint(hint).into()
}
