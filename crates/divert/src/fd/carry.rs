//! Locks over exec. The kernel keeps those of files that stay open, and they stay the process's: so the program that
//! a process becomes takes them once more, for the same owners, and then tells the nodes that the client before it is no more,
//! with which whatever else that had locked ends.
//!
//! What it has to know stands in a memfd that it inherits ([`Note`]), at one of a few numbers that both programs know. A process
//! without locks makes none, and what finds none does nothing.

use super::locks::{ever_taken, handed_of, take_all};
use super::note::Note;
use crate::call::{Errno, errno, fail, guarded};
use crate::own;
use crate::table::{self, Open};
use crate::world;
use libc::c_int;
use presagio_arena::sys;
use presagio_forward::Instance;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// No note is longer.
const SIZE_MAX: usize = 1 << 20;

/// The number of the note is below this, and below what is allowed.
const NUMBERS: u64 = 1024;

/// So many are tried, since the program may have some of them.
const NUMBERS_TRIED: u64 = 16;

/// Does what makes another program of this process: it returns only if that has failed.
pub fn over_exec(become_it: impl FnOnce() -> c_int) -> c_int {
    if !ever_taken() || world::is_guest() {
        return become_it();
    }
    // Rather no other program than one that has lost its locks and does not know.
    let written = match guarded(write_note) {
        Ok(written) => written,
        Err(errno) => return fail(errno),
    };
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
        world::begin_at(&note.locks);
        take_all(&note.locks);
        for number in 0..world::prefixes().len() {
            let of_it = note.clients.iter().filter(|one| one.0 as usize == number);
            let clients: Vec<Instance> = of_it.map(|one| one.1).collect();
            if !clients.is_empty()
                && let Ok(export) = world::export(number)
            {
                export.died(&clients);
            }
        }
        Ok(())
    });
}

/// The numbers under which a note may be found.
fn numbers() -> impl Iterator<Item = c_int> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let end = limit.rlim_cur.min(NUMBERS) as c_int;
    (end - NUMBERS_TRIED as c_int..end)
        .rev()
        .filter(|number| *number > libc::STDERR_FILENO)
}

/// Our own connections make room, since with many of them all numbers would be theirs. What is left there is replaced.
fn is_free(number: c_int) -> bool {
    match own::is_ours(number) {
        true => own::give_way(number),
        false => sys::status(number).is_none(),
    }
}

/// Writes down what is carried on, if there is any of it.
fn write_note() -> Result<Option<OwnedFd>, Errno> {
    let note = gather();
    if note.clients.is_empty() && note.locks.is_empty() {
        return Ok(None);
    }
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
    let mut free = numbers().filter(|number| is_free(*number));
    let number = free.next().ok_or(errno(libc::EMFILE))?;
    // The program that is to come inherits this one.
    let args = [memory.as_raw_fd() as usize, number as usize, 0, 0, 0, 0];
    // SAFETY: nobody has the number.
    sys::checked(unsafe { sys::call(libc::SYS_dup3, args) }).map_err(errno)?;
    // SAFETY: it was just made.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
}

/// All locks of this process, and the clients that have them.
fn gather() -> Note {
    let mut note = Note {
        process: sys::process_id(),
        ..Note::default()
    };
    let all = table::all_with_numbers();
    let has_any = |open: &Open| open.has_locks.load(Relaxed) || open.has_own_locks.load(Relaxed);
    let mut seen: Vec<Arc<Open>> = Vec::new();
    for (_, open) in all.iter().filter(|(_, open)| has_any(open)) {
        if seen.iter().any(|other| Arc::ptr_eq(other, open)) {
            continue;
        }
        seen.push(open.clone());
        if let Some(file) = open.known_file() {
            let client = (open.export as u32, file.client());
            if !note.clients.contains(&client) {
                note.clients.push(client);
            }
        }
        let mut numbers = all.iter().filter(|(_, other)| Arc::ptr_eq(other, open));
        let Some((fd, _)) = numbers.find(|(fd, _)| stays_open(*fd)) else {
            continue;
        };
        // To close any descriptor of a file ends the process's locks on it.
        let is_same = |other: &Open| other.export == open.export && other.qid.path == open.qid.path;
        let mut same = all.iter().filter(|(_, other)| is_same(other));
        if same.all(|(fd, _)| stays_open(*fd)) {
            note.locks.extend(handed_of(*fd, open, true));
        }
        note.locks.extend(handed_of(*fd, open, false));
    }
    note
}

fn stays_open(fd: c_int) -> bool {
    let args = [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0];
    // SAFETY: no pointers.
    let flags = sys::checked(unsafe { sys::call(libc::SYS_fcntl, args) });
    flags.is_ok_and(|flags| flags as c_int & libc::FD_CLOEXEC == 0)
}

/// The note, if there is one; the number is free again then. One of another process came along when that became another
/// program while a thread of it made us.
fn read_note() -> Option<Note> {
    let mut found = numbers().filter_map(read_note_at);
    found.find(|note| note.process == sys::process_id())
}

fn read_note_at(number: c_int) -> Option<Note> {
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
