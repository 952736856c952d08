//! Steps that are over. Each may never run again and has its row in the run hash, so each is
//! remembered to the end: packed, some hundred bytes a step, its id included.
//!
//! A B-tree by id, to which steps are only ever added. Clones share what has not changed since. A
//! packed step is unpacked when someone asks for it, together with its neighbours. Where there is a
//! shelf, leaves that are not being added to are put there, and memory does not follow the number of steps.

mod by_id;
mod page;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use self::by_id::ById;
use super::shelf::{Forgotten, Loss, Page, Shelf};
use super::step::{Status, Step};
use crate::digest::{Digest, EntryId};
use crate::document::Outcome;
use crate::entry::Head;
use crate::ids::StepId;

/// How many leaves are in memory before they are put on a shelf: two or three megabytes. Few in tests, so that they come
/// and go.
const HERE_MOST: usize = if cfg!(test) { 3 } else { 512 };

/// Settled steps that nothing is left to be said about.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    root: Option<Arc<Node>>,
    /// How many leaves are in memory.
    here: usize,
    shelf: Option<Arc<dyn Shelf>>,
    loss: Loss,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Leaf),
    /// Children, each by an id that none of its own comes before.
    Inner(ById<Arc<Self>>),
}

struct Leaf {
    records: Records,
    /// The same, unpacked, once someone has asked.
    steps: OnceLock<Box<[(StepId, Step)]>>,
}

/// The steps of a leaf.
#[derive(Clone)]
enum Records {
    Here(ById<Record>),
    Away(Arc<Shelved>),
}

/// The steps of a leaf that was put away.
#[derive(Debug)]
struct Shelved {
    page: Arc<dyn Page>,
    /// A mark for each of them: most steps that are asked for are not there, and need no page to be read.
    marks: Box<[u16]>,
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
    /// The same steps, of which those that are hardly looked at go on a shelf.
    pub(super) fn on(self, shelf: Arc<dyn Shelf>) -> Self {
        Self { shelf: Some(shelf), ..self }
    }

    /// An error if something that was put away is lost.
    pub(super) fn check(&self) -> Result<(), Forgotten> {
        self.loss.check()
    }

    /// Adds a step. False, and nothing is changed, if it cannot be packed.
    pub(super) fn insert(&mut self, id: &StepId, step: &Step) -> bool {
        match Record::of(step) {
            Some(record) => self.add(id.as_str(), record),
            None => return false,
        }
        true
    }

    fn add(&mut self, id: &str, record: Record) {
        let root = self.root.get_or_insert_with(|| {
            self.here += 1;
            Arc::new(Node::Leaf(Leaf::default()))
        });
        let added = insert(root, id, record, &mut self.here);
        if let Some(Some((from, right))) = self.loss.note(added) {
            let mut children = ById::default();
            children.insert(0, "", Arc::clone(root));
            children.insert(1, &from, right);
            *root = Arc::new(Node::Inner(children));
        }
        if self.here > HERE_MOST
            && let Some(shelf) = &self.shelf
        {
            self.here = 0;
            if !put_away(root, Some(id), &**shelf, &mut self.here) {
                self.shelf = None;
            }
        }
    }

    fn leaf(&self, id: &str) -> Option<&Leaf> {
        let mut node = &**self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Inner(children) => node = children.values.get(children.child(id))?,
            }
        }
    }

    /// Whether the step is here. What is lost may be.
    pub(super) fn contains(&self, id: &StepId) -> bool {
        let Some(leaf) = self.leaf(id.as_str()) else { return false };
        leaf.records.may_have(id.as_str())
            && self
                .loss
                .note(leaf.records.read())
                .is_none_or(|records| records.find(id.as_str()).is_ok())
    }

    /// A step.
    pub(super) fn get(&self, id: &StepId) -> Option<&Step> {
        let leaf = self.leaf(id.as_str()).filter(|leaf| leaf.records.may_have(id.as_str()))?;
        let at = match leaf.steps.get() {
            Some(steps) => steps.binary_search_by(|(there, _)| there.cmp(id)).ok()?,
            None => self.loss.note(leaf.records.read())?.find(id.as_str()).ok()?,
        };
        self.loss.note(leaf.unpacked())?.get(at).map(|(_, step)| step)
    }

    /// All steps, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&StepId, &Step)> {
        let leaves = self.leaves().filter_map(|leaf| self.loss.note(leaf.unpacked()));
        leaves.flat_map(|steps| steps.iter().map(|(id, step)| (id, step)))
    }

    /// Shows the ids and rows of all steps, by id.
    pub(super) fn rows(&self, mut each: impl FnMut(&str, Digest)) {
        self.records(|id, record| each(id, record.row));
    }

    /// Takes over the steps of another that are done, as a branch does.
    pub(super) fn inherit(&mut self, from: &Self) {
        from.records(|id, record| {
            if record.done.is_some() {
                self.add(id, Record { inherited: true, ..*record });
            }
        });
        if let Err(lost) = from.check() {
            self.loss.note::<()>(Err(lost));
        }
    }

    fn records(&self, mut each: impl FnMut(&str, &Record)) {
        for leaf in self.leaves() {
            if let Some(records) = self.loss.note(leaf.records.read()) {
                records.iter().for_each(|(id, record)| each(id, record));
            }
        }
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

/// Equal if the steps are: how they came to be divided over nodes, and where these are, says nothing.
impl PartialEq for Settled {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// What became of a node: if it had to be split, its right half, and where that begins.
type Split = Option<(Box<str>, Arc<Node>)>;

/// Adds a record below a node. `here` counts leaves that come into memory.
fn insert(
    node: &mut Arc<Node>,
    id: &str,
    record: Record,
    here: &mut usize,
) -> Result<Split, Forgotten> {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            leaf.steps = OnceLock::new();
            let records = leaf.records.bring_back(here)?;
            match records.find(id) {
                Ok(at) => records.replace(at, record),
                Err(at) => records.insert(at, id, record),
            }
            Ok(records.split().map(|(from, records)| {
                *here += 1;
                (from, Arc::new(Node::Leaf(Leaf::of(Records::Here(records)))))
            }))
        }
        Node::Inner(children) => {
            let at = children.child(id);
            let Some(child) = children.values.get_mut(at) else { return Ok(None) };
            let Some((from, right)) = insert(child, id, record, here)? else { return Ok(None) };
            children.insert(at + 1, &from, right);
            Ok(children.split().map(|(from, right)| (from, Arc::new(Node::Inner(right)))))
        }
    }
}

/// Puts all leaves below a node away but the one that an id belongs in. `here` counts those that stay; false if
/// there is no room for more.
fn put_away(node: &mut Arc<Node>, kept: Option<&str>, shelf: &dyn Shelf, here: &mut usize) -> bool {
    let shelved = match &**node {
        Node::Inner(_) => {
            let Node::Inner(children) = Arc::make_mut(node) else { return true };
            let kept = kept.map(|id| (children.child(id), id));
            return children.values.iter_mut().enumerate().all(|(at, child)| {
                let kept = kept.filter(|(there, _)| *there == at).map(|(_, id)| id);
                put_away(child, kept, shelf, here)
            });
        }
        Node::Leaf(Leaf { records: Records::Here(records), .. }) => {
            let page = kept.is_none().then(|| shelf.put(&page::packed(records)));
            match page {
                Some(Some(page)) => {
                    let marks = records.iter().map(|(id, _)| mark(id)).collect();
                    Arc::new(Shelved { page, marks })
                }
                other => {
                    *here += 1;
                    return other.is_none();
                }
            }
        }
        // It may have been unpacked meanwhile.
        Node::Leaf(Leaf { records: Records::Away(shelved), .. }) => Arc::clone(shelved),
    };
    *node = Arc::new(Node::Leaf(Leaf::of(Records::Away(shelved))));
    true
}

impl Records {
    /// The records, wherever they are.
    fn read(&self) -> Result<Cow<'_, ById<Record>>, Forgotten> {
        match self {
            Self::Here(records) => Ok(Cow::Borrowed(records)),
            Self::Away(shelved) => shelved.read().map(Cow::Owned),
        }
    }

    /// False if a step is certainly not among them.
    fn may_have(&self, id: &str) -> bool {
        match self {
            Self::Here(_) => true,
            Self::Away(shelved) => shelved.marks.contains(&mark(id)),
        }
    }

    /// The records, to be added to.
    fn bring_back(&mut self, here: &mut usize) -> Result<&mut ById<Record>, Forgotten> {
        if let Self::Away(shelved) = self {
            *self = Self::Here(shelved.read()?);
            *here += 1;
        }
        match self {
            Self::Here(records) => Ok(records),
            Self::Away(_) => Err(Forgotten),
        }
    }
}

impl Shelved {
    fn read(&self) -> Result<ById<Record>, Forgotten> {
        let page = self.page.read().ok_or(Forgotten)?;
        page::unpacked(&page, self.marks.len()).ok_or(Forgotten)
    }
}

/// The mark of an id, by which it differs from almost all others (FNV-1a, folded).
fn mark(id: &str) -> u16 {
    let hash = id
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash ^ (hash >> 16)) as u16
}

impl Leaf {
    fn of(records: Records) -> Self {
        Self { records, steps: OnceLock::new() }
    }

    fn unpacked(&self) -> Result<&[(StepId, Step)], Forgotten> {
        if let Some(steps) = self.steps.get() {
            return Ok(steps);
        }
        let records = self.records.read()?;
        // Every id was a step's, so every one is read again.
        let step = |(id, record): (&str, &Record)| Some((id.parse().ok()?, record.unpack()));
        Ok(self.steps.get_or_init(|| records.iter().filter_map(step).collect()))
    }
}

impl Default for Leaf {
    fn default() -> Self {
        Self::of(Records::Here(ById::default()))
    }
}

impl Clone for Leaf {
    fn clone(&self) -> Self {
        // It is cloned to be changed.
        Self::of(self.records.clone())
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.records {
            Records::Here(records) => f.debug_map().entries(records.iter()).finish(),
            Records::Away(shelved) => shelved.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
