//! A directory of a parallel file system whose data servers are known: as [`Directory`], but ranges are split
//! where another server begins.
//!
//! When a file is opened, its layout is looked up: computed from what was configured, or read from the attribute that the
//! file system shows. That is once for each open: a part of a Lustre file that gets its objects later stays without a server until
//! the file is opened again, and so does a file that GlusterFS moves to another brick.
//!
//! Servers are numbered in the order in which they are first seen. When there are more than expected, those that come
//! later share numbers.
//!
//! *Invariant.* Nothing here can make an open fail or a byte wrong: a layout that is missing or makes no sense is
//! counted, and the file then waits in one queue.

use crate::layout::configured::words;
use crate::layout::{self, Configured, Layout, LayoutError, Placement, Servers, number_of};
use crate::{Access, Bytes, Directory, Durable, Now, Pieces, Size, Storage};
use presagio_core::Range;
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who knows on which servers files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutSource {
    /// A person.
    Configured(Configured),
    /// The file system.
    Asked {
        /// Which one.
        of: FileSystem,
        /// How many servers it has, at most.
        servers: u32,
    },
}

/// A file system that says where its files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileSystem {
    /// GlusterFS, which names the bricks.
    Gluster,
    /// Lustre, which numbers its object storage targets.
    Lustre,
    /// CephFS, which names objects.
    Ceph,
}

impl FromStr for LayoutSource {
    type Err = LayoutError;

    /// `stripe=1MiB servers=4 first=hash`, or `gluster servers=4`, and so on with `lustre` and `ceph`.
    fn from_str(text: &str) -> Result<LayoutSource, LayoutError> {
        let mut words = words(text);
        let named = words.next().and_then(|word| FileSystem::named(word.key));
        let Some(of) = named else {
            return text.parse().map(LayoutSource::Configured);
        };
        let mut servers = None;
        for word in words {
            match word.key {
                "servers" => word.set(&mut servers, word.servers()?)?,
                _ => return Err(word.wrong("servers=NUMBER")),
            }
        }
        let missing = || LayoutError::new(text.len(), "servers=NUMBER is missing");
        let servers = servers.ok_or_else(missing)?;
        Ok(LayoutSource::Asked { of, servers })
    }
}

impl FileSystem {
    fn named(name: &str) -> Option<FileSystem> {
        match name {
            "gluster" => Some(FileSystem::Gluster),
            "lustre" => Some(FileSystem::Lustre),
            "ceph" => Some(FileSystem::Ceph),
            _ => None,
        }
    }

    /// Where it says so; the second for those whom it does not show the first.
    fn attributes(self) -> &'static [&'static str] {
        match self {
            FileSystem::Gluster => &["trusted.glusterfs.pathinfo", "glusterfs.pathinfo"],
            FileSystem::Lustre => &["lustre.lov", "trusted.lov"],
            FileSystem::Ceph => &["ceph.file.layout"],
        }
    }

    fn parse(self, value: &[u8]) -> Result<Layout<String>, LayoutError> {
        match self {
            FileSystem::Gluster => layout::gluster::parse(value),
            FileSystem::Lustre => layout::lustre::parse(value),
            FileSystem::Ceph => layout::ceph::parse(value),
        }
    }
}

/// A directory whose data servers are known.
pub struct Located {
    source: LayoutSource,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Names of servers by number.
    names: Vec<String>,
    problems: Problems,
}

/// Files whose servers are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// How many opens there were.
    pub opens: u64,
    /// Why, the last time.
    pub last: Option<String>,
}

impl Located {
    /// A directory whose layouts come from there.
    pub fn new(source: LayoutSource) -> Located {
        let seen = Mutex::default();
        Located { source, seen }
    }

    /// The servers that were seen so far, by number; none where they have no names.
    pub fn names(&self) -> Vec<String> {
        self.seen().names.clone()
    }

    /// How often a layout was missing or made no sense.
    pub fn problems(&self) -> Problems {
        self.seen().problems.clone()
    }

    fn layout(&self, of: FileSystem, file: BorrowedFd<'_>, servers: u32) -> Layout<u32> {
        let read = attribute(of, file).map_err(|error| error.to_string());
        let parsed = read.and_then(|value| of.parse(&value).map_err(|error| error.to_string()));
        let mut seen = self.seen();
        match parsed {
            Ok(layout) => layout.rename(|name| seen.number(name, servers)),
            Err(problem) => {
                seen.problems.opens += 1;
                seen.problems.last = Some(problem);
                Layout::whole(Servers::Unknown)
            }
        }
    }

    fn placement(&self, file: BorrowedFd<'_>) -> io::Result<Placement> {
        let inode = rustix::fs::fstat(file)?.st_ino;
        let (layout, servers) = match self.source {
            LayoutSource::Configured(configured) => {
                (configured.layout(inode), configured.servers())
            }
            LayoutSource::Asked { of, servers } => (self.layout(of, file, servers), servers),
        };
        Ok(Placement::new(layout, inode, servers))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Names and problems are whole between any two steps.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn number(&mut self, name: String, servers: u32) -> u32 {
        let known = self.names.iter().position(|known| *known == name);
        match known {
            // Fewer than `servers`.
            Some(number) => number as u32,
            None if (self.names.len() as u64) < u64::from(servers) => {
                self.names.push(name);
                (self.names.len() - 1) as u32
            }
            None => number_of(name.as_bytes(), servers),
        }
    }
}

/// The value of the first attribute that there is.
fn attribute(of: FileSystem, file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut error = Errno::NODATA;
    for name in of.attributes() {
        match value(file, name) {
            Ok(value) => return Ok(value),
            Err(other) => error = other,
        }
    }
    let (names, error) = (of.attributes().join(" or "), io::Error::from(error));
    let what = format!("the file system does not say {names}: {error}");
    Err(io::Error::other(what))
}

fn value(file: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Vec<u8>> {
    // The kernel allows no more than 64 KiB.
    for room in [1 << 10, 64 << 10] {
        let mut value = vec![0; room];
        match rustix::fs::fgetxattr(file, name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(value);
            }
            Err(Errno::RANGE) => {}
            Err(other) => return Err(other),
        }
    }
    Err(Errno::RANGE)
}

impl Storage for Located {
    fn servers(&self) -> u32 {
        match self.source {
            LayoutSource::Configured(configured) => configured.servers(),
            LayoutSource::Asked { servers, .. } => servers.max(1),
        }
    }

    fn open(&self, opened: OwnedFd, access: Access) -> io::Result<Arc<dyn Bytes>> {
        let placement = self.placement(opened.as_fd())?;
        let plain = Directory.open(opened, access)?;
        Ok(Arc::new(Split { plain, placement }))
    }

    fn created(&self, opened: BorrowedFd<'_>) -> io::Result<()> {
        Directory.created(opened)
    }

    fn size(&self, name: BorrowedFd<'_>) -> io::Result<Option<Size>> {
        Directory.size(name)
    }

    fn removed(&self, name: BorrowedFd<'_>) -> io::Result<()> {
        Directory.removed(name)
    }
}

/// An open file whose servers are known.
struct Split {
    plain: Arc<dyn Bytes>,
    placement: Placement,
}

impl Bytes for Split {
    fn pieces(&self, range: Range) -> Pieces {
        self.placement.pieces(range)
    }

    fn places(&self, _: u16, range: Range) -> Pieces {
        self.placement.places(range)
    }

    fn read_now(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<Now> {
        self.plain.read_now(object, offset, to)
    }

    fn read(&self, object: u16, offset: u64, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.plain.read(object, offset, to)
    }

    fn write(&self, object: u16, offset: u64, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.plain.write(object, offset, from)
    }

    fn append(&self, from: &[u8]) -> io::Result<usize> {
        self.plain.append(from)
    }

    fn size(&self) -> io::Result<Option<Size>> {
        self.plain.size()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.plain.set_len(bytes)
    }

    fn sync(&self, how: Durable) -> io::Result<()> {
        self.plain.sync(how)
    }

    fn descriptor(&self, object: u16) -> Option<BorrowedFd<'_>> {
        self.plain.descriptor(object)
    }

    fn name(&self) -> BorrowedFd<'_> {
        self.plain.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named_as_a_person_would() {
        let asked = |of| Ok(LayoutSource::Asked { of, servers: 4 });
        assert_eq!("gluster servers=4".parse(), asked(FileSystem::Gluster));
        assert_eq!("lustre servers=4".parse(), asked(FileSystem::Lustre));
        assert_eq!("ceph servers=4".parse(), asked(FileSystem::Ceph));
        let configured: LayoutSource = "servers=4 stripe=1MiB".parse().expect("a layout");
        assert!(matches!(configured, LayoutSource::Configured(_)));
        for wrong in [
            "gluster",
            "gluster servers=0",
            "lustre stripe=1MiB",
            "afs servers=1",
            "",
        ] {
            assert!(wrong.parse::<LayoutSource>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn servers_are_numbered_as_they_are_seen_and_then_share_numbers() {
        let mut seen = Seen::default();
        let mut number = |name: &str| seen.number(name.into(), 3);
        assert_eq!(
            [number("b"), number("a"), number("b"), number("c")],
            [0, 1, 0, 2]
        );
        let late = number("d");
        assert!(late < 3 && late == number("d"));
        assert_eq!(seen.names, ["b", "a", "c"]);
    }
}
