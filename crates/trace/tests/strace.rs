//! What is promised about strace: whatever a program did to files is found with its offset, however strace was
//! asked to write it down, and input that strace did not write is refused with its place.

use presagio_core::{Action, Event, FileId, Nanos};
use presagio_trace::strace::Reader;
use presagio_trace::{Place, Process, Record, Source, TraceError};
use std::collections::HashMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the test program calls "weird".
const WEIRD: &str = "we<ird> \"näme\", (a)\n\\.dat";

struct Trace {
    names: HashMap<FileId, String>,
    processes: HashMap<u32, Process>,
    events: Vec<Event>,
}

fn try_read(text: &[u8]) -> Result<Trace, TraceError> {
    let reader = Reader::new(
        Box::new(Cursor::new(text.to_vec())),
        Path::new("strace.txt"),
    );
    let mut trace = Trace {
        names: HashMap::new(),
        processes: HashMap::new(),
        events: Vec::new(),
    };
    for record in reader {
        match record? {
            Record::File { id, name } => {
                let name = String::from_utf8_lossy(&name).into_owned();
                assert_eq!(trace.names.insert(id, name), None);
            }
            Record::Process(process) => {
                let before = trace.processes.insert(process.id, process.clone());
                assert_ne!(before, Some(process));
            }
            Record::Event(event) => {
                assert!(trace.names.contains_key(&event.file));
                assert!(trace.processes.contains_key(&event.process));
                trace.events.push(event);
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(trace)
}

fn read(text: &str) -> Trace {
    try_read(text.as_bytes()).unwrap()
}

/// Action, name, offset, length, result.
type Brief = (Action, String, u64, u64, i64);

impl Trace {
    /// The events on files below `directory`, which goes without saying in their names.
    fn below(&self, directory: &str) -> Vec<(Brief, Event)> {
        let brief = |event: &Event| {
            let name = self.names[&event.file]
                .strip_prefix(directory)?
                .trim_start_matches('/');
            let name = if name == WEIRD { "weird" } else { name };
            let brief = (
                event.action,
                name.into(),
                event.offset,
                event.len,
                event.result,
            );
            Some((brief, *event))
        };
        self.events.iter().filter_map(brief).collect()
    }

    fn brief(&self, directory: &str) -> Vec<Brief> {
        self.below(directory)
            .into_iter()
            .map(|(brief, _)| brief)
            .collect()
    }
}

/// What the test program says that it did.
fn truth(text: &str) -> Vec<Brief> {
    let line = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        (
            Action::from_name(columns[0]).unwrap(),
            columns[1].to_owned(),
            columns[2].parse().unwrap(),
            columns[3].parse().unwrap(),
            columns[4].parse().unwrap(),
        )
    };
    text.lines().map(line).collect()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/strace")
        .join(name)
}

fn data_text(name: &str) -> String {
    std::fs::read_to_string(data(name)).unwrap()
}

/// Finds the parent, its child, and its thread in the recording of the test program.
fn check_tasks(trace: &Trace, directory: &str) {
    let below = trace.below(directory);
    let of_len = |len| {
        let found = below.iter().find(|((action, name, ..), event)| {
            *action == Action::Write && name == "shared" && event.len == len
        });
        found.unwrap().1
    };
    let (parent, child, thread) = (of_len(7), of_len(20), of_len(30));
    assert_ne!(parent.process, child.process);
    assert_eq!(parent.process, thread.process);
    assert_ne!(parent.thread, thread.thread);
    assert_eq!(trace.processes[&child.process].pid, Some(child.thread));
    let command = |event: Event| trace.processes[&event.process].command.clone().unwrap();
    assert!(command(parent).contains("known"), "{}", command(parent));
    assert_eq!(command(parent), command(child));
}

#[test]
fn a_copy_of_all_there_is_has_the_length_of_what_was_moved() {
    let trace = read(
        "7 1700000000.1 copy_file_range(3</a>, NULL, 4</b>, NULL, 9223372035781033984, 0) = 4096 <0.1>\n\
         7 1700000000.2 copy_file_range(3</a>, NULL, 4</b>, NULL, 9223372035781033984, 0) = 0 <0.1>\n",
    );
    let lengths: Vec<(Action, u64, i64)> = trace
        .events
        .iter()
        .map(|e| (e.action, e.len, e.result))
        .collect();
    assert_eq!(
        lengths,
        [
            (Action::Read, 4096, 4096),
            (Action::Write, 4096, 4096),
            (Action::Read, 0, 0),
            (Action::Write, 0, 0)
        ]
    );
}

#[test]
fn a_recording_tells_what_the_program_did() {
    let trace = read(&data_text("known.strace"));
    assert_eq!(trace.brief("/data/run"), truth(&data_text("known.tsv")));
    check_tasks(&trace, "/data/run");
    let parent = &trace.processes[&0];
    assert_eq!(parent.command.as_deref(), Some("./known /data/run"));
    assert_eq!(parent.pid, Some(trace.events[0].thread));
    // 1794786088.128794 fsync(...) = 0 <0.000403>
    let sync = trace
        .events
        .iter()
        .find(|e| e.action == Action::Sync)
        .unwrap();
    assert_eq!(sync.duration.0, 403_000);
    assert!(
        trace
            .events
            .windows(2)
            .all(|pair| pair[0].time <= pair[1].time)
    );
}

/// Runs the test program under strace; what strace wrote, and what the program says that it did.
fn record(options: &[&str], to_file: bool) -> (String, Vec<Brief>, String) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("known");
    let compiled = Command::new("gcc")
        .args(["-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(data("known.c"))
        .status()
        .expect("gcc is needed (Debian: build-essential)");
    assert!(compiled.success());
    let run = dir.path().canonicalize().unwrap().join("run");
    std::fs::create_dir(&run).unwrap();
    let (output, said) = (dir.path().join("output"), dir.path().join("said"));
    let mut strace = Command::new("strace");
    strace.args(options);
    if to_file {
        strace.arg("-o").arg(&output);
    }
    // The shell only opens descriptor 9 and is gone before strace begins to look.
    strace.arg("--").arg(&program).arg(&run);
    let words: Vec<_> = std::iter::once(strace.get_program())
        .chain(strace.get_args())
        .collect();
    let finished = Command::new("sh")
        .args(["-c", "exec 9>\"$0\"; exec \"$@\""])
        .arg(&said)
        .args(words)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert!(
        finished.status.success(),
        "strace is needed (Debian: strace): {stderr}"
    );
    let text = if to_file {
        std::fs::read_to_string(output).unwrap()
    } else {
        stderr
    };
    let said = std::fs::read_to_string(said).unwrap();
    (text, truth(&said), run.to_str().unwrap().to_owned())
}

fn check_recording(options: &[&str], to_file: bool) {
    let (text, truth, directory) = record(options, to_file);
    let trace = read(&text);
    assert_eq!(trace.brief(&directory), truth, "{options:?}\n{text}");
    check_tasks(&trace, &directory);
}

#[test]
fn a_fresh_recording_to_a_file_tells_what_the_program_did() {
    check_recording(&["-f", "-ttt", "-T", "-y"], true);
}

#[test]
fn a_fresh_recording_to_the_terminal_does_too() {
    check_recording(&["-f", "-ttt", "-T", "-y"], false);
}

#[test]
fn more_about_descriptors_does_no_harm() {
    check_recording(&["-f", "-ttt", "-T", "-yy"], true);
}

#[test]
fn without_paths_beside_descriptors_names_come_from_the_calls() {
    check_recording(&["-f", "-ttt", "-T"], true);
}

#[test]
fn a_task_that_runs_before_its_parent_returns_shares_its_files() {
    let trace = read(
        "1 1.0 openat(AT_FDCWD</>, \"f\", O_RDWR) = 3</f> <0.1>\n\
         1 1.1 read(3</f>, \"\", 10) = 10 <0.1>\n\
         1 1.2 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>\n\
         2 1.3 read(3</f>, \"\", 20) = 20 <0.1>\n\
         2 1.4 clone(child_stack=0x1, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD <unfinished ...>\n\
         3 1.5 read(3</f>,  <unfinished ...>\n\
         2 1.6 <... clone resumed>) = 3 <0.1>\n\
         3 1.7 <... read resumed>\"\", 5) = 5 <0.2>\n\
         1 1.8 <... clone resumed>, child_tidptr=0x1) = 2 <0.6>\n\
         1 1.9 read(3</f>, \"\", 7) = 7 <0.1>\n",
    );
    let reads: Vec<_> = trace
        .events
        .iter()
        .skip(1)
        .map(|e| (e.thread, e.offset, e.len))
        .collect();
    assert_eq!(reads, [(1, 0, 10), (2, 10, 20), (3, 30, 5), (1, 35, 7)]);
    let process = |i: usize| trace.events[i].process;
    assert_ne!(process(1), process(2));
    assert_eq!(process(2), process(3));
    assert_eq!(trace.events[3].time.0, 500_000_000);
}

#[test]
fn a_task_that_nobody_returns_is_a_process_of_its_own() {
    let trace = read(
        "1 1.0 vfork( <unfinished ...>\n\
         2 1.1 openat(AT_FDCWD</>, \"f\", O_RDWR) = 3</f> <0.1>\n\
         1 1.2 +++ killed by SIGKILL +++\n\
         2 1.3 read(3</f>, \"\", 20) = 20 <0.1>\n",
    );
    assert_eq!(trace.events.len(), 2);
    assert_eq!(trace.processes[&trace.events[1].process].pid, Some(2));
}

#[test]
fn the_first_task_may_go_without_a_number() {
    let trace = read(
        "1.0 openat(AT_FDCWD</>, \"f\", O_RDWR) = 3</f> <0.1>\n\
         1.1 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>\n\
         strace: Process 12 attached\n\
         [pid    12] 1.2 write(3</f>, \"\", 20) = 20 <0.1>\n\
         [pid    11] 1.3 <... clone resumed>) = 12 <0.1>\n\
         [pid    11] 1.4 write(3</f>, \"\", 1) = 1 <0.1>\n\
         [pid    12] 1.5 +++ exited with 0 +++\n\
         1.6 write(3</f>, \"\", 2) = 2 <0.1>\n\
         1.7 +++ exited with 0 +++\n",
    );
    let writes: Vec<_> = trace
        .events
        .iter()
        .skip(1)
        .map(|e| (e.process, e.offset))
        .collect();
    assert_eq!(writes, [(1, 0), (0, 20), (0, 21)]);
}

#[test]
fn a_remark_of_strace_in_the_middle_of_a_call_does_no_harm() {
    let attached = "strace: Process 12 attached";
    for rest in [
        ", child_tidptr=0x1) = 12 <0.1>",
        " <unfinished ...>\n[pid 11] 1.15 <... clone resumed>) = 12 <0.1>",
    ] {
        let trace = read(&format!(
            "1.0 openat(AT_FDCWD</>, \"f\", O_RDWR) = 3</f> <0.1>\n\
             1.1 clone(child_stack=NULL, flags=SIGCHLD{attached}\n{rest}\n\
             [pid 12] 1.2 write(3</f>, \"\", 20) = 20 <0.1>\n\
             [pid 11] 1.3 write(3</f>, \"\", 1) = 1 <0.1>\n"
        ));
        let writes: Vec<_> = trace
            .events
            .iter()
            .skip(1)
            .map(|e| (e.process, e.offset))
            .collect();
        assert_eq!(writes, [(1, 0), (0, 20)]);
    }
}

#[test]
fn restarted_and_killed_calls_are_no_events_and_failed_ones_are() {
    let trace = read(
        "1.0 read(3</f>, 0x1, 20) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <0.1>\n\
         1.1 --- SIGALRM {si_signo=SIGALRM, si_code=SI_KERNEL} ---\n\
         1.2 rt_sigreturn({mask=[]}) = 0 <0.1>\n\
         1.3 read(3</f>, \"\", 20) = 20 <0.1>\n\
         1.4 read(3</f>, 0x1, 5) = -1 EISDIR (Is a directory) <0.1>\n\
         1.5 lseek(3</f>, 9, SEEK_DATA) = -1 ENXIO (No such device or address) <0.1>\n\
         1.6 mmap(NULL, 10, PROT_READ, MAP_SHARED, 3</f>, 0x1000) = -1 ENOMEM (Cannot allocate memory) <0.1>\n\
         1.7 read(3</f>,  <unfinished ...>) = ?\n\
         1.8 +++ killed by SIGKILL +++\n",
    );
    let brief: Vec<_> = trace
        .events
        .iter()
        .map(|e| (e.action, e.offset, e.len, e.result))
        .collect();
    assert_eq!(
        brief,
        [
            (Action::Read, 0, 20, 20),
            (Action::Read, 20, 5, -21),
            (Action::Seek, 9, 0, -6),
            (Action::Map, 4096, 10, -12),
        ]
    );
}

#[test]
fn a_descriptor_is_free_before_its_close_returns() {
    let trace = read(
        "1 1.0 openat(AT_FDCWD</>, \"f\", O_RDWR) = 3</f> <0.1>\n\
         1 1.1 clone3({flags=CLONE_FILES|CLONE_THREAD, stack_size=1} => {parent_tid=[2]}, 88) = 2 <0.1>\n\
         1 1.2 close(3</f> <unfinished ...>\n\
         2 1.3 openat(AT_FDCWD</>, \"f\", O_RDWR) = 3</f> <0.1>\n\
         2 1.4 read(3</f>, \"\", 5) = 5 <0.1>\n\
         1 1.5 <... close resumed>) = 0 <0.3>\n\
         2 1.6 read(3</f>, \"\", 5) = 5 <0.1>\n",
    );
    let last = trace.events.last().unwrap();
    assert_eq!((last.action, last.offset), (Action::Read, 5));
    assert_eq!(
        trace
            .events
            .iter()
            .filter(|e| e.action == Action::Close)
            .count(),
        1
    );
}

#[test]
fn a_descriptor_whose_path_changed_unseen_means_another_file() {
    let trace = read(
        "1.0 read(3</a>, \"\", 5) = 5 <0.1>\n\
         1.1 read(3</b>, \"\", 5) = 5 <0.1>\n\
         1.2 read(3<pipe:[1]>, \"\", 5) = 5 <0.1>\n\
         1.3 read(3</b>, \"\", 5) = 5 <0.1>\n",
    );
    let brief: Vec<_> = trace
        .events
        .iter()
        .map(|e| (&*trace.names[&e.file], e.offset))
        .collect();
    assert_eq!(brief, [("/a", 0), ("/b", 0), ("/b", 0)]);
}

#[test]
fn programs_lose_descriptors_that_close_on_exec() {
    let trace = read(
        "1.0 openat(AT_FDCWD, \"/a\", O_RDONLY|O_CLOEXEC) = 3 <0.1>\n\
         1.1 openat(AT_FDCWD, \"/b\", O_RDONLY) = 4 <0.1>\n\
         1.2 execve(\"/bin/x\", [\"x\", \"a \\\"b\\\"\"], 0x1 /* 2 vars */) = 0 <0.1>\n\
         1.3 read(3, \"\", 5) = 5 <0.1>\n\
         1.4 read(4, \"\", 5) = 5 <0.1>\n",
    );
    assert_eq!(trace.events.len(), 3);
    assert_eq!(trace.names[&trace.events[2].file], "/b");
}

#[test]
fn a_process_is_known_by_the_program_that_it_became() {
    let trace = read(
        "5 1700000001.0 execve(\"/bin/sh\", [\"sh\", \"run\"], 0x1 /* 1 var */) = 0 <0.1>\n\
         5 1700000002.0 openat(AT_FDCWD, \"/lib\", O_RDONLY) = 3</lib> <0.1>\n\
         5 1700000003.0 execve(\"/bin/app\", [\"app\"], 0x1 /* 1 var */) = 0 <0.1>\n\
         5 1700000004.0 openat(AT_FDCWD, \"/data\", O_RDONLY) = 4</data> <0.1>\n",
    );
    let process = &trace.processes[&trace.events[1].process];
    assert_eq!(process.command.as_deref(), Some("app"));
    assert_eq!(process.start, Some(Nanos::from_secs(1_700_000_001)));
}

#[test]
fn a_recording_whose_strace_was_killed_is_read_up_to_its_last_line() {
    let whole = "5 1.0 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3</a> <0.1>\n";
    let text = format!("{whole}5 2.0 read(3</a>, \"abc");
    let mut reader = Reader::new(Box::new(Cursor::new(text.into_bytes())), Path::new("cut"));
    let records: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    assert!(matches!(records.last(), Some(Record::Event(e)) if e.action == Action::Open));
    let cut = reader.cut_short().unwrap();
    assert_eq!(cut.place, Place::Line(2));
    let text = format!("5 2.0 read(3</a>, \"abc\n{whole}");
    assert!(try_read(text.as_bytes()).is_err());
}

#[test]
fn lengths_of_a_vector_are_not_looked_for_in_its_data() {
    let trace = read(
        "5 1.0 writev(3</a>, [{iov_base=\"iov_len=900 \\\"\", iov_len=12}, {iov_base=\"x\", iov_len=1}], 2) = 13 <0.1>\n",
    );
    assert_eq!((trace.events[0].len, trace.events[0].result), (13, 13));
}

/// What the tables of children take grows with parents that have much open and children that never end.
#[test]
fn a_storm_of_forks_is_refused_before_it_fills_the_memory() {
    let mut text = String::new();
    for fd in 0..5000 {
        text.push_str(&format!("1 1.0 open(\"/a\", O_RDONLY) = {fd}</a> <0.1>\n"));
    }
    for child in 2..5000 {
        text.push_str(&format!("1 2.0 fork() = {child} <0.1>\n"));
    }
    let error = try_read(text.as_bytes()).err().unwrap().to_string();
    assert!(error.contains("open descriptors"), "{error}");
}

#[test]
fn processes_that_have_ended_are_forgotten() {
    let mut text = String::from("1 1.0 open(\"/a\", O_RDONLY) = 3</a> <0.1>\n");
    for child in 2..200_000 {
        text.push_str(&format!(
            "1 2.0 fork() = {child} <0.1>\n{child} 2.1 +++ exited with 0 +++\n"
        ));
    }
    assert_eq!(read(&text).events.len(), 1);
    let all_at_once = text.replace("+++ exited", "--- exited");
    let error = try_read(all_at_once.as_bytes()).err().unwrap().to_string();
    assert!(error.contains("more than 65536 tasks"), "{error}");
}

#[test]
fn sizes_that_the_program_asks_for_tell_where_it_appends() {
    let trace = read(
        "1.0 openat(AT_FDCWD</>, \"f\", O_WRONLY|O_APPEND) = 3</f> <0.1>\n\
         1.1 fstat(3</f>, {st_mode=S_IFREG|0644, st_size=1000, ...}) = 0 <0.1>\n\
         1.2 write(3</f>, \"\"..., 500) = 500 <0.1>\n\
         1.3 _llseek(3</f>, 7, [7], SEEK_SET) = 0 <0.1>\n\
         1.4 fcntl(3</f>, F_SETFL, O_RDWR|O_LARGEFILE) = 0 <0.1>\n\
         1.5 write(3</f>, \"\"..., 1) = 1 <0.1>\n\
         1.6 close_range(3, 4294967295, 0) = 0 <0.1>\n",
    );
    let brief: Vec<_> = trace.events.iter().map(|e| (e.action, e.offset)).collect();
    assert_eq!(
        brief,
        [
            (Action::Open, 0),
            (Action::Write, 1000),
            (Action::Seek, 7),
            (Action::Write, 7),
            (Action::Close, 0),
        ]
    );
}

#[test]
fn lines_that_strace_did_not_write_are_refused_with_advice() {
    let error = |text: &str| {
        let error = try_read(text.as_bytes()).err().unwrap();
        assert!(matches!(error.place, Place::Line(_)));
        error.to_string()
    };
    let good = "1.0 read(3</a>, \"\", 5) = 5 <0.1>\n";
    let message = error(&format!("{good}hello world\n"));
    assert!(
        message.starts_with("strace.txt: line 2: \"hello world\" is no line of strace"),
        "{message}"
    );
    assert!(
        message.contains("strace -f -ttt -T -y -o FILE"),
        "{message}"
    );
    assert!(error("read(3</a>, \"\", 5) = 5 <0.1>\n").contains("line 1:"));
    assert!(error("12:00:00 read(3</a>, \"\", 5) = 5 <0.1>\n").contains("line 1:"));
    let message = error(&format!(
        "{good}1.1 write(1</a>, \"x\\n\", 2x\n) = 2 <0.1>\n"
    ));
    assert!(
        message.contains("line 2: the line of \"write\" is not complete"),
        "{message}"
    );
    assert!(error("1.1 write(1</a>, \"x\\n\", 2) =").contains("not complete"));
    assert!(error("99999999999999.5 sync() = 0\n").contains("line 1:"));
    let held =
        "1 1.0 fork( <unfinished ...>\n2 1.1 read(3</a>, \"\n1 1.2 <... fork resumed>) = 2 <0.1>\n";
    assert!(error(held).contains("line 2:"));
}

#[test]
fn calls_that_we_do_not_know_are_skipped() {
    let trace = read(
        "1.0 prctl(PR_SET_NAME, \"x) = 5\" = 0\n\
         1.1 syscall_0x1b6(0x1, 0x2) = -1 (errno 38)\n\
         1.2 ????( <unfinished ...>\n\
         [ Process PID=5 runs in 32 bit mode. ]\n\
         1.3 +++ superseded by execve in pid 7 +++\n\
         1.4 <... read resumed>\"\", 5) = 5 <0.1>\n",
    );
    assert!(trace.events.is_empty());
}

#[test]
fn any_damage_is_an_error_or_fewer_events_but_never_a_panic() {
    let text = data_text("known.strace").into_bytes();
    for len in (0..text.len()).step_by(97) {
        let _ = try_read(&text[..len]);
    }
    for at in (0..text.len()).step_by(61) {
        for byte in [b'<', b'>', b'"', b'(', b')', b' ', b'\n', b'\\', b'9', 0xff] {
            let mut damaged = text.clone();
            damaged[at] = byte;
            let _ = try_read(&damaged);
        }
    }
}

#[test]
fn progress_reaches_the_end() {
    let path = data("known.strace");
    let from = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
    let mut reader = Reader::new(Box::new(from), &path);
    assert!(reader.by_ref().all(|record| record.is_ok()));
    let (done, total) = reader.progress();
    assert_eq!(Some(done), total);
}

/// git renames what it wrote, and writes another file of the old name.
#[test]
fn a_file_that_gets_the_name_of_a_renamed_one_is_followed() {
    let trace = read(
        "7 1.0 openat(AT_FDCWD</w>, \"a\", O_WRONLY|O_CREAT, 0644) = 3</w/a> <0.000010>\n\
         7 1.1 write(3</w/a>, \"x\"..., 10) = 10 <0.000010>\n\
         7 1.2 rename(\"/w/a\", \"/w/b\") = 0 <0.000010>\n\
         7 1.3 write(3</w/b>, \"x\"..., 10) = 10 <0.000010>\n\
         7 1.4 openat(AT_FDCWD</w>, \"a\", O_WRONLY|O_CREAT, 0644) = 4</w/a> <0.000010>\n\
         7 1.5 write(4</w/a>, \"x\"..., 5) = 5 <0.000010>\n\
         7 1.6 write(4</w/a>, \"x\"..., 5) = 5 <0.000010>\n",
    );
    let writes = trace.events.iter().filter(|e| e.action == Action::Write);
    let offsets: Vec<u64> = writes.map(|e| e.offset).collect();
    assert_eq!(offsets, [0, 10, 0, 5]);
}
