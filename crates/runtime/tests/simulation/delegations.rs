//! The auditor's eye on families and budgets: no child has more than was carved out for it, what it used
//! is not used again above it, its parent got exactly its answer, what stops a parent reaches it, and
//! tenants stay within their accounts.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::digest::Digest;
use gesta_core::json::Canon;
use gesta_store::AccountRow;
use serde_json::{Value, json};

use crate::confirmation::{id_of, node, text};
use crate::outside::Ledger;

/// Chains by the names of their trajectories.
pub(crate) type Chains = BTreeMap<String, Vec<Value>>;

/// What is wrong between the chains, with the trajectory that it is about.
pub(crate) fn audit(chains: &Chains) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    for (id, chain) in chains {
        let mut tell = |what: String| wrong.push((id.clone(), what));
        spending(chains, chain).into_iter().for_each(&mut tell);
        answers(chain).into_iter().for_each(&mut tell);
        for entry in of_kind(chain, "delegation") {
            child(chains, id, chain, entry).into_iter().for_each(&mut tell);
        }
        let root = &chain[0]["body"]["purpose"]["job"];
        let above = chains.get(&text(&root["delegated_by"]["trajectory"]));
        let delegation = &root["delegated_by"]["delegation"];
        let handed = above.is_none_or(|above| {
            let delegations = of_kind(above, "delegation");
            delegations.filter(|entry| json!(id_of(entry)) == *delegation).count() == 1
        });
        if !handed {
            tell("nobody has delegated to it".to_owned());
        }
    }
    wrong
}

fn of_kind<'a>(chain: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    chain.iter().filter(move |entry| entry["kind"] == kind)
}

fn writ(chain: &[Value]) -> &Value {
    let writs = chain[0]["body"]["purpose"]["job"]["writs"].as_array().unwrap();
    &writs.last().unwrap()["doc"]
}

/// How each entry changes how many calls a trajectory has made, those of unknown end included. What
/// arrives late is not counted: nobody could have known.
fn calls(chain: &[Value]) -> impl Iterator<Item = (&Value, i64)> {
    // An undo that was refused is denied too, and no call was made.
    let doubts: BTreeSet<String> = of_kind(chain, "in_doubt").map(id_of).collect();
    chain.iter().map(move |entry| {
        let (body, statement) = (&entry["body"], &entry["body"]["statement"]["doc"]);
        let change = match entry["kind"].as_str().unwrap() {
            "started" => 1,
            "failure" if body["certainty"] == "did_not_happen" && !body["started"].is_null() => -1,
            "resolution" if statement["verdict"] == "did_not_happen" => {
                -i64::from(doubts.contains(&text(&statement["doubt"])))
            }
            _ => 0,
        };
        (entry, change)
    })
}

/// What a trajectory and all below it have used in the end.
fn used(chains: &Chains, chain: &[Value]) -> i64 {
    let own: i64 = calls(chain).map(|(_, change)| change).sum();
    let below = of_kind(chain, "delegation").filter_map(|entry| chains.get(&child_of(entry)));
    own + below.map(|child| used(chains, child)).sum::<i64>()
}

fn child_of(entry: &Value) -> String {
    text(&entry["body"]["child"])
}

/// Entry by entry: what was used, and what children have in hand, is never more than the writ allows.
fn spending(chains: &Chains, chain: &[Value]) -> Vec<String> {
    let Some(limit) = writ(chain)["budget"]["calls"].as_i64() else { return Vec::new() };
    let (mut own, mut carved) = (0, BTreeMap::new());
    for (entry, change) in calls(chain) {
        own += change;
        match entry["kind"].as_str().unwrap() {
            "delegation" => {
                let budget = &entry["body"]["writ"]["doc"]["budget"];
                carved.insert(child_of(entry), budget["calls"].as_i64().unwrap());
            }
            "delegation_result" => {
                let child = child_of(entry);
                own += chains.get(&child).map_or(0, |chain| used(chains, chain));
                carved.remove(&child);
            }
            _ => {}
        }
        let in_hand: i64 = carved.values().sum();
        if own + in_hand > limit {
            let seq = &entry["seq"];
            return vec![format!(
                "with entry {seq} it has used {own} calls, and children have {in_hand} in hand, of {limit}"
            )];
        }
    }
    Vec::new()
}

/// What the plan says of a step that delegates.
fn says<'a>(chain: &'a [Value], step: &str) -> &'a Value {
    let plan = of_kind(chain, "plan").next().unwrap();
    let steps = plan["body"]["steps"].as_array().unwrap();
    let work = &steps.iter().find(|one| one["id"] == node(step)).unwrap()["spec"]["work"];
    if work["delegate"].is_null() { &work["delegates"]["delegate"] } else { &work["delegate"] }
}

/// What is wrong between a delegation and the child.
fn child(chains: &Chains, parent: &str, above: &[Value], entry: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let (id, body) = (child_of(entry), &entry["body"]);
    let step = text(&body["step"]);
    let Some(chain) = chains.get(&id) else { return vec![format!("`{step}` has no child")] };
    let mut check = |holds: bool, what: &str| {
        if !holds {
            wrong.push(format!("`{step}` and its child {id}: {what}"));
        }
    };
    let root = &chain[0]["body"]["purpose"]["job"];
    let by = json!({ "delegation": id_of(entry), "trajectory": parent });
    check(root["delegated_by"] == by, "it was begun by something else");
    check(*writ(chain) == body["writ"]["doc"], "it has another writ");
    check(root["input"] == body["task"]["input"], "it was given something else");
    let plan = of_kind(chain, "plan").next().map(|plan| Canon::of(&plan["body"]).unwrap());
    let plan = plan.map(|plan| json!(Digest::of(plan.as_bytes()).to_string()));
    check(plan.as_ref() == Some(&body["task"]["plan"]), "it has another plan");
    check(writ(chain)["depth"].as_u64() < writ(above)["depth"].as_u64(), "it may delegate as deep");
    if let Some(said) = says(above, &step)["budget"]["calls"].as_i64() {
        check(used(chains, chain) <= said, "it has used more than was carved out for it");
    }
    let results: Vec<_> =
        of_kind(above, "delegation_result").filter(|result| child_of(result) == id).collect();
    check(results.len() == 1, "its end is told as often as not");
    let end = chain.iter().find(|entry| {
        ["completed", "failed", "cancelled"].contains(&entry["kind"].as_str().unwrap())
    });
    if let (Some(end), [result]) = (end, results.as_slice()) {
        let told = &result["body"];
        check(told["end"] == end["kind"], "it is told to have ended otherwise");
        check(told["head"]["id"] == json!(id_of(end)), "another end is told of it");
        if end["kind"] == "completed" {
            check(told["answer"] == end["body"]["answer"], "it answered something else");
        }
        let late = chain.iter().filter(|entry| entry["kind"] == "late_effect");
        let spent = used(chains, chain);
        let told = told["spent"]["calls"].as_i64().unwrap_or(0);
        check(late.count() > 0 || told >= spent, "less is told than it has used");
    }
    for told in of_kind(above, "delivered").filter(|entry| entry["body"]["to"] == *id) {
        if told["body"]["what"] == "cancel" {
            let by_then =
                |entry: &&Value| entry["seq"].as_u64() <= told["body"]["head"]["seq"].as_u64();
            let asked = of_kind(chain, "cancel_requested").find(by_then);
            let over = end.filter(|end| by_then(end)).is_some();
            check(asked.is_some() || over, "it was not asked to stop");
            let from_above =
                asked.filter(|asked| text(&asked["body"]["reason"]).starts_with("its parent"));
            let undoes = from_above.is_none_or(|asked| asked["body"]["compensate"] == true);
            let undone = undoes_by(above, told);
            check(undoes || !undone, "its parent undid what it did, and it was not asked to");
        }
    }
    wrong
}

/// Whether it was clear when an entry was written that a job would be undone: whatever stopped it.
fn undoes_by(chain: &[Value], entry: &Value) -> bool {
    let before = chain.iter().filter(|other| other["seq"].as_u64() < entry["seq"].as_u64());
    let mut cancelled = before.filter(|other| other["kind"] == "cancel_requested");
    let mut plan =
        of_kind(chain, "plan").flat_map(|plan| plan["body"]["steps"].as_array().unwrap());
    plan.any(|step| step["spec"]["job"]["on_failure"] == "compensate")
        && cancelled.all(|cancelled| cancelled["body"]["compensate"] == true)
}

/// A job that says nothing else answers with the results of its last steps: those of children are what
/// the children answered.
fn answers(chain: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(completed) = of_kind(chain, "completed").next() else { return wrong };
    let answer = completed["body"]["answer"]["inline"].as_object();
    for (step, found) in answer.into_iter().flatten() {
        let of_step = |entry: &&Value| node(entry["body"]["step"].as_str().unwrap()) == step;
        let mut results: Vec<&Value> =
            of_kind(chain, "delegation_result").filter(of_step).collect();
        results.sort_by_key(|result| text(&result["body"]["step"]));
        let told: Vec<&Value> =
            results.iter().map(|result| &result["body"]["answer"]["inline"]).collect();
        let fits = match told.as_slice() {
            [] => true,
            [only] if results[0]["body"]["step"] == **step => *only == found,
            all => json!(all) == *found,
        };
        if !fits {
            wrong.push(format!("`{step}` came to {found}, and children answered {told:?}"));
        }
    }
    wrong
}

/// A tenant that has used more than it may, or whose account counts less than it has used.
pub(crate) fn accounts(limit: Option<u64>, rows: &[AccountRow], ledger: &Ledger) -> Vec<String> {
    let Some(limit) = limit else { return Vec::new() };
    let drawn: u64 = rows.iter().map(|row| row.drawn.calls).sum();
    let used = ledger.used;
    let mut wrong = Vec::new();
    if used > limit || drawn > limit {
        wrong.push(format!("of {limit} calls {used} were made, and {drawn} drawn"));
    }
    if drawn < used {
        wrong.push(format!("{used} calls were made, and the account counts {drawn}"));
    }
    wrong
}
