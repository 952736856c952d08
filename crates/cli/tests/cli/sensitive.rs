//! Sensitive values from the job's input to their erasure: never in clear where anything is kept, shown to
//! whoever asks and has the key, disclosed one by one, gone for good.

use std::path::Path;

use gesta_verify::report::{Fate, Report, Verdict};

use crate::export::audit;
use crate::world::World;

pub(crate) const MAIL: &str = "bob.smith+7@example.org";
const NAME: &str = "Robert \"Bob\" Smith";

pub(crate) const TOOLS: &str = r#"
[tools."crm.find"]
effect = "read"
input = { type = "object", required = ["mail"], properties = { mail = { type = "string", minLength = 6, x-gesta-sensitive = true } } }
output = { type = "object", required = ["name", "plan"], properties = { name = { type = "string", x-gesta-sensitive = true }, plan = { type = "string" } } }
driver.process = { command = "cat >> found; printf '{\"name\":\"Robert \\\\\"Bob\\\\\" Smith\",\"plan\":\"gold\"}'", shell = true, env = ["PATH"] }

[tools."mail.send"]
effect = "external"
input = { type = "object", required = ["to", "text"], properties = { to = { type = "string", x-gesta-sensitive = true }, name = { type = "string", x-gesta-sensitive = true }, text = { type = "string" } } }
changes = [{ type = "mail", id = "args.text", value = "args" }]
driver.process = { command = "tee -a sent", shell = true, env = ["PATH"] }

[tools."mail.refuse"]
effect = "external"
input = { type = "object", required = ["to"], properties = { to = { type = "string", x-gesta-sensitive = true } } }
driver.process = { command = "read -r args; echo \"nobody here: $args\" | tee /dev/stderr; exit 10", shell = true, env = ["PATH"], exit = { 10 = "did_not_happen" } }
"#;

pub(crate) const JOB: &str = r#"job: greet
input:
  mail: { type: string, sensitive: true }
steps:
  - { id: who, tool: crm.find, args: { mail: "${input.mail}" } }
  - id: send
    tool: mail.send
    args: { to: "${input.mail}", name: "${steps.who.result.name}", text: "hello ${steps.who.result.plan}" }
answer: { name: "${steps.who.result.name}", told: "${steps.send.result.to}" }
"#;

pub(crate) fn world() -> World {
    let world = World::with_tools(TOOLS);
    world.write("job.yaml", JOB);
    world
}

/// Runs the job and returns its id.
pub(crate) fn greeted(world: &World) -> String {
    world.gesta(&["run", "job.yaml", "--input", &format!("mail={MAIL}")]).ok();
    world.job()
}

/// The files in which a text stands, in any spelling: as it is, in JSON, base64, hexadecimal or percent-encoded.
fn leaks(directory: &Path, text: &str) -> Vec<String> {
    let json = serde_json::to_string(text).unwrap();
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = text
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    let mut spellings = vec![text.to_owned(), json.trim_matches('"').to_owned(), hex, percent];
    spellings.extend((0..3).map(|offset| base64(text.as_bytes(), offset)));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(leaks(&entry.path(), text));
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        let holds = |spelling: &String| {
            bytes.windows(spelling.len()).any(|window| window == spelling.as_bytes())
        };
        if spellings.iter().any(holds) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

/// What base64 makes of a text that begins so many bytes into what is encoded, without its edges.
fn base64(text: &[u8], offset: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let padded: Vec<u8> = std::iter::repeat_n(0, offset).chain(text.iter().copied()).collect();
    let digit = |bits: u32| char::from(ALPHABET[(bits & 63) as usize]);
    let whole = padded.chunks_exact(3).flat_map(|three| {
        let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        [digit(bits >> 18), digit(bits >> 12), digit(bits >> 6), digit(bits)]
    });
    whole.skip(if offset == 0 { 0 } else { 4 }).collect()
}

/// What became of the sensitive values of a trajectory, in the order of the report.
fn fates(report: &Report, id: &str) -> Vec<Fate> {
    let of = report.sensitive.iter().filter(|value| value.trajectory.to_string() == id);
    of.map(|value| value.fate).collect()
}

#[test]
fn what_is_sensitive_reaches_the_tools_and_is_in_clear_nowhere_else() {
    let world = world();
    let ran = world.gesta(&["run", "job.yaml", "--input", &format!("mail={MAIL}")]).expect(0);
    let id = world.job();
    assert!(world.read("found").contains(MAIL));
    let sent = world.read("sent");
    assert!(sent.contains(MAIL) && sent.contains("Bob"), "{sent}");
    assert!(ran.out.contains("‹sensitive›") && !ran.out.contains(MAIL), "{}", ran.out);
    // The tool returned what it was sent, where nothing is marked.
    assert!(ran.out.contains("\"told\": \"[sensitive]\""), "{}", ran.out);

    for text in [MAIL, NAME] {
        let found = leaks(&world.path("."), text);
        let outside = ["found", "sent"].map(str::to_owned);
        assert!(found.iter().all(|file| outside.contains(file)), "{text}: {found:?}");
    }
    for told in [world.gesta(&["log", &id]).ok(), world.gesta(&["show", &format!("{id}:0")]).ok()] {
        assert!(told.contains("‹sensitive›") && !told.contains(MAIL), "{told}");
    }
    assert!(world.gesta(&["log", &id, "--reveal"]).ok().contains(MAIL));
    let shown = world.gesta(&["show", &format!("{id}:0"), "--reveal", "--json"]).json();
    assert_eq!(shown["revealed"]["/body/purpose/job/input/inline/mail"], MAIL);
    let again = world.gesta(&["resume", &id, "--reveal", "--json"]).json();
    assert_eq!(again["answer"]["name"], NAME);

    // What is handed on is the same commitment.
    let root = &world.bodies(&id, "root")[0]["purpose"]["job"]["input"]["inline"]["mail"];
    let started = world.bodies(&id, "started");
    assert_eq!(&started[0]["proposal"]["args"]["mail"], root);
    assert_eq!(&started[1]["proposal"]["args"]["to"], root);
    world.gesta(&["verify", &id]).ok();
}

#[test]
fn a_bundle_discloses_what_it_is_told_to() {
    let world = world();
    let id = greeted(&world);
    let audit = |file: &str| audit(&world.path(file), &world.path("trust.json"));
    world.gesta(&["export", &id, "-o", "none"]).ok();
    let none = audit("none");
    assert_eq!(none.verdict, Verdict::Sound, "{none}");
    assert_eq!(fates(&none, &id), [Fate::Withheld, Fate::Withheld]);
    assert!(leaks(&world.path("."), MAIL).iter().all(|file| file != "none"));

    let told = world.gesta(&["export", &id, "-o", "one", "--disclose", "/mail"]).ok();
    assert!(told.contains("2 sensitive values: 1 disclosed, 1 withheld"), "{told}");
    let one = audit("one");
    assert_eq!(one.verdict, Verdict::Sound, "{one}");
    assert_eq!(fates(&one, &id), [Fate::Disclosed, Fate::Withheld]);
    assert!(leaks(&world.path("."), MAIL).contains(&"one".to_owned()));
    world.gesta(&["export", &id, "-o", "again", "--disclose", "/mail"]).ok();
    assert_eq!(
        std::fs::read(world.path("one")).unwrap(),
        std::fs::read(world.path("again")).unwrap()
    );
    world.gesta(&["export", &id, "-o", "all", "--disclose", "all"]).ok();
    assert_eq!(fates(&audit("all"), &id), [Fate::Disclosed, Fate::Disclosed]);
    assert!(
        world
            .gesta(&["export", &id, "-o", "x", "--disclose", "/nothing"])
            .expect(2)
            .err
            .contains("/nothing")
    );

    // A value that was changed is not what was committed to.
    let bytes = std::fs::read(world.path("one")).unwrap();
    let changed = String::from_utf8_lossy(&bytes).replace(MAIL, "eve.smith+7@example.org");
    std::fs::write(world.path("bad"), changed.as_bytes()).unwrap();
    let refused = gesta_verify::bundle::Bundle::open(&world.path("bad")).unwrap_err();
    assert_eq!(refused.code, "openings", "{refused}");
}

#[test]
fn what_is_erased_is_gone_and_everything_still_verifies() {
    let world = world();
    let id = greeted(&world);
    let key = data_key(&world);
    assert!(holds(&world.path("gesta.db-data-keys"), &key));
    let mode = std::fs::metadata(world.path("gesta.db-data-keys")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);

    let erased = world.gesta(&["erase", &id, "--reason", "asked for", "--json"]).json();
    for file in std::fs::read_dir(world.path(".")).unwrap() {
        let path = file.unwrap().path();
        assert!(path.is_dir() || !holds(&path, &key), "{}", path.display());
    }
    assert_eq!(world.kinds(&id).last().unwrap(), "erased");
    assert_eq!(world.bodies(&id, "erased")[0]["what"], erased["key"]);
    // Whoever asks again finds it done.
    assert_eq!(world.gesta(&["erase", &id, "--reason", "again", "--json"]).json(), erased);
    assert_eq!(world.bodies(&id, "erased").len(), 1);

    let told = world.gesta(&["verify", &id]).ok();
    assert!(told.contains("input/inline/mail: erased"), "{told}");
    assert!(world.gesta(&["log", &id, "--reveal"]).ok().contains("‹erased›"));
    let told = world.gesta(&["export", &id, "-o", "x", "--disclose", "/mail"]).expect(1).err;
    assert!(told.contains("erased"), "{told}");
    let told = world.gesta(&["export", &id, "-o", "bundle", "--disclose", "all"]).ok();
    assert!(told.contains("2 sensitive values: 0 disclosed, 0 withheld, 2 erased"), "{told}");
    let report = audit(&world.path("bundle"), &world.path("trust.json"));
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
    assert_eq!(fates(&report, &id), [Fate::Erased, Fate::Erased]);
    world.gesta(&["doctor"]).ok();

    let nothing = world.gesta(&["run", "plain.yaml"]);
    assert_ne!(nothing.code, Some(0));
    world.write("plain.yaml", "job: plain\nsteps:\n  - { id: a, set: 1 }\n");
    world.gesta(&["run", "plain.yaml"]).ok();
    let plain = world.jobs().into_iter().find(|job| *job != id).unwrap();
    let told = world.gesta(&["erase", &plain, "--reason", "x"]).expect(1).err;
    assert!(told.contains("no sensitive values"), "{told}");
}

/// The only data key of a workspace.
pub(crate) fn data_key(world: &World) -> Vec<u8> {
    let file = rusqlite::Connection::open(world.path("gesta.db-data-keys")).unwrap();
    file.query_row("SELECT key FROM data_keys", [], |row| row.get(0)).unwrap()
}

pub(crate) fn holds(path: &Path, bytes: &[u8]) -> bool {
    std::fs::read(path).unwrap().windows(bytes.len()).any(|window| window == bytes)
}

#[test]
fn without_the_data_key_nothing_is_sent_and_nothing_lost() {
    let world = world();
    let id = world.gesta(&["submit", "job.yaml", "--input", &format!("mail={MAIL}")]).ok();
    let id = id.trim();
    std::fs::rename(world.path("gesta.db-data-keys"), world.path("elsewhere")).unwrap();
    let told = world.gesta(&["resume", id]).expect(1).err;
    assert!(told.contains("the data key of t_") && told.contains("gesta.db-data-keys"), "{told}");
    let mut worker = world.start(&["worker"]);
    worker.says("is left as it is: the data key");
    worker.signal(rustix::process::Signal::TERM);
    worker.ends();
    assert_eq!(world.kinds(id), ["root", "plan"]);
    assert!(!world.path("found").exists());
    let told = world.gesta(&["log", id, "--reveal"]).expect(1).err;
    assert!(told.contains("the data key of t_"), "{told}");

    std::fs::rename(world.path("elsewhere"), world.path("gesta.db-data-keys")).unwrap();
    world.gesta(&["resume", id]).ok();
    assert_eq!(world.read("sent").lines().count(), 1);

    // One that is given up needs no key.
    let id = world.gesta(&["submit", "job.yaml", "--input", &format!("mail={MAIL}")]).ok();
    std::fs::remove_file(world.path("gesta.db-data-keys")).unwrap();
    world.gesta(&["cancel", id.trim()]).ok();
    world.gesta(&["resume", id.trim()]).expect(11);
}

#[test]
fn the_same_key_and_value_is_the_same_job() {
    let world = world();
    let submit = |mail: &str| {
        world.gesta(&["submit", "job.yaml", "--key", "k", "--input", &format!("mail={mail}")])
    };
    let id = submit(MAIL).ok();
    assert_eq!(submit(MAIL).ok(), id);
    assert!(submit("eve@example.org").expect(2).err.contains("another plan or input"));
}

#[test]
fn what_a_tool_says_when_it_fails_does_not_tell() {
    let world = world();
    world.write(
        "job.yaml",
        "job: refused\ninput:\n  mail: { type: string, sensitive: true }\nsteps:\n  - { id: r, tool: mail.refuse, args: { to: \"${input.mail}\" } }\n",
    );
    let ran = world.gesta(&["run", "job.yaml", "--input", &format!("mail={MAIL}")]).expect(10);
    assert!(ran.out.contains("[sensitive]") && !ran.out.contains(MAIL), "{}", ran.out);
    assert!(!ran.err.contains(MAIL), "{}", ran.err);
    assert_eq!(leaks(&world.path("."), MAIL), Vec::<String>::new());
    // Whoever may see it sees it all.
    let (id, kinds) = (world.job(), world.kinds(&world.job()));
    let seq = kinds.iter().position(|kind| kind == "failure").unwrap();
    let shown = world.gesta(&["show", &format!("{id}:{seq}"), "--reveal", "--json"]).json();
    assert!(shown["output"].as_str().unwrap().contains(MAIL), "{shown}");

    // A value that does not fit the tool's schema is found before anything is sent.
    world.write("job.yaml", JOB);
    let ran = world.gesta(&["run", "job.yaml", "--input", "mail=a@b.c"]).expect(10);
    assert!(ran.out.contains("does not fit the tool's schema: at `/mail`"), "{}", ran.out);
    assert!(!world.path("found").exists());
}

#[test]
fn what_would_leak_is_refused() {
    let world = world();
    let check = |steps: &str| {
        world.write(
            "bad.yaml",
            &format!(
                "job: bad\ninput:\n  mail: {{ type: string, sensitive: true }}\nsteps:\n{steps}\n"
            ),
        );
        world.gesta(&["check", "bad.yaml"]).expect(2).out
    };
    for (steps, told) in [
        ("  - { id: a, set: \"${input.mail + '!'}\" }", "`input.mail` is sensitive: no expression"),
        ("  - { id: a, set: \"to ${input.mail}\" }", "`input.mail` is sensitive: no expression"),
        ("  - { id: a, when: \"input.mail != ''\", set: 1 }", "`input.mail` is sensitive"),
        (
            "  - { id: a, tool: mail.send, args: { to: x, text: \"${input.mail}\" } }",
            "`text` of `mail.send` is not marked",
        ),
        (
            "  - { id: a, tool: mail.send, args: { to: [\"${input.mail}\"], text: x } }",
            "stands inside of",
        ),
        ("  - { id: a, set: { $commit: x } }", "`$commit` is not a key"),
    ] {
        let found = check(steps);
        assert!(found.contains(told), "{steps}:\n{found}");
    }
    let run = |steps: &str| {
        world.write("bad.yaml", &format!("job: bad\ninput:\n  mail: {{ type: string, sensitive: true }}\nsteps:\n  - {{ id: all, set: {{ got: \"${{input}}\" }} }}\n{steps}\n"));
        world.gesta(&["run", "bad.yaml", "--input", &format!("mail={MAIL}")]).expect(10).out
    };
    for (steps, told) in [
        (
            "  - { id: a, tool: mail.send, args: { to: x, text: \"${steps.all.result.got.mail}\" } }",
            "`/text` of `mail.send` is given a sensitive value",
        ),
        (
            "  - { id: a, set: \"${steps.all.result.got.mail == 'x'}\" }",
            "cannot compare a sensitive value",
        ),
        ("  - { id: a, set: \"${to_json(steps.all.result)}\" }", "`to_json` cannot be used"),
    ] {
        let found = run(steps);
        assert!(found.contains(told), "{steps}:\n{found}");
    }
    assert_eq!(leaks(&world.path("."), MAIL), Vec::<String>::new());

    world.write("policy.cedar", "@id(\"to\") permit (principal, action in Action::\"tool:mail.send\", resource) when { context.args.to == \"x\" };\n");
    let told = world.gesta(&["policy", "check"]).expect(2).out;
    assert!(told.contains("`to` of `mail.send` is sensitive"), "{told}");
}

#[test]
fn whoever_is_asked_can_look() {
    let world = world();
    world.write("policy.cedar", "@id(\"find\") permit (principal, action in Action::\"tool:crm.find\", resource);\n@id(\"send\") permit (principal, action == Action::\"call:mail.send\", resource);\n");
    world.gesta(&["policy", "publish"]).ok();
    let id = world.gesta(&["submit", "job.yaml", "--input", &format!("mail={MAIL}")]).ok();
    let mut worker = world.start(&["worker"]);
    worker.says("asks");
    worker.signal(rustix::process::Signal::TERM);
    worker.ends();
    let asked = world.gesta(&["approvals"]).ok();
    assert!(asked.contains("‹sensitive›") && !asked.contains(MAIL), "{asked}");
    assert!(world.gesta(&["approvals", "--reveal"]).ok().contains(MAIL));
    let id = id.trim();
    let told = world.gesta(&["erase", id, "--reason", "x"]).expect(1).err;
    assert!(told.contains("has not ended"), "{told}");
    world.gesta(&["approve", id, "--reveal"]).ok();
    world.gesta(&["resume", id]).ok();
    assert!(world.read("sent").contains(MAIL));
}

#[test]
fn a_family_shares_its_values_and_is_erased_together() {
    let world = world();
    world.write(
        "child.yaml",
        "job: child\ninput:\n  mail: { type: string, sensitive: true }\nsteps:\n  - { id: who, tool: crm.find, args: { mail: \"${input.mail}\" } }\nanswer: ${steps.who.result}\n",
    );
    world.write(
        "parent.yaml",
        "job: parent\ninput:\n  mail: { type: string, sensitive: true }\nsteps:\n  - id: ask\n    delegate: { job: child.yaml, input: { mail: \"${input.mail}\" } }\n  - { id: send, tool: mail.send, args: { to: \"${input.mail}\", name: \"${steps.ask.result.name}\", text: hi } }\n",
    );
    world.gesta(&["run", "parent.yaml", "--input", &format!("mail={MAIL}")]).ok();
    assert!(world.read("sent").contains("Bob"));
    let jobs = world.gesta(&["jobs", "--json"]).json_lines();
    let id = |name: &str| {
        jobs.iter().find(|job| job["job"] == name).unwrap()["trajectory"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (parent, child) = (id("parent"), id("child"));
    let told = world.gesta(&["erase", &parent, "--reason", "x"]).expect(1).err;
    assert!(told.contains(&child) && told.contains("--tree"), "{told}");
    let told = world.gesta(&["erase", &child, "--tree", "--reason", "x"]).expect(1).err;
    assert!(told.contains(&format!("under the key of {parent}")), "{told}");
    world.gesta(&["erase", &parent, "--tree", "--reason", "x"]).ok();
    for id in [&parent, &child] {
        assert_eq!(world.kinds(id).last().unwrap(), "erased");
    }
    let told = world.gesta(&["verify"]).ok();
    assert!(told.contains(": erased") && !told.contains(": withheld"), "{told}");
}

#[test]
fn a_signal_may_carry_what_is_sensitive() {
    let world = world();
    world.write(
        "job.yaml",
        "job: wait\nsteps:\n  - { id: told, wait: { signal: told } }\n  - { id: send, tool: mail.send, args: { to: \"${steps.told.result}\", text: hi } }\n",
    );
    let id = world.gesta(&["submit", "job.yaml"]).ok();
    let payload = format!("\"{MAIL}\"");
    world.gesta(&["signal", id.trim(), "told", "--payload", &payload, "--sensitive"]).ok();
    world.gesta(&["resume", id.trim()]).ok();
    assert!(world.read("sent").contains(MAIL));
    let found = leaks(&world.path("."), MAIL);
    assert_eq!(found, ["sent"]);
    let forged = format!("{{\"$commit\":\"{}\"}}", "0".repeat(64));
    let told = world.gesta(&["signal", id.trim(), "told", "--payload", &forged]).expect(1).err;
    assert!(told.contains("`$commit` is not a key"), "{told}");
}

#[cfg(feature = "postgres")]
#[test]
fn on_postgres_the_keys_have_a_schema_of_their_own() {
    let database = crate::postgres::Database::new("sensitive");
    let (url, world) = (database.url(), World::new());
    let gesta = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    world.free();
    gesta(&["init"]).ok();
    world.set_tools(TOOLS);
    world.write("job.yaml", JOB);
    gesta(&["run", "job.yaml", "--input", &format!("mail={MAIL}")]).ok();
    assert!(world.read("sent").contains(MAIL));
    let jobs = gesta(&["jobs", "--json"]).json_lines();
    let id = jobs[0]["trajectory"].as_str().unwrap();
    assert!(gesta(&["log", id, "--reveal"]).ok().contains(MAIL));
    let schemas = "SELECT count(*) FROM gesta_keys.data_keys WHERE key IS NOT NULL";
    assert_eq!(database.count(schemas), 1);
    gesta(&["erase", id, "--reason", "asked for"]).ok();
    assert_eq!(database.count(schemas), 0);
    gesta(&["erase", id, "--reason", "again"]).ok();
    assert!(gesta(&["verify", id]).ok().contains("mail: erased"));
    let told = gesta(&["log", id, "--reveal"]).ok();
    assert!(told.contains("‹erased›") && !told.contains(MAIL), "{told}");
    assert_eq!(told.matches("  erased  ").count(), 1, "{told}");
}

/// Where the database has the keys too, whoever copies it has them; where a file has them, no copy of it does.
#[cfg(feature = "postgres")]
#[test]
fn beside_a_database_the_keys_can_have_a_file_of_their_own() {
    let database = crate::postgres::Database::new("apart");
    let (url, world) = (database.url(), World::new());
    let gesta = |arguments: &[&str]| world.gesta_with(arguments, &[("GESTA_STORE", &url)]);
    world.free();
    gesta(&["init"]).ok();
    world.set_tools(TOOLS);
    let keys = || {
        let told = gesta(&["doctor", "--json"]).json();
        assert_eq!(told["ok"], true, "{told:#}");
        let checks = told["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|checked| checked["check"] == "data keys").unwrap()
    };
    let found = keys();
    assert_eq!(found["health"], "warning", "{found}");
    assert!(found["what"].as_str().unwrap().contains("`data_keys` in gesta.toml"), "{found}");
    let told = gesta(&["doctor"]).ok();
    assert!(told.contains("warning   data keys    those of sensitive values"), "{told}");

    let config = world.read("gesta.toml");
    world.write("gesta.toml", &format!("data_keys = \"data-keys.db\"\n{config}"));
    let found = keys();
    assert_eq!(found["health"], "ok", "{found}");
    assert!(found["what"].as_str().unwrap().contains("data-keys.db`, apart"), "{found}");
    world.write("job.yaml", JOB);
    gesta(&["run", "job.yaml", "--input", &format!("mail={MAIL}")]).ok();
    let jobs = gesta(&["jobs", "--json"]).json_lines();
    let id = jobs[0]["trajectory"].as_str().unwrap();
    assert!(gesta(&["log", id, "--reveal"]).ok().contains(MAIL));
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'gesta_keys'";
    assert_eq!(database.count(schemas), 0, "the database has none");
    gesta(&["erase", id, "--reason", "asked for"]).ok();
    let told = gesta(&["log", id, "--reveal"]).ok();
    assert!(told.contains("‹erased›") && !told.contains(MAIL), "{told}");
    gesta(&["verify", id]).ok();
}

/// A verifier compares with what was sent, for whoever has the data key.
#[test]
fn a_replay_can_ask_about_what_is_sensitive_while_its_key_is_there() {
    let tools = r#"
[tools.note]
effect = "write"
input = { type = "object", required = ["text"], properties = { text = { type = "string", x-gesta-sensitive = true } } }
changes = [{ type = "note", id = "'the-note'", value = "args" }]
verify = [{ type = "note", verifier = "notes", args = {}, holds = "found.text == args.text" }]
driver.process = { command = "cat > note; echo null", shell = true, env = ["PATH"] }

[tools."note.read"]
effect = "read"
driver.process = { command = "cat note", shell = true, env = ["PATH"] }

[verifiers.notes]
tool = "note.read"
timeout = "5s"
"#;
    let world = World::with_tools(tools);
    world.write("job.yaml", "job: n\ninput:\n  text: { type: string, sensitive: true }\nsteps:\n  - { id: note, tool: note, args: { text: \"${input.text}\" } }\n");
    world.gesta(&["run", "job.yaml", "--input", &format!("text={NAME}")]).ok();
    let id = world.job();
    let verdict = |code| {
        let replay = world.gesta(&["replay", &id, "--confirm", "--json"]).expect(code).out;
        let replay: serde_json::Value = serde_json::from_str(&replay).unwrap();
        let replay = replay["replays"][0]["checks"][0].clone();
        assert!(!replay.to_string().contains("Bob"), "{replay}");
        replay["verdict"].clone()
    };
    assert_eq!(verdict(0), "ok");
    world.write("note", r#"{"text":"somebody else"}"#);
    assert_eq!(verdict(7), "mismatch");
    world.gesta(&["erase", &id, "--reason", "asked for"]).ok();
    assert_eq!(verdict(0), "unknown");
}
