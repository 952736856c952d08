//! Stores that cannot be written: what only reads, reads them; what writes says that it cannot.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use crate::sample;
use crate::world::{Ran, World};

/// The sample's job that waits.
const JOB: &str = "t_a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";

const READS: [&[&str]; 7] = [
    &["log", "--json"],
    &["log", JOB],
    &["show", "t_a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1:0"],
    &["jobs", "--json"],
    &["calls", "--json"],
    &["doubts", "--json"],
    &["verify", "--trust", "../t.json"],
];

/// A store in a directory of its own.
fn stored() -> World {
    let world = World::new();
    for directory in ["kept", "out"] {
        fs::create_dir(world.path(directory)).unwrap();
    }
    set_mode(&world.path("out"), 0o777);
    let trust = sample::write_file(&world.path("kept/s.db"));
    fs::write(world.path("t.json"), serde_json::to_vec(&trust).unwrap()).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_gesta"), world.path("gesta"))
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_gesta"), world.path("gesta")).map(drop))
        .unwrap();
    set_mode(&world.path(""), 0o755);
    world
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs the program on the store. Root writes where it likes, so as root this is somebody else.
fn gesta(world: &World, arguments: &[&str]) -> Ran {
    let mut command = world.command_of(&world.path("gesta"));
    command.current_dir(world.path("kept")).args(["--store", "s.db"]).args(arguments);
    if fs::metadata(world.path("")).unwrap().uid() == 0 {
        command.uid(65_534).gid(65_534);
    }
    world.ran(&mut command)
}

#[test]
fn what_only_reads_needs_not_write() {
    let world = stored();
    let (file, directory) = (world.path("kept/s.db"), world.path("kept"));
    let open = |arguments: &[&str]| {
        let mut command = world.command();
        command.current_dir(&directory).args(["--store", "s.db"]).args(arguments);
        world.ran(&mut command)
    };
    open(&["export", "--all", "-o", "../out/expected"]).expect(0);
    let exported = fs::read(world.path("out/expected")).unwrap();
    let expected: Vec<String> =
        READS.iter().map(|arguments| whole(&open(arguments).expect(0))).collect();
    assert!(!world.path("kept/s.db-wal").exists());
    let before = fs::read(&file).unwrap();
    for (file_mode, directory_mode) in [(0o444, 0o755), (0o444, 0o555), (0o666, 0o555)] {
        set_mode(&file, file_mode);
        set_mode(&directory, directory_mode);
        for (arguments, expected) in READS.iter().zip(&expected) {
            let ran = gesta(&world, arguments).expect(0);
            assert_eq!(&whole(&ran), expected, "{arguments:?}");
        }
        let file = format!("../out/{file_mode:o}-{directory_mode:o}");
        gesta(&world, &["export", "--all", "-o", &file]).expect(0);
        assert_eq!(fs::read(directory.join(file)).unwrap(), exported);
        let refused = gesta(&world, &["cancel", JOB]).expect(1);
        assert!(refused.err.contains("cannot be written"), "{}", refused.err);
    }
    assert_eq!(fs::read(&file).unwrap(), before);
    set_mode(&directory, 0o755);
}

/// What it printed, but for how long it took.
fn whole(ran: &Ran) -> String {
    ran.out.lines().filter(|line| !line.contains("verified in")).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_was_written_last_is_not_left_out() {
    let world = stored();
    let (file, directory) = (world.path("kept/s.db"), world.path("kept"));
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute("INSERT INTO turns (tenant, given) VALUES ('acme', 1)", []).unwrap();
    let log = fs::read(world.path("kept/s.db-wal")).unwrap();
    let held = fs::read(&file).unwrap();
    drop(db);
    fs::write(&file, held).unwrap();
    fs::write(world.path("kept/s.db-wal"), log).unwrap();
    set_mode(&file, 0o444);
    set_mode(&world.path("kept/s.db-wal"), 0o444);
    set_mode(&directory, 0o555);
    let refused = gesta(&world, &["log"]).expect(1);
    assert!(refused.err.contains("what was written last is in `s.db-wal`"), "{}", refused.err);
    assert!(refused.err.contains("copy both files"), "{}", refused.err);
    set_mode(&directory, 0o755);
}

/// The file as an older version had it.
fn made_older(file: &Path) {
    let db = rusqlite::Connection::open(file).unwrap();
    db.execute_batch(
        "DROP TABLE turns; ALTER TABLE workers DROP COLUMN limits; PRAGMA user_version = 8",
    )
    .unwrap();
}

fn version(file: &Path) -> u32 {
    let db = rusqlite::Connection::open(file).unwrap();
    db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// What only reads leaves the tables of an older program as they are, whether it could write or not; what writes
/// brings them up to date.
#[test]
fn what_only_reads_changes_no_schema() {
    let world = stored();
    let (file, directory) = (world.path("kept/s.db"), world.path("kept"));
    let open = |arguments: &[&str]| {
        let mut command = world.command();
        command.current_dir(&directory).args(["--store", "s.db"]).args(arguments);
        world.ran(&mut command)
    };
    let expected: Vec<String> =
        READS.iter().map(|arguments| whole(&open(arguments).expect(0))).collect();
    made_older(&file);
    let before = fs::read(&file).unwrap();
    for (file_mode, directory_mode) in [(0o666, 0o777), (0o444, 0o555)] {
        set_mode(&file, file_mode);
        set_mode(&directory, directory_mode);
        for (arguments, expected) in READS.iter().zip(&expected) {
            let ran = gesta(&world, arguments).expect(0);
            assert_eq!(&whole(&ran), expected, "{arguments:?}");
        }
        let examined = gesta(&world, &["doctor"]).expect(0);
        assert!(examined.out.contains("schema version 8 of 10"), "{}", examined.out);
        assert!(fs::read(&file).unwrap() == before, "it was changed");
        assert!(!world.path("kept/s.db-wal").exists());
    }
    set_mode(&directory, 0o777);
    set_mode(&file, 0o666);
    gesta(&world, &["cancel", JOB]).expect(0);
    assert_eq!(version(&file), 10);
    let examined = gesta(&world, &["doctor"]);
    assert!(examined.out.contains("its schema is current"), "{}", examined.out);
}

/// Every command of a workspace that changes nothing.
#[test]
fn looking_at_a_workspace_changes_no_schema() {
    let world = World::with_tools(
        "[tools.look]\neffect = \"read\"\ndriver.process = { command = [\"true\"] }\n",
    );
    world.write("job.yaml", "job: look\nsteps:\n  - { id: it, set: \"${1}\" }\n");
    world.gesta(&["run", "job.yaml"]).ok();
    let job = world.job();
    let first = format!("{job}:0");
    let file = world.path("gesta.db");
    made_older(&file);
    let reads: [&[&str]; 18] = [
        &["log"],
        &["show", &first],
        &["tree", &job],
        &["replay", &job],
        &["verify"],
        &["jobs"],
        &["calls"],
        &["workers"],
        &["approvals"],
        &["doubts"],
        &["notices"],
        &["keys", "list"],
        &["budget"],
        &["freeze"],
        &["quarantine"],
        &["policy", "show"],
        &["confirm", "--counts"],
        &["run", "job.yaml", "--dry-run"],
    ];
    for arguments in reads {
        world.gesta(arguments).expect(0);
        assert_eq!(version(&file), 8, "{arguments:?}");
    }
    world.gesta(&["doctor", "--rebuild"]).expect(0);
    assert_eq!(version(&file), 10);
}
