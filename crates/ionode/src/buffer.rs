//! Memory for payloads: taken once from the system, then used again and again.
//!
//! A megabyte that is new costs 256 page faults, more than reading or sending it does. So buffers are kept by size, and
//! a read fills one in place: the payload starts at a page's border, with room for the reply's header before it, so that
//! both leave in one piece. What is kept makes room when buffers of another size are asked for: both together stay
//! within the limit.
//!
//! *Invariant.* What is in a buffer beyond its payload is another request's and is never sent.

use crate::sys;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Before the payload: the header of its reply.
pub const HEAD: usize = 64;

const PAGE: usize = 4096;
/// Payloads come in sizes of 2^9 to 2^22 bytes.
const SMALLEST_BITS: u32 = 9;
const CLASSES: usize = 14;

/// The buffers of a node.
#[derive(Debug)]
pub struct Buffers {
    kept: [Mutex<Vec<Vec<u8>>>; CLASSES],
    kept_bytes: AtomicUsize,
    kept_max: usize,
    in_use: AtomicUsize,
    in_use_max: usize,
    held: AtomicUsize,
    /// Let go since the allocator was last told to give memory back.
    let_go: AtomicUsize,
}

impl Buffers {
    /// Keeps up to `kept_max` bytes of what is given back. More than `in_use_max` in use is too much:
    /// [`is_full`](Self::is_full) says so, and those who could wait should.
    pub fn new(kept_max: usize, in_use_max: usize) -> Arc<Buffers> {
        Arc::new(Buffers {
            kept: Default::default(),
            kept_bytes: AtomicUsize::new(0),
            kept_max,
            in_use: AtomicUsize::new(0),
            in_use_max,
            held: AtomicUsize::new(0),
            let_go: AtomicUsize::new(0),
        })
    }

    /// Whether so much is in use that nobody should ask for more.
    pub fn is_full(&self) -> bool {
        self.in_use() >= self.in_use_max
    }

    /// Bytes in use.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// A buffer for a payload of `bytes`.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let class = class_of(bytes);
        let kept = lock(&self.kept[class]).pop();
        let memory = match kept {
            Some(memory) => {
                self.kept_bytes.fetch_sub(memory.len(), Ordering::Relaxed);
                memory
            }
            None => {
                self.make_room(memory_of(class));
                vec![0; memory_of(class)]
            }
        };
        self.in_use.fetch_add(memory.len(), Ordering::Relaxed);
        let start = payload_start(&memory);
        Buffer {
            payload: start..start + bytes,
            memory,
            home: self.clone(),
        }
    }

    /// Counts memory that somebody else has taken as in use, for as long as the value is there.
    pub fn count(self: &Arc<Self>, bytes: usize) -> Counted {
        self.counted(bytes, 0)
    }

    fn counted(self: &Arc<Self>, bytes: usize, held: usize) -> Counted {
        self.in_use.fetch_add(bytes, Ordering::Relaxed);
        Counted {
            bytes,
            held,
            home: self.clone(),
        }
    }

    /// The same, of what may be held for ever: `None` if that is more than a quarter of all.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Counted> {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let counted = self.counted(bytes, bytes);
        (before + bytes <= self.in_use_max / 4).then_some(counted)
    }

    fn give_back(&self, memory: Vec<u8>) {
        let bytes = memory.len();
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
        let kept = self.kept_bytes.load(Ordering::Relaxed) + bytes;
        if kept > self.kept_max || kept + self.in_use() > self.ceiling() {
            self.let_go(memory);
            return;
        }
        self.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
        lock(&self.kept[class_of_memory(bytes)]).push(memory);
    }

    /// What is in use and what is kept, together. A little more than may be in use: who asks when that is nearly full gets
    /// all it asks for, and a node that is always full should not take every buffer anew.
    fn ceiling(&self) -> usize {
        self.in_use_max.saturating_add(self.in_use_max / 8)
    }

    /// Lets go of what is kept, the largest first, until `more` bytes fit in.
    fn make_room(&self, more: usize) {
        let fits = |kept: usize| kept + self.in_use() + more <= self.ceiling();
        for class in self.kept.iter().rev() {
            while !fits(self.kept_bytes.load(Ordering::Relaxed)) {
                let Some(memory) = lock(class).pop() else {
                    break;
                };
                self.kept_bytes.fetch_sub(memory.len(), Ordering::Relaxed);
                self.let_go(memory);
            }
        }
    }

    /// The allocator keeps what is freed for the size that it had. Told now and then, it gives that back.
    fn let_go(&self, memory: Vec<u8>) {
        let bytes = memory.len();
        drop(memory);
        let before = self.let_go.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= self.in_use_max / 8 {
            self.let_go.store(0, Ordering::Relaxed);
            sys::trim();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn class_of(bytes: usize) -> usize {
    let bits = bytes.max(1).next_power_of_two().trailing_zeros();
    (bits.max(SMALLEST_BITS) - SMALLEST_BITS) as usize
}

/// Small ones are not aligned: nobody reads less than a page past the page cache.
fn memory_of(class: usize) -> usize {
    let payload = 1 << (class as u32 + SMALLEST_BITS);
    match payload < PAGE {
        true => payload + HEAD,
        false => payload + HEAD + PAGE,
    }
}

fn class_of_memory(bytes: usize) -> usize {
    let all = 0..CLASSES;
    all.into_iter()
        .find(|class| memory_of(*class) == bytes)
        .expect("memory of a class")
}

fn payload_start(memory: &[u8]) -> usize {
    if memory.len() < PAGE {
        return HEAD;
    }
    let past = (memory.as_ptr() as usize + HEAD) % PAGE;
    HEAD + (PAGE - past) % PAGE
}

/// Memory that is no buffer.
#[derive(Debug)]
pub struct Counted {
    bytes: usize,
    held: usize,
    home: Arc<Buffers>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.home.in_use.fetch_sub(self.bytes, Ordering::Relaxed);
        self.home.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

/// A payload, and a little room before it.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    payload: Range<usize>,
    home: Arc<Buffers>,
}

impl Buffer {
    /// The payload.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.payload.clone()]
    }

    /// The payload, to fill.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.payload.clone()]
    }

    /// Bytes of payload.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// What is behind the first `bytes` is no payload.
    pub fn truncate(&mut self, bytes: usize) {
        self.payload.end = self.payload.end.min(self.payload.start + bytes);
    }

    /// Puts a header, of at most [`HEAD`] bytes, before the payload, which it is part of from now on.
    pub fn prepend(&mut self, head: &[u8]) {
        let start = self.payload.start - head.len();
        self.memory[start..self.payload.start].copy_from_slice(head);
        self.payload.start = start;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_counted_while_in_use() {
        let buffers = Buffers::new(1 << 20, 9000);
        let first = buffers.take(4096);
        let at = first.bytes().as_ptr();
        assert_eq!(at as usize % PAGE, 0);
        assert!(buffers.in_use() > 4096 && !buffers.is_full());
        let second = buffers.take(600);
        assert!(buffers.is_full());
        drop((first, second));
        assert_eq!(buffers.in_use(), 0);
        assert_eq!(buffers.take(3000).bytes().as_ptr(), at);
    }

    #[test]
    fn what_is_no_buffer_counts_and_no_more_than_a_quarter_is_held() {
        let buffers = Buffers::new(0, 1000);
        let counted = buffers.count(900);
        let held = buffers.hold(200).unwrap();
        assert!(buffers.is_full() && buffers.hold(100).is_none());
        assert_eq!(buffers.in_use(), 1100);
        drop(held);
        assert!(!buffers.is_full() && buffers.hold(250).is_some());
        drop(counted);
        assert_eq!(buffers.in_use(), 0);
    }

    #[test]
    fn every_size_finds_its_class_again() {
        let buffers = Buffers::new(64 << 20, usize::MAX);
        for bytes in [
            0,
            1,
            511,
            512,
            513,
            4095,
            4096,
            4097,
            65536,
            1 << 20,
            4 << 20,
        ] {
            let mut buffer = buffers.take(bytes);
            assert_eq!(buffer.len(), bytes);
            buffer.prepend(&[7; 11]);
            assert_eq!(buffer.len(), bytes + 11);
        }
        assert_eq!(buffers.in_use(), 0);
    }

    #[test]
    fn what_is_kept_makes_room_for_other_sizes() {
        let max = 1 << 20;
        let buffers = Buffers::new(max, max);
        let kept = || buffers.kept_bytes.load(Ordering::Relaxed);
        drop((0..15).map(|_| buffers.take(65536)).collect::<Vec<_>>());
        assert!(kept() > max * 3 / 4);
        let large = buffers.take(max / 2);
        assert!(kept() > 0 && kept() + buffers.in_use() <= max * 9 / 8);
        let another = buffers.take(max / 2);
        assert!(kept() + buffers.in_use() <= max * 9 / 8);
        drop((large, another));
        assert!(kept() <= max);
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let buffers = Buffers::new(10_000, usize::MAX);
        let many: Vec<_> = (0..8).map(|_| buffers.take(4096)).collect();
        drop(many);
        assert!(buffers.kept_bytes.load(Ordering::Relaxed) <= 10_000);
    }
}
