//! What of a file is in the page cache.
//!
//! `cachestat` (Linux 6.5) counts pages without mapping anything, those on their way included. Where it is missing,
//! `mincore` on a mapping does; it sees only pages that have arrived. For files on an overlay it must be `mincore`:
//! `cachestat` looks at the overlay's own inode, whose cache is empty.
//!
//! The kernel answers only the owner of a file or one who may write it. `cachestat` tells others so. `mincore` would claim
//! that all is there, and hints would seem needless: there we ask only for files of our own.

use super::Storage;
use presagio_core::Range;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// How we look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Cachestat,
    Mincore,
}

/// Mapped at once by `mincore`.
const MAPPED_MAX: u64 = 64 << 20;

/// How many bytes of a range of the file are in the page cache, in whole pages. Bytes behind its end are not.
pub fn residency(file: &File, range: Range) -> io::Result<u64> {
    let pages = whole_pages(range, file.metadata()?.len());
    resident(file, pages, Method::of(Storage::of(file)?))
}

impl Method {
    pub(super) fn of(storage: Storage) -> Method {
        static KNOWN: OnceLock<bool> = OnceLock::new();
        // A kernel that knows the call, and a sandbox that lets it through, complains about the descriptor only.
        let asks = || matches!(cachestat(-1, Range::at(0, 1)), Err(e) if e.raw_os_error() == Some(libc::EBADF));
        if storage != Storage::Overlay && *KNOWN.get_or_init(asks) {
            Method::Cachestat
        } else {
            Method::Mincore
        }
    }
}

/// The whole pages that a range lies in, as far as a file of `size` bytes has them.
pub(crate) fn whole_pages(range: Range, size: u64) -> Range {
    let page = rustix::param::page_size() as u64;
    let end = range.end().min(size).next_multiple_of(page);
    let start = (range.start() / page * page).min(end);
    Range::at(start, end - start)
}

/// The bytes of whole pages that are there.
pub(super) fn resident(file: &File, pages: Range, method: Method) -> io::Result<u64> {
    match method {
        _ if pages.is_empty() => Ok(0),
        Method::Cachestat => Ok(cachestat(file.as_raw_fd(), pages)?.min(pages.len())),
        Method::Mincore => {
            must_be_ours(file)?;
            in_pieces(pages)
                .map(|piece| Ok(mincore(file, piece)?.1))
                .sum()
        }
    }
}

/// The bytes from the start of whole pages on that are there without a gap.
pub(super) fn leading(file: &File, pages: Range, method: Method) -> io::Result<u64> {
    if method == Method::Cachestat {
        return bisect(pages.len(), |len| {
            Ok(resident(file, Range::at(pages.start(), len), method)? == len)
        });
    }
    must_be_ours(file)?;
    let mut whole = 0;
    for piece in in_pieces(pages) {
        let (leading, _) = mincore(file, piece)?;
        whole += leading;
        if leading < piece.len() {
            break;
        }
    }
    Ok(whole)
}

/// The largest whole number of pages, up to `len` bytes, for which `full` holds; it must hold for all below that.
fn bisect(len: u64, full: impl Fn(u64) -> io::Result<bool>) -> io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    let (mut low, mut high) = (0, len / page + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if full(middle * page)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low * page)
}

fn must_be_ours(file: &File) -> io::Result<()> {
    let user = rustix::process::geteuid();
    if user.is_root() || user.as_raw() == file.metadata()?.uid() {
        return Ok(());
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

fn in_pieces(pages: Range) -> impl Iterator<Item = Range> {
    let starts = (pages.start()..pages.end()).step_by(MAPPED_MAX as usize);
    starts.map(move |start| Range::at(start, MAPPED_MAX.min(pages.end() - start)))
}

/// The call has one number on all architectures.
const CACHESTAT: libc::c_long = 451;

fn cachestat(fd: i32, range: Range) -> io::Result<u64> {
    let asked = [range.start(), range.len()];
    // In the cache, dirty, in write-back, evicted, recently evicted: in pages.
    let mut found = [0_u64; 5];
    // SAFETY: the kernel reads two and writes five 64-bit words, which live until the call returns.
    let result = unsafe { libc::syscall(CACHESTAT, fd, asked.as_ptr(), found.as_mut_ptr(), 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found[0].saturating_mul(rustix::param::page_size() as u64))
}

/// The bytes of a piece that are there, without a gap from its start on, and in all.
fn mincore(file: &File, piece: Range) -> io::Result<(u64, u64)> {
    let (len, page) = (piece.len() as usize, rustix::param::page_size());
    let mut pages = vec![0_u8; len.div_ceil(page)];
    // SAFETY: a new mapping where the kernel wants it. Nothing is accessed through it, hence PROT_NONE, so that the
    // file may change or shrink meanwhile.
    let map = unsafe {
        let start = piece.start() as libc::off_t;
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_NONE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            start,
        )
    };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping exists, and `pages` has a byte for each of its pages.
    let result = unsafe { libc::mincore(map, len, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping is ours, and nothing refers to it.
    unsafe { libc::munmap(map, len) };
    if result != 0 {
        return Err(error);
    }
    let there = |page: &&u8| **page & 1 == 1;
    let leading = pages.iter().take_while(there).count() * page;
    let all = pages.iter().filter(there).count() * page;
    Ok((leading as u64, all as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::Counts;
    use crate::hints::testing::{at_last, cold_file};
    use std::os::unix::fs::FileExt;

    const PAGE: u64 = 4096;

    #[test]
    fn both_methods_see_what_was_read_and_nothing_else() {
        let target = cold_file(1 << 20);
        if target.device.storage == Storage::Memory {
            println!("skipped: temporary files lie in memory here");
            return;
        }
        rustix::fs::fadvise(&target.file, 0, None, rustix::fs::Advice::Random).unwrap();
        let all = Range::at(0, 1 << 20);
        for method in [Method::Cachestat, Method::Mincore] {
            if method == Method::Cachestat && Method::of(Storage::Local) != method {
                println!("skipped for cachestat: this kernel has none");
                continue;
            }
            let (resident, leading) = (
                |pages| resident(&target.file, pages, method).unwrap(),
                |pages| leading(&target.file, pages, method).unwrap(),
            );
            let right = at_last(|| {
                target.release(all, &Counts::default());
                let before = (resident(all), leading(all));
                target
                    .file
                    .read_exact_at(&mut [0; 5 * PAGE as usize], 0)
                    .unwrap();
                target
                    .file
                    .read_exact_at(&mut [0; 2], 9 * PAGE - 1)
                    .unwrap();
                let part = Range::at(9 * PAGE, 40 * PAGE);
                let after = (resident(all), leading(all), leading(part));
                before == (0, 0) && after == (7 * PAGE, 5 * PAGE, PAGE)
            });
            assert!(right, "{method:?}");
        }
    }

    #[test]
    fn bytes_behind_the_end_are_not_there() {
        let target = cold_file(5000);
        assert!(at_last(|| {
            target.file.read_exact_at(&mut [0; 5000], 0).unwrap();
            residency(&target.file, Range::at(0, u64::MAX)).unwrap() == 2 * PAGE
        }));
        assert_eq!(residency(&target.file, Range::at(100_000, 1)).unwrap(), 0);
        assert_eq!(residency(&target.file, Range::at(0, 0)).unwrap(), 0);
    }

    #[test]
    fn a_file_of_someone_else_is_not_taken_to_be_in_memory() {
        let system = File::open("/etc/passwd").unwrap(); // root's
        let seen = resident(&system, Range::at(0, PAGE), Method::Mincore);
        assert_eq!(seen.is_ok(), rustix::process::geteuid().is_root());
    }

    #[test]
    fn a_search_by_halves_finds_the_edge() {
        for edge in 0..=9 {
            let found = bisect(9 * PAGE, |len| Ok(len <= edge * PAGE)).unwrap();
            assert_eq!(found, edge * PAGE);
        }
    }
}
