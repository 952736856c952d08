//! What a trajectory looks like from outside: one summary, and one row for each parked step. Both
//! are functions of the state; stores write them in the append's transaction and understand none
//! of it, so a new kind of entry touches no store.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::amounts::{Amounts, Budget, Span};
use crate::digest::{Digest, EntryId};
use crate::entry::{Entry, Head};
use crate::ids::{Channel, Principal, StepId, Tenant, ToolName, TrajectoryId};
use crate::json::Canon;
use crate::time::UnixMs;

/// Declares an enum that is stored and shown as a word.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The value of a word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words!(
    /// What a trajectory is for.
    TrajectoryKind {
        /// A plan that workers drive.
        Job = "job",
        /// Calls as they come.
        Session = "session",
        /// Keys, policies, limits, freezes.
        Registry = "registry",
    }
);
words!(
    /// How a trajectory stands.
    Status {
        /// Nobody has claimed it yet.
        Queued = "queued",
        /// There is something to do.
        Running = "running",
        /// Everything that could be done is; it waits for a person, a signal or a time.
        Parked = "parked",
        /// Done.
        Completed = "completed",
        /// Failed.
        Failed = "failed",
        /// Cancelled.
        Cancelled = "cancelled",
        /// A registry: it has no end.
        Standing = "standing",
    }
);
words!(
    /// What a parked step waits for.
    ParkedOn {
        /// Approvers.
        Approval = "approval",
        /// A signal or a time.
        Wait = "wait",
        /// Somebody who knows whether it happened.
        Doubt = "doubt",
        /// A person to confirm what a verifier found.
        Confirmation = "confirmation",
        /// A person to decide about an undo that was refused or failed.
        Undo = "undo",
        /// A child trajectory.
        Child = "child",
    }
);

words!(
    /// What somebody is told of.
    Topic {
        /// Approvers are asked.
        Approval = "approval",
        /// Nobody knows whether a call happened.
        Doubt = "doubt",
        /// A person is to confirm what a verifier found.
        Confirmation = "confirmation",
        /// A person is to decide about an undo that was refused or failed.
        Undo = "undo",
        /// An effect has arrived after its call was closed.
        LateEffect = "late_effect",
        /// A tenant has reached a threshold of its budget.
        Budget = "budget",
        /// A Guardian has put a job, a principal or a tenant into quarantine.
        Quarantine = "quarantine",
    }
);

impl Status {
    /// Whether the trajectory has ended.
    pub fn ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A trajectory in one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The newest attempt; 0 when nobody has claimed it.
    pub attempt: u64,
    /// When it began.
    pub begun_at: UnixMs,
    /// When its newest entry was made.
    pub changed_at: UnixMs,
    /// What it is for.
    pub kind: TrajectoryKind,
    /// Who asked for it.
    pub principal: Principal,
    /// Whose turn it is before others: the greater first.
    pub priority: u8,
    /// Whether a worker has something to do, whatever the time.
    pub runnable: bool,
    /// How it stands.
    pub status: Status,
    /// Whose it is; a registry is nobody's.
    pub tenant: Option<Tenant>,
    /// The tools that a worker must have, in order.
    pub tools: Vec<ToolName>,
    /// When a worker has something to do, if not before.
    pub wake_at: Option<UnixMs>,
}

/// A parked step in one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The entry that parked it.
    pub entry: EntryId,
    /// The key of the wait, or the channels of the approval.
    pub key: Option<String>,
    /// For people.
    pub note: String,
    /// What it waits for.
    pub on: ParkedOn,
    /// The step.
    pub step: StepId,
    /// When the waiting ends anyway.
    pub until: Option<UnixMs>,
}

/// Something that somebody is to be told. Stored in the transaction of what it tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The id of the entry that it tells of, or what stands for it: the same however often it is told.
    pub id: Digest,
    /// What it is about.
    pub topic: Topic,
    /// When that was.
    pub at: UnixMs,
    /// An object with what there is to tell.
    pub data: Canon,
}

impl Notice {
    /// That a tenant has used so many percent of a day's budget, or of a standing writ's.
    pub fn of_budget(
        (tenant, span): (&Tenant, Span),
        reached: u8,
        limit: &Budget,
        used: Amounts,
        at: UnixMs,
    ) -> Self {
        #[derive(Serialize)]
        struct Data<'a> {
            #[serde(flatten)]
            span: Span,
            limit: &'a Budget,
            reached: u8,
            tenant: &'a Tenant,
            used: Amounts,
        }
        let of = match span {
            Span::Day(day) => day.to_string(),
            Span::Writ(writ) => writ.to_string(),
        };
        let data = Data { span, limit, reached, tenant, used };
        Self::of_threshold(&format!("{tenant} {of} {reached}"), &data, at)
    }

    fn of_threshold(name: &str, data: &impl Serialize, at: UnixMs) -> Self {
        let id = Digest::of(format!("budget {name}").as_bytes());
        // Names and numbers: there is a canonical form, unless an account has burst.
        let data = Canon::of(data).unwrap_or_else(|_| Canon::null());
        Self { id, topic: Topic::Budget, at, data }
    }

    /// The channels that are asked, of an approval.
    pub fn channels(&self) -> Vec<Channel> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Data {
            channels: Vec<Channel>,
        }
        serde_json::from_str::<Data>(self.data.as_str()).unwrap_or_default().channels
    }

    /// That a trajectory has used so many percent of what its own writ allows.
    pub fn of_own_budget(
        (trajectory, tenant): (TrajectoryId, &Tenant),
        reached: u8,
        limit: &Budget,
        used: Amounts,
        at: UnixMs,
    ) -> Self {
        #[derive(Serialize)]
        struct Data<'a> {
            limit: &'a Budget,
            reached: u8,
            tenant: &'a Tenant,
            trajectory: TrajectoryId,
            used: Amounts,
        }
        let data = Data { limit, reached, tenant, trajectory, used };
        Self::of_threshold(&format!("{trajectory} {reached}"), &data, at)
    }
}

/// What an append changes in the projections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// The trajectory's row.
    pub summary: Summary,
    /// Steps whose row is gone.
    pub unparked: Vec<StepId>,
    /// Rows that are new or changed. A step in both lists is removed first.
    pub parked: Vec<Parked>,
}

/// Under which condition entries may be appended, beside the expected head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// The newest attempt must be this one.
    Attempt(u64),
    /// Whoever is allowed: signals, approvals, cancel requests, resolutions, claims.
    Open,
}

/// Entries that the state machine has let in, ready to be stored. Only `State::admit`
/// makes one, so no store can be handed an illegal chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub(crate) trajectory: TrajectoryId,
    pub(crate) expected: Option<Head>,
    pub(crate) fence: Fence,
    pub(crate) entries: Vec<Entry>,
    pub(crate) head: Head,
    pub(crate) under: Option<(TrajectoryId, Head)>,
    pub(crate) read: Option<BTreeSet<Digest>>,
    pub(crate) projection: Projection,
    pub(crate) notices: Vec<Notice>,
}

impl Admitted {
    /// The trajectory.
    pub fn trajectory(&self) -> TrajectoryId {
        self.trajectory
    }

    /// The head that the store must have; none when the trajectory begins.
    pub fn expected(&self) -> Option<Head> {
        self.expected
    }

    /// The fence.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The entries, in order; at least one. They are stored together or not at all.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The head once they are stored.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Another trajectory, and the head that it must still have.
    pub fn under(&self) -> Option<(TrajectoryId, Head)> {
        self.under
    }

    /// The reports about this trajectory that the effects inbox may hold, by their digests: with another one it
    /// loses. None where it does not matter what the inbox holds.
    pub fn read(&self) -> Option<&BTreeSet<Digest>> {
        self.read.as_ref()
    }

    /// What somebody is to be told once they are stored.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// The projections once they are stored.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }
}
