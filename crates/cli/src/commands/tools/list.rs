//! `gesta tools list`.

use anyhow::Result;
use clap::Args;
use gesta_runtime::tools::{Asking, PinProblem, Pins, Tool};
use serde_json::{Value, json};

use super::pin;
use crate::session::Session;
use crate::table;
use crate::timeline::{cost, word};
use crate::toolbox::Toolbox;
use crate::workspace::Workspace;

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
    let listed = Listed { pins: tools.pins.as_ref(), changed: &changed };
    if session.out.is_json() {
        for tool in tools.catalogue.iter() {
            session.out.json_line(&listed.document(tool)?)?;
        }
        return Ok(0);
    }
    let rows: Vec<[String; 7]> = tools.catalogue.iter().map(|tool| listed.columns(tool)).collect();
    let header = ["name", "effect", "recovery", "timeout", "cost", "pin", "driver"];
    for line in table::lines(header, &rows) {
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
    if rows.is_empty() && tools.catalogue.unpinned_servers().is_empty() {
        session.hint(
            "declare tools as `[tools.NAME]`, or MCP servers as `[mcp.NAME]`, in gesta.toml or in files that `tool_files` names",
        )?;
    }
    Ok(0)
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
    pins: Option<&'a Pins>,
    changed: &'a [PinProblem],
}

impl Listed<'_> {
    fn document(&self, tool: &Tool) -> Result<Value> {
        let declared: Value = serde_json::from_str(tool.canonical().as_str())?;
        let pinned = self.pins.and_then(|pins| pins.get(tool.name()));
        Ok(json!({
            "name": tool.name(),
            "digest": tool.digest(),
            "pinned": pinned,
            "frozen": self.frozen(tool),
            "declared": declared,
        }))
    }

    fn columns(&self, tool: &Tool) -> [String; 7] {
        let manifest = tool.manifest();
        let recovery = match &manifest.probe {
            Some(probe) => format!("probe {probe}"),
            None => word(&manifest.recovery),
        };
        let state = match (self.frozen(tool), self.pins) {
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
