//! What was asked for: the job files, read by themselves, beside what chains say was done. Knows how the files of
//! these jobs are written, and nothing of the plans that they become.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::body::external_key;
use gesta_core::ids::TrajectoryId;
use serde_json::Value;

use crate::delegations::Chains;
use crate::outside::Ledger;

/// What was submitted, by trajectory.
#[derive(Default)]
pub(crate) struct Asked(BTreeMap<String, Family>);

/// A job, and those below it, by their names.
struct Family {
    top: String,
    files: BTreeMap<String, String>,
}

impl Asked {
    pub(crate) fn submitted(&mut self, (job, files): (TrajectoryId, Vec<String>)) {
        let name = |file: &str| between(file, "job: ", "\n").unwrap().to_owned();
        let top = files.first().map(|file| name(file)).unwrap();
        let files = files.into_iter().map(|file| (name(&file), file)).collect();
        self.0.insert(job.to_string(), Family { top, files });
    }

    /// The file of a trajectory: it was submitted, or its parent says which job it handed on.
    fn file(&self, id: &str, chains: &Chains) -> Option<&str> {
        let (top, name) = self.origin(id, chains)?;
        self.0.get(&top)?.files.get(&name).map(String::as_str)
    }

    /// The submitted job that a trajectory belongs to, and the name of its own.
    fn origin(&self, id: &str, chains: &Chains) -> Option<(String, String)> {
        if let Some(family) = self.0.get(id) {
            return Some((id.to_owned(), family.top.clone()));
        }
        let by = &chains.get(id)?.first()?["body"]["purpose"]["job"]["delegated_by"];
        let parent = by["trajectory"].as_str()?;
        let handed = chains.get(parent)?.iter().find(|entry| entry["body"]["child"] == id)?;
        let name = handed["body"]["task"]["job"].as_str()?.to_owned();
        Some((self.origin(parent, chains)?.0, name))
    }

    /// Compares every chain with its file, and with what it was told to stop.
    pub(crate) fn audit(&self, chains: &Chains, ledger: &Ledger) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        for landed in &ledger.landed {
            let id = landed.trajectory.to_string();
            let chain = chains.get(&id).map(Vec::as_slice).unwrap_or_default();
            let permitted = chain.iter().filter(|entry| entry["kind"] == "started").any(|entry| {
                let generation = entry["body"]["permit"]["doc"]["generation"].as_u64().unwrap_or(1);
                entry["body"]["proposal"]["step"] == landed.step.as_str()
                    && external_key(landed.trajectory, &landed.step, generation) == landed.key
            });
            if !permitted {
                wrong.push((id, format!("`{}` happened, and was never started", landed.step)));
            }
        }
        for (id, chain) in chains {
            wrong.extend(begun_while_stopping(chain).into_iter().map(|what| (id.clone(), what)));
            if !chain.iter().any(|entry| entry["kind"] == "completed") {
                continue;
            }
            let Some(file) = self.file(id, chains) else {
                wrong.push((id.clone(), "nobody asked for it".to_owned()));
                continue;
            };
            let (expected, found) = (called_for(file), results(chain));
            for step in expected.difference(&found) {
                wrong.push((
                    id.clone(),
                    format!("`{step}` was asked for and has no result\n{file}"),
                ));
            }
            let skipped = skipped(chain);
            let conditional = |step: &&String| !step.ends_with("/items") && *step != "answer";
            for step in expected.iter().filter(conditional) {
                let left_out = not_wanted(file, step);
                if left_out != skipped.contains(step.as_str()) {
                    let what = if left_out { "was to be skipped" } else { "was skipped" };
                    wrong.push((id.clone(), format!("`{step}` {what}\n{file}")));
                }
            }
            for step in found.difference(&expected) {
                wrong.push((
                    id.clone(),
                    format!("`{step}` has a result and was not asked for\n{file}"),
                ));
            }
        }
        wrong
    }
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    rest.split_once(to).map(|(found, _)| found)
}

/// Every step that a file calls for, those of its lists among them.
fn called_for(file: &str) -> BTreeSet<String> {
    // Every job has an answer, if only an empty one.
    let mut steps = BTreeSet::from(["answer".to_owned()]);
    for line in file.lines().filter(|line| line.starts_with("  - ")) {
        let id = between(line, "id: ", ",").unwrap();
        steps.insert(id.to_owned());
        if let Some(list) = between(line, "each: '${[", "]}'")
            && !line.contains("when: 'false'")
        {
            steps.insert(format!("{id}/items"));
            steps.extend((0..list.split(',').count()).map(|index| format!("{id}/{index}")));
        }
    }
    steps
}

/// The line of a step, or of the list that it is an item of.
fn line<'a>(file: &'a str, step: &str) -> &'a str {
    let node = step.split('/').next().unwrap_or(step);
    file.lines().find(|line| line.starts_with(&format!("  - {{ id: {node},"))).unwrap()
}

fn not_wanted(file: &str, step: &str) -> bool {
    line(file, step).contains("when: 'false'")
}

/// Every step whose condition did not hold, as the chain tells.
fn skipped(chain: &[Value]) -> BTreeSet<&str> {
    let commits = chain.iter().filter(|entry| entry["kind"] == "commit");
    let skipped = commits.filter(|entry| entry["body"]["origin"] == "skipped");
    skipped.filter_map(|entry| entry["body"]["step"].as_str()).collect()
}

/// Every step that has come to something.
fn results(chain: &[Value]) -> BTreeSet<String> {
    let happened = |entry: &&Value| match entry["kind"].as_str() {
        Some("commit" | "delegation_result") => true,
        Some("resolution") => entry["body"]["statement"]["doc"]["verdict"].is_object(),
        _ => false,
    };
    let steps = chain.iter().filter(happened).map(|entry| entry["body"]["step"].as_str().unwrap());
    steps.map(str::to_owned).collect()
}

/// Calls that were begun although somebody had asked for an end: neither to undo, nor to find out what became
/// of one that was sent before.
fn begun_while_stopping(chain: &[Value]) -> Vec<String> {
    let mut asked = false;
    let mut sent = BTreeSet::new();
    let mut wrong = Vec::new();
    for entry in chain {
        asked |= entry["kind"] == "cancel_requested";
        if entry["kind"] != "started" {
            continue;
        }
        let body = &entry["body"];
        let step = body["proposal"]["step"].as_str().unwrap();
        let call = (step, body["permit"]["doc"]["generation"].as_u64());
        let again = !sent.insert(call);
        if asked && !again && body["compensates"].is_null() {
            wrong.push(format!("`{step}` was begun after a request to cancel"));
        }
    }
    wrong
}
