//! An emulated device, in virtual time: what would take hours takes seconds.

use crate::target::{Run, Target};
use presagio_core::{Nanos, Range};
use presagio_device::{Device, Model, ModelError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

/// A device of the `device` crate, and a file at its beginning.
pub struct Emulated {
    device: Box<dyn Device>,
    bytes: u64,
    now: Nanos,
}

impl Emulated {
    /// A new one, at rest, with a file of so many bytes.
    pub fn new(model: &Model, bytes: u64) -> Result<Emulated, ModelError> {
        Ok(Emulated {
            device: model.device()?,
            bytes,
            now: Nanos::ZERO,
        })
    }
}

impl Target for Emulated {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn run(&mut self, run: &Run<'_>) -> io::Result<Vec<Nanos>> {
        let begin = self.now;
        let mut done = Vec::with_capacity(run.offsets.len());
        let mut under_way = BinaryHeap::new();
        for offset in run.offsets {
            if under_way.len() >= run.depth.max(1) as usize
                && let Some(Reverse(first)) = under_way.pop()
            {
                self.now = self.now.max(first);
                done.push(first - begin);
            }
            let at = Range::at(*offset, run.size);
            under_way.push(Reverse(self.device.serve(run.op, at, self.now)));
        }
        while let Some(Reverse(next)) = under_way.pop() {
            self.now = self.now.max(next);
            done.push(next - begin);
        }
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.now = self.device.flush(self.now);
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::Op;
    use presagio_device::profile::Pattern;

    fn took(depth: u32) -> Nanos {
        let model = Model::named("ssd").expect("a preset");
        let mut drive = Emulated::new(&model, 1 << 30).expect("a drive");
        let offsets: Vec<u64> = (0..800).map(|i| i * 8192 * 17).collect();
        let run = Run {
            op: Op::Read,
            pattern: Pattern::Random,
            size: 8192,
            offsets: &offsets,
            depth,
        };
        let done = drive.run(&run).expect("virtual devices do not fail");
        assert_eq!(done.len(), 800);
        assert!(done.is_sorted() && done.last() == Some(&drive.now()));
        drive.now()
    }

    #[test]
    fn several_at_a_time_keep_several_channels_busy() {
        let (one, eight) = (took(1), took(8));
        assert!(one.0 > 5 * eight.0, "{one} {eight}");
    }
}
