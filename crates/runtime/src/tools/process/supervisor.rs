//! The supervisor: a process between a worker and a program. It reads one request, runs one program,
//! writes one report, and leaves no descendant of the program behind. It ends the program when the
//! deadline passes, when it writes too much, and when the worker's end of the pipe closes, which the
//! kernel does for a worker that dies. If the supervisor itself is killed, the kernel kills the
//! program; what that has started lives on then.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use zeroize::Zeroizing;

use super::declaration::LAUNCH;
use super::message::{self, Bytes, Ended, Report, Request, Why};
use super::{descendants, launch, serve};

/// Runs as the supervisor of one call: the whole of the program that
/// [`ProcessOptions`](super::ProcessOptions) names. It must not write to its standard output, nor
/// start threads, before this.
pub fn supervise() -> ExitCode {
    if let Some(orders) = std::env::var_os(LAUNCH) {
        return launch::become_program(&orders);
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // The worker learns of it by the report that does not come.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    let mut from_worker = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut to_worker = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let request = message::read_request(&mut from_worker)?;
    if request.serves {
        return serve::run(&request, from_worker, to_worker);
    }
    let deadline = Instant::now() + Duration::from_millis(request.deadline_ms);
    descendants::adopt()?;
    let report = match start(&request, Stdio::piped(), Stdio::piped()) {
        Ok(child) => watch(child, request, from_worker, deadline)?,
        Err(error) => Report::NotStarted { why: error.to_string() },
    };
    message::write_report(&mut to_worker, &report)
}

pub(super) fn start(request: &Request, stdin: Stdio, stdout: Stdio) -> io::Result<Child> {
    let mut command = launch::command(request.program.clone(), request.args.clone())?;
    command.envs(request.env.iter().map(|(name, value)| (name.os(), value.os())));
    command.current_dir(request.cwd.os()).process_group(0);
    command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
    command.spawn()
}

/// What can happen while the program runs.
pub(super) enum Event {
    Exited,
    Flooded,
    Abandoned,
}

fn watch(
    mut child: Child,
    request: Request,
    from_worker: File,
    deadline: Instant,
) -> io::Result<Report> {
    let leader = leader_of(&child)?;
    let (sender, events) = mpsc::channel();
    watch_worker(from_worker, sender.clone());
    watch_exit(leader, sender.clone());
    feed(child.stdin.take(), request.input);
    let stdout = collect(child.stdout.take(), Keep::First(request.max_output), sender.clone());
    let stderr = collect(child.stderr.take(), Keep::Last(request.keep_stderr), sender);

    let why = first_event(&events, deadline);
    descendants::kill_group(leader);
    let status = child.wait()?;
    // Only now do the pipes close: descendants may hold them open.
    descendants::end_all();
    let (stdout, flooded) = stdout.join().unwrap_or_default();
    let (stderr, stderr_cut) = stderr.join().unwrap_or_default();
    Ok(report(Outcome { why, status, stdout, flooded, stderr, stderr_cut }))
}

/// The program leads a process group of its own.
pub(super) fn leader_of(child: &Child) -> io::Result<Pid> {
    let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    leader.ok_or_else(|| io::Error::other("the program has no process id"))
}

pub(super) struct Outcome {
    pub(super) why: Why,
    pub(super) status: ExitStatus,
    pub(super) stdout: Zeroizing<Vec<u8>>,
    pub(super) flooded: bool,
    pub(super) stderr: Zeroizing<Vec<u8>>,
    pub(super) stderr_cut: bool,
}

pub(super) fn report(outcome: Outcome) -> Report {
    let Outcome { why, status, stdout, flooded, stderr, stderr_cut } = outcome;
    if let Some(why) = launch::not_started(status.code(), &stderr) {
        return Report::NotStarted { why };
    }
    Report::Ended(Ended {
        // It may have exited before the last of what it wrote was read.
        why: if flooded && why == Why::Exited { Why::Flooded } else { why },
        code: status.code(),
        signal: status.signal(),
        stdout: if flooded { Bytes::from(&[][..]) } else { Bytes(stdout) },
        stderr: Bytes(stderr),
        stderr_cut,
    })
}

fn first_event(events: &Receiver<Event>, deadline: Instant) -> Why {
    match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(Event::Exited) => Why::Exited,
        Ok(Event::Flooded) => Why::Flooded,
        Ok(Event::Abandoned) => Why::Abandoned,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Why::Deadline,
    }
}

/// The worker says nothing after its request: whatever comes, the end or an error, means that nobody
/// waits for the report.
fn watch_worker(mut from_worker: File, events: Sender<Event>) {
    thread::spawn(move || {
        let _end = from_worker.read(&mut [0]);
        // Without a receiver, the program has ended already.
        let _late = events.send(Event::Abandoned);
    });
}

/// Leaves the dead program unburied, so that its number still names its group.
pub(super) fn watch_exit(leader: Pid, events: Sender<Event>) {
    thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let interrupted = |error| error == rustix::io::Errno::INTR;
        while waitid(WaitId::Pid(leader), options).is_err_and(interrupted) {}
        let _late = events.send(Event::Exited);
    });
}

fn feed(stdin: Option<impl Write + Send + 'static>, input: Bytes) {
    thread::spawn(move || {
        // A program may close its standard input unread.
        let _unread = stdin.map(|mut stdin| stdin.write_all(&input.0));
    });
}

/// How much of a stream is kept.
#[derive(Clone, Copy)]
pub(super) enum Keep {
    /// The beginning; more is a flood.
    First(usize),
    /// The end; what comes before is dropped.
    Last(usize),
}

pub(super) type Collected = (Zeroizing<Vec<u8>>, bool);

/// Reads a stream to its end. The flag says that there was more than is kept.
pub(super) fn collect(
    stream: Option<impl Read + Send + 'static>,
    keep: Keep,
    events: Sender<Event>,
) -> JoinHandle<Collected> {
    thread::spawn(move || {
        let mut kept = Zeroizing::new(Vec::new());
        let mut more = false;
        let mut buffer = Zeroizing::new(vec![0; 64 << 10]);
        let Some(mut stream) = stream else { return (kept, more) };
        loop {
            let read = match stream.read(&mut buffer) {
                Ok(0) => return (kept, more),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return (kept, more),
            };
            kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
            match keep {
                Keep::First(limit) if kept.len() > limit => {
                    more = true;
                    kept.clear();
                    let _late = events.send(Event::Flooded);
                    return (kept, more);
                }
                Keep::Last(limit) if kept.len() > limit => {
                    more = true;
                    let excess = kept.len() - limit;
                    kept.drain(..excess);
                }
                Keep::First(_) | Keep::Last(_) => {}
            }
        }
    })
}
