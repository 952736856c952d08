//! The worker's signer: the same Ed25519 as the core's, computed by the library that TLS brings along,
//! in half the time. Every call signs three documents and checks two of them again at its gate.

use aws_lc_rs::signature::Ed25519KeyPair;
use gesta_core::keys::{KeyId, PrivateKey, Sign, Signature};

use crate::error::RunError;

/// A private key, ready to sign often.
pub(crate) struct Signer {
    id: KeyId,
    pair: Ed25519KeyPair,
}

impl Signer {
    pub(crate) fn new(key: &PrivateKey) -> Result<Self, RunError> {
        let id = key.id();
        let pair = Ed25519KeyPair::from_seed_and_public_key(key.expose_seed(), id.as_bytes());
        let pair = pair.map_err(|error| RunError::Key { key: id, why: error.to_string() })?;
        Ok(Self { id, pair })
    }
}

impl Sign for Signer {
    fn id(&self) -> KeyId {
        self.id
    }

    fn sign(&self, message: &[u8]) -> Signature {
        let mut bytes = [0; 64];
        let signature = self.pair.sign(message);
        bytes.iter_mut().zip(signature.as_ref()).for_each(|(to, from)| *to = *from);
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
