//! A world that changed, or could not be reached, while a job was down: with real files, a real
//! repository, a real server and real processes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::world::World;

/// A server that answers every request with this: a status line, an entity tag, a body.
struct Server {
    port: u16,
    answer: Arc<Mutex<(String, String, String)>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new((String::new(), String::new(), String::new())));
        let answers = Arc::clone(&answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let (status, etag, body) = answers.lock().unwrap().clone();
                let length = body.len();
                // Whoever asked may be gone.
                let _ = write!(
                    &stream,
                    "HTTP/1.1 {status}\r\netag: {etag}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        let server = Self { port, answer };
        server.says("200 OK", "\"v1\"", "{\"state\":\"open\"}");
        server
    }

    fn says(&self, status: &str, etag: &str, body: &str) {
        *self.answer.lock().unwrap() = (status.to_owned(), etag.to_owned(), body.to_owned());
    }
}

/// Writes a file, commits to a repository, opens a ticket and lights a lamp; each is verified in its own
/// way.
fn tools(port: u16) -> String {
    r#"
[tools.write]
effect = "write"
recovery = "safe"
changes = [{ type = "file", id = "args.name" }]
verify = [{ type = "file", verifier = "files", args = { path = "${id}" }, holds = "found.exists && found.sha256 == value.sha256" }]
[tools.write.driver.process]
command = '''
mkdir -p out; printf written > out/report.txt
echo "{\"sha256\":\"$(sha256sum out/report.txt | cut -d' ' -f1)\"}"
'''
shell = true
env = ["PATH"]

[tools.push]
effect = "external"
recovery = "safe"
changes = [{ type = "ref", id = "'refs/heads/main'" }]
verify = [{ type = "ref", verifier = "repository", args = { ref = "${id}" }, holds = "found.commit == result.commit" }]
driver.process = { command = "cd repo && echo \"{\\\"commit\\\":\\\"$(git rev-parse main)\\\"}\"", shell = true, env = ["PATH", "HOME"] }

[tools.ticket]
effect = "external"
recovery = "safe"
changes = [{ type = "ticket", id = "'7'" }]
verify = [{ type = "ticket", verifier = "tickets", args = { id = "${id}" }, holds = "found.status == 200 && found.etag == result.etag && found.body.state == 'open'" }]
driver.process = { command = ["echo", '{"etag":"\"v1\""}'], env = ["PATH"] }

[tools.light]
effect = "write"
recovery = "safe"
changes = [{ type = "lamp", id = "'hall'" }]
verify = [{ type = "lamp", verifier = "lamps", holds = "found == value" }]
driver.process = { command = "echo '\"on\"' > lamp; echo '\"on\"'", shell = true, env = ["PATH"] }

[tools."lamp.read"]
effect = "read"
driver.process = { command = ["cat", "lamp"], env = ["PATH"] }

[verifiers.files]
file = { root = "out" }
[verifiers.repository]
git = { repository = "repo" }
[verifiers.tickets]
timeout = "2s"
http = { url = "http://127.0.0.1:PORT/tickets/{id}", allow_private = true }
[verifiers.lamps]
tool = "lamp.read"
"#
    .replace("PORT", &port.to_string())
}

fn job(tool: &str, mode: &str) -> String {
    format!(
        "job: resumed\nconfirm: {mode}\nsteps:\n  - {{ id: done, tool: {tool}, args: {{ name: report.txt }} }}\n  - {{ id: wait, wait: {{ signal: go }}, needs: [done] }}\n  - {{ id: use, set: used, needs: [wait] }}\nanswer: ${{steps.use.result}}\n"
    )
}

fn git(world: &World, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@x", "-C"]).arg(world.path("repo"));
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A job whose only effect is done, whose worker was killed, and that was told to go on.
fn killed(tool: &str, mode: &str) -> (World, Server, String) {
    let server = Server::start();
    let world = World::with_tools(&tools(server.port));
    std::fs::create_dir(world.path("repo")).unwrap();
    git(&world, &["init", "-q", "-b", "main"]);
    git(&world, &["commit", "-q", "--allow-empty", "-m", "one"]);
    world.write(
        "job.yaml",
        &job(tool, mode).replace(
            "args: { name: report.txt }",
            if tool == "write" { "args: { name: report.txt }" } else { "args: {}" },
        ),
    );
    world.gesta(&["check", "job.yaml"]).ok();
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("leaves it waiting");
    run.kill();
    let id = world.job();
    world.gesta(&["signal", &id, "go"]).ok();
    (world, server, id)
}

/// Changes what a tool has left outside.
fn change(tool: &str, world: &World, server: &Server) {
    match tool {
        "write" => world.write("out/report.txt", "overwritten"),
        "push" => git(world, &["commit", "-q", "--allow-empty", "-m", "two"]),
        "ticket" => server.says("200 OK", "\"v2\"", "{\"state\":\"closed\"}"),
        _ => world.write("lamp", "\"off\"\n"),
    }
}

fn counts(report: &str) -> (u64, u64, u64, u64) {
    let report: Value = serde_json::from_str(report).unwrap();
    let count = |what: &str| report["confirmations"][what].as_u64().unwrap();
    (count("ok"), count("mismatch"), count("unknown"), count("by_person"))
}

const TOOLS: [(&str, &str); 4] = [
    ("write", "file/report.txt"),
    ("push", "ref/refs/heads/main"),
    ("ticket", "ticket/7"),
    ("light", "lamp/hall"),
];

#[test]
fn a_world_that_is_as_it_was_left_lets_the_job_go_on() {
    for (tool, _) in TOOLS {
        let (world, _server, id) = killed(tool, "strict");
        let report = world.gesta(&["resume", &id, "--json"]).ok();
        assert_eq!(counts(&report), (1, 0, 0, 0), "{tool}: {report}");
        world.gesta(&["verify", &id]).ok();
    }
}

/// A repository with more refs than are worth reading.
#[test]
fn a_ref_is_found_among_many() {
    let (world, _server, id) = killed("push", "strict");
    let head = world.read("repo/.git/refs/heads/main");
    let tags: String = (0..20_000)
        .map(|number| format!("{} refs/tags/release-candidate-{number:06}\n", head.trim()))
        .collect();
    assert!(tags.len() > 1 << 20);
    world.write(
        "repo/.git/packed-refs",
        &format!("# pack-refs with: peeled fully-peeled sorted \n{tags}"),
    );
    let report = world.gesta(&["resume", &id, "--json"]).ok();
    assert_eq!(counts(&report), (1, 0, 0, 0), "{report}");
}

#[test]
fn a_world_that_changed_meanwhile_fails_a_strict_job() {
    for (tool, resource) in TOOLS {
        let (world, server, id) = killed(tool, "strict");
        change(tool, &world, &server);
        let failed = world.gesta(&["resume", &id]).expect(10);
        for what in ["the world is not as it was left", resource, "found outside: 1 different"] {
            assert!(failed.out.contains(what), "{tool}: {what}:\n{}", failed.out);
        }
        world.gesta(&["verify", &id]).ok();
    }
}

#[test]
fn a_world_that_changed_is_warned_about_or_confirmed_by_a_person() {
    let (world, server, id) = killed("ticket", "warn");
    server.says("404 Not Found", "\"\"", "");
    let report = world.gesta(&["resume", &id, "--json"]).ok();
    assert_eq!(counts(&report), (0, 1, 0, 0), "what is gone differs: {report}");

    let (world, server, id) = killed("light", "human");
    change("light", &world, &server);
    let parked = world.gesta(&["resume", &id]).expect(12);
    assert!(parked.err.contains("use waits for a person to confirm"), "{}", parked.err);
    assert!(world.gesta(&["jobs"]).ok().contains("use is to be confirmed"));
    let told = world.gesta(&["doubts"]).ok();
    for what in ["lamp/hall is not as it was left", "found      \"off\" by lamps", "gesta confirm"]
    {
        assert!(told.contains(what), "{what}:\n{told}");
    }
    let listed = world.gesta(&["doubts", "--json"]).json_lines();
    assert_eq!(listed[0]["on"], "confirmation");
    let other = world.gesta(&["confirm", &id, "other"]).expect(1);
    assert!(other.err.contains("waits to be confirmed"), "{}", other.err);
    let said = world.gesta(&["confirm", &id, "--json"]).json();
    assert_eq!(said["confirmed"][0]["step"], "use");
    let report = world.gesta(&["resume", &id, "--json"]).ok();
    assert_eq!(counts(&report), (0, 1, 0, 1), "{report}");
    assert!(world.gesta(&["log", &id]).ok().contains("a person confirms"));
    // The same, of every job that any worker has driven.
    let all = world.gesta(&["confirm", "--counts", "--json"]).json();
    let lamps = serde_json::json!({ "ok": 0, "mismatch": 1, "unknown": 0 });
    assert_eq!(all, serde_json::json!({ "verifiers": { "lamps": lamps }, "by_person": 1 }));
    let told = world.gesta(&["confirm", "--counts", &id]).ok();
    assert!(told.contains("lamps     0   1         0"), "{told}");
    assert!(told.contains("confirmed by a person: 1"), "{told}");
    world.gesta(&["verify", &id]).ok();
}

#[test]
fn a_replay_that_finds_the_outside_otherwise_says_so_by_its_exit_code() {
    let (world, server, id) = killed("light", "strict");
    world.gesta(&["resume", &id]).ok();
    assert!(world.gesta(&["replay", &id, "--confirm"]).ok().contains("lamp/hall  agrees"));
    change("light", &world, &server);
    world.gesta(&["replay", &id]).ok();
    for asked in [&["replay", &id, "--confirm"][..], &["replay", "--all", "--confirm"]] {
        let told = world.gesta(asked).expect(7);
        assert!(
            told.out.contains("  complete: ") && told.out.contains("lamp/hall  DIFFERS"),
            "{}",
            told.out
        );
    }
}

#[test]
fn a_world_that_cannot_be_reached_is_waited_for() {
    let (world, server, id) = killed("ticket", "strict");
    server.says("503 Service Unavailable", "\"\"", "");
    world.gesta(&["resume", &id]).expect(12);
    let told = world.gesta(&["doubts"]).ok();
    assert!(told.contains("ticket/7 cannot be checked") && told.contains("503"), "{told}");
    server.says("200 OK", "\"v1\"", "{\"state\":\"open\"}");
    let report = world.gesta(&["resume", &id, "--json"]).ok();
    assert_eq!(counts(&report), (1, 0, 1, 0), "it is looked at again: {report}");

    let (world, server, id) = killed("ticket", "human");
    server.says("503 Service Unavailable", "\"\"", "");
    world.gesta(&["resume", &id]).expect(12);
    world.gesta(&["confirm", &id]).ok();
    let report = world.gesta(&["resume", &id, "--json"]).ok();
    assert_eq!(counts(&report), (0, 0, 1, 1), "{report}");
}

#[test]
fn what_is_wrong_with_a_verification_is_told_before_anything_runs() {
    let check = |from: &str, to: &str, told: &str| {
        let tools = tools(80);
        assert!(tools.contains(from));
        let world = World::with_tools(&tools.replace(from, to));
        world.write("job.yaml", &job("light", "strict"));
        let refused = world.gesta(&["check", "job.yaml"]).expect(2);
        assert!(refused.err.contains(told), "{told}: {}", refused.err);
    };
    check(
        "tool = \"lamp.read\"",
        "tool = \"light\"",
        "it asks the tool `light`, which is not read-only",
    );
    check(
        "tool = \"lamp.read\"",
        "tool = \"lamp\"",
        "it asks the tool `lamp`, which is not declared",
    );
    check("verifier = \"lamps\"", "verifier = \"lamp\"", "its verifier `lamp` is not declared");
    check("holds = \"found == value\"", "holds = \"found == input\"", "unknown name `input`");
    check(
        "changes = [{ type = \"lamp\"",
        "changes = [{ type = \"light\"",
        "it verifies `lamp`, which it does not change",
    );
    check(
        "[verifiers.lamps]\n",
        "[verifiers.lamps]\ngit = { repository = \"x\" }\n",
        "exactly one of `http`, `file`, `git` and `tool`",
    );
}
