//! `libagios.so`: the request scheduler behind AGIOS's C interface.
//!
//! A program built against AGIOS runs unchanged when it is linked with this library instead. One call on
//! its way through:
//!
//! 1. `agios_add_request("f", RT_READ, 0, 4096, 7, 0)` enters here: pointers become slices, a panic
//!    becomes an error, and this thread's cached handle of the running session is found (`current`).
//! 2. `session` checks the arguments, looks the file's number up in `names` and submits a request to
//!    the engine. The call returns.
//! 3. The engine's thread picks a batch and calls `Callbacks`, which call the program's functions with
//!    the identifiers of the batch, in offset order.
//! 4. The program serves them and calls `agios_release_request`, which finds its way like step 1 and 2.
//!
//! With NOOP there is nothing to decide: step 2 calls back at once (`direct`).
//!
//! `config` and `libconfig` read `agios.conf`, `trace` writes the trace, `foresight` reads one back in so
//! that the scheduler knows what will come, `fault` has every reason for which a call returns false. The crate is a Rust library too, only for its tests and fuzzers.
//!
//! *Invariant:* `unsafe` occurs in this file only, and only to read what C passed in and to call back.

pub mod config;
mod current;
mod direct;
mod fault;
pub mod foresight;
pub mod libconfig;
pub mod names;
mod session;
mod trace;

use config::Config;
use fault::{Answer, Fault};
use presagio_core::RequestId;
use presagio_engine::{Engine, Service};
use presagio_sched::Batch;
use session::{Bytes, Session};
use smallvec::SmallVec;
use std::any::Any;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

/// The program's function for one request.
type One = unsafe extern "C" fn(id: i64) -> *mut c_void;
/// The program's function for several requests that form one contiguous access.
type Many = unsafe extern "C" fn(ids: *mut i64, count: i32) -> *mut c_void;

/// Reads the configuration and starts the scheduler. See `agios.h`.
///
/// # Safety
/// `config_file` is NULL or a C string. The callbacks are NULL or functions of the declared type that may
/// be called from any thread until `agios_exit` returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_init(
    one: Option<One>,
    many: Option<Many>,
    config_file: *const c_char,
    max_queue_id: i32,
) -> bool {
    guarded("agios_init", || {
        let callbacks = Callbacks::new(one, many)?;
        // SAFETY: the caller passes NULL or a C string.
        let name = unsafe { bytes_of(config_file) }.unwrap_or_default();
        let path = (!name.is_empty()).then_some(Path::new(OsStr::from_bytes(name)));
        current::start(|| {
            let config = Config::load(path).map_err(Fault::from)?;
            let session = Session::start(config, max_queue_id, callbacks)?;
            watch_forks();
            Ok(session)
        })
    })
}

/// Queues a request. See `agios.h`.
///
/// # Safety
/// `file_id` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_add_request(
    file_id: *const c_char,
    kind: i32,
    offset: i64,
    length: i64,
    identifier: i64,
    queue_id: i32,
) -> bool {
    guarded("agios_add_request", || {
        // SAFETY: the caller passes NULL or a C string.
        let bytes = unsafe { arguments(file_id, kind, offset, length) }?;
        current::with(|session| session.add(bytes, identifier, queue_id))
    })
}

/// Finishes a dispatched request. Length before offset, as in AGIOS. See `agios.h`.
///
/// # Safety
/// `file_id` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_release_request(
    file_id: *const c_char,
    kind: i32,
    length: i64,
    offset: i64,
) -> bool {
    guarded("agios_release_request", || {
        // SAFETY: the caller passes NULL or a C string.
        let bytes = unsafe { arguments(file_id, kind, offset, length) }?;
        current::with(|session| session.release(bytes))
    })
}

/// Takes back a request that was not dispatched. Length before offset, as in AGIOS. See `agios.h`.
///
/// # Safety
/// `file_id` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_cancel_request(
    file_id: *const c_char,
    kind: i32,
    length: i64,
    offset: i64,
) -> bool {
    guarded("agios_cancel_request", || {
        // SAFETY: the caller passes NULL or a C string.
        let bytes = unsafe { arguments(file_id, kind, offset, length) }?;
        current::with(|session| session.cancel(bytes))
    })
}

/// Changes the algorithm while the scheduler runs. See `agios.h`.
///
/// # Safety
/// `name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_set_algorithm(name: *const c_char) -> bool {
    guarded("agios_set_algorithm", || {
        // SAFETY: the caller passes NULL or a C string.
        let name = unsafe { bytes_of(name) }.ok_or(Fault::Null("name"))?;
        current::with(|session| session.switch(&String::from_utf8_lossy(name)))
    })
}

/// Announces a request that is likely to come. See `agios.h`.
///
/// # Safety
/// `file_id` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn agios_foresee(
    file_id: *const c_char,
    kind: i32,
    offset: i64,
    length: i64,
    after_ns: i64,
) -> bool {
    guarded("agios_foresee", || {
        // SAFETY: the caller passes NULL or a C string.
        let bytes = unsafe { arguments(file_id, kind, offset, length) }?;
        current::with(|session| session.foresee(bytes, after_ns))
    })
}

/// Stops the scheduler. See `agios.h`.
#[unsafe(no_mangle)]
pub extern "C" fn agios_exit() {
    guarded("agios_exit", || current::stop(Session::stop));
    fault::say_kept_back();
}

/// Why the last failed call of this thread failed. See `agios.h`.
#[unsafe(no_mangle)]
pub extern "C" fn agios_last_error() -> *const c_char {
    fault::last()
}

/// Runs one call: true if it succeeded, else the fault is reported. A panic is a fault too, since it must
/// not cross into C.
fn guarded(function: &str, call: impl FnOnce() -> Answer<()>) -> bool {
    // Nothing half-done is looked at after a panic: the locks below are either poison-free or recover.
    let result = catch_unwind(AssertUnwindSafe(call));
    match result.unwrap_or_else(|panic| Err(Fault::Panic(message_of(&*panic)).into())) {
        Ok(()) => true,
        Err(fault) => {
            fault::report(function, &fault);
            false
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

/// From now on a child of this process knows that it is one.
fn watch_forks() {
    static WATCH: Once = Once::new();
    extern "C" fn child() {
        current::forget();
        fault::forget();
    }
    // SAFETY: `child` only stores to atomics, which is allowed between fork and its return. If the system
    // has no memory for one more handler, children go unnoticed, which does no harm to this process.
    WATCH.call_once(|| unsafe {
        pthread_atfork(None, None, Some(child));
    });
}

type ForkHandler = Option<extern "C" fn()>;

unsafe extern "C" {
    /// POSIX: calls `child` in every child process.
    fn pthread_atfork(prepare: ForkHandler, parent: ForkHandler, child: ForkHandler) -> i32;
}

/// The arguments that several calls share.
///
/// # Safety
/// `file_id` is NULL or a C string that lives through the call.
unsafe fn arguments<'a>(
    file_id: *const c_char,
    kind: i32,
    offset: i64,
    length: i64,
) -> Answer<Bytes<'a>> {
    // SAFETY: as the caller promises.
    let Some(file) = (unsafe { bytes_of(file_id) }) else {
        return Err(Fault::Null("file_id").into());
    };
    Ok(Bytes {
        file,
        kind,
        offset,
        length,
    })
}

/// The bytes of a C string, or nothing for NULL.
///
/// # Safety
/// `text` is NULL or a C string that lives through the call.
unsafe fn bytes_of<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not NULL, so the caller promises a C string.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The program's functions; at least one of them is there.
struct Callbacks {
    one: Option<One>,
    many: Option<Many>,
}

impl Callbacks {
    fn new(one: Option<One>, many: Option<Many>) -> Answer<Callbacks> {
        match (one, many) {
            (None, None) => Err(Fault::NoCallback.into()),
            _ => Ok(Callbacks { one, many }),
        }
    }

    /// Has one request served.
    fn serve_one(&self, id: RequestId) {
        let mut id = id.0 as i64;
        // SAFETY: `agios_init` was promised functions of these types; the array of one lives through the call.
        unsafe {
            match (self.one, self.many) {
                (Some(one), _) => one(id),
                (None, Some(many)) => many(&raw mut id, 1),
                (None, None) => unreachable!("agios_init refuses to start without a callback"),
            }
        };
    }

    /// Has several requests served that form one access.
    fn serve_many(many: Many, batch: &Batch) {
        let ids = batch.parts().iter().map(|part| part.request.id.0 as i64);
        let mut ids: SmallVec<[i64; 64]> = ids.collect();
        let count = i32::try_from(ids.len()).expect("a batch has at most 1024 requests");
        // SAFETY: `agios_init` was promised a function of this type; the array lives through the call.
        unsafe { many(ids.as_mut_ptr(), count) };
    }
}

impl Service for Callbacks {
    /// Several requests go to `many`, single ones to `one`, as in AGIOS; each stands in for the other.
    fn dispatch(&self, _engine: &Engine, batch: Batch) {
        match (batch.parts(), self.many) {
            ([only], _) => self.serve_one(only.request.id),
            (_, Some(many)) => Callbacks::serve_many(many, &batch),
            (parts, None) => parts
                .iter()
                .for_each(|part| self.serve_one(part.request.id)),
        }
    }
}
