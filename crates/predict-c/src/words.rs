//! What C and Rust say to each other: the structures of `presagio_predict.h`, field by field.

use crate::cursor::Cursor;
use crate::fault::{Answer, Fault};
use presagio_core::{Action, ContextId, FileId, Layer, Nanos};
use presagio_predict::PredictedFile;

/// `presagio_event`: an operation that has just ended.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// When it began, in nanoseconds.
    pub time: u64,
    /// How long it took, in nanoseconds.
    pub duration: u64,
    /// The file, as a number.
    pub file: u64,
    /// Where in the file.
    pub offset: u64,
    /// The bytes asked for.
    pub len: u64,
    /// The bytes moved, or the negated error number.
    pub result: i64,
    /// The number of an action. Not an enum: C may write anything here.
    pub action: u32,
    /// The call stack, as a number; 0 if it is not known.
    pub context: u32,
}

impl Event {
    /// What the model learns from, if it makes sense.
    pub(crate) fn understood(&self) -> Answer<presagio_core::Event> {
        let number = u8::try_from(self.action).ok();
        let action = number.and_then(Action::from_number);
        Ok(presagio_core::Event {
            time: Nanos(self.time),
            duration: Nanos(self.duration),
            // A model is of one stream; whose it is and where it was seen is for the caller to know.
            process: 0,
            thread: 0,
            layer: Layer::default(),
            file: FileId(self.file),
            action: action.ok_or(Fault::Action(self.action))?,
            context: ContextId(self.context),
            offset: self.offset,
            len: self.len,
            result: self.result,
        })
    }
}

/// `presagio_predicted`: an operation that is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Predicted {
    /// The number of an action.
    pub action: u32,
    /// 1: the file will be used for the first time; 0: it is known.
    pub file_is_new: u32,
    /// The file's number; of a new one, how many new ones come before it.
    pub file: u64,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Nanoseconds from the end of the last observed operation to the beginning of this one.
    pub after: u64,
    /// Nanoseconds since the operation before it on this way began.
    pub elapsed: u64,
    /// How likely it is exactly this.
    pub confidence: f64,
}

impl Predicted {
    /// For C, with the time of the prediction before.
    pub(crate) fn new(predicted: presagio_predict::Predicted, before: Nanos) -> Predicted {
        let (file_is_new, file) = match predicted.file {
            PredictedFile::Known(file) => (0, file.0),
            PredictedFile::New(number) => (1, u64::from(number)),
        };
        Predicted {
            action: predicted.action as u32,
            file_is_new,
            file,
            offset: predicted.offset,
            len: predicted.len,
            after: predicted.after.0,
            elapsed: predicted.after.since(before).0,
            confidence: predicted.confidence,
        }
    }
}

/// `presagio_way`: a way to read on. The caller owns the cursor.
#[derive(Debug)]
#[repr(C)]
pub struct Way {
    /// Reads the operations of this way.
    pub cursor: *mut Cursor,
    /// How likely this way is.
    pub weight: f64,
}
