//! What a call costs and what a writ allows: calls, tokens, money, wall time. Integers only.

use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::content::some;
use crate::digest::WritId;
use crate::time::Day;

/// What an account is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// All that a tenant uses in a day.
    Day(Day),
    /// All that is used below a standing writ, for as long as it stands.
    Writ(WritId),
}

/// An amount in every dimension; one that is zero is left out, and only so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Tool calls.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// Money, in millionths of the account's unit.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "is_zero")]
    pub money_micros: u64,
    /// Model tokens.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Wall time, in milliseconds.
    #[serde(default, deserialize_with = "not_zero", skip_serializing_if = "is_zero")]
    pub wall_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// One value, one form.
fn not_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => {
            Err(D::Error::invalid_value(Unexpected::Unsigned(0), &"no field for an amount of zero"))
        }
        amount => Ok(amount),
    }
}

impl Amounts {
    /// One call and nothing else.
    pub const ONE_CALL: Self = Self { calls: 1, money_micros: 0, tokens: 0, wall_ms: 0 };

    fn zip(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        Self {
            calls: f(self.calls, other.calls),
            money_micros: f(self.money_micros, other.money_micros),
            tokens: f(self.tokens, other.tokens),
            wall_ms: f(self.wall_ms, other.wall_ms),
        }
    }

    /// Every dimension, in the order of [`Budget::dimensions`].
    pub fn values(self) -> [u64; 4] {
        let Self { calls, money_micros, tokens, wall_ms } = self;
        [calls, money_micros, tokens, wall_ms]
    }

    /// The amounts with these values, in the same order.
    pub fn of([calls, money_micros, tokens, wall_ms]: [u64; 4]) -> Self {
        Self { calls, money_micros, tokens, wall_ms }
    }

    /// The sum, dimension by dimension.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// The difference, dimension by dimension, never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

/// A limit in every dimension; an absent one is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most tool calls.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// The most money, in millionths of the account's unit.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub money_micros: Option<u64>,
    /// The most model tokens.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The most wall time, in milliseconds.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

/// The name of a budget's dimension, for errors.
pub type Dimension = &'static str;

impl Budget {
    /// Every dimension with its name. Destructured whole, so that a new one cannot be forgotten.
    pub fn dimensions(&self) -> [(Dimension, Option<u64>); 4] {
        let Self { calls, money_micros, tokens, wall_ms } = *self;
        [("calls", calls), ("money_micros", money_micros), ("tokens", tokens), ("wall_ms", wall_ms)]
    }

    /// Whether it limits anything.
    pub fn limits(&self) -> bool {
        self.dimensions().iter().any(|(_, limit)| limit.is_some())
    }

    /// These amounts as a budget, where this one sets a limit.
    #[must_use]
    pub fn where_limited(&self, amounts: Amounts) -> Self {
        let Self { calls, money_micros, tokens, wall_ms } = *self;
        Self {
            calls: calls.map(|_| amounts.calls),
            money_micros: money_micros.map(|_| amounts.money_micros),
            tokens: tokens.map(|_| amounts.tokens),
            wall_ms: wall_ms.map(|_| amounts.wall_ms),
        }
    }

    /// The highest of these thresholds, in percent, that so much reaches in any dimension.
    pub fn reached(&self, used: &Amounts, thresholds: &[u8]) -> Option<u8> {
        let reaches = |percent: &u8| {
            self.dimensions().into_iter().zip(used.values()).any(|((_, limit), used)| {
                let of = |amount: u64, percent: u64| u128::from(amount) * u128::from(percent);
                limit.is_some_and(|limit| of(used, 100) >= of(limit, u64::from(*percent)))
            })
        };
        thresholds.iter().copied().filter(reaches).max()
    }

    /// The first dimension in which `used` exceeds this budget.
    pub fn exceeded_by(&self, used: &Amounts) -> Option<Dimension> {
        self.dimensions()
            .into_iter()
            .zip(used.values())
            .find(|((_, limit), used)| limit.is_some_and(|limit| *used > limit))
            .map(|((name, _), _)| name)
    }

    /// The first dimension in which `child` allows more than this budget.
    pub fn widened_by(&self, child: &Self) -> Option<Dimension> {
        self.dimensions()
            .into_iter()
            .zip(child.dimensions())
            .find(|((_, parent), (_, child))| match (parent, child) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(parent), Some(child)) => child > parent,
            })
            .map(|((name, _), _)| name)
    }

    /// What is left of it, where it sets a limit.
    #[must_use]
    pub fn left(&self, used: &Amounts) -> Self {
        let left = |limit: Option<u64>, used: u64| limit.map(|limit| limit.saturating_sub(used));
        Self {
            calls: left(self.calls, used.calls),
            money_micros: left(self.money_micros, used.money_micros),
            tokens: left(self.tokens, used.tokens),
            wall_ms: left(self.wall_ms, used.wall_ms),
        }
    }

    /// What a child with this budget takes out of its parent's: the limits themselves. An
    /// unlimited dimension takes nothing, since only an unlimited parent can grant it.
    pub fn carved(&self) -> Amounts {
        Amounts {
            calls: self.calls.unwrap_or(0),
            money_micros: self.money_micros.unwrap_or(0),
            tokens: self.tokens.unwrap_or(0),
            wall_ms: self.wall_ms.unwrap_or(0),
        }
    }
}
