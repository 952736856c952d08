//! `gesta budget`: what tenants may use in a day, what they have used, and what is left.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::Result;
use clap::{Args, Subcommand};
use gesta_core::amounts::{Amounts, Budget};
use gesta_core::document::{RegistryItem, TenantLimit};
use gesta_core::ids::Tenant;
use gesta_core::time::{Day, UnixMs};
use gesta_runtime::authority::OWNER;
use gesta_runtime::duration::DurationMs;
use gesta_store::{Account, AccountRow, Span};
use serde_json::json;

use crate::key_file;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::session::Session;
use crate::table;

/// How wide a full bar is.
const BAR: u64 = 20;
const MICROS: u64 = 1_000_000;

/// Show what tenants may use in a day and have used, or limit it
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Days are UTC. RESERVED is what workers have set aside: for calls under way, for calls of which nobody
knows whether they happened, for the next ones, and what a worker that died had not given back.

Examples:
  gesta budget
  gesta budget acme --days 30
  gesta budget set acme --calls 1000 --money 50 --wall 2h
  gesta budget set acme --tokens none"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only this tenant
    tenant: Option<Tenant>,
    /// How many days to show, today included
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3660))]
    days: u32,
}

#[derive(Debug, Subcommand)]
enum Command {
    Set(SetArguments),
}

/// Limit what a tenant may use in a day
#[derive(Debug, Args)]
#[command(after_help = "\
The owner key signs, and every worker follows at once. What is not given stays as it was; `none` lifts
a limit. Calls that would exceed it are refused with `budget_exhausted`.

Examples:
  gesta budget set acme --calls 1000 --money 50 --wall 2h
  gesta budget set acme --tokens none")]
struct SetArguments {
    /// Whose
    tenant: Tenant,
    /// The most tool calls
    #[arg(long, value_name = "N")]
    calls: Option<Limit<Count>>,
    /// The most money, in the unit of account: 12.50
    #[arg(long, value_name = "AMOUNT")]
    money: Option<Limit<Money>>,
    /// The most model tokens
    #[arg(long, value_name = "N")]
    tokens: Option<Limit<Count>>,
    /// The most wall time of calls: 90s, 30m, 2h
    #[arg(long, value_name = "TIME")]
    wall: Option<Limit<Wall>>,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug)]
struct Limit<T>(Option<T>);

impl<T: FromStr<Err = String>> FromStr for Limit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

/// The greatest number that an entry can hold.
fn in_reach(number: u64) -> Result<u64, String> {
    if number <= UnixMs::LAST.0 { Ok(number) } else { Err("it is too large".to_owned()) }
}

#[derive(Clone, Copy, Debug)]
struct Count(u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().map_err(|_| "it is a whole number or `none`".to_owned())?;
        in_reach(number).map(Self)
    }
}

#[derive(Clone, Copy, Debug)]
struct Money(u64);

impl FromStr for Money {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spelling = || "it is an amount such as 50 or 12.50, or `none`".to_owned();
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 {
            return Err(spelling());
        }
        let whole: u64 = whole.parse().map_err(|_| spelling())?;
        let part: u64 = format!("{part:0<6}").parse().map_err(|_| spelling())?;
        let micros = whole.checked_mul(MICROS).and_then(|micros| micros.checked_add(part));
        in_reach(micros.ok_or_else(spelling)?).map(Self)
    }
}

#[derive(Clone, Copy, Debug)]
struct Wall(u64);

impl FromStr for Wall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(|time: DurationMs| Self(time.ms())).map_err(|error| error.to_string())
    }
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    match &arguments.command {
        Some(Command::Set(arguments)) => set(session, arguments),
        None => show(session, arguments),
    }?;
    Ok(0)
}

fn set(session: &mut Session, arguments: &SetArguments) -> Result<()> {
    let SetArguments { tenant, calls, money, tokens, wall } = arguments;
    if (calls.is_none(), money.is_none(), tokens.is_none(), wall.is_none())
        == (true, true, true, true)
    {
        return Err(Problem::new("nothing is to be limited")
            .hint("give `--calls`, `--money`, `--tokens` or `--wall`")
            .bad_input()
            .into());
    }
    let owner = key_file::read(&key_file::path(&Session::workspace()?.keys(), OWNER))?;
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    let known = registry.limits().find(|(of, _)| *of == tenant);
    let mut daily = known.map(|(_, limit)| *limit).unwrap_or_default();
    if let Some(Limit(calls)) = calls {
        daily.calls = calls.map(|Count(calls)| calls);
    }
    if let Some(Limit(money)) = money {
        daily.money_micros = money.map(|Money(micros)| micros);
    }
    if let Some(Limit(tokens)) = tokens {
        daily.tokens = tokens.map(|Count(tokens)| tokens);
    }
    if let Some(Limit(wall)) = wall {
        daily.wall_ms = wall.map(|Wall(ms)| ms);
    }
    let limit = TenantLimit { daily, tenant: tenant.clone() };
    registry.register(session, (&RegistryItem::Limit(limit.clone()), None), &owner)?;
    if session.out.is_json() {
        return session.out.document(&limit);
    }
    let limits: Vec<String> = daily
        .dimensions()
        .into_iter()
        .filter_map(|(name, limit)| Some(format!("{} {}", amount(name, limit?), called(name))))
        .collect();
    let said = match limits.as_slice() {
        [] => format!("tenant `{tenant}` is not limited"),
        limits => format!("tenant `{tenant}` may use {} a day", limits.join(", ")),
    };
    Ok(session.out.line(said)?)
}

fn show(session: &mut Session, arguments: &Arguments) -> Result<()> {
    let store = session.store_to_read()?;
    let registry = Registry::open(session, &store)?;
    let set = registry.limits_set(session, &store)?;
    let today = Session::now().day();
    let since = Day((today.0 + 1).saturating_sub(arguments.days));
    let mut rows = session.wait(store.accounts(arguments.tenant.as_ref(), since))?;
    // A tenant that has used nothing today is shown too, if it is limited.
    let drawn: BTreeSet<Account> = rows.iter().map(|row| row.account.clone()).collect();
    for (tenant, _) in registry.limits().filter(|(_, limit)| limit.limits()) {
        let account = Account { tenant: tenant.clone(), span: Span::Day(today) };
        let asked = arguments.tenant.as_ref().is_none_or(|asked| asked == tenant);
        if asked && !drawn.contains(&account) {
            let none = Amounts::default();
            rows.push(AccountRow { account, used: none, drawn: none, reached: 0 });
        }
    }
    rows.sort_by(|a, b| {
        let (a, b) = (&a.account, &b.account);
        a.tenant.cmp(&b.tenant).then(b.span.cmp(&a.span))
    });
    let limited = |account: &Account| {
        let next = account.day().map_or(today, |day| Day(day.0.saturating_add(1))).begins();
        let mut mine = set.iter().filter(|(at, set)| set.tenant == account.tenant && *at < next);
        mine.next_back().map(|(_, set)| set.daily).unwrap_or_default()
    };
    if session.out.is_json() {
        for row in &rows {
            session.out.json_line(&document(row, &limited(&row.account)))?;
        }
        return Ok(());
    }
    let lines: Vec<[String; 8]> =
        rows.iter().flat_map(|row| lines(row, &limited(&row.account))).collect();
    let header = ["tenant", "day", "what", "limit", "used", "reserved", "left", ""];
    for line in table::lines(header, &lines) {
        session.out.line(line)?;
    }
    if rows.is_empty() {
        session.hint("no tenant is limited; `gesta budget set TENANT --calls N` limits one")?;
    }
    Ok(())
}

fn document(row: &AccountRow, limit: &Budget) -> serde_json::Value {
    json!({
        "tenant": row.account.tenant,
        "day": row.account.day(),
        "limit": limit,
        "used": row.used,
        "reserved": row.drawn.minus(row.used),
        "left": limit.where_limited(limit.carved().minus(row.drawn)),
        "reached": (row.reached > 0).then_some(row.reached),
    })
}

/// What was used of a limit, set aside, and is left, for people: `calls 3 used, 2 reserved, 95 left`.
pub(crate) fn in_words(row: &AccountRow, limit: &Budget) -> Vec<String> {
    let amounts = row.used.values().into_iter().zip(row.drawn.values());
    let limited = limit.dimensions().into_iter().zip(amounts);
    let words = limited.filter_map(|((name, limit), (used, drawn))| {
        let [used, reserved, left] =
            [used, drawn.saturating_sub(used), limit?.saturating_sub(drawn)];
        let [used, reserved, left] = [used, reserved, left].map(|it| amount(name, it));
        Some(format!("{} {used} used, {reserved} reserved, {left} left", called(name)))
    });
    words.collect()
}

/// One line for each dimension that is limited or was used.
fn lines(row: &AccountRow, limit: &Budget) -> Vec<[String; 8]> {
    let amounts = row.used.values().into_iter().zip(row.drawn.values());
    limit
        .dimensions()
        .into_iter()
        .zip(amounts)
        .filter(|((_, limit), (used, _))| limit.is_some() || *used > 0)
        .map(|((name, limit), (used, drawn))| {
            let shown =
                |value: Option<u64>| value.map(|value| amount(name, value)).unwrap_or_default();
            [
                row.account.tenant.to_string(),
                row.account.day().map(|day| day.to_string()).unwrap_or_default(),
                called(name).to_owned(),
                shown(limit),
                amount(name, used),
                shown(limit.map(|_| drawn.saturating_sub(used))),
                shown(limit.map(|limit| limit.saturating_sub(drawn))),
                limit.map(|limit| bar(used, limit)).unwrap_or_default(),
            ]
        })
        .collect()
}

/// `[########            ]  40 %`
fn bar(used: u64, limit: u64) -> String {
    let of = |whole: u64| {
        let part = u128::from(used) * u128::from(whole) / u128::from(limit.max(1));
        if limit == 0 { whole } else { u64::try_from(part).unwrap_or(u64::MAX) }
    };
    let full = usize::try_from(of(BAR).min(BAR)).unwrap_or_default();
    let empty = usize::try_from(BAR).unwrap_or_default().saturating_sub(full);
    format!("[{}{}] {:>3} %", "#".repeat(full), " ".repeat(empty), of(100))
}

fn called(dimension: &str) -> &str {
    match dimension {
        "money_micros" => "money",
        "wall_ms" => "wall time",
        other => other,
    }
}

/// An amount as people write it.
fn amount(dimension: &str, value: u64) -> String {
    match dimension {
        "money_micros" => {
            let part = format!("{:06}", value % MICROS);
            let part = part.trim_end_matches('0');
            format!("{}.{part:0<2}", value / MICROS)
        }
        "wall_ms" => {
            let (seconds, ms) = (value / 1000, value % 1000);
            format!("{seconds}.{ms:03}s")
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_to_the_millionth() {
        let read = |text: &str| text.parse::<Limit<Money>>().map(|limit| limit.0.map(|it| it.0));
        assert_eq!(read("12.5"), Ok(Some(12_500_000)));
        assert_eq!(read("0.000001"), Ok(Some(1)));
        assert_eq!(read("none"), Ok(None));
        for wrong in ["", "-1", "1.", ".5", "1.0000001", "1e3", "99999999999999"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            [12_500_000, 1, 0].map(|it| amount("money_micros", it)),
            ["12.50", "0.000001", "0.00"]
        );
    }

    #[test]
    fn bars_are_full_when_nothing_is_left() {
        assert_eq!(bar(0, 10), "[                    ]   0 %");
        assert_eq!(bar(4, 10), "[########            ]  40 %");
        assert_eq!(bar(13, 10), "[####################] 130 %");
        assert_eq!(bar(0, 0), "[####################] 100 %");
    }
}
