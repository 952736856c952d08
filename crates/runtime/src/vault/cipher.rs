//! Sealing bytes under a data key, so that one ciphertext opens under one key only: from key and a random
//! nonce, HKDF-SHA256 gives an AES-256-GCM key of its own and a value that commits to the key.
//!
//! Sealed: `gesta.s0`, nonce (32 bytes), commitment (32 bytes), ciphertext with its tag (16 bytes).

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use gesta_store::DataKey;
use zeroize::Zeroizing;

/// What sealed bytes begin with, and the version of how they are.
const MAGIC: &[u8; 8] = b"gesta.s0";
const NONCE: usize = 32;
const COMMITMENT: usize = 32;

/// Why sealed bytes do not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsealable {
    #[error("it is not sealed, or was sealed by a newer program")]
    Form,
    #[error("it was sealed under another key")]
    Key,
    #[error("it was altered, or belongs to something else")]
    Altered,
}

/// Whether bytes look sealed.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.len() > MAGIC.len() + NONCE + COMMITMENT && bytes.starts_with(MAGIC)
}

/// Seals bytes. `bound` says what they belong to and must be the same when they are opened; the nonce is
/// random and never used again.
pub(crate) fn seal(
    key: &DataKey,
    nonce: &[u8; NONCE],
    bound: &[u8],
    bytes: &[u8],
) -> Result<Vec<u8>, Unsealable> {
    let (commitment, key) = derive(key, nonce)?;
    let mut sealed = Vec::with_capacity(MAGIC.len() + NONCE + COMMITMENT + bytes.len() + 16);
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(nonce);
    sealed.extend_from_slice(&commitment);
    let mut text = bytes.to_vec();
    key.seal_in_place_append_tag(once(), Aad::from(bound), &mut text)
        .map_err(|_| Unsealable::Form)?;
    sealed.append(&mut text);
    Ok(sealed)
}

/// Opens what was sealed under this key for this.
pub(crate) fn open(
    key: &DataKey,
    bound: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Unsealable> {
    let rest = sealed.strip_prefix(MAGIC).ok_or(Unsealable::Form)?;
    let (nonce, rest) = rest.split_first_chunk::<NONCE>().ok_or(Unsealable::Form)?;
    let (expected, text) = rest.split_first_chunk::<COMMITMENT>().ok_or(Unsealable::Form)?;
    let (commitment, key) = derive(key, nonce)?;
    verify_slices_are_equal(&commitment, expected).map_err(|_| Unsealable::Key)?;
    let mut text = Zeroizing::new(text.to_vec());
    let length = key
        .open_in_place(once(), Aad::from(bound), &mut text)
        .map_err(|_| Unsealable::Altered)?
        .len();
    text.truncate(length);
    Ok(text)
}

/// Every key that is derived encrypts once.
fn once() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(
    key: &DataKey,
    nonce: &[u8; NONCE],
) -> Result<([u8; COMMITMENT], LessSafeKey), Unsealable> {
    let drawn = Salt::new(HKDF_SHA256, nonce).extract(key.expose());
    let mut commitment = [0; COMMITMENT];
    let mut own = Zeroizing::new([0; 32]);
    for (info, out) in
        [(&b"gesta.sealed.v1 commitment"[..], &mut commitment), (b"gesta.sealed.v1 key", &mut *own)]
    {
        let info = [info];
        let drawn = drawn.expand(&info, Length(out.len())).map_err(|_| Unsealable::Form)?;
        drawn.fill(out).map_err(|_| Unsealable::Form)?;
    }
    let own = UnboundKey::new(&AES_256_GCM, &*own).map_err(|_| Unsealable::Form)?;
    Ok((commitment, LessSafeKey::new(own)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_under_its_key_for_what_it_belongs_to_and_unaltered() {
        let (key, other) = (DataKey::new([1; 32]), DataKey::new([2; 32]));
        let sealed = seal(&key, &[7; 32], b"t_1", b"bob@example.org").unwrap();
        assert!(is_sealed(&sealed) && !is_sealed(b"bob@example.org"));
        assert!(!sealed.windows(3).any(|bytes| bytes == b"bob"));
        assert_eq!(open(&key, b"t_1", &sealed).unwrap().as_slice(), b"bob@example.org");
        assert_eq!(open(&other, b"t_1", &sealed), Err(Unsealable::Key));
        assert_eq!(open(&key, b"t_2", &sealed), Err(Unsealable::Altered));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(open(&key, b"t_1", &bad).is_err(), "byte {at}");
        }
        for length in 0..sealed.len() {
            assert!(open(&key, b"t_1", &sealed[..length]).is_err(), "{length} bytes");
        }
    }
}
