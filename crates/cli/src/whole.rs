//! Files that are complete under their name, or not there at all.
//!
//! A new file has no name while it is written, so that nothing is left of it when anything goes wrong, Ctrl-C, kill -9 and
//! power included. Where a file system cannot do that, it has a temporary name that an error removes.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// A place for a file.
pub enum Place {
    /// A pipe, a terminal, a device: whatever is written is there.
    Stream(File),
    /// A file without a name, and the name that it gets.
    Nameless(File, PathBuf, bool),
    /// A file with a temporary name, and the name that it gets.
    Temporary(File, TempPath, PathBuf, bool),
}

impl Place {
    /// For a file of this name, or what is there by it; `-` is stdout. A file that is there is replaced only if `force` says so.
    pub fn open(path: &Path, force: bool) -> io::Result<Place> {
        if path == Path::new("-") {
            let stdout = io::stdout().as_fd().try_clone_to_owned()?;
            return Ok(Place::Stream(stdout.into()));
        }
        // A link stays one: what it leads to is replaced.
        let leads = path.canonicalize();
        if leads.is_err() && path.is_symlink() {
            let cause = "it is a link that leads nowhere";
            return Err(io::Error::new(io::ErrorKind::NotFound, cause));
        }
        let path = leads.unwrap_or_else(|_| path.to_owned());
        match path.metadata() {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                let stream = OpenOptions::new().write(true).open(&path)?;
                return Ok(Place::Stream(stream));
            }
            Ok(_) if !force => return Err(already_there()),
            _ => {}
        }
        Place::in_directory(directory_of(&path), &path, force)
    }

    fn in_directory(directory: &Path, path: &Path, force: bool) -> io::Result<Place> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => return Ok(Place::Nameless(file.into(), path.to_owned(), force)),
            // What file systems say that know no nameless files.
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR) => {}
            Err(error) => return Err(error.into()),
        }
        let (file, name) = temporary(directory)?.into_parts();
        Ok(Place::Temporary(file, name, path.to_owned(), force))
    }

    /// To be written to.
    pub fn file(&self) -> &File {
        match self {
            Place::Stream(file) | Place::Nameless(file, ..) | Place::Temporary(file, ..) => file,
        }
    }

    /// Gives the file its name. Its size, if it is a file.
    pub fn keep(self) -> io::Result<Option<u64>> {
        if let Place::Nameless(file, path, force) | Place::Temporary(file, _, path, force) = &self {
            if let (true, Ok(there)) = (force, path.metadata()) {
                // Nobody may read it who might not read what was there.
                file.set_permissions(there.permissions())?;
            }
            file.sync_all()?;
        }
        let (file, temporary, path, force) = match self {
            Place::Stream(_) => return Ok(None),
            Place::Nameless(file, path, false) => {
                link(&file, &path)?;
                return file.metadata().map(|metadata| Some(metadata.len()));
            }
            Place::Nameless(file, path, true) => {
                // No link replaces a file, so it gets another name first.
                let name = temporary(directory_of(&path))?.into_temp_path();
                std::fs::remove_file(&name)?;
                link(&file, &name)?;
                (file, name, path, true)
            }
            Place::Temporary(file, name, path, force) => (file, name, path, force),
        };
        match force {
            true => temporary.persist(&path),
            false => temporary.persist_noclobber(&path),
        }?;
        file.metadata().map(|metadata| Some(metadata.len()))
    }
}

fn already_there() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it is already there")
}

/// A new file that may be read by whom the umask allows, as files that programs write usually are.
fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".presagio-");
    let everybody = Permissions::from_mode(0o666);
    builder.permissions(everybody).tempfile_in(directory)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Gives a name to a file that has none; an error if the name is taken.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    let linked = rustix::fs::linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW);
    linked.map_err(|error| match io::Error::from(error) {
        taken if taken.kind() == io::ErrorKind::AlreadyExists => already_there(),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// All ways to get a name, also that of file systems which know no nameless files.
    #[test]
    fn a_file_gets_its_name_when_it_is_complete_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let named = |force| {
            let (file, name) = temporary(dir.path()).unwrap().into_parts();
            Place::Temporary(file, name, path.clone(), force)
        };
        let nameless = |force| Place::open(&path, force).unwrap();
        let makers: [&dyn Fn(bool) -> Place; 2] = [&nameless, &named];
        for make in makers {
            let place = make(false);
            place.file().write_all(b"abc").unwrap();
            assert!(!path.exists());
            let late = make(false);
            assert_eq!(place.keep().unwrap(), Some(3));
            let taken = late.keep().unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
            let instead = make(true);
            instead.file().write_all(b"instead").unwrap();
            drop(make(true));
            assert_eq!(std::fs::read(&path).unwrap(), b"abc");
            instead.keep().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"instead");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn who_might_not_read_a_file_may_not_read_what_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "mine").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        Place::open(&path, true).unwrap().keep().unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        for force in [false, true] {
            let error = Place::open(&path, force).err().unwrap();
            assert!(error.to_string().contains("leads nowhere"), "{error}");
        }
        assert!(path.is_symlink());
    }
}
