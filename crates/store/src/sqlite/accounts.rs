//! Accounts and their slices, inside the writer's transaction.

use std::collections::BTreeMap;

use gesta_core::amounts::Amounts;
use gesta_core::ids::Tenant;
use gesta_core::time::{Day, UnixMs};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::{outbox, rows};
use crate::accounts::{Account, AccountRow, Book, Draw, Drawn, Slice};

const REACHED: &str = "SELECT reached FROM accounts WHERE tenant = ?1 AND day = ?2";
const KEEP_REACHED: &str =
    "INSERT OR REPLACE INTO accounts (tenant, day, reached) VALUES (?1, ?2, ?3)";
const SLICES: &str = "
    SELECT holder, seq, told_at, drawn_calls, drawn_money, drawn_tokens, drawn_wall, used_calls,
        used_money, used_tokens, used_wall, idle_calls, idle_money, idle_tokens, idle_wall
    FROM slices WHERE tenant = ?1 AND day = ?2";
const KEEP: &str = "
    INSERT OR REPLACE INTO slices (tenant, day, holder, seq, told_at, drawn_calls, drawn_money,
        drawn_tokens, drawn_wall, used_calls, used_money, used_tokens, used_wall, idle_calls,
        idle_money, idle_tokens, idle_wall)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
const LIST: &str = "
    SELECT tenant, day FROM accounts WHERE day >= ?1 AND (?2 IS NULL OR tenant = ?2)
    ORDER BY tenant, day DESC";

/// Gives a holder its slice of an account.
pub(super) fn draw(
    db: &Connection,
    account: &Account,
    holder: &str,
    ask: &Draw,
    now: UnixMs,
) -> Result<Drawn> {
    let (tenant, day) = (account.tenant.as_str(), account.day.0);
    let before = book(db, account)?;
    let mut book = before.clone().unwrap_or_default();
    let drawn = book.draw(holder, ask, now);
    outbox::put(db, book.notice(account, ask, &drawn, now).as_slice())?;
    if before.is_none_or(|before| before.reached != book.reached) {
        db.prepare_cached(KEEP_REACHED)?.execute(params![tenant, day, book.reached])?;
    }
    if let Some(Slice { seq, drawn, used, idle, told_at }) = book.slices.get(holder) {
        let [a, b, c, d] = bounded(*drawn);
        let [e, f, g, h] = bounded(*used);
        let [i, j, k, l] = bounded(*idle);
        let row = params![tenant, day, holder, seq, told_at.0, a, b, c, d, e, f, g, h, i, j, k, l];
        db.prepare_cached(KEEP)?.execute(row)?;
    }
    Ok(drawn)
}

/// The accounts of these days, by tenant, the newest first.
pub(super) fn list(
    db: &Connection,
    tenant: Option<&Tenant>,
    since: Day,
) -> Result<Vec<AccountRow>> {
    let found = db
        .prepare_cached(LIST)?
        .query_map(params![since.0, tenant.map(Tenant::as_str)], |row| {
            Ok(Account { tenant: rows::tenant(row, 0)?, day: Day(row.get(1)?) })
        })?
        .collect::<Result<Vec<_>>>()?;
    found
        .into_iter()
        .map(|account| Ok(book(db, &account)?.unwrap_or_default().row(account)))
        .collect()
}

/// An account, if anybody has drawn on it.
fn book(db: &Connection, account: &Account) -> Result<Option<Book>> {
    let key = params![account.tenant.as_str(), account.day.0];
    let reached = db.prepare_cached(REACHED)?.query_row(key, |row| row.get(0)).optional()?;
    let Some(reached) = reached else { return Ok(None) };
    let slices = db
        .prepare_cached(SLICES)?
        .query_map(key, |row| {
            let slice = Slice {
                seq: row.get(1)?,
                told_at: UnixMs(row.get(2)?),
                drawn: amounts(row, 3)?,
                used: amounts(row, 7)?,
                idle: amounts(row, 11)?,
            };
            Ok((row.get(0)?, slice))
        })?
        .collect::<Result<BTreeMap<_, _>>>()?;
    Ok(Some(Book { slices, reached }))
}

fn amounts(row: &Row<'_>, first: usize) -> Result<Amounts> {
    let [b, c, d] = [first + 1, first + 2, first + 3];
    Ok(Amounts::of([row.get(first)?, row.get(b)?, row.get(c)?, row.get(d)?]))
}

/// Amounts as the database holds them.
fn bounded(amounts: Amounts) -> [u64; 4] {
    amounts.values().map(|amount| amount.min(i64::MAX.unsigned_abs()))
}
