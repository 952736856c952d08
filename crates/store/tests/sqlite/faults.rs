//! Full disks, read-only files, failing writes, several processes. What needs a process of its own
//! (other limits, another user) runs this test binary again with the same test and a role.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use gesta_core::entry::Entry;
use gesta_core::time::UnixMs;
use gesta_store::sqlite::{Options, SqliteStore};
use gesta_store::{AppendError, Store as _, StoreError};

use super::open;
use crate::suite::{Job, fold};

const AT: UnixMs = UnixMs(1_000);

/// Set in a process that plays a part in a test: the store's path.
const STORE: &str = "GESTA_TEST_STORE";
/// The number of the process.
const NUMBER: &str = "GESTA_TEST_NUMBER";

pub(super) fn store_of_this_process() -> Option<PathBuf> {
    std::env::var_os(STORE).map(PathBuf::from)
}

/// What a process that plays a part in `test` has to be told.
pub(super) fn part(program: &mut Command, test: &str, store: &Path) {
    program.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(STORE, store);
}

pub(super) fn expect_success(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Appends until it fails, and says how many were acknowledged.
async fn append_until_it_fails(store: &SqliteStore, job: &mut Job) -> (u64, AppendError) {
    for count in 0..100_000 {
        let before = job.clone();
        if let Err(error) = store.append(job.signal(&format!("s-{count}"))).await {
            *job = before;
            return (count, error);
        }
    }
    panic!("nothing failed");
}

#[tokio::test]
async fn a_full_disk_refuses_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    let options = Options { max_bytes: Some(256 * 1024), ..Options::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    let mut job = Job::new(1, AT);
    store.append(job.begin()).await.unwrap();
    let (acknowledged, error) = append_until_it_fails(&store, &mut job).await;
    assert!(acknowledged > 100, "{acknowledged}");
    let place = path.display().to_string();
    assert_eq!(error, AppendError::Refused(StoreError::Full { place: place.clone() }));
    assert_eq!(store.put_blob(&[7; 100_000]).await, Err(StoreError::Full { place }));
    assert_eq!(fold(&store, job.id()).await, job.state);
    drop(store);

    let store = open(&path);
    assert_eq!(fold(&store, job.id()).await, job.state);
    store.append(job.signal("there-is-room-again")).await.unwrap();
    assert_eq!(fold(&store, job.id()).await, job.state);
}

/// A file system of this many bytes, seen by one process only. Whoever is not root makes it in a user
/// namespace.
fn on_a_small_disk(bytes: u64, disk: &Path) -> Command {
    let mut shell = Command::new("unshare");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        shell.arg("--map-root-user");
    }
    let mount = "mount -t tmpfs -o size=\"$0\" none \"$1\" && shift && exec \"$@\"";
    shell.args(["--mount", "sh", "-c", mount, &bytes.to_string()]).arg(disk);
    shell
}

/// A disk that fills up at any moment: while the file is made, while it is opened, while it grows.
#[tokio::test]
async fn a_disk_that_is_really_full_is_told_as_such() {
    const TEST: &str = "sqlite::faults::a_disk_that_is_really_full_is_told_as_such";
    if let Some(path) = store_of_this_process() {
        let mut job = Job::new(1, AT);
        let error = match SqliteStore::open(&path, Options::default()) {
            Err(error) => error,
            Ok(store) => match store.append(job.begin()).await {
                Err(AppendError::Refused(error)) => error,
                Err(other) => panic!("{other}"),
                Ok(_) => {
                    let (_, error) = append_until_it_fails(&store, &mut job).await;
                    assert_eq!(fold(&store, job.id()).await, job.state);
                    let AppendError::Refused(error) = error else { panic!("{error}") };
                    error
                }
            },
        };
        println!("\nrefused: {error}");
        return;
    }
    for kibibytes in [4, 16, 40, 64, 80, 96, 112, 128, 160, 256, 512] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("gesta.db");
        let mut child = on_a_small_disk(kibibytes * 1024, home.path());
        part(child.arg(std::env::current_exe().unwrap()), TEST, &path);
        let said = expect_success(&child.output().unwrap());
        let expected = format!("refused: no space left for `{}`; nothing was", path.display());
        assert!(said.contains(&expected), "{kibibytes} KiB: {said}");
    }
}

/// A limit on the size of files makes real writes fail half-way, inside transactions and at COMMIT.
#[tokio::test]
async fn failing_writes_lose_nothing_that_was_acknowledged() {
    const TEST: &str = "sqlite::faults::failing_writes_lose_nothing_that_was_acknowledged";
    let mut job = Job::new(1, AT);
    let begin = job.begin();
    if let Some(path) = store_of_this_process() {
        let (acknowledged, error) = append_until_it_fails(&open(&path), &mut job).await;
        let unclear = match error {
            AppendError::Unknown(StoreError::Unreachable { .. }) => 1,
            AppendError::Refused(StoreError::Unreachable { .. }) => 0,
            other => panic!("{other}"),
        };
        println!("\nacknowledged {acknowledged} unclear {unclear}");
        return;
    }
    for blocks in [700, 777, 2000] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("gesta.db");
        open(&path).append(begin.clone()).await.unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", &blocks.to_string()]);
        part(shell.arg(std::env::current_exe().unwrap()), TEST, &path);
        let said = expect_success(&shell.output().unwrap());
        let words: Vec<_> =
            said.split_whitespace().skip_while(|word| *word != "acknowledged").collect();
        let count = |at: usize| words[at].parse::<u64>().unwrap();
        let (acknowledged, unclear) = (count(1), count(3));

        let store = open(&path);
        let state = fold(&store, job.id()).await;
        let stored = state.head().unwrap().seq - 1;
        assert!(acknowledged > 0, "{said}");
        assert!(
            (acknowledged..=acknowledged + unclear).contains(&stored),
            "{stored} entries, {said}"
        );
        let mut job = Job { state, ..Job::new(0, AT) };
        store.append(job.signal("the-limit-is-gone")).await.unwrap();
    }
}

/// Root writes where it likes, so as root this is played by somebody else.
#[tokio::test]
async fn a_read_only_file_is_refused_and_loses_nothing() {
    const TEST: &str = "sqlite::faults::a_read_only_file_is_refused_and_loses_nothing";
    if let Some(path) = store_of_this_process() {
        let error = SqliteStore::open(&path, Options::default()).err().unwrap();
        std::io::stdout().write_all(format!("\nrefused: {error}\n").as_bytes()).unwrap();
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (directory, program) = (home.path().join("store"), home.path().join("program"));
    fs::create_dir(&directory).unwrap();
    let path = directory.join("gesta.db");
    let mut job = Job::new(1, AT);
    open(&path).append(job.begin()).await.unwrap();
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(home.path(), 0o755);
    set_mode(&program, 0o755);
    let file = "its permissions or its file system allow reading only";
    let beside = "its directory, where the log beside it belongs, allows reading only";
    let cases = [(0o444, 0o755, file), (0o444, 0o555, file), (0o666, 0o555, beside)];
    for (file_mode, directory_mode, why) in cases {
        set_mode(&path, file_mode);
        set_mode(&directory, directory_mode);
        let mut child = Command::new(&program);
        part(&mut child, TEST, &path);
        if fs::metadata(home.path()).unwrap().uid() == 0 {
            child.uid(65_534).gid(65_534);
        }
        let said = expect_success(&child.output().unwrap());
        let expected = format!("refused: `{}` cannot be written: {why}", path.display());
        assert!(said.contains(&expected), "{said}");
    }
    set_mode(&directory, 0o755);
    set_mode(&path, 0o600);
    let store = open(&path);
    assert_eq!(fold(&store, job.id()).await, job.state);
    store.append(job.signal("it-can-be-written-again")).await.unwrap();
}

/// A lock that another process does not give up is no reason to wait for ever, or to lose anything.
#[tokio::test]
async fn a_locked_file_refuses_in_time() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    let busy_timeout = Duration::from_millis(20);
    let options = Options { busy_timeout, ..Options::default() };
    let store = SqliteStore::open(&path, options).unwrap();
    let mut job = Job::new(1, AT);
    store.append(job.begin()).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let signal = job.clone().signal("patience");
    let refused = store.append(signal.clone()).await.unwrap_err();
    assert!(matches!(refused, AppendError::Refused(StoreError::Refused { .. })), "{refused}");
    assert_eq!(fold(&store, job.id()).await, job.state, "readers do not wait for writers");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(store.append(signal.clone()).await, Ok(signal.head()));
}

/// Processes that find no file make it together, and then share it.
#[tokio::test]
async fn several_processes_share_a_file_from_its_first_moment() {
    const TEST: &str = "sqlite::faults::several_processes_share_a_file_from_its_first_moment";
    const PROCESSES: u8 = 4;
    const ROUNDS: u64 = 25;
    if let Some(path) = store_of_this_process() {
        let number = std::env::var(NUMBER).unwrap().parse().unwrap();
        return append_beside_others(&open(&path), number, ROUNDS).await;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("gesta.db");
    let children: Vec<_> = (1..=PROCESSES)
        .map(|number| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            part(&mut child, TEST, &path);
            child.env(NUMBER, number.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
            child.spawn().unwrap()
        })
        .collect();
    for child in children {
        expect_success(&child.wait_with_output().unwrap());
    }
    let store = open(&path);
    for number in 1..=PROCESSES {
        let own = fold(&store, Job::new(number, AT).id()).await;
        assert_eq!(own.head().unwrap().seq, 1 + ROUNDS);
    }
    let shared = fold(&store, Job::new(0, AT).id()).await;
    assert_eq!(shared.head().unwrap().seq, 1 + u64::from(PROCESSES) * ROUNDS);
}

/// Appends to a trajectory of its own, and to one that all processes want.
async fn append_beside_others(store: &SqliteStore, number: u8, rounds: u64) {
    let (mut own, mut shared) = (Job::new(number, AT), Job::new(0, AT));
    store.append(own.begin()).await.unwrap();
    store.append(shared.begin()).await.unwrap();
    for round in 0..rounds {
        let name = format!("p-{number}-{round}");
        store.append(own.signal(&name)).await.unwrap();
        loop {
            match store.append(shared.clone().signal(&name)).await {
                Ok(_) => break,
                Err(AppendError::Conflict { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            let from = shared.state.head().unwrap().seq + 1;
            for entry in store.entries(shared.id(), from, 1000).await.unwrap() {
                shared.state.apply(&Entry::from_bytes(&entry.bytes).unwrap()).unwrap();
            }
        }
    }
}
