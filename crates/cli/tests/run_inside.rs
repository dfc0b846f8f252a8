//! What `presagio run --in-process` promises: all that `presagio run` does, with no process beside the command, and nothing
//! that the command could notice but a few threads.

mod common;

use common::{TempDir, presagio_ok, program};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

const NOISE: u64 = (3 << 20) + 5;

/// A directory with an input file, and a place for models and orders.
struct Place {
    dir: TempDir,
}

/// How a command ended, and what it said.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    out: String,
    err: String,
}

impl Place {
    fn new(name: &str) -> Place {
        let place = Place {
            dir: TempDir::new(&format!("inside-{name}")),
        };
        let mut state = 1u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let noise: Vec<u8> = noise.take(NOISE as usize).collect();
        fs::write(place.path("in"), noise).unwrap();
        fs::create_dir_all(place.path("runtime")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    fn command(&self, name: &str) -> Command {
        let library = std::env::current_exe().unwrap();
        let library = library.parent().unwrap().join("libpresagio.so");
        let mut command = Command::new(name);
        command
            .current_dir(self.dir.path())
            .env("PRESAGIO_LIB", library)
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path("runtime"))
            .env_remove("LD_PRELOAD")
            .env_remove("PRESAGIO_ARENA")
            .stdin(Stdio::null());
        command
    }

    /// `presagio run --in-process` with these options.
    fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = self.command(program());
        run.args(["run", "--in-process"])
            .args(options)
            .arg("--")
            .args(command);
        run
    }

    /// The command alone.
    fn plain(&self, command: &[&str]) -> Ended {
        end(self.command(command[0]).args(&command[1..]))
    }

    /// The command with a manager inside, and its summary.
    fn json(&self, options: &[&str], command: &[&str]) -> (Ended, Value) {
        let options = [&["--json", "s.json", "--exclude", "*/s.json"], options].concat();
        let ended = end(&mut self.run(&options, command));
        let text = fs::read_to_string(self.path("s.json")).unwrap();
        let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{ended:?}"));
        (ended, json)
    }

    fn build(&self, source: &str) -> String {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/inside");
        let program = self.path(source.trim_end_matches(".c"));
        let built = Command::new("gcc")
            .args(["-O1", "-Wall", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg(format!("{sources}/{source}"))
            .status();
        assert!(built.unwrap().success());
        program.to_str().unwrap().to_owned()
    }

    fn trace_info(&self, name: &str) -> Value {
        presagio_ok(&["trace", "info", "--json", self.path(name).to_str().unwrap()]).json()
    }
}

fn end(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        status: output.status,
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn number(json: &Value, path: &str) -> u64 {
    let value = json.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no {path} in {json:#}"))
}

fn bytes(json: &Value) -> (u64, u64) {
    (
        number(json, "/totals/bytes_read"),
        number(json, "/totals/bytes_written"),
    )
}

/// Bytes that a trace has of an action.
fn traced(info: &Value, action: &str) -> u64 {
    let layers = info["layers"].as_array().unwrap().iter();
    let actions = layers.flat_map(|layer| layer["actions"].as_array().unwrap());
    let of_it = actions.filter(|a| a["action"] == action);
    of_it.map(|a| a["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn a_program_that_reads_and_writes_makes_the_same_bytes_and_is_counted() {
    let place = Place::new("bytes");
    let dd = ["dd", "if=in", "of=out", "bs=64k", "status=none"];
    let (ended, json) = place.json(&["--trace", "t.ptrace"], &dd);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(ended.out, "");
    assert!(ended.err.starts_with("presagio: "), "{}", ended.err);
    assert_eq!(bytes(&json), (NOISE, NOISE), "{json:#}");
    assert_eq!(
        fs::read(place.path("in")).unwrap(),
        fs::read(place.path("out")).unwrap()
    );
    let info = place.trace_info("t.ptrace");
    assert_eq!(
        (traced(&info, "read"), traced(&info, "write")),
        (NOISE, NOISE)
    );
    assert!(info["cut_short"].is_null(), "{info:#}");
    assert_eq!(number(&json, "/prediction/models_begun"), 0);
    let (_, again) = place.json(&[], &dd);
    assert!(number(&again, "/prediction/models_begun") >= 1, "{again:#}");
    let left = fs::read_dir(place.path("runtime")).unwrap().count();
    assert_eq!(left, 0, "the orders are gone");
}

#[test]
fn hints_are_given_from_inside() {
    let place = Place::new("hints");
    let hints = r#"{ "File": [ { "Path": "*/in", "BlockSize": 65536, "WillNeed": [ { "Offset": 0, "Length": 0 } ] } ] }"#;
    fs::write(place.path("hints.json"), hints).unwrap();
    let script = "
import os, time
f = os.open('in', os.O_RDONLY)
os.fsync(f)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
for i in range(0, 3 << 20, 16384):
    os.pread(f, 4096, i)
    time.sleep(0.001)
";
    let (ended, json) = place.json(&["--config", "hints.json"], &["python3", "-c", script]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(
        number(&json, "/prefetch/by_reason/configured/hints") > 0,
        "{json:#}"
    );
    assert!(number(&json, "/prefetch/bytes_useful") > 0, "{json:#}");
    let (_, watched) = place.json(&["--observe"], &["python3", "-c", script]);
    assert_eq!(number(&watched, "/prefetch/bytes_useful"), 0);
}

#[test]
fn only_the_first_process_has_other_threads_and_only_when_asked() {
    let place = Place::new("threads");
    // Without pipes, of which the shell has ends for a moment.
    let script = "ls /proc/$$/task > t; wc -l < t; ls /proc/$$/fd > t; wc -l < t; grep Threads: /proc/self/status";
    let plain = place.plain(&["sh", "-c", script]);
    let beside = end(place
        .command(program())
        .args(["run", "-q", "--", "sh", "-c", script]));
    assert_eq!(beside.out, plain.out);
    let inside = end(&mut place.run(&["-q"], &["sh", "-c", script]));
    let lines = |ended: &Ended| ended.out.lines().map(str::to_owned).collect::<Vec<_>>();
    let (plain, inside) = (lines(&plain), lines(&inside));
    assert_eq!(plain[0], "1");
    assert!(inside[0].parse::<u32>().unwrap() > 1, "{inside:?}");
    assert_eq!(
        inside[1..],
        plain[1..],
        "descriptors, and threads of a child"
    );
}

#[test]
fn children_report_to_the_manager_in_their_parent() {
    let place = Place::new("children");
    let script = "cat in > a; (cat in > b) & (cat in | tee c | cat > d); wait; exit 9";
    let (ended, json) = place.json(&[], &["bash", "-c", script]);
    assert_eq!(ended.status.code(), Some(9), "{ended:?}");
    assert_eq!(bytes(&json), (3 * NOISE, 4 * NOISE), "{json:#}");
    assert_eq!(number(&json, "/still_running"), 0);
    let input = fs::read(place.path("in")).unwrap();
    for copy in ["a", "b", "c", "d"] {
        assert!(fs::read(place.path(copy)).unwrap() == input, "{copy}");
    }
}

#[test]
fn a_program_that_becomes_another_is_followed_through() {
    let place = Place::new("exec");
    let script = "cat in > a; exec sh -c 'cat in > b; exec bash -c \"cat in > c; exec cp in d\"'";
    let (ended, json) = place.json(&["--trace", "t.ptrace"], &["sh", "-c", script]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(bytes(&json), (4 * NOISE, 4 * NOISE), "{json:#}");
    let info = place.trace_info("t.ptrace");
    assert_eq!(
        (traced(&info, "read"), traced(&info, "write")),
        (4 * NOISE, 4 * NOISE)
    );
    assert!(!ended.err.contains("early"), "{}", ended.err);
    let parts = place.dir.entries();
    let parts = parts.iter().filter(|n| n.starts_with("t.ptrace"));
    assert_eq!(parts.collect::<Vec<_>>(), ["t.ptrace"]);
}

#[test]
fn an_exec_that_fails_ends_nothing() {
    let place = Place::new("noexec");
    let script = "
import os
try:
    os.execv('/nowhere', ['x'])
except OSError:
    pass
open('out', 'wb', buffering=0).write(open('in', 'rb', buffering=0).read())
";
    // Python reads files of its own.
    let ours = ["--include", "*/in", "--include", "*/out"];
    let (ended, json) = place.json(&ours, &["python3", "-c", script]);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(bytes(&json), (NOISE, NOISE), "{json:#}");
    assert!(!ended.err.contains("early"), "{}", ended.err);
}

#[test]
fn a_killed_program_leaves_its_trace_and_a_summary_that_says_so() {
    let place = Place::new("killed");
    // Longer than it takes until the summary is refreshed.
    let script = "cat in > a; sleep 2.5; kill -9 $$";
    let (ended, json) = place.json(&["--trace", "t.ptrace"], &["sh", "-c", script]);
    assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
    assert_eq!(bytes(&json), (NOISE, NOISE), "{json:#}");
    assert!(ended.err.contains("ended early"), "{}", ended.err);
    assert_eq!(traced(&place.trace_info("t.ptrace"), "write"), NOISE);
}

#[test]
fn a_program_that_closes_all_descriptors_gets_its_own_files_and_nothing_of_ours() {
    let place = Place::new("closes");
    let program = place.build("closes.c");
    let (ended, json) = place.json(&["--trace", "t.ptrace"], &[&program]);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    let (own, read) = (4 * 64 * 65536, 4 * 200 * 4096);
    assert_eq!(bytes(&json), (own + read, own), "{json:#}");
    assert_eq!(traced(&place.trace_info("t.ptrace"), "write"), own);
}

#[test]
fn root_directory_and_umask_are_the_programs_alone() {
    let place = Place::new("umask");
    let script = "import glob, os
os.umask(0o7)
masks = [line.split()[1] for task in glob.glob('/proc/self/task/*/status') for line in open(task) if line.startswith('Umask')]
print(len(masks) > 1, masks.count('0007'))";
    let ended = end(&mut place.run(&["-q"], &["python3", "-c", script]));
    assert_eq!(ended.out, "True 1\n", "{ended:?}");
}

#[test]
fn locks_outlive_our_descriptors() {
    let place = Place::new("locks");
    let program = place.build("locks.c");
    let hints =
        r#"{ "File": [ { "Path": "*/in", "WillNeed": [ { "Offset": 0, "Length": 0 } ] } ] }"#;
    fs::write(place.path("hints.json"), hints).unwrap();
    let (ended, json) = place.json(&["--config", "hints.json"], &[&program]);
    assert_eq!(
        (ended.status.code(), ended.out.as_str()),
        (Some(0), "1\n"),
        "{ended:?}"
    );
    assert!(
        number(&json, "/prefetch/by_reason/configured/hints") > 0,
        "{json:#}"
    );
}

#[test]
fn an_allocator_that_does_io_and_many_threads_are_no_trouble() {
    let place = Place::new("allocates");
    let program = place.build("allocates.c");
    let plain = place.plain(&[&program]);
    let made: Vec<Vec<u8>> = (0..32)
        .map(|i| fs::read(place.path(&format!("out{i}"))).unwrap())
        .collect();
    for options in [&[][..], &["--trace", "t.ptrace"]] {
        let (ended, json) = place.json(options, &[&program]);
        assert_eq!(
            (ended.status, &ended.out),
            (plain.status, &plain.out),
            "{ended:?}"
        );
        for (i, made) in made.iter().enumerate() {
            assert!(
                fs::read(place.path(&format!("out{i}"))).unwrap() == *made,
                "out{i}"
            );
        }
        assert!(bytes(&json).1 >= 32 * 100 * 4096, "{json:#}");
    }
}

#[test]
fn a_program_ends_as_it_would_alone() {
    let place = Place::new("leaves");
    let program = place.build("leaves.c");
    for way in ["thread", "_exit", "user", "sandbox", ""] {
        let plain = place.plain(&[&program, way]);
        let (ended, json) = place.json(&[], &[&program, way]);
        assert_eq!(
            (ended.status, &ended.out),
            (plain.status, &plain.out),
            "{way}: {ended:?}"
        );
        assert_eq!(
            number(&json, "/totals/bytes_read"),
            100 * 4096,
            "{way}: {json:#}"
        );
        assert!(!ended.err.contains("early"), "{way}: {}", ended.err);
    }
}

#[test]
fn python_with_threads_and_processes_makes_the_same() {
    let place = Place::new("python");
    let script = "
import hashlib, multiprocessing, subprocess, sys, threading
def digest(part):
    with open('in', 'rb') as f:
        f.seek(part * 65536)
        return hashlib.sha1(f.read(65536)).hexdigest()
if __name__ == '__main__':
    found = [None] * 16
    def work(i): found[i] = digest(i)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads: t.start()
    for t in threads: t.join()
    for how in ('fork', 'spawn'):
        with multiprocessing.get_context(how).Pool(2) as pool:
            assert pool.map(digest, range(16)) == found, how
    print(*found, subprocess.check_output(['sha1sum', 'in']))
    sys.exit(3)
";
    fs::write(place.path("p.py"), script).unwrap();
    let plain = place.plain(&["python3", "p.py"]);
    assert_eq!(plain.status.code(), Some(3), "{plain:?}");
    let (ended, json) = place.json(&["--include", "*/in"], &["python3", "p.py"]);
    assert_eq!(
        (ended.status, &ended.out),
        (plain.status, &plain.out),
        "{ended:?}"
    );
    assert!(number(&json, "/processes") >= 4, "{json:#}");
    assert!(bytes(&json).0 >= 3 * 16 * 65536 + NOISE, "{json:#}");
}

#[test]
fn where_there_is_no_memory_for_a_manager_the_program_runs_without() {
    let place = Place::new("memory");
    for limit in ["40000", "1000000"] {
        let script = format!("ulimit -v {limit}; exec cp in out");
        let ended = end(&mut place.run(&[], &["sh", "-c", &script]));
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(ended.err.contains("ulimit -v"), "{}", ended.err);
    }
    assert!(fs::read(place.path("in")).unwrap() == fs::read(place.path("out")).unwrap());
}

#[test]
fn what_a_killed_run_leaves_is_cleared_by_the_next() {
    let place = Place::new("left");
    let left = || {
        let all = fs::read_dir(place.path("runtime")).unwrap().flatten();
        let names = all.map(|e| e.file_name().into_string().unwrap());
        names.filter(|n| n.starts_with("presagio-run-")).count()
    };
    let script = "echo > ready; exec sleep 600";
    let mut killed = place.run(&[], &["sh", "-c", script]).spawn().unwrap();
    while !place.path("ready").exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // While it runs, nobody takes its directory away.
    end(&mut place.run(&["-q"], &["cp", "in", "out"]));
    assert_eq!(left(), 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(left(), 1);
    end(&mut place.run(&["-q"], &["cp", "in", "out"]));
    assert_eq!(left(), 0);
}

#[test]
fn quiet_is_quiet_and_off_is_off() {
    let place = Place::new("quiet");
    let ended = end(&mut place.run(&["-q"], &["cp", "in", "out"]));
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    let script = "ls /proc/$$/task | wc -l";
    let ended = end(place.run(&[], &["sh", "-c", script]).env("PRESAGIO", "off"));
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("1\n", ""));
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = Place::new("cannot");
    let other = place.path("libpresagio.so");
    fs::copy(
        place
            .command("x")
            .get_envs()
            .find_map(|(k, v)| (k == "PRESAGIO_LIB").then_some(v?))
            .unwrap(),
        &other,
    )
    .unwrap();
    let mut alone = place.run(&[], &["true"]);
    let ended = end(alone.env("PRESAGIO_LIB", &other));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.err.contains("libpresagio_inside.so"), "{}", ended.err);
    let mut rank = place.run(&["--trace", "t.ptrace"], &["true"]);
    let ended = end(rank.env("PRESAGIO_JOB", "ranks"));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.err.contains("before the launcher"), "{}", ended.err);
    assert!(!place.path("t.ptrace").exists());
}
