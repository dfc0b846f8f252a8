//! Every number that a finding says is one of the figures that it names as its evidence, written as the page writes that figure.

use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_report::readable::{bytes, grouped, percent, span, times};
use presagio_report::{Input, Nameless, Options, Run, collect, document, run};
use presagio_trace::native::{Reader, Writer};
use presagio_trace::{Frame, Process, Record};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

fn run_of(name: &str, records: &[Record], summary: Option<Value>) -> Run {
    let mut writer = Writer::new(Vec::new()).unwrap();
    records.iter().for_each(|r| writer.write(r).unwrap());
    writer.finish().unwrap();
    let bytes = writer.into_inner();
    let mut reader = Reader::new(&bytes[..], Path::new("t")).unwrap();
    let collected = collect(&mut reader, &Options::default()).unwrap();
    let input = Input {
        name: name.into(),
        trace: Some(("t".into(), collected)),
        summary: summary.map(|value| ("s".into(), value)),
    };
    run(input, &mut Nameless)
}

fn named(processes: u32) -> Vec<Record> {
    let mut records = Vec::new();
    for id in 0..processes {
        records.push(Record::File {
            id: FileId(u64::from(id)),
            name: format!("/data/part-{id}.dat").as_bytes().into(),
        });
        records.push(Record::Process(Process {
            id,
            rank: Some(id),
            ..Process::default()
        }));
    }
    let frame = Frame {
        module: "/opt/app".into(),
        offset: 0x1001,
        symbol: Some("function_1".into()),
    };
    records.push(Record::Context {
        id: ContextId(1),
        frames: [frame].into(),
    });
    records
}

fn event(time: u64, process: u32, action: Action, offset: u64, len: u64) -> Event {
    Event {
        time: Nanos(time),
        duration: Nanos(2000),
        process,
        thread: 0,
        file: FileId(u64::from(process)),
        action,
        layer: Layer::Posix,
        context: ContextId(1),
        offset,
        len,
        result: len as i64,
    }
}

/// Four processes read a MiB each again and again, 4 KiB at a time, in bursts; the last one three times as much. One read in a
/// hundred is slow.
fn readers() -> Vec<Record> {
    let mut events = Vec::new();
    for process in 0..4 {
        let reads = if process == 3 { 120 } else { 40 };
        for burst in 0..12 {
            for n in 0..reads {
                let number = burst * reads + n;
                let begin = burst * 20_000_000 + n * 5000;
                let at = number % 256 * 4096;
                let mut read = event(begin, process, Action::Read, at, 4096);
                if number % 100 == 99 {
                    read.duration = Nanos(1_000_000);
                }
                events.push(read);
            }
        }
    }
    events.sort_by_key(|event| event.time);
    let events = events.into_iter().map(Record::Event);
    named(4).into_iter().chain(events).collect()
}

/// One process writes here and there, and most of its time goes to opens, which fail in a way that has no name here.
fn writer() -> Vec<Record> {
    let mut records = named(1);
    for n in 0..1200u64 {
        let begin = n * 50_000;
        let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        records.push(Record::Event(event(begin, 0, Action::Write, at, 64 << 10)));
        let open = event(begin + 10_000, 0, Action::Open, 0, 0);
        records.push(Record::Event(Event {
            duration: Nanos(9000),
            result: if n % 4 == 0 { -95 } else { 0 },
            ..open
        }));
    }
    records
}

/// One process reads on and on at the same distance: a model knows all of it soon. `slow` times as slowly.
fn strides(slow: u64) -> Vec<Record> {
    let mut records = named(1);
    for n in 0..3000u64 {
        let mut read = event(n * 10_000, 0, Action::Read, n * 65536, 16384);
        read.duration = Nanos(2000 * slow);
        records.push(Record::Event(read));
    }
    records
}

/// One process reads here and there, so that its model is given up after 8192 operations.
fn disorder() -> Vec<Record> {
    let mut records = named(1);
    for n in 0..9000u64 {
        let chance = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let chance = (chance ^ chance >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16;
        let (at, len) = (chance % (1 << 30), 512 + (chance >> 30) % 60_000);
        let read = event(n * 10_000, 0, Action::Read, at, len);
        records.push(Record::Event(read));
    }
    records
}

/// What a run says of itself.
fn summary() -> Value {
    json!({
        "elapsed_ns": 40_000_000, "totals": {},
        "not_seen": ["reads through a mapping"],
        "prefetch": {
            "advised": true, "bytes_useful": 27_000_000, "bytes_wasted": 21_000_000,
            "waits": [{ "name": "/data/part-0.dat", "method": "sieving", "with_ns": 430_000, "without_ns": 2_100_000 }],
        },
    })
}

/// A figure as the page writes it, by the name that it has.
fn written(path: &str, value: &Value) -> String {
    let is_number = |part: &&str| part.bytes().all(|b| b.is_ascii_digit());
    let key = path.split('.').rfind(|part| !is_number(part)).unwrap();
    let (whole, number) = (value.as_u64().unwrap_or(0), value.as_f64().unwrap());
    let is_of =
        |list: &str| path.contains(list) && ["median", "p90", "p99", "max", "mean"].contains(&key);
    match key {
        key if key.ends_with("_ns") || is_of("latencies.") => span(whole),
        key if key.starts_with("bytes") || key == "reach" => bytes(whole),
        _ if is_of("sizes.") || path.ends_with("way.sizes.0.0") => bytes(whole),
        key if key.ends_with("_times") => times(number),
        key if key.contains("share") => percent(number),
        "confidence" | "in_phases" | "hit_ratio" | "differs" => percent(number),
        _ => grouped(whole),
    }
}

/// A text without a figure, wherever that stands as a whole: `4` is no part of `4 %`, of `0.4`, or of `42`.
fn without(text: &str, figure: &str) -> String {
    const UNITS: [&str; 12] = [
        " %", " ns", " µs", " ms", " s ", " s,", " min", " h", " byte", " KiB", " MiB", " GiB",
    ];
    let (mut out, mut rest) = (String::new(), text);
    let is_of_a_number = |c: char| c.is_ascii_digit() || c == '\u{202f}';
    while let Some(at) = rest.find(figure) {
        let (before, after) = (&rest[..at], &rest[at + figure.len()..]);
        let goes_on = |text: &str| {
            let digits = text.strip_prefix('.').unwrap_or(text);
            digits.starts_with(is_of_a_number)
        };
        let is_bare = figure.ends_with(|c: char| c.is_ascii_digit());
        let has_unit = is_bare && UNITS.iter().any(|unit| after.starts_with(unit));
        let begins = !before.ends_with(|c| is_of_a_number(c) || c == '.');
        out.push_str(before);
        if !begins || goes_on(after) || has_unit {
            out.push_str(figure);
        }
        rest = after;
    }
    out + rest
}

/// A text without what stands in quotation marks.
fn without_names(text: &str) -> String {
    let parts = text.split('“').enumerate();
    let outside = parts.map(|(n, part)| match n {
        0 => part,
        _ => part.split_once('”').map_or("", |(_, after)| after),
    });
    outside.collect()
}

/// Names of processes and places, as findings have them.
fn labels(run: &Value) -> Vec<String> {
    let lists = [
        ("/sites", "label"),
        ("/timeline/lanes", "label"),
        ("/prediction/processes", "process"),
    ];
    let all = lists.iter().flat_map(|(list, key)| {
        let list = run.pointer(list).and_then(Value::as_array);
        list.into_iter().flatten().map(|one| one[*key].as_str())
    });
    all.flatten().map(str::to_owned).collect()
}

/// What is left of a finding without its names and figures.
fn rest(finding: &Value, of: &Value, labels: &[String]) -> String {
    let mut text = without_names(finding["text"].as_str().unwrap());
    for label in labels {
        text = text.replace(label.as_str(), "");
    }
    let mut figures: Vec<String> = Vec::new();
    for path in finding["evidence"]["figures"].as_array().unwrap() {
        let path = path.as_str().unwrap();
        let value = of.pointer(&format!("/{}", path.replace('.', "/")));
        let value = value.unwrap_or_else(|| panic!("{path} is not in the document"));
        if value.is_number() {
            figures.push(written(path, value));
        }
    }
    // From where on requests are small is no figure, and is what the share is called.
    figures.extend((finding["id"] == "small-requests").then(|| "32 KiB".to_owned()));
    figures.sort_by_key(|figure| std::cmp::Reverse(figure.len()));
    figures
        .iter()
        .fold(text, |text, figure| without(&text, figure))
}

#[test]
fn every_number_of_a_finding_is_one_of_its_figures() {
    let runs = vec![
        run_of("plain", &strides(1), None),
        run_of("slow", &strides(2), Some(summary())),
        run_of("readers", &readers(), None),
        run_of("writer", &writer(), None),
        run_of("disorder", &disorder(), None),
    ];
    let document = serde_json::to_value(document(runs)).unwrap();
    let mut seen = BTreeSet::new();
    let mut holds = |finding: &Value, of: &Value, labels: &[String]| {
        let left = rest(finding, of, labels);
        let has_number = left.contains(|c: char| c.is_ascii_digit());
        assert!(!has_number, "{left:?} of {finding:#}");
        seen.insert(finding["id"].as_str().unwrap().to_owned());
    };
    for run in document["runs"].as_array().unwrap() {
        for finding in run["findings"].as_array().unwrap() {
            holds(finding, run, &labels(run));
        }
    }
    for finding in document["comparison"]["findings"].as_array().unwrap() {
        holds(finding, &document, &[]);
    }
    let wanted = [
        "difference",
        "failures",
        "foreseen",
        "hidden",
        "hot-spot",
        "imbalance",
        "io-share",
        "not-moving",
        "not-seen",
        "prefetch",
        "read-again",
        "rhythm",
        "scattered",
        "sequential",
        "slow-tail",
        "small-requests",
    ];
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(seen, wanted, "each kind of finding is tried");
}

fn found(run: &Run, id: &str) -> Value {
    let findings = serde_json::to_value(&run.findings).unwrap();
    let findings = findings.as_array().unwrap();
    findings.iter().find(|one| one["id"] == id).unwrap().clone()
}

#[test]
fn what_nobody_judged_was_not_foreseen() {
    let run = run_of("disorder", &disorder(), None);
    let prediction = run.prediction.as_ref().unwrap();
    assert_eq!(prediction.all.operations, 8192);
    assert_eq!(prediction.operations_without, 9000 - 8192);
    assert_eq!(
        prediction.processes[0].perfect_after, None,
        "it was given up"
    );
    let foreseen = found(&run, "foreseen");
    let text = foreseen["text"].as_str().unwrap();
    assert!(
        text.contains("of 8\u{202f}192 operations were foreseen exactly"),
        "{text}"
    );
    assert!(text.contains("(808 more were not judged)"), "{text}");
}

#[test]
fn where_the_program_hardly_waits_no_place_of_waiting_matters_most() {
    let often = run_of("often", &strides(1), None);
    assert_eq!(found(&often, "hot-spot")["weight"], "high");
    let mut rarely = strides(1);
    for record in &mut rarely {
        let Record::Event(event) = record else {
            continue;
        };
        event.time = Nanos(100 * event.time.0);
    }
    let rarely = run_of("rarely", &rarely, None);
    assert!(rarely.totals.time_share < 0.05);
    assert_eq!(found(&rarely, "hot-spot")["weight"], "medium");
}

#[test]
fn a_figure_is_found_only_where_it_stands_as_a_whole() {
    assert_eq!(
        without("4 of 42 or 4 %, 0.4, 4.5", "4"),
        " of 42 or 4 %, 0.4, 4.5"
    );
    assert_eq!(without("took 2.5 s.", "2.5 s"), "took .");
    assert_eq!(without_names("of “part-1”, 7 “x 3” more"), "of , 7  more");
}
