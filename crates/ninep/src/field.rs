//! How one field lies in a frame: numbers in little endian, texts with their length before them.
//!
//! A message is a list of fields ([`crate::request`], [`crate::reply`]); a field's type decides what may be in it, so
//! that whatever was parsed has been checked. `put` writes everything except a payload, which `tail` returns: it may
//! stay where it is and follow in the same `writev`.

use crate::error::{Fault, Reason};
use crate::ids::{Errno, Fid, Tag};

/// Bytes before the first field of a message: `size[4] type[1] tag[2]`.
pub const HEADER: usize = 7;

/// A field of a message.
pub trait Field<'a>: Sized {
    /// What the byte tables write behind the field's name.
    const WIRE: &'static str;

    /// Reads it, and leaves `from` behind it.
    fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault>;

    /// Writes it, all but its payload.
    fn put(&self, out: &mut Vec<u8>);

    /// Its payload, if it is one that carries any.
    fn tail(&self) -> &[u8] {
        &[]
    }

    /// One of all the values that it can have.
    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self;
}

/// The fields of a message that were not read yet.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
    end: u32,
}

impl<'a> Fields<'a> {
    /// The fields of a message whose body starts at byte `at` of its frame.
    pub(crate) fn new(body: &'a [u8], at: usize) -> Fields<'a> {
        Fields {
            rest: body,
            end: (at + body.len()) as u32,
        }
    }

    /// Where the next field starts in the frame.
    pub(crate) fn at(&self) -> u32 {
        self.end - self.rest.len() as u32
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// What is wrong with the field that started at `at`.
    pub(crate) fn fault(&self, field: &'static str, at: u32, reason: Reason) -> Fault {
        Fault { field, at, reason }
    }

    /// The next `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Fault> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.short(count, field)),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Fault> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.short(N, field)),
        }
    }

    #[cold]
    fn short(&self, count: usize, field: &'static str) -> Fault {
        let (needs, has) = (count as u32, self.rest.len() as u32);
        self.fault(field, self.at(), Reason::Short { needs, has })
    }

    /// All that was not read; a message must leave nothing.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        match self.rest.len() as u32 {
            0 => Ok(()),
            left => Err(self.fault("the last field", self.at(), Reason::Trailing(left))),
        }
    }
}

macro_rules! numbers {
    ($($type:ty, $wire:literal;)*) => {$(
        impl<'a> Field<'a> for $type {
            const WIRE: &'static str = $wire;

            #[inline]
            fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
                Ok(<$type>::from_le_bytes(from.array(name)?))
            }

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[cfg(test)]
            fn sample(from: &mut crate::sample::Source<'a>) -> Self {
                from.number() as $type
            }
        }
    )*};
}

numbers! {
    u8, "[1]";
    u16, "[2]";
    u32, "[4]";
    u64, "[8]";
}

/// Types that lie in a frame as the number inside them.
macro_rules! transparent {
    ($($type:ident($inner:ty),)*) => {$(
        impl<'a> $crate::field::Field<'a> for $type {
            const WIRE: &'static str = <$inner as $crate::field::Field>::WIRE;

            #[inline]
            fn get(
                from: &mut $crate::field::Fields<'a>,
                name: &'static str,
            ) -> Result<Self, $crate::error::Fault> {
                <$inner>::get(from, name).map($type)
            }

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            #[cfg(test)]
            fn sample(from: &mut $crate::sample::Source<'a>) -> Self {
                $type(<$inner>::sample(from))
            }
        }
    )*};
}
pub(crate) use transparent;

transparent! { Fid(u32), Tag(u16), Errno(u32), }

/// Structures of a fixed size that lie in a frame field after field.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident $wire:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl<'a> $crate::field::Field<'a> for $name {
            const WIRE: &'static str = $wire;

            #[inline]
            fn get(
                from: &mut $crate::field::Fields<'a>,
                _: &'static str,
            ) -> Result<Self, $crate::error::Fault> {
                Ok($name {
                    $($field: <$type as $crate::field::Field>::get(from, stringify!($field))?,)*
                })
            }

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::field::Field::put(&self.$field, out);)*
            }

            #[cfg(test)]
            fn sample(from: &mut $crate::sample::Source<'a>) -> Self {
                $name { $($field: <$type as $crate::field::Field>::sample(from),)* }
            }
        }
    };
}
pub(crate) use record;

/// Sixteen bytes that mean something to their maker only: an instance, a token.
impl<'a> Field<'a> for [u8; 16] {
    const WIRE: &'static str = "[16]";

    fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
        from.array(name)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&from.number().to_le_bytes());
        bytes[8..].copy_from_slice(&from.number().to_le_bytes());
        bytes
    }
}
