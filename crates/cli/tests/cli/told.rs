//! Notices over the wire: what waits for a person, or should be known to one, is posted to those who are to
//! be told, signed, until they say that they have it, and to nobody else.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gesta_core::digest::Digest;
use serde_json::{Value, json};

use crate::recovery::{JOB, hanging, spooled};
use crate::world::World;

const SECRET: &str = "a secret of some length";
/// Nothing here takes that long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// One delivery.
struct Delivery {
    to: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Delivery {
    fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// It is a CloudEvent, and signed with the secret.
    #[track_caller]
    fn is_sound(&self) {
        let event = self.event();
        let id = event["id"].as_str().unwrap();
        assert_eq!((&event["specversion"], &self.headers["webhook-id"][..]), (&json!("1.0"), id));
        let at = &self.headers["webhook-timestamp"];
        let signed = [format!("{id}.{at}.").as_bytes(), &self.body].concat();
        let code = BASE64.encode(hmac(SECRET.as_bytes(), &signed));
        assert_eq!(self.headers["webhook-signature"], format!("v1,{code}"));
    }
}

/// HMAC-SHA256 as its definition says it, for keys that are shorter than a block.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = [block.map(|byte| byte ^ 0x36).as_slice(), message].concat();
    let inner = Digest::of(&inner);
    *Digest::of(&[block.map(|byte| byte ^ 0x5c).as_slice(), inner.as_bytes()].concat()).as_bytes()
}

/// Somebody who is told. Whatever arrives first at each address is refused once.
struct Receivers {
    port: u16,
    delivered: Receiver<Delivery>,
}

impl Receivers {
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (said, delivered) = channel();
        std::thread::spawn(move || {
            let mut seen = BTreeMap::<String, u32>::new();
            for stream in listener.incoming().flatten() {
                let Some(delivery) = read(&stream) else { continue };
                let times = seen.entry(delivery.to.clone()).or_default();
                *times += 1;
                let answer = if *times == 1 { "503 Service Unavailable" } else { "204 No Content" };
                if said.send(delivery).is_err() {
                    return;
                }
                let _ = (&stream).write_all(
                    format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        .as_bytes(),
                );
            }
        });
        Self { port, delivered }
    }

    /// `[notify.NAME]` for an address of this one.
    fn notify(&self, name: &str, more: &str) -> String {
        format!(
            "[notify.{name}]\nurl = \"http://127.0.0.1:{}/{name}\"\nsecret = {{ file = \"hook.key\" }}\nallow_private = true\n{more}\n",
            self.port
        )
    }

    /// What arrives until so many addresses have had so many different notices: by address, the events in
    /// order of their first arrival.
    #[track_caller]
    fn told(&self, wanted: &[(&str, usize)]) -> BTreeMap<String, Vec<Value>> {
        let mut told = BTreeMap::<String, Vec<Value>>::new();
        let mut times = BTreeMap::<(String, String), u32>::new();
        let begun = Instant::now();
        let enough = |told: &BTreeMap<String, Vec<Value>>, times: &BTreeMap<_, u32>| {
            let all = wanted
                .iter()
                .all(|(to, count)| told.get(*to).is_some_and(|events| events.len() >= *count));
            all && times.values().any(|times| *times > 1)
        };
        while !enough(&told, &times) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let delivery = self.delivered.recv_timeout(left).unwrap_or_else(|_| panic!("{told:?}"));
            delivery.is_sound();
            let event = delivery.event();
            let id = event["id"].as_str().unwrap().to_owned();
            let events = told.entry(delivery.to.clone()).or_default();
            if !events.contains(&event) {
                events.push(event);
            }
            *times.entry((delivery.to, id)).or_default() += 1;
        }
        told
    }
}

fn read(stream: &TcpStream) -> Option<Delivery> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let to = line.split(' ').nth(1)?.trim_start_matches('/').to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Delivery { to, headers, body })
}

fn tool(name: &str, more: &str, script: &str) -> String {
    format!(
        "[tools.{name}]\neffect = \"external\"\n{more}\n[tools.{name}.driver.process]\ncommand = '''{script}'''\nshell = true\nenv = [\"PATH\"]\n"
    )
}

fn scene(settings: &str) -> World {
    let world = World::with_tools(settings);
    world.write("hook.key", SECRET);
    world
}

fn one(tool: &str) -> String {
    format!("job: {tool}\nsteps:\n  - {{ id: it, tool: {tool} }}\n")
}

/// Two tools, about which other people are asked: each is told of their own, and one of all.
#[test]
fn an_approval_is_told_to_those_who_are_asked_and_to_nobody_else() {
    let receivers = Receivers::listen();
    let events = "events = [\"approval\"]";
    let settings = [
        tool("pay", "", "echo 1"),
        tool("sign", "", "echo 1"),
        receivers.notify("finance", "channels = [\"finance\"]"),
        receivers.notify("legal", "channels = [\"legal\", \"board\"]"),
        receivers.notify("all", events),
    ];
    let world = scene(&settings.concat());
    let ask = |id: &str, channel: &str| {
        format!(
            "@id(\"ask-{id}\") @channel(\"{channel}\") @expires(\"1h\") @reason(\"said so\")\nforbid (principal, action == Action::\"call_unattended:{id}\", resource);\n"
        )
    };
    let all = "@id(\"all\") permit (principal, action, resource);\n";
    world.write("policy.cedar", &[all, &ask("pay", "finance"), &ask("sign", "legal")].concat());
    world.gesta(&["policy", "publish"]).ok();
    for name in ["pay", "sign"] {
        world.write("job.yaml", &one(name));
        world.gesta(&["submit", "job.yaml"]).ok();
    }
    let worker = world.start(&["worker"]);
    let told = receivers.told(&[("finance", 1), ("legal", 1), ("all", 2)]);
    worker.kill();
    let channels = |to: &str| -> Vec<Value> {
        told[to].iter().map(|event| event["data"]["channels"].clone()).collect()
    };
    assert_eq!(channels("finance"), [json!(["finance"])]);
    assert_eq!(channels("legal"), [json!(["legal"])]);
    assert_eq!(channels("all").len(), 2);
    for event in told.values().flatten() {
        assert_eq!(
            (&event["type"], &event["data"]["step"]),
            (&json!("gesta.approval"), &json!("it"))
        );
    }
    let odd = scene(&receivers.notify("odd", "channels = [\"no channel, this\"]"));
    odd.gesta(&["worker", "--once"]).expect(2);
}

/// What a job left was changed while it was down, and somebody is to look: they are told.
#[test]
fn a_world_that_differs_is_told_of() {
    let receivers = Receivers::listen();
    let more = "recovery = \"safe\"\nchanges = [{ type = \"lamp\", id = \"'hall'\" }]\nverify = [{ type = \"lamp\", verifier = \"lamps\", args = { path = \"lamp\" }, holds = \"found.sha256 == value.sha256\" }]";
    let settings = [
        tool(
            "light",
            more,
            "echo on > lamp; echo \"{\\\"sha256\\\":\\\"$(sha256sum lamp | cut -d' ' -f1)\\\"}\"",
        ),
        "[verifiers.lamps]\nfile = { root = \".\" }\n".to_owned(),
        receivers.notify("ops", "events = [\"confirmation\"]\nchannels = [\"finance\"]"),
    ];
    let world = scene(&settings.concat());
    world.write(
        "job.yaml",
        "job: lit\nconfirm: human\nsteps:\n  - { id: done, tool: light }\n  - { id: wait, wait: { signal: go }, needs: [done] }\n  - { id: use, set: used, needs: [wait] }\n",
    );
    let mut run = world.start(&["run", "job.yaml"]);
    run.says("leaves it waiting");
    run.kill();
    let id = world.job();
    world.gesta(&["signal", &id, "go"]).ok();
    world.write("lamp", "off\n");
    let worker = world.start(&["worker"]);
    // It names no channel, so it is for everybody who hears of such things.
    let told = receivers.told(&[("ops", 1)]);
    worker.kill();
    let event = &told["ops"][0];
    assert_eq!((&event["type"], &event["subject"]), (&json!("gesta.confirmation"), &json!(id)));
}

/// A tenant's budget, and a job's own.
#[test]
fn a_threshold_is_told_of_the_tenants_budget_and_of_the_jobs_own() {
    let receivers = Receivers::listen();
    let settings = [
        "[limits]\nwarn_at = [50, 80]\n\n".to_owned(),
        tool("pay", "", "echo 1"),
        receivers.notify("ops", "events = [\"budget\"]"),
    ];
    let world = scene(&settings.concat());
    world.gesta(&["budget", "set", "main", "--calls", "6"]).ok();
    let steps: String = (0..4).map(|step| format!("  - {{ id: s{step}, tool: pay }}\n")).collect();
    world.write("job.yaml", &format!("job: four\nsteps:\n{steps}"));
    let id = world.gesta(&["submit", "job.yaml", "--budget", "calls=8"]).ok().trim().to_owned();
    let mut worker = world.start(&["worker"]);
    worker.says(": completed");
    let told = receivers.told(&[("ops", 2)]);
    worker.kill();
    let own: Vec<&Value> =
        told["ops"].iter().filter(|event| event["subject"] == json!(id)).collect();
    assert_eq!(own.len(), 1, "{told:?}");
    let data = &own[0]["data"];
    assert_eq!((&data["reached"], &data["used"]["calls"]), (&json!(50), &json!(4)));
    assert_eq!(data["limit"]["calls"], 8);
    let tenants: Vec<&Value> =
        told["ops"].iter().filter(|event| event["subject"] == json!("main")).collect();
    assert!(!tenants.is_empty(), "{told:?}");
    let rows = world.gesta(&["log", "--json"]).json_lines();
    let registry = rows.iter().find(|row| row["summary"]["kind"] == "registry").unwrap();
    let log = world.gesta(&["log", registry["trajectory"].as_str().unwrap()]).ok();
    assert!(log.contains("tenant `main` has reached "), "{log}");
    assert!(told["ops"].iter().all(|event| event["type"] == json!("gesta.budget")));
}

/// What a worker saw arrives after its job was given up.
#[test]
fn a_late_effect_is_told_of() {
    let receivers = Receivers::listen();
    let ops = receivers.notify("ops", "events = [\"late_effect\"]");
    let world = scene(&(hanging("never", "50s") + &ops));
    world.write("job.yaml", JOB);
    world.fifo("reached");
    world.fifo("pause");
    let run = world.start(&["run", "job.yaml"]);
    world.hear("reached");
    run.kill();
    let id = world.job();
    world.gesta(&["resume", &id]).expect(12);
    world.gesta(&["resolve", &id, "--give-up"]).ok();
    world.gesta(&["resume", &id]).expect(10);
    spooled(&world, &id);
    let worker = world.start(&["worker"]);
    let told = receivers.told(&[("ops", 1)]);
    worker.kill();
    let event = &told["ops"][0];
    assert_eq!((&event["type"], &event["subject"]), (&json!("gesta.late_effect"), &json!(id)));
    assert_eq!(event["data"]["step"], "a");
}
