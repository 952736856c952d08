//! Secrets reach the tool and nobody else.

use std::io::Write;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gesta_core::document::Certainty::DidNotHappen;
use gesta_core::writ::Effect;
use gesta_runtime::tools::{Catalogue, FunctionError, Manifest, Reply, SecretSource, code};
use serde_json::json;

use crate::server::{Act, Server};
use crate::world::{World, answer, ask, failure};

const SECRET: &str = "hunter2/\"correct horse\"+é";

/// A shell tool whose secret KEY is in the file `key`.
fn shell(line: &str) -> String {
    let line = serde_json::to_string(line).unwrap();
    format!(
        "[tools.t]\neffect = \"write\"\nsecrets = {{ KEY = {{ file = \"key\" }} }}\n\
         [tools.t.driver.process]\nshell = true\ncommand = {line}\nenv = [\"PATH\"]\n"
    )
}

fn world() -> World {
    let world = World::new();
    world.write("key", format!("{SECRET}\n"));
    world
}

fn absent(text: &str) {
    for form in [SECRET, "hunter2", "correct horse", &STANDARD.encode(SECRET)] {
        assert!(!text.contains(form), "{text}");
    }
}

#[tokio::test]
async fn a_program_finds_its_secret_in_its_environment_and_not_in_its_arguments() {
    let world = world();
    let line = "[ ${#KEY} -gt 20 ] && tr '\\0' ' ' </proc/$$/cmdline && printf %s \"$KEY\" >seen";
    let output = answer(ask(&world.catalogue(&shell(line)), "t", &json!({})).await);
    absent(&output);
    assert!(output.starts_with("/bin/sh -c "), "{output}");
    let seen = std::fs::read_to_string(world.path("seen")).unwrap();
    assert_eq!(seen, SECRET, "one newline at the end of the file does not count");
}

#[tokio::test]
async fn outputs_and_complaints_are_masked_in_every_encoding() {
    let world = world();
    world.write("base64", STANDARD.encode(format!("u:{SECRET}")));
    let percent: String = SECRET.bytes().map(|b| format!("%{b:02x}")).collect();
    world.write("percent", percent);
    world.write("json", serde_json::to_string(SECRET).unwrap());
    let show = "printf '%s|' \"$KEY\"; cat base64; printf '|'; cat percent; printf '|'; cat json";
    let masked = "[secret KEY]|";
    let output = answer(ask(&world.catalogue(&shell(show)), "t", &json!({})).await);
    absent(&output);
    assert!(
        output.starts_with(masked) && output.ends_with("|[secret KEY]|\"[secret KEY]\""),
        "{output}"
    );
    assert_eq!(output.matches("[secret KEY]").count(), 4, "{output}");
    let complain = format!("{{ {show}; }} >&2; {show}; exit 1");
    let reply = ask(&world.catalogue(&shell(&complain)), "t", &json!({})).await;
    absent(&format!("{reply:?}"));
    let Reply::Failed { error, output, .. } = reply else { panic!() };
    assert_eq!(error.message.matches("[secret KEY]").count(), 4, "{}", error.message);
    assert_eq!(String::from_utf8(output).unwrap().matches("[secret KEY]").count(), 4);
}

/// The tail of the complaints is cut at a place where only the end of a secret is left.
#[tokio::test]
async fn a_secret_that_is_cut_in_two_is_not_told() {
    let world = world();
    for before in [0, 1, 7, 20] {
        let line = format!(
            "{{ printf '%s' \"$KEY\"; head -c $((4096 - {before})) /dev/zero | tr '\\0' .; }} >&2; exit 1"
        );
        let (_, message) = failure(ask(&world.catalogue(&shell(&line)), "t", &json!({})).await);
        assert!(!message.contains("horse") && !message.contains('é'), "{before}: {message}");
    }
    let many = "i=0; while [ $i -lt 400 ]; do printf '%s' \"$KEY\" >&2; i=$((i+1)); done; exit 1";
    let (_, message) = failure(ask(&world.catalogue(&shell(many)), "t", &json!({})).await);
    absent(&message);
    assert!(!message.contains("horse"), "{message}");
}

#[tokio::test]
async fn a_missing_secret_stops_the_call_and_is_named() {
    let world = World::new();
    world.write("short", "abc\n");
    world.write("nul", "abc\0def");
    world.write("large", "x".repeat(70_000));
    for (source, expected) in [
        ("env = \"GESTA_TEST_NOT_SET\"", "`KEY` is not set; set the variable `GESTA_TEST_NOT_SET`"),
        ("file = \"missing\"", "`KEY` cannot be read from"),
        ("file = \"short\"", "is shorter than 4 bytes"),
        ("file = \"nul\"", "holds a NUL byte"),
        ("file = \"large\"", "is larger than"),
    ] {
        let toml = shell("touch ran").replace("file = \"key\"", source);
        let (found, message) = failure(ask(&world.catalogue(&toml), "t", &json!({})).await);
        assert_eq!(found, (DidNotHappen, false, code::SECRET_UNAVAILABLE.to_owned()));
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("abc"), "{message}");
    }
    assert!(!world.path("ran").exists());
}

#[tokio::test]
async fn a_secret_is_read_at_each_call() {
    let world = world();
    let catalogue = world.catalogue(&shell("printf %s \"$KEY\" >seen; echo \"$KEY\""));
    for value in [SECRET, "another value"] {
        world.write("key", value);
        assert_eq!(answer(ask(&catalogue, "t", &json!({})).await), "[secret KEY]\n");
        assert_eq!(std::fs::read_to_string(world.path("seen")).unwrap(), value);
    }
}

#[tokio::test]
async fn functions_have_secrets_too() {
    let world = world();
    let mut manifest = Manifest::new("t".parse().unwrap(), Effect::Write);
    let source = SecretSource::File(world.path("key"));
    manifest.secrets.insert("KEY".parse().unwrap(), source);
    let catalogue = Catalogue::builder()
        .function(manifest, |call| async move {
            absent(&format!("{call:?}"));
            let secret = String::from_utf8(call.secret("KEY").unwrap().to_vec()).unwrap();
            assert_eq!((secret.as_str(), call.secret("OTHER")), (SECRET, None));
            match call.args.as_str() {
                "{}" => Ok(json!({ "echo": secret })),
                _ => Err(FunctionError::happened(secret)),
            }
        })
        .build()
        .unwrap();
    assert_eq!(answer(ask(&catalogue, "t", &json!({})).await), "{\"echo\":\"[secret KEY]\"}");
    let (_, message) = failure(ask(&catalogue, "t", &json!({"fail": true})).await);
    assert_eq!(message, "[secret KEY]");
}

/// Everything that is logged in this process, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn nothing_that_is_shown_or_logged_holds_a_secret() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    tracing::info!("the log works");
    let world = world();
    let server = Server::start(vec![Act::echo_head(), Act::echo_head()]).await;
    let http = format!(
        "[tools.h]\neffect = \"write\"\nsecrets = {{ KEY = {{ file = \"header\" }} }}\n\
         [tools.h.driver.http]\nmethod = \"POST\"\nurl = \"{}/x\"\nallow_private = true\n\
         headers = {{ Authorization = \"Bearer {{secret:KEY}}\" }}\n",
        server.url()
    );
    world.write("header", "hunter2 correct horse");
    let catalogue = world.catalogue(&format!("{}{http}", shell("echo \"$KEY\"; exit 3")));
    absent(&format!("{catalogue:?} {:#?}", catalogue.iter().collect::<Vec<_>>()));
    absent(catalogue.canonical().as_str());
    for tool in ["t", "h"] {
        absent(&format!("{:?}", ask(&catalogue, tool, &json!({})).await));
    }
    assert!(server.heard(0).contains("authorization: Bearer hunter2 correct horse\r\n"));
    // A header that cannot be made of the secret is not shown either.
    world.write("header", "hunter2 correct horse\nX-Injected: 1");
    let reply = ask(&catalogue, "h", &json!({})).await;
    absent(&format!("{reply:?}"));
    let (found, _) = failure(reply);
    assert_eq!(found, (DidNotHappen, false, code::SECRET_UNAVAILABLE.to_owned()));
    assert_eq!(server.deliveries(), 1);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("the log works"));
    absent(&log);
}

#[tokio::test]
async fn an_echoed_header_is_masked() {
    let world = world();
    world.write("header", "hunter2 correct horse");
    let server = Server::start(vec![Act::echo_head()]).await;
    let toml = format!(
        "[tools.h]\neffect = \"write\"\nsecrets = {{ KEY = {{ file = \"header\" }} }}\n\
         [tools.h.driver.http]\nmethod = \"POST\"\nurl = \"{}/x\"\nallow_private = true\n\
         headers = {{ Authorization = \"Bearer {{secret:KEY}}\" }}\n",
        server.url()
    );
    let output = answer(ask(&world.catalogue(&toml), "h", &json!({})).await);
    assert!(output.contains("authorization: Bearer [secret KEY]\r\n"), "{output}");
    absent(&output);
}
