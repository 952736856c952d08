//! `gesta tools list`.

use anyhow::Result;
use clap::Args;
use gesta_core::guardian::Unpublished;
use gesta_runtime::tools::{Asking, PinProblem, Pins, Tool};
use serde_json::{Value, json};

use super::pin;
use crate::catalogues::{self, Standing};
use crate::session::Session;
use crate::table;
use crate::timeline::{cost, word};
use crate::toolbox::Toolbox;
use crate::workspace::Workspace;

const HEADER: [&str; 7] = ["name", "effect", "recovery", "timeout", "cost", "pin", "driver"];

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Ask no MCP server whether it still offers what was pinned
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of(&workspace)?;
    let changed = match &tools.pins {
        Some(pins) if !arguments.offline => changed(session, &workspace, pins)?,
        _ => Vec::new(),
    };
    let published = published(session, &workspace);
    let listed = Listed { tools: &tools, published: published.as_ref(), changed: &changed };
    if session.out.is_json() {
        for tool in tools.catalogue.iter() {
            session.out.json_line(&listed.document(tool)?)?;
        }
        return Ok(0);
    }
    for line in listed.lines() {
        session.out.line(line)?;
    }
    for server in tools.catalogue.unpinned_servers() {
        Session::note(&format!(
            "MCP server `{server}` is not pinned: `gesta tools pin` asks it what it offers"
        ));
    }
    for problem in tools.unpinned.iter().chain(&changed) {
        Session::note(&format!("frozen: {problem}"));
    }
    for difference in published.iter().flat_map(|it| it.differences(&tools.catalogue)) {
        Session::note(&difference);
    }
    if tools.catalogue.iter().next().is_none() && tools.catalogue.unpinned_servers().is_empty() {
        session.hint(
            "declare tools as `[tools.NAME]`, or MCP servers as `[mcp.NAME]`, in gesta.toml or in files that `tool_files` names",
        )?;
    }
    Ok(0)
}

/// What is published, if the store can be asked.
fn published(session: &Session, workspace: &Workspace) -> Option<Standing> {
    let asked = session
        .store()
        .and_then(|store| session.wait(catalogues::published(&store, workspace.config.registry)));
    asked.unwrap_or_else(|error| {
        Session::note(&format!("what is published is not known: {error:#}"));
        None
    })
}

/// What MCP servers offer otherwise than it was pinned. One that cannot be asked changes nothing.
fn changed(session: &Session, workspace: &Workspace, pins: &Pins) -> Result<Vec<PinProblem>> {
    let mut offers = pins.offers().clone();
    let pinned = |server: &Asking| pins.offers().contains_key(server.name());
    for server in Toolbox::servers(workspace)?.into_iter().filter(pinned) {
        let name = server.name().clone();
        match pin::ask_one(session, &server) {
            Ok(offer) => drop(offers.insert(name, offer)),
            Err(why) => Session::note(&why),
        }
    }
    if offers == *pins.offers() {
        return Ok(Vec::new());
    }
    let of_server = |problem: &PinProblem| {
        let server = problem.tool().as_str().split_once('.').map(|(server, _)| server);
        pins.offers().keys().any(|name| Some(name.as_str()) == server)
    };
    match Toolbox::offered(workspace, offers)? {
        Ok(now) => Ok(now.check_pins(pins).into_iter().filter(of_server).collect()),
        Err(problem) => {
            Session::note(&format!("what MCP servers offer cannot be used: {problem}"));
            Ok(Vec::new())
        }
    }
}

/// What is told of tools.
struct Listed<'a> {
    tools: &'a Toolbox,
    published: Option<&'a Standing>,
    changed: &'a [PinProblem],
}

impl Listed<'_> {
    fn document(&self, tool: &Tool) -> Result<Value> {
        let declared: Value = serde_json::from_str(tool.canonical().as_str())?;
        let pinned = self.tools.pins.as_ref().and_then(|pins| pins.get(tool.name()));
        let published = self.published.map(|published| {
            let stands = self.stands(published, tool);
            json!({ "catalogue": published.digest, "tool": stands })
        });
        Ok(json!({
            "name": tool.name(),
            "digest": tool.digest(),
            "pinned": pinned,
            "published": published,
            "frozen": self.frozen(tool),
            "declared": declared,
        }))
    }

    /// The table: with a column of what is published, if anything is.
    fn lines(&self) -> Vec<String> {
        let rows = self.tools.catalogue.iter().map(|tool| (tool, self.columns(tool)));
        let Some(published) = self.published else {
            let rows: Vec<[String; 7]> = rows.map(|(_, row)| row).collect();
            return table::lines(HEADER, &rows);
        };
        let [name, effect, recovery, timeout, cost, pin, driver] = HEADER;
        let wide = |(tool, row): (&Tool, [String; 7])| {
            let [name, effect, recovery, timeout, cost, pin, driver] = row;
            let stands = self.stands(published, tool).to_owned();
            [name, effect, recovery, timeout, cost, pin, stands, driver]
        };
        let rows: Vec<[String; 8]> = rows.map(wide).collect();
        table::lines([name, effect, recovery, timeout, cost, pin, "published", driver], &rows)
    }

    /// How a tool stands to what is published.
    fn stands(&self, published: &Standing, tool: &Tool) -> &'static str {
        match published.check(&self.tools.catalogue, tool.name()) {
            Ok(()) => "as it is",
            Err(Unpublished::Absent) => "no",
            Err(Unpublished::Differs) => "otherwise",
            Err(Unpublished::Unreadable) => "unreadable",
        }
    }

    fn columns(&self, tool: &Tool) -> [String; 7] {
        let manifest = tool.manifest();
        let recovery = match &manifest.probe {
            Some(probe) => format!("probe {probe}"),
            None => word(&manifest.recovery),
        };
        let state = match (self.frozen(tool), &self.tools.pins) {
            (Some(_), _) => "frozen",
            (None, Some(_)) => "pinned",
            (None, None) => "not pinned",
        };
        [
            tool.name().to_string(),
            manifest.effect.to_string(),
            recovery,
            manifest.timeout.to_string(),
            cost(&manifest.cost),
            state.to_owned(),
            driver(tool),
        ]
    }

    /// Why it is frozen, if it is.
    fn frozen(&self, tool: &Tool) -> Option<String> {
        let changed = self.changed.iter().find(|problem| problem.tool() == tool.name());
        tool.frozen().map(str::to_owned).or_else(|| changed.map(ToString::to_string))
    }
}

/// How the tool is reached, in a word, and over which MCP server.
fn driver(tool: &Tool) -> String {
    let declared: Option<Value> = serde_json::from_str(tool.canonical().as_str()).ok();
    let driver = declared.as_ref().and_then(|declared| declared.get("driver")?.as_object());
    let Some((word, how)) = driver.and_then(|driver| driver.iter().next()) else {
        return String::new();
    };
    match how.get("server").and_then(Value::as_str) {
        Some(server) => format!("{word} {server}"),
        None => word.clone(),
    }
}
