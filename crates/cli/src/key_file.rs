//! Private keys in files: PKCS#8 PEM, plain or under a passphrase, readable by their owner only, never
//! overwritten by a new key.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use gesta_core::keys::{KeyId, PrivateKey};
use pkcs8::der::pem::LineEnding;
use pkcs8::{EncryptedPrivateKeyInfoRef, PrivateKeyInfoRef, SecretDocument};
use zeroize::Zeroizing;

use crate::durable::{self, Beside, Readers};
use crate::entropy;
use crate::passphrase;
use crate::problem::Problem;

const PLAIN: &str = "PRIVATE KEY";
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

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

/// Keeps a key in a new file, under a passphrase if there is one.
pub(crate) fn create(path: &Path, key: &PrivateKey, passphrase: Option<&str>) -> Result<()> {
    durable::create(path, text(key, passphrase)?.as_bytes(), Readers::Owner)
}

/// Keeps the same key in the file that it is in, under another passphrase or none.
pub(crate) fn replace(path: &Path, key: &PrivateKey, passphrase: Option<&str>) -> Result<()> {
    let mut beside = Beside::new(path, Readers::Owner)?;
    beside.file().write_all(text(key, passphrase)?.as_bytes())?;
    beside.replace()
}

fn text(key: &PrivateKey, passphrase: Option<&str>) -> Result<Zeroizing<String>> {
    let pem = Zeroizing::new(key.to_pem()?);
    let Some(passphrase) = passphrase else { return Ok(pem) };
    let failed = |error: &dyn std::fmt::Display| anyhow!("the key cannot be encrypted: {error}");
    let (_, der) = SecretDocument::from_pem(&pem).map_err(|error| failed(&error))?;
    let key = PrivateKeyInfoRef::try_from(der.as_bytes()).map_err(|error| failed(&error))?;
    let encrypted = key.encrypt(passphrase).map_err(|error| failed(&error))?;
    encrypted.to_pem(ENCRYPTED, LineEnding::LF).map_err(|error| failed(&error))
}

/// Takes the passphrase off.
fn decrypt(pem: &str, passphrase: &str) -> Result<Zeroizing<String>, pkcs8::Error> {
    let (_, der) = SecretDocument::from_pem(pem)?;
    let key = EncryptedPrivateKeyInfoRef::try_from(der.as_bytes())?.decrypt(passphrase)?;
    Ok(key.to_pem(PLAIN, LineEnding::LF)?)
}

/// Whether a file is under a passphrase.
pub(crate) fn is_encrypted(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| encrypted(&text))
}

fn encrypted(pem: &str) -> bool {
    pem.contains(&format!("-----BEGIN {ENCRYPTED}-----"))
}

/// The key of this id among the files of a directory. Those that need no passphrase are read first.
pub(crate) fn find(keys: &Path, id: KeyId) -> Result<Option<PrivateKey>> {
    let unreadable = || format!("cannot read `{}`", keys.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(keys).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "pem") {
            files.push((is_encrypted(&path), path));
        }
    }
    files.sort();
    for (_, path) in files {
        let key = read(&path)?;
        if key.id() == id {
            return Ok(Some(key));
        }
    }
    Ok(None)
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
    let mut pem = Zeroizing::new(String::new());
    file.take(MAX_BYTES)
        .read_to_string(&mut pem)
        .with_context(|| format!("cannot read `{shown}`"))?;
    if encrypted(&pem) {
        let passphrase = passphrase::of(&format!("`{shown}`"))?;
        pem = decrypt(&pem, &passphrase).map_err(|_| {
            Problem::new(format!("the passphrase does not open `{shown}`")).hint(
                "`GESTA_PASSPHRASE` holds it, or `GESTA_PASSPHRASE_FILE` names a file with it",
            )
        })?;
    }
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
