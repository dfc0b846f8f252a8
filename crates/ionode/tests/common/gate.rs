//! Storages that can be made to wait, or to panic: a plain directory behind a gate, and one whose files are never cached.

use super::wait_until;
use presagio_core::Range;
use presagio_storage::{Access, Bytes, Directory, Durable, Now, Pieces, Size, Storage};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What holds operations up while it is shut.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    reads_wait: bool,
    writes_wait: bool,
    sizes_wait: bool,
    /// Whether files that are opened now are not to wait for their size.
    spares_new: bool,
    panics: bool,
    waiting: usize,
    batches: Vec<usize>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads wait from now on.
    pub fn shut_reads(&self) {
        self.state().reads_wait = true;
    }

    /// Writes wait from now on.
    pub fn shut_writes(&self) {
        self.state().writes_wait = true;
    }

    /// Asking for the size of a file waits from now on, if that was opened since.
    pub fn shut_sizes(&self) {
        self.state().sizes_wait = true;
    }

    /// Files that are opened from now on are as any other; those that wait do so still.
    pub fn spare_new_files(&self) {
        self.state().spares_new = true;
    }

    /// Everything panics from now on, as a node with a fault would.
    pub fn break_down(&self) {
        self.state().panics = true;
    }

    /// Nothing waits any more, and nothing panics.
    pub fn open(&self) {
        let mut state = self.state();
        (state.reads_wait, state.writes_wait) = (false, false);
        state.sizes_wait = false;
        state.panics = false;
        self.opened.notify_all();
    }

    /// Waits until so many operations wait.
    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        wait_until("operations wait at the gate", || {
            self.state().waiting >= count
        });
    }

    /// How many buffers each vectored call had that did something.
    pub fn batches(&self) -> Vec<usize> {
        self.state().batches.clone()
    }

    fn stand(&self) {
        let panics = self.state().panics;
        assert!(!panics, "as the test wants it");
    }

    fn pass(&self, is_shut: fn(&State) -> bool, buffers: usize) {
        self.stand();
        let mut state = self.state();
        state.batches.push(buffers);
        state.waiting += 1;
        while is_shut(&state) {
            state = self
                .opened
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }
}

/// A directory behind a gate.
pub struct Gated(pub Arc<Gate>);

impl Storage for Gated {
    fn servers(&self) -> u32 {
        1
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        let bytes = Directory.open(opened, access)?;
        let gate = self.0.clone();
        let size_waits = gate.state().sizes_wait && !gate.state().spares_new;
        Ok(Arc::new(GatedBytes {
            bytes,
            gate,
            size_waits,
        }))
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        Directory.created(opened)
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        Directory.size(name)
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        Directory.removed(name)
    }
}

struct GatedBytes {
    bytes: Arc<dyn Bytes>,
    gate: Arc<Gate>,
    size_waits: bool,
}

impl Bytes for GatedBytes {
    fn pieces(&self, range: Range) -> Pieces {
        self.bytes.pieces(range)
    }

    fn read_now(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        self.gate.stand();
        if self.gate.state().reads_wait {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let buffers = to.len();
        let now = self.bytes.read_now(object, offset, to)?;
        self.gate.state().batches.push(buffers);
        Ok(now)
    }

    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.gate.pass(|state| state.reads_wait, to.len());
        self.bytes.read(object, offset, to)
    }

    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.gate.pass(|state| state.writes_wait, from.len());
        self.bytes.write(object, offset, from)
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        self.gate.pass(|state| state.writes_wait, 1);
        self.bytes.append(from)
    }

    fn size(&self) -> io::Result<Option<Size>> {
        if self.size_waits {
            self.gate.pass(|state| state.sizes_wait, 0);
        }
        self.bytes.size()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.bytes.set_len(bytes)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        self.gate.stand();
        self.bytes.sync(how)
    }

    /// None: rings would go past the gate.
    fn descriptor(&self, _: u16) -> Option<BorrowedFd<'_>> {
        None
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.bytes.name()
    }
}

/// A directory of which nothing is in memory: every read has to wait, for a ring or a thread.
pub struct Cold;

impl Storage for Cold {
    fn servers(&self) -> u32 {
        1
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        Ok(Arc::new(ColdBytes(Directory.open(opened, access)?)))
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        Directory.created(opened)
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        Directory.size(name)
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        Directory.removed(name)
    }
}

struct ColdBytes(Arc<dyn Bytes>);

impl Bytes for ColdBytes {
    fn pieces(&self, range: Range) -> Pieces {
        self.0.pieces(range)
    }

    fn read_now(&self, _: u16, _: u64, _: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read(object, offset, to)
    }

    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(object, offset, from)
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        self.0.append(from)
    }

    fn size(&self) -> io::Result<Option<Size>> {
        self.0.size()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        self.0.sync(how)
    }

    fn descriptor(&self, object: u16) -> Option<BorrowedFd<'_>> {
        self.0.descriptor(object)
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.0.name()
    }
}
