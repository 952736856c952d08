//! `gesta replay`: would it happen again as it is recorded, and what would be otherwise under other rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use gesta_core::body::{Check, CheckVerdict};
use gesta_core::document::Verdict;
use gesta_core::ids::TrajectoryId;
use gesta_core::projection::TrajectoryKind;
use gesta_core::state::State;
use gesta_core::time::UnixMs;
use gesta_runtime::replay::{self, Asked, Library, Otherwise, Report, Session as Played, WhatIf};
use gesta_store::memory::MemoryStore;
use gesta_store::{Store, TrajectoryRow};
use gesta_verify::bundle::Bundle;
use serde_json::{Value, json};

use super::verify::bar;
use crate::escape::visible_lines;
use crate::output::counted;
use crate::problem::Problem;
use crate::session::Session;
use crate::toolbox::Toolbox;
use crate::workshop::Workshop;
use crate::{chains, importing, moment, output, policies, reference, table};

/// What `gesta` exits with when something came out otherwise than it is recorded.
const DIVERGED: u8 = 7;
/// What it exits with when something is not at hand.
const INCOMPLETE: u8 = 5;
/// How many changed decisions people are shown.
const SHOWN: usize = 200;

/// Derive trajectories again and compare; no tool is called
#[derive(Debug, Args)]
#[command(after_help = "\
Everything that can be derived is derived again by the code that runs jobs: arguments, keys, seeds,
decisions, permits, deltas, retries, the end and its run hash. What came from outside is taken from
the record. `gesta verify` says whether signatures hold; `replay` says whether what was signed
follows.

With `--policy` or `--tools` every recorded decision is reached once more under other rules, on the
inputs of then: that is how a change of policy is reviewed before it ships. Of a time, the decisions
that were taken then count, whenever their job began. Policies are checked against the tools of then; a
trajectory that had not all of them is passed over and counted, unless `--tools` says which to take.

The exit code is 7 if something came out otherwise than it is recorded, or if `--confirm` finds the
outside otherwise, and 5 if something that is needed is not at hand.

Examples:
  gesta replay t_4f2a
  gesta replay t_4f2a --until 17 --world
  gesta replay t_4f2a --confirm
  gesta replay --all --bundle refund.gesta
  gesta replay --all --since 7d --policy stricter.cedar
  gesta replay --all --tools next/gesta.toml --json | jq .otherwise")]
pub(crate) struct Arguments {
    /// The trajectories
    #[arg(value_name = "ID", required_unless_present = "all")]
    trajectories: Vec<String>,
    /// Every trajectory of the store
    #[arg(long, conflicts_with = "trajectories")]
    all: bool,
    /// Of all, what was at work at this time or later: 2026-11-16T09:30:00Z, or 7d for so long ago
    #[arg(long, value_name = "TIME", value_parser = moment::parse_or_ago, requires = "all")]
    since: Option<UnixMs>,
    /// Of all, what was at work before this time
    #[arg(long, value_name = "TIME", value_parser = moment::parse_or_ago, requires = "all")]
    before: Option<UnixMs>,
    /// The last entry to replay, by its number
    #[arg(long, value_name = "SEQ", conflicts_with = "all")]
    until: Option<u64>,
    /// Print the world as it stood then
    #[arg(long, conflicts_with = "all")]
    world: bool,
    /// Ask the verifiers of the workspace whether the outside still agrees; nothing is changed
    #[arg(long, conflicts_with = "until")]
    confirm: bool,
    /// Replay the trajectories of a bundle instead of the store's
    #[arg(long, value_name = "FILE", conflicts_with = "confirm")]
    bundle: Option<PathBuf>,
    /// Decide under these policies instead; several files are one set
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// Decide with the tools of this file instead; of a whole gesta.toml, only its tools are read
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
}

/// What one trajectory came to.
struct Outcome {
    report: Report,
    state: State,
    checks: Vec<Check>,
}

pub(crate) fn run(session: &mut Session, arguments: &Arguments) -> Result<u8> {
    let store = match &arguments.bundle {
        Some(file) => session.wait(of_bundle(file))?,
        None => session.store_to_read()?,
    };
    let Arguments { until, since, before, .. } = *arguments;
    let asked = Asked { until, what_if: what_if(arguments)?, since, before };
    let rows = rows(session, &store, arguments)?;
    let started = Instant::now();
    let length = rows.iter().map(|row| row.head.seq + 1).sum();
    let bar = bar(output::shows_progress(session.out.is_json()), length);
    let mut library = Library::new(Arc::clone(&store));
    let workshop = if arguments.confirm { Some(workshop(session)?) } else { None };
    let mut results = Vec::new();
    let mut passed = 0;
    for row in &rows {
        let mut progress = |entries: u64| bar.set_position(passed + entries);
        let replaying = replay::replay(&mut library, row.trajectory, &asked, &mut progress);
        let (report, state) = session.wait(replaying)?;
        if let Some(until) = until.filter(|until| *until > row.head.seq) {
            let what = format!("{} ends at entry {}, before {until}", row.trajectory, row.head.seq);
            return Err(Problem::new(what).bad_input().into());
        }
        let checks = match &workshop {
            Some(workshop) => session.wait(replay::confirm(workshop, row.trajectory))?,
            None => Vec::new(),
        };
        passed += row.head.seq + 1;
        results.push(Outcome { report, state, checks });
    }
    bar.finish_and_clear();
    fits_somewhere(&results)?;
    let code = results.iter().map(exit_code).max().unwrap_or(0);
    if session.out.is_json() {
        session.out.document(&document(&results, arguments, &asked))?;
        return Ok(code);
    }
    for result in &results {
        print(session, result, arguments)?;
    }
    if asked.what_if.is_some() {
        print_otherwise(session, &results)?;
    }
    let entries: u64 = results.iter().map(|result| result.report.entries).sum();
    let took = started.elapsed().as_secs_f64();
    Session::note(&format!("{} in {took:.2} s", counted(entries, "entry", "entries")));
    Ok(code)
}

fn exit_code(result: &Outcome) -> u8 {
    match &result.report.session {
        Played::Complete if !hashes_agree(&result.report) => DIVERGED,
        // What differs outside came out otherwise too: whoever asks in a script is to notice.
        Played::Complete if result.checks.iter().any(differs) => DIVERGED,
        Played::Complete => 0,
        Played::Diverged(_) => DIVERGED,
        Played::Failed { .. } => INCOMPLETE,
    }
}

fn differs(check: &Check) -> bool {
    check.verdict == CheckVerdict::Mismatch
}

/// Refuses policies that fit the tools of no trajectory: a typo is no answer.
fn fits_somewhere(results: &[Outcome]) -> Result<()> {
    let misfit = |result: &Outcome| {
        result.report.misfit.as_ref().map(|why| format!("for {}: {why}", result.report.trajectory))
    };
    let attempted = |report: &Report| {
        report.derived.contains_key("attempt") || report.given.contains_key("attempt")
    };
    let fits = |result: &Outcome| result.report.misfit.is_none() && attempted(&result.report);
    match results.iter().find_map(misfit).filter(|_| !results.iter().any(fits)) {
        None => Ok(()),
        Some(why) => Err(Problem::new(why)
            .hint("policies are checked against the tools that were recorded; `--tools gesta.toml` takes those of the workspace, and `gesta policy check` checks against them")
            .bad_input()
            .into()),
    }
}

fn hashes_agree(report: &Report) -> bool {
    report.run_hash.is_none_or(|recorded| recorded == report.replay_hash)
}

/// What is to be replayed: the trajectories named, or all but registries in the time asked for.
fn rows(
    session: &Session,
    store: &Arc<dyn Store>,
    arguments: &Arguments,
) -> Result<Vec<TrajectoryRow>> {
    let Arguments { all, since, before, .. } = arguments;
    if *all {
        let mut rows = session.wait(chains::all(store))?;
        rows.retain(|row| {
            row.summary.kind != TrajectoryKind::Registry
                && since.is_none_or(|since| row.summary.changed_at >= since)
                && before.is_none_or(|before| row.summary.begun_at < before)
        });
        return Ok(rows);
    }
    let mut rows = Vec::new();
    for text in &arguments.trajectories {
        let id = session.wait(reference::trajectory(store, text))?;
        rows.extend(session.wait(store.trajectory(id))?);
    }
    Ok(rows)
}

/// What a bundle holds, in a store that goes away with the command. Who signed it is not asked.
async fn of_bundle(file: &Path) -> Result<Arc<dyn Store>> {
    let bundle = Bundle::open(file).map_err(|finding| {
        Problem::new(format!("`{}`: {finding}", file.display())).class(finding.class)
    })?;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(gesta_store::clock::system()));
    let planned = importing::plan(&store, &bundle, true).await?;
    importing::carry_out(&store, &bundle, &planned).await?;
    Ok(store)
}

/// What to decide under instead.
fn what_if(arguments: &Arguments) -> Result<Option<WhatIf>> {
    let Arguments { policy, tools, .. } = arguments;
    if policy.is_empty() && tools.is_none() {
        return Ok(None);
    }
    let workspace = Session::find_workspace()?;
    let roles = workspace.map(|workspace| workspace.config.policy.roles).unwrap_or_default();
    let policies = match policy.as_slice() {
        [] => None,
        files => Some((policies::read(Path::new(""), files)?, roles)),
    };
    let tools = tools.as_deref().map(Toolbox::of_file).transpose()?.map(Arc::new);
    Ok(Some(WhatIf { policies, tools }))
}

/// What asks the outside.
fn workshop(session: &Session) -> Result<Workshop> {
    let workspace = Session::workspace()?;
    let tools = Toolbox::of(&workspace)?.catalogue;
    Workshop::open(session, workspace, tools)
}

fn document(results: &[Outcome], arguments: &Arguments, asked: &Asked) -> Value {
    let mut document = serde_json::Map::new();
    let replays: Vec<Value> = results
        .iter()
        .map(|Outcome { report, state, checks }| {
            let mut one = json!(report);
            if let Some(fields) = one.as_object_mut() {
                fields.remove("otherwise");
                if arguments.world {
                    fields.insert("resources".to_owned(), resources(state));
                }
                if arguments.confirm {
                    fields.insert("checks".to_owned(), json!(checks));
                }
            }
            one
        })
        .collect();
    document.insert("replays".to_owned(), Value::Array(replays));
    if asked.what_if.is_some() {
        let otherwise: Vec<&Otherwise> = otherwise(results).collect();
        document.insert("decisions".to_owned(), json!(decisions(results)));
        document.insert("otherwise".to_owned(), json!(otherwise));
        document.insert("undecided".to_owned(), json!(undecided(results)));
        let passed_over: Vec<Value> = misfits(results)
            .map(|(trajectory, why)| json!({ "trajectory": trajectory, "why": why }))
            .collect();
        document.insert("passed_over".to_owned(), Value::Array(passed_over));
    }
    Value::Object(document)
}

fn resources(state: &State) -> Value {
    let one = |(resource, value): (_, &gesta_core::world::Resource)| json!({ "resource": resource, "value": value.value, "version": value.version });
    state.world().iter().map(one).collect()
}

fn otherwise(results: &[Outcome]) -> impl Iterator<Item = &Otherwise> {
    results.iter().flat_map(|result| &result.report.otherwise)
}

fn decisions(results: &[Outcome]) -> u64 {
    results.iter().map(|result| result.report.decisions).sum()
}

fn undecided(results: &[Outcome]) -> u64 {
    results.iter().map(|result| result.report.undecided).sum()
}

/// Trajectories that what is asked about does not fit, and why.
fn misfits(results: &[Outcome]) -> impl Iterator<Item = (TrajectoryId, &String)> {
    let reports = results.iter().map(|result| &result.report);
    reports.filter_map(|report| Some((report.trajectory, report.misfit.as_ref()?)))
}

/// How the replay of one trajectory went.
fn played(report: &Report) -> Vec<String> {
    let Report { trajectory, session: played, entries, derived, given, .. } = report;
    let (derived, given): (u64, u64) = (derived.values().sum(), given.values().sum());
    let mut lines = Vec::new();
    match played {
        Played::Complete => {
            let entries = counted(*entries, "entry", "entries");
            lines.push(format!(
                "{trajectory}  complete: {entries}, {derived} derived again, {given} from outside"
            ));
        }
        Played::Diverged(found) => {
            let of = found.step.as_ref().map(|step| format!(" of step `{step}`"));
            lines.push(format!(
                "{trajectory}  diverged at entry {} (`{}`{})",
                found.seq,
                found.kind,
                of.unwrap_or_default()
            ));
            let shown = |value: &Option<Value>| {
                value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string)
            };
            if !found.pointer.is_empty() {
                lines.push(format!("  at        {}", found.pointer));
                lines.push(format!("  recorded  {}", shown(&found.recorded)));
                lines.push(format!("  derived   {}", shown(&found.derived)));
            }
            lines.push(format!("  perhaps   {}", found.cause));
        }
        Played::Failed { seq, why } => {
            lines.push(format!("{trajectory}  cannot be replayed from entry {seq} on: {why}"));
        }
    }
    lines
}

fn print(session: &mut Session, result: &Outcome, arguments: &Arguments) -> Result<()> {
    let mut lines = played(&result.report);
    match (&result.report.run_hash, hashes_agree(&result.report)) {
        (None, _) => {}
        (Some(hash), true) => lines.push(format!("  run hash  {hash}, recorded and derived")),
        (Some(hash), false) => {
            lines.push(format!(
                "  run hash  {hash} recorded, {} derived",
                result.report.replay_hash
            ));
        }
    }
    match (result.report.committed, result.report.erased) {
        (0, false) => {}
        (_, true) => {
            lines.push("  sensitive erased: commitments are compared, values are gone".to_owned());
        }
        (count, false) => {
            let values = counted(count, "value", "values");
            lines.push(format!(
                "  sensitive {values} taken as committed to, since nobody can derive salts"
            ));
        }
    }
    if arguments.world {
        lines.push(format!("  world     {}", result.report.world));
        for (resource, value) in result.state.world().iter() {
            lines.push(format!(
                "    {}/{}  v{}  {}",
                resource.type_, resource.id, value.version, value.value
            ));
        }
    }
    for check in &result.checks {
        let verdict = match check.verdict {
            CheckVerdict::Ok => "agrees",
            CheckVerdict::Mismatch => "DIFFERS",
            CheckVerdict::Unknown => "cannot be told",
        };
        let Check { resource, verifier, found, .. } = check;
        lines.push(format!(
            "  outside   {}/{}  {verdict}, by `{verifier}`: {found}",
            resource.type_, resource.id
        ));
    }
    if arguments.confirm && result.checks.is_empty() {
        lines.push("  outside   nothing that it changed has a verifier".to_owned());
    }
    for line in lines {
        session.out.line(visible_lines(&line))?;
    }
    Ok(())
}

/// The decisions that come out otherwise, and how many of which.
fn print_otherwise(session: &mut Session, results: &[Outcome]) -> Result<()> {
    let changed: Vec<&Otherwise> = otherwise(results).collect();
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for one in &changed {
        *counts.entry((word(one.was.verdict), word(one.would_be.verdict))).or_default() += 1;
    }
    let all = decisions(results);
    session.out.line(format!(
        "\n{} of {} would have come out otherwise",
        changed.len(),
        counted(all, "decision", "decisions")
    ))?;
    for ((was, would_be), count) in &counts {
        session.out.line(format!("  {count:>6}  {was} -> {would_be}"))?;
    }
    print_undecided(session, results)?;
    if changed.is_empty() {
        return Ok(());
    }
    let rows: Vec<[String; 7]> = changed
        .iter()
        .take(SHOWN)
        .map(|one| {
            let by = if one.would_be.policies.is_empty() {
                one.would_be.why.clone()
            } else {
                one.would_be.policies.join(", ")
            };
            let id = one.trajectory.to_string();
            let id: String = id.chars().take(10).collect();
            [
                moment::utc(one.at),
                format!("{id}:{}", one.seq),
                one.step.to_string(),
                one.tool.to_string(),
                word(one.was.verdict).to_owned(),
                word(one.would_be.verdict).to_owned(),
                by,
            ]
            .map(|cell| crate::escape::visible(&cell))
        })
        .collect();
    session.out.line("")?;
    for line in table::lines(["when", "entry", "step", "tool", "was", "would be", "by"], &rows) {
        session.out.line(line)?;
    }
    if changed.len() > SHOWN {
        let more = changed.len() - SHOWN;
        session.hint(&format!("{more} more; `--json` has all of them"))?;
    }
    Ok(())
}

/// What nobody can say, and why.
fn print_undecided(session: &mut Session, results: &[Outcome]) -> Result<()> {
    let undecided = undecided(results);
    if undecided > 0 {
        session.out.line(format!("  {undecided:>6}  could not be decided"))?;
    }
    let misfits: Vec<_> = misfits(results).collect();
    if let Some((trajectory, why)) = misfits.first() {
        let count = counted(misfits.len() as u64, "trajectory", "trajectories");
        let why = visible_lines(why);
        session.out.line(format!(
            "passed over: {count} with tools that these policies do not fit; {trajectory}: {why}"
        ))?;
        session.hint(
            "`--tools gesta.toml` decides with the tools of the workspace instead of those of then",
        )?;
    }
    Ok(())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allowed",
        Verdict::Deny => "refused",
        Verdict::Escalate => "asked",
    }
}
