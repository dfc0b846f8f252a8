//! Descriptors: opening, closing, duplicating, controlling and locking them.

mod closing;
mod control;
mod locks;
mod opening;

pub use control::appends;
pub use locks::{has_locks, release_all};
pub use opening::magic_number;

use crate::{stdio, world};
use libc::c_int;

/// A descriptor has become another file's, or nobody's. Those of the standard streams matter to `stdio`.
fn changed(fd: c_int) {
    if (0..=2).contains(&fd) && !world::is_guest() {
        stdio::descriptor_changed(fd);
    }
}
