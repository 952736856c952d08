//! `gesta tools`: list, pin, test; and that secrets stay where they are.

use std::path::Path;

use crate::world::World;

const TWO: &str = "[tools.one]\neffect = \"read\"\ntimeout = \"5s\"\ndriver.process = { command = [\"echo\", \"1\"], env = [\"PATH\"] }\n\n[tools.two]\neffect = \"external\"\nrecovery = \"keyed\"\ntimeout = \"1s\"\ncost = { calls = 1, money_micros = 1500 }\ndriver.process = { command = [\"echo\", \"2\"], env = [\"PATH\"] }\n";
const JOB: &str = "job: two\nsteps:\n  - { id: a, tool: one }\n  - { id: b, tool: two }\n";

#[test]
fn a_tool_that_changed_is_frozen_until_it_is_pinned_again() {
    let world = World::with_tools(TWO);
    world.write("job.yaml", JOB);
    let listed = world.gesta(&["tools", "list"]).ok();
    insta::assert_snapshot!("tools-list", listed);
    let pinned = world.gesta(&["tools", "pin"]).ok();
    assert!(pinned.contains("new      one") && pinned.contains("pinned 2 tools"), "{pinned}");
    world.gesta(&["run", "job.yaml"]).ok();

    world.set_tools(&TWO.replace("\"2\"", "\"3\""));
    let frozen = world.gesta(&["tools", "list"]).expect(0);
    assert!(
        frozen.out.contains("frozen") && frozen.err.contains("changed since it was pinned"),
        "{}",
        frozen.out
    );
    let warned = world.gesta(&["check", "job.yaml"]).expect(0);
    assert!(warned.err.contains("warning: frozen: two"), "{}", warned.err);
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("changed since it was pinned; look at it and run `gesta tools pin`");
    assert_eq!(
        world.bodies(&held_job(&world), "rejection")[0]["decision"]["doc"]["reason"],
        "tool_frozen"
    );

    let pinned = world.gesta(&["tools", "pin", "--json"]).json();
    assert_eq!(
        (&pinned["changes"][0]["tool"], &pinned["changes"][0]["what"]),
        (&"two".into(), &"changed".into())
    );
    let (status, told) = run.ends();
    assert_eq!(status.code(), Some(0), "{told}");
    world.gesta(&["run", "job.yaml"]).ok();
    world.write("gesta.lock", "version = 9\n");
    let unread = world.gesta(&["run", "job.yaml"]).expect(2);
    assert!(unread.err.contains("gesta.lock:1:11: version `9` is not known"), "{}", unread.err);
}

/// The job that has not ended.
fn held_job(world: &World) -> String {
    let jobs = world.gesta(&["jobs", "--json"]).json_lines();
    let live = jobs.iter().find(|job| job["status"] != "completed").unwrap();
    live["trajectory"].as_str().unwrap().to_owned()
}

/// A program as a tool that changes something.
fn tool(name: &str, more: &str, script: &str) -> String {
    format!(
        "[tools.{name}]\neffect = \"external\"\ntimeout = \"5s\"\n{more}\n[tools.{name}.driver.process]\ncommand = '''{script}'''\nshell = true\nenv = [\"PATH\"]\n"
    )
}

fn read(name: &str, script: &str) -> String {
    tool(name, "", script).replace("external", "read")
}

/// The same result for the same key.
const HONEST: &str = "echo \"\\\"$GESTA_KEY\\\"\"";

#[track_caller]
fn tried(world: &World, name: &str, more: &[&str], code: i32, verdict: &str) {
    let ran = world.gesta(&[&["tools", "test", name, "--yes"][..], more].concat());
    assert_eq!(ran.code, Some(code), "{name}: {}{}", ran.out, ran.err);
    assert!(ran.out.contains(verdict), "{name}: {}", ran.out);
    assert!(world.jobs().is_empty(), "the workspace's own store is left alone");
}

#[test]
fn a_key_that_is_not_remembered_is_found_out() {
    let seen = "changes = [{ type = \"it\", id = \"'x'\" }]\nverify = [{ type = \"it\", verifier = \"here\", args = { path = \"x\" }, holds = \"found.exists\" }]";
    let tools = [
        tool("keyed", &format!("recovery = \"keyed\"\n{seen}"), HONEST),
        tool("forgetful", "recovery = \"keyed_concurrent\"", "echo $$"),
        "[verifiers.here]\nfile = { root = \".\" }\n".to_owned(),
    ];
    let world = World::with_tools(&tools.concat());
    tried(&world, "keyed", &[], 0, "the same key gave the same result; another key, killed");
    tried(&world, "forgetful", &[], 10, "the other side does not deduplicate");
}

/// Adds a line to a file of its key's own, unless this says that it need not. Killed at any moment, it has added
/// the line or left no trace.
fn acting(unless: &str, then: &str, answer: &str) -> String {
    let add = "{ cat \"acts/$GESTA_KEY\" 2> /dev/null; echo x; } > \"acts/.$$\"; mv \"acts/.$$\" \"acts/$GESTA_KEY\"";
    format!("mkdir -p acts; [ -e \"{unless}\" ] || {{ {add}; {then}; }}; echo '{answer}'")
}

/// The same answer to every key says nothing about what was done: only a count does.
#[test]
fn a_constant_answer_certifies_nothing() {
    let keyed = "recovery = \"keyed_concurrent\"";
    let count = "key=$(sed 's/.*\"key\":\"\\([^\"]*\\)\".*/\\1/'); cat \"acts/$key\" 2> /dev/null | wc -l | sed 's/.*/{\"effects\":&}/'";
    let tools = [
        tool("twice", keyed, &acting("nothing", ":", "1")),
        tool("once", keyed, &acting("acts/$GESTA_KEY", ":", "1")),
        read("count", count),
        read("mute", "echo '{}'"),
    ];
    let world = World::with_tools(&tools.concat());
    let tells_nothing = "another key gave that result too";
    tried(&world, "twice", &[], 14, tells_nothing);
    tried(&world, "once", &[], 14, tells_nothing);
    tried(&world, "once", &["--count", "mute"], 14, "the counter did not say");
    tried(&world, "twice", &["--count", "count"], 10, "there were 2 effects");
    tried(&world, "once", &["--count", "count"], 0, "there was one effect");
    let told = world.gesta(&["tools", "test", "once", "--yes", "--json"]).expect(14).out;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["holds"], &told["other"]), (&serde_json::Value::Null, &1.into()), "{told}");
}

/// A tool that remembers its key when it is done, and not while it acts.
#[test]
fn a_call_that_is_killed_while_it_acts_is_found_out() {
    let keyed = "recovery = \"keyed_concurrent\"";
    let late = "sleep 1; mkdir -p done; : > \"done/$GESTA_KEY\"";
    let count = "key=$(sed 's/.*\"key\":\"\\([^\"]*\\)\".*/\\1/'); cat \"acts/$key\" 2> /dev/null | wc -l | sed 's/.*/{\"effects\":&}/'";
    let tools = [tool("late", keyed, &acting("done/$GESTA_KEY", late, "1")), read("count", count)];
    let world = World::with_tools(&tools.concat());
    tried(&world, "late", &["--count", "count"], 10, "there was one effect; another key gave");
    tried(&world, "late", &["--count", "count"], 10, "there were 2 effects");
}

#[test]
fn a_probe_that_knows_nothing_is_found_out() {
    let tools = [
        tool("probed", "recovery = \"probe\"\nprobe = \"knows\"", HONEST),
        tool("denied", "recovery = \"probe\"\nprobe = \"denies\"", HONEST),
        read("knows", "echo '{\"happened\":true,\"result\":1}'"),
        read("denies", "echo '{\"happened\":false}'"),
    ];
    let world = World::with_tools(&tools.concat());
    tried(&world, "probed", &[], 0, "the probe knows of the call");
    tried(&world, "denied", &[], 10, "it would have been made twice");
}

#[test]
fn what_cannot_be_tried_is_said() {
    let tools = [
        tool("never", "", "echo 1"),
        tool("failing", "recovery = \"keyed\"", "exit 65"),
        read("random", "echo $$"),
    ];
    let world = World::with_tools(&tools.concat());
    tried(&world, "never", &[], 0, "waits for an operator");
    tried(&world, "random", &[], 0, "which a read may");
    let failing = world.gesta(&["tools", "test", "failing", "--yes"]).expect(1);
    assert!(failing.err.contains("nothing to recover"), "{}", failing.err);
    let careful = world.gesta(&["tools", "test", "never"]).expect(2);
    assert!(careful.err.contains("this really calls `never`"), "{}", careful.err);
    assert!(world.gesta(&["tools", "test", "nothing"]).expect(2).err.contains("there is no tool"));
    let bad = world.gesta(&["tools", "test", "random", "--args", "[1]"]).expect(2);
    assert!(bad.err.contains("these are no arguments for `random`"), "{}", bad.err);
}

const SECRET: &str = "s3cr+t/with=odd&chars-0123456789";

/// Raw, base64 and percent-encoded.
fn spellings() -> Vec<String> {
    // Computed by other means than the code under test: `base64` and a byte-wise encoding.
    let encoded = std::process::Command::new("sh")
        .args(["-c", "printf %s \"$1\" | base64 -w0", "sh", SECRET])
        .output()
        .unwrap();
    let percent: String = SECRET
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b == b'-' {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    vec![SECRET.to_owned(), String::from_utf8(encoded.stdout).unwrap(), percent]
}

#[test]
fn secrets_are_nowhere_but_in_the_call() {
    let tool = |name: &str, script: &str| {
        format!(
            "[tools.{name}]\neffect = \"external\"\nretry = {{ attempts = 1 }}\nsecrets = {{ TOKEN = {{ env = \"SHOP_TOKEN\" }} }}\n[tools.{name}.driver.process]\ncommand = '''{script}'''\nshell = true\nenv = [\"PATH\"]\n"
        )
    };
    let spell = "b=$(printf %s \"$TOKEN\" | base64 -w0); p=$(printf %s \"$TOKEN\" | sed 's|/|%2F|g; s/+/%2B/g; s/=/%3D/g; s/&/%26/g')";
    let leak = format!(
        "{spell}; printf '{{\"raw\":\"%s\",\"b64\":\"%s\",\"pct\":\"%s\"}}' \"$TOKEN\" \"$b\" \"$p\""
    );
    let fail = format!("{spell}; echo \"bad token $TOKEN ($b, $p)\" >&2; exit 65");
    let world = World::with_tools(&[tool("leak", &leak), tool("fail", &fail)].concat());
    world.write(
        "job.yaml",
        "job: leak\nsteps:\n  - { id: a, tool: leak }\n  - { id: b, tool: fail, needs: [a] }\n",
    );
    let token = [("SHOP_TOKEN", SECRET)];
    let mut told = String::new();
    for arguments in
        [&["-vv", "run", "job.yaml"][..], &["-vv", "--log-format", "json", "run", "job.yaml"]]
    {
        let ran = world.gesta_with(arguments, &token).expect(10);
        told.push_str(&(ran.out + &ran.err));
    }
    world.gesta(&["export", "--all", "-o", "all.gesta"]).ok();
    for id in world.jobs() {
        told.push_str(&world.gesta(&["log", &id, "--json"]).ok());
    }
    assert!(told.contains("bad token"), "the tool's message is there, masked");
    let mut places = vec![("output".to_owned(), told.into_bytes())];
    files(&world.path("."), &mut places);
    assert!(places.iter().any(|(name, _)| name.ends_with("gesta.db")));
    for (name, bytes) in &places {
        for spelling in spellings() {
            let found = bytes.windows(spelling.len()).any(|window| window == spelling.as_bytes());
            assert!(!found, "`{spelling}` is in {name}");
        }
    }
    let unset = world.gesta(&["run", "job.yaml"]).expect(10);
    assert!(
        unset.err.contains("secret_unavailable") && unset.err.contains("SHOP_TOKEN"),
        "{}",
        unset.err
    );
}

fn files(directory: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}
