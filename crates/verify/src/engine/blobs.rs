//! Blobs: each that an entry names must be there and be what it is named; each that is listed must
//! be named by something.

use std::sync::atomic::{AtomicBool, Ordering};

use gesta_core::content::BlobRef;
use gesta_core::digest::Digest;
use gesta_core::entry::Entry;
use gesta_core::verification::{Class, Finding, blobs, in_force};

use super::Chains;

/// Which of the listed blobs were named so far.
pub(super) struct Named(Vec<(Digest, AtomicBool)>);

impl Named {
    pub(super) fn new(mut listed: Vec<Digest>) -> Self {
        listed.sort_unstable();
        Self(listed.into_iter().map(|digest| (digest, AtomicBool::new(false))).collect())
    }

    /// Marks a blob. False if it is not listed.
    fn mark(&self, digest: Digest) -> bool {
        let at = self.0.binary_search_by_key(&digest, |(digest, _)| *digest);
        let listed = at.ok().and_then(|at| self.0.get(at));
        if let Some((_, named)) = listed {
            named.store(true, Ordering::Relaxed);
        }
        listed.is_some()
    }

    /// Listed blobs that nothing names. Only meaningful once every entry was examined.
    pub(super) fn strays(&self) -> impl Iterator<Item = Finding> {
        let strays = self.0.iter().filter(|(_, named)| !named.load(Ordering::Relaxed));
        strays.map(|(digest, _)| Finding {
            class: Class::Tampered,
            code: "stray_blob",
            trajectory: None,
            seq: None,
            entry: None,
            what: format!("no entry names the blob `{digest}`"),
        })
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
            findings.extend(check(chains, blob.sha256, Some(blob), entry));
        }
        if !self.0.is_empty() {
            // What was in force may come along, and then must be what it is named.
            for digest in in_force(body) {
                if self.mark(digest) {
                    checked += 1;
                    findings.extend(check(chains, digest, None, entry));
                }
            }
        }
        checked
    }
}

fn check(
    chains: &dyn Chains,
    digest: Digest,
    expected: Option<BlobRef>,
    entry: &Entry,
) -> Option<Finding> {
    let (class, code, what) = match (chains.blob(digest), expected) {
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
