//! The files that the kernel knows, and those that are open.
//!
//! An inode's number is that of the file at the node, so that programs see the numbers that others see, and two names of
//! one file are one inode; only the root is 1. A file that has taken the number of one that is gone, while the kernel
//! still remembers that, gets a number that no file system gives.

use super::observer::Observer;
use crate::file::{File, Listed};
use fuser::{FileHandle, INodeNo};
use presagio_ninep::{Attr, Errno, GetAttr, OpenFlags, Qid, Time};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Numbers from here on are made up.
const MADE_UP: u64 = 1 << 63;

/// Users whose fid of a file is kept. Others come and go.
const USERS_KEPT: usize = 8;

/// Names of a directory that are remembered.
const SEEN_MAX: usize = 1024;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that the kernel knows.
pub(super) struct Inode {
    pub(super) number: INodeNo,
    qid: Qid,
    /// When it was made, where the node knows that.
    born: Option<Time>,
    /// One for each user who was here, the last one last.
    files: Mutex<Vec<(u32, File)>>,
    open: Mutex<Vec<Weak<Open>>>,
    /// Of a directory: what its names were when they were last looked up.
    seen: Mutex<HashMap<Box<[u8]>, Weak<Inode>>>,
}

impl Inode {
    /// The file that a name was of, as a user has it, if the kernel still knows it.
    pub(super) fn seen(&self, name: &[u8], uid: u32) -> Option<(Arc<Inode>, File)> {
        let inode = lock(&self.seen).get(name)?.upgrade()?;
        let files = lock(&inode.files);
        let file = files.iter().find(|(user, _)| *user == uid)?.1.clone();
        drop(files);
        Some((inode, file))
    }

    /// A name was looked up.
    pub(super) fn see(&self, name: &[u8], inode: &Arc<Inode>) {
        let mut seen = lock(&self.seen);
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(name.into(), Arc::downgrade(inode));
    }

    /// Whether a file with the same number is the same, and not one that was made since.
    fn is(&self, qid: Qid, born: Option<Time>) -> bool {
        let made_since = self.born.zip(born).is_some_and(|(old, new)| old != new);
        self.qid.kind == qid.kind && !made_since
    }

    /// The file as a user has it.
    pub(super) fn file(&self, uid: u32) -> Result<File, Errno> {
        let files = lock(&self.files);
        if let Some((_, file)) = files.iter().find(|(user, _)| *user == uid) {
            return Ok(file.clone());
        }
        let any = files.last().map(|(_, file)| file.clone());
        drop(files);
        let file = match any {
            Some(file) => file.for_user(uid)?,
            None => self.any_open().ok_or(Errno::STALE)?.file.for_user(uid)?,
        };
        self.keep(uid, file.clone());
        Ok(file)
    }

    /// The newest fid is the best: where nodes go by paths, it has the newest path.
    fn keep(&self, uid: u32, file: File) {
        let mut files = lock(&self.files);
        files.retain(|(user, _)| *user != uid);
        if files.len() >= USERS_KEPT {
            files.remove(0);
        }
        files.push((uid, file));
    }

    fn any_open(&self) -> Option<Arc<Open>> {
        lock(&self.open).iter().find_map(Weak::upgrade)
    }

    /// All that is open of it.
    pub(super) fn all_open(&self) -> Vec<Arc<Open>> {
        lock(&self.open).iter().filter_map(Weak::upgrade).collect()
    }

    /// Does something with the file that needs no particular user; with an open one if it has no name any more.
    pub(super) fn with_any<T>(&self, act: impl Fn(&File) -> Result<T, Errno>) -> Result<T, Errno> {
        let any = lock(&self.files).last().map(|(_, file)| file.clone());
        let done = any.map_or(Err(Errno::STALE), |file| act(&file));
        match done {
            Err(Errno::NOENT | Errno::STALE) => match self.any_open() {
                Some(open) => act(&open.file),
                None => done,
            },
            done => done,
        }
    }

    /// Its attributes. A node that goes by paths may have taken another file for it.
    pub(super) fn attr(&self) -> Result<Attr, Errno> {
        self.with_any(|file| {
            let attr = file.getattr()?;
            match attr.qid.path == self.qid.path {
                true => Ok(attr),
                false => Err(Errno::STALE),
            }
        })
    }
}

/// An open file or directory.
pub(super) struct Open {
    pub(super) file: File,
    pub(super) inode: Arc<Inode>,
    pub(super) uid: u32,
    pub(super) flags: OpenFlags,
    /// The same with O_APPEND the other way round, for programs that change it while the file is open.
    twin: OnceLock<File>,
    /// Of a directory.
    pub(super) listed: Mutex<Listing>,
    /// Of a file.
    pub(super) observer: Observer,
}

/// Entries that were read and not yet given to the kernel, which asks for few at a time.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) entries: VecDeque<Listed>,
    /// The offset of the first of them.
    pub(super) next: u64,
}

impl Open {
    /// The file, to append or not.
    pub(super) fn to_write(&self, append: bool) -> Result<File, Errno> {
        if append == self.flags.contains(OpenFlags::APPEND) {
            return Ok(self.file.clone());
        }
        if let Some(twin) = self.twin.get() {
            return Ok(twin.clone());
        }
        let flags = OpenFlags(self.flags.0 ^ OpenFlags::APPEND.0);
        let flags = flags.without(OpenFlags::TRUNC | OpenFlags::CREAT | OpenFlags::EXCL);
        let twin = self.inode.file(self.uid)?.open(flags)?;
        let twin = twin.under_locks_of(&self.file);
        Ok(self.twin.get_or_init(|| twin).clone())
    }

    /// Makes durable what was written, to append or not.
    pub(super) fn fsync(&self, data_only: bool) -> Result<(), Errno> {
        let synced = self.file.fsync(data_only);
        let twin = self.twin.get().map(|twin| twin.fsync(data_only));
        synced.and(twin.unwrap_or(Ok(())))
    }
}

struct Known {
    inode: Arc<Inode>,
    lookups: u64,
}

pub(super) struct Inodes {
    known: Mutex<HashMap<u64, Known>>,
    made_up: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Open>>>,
    handles: AtomicU64,
}

impl Inodes {
    /// With the root, as its first user has it.
    pub(super) fn new(uid: u32, root: File) -> Inodes {
        let inode = Inode {
            number: INodeNo::ROOT,
            qid: root.qid(),
            born: None,
            files: Mutex::new(vec![(uid, root)]),
            open: Mutex::default(),
            seen: Mutex::default(),
        };
        let root = Known {
            inode: Arc::new(inode),
            lookups: 1,
        };
        Inodes {
            known: Mutex::new(HashMap::from([(INodeNo::ROOT.0, root)])),
            made_up: AtomicU64::new(MADE_UP),
            open: Mutex::default(),
            handles: AtomicU64::new(1),
        }
    }

    pub(super) fn get(&self, number: INodeNo) -> Result<Arc<Inode>, Errno> {
        let known = lock(&self.known);
        let found = known.get(&number.0).map(|known| known.inode.clone());
        found.ok_or(Errno::STALE)
    }

    /// The kernel is about to learn of a file, once more or for the first time.
    pub(super) fn meet(&self, uid: u32, file: File, attr: &Attr) -> Arc<Inode> {
        let (qid, born) = (attr.qid, born(attr));
        let mut known = lock(&self.known);
        let mut number = qid.path;
        let old = known.get_mut(&number).filter(|_| number > 1);
        if let Some(old) = old.filter(|old| old.inode.is(qid, born)) {
            old.lookups += 1;
            let inode = old.inode.clone();
            drop(known);
            inode.keep(uid, file);
            return inode;
        }
        if number <= 1 || number >= MADE_UP || known.contains_key(&number) {
            number = self.made_up.fetch_add(1, Ordering::Relaxed);
        }
        let inode = Arc::new(Inode {
            number: INodeNo(number),
            qid,
            born,
            files: Mutex::new(vec![(uid, file)]),
            open: Mutex::default(),
            seen: Mutex::default(),
        });
        let new = Known {
            inode: inode.clone(),
            lookups: 1,
        };
        known.insert(number, new);
        inode
    }

    /// The kernel is told once more of a file that it knows; not if it has forgotten it meanwhile.
    pub(super) fn meet_again(&self, inode: &Inode) -> bool {
        let mut known = lock(&self.known);
        let one = known.get_mut(&inode.number.0);
        let one = one.filter(|one| std::ptr::eq(&*one.inode, inode));
        one.map(|one| one.lookups += 1).is_some()
    }

    /// The kernel has forgotten so many of its meetings.
    pub(super) fn forget(&self, number: INodeNo, count: u64) {
        if number == INodeNo::ROOT {
            return;
        }
        let mut known = lock(&self.known);
        let Some(one) = known.get_mut(&number.0) else {
            return;
        };
        one.lookups = one.lookups.saturating_sub(count);
        let gone = (one.lookups == 0).then(|| known.remove(&number.0));
        drop(known);
        // Its fids are given back here, without the lock.
        drop(gone);
    }

    pub(super) fn opened(
        &self,
        inode: &Arc<Inode>,
        uid: u32,
        file: File,
        flags: OpenFlags,
    ) -> FileHandle {
        let open = Arc::new(Open {
            file,
            inode: inode.clone(),
            uid,
            flags,
            twin: OnceLock::new(),
            listed: Mutex::default(),
            observer: Observer::default(),
        });
        let mut of_inode = lock(&inode.open);
        of_inode.retain(|open| open.strong_count() > 0);
        of_inode.push(Arc::downgrade(&open));
        drop(of_inode);
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(handle, open);
        FileHandle(handle)
    }

    pub(super) fn get_open(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        let open = lock(&self.open).get(&handle.0).cloned();
        open.ok_or(Errno::BADF)
    }

    pub(super) fn close(&self, handle: FileHandle) -> Option<Arc<Open>> {
        lock(&self.open).remove(&handle.0)
    }
}

/// When a file was made, if the node says so.
fn born(attr: &Attr) -> Option<Time> {
    attr.valid.contains(GetAttr::BTIME).then_some(attr.btime)
}
