//! The transparency log of a workspace: who seals it, and what it shows of trajectories.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use gesta_core::ids::TrajectoryId;
use gesta_core::log::note::{Algorithm, NoteKey};
use gesta_core::trust::Keyring;
use gesta_core::verification::{Class, Finding};
use gesta_runtime::authority::SEALER;
use gesta_runtime::{Anchored, Prover, RunError, SealError, Sealer, Unfit, log_name};
use gesta_store::{CheckpointRow, Store};
use gesta_verify::engine::Sealing;

use crate::key_file;
use crate::problem::Problem;
use crate::session::Session;
use crate::workshop::Workshop;
use crate::workspace::Workspace;

/// How often workers seal, unless something else is said.
const EVERY_MS: u64 = 10_000;
/// What a single run seals at its end is no more than this: the rest is for workers.
const MAX_LAG: u64 = 10_000;

/// What the log of a workspace is called, in the first epoch of its store.
pub(crate) fn origin(workspace: &Workspace) -> String {
    let config = &workspace.config;
    config.log.origin.clone().unwrap_or_else(|| format!("gesta/{}", config.registry))
}

/// Who seals in a workspace, if the key is there.
pub(crate) fn of(workspace: &Workspace) -> Result<Option<Sealer>> {
    let settings = &workspace.config.log;
    let path = key_file::path(&workspace.keys(), settings.key.as_deref().unwrap_or(SEALER));
    if !path.exists() {
        return Ok(None);
    }
    let key = key_file::read(&path)?;
    let origin = origin(workspace);
    NoteKey::new(&origin, Algorithm::Ed25519, key.id()).map_err(|_| {
        let what =
            format!("`{origin}` cannot be the name of a log: it has a blank or a plus in it");
        Problem::new(what).hint("set `origin` under [log] in gesta.toml").bad_input()
    })?;
    let every_ms = settings.every.map_or(EVERY_MS, |every| every.ms());
    Ok(Some(Sealer { key, origin, every_ms }))
}

/// Who seals in a workspace. One that was made before there was a log has nobody.
pub(crate) fn needed(workspace: &Workspace) -> Result<Sealer> {
    let name = workspace.config.log.key.as_deref().unwrap_or(SEALER);
    of(workspace)?.ok_or_else(|| {
        let path = key_file::path(&workspace.keys(), name);
        Problem::new(format!("nobody seals here: there is no key `{}`", path.display()))
            .hint(format!("`gesta keys add {name} --roles sealer` makes one"))
            .into()
    })
}

/// Whom a workspace takes for witnesses and sealers: its trust root, and its registry.
pub(crate) fn keyring(session: &Session, store: &Arc<dyn Store>) -> Result<Keyring> {
    let mut keyring = Session::trust(None)?.keyring()?;
    keyring.extend(crate::registry::Registry::open(session, store)?.keys());
    Ok(keyring)
}

/// Whether somebody seals in a workspace. The key is not read: nobody is asked for a passphrase.
pub(crate) fn has_sealer(workspace: &Workspace) -> bool {
    key_file::path(&workspace.keys(), workspace.config.log.key.as_deref().unwrap_or(SEALER))
        .exists()
}

/// Seals what a run has left, if that is little. It is no part of the run: what goes wrong is told, and a
/// worker or `gesta seal` makes up for it.
pub(crate) fn after_run(session: &Session, workshop: &Workshop) {
    let path = key_file::path(
        &workshop.workspace.keys(),
        workshop.workspace.config.log.key.as_deref().unwrap_or(SEALER),
    );
    // Nobody is asked for a passphrase at the end of a run.
    if !path.exists() || key_file::is_encrypted(&path) {
        return;
    }
    let sealed = session.wait(async {
        let Some(sealer) = of(&workshop.workspace)? else { return Ok(()) };
        if workshop.store.log().lag().await?.entries <= MAX_LAG {
            let sealed = sealer.seal(&*workshop.store, Session::now()).await?;
            if let Some(checkpoint) = &sealed.checkpoint {
                let anchor = workshop.place.anchor(&workshop.workspace.directory);
                Anchored::note_checkpoint(anchor, &*workshop.store, checkpoint).await?;
            }
        }
        anyhow::Ok(())
    });
    if let Err(error) = sealed {
        Session::note(&format!(
            "warning: the run is not sealed: {error}; `gesta seal` tries again"
        ));
    }
}

/// The key of the log as it is called now: what a witness is told to watch.
pub(crate) async fn note_key(sealer: &Sealer, store: &dyn Store) -> Result<NoteKey> {
    let epoch = store.epochs().epoch().await?.number;
    let name = log_name(&sealer.origin, epoch);
    Ok(NoteKey::new(&name, Algorithm::Ed25519, sealer.id())?)
}

/// Where this machine remembers what a store has acknowledged, if it does.
fn anchor(session: &Session) -> Result<Option<PathBuf>> {
    let place = session.place()?;
    Ok(match (Session::find_workspace()?, place.file()) {
        (Some(workspace), _) => Some(place.anchor(&workspace.directory)),
        (None, Some(_)) => Some(place.anchor(Path::new(""))),
        (None, None) => None,
    })
}

/// That a store is behind what is remembered of it outside, if it is.
pub(crate) fn behind(session: &Session, store: &dyn Store) -> Result<Option<Finding>> {
    let Some(anchor) = anchor(session)? else { return Ok(None) };
    match session.wait(Anchored::compare(&anchor, store)) {
        Ok(()) => Ok(None),
        Err(RunError::Unfit(unfit)) => Ok(Some(finding(&unfit))),
        Err(error) => Err(error.into()),
    }
}

/// Refuses to seal a store that is behind what is remembered of it outside, or is a copy that nobody has
/// restored: the log would go on from less than was published.
pub(crate) fn refuse_behind(session: &Session, store: &dyn Store) -> Result<PathBuf> {
    let anchor = session.place()?.anchor(&Session::workspace()?.directory);
    match session.wait(Anchored::weigh(anchor.clone(), store)) {
        Ok(()) => Ok(anchor),
        Err(RunError::Unfit(unfit)) => Err(Problem::new(format!("nothing was sealed: {unfit}"))
            .class(finding(&unfit).class)
            .into()),
        Err(error) => Err(error.into()),
    }
}

fn finding(unfit: &Unfit) -> Finding {
    let (class, code) = match unfit {
        Unfit::Behind { .. } | Unfit::LogBehind { .. } | Unfit::OlderEpoch { .. } => {
            (Class::Tampered, "rolled_back")
        }
        Unfit::OtherStore { .. } | Unfit::Copy | Unfit::Reopened { .. } => {
            (Class::Incomplete, "other_store")
        }
    };
    let (trajectory, seq) = match unfit {
        Unfit::Behind { trajectory, known, .. } => (Some(*trajectory), Some(known.seq)),
        _ => (None, None),
    };
    Finding { class, code, trajectory, seq, entry: None, what: unfit.to_string() }
}

/// What a checkpoint shows of trajectories: of these, or of all that the log knows. None if others have
/// sealed so much meanwhile that it cannot be shown any more.
pub(crate) async fn evidence(
    store: &dyn Store,
    row: &CheckpointRow,
    trajectories: Option<&[TrajectoryId]>,
) -> Result<Option<Sealing>> {
    let prover = Prover::new(store, row.clone())?;
    let proofs = match trajectories {
        Some(trajectories) => prover.heads(trajectories).await,
        None => prover.all().await,
    };
    match proofs {
        Ok(proofs) => {
            let checkpoint = row.note.clone().into_bytes();
            Ok(Some(Sealing { checkpoint, proofs: proofs.to_bytes()? }))
        }
        Err(SealError::Map(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How often [`evidence`] is asked for, from a new checkpoint on, before it is given up.
pub(crate) const TRIES: u32 = 5;

/// Nothing could be shown, however often it was tried.
pub(crate) fn not_shown() -> Problem {
    Problem::new("the map of heads is damaged, or the log grows faster than it can be read")
        .hint("try again while nobody seals")
        .class(Class::Incomplete)
}
