//! What `presagio run` promises: the command does not notice, and whoever ran it learns what it did, whatever happens on
//! the way.

mod common;

#[path = "run/closed_loop.rs"]
mod closed_loop;
#[path = "run/hanging.rs"]
mod hanging;
#[path = "run/unseen.rs"]
mod unseen;

use common::skips::skipped;
use common::{Said, TempDir, library, presagio, presagio_ok, program};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// A directory with an input file, a directory for models, and the library.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new(name: &str) -> Place {
        let place = Place {
            dir: TempDir::new(&format!("run-{name}")),
        };
        let mut state = 1u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        fs::write(
            place.path("in"),
            noise.take(3 * MIB + 5).collect::<Vec<_>>(),
        )
        .unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `presagio run` with these options, in this directory.
    fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = self.presagio();
        run.arg("run").args(options).arg("--").args(command);
        run
    }

    fn presagio(&self) -> Command {
        let mut run = Command::new(program());
        run.current_dir(self.dir.path())
            .env("PRESAGIO_LIB", library())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path(""))
            .env_remove("LD_PRELOAD")
            .env_remove("PRESAGIO_ARENA")
            .stdin(Stdio::null());
        run
    }

    /// Runs a script, and wants the summary as JSON.
    fn json(&self, options: &[&str], script: &str) -> (Ended, Value) {
        let options = [&["--json", "s.json"], options].concat();
        let ended = Ended::of(self.run(&options, &["sh", "-c", script]).output().unwrap());
        let text = fs::read_to_string(self.path("s.json")).unwrap();
        let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{ended:?}"));
        (ended, json)
    }

    fn trace_info(&self, name: &str) -> Value {
        presagio_ok(&["trace", "info", "--json", &self.text(name)]).json()
    }
}

/// How a run ended, and what it said.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    out: String,
    err: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        Ended {
            status: output.status,
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    fn ok(self) -> Ended {
        assert_eq!(self.status.code(), Some(0), "{self:?}");
        self
    }
}

fn run(place: &Place, options: &[&str], command: &[&str]) -> Ended {
    Ended::of(place.run(options, command).output().unwrap())
}

fn number(json: &Value, path: &str) -> u64 {
    let value = json.pointer(path);
    value
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no {path} in {json:#}"))
}

/// Bytes that a trace or a summary says were read and written.
fn bytes(json: &Value) -> (u64, u64) {
    (
        number(json, "/totals/bytes_read"),
        number(json, "/totals/bytes_written"),
    )
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
}

/// A child that does not outlive a test that failed.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until it holds; fails if it never does.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// The state of a process as /proc has it: R, S, T, Z; none if it is gone.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

const NOISE: u64 = 3 * MIB as u64 + 5;

#[test]
fn the_exit_status_is_the_commands() {
    let place = Place::new("status");
    for code in [0, 1, 77, 255] {
        let ended = run(&place, &["-q"], &["sh", "-c", &format!("exit {code}")]);
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    }
}

#[test]
fn a_command_that_was_killed_is_seen_to_be_killed() {
    let place = Place::new("killed");
    for signal in [9, 15, 11] {
        let ended = run(
            &place,
            &["-q"],
            &["sh", "-c", &format!("kill -{signal} $$")],
        );
        assert_eq!(ended.status.signal(), Some(signal), "{ended:?}");
    }
}

#[test]
fn no_name_of_a_file_or_program_tells_a_terminal_anything() {
    let place = Place::new("hostile");
    let name = "a\u{1b}[2J\n\u{202e}b";
    let (program, file) = (format!("./cat{name}"), format!("file{name}"));
    fs::copy("/bin/cat", place.path(&program)).unwrap();
    fs::write(place.path(&file), vec![b'x'; MIB]).unwrap();
    let run = |options: &[&str], command: &[&str]| run(&place, options, command).err;
    let told = run(&["--json", "s.json"], &[&program, &file]);
    let failed = run(&[], &[&format!("./none{name}")]);
    for text in [&told, &failed] {
        let harmful = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!text.contains(harmful), "{text:?}");
    }
    let shown = r"a\u{1b}[2J\n\u{202e}b";
    for part in ["cat", "file"] {
        assert!(told.contains(&format!("{part}{shown}: ")), "{told}");
    }
    assert!(failed.contains(&format!("none{shown}; ")), "{failed}");
    let json = fs::read_to_string(place.path("s.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["programs"][0]["name"], format!("cat{name}"));
}

#[test]
fn pipes_go_through_unchanged() {
    let place = Place::new("pipes");
    let mut child = place
        .run(&[], &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = fs::read(place.path("in")).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let copy = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success() && output.stdout == input);
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.starts_with("presagio: "), "{err}");
}

#[test]
fn a_reader_that_left_ends_a_pipeline_at_once() {
    let place = Place::new("head");
    let script = format!("{} run -q -- yes | head -1", program());
    let output = place
        .presagio()
        .args(["run", "-q", "--off", "sh", "-c", &script])
        .output();
    let ended = Ended::of(output.unwrap()).ok();
    assert_eq!(ended.out, "y\n");
}

#[test]
fn a_pipe_is_closed_when_the_command_closes_it() {
    let place = Place::new("close");
    let script = "exec >&-; for i in $(seq 2000); do [ -e go ] && exit 5; sleep 0.01; done";
    let mut run = place.run(&["-q"], &["sh", "-c", script]);
    let mut child = Guarded(run.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = child.0.stdout.take().unwrap();
    // Ends while the command still waits, or else with it.
    assert_eq!(out.read_to_end(&mut Vec::new()).unwrap(), 0);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(5));
}

#[test]
fn an_alarm_that_was_set_before_ends_the_command() {
    let place = Place::new("alarm");
    let script = "import os, signal, sys
signal.setitimer(signal.ITIMER_REAL, 0.2)
os.execv(sys.argv[1], sys.argv[1:])";
    let run = place.run(&["-q", "--no-model"], &["sleep", "30"]);
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(run.get_program());
    let python = python
        .args(run.get_args())
        .env("PRESAGIO_LIB", library())
        .env("XDG_RUNTIME_DIR", place.path(""))
        .env_remove("PRESAGIO_ARENA");
    let status = python.status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGALRM));
}

/// Whether interrupts are ignored here, as in a job in the background of a script.
fn is_in_the_background() -> bool {
    ignores(2) || ignores(3)
}

/// Whether a signal is ignored here. What is ignored stays so in all that is started, and no shell can trap it.
fn ignores(signal: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    ignored & 1 << (signal - 1) != 0
}

#[test]
fn signals_for_us_reach_the_command() {
    let place = Place::new("forward");
    for (name, number, code) in [
        ("-INT", 2, 3),
        ("-TERM", 15, 4),
        ("-USR1", 10, 5),
        ("-HUP", 1, 6),
    ] {
        // Interrupts in the background, SIGHUP under nohup.
        if ignores(number) {
            eprintln!("{name} skipped: it is ignored here");
            continue;
        }
        let script = "trap 'exit 3' INT; trap 'exit 4' TERM; trap 'exit 5' USR1; trap 'exit 6' HUP
            echo ready; while :; do sleep 0.01; done";
        let mut child = place
            .run(&["-q"], &["sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
    }
}

#[test]
fn the_command_stops_and_goes_on_with_us() {
    let place = Place::new("stop");
    let script = "echo $$ > pid; while ! [ -e go ]; do sleep 0.01; done; exit 9";
    // In a group of its own: the kernel stops no group whose parents are all elsewhere.
    let mut run = place.run(&["-q"], &["sh", "-c", script]);
    let mut child = Guarded(run.process_group(0).spawn().unwrap());
    let child = &mut child.0;
    let pid = || {
        fs::read_to_string(place.path("pid"))
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    until("the command runs", || pid().is_some());
    signal(child, "-TSTP");
    until("both are stopped", || {
        state(child.id()) == Some('T') && state(pid().unwrap()) == Some('T')
    });
    signal(child, "-CONT");
    until("both go on", || {
        state(child.id()) != Some('T') && state(pid().unwrap()) != Some('T')
    });
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// A terminal, and a small shell in it that starts a job, waits until it stops, continues it, and waits until it ends.
const TERMINAL: &str = r#"
import os, pty, signal, sys, time
def shell(command):
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)
    _, status = os.waitpid(job, os.WUNTRACED)
    with open('stopped', 'w') as f:
        f.write(str(os.WSTOPSIG(status) if os.WIFSTOPPED(status) else -1))
    os.tcsetpgrp(0, job)
    os.kill(-job, signal.SIGCONT)
    _, status = os.waitpid(job, 0)
    os._exit(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 99)
pid, terminal = pty.fork()
if pid == 0:
    shell(sys.argv[1:])
def read_until(text):
    seen = b''
    while text not in seen:
        seen += os.read(terminal, 1024)
read_until(b'ready')
os.write(terminal, b'\x1a')
while not (os.path.exists('stopped') and open('stopped').read()):
    time.sleep(0.01)
os.write(terminal, b'line\n')
read_until(b'got line')
os.write(terminal, b'\x03')
_, status = os.waitpid(pid, 0)
print('stopped by', open('stopped').read(), 'ended by', os.WEXITSTATUS(status))
"#;

#[test]
fn a_terminal_stops_continues_and_interrupts_the_command() {
    if is_in_the_background() {
        return eprintln!("skipped: interrupts are ignored here");
    }
    let place = Place::new("terminal");
    fs::write(place.path("terminal.py"), TERMINAL).unwrap();
    let script = "echo ready; read line; echo got $line; read again";
    let mut python = Command::new("python3");
    let python = python
        .current_dir(place.dir.path())
        .env("PRESAGIO_LIB", library())
        .env("XDG_CACHE_HOME", place.path("cache"))
        .args([
            "terminal.py",
            program(),
            "run",
            "-q",
            "--",
            "sh",
            "-c",
            script,
        ]);
    let ended = Ended::of(python.output().unwrap()).ok();
    assert_eq!(ended.out, "stopped by 20 ended by 2\n", "{ended:?}");
}

/// A terminal where Ctrl-C is typed once.
const TYPED_ONCE: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b''
while b'ready' not in seen:
    seen += os.read(terminal, 1024)
os.write(terminal, b'\x03')
while b'times' not in seen:
    seen += os.read(terminal, 1024)
os.waitpid(pid, 0)
print(seen.split(b'ready')[1].replace(b'^C', b'').strip().decode())
"#;

/// Counts interrupts, for a while after the first.
const COUNTS: &str = "
import signal, time
count = 0
def interrupted(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, interrupted)
print('ready', flush=True)
while not count:
    time.sleep(0.01)
end = time.monotonic() + 0.3
while time.monotonic() < end:
    time.sleep(0.01)
print(count, 'times', flush=True)";

#[test]
fn what_is_typed_once_reaches_the_command_once() {
    if is_in_the_background() {
        return eprintln!("skipped: interrupts are ignored here");
    }
    let place = Place::new("once");
    for (name, text) in [("once.py", TYPED_ONCE), ("counts.py", COUNTS)] {
        fs::write(place.path(name), text).unwrap();
    }
    let mut python = Command::new("python3");
    let python = python
        .current_dir(place.dir.path())
        .env("PRESAGIO_LIB", library())
        .env("XDG_CACHE_HOME", place.path("cache"))
        .args(["once.py", program(), "run", "-q", "--"])
        .args(["python3", "counts.py"]);
    let ended = Ended::of(python.output().unwrap()).ok();
    assert_eq!(ended.out.trim(), "1 times", "{ended:?}");
}

#[test]
fn what_is_inherited_is_inherited_unchanged() {
    let place = Place::new("inherit");
    let look = "grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status; ls /proc/self/fd | wc -l; umask; ulimit -c; pwd";
    let outer = |prefix: &str, signals: &str| {
        let script = format!("{signals} exec {prefix} sh -c \"{look}\"");
        let output = place
            .presagio()
            .args(["run", "--off", "sh", "-c", &script])
            .output();
        Ended::of(output.unwrap()).ok().out
    };
    let run = format!("{} run -q --", program());
    for signals in [
        "",
        "trap '' PIPE;",
        "trap '' INT CHLD USR1;",
        "exec <&-;",
        "exec 7</dev/null;",
    ] {
        assert_eq!(outer("", signals), outer(&run, signals), "{signals}");
    }
}

#[test]
fn dd_is_counted_to_the_byte() {
    let place = Place::new("dd");
    let script = "dd if=in of=out bs=64k 2>/dev/null";
    let (ended, json) = place.json(&["--exclude", "*/s.json"], script);
    ended.ok();
    assert_eq!(bytes(&json), (NOISE, NOISE));
    assert_eq!(number(&json, "/totals/actions/write/operations"), 49);
    assert_eq!(
        fs::read(place.path("out")).unwrap(),
        fs::read(place.path("in")).unwrap()
    );
}

#[test]
fn children_are_followed() {
    let place = Place::new("children");
    let (ended, json) = place.json(&[], "cat in > a; (cat in > b) & (cat in | cat > c); wait");
    ended.ok();
    assert_eq!(bytes(&json), (3 * NOISE, 3 * NOISE));
    assert!(number(&json, "/processes") >= 4, "{json:#}");
    assert_eq!(number(&json, "/still_running"), 0);
}

#[test]
fn a_python_script_is_counted_to_the_byte() {
    let place = Place::new("python");
    let script = "
import os
with open('data', 'wb', buffering=0) as f:
    for i in range(100):
        f.write(bytes(1000))
with open('data', 'rb', buffering=0) as f:
    for i in range(0, 100, 2):
        f.seek(i * 1000)
        f.read(500)
fd = os.open('data', os.O_RDONLY)
os.pread(fd, 4096, 8192)
os.close(fd)
";
    fs::write(place.path("p.py"), script).unwrap();
    let (ended, json) = place.json(&["--include", "*/data"], "python3 p.py");
    ended.ok();
    assert_eq!(bytes(&json), (50 * 500 + 4096, 100_000));
    assert_eq!(number(&json, "/files"), 1);
}

#[test]
fn the_trace_has_the_same_bytes_as_the_summary() {
    let place = Place::new("trace");
    let script = "for i in 1 2 3 4 5; do cp in out$i; done; sort -n in > /dev/null; rm out1";
    let (ended, json) = place.json(&["--trace", "t.ptrace"], script);
    ended.ok();
    let info = place.trace_info("t.ptrace");
    let layer = &info["layers"][0]["actions"];
    let sum = |action: &str| {
        layer
            .as_array()
            .unwrap()
            .iter()
            .filter(|a| a["action"] == action)
            .map(|a| a["bytes"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!((sum("read"), sum("write")), bytes(&json), "{info:#}");
    assert!(bytes(&json).1 >= 5 * NOISE);
}

#[test]
fn a_killed_program_leaves_trace_and_summary() {
    let place = Place::new("kill9");
    let (ended, json) = place.json(&["--trace", "t.ptrace"], "cp in out; kill -9 $$");
    assert_eq!(ended.status.signal(), Some(9));
    assert_eq!(bytes(&json), (NOISE, NOISE));
    assert!(ended.err.contains("t.ptrace"), "{}", ended.err);
    assert!(place.trace_info("t.ptrace")["cut_short"].is_null());
}

#[test]
fn who_only_watched_knows_what_the_next_run_will_read() {
    let place = Place::new("taught");
    // So many reads are told as soon as somebody has looked where the file lies; in a short run that may come too late.
    let told = |round: &u32| {
        let models = format!("models{round}");
        let script = "dd if=in of=/dev/null bs=16384 2> /dev/null";
        let mut options = vec!["--model-dir", &models, "--observe"];
        let (_, watched) = place.json(&options, script);
        assert_eq!(watched["prefetch"]["advised"], false);
        assert_eq!(watched["decided"], serde_json::json!([]));
        options.pop();
        let (_, next) = place.json(&options, script);
        number(&next, "/prediction/recorded/told")
    };
    assert!((0..50).any(|round| told(&round) > 100));
}

/// Kills the manager of whoever runs it.
const KILL_MANAGER: &str = "pid=${PRESAGIO_ARENA#/proc/}; kill -9 ${pid%%/*}";

#[test]
fn a_killed_manager_leaves_the_command_as_it_is() {
    let place = Place::new("manager9");
    for options in [&["--observe"][..], &["--trace", "t.ptrace"], &[]] {
        let script = format!(
            "cp in a; {KILL_MANAGER}; cp in b; cat in in in in > c; cmp a b && wc -c < c; exit 5"
        );
        let ended = run(&place, options, &["sh", "-c", &script]);
        assert_eq!(ended.status.code(), Some(5), "{ended:?}");
        assert_eq!(ended.out.trim(), (4 * NOISE).to_string());
        assert!(ended.err.contains("the manager is gone"), "{}", ended.err);
    }
    let said = presagio(&["trace", "info", "--json", &place.text("t.ptrace")]);
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn a_killed_supervisor_takes_the_command_with_it_and_leaves_the_trace() {
    let place = Place::new("supervisor9");
    let script = "cp in out; echo $$ > pid; exec sleep 1000";
    let mut run = place.run(
        &["--trace", "t.ptrace", "--json", "s.json"],
        &["sh", "-c", script],
    );
    let mut child = run.stderr(Stdio::null()).spawn().unwrap();
    let pid = || {
        fs::read_to_string(place.path("pid"))
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    until("the command runs", || pid().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    until("the command is gone", || {
        matches!(state(pid().unwrap()), None | Some('Z'))
    });
    until("the manager has summed up", || {
        fs::read(place.path("s.json")).is_ok_and(|s| s.ends_with(b"}\n"))
    });
    let info = place.trace_info("t.ptrace");
    assert!(info["cut_short"].is_null(), "{info:#}");
}

#[test]
fn a_run_within_a_run_is_one_run() {
    let place = Place::new("nested");
    let script = format!(
        "{0} run -- {0} run --trace no.ptrace -- cp in out",
        program()
    );
    let (ended, json) = place.json(&[], &script);
    let ended = ended.ok();
    assert_eq!(bytes(&json), (NOISE, NOISE));
    assert_eq!(
        ended.err.matches("operations on").count(),
        1,
        "{}",
        ended.err
    );
    assert!(ended.err.contains("are not used"), "{}", ended.err);
    assert!(!place.path("no.ptrace").exists());
}

#[test]
fn ranks_of_a_job_share_one_manager_and_one_summary() {
    let place = Place::new("ranks");
    let rank = |number: u32| {
        // The second one begins when the first is at work, and ends later.
        let script = match number {
            0 => "cp in a; while ! [ -e b ]; do sleep 0.01; done",
            _ => "while ! [ -e a ]; do sleep 0.01; done; cp in b; sleep 0.2",
        };
        let mut run = place.run(&[], &["sh", "-c", script]);
        run.env("PRESAGIO_JOB", "ranks")
            .env("PRESAGIO_RANKS", "2")
            .stderr(Stdio::piped());
        run.spawn().unwrap()
    };
    let both = [rank(0), rank(1)].map(|child| Ended::of(child.wait_with_output().unwrap()).ok());
    let said: Vec<&str> = both
        .iter()
        .map(|e| e.err.as_str())
        .filter(|e| !e.is_empty())
        .collect();
    assert_eq!(said.len(), 1, "{both:?}");
    assert!(
        said[0].contains("job ranks") && said[0].contains("6.0 MiB in"),
        "{}",
        said[0]
    );
    let left: Vec<String> = fs::read_dir(place.path("presagio"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["lock"], "the socket is gone");
}

#[test]
fn a_rank_that_never_comes_is_not_waited_for_for_ever() {
    let place = Place::new("norank");
    let mut one = place.run(&[], &["cp", "in", "out"]);
    let ended = Ended::of(
        one.env("PRESAGIO_JOB", "x")
            .env("PRESAGIO_RANKS", "2")
            .output()
            .unwrap(),
    )
    .ok();
    assert!(ended.err.contains("3.0 MiB in"), "{}", ended.err);
}

#[test]
fn a_full_disk_costs_the_trace_and_nothing_else() {
    let place = Place::new("full");
    for options in [
        &["--trace", "/dev/full"][..],
        &["--trace", "/dev/full", "-q"],
    ] {
        let ended = run(
            &place,
            options,
            &[
                "sh",
                "-c",
                "cp in out; cmp in out; cat in in in in in in in | wc -c",
            ],
        )
        .ok();
        assert_eq!(ended.out.trim(), (7 * NOISE).to_string());
        assert!(
            ended.err.contains("cut short: No space left"),
            "{}",
            ended.err
        );
    }
}

#[test]
fn off_is_off() {
    let place = Place::new("off");
    let script = "echo \"[$LD_PRELOAD$PRESAGIO_ARENA]\"; grep -c libpresagio /proc/self/maps";
    let ended = run(&place, &["--off"], &["sh", "-c", script]);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("[]\n0\n", ""));
    assert_eq!(ended.status.code(), Some(1));
    let mut switched = place.run(&[], &["sh", "-c", script]);
    let ended = Ended::of(switched.env("PRESAGIO", "off").output().unwrap());
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("[]\n0\n", ""));
}

#[test]
fn quiet_says_nothing() {
    let place = Place::new("quiet");
    let ended = run(&place, &["-q"], &["cp", "in", "out"]).ok();
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
}

#[test]
fn other_preloaded_libraries_stay_in_front() {
    let place = Place::new("preload");
    let mut command = place.run(&["-q"], &["sh", "-c", "echo $LD_PRELOAD"]);
    let library = library();
    let ended = Ended::of(command.env("LD_PRELOAD", "libm.so.6").output().unwrap()).ok();
    let expected = format!("libm.so.6:{}\n", library.canonicalize().unwrap().display());
    assert_eq!(ended.out, expected);
}

#[test]
fn globs_say_what_is_followed() {
    let place = Place::new("globs");
    let (_, json) = place.json(
        &[
            "--include",
            "*/in",
            "--include",
            "*/out",
            "--exclude",
            "*/out",
        ],
        "cp in out; cp in other",
    );
    assert_eq!(bytes(&json), (2 * NOISE, 0));
}

#[test]
fn the_second_run_begins_with_what_the_first_learned() {
    let place = Place::new("models");
    let script = "dd if=in of=out bs=64k 2>/dev/null";
    let (_, first) = place.json(&[], script);
    assert_eq!(number(&first, "/prediction/models_begun"), 0);
    assert!(number(&first, "/prediction/models_saved") >= 1, "{first:#}");
    let (_, second) = place.json(&[], script);
    assert!(
        number(&second, "/prediction/models_begun") >= 1,
        "{second:#}"
    );
    let right = |json| {
        let of = |what| number(json, &format!("/prediction/{what}")) as f64;
        of("right") / of("operations")
    };
    assert!(right(&second) > right(&first), "{second:#}");
    let (_, without) = place.json(&["--no-model"], script);
    assert_eq!(number(&without, "/prediction/models_begun"), 0);
}

#[test]
fn models_that_cannot_be_used_or_kept_are_said_and_harm_nobody() {
    let place = Place::new("nomodels");
    let script = "dd if=in of=out bs=4k 2>/dev/null; cmp in out";
    let (ended, _) = place.json(&["--model-dir", "/proc/nowhere"], script);
    assert!(ended.ok().err.contains("--model-dir"));
    place.json(&["--model-dir", "m"], script);
    for entry in fs::read_dir(place.path("m")).unwrap() {
        fs::write(entry.unwrap().path(), "damaged").unwrap();
    }
    let (ended, _) = place.json(&["--model-dir", "m"], script);
    assert!(ended.ok().err.contains("not a model"));
}

#[test]
fn a_static_program_is_said_to_be_unseen() {
    let place = Place::new("static");
    fs::write(
        place.path("s.c"),
        "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 7; }",
    )
    .unwrap();
    let built = Command::new("gcc")
        .args(["-static", "-o", &place.text("s"), &place.text("s.c")])
        .status();
    assert!(built.unwrap().success());
    let ended = run(&place, &[], &["./s"]);
    assert_eq!(
        (ended.status.code(), ended.out.as_str()),
        (Some(7), "hello\n")
    );
    assert!(ended.err.contains("linked statically"), "{}", ended.err);
}

#[test]
fn what_cannot_be_done_is_said_with_a_status_of_its_own() {
    let place = Place::new("cannot");
    fs::write(place.path("plain"), "no program").unwrap();
    fs::write(place.path("bad.json"), "{ \"File\": [ { \"Path\": 5 } ] }").unwrap();
    let cases: [(&[&str], &str, i32, &str); 7] = [
        (&[], "./nowhere", 127, "check its name"),
        (&[], "./plain", 126, "executable"),
        (&["--config", "bad.json"], "true", 125, "line 1, column 23"),
        (
            &["--trace", "no/t.ptrace"],
            "true",
            125,
            "create the directory",
        ),
        (&["--trace", "plain"], "true", 125, "another name"),
        (&["--json", "no/s.json"], "true", 125, "may write to"),
        (&["--pin", "1023"], "true", 125, "choose one of "),
    ];
    for (options, command, code, said) in cases {
        let ended = run(&place, options, &[command]);
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.err.contains(said), "{ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    }
    let mut command = place.run(&[], &["true"]);
    let ended = Ended::of(command.env("PRESAGIO_LIB", "/nowhere").output().unwrap());
    assert_eq!(ended.status.code(), Some(125));
    assert!(ended.err.contains("PRESAGIO_LIB"), "{}", ended.err);
    assert_eq!(
        fs::read_to_string(place.path("plain")).unwrap(),
        "no program"
    );
}

/// As Slurm starts the first task of a step on this node, which is one of so many.
fn as_a_task(run: &mut Command, nodes: u32) -> &mut Command {
    let many = format!("1(x{nodes})");
    run.env("SLURM_JOB_ID", "77")
        .env("SLURM_STEP_ID", "0")
        .env("SLURM_PROCID", "0")
        .env("SLURM_NODEID", "0")
        .env("SLURM_STEP_TASKS_PER_NODE", many)
        .env("SLURM_STEP_NUM_NODES", nodes.to_string())
}

#[test]
fn nodes_of_one_job_that_share_a_directory_do_not_replace_each_others_files() {
    let place = Place::new("nodes");
    let node = rustix::system::uname();
    let node = node.nodename().to_str().unwrap();
    let names = ["--trace", "t.ptrace", "--json", "s-%h-%j.json"];
    let options = [&names[..], &["--report", "r.html"]].concat();
    for (nodes, trace, report) in [
        (1, "t.ptrace".to_owned(), "r.html".to_owned()),
        (2, format!("t.{node}.ptrace"), format!("r.{node}.html")),
    ] {
        let mut run = place.run(&options, &["cp", "in", "out"]);
        let ended = Ended::of(as_a_task(&mut run, nodes).output().unwrap()).ok();
        let summary = place.path(&format!("s-{node}-77.json"));
        for path in [place.path(&trace), place.path(&report), summary] {
            assert!(path.exists(), "{path:?} {ended:?}");
            fs::remove_file(path).unwrap();
        }
        let is_said = ended.err.contains(&format!("here {trace} "));
        assert_eq!(is_said, nodes > 1, "{}", ended.err);
        let left = fs::read_dir(place.dir.path()).unwrap().flatten();
        let left = left.filter(|f| {
            let name = f.file_name();
            [".ptrace", ".json", ".html"]
                .iter()
                .any(|end| name.to_str().unwrap().ends_with(end))
        });
        assert_eq!(left.count(), 0, "{}", ended.err);
    }
}

#[test]
fn hints_from_a_recording_are_followed() {
    let place = Place::new("hints");
    let reads = "
f = open('in', 'rb', buffering=0)
for i in range(0, 3 << 20, 16384):
    f.seek(i)
    f.read(8192)
";
    fs::write(place.path("p.py"), reads).unwrap();
    run(
        &place,
        &["--observe", "--trace", "t.ptrace", "-q"],
        &["python3", "p.py"],
    )
    .ok();
    let (trace, hints) = (place.text("t.ptrace"), place.text("hints.json"));
    let said = presagio_ok(&["advise", &trace, "-o", &hints]);
    assert!(said.err.contains("hints for"), "{}", said.err);
    let config: Value = serde_json::from_str(&fs::read_to_string(&hints).unwrap()).unwrap();
    assert_eq!(
        config["File"][0]["Path"],
        fs::canonicalize(place.path("in"))
            .unwrap()
            .to_str()
            .unwrap()
    );
    let (ended, json) = place.json(&["--config", "hints.json"], "python3 p.py");
    assert!(ended.ok().err.contains("was advised"));
    assert!(
        number(&json, "/prefetch/by_reason/configured/hints") > 0,
        "{json:#}"
    );
    let again: Said = presagio(&["advise", &trace, "-o", &hints]);
    assert_eq!(again.code, Some(2), "it is not replaced unasked");
}

/// Advice for the file `in` of a place.
fn write_advice(place: &Place) {
    let path = fs::canonicalize(place.path("in")).unwrap();
    let advice = serde_json::json!({ "File": [ { "Path": path, "BlockSize": 65536, "CacheSize": 8,
        "ReadAheadSize": 4, "WillNeed": [ { "Offset": 0, "Length": 0 } ] } ] });
    fs::write(place.path("hints.json"), advice.to_string()).unwrap();
}

#[test]
fn a_configuration_that_the_environment_names_is_followed() {
    let place = Place::new("mercury");
    write_advice(&place);
    let run = |config: &str| {
        let command = ["--json", "s.json", "--", "cp", "in", "out"];
        let mut run = place.presagio();
        run.arg("run").args(command).env("MERCURY_CONFIG", config);
        Ended::of(run.output().unwrap())
    };
    let ended = run("hints.json").ok();
    assert!(ended.err.contains("was advised"), "{}", ended.err);
    let json: Value =
        serde_json::from_str(&fs::read_to_string(place.path("s.json")).unwrap()).unwrap();
    let hints = number(&json, "/prefetch/by_reason/configured/hints");
    assert!(hints > 0, "{json:#}");
    let missing = run("nowhere.json");
    assert_eq!(missing.status.code(), Some(125), "{missing:?}");
    assert!(missing.err.contains("nowhere.json"), "{missing:?}");
    let none = run("").ok();
    assert!(!none.err.contains("configured"), "{}", none.err);
}

#[test]
fn a_standing_advisor_does_not_get_those_who_want_something_of_their_own() {
    let place = Place::new("advised");
    write_advice(&place);
    let mut advisor = place.presagio();
    let advisor = advisor.arg("advisor").process_group(0);
    let advisor = advisor.stdout(Stdio::null()).stderr(Stdio::null());
    let _advisor = Guarded(advisor.spawn().unwrap());
    let socket = place.path("presagio/advisor.sock");
    until("the advisor listens", || socket.exists());
    let copy = ["cp", "in", "out"];
    assert_eq!(run(&place, &[], &copy).ok().err, "", "the advisor has it");
    let pinned = run(&place, &["--pin", "0"], &copy).ok();
    assert!(pinned.err.contains("operations on"), "{}", pinned.err);
    let mut configured = place.run(&[], &copy);
    configured.env("MERCURY_CONFIG", "hints.json");
    let configured = Ended::of(configured.output().unwrap()).ok();
    assert!(configured.err.contains("was advised"), "{}", configured.err);
}

#[test]
fn a_standing_advisor_serves_those_who_come_and_sums_up_at_its_end() {
    let place = Place::new("advisor");
    let mut advisor = place.presagio();
    let advisor = advisor
        .args(["advisor", "--json", "a.json"])
        .process_group(0);
    let mut advisor = advisor
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let socket = place.path("presagio/advisor.sock");
    until("the advisor listens", || socket.exists());
    for name in ["a", "b"] {
        let ended = run(&place, &[], &["cp", "in", name]).ok();
        assert_eq!(ended.err, "", "the advisor has the summary");
    }
    let mut exports = String::new();
    let out = advisor.stdout.as_mut().unwrap();
    let mut byte = [0];
    while exports.lines().count() < 3 || !exports.ends_with('\n') {
        out.read_exact(&mut byte).unwrap();
        exports.push(byte[0] as char);
    }
    let script = format!("{exports}\ncp in c");
    Ended::of(
        place
            .presagio()
            .args(["run", "--off", "sh", "-c", &script])
            .output()
            .unwrap(),
    )
    .ok();
    signal(&advisor, "-TERM");
    let ended = Ended::of(advisor.wait_with_output().unwrap()).ok();
    assert!(ended.err.contains("operations on"), "{}", ended.err);
    let json: Value =
        serde_json::from_str(&fs::read_to_string(place.path("a.json")).unwrap()).unwrap();
    assert_eq!(bytes(&json), (3 * NOISE, 3 * NOISE));
}

#[test]
fn many_short_processes_are_all_counted() {
    let place = Place::new("many");
    let script = "i=0; while [ $i -lt 300 ]; do cat < p > q; i=$((i+1)); done";
    fs::write(place.path("p"), "0123456789").unwrap();
    let (ended, json) = place.json(&[], script);
    ended.ok();
    assert_eq!(bytes(&json), (3000, 3000));
    assert_eq!(number(&json, "/still_running"), 0);
    // The shell's child opens the files, then becomes cat.
    let programs = json["programs"].as_array().unwrap();
    let mut names: Vec<&str> = programs.iter().filter_map(|p| p["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["cat", "sh"]);
}

#[test]
fn a_program_with_no_room_for_the_arena_runs_as_it_is() {
    let place = Place::new("noroom");
    // Enough for cp, but not for the arena's addresses as well.
    let script = "ulimit -v 30000; exec cp in out";
    let (ended, json) = place.json(&[], script);
    assert_eq!(ended.ok().out, "");
    let (input, output) = (fs::read(place.path("in")), fs::read(place.path("out")));
    assert!(input.unwrap() == output.unwrap());
    assert_eq!(bytes(&json), (0, 0));
}

#[test]
fn a_container_is_not_mistaken_for_others_and_said_to_be_unseen() {
    let apart = ["unshare", "--pid", "--fork"];
    let tried = Command::new(apart[0])
        .args(&apart[1..])
        .arg("true")
        .output();
    if !tried.is_ok_and(|t| t.status.success()) {
        return skipped("no other PID namespaces are allowed here");
    }
    let place = Place::new("container");
    // The first there is process 1, which is somebody else here.
    let script = format!(
        "{} sh -c 'cp in out; cp in again'; cp in here",
        apart.join(" ")
    );
    let (ended, json) = place.json(&[], &script);
    ended.ok();
    let input = fs::read(place.path("in")).unwrap();
    for name in ["out", "again", "here"] {
        assert!(input == fs::read(place.path(name)).unwrap());
    }
    assert_eq!(bytes(&json), (NOISE, NOISE), "that of the last one");
    assert_eq!(number(&json, "/still_running"), 0);
    assert!(
        json["not_seen"].to_string().contains("PID namespace"),
        "{json:#}"
    );
}

#[test]
fn settings_that_do_not_hold_are_said_and_those_that_agree_are_not() {
    let place = Place::new("settings");
    let joining = |options: &[&str], script: &str| {
        let mut run = place.run(options, &["sh", "-c", script]);
        run.env("PRESAGIO_JOB", "settings").stderr(Stdio::piped());
        run
    };
    let wait = "echo > ready; while ! [ -e go ]; do sleep 0.01; done";
    let mut first = Guarded(joining(&["--no-model"], wait).spawn().unwrap());
    until("the first one is there", || place.path("ready").exists());
    let said = |options: &[&str]| {
        let ended = Ended::of(joining(options, "true").output().unwrap());
        ended.ok().err
    };
    let (same, other) = (said(&["--no-model"]), said(&["--observe"]));
    write_advice(&place);
    let mut advised = joining(&["--no-model"], "true");
    let advised = advised.env("MERCURY_CONFIG", "hints.json").output();
    let advised = Ended::of(advised.unwrap()).ok().err;
    fs::write(place.path("go"), "").unwrap();
    assert!(first.0.wait().unwrap().success());
    assert_eq!(same, "");
    assert!(other.contains("are not used"), "{other}");
    assert_eq!(other.lines().count(), 1, "{other}");
    assert_eq!(advised, other, "the environment asks for something too");
}

/// Counts the input's bytes, and ends with 5 if it has no children that it did not start.
const NO_CHILD: &str = "
import os, sys
print(len(open(\"in\", \"rb\").read()))
try:
    os.wait()
except ChildProcessError:
    sys.exit(5)";

#[test]
fn a_manager_that_cannot_begin_costs_one_line_and_nothing_else() {
    let place = Place::new("nomanager");
    // No file may be as large as an arena.
    let script = format!(
        "ulimit -f 2000; exec {} run -- python3 -c '{NO_CHILD}'",
        program()
    );
    let mut command = place.presagio();
    let ended = command.args(["run", "--off", "sh", "-c", &script]).output();
    let ended = Ended::of(ended.unwrap());
    assert_eq!(ended.status.code(), Some(5), "{ended:?}");
    assert_eq!(ended.out.trim(), NOISE.to_string());
    assert!(ended.err.contains("could not begin"), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
}

#[test]
fn the_manager_stays_where_it_is_pinned_and_the_command_goes_anywhere() {
    let place = Place::new("pin");
    let script = "grep Cpus_allowed_list ${PRESAGIO_ARENA%/fd/*}/status; grep Cpus_allowed_list /proc/self/status";
    let allowed = |ended: Ended| {
        let lists = ended.ok().out;
        let lists = lists.lines().filter_map(|l| l.split_whitespace().nth(1));
        lists.map(str::to_owned).collect::<Vec<_>>()
    };
    let all = allowed(run(&place, &["-q"], &["sh", "-c", script]));
    assert_eq!(all[0], all[1]);
    let first: String = all[0].chars().take_while(char::is_ascii_digit).collect();
    for mode in [&["-q"][..], &["-q", "--in-process"]] {
        let options = [mode, &["--pin", &first]].concat();
        let pinned = allowed(run(&place, &options, &["sh", "-c", script]));
        assert_eq!(pinned, [first.as_str(), &all[1]], "{mode:?}");
    }
}

/// Processor time that a process has taken, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let used = fields.skip(11).take(2).map(|f| f.parse::<u64>().unwrap());
    used.sum()
}

#[test]
fn an_idle_advisor_takes_no_processor_time_and_wakes_for_who_comes() {
    let place = Place::new("idle");
    let mut advisor = place.presagio();
    let advisor = advisor
        .args(["advisor", "--json", "a.json"])
        .process_group(0);
    let advisor = advisor.stdout(Stdio::null()).stderr(Stdio::null());
    let mut advisor = Guarded(advisor.spawn().unwrap());
    let socket = place.path("presagio/advisor.sock");
    until("the advisor listens", || socket.exists());
    let pause = || std::thread::sleep(Duration::from_millis(1500));
    for name in ["a", "b"] {
        run(&place, &[], &["cp", "in", name]).ok();
        until("it has fallen asleep", || {
            let before = ticks(advisor.0.id());
            pause();
            ticks(advisor.0.id()) == before
        });
        let before = ticks(advisor.0.id());
        pause();
        assert_eq!(ticks(advisor.0.id()), before, "it sleeps");
    }
    signal(&advisor.0, "-TERM");
    assert!(advisor.0.wait().unwrap().success());
    let json: Value =
        serde_json::from_str(&fs::read_to_string(place.path("a.json")).unwrap()).unwrap();
    assert_eq!(bytes(&json), (2 * NOISE, 2 * NOISE));
}
