//! The token of who may give orders: what is in a file, and how a guess is compared with it.
//!
//! It goes in a header, `Authorization: Bearer TOKEN`, which no page of another site can add to a request; never in a cookie or
//! an address.

use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The shortest one that is not guessed.
const LENGTH_MIN: usize = 16;

/// The longest file that is one.
const LENGTH_MAX: usize = 4096;

/// See the module's header. Only its hash is kept.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// A file has no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// It cannot be read.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// Others may read it.
    #[error("{0} can be read by others (mode {1:o})")]
    Open(PathBuf, u32),
    /// It is too short, or far too long.
    #[error("{0} has {1} bytes: a token has {LENGTH_MIN} to {LENGTH_MAX}")]
    Length(PathBuf, usize),
}

impl Token {
    /// The token that a file has, without the white space around it. Others must not be able to read the file.
    pub fn read(path: &Path) -> Result<Token, TokenError> {
        let failed = |error| TokenError::File(path.to_owned(), error);
        let mode = std::fs::metadata(path)
            .map_err(failed)?
            .permissions()
            .mode()
            & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Open(path.to_owned(), mode));
        }
        let text = std::fs::read(path).map_err(failed)?;
        let token = text.trim_ascii();
        match token.len() {
            LENGTH_MIN..=LENGTH_MAX => Ok(Token(Sha256::digest(token).into())),
            length => Err(TokenError::Length(path.to_owned(), length)),
        }
    }

    /// Whether a guess is right. That takes as long wherever it differs: hashes are compared, all bytes of them.
    pub fn is(&self, guess: &str) -> bool {
        let guess: [u8; 32] = Sha256::digest(guess.trim().as_bytes()).into();
        let differences = self
            .0
            .iter()
            .zip(guess)
            .fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differences) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};

    #[test]
    fn a_token_is_read_from_a_file_of_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        write(&path, "0123456789abcdef\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            Token::read(&path),
            Err(TokenError::Open(_, 0o644))
        ));
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let token = Token::read(&path).unwrap();
        assert!(token.is("0123456789abcdef"));
        for wrong in [
            "",
            "0123456789abcde",
            "0123456789abcdeg",
            "0123456789abcdef0",
        ] {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "Token");
        write(&path, "short\n").unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::Length(_, 5))));
    }
}
