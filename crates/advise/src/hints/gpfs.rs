//! GPFS (Storage Scale): hints through `gpfs_fcntl` of the site's own libgpfs, which is loaded when it is there.
//!
//! GPFS caches files in its page pool, outside of the page cache. It is asked to load and release *pieces*: parts of
//! the file system's blocks, up to eight in one call. It may take only the first few of them, and stops taking any
//! when too many are not released again, so we remember what it took, and release the oldest when there is no room; what
//! it does not take even then is read by force. And it follows the hints of one process
//! for one file at a time (§IV-C): the first file to come has the place until it is closed, or until others have asked
//! many times since it last did; for those others bytes are read by force, which fills the page pool too. (Or each
//! process gives its own hints: MERCURY's SAIO.)
//!
//! The argument is a header and structures behind it:
//!
//! ```text
//! header     0 i32 length of all   4 i32 version 1   8 i32 out: where the error is   12 i32 0
//! each       0 i32 its length      4 i32 its type
//! 1003 multiple access range       8 i32 pieces to load, out: pieces taken   12 i32 pieces to release
//!                                 16 8 pieces to load   208 8 pieces to release
//! a piece    0 i64 block           8 i32 start in the block   12 i32 length   16 i32 0: read   20 i32 unused
//! 1002 free range                  8 i64 start         16 i64 length
//! 1004 clear file cache
//! ```

use super::{Counts, HintBackend, Loaded, Target};
use crate::blocks::FileKey;
use presagio_core::Range;
use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

const FREE_RANGE: i32 = 1002;
const MULTIPLE_ACCESS_RANGE: i32 = 1003;
const CLEAR_FILE_CACHE: i32 = 1004;
/// Pieces in one call.
const PIECES_MAX: usize = 8;
/// Pieces that may be held at the same time. GPFS has a limit of its own, which it does not say.
const TAKEN_MAX: usize = 1024;
/// So often do others ask before they get the place of a file that does not.
const PATIENCE: u32 = 64;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    length: i32,
    version: i32,
    error_offset: i32,
    reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    block: i64,
    start: i32,
    length: i32,
    is_write: i32,
    unused: i32,
}

impl Piece {
    fn range(self, block_size: u64) -> Range {
        Range::at(
            self.block as u64 * block_size + self.start as u64,
            self.length as u64,
        )
    }
}

#[repr(C)]
#[derive(Default)]
struct AccessRanges {
    load_count: i32,
    release_count: i32,
    load: [Piece; PIECES_MAX],
    release: [Piece; PIECES_MAX],
}

#[repr(C)]
struct FreeRange {
    start: i64,
    length: i64,
}

/// A header and one structure, whose first two fields are in all of them.
#[repr(C)]
struct Argument<B> {
    header: Header,
    length: i32,
    kind: i32,
    body: B,
}

impl<B> Argument<B> {
    fn new(kind: i32, body: B) -> Argument<B> {
        let length = size_of::<Argument<B>>() as i32;
        let header = Header {
            length,
            version: 1,
            ..Header::default()
        };
        Argument {
            header,
            length: length - size_of::<Header>() as i32,
            kind,
            body,
        }
    }
}

type Fcntl = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

/// libgpfs, loaded.
#[derive(Debug)]
struct Library {
    handle: *mut c_void,
    fcntl: Fcntl,
}

// SAFETY: the handle is only given back to the loader, and gpfs_fcntl may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    fn open(path: &Path) -> Option<Library> {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the name ends with 0. Loading runs the library's constructors: it is the site's own libgpfs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: an open handle and a name that ends with 0.
        let symbol = unsafe { libc::dlsym(handle, c"gpfs_fcntl".as_ptr()) };
        if symbol.is_null() {
            // SAFETY: opened above, and nothing of it is in use.
            unsafe { libc::dlclose(handle) };
            return None;
        }
        // SAFETY: gpfs_fcntl of libgpfs has this type.
        let fcntl = unsafe { std::mem::transmute::<*mut c_void, Fcntl>(symbol) };
        Some(Library { handle, fcntl })
    }

    fn call<B>(&self, file: &File, argument: &mut Argument<B>) -> io::Result<()> {
        // SAFETY: the argument says its own length, and gpfs_fcntl reads and writes within it.
        let result = unsafe { (self.fcntl)(file.as_raw_fd(), std::ptr::from_mut(argument).cast()) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened once by us, and no function of it runs any more.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// The file whose hints GPFS follows now.
#[derive(Debug)]
struct Holder {
    key: FileKey,
    /// Of our own, so that its pieces can be released whatever became of others.
    file: File,
    block_size: u64,
    /// What was taken and not released, the oldest first.
    taken: Vec<Piece>,
    /// How many pieces that may be, as far as is known; and how many were taken since that was found out.
    taken_max: usize,
    taken_since: usize,
    /// How often others asked since this one did.
    waited: u32,
}

impl Holder {
    /// Some of a batch of pieces was taken. Where it was not all, there is no room for more. That may have been so for a moment
    /// only: when all that is held has come since, twice as much is tried.
    fn learn_room(&mut self, taken: usize, asked: usize) {
        if taken < asked {
            (self.taken_max, self.taken_since) = (self.taken.len().max(1), 0);
            return;
        }
        self.taken_since += taken;
        if self.taken_since >= self.taken_max {
            let twice = (2 * self.taken_max).max(self.taken.len());
            (self.taken_max, self.taken_since) = (twice.min(TAKEN_MAX), 0);
        }
    }
}

/// See the module's header.
#[derive(Debug)]
pub struct Gpfs {
    library: Library,
    holder: Mutex<Option<Holder>>,
    counts: Counts,
}

impl Gpfs {
    /// Loads libgpfs from where it is installed.
    pub fn find() -> Option<Gpfs> {
        let places = ["libgpfs.so", "/usr/lpp/mmfs/lib/libgpfs.so"];
        places.iter().find_map(|place| Gpfs::load(Path::new(place)))
    }

    /// Loads libgpfs from this file.
    pub fn load(path: &Path) -> Option<Gpfs> {
        Some(Gpfs {
            library: Library::open(path)?,
            holder: Mutex::new(None),
            counts: Counts::default(),
        })
    }

    fn holder(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the place is this file's, now.
    fn takes_place(&self, place: &mut Option<Holder>, file: &Target) -> bool {
        if let Some(holder) = place {
            if holder.key == file.key {
                holder.waited = 0;
                return true;
            }
            holder.waited += 1;
            if holder.waited < PATIENCE {
                return false;
            }
            self.leave(place);
        }
        let (Ok(own), Ok(metadata)) = (file.file.try_clone(), file.file.metadata()) else {
            return false;
        };
        *place = Some(Holder {
            key: file.key,
            file: own,
            // A piece has 31 bits for its length.
            block_size: metadata.blksize().clamp(1, 1 << 30),
            taken: Vec::new(),
            taken_max: TAKEN_MAX,
            taken_since: 0,
            waited: 0,
        });
        true
    }

    /// Releases all that the holder has, and its place.
    fn leave(&self, place: &mut Option<Holder>) {
        if let Some(mut holder) = place.take() {
            let all = std::mem::take(&mut holder.taken);
            self.release(&holder, &all);
        }
    }

    /// Has GPFS load what it takes of a range. The rest comes back, to be read by force.
    fn load_pieces(&self, holder: &mut Holder, range: Range) -> (Loaded, Vec<Range>) {
        let all = pieces(range, holder.block_size);
        let wanted: Vec<Piece> = all.filter(|piece| !holder.taken.contains(piece)).collect();
        let already = range.len() - bytes(&wanted);
        let mut left = &wanted[..];
        // What this range has taken itself is not released for the rest of it.
        let mut older = holder.taken.len();
        while !left.is_empty() {
            let batch = &left[..left.len().min(PIECES_MAX)];
            self.make_room(holder, batch.len(), &mut older);
            let Some(taken) = self.load_batch(&holder.file, batch) else {
                break;
            };
            holder.taken.extend(&batch[..taken]);
            left = &left[taken..];
            holder.learn_room(taken, batch.len());
            if taken == 0 && older == 0 {
                break;
            }
        }
        self.counts
            .refused
            .fetch_add(u64::from(!left.is_empty()), Relaxed);
        let loaded = Loaded {
            asked: range.len(),
            there: range.len() - bytes(left),
            // What of the rest others have had loaded, GPFS does not tell.
            already: (already > 0).then_some(already),
        };
        let size = holder.block_size;
        (loaded, left.iter().map(|piece| piece.range(size)).collect())
    }

    /// Releases the oldest pieces where there is no room for so many more. They are the first that will have been read.
    fn make_room(&self, holder: &mut Holder, count: usize, older: &mut usize) {
        let over = (holder.taken.len() + count).saturating_sub(holder.taken_max);
        let oldest: Vec<Piece> = holder.taken.drain(..over.min(*older)).collect();
        *older -= oldest.len();
        self.release(holder, &oldest);
    }

    /// Returns how many of at most eight pieces GPFS took, if it answers.
    fn load_batch(&self, file: &File, batch: &[Piece]) -> Option<usize> {
        let mut ranges = AccessRanges {
            load_count: batch.len() as i32,
            ..AccessRanges::default()
        };
        ranges.load[..batch.len()].copy_from_slice(batch);
        let mut argument = Argument::new(MULTIPLE_ACCESS_RANGE, ranges);
        self.call(file, &mut argument).then(|| {
            let taken = usize::try_from(argument.body.load_count).unwrap_or(0);
            taken.min(batch.len())
        })
    }

    fn release(&self, holder: &Holder, pieces: &[Piece]) {
        for batch in pieces.chunks(PIECES_MAX) {
            let mut ranges = AccessRanges {
                release_count: batch.len() as i32,
                ..AccessRanges::default()
            };
            ranges.release[..batch.len()].copy_from_slice(batch);
            let mut argument = Argument::new(MULTIPLE_ACCESS_RANGE, ranges);
            if self.call(&holder.file, &mut argument) {
                self.counts.released.fetch_add(bytes(batch), Relaxed);
            }
        }
    }

    fn call<B>(&self, file: &File, argument: &mut Argument<B>) -> bool {
        self.counts.calls.fetch_add(1, Relaxed);
        let done = self.library.call(file, argument).is_ok();
        if !done {
            self.counts.errors.fetch_add(1, Relaxed);
        }
        done
    }
}

impl HintBackend for Gpfs {
    fn name(&self) -> &'static str {
        "gpfs"
    }

    fn will_need(&self, file: &Target, range: Range) -> Loaded {
        let Some(range) = file.pages(range) else {
            return Loaded::default();
        };
        let mut place = self.holder();
        if !self.takes_place(&mut place, file) {
            drop(place); // a real read takes its time
            return self.counts.add(file.force(range, &self.counts));
        }
        let taken = place.as_mut().map(|holder| self.load_pieces(holder, range));
        drop(place);
        let (mut loaded, refused) = taken.unwrap_or_default();
        for range in refused {
            let forced = file.force(range, &self.counts);
            loaded.there += forced.there;
            let both = loaded.already.zip(forced.already);
            loaded.already = both.map(|(taken, there)| taken + there);
        }
        self.counts.add(loaded)
    }

    fn dont_need(&self, file: &Target, range: Range) {
        let mut place = self.holder();
        let Some(holder) = place.as_mut().filter(|h| h.key == file.key) else {
            return;
        };
        let Some(range) = file.pages(range) else {
            return;
        };
        let size = holder.block_size;
        let (go, stay) = holder
            .taken
            .iter()
            .partition(|p| range.overlaps(p.range(size)));
        holder.taken = stay;
        let go: Vec<Piece> = go;
        self.release(holder, &go);
        let all = file.pages(Range::at(0, u64::MAX)) == Some(range);
        if all {
            self.call(&file.file, &mut Argument::new(CLEAR_FILE_CACHE, ()));
        } else {
            let free = FreeRange {
                start: range.start() as i64,
                length: range.len() as i64,
            };
            self.call(&file.file, &mut Argument::new(FREE_RANGE, free));
        }
    }

    fn closed(&self, file: &Target) {
        let mut place = self.holder();
        if place.as_ref().is_some_and(|holder| holder.key == file.key) {
            self.leave(&mut place);
        }
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

fn bytes(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|p| p.length as u64).sum()
}

/// A range, cut where blocks end.
fn pieces(range: Range, block_size: u64) -> impl Iterator<Item = Piece> {
    let blocks = range.start() / block_size..range.end().div_ceil(block_size);
    blocks.map(move |block| {
        let first = block * block_size;
        let start = range.start().max(first);
        Piece {
            block: block as i64,
            start: (start - first) as i32,
            length: (range.end().min(first + block_size) - start) as i32,
            ..Piece::default()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::testing::cold_file;
    use std::ffi::c_char;
    use std::mem::offset_of;
    use std::process::Command;

    /// A libgpfs that checks what it is given, takes at most `limit` pieces that are not released, and writes down
    /// each call.
    const MOCK: &str = r#"
        #include <errno.h>
        #include <stdio.h>
        #include <string.h>
        struct header { int length, version, error, reserved; };
        struct one { int length, type; };
        struct piece { long long block; int start, length, write; char pad[4]; };
        struct many { int length, type, load, release; struct piece l[8], r[8]; };
        struct part { int length, type; long long start, len; };
        static char log_[1 << 20];
        static int held, limit = 1000;
        void mock_limit(int n) { limit = n; }
        const char *mock_log(void) { return log_; }
        static void say(const char *text, long long a, long long b) {
            static size_t used;
            used += snprintf(log_ + used, sizeof log_ - used, "%s %lld+%lld\n", text, a, b);
        }
        int gpfs_fcntl(int fd, void *argument) {
            struct header *h = argument;
            struct one *s = (void *)(h + 1);
            if (fd < 0 || h->version != 1 || h->reserved || h->length != (int)sizeof *h + s->length) goto bad;
            if (s->type == 1003 && s->length == sizeof(struct many)) {
                struct many *m = (void *)s;
                int taken = 0;
                if (m->load > 8 || m->release > 8) goto bad;
                for (int i = 0; i < m->release; i++, held--)
                    say("release", m->r[i].block * 4096 + m->r[i].start, m->r[i].length);
                for (; taken < m->load && held < limit; taken++, held++)
                    say("load", m->l[taken].block * 4096 + m->l[taken].start, m->l[taken].length);
                m->load = taken;
                return 0;
            }
            if (s->type == 1002 && s->length == sizeof(struct part)) {
                struct part *p = (void *)s;
                say("free", p->start, p->len);
                return 0;
            }
            if (s->type == 1004 && s->length == sizeof *s) {
                say("clear", 0, 0);
                return 0;
            }
        bad:
            errno = EINVAL;
            return -1;
        }
    "#;

    struct Mock {
        gpfs: Gpfs,
        _directory: tempfile::TempDir,
    }

    impl Mock {
        /// Each has a copy of its own: a library is loaded once per file.
        fn new(limit: i32) -> Mock {
            let directory = tempfile::tempdir().unwrap();
            let (source, library) = (
                directory.path().join("gpfs.c"),
                directory.path().join("libgpfs.so"),
            );
            std::fs::write(&source, MOCK).unwrap();
            let mut gcc = Command::new("gcc");
            let status = gcc
                .args(["-shared", "-fPIC", "-Wall", "-o"])
                .arg(&library)
                .arg(&source)
                .status();
            assert!(status.expect("the tests need gcc").success());
            let mock = Mock {
                gpfs: Gpfs::load(&library).unwrap(),
                _directory: directory,
            };
            mock.limit(limit);
            mock
        }

        fn limit(&self, limit: i32) {
            // SAFETY: the mock's function has this type.
            unsafe {
                let symbol = libc::dlsym(self.gpfs.library.handle, c"mock_limit".as_ptr());
                std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(symbol)(limit);
            }
        }

        fn load(&self, target: &Target, range: Range) -> u64 {
            self.gpfs.will_need(target, range).there
        }

        /// Pieces that were loaded, and released.
        fn counted(&self) -> (usize, usize) {
            let log = self.log();
            let count = |what: &str| log.iter().filter(|l| l.starts_with(what)).count();
            (count("load"), count("release"))
        }

        fn log(&self) -> Vec<String> {
            // SAFETY: the mock's function has this type, and its text ends with 0.
            let text = unsafe {
                let symbol = libc::dlsym(self.gpfs.library.handle, c"mock_log".as_ptr());
                let log =
                    std::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_char>(symbol)();
                std::ffi::CStr::from_ptr(log)
            };
            text.to_str().unwrap().lines().map(str::to_owned).collect()
        }
    }

    const BLOCK: u64 = 4096;

    #[test]
    fn the_layout_is_the_documented_one() {
        assert_eq!((size_of::<Header>(), size_of::<Piece>()), (16, 24));
        assert_eq!(size_of::<Argument<AccessRanges>>(), 16 + 16 + 2 * 8 * 24);
        assert_eq!(size_of::<Argument<FreeRange>>(), 16 + 24);
        assert_eq!(size_of::<Argument<()>>(), 16 + 8);
        assert_eq!(offset_of!(Argument<FreeRange>, body.length), 16 + 16);
        assert_eq!(offset_of!(Argument<AccessRanges>, body.load), 16 + 16);
        assert_eq!(offset_of!(Argument<AccessRanges>, body.release), 16 + 208);
        assert_eq!(
            (offset_of!(Piece, start), offset_of!(Piece, is_write)),
            (8, 16)
        );
    }

    #[test]
    fn ranges_become_pieces_of_blocks() {
        let pieces: Vec<Range> = pieces(Range::at(4000, 5000), BLOCK)
            .map(|p| p.range(BLOCK))
            .collect();
        assert_eq!(
            pieces,
            [
                Range::at(4000, 96),
                Range::at(4096, 4096),
                Range::at(8192, 808)
            ]
        );
    }

    #[test]
    fn pieces_are_loaded_once_and_released() {
        let (mock, target) = (Mock::new(1000), cold_file(100 * BLOCK as usize));
        assert_eq!(target.file.metadata().unwrap().blksize(), BLOCK);
        assert_eq!(mock.load(&target, Range::at(0, 2 * BLOCK)), 2 * BLOCK);
        assert_eq!(mock.load(&target, Range::at(BLOCK, 2 * BLOCK)), 2 * BLOCK);
        mock.gpfs.dont_need(&target, Range::at(0, BLOCK));
        mock.gpfs.closed(&target);
        let expected = [
            "load 0+4096",
            "load 4096+4096",
            "load 8192+4096",
            "release 0+4096",
            "free 0+4096",
            "release 4096+4096",
            "release 8192+4096",
        ];
        assert_eq!(mock.log(), expected);
        let done = mock.gpfs.counts().done();
        assert_eq!(
            (done.errors, done.refused, done.bytes_released),
            (0, 0, 3 * BLOCK)
        );
    }

    #[test]
    fn a_large_range_takes_several_calls() {
        let (mock, target) = (Mock::new(1000), cold_file(100 * BLOCK as usize));
        assert_eq!(mock.load(&target, Range::at(0, 20 * BLOCK)), 20 * BLOCK);
        assert_eq!(mock.gpfs.counts().done().calls, 3);
        assert_eq!(mock.log().len(), 20);
    }

    #[test]
    fn what_is_not_taken_is_said_and_read_by_force() {
        let (mock, target) = (Mock::new(10), cold_file(100 * BLOCK as usize));
        assert_eq!(mock.load(&target, Range::at(0, 40 * BLOCK)), 40 * BLOCK);
        let done = mock.gpfs.counts().done();
        assert_eq!((done.refused, done.bytes_released), (1, 0));
        assert!(done.bytes_forced <= 30 * BLOCK);
        mock.gpfs.closed(&target);
        let (loads, releases) = mock.counted();
        assert_eq!((loads, releases), (10, 10), "what was read is not released");
    }

    #[test]
    fn the_oldest_pieces_make_room_however_many_are_loaded() {
        let (mock, target) = (Mock::new(100), cold_file(2000 * BLOCK as usize));
        for block in 0..2000 {
            let loaded = mock.load(&target, Range::at(block * BLOCK, BLOCK));
            assert_eq!(loaded, BLOCK, "block {block}");
        }
        let done = mock.gpfs.counts().done();
        assert_eq!((done.refused, done.bytes_forced), (0, 0));
        assert_eq!(mock.counted(), (2000, 1900));
        let log = mock.log();
        let released = log.iter().filter(|line| line.starts_with("release"));
        let in_order = (0..1900).map(|block| format!("release {}+{BLOCK}", block * BLOCK));
        assert!(released.cloned().eq(in_order), "the oldest first");
    }

    #[test]
    fn room_that_was_short_for_a_while_is_used_again() {
        let (mock, target) = (Mock::new(2), cold_file(2000 * BLOCK as usize));
        let load = |blocks: std::ops::Range<u64>| {
            for block in blocks {
                let loaded = mock.load(&target, Range::at(block * BLOCK, BLOCK));
                assert_eq!(loaded, BLOCK, "block {block}");
            }
            let (loads, releases) = mock.counted();
            loads - releases
        };
        assert_eq!(load(0..100), 2);
        let before = mock.gpfs.counts().done().calls;
        mock.limit(64);
        assert_eq!(load(100..1000), 64);
        assert_eq!(load(1000..2000), 64);
        let done = mock.gpfs.counts().done();
        assert_eq!((done.refused, done.bytes_forced), (0, 0));
        // A call for each that is loaded and for each that is released, and few that find out how much room there is.
        assert!(done.calls - before < 2 * 1900 + 64, "{}", done.calls);
    }

    #[test]
    fn a_library_that_takes_all_is_not_given_more_than_it_is_known_to_bear() {
        let blocks = TAKEN_MAX as u64 + 100;
        let (mock, target) = (Mock::new(1_000_000), cold_file((blocks * BLOCK) as usize));
        for block in 0..blocks {
            assert_eq!(mock.load(&target, Range::at(block * BLOCK, BLOCK)), BLOCK);
        }
        assert_eq!(mock.counted(), (blocks as usize, 100));
    }

    #[test]
    fn one_file_at_a_time_is_hinted_and_others_are_read() {
        let (mock, first, second) = (Mock::new(1000), cold_file(1 << 20), cold_file(1 << 20));
        mock.gpfs.will_need(&first, Range::at(0, BLOCK));
        assert_eq!(mock.load(&second, Range::at(0, 1 << 20)), 1 << 20);
        assert_eq!(mock.log(), ["load 0+4096"]);
        mock.gpfs.dont_need(&second, Range::at(0, BLOCK));
        mock.gpfs.closed(&second);
        assert_eq!(mock.log().len(), 1);
        mock.gpfs.closed(&first);
        mock.gpfs.will_need(&second, Range::at(BLOCK, BLOCK));
        assert_eq!(
            mock.log(),
            ["load 0+4096", "release 0+4096", "load 4096+4096"]
        );
    }

    #[test]
    fn a_file_that_asks_no_more_loses_its_place() {
        let (mock, first, second) = (Mock::new(1000), cold_file(1 << 20), cold_file(1 << 20));
        mock.gpfs.will_need(&first, Range::at(0, BLOCK));
        for _ in 0..PATIENCE {
            mock.gpfs.will_need(&second, Range::at(0, BLOCK));
        }
        assert_eq!(mock.log(), ["load 0+4096", "release 0+4096", "load 0+4096"]);
        mock.gpfs.closed(&first);
        assert_eq!(mock.log().len(), 3, "it has nothing any more");
    }

    #[test]
    fn a_whole_file_is_cleared() {
        let (mock, target) = (Mock::new(1000), cold_file(10 * BLOCK as usize));
        mock.gpfs.will_need(&target, Range::at(0, BLOCK));
        mock.gpfs.dont_need(&target, Range::at(0, u64::MAX));
        assert_eq!(mock.log(), ["load 0+4096", "release 0+4096", "clear 0+0"]);
    }

    #[test]
    fn a_library_that_is_not_there_or_is_none_is_no_library() {
        assert!(Gpfs::load(Path::new("/nowhere/libgpfs.so")).is_none());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Gpfs::load(file.path()).is_none());
    }
}
