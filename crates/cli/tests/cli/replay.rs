//! `gesta replay`: what a job did is derived again, and other rules are tried on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gesta_core::amounts::Amounts;
use gesta_core::body::{Commit, Origin, Signal};
use gesta_core::content::Content;
use gesta_core::document::Outcome;
use gesta_core::entry::{Author, Body, Entry, Kind};
use gesta_core::json::Canon;
use gesta_core::world::Delta;
use gesta_store::sqlite::{Options, SqliteStore};
use gesta_store::{Chain, Store};
use gesta_verify::report::Verdict;
use serde_json::Value;

use crate::export::audit;
use crate::forged::rewrite;
use crate::world::World;

const ASKS: &str = r#"@id("reads") permit(principal, action, resource) when { resource.effect == Effect::"read" };
@id("no-mail") @reason("mail is not for agents") forbid(principal, action, resource == Tool::"mail.send");
@id("others") permit(principal, action in Action::"call", resource);
"#;

fn refunded() -> (World, String) {
    let world = World::new();
    let job = format!("{}/../../examples/refund/job.yaml", env!("CARGO_MANIFEST_DIR"));
    let told = world.gesta(&["run", &job, "--input", "order=1042", "--json"]).ok();
    let id = told.find("t_").and_then(|at| told.get(at..at + 34)).unwrap().to_owned();
    (world, id)
}

#[test]
fn a_job_is_derived_again_without_a_call() {
    let (world, id) = refunded();
    let told = world.gesta(&["replay", &id, "--world"]).ok();
    assert!(told.starts_with(&format!("{id}  complete: ")), "{told}");
    assert!(told.contains(", recorded and derived\n"), "{told}");
    let report = world.gesta(&["replay", &id, "--json"]).json();
    let replay = &report["replays"][0];
    assert_eq!(
        (&replay["session"], &replay["run_hash"]),
        (&"complete".into(), &replay["replay_hash"])
    );
    assert_eq!(replay["derived"]["started"], 6);
    // Nothing was added by looking.
    let heads = |world: &World| world.gesta(&["log", "--json"]).ok();
    let before = heads(&world);
    world.gesta(&["replay", "--all", "--confirm"]).ok();
    world.gesta(&["replay", &id, "--confirm", "--until", "3"]).expect(2);
    world.gesta(&["replay", &id, "--confirm"]).ok();
    assert_eq!(heads(&world), before);
}

#[test]
fn a_bundle_is_enough() {
    let (world, id) = refunded();
    world.gesta(&["export", &id, "-o", "it.gesta"]).ok();
    let here = world.gesta(&["replay", &id, "--json"]).json();
    let elsewhere = World::new();
    let file = world.path("it.gesta").display().to_string();
    let there = elsewhere.gesta(&["replay", "--all", "--bundle", &file, "--json"]).json();
    assert_eq!(there, here);
    std::fs::write(elsewhere.path("no.gesta"), "nothing").unwrap();
    elsewhere.gesta(&["replay", "--all", "--bundle", "no.gesta"]).expect(6);
}

#[test]
fn a_policy_is_tried_on_what_happened() {
    let (world, id) = refunded();
    std::fs::write(world.path("asks.cedar"), ASKS).unwrap();
    let told = world.gesta(&["replay", "--all", "--policy", "asks.cedar"]).ok();
    assert!(told.contains("2 of 6 decisions would have come out otherwise"), "{told}");
    let report = world.gesta(&["replay", &id, "--policy", "asks.cedar", "--json"]).json();
    let changed: Vec<_> = report["otherwise"].as_array().unwrap().iter().collect();
    let of = |step: &str| *changed.iter().find(|one| one["step"] == step).unwrap();
    assert_eq!(
        (&of("pay")["was"]["verdict"], &of("pay")["would_be"]["verdict"]),
        (&"allow".into(), &"escalate".into())
    );
    assert_eq!(of("mail")["would_be"]["policies"][0], "no-mail");
    // Only what began in the time asked for.
    let none = world
        .gesta(&["replay", "--all", "--before", "2020-01-01T00:00:00Z", "--policy", "asks.cedar"])
        .ok();
    assert!(none.contains("0 of 0 decisions"), "{none}");
    let of = |times: &[&str]| {
        let all = ["replay", "--all", "--policy", "asks.cedar"];
        world.gesta(&[&all, times].concat()).ok()
    };
    assert!(of(&["--since", "7d"]).contains("2 of 6 decisions"));
    assert!(of(&["--since", "7d", "--before", "1d"]).contains("0 of 0 decisions"));
    let refused = world.gesta(&["replay", "--all", "--since", "tuesday"]).expect(2);
    assert!(refused.err.contains("or as how long ago it was: `7d`"), "{}", refused.err);
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let (world, id) = refunded();
    std::fs::write(
        world.path("typo.cedar"),
        "permit(principal, action, resource == Tool::\"pay.pay\");",
    )
    .unwrap();
    let refused = world.gesta(&["replay", &id, "--policy", "typo.cedar"]).expect(2);
    assert!(refused.err.contains("typo.cedar"), "{}", refused.err);
    world.gesta(&["replay", &id, "--policy", "missing.cedar"]).expect(2);
    world.gesta(&["replay", &id, "--tools", "missing.toml"]).expect(2);
    world.gesta(&["replay"]).expect(2);
    world.gesta(&["replay", "t_ffff"]).expect(1);
}

const ALL: &str = "@id(\"all\") permit (principal, action, resource);\n";

fn tool(name: &str) -> String {
    format!(
        "[tools.{name}]\neffect = \"external\"\n[tools.{name}.driver.process]\ncommand = 'echo \"{{}}\"'\nshell = true\nenv = [\"PATH\"]\n"
    )
}

/// Ends a job that waits with a result that does not follow, as somebody would who has the worker's place.
fn forge(world: &World, id: &str, value: &str) {
    let (path, id) = (world.path("gesta.db"), id.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, Options::default()).unwrap());
        let attempt = store.entries(id, 0, 64).await.unwrap();
        let mut entries = attempt.iter().map(|stored| Entry::from_bytes(&stored.bytes).unwrap());
        let by = entries.find(|entry| entry.kind().to_string() == "attempt").unwrap();
        let by = by.payload().by.clone();
        let mut chain = Chain::load(store, id).await.unwrap();
        let appended = chain.append(|admission| {
            let now = admission.state().at().plus(1);
            let signal = Signal {
                id: "s".parse().unwrap(),
                key: "go".parse().unwrap(),
                payload: Content::Inline(Canon::null()),
            };
            let sender = Author::Principal("somebody".parse().unwrap());
            let woken = admission.push(now, sender, Body::Signal(Box::new(signal)))?.id();
            for (step, origin, value) in
                [("hold", Origin::Woken { by: woken }, "null"), ("sum", Origin::Computed, value)]
            {
                let commit = Commit {
                    compiler: gesta_runtime::COMPILER.to_owned(),
                    cost: Amounts::default(),
                    delta: Delta::default(),
                    observation: Content::Inline(Canon::parse(value.as_bytes()).unwrap()),
                    origin,
                    outcome: Outcome::Pure,
                    parent_commit: admission.state().last_commit(),
                    step: step.parse().unwrap(),
                    writ: admission.state().writ().unwrap().0,
                };
                admission.push(now, by.clone(), Body::Commit(Box::new(commit)))?;
            }
            Ok(())
        });
        appended.await.unwrap();
    });
}

#[test]
fn what_does_not_follow_is_shown_and_has_an_exit_code_of_its_own() {
    let world = World::with_workspace();
    world.write("job.yaml", "job: x\ninput:\n  n: integer\nsteps:\n  - { id: hold, wait: { signal: go } }\n  - { id: sum, set: \"${ input.n + 1 }\", needs: [hold] }\n");
    world.gesta(&["submit", "job.yaml", "--input", "n=41"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let id = world.job();
    world.gesta(&["replay", &id]).ok();
    forge(&world, &id, "43");
    world.gesta(&["verify", &id]).ok();
    let told = world.gesta(&["replay", &id]).expect(7);
    for line in [
        "diverged at entry 6 (`commit` of step `sum`)",
        "  at        /body/observation/inline\n",
        "  recorded  43\n",
        "  derived   42\n",
        "  perhaps   ",
    ] {
        assert!(told.out.contains(line), "{line}: {}", told.out);
    }
    let told = world.gesta(&["replay", "--all", "--json"]).expect(7);
    let report: Value = serde_json::from_str(&told.out).unwrap();
    let found = &report["replays"][0]["session"]["diverged"];
    assert_eq!((&found["seq"], &found["recorded"]), (&6.into(), &43.into()), "{report:#}");
    // As far as the entry before it, everything follows.
    world.gesta(&["replay", &id, "--until", "5"]).ok();
}

#[test]
fn the_world_is_shown_as_it_stood() {
    let tool = tool("act").replace(
        "[tools.act.driver",
        "changes = [{ type = \"thing\", id = \"args.id\" }]\n[tools.act.driver",
    );
    let world = World::with_tools(&tool);
    world.write("job.yaml", "job: x\nsteps:\n  - { id: one, tool: act, args: { id: a } }\n  - { id: two, tool: act, args: { id: b }, needs: [one] }\n");
    world.gesta(&["run", "job.yaml"]).ok();
    let id = world.job();
    let kinds = world.kinds(&id);
    let commits: Vec<usize> =
        (0..kinds.len()).filter(|at| kinds[*at] == "commit").take(2).collect();
    let at = |until: usize| {
        let until = until.to_string();
        let asked = ["replay", &id, "--until", &until, "--world"];
        let report = world.gesta(&[&asked[..], &["--json"]].concat()).json()["replays"][0].clone();
        assert_eq!(report["head"]["seq"].to_string(), until);
        let things = report["resources"].as_array().unwrap();
        let things = things.iter().map(|one| one["resource"]["id"].as_str().unwrap().to_owned());
        (things.collect::<Vec<_>>(), world.gesta(&asked).ok())
    };
    let (none, told) = at(commits[0] - 1);
    assert!(none.is_empty() && !told.contains("thing/"), "{told}");
    let (one, told) = at(commits[0]);
    assert!(one == ["a"] && told.contains("    thing/a  v1  "), "{one:?}: {told}");
    let (mut both, told) = at(commits[1]);
    both.sort();
    assert!(both == ["a", "b"] && told.contains("    thing/b  v1  "), "{both:?}: {told}");
    let beyond = world.gesta(&["replay", &id, "--until", "99"]).expect(2);
    assert!(beyond.err.contains(&format!("ends at entry {}", kinds.len() - 1)), "{}", beyond.err);
}

/// A job that began before the time asked about, and went on in it.
#[test]
fn decisions_are_chosen_by_when_they_were_taken() {
    let world = World::with_tools(&tool("act"));
    let job = "job: x\nsteps:\n  - { id: one, tool: act }\n  - { id: hold, wait: { signal: go }, needs: [one] }\n  - { id: two, tool: act, needs: [hold] }\n";
    world.write("job.yaml", job);
    let id = world.gesta(&["submit", "job.yaml", "--json"]).json()["trajectory"].clone();
    let id = id.as_str().unwrap().to_owned();
    world.gesta(&["worker", "--once"]).ok();
    world.gesta(&["signal", &id, "go"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let entries = world.gesta(&["log", &id, "--json"]).json_lines();
    let signal = entries.iter().find(|entry| entry["entry"]["kind"] == "signal").unwrap();
    let at = i64::try_from(signal["entry"]["at"].as_u64().unwrap()).unwrap();
    let at = jiff::Timestamp::from_millisecond(at).unwrap().to_string();
    world.write("none.cedar", "@id(\"none\") forbid (principal, action, resource);\n");
    let steps = |range: &[&str]| {
        let asked = ["replay", "--all", "--policy", "none.cedar", "--json"];
        let report = world.gesta(&[&asked[..], range].concat()).json();
        let changed = report["otherwise"].as_array().unwrap().clone();
        let steps: Vec<String> =
            changed.iter().map(|one| one["step"].as_str().unwrap().to_owned()).collect();
        assert_eq!(report["decisions"].as_u64(), Some(steps.len() as u64));
        steps
    };
    assert_eq!(steps(&[]), ["one", "two"]);
    assert_eq!(steps(&["--since", &at]), ["two"]);
    assert_eq!(steps(&["--before", &at]), ["one"]);
}

/// One trajectory of many had not all of the tools that a policy names.
#[test]
fn what_a_policy_does_not_fit_is_passed_over_and_counted() {
    let world = World::with_tools(&tool("old"));
    world.write("old.yaml", "job: x\nsteps:\n  - { id: one, tool: old }\n");
    world.write("new.yaml", "job: x\nsteps:\n  - { id: one, tool: new }\n");
    world.gesta(&["run", "old.yaml"]).ok();
    let before = world.job();
    let config = world.read("gesta.toml");
    world.write("gesta.toml", &format!("{config}{}", tool("new")));
    world.gesta(&["policy", "publish"]).ok();
    world.gesta(&["run", "new.yaml"]).ok();
    let policy =
        format!("{ALL}@id(\"no-new\") forbid (principal, action, resource == Tool::\"new\");\n");
    world.write("no-new.cedar", &policy);
    let asked = ["replay", "--all", "--policy", "no-new.cedar"];
    let told = world.gesta(&asked).expect(0);
    assert!(told.out.contains("1 of 2 decisions would have come out otherwise"), "{}", told.out);
    assert!(told.out.contains("1  could not be decided"), "{}", told.out);
    assert!(told.out.contains("passed over: 1 trajectory with tools"), "{}", told.out);
    assert!(told.err.contains("hint: `--tools gesta.toml`"), "{}", told.err);
    let report = world.gesta(&[&asked[..], &["--json"]].concat()).json();
    assert_eq!(
        (&report["undecided"], &report["passed_over"][0]["trajectory"]),
        (&1.into(), &before.as_str().into())
    );
    // The tools of the workspace fit, and its whole file may be given.
    let with = [&asked[..], &["--tools", "gesta.toml", "--json"]].concat();
    let report = world.gesta(&with).json();
    assert_eq!((&report["undecided"], &report["passed_over"]), (&0.into(), &serde_json::json!([])));
    assert_eq!(report["otherwise"].as_array().unwrap().len(), 1);
    // What fits nothing is a mistake.
    let refused = world.gesta(&["replay", &before, "--policy", "no-new.cedar"]).expect(2);
    assert!(refused.err.contains("--tools gesta.toml"), "{}", refused.err);
}

/// The bundles of a part of the vectors.
fn vectors(part: &str) -> Vec<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(part);
    let files = std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path());
    let mut bundles: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "tar")).collect();
    bundles.sort();
    bundles
}

/// Whoever has a newer program can still tell that what an older one wrote follows. What is derived has every kind
/// of entry in it: a new kind comes with a run that writes it.
#[test]
fn what_every_version_has_written_is_derived_again_byte_for_byte() {
    let runs = vectors("runs");
    assert!(!runs.is_empty());
    let mut kinds = BTreeSet::new();
    let (mut committed, mut erased) = (0, false);
    for bundle in runs {
        let world = World::new();
        let (file, trust) = (bundle.display().to_string(), bundle.with_extension("trust.json"));
        let report = audit(&bundle, &trust);
        assert_eq!(report.verdict, Verdict::Sound, "{file}: {report}");
        let replayed = |which: &str| {
            let told = world.gesta(&["replay", which, "--bundle", &file, "--json"]).json();
            told["replays"].as_array().unwrap().clone()
        };
        let replays = replayed("--all");
        assert_eq!(replays.len(), report.trajectories.len() - 1, "all but the registry: {file}");
        for replay in &replays {
            assert_eq!(replay["run_hash"], replay["replay_hash"], "{file}");
            committed += replay["committed"].as_u64().unwrap();
            erased |= replay["erased"] == true;
        }
        let registry = report.trajectories.iter().map(|line| line.trajectory.to_string());
        let registry: Vec<String> = registry
            .filter(|id| replays.iter().all(|replay| replay["trajectory"] != **id))
            .collect();
        for replay in replays.iter().chain(&replayed(&registry.concat())) {
            assert_eq!(replay["session"], "complete", "{file}: {replay:#}");
            let counts = ["derived", "given"].map(|part| replay[part].as_object().unwrap());
            let entries = counts.iter().flat_map(|counts| counts.values());
            let entries: u64 = entries.map(|count| count.as_u64().unwrap()).sum();
            assert_eq!(Some(entries), replay["entries"].as_u64(), "{file}");
            kinds.extend(counts.iter().flat_map(|counts| counts.keys().cloned()));
        }
        // What goes into a store comes out of it as it was written elsewhere.
        let trust = trust.display().to_string();
        world.gesta(&["--store", "s.db", "import", &file, "--trust", &trust]).ok();
        world.gesta(&["--store", "s.db", "export", "--all", "--unsealed", "-o", "out.tar"]).ok();
        assert!(std::fs::read(world.path("out.tar")).unwrap() == std::fs::read(bundle).unwrap());
    }
    let missing: Vec<&Kind> =
        Kind::ALL.iter().filter(|kind| !kinds.contains(kind.as_str())).collect();
    assert!(missing.is_empty(), "no run in `vectors/runs` has {missing:?}");
    assert!(committed > 0 && erased, "something sensitive, and erased");
}

/// Digests that say of the whole what is not so, in chains that are hashed anew from there on: each is found where
/// it stands, with what it should be.
#[test]
fn a_digest_of_something_else_is_found_where_it_stands() {
    let bundle =
        vectors("runs").into_iter().find(|path| path.ends_with("gesta-0.1.0-aftermath.tar"));
    let bundle = bundle.unwrap();
    let trust = bundle.with_extension("trust.json").display().to_string();
    let world = World::new();
    let gesta = |args: &[&str]| world.gesta(&[&["--store", "gesta.db"], args].concat());
    gesta(&["import", &bundle.display().to_string(), "--trust", &trust]).ok();
    let replays = gesta(&["replay", "--all", "--json"]).json()["replays"].clone();
    let with = |kind: &str| {
        let has = |replay: &&Value| replay["derived"].get(kind).is_some();
        replays.as_array().unwrap().iter().find(has).unwrap()["trajectory"].as_str().unwrap()
    };
    let wrong = "f".repeat(64);
    for (kind, field, cause) in [
        ("cancelled", "run_hash", "something else was done than what the end says"),
        ("completed", "run_hash", "something else was done than what the end says"),
        ("checkpoint", "world", "what was committed until here comes to another world"),
        ("plan", "hash", "the plan is named by another hash than that of its steps"),
    ] {
        let id = with(kind);
        let (mut at, mut right) = (0, Value::Null);
        rewrite(&world, id, |lines| {
            at = lines.iter().position(|line| line["kind"] == kind).unwrap();
            right = lines[at]["body"][field].take();
            lines[at]["body"][field] = wrong.clone().into();
        });
        let told = gesta(&["replay", id, "--json"]).expect(7);
        let report: Value = serde_json::from_str(&told.out).unwrap();
        let found = &report["replays"][0]["session"]["diverged"];
        assert_eq!((&found["seq"], &found["kind"]), (&at.into(), &kind.into()), "{report:#}");
        assert_eq!(found["pointer"], format!("/body/{field}"), "{report:#}");
        assert_eq!((&found["recorded"], &found["derived"]), (&wrong.clone().into(), &right));
        assert_eq!(found["cause"], cause);
        gesta(&["replay", id, "--until", &(at - 1).to_string()]).ok();
        rewrite(&world, id, |lines| lines[at]["body"][field] = right);
        gesta(&["replay", id]).ok();
    }
}

/// The others were made by hand, without tools and policies: a replay says what it lacks or what is wrong, and
/// takes none of them for one that follows.
#[test]
fn a_bundle_that_cannot_be_derived_says_why() {
    let world = World::new();
    let mut said = BTreeMap::new();
    for bundle in vectors("bundles") {
        let file = bundle.display().to_string();
        let told = world.gesta(&["replay", "--all", "--bundle", &file]);
        let whole = format!("{file}: {:?}\n{}{}", told.code, told.out, told.err);
        if verdict(&bundle) == "sound" {
            assert!(told.code == Some(5) && told.out.contains(" is not at hand"), "{whole}");
        }
        // Who signed it is not asked, and a root derives from nothing.
        let derived = told.out.contains("complete: ") && !told.out.contains(" 0 derived again");
        assert!(matches!(told.code, Some(0 | 3..=6)) && !derived, "{whole}");
        said.insert(bundle.file_stem().unwrap().to_string_lossy().into_owned(), told);
    }
    let says = |name: &str, code, what: &str| {
        let told = &said[name];
        assert_eq!(told.code, Some(code), "{name}: {}", told.err);
        assert!(told.err.contains(what), "{name}: {}", told.err);
    };
    says("branch-of-itself", 3, "branches from itself");
    says("missing-source", 5, "which is not here");
    says("future-version", 6, "format version 2 is not known");
    says("unknown-kind", 3, "`foresight`");
    says("reordered", 3, "the bundle was altered");
    says("orphan", 3, "which alone may hand on a part of what it may");
}

/// The verdict that is expected of a bundle.
fn verdict(bundle: &Path) -> String {
    let report = std::fs::read(bundle.with_extension("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    report["verdict"].as_str().unwrap_or_default().to_owned()
}
