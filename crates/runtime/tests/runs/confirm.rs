//! A world that changed while the job was down, could not be reached, or was changed by the job itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gesta_core::body::{CheckVerdict, ConfirmationMode};
use gesta_core::entry::Body;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::projection::ParkedOn;
use gesta_core::sample::person;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{
    Catalogue, Change, FunctionCall, FunctionError, Manifest, VerifierDeclaration, Verify,
};
use gesta_runtime::{Home, Left, RunError, jobs, replay};
use gesta_store::ParkedListing;
use serde_json::{Value, json};

use crate::scene::{REGISTRY, Scene};
use crate::stage::{Ran, Witness, manifest};

/// Documents outside: their text by name, and whether they can be looked at.
#[derive(Clone, Default)]
pub(crate) struct Outside {
    documents: Arc<Mutex<BTreeMap<String, String>>>,
    gone: Arc<Mutex<bool>>,
    looks: Witness,
}

impl Outside {
    pub(crate) fn put(&self, name: &str, text: &str) {
        self.documents.lock().unwrap().insert(name.to_owned(), text.to_owned());
    }

    fn unreachable(&self, gone: bool) {
        *self.gone.lock().unwrap() = gone;
    }
}

fn args(call: &FunctionCall) -> Value {
    serde_json::from_str(call.args.as_str()).unwrap()
}

pub(crate) fn write(confirm: Option<ConfirmationMode>) -> Manifest {
    let mut write = manifest("write", Effect::Write);
    write.changes = vec![Change {
        type_: "document".parse().unwrap(),
        id: "args.name".to_owned(),
        value: Some("args.text".to_owned()),
        retract: false,
    }];
    write.verify = vec![Verify {
        args: json!({ "name": "${id}" }),
        confirm,
        holds: "found.text == value".to_owned(),
        type_: "document".parse().unwrap(),
        verifier: "library".parse().unwrap(),
    }];
    write
}

pub(crate) fn tools(outside: &Outside, write: Manifest) -> Catalogue {
    let (written, read) = (outside.clone(), outside.clone());
    let library = VerifierDeclaration {
        file: None,
        git: None,
        http: None,
        secrets: BTreeMap::new(),
        timeout: "5s".parse().unwrap(),
        tool: Some("read".parse().unwrap()),
    };
    Catalogue::builder()
        .function(write, move |call: FunctionCall| {
            let given = args(&call);
            written.put(given["name"].as_str().unwrap(), given["text"].as_str().unwrap());
            async { Ok::<_, FunctionError>(json!("written")) }
        })
        .function(manifest("read", Effect::Read), move |call: FunctionCall| {
            let name = args(&call)["name"].as_str().unwrap().to_owned();
            read.looks.saw(&name);
            let text = read.documents.lock().unwrap().get(&name).cloned();
            let gone = *read.gone.lock().unwrap();
            async move {
                if gone {
                    Err(FunctionError::retry("out of reach"))
                } else {
                    Ok(json!({ "text": text }))
                }
            }
        })
        .function(manifest("use", Effect::External), async |_: FunctionCall| {
            Ok::<_, FunctionError>(json!("used"))
        })
        .verifier("library".parse().unwrap(), library, std::path::Path::new(""))
        .build()
        .unwrap()
}

/// Two documents, a wait, and steps that use one of them through another step.
pub(crate) const JOB: &str = r#"
job: documents
steps:
  - { id: a, tool: write, args: { name: a, text: one } }
  - { id: b, tool: write, args: { name: b, text: two } }
  - { id: sum, set: "${steps.a.result}" }
  - { id: wait, wait: { signal: go } }
  - { id: use, tool: use, args: {}, needs: [sum, wait] }
answer: "${steps.use.result}"
"#;

/// A job that has written both documents and waits; then its worker left.
async fn waiting(outside: &Outside, job: &str, write: Manifest) -> (Scene, TrajectoryId) {
    let scene = Scene::new(tools(outside, write)).await;
    let trajectory = scene.submit(1, job, &[]).await;
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    signal(&scene, trajectory).await;
    (scene, trajectory)
}

/// What the job waits for.
pub(crate) async fn signal(scene: &Scene, trajectory: TrajectoryId) {
    let key = || "go".parse().unwrap();
    let (person, nothing) = (person().unwrap(), Canon::null());
    jobs::signal(&scene.store, trajectory, &person, (key(), key()), &nothing, scene.now())
        .await
        .unwrap();
}

/// A step, its mode, and the verdict about each resource.
type Found = (String, ConfirmationMode, Vec<(String, CheckVerdict)>);

/// What was found, step by step.
fn found(ran: &Ran) -> Vec<Found> {
    let entries = ran.entries.iter().filter_map(|entry| match &entry.payload().body {
        Body::Confirmation(body) if body.confirms.is_none() => {
            let checks =
                body.checks.iter().map(|check| (check.resource.to_string(), check.verdict));
            Some((body.step.to_string(), body.mode, checks.collect()))
        }
        _ => None,
    });
    entries.collect()
}

async fn parked(scene: &Scene) -> Vec<String> {
    let on = Some(ParkedOn::Confirmation);
    let listing = ParkedListing { on, ..ParkedListing::default() };
    let rows = scene.store.parked(&listing, 10).await.unwrap();
    rows.into_iter().map(|row| row.parked.step.to_string()).collect()
}

use CheckVerdict::{Mismatch, Ok as Agrees, Unknown};
use ConfirmationMode::{Human, Strict, Warn};

fn one(step: &str, mode: ConfirmationMode, resource: &str, verdict: CheckVerdict) -> Found {
    (step.to_owned(), mode, vec![(resource.to_owned(), verdict)])
}

#[tokio::test(start_paused = true)]
async fn nothing_is_looked_at_when_nothing_died() {
    let outside = Outside::default();
    let scene = Scene::new(tools(&outside, write(None))).await;
    let (left, ran) = scene.run(&JOB.replace("signal: go", "for: 1s"), &[]).await;
    assert_eq!(left, Left::Ended, "{:?}", ran.kinds());
    assert_eq!((ran.count("attempt"), ran.count("confirmation")), (1, 0));
    assert_eq!(outside.looks.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_resource_is_looked_at_once_when_a_step_first_uses_it() {
    let outside = Outside::default();
    let (scene, trajectory) = waiting(&outside, JOB, write(None)).await;
    assert_eq!(outside.looks.total(), 0, "the first attempt has not died yet");
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(ran.answer(), "\"used\"");
    assert_eq!(
        found(&ran),
        [one("use", Strict, "document/a", Agrees), one("answer", Strict, "document/b", Agrees)]
    );
    assert_eq!(outside.looks.all(), [("a".to_owned(), 1), ("b".to_owned(), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn a_strict_mismatch_fails_the_job_and_names_what_differs() {
    let outside = Outside::default();
    let (scene, trajectory) = waiting(&outside, JOB, write(None)).await;
    outside.put("a", "changed by somebody else");
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    let (code, message) = ran.error();
    assert_eq!(code, "confirmation_mismatch");
    for what in ["`document/a`", "`library` found", "changed by somebody else"] {
        assert!(message.contains(what), "{message}");
    }
    assert_eq!(found(&ran), [one("use", Strict, "document/a", Mismatch)]);
}

#[tokio::test(start_paused = true)]
async fn a_warning_is_recorded_once_and_the_job_goes_on() {
    for (job, write) in [
        (JOB.replace("steps:\n", "confirm: warn\nsteps:\n"), write(None)),
        (JOB.to_owned(), write(Some(Warn))),
    ] {
        let outside = Outside::default();
        let (scene, trajectory) = waiting(&outside, &job, write).await;
        outside.put("a", "changed");
        assert_eq!(scene.drive(trajectory).await, Left::Ended);
        let ran = scene.ran(trajectory).await;
        assert_eq!(ran.answer(), "\"used\"");
        assert_eq!(
            found(&ran),
            [one("use", Warn, "document/a", Mismatch), one("answer", Warn, "document/b", Agrees)]
        );
        assert_eq!(outside.looks.total(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_overrides_the_tool_and_a_warned_mismatch_is_still_one_for_the_next() {
    let outside = Outside::default();
    let job = JOB.replace("needs: [sum, wait] }", "needs: [sum, wait], confirm: warn }");
    let (scene, trajectory) = waiting(&outside, &job, write(Some(Strict))).await;
    outside.put("a", "changed");
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(ran.error().0, "confirmation_mismatch", "the answer uses it too, and is strict");
    let (step, mode, _) = &found(&ran)[0];
    assert_eq!((step.as_str(), *mode), ("use", Warn));
    assert_eq!(outside.looks.all().get("a"), Some(&1), "looked at once");
}

#[tokio::test(start_paused = true)]
async fn a_person_is_asked_and_their_word_stands() {
    let outside = Outside::default();
    let job = JOB.replace("steps:\n", "confirm: human\nsteps:\n");
    let (scene, trajectory) = waiting(&outside, &job, write(None)).await;
    outside.put("a", "changed");
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    assert_eq!(parked(&scene).await, ["use"]);
    let row = scene.store.trajectory(trajectory).await.unwrap().unwrap();
    assert!(!row.summary.runnable, "nobody turns in circles");
    let person = person().unwrap();
    let now = scene.now();
    let other = "sum".parse().unwrap();
    let nothing = jobs::confirm(&scene.store, trajectory, &person, Some(&other), now).await;
    assert_eq!(nothing.unwrap_err(), RunError::NothingToConfirm(trajectory));
    let said = jobs::confirm(&scene.store, trajectory, &person, None, now).await.unwrap();
    assert_eq!(said.len(), 1);
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(ran.answer(), "\"used\"");
    assert_eq!(outside.looks.all().get("a"), Some(&1), "it is not asked about again");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reached_is_no_mismatch_and_is_looked_at_again() {
    for mode in ["strict", "human"] {
        let outside = Outside::default();
        let job = JOB.replace("steps:\n", &format!("confirm: {mode}\nsteps:\n"));
        let (scene, trajectory) = waiting(&outside, &job, write(None)).await;
        outside.unreachable(true);
        assert_eq!(scene.drive(trajectory).await, Left::Parked, "{mode}");
        assert_eq!(parked(&scene).await, ["use"]);
        assert_eq!(outside.looks.all().get("a"), Some(&4), "again, after pauses");
        let (_, _, checks) = &found(&scene.ran(trajectory).await)[0];
        assert_eq!(checks[0].1, Unknown);

        assert_eq!(scene.drive(trajectory).await, Left::Parked, "it is asked again, and waits");
        outside.unreachable(false);
        assert_eq!(scene.drive(trajectory).await, Left::Ended);
        assert_eq!(scene.ran(trajectory).await.answer(), "\"used\"");
    }
    let outside = Outside::default();
    let job = JOB.replace("steps:\n", "confirm: warn\nsteps:\n");
    let (scene, trajectory) = waiting(&outside, &job, write(None)).await;
    outside.unreachable(true);
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(found(&ran)[0], one("use", Warn, "document/a", Unknown));
    assert_eq!(outside.looks.all().get("a"), Some(&1), "nobody waits for a warning");
}

#[tokio::test(start_paused = true)]
async fn what_the_job_changed_itself_is_compared_with_the_newest() {
    let outside = Outside::default();
    let job = r#"
job: again
steps:
  - { id: first, tool: write, args: { name: a, text: one } }
  - { id: second, tool: write, args: { name: a, text: two }, needs: [first] }
  - { id: wait, wait: { signal: go }, needs: [second] }
  - { id: third, tool: write, args: { name: a, text: three }, needs: [wait] }
  - { id: last, tool: use, args: {}, needs: [third] }
"#;
    let (scene, trajectory) = waiting(&outside, job, write(None)).await;
    assert_eq!(scene.drive(trajectory).await, Left::Ended);
    let ran = scene.ran(trajectory).await;
    assert_eq!(
        found(&ran),
        [one("third", Strict, "document/a", Agrees)],
        "once, against what `second` left; what `third` leaves is of this attempt"
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_that_looks_at_the_world_uses_all_of_it_and_a_fan_out_is_asked_once() {
    let outside = Outside::default();
    let job = r#"
job: world
steps:
  - { id: a, tool: write, args: { name: a, text: one } }
  - { id: wait, wait: { signal: go } }
  - { id: seen, set: "${world.document.a}", needs: [wait] }
  - { id: all, each: "${[1, 2, 3]}", tool: use, args: {}, needs: [a, wait] }
"#;
    let (scene, trajectory) = waiting(&outside, job, write(Some(Human))).await;
    outside.put("a", "changed");
    assert_eq!(scene.drive(trajectory).await, Left::Parked);
    assert_eq!(parked(&scene).await, ["all", "seen"], "both, by one look");
    assert_eq!(outside.looks.total(), 1);
    let row = scene.store.trajectory(trajectory).await.unwrap().unwrap();
    assert!(!row.summary.runnable);
    let seen = "seen".parse().unwrap();
    let person = person().unwrap();
    jobs::confirm(&scene.store, trajectory, &person, Some(&seen), scene.now()).await.unwrap();
    assert_eq!(scene.drive(trajectory).await, Left::Ended, "a person's word is about the resource");
    assert_eq!(outside.looks.total(), 1);
}

/// Whoever replays may ask the verifiers too: nothing is added, and nothing is made of what they say.
#[tokio::test(start_paused = true)]
async fn a_replay_can_ask_whether_the_outside_still_agrees() {
    let outside = Outside::default();
    let (scene, trajectory) = waiting(&outside, JOB, write(None)).await;
    let (store, catalogue) = (Arc::clone(&scene.store), Arc::clone(&scene.catalogue));
    let home = Home::new(store, catalogue, REGISTRY, scene.options.clone()).unwrap();
    let asked = async || {
        let checks = replay::confirm(&home, trajectory).await.unwrap();
        let told = checks.into_iter().map(|check| (check.resource.to_string(), check.verdict));
        told.collect::<Vec<_>>()
    };
    let of = |a, b| vec![("document/a".to_owned(), a), ("document/b".to_owned(), b)];
    let before = scene.store.trajectory(trajectory).await.unwrap().unwrap().head;
    assert_eq!(asked().await, of(Agrees, Agrees));
    outside.put("b", "changed by somebody");
    assert_eq!(asked().await, of(Agrees, Mismatch));
    outside.unreachable(true);
    assert_eq!(asked().await, of(Unknown, Unknown));
    assert_eq!(scene.store.trajectory(trajectory).await.unwrap().unwrap().head, before);
    // What has not begun has changed nothing, and cannot be asked about.
    let nobody = replay::confirm(&home, TrajectoryId::from_bytes([9; 16])).await;
    assert!(nobody.is_err(), "{nobody:?}");
}
