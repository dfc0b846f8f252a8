//! Calls for which there is no safe face: all of this crate's `unsafe` is here.

#![allow(unsafe_code, reason = "this is where the crate faces C and the kernel")]

use crate::identity::Identity;
use std::ffi::CStr;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_a_number_that_nobody_has_is_not() {
        assert_eq!(user(0).map(|user| user.gid), Some(0));
        assert_eq!(user(3_999_999_999), None);
    }
}
