//! Calls for which there is no safe face: all of this crate's `unsafe` is here and in the ring.

#![allow(unsafe_code, reason = "this is where the crate faces C and the kernel")]

use crate::identity::Identity;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Room for a user's entry: names, home directory, shell.
const ENTRY_ROOM: usize = 16 << 10;

/// Groups that the kernel lets a process have.
const GROUPS_MAX: usize = 65536;

/// A user of this machine, with its groups.
pub fn user(uid: u32) -> Option<Identity> {
    let mut room = vec![0; ENTRY_ROOM];
    // SAFETY: passwd is plain data of integers and pointers, for which zeros are valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: all pointers are to memory of ours that outlives the call, and the room's length is given.
    let failed =
        unsafe { libc::getpwuid_r(uid, &mut entry, room.as_mut_ptr(), room.len(), &mut found) };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so the name points to a text with a NUL inside `room`, which is alive.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    Some(Identity {
        uid,
        gid: entry.pw_gid,
        groups: groups(name, entry.pw_gid),
    })
}

fn groups(name: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: `groups` has room for `count` ids, and the name ends with a NUL.
        let status =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        if status >= 0 {
            groups.truncate(count.max(0) as usize);
            return groups;
        }
        if groups.len() >= GROUPS_MAX {
            return vec![gid];
        }
        groups.resize((groups.len() * 2).max(count.max(0) as usize), 0);
    }
}

/// Gives memory that was freed back to the system.
pub fn trim() {
    // SAFETY: a call without pointers, which glibc allows from any thread.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The longest handle that the kernel makes.
const HANDLE_MAX: usize = 128;

/// The kernel's `struct file_handle`, with all the room that it may need.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_MAX],
}

/// By what the kernel finds a file again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHandle {
    /// What the bytes mean, to the file system.
    pub kind: i32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// By what the kernel finds the file of `fd` again; not every file system can.
pub fn handle_of(fd: BorrowedFd<'_>) -> io::Result<KernelHandle> {
    let mut raw = RawHandle {
        bytes: HANDLE_MAX as u32,
        kind: 0,
        handle: [0; HANDLE_MAX],
    };
    let mut mount = 0;
    // SAFETY: the path is empty and ends with a NUL, `raw` has the layout and the room that it says, and both it and
    // `mount` are written only during the call.
    let status = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = raw.handle[..(raw.bytes as usize).min(HANDLE_MAX)].to_vec();
    Ok(KernelHandle {
        kind: raw.kind,
        bytes,
    })
}

/// The place of a file, found by its handle; `mount` is any open file of its file system. Needs a capability that root
/// has.
pub fn open_handle(mount: BorrowedFd<'_>, handle: &KernelHandle) -> io::Result<OwnedFd> {
    let mut raw = RawHandle {
        bytes: handle.bytes.len() as u32,
        kind: handle.kind,
        handle: [0; HANDLE_MAX],
    };
    let Some(room) = raw.handle.get_mut(..handle.bytes.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    room.copy_from_slice(&handle.bytes);
    let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: `raw` has the layout that the call reads, and says truly how many bytes follow.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut raw,
            flags,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// What a lock of an open file description is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileLock {
    /// None.
    None,
    /// Shared with other readers.
    Shared,
    /// Nobody else's.
    Exclusive,
}

/// Sets the lock of `fd`'s open file description on `start..end` (`u64::MAX`: whatever the end will be). False if
/// another description's is in the way.
pub fn set_lock(fd: BorrowedFd<'_>, lock: FileLock, start: u64, end: u64) -> io::Result<bool> {
    // SAFETY: flock is plain data of integers, for which zeros are valid; l_pid has to be zero.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_type = match lock {
        FileLock::None => libc::F_UNLCK as i16,
        FileLock::Shared => libc::F_RDLCK as i16,
        FileLock::Exclusive => libc::F_WRLCK as i16,
    };
    flock.l_whence = libc::SEEK_SET as i16;
    let start = i64::try_from(start).map_err(|_| io::ErrorKind::InvalidInput)?;
    flock.l_start = start;
    flock.l_len = match i64::try_from(end) {
        Ok(end) => end - start,
        Err(_) => 0,
    };
    // SAFETY: the descriptor is open, and the call reads a flock of ours.
    let status = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw mut flock) };
    match status {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_a_number_that_nobody_has_is_not() {
        assert_eq!(user(0).map(|user| user.gid), Some(0));
        assert_eq!(user(3_999_999_999), None);
    }

    #[test]
    fn locks_of_two_descriptions_are_in_each_others_way() {
        use std::os::fd::AsFd;
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open(file.path())
                .unwrap()
        };
        let (one, other) = (open(), open());
        assert!(set_lock(one.as_fd(), FileLock::Exclusive, 10, 20).unwrap());
        assert!(!set_lock(other.as_fd(), FileLock::Shared, 19, u64::MAX).unwrap());
        assert!(set_lock(other.as_fd(), FileLock::Shared, 20, u64::MAX).unwrap());
        assert!(set_lock(one.as_fd(), FileLock::None, 0, u64::MAX).unwrap());
        assert!(set_lock(other.as_fd(), FileLock::Exclusive, 0, u64::MAX).unwrap());
    }
}
