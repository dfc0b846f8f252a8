//! The descriptor that the program has of a forwarded file: a memfd whose content says what it stands for.
//!
//! ```text
//! magic[16] open flags[4] export[4] kind[1] uid[4] qid: kind[1] version[4] path[8]
//! switchboard[2+n] prefix[2+n] handle[2+n] path[2+n]          numbers little-endian; a handle of no bytes is none
//! ```
//!
//! It is sealed, so nobody can change it; and what the program gets is open for writing only, so that whoever reads or writes
//! without asking us gets EBADF or EPERM. Position and O_APPEND are the kernel's, shared by all that
//! share the descriptor. The content is read through /proc/self/fd.

use crate::call::{Errno, errno};
use libc::{c_int, c_void};
use presagio_arena::sys;
use presagio_ninep::{Qid, QidKind};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

const MAGIC: &[u8; 16] = b"presagio divert1";

/// The longest content: four texts and what is before them.
const SIZE_MAX: usize = 64 << 10;

/// Memfds have names of up to this.
const NAME_MAX: usize = 200;

/// Of `open`'s flags, what the kernel keeps for us.
const KEPT: c_int = libc::O_APPEND | libc::O_NONBLOCK;

/// What a placeholder stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// As the program gave them to `open`, without what is done by then.
    pub flags: c_int,
    pub export: usize,
    pub is_dir: bool,
    /// Who opened it.
    pub uid: u32,
    pub qid: Qid,
    pub switchboard: Vec<u8>,
    pub prefix: Vec<u8>,
    /// By which the node finds it again.
    pub handle: Option<Vec<u8>>,
    /// From the root of the export, when it was opened.
    pub path: Vec<u8>,
}

/// A memfd with the lowest number that was free, to become a placeholder.
pub struct Blank(OwnedFd);

impl Blank {
    pub fn new(path: &[u8]) -> Result<Blank, Errno> {
        let end = &path[path.len().saturating_sub(NAME_MAX)..];
        let name = CString::new(end).map_err(|_| Errno::INVAL)?;
        let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
        let args = [name.as_ptr() as usize, flags, 0, 0, 0, 0];
        // SAFETY: the name ends with a zero.
        let fd = call(libc::SYS_memfd_create, args)?;
        // SAFETY: it was just made.
        Ok(Blank(unsafe { OwnedFd::from_raw_fd(fd as c_int) }))
    }

    pub fn status(&self) -> Option<libc::stat> {
        sys::status(self.0.as_raw_fd())
    }

    /// Writes down what it stands for. The number stays the same.
    pub fn fill(self, meaning: &Meaning) -> Result<c_int, Errno> {
        let bytes = meaning.bytes();
        let fd = self.0.as_raw_fd() as usize;
        let args = [fd, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
        if call(libc::SYS_pwrite64, args)? != bytes.len() {
            return Err(Errno::NOSPC);
        }
        let seals =
            libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        call(
            libc::SYS_fcntl,
            [fd, libc::F_ADD_SEALS as usize, seals as usize, 0, 0, 0],
        )?;
        let kept = meaning.flags & KEPT;
        // It is there, so only /proc can be missing.
        let shown = again(fd as c_int, libc::O_WRONLY | kept).map_err(|_| Errno::IO)?;
        let cloexec = meaning.flags & libc::O_CLOEXEC;
        call(
            libc::SYS_dup3,
            [shown.as_raw_fd() as usize, fd, cloexec as usize, 0, 0, 0],
        )?;
        Ok(self.0.into_raw_fd())
    }
}

/// Another description of what a descriptor is of.
fn again(fd: c_int, flags: c_int) -> Result<OwnedFd, Errno> {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let digits = fd.to_string();
    path[14..14 + digits.len()].copy_from_slice(digits.as_bytes());
    let path = std::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::BADF)?;
    let opened = sys::open(path, flags).map_err(errno)?;
    // SAFETY: it was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// What a descriptor stands for, `None` if it is no placeholder.
pub fn read(fd: c_int) -> Result<Option<Meaning>, Errno> {
    let file = match again(fd, libc::O_RDONLY) {
        Ok(file) => file,
        // The descriptor may be gone by now.
        Err(Errno::NOENT) => return Err(Errno::BADF),
        Err(errno) => return Err(errno),
    };
    let mut bytes = vec![0; SIZE_MAX];
    let to: *mut c_void = bytes.as_mut_ptr().cast();
    let args = [file.as_raw_fd() as usize, to as usize, bytes.len(), 0, 0, 0];
    bytes.truncate(call(libc::SYS_pread64, args)?);
    Ok(Meaning::parse(&bytes))
}

impl Meaning {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.flags as u32).to_le_bytes());
        bytes.extend((self.export as u32).to_le_bytes());
        bytes.push(u8::from(self.is_dir));
        bytes.extend(self.uid.to_le_bytes());
        bytes.push(self.qid.kind.0);
        bytes.extend(self.qid.version.to_le_bytes());
        bytes.extend(self.qid.path.to_le_bytes());
        let handle = self.handle.as_deref().unwrap_or_default();
        for text in [&self.switchboard, &self.prefix, handle, &self.path] {
            bytes.extend((text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Meaning> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let meaning = Meaning {
            flags: u32::from_le_bytes(take(&mut rest)?) as c_int,
            export: u32::from_le_bytes(take(&mut rest)?) as usize,
            is_dir: take::<1>(&mut rest)? == [1],
            uid: u32::from_le_bytes(take(&mut rest)?),
            qid: Qid {
                kind: QidKind(take::<1>(&mut rest)?[0]),
                version: u32::from_le_bytes(take(&mut rest)?),
                path: u64::from_le_bytes(take(&mut rest)?),
            },
            switchboard: text(&mut rest)?,
            prefix: text(&mut rest)?,
            handle: Some(text(&mut rest)?).filter(|handle| !handle.is_empty()),
            path: text(&mut rest)?,
        };
        rest.is_empty().then_some(meaning)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn text(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = u16::from_le_bytes(take(rest)?);
    let (text, others) = rest.split_at_checked(length.into())?;
    *rest = others;
    Some(text.to_vec())
}

/// A system call of ours, on our memory and descriptors.
fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: as its callers here see to.
    sys::checked(unsafe { sys::call(number, args) }).map_err(errno)
}
