//! What would make the figures of a real device meaningless: caches and throttles around it.
//!
//! Everything here only looks, and says in a sentence what it saw.

mod cgroup;
mod system;

pub use cgroup::throttles;
pub use system::around;

/// No device answers faster than this, in nanoseconds: what does is a memory.
const DEVICE_LEAST_NS: f64 = 4_000.0;

/// A note if the quickest requests were too quick for a device.
pub fn too_fast(ns: f64) -> Option<String> {
    (ns < DEVICE_LEAST_NS).then(|| {
        format!(
            "the quickest requests took {:.1} µs, which is no device but a cache: the figures are of memory",
            ns / 1e3
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_devices() {
        assert!(too_fast(900.0).is_some_and(|note| note.contains("0.9 µs")));
        assert_eq!(too_fast(10_000.0), None);
    }
}
