//! `gesta workers`: who is alive, with what.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::Args;
use gesta_core::time::UnixMs;
use gesta_store::WorkerRow;
use serde_json::json;

use crate::escape::visible;
use crate::moment;
use crate::session::Session;
use crate::table;

/// How many tools a line names.
const TOOLS_SHOWN: usize = 6;

/// List the workers that are alive, with what they have
#[derive(Debug, Args)]
#[command(after_help = "\
A worker is listed from its first heartbeat until it ends or its lease does. It claims only jobs
whose tools it has. Where workers declare different limits on calls at once, the smallest holds for all.

Examples:
  gesta workers
  gesta workers --json --store postgres://gesta@db/gesta")]
pub(crate) struct Arguments {}

pub(crate) fn run(session: &mut Session, _arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    let rows = session.wait(store.workers())?;
    if session.out.is_json() {
        for row in &rows {
            session.out.json_line(&document(row))?;
        }
        return Ok(0);
    }
    let columns: Vec<[String; 7]> = rows.iter().map(columns).collect();
    let header = ["id", "host", "pid", "alive for", "lease", "jobs", "tools"];
    for line in table::lines(header, &columns) {
        session.out.line(line)?;
    }
    if rows.is_empty() {
        session.hint("no worker is alive; `gesta worker` starts one")?;
    }
    for differing in differing(&rows) {
        session.hint(&differing)?;
    }
    Ok(0)
}

/// The limits about which live workers differ, and what holds.
fn differing(rows: &[WorkerRow]) -> Vec<String> {
    let mut limits: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (name, limit) in rows.iter().flat_map(|row| &row.profile.limits) {
        limits.entry(name).or_default().insert(limit.get());
    }
    let concerned = |row: &&WorkerRow, name: &str| {
        let tool = name.strip_prefix("tool ");
        tool.is_none_or(|tool| row.profile.tools.iter().any(|has| has.as_str() == tool))
    };
    let without = |name: &str| {
        let mut without = rows.iter().filter(|row| !row.profile.limits.contains_key(name));
        without.any(|row| concerned(&row, name))
    };
    let told = limits.iter().filter_map(|(name, declared)| {
        let least = declared.first()?;
        let mut said: Vec<String> = declared.iter().map(u32::to_string).collect();
        said.extend(without(name).then(|| "none".to_owned()));
        let told = format!(
            "workers declare different limits of {name} ({}); {least} holds for all",
            said.join(", ")
        );
        (said.len() > 1).then_some(told)
    });
    told.collect()
}

fn document(row: &WorkerRow) -> serde_json::Value {
    json!({
        "worker": row.worker,
        "host": row.profile.host,
        "pid": row.profile.pid,
        "version": row.profile.version,
        "since": row.since,
        "heartbeat_at": row.beat_at,
        "lease_until": row.lease_until,
        "jobs": row.claimed,
        "tools": row.profile.tools,
        "limits": row.profile.limits,
    })
}

/// Times are told by the store's clock, so they are compared with each other only.
fn columns(row: &WorkerRow) -> [String; 7] {
    let tools = &row.profile.tools;
    let mut named: Vec<&str> = tools.iter().take(TOOLS_SHOWN).map(|tool| tool.as_str()).collect();
    let more = format!("and {} more", tools.len().saturating_sub(TOOLS_SHOWN));
    if tools.len() > TOOLS_SHOWN {
        named.push(&more);
    }
    let span =
        |from: UnixMs, to: UnixMs| moment::since(from, to).trim_start_matches('+').to_owned();
    [
        row.worker.to_string(),
        visible(&row.profile.host),
        row.profile.pid.to_string(),
        span(row.since, row.beat_at),
        span(row.beat_at, row.lease_until),
        row.claimed.to_string(),
        named.join(" "),
    ]
}
