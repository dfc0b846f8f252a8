//! A storage that can be made to wait, or to panic: a plain directory behind a gate.

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

    /// Everything panics from now on, as a node with a fault would.
    pub fn break_down(&self) {
        self.state().panics = true;
    }

    /// Nothing waits any more, and nothing panics.
    pub fn open(&self) {
        let mut state = self.state();
        (state.reads_wait, state.writes_wait) = (false, false);
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

    /// How many buffers each vectored call had.
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
        Ok(Arc::new(GatedBytes { bytes, gate }))
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
}

impl Bytes for GatedBytes {
    fn pieces(&self, range: Range) -> Pieces {
        self.bytes.pieces(range)
    }

    fn read_now(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        self.gate.stand();
        match self.gate.state().reads_wait {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.bytes.read_now(object, offset, to),
        }
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
