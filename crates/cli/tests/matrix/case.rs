//! What the matrix is made of: step kinds, recovery classes, cut points, and how a worker is cut off.

/// What kind of step is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A call by HTTP, whose reply is large enough to be a blob.
    Http,
    /// A call of a program.
    Process,
    /// The items of a fan-out, one after the other, so that one append settles the first and starts
    /// the second.
    Each,
    /// A computation.
    Set,
    /// A wait for a time.
    Wait,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "call by HTTP",
            Self::Process => "call of a program",
            Self::Each => "fan-out",
            Self::Set => "set",
            Self::Wait => "wait",
        }
    }

    /// How many effects its job has when all is well.
    pub(crate) fn items(self) -> usize {
        match self {
            Self::Http | Self::Process => 1,
            Self::Each => 2,
            Self::Set | Self::Wait => 0,
        }
    }

    pub(crate) fn job(self) -> &'static str {
        match self {
            Self::Http | Self::Process => {
                "job: one\nsteps:\n  - { id: a, tool: act, args: { item: 1 } }\nanswer: ${steps.a.result.n}\n"
            }
            Self::Each => {
                "job: two\nparallel: 1\nsteps:\n  - { id: a, each: '${[1, 2]}', tool: act, args: { item: '${item}' } }\nanswer: ${steps.a.result[1].n}\n"
            }
            Self::Set => {
                "job: set\nsteps:\n  - { id: a, set: '${1 + 1}' }\nanswer: ${steps.a.result}\n"
            }
            Self::Wait => "job: wait\nsteps:\n  - { id: a, wait: { for: 100ms } }\nanswer: 1\n",
        }
    }
}

/// How a tool may be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Safe,
    Keyed,
    KeyedConcurrent,
    Probe,
    Never,
}

pub(crate) const CLASSES: [Class; 5] =
    [Class::Safe, Class::Keyed, Class::KeyedConcurrent, Class::Probe, Class::Never];

impl Class {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Keyed => "keyed",
            Self::KeyedConcurrent => "keyed_concurrent",
            Self::Probe => "probe",
            Self::Never => "never",
        }
    }

    /// Whether the other side deduplicates by key.
    pub(crate) fn deduplicates(self) -> bool {
        matches!(self, Self::Keyed | Self::KeyedConcurrent)
    }
}

/// Where a worker is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cut {
    /// A point of the pipeline, and the how-manieth time that it is reached.
    Point(usize, &'static str, u32),
    /// The tool was reached, and does nothing.
    Reached,
    /// The tool was reached, and acts while the next worker is there already.
    Landing,
    /// The tool has acted, and has not replied.
    Acted,
}

/// The points of a call, in its order.
pub(crate) const POINTS: [Cut; 10] = [
    Cut::Point(0, "before_claim", 1),
    Cut::Point(1, "after_claim", 1),
    Cut::Point(2, "before_start", 1),
    Cut::Point(3, "after_start", 1),
    Cut::Point(4, "after_gate", 1),
    Cut::Point(5, "after_dispatch", 1),
    Cut::Point(6, "after_examine", 1),
    Cut::Point(7, "before_settle", 1),
    Cut::Point(8, "after_settle", 1),
    Cut::Point(9, "before_settle", 2),
];

/// The points of a job without calls.
const QUIET: [Cut; 6] = [
    Cut::Point(0, "before_claim", 1),
    Cut::Point(1, "after_claim", 1),
    Cut::Point(2, "before_append", 1),
    Cut::Point(3, "after_append", 1),
    Cut::Point(4, "before_append", 2),
    Cut::Point(5, "after_append", 2),
];

impl Cut {
    /// What the worker is told, and in which words the table tells it.
    pub(crate) fn text(self) -> String {
        let (point, times) = match self {
            Self::Point(_, point, times) => (point, times),
            Self::Reached => ("reached, not acted", 1),
            Self::Landing => ("reached, acts later", 1),
            Self::Acted => ("acted, not replied", 1),
        };
        if times == 1 { point.to_owned() } else { format!("{point}:{times}") }
    }

    /// Whether the worker cuts itself off; else the test does when the tool says that it was reached.
    pub(crate) fn is_point(self) -> bool {
        matches!(self, Self::Point(..))
    }

    /// Where it stands in the path of a call.
    pub(crate) fn order(self) -> usize {
        match self {
            Self::Point(at, ..) if at <= 4 => at * 10,
            Self::Reached => 41,
            Self::Landing => 42,
            Self::Acted => 43,
            Self::Point(at, ..) => at * 10,
        }
    }

    /// Whether the job may have ended when the worker is cut off.
    pub(crate) fn may_end(self) -> bool {
        matches!(self, Self::Point(_, "after_settle" | "after_append", _))
    }

    /// Whether nothing was started yet: until then the tool's class has no part in what happens.
    fn is_early(self) -> bool {
        matches!(self, Self::Point(0..=2, ..))
    }
}

/// How a worker is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// SIGKILL.
    Kill,
    /// SIGSTOP until its lease has ended and another worker has done what it can, then SIGCONT.
    Freeze,
    /// Not at all: it is the tool that does not answer before its deadline.
    Spare,
}

/// Where the chains are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Sqlite,
    Postgres,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) mode: Mode,
    pub(crate) cut: Cut,
    pub(crate) kind: Kind,
    pub(crate) class: Class,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let Self { mode, cut, kind, class } = self;
        format!("{mode:?}, {}, {}, {}", cut.text(), kind.name(), class.name())
    }
}

/// Every case. Left out is what is another case by construction:
///
/// - before anything was started, the class has no part in it: every class by HTTP, one otherwise;
/// - a program cannot act after its worker was killed, for its supervisor ends it: no `Landing`;
/// - only a fan-out settles twice;
/// - where no worker is cut off there are no points, and what lands later is what does not answer;
/// - the items of a fan-out differ from other calls in how they are begun and put together, which
///   the class has no part in: the strictest class, and the one that sends again;
/// - `set` and `wait` have no tool, so no class.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [Mode::Kill, Mode::Freeze, Mode::Spare] {
        for kind in [Kind::Http, Kind::Process, Kind::Each] {
            for cut in POINTS.into_iter().chain([Cut::Reached, Cut::Landing, Cut::Acted]) {
                for class in CLASSES {
                    let case = Case { mode, cut, kind, class };
                    if makes_sense(&case) {
                        cases.push(case);
                    }
                }
            }
        }
        if mode == Mode::Spare {
            continue;
        }
        for (kind, cuts) in [(Kind::Set, QUIET.iter().take(4)), (Kind::Wait, QUIET.iter().take(6))]
        {
            cases.extend(cuts.map(|cut| Case { mode, cut: *cut, kind, class: Class::Never }));
        }
    }
    cases
}

fn makes_sense(case: &Case) -> bool {
    let Case { mode, cut, kind, class } = *case;
    if mode == Mode::Spare && !matches!(cut, Cut::Reached | Cut::Acted) {
        return false;
    }
    let last = cut == Cut::Point(9, "before_settle", 2);
    match kind {
        Kind::Http => !last,
        Kind::Process => cut != Cut::Landing && !last && (!cut.is_early() || class == Class::Never),
        Kind::Each => {
            let strict = class == Class::Never;
            let one = if cut.is_early() { strict } else { strict || class == Class::Keyed };
            one && cut != Cut::Landing
        }
        Kind::Set | Kind::Wait => true,
    }
}
