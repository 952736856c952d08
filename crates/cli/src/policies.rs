//! The policy of a workspace: what its files say, what is published, and putting the one in the place
//! of the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use gesta_core::digest::Digest;
use gesta_core::ids::{ToolName, TrajectoryId};
use gesta_core::keys::PrivateKey;
use gesta_policy::{PolicyDocument, PolicyFile};
use gesta_runtime::RunError;
use gesta_runtime::authority::{self, OWNER};
use gesta_runtime::tools::Catalogue;
use gesta_store::{Chain, Store, StoreError};

use crate::key_file;
use crate::problem::Problem;
use crate::session::Session;
use crate::settings::PolicySettings;
use crate::workspace::Workspace;

/// What a workspace's own policy is called, and a job's, beside its file.
pub(crate) const FILE: &str = "policy.cedar";
/// What `gesta init` begins with.
pub(crate) const STARTER: &str = include_str!("starter.cedar");
/// How much of a digest people are shown.
const SHOWN_DIGITS: usize = 12;

/// What the workspace's files say; nothing if it names none.
pub(crate) fn configured(
    workspace: &Workspace,
    tools: &Catalogue,
) -> Result<Option<PolicyDocument>> {
    let PolicySettings { files, channels, roles } = &workspace.config.policy;
    if files.is_empty() && channels.is_empty() && roles.is_empty() {
        return Ok(None);
    }
    let policies = read(&workspace.directory, files)?;
    let document = PolicyDocument::new(policies, roles.clone(), tools.shapes()?);
    Ok(Some(document.with_channels(channels.clone())))
}

/// Reads the texts of policies.
pub(crate) fn read(directory: &Path, files: &[PathBuf]) -> Result<Vec<PolicyFile>> {
    let file = |path: &PathBuf| {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(directory.join(path)).map_err(|error| {
            Problem::new(format!("cannot read the policy `{name}`: {error}"))
                .hint("`files` under [policy] in gesta.toml names it")
                .bad_input()
        })?;
        Ok(PolicyFile { name, text })
    };
    files.iter().map(file).collect()
}

/// What is in force: published, and kept as a blob.
pub(crate) async fn published(
    store: &Arc<dyn Store>,
    registry: TrajectoryId,
) -> Result<Option<PolicyDocument>> {
    let chain = Chain::load(Arc::clone(store), registry).await?;
    let Some(digest) = chain.state().registry().policy() else { return Ok(None) };
    let missing = || StoreError::Damaged { what: format!("the policy {digest} is missing") };
    let bytes = store.blob(digest).await?.ok_or_else(missing)?;
    let document = PolicyDocument::parse(&bytes);
    Ok(Some(document.with_context(|| format!("the policy {digest} cannot be read"))?))
}

/// Puts a document in force, if it holds. What was in force stays until the registry says otherwise.
pub(crate) async fn publish(
    store: &Arc<dyn Store>,
    registry: TrajectoryId,
    document: &PolicyDocument,
    owner: &PrivateKey,
) -> Result<Digest> {
    match authority::publish(store, registry, document, owner, Session::now()).await {
        Ok(digest) => Ok(digest),
        Err(RunError::Policy(why)) => {
            Err(Problem::new(format!("not published\n{why}")).bad_input().into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a policy came with the job's own tools.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// It stood in the workspace before.
    Before,
    /// It was added together with the workspace's first tools, so nothing was governed by another.
    WithTools,
}

/// Puts the workspace's policy in force where nobody has to decide: there is none, or the same texts,
/// roles and channels are for other tools now. What differs in what it says is only told.
pub(crate) fn settle(
    session: &Session,
    workspace: &Workspace,
    (store, tools): (&Arc<dyn Store>, &Catalogue),
    came: Came,
) -> Result<()> {
    let registry = workspace.config.registry;
    let published = session.wait(published(store, registry))?;
    let Some(wanted) = wanted(workspace, tools, published.as_ref())? else { return Ok(()) };
    let why = match &published {
        None => "published the policy",
        Some(published) if *published == wanted => return Ok(()),
        Some(published) if says_the_same(published, &wanted) => {
            "the tools have changed: published the policy again for them"
        }
        Some(_) if came == Came::WithTools => "published the policy with that of the job's tools",
        Some(_) => {
            tell_difference();
            return Ok(());
        }
    };
    let owner = key_file::read(&key_file::path(&workspace.keys(), OWNER));
    let publishing = async { publish(store, registry, &wanted, &owner?).await };
    match session.wait(publishing) {
        Ok(digest) => Session::note(&format!("{why}, {}", brief(digest))),
        Err(error) => Session::note(&format!(
            "warning: the policy is not in force: {error:#}\nhint: `gesta policy check` tells what is wrong, `gesta policy publish` puts it in force"
        )),
    }
    Ok(())
}

/// Tells if what is published is not what the workspace says. Changes nothing.
pub(crate) fn compare(
    session: &Session,
    workspace: &Workspace,
    (store, tools): (&Arc<dyn Store>, &Catalogue),
) -> Result<()> {
    let published = session.wait(published(store, workspace.config.registry))?;
    match (wanted(workspace, tools, published.as_ref())?, published) {
        (Some(wanted), Some(published)) if wanted == published => {}
        (Some(_), _) => tell_difference(),
        (None, _) => {}
    }
    Ok(())
}

fn tell_difference() {
    Session::note(
        "warning: the policy of the workspace is not what is published; `gesta policy publish` puts it in force",
    );
}

/// What should be in force: what the files say; without files, what is published, for these tools.
fn wanted(
    workspace: &Workspace,
    tools: &Catalogue,
    published: Option<&PolicyDocument>,
) -> Result<Option<PolicyDocument>> {
    if let Some(configured) = configured(workspace, tools)? {
        return Ok(Some(configured));
    }
    let again = |PolicyDocument { policies, roles, channels, .. }: &PolicyDocument| {
        let document = PolicyDocument::new(policies.clone(), roles.clone(), tools.shapes()?);
        Ok(document.with_channels(channels.clone()))
    };
    published.map(again).transpose()
}

/// What would be in force in a workspace that is not made yet: what every workspace begins with, and what
/// lies beside the tools of a job.
pub(crate) fn would_be(tools_file: Option<&Path>, tools: &Catalogue) -> Result<PolicyDocument> {
    let mut texts = vec![PolicyFile { name: FILE.to_owned(), text: STARTER.to_owned() }];
    let beside = tools_file.map(|path| path.with_file_name(FILE)).filter(|path| path.exists());
    texts.extend(read(Path::new(""), beside.as_slice())?);
    Ok(PolicyDocument::new(texts, std::collections::BTreeMap::new(), tools.shapes()?))
}

/// Whether two documents differ in nothing but their tools.
pub(crate) fn says_the_same(one: &PolicyDocument, other: &PolicyDocument) -> bool {
    one.policies == other.policies && one.roles == other.roles && one.channels == other.channels
}

/// The tools that a document is for. Handing on, which every document knows as if it were some, is none.
pub(crate) fn tools_of(document: &PolicyDocument) -> impl Iterator<Item = &ToolName> {
    document.tools.keys().filter(|tool| tool.delegates().is_none())
}

/// A digest, for people.
pub(crate) fn brief(digest: Digest) -> String {
    digest.to_string().chars().take(SHOWN_DIGITS).collect()
}

/// Makes the policy beside a job's own tools a policy of the workspace.
pub(crate) fn record(workspace: &mut Workspace, tools: &Path) -> Result<Came> {
    let beside = tools.with_file_name(FILE);
    let inside = beside.strip_prefix(&workspace.directory).unwrap_or(&beside).to_owned();
    if !beside.exists() || workspace.config.policy.files.contains(&inside) {
        return Ok(Came::Before);
    }
    if workspace.add_policy_file(&inside)? {
        Session::note(&format!("added `{}` to the policy of the workspace", inside.display()));
        return Ok(Came::WithTools);
    }
    Session::note(&format!(
        "warning: `{}` was not read; if the job needs it, add it to `files` under [policy] in gesta.toml",
        inside.display()
    ));
    Ok(Came::Before)
}
