//! A slow disk, anywhere: bytes go to another storage, but no call returns before an emulated device would be done.
//!
//! There is a [`Device`] for each data server, with a timeline of its own. A call notes when it came, has the storage
//! below do the real work, asks the device when *it* would be done with a request that came at that time, and sleeps until
//! then. The timeline is made of the moments that devices say, never of those at which a thread woke up: a sleep that
//! takes too long delays its caller, and nobody who waits in line.
//!
//! On its device a file lies in one piece. It gets its place when it is first touched: as many bytes as it has
//! then, rounded up to [`APART`], behind the file that came before. One that outgrows its place shares addresses with the
//! next, which only matters to the distance of a seek.
//!
//! *Invariants.* Nothing is served from a cache: [`Bytes::read_now`] always says that it would have to wait. What the
//! storage below refuses takes no time. Names cost nothing: only reads, writes, appends and syncs take device time.

use crate::{Access, Bytes, Durable, Now, Pieces, Size, Storage};
use presagio_core::{IdHashMap, Nanos, Op, Range};
use presagio_device::Device;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Files lie at least so far from each other on a device.
pub const APART: u64 = 64 << 20;

/// The last part of a wait is not slept: the system wakes us too late by about that much.
const AWAKE: Duration = Duration::from_micros(120);

/// A storage whose data servers take as long as emulated devices.
pub struct Emulated {
    inner: Arc<dyn Storage>,
    servers: Arc<Servers>,
}

impl Emulated {
    /// Puts a device in front of each data server of `inner`.
    pub fn new(inner: Arc<dyn Storage>, device: impl FnMut(u32) -> Box<dyn Device>) -> Emulated {
        let lanes = (0..inner.servers()).map(device).map(Lane::new).collect();
        let origin = Instant::now();
        let servers = Arc::new(Servers { lanes, origin });
        Emulated { inner, servers }
    }

    /// What has reached each device so far.
    pub fn counters(&self) -> Vec<Counters> {
        self.servers.lanes.iter().map(Lane::counters).collect()
    }
}

/// What has reached a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Operations that read.
    pub reads: u64,
    /// Bytes they read.
    pub read_bytes: u64,
    /// Operations that wrote.
    pub writes: u64,
    /// Bytes they wrote.
    pub written_bytes: u64,
}

impl Storage for Emulated {
    fn is_private(&self) -> bool {
        self.inner.is_private()
    }

    fn servers(&self) -> u32 {
        self.inner.servers()
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        let file = identity(&opened)?;
        let inner = self.inner.open(opened, access)?;
        let servers = Arc::clone(&self.servers);
        Ok(Arc::new(Slow {
            inner,
            servers,
            file,
        }))
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        self.servers.forget(identity(opened)?);
        self.inner.created(opened)
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        self.inner.size(name)
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        self.servers.forget(identity(name)?);
        self.inner.removed(name)
    }
}

/// Device and inode of a file of the namespace.
type Identity = (u64, u64);

fn identity(file: impl std::os::fd::AsFd) -> io::Result<Identity> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

struct Servers {
    lanes: Vec<Lane>,
    /// Where the time of all devices begins.
    origin: Instant,
}

impl Servers {
    fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    /// A place that was given away is not given again.
    fn forget(&self, file: Identity) {
        for lane in &self.lanes {
            lane.timeline().places.remove(&file);
        }
    }

    fn wait_until(&self, done: Nanos) {
        loop {
            let left = Duration::from(done - self.now());
            if left.is_zero() {
                return;
            }
            match left.checked_sub(AWAKE) {
                Some(asleep) if !asleep.is_zero() => std::thread::sleep(asleep),
                _ => std::thread::yield_now(),
            }
        }
    }
}

/// A device, and what came to it.
struct Lane {
    timeline: Mutex<Timeline>,
    operations: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
}

struct Timeline {
    device: Box<dyn Device>,
    places: IdHashMap<Identity, u64>,
    /// The first address that no file has.
    vacant: u64,
}

impl Lane {
    fn new(device: Box<dyn Device>) -> Lane {
        let timeline = Timeline {
            device,
            places: IdHashMap::default(),
            vacant: 0,
        };
        Lane {
            timeline: Mutex::new(timeline),
            operations: Default::default(),
            bytes: Default::default(),
        }
    }

    fn timeline(&self) -> MutexGuard<'_, Timeline> {
        // A timeline is whole between any two of its steps.
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, op: Op, bytes: u64) {
        self.operations[op.index()].fetch_add(1, Ordering::Relaxed);
        self.bytes[op.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    fn counters(&self) -> Counters {
        let of = |counts: &[AtomicU64; 2], op: Op| counts[op.index()].load(Ordering::Relaxed);
        Counters {
            reads: of(&self.operations, Op::Read),
            read_bytes: of(&self.bytes, Op::Read),
            writes: of(&self.operations, Op::Write),
            written_bytes: of(&self.bytes, Op::Write),
        }
    }
}

impl Timeline {
    fn place(&mut self, file: Identity, size: impl FnOnce() -> u64) -> u64 {
        if let Some(place) = self.places.get(&file) {
            return *place;
        }
        let place = self.vacant;
        let room = size().max(1).div_ceil(APART).saturating_mul(APART);
        self.vacant = self.vacant.saturating_add(room);
        self.places.insert(file, place);
        place
    }
}

/// An open file of a storage with devices.
struct Slow {
    inner: Arc<dyn Bytes>,
    servers: Arc<Servers>,
    file: Identity,
}

impl Slow {
    /// Lets the devices have what was done to these places, and waits for the last of them.
    fn pay(&self, op: Op, places: &Pieces, came: Nanos) {
        let done = places.iter().filter(|place| !place.range.is_empty());
        let done = done.map(|place| self.serve(op, place.queue.0, place.range, came));
        if let Some(done) = done.max() {
            self.servers.wait_until(done);
        }
    }

    fn serve(&self, op: Op, server: u32, range: Range, came: Nanos) -> Nanos {
        let lane = &self.servers.lanes[server as usize % self.servers.lanes.len()];
        lane.count(op, range.len());
        let mut timeline = lane.timeline();
        let place = timeline.place(self.file, || self.length());
        let at = Range::at(place.saturating_add(range.start()), range.len());
        timeline.device.serve(op, at, came)
    }

    /// How long the file is; 0 if that cannot be told.
    fn length(&self) -> u64 {
        match self.inner.size() {
            Ok(Some(size)) => size.bytes,
            _ => rustix::fs::fstat(self.inner.name())
                .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0)),
        }
    }

    /// Pays for what was done to an object.
    fn paid(&self, op: Op, object: u16, offset: u64, done: usize, came: Nanos) -> usize {
        let range = Range::at(offset, done as u64);
        self.pay(op, &self.inner.places(object, range), came);
        done
    }
}

impl Bytes for Slow {
    fn pieces(&self, range: Range) -> Pieces {
        self.inner.pieces(range)
    }

    fn places(&self, object: u16, range: Range) -> Pieces {
        self.inner.places(object, range)
    }

    fn read_now(&self, _: u16, _: u64, _: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let came = self.servers.now();
        let done = self.inner.read(object, offset, to)?;
        Ok(self.paid(Op::Read, object, offset, done, came))
    }

    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let came = self.servers.now();
        let done = self.inner.write(object, offset, from)?;
        Ok(self.paid(Op::Write, object, offset, done, came))
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        let came = self.servers.now();
        let done = self.inner.append(from)?;
        // Unless others append at the same time, it is what the file ends with; else it is near.
        let start = self.length().saturating_sub(done as u64);
        let pieces = self.inner.pieces(Range::at(start, done as u64));
        let places = pieces.iter();
        let places = places.flat_map(|piece| self.inner.places(piece.object, piece.range));
        self.pay(Op::Write, &places.collect(), came);
        Ok(done)
    }

    fn size(&self) -> io::Result<Option<Size>> {
        self.inner.size()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        let came = self.servers.now();
        self.inner.sync(how)?;
        let flushed = self.servers.lanes.iter();
        let flushed = flushed.map(|lane| lane.timeline().device.flush(came));
        self.servers.wait_until(flushed.max().unwrap_or(came));
        Ok(())
    }

    fn descriptor(&self, _: u16) -> Option<BorrowedFd<'_>> {
        None
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;
    use std::fs::File;
    use std::sync::mpsc::{Sender, channel};

    /// Tells what it was asked, and takes a millisecond for each, one after the other.
    struct Told {
        asked: Sender<(Op, Range, Nanos)>,
        free: Nanos,
    }

    impl Device for Told {
        fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
            self.free = now.max(self.free) + Nanos::from_millis(1);
            self.asked.send((op, at, self.free)).expect("a listener");
            self.free
        }

        fn flush(&mut self, now: Nanos) -> Nanos {
            now + Nanos::from_millis(1)
        }
    }

    fn told() -> (Emulated, std::sync::mpsc::Receiver<(Op, Range, Nanos)>) {
        let (asked, answers) = channel();
        let free = Nanos::ZERO;
        let device = move |_| -> Box<dyn Device> {
            let asked = asked.clone();
            Box::new(Told { asked, free })
        };
        (Emulated::new(Arc::new(Directory), device), answers)
    }

    fn open(storage: &Emulated, file: &File) -> Arc<dyn Bytes> {
        let (read, write) = (true, true);
        let opened = file.try_clone().expect("a descriptor").into();
        storage.open(opened, Access { read, write }).expect("open")
    }

    fn write(file: &dyn Bytes, offset: u64, bytes: &[u8]) {
        let wrote = file
            .write(0, offset, &[IoSlice::new(bytes)])
            .expect("write");
        assert_eq!(wrote, bytes.len());
    }

    #[test]
    fn no_call_returns_before_its_device_is_done() {
        let (storage, asked) = told();
        let file = open(&storage, &tempfile::tempfile().expect("a file"));
        for i in 0..5 {
            write(&*file, i * 10, b"0123456789");
            let (_, _, done) = asked.recv().expect("a request");
            assert!(storage.servers.now() >= done);
        }
    }

    #[test]
    fn requests_that_come_together_are_served_one_after_the_other() {
        let (storage, asked) = told();
        let file = open(&storage, &tempfile::tempfile().expect("a file"));
        let begin = storage.servers.now();
        std::thread::scope(|threads| {
            for i in 0..8 {
                let file = &file;
                threads.spawn(move || write(&**file, i, b"x"));
            }
        });
        let last = asked.try_iter().map(|(_, _, done)| done).max();
        let last = last.expect("requests");
        assert!(last >= begin + Nanos::from_millis(8));
        assert!(storage.servers.now() >= last);
    }

    #[test]
    fn bytes_are_really_there() {
        let (storage, _asked) = told();
        let plain = tempfile::tempfile().expect("a file");
        let file = open(&storage, &plain);
        write(&*file, 0, b"hello");
        assert_eq!(file.append(b" world").expect("append"), 6);
        let mut got = [0; 20];
        let read = file.read(0, 0, &mut [IoSliceMut::new(&mut got)]);
        assert_eq!(&got[..read.expect("read")], b"hello world");
        assert_eq!(plain.metadata().expect("a size").len(), 11);
        let at_once = file.read_now(0, 0, &mut [IoSliceMut::new(&mut got)]);
        assert_eq!(
            at_once.expect_err("no cache").kind(),
            io::ErrorKind::WouldBlock
        );
        assert!(file.descriptor(0).is_none());
    }

    #[test]
    fn a_file_keeps_its_place_and_others_lie_apart() {
        let (storage, asked) = told();
        let first = tempfile::tempfile().expect("a file");
        first.set_len(APART + 1).expect("a size");
        let second = tempfile::tempfile().expect("a file");
        for file in [&first, &second, &first] {
            write(&*open(&storage, file), 7, b"x");
        }
        let places: Vec<u64> = asked.try_iter().map(|(_, at, _)| at.start()).collect();
        assert_eq!(places, [7, 2 * APART + 7, 7]);
    }

    #[test]
    fn a_file_that_is_gone_gives_up_its_place() {
        use std::os::fd::AsFd;
        let (storage, asked) = told();
        let file = tempfile::tempfile().expect("a file");
        write(&*open(&storage, &file), 0, b"x");
        storage.removed(file.as_fd()).expect("removed");
        // Another with the same inode, as far as the storage can tell.
        write(&*open(&storage, &file), 0, b"x");
        let places: Vec<u64> = asked.try_iter().map(|(_, at, _)| at.start()).collect();
        assert_eq!(places, [0, APART]);
    }

    #[test]
    fn what_reaches_the_device_is_counted_and_what_is_not_there_takes_no_time() {
        let (storage, asked) = told();
        let file = open(&storage, &tempfile::tempfile().expect("a file"));
        write(&*file, 0, b"0123456789");
        let mut to = [0; 100];
        for offset in [4, 10, 50] {
            file.read(0, offset, &mut [IoSliceMut::new(&mut to)])
                .expect("read");
        }
        let counted = Counters {
            reads: 1,
            read_bytes: 6,
            writes: 1,
            written_bytes: 10,
        };
        assert_eq!(storage.counters(), [counted]);
        assert_eq!(asked.try_iter().count(), 2);
    }

    #[test]
    fn a_sync_waits_for_the_caches_of_devices() {
        let (storage, _asked) = told();
        let file = open(&storage, &tempfile::tempfile().expect("a file"));
        let begin = storage.servers.now();
        file.sync(Durable::Data).expect("sync");
        assert!(storage.servers.now() >= begin + Nanos::from_millis(1));
    }
}
