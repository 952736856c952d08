//! The auditor. It knows what really happened outside, and reads the chains as JSON text; it knows
//! nothing of workers, turns or attempts, and shares no code with them.

use std::collections::BTreeMap;

use gesta_core::document::Recovery;
use serde_json::Value;

use crate::confirmation;
use crate::outside::{LIMITS, Landed, Ledger};

/// What may stand last: an end, what came after it, or that a parent has the result.
const ENDS: [&str; 5] = ["completed", "failed", "cancelled", "late_effect", "delivered"];

/// How a step ended, as its chain tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Happened,
    Skipped,
    DidNotHappen,
    GivenUp,
}

/// Compares one chain with what really happened. Returns what is wrong.
pub(crate) fn audit(trajectory: &str, chain: &[Value], ledger: &Ledger) -> Vec<String> {
    let mut wrong = Vec::new();
    let told = told(chain);
    let mut effects: BTreeMap<&str, Vec<&Landed>> = BTreeMap::new();
    for landed in &ledger.landed {
        if landed.trajectory.to_string() == trajectory {
            effects.entry(landed.step.as_str()).or_default().push(landed);
        }
    }
    for (step, landed) in &effects {
        let safe = landed.iter().all(|landed| landed.class == Recovery::Safe);
        if landed.len() > 1 && !safe {
            let keys: Vec<_> = landed.iter().map(|landed| &landed.key).collect();
            wrong.push(format!("step `{step}` happened {} times: {keys:?}", landed.len()));
        }
    }
    for (step, told) in &told {
        let happened = effects.get(step.as_str()).map_or(0, Vec::len);
        let agrees = match told {
            Told::Happened => happened >= 1,
            Told::Skipped => happened == 0,
            Told::DidNotHappen => happened == 0 || lately(chain, step) >= happened,
            Told::GivenUp => true,
        };
        if !agrees {
            wrong.push(format!("step `{step}` is told as {told:?}, but happened {happened} times"));
        }
    }
    for (key, sent) in &ledger.sent {
        let started = chain.iter().filter(|entry| entry["kind"] == "started").count() as u64;
        let ours =
            ledger.landed.iter().any(|l| &l.key == key && l.trajectory.to_string() == trajectory);
        if ours && *sent > started {
            wrong.push(format!(
                "key {key} was sent {sent} times, with {started} permissions in all"
            ));
        }
    }
    wrong.extend(lacking(chain));
    wrong.extend(undos(chain, &effects, ledger));
    wrong.extend(confirmation::confirmations(chain, ledger));
    match chain.last().map(|entry| entry["kind"].as_str().unwrap_or_default().to_owned()) {
        Some(kind) if ENDS.contains(&&*kind) => {}
        other => wrong.push(format!("it has not ended: {other:?}")),
    }
    wrong
}

/// Tools that had more calls under way at once than they allow.
pub(crate) fn crowded(ledger: &Ledger) -> Vec<String> {
    let mut wrong = Vec::new();
    for (tool, limit) in LIMITS {
        let calls: Vec<_> = ledger.busy.iter().filter(|busy| busy.tool == tool).collect();
        for call in &calls {
            let at_once = calls.iter().filter(|o| o.from <= call.from && call.from < o.to).count();
            if at_once > limit as usize {
                wrong.push(format!(
                    "{at_once} calls of `{tool}` at once, where {limit} are allowed"
                ));
                break;
            }
        }
    }
    wrong
}

/// Calls that were refused for want of a tool. Some worker has each tool of these jobs.
fn lacking(chain: &[Value]) -> Vec<String> {
    let refused = chain.iter().filter(|entry| entry["kind"] == "rejection");
    let decisions = refused.map(|entry| &entry["body"]["decision"]["doc"]);
    decisions
        .filter(|decision| decision["reason"] == "unknown_tool")
        .map(|decision| format!("{} was decided by a worker without its tool", decision["step"]))
        .collect()
}

/// How each step that a tool was called for ended.
fn told(chain: &[Value]) -> BTreeMap<String, Told> {
    let mut told = BTreeMap::new();
    for entry in chain {
        let body = &entry["body"];
        let step = body["step"].as_str().map(str::to_owned);
        match (entry["kind"].as_str().unwrap_or_default(), step) {
            ("commit", Some(step)) => match &body["origin"] {
                Value::Object(origin) if origin.contains_key("effect") => {
                    told.insert(step, Told::Happened);
                }
                origin if origin == "skipped" => {
                    told.insert(step, Told::Skipped);
                }
                _ => {}
            },
            ("failure", Some(step)) if body["outcome"] == "permanent_failure" => {
                let how = match body["certainty"].as_str() {
                    Some("did_not_happen") => Told::DidNotHappen,
                    Some("happened") => Told::Happened,
                    _ => Told::GivenUp,
                };
                told.insert(step, how);
            }
            ("resolution", Some(step)) => match &body["statement"]["doc"]["verdict"] {
                Value::Object(_) => {
                    told.insert(step, Told::Happened);
                }
                verdict if verdict == "give_up" => {
                    told.insert(step, Told::GivenUp);
                }
                _ => {}
            },
            _ => {}
        }
    }
    told
}

/// Whether a child that has come to something may have done something. All tools of these jobs act.
fn child_acted(chain: &[Value], result: &Value) -> bool {
    let body = &result["body"];
    let of_child =
        |entry: &&Value| entry["kind"] == "delegation" && entry["body"]["child"] == body["child"];
    let returns =
        chain.iter().find(of_child).is_some_and(|it| it["body"]["on_failure"] == "return");
    (body["end"] == "completed" || returns) && body["spent"]["calls"].as_u64() > Some(0)
}

/// How many effects of a step the chain knows as late.
fn lately(chain: &[Value], step: &str) -> usize {
    chain
        .iter()
        .filter(|entry| entry["kind"] == "late_effect" && entry["body"]["step"] == step)
        .count()
}

/// What is wrong with a rollback: what was undone without having been done, in the wrong order, or
/// forgotten.
fn undos(chain: &[Value], effects: &BTreeMap<&str, Vec<&Landed>>, ledger: &Ledger) -> Vec<String> {
    let mut wrong = Vec::new();
    for landed in effects.values().flatten() {
        let Some(undone) = &landed.undoes else { continue };
        let at = |key: &str| ledger.landed.iter().position(|landed| landed.key == key);
        if at(undone).is_none_or(|done| Some(done) > at(&landed.key)) {
            wrong.push(format!("`{}` undid what had not happened", landed.step));
        }
    }
    let kind = |kind: &'static str| chain.iter().filter(move |entry| entry["kind"] == kind);
    let rollback = kind("compensation").next();
    let asked = kind("cancel_requested").any(|entry| entry["body"]["compensate"] == true);
    let answer = kind("plan").flat_map(|entry| entry["body"]["steps"].as_array().unwrap());
    let says_so = answer.clone().any(|step| step["spec"]["job"]["on_failure"] == "compensate");
    let failed = kind("failed").any(|entry| entry["body"]["error"]["code"] != "poison");
    let Some(rollback) = rollback else {
        if asked || says_so && failed {
            wrong.push("it was to be undone, and was not".to_owned());
        }
        return wrong;
    };
    let listed: Vec<&str> = rollback["body"]["undo"]
        .as_array()
        .unwrap()
        .iter()
        .map(|undo| undo["step"].as_str().unwrap())
        .collect();
    // Every step of these jobs that does something can be undone.
    let mut done: Vec<&str> = Vec::new();
    for entry in chain.iter().filter(|entry| entry["seq"].as_u64() < rollback["seq"].as_u64()) {
        let body = &entry["body"];
        let committed = entry["kind"] == "commit" && body["outcome"] == "side_effect_committed"
            || entry["kind"] == "resolution" && body["statement"]["doc"]["verdict"].is_object()
            || entry["kind"] == "delegation_result" && child_acted(chain, entry);
        if committed {
            done.push(body["step"].as_str().unwrap());
        }
    }
    done.reverse();
    if listed != done {
        wrong.push(format!("{done:?} was done, newest first, and {listed:?} was to be undone"));
    }
    let told = told(chain);
    let undone: Vec<&str> = kind("commit")
        .filter(|entry| entry["body"]["outcome"] == "compensated")
        .map(|entry| entry["body"]["step"].as_str().unwrap())
        .collect();
    for step in &listed {
        match told.get(&format!("{step}/undo")) {
            Some(Told::Happened | Told::GivenUp) => {}
            other => wrong.push(format!("the undo of `{step}` was forgotten: {other:?}")),
        }
    }
    let in_order = listed.iter().map(|step| format!("{step}/undo"));
    let in_order: Vec<String> = in_order.filter(|undo| undone.contains(&undo.as_str())).collect();
    if in_order != undone {
        wrong.push(format!("undone in the order {undone:?}, not {in_order:?}"));
    }
    wrong
}
