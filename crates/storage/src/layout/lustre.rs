//! Lustre: the attribute `lustre.lov` (or `trusted.lov`), as `lustre_user.h` documents it. All numbers are little-endian.
//!
//! ```text
//! lov_user_md_v1                          lov_comp_md_v1
//!  0  u32  magic 0x0BD10BD0                0  u32  magic 0x0BD60BD0
//!  4  u32  pattern                         4  u32  size of all
//!  8  16   object id                       8  u32  generation
//! 24  u32  stripe size                    12  u16  flags
//! 28  u16  stripe count                   14  u16  number of entries
//! 30  u16  generation                     16  u16  mirrors − 1; then 14 bytes that are reserved
//! 32  objects (v1)                        32  entries
//! v3: magic 0x0BD30BD0, and               lov_comp_md_entry_v1, 48 bytes
//! 32  16   name of the pool                0  u32  id; bits 16 to 30 number the mirror
//! 48  objects                              4  u32  flags
//! lov_user_ost_data_v1, 24 bytes           8  u64  from this byte of the file
//!  0  16   object id                      16  u64  up to that one
//! 16  u32  generation                     24  u32  where its lov_user_md is
//! 20  u32  index of the target            28  u32  how long that is; then 16 bytes more
//! ```
//!
//! A plain layout is one part. A composite one has parts, each with a layout of its own, whose stripes are counted from the
//! beginning of the file; a part that nobody has written to yet has no objects. Mirrors are several lists of parts for
//! the same file: the one is taken that is up to date and preferred for reading. A server is an object storage target,
//! called `OST0003`; small parts may lie on the metadata server, called `MDT`.

use super::{Layout, LayoutError, Part, STRIPE_MIN, Servers};

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
/// As V3.
const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
/// Kept by something else altogether.
const MAGIC_FOREIGN: u32 = 0x0BD7_0BD0;

/// Stripes in turn, and nothing else.
const PATTERN_RAID0: u32 = 0x1;
/// On the metadata server.
const PATTERN_MDT: u32 = 0x100;
/// Moved to an archive, its objects are gone.
const PATTERN_RELEASED: u32 = 0x8000_0000;

const FLAG_STALE: u32 = 0x1;
const FLAG_PREFERRED: u32 = 0x2;
const FLAG_INSTANTIATED: u32 = 0x10;
const FLAG_PARITY: u32 = 0x80;

/// The value of the attribute.
pub fn parse(value: &[u8]) -> Result<Layout<String>, LayoutError> {
    let bytes = Bytes {
        bytes: value,
        at: 0,
    };
    match bytes.u32(0)? {
        MAGIC_COMPOSITE => composite(bytes),
        _ => Ok(Layout::whole(plain(bytes)?)),
    }
}

/// Who has a part with one plain layout.
fn plain(bytes: Bytes<'_>) -> Result<Servers<String>, LayoutError> {
    let objects = match bytes.u32(0)? {
        MAGIC_V1 => 32,
        MAGIC_V3 | MAGIC_SPECIFIC => 48,
        MAGIC_FOREIGN => return Ok(Servers::Unknown),
        other => {
            let what = format!("{other:#010x} begins no layout that is known");
            return Err(bytes.wrong(0, what));
        }
    };
    let pattern = bytes.u32(4)?;
    if pattern & PATTERN_RELEASED != 0 {
        return Ok(Servers::Unknown);
    }
    if pattern & PATTERN_MDT != 0 {
        let (stripe, servers) = (u64::MAX, vec!["MDT".to_owned()]);
        return Ok(Servers::Turns { stripe, servers });
    }
    match pattern & PATTERN_RAID0 {
        0 => Ok(Servers::Unknown),
        _ => stripes(bytes, objects),
    }
}

fn stripes(bytes: Bytes<'_>, objects: usize) -> Result<Servers<String>, LayoutError> {
    let (stripe, count) = (u64::from(bytes.u32(24)?), bytes.u16(28)?);
    if count == 0 {
        return Ok(Servers::Unknown);
    }
    if stripe < STRIPE_MIN {
        let what = format!("stripes of {stripe} bytes; 4096 is the least");
        return Err(bytes.wrong(24, what));
    }
    let index = |i: u16| bytes.u32(objects + 24 * usize::from(i) + 20);
    let servers = (0..count).map(|i| index(i).map(|index| format!("OST{index:04x}")));
    let servers = servers.collect::<Result<_, _>>()?;
    Ok(Servers::Turns { stripe, servers })
}

/// An entry of a composite layout.
struct Entry {
    mirror: u32,
    flags: u32,
    start: u64,
    part: Part<String>,
}

fn composite(bytes: Bytes<'_>) -> Result<Layout<String>, LayoutError> {
    let entries = (0..bytes.u16(14)?).map(|i| entry(bytes, 32 + 48 * usize::from(i)));
    let mut entries = entries.collect::<Result<Vec<Entry>, LayoutError>>()?;
    entries.retain(|entry| entry.flags & FLAG_PARITY == 0);
    let mirror = best_mirror(&entries);
    entries.retain(|entry| Some(entry.mirror) == mirror);
    entries.sort_by_key(|entry| entry.start);
    let mut parts = Vec::new();
    let mut end = 0;
    for entry in entries {
        if entry.start < end {
            return Err(bytes.wrong(32, "parts of the file overlap".into()));
        }
        if entry.start > end {
            let (end, servers) = (entry.start, Servers::Unknown);
            parts.push(Part { end, servers });
        }
        end = entry.part.end;
        parts.push(entry.part);
    }
    Ok(Layout::parts(parts))
}

fn entry(bytes: Bytes<'_>, at: usize) -> Result<Entry, LayoutError> {
    let (id, flags) = (bytes.u32(at)?, bytes.u32(at + 4)?);
    let (start, end) = (bytes.u64(at + 8)?, bytes.u64(at + 16)?);
    if start >= end {
        let what = format!("a part of the file from {start} to {end}");
        return Err(bytes.wrong(at + 8, what));
    }
    let layout = bytes.part(at + 24, bytes.u32(at + 24)?, bytes.u32(at + 28)?)?;
    let servers = match flags & FLAG_INSTANTIATED {
        0 => Servers::Unknown,
        _ => plain(layout)?,
    };
    Ok(Entry {
        mirror: id >> 16 & 0x7FFF,
        flags,
        start,
        part: Part { end, servers },
    })
}

/// The mirror that reads go to: nothing of it is stale, and it is preferred; else the first.
fn best_mirror(entries: &[Entry]) -> Option<u32> {
    let stale = |mirror| {
        let of_it = entries.iter().filter(|entry| entry.mirror == mirror);
        of_it.fold((false, true), |(stale, other), entry| {
            (
                stale || entry.flags & FLAG_STALE != 0,
                other && entry.flags & FLAG_PREFERRED == 0,
            )
        })
    };
    let mut mirrors: Vec<u32> = entries.iter().map(|entry| entry.mirror).collect();
    mirrors.dedup();
    mirrors.into_iter().min_by_key(|mirror| stale(*mirror))
}

/// Bytes of the value, and where in it they begin.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    fn u16(self, at: usize) -> Result<u16, LayoutError> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32, LayoutError> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, LayoutError> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], LayoutError> {
        let array = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        let missing = || format!("{N} bytes are wanted here, but the value ends before");
        array.copied().ok_or_else(|| self.wrong(at, missing()))
    }

    /// What an entry at `at` says is `len` bytes long, `offset` bytes from the beginning.
    fn part(self, at: usize, offset: u32, len: u32) -> Result<Bytes<'a>, LayoutError> {
        let (start, len) = (offset as usize, len as usize);
        let bytes = self.bytes.get(start..).and_then(|rest| rest.get(..len));
        let missing = || self.wrong(at, format!("{len} bytes at {start} are not in the value"));
        let bytes = bytes.ok_or_else(missing)?;
        Ok(Bytes { bytes, at: start })
    }

    fn wrong(self, at: usize, what: String) -> LayoutError {
        LayoutError::new(self.at + at, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain layout as Lustre would write it.
    fn v1(stripe: u32, targets: &[u32]) -> Vec<u8> {
        layout(MAGIC_V1, PATTERN_RAID0, stripe, targets)
    }

    fn layout(magic: u32, pattern: u32, stripe: u32, targets: &[u32]) -> Vec<u8> {
        let mut bytes = [magic.to_le_bytes(), pattern.to_le_bytes()].concat();
        bytes.extend([9; 16]);
        bytes.extend(stripe.to_le_bytes());
        bytes.extend((targets.len() as u16).to_le_bytes());
        bytes.extend([3, 0]);
        if magic != MAGIC_V1 {
            bytes.extend(*b"flash\0\0\0\0\0\0\0\0\0\0\0");
        }
        for target in targets {
            bytes.extend([7; 20]);
            bytes.extend(target.to_le_bytes());
        }
        bytes
    }

    /// Entries of (id, flags, start, end, layout).
    fn comp(entries: &[(u32, u32, u64, u64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = MAGIC_COMPOSITE.to_le_bytes().to_vec();
        bytes.extend([0; 10]);
        bytes.extend((entries.len() as u16).to_le_bytes());
        bytes.extend([0; 16]);
        let mut blobs: Vec<u8> = Vec::new();
        for (id, flags, start, end, layout) in entries {
            let offset = (32 + 48 * entries.len() + blobs.len()) as u32;
            bytes.extend([id.to_le_bytes(), flags.to_le_bytes()].concat());
            bytes.extend([start.to_le_bytes(), end.to_le_bytes()].concat());
            bytes.extend([offset.to_le_bytes(), (layout.len() as u32).to_le_bytes()].concat());
            bytes.extend([0; 16]);
            blobs.extend(layout);
        }
        bytes.extend(blobs);
        bytes
    }

    fn on(stripe: u64, servers: &[&str]) -> Servers<String> {
        let servers = servers.iter().map(|server| (*server).to_owned()).collect();
        Servers::Turns { stripe, servers }
    }

    #[test]
    fn targets_of_a_plain_layout_take_turns() {
        let expected = Layout::whole(on(1 << 20, &["OST0003", "OST0000", "OST0105"]));
        assert_eq!(parse(&v1(1 << 20, &[3, 0, 0x105])), Ok(expected.clone()));
        let v3 = layout(MAGIC_V3, PATTERN_RAID0, 1 << 20, &[3, 0, 0x105]);
        assert_eq!(parse(&v3), Ok(expected));
    }

    #[test]
    fn parts_of_a_composite_layout_follow_each_other() {
        let mdt = layout(MAGIC_V1, PATTERN_MDT, 1 << 20, &[]);
        let (init, eof) = (FLAG_INSTANTIATED, u64::MAX);
        let value = comp(&[
            (1, init, 0, 65536, mdt),
            (2, init, 65536, 1 << 30, v1(1 << 20, &[1, 2])),
            (3, 0, 1 << 30, eof, v1(4 << 20, &[])),
        ]);
        let part = |end, servers| Part { end, servers };
        let expected = Layout::parts(vec![
            part(65536, on(u64::MAX, &["MDT"])),
            part(1 << 30, on(1 << 20, &["OST0001", "OST0002"])),
            part(eof, Servers::Unknown),
        ]);
        assert_eq!(parse(&value), Ok(expected));
    }

    #[test]
    fn of_mirrors_the_preferred_one_is_taken_that_is_up_to_date() {
        let mirror = |id: u32, flags, target| {
            (
                id << 16 | 1,
                FLAG_INSTANTIATED | flags,
                0,
                u64::MAX,
                v1(1 << 20, &[target]),
            )
        };
        let taken = |mirrors: &[_]| {
            let layout = parse(&comp(mirrors)).expect("a layout");
            format!("{layout:?}")
        };
        let fresh = taken(&[mirror(1, FLAG_STALE | FLAG_PREFERRED, 1), mirror(2, 0, 2)]);
        assert!(fresh.contains("OST0002") && !fresh.contains("OST0001"));
        let preferred = taken(&[mirror(1, 0, 1), mirror(2, FLAG_PREFERRED, 2)]);
        assert!(preferred.contains("OST0002"));
        let parity = taken(&[mirror(1, FLAG_PARITY, 1), mirror(2, 0, 2)]);
        assert!(parity.contains("OST0002"));
    }

    #[test]
    fn what_is_in_an_archive_or_elsewhere_is_unknown() {
        let released = layout(MAGIC_V1, PATTERN_RAID0 | PATTERN_RELEASED, 1 << 20, &[1]);
        let foreign = layout(MAGIC_FOREIGN, 0, 0, &[]);
        for value in [released, foreign, v1(1 << 20, &[])] {
            assert_eq!(parse(&value), Ok(Layout::whole(Servers::Unknown)));
        }
    }

    #[test]
    fn a_value_that_ends_too_early_is_refused_wherever_it_ends() {
        let whole = [
            v1(1 << 20, &[1, 2]),
            comp(&[(1, FLAG_INSTANTIATED, 0, u64::MAX, v1(1 << 20, &[1, 2]))]),
        ];
        for value in whole {
            for len in 0..value.len() {
                assert!(parse(&value[..len]).is_err(), "{len} bytes");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert_eq!(parse(&v1(512, &[1])).expect_err("tiny stripes").at, 24);
        assert_eq!(parse(&[0; 100]).expect_err("no magic").at, 0);
        let twice = (1, FLAG_INSTANTIATED, 0, 4096, v1(65536, &[1]));
        let overlap = comp(&[twice.clone(), twice]);
        assert!(
            parse(&overlap)
                .expect_err("an overlap")
                .what
                .contains("overlap")
        );
    }
}
