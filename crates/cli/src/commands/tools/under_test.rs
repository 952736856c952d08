//! The worker process that `gesta tools test` starts and kills. It drives one job with the tools of the
//! workspace, tells every call and every reply as a line of JSON, and can keep a reply to itself, so that it
//! dies after the tool has answered and before anything of that is on record.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use clap::Args;
use gesta_core::document::{Certainty, Failing};
use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_core::json::Canon;
use gesta_runtime::tools::{Call, Catalogue, Driver, Manifest, Reply};
use serde::{Deserialize, Serialize};

use crate::driving;
use crate::live::Live;
use crate::place::Place;
use crate::session::Session;
use crate::settings::WorkerSettings;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::workspace::Workspace;

/// How this program calls itself.
pub(crate) const COMMAND: &str = "under-test";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The throw-away workspace
    #[arg(long)]
    place: PathBuf,
    /// The job
    #[arg(long)]
    trajectory: TrajectoryId,
    /// The tool under test
    #[arg(long)]
    tool: ToolName,
    /// What becomes of its calls
    #[arg(long)]
    rule: Rule,
}

/// What becomes of the calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rule {
    /// They are made.
    Pass,
    /// They are made, and nobody hears of the reply.
    Hold,
    /// They are told of and not made.
    Forbid,
}

/// What the process tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Told {
    /// A tool is about to be called.
    Called { tool: ToolName, key: String },
    /// A tool has replied.
    Replied {
        tool: ToolName,
        key: String,
        /// What it returned; none when it did not succeed.
        output: Option<String>,
        certainty: Option<Certainty>,
        error: Option<Failing>,
    },
    /// A call that must not be made was about to be.
    Forbidden { tool: ToolName, key: String },
    /// The job could be driven no further.
    Ended { status: String },
}

fn tell(told: &Told) {
    let Ok(mut line) = serde_json::to_vec(told) else { return };
    line.push(b'\n');
    // Whoever started this process has gone if nobody reads.
    let _ = std::io::stdout().write_all(&line).and_then(|()| std::io::stdout().flush());
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let tools = Toolbox::of(&Session::workspace()?)?;
    let watched = watched(tools.catalogue, Some((&arguments.tool, arguments.rule)))?;
    let workshop = open(session, &arguments.place, watched)?;
    let live = Live::unseen();
    let ending =
        driving::drive(session, &workshop, (arguments.trajectory, workshop.hands()?), &live)?;
    tell(&Told::Ended { status: ending.as_str().to_owned() });
    Ok(0)
}

/// The throw-away workspace. A short lease and one clock: nobody else is there.
pub(super) fn open(
    session: &Session,
    directory: &std::path::Path,
    tools: Catalogue,
) -> Result<Workshop> {
    let found = Workspace::at(directory)?;
    let mut workspace = found.context("the throw-away workspace is gone")?;
    workspace.config.worker = WorkerSettings {
        lease: Some("2s".parse()?),
        skew: Some("0ms".parse()?),
        ..WorkerSettings::default()
    };
    let place = Place::parse(&workspace.config.store, directory)?;
    Workshop::at(session, workspace, place, tools)
}

/// The same tools, each watched.
pub(super) fn watched(catalogue: Catalogue, rule: Option<(&ToolName, Rule)>) -> Result<Catalogue> {
    let catalogue = Arc::new(catalogue);
    let mut builder = Catalogue::builder();
    for tool in catalogue.iter() {
        let name = tool.name().clone();
        let rule = rule.filter(|(tool, _)| **tool == name).map_or(Rule::Pass, |(_, rule)| rule);
        let watched = Watched { catalogue: Arc::clone(&catalogue), name, rule };
        let declaration = Canon::of("watched")?;
        // What a call leaves outside is nobody's business here.
        let manifest = Manifest { verify: Vec::new(), ..tool.manifest().clone() };
        builder = builder.driver(manifest, declaration, Arc::new(watched));
    }
    Ok(builder.build()?)
}

struct Watched {
    catalogue: Arc<Catalogue>,
    name: ToolName,
    rule: Rule,
}

#[async_trait]
impl Driver for Watched {
    async fn call(&self, call: Call) -> Reply {
        let (tool, key) = (self.name.clone(), call.key.clone());
        let refused = || Reply::Failed {
            certainty: Certainty::DidNotHappen,
            retryable: false,
            retry_after_ms: None,
            error: Failing {
                code: "forbidden".to_owned(),
                message: "not made in a test".to_owned(),
            },
            output: Vec::new(),
        };
        if self.rule == Rule::Forbid {
            tell(&Told::Forbidden { tool, key });
            return refused();
        }
        tell(&Told::Called { tool: tool.clone(), key: key.clone() });
        let reply = match self.catalogue.get(&self.name) {
            Some(tool) => tool.call(call).await,
            None => refused(),
        };
        let (output, certainty, error) = match &reply {
            Reply::Answered { output, .. } => {
                (Some(String::from_utf8_lossy(output).into_owned()), None, None)
            }
            Reply::Failed { certainty, error, .. } => (None, Some(*certainty), Some(error.clone())),
        };
        tell(&Told::Replied { tool, key, output, certainty, error });
        if self.rule == Rule::Hold {
            std::future::pending::<()>().await;
        }
        reply
    }
}
