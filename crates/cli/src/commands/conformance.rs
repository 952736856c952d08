//! `gesta conformance`: attacks on the record, each with what must be said of it, tried on this binary.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use clap::Args;
use gesta_core::json::Canon;
use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Options, verify};
use gesta_verify::report::{Report, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use super::verify::bar;
use crate::output::{self, counted};
use crate::problem::Problem;
use crate::session::Session;

/// The files of `vectors/`: part, name, content.
const VECTORS: &[(&str, &str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/vectors.rs"));
/// The bundle that is changed at random.
const VALID: &str = "valid";

/// Try known attacks on this binary
#[derive(Debug, Args)]
#[command(after_help = "\
Bundles that were tampered with (reordered, cut, spliced, forged, signed by the wrong key, packed to
escape their archive), documents at the edges of canonical JSON, and a sound bundle changed at
random: each must be found out, with exactly the report that is expected. The vectors are in the
binary; nothing is read or written.

Examples:
  gesta conformance
  gesta conformance --mutations 100000 --seed 7
  gesta conformance --json | jq '.cases[] | select(.ok | not)'")]
pub(crate) struct Arguments {
    /// How many random changes of a sound bundle are tried
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    mutations: u64,
    /// What they are drawn from: the same seed, the same changes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
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
    let passed = mutations(session, arguments)?;
    let wrong = tried.iter().filter(|one| one.expected.is_some()).count() + passed.len();
    if session.out.is_json() {
        let cases: Vec<Value> = tried
            .iter()
            .map(|Tried { part, name, said, expected }| {
                json!({ "part": part, "name": name, "ok": expected.is_none(), "said": said, "expected": expected })
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
            Some(first) => first.to_string(),
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
                (format!("refused: {found}"), right)
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

/// Changes a sound bundle at random, again and again. Returns the changes that were not found out.
fn mutations(session: &Session, arguments: &Arguments) -> Result<Vec<String>> {
    let valid = vector("bundles", &format!("{VALID}.tar")).context("no valid bundle")?;
    let trust = trust(VALID)?;
    if report(valid.to_vec(), &trust)?.verdict != Verdict::Sound {
        return Err(Problem::new("the sound bundle of the vectors is not sound").into());
    }
    let bar = bar(output::shows_progress(session.out.is_json()), arguments.mutations);
    let mut dice = Dice(arguments.seed);
    let mut passed = Vec::new();
    for number in 0..arguments.mutations {
        let (changed, what) = dice.change(valid);
        if changed != valid && report(changed, &trust)?.verdict == Verdict::Sound {
            passed.push(what);
        }
        bar.set_position(number + 1);
    }
    bar.finish_and_clear();
    Ok(passed)
}

/// Numbers that follow from a seed (SplitMix64): the same seed tries the same on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap_or(0)
    }

    /// One change: a bit, a byte, a part that is lost, repeated, moved, or the end cut off.
    fn change(&mut self, bytes: &[u8]) -> (Vec<u8>, String) {
        let mut changed = bytes.to_vec();
        let at = self.below(bytes.len());
        let length = 1 + self.below(600).min(bytes.len() - at - 1);
        let what = match self.below(6) {
            0 | 1 => {
                let bit = self.below(8);
                changed.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
                format!("bit {bit} of byte {at} flipped")
            }
            2 => {
                changed.drain(at..at + length);
                format!("{length} bytes from {at} on lost")
            }
            3 => {
                let part: Vec<u8> = bytes.iter().skip(at).take(length).copied().collect();
                changed.splice(at..at, part);
                format!("{length} bytes from {at} on repeated")
            }
            4 => {
                let part: Vec<u8> = changed.drain(at..at + length).collect();
                let to = self.below(changed.len());
                changed.splice(to..to, part);
                format!("{length} bytes moved from {at} to {to}")
            }
            _ => {
                changed.truncate(at);
                format!("cut off at {at}")
            }
        };
        (changed, what)
    }
}
