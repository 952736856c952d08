//! A directory that `gesta init` made: `gesta.toml` and what it names.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use gesta_core::ids::TrajectoryId;
use gesta_runtime::tools::{Webhook, WebhookDeclaration};
use gesta_store::DataKeys;
use serde::{Deserialize, Serialize};

use crate::durable::{Beside, Readers};
use crate::place::Place;
use crate::policies;
use crate::problem::Problem;
use crate::settings::{
    LimitSettings, LogSettings, PolicySettings, PostgresSettings, RetentionSettings,
    TemporalSettings, WorkerSettings,
};

/// The file that makes a directory a workspace.
pub(crate) const FILE: &str = "gesta.toml";
/// The pins of its tools.
pub(crate) const LOCK: &str = "gesta.lock";
/// The writ that jobs are narrowed from.
pub(crate) const ROOT_WRIT: &str = "writs/root.json";

/// What `gesta.toml` says. Paths are relative to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// A SQLite file or a postgres:// URL.
    pub(crate) store: String,
    /// Whom `gesta verify` trusts.
    pub(crate) trust: PathBuf,
    /// Where private keys are.
    pub(crate) keys: PathBuf,
    /// Where data keys are, if not beside the store: a SQLite file or a postgres:// URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_keys: Option<String>,
    /// The trajectory that holds keys and roles.
    pub(crate) registry: TrajectoryId,
    /// Files with more tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_files: Vec<PathBuf>,
    /// What agents may do.
    #[serde(default, skip_serializing_if = "PolicySettings::is_default")]
    pub(crate) policy: PolicySettings,
    /// How workers behave.
    #[serde(default, skip_serializing_if = "WorkerSettings::is_default")]
    pub(crate) worker: WorkerSettings,
    /// How many calls may be under way at once.
    #[serde(default, skip_serializing_if = "LimitSettings::is_default")]
    pub(crate) limits: LimitSettings,
    /// How fast may be called.
    #[serde(default, skip_serializing_if = "TemporalSettings::is_default")]
    pub(crate) temporal: TemporalSettings,
    /// The transparency log.
    #[serde(default, skip_serializing_if = "LogSettings::is_default")]
    pub(crate) log: LogSettings,
    /// When what has ended is archived, and where.
    #[serde(default, skip_serializing_if = "RetentionSettings::is_default")]
    pub(crate) retention: RetentionSettings,
    /// How a PostgreSQL store is reached.
    #[serde(default, skip_serializing_if = "PostgresSettings::is_default")]
    pub(crate) postgres: PostgresSettings,
    /// Who is told when something waits for a person.
    #[serde(default, skip_serializing)]
    pub(crate) notify: BTreeMap<String, WebhookDeclaration>,
    /// The tools that are declared here. Whoever makes a catalogue reads them from the text.
    #[serde(default, skip_serializing)]
    pub(crate) tools: toml::Table,
    /// The verifiers that are declared here, read in the same way.
    #[serde(default, skip_serializing)]
    pub(crate) verifiers: toml::Table,
    /// The MCP servers that are declared here, for the same reader.
    #[serde(default, skip_serializing)]
    pub(crate) mcp: toml::Table,
}

impl Config {
    /// With the usual names, and nothing of its own.
    pub(crate) fn new(store: String, registry: TrajectoryId) -> Self {
        Self {
            store,
            trust: "trust.json".into(),
            keys: "keys".into(),
            data_keys: None,
            registry,
            tool_files: Vec::new(),
            policy: PolicySettings { files: vec![policies::FILE.into()], ..Default::default() },
            worker: WorkerSettings::default(),
            limits: LimitSettings::default(),
            temporal: TemporalSettings::default(),
            log: LogSettings::default(),
            retention: RetentionSettings::default(),
            postgres: PostgresSettings::default(),
            notify: BTreeMap::new(),
            tools: toml::Table::new(),
            verifiers: toml::Table::new(),
            mcp: toml::Table::new(),
        }
    }

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
    /// The text of the configuration.
    pub(crate) text: String,
}

impl Workspace {
    /// The workspace of a directory: the nearest above it, or it itself.
    pub(crate) fn find(from: &Path) -> Result<Option<Self>> {
        for directory in from.ancestors() {
            if let Some(workspace) = Self::at(directory)? {
                return Ok(Some(workspace));
            }
        }
        Ok(None)
    }

    /// The workspace that this directory is, if it is one.
    pub(crate) fn at(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(FILE);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let config = read(&path, &text)?;
                Ok(Some(Self { directory: directory.to_owned(), config, text }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        }
    }

    /// The workspace that a file describes, whatever it is called, if it describes one.
    pub(crate) fn of_file(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let config = read(path, &text).ok()?;
        let path = std::path::absolute(path).ok()?;
        Some(Self { directory: path.parent()?.to_owned(), config, text })
    }

    /// Where private keys are.
    pub(crate) fn keys(&self) -> PathBuf {
        self.directory.join(&self.config.keys)
    }

    /// Where bundles of archived trajectories are kept, if it says so.
    pub(crate) fn archive(&self) -> Option<PathBuf> {
        Some(self.directory.join(self.config.retention.to.as_ref()?))
    }

    /// Whom to trust.
    pub(crate) fn trust(&self) -> PathBuf {
        self.directory.join(&self.config.trust)
    }

    /// Where the pins of the tools are, if there are any.
    pub(crate) fn lock(&self) -> PathBuf {
        self.directory.join(LOCK)
    }

    /// Where the data keys of its sensitive values are: where it says, or else where its store says.
    pub(crate) fn data_keys_at(&self, store: &Place) -> Result<Place> {
        match &self.config.data_keys {
            Some(named) => {
                let reached = self.config.postgres.clone().within(&self.directory);
                Ok(Place::parse(named, &self.directory)?.reached(reached))
            }
            None => Ok(store.data_keys_at()),
        }
    }

    /// The same, ready to be asked.
    pub(crate) fn data_keys(&self, store: &Place) -> Result<Arc<dyn DataKeys>> {
        self.data_keys_at(store)?.as_data_keys()
    }

    /// Who is told when something waits for a person.
    pub(crate) fn webhooks(&self) -> Result<Vec<Webhook>, Problem> {
        let hooks = self.config.notify.iter().map(|(name, declaration)| {
            let spelled = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if name.is_empty() || !name.bytes().all(spelled) {
                let what = format!("`[notify.{name}]`: use letters, digits, `_` and `-`");
                return Err(Problem::new(what).bad_input());
            }
            let hook = Webhook::new(name.clone(), declaration.clone(), &self.directory);
            hook.map_err(|error| Problem::new(format!("`[notify.{name}]`: {error}")).bad_input())
        });
        hooks.collect()
    }

    /// Whether it declares tools or servers, or names files that do.
    pub(crate) fn has_tools(&self) -> bool {
        let Config { tools, mcp, tool_files, .. } = &self.config;
        !tools.is_empty() || !mcp.is_empty() || !tool_files.is_empty()
    }

    /// Adds the first file of tools to `gesta.toml`, so that whoever drives its jobs later finds them. The
    /// line goes to the front, where every key belongs to the file as a whole.
    pub(crate) fn add_tool_file(&mut self, file: &Path) -> Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            tool_files: [&'a Path; 1],
        }
        let path = self.directory.join(FILE);
        let line = toml::to_string(&Line { tool_files: [file] })
            .with_context(|| format!("cannot write `{}`", file.display()))?;
        let comments = self.text.lines().take_while(|line| line.starts_with('#'));
        let front: usize = comments.map(|line| line.len() + 1).sum();
        let (comments, rest) = self.text.split_at_checked(front).unwrap_or(("", &self.text));
        let text = format!("{comments}{line}{rest}");
        let config = read(&path, &text)?;
        self.replace(&path, config, text)
    }

    /// Adds a file of policies to `gesta.toml`, where `files` stands there as `gesta init` writes it, or
    /// not at all. Says whether it did.
    pub(crate) fn add_policy_file(&mut self, file: &Path) -> Result<bool> {
        #[derive(Serialize)]
        struct Line<'a> {
            files: &'a [PathBuf],
        }
        let path = self.directory.join(FILE);
        let line = |files: &[PathBuf]| {
            let line = toml::to_string(&Line { files });
            line.with_context(|| format!("cannot write `{}`", file.display()))
        };
        let before = &self.config.policy.files;
        let mut files = before.clone();
        files.push(file.to_owned());
        let (header, old, new) = ("[policy]\n", line(before)?, line(&files)?);
        let text = match self.text.contains(&format!("{header}{old}")) {
            true => self.text.replace(&format!("{header}{old}"), &format!("{header}{new}")),
            false => format!("{}\n{header}{new}", self.text),
        };
        match read(&path, &text) {
            Ok(config) if config.policy.files == files => {
                self.replace(&path, config, text)?;
                Ok(true)
            }
            // Somebody has written it in another way: it is theirs to change.
            _ => Ok(false),
        }
    }

    fn replace(&mut self, path: &Path, config: Config, text: String) -> Result<()> {
        let mut beside = Beside::new(path, Readers::Everyone)?;
        beside.file().write_all(text.as_bytes())?;
        beside.replace()?;
        (self.config, self.text) = (config, text);
        Ok(())
    }
}

/// Reads the text of a configuration.
pub(crate) fn read(path: &Path, text: &str) -> Result<Config, Problem> {
    toml::from_str(text).map_err(|error| {
        let place = place_of(text, error.span().map_or(0, |span| span.start));
        Problem::new(format!("{}:{place}: {}", path.display(), error.message())).hint(
            "it holds `store`, `trust`, `keys` and `registry`, as `gesta init` writes them, and may hold `data_keys`, `tool_files`, `[tools.NAME]`, `[mcp.NAME]`, `[verifiers.NAME]`, `[notify.NAME]`, `[policy]`, `[worker]`, `[limits]`, `[temporal]`, `[log]` and `[postgres]`",
        )
        .bad_input()
    })
}

/// `line:column` of a byte, both counted from 1.
fn place_of(text: &str, offset: usize) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{line}:{column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# one\n# two\nstore = \"gesta.db\"\ntrust = \"trust.json\"\nkeys = \"keys\"\nregistry = \"t_00000000000000000000000000000000\"\n\n[worker]\njobs = 2\n";

    #[test]
    fn a_file_of_tools_is_added_in_front_of_every_table() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), TEXT).unwrap();
        let mut workspace = Workspace::at(directory.path()).unwrap().unwrap();
        assert!(!workspace.has_tools());
        workspace.add_tool_file(Path::new("a/tools.toml")).unwrap();
        let again = Workspace::at(directory.path()).unwrap().unwrap();
        assert_eq!(again.config.tool_files, [PathBuf::from("a/tools.toml")]);
        assert_eq!(again.config.worker.jobs, Some(2));
        assert!(again.text.starts_with("# one\n# two\ntool_files = [\"a/tools.toml\"]\nstore"));
    }

    #[test]
    fn a_file_of_policies_is_added_where_that_is_safe() {
        let directory = tempfile::tempdir().unwrap();
        let added = |text: &str| {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            let mut workspace = Workspace::at(directory.path()).unwrap().unwrap();
            let added = workspace.add_policy_file(Path::new("a/policy.cedar")).unwrap();
            let again = Workspace::at(directory.path()).unwrap().unwrap();
            assert_eq!(again.config, workspace.config);
            assert_eq!(again.text == text, !added);
            added.then_some(again.config.policy.files)
        };
        let files = |names: &[&str]| Some(names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(added(TEXT), files(&["a/policy.cedar"]));
        let starter =
            format!("{TEXT}\n[policy]\nfiles = [\"policy.cedar\"]\n\n[policy.roles]\nx = []\n");
        assert_eq!(added(&starter), files(&["policy.cedar", "a/policy.cedar"]));
        let own = format!("{TEXT}\n[policy]\nfiles = [ \"policy.cedar\" ] # mine\n");
        assert_eq!(added(&own), None);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let text = TEXT.replace("jobs = 2", "jbos = 2");
        let problem = read(Path::new("gesta.toml"), &text).unwrap_err().to_string();
        assert!(problem.starts_with("gesta.toml:9:1: unknown field `jbos`"), "{problem}");
    }
}
