//! Secrets of tools: declared by name, found at each call, held no longer than it, and masked in
//! whatever comes back.

mod guarded;
mod mask;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, de};
use zeroize::Zeroizing;

pub(super) use guarded::{Guarded, Transport};
pub(crate) use mask::Mask;

/// Shorter values would be masked where they are not meant.
const SHORTEST: usize = 4;
const LONGEST: usize = 64 << 10;

/// The name of a secret: letters, digits and `_`, not beginning with a digit, at most 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SecretName(Arc<str>);

/// A name that no secret can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not the name of a secret; use letters, digits and `_`, no digit first, at most 64 characters"
)]
pub struct BadSecretName(String);

impl SecretName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = BadSecretName;

    fn from_str(text: &str) -> Result<Self, BadSecretName> {
        let starts_well = !text.starts_with(|c: char| c.is_ascii_digit());
        let spelled = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if starts_well && spelled && (1..=64).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(BadSecretName(text.to_owned()))
        }
    }
}

impl<'de> Deserialize<'de> for SecretName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Where a secret is found, at each call anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretSource {
    /// In a variable of the worker's environment.
    Env(String),
    /// In a file; one newline at its end does not count. A relative path begins at the directory of
    /// the declaring file.
    File(PathBuf),
}

/// A secret that cannot be had. Says where it was looked for and never what was found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("secret `{name}` {problem}")]
pub(super) struct SecretError {
    name: SecretName,
    problem: Problem,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("is not set; set the variable `{0}` in the worker's environment")]
    NotSet(String),
    #[error("cannot be read from `{path}`: {why}")]
    Unreadable { path: String, why: String },
    #[error("from {0} is shorter than {SHORTEST} bytes, too short to be masked")]
    TooShort(String),
    #[error("from {0} is larger than {LONGEST} bytes")]
    TooLong(String),
    #[error("from {0} holds a NUL byte, which no environment variable or header can")]
    Nul(String),
}

/// The secrets of one call. Their memory is overwritten when it is over.
#[derive(Default)]
pub(super) struct Secrets(Vec<(SecretName, Zeroizing<Vec<u8>>)>);

/// Names only.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Secrets {
    /// Finds every secret, or says which cannot be had.
    pub(super) fn find(
        sources: &BTreeMap<SecretName, SecretSource>,
        base_dir: &Path,
    ) -> Result<Self, SecretError> {
        let find = |(name, source): (&SecretName, &SecretSource)| {
            let value = source.find(base_dir);
            let value = value.map_err(|problem| SecretError { name: name.clone(), problem })?;
            Ok((name.clone(), value))
        };
        sources.iter().map(find).collect::<Result<_, _>>().map(Self)
    }

    /// The value of one.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| known.as_str() == name).map(|(_, value)| value)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SecretName, &[u8])> {
        self.0.iter().map(|(name, value)| (name, value.as_slice()))
    }
}

impl SecretSource {
    fn find(&self, base_dir: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
        use std::os::unix::ffi::OsStringExt as _;

        let (mut value, place) = match self {
            Self::Env(variable) => match std::env::var_os(variable) {
                Some(value) => (value.into_vec(), format!("the variable `{variable}`")),
                None => return Err(Problem::NotSet(variable.clone())),
            },
            Self::File(path) => {
                let path = base_dir.join(path);
                let shown = path.display().to_string();
                match std::fs::read(&path) {
                    Ok(value) => (value, format!("`{shown}`")),
                    Err(error) => {
                        return Err(Problem::Unreadable { path: shown, why: error.to_string() });
                    }
                }
            }
        };
        if matches!(self, Self::File(_)) && value.last() == Some(&b'\n') {
            value.pop();
        }
        let value = Zeroizing::new(value);
        match value.len() {
            ..SHORTEST => Err(Problem::TooShort(place)),
            SHORTEST..=LONGEST if value.contains(&0) => Err(Problem::Nul(place)),
            SHORTEST..=LONGEST => Ok(value),
            _ => Err(Problem::TooLong(place)),
        }
    }
}
