//! Why a call failed, and how its caller learns it: a status, and a text in `presagio_last_error`. Nothing is
//! printed: standard error belongs to the program.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a call comes to.
pub(crate) type Answer<T> = Result<T, Fault>;

/// `presagio_status`: what a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No prediction, or no more.
    None = 1,
    /// The cursor is of a model that has changed since, or is gone.
    Stale = 2,
    /// A pointer is NULL.
    Null = 3,
    /// A value makes no sense.
    Invalid = 4,
    /// A bug of the library.
    Broken = 5,
    /// A file cannot be written.
    File = 6,
}

/// Every reason for which a call does not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// Not wrong, there is just nothing to say.
    #[error("there is no prediction")]
    Nothing,
    #[error("the model has changed or was freed since the cursor was made: ask for a new one")]
    Stale,
    #[error("{0} is NULL")]
    Null(&'static str),
    #[error(
        "event->action is {0}: it must be one of presagio_action, PRESAGIO_OPEN (0) to PRESAGIO_REMOVE (9)"
    )]
    Action(u32),
    #[error("context is 0, which stands for call stacks that are not known: it cannot be named")]
    UnknownNamed,
    #[error("internal error: {0}; please report this, and free the model")]
    Panic(String),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("the model cannot be used any more after an internal error: free it")]
    Broken,
}

impl Fault {
    fn status(&self) -> Status {
        match self {
            Fault::Nothing => Status::None,
            Fault::Stale => Status::Stale,
            Fault::Null(_) => Status::Null,
            Fault::Action(_) | Fault::UnknownNamed => Status::Invalid,
            Fault::Panic(_) | Fault::Broken => Status::Broken,
            Fault::File(_) => Status::File,
        }
    }
}

thread_local! {
    /// Why the last failed call of this thread failed.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs one call. A panic is a fault too, since it must not cross into C.
pub(crate) fn guarded(function: &str, call: impl FnOnce() -> Answer<()>) -> Status {
    // Nothing half-done is looked at after a panic: the model's lock is poisoned then.
    let result = catch_unwind(AssertUnwindSafe(call));
    match result.unwrap_or_else(|panic| Err(Fault::Panic(message_of(&*panic)))) {
        Ok(()) => Status::Ok,
        Err(Fault::Nothing) => Status::None,
        Err(fault) => {
            keep(format!("{function}: {fault}"));
            fault.status()
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

fn keep(line: String) {
    let text = CString::new(line.replace('\0', "?")).ok();
    // A thread that is being torn down has no place to keep it any more.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// What was kept last on this thread (empty: nothing); valid until the next fault of the thread.
pub(crate) fn last() -> *const c_char {
    let kept = LAST.try_with(|last| last.borrow().as_ref().map(|text| text.as_ptr()));
    kept.ok().flatten().unwrap_or(c"".as_ptr())
}
