//! The table that is printed: what was measured, against what, and the goal.

use std::fmt;
use std::time::{Duration, Instant};

/// Rows of figures.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

struct Row {
    what: String,
    figure: String,
    ratio: String,
    goal: String,
}

impl Table {
    /// A limit of the machine: nothing to compare it with.
    pub(crate) fn limit(&mut self, what: &str, figure: impl Into<String>) {
        self.row(what, figure, "", "");
    }

    /// A figure as a ratio to something else of the same run.
    pub(crate) fn ratio(&mut self, what: &str, figure: impl Into<String>, ratio: f64, goal: &str) {
        self.row(what, figure, format!("{ratio:.2}"), goal);
    }

    fn row(
        &mut self,
        what: &str,
        figure: impl Into<String>,
        ratio: impl Into<String>,
        goal: impl Into<String>,
    ) {
        let row = Row {
            what: what.into(),
            figure: figure.into(),
            ratio: ratio.into(),
            goal: goal.into(),
        };
        eprintln!("{}: {} {}", row.what, row.figure, row.ratio);
        self.0.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | figure | ratio | goal |")?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for Row { what, figure, ratio, goal } in &self.0 {
            writeln!(f, "| {what} | {figure} | {ratio} | {goal} |")?;
        }
        Ok(())
    }
}

/// How long something takes.
pub(crate) fn time<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let result = run();
    (begun.elapsed(), result)
}

/// How many a second.
pub(crate) fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// A rate in words.
pub(crate) fn rate(rate: f64) -> String {
    format!("{rate:.0}/s")
}

/// The middle of several figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
