//! The one running session of the process, found without a lock.
//!
//! Every call of the C API needs it, from any thread, while another may be in `agios_exit`. Each thread
//! keeps a handle of the session it saw last, with the epoch in which it saw it: as long as the epoch is
//! the same, the handle is good, at the price of one load of a word that nobody writes. Starting and
//! stopping begin a new epoch. A thread that still holds an old session only keeps its memory.

use crate::fault::{Answer, Fault};
use crate::session::Session;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Changes at each start and stop.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Whether this is a child of the process that started.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The session of the epoch. Held while one starts, so that two cannot.
static RUNNING: Mutex<Option<Arc<Session>>> = Mutex::new(None);

thread_local! {
    static SEEN: RefCell<(u64, Option<Arc<Session>>)> = const { RefCell::new((0, None)) };
}

/// Makes what `create` returns the running session, unless there is one.
pub fn start(create: impl FnOnce() -> Answer<Session>) -> Answer<()> {
    let mut running = running()?;
    if running.is_some() {
        return Err(Fault::Running.into());
    }
    *running = Some(Arc::new(create()?));
    EPOCH.fetch_add(1, Ordering::Release);
    Ok(())
}

/// Calls `end` with the running session, which is then no longer the running one. Until `end` returns it
/// still is, since a callback that is at work may have something to release.
pub fn stop(end: impl FnOnce(&Session)) -> Answer<()> {
    let session = running()?.clone().ok_or(Fault::NotRunning)?;
    end(&session);
    let mut running = running()?;
    // Another thread may have stopped the same one, and started the next.
    if running.as_ref().is_some_and(|r| Arc::ptr_eq(r, &session)) {
        *running = None;
        EPOCH.fetch_add(1, Ordering::Release);
    }
    Ok(())
}

/// This process is a child of the one that started: what the parent's threads held, locks included, is
/// held for ever, so that nothing here may be touched again. Called between `fork` and its return.
pub fn forget() {
    FORKED.store(true, Ordering::Relaxed);
    EPOCH.store(u64::MAX, Ordering::Relaxed);
}

/// Calls `f` with the running session.
#[inline]
pub fn with(f: impl FnOnce(&Session) -> Answer<()>) -> Answer<()> {
    let epoch = EPOCH.load(Ordering::Acquire);
    let mut f = Some(f);
    let fast = SEEN.try_with(|seen| {
        let seen = seen.try_borrow().ok()?;
        match &*seen {
            (at, Some(session)) if *at == epoch => f.take().map(|f| f(session)),
            _ => None,
        }
    });
    match (fast.ok().flatten(), f) {
        (Some(result), _) => result,
        (None, Some(f)) => f(&*look(epoch)?),
        (None, None) => unreachable!("f was called, so there is a result"),
    }
}

/// The running session by way of the lock, remembered for the next call of this thread.
#[cold]
fn look(epoch: u64) -> Answer<Arc<Session>> {
    let session = running()?.clone().ok_or(Fault::NotRunning)?;
    // Both may fail and nothing is lost: a thread that is being torn down, or a callback that runs inside
    // a call of an older session.
    let _ = SEEN.try_with(|seen| {
        if let Ok(mut seen) = seen.try_borrow_mut() {
            *seen = (epoch, Some(session.clone()));
        }
    });
    Ok(session)
}

fn running() -> Answer<MutexGuard<'static, Option<Arc<Session>>>> {
    match FORKED.load(Ordering::Relaxed) {
        true => Err(Fault::Forked.into()),
        false => Ok(RUNNING.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}
