//! Instructions per submit, counted by valgrind's callgrind.
//!
//! Time tells little about growth: a tree of a million requests misses the cache where one of a thousand
//! does not. Instructions show what the algorithm does. The bench runs itself, as the hidden subcommand
//! `bench-count`, under callgrind with counting off; that fills a scheduler, asks callgrind to count,
//! submits, and asks it to stop.

use super::drive::Driver;
use super::stream::{Pattern, Stream};
use anyhow::Context;
use presagio_sched::PolicyKind;
use std::collections::VecDeque;
use std::process::{Command, ExitCode};

/// Fill a scheduler, then submit under callgrind's counter
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The policy
    pub policy: PolicyKind,
    /// How many files the requests go to
    pub files: u64,
    /// Where they go in the files
    pub pattern: Pattern,
    /// How many requests are queued before counting begins
    pub backlog: u64,
    /// How many submits are counted
    pub submits: u64,
}

/// What runs under valgrind. Outside of it, it does the same and nobody counts.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let stream = Stream {
        files: args.files,
        pattern: args.pattern,
    };
    let mut driver = Driver::new(args.policy)?;
    for i in 0..args.backlog {
        driver.submit(stream.at(i))?;
    }
    let mut requests = Vec::new();
    stream.chunk(args.backlog, args.submits, &mut requests);
    let mut tickets = VecDeque::with_capacity(requests.len());
    callgrind(START);
    let result = driver.submit_all(&requests, &mut tickets);
    callgrind(STOP);
    // The queue is not worth tearing down: the process ends here.
    std::mem::forget(driver);
    result.map(|()| ExitCode::SUCCESS)
}

/// Instructions per submit, or why they could not be counted.
pub fn instructions(args: &Args) -> anyhow::Result<f64> {
    anyhow::ensure!(
        cfg!(target_arch = "x86_64"),
        "counting is built for x86-64 only"
    );
    let this = std::env::current_exe().context("this program's own file is not known")?;
    let numbers = [args.files, args.backlog, args.submits].map(|n| n.to_string());
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--instr-atstart=no",
            "--callgrind-out-file=/dev/null",
        ])
        .arg(this)
        .args([
            "bench-count",
            args.policy.name(),
            &numbers[0],
            args.pattern.name(),
            &numbers[1],
            &numbers[2],
        ])
        .output()
        .context("valgrind does not start: install it (Debian: apt-get install valgrind)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "valgrind failed: {}",
        said.lines().last().unwrap_or("silently")
    );
    let total = collected(&said).context("valgrind counted nothing")?;
    Ok(total as f64 / args.submits as f64)
}

/// The total from callgrind's last words: `==123== Collected : 456789`.
fn collected(said: &str) -> Option<u64> {
    let (_, total) = said
        .lines()
        .find_map(|line| line.split_once("Collected :"))?;
    total.trim().parse().ok().filter(|total| *total > 0)
}

/// Callgrind's requests are numbered from its name's two letters.
const CALLGRIND: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
const START: u64 = CALLGRIND + 4;
const STOP: u64 = CALLGRIND + 5;

/// Asks callgrind for something, in the way that valgrind documents in its `valgrind.h`: rotations of a
/// register that add up to nothing, then an exchange of a register with itself, with the address of the
/// request in `rax`. Without valgrind these instructions do nothing.
#[cfg(target_arch = "x86_64")]
fn callgrind(request: u64) {
    let request: [u64; 6] = [request, 0, 0, 0, 0, 0];
    // SAFETY: the rotations sum to 128 bits, so `rdi` keeps its value, as does `rbx`; under valgrind the six
    // words behind `rax` are read, nothing is written but `rdx`, which is declared as clobbered.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0u64 => _,
            options(nostack),
        );
    }
}

/// On other processors nothing is counted, and `instructions` says so.
#[cfg(not(target_arch = "x86_64"))]
fn callgrind(_request: u64) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_in_what_callgrind_says() {
        let said = "==7== Events    : Ir\n==7== Collected : 456789\n==7== \n";
        assert_eq!(collected(said), Some(456_789));
        assert_eq!(collected("==7== Collected : 0\n"), None);
        assert_eq!(collected("valgrind: no such tool"), None);
    }

    #[test]
    fn asking_callgrind_is_harmless_without_it() {
        callgrind(START);
        callgrind(STOP);
    }
}
