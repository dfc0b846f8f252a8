//! A recorder that is killed leaves a trace that can be read up to what it flushed.

use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_trace::native::Writer;
use presagio_trace::{Record, Source, TraceError, open};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Where the recorder writes; it is this program, run again.
const PATH: &str = "PRESAGIO_TEST_RECORDING";

#[test]
fn a_recording_that_ends_with_kill_9_is_readable_up_to_its_last_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("killed.ptrace");
    let mut recorder = start(&path);
    while fs::metadata(&path).map_or(0, |file| file.len()) < 1 << 20 {
        assert!(
            recorder.try_wait().unwrap().is_none(),
            "the recorder has ended"
        );
        std::thread::yield_now();
    }
    // On Unix this is SIGKILL.
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let mut trace = open(&path).unwrap();
    let records: Vec<Record> = trace.by_ref().collect::<Result<_, TraceError>>().unwrap();
    let whole = (0..records.len() as u64).map(record);
    assert!(records.len() > 100_000 && whole.eq(records));
    let why = trace
        .cut_short()
        .expect("a trace that is cut short")
        .to_string();
    assert!(
        why.contains("killed.ptrace: byte ") && why.contains("ends early"),
        "{why}"
    );
}

fn start(path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "record_until_killed", "--ignored"]);
    command
        .env(PATH, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "the other test runs this as a program of its own, and kills it"]
fn record_until_killed() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let mut writer = Writer::new(File::create(path).unwrap()).unwrap();
    // An end, for the case that nobody is left to kill us.
    for number in 0..5_000_000 {
        writer.write(&record(number)).unwrap();
        if number % 5_000 == 0 {
            writer.flush().unwrap();
        }
    }
}

fn record(number: u64) -> Record {
    Record::Event(Event {
        time: Nanos(number * 1_000),
        duration: Nanos(number % 977),
        process: 1,
        thread: 0,
        file: FileId(number % 7),
        action: Action::Write,
        layer: Layer::Posix,
        context: ContextId::UNKNOWN,
        offset: number * 4096,
        len: 4096,
        result: 4096,
    })
}
