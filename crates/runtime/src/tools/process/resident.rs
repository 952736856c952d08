//! The worker's side of a server: starts it under a supervisor, and hands over the pipes to it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use zeroize::Zeroizing;

use super::exchange::{STDERR_TAIL, declared_environment, start_supervisor, told};
use super::message::{Bytes, Report, Request, frame};
use super::{BadProcess, ProcessDeclaration, ProcessOptions, program};
use crate::tools::secrets::{Mask, SecretName, SecretSource, Secrets};

/// The longest report: base64 of the end of the standard error, and its envelope.
const MAX_REPORT: u64 = 4 << 20;

/// A program that can be started as a server.
pub(in crate::tools) struct Resident {
    program: String,
    args: Vec<String>,
    declaration: ProcessDeclaration,
    base_dir: Arc<PathBuf>,
    options: ProcessOptions,
}

/// A server that runs. It is ended when its standard input is dropped.
pub(in crate::tools) struct Running {
    pub(in crate::tools) stdin: ChildStdin,
    pub(in crate::tools) stdout: ChildStdout,
    pub(in crate::tools) end: End,
}

/// Tells how a server ended.
pub(in crate::tools) struct End {
    supervisor: Child,
    program: String,
}

impl Resident {
    pub(in crate::tools) fn new(
        declaration: ProcessDeclaration,
        secrets: &BTreeMap<SecretName, SecretSource>,
        base_dir: &Arc<PathBuf>,
        options: Option<&ProcessOptions>,
    ) -> Result<Self, BadProcess> {
        let (program, args) = declaration.checked(secrets)?;
        let options = options.filter(|options| !options.supervisor.is_empty());
        let options = options.cloned().ok_or(BadProcess::NoSupervisor)?;
        Ok(Self { program, args, declaration, base_dir: Arc::clone(base_dir), options })
    }

    /// Starts it. That there is such a program, and that it can be run, shows in how it ends.
    pub(in crate::tools) async fn start(
        &self,
        secrets: &Secrets,
        mask: &Mask,
    ) -> Result<Running, String> {
        let not_started = |why: String| format!("`{}` was not started: {why}", self.program);
        let request = self.request(secrets, mask).map_err(not_started)?;
        let failed =
            |error: io::Error| not_started(format!("its supervisor cannot be run: {error}"));
        let mut supervisor = start_supervisor(&self.options, Stdio::piped()).map_err(failed)?;
        let (Some(mut stdin), Some(stdout)) = (supervisor.stdin.take(), supervisor.stdout.take())
        else {
            return Err(not_started("its supervisor has no pipes".to_owned()));
        };
        stdin.write_all(&request).await.map_err(failed)?;
        stdin.flush().await.map_err(failed)?;
        Ok(Running { stdin, stdout, end: End { supervisor, program: self.program.clone() } })
    }

    fn request(&self, secrets: &Secrets, mask: &Mask) -> Result<Zeroizing<Vec<u8>>, String> {
        let path = |path: PathBuf| Bytes::from(path.as_os_str());
        let cwd = self.declaration.directory(&self.base_dir);
        let request = Request {
            program: path(program::find(&self.program, &self.base_dir)?),
            args: self.args.iter().map(|arg| arg.as_bytes().into()).collect(),
            cwd: path(program::absolute(&cwd)?),
            env: declared_environment(&self.declaration, secrets),
            input: Bytes::from(&[][..]),
            deadline_ms: u64::MAX,
            max_output: 0,
            keep_stderr: STDERR_TAIL + mask.margin(),
            serves: true,
        };
        frame(&request).map_err(|error| error.to_string())
    }
}

impl End {
    /// Waits until it has ended and tells how, with secrets masked.
    pub(in crate::tools) async fn told(mut self, mask: &Mask) -> String {
        let mut report = Zeroizing::new(Vec::new());
        if let Some(stderr) = self.supervisor.stderr.take() {
            // Without a whole report there is nothing to tell.
            let _cut = stderr.take(MAX_REPORT).read_to_end(&mut report).await;
        }
        // It has nothing left to do; this only buries it.
        let _exit = self.supervisor.wait().await;
        let program = &self.program;
        match report.get(8..).map(serde_json::from_slice::<Report>) {
            Some(Ok(Report::NotStarted { why })) => format!("`{program}` was not started: {why}"),
            Some(Ok(Report::Ended(ended))) => {
                let how = match (ended.code, ended.signal) {
                    (Some(code), _) => format!("exited with code {code}"),
                    (None, Some(signal)) => format!("was ended by signal {signal}"),
                    (None, None) => "ended".to_owned(),
                };
                match told(&ended, mask).as_str() {
                    "" => format!("`{program}` {how}"),
                    said => format!("`{program}` {how}: {said}"),
                }
            }
            Some(Err(_)) | None => format!("`{program}` ended, and its supervisor gave no report"),
        }
    }
}
