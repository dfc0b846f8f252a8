//! Locks over exec. The kernel keeps those of files that stay open, and they stay the process's: so the program that
//! a process becomes takes them once more, for the same owners, and then tells the nodes that the client before it is no more,
//! with which whatever else that had locked ends.
//!
//! What it has to know stands in a memfd that it inherits, at a number that both programs know. A process without locks makes
//! none, and what finds none does nothing.
//!
//! ```text
//! magic[16] count[4], then count times fd[4] owner[1] kind[1] start[8] end[8]
//!           count[4], then count times export[4] instance[16]                         numbers little-endian
//! ```

use super::locks::{description_owner, ever_taken, process_owner, taken};
use crate::call::{Errno, errno, guarded};
use crate::table::{self, Open};
use crate::world;
use libc::c_int;
use presagio_arena::sys;
use presagio_forward::{Instance, Span};
use presagio_ninep::{LockStatus, LockType};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const MAGIC: &[u8; 16] = b"presagio carried";

/// No note is longer.
const SIZE_MAX: usize = 1 << 20;

/// The number of the note is below this, and below what is allowed.
const NUMBERS: u64 = 1024;

/// What a process hands on to what it becomes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Note {
    locks: Vec<Held>,
    /// The clients that are no more then, each with its export.
    clients: Vec<(u32, Instance)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Held {
    fd: c_int,
    of_process: bool,
    exclusive: bool,
    span: Span,
}

/// Does what makes another program of this process: it returns only if that has failed.
pub fn over_exec(become_it: impl FnOnce() -> c_int) -> c_int {
    if !ever_taken() || world::is_guest() {
        return become_it();
    }
    let written = guarded(write_note);
    let result = become_it();
    let _ = guarded(|| {
        drop(written);
        Ok(())
    });
    result
}

/// At the start of a program: takes what the one before it has left.
pub fn take_over() {
    let _ = guarded(|| {
        let Some(note) = read_note() else {
            return Ok(());
        };
        for held in &note.locks {
            // What cannot be had is lost: the node says so to whoever asks for it next.
            let _ = held.take();
        }
        for (export, instance) in note.clients {
            let _ = world::export(export as usize).and_then(|export| export.died(instance));
        }
        Ok(())
    });
}

impl Held {
    fn take(&self) -> Result<(), Errno> {
        let open = table::get(self.fd).ok_or(Errno::BADF)?;
        let owner = match self.of_process {
            true => process_owner(),
            false => description_owner(&open),
        };
        let kind = match self.exclusive {
            true => LockType::Write,
            false => LockType::Read,
        };
        if open.file()?.lock(owner, kind, self.span)? == LockStatus::Success {
            taken(&open, self.of_process);
        }
        Ok(())
    }
}

/// The number under which a note is found.
fn number() -> Option<c_int> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    c_int::try_from(limit.rlim_cur.min(NUMBERS).checked_sub(1)?).ok()
}

/// Writes down what is carried on, if there is any of it and the number is free.
fn write_note() -> Result<Option<OwnedFd>, Errno> {
    let note = gather();
    let number = number().filter(|number| sys::status(*number).is_none());
    let (false, Some(number)) = (note.clients.is_empty(), number) else {
        return Ok(None);
    };
    let bytes = note.bytes();
    // SAFETY: the name ends with a zero.
    let fd = unsafe { libc::memfd_create(c"presagio-carried".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(errno(crate::call::get_errno()));
    }
    // SAFETY: it was just made.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: bytes of ours.
    let written = unsafe { libc::write(memory.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    if written != bytes.len() as isize {
        return Err(Errno::NOSPC);
    }
    // The program that is to come inherits this one.
    let args = [memory.as_raw_fd() as usize, number as usize, 0, 0, 0, 0];
    // SAFETY: nobody has the number.
    sys::checked(unsafe { sys::call(libc::SYS_dup3, args) }).map_err(errno)?;
    // SAFETY: it was just made.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
}

/// All locks of this process, and the clients that have them.
fn gather() -> Note {
    let mut note = Note::default();
    let all = table::all_with_numbers();
    let has_any = |open: &Open| open.has_locks.load(Relaxed) || open.has_own_locks.load(Relaxed);
    let mut seen: Vec<Arc<Open>> = Vec::new();
    for (_, open) in all.iter().filter(|(_, open)| has_any(open)) {
        let Some(file) = open.known_file() else {
            continue;
        };
        if seen.iter().any(|other| Arc::ptr_eq(other, open)) {
            continue;
        }
        seen.push(open.clone());
        let client = (open.export as u32, file.client());
        if !note.clients.contains(&client) {
            note.clients.push(client);
        }
        let mut numbers = all.iter().filter(|(_, other)| Arc::ptr_eq(other, open));
        let Some((fd, _)) = numbers.find(|(fd, _)| stays_open(*fd)) else {
            continue;
        };
        // To close any descriptor of a file ends the process's locks on it.
        let is_same = |other: &Open| other.export == open.export && other.qid.path == open.qid.path;
        let mut same = all.iter().filter(|(_, other)| is_same(other));
        let of_process = same
            .all(|(fd, _)| stays_open(*fd))
            .then(|| (true, file.locks_of(process_owner())));
        let of_description = Some((false, file.locks_of(description_owner(open))));
        for (of_process, locks) in of_process.into_iter().chain(of_description) {
            note.locks
                .extend(locks.into_iter().map(|(kind, span)| Held {
                    fd: *fd,
                    of_process,
                    exclusive: kind == LockType::Write,
                    span,
                }));
        }
    }
    note
}

fn stays_open(fd: c_int) -> bool {
    let args = [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: no pointers.
    let flags = sys::checked(unsafe { sys::call(libc::SYS_fcntl, args) });
    flags.is_ok_and(|flags| flags as c_int & libc::FD_CLOEXEC == 0)
}

/// The note, if there is one; the number is free again then.
fn read_note() -> Option<Note> {
    let number = number()?;
    let status = sys::status(number)?;
    if !table::is_memory(&status) || status.st_size as usize > SIZE_MAX {
        return None;
    }
    let mut bytes = vec![0; status.st_size as usize];
    let (to, count) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: into bytes of ours.
    let read = unsafe { libc::pread(number, to, count, 0) };
    bytes.truncate(usize::try_from(read).ok()?);
    let note = Note::parse(&bytes)?;
    sys::close(number);
    Some(note)
}

impl Note {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.locks.len() as u32).to_le_bytes());
        for held in &self.locks {
            bytes.extend((held.fd as u32).to_le_bytes());
            bytes.extend([held.of_process, held.exclusive].map(u8::from));
            bytes.extend(held.span.start.to_le_bytes());
            bytes.extend(held.span.end.to_le_bytes());
        }
        bytes.extend((self.clients.len() as u32).to_le_bytes());
        for (export, instance) in &self.clients {
            bytes.extend(export.to_le_bytes());
            bytes.extend(instance.0);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Note> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut note = Note::default();
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            let fd = u32::from_le_bytes(take(&mut rest)?) as c_int;
            let [of_process, exclusive] = take(&mut rest)?;
            let start = u64::from_le_bytes(take(&mut rest)?);
            let end = u64::from_le_bytes(take(&mut rest)?);
            note.locks.push(Held {
                fd,
                of_process: of_process != 0,
                exclusive: exclusive != 0,
                span: Span { start, end },
            });
        }
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            let export = u32::from_le_bytes(take(&mut rest)?);
            note.clients.push((export, Instance(take(&mut rest)?)));
        }
        rest.is_empty().then_some(note)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_or_not_at_all() {
        let note = Note {
            locks: vec![Held {
                fd: 7,
                of_process: true,
                exclusive: false,
                span: Span::ALL,
            }],
            clients: vec![(1, Instance([3; 16]))],
        };
        let bytes = note.bytes();
        assert_eq!(Note::parse(&bytes), Some(note));
        for cut in 0..bytes.len() {
            assert_eq!(Note::parse(&bytes[..cut]), None);
        }
    }
}
