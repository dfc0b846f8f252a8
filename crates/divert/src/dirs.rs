//! Directory streams: `opendir` and what is done with its result.
//!
//! A stream of ours is a descriptor and entries that were read ahead; where reading goes on is the position of the descriptor,
//! as with the kernel's own directories. It begins with a word that no stream of the C library begins with, which there is
//! a descriptor. `readdir` and `getdents64` of forwarded directories both come down to [`read_some`].

use crate::call::{Errno, errno, get_errno, guarded, set_errno};
use crate::names::discard;
use crate::resolve::may_be_ours;
use crate::table::{self, Open};
use libc::{AT_FDCWD, DIR, c_char, c_int, c_long, c_void, dirent, off_t, size_t, ssize_t};
use presagio_forward::Listed;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

hooks! {
    fn opendir(path: *const c_char) -> *mut DIR = |real| if may_be_ours(AT_FDCWD, path) { open(AT_FDCWD, path) } else { real() };
    fn fdopendir(fd: c_int) -> *mut DIR = |real| of_descriptor(fd, real);
    fn readdir, readdir64(directory: *mut DIR) -> *mut dirent = |real| match ours(directory) {
        None => real(),
        Some(stream) => next(stream),
    };
    fn readdir_r, readdir64_r(directory: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int = |real| match ours(directory) {
        None => real(),
        Some(stream) => next_into(stream, entry, result),
    };
    fn closedir(directory: *mut DIR) -> c_int = |real| match ours(directory) {
        None => close_local(directory, real),
        Some(_) => close(directory.cast()),
    };
    fn dirfd(directory: *mut DIR) -> c_int = |real| match ours(directory) {
        None => real(),
        Some(stream) => stream.fd,
    };
    fn rewinddir(directory: *mut DIR) -> () = |real| match ours(directory) {
        None => real(),
        Some(stream) => go_to(stream, 0),
    };
    fn seekdir(directory: *mut DIR, place: c_long) -> () = |real| match ours(directory) {
        None => real(),
        Some(stream) => go_to(stream, place),
    };
    fn telldir(directory: *mut DIR) -> c_long = |real| match ours(directory) {
        None => real(),
        Some(stream) => place(stream),
    };
    fn scandir, scandir64(path: *const c_char, list: *mut *mut *mut dirent, wanted: Option<Wanted>, order: Option<Order>) -> c_int = |real| if may_be_ours(AT_FDCWD, path) { all(open(AT_FDCWD, path), list, wanted, order) } else { real() };
    fn scandirat, scandirat64(at: c_int, path: *const c_char, list: *mut *mut *mut dirent, wanted: Option<Wanted>, order: Option<Order>) -> c_int = |real| if may_be_ours(at, path) { all(open(at, path), list, wanted, order) } else { real() };
    fn getdents64(fd: c_int, to: *mut c_void, size: size_t) -> ssize_t = |real| entries(fd, to, size, real);
    fn getdirentries, getdirentries64(fd: c_int, to: *mut c_char, size: size_t, base: *mut off_t) -> ssize_t = |real| {
        if !base.is_null() && table::get(fd).map(discard).is_some() {
            *base = libc::lseek(fd, 0, libc::SEEK_CUR);
        }
        entries(fd, to.cast(), size, real)
    };
}

type Wanted = unsafe extern "C-unwind" fn(*const dirent) -> c_int;
type Order = unsafe extern "C-unwind" fn(*mut *const dirent, *mut *const dirent) -> c_int;

/// No stream of the C library has a negative descriptor.
const MARK: c_int = 0x8070_7265_u32 as c_int;

/// How much of a directory is asked for at a time.
const ASK: u32 = 32 << 10;

/// What comes before an entry's name.
const HEAD: usize = offset_of!(dirent, d_name);

#[repr(C)]
struct Stream {
    mark: c_int,
    fd: c_int,
    state: Mutex<State>,
}

struct State {
    ahead: VecDeque<Listed>,
    /// Behind the entry that was given last.
    place: u64,
    /// What was given last, which the program may look at until it asks for the next.
    entry: dirent,
}

/// A stream, if it is one of ours.
///
/// # Safety
///
/// Null, or what `opendir` gave and was not closed.
unsafe fn ours<'a>(directory: *mut DIR) -> Option<&'a Stream> {
    let stream = directory.cast::<Stream>();
    // SAFETY: as the caller vouches: all streams begin with a number.
    let is_ours = !stream.is_null() && unsafe { (&raw const (*stream).mark).read() } == MARK;
    // SAFETY: made by us.
    is_ours.then(|| unsafe { &*stream })
}

/// # Safety
///
/// The path is the program's.
unsafe fn open(at: c_int, path: *const c_char) -> *mut DIR {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: as the caller vouches. These functions are ours.
    unsafe {
        let fd = libc::openat64(at, path, flags);
        if fd < 0 {
            return null_mut();
        }
        let directory = libc::fdopendir(fd);
        if directory.is_null() {
            let error = get_errno();
            libc::close(fd);
            set_errno(error);
        }
        directory
    }
}

fn of_descriptor(fd: c_int, real: impl FnOnce() -> *mut DIR) -> *mut DIR {
    let Some(open) = table::get(fd) else {
        return real();
    };
    let made = guarded(|| {
        let (is_dir, is_readable) = (open.is_dir, open.is_readable());
        drop(open);
        match (is_dir, is_readable) {
            (false, _) => Err(Errno::NOTDIR),
            (true, false) => Err(Errno::BADF),
            (true, true) => new(fd),
        }
    });
    made.unwrap_or_else(|errno| {
        set_errno(errno.0 as c_int);
        null_mut()
    })
}

fn new(fd: c_int) -> Result<*mut DIR, Errno> {
    let state = State {
        ahead: VecDeque::new(),
        place: table::seek(fd, 0, libc::SEEK_CUR)?,
        // SAFETY: numbers, for which zero is a value.
        entry: unsafe { std::mem::zeroed() },
    };
    // As `fdopendir` does: the stream's descriptor is not for other programs.
    // SAFETY: no pointers. Our own call reaches the real function.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    let stream = Stream {
        mark: MARK,
        fd,
        state: Mutex::new(state),
    };
    Ok(Box::into_raw(Box::new(stream)).cast())
}

/// # Safety
///
/// A stream of ours, which nobody uses afterwards.
unsafe fn close(stream: *mut Stream) -> c_int {
    // SAFETY: as the caller vouches.
    let stream = unsafe { Box::from_raw(stream) };
    let fd = stream.fd;
    discard(stream);
    // SAFETY: the stream's own. This `close` is ours.
    unsafe { libc::close(fd) }
}

/// The C library closes the descriptor where we do not see it.
///
/// # Safety
///
/// A stream of the C library.
unsafe fn close_local(directory: *mut DIR, real: impl FnOnce() -> c_int) -> c_int {
    if directory.is_null() {
        return real();
    }
    // SAFETY: as the caller vouches.
    table::number_freed(unsafe { libc::dirfd(directory) });
    real()
}

impl Stream {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        guarded(|| act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn next(stream: &Stream) -> *mut dirent {
    let next = stream.with(|state| {
        let found = advance(stream.fd, state)?;
        Ok(if found {
            &raw mut state.entry
        } else {
            null_mut()
        })
    });
    next.unwrap_or_else(|errno| {
        set_errno(errno.0 as c_int);
        null_mut()
    })
}

/// # Safety
///
/// There is room for both.
unsafe fn next_into(stream: &Stream, entry: *mut dirent, result: *mut *mut dirent) -> c_int {
    let next = stream.with(|state| {
        let found = advance(stream.fd, state)?;
        // SAFETY: as the caller vouches; an entry need not have more room than its name takes.
        unsafe {
            *result = null_mut();
            if found {
                let from = (&raw const state.entry).cast::<u8>();
                std::ptr::copy_nonoverlapping(from, entry.cast(), state.entry.d_reclen.into());
                *result = entry;
            }
        }
        Ok(())
    });
    next.map_or_else(|errno| errno.0 as c_int, |()| 0)
}

/// Puts the next entry where the program finds it; `false` at the end.
fn advance(fd: c_int, state: &mut State) -> Result<bool, Errno> {
    if state.ahead.is_empty() {
        let open = table::get(fd).ok_or(Errno::BADF)?;
        let position = table::seek(fd, 0, libc::SEEK_CUR)?;
        state.ahead = read_some(&open, position, ASK)?.into();
        if let Some(last) = state.ahead.back() {
            table::seek(fd, last.offset as i64, libc::SEEK_SET)?;
        }
    }
    let Some(listed) = state.ahead.pop_front() else {
        return Ok(false);
    };
    state.place = listed.offset;
    fill(&mut state.entry, &listed);
    Ok(true)
}

/// Entries of a directory from a position on; none at its end, or if it was removed.
fn read_some(open: &Open, position: u64, size: u32) -> Result<Vec<Listed>, Errno> {
    let mut all = match open.file()?.read_dir(position, size) {
        Err(Errno::NOENT) => Vec::new(),
        read => read?,
    };
    // Such a name could not be told.
    all.retain(|listed| listed.name.len() < 256);
    Ok(all)
}

/// How long an entry is: with its name, the zero behind it, and up to the next whole word.
fn length(listed: &Listed) -> usize {
    (HEAD + listed.name.len() + 1).next_multiple_of(8)
}

fn fill(entry: &mut dirent, listed: &Listed) {
    entry.d_ino = listed.qid.path;
    entry.d_off = listed.offset as i64;
    entry.d_reclen = length(listed) as u16;
    entry.d_type = listed.file_type;
    let name = listed.name.iter().map(|byte| *byte as c_char);
    for (to, from) in entry.d_name.iter_mut().zip(name.chain([0])) {
        *to = from;
    }
}

fn go_to(stream: &Stream, place: c_long) {
    let _ = stream.with(|state| {
        state.ahead.clear();
        state.place = place as u64;
        table::seek(stream.fd, place, libc::SEEK_SET)
    });
}

fn place(stream: &Stream) -> c_long {
    stream.with(|state| Ok(state.place)).unwrap_or(0) as c_long
}

/// # Safety
///
/// There is room for so much.
unsafe fn entries(
    fd: c_int,
    to: *mut c_void,
    size: size_t,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(open) = table::get(fd) else {
        return real();
    };
    let read = guarded(|| {
        let open = open;
        match open.is_dir {
            // SAFETY: as the caller vouches.
            true => unsafe { copy_entries(&open, fd, to.cast(), size) },
            false => Err(Errno::NOTDIR),
        }
    });
    crate::call::counted(read)
}

/// # Safety
///
/// There is room for so much.
unsafe fn copy_entries(open: &Open, fd: c_int, to: *mut u8, size: usize) -> Result<usize, Errno> {
    open.at_position(fd, |position| {
        let (mut done, mut position) = (0, position);
        let ask = u32::try_from(size).unwrap_or(ASK).clamp(512, ASK);
        let listed = read_some(open, position, ask)?;
        let none_fits = listed.first().is_some_and(|first| length(first) > size);
        if none_fits {
            return Err(Errno::INVAL);
        }
        for one in &listed {
            if done + length(one) > size {
                break;
            }
            // SAFETY: numbers, for which zero is a value.
            let mut entry: dirent = unsafe { std::mem::zeroed() };
            fill(&mut entry, one);
            // SAFETY: so much room is left.
            unsafe {
                std::ptr::copy_nonoverlapping((&raw const entry).cast(), to.add(done), length(one))
            };
            done += length(one);
            position = one.offset;
        }
        Ok((done, position))
    })
}

/// Reads a whole directory into memory that the program is to free, sorted as it wants. Its own functions run in between, so all
/// is the program's memory.
///
/// # Safety
///
/// The functions are the program's; a stream of any kind, or null.
unsafe fn all(
    directory: *mut DIR,
    list: *mut *mut *mut dirent,
    wanted: Option<Wanted>,
    order: Option<Order>,
) -> c_int {
    if directory.is_null() {
        return -1;
    }
    let mut found = List {
        items: null_mut(),
        count: 0,
        room: 0,
    };
    // SAFETY: as the caller vouches.
    unsafe {
        let read = found.fill(directory, wanted);
        libc::closedir(directory);
        if let Err(error) = read {
            found.free();
            set_errno(error.0 as c_int);
            return -1;
        }
        if let Some(order) = order {
            found.sort(order);
        }
        *list = found.items;
    }
    found.count as c_int
}

/// Entries in the program's memory.
struct List {
    items: *mut *mut dirent,
    count: usize,
    room: usize,
}

impl List {
    /// # Safety
    ///
    /// As for [`all`].
    unsafe fn fill(&mut self, directory: *mut DIR, wanted: Option<Wanted>) -> Result<(), Errno> {
        let before = get_errno();
        loop {
            set_errno(0);
            // SAFETY: as the caller vouches.
            unsafe {
                let entry = libc::readdir(directory);
                if entry.is_null() {
                    return match get_errno() {
                        0 => {
                            set_errno(before);
                            Ok(())
                        }
                        error => Err(errno(error)),
                    };
                }
                if wanted.is_none_or(|wanted| wanted(entry) != 0) {
                    self.push(entry)?;
                }
            }
        }
    }

    /// # Safety
    ///
    /// An entry that is there.
    unsafe fn push(&mut self, entry: *const dirent) -> Result<(), Errno> {
        const NO_MEMORY: Errno = errno(libc::ENOMEM);
        // SAFETY: the program's own allocator; as long as the entry says.
        unsafe {
            if self.count == self.room {
                let room = (self.room * 2).max(16);
                let items = libc::realloc(self.items.cast(), room * size_of::<*mut dirent>());
                if items.is_null() {
                    return Err(NO_MEMORY);
                }
                (self.items, self.room) = (items.cast(), room);
            }
            let name = CStr::from_ptr((&raw const (*entry).d_name).cast()).count_bytes();
            let length = (HEAD + name + 1).next_multiple_of(8);
            let copy = libc::malloc(length.max((*entry).d_reclen.into()));
            if copy.is_null() {
                return Err(NO_MEMORY);
            }
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), HEAD + name + 1);
            *self.items.add(self.count) = copy.cast();
        }
        self.count += 1;
        Ok(())
    }

    /// # Safety
    ///
    /// The function is the program's.
    unsafe fn sort(&mut self, order: Order) {
        if self.count == 0 {
            return;
        }
        // SAFETY: so many are there; what is compared are places of entries, as the program's function expects.
        unsafe {
            let order = std::mem::transmute::<
                Order,
                unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
            >(order);
            libc::qsort(
                self.items.cast(),
                self.count,
                size_of::<*mut dirent>(),
                Some(order),
            );
        }
    }

    /// # Safety
    ///
    /// Nobody has it yet.
    unsafe fn free(&mut self) {
        for index in 0..self.count {
            // SAFETY: ours until the program has them.
            unsafe { libc::free((*self.items.add(index)).cast()) };
        }
        // SAFETY: as above.
        unsafe { libc::free(self.items.cast()) };
    }
}
