//! The names of things: trajectories, steps, tools, principals. Each is its own type, and each is
//! checked when it enters, so that no id can hold a NUL, a control character or another id's shape.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::digest::{Digest, hex_bytes};
use crate::writ::Effect;

/// A name that was refused, and what it should look like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct BadName {
    text: String,
    expected: &'static str,
}

/// The id of a trajectory: 16 bytes, written `t_` and 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrajectoryId([u8; 16]);

impl TrajectoryId {
    const EXPECTED: &'static str = "a trajectory id (`t_` and 32 lower-case hexadecimal digits)";

    /// An id from 16 bytes that the caller drew or derived.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id of the child that a step delegates to: known before the child exists, so that a
    /// crash between the two chains is repaired and never doubled.
    pub fn of_child(parent: Self, step: &StepId, generation: u64) -> Self {
        let text = parent.to_string();
        let digest = Digest::of_parts(&[
            b"gesta.child",
            text.as_bytes(),
            step.as_str().as_bytes(),
            generation.to_string().as_bytes(),
        ]);
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(digest.as_bytes()) {
            *to = *from;
        }
        Self(bytes)
    }
}

impl fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 32];
        hex::encode_to_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
        f.write_str("t_")?;
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TrajectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TrajectoryId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        text.strip_prefix("t_")
            .and_then(hex_bytes)
            .map(Self)
            .ok_or_else(|| BadName { text: text.to_owned(), expected: Self::EXPECTED })
    }
}

impl Serialize for TrajectoryId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TrajectoryId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parsed::<Self>::new(Self::EXPECTED))
    }
}

/// Reads a string that parses into `T`.
struct Parsed<T>(&'static str, std::marker::PhantomData<T>);

impl<T> Parsed<T> {
    const fn new(expected: &'static str) -> Self {
        Self(expected, std::marker::PhantomData)
    }
}

impl<T: FromStr<Err = BadName>> de::Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Declares a checked name.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(BadName { text: text.to_owned(), expected: $expected })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Parsed::<Self>::new($expected))
            }
        }
    };
}

/// 1 to `max` characters, all of them accepted by `one`.
fn spelled(text: &str, max: usize, one: fn(u8) -> bool) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(one)
}

name!(
    /// The deterministic id of a step: `charge`, `triage/2/call/1`.
    StepId,
    "a step id (`[a-z0-9_-]+` segments joined by `/`, at most 128 characters)",
    |text| {
        text.len() <= 128
            && text.split('/').all(|segment| {
                spelled(segment, 128, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
            })
    }
);

impl StepId {
    /// Whether this is a node of the plan rather than a step inside one.
    pub fn is_node(&self) -> bool {
        !self.0.contains('/')
    }

    /// The plan node that this step is, or belongs to.
    pub fn node(&self) -> Self {
        self.0.split('/').next().map_or_else(|| self.clone(), |node| Self(node.into()))
    }

    /// The step that undoes this one.
    pub fn undo(&self) -> Result<Self, BadName> {
        format!("{self}/undo").parse()
    }
}

name!(
    /// The name of a tool in the catalogue.
    ToolName,
    "a tool name (letters, digits, `_ . : / -`, at most 128 characters)",
    |text| spelled(text, 128, |b| b.is_ascii_alphanumeric() || b"_.:/-".contains(&b))
);
name!(
    /// Who acts: an agent, a person, a service.
    Principal,
    "a principal (printable ASCII without blanks, at most 128 characters)",
    |text| spelled(text, 128, |b| b.is_ascii_graphic())
);
name!(
    /// Whose budget and data: the unit of isolation.
    Tenant,
    "a tenant (lower-case letters, digits, `_ . -`, at most 64 characters)",
    |text| spelled(text, 64, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b))
);
name!(
    /// A worker process.
    WorkerId,
    "a worker id (printable ASCII without blanks, at most 128 characters)",
    |text| spelled(text, 128, |b| b.is_ascii_graphic())
);
name!(
    /// A key that waits and signals meet on, or the caller's id of a signal.
    SignalKey,
    "a signal key (printable ASCII without blanks, at most 128 characters)",
    |text| spelled(text, 128, |b| b.is_ascii_graphic())
);
name!(
    /// What kind of thing a resource of the world is.
    ResourceType,
    "a resource type (letters, digits, `_ . : / -`, at most 64 characters)",
    |text| spelled(text, 64, |b| b.is_ascii_alphanumeric() || b"_.:/-".contains(&b))
);
name!(
    /// Where an approval is asked for.
    Channel,
    "a channel (printable ASCII without blanks, at most 64 characters)",
    |text| spelled(text, 64, |b| b.is_ascii_graphic())
);

impl ToolName {
    /// What policies and freezes call handing a task to a child that may do this much to the world. No tool
    /// is called so.
    pub fn of_delegation(effect: Effect) -> Self {
        Self(format!("delegate.{effect}").into())
    }

    /// What a child may do to the world, if this stands for handing it a task.
    pub fn delegates(&self) -> Option<Effect> {
        match self.as_str().strip_prefix("delegate.")? {
            "read" => Some(Effect::Read),
            "write" => Some(Effect::Write),
            "external" => Some(Effect::External),
            "irreversible" => Some(Effect::Irreversible),
            _ => None,
        }
    }
}

impl Channel {
    /// Where people are asked when nothing says where.
    pub fn operators() -> Self {
        Self("operators".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_ids_are_checked() {
        for good in ["charge", "triage/2/call/1", "a-b_c/0"] {
            assert_eq!(good.parse::<StepId>().unwrap().as_str(), good);
        }
        for bad in ["", "/", "a/", "/a", "A", "a b", "a\0b", "é", &"a".repeat(129)] {
            assert!(bad.parse::<StepId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_trajectory_id_has_one_spelling() {
        let id = TrajectoryId::from_bytes([0xab; 16]);
        assert_eq!(id.to_string().parse::<TrajectoryId>().unwrap(), id);
        assert!(id.to_string().to_uppercase().parse::<TrajectoryId>().is_err());
    }

    #[test]
    fn a_childs_id_depends_on_parent_step_and_generation() {
        let parent = TrajectoryId::from_bytes([1; 16]);
        let step: StepId = "ask".parse().unwrap();
        let child = TrajectoryId::of_child(parent, &step, 1);
        assert_ne!(child, TrajectoryId::of_child(parent, &step, 2));
        assert_ne!(child, TrajectoryId::of_child(parent, &"ask2".parse().unwrap(), 1));
        assert_ne!(child, TrajectoryId::of_child(TrajectoryId::from_bytes([2; 16]), &step, 1));
    }
}
