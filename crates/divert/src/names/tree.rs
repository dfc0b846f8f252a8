//! `ftw` and `nftw`: walks through a tree, of our own, since the C library's reaches its own functions and not ours.
//!
//! Nothing is allocated here, for between two steps the program's own code runs, which may never return. Each level of
//! the tree holds one directory open, whatever number of descriptors the program allows. A directory is taken for one that was
//! seen if it is one of those that lead to it, so that no walk is endless.

use crate::call::{get_errno, set_errno};
use crate::resolve::may_be_ours;
use libc::{AT_FDCWD, DIR, c_char, c_int, c_void, stat};
use std::ffi::CStr;
use std::mem::zeroed;

hooks! {
    fn nftw, nftw64(path: *const c_char, function: *mut c_void, descriptors: c_int, flags: c_int) -> c_int = |real| walk(path, Function::New(std::mem::transmute::<*mut c_void, NewFunction>(function)), flags, real);
    fn ftw, ftw64(path: *const c_char, function: *mut c_void, descriptors: c_int) -> c_int = |real| walk(path, Function::Old(std::mem::transmute::<*mut c_void, OldFunction>(function)), 0, real);
}

type NewFunction =
    unsafe extern "C-unwind" fn(*const c_char, *const stat, c_int, *mut Place) -> c_int;
type OldFunction = unsafe extern "C-unwind" fn(*const c_char, *const stat, c_int) -> c_int;

/// What the program wants called.
#[derive(Clone, Copy)]
enum Function {
    Old(OldFunction),
    New(NewFunction),
}

/// `struct FTW` of <ftw.h>.
#[repr(C)]
struct Place {
    base: c_int,
    level: c_int,
}

const PHYSICAL: c_int = 1;
const ONE_DEVICE: c_int = 2;
const CHANGE_DIRECTORY: c_int = 4;
const DEPTH_FIRST: c_int = 8;
const ACTIONS: c_int = 16;

const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

const FILE: c_int = 0;
const DIRECTORY: c_int = 1;
const UNREADABLE: c_int = 2;
const UNKNOWN: c_int = 3;
const LINK: c_int = 4;
const DIRECTORY_DONE: c_int = 5;
const BROKEN_LINK: c_int = 6;

const ROOM: usize = libc::PATH_MAX as usize;

struct Walk {
    function: Function,
    flags: c_int,
    device: libc::dev_t,
    path: [u8; ROOM],
    /// Without the zero.
    length: usize,
    /// Where relative paths start, if the working directory changes; a zero at its end.
    start: [u8; ROOM],
}

/// A directory that is being walked through, and the one above it.
struct Above<'a> {
    identity: (libc::dev_t, libc::ino_t),
    next: Option<&'a Above<'a>>,
}

impl Above<'_> {
    fn has(&self, identity: (libc::dev_t, libc::ino_t)) -> bool {
        self.identity == identity || self.next.is_some_and(|next| next.has(identity))
    }
}

/// # Safety
///
/// Path and function are the program's.
unsafe fn walk(
    path: *const c_char,
    function: Function,
    flags: c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(AT_FDCWD, path) } {
        return real();
    }
    // SAFETY: as the caller vouches.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let end = text
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(1, |last| last + 1);
    let text = &text[..end.min(text.len())];
    if text.is_empty() || text.len() >= ROOM {
        set_errno(if text.is_empty() {
            libc::ENOENT
        } else {
            libc::ENAMETOOLONG
        });
        return -1;
    }
    let mut walk = Walk {
        function,
        flags,
        device: 0,
        path: [0; ROOM],
        length: text.len(),
        start: [0; ROOM],
    };
    walk.path[..text.len()].copy_from_slice(text);
    // SAFETY: as the caller vouches.
    unsafe {
        if flags & CHANGE_DIRECTORY == 0 {
            return walk.run();
        }
        walk.run_and_come_back()
    }
}

impl Walk {
    /// # Safety
    ///
    /// The function is the program's.
    unsafe fn run_and_come_back(&mut self) -> c_int {
        // SAFETY: there is that much room; the descriptor is ours until it is closed.
        unsafe {
            if libc::getcwd(self.start.as_mut_ptr().cast(), ROOM).is_null() {
                return -1;
            }
            let back = libc::open(
                c".".as_ptr(),
                libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
            );
            if back < 0 {
                return -1;
            }
            let result = self.run();
            let error = get_errno();
            libc::fchdir(back);
            libc::close(back);
            set_errno(error);
            result
        }
    }

    /// # Safety
    ///
    /// As above.
    unsafe fn run(&mut self) -> c_int {
        // SAFETY: as the caller vouches.
        unsafe {
            let (kind, status) = match self.look() {
                Some((UNKNOWN, _)) | None => return -1,
                Some(found) => found,
            };
            self.device = status.st_dev;
            let base = self.path[..self.length]
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(0, |slash| slash + 1);
            match self.visit(kind, &status, base, 0, None) {
                SKIP_SUBTREE | SKIP_SIBLINGS if self.flags & ACTIONS != 0 => 0,
                result => result,
            }
        }
    }

    /// What the path leads to; `None` if that cannot be found out, with the reason in `errno`.
    ///
    /// # Safety
    ///
    /// Only for the calls within.
    unsafe fn look(&self) -> Option<(c_int, stat)> {
        // SAFETY: the structure is ours.
        let mut status: stat = unsafe { zeroed() };
        let flags = if self.flags & PHYSICAL != 0 {
            libc::AT_SYMLINK_NOFOLLOW
        } else {
            0
        };
        if self.status(flags, &mut status) == 0 {
            let kind = match status.st_mode & libc::S_IFMT {
                libc::S_IFDIR => DIRECTORY,
                libc::S_IFLNK => LINK,
                _ => FILE,
            };
            return Some((kind, status));
        }
        let error = get_errno();
        if flags == 0
            && self.status(libc::AT_SYMLINK_NOFOLLOW, &mut status) == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFLNK
        {
            return Some((BROKEN_LINK, status));
        }
        set_errno(error);
        matches!(error, libc::EACCES | libc::ENOENT).then_some((UNKNOWN, status))
    }

    fn status(&self, flags: c_int, to: &mut stat) -> c_int {
        // SAFETY: the path ends with a zero; this `fstatat` is ours.
        self.at(&self.path, |path| unsafe {
            libc::fstatat(AT_FDCWD, path, to, flags)
        })
    }

    /// Calls something with the path, from wherever relative ones started.
    fn at<T>(&self, path: &[u8; ROOM], call: impl FnOnce(*const c_char) -> T) -> T {
        let start = self.start.iter().position(|byte| *byte == 0).unwrap_or(0);
        if self.flags & CHANGE_DIRECTORY == 0 || path[0] == b'/' || start + 1 + self.length >= ROOM
        {
            return call(path.as_ptr().cast());
        }
        let mut whole = self.start;
        whole[start] = b'/';
        whole[start + 1..=start + self.length].copy_from_slice(&path[..self.length]);
        call(whole.as_ptr().cast())
    }

    /// Tells the program of one file, and of what is below it.
    ///
    /// # Safety
    ///
    /// The function is the program's.
    unsafe fn visit(
        &mut self,
        kind: c_int,
        status: &stat,
        base: usize,
        level: c_int,
        above: Option<&Above<'_>>,
    ) -> c_int {
        if self.flags & ONE_DEVICE != 0 && kind != UNKNOWN && status.st_dev != self.device {
            return 0;
        }
        let identity = (status.st_dev, status.st_ino);
        // SAFETY: as the caller vouches.
        unsafe {
            if kind != DIRECTORY {
                return self.tell(kind, status, base, level);
            }
            if above.is_some_and(|above| above.has(identity)) {
                return 0;
            }
            let directory = self.at(&self.path, |path| libc::opendir(path));
            if directory.is_null() {
                return match get_errno() {
                    libc::EACCES => self.tell(UNREADABLE, status, base, level),
                    _ => -1,
                };
            }
            let result = self.directory(
                directory,
                status,
                base,
                level,
                &Above {
                    identity,
                    next: above,
                },
            );
            let error = get_errno();
            libc::closedir(directory);
            set_errno(error);
            result
        }
    }

    /// # Safety
    ///
    /// As above; the directory is open.
    unsafe fn directory(
        &mut self,
        directory: *mut DIR,
        status: &stat,
        base: usize,
        level: c_int,
        here: &Above<'_>,
    ) -> c_int {
        // SAFETY: as the caller vouches.
        unsafe {
            if self.flags & DEPTH_FIRST == 0 {
                match self.tell(DIRECTORY, status, base, level) {
                    0 => {}
                    SKIP_SUBTREE if self.flags & ACTIONS != 0 => return 0,
                    result => return result,
                }
            }
            match self.entries(directory, level, here) {
                0 => {}
                SKIP_SIBLINGS if self.flags & ACTIONS != 0 => {}
                result => return result,
            }
            match self.flags & DEPTH_FIRST {
                0 => 0,
                _ => self.tell(DIRECTORY_DONE, status, base, level),
            }
        }
    }

    /// # Safety
    ///
    /// As above.
    unsafe fn entries(&mut self, directory: *mut DIR, level: c_int, here: &Above<'_>) -> c_int {
        loop {
            set_errno(0);
            // SAFETY: as the caller vouches.
            let entry = unsafe { libc::readdir(directory) };
            if entry.is_null() {
                return if get_errno() == 0 { 0 } else { -1 };
            }
            // SAFETY: until the next one is read it stays.
            let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            // SAFETY: as the caller vouches.
            let result = unsafe { self.entry(name, level, here) };
            if result != 0 && !(result == SKIP_SUBTREE && self.flags & ACTIONS != 0) {
                return result;
            }
        }
    }

    /// # Safety
    ///
    /// As above.
    unsafe fn entry(&mut self, name: &[u8], level: c_int, here: &Above<'_>) -> c_int {
        let before = self.length;
        let slash = usize::from(self.path[before - 1] != b'/');
        let base = before + slash;
        if base + name.len() >= ROOM {
            set_errno(libc::ENAMETOOLONG);
            return -1;
        }
        self.path[before] = b'/';
        self.path[base..base + name.len()].copy_from_slice(name);
        self.path[base + name.len()] = 0;
        self.length = base + name.len();
        // SAFETY: as the caller vouches.
        let result = unsafe {
            match self.look() {
                Some((kind, status)) => self.visit(kind, &status, base, level + 1, Some(here)),
                None => -1,
            }
        };
        self.path[before] = 0;
        self.length = before;
        result
    }

    /// # Safety
    ///
    /// The function is the program's.
    unsafe fn tell(&self, kind: c_int, status: &stat, base: usize, level: c_int) -> c_int {
        if self.flags & CHANGE_DIRECTORY != 0 && self.change(base) != 0 {
            return -1;
        }
        let path = self.path.as_ptr().cast();
        let mut place = Place {
            base: base as c_int,
            level,
        };
        // SAFETY: as the caller vouches.
        unsafe {
            match self.function {
                Function::New(function) => function(path, status, kind, &mut place),
                Function::Old(function) => function(path, status, old_kind(kind)),
            }
        }
    }

    /// Goes to the directory that a file is in.
    fn change(&self, base: usize) -> c_int {
        let mut parent = self.path;
        let end = if base > 1 { base - 1 } else { base };
        parent[end] = 0;
        if end == 0 {
            // SAFETY: the path ends with a zero.
            return unsafe { libc::chdir(self.start.as_ptr().cast()) };
        }
        let above = Walk {
            path: parent,
            length: end,
            ..*self
        };
        // SAFETY: the path ends with a zero.
        above.at(&above.path, |path| unsafe { libc::chdir(path) })
    }
}

/// What `ftw` knows is less.
fn old_kind(kind: c_int) -> c_int {
    match kind {
        LINK => FILE,
        BROKEN_LINK => UNKNOWN,
        DIRECTORY_DONE => DIRECTORY,
        kind => kind,
    }
}
