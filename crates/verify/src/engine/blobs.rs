//! Blobs: each that an entry names must be there and be what it is named; each that is listed must
//! be named by something. What was in force need not be there, and must be what it is named if it is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::entry::Entry;
use gesta_core::verification::{Class, Finding, blobs, in_force};

use super::Chains;
use crate::report::NotChecked;

/// What is kept as a blob.
type Kept = Result<Option<BlobRef>, Finding>;

/// Which blobs were named so far.
pub(super) struct Named {
    /// Those that are listed, where a list came along.
    listed: Option<Vec<(Digest, AtomicBool)>>,
    /// Policies, catalogues and configurations: many entries name the same few.
    in_force: Mutex<BTreeMap<Digest, Kept>>,
}

impl Named {
    pub(super) fn new(listed: Option<Vec<Digest>>) -> Self {
        let unnamed = |mut listed: Vec<Digest>| {
            listed.sort_unstable();
            listed.into_iter().map(|digest| (digest, AtomicBool::new(false))).collect()
        };
        Self { listed: listed.map(unnamed), in_force: Mutex::default() }
    }

    /// Marks a blob. False if it is not listed.
    fn mark(&self, digest: Digest) -> bool {
        let Some(listed) = &self.listed else { return false };
        let at = listed.binary_search_by_key(&digest, |(digest, _)| *digest);
        let found = at.ok().and_then(|at| listed.get(at));
        if let Some((_, named)) = found {
            named.store(true, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Listed blobs that nothing names. Only meaningful once every entry was examined.
    pub(super) fn strays(&self) -> impl Iterator<Item = Finding> {
        let listed = self.listed.iter().flatten();
        let strays = listed.filter(|(_, named)| !named.load(Ordering::Relaxed));
        strays.map(|(digest, _)| Finding {
            class: Class::Tampered,
            code: "stray_blob",
            trajectory: None,
            seq: None,
            entry: None,
            what: format!("no entry names the blob `{digest}`"),
        })
    }

    /// What was in force and is not here, where nobody has said what there is.
    pub(super) fn absent(&self) -> Vec<NotChecked> {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let absent = in_force.iter().filter(|(_, kept)| matches!(kept, Ok(None)));
        absent
            .filter(|_| self.listed.is_none())
            .map(|(digest, _)| NotChecked::document(*digest))
            .collect()
    }

    /// Checks every blob of an entry. Returns how many.
    pub(super) fn check(
        &self,
        chains: &dyn Chains,
        entry: &Entry,
        findings: &mut Vec<Finding>,
    ) -> u64 {
        let body = &entry.payload().body;
        let mut checked = 0;
        for blob in blobs(body) {
            checked += 1;
            self.mark(blob.sha256);
            findings.extend(judge(chains.blob(blob.sha256), blob.sha256, Some(blob), entry));
        }
        for digest in in_force(body) {
            if self.mark(digest) {
                checked += 1;
                findings.extend(judge(self.kept(chains, digest), digest, None, entry));
            } else if self.listed.is_none() {
                let kept = self.kept(chains, digest);
                if !matches!(kept, Ok(None)) {
                    checked += 1;
                    findings.extend(judge(kept, digest, None, entry));
                }
            }
        }
        checked
    }

    /// What is kept as a document that was in force, read once.
    fn kept(&self, chains: &dyn Chains, digest: Digest) -> Kept {
        let in_force = || self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = in_force().get(&digest) {
            return kept.clone();
        }
        let kept = chains.blob(digest);
        in_force().insert(digest, kept.clone());
        kept
    }
}

fn judge(kept: Kept, digest: Digest, expected: Option<BlobRef>, entry: &Entry) -> Option<Finding> {
    let (class, code, what) = match (kept, expected) {
        (Err(finding), _) => (finding.class, finding.code, finding.what),
        (Ok(None), _) => {
            (Class::Incomplete, "missing_blob", format!("the blob `{digest}` is not here"))
        }
        (Ok(Some(found)), _) if found.sha256 != digest => {
            let what = format!("what is kept as the blob `{digest}` does not hash to it");
            (Class::Tampered, "blob", what)
        }
        (Ok(Some(found)), Some(expected)) if found.size != expected.size => {
            let what = format!(
                "the blob `{digest}` has {} bytes, and the entry says {}",
                found.size, expected.size
            );
            (Class::Tampered, "blob", what)
        }
        (Ok(Some(_)), _) => return None,
    };
    Some(Finding {
        class,
        code,
        trajectory: Some(entry.payload().trajectory),
        seq: Some(entry.seq()),
        entry: Some(entry.id()),
        what,
    })
}
