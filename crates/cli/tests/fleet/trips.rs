//! How often the database is asked.

use std::time::Duration;

use crate::crew::Crew;
use crate::proxy::Proxy;
use crate::server::{Database, Server};

/// Counts what a job with so many steps costs.
type Count = fn(usize, Option<&str>) -> u64;

/// What a job with so many steps adds to a count.
fn added(url: &str, steps: usize, budget: Option<&str>, count: impl Fn() -> u64) -> u64 {
    let mut crew = Crew::new(Some(url), steps, Duration::ZERO, "");
    if let Some(calls) = budget {
        crew.run(&["budget", "set", "main", "--calls", calls]);
    }
    let before = count();
    crew.submit(1);
    crew.run(&["worker", "--once"]);
    crew.all_is_well();
    count() - before
}

fn transactions(steps: usize, budget: Option<&str>) -> u64 {
    let database = Database::new();
    added(&database.url(), steps, budget, || database.transactions())
}

fn round_trips(steps: usize, budget: Option<&str>) -> u64 {
    let server = Server::start();
    let proxy = Proxy::new(&server.socket());
    added(&proxy.url(), steps, budget, || proxy.round_trips())
}

#[test]
fn a_step_costs_at_most_two_round_trips() {
    check(None);
}

/// Slices are drawn now and then, not at every step.
#[test]
fn a_step_under_a_budget_costs_no_more() {
    check(Some("100000"));
}

fn check(budget: Option<&str>) {
    let (few, many) = (10, 110);
    let steps = (many - few) as u64;
    let counts: [(&str, Count); 2] = [("transactions", transactions), ("round trips", round_trips)];
    for (what, count) in counts {
        let cost = count(many, budget) - count(few, budget);
        eprintln!("{:.2} {what} a step", cost as f64 / steps as f64);
        assert!(cost <= 2 * steps, "{cost} {what} for {steps} steps");
        assert!(2 * cost >= steps, "the count is not believable: {cost} {what} for {steps} steps");
    }
}
