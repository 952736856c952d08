//! A shop's tools, and questions about them.

use std::collections::BTreeMap;

use gesta_core::amounts::{Amounts, Budget};
use gesta_core::ids::{Principal, Tenant, ToolName};
use gesta_core::json::Canon;
use gesta_core::policy::{Answer, Evidence, Query};
use gesta_core::time::UnixMs;
use gesta_core::writ::Effect;
use gesta_policy::{PolicyDocument, PolicyFile, PolicySet, ToolShape};
use serde_json::{Value, json};

/// A Monday, 09:30 UTC.
pub(crate) const MONDAY: UnixMs = UnixMs(1_704_101_400_000);

/// The tools of the shop.
pub(crate) fn tools() -> BTreeMap<ToolName, ToolShape> {
    let shape = |effect, risk, input| ToolShape { effect, input, risk };
    let text = || json!({ "type": "string" });
    [
        (
            "orders.read",
            shape(
                Effect::Read,
                None,
                json!({ "type": "object", "required": ["order"], "properties": { "order": { "type": "integer" } } }),
            ),
        ),
        (
            "payments.refund",
            shape(
                Effect::External,
                Some(70),
                json!({ "type": "object", "required": ["order", "cents"], "properties": {
                    "order": { "type": "integer" },
                    "cents": { "type": "integer" },
                    "note": text(),
                    "share": { "type": "number" },
                    "price": { "type": "number", "x-gesta-scale": 100 },
                    "memo": { "type": ["string", "null"], "x-gesta-null": "absent" },
                } }),
            ),
        ),
        (
            "mail.send",
            shape(
                Effect::Irreversible,
                None,
                json!({ "type": "object", "required": ["to"], "properties": {
                    "to": text(),
                    "copies": { "type": "array", "items": text() },
                    "from": { "type": "object", "required": ["name"], "properties": { "name": text() } },
                } }),
            ),
        ),
        ("notes.any", shape(Effect::Write, None, json!({ "type": "object" }))),
    ]
    .into_iter()
    .map(|(name, shape)| (name.parse().unwrap(), shape))
    .collect()
}

/// A document with one file, and one role.
pub(crate) fn document(text: &str) -> PolicyDocument {
    let file = PolicyFile { name: "policy.cedar".to_owned(), text: text.to_owned() };
    let support = ["agent:main".parse().unwrap()].into();
    PolicyDocument::new(vec![file], [("support".to_owned(), support)].into(), tools())
}

/// What is asked.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) principal: &'static str,
    pub(crate) tenant: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) effect: Option<Effect>,
    pub(crate) args: Value,
    pub(crate) now: UnixMs,
    pub(crate) tries: u64,
    pub(crate) spent: Amounts,
    pub(crate) left: Budget,
    pub(crate) approvals: Vec<&'static str>,
    pub(crate) evidence: Vec<&'static str>,
}

/// A refund of so many cents.
pub(crate) fn refund(cents: i64) -> Ask {
    of("payments.refund", json!({ "order": 1, "cents": cents }))
}

/// A call of a tool.
pub(crate) fn of(tool: &'static str, args: Value) -> Ask {
    Ask {
        principal: "agent:main",
        tenant: "main",
        tool,
        effect: None,
        args,
        now: MONDAY,
        tries: 0,
        spent: Amounts::default(),
        left: Budget::default(),
        approvals: Vec::new(),
        evidence: Vec::new(),
    }
}

impl Ask {
    /// What the set answers.
    pub(crate) fn of(&self, set: &PolicySet) -> Answer {
        let tool: ToolName = self.tool.parse().unwrap();
        let known = tools().get(&tool).map(|shape| shape.effect);
        let principal: Principal = self.principal.parse().unwrap();
        let tenant: Tenant = self.tenant.parse().unwrap();
        let evidence: Vec<Evidence> = self
            .evidence
            .iter()
            .map(|type_| Evidence { by: tool.clone(), type_: (*type_).to_owned() })
            .collect();
        set.answer(&Query {
            principal: &principal,
            tenant: &tenant,
            tool: &tool,
            effect: self.effect.or(known).unwrap_or(Effect::Read),
            args: &Canon::of(&self.args).unwrap(),
            now: self.now,
            tries: self.tries,
            spent: self.spent,
            left: self.left,
            approvals: self.approvals.iter().map(|by| by.parse().unwrap()).collect(),
            evidence: &evidence,
        })
    }
}

/// The set of one text.
pub(crate) fn set(text: &str) -> PolicySet {
    PolicySet::compile(&document(text)).unwrap_or_else(|error| panic!("{error}"))
}

/// The ids of what decided.
pub(crate) fn ids(ruling: &gesta_core::policy::Ruling) -> Vec<&str> {
    ruling.by.iter().map(|by| by.id.as_str()).collect()
}
