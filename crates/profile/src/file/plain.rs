//! One system call after the other, for systems without io_uring.

use super::memory::Memory;
use crate::Random;
use crate::target::Run;
use presagio_core::{Nanos, Op};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

#[derive(Default)]
pub struct Plain {
    memory: Option<Memory>,
}

impl Plain {
    /// Has the memory for a run; takes its time, which no run should have to pay.
    pub fn prepare(&mut self, run: &Run<'_>) -> &mut Memory {
        match &mut self.memory {
            Some(memory) if memory.bytes().len() as u64 >= run.size => {}
            small => {
                let memory = small.insert(Memory::new(run.size as usize));
                memory.scramble(&mut Random::new(run.size));
            }
        }
        self.memory.get_or_insert_with(|| Memory::new(0))
    }

    pub fn run(&mut self, file: &File, run: &Run<'_>, begin: Instant) -> io::Result<Vec<Nanos>> {
        let size = run.size as usize;
        let memory = self.prepare(run);
        let mut done = Vec::with_capacity(run.offsets.len());
        for offset in run.offsets {
            match run.op {
                Op::Read => file.read_exact_at(&mut memory.bytes_mut()[..size], *offset)?,
                Op::Write => file.write_all_at(&memory.bytes()[..size], *offset)?,
            }
            done.push(Nanos::from(begin.elapsed()));
        }
        Ok(done)
    }
}
