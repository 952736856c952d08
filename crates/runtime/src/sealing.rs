//! The sealer: puts what is new into the transparency log and signs a checkpoint of it. Reads from top to
//! bottom; there is one commit point. Whoever dies before it leaves nothing, and whoever seals next does
//! all of it again. Of two at once one wins, and the other begins anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::{Entry, Head};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::JsonError;
use gesta_core::keys::{KeyId, PrivateKey};
use gesta_core::log::checkpoint::{Checkpoint, CheckpointError};
use gesta_core::log::map::{self, Descent, MissingNode, Update};
use gesta_core::log::note::{Note, NoteError};
use gesta_core::log::tiles::{Edge, TileError, Tiles};
use gesta_core::log::{Leaf, tree};
use gesta_core::time::UnixMs;
use gesta_core::trust::{Distrust, Keyring, Role};
use gesta_store::{CheckpointRow, Run, Seal, Store, StoreError, UnsealedRow, Which};

use crate::cut;
use crate::desk::{Event, Shared};

/// How many trajectories and entries are sealed at once.
const MAX_TRAJECTORIES: usize = 512;
const MAX_LEAVES: usize = 16_384;
/// How many entries are read at a time.
const PAGE: usize = 1024;
/// For how long the heads of the newest witnessed checkpoint can be shown while no newer one is witnessed.
const KEEP_WITNESSED_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// Who seals.
#[derive(Clone, Debug)]
pub struct Sealer {
    /// The key that signs checkpoints.
    pub key: PrivateKey,
    /// What the log is called in the first epoch of the store: see [`log_name`].
    pub origin: String,
    /// How often a worker seals, at most.
    pub every_ms: u64,
}

/// Why nothing could be sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The newest checkpoint is not one.
    #[error("the newest checkpoint of the log is damaged: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The tiles are not those of the newest checkpoint.
    #[error("the log is damaged: {0}")]
    Tiles(#[from] TileError),
    /// The nodes of the map are not those of the newest checkpoint.
    #[error("the log is damaged: {0}")]
    Map(#[from] MissingNode),
    /// The tiles do not give the root that was signed.
    #[error("the log is damaged: its tiles do not have the root of the checkpoint with {0} leaves")]
    Root(u64),
    /// The log goes by another name.
    #[error(
        "the log is called `{log}`, not `{given}`; a log keeps its name, and one that goes on in a restored copy adds the epoch to it: set `origin` under [log] in gesta.toml to it, without the epoch"
    )]
    Origin {
        /// Its name.
        log: String,
        /// The name that was given.
        given: String,
    },
    /// The name cannot be one.
    #[error(transparent)]
    Name(#[from] NoteError),
    /// The key does not count.
    #[error("checkpoints cannot be signed: {0}")]
    Distrust(#[from] Distrust),
    /// A value has no canonical form.
    #[error(transparent)]
    Json(#[from] JsonError),
}

/// What came of one try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// The checkpoint that was signed; none if there was nothing new, or somebody else was first.
    pub checkpoint: Option<Checkpoint>,
    /// Trajectories whose entries do not go on from what the log holds, and why: they are left out.
    pub left_out: Vec<(TrajectoryId, String)>,
    /// Whether there may be more to seal.
    pub more: bool,
}

impl Sealer {
    /// Whether checkpoints that this key signs now count.
    pub fn may_sign(&self, registry: &Keyring, now: UnixMs) -> Result<(), Distrust> {
        registry.check(self.key.id(), &[Role::Sealer], None, now)
    }

    /// The public half of the key.
    pub fn id(&self) -> KeyId {
        self.key.id()
    }

    /// Seals what is new, batch after batch, until nothing is. Says what came of the last that signed
    /// anything.
    pub async fn seal(&self, store: &dyn Store, now: UnixMs) -> Result<Sealed, SealError> {
        let (mut all, mut after) = (Sealed::default(), None);
        loop {
            let once = self.seal_once(store, &mut after, now).await?;
            all.checkpoint = once.checkpoint.or(all.checkpoint);
            // Whoever was outrun looks at the same trajectories again.
            let known = |one: &_| all.left_out.contains(one);
            let fresh: Vec<_> = once.left_out.into_iter().filter(|one| !known(one)).collect();
            all.left_out.extend(fresh);
            if !once.more {
                return Ok(all);
            }
        }
    }

    /// Seals one batch of what is new, of trajectories after this one.
    async fn seal_once(
        &self,
        store: &dyn Store,
        after: &mut Option<TrajectoryId>,
        now: UnixMs,
    ) -> Result<Sealed, SealError> {
        let log = store.log();
        let Before { epoch, row, checkpoint: before, mut edge } = self.before(store).await?;
        let behind = log.unsealed(*after, MAX_TRAJECTORIES).await?;
        *after = behind.last().map(|row| row.trajectory);
        let more = behind.len() == MAX_TRAJECTORIES;
        let mut sealed = Sealed { more, ..Sealed::default() };
        let mut batch = Batch::default();
        for unsealed in behind {
            if batch.leaves >= MAX_LEAVES {
                // The rest of it, and those after it, come next.
                *after = batch.last;
                sealed.more = true;
                break;
            }
            match batch.take(store, unsealed, &mut edge).await? {
                Ok(()) => {}
                Err(why) => sealed.left_out.push((unsealed.trajectory, why)),
            }
        }
        if batch.runs.is_empty() {
            return Ok(sealed);
        }
        let update = match heads(store, before.map, &batch.values).await {
            Err(SealError::Map(_)) if outrun(store, row).await? => {
                // Others have sealed meanwhile, and the map as it was is forgotten.
                (*after, sealed.more) = (None, true);
                return Ok(sealed);
            }
            update => update?,
        };
        let at = now.max(before.at);
        let (size, root, map) = (edge.size(), edge.root(), update.root);
        let checkpoint = Checkpoint { origin: before.origin, size, root, map, at };
        let note = checkpoint.sign(&self.key)?.to_string();
        cut::here("before_seal");
        let seal = Seal {
            epoch,
            from: row,
            checkpoint: CheckpointRow { size, at, witnesses: 0, note },
            runs: batch.runs,
            tiles: edge.changed(),
            added: update.added.iter().map(|(h, node)| (*h, node.to_bytes().to_vec())).collect(),
            replaced: update.replaced.into_iter().collect(),
            forget: forget(store, row, now).await?,
        };
        // Commit point: the log has grown, and its checkpoint is signed.
        let won = log.seal(&seal).await?;
        cut::here("after_seal");
        if won {
            sealed.checkpoint = Some(checkpoint);
        } else {
            // Whoever was first has sealed some of it, or opened an epoch: look again, from the beginning.
            (*after, sealed.more) = (None, true);
        }
        Ok(sealed)
    }

    /// The log as it stands, with the edge that it grows from.
    async fn before(&self, store: &dyn Store) -> Result<Before, SealError> {
        let epoch = store.epochs().epoch().await?.number;
        let name = log_name(&self.origin, epoch);
        let newest = store.log().checkpoint(Which::Newest).await?;
        let Some(row) = newest else {
            let edge = Edge::new(0, &Tiles::default())?;
            let (origin, root) = (name, tree::empty_root());
            let checkpoint = Checkpoint { origin, size: 0, root, map: map::EMPTY, at: UnixMs(0) };
            return Ok(Before { epoch, row: 0, checkpoint, edge });
        };
        let note = Note::parse(row.note.as_bytes()).map_err(CheckpointError::Note)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        if epoch_of(&self.origin, &checkpoint.origin).is_none_or(|sealed| sealed > epoch) {
            let (log, given) = (checkpoint.origin, name);
            return Err(SealError::Origin { log, given });
        }
        let tiles = store.log().tiles(&Edge::wanted(checkpoint.size)).await?;
        let edge = Edge::new(checkpoint.size, &Tiles::new(tiles)?)?;
        if edge.root() != checkpoint.root {
            return Err(SealError::Root(checkpoint.size));
        }
        let checkpoint = Checkpoint { origin: name, ..checkpoint };
        Ok(Before { epoch, row: checkpoint.size, checkpoint, edge })
    }
}

/// What a log is called in an epoch of its store. A copy that was restored has forgotten what was sealed
/// after it was made, and what it seals does not go on from there: under the same name it would be a
/// split view, which witnesses refuse. So it is another log, with a name of its own.
pub fn log_name(origin: &str, epoch: u64) -> String {
    match epoch {
        0 | 1 => origin.to_owned(),
        _ => format!("{origin}/epoch-{epoch}"),
    }
}

/// The epoch in which a log of this origin goes by this name.
fn epoch_of(origin: &str, name: &str) -> Option<u64> {
    let epoch = match name.strip_prefix(origin)? {
        "" => 1,
        rest => rest.strip_prefix("/epoch-")?.parse().ok()?,
    };
    (log_name(origin, epoch) == name).then_some(epoch)
}

/// What a seal goes on from. The checkpoint goes by the name of the log as it is now.
struct Before {
    epoch: u64,
    row: u64,
    checkpoint: Checkpoint,
    edge: Edge,
}

/// What is to be sealed.
#[derive(Default)]
struct Batch {
    leaves: usize,
    runs: Vec<Run>,
    /// The new heads, as the map holds them.
    values: BTreeMap<Digest, Digest>,
    /// The last trajectory that was taken whole.
    last: Option<TrajectoryId>,
}

impl Batch {
    /// Takes what is new of a trajectory, as much as fits. Entries that do not go on from what the log
    /// holds are not taken: the inner error says why.
    async fn take(
        &mut self,
        store: &dyn Store,
        unsealed: UnsealedRow,
        edge: &mut Edge,
    ) -> Result<Result<(), String>, SealError> {
        let UnsealedRow { trajectory, from, to } = unsealed;
        let mut last: Option<Head> = match from.checked_sub(1) {
            Some(before) => {
                store.log().run_before(trajectory, before).await?.and_then(|run| run.head())
            }
            None => None,
        };
        let mut ids: Vec<EntryId> = Vec::new();
        let mut next = from;
        while next <= to && self.leaves + ids.len() < MAX_LEAVES {
            let page = match store.entries(trajectory, next, PAGE).await {
                // One that was archived before anybody sealed stops nobody else.
                Err(archived @ StoreError::Archived { .. }) => {
                    return Ok(Err(archived.to_string()));
                }
                page => page?,
            };
            for stored in page.iter().filter(|stored| stored.seq <= to) {
                let entry = Entry::from_bytes(&stored.bytes).ok();
                let entry = entry.filter(|entry| entry.id() == stored.id && entry.seq() == next);
                let follows =
                    entry.filter(|entry| entry.payload().parent == last.map(|last| last.id));
                if follows.is_none() {
                    let what = "does not go on from what the log holds, or was altered";
                    return Ok(Err(format!("entry {next} {what}")));
                }
                last = Some(Head { id: stored.id, seq: next });
                ids.push(stored.id);
                next += 1;
            }
            if page.is_empty() {
                return Ok(Err(format!("entry {next} is missing")));
            }
        }
        let Some(head) = last else { return Ok(Ok(())) };
        let first_leaf = edge.size();
        for (seq, id) in (from..).zip(&ids) {
            edge.push(Leaf::new(trajectory, Head { id: *id, seq }).hash()?);
        }
        self.leaves += ids.len();
        self.values.insert(map::key(trajectory), Leaf::new(trajectory, head).hash()?);
        self.runs.push(Run { first_leaf, trajectory, first_seq: from, ids });
        if next > to {
            self.last = Some(trajectory);
        }
        Ok(Ok(()))
    }
}

/// The map with new heads.
async fn heads(
    store: &dyn Store,
    root: Digest,
    values: &BTreeMap<Digest, Digest>,
) -> Result<Update, SealError> {
    let mut descent = Descent::new(root, values.keys().copied());
    while !descent.wanted().is_empty() {
        let found = store.log().map_nodes(&descent.wanted()).await?;
        descent.supply(&found.into_iter().collect())?;
    }
    Ok(descent.update(values)?)
}

/// Whether somebody else has sealed since the log had this many leaves.
async fn outrun(store: &dyn Store, size: u64) -> Result<bool, StoreError> {
    Ok(store.log().checkpoint(Which::Newest).await?.is_some_and(|row| row.size != size))
}

/// Heads can be shown as of the newest checkpoint, the one before it, and the newest that was witnessed.
async fn forget(store: &dyn Store, newest: u64, now: UnixMs) -> Result<u64, StoreError> {
    let witnessed = store.log().checkpoint(Which::Witnessed).await?;
    let kept = witnessed.filter(|row| row.at.plus(KEEP_WITNESSED_MS) > now);
    Ok(kept.map_or(newest, |row| row.size.min(newest)))
}

/// Seals now and then, for as long as the worker lives. Workers that share a store take turns: nobody seals
/// before the newest checkpoint has come of age.
pub(crate) async fn keep(shared: Arc<Shared>, sealer: Sealer) {
    let every = Duration::from_millis(sealer.every_ms.max(1));
    let mut told = String::new();
    loop {
        tokio::time::sleep(every).await;
        let now = shared.pulse.now();
        let trusted = match shared.registry() {
            Some(state) => sealer.may_sign(state.registry().keys(), now).map_err(SealError::from),
            None => Ok(()),
        };
        let done = match (trusted, due(&*shared.store, sealer.every_ms, now).await) {
            (Err(error), _) => Err(error),
            (Ok(()), Ok(false)) => continue,
            (Ok(()), Ok(true)) => sealer.seal(&*shared.store, now).await,
            (Ok(()), Err(error)) => Err(error.into()),
        };
        let trouble = match done {
            Ok(sealed) => {
                if let (Some(anchor), Some(checkpoint)) = (&shared.anchor, &sealed.checkpoint) {
                    anchor.note_checkpoint(checkpoint);
                }
                sealed.left_out.first().map(|(id, why)| format!("{id} is not sealed: {why}"))
            }
            Err(error) => Some(format!("nothing is sealed: {error}")),
        };
        // What goes on is told once.
        if let Some(trouble) = trouble.clone().filter(|trouble| *trouble != told) {
            tracing::error!("{trouble}");
            shared.tell(|| Event::Note(trouble));
        }
        told = trouble.unwrap_or_default();
    }
}

/// Whether it is time for a new checkpoint.
async fn due(store: &dyn Store, every_ms: u64, now: UnixMs) -> Result<bool, StoreError> {
    let newest = store.log().checkpoint(Which::Newest).await?;
    // Half of it, so that two whose clocks differ a little do not wait for each other in turn.
    Ok(newest.is_none_or(|row| row.at.plus(every_ms / 2) <= now))
}
