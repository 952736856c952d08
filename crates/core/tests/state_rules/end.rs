//! How trajectories end, what is still legal then, and the run hash.

use gesta_core::body::{CancelRequested, Completed, End, Stopped};
use gesta_core::content::Content;
use gesta_core::digest::Digest;
use gesta_core::document::{Failing, Recovery};
use gesta_core::entry::{Author, Body};
use gesta_core::json::Canon;
use gesta_core::sample::Cast;
use gesta_core::state::{Act, Failed, Why};
use gesta_core::writ::Effect;

use crate::edit;
use crate::scene::{Scene, by_worker, step};

fn stopped(run_hash: Digest) -> Box<Stopped> {
    Box::new(Stopped {
        error: Failing { code: "stopped".to_owned(), message: String::new() },
        run_hash,
    })
}

/// The three ends, with this run hash.
fn ends(run_hash: Digest) -> [Body; 3] {
    let answer = Content::Inline(Canon::null());
    [
        Body::Completed(Box::new(Completed { answer, run_hash })),
        Body::Failed(stopped(run_hash)),
        Body::Cancelled(stopped(run_hash)),
    ]
}

fn cancel() -> Body {
    Body::CancelRequested(Box::new(CancelRequested { compensate: false, reason: String::new() }))
}

#[test]
fn nothing_ends_while_something_is_under_way() {
    let open = |acts: &[Act]| {
        let mut scene = Scene::session().calling(Effect::External, Recovery::Safe);
        scene.opens("charge");
        for act in acts {
            scene.does(*act, "charge");
        }
        scene
    };
    let mut delegated = Scene::session();
    delegated.does(Act::Delegate, "charge");
    for mut scene in
        [open(&[]), open(&[Act::Fail(Failed::RetryableUnknown)]), open(&[Act::Doubt]), delegated]
    {
        let hash = scene.state().run_hash().unwrap();
        let [completed, failed, cancelled] = ends(hash);
        scene.refuses(completed.clone(), Why::NotQuiet);
        scene.refuses(failed.clone(), Why::NotQuiet);
        scene.adds(cancel());
        for end in [completed, failed, cancelled] {
            scene.refuses(end, Why::NotQuiet);
        }
    }
}

#[test]
fn what_only_waits_does_not_hold_the_end() {
    let mut scene = Scene::session();
    scene.does(Act::Wait, "pause");
    scene.does(Act::Escalate, "charge");
    scene.opens("retry");
    scene.does(Act::Fail(Failed::RetryableDidNotHappen), "retry");
    scene.does(Act::EndFailed, "");
}

#[test]
fn an_end_carries_the_run_hash() {
    let mut scene = Scene::session();
    scene.calls("charge");
    scene.adds(cancel());
    let [_, failed, cancelled] = ends(Digest::of(b"another run"));
    scene.refuses(failed, Why::RunHash);
    scene.refuses(cancelled, Why::RunHash);
    let mut live = Scene::session();
    live.calls("charge");
    let [completed, ..] = ends(Digest::of(b"another run"));
    live.refuses(completed, Why::RunHash);
    let [completed, ..] = ends(live.state().run_hash().unwrap());
    live.adds(completed);
}

#[test]
fn cancelling_is_asked_for_once_and_ends_as_cancelled() {
    let mut scene = Scene::session();
    scene.refuses(scene.body(Act::EndCancelled, ""), Why::NotCancelling);
    scene.adds(cancel());
    scene.refuses(cancel(), Why::CancelTwice);
    scene.refuses(scene.body(Act::Complete, ""), Why::Stopping);
    scene.does(Act::EndCancelled, "");
    assert_eq!(scene.state().ended(), Some(End::Cancelled));
}

#[test]
fn after_the_end_only_late_effects_and_erasures_follow() {
    for (act, end) in [
        (Act::Complete, End::Completed),
        (Act::EndFailed, End::Failed),
        (Act::EndCancelled, End::Cancelled),
    ] {
        let mut scene = Scene::session();
        scene.opens("late");
        scene.does(Act::Fail(Failed::PermanentDidNotHappen), "late");
        scene.refuses(scene.body(Act::Erase, ""), Why::NotEnded);
        if end == End::Cancelled {
            scene.adds(cancel());
        }
        let before = scene.clone();
        scene.does(act, "");
        assert_eq!(scene.state().ended(), Some(end));

        let mut bodies: Vec<Body> = [
            Act::Checkpoint,
            Act::Complete,
            Act::EndFailed,
            Act::Signal,
            Act::RequestCancel,
            Act::Plan,
            Act::Attempt,
        ]
        .into_iter()
        .map(|act| before.body(act, ""))
        .collect();
        bodies.extend(
            [Act::Start, Act::CommitComputed, Act::Reject, Act::Escalate, Act::Wait]
                .into_iter()
                .map(|act| before.body(act, "charge")),
        );
        for body in bodies {
            scene.refuses(body, Why::Ended(end));
        }
        scene.refuses(before.body(Act::Attempt, ""), Why::Ended(end));
        let root = scene.root_under(|_| (), gesta_core::body::Purpose::Session);
        scene.refuses(root, Why::Begun);
        scene.does(Act::Erase, "");
        scene.does(Act::Erase, "");
        scene.does(Act::LateEffect, "");
    }
}

/// What varies between two runs.
struct Run {
    args: &'static [u8],
    observation: &'static [u8],
    delta: bool,
    effect: Effect,
    retried: bool,
    step: &'static str,
    tool: &'static str,
    extra: Option<Act>,
}

impl Run {
    const PLAIN: Self = Self {
        args: br#"{"amount":1999}"#,
        observation: b"1",
        delta: true,
        effect: Effect::Write,
        retried: false,
        step: "charge",
        tool: "pay.refund",
        extra: None,
    };

    fn hash(&self) -> Digest {
        self.on(Scene::session())
    }

    fn on(&self, mut scene: Scene) -> Digest {
        scene.cast.style.fixed = Some((self.effect, Recovery::Never));
        if self.retried {
            self.start(&mut scene);
            let failed = Act::Fail(Failed::RetryableDidNotHappen);
            scene.does(failed, self.step);
        }
        self.start(&mut scene);
        let body = scene.body(Act::CommitEffect, self.step);
        let body = edit::commit(&scene.cast, body, |commit| {
            commit.observation = Content::Inline(Canon::parse(self.observation).unwrap());
            if !self.delta {
                commit.delta = gesta_core::world::Delta::default();
            }
            let frozen = scene.step(self.step).frozen.clone().unwrap();
            let gesta_core::body::Origin::Effect { proposal, .. } = &mut commit.origin else {
                panic!()
            };
            *proposal = frozen.proposal;
        });
        scene.adds(body);
        if let Some(act) = self.extra {
            scene.does(act, "extra");
        }
        scene.state().run_hash().unwrap()
    }

    fn start(&self, scene: &mut Scene) {
        let body = edit::proposal(scene, scene.started(self.step), |proposal| {
            proposal.args = Canon::parse(self.args).unwrap();
            proposal.tool = self.tool.parse().unwrap();
        });
        scene.adds(body);
    }
}

#[test]
fn the_run_hash_is_what_the_format_says() {
    let mut scene = Scene::session();
    let input = scene.cast.mandate(scene.state().trajectory()).unwrap().input.digest();
    scene.does(Act::CommitSkipped, "b");
    scene.does(Act::CommitSkipped, "a");
    let hash = |value: serde_json::Value| Digest::of(Canon::of(&value).unwrap().as_bytes());
    let row = |step: &str| {
        hash(serde_json::json!({
            "args": null,
            "delta": Digest::of(b"[]"),
            "generation": 1,
            "observation": Digest::of(b"null"),
            "outcome": "pure",
            "step": step,
            "tool": null,
        }))
    };
    let rows = [("a", row("a")), ("b", row("b"))];
    let expected = hash(serde_json::json!([null, input, rows]));
    assert_eq!(scene.state().run_hash().unwrap(), expected);
}

#[test]
fn the_run_hash_depends_on_what_was_done() {
    let mut hashes = vec![
        Run::PLAIN.hash(),
        Run { args: br#"{"amount":1998}"#, ..Run::PLAIN }.hash(),
        Run { observation: b"2", ..Run::PLAIN }.hash(),
        Run { delta: false, ..Run::PLAIN }.hash(),
        Run { effect: Effect::Read, ..Run::PLAIN }.hash(),
        Run { retried: true, ..Run::PLAIN }.hash(),
        Run { tool: "pay.out", ..Run::PLAIN }.hash(),
        // The sample's delta names the step: without it only the row does.
        Run { step: "charge2", delta: false, ..Run::PLAIN }.hash(),
        Run { extra: Some(Act::CommitComputed), ..Run::PLAIN }.hash(),
        Run { extra: Some(Act::CommitSkipped), ..Run::PLAIN }.hash(),
        Run { extra: Some(Act::Reject), ..Run::PLAIN }.hash(),
        Run { extra: Some(Act::FailUnstarted), ..Run::PLAIN }.hash(),
    ];
    let all = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), all);
}

#[test]
fn the_run_hash_tells_refusals_apart() {
    let refused = |on: &str, tool: &str, args: &[u8]| {
        let mut scene = Scene::session();
        let body = edit::proposal(&scene, scene.body(Act::Reject, on), |proposal| {
            proposal.args = Canon::parse(args).unwrap();
            proposal.tool = tool.parse().unwrap();
        });
        scene.adds(body);
        scene.state().run_hash().unwrap()
    };
    let plain = refused("charge", "pay.refund", b"1");
    assert_eq!(plain, refused("charge", "pay.refund", b"1"));
    assert_ne!(plain, refused("charge", "pay.refund", b"2"));
    assert_ne!(plain, refused("charge", "pay.out", b"1"));
    assert_ne!(plain, refused("charge2", "pay.refund", b"1"));
}

#[test]
fn the_run_hash_covers_plan_and_input() {
    use gesta_core::body::{Purpose, StepKind};
    let planned = |kind| Scene::job(&[("a", kind, &[])]).state().run_hash().unwrap();
    assert_ne!(planned(StepKind::Call), planned(StepKind::Compute));
    let given = |input: &[u8]| {
        let mut scene = Scene::unbegun();
        let mut mandate = scene.cast.mandate(crate::scene::ID).unwrap();
        mandate.input = Content::Inline(Canon::parse(input).unwrap());
        let root = scene.cast.root(Purpose::Session(mandate)).unwrap();
        scene.adds(root);
        scene.state().run_hash().unwrap()
    };
    assert_ne!(given(b"1"), given(b"2"));
}

#[test]
fn the_run_hash_knows_no_time_worker_or_key() {
    let mut elsewhere = Scene::unbegun();
    elsewhere.cast = Cast::new(2);
    elsewhere.later(123_456);
    let root = elsewhere.root_under(|writ| writ.depth = 1, gesta_core::body::Purpose::Session);
    elsewhere.adds(root);
    let claim = elsewhere.body(Act::Attempt, "");
    let stranger = Author::Worker { attempt: 1, worker: "another-host".parse().unwrap() };
    elsewhere.admission.push(elsewhere.now, stranger, claim).unwrap();
    elsewhere.claims();
    assert_eq!(by_worker(2), crate::scene::author(elsewhere.state(), &ends(Digest::of(b""))[0]));
    elsewhere.later(99);
    assert_eq!(Run::PLAIN.on(elsewhere), Run::PLAIN.hash());
}

#[test]
fn a_gate_refusal_and_a_reclaim_leave_no_mark_in_the_run_hash() {
    let mut scene = Scene::session();
    Run::PLAIN.start(&mut scene);
    scene.does(Act::Fail(Failed::NotDispatched), "charge");
    scene.claims();
    assert_eq!(Run::PLAIN.on(scene), Run::PLAIN.hash());
    assert!(Scene::session().state().step(&step("charge")).is_none());
}
