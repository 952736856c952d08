//! The tools of a workspace: from `gesta.toml`, from the files that it names, or from `tools.toml`
//! beside a job file when it has none; and whether they are what was pinned.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use gesta_runtime::tools::{
    Asking, Catalogue, CatalogueBuilder, Offer, PinProblem, Pins, ProcessOptions, ServerName,
};

use crate::policies::{self, Came};
use crate::problem::Problem;
use crate::session::Session;
use crate::workspace::{FILE, Workspace};

/// What a job file's own tools are called.
const BESIDE: &str = "tools.toml";
/// The subcommand that supervises one call of a program.
pub(crate) const SUPERVISE: &str = "supervise";

/// Tools, and what is known of their pins.
pub(crate) struct Toolbox {
    pub(crate) catalogue: Catalogue,
    /// The pins, if there is a lock file.
    pub(crate) pins: Option<Pins>,
    /// Where the tools differ from them.
    pub(crate) unpinned: Vec<PinProblem>,
    /// The file beside the job that the tools come from, when the workspace has none.
    pub(crate) beside: Option<PathBuf>,
    /// The job's own file of tools that was left alone, because the workspace has others.
    pub(crate) passed_over: Option<PathBuf>,
}

impl Toolbox {
    /// The tools of a workspace.
    pub(crate) fn of(workspace: &Workspace) -> Result<Self> {
        let builder = declared(builder()?, workspace)?;
        Self::build(builder, Some(workspace), None)
    }

    /// The tools of a workspace; where it has none, those beside its settings, which the first run of a job
    /// there would take up.
    pub(crate) fn of_or_beside(workspace: &Workspace) -> Result<Self> {
        Self::for_job(Some(workspace), &workspace.directory.join(BESIDE))
    }

    /// The tools of a file that holds nothing else, or of one that is a whole workspace's.
    pub(crate) fn of_file(path: &Path) -> Result<Catalogue> {
        if let Some(workspace) = Workspace::of_file(path) {
            return Ok(Self::of(&workspace)?.catalogue);
        }
        let catalogue = file(builder()?, path)?.build();
        Ok(catalogue.map_err(|error| refused(&error))?)
    }

    /// The MCP servers of a workspace, to be asked what they offer.
    pub(crate) fn servers(workspace: &Workspace) -> Result<Vec<Asking>> {
        let builder = declared(builder()?, workspace)?;
        Ok(builder.asking().map_err(|error| refused(&error))?)
    }

    /// The tools of a workspace, if its MCP servers offer this.
    pub(crate) fn offered(
        workspace: &Workspace,
        offers: BTreeMap<ServerName, Offer>,
    ) -> Result<Result<Catalogue, Problem>> {
        let builder = declared(builder()?, workspace)?;
        Ok(builder.offers(offers).build().map_err(|error| refused(&error)))
    }

    /// The tools that a job file may call.
    pub(crate) fn for_job(workspace: Option<&Workspace>, job: &Path) -> Result<Self> {
        let path = job.parent().unwrap_or(Path::new("")).join(BESIDE);
        let path = std::path::absolute(&path)
            .with_context(|| format!("cannot tell where `{}` is", path.display()))?;
        if let Some(workspace) = workspace.filter(|workspace| workspace.has_tools()) {
            let Workspace { directory, config, .. } = workspace;
            let named = config.tool_files.iter().any(|file| directory.join(file) == path);
            let passed_over = Some(path).filter(|path| path.exists() && !named);
            return Ok(Self { passed_over, ..Self::of(workspace)? });
        }
        if !path.exists() {
            return Self::build(builder()?, workspace, None);
        }
        let builder = file(builder()?, &path)?;
        Self::build(builder, workspace, Some(path))
    }

    fn build(
        builder: CatalogueBuilder,
        workspace: Option<&Workspace>,
        beside: Option<PathBuf>,
    ) -> Result<Self> {
        let pins = workspace.map(read_pins).transpose()?.flatten();
        let offers = pins.as_ref().map(|pins| pins.offers().clone()).unwrap_or_default();
        let catalogue = builder.offers(offers).build();
        let mut catalogue = catalogue.map_err(|error| refused(&error))?;
        let unpinned = pins.as_ref().map(|pins| catalogue.apply_pins(pins)).unwrap_or_default();
        Ok(Self { catalogue, pins, unpinned, beside, passed_over: None })
    }

    /// What to do when a tool is missing.
    pub(crate) fn advice(&self) -> Option<String> {
        if let Some(path) = &self.passed_over {
            return Some(format!(
                "`{}` was not read, because the workspace has tools of its own; if the job needs it, add it to `tool_files` in gesta.toml",
                shown(path)
            ));
        }
        if let (Some(beside), [_, ..]) = (&self.beside, self.catalogue.unpinned_servers()) {
            return Some(format!(
                "`{}` declares MCP servers; add it to `tool_files` in gesta.toml and run `gesta tools pin`",
                shown(beside)
            ));
        }
        let none =
            self.catalogue.iter().next().is_none() && self.catalogue.unpinned_servers().is_empty();
        none.then(|| {
            format!("no tools are declared; write `[tools.NAME]` into gesta.toml, or into `{BESIDE}` beside the job file")
        })
    }

    /// Makes tools from beside a job file tools of the workspace, and a policy there its policy.
    pub(crate) fn record(&self, workspace: &mut Workspace) -> Result<Came> {
        let Some(beside) = &self.beside else { return Ok(Came::Before) };
        let inside = beside.strip_prefix(&workspace.directory).unwrap_or(beside);
        workspace.add_tool_file(inside)?;
        Session::note(&format!(
            "the workspace had no tools: added `{}` to `tool_files` in `{}`",
            inside.display(),
            shown(&workspace.directory.join(FILE))
        ));
        policies::record(workspace, beside)
    }
}

fn builder() -> Result<CatalogueBuilder> {
    let program = std::env::current_exe().context("cannot tell which program this is")?;
    let supervisor = vec![program.into_os_string(), OsString::from(SUPERVISE)];
    Ok(Catalogue::builder().process(ProcessOptions { supervisor }))
}

fn declared(builder: CatalogueBuilder, workspace: &Workspace) -> Result<CatalogueBuilder> {
    let Workspace { directory, config, text } = workspace;
    let label = shown(&directory.join(FILE));
    let mut builder = builder.section(&label, text, directory).map_err(|error| refused(&error))?;
    for path in &config.tool_files {
        builder = file(builder, &directory.join(path))?;
    }
    Ok(builder)
}

fn file(builder: CatalogueBuilder, path: &Path) -> Result<CatalogueBuilder> {
    let label = shown(path);
    let text = std::fs::read_to_string(path)
        .map_err(|error| Problem::new(format!("cannot read the tools in `{label}`: {error}")))
        .map_err(|problem| problem.hint("`tool_files` in gesta.toml names it").bad_input())?;
    let directory = path.parent().unwrap_or(Path::new(""));
    builder.file(&label, &text, directory).map_err(|error| refused(&error).into())
}

fn refused(error: &gesta_runtime::tools::CatalogueError) -> Problem {
    Problem::new(error.to_string()).bad_input()
}

pub(crate) fn read_pins(workspace: &Workspace) -> Result<Option<Pins>> {
    let path = workspace.lock();
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let pins = Pins::parse(&shown(&path), &text);
            Ok(Some(pins.map_err(|error| Problem::new(error.to_string()).bad_input())?))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    }
}

/// A path as it is seen from the current directory.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}
