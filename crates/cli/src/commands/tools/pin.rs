//! `gesta tools pin`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use gesta_runtime::tools::{Asking, Catalogue, Offer, PinProblem, Pins, ServerName, Tool};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::durable::{Beside, Readers};
use crate::escape::visible;
use crate::output::counted;
use crate::problem::Problem;
use crate::session::Session;
use crate::timeline::{brief, word};
use crate::toolbox::{self, Toolbox, shown};

/// How long a server may take to start and to say what it offers.
const ASK_WITHIN: Duration = Duration::from_secs(120);

const UNUSABLE: &str = "nothing was pinned; `exclude` in `[mcp.NAME]` leaves a tool out, and `input` or `output` in `[mcp.NAME.tools.TOOL]` replaces its schema";

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Ask no MCP server: keep what each offered when it was last pinned
    #[arg(long)]
    offline: bool,
    /// Show what has changed, and accept nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let workspace = Session::workspace()?;
    let before = toolbox::read_pins(&workspace)?;
    let known = before.as_ref().map(|pins| pins.offers().clone()).unwrap_or_default();
    let offers = if arguments.offline {
        let servers = Toolbox::servers(&workspace)?;
        let declared = |name: &ServerName| servers.iter().any(|server| server.name() == name);
        known.clone().into_iter().filter(|(name, _)| declared(name)).collect()
    } else {
        ask(session, Toolbox::servers(&workspace)?)?
    };
    let catalogue = Toolbox::offered(&workspace, offers.clone())?
        .map_err(|problem| if offers.is_empty() { problem } else { problem.hint(UNUSABLE) })?;
    let changes = catalogue.check_pins(&before.unwrap_or_default());
    let pins = Pins::of(&catalogue).with_offers(offers.clone());
    let path = workspace.lock();
    if !arguments.dry_run {
        let mut beside = Beside::new(&path, Readers::Everyone)?;
        beside.file().write_all(pins.to_text().as_bytes())?;
        beside.replace()?;
    }
    let pinned = !arguments.dry_run;
    let count = catalogue.iter().count() as u64;
    if session.out.is_json() {
        let changes: Vec<Value> = changes.iter().map(document).collect();
        let told = json!({ "file": path, "pinned": pinned, "tools": count, "changes": changes });
        session.out.document(&told)?;
        return Ok(0);
    }
    for change in &changes {
        let of = Of { catalogue: &catalogue, before: &known, now: &offers };
        session.out.line(visible(&line(change, &of)))?;
    }
    let count = counted(count, "tool", "tools");
    let done = if pinned { "pinned" } else { "nothing was written; this would pin" };
    session.out.line(format!("{done} {count} in `{}`", shown(&path)))?;
    Ok(0)
}

/// Asks every server what it offers.
fn ask(session: &Session, servers: Vec<Asking>) -> Result<BTreeMap<ServerName, Offer>> {
    let mut offers = BTreeMap::new();
    for server in servers {
        let name = server.name().clone();
        let offer = ask_one(session, &server).map_err(|why| {
            Problem::new(why).hint(
                "nothing was pinned; `gesta tools pin --offline` keeps what it offered before",
            )
        })?;
        offers.insert(name, offer);
    }
    Ok(offers)
}

/// Asks a server what it offers, or says why it cannot be asked.
pub(super) fn ask_one(session: &Session, server: &Asking) -> Result<Offer, String> {
    let name = server.name().clone();
    Session::note(&format!("asking MCP server `{name}` what it offers"));
    let answer = session.wait(async { timeout(ASK_WITHIN, server.offer()).await });
    let within = ASK_WITHIN.as_secs();
    let offer = answer.unwrap_or_else(|_| Err(format!("no answer within {within} s")));
    offer.map_err(|why| {
        format!("MCP server `{name}` cannot be asked what it offers: {}", visible(&why))
    })
}

/// What a change is told from.
struct Of<'a> {
    catalogue: &'a Catalogue,
    before: &'a BTreeMap<ServerName, Offer>,
    now: &'a BTreeMap<ServerName, Offer>,
}

fn line(change: &PinProblem, of: &Of<'_>) -> String {
    match change {
        PinProblem::Missing { tool, found } => {
            let claims = of.catalogue.get(tool).filter(|_| of.offered(change, of.now).is_some());
            let claims = claims.map(claims_of).unwrap_or_default();
            format!("new      {tool}  {}{claims}", brief(found))
        }
        PinProblem::Gone { tool, pinned } => format!("gone     {tool}  {}", brief(pinned)),
        PinProblem::Changed { tool, pinned, found } => {
            let what = of.differences(change);
            format!("changed  {tool}  {} → {}{what}", brief(pinned), brief(found))
        }
    }
}

/// What is accepted of a tool that somebody else describes.
fn claims_of(tool: &Tool) -> String {
    let manifest = tool.manifest();
    format!("  effect {}, recovery {}", manifest.effect, word(&manifest.recovery))
}

impl Of<'_> {
    /// What a server says of a tool.
    fn offered<'a>(
        &self,
        change: &PinProblem,
        offers: &'a BTreeMap<ServerName, Offer>,
    ) -> Option<&'a str> {
        let (server, tool) = change.tool().as_str().split_once('.')?;
        let (_, offer) = offers.iter().find(|(name, _)| name.as_str() == server)?;
        offer.tools.get(tool).map(String::as_str)
    }

    /// The members that a server writes otherwise than before.
    fn differences(&self, change: &PinProblem) -> String {
        let read = |raw: Option<&str>| -> Option<BTreeMap<String, Value>> {
            serde_json::from_str(raw?).ok()
        };
        let (before, now) = (self.offered(change, self.before), self.offered(change, self.now));
        let (Some(before), Some(now)) = (read(before), read(now)) else { return String::new() };
        let names = before.keys().chain(now.keys());
        let mut names: Vec<&str> =
            names.filter(|name| before.get(*name) != now.get(*name)).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        match names.as_slice() {
            [] => String::new(),
            names => format!("  ({})", names.join(", ")),
        }
    }
}

pub(super) fn document(change: &PinProblem) -> Value {
    match change {
        PinProblem::Missing { tool, found } => {
            json!({ "tool": tool, "what": "new", "found": found })
        }
        PinProblem::Gone { tool, pinned } => {
            json!({ "tool": tool, "what": "gone", "pinned": pinned })
        }
        PinProblem::Changed { tool, pinned, found } => {
            json!({ "tool": tool, "what": "changed", "pinned": pinned, "found": found })
        }
    }
}
