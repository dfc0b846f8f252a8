//! What a client that was lost had still asked for is not done any more.
//!
//! A client that gives a connection up repeats on another one, here or at another node, what was not answered, and goes on
//! from there. What is left of the old one, in a socket or in our queues, because this node had stalled, must not be
//! done after that: it would put old bytes over new ones. So before anything that changes something is done, it is
//! asked
//!
//! * whether the client has come again on this node since: its hello and attach end all earlier sessions
//!   of its instance, and wait for what they are just doing;
//! * whether the other end of the connection is still there: a client shuts a connection down before it goes
//!   elsewhere, and the kernel knows that also of a process that was stopped meanwhile.
//!
//! What the file system has been given already cannot be taken back: if that hangs, and the client goes elsewhere, it is
//! done when the file system goes on.
//!
//! All of this is for clients that say who they are (Thello). Others never repeat anything.

use crate::once::Instance;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// For so long it is believed that the other end is still there.
const BELIEVED: Duration = Duration::from_millis(1);

/// How long what a session is just doing may take when the session ends, or its client has come again.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Stands before what a session does.
pub struct Fence {
    socket: Weak<OwnedFd>,
    over: AtomicBool,
    /// Operations under way.
    inside: AtomicUsize,
    /// When the other end was last known to be there, in nanoseconds from `start`.
    seen: AtomicU64,
    start: Instant,
}

/// Something is being done. It is over with the value.
pub struct Inside(Arc<Fence>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Fence {
    /// Of a session on `socket`.
    pub fn new(socket: &Arc<OwnedFd>) -> Fence {
        Fence {
            socket: Arc::downgrade(socket),
            over: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
            seen: AtomicU64::new(0),
            start: Instant::now(),
        }
    }

    /// Something is to be done; `None` if it must not be done any more.
    pub fn enter(self: &Arc<Fence>) -> Option<Inside> {
        self.enter_if(Fence::was_there)
    }

    /// The same of what must not be done twice: nothing is believed of what was seen before.
    pub fn enter_now(self: &Arc<Fence>) -> Option<Inside> {
        self.enter_if(Fence::is_there)
    }

    fn enter_if(self: &Arc<Fence>, may: fn(&Fence) -> bool) -> Option<Inside> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self.clone());
        (!self.over.load(Ordering::SeqCst) && may(self)).then_some(inside)
    }

    /// Whether the other end has not hung up, or had not just before.
    fn was_there(&self) -> bool {
        let now = self.start.elapsed().as_nanos() as u64;
        let seen = self.seen.load(Ordering::Relaxed);
        let is_believed = seen > 0 && now.saturating_sub(seen) < BELIEVED.as_nanos() as u64;
        is_believed || self.is_there()
    }

    /// Whether it has not hung up.
    fn is_there(&self) -> bool {
        let now = self.start.elapsed().as_nanos() as u64;
        let is_there = self.socket.upgrade().is_some_and(|it| !has_hung_up(&it));
        match is_there {
            true => self.seen.store(now, Ordering::Relaxed),
            false => self.over.store(true, Ordering::SeqCst),
        }
        is_there
    }

    /// Nothing more is done; what is just being done has some time to end.
    pub fn end(&self, until: Instant) {
        self.over.store(true, Ordering::SeqCst);
        while self.inside.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut look = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = rustix::time::Timespec::default();
    // It fails only by being interrupted.
    poll(&mut look, Some(&now)).is_ok_and(|count| count > 0)
}

/// The sessions of all instances.
#[derive(Default)]
pub struct Fences(Mutex<Sessions>);

/// By instance; of each session the user.
type Sessions = HashMap<Instance, Vec<(u32, Weak<Fence>)>>;

impl Fences {
    /// User `uid` came as `instance`: earlier sessions of it are over.
    pub fn came(&self, instance: Instance, uid: u32, fence: &Arc<Fence>) {
        let mut all = self.all();
        let of_it = all.entry(instance).or_default();
        let earlier: Vec<_> = of_it.extract_if(.., |(whose, _)| *whose == uid).collect();
        of_it.push((uid, Arc::downgrade(fence)));
        drop(all);
        let until = Instant::now() + PATIENCE;
        let earlier: Vec<_> = earlier.iter().filter_map(|(_, it)| it.upgrade()).collect();
        // All at once, then the waiting.
        earlier
            .iter()
            .for_each(|fence| fence.over.store(true, Ordering::SeqCst));
        earlier.iter().for_each(|fence| fence.end(until));
    }

    /// Whether anybody has a session as `instance`.
    pub fn knows(&self, instance: Instance) -> bool {
        self.all().contains_key(&instance)
    }

    /// Whether no client is here that may come back.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// A session of `instance` has ended.
    pub fn left(&self, instance: Instance, fence: &Arc<Fence>) {
        let mut all = self.all();
        if let Some(of_it) = all.get_mut(&instance) {
            let other = |it: &Weak<Fence>| it.as_ptr() != Arc::as_ptr(fence);
            of_it.retain(|(_, it)| it.strong_count() > 0 && other(it));
            if of_it.is_empty() {
                all.remove(&instance);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Sessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn connection() -> (Arc<OwnedFd>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(ours.into()), theirs)
    }

    #[test]
    fn nothing_is_done_for_those_who_have_hung_up() {
        let (ours, theirs) = connection();
        let fence = Arc::new(Fence::new(&ours));
        assert!(fence.enter().is_some());
        theirs.shutdown(std::net::Shutdown::Both).unwrap();
        std::thread::sleep(2 * BELIEVED);
        assert!(fence.enter().is_none());
        drop(theirs);
        let (ours, theirs) = connection();
        let fence = Arc::new(Fence::new(&ours));
        assert!(fence.enter().is_some());
        theirs.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(fence.enter_now().is_none(), "whatever was seen just before");
        let (ours, _theirs) = connection();
        let fence = Arc::new(Fence::new(&ours));
        drop(ours);
        assert!(fence.enter().is_none(), "the connection was left");
    }

    #[test]
    fn who_comes_again_waits_for_what_it_was_just_doing() {
        let (ours, _theirs) = connection();
        let (first, second) = (Arc::new(Fence::new(&ours)), Arc::new(Fence::new(&ours)));
        let fences = Fences::default();
        fences.came([1; 16], 7, &first);
        let inside = first.enter().unwrap();
        std::thread::scope(|scope| {
            let came = scope.spawn(|| fences.came([1; 16], 7, &second));
            while !first.over.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(first.enter().is_none() && !came.is_finished());
            drop(inside);
        });
        assert!(second.enter().is_some());
        assert!(fences.knows([1; 16]) && !fences.knows([2; 16]));
        // The number of an instance is no secret of its user's.
        fences.came([1; 16], 8, &first);
        assert!(second.enter().is_some());
        fences.left([1; 16], &second);
        fences.left([1; 16], &first);
        assert!(fences.is_empty());
    }
}
