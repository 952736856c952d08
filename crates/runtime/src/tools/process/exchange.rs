//! The worker's side: builds the request, starts the supervisor, and makes a reply of its report.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use gesta_core::writ::Effect;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::message::{Bytes, Ended, Report, Request, Why, frame};
use super::{BadProcess, ProcessDeclaration, ProcessOptions, program};
use crate::tools::code;
use crate::tools::driver::{Call, Reply};
use crate::tools::manifest::Manifest;
use crate::tools::secrets::{Mask, Secrets, Transport};
use crate::tools::verdict::{Verdict, failing};

/// How much of the end of the standard error is told.
pub(super) const STDERR_TAIL: usize = 4 << 10;
/// By `sysexits.h`: the user may try again later.
const EX_TEMPFAIL: i32 = 75;

/// A tool that is a program.
#[derive(Clone)]
pub(in crate::tools) struct Process {
    tool: String,
    effect: Effect,
    program: String,
    args: Vec<String>,
    declaration: ProcessDeclaration,
    base_dir: Arc<PathBuf>,
    options: ProcessOptions,
}

impl Process {
    pub(in crate::tools) fn new(
        declaration: &ProcessDeclaration,
        manifest: &Manifest,
        base_dir: &Arc<PathBuf>,
        options: Option<&ProcessOptions>,
    ) -> Result<Self, BadProcess> {
        let (program, args) = declaration.checked(&manifest.secrets)?;
        let options = options.filter(|options| !options.supervisor.is_empty());
        Ok(Self {
            tool: manifest.name.to_string(),
            effect: manifest.effect,
            program,
            args,
            declaration: declaration.clone(),
            base_dir: Arc::clone(base_dir),
            options: options.cloned().ok_or(BadProcess::NoSupervisor)?,
        })
    }

    /// The same with one more argument.
    pub(in crate::tools) fn with_argument(&self, argument: &str) -> Self {
        let mut longer = self.clone();
        longer.args.push(argument.to_owned());
        longer
    }
}

#[async_trait]
impl Transport for Process {
    async fn send(&self, call: Call, secrets: Arc<Secrets>, mask: &Mask) -> Reply {
        let not_started = |why: String| {
            let message = format!("`{}` was not started: {why}", self.program);
            Verdict::DidNotHappen.failed(code::TOOL_NOT_STARTED, message)
        };
        let request = match self.request(&call, &secrets, mask) {
            Ok(request) => request,
            Err(why) => return not_started(why),
        };
        let supervisor = match start_supervisor(&self.options, Stdio::null()) {
            Ok(supervisor) => supervisor,
            Err(error) => return not_started(format!("its supervisor cannot be run: {error}")),
        };
        // If this future is dropped, the supervisor's standard input closes, and it ends the program.
        match timeout_at(call.deadline, exchange(supervisor, &request, self.max_report(mask))).await
        {
            Ok(Ok(Report::NotStarted { why })) => not_started(why),
            Ok(Ok(Report::Ended(ended))) => self.judge(&ended, mask),
            Ok(Err(error)) => {
                let message =
                    format!("the supervisor of `{}` gave no report: {error}", self.program);
                Verdict::Unknown.failed(code::REPLY_LOST, message)
            }
            Err(_) => self.late(),
        }
    }
}

impl Process {
    fn request(
        &self,
        call: &Call,
        secrets: &Secrets,
        mask: &Mask,
    ) -> Result<Zeroizing<Vec<u8>>, String> {
        let cwd = self.declaration.directory(&self.base_dir);
        let path = |path: &Path| Bytes::from(path.as_os_str());
        let request = Request {
            program: path(&program::find(&self.program, &self.base_dir)?),
            args: self.args.iter().map(|arg| arg.as_bytes().into()).collect(),
            cwd: path(&program::absolute(&cwd)?),
            env: self.environment(call, secrets),
            input: Bytes::from([call.args.as_bytes(), b"\n"].concat().as_slice()),
            deadline_ms: supervisors_deadline_ms(call.deadline),
            max_output: self.declaration.max_output.bytes(),
            keep_stderr: STDERR_TAIL + mask.margin(),
            serves: false,
        };
        frame(&request).map_err(|error| error.to_string())
    }

    /// What is declared, and nothing else.
    fn environment(&self, call: &Call, secrets: &Secrets) -> Vec<(Bytes, Bytes)> {
        let Call { trajectory, step, attempt, key, .. } = call;
        let ours = [
            ("GESTA_KEY", key.clone()),
            ("GESTA_TRAJECTORY", trajectory.to_string()),
            ("GESTA_STEP", step.to_string()),
            ("GESTA_ATTEMPT", attempt.to_string()),
            ("GESTA_TOOL", self.tool.clone()),
        ];
        let named = |(name, value): &(&str, String)| {
            (Bytes::from(name.as_bytes()), Bytes::from(value.as_bytes()))
        };
        let declared = declared_environment(&self.declaration, secrets);
        ours.iter().map(named).chain(declared).collect()
    }

    /// Base64, its envelope, and a message about why not.
    fn max_report(&self, mask: &Mask) -> usize {
        2 * (self.declaration.max_output.bytes() + STDERR_TAIL + mask.margin()) + (64 << 10)
    }

    fn judge(&self, ended: &Ended, mask: &Mask) -> Reply {
        match ended.why {
            Why::Exited => {}
            Why::Deadline => return self.late(),
            Why::Flooded => {
                let limit = self.declaration.max_output;
                let message = format!("`{}` wrote more than {limit} and was ended", self.program);
                return self.unless_read().failed(code::OUTPUT_TOO_LARGE, message);
            }
            Why::Abandoned => {
                let message = format!("the call of `{}` was abandoned", self.program);
                return Verdict::Unknown.failed(code::REPLY_LOST, message);
            }
        }
        let (verdict, how) = match (ended.code, ended.signal) {
            (Some(code), _) => (self.verdict(code), format!("exited with code {code}")),
            (None, Some(signal)) => (self.unless_read(), format!("was ended by signal {signal}")),
            (None, None) => (self.unless_read(), "ended".to_owned()),
        };
        let code = match (verdict, ended.code) {
            (_, None) => code::TOOL_CRASHED,
            (Verdict::Retry, Some(_)) => code::TOOL_BUSY,
            (_, Some(_)) => code::TOOL_FAILED,
        };
        let said = told(ended, mask);
        let message = match said.as_str() {
            "" => format!("`{}` {how}", self.program),
            said => format!("`{}` {how}: {said}", self.program),
        };
        verdict.reply(ended.stdout.0.to_vec(), failing(code, message))
    }

    fn verdict(&self, code: i32) -> Verdict {
        match (self.declaration.exit.get(&code.to_string()), code) {
            (Some(declared), _) => *declared,
            (None, 0) => Verdict::Answered,
            (None, EX_TEMPFAIL) => Verdict::Retry,
            // By `sysexits.h`, what was asked for cannot be done. What lies between says that something
            // broke, which may have been in the middle.
            (None, 64..=69 | 77 | 78) => Verdict::DidNotHappen,
            (None, _) => self.unless_read(),
        }
    }

    /// What changes nothing has not happened unless it answers; of anything else nobody knows.
    fn unless_read(&self) -> Verdict {
        if self.effect == Effect::Read { Verdict::DidNotHappen } else { Verdict::Unknown }
    }

    fn late(&self) -> Reply {
        let message = format!("`{}` did not end before the deadline, and was ended", self.program);
        Verdict::Unknown.failed(code::DEADLINE_PASSED, message)
    }
}

/// The variables that are declared: set, passed on, and secret.
pub(super) fn declared_environment(
    declaration: &ProcessDeclaration,
    secrets: &Secrets,
) -> Vec<(Bytes, Bytes)> {
    let named = |name: &str, value: &[u8]| (name.as_bytes().into(), value.into());
    let set = declaration.set.iter().map(|(name, value)| named(name, value.as_bytes()));
    let passed = declaration.env.iter().filter_map(|name| {
        let value = std::env::var_os(name)?;
        Some((name.as_bytes().into(), Bytes::from(value.as_os_str())))
    });
    let secret = secrets.iter().map(|(name, value)| named(name.as_str(), value));
    set.chain(passed).chain(secret).collect()
}

pub(super) fn start_supervisor(options: &ProcessOptions, stderr: Stdio) -> io::Result<Child> {
    let mut command = options.supervisor.iter();
    let mut supervisor = Command::new(command.next().cloned().unwrap_or_default());
    supervisor.args(command).env_clear();
    // Out of reach of what a terminal sends to the worker's group, so that it can finish.
    supervisor.process_group(0);
    supervisor.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn()
}

/// A little before ours, so that ending the program and telling it fits in.
fn supervisors_deadline_ms(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = left.saturating_sub((left / 10).min(Duration::from_millis(250)));
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
}

async fn exchange(mut supervisor: Child, request: &[u8], max_report: usize) -> io::Result<Report> {
    let (Some(mut to), Some(mut from)) = (supervisor.stdin.take(), supervisor.stdout.take()) else {
        return Err(io::Error::other("it has no pipes"));
    };
    to.write_all(request).await?;
    to.flush().await?;
    let mut length = [0; 8];
    from.read_exact(&mut length).await?;
    let length = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > max_report {
        return Err(io::Error::other("it is longer than it can be"));
    }
    let mut report = Zeroizing::new(vec![0; length]);
    from.read_exact(&mut report).await?;
    drop(to);
    // It has nothing left to do; this only buries it.
    let _exit = supervisor.wait().await;
    Ok(serde_json::from_slice(&report)?)
}

/// The end of what it wrote to its standard error. What was cut off may have been a secret's
/// beginning, so nothing that could be its rest is told.
pub(super) fn told(ended: &Ended, mask: &Mask) -> String {
    let stderr = ended.stderr.0.as_slice();
    let unsure = if ended.stderr_cut { mask.margin() } else { 0 };
    let masked = mask.apply_from(stderr, unsure);
    let tail = masked.get(masked.len().saturating_sub(STDERR_TAIL)..).unwrap_or(&masked);
    String::from_utf8_lossy(tail).trim().to_owned()
}
