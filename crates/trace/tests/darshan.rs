//! What is promised about Darshan: logs of every version, byte order and compression are read as they were
//! written, so is the text of darshan-dxt-parser, and damaged input of either kind is refused with its place.

mod darshan_log;

use darshan_log::{DxtRecord, Log, Segment};
use presagio_core::{Action, Event, FileId, Layer, Nanos};
use presagio_trace::darshan::{LogReader, TextReader};
use presagio_trace::{Place, Process, Reason, Record, Source, TraceError};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// Times are multiples of what the text of darshan-dxt-parser can show.
fn segment(i: u64) -> Segment {
    let start = i as f64 * 0.0003;
    Segment {
        offset: (i * 1000) as i64,
        len: (100 + i) as i64,
        start,
        end: start + 0.0002,
        thread: 140_498_826_330_816 + i % 3,
    }
}

fn record(file: u64, rank: i64, writes: u64, reads: u64) -> DxtRecord {
    DxtRecord {
        file,
        rank,
        host: ["node0", "node1"][rank as usize % 2],
        writes: (0..writes).map(segment).collect(),
        reads: (writes..writes + reads).map(segment).collect(),
    }
}

fn log() -> Log {
    Log {
        version: "3.21",
        big_endian: false,
        compression: 0,
        stream: 100_000,
        names: vec![
            (11, b"/scratch/a, b"),
            (u64::MAX, b"/scratch/not \xffUTF-8"),
        ],
        posix: (
            1,
            vec![
                record(11, 0, 3, 2),
                record(u64::MAX, 1, 0, 4),
                record(11, 1, 1, 0),
            ],
        ),
        mpiio: (2, vec![record(11, 0, 5000, 1), record(99, 1, 0, 0)]),
        partial: false,
    }
}

fn open(bytes: &[u8]) -> Result<LogReader, TraceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    LogReader::open(file.path())
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, TraceError> {
    open(bytes)?.collect()
}

fn read_text(text: &[u8]) -> Result<Vec<Record>, TraceError> {
    let from = Box::new(Cursor::new(text.to_vec()));
    TextReader::new(from, Path::new("dxt.txt")).collect()
}

fn events(records: &[Record]) -> Vec<Event> {
    let event = |record: &Record| match record {
        Record::Event(event) => Some(*event),
        _ => None,
    };
    records.iter().filter_map(event).collect()
}

#[test]
fn definitions_come_before_the_events_that_use_them() {
    let records = read(&log().bytes()).unwrap();
    assert_eq!(
        records[0],
        Record::File {
            id: FileId(11),
            name: b"/scratch/a, b"[..].into()
        }
    );
    assert_eq!(
        records[1],
        Record::Process(Process {
            id: 0,
            pid: None,
            rank: Some(0),
            host: Some("node0".into()),
            command: Some("./simulate --steps 10".into()),
            start: Some(Nanos::from_secs(1_700_000_000)),
        })
    );
    let (mut files, mut processes) = (HashSet::new(), HashSet::new());
    for record in &records {
        match record {
            Record::File { id, .. } => assert!(files.insert(*id)),
            Record::Process(process) => assert!(processes.insert(process.id)),
            Record::Event(event) => {
                assert!(files.contains(&event.file) && processes.contains(&event.process));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((files.len(), processes.len()), (3, 2));
    assert!(records.contains(&Record::File {
        id: FileId(99),
        name: b"99"[..].into()
    }));
}

#[test]
fn an_event_is_what_the_segment_says() {
    let events = events(&read(&log().bytes()).unwrap());
    assert_eq!(
        events[3],
        Event {
            time: Nanos(900_000),
            duration: Nanos(200_000),
            process: 0,
            thread: 0,
            file: FileId(11),
            action: Action::Read,
            layer: Layer::Posix,
            context: Default::default(),
            offset: 3000,
            len: 103,
            result: 103,
        }
    );
    let of = |layer, action| {
        let wanted = |e: &&Event| e.layer == layer && e.action == action;
        events.iter().filter(wanted).count()
    };
    assert_eq!(of(Layer::Posix, Action::Write), 4);
    assert_eq!(of(Layer::Posix, Action::Read), 6);
    assert_eq!(of(Layer::MpiIo, Action::Write), 5000);
    assert_eq!(of(Layer::MpiIo, Action::Read), 1);
}

#[test]
fn every_version_byte_order_and_compression_reads_the_same() {
    let expected = read(&log().bytes()).unwrap();
    for version in ["3.10", "3.20", "3.21", "3.41", "3.42"] {
        for big_endian in [false, true] {
            for compression in [0, 1, 2] {
                for stream in [7777, 100_000] {
                    let log = Log {
                        version,
                        big_endian,
                        compression,
                        stream,
                        ..log()
                    };
                    let reader = open(&log.bytes()).unwrap();
                    assert_eq!(reader.info().version, version);
                    assert_eq!(reader.info().processes, 4);
                    let nanos = if version < "3.41" { 0 } else { 5 };
                    let start = Some(Nanos(1_700_000_000_000_000_000 + nanos));
                    assert_eq!(reader.info().start, start);
                    let mut records: Vec<_> = reader.map(Result::unwrap).collect();
                    for record in &mut records {
                        if let Record::Process(process) = record {
                            assert_eq!(process.start, start);
                            process.start = Some(Nanos::from_secs(1_700_000_000));
                        }
                    }
                    assert!(
                        records == expected,
                        "{version} {big_endian} {compression} {stream}"
                    );
                }
            }
        }
    }
}

#[test]
fn newer_modules_tell_threads_apart_and_the_oldest_has_no_offsets() {
    let new = Log {
        posix: (2, log().posix.1),
        mpiio: (3, log().mpiio.1),
        ..log()
    };
    let events_new = events(&read(&new.bytes()).unwrap());
    let threads: Vec<u32> = events_new.iter().take(5).map(|e| e.thread).collect();
    assert_eq!(threads, [0, 1, 2, 0, 1]);
    let strip = |mut event: Event| {
        event.thread = 0;
        event
    };
    let without: Vec<_> = events_new.into_iter().map(strip).collect();
    assert_eq!(without, events(&read(&log().bytes()).unwrap()));

    let old = Log {
        mpiio: (1, log().mpiio.1),
        ..log()
    };
    let reader = open(&old.bytes()).unwrap();
    assert!(reader.info().warnings[0].contains("did not record the offsets"));
    let old: Vec<Record> = reader.map(Result::unwrap).collect();
    let mpiio = |e: &&Event| e.layer == Layer::MpiIo;
    assert!(
        events(&old)
            .iter()
            .filter(mpiio)
            .all(|e| e.offset == 0 && e.len > 0)
    );
}

#[test]
fn a_partial_log_is_read_and_says_so() {
    let log = Log {
        partial: true,
        ..log()
    };
    let reader = open(&log.bytes()).unwrap();
    assert!(reader.info().partial);
    assert!(reader.info().warnings[0].contains("ran out of memory"));
    assert!(reader.map(Result::unwrap).count() > 5000);
}

#[test]
fn progress_reaches_the_end() {
    let mut reader = open(&log().bytes()).unwrap();
    let mut last = 0;
    while let Some(record) = reader.next() {
        record.unwrap();
        let (done, total) = reader.progress();
        assert!(last <= done && done <= total.unwrap());
        last = done;
    }
    assert_eq!(Some(last), reader.progress().1);
}

#[test]
fn a_log_without_dxt_says_how_to_record_one() {
    let log = Log {
        posix: (0, vec![]),
        mpiio: (0, vec![]),
        ..log()
    };
    let error = open(&log.bytes()).err().unwrap();
    assert!(matches!(error.reason, Reason::Unsupported(_)));
    assert!(error.to_string().contains("DXT_ENABLE_IO_TRACE"), "{error}");
    let error = read_text(b"# darshan log version: 3.41\n# exe: ./x\n").unwrap_err();
    assert!(matches!(error.reason, Reason::Unsupported(_)));
    assert!(error.to_string().contains("DXT_ENABLE_IO_TRACE"), "{error}");
}

/// The message of the error that `change` leads to.
fn complaint(change: impl FnOnce(&mut Log)) -> String {
    let mut log = Log {
        compression: 2,
        ..log()
    };
    change(&mut log);
    let error = read(&log.bytes()).unwrap_err();
    assert!(matches!(error.place, Place::Byte(_)));
    error.to_string()
}

#[test]
fn impossible_values_are_refused() {
    let change = |edit: fn(&mut Segment)| complaint(|log| edit(&mut log.posix.1[0].writes[1]));
    assert!(change(|s| s.offset = -7).contains("offset -7 is negative"));
    assert!(change(|s| s.len = i64::MIN).contains("length -9223372036854775808 is negative"));
    assert!(change(|s| s.start = f64::NAN).contains("NaN seconds"));
    assert!(change(|s| s.end = 1e300).contains("no time"));
    assert!(complaint(|log| log.posix.1[0].rank = -1).contains("-1 is not the rank"));
    assert!(complaint(|log| log.posix.0 = 3).contains("version 3 of Darshan's DXT"));
    assert!(complaint(|log| log.posix.0 = 0).contains("version 0 of Darshan's DXT"));
    let long: &'static [u8] = vec![b'x'; 1 << 18].leak();
    assert!(complaint(|log| log.names[0].1 = long).contains("a name is longer than"));
    assert!(complaint(|log| log.compression = 9).contains("compression number 9"));
}

#[test]
fn counts_that_the_data_do_not_bear_out_are_refused() {
    let mut bytes = Log {
        compression: 2,
        ..log()
    }
    .bytes();
    let head = bytes.windows(5).rposition(|w| w == b"node1").unwrap();
    for (claim, message) in [
        (1u64 << 40, "1099511627776 of its segments are missing"),
        (u64::MAX, "claims -1 writes"),
        (1 << 62, "claims 4611686018427387904 writes"),
    ] {
        bytes[head + 64..head + 72].copy_from_slice(&claim.to_le_bytes());
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_few_bytes_do_not_become_billions() {
    // Zeros are records without operations.
    let log = Log {
        compression: 1,
        stream: 80 << 20,
        mpiio: (0, vec![]),
        ..log()
    };
    let region = log.compress(&vec![0; 80 << 20]);
    assert!(region.len() < 8 << 10);
    let error = read(&log.with_posix(&region)).unwrap_err().to_string();
    assert!(error.contains("nobody recorded that"), "{error}");
}

#[test]
fn other_files_are_not_taken_for_darshan_logs() {
    let message = |bytes: &[u8]| open(bytes).err().unwrap().to_string();
    assert!(message(b"").contains("no Darshan log, or cut short"));
    assert!(message(&[b'x'; 5000]).contains("magic number is missing"));
    let mut old = log().bytes();
    old[..4].copy_from_slice(b"2.06");
    assert!(message(&old).contains("only 3.x can be read"));
    assert!(LogReader::open("/nowhere/at/all").is_err());
}

#[test]
fn a_log_cut_short_anywhere_is_refused() {
    for compression in [0, 1, 2] {
        let bytes = Log {
            compression,
            stream: 7777,
            ..log()
        }
        .bytes();
        for len in (0..bytes.len()).step_by(1 + bytes.len() / 500) {
            let error = read(&bytes[..len]).unwrap_err();
            assert!(
                matches!(error.reason, Reason::Malformed(_)),
                "{len}: {error}"
            );
        }
    }
}

#[test]
fn damage_is_an_error_or_other_records_but_never_a_panic() {
    for compression in [0, 1, 2] {
        let mpiio = (2, vec![record(11, 0, 50, 1)]);
        let bytes = Log {
            compression,
            stream: 777,
            mpiio,
            ..log()
        }
        .bytes();
        let mut errors = 0;
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 500) {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                errors += read(&damaged).is_err() as u32;
            }
        }
        assert!(errors > 20, "{compression}: {errors}");
    }
}

#[test]
fn after_an_error_the_reader_is_at_its_end() {
    let mut log = log();
    log.posix.1[0].writes[1].offset = -7;
    let mut reader = open(&log.bytes()).unwrap();
    assert!(reader.by_ref().any(|record| record.is_err()));
    assert!(reader.next().is_none());
}

/// What darshan-dxt-parser would print of these records.
fn render(records: &[Record], with_thread: bool) -> String {
    let mut names = std::collections::HashMap::new();
    let mut hosts = std::collections::HashMap::new();
    let mut text = String::from("# exe: ./simulate --steps 10\n# start_time: 1700000000\n");
    let mut last = None;
    let head =
        "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)";
    for record in records {
        match record {
            Record::File { id, name } => {
                names.insert(*id, String::from_utf8_lossy(name).into_owned());
            }
            Record::Process(process) => {
                hosts.insert(process.id, process.host.clone().unwrap());
            }
            Record::Event(e) => {
                if last != Some((e.layer, e.file, e.process)) {
                    last = Some((e.layer, e.file, e.process));
                    let (name, host) = (&names[&e.file], &hosts[&e.process]);
                    let column = if with_thread { "     Pthread-ID" } else { "" };
                    write!(
                        text,
                        "\n# DXT, file_id: {}, file_name: {name}\n# DXT, rank: {}, hostname: {host}\n\
                         # DXT, write_count: 1, read_count: 1\n# DXT, mnt_pt: /, fs_type: ext4\n{head}{column}\n",
                        e.file, e.process
                    )
                    .unwrap();
                }
                let module = if e.layer == Layer::Posix {
                    "X_POSIX"
                } else {
                    "X_MPIIO"
                };
                let end = e.end().as_secs_f64();
                write!(
                    text,
                    "{module:>8}{:>8}{:>7}{:>9}{:>16}{:>16}{:>12.4}{end:>12.4}",
                    e.process,
                    e.action,
                    0,
                    e.offset,
                    e.len,
                    e.time.as_secs_f64()
                )
                .unwrap();
                if with_thread {
                    write!(text, "     {}", 140_498_826_330_816 + u64::from(e.thread)).unwrap();
                }
                text.push('\n');
            }
            other => panic!("{other:?}"),
        }
    }
    text
}

#[test]
fn the_text_of_a_log_reads_like_the_log() {
    for (posix, mpiio) in [(1, 2), (2, 3)] {
        let mut log = Log {
            posix: (posix, log().posix.1),
            mpiio: (mpiio, log().mpiio.1),
            ..log()
        };
        // Text has no bytes but UTF-8, and no trace of a record without operations.
        log.names[1].1 = "/scratch/ütf-8".as_bytes();
        log.mpiio.1.pop();
        let records = read(&log.bytes()).unwrap();
        let text = render(&records, posix == 2);
        assert_eq!(read_text(text.as_bytes()).unwrap(), records);
    }
}

#[test]
fn text_with_stripes_and_threads_is_understood() {
    let records = read_text(include_bytes!("data/darshan/lustre.txt")).unwrap();
    let events = events(&records);
    assert_eq!(
        records[0],
        Record::File {
            id: FileId(17371562187443218643),
            name: b"/scratch/a, b.dat"[..].into()
        }
    );
    let Record::Process(process) = &records[1] else {
        panic!("{:?}", records[1]);
    };
    assert_eq!(process.host.as_deref(), Some("node7"));
    assert_eq!(process.command.as_deref(), Some("./simulate --steps 10"));
    let brief: Vec<_> = events
        .iter()
        .map(|e| (e.action, e.offset, e.len, e.thread))
        .collect();
    assert_eq!(
        brief,
        [
            (Action::Write, 0, 2097152, 0),
            (Action::Write, 2097152, 4096, 1),
            (Action::Read, 0, 1024, 0),
            (Action::Write, 0, 4096, 0),
        ]
    );
    assert_eq!(events[0].time, Nanos::from_millis(30));
    assert_eq!(events[0].duration, Nanos::from_micros(3100));
    assert_eq!(events[3].layer, Layer::MpiIo);
}

/// Darshan before 3.1.7 had no offsets for MPI-IO, and at first no host.
#[test]
fn text_of_old_parsers_is_understood() {
    let text = b"# start_time: 1700000000\n\n# DXT, file_id: 7, file_name: /a\n\
        # DXT, rank: 3, write_count: 1, read_count: 1\n# DXT, mnt_pt: /, fs_type: ext4\n\
        # Module    Rank  Wt/Rd  Segment       Length    Start(s)      End(s)\n \
        X_MPIIO       3  write        0       262144      0.0029      0.0032\n \
        X_MPIIO       3   read        0         4096      0.0040      0.0041\n\n\
        # DXT, file_id: 7, file_name: /a\n# DXT, rank: 4, hostname: node\n\
        # Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)\n \
        X_POSIX       4  write        0             512         1024      0.0029      0.0032\n";
    let mut reader = TextReader::new(Box::new(&text[..]), Path::new("dxt.txt"));
    let records: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    let brief = |e: &Event| (e.layer, e.process, e.offset, e.len, e.time);
    let brief: Vec<_> = events(&records).iter().map(brief).collect();
    let expected = [
        (Layer::MpiIo, 3, 0, 262144, Nanos::from_micros(2900)),
        (Layer::MpiIo, 3, 0, 4096, Nanos::from_micros(4000)),
        (Layer::Posix, 4, 512, 1024, Nanos::from_micros(2900)),
    ];
    assert_eq!(brief, expected);
    assert!(reader.warnings()[0].contains("offsets of mpiio"));
    let Record::Process(process) = &records[1] else {
        panic!("{:?}", records[1]);
    };
    assert_eq!((process.rank, process.host.as_deref()), (Some(3), None));
    assert_eq!(process.start, Some(Nanos::from_secs(1_700_000_000)));
}

#[test]
fn a_bad_line_of_text_is_named() {
    let text = include_str!("data/darshan/lustre.txt");
    let complain = |from: &str, to: &str| {
        let error = read_text(text.replacen(from, to, 1).as_bytes()).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        complain("2097152            4096", "2097152            many"),
        "dxt.txt: line 17: \"many\" is no length"
    );
    assert!(complain("X_POSIX", "X_OTHER").contains("line 16: \"X_OTHER\" is neither"));
    assert!(complain("  read ", "  peek ").contains("line 18: \"peek\" is neither read nor write"));
    assert!(complain("     140498817938112", "").contains("line 17: \"7]\" is no Pthread-ID"));
    assert!(complain(", file_name: ", ", ").contains("line 9: no file_name"));
    assert!(complain("file_id: 1", "file_id: x1").contains("line 9: \"x1"));
    assert!(complain("rank: 1,", "rank: -2,").contains("line 10: -2 is not the rank"));
    assert!(complain("0.0300", "inf").contains("line 16: inf seconds"));
    let error = read_text(b"hello\nworld\n").unwrap_err().to_string();
    assert!(error.contains("line 1: \"hello\" stands before"), "{error}");
    let half = &text[..text.find("0.0331").unwrap()];
    assert!(
        read_text(half.as_bytes())
            .unwrap_err()
            .to_string()
            .contains("ends before its end")
    );
}

/// The real logs that the project shares but does not publish.
fn shared(name: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/darshan");
    if !dir.is_dir() {
        eprintln!("skipped {name}: there is no {}", dir.display());
        return None;
    }
    Some(dir.join(name))
}

/// Requests, reads and their bytes, writes and their bytes, files and ranks.
fn summary(events: &[Event], layer: Layer) -> [u64; 7] {
    let mut sum = [0; 7];
    let (mut files, mut ranks) = (HashSet::new(), HashSet::new());
    for event in events.iter().filter(|e| e.layer == layer) {
        let at = if event.action == Action::Read { 1 } else { 3 };
        sum[0] += 1;
        sum[at] += 1;
        sum[at + 1] += event.moved();
        files.insert(event.file);
        ranks.insert(event.process);
    }
    sum[5] = files.len() as u64;
    sum[6] = ranks.len() as u64;
    sum
}

#[test]
fn real_logs_hold_what_an_independent_reader_finds_in_them() {
    let mpiio_none = [0; 7];
    let small = [8, 4, 67108864, 4, 67108864, 1, 4];
    let expected = [
        (
            "dxt",
            [7623, 6126, 22517726, 1497, 13021781, 169, 1],
            mpiio_none,
        ),
        (
            "nonmpi_dxt_anonymized",
            [17652, 7822, 119840385, 9830, 120500998, 75, 1],
            mpiio_none,
        ),
        (
            "mpi-io-test-dxt",
            [320, 128, 2147483648, 192, 2147486208, 33, 32],
            [256, 128, 2147483648, 128, 2147483648, 1, 32],
        ),
        (
            "hdf5_diagonal_1_byte",
            [440, 400, 2627610, 40, 15930, 30, 10],
            mpiio_none,
        ),
        (
            "io_test5",
            [77696, 33792, 16596991456, 43904, 17496571648, 5, 192],
            [13184, 0, 0, 13184, 17496571648, 5, 192],
        ),
        (
            "partial_data_dxt",
            [65536, 65536, 65536, 0, 0, 1, 1],
            [65529, 65529, 65529, 0, 0, 1, 1],
        ),
        ("mpi-io-test-x86_64-3.1.6", small, small),
        ("mpi-io-test-ppc64-3.1.3", small, small),
    ];
    for (name, posix, mpiio) in expected {
        let Some(path) = shared(&format!("{name}.darshan")) else {
            continue;
        };
        let reader = LogReader::open(path).unwrap();
        assert_eq!(reader.info().partial, name == "partial_data_dxt");
        let records: Vec<Record> = reader.map(Result::unwrap).collect();
        let events = events(&records);
        assert_eq!(summary(&events, Layer::Posix), posix, "{name}");
        assert_eq!(summary(&events, Layer::MpiIo), mpiio, "{name}");
    }
}

#[test]
fn real_logs_without_dxt_give_advice() {
    let names = [
        "empty_log",
        "mpi-io-test-ppc64-3.1.8",
        "mpi-io-test-x86_64-3.0.0",
        "mpi-io-test-x86_64-3.2.1",
        "mpi-io-test-x86_64-3.4.7",
        "mpi-io-test-x86_64-3.5.0",
    ];
    for name in names {
        let Some(path) = shared(&format!("{name}.darshan")) else {
            continue;
        };
        let error = LogReader::open(path).err().unwrap();
        assert!(
            matches!(error.reason, Reason::Unsupported(_)),
            "{name}: {error}"
        );
    }
}
