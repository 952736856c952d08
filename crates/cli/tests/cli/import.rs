//! `gesta import`: what goes in is what came out, once it is verified, and nothing by accident.

use gesta_verify::report::Verdict;

use crate::branch::{JOB, branch, shop, world};
use crate::export::audit;
use crate::world::World;

const EXPORT: [&str; 5] = ["export", "--all", "--force", "--unsealed", "-o"];

/// Exports everything from a store.
fn export(world: &World, store: Option<&str>, file: &str) -> Vec<u8> {
    let store = store.map_or(vec![], |store| vec!["--store", store]);
    world.gesta(&[&store[..], &EXPORT, &[file]].concat()).ok();
    std::fs::read(world.path(file)).unwrap()
}

/// Imports into a store that is a file, away from any workspace.
fn import(world: &World, file: &str, store: &str, more: &[&str]) -> crate::world::Ran {
    let arguments = ["--store", store, "import", file, "--trust", "trust.json", "--json"];
    world.gesta(&[&arguments, more].concat())
}

/// Jobs with branches, children and approvals, all of them ended.
pub(crate) fn history() -> World {
    let (world, source) = shop();
    let recorded = branch(&world, &source, &["--at", "charge", "--mode", "recorded"]);
    world.gesta(&["resume", &recorded]).ok();
    let asked = branch(&world, &recorded, &["--at", "again"]);
    world.gesta(&["worker", "--once"]).ok();
    world.gesta(&["approve", &format!("{asked}/ship")]).ok();
    world.gesta(&["resume", &asked]).ok();
    world.write("child.yaml", "job: child\nsteps:\n  - { id: act, tool: act, args: { n: 9 } }\n");
    world.write("parent.yaml", "job: p\nsteps:\n  - { id: ask, delegate: { job: child.yaml } }\n");
    world.gesta(&["run", "parent.yaml"]).ok();
    world
}

#[test]
fn what_goes_in_is_what_came_out() {
    let world = history();
    let bytes = export(&world, None, "all.gesta");
    let first = import(&world, "all.gesta", "other.db", &[]).json();
    assert_eq!((&first["new"], &first["extended"]), (&6.into(), &0.into()), "{first}");
    assert!(first["entries"].as_u64().unwrap() > 40, "{first}");
    assert_eq!(export(&world, Some("other.db"), "again.gesta"), bytes);
    world.gesta(&["--store", "other.db", "verify", "--trust", "trust.json"]).ok();
    // Its rows are those that the chains would be rebuilt to.
    world.gesta(&["--store", "other.db", "doctor"]).ok();
    let rows = |store: &[&str]| world.gesta(&[store, &["log", "--json"]].concat()).ok();
    assert_eq!(rows(&["--store", "other.db"]), rows(&[]));

    let second = import(&world, "all.gesta", "other.db", &[]).json();
    assert_eq!((&second["new"], &second["entries"]), (&0.into(), &0.into()), "{second}");
    assert_eq!(export(&world, Some("other.db"), "again.gesta"), bytes);
}

/// What a process that was killed leaves behind is some whole trajectories and some blobs.
#[test]
fn an_import_that_was_cut_off_goes_on() {
    let world = history();
    let bytes = export(&world, None, "all.gesta");
    for (number, job) in world.jobs().iter().enumerate() {
        let (part, store) = (format!("part-{number}.gesta"), format!("store-{number}.db"));
        world.gesta(&["export", job, "--unsealed", "-o", &part]).ok();
        import(&world, &part, &store, &[]).json();
        import(&world, "all.gesta", &store, &[]).json();
        assert_eq!(export(&world, Some(&store), "again.gesta"), bytes, "{job}");
    }
}

#[test]
fn what_has_grown_is_gone_on_with() {
    let (world, _) = shop();
    export(&world, None, "early.gesta");
    import(&world, "early.gesta", "other.db", &[]).json();
    world.gesta(&["keys", "add", "eve", "--roles", "approver"]).ok();
    let late = export(&world, None, "late.gesta");
    let told = import(&world, "late.gesta", "other.db", &[]).json();
    assert_eq!((&told["extended"], &told["entries"]), (&1.into(), &1.into()), "{told}");
    assert_eq!(export(&world, Some("other.db"), "again.gesta"), late);
    // A bundle that ends earlier than the store says nothing new.
    assert_eq!(import(&world, "early.gesta", "other.db", &[]).json()["entries"], 0);
    assert_eq!(export(&world, Some("other.db"), "again.gesta"), late);
}

#[test]
fn what_has_not_ended_is_refused_unless_it_is_meant() {
    let (world, source) = shop();
    branch(&world, &source, &["--at", "charge"]);
    world.gesta(&["worker", "--once"]).ok();
    let bytes = export(&world, None, "all.gesta");
    let refused = import(&world, "all.gesta", "other.db", &[]).expect(2);
    assert!(refused.err.contains("had not ended") && refused.err.contains("--open"));
    assert_eq!(world.gesta(&["--store", "other.db", "log", "--json"]).ok(), "");
    import(&world, "all.gesta", "other.db", &["--open"]).json();
    assert_eq!(export(&world, Some("other.db"), "again.gesta"), bytes);
    // Whoever is to agree to something is told here too.
    assert_ne!(world.gesta(&["--store", "other.db", "notices", "--json"]).ok(), "");
}

#[test]
fn what_differs_from_what_is_there_is_refused() {
    let world = world(JOB);
    let id = world.gesta(&["submit", "job.yaml", "--input", "who=ada"]).ok().trim().to_owned();
    export(&world, None, "open.gesta");
    import(&world, "open.gesta", "other.db", &["--open"]).json();
    // Both stores go on with it.
    world.gesta(&["--store", "other.db", "cancel", &id]).ok();
    world.gesta(&["resume", &id]).ok();
    export(&world, None, "done.gesta");
    let before = export(&world, Some("other.db"), "before.gesta");
    let refused = import(&world, "done.gesta", "other.db", &[]).expect(3);
    let told = format!("entry 2 of {id} is another one here");
    assert!(refused.err.contains(&told), "{}", refused.err);
    assert_eq!(export(&world, Some("other.db"), "after.gesta"), before);
}

#[test]
fn what_does_not_hold_is_refused() {
    let (world, _) = shop();
    let bytes = export(&world, None, "all.gesta");
    let place = bytes.windows(5).rposition(|window| window == b"\"ada\"").unwrap();
    let mut forged = bytes.clone();
    forged[place + 1] = b'e';
    std::fs::write(world.path("forged.gesta"), forged).unwrap();
    let refused = import(&world, "forged.gesta", "other.db", &[]).expect(3);
    assert!(refused.err.contains("nothing was imported"), "{}", refused.err);
    let stranger = World::with_workspace();
    std::fs::copy(stranger.path("trust.json"), world.path("stranger.json")).unwrap();
    let arguments = ["--store", "other.db", "import", "all.gesta", "--trust", "stranger.json"];
    let refused = world.gesta(&arguments);
    assert!(refused.code.unwrap() > 2, "{}", refused.err);
    assert!(!world.path("other.db").exists(), "nothing was made");
    let cut = &bytes[..bytes.len() / 2];
    std::fs::write(world.path("cut.gesta"), cut).unwrap();
    import(&world, "cut.gesta", "other.db", &[]).expect(3);
    assert!(!world.path("other.db").exists());
}

#[cfg(feature = "postgres")]
#[test]
fn a_bundle_travels_from_a_file_to_postgres_and_back() {
    let database = crate::postgres::Database::new("import");
    let url = database.url();
    let world = history();
    let bytes = export(&world, None, "all.gesta");
    for new in [6, 0] {
        assert_eq!(import(&world, "all.gesta", &url, &[]).json()["new"], new);
        assert_eq!(export(&world, Some(&url), "postgres.gesta"), bytes);
    }
    world.gesta(&["--store", &url, "doctor"]).ok();
    let report = audit(&world.path("postgres.gesta"), &world.path("trust.json"));
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    import(&world, "postgres.gesta", "back.db", &[]).json();
    assert_eq!(export(&world, Some("back.db"), "back.gesta"), bytes);
}
