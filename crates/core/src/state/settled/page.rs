//! Records as the bytes of a page. They never leave the process that wrote them, so they have no version.

use super::{ById, Record};
use crate::digest::{Digest, EntryId};
use crate::document::Outcome;

/// The outcomes that a page tells by their place in here; the first stands for none.
const OUTCOMES: [Option<Outcome>; 7] = [
    None,
    Some(Outcome::Pure),
    Some(Outcome::SideEffectCommitted),
    Some(Outcome::RetryableFailure),
    Some(Outcome::PermanentFailure),
    Some(Outcome::CompensatableFailure),
    Some(Outcome::Compensated),
];

/// The length of a record in a page, its id left out.
const PACKED: usize = 32 + 32 + 8 + 4 + 1 + 1;

/// Records as a page: each its id's length, its id, and what it says, all of fixed width.
pub(super) fn packed(records: &ById<Record>) -> Vec<u8> {
    let mut page = Vec::with_capacity(records.text.len() + records.values.len() * (PACKED + 1));
    for (id, record) in records.iter() {
        let Record { by, row, seq, generation, done, inherited } = record;
        let outcome = OUTCOMES.iter().position(|outcome| outcome == done).unwrap_or_default();
        // Ids have at most 128 bytes.
        page.push(id.len() as u8);
        page.extend_from_slice(id.as_bytes());
        page.extend_from_slice(by.as_bytes());
        page.extend_from_slice(row.as_bytes());
        page.extend_from_slice(&seq.to_be_bytes());
        page.extend_from_slice(&generation.to_be_bytes());
        page.extend_from_slice(&[outcome as u8, u8::from(*inherited)]);
    }
    page
}

/// Reads a page of so many records. None if it is none.
pub(super) fn unpacked(mut page: &[u8], count: usize) -> Option<ById<Record>> {
    // They are read to be looked at or to be added to.
    let mut records = ById::with_capacity(count + 1, page.len().saturating_sub(count * PACKED));
    while let Some((length, rest)) = page.split_first() {
        let (id, rest) = rest.split_at_checked(usize::from(*length))?;
        let (by, rest) = rest.split_first_chunk()?;
        let (row, rest) = rest.split_first_chunk()?;
        let (seq, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let ([outcome, inherited], rest) = rest.split_first_chunk()?;
        let record = Record {
            by: EntryId::new(Digest::from_bytes(*by)),
            row: Digest::from_bytes(*row),
            seq: u64::from_be_bytes(*seq),
            generation: u32::from_be_bytes(*generation),
            done: *OUTCOMES.get(usize::from(*outcome))?,
            inherited: *inherited == 1,
        };
        records.push(std::str::from_utf8(id).ok()?, record);
        page = rest;
    }
    (records.values.len() == count).then_some(records)
}
