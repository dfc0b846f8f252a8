//! Opening files.

use crate::call::{Errno, errno, guarded, number};
use crate::placeholder::{Blank, Meaning};
use crate::resolve::{Last, Routed, Spot, route};
use crate::table::{self, Open};
use crate::world;
use libc::{c_char, c_int, mode_t};
use presagio_arena::sys;
use presagio_forward::File;
use presagio_ninep::{OpenFlags, QidKind, SetAttr, SetMask};
use std::ffi::CStr;

/// What is done when the file is open, and must not be done again.
const MAKING: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;

/// What O_PATH leaves of the other flags.
const WITH_PATH: c_int = libc::O_PATH | libc::O_CLOEXEC | libc::O_DIRECTORY | libc::O_NOFOLLOW;

/// O_TMPFILE without O_DIRECTORY.
const TMPFILE: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

hooks! {
    fn open, open64, __open, __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |real, real_fn| open_at(libc::AT_FDCWD, path, flags, mode, real, |path| real_fn(path, flags, mode));
    fn openat, openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |real, real_fn| open_at(at, path, flags, mode, real, |path| real_fn(libc::AT_FDCWD, path, flags, mode));
    fn __open_2, __open64_2(path: *const c_char, flags: c_int) -> c_int = |real, real_fn| open_at(libc::AT_FDCWD, path, flags, 0, real, |path| real_fn(path, flags));
    fn __openat_2, __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int = |real, real_fn| open_at(at, path, flags, 0, real, |path| real_fn(libc::AT_FDCWD, path, flags));
    fn creat, creat64(path: *const c_char, mode: mode_t) -> c_int = |real, real_fn| open_at(libc::AT_FDCWD, path, CREAT, mode, real, |path| real_fn(path, mode));
}

/// How often a file is looked for that others replace again and again.
const STALE_TRIES: usize = 8;

/// What `creat` means.
const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// # Safety
///
/// The arguments are those of the call.
unsafe fn open_at(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    real: impl FnOnce() -> c_int,
    real_at: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    if let Some(open) = unsafe { magic_number(path) }.and_then(table::get) {
        let fd = number(guarded(|| open_again(&open, flags)));
        super::changed(fd);
        return fd;
    }
    let keeps = flags & libc::O_NOFOLLOW != 0 || is_exclusive(flags);
    let last = if keeps { Last::Keep } else { Last::Follow };
    // A file that lost its name between being found and being opened is looked for again, as the kernel does.
    let routed = (0..STALE_TRIES)
        // SAFETY: as the caller vouches.
        .map(|_| unsafe { route(at, path, last, |spot| open_spot(&spot, flags, mode)) })
        .find(|routed| !matches!(routed, Err(Errno::STALE)))
        .unwrap_or(Err(Errno::STALE));
    let fd = match routed {
        Ok(Routed::Real) => real(),
        Ok(Routed::RealAt(path)) => real_at(path.as_ptr()),
        Ok(Routed::Done(fd)) => fd,
        Err(errno) => return number(Err(errno)),
    };
    super::changed(fd);
    fd
}

fn is_exclusive(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0
}

/// The number in a path such as /dev/fd/5 or /proc/self/fd/5, which the kernel takes for what that descriptor is of.
///
/// # Safety
///
/// The path is null, or ends with a zero.
pub unsafe fn magic_number(path: *const c_char) -> Option<c_int> {
    if path.is_null() {
        return None;
    }
    // SAFETY: as the caller vouches.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let digits = match path.strip_prefix(b"/dev/") {
        Some(b"stdin") => return Some(0),
        Some(b"stdout") => return Some(1),
        Some(b"stderr") => return Some(2),
        Some(rest) => rest.strip_prefix(b"fd/")?,
        None => {
            let rest = path.strip_prefix(b"/proc/")?;
            let (process, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'/')?);
            let is_us = matches!(process, b"self" | b"thread-self")
                || process == sys::process_id().to_string().as_bytes();
            rest.strip_prefix(b"/fd/").filter(|_| is_us)?
        }
    };
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Opens a file that is open already, by another description.
fn open_again(open: &Open, flags: c_int) -> Result<c_int, Errno> {
    if flags & libc::O_DIRECTORY != 0 && !open.is_dir {
        return Err(Errno::NOTDIR);
    }
    if is_exclusive(flags) {
        return Err(Errno::EXIST);
    }
    let blank = Blank::new(&open.path)?;
    let (meaning, file) = open.again(flags & !MAKING)?;
    if flags & libc::O_TRUNC != 0 && !open.is_dir {
        file.setattr(SetAttr {
            valid: SetMask::SIZE,
            ..SetAttr::default()
        })?;
    }
    let fd = blank.fill(&meaning)?;
    table::opened(fd, meaning, file);
    Ok(fd)
}

/// Opens what is at a spot, or makes it, as `open` does; a descriptor of it.
fn open_spot(spot: &Spot, flags: c_int, mode: mode_t) -> Result<c_int, Errno> {
    if flags & TMPFILE != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let flags = match flags & libc::O_PATH {
        0 => flags,
        _ => flags & WITH_PATH,
    };
    check(spot, flags)?;
    let prefix = &world::prefixes()[spot.export];
    // First, so that its number is the lowest that is free, whatever we need meanwhile.
    let blank = Blank::new(&[prefix, &b"/"[..], &spot.path].concat())?;
    let file = open_file(spot, flags, mode)?;
    let meaning = Meaning {
        flags: flags & !MAKING,
        export: spot.export,
        is_dir: file.qid().kind.contains(QidKind::DIR),
        uid: world::uid(),
        qid: file.qid(),
        switchboard: world::switchboard().into(),
        prefix: prefix.clone(),
        handle: file.handle().map(|handle| handle.to_vec()),
        path: spot.path.clone(),
    };
    let fd = blank.fill(&meaning)?;
    table::opened(fd, meaning, file);
    Ok(fd)
}

/// What cannot be opened so.
fn check(spot: &Spot, flags: c_int) -> Result<(), Errno> {
    let creates = flags & libc::O_CREAT != 0;
    let Some(file) = &spot.file else {
        return match creates {
            true if spot.must_be_directory => Err(Errno::ISDIR),
            true if flags & libc::O_DIRECTORY != 0 => Err(Errno::INVAL),
            true => Ok(()),
            false => spot.existing().map(drop),
        };
    };
    let kind = file.qid().kind;
    let is_dir = kind.contains(QidKind::DIR);
    if is_exclusive(flags) {
        return Err(Errno::EXIST);
    }
    if kind.contains(QidKind::SYMLINK) && flags & libc::O_PATH == 0 {
        return Err(errno(libc::ELOOP));
    }
    if flags & libc::O_DIRECTORY != 0 && !is_dir {
        return Err(Errno::NOTDIR);
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || creates;
    match is_dir && (writes || flags & libc::O_TRUNC != 0) {
        true => Err(Errno::ISDIR),
        false => Ok(()),
    }
}

fn open_file(spot: &Spot, flags: c_int, mode: mode_t) -> Result<File, Errno> {
    let wanted = OpenFlags(flags as u32);
    match &spot.file {
        Some(file) if flags & libc::O_PATH != 0 => Ok(file.clone()),
        Some(file) => file.open(wanted.without(OpenFlags::CREAT | OpenFlags::EXCL)),
        None => {
            let mode = mode & 0o7777 & !world::umask();
            spot.parent()?
                .create(&spot.name, wanted, mode, world::gid())
        }
    }
}
