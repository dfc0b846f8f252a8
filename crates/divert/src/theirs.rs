//! The program's memory, which may not be there: the kernel says so with EFAULT, and so do we. It is the kernel that tries it out,
//! or copies from one part of this process's memory to another: it notices where a copy of ours would end the program.

use libc::iovec;
use presagio_arena::sys;

const PAGE: usize = 4096;

/// Copies into the program's memory; `false` if it cannot be written. This is on the way of every small read, and an eighth of what
/// [`put`] costs.
pub fn fill(to: &mut [u8], from: &[u8]) -> bool {
    let Some(last) = to.len().checked_sub(size_of::<u64>()) else {
        return put(&[part(to.as_mut_ptr(), to.len())], from) == from.len();
    };
    let next_page = PAGE - to.as_ptr() as usize % PAGE;
    let mut pages = (next_page..to.len()).step_by(PAGE);
    let is_there = is_writable(&mut to[..size_of::<u64>()])
        && pages.all(|page| is_writable(&mut to[page.min(last)..]));
    if is_there {
        to.copy_from_slice(from);
    }
    is_there
}

/// Has the kernel write a word to where data will be in a moment: the mask of blocked signals, which is nearest at hand.
fn is_writable(word: &mut [u8]) -> bool {
    let (nothing, size) = (0, size_of::<u64>());
    let args = [0, nothing, word.as_mut_ptr() as usize, size, 0, 0];
    // SAFETY: it writes as much as there is, if there is.
    sys::checked(unsafe { sys::call(libc::SYS_rt_sigprocmask, args) }).is_ok()
}

/// Copies into parts of the program's memory, which have room for it: how much before the first byte that cannot be written.
pub fn put(parts: &[iovec], from: &[u8]) -> usize {
    let ours = part(from.as_ptr().cast_mut(), from.len());
    copied(libc::SYS_process_vm_readv, parts, ours).unwrap_or_else(|| {
        let mut rest = from;
        for part in parts {
            let (now, later) = rest.split_at(rest.len().min(part.iov_len));
            // SAFETY: the program's memory, for which it vouches.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), now.len()) };
            rest = later;
        }
        from.len()
    })
}

/// Copies parts of the program's memory, which are as long together: how much before the first byte that cannot be read.
pub fn get(parts: &[iovec], to: &mut [u8]) -> usize {
    let ours = part(to.as_mut_ptr(), to.len());
    copied(libc::SYS_process_vm_writev, parts, ours).unwrap_or_else(|| {
        let mut rest = &mut to[..];
        for part in parts {
            let (now, later) = rest.split_at_mut(rest.len().min(part.iov_len));
            // SAFETY: the program's memory, for which it vouches.
            unsafe {
                std::ptr::copy_nonoverlapping(part.iov_base.cast(), now.as_mut_ptr(), now.len());
            }
            rest = later;
        }
        to.len()
    })
}

pub fn part(start: *mut u8, length: usize) -> iovec {
    iovec {
        iov_base: start.cast(),
        iov_len: length,
    }
}

/// Has the kernel copy between the program's parts and memory of ours, which is the side that it takes for another process's: it
/// wants to know more of that one. `None` if it does not do such things here.
fn copied(number: libc::c_long, parts: &[iovec], ours: iovec) -> Option<usize> {
    let args = [
        sys::process_id() as usize,
        parts.as_ptr() as usize,
        parts.len(),
        &raw const ours as usize,
        1,
        0,
    ];
    // SAFETY: our memory is there, and the kernel finds out about the program's.
    match sys::checked(unsafe { sys::call(number, args) }) {
        Ok(count) => Some(count),
        Err(libc::EFAULT) => Some(0),
        Err(_) => None,
    }
}
