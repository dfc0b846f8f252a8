//! A credential on its way in: a fid that Tauth made, written to, then named by Tattach.

use super::munge::Refusal;
use crate::error::Result;
use crate::peer::Proof;
use presagio_ninep::Errno;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Longer ones are none: MUNGE's have some 150 bytes.
const CREDENTIAL_MAX: usize = 4096;

/// What was written to a fid of Tauth, and what it proved.
#[derive(Default)]
pub struct Credential(Mutex<State>);

enum State {
    /// So much of it has come.
    Coming(Vec<u8>),
    /// It was good.
    Proved(Proof),
    /// It was not, and will not be.
    Refused,
}

impl Default for State {
    fn default() -> State {
        State::Coming(Vec::new())
    }
}

impl Credential {
    /// Takes another piece.
    pub fn write(&self, offset: u64, piece: &[u8]) -> Result<()> {
        match &mut *self.state() {
            State::Coming(bytes) if offset != bytes.len() as u64 => Err(Errno::INVAL),
            State::Coming(bytes) if bytes.len() + piece.len() > CREDENTIAL_MAX => {
                Err(Errno(libc::EMSGSIZE as u32))
            }
            State::Coming(bytes) => {
                bytes.extend_from_slice(piece);
                Ok(())
            }
            State::Proved(_) | State::Refused => Err(Errno::PERM),
        }
    }

    /// What it proves: checked once, since a credential is good for one time only.
    pub fn proof(
        &self,
        check: impl FnOnce(&[u8]) -> std::result::Result<Proof, Refusal>,
    ) -> std::result::Result<Proof, Refusal> {
        let mut state = self.state();
        let bytes = match &*state {
            State::Proved(proof) => return Ok(*proof),
            State::Refused => return Err(Refusal::not_permitted("its credential was refused")),
            State::Coming(bytes) => bytes,
        };
        let checked = check(bytes);
        *state = match checked {
            Ok(proof) => State::Proved(proof),
            Err(_) => State::Refused,
        };
        checked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: Proof = Proof::Vouched { uid: 7, gid: 8 };

    #[test]
    fn a_credential_is_put_together_and_checked_once() {
        let credential = Credential::default();
        credential.write(0, b"MUNGE:").unwrap();
        credential.write(6, b"rest").unwrap();
        assert_eq!(credential.write(3, b"again"), Err(Errno::INVAL));
        let seen = credential.proof(|bytes| {
            assert_eq!(bytes, b"MUNGE:rest");
            Ok(ANNA)
        });
        assert_eq!(seen.unwrap(), ANNA);
        let again = credential.proof(|_| panic!("checked twice"));
        assert_eq!(again.unwrap(), ANNA);
        assert_eq!(credential.write(10, b"more"), Err(Errno::PERM));
    }

    #[test]
    fn what_was_refused_stays_refused() {
        let credential = Credential::default();
        let refused = |_: &[u8]| Err(Refusal::not_permitted("no"));
        assert!(credential.proof(refused).is_err());
        assert!(credential.proof(|_| Ok(ANNA)).is_err());
    }

    #[test]
    fn no_credential_is_endless() {
        let credential = Credential::default();
        let too_long = vec![b'x'; CREDENTIAL_MAX + 1];
        assert!(credential.write(0, &too_long).is_err());
        credential.write(0, &too_long[1..]).unwrap();
        assert!(credential.write(CREDENTIAL_MAX as u64, b"x").is_err());
    }
}
