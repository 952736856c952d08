//! What a verification found, for programs (JSON) and for people (text). Deterministic: the same
//! chains give the same report, however many threads examined them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use gesta_core::digest::Digest;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::keys::KeyId;
use gesta_core::time::UnixMs;
use gesta_core::verification::{Class, Finding};
use serde::Serialize;

use crate::moment;

/// The answer, for one trajectory or for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything was examined and holds.
    Sound,
    /// The worst that was found.
    #[serde(untagged)]
    Bad(Class),
}

impl Verdict {
    /// The worst of some classes.
    pub fn worst(classes: impl IntoIterator<Item = Class>) -> Self {
        classes.into_iter().min_by_key(|class| rank(*class)).map_or(Self::Sound, Self::Bad)
    }

    /// The exit code of a program that reports it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Sound => 0,
            Self::Bad(class) => class.exit_code(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound => f.pad("sound"),
            Self::Bad(class) => f.pad(&class.to_string()),
        }
    }
}

/// From the worst on. What cannot be read comes before what is incomplete, which may only follow
/// from it.
const fn rank(class: Class) -> u8 {
    match class {
        Class::Tampered => 0,
        Class::Untrusted => 1,
        Class::Unreadable => 2,
        Class::Incomplete => 3,
    }
}

/// One trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// How many entries hold, from the first on.
    pub entries: u64,
    /// How many signatures were checked.
    pub signatures: u64,
    /// The last entry that holds.
    pub head: Option<Head>,
    /// Up to which entry the transparency log held it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<u64>,
    /// What it comes to.
    pub verdict: Verdict,
}

/// Something that an entry rests on and that was not there to be checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NotChecked {
    /// The trajectory that rests on it.
    pub trajectory: Option<TrajectoryId>,
    /// The entry that names it.
    pub seq: Option<u64>,
    /// What it is.
    pub what: &'static str,
    /// The trajectory in which it would be.
    pub of: Option<TrajectoryId>,
    /// The blob that it would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Digest>,
}

impl NotChecked {
    /// A document that was in force and is not here.
    pub(crate) fn document(digest: Digest) -> Self {
        let what = "policy, catalogue or configuration";
        Self { trajectory: None, seq: None, what, of: None, blob: Some(digest) }
    }

    /// Whether the report is incomplete without it. A replay needs the documents that were in force, and
    /// nothing that is verified does.
    fn is_needed(&self) -> bool {
        self.blob.is_none()
    }
}

impl fmt::Display for NotChecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        if let Some(trajectory) = self.trajectory {
            write!(f, " of {trajectory}")?;
        }
        if let Some(seq) = self.seq {
            write!(f, " at entry {seq}")?;
        }
        match (self.of, self.blob) {
            (Some(of), _) => write!(f, ": {of} is not here, or not sound so far"),
            (None, Some(blob)) => write!(f, ": the blob `{blob}` is not here"),
            (None, None) => Ok(()),
        }
    }
}

/// The checkpoint that came along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// Which log.
    pub origin: String,
    /// How many leaves it had.
    pub size: u64,
    /// When it was sealed, as the sealer tells it.
    pub at: UnixMs,
    /// Who sealed it, of those who are trusted to.
    pub sealer: Option<KeyId>,
    /// Who has cosigned it, of those who are trusted to.
    pub witnesses: Vec<KeyId>,
}

/// What became of a sensitive value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It is here, and is what was committed to.
    Disclosed,
    /// It is not here.
    Withheld,
    /// Its data key was destroyed: it is nowhere.
    Erased,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disclosed => "disclosed",
            Self::Withheld => "withheld",
            Self::Erased => "erased",
        })
    }
}

/// A sensitive value that a trajectory commits to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SensitiveValue {
    /// The trajectory.
    pub trajectory: TrajectoryId,
    /// The first entry that commits to it.
    pub seq: u64,
    /// Where in that entry.
    pub pointer: String,
    /// The commitment.
    pub commit: Digest,
    /// What became of it.
    pub fate: Fate,
}

/// How much was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Trajectories.
    pub trajectories: u64,
    /// Entries that hold.
    pub entries: u64,
    /// Bytes of those entries.
    pub bytes: u64,
    /// Signatures checked.
    pub signatures: u64,
    /// References to blobs checked.
    pub blobs: u64,
    /// References to other trajectories checked.
    pub links: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What it all comes to.
    pub verdict: Verdict,
    /// How much was examined.
    pub counts: Counts,
    /// What is wrong, the worst first, then by trajectory and entry.
    pub findings: Vec<Finding>,
    /// What could not be checked because it is not here.
    pub not_checked: Vec<NotChecked>,
    /// The checkpoint of a transparency log, if one came along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogLine>,
    /// Each trajectory, by id.
    pub trajectories: Vec<Line>,
    /// The sensitive values that entries commit to, and what became of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sensitive: Vec<SensitiveValue>,
}

impl Report {
    /// Puts a report in order and comes to its verdict. With `partial`, what could not be checked
    /// does not stand against it.
    pub(crate) fn new(
        mut trajectories: Vec<Line>,
        mut findings: Vec<Finding>,
        mut not_checked: Vec<NotChecked>,
        counts: Counts,
        partial: bool,
    ) -> Self {
        if counts.entries == 0 && findings.is_empty() {
            findings.push(Finding {
                class: Class::Incomplete,
                code: "nothing",
                trajectory: None,
                seq: None,
                entry: None,
                what: "there is nothing to examine".to_owned(),
            });
        }
        findings.sort_by(|a, b| order(a).cmp(&order(b)));
        not_checked.sort();
        not_checked.dedup();
        trajectories.sort_by_key(|line| line.trajectory);
        let lacking = not_checked
            .iter()
            .filter(|lacking| !partial && lacking.is_needed())
            .map(|lacking| (lacking.trajectory, Class::Incomplete));
        let faults = findings.iter().map(|finding| (finding.trajectory, finding.class));
        let mut classes: BTreeMap<Option<TrajectoryId>, BTreeSet<Class>> = BTreeMap::new();
        for (trajectory, class) in faults.chain(lacking) {
            classes.entry(trajectory).or_default().insert(class);
        }
        let of = |trajectory| classes.get(&trajectory).into_iter().flatten().copied();
        for line in &mut trajectories {
            line.verdict = Verdict::worst(of(Some(line.trajectory)));
        }
        let verdict = Verdict::worst(classes.values().flatten().copied());
        let sensitive = Vec::new();
        Self { verdict, counts, findings, not_checked, log: None, trajectories, sensitive }
    }

    /// With what is known of the log.
    pub(crate) fn with_log(self, log: Option<LogLine>) -> Self {
        Self { log, ..self }
    }

    /// With something more that speaks against it.
    #[must_use]
    pub fn and(mut self, finding: Finding) -> Self {
        let worst = match self.verdict {
            Verdict::Sound => None,
            Verdict::Bad(class) => Some(class),
        };
        self.verdict = Verdict::worst(worst.into_iter().chain([finding.class]));
        self.findings.push(finding);
        self.findings.sort_by(|a, b| order(a).cmp(&order(b)));
        self
    }

    /// The report of something that could not even be opened.
    pub fn of_finding(finding: Finding) -> Self {
        Self::new(Vec::new(), vec![finding], Vec::new(), Counts::default(), false)
    }

    /// The worst finding, and of those the first.
    pub fn first(&self) -> Option<&Finding> {
        self.findings.first()
    }

    /// The exit code of a program that reports it.
    pub const fn exit_code(&self) -> u8 {
        self.verdict.exit_code()
    }
}

fn order(finding: &Finding) -> (u8, Option<TrajectoryId>, Option<u64>, &'static str, &str) {
    (rank(finding.class), finding.trajectory, finding.seq, finding.code, &finding.what)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { trajectories, entries, signatures, blobs, links, bytes: _ } = self.counts;
        writeln!(
            f,
            "{}: {trajectories} trajectories, {entries} entries, {signatures} signatures, \
             {blobs} references to blobs, {links} links",
            self.verdict
        )?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for lacking in &self.not_checked {
            writeln!(f, "not checked: {lacking}")?;
        }
        if let Some(LogLine { origin, size, at, witnesses, .. }) = &self.log {
            let witnesses = witnesses.len();
            let at = moment::utc(*at);
            writeln!(f, "log {origin}: {size} leaves at {at}, {witnesses} witnesses")?;
        }
        for SensitiveValue { trajectory, seq, pointer, fate, .. } in &self.sensitive {
            writeln!(f, "sensitive: {trajectory} entry {seq} at {pointer}: {fate}")?;
        }
        for line in &self.trajectories {
            let Line { trajectory, entries, signatures, head, sealed, verdict } = line;
            write!(f, "{trajectory}  {verdict:<10}  {entries} entries, {signatures} signatures")?;
            if let Some(head) = head {
                write!(f, ", head {}", head.id)?;
            }
            match (sealed, head) {
                (Some(sealed), Some(head)) if *sealed == head.seq => writeln!(f, ", sealed")?,
                (Some(sealed), _) => writeln!(f, ", sealed up to entry {sealed}")?,
                (None, _) => writeln!(f)?,
            }
        }
        Ok(())
    }
}
