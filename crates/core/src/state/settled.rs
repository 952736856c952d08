//! Steps that are over. Each may never run again and has its row in the run hash, so each is
//! remembered to the end: packed, some hundred bytes a step, its id included.
//!
//! A B-tree by id, to which steps are only ever added. Clones share what has not changed since. A
//! packed step is unpacked when someone asks for it, together with its neighbours.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::step::{Status, Step};
use crate::digest::{Digest, EntryId};
use crate::document::Outcome;
use crate::entry::Head;
use crate::ids::StepId;

/// How many members a node has at most.
const MOST: usize = 64;
/// By how many members a node that is full makes room.
const ROOM: usize = 4;

/// Settled steps that nothing is left to be said about.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    root: Option<Arc<Node>>,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Leaf),
    /// Children, each by an id that none of its own comes before.
    Inner(ById<Arc<Self>>),
}

struct Leaf {
    records: ById<Record>,
    /// The same, unpacked, once someone has asked.
    steps: OnceLock<Box<[(StepId, Step)]>>,
}

/// What is to be known of a settled step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    by: EntryId,
    row: Digest,
    seq: u64,
    generation: u32,
    /// How it is done; none if it failed.
    done: Option<Outcome>,
    inherited: bool,
}

impl Record {
    /// Packs a step, if it is settled and no more is to be known of it than a record holds.
    fn of(step: &Step) -> Option<Self> {
        let Step {
            generation,
            frozen: None,
            grant: None,
            unaccounted,
            status,
            inherited,
            row,
            retry_at: _, // it is not tried again
        } = step
        else {
            return None;
        };
        let (by, done) = match status {
            Status::Done { by, outcome } => (by, Some(*outcome)),
            Status::Failed { by } => (by, None),
            _ => return None,
        };
        if !unaccounted.is_empty() {
            return None;
        }
        let generation = u32::try_from(*generation).ok()?;
        let (inherited, row) = (*inherited, (*row)?);
        Some(Self { by: by.id, row, seq: by.seq, generation, done, inherited })
    }

    fn unpack(&self) -> Step {
        let by = Head { id: self.by, seq: self.seq };
        Step {
            generation: u64::from(self.generation),
            inherited: self.inherited,
            row: Some(self.row),
            status: match self.done {
                Some(outcome) => Status::Done { by, outcome },
                None => Status::Failed { by },
            },
            ..Step::fresh()
        }
    }
}

impl Settled {
    /// Adds a step. False, and nothing is changed, if it cannot be packed.
    pub(super) fn insert(&mut self, id: &StepId, step: &Step) -> bool {
        match Record::of(step) {
            Some(record) => self.add(id.as_str(), record),
            None => return false,
        }
        true
    }

    fn add(&mut self, id: &str, record: Record) {
        let root = self.root.get_or_insert_with(|| Arc::new(Node::Leaf(Leaf::default())));
        if let Some((from, right)) = insert(root, id, record) {
            let mut children = ById::default();
            children.insert(0, "", Arc::clone(root));
            children.insert(1, &from, right);
            *root = Arc::new(Node::Inner(children));
        }
    }

    fn leaf(&self, id: &str) -> Option<(&Leaf, usize)> {
        let mut node = &**self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.records.find(id).ok().map(|at| (leaf, at)),
                Node::Inner(children) => node = children.values.get(children.child(id))?,
            }
        }
    }

    /// Whether the step is here.
    pub(super) fn contains(&self, id: &StepId) -> bool {
        self.leaf(id.as_str()).is_some()
    }

    /// A step.
    pub(super) fn get(&self, id: &StepId) -> Option<&Step> {
        let (leaf, _) = self.leaf(id.as_str())?;
        let steps = leaf.unpacked();
        let at = steps.binary_search_by(|(there, _)| there.cmp(id)).ok()?;
        steps.get(at).map(|(_, step)| step)
    }

    /// All steps, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&StepId, &Step)> {
        self.leaves().flat_map(|leaf| leaf.unpacked().iter().map(|(id, step)| (id, step)))
    }

    /// The ids and rows of all steps, by id.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, Digest)> {
        self.records().map(|(id, record)| (id, record.row))
    }

    /// The steps that are done, as a branch takes them over.
    pub(super) fn inherit(&self) -> Self {
        let mut heirs = Self::default();
        for (id, record) in self.records().filter(|(_, record)| record.done.is_some()) {
            heirs.add(id, Record { inherited: true, ..*record });
        }
        heirs
    }

    fn records(&self) -> impl Iterator<Item = (&str, &Record)> {
        self.leaves().flat_map(|leaf| leaf.records.iter())
    }

    fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        let mut ahead: Vec<&Node> = self.root.as_deref().into_iter().collect();
        std::iter::from_fn(move || {
            loop {
                match ahead.pop()? {
                    Node::Leaf(leaf) => return Some(leaf),
                    Node::Inner(children) => {
                        ahead.extend(children.values.iter().rev().map(|child| &**child));
                    }
                }
            }
        })
    }
}

/// Equal if the steps are: how they came to be divided over nodes says nothing.
impl PartialEq for Settled {
    fn eq(&self, other: &Self) -> bool {
        self.records().eq(other.records())
    }
}

/// Adds a record below a node. If the node had to be split: its right half, and where that begins.
fn insert(node: &mut Arc<Node>, id: &str, record: Record) -> Option<(Box<str>, Arc<Node>)> {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            leaf.steps = OnceLock::new();
            match leaf.records.find(id) {
                Ok(at) => leaf.records.replace(at, record),
                Err(at) => leaf.records.insert(at, id, record),
            }
            let (from, records) = leaf.records.split()?;
            Some((from, Arc::new(Node::Leaf(Leaf { records, steps: OnceLock::new() }))))
        }
        Node::Inner(children) => {
            let at = children.child(id);
            let (from, right) = insert(children.values.get_mut(at)?, id, record)?;
            children.insert(at + 1, &from, right);
            let (from, right) = children.split()?;
            Some((from, Arc::new(Node::Inner(right))))
        }
    }
}

impl Leaf {
    fn unpacked(&self) -> &[(StepId, Step)] {
        self.steps.get_or_init(|| {
            let steps = self.records.iter();
            // Every id was a step's, so every one is read again.
            steps.filter_map(|(id, record)| Some((id.parse().ok()?, record.unpack()))).collect()
        })
    }
}

impl Default for Leaf {
    fn default() -> Self {
        Self { records: ById::default(), steps: OnceLock::new() }
    }
}

impl Clone for Leaf {
    fn clone(&self) -> Self {
        // It is cloned to be changed.
        Self { records: self.records.clone(), steps: OnceLock::new() }
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.records.iter()).finish()
    }
}

/// Values by id, the ids in one text.
#[derive(Debug)]
struct ById<V> {
    text: String,
    /// Where each id ends in the text; it begins where the one before ends.
    ends: Vec<u32>,
    values: Vec<V>,
}

impl<V> Default for ById<V> {
    fn default() -> Self {
        Self { text: String::new(), ends: Vec::new(), values: Vec::new() }
    }
}

impl<V: Clone> Clone for ById<V> {
    fn clone(&self) -> Self {
        // It is cloned to be added to.
        let mut values = Vec::with_capacity(self.values.len() + 1);
        values.extend_from_slice(&self.values);
        Self { text: self.text.clone(), ends: self.ends.clone(), values }
    }
}

impl<V> ById<V> {
    fn id(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.end(before));
        self.text.get(start..self.end(at)).unwrap_or_default()
    }

    fn end(&self, at: usize) -> usize {
        self.ends.get(at).map_or(self.text.len(), |end| *end as usize)
    }

    /// Where an id is, or belongs.
    fn find(&self, id: &str) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.values.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.id(middle).cmp(id) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The child that an id belongs in.
    fn child(&self, id: &str) -> usize {
        self.find(id).unwrap_or_else(|after| after.saturating_sub(1))
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.values.iter().enumerate().map(|(at, value)| (self.id(at), value))
    }

    fn replace(&mut self, at: usize, value: V) {
        if let Some(there) = self.values.get_mut(at) {
            *there = value;
        }
    }

    fn insert(&mut self, at: usize, id: &str, value: V) {
        let start = at.checked_sub(1).map_or(0, |before| self.end(before));
        if self.values.len() == self.values.capacity() {
            self.values.reserve_exact(ROOM);
            self.ends.reserve_exact(ROOM);
            self.text.reserve_exact(ROOM * id.len());
        }
        self.text.insert_str(start, id);
        // At most `MOST` ids of at most 128 bytes.
        let length = id.len() as u32;
        self.ends.insert(at, start as u32);
        self.ends.iter_mut().skip(at).for_each(|end| *end += length);
        self.values.insert(at, value);
    }

    /// The right half, and the id that it begins with, if there are too many for one node.
    fn split(&mut self) -> Option<(Box<str>, Self)> {
        if self.values.len() <= MOST {
            return None;
        }
        let middle = self.values.len() / 2;
        let start = self.end(middle - 1);
        let text = self.text.split_off(start);
        let mut ends = self.ends.split_off(middle);
        ends.iter_mut().for_each(|end| *end -= start as u32);
        let right = Self { text, ends, values: self.values.split_off(middle) };
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.values.shrink_to_fit();
        Some((right.id(0).into(), right))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::Unaccounted;
    use super::*;

    fn step(n: u8) -> Step {
        let by = Head { id: EntryId::new(Digest::of(&[n])), seq: u64::from(n) };
        let outcomes = [Outcome::Pure, Outcome::SideEffectCommitted, Outcome::Compensated];
        Step {
            generation: 1 + u64::from(n % 3),
            inherited: n.is_multiple_of(5),
            row: Some(Digest::of(&[n, n])),
            status: match outcomes.get(usize::from(n % 4)) {
                Some(outcome) => Status::Done { by, outcome: *outcome },
                None => Status::Failed { by },
            },
            ..Step::fresh()
        }
    }

    fn filled<'a>(steps: impl IntoIterator<Item = (&'a StepId, &'a Step)>) -> Settled {
        let mut settled = Settled::default();
        steps.into_iter().for_each(|(id, step)| assert!(settled.insert(id, step)));
        settled
    }

    #[test]
    fn a_step_with_more_to_say_is_not_packed() {
        let id: StepId = "a".parse().unwrap();
        let start = EntryId::new(Digest::of(b"start"));
        for more in [
            Step { unaccounted: vec![Unaccounted { started: start, kept: None }], ..step(1) },
            Step { row: None, ..step(1) },
            Step { status: Status::Idle, ..step(1) },
            Step { generation: u64::MAX, ..step(1) },
        ] {
            let mut settled = Settled::default();
            assert!(!settled.insert(&id, &more));
            assert!(!settled.contains(&id));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn it_holds_what_was_put_in(
            ids in prop::collection::vec(("[a-c]{1,2}(/[a-c0-9-]{1,4}){0,2}", any::<u8>()), 0..900),
            split in any::<prop::sample::Index>(),
        ) {
            let parsed: Vec<(StepId, Step)> =
                ids.iter().map(|(id, n)| (id.parse().unwrap(), step(*n))).collect();
            let (early, late) = parsed.split_at(split.index(parsed.len() + 1).min(parsed.len()));
            let first = filled(early.iter().map(|(id, step)| (id, step)));
            let model: BTreeMap<StepId, Step> = early.iter().cloned().collect();
            let mut second = first.clone();
            let mut both = model.clone();
            for (id, step) in late {
                prop_assert!(second.insert(id, step));
                both.insert(id.clone(), step.clone());
            }
            for (settled, model) in [(&first, &model), (&second, &both)] {
                prop_assert!(settled.iter().eq(model));
                let rows = model.iter().map(|(id, step)| (id.as_str(), step.row.unwrap()));
                prop_assert!(settled.rows().eq(rows));
                for (id, _) in &parsed {
                    prop_assert_eq!(settled.get(id), model.get(id));
                    prop_assert_eq!(settled.contains(id), model.contains_key(id));
                }
                prop_assert_eq!(settled, &filled(model.iter().rev()));
                let heirs = settled.inherit();
                let done = model.iter().filter(|(_, s)| matches!(s.status, Status::Done { .. }));
                let done = done.map(|(id, s)| (id.clone(), Step { inherited: true, ..s.clone() }));
                let done: BTreeMap<StepId, Step> = done.collect();
                prop_assert!(heirs.iter().eq(&done));
            }
            prop_assert_eq!(first == second, model == both);
        }
    }
}
