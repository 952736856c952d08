//! Sensitive values: committed to, sealed under the data key of their family, opened for whoever calls a
//! tool or may look. What stands in entries is only ever the commitment.
//!
//! A family is a trajectory with everything below it: its children and branches hand committed values
//! on, so they share the key of the trajectory that begins it.

mod cipher;

use std::collections::BTreeMap;
use std::sync::Arc;

use gesta_core::body::{Mandate, Purpose};
use gesta_core::digest::Digest;
use gesta_core::entry::{Body, Entry};
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::sensitive::{Commitment, Marks, Opening, Salt, commitments, may_hold};
use gesta_store::{DataKey, DataKeys, Kept, Store, StoreError};
use serde_json::Value;

use crate::desk::OUTPUT_LIMITS;
use crate::error::RunError;
use crate::home::fill;

/// Fills bytes with what nobody can guess: salts, nonces and data keys.
pub type Entropy = Arc<dyn Fn(&mut [u8]) -> Result<(), String> + Send + Sync>;

/// How many trajectories a family has above one of its members, at most.
const ABOVE_MOST: usize = 1_000;

/// Where sensitive values are kept: sealed in the store, their keys apart from it.
#[derive(Clone)]
pub struct Vault {
    store: Arc<dyn Store>,
    keys: Arc<dyn DataKeys>,
    entropy: Entropy,
}

/// What can be had of a family's values.
#[derive(Clone)]
pub enum Held {
    /// Nothing was ever sealed here, or the key is somewhere else.
    Nothing,
    /// They can be opened.
    Safe(Arc<Safe>),
    /// The key was destroyed; this is its digest.
    Erased(Digest),
}

/// The values of one family, with their key in hand.
pub struct Safe {
    vault: Vault,
    family: TrajectoryId,
    key: DataKey,
}

impl Vault {
    /// A vault over a store, with its keys in another place.
    pub fn new(store: Arc<dyn Store>, keys: Arc<dyn DataKeys>) -> Self {
        Self { store, keys, entropy: Arc::new(fill) }
    }

    /// The same, with random bytes from elsewhere.
    #[must_use]
    pub fn drawing_from(self, entropy: Entropy) -> Self {
        Self { entropy, ..self }
    }

    /// Where the keys are, for people.
    pub fn place(&self) -> String {
        self.keys.place()
    }

    /// The trajectory that begins the family of this one: itself, unless it is a child or a branch.
    pub async fn family(&self, trajectory: TrajectoryId) -> Result<TrajectoryId, RunError> {
        let mut family = trajectory;
        for _ in 0..ABOVE_MOST {
            match above(&self.store, family).await? {
                Some(above) => family = above,
                None => break,
            }
        }
        Ok(family)
    }

    /// The values of a family, whose key is made if there is none.
    pub async fn ensure(&self, family: TrajectoryId) -> Result<Arc<Safe>, RunError> {
        let fresh = DataKey::new(self.draw()?);
        match self.keys.ensure(family, &fresh).await? {
            Kept::Key(key) => Ok(Arc::new(Safe { vault: self.clone(), family, key })),
            Kept::Destroyed(_) => Err(RunError::Erased(family)),
            Kept::Nothing => Err(self.no_key(family)),
        }
    }

    /// What can be had of a family's values.
    pub async fn held(&self, family: TrajectoryId) -> Result<Held, RunError> {
        Ok(match self.keys.key(family).await? {
            Kept::Key(key) => Held::Safe(Arc::new(Safe { vault: self.clone(), family, key })),
            Kept::Destroyed(digest) => Held::Erased(digest),
            Kept::Nothing => Held::Nothing,
        })
    }

    /// The values of a family that must be there.
    pub async fn safe(&self, family: TrajectoryId) -> Result<Arc<Safe>, RunError> {
        match self.held(family).await? {
            Held::Safe(safe) => Ok(safe),
            Held::Erased(_) => Err(RunError::Erased(family)),
            Held::Nothing => Err(self.no_key(family)),
        }
    }

    /// Destroys a family's key, and says which it was. Once it is gone, so are the values, in every copy of
    /// the store.
    pub async fn destroy(&self, family: TrajectoryId) -> Result<Option<Digest>, RunError> {
        match self.keys.destroy(family).await? {
            Kept::Destroyed(digest) => Ok(Some(digest)),
            Kept::Key(_) | Kept::Nothing => Ok(None),
        }
    }

    /// The families whose keys were destroyed, and which keys these were.
    pub async fn destroyed(&self) -> Result<Vec<(TrajectoryId, Digest)>, RunError> {
        Ok(self.keys.destroyed().await?)
    }

    fn no_key(&self, family: TrajectoryId) -> RunError {
        RunError::NoDataKey { trajectory: family, place: self.keys.place() }
    }

    fn draw<const N: usize>(&self) -> Result<[u8; N], RunError> {
        let mut bytes = [0; N];
        (self.entropy)(&mut bytes).map_err(RunError::Entropy)?;
        Ok(bytes)
    }
}

impl Safe {
    /// Whose values these are.
    pub fn family(&self) -> TrajectoryId {
        self.family
    }

    /// Commits to values and seals their openings. They are durable when this returns.
    pub async fn seal(&self, values: &[Value]) -> Result<Vec<Commitment>, RunError> {
        let mut commitments = Vec::with_capacity(values.len());
        let mut noted = Vec::with_capacity(values.len());
        for value in values {
            let opening = Opening { salt: Salt(self.vault.draw()?), value: canon(value)? };
            let commitment = opening.commitment()?;
            let text = zeroize::Zeroizing::new(gesta_core::json::to_canonical_within(
                &opening,
                OUTPUT_LIMITS,
            )?);
            let sealed = self.seal_for(&self.bound(&commitment), &text)?;
            let blob = self.vault.store.put_blob(&sealed).await?;
            noted.push((commitment.hmac, blob.sha256));
            commitments.push(commitment);
        }
        if !noted.is_empty() {
            self.vault.keys.note(self.family, &noted).await?;
        }
        Ok(commitments)
    }

    /// The values at marked places replaced by commitments, those that are committed to already left as
    /// they are.
    pub async fn protect(&self, value: &Canon, marks: &Marks) -> Result<Canon, RunError> {
        let mut tree: Value = read(value)?;
        let (places, values): (Vec<String>, Vec<Value>) = marks.clear(&tree).into_iter().unzip();
        let commitments = self.seal(&values).await?;
        for (pointer, commitment) in places.iter().zip(commitments) {
            if let Some(place) = tree.pointer_mut(pointer) {
                *place = commitment.value();
            }
        }
        canon(&tree)
    }

    /// What a commitment stands for.
    pub async fn opening(&self, commitment: &Commitment) -> Result<Opening, RunError> {
        let unopened = |why: String| RunError::Unopened { commitment: commitment.hmac, why };
        let blob = self.vault.keys.opening(self.family, commitment.hmac).await?;
        let blob = blob.ok_or_else(|| unopened("nothing was sealed for it here".to_owned()))?;
        let sealed = self.vault.store.blob(blob).await?;
        let sealed = sealed.ok_or_else(|| unopened(format!("blob {blob} is missing")))?;
        let text = cipher::open(&self.key, &self.bound(commitment), &sealed)
            .map_err(|error| unopened(error.to_string()))?;
        let opening: Opening = Canon::parse_within(&text, OUTPUT_LIMITS)?.read()?;
        if opening.commitment()? != *commitment {
            return Err(unopened("what was sealed is not what was committed to".to_owned()));
        }
        Ok(opening)
    }

    /// A value with every commitment in it opened, and the opened values by their JSON pointers.
    pub async fn open(&self, value: &Canon) -> Result<(Canon, BTreeMap<String, Value>), RunError> {
        let mut opened = BTreeMap::new();
        if !may_hold(value.as_bytes()) {
            return Ok((value.clone(), opened));
        }
        let mut tree: Value = read(value)?;
        for (pointer, commitment) in commitments(&tree) {
            let value: Value = read(&self.opening(&commitment).await?.value)?;
            if let Some(place) = tree.pointer_mut(&pointer) {
                place.clone_from(&value);
            }
            opened.insert(pointer, value);
        }
        Ok((canon(&tree)?, opened))
    }

    /// Seals what a tool returned, as it was received.
    pub fn seal_output(&self, output: &[u8]) -> Result<Vec<u8>, RunError> {
        self.seal_for(&self.bound_output(), output)
    }

    /// Whether what a tool returned was sealed.
    pub fn is_sealed(kept: &[u8]) -> bool {
        cipher::is_sealed(kept)
    }

    /// Opens what a tool returned, if it was sealed.
    pub fn open_output(&self, kept: &[u8]) -> Result<Vec<u8>, RunError> {
        if !cipher::is_sealed(kept) {
            return Ok(kept.to_vec());
        }
        let text = cipher::open(&self.key, &self.bound_output(), kept);
        let unopened = |error: cipher::Unsealable| RunError::Unopened {
            commitment: Digest::of(kept),
            why: error.to_string(),
        };
        Ok(text.map_err(unopened)?.to_vec())
    }

    fn seal_for(&self, bound: &[u8], bytes: &[u8]) -> Result<Vec<u8>, RunError> {
        let nonce = self.vault.draw()?;
        cipher::seal(&self.key, &nonce, bound, bytes)
            .map_err(|error| RunError::Entropy(format!("it cannot be sealed: {error}")))
    }

    fn bound(&self, commitment: &Commitment) -> Vec<u8> {
        format!("gesta.opening.v1 {} {}", self.family, commitment.hmac).into_bytes()
    }

    fn bound_output(&self) -> Vec<u8> {
        format!("gesta.output.v1 {}", self.family).into_bytes()
    }
}

/// The canonical form of a value that may be as large as a tool's output.
pub(crate) fn canon(value: &Value) -> Result<Canon, RunError> {
    Ok(Canon::parse_within(value.to_string().as_bytes(), OUTPUT_LIMITS)?)
}

fn read(value: &Canon) -> Result<Value, RunError> {
    serde_json::from_str(value.as_str()).map_err(|error| {
        RunError::Chain(StoreError::Damaged { what: format!("a value: {error}") }.into())
    })
}

/// The trajectory that this one is a child or a branch of.
pub async fn above(
    store: &Arc<dyn Store>,
    trajectory: TrajectoryId,
) -> Result<Option<TrajectoryId>, RunError> {
    let Some(first) = store.entries(trajectory, 0, 1).await?.into_iter().next() else {
        return Ok(None);
    };
    let entry = Entry::from_bytes(&first.bytes)
        .map_err(|why| StoreError::Damaged { what: format!("entry 0 of {trajectory}: {why}") })?;
    let by = |mandate: &Mandate| mandate.delegated_by.as_ref().map(|by| by.trajectory);
    Ok(match &entry.payload().body {
        Body::Root(root) => match &root.purpose {
            Purpose::Job(mandate) | Purpose::Session(mandate) => by(mandate),
            Purpose::Registry { .. } => None,
        },
        Body::Branch(branch) => Some(branch.source),
        _ => None,
    })
}
