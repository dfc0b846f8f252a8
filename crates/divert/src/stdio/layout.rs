//! What a stream looks like inside: as far as needed to tell ours from others, to open one anew in its place, and to take
//! over what a stream holds. The layout is part of the C library's binary interface; that of cookie streams is checked
//! whenever one is made.

use libc::{c_int, c_void};

/// glibc's `FILE`, and what follows it in a cookie stream.
#[repr(C)]
pub struct Inside {
    pub flags: c_int,
    read_ptr: usize,
    read_end: usize,
    read_base: usize,
    write_base: usize,
    write_ptr: usize,
    write_end: usize,
    buffer: [usize; 2],
    backup: [usize; 5],
    pub fileno: c_int,
    flags2: c_int,
    old_offset: i64,
    column: u16,
    vtable_offset: i8,
    shortbuf: i8,
    lock: usize,
    pub offset: i64,
    codecvt: usize,
    /// What streams of wide characters need: those of cookies have none.
    pub wide: *mut c_void,
    rest: [usize; 3],
    pub mode: c_int,
    unused: [u8; 20],
    vtable: usize,
    pub cookie: *mut c_void,
    /// Scrambled, with a number that is the process's own.
    pub functions: [usize; 4],
}

const _: () = assert!(std::mem::offset_of!(Inside, vtable) == 216);

/// The descriptor of a cookie stream. Only of such a one may be asked what is behind a FILE.
pub const COOKIE: c_int = -2;

/// As much as that takes, and some more.
pub const WIDE_SIZE: usize = 512;

pub const UNBUFFERED: c_int = 0x2;
pub const NO_READS: c_int = 0x4;
pub const NO_WRITES: c_int = 0x8;
pub const LINE_BUFFERED: c_int = 0x200;
const PUTTING: c_int = 0x800;
pub const APPENDING: c_int = 0x1000;

impl Inside {
    /// What was put into the stream and not written yet.
    pub fn pending(&self) -> &[u8] {
        let length = self.write_ptr.saturating_sub(self.write_base);
        if self.flags & PUTTING == 0 || length == 0 {
            return &[];
        }
        // SAFETY: the stream's own buffer.
        unsafe { std::slice::from_raw_parts(self.write_base as *const u8, length) }
    }
}
