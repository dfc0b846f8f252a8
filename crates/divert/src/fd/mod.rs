//! Descriptors: opening, closing, duplicating, controlling and locking them.

mod carry;
mod closing;
mod control;
mod locks;
mod note;
mod opening;

pub use carry::{over_exec, take_over};
pub use control::appends;
pub use locks::{Carried, carried, has_locks, release_all};
pub use note::Handed;
pub use opening::{is_exclusive, open_for_another};

use crate::{stdio, world};
use libc::c_int;

/// A descriptor has become another file's, or nobody's. Those of the standard streams matter to `stdio`.
fn changed(fd: c_int) {
    if (0..=2).contains(&fd) && !world::is_guest() {
        stdio::descriptor_changed(fd);
    }
}
