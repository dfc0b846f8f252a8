//! Handles: by what a client finds a file again after its node, or its connection, went away.
//!
//! ```text
//! handle: version[1] granted[1] uid[4] outside[1] inode[8] born[12] since[8] kernel[1+..] path[..] seal[16]
//! ```
//!
//! `kernel` is the kernel's own handle, its length first (type\[4\], then bytes; nothing on file systems without such), which
//! stays good whatever the file is renamed to. On some file systems (GlusterFS, whatever is FUSE) it counts in one mount
//! only, and another node has another one. So `path` is there too, from the root of the export (with a byte more before
//! it, to tell the root from none): it is good as long as the same file is there. A file is the same if its inode number is
//! the same, the moment when it was made (where the file system knows that), and whether it is `outside` of
//! the file system of the export's root, whose number differs from mount to mount.
//!
//! `granted` is what the file was open for (bits: 1 read, 2 write): who had it open may have it again,
//! also if its permissions would not allow that any more (git writes objects that nobody may write), for a day `since` the
//! handle was given, in seconds of 1970; later it has to be allowed. The seal makes all of this the node's own word, for
//! that user only.

use crate::error::{OrErrno, Result};
use crate::export::{Export, FileKey, Place};
use crate::own::OwnDirectory;
use crate::seal::{SEAL, Seal};
use crate::sys::{self, KernelHandle};
use presagio_ninep::Errno;
use presagio_storage::Access;
use rustix::fs::{Statx, StatxFlags};
use std::time::Duration;

const VERSION: u8 = 3;

/// So long what was granted counts, and so far the clocks of two nodes may be apart.
const GRANTED_FOR: Duration = Duration::from_secs(24 * 3600);

const PURPOSE: &str = "handle";

/// What a handle says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub uid: u32,
    /// What it was open for, if that still counts.
    pub granted: Access,
    which: Which,
    kernel: Option<KernelHandle>,
    path: Option<Vec<u8>>,
}

/// Which file it is, the same for all nodes of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which {
    outside: bool,
    inode: u64,
    /// When it was made; zeros where nobody knows.
    born: [u8; 12],
}

impl Which {
    fn of(place: &Place, export: &Export) -> Result<Which> {
        let key = place.key();
        Ok(Which {
            outside: key.device != export.root().key().device,
            inode: key.inode,
            born: born(&place.stat()?),
        })
    }

    fn is(&self, other: &Which) -> bool {
        let made_since = self.born != other.born && ![self.born, other.born].contains(&[0; 12]);
        (self.outside, self.inode) == (other.outside, other.inode) && !made_since
    }
}

fn born(stat: &Statx) -> [u8; 12] {
    let mut born = [0; 12];
    if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME) {
        born[..8].copy_from_slice(&stat.stx_btime.tv_sec.to_le_bytes());
        born[8..].copy_from_slice(&stat.stx_btime.tv_nsec.to_le_bytes());
    }
    born
}

/// A handle for `place`, which `uid` has open for `granted`. With less `room`, the path is left out.
pub fn make(
    seal: &Seal,
    export: &Export,
    place: &Place,
    (uid, granted): (u32, Access),
    now: Duration,
    room: usize,
) -> Result<Vec<u8>> {
    let which = Which::of(place, export)?;
    let kernel = match which.outside {
        true => None,
        false => sys::handle_of(place.fd()).ok(),
    };
    let path = path_of(export, place);
    let mut bytes = vec![
        VERSION,
        u8::from(granted.read) | u8::from(granted.write) << 1,
    ];
    bytes.extend_from_slice(&uid.to_le_bytes());
    bytes.push(u8::from(which.outside));
    bytes.extend_from_slice(&which.inode.to_le_bytes());
    bytes.extend_from_slice(&which.born);
    bytes.extend_from_slice(&now.as_secs().to_le_bytes());
    match &kernel {
        Some(handle) => {
            // The kernel's are no longer than 128 bytes.
            bytes.push(4 + handle.bytes.len() as u8);
            bytes.extend_from_slice(&handle.kind.to_le_bytes());
            bytes.extend_from_slice(&handle.bytes);
        }
        None => bytes.push(0),
    }
    match path {
        Ok(path) if kernel.is_none() || bytes.len() + 1 + path.len() + SEAL <= room => {
            bytes.push(b'/');
            bytes.extend_from_slice(&path);
        }
        Err(error) if kernel.is_none() => return Err(error),
        _ => {}
    }
    let signed = seal.sign(PURPOSE, &[&bytes]);
    bytes.extend_from_slice(&signed);
    Ok(bytes)
}

/// Where a place is now, from the root of the export.
fn path_of(export: &Export, place: &Place) -> Result<Vec<u8>> {
    let (root, path) = (export.whole_path(export.root()), export.whole_path(place));
    let below = path.strip_prefix(&*root).ok_or(Errno::STALE)?;
    Ok(below.strip_prefix(b"/").unwrap_or(below).to_vec())
}

/// Reads a handle of ours.
pub fn read(seal: &Seal, handle: &[u8], now: Duration) -> Result<Found> {
    let (signed, seal_of) = handle
        .split_at_checked(handle.len().saturating_sub(SEAL))
        .ok_or(Errno::STALE)?;
    if !seal.is_signed(PURPOSE, &[signed], seal_of) {
        return Err(Errno::STALE);
    }
    parse(signed, now).ok_or(Errno::STALE)
}

fn parse(mut bytes: &[u8], now: Duration) -> Option<Found> {
    let [version, granted] = take(&mut bytes)?;
    let uid = u32::from_le_bytes(take(&mut bytes)?);
    let [outside] = take(&mut bytes)?;
    let which = Which {
        outside: outside != 0,
        inode: u64::from_le_bytes(take(&mut bytes)?),
        born: take(&mut bytes)?,
    };
    let since = u64::from_le_bytes(take(&mut bytes)?);
    let [kernel] = take(&mut bytes)?;
    let (mut kernel, path) = bytes.split_at_checked(kernel.into())?;
    let counts = since.abs_diff(now.as_secs()) <= GRANTED_FOR.as_secs();
    (version == VERSION).then(|| Found {
        uid,
        granted: Access {
            read: counts && granted & 1 != 0,
            write: counts && granted & 2 != 0,
        },
        which,
        kernel: take(&mut kernel).map(|kind| KernelHandle {
            kind: i32::from_le_bytes(kind),
            bytes: kernel.to_vec(),
        }),
        path: path.strip_prefix(b"/").map(<[u8]>::to_vec),
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

impl Found {
    /// Finds the file, as the node itself. One that lost its last name while it was open is found where the node keeps
    /// it.
    pub fn place(&self, export: &Export, own: Option<&OwnDirectory>) -> Result<Place> {
        let by_kernel = || {
            let fd = sys::open_handle(export.mount(), self.kernel.as_ref()?).or_errno();
            Some(fd.and_then(|fd| Ok(Place::of(fd, None)?.0)))
        };
        let by_path = || self.path.as_ref().map(|path| export.walk(path));
        let kept = || {
            let key = FileKey {
                device: export.root().key().device,
                inode: self.which.inode,
            };
            let kept = own.filter(|_| !self.which.outside)?.kept(key);
            Some(kept.or_errno().and_then(|fd| Ok(Place::of(fd, None)?.0)))
        };
        let ways: [&dyn Fn() -> Option<Result<Place>>; 3] = [&by_kernel, &by_path, &kept];
        let found = ways.iter().filter_map(|way| way()).find_map(|found| {
            let place = found.ok()?;
            let which = Which::of(&place, export).ok()?;
            which.is(&self.which).then_some(place)
        });
        found.ok_or(Errno::STALE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_storage::Directory;
    use std::sync::Arc;

    fn export(dir: &std::path::Path) -> Export {
        Export::new(dir, Arc::new(Directory), false).unwrap()
    }

    const BOTH: Access = Access {
        read: true,
        write: true,
    };

    #[test]
    fn a_file_is_found_again_after_it_was_renamed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), b"x").unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let place = export.walk(b"a").unwrap();
        let handle = make(&seal, &export, &place, (7, BOTH), NOW, ROOM).unwrap();
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let found = read(&seal, &handle, NOW).unwrap();
        assert_eq!((found.uid, found.granted), (7, BOTH));
        match found.place(&export, None) {
            Ok(again) => assert_eq!(again.key(), place.key()),
            // Not root, or a file system without handles: then it is found where it was, or not at all.
            Err(_) => assert!(found.kernel.is_none() || !rustix::process::geteuid().is_root()),
        }
    }

    #[test]
    fn where_the_kernels_handle_means_nothing_the_file_is_found_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/a"), b"x").unwrap();
        std::fs::write(dir.path().join("b"), b"y").unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let place = export.walk(b"sub/a").unwrap();
        let handle = make(&seal, &export, &place, (7, BOTH), NOW, ROOM).unwrap();
        let mut found = read(&seal, &handle, NOW).unwrap();
        // In another mount it is of another file, or of none.
        found.kernel = sys::handle_of(export.walk(b"b").unwrap().fd()).ok();
        assert_eq!(found.place(&export, None).unwrap().key(), place.key());
        found.kernel = None;
        assert_eq!(found.place(&export, None).unwrap().key(), place.key());
        let there = dir.path().join("sub/a");
        std::fs::rename(&there, dir.path().join("c")).unwrap();
        std::fs::write(&there, b"another").unwrap();
        assert_eq!(found.place(&export, None).unwrap_err(), Errno::STALE);
        // A new file may have the number of one that is gone.
        found.which.inode = export.walk(b"sub/a").unwrap().key().inode;
        if found.which.born != [0; 12] {
            assert_eq!(found.place(&export, None).unwrap_err(), Errno::STALE);
        }
    }

    #[test]
    fn a_path_that_has_no_room_is_left_out_if_there_is_another_way() {
        let dir = tempfile::tempdir().unwrap();
        let name = "n".repeat(200);
        std::fs::write(dir.path().join(&name), b"x").unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let place = export.walk(name.as_bytes()).unwrap();
        let make = |room| make(&seal, &export, &place, (7, BOTH), NOW, room).unwrap();
        let found = |room| read(&seal, &make(room), NOW).unwrap();
        assert_eq!(found(ROOM).path.unwrap(), name.as_bytes());
        if found(ROOM).kernel.is_some() {
            assert_eq!(found(make(ROOM).len() - 1).path, None);
        }
    }

    const ROOM: usize = 5000;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn what_was_granted_counts_for_a_day_whatever_the_clock_says() {
        let dir = tempfile::tempdir().unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let handle = make(&seal, &export, export.root(), (7, BOTH), NOW, ROOM).unwrap();
        let hour = Duration::from_secs(3600);
        let granted = |now| read(&seal, &handle, now).unwrap().granted;
        let nothing = Access {
            read: false,
            write: false,
        };
        assert_eq!(granted(NOW + 23 * hour), BOTH);
        assert_eq!(granted(NOW + 25 * hour), nothing);
        // A clock that was set back makes it last no longer than that.
        assert_eq!(granted(NOW - 23 * hour), BOTH);
        assert_eq!(granted(NOW - 25 * hour), nothing);
    }

    #[test]
    fn nothing_but_our_own_word_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let handle = make(&seal, &export, export.root(), (7, BOTH), NOW, ROOM).unwrap();
        assert!(read(&seal, &handle, NOW).is_ok());
        assert!(read(&Seal::new(b"t"), &handle, NOW).is_err());
        for at in 0..handle.len() {
            let mut changed = handle.clone();
            changed[at] ^= 1;
            assert!(read(&seal, &changed, NOW).is_err(), "byte {at}");
            assert!(read(&seal, &handle[..at], NOW).is_err(), "{at} bytes");
        }
    }
}
