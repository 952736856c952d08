//! Pins: what was accepted stays what it was, or is frozen.

use gesta_runtime::tools::{Catalogue, PinProblem, Pins};

use crate::world::World;

fn tool(name: &str, description: &str) -> String {
    format!(
        "[tools.\"{name}\"]\ndescription = \"{description}\"\neffect = \"write\"\ndriver.process = {{ command = [\"true\"] }}\n"
    )
}

fn catalogue(tools: &[(&str, &str)]) -> Catalogue {
    let toml: String = tools.iter().map(|(name, description)| tool(name, description)).collect();
    World::new().catalogue(&toml)
}

#[test]
fn a_lock_file_is_the_same_bytes_for_the_same_tools() {
    let forwards = Pins::of(&catalogue(&[("b.c/d:e", "x"), ("a", "y")]));
    let backwards = Pins::of(&catalogue(&[("a", "y"), ("b.c/d:e", "x")]));
    let text = forwards.to_text();
    assert_eq!(text, backwards.to_text());
    let digest = |name: &str| forwards.get(&name.parse().unwrap()).unwrap();
    assert_eq!(
        text,
        format!(
            "# Written by `gesta tools pin`: what each tool was when it was accepted.\nversion = 0\n\n[tools]\n\"a\" = \"{}\"\n\"b.c/d:e\" = \"{}\"\n",
            digest("a"),
            digest("b.c/d:e")
        )
    );
    assert_eq!(Pins::parse("gesta.lock", &text).unwrap(), forwards);
    let none = Pins::of(&catalogue(&[]));
    assert_eq!(Pins::parse("gesta.lock", &none.to_text()).unwrap(), none);
}

#[test]
fn a_tool_that_is_not_as_it_was_pinned_is_frozen() {
    let pins = Pins::of(&catalogue(&[("kept", "x"), ("changed", "x"), ("gone", "x")]));
    let mut now = catalogue(&[("kept", "x"), ("changed", "y"), ("new", "x")]);
    assert!(now.iter().all(|tool| tool.frozen().is_none()), "without a lock file nothing is");
    let problems = now.apply_pins(&pins);
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "tool `changed`: changed since it was pinned; look at it and run `gesta tools pin`",
            "tool `gone`: pinned and not declared; run `gesta tools pin` to forget it",
            "tool `new`: not pinned yet; look at it and run `gesta tools pin`",
        ]
    );
    let PinProblem::Changed { pinned, found, .. } = &problems[0] else { panic!("{problems:?}") };
    assert_ne!(pinned, found);
    let frozen: Vec<(&str, bool)> =
        now.iter().map(|tool| (tool.name().as_str(), tool.frozen().is_some())).collect();
    assert_eq!(frozen, [("changed", true), ("kept", false), ("new", true)]);
    let again = Pins::of(&now);
    assert!(now.apply_pins(&again).is_empty());
    assert!(now.iter().all(|tool| tool.frozen().is_none()), "pinning again thaws");
}

#[test]
fn a_broken_lock_file_is_told_with_its_place() {
    for (text, expected) in [
        ("version = 0\n[tools]\na = \"12\"\n", "gesta.lock:3:5: "),
        ("version = 1\n[tools]\n", "gesta.lock:1:11: version `1` is not known"),
        ("[tools]\n", "gesta.lock:1:1: missing field `version`"),
        ("version = 0\ntoools = 1\n", "gesta.lock:2:1: unknown field `toools`"),
        ("version = 0\n[tools]\na = \n", "gesta.lock:3:"),
    ] {
        let error = Pins::parse("gesta.lock", text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(error.ends_with("`gesta tools pin` writes it again"), "{error}");
    }
}
