//! Verifiers: ways to find out how something outside stands now. They change nothing, they are mounted by
//! configuration, and they reach the outside by the same drivers as tools.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::digest::Digest;
use gesta_core::ids::ToolName;
use gesta_core::json::Canon;
use gesta_core::writ::Effect;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::code;
use super::driver::{Call, Driver, Reply};
use super::error::Problem;
use super::http::{Http, HttpDeclaration};
use super::manifest::{Manifest, VERIFY_NAMES, Verify};
use super::process::{Command, Process, ProcessDeclaration, ProcessOptions};
use super::secrets::{Guarded, Mask, SecretName, SecretSource, Secrets, Transport};
use super::size::SizeBytes;
use super::verdict::Verdict;
use crate::duration::DurationMs;
use crate::job::{Expr, Template};

/// 10 seconds.
const DEFAULT_TIMEOUT: DurationMs = DurationMs::from_ms(10_000);
/// The largest file that is hashed.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// How a verifier is written: `[verifiers.NAME]`, with exactly one of `http`, `file`, `git` and `tool`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifierDeclaration {
    /// Hashes a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileDeclaration>,
    /// Asks a git repository for a ref.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitDeclaration>,
    /// Sends a `GET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<GetDeclaration>,
    /// The secrets it needs, and where they are found at each call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<SecretName, SecretSource>,
    /// How long one look may take.
    #[serde(default = "default_timeout", rename(serialize = "timeout_ms"))]
    pub timeout: DurationMs,
    /// Asks a read-only tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
}

fn default_timeout() -> DurationMs {
    DEFAULT_TIMEOUT
}

/// A `GET`, which finds `{status, etag, body, sha256}`. Only a reply that says how the resource stands is an
/// answer: any 2xx, 404 or 410.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetDeclaration {
    /// As for tools.
    #[serde(default)]
    pub allow_private: bool,
    /// As for tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// As for tools.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// As for tools: `{name}` in its path or query stands for an argument.
    pub url: String,
}

/// A file below a directory, which finds `{exists, sha256, size}` of the file that the argument `path` names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDeclaration {
    /// The directory; a relative one begins at that of the declaring file.
    pub root: PathBuf,
}

/// A repository, which finds `{commit}` of the ref that the argument `ref` names, null if there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitDeclaration {
    /// Variables that are passed on to `git` if they are set, beside `PATH`.
    #[serde(default)]
    pub env: Vec<String>,
    /// Where it is: a path or a URL, written out.
    pub repository: String,
}

/// A verifier that can be asked.
pub struct Verifier {
    canonical: Canon,
    timeout: Duration,
    way: Way,
}

enum Way {
    Tool(ToolName),
    Driver(Arc<dyn Driver>),
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("canonical", &self.canonical).finish_non_exhaustive()
    }
}

impl Verifier {
    pub(super) fn new(
        name: &ToolName,
        declaration: &VerifierDeclaration,
        effects: &BTreeMap<ToolName, Effect>,
        base_dir: &Arc<PathBuf>,
        process: Option<&ProcessOptions>,
    ) -> Result<Self, Problem> {
        let VerifierDeclaration { file, git, http, secrets, timeout, tool } = declaration;
        let mut manifest = Manifest::new(name.clone(), Effect::Read);
        manifest.secrets = secrets.clone();
        let way = match (file, git, http, tool) {
            (Some(file), None, None, None) => {
                let root = base_dir.join(&file.root);
                guarded(secrets, base_dir, Hashed { root })
            }
            (None, Some(git), None, None) => {
                let program = Process::new(&ls_remote(git), &manifest, base_dir, process)?;
                guarded(secrets, base_dir, Refs { program })
            }
            (None, None, Some(http), None) => {
                let http = Http::new(&get(http), &manifest, base_dir)?.whole();
                guarded(secrets, base_dir, http)
            }
            (None, None, None, Some(tool)) => match effects.get(tool) {
                None => return Err(Problem::VerifierTool(tool.clone())),
                Some(Effect::Read) => Way::Tool(tool.clone()),
                Some(_) => return Err(Problem::VerifierWrites(tool.clone())),
            },
            _ => return Err(Problem::VerifierKind),
        };
        if timeout.ms() == 0 {
            return Err(Problem::NoTimeout);
        }
        Ok(Self { canonical: Canon::of(declaration)?, timeout: timeout.duration(), way })
    }

    /// What is declared of it, as canonical JSON. Holds no secret.
    pub fn canonical(&self) -> &Canon {
        &self.canonical
    }

    /// How long one look may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The tool that it asks, if it asks one.
    pub fn tool(&self) -> Option<&ToolName> {
        match &self.way {
            Way::Tool(tool) => Some(tool),
            Way::Driver(_) => None,
        }
    }

    /// Looks. None for a verifier that asks a tool: whoever has the tools asks it.
    pub async fn look(&self, call: Call) -> Option<Reply> {
        match &self.way {
            Way::Tool(_) => None,
            Way::Driver(driver) => Some(driver.call(call).await),
        }
    }
}

/// Whether what a tool says of its verification can be used.
pub(super) fn check(
    manifest: &Manifest,
    verifiers: &BTreeMap<ToolName, Verifier>,
) -> Result<(), Problem> {
    for Verify { args, holds, type_, verifier, .. } in &manifest.verify {
        if !manifest.changes.iter().any(|change| change.type_ == *type_) {
            return Err(Problem::VerifiesUnchanged(type_.to_string()));
        }
        if !verifiers.contains_key(verifier) {
            return Err(Problem::VerifierUnknown(verifier.clone()));
        }
        let seen = [VERIFY_NAMES.as_slice(), &["found"]].concat();
        Template::of(args)
            .and_then(|args| args.check(&VERIFY_NAMES))
            .and_then(|()| Expr::of(holds)?.check(&seen))
            .map_err(|error| Problem::VerifyExpression {
                type_: type_.to_string(),
                why: error.to_string(),
            })?;
    }
    Ok(())
}

fn guarded(
    secrets: &BTreeMap<SecretName, SecretSource>,
    base_dir: &Arc<PathBuf>,
    transport: impl Transport + 'static,
) -> Way {
    let (sources, base_dir) = (Arc::new(secrets.clone()), Arc::clone(base_dir));
    Way::Driver(Arc::new(Guarded { sources, base_dir, transport }))
}

fn get(declaration: &GetDeclaration) -> HttpDeclaration {
    let GetDeclaration { allow_private, ca, headers, url } = declaration.clone();
    HttpDeclaration {
        allow_private,
        body: None,
        ca,
        headers,
        key_header: String::new(),
        max_output: SizeBytes::MIB,
        method: "GET".to_owned(),
        status: BTreeMap::new(),
        url,
    }
}

fn ls_remote(declaration: &GitDeclaration) -> ProcessDeclaration {
    let command = ["git", "ls-remote", "--quiet", "--", declaration.repository.as_str()];
    ProcessDeclaration {
        command: Command::Program(command.map(str::to_owned).into()),
        cwd: None,
        env: std::iter::once("PATH".to_owned()).chain(declaration.env.iter().cloned()).collect(),
        exit: BTreeMap::new(),
        max_output: SizeBytes::MIB,
        // Nobody is there to be asked for a password.
        set: [("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned())].into(),
        shell: false,
    }
}

/// The refs of a repository.
struct Refs {
    program: Process,
}

#[async_trait]
impl Transport for Refs {
    async fn send(&self, call: Call, secrets: Arc<Secrets>, mask: &Mask) -> Reply {
        let Some(wanted) = argument(&call, "ref") else { return no_argument("ref") };
        // Repositories have more refs than anybody wants to read.
        match self.program.with_argument(&wanted).send(call, secrets, mask).await {
            Reply::Answered { output, .. } => {
                let output = String::from_utf8_lossy(&output).into_owned();
                let refs = output.lines().filter_map(|line| line.split_once('\t'));
                let commit = refs.into_iter().find(|(_, name)| *name == wanted);
                found(&json!({ "commit": commit.map(|(commit, _)| commit) }))
            }
            failed => failed,
        }
    }
}

/// A file.
struct Hashed {
    root: PathBuf,
}

#[async_trait]
impl Transport for Hashed {
    async fn send(&self, call: Call, _: Arc<Secrets>, _: &Mask) -> Reply {
        let Some(path) = argument(&call, "path") else { return no_argument("path") };
        let path = Path::new(&path);
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            let message = format!("`{}` leads out of the directory", path.display());
            return Verdict::DidNotHappen.failed(code::ARGUMENTS_UNSENDABLE, message);
        }
        let path = self.root.join(path);
        let hashed = tokio::task::spawn_blocking(move || hash(&path)).await;
        match hashed {
            Ok(Ok(value)) => found(&value),
            Ok(Err(error)) => Verdict::Retry.failed(code::TOOL_FAILED, error.to_string()),
            Err(error) => Verdict::Retry.failed(code::TOOL_FAILED, error.to_string()),
        }
    }
}

fn hash(path: &Path) -> std::io::Result<serde_json::Value> {
    let size = match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            return Err(std::io::Error::other("the file is too large to be hashed"));
        }
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(json!({ "exists": false, "sha256": null, "size": null }));
        }
        Err(error) => return Err(error),
    };
    let digest = Digest::of(&std::fs::read(path)?);
    Ok(json!({ "exists": true, "sha256": digest, "size": size }))
}

fn argument(call: &Call, name: &str) -> Option<String> {
    let args: serde_json::Value = serde_json::from_str(call.args.as_str()).ok()?;
    args.get(name)?.as_str().map(str::to_owned)
}

fn no_argument(name: &str) -> Reply {
    let message = format!("it is asked without the argument `{name}`, a string");
    Verdict::DidNotHappen.failed(code::ARGUMENTS_UNSENDABLE, message)
}

fn found(value: &serde_json::Value) -> Reply {
    Reply::Answered { output: value.to_string().into_bytes(), cost: None }
}
