//! `gesta tools list`.

use anyhow::Result;
use gesta_runtime::tools::{Pins, Tool};
use serde_json::{Value, json};

use crate::session::Session;
use crate::table;
use crate::timeline::{cost, word};
use crate::toolbox::Toolbox;

pub(super) fn run(session: &mut Session) -> Result<u8> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of(&workspace)?;
    let pins = tools.pins.as_ref();
    if session.out.is_json() {
        for tool in tools.catalogue.iter() {
            session.out.json_line(&document(tool, pins)?)?;
        }
        return Ok(0);
    }
    let rows: Vec<[String; 7]> = tools.catalogue.iter().map(|tool| columns(tool, pins)).collect();
    let header = ["name", "effect", "recovery", "timeout", "cost", "pin", "driver"];
    for line in table::lines(header, &rows) {
        session.out.line(line)?;
    }
    for server in tools.catalogue.unpinned_servers() {
        Session::note(&format!(
            "MCP server `{server}` is not pinned: `gesta tools pin` asks it what it offers"
        ));
    }
    for problem in &tools.unpinned {
        Session::note(&format!("frozen: {problem}"));
    }
    if rows.is_empty() && tools.catalogue.unpinned_servers().is_empty() {
        session.hint(
            "declare tools as `[tools.NAME]`, or MCP servers as `[mcp.NAME]`, in gesta.toml or in files that `tool_files` names",
        )?;
    }
    Ok(0)
}

fn document(tool: &Tool, pins: Option<&Pins>) -> Result<Value> {
    let declared: Value = serde_json::from_str(tool.canonical().as_str())?;
    Ok(json!({
        "name": tool.name(),
        "digest": tool.digest(),
        "pinned": pins.and_then(|pins| pins.get(tool.name())),
        "frozen": tool.frozen(),
        "declared": declared,
    }))
}

fn columns(tool: &Tool, pins: Option<&Pins>) -> [String; 7] {
    let manifest = tool.manifest();
    let recovery = match &manifest.probe {
        Some(probe) => format!("probe {probe}"),
        None => word(&manifest.recovery),
    };
    [
        tool.name().to_string(),
        manifest.effect.to_string(),
        recovery,
        manifest.timeout.to_string(),
        cost(&manifest.cost),
        state(tool, pins).to_owned(),
        driver(tool),
    ]
}

fn state(tool: &Tool, pins: Option<&Pins>) -> &'static str {
    match (tool.frozen(), pins) {
        (Some(_), _) => "frozen",
        (None, Some(_)) => "pinned",
        (None, None) => "not pinned",
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
