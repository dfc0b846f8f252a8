//! File systems of the tests' own: small ones that fill up, and ones that cannot be written to.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted file system. It is unmounted with the value.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts `what`, with these arguments to mount; `None`, and a printed reason, if that cannot be done here.
    pub fn new(arguments: &[&str], what: &Path, at: &Path) -> Option<Mounted> {
        let mut mount = Command::new("mount");
        mount.args(arguments).arg(what).arg(at);
        let output = mount.output().expect("mount");
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            super::skipped(&format!("{what:?} cannot be mounted here: {why}"));
            return None;
        }
        Some(Mounted(at.to_owned()))
    }

    /// In memory.
    pub fn tmpfs(options: &str, at: &Path) -> Option<Mounted> {
        Mounted::new(&["-t", "tmpfs", "-o", options], Path::new("tmpfs"), at)
    }

    /// On an image of so many mebibytes.
    pub fn ext4(mebibytes: u64, image: &Path, at: &Path) -> Option<Mounted> {
        let file = std::fs::File::create(image).expect("an image");
        file.set_len(mebibytes << 20).expect("a sparse file");
        let mut mkfs = Command::new("mkfs.ext4");
        let quiet = mkfs.arg("-q").arg(image).stderr(Stdio::null());
        let made = quiet.status().is_ok_and(|status| status.success());
        if !made {
            super::skipped("no mkfs.ext4 here");
            return None;
        }
        Mounted::new(&["-o", "loop"], image, at)
    }

    /// Nothing can be changed on it any more.
    pub fn make_read_only(&self) {
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "remounted");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a node that has just been dropped may still be closing files.
        let status = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
