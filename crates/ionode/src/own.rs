//! What a node must not forget: a directory of its own in the root of the export, which clients cannot see.
//!
//! ```text
//! .presagio/              mode 0700
//!   secret                32 random bytes: signs what clients are given to come back with
//!   once/HEX              the replies to an instance's numbered requests (crate::once)
//!   unlinked/DEVICE-INODE files that lost their last name while they were open
//!   clients.NODE          there if clients that may come back were there when that node was last heard of
//!   locks.NODE            there if locks were held when that node was last heard of: the instances that did, 16 bytes each
//! ```
//!
//! It lies in the export so that another node of the same export finds it too. An export that cannot be written to has
//! none: then nothing is remembered beyond the node's life, and clients are told so.

use crate::clock::Clock;
use crate::export::{FileKey, OWN};
use crate::once::Instance;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const SECRET: &str = "secret";
const LOCKS: &str = "locks";
const CLIENTS: &str = "clients";

/// A file that nobody has cut, linked or renamed for so long, and that no node here has open, is let go.
const LEFT_OVER_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Bytes of the secret.
pub const SECRET_LEN: usize = 32;

/// The node's own directory.
#[derive(Debug)]
pub struct OwnDirectory {
    dir: OwnedFd,
    once: OwnedFd,
    unlinked: OwnedFd,
    secret: [u8; SECRET_LEN],
    /// The names of our markers.
    locks: String,
    clients: String,
}

impl OwnDirectory {
    /// Opens it, or makes it.
    pub fn open(root: BorrowedFd<'_>, node: &str) -> io::Result<OwnDirectory> {
        let dir = directory(root, OWN)?;
        let (once, unlinked) = (
            directory(dir.as_fd(), b"once")?,
            directory(dir.as_fd(), b"unlinked")?,
        );
        let secret = secret(dir.as_fd())?;
        Ok(OwnDirectory {
            dir,
            once,
            unlinked,
            secret,
            locks: format!("{LOCKS}.{}", node.replace('/', "-")),
            clients: format!("{CLIENTS}.{}", node.replace('/', "-")),
        })
    }

    /// What signs, the same for all nodes of the export.
    pub fn secret(&self) -> &[u8; SECRET_LEN] {
        &self.secret
    }

    /// Where replies are kept.
    pub fn once(&self) -> BorrowedFd<'_> {
        self.once.as_fd()
    }

    /// Gives `file`, which is about to lose its last name, one of ours.
    pub fn keep(&self, file: BorrowedFd<'_>, key: FileKey) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let (here, follow) = (rustix::fs::CWD, AtFlags::SYMLINK_FOLLOW);
        let name = unlinked_name(key);
        match rustix::fs::linkat(here, path, &self.unlinked, name, follow) {
            Err(rustix::io::Errno::EXIST) => Ok(()),
            other => Ok(other?),
        }
    }

    /// The file needs no name any more.
    pub fn let_go(&self, key: FileKey) -> io::Result<()> {
        let name = unlinked_name(key);
        Ok(rustix::fs::unlinkat(
            &self.unlinked,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Whether we keep a name for a file.
    pub fn keeps(&self, key: FileKey) -> bool {
        let name = unlinked_name(key);
        rustix::fs::statat(&self.unlinked, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// A file that we keep a name for.
    pub fn kept(&self, key: FileKey) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = unlinked_name(key);
        Ok(rustix::fs::openat(
            &self.unlinked,
            name,
            flags,
            Mode::empty(),
        )?)
    }

    /// Files that got their name here long ago: whoever kept them, it or another node of the export, was killed.
    pub fn leftovers(&self, clock: &Clock) -> io::Result<Vec<FileKey>> {
        let all = self.all_kept()?.into_iter();
        let is_old = |key: &FileKey| {
            let name = unlinked_name(*key);
            let stat = rustix::fs::statat(&self.unlinked, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| clock.age(stat.st_ctime) > LEFT_OVER_AFTER)
        };
        Ok(all.filter(is_old).collect())
    }

    /// All files that we keep a name for.
    fn all_kept(&self) -> io::Result<Vec<FileKey>> {
        let entries = rustix::fs::Dir::read_from(&self.unlinked)?;
        let names = entries.filter_map(|entry| entry.ok());
        Ok(names
            .filter_map(|entry| key_of_name(entry.file_name().to_bytes()))
            .collect())
    }

    /// Remembers who holds locks.
    pub fn note_holders<'a>(&self, holders: impl Iterator<Item = &'a Instance>) -> io::Result<()> {
        let all: Vec<u8> = holders.flatten().copied().collect();
        if all.is_empty() {
            return self.note(&self.locks, false);
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.dir, &self.locks, flags, mode)?;
        // Who is killed in between leaves some that are waited for in vain, and none out.
        if rustix::io::pwrite(&file, &all, 0)? < all.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(rustix::fs::ftruncate(&file, all.len() as u64)?)
    }

    /// Who held locks when the node was last heard of; `None` if nobody did.
    pub fn holders(&self) -> Option<Vec<Instance>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &self.locks, flags, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        std::fs::File::from(file).read_to_end(&mut bytes).ok()?;
        let all: Vec<Instance> = bytes.as_chunks().0.to_vec();
        // A node of an earlier version said only that there were some: for somebody who never comes.
        Some(if all.is_empty() { vec![[0; 16]] } else { all })
    }

    /// Remembers whether there are clients that may come back.
    pub fn note_clients(&self, there: bool) -> io::Result<()> {
        self.note(&self.clients, there)
    }

    /// Whether there were when the node was last heard of.
    pub fn had_clients(&self) -> bool {
        self.was_noted(&self.clients)
    }

    fn note(&self, marker: &str, is_so: bool) -> io::Result<()> {
        if is_so {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&self.dir, marker, flags, Mode::RUSR | Mode::WUSR)?;
            return Ok(());
        }
        match rustix::fs::unlinkat(&self.dir, marker, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    fn was_noted(&self, marker: &str) -> bool {
        rustix::fs::statat(&self.dir, marker, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

fn unlinked_name(key: FileKey) -> String {
    format!("{:x}-{:x}", key.device, key.inode)
}

fn key_of_name(name: &[u8]) -> Option<FileKey> {
    let (device, inode) = std::str::from_utf8(name).ok()?.split_once('-')?;
    Some(FileKey {
        device: u64::from_str_radix(device, 16).ok()?,
        inode: u64::from_str_radix(inode, 16).ok()?,
    })
}

fn directory(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(at, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(at, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0;
    match is_ours {
        true => Ok(dir),
        false => Err(io::Error::other(format!(
            "{} is there and not a private directory of this user",
            String::from_utf8_lossy(name)
        ))),
    }
}

/// Two nodes may start at the same time: the first name wins, and both read it.
fn secret(dir: BorrowedFd<'_>) -> io::Result<[u8; SECRET_LEN]> {
    let read = || -> io::Result<[u8; SECRET_LEN]> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, SECRET, flags, Mode::empty())?;
        let mut secret = [0; SECRET_LEN];
        match rustix::io::read(&file, &mut secret)? {
            SECRET_LEN => Ok(secret),
            _ => Err(io::Error::other(
                "the secret in .presagio is cut short: remove it",
            )),
        }
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let secret: [u8; SECRET_LEN] = crate::seal::random()?;
    let temporary = format!("{SECRET}.{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::io::write(&file, &secret)?;
    rustix::fs::fsync(&file)?;
    let linked = rustix::fs::linkat(dir, &temporary, dir, SECRET, AtFlags::empty());
    rustix::fs::unlinkat(dir, &temporary, AtFlags::empty())?;
    match linked {
        Ok(()) | Err(rustix::io::Errno::EXIST) => read(),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap();
        (dir, fd)
    }

    #[test]
    fn the_secret_outlives_the_node() {
        let (_dir, root) = root();
        let first = *OwnDirectory::open(root.as_fd(), "node").unwrap().secret();
        assert_ne!(first, [0; SECRET_LEN]);
        assert_eq!(
            *OwnDirectory::open(root.as_fd(), "node").unwrap().secret(),
            first
        );
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_trusted() {
        let (dir, root) = root();
        let own = dir.path().join(".presagio");
        std::fs::create_dir(&own).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(OwnDirectory::open(root.as_fd(), "node").is_err());
    }

    #[test]
    fn a_file_without_a_name_is_kept_until_it_is_let_go() {
        let (dir, root) = root();
        let own = OwnDirectory::open(root.as_fd(), "node").unwrap();
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        let key = FileKey {
            device: 5,
            inode: 77,
        };
        own.keep(file.as_fd(), key).unwrap();
        std::fs::remove_file(dir.path().join("file")).unwrap();
        assert!(own.keeps(key) && own.kept(key).is_ok());
        assert_eq!(own.all_kept().unwrap(), [key]);
        own.let_go(key).unwrap();
        assert!(!own.keeps(key));
    }

    #[test]
    fn it_is_remembered_who_held_locks_and_whether_there_were_clients() {
        let (_dir, root) = root();
        let own = OwnDirectory::open(root.as_fd(), "node").unwrap();
        assert!(own.holders().is_none() && !own.had_clients());
        own.note_holders([[1; 16], [2; 16]].iter()).unwrap();
        own.note_clients(true).unwrap();
        let next = OwnDirectory::open(root.as_fd(), "node").unwrap();
        assert_eq!(next.holders().unwrap(), [[1; 16], [2; 16]]);
        assert!(next.had_clients());
        own.note_holders([[2; 16]].iter()).unwrap();
        assert_eq!(next.holders().unwrap(), [[2; 16]]);
        own.note_holders([].iter()).unwrap();
        own.note_holders([].iter()).unwrap();
        own.note_clients(false).unwrap();
        assert!(next.holders().is_none() && !next.had_clients());
        own.note(&own.locks, true).unwrap();
        assert_eq!(next.holders().unwrap().len(), 1, "of an earlier version");
    }
}
