//! The conformance suite of the Model Context Protocol, version 2026-07-28, against what Gesta is to a server: each of its
//! servers is declared in `gesta.toml`, pinned, and called by a job.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::mcp::servers;
use crate::world::World;

/// What a client does: declares the server whose address it is given, pins it, and runs the job if there is one.
const CLIENT: &str = r#"#!/bin/sh
set -e
cd "$(dirname "$0")"
for address; do :; done
printf '\n[mcp.suite]\nurl = "%s"\nallow_private = true\nprotocol = "2026-07-28"\n' "$address" >> gesta.toml
"$GESTA" tools pin
[ -e job.yaml ] || exit 0
job=$("$GESTA" submit job.yaml)
"$GESTA" worker --once
# A call with a fraction is never made unattended.
if "$GESTA" approve "$job"; then "$GESTA" worker --once; fi
"#;

/// Plays a scenario, and says how it ended. Every check of it must succeed; what Gesta does not do, because it only
/// calls tools, is skipped by the suite itself.
fn plays(scenario: &str, steps: &str) {
    let world = World::with_free_workspace();
    if !steps.is_empty() {
        world.write("job.yaml", &format!("job: suite\nsteps:\n{steps}"));
    }
    world.write("client.sh", CLIENT);
    let client = world.path("client.sh");
    std::fs::set_permissions(&client, std::fs::Permissions::from_mode(0o755)).unwrap();
    let played = Command::new("node")
        .arg(servers().join("conformance.mjs"))
        .args(["client", "--spec-version", "2026-07-28", "--verbose", "--scenario", scenario])
        .arg("--command")
        .arg(&client)
        .env("GESTA", env!("CARGO_BIN_EXE_gesta"))
        .current_dir(world.path("."))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&played.stdout).into_owned()
        + &String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success() && told.contains("OVERALL: PASSED"), "{told}");
    assert!(!told.contains("Passed: 0/"), "nothing was looked at:\n{told}");
}

#[test]
fn a_tool_is_called() {
    plays("tools_call", "  - { id: add, tool: suite.add_numbers, args: { a: 5, b: 3 } }\n");
}

/// Version, name and capabilities with every request, and another version where the server says so.
#[test]
fn every_request_says_who_asks_and_how() {
    plays("request-metadata", "");
}

#[test]
fn headers_repeat_what_is_asked_for() {
    plays(
        "http-standard-headers",
        "  - { id: one, tool: suite.test_headers }\n  - { id: two, tool: suite.my-hyphenated-tool }\n",
    );
}

#[test]
fn headers_repeat_the_arguments_that_schemas_mark() {
    let all = r#"{ region: us-west1, priority: 42, verbose: false, debug: true, empty_val: "", method_val: test-method, float_val: 3.14159, non_ascii_val: "Hello, 世界", whitespace_val: " padded ", leading_space_val: " us-west1", trailing_space_val: "us-west1 ", internal_space_val: "us west 1", control_char_val: "line1\nline2", crlf_val: "line1\r\nline2", tab_val: "\tindented", query: "SELECT * FROM users" }"#;
    // Its schema has no place for a null: what is not given is left out.
    let few = r#"{ region: us-east1, priority: 1, query: "SELECT 1" }"#;
    plays(
        "http-custom-headers",
        &format!(
            "  - {{ id: all, tool: suite.test_custom_headers, args: {all} }}\n  - {{ id: few, tool: suite.test_custom_headers_null, args: {few} }}\n"
        ),
    );
}

/// Tools whose schemas mark arguments wrongly are in nobody's way.
#[test]
fn a_wrong_mark_spoils_one_tool_and_no_other() {
    plays(
        "http-invalid-tool-headers",
        "  - { id: it, tool: suite.valid_tool, args: { region: a } }\n",
    );
}
