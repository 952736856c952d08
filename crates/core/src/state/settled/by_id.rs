//! A node's members: values in the order of their ids, of which there are few.

/// How many members a node has at most.
const MOST: usize = 64;
/// By how many members a node that is full makes room.
const ROOM: usize = 4;

/// Values by id, the ids in one text.
#[derive(Debug)]
pub(super) struct ById<V> {
    pub(super) text: String,
    /// Where each id ends in the text; it begins where the one before ends.
    ends: Vec<u32>,
    pub(super) values: Vec<V>,
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
    pub(super) fn with_capacity(count: usize, text_bytes: usize) -> Self {
        let text = String::with_capacity(text_bytes);
        Self { text, ends: Vec::with_capacity(count), values: Vec::with_capacity(count) }
    }

    /// Adds what comes after all that is there.
    pub(super) fn push(&mut self, id: &str, value: V) {
        self.text.push_str(id);
        self.ends.push(self.text.len() as u32);
        self.values.push(value);
    }

    fn id(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.end(before));
        self.text.get(start..self.end(at)).unwrap_or_default()
    }

    fn end(&self, at: usize) -> usize {
        self.ends.get(at).map_or(self.text.len(), |end| *end as usize)
    }

    /// Where an id is, or belongs.
    pub(super) fn find(&self, id: &str) -> Result<usize, usize> {
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
    pub(super) fn child(&self, id: &str) -> usize {
        self.find(id).unwrap_or_else(|after| after.saturating_sub(1))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.values.iter().enumerate().map(|(at, value)| (self.id(at), value))
    }

    pub(super) fn replace(&mut self, at: usize, value: V) {
        if let Some(there) = self.values.get_mut(at) {
            *there = value;
        }
    }

    pub(super) fn insert(&mut self, at: usize, id: &str, value: V) {
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
    pub(super) fn split(&mut self) -> Option<(Box<str>, Self)> {
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
