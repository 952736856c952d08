//! A driver: a process that runs steps and says so, a line at a time, as `bench/peers/steps.py` describes.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// How long one process of a driver may take, all in all.
const LIMIT: Duration = Duration::from_secs(120);
/// How much of what it complained of is repeated.
const COMPLAINT_LINES: usize = 4;

/// A running driver, with everything that it has started. Dropped, all of it is killed; should this process
/// die instead, the end of its standard input tells the driver.
pub(crate) struct Driver {
    child: Child,
    lines: Receiver<(Instant, String)>,
    errors: PathBuf,
    pub(crate) begun: Instant,
}

impl Driver {
    /// Starts it. What it complains of goes into a file of the place.
    pub(crate) fn start(mut command: Command, place: &Path) -> Result<Self> {
        let errors = place.join("errors");
        let begun = Instant::now();
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?)
            .spawn()
            .with_context(|| format!("cannot start `{}`", command.get_program().display()))?;
        let out = child.stdout.take().context("no standard output")?;
        let (said, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _nobody_waits = said.send((Instant::now(), line));
            }
        });
        Ok(Self { child, lines, errors, begun })
    }

    /// Waits for a line that begins with the word; when it came, and what follows the word. Libraries print too.
    pub(crate) fn wait_for(&self, word: &str) -> Result<(Instant, String)> {
        loop {
            let left = LIMIT.saturating_sub(self.begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok((at, line)) => {
                    let mut words = line.split_whitespace();
                    if words.next() == Some(word) {
                        return Ok((at, words.collect::<Vec<_>>().join(" ")));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("not `{word}` within {} s", LIMIT.as_secs());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it ended before `{word}`: {}", self.complaint());
                }
            }
        }
    }

    /// Lets it begin.
    pub(crate) fn go(&mut self) -> Result<()> {
        use std::io::Write as _;
        let input = self.child.stdin.as_mut().context("no standard input")?;
        input.write_all(b"\n")?;
        Ok(input.flush()?)
    }

    /// SIGKILL, for it and for everything that it has started.
    pub(crate) fn kill(self) {
        drop(self);
    }

    fn complaint(&self) -> String {
        let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.len().saturating_sub(COMPLAINT_LINES);
        lines.get(last..).unwrap_or_default().join(" / ")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _it_may_be_dead = kill_process_group(group, Signal::KILL);
        }
        let _it_is_waited_for = self.child.wait();
    }
}
