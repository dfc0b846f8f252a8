//! The programs whose I/O `presagio bench run` makes faster: each is one process that reads real files, as the
//! hidden subcommand `bench-load`. They know nothing of Presagio.
//!
//! All draw their offsets from a seed, so that a run with Presagio reads what the run without it read, and print
//! a checksum of the bytes they got.

use clap::ValueEnum;
use presagio_core::Nanos;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Read a file as some kind of program does
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What it does
    pub kind: Kind,
    /// The file, or the directory of files
    pub path: PathBuf,
    /// How many bytes a read has on average
    #[arg(long, default_value_t = 256_000)]
    pub size: u64,
    /// How many reads there are
    #[arg(long, default_value_t = 1000)]
    pub reads: u64,
    /// How long it computes between two reads, in microseconds
    #[arg(long, default_value_t = 300)]
    pub compute: u64,
    /// What the offsets are drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Goes through a file and reads half of it, with gaps of any length up to twice that of a read; every few dozen reads
    /// one is 1 to 8 MiB back (MERCURY §IV-B).
    Root,
    /// The same through a file that is made of pieces, of which it reads every other one, by chance: half of the reads begin
    /// where the last one ended, so the kernel reads ahead.
    Pieces,
    /// Reads the same irregular places in one file after the other.
    Steps,
    /// Reads a file from its beginning.
    Sequential,
    /// Reads anywhere in a file.
    Random,
    /// Reads like `root` at first, then anywhere.
    Turns,
    /// Writes a file from its beginning.
    Write,
}

/// What [`Kind::Turns`] says when it turns.
pub const TURN: &str = "turn";

/// How far back a read is that goes back: at least and at most.
const BACK_MIN: u64 = 1 << 20;
const BACK_MAX: u64 = 8 << 20;

/// One in so many reads goes back.
const BACK_EVERY: u64 = 32;

/// Of each so many bytes that are read, a word is looked at.
const PAGE: usize = 4096;

/// Numbers that look random and are the same in every run (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound.max(1)
    }

    /// From half to one and a half of it.
    fn about(&mut self, mean: u64) -> u64 {
        mean / 2 + self.below(mean + 1)
    }
}

/// The hidden subcommand: does it, and says how long it took and what the bytes were.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let mut load = Load::new(args);
    match args.kind {
        Kind::Steps => load.steps()?,
        Kind::Write => load.write()?,
        _ => load.read(&args.path)?,
    }
    let Load { sum, bytes, .. } = load;
    let took = Nanos(started.elapsed().as_nanos() as u64);
    writeln!(io::stdout(), "{sum:016x} {bytes} {}", took.0)?;
    Ok(ExitCode::SUCCESS)
}

/// The size that a file must have for a load.
pub fn file_size(kind: Kind, size: u64, reads: u64) -> u64 {
    match kind {
        Kind::Sequential | Kind::Write => size * reads,
        // What is read is about half of it, rarely less than that.
        _ => 2 * size * (reads + reads / 10) + 2 * BACK_MAX,
    }
}

struct Load<'a> {
    args: &'a Args,
    draw: Draw,
    buffer: Vec<u8>,
    sum: u64,
    bytes: u64,
}

impl<'a> Load<'a> {
    fn new(args: &'a Args) -> Load<'a> {
        Load {
            args,
            draw: Draw(args.seed),
            buffer: Vec::new(),
            sum: 0,
            bytes: 0,
        }
    }

    fn read(&mut self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut front = 0;
        for number in 0..self.args.reads {
            let (offset, len) = self.place(number, front, size);
            front = front.max(offset + len);
            if self.args.kind == Kind::Turns && number == self.args.reads / 2 + 1 {
                writeln!(io::stdout(), "{TURN}")?;
            }
            self.read_at(&file, offset, len)?;
            compute(self.args.compute);
        }
        Ok(())
    }

    /// Where a read is, if those before it got as far as `front`.
    fn place(&mut self, number: u64, front: u64, size: u64) -> (u64, u64) {
        let mean = self.args.size;
        let random = match self.args.kind {
            Kind::Sequential => return (front, mean),
            Kind::Random => true,
            Kind::Turns => number > self.args.reads / 2,
            _ => false,
        };
        let len = self.draw.about(mean);
        if random {
            return (self.draw.below(size - len), len);
        }
        let back = number % BACK_EVERY == BACK_EVERY - 1;
        let offset = match back {
            true => front.saturating_sub(BACK_MIN + self.draw.below(BACK_MAX - BACK_MIN)),
            false if self.args.kind == Kind::Pieces => front + self.skip(),
            false => front + self.draw.below(2 * mean + 1),
        };
        (offset.min(size - len), len)
    }

    /// Pieces that are not read: none as often as any.
    fn skip(&mut self) -> u64 {
        let mut skipped = 0;
        while self.draw.below(2) == 0 {
            skipped += self.draw.about(self.args.size);
        }
        skipped
    }

    /// The same places in each file of a directory, in the order of their names.
    fn steps(&mut self) -> io::Result<()> {
        let entries = self.args.path.read_dir()?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|e| e.path()))
            .collect::<io::Result<_>>()?;
        paths.sort();
        for path in paths {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            let mut draw = Draw(self.args.seed);
            for _ in 0..self.args.reads {
                let len = draw.about(self.args.size);
                let offset = draw.below(size - len);
                self.read_at(&file, offset, len)?;
                compute(self.args.compute);
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let mut file = File::create(&self.args.path)?;
        for number in 0..self.args.reads {
            self.buffer.clear();
            self.buffer.resize(self.args.size as usize, number as u8);
            file.write_all(&self.buffer)?;
            self.bytes += self.args.size;
            compute(self.args.compute);
        }
        Ok(())
    }

    fn read_at(&mut self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        self.buffer.resize(len as usize, 0);
        file.read_exact_at(&mut self.buffer, offset)?;
        self.bytes += len;
        // A word of each page is enough to know them apart, since all words of a file differ, and cheap.
        for word in self
            .buffer
            .chunks(PAGE)
            .filter_map(|page| page.first_chunk())
        {
            self.sum = (self.sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

/// Keeps the processor busy for so many microseconds.
fn compute(microseconds: u64) {
    let until = Instant::now() + Duration::from_micros(microseconds);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Makes a file whose words all differ: wherever a read begins, its first bytes say which page of which
/// file it is, and where in it.
pub fn make_file(path: &Path, size: u64) -> io::Result<()> {
    const PIECE: usize = 1 << 20;
    let mut file = File::create(path)?;
    let mut draw = Draw(size ^ seed_of(path));
    let mut piece = vec![0; PIECE];
    let mut left = size;
    while left > 0 {
        for page in piece.chunks_mut(PAGE) {
            fill(page, draw.below(u64::MAX));
        }
        let len = left.min(PIECE as u64);
        file.write_all(&piece[..len as usize])?;
        left -= len;
    }
    file.sync_all()
}

/// Files of different names have different contents.
fn seed_of(path: &Path) -> u64 {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.iter()
        .fold(0, |seed: u64, byte| seed.rotate_left(7) ^ u64::from(*byte))
}

fn fill(page: &mut [u8], first: u64) {
    let mut value = first;
    for word in page.chunks_exact_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
        // Odd, and no byte of it is 0: neighbours differ in all bytes.
        value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(kind: Kind, path: &Path) -> Args {
        Args {
            kind,
            path: path.to_owned(),
            size: 4096,
            reads: 64,
            compute: 0,
            seed: 3,
        }
    }

    #[test]
    fn the_same_seed_reads_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        make_file(&path, file_size(Kind::Root, 4096, 64)).unwrap();
        for kind in [Kind::Root, Kind::Random, Kind::Turns, Kind::Sequential] {
            let args = args(kind, &path);
            let sums = [0, 1].map(|_| {
                let mut load = Load::new(&args);
                load.read(&path).unwrap();
                (load.sum, load.bytes)
            });
            assert_eq!(sums[0], sums[1], "{kind:?}");
            assert!(sums[0].1 >= 32 * 4096);
        }
    }

    fn sum_of(args: &Args) -> u64 {
        let mut load = Load::new(args);
        load.read(&args.path).unwrap();
        load.sum
    }

    #[test]
    fn one_wrong_page_of_a_read_is_another_sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        make_file(&path, file_size(Kind::Root, 4096, 64)).unwrap();
        let args = args(Kind::Root, &path);
        let right = sum_of(&args);
        let (offset, _) = Load::new(&args).place(0, 0, u64::MAX / 2);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let page = PAGE as u64;
        let here = offset / page * page;
        let mut content = [0; PAGE];
        for there in [here + page, here + 7 * page] {
            file.read_exact_at(&mut content, there).unwrap();
            file.write_all_at(&content, here).unwrap();
            assert_ne!(sum_of(&args), right, "page {}", there / page);
        }
    }

    #[test]
    fn a_read_of_another_file_is_another_sum() {
        let dir = tempfile::tempdir().unwrap();
        let sums = ["step_0001.dat", "step_0002.dat"].map(|name| {
            let path = dir.path().join(name);
            make_file(&path, file_size(Kind::Root, 4096, 64)).unwrap();
            sum_of(&args(Kind::Root, &path))
        });
        assert_ne!(sums[0], sums[1]);
    }

    #[test]
    fn a_read_from_elsewhere_is_another_sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        make_file(&path, 1 << 20).unwrap();
        let args = args(Kind::Root, &path);
        let file = File::open(&path).unwrap();
        let mut sums = std::collections::BTreeSet::new();
        for offset in 0..1000 {
            let mut load = Load::new(&args);
            load.read_at(&file, 37 * offset, 10_000).unwrap();
            assert!(sums.insert(load.sum), "offset {}", 37 * offset);
        }
    }

    #[test]
    fn root_reads_about_half_of_what_it_passes() {
        let path = Path::new("nowhere");
        let mut args = args(Kind::Root, path);
        args.reads = 1000;
        let mut load = Load::new(&args);
        let (mut front, mut read) = (0, 0);
        for number in 0..args.reads {
            let (offset, len) = load.place(number, front, u64::MAX / 2);
            front = front.max(offset + len);
            read += len;
        }
        let share = read as f64 / front as f64;
        assert!((0.35..0.65).contains(&share), "{share}");
    }
}
