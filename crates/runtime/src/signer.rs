//! The worker's signer: the same Ed25519 as the core's, computed by the library that TLS brings along,
//! in half the time. Every call signs three documents.

use std::sync::{Mutex, PoisonError};

use aws_lc_rs::signature::Ed25519KeyPair;
use gesta_core::keys::{KeyId, PrivateKey, Sign, Signature};

use crate::error::RunError;

/// Who signs.
pub(crate) struct Signer(Way);

enum Way {
    /// A private key, ready to sign often.
    Key(KeyId, Box<Ed25519KeyPair>),
    /// The record: what is signed again as it was signed then has the signature that it had then.
    Record(Mutex<Record>),
}

struct Record {
    key: KeyId,
    signed: Vec<(Vec<u8>, Signature)>,
}

impl Signer {
    pub(crate) fn new(key: &PrivateKey) -> Result<Self, RunError> {
        let id = key.id();
        let pair = Ed25519KeyPair::from_seed_and_public_key(key.expose_seed(), id.as_bytes());
        let pair = pair.map_err(|error| RunError::Key { key: id, why: error.to_string() })?;
        Ok(Self(Way::Key(id, Box::new(pair))))
    }

    /// A signer that has no key, and repeats what is on record.
    pub(crate) fn of_record(key: KeyId) -> Self {
        Self(Way::Record(Mutex::new(Record { key, signed: Vec::new() })))
    }

    /// From now on, these are on record, signed by this key.
    pub(crate) fn stand_for<'a>(
        &self,
        key: KeyId,
        signed: impl Iterator<Item = (&'a [u8], Signature)>,
    ) {
        if let Way::Record(record) = &self.0 {
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            record.key = key;
            record.signed.clear();
            record.signed.extend(signed.map(|(message, signature)| (message.to_vec(), signature)));
        }
    }
}

impl Sign for Signer {
    fn id(&self) -> KeyId {
        match &self.0 {
            Way::Key(id, _) => *id,
            Way::Record(record) => record.lock().unwrap_or_else(PoisonError::into_inner).key,
        }
    }

    fn sign(&self, message: &[u8]) -> Signature {
        let mut bytes = [0; 64];
        match &self.0 {
            Way::Key(_, pair) => {
                let signature = pair.sign(message);
                bytes.iter_mut().zip(signature.as_ref()).for_each(|(to, from)| *to = *from);
            }
            Way::Record(record) => {
                let record = record.lock().unwrap_or_else(PoisonError::into_inner);
                let known = record.signed.iter().find(|(known, _)| known == message);
                if let Some((_, signature)) = known {
                    return *signature;
                }
            }
        }
        Signature::from_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use gesta_core::sample::Dice;

    use super::*;

    #[test]
    fn it_signs_as_the_core_does() {
        let mut dice = Dice::new(1);
        for _ in 0..200 {
            let seed = std::array::from_fn(|_| dice.below(256) as u8);
            let key = PrivateKey::from_seed(&seed);
            let signer = Signer::new(&key).unwrap();
            let message: Vec<u8> = (0..dice.below(2_000)).map(|_| dice.below(256) as u8).collect();
            assert_eq!(signer.sign(&message), key.sign(&message));
            assert_eq!(signer.id(), key.id());
        }
    }
}
