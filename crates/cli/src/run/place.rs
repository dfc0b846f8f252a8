//! A directory of one run, of the user's own: gone when the run is over, or when a later one finds that nobody needs it.

use crate::failure::failure;
use rustix::fs::{FlockOperation, flock};
use rustix::process::getuid;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory, and a file in it that is locked for as long as it is needed.
pub struct Place {
    directory: TempDir,
    _lock: File,
}

impl Place {
    /// Makes one whose name begins with `prefix`, with a file of that name and content in it.
    pub fn make(prefix: &str, name: &str, content: &[u8]) -> anyhow::Result<Place> {
        Place::try_make(prefix, name, content).map_err(|error| {
            let what = "there is no place for the files of this run";
            let advice = "set XDG_RUNTIME_DIR to a directory of your own";
            failure(what, error, advice)
        })
    }

    fn try_make(prefix: &str, name: &str, content: &[u8]) -> io::Result<Place> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|r| r.is_absolute() && r.is_dir());
        let place = runtime.unwrap_or_else(std::env::temp_dir);
        Place::make_in(&place, prefix, name, content)
    }

    /// The same in a certain directory.
    pub fn make_in(place: &Path, prefix: &str, name: &str, content: &[u8]) -> io::Result<Place> {
        clear(place, prefix, name);
        let directory = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(place)?;
        let mut lock = File::create_new(directory.path().join(name))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        lock.write_all(content)?;
        Ok(Place {
            directory,
            _lock: lock,
        })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Takes away what runs left that were killed outright. Those of other users stay, since they cannot be opened, and so do
/// those whose file is not there yet.
fn clear(place: &Path, prefix: &str, name: &str) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_run = entry.file_name().as_bytes().starts_with(prefix.as_bytes());
        let lock = || File::open(entry.path().join(name));
        if is_run
            && entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == getuid().as_raw())
            && let Ok(lock) = lock()
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            // It may have been locked just now by who made it, and is empty then.
            && lock.metadata().is_ok_and(|m| m.len() > 0)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
