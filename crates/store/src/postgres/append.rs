//! The append statement: many appends in one round trip and one commit, each winning or losing
//! alone.

use std::collections::{BTreeMap, BTreeSet};

use gesta_core::digest::EntryId;
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::{Admitted, Fence, Parked};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connect::Link;
use super::fault::{Certainty, Failure};
use super::rows::{self, bigint};
use crate::claims;
use crate::error::{AppendError, StoreError};

const APPEND: &str = include_str!("sql/append.sql");
const MOVE: &str = include_str!("sql/move.sql");
const ALONE: &str = include_str!("sql/alone.sql");
const LOST: &str = include_str!("sql/lost.sql");

type Answer = Result<Head, AppendError>;

/// Appends a batch, sorted by trajectory and with each trajectory once. Answers in the same order.
pub(super) async fn append(link: &Link, batch: &[&Admitted]) -> Vec<Answer> {
    match send(link, batch).await {
        Ok(answers) => answers,
        Err(failure) if batch.len() > 1 && blames_a_row(&failure) => {
            let mut answers = Vec::with_capacity(batch.len());
            for &admitted in batch {
                answers.push(append_one(link, admitted).await);
            }
            answers
        }
        Err(failure) => batch.iter().map(|_| Err(failure.clone().into())).collect(),
    }
}

/// Appends one.
pub(super) async fn append_one(link: &Link, admitted: &Admitted) -> Answer {
    send(link, &[admitted]).await.map_or_else(|failure| Err(failure.into()), only)
}

/// Whether the statement failed for what one of its rows holds, so that the others go without it.
fn blames_a_row(failure: &Failure) -> bool {
    failure.certainty == Certainty::Absent
        && matches!(failure.error, StoreError::Refused { .. } | StoreError::Damaged { .. })
}

fn only(answers: Vec<Answer>) -> Answer {
    answers.into_iter().next().unwrap_or(Err(AppendError::Unknown(StoreError::Closed)))
}

async fn send(link: &Link, batch: &[&Admitted]) -> Result<Vec<Answer>, Failure> {
    let columns = Columns::of(batch).map_err(Failure::not_sent)?;
    // Commit point: once this returns, the winners are durable.
    let winners = if columns.only_move() {
        let alone = match columns.alone() {
            Some(alone) => link.query(ALONE, &alone).await?,
            None => Vec::new(),
        };
        if alone.is_empty() { link.query(MOVE, &columns.moving()).await? } else { alone }
    } else {
        link.query(APPEND, &columns.params()).await?
    };
    let won = winners.iter().map(rows::trajectory).collect::<Result<BTreeSet<_>, _>>();
    let won = won.map_err(|error| Failure { error, certainty: Certainty::Unknown })?;

    let losers: Vec<_> =
        batch.iter().copied().filter(|admitted| !won.contains(&admitted.trajectory())).collect();
    let mut lost = judge(link, &losers).await;
    let answer =
        |admitted: &&Admitted| lost.remove(&admitted.trajectory()).unwrap_or(Ok(admitted.head()));
    Ok(batch.iter().map(answer).collect())
}

/// Why appends lost. Entries that are there already under the same ids were not lost at all: this
/// is how a caller who never got an answer finds out, however much has followed since. For the same
/// reason nothing is certain as long as the look fails.
async fn judge(link: &Link, losers: &[&Admitted]) -> BTreeMap<TrajectoryId, Answer> {
    if losers.is_empty() {
        return BTreeMap::new();
    }
    match look(link, losers).await {
        Ok(mut found) => losers
            .iter()
            .map(|admitted| {
                let found = found.remove(&admitted.trajectory()).unwrap_or_default();
                (admitted.trajectory(), found.answer(admitted))
            })
            .collect(),
        Err(error) => losers
            .iter()
            .map(|admitted| (admitted.trajectory(), Err(AppendError::Unknown(error.clone()))))
            .collect(),
    }
}

async fn look(
    link: &Link,
    losers: &[&Admitted],
) -> Result<BTreeMap<TrajectoryId, Found>, StoreError> {
    let (mut trajectories, mut seqs) = (Vec::new(), Vec::new());
    let mut read = Reports::default();
    for admitted in losers {
        read.push(admitted);
        for entry in admitted.entries() {
            trajectories.push(bytes(admitted.trajectory()));
            seqs.push(bigint(entry.seq())?);
        }
    }
    let mut found: BTreeMap<TrajectoryId, Found> = BTreeMap::new();
    for row in link.query(LOST, &[&trajectories, &seqs, &read.trajectory, &read.digest]).await? {
        found.entry(rows::trajectory(&row)?).or_default().take(&row)?;
    }
    Ok(found)
}

/// What is stored where an append lost.
#[derive(Default)]
struct Found {
    head: Option<Head>,
    attempt: u64,
    /// The bundle that its entries are in, if they are not here.
    bundle: Option<String>,
    ids: BTreeMap<u64, EntryId>,
    /// Whether the inbox holds a report that was not read.
    unread: bool,
}

impl Found {
    fn take(&mut self, row: &Row) -> Result<(), StoreError> {
        if rows::get::<Option<i64>>(row, "head_seq")?.is_some() {
            self.head = Some(rows::head(row)?);
            self.attempt = rows::number(row, "attempt")?;
            self.bundle = rows::get(row, "bundle")?;
        }
        self.unread = rows::get(row, "unread")?;
        if rows::get::<Option<&[u8]>>(row, "id")?.is_some() {
            self.ids.insert(rows::number(row, "seq")?, rows::entry_id(row, "id")?);
        }
        Ok(())
    }

    fn answer(&self, admitted: &Admitted) -> Answer {
        if admitted.entries().iter().all(|entry| self.ids.get(&entry.seq()) == Some(&entry.id())) {
            return Ok(admitted.head());
        }
        if let (Some(head), Some(bundle)) = (self.head, &self.bundle)
            && let Some(answer) = AppendError::to_archived(admitted, head, bundle)
        {
            return answer;
        }
        Err(match admitted.fence() {
            Fence::Attempt(mine) if self.attempt > mine => {
                AppendError::FenceLost { attempt: self.attempt }
            }
            _ => AppendError::lost(admitted, self.head, self.unread && admitted.read().is_some()),
        })
    }
}

/// The parameters of the statement: one array per column.
#[derive(Default)]
struct Columns<'a> {
    trajectory: Vec<Vec<u8>>,
    expected_seq: Vec<Option<i64>>,
    expected_id: Vec<Option<Vec<u8>>>,
    fence: Vec<Option<i64>>,
    head_seq: Vec<i64>,
    head_id: Vec<Vec<u8>>,
    attempt: Vec<i64>,
    kind: Vec<&'a str>,
    status: Vec<&'a str>,
    tenant: Vec<Option<&'a str>>,
    principal: Vec<&'a str>,
    runnable: Vec<bool>,
    wake_at: Vec<Option<i64>>,
    begun_at: Vec<i64>,
    changed_at: Vec<i64>,
    ended: Vec<bool>,
    rank: Vec<i16>,
    tools: Vec<String>,
    under: Vec<Option<Vec<u8>>>,
    under_seq: Vec<Option<i64>>,
    under_id: Vec<Option<Vec<u8>>>,
    reads: Vec<bool>,
    read: Reports<'a>,
    entry_trajectory: Vec<Vec<u8>>,
    entry_seq: Vec<i64>,
    entry_id: Vec<Vec<u8>>,
    entry_bytes: Vec<&'a [u8]>,
    unparked_trajectory: Vec<Vec<u8>>,
    unparked_step: Vec<&'a str>,
    parked_trajectory: Vec<Vec<u8>>,
    parked: ParkedColumns<'a>,
    notices: NoticeColumns<'a>,
}

/// Reports that were read: one array per column.
#[derive(Default)]
struct Reports<'a> {
    trajectory: Vec<Vec<u8>>,
    digest: Vec<&'a [u8]>,
}

impl<'a> Reports<'a> {
    fn push(&mut self, admitted: &'a Admitted) {
        for report in admitted.read().into_iter().flatten() {
            self.trajectory.push(bytes(admitted.trajectory()));
            self.digest.push(report.as_bytes());
        }
    }
}

/// Notices: one array per column.
#[derive(Default)]
struct NoticeColumns<'a> {
    trajectory: Vec<Vec<u8>>,
    id: Vec<&'a [u8]>,
    topic: Vec<&'a str>,
    at: Vec<i64>,
    data: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn of(batch: &[&'a Admitted]) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for admitted in batch {
            columns.push_head(admitted)?;
            columns.push_entries(admitted)?;
            columns.push_parked(admitted)?;
            for notice in admitted.notices() {
                columns.notices.trajectory.push(bytes(admitted.trajectory()));
                columns.notices.id.push(notice.id.as_bytes());
                columns.notices.topic.push(notice.topic.as_str());
                columns.notices.at.push(bigint(notice.at.0)?);
                columns.notices.data.push(notice.data.as_bytes());
            }
        }
        Ok(columns)
    }

    fn push_head(&mut self, admitted: &'a Admitted) -> Result<(), StoreError> {
        let (expected, head) = (admitted.expected(), admitted.head());
        let summary = &admitted.projection().summary;
        self.trajectory.push(bytes(admitted.trajectory()));
        self.expected_seq.push(expected.map(|head| bigint(head.seq)).transpose()?);
        self.expected_id.push(expected.map(|head| head.id.as_bytes().to_vec()));
        self.fence.push(match admitted.fence() {
            Fence::Attempt(attempt) => Some(bigint(attempt)?),
            Fence::Open => None,
        });
        self.head_seq.push(bigint(head.seq)?);
        self.head_id.push(head.id.as_bytes().to_vec());
        self.attempt.push(bigint(summary.attempt)?);
        self.kind.push(summary.kind.as_str());
        self.status.push(summary.status.as_str());
        self.tenant.push(summary.tenant.as_ref().map(|tenant| tenant.as_str()));
        self.principal.push(summary.principal.as_str());
        self.runnable.push(summary.runnable);
        self.wake_at.push(summary.wake_at.map(|at| bigint(at.0)).transpose()?);
        self.begun_at.push(bigint(summary.begun_at.0)?);
        self.changed_at.push(bigint(summary.changed_at.0)?);
        self.ended.push(summary.status.ended());
        self.rank.push(claims::rank(summary.priority));
        self.tools.push(claims::joined(&summary.tools));
        let under = admitted.under();
        self.under.push(under.map(|(other, _)| bytes(other)));
        self.under_seq.push(under.map(|(_, head)| bigint(head.seq)).transpose()?);
        self.under_id.push(under.map(|(_, head)| head.id.as_bytes().to_vec()));
        self.reads.push(admitted.read().is_some());
        self.read.push(admitted);
        Ok(())
    }

    fn push_entries(&mut self, admitted: &'a Admitted) -> Result<(), StoreError> {
        for entry in admitted.entries() {
            self.entry_trajectory.push(bytes(admitted.trajectory()));
            self.entry_seq.push(bigint(entry.seq())?);
            self.entry_id.push(entry.id().as_bytes().to_vec());
            self.entry_bytes.push(entry.bytes());
        }
        Ok(())
    }

    fn push_parked(&mut self, admitted: &'a Admitted) -> Result<(), StoreError> {
        let projection = admitted.projection();
        for step in &projection.unparked {
            // One statement cannot delete a row and write it: what is written again is not deleted.
            if projection.parked.iter().all(|parked| parked.step != *step) {
                self.unparked_trajectory.push(bytes(admitted.trajectory()));
                self.unparked_step.push(step.as_str());
            }
        }
        for parked in &projection.parked {
            self.parked_trajectory.push(bytes(admitted.trajectory()));
            self.parked.push(parked)?;
        }
        Ok(())
    }

    /// Whether nothing begins, parks, is taken up or is told, and nothing depends on the inbox.
    fn only_move(&self) -> bool {
        self.expected_seq.iter().all(Option::is_some)
            && !self.reads.contains(&true)
            && self.unparked_step.is_empty()
            && self.parked_trajectory.is_empty()
            && self.notices.id.is_empty()
    }

    /// The parameters of the statement by which whoever drives a trajectory moves it, if there is but one and it
    /// goes on.
    fn alone(&self) -> Option<[&(dyn ToSql + Sync); 19]> {
        let ([trajectory], [Some(_)], [false]) =
            (self.trajectory.as_slice(), self.fence.as_slice(), self.ended.as_slice())
        else {
            return None;
        };
        Some([
            trajectory,
            self.expected_seq.first()?,
            self.expected_id.first()?,
            self.fence.first()?,
            self.head_seq.first()?,
            self.head_id.first()?,
            self.attempt.first()?,
            self.status.first()?,
            self.runnable.first()?,
            self.wake_at.first()?,
            self.changed_at.first()?,
            self.rank.first()?,
            self.tools.first()?,
            self.under.first()?,
            self.under_seq.first()?,
            self.under_id.first()?,
            &self.entry_seq,
            &self.entry_id,
            &self.entry_bytes,
        ])
    }

    /// The parameters of the statement that only moves.
    fn moving(&self) -> [&(dyn ToSql + Sync); 21] {
        [
            &self.trajectory,
            &self.expected_seq,
            &self.expected_id,
            &self.fence,
            &self.head_seq,
            &self.head_id,
            &self.attempt,
            &self.status,
            &self.runnable,
            &self.wake_at,
            &self.changed_at,
            &self.ended,
            &self.rank,
            &self.tools,
            &self.under,
            &self.under_seq,
            &self.under_id,
            &self.entry_trajectory,
            &self.entry_seq,
            &self.entry_id,
            &self.entry_bytes,
        ]
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &self.trajectory,
            &self.expected_seq,
            &self.expected_id,
            &self.fence,
            &self.head_seq,
            &self.head_id,
            &self.attempt,
            &self.kind,
            &self.status,
            &self.tenant,
            &self.principal,
            &self.runnable,
            &self.wake_at,
            &self.begun_at,
            &self.changed_at,
            &self.ended,
            &self.entry_trajectory,
            &self.entry_seq,
            &self.entry_id,
            &self.entry_bytes,
            &self.unparked_trajectory,
            &self.unparked_step,
            &self.parked_trajectory,
        ];
        params.extend(self.parked.params());
        params.extend([&self.rank as &(dyn ToSql + Sync), &self.tools]);
        params.extend([&self.under as &(dyn ToSql + Sync), &self.under_seq, &self.under_id]);
        let NoticeColumns { trajectory, id, topic, at, data } = &self.notices;
        params.extend([trajectory as &(dyn ToSql + Sync), id, topic, at, data]);
        params.extend([
            &self.reads as &(dyn ToSql + Sync),
            &self.read.trajectory,
            &self.read.digest,
        ]);
        params
    }
}

/// Parked rows, without their trajectory: one array per column.
#[derive(Default)]
pub(super) struct ParkedColumns<'a> {
    step: Vec<&'a str>,
    on_what: Vec<&'a str>,
    entry: Vec<Vec<u8>>,
    key: Vec<Option<&'a str>>,
    until_ms: Vec<Option<i64>>,
    note: Vec<&'a [u8]>,
}

impl<'a> ParkedColumns<'a> {
    pub(super) fn of(rows: &'a [Parked]) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for parked in rows {
            columns.push(parked)?;
        }
        Ok(columns)
    }

    fn push(&mut self, parked: &'a Parked) -> Result<(), StoreError> {
        self.step.push(parked.step.as_str());
        self.on_what.push(parked.on.as_str());
        self.entry.push(parked.entry.as_bytes().to_vec());
        self.key.push(parked.key.as_deref());
        self.until_ms.push(parked.until.map(|at| bigint(at.0)).transpose()?);
        self.note.push(parked.note.as_bytes());
        Ok(())
    }

    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.step, &self.on_what, &self.entry, &self.key, &self.until_ms, &self.note]
    }
}

fn bytes(trajectory: TrajectoryId) -> Vec<u8> {
    trajectory.as_bytes().to_vec()
}
