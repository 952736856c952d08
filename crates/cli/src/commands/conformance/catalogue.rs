//! Which attack is tried by which cases. Every case belongs to one attack, and a test says so.

use std::fmt::Write as _;

use super::Tried;

/// A way to deceive somebody who relies on the record.
pub(super) struct Attack {
    /// What is done.
    pub(super) what: &'static str,
    /// The cases that try it, by part. A name that ends in `*` stands for all that begin so.
    cases: &'static [(&'static str, &'static [&'static str])],
}

impl Attack {
    /// Whether this case tries it.
    pub(super) fn has(&self, part: &str, name: &str) -> bool {
        self.cases.iter().filter(|(of, _)| *of == part).any(|(_, names)| {
            names.iter().any(|known| match known.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == *known,
            })
        })
    }
}

/// Every attack.
#[rustfmt::skip]
pub(super) const ATTACKS: &[Attack] = &[
    Attack { what: "nothing: what is sound is said to be", cases: &[("bundles", &["valid", "sealed", "disclosed"])] },
    Attack { what: "changing bytes", cases: &[("bundles", &["flipped-*", "blob-swapped", "blob-longer", "manifest-null", "manifest-spaced", "other-hints", "sealed-rewritten"])] },
    Attack { what: "reordering", cases: &[("bundles", &["reordered", "renumbered", "path-unsorted"])] },
    Attack { what: "dropping", cases: &[("bundles", &["dropped", "dropped-first", "sealed-dropped", "sealed-dropped-and-hidden", "blob-missing", "missing-source", "path-missing", "nothing"])] },
    Attack { what: "cutting off the end", cases: &[("bundles", &["truncated", "child-cut", "registry-cut", "source-cut", "sealed-cut-tail", "archive-cut", "archive-without-end", "archive-with-half-an-end", "no-new-line"])] },
    Attack { what: "splicing and adding", cases: &[("bundles", &["spliced", "orphan", "foreign-*", "invented-result", "other-spending", "branch-of-itself", "blob-stray", "duplicate-seq", "archive-with-more", "padding"])] },
    Attack { what: "forking one head twice", cases: &[("bundles", &["forked", "forked-and-renumbered"]), ("store", &["one-head-forked"]), ("log", &["two-heads-shown"])] },
    Attack { what: "rolling back", cases: &[("store", &["store-rolled-back"]), ("log", &["rolled-back", "growth-not-shown", "old-checkpoint"])] },
    Attack { what: "moving a signature to another type of document, or to another document", cases: &[("bundles", &["swapped-signature", "signature-of-another-decision", "permit-as-a-decision"])] },
    Attack { what: "signing with another key", cases: &[("bundles", &["other-key", "wrong-role", "other-trust", "owner-is-none", "expired-key", "signature-by-another-key", "approval-by-a-stranger", "approval-by-the-guardian", "writ-issued-by-a-stranger", "writ-narrowed-by-a-stranger", "sealed-by-a-stranger"]), ("log", &["another-log", "too-few-witnesses"])] },
    Attack { what: "spending a permit twice", cases: &[("bundles", &["permit-spent-twice", "permit-of-another-step", "decision-replayed"]), ("store", &["one-start-sent-twice"])] },
    Attack { what: "disclosing something else than was committed to", cases: &[("bundles", &["disclosed-*"])] },
    Attack { what: "swapping what was approved", cases: &[("bundles", &["arguments-swapped-after-approval", "approval-of-another-request", "approval-edited"])] },
    Attack { what: "expired and edited permissions", cases: &[("bundles", &["edited-permit", "edited-expiry", "permit-expired", "permit-of-another-attempt", "decision-that-denies", "approval-expired", "approval-used-too-late"])] },
    Attack { what: "widening a writ, or using it elsewhere", cases: &[("bundles", &["other-writ", "writ-of-another-trajectory", "writ-that-widens", "writ-expired"])] },
    Attack { what: "writing under a stale fence", cases: &[("bundles", &["stale-fence"]), ("store", &["stale-fence"])] },
    Attack { what: "delimiters, other scripts, other forms of one text", cases: &[("bundles", &["name-*"]), ("json", &["delimiters", "normal-forms", "unseen", "strings", "order", "lone-surrogate", "control-character", "not-utf-8", "byte-order-mark"])] },
    Attack { what: "numbers at the edges of RFC 8785", cases: &[("bundles", &["nested-number"]), ("json", &["numbers", "rfc-8785-numbers", "halves", "zeros", "ends-of-doubles", "many-digits", "safe-integers", "beyond-*", "leading-zero", "not-a-number"]), ("made", &["many-zeros"])] },
    Attack { what: "one value, two spellings", cases: &[("bundles", &["non-canonical", "nested-duplicate-key", "nested-order", "empty-line"]), ("json", &["duplicate-key", "nested", "literals", "comment", "trailing-comma", "two-documents", "nothing"]), ("made", &["many-keys", "many-keys-one-twice"])] },
    Attack { what: "kinds, fields and versions that nobody knows yet", cases: &[("bundles", &["unknown-kind", "unknown-field", "future-version", "manifest-of-the-future"])] },
    Attack { what: "deep and huge documents", cases: &[("bundles", &["arguments-too-deep"]), ("json", &["too-deep", "deepest"]), ("made", &["deep-*", "huge-*"])] },
    Attack { what: "archives that leave their place", cases: &[("bundles", &["path-up", "path-absolute", "path-inside-up", "path-dot"])] },
    Attack { what: "links, devices and other kinds of members", cases: &[("bundles", &["path-link", "path-hard-link", "path-device", "path-directory", "path-pax", "path-long-link"])] },
    Attack { what: "members twice or unlisted", cases: &[("bundles", &["path-twice", "path-unlisted"])] },
    Attack { what: "archives that are larger than they are", cases: &[("bundles", &["bomb-*", "no-archive", "no-bundle"])] },
    Attack { what: "keys and writs revoked before", cases: &[("bundles", &["revoked-key", "revoked-writ", "key-revoked-before-it-was-seen"])] },
    Attack { what: "keys revoked after", cases: &[("bundles", &["key-revoked-after-it-was-seen", "key-revoked-and-never-seen"])] },
];

/// The catalogue as a table: attack, case, what is said of it.
pub(super) fn table(tried: &[Tried]) -> String {
    let mut table = String::from("| attack | case | what must be said |\n| --- | --- | --- |\n");
    for attack in ATTACKS {
        let mut what = attack.what;
        for Tried { part, name, said, expected } in
            tried.iter().filter(|one| attack.has(one.part, &one.name))
        {
            let said = brief(expected.as_ref().unwrap_or(said));
            // Writing to a text does not fail.
            let _ = writeln!(table, "| {what} | `{part}/{name}` | {said} |");
            what = "";
        }
    }
    table
}

/// What was said, without ids, which change with every format, and fit for a cell.
fn brief(said: &str) -> String {
    let (head, rest) = said.split_once(": ").unwrap_or((said, ""));
    let head = match head.split_once(" in t_") {
        Some((what, place)) => {
            let entry = place.split_once(" at ").map_or("", |(_, entry)| entry);
            format!("{what} {}{entry}", if entry.is_empty() { "" } else { "at " })
        }
        None => head.to_owned(),
    };
    let words: Vec<String> = rest.split(' ').map(without_ids).collect();
    let told = match words.join(" ") {
        rest if rest.is_empty() => head.trim_end().to_owned(),
        rest => format!("{}: {rest}", head.trim_end()),
    };
    told.replace('|', "\\|")
}

fn without_ids(word: &str) -> String {
    let trimmed = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let digits = trimmed.strip_prefix("t_").unwrap_or(trimmed);
    match digits.len() >= 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => word.replace(trimmed, "…"),
        false => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::VECTORS;
    use super::*;

    /// Bundles and documents; what is made at run time is compared by the test of the document.
    #[test]
    fn every_vector_belongs_to_one_attack_and_every_attack_has_cases() {
        let names = VECTORS.iter().filter_map(|(part, file, _)| {
            let name = match *part {
                "bundles" => file.strip_suffix(".tar"),
                // What jobs wrote is changed at random, and no case by itself.
                "runs" => None,
                _ => file.strip_suffix(".json"),
            };
            name.map(|name| (*part, name))
        });
        let names: Vec<(&str, &str)> = names.collect();
        for (part, name) in &names {
            let of = ATTACKS.iter().filter(|attack| attack.has(part, name)).count();
            assert_eq!(of, 1, "{part}/{name}");
        }
        for attack in ATTACKS {
            for (part, cases) in
                attack.cases.iter().filter(|(part, _)| ["bundles", "json"].contains(part))
            {
                for case in *cases {
                    let known = names.iter().any(|(of, name)| {
                        of == part
                            && match case.strip_suffix('*') {
                                Some(beginning) => name.starts_with(beginning),
                                None => name == case,
                            }
                    });
                    assert!(known, "{part}/{case} of `{}` does not exist", attack.what);
                }
            }
        }
    }
}
