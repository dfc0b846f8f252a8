//! What is promised about replaying: the same operations on the same bytes, in order, inside the directory, with an
//! account of what happened.

use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_trace::replay::{Options, Replay, Report, Timing};
use presagio_trace::{Place, Reason, Record, TraceError};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn event(action: Action, file: u64, offset: u64, len: u64) -> Event {
    Event {
        time: Nanos::ZERO,
        duration: Nanos(1000),
        process: 1,
        thread: 1,
        file: FileId(file),
        action,
        layer: Layer::Posix,
        context: ContextId::UNKNOWN,
        offset,
        len,
        result: if action.is_transfer() { len as i64 } else { 0 },
    }
}

fn named(id: u64, name: &str) -> Record {
    Record::File {
        id: FileId(id),
        name: name.as_bytes().into(),
    }
}

type Trace = Vec<Result<Record, TraceError>>;

fn trace(names: &[(u64, &str)], events: &[Event]) -> Trace {
    let names = names.iter().map(|&(id, name)| Ok(named(id, name)));
    let events = events.iter().map(|&event| Ok(Record::Event(event)));
    names.chain(events).collect()
}

fn replay(dir: &TempDir, options: Options, trace: Trace) -> Report {
    Replay::new(dir.path(), options)
        .unwrap()
        .run(trace)
        .unwrap()
}

fn verified() -> Options {
    Options {
        verify: true,
        ..Options::default()
    }
}

fn content(dir: &TempDir, name: &str) -> Vec<u8> {
    fs::read(dir.path().join(name)).unwrap()
}

#[test]
fn written_bytes_are_read_back_right() {
    let dir = tempfile::tempdir().unwrap();
    let events = [
        event(Action::Open, 1, 0, 0o1102),
        event(Action::Write, 1, 0, 1000),
        event(Action::Write, 1, 5000, 10_000_000),
        event(Action::Seek, 1, 3, 0),
        event(Action::Sync, 1, 0, 0),
        event(Action::Read, 1, 3, 900),
        event(Action::Read, 1, 4_000_000, 6_000_000),
        event(Action::Close, 1, 0, 0),
    ];
    let report = replay(&dir, verified(), trace(&[(1, "/scratch/out/a")], &events));
    assert_eq!(report.errors, 0, "{:?}", report.failures);
    assert_eq!(report.operations, 8);
    assert_eq!(report.bytes_written, 10_001_000);
    assert_eq!(report.bytes_read, 6_000_900);
    assert_eq!(
        (report.bytes_right, report.bytes_holes, report.bytes_wrong),
        (6_000_900, 0, 0)
    );
    assert_eq!(report.latency.count(), 8);
    assert_eq!(report.slippage.count(), 0);
    assert_eq!(content(&dir, "scratch/out/a").len(), 10_005_000);
}

#[test]
fn every_action_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let events = [
        event(Action::Write, 1, 0, 100),
        event(Action::Truncate, 1, 40, 0),
        event(Action::Write, 2, 0, 100),
        event(Action::Allocate, 2, 0, 8192),
        event(Action::Write, 3, 0, 100),
        event(Action::Remove, 3, 0, 0),
        event(Action::Write, 4, 0, 100),
        event(Action::Open, 4, 0, 0o1000),
        event(Action::Close, 4, 0, 0),
        event(Action::Map, 4, 0, 10),
        event(Action::Remove, 5, 0, 0),
    ];
    let names = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e/f")];
    let report = replay(&dir, Options::default(), trace(&names, &events));
    assert_eq!(report.errors, 0, "{:?}", report.failures);
    assert_eq!(content(&dir, "a").len(), 40);
    assert_eq!(content(&dir, "b").len(), 8192);
    assert!(!dir.path().join("c").exists());
    assert_eq!(content(&dir, "d").len(), 0);
}

#[test]
fn reads_of_files_that_nobody_wrote_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let events = [
        event(Action::Read, 1, 1_000_000, 5000),
        // What the program asked for beyond the end, it did not get then and does not get now.
        Event {
            result: 10,
            ..event(Action::Read, 1, 1_005_000, 4096)
        },
        Event {
            result: 0,
            ..event(Action::Read, 1, 1_005_010, 4096)
        },
    ];
    let report = replay(&dir, verified(), trace(&[(1, "in")], &events));
    assert_eq!(report.errors, 0, "{:?}", report.failures);
    assert_eq!(report.bytes_read, 5010);
    assert_eq!(report.bytes_wrong, 0);
    assert_eq!(report.bytes_holes + report.bytes_right, 5010);
    assert_eq!(content(&dir, "in").len(), 1_005_010);
}

#[test]
fn preparing_makes_files_as_long_as_they_are_read_and_fills_them_if_asked() {
    for fill in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let events = [
            event(Action::Read, 1, 100, 3_000_000),
            event(Action::Write, 1, 9_000_000, 1),
        ];
        let trace = || trace(&[(1, "in")], &events);
        let mut replay = Replay::new(dir.path(), Options { fill, ..verified() }).unwrap();
        replay.prepare(trace()).unwrap();
        assert_eq!(content(&dir, "in").len(), 3_000_100);
        let report = replay.run(trace()).unwrap();
        assert_eq!(report.errors, 0, "{:?}", report.failures);
        assert_eq!(report.bytes_wrong, 0);
        let right = if fill { 3_000_000 } else { 0 };
        assert_eq!(report.bytes_right, right);
    }
}

#[test]
fn foreign_bytes_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), vec![0xa5; 4096]).unwrap();
    let events = [event(Action::Read, 1, 0, 4096)];
    let report = replay(&dir, verified(), trace(&[(1, "in")], &events));
    assert!(report.bytes_wrong > 4000);
}

#[test]
fn many_threads_share_a_file_without_harm() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    for i in 0..3000u64 {
        let (process, thread) = ((i % 7) as u32, (i % 5) as u32);
        let write = event(Action::Write, 1, i * 100, 150);
        let read = event(Action::Read, 1, i * 100, 150);
        for event in [write, read] {
            events.push(Event {
                process,
                thread,
                ..event
            });
        }
    }
    for threads_max in [1, 8, 256] {
        let options = Options {
            threads_max,
            ..verified()
        };
        let report = replay(&dir, options, trace(&[(1, "shared")], &events));
        assert_eq!(report.threads, threads_max.min(35));
        assert_eq!(report.operations, 6000);
        assert_eq!(report.errors, 0, "{:?}", report.failures);
        assert_eq!((report.bytes_right, report.bytes_wrong), (450_000, 0));
    }
}

#[test]
fn order_is_kept_within_a_thread() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    for i in 0..2000u64 {
        let of = |event| Event {
            thread: (i % 4) as u32,
            ..event
        };
        let file = i % 4;
        events.push(of(event(Action::Truncate, file, i, 0)));
    }
    let names = [(0, "0"), (1, "1"), (2, "2"), (3, "3")];
    replay(&dir, Options::default(), trace(&names, &events));
    for file in 0..4 {
        assert_eq!(content(&dir, &file.to_string()).len(), 1996 + file);
    }
}

#[test]
fn more_files_than_may_be_open_are_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let files = 3000;
    let names: Vec<_> = (0..files).map(|id| (id, format!("f{id}"))).collect();
    let names: Vec<_> = names
        .iter()
        .map(|(id, name)| (*id, name.as_str()))
        .collect();
    let mut events: Vec<_> = (0..files)
        .map(|id| event(Action::Open, id, 0, 0o102))
        .collect();
    events.extend((0..files).map(|id| event(Action::Write, id, 0, 10)));
    let report = replay(&dir, Options::default(), trace(&names, &events));
    assert_eq!(report.errors, 0, "{:?}", report.failures);
    assert_eq!(report.bytes_written, files * 10);
}

#[test]
fn nothing_happens_outside_of_the_directory() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("inner");
    let mark = outer.path().join("mark");
    fs::create_dir(&inner).unwrap();
    fs::write(&mark, "untouched").unwrap();
    std::os::unix::fs::symlink(&mark, inner.join("link")).unwrap();
    std::os::unix::fs::symlink(outer.path(), inner.join("up")).unwrap();
    let absolute = mark.to_str().unwrap();
    let names = [
        (1, "../mark"),
        (2, absolute),
        (3, "link"),
        (4, "up/mark"),
        (5, "x/../../mark"),
    ];
    let mut events = Vec::new();
    for id in 1..=5 {
        events.push(event(Action::Write, id, 0, 5));
        events.push(event(Action::Truncate, id, 0, 0));
    }
    events.push(event(Action::Remove, 4, 0, 0));
    let mut replay = Replay::new(&inner, Options::default()).unwrap();
    let report = replay.run(trace(&names, &events)).unwrap();
    assert_eq!(fs::read_to_string(&mark).unwrap(), "untouched");
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 2);
    // Links are refused, the rest goes to places inside.
    assert_eq!(report.errors, 5, "{:?}", report.failures);
    assert!(
        report
            .failures
            .iter()
            .any(|f| f.reason.contains("is no directory"))
    );
    assert!(inner.join("mark").exists());
}

#[test]
fn failures_are_counted_and_the_first_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a")).unwrap();
    let events: Vec<_> = (0..100).map(|i| event(Action::Write, 1, i, 10)).collect();
    let report = replay(&dir, Options::default(), trace(&[(1, "a")], &events));
    assert_eq!((report.operations, report.errors), (100, 100));
    assert_eq!(report.failures.len(), 8);
    assert_eq!(report.failures[0].event.offset, 0);
    assert!(
        report.failures[0].reason.contains("directory"),
        "{}",
        report.failures[0].reason
    );
}

#[test]
fn impossible_sizes_fail_without_filling_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let far = i64::MAX as u64;
    let events = [
        Event {
            result: i64::MAX,
            ..event(Action::Write, 1, far - 10, far)
        },
        Event {
            result: 10,
            ..event(Action::Read, 1, u64::MAX - 5, u64::MAX)
        },
        event(Action::Truncate, 1, u64::MAX, 0),
        event(Action::Allocate, 1, u64::MAX, u64::MAX),
        event(Action::Seek, 1, u64::MAX, 0),
    ];
    let report = replay(&dir, Options::default(), trace(&[(1, "a")], &events));
    assert_eq!(
        (report.operations, report.errors),
        (5, 5),
        "{:?}",
        report.failures
    );
}

#[test]
fn what_failed_then_and_what_other_layers_saw_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let events = [
        event(Action::Write, 1, 0, 10),
        Event {
            result: -2,
            ..event(Action::Open, 2, 0, 0)
        },
        Event {
            layer: Layer::MpiIo,
            ..event(Action::Write, 1, 10, 10)
        },
    ];
    let trace = || trace(&[(1, "a"), (2, "b")], &events);
    let report = replay(&dir, Options::default(), trace());
    assert_eq!((report.operations, report.skipped), (1, 2));
    assert_eq!(content(&dir, "a").len(), 10);
    assert!(!dir.path().join("b").exists());
    let options = Options {
        layer: Some(Layer::MpiIo),
        ..Options::default()
    };
    assert_eq!(replay(&dir, options, trace()).operations, 1);
    assert_eq!(content(&dir, "a").len(), 20);
}

#[test]
fn with_its_own_timing_nothing_is_done_early_and_lateness_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = |ms, thread, action| Event {
        time: Nanos::from_millis(5000 + ms),
        thread,
        ..event(action, u64::from(thread), ms, 10)
    };
    let events: Vec<_> = (0..40)
        .map(|i| at(i * 5, (i % 3) as u32, Action::Write))
        .collect();
    let names = [(0, "a"), (1, "b"), (2, "c")];
    for (speed, least) in [(1.0, 195), (4.0, 48)] {
        let options = Options {
            timing: Timing::Original { speed },
            ..Options::default()
        };
        let report = replay(&dir, options, trace(&names, &events));
        assert_eq!(report.errors, 0);
        assert_eq!(report.slippage.count(), 40);
        assert!(
            report.elapsed >= Duration::from_millis(least),
            "{:?}",
            report.elapsed
        );
        assert_eq!(report.original, Nanos(195_001_000));
    }
}

#[test]
fn a_trace_that_breaks_off_ends_the_replay_with_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let broken = || TraceError {
        path: "some.trace".into(),
        place: Place::Byte(7),
        reason: Reason::Malformed("broken".into()),
    };
    let mut trace = trace(&[(1, "a")], &[event(Action::Write, 1, 0, 10)]);
    trace.push(Err(broken()));
    trace.push(Ok(Record::Event(event(Action::Write, 1, 10, 10))));
    let error = Replay::new(dir.path(), Options::default())
        .unwrap()
        .run(trace)
        .unwrap_err();
    assert_eq!(error.to_string(), "some.trace: byte 7: broken");
    assert_eq!(content(&dir, "a").len(), 10);
    let error = Replay::new(dir.path(), Options::default())
        .unwrap()
        .prepare([Err(broken())]);
    assert!(error.is_err());
}

#[test]
fn senseless_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = Options {
            timing: Timing::Original { speed },
            ..Options::default()
        };
        assert!(Replay::new(dir.path(), options).is_err());
    }
    let options = Options {
        threads_max: 0,
        ..Options::default()
    };
    assert!(Replay::new(dir.path(), options).is_err());
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Replay::new(file, Options::default()).is_err());
}

#[test]
fn a_recording_of_strace_can_be_replayed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/strace/known.strace");
    let from = std::io::BufReader::new(fs::File::open(&path).unwrap());
    let reader = presagio_trace::strace::Reader::new(Box::new(from), &path);
    let dir = tempfile::tempdir().unwrap();
    let report = Replay::new(dir.path(), verified())
        .unwrap()
        .run(reader)
        .unwrap();
    assert_eq!(report.errors, 0, "{:?}", report.failures);
    assert_eq!(report.threads, 3);
    assert_eq!(report.bytes_wrong, 0);
    assert_eq!(content(&dir, "data/run/shared").len(), 61);
    assert_eq!(content(&dir, "data/run/log").len(), 3);
    assert!(!dir.path().join("data/run/copy").exists());
}
