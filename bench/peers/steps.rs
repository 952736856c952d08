//! What every driver in Rust shares: what it is asked for, and how it answers. `steps.py` describes both.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

/// What is asked of a driver.
#[derive(Clone, Debug)]
pub struct Asked {
    pub mode: String,
    pub jobs: usize,
    pub steps: usize,
    pub store: String,
    pub place: PathBuf,
    pub postgres: String,
}

impl Asked {
    pub fn read() -> Self {
        // Standard input ends when whoever started this does.
        std::thread::spawn(|| {
            let _nothing_to_read = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(1);
        });
        let mut arguments = std::env::args().skip(1);
        let mut next = || arguments.next().expect("run|hang|resume JOBS STEPS");
        let variable = |name: &str| std::env::var(name).expect(name);
        Self {
            mode: next(),
            jobs: next().parse().expect("a number of jobs"),
            steps: next().parse().expect("a number of steps"),
            store: variable("STEPS_STORE"),
            place: variable("STEPS_PLACE").into(),
            postgres: variable("STEPS_POSTGRES"),
        }
    }

    /// The step: it does nothing, but for the last one of a job that is to be killed.
    pub async fn body(&self, step: usize) {
        if self.mode != "run" && step == self.steps - 1 {
            say("step");
            if self.mode == "hang" {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// A line of the answer.
pub fn say(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody listens");
}

/// How long the jobs took, and how many steps the store then shows. The end.
pub fn done(took: Duration, shown: usize) -> ! {
    say(&format!("done {} {shown}", took.as_secs_f64()));
    std::process::exit(0);
}
