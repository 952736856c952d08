//! A directory that `gesta init` made: `gesta.toml` and what it names.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use gesta_core::ids::TrajectoryId;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// The file that makes a directory a workspace.
pub(crate) const FILE: &str = "gesta.toml";

/// What `gesta.toml` says. Paths are relative to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// A SQLite file or a postgres:// URL.
    pub(crate) store: String,
    /// Whom `gesta verify` trusts.
    pub(crate) trust: PathBuf,
    /// Where private keys are.
    pub(crate) keys: PathBuf,
    /// The trajectory that holds keys and roles.
    pub(crate) registry: TrajectoryId,
}

impl Config {
    /// The text of the file.
    pub(crate) fn to_toml(&self) -> Result<String> {
        let body = toml::to_string(self).context("cannot write the configuration")?;
        Ok(format!("# Made by `gesta init`. Paths are relative to this file.\n{body}"))
    }
}

/// A directory with a `gesta.toml`.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) directory: PathBuf,
    pub(crate) config: Config,
}

impl Workspace {
    /// The workspace of a directory: the nearest above it, or it itself.
    pub(crate) fn find(from: &Path) -> Result<Option<Self>> {
        for directory in from.ancestors() {
            let path = directory.join(FILE);
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    return Ok(Some(Self {
                        directory: directory.to_owned(),
                        config: read(&path, &text)?,
                    }));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot read `{}`", path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Where private keys are.
    pub(crate) fn keys(&self) -> PathBuf {
        self.directory.join(&self.config.keys)
    }

    /// Whom to trust.
    pub(crate) fn trust(&self) -> PathBuf {
        self.directory.join(&self.config.trust)
    }
}

/// Reads the text of a configuration.
pub(crate) fn read(path: &Path, text: &str) -> Result<Config, Problem> {
    toml::from_str(text).map_err(|error| {
        Problem::new(format!("cannot use `{}`: {}", path.display(), error.message()))
            .hint("it holds `store`, `trust`, `keys` and `registry`; `gesta init` writes it")
    })
}
