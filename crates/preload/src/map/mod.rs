//! Mapping files into memory: the mapping is reported; what is then read and written through it cannot be seen. And
//! unloading code, after which names of call stacks have to be looked at anew.

use crate::watch::Watch;
use crate::{context, life};
use libc::{c_int, c_void, off_t, size_t};
use presagio_arena::Counter;
use presagio_core::Action;

hooks! {
    fn mmap, mmap64(at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void = |call| map(len, flags, fd, offset, call);
    fn dlclose(handle: *mut c_void) -> c_int = |call| { let result = call(); context::modules_changed(); result };
}

/// Allocators map memory without a file, and must not pay for us.
#[inline(always)]
fn map(
    len: size_t,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    call: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let is_file = fd >= 0 && flags & libc::MAP_ANONYMOUS == 0;
    let watch = if is_file { Watch::begin(fd) } else { None };
    let result = call();
    if let Some(watch) = watch {
        let failed = result == libc::MAP_FAILED;
        watch.done(
            Action::Map,
            offset as u64,
            len as u64,
            if failed { -1 } else { 0 },
        );
        if let Some(client) = life::client().filter(|_| !failed) {
            client.count(Counter::MappedBytes, len as u64);
        }
    }
    result
}
