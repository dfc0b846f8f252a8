//! Handles: by what a client finds a file again after its node, or its connection, went away.
//!
//! ```text
//! handle: version[1] kind[1] granted[1] uid[4] device[8] inode[8] since[8] where[..] seal[16]
//! ```
//!
//! `where` is the kernel's own handle (kind 1: type\[4\], then bytes), which stays good whatever the file is renamed to,
//! or, on file systems without such, the path from the root of the export (kind 2), which is good as long as the
//! same file is there. `granted` is what the file was open for (bits: 1 read, 2 write): who had it open may have it again,
//! also if its permissions would not allow that any more (git writes objects that nobody may write), for a day `since` the
//! handle was given, in seconds of 1970; later it has to be allowed. The seal makes all of this the node's own word, for
//! that user only. Handles of version 1 had no `since`: they grant nothing.

use crate::error::{OrErrno, Result};
use crate::export::{Export, FileKey, Place};
use crate::own::OwnDirectory;
use crate::seal::{SEAL, Seal};
use crate::sys::{self, KernelHandle};
use presagio_ninep::Errno;
use presagio_storage::Access;
use std::time::Duration;

const VERSION: u8 = 2;
const WITHOUT_SINCE: u8 = 1;

/// So long what was granted counts, and so far the clocks of two nodes may be apart.
const GRANTED_FOR: Duration = Duration::from_secs(24 * 3600);

const BY_KERNEL: u8 = 1;
const BY_PATH: u8 = 2;
const HEAD: usize = 1 + 1 + 1 + 4 + 8 + 8;
const PURPOSE: &str = "handle";

/// What a handle says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose it is.
    pub uid: u32,
    /// The file.
    pub key: FileKey,
    /// What it was open for, if that still counts.
    pub granted: Access,
    wherever: Where,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Where {
    Kernel(KernelHandle),
    Path(Vec<u8>),
}

/// A handle for `place`, which `uid` has open for `granted`.
pub fn make(
    seal: &Seal,
    export: &Export,
    place: &Place,
    uid: u32,
    granted: Access,
    now: Duration,
) -> Result<Vec<u8>> {
    let is_below_root = place.key().device == export.root().key().device;
    let by_kernel = match is_below_root {
        true => sys::handle_of(place.fd()).ok(),
        false => None,
    };
    let key = place.key();
    let kind = if by_kernel.is_some() {
        BY_KERNEL
    } else {
        BY_PATH
    };
    let mut bytes = vec![
        VERSION,
        kind,
        u8::from(granted.read) | u8::from(granted.write) << 1,
    ];
    bytes.extend_from_slice(&uid.to_le_bytes());
    bytes.extend_from_slice(&key.device.to_le_bytes());
    bytes.extend_from_slice(&key.inode.to_le_bytes());
    bytes.extend_from_slice(&now.as_secs().to_le_bytes());
    match by_kernel {
        Some(handle) => {
            bytes.extend_from_slice(&handle.kind.to_le_bytes());
            bytes.extend_from_slice(&handle.bytes);
        }
        None => bytes.extend_from_slice(&path_of(export, place)?),
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
    if signed.len() < HEAD || !seal.is_signed(PURPOSE, &[signed], seal_of) {
        return Err(Errno::STALE);
    }
    let number =
        |at: usize| u64::from_le_bytes(signed[at..at + 8].try_into().expect("eight bytes"));
    let (since, rest) = match signed[0] {
        VERSION if signed.len() >= HEAD + 8 => (Some(number(HEAD)), &signed[HEAD + 8..]),
        WITHOUT_SINCE => (None, &signed[HEAD..]),
        _ => return Err(Errno::STALE),
    };
    let counts = since.is_some_and(|since| since.abs_diff(now.as_secs()) <= GRANTED_FOR.as_secs());
    let wherever = match signed[1] {
        BY_KERNEL => {
            let (kind, bytes) = rest.split_first_chunk().ok_or(Errno::STALE)?;
            Where::Kernel(KernelHandle {
                kind: i32::from_le_bytes(*kind),
                bytes: bytes.to_vec(),
            })
        }
        BY_PATH => Where::Path(rest.to_vec()),
        _ => return Err(Errno::STALE),
    };
    Ok(Found {
        uid: u32::from_le_bytes(signed[3..7].try_into().expect("four bytes")),
        key: FileKey {
            device: number(7),
            inode: number(15),
        },
        granted: Access {
            read: counts && signed[2] & 1 != 0,
            write: counts && signed[2] & 2 != 0,
        },
        wherever,
    })
}

impl Found {
    /// Finds the file, as the node itself. One that lost its last name while it was open is found where the node keeps
    /// it.
    pub fn place(&self, export: &Export, own: Option<&OwnDirectory>) -> Result<Place> {
        let place = match &self.wherever {
            Where::Kernel(handle) => {
                let fd = sys::open_handle(export.mount(), handle).or_errno()?;
                Place::of(fd, None)?.0
            }
            Where::Path(path) => match export.walk(path) {
                Ok(place) if place.key() == self.key => place,
                missing => {
                    let own = own.ok_or(Errno::STALE)?;
                    let kept = own.kept(self.key).or_errno();
                    Place::of(
                        kept.map_err(|_| missing.err().unwrap_or(Errno::STALE))?,
                        None,
                    )?
                    .0
                }
            },
        };
        match place.key() == self.key {
            true => Ok(place),
            false => Err(Errno::STALE),
        }
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
        let handle = make(&seal, &export, &place, 7, BOTH, NOW).unwrap();
        std::fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let found = read(&seal, &handle, NOW).unwrap();
        assert_eq!(
            (found.uid, found.granted, found.key),
            (7, BOTH, place.key())
        );
        if found.place(&export, None).is_err() {
            // Not root, or a file system without handles: then it is found where it was, or not at all.
            assert_ne!(handle[1], BY_KERNEL);
        }
    }

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn what_was_granted_counts_for_a_day_whatever_the_clock_says() {
        let dir = tempfile::tempdir().unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let handle = make(&seal, &export, export.root(), 7, BOTH, NOW).unwrap();
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
    fn a_handle_of_the_version_before_is_good_for_its_place_and_grants_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let new = make(&seal, &export, export.root(), 7, BOTH, NOW).unwrap();
        let signed = &new[..new.len() - SEAL];
        let mut old = [&[WITHOUT_SINCE], &signed[1..HEAD], &signed[HEAD + 8..]].concat();
        old.extend_from_slice(&seal.sign(PURPOSE, &[&old]));
        let found = read(&seal, &old, NOW).unwrap();
        assert!(!found.granted.read && !found.granted.write);
        assert_eq!((found.uid, found.key), (7, export.root().key()));
    }

    #[test]
    fn nothing_but_our_own_word_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (export, seal) = (export(dir.path()), Seal::new(b"s"));
        let handle = make(&seal, &export, export.root(), 7, BOTH, NOW).unwrap();
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
