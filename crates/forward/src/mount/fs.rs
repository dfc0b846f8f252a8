//! What the kernel asks, one method for each question: find the file of the caller's user, ask the node, answer.

use super::attributes::{change, device, kernel_attr, kernel_errno, kind_of_entry};
use super::caller::is_in_group;
use super::inodes::{Inode, Inodes, Listing, Open, lock};
use super::observer::Observers;
use super::waiting::{Waiter, Waiting};
use super::{Freshness, Options};
use crate::file::{File, Owner, Span};
use crate::remote::Remote;
use fuser::{
    AccessFlags, BsdFileFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use presagio_core::{Op, Range};
use presagio_ninep::{Attr, Errno, LockStatus, LockType, OpenFlags, SetAttr, XattrFlags};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The most that the kernel reads or writes at once.
const IO_MAX: u32 = 1 << 20;

/// Requests that the kernel may have under way for read-ahead and the like.
const BACKGROUND_MAX: u16 = 64;

/// How much of a directory is asked for at a time.
const LIST_MAX: u32 = 32 << 10;

/// The last byte of a file, as the kernel counts.
const LAST_BYTE: u64 = i64::MAX as u64;

/// What the kernel offers and we take, each if there is such a thing: locks go to the node; O_TRUNC comes with the open;
/// several lookups in one directory at once; mmap although reads go past the page cache; and the node takes away setuid
/// bits at a write, so that the kernel need not ask for `security.capability` each time.
const WANTED: [InitFlags; 7] = [
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_FLOCK_LOCKS,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_AUTO_INVAL_DATA,
];

thread_local! {
    /// Where a thread reads to. It becomes as large as the largest read.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(super) struct Forwarded {
    inodes: Inodes,
    waiting: Waiting,
    believe: Duration,
    freshness: Freshness,
    observers: Option<Arc<Observers>>,
    /// Closed when the session is over.
    _ends: UnixStream,
}

/// Answers with what was asked for, or with the errno.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $ok:expr) => {
        match $result {
            Ok($value) => $ok,
            Err(errno) => $reply.error(kernel_errno(errno)),
        }
    };
}

impl Forwarded {
    /// Reaches a node: a mount that can serve nobody is not made.
    pub(super) fn new(remote: Remote, options: Options, ends: UnixStream) -> io::Result<Forwarded> {
        let uid = rustix::process::geteuid().as_raw();
        let root = remote
            .root(uid)
            .map_err(|errno| unreachable_node(&remote, errno))?;
        Ok(Forwarded {
            inodes: Inodes::new(uid, root),
            waiting: Waiting::default(),
            believe: options.believe,
            freshness: options.freshness,
            observers: options.foresight.then(|| Arc::new(Observers::new(remote))),
            _ends: ends,
        })
    }

    fn file(&self, caller: &Request, number: INodeNo) -> Result<File, Errno> {
        self.inodes.get(number)?.file(caller.uid())
    }

    /// Looks a name up, and lets the kernel know the file.
    fn meet(&self, caller: &Request, dir: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let (uid, name) = (caller.uid(), name.as_bytes());
        let parent = self.inodes.get(dir)?;
        let dir = parent.file(uid)?;
        if let Some((inode, known)) = parent.seen(name, uid)
            && let Some(attr) = dir.still(name, &known)?
            && self.inodes.meet_again(&inode)
        {
            return Ok(kernel_attr(inode.number, &attr));
        }
        let (file, attr) = dir.lookup(name)?;
        let inode = self.inodes.meet(uid, file, &attr);
        parent.see(name, &inode);
        Ok(kernel_attr(inode.number, &attr))
    }

    fn attr(&self, number: INodeNo, handle: Option<FileHandle>) -> Result<FileAttr, Errno> {
        let attr = match handle {
            Some(handle) => self.inodes.get_open(handle)?.file.getattr()?,
            None => self.inodes.get(number)?.attr()?,
        };
        Ok(kernel_attr(number, &attr))
    }

    /// Bytes were read or written, and the program has its answer.
    fn observe(
        &self,
        open: &Open,
        op: Op,
        (offset, size): (u64, usize),
        moved: usize,
        began: Instant,
    ) {
        let range = Range::new(offset, size as u64);
        if let (Some(all), Some(range)) = (&self.observers, range) {
            open.observer.saw(all, &open.file, op, range, moved, began);
        }
    }

    fn open_flags(&self, flags: OpenFlags) -> FopenFlags {
        // What the kernel takes for the end of a file may be the middle of what others appended.
        match self.freshness == Freshness::Always || flags.contains(OpenFlags::APPEND) {
            true => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            false => FopenFlags::empty(),
        }
    }

    fn open_file(
        &self,
        caller: &Request,
        number: INodeNo,
        flags: OpenFlags,
    ) -> Result<FileHandle, Errno> {
        let inode = self.inodes.get(number)?;
        let uid = caller.uid();
        let file = inode.file(uid)?.open(flags)?;
        Ok(self.inodes.opened(&inode, uid, file, flags))
    }

    fn create_file(
        &self,
        caller: &Request,
        (dir, name): (INodeNo, &OsStr),
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(FileAttr, FileHandle), Errno> {
        let (uid, name) = (caller.uid(), name.as_bytes());
        let dir = self.file(caller, dir)?;
        let open = dir.create(name, flags, mode, caller.gid())?;
        let (inode, attr) = match dir.lookup(name) {
            Ok((file, attr)) if file.qid().path == open.qid().path => {
                (self.inodes.meet(uid, file, &attr), attr)
            }
            // Somebody has removed or replaced it already: it lives as long as it is open.
            _ => {
                let attr = open.getattr()?;
                (self.inodes.meet(uid, open.clone(), &attr), attr)
            }
        };
        let handle = self.inodes.opened(&inode, uid, open, flags);
        Ok((kernel_attr(inode.number, &attr), handle))
    }

    fn list(
        &self,
        handle: FileHandle,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<(), Errno> {
        let open = self.inodes.get_open(handle)?;
        let mut listed = lock(&open.listed);
        // What is left over goes on where the last reply ended, unless the program went elsewhere.
        if listed.next != offset || offset == 0 {
            *listed = Listing::default();
        }
        listed.next = offset;
        loop {
            if listed.entries.is_empty() {
                let more = open.file.read_dir(listed.next, LIST_MAX)?;
                listed.entries.extend(more);
            }
            let Some(entry) = listed.entries.front() else {
                return Ok(());
            };
            let (number, kind) = (INodeNo(entry.qid.path), kind_of_entry(entry.file_type));
            let name = OsStr::from_bytes(&entry.name);
            if reply.add(number, entry.offset, kind, name) {
                return Ok(());
            }
            listed.next = entry.offset;
            listed.entries.pop_front();
        }
    }

    /// Whether the caller may do this, as far as the mode of the file says. The node has the last word at the operation.
    fn may(&self, caller: &Request, number: INodeNo, wanted: u32) -> Result<(), Errno> {
        let attr = self.inodes.get(number)?.attr()?;
        match wanted & !granted(caller, &attr) {
            0 => Ok(()),
            _ => Err(Errno::ACCES),
        }
    }

    fn set_lock(
        &self,
        (handle, owner): (FileHandle, Owner),
        kind: LockType,
        span: Span,
    ) -> Result<(Arc<Open>, Owner, LockStatus), Errno> {
        let open = self.inodes.get_open(handle)?;
        let owner = known(&open, owner);
        if kind == LockType::Unlock {
            // Whichever of the process's descriptors it was taken through.
            unlock(&open.inode, owner.key, span)?;
            return Ok((open, owner, LockStatus::Success));
        }
        let taken = open.file.lock(owner, kind, span)?;
        Ok((open, owner, taken))
    }
}

/// What `flock` locks, all processes have that have the open file: it is known by the one that took it first.
fn known(open: &Open, owner: Owner) -> Owner {
    let mut all = open.file.lock_owners().into_iter();
    all.find(|it| it.key == owner.key).unwrap_or(owner)
}

fn unreachable_node(remote: &Remote, errno: Errno) -> io::Error {
    match remote.status().node {
        Some(node) => io::Error::other(format!("{node} does not let us in: {errno}")),
        None => io::Error::other(format!(
            "no I/O node can be reached: {}",
            remote.last_error()
        )),
    }
}

/// Gives back what an owner has of these bytes.
fn unlock(inode: &Inode, key: u64, span: Span) -> Result<(), Errno> {
    for open in inode.all_open() {
        let owners = open.file.lock_owners();
        for owner in owners.into_iter().filter(|owner| owner.key == key) {
            open.file.lock(owner, LockType::Unlock, span)?;
        }
    }
    Ok(())
}

/// The bits of `rwx` that a mode gives a caller.
fn granted(caller: &Request, attr: &Attr) -> u32 {
    if caller.uid() == 0 {
        let is_directory = attr.mode & 0o170_000 == 0o040_000;
        return 6 | u32::from(is_directory || attr.mode & 0o111 != 0);
    }
    if caller.uid() == attr.uid {
        return attr.mode >> 6 & 7;
    }
    match caller.gid() == attr.gid || is_in_group(caller.pid(), attr.gid) {
        true => attr.mode >> 3 & 7,
        false => attr.mode & 7,
    }
}

fn flags(kernel: i32) -> OpenFlags {
    OpenFlags(kernel as u32)
}

fn lock_type(kernel: i32) -> LockType {
    match kernel {
        0 => LockType::Read,
        1 => LockType::Write,
        _ => LockType::Unlock,
    }
}

fn span(start: u64, last: u64) -> Span {
    let end = match last >= LAST_BYTE {
        true => u64::MAX,
        false => last + 1,
    };
    Span { start, end }
}

impl Filesystem for Forwarded {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in WANTED {
            // Older kernels have less.
            let _ = config.add_capabilities(wanted);
        }
        // Each is a limit that the kernel may have set lower.
        let _ = config.set_max_write(IO_MAX);
        if let Err(most) = config.set_max_readahead(IO_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, caller: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.meet(caller, dir, name), attr => {
            reply.entry(&self.believe, &attr, Generation(0));
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        self.inodes.forget(number, count);
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attr(number, handle), attr => reply.attr(&self.believe, &attr));
    }

    fn setattr(
        &self,
        caller: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attr = change(mode, uid, gid, size, (atime, mtime));
        let set = || {
            match handle {
                Some(handle) => set_open(&*self.inodes.get_open(handle)?, attr)?,
                None => set_by_name(&*self.inodes.get(number)?, caller.uid(), attr)?,
            }
            self.attr(number, handle)
        };
        answer!(reply, set(), attr => reply.attr(&self.believe, &attr));
    }

    fn readlink(&self, caller: &Request, number: INodeNo, reply: ReplyData) {
        let target = self.file(caller, number).and_then(|file| file.readlink());
        answer!(reply, target, target => reply.data(&target));
    }

    fn mknod(
        &self,
        caller: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let make = || {
            let to = self.file(caller, dir)?;
            to.mknod(name.as_bytes(), mode, device(rdev), caller.gid())?;
            self.meet(caller, dir, name)
        };
        answer!(reply, make(), attr => reply.entry(&self.believe, &attr, Generation(0)));
    }

    fn mkdir(
        &self,
        caller: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let make = || {
            let to = self.file(caller, dir)?;
            to.mkdir(name.as_bytes(), mode & 0o7777, caller.gid())?;
            self.meet(caller, dir, name)
        };
        answer!(reply, make(), attr => reply.entry(&self.believe, &attr, Generation(0)));
    }

    fn unlink(&self, caller: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.file(caller, dir);
        let removed = dir.and_then(|dir| dir.unlink(name.as_bytes()));
        answer!(reply, removed, () => reply.ok());
    }

    fn rmdir(&self, caller: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.file(caller, dir);
        let removed = dir.and_then(|dir| dir.rmdir(name.as_bytes()));
        answer!(reply, removed, () => reply.ok());
    }

    fn symlink(
        &self,
        caller: &Request,
        dir: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let make = || {
            let (to, target) = (self.file(caller, dir)?, target.as_os_str());
            to.symlink(name.as_bytes(), target.as_bytes(), caller.gid())?;
            self.meet(caller, dir, name)
        };
        answer!(reply, make(), attr => reply.entry(&self.believe, &attr, Generation(0)));
    }

    fn rename(
        &self,
        caller: &Request,
        dir: INodeNo,
        name: &OsStr,
        new_dir: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            if !flags.is_empty() {
                // The protocol has no word for them, and to look first would not be atomic.
                return Err(Errno::INVAL);
            }
            let (from, to) = (self.file(caller, dir)?, self.file(caller, new_dir)?);
            from.rename(name.as_bytes(), &to, new_name.as_bytes())
        };
        answer!(reply, rename(), () => reply.ok());
    }

    fn link(
        &self,
        caller: &Request,
        number: INodeNo,
        dir: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let link = || {
            let (file, to) = (self.file(caller, number)?, self.file(caller, dir)?);
            to.link(&file, name.as_bytes())?;
            self.meet(caller, dir, name)
        };
        answer!(reply, link(), attr => reply.entry(&self.believe, &attr, Generation(0)));
    }

    fn open(&self, caller: &Request, number: INodeNo, kernel: fuser::OpenFlags, reply: ReplyOpen) {
        let flags = flags(kernel.0);
        answer!(reply, self.open_file(caller, number, flags), handle => {
            reply.opened(handle, self.open_flags(flags));
        });
    }

    fn create(
        &self,
        caller: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        kernel: i32,
        reply: ReplyCreate,
    ) {
        let flags = flags(kernel);
        let created = self.create_file(caller, (dir, name), mode & 0o7777, flags);
        answer!(reply, created, (attr, handle) => {
            let how = self.open_flags(flags);
            reply.created(&self.believe, &attr, Generation(0), handle, how);
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: fuser::OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let (began, size) = (Instant::now(), size as usize);
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let mut read = || -> Result<_, Errno> {
                let open = self.inodes.get_open(handle)?;
                let got = open.file.read_at(offset, &mut buffer[..size])?;
                Ok((open, got))
            };
            answer!(reply, read(), (open, got) => {
                reply.data(&buffer[..got]);
                self.observe(&open, Op::Read, (offset, size), got, began);
            });
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        kernel: fuser::OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let began = Instant::now();
        let write = || -> Result<_, Errno> {
            let open = self.inodes.get_open(handle)?;
            // A mapped page has a place, however the file was opened.
            let mapped = how.contains(WriteFlags::FUSE_WRITE_CACHE);
            let append = flags(kernel.0).contains(OpenFlags::APPEND) && !mapped;
            let file = open.to_write(append)?;
            match append {
                true => Ok((None, file.append(data)?)),
                false => Ok((Some(open), file.write_at(offset, data)?)),
            }
        };
        answer!(reply, write(), (open, count) => {
            reply.written(count as u32);
            if let Some(open) = open {
                self.observe(&open, Op::Write, (offset, data.len()), count, began);
            }
        });
    }

    fn flush(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // All was written when it was acknowledged; what a close means is that the process's locks go.
        let inode = self.inodes.get(number);
        let unlocked = inode.and_then(|inode| unlock(&inode, owner.0, Span::ALL));
        answer!(reply, unlocked, () => reply.ok());
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: fuser::OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(open) = self.inodes.close(handle) {
            for owner in open.file.lock_owners() {
                // The node lets go of what cannot be given back when it forgets the fid.
                let _ = open.file.lock(owner, LockType::Unlock, Span::ALL);
            }
        }
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let open = self.inodes.get_open(handle);
        let synced = open.and_then(|open| open.fsync(datasync));
        answer!(reply, synced, () => reply.ok());
    }

    fn opendir(&self, caller: &Request, number: INodeNo, _: fuser::OpenFlags, reply: ReplyOpen) {
        let opened = self.open_file(caller, number, OpenFlags::DIRECTORY);
        answer!(reply, opened, handle => reply.opened(handle, FopenFlags::empty()));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        answer!(reply, self.list(handle, offset, &mut reply), () => reply.ok());
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: fuser::OpenFlags,
        reply: ReplyEmpty,
    ) {
        drop(self.inodes.close(handle));
        reply.ok();
    }

    fn fsyncdir(
        &self,
        caller: &Request,
        number: INodeNo,
        handle: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(caller, number, handle, datasync, reply);
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let inode = self.inodes.get(number);
        let statfs = inode.and_then(|inode| inode.with_any(|file| file.statfs()));
        answer!(reply, statfs, s => reply.statfs(
            s.blocks, s.bfree, s.bavail, s.files, s.ffree, s.bsize, s.namelen, s.bsize,
        ));
    }

    fn setxattr(
        &self,
        caller: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let file = self.file(caller, number);
        let flags = XattrFlags(flags as u32);
        let set = file.and_then(|file| file.set_xattr(name.as_bytes(), value, flags));
        answer!(reply, set, () => reply.ok());
    }

    fn getxattr(
        &self,
        caller: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let file = self.file(caller, number);
        let value = file.and_then(|file| file.xattr(name.as_bytes()));
        give_xattr(value, size, reply);
    }

    fn listxattr(&self, caller: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.file(caller, number).and_then(|file| file.xattrs());
        give_xattr(names, size, reply);
    }

    fn removexattr(&self, caller: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let file = self.file(caller, number);
        let removed = file.and_then(|file| file.remove_xattr(name.as_bytes()));
        answer!(reply, removed, () => reply.ok());
    }

    fn access(&self, caller: &Request, number: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let wanted = (mask.bits() & 7) as u32;
        answer!(reply, self.may(caller, number, wanted), () => reply.ok());
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let (process, key) = (pid, owner.0);
        let owner = Owner { process, key };
        let open = self.inodes.get_open(handle);
        let found = open.and_then(|open| {
            let (kind, span) = (lock_type(kind), span(start, end));
            open.file.get_lock(known(&open, owner), kind, span)
        });
        answer!(reply, found, found => match found {
            None => reply.locked(0, 0, 2, 0),
            Some((kind, span, process)) => {
                reply.locked(span.start, (span.end - 1).min(LAST_BYTE), kind as i32, process);
            }
        });
    }

    fn setlk(
        &self,
        caller: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (process, key) = (pid, owner.0);
        let owner = Owner { process, key };
        let (kind, span) = (lock_type(kind), span(start, end));
        let set = self.set_lock((handle, owner), kind, span);
        answer!(reply, set, (open, owner, status) => match status {
            LockStatus::Success => reply.ok(),
            LockStatus::Blocked if !sleep => reply.error(kernel_errno(Errno::AGAIN)),
            _ => self.waiting.add(Waiter {
                open,
                owner,
                kind,
                span,
                blocking: sleep,
                thread: caller.pid(),
                reply,
            }),
        });
    }
}

/// Changes an open file. A plain node may go by the path and change another one.
fn set_open(open: &Open, attr: SetAttr) -> Result<(), Errno> {
    if !open.file.has_handle() && open.file.getattr()?.qid.path != open.file.qid().path {
        return Err(Errno::STALE);
    }
    open.file.setattr(attr)
}

/// Changes a file that is not given by a handle: as its user, or, if its name is gone, through what that user has open.
fn set_by_name(inode: &Inode, uid: u32, attr: SetAttr) -> Result<(), Errno> {
    let set = inode.file(uid).and_then(|file| file.setattr(attr));
    if !matches!(set, Err(Errno::NOENT | Errno::STALE)) {
        return set;
    }
    let mut open = inode.all_open().into_iter();
    match open.find(|open| open.uid == uid) {
        Some(open) => set_open(&open, attr),
        None => set,
    }
}

/// A value, or with no room for it only its size.
fn give_xattr(value: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    answer!(reply, value, value => match size {
        0 => reply.size(value.len() as u32),
        size if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        _ => reply.data(&value),
    });
}
