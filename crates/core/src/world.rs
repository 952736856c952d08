//! The world: versioned resources, the deltas that change them, and a digest of it all whose cost
//! follows the change and not the size.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};

use crate::content::some;
use crate::digest::Digest;
use crate::ids::ResourceType;
use crate::json::{Canon, JsonError};

/// Names a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceRef {
    /// Which one.
    pub id: Arc<str>,
    /// What kind of thing.
    #[serde(rename = "type")]
    pub type_: ResourceType,
}

impl std::fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.type_, self.id)
    }
}

/// How the outside world names a version of the resource, for confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// An HTTP entity tag.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The resource's name on the other side.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Its version on the other side.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// One change to one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// The resource must not exist; it does then, at version 1.
    Create {
        /// How the outside names it.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        external: Option<External>,
        /// Which resource.
        resource: ResourceRef,
        /// Its value.
        value: Canon,
    },
    /// The resource must be at version `expected`; it is one higher then.
    Replace {
        /// The version that is replaced.
        expected: u64,
        /// How the outside names it.
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        external: Option<External>,
        /// Which resource.
        resource: ResourceRef,
        /// Its new value.
        value: Canon,
    },
    /// The resource must be at version `expected`; it is gone then.
    Retract {
        /// The version that is retracted.
        expected: u64,
        /// Which resource.
        resource: ResourceRef,
    },
}

impl Change {
    /// The resource that is changed.
    pub fn resource(&self) -> &ResourceRef {
        match self {
            Self::Create { resource, .. }
            | Self::Replace { resource, .. }
            | Self::Retract { resource, .. } => resource,
        }
    }
}

/// The changes of one commit. They apply together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delta(pub Vec<Change>);

impl Delta {
    /// The digest of the canonical delta.
    pub fn digest(&self) -> Result<Digest, JsonError> {
        Canon::of(self).map(|canon| Digest::of(canon.as_bytes()))
    }
}

/// Why a delta does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// Create of what is there.
    #[error("resource `{0}` exists already")]
    Exists(ResourceRef),
    /// Replace or retract of what is not there.
    #[error("resource `{0}` does not exist")]
    Missing(ResourceRef),
    /// Replace or retract of another version.
    #[error("resource `{resource}` is at version {actual}, not {expected}")]
    Version {
        /// Which resource.
        resource: ResourceRef,
        /// The version that the delta expects.
        expected: u64,
        /// The version there is.
        actual: u64,
    },
    /// Two changes to one resource in one delta.
    #[error("resource `{0}` is changed twice in one delta")]
    Twice(ResourceRef),
    /// A value without canonical form.
    #[error("resource `{0}` has no canonical form")]
    Uncanonical(ResourceRef),
}

/// A resource as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resource {
    /// How the outside names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Its value.
    pub value: Canon,
    /// How many times it was written.
    pub version: u64,
}

/// All resources of a trajectory. Cloning is cheap: clones share what has not changed since.
#[derive(Clone, Debug, Default)]
pub struct World {
    resources: RedBlackTreeMapSync<ResourceRef, Resource>,
    tree: tree::Tree,
}

impl PartialEq for World {
    /// Equal worlds have equal digests: that is what the digest is for.
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for World {}

impl World {
    /// The digest of the whole world.
    pub fn digest(&self) -> Digest {
        self.tree.root()
    }

    /// A resource.
    pub fn get(&self, resource: &ResourceRef) -> Option<&Resource> {
        self.resources.get(resource)
    }

    /// All resources, by type and id.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceRef, &Resource)> {
        self.resources.iter()
    }

    /// How many resources there are.
    pub fn len(&self) -> usize {
        self.resources.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Whether the delta would apply.
    pub fn check(&self, delta: &Delta) -> Result<(), DeltaError> {
        let mut seen = std::collections::BTreeSet::new();
        for change in &delta.0 {
            let resource = change.resource();
            if !seen.insert(resource) {
                return Err(DeltaError::Twice(resource.clone()));
            }
            let there = self.resources.get(resource).map(|resource| resource.version);
            match (change, there) {
                (Change::Create { .. }, None) => {}
                (Change::Create { .. }, Some(_)) => {
                    return Err(DeltaError::Exists(resource.clone()));
                }
                (Change::Replace { .. } | Change::Retract { .. }, None) => {
                    return Err(DeltaError::Missing(resource.clone()));
                }
                (
                    Change::Replace { expected, .. } | Change::Retract { expected, .. },
                    Some(actual),
                ) => {
                    if *expected != actual {
                        return Err(DeltaError::Version {
                            resource: resource.clone(),
                            expected: *expected,
                            actual,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Applies a delta, whole or not at all.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), DeltaError> {
        self.check(delta)?;
        let prepared = delta.0.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        for (change, prepared) in delta.0.iter().zip(prepared) {
            let resource = change.resource();
            match prepared {
                Some((digest, there)) => {
                    self.tree.insert(key(resource), digest);
                    self.resources.insert_mut(resource.clone(), there);
                }
                None => {
                    self.tree.remove(&key(resource));
                    self.resources.remove_mut(resource);
                }
            }
        }
        Ok(())
    }
}

/// What a change leaves behind, with its digest: everything that can fail, before anything changes.
fn prepare(change: &Change) -> Result<Option<(Digest, Resource)>, DeltaError> {
    let (external, resource, value, version) = match change {
        Change::Create { external, resource, value } => (external, resource, value, 1),
        Change::Replace { expected, external, resource, value } => {
            (external, resource, value, expected + 1)
        }
        Change::Retract { .. } => return Ok(None),
    };
    let there = Resource { external: external.clone(), value: value.clone(), version };
    let canon = Canon::of(&there).map_err(|_| DeltaError::Uncanonical(resource.clone()))?;
    Ok(Some((Digest::of(canon.as_bytes()), there)))
}

fn key(resource: &ResourceRef) -> Digest {
    Digest::of_parts(&[resource.type_.as_str().as_bytes(), resource.id.as_bytes()])
}

mod tree;
