//! Credentials of MUNGE, for [`Session::attach_with`](super::Session::attach_with).
//!
//! They are made by the program that comes with it (Debian: munge), which asks the daemon of this machine. A credential
//! says who runs this process, is good for one attach, and for some minutes.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A new credential, from the daemon that listens at `socket` or at the usual place.
pub fn credential(socket: Option<&Path>) -> io::Result<Vec<u8>> {
    let mut command = Command::new("munge");
    command.arg("--no-input");
    if let Some(socket) = socket {
        command.arg("--socket").arg(socket);
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        let what = format!("the program munge cannot be run (Debian: package munge): {error}");
        io::Error::new(error.kind(), what)
    })?;
    match output.status.success() {
        true => Ok(output.stdout.trim_ascii().to_vec()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}
