//! `gesta conformance`: attacks on the record, each with what must be said of it, tried on this binary.

mod catalogue;
mod changes;
mod live;
mod log;
mod made;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::json::Canon;
use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Options, verify};
use gesta_verify::report::Report;
use serde::Deserialize;
use serde_json::{Value, json};

use self::catalogue::ATTACKS;
use crate::escape;
use crate::output::counted;
use crate::session::Session;

/// The files of `vectors/`: part, name, content.
const VECTORS: &[(&str, &str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/vectors.rs"));
/// Try known attacks on this binary
#[derive(Debug, Args)]
#[command(after_help = "\
Bundles that were tampered with (reordered, cut, spliced, forged, signed by the wrong key, packed to
escape their archive), documents at the edges of canonical JSON, logs that were rolled back, a store
in a temporary directory that is forked, written by a lost owner and set back; and sound bundles
changed at random, by the byte and by forgers who make everything else fit: each must be found out,
with exactly the report that is expected. The vectors are in the binary.

Examples:
  gesta conformance
  gesta conformance --mutations 100000 --seed 7
  gesta conformance --catalogue
  gesta conformance --json | jq '.cases[] | select(.ok | not)'")]
pub(crate) struct Arguments {
    /// How many random changes of a sound bundle are tried
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    mutations: u64,
    /// What they are drawn from: the same seed, the same changes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print which attack is tried by which cases, with what each must come to, as a table
    #[arg(long)]
    catalogue: bool,
}

/// One attack, and what came of it.
struct Tried {
    part: &'static str,
    name: String,
    /// What was said of it, for people.
    said: String,
    /// What should have been said, if it was not.
    expected: Option<String>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let mut tried = bundles()?;
    tried.extend(documents()?);
    tried.extend(made::documents());
    tried.extend(log::cases()?);
    tried.extend(session.wait(live::cases())?);
    if arguments.catalogue {
        session.out.line(catalogue::table(&tried).trim_end())?;
        return Ok(0);
    }
    let passed = changes::mutations(session, arguments)?;
    let wrong = tried.iter().filter(|one| one.expected.is_some()).count() + passed.len();
    if session.out.is_json() {
        let cases: Vec<Value> = tried
            .iter()
            .map(|Tried { part, name, said, expected }| {
                let attack = ATTACKS.iter().find(|attack| attack.has(part, name));
                json!({ "attack": attack.map(|attack| attack.what), "part": part, "name": name, "ok": expected.is_none(), "said": said, "expected": expected })
            })
            .collect();
        session.out.document(&json!({
            "cases": cases,
            "mutations": { "tried": arguments.mutations, "seed": arguments.seed, "passed": passed },
            "wrong": wrong,
        }))?;
        return Ok(u8::from(wrong > 0));
    }
    for Tried { part, name, said, expected } in &tried {
        match expected {
            None => session.out.line(format!("ok     {part}/{name}: {said}"))?,
            Some(expected) => session
                .out
                .line(format!("WRONG  {part}/{name}: {said}\n       expected: {expected}"))?,
        }
    }
    for change in &passed {
        session.out.line(format!("WRONG  a changed bundle verifies: {change}"))?;
    }
    let cases = counted(tried.len() as u64, "attack", "attacks");
    let changes = counted(arguments.mutations, "random change", "random changes");
    session.out.line(match wrong {
        0 => format!("{cases} and {changes}: all found out"),
        wrong => format!("{cases} and {changes}: {wrong} NOT found out as they should be"),
    })?;
    Ok(u8::from(wrong > 0))
}

fn vector(part: &str, name: &str) -> Option<&'static [u8]> {
    let found = VECTORS.iter().find(|(of, called, _)| (*of, *called) == (part, name));
    found.map(|(_, _, bytes)| *bytes)
}

fn trust(name: &str) -> Result<TrustRoot> {
    let own = vector("bundles", &format!("{name}.trust.json"));
    let bytes =
        own.or_else(|| vector("bundles", "trust.json")).context("the vectors lack a trust root")?;
    Ok(TrustRoot::parse(bytes)?)
}

fn report(bundle: Vec<u8>, trust: &TrustRoot) -> Result<Report> {
    Ok(match Bundle::read(Box::new(bundle)) {
        Ok(bundle) => verify(&bundle, &trust.keyring()?, &Options::default()),
        Err(finding) => Report::of_finding(finding),
    })
}

/// Every bundle of the vectors, with the whole report that is expected of it.
fn bundles() -> Result<Vec<Tried>> {
    let mut tried = Vec::new();
    for (part, file, bytes) in VECTORS {
        let Some(name) = file.strip_suffix(".tar").filter(|_| *part == "bundles") else { continue };
        let report = report(bytes.to_vec(), &trust(name)?)?;
        let expected = vector(part, &format!("{name}.report.json")).context("no report")?;
        let expected: Value = serde_json::from_slice(expected)?;
        let found = serde_json::to_value(&report)?;
        let said = match report.first() {
            Some(first) => escape::visible(&first.to_string()),
            None => "sound".to_owned(),
        };
        let first = expected.pointer("/findings/0").unwrap_or(&expected).to_string();
        let expected = (found != expected).then_some(first);
        tried.push(Tried { part: "bundles", name: name.to_owned(), said, expected });
    }
    Ok(tried)
}

/// Documents at the edges of canonical JSON: their canonical form, or where and why they are refused.
fn documents() -> Result<Vec<Tried>> {
    #[derive(Deserialize)]
    struct Case {
        canonical: Option<String>,
        error: Option<BTreeMap<String, String>>,
        input_hex: String,
    }
    let mut tried = Vec::new();
    for (part, file, bytes) in VECTORS {
        let Some(name) = file.strip_suffix(".json").filter(|_| *part == "json") else { continue };
        let Case { canonical, error, input_hex } = serde_json::from_slice(bytes)?;
        let input = hex::decode(&input_hex).context("a vector is not hexadecimal")?;
        let (said, right) = match Canon::parse(&input) {
            Ok(found) => (
                format!("canonical, {} bytes", found.as_bytes().len()),
                canonical.as_deref() == Some(found.as_str()),
            ),
            Err(found) => {
                let told = |key: &str| error.as_ref().and_then(|error| error.get(key)).cloned();
                let right = told("pointer").as_deref() == Some(found.pointer())
                    && told("problem") == Some(found.problem().to_string());
                (escape::visible(&format!("refused: {found}")), right)
            }
        };
        let expected = match (&canonical, &error) {
            _ if right => None,
            (Some(canonical), _) => Some(format!("canonical: {canonical}")),
            (None, error) => Some(format!("refused: {error:?}")),
        };
        tried.push(Tried { part: "json", name: name.to_owned(), said, expected });
    }
    Ok(tried)
}
