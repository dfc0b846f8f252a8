//! What `presagio trace` promises: nothing is lost on the way from one format to another, whatever is wrong is
//! said with its place, no half file is left, and a replay moves the bytes that the trace tells.

mod common;

use common::{Said, TempDir, presagio, presagio_at, presagio_ok, program};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HEADER: &str = "time_ns,duration_ns,process,rank,pid,thread,layer,action,file,offset,length,result,\
                      file_id,context,stack,host,command,start_ns";

/// A directory with names for the files in it.
struct Place(TempDir);

impl Place {
    fn new(name: &str) -> Place {
        Place(TempDir::new(&format!("trace-{name}")))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.0.path())
    }

    /// A file with this content; its path.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }
}

fn convert(from: &str, to: &str) -> Said {
    presagio_ok(&["trace", "convert", from, to])
}

/// A program of two processes that opens a file, writes `steps` blocks and reads them back, as our own CSV has it.
fn program_run(steps: u64) -> String {
    let mut rows = vec![HEADER.to_owned()];
    let mut row = |time: u64, process: u64, action: &str, offset: u64, len: u64, result: u64| {
        let first = time < 2;
        let stack = if first { "a.out+0x10(main)" } else { "" };
        let (host, command, start) = if first {
            ("node1", "\"./a, b\"", "1700000000000000005")
        } else {
            ("", "", "")
        };
        rows.push(format!(
            "{time},7,{process},{process},,0,posix,{action},/data/f{process},{offset},{len},{result},\
             {process},{context},{stack},{host},{command},{start}",
            context = process + 1,
        ));
    };
    for process in 0..2 {
        row(process, process, "open", 0, 0, 0);
    }
    for step in 0..steps {
        for process in 0..2 {
            let (time, offset) = (10 + step * 1000 + process, step * 4096);
            row(time, process, "write", offset, 4096, 4096);
            row(time + 500, process, "read", offset, 4096, 4096);
        }
    }
    rows.push(String::new());
    sorted_by_time(rows)
}

fn sorted_by_time(mut rows: Vec<String>) -> String {
    let time = |row: &String| {
        row.split(',')
            .next()
            .and_then(|time| time.parse::<u64>().ok())
    };
    let last = rows.len() - 1;
    rows[1..last].sort_by_key(time);
    rows.join("\n")
}

#[test]
fn csv_comes_back_from_the_native_format_byte_by_byte() {
    let place = Place::new("round");
    let csv = program_run(300);
    let first = place.file("a.csv", &csv);
    let said = convert(&first, &place.path("a.ptrace"));
    assert!(said.out.starts_with("1202 events in "), "{}", said.out);
    assert!(said.out.contains("→ native ("), "{}", said.out);
    assert_eq!(said.out.lines().count(), 1);
    convert(&place.path("a.ptrace"), &place.path("b.csv"));
    assert_eq!(String::from_utf8(place.bytes("b.csv")).unwrap(), csv);
    let (small, large) = (place.bytes("a.ptrace").len(), csv.len());
    assert!(small * 4 < large, "{small} bytes of {large}");
}

#[test]
fn a_native_trace_comes_back_from_csv_byte_by_byte() {
    let place = Place::new("back");
    let csv = place.file("a.csv", program_run(50));
    let names = ["a.ptrace", "b.csv", "b.ptrace"].map(|name| place.path(name));
    convert(&csv, &names[0]);
    convert(&names[0], &names[1]);
    convert(&names[1], &names[2]);
    assert_eq!(place.bytes("a.ptrace"), place.bytes("b.ptrace"));
}

#[test]
fn an_agios_trace_has_the_reads_and_writes_and_says_what_it_lacks() {
    let place = Place::new("agios");
    let csv = place.file("a.csv", program_run(2));
    let said = convert(&csv, &place.path("a.agios"));
    assert!(
        said.out.starts_with("8 transfers of 10 events in "),
        "{}",
        said.out
    );
    let text = String::from_utf8(place.bytes("a.agios")).unwrap();
    assert_eq!(text.lines().next(), Some("10\t/data/f0\tW\t0\t4096"));
    assert_eq!(text.lines().count(), 8);
    let info = presagio_ok(&["trace", "info", &place.path("a.agios"), "--json"]).json();
    assert_eq!(
        (&info["format"], &info["events"]),
        (&"agios".into(), &8.into())
    );
}

#[test]
fn events_are_sorted_by_time_unless_asked_not_to() {
    let place = Place::new("sort");
    let csv = place.file("a.csv", "time_ns,action\n30,read\n10,write\n20,sync\n");
    let times = |more: &[&str]| {
        let said = presagio_ok(&[&["trace", "convert", &csv, "-", "--to", "csv"], more].concat());
        let rows = said
            .out
            .lines()
            .skip(1)
            .map(|row| row.split(',').next().unwrap().to_owned());
        assert!(
            said.err.contains("3 events"),
            "the summary makes way for the trace"
        );
        rows.collect::<Vec<_>>()
    };
    assert_eq!(times(&[]), ["10", "20", "30"]);
    assert_eq!(times(&["--unsorted"]), ["30", "10", "20"]);
}

#[test]
fn the_standard_input_is_read_like_a_file() {
    let mut child = Command::new(program())
        .args(["trace", "info", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(program_run(3).as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["events"], 14);
}

#[test]
fn what_is_there_is_not_overwritten_unless_asked_to() {
    let place = Place::new("overwrite");
    let csv = place.file("a.csv", program_run(3));
    let precious = place.file("b.ptrace", "precious");
    let said = presagio(&["trace", "convert", &csv, &precious]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("b.ptrace; it is already there; ") && said.err.contains("--force"));
    assert_eq!(place.bytes("b.ptrace"), b"precious");
    let said = presagio(&["trace", "merge", &csv, &csv, "-o", &precious]);
    assert_eq!(
        (said.code, place.bytes("b.ptrace")),
        (Some(2), b"precious".to_vec())
    );
    presagio_ok(&["trace", "convert", &csv, &precious, "--force"]);
    presagio_ok(&["trace", "info", &precious]);
    // Also onto itself.
    presagio_ok(&["trace", "convert", &csv, &csv, "--force"]);
    assert_eq!(place.bytes("a.csv"), program_run(3).into_bytes());
}

#[test]
fn an_error_leaves_no_half_file() {
    let place = Place::new("half");
    let csv = place.file("a.csv", program_run(2000) + "not,a,row\n");
    for order in [&[][..], &["--unsorted"]] {
        let args = ["trace", "convert", &csv, &place.path("b.ptrace")];
        let said = presagio(&[&args[..], order].concat());
        assert_eq!(said.code, Some(2), "{}", said.err);
        assert_eq!(place.0.entries(), ["a.csv"]);
    }
}

/// A recorder that is really killed: a conversion to a pipe-like output, in the middle of it.
fn killed_recording(place: &Place) -> String {
    let path = place.path("killed.ptrace");
    let mut recorder = Command::new(program())
        .args(["trace", "convert", "-", "-", "--to", "native", "--unsorted"])
        .stdin(Stdio::piped())
        .stdout(File::create(&path).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = recorder.stdin.take().unwrap();
    pipe.write_all(b"time_ns,action,offset,length\n").unwrap();
    let mut number = 0u64;
    while fs::metadata(&path).unwrap().len() < 100_000 {
        let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        writeln!(pipe, "{number},write,{noise},4096").unwrap();
        number += 1;
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    path
}

#[test]
fn a_killed_recording_is_converted_up_to_its_last_chunk_and_said_to_be_cut() {
    let place = Place::new("killed");
    let killed = killed_recording(&place);
    let said = presagio(&["trace", "convert", &killed, &place.path("rest.csv")]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("killed.ptrace: byte "), "{}", said.err);
    assert!(said.err.contains("ends early"), "{}", said.err);
    let text = String::from_utf8(place.bytes("rest.csv")).unwrap();
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert!(rows.len() > 1000, "{} rows", rows.len());
    for (number, row) in rows.iter().enumerate() {
        assert!(row.starts_with(&format!("{number},")), "{row}");
    }
    let info = presagio_ok(&["trace", "info", &killed, "--json"]).json();
    assert_eq!(info["events"], rows.len());
    assert!(info["cut_short"].as_str().unwrap().contains("ends early"));
    let text = presagio_ok(&["trace", "info", &killed]).out;
    assert!(text.contains("Cut short:"), "{text}");
    // What was converted is whole.
    presagio_ok(&[
        "trace",
        "convert",
        &place.path("rest.csv"),
        &place.path("rest.ptrace"),
    ]);
}

#[test]
fn damage_is_an_error_with_its_place_or_passed_over_if_asked_to() {
    let place = Place::new("damage");
    let whole = place.file("a.csv", program_run(5000));
    convert(&whole, &place.path("a.ptrace"));
    let mut bytes = place.bytes("a.ptrace");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xFF;
    let damaged = place.file("damaged.ptrace", bytes);
    let rest = place.path("rest.ptrace");
    let said = presagio(&["trace", "convert", &damaged, &rest]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("damaged.ptrace: byte ") && said.err.contains("--salvage"),
        "{}",
        said.err
    );
    let said = presagio(&["trace", "convert", &damaged, &rest, "--salvage"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.err.contains("bytes were damaged and left out"),
        "{}",
        said.err
    );
    let info = presagio_ok(&["trace", "info", &rest, "--json"]).json();
    assert!(info["gaps"].as_u64() > Some(0), "{info:#}");
    assert!(info["events"].as_u64() > Some(1000), "{info:#}");
}

#[test]
fn malformed_traces_of_every_format_are_explained_with_file_place_and_reason() {
    let place = Place::new("malformed");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/darshan/lustre.txt");
    let text = fs::read_to_string(data)
        .unwrap()
        .replace("2097152            4096", "2097152            many");
    let mut log = b"3.41\0\0\0\0".to_vec();
    log.extend(6_567_223u64.to_le_bytes());
    let strace = "7 1700000000.1 openat(AT_FDCWD, \"x\", O_RDONLY) = 3 <0.1>\n7 nonsense\n";
    let cases: [(&str, &[u8], &str, &str); 9] = [
        ("native", b"\x89PTRACE\n\x01\0", "byte 0", "no trace"),
        (
            "version",
            b"\x89PTRACE\n\xFF\0\0\0\0\0\0\0",
            "byte 0",
            "header is damaged",
        ),
        ("darshan", &log, "byte ", "header"),
        ("dxt-text", text.as_bytes(), "line 17", "many"),
        ("strace", strace.as_bytes(), "line 2", "nonsense"),
        (
            "agios",
            b"1\tf\tR\t0\t1\n2\tf\tX\t0\t1\n",
            "line 2",
            "must be R or W",
        ),
        ("csv", b"time_ns,action\n1,read\n2,fly\n", "line 3", "fly"),
        ("else", b"hello\n", "byte 0", "no trace that we know"),
        ("empty", b"", "byte 0", "it is empty"),
    ];
    for (name, content, at, reason) in cases {
        let path = place.file(name, content);
        for args in [
            &["trace", "info", &path][..],
            &["trace", "convert", &path, &place.path("out.csv")],
            &["trace", "merge", &path, &path, "-o", &place.path("out.csv")],
            &["trace", "replay", &path, &place.path("new")],
        ] {
            let said = presagio(args);
            assert_eq!(said.code, Some(2), "{args:?}: {}", said.err);
            let all = [&format!("{path}: "), at, reason];
            assert!(
                all.iter().all(|part| said.err.contains(*part)),
                "{args:?}: {}",
                said.err
            );
            assert_eq!((said.out.as_str(), said.err.lines().count()), ("", 1));
        }
        assert!(!Path::new(&place.path("out.csv")).exists());
    }
}

#[test]
fn what_cannot_be_done_is_explained() {
    let place = Place::new("errors");
    let csv = place.file("a.csv", program_run(3));
    let (out, dir) = (place.path("b.ptrace"), place.path("dir"));
    let cases: [(&[&str], &str); 12] = [
        (&["info", "/nonexistent"], "check the name"),
        (&["info", place.0.path()], "directory"),
        (
            &["convert", &csv, &place.path("b.txt")],
            "name the format with --to",
        ),
        (&["convert", &csv, "-"], "name the format with --to"),
        (
            &["convert", &csv, &place.path("none/b.csv")],
            "create the directory first",
        ),
        (
            &["convert", &csv, place.0.path(), "--to", "csv"],
            "name a file",
        ),
        (
            &["convert", &csv, &out, "--from", "parquet"],
            "possible values: native, darshan",
        ),
        (&["convert", &csv, &out, "--from", "agios"], "line 1"),
        (&["merge", &csv, "-o", &out], "name at least two"),
        (&["replay", "-", &dir], "convert it to a file first"),
        (
            &["replay", &csv, &dir, "--speed", "0"],
            "use a --speed above 0",
        ),
        (
            &["replay", &csv, &dir, "--speed", "2", "--timing", "fast"],
            "use one of the two",
        ),
    ];
    for (args, advice) in cases {
        let said = presagio(&[&["trace"], args].concat());
        assert_eq!(said.code, Some(2), "{args:?}");
        assert!(said.err.contains(advice), "{args:?}: {}", said.err);
        assert_eq!(said.out, "");
    }
    assert_eq!(place.0.entries(), ["a.csv"]);
}

#[test]
fn info_tells_a_program_what_is_in_a_trace() {
    let place = Place::new("info");
    let csv = program_run(3)
        + "5000,1,0,0,,1,mpiio,write,/data/f0,0,8192,8192,0,0,,,,\n\
                                5001,0,0,0,,1,posix,read,/data/f0,0,10,-5,0,0,,,,\n\
                                5002,0,1,,,0,posix,gap,,0,9,0,0,0,,,,\n";
    let path = place.file("a.csv", csv);
    let info = presagio_ok(&["trace", "info", &path, "--json"]).json();
    for (key, value) in [
        ("format", Value::from("csv")),
        ("events", 16.into()),
        ("failed", 1.into()),
        ("processes", 2.into()),
        ("threads", 3.into()),
        ("files", 2.into()),
        ("call_stacks", 2.into()),
        ("gaps", 1.into()),
        ("lost", 9.into()),
        ("out_of_order", 0.into()),
        ("begin_ns", 0.into()),
        ("duration_ns", 5001.into()),
        ("cut_short", Value::Null),
        ("warnings", Value::Array(Vec::new())),
        ("counts_are_lower_bounds", false.into()),
    ] {
        assert_eq!(info[key], value, "{key}");
    }
    let [posix, mpiio] = [0, 1].map(|layer| &info["layers"][layer]);
    assert_eq!(
        (&posix["layer"], &mpiio["layer"]),
        (&"posix".into(), &"mpiio".into())
    );
    assert_eq!(
        (&posix["bytes"], &mpiio["bytes"]),
        (&(12 * 4096).into(), &8192.into())
    );
    let write = &posix["actions"][2];
    assert_eq!(
        (&write["action"], &write["events"], &write["bytes"]),
        (&"write".into(), &6.into(), &24_576.into())
    );
    let sizes = &posix["write_sizes"];
    assert_eq!(
        (&sizes["count"], &sizes["min"], &sizes["max"]),
        (&6.into(), &4096.into(), &4096.into())
    );
    assert_eq!(sizes["buckets"][0]["from"], 4096);
    assert_eq!(posix["busiest_files"][0]["file"], "/data/f0");
    assert_eq!(info["busiest_processes"][0]["command"], "./a, b");
}

#[test]
fn info_fits_a_terminal_of_80_columns_whatever_names_there_are() {
    let place = Place::new("width");
    let long = "/very-long-name".repeat(20);
    let csv = format!(
        "time_ns,action,file,length,layer,command,process\n\
         1,read,{long},18446744073709551,posix,{long},4000000000\n2,write,x,1,mpiio,,1\n\
         3,read,{long}2,3,mpiio,,2\n4,write,y,1,posix,,3\n",
    );
    let path = place.file(&format!("{}.csv", "n".repeat(90)), csv);
    let said = presagio_at(80, &["trace", "info", &path]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let wide: Vec<&str> = said
        .out
        .lines()
        .filter(|l| l.chars().count() > 80)
        .collect();
    assert_eq!(wide, [""; 0]);
    for part in [
        "duration",
        "posix  read",
        "mpiio writes",
        "busiest files",
        "not recorded",
    ] {
        assert!(said.out.contains(part), "{part}\n{}", said.out);
    }
}

/// A repetition of a run with ten requests that arrive `late` nanoseconds later than usual.
fn repetition(late: u64, requests: u64) -> String {
    let row = |n: u64| format!("{}\t/f\tW\t{}\t512\n", 1000 * (n + 1) + late, n * 512);
    (0..requests).map(row).collect()
}

#[test]
fn three_repetitions_make_one_trace_with_average_times() {
    let place = Place::new("merge");
    let traces = [(0, 10), (30, 10), (60, 9)]
        .map(|(late, requests)| place.file(&format!("{late}.agios"), repetition(late, requests)));
    let out = place.path("typical.agios");
    let args = [
        "trace", "merge", &traces[0], &traces[1], &traces[2], "-o", &out,
    ];
    let json = presagio_ok(&[&args[..], &["--json"]].concat()).json();
    for (key, value) in [
        ("repetitions", 3),
        ("events", 29),
        ("requests", 10),
        ("requests_in_all", 9),
        ("requests_in_some", 1),
        ("requests_paired", 10),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
    // 0, 30 and 60 lie 24.5 apart, by their standard deviation; 0 and 30 lie 15 apart.
    let near = |key: &str, expected: f64| {
        let value = json[key].as_f64().unwrap();
        assert!((value - expected).abs() < 1e-3 * expected, "{key}: {value}");
    };
    let deviation = 600f64.sqrt();
    near("deviation_max_ns", deviation);
    near("deviation_mean_ns", (9.0 * deviation + 15.0) / 10.0);
    let merged = String::from_utf8(place.bytes("typical.agios")).unwrap();
    let times: Vec<&str> = merged
        .lines()
        .map(|l| l.split('\t').next().unwrap())
        .collect();
    let expected: Vec<String> = (1..=10)
        .map(|n| (1000 * n + if n < 10 { 30 } else { 15 }).to_string())
        .collect();
    assert_eq!(times, expected);
    let said = presagio_ok(&[&args[..], &["--force"]].concat());
    assert!(
        said.out
            .contains("9 in every repetition (90.0 %), 1 in some only (10.0 %)"),
        "{}",
        said.out
    );
    assert!(
        said.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        said.out
    );
}

#[test]
fn traces_of_other_runs_are_merged_with_a_doubt() {
    let place = Place::new("others");
    let one = place.file("1.agios", repetition(0, 3));
    let other = place.file("2.csv", program_run(3));
    let said = presagio_ok(&[
        "trace",
        "merge",
        &one,
        &other,
        "-o",
        &place.path("m.ptrace"),
    ]);
    assert!(
        said.out.contains("are they of the same run"),
        "{}",
        said.out
    );
}

#[test]
fn recordings_of_several_machines_are_joined_by_their_clocks() {
    let place = Place::new("join");
    let header = "time_ns,action,file,offset,length,start_ns\n";
    let node = |name: &str, start: &str, times: [u64; 2]| {
        let row = |time| format!("{time},write,/shared/out,{time},8,{start}\n");
        place.file(
            name,
            [header.to_owned(), row(times[0]), row(times[1])].concat(),
        )
    };
    let late = node("1.csv", "1700000000000000100", [0, 50]);
    let early = node("2.csv", "1700000000000000000", [10, 120]);
    let unknown = node("3.csv", "", [5, 6]);
    let out = place.path("job.csv");
    let join = ["trace", "merge", "--join", "--force", "-o", &out];
    let json = presagio_ok(&[&join[..], &[&late, &early, "--json"]].concat()).json();
    assert_eq!(
        (&json["recordings"], &json["events"]),
        (&2.into(), &4.into())
    );
    assert_eq!(json["starts_apart_ns"], 100);
    let times = || -> Vec<String> {
        let text = String::from_utf8(place.bytes("job.csv")).unwrap();
        let field = |row: &str, at| row.split(',').nth(at).unwrap().to_owned();
        let rows = text.lines().skip(1);
        rows.map(|row| format!("{}:{}", field(row, 2), field(row, 0)))
            .collect()
    };
    assert_eq!(times(), ["1:10", "0:100", "1:120", "0:150"]);
    let refused = presagio(&[&join[..], &[&late, &unknown]].concat());
    assert_eq!(refused.code, Some(2));
    for part in ["3.csv", "does not say when it began", "--same-start"] {
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    let said = presagio_ok(&[&join[..], &[&late, &unknown, "--same-start"]].concat());
    assert!(
        said.out.starts_with("2 recordings with 4 events"),
        "{}",
        said.out
    );
    assert_eq!(times(), ["0:0", "1:5", "1:6", "0:50"]);
}

fn replay(place: &Place, trace: &str, dir: &str, more: &[&str]) -> Value {
    let args = ["trace", "replay", trace, &place.path(dir), "--json"];
    presagio_ok(&[&args[..], more].concat()).json()
}

#[test]
fn a_replay_moves_the_bytes_of_the_trace_and_reads_back_what_it_wrote() {
    let place = Place::new("replay");
    let csv = place.file("a.csv", program_run(20));
    for (dir, timing) in [
        ("fast", &["--timing", "fast"]),
        ("paced", &["--speed", "10"]),
    ] {
        let json = replay(&place, &csv, dir, &[&timing[..], &["--verify"]].concat());
        for (key, value) in [
            ("operations", 82),
            ("failed", 0),
            ("skipped", 0),
            ("threads", 2),
            ("bytes_read", 40 * 4096),
            ("bytes_written", 40 * 4096),
            ("bytes_right", 40 * 4096),
            ("bytes_never_written", 0),
            ("bytes_wrong", 0),
        ] {
            assert_eq!(json[key], value, "{dir}: {key}");
        }
        assert_eq!(
            (&json["layer"], &json["whole"]),
            (&"posix".into(), &true.into())
        );
        assert_eq!(json["slippage_ns"]["max"].is_null(), dir == "fast");
        assert!(json["elapsed_ns"].as_u64() > Some(0));
        assert_eq!(json["original_ns"], 19 * 1000 + 10 + 1 + 500 + 7);
    }
    for file in ["data/f0", "data/f1"] {
        let fast = place.bytes(&format!("fast/{file}"));
        assert_eq!(fast.len(), 20 * 4096);
        assert!(
            fast == place.bytes(&format!("paced/{file}")),
            "the same bytes however fast"
        );
    }
}

#[test]
fn files_that_are_only_read_are_made_before_and_filled_if_asked_to() {
    let place = Place::new("fill");
    let csv = place.file(
        "a.csv",
        "time_ns,action,file,length,result\n1,read,f,8192,8192\n",
    );
    let json = replay(&place, &csv, "holes", &["--verify"]);
    assert_eq!(
        (&json["bytes_right"], &json["bytes_never_written"]),
        (&0.into(), &8192.into())
    );
    let json = replay(&place, &csv, "filled", &["--verify", "--fill"]);
    assert_eq!(
        (&json["bytes_right"], &json["bytes_never_written"]),
        (&8192.into(), &0.into())
    );
}

#[test]
fn one_layer_is_replayed_since_the_others_tell_of_the_same_bytes() {
    let place = Place::new("layer");
    let csv = "time_ns,layer,action,file,offset,length\n1,mpiio,write,f,0,8192\n\
               2,posix,write,f,0,4096\n3,posix,write,f,4096,4096\n";
    let csv = place.file("a.csv", csv);
    let by_default = replay(&place, &csv, "posix", &[]);
    assert_eq!(
        (&by_default["layer"], &by_default["operations"]),
        (&"posix".into(), &2.into())
    );
    let mpiio = replay(&place, &csv, "mpiio", &["--layer", "mpiio"]);
    assert_eq!(
        (&mpiio["operations"], &mpiio["bytes_written"]),
        (&1.into(), &8192.into())
    );
}

#[test]
fn a_replay_keeps_away_from_files_of_others_but_comes_back_to_its_own() {
    let place = Place::new("foreign");
    let csv = place.file("a.csv", program_run(2));
    let said = presagio(&["trace", "replay", &csv, place.0.path()]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err.contains("files of others") && said.err.contains("--force"),
        "{}",
        said.err
    );
    assert_eq!(place.0.entries(), ["a.csv"]);
    for _ in 0..2 {
        presagio_ok(&["trace", "replay", &csv, &place.path("own")]);
    }
    presagio_ok(&["trace", "replay", &csv, place.0.path(), "--force"]);
    assert_eq!(place.bytes("data/f0").len(), 2 * 4096);
}

#[test]
fn operations_that_fail_are_shown_and_end_with_status_1() {
    let place = Place::new("fail");
    let csv = "time_ns,action,file,offset,length\n1,write,f,9223372036854775000,10\n";
    let csv = place.file("a.csv", csv);
    let said = presagio(&["trace", "replay", &csv, &place.path("dir")]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.out.contains("1 of them failed"), "{}", said.out);
    assert!(
        said.out
            .contains("failed: write of 10 bytes at 9223372036854775000"),
        "{}",
        said.out
    );
}

#[test]
#[cfg(feature = "parquet")]
fn parquet_is_written_and_said_not_to_be_read() {
    let place = Place::new("parquet");
    let csv = place.file("a.csv", program_run(100));
    let parquet = place.path("a.parquet");
    convert(&csv, &parquet);
    let bytes = place.bytes("a.parquet");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let said = presagio(&["trace", "info", &parquet]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("no trace that we know"), "{}", said.err);
}

#[test]
#[cfg(not(feature = "parquet"))]
fn a_build_without_parquet_says_how_to_get_it() {
    let place = Place::new("parquet");
    let csv = place.file("a.csv", program_run(1));
    let said = presagio(&["trace", "convert", &csv, &place.path("a.parquet")]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("--features parquet"), "{}", said.err);
    assert_eq!(place.0.entries(), ["a.csv"]);
}

/// A real recording, or `None` and a word about it where there are none.
fn real(name: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/darshan");
    if !dir.is_dir() {
        eprintln!("skipped {name}: there is no {}", dir.display());
        return None;
    }
    Some(dir.join(name))
}

#[test]
fn real_logs_keep_their_events_and_bytes_through_every_format() {
    let place = Place::new("real");
    for (log, events) in [("dxt.darshan", 7623), ("mpi-io-test-dxt.darshan", 576)] {
        let Some(path) = real(log) else { return };
        let path = path.to_str().unwrap();
        let (native, csv) = (place.path("a.ptrace"), place.path("a.csv"));
        presagio_ok(&["trace", "convert", path, &native, "--force"]);
        presagio_ok(&["trace", "convert", &native, &csv, "--force"]);
        let layers = |path: &str| {
            let info = presagio_ok(&["trace", "info", path, "--json"]).json();
            assert_eq!(info["events"], events, "{log}");
            info["layers"].clone()
        };
        assert_eq!(layers(path), layers(&native), "{log}");
        assert_eq!(layers(path), layers(&csv), "{log}");
    }
}

#[test]
fn a_log_that_darshan_could_not_complete_carries_a_warning() {
    let Some(path) = real("partial_data_dxt.darshan") else {
        return;
    };
    let path = path.to_str().unwrap();
    let said = presagio_ok(&["trace", "info", path]);
    assert!(
        said.out.contains("Warning: Darshan ran out of memory"),
        "{}",
        said.out
    );
    let place = Place::new("partial");
    let said = presagio_ok(&["trace", "convert", path, &place.path("a.ptrace")]);
    assert!(said.err.contains("ran out of memory"), "{}", said.err);
}

#[test]
fn the_bench_of_traces_merges_eight_and_compares_the_formats() {
    let said = presagio(&["bench", "trace", "--tiny", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let json = said.json();
    let merges = json["tables"]["merge"].as_array().unwrap();
    let traces: Vec<u64> = merges
        .iter()
        .map(|m| m["traces"].as_u64().unwrap())
        .collect();
    assert_eq!(traces, [1, 2, 4, 8]);
    for merge in merges {
        let events = merge["events"].as_u64().unwrap();
        let requests = merge["requests"].as_u64().unwrap();
        assert!(
            events > 500 && requests * merge["traces"].as_u64().unwrap() < events + 500,
            "{merge}"
        );
    }
    let formats = json["tables"]["formats"].as_array().unwrap();
    let bytes = |name| {
        let format = formats
            .iter()
            .find(|format| format["format"] == name)
            .unwrap();
        format["bytes_per_event"].as_f64().unwrap()
    };
    assert!(bytes("native") * 3.0 < bytes("csv"));
    assert_eq!(json["bars"].as_array().unwrap().len(), 1);
    let text = presagio_at(80, &["bench", "trace", "--tiny"]).out;
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

/// A recording in which every name is one that nothing else would have by chance.
fn telling_run() -> String {
    let row = |time: u64, file: &str, first: &str| {
        format!("{time},7,0,3,4711,0,posix,write,{file},0,4096,4096,{time},1,{first}")
    };
    let first = "mysolver+0x10(secretmethod);libprivate.so+0x20(hiddencall),hostalpha,\"./mysolver --key topsecret\",\
                 1700000000000000005";
    let rows = [
        HEADER.to_owned(),
        row(1, "/home/annika/projectx/out_0010.h5", first),
        row(2, "/home/annika/projectx/out_0020.h5", ",,,"),
        row(3, "/home/annika/notes.projectx", ",,,"),
        String::new(),
    ];
    rows.join("\n")
}

#[test]
fn an_anonymous_trace_has_what_was_done_and_no_name_of_who_did_it_to_what() {
    let place = Place::new("anonymous");
    let csv = place.file("a.csv", telling_run());
    let names = [
        "home",
        "annika",
        "projectx",
        "out_",
        "notes",
        "mysolver",
        "secretmethod",
        "libprivate",
        "hiddencall",
        "hostalpha",
        "topsecret",
        "4711",
        "1700000000",
    ];
    let outputs = ["b.csv", "b.ptrace", "b.agios", "b.parquet"];
    let written = |output: &&str| cfg!(feature = "parquet") || !output.ends_with(".parquet");
    for output in outputs.iter().filter(|output| written(output)) {
        let to = place.path(output);
        presagio_ok(&["trace", "convert", &csv, &to, "--anonymous"]);
        let bytes = place.bytes(output);
        for name in names {
            let found = bytes
                .windows(name.len())
                .any(|part| part == name.as_bytes());
            assert!(!found, "{name} is in {output}");
        }
    }
    // The native format compresses, so what it holds is looked at as text too.
    convert(&place.path("b.ptrace"), &place.path("c.csv"));
    let text = String::from_utf8(place.bytes("c.csv")).unwrap();
    assert_eq!(text.as_bytes(), place.bytes("b.csv"));
    for (number, file) in ["/a/b/c/d1.h5", "/a/b/c/d2.h5", "/a/b/g"]
        .iter()
        .enumerate()
    {
        let time = number + 1;
        let row = format!("{time},7,0,3,,0,posix,write,{file},0,4096,4096,{time},1,");
        assert!(text.contains(&row), "{row}\n{text}");
    }
    assert!(text.contains("e+0x10;f.so+0x20"), "{text}");
}
