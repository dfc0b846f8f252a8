//! A descriptor of our own for a file that another process has open.
//!
//! Its descriptor is not passed to us: a copy would keep the program's locks held and its deleted files alive. Instead
//! we open `/proc/PID/fd/N` without touching what it leads to (`O_PATH`), make sure that this is the very file the
//! program reported, a regular one, and only then open that for reading, through our own `/proc/thread-self/fd`. So neither a
//! reused process id, nor a descriptor that was closed and opened anew, nor a pipe or device can lead us elsewhere.

use crate::blocks::FileKey;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Why a file could not be opened. None is a reason to try again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReopenError {
    /// The process or its descriptor is gone, or is not ours to look at.
    #[error("descriptor {fd} of process {pid}: {error}")]
    Gone {
        /// The process.
        pid: u32,
        /// Its descriptor.
        fd: i32,
        /// What the system said.
        error: io::Error,
    },
    /// It leads to something else than the file that was reported.
    #[error("descriptor {fd} of process {pid} is another file by now")]
    Replaced {
        /// The process.
        pid: u32,
        /// Its descriptor.
        fd: i32,
    },
    /// It is a pipe, a device, a directory.
    #[error("descriptor {fd} of process {pid} is no regular file")]
    NotRegular {
        /// The process.
        pid: u32,
        /// Its descriptor.
        fd: i32,
    },
    /// The file may not be read.
    #[error("the file of descriptor {fd} of process {pid} cannot be read: {error}")]
    Denied {
        /// The process.
        pid: u32,
        /// Its descriptor.
        fd: i32,
        /// What the system said.
        error: io::Error,
    },
}

/// Opens for reading what process `pid` has open as `fd`, if that is the file `expected`.
pub fn reopen(pid: u32, fd: i32, expected: FileKey) -> Result<File, ReopenError> {
    let gone = |e: Errno| ReopenError::Gone {
        pid,
        fd,
        error: e.into(),
    };
    let handle = open(
        format!("/proc/{pid}/fd/{fd}"),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(gone)?;
    let stat = fstat(&handle).map_err(gone)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ReopenError::NotRegular { pid, fd });
    }
    if (stat.st_dev, stat.st_ino) != (expected.device, expected.inode) {
        return Err(ReopenError::Replaced { pid, fd });
    }
    for_reading(&handle).map_err(|e| ReopenError::Denied {
        pid,
        fd,
        error: e.into(),
    })
}

/// Opens the regular file of this name for reading. What is none is not opened, not even for a moment: whoever waits at
/// the other end of a pipe would take us for its reader.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&handle)?.st_mode) {
        FileType::RegularFile => Ok(for_reading(&handle)?),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Opens what a handle stands for. Without changing its time of access, where that is allowed; without waiting for
/// someone to give up a lease.
fn for_reading(handle: &OwnedFd) -> Result<File, Errno> {
    // Of this thread: inside a program, the manager's threads have descriptors of their own.
    let path = format!("/proc/thread-self/fd/{}", handle.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(&path, flags | OFlags::NOATIME, Mode::empty());
    let file = match file {
        Err(Errno::PERM) => open(&path, flags, Mode::empty()),
        other => other,
    };
    file.map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::process::Command;

    fn key(file: &File) -> FileKey {
        let metadata = file.metadata().unwrap();
        FileKey {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    fn own(file: &File, expected: FileKey) -> Result<File, ReopenError> {
        reopen(std::process::id(), file.as_raw_fd(), expected)
    }

    #[test]
    fn the_file_is_opened_anew_even_without_a_name() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        let again = own(&file, key(&file)).unwrap();
        let mut content = [0; 5];
        again.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"hello");
        assert!((&again).write(b"x").is_err(), "for reading only");
        assert_ne!(again.as_raw_fd(), file.as_raw_fd());
    }

    #[test]
    fn a_file_of_another_process_is_opened() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new("sleep");
        let mut child = child
            .arg("60")
            .stdin(file.reopen().unwrap())
            .spawn()
            .unwrap();
        let again = reopen(child.id(), 0, key(file.as_file()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(key(&again.unwrap()), key(file.as_file()));
    }

    #[test]
    fn a_descriptor_that_was_reused_is_refused() {
        let (file, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let refused = own(&file, key(&other));
        assert!(
            matches!(refused, Err(ReopenError::Replaced { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn a_name_that_now_leads_elsewhere_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, "old").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "new").unwrap();
        let again = own(&file, key(&file)).unwrap();
        let mut content = [0; 3];
        again.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"old");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        // A pipe opened for reading alone would wait for a writer.
        let pipe = File::options().read(true).write(true).open(&path).unwrap();
        let device = File::open("/dev/null").unwrap();
        let folder = File::open(directory.path()).unwrap();
        for file in [pipe, device, folder] {
            let refused = own(&file, key(&file));
            assert!(
                matches!(refused, Err(ReopenError::NotRegular { .. })),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn a_name_that_is_no_regular_file_is_not_opened_at_all() {
        use rustix::fs::inotify;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &path, inotify::WatchFlags::OPEN).unwrap();
        let refused = open_regular(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let seen = rustix::io::read(&watch, &mut [0; 64]);
        assert_eq!(seen, Err(Errno::AGAIN), "it was opened");
        assert!(open_regular(directory.path()).is_err());
        std::fs::write(directory.path().join("file"), "text").unwrap();
        let mut content = [0; 4];
        let file = open_regular(&directory.path().join("file")).unwrap();
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"text");
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let expected = FileKey {
            device: 1,
            inode: 1,
        };
        let error = reopen(pid, 0, expected).unwrap_err();
        assert!(matches!(error, ReopenError::Gone { .. }), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("descriptor 0 of process {pid}: "))
        );
        assert!(matches!(
            reopen(std::process::id(), 999_999, expected),
            Err(ReopenError::Gone { .. })
        ));
    }
}
