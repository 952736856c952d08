//! Gesta in a program of one's own: tools that are functions, and a job that pays once, however often
//! the program is killed and started again. Run it with `cargo run -p gesta-example-embedded -- DIR`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use gesta_core::document::Recovery;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionCall, FunctionError, Manifest};
use gesta_runtime::{Event, Gesta, Keys, job};
use gesta_store::sqlite::{Options, SqliteStore};
use serde_json::json;

const JOB: &str = "
job: refund
input: { order: integer }
steps:
  - { id: order, tool: orders.read, args: { order: '${input.order}' } }
  - { id: pay, tool: payments.refund, args: { cents: '${steps.order.result.cents}' } }
answer: ${steps.pay.result.refund}
";
const POLICY: &str = r#"@id("ours") permit (principal, action, resource);"#;

#[tokio::main]
async fn main() -> Result<()> {
    let directory = PathBuf::from(std::env::args().nth(1).context("which directory?")?);
    let bank = directory.join("bank");
    std::fs::create_dir_all(&bank)?;
    // Sent again under the same key if the program dies in the call: the bank books a key once.
    let mut refund = Manifest::new("payments.refund".parse()?, Effect::External);
    refund.recovery = Recovery::KeyedConcurrent;
    let tools = Catalogue::builder()
        .function(Manifest::new("orders.read".parse()?, Effect::Read), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!({ "cents": 4200 }))
        })
        .function(refund, move |call: FunctionCall| {
            let booked = std::fs::write(bank.join(&call.key), call.args.as_bytes());
            async move {
                booked.map_err(|error| FunctionError::unknown(error.to_string()))?;
                Ok::<_, FunctionError>(json!({ "refund": call.key }))
            }
        })
        .build()?;
    let store = Arc::new(SqliteStore::open(directory.join("gesta.db"), Options::default())?);
    let gesta = Gesta::open(store, Keys::kept_in(&directory.join("keys"))?, tools).await?;
    let gesta = gesta.governed_by(POLICY).await?;
    std::fs::write(directory.join("trust.json"), serde_json::to_string(gesta.trust_root())?)?;
    let gesta = gesta.listening(Arc::new(|event| {
        if let Event::Entry(entry) = event {
            println!("{:>3} {}", entry.seq(), entry.kind());
        }
    }));
    let refund = job::load("refund.yaml", JOB, gesta.tools())?;
    let id = gesta.submit(&refund, &[("order", "1042")], Some("order-1042")).await?;
    let outcome = gesta.run(id).await?;
    println!("{id} {}: {}", outcome.status, outcome.answer.context("no answer")?);
    Ok(())
}
