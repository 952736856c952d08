//! One answer: the two questions over one typed context.

use std::collections::BTreeSet;

use cedar_policy::{Context, Decision, Request, RestrictedExpression as Value};
use gesta_core::amounts::{Amounts, Budget};
use gesta_core::ids::{Channel, Principal};
use gesta_core::policy::{Answer, Asking, Query, Requirement, Ruling};
use gesta_core::time::UnixMs;

use crate::annotations::Annotations;
use crate::arguments;
use crate::askers::Asker;
use crate::compile::{PolicySet, Question, Rules};
use crate::looks::Looks;

/// Where people are asked, and for how long, if no policy says so.
pub(crate) const CHANNEL: &str = "operators";
const WITHIN_MS: u64 = 24 * 3_600_000;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The first day of the epoch was a Thursday, the fourth of its week.
const FIRST_WEEKDAY: u64 = 3;

impl PolicySet {
    /// Answers. Nothing but the document and the query bears on it, and whatever cannot be evaluated
    /// denies.
    pub fn answer(&self, query: &Query<'_>) -> Answer {
        match self.asked(query) {
            Ok(answer) => answer,
            Err(why) => Answer {
                call: Ruling { allowed: false, by: Vec::new(), errors: vec![why] },
                requires: Vec::new(),
                unattended: Ruling::default(),
                asking: None,
            },
        }
    }

    fn asked(&self, query: &Query<'_>) -> Result<Answer, String> {
        let Query { tool, effect, .. } = query;
        let again = "publish the policy again: `gesta policy publish`";
        let rules = self.tools.get(*tool).ok_or_else(|| {
            format!("the policy in force was published without the tool `{tool}`; {again}")
        })?;
        if rules.effect != *effect {
            let known = rules.effect;
            return Err(format!(
                "the policy in force knows `{tool}` with effect `{known}`, and it has `{effect}` now; {again}"
            ));
        }
        let seen = arguments::read(&rules.fields, query.args)
            .map_err(|why| format!("{why}; if the tool has changed, {again}"))?;
        let context = context(query, seen.args, &rules.looks_at)?;
        let asker = self.asker(query, rules)?;

        let mut call = self.rule(&asker, &rules.call, rules, context.clone())?;
        let mut unattended = match call.allowed {
            true => self.rule(&asker, &rules.unattended, rules, context)?,
            false => Ruling::default(),
        };
        if !seen.unmapped.is_empty() {
            let why = format!("policies cannot see {}", places(&seen.unmapped));
            for error in call.errors.iter_mut().chain(&mut unattended.errors) {
                *error = format!("{error} ({why})");
            }
        }
        Ok(self.completed(query, call, unattended, &seen.unmapped))
    }

    /// One question.
    fn rule(
        &self,
        asker: &Asker,
        question: &Question,
        rules: &Rules,
        context: Context,
    ) -> Result<Ruling, String> {
        let (agent, action, tool) =
            (asker.agent.clone(), question.action.clone(), rules.tool.clone());
        let request = Request::new(agent, action, tool, context, None);
        let request = request.map_err(|error| error.to_string())?;
        let response = self.authorizer.is_authorized(&request, &question.policies, &asker.entities);
        let mut errors: Vec<String> =
            response.diagnostics().errors().map(|error| error.to_string()).collect();
        errors.sort();
        let reasons: BTreeSet<&str> =
            response.diagnostics().reason().map(|id| -> &str { id.as_ref() }).collect();
        let annotated = |id: &str| self.annotations.get(id).map(|notes| notes.deciding(id));
        Ok(Ruling {
            allowed: response.decision() == Decision::Allow && errors.is_empty(),
            by: reasons.into_iter().filter_map(annotated).collect(),
            errors,
        })
    }

    /// The answer to both questions, with what follows from who decided.
    fn completed(
        &self,
        query: &Query<'_>,
        call: Ruling,
        mut unattended: Ruling,
        unmapped: &[String],
    ) -> Answer {
        let notes = |ruling: &Ruling| -> Vec<&Annotations> {
            ruling.by.iter().filter_map(|by| self.annotations.get(&by.id)).collect()
        };
        let deciding = notes(&call).into_iter().chain(notes(&unattended));
        let requires: BTreeSet<Requirement> =
            deciding.flat_map(|notes| notes.requires.iter().cloned()).collect();
        let unseen = unattended.allowed && !unmapped.is_empty();
        if unseen {
            unattended.allowed = false;
        }
        let escalates = call.allowed && !unattended.allowed && unattended.errors.is_empty();
        let asking = escalates.then(|| {
            let by = if unattended.by.is_empty() { notes(&call) } else { notes(&unattended) };
            let why = match (unseen, unattended.by.is_empty()) {
                (true, _) => format!("policies cannot see {}", places(unmapped)),
                (false, true) => format!("no policy lets `{}` be called unattended", query.tool),
                (false, false) => format!(
                    "`{}` may not be called unattended: {}",
                    query.tool,
                    unattended
                        .by
                        .iter()
                        .map(|by| format!("`{}`", by.id))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            };
            asking(&by, unseen, why)
        });
        Answer { call, requires: requires.into_iter().collect(), unattended, asking }
    }
}

fn places(unmapped: &[String]) -> String {
    let places: Vec<String> = unmapped.iter().map(|at| format!("`{at}`")).collect();
    format!("the fraction or null at {}", places.join(", "))
}

/// How people are asked: all channels, the most people, the shortest time.
fn asking(by: &[&Annotations], unseen: bool, why: String) -> Asking {
    let channels: BTreeSet<&Channel> = by.iter().flat_map(|notes| &notes.channels).collect();
    let channels: Vec<Channel> = match channels.is_empty() {
        true => CHANNEL.parse().into_iter().collect(),
        false => channels.into_iter().cloned().collect(),
    };
    let said: Vec<&str> = by.iter().filter_map(|notes| notes.reason.as_deref()).collect();
    // What a permit says of itself is no reason against what it allows.
    let reason = if unseen || said.is_empty() { why } else { said.join("; ") };
    Asking {
        channels,
        quorum: by.iter().filter_map(|notes| notes.quorum).max().unwrap_or(1),
        reason,
        within_ms: by.iter().filter_map(|notes| notes.expires_ms).min().unwrap_or(WITHIN_MS),
    }
}

/// The context, as far as anyone looks at it.
fn context(query: &Query<'_>, args: Value, looks_at: &Looks) -> Result<Context, String> {
    type Part<'a> = &'a dyn Fn() -> Result<Value, String>;
    let Query { now, tries, spent, left, approvals, evidence, .. } = query;
    let parts: [(&str, Part<'_>); 6] = [
        ("now", &|| moment(*now)),
        ("tries", &|| Ok(whole(*tries))),
        ("spent", &|| amounts(*spent)),
        ("left", &|| budget(left)),
        ("approvals", &|| approvers(approvals)),
        ("evidence", &|| {
            Ok(texts(&evidence.iter().map(|evidence| evidence.type_.as_str()).collect()))
        }),
    ];
    let shown = parts.into_iter().filter(|(name, _)| looks_at.at(name));
    let pairs = shown.map(|(name, value)| Ok((name.to_owned(), value()?)));
    let mut pairs = pairs.collect::<Result<Vec<_>, String>>()?;
    if looks_at.at("args") {
        pairs.push(("args".to_owned(), args));
    }
    Context::from_pairs(pairs).map_err(|error| error.to_string())
}

fn approvers(approvals: &[Principal]) -> Result<Value, String> {
    let by: BTreeSet<&str> = approvals.iter().map(|by| by.as_str()).collect();
    let count = Value::new_long(i64::try_from(by.len()).unwrap_or(i64::MAX));
    record([("by", Some(texts(&by))), ("count", Some(count))])
}

fn record<const N: usize>(fields: [(&str, Option<Value>); N]) -> Result<Value, String> {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::new_record(given).map_err(|error| error.to_string())
}

fn whole(number: u64) -> Value {
    Value::new_long(i64::try_from(number).unwrap_or(i64::MAX))
}

fn texts(texts: &BTreeSet<&str>) -> Value {
    Value::new_set(texts.iter().map(|text| Value::new_string((*text).to_owned())))
}

fn moment(UnixMs(ms): UnixMs) -> Result<Value, String> {
    record([
        ("ms", Some(whole(ms))),
        ("hour", Some(whole(ms / HOUR_MS % 24))),
        ("minute", Some(whole(ms / MINUTE_MS % 60))),
        ("weekday", Some(whole((ms / DAY_MS + FIRST_WEEKDAY) % 7 + 1))),
    ])
}

fn amounts(amounts: Amounts) -> Result<Value, String> {
    let Amounts { calls, money_micros, tokens, wall_ms } = amounts;
    record([
        ("calls", Some(whole(calls))),
        ("money_micros", Some(whole(money_micros))),
        ("tokens", Some(whole(tokens))),
        ("wall_ms", Some(whole(wall_ms))),
    ])
}

fn budget(budget: &Budget) -> Result<Value, String> {
    let Budget { calls, money_micros, tokens, wall_ms } = *budget;
    record([
        ("calls", calls.map(whole)),
        ("money_micros", money_micros.map(whole)),
        ("tokens", tokens.map(whole)),
        ("wall_ms", wall_ms.map(whole)),
    ])
}
