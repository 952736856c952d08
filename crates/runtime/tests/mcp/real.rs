//! The reference servers of the npm registry.

use std::net::TcpListener;
use std::process::Command;

use gesta_core::document::Recovery;
use gesta_core::writ::Effect;
use gesta_runtime::tools::Catalogue;
use serde_json::json;

use crate::world::{
    LONG, Web, World, answer, ask, call_within, eventually, failure, hearing, program, servers,
    tool,
};

fn everything() -> String {
    format!(
        "[mcp.all]\ncommand = [\"{}\", \"stdio\"]\nenv = [\"PATH\"]\n",
        program("mcp-server-everything")
    )
}

/// Everything that any transport must be able to do.
async fn works(catalogue: &Catalogue) {
    let sum = answer(ask(catalogue, "all.get-sum", &json!({"a": 2, "b": 40})).await);
    assert_eq!(sum["content"][0]["text"], "The sum of 2 and 40 is 42.");
    let args = json!({"location": "Chicago"});
    let weather = ask(catalogue, "all.get-structured-content", &args).await;
    let weather = gesta_core::json::Canon::of(&answer(weather)).unwrap();
    let declared = tool(catalogue, "all.get-structured-content");
    assert_eq!(declared.check_output(&weather), []);
    let wrong = json!({"content": [], "structuredContent": {"temperature": "hot"}});
    assert!(!declared.check_output(&gesta_core::json::Canon::of(&wrong).unwrap()).is_empty());

    let slow = call_within(&json!({"duration": 1, "steps": 2}), LONG);
    let (slow, heard) = hearing(slow);
    answer(tool(catalogue, "all.trigger-long-running-operation").call(slow).await);
    assert!(heard.lock().unwrap().iter().any(|line| line == "progress 1 of 2"), "{heard:?}");

    // The server says that it only reads, so a wrong argument has changed nothing.
    let refused = failure(ask(catalogue, "all.get-sum", &json!({"a": "x", "b": 1})).await);
    assert_eq!(refused.certainty, gesta_core::document::Certainty::DidNotHappen, "{refused:?}");
}

#[tokio::test]
async fn everything_over_stdio() {
    let (world, toml) = (World::new(), everything());
    let offers = world.offers(&toml).await.unwrap();
    let offer = offers.values().next().unwrap();
    assert_eq!(offer.protocol, "2025-11-25");
    assert!(offer.server.contains("mcp-servers/everything"), "{}", offer.server);
    works(&world.pinned(&toml).await).await;
}

#[tokio::test]
async fn everything_over_streamable_http() {
    let world = World::new();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut command = Command::new(program("mcp-server-everything"));
    command.env("NODE_OPTIONS", format!("--require {}", servers().join("webcrypto.cjs").display()));
    let _web = Web::start(command.arg("streamableHttp").env("PORT", port.to_string()));
    let reached = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
    eventually(reached).await;
    let toml = format!("[mcp.all]\nurl = \"http://127.0.0.1:{port}/mcp\"\nallow_private = true\n");
    let offers = world.offers(&toml).await.unwrap();
    assert_eq!(offers.values().next().unwrap().protocol, "2025-11-25");
    works(&world.pinned(&toml).await).await;
}

#[tokio::test]
async fn files_are_written_and_read_where_the_server_may() {
    let world = World::new();
    let directory = std::fs::canonicalize(world.path(".")).unwrap().display().to_string();
    let toml = format!(
        "[mcp.files]\ncommand = [\"{}\", \"{directory}\"]\nenv = [\"PATH\"]\ninclude = [\"write_file\", \"read_text_file\"]\n",
        program("mcp-server-filesystem")
    );
    let catalogue = world.pinned(&toml).await;
    let names: Vec<&str> = catalogue.iter().map(|tool| tool.name().as_str()).collect();
    assert_eq!(names, ["files.read_text_file", "files.write_file"]);
    let of = |name: &str| {
        let manifest = tool(&catalogue, name).manifest();
        (manifest.effect, manifest.recovery)
    };
    assert_eq!(of("files.read_text_file"), (Effect::Read, Recovery::Safe));
    assert_eq!(of("files.write_file"), (Effect::Irreversible, Recovery::Never));

    let path = format!("{directory}/note.txt");
    let args = json!({"path": path, "content": "done"});
    answer(ask(&catalogue, "files.write_file", &args).await);
    assert_eq!(world.read("note.txt"), "done");
    let read = answer(ask(&catalogue, "files.read_text_file", &json!({"path": path})).await);
    assert_eq!(read["structuredContent"]["content"], "done");
    let outside = json!({"path": "/etc/hostname", "content": "x"});
    let refused = failure(ask(&catalogue, "files.write_file", &outside).await);
    assert!(refused.message.contains("Access denied"), "{refused:?}");
    assert_eq!(refused.certainty, gesta_core::document::Certainty::Unknown);
}
