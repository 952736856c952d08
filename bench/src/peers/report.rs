//! What was measured, as tables.

use std::fmt;

use super::{ABSENT, Contender, KILLED_IN, Keeps, LOADS};
use crate::table::median;

/// What the machine itself can do, a second.
#[derive(Default)]
pub(super) struct Limits<T> {
    pub(super) sync: T,
    pub(super) sqlite: T,
    pub(super) postgres: T,
    pub(super) postgres_many: T,
}

impl Limits<Vec<f64>> {
    pub(super) fn add(&mut self, one: &Limits<f64>) {
        self.sync.push(one.sync);
        self.sqlite.push(one.sqlite);
        self.postgres.push(one.postgres);
        self.postgres_many.push(one.postgres_many);
    }

    fn median(&self) -> Limits<f64> {
        let of = |figures: &Vec<f64>| median(figures.clone());
        Limits {
            sync: of(&self.sync),
            sqlite: of(&self.sqlite),
            postgres: of(&self.postgres),
            postgres_many: of(&self.postgres_many),
        }
    }
}

/// What one contender has shown, round by round.
#[derive(Default)]
pub(super) struct Figures {
    /// Steps a second under each load.
    pub(super) rates: [Vec<f64>; LOADS.len()],
    pub(super) resumed: Vec<f64>,
    pub(super) resumed_loaded: Vec<f64>,
    /// Why there is no more of it.
    pub(super) failed: Option<String>,
}

pub(super) struct Report {
    pub(super) limits: Limits<Vec<f64>>,
    pub(super) figures: Vec<(Contender, Figures)>,
}

impl Report {
    pub(super) fn new(contenders: &[Contender]) -> Self {
        let figures = contenders.iter().map(|it| (*it, Figures::default())).collect();
        Self { limits: Limits::default(), figures }
    }

    /// How many times the fastest other one on the same kind of store Gesta is, under each load.
    fn against_peers(&self, keeps: Keeps) -> Option<[f64; LOADS.len()]> {
        let on_it = || self.figures.iter().filter(|(it, _)| it.keeps == keeps);
        let (_, gesta) = on_it().find(|(it, _)| it.is_gesta())?;
        let others: Vec<&Figures> =
            on_it().filter(|(it, _)| !it.is_gesta()).map(|(_, figures)| figures).collect();
        if others.is_empty() {
            return None;
        }
        let ratio = |load: usize| {
            let of = |it: &Figures| it.rates.get(load).map_or(f64::NAN, |of| median(of.clone()));
            of(gesta) / others.iter().map(|it| of(it)).fold(f64::NAN, f64::max)
        };
        Some(std::array::from_fn(ratio))
    }
}

/// A median, or that there is none.
fn shown(figures: &[f64], write: impl Fn(f64) -> String) -> String {
    if figures.is_empty() { "–".to_owned() } else { write(median(figures.to_vec())) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.limits.median();
        writeln!(f, "| limit of the machine | a second |")?;
        writeln!(f, "| --- | --- |")?;
        writeln!(f, "| 4 KiB append and fdatasync | {:.0} |", limits.sync)?;
        writeln!(f, "| bare SQLite, one row a commit | {:.0} |", limits.sqlite)?;
        writeln!(f, "| bare PostgreSQL, one row a commit, 1 client | {:.0} |", limits.postgres)?;
        writeln!(f, "| the same, 64 clients | {:.0} |\n", limits.postgres_many)?;

        write!(f, "| steps a second |")?;
        for (jobs, steps) in LOADS {
            let jobs = if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") };
            write!(f, " {jobs} × {steps} |")?;
        }
        writeln!(
            f,
            " 1 job, of the bare commit rate | resumed in step {KILLED_IN}, ms (loaded) |"
        )?;
        writeln!(f, "| --- |{} --- | --- |", " --- |".repeat(LOADS.len()))?;
        for (contender, figures) in &self.figures {
            write!(f, "| {} |", contender.name)?;
            for rates in &figures.rates {
                write!(f, " {} |", shown(rates, |rate| format!("{rate:.0}")))?;
            }
            let bare = match contender.keeps {
                Keeps::Sqlite => limits.sqlite,
                Keeps::Postgres => limits.postgres,
                Keeps::Own => limits.sync,
            };
            let alone = figures.rates.first().map_or(&[][..], Vec::as_slice);
            write!(f, " {} |", shown(alone, |rate| format!("{:.2}", rate / bare)))?;
            let ms = |figures: &[f64]| shown(figures, |ms| format!("{ms:.0}"));
            writeln!(f, " {} ({}) |", ms(&figures.resumed), ms(&figures.resumed_loaded))?;
        }
        for (keeps, store) in [(Keeps::Sqlite, "SQLite"), (Keeps::Postgres, "PostgreSQL")] {
            if let Some(ratios) = self.against_peers(keeps) {
                write!(f, "| Gesta, times the best other on {store} |")?;
                for ratio in ratios {
                    write!(f, " {ratio:.1} |")?;
                }
                writeln!(f, "  |  |")?;
            }
        }
        for (contender, figures) in &self.figures {
            if let Some(why) = &figures.failed {
                writeln!(f, "\nNot measured (to the end): {}: {why}", contender.name)?;
            }
        }
        for (peer, why) in ABSENT {
            writeln!(f, "\nNot measured: {peer}: {why}")?;
        }
        Ok(())
    }
}
