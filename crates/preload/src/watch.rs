//! An operation on a followed file, from before the real call to the record.

use crate::descriptors::{self, Descriptor};
use crate::hot::HOT;
use crate::thread::{self, Own};
use crate::{context, life};
use presagio_arena::{Client, Counter, FileSlot, Kind, Record, Stamp, sys};
use presagio_core::Action;
use presagio_stack::Entry;
use std::sync::atomic::Ordering::Relaxed;

/// An operation that has begun.
pub struct Watch {
    /// The file.
    pub descriptor: &'static Descriptor,
    /// Its descriptor.
    pub fd: i32,
    caller: Entry,
    start: Stamp,
}

/// Where bytes were moved.
#[derive(Clone, Copy)]
pub enum Place {
    /// At the descriptor's position, which moved with them.
    Current,
    /// Here.
    At(u64),
}

impl Watch {
    /// Begins, if the descriptor is a followed file. To be called right before the real call.
    #[inline(always)]
    pub fn begin(fd: i32) -> Option<Watch> {
        let descriptor = descriptors::followed(fd)?;
        Some(Watch::of(descriptor, fd))
    }

    #[inline(always)]
    fn of(descriptor: &'static Descriptor, fd: i32) -> Watch {
        let thread = thread::current();
        let caller = thread.entry();
        // What the record will need comes near while the kernel works. Nothing else is looked at before: the call would wait for it.
        if let Some(client) = life::client() {
            client.prefetch();
            thread.prefetch(client);
            context::prefetch(&caller);
        }
        Watch {
            descriptor,
            fd,
            caller,
            start: now(),
        }
    }

    /// Bytes were read or written: `result` is what the call returned.
    #[inline(always)]
    pub fn moved(&self, action: Action, place: Place, asked: usize, result: isize) {
        let elapsed = self.start.elapsed();
        let moved = result.max(0) as u64;
        let writes = action == Action::Write;
        let offset = match place {
            Place::Current => self.descriptor.advance(self.fd, moved, writes),
            // Linux appends whatever the offset says.
            Place::At(_) if writes && self.descriptor.appends() => {
                self.descriptor.next_write(self.fd).saturating_sub(moved)
            }
            Place::At(offset) => offset,
        };
        let mut record = self.record(action, elapsed);
        record.offset = offset;
        record.len = asked as u64;
        record.result = outcome(result);
        self.report(&mut record);
    }

    /// Where bytes went that were appended, after the call.
    pub fn end(&self, result: isize) -> Place {
        let size = sys::status(self.fd).map_or(0, |stat| stat.st_size as u64);
        Place::At(size.saturating_sub(result.max(0) as u64))
    }

    /// Bytes were moved, up to here; nothing is said if there were none.
    pub fn placed(&self, action: Action, end: u64, len: usize) {
        self.placed_with(action, end, len, 0);
    }

    /// The same, with flags for the record.
    pub fn placed_with(&self, action: Action, end: u64, len: usize, flags: u8) {
        if len > 0 {
            let mut record = self.record(action, self.start.elapsed());
            record.flags |= flags;
            record.offset = end.saturating_sub(len as u64);
            record.len = len as u64;
            record.result = len as i64;
            self.report(&mut record);
        }
    }

    /// Bytes will be moved by another thread.
    pub fn submitted(&self, action: Action, offset: u64, len: usize) {
        let mut record = self.record(action, self.start.elapsed());
        record.flags |= Record::ASYNC;
        record.offset = offset;
        record.len = len as u64;
        record.result = len as i64;
        self.report(&mut record);
    }

    /// Something else was done to the file.
    pub fn done(&self, action: Action, offset: u64, len: u64, result: isize) {
        let mut record = self.record(action, self.start.elapsed());
        record.offset = offset;
        record.len = len;
        record.result = outcome(result).min(0);
        self.report(&mut record);
    }

    /// Writes a record; and does what the manager noted about the file, whose next operation it is for.
    #[inline(always)]
    fn report(&self, record: &mut Record) {
        report(&self.caller, record);
        if let Some(client) = life::client() {
            self.descriptor.heed(client, self.fd);
        }
    }

    fn record(&self, action: Action, elapsed: u64) -> Record {
        record(self.descriptor.slot(), action, self.start, elapsed)
    }
}

/// A moment before a call that may turn out to be about a followed file: opening or closing.
pub struct Moment {
    caller: Entry,
    /// Nobody wants to know the time where nothing is watched.
    start: Option<Stamp>,
}

impl Moment {
    /// Now.
    #[inline(always)]
    pub fn now() -> Moment {
        Moment {
            caller: thread::current().entry(),
            start: life::is_on().then(now),
        }
    }

    /// Something happened to this file since.
    pub fn report(&self, slot: FileSlot, change: impl FnOnce(&mut Record), action: Action) {
        let start = self.start.unwrap_or_else(now);
        let mut record = record(slot, action, start, start.elapsed());
        change(&mut record);
        report(&self.caller, &mut record);
    }

    /// The file was closed; nothing more will be said about it.
    pub fn closed(&self, slot: FileSlot) {
        self.report(slot, |_| (), Action::Close);
        if let Some(client) = life::client() {
            client.close_file(slot);
        }
    }
}

/// The time, on the clock that the manager understands best: the one that it wanted when the last record was written.
#[inline(always)]
fn now() -> Stamp {
    Stamp::now(HOT.ticks.load(Relaxed))
}

#[inline(always)]
fn record(slot: FileSlot, action: Action, start: Stamp, elapsed: u64) -> Record {
    let mut record = Record {
        file: slot.index,
        generation: slot.generation,
        ..Record::new(Kind::Operation(action))
    };
    start.note(&mut record, elapsed);
    record
}

/// The bytes moved, or the negated error number.
#[inline(always)]
fn outcome(result: isize) -> i64 {
    if result < 0 {
        -i64::from(life::errno())
    } else {
        result as i64
    }
}

/// Writes a record, with the name of the call stack, into this thread's ring.
#[inline(never)]
fn report(caller: &Entry, record: &mut Record) {
    let thread = thread::current();
    let Some(client) = life::client() else {
        return;
    };
    let incarnation = life::incarnation();
    let reported = thread.with_own(|own| {
        if thread.incarnation.load(Relaxed) != incarnation {
            own.begin_anew();
            thread.incarnation.store(incarnation, Relaxed);
        }
        if !own.writer.is_open() && !open(client, own) {
            return client.count(Counter::LostOperations, 1);
        }
        record.context = context::name(client, own, caller);
        own.writer.push(client, record);
    });
    life::mind_clock(client);
    if reported.is_none() {
        client.count(Counter::Interrupted, 1);
    }
}

#[cold]
fn open(client: &Client, own: &mut Own) -> bool {
    let open = own.writer.open(client);
    if open {
        thread::watch_exit();
    }
    open
}
