//! Who sees the programs of a command end. A program that is killed cannot give its locks back, and a node that only sees
//! its connection break keeps them for a while, since it may come back. Whoever started it knows better, and says so.
//!
//! A program asks for this before its first lock. One thread waits for all of them; the nodes are told one after
//! the other, and each for a short time only: if one cannot be told, the locks end there after their while.

use super::Forwarded;
use crate::options::{Dial, Instance, LastResort, Options};
use crate::remote::Remote;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long telling one node may take.
const PATIENCE: Duration = Duration::from_secs(2);

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

/// Tells all nodes of an export, and what is there in their place: a client may have been at any of them.
fn tell(options: &Options, instances: &[Instance]) {
    let resort = options.last_resort.as_ref();
    let mut told: Vec<io::Result<()>> = (0..options.nodes.len())
        .map(|node| tell_node(options.clone(), node, instances))
        .collect();
    told.extend(resort.map(|resort| tell_resort(options.clone(), resort, instances)));
    for error in told.into_iter().filter_map(Result::err) {
        tracing::debug!(%error, "a node cannot be told that a program has ended");
    }
}

fn tell_node(mut options: Options, node: usize, instances: &[Instance]) -> io::Result<()> {
    if let Some(dial) = options.dial.take() {
        options.dial = Some(Dial(Arc::new(move |_, left| (dial.0)(node, left))));
    }
    options.nodes = vec![options.nodes.swap_remove(node)];
    tell_one(options, instances)
}

/// It is not begun for that.
fn tell_resort(
    mut options: Options,
    resort: &LastResort,
    instances: &[Instance],
) -> io::Result<()> {
    let Some(socket) = resort.0.clone().visit()? else {
        return Ok(());
    };
    let once = Mutex::new(Some(socket));
    let dial = move |_, _| {
        let mut once = once.lock().unwrap_or_else(PoisonError::into_inner);
        once.take().ok_or_else(|| Errno::CONNREFUSED.into())
    };
    options.dial = Some(Dial(Arc::new(dial)));
    options.nodes.truncate(1);
    tell_one(options, instances)
}

/// One that does not answer is not asked again for the others.
fn tell_one(mut options: Options, instances: &[Instance]) -> io::Result<()> {
    (options.patience, options.threads) = (Duration::ZERO, false);
    // That this node is gone does not mean that all are.
    options.last_resort = None;
    options.connect_timeout = options.connect_timeout.min(PATIENCE);
    options.timeout = options.connect_timeout;
    let remote = Remote::new(options)?;
    for instance in instances {
        let told = remote.died(geteuid().as_raw(), *instance);
        told.map_err(|errno| io::Error::from_raw_os_error(errno.0 as i32))?;
    }
    Ok(())
}
