//! Tools that are frozen because they are not what was pinned, and what a process that holds them back does
//! once somebody has pinned them again.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use gesta_runtime::tools::Catalogue;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::session::Session;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::workspace::Workspace;

/// How often it is looked whether they were.
const LOOK: Duration = Duration::from_millis(500);

/// What was pinned when the tools of a process were read.
pub(crate) struct Pinned(Option<String>);

impl Pinned {
    pub(crate) fn of(workspace: &Workspace) -> Self {
        Self(read(&workspace.lock()))
    }

    /// The workspace and its tools as they are now, once one of these is frozen and they were pinned again. While
    /// that cannot be read, what there is goes on.
    async fn again(&self, workspace: &Workspace, tools: &Catalogue) -> (Workspace, Toolbox) {
        let mut known = self.0.clone();
        loop {
            sleep(LOOK).await;
            if !tools.iter().any(|tool| tool.frozen().is_some()) {
                continue;
            }
            let now = read(&workspace.lock());
            if now == known {
                continue;
            }
            known = now;
            match anew(&workspace.directory) {
                Ok(Some(anew)) => return anew,
                Ok(None) => {}
                Err(error) => {
                    Session::note(&format!("warning: what was pinned is not taken up: {error:#}"));
                }
            }
        }
    }
}

/// Does something until it ends. It is told to stop when the process is, or when tools that are frozen were
/// pinned again; then they come with what it ended with.
pub(crate) async fn unless_pinned<T>(
    workshop: &Workshop,
    mut stop: watch::Receiver<bool>,
    work: impl AsyncFnOnce(watch::Receiver<bool>) -> Result<T>,
) -> Result<(T, Option<(Workspace, Toolbox)>)> {
    let (halt, halted) = watch::channel(false);
    let again = workshop.pinned.again(&workshop.workspace, &workshop.catalogue);
    let told = async {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => None,
            anew = again => Some(anew),
        }
    };
    let (mut told, mut work) = (pin!(told), pin!(work(halted)));
    let anew = tokio::select! {
        done = &mut work => return Ok((done?, None)),
        anew = &mut told => anew,
    };
    halt.send_replace(true);
    Ok((work.await?, anew))
}

fn anew(directory: &Path) -> Result<Option<(Workspace, Toolbox)>> {
    let Some(workspace) = Workspace::at(directory)? else { return Ok(None) };
    let tools = Toolbox::of(&workspace)?;
    Ok(Some((workspace, tools)))
}

fn read(lock: &Path) -> Option<String> {
    std::fs::read_to_string(lock).ok()
}
