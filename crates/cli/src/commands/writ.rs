//! `gesta writ`: issuing, reading, narrowing and revoking writs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use gesta_core::amounts::Amounts;
use gesta_core::digest::WritId;
use gesta_core::document::RegistryItem;
use gesta_core::ids::{Principal, Tenant};
use gesta_core::json::Canon;
use gesta_core::keys::KeyId;
use gesta_core::signed::{Signed, Tag};
use gesta_core::time::{UnixMs, Window};
use gesta_core::trust::Role;
use gesta_core::writ::{Effect, ToolPattern, Writ};
use gesta_runtime::authority::{OWNER, least, window};
use gesta_store::{Account, AccountRow, Span, Store};
use serde_json::{Value, json};

use crate::commands::budget::in_words;
use crate::job_file::{Limited, budget_of, limit};
use crate::key_file;
use crate::moment;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::session::Session;
use crate::writs;

/// Issue, inspect, narrow and revoke writs: what jobs may do
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gesta writ issue --tools 'pay.*' --effect external --budget calls=100 --days 30 -o writs/pay.json
  gesta writ attenuate writs/pay.json --tools pay.refund --days 1 -o writs/today.json
  gesta writ inspect writs/today.json
  gesta run job.yaml --writ writs/today.json
  gesta writ revoke writs/pay.json")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Issue(IssueArguments),
    /// Show what a writ allows, whom, until when, and whether it still counts
    #[command(
        after_help = "Examples:\n  gesta writ inspect writs/root.json\n  gesta writ inspect writs/pay.json --json"
    )]
    Inspect {
        /// The writ's file
        file: PathBuf,
    },
    Attenuate(AttenuateArguments),
    /// Revoke a writ, and with it all that were narrowed from it
    #[command(after_help = "\
The next decision under it, or under any writ below it, is a refusal. What was recorded stays recorded, and what
is in doubt stays in doubt.

Examples:
  gesta writ revoke writs/pay.json --reason \"the project is over\"")]
    Revoke {
        /// The writ's file, or its id
        #[arg(value_name = "ID|FILE")]
        writ: String,
        /// Why, for people
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// The key that signs: one of role owner
        #[arg(long, value_name = "NAME", default_value = OWNER)]
        key: String,
    },
}

/// Issue a writ that no other stands above
#[derive(Debug, Args)]
#[command(after_help = "\
It is signed by a key of role issuer. Jobs are narrowed from it by whoever holds it; it roots none by itself.

Examples:
  gesta writ issue --tools 'pay.*' --effect external --budget calls=100 --days 30 -o writs/pay.json
  gesta writ issue --tenant acme --principal agent:ada --tools mail.send --effect external --depth 1")]
struct IssueArguments {
    /// Whose it is [default: that of the workspace's root writ]
    #[arg(long)]
    tenant: Option<Tenant>,
    /// Who acts under it [default: that of the workspace's root writ]
    #[arg(long)]
    principal: Option<Principal>,
    #[command(flatten)]
    scope: Scope,
    /// The key that signs: one of role issuer
    #[arg(long, value_name = "NAME", default_value = OWNER)]
    key: String,
}

/// Narrow a writ; it never widens
#[derive(Debug, Args)]
#[command(after_help = "\
What is not given stays as it is in the writ above, but for the depth, which is one less. The key that holds the
writ above signs, and must be in the workspace.

Examples:
  gesta writ attenuate writs/pay.json --tools pay.refund --budget money_micros=5000000 -o writs/small.json
  gesta writ attenuate writs/pay.json --principal agent:ada --holder ada -o writs/ada.json")]
struct AttenuateArguments {
    /// The writ to narrow
    file: PathBuf,
    /// Who acts under it
    #[arg(long)]
    principal: Option<Principal>,
    #[command(flatten)]
    scope: Scope,
}

/// What a writ allows.
#[derive(Debug, Args)]
struct Scope {
    /// The tools: names, prefixes like `pay.*`, or `*`
    #[arg(long, value_name = "TOOL", value_delimiter = ',', num_args = 1..)]
    tools: Vec<ToolPattern>,
    /// The most that a tool may do to the world
    #[arg(long, value_parser = effect)]
    effect: Option<Effect>,
    /// How much may be used in all: calls, money_micros, tokens or wall_ms
    #[arg(long = "budget", value_name = "WHAT=N", value_parser = limit)]
    budgets: Vec<(Limited, u64)>,
    /// For how many days
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: Option<u64>,
    /// For how many seconds, instead of days
    #[arg(long, value_name = "N", conflicts_with = "days", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// How many more times it may be narrowed; each job is one
    #[arg(long, value_name = "N")]
    depth: Option<u64>,
    /// The key that may narrow it: a name in the registry
    #[arg(long, value_name = "NAME")]
    holder: Option<String>,
    /// Where to write it [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn effect(text: &str) -> Result<Effect, String> {
    [Effect::Read, Effect::Write, Effect::External, Effect::Irreversible]
        .into_iter()
        .find(|effect| effect.to_string() == text)
        .ok_or_else(|| "it is one of read, write, external and irreversible".to_owned())
}

impl Scope {
    fn window(&self, now: UnixMs, default: Window) -> Window {
        match (self.days, self.seconds) {
            (Some(days), _) => window(now, days),
            (None, Some(seconds)) => {
                let not_after = now.plus(seconds.saturating_mul(1000));
                Window { not_before: window(now, 0).not_before, not_after }
            }
            (None, None) => default,
        }
    }

    fn holder(&self, registry: &Registry, default: KeyId) -> Result<KeyId> {
        let Some(name) = &self.holder else { return Ok(default) };
        let key = registry.named(name).ok_or_else(|| {
            Problem::new(format!("there is no key `{name}` in the registry"))
                .hint("`gesta keys list` shows the keys")
        })?;
        Ok(key.key)
    }
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    match &arguments.command {
        Command::Issue(arguments) => issue(session, arguments),
        Command::Inspect { file } => inspect(session, file),
        Command::Attenuate(arguments) => attenuate(session, arguments),
        Command::Revoke { writ, reason, key } => revoke(session, writ, reason.as_deref(), key),
    }?;
    Ok(0)
}

const DEFAULT_DAYS: u64 = 30;
const DEFAULT_DEPTH: u64 = 8;

fn issue(session: &mut Session, arguments: &IssueArguments) -> Result<()> {
    let IssueArguments { tenant, principal, scope, key } = arguments;
    let workspace = Session::workspace()?;
    let root = writs::root(&workspace)?;
    let store = session.store_to_read()?;
    let registry = Registry::open(session, &store)?;
    let signer = key_file::read(&key_file::path(&workspace.keys(), key))?;
    let now = Session::now();
    let tenant = tenant.clone().unwrap_or_else(|| root.doc().tenant.clone());
    let trusted = registry.keys().check(signer.id(), &[Role::Issuer], Some(&tenant), now);
    trusted.map_err(|distrust| {
        Problem::new(format!("the key `{key}` may not issue writs: {distrust}"))
            .hint("`gesta keys list` shows the roles; `--key NAME` names another")
    })?;
    if scope.tools.is_empty() {
        let problem = Problem::new("which tools?").bad_input();
        return Err(problem
            .hint("name them with `--tools`, or all of them with `--tools '*'`")
            .into());
    }
    let writ = Writ {
        budget: budget_of(&scope.budgets),
        depth: scope.depth.unwrap_or(DEFAULT_DEPTH),
        effect: scope.effect.unwrap_or(Effect::Read),
        guardians: false,
        holder: scope.holder(&registry, signer.id())?,
        key: signer.id(),
        parent: None,
        principal: principal.clone().unwrap_or_else(|| root.doc().principal.clone()),
        tenant,
        tools: scope.tools.clone(),
        trajectory: None,
        type_: Tag::default(),
        window: scope.window(now, window(now, DEFAULT_DAYS)),
    };
    let chain = vec![Signed::sign(writ, &signer)?];
    written(session, &chain, scope.output.as_deref())
}

fn attenuate(session: &mut Session, arguments: &AttenuateArguments) -> Result<()> {
    let AttenuateArguments { file, principal, scope } = arguments;
    let workspace = Session::workspace()?;
    let mut chain = writs::read(file)?;
    let store = session.store_to_read()?;
    let registry = Registry::open(session, &store)?;
    let above = writs::leaf(file, &chain)?;
    let holder = writs::holder_of(&workspace, above)?;
    let (id, parent) = (above.id(), above.doc());
    let depth = parent.depth.checked_sub(1).ok_or_else(|| {
        Problem::new(format!(
            "`{}` may not be narrowed any further: its depth is 0",
            file.display()
        ))
    })?;
    // What is not given stays; what is given must not be wider, and is not quietly cut down.
    let given = budget_of(&scope.budgets);
    if let Some(dimension) = parent.budget.widened_by(&least(&given, &parent.budget)) {
        return Err(Problem::new(format!("budget `{dimension}` exceeds the parent's")).into());
    }
    let mut budget = parent.budget;
    for (to, from) in [
        (&mut budget.calls, given.calls),
        (&mut budget.money_micros, given.money_micros),
        (&mut budget.tokens, given.tokens),
        (&mut budget.wall_ms, given.wall_ms),
    ] {
        *to = from.or(*to);
    }
    let now = Session::now();
    let mut window = scope.window(now, parent.window);
    window.not_before = window.not_before.max(parent.window.not_before);
    let tools = if scope.tools.is_empty() { parent.tools.clone() } else { scope.tools.clone() };
    let writ = Writ {
        budget,
        depth: scope.depth.unwrap_or(depth),
        effect: scope.effect.unwrap_or(parent.effect),
        guardians: false,
        holder: scope.holder(&registry, holder.id())?,
        key: holder.id(),
        parent: Some(id),
        principal: principal.clone().unwrap_or_else(|| parent.principal.clone()),
        tenant: parent.tenant.clone(),
        tools,
        trajectory: None,
        type_: Tag::default(),
        window,
    };
    writ.narrows(parent, id).map_err(|widening| {
        Problem::new(format!("that would widen the writ: {widening}"))
            .hint(format!("`gesta writ inspect {}` shows what it allows", file.display()))
            .bad_input()
    })?;
    chain.push(Signed::sign(writ, &holder)?);
    written(session, &chain, scope.output.as_deref())
}

/// Writes a chain of writs to a new file, or prints it.
fn written(session: &mut Session, chain: &[Signed<Writ>], to: Option<&Path>) -> Result<()> {
    let text = writs::text(chain)?;
    let Some(path) = to else { return Ok(session.out.line(text)?) };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make `{}`", parent.display()))?;
    }
    crate::durable::create(path, text.as_bytes(), crate::durable::Readers::Owner)?;
    let id = chain.last().map(Signed::<Writ>::id);
    if session.out.is_json() {
        return session.out.document(&json!({ "writ": id, "file": path }));
    }
    let id = id.map(|id| id.to_string()).unwrap_or_default();
    session.out.line(format!("wrote the writ {id} to `{}`", path.display()))?;
    session.hint(&format!("`gesta run JOB --writ {}` runs a job under it", path.display()))
}

fn inspect(session: &mut Session, file: &Path) -> Result<()> {
    let chain = writs::read(file)?;
    let leaf = writs::leaf(file, &chain)?.clone();
    let store = session.store_to_read()?;
    let registry = Registry::open(session, &store)?;
    let now = Session::now();
    let counts = writs::counts(&chain, &registry, now);
    let accounts = accounts(session, &store, &chain)?;
    if session.out.is_json() {
        let one = |writ: &Signed<Writ>| as_json(writ, &registry, accounts.get(&writ.id()));
        let chain: Vec<Value> = chain.iter().map(one).collect();
        let why = counts.err();
        return session
            .out
            .document(&json!({ "counts": why.is_none(), "why_not": why, "chain": chain }));
    }
    let named = |key: KeyId| {
        let name = registry.keys().get(&key).map(|known| known.name.clone());
        name.map_or_else(|| key.to_string(), |name| crate::escape::visible(&name))
    };
    let out = &mut session.out;
    let Writ {
        budget, depth, effect, holder, principal, tenant, tools, trajectory, window, ..
    } = leaf.doc();
    out.line(format!("writ       {}", leaf.id()))?;
    out.line(format!("principal  {principal}"))?;
    out.line(format!("tenant     {tenant}"))?;
    let tools: Vec<String> = tools.iter().map(ToString::to_string).collect();
    out.line(format!("tools      {}", tools.join(", ")))?;
    out.line(format!("effect     up to {effect}"))?;
    let limits = budget.dimensions();
    let limits: Vec<String> =
        limits.iter().filter_map(|(name, most)| Some(format!("{name} {}", (*most)?))).collect();
    let limits = if limits.is_empty() { "no limit".to_owned() } else { limits.join(", ") };
    out.line(format!("budget     {limits}"))?;
    let (from, until) = (moment::utc(window.not_before), moment::utc(window.not_after));
    out.line(format!("valid      {from} – {until}"))?;
    out.line(format!("depth      {depth}"))?;
    out.line(format!("holder     {}", named(*holder)))?;
    if let Some(trajectory) = trajectory {
        out.line(format!("roots      {trajectory}"))?;
    }
    for (i, writ) in chain.iter().enumerate() {
        let what = if i == 0 { "issued" } else { "narrowed" };
        let revoked = registry.state().revocation(&writ.id());
        let revoked = revoked.map(|revoked| format!(", revoked at {}", moment::utc(revoked.at)));
        let by = named(writ.doc().key);
        out.line(format!(
            "chain      {} {what} by {by}{}",
            writ.id(),
            revoked.unwrap_or_default()
        ))?;
        for line in accounts
            .get(&writ.id())
            .map(|row| in_words(row, &writ.doc().budget))
            .unwrap_or_default()
        {
            out.line(format!("           {line}"))?;
        }
    }
    match counts {
        Ok(()) => out.line("counts     yes")?,
        Err(why) => out.line(format!("counts     no: {why}"))?,
    }
    Ok(())
}

/// A writ of a chain, with its account if it has one.
fn as_json(writ: &Signed<Writ>, registry: &Registry, account: Option<&AccountRow>) -> Value {
    let revoked = registry.state().revocation(&writ.id()).map(|revoked| revoked.at);
    let mut one = json!({ "id": writ.id(), "writ": writ.doc(), "revoked_at": revoked });
    let account = account.map(|row| {
        let (limit, drawn) = (&writ.doc().budget, row.drawn);
        json!({
            "used": row.used,
            "reserved": drawn.minus(row.used),
            "left": limit.where_limited(limit.carved().minus(drawn)),
        })
    });
    if let (Value::Object(fields), Some(account)) = (&mut one, account) {
        fields.insert("account".to_owned(), account);
    }
    one
}

/// What is used below each standing writ that has a budget.
fn accounts(
    session: &mut Session,
    store: &Arc<dyn Store>,
    chain: &[Signed<Writ>],
) -> Result<BTreeMap<WritId, AccountRow>> {
    let mut rows = BTreeMap::new();
    for writ in chain.iter().filter(|writ| writ.doc().budget.limits()) {
        if writ.doc().trajectory.is_some() {
            continue;
        }
        let account = Account { tenant: writ.doc().tenant.clone(), span: Span::Writ(writ.id()) };
        let row = session.wait(store.account(&account))?;
        let (used, drawn) = (Amounts::default(), Amounts::default());
        let row = row.unwrap_or(AccountRow { account, used, drawn, reached: 0 });
        rows.insert(writ.id(), row);
    }
    Ok(rows)
}

fn revoke(session: &mut Session, which: &str, reason: Option<&str>, key: &str) -> Result<()> {
    let id = Canon::of(which).and_then(|text| text.read::<WritId>());
    let writ = match id {
        Ok(id) => id,
        Err(_) => {
            let file = Path::new(which);
            let chain = writs::read(file)?;
            writs::leaf(file, &chain)?.id()
        }
    };
    let store = session.store()?;
    let mut registry = Registry::open(session, &store)?;
    if let Some(revoked) = registry.state().revocation(&writ) {
        let at = moment::utc(revoked.at);
        return Err(Problem::new(format!("the writ {writ} was revoked at {at}")).into());
    }
    let item = RegistryItem::RevokeWrit(writ);
    let signer = registry.signer(key, &item)?;
    registry.register(session, (&item, reason), &signer)?;
    if session.out.is_json() {
        return session.out.document(&json!({ "revoked": writ }));
    }
    Ok(session.out.line(format!("revoked the writ {writ}, and all below it"))?)
}
