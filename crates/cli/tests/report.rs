//! `presagio report`: the figures are right, the page holds the same ones, and what cannot be reported is explained.

mod common;

use common::{library, presagio, presagio_ok, program};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_trace::{Frame, Process, Record, native};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is gone when the test is over.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The names of all that is in it.
    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.0.path()).unwrap().flatten();
        let mut names: Vec<String> = files
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Writes a trace and says where it is.
    fn trace(&self, name: &str, records: &[Record]) -> String {
        let file = fs::File::create(self.path(name)).unwrap();
        let mut writer = native::Writer::new(file).unwrap();
        records.iter().for_each(|r| writer.write(r).unwrap());
        writer.finish().unwrap();
        self.text(name)
    }
}

fn file(id: u64, name: &[u8]) -> Record {
    Record::File {
        id: FileId(id),
        name: name.into(),
    }
}

fn event(time: u64, action: Action, file: u64, offset: u64, len: u64) -> Event {
    Event {
        time: Nanos(time),
        duration: Nanos(1000),
        process: 1,
        thread: 0,
        file: FileId(file),
        action,
        layer: Layer::Posix,
        context: ContextId(if action == Action::Read { 1 } else { 2 }),
        offset,
        len,
        result: len as i64,
    }
}

/// Ten phases, 10 ms apart: 40 strided reads of 16 KiB of one file, and 10 consecutive writes of another.
fn phases() -> Vec<Record> {
    let mut records = vec![
        file(1, b"/data/input.h5"),
        file(2, b"/data/out.bin"),
        Record::Process(Process {
            id: 1,
            pid: Some(77),
            command: Some("/opt/app --steps 10".into()),
            ..Process::default()
        }),
    ];
    for context in [1, 2] {
        let frame = Frame {
            module: "/opt/app".into(),
            offset: 0x1000 + u64::from(context),
            symbol: Some(format!("function_{context}").as_str().into()),
        };
        records.push(Record::Context {
            id: ContextId(context),
            frames: [frame].into(),
        });
    }
    for phase in 0..10 {
        let begin = phase * 10_000_000;
        for n in 0..40 {
            let at = (phase * 40 + n) * 65536;
            let read = event(begin + n * 2000, Action::Read, 1, at, 16384);
            records.push(Record::Event(read));
        }
        for n in 0..10 {
            let at = (phase * 10 + n) * 4096;
            let write = event(begin + 80_000 + n * 2000, Action::Write, 2, at, 4096);
            records.push(Record::Event(write));
        }
    }
    records
}

fn figures(args: &[&str]) -> Value {
    let all: Vec<&str> = [&["report", "--json"], args].concat();
    presagio_ok(&all).json()
}

/// The document that a page contains.
fn embedded(page: &str) -> Value {
    let begin = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = page[begin..].find("</script>").unwrap();
    serde_json::from_str(&page[begin..begin + end]).unwrap()
}

#[test]
fn the_figures_are_those_of_the_trace() {
    let place = Place::new();
    let document = figures(&[&place.trace("a.ptrace", &phases())]);
    assert_eq!(document["format"], "presagio-report");
    let run = &document["runs"][0];
    let totals = &run["totals"];
    assert_eq!(totals["operations"], 500);
    assert_eq!(totals["bytes_read"], 400 * 16384);
    assert_eq!(totals["bytes_written"], 100 * 4096);
    assert_eq!(totals["time_ns"], 500_000);
    assert_eq!(run["source"]["commands"][0], "/opt/app --steps 10");
    let input = &run["files"][0];
    assert_eq!(
        (&input["short"], &input["reads"]["word"]),
        (&"input.h5".into(), &"strided".into())
    );
    assert_eq!(input["reads"]["sizes"][0], serde_json::json!([16384, 400]));
    assert_eq!(run["sequentiality"][1]["consecutive_share"], 1.0);
    assert_eq!(run["phases"]["phases"].as_array().unwrap().len(), 10);
    assert_eq!(run["phases"]["period"]["period_ns"], 10_000_000);
    assert_eq!(run["sites"][0]["label"], "function_1 in app");
    let sum = |list: &Value| {
        list.as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(sum(&run["timeline"]["all"]["read"]), 400 * 16384);
    assert_eq!(
        sum(&run["timeline"]["lanes"][0]["activity"]["write_ns"]),
        100_000
    );
    assert_eq!(run["prediction"]["all"]["operations"], 500);
    assert!(run["prediction"]["all"]["right_share"].as_f64().unwrap() > 0.8);
}

#[test]
fn findings_say_what_took_the_time_and_where_it_comes_from() {
    let place = Place::new();
    let document = figures(&[&place.trace("a.ptrace", &phases())]);
    let run = &document["runs"][0];
    let findings = run["findings"].as_array().unwrap();
    let spot = findings.iter().find(|f| f["id"] == "hot-spot").unwrap();
    let text = spot["text"].as_str().unwrap();
    assert!(text.contains("80 % of the I/O time"), "{text}");
    assert!(
        text.contains("16 KiB strided reads of “input.h5”, from function_1 in app"),
        "{text}"
    );
    for path in spot["evidence"]["figures"].as_array().unwrap() {
        let pointer = format!("/{}", path.as_str().unwrap().replace('.', "/"));
        assert!(
            run.pointer(&pointer).is_some_and(Value::is_number),
            "{pointer}"
        );
    }
    assert!(findings.iter().any(|f| f["id"] == "rhythm"));
}

#[test]
fn the_program_is_shown_as_loops() {
    let place = Place::new();
    let document = figures(&[&place.trace("a.ptrace", &phases())]);
    let program = &document["runs"][0]["loops"][0];
    assert_eq!(program["operations"], 500);
    let text = program["steps"].to_string();
    assert!(text.contains("\"kind\":\"loop\""), "{text}");
    assert!(
        text.contains("\"times\":40") && text.contains("\"times\":10"),
        "{text}"
    );
}

#[test]
fn the_page_contains_the_very_figures() {
    let place = Place::new();
    let trace = place.trace("a.ptrace", &phases());
    let page = place.text("out.html");
    let said = presagio_ok(&["report", &trace, "--output", &page]);
    assert!(
        said.out.contains("strided reads") && said.out.contains("out.html"),
        "{}",
        said.out
    );
    let text = fs::read_to_string(&page).unwrap();
    assert_eq!(embedded(&text), figures(&[&trace]));
    assert!(text.contains("Content-Security-Policy"));
    assert_eq!(text.matches("<script").count(), 2);
}

#[test]
fn runs_are_compared_with_the_first() {
    let place = Place::new();
    let slow = place.trace("slow.ptrace", &phases());
    let quick: Vec<Record> = phases()
        .into_iter()
        .map(|record| match record {
            Record::Event(event) => Record::Event(Event {
                duration: Nanos(500),
                ..event
            }),
            other => other,
        })
        .collect();
    let quick = place.trace("quick.ptrace", &quick);
    let document = figures(&[&slow, &quick, "--name", "before", "--name", "after"]);
    let measures = document["comparison"]["measures"].as_array().unwrap();
    let time = measures.iter().find(|m| m["key"] == "time_ns").unwrap();
    assert_eq!(time["ratios"], serde_json::json!([1.0, 0.5]));
    let text = document["comparison"]["findings"].to_string();
    assert!(
        text.contains("“after” waited 200 µs for reads: 50 % less than “before”"),
        "{text}"
    );
}

#[test]
fn layers_are_not_added_up() {
    let place = Place::new();
    let mut records = phases();
    let above: Vec<Record> = records
        .iter()
        .filter_map(|record| match record {
            Record::Event(event) => Some(Record::Event(Event {
                layer: Layer::MpiIo,
                ..*event
            })),
            _ => None,
        })
        .collect();
    records.extend(above);
    let trace = place.trace("a.ptrace", &records);
    let run = &figures(&[&trace])["runs"][0];
    assert_eq!(run["totals"]["operations"], 500);
    assert_eq!(run["source"]["layers"].as_array().unwrap().len(), 2);
    let other = &figures(&[&trace, "--layer", "mpiio"])["runs"][0];
    assert_eq!(other["source"]["layer"], "mpiio");
    assert_eq!(other["totals"]["bytes_read"], 400 * 16384);
}

#[test]
fn what_is_missing_is_said() {
    let place = Place::new();
    let mut records = phases();
    records.push(Record::Gap {
        process: 1,
        lost: 5,
    });
    let trace = place.trace("a.ptrace", &records);
    let run = &figures(&[&trace])["runs"][0];
    assert!(
        run["not_seen"]
            .to_string()
            .contains("5 operations that were lost"),
        "{}",
        run["not_seen"]
    );
    // Without its last chunk a trace is cut short.
    let whole = fs::read(&trace).unwrap();
    let cut = place.text("cut.ptrace");
    fs::write(&cut, &whole[..whole.len() - 30]).unwrap();
    let said = presagio(&["report", "--json", &cut]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.json()["runs"][0]["not_seen"]
            .to_string()
            .contains("The end")
    );
}

/// Names that would be markup, end the data block, or deceive the eye.
pub fn hostile() -> Vec<Record> {
    let names: [&[u8]; 9] = [
        b"</script><script>window.__injected=1</script>",
        b"\"><img src=x onerror=\"window.__injected=1\">",
        b"'; window.__injected=1; //",
        b"/data/line\nbreak\r\nand\ttab",
        b"/data/not-utf8-\xff\xfe\x80",
        "/data/\u{202e}cod.exe\u{2028}\u{200b}".as_bytes(),
        b"<!--<script>",
        b"{{DATA}} {{SCRIPT}} ]]> &lt;b&gt;",
        b"javascript:window.__injected=1",
    ];
    let mut records = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let id = n as u64 + 1;
        records.push(file(id, name));
        let text = String::from_utf8_lossy(name).into_owned();
        records.push(Record::Process(Process {
            id: id as u32,
            command: Some(text.clone()),
            host: Some(text.clone()),
            ..Process::default()
        }));
        let frame = Frame {
            module: text.as_str().into(),
            offset: 7,
            symbol: Some(text.as_str().into()),
        };
        records.push(Record::Context {
            id: ContextId(id as u32),
            frames: [frame].into(),
        });
        for step in 0..60 {
            let event = event(
                id * 1_000_000 + step * 5000,
                Action::Read,
                id,
                step * 8192,
                4096,
            );
            records.push(Record::Event(Event {
                process: id as u32,
                context: ContextId(id as u32),
                ..event
            }));
        }
    }
    records
}

#[test]
fn no_name_becomes_markup() {
    let place = Place::new();
    let trace = place.trace("hostile.ptrace", &hostile());
    let page = place.text("out.html");
    let name = "</script><script>window.__injected=1</script>";
    presagio_ok(&["report", &trace, "-o", &page, "--name", name]);
    let text = fs::read_to_string(&page).unwrap();
    let begin = text.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = &text[begin..begin + text[begin..].find("</script>").unwrap()];
    assert!(!data.contains(['<', '>', '&', '\u{2028}']) && !data.contains('\n'));
    assert_eq!(text.matches("<script").count(), 2);
    let document = embedded(&text);
    let names = document["runs"][0]["files"].to_string();
    assert!(
        names.contains("</script><script>window.__injected"),
        "shown as it is, as text"
    );
    assert!(
        names.contains("\\\\u{202e}cod.exe") && names.contains("not-utf8-\\\\xff"),
        "{names}"
    );
}

#[test]
fn no_name_of_a_trace_tells_a_terminal_anything() {
    let place = Place::new();
    let trace = place.trace("hostile.ptrace", &hostile());
    let said = presagio_ok(&["trace", "info", &trace]).out;
    let harmful = |c: char| c != '\n' && c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c);
    assert!(!said.contains(harmful), "{said:?}");
    assert!(said.contains(r"\xff\xfe\x80"), "{said}");
}

#[test]
fn what_is_no_input_is_explained() {
    let place = Place::new();
    let other = place.text("other.json");
    fs::write(&other, "{\"a\": 1}").unwrap();
    for (input, part) in [
        ("/nonexistent/x", "check the name"),
        (other.as_str(), "not the summary of a run"),
    ] {
        let said = presagio(&["report", input]);
        assert_eq!(said.code, Some(2), "{}", said.out);
        assert!(said.err.contains(part), "{}", said.err);
    }
    let trace = place.trace("a.ptrace", &phases());
    let said = presagio(&["report", &trace, "-o", "/nonexistent/x/y.html"]);
    assert!(
        said.err.contains("cannot write the report") && said.err.contains("--output"),
        "{}",
        said.err
    );
    let said = presagio(&["report", &trace, "--json", "-o", "-"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert!(
        said.err.contains("both mean the standard output"),
        "{}",
        said.err
    );
}

#[test]
fn a_summary_tells_a_terminal_nothing() {
    let place = Place::new();
    let summary = place.text("run.json");
    let path = "/nowhere/\u{1b}[2J\u{202e}x\n.ptrace";
    let text = serde_json::json!({ "totals": {}, "prefetch": {}, "trace": { "path": path } });
    fs::write(&summary, text.to_string()).unwrap();
    let said = presagio_ok(&["report", &summary, "--json"]);
    assert!(
        said.err
            .contains(r"/nowhere/\u{1b}[2J\u{202e}x\n.ptrace is not there"),
        "{}",
        said.err
    );
    assert!(!said.err.contains('\u{1b}'));
}

#[test]
fn the_name_of_a_trace_tells_a_terminal_nothing() {
    let place = Place::new();
    let harmful = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    let name = "a\u{1b}[2J\n\u{202e}b";
    let trace = place.trace(&format!("{name}.ptrace"), &phases());
    // Written beside the one who asks, under a name like the trace's.
    let mut report = Command::new(program());
    let report = report.args(["report", &trace]).current_dir(place.0.path());
    let output = report.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(
        out.contains("b.report.html") && !out.contains(harmful),
        "{out:?}"
    );
    assert!(place.path(&format!("{name}.report.html")).exists());
    let whole = fs::read(&trace).unwrap();
    let cut = place.text(&format!("{name}-cut.ptrace"));
    fs::write(&cut, &whole[..whole.len() - 30]).unwrap();
    let damaged = place.text(&format!("{name}-damaged.ptrace"));
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&damaged, bytes).unwrap();
    let missing = place.text(&format!("{name}-missing.ptrace"));
    for (trace, code) in [(&cut, 1), (&damaged, 2), (&missing, 2)] {
        let said = presagio(&["report", "--json", trace]);
        assert_eq!(said.code, Some(code), "{}", said.err);
        assert!(said.err.starts_with("presagio: "), "{:?}", said.err);
        assert!(!said.err.contains(harmful), "{:?}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{:?}", said.err);
    }
    let salvaged = presagio(&["report", "--json", "--salvage", &damaged]);
    assert!(!salvaged.err.contains(harmful), "{:?}", salvaged.err);
}

#[test]
fn a_name_is_for_the_input_in_its_place() {
    let place = Place::new();
    let traces = ["a.ptrace", "b.ptrace"].map(|name| place.trace(name, &phases()));
    let summary = place.text("a.json");
    let text = serde_json::json!({ "totals": {}, "prefetch": {}, "trace": { "path": traces[0] } });
    fs::write(&summary, text.to_string()).unwrap();
    let names = |document: &Value| -> Vec<String> {
        let runs = document["runs"].as_array().unwrap().iter();
        runs.map(|run| run["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let [a, b] = &traces;
    // The trace of the summary is none of the runs, wherever it stands.
    let of_summary = figures(&[&summary, a, b, "--name", "one"]);
    assert_eq!(names(&of_summary), ["one", "b"]);
    let both = figures(&[a, b, "--name", "one", "--name", "two"]);
    assert_eq!(names(&both), ["one", "two"]);
    for (args, part) in [
        (
            vec![&**a, "--name", "one", "--name", "two"],
            "2 names for 1 input;",
        ),
        (
            vec![&summary, a, b, "--name", "one", "--name", "two"],
            "“two” would be the name of",
        ),
    ] {
        let said = presagio(&[&["report", "--json"], &args[..]].concat());
        assert_eq!(said.code, Some(2), "{}", said.out);
        assert!(said.err.contains(part), "{}", said.err);
    }
}

#[test]
fn an_empty_trace_has_a_report() {
    let place = Place::new();
    let trace = place.trace("empty.ptrace", &[]);
    let document = figures(&[&trace]);
    assert_eq!(document["runs"][0]["findings"][0]["id"], "empty");
}

#[test]
fn other_formats_are_reported_too() {
    let place = Place::new();
    let csv = place.text("a.csv");
    fs::write(&csv, "time_ns,duration_ns,action,file,offset,len,result\n1,5,read,/x,0,10,10\n9,5,read,/x,10,10,10\n").unwrap();
    let run = &figures(&[&csv])["runs"][0];
    assert_eq!(
        (&run["totals"]["operations"], &run["source"]["format"]),
        (&2.into(), &"csv".into())
    );
}

const READER: &str = r#"
#include <fcntl.h>
#include <unistd.h>
static char buffer[65536];
__attribute__((noinline)) void read_a_column(int fd) {
    for (int row = 0; row < 200; row++)
        if (pread(fd, buffer, 4096, row * 65536L) < 0) _exit(1);
}
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    read_a_column(fd);
    return argc - 2;
}
"#;

/// A program with debug information, and a file that it reads.
fn reader(place: &Place) -> (String, String) {
    let (source, program, data) = (
        place.text("reader.c"),
        place.text("reader"),
        place.text("data"),
    );
    fs::write(&source, READER).unwrap();
    let built = Command::new("gcc")
        .args(["-g", "-O1", "-o", &program, &source])
        .status();
    assert!(
        built.is_ok_and(|s| s.success()),
        "gcc is needed: apt-get install build-essential"
    );
    fs::write(&data, vec![7; 200 * 65536]).unwrap();
    (program, data)
}

#[test]
fn a_run_writes_its_report_and_names_the_lines_of_the_program() {
    let place = Place::new();
    let (program, data) = reader(&place);
    let page = place.text("run.html");
    let said = presagio_ok(&[
        "run",
        "--no-model",
        "--report",
        &page,
        "--",
        &program,
        &data,
    ]);
    assert!(said.err.contains("the report is in"), "{}", said.err);
    let document = embedded(&fs::read_to_string(&page).unwrap());
    let run = &document["runs"][0];
    assert_eq!(run["totals"]["bytes_read"], 200 * 4096);
    assert!(run["totals"]["elapsed_ns"].is_u64() && run["prefetch"]["advised"] == true);
    let sites = run["sites"].to_string();
    assert!(sites.contains("read_a_column (reader.c:7)"), "{sites}");
    assert_eq!(place.files(), ["data", "reader", "reader.c", "run.html"]);
}

#[test]
fn a_run_whose_command_cannot_be_started_leaves_no_trace() {
    let place = Place::new();
    let page = place.text("run.html");
    for mode in ["--advise", "--in-process"] {
        let args = ["run", "--no-model", "--report", &page, mode, "--"];
        let said = presagio(&[&args[..], &["/nonexistent/program"]].concat());
        assert_eq!(said.code, Some(127), "{}", said.err);
        assert_eq!(place.files(), ["run.html"], "{mode}");
    }
    // Nor one that ends before it begins: there is no place for its orders.
    let mut run = Command::new(program());
    run.args(["run", "--report", &page, "--in-process", "--", "true"])
        .env("PRESAGIO_LIB", library())
        .env("XDG_RUNTIME_DIR", "")
        .env("TMPDIR", "/nonexistent");
    let output = run.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert_eq!(place.files(), ["run.html"]);
}

#[test]
fn a_run_that_is_killed_leaves_no_trace_or_the_next_one_takes_it_away() {
    let place = Place::new();
    let script = "echo > ready.part; mv ready.part ready; exec sleep 1000";
    for (mode, left) in [("--advise", 0), ("--in-process", 1)] {
        let mut run = Command::new(program());
        run.args(["run", "--no-model", "--quiet", "--report", "run.html", mode])
            .args(["--", "sh", "-c", script])
            .env("PRESAGIO_LIB", library())
            .env_remove("LD_PRELOAD")
            .current_dir(place.0.path());
        let mut child = run.spawn().unwrap();
        let is_ready = || place.path("ready").exists();
        let began = std::time::Instant::now();
        while !is_ready() && began.elapsed() < std::time::Duration::from_secs(120) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_ready(), "{mode}");
        fs::remove_file(place.path("ready")).unwrap();
        let files = place.files();
        let hidden = files.iter().filter(|name| name.starts_with('.'));
        assert_eq!(hidden.count(), left, "{mode}: {files:?}");
    }
    let page = place.text("run.html");
    presagio_ok(&["run", "-q", "--report", &page, "--in-process", "--", "true"]);
    assert_eq!(place.files(), ["run.html"]);
}

#[test]
fn a_summary_brings_its_trace_along_or_does_without() {
    let place = Place::new();
    let (program, data) = reader(&place);
    let (summary, trace) = (place.text("run.json"), place.text("run.ptrace"));
    let args = [
        "run",
        "--no-model",
        "--quiet",
        "--json",
        &summary,
        "--trace",
        &trace,
        "--",
        &program,
        &data,
    ];
    presagio_ok(&args);
    let both = figures(&[&summary, &trace]);
    assert_eq!(
        both["runs"].as_array().unwrap().len(),
        1,
        "the trace is the summary's"
    );
    assert_eq!(both["runs"][0]["totals"]["bytes_read"], 200 * 4096);
    assert!(both["runs"][0]["summary"].is_object());
    fs::remove_file(&trace).unwrap();
    let said = presagio_ok(&["report", "--json", &summary]);
    assert!(said.err.contains("is not there"), "{}", said.err);
    let alone = &said.json()["runs"][0];
    assert_eq!(alone["totals"]["bytes_read"], 200 * 4096);
    assert!(alone["timeline"].is_null() && alone["not_seen"].to_string().contains("no trace"));
}

/// The tables of a document below a heading: fields by their paths, and what is said of each.
struct Described(Vec<(Vec<String>, Vec<String>)>);

impl Described {
    fn read(page: &str, heading: &str) -> Described {
        let text = fs::read_to_string(common::repository().join(page)).unwrap();
        let (_, part) = text.split_once(heading).unwrap();
        let part = part.split("\n## ").next().unwrap();
        let in_ticks = |text: &str| -> Vec<String> {
            let parts = text.split('`').skip(1).step_by(2);
            parts.map(str::to_owned).collect()
        };
        let rows = part.lines().filter_map(|line| {
            let (paths, said) = line.strip_prefix("| `")?.split_once(" | ")?;
            Some((in_ticks(&format!("`{paths}")), in_ticks(said)))
        });
        Described(rows.collect())
    }

    fn row(&self, path: &str) -> Option<&[String]> {
        let row = self
            .0
            .iter()
            .find(|(paths, _)| paths.iter().any(|it| it == path));
        row.map(|(_, said)| &said[..])
    }

    /// What is said of a path, or of the nearest that it is in.
    fn nearest(&self, path: &str) -> Option<&[String]> {
        let above = path.rsplit_once('.').map(|(above, _)| above);
        self.row(path).or_else(|| self.nearest(above?))
    }

    /// Each field below `path` has to be described where that is. The paths that there are go to `seen`.
    fn holds(&self, path: &str, value: &Value, seen: &mut BTreeSet<String>) {
        match value {
            Value::Array(list) => list.iter().for_each(|one| self.holds(path, one, seen)),
            Value::Object(fields) => {
                for (field, value) in fields {
                    let below = match path {
                        "" => field.clone(),
                        _ => format!("{path}.{field}"),
                    };
                    let is_said = match path {
                        "" => self.row(&below).is_some(),
                        _ => self.nearest(path).is_some_and(|said| said.contains(field)),
                    };
                    assert!(is_said, "{below} is not described");
                    // It has a description of its own.
                    if below != "runs" && below != "summary" {
                        self.holds(&below, value, seen);
                    }
                    seen.insert(below);
                }
            }
            _ => {}
        }
    }

    /// Nothing is described that there is not.
    fn are_all(&self, seen: &BTreeSet<String>) {
        let paths = self.0.iter().flat_map(|(paths, _)| paths);
        let unseen: Vec<_> = paths.filter(|path| !seen.contains(*path)).collect();
        assert!(unseen.is_empty(), "there is no {unseen:?}");
    }
}

#[test]
fn every_figure_of_the_document_is_described() {
    let place = Place::new();
    let mut records = phases();
    let fails = event(1_500_000, Action::Open, 1, 0, 0);
    records.push(Record::Event(Event {
        result: -2,
        ..fails
    }));
    let mut slow = event(92_000_000, Action::Read, 1, 0, 16384);
    slow.duration = Nanos(10_000_000);
    records.push(Record::Event(slow));
    let trace = place.trace("run.ptrace", &records);
    let mut said = summary();
    said["trace"] = serde_json::json!({ "path": trace });
    let input = place.text("run.json");
    fs::write(&input, said.to_string()).unwrap();
    let document = figures(&[&input, &place.trace("other.ptrace", &slower())]);
    let described = Described::read("docs/report.md", "## The document for programs\n");
    let mut seen = BTreeSet::new();
    described.holds("", &document, &mut seen);
    for run in document["runs"].as_array().unwrap() {
        described.holds("", run, &mut seen);
    }
    described.are_all(&seen);
}

#[test]
fn every_figure_of_a_summary_is_described() {
    let place = Place::new();
    let (program, data) = reader(&place);
    let (summary, trace) = (place.text("run.json"), place.text("run.ptrace"));
    let recorded = [
        "run",
        "--no-model",
        "-q",
        "--json",
        &summary,
        "--trace",
        &trace,
        "--",
    ];
    presagio_ok(&[&recorded[..], &[&program, &data]].concat());
    let mut said: Value = serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
    // Whether something is loaded and measured depends on the machine; what there may be is what another summary has.
    let other = self::summary();
    for key in ["by_reason", "waits"] {
        let list = &mut said["prefetch"][key];
        let is_empty = list.as_array().map_or(
            list.as_object().is_some_and(|it| it.is_empty()),
            Vec::is_empty,
        );
        if is_empty {
            *list = other["prefetch"][key].clone();
        }
    }
    let described = Described::read("docs/files.md", "## The summary of a run\n");
    let mut seen = BTreeSet::new();
    described.holds("", &said, &mut seen);
    described.are_all(&seen);
}

#[test]
fn the_bench_measures_time_memory_and_the_page() {
    let json = presagio_ok(&["bench", "report", "--tiny", "--json"]).json();
    assert_eq!(json["tables"]["reports"].as_array().unwrap().len(), 2);
    let bars = json["bars"].as_array().unwrap();
    assert_eq!(bars.len(), 5);
    assert!(
        bars.iter()
            .all(|bar| bar["value"].as_f64().is_some_and(|v| v > 0.0)),
        "{bars:?}"
    );
}

/// Opens pages in Debian's chromium, with Playwright.
fn in_a_browser(page: &str, figures: &Value, place: &Place, charts: &str) {
    in_a_browser_with(page, figures, place, charts, &[]);
}

/// The same, and these texts have to be found.
fn in_a_browser_with(page: &str, figures: &Value, place: &Place, charts: &str, texts: &[&str]) {
    let browser = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    assert!(
        browser.join("node_modules/playwright-core").is_dir()
            && Path::new("/usr/bin/chromium").exists(),
        "Playwright and chromium are needed: make test-needs"
    );
    let json = place.text("figures.json");
    fs::write(&json, figures.to_string()).unwrap();
    let wanted = place.text("texts.json");
    fs::write(&wanted, serde_json::to_string(texts).unwrap()).unwrap();
    let ran = Command::new("node")
        .arg(browser.join("report.mjs"))
        .args([page, &json, charts, &wanted])
        .output();
    let ran = ran.expect("node is needed: apt-get install nodejs");
    let said = String::from_utf8_lossy(&ran.stderr);
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{printed}");
    println!("{printed}");
}

const CHARTS: &str = "activity,lanes,heat,sizes,latencies,sequentiality,loops,prediction,period";

#[test]
fn a_page_opens_and_every_chart_shows_its_evidence() {
    let place = Place::new();
    let trace = place.trace("a.ptrace", &phases());
    let page = place.text("a.html");
    presagio_ok(&["report", &trace, "-o", &page]);
    in_a_browser(&page, &figures(&[&trace]), &place, CHARTS);
}

/// More of everything than a report shows: processes, files, call stacks, phases, all of it without an order that loops would fold.
fn crowd() -> Vec<Record> {
    let mut records = Vec::new();
    for id in 0..80 {
        records.push(file(id, format!("/data/part-{id:03}.dat").as_bytes()));
    }
    for id in 0..140 {
        records.push(Record::Process(Process {
            id,
            rank: Some(id),
            command: Some("/opt/app --with every option".into()),
            ..Process::default()
        }));
    }
    for id in 1..=200 {
        let frame = |depth: u64| Frame {
            module: "/opt/app".into(),
            offset: id * 4096 + depth,
            symbol: Some(format!("function_{id}_{depth}").as_str().into()),
        };
        records.push(Record::Context {
            id: ContextId(id as u32),
            frames: (0..20).map(frame).collect(),
        });
    }
    records.extend((0..CROWD).map(|n| Record::Event(one_of_the_crowd(n))));
    records
}

const CROWD: u64 = 220_000;

/// In bursts of 4 ms, 6 ms apart; three of four go to a few files, so that their maps are full.
fn one_of_the_crowd(n: u64) -> Event {
    let chance = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let chance = (chance ^ chance >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16;
    let file = match chance % 4 {
        0 => chance / 4 % 80,
        _ => chance / 4 % 20,
    };
    let action = match chance >> 9 & 1 {
        0 => Action::Read,
        _ => Action::Write,
    };
    let at = (chance >> 10) % 480 * 100_000;
    let event = event(
        n / 400 * 10_000_000 + n % 400 * 10_000,
        action,
        file,
        at,
        512 << (chance >> 20 & 7),
    );
    Event {
        process: (chance >> 24) as u32 % 140,
        context: ContextId(1 + (chance >> 32) as u32 % 200),
        duration: Nanos(1000 + (chance >> 12) % 8000),
        ..event
    }
}

#[test]
fn a_page_with_as_much_as_there_can_be_opens_and_answers() {
    let place = Place::new();
    let trace = place.trace("crowd.ptrace", &crowd());
    let page = place.text("a.html");
    presagio_ok(&["report", &trace, "-o", &page]);
    let figures = figures(&[&trace]);
    let run = &figures["runs"][0];
    let count = |list: &Value| list.as_array().unwrap().len();
    assert!(count(&run["timeline"]["all"]["read"]) > 2000);
    assert_eq!(
        count(&run["timeline"]["lanes"]),
        129,
        "128, and one for the others"
    );
    assert_eq!((count(&run["files"]), count(&run["accesses"])), (60, 60));
    assert_eq!(
        (count(&run["loops"]), count(&run["phases"]["phases"])),
        (6, 500)
    );
    assert_eq!(run["phases"]["count"], 550, "all of them, not those listed");
    assert_eq!(run["phases"]["period"]["period_ns"], 10_000_000);
    let cells: usize = (0..20)
        .map(|n| count(&run["files"][n]["heat"]["cells"]))
        .sum();
    assert!(cells > 60_000, "maps have {cells} cells");
    in_a_browser(&page, &figures, &place, CHARTS);
}

#[test]
fn a_page_with_hostile_names_opens_and_runs_nothing_of_them() {
    let place = Place::new();
    let trace = place.trace("hostile.ptrace", &hostile());
    let page = place.text("a.html");
    presagio_ok(&["report", &trace, "-o", &page]);
    in_a_browser(
        &page,
        &figures(&[&trace]),
        &place,
        "activity,lanes,heat,sizes,latencies,sequentiality,loops,prediction",
    );
}

#[test]
fn a_page_of_several_runs_opens_and_compares_them() {
    let place = Place::new();
    let traces = [("fast.ptrace", phases()), ("slow.ptrace", slower())];
    let traces = traces.map(|(name, records)| place.trace(name, &records));
    let page = place.text("a.html");
    presagio_ok(&["report", &traces[0], &traces[1], "-o", &page]);
    let charts = format!("run-0,run-1,{CHARTS}");
    in_a_browser(&page, &figures(&[&traces[0], &traces[1]]), &place, &charts);
}

/// As [`phases`], with a pause before the last one, twice the time in each operation, and half of the bytes.
fn slower() -> Vec<Record> {
    let mut records = phases();
    for record in &mut records {
        let Record::Event(event) = record else {
            continue;
        };
        event.duration = Nanos(2 * event.duration.0);
        (event.len, event.result) = (event.len / 2, event.result / 2);
        if event.time >= Nanos(90_000_000) {
            event.time += Nanos(40_000_000);
        }
    }
    records
}

#[test]
fn a_page_of_an_empty_trace_opens_and_says_so() {
    let place = Place::new();
    let trace = place.trace("empty.ptrace", &[]);
    let page = place.text("a.html");
    presagio_ok(&["report", &trace, "-o", &page]);
    let texts = ["There are no operations in this recording."];
    in_a_browser_with(&page, &figures(&[&trace]), &place, "", &texts);
}

/// What a run without a trace says of itself, with more of everything than is shown at first.
fn summary() -> Value {
    let wait = |n: u64| serde_json::json!({ "name": format!("/data/in-{n}"), "method": "sieving", "with_ns": 1000 * n, "without_ns": 2_000_000, "with_reads": 8, "without_reads": 9 });
    let decided = |n: u64| format!("/data/in-{n}: sieving: it pays.");
    let totals = serde_json::json!({
        "operations": 2000, "failed": 3, "bytes_read": 100 << 20, "bytes_written": 5 << 20, "time_ns": 900_000_000,
        "actions": {
            "read": { "operations": 1500, "time_ns": 800_000_000 },
            "write": { "operations": 500, "time_ns": 100_000_000 },
        },
    });
    serde_json::json!({
        "elapsed_ns": 3_000_000_000u64, "processes": 2, "files": 60, "contexts": 4,
        "totals": totals,
        "programs": [{ "name": "/opt/app" }],
        "busiest_files": [{ "name": "/data/in-1", "totals": { "operations": 40, "bytes_read": 4 << 20, "time_ns": 30_000_000 } }],
        "prediction": { "operations": 2000, "right": 1800, "transfers": 1900, "offset_right": 1700, "hit_ratio": 0.9 },
        "prefetch": {
            "advised": true, "bytes_useful": 75 << 20, "bytes_wasted": 25 << 20,
            "by_reason": { "exact": { "hints": 9, "bytes_asked": 100 << 20, "bytes_already": 0, "bytes_loaded": 100 << 20 } },
            "waits": (1..=15).map(wait).collect::<Vec<_>>(),
        },
        "decided": (1..=45).map(decided).collect::<Vec<_>>(),
    })
}

#[test]
fn a_page_of_a_summary_alone_opens_and_shows_all_that_it_says() {
    let place = Place::new();
    let input = place.text("run.json");
    fs::write(&input, summary().to_string()).unwrap();
    let page = place.text("a.html");
    presagio_ok(&["report", &input, "-o", &page]);
    let texts = [
        "100 MiB were loaded before the program asked for them; 75 MiB of that (75 %) were then read: 75 % of all bytes that were read.",
        "/data/in-45: sieving",
        "the run left no trace",
    ];
    in_a_browser_with(&page, &figures(&[&input]), &place, "prefetch", &texts);
}

#[test]
fn a_page_of_a_real_run_opens_with_its_lines_of_source_and_what_was_loaded() {
    let place = Place::new();
    let (program, data) = reader(&place);
    let (summary, trace) = (place.text("run.json"), place.text("run.ptrace"));
    let recorded = [
        "run",
        "--no-model",
        "--quiet",
        "--json",
        &summary,
        "--trace",
        &trace,
    ];
    presagio_ok(&[&recorded[..], &["--", &program, &data]].concat());
    let mut json: Value = serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
    // Whether something is loaded depends on the machine: on what it has in memory, and how fast its disk is.
    let decided = format!(
        "{data}: exact loads: {}a read waits 2.00 ms with nothing, waits 0.50 ms with exact loads.",
        "a sentence may be as long as it likes; ".repeat(20)
    );
    let waited = serde_json::json!({ "name": data, "method": "exact loads", "with_ns": 500_000, "without_ns": 2_000_000 });
    let unseen = "reads through a mapping: 3 files were mapped";
    json["prefetch"]["advised"] = true.into();
    json["prefetch"]["bytes_useful"] = 600_000.into();
    json["prefetch"]["bytes_wasted"] = 200_000.into();
    json["prefetch"]["waits"] = vec![waited].into();
    json["decided"] = vec![decided.clone()].into();
    json["not_seen"] = vec![unseen].into();
    fs::write(&summary, json.to_string()).unwrap();
    let page = place.text("run.html");
    presagio_ok(&["report", &summary, "-o", &page]);
    let texts = [
        decided.as_str(),
        unseen,
        "reader.c:7",
        "read_a_column",
        "Loading ahead hid 75 % of the time that reads of “data” wait",
    ];
    let charts = "activity,lanes,heat,sizes,latencies,sequentiality,loops,prefetch";
    in_a_browser_with(&page, &figures(&[&summary]), &place, charts, &texts);
}
