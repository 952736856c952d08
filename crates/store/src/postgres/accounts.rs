//! Accounts and their slices: read, divided and written under one lock per account.

use std::collections::BTreeMap;

use gesta_core::amounts::Amounts;
use gesta_core::ids::Tenant;
use gesta_core::projection::Notice;
use gesta_core::time::{Day, UnixMs};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::connect::Link;
use super::outbox;
use super::rows::{self, bigint};
use crate::accounts::{Account, AccountRow, Book, Draw, Drawn, Slice};
use crate::error::StoreError;

/// Makes the account, and locks it. What follows must see what the last holder of the lock has
/// written, so it is a statement of its own.
const LOCK: &str = "
    INSERT INTO accounts AS account (tenant, day, reached) VALUES ($1, $2, 0)
    ON CONFLICT (tenant, day) DO UPDATE SET reached = account.reached
    RETURNING reached, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";
const SLICES: &str = "
    SELECT holder, seq, told_ms, drawn, used, idle FROM slices WHERE tenant = $1 AND day = $2";
const KEEP: &str = "
    WITH reached AS (
        UPDATE accounts SET reached = $9::smallint
        WHERE tenant = $1 AND day = $2 AND reached <> $9
    )
    INSERT INTO slices (tenant, day, holder, seq, told_ms, drawn, used, idle)
    VALUES ($1::text, $2::bigint, $3::text, $4::bigint, $5::bigint, $6::bigint[], $7::bigint[], $8::bigint[])
    ON CONFLICT (tenant, day, holder) DO UPDATE
    SET seq = excluded.seq,
        told_ms = excluded.told_ms,
        drawn = excluded.drawn,
        used = excluded.used,
        idle = excluded.idle";
const LIST: &str = "
    SELECT tenant, day, reached, holder, seq, told_ms, drawn, used, idle
    FROM accounts JOIN slices USING (tenant, day)
    WHERE day >= $1 AND ($2::text IS NULL OR tenant = $2)
    ORDER BY tenant, day DESC";

/// Gives a holder its slice of an account.
pub(super) async fn draw(
    link: &Link,
    account: &Account,
    holder: &str,
    ask: &Draw,
) -> Result<Drawn, StoreError> {
    let (tenant, day) = (account.tenant.as_str(), i64::from(account.day.0));
    link.transact(async |client: &Client| {
        let locked = client.query_one(LOCK, &[&tenant, &day]).await?;
        let found = client.query(SLICES, &[&tenant, &day]).await?;
        let planned = (|| {
            let slices = found.iter().map(slice).collect::<Result<BTreeMap<_, _>, _>>()?;
            let mut book = Book { slices, reached: reached(&locked)? };
            let drawn = book.draw(holder, ask, UnixMs(rows::number(&locked, "now_ms")?));
            let slice = book.slices.get(holder).copied().unwrap_or_default();
            let (seq, told_ms) = (bigint(slice.seq)?, bigint(slice.told_at.0)?);
            let now = UnixMs(rows::number(&locked, "now_ms")?);
            let notice = book.notice(account, ask, &drawn, now);
            Ok((drawn, slice, seq, told_ms, i16::from(book.reached), notice))
        })();
        let (drawn, slice, seq, told_ms, reached, notice) = match planned {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        let [have, used, idle] = [slice.drawn, slice.used, slice.idle].map(columns);
        let row: [&(dyn ToSql + Sync); 9] =
            [&tenant, &day, &holder, &seq, &told_ms, &have, &used, &idle, &reached];
        client.execute(KEEP, &row).await?;
        if let Some(Notice { id, topic, at, data }) = notice {
            let at = i64::try_from(at.0).unwrap_or(i64::MAX);
            let row: [&(dyn ToSql + Sync); 4] =
                [&id.as_bytes().as_slice(), &topic.as_str(), &at, &data.as_bytes()];
            client.execute(outbox::PUT, &row).await?;
        }
        Ok(Ok(drawn))
    })
    .await?
}

/// The accounts of these days, by tenant, the newest first.
pub(super) async fn list(
    link: &Link,
    tenant: Option<&Tenant>,
    since: Day,
) -> Result<Vec<AccountRow>, StoreError> {
    let tenant = tenant.map(Tenant::as_str);
    let found = link.query(LIST, &[&i64::from(since.0), &tenant]).await?;
    let mut books: Vec<(Account, Book)> = Vec::new();
    for row in &found {
        let day = u32::try_from(rows::number(row, "day")?).map_err(|_| rows::damaged("day"))?;
        let account = Account { tenant: rows::name(row, "tenant")?, day: Day(day) };
        if books.last().is_none_or(|(last, _)| *last != account) {
            books.push((account, Book { reached: reached(row)?, ..Book::default() }));
        }
        if let Some((_, book)) = books.last_mut() {
            book.slices.extend([slice(row)?]);
        }
    }
    Ok(books.into_iter().map(|(account, book)| book.row(account)).collect())
}

fn reached(row: &Row) -> Result<u8, StoreError> {
    u8::try_from(rows::get::<i16>(row, "reached")?).map_err(|_| rows::damaged("reached"))
}

fn slice(row: &Row) -> Result<(String, Slice), StoreError> {
    let slice = Slice {
        seq: rows::number(row, "seq")?,
        drawn: amounts(row, "drawn")?,
        used: amounts(row, "used")?,
        idle: amounts(row, "idle")?,
        told_at: UnixMs(rows::number(row, "told_ms")?),
    };
    Ok((rows::get(row, "holder")?, slice))
}

fn amounts(row: &Row, column: &str) -> Result<Amounts, StoreError> {
    let values: Vec<i64> = rows::get(row, column)?;
    let values: Result<Vec<u64>, _> = values.into_iter().map(u64::try_from).collect();
    let values = values.map_err(|_| rows::damaged(column))?;
    values.try_into().map(Amounts::of).map_err(|_| rows::damaged(column))
}

/// Amounts as the database holds them.
fn columns(amounts: Amounts) -> Vec<i64> {
    amounts.values().map(|amount| i64::try_from(amount).unwrap_or(i64::MAX)).to_vec()
}
