//! Programs whose files are forwarded (`presagio run --forward`), and one that knows what must come of what it does.

use super::nodes::{PROGRAMS, until};
use super::{library, program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where programs find what is forwarded. There is no such directory on this machine.
pub const FAR: &str = "/presagio-far-away";

/// The longest that a program may take, in seconds.
const BOUND: &str = "180";

/// What runs a command with what these nodes serve in [`FAR`], in a network of that name if one is given. Scripts find
/// that in `$FAR`, a local directory in `$OUTSIDE`, and the programs of the tests in `$PROGRAMS`.
pub fn forwarded(nodes: &str, network: Option<&str>, more: &[&str], outside: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", BOUND]);
    if let Some(name) = network {
        command.arg("nsenter");
        command.arg(format!("--net=/run/netns/{name}"));
    }
    command.args([program(), "run", "--quiet", "--forward"]);
    command.arg(format!("{FAR}={nodes}")).args(more);
    command
        .arg("--")
        .env("PRESAGIO_LIB", library())
        .env("FAR", FAR)
        .env("OUTSIDE", outside)
        .env("PROGRAMS", PROGRAMS)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null());
    command
}

/// Runs a command that must succeed; what it said.
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("timeout");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{command:?}\n{status}\n{out}{err}");
    out
}

/// The program programs/busy.py, in a directory below [`FAR`], and what it must have left in the export.
pub struct Busy {
    /// Where it says how far it is, and is told to stop.
    pub outside: PathBuf,
    /// The directory, as the nodes see it.
    pub export: PathBuf,
}

impl Busy {
    const WORKERS: [&'static str; 6] = [
        "child0", "child1", "child2", "thread3", "thread4", "thread5",
    ];

    /// Runs it until it is told to stop. It fails with the first byte that is not as it should be.
    pub fn run(&self, mut forwarded: Command, dir: &str) -> String {
        let (script, stop) = (format!("{PROGRAMS}/busy.py"), self.outside.join("stop"));
        let command = forwarded.args(["python3", &script, dir]);
        succeeds(command.arg(stop).arg(&self.outside))
    }

    fn rounds(&self) -> [u64; 6] {
        let done = |name| fs::metadata(self.outside.join(format!("done-{name}")));
        Self::WORKERS.map(|name| done(name).map_or(0, |done| done.len()))
    }

    /// Waits until each worker has done some rounds more: what it had begun is done, and one that began later too.
    pub fn goes_on(&self) {
        let before = self.rounds();
        until("everybody goes on", || {
            let now = self.rounds();
            now.iter()
                .zip(before)
                .all(|(now, before)| *now > before + 1)
        });
    }

    /// Stops it when that is dropped: also when a test fails, or nobody would hear of it.
    pub fn stops(&self) -> impl Drop + use<> {
        Stops(self.outside.join("stop"))
    }

    /// Holds what it said in the end against what is in the export.
    pub fn judge(&self, said: &str) {
        let shared = fs::read(self.export.join("shared")).expect("the shared file");
        let number = |text: &str| text.parse::<usize>().expect("a number");
        assert_eq!(said.lines().count(), Self::WORKERS.len(), "{said}");
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (name, who, rounds) = (words[0], number(words[1]), number(words[2]));
            let log = fs::read_to_string(self.export.join(format!("log-{name}"))).expect("a log");
            let lines: String = (0..rounds).map(|round| format!("{round}\n")).collect();
            assert!(log == lines, "{name}: {} of {rounds}", log.lines().count());
            for round in rounds.saturating_sub(BLOCKS)..rounds {
                let at = (round % BLOCKS * 16 + who) * BLOCK;
                let right = shared[at..at + BLOCK] == block(who, round);
                assert!(right, "{name} in round {round} of {rounds}");
            }
            let last = fs::read(self.export.join(format!("file-{name}"))).expect("a file");
            assert!(last == block(who, rounds - 1), "{name}: after {rounds}");
        }
        println!("{}", said.trim());
    }
}

struct Stops(PathBuf);

impl Drop for Stops {
    fn drop(&mut self) {
        fs::write(&self.0, "").expect("a mark");
    }
}

/// As programs/busy.py has it.
const BLOCKS: usize = 32;
const BLOCK: usize = 16384;

fn block(who: usize, round: usize) -> Vec<u8> {
    let byte = |at: usize| ((who * 37 + round * 11 + at % 4096) % 251) as u8;
    (0..BLOCK).map(byte).collect()
}
