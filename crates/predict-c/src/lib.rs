//! `libpresagio_predict_c`: the I/O model for programs in C and C++.
//!
//! A middleware tells what its program does and asks what will come. One call on its way through:
//!
//! 1. `presagio_observe(model, &event)` enters here: pointers become references, a panic becomes an error.
//!    `words` turns what C said into an event, or says what is wrong with it.
//! 2. `model` has the Rust model learn from it, and makes the cursors that were there before stale.
//! 3. `presagio_best` makes a `cursor`, which only notes which way it is. The first `presagio_cursor_next`
//!    has it read a block of predictions from the model.
//!
//! `saved` has the functions that keep a model in a file, `fault` every reason for which a call fails. The crate
//! is a Rust library too, only for its tests.
//!
//! *Invariant:* `unsafe` occurs where functions of the header are, and only to follow the pointers that C
//! passed in. No panic leaves these functions.

mod cursor;
mod fault;
mod model;
mod saved;
mod words;

pub use cursor::Cursor;
pub use fault::Status;
pub use model::Model;
pub use saved::{presagio_model_load, presagio_model_save};
pub use words::{Event, Predicted, Way};

/// The Rust example of the guide is compiled and run as a test; tests/programs.rs does that with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/predict-api.md")]
mod guide {}

use cursor::Choice;
use fault::{Answer, Fault, guarded};
use presagio_core::ContextId;
use std::ffi::{CStr, c_char};
use std::ptr::{NonNull, null_mut};

/// A model that knows nothing. See `presagio_predict.h`.
#[unsafe(no_mangle)]
pub extern "C" fn presagio_model_new() -> *mut Model {
    made("presagio_model_new", || Ok(Model::new(Default::default())))
}

/// Gives a model back. See `presagio_predict.h`.
///
/// # Safety
/// `model` is NULL or a model that was not freed and that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_model_free(model: *mut Model) {
    // SAFETY: as the caller promises; models are made by `made`.
    unsafe { freed("presagio_model_free", model) }
}

/// Learns from an operation. See `presagio_predict.h`.
///
/// # Safety
/// `model` is NULL or a model that was not freed, `event` NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_observe(model: *mut Model, event: *const Event) -> Status {
    guarded("presagio_observe", || {
        // SAFETY: as the caller promises.
        let (model, event) = unsafe { (given(model, "model")?, given(event, "event")?) };
        let event = event.understood()?;
        model.change(|model| model.observe(&event))
    })
}

/// Says which call stack a context means. See `presagio_predict.h`.
///
/// # Safety
/// `model` is NULL or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_name_context(
    model: *mut Model,
    context: u32,
    stack_hash: u64,
) -> Status {
    guarded("presagio_name_context", || {
        // SAFETY: as the caller promises.
        let model = unsafe { given(model, "model")? };
        if ContextId(context) == ContextId::UNKNOWN {
            return Err(Fault::UnknownNamed);
        }
        model.change(|model| model.name_context(ContextId(context), stack_hash))
    })
}

/// Says that operations were missed. See `presagio_predict.h`.
///
/// # Safety
/// `model` is NULL or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_lose_track(model: *mut Model) -> Status {
    guarded("presagio_lose_track", || {
        // SAFETY: as the caller promises.
        let model = unsafe { given(model, "model")? };
        model.change(|model| model.lose_track())
    })
}

/// What may come next, each way with its weight. See `presagio_predict.h`.
///
/// # Safety
/// `model` is NULL or a model that was not freed, `ways` NULL or room for `max` of them, `count` NULL or a
/// place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_predict(
    model: *const Model,
    ways: *mut Way,
    max: usize,
    count: *mut usize,
) -> Status {
    guarded("presagio_predict", || {
        let count = place(count, "count")?;
        // SAFETY: as the caller promises.
        unsafe { count.write(0) };
        let ways = place(ways, "ways")?;
        // SAFETY: as the caller promises.
        let model = unsafe { given(model, "model")? };
        let weights: Vec<f64> =
            model.read(|model| model.predictions().map(|p| p.1).take(max).collect())?;
        for (nth, weight) in weights.iter().copied().enumerate() {
            let cursor = Box::into_raw(Box::new(Cursor::new(model, Choice::Nth(nth))));
            // SAFETY: there are at most `max`, for which the caller promises room.
            unsafe { ways.add(nth).write(Way { cursor, weight }) };
        }
        // SAFETY: as the caller promises.
        unsafe { count.write(weights.len()) };
        Ok(())
    })
}

/// The likeliest way. See `presagio_predict.h`.
///
/// # Safety
/// `model` is NULL or a model that was not freed, `cursor` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_best(model: *const Model, cursor: *mut *mut Cursor) -> Status {
    guarded("presagio_best", || {
        let cursor = place(cursor, "cursor")?;
        // SAFETY: as the caller promises.
        unsafe { cursor.write(null_mut()) };
        // SAFETY: as the caller promises.
        let model = unsafe { given(model, "model")? };
        // Once something was observed there is a best way; to look for it costs more.
        if !model.read(|model| model.last_symbol().is_some() || model.best().is_some())? {
            return Err(Fault::Nothing);
        }
        let best = Box::into_raw(Box::new(Cursor::new(model, Choice::Best)));
        // SAFETY: as the caller promises.
        unsafe { cursor.write(best) };
        Ok(())
    })
}

/// Reads one operation ahead. See `presagio_predict.h`.
///
/// # Safety
/// `cursor` is NULL or a cursor that was not freed and that no other thread uses, `predicted` NULL or a place
/// for a prediction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_cursor_next(
    cursor: *mut Cursor,
    predicted: *mut Predicted,
) -> Status {
    guarded("presagio_cursor_next", || {
        let predicted = place(predicted, "predicted")?;
        // SAFETY: as the caller promises.
        let cursor = unsafe { cursor.as_mut() }.ok_or(Fault::Null("cursor"))?;
        let next = cursor.next()?;
        // SAFETY: as the caller promises.
        unsafe { predicted.write(next) };
        Ok(())
    })
}

/// A second cursor at the same place. See `presagio_predict.h`.
///
/// # Safety
/// `cursor` is NULL or a cursor that was not freed and that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_cursor_copy(cursor: *const Cursor) -> *mut Cursor {
    made("presagio_cursor_copy", || {
        // SAFETY: as the caller promises.
        unsafe { given(cursor, "cursor") }.cloned()
    })
}

/// Gives a cursor back. See `presagio_predict.h`.
///
/// # Safety
/// `cursor` is NULL or a cursor that was not freed and that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_cursor_free(cursor: *mut Cursor) {
    // SAFETY: as the caller promises; cursors are boxed where they are made.
    unsafe { freed("presagio_cursor_free", cursor) }
}

/// Why the last failed call of this thread failed. See `presagio_predict.h`.
#[unsafe(no_mangle)]
pub extern "C" fn presagio_last_error() -> *const c_char {
    fault::last()
}

/// The version of the library. See `presagio_predict.h`.
#[unsafe(no_mangle)]
pub extern "C" fn presagio_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    const TEXT: &CStr = match CStr::from_bytes_with_nul(VERSION.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no NUL in it"),
    };
    TEXT.as_ptr()
}

/// What a pointer points to.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that nobody writes to during the call.
unsafe fn given<'a, T>(pointer: *const T, name: &'static str) -> Answer<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or(Fault::Null(name))
}

/// Where a result goes. It may hold anything, so it is only ever written to.
fn place<T>(pointer: *mut T, name: &'static str) -> Answer<NonNull<T>> {
    NonNull::new(pointer).ok_or(Fault::Null(name))
}

/// Makes something that C frees, NULL if that fails.
fn made<T>(function: &str, make: impl FnOnce() -> Answer<T>) -> *mut T {
    let mut result = null_mut();
    guarded(function, || {
        result = Box::into_raw(Box::new(make()?));
        Ok(())
    });
    result
}

/// Drops what C was given, unless it is NULL.
///
/// # Safety
/// `pointer` is NULL, or comes from a `Box` and is not used any more.
unsafe fn freed<T>(function: &str, pointer: *mut T) {
    guarded(function, || {
        if !pointer.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(pointer) });
        }
        Ok(())
    });
}
