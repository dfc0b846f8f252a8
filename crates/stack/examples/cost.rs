//! What a context costs: nanoseconds a warm call by depth, a walk, a full unwinding; and what contexts take in memory.
//!
//! `cargo run --release -p presagio-stack --example cost`; with the argument `warm` or `walk`, only 100 000 of these at
//! one depth, to be counted by callgrind.

#[cfg(target_arch = "x86_64")]
fn main() {
    let only = |hook| measure::at_depth(3, &mut || measure::repeat(100_000, hook));
    match std::env::args().nth(1).as_deref() {
        Some("warm") => only(measure::name),
        Some("walk") => only(measure::walk),
        _ => measure::all(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("On this machine a context is named by its caller alone.");
}

#[cfg(target_arch = "x86_64")]
mod measure {
    use presagio_stack::{Contexts, Entry, ThreadState, entry};
    use std::hint::black_box;
    use std::sync::LazyLock;
    use std::time::Instant;

    static CONTEXTS: LazyLock<Contexts> = LazyLock::new(|| Contexts::new().expect("memory"));

    thread_local! {
        static THREAD: ThreadState = const { ThreadState::new() };
    }

    entry!(pub name => name_of);
    entry!(pub bare => nothing);
    entry!(pub walk => walk_of);
    entry!(pub unwind => unwind_of);

    extern "C" fn nothing(_entry: &Entry, argument: usize) -> usize {
        argument
    }

    extern "C" fn name_of(entry: &Entry, _argument: usize) -> usize {
        // SAFETY: the entry of the hook that called this.
        THREAD
            .with(|thread| unsafe { CONTEXTS.context(thread, entry) })
            .id as usize
    }

    extern "C" fn walk_of(entry: &Entry, _argument: usize) -> usize {
        let mut frames = 0;
        // SAFETY: as above.
        THREAD.with(|thread| unsafe { CONTEXTS.frames(thread, entry, |_| frames += 1) });
        frames
    }

    extern "C" fn unwind_of(entry: &Entry, argument: usize) -> usize {
        CONTEXTS.modules_changed();
        name_of(entry, argument)
    }

    type Hook = extern "C" fn(usize) -> usize;

    pub fn all() {
        memory();
        println!(
            "frames   warm call   cold caches        walk   full unwinding   (ns, the hook's own entry taken off)"
        );
        for extra in [0, 2, 5, 8, 11, 16, 24, 40, 60] {
            at_depth(extra, &mut one_depth);
        }
    }

    /// Calls something with so many frames more on the stack.
    #[inline(never)]
    pub fn at_depth(extra: usize, work: &mut dyn FnMut()) {
        if extra == 0 {
            work();
        } else {
            at_depth(extra - 1, work);
        }
        black_box(extra);
    }

    fn one_depth() {
        let bare = best(100_000, bare);
        let per = |times, hook| best(times, hook) - bare;
        let (warm, walk_ns, unwind_ns) = (per(100_000, name), per(20_000, walk), per(500, unwind));
        println!(
            "{:6} {warm:11.1} {:13.1} {walk_ns:11.1} {unwind_ns:16.1}",
            walk(0),
            cold(name) - cold(self::bare)
        );
    }

    /// Nanoseconds a call, the best of some rounds: others use this machine too.
    fn best(times: usize, hook: Hook) -> f64 {
        let round = || {
            let start = Instant::now();
            repeat(times, hook);
            start.elapsed().as_nanos() as f64 / times as f64
        };
        (0..9).map(|_| round()).fold(f64::MAX, f64::min)
    }

    #[inline(never)]
    pub fn repeat(times: usize, hook: Hook) {
        for i in 0..times {
            black_box(hook(i));
        }
    }

    /// Nanoseconds of a call after two megabytes were gone through: the median of some.
    fn cold(hook: Hook) -> f64 {
        let mut other = vec![1u64; 1 << 18];
        let mut once = || {
            other
                .iter_mut()
                .step_by(8)
                .for_each(|word| *word = word.wrapping_mul(3));
            black_box(&other);
            let start = Instant::now();
            black_box(hook(0));
            start.elapsed().as_nanos() as f64
        };
        let mut times: Vec<f64> = (0..501).map(|_| once()).collect();
        times.sort_by(f64::total_cmp);
        times[250]
    }

    /// The memory that many contexts take.
    fn memory() {
        const LEVELS: u32 = 12;
        let before = resident();
        (0..1 << LEVELS).for_each(|path| tree(path, LEVELS));
        let taken = resident() - before;
        let contexts = 1usize << LEVELS;
        println!(
            "{} KiB reserved; {contexts} contexts took {} KiB, {} bytes each",
            Contexts::BYTES >> 10,
            taken >> 10,
            taken / contexts
        );
    }

    /// One context for each path: at each level, one of two functions.
    fn tree(path: u32, levels: u32) {
        match levels {
            0 => _ = black_box(name(0)),
            _ if path & 1 == 0 => left(path >> 1, levels - 1),
            _ => right(path >> 1, levels - 1),
        }
    }

    #[inline(never)]
    fn left(path: u32, levels: u32) {
        tree(path, levels);
        black_box(1);
    }

    #[inline(never)]
    fn right(path: u32, levels: u32) {
        let room = black_box([path; 8]);
        tree(path, levels);
        black_box(room);
    }

    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc");
        let pages: usize = statm
            .split(' ')
            .nth(1)
            .and_then(|field| field.parse().ok())
            .expect("a number of pages");
        pages * 4096
    }
}
