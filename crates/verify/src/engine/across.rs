//! What trajectories say of each other, once all were examined: branches of their sources, children
//! of their parents, parents of their children.

use std::collections::BTreeMap;

use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::verification::{Class, Finding};

use super::beginning::{Beginning, Begins, above};
use super::examine::{Delegated, Examined, Named, Returned, TakenOver};
use crate::report::NotChecked;

/// What came of the comparison.
#[derive(Debug, Default)]
pub(super) struct Across {
    pub(super) findings: Vec<Finding>,
    pub(super) not_checked: Vec<NotChecked>,
    pub(super) links: u64,
}

/// Compares what was examined.
pub(super) fn compare(
    beginnings: &BTreeMap<TrajectoryId, Beginning>,
    examined: &[Examined],
) -> Across {
    let by_id: BTreeMap<_, _> = examined.iter().map(|one| (one.trajectory, one)).collect();
    let mut compared = Comparing { beginnings, by_id, across: Across::default() };
    for one in examined {
        // A beginning that does not hold names nothing.
        if let Some(beginning) = beginnings.get(&one.trajectory).filter(|_| one.entries > 0) {
            compared.source(one, beginning);
            compared.parent(one, beginning);
            compared.carved(one, beginning);
            for taken in &one.taken_over {
                compared.taken_over(one, beginning, taken);
            }
        }
        for delegation in &one.delegations {
            compared.child(one, delegation);
        }
        for result in &one.results {
            compared.result(one, result);
        }
        for delivered in &one.delivered {
            compared.delivered(one, delivered);
        }
    }
    compared.across
}

struct Comparing<'a> {
    beginnings: &'a BTreeMap<TrajectoryId, Beginning>,
    by_id: BTreeMap<TrajectoryId, &'a Examined>,
    across: Across,
}

impl Comparing<'_> {
    /// A branch: the source has the commit, sound, and the head that the branch saw.
    fn source(&mut self, branch: &Examined, beginning: &Beginning) {
        let Begins::Branch { source: id, commit, head, .. } = beginning.as_ else { return };
        let Some(source) = self.by_id.get(&id).copied() else { return };
        if !source.seen.contains_key(&commit) {
            // The fold found it, so the examination stopped before: at a signature.
            let what = format!("its source {id} is not sound up to the commit it branches from");
            self.refuse(branch, Class::Incomplete, "source", None, what);
            return;
        }
        match source.seen.get(&head.id) {
            Some(seen) if seen.seq == head.seq => self.across.links += 1,
            Some(_) => {
                let what = format!("the head it names is not entry {} of {id}", head.seq);
                self.refuse(branch, Class::Tampered, "source_head", None, what);
            }
            None if !source.is_sound() => self.lacks(branch, 0, "source head", id),
            None if source.head.is_some_and(|last| last.seq < head.seq) => {
                self.cut(source, branch.trajectory, head);
            }
            None => {
                let what = format!("{id} does not have the head it names");
                self.refuse(branch, Class::Tampered, "source_head", None, what);
            }
        }
    }

    /// A branch: a result that it took over is that of a call above it.
    fn taken_over(&mut self, branch: &Examined, beginning: &Beginning, taken: &TakenOver) {
        let above = above(self.beginnings, beginning);
        let examined: Vec<_> = above.iter().filter_map(|id| self.by_id.get(id)).copied().collect();
        let found = examined.iter().find_map(|one| one.results_of_calls.get(&taken.from));
        let what = match found {
            Some(result) if *result == taken.result => {
                self.across.links += 1;
                return;
            }
            Some(_) => "the call that it names came to something else".to_owned(),
            // What is not here yet, or not sound, may have had it.
            None if examined.len() < above.len()
                || !examined.iter().all(|one| one.is_sound() && one.ended) =>
            {
                if let Some(source) = above.first() {
                    self.lacks(branch, taken.at.seq, "recorded result", *source);
                }
                return;
            }
            None => format!("nothing above it has the commit `{}`", taken.from),
        };
        self.refuse(branch, Class::Tampered, "recorded_from", Some(taken.at), what);
    }

    /// A child: the parent has the delegation, to this trajectory, under its writ.
    fn parent(&mut self, child: &Examined, beginning: &Beginning) {
        let Some(by) = &beginning.delegated_by else { return };
        let Some(parent) = self.by_id.get(&by.trajectory).copied() else {
            self.lacks(child, 0, "delegation", by.trajectory);
            return;
        };
        let what = match parent.seen.get(&by.delegation).map(|seen| seen.delegates) {
            Some(Some((to, writ))) if to == child.trajectory && Some(writ) == beginning.writ => {
                self.across.links += 1;
                return;
            }
            Some(Some((to, _))) if to == child.trajectory => {
                format!("{} delegated to it under another writ", by.trajectory)
            }
            Some(_) => {
                format!("the entry of {} that it names does not delegate to it", by.trajectory)
            }
            None if !parent.is_sound() => {
                self.lacks(child, 0, "delegation", by.trajectory);
                return;
            }
            None => format!("{} does not have the delegation it names", by.trajectory),
        };
        self.refuse(child, Class::Tampered, "delegation", None, what);
    }

    /// Anything: what it may do was not taken out of what another trajectory may, without that one's word.
    fn carved(&mut self, one: &Examined, beginning: &Beginning) {
        let Some(of) = beginning.uncarved else { return };
        let delegates = |other: &&Examined| {
            other.delegations.iter().any(|delegated| delegated.child == one.trajectory)
        };
        if self.by_id.get(&of).is_some_and(delegates) {
            return; // told there, as a delegation that did not begin it
        }
        let what = format!("a writ above its own roots {of}, which has not delegated to it");
        self.refuse(one, Class::Tampered, "delegation", None, what);
    }

    /// A parent: if the child is here, it was begun by this delegation. One that has not begun yet is
    /// nobody's fault.
    fn child(&mut self, parent: &Examined, delegation: &Delegated) {
        let Some(beginning) = self.beginnings.get(&delegation.child) else { return };
        let Some(child) = self.by_id.get(&delegation.child).filter(|child| child.entries > 0)
        else {
            return;
        };
        let names_us = beginning.delegated_by.as_ref().is_some_and(|by| {
            by.trajectory == parent.trajectory && by.delegation == delegation.at.id
        });
        if names_us {
            self.across.links += 1;
        } else {
            let what = format!("{} was not begun by this delegation", child.trajectory);
            self.refuse(parent, Class::Tampered, "delegation", Some(delegation.at), what);
        }
    }

    /// A parent: the child came to what is said of it.
    fn result(&mut self, parent: &Examined, result: &Returned) {
        let says = &result.says;
        let Some(child) = self.by_id.get(&result.child).copied() else {
            self.lacks(parent, result.at.seq, "child head", result.child);
            return;
        };
        let found = child.closing.iter().find(|found| found.closing.head == says.head);
        let differs = match found {
            Some(found) if found.is(says) => {
                self.across.links += 1;
                return;
            }
            Some(found) if found.closing.end != says.end => "end",
            Some(found) if !found.spent(says.spent) => "spending",
            Some(_) => "answer",
            None if !child.is_sound() => {
                self.lacks(parent, result.at.seq, "child head", result.child);
                return;
            }
            None if child.head.is_some_and(|last| last.seq < says.head.seq) => {
                self.cut(child, parent.trajectory, says.head);
                return;
            }
            None => "head",
        };
        let what = format!("{} came to another {differs}", child.trajectory);
        self.refuse(parent, Class::Tampered, "delegation_result", Some(result.at), what);
    }

    /// Either side: the other chain reaches as far as it did when something was delivered to it. A part of
    /// it that was read before that does not, and cannot be told from one that was cut.
    fn delivered(&mut self, one: &Examined, named: &Named) {
        let other = self.by_id.get(&named.of).copied();
        let Some(other) = other.filter(|other| other.is_sound()) else {
            self.lacks(one, named.at.seq, "delivery", named.of);
            return;
        };
        match other.head {
            Some(head) if head.seq > named.head.seq || head == named.head => {
                self.across.links += 1;
            }
            Some(head) if head.seq == named.head.seq => {
                let what = format!("{} does not have the head it names", named.of);
                self.refuse(one, Class::Tampered, "delivery", Some(named.at), what);
            }
            _ => self.lacks(one, named.at.seq, "delivery", named.of),
        }
    }

    /// Another trajectory has seen more of this one than is here.
    fn cut(&mut self, one: &Examined, by: TrajectoryId, seen: Head) {
        let what = format!("{by} has seen its entry {}, but it ends before", seen.seq);
        self.across.findings.push(one.finding(Class::Tampered, "truncated", one.head, what));
    }

    fn refuse(
        &mut self,
        one: &Examined,
        class: Class,
        code: &'static str,
        at: Option<Head>,
        what: String,
    ) {
        let finding = one.finding(class, code, at, what);
        let seq = finding.seq.or(Some(0));
        self.across.findings.push(Finding { seq, ..finding });
    }

    fn lacks(&mut self, one: &Examined, seq: u64, what: &'static str, of: TrajectoryId) {
        let (trajectory, seq, of) = (Some(one.trajectory), Some(seq), Some(of));
        self.across.not_checked.push(NotChecked { trajectory, seq, what, of, blob: None });
    }
}
