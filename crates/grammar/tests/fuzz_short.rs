//! Loading thousands of damaged models, the same in each run: each is refused, or gives a grammar that keeps its
//! constraints and goes on; no panic, no end that does not come, no memory without bound. And streams of all kinds. The
//! fuzzers in `fuzz/` try the same for as long as one likes.

mod shared;

use presagio_grammar::{Grammar, Mode, Series, fuzzing};
use shared::Noise;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

const INPUTS: usize = 20_000;
const STREAMS: usize = 1_000;

/// What a model may have allocated at any moment.
const MEMORY_BYTES_MAX: isize = 4 << 20;

#[test]
fn models_of_any_kind_are_loaded_or_refused() {
    let seeds = seeds();
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    let mut loaded = 0;
    for seed in &seeds {
        assert!(run(seed), "a seed that is refused leads nowhere");
    }
    for _ in 0..INPUTS {
        let mut input = seeds[noise.below(seeds.len() as u32) as usize].clone();
        for _ in 0..=noise.below(3) {
            mutate(&mut input, &mut noise);
        }
        loaded += usize::from(run(&input));
    }
    assert!(
        loaded > INPUTS / 100,
        "only {loaded} were loaded: the mutations are too coarse"
    );
}

#[test]
fn streams_of_any_kind_keep_the_constraints() {
    let mut noise = Noise(0x1234_5678_9ABC_DEF1);
    for _ in 0..STREAMS {
        // Pieces of what came before, now and then something else: loops, branches, gaps, and chance.
        let mut input = vec![noise.below(256) as u8, 0, 1];
        while input.len() < 20 + noise.below(200) as usize {
            let from = 1 + noise.below(input.len() as u32 - 1) as usize;
            let piece = input[from..input.len().min(from + 9)].repeat(1 + noise.below(4) as usize);
            input.extend(piece);
            input.push([noise.below(8), 255, 0][noise.below(10).saturating_sub(7) as usize] as u8);
        }
        fuzzing::stream(&input);
    }
}

fn run(input: &[u8]) -> bool {
    let before = LIVE.get();
    PEAK.set(before);
    let result = std::panic::catch_unwind(|| fuzzing::model(input));
    let peak = PEAK.get() - before;
    assert!(peak <= MEMORY_BYTES_MAX, "{peak} bytes for {input:?}");
    result.unwrap_or_else(|_| panic!("panic with the input {input:?}"))
}

/// A grammar of each mode, and series of each kind.
fn seeds() -> Vec<Vec<u8>> {
    let mut noise = Noise(9);
    let mut input: Vec<u32> = (0..60).map(|_| noise.below(6)).collect();
    for _ in 0..12 {
        input.extend([1, 2]);
        input.extend(vec![3; 2 + noise.below(4) as usize]);
        input.extend([4, 5, u32::MAX - 3]);
    }
    let grammar = |mode| {
        let mut grammar = Grammar::new(mode);
        input.iter().for_each(|s| grammar.append(*s));
        [&[0], &grammar.save()[..]].concat()
    };
    let series = |values: u64| {
        let mut series = Series::default();
        (0..80).for_each(|n| series.observe(n * n % values));
        [&[1], &series.save()[..]].concat()
    };
    let grammars = [Mode::Sequitur, Mode::Exact, Mode::Folding].map(grammar);
    grammars
        .into_iter()
        .chain([1, 7, 101].map(series))
        .collect()
}

fn mutate(input: &mut Vec<u8>, noise: &mut Noise) {
    let at = 1 + noise.below(input.len().max(2) as u32 - 1) as usize;
    if at >= input.len() {
        return;
    }
    match noise.below(6) {
        0 => input[at] ^= 1 << noise.below(8),
        1 => input[at] = [0, 1, 2, 0x7F, 0x80, 0xFF][noise.below(6) as usize],
        2 => input[at] = input[at].wrapping_add(2),
        3 => input.truncate(at),
        4 => drop(input.remove(at)),
        _ => drop(input.splice(at..at, vec![0xFF; noise.below(9) as usize])),
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
}
