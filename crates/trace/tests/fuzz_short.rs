//! Every reader against a few thousand damaged inputs, the same in each run: no panic, no end that does not come,
//! no memory without bound. The fuzzers in `fuzz/` try the same for as long as one likes.

use presagio_trace::fuzzing::{TARGETS, Target};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;

/// Inputs for each reader.
const INPUTS: usize = 20_000;
/// No input is longer.
const INPUT_BYTES_MAX: usize = 32 << 10;
/// What a reader may have allocated at any moment, whatever the input says.
const MEMORY_BYTES_MAX: isize = 64 << 20;

#[test]
fn native_traces_of_any_kind_are_read_or_refused() {
    fuzz("native");
}

#[test]
fn native_records_of_any_kind_are_read_or_refused() {
    fuzz("native_payload");
}

#[test]
fn tables_of_any_kind_are_read_or_refused() {
    fuzz("csv");
}

#[test]
fn agios_traces_of_any_kind_are_read_or_refused() {
    fuzz("agios");
}

#[test]
fn darshan_logs_of_any_kind_are_read_or_refused() {
    fuzz("darshan_log");
}

#[test]
fn darshan_texts_of_any_kind_are_read_or_refused() {
    fuzz("darshan_text");
}

#[test]
fn strace_outputs_of_any_kind_are_read_or_refused() {
    fuzz("strace");
}

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let target = target.expect("a target of that name").1;
    let seeds = seeds(name);
    let records: usize = seeds.iter().map(|seed| run(target, seed)).sum();
    assert!(records > 0, "seeds without a record lead nowhere");
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for _ in 0..INPUTS {
        let input = mutated(&seeds, &mut random);
        run(target, &input);
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let entries = fs::read_dir(&corpus).expect("a corpus");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no seeds", corpus.display());
    paths
        .iter()
        .map(|path| fs::read(path).expect("a seed"))
        .collect()
}

fn run(target: Target, input: &[u8]) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    // The harness shows what the test printed when it fails, so this names the input.
    let result = std::panic::catch_unwind(|| target(input));
    let peak = PEAK.get() - before;
    assert!(
        result.is_ok(),
        "panic with the input\n{}",
        input.escape_ascii()
    );
    let shown = || input.escape_ascii().to_string();
    assert!(
        peak <= MEMORY_BYTES_MAX,
        "{peak} bytes for the input\n{}",
        shown()
    );
    result.unwrap_or_else(|_| panic!("panic with the input\n{}", shown()))
}

/// Some change or several of a seed.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let other = &seeds[random.below(seeds.len())];
        mutate(&mut input, other, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    if input.is_empty() {
        input.extend_from_slice(other);
        return;
    }
    let at = random.below(input.len());
    match random.below(9) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = [0, 1, 0x7F, 0x80, 0xFF, b'\n', b'"', b','][random.below(8)],
        2 => input.truncate(at),
        3 => drop(input.drain(at..at + random.below(input.len() - at + 1))),
        4 => repeat(input, at, random),
        5 => splice(input, at, other, random),
        6 => edit_length(input, at, random),
        7 => swap_tokens(input, random),
        _ => edit_number(input, at, random),
    }
}

fn repeat(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let piece = input[at..at + random.below((input.len() - at).min(64) + 1)].to_vec();
    for _ in 0..=random.below(40) {
        input.splice(at..at, piece.iter().copied());
    }
}

fn splice(input: &mut Vec<u8>, at: usize, other: &[u8], random: &mut Random) {
    let from = random.below(other.len() + 1);
    let piece = &other[from..from + random.below(other.len() - from + 1)];
    input.splice(at..at, piece.iter().copied());
}

/// Overwrites what may be a length or an offset, of any width and byte order.
fn edit_length(input: &mut [u8], at: usize, random: &mut Random) {
    let near = [
        0,
        1,
        0x7F,
        0xFF,
        0xFFFF,
        0x7FFF_FFFF,
        0xFFFF_FFFF,
        u64::MAX >> 1,
        u64::MAX,
    ];
    let value = match random.below(2) {
        0 => near[random.below(near.len())],
        _ => random.below(2 * input.len()) as u64,
    };
    let width = [1, 2, 4, 8][random.below(4)];
    let bytes = match random.below(2) {
        0 => value.to_le_bytes()[..width].to_vec(),
        _ => value.to_be_bytes()[8 - width..].to_vec(),
    };
    let at = at & !(width - 1);
    for (to, from) in input[at..].iter_mut().zip(bytes) {
        *to = from;
    }
}

/// Exchanges two pieces between separators.
fn swap_tokens(input: &mut Vec<u8>, random: &mut Random) {
    let separator = [b' ', b'\t', b'\n', b','][random.below(4)];
    let mut tokens: Vec<&[u8]> = input.split(|byte| *byte == separator).collect();
    let (a, b) = (random.below(tokens.len()), random.below(tokens.len()));
    tokens.swap(a, b);
    *input = tokens.join(&separator);
}

/// Replaces the number behind `at` by one that some reader may not expect.
fn edit_number(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let numbers = [
        "0",
        "-1",
        "1e9",
        "4294967296",
        "9223372036854775808",
        "99999999999999999999",
        "",
        "0x",
    ];
    let begin = input[at..]
        .iter()
        .position(u8::is_ascii_digit)
        .map_or(at, |n| at + n);
    let digits = input[begin..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    let number = numbers[random.below(numbers.len())];
    input.splice(begin..begin + digits, number.bytes());
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, and what each thread has from it.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends frees memory when its counters may be gone.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: all requests go to the system's allocator as they come; counting neither allocates nor panics, since the
// counters are cells without destructor that are initialised at compile time.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.realloc(memory, layout, size) }
    }
}
