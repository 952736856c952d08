//! Whoever takes over is killed too, somewhere in what it does about the call that it found open; a third
//! worker sees the job to its end.

use std::time::Instant;

use rustix::process::Signal;

use super::{LOOK, PATIENCE, Played, Process, Scene, Template, run, scene};
use crate::case::{Case, Class};

/// Plays a case to its end, and says whether the second worker was killed: else it never came to that point.
pub(crate) fn play(case: &Case, template: &Template, order: &str) -> Option<(Played, bool)> {
    let scene = scene(case, template);
    scene.cut_off()?;
    let at_cut = scene.effects();
    let mut second = Process::start(scene.path(), "second", Some(order));
    let was_killed = scene.attend(&mut second);
    drop(second);
    let mut third = Process::start(scene.path(), "third", None);
    third.says("serves");
    scene.attend(&mut third);
    third.signal(Signal::TERM);
    third.ends();
    run(scene.path(), &["verify", scene.job]);
    Some((Played { entries: scene.entries(), at_cut, at_end: scene.effects() }, was_killed))
}

impl Scene<'_> {
    /// Waits until a worker has died or its job has ended, and tells it the truth when it asks. Whether it died.
    fn attend(&self, worker: &mut Process) -> bool {
        let begun = Instant::now();
        while !worker.is_dead() {
            if self.has_ended() {
                return false;
            }
            if self.case.class == Class::Never {
                self.resolve(worker);
            }
            assert!(begun.elapsed() < PATIENCE, "neither dead nor done: {}", worker.heard());
            worker.listen_for(LOOK);
        }
        true
    }
}

impl Process {
    fn is_dead(&mut self) -> bool {
        let status = self.child.try_wait().unwrap();
        let is_its_own = status.is_some_and(|status| status.code().is_some());
        assert!(!is_its_own, "{status:?}: {}", self.heard());
        status.is_some()
    }
}
