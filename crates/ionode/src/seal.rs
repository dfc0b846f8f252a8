//! What clients are given to come back with is signed: nobody makes up a handle to a file outside of the export, or takes
//! over another's instance.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;

/// Bytes of a signature.
pub const SEAL: usize = 16;

/// What signs.
pub struct Seal(hmac::Key);

impl Seal {
    /// Signs with `secret`.
    pub fn new(secret: &[u8]) -> Seal {
        Seal(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The signature of `parts`, each with its length, under a purpose: one for another purpose is not valid.
    pub fn sign(&self, purpose: &str, parts: &[&[u8]]) -> [u8; SEAL] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in [purpose.as_bytes()].iter().chain(parts) {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let all = context.sign();
        *all.as_ref().first_chunk().expect("32 bytes")
    }

    /// Whether a signature is ours; takes as long whatever is wrong with it.
    pub fn is_signed(&self, purpose: &str, parts: &[&[u8]], seal: &[u8]) -> bool {
        let ours = self.sign(purpose, parts);
        let differs = ours.iter().zip(seal).fold(0, |all, (a, b)| all | (a ^ b));
        seal.len() == SEAL && differs == 0
    }
}

/// Random bytes that nobody can guess.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_signed_for_the_purpose_is_valid() {
        let seal = Seal::new(b"secret");
        let signed = seal.sign("handle", &[b"one", b"two"]);
        assert!(seal.is_signed("handle", &[b"one", b"two"], &signed));
        assert!(!seal.is_signed("resume", &[b"one", b"two"], &signed));
        assert!(!seal.is_signed("handle", &[b"onet", b"wo"], &signed));
        assert!(!seal.is_signed("handle", &[b"one", b"two"], &signed[..15]));
        assert!(!Seal::new(b"other").is_signed("handle", &[b"one", b"two"], &signed));
    }
}
