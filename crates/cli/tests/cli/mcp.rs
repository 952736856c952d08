//! Tools of MCP servers, from `gesta.toml` to the end of a job.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::World;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn servers() -> PathBuf {
    let installed = std::env::var_os("GESTA_TEST_MCP");
    assert!(installed.is_some(), "run `cargo xtask test`, or `cargo xtask servers -- cargo test`");
    installed.unwrap().into()
}

fn declare(world: &World, more: &str) {
    let text = world.read("gesta.toml");
    std::fs::write(world.path("gesta.toml"), format!("{text}\n{more}")).unwrap();
}

/// The server that misbehaves, with the world's directory as its own.
fn odd(world: &World, more: &str) -> String {
    let script = servers().join("odd.mjs").display().to_string();
    let directory = world.path(".").display().to_string();
    let command = json!(["node", script, "stdio", directory]);
    format!("[mcp.odd]\ncommand = {command}\n{more}")
}

fn job(world: &World, tool: &str) {
    let text = format!(
        "job: one\nsteps:\n  - {{ id: call, tool: {tool}, retry: {{ attempts: 2, backoff: 1ms }} }}\n"
    );
    std::fs::write(world.path("job.yaml"), text).unwrap();
}

fn calls(world: &World) -> usize {
    let journal = std::fs::read_to_string(world.path("journal")).unwrap_or_default();
    journal.lines().filter(|line| line.contains("\"tools/call\"")).count()
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it happens before long");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn is_alive(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

#[test]
fn a_whole_job_over_reference_servers() {
    let world = World::with_free_workspace();
    let bin = servers().join("node_modules/.bin");
    let directory = std::fs::canonicalize(world.path(".")).unwrap();
    declare(
        &world,
        &format!(
            "[mcp.all]\ncommand = [\"{all}\"]\nenv = [\"PATH\"]\ninclude = [\"get-sum\"]\n\n[mcp.files]\ncommand = [\"{files}\", \"{place}\"]\nenv = [\"PATH\"]\ninclude = [\"write_file\", \"read_text_file\"]\n\n[mcp.files.tools.write_file]\neffect = \"write\"\nrecovery = \"safe\"\n",
            all = bin.join("mcp-server-everything").display(),
            files = bin.join("mcp-server-filesystem").display(),
            place = directory.display(),
        ),
    );
    let path = directory.join("sum.txt").display().to_string();
    let job = format!(
        "job: sum\nsteps:\n  - {{ id: sum, tool: all.get-sum, args: {{ a: 2, b: 40 }} }}\n  - id: write\n    tool: files.write_file\n    args: {{ path: {path}, content: '${{steps.sum.result.content[0].text}}' }}\n  - id: read\n    tool: files.read_text_file\n    needs: [write]\n    args: {{ path: {path} }}\nanswer:\n  text: ${{steps.read.result.structuredContent.content}}\n"
    );
    std::fs::write(world.path("job.yaml"), &job).unwrap();

    // Before it is pinned a server has no tools, and nothing is started to find out.
    let refused = world.gesta(&["run", "job.yaml"]).expect(2);
    assert!(
        refused.err.contains("MCP server `all` is not pinned yet; `gesta tools pin`"),
        "{}",
        refused.err
    );
    let pinned = world.gesta(&["tools", "pin"]).ok();
    assert!(
        pinned.contains("files.write_file") && pinned.contains("effect write, recovery safe"),
        "{pinned}"
    );
    assert!(pinned.contains("pinned 3 tools"), "{pinned}");
    let listed = world.gesta(&["tools", "list"]).ok();
    insta::assert_snapshot!("tools-list-mcp", listed);

    // The schemas that were pinned are known to the check.
    let wrong = job.replace("b: 40", "c: 40");
    std::fs::write(world.path("wrong.yaml"), wrong).unwrap();
    let wrong = world.gesta(&["check", "wrong.yaml"]).expect(2);
    assert!(wrong.out.contains("wrong.yaml:3"), "{}", wrong.out);
    world.gesta(&["check", "job.yaml"]).ok();

    let ran = world.gesta(&["run", "job.yaml", "--json"]).expect(0);
    assert!(ran.out.contains("The sum of 2 and 40 is 42."), "{}", ran.out);
    assert_eq!(world.read("sum.txt"), "The sum of 2 and 40 is 42.");
    world.gesta(&["verify"]).ok();
    let tried =
        world.gesta(&["tools", "test", "all.get-sum", "--args", "{\"a\":1,\"b\":2}"]).expect(0);
    assert!(tried.out.contains("holds"), "{}", tried.out);
}

#[test]
fn a_changed_tool_is_held_by_the_guardian_until_it_is_pinned_again() {
    let world = World::with_free_workspace();
    declare(&world, &odd(&world, ""));
    job(&world, "odd.pay");
    world.gesta(&["tools", "pin"]).ok();
    world.gesta(&["run", "job.yaml"]).ok();
    std::fs::write(world.path("description"), "Pays somebody else").unwrap();
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let held = world.gesta(&["worker", "--once"]).expect(0);
    assert!(held.err.contains("held") && held.err.contains("tool frozen"), "{}", held.err);
    assert_eq!(calls(&world), 1);
    // Whoever looks is told so, and what has changed, before anything is accepted.
    let row = |arguments: &[&str]| {
        let listed = world.gesta(&[&["tools", "list", "--json"], arguments].concat()).json_lines();
        listed.into_iter().find(|row| row["name"] == "odd.pay").unwrap()
    };
    let frozen = row(&[])["frozen"].as_str().unwrap().to_owned();
    assert!(frozen.contains("changed since it was pinned"), "{frozen}");
    assert_eq!(row(&["--offline"])["frozen"], serde_json::Value::Null);
    let listed = world.gesta(&["tools", "list"]).expect(0);
    let line = listed.out.lines().find(|line| line.starts_with("odd.pay")).unwrap();
    assert!(line.contains("frozen") && listed.out.matches("frozen").count() == 1, "{}", listed.out);
    let lock = world.read("gesta.lock");
    let shown = world.gesta(&["tools", "pin", "--dry-run"]).ok();
    assert!(shown.contains("changed  odd.pay") && shown.contains("(description)"), "{shown}");
    assert!(shown.contains("nothing was written"), "{shown}");
    assert_eq!(world.read("gesta.lock"), lock);
    let kept = world.gesta(&["tools", "pin", "--offline"]).ok();
    assert!(!kept.contains("changed"), "{kept}");
    assert!(world.gesta(&["jobs", "--status", "failed", "--json"]).json_lines().is_empty());
    let pinned = world.gesta(&["tools", "pin"]).ok();
    assert!(pinned.contains("changed  odd.pay") && pinned.contains("(description)"), "{pinned}");
    // The job that was held goes on.
    world.gesta(&["resume", &id]).ok();
    assert_eq!(calls(&world), 2);
    assert!(world.gesta(&["replay", &id]).ok().contains("complete"));
}

/// The server that misbehaves, reached over HTTP; its declaration comes with it.
fn odd_web(world: &World) -> (Web, String) {
    let mut command = Command::new("node");
    command.arg(servers().join("odd.mjs")).arg("http").arg(world.path("."));
    let web = Web(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let port = || std::fs::read_to_string(world.path("port")).unwrap_or_default();
    wait_until(|| port().ends_with('\n'));
    let url = format!("http://127.0.0.1:{}/mcp", port().trim());
    (web, format!("[mcp.odd]\nurl = \"{url}\"\nallow_private = true\n"))
}

/// A web server, ended when it is dropped.
struct Web(Child);

impl Drop for Web {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _buried = self.0.wait();
    }
}

/// A server changes a tool under a job that runs: the step that needs it is held, not failed, whatever its `retry`
/// says, and goes on in the same worker once the tool was pinned again.
fn held_until_it_is_pinned(world: &World) {
    let text = "job: two\nsteps:\n  - { id: change, tool: odd.change }\n  - { id: pay, tool: odd.pay, needs: [change], retry: { attempts: 1 } }\n";
    std::fs::write(world.path("job.yaml"), text).unwrap();
    world.gesta(&["tools", "pin"]).ok();
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let mut worker = world.start(&["worker"]);
    worker.says("its server describes it otherwise since it was pinned; look at it and run `gesta tools pin`");
    assert_eq!(calls(world), 1, "the one that changes it");
    let held = &world.bodies(&id, "rejection")[0];
    assert_eq!(held["decision"]["doc"]["reason"], "tool_frozen");
    assert!(held["retry_at"].is_u64(), "{held}");
    world.gesta(&["tools", "pin"]).ok();
    worker.says("tools were pinned again");
    worker.says(": completed");
    worker.kill();
    assert_eq!(calls(world), 2);
    assert!(world.gesta(&["replay", &id]).ok().contains("complete"));
    world.gesta(&["verify"]).ok();
}

#[test]
fn a_tool_that_changes_under_a_job_holds_it_until_it_is_pinned() {
    let world = World::with_free_workspace();
    declare(&world, &odd(&world, ""));
    held_until_it_is_pinned(&world);
}

#[test]
fn a_tool_that_changes_under_a_job_holds_it_until_it_is_pinned_over_http() {
    let world = World::with_free_workspace();
    let (_web, declaration) = odd_web(&world);
    declare(&world, &declaration);
    held_until_it_is_pinned(&world);
}

/// The tool is another than was pinned when the worker starts, which it cannot know before it asks the server: the
/// call is turned away at the gate, nothing is sent, and its one try is not used up.
fn held_from_the_start(world: &World) {
    let text = "job: one\nsteps:\n  - { id: pay, tool: odd.pay, retry: { attempts: 1 } }\n";
    std::fs::write(world.path("job.yaml"), text).unwrap();
    world.gesta(&["tools", "pin"]).ok();
    std::fs::write(world.path("description"), "Pays somebody else").unwrap();
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("held");
    assert_eq!(calls(world), 0);
    let id = world.job();
    let turned_away = &world.bodies(&id, "failure")[0];
    assert_eq!(
        (&turned_away["error"]["code"], &turned_away["dispatched"]),
        (&json!("gate_frozen"), &json!(false))
    );
    world.gesta(&["tools", "pin"]).ok();
    let (status, told) = run.ends();
    assert_eq!(status.code(), Some(0), "{told}");
    assert_eq!(calls(world), 1);
    assert!(world.gesta(&["replay", &id]).ok().contains("complete"));
}

#[test]
fn a_tool_that_had_changed_before_holds_a_job_until_it_is_pinned() {
    let world = World::with_free_workspace();
    declare(&world, &odd(&world, ""));
    held_from_the_start(&world);
}

#[test]
fn a_tool_that_had_changed_before_holds_a_job_until_it_is_pinned_over_http() {
    let world = World::with_free_workspace();
    let (_web, declaration) = odd_web(&world);
    declare(&world, &declaration);
    held_from_the_start(&world);
}

#[test]
fn a_server_that_dies_in_a_call_leaves_a_doubt_and_no_secret() {
    let world = World::with_free_workspace();
    let secrets = "secrets = { TOKEN = { env = \"SHOP_TOKEN\" } }\n";
    declare(&world, &odd(&world, secrets));
    job(&world, "odd.die");
    let token = [("SHOP_TOKEN", "swordfish-9000")];
    let pinned = world.gesta_with(&["tools", "pin"], &token);
    assert_eq!(pinned.code, Some(0), "{}", pinned.err);
    let ran = world.gesta_with(&["-vv", "run", "job.yaml"], &token);
    assert_eq!(ran.code, Some(12), "{}{}", ran.out, ran.err);
    let doubts = world.gesta(&["doubts"]).ok();
    assert!(doubts.contains("dying with [secret TOKEN]"), "{doubts}");
    assert_eq!(calls(&world), 1, "never twice");
    for told in [&ran.out, &ran.err, &doubts, &world.read("gesta.lock")] {
        assert!(!told.contains("swordfish"), "{told}");
    }
    for entry in std::fs::read_dir(world.path(".")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let found = bytes.windows(9).any(|part| part == b"swordfish");
        assert!(!found, "{}", path.display());
    }
}

#[test]
fn a_doubt_is_looked_into_by_another_tool_of_the_server() {
    let world = World::with_free_workspace();
    let rules = "[mcp.odd.tools.die]\nrecovery = \"probe\"\nprobe = \"odd.probe\"\ntimeout = \"6s\"\n\n[worker]\nlease = \"2s\"\nskew = \"0ms\"\n";
    declare(&world, &odd(&world, rules));
    job(&world, "odd.die");
    world.gesta(&["tools", "pin"]).ok();
    let ran = world.gesta(&["run", "job.yaml", "--json"]).json();
    let asked = ran["answer"]["call"]["asked"].as_str().unwrap();
    assert!(asked.starts_with("gesta-"), "{asked}");
    assert_eq!(calls(&world), 2, "the call, and the question about it");
}

#[test]
fn a_server_dies_with_its_worker() {
    let world = World::with_free_workspace();
    declare(&world, &odd(&world, ""));
    job(&world, "odd.hang");
    world.gesta(&["tools", "pin"]).ok();
    let mut worker = world.command();
    worker.args(["run", "job.yaml"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut worker = worker.spawn().unwrap();
    let told = BufReader::new(worker.stderr.take().unwrap());
    let first = told.lines().map_while(Result::ok).find(|line| line.starts_with("job one is "));
    let trajectory = first.unwrap().rsplit(' ').next().unwrap().to_owned();
    wait_until(|| calls(&world) == 1);
    let starts = world.read("starts");
    let server = starts.lines().next_back().unwrap();
    assert!(is_alive(server));
    worker.kill().unwrap();
    worker.wait().unwrap();
    wait_until(|| !is_alive(server));
    world.gesta(&["resume", &trajectory]).expect(12);
    assert_eq!(calls(&world), 1, "the other worker does not call again");
}

/// What `on_cancel: stop` says of a call that only reads reaches the server.
#[test]
fn a_cancelled_job_tells_the_server_that_its_call_is_not_wanted() {
    let world = World::with_free_workspace();
    declare(&world, &odd(&world, "[mcp.odd.tools.hang]\neffect = \"read\"\ntimeout = \"5m\"\n"));
    let text = "job: one\nsteps:\n  - { id: call, tool: odd.hang, on_cancel: stop }\n";
    std::fs::write(world.path("job.yaml"), text).unwrap();
    world.gesta(&["tools", "pin"]).ok();
    let run = world.start(&["run", "job.yaml"]);
    wait_until(|| calls(&world) == 1);
    world.gesta(&["cancel", &world.job()]).ok();
    wait_until(|| world.read("journal").contains("notifications/cancelled"));
    let (status, told) = run.ends();
    assert_eq!(status.code(), Some(11), "{told}");
    let journal = world.read("journal");
    let message = |method: &str| -> serde_json::Value {
        let line = journal
            .lines()
            .find(|line| line.contains(method))
            .unwrap_or_else(|| panic!("{method}: {journal}"));
        serde_json::from_str(line).unwrap()
    };
    let (call, cancelled) = (message("\"tools/call\""), message("notifications/cancelled"));
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
}

/// Many jobs, one worker: each says whose progress it is.
#[test]
fn progress_is_told_with_its_job() {
    let world = World::with_free_workspace();
    declare(&world, &odd(&world, ""));
    job(&world, "odd.flood");
    world.gesta(&["tools", "pin"]).ok();
    let id = world.gesta(&["submit", "job.yaml"]).ok().trim().to_owned();
    let worker = world.gesta(&["worker", "--once"]).expect(0);
    let brief = id.get(.."t_".len() + 8).unwrap();
    let told = format!("{brief}: call (odd.flood): progress ");
    assert!(worker.err.contains(&told), "{told}\n{}", worker.err);
}
