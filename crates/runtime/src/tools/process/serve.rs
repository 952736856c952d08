//! The supervisor of a server: a program that runs for many calls and talks with the worker by itself,
//! over the very pipes that the supervisor was given. The supervisor only watches: it ends the program
//! and all its descendants when the worker is gone or lets go of it, and reports on its standard error
//! how it ended.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};

use super::descendants;
use super::message::{self, Report, Request, Why};
use super::supervisor::{self, Event, Keep, Outcome, collect, leader_of, watch_exit};

pub(super) fn run(request: &Request, from_worker: File, to_worker: File) -> io::Result<()> {
    let mut told = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    descendants::adopt()?;
    let stdin = Stdio::from(from_worker.try_clone()?);
    let report = match supervisor::start(request, stdin, Stdio::from(to_worker)) {
        Ok(child) => watch(child, request.keep_stderr, from_worker)?,
        Err(error) => Report::NotStarted { why: error.to_string() },
    };
    message::write_report(&mut told, &report)
}

fn watch(mut child: Child, keep_stderr: usize, from_worker: File) -> io::Result<Report> {
    let leader = leader_of(&child)?;
    let (sender, events) = mpsc::channel();
    watch_worker(from_worker, sender.clone());
    watch_exit(leader, sender.clone());
    let stderr = collect(child.stderr.take(), Keep::Last(keep_stderr), sender);
    let why = match events.recv() {
        Ok(Event::Exited) => Why::Exited,
        Ok(Event::Abandoned | Event::Flooded) | Err(_) => Why::Abandoned,
    };
    descendants::kill_group(leader);
    let status = child.wait()?;
    descendants::end_all();
    let (stderr, stderr_cut) = stderr.join().unwrap_or_default();
    let stdout = Default::default();
    Ok(supervisor::report(Outcome { why, status, stdout, flooded: false, stderr, stderr_cut }))
}

/// What the worker writes is for the program to read. That nobody can write any more is seen without
/// reading.
fn watch_worker(from_worker: File, events: Sender<Event>) {
    thread::spawn(move || {
        loop {
            let mut watched = [PollFd::new(&from_worker, PollFlags::empty())];
            match poll(&mut watched, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        // Without a receiver, the program has ended already.
        let _late = events.send(Event::Abandoned);
    });
}
