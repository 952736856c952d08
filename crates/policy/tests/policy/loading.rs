//! What is refused when a document is loaded, word by word.

use gesta_policy::{PolicyDocument, PolicyFile, PolicySet};

use crate::shop::{document, tools};

fn refused(text: &str) -> String {
    match PolicySet::compile(&document(text)) {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Head and condition of a policy about refunds.
fn about_refunds(condition: &str) -> String {
    format!(
        "@id(\"a\")\npermit (principal, action in Action::\"tool:payments.refund\", resource)\nwhen {{ {condition} }};\n"
    )
}

#[test]
fn a_mistake_in_an_argument_is_told_when_the_policy_is_loaded() {
    for (condition, expected) in [
        (
            "context.args.cnets < 5",
            "policy.cedar:3:8: policy `a`: attribute `args.cnets` in context for Action::\"call:payments.refund\" not found\n  hint: did you mean `cents`?",
        ),
        (
            "context.args has cnets && context.args.cnets < 5",
            "policy.cedar:3:25: policy `a`: no tool that it can apply to has an argument `cnets`\n  hint: `gesta policy schema` shows the arguments that policies can see",
        ),
        (
            "!(context.args has cnets)",
            "policy.cedar:3:27: policy `a`: no tool that it can apply to has an argument `cnets`\n  hint: `gesta policy schema` shows the arguments that policies can see",
        ),
        (
            "context.args.note == \"x\"",
            "policy.cedar:3:8: policy `a`: unable to guarantee safety of access to optional attribute `args.note` in context for Action::\"call:payments.refund\"\n  hint: try testing for the attribute's presence with `context.args has note && ..`",
        ),
        (
            "context.args.cents == \"3\"",
            "policy.cedar:3:8: policy `a`: the types Long and String are not compatible\n  hint: both operands to a `==` expression must have compatible types. Types must be exactly equal to be compatible",
        ),
        (
            "context.args.share < 3",
            "policy.cedar:3:8: policy `a`: attribute `args.share` in context for Action::\"call:payments.refund\" not found\n  hint: the schema of `payments.refund` gives `share` no type that policies can hold; a `number` needs `\"x-gesta-scale\": 100`, which shows it in hundredths",
        ),
    ] {
        assert_eq!(refused(&about_refunds(condition)), expected, "{condition}");
    }
    assert_eq!(refused(&about_refunds("context.args.cents < 5")), "nothing");
    assert_eq!(
        refused(&about_refunds("context.args has note && context.args.note == \"x\"")),
        "nothing"
    );
}

#[test]
fn arguments_have_types_only_where_a_tool_is_named() {
    let text = "@id(\"a\")\npermit (principal, action in Action::\"call\", resource)\nwhen { context.args.cents < 3 };";
    let expected = "policy.cedar:3:8: policy `a`: attribute `args.cents` in context for Action::\"call\" not found\n  hint: arguments differ from tool to tool: name one, as in `action in Action::\"tool:NAME\"`";
    assert_eq!(refused(text), expected);
}

#[test]
fn names_that_nothing_has_are_told() {
    for (policy, expected) in [
        (
            "permit (principal, action in Action::\"tool:payment.refund\", resource);",
            "policy.cedar:2:30: policy `a`: unrecognized action `Action::\"tool:payment.refund\"`\n  hint: did you mean `Action::\"tool:payments.refund\"`?",
        ),
        (
            "permit (principal, action, resource == Tool::\"payment.refund\");",
            "policy.cedar:2:40: policy `a`: there is no `Tool::\"payment.refund\"`\n  hint: `gesta tools list` shows the tools",
        ),
        (
            "permit (principal, action, resource in ToolGroup::\"payment.*\");",
            "policy.cedar:2:40: policy `a`: there is no `ToolGroup::\"payment.*\"`\n  hint: a group is the beginning of tools' names and a star, as in `mail.*`",
        ),
        (
            "permit (principal in Role::\"suport\", action, resource);",
            "policy.cedar:2:22: policy `a`: there is no `Role::\"suport\"`\n  hint: say who has it: `suport = [\"agent:main\"]` under [policy.roles] in gesta.toml",
        ),
        (
            "permit (principal, action, resource) when { resource.effect == Effect::\"raed\" };",
            "policy.cedar:2:64: policy `a`: entity `Effect::\"raed\"` is of an enumerated entity type, but `\"raed\"` is not declared as a valid eid\n  hint: valid entity eids: \"read\", \"write\", \"external\", \"irreversible\"",
        ),
        (
            "permit (principal, action == Action::\"call\", resource);",
            "policy.cedar:2:30: policy `a`: `Action::\"call\"` is a group of actions, and nothing is equal to it\n  hint: write `action in Action::\"call\"`",
        ),
        (
            "permit (principal, action, resource) when { Action::\"tool:mail.send\" != action };",
            "policy.cedar:2:45: policy `a`: `Action::\"tool:mail.send\"` is a group of actions, and nothing is equal to it\n  hint: write `action in Action::\"tool:mail.send\"`",
        ),
        (
            "permit (principal in Tenant::\"A b\", action, resource);",
            "policy.cedar:2:22: policy `a`: there is no `Tenant::\"A b\"`\n  hint: it is not the name of a tenant",
        ),
        (
            "permit (principal, action, resource) when { resource.level > 1 && resource.level < 1 && false };",
            "policy.cedar:1:1: policy `a`: policy is impossible: the policy expression evaluates to false for all valid requests",
        ),
    ] {
        assert_eq!(refused(&format!("@id(\"a\")\n{policy}")), expected, "{policy}");
    }
}

#[test]
fn every_annotation_is_read_or_refused() {
    let all = "permit (principal, action, resource);";
    for (annotations, expected) in [
        (
            "@id(\"a\") @channel(\"finance, ops\") @reason(\"why\") @quorum(\"2\") @expires(\"24h\") @requires(\"invoice, order by orders.read\")",
            "nothing",
        ),
        (
            "",
            "policy.cedar:1:1: a policy without an id\n  hint: write `@id(\"…\")` before it: decisions name it",
        ),
        (
            "@id(\"a b\")",
            "policy.cedar:1:1: `a b` cannot be the id of a policy; use letters, digits and `_ . : / -`",
        ),
        (
            "@id(\"a\") @chanel(\"x\")",
            "policy.cedar:1:10: policy `a`: `@chanel`: there is no such annotation; there are `@id`, `@channel`, `@reason`, `@quorum`, `@expires`, `@requires`",
        ),
        (
            "@id(\"a\") @channel(\" , \")",
            "policy.cedar:1:10: policy `a`: `@channel`: ` , ` names nothing",
        ),
        (
            "@id(\"a\") @channel(\"a b\")",
            "policy.cedar:1:10: policy `a`: `@channel`: `a b` is not a channel (printable ASCII without blanks, at most 64 characters)",
        ),
        ("@id(\"a\") @reason(\"\")", "policy.cedar:1:10: policy `a`: `@reason`: `` names nothing"),
        (
            "@id(\"a\") @quorum(\"0\")",
            "policy.cedar:1:10: policy `a`: `@quorum`: `0` is not a number of people from 1 to 100",
        ),
        (
            "@id(\"a\") @quorum(\"two\")",
            "policy.cedar:1:10: policy `a`: `@quorum`: `two` is not a number of people from 1 to 100",
        ),
        (
            "@id(\"a\") @expires(\"soon\")",
            "policy.cedar:1:10: policy `a`: `@expires`: `soon` is not a length of time; write a whole number and a unit, as in `500ms`, `30s`, `5m`, `24h` or `7d`",
        ),
        (
            "@id(\"a\") @expires(\"0s\")",
            "policy.cedar:1:10: policy `a`: `@expires`: nobody can agree in no time at all",
        ),
        (
            "@id(\"a\") @requires(\"invoice by books.read\")",
            "policy.cedar:1:10: policy `a`: `@requires`: there is no tool `books.read`, so nobody could sign for `invoice`",
        ),
        (
            "@id(\"a\") @requires(\"in voice\")",
            "policy.cedar:1:10: policy `a`: `@requires`: `in voice` is not a resource type (letters, digits, `_ . : / -`, at most 64 characters)",
        ),
    ] {
        assert_eq!(
            refused(format!("{annotations}\n{all}").trim_start()),
            expected,
            "{annotations}"
        );
    }
}

#[test]
fn an_id_is_used_once_in_all_files() {
    let text = "@id(\"a\")\npermit (principal, action, resource);\n";
    let mut document = document(text);
    let other = PolicyFile { name: "more.cedar".to_owned(), text: format!("// more\n{text}") };
    document.policies.push(other);
    let error = PolicySet::compile(&document).unwrap_err().to_string();
    assert_eq!(
        error,
        "more.cedar:2:1: policy `a`: the id is taken by another policy in policy.cedar"
    );
}

#[test]
fn text_that_is_no_policy_is_told_with_its_place() {
    assert_eq!(
        refused("@id(\"a\")\npermit (principal, action, resource)"),
        "policy.cedar:2:37: unexpected end of input"
    );
    let template = "@id(\"a\")\npermit (principal, action, resource == ?resource);";
    assert_eq!(refused(template), "policy.cedar:1:1: a template: nothing here fills its slots");
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = "@id(\"a\")\npermit (principal in Role::\"x\", action, resource);\n\n@id(\"b\")\nforbid (principal, action in Action::\"tool:mail.send\", resource) when { context.args.too == \"x\" };\n";
    let error = PolicySet::compile(&document(text)).unwrap_err();
    let places: Vec<_> =
        error.problems.iter().map(|problem| (problem.line, problem.policy.as_deref())).collect();
    assert_eq!(places, [(2, Some("a")), (5, Some("b"))]);
}

#[test]
fn a_document_has_one_spelling_and_every_part_of_it_counts() {
    let first = document("@id(\"a\")\npermit (principal, action, resource);");
    let bytes = first.canonical().unwrap();
    assert_eq!(PolicyDocument::parse(bytes.as_bytes()).unwrap(), first);
    assert!(PolicyDocument::parse(format!(" {bytes}").as_bytes()).is_err());
    assert!(
        PolicyDocument::parse(
            bytes.as_str().replace("gesta.policy.v1", "gesta.policy.v2").as_bytes()
        )
        .is_err()
    );
    assert_eq!(PolicySet::compile(&first).unwrap().digest(), first.digest().unwrap());
    let mut others = vec![first.clone(), first.clone(), first.clone(), first.clone()];
    others[0].policies[0].text.push('\n');
    others[1].roles.clear();
    others[2].tools.pop_last();
    others[3].tools.values_mut().for_each(|shape| shape.risk = Some(1));
    for other in others {
        assert_ne!(other.digest().unwrap(), first.digest().unwrap());
    }
}

#[test]
fn the_schema_is_told_in_cedar_and_names_the_arguments() {
    let schema = document("").schema().unwrap();
    let action = "action \"call:payments.refund\" in [Action::\"call\", Action::\"tool:payments.refund\"] appliesTo {";
    assert!(schema.contains(action), "{schema}");
    for line in [
        "cents: Long,",
        "note?: String,",
        "price?: Long",
        "copies?: Set<String>,",
        "risk?: Long",
        "evidence: Set<String>,",
    ] {
        assert!(schema.contains(line), "{line}: {schema}");
    }
    assert!(!schema.contains("share"), "{schema}");
}

#[test]
fn what_holds_where_nothing_is_published_loads_with_any_tools() {
    for tools in [tools(), Default::default()] {
        PolicySet::compile(&PolicyDocument::default_for(tools)).unwrap();
    }
}
