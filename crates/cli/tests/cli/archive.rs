//! Archiving through the front door: what leaves the store reads as before, comes back byte for byte, and
//! is never nowhere, whatever dies when.

use gesta_core::amounts::Amounts;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::document::{CallResult, Certainty, EffectReport, Failing};
use gesta_core::keys::PrivateKey;
use gesta_core::signed::{Signed, Tag};
use gesta_core::time::UnixMs;
use gesta_store::Store as _;
use gesta_store::sqlite::{Options, SqliteStore};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::branch::{branch, shop};
use crate::import::history;
use crate::sensitive;
use crate::world::World;

const ARCHIVE: [&str; 5] = ["archive", "--older-than", "0s", "--to", "archive"];

fn store(world: &World) -> Connection {
    Connection::open(world.path("gesta.db")).unwrap()
}

/// Somebody who was cut off tells what they saw of a trajectory.
fn report_about(world: &World, id: &str) {
    let key = PrivateKey::from_seed(&[2; 32]);
    let report = EffectReport {
        at: UnixMs(1),
        key: key.id(),
        result: CallResult::Failed {
            certainty: Certainty::Happened,
            cost: Amounts::ONE_CALL,
            error: Failing { code: "late".into(), message: "late".into() },
            retryable: false,
        },
        started: EntryId::new(Digest::of(b"started")),
        step: "ship".parse().unwrap(),
        trajectory: id.parse().unwrap(),
        type_: Tag::default(),
    };
    let store = SqliteStore::open(world.path("gesta.db"), Options::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.put_effect(&Signed::sign(report, &key).unwrap())).unwrap();
}

/// How many entries of jobs are in the store.
fn here(world: &World) -> i64 {
    let sql = "SELECT count(*) FROM entries JOIN trajectories USING (trajectory)
        WHERE kind <> 'registry'";
    store(world).query_row(sql, [], |row| row.get(0)).unwrap()
}

fn archived(world: &World) -> Vec<Value> {
    let rows = world.gesta(&["jobs", "--archived", "--json"]).json_lines();
    rows.into_iter().filter(|row| !row["archived"].is_null()).collect()
}

/// The bundles in a directory.
fn bundles(world: &World, directory: &str) -> Vec<String> {
    let Ok(files) = std::fs::read_dir(world.path(directory)) else { return Vec::new() };
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".gesta")).collect()
}

fn everything(world: &World) -> Vec<u8> {
    world.gesta(&["export", "--all", "--unsealed", "--force", "-o", "all.gesta"]).ok();
    std::fs::read(world.path("all.gesta")).unwrap()
}

/// What is shown of jobs.
fn views(world: &World, jobs: &[String]) -> Vec<String> {
    let mut views = Vec::new();
    for job in jobs {
        let entry = format!("{job}:1");
        for arguments in [
            &["log", job, "--json"][..],
            &["show", &entry],
            &["tree", job],
            &["verify", job, "--json"],
            &["replay", job],
        ] {
            views.push(world.gesta(arguments).ok());
        }
        let id = world.gesta(&["log", job, "--json"]).json_lines()[1]["id"].clone();
        views.push(world.gesta(&["show", id.as_str().unwrap()]).ok());
        views.push(world.gesta(&["diff", job, &jobs[0]]).out);
    }
    views
}

#[test]
fn what_is_archived_reads_as_before_and_comes_back_byte_for_byte() {
    let world = history();
    world.gesta(&["seal"]).ok();
    let (jobs, before) = (world.jobs(), everything(&world));
    let (shown, rows) = (views(&world, &jobs), here(&world));
    let dry = world.gesta(&[&ARCHIVE[..], &["--dry-run", "--json"]].concat()).json();
    assert_eq!(dry["archived"].as_array().unwrap().len(), jobs.len());
    assert_eq!((here(&world), bundles(&world, "archive").len()), (rows, 0));

    let told = world.gesta(&[&ARCHIVE[..], &["--json"]].concat()).json();
    assert_eq!(told["archived"], dry["archived"]);
    assert_eq!((&told["left"], &told["dry_run"]), (&json!([]), &json!(false)));
    assert_eq!(here(&world), 0);
    assert_eq!(bundles(&world, "archive").len(), 1);
    assert_eq!(world.jobs(), Vec::<String>::new());
    let listed = archived(&world);
    assert_eq!(listed.len(), jobs.len());
    assert!(listed.iter().all(|row| row["archived"] == told["file"] && !row["job"].is_null()));
    assert_eq!(views(&world, &jobs), shown);
    assert_eq!(everything(&world), before);
    world.gesta(&["verify", "--sealed"]).ok();
    world.gesta(&["verify", "--here"]).ok();
    world.gesta(&["proof", &format!("{}:3", jobs[0])]).ok();
    assert_eq!(world.gesta(&["seal"]).ok(), "nothing is new\n");
    assert!(world.gesta(&["doctor"]).ok().contains("5 trajectories in 1 bundle, all there"));
    world.gesta(&["worker", "--once"]).ok();
    let again = world.gesta(&[&ARCHIVE[..], &["--json"]].concat()).json();
    assert_eq!((&again["archived"], &again["file"]), (&json!([]), &Value::Null));

    let back = world.gesta(&["archive", "--restore", &jobs[0], "--json"]).json();
    assert_eq!(back["restored"][0]["trajectory"], json!(jobs[0]));
    assert_eq!(world.jobs(), [jobs[0].clone()]);
    let imported = world.gesta(&["import", told["file"].as_str().unwrap(), "--json"]).json();
    assert_eq!((&imported["restored"], &imported["new"]), (&json!(4), &json!(0)), "{imported}");
    std::fs::remove_dir_all(world.path("archive")).unwrap();
    assert_eq!((world.jobs(), everything(&world)), (jobs.clone(), before));
    assert_eq!(views(&world, &jobs), shown);
    world.gesta(&["verify", "--sealed"]).ok();
    world.gesta(&["doctor"]).ok();
}

#[test]
fn a_bundle_that_is_away_is_named_and_stops_nobody_else() {
    let world = history();
    world.gesta(&["seal"]).ok();
    let jobs = world.jobs();
    let proved = |world: &World| world.gesta(&["proof", &format!("{}:3", jobs[0])]).json();
    let proof = proved(&world);
    world.gesta(&ARCHIVE).ok();
    let bundle = archived(&world)[0]["archived"].as_str().unwrap().to_owned();
    std::fs::rename(world.path("archive"), world.path("away")).unwrap();
    for arguments in [
        &["log", &jobs[0]][..],
        &["show", &format!("{}:2", jobs[0])],
        &["replay", &jobs[0]],
        &["diff", &jobs[0], &jobs[1]],
        &["tree", &jobs[0]],
        &["export", &jobs[0], "-o", "one.gesta"],
        &["branch", &jobs[0], "--at", "charge", "--submit"],
        &["archive", "--restore", &jobs[0]],
    ] {
        let told = world.gesta(arguments).expect(5);
        let says = |what: &str| told.err.contains(what);
        assert!(says(&bundle) && says("which is not there"), "{arguments:?}: {}", told.err);
        assert!(says("`gesta import FILE`") && says("put the file back"), "{}", told.err);
    }
    let told = world.gesta(&["verify"]).expect(5);
    assert!(told.out.contains("(archived)") && told.out.contains(&bundle), "{}", told.out);
    world.gesta(&["verify", "--here", "--sealed"]).ok();
    assert!(world.gesta(&["doctor"]).expect(1).out.contains("with 5 trajectories is not there"));
    assert_eq!(archived(&world).len(), 5);
    world.gesta(&["seal"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    // The log holds it all the same.
    assert_eq!(proved(&world)["entry"], proof["entry"]);
    world.gesta(&["proof", &format!("{}:0a0a", jobs[0])]).expect(5);

    // Where the workspace keeps bundles it is found again, and one that was changed is not taken for it.
    let config = world.read("gesta.toml");
    std::fs::write(world.path("gesta.toml"), format!("{config}\n[retention]\nto = \"away\"\n"))
        .unwrap();
    world.gesta(&["verify", "--sealed"]).ok();
    world.gesta(&["doctor"]).ok();
    let file = world.path("away").join(&bundles(&world, "away")[0]);
    let mut bytes = std::fs::read(&file).unwrap();
    // The number of an entry: what it stands before is the end of every envelope.
    let end = format!(",\"trajectory\":\"{}\",\"v\":", jobs[0]).into_bytes();
    let place = bytes.windows(end.len()).rposition(|window| window == end).unwrap();
    bytes[place - 1] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(world.gesta(&["doctor"]).expect(1).out.contains("is not what was archived"));
    world.gesta(&["verify"]).expect(5);
}

/// Killed before the bundle is in its place, after it, and between two removals: nothing is lost, nothing is
/// claimed that is not so, and asking again finishes.
#[test]
fn an_archiving_that_is_killed_anywhere_goes_on() {
    let world = history();
    world.gesta(&["seal"]).ok();
    let (jobs, before) = (world.jobs(), everything(&world));
    for (cut, gone, left) in [
        ("archive_written", 0, 0),
        ("archive_durable", 0, 1),
        ("archive_removed:1", 1, 1),
        ("archive_removed:3", 3, 1),
        ("archive_removed:5", 5, 1),
    ] {
        let killed = world.gesta_with(&ARCHIVE, &[("GESTA_CUT", cut)]);
        assert_eq!(killed.code, None, "{cut}: it was not killed:\n{}", killed.err);
        assert_eq!(bundles(&world, "archive").len(), left, "{cut}");
        assert_eq!(archived(&world).len(), gone, "{cut}");
        assert_eq!(here(&world) == 0, gone == jobs.len(), "{cut}");
        world.gesta(&["verify", "--sealed"]).ok();
        world.gesta(&["doctor"]).ok();
        assert_eq!(everything(&world), before, "{cut}");

        world.gesta(&ARCHIVE).ok();
        assert_eq!((archived(&world).len(), here(&world)), (jobs.len(), 0), "{cut}");
        // What was whole when it was killed is used; the rest goes into another.
        let files = if gone == 0 || gone == jobs.len() { 1 } else { 2 };
        assert_eq!(bundles(&world, "archive").len(), files, "{cut}");
        assert_eq!(everything(&world), before, "{cut}");
        world.gesta(&["doctor"]).ok();
        world
            .gesta(
                &[
                    &["archive", "--restore"],
                    &jobs.iter().map(String::as_str).collect::<Vec<_>>()[..],
                ]
                .concat(),
            )
            .ok();
        assert_eq!((archived(&world).len(), everything(&world)), (0, before.clone()), "{cut}");
        std::fs::remove_dir_all(world.path("archive")).unwrap();
    }
}

#[test]
fn what_is_needed_is_left_and_told() {
    let (world, source) = shop();
    let asked = branch(&world, &source, &["--at", "charge"]);
    world.gesta(&["worker", "--once"]).ok();
    world.gesta(&["seal"]).ok();
    let registry = world.gesta(&["log", "--json"]).json_lines().into_iter();
    let mut registry = registry.map(|row| row["trajectory"].as_str().unwrap().to_owned());
    let registry = registry.find(|id| *id != source && *id != asked).unwrap();
    let why = |arguments: &[&str], code: i32| -> Vec<String> {
        let told = world.gesta(&[arguments, &["--to", "archive", "--json"]].concat()).expect(code);
        let told: Value = serde_json::from_str(&told.out).unwrap();
        assert_eq!(told["archived"], json!([]), "{told}");
        let left = told["left"].as_array().unwrap().iter();
        left.map(|left| {
            format!("{} {}", left["trajectory"].as_str().unwrap(), left["why"].as_str().unwrap())
        })
        .collect()
    };
    let mut both = why(&["archive", "--older-than", "0s"], 0);
    both.sort_by_key(|one| one.starts_with(&asked));
    assert!(
        both[0].contains(&format!("{source} {asked} is tied to it, and has not ended")),
        "{both:?}"
    );
    assert!(both[1].contains("it has not ended: it is parked"), "{both:?}");
    assert!(why(&["archive", &registry], 1)[0].contains("it is the registry"));
    assert!(why(&["archive", &source], 1)[0].contains("is tied to it"));

    world.gesta(&["cancel", &asked]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let early = ["archive", &source, "--before", "2020-01-01T00:00:00Z"];
    assert!(why(&early, 1)[0].contains("it has changed since then"));
    assert!(why(&["archive", &asked], 1)[0].contains("it is not sealed from entry"));
    world.gesta(&["seal"]).ok();
    report_about(&world, &asked);
    assert!(why(&["archive", &asked], 1)[0].contains("a report about it waits"));
    store(&world).execute("DELETE FROM effects", []).unwrap();

    let told = world.gesta(&["archive", &source, &asked, "-o", "one.gesta", "--json"]).json();
    assert_eq!(told["archived"].as_array().unwrap().len(), 2);
    assert!(why(&["archive", &asked], 0)[0].contains("it is archived already, in `"));
    assert!(world.gesta(&["archive"]).expect(2).err.contains("`archive_after` under [retention]"));
    let to = world.gesta(&["archive", "--older-than", "1d"]).expect(2);
    assert!(to.err.contains("`to` under [retention]"), "{}", to.err);
}

#[test]
fn retention_is_configured_and_the_file_can_be_made_smaller() {
    let tools = "[retention]\narchive_after = \"1ms\"\nto = \"kept/here\"\n[tools.big]\neffect = \"read\"\ndriver.process = { command = \"printf '\\\"'; head -c 400000 /dev/urandom | base64 -w0; printf '\\\"'\", shell = true, env = [\"PATH\"] }\n";
    let world = World::with_tools(tools);
    world.write("job.yaml", "job: big\nsteps:\n  - { id: one, tool: big }\n  - { id: two, tool: big }\nanswer: ${steps.one.result}\n");
    world.gesta(&["run", "job.yaml"]).ok();
    let (job, before) = (world.job(), everything(&world));
    let blobs = || -> i64 {
        let sql = "SELECT count(*) FROM blobs WHERE length(bytes) > 400000";
        store(&world).query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(blobs(), 2);
    world.gesta(&["archive", "--json"]).ok();
    assert_eq!((archived(&world).len(), blobs()), (1, 2), "blobs that were put today stay");
    world.gesta(&["archive", "--restore", &job]).ok();
    store(&world).execute("UPDATE blobs SET put_at = 1", []).unwrap();
    let told = world.gesta(&["archive", "--json"]).json();
    assert_eq!((&told["blobs"], blobs()), (&json!(2), 0));
    let size = |told: &Value, key: &str| told["store"][key].as_u64().unwrap();
    assert!(size(&told, "free") > 1_000_000, "{told}");
    assert_eq!(everything(&world), before);
    world.gesta(&["replay", &job]).ok();

    let file = || std::fs::metadata(world.path("gesta.db")).unwrap().len();
    let large = file();
    let told = world.gesta(&["archive", "--vacuum", "--json"]).json();
    assert!(file() + 1_000_000 < large, "{} after {large}: {told}", file());
    assert_eq!(size(&told, "free"), 0);
    assert!(size(&told, "bytes_after") < size(&told, "bytes_before"), "{told}");
    world.gesta(&["archive", "--restore", &job]).ok();
    assert_eq!((everything(&world), blobs()), (before, 2));
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_blob_that_something_else_names_stays() {
    let tools = r#"
[retention]
archive_after = "1ms"
to = "kept"
[tools.big]
effect = "read"
driver.process = { command = 'printf "\""; head -c 300000 /dev/zero | tr "\0" x; printf "\""', shell = true, env = ["PATH"] }
"#;
    let world = World::with_tools(tools);
    world.write("job.yaml", "job: big\nsteps:\n  - { id: one, tool: big }\n");
    for _ in 0..2 {
        world.gesta(&["run", "job.yaml"]).ok();
    }
    let (jobs, before) = (world.jobs(), everything(&world));
    store(&world).execute("UPDATE blobs SET put_at = 1", []).unwrap();
    let first = world.gesta(&["archive", &jobs[0], "--json"]).json();
    assert_eq!(first["blobs"], json!(0), "{first}");
    std::fs::rename(world.path("kept"), world.path("away")).unwrap();
    world.gesta(&["verify", &jobs[1]]).ok();
    std::fs::rename(world.path("away"), world.path("kept")).unwrap();
    let second = world.gesta(&["archive", "--json"]).json();
    // What the tool returned, and the answer that holds it.
    assert_eq!((&second["archived"], &second["blobs"]), (&json!([jobs[1]]), &json!(2)));
    assert_eq!(everything(&world), before);
}

#[test]
fn a_chain_that_was_altered_is_not_archived() {
    let (world, source) = shop();
    world.gesta(&["seal"]).ok();
    let rows = here(&world);
    let sql = "UPDATE entries SET bytes = CAST(replace(bytes, '\"ada\"', '\"eve\"') AS BLOB)";
    store(&world).execute(sql, []).unwrap();
    world.gesta(&["archive", &source, "-o", "one.gesta"]).expect(3);
    assert_eq!((here(&world), archived(&world).len()), (rows, 0));
    assert!(!world.path("one.gesta").exists());
}

#[test]
fn a_file_that_is_there_is_never_replaced() {
    let (world, source) = shop();
    world.gesta(&["seal"]).ok();
    let (rows, registry) = (here(&world), world.gesta(&["log", "--json"]).json_lines());
    let registry = registry.iter().find(|row| row["summary"]["kind"] == "registry").unwrap();
    let registry = registry["trajectory"].as_str().unwrap();
    world.gesta(&["export", registry, "-o", "other.gesta"]).ok();
    let bytes = std::fs::read(world.path("other.gesta")).unwrap();
    let told = world.gesta(&["archive", &source, "-o", "other.gesta"]).expect(1);
    assert!(told.err.contains("exists already, and something else is in it"), "{}", told.err);
    assert_eq!(std::fs::read(world.path("other.gesta")).unwrap(), bytes);
    assert_eq!(here(&world), rows);
}

#[test]
fn a_branch_begins_at_what_is_archived() {
    let (world, source) = shop();
    world.gesta(&["seal"]).ok();
    world.gesta(&ARCHIVE).ok();
    let made = branch(&world, &source, &["--at", "charge", "--mode", "recorded"]);
    world.gesta(&["resume", &made]).ok();
    assert_eq!(archived(&world).len(), 1, "reading brings nothing back");
    world.gesta(&["seal"]).ok();
    let told = world.gesta(&[&ARCHIVE[..], &["--json"]].concat()).json();
    assert_eq!(told["archived"], json!([made]));
    // Each bundle holds all that its trajectories rest on.
    let bundle = told["file"].as_str().unwrap();
    world.gesta(&["--store", "other.db", "import", bundle, "--trust", "trust.json"]).ok();
    world.gesta(&["--store", "other.db", "verify", &made, "--trust", "trust.json"]).ok();
    world.gesta(&["verify", "--sealed"]).ok();
}

/// What is added to an archived trajectory brings it back first; without its bundle nothing is done at all.
#[test]
fn what_is_archived_can_still_be_erased() {
    let world = sensitive::world();
    let id = sensitive::greeted(&world);
    world.gesta(&["seal"]).ok();
    world.gesta(&ARCHIVE).ok();
    let erase = ["erase", &id, "--reason", "asked for"];
    std::fs::rename(world.path("archive"), world.path("away")).unwrap();
    assert!(world.gesta(&erase).expect(5).err.contains("which is not there"));
    std::fs::rename(world.path("away"), world.path("archive")).unwrap();
    assert!(
        world.gesta(&["log", &id, "--reveal"]).ok().contains("example.org"),
        "the key is there"
    );

    world.gesta(&erase).ok();
    assert_eq!((world.jobs(), archived(&world).len()), (vec![id.clone()], 0), "it is back");
    assert_eq!(world.kinds(&id).last().unwrap(), "erased");
    assert!(world.gesta(&["verify", &id]).ok().contains("erased"));
    let first = bundles(&world, "archive");
    world.gesta(&["seal"]).ok();
    world.gesta(&ARCHIVE).ok();
    assert_eq!(bundles(&world, "archive").len(), 2);
    assert!(world.gesta(&["verify", "--sealed"]).ok().contains("erased"));
    // The bundle from before holds commitments only, and is the beginning of what there is now.
    let first = format!("archive/{}", first[0]);
    world.gesta(&["--store", "other.db", "import", &first, "--trust", "trust.json"]).ok();
    assert!(!world.gesta(&["log", &id, "--reveal"]).out.contains("example.org"));
}

#[test]
fn a_backup_knows_what_is_archived() {
    let (world, source) = shop();
    world.gesta(&["seal"]).ok();
    world.gesta(&["worker", "--once"]).ok();
    let before = everything(&world);
    world.gesta(&ARCHIVE).ok();
    world.gesta(&["backup", "copy.db"]).ok();
    world.gesta(&["archive", "--restore", &source]).ok();
    world.gesta(&["restore", "copy.db", "--force"]).ok();
    assert_eq!(archived(&world).len(), 1);
    assert_eq!(everything(&world), before);
    world.gesta(&["worker", "--once"]).ok();
    assert_eq!(world.gesta(&["release", "--json"]).ok(), "", "nothing is held");
}

#[cfg(feature = "postgres")]
#[test]
fn archiving_on_postgres_is_the_same() {
    let database = crate::postgres::Database::new("archive");
    let (url, world) = (database.url(), World::with_examples());
    let run = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    run(&["run", "examples/refund/job.yaml", "--input", "order=1042"]).ok();
    run(&["run", "examples/refund/job.yaml", "--input", "order=1042"]).ok();
    let export = || {
        run(&["export", "--all", "--unsealed", "--force", "-o", "all.gesta"]).ok();
        std::fs::read(world.path("all.gesta")).unwrap()
    };
    let here = || {
        database.count(
            "SELECT count(*) FROM entries JOIN trajectories USING (trajectory) WHERE kind = 'job'",
        )
    };
    let (before, rows) = (export(), here());
    for cut in ["archive_written", "archive_durable", "archive_removed:1"] {
        let killed = world.gesta_with(&ARCHIVE, &[("GESTA_STORE", &url), ("GESTA_CUT", cut)]);
        assert_eq!(killed.code, None, "{cut}: it was not killed:\n{}", killed.err);
        assert_eq!(here() == rows, cut != "archive_removed:1", "{cut}");
        assert_eq!(export(), before, "{cut}");
    }
    let told = run(&[&ARCHIVE[..], &["--json"]].concat()).json();
    assert_eq!((told["archived"].as_array().unwrap().len(), here()), (1, 0), "{told}");
    assert!(told["store"]["bytes_after"].as_u64().unwrap() > 0);
    assert_eq!(run(&["jobs", "--json"]).ok(), "");
    assert_eq!(run(&["jobs", "--archived", "--json"]).json_lines().len(), 2);
    assert_eq!(export(), before);
    for arguments in [&["verify", "--sealed"][..], &["doctor"], &["seal"], &["worker", "--once"]] {
        run(arguments).ok();
    }
    assert!(run(&[&ARCHIVE[..], &["--vacuum"]].concat()).expect(2).err.contains("VACUUM FULL"));
    for file in bundles(&world, "archive") {
        run(&["import", &format!("archive/{file}")]).ok();
    }
    std::fs::remove_dir_all(world.path("archive")).unwrap();
    assert_eq!((export(), here()), (before, rows));
}
