//! `gesta notices`: what could not be told yet.

use anyhow::Result;
use clap::Args;
use gesta_store::NoticeRow;
use serde_json::{Value, json};

use crate::escape::visible;
use crate::moment;
use crate::output::counted;
use crate::session::Session;
use crate::table;

/// More than anybody reads.
const MOST: usize = 10_000;

/// List notices that are not delivered, or have them tried again
#[derive(Debug, Args)]
#[command(after_help = "\
Notices tell of approvals that are asked for, doubts, confirmations and undos that wait for a person,
late effects, budgets that reach a threshold, and quarantines. `[notify.NAME]` in gesta.toml says where they go.
A notice that was tried too often is given up and stays here until it is tried again.

Examples:
  gesta notices
  gesta notices --retry")]
pub(crate) struct Arguments {
    /// Have those that were given up tried again
    #[arg(long)]
    retry: bool,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = session.store_to_read()?;
    if arguments.retry {
        let count = session.wait(store.retry_notices())?;
        if session.out.is_json() {
            session.out.document(&json!({ "retried": count }))?;
        } else {
            let notices = counted(count, "notice", "notices");
            session.out.line(format!("{notices} will be tried again"))?;
        }
        return Ok(0);
    }
    let rows = session.wait(store.notices(MOST))?;
    if session.out.is_json() {
        for row in &rows {
            session.out.json_line(&document(row))?;
        }
        return Ok(0);
    }
    let lines: Vec<[String; 5]> = rows.iter().map(columns).collect();
    for line in table::lines(["at", "what", "about", "tries", "why not"], &lines) {
        session.out.line(line)?;
    }
    Ok(0)
}

fn data(row: &NoticeRow) -> Value {
    serde_json::from_str(row.notice.data.as_str()).unwrap_or_default()
}

fn document(row: &NoticeRow) -> Value {
    json!({
        "id": row.notice.id,
        "topic": row.notice.topic,
        "at": row.notice.at,
        "data": data(row),
        "tries": row.tries,
        "reached": row.reached,
        "error": row.error,
        "failed": row.failed,
    })
}

fn columns(row: &NoticeRow) -> [String; 5] {
    let data = data(row);
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(visible);
    let about = match (text("trajectory"), text("step"), text("tenant")) {
        (Some(trajectory), Some(step), _) => format!("{trajectory}/{step}"),
        (Some(trajectory), None, _) => trajectory,
        (None, _, tenant) => tenant.unwrap_or_default(),
    };
    let tries = if row.failed { format!("{}, given up", row.tries) } else { row.tries.to_string() };
    let why = row.error.as_deref().map(visible).unwrap_or_default();
    [moment::utc(row.notice.at), row.notice.topic.to_string(), about, tries, why]
}
