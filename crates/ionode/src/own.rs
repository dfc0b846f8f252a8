//! What a node must not forget: a directory of its own in the root of the export, which clients cannot see.
//!
//! ```text
//! .presagio/              mode 0700
//!   secret                32 random bytes: signs what clients are given to come back with
//!   once/HEX              the replies to an instance's numbered requests (crate::once)
//!   unlinked/INODE        files that lost their last name while they were open
//!   node.NODE             locked (flock) by the node of this name while it runs
//!   clients.NODE          there if clients that may come back were there when that node was last heard of
//!   locks.NODE            there if locks were held when that node was last heard of, and by whom:
//!                         "plocks 2", then for each client its instance (16 bytes) and its uid (4, little-endian)
//! ```
//!
//! NODE is the host and a hash of the addresses that the node listens on: the same when it starts again, and another
//! one for another node of the same host.
//!
//! It lies in the export so that another node of the same export finds it too. An export that cannot be written to has
//! none: then nothing is remembered beyond the node's life, and clients are told so.

use crate::clock::Clock;
use crate::export::{FileKey, OWN};
use crate::locks::Known;
use crate::net::Address;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SECRET: &str = "secret";
const NODE: &str = "node";
const LOCKS: &str = "locks";
const CLIENTS: &str = "clients";

/// What a list of those who hold locks begins with. Version 1 had no beginning, and did not say whose the clients were.
const HOLDERS: &[u8; 8] = b"plocks 2";

/// Bytes of one of them.
const HOLDER_LEN: usize = 20;

/// A file that nobody has cut, linked or renamed for so long, and that no node here has open, is let go.
const LEFT_OVER_AFTER: Duration = Duration::from_secs(24 * 3600);

/// How long a node that has just ended may take to let its name go.
const LETTING_GO: Duration = Duration::from_secs(2);

/// Bytes of the secret.
pub const SECRET_LEN: usize = 32;

/// The node's own directory.
#[derive(Debug)]
pub struct OwnDirectory {
    dir: OwnedFd,
    once: OwnedFd,
    unlinked: OwnedFd,
    /// The file system of the export's root, as it is called here. Files of others cannot be kept.
    device: u64,
    secret: [u8; SECRET_LEN],
    /// Nobody else has our name while this is open.
    name: OnceLock<OwnedFd>,
    /// The names of our markers.
    node_file: String,
    locks: String,
    clients: String,
}

/// How long what another node has just made may be unknown here, and how often one looks.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
const SETTLING: Duration = Duration::from_millis(100);

impl OwnDirectory {
    /// Opens it, or makes it.
    pub fn open(root: BorrowedFd<'_>, node: &str) -> io::Result<OwnDirectory> {
        let until = Instant::now() + SETTLED_WITHIN;
        loop {
            match OwnDirectory::open_once(root, node) {
                // Two nodes that make it at the same time: network file systems (GlusterFS) know it by another name for a moment.
                Err(error) if is_stale(&error) && Instant::now() < until => {
                    std::thread::sleep(SETTLING);
                }
                done => return done,
            }
        }
    }

    fn open_once(root: BorrowedFd<'_>, node: &str) -> io::Result<OwnDirectory> {
        let dir = directory(root, OWN)?;
        let (once, unlinked) = (
            directory(dir.as_fd(), b"once")?,
            directory(dir.as_fd(), b"unlinked")?,
        );
        let secret = secret(dir.as_fd())?;
        let node = node.replace('/', "-");
        Ok(OwnDirectory {
            dir,
            once,
            unlinked,
            device: rustix::fs::fstat(root)?.st_dev,
            secret,
            name: OnceLock::new(),
            node_file: format!("{NODE}.{node}"),
            locks: format!("{LOCKS}.{node}"),
            clients: format!("{CLIENTS}.{node}"),
        })
    }

    /// Takes the name of this node. Whoever has it is another one, that would take our markers for its own.
    pub fn take_name(&self) -> io::Result<()> {
        // Not open for writing: the file system may be made read-only while we run.
        let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.dir, &self.node_file, flags, mode)?;
        let until = Instant::now() + LETTING_GO;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(io::Error::other(format!(
                        "another node has locked .presagio/{}: end that one, or let this one listen elsewhere",
                        self.node_file
                    )));
                }
                // Where the file system knows no locks, a name is only a name.
                _ => {
                    let _ = self.name.set(file);
                    return Ok(());
                }
            }
        }
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
        let name = self.unlinked_name(key);
        match rustix::fs::linkat(here, path, &self.unlinked, name, follow) {
            Err(rustix::io::Errno::EXIST) => Ok(()),
            other => Ok(other?),
        }
    }

    /// The file needs no name any more.
    pub fn let_go(&self, key: FileKey) -> io::Result<()> {
        let name = self.unlinked_name(key);
        Ok(rustix::fs::unlinkat(
            &self.unlinked,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Whether we keep a name for a file.
    pub fn keeps(&self, key: FileKey) -> bool {
        let name = self.unlinked_name(key);
        rustix::fs::statat(&self.unlinked, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// A file that we keep a name for.
    pub fn kept(&self, key: FileKey) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.unlinked_name(key);
        Ok(rustix::fs::openat(
            &self.unlinked,
            name,
            flags,
            Mode::empty(),
        )?)
    }

    /// A file that we keep a name for is still in use: it is no leftover, whoever looks.
    pub fn touch(&self, key: FileKey) -> io::Result<()> {
        let name = self.unlinked_name(key);
        let stat = rustix::fs::statat(&self.unlinked, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
        // Nothing changes but the moment of the last change.
        let mode = Mode::from_raw_mode(stat.st_mode);
        let chmod = rustix::fs::chmodat(&self.unlinked, name, mode, AtFlags::empty());
        Ok(chmod?)
    }

    /// Files that got their name here long ago, and that nobody says are in use: whoever kept them, it or another node of the
    /// export, was killed.
    pub fn leftovers(&self, clock: &Clock) -> io::Result<Vec<FileKey>> {
        let all = self.all_kept()?.into_iter();
        let is_old = |key: &FileKey| {
            let name = self.unlinked_name(*key);
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
            .filter_map(|entry| self.key_of_name(entry.file_name().to_bytes()))
            .collect())
    }

    /// The numbers of file systems differ from mount to mount, and so from node to node: not those of files.
    fn unlinked_name(&self, key: FileKey) -> String {
        match key.device == self.device {
            true => format!("{:x}", key.inode),
            false => format!("{:x}-{:x}", key.device, key.inode),
        }
    }

    fn key_of_name(&self, name: &[u8]) -> Option<FileKey> {
        let inode = std::str::from_utf8(name).ok()?;
        Some(FileKey {
            device: self.device,
            inode: u64::from_str_radix(inode, 16).ok()?,
        })
    }

    /// Remembers who holds locks.
    pub fn note_holders<'a>(&self, holders: impl Iterator<Item = &'a Known>) -> io::Result<()> {
        let mut all = HOLDERS.to_vec();
        for holder in holders {
            all.extend_from_slice(&holder.instance);
            all.extend_from_slice(&holder.uid.to_le_bytes());
        }
        if all.len() == HOLDERS.len() {
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

    /// Who held locks when the node was last heard of. Nobody did whose locks cannot be told to be theirs: they are lost.
    pub fn holders(&self) -> Vec<Known> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&self.dir, &self.locks, flags, Mode::empty()) else {
            return Vec::new();
        };
        let mut bytes = Vec::new();
        let read = std::fs::File::from(file).read_to_end(&mut bytes);
        let Some(records) = read.ok().and_then(|_| bytes.strip_prefix(HOLDERS)) else {
            tracing::warn!(
                ".presagio/{} is damaged, or of a node of another version: the locks that were held are lost",
                self.locks
            );
            return Vec::new();
        };
        let records = records.as_chunks::<HOLDER_LEN>().0.iter();
        records.filter_map(holder_of).collect()
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

/// One of those who held locks, as it is kept.
fn holder_of(record: &[u8; HOLDER_LEN]) -> Option<Known> {
    let (instance, uid) = record.split_first_chunk()?;
    Some(Known {
        instance: *instance,
        uid: u32::from_le_bytes(uid.try_into().ok()?),
    })
}

fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::STALE.raw_os_error())
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

/// The name of a node on `host` that listens on `addresses`. Nobody comes back to one that listens nowhere.
pub fn node_name(host: &str, addresses: &[Address]) -> String {
    static UNNAMED: AtomicU32 = AtomicU32::new(0);
    if addresses.is_empty() {
        let number = UNNAMED.fetch_add(1, Ordering::Relaxed);
        return format!("{host}-{}-{number}", std::process::id());
    }
    let place = |address: &Address| match address {
        Address::Unix(path) => std::path::absolute(path)
            .unwrap_or_else(|_| path.clone())
            .display()
            .to_string(),
        tcp => tcp.to_string(),
    };
    let mut places: Vec<String> = addresses.iter().map(place).collect();
    places.sort_unstable();
    let text = places.join(",");
    format!("{host}-{:08x}", crc32fast::hash(text.as_bytes()))
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
            device: rustix::fs::fstat(&file).unwrap().st_dev,
            inode: 77,
        };
        own.keep(file.as_fd(), key).unwrap();
        std::fs::remove_file(dir.path().join("file")).unwrap();
        assert!(own.keeps(key) && own.kept(key).is_ok());
        assert_eq!(own.all_kept().unwrap(), [key]);
        let elsewhere = FileKey {
            device: !key.device,
            ..key
        };
        assert!(!own.keeps(elsewhere), "numbers are of one file system");
        own.let_go(key).unwrap();
        assert!(!own.keeps(key));
    }

    #[test]
    fn a_file_that_is_said_to_be_in_use_is_no_leftover() {
        let (dir, root) = root();
        let own = OwnDirectory::open(root.as_fd(), "node").unwrap();
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        let device = rustix::fs::fstat(&file).unwrap().st_dev;
        let key = FileKey { device, inode: 77 };
        own.keep(file.as_fd(), key).unwrap();
        let changed = || rustix::fs::fstat(&file).unwrap();
        let before = (
            changed().st_ctime,
            changed().st_ctime_nsec,
            changed().st_mode,
        );
        // Times are as fine as the kernel's ticks.
        std::thread::sleep(Duration::from_millis(50));
        own.touch(key).unwrap();
        let after = (
            changed().st_ctime,
            changed().st_ctime_nsec,
            changed().st_mode,
        );
        assert!(after > before && after.2 == before.2);
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap());
        let clock = |after| Clock::set_to(seconds(changed().st_ctime) + after);
        let soon = clock(LEFT_OVER_AFTER - Duration::from_secs(60));
        assert_eq!(own.leftovers(&soon).unwrap(), []);
        let late = clock(LEFT_OVER_AFTER + Duration::from_secs(60));
        assert_eq!(own.leftovers(&late).unwrap(), [key]);
    }

    #[test]
    fn it_is_remembered_who_held_locks_and_whether_there_were_clients() {
        let (_dir, root) = root();
        let own = OwnDirectory::open(root.as_fd(), "node").unwrap();
        let known = |number, uid| Known {
            instance: [number; 16],
            uid,
        };
        let (one, two) = (known(1, 1000), known(2, 0x0102_0304));
        assert!(own.holders().is_empty() && !own.had_clients());
        own.note_holders([one, two].iter()).unwrap();
        own.note_clients(true).unwrap();
        drop(own);
        let next = OwnDirectory::open(root.as_fd(), "node").unwrap();
        assert_eq!(next.holders(), [one, two]);
        assert!(next.had_clients());
        let other = OwnDirectory::open(root.as_fd(), "other").unwrap();
        assert!(other.holders().is_empty() && !other.had_clients());
        other.note_holders([].iter()).unwrap();
        other.note_clients(false).unwrap();
        next.note_holders([two].iter()).unwrap();
        assert_eq!(next.holders(), [two]);
        assert!(next.had_clients(), "another node has none");
        next.note_holders([].iter()).unwrap();
        next.note_holders([].iter()).unwrap();
        next.note_clients(false).unwrap();
        assert!(next.holders().is_empty() && !next.had_clients());
    }

    #[test]
    fn nobody_is_believed_to_have_held_what_an_earlier_version_wrote_down() {
        let (dir, root) = root();
        let own = OwnDirectory::open(root.as_fd(), "node").unwrap();
        let path = dir.path().join(".presagio/locks.node");
        for bytes in [&[7; 32][..], &[7; 28], &[], &HOLDERS[..7]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(own.holders(), [], "{bytes:?}");
        }
        let known = Known {
            instance: [1; 16],
            uid: 7,
        };
        own.note_holders([known].iter()).unwrap();
        assert_eq!(own.holders(), [known], "what was there is replaced");
    }

    #[test]
    fn a_node_has_its_name_alone_and_for_as_long_as_it_runs() {
        let (_dir, root) = root();
        let open = || OwnDirectory::open(root.as_fd(), "node").unwrap();
        let (first, second) = (open(), open());
        first.take_name().unwrap();
        let error = second.take_name().unwrap_err().to_string();
        assert!(error.contains("node.node"), "{error}");
        drop(first);
        second.take_name().unwrap();
    }

    #[test]
    fn nodes_of_one_host_have_names_of_their_own() {
        let unix = |path: &str| Address::Unix(path.into());
        let tcp = |port: &str| Address::Tcp(port.to_owned());
        let name = |addresses: &[Address]| node_name("host", addresses);
        assert_ne!(name(&[unix("/run/a")]), name(&[unix("/run/b")]));
        assert_ne!(name(&[tcp("host:1")]), name(&[tcp("host:2")]));
        let both = [unix("/run/a"), tcp("host:1")];
        let reversed = [tcp("host:1"), unix("/run/a")];
        assert_eq!(name(&both), name(&reversed));
        assert_ne!(name(&both), name(&both[..1]));
        assert_ne!(name(&both), node_name("other", &both));
        assert_ne!(name(&[]), name(&[]));
    }
}
