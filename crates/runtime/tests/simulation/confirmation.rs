//! The auditor's eye on confirmation: nothing that an earlier attempt left outside is used before somebody
//! has looked, and nobody sees what is not so.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::outside::Ledger;

/// What is known about what the job left outside, entry by entry.
#[derive(Default)]
struct Seen {
    /// What each node needs.
    needs: BTreeMap<String, Vec<String>>,
    attempt: u64,
    /// Each resource: the step that left it, and in which attempt.
    left: BTreeMap<String, (String, u64)>,
    /// Resources that were looked at in this attempt so that a step may go on.
    looked: BTreeSet<String>,
    /// Resources that a person has let be.
    let_be: BTreeSet<String>,
    /// What each confirmation was about.
    about: BTreeMap<String, Vec<String>>,
    begun: BTreeSet<String>,
}

/// What is wrong with what was confirmed, or was not.
pub(crate) fn confirmations(chain: &[Value], ledger: &Ledger) -> Vec<String> {
    let mut seen = Seen::default();
    chain.iter().flat_map(|entry| seen.see(entry, ledger)).collect()
}

impl Seen {
    fn see(&mut self, entry: &Value, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        let body = &entry["body"];
        match entry["kind"].as_str().unwrap_or_default() {
            "plan" => {
                for step in body["steps"].as_array().unwrap() {
                    self.needs.insert(text(&step["id"]), texts(&step["needs"]));
                }
            }
            "attempt" => {
                self.attempt = entry["by"]["attempt"].as_u64().unwrap();
                self.looked.clear();
            }
            "commit" => self.leave(&text(&body["step"]), &body["delta"]),
            "resolution" => {
                let happened = &body["statement"]["doc"]["verdict"]["happened"];
                self.leave(&text(&body["step"]), &happened["delta"]);
            }
            "confirmation" => wrong.extend(self.confirmation(entry, ledger)),
            "started" if body["compensates"].is_null() => {
                let step = text(&body["proposal"]["step"]);
                if self.begun.insert(step.clone()) {
                    wrong.extend(self.used_unseen(&step));
                }
            }
            _ => {}
        }
        wrong
    }

    fn leave(&mut self, step: &str, delta: &Value) {
        for change in delta.as_array().into_iter().flatten() {
            let change = change.as_object().unwrap().values().next().unwrap();
            let id = text(&change["resource"]["id"]);
            self.let_be.remove(&id);
            self.left.insert(id, (step.to_owned(), self.attempt));
        }
    }

    fn confirmation(&mut self, entry: &Value, ledger: &Ledger) -> Vec<String> {
        let mut wrong = Vec::new();
        let body = &entry["body"];
        if let Some(confirmed) = body["confirms"].as_str() {
            self.let_be.extend(self.about.get(confirmed).into_iter().flatten().cloned());
            return wrong;
        }
        let mut about = Vec::new();
        for check in body["checks"].as_array().unwrap() {
            let id = text(&check["resource"]["id"]);
            about.push(id.clone());
            let verdict = text(&check["verdict"]);
            if verdict == "mismatch" && !ledger.vandalised.contains(&id) {
                wrong.push(format!("{id} is there, and was found to differ"));
            }
            if self.left.get(&id).is_none_or(|(_, attempt)| *attempt == self.attempt) {
                wrong.push(format!("{id} is of this attempt, and was looked at"));
            }
            let goes_on = verdict == "ok" || body["mode"] == "warn";
            if goes_on && !self.looked.insert(id.clone()) && verdict == "ok" {
                wrong.push(format!("{id} was looked at twice in one attempt"));
            }
        }
        self.about.insert(id_of(entry), about);
        wrong
    }

    /// What a step uses although nobody has looked.
    fn used_unseen(&self, step: &str) -> Vec<String> {
        let mut before = BTreeSet::new();
        let mut left = vec![node(step).to_owned()];
        while let Some(node) = left.pop() {
            for need in self.needs.get(&node).into_iter().flatten() {
                if before.insert(need.clone()) {
                    left.push(need.clone());
                }
            }
        }
        let unseen = self.left.iter().filter(|(id, (by, attempt))| {
            *attempt < self.attempt
                && before.contains(node(by))
                && !self.looked.contains(*id)
                && !self.let_be.contains(*id)
        });
        unseen.map(|(id, (by, _))| format!("`{step}` uses {id} of `{by}` unseen")).collect()
    }
}

pub(crate) fn node(step: &str) -> &str {
    step.split('/').next().unwrap_or(step)
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// The id of an entry: the hash of its canonical bytes.
pub(crate) fn id_of(entry: &Value) -> String {
    let canon = gesta_core::json::Canon::of(entry).unwrap();
    gesta_core::digest::Digest::of(canon.as_bytes()).to_string()
}
