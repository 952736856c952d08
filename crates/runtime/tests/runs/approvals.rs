//! People are asked, and say yes, no, too late, twice, or with the wrong key.

use std::sync::Arc;
use std::time::Duration;

use gesta_core::document::{ApprovalVerdict, FreezeTarget, KeyRevocation, RegistryItem};
use gesta_core::entry::{Author, Body};
use gesta_core::ids::{StepId, TrajectoryId};
use gesta_core::keys::PrivateKey;
use gesta_core::sample::{EPOCH, person};
use gesta_core::state::{State, Status};
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::{Role, TrustedKey};
use gesta_core::writ::Effect;
use gesta_runtime::approvals::{Heard, Word, speak};
use gesta_runtime::tools::{Catalogue, Change, FunctionCall, FunctionError};
use gesta_runtime::{Left, RunError, authority};
use gesta_store::Chain;
use gesta_store::memory::MemoryStore;
use serde_json::json;
use tokio::time::Instant;

use crate::scene::{REGISTRY, Scene, now_since, policies};
use crate::stage::{Witness, manifest};

const JOB: &str =
    "job: x\nsteps:\n  - { id: it, tool: pay }\n  - { id: more, tool: pay, needs: [it] }\n";
const ONE: &str = "job: x\nsteps:\n  - { id: it, tool: pay }\n";
/// Two must agree within an hour.
const TWO: &str = r#"
@id("calls") @quorum("2") @expires("1h") @channel("finance") @reason("money moves")
permit(principal, action in Action::"call", resource);
"#;

fn paying(paid: &Witness) -> Catalogue {
    let paid = paid.clone();
    Catalogue::builder()
        .function(manifest("pay", Effect::External), move |call: FunctionCall| {
            paid.saw(&call.key);
            async { Ok::<_, FunctionError>(json!(null)) }
        })
        .build()
        .unwrap()
}

/// A place where calls need the word of so many people.
async fn place(quorum: u64, paid: &Witness) -> Scene {
    let scene = Scene::new(paying(paid)).await;
    publish(&scene, &TWO.replace("@quorum(\"2\")", &format!("@quorum(\"{quorum}\")"))).await;
    scene
}

async fn publish(scene: &Scene, text: &str) {
    let document = policies(&scene.catalogue, text);
    let owner = &scene.cast.owner;
    authority::publish(&scene.store, REGISTRY, &document, owner, scene.now()).await.unwrap();
}

async fn register(scene: &Scene, item: RegistryItem) {
    let mut chain = Chain::load(std::sync::Arc::clone(&scene.store), REGISTRY).await.unwrap();
    let now = scene.now();
    chain
        .append(|admission| authority::register(admission, (&item, None), &scene.cast.owner, now))
        .await
        .unwrap();
}

async fn registry(scene: &Scene) -> State {
    let chain = Chain::load(std::sync::Arc::clone(&scene.store), REGISTRY).await.unwrap();
    chain.state().clone()
}

fn it() -> StepId {
    "it".parse().unwrap()
}

async fn say(
    scene: &Scene,
    job: TrajectoryId,
    key: &PrivateKey,
    verdict: ApprovalVerdict,
) -> Result<Heard, RunError> {
    say_of(scene, job, it(), key, verdict).await
}

async fn say_of(
    scene: &Scene,
    job: TrajectoryId,
    step: StepId,
    key: &PrivateKey,
    verdict: ApprovalVerdict,
) -> Result<Heard, RunError> {
    let chain = Chain::load(std::sync::Arc::clone(&scene.store), job).await.unwrap();
    let pending = match chain.state().step(&step).map(|step| &step.status) {
        Some(Status::Pending(pending)) => pending.entry,
        other => panic!("not pending: {other:?}"),
    };
    let expires = scene.now().plus(60_000);
    let word = Word { step: &step, pending, verdict, expires, note: None };
    speak(&scene.store, job, &word, (&registry(scene).await, key), scene.now()).await
}

/// Registers one more approver.
async fn approver(scene: &Scene, number: u8, name: &str) -> PrivateKey {
    let key = PrivateKey::from_seed(&[number; 32]);
    let trusted = TrustedKey {
        key: key.id(),
        name: name.to_owned(),
        revoked_at: None,
        roles: [Role::Approver].into(),
        tenant: None,
        valid: Window { not_before: EPOCH, not_after: UnixMs::LAST },
    };
    register(scene, RegistryItem::Key(trusted)).await;
    key
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_approved_happens_once_and_the_next_is_asked_anew() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let job = scene.submit(1, JOB, &[]).await;
    assert_eq!(scene.drive(job).await, Left::Parked);
    assert_eq!(paid.total(), 0);
    let heard = say(&scene, job, &scene.cast.approver, ApprovalVerdict::Approve).await.unwrap();
    assert_eq!(heard.missing, 0);
    assert_eq!(scene.drive(job).await, Left::Parked, "the second call asks for itself");
    assert_eq!(paid.total(), 1);
    let ran = scene.ran(job).await;
    assert_eq!(
        (ran.count("pending_approval"), ran.count("approval"), ran.count("commit")),
        (2, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn without_any_policy_reads_run_and_everything_else_is_asked_about() {
    let none = async |_: FunctionCall| Ok::<_, FunctionError>(json!(null));
    let tools = Catalogue::builder()
        .function(manifest("look", Effect::Read), none)
        .function(manifest("note", Effect::Write), none)
        .function(manifest("pay", Effect::External), none)
        .function(manifest("mail", Effect::Irreversible), none)
        .build()
        .unwrap();
    let started = Instant::now();
    let clock = Arc::new(move || now_since(started));
    let scene = Scene::founded(Arc::new(MemoryStore::new(clock)), tools, started).await;
    let steps = ["look", "note", "pay", "mail"]
        .map(|tool| format!("  - {{ id: {tool}, tool: {tool} }}\n"))
        .concat();
    let job = scene.submit(1, &format!("job: x\nsteps:\n{steps}"), &[]).await;
    assert_eq!(scene.drive(job).await, Left::Parked);
    let ran = scene.ran(job).await;
    assert_eq!(
        (ran.count("started"), ran.count("commit"), ran.count("pending_approval")),
        (1, 1, 3)
    );
    assert_eq!(ran.result("look"), "null");
}

/// Two ask for the same seat; both are let, one after the other.
#[tokio::test(start_paused = true)]
async fn what_is_approved_after_the_world_has_changed_is_refused() {
    let mut reserve = manifest("reserve", Effect::Write);
    reserve.preconditions = vec!["!(args.seat in world.seat)".to_owned()];
    reserve.changes = vec![Change {
        type_: "seat".parse().unwrap(),
        id: "args.seat".to_owned(),
        value: None,
        retract: false,
    }];
    let tools = Catalogue::builder()
        .function(reserve, async |_: FunctionCall| Ok::<_, FunctionError>(json!(null)))
        .build()
        .unwrap();
    let scene = Scene::new(tools).await;
    publish(&scene, &TWO.replace("@quorum(\"2\")", "@quorum(\"1\")")).await;
    let steps = ["it", "more"]
        .map(|id| format!("  - {{ id: {id}, tool: reserve, args: {{ seat: 12a }} }}\n"))
        .concat();
    let job = scene.submit(1, &format!("job: x\nsteps:\n{steps}"), &[]).await;
    assert_eq!(scene.drive(job).await, Left::Parked);
    assert_eq!(scene.ran(job).await.count("pending_approval"), 2);
    for (step, left) in [("it", Left::Parked), ("more", Left::Ended)] {
        let key = &scene.cast.approver;
        say_of(&scene, job, step.parse().unwrap(), key, ApprovalVerdict::Approve).await.unwrap();
        assert_eq!(scene.drive(job).await, left, "{step}");
    }
    let ran = scene.ran(job).await;
    assert_eq!((ran.count("started"), ran.count("rejection")), (1, 1));
    assert_eq!(ran.error().0, "precondition_failed");
}

#[tokio::test(start_paused = true)]
async fn a_quorum_is_of_distinct_people() {
    let paid = Witness::default();
    let scene = place(2, &paid).await;
    // One person with two keys is one person.
    let (first, second) =
        (approver(&scene, 51, "alice").await, approver(&scene, 52, "alice").await);
    let bob = approver(&scene, 53, "bob").await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    assert_eq!(say(&scene, job, &first, ApprovalVerdict::Approve).await.unwrap().missing, 1);
    let again = say(&scene, job, &first, ApprovalVerdict::Approve).await;
    assert_eq!(again.err(), Some(RunError::SpokenTwice("alice".to_owned())));
    let otherwise = say(&scene, job, &second, ApprovalVerdict::Approve).await;
    assert_eq!(otherwise.err(), Some(RunError::SpokenTwice("alice".to_owned())));
    assert_eq!((scene.drive(job).await, paid.total()), (Left::Parked, 0));
    say(&scene, job, &bob, ApprovalVerdict::Approve).await.unwrap();
    assert_eq!(scene.drive(job).await, Left::Ended);
    assert_eq!(paid.total(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_no_is_enough_and_for_good() {
    let paid = Witness::default();
    let scene = place(2, &paid).await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    say(&scene, job, &scene.cast.approver, ApprovalVerdict::Deny).await.unwrap();
    assert_eq!(scene.drive(job).await, Left::Ended);
    let ran = scene.ran(job).await;
    assert_eq!((paid.total(), ran.count("rejection")), (0, 1));
    assert_eq!(ran.error().0, "approval_denied");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_answers_in_time_is_refused() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    tokio::time::advance(Duration::from_secs(3601)).await;
    let late = say(&scene, job, &scene.cast.approver, ApprovalVerdict::Approve).await;
    assert_eq!(late.err(), Some(RunError::AskedInVain { trajectory: job, step: it() }));
    assert_eq!(scene.drive(job).await, Left::Ended);
    let ran = scene.ran(job).await;
    assert_eq!((paid.total(), ran.error().0.as_str()), (0, "approval_expired"));
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_ran_out_is_asked_for_again() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    say(&scene, job, &scene.cast.approver, ApprovalVerdict::Approve).await.unwrap();
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(scene.drive(job).await, Left::Parked);
    assert_eq!((paid.total(), scene.ran(job).await.count("pending_approval")), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_may_not_approve_is_turned_away_and_counts_for_nothing() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    let stranger = PrivateKey::from_seed(&[66; 32]);
    let said = say(&scene, job, &stranger, ApprovalVerdict::Approve).await;
    assert!(matches!(said, Err(RunError::NoApprover(_))), "{said:?}");

    // Whoever can write to the store can append it all the same. No worker counts it.
    write_down(&scene, job, &stranger).await;
    assert_eq!(scene.drive(job).await, Left::Parked);
    assert_eq!(paid.total(), 0);
}

/// One person with two keys is one person to workers too, however the second approval got there.
#[tokio::test(start_paused = true)]
async fn two_keys_of_one_person_are_no_quorum() {
    let paid = Witness::default();
    let scene = place(2, &paid).await;
    let (first, second) =
        (approver(&scene, 51, "alice").await, approver(&scene, 52, "alice").await);
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    say(&scene, job, &first, ApprovalVerdict::Approve).await.unwrap();
    write_down(&scene, job, &second).await;
    assert_eq!(scene.drive(job).await, Left::Parked, "it is asked once more");
    assert_eq!(paid.total(), 0);
}

/// Appends an approval without asking whether its key may approve.
async fn write_down(scene: &Scene, job: TrajectoryId, key: &PrivateKey) {
    let mut chain = Chain::load(std::sync::Arc::clone(&scene.store), job).await.unwrap();
    let now = scene.now();
    chain
        .append(|admission| {
            let state = admission.state().clone();
            let Some(Status::Pending(pending)) = state.step(&it()).map(|step| &step.status) else {
                panic!("not pending");
            };
            let statement = gesta_core::document::ApprovalStatement {
                approver: person().unwrap(),
                at: now,
                expires: now.plus(60_000),
                key: key.id(),
                note: None,
                pending: pending.entry,
                type_: Default::default(),
                verdict: ApprovalVerdict::Approve,
            };
            let statement = gesta_core::signed::Signed::sign(statement, key).unwrap();
            let body = gesta_core::body::Approval { statement, step: it() };
            let by = Author::Principal(person().unwrap());
            admission.push(now, by, Body::Approval(Box::new(body)))?;
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_is_decided_once_more() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    say(&scene, job, &scene.cast.approver, ApprovalVerdict::Approve).await.unwrap();
    publish(&scene, r#"@id("no") forbid(principal, action, resource);"#).await;
    assert_eq!(scene.drive(job).await, Left::Ended);
    let ran = scene.ran(job).await;
    assert_eq!((paid.total(), ran.error().0.as_str()), (0, "policy_denied"));
    assert!(ran.error().1.contains("`no`"), "{}", ran.error().1);
}

#[tokio::test(start_paused = true)]
async fn an_approval_by_a_key_revoked_since_counts_for_nothing() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    let alice = approver(&scene, 51, "alice").await;
    say(&scene, job, &alice, ApprovalVerdict::Approve).await.unwrap();
    register(&scene, RegistryItem::RevokeKey(KeyRevocation { at: scene.now(), key: alice.id() }))
        .await;
    assert_eq!(scene.drive(job).await, Left::Parked, "it is asked once more");
    assert_eq!(paid.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_frozen_after_the_approval_does_not_happen() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let job = scene.submit(1, ONE, &[]).await;
    scene.drive(job).await;
    say(&scene, job, &scene.cast.approver, ApprovalVerdict::Approve).await.unwrap();
    register(&scene, RegistryItem::Freeze(FreezeTarget::All)).await;
    scene.drive(job).await;
    assert_eq!(paid.total(), 0);
}

/// A job that is under way when another policy set is published goes on under that one, with an
/// attempt that names it.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_published_while_a_job_runs_holds_for_its_next_call() {
    let paid = Witness::default();
    let scene = Scene::new(paying(&paid)).await;
    let wait = "job: x\nsteps:\n  - { id: it, tool: pay }\n  - { id: w, wait: { for: 5s }, needs: [it] }\n  - { id: more, tool: pay, needs: [w] }\n";
    let job = scene.submit(1, wait, &[]).await;
    let worker = scene.worker().await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let running = tokio::spawn(async move { worker.run(stopped).await });
    while paid.total() == 0 {
        tokio::time::advance(Duration::from_millis(10)).await;
        tokio::task::yield_now().await;
    }
    publish(&scene, r#"@id("no") forbid(principal, action, resource);"#).await;
    let ended = async || scene.store.trajectory(job).await.unwrap().unwrap().summary.status.ended();
    while !ended().await {
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    let ran = scene.ran(job).await;
    assert_eq!((paid.total(), ran.error().0.as_str()), (1, "policy_denied"));
}

/// A fan-out whose items all wait for people is nothing to do, for however long; a word about one of them
/// makes it something to do at once, and that one happens.
#[tokio::test(start_paused = true)]
async fn a_fan_out_that_waits_for_people_rests_until_one_speaks() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let each = "job: x\nsteps:\n  - { id: all, each: '${[1, 2, 3]}', tool: pay, args: { n: '${item}' } }\n";
    let job = scene.submit(1, each, &[]).await;
    assert_eq!(scene.drive(job).await, Left::Parked);
    let to_do = async || scene.store.trajectory(job).await.unwrap().unwrap().summary.runnable;
    assert!(!to_do().await, "three questions are asked, and nobody has answered");
    let rested = scene.ran(job).await;
    assert_eq!((rested.count("pending_approval"), rested.count("waiting")), (3, 1));

    // However often somebody looks in vain, it is not given up.
    for _ in 0..12 {
        assert_eq!(scene.drive(job).await, Left::Parked);
        assert!(!to_do().await);
    }
    let (key, yes) = (&scene.cast.approver, ApprovalVerdict::Approve);
    for (number, left) in [(1, Left::Parked), (0, Left::Parked), (2, Left::Ended)] {
        let step = format!("all/{number}").parse().unwrap();
        say_of(&scene, job, step, key, yes).await.unwrap();
        assert!(to_do().await, "somebody has answered");
        assert_eq!(scene.drive(job).await, left);
    }
    assert_eq!(paid.total(), 3);
    assert_eq!(scene.ran(job).await.kinds().last().unwrap(), "completed");
}

/// The same with a worker that serves the store: what is approved is claimed without waiting for a time.
#[tokio::test(start_paused = true)]
async fn a_worker_takes_up_what_was_approved_in_a_fan_out() {
    let paid = Witness::default();
    let scene = place(1, &paid).await;
    let each =
        "job: x\nsteps:\n  - { id: all, each: '${[1, 2]}', tool: pay, args: { n: '${item}' } }\n";
    let job = scene.submit(1, each, &[]).await;
    let (worker, (_stop, stopped)) = (scene.worker().await, tokio::sync::watch::channel(false));
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(async move { worker.run(stopped).await.unwrap() });
    let asked = async || {
        let listing = gesta_store::ParkedListing::default();
        scene.store.parked(&listing, 9).await.unwrap().len()
    };
    while asked().await < 2 {
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    // Long enough for whoever turned in circles to have left it alone for minutes.
    for _ in 0..600 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let before = scene.ran(job).await.count("attempt");
    assert_eq!(before, 1, "nobody has come back in vain");
    let (key, yes) = (&scene.cast.approver, ApprovalVerdict::Approve);
    say_of(&scene, job, "all/1".parse().unwrap(), key, yes).await.unwrap();
    let spoken = tokio::time::Instant::now();
    while paid.total() == 0 {
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert!(spoken.elapsed() < Duration::from_secs(5), "{:?}", spoken.elapsed());
    assert_eq!(scene.ran(job).await.count("attempt"), before + 1);
}
