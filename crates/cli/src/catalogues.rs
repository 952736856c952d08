//! The tool catalogue that is published: what it holds, and how the tools here differ from it.

use std::sync::Arc;

use anyhow::Result;
use gesta_core::digest::Digest;
use gesta_core::guardian::Unpublished;
use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_runtime::authority;
use gesta_runtime::tools::{Catalogue, Definitions, PinProblem};
use gesta_store::{Chain, Store};

use crate::session::Session;
use crate::workspace::Workspace;

/// What is published, as far as it can be read.
pub(crate) struct Standing {
    pub(crate) digest: Digest,
    pub(crate) definitions: Result<Definitions, String>,
}

impl Standing {
    /// Whether a tool may be called as it is here.
    pub(crate) fn check(&self, tools: &Catalogue, tool: &ToolName) -> Result<(), Unpublished> {
        match &self.definitions {
            Ok(definitions) => tools.as_published(definitions, tool),
            Err(_) => Err(Unpublished::Unreadable),
        }
    }

    /// Why tools here are not called, and what is published and not here.
    pub(crate) fn differences(&self, tools: &Catalogue) -> Vec<String> {
        let definitions = match &self.definitions {
            Ok(definitions) => definitions,
            Err(why) => return vec![format!("no tool is called: {why}")],
        };
        let told = |problem: &PinProblem| {
            let tool = problem.tool();
            match self.check(tools, tool) {
                Err(why) => format!("tool `{tool}` is not called: {}", why.why()),
                Ok(()) => {
                    format!("tool `{tool}` is published, and this workspace has none of that name")
                }
            }
        };
        tools.check_published(definitions).iter().map(told).collect()
    }
}

/// What is published; nothing if nothing is.
pub(crate) async fn published(
    store: &Arc<dyn Store>,
    registry: TrajectoryId,
) -> Result<Option<Standing>> {
    let chain = Chain::load(Arc::clone(store), registry).await?;
    let published = authority::published_tools(&**store, chain.state()).await?;
    Ok(published.map(|(digest, definitions)| Standing { digest, definitions }))
}

/// Tells which tools of the workspace are not called because of what is published. Changes nothing.
pub(crate) fn compare(
    session: &Session,
    workspace: &Workspace,
    (store, tools): (&Arc<dyn Store>, &Catalogue),
) -> Result<()> {
    let published = session.wait(published(store, workspace.config.registry))?;
    for difference in published.iter().flat_map(|published| published.differences(tools)) {
        Session::note(&format!("warning: {difference}"));
    }
    Ok(())
}
