//! What the transparency log says of the trajectories: that nothing was cut from them, that none was
//! dropped, and since when somebody outside knows. Proofs are checked before trajectories are examined;
//! what was found is compared with them afterwards.

use std::collections::BTreeMap;

use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::keys::KeyId;
use gesta_core::log::checkpoint::TreeHead;
use gesta_core::log::evidence::{
    Breach, ConsistencyProof, EntryProof, Evidence, EvidenceError, Proofs, follows,
};
use gesta_core::time::UnixMs;
use gesta_core::trust::Keyring;
use gesta_core::verification::{Class, Finding};

use super::examine::Examined;
use crate::moment;
use crate::report::{Counts, Line, LogLine, Report, Verdict};

/// A checkpoint that came along, with the proofs against it, as they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealing {
    /// The signed note.
    pub checkpoint: Vec<u8>,
    /// [`Proofs`], canonical JSON.
    pub proofs: Vec<u8>,
}

/// What is demanded of the transparency log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Every trajectory is in the log, to its last entry.
    pub sealed: bool,
    /// Every trajectory that the log knows is here.
    pub all: bool,
    /// The checkpoint is no older than this.
    pub after: Option<UnixMs>,
    /// At least so many witnesses have cosigned it.
    pub witnesses: usize,
    /// It is of this log.
    pub origin: Option<String>,
    /// It goes on from this one.
    pub seen: Option<Seen>,
}

/// A checkpoint that the verifier has seen before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it said.
    pub head: TreeHead,
    /// Shows that the log has grown from there, if it has.
    pub consistency: Option<ConsistencyProof>,
}

impl Demand {
    /// Whether anything is demanded that a checkpoint must show.
    fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

/// What is known of the log before anything is examined.
pub(super) struct Log<'a> {
    demand: &'a Demand,
    evidence: Option<Evidence>,
    witnesses: BTreeMap<KeyId, UnixMs>,
    findings: Vec<Finding>,
}

impl<'a> Log<'a> {
    /// Checks every proof. Witnesses are the verifier's own: no registry can name one.
    pub(super) fn read(sealing: Option<&Sealing>, trust: &Keyring, demand: &'a Demand) -> Self {
        let mut log =
            Self { demand, evidence: None, witnesses: BTreeMap::new(), findings: Vec::new() };
        let Some(Sealing { checkpoint, proofs }) = sealing else {
            if demand.is_any() {
                let what = "no checkpoint of a transparency log came along".to_owned();
                log.refuse(Class::Incomplete, "no_checkpoint", None, what);
            }
            return log;
        };
        match Proofs::parse(proofs).and_then(|proofs| Evidence::new(checkpoint, &proofs)) {
            Ok(evidence) => {
                log.witnesses = evidence.witnesses(trust);
                log.evidence = Some(evidence);
            }
            Err(error) => log.disbelieve(&error),
        }
        log
    }

    /// Checks the proof of one entry, which is all that is here.
    fn of_entry(proof: &EntryProof, trust: &Keyring, demand: &'a Demand) -> Self {
        let findings = Vec::new();
        let mut log = Self { demand, evidence: None, witnesses: BTreeMap::new(), findings };
        match proof.check() {
            Ok(evidence) => {
                log.witnesses = evidence.witnesses(trust);
                log.evidence = Some(evidence);
            }
            Err(error) => log.disbelieve(&error),
        }
        log
    }

    fn disbelieve(&mut self, error: &EvidenceError) {
        let what = error.to_string();
        match error {
            EvidenceError::Proof { trajectory, .. } => {
                self.refuse(Class::Tampered, "log_proof", *trajectory, what);
            }
            _ => self.refuse(Class::Tampered, "checkpoint", None, what),
        }
    }

    /// The last entry of a trajectory that the log held.
    pub(super) fn head(&self, trajectory: TrajectoryId) -> Option<Head> {
        self.evidence.as_ref()?.heads.get(&trajectory).copied().flatten()
    }

    /// Up to which entry, and when, enough witnesses had seen the trajectory.
    pub(super) fn witnessed(&self, trajectory: TrajectoryId) -> Option<(u64, UnixMs)> {
        let mut times: Vec<UnixMs> = self.witnesses.values().copied().collect();
        times.sort_unstable();
        let at = *times.get(self.demand.witnesses.max(1) - 1)?;
        Some((self.head(trajectory)?.seq, at))
    }

    /// Compares what was examined with what the log says, and the log with what is demanded.
    pub(super) fn conclude(
        &self,
        examined: &[Examined],
        keyring: &Keyring,
    ) -> (Vec<Finding>, Option<LogLine>) {
        let findings = self.findings.clone();
        let Some(evidence) = &self.evidence else { return (findings, None) };
        let mut judging = Judging { log: self, evidence, findings };
        let sealer = judging.vouched(keyring);
        for one in examined.iter().filter(|one| one.is_sound()) {
            judging.compare(one);
        }
        judging.whole(examined);
        let line = self.line(evidence, sealer);
        (judging.findings, Some(line))
    }

    fn line(&self, evidence: &Evidence, sealer: Option<KeyId>) -> LogLine {
        let checkpoint = &evidence.checkpoint;
        LogLine {
            origin: checkpoint.origin.clone(),
            size: checkpoint.size,
            at: checkpoint.at,
            sealer,
            witnesses: self.witnesses.keys().copied().collect(),
        }
    }

    fn refuse(
        &mut self,
        class: Class,
        code: &'static str,
        trajectory: Option<TrajectoryId>,
        what: String,
    ) {
        self.findings.push(Finding { class, code, trajectory, seq: None, entry: None, what });
    }
}

/// Verifies the proof of one entry, trusting nothing but `trust`.
pub fn verify_proof(proof: &EntryProof, trust: &Keyring, demand: &Demand) -> Report {
    let log = Log::of_entry(proof, trust, demand);
    let (entry, sealed) = (proof.entry, log.head(proof.entry.trajectory));
    let mut findings = log.findings.clone();
    let mut line = None;
    if let Some(evidence) = &log.evidence {
        let mut judging = Judging { log: &log, evidence, findings };
        let sealer = judging.vouched(trust);
        line = Some(log.line(evidence, sealer));
        findings = judging.findings;
    }
    let counts = Counts { trajectories: 1, entries: 1, ..Counts::default() };
    let lines = vec![Line {
        trajectory: entry.trajectory,
        entries: 1,
        signatures: 0,
        head: Some(Head { id: entry.id, seq: entry.seq }),
        sealed: sealed.map(|head| head.seq),
        verdict: Verdict::Sound,
    }];
    Report::new(lines, findings, Vec::new(), counts, true).with_log(line)
}

/// Comparing what was examined with what the log says.
struct Judging<'a> {
    log: &'a Log<'a>,
    evidence: &'a Evidence,
    findings: Vec<Finding>,
}

impl Judging<'_> {
    /// Every trajectory that the log knows is here, if that can be told.
    fn whole(&mut self, examined: &[Examined]) {
        let here = |trajectory| examined.iter().any(|one| one.trajectory == trajectory);
        if !self.evidence.all {
            if self.log.demand.all {
                let what = "the proofs do not say which trajectories there are in all".to_owned();
                self.refuse(Class::Incomplete, "not_all", None, what);
            }
            return;
        }
        for (trajectory, head) in self.evidence.heads.iter().filter(|(id, _)| !here(**id)) {
            let entries = head.map_or(0, |head| head.seq + 1);
            let what = format!("the log knows {entries} entries of it, and it is not here");
            self.refuse(Class::Tampered, "dropped", Some(*trajectory), what);
        }
    }

    /// Who vouches for the checkpoint, and whether it is what is demanded.
    fn vouched(&mut self, keyring: &Keyring) -> Option<KeyId> {
        let (demand, checkpoint) = (self.log.demand, &self.evidence.checkpoint);
        let sealer = match self.evidence.sealer(keyring) {
            Ok(key) => Some(key),
            Err(distrust) => {
                let why = distrust.map_or_else(String::new, |distrust| format!(": {distrust}"));
                let what = format!("nobody who is trusted to seal has signed the checkpoint{why}");
                self.refuse(Class::Untrusted, "log_key", None, what);
                None
            }
        };
        if demand.origin.as_ref().is_some_and(|origin| *origin != checkpoint.origin) {
            let what = format!("the checkpoint is of the log `{}`", checkpoint.origin);
            self.refuse(Class::Untrusted, "log_origin", None, what);
        }
        if let Some(after) = demand.after.filter(|after| checkpoint.at < *after) {
            let what = format!(
                "the checkpoint is of {}, and should not be older than {}",
                moment::utc(checkpoint.at),
                moment::utc(after)
            );
            self.refuse(Class::Incomplete, "stale_checkpoint", None, what);
        }
        let fresh = |at: &&UnixMs| demand.after.is_none_or(|after| **at >= after);
        let count = self.log.witnesses.values().filter(fresh).count();
        if count < demand.witnesses {
            let what = format!(
                "{count} trusted witnesses have cosigned the checkpoint in time, and {} are demanded",
                demand.witnesses
            );
            self.refuse(Class::Untrusted, "too_few_witnesses", None, what);
        }
        if let Some(seen) = &demand.seen {
            self.follows(seen);
        }
        sealer
    }

    /// Whether the log goes on from what the verifier has seen before.
    fn follows(&mut self, seen: &Seen) {
        let Ok(given) = TreeHead::parse(&self.evidence.note.text) else { return };
        let proof = match &seen.consistency {
            // Whatever has not grown, and what is of another log, needs none to be told apart.
            _ if seen.head.size >= given.size || seen.head.origin != given.origin => Ok(&[][..]),
            None => Err(format!(
                "nothing shows that the log with {} leaves begins with the {} leaves seen before",
                given.size, seen.head.size
            )),
            Some(proof) => proof.between(&seen.head, &given).map_err(|error| error.to_string()),
        };
        let proof = match proof {
            Ok(proof) => proof,
            Err(what) => return self.refuse(Class::Incomplete, "consistency", None, what),
        };
        let Err(breach) = follows(&seen.head, &given, proof) else { return };
        let what = breach.to_string();
        match breach {
            Breach::RolledBack { .. } => self.refuse(Class::Tampered, "rolled_back", None, what),
            Breach::SplitView { .. } | Breach::Forked { .. } => {
                self.refuse(Class::Tampered, "split_view", None, what);
            }
            Breach::OtherLog { .. } => self.refuse(Class::Untrusted, "log_origin", None, what),
        }
    }

    /// A trajectory has at least what the log held of it, and the same.
    fn compare(&mut self, one: &Examined) {
        let Some(head) = one.head else { return };
        let sealed = self.evidence.heads.get(&one.trajectory).copied();
        let finding = match sealed.flatten() {
            None => self.log.demand.sealed.then(|| {
                let what = match sealed {
                    Some(_) => "the log holds nothing of it",
                    None => "nothing shows what the log holds of it",
                };
                one.finding(Class::Incomplete, "not_sealed", None, what.to_owned())
            }),
            Some(sealed) if head.seq < sealed.seq => {
                let (has, held) = (head.seq + 1, sealed.seq + 1);
                let what =
                    format!("it has {has} entries, and the log held {held}: its tail was cut");
                Some(one.finding(Class::Tampered, "cut_tail", Some(head), what))
            }
            Some(sealed) if one.at_sealed != Some(sealed.id) => {
                let what = format!("the log holds another entry {} of it", sealed.seq);
                let finding = one.finding(Class::Tampered, "other_than_sealed", None, what);
                Some(Finding { seq: Some(sealed.seq), ..finding })
            }
            Some(sealed) if head.seq > sealed.seq => self.log.demand.sealed.then(|| {
                let what = format!("it is sealed up to entry {}, and has grown since", sealed.seq);
                one.finding(Class::Incomplete, "sealed_in_part", Some(head), what)
            }),
            Some(_) => None,
        };
        self.findings.extend(finding);
    }

    fn refuse(
        &mut self,
        class: Class,
        code: &'static str,
        trajectory: Option<TrajectoryId>,
        what: String,
    ) {
        self.findings.push(Finding { class, code, trajectory, seq: None, entry: None, what });
    }
}
