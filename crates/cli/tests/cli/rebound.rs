//! Genuine decisions, permits, approvals and writs that are edited, put elsewhere, used again or used too late, by
//! whoever can write to the store: a live worker refuses each with its code, and sends nothing for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::forged::{ILLEGAL, asking, parked, refused, refused_as, rewrite, submitted, world};
use crate::world::World;

/// A workspace in which somebody may approve.
fn with_alice() -> World {
    let world = world();
    world.gesta(&["keys", "add", "alice", "--roles", "approver"]).ok();
    world
}

fn say(world: &World, word: &str, id: &str) {
    world.gesta(&[word, id, "--as", "alice"]).ok();
}

/// The lines of a trajectory, as they are.
fn lines(world: &World, id: &str) -> Vec<Value> {
    let mut found = Vec::new();
    rewrite(world, id, |lines| found.clone_from(lines));
    found
}

fn approval(lines: &[Value]) -> usize {
    lines.iter().position(|line| line["kind"] == "approval").unwrap()
}

/// Somebody has said this word, and it is changed afterwards.
#[track_caller]
fn edited(word: &str, pointer: &str, change: fn(&mut Value)) {
    let world = with_alice();
    let id = asking(&world);
    say(&world, word, &id);
    rewrite(&world, &id, |lines| {
        let at = approval(lines);
        change(lines[at]["body"]["statement"]["doc"].pointer_mut(pointer).unwrap());
    });
    refused(&world, &id, "signature", 3, 0);
}

#[test]
fn an_approval_whose_end_was_put_off_is_refused() {
    edited("approve", "/expires", |value| *value = (value.as_u64().unwrap() + 1).into());
}

#[test]
fn a_no_that_was_made_a_yes_is_refused() {
    edited("deny", "/verdict", |value| *value = json!("approve"));
}

/// Two jobs ask the same; one of them is approved, and will be done.
fn one_of_two() -> (World, String, Value) {
    let world = with_alice();
    let (first, second) = (asking(&world), asking(&world));
    say(&world, "approve", &first);
    let lines = lines(&world, &first);
    (world, second, lines[approval(&lines)].clone())
}

#[test]
fn an_approval_of_another_call_is_refused() {
    let (world, id, swapped) = one_of_two();
    rewrite(&world, &id, |lines| lines.push(swapped));
    refused(&world, &id, "illegal", 3, 1);
}

#[test]
fn an_approval_that_was_bound_to_another_call_is_refused() {
    let (world, id, mut rebound) = one_of_two();
    let asks = world.gesta(&["log", &id, "--json"]).json_lines();
    let asks = asks.iter().find(|line| line["entry"]["kind"] == "pending_approval").unwrap();
    rebound["body"]["statement"]["doc"]["pending"] = asks["id"].clone();
    rewrite(&world, &id, |lines| lines.push(rebound));
    refused(&world, &id, "signature", 3, 1);
}

#[test]
fn an_approval_that_was_used_is_refused() {
    let world = with_alice();
    let id = asking(&world);
    say(&world, "approve", &id);
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.files("marks"), 1);
    rewrite(&world, &id, |lines| {
        let again = lines[approval(lines)].clone();
        lines.push(again);
    });
    refused(&world, &id, "illegal", 3, 1);
}

/// Nobody comes before it has run out: it is asked for again.
#[test]
fn an_approval_that_has_run_out_is_asked_for_again() {
    let world = with_alice();
    let id = asking(&world);
    world.gesta(&["approve", &id, "--as", "alice", "--for", "1s"]).ok();
    let lines = lines(&world, &id);
    let ends = &lines[approval(&lines)]["body"]["statement"]["doc"]["expires"];
    let ends = UNIX_EPOCH + Duration::from_millis(ends.as_u64().unwrap());
    while SystemTime::now() <= ends {
        std::thread::yield_now();
    }
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.files("marks"), 0);
    assert_eq!(world.bodies(&id, "pending_approval").len(), 2);
    world.gesta(&["verify", &id]).ok();
}

/// A job whose worker died in its call, and the `started` of another whose call is over.
fn cut_short() -> (World, String, Value) {
    let world = world();
    let over = lines(&world, &parked(&world));
    let over = over.iter().find(|line| line["kind"] == "started").unwrap().clone();
    let id = submitted(&world);
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.files("marks"), 2);
    rewrite(&world, &id, |lines| {
        let at = lines.iter().position(|line| line["kind"] == "started").unwrap();
        lines.truncate(at + 1);
    });
    // What is remembered outside knows better.
    std::fs::remove_file(world.path("gesta.db.anchor")).unwrap();
    (world, id, over)
}

/// The `started` that such a job ends with is changed, and nothing is sent for it.
#[track_caller]
fn refused_once_changed(code: &str, exit: i32, change: impl FnOnce(&mut Value, Value)) {
    let (world, id, over) = cut_short();
    rewrite(&world, &id, |lines| change(lines.last_mut().unwrap(), over));
    refused(&world, &id, code, exit, 2);
}

/// What the others are measured by: as it is, its call is safe to make again, and is.
#[test]
fn a_call_that_was_cut_short_is_made_again() {
    let (world, id, _) = cut_short();
    world.gesta(&["verify", &id]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    world.gesta(&["resume", &id]).ok();
    assert_eq!(world.files("marks"), 3);
}

#[test]
fn a_decision_on_another_call_is_refused() {
    refused_once_changed("illegal", 3, |started, over| {
        started["body"]["decision"] = over["body"]["decision"].clone();
    });
}

#[test]
fn a_decision_that_was_bound_to_another_call_is_refused() {
    refused_once_changed("signature", 3, |started, over| {
        started["body"]["decision"]["sig"] = over["body"]["decision"]["sig"].clone();
    });
}

/// Decided on a head that has moved since: a decision is good for nothing after that.
#[test]
fn a_decision_that_was_overtaken_is_refused() {
    let (world, id, _) = cut_short();
    let mut late = Vec::new();
    rewrite(&world, &id, |lines| late.extend(lines.pop()));
    world.gesta(&["signal", &id, "go"]).ok();
    rewrite(&world, &id, |lines| lines.append(&mut late));
    refused(&world, &id, "illegal", 3, 2);
}

#[test]
fn a_permit_for_another_call_is_refused() {
    refused_once_changed("illegal", 3, |started, over| {
        started["body"]["permit"] = over["body"]["permit"].clone();
    });
}

#[test]
fn a_permit_that_has_run_out_is_refused() {
    refused_once_changed("illegal", 3, |started, _| {
        let until = started["body"]["permit"]["doc"]["dispatch_by"].as_u64().unwrap();
        started["at"] = (until + 1).into();
    });
}

/// The writs of a job, and what a worker makes of it: the Guardian refuses it, and the verifier names the code.
#[track_caller]
fn without_authority(world: &World, id: &str) {
    let verified = world.gesta(&["verify", id]).expect(3);
    assert!(verified.out.contains("(signature)"), "{}", verified.out);
    world.gesta(&["worker", "--once"]);
    assert_eq!(world.files("marks"), 0, "nothing was sent for it");
    let refused = &world.bodies(id, "rejection")[0]["decision"]["doc"];
    assert_eq!(refused["reason"], "invalid_authority", "{refused}");
}

fn writs(lines: &mut [Value]) -> &mut Vec<Value> {
    lines[0]["body"]["purpose"]["job"]["writs"].as_array_mut().unwrap()
}

/// What is allowed is widened in the writ of the job.
#[test]
fn an_edited_writ_is_refused() {
    let world = world();
    let id = submitted(&world);
    rewrite(&world, &id, |lines| {
        writs(lines).last_mut().unwrap()["doc"]["tools"] = json!(["*"]);
    });
    without_authority(&world, &id);
}

/// The same in the one above it: the writ of the job names another then.
#[test]
fn an_edited_writ_above_is_refused() {
    let world = world();
    let id = submitted(&world);
    rewrite(&world, &id, |lines| writs(lines)[0]["doc"]["depth"] = json!(200));
    refused_as(&world, &id, ("signature", ILLEGAL), 3, 0);
}

/// The writ of a job that was done roots another, as it is.
#[test]
fn a_writ_that_has_rooted_another_job_is_refused() {
    let world = world();
    let first = parked(&world);
    let used = writs(&mut lines(&world, &first)).clone();
    let id = submitted(&world);
    rewrite(&world, &id, |lines| *writs(lines) = used);
    refused(&world, &id, "illegal", 3, 1);
}

/// The same, with the name of the other job in it.
#[test]
fn a_writ_that_was_bound_to_another_job_is_refused() {
    let world = world();
    let first = submitted(&world);
    let mut used = writs(&mut lines(&world, &first)).clone();
    world.gesta(&["cancel", &first]).ok();
    let id = submitted(&world);
    used.last_mut().unwrap()["doc"]["trajectory"] = json!(id);
    rewrite(&world, &id, |lines| *writs(lines) = used);
    without_authority(&world, &id);
}
