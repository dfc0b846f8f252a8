//! Who sees the programs of a command end. A program that is killed cannot give its locks back, and a node that only sees
//! its connection break keeps them for a while, since it may come back. Whoever started it knows better, and says so.
//!
//! A program asks for this before its first lock. One thread waits for all of them; the nodes are told at the
//! same time, and for a short time only: if one cannot be told, the locks end there after their while.

use super::Forwarded;
use crate::options::{Instance, Options};
use crate::remote::Remote;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A process that has locks.
#[derive(Debug)]
struct Watched {
    /// Readable when it has ended.
    process: OwnedFd,
    export: usize,
    instance: Instance,
}

/// The watch.
#[derive(Debug)]
pub(super) struct Watch {
    all: Mutex<Vec<Arc<Watched>>>,
    /// Wakes who waits: there is one more, or it is over.
    bell: OwnedFd,
    over: AtomicBool,
}

impl Watch {
    pub(super) fn new() -> io::Result<Watch> {
        Ok(Watch {
            all: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            over: AtomicBool::new(false),
        })
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process is there: it waits for the answer to this.
    pub(super) fn add(&self, pid: Pid, export: usize, instance: Instance) -> io::Result<()> {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        self.all().push(Arc::new(Watched {
            process,
            export,
            instance,
        }));
        self.ring();
        Ok(())
    }

    /// No more; of those who have ended by now the nodes are still told.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn ring(&self) {
        // If it is full, it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Tells the nodes of each process that ends, until it is over.
    pub(super) fn attend(&self, exports: &[Forwarded]) {
        loop {
            let is_over = self.over.load(Ordering::SeqCst);
            let ended = self.wait(is_over);
            for (number, export) in exports.iter().enumerate() {
                let of_it = ended.iter().filter(|one| one.export == number);
                let instances: Vec<Instance> = of_it.map(|one| one.instance).collect();
                if !instances.is_empty() {
                    tell(&export.options, &instances);
                }
            }
            if is_over {
                return;
            }
        }
    }

    /// Those who have ended; waits for one, or for the bell, unless only a look is wanted.
    fn wait(&self, only_look: bool) -> Vec<Arc<Watched>> {
        let all = self.all().clone();
        let processes = all.iter().map(|one| &one.process);
        let mut waits: Vec<PollFd<'_>> = processes
            .chain([&self.bell])
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let now = rustix::event::Timespec::default();
        // It fails only by being interrupted.
        let _ = poll(&mut waits, only_look.then_some(&now));
        let ended: Vec<bool> = waits.iter().map(|one| !one.revents().is_empty()).collect();
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        let ended: Vec<_> = std::iter::zip(all, ended)
            .filter_map(|(one, ended)| ended.then_some(one))
            .collect();
        self.all()
            .retain(|one| !ended.iter().any(|other| Arc::ptr_eq(one, other)));
        ended
    }
}

fn tell(options: &Options, instances: &[Instance]) {
    match Remote::new(options.clone()) {
        Ok(remote) => remote.died(geteuid().as_raw(), instances),
        Err(error) => tracing::debug!(%error, "no node can be told that a program has ended"),
    }
}
