//! Sensitive values: where entries commit to them, and whether they are disclosed, withheld or erased.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::digest::Digest;
use gesta_core::entry::{Body, Entry};
use gesta_core::sensitive::{commitments, may_hold};
use gesta_core::verification::{Class, Finding};
use serde_json::Value;

use super::examine::Examined;
use crate::report::{Fate, SensitiveValue};

/// What a trajectory commits to.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Where each commitment stands first: the entry's number, and the JSON pointer.
    places: BTreeMap<Digest, (u64, String)>,
    /// Whether its data key is destroyed.
    erased: bool,
}

impl Committed {
    pub(super) fn note(&mut self, entry: &Entry) {
        self.erased |= matches!(entry.payload().body, Body::Erased(_));
        let held = Some(entry.bytes()).filter(|bytes| may_hold(bytes));
        let Some(text) = held.and_then(|bytes| std::str::from_utf8(bytes).ok()) else {
            return;
        };
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        for (pointer, commitment) in commitments(&value) {
            self.places.entry(commitment.hmac).or_insert((entry.seq(), pointer));
        }
    }
}

/// Every sensitive value and its fate, by trajectory, entry and place.
pub(super) fn told(examined: &[Examined], disclosed: &BTreeSet<Digest>) -> Vec<SensitiveValue> {
    let mut all = Vec::new();
    for one in examined {
        for (commit, (seq, pointer)) in &one.committed.places {
            let fate = match (disclosed.contains(commit), one.committed.erased) {
                (true, _) => Fate::Disclosed,
                (false, true) => Fate::Erased,
                (false, false) => Fate::Withheld,
            };
            let (trajectory, seq) = (one.trajectory, *seq);
            let (commit, pointer) = (*commit, pointer.clone());
            all.push(SensitiveValue { trajectory, seq, pointer, commit, fate });
        }
    }
    all.sort();
    all
}

/// Disclosed values that no entry commits to. Only meaningful once every entry was examined.
pub(super) fn strays(
    examined: &[Examined],
    mut disclosed: BTreeSet<Digest>,
) -> impl Iterator<Item = Finding> {
    for one in examined {
        disclosed.retain(|commit| !one.committed.places.contains_key(commit));
    }
    disclosed.into_iter().map(|commit| Finding {
        class: Class::Tampered,
        code: "stray_opening",
        trajectory: None,
        seq: None,
        entry: None,
        what: format!("no entry commits to the value disclosed for `{commit}`"),
    })
}
