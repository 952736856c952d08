//! Accounts and their slices: read, divided and written under one lock per account.

use std::collections::BTreeMap;

use gesta_core::amounts::{Amounts, Span};
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
    INSERT INTO accounts AS account (tenant, day, writ, reached, drawn, used)
    VALUES ($1, $2, $3, 0, '{0, 0, 0, 0}', '{0, 0, 0, 0}')
    ON CONFLICT (tenant, day, writ) DO UPDATE SET reached = account.reached
    RETURNING reached, drawn, used,
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";
/// The holder's own slice, and those of others that hold something.
const SLICES: &str = "
    SELECT holder, seq, told_ms, drawn, used, idle FROM slices
    WHERE tenant = $1 AND day = $2 AND writ = $3 AND holder = $4
    UNION ALL
    SELECT holder, seq, told_ms, drawn, used, idle FROM slices
    WHERE tenant = $1 AND day = $2 AND writ = $3 AND holder <> $4 AND drawn <> used";
const KEEP: &str = "
    WITH kept AS (
        UPDATE accounts SET reached = $10::smallint, drawn = $11::bigint[], used = $12::bigint[]
        WHERE tenant = $1 AND day = $2 AND writ = $3
    )
    INSERT INTO slices (tenant, day, writ, holder, seq, told_ms, drawn, used, idle)
    VALUES ($1::text, $2::bigint, $3::text, $4::text, $5::bigint, $6::bigint, $7::bigint[],
        $8::bigint[], $9::bigint[])
    ON CONFLICT (tenant, day, writ, holder) DO UPDATE
    SET seq = excluded.seq,
        told_ms = excluded.told_ms,
        drawn = excluded.drawn,
        used = excluded.used,
        idle = excluded.idle";
const LIST: &str = "
    SELECT tenant, day, reached, drawn, used FROM accounts
    WHERE writ = '' AND day >= $1 AND ($2::text IS NULL OR tenant = $2)
    ORDER BY tenant, day DESC";
const ONE: &str = "
    SELECT reached, drawn, used FROM accounts WHERE tenant = $1 AND day = $2 AND writ = $3";

/// Gives a holder its slice of an account.
pub(super) async fn draw(
    link: &Link,
    account: &Account,
    holder: &str,
    ask: &Draw,
) -> Result<Drawn, StoreError> {
    let (tenant, (day, writ)) = (account.tenant.as_str(), account.columns());
    let (day, writ) = (i64::from(day), writ.as_str());
    link.transact(async |client: &Client| {
        let locked = client.query_one(LOCK, &[&tenant, &day, &writ]).await?;
        let found = client.query(SLICES, &[&tenant, &day, &writ, &holder]).await?;
        let planned = (|| {
            let mut book = book(&locked)?;
            book.slices = found.iter().map(slice).collect::<Result<BTreeMap<_, _>, _>>()?;
            let now = UnixMs(rows::number(&locked, "now_ms")?);
            let drawn = book.draw(holder, ask, now);
            let slice = book.slices.get(holder).copied().unwrap_or_default();
            let (seq, told_ms) = (bigint(slice.seq)?, bigint(slice.told_at.0)?);
            let notice = book.notice(account, ask, &drawn, now);
            Ok((drawn, slice, seq, told_ms, book, notice))
        })();
        let (drawn, slice, seq, told_ms, book, notice) = match planned {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        let [have, used, idle] = [slice.drawn, slice.used, slice.idle].map(columns);
        let [all, all_used] = [book.drawn, book.used].map(columns);
        let reached = i16::from(book.reached);
        let row: [&(dyn ToSql + Sync); 12] = [
            &tenant, &day, &writ, &holder, &seq, &told_ms, &have, &used, &idle, &reached, &all,
            &all_used,
        ];
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
    found
        .iter()
        .map(|row| {
            let day = u32::try_from(rows::number(row, "day")?).map_err(|_| rows::damaged("day"))?;
            let account = Account { tenant: rows::name(row, "tenant")?, span: Span::Day(Day(day)) };
            Ok(book(row)?.row(account))
        })
        .collect()
}

/// One account, if anybody has drawn on it.
pub(super) async fn one(link: &Link, account: &Account) -> Result<Option<AccountRow>, StoreError> {
    let (tenant, (day, writ)) = (account.tenant.as_str(), account.columns());
    let found = link.query(ONE, &[&tenant, &i64::from(day), &writ]).await?;
    found.first().map(|row| Ok(book(row)?.row(account.clone()))).transpose()
}

/// An account without its slices.
fn book(row: &Row) -> Result<Book, StoreError> {
    let (drawn, used) = (amounts(row, "drawn")?, amounts(row, "used")?);
    Ok(Book { drawn, used, reached: reached(row)?, slices: BTreeMap::new() })
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
