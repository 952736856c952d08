//! The annotations of a policy: what it is called, how people are asked, what must be committed
//! before. An annotation that nothing reads is a mistake, and told.

use std::collections::BTreeMap;

use gesta_core::duration::DurationMs;
use gesta_core::ids::{Channel, ResourceType, ToolName};
use gesta_core::policy::{Deciding, Requirement};

use crate::document::ToolShape;

/// What a policy may be annotated with.
pub(crate) const KNOWN: [&str; 6] = ["id", "channel", "reason", "quorum", "expires", "requires"];
/// More people than that agree on nothing.
const MOST_PEOPLE: u64 = 100;
const MAX_ID_CHARS: usize = 128;

/// What the annotations of one policy say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Annotations {
    /// As they are written, but for the id.
    pub(crate) written: BTreeMap<String, String>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) reason: Option<String>,
    pub(crate) quorum: Option<u64>,
    pub(crate) expires_ms: Option<u64>,
    pub(crate) requires: Vec<Requirement>,
}

impl Annotations {
    /// Reads all but the id. What is wrong comes with the name of the annotation.
    pub(crate) fn read<'a>(
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
        tools: &BTreeMap<ToolName, ToolShape>,
    ) -> Result<Self, Vec<(String, String)>> {
        let (mut read, mut wrong) = (Self::default(), Vec::new());
        for (name, value) in pairs.filter(|(name, _)| *name != "id") {
            if let Err(why) = read.take(name, value, tools) {
                wrong.push((name.to_owned(), why));
            }
            read.written.insert(name.to_owned(), value.to_owned());
        }
        if wrong.is_empty() { Ok(read) } else { Err(wrong) }
    }

    fn take(
        &mut self,
        name: &str,
        value: &str,
        tools: &BTreeMap<ToolName, ToolShape>,
    ) -> Result<(), String> {
        match name {
            "channel" => {
                for channel in listed(value) {
                    self.channels.push(channel.parse().map_err(|error| format!("{error}"))?);
                }
                nothing_named(value, self.channels.is_empty())
            }
            "reason" => {
                self.reason = Some(value.to_owned());
                nothing_named(value, value.trim().is_empty())
            }
            "quorum" => {
                let people = value.parse().ok().filter(|people| (1..=MOST_PEOPLE).contains(people));
                self.quorum = Some(people.ok_or_else(|| {
                    format!("`{value}` is not a number of people from 1 to {MOST_PEOPLE}")
                })?);
                Ok(())
            }
            "expires" => {
                let within: DurationMs = value.parse().map_err(|error| format!("{error}"))?;
                self.expires_ms = Some(within.ms()).filter(|ms| *ms > 0);
                if self.expires_ms.is_none() {
                    return Err("nobody can agree in no time at all".to_owned());
                }
                Ok(())
            }
            "requires" => {
                for requirement in listed(value) {
                    self.requires.push(required(requirement, tools)?);
                }
                nothing_named(value, self.requires.is_empty())
            }
            _ => {
                let known: Vec<String> = KNOWN.iter().map(|name| format!("`@{name}`")).collect();
                Err(format!("there is no such annotation; there are {}", known.join(", ")))
            }
        }
    }

    /// The policy as it stands in an answer.
    pub(crate) fn deciding(&self, id: &str) -> Deciding {
        Deciding { annotations: self.written.clone(), id: id.to_owned() }
    }
}

/// Why a policy cannot have this id, if it cannot.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    let spelled = |b: u8| b.is_ascii_alphanumeric() || b"_.:/-".contains(&b);
    if (1..=MAX_ID_CHARS).contains(&id.len()) && id.bytes().all(spelled) {
        return Ok(());
    }
    Err(format!("`{id}` cannot be the id of a policy; use letters, digits and `_ . : / -`"))
}

fn listed(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn nothing_named(value: &str, nothing: bool) -> Result<(), String> {
    if nothing { Err(format!("`{value}` names nothing")) } else { Ok(()) }
}

/// `type`, or `type by tool`.
fn required(text: &str, tools: &BTreeMap<ToolName, ToolShape>) -> Result<Requirement, String> {
    let (type_, by) = match text.split_once(" by ") {
        Some((type_, by)) => (type_.trim(), Some(by.trim())),
        None => (text, None),
    };
    let type_: ResourceType = type_.parse().map_err(|error| format!("{error}"))?;
    let by: Option<ToolName> =
        by.map(str::parse).transpose().map_err(|error| format!("{error}"))?;
    if let Some(unknown) = by.as_ref().filter(|tool| !tools.contains_key(tool)) {
        return Err(format!("there is no tool `{unknown}`, so nobody could sign for `{type_}`"));
    }
    Ok(Requirement { by, type_: type_.to_string() })
}
