//! MUNGE, as HPC sites have it: a daemon on every machine of a cluster, and one key that only the daemons can read. A
//! user's process gets a credential from its daemon; ours asks the daemon here whose it is.
//!
//! The library comes with MUNGE (Debian: libmunge2). It is loaded when it is asked for: a node that does not ask starts
//! without it.

use crate::DoorError;
use crate::libmunge::MungeLibrary;
use crate::peer::Proof;
use presagio_ninep::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What every credential begins with: all else is not worth asking the daemon about.
const PREFIX: &[u8] = b"MUNGE:";

/// What libmunge says when it cannot ask the daemon: no memory, no socket, no answer in time.
const NOT_ASKED: [i32; 3] = [5, 6, 7];

/// What checks credentials.
pub struct Munge {
    library: MungeLibrary,
    socket: Option<CString>,
}

/// Why nothing was proved.
#[derive(Debug)]
pub struct Refusal {
    /// What the client gets.
    pub errno: Errno,
    /// What the audit says.
    pub why: String,
}

impl Refusal {
    /// It is not allowed.
    pub fn not_permitted(why: impl Into<String>) -> Refusal {
        Refusal {
            errno: Errno::PERM,
            why: why.into(),
        }
    }
}

impl Munge {
    /// Asks the daemon at `socket`, or at the usual one.
    pub fn new(socket: Option<&Path>) -> Result<Munge, DoorError> {
        let library = MungeLibrary::load().map_err(|why| {
            DoorError(format!(
                "MUNGE needs its library (Debian: libmunge2): {why}"
            ))
        })?;
        let socket = socket.map(|path| CString::new(path.as_os_str().as_bytes()));
        let socket = socket.transpose().map_err(|_| {
            DoorError("the path of munged's socket has a NUL in it, which none can have".to_owned())
        })?;
        Ok(Munge { library, socket })
    }

    /// Whose credential it is. It waits for the daemon, which knows those that it has seen before and those that are
    /// too old or not of this time.
    pub fn check(&self, credential: &[u8]) -> Result<Proof, Refusal> {
        let credential = CString::new(credential).ok();
        let credential = credential.filter(|it| it.as_bytes().starts_with(PREFIX));
        let Some(credential) = credential else {
            return Err(Refusal::not_permitted(
                "what it wrote is no MUNGE credential",
            ));
        };
        match self.library.decode(self.socket.as_deref(), &credential) {
            Ok((uid, gid)) => Ok(Proof::Vouched { uid, gid }),
            Err(error) if NOT_ASKED.contains(&error.code) => Err(Refusal {
                errno: Errno::IO,
                why: format!("its credential could not be checked: {}", error.text),
            }),
            Err(error) => Err(Refusal::not_permitted(format!(
                "its credential does not count: {}",
                error.text
            ))),
        }
    }
}
