//! What watching costs: calls through the library against the C library's own, by turns in one process.
//!
//! `cargo run --release -p presagio-preload --example cost`. It makes an arena, starts itself once more with the library
//! preloaded, and reads what that tells. Figures are the middle of many rounds, in nanoseconds.

use presagio_arena::{Arena, ArenaOptions, Message};
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const INSIDE: &str = "PRESAGIO_COST_INSIDE";

fn main() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let mut arena = Arena::create(&ArenaOptions::default()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .env("LD_PRELOAD", library())
        .env(presagio_arena::VARIABLE, arena.address())
        .env(INSIDE, "1");
    let mut child = command.spawn().unwrap();
    let mut operations = 0u64;
    let mut named = 0u64;
    while child.try_wait().unwrap().is_none() {
        arena.drain(|_, message| {
            if let Message::Operation(operation) = message {
                operations += 1;
                named += u64::from(operation.context != 0);
            }
        });
        arena.sweep(|_| ());
        std::thread::sleep(Duration::from_micros(500));
    }
    println!(
        "records {operations}, with a context {named}, {:?}",
        arena.losses()
    );
    start_up(&arena);
}

fn library() -> PathBuf {
    let examples = std::env::current_exe().unwrap();
    let target = examples.parent().unwrap().parent().unwrap();
    let library = target.join("deps/libpresagio.so");
    assert!(library.is_file(), "no {}", library.display());
    library
}

type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
type Pread = unsafe extern "C" fn(c_int, *mut c_void, usize, i64) -> isize;
type Fwrite = unsafe extern "C" fn(*const c_void, usize, usize, *mut libc::FILE) -> usize;

/// A function of the C library itself, and the one that a program gets.
fn both<F: Copy>(name: &CStr) -> (F, F) {
    // SAFETY: looks up two functions of the same type.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let bare = libc::dlsym(libc, name.as_ptr());
        let hooked = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        assert!(
            !bare.is_null() && bare != hooked,
            "{name:?} is not preloaded"
        );
        (
            std::mem::transmute_copy(&bare),
            std::mem::transmute_copy(&hooked),
        )
    }
}

fn inside() {
    let dir = std::env::current_exe().unwrap().with_extension("dir");
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("file");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![0u8; 4096];
    let place = buffer.as_mut_ptr().cast::<c_void>();

    let (bare, hooked) = both::<Read>(c"read");
    let fd = zero.as_raw_fd();
    // SAFETY: here and below: a buffer of ours that is large enough.
    let call = |f: Read| move |_| unsafe { f(fd, place, 1) };
    compare("read, not followed", 20_000, call(bare), call(hooked));

    let fd = file.as_raw_fd();
    let (bare, hooked) = both::<Pread>(c"pread");
    // SAFETY: as above.
    let call = |f: Pread| move |i: usize| unsafe { f(fd, place, 4096, (i % 256 * 4096) as i64) };
    compare("pread 4 KiB", 20_000, call(bare), call(hooked));
    spread(
        "pread 4 KiB",
        100_000,
        Duration::ZERO,
        call(bare),
        call(hooked),
    );
    spread(
        "pread 4 KiB, 0.3 ms apart",
        1_500,
        Duration::from_micros(300),
        call(bare),
        call(hooked),
    );
    let call = |f: Pread| {
        move |i: usize| {
            let mut byte = 0u8;
            // SAFETY: one byte of ours.
            unsafe { f(fd, (&raw mut byte).cast(), 1, i as i64) }
        }
    };
    compare("pread 1 byte", 20_000, call(bare), call(hooked));
    threads(call(bare), call(hooked));

    let (bare, hooked) = both::<Read>(c"read");
    let call = |f: Read| {
        move |i: usize| {
            if i.is_multiple_of(256) {
                // SAFETY: a descriptor of ours.
                unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
            }
            // SAFETY: as above.
            unsafe { f(fd, place, 4096) }
        }
    };
    compare("read 4 KiB", 20_000, call(bare), call(hooked));
    streams(&dir, "fwrite 8 bytes, buffered");
    std::fs::remove_dir_all(&dir).unwrap();
}

fn streams(dir: &std::path::Path, name: &str) {
    let path = std::ffi::CString::new(dir.join("stream").to_str().unwrap()).unwrap();
    // SAFETY: strings that end with a zero.
    let stream = unsafe { libc::fopen(path.as_ptr(), c"w".as_ptr()) };
    let word = 7u64;
    let (bare, hooked) = both::<Fwrite>(c"fwrite");
    // SAFETY: eight bytes, and an open stream.
    let call = |f: Fwrite| move |_| unsafe { f((&raw const word).cast(), 8, 1, stream) as isize };
    compare(name, 20_000, call(bare), call(hooked));
    // SAFETY: open until now.
    unsafe { libc::fclose(stream) };
}

/// Rounds of both by turns: the middle of the differences.
fn compare(
    name: &str,
    calls: usize,
    bare: impl Fn(usize) -> isize,
    hooked: impl Fn(usize) -> isize,
) {
    let round = |f: &dyn Fn(usize) -> isize| {
        let start = Instant::now();
        for i in 0..calls {
            assert!(f(i) >= 0);
        }
        start.elapsed().as_nanos() as f64 / calls as f64
    };
    let (mut plain, mut more) = (Vec::new(), Vec::new());
    for _ in 0..31 {
        let first = round(&bare);
        let second = round(&hooked);
        plain.push(first);
        more.push(second - first);
    }
    println!(
        "{name:40} bare {:7.1}  more {:7.1}",
        middle(&mut plain),
        middle(&mut more)
    );
}

/// Each call by itself: what the slowest of a hundred takes.
fn spread(
    name: &str,
    calls: usize,
    pause: Duration,
    bare: impl Fn(usize) -> isize,
    hooked: impl Fn(usize) -> isize,
) {
    let mut times = [Vec::new(), Vec::new()];
    for i in 0..2 * calls {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        let result = if i % 2 == 0 { bare(i) } else { hooked(i) };
        times[i % 2].push(start.elapsed().as_nanos() as f64);
        assert!(result >= 0);
    }
    let [plain, watched] = &mut times;
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let (m0, m1) = (mean(plain), mean(watched));
    let (p0, p1) = (part(plain, 0.99), part(watched, 0.99));
    println!(
        "{name:40} bare mean {m0:.0} middle {:.0} p99 {p0:.0}   more mean {:.0} middle {:.0} p99 {:.0}",
        part(plain, 0.5),
        m1 - m0,
        part(watched, 0.5) - part(plain, 0.5),
        p1 - p0
    );
}

/// Sixty-four threads at once: the time that all take together.
fn threads(bare: impl Fn(usize) -> isize + Sync, hooked: impl Fn(usize) -> isize + Sync) {
    let run = |f: &(dyn Fn(usize) -> isize + Sync)| {
        let go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    f(0);
                    while !go.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    for i in 0..2_000 {
                        f(i);
                    }
                });
            }
            let start = Instant::now();
            go.store(true, Ordering::Release);
            start
        })
        .elapsed()
        .as_nanos() as f64
            / (64.0 * 2_000.0)
    };
    let (mut plain, mut more) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let first = run(&bare);
        plain.push(first);
        more.push(run(&hooked) - first);
    }
    println!(
        "{:40} bare {:7.1}  more {:7.1}",
        "pread 1 byte, 64 threads, per call",
        middle(&mut plain),
        middle(&mut more)
    );
}

/// A program that touches nothing that is followed.
fn start_up(arena: &Arena) {
    let run = |preload: bool| {
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::null());
        if preload {
            command
                .env("LD_PRELOAD", library())
                .env(presagio_arena::VARIABLE, arena.address());
        }
        let start = Instant::now();
        assert!(command.status().unwrap().success());
        start.elapsed().as_nanos() as f64
    };
    let (mut plain, mut more) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let first = run(false);
        plain.push(first);
        more.push(run(true) - first);
    }
    println!(
        "{:40} bare {:7.0}  more {:7.0}",
        "start of /bin/true",
        middle(&mut plain),
        middle(&mut more)
    );
}

fn middle(all: &mut [f64]) -> f64 {
    part(all, 0.5)
}

fn part(all: &mut [f64], share: f64) -> f64 {
    all.sort_by(f64::total_cmp);
    all[((all.len() - 1) as f64 * share) as usize]
}
