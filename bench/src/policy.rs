//! What a policy set adds to a decision: ten policies as people write them, and a thousand.

use std::collections::BTreeMap;

use anyhow::Result;
use gesta_core::amounts::{Amounts, Budget};
use gesta_core::ids::{Principal, Tenant, ToolName};
use gesta_core::json::Canon;
use gesta_core::policy::Query;
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_policy::{PolicyDocument, PolicyFile, PolicySet, ToolShape};
use serde_json::json;

use crate::table::{Table, time};

const TOOLS: usize = 100;
const ROUNDS: usize = 20_000;

/// Both figures, and how long loading takes.
pub(crate) fn answers(table: &mut Table) -> Result<()> {
    for (policies, goal) in [(10, "p50 ≤ 60 µs"), (1_000, "p99 ≤ 1,000 µs")] {
        let document = document(policies)?;
        let (loading, set) = time(|| PolicySet::compile(&document));
        let set = set?;
        let mut took = Vec::with_capacity(ROUNDS);
        let (principal, tenant): (Principal, Tenant) = ("agent:main".parse()?, "main".parse()?);
        let args =
            Canon::of(&json!({ "amount": 4200, "to": "someone@example.org", "tags": ["a", "b"] }))?;
        let tools: Vec<&ToolName> = document.tools.keys().collect();
        for tool in tools.iter().cycle().take(ROUNDS) {
            let query = Query {
                principal: &principal,
                tenant: &tenant,
                tool,
                effect: Effect::External,
                args: &args,
                now: UnixMs(1_794_787_200_000),
                tries: 0,
                spent: Amounts { calls: 7, money_micros: 12, tokens: 0, wall_ms: 3 },
                left: Budget { calls: Some(93), ..Budget::default() },
                approvals: Vec::new(),
                evidence: &[],
            };
            let (one, answer) = time(|| set.answer(&query));
            anyhow::ensure!(answer.call.allowed, "{answer:?}");
            took.push(one.as_secs_f64() * 1e6);
        }
        took.sort_by(f64::total_cmp);
        let at = |share: f64| {
            took.get((share * (ROUNDS - 1) as f64) as usize).copied().unwrap_or(f64::NAN)
        };
        let figure = format!(
            "p50 {:.1} µs, p99 {:.1} µs, loaded in {} ms",
            at(0.5),
            at(0.99),
            loading.as_millis()
        );
        let (ratio, what) = match policies {
            10 => (at(0.5) / 60.0, "an answer of 10 policies, of 60 µs"),
            _ => (at(0.99) / 1_000.0, "an answer of 1,000 policies, of 1 ms"),
        };
        table.ratio(what, figure, ratio, goal);
    }
    Ok(())
}

/// A tenth of the policies are for every tool, the others each for one.
fn document(policies: usize) -> Result<PolicyDocument> {
    let input = json!({ "type": "object", "required": ["amount", "to"], "properties": {
        "amount": { "type": "integer" },
        "to": { "type": "string" },
        "tags": { "type": "array", "items": { "type": "string" } },
    }});
    let shape = ToolShape { effect: Effect::External, input, risk: Some(40) };
    let tools = (0..TOOLS).map(|n| Ok((format!("shop{}.tool{n}", n % 7).parse()?, shape.clone())));
    let tools: BTreeMap<ToolName, ToolShape> = tools.collect::<Result<_>>()?;
    let names: Vec<&ToolName> = tools.keys().collect();
    let mut text =
        String::from("@id(\"all\") permit (principal in Role::\"agents\", action, resource);\n");
    for n in 1..policies {
        text += &match (n % 10, names.get(n % TOOLS)) {
            (0, _) | (_, None) => format!(
                "@id(\"p{n}\") forbid (principal, action, resource) when {{ resource.level > 2 && context.now.hour < {} }};\n",
                n % 24
            ),
            (_, Some(tool)) => format!(
                "@id(\"p{n}\") @reason(\"too much\") @channel(\"finance\") forbid (principal, action in Action::\"tool:{tool}\", resource) when {{ context.args.amount > {} && context.args.to like \"*@example.com\" }};\n",
                5_000 + n
            ),
        };
    }
    let agents = ["agent:main".parse()?].into();
    let file = PolicyFile { name: "bench".to_owned(), text };
    Ok(PolicyDocument::new(vec![file], [("agents".to_owned(), agents)].into(), tools))
}
