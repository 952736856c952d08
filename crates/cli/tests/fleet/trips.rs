//! How often the database is asked.

use std::time::Duration;

use crate::crew::Crew;
use crate::server::Database;

/// Transactions of a job with so many steps. Each statement of the hot path is one of its own, and
/// one round trip.
fn transactions(steps: usize, budget: Option<&str>) -> u64 {
    let database = Database::new();
    let mut crew = Crew::new(Some(&database.url()), steps, Duration::ZERO, "");
    if let Some(calls) = budget {
        crew.run(&["budget", "set", "main", "--calls", calls]);
    }
    let before = database.transactions();
    crew.submit(1);
    crew.run(&["worker", "--once"]);
    crew.all_is_well();
    database.transactions() - before
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
    let cost = transactions(many, budget) - transactions(few, budget);
    let steps = (many - few) as u64;
    eprintln!("{:.2} transactions a step", cost as f64 / steps as f64);
    assert!(cost <= 2 * steps, "{cost} transactions for {steps} steps");
    assert!(
        2 * cost >= steps,
        "the count is not believable: {cost} transactions for {steps} steps"
    );
}
