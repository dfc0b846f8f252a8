//! Serves the workload under one policy: clients, the engine, workers, the device.
//!
//! A request carries no buffer, only the number of its client. The client's buffer lies in its [`Seat`]; the
//! client leaves it alone from submit to completion, so a worker that has the request can lock it at once.

use super::auto::Auto;
use super::scratch::{Buffer, Scratch, advice, is_version, write_version};
use super::{Policy, Workload};
use crate::failure::failure;
use presagio_core::{FileId, Op, Range, Request, RequestId};
use presagio_engine::{Engine, EngineConfig};
use presagio_sched::{Batch, PolicyKind, Settings};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What came of one policy.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub took: Duration,
    pub requests: u64,
    /// System calls to the device.
    pub operations: u64,
}

/// Has every client ask for all its blocks under `policy`, which `auto` chooses where it is given, and verifies every byte.
pub fn serve(
    policy: Policy,
    auto: Option<&Auto>,
    workload: &Workload,
    scratch: &mut Scratch,
) -> anyhow::Result<Served> {
    let explain = |cause: io::Error| {
        let advice = advice(&cause);
        failure(format!("{policy} could not be tried"), cause, advice)
    };
    if workload.op == Op::Write {
        scratch.expect_next_version();
    }
    scratch.drop_cache().map_err(explain)?;
    let engine = start_engine(policy, auto)?;
    let room = Room::new(workload, scratch);
    let start = Instant::now();
    let outcome = room.run(&engine, workload, auto);
    let took = outcome.and_then(|()| {
        if workload.op == Op::Write {
            scratch.sync()
        } else {
            Ok(())
        }
    });
    let took = took.map(|()| start.elapsed()).map_err(explain)?;
    if workload.op == Op::Write {
        verify_written(policy, scratch).map_err(explain)?;
    }
    Ok(Served {
        took,
        requests: workload.blocks,
        operations: room.operations.load(Relaxed),
    })
}

/// An engine whose batches are taken by workers: what no worker has taken yet waits in the scheduler, where it
/// can still be aggregated.
fn start_engine(policy: Policy, auto: Option<&Auto>) -> anyhow::Result<Engine> {
    let begin = match (policy, auto) {
        (Policy::Given(policy), _) => policy,
        // The command line offers no other.
        (Policy::Auto | Policy::Adaptive, auto) => auto.map_or(PolicyKind::ToAgg, Auto::policy),
    };
    let engine = Engine::start_pull(EngineConfig::new(Settings::new(begin)))?;
    if let Some(auto) = auto {
        auto.watch(&engine);
    }
    Ok(engine)
}

fn verify_written(policy: Policy, scratch: &Scratch) -> io::Result<()> {
    scratch.drop_cache()?;
    match scratch.first_wrong()? {
        None => Ok(()),
        Some(offset) => Err(io::Error::other(format!(
            "wrong bytes at {offset} after writing with {policy}"
        ))),
    }
}

type Client<'scope> = ScopedJoinHandle<'scope, io::Result<()>>;

/// Where clients and workers meet.
struct Room<'a> {
    file: &'a File,
    version: u64,
    seats: Vec<Seat>,
    operations: AtomicU64,
}

/// A client's place: its buffer, and word of its request.
struct Seat {
    state: Mutex<State>,
    told: Condvar,
}

struct State {
    buffer: Buffer,
    /// The outcome of the client's request, once there is one.
    outcome: Option<io::Result<()>>,
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while holding it has ended the whole run already.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn wait(&self) -> (MutexGuard<'_, State>, io::Result<()>) {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return (state, outcome);
            }
            state = self
                .told
                .wait(state)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

impl<'a> Room<'a> {
    fn new(workload: &Workload, scratch: &'a Scratch) -> Room<'a> {
        let seat = |_| Seat {
            state: Mutex::new(State {
                buffer: Buffer::new(workload.request as usize),
                outcome: None,
            }),
            told: Condvar::new(),
        };
        let seats = (0..workload.clients).map(seat).collect();
        Room {
            file: scratch.file(),
            version: scratch.version(),
            seats,
            operations: AtomicU64::new(0),
        }
    }

    /// Runs clients and workers to the end; the first error is the result.
    fn run(&self, engine: &Engine, workload: &Workload, auto: Option<&Auto>) -> io::Result<()> {
        std::thread::scope(|scope| {
            let decide = |auto: &'_ Auto| auto.run(engine);
            let deciding =
                auto.map(|auto| Builder::new().spawn_scoped(scope, move || decide(auto)));
            let started = match deciding {
                Some(Err(error)) => Err(error),
                _ => self.start(scope, engine, workload),
            };
            let join = |client: Client<'_>| {
                client
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
            };
            let outcome =
                started.map(|clients| clients.into_iter().map(join).fold(Ok(()), Result::and));
            self.close(engine);
            auto.inspect(|auto| auto.end());
            outcome?
        })
    }

    /// Starts all threads. Where one cannot be started, the caller closes the engine and the others come to an end.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        engine: &'scope Engine,
        workload: &'scope Workload,
    ) -> io::Result<Vec<Client<'scope>>> {
        let worker = |_| {
            Builder::new()
                .spawn_scoped(scope, || self.work(engine))
                .map(drop)
        };
        let client = |client| {
            Builder::new().spawn_scoped(scope, move || self.ask_for_all(client, engine, workload))
        };
        (0..workload.workers).try_for_each(worker)?;
        (0..workload.clients).map(client).collect()
    }

    /// Sends workers home, and clients whose requests nobody has taken.
    fn close(&self, engine: &Engine) {
        for request in engine.shutdown() {
            self.tell(
                request.id,
                &Err(io::Error::other("the comparison was broken off")),
            );
        }
    }

    /// A client: one request at a time, each checked before the next.
    fn ask_for_all(&self, client: u64, engine: &Engine, workload: &Workload) -> io::Result<()> {
        for block in workload.blocks_of(client) {
            let range = Range::at(block * workload.request, workload.request);
            let request = Request::new(RequestId(client), FileId(1), workload.op, range);
            let seat = &self.seats[client as usize];
            if workload.op == Op::Write {
                write_version(seat.lock().buffer.bytes_mut(), range.start(), self.version);
            }
            engine.submit(request).map_err(io::Error::other)?;
            let (state, outcome) = seat.wait();
            outcome?;
            if workload.op == Op::Read
                && !is_version(state.buffer.bytes(), range.start(), self.version)
            {
                return Err(io::Error::other(format!(
                    "wrong bytes were read at {}",
                    range.start()
                )));
            }
        }
        Ok(())
    }

    /// A worker: serves batches until the engine closes.
    fn work(&self, engine: &Engine) {
        while let Some(batch) = engine.take(None) {
            let outcome = self.serve_batch(&batch);
            for part in batch.parts() {
                engine.finish(part.ticket);
                self.tell(part.request.id, &outcome);
            }
        }
    }

    fn tell(&self, client: RequestId, outcome: &io::Result<()>) {
        let seat = &self.seats[client.0 as usize];
        // An error is told to every client of the batch, but can only be handed to one: the others get a copy.
        let copy = outcome
            .as_ref()
            .copied()
            .map_err(|error| io::Error::new(error.kind(), error.to_string()));
        seat.lock().outcome = Some(copy);
        seat.told.notify_one();
    }

    /// One vectored call for all parts, straight between the device and the clients' buffers.
    fn serve_batch(&self, batch: &Batch) -> io::Result<()> {
        let parts = batch.parts().iter();
        let mut states: Vec<_> = parts
            .map(|part| self.seats[part.request.id.0 as usize].lock())
            .collect();
        let offset = batch.range().start();
        match batch.op() {
            Op::Read => {
                let mut slices: Vec<_> = states
                    .iter_mut()
                    .map(|state| IoSliceMut::new(state.buffer.bytes_mut()))
                    .collect();
                self.read_all(&mut slices, offset)
            }
            Op::Write => {
                let mut slices: Vec<_> = states
                    .iter()
                    .map(|state| IoSlice::new(state.buffer.bytes()))
                    .collect();
                self.write_all(&mut slices, offset)
            }
        }
    }

    /// Usually one call; the kernel may serve less than was asked for, then another for the rest.
    fn read_all(&self, mut slices: &mut [IoSliceMut<'_>], mut offset: u64) -> io::Result<()> {
        while !slices.is_empty() {
            self.operations.fetch_add(1, Relaxed);
            let read = retry(|| rustix::io::preadv(self.file, slices, offset))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            IoSliceMut::advance_slices(&mut slices, read);
            offset += read as u64;
        }
        Ok(())
    }

    /// Like `read_all`.
    fn write_all(&self, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        while !slices.is_empty() {
            self.operations.fetch_add(1, Relaxed);
            let written = retry(|| rustix::io::pwritev(self.file, slices, offset))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut slices, written);
            offset += written as u64;
        }
        Ok(())
    }
}

/// A signal is no reason to fail.
fn retry(call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(call)?)
}
