//! All tapes: kept from run to run as bytes, with the order in which files were opened.
//!
//! ```text
//! 8 bytes    "presatap"
//! 4 bytes    version, 2, little endian as all that follows
//! 8 bytes    checksum of the rest (FNV-1a)
//! rest       numbers as varints of seven bits a byte, lowest first:
//!            number of files, (length of the path, path, size, four costs of a read (0, or 1 + ns),
//!                              ns of an operation, ps of a byte (both 0: not known),
//!                              number of reads, (start − end of the one before, zigzag; length)…)…
//!            number of orders, (file, the one opened after it; both as places in the list above)…
//! ```

use super::governor::Costs;
use super::speed::Fit;
use super::tape::{READS_MAX, Tape};
use presagio_core::Range;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"presatap";
const VERSION: u32 = 2;
const HEADER: usize = 20;
/// All tapes together: 64 MiB of memory.
const READS_ALL_MAX: usize = 1 << 22;
/// And so many files.
const FILES_MAX: usize = 1 << 14;
/// A file smaller than this is read before a hint can help, and builds open thousands of them.
const SIZE_MIN: u64 = 128 << 10;
/// PATH_MAX.
const PATH_BYTES_MAX: u64 = 4096;

/// What is kept of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Its size: with another, its tape is another's.
    pub size: u64,
    /// Its reads.
    pub tape: Arc<Tape>,
    /// What a read cost with each method, in nanoseconds.
    pub costs: Costs,
    /// What its device could do.
    pub fit: Option<Fit>,
    used: u64,
}

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tapes {
    files: BTreeMap<PathBuf, Kept>,
    after: BTreeMap<PathBuf, PathBuf>,
    reads: usize,
    clock: u64,
}

/// Why saved tapes are not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// They are something else.
    #[error("these are no tapes that Presagio saved")]
    NotTapes,
    /// They were written by another version.
    #[error("the tapes have format {0}, this Presagio reads {VERSION}: let it record them anew")]
    OtherVersion(u32),
    /// Bytes are missing or changed.
    #[error("the tapes are damaged at byte {0}: delete them, and let Presagio record them anew")]
    Damaged(usize),
}

impl Tapes {
    /// What is kept of a file of this name and size.
    pub fn get(&self, path: &Path, size: u64) -> Option<&Kept> {
        self.files.get(path).filter(|kept| kept.size == size)
    }

    /// The file that was opened after this one.
    pub fn after(&self, path: &Path) -> Option<&Path> {
        self.after.get(path).map(PathBuf::as_path)
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// A program opened `next` after `path`.
    pub fn opened_after(&mut self, path: &Path, next: &Path) {
        if path != next && (self.after.len() < FILES_MAX || self.after.contains_key(path)) {
            self.after.insert(path.to_owned(), next.to_owned());
        }
    }

    /// Keeps what was recorded of a file, unless what is kept already tells more. The files that were kept longest ago
    /// go when there are too many.
    pub fn keep(
        &mut self,
        path: &Path,
        size: u64,
        tape: Arc<Tape>,
        costs: Costs,
        fit: Option<Fit>,
    ) {
        let fuller = self
            .get(path, size)
            .is_some_and(|k| k.tape.len() > 2 * tape.len());
        if size < SIZE_MIN || tape.is_empty() || fuller {
            return;
        }
        // A run in which the device was hardly waited for says nothing about it: what was known stays.
        let fit = fit.or_else(|| self.files.get(path)?.fit);
        self.clock += 1;
        self.reads += tape.len();
        let used = self.clock;
        let kept = Kept {
            size,
            tape,
            costs,
            fit,
            used,
        };
        if let Some(before) = self.files.insert(path.to_owned(), kept) {
            self.reads -= before.tape.len();
        }
        while self.reads > READS_ALL_MAX || self.files.len() > FILES_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.files.iter().min_by_key(|(_, kept)| kept.used);
        let Some(path) = oldest.map(|(path, _)| path.clone()) else {
            return;
        };
        if let Some(kept) = self.files.remove(&path) {
            self.reads -= kept.tape.len();
        }
    }

    /// As bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        let mut places = BTreeMap::new();
        // The oldest first, so that their order in time survives.
        let mut files: Vec<(&PathBuf, &Kept)> = self.files.iter().collect();
        files.sort_by_key(|(_, kept)| kept.used);
        put(&mut rest, files.len() as u64);
        for (place, (path, kept)) in files.into_iter().enumerate() {
            places.insert(path, place as u64);
            put_kept(&mut rest, path, kept);
        }
        let place = |path| places.get(path).copied();
        let after = self.after.iter();
        let after: Vec<_> = after
            .filter_map(|(a, b)| Some((place(a)?, place(b)?)))
            .collect();
        put(&mut rest, after.len() as u64);
        after.iter().for_each(|(a, b)| {
            put(&mut rest, *a);
            put(&mut rest, *b);
        });
        let header = [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &checksum(&rest).to_le_bytes(),
        ];
        [header.concat(), rest].concat()
    }

    /// From bytes.
    pub fn load(bytes: &[u8]) -> Result<Tapes, LoadError> {
        if bytes.len() < HEADER || bytes[..8] != *MAGIC {
            return Err(LoadError::NotTapes);
        }
        let (header, rest) = bytes.split_at(HEADER);
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(LoadError::OtherVersion(version));
        }
        if header[12..] != checksum(rest).to_le_bytes() {
            return Err(LoadError::Damaged(12));
        }
        let mut source = Source { bytes: rest, at: 0 };
        let tapes = source.tapes();
        match tapes {
            Some(tapes) if source.at == rest.len() => Ok(tapes),
            _ => Err(LoadError::Damaged(HEADER + source.at)),
        }
    }
}

/// The name with its last number counted up by one, as `step_0008.dat` after `step_0007.dat`.
pub fn counted_up(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes();
    let last = name.iter().rposition(u8::is_ascii_digit)?;
    let first = name[..last].iter().rposition(|c| !c.is_ascii_digit());
    let first = first.map_or(0, |i| i + 1);
    let digits = std::str::from_utf8(&name[first..=last]).ok()?;
    let number = digits.parse::<u64>().ok()?.checked_add(1)?;
    let width = digits.len();
    let number = format!("{number:0width$}");
    let name = [&name[..first], number.as_bytes(), &name[last + 1..]].concat();
    Some(path.with_file_name(OsStr::from_bytes(&name)))
}

fn put_kept(rest: &mut Vec<u8>, path: &Path, kept: &Kept) {
    let path = path.as_os_str().as_bytes();
    put(rest, path.len() as u64);
    rest.extend_from_slice(path);
    put(rest, kept.size);
    for cost in kept.costs {
        put(rest, cost.map_or(0, |ns| 1 + ns.max(0.0) as u64));
    }
    let fit = kept.fit.map_or((0.0, 0.0), |f| (f.operation_ns, f.byte_ns));
    put(rest, fit.0 as u64);
    put(rest, (fit.1 * 1e3) as u64);
    put(rest, kept.tape.len() as u64);
    let mut end = 0u64;
    for read in kept.tape.from(0) {
        put(rest, zigzag(read.start().wrapping_sub(end) as i64));
        put(rest, read.len());
        end = read.end();
    }
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Bytes that are read one number after the other; `None` when they end or are wrong. Nothing is reserved by a number
/// that was read: what is held never exceeds a small multiple of the bytes there are.
struct Source<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Source<'_> {
    fn tapes(&mut self) -> Option<Tapes> {
        let mut tapes = Tapes::default();
        let mut paths = Vec::new();
        for _ in 0..self.number(FILES_MAX as u64)? {
            paths.push(self.kept(&mut tapes)?);
        }
        for _ in 0..self.number(FILES_MAX as u64)? {
            let (path, next) = (self.place(&paths)?, self.place(&paths)?);
            tapes.opened_after(&path, &next);
        }
        Some(tapes)
    }

    fn kept(&mut self, tapes: &mut Tapes) -> Option<PathBuf> {
        let len = self.number(PATH_BYTES_MAX)? as usize;
        let path = self.bytes.get(self.at..self.at + len)?.to_vec();
        self.at += len;
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        let size = self.number(u64::MAX)?;
        let costs = [self.cost()?, self.cost()?, self.cost()?, self.cost()?];
        let fit = self.fit()?;
        let tape = self.tape()?;
        tapes.keep(&path, size, Arc::new(tape), costs, fit);
        Some(path)
    }

    fn cost(&mut self) -> Option<Option<f64>> {
        let cost = self.number(u64::MAX)?;
        Some(cost.checked_sub(1).map(|ns| ns as f64))
    }

    fn fit(&mut self) -> Option<Option<Fit>> {
        let (operation, byte) = (self.number(u64::MAX)?, self.number(u64::MAX)?);
        Some((operation > 0 || byte > 0).then_some(Fit {
            apart: true,
            operation_ns: operation as f64,
            byte_ns: byte as f64 / 1e3,
        }))
    }

    fn tape(&mut self) -> Option<Tape> {
        let mut tape = Tape::default();
        let mut end = 0u64;
        for _ in 0..self.number(READS_MAX as u64)? {
            let start = end.wrapping_add(unzigzag(self.number(u64::MAX)?) as u64);
            let range = Range::new(start, self.number(u64::from(u32::MAX))?)?;
            tape.push(range);
            end = range.end();
        }
        Some(tape)
    }

    fn place(&mut self, paths: &[PathBuf]) -> Option<PathBuf> {
        let place = self.number(FILES_MAX as u64)?;
        paths.get(place as usize).cloned()
    }

    fn number(&mut self, max: u64) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return (value <= max).then_some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tape(reads: &[(u64, u32)]) -> Arc<Tape> {
        let mut tape = Tape::default();
        for (start, len) in reads {
            tape.push(Range::at(*start, u64::from(*len)));
        }
        Arc::new(tape)
    }

    fn some() -> Tapes {
        let fit = Fit {
            apart: true,
            operation_ns: 80_000.0,
            byte_ns: 0.667,
        };
        let mut tapes = Tapes::default();
        let (a, b) = (Path::new("/data/a"), Path::new("/data/b"));
        let costs = [Some(5.0), None, Some(7.0), Some(0.0)];
        tapes.keep(
            a,
            1 << 20,
            tape(&[(900, 4), (0, 7), (1 << 50, 1)]),
            costs,
            Some(fit),
        );
        tapes.keep(b, 1 << 30, tape(&[(1, 2)]), Costs::default(), None);
        tapes.opened_after(a, b);
        tapes
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let tapes = some();
        assert_eq!(Tapes::load(&tapes.save()), Ok(tapes));
    }

    #[test]
    fn a_file_of_another_size_is_another_file() {
        let tapes = some();
        assert!(tapes.get(Path::new("/data/a"), 1 << 20).is_some());
        assert!(tapes.get(Path::new("/data/a"), 1 << 21).is_none());
    }

    #[test]
    fn other_bytes_are_refused_and_say_why() {
        assert_eq!(
            Tapes::load(b"something else entirely"),
            Err(LoadError::NotTapes)
        );
        let mut newer = some().save();
        newer[8] = 9;
        assert_eq!(Tapes::load(&newer), Err(LoadError::OtherVersion(9)));
    }

    #[test]
    fn the_oldest_files_go_first() {
        let mut tapes = Tapes::default();
        for i in 0..FILES_MAX + 3 {
            let path = PathBuf::from(format!("/{i}"));
            tapes.keep(&path, 1 << 20, tape(&[(0, 1)]), Costs::default(), None);
        }
        assert_eq!(tapes.len(), FILES_MAX);
        assert!(tapes.get(Path::new("/2"), 1 << 20).is_none());
        assert!(tapes.get(Path::new("/3"), 1 << 20).is_some());
    }

    #[test]
    fn a_short_look_does_not_replace_a_long_history() {
        let mut tapes = some();
        tapes.keep(
            Path::new("/data/a"),
            1 << 20,
            tape(&[(5, 5)]),
            Costs::default(),
            None,
        );
        assert_eq!(
            tapes.get(Path::new("/data/a"), 1 << 20).unwrap().tape.len(),
            3
        );
    }

    #[test]
    fn what_is_known_of_a_device_outlives_a_run_that_did_not_wait_for_it() {
        let mut tapes = some();
        let path = Path::new("/data/a");
        let fit = tapes.get(path, 1 << 20).unwrap().fit;
        assert!(fit.is_some());
        let longer = tape(&[(900, 4), (0, 7), (1 << 50, 1), (5, 5)]);
        tapes.keep(path, 1 << 20, longer, Costs::default(), None);
        let kept = tapes.get(path, 1 << 20).unwrap();
        assert_eq!((kept.tape.len(), kept.fit), (4, fit));
    }

    #[test]
    fn numbers_are_counted_up_and_keep_their_width() {
        let up = |name: &str| counted_up(Path::new(name));
        assert_eq!(up("/d1/step_0007.dat"), Some("/d1/step_0008.dat".into()));
        assert_eq!(up("/d1/out.99"), Some("/d1/out.100".into()));
        assert_eq!(up("/d1/x9y"), Some("/d1/x10y".into()));
        assert_eq!(up("/d1/input"), None);
        assert_eq!(up("/99999999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn all_reads_survive(reads in prop::collection::vec((any::<u64>(), 1u32..), 1..100)) {
            let reads: Vec<_> = reads.into_iter().map(|(s, l)| (s.min(u64::MAX - u64::from(l)), l)).collect();
            let mut tapes = Tapes::default();
            tapes.keep(Path::new("/a"), 1 << 20, tape(&reads), Costs::default(), None);
            prop_assert_eq!(Tapes::load(&tapes.save()).unwrap(), tapes);
        }

        #[test]
        fn damage_is_an_error_and_never_more(at in 0usize..1000, byte: u8, cut in 0usize..1000, sum: bool) {
            let mut bytes = some().save();
            bytes.truncate(bytes.len().saturating_sub(cut % 40));
            let at = at % bytes.len();
            let changed = bytes[at] != byte || cut % 40 > 0;
            bytes[at] = byte;
            if sum && bytes.len() > HEADER {
                // With a right checksum the reader itself has to stand firm.
                let right = checksum(&bytes[HEADER..]).to_le_bytes();
                bytes[12..HEADER].copy_from_slice(&right);
                _ = Tapes::load(&bytes);
            } else if changed {
                prop_assert!(Tapes::load(&bytes).is_err());
            }
        }

        #[test]
        fn noise_behind_a_right_header_is_no_danger(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let sum = checksum(&noise).to_le_bytes();
            let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &sum, &noise].concat();
            _ = Tapes::load(&bytes);
        }
    }
}
