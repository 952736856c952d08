//! Replays: what was written by other rules is found, and other rules tell what they would change. That
//! honest chains replay is asked of every run in these tests, and of every history of the simulation.

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::body::{Attempt, BranchMode, Checkpoint, Commit, Origin};
use gesta_core::content::Content;
use gesta_core::digest::Digest;
use gesta_core::document::{Environment, Outcome, Verdict};
use gesta_core::entry::{Author, Body};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::keys::PrivateKey;
use gesta_core::world::Delta;
use gesta_core::writ::Effect;
use gesta_policy::PolicyFile;
use gesta_runtime::replay::{Asked, Library, Report, Session, WhatIf, replay};
use gesta_runtime::tools::{Catalogue, Change, FunctionCall, FunctionError, Manifest};
use gesta_runtime::{At, BranchOrder, COMPILER, Gesta, Keys, Left, authority};
use gesta_store::memory::MemoryStore;
use gesta_store::{Chain, Store, clock};
use serde_json::{Value, json};

use crate::scene::{REGISTRY, Scene};
use crate::stage::manifest;

const JOB: &str = "job: x\nsteps:\n  - { id: one, tool: pay, args: { n: 1 } }\n  - { id: two, tool: pay, args: { n: 2 }, needs: [one] }\n";

fn pay() -> Manifest {
    let mut pay = manifest("pay", Effect::External);
    pay.input = Some(json!({ "properties": { "n": { "type": "integer" } } }));
    pay.changes = vec![Change {
        type_: "payment".parse().unwrap(),
        id: "string(args.n)".to_owned(),
        value: None,
        retract: false,
    }];
    pay
}

fn paying() -> Catalogue {
    Catalogue::builder()
        .function(pay(), |call: FunctionCall| {
            let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
            async move { Ok::<_, FunctionError>(json!({ "paid": args["n"] })) }
        })
        .build()
        .unwrap()
}

async fn play(scene: &Scene, trajectory: TrajectoryId, asked: &Asked) -> Report {
    let mut library = Library::new(Arc::clone(&scene.store));
    replay(&mut library, trajectory, asked, &mut |_| ()).await.unwrap().0
}

fn instead(text: &str) -> Asked {
    let file = PolicyFile { name: "other.cedar".to_owned(), text: text.to_owned() };
    let policies = Some((vec![file], std::collections::BTreeMap::new()));
    Asked { what_if: Some(WhatIf { policies, tools: None }), ..Asked::default() }
}

/// A job that has waited, with whatever the test writes in the worker's name.
async fn forged(
    scene: &Scene,
    write: impl Fn(&mut gesta_core::state::Admission, Author),
) -> TrajectoryId {
    const HELD: &str = "job: x\ninput:\n  n: integer\nsteps:\n  - { id: hold, wait: { signal: go } }\n  - { id: sum, set: \"${ input.n + 1 }\", needs: [hold] }\n";
    let trajectory = scene.submit(1, HELD, &[("n", "41")]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    let ran = scene.ran(trajectory).await;
    let by = ran.entries.last().unwrap().payload().by.clone();
    assert!(matches!(by, Author::Worker { attempt: 1, .. }));
    let mut chain = Chain::load(Arc::clone(&scene.store), trajectory).await.unwrap();
    chain
        .append(|admission| {
            write(admission, by.clone());
            Ok(())
        })
        .await
        .unwrap();
    trajectory
}

fn commit(
    admission: &gesta_core::state::Admission,
    step: &str,
    origin: Origin,
    value: &str,
) -> Body {
    Body::Commit(Box::new(Commit {
        compiler: COMPILER.to_owned(),
        cost: Amounts::default(),
        delta: Delta::default(),
        observation: Content::Inline(Canon::parse(value.as_bytes()).unwrap()),
        origin,
        outcome: Outcome::Pure,
        parent_commit: admission.state().last_commit(),
        step: step.parse().unwrap(),
        writ: admission.state().writ().unwrap().0,
    }))
}

#[tokio::test(start_paused = true)]
async fn a_result_that_does_not_follow_is_found() {
    for (value, same) in [("42", true), ("43", false)] {
        let scene = Scene::new(paying()).await;
        let now = scene.now();
        let trajectory = forged(&scene, |admission, by| {
            let signal = gesta_core::body::Signal {
                id: "s".parse().unwrap(),
                key: "go".parse().unwrap(),
                payload: Content::Inline(Canon::null()),
            };
            let sender = Author::Principal("somebody".parse().unwrap());
            let signal = Body::Signal(Box::new(signal));
            let signal = admission.push(now, sender, signal).unwrap().id();
            let woken = commit(admission, "hold", Origin::Woken { by: signal }, "null");
            admission.push(now, by.clone(), woken).unwrap();
            let sum = commit(admission, "sum", Origin::Computed, value);
            admission.push(now, by, sum).unwrap();
        })
        .await;
        let report = play(&scene, trajectory, &Asked::default()).await;
        match report.session {
            Session::Complete => assert!(same),
            Session::Diverged(found) => {
                assert!(!same, "{found:?}");
                assert_eq!((found.kind.as_str(), found.step.unwrap().as_str()), ("commit", "sum"));
                assert_eq!(found.pointer, "/body/observation/inline");
                assert_eq!((found.recorded, found.derived), (Some(json!(43)), Some(json!(42))));
            }
            Session::Failed { seq, why } => panic!("{seq}: {why}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_in_force_must_be_at_hand() {
    let scene = Scene::new(paying()).await;
    let now = scene.now();
    let lost = Digest::of(b"lost");
    let trajectory = forged(&scene, |admission, by| {
        let Author::Worker { attempt, worker } = by else { panic!() };
        let environment = Environment { config: lost, policy: lost, tools: lost };
        let body = Attempt { died: None, environment, note: "claimed".to_owned(), restored: None };
        let by = Author::Worker { attempt: attempt + 1, worker };
        admission.push(now, by, Body::Attempt(Box::new(body))).unwrap();
    })
    .await;
    match play(&scene, trajectory, &Asked::default()).await.session {
        Session::Failed { why, .. } => {
            assert_eq!(why, format!("the tool catalogue {lost} is not at hand"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn other_policies_tell_what_they_would_change() {
    let scene = Scene::new(paying()).await;
    let (left, ran) = scene.run(JOB, &[]).await;
    assert_eq!((left, ran.count("completed")), (Left::Ended, 1));
    let trajectory = ran.entries[0].payload().trajectory;
    let changed = async |text: &str| {
        let report = play(&scene, trajectory, &instead(text)).await;
        assert_eq!((&report.session, report.decisions), (&Session::Complete, 2));
        report.otherwise
    };
    let same = r#"@id("all") permit(principal, action, resource);"#;
    assert_eq!(changed(same).await, []);
    let ask = r#"@id("ask") permit(principal, action in Action::"call", resource);"#;
    let asked = changed(ask).await;
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|one| one.was.verdict == Verdict::Allow));
    assert!(asked.iter().all(|one| one.would_be.verdict == Verdict::Escalate));
    let limit = r#"@id("small") forbid(principal, action in Action::"tool:pay", resource)
when { context.args has n && context.args.n > 1 };"#;
    let limit = format!("{same}\n{limit}");
    let refused = changed(&limit).await;
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].step.as_str(), refused[0].would_be.verdict), ("two", Verdict::Deny));
    assert_eq!(refused[0].would_be.policies, ["small"]);
    let mut library = Library::new(Arc::clone(&scene.store));
    let typo = instead(&limit.replace("has n", "has m").replace("args.n", "args.m"));
    let (report, _) = replay(&mut library, trajectory, &typo, &mut |_| ()).await.unwrap();
    assert!(report.misfit.is_some_and(|why| why.contains("other.cedar")));
    assert_eq!((report.decisions, report.undecided, report.otherwise), (2, 2, Vec::new()));
}

/// What a decision is asked about is when it was taken, not when its job began.
#[tokio::test(start_paused = true)]
async fn decisions_count_by_their_own_time() {
    let scene = Scene::new(paying()).await;
    let (_, ran) = scene.run(JOB, &[]).await;
    let trajectory = ran.entries[0].payload().trajectory;
    let started = |entry: &&gesta_core::entry::Entry| entry.kind().to_string() == "started";
    let last = ran.entries.iter().rfind(started).unwrap().payload().at;
    let ask = r#"@id("ask") permit(principal, action in Action::"call", resource);"#;
    for (asked, decisions) in [
        (Asked { since: Some(last.plus(1)), ..instead(ask) }, 0),
        (Asked { before: Some(last.plus(1)), ..instead(ask) }, 2),
        (Asked { since: Some(last), before: Some(last), ..instead(ask) }, 0),
    ] {
        let report = play(&scene, trajectory, &asked).await;
        assert_eq!((report.decisions, report.otherwise.len() as u64), (decisions, decisions));
        assert_eq!(report.session, Session::Complete);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_world_came_to_is_said_now_and_then() {
    let mut scene = Scene::new(paying()).await;
    let short = scene.submit(3, JOB, &[]).await;
    assert_eq!(scene.drive(short).await, Left::Ended);
    assert_eq!(scene.ran(short).await.count("checkpoint"), 0, "a short job is over before");
    scene.options.checkpoint_every = 1;
    let trajectory = scene.submit(2, JOB, &[]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(ran.count("checkpoint"), 2, "{:?}", ran.kinds());
    let report = play(&scene, trajectory, &Asked::default()).await;
    assert_eq!((report.session, report.derived["checkpoint"]), (Session::Complete, 2));
    let said: Vec<Digest> = ran
        .entries
        .iter()
        .filter_map(|entry| match &entry.payload().body {
            Body::Checkpoint(checkpoint) => Some(checkpoint.world),
            _ => None,
        })
        .collect();
    assert!(said[0] != said[1] && said[1] == report.world, "{said:?}");

    // Whoever says that it came to something else is not let in.
    forged(&scene, |admission, by| {
        let world = Digest::of(b"another world");
        let body = Body::Checkpoint(Box::new(Checkpoint { world }));
        let refused = admission.push(scene.now(), by.clone(), body).unwrap_err().to_string();
        assert!(refused.contains("world"), "{refused}");
        let world = admission.state().world().digest();
        let body = Body::Checkpoint(Box::new(Checkpoint { world }));
        admission.push(scene.now(), by, body).unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn other_tools_tell_what_they_would_change() {
    let scene = Scene::new(paying()).await;
    let (_, ran) = scene.run(JOB, &[]).await;
    let trajectory = ran.entries[0].payload().trajectory;
    let mut pay = manifest("pay", Effect::External);
    pay.input = Some(json!({ "properties": { "n": { "maximum": 1, "type": "integer" } } }));
    let tools = Catalogue::builder()
        .function(pay, |_: FunctionCall| async { Ok::<_, FunctionError>(json!(null)) })
        .build()
        .unwrap();
    let what_if = Some(WhatIf { policies: None, tools: Some(Arc::new(tools)) });
    let report = play(&scene, trajectory, &Asked { what_if, ..Asked::default() }).await;
    let [one] = report.otherwise.as_slice() else { panic!("{:?}", report.otherwise) };
    assert_eq!((one.step.as_str(), one.would_be.verdict), ("two", Verdict::Deny));
    assert_eq!(one.would_be.reason.map(|reason| reason.as_str()), Some("type_mismatch"));
}

/// What is published binds whoever decides: a replay asks about it as the decision's registry names it, and about
/// other tools as if they were published.
#[tokio::test(start_paused = true)]
async fn a_published_catalogue_binds_a_replay_too() {
    let scene = Scene::new(paying()).await;
    let nothing = |_: FunctionCall| async { Ok::<_, FunctionError>(json!(null)) };
    let publish = async |tools: &Catalogue| {
        let (owner, now) = (&scene.cast.owner, scene.now());
        authority::publish_tools(&scene.store, REGISTRY, tools, owner, now).await.unwrap();
    };
    let mail = manifest("mail", Effect::External);
    let more = Catalogue::builder().function(pay(), nothing).function(mail.clone(), nothing);
    publish(&more.build().unwrap()).await;
    let (left, ran) = scene.run(JOB, &[]).await;
    assert_eq!((left, ran.count("commit")), (Left::Ended, 3));
    let others = Catalogue::builder().function(mail, nothing).build().unwrap();
    publish(&others).await;
    let refused = scene.submit(2, JOB, &[]).await;
    assert_eq!(scene.drive(refused).await, Left::Ended);
    let refused = scene.ran(refused).await;
    assert_eq!(refused.count("started"), 0);
    for (ran, changes) in [(ran, 0), (refused, 1)] {
        let trajectory = ran.entries[0].payload().trajectory;
        let report = play(&scene, trajectory, &Asked::default()).await;
        assert!(matches!(report.session, Session::Complete), "{:?}", report.session);
        let what_if = Some(WhatIf { policies: None, tools: Some(Arc::new(paying())) });
        let report = play(&scene, trajectory, &Asked { what_if, ..Asked::default() }).await;
        assert_eq!(report.otherwise.len(), changes, "{:?}", report.otherwise);
    }
}

#[tokio::test(start_paused = true)]
async fn the_world_is_had_at_any_point() {
    let scene = Scene::new(paying()).await;
    let (_, ran) = scene.run(JOB, &[]).await;
    let trajectory = ran.entries[0].payload().trajectory;
    let mut library = Library::new(Arc::clone(&scene.store));
    let mut sizes = Vec::new();
    for until in 0..ran.entries.len() as u64 {
        let asked = Asked { until: Some(until), ..Asked::default() };
        let (report, state) = replay(&mut library, trajectory, &asked, &mut |_| ()).await.unwrap();
        assert_eq!(report.head.map(|head| head.seq), Some(until));
        assert_eq!(report.world, state.world().digest());
        sizes.push(state.world().iter().count());
    }
    assert!(sizes.is_sorted());
    assert_eq!((sizes.first(), sizes.last()), (Some(&0), Some(&2)));
}

#[cfg(feature = "sabotage")]
#[tokio::test(start_paused = true)]
async fn a_guardian_that_looked_away_is_found() {
    use gesta_core::document::{FreezeTarget, RegistryItem};
    use gesta_runtime::Sabotage;

    let mut scene = Scene::new(paying()).await;
    let item = RegistryItem::Freeze(FreezeTarget::Tool("pay".parse().unwrap()));
    let mut registry = Chain::load(Arc::clone(&scene.store), REGISTRY).await.unwrap();
    let now = scene.now();
    registry
        .append(|admission| authority::register(admission, (&item, None), &scene.cast.owner, now))
        .await
        .unwrap();
    scene.options.sabotage = Some(Sabotage::IgnoreFreeze);
    let trajectory = scene.submit(1, JOB, &[]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    match play(&scene, trajectory, &Asked::default()).await.session {
        Session::Diverged(found) => {
            assert_eq!((found.pointer.as_str(), found.step.unwrap().as_str()), ("/kind", "one"));
            let told = (found.recorded, found.derived);
            assert_eq!(told, (Some(json!("started")), Some(json!("rejection"))));
        }
        other => panic!("{other:?}"),
    }
}

/// A branch begins on top of its source: what it inherits, what it takes over and what it does itself follow
/// from both chains.
#[tokio::test]
async fn a_branch_is_derived_on_top_of_its_source() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock::system()));
    let key = |seed| PrivateKey::from_seed(&[seed; 32]);
    let keys = Keys { owner: key(1), worker: key(2), sealer: None };
    let gesta = Gesta::open(Arc::clone(&store), keys, paying()).await.unwrap();
    let all = "@id(\"all\") permit (principal, action, resource);";
    let gesta = gesta.governed_by(all).await.unwrap();
    let compiled = gesta_runtime::job::load("job.yaml", JOB, gesta.tools()).unwrap();
    let source = gesta.submit(&compiled, &[], None).await.unwrap();
    gesta.run(source).await.unwrap();
    let order = BranchOrder {
        source,
        at: At::Step("one".parse().unwrap()),
        mode: BranchMode::Recorded,
        note: "again",
        plan: None,
        edits: &[],
        input: &BTreeMap::new(),
        budget: Budget::default(),
        key: None,
    };
    let branch = gesta.branch(&order).await.unwrap();
    gesta.run(branch).await.unwrap();
    let mut library = Library::new(Arc::clone(&store));
    let asked = Asked::default();
    let (report, state) = replay(&mut library, branch, &asked, &mut |_| ()).await.unwrap();
    assert_eq!(report.session, Session::Complete);
    assert_eq!(report.run_hash, Some(report.replay_hash));
    // `two` was taken over and not called; both payments are in the world.
    assert_eq!((report.derived.get("commit"), report.derived.get("started")), (Some(&2), None));
    assert_eq!(state.world().iter().count(), 2);
}
