//! A munged of our own: Debian's daemon, with a key and a socket that nobody else uses.

use crate::common::users::command_as;
use crate::common::{own_uid, wait_until};
use presagio_ninep::session::munge;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running munged. It ends with the value.
pub struct Munged {
    child: Child,
    directory: tempfile::TempDir,
}

impl Munged {
    pub fn start() -> Munged {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        // Other users may come as far as the socket.
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), mode(0o755)).expect("a directory of ours");
        // Each has a key of its own: the path is not the same for two.
        let key: Vec<u8> = path("key").into_os_string().into_encoded_bytes();
        std::fs::write(path("key"), key.repeat(64)).expect("a key");
        std::fs::set_permissions(path("key"), mode(0o600)).expect("a file of ours");
        let child = Command::new("/usr/sbin/munged")
            .args(["--foreground", "--force"])
            .arg("--socket")
            .arg(path("munge.socket.2"))
            .arg("--key-file")
            .arg(path("key"))
            .arg("--pid-file")
            .arg(path("pid"))
            .arg("--log-file")
            .arg(path("log"))
            .arg("--seed-file")
            .arg(path("seed"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Debian's package munge");
        let munged = Munged { child, directory };
        wait_until("munged listens", || {
            UnixStream::connect(munged.socket()).is_ok()
        });
        munged
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("munge.socket.2")
    }

    /// Where its socket is, under the name that MUNGE has for it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A credential of this process's user.
    pub fn own(&self) -> Vec<u8> {
        munge::credential(Some(&self.socket())).expect("a credential")
    }

    /// A credential of `uid`, with further arguments for the program that makes it.
    pub fn credential_of(&self, uid: u32, arguments: &[&str]) -> Vec<u8> {
        let mut command = match uid == own_uid() {
            true => Command::new("munge"),
            false => command_as(uid, uid, "munge"),
        };
        let command = command.arg("-n").arg("-S").arg(self.socket());
        let output = command.args(arguments).output().expect("munge");
        assert!(output.status.success(), "{output:?}");
        output.stdout.trim_ascii().to_vec()
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
