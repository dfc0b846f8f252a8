//! The entries of a directory, as `Rreaddir` carries them.
//!
//! ```text
//! entry: qid[13] offset[8] type[1] name[s]
//! ```
//!
//! `offset` is where the next `Treaddir` has to start to go on behind the entry; `type` is Linux's `d_type`.

use crate::error::{Fault, WireError};
use crate::field::{Field, Fields};
use crate::ids::{Kind, Tag};
use crate::reply::READ_HEAD;
use crate::text::{Data, EntryName};
use crate::values::Qid;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry<'a> {
    /// The file.
    pub qid: Qid,
    /// Where to go on behind it.
    pub offset: u64,
    /// Linux's `d_type`: 4 a directory, 8 a file, 10 a symbolic link.
    pub file_type: u8,
    /// Its name; servers list `.` and `..` too.
    pub name: EntryName<'a>,
}

impl<'a> Field<'a> for Entry<'a> {
    const WIRE: &'static str = "[e]";

    fn get(from: &mut Fields<'a>, _: &'static str) -> Result<Self, Fault> {
        Ok(Entry {
            qid: Qid::get(from, "qid")?,
            offset: u64::get(from, "offset")?,
            file_type: u8::get(from, "type")?,
            name: EntryName::get(from, "name")?,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.qid.put(out);
        self.offset.put(out);
        self.file_type.put(out);
        self.name.put(out);
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        Entry {
            qid: Qid::sample(from),
            offset: from.number(),
            file_type: u8::sample(from),
            name: EntryName::sample(from),
        }
    }
}

impl Entry<'_> {
    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        13 + 8 + 1 + 2 + self.name.bytes().len()
    }

    /// Appends it to `out` unless that would become longer than `limit`; says whether it did.
    pub fn append(&self, out: &mut Vec<u8>, limit: usize) -> bool {
        let fits = out.len() + self.size() <= limit;
        if fits {
            self.put(out);
        }
        fits
    }
}

/// Reads the entries of an `Rreaddir`, up to the first that is malformed.
#[derive(Clone, Debug)]
pub struct Entries<'a>(Fields<'a>);

impl<'a> Entries<'a> {
    /// The entries that a reply carries.
    pub fn new(entries: Data<'a>) -> Entries<'a> {
        Entries(Fields::new(entries.bytes(), READ_HEAD))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = Entry::get(&mut self.0, "an entry");
        if entry.is_err() {
            self.0 = Fields::new(&[], READ_HEAD);
        }
        Some(entry.map_err(|fault| fault.within(Kind(41), Tag::NONE)))
    }
}
