//! Fields of varying length: names, texts, handles, payloads and lists.
//!
//! ```text
//! [s]  length[2] then so many bytes, without a NUL: texts and names; what a name may be depends on its message
//! [h]  length[2] then so many bytes of any kind, at least one: a handle
//! [d]  count[4] then so many bytes: a payload, always the last field
//! ```

use crate::MSIZE_MAX;
use crate::error::{Fault, Reason};
use crate::field::{Field, Fields};
use std::fmt;

/// What all fields of bytes have in common; `$check` decides which bytes.
macro_rules! bytes16 {
    ($(#[$doc:meta])* $name:ident, $wire:literal, $check:path, $sample:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name<'a>(&'a [u8]);

        impl<'a> $name<'a> {
            /// Checks the bytes.
            pub fn new(bytes: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, Reason> {
                let bytes = bytes.as_ref();
                if bytes.len() > usize::from(u16::MAX) {
                    return Err(Reason::TooLong(bytes.len() as u64));
                }
                $check(bytes).map(|()| $name(bytes))
            }

            /// The bytes.
            pub fn bytes(self) -> &'a [u8] {
                self.0
            }
        }

        impl<'a> Field<'a> for $name<'a> {
            const WIRE: &'static str = $wire;

            #[inline]
            fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
                let at = from.at();
                let length = u16::get(from, name)?;
                let bytes = from.take(length.into(), name)?;
                match $check(bytes) {
                    Ok(()) => Ok($name(bytes)),
                    Err(reason) => Err(from.fault(name, at, reason)),
                }
            }

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                (self.0.len() as u16).put(out);
                out.extend_from_slice(self.0);
            }

            #[cfg(test)]
            fn sample(from: &mut crate::sample::Source<'a>) -> Self {
                $name(from.$sample())
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0.escape_ascii().to_string())
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.escape_ascii().fmt(f)
            }
        }
    };
}

bytes16! {
    /// Any text without a NUL, empty too: a user, a version, the target of a symbolic link, an attribute's name.
    Text, "[s]", check_text, text
}

bytes16! {
    /// The name of something in a directory that is made, changed or removed: one component of a path, neither `.`
    /// nor `..`.
    Name, "[s]", check_name, name
}

bytes16! {
    /// One step of a walk: a name, `..` for the way up, or `.` for none at all, which the protocol does not have but
    /// diod's own clients send.
    Step, "[s]", check_component, name
}

bytes16! {
    /// The name in a directory entry: one component of a path, or `.` or `..`.
    EntryName, "[s]", check_component, name
}

bytes16! {
    /// What a server calls a file, to find it again after a restart; nobody else can read it.
    Handle, "[h]", check_handle, handle
}

fn check_text(bytes: &[u8]) -> Result<(), Reason> {
    match bytes.contains(&0) {
        true => Err(Reason::Nul),
        false => Ok(()),
    }
}

fn check_component(bytes: &[u8]) -> Result<(), Reason> {
    if bytes.is_empty() {
        return Err(Reason::Empty);
    }
    match bytes.iter().find(|byte| matches!(byte, 0 | b'/')) {
        Some(0) => Err(Reason::Nul),
        Some(_) => Err(Reason::Slash),
        None => Ok(()),
    }
}

fn check_name(bytes: &[u8]) -> Result<(), Reason> {
    match bytes {
        b"." | b".." => Err(Reason::Dots),
        _ => check_component(bytes),
    }
}

fn check_handle(bytes: &[u8]) -> Result<(), Reason> {
    match bytes.is_empty() {
        true => Err(Reason::Empty),
        false => Ok(()),
    }
}

/// What was read or is to be written. It stays where it is: see [`crate::Request::encode_head`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Data<'a>(&'a [u8]);

impl<'a> Data<'a> {
    /// Bytes that fit into a frame.
    pub fn new(bytes: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, Reason> {
        let bytes = bytes.as_ref();
        match bytes.len() <= MSIZE_MAX as usize {
            true => Ok(Data(bytes)),
            false => Err(Reason::TooLong(bytes.len() as u64)),
        }
    }

    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Field<'a> for Data<'a> {
    const WIRE: &'static str = "[d]";

    #[inline]
    fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
        let count = u32::get(from, name)?;
        from.take(count as usize, name).map(Data)
    }

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
    }

    #[inline]
    fn tail(&self) -> &[u8] {
        self.0
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        Data(from.bytes())
    }
}

impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A list of at most `MAX` elements: `count[2]`, then the elements. Parsed, it lies in the frame; to be sent, in a
/// slice.
#[derive(Clone, Copy)]
pub struct List<'a, T, const MAX: usize>(Place<'a, T>);

#[derive(Clone, Copy)]
enum Place<'a, T> {
    Frame { count: u16, bytes: &'a [u8] },
    Slice(&'a [T]),
}

impl<'a, T: Field<'a> + Copy, const MAX: usize> List<'a, T, MAX> {
    /// A list to send.
    pub fn new(elements: &'a [T]) -> Result<Self, Reason> {
        match elements.len() <= MAX {
            true => Ok(List(Place::Slice(elements))),
            false => Err(too_many(elements.len(), MAX)),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self.0 {
            Place::Frame { count, .. } => count.into(),
            Place::Slice(elements) => elements.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each element.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T, MAX> {
        let (bytes, slice): (&[u8], &[T]) = match self.0 {
            Place::Frame { bytes, .. } => (bytes, &[]),
            Place::Slice(elements) => (&[], elements),
        };
        let mut fields = Fields::new(bytes, 0);
        // They were parsed once when the list was, so that nothing is lost here.
        let parsed = std::iter::from_fn(move || match fields.is_empty() {
            true => None,
            false => T::get(&mut fields, "an element").ok(),
        });
        slice.iter().copied().chain(parsed)
    }
}

fn too_many(count: usize, max: usize) -> Reason {
    let (count, max) = (count.min(u32::MAX as usize) as u32, max as u32);
    Reason::TooMany { count, max }
}

impl<'a, T: Field<'a> + Copy, const MAX: usize> Field<'a> for List<'a, T, MAX> {
    const WIRE: &'static str = T::WIRE;

    fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
        let at = from.at();
        let count = u16::get(from, name)?;
        if usize::from(count) > MAX {
            return Err(from.fault(name, at, too_many(count.into(), MAX)));
        }
        let all = from.rest();
        for _ in 0..count {
            T::get(from, name)?;
        }
        let bytes = &all[..all.len() - from.rest().len()];
        Ok(List(Place::Frame { count, bytes }))
    }

    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u16).put(out);
        match self.0 {
            Place::Frame { bytes, .. } => out.extend_from_slice(bytes),
            Place::Slice(elements) => elements.iter().for_each(|element| element.put(out)),
        }
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        let count = from.number() as usize % (MAX.min(40) + 1);
        let elements: Vec<T> = (0..count).map(|_| T::sample(from)).collect();
        List(Place::Slice(elements.leak()))
    }
}

impl<'a, T: Field<'a> + Copy + PartialEq, const MAX: usize> PartialEq for List<'a, T, MAX> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Field<'a> + Copy + fmt::Debug, const MAX: usize> fmt::Debug for List<'a, T, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
