//! The header of a `.darshan` log: who wrote it, how, and where its regions are.
//!
//! | bytes (to 3.40) | bytes (from 3.41) | what |
//! |---|---|---|
//! | 0–7 | 0–7 | version as text, padded with zeros |
//! | 8–15 | 8–15 | the magic number, by which one tells the byte order |
//! | 16 | 16 | compression: 0 zlib, 1 bzip2, 2 none |
//! | 20–23 | 24–31 | one bit per module that ran out of memory |
//! | 24–39 | 32–47 | offset and length of the name region |
//! | 40–295 | 48–1071 | offset and length of each module's region, 16 or 64 of them |
//! | 296–359 | 1072–1327 | version of each module's records |
//!
//! The job region begins where the header ends.

use super::region::Codec;
use crate::Reason;
use std::fs::File;
use std::os::unix::fs::FileExt;

const MAGIC: u64 = 6_567_223;

/// How many bytes have to be there before we know how many more to read.
const PROLOGUE: usize = 24;

/// The byte order of the machine that wrote the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The number at `at`; the caller has checked that the bytes are there.
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let mut raw = [0; 8];
        raw.copy_from_slice(&bytes[at..at + 8]);
        match self {
            Order::Little => u64::from_le_bytes(raw),
            Order::Big => u64::from_be_bytes(raw),
        }
    }

    pub(super) fn i64(self, bytes: &[u8], at: usize) -> i64 {
        self.u64(bytes, at) as i64
    }

    pub(super) fn f64(self, bytes: &[u8], at: usize) -> f64 {
        f64::from_bits(self.u64(bytes, at))
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let mut raw = [0; 4];
        raw.copy_from_slice(&bytes[at..at + 4]);
        match self {
            Order::Little => u32::from_le_bytes(raw),
            Order::Big => u32::from_be_bytes(raw),
        }
    }
}

/// Where a region is in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Extent {
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// A module's region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    pub(super) extent: Extent,
    pub(super) version: u32,
    /// The module ran out of memory: its last records are missing.
    pub(super) partial: bool,
}

/// What the header says.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: String,
    pub(super) order: Order,
    pub(super) codec: Codec,
    pub(super) job: Extent,
    pub(super) names: Extent,
    pub(super) posix: Module,
    pub(super) mpiio: Module,
    pub(super) layout: Layout,
}

/// What differs between versions of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    modules: usize,
    partial_at: usize,
    names_at: usize,
    /// The module number of DXT_POSIX; DXT_MPIIO is the next.
    dxt: usize,
    /// How many numbers the job record begins with.
    pub(super) job_numbers: usize,
}

impl Layout {
    /// Modules were inserted before DXT in 3.20 (H5D) and in 3.41 (a second one of PnetCDF).
    fn of(minor: u32) -> Layout {
        let old = Layout {
            modules: 16,
            partial_at: 20,
            names_at: 24,
            dxt: 8,
            job_numbers: 5,
        };
        match minor {
            0..20 => old,
            20..41 => Layout { dxt: 9, ..old },
            _ => Layout {
                modules: 64,
                partial_at: 24,
                names_at: 32,
                dxt: 10,
                job_numbers: 7,
            },
        }
    }

    fn extents_at(self) -> usize {
        self.names_at + 16
    }

    fn versions_at(self) -> usize {
        self.extents_at() + 16 * self.modules
    }

    fn size(self) -> usize {
        self.versions_at() + 4 * self.modules
    }
}

impl Header {
    /// Reads the header of a log of `len` bytes.
    pub(super) fn read(file: &File, len: u64) -> Result<Header, Reason> {
        let mut prologue = [0; PROLOGUE];
        read_exact(file, &mut prologue)?;
        let order = order_of(&prologue)?;
        let version = version_of(&prologue);
        let layout = Layout::of(minor_of(&version)?);
        let mut bytes = vec![0; layout.size()];
        read_exact(file, &mut bytes)?;
        let header = Header::parse(&bytes, version, order, layout, len)?;
        header.check(len)?;
        Ok(header)
    }

    fn parse(
        bytes: &[u8],
        version: String,
        order: Order,
        layout: Layout,
        len: u64,
    ) -> Result<Header, Reason> {
        let names = extent(bytes, order, layout.names_at);
        Ok(Header {
            version,
            order,
            codec: Codec::from_number(bytes[16])?,
            job: job(bytes, order, layout, names, len),
            names,
            posix: module(bytes, order, layout, layout.dxt),
            mpiio: module(bytes, order, layout, layout.dxt + 1),
            layout,
        })
    }

    /// All that we are going to read lies in the file.
    fn check(&self, len: u64) -> Result<(), Reason> {
        let regions = [
            ("job", self.job),
            ("name", self.names),
            ("DXT_POSIX", self.posix.extent),
            ("DXT_MPIIO", self.mpiio.extent),
        ];
        for (name, extent) in regions {
            if extent.len > 0 && extent.end() > len {
                return Err(Reason::Malformed(format!(
                    "the {name} region should end at byte {}, but the log ends at {len}: it is cut short",
                    extent.end()
                )));
            }
        }
        Ok(())
    }
}

fn read_exact(file: &File, bytes: &mut [u8]) -> Result<(), Reason> {
    file.read_exact_at(bytes, 0).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => Reason::Malformed(format!(
            "the file ends within the {} bytes of the header: it is no Darshan log, or cut short",
            bytes.len()
        )),
        _ => Reason::Io(e),
    })
}

fn order_of(prologue: &[u8]) -> Result<Order, Reason> {
    [Order::Little, Order::Big]
        .into_iter()
        .find(|order| order.u64(prologue, 8) == MAGIC)
        .ok_or_else(|| {
            Reason::Malformed("Darshan's magic number is missing: this is no Darshan log".into())
        })
}

fn version_of(prologue: &[u8]) -> String {
    let text = prologue[..8].split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn minor_of(version: &str) -> Result<u32, Reason> {
    version
        .strip_prefix("3.")
        .and_then(|minor| minor.parse().ok())
        .ok_or_else(|| {
            Reason::Unsupported(format!(
                "version {version:?} of Darshan's log; only 3.x can be read"
            ))
        })
}

fn extent(bytes: &[u8], order: Order, at: usize) -> Extent {
    Extent {
        offset: order.u64(bytes, at),
        len: order.u64(bytes, at + 8),
    }
}

fn module(bytes: &[u8], order: Order, layout: Layout, id: usize) -> Module {
    let partial = match layout.names_at - layout.partial_at {
        4 => order.u32(bytes, layout.partial_at).into(),
        _ => order.u64(bytes, layout.partial_at),
    };
    Module {
        extent: extent(bytes, order, layout.extents_at() + 16 * id),
        version: order.u32(bytes, layout.versions_at() + 4 * id),
        partial: partial >> id & 1 == 1,
    }
}

/// The job region ends where the first other region begins, or the file ends.
fn job(bytes: &[u8], order: Order, layout: Layout, names: Extent, len: u64) -> Extent {
    let begin = layout.size() as u64;
    let modules = (0..layout.modules).map(|id| extent(bytes, order, layout.extents_at() + 16 * id));
    let end = std::iter::once(names)
        .chain(modules)
        .map(|region| region.offset)
        .filter(|&offset| offset >= begin)
        .min()
        .unwrap_or(len);
    Extent {
        offset: begin,
        len: end.min(len).saturating_sub(begin),
    }
}
