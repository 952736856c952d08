//! Private keys in files: PKCS#8 PEM, readable by their owner only, never overwritten.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use gesta_core::keys::{KeyId, PrivateKey};

use crate::durable::{self, Readers};
use crate::entropy;
use crate::problem::Problem;

/// A key file holds a hundred-odd bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// The name of a key, which names a file too.
pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let spelled = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    if (1..=64).contains(&name.len()) && name.bytes().all(spelled) {
        return Ok(());
    }
    Err(Problem::new(format!("`{name}` cannot be the name of a key"))
        .hint("use lower-case letters, digits, `_` and `-`, at most 64 of them"))
}

/// Where the key of this name is.
pub(crate) fn path(keys: &Path, name: &str) -> PathBuf {
    keys.join(format!("{name}.pem"))
}

/// Draws a new key.
pub(crate) fn draw() -> Result<PrivateKey> {
    Ok(PrivateKey::from_seed(&entropy::bytes()?))
}

/// Keeps a key in a new file.
pub(crate) fn create(path: &Path, key: &PrivateKey) -> Result<()> {
    durable::create(path, key.to_pem()?.as_bytes(), Readers::Owner)
}

/// Reads a key. A file that others can read is refused: they may have the key by now.
pub(crate) fn read(path: &Path) -> Result<PrivateKey> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Problem::new(format!("there is no key file `{shown}`"))
            .hint("this command signs; run it where the key is, or restore the file"),
        _ => Problem::new(format!("cannot read `{shown}`: {error}")),
    })?;
    let metadata = file.metadata().with_context(|| format!("cannot read `{shown}`"))?;
    if let Some(mode) = readable_by_others(&metadata) {
        return Err(Problem::new(format!("the private key `{shown}` is open to others (mode {mode:04o})"))
            .hint(format!("run `chmod 600 {shown}`; if others could have read it, make a new key and revoke this one"))
            .into());
    }
    let mut pem = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut pem)
        .with_context(|| format!("cannot read `{shown}`"))?;
    let key = PrivateKey::from_pem(&pem).with_context(|| format!("cannot use `{shown}`"))?;
    KeyId::parse(&key.id().to_string()).with_context(|| format!("cannot use `{shown}`"))?;
    Ok(key)
}

/// The mode of a file that more than its owner can use.
pub(crate) fn readable_by_others(metadata: &std::fs::Metadata) -> Option<u32> {
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::MetadataExt::mode(metadata) & 0o7777;
        (mode & 0o077 != 0).then_some(mode)
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}
