//! The mount point: what a killed mount left there, and how to leave it.

use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::path::Path;
use std::process::Command;

/// How the source of our mounts begins.
pub(super) const SOURCE: &str = "presagio:";

/// Removes what a mount of ours that was killed left on `dir`. What belongs to others stays.
pub(super) fn clear_dead(dir: &Path) -> io::Result<()> {
    // At most as many as were mounted over one another.
    for _ in 0..16 {
        match std::fs::metadata(dir) {
            Err(error) if error.raw_os_error() == Some(107) && is_ours(dir)? => detach(dir)?,
            Err(error) => return Err(error),
            Ok(there) if !there.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
            Ok(_) => return Ok(()),
        }
        tracing::info!(dir = %dir.display(), "removed what a killed mount left");
    }
    Ok(())
}

/// Whether the uppermost mount on `dir` is one of ours.
fn is_ours(dir: &Path) -> io::Result<bool> {
    let dir = std::path::absolute(dir)?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    // ID PARENT DEVICE ROOT POINT OPTIONS ... - TYPE SOURCE OPTIONS
    let last = table.lines().rfind(|line| {
        let point = line.split(' ').nth(4).unwrap_or_default();
        Path::new(&unescape(point)) == dir
    });
    let source = last.and_then(|line| line.split_once(" - ")?.1.split(' ').nth(1));
    Ok(source.is_some_and(|source| source.starts_with(SOURCE)))
}

/// Spaces and the like are `\ooo` in the table.
fn unescape(point: &str) -> String {
    let mut plain = point.to_owned();
    for (code, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        plain = plain.replace(code, character);
    }
    plain
}

/// Takes the mount away from `dir`; those who use it go on until they are done.
pub(super) fn detach(dir: &Path) -> io::Result<()> {
    match unmount(dir, UnmountFlags::DETACH) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(rustix::io::Errno::PERM) => fusermount(dir),
        Err(error) => Err(error.into()),
    }
}

/// What users need: a helper that runs as root and unmounts what is theirs.
fn fusermount(dir: &Path) -> io::Result<()> {
    let status = Command::new("fusermount3")
        .args(["-u", "-q", "-z", "--"])
        .arg(dir)
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("fusermount3 -u: {status}"))),
    }
}
