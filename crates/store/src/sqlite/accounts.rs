//! Accounts and their slices, inside the writer's transaction.

use std::collections::BTreeMap;

use gesta_core::amounts::{Amounts, Span};
use gesta_core::ids::Tenant;
use gesta_core::time::{Day, UnixMs};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use super::{outbox, rows};
use crate::accounts::{Account, AccountRow, Book, Draw, Drawn, Slice};

const ACCOUNT: &str = "
    SELECT reached, drawn_calls, drawn_money, drawn_tokens, drawn_wall, used_calls, used_money,
        used_tokens, used_wall
    FROM accounts WHERE tenant = ?1 AND day = ?2 AND writ = ?3";
const KEEP_ACCOUNT: &str = "
    INSERT OR REPLACE INTO accounts (tenant, day, writ, reached, drawn_calls, drawn_money,
        drawn_tokens, drawn_wall, used_calls, used_money, used_tokens, used_wall)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
/// The holder's own slice, and those of others that hold something.
const SLICES: &str = "
    SELECT holder, seq, told_at, drawn_calls, drawn_money, drawn_tokens, drawn_wall, used_calls,
        used_money, used_tokens, used_wall, idle_calls, idle_money, idle_tokens, idle_wall
    FROM slices WHERE tenant = ?1 AND day = ?2 AND writ = ?3 AND holder = ?4
    UNION ALL
    SELECT holder, seq, told_at, drawn_calls, drawn_money, drawn_tokens, drawn_wall, used_calls,
        used_money, used_tokens, used_wall, idle_calls, idle_money, idle_tokens, idle_wall
    FROM slices INDEXED BY slices_held
    WHERE tenant = ?1 AND day = ?2 AND writ = ?3 AND holder <> ?4
        AND (drawn_calls <> used_calls OR drawn_money <> used_money
            OR drawn_tokens <> used_tokens OR drawn_wall <> used_wall)";
const KEEP: &str = "
    INSERT OR REPLACE INTO slices (tenant, day, writ, holder, seq, told_at, drawn_calls, drawn_money,
        drawn_tokens, drawn_wall, used_calls, used_money, used_tokens, used_wall, idle_calls,
        idle_money, idle_tokens, idle_wall)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
const LIST: &str = "
    SELECT tenant, day FROM accounts
    WHERE writ = '' AND day >= ?1 AND (?2 IS NULL OR tenant = ?2)
    ORDER BY tenant, day DESC";

/// Gives a holder its slice of an account.
pub(super) fn draw(
    db: &Connection,
    account: &Account,
    holder: &str,
    ask: &Draw,
    now: UnixMs,
) -> Result<Drawn> {
    let (tenant, (day, writ)) = (account.tenant.as_str(), account.columns());
    let mut book = read(db, account)?.unwrap_or_default();
    book.slices = slices(db, account, holder)?;
    let drawn = book.draw(holder, ask, now);
    outbox::put(db, book.notice(account, ask, &drawn, now).as_slice())?;
    let ([a, b, c, d], [e, f, g, h]) = (bounded(book.drawn), bounded(book.used));
    let row = params![tenant, day, writ, book.reached, a, b, c, d, e, f, g, h];
    db.prepare_cached(KEEP_ACCOUNT)?.execute(row)?;
    if let Some(Slice { seq, drawn, used, idle, told_at }) = book.slices.get(holder) {
        let [a, b, c, d] = bounded(*drawn);
        let [e, f, g, h] = bounded(*used);
        let [i, j, k, l] = bounded(*idle);
        let at = told_at.0;
        let row = params![tenant, day, writ, holder, seq, at, a, b, c, d, e, f, g, h, i, j, k, l];
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
            Ok(Account { tenant: rows::tenant(row, 0)?, span: Span::Day(Day(row.get(1)?)) })
        })?
        .collect::<Result<Vec<_>>>()?;
    found
        .into_iter()
        .map(|account| Ok(read(db, &account)?.unwrap_or_default().row(account)))
        .collect()
}

/// One account, if anybody has drawn on it.
pub(super) fn one(db: &Connection, account: &Account) -> Result<Option<AccountRow>> {
    Ok(read(db, account)?.map(|book| book.row(account.clone())))
}

/// An account without its slices, if anybody has drawn on it.
fn read(db: &Connection, account: &Account) -> Result<Option<Book>> {
    let (tenant, (day, writ)) = (account.tenant.as_str(), account.columns());
    let book = |row: &Row<'_>| {
        let (drawn, used) = (amounts(row, 1)?, amounts(row, 5)?);
        Ok(Book { drawn, used, reached: row.get(0)?, slices: BTreeMap::new() })
    };
    db.prepare_cached(ACCOUNT)?.query_row(params![tenant, day, writ], book).optional()
}

fn slices(db: &Connection, account: &Account, holder: &str) -> Result<BTreeMap<String, Slice>> {
    let (tenant, (day, writ)) = (account.tenant.as_str(), account.columns());
    db.prepare_cached(SLICES)?
        .query_map(params![tenant, day, writ, holder], |row| {
            let slice = Slice {
                seq: row.get(1)?,
                told_at: UnixMs(row.get(2)?),
                drawn: amounts(row, 3)?,
                used: amounts(row, 7)?,
                idle: amounts(row, 11)?,
            };
            Ok((row.get(0)?, slice))
        })?
        .collect()
}

fn amounts(row: &Row<'_>, first: usize) -> Result<Amounts> {
    let [b, c, d] = [first + 1, first + 2, first + 3];
    Ok(Amounts::of([row.get(first)?, row.get(b)?, row.get(c)?, row.get(d)?]))
}

/// Amounts as the database holds them.
fn bounded(amounts: Amounts) -> [u64; 4] {
    amounts.values().map(|amount| amount.min(i64::MAX.unsigned_abs()))
}
