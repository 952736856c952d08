//! `gesta demo ledger`: write, print, verify, tamper, verify again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Result};
use gesta_core::entry::{Entry, Kind};
use gesta_core::trust::Keyring;
use gesta_core::verification::Class;
use gesta_store::{Store, StoredEntry};
use gesta_verify::engine::Demand;
use gesta_verify::report::{Report, Verdict};
use serde_json::json;

use super::story::{self, Story};
use super::tamper::{self, Changed};
use crate::commands::{log, verify};
use crate::durable::{self, Readers};
use crate::place::Place;
use crate::problem::Problem;
use crate::session::Session;
use crate::sight::Reveal;
use crate::workspace::{self, Config};

const STORE: &str = "gesta.db";
const TAMPERED: &str = "tampered.db";
/// What is changed: an amount, from 1999 to 9999.
const AMOUNT: &[u8] = b"\"amount\":1999";
const DIGIT_AT: usize = AMOUNT.len() - 4;

/// The directory, and whether it goes away afterwards.
enum Home {
    Kept(PathBuf),
    Thrown(tempfile::TempDir),
}

impl Home {
    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Thrown(directory) => directory.path(),
        }
    }
}

pub(super) fn run(session: &mut Session, keep: Option<&Path>) -> Result<u8> {
    let home = home(keep)?;
    let place = Place::Sqlite(home.path().join(STORE));
    let store = session.wait(place.make())?;
    let story = session.wait(story::write(&store))?;
    keep_workspace(home.path(), &story)?;
    let trust = story.trust.keyring()?;
    let kinds = session.wait(kinds(&store, &story))?;
    if let Some(missing) = Kind::ALL.iter().find(|kind| !kinds.contains(kind)) {
        return Err(Problem::new(format!("the demo wrote no `{missing}` entry")).into());
    }

    let quiet = session.out.is_json();
    if !quiet {
        chapter(
            session,
            &format!("1. A ledger with every kind of entry ({} of them)", kinds.len()),
        )?;
        for (name, trajectory) in &story.trajectories {
            session.out.line(format!("\n{name}"))?;
            log::timeline(session, &store, *trajectory, Reveal { reveal: false })?;
        }
        chapter(session, "2. Verified, trusting nothing but the owner's public key")?;
    }
    let sound = examine(session, &store, &trust)?;
    if sound.verdict != Verdict::Sound {
        return Err(Problem::new(format!("the demo's own ledger does not hold:\n{sound}")).into());
    }

    let victim = session.wait(victim(&store, &story))?;
    // Closing it moves everything into the one file.
    drop(store);
    let (tampered, changed) = forge(home.path(), &victim)?;
    if !quiet {
        chapter(session, "3. Someone with access to the disk changes one byte")?;
        session.out.line(format!("  in a copy, `{}`, byte {}:", TAMPERED, changed.offset))?;
        session.out.line(format!("  entry {} of {}", victim.stored.seq, victim.trajectory))?;
        session.out.line("  \"amount\":1999  becomes  \"amount\":9999")?;
        chapter(session, "4. Verified again")?;
    }
    let store = session.wait(Place::Sqlite(tampered).open())?;
    let found = examine(session, &store, &trust)?;
    let named = found.findings.iter().any(|finding| {
        finding.class == Class::Tampered
            && finding.trajectory == Some(victim.trajectory)
            && finding.seq == Some(victim.stored.seq)
    });
    if !named {
        return Err(Problem::new(format!("the changed byte was NOT found:\n{found}")).into());
    }
    conclude(session, &home, &sound, &found)?;
    Ok(0)
}

fn home(keep: Option<&Path>) -> Result<Home> {
    let Some(path) = keep else {
        return Ok(Home::Thrown(tempfile::tempdir().context("cannot make a temporary directory")?));
    };
    std::fs::create_dir_all(path).with_context(|| format!("cannot make `{}`", path.display()))?;
    let mut there =
        std::fs::read_dir(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    if there.next().is_some() {
        return Err(Problem::new(format!("`{}` is not empty", path.display()))
            .hint("name a directory that is, or that is not there yet")
            .into());
    }
    Ok(Home::Kept(path.to_owned()))
}

/// What makes the other commands work in the directory. There are no key files: the demo's keys
/// follow from a number that everybody knows.
fn keep_workspace(directory: &Path, story: &Story) -> Result<()> {
    let config = Config::new(STORE.to_owned(), story.registry);
    let trust = serde_json::to_string_pretty(&story.trust)? + "\n";
    durable::create(&directory.join(&config.trust), trust.as_bytes(), Readers::Everyone)?;
    durable::create(
        &directory.join(workspace::FILE),
        config.to_toml()?.as_bytes(),
        Readers::Everyone,
    )
}

async fn kinds(store: &Arc<dyn Store>, story: &Story) -> Result<BTreeSet<Kind>> {
    let mut kinds = BTreeSet::new();
    for (_, trajectory) in &story.trajectories {
        for stored in store.entries(*trajectory, 0, usize::MAX).await? {
            kinds.insert(Entry::from_bytes(&stored.bytes)?.kind());
        }
    }
    Ok(kinds)
}

/// The entry that will be changed.
struct Victim {
    trajectory: gesta_core::ids::TrajectoryId,
    stored: StoredEntry,
    at: usize,
}

/// The start of the charge: what was authorised, and what may have been paid.
async fn victim(store: &Arc<dyn Store>, story: &Story) -> Result<Victim> {
    for stored in store.entries(story.job, 0, usize::MAX).await? {
        let entry = Entry::from_bytes(&stored.bytes)?;
        let body = &entry.payload().body;
        let charged = body.step().is_some_and(|step| step.as_str() == "charge");
        let at = stored.bytes.windows(AMOUNT.len()).position(|window| window == AMOUNT);
        if let Some(at) = at.filter(|_| charged && body.kind() == Kind::Started) {
            return Ok(Victim { trajectory: story.job, stored, at: at + DIGIT_AT });
        }
    }
    Err(Problem::new("the demo charged nothing").into())
}

fn forge(directory: &Path, victim: &Victim) -> Result<(PathBuf, Changed)> {
    let tampered = directory.join(TAMPERED);
    std::fs::copy(directory.join(STORE), &tampered).context("cannot copy the demo's store")?;
    let changed = tamper::change(&tampered, &victim.stored.bytes, victim.at, b'9')?;
    Ok((tampered, changed))
}

fn examine(session: &mut Session, store: &Arc<dyn Store>, trust: &Keyring) -> Result<Report> {
    let started = Instant::now();
    let report = verify::verify(session, store, &[], trust, (false, &Demand::default()))?;
    if session.out.is_json() {
        return Ok(report);
    }
    let took = started.elapsed().as_secs_f64() * 1000.0;
    let counts = report.counts;
    let (style, word) = match report.verdict {
        Verdict::Sound => {
            (Style::new().bold().fg_color(Some(AnsiColor::Green.into())), "sound".to_owned())
        }
        bad => (Style::new().bold().fg_color(Some(AnsiColor::Red.into())), bad.to_string()),
    };
    session.out.line(format!(
        "  {style}{word}{style:#}: {} trajectories, {} entries, {} signatures, {} links in {took:.0} ms",
        counts.trajectories, counts.entries, counts.signatures, counts.links
    ))?;
    for finding in &report.findings {
        session.out.line(format!("  {}", crate::escape::visible(&finding.to_string())))?;
    }
    Ok(report)
}

fn chapter(session: &mut Session, title: &str) -> Result<()> {
    let bold = Style::new().bold();
    Ok(session.out.line(format!("\n{bold}{title}{bold:#}"))?)
}

fn conclude(session: &mut Session, home: &Home, sound: &Report, found: &Report) -> Result<()> {
    if session.out.is_json() {
        let directory = match home {
            Home::Kept(path) => Some(path),
            Home::Thrown(_) => None,
        };
        return session.out.document(&json!({
            "directory": directory,
            "before": sound,
            "after": found,
        }));
    }
    chapter(session, "What to try next")?;
    match home {
        Home::Thrown(_) => {
            session.out.line("  gesta demo ledger --keep demo   keeps all this to look at")?;
            session.out.line("  gesta init ledger               makes a workspace of your own")?;
        }
        Home::Kept(path) => {
            session.out.line(format!("  cd {}", path.display()))?;
            session.out.line("  gesta log                            lists the trajectories")?;
            session.out.line("  gesta verify                         holds")?;
            session.out.line("  gesta --store tampered.db verify     exits with 3")?;
            session.out.line("  gesta export --all -o demo.gesta     for `gesta-verify`")?;
        }
    }
    Ok(())
}
