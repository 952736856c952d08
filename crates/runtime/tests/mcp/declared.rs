//! Declarations of servers, and what of them is refused.

use crate::world::{Offers, World};

fn refused(toml: &str) -> String {
    let world = World::new();
    let built = world.builder(toml).and_then(|builder| builder.offers(offers()).build());
    built.map(|_| ()).unwrap_err().to_string()
}

fn offers() -> Offers {
    let raw = r#"{"name":"t","inputSchema":{"type":"object"}}"#.to_owned();
    let bad = r#"{"name":"b d","inputSchema":{"type":"object"}}"#.to_owned();
    let offer = |tools: &[(&str, &String)]| gesta_runtime::tools::Offer {
        protocol: "2025-11-25".into(),
        server: "{}".into(),
        tools: tools.iter().map(|(name, raw)| ((*name).to_owned(), (*raw).clone())).collect(),
    };
    Offers::from([
        ("x".parse().unwrap(), offer(&[("t", &raw)])),
        ("odd".parse().unwrap(), offer(&[("b d", &bad)])),
        ("list".parse().unwrap(), offer(&[("t", &"{\"name\":\"t\"}".to_owned())])),
    ])
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (toml, part) in [
        ("\n[mcp.x]\n", "tools.toml:2:6: MCP server `x`: write `command` for a program or `url`"),
        ("[mcp.x]\ncommand = [\"a\"]\nurl = \"http://a/\"\n", "and not both"),
        ("[mcp.x]\ncommand = []\n", "`command` is empty"),
        (
            "[mcp.x]\ncommand = [\"a\"]\nheaders = { A = \"b\" }\n",
            "`headers` belongs to a server with `url`",
        ),
        (
            "[mcp.x]\nurl = \"http://a/\"\nenv = [\"PATH\"]\n",
            "`env` belongs to a server with `command`",
        ),
        ("[mcp.x]\nurl = \"http://{a}/\"\n", "placeholder"),
        ("[mcp.x]\nurl = \"http://a/{b}\"\n", "a server's URL has no placeholders"),
        ("[mcp.x]\nurl = \"ftp://a/\"\n", "not an http:// or https:// URL"),
        ("[mcp.x]\nurl = \"http://a/\"\nheaders = { Mcp-Session-Id = \"b\" }\n", "leave it out"),
        ("[mcp.x]\nurl = \"http://a/\"\nheaders = { A = \"{secret:NO}\" }\n", "only {secret:NAME}"),
        ("[mcp.x]\ncommand = [\"a\"]\nenv = [\"A\"]\nset = { A = \"1\" }\n", "`A` is given twice"),
        ("[mcp.x]\ncommand = [\"a\"]\nprotocol = \"2023-01-01\"\n", "2025-11-25, 2026-07-28"),
        (
            "[mcp.x]\ncommand = [\"a\"]\ninclude = [\"t\"]\nexclude = [\"t\"]\n",
            "in `include` and in `exclude`",
        ),
        ("[mcp.x]\ncommand = [\"a\"]\ninclude = [\"u\"]\n", "did not offer it"),
        ("[mcp.x]\ncommand = [\"a\"]\n[mcp.x.tools.u]\neffect = \"read\"\n", "`u` is declared"),
        (
            "[mcp.x]\ncommand = [\"a\"]\n[mcp.x.tools.t]\ncodes = { a = \"unknown\" }\n",
            "not the code of a JSON-RPC error",
        ),
        (
            "[mcp.x]\ncommand = [\"a\"]\n[mcp.x.tools.t]\nefect = \"read\"\n",
            "unknown field `efect`",
        ),
        ("[mcp.x]\ncommand = [\"a\"]\n[mcp.x.tools.t]\nrecovery = \"probe\"\n", "needs `probe`"),
        ("[mcp.X]\ncommand = [\"a\"]\n", "is not the name of a server"),
        ("[mcp.odd]\ncommand = [\"a\"]\n", "its tool `b d` cannot be called by this name"),
        (
            "[mcp.list]\ncommand = [\"a\"]\n",
            "its tool `t` cannot be read: missing field `inputSchema`",
        ),
    ] {
        let told = refused(toml);
        assert!(told.contains(part), "{toml}\n{told}");
    }
}

#[test]
fn a_sound_declaration_is_taken() {
    let world = World::new();
    let toml = "[mcp.x]\ncommand = [\"a\"]\n[mcp.odd]\nurl = \"https://a.example/mcp\"\nexclude = [\"b d\"]\nheaders = { Authorization = \"Bearer {secret:KEY}\" }\nsecrets = { KEY = { env = \"K\" } }\n";
    let catalogue = world.builder(toml).unwrap().offers(offers()).build().unwrap();
    let names: Vec<&str> = catalogue.iter().map(|tool| tool.name().as_str()).collect();
    assert_eq!(names, ["x.t"]);
}

#[test]
fn a_server_s_tool_may_say_how_it_is_undone() {
    let world = World::new();
    let toml = "[mcp.x]\ncommand = [\"a\"]\n[mcp.x.tools.t]\ncompensate = { tool = \"x.t\", args = { of = \"${key}\" } }\n";
    let catalogue = world.builder(toml).unwrap().offers(offers()).build().unwrap();
    let tool = catalogue.get(&"x.t".parse().unwrap()).unwrap();
    assert_eq!(tool.manifest().compensate.as_ref().unwrap().tool.as_str(), "x.t");
}
