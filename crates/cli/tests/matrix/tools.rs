//! The tools of the matrix, as `gesta.toml` declares them: one that acts, and one that tells whether it
//! has. By HTTP they reach the witness; as programs they keep one file an effect.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::case::{Case, Class, Cut, Kind, Mode, On};

/// Longer than a call takes on a busy machine: a call that is not cut off does not time out.
const TIMEOUT: Duration = Duration::from_secs(2);
/// For effects that land after their caller has died.
const SETTLE: &str = "2s";

/// Whatever a case does, it may.
pub(crate) const POLICY: &str = "@id(\"all\") permit (principal, action, resource);\n";

/// A lease that is waited for: long enough to be kept on a busy machine for as long as it takes to be cut off.
const SHORT: &str = "1500ms";
/// A lease that nobody waits for, and that no busy machine lets go.
const LONG: &str = "10s";

/// Which of a case's workers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    First,
    Second,
}

/// `[worker]` and `[tools]` of a case, as one of its workers has them. The port is the witness's.
pub(crate) fn settings(case: &Case, on: On, turn: Turn, port: u16) -> String {
    // On one machine the lease of a worker that was killed ends at once. What a call leaves unknown is
    // waited for until its lease has ended too.
    let lease = match (turn, case.mode, on) {
        (Turn::Second, ..) | (_, Mode::Kill, On::Sqlite) => LONG,
        _ => SHORT,
    };
    let mut worker = format!("[worker]\nlease = \"{lease}\"\nskew = \"50ms\"\npoll = \"50ms\"\n");
    if on == On::Postgres {
        worker += "\n[postgres]\nconnections = 2\n";
    }
    if case.kind.items() == 0 {
        return worker;
    }
    let probe = if case.class == Class::Probe { "probe = \"asked\"\n" } else { "" };
    let settle = match (case.cut, on) {
        (Cut::Landing, On::Sqlite) => SETTLE,
        // The next worker waits for a lease first.
        (Cut::Landing, On::Postgres) => "5s",
        _ => "0ms",
    };
    let (act, asked) = match case.kind {
        Kind::Process => (program(&acting(case)), program(ASKED)),
        _ => (http(port, "act"), http(port, "asked")),
    };
    format!(
        "{worker}
[tools.act]
effect = \"external\"
recovery = \"{}\"
{probe}timeout = \"{}ms\"
settle = \"{settle}\"
retry = {{ attempts = 5, backoff = \"10ms\" }}
output = {{ type = \"object\", required = [\"n\"] }}
{act}
[tools.asked]
effect = \"read\"
timeout = \"5s\"
{asked}",
        case.class.name(),
        TIMEOUT.as_millis()
    )
}

fn http(port: u16, path: &str) -> String {
    format!(
        "driver.http = {{ method = \"POST\", url = \"http://127.0.0.1:{port}/{path}\", allow_private = true }}\n"
    )
}

fn program(script: &str) -> String {
    format!("driver.process = {{ command = '''{script}''', shell = true, env = [\"PATH\"] }}\n")
}

/// Tells by the key that the question holds.
const ASKED: &str = r#"
read -r asked; key=${asked##*\"key\":\"}; key=${key%%\"*}
if ls effects/*-"$key"* > /dev/null 2>&1; then happened=true; else happened=false; fi
echo "{\"happened\":$happened,\"result\":{\"n\":1}}"
"#;

/// A script whose effect is a file of its own: one for each key if it deduplicates, else one for each
/// time. The first call waits where the case says.
fn acting(case: &Case) -> String {
    let act = if case.class.deduplicates() {
        "mkdir -p \"effects/$item-$GESTA_KEY\""
    } else {
        "mkdir -p effects; mktemp \"effects/$item-$GESTA_KEY-XXXXXX\" > made"
    };
    let hold = "if mkdir held 2> /dev/null; then echo > reached; read -r word < go; fi";
    let (before, after) = match case.cut {
        Cut::Reached => (hold, ":"),
        Cut::Acted => (":", hold),
        Cut::Landing | Cut::Point(..) => (":", ":"),
    };
    format!(
        "\nread -r args; item=${{args##*:}}; item=${{item%\\}}}}\n{before}\n{act}\n{after}\necho '{{\"n\":1}}'\n"
    )
}

/// How many effects each item has had.
pub(crate) fn effects(directory: &Path) -> BTreeMap<u64, usize> {
    let mut counted = BTreeMap::new();
    let Ok(listed) = std::fs::read_dir(directory.join("effects")) else { return counted };
    for entry in listed {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let item = name.split('-').next().unwrap().parse().unwrap();
        *counted.entry(item).or_default() += 1;
    }
    counted
}
