//! The index against no index: policies that are left out of a tool's questions, and what is left out of
//! the context, change no answer.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::ids::{Principal, Tenant, ToolName};
use gesta_core::json::Canon;
use gesta_core::policy::Query;
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use proptest::prelude::*;
use serde_json::json;

use crate::{PolicyDocument, PolicyFile, PolicySet, ToolShape};

const TOOLS: [&str; 8] = ["a.read", "a.b.write", "a.b.send", "b/x", "b/y:z", "c", "call", "tool:c"];
const AGENTS: [&str; 3] = ["agent:one", "agent:two", "agent:three"];

fn tools() -> BTreeMap<ToolName, ToolShape> {
    let effects = [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible];
    let input = json!({ "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } });
    let shape = |effect| ToolShape { effect, input: input.clone(), risk: None };
    TOOLS
        .iter()
        .zip(effects.iter().cycle())
        .map(|(name, effect)| (name.parse().unwrap(), shape(*effect)))
        .collect()
}

fn head() -> impl Strategy<Value = String> {
    let tool = prop::sample::select(&TOOLS[..]);
    let group = prop::sample::select(&["a.*", "a.b.*", "b/*", "b/y:*"][..]);
    let question = prop::sample::select(&["call", "call_unattended"][..]);
    let one = (prop::sample::select(&["call", "call_unattended", "tool"][..]), tool.clone())
        .prop_map(|(question, tool)| format!("Action::\"{question}:{tool}\""));
    let exact = (question.clone(), tool.clone())
        .prop_map(|(question, tool)| format!("Action::\"{question}:{tool}\""));
    let all = question.prop_map(|question| format!("Action::\"{question}\""));
    let action = prop_oneof![
        2 => Just("action".to_owned()),
        3 => all.clone().prop_map(|uid| format!("action in {uid}")),
        4 => one.clone().prop_map(|uid| format!("action in {uid}")),
        2 => exact.prop_map(|uid| format!("action == {uid}")),
        2 => (one.clone(), all).prop_map(|(one, all)| format!("action in [{one}, {all}]")),
        2 => (one.clone(), one).prop_map(|(one, two)| format!("action in [{one}, {two}]")),
    ];
    let resource = prop_oneof![
        4 => Just("resource".to_owned()),
        1 => Just("resource is Tool".to_owned()),
        1 => tool.prop_map(|tool| format!("resource == Tool::\"{tool}\"")),
        2 => group.clone().prop_map(|group| format!("resource in ToolGroup::\"{group}\"")),
        1 => group.prop_map(|group| format!("resource is Tool in ToolGroup::\"{group}\"")),
    ];
    let principal = prop_oneof![
        4 => Just("principal".to_owned()),
        1 => prop::sample::select(&AGENTS[..]).prop_map(|agent| format!("principal == Agent::\"{agent}\"")),
        2 => prop::sample::select(&["x", "y"][..]).prop_map(|role| format!("principal in Role::\"{role}\"")),
    ];
    (principal, action, resource).prop_map(|(p, a, r)| format!("({p}, {a}, {r})"))
}

fn policy() -> impl Strategy<Value = String> {
    let condition = prop_oneof![
        3 => Just(String::new()),
        1 => (0..4).prop_map(|level| format!(" when {{ resource.level >= {level} }}")),
        1 => (0..5).prop_map(|tries| format!(" unless {{ context.tries > {tries} }}")),
        1 => Just(" when { context has left.calls && context.left.calls > 0 }".to_owned()),
        1 => Just(" unless { context.approvals.count > 0 || context.evidence.contains(\"x\") }".to_owned()),
        1 => Just(" when { context.spent.calls + context.spent.tokens == 0 }".to_owned()),
        // Now and then one that cannot be evaluated.
        1 => Just(" when { context.now.ms * context.now.ms * context.now.ms > 0 }".to_owned()),
    ];
    let effect = prop_oneof![3 => Just("permit"), 1 => Just("forbid")];
    (effect, head(), condition)
        .prop_map(|(effect, head, condition)| format!("{effect} {head}{condition};"))
}

fn document(policies: &[String]) -> PolicyDocument {
    let text = (0..)
        .zip(policies)
        .map(|(n, policy): (u32, _)| format!("@id(\"p{n}\") {policy}\n"))
        .collect();
    let file = PolicyFile { name: "all".to_owned(), text };
    let members = |names: &[&str]| -> BTreeSet<Principal> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    };
    let roles =
        [("x".to_owned(), members(&AGENTS[..1])), ("y".to_owned(), members(&AGENTS[..2]))].into();
    PolicyDocument::new(vec![file], roles, tools())
}

fn agree(policies: &[String], tries: u64, now: u64) -> Result<(), TestCaseError> {
    let document = document(policies);
    let indexed = PolicySet::compile(&document).unwrap();
    let whole = PolicySet::compile_unindexed(&document).unwrap();
    let (tenant, args): (Tenant, _) =
        ("main".parse().unwrap(), Canon::parse(b"{\"n\":1}").unwrap());
    for agent in AGENTS {
        for (tool, shape) in &document.tools {
            let query = Query {
                principal: &agent.parse().unwrap(),
                tenant: &tenant,
                tool,
                effect: shape.effect,
                args: &args,
                now: UnixMs(now),
                tries,
                spent: Amounts::default(),
                left: Budget::default(),
                approvals: Vec::new(),
                evidence: &[],
            };
            prop_assert_eq!(indexed.answer(&query), whole.answer(&query));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_index_changes_no_answer(
        policies in prop::collection::vec(policy(), 1..12),
        tries in 0_u64..6,
        now in prop_oneof![Just(1_u64), Just(1 << 40)],
    ) {
        agree(&policies, tries, now)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, ..ProptestConfig::default() })]

    #[test]
    fn an_index_of_a_thousand_policies_changes_no_answer(
        policies in prop::collection::vec(policy(), 1000),
    ) {
        agree(&policies, 2, 1)?;
    }
}
