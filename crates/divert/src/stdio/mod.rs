//! Streams on forwarded files.
//!
//! The C library's streams call the kernel themselves, where we do not see it. So a stream on a forwarded file is one of its
//! *cookie* streams, whose bytes come from functions of ours (`stream`); all the rest, buffers, `ungetc`, `fseek`, `printf`, is the
//! C library's own. Our functions call `read`, `write`, `lseek` and `close` as the program would, so that libpresagio.so,
//! which stands before us, sees them. `open` makes such streams, and knows them again; `standard` puts them in the place of
//! `stdin`, `stdout` and `stderr`; `print` is for what prints to a descriptor.
//!
//! What differs from other streams:
//!
//! - A stream on a local file that is `freopen`ed on a forwarded one becomes another stream, which is returned. (For the
//!   standard ones the variables follow.)
//! - Wide characters (`fwprintf`; `,ccs=` in a mode) cannot be used: the functions fail.
//! - Who has kept a copy of `stdout` from before descriptor 1 became a forwarded file writes to the old stream, whose
//!   writes fail. C++'s `std::cout` is such a one; it is right if the descriptor was forwarded when the program began, and
//!   the C++ library takes its copy after we started (GCC 12 and before).
//!
//! Not hooked: `tmpfile`, whose file is local always; `popen`, whose file is a pipe; `setvbuf`, `fflush` and whatever else
//! the C library does alike for all streams. What it writes to descriptor 2 itself, when it ends a program, is lost.

mod layout;
mod open;
mod print;
mod standard;
mod stream;

pub use standard::{changed as descriptor_changed, start};
