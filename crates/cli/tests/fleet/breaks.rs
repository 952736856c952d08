//! The database restarts, dies, fails over, or is cut off, while workers are at work.

use std::time::Duration;

use rustix::process::Signal;

use crate::crew::Crew;
use crate::proxy::{Proxy, Way};
use crate::server::Server;
use crate::{pause, until};

/// Long enough for a disturbance to meet calls under way.
const TAKES: Duration = Duration::from_millis(20);
const STEPS: usize = 10;
const JOBS: usize = 6;
const SETTINGS: &str = "[worker]\nskew = \"100ms\"\n\n[postgres]\ntimeout = \"2s\"\n";

/// Disturbs whenever so many effects have been added, until the last is not far.
fn disturb(crew: &Crew, times: usize, mut disturb: impl FnMut(usize)) {
    let apart = crew.wanted() / (times + 1);
    for time in 1..=times {
        crew.witness.wait_for(apart * time);
        disturb(time);
    }
    assert!(crew.witness.count() < crew.wanted(), "it was over before it was disturbed");
}

#[test]
fn a_server_that_restarts_or_dies_loses_nothing() {
    let mut server = Server::start();
    let mut crew = Crew::new(Some(&server.url()), STEPS, TAKES, SETTINGS);
    crew.submit(JOBS);
    let _workers = [crew.worker("one"), crew.worker("two")];
    disturb(&crew, 4, |time| {
        server.stop(if time % 2 == 0 { Signal::KILL } else { Signal::QUIT });
        server.restart();
    });
    crew.submit(1);
    crew.all_is_well();
}

#[test]
fn a_way_that_breaks_loses_nothing() {
    let server = Server::start();
    let proxy = Proxy::new(&server.socket());
    let mut crew = Crew::new(Some(&proxy.url()), STEPS, TAKES, SETTINGS);
    crew.submit(JOBS);
    let _workers = [crew.worker("one"), crew.worker("two")];
    disturb(&crew, 5, |time| match time {
        1 | 4 => proxy.drop_all(),
        2 => proxy.half_close(),
        3 => {
            proxy.go(Way::Slow);
            pause(Duration::from_secs(2));
            proxy.go(Way::Open);
        }
        // Longer than a lease and than a statement is waited for.
        _ => {
            proxy.go(Way::Silent);
            pause(Duration::from_secs(4));
            proxy.go(Way::Open);
        }
    });
    crew.all_is_well();
}

/// Cut off in a call that must not be tried again: the same worker tells what it saw once it can.
#[test]
fn what_was_seen_behind_a_broken_way_ends_the_doubt() {
    let server = Server::start();
    let proxy = Proxy::new(&server.socket());
    let mut crew = Crew::new(Some(&proxy.url()), 1, Duration::from_millis(700), SETTINGS);
    crew.declare_tool("never", "");
    let job = std::fs::read_to_string(crew.path().join("job.yaml")).unwrap();
    std::fs::write(crew.path().join("job.yaml"), job.replace("tool: keyed", "tool: never"))
        .unwrap();
    crew.submit(1);
    let _worker = crew.worker("one");
    until("the call is under way", || (crew.witness.arrived() == 1).then_some(()));
    proxy.go(Way::Silent);
    let spool = crew.path().join("gesta.spool");
    until("it is spooled", || std::fs::read_dir(&spool).ok()?.next().map(drop));
    // Not merely on its way: it was given up.
    let given_up = "the inbox cannot be reached";
    until("it cannot be told", || crew.log().contains(given_up).then_some(()));
    proxy.go(Way::Open);
    crew.all_is_well();
    assert_eq!(crew.witness.arrived(), 1);
    assert!(std::fs::read_dir(&spool).unwrap().next().is_none(), "what was delivered is removed");
}

#[test]
fn a_synchronous_standby_takes_over_with_everything() {
    let mut primary = Server::start();
    let standby = primary.standby();
    let url = format!("postgres://gesta@{},{}/postgres", primary.host(), standby.host());
    let mut crew = Crew::new(Some(&url), STEPS, TAKES, SETTINGS);
    crew.submit(JOBS);
    let _workers = [crew.worker("one"), crew.worker("two")];
    disturb(&crew, 1, |_| {
        primary.stop(Signal::KILL);
        standby.promote();
    });
    crew.submit(1);
    crew.all_is_well();
}
