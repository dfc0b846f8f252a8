//! Whatever is in a trace: all parts of a report add up to the same totals, and no name becomes markup.

use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_report::doc::Document;
use presagio_report::{Input, Nameless, Options, collect, document, page, run};
use presagio_trace::native::{Reader, Writer};
use presagio_trace::{Frame, Process, Record};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

fn report(records: &[Record]) -> Document {
    let mut writer = Writer::new(Vec::new()).unwrap();
    records.iter().for_each(|r| writer.write(r).unwrap());
    writer.finish().unwrap();
    let bytes = writer.into_inner();
    let mut reader = Reader::new(&bytes[..], Path::new("t")).unwrap();
    let collected = collect(&mut reader, &Options::default()).unwrap();
    let input = Input {
        name: "t".into(),
        trace: Some(("t".into(), collected)),
        summary: None,
    };
    document(vec![run(input, &mut Nameless)])
}

fn event() -> impl Strategy<Value = Event> {
    let place = (0u64..1 << 40, 0u64..1 << 20, -3i64..1 << 20);
    let who = (0u32..200, 0u32..3, 0u64..90, 0u32..20);
    let when = (0u64..1_000_000_000, 0u64..300_000_000);
    (0u8..10, place, who, when).prop_map(
        |(action, (offset, len, result), (process, thread, file, context), (time, duration))| {
            let action = Action::from_number(action).unwrap();
            let moved = if action.is_transfer() {
                result.min(len as i64)
            } else {
                result.min(0)
            };
            Event {
                time: Nanos(time),
                duration: Nanos(duration),
                process,
                thread,
                file: FileId(file),
                action,
                layer: Layer::Posix,
                context: ContextId(context),
                offset,
                len,
                result: moved,
            }
        },
    )
}

fn sum(value: &Value) -> u64 {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap())
        .sum()
}

fn total(list: &Value, key: &str) -> u64 {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one[key].as_u64().unwrap()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_parts_add_up_to_the_totals(events in prop::collection::vec(event(), 1..400)) {
        let records: Vec<Record> = events.iter().map(|e| Record::Event(*e)).collect();
        let json = serde_json::to_value(report(&records)).unwrap();
        let run = &json["runs"][0];
        let totals = &run["totals"];
        let moved = |action| events.iter().filter(|e| e.action == action).map(Event::moved).sum::<u64>();
        let busy: u64 = events.iter().map(|e| e.duration.0).sum();
        let count = events.len() as u64;
        prop_assert_eq!(&totals["operations"], &Value::from(count));
        prop_assert_eq!(&totals["bytes_read"], &Value::from(moved(Action::Read)));
        prop_assert_eq!(&totals["bytes_written"], &Value::from(moved(Action::Write)));
        prop_assert_eq!(&totals["time_ns"], &Value::from(busy));
        let all = &run["timeline"]["all"];
        prop_assert_eq!(sum(&all["operations"]), count);
        prop_assert_eq!(sum(&all["read"]), moved(Action::Read));
        prop_assert_eq!(sum(&all["written"]), moved(Action::Write));
        let in_lanes = |key: &str| run["timeline"]["lanes"].as_array().unwrap().iter().map(|lane| sum(&lane["activity"][key])).sum::<u64>();
        prop_assert_eq!(in_lanes("read"), moved(Action::Read));
        prop_assert_eq!(in_lanes("written"), moved(Action::Write));
        prop_assert_eq!(sum(&all["read_ns"]) + sum(&all["write_ns"]) + sum(&all["other_ns"]), busy);
        prop_assert_eq!(total(&run["timeline"]["lanes"], "operations"), count);
        prop_assert_eq!(total(&run["timeline"]["lanes"], "time_ns"), busy);
        let left = |key: &str| run["files_left_out"][key].as_u64().unwrap();
        prop_assert_eq!(total(&run["files"], "operations") + left("operations"), count);
        prop_assert_eq!(total(&run["files"], "time_ns") + left("time_ns"), busy);
        prop_assert_eq!(total(&totals["actions"], "time_ns"), busy);
        prop_assert_eq!(total(&run["latencies"], "count"), count);
        prop_assert_eq!(total(&run["phases"]["phases"], "operations"), count);
        let without = run["prediction"]["operations_without"].as_u64().unwrap();
        prop_assert_eq!(run["prediction"]["all"]["operations"].as_u64().unwrap() + without, count);
    }

    #[test]
    fn no_name_leaves_the_data_block(name in prop::collection::vec(any::<u8>(), 0..60), markup in "[<>&\"'/a-z!\\-\\n]{0,40}") {
        let name = [&name[..], markup.as_bytes()].concat();
        let text = String::from_utf8_lossy(&name).into_owned();
        let frame = Frame { module: text.as_str().into(), offset: 1, symbol: Some(text.as_str().into()) };
        let records = [
            Record::File { id: FileId(1), name: name.into() },
            Record::Process(Process { id: 1, command: Some(text.clone()), host: Some(text), ..Process::default() }),
            Record::Context { id: ContextId(1), frames: [frame].into() },
            Record::Event(Event {
                time: Nanos(5), duration: Nanos(5), process: 1, thread: 0, file: FileId(1), action: Action::Read,
                layer: Layer::Posix, context: ContextId(1), offset: 0, len: 5, result: 5,
            }),
        ];
        let document = report(&records);
        let page = page(&document).unwrap();
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        let (data, rest) = data.split_once("</script>").unwrap();
        prop_assert!(!data.contains(['<', '>', '&', '\n']));
        prop_assert_eq!(rest.trim(), "</body>\n</html>");
        let inside: Value = serde_json::from_str(data).unwrap();
        prop_assert_eq!(inside, serde_json::to_value(&document).unwrap());
    }
}

#[test]
fn a_report_of_a_long_trace_has_a_bounded_page() {
    let records = |count: u64| -> Vec<Record> {
        let event = |n: u64| Event {
            time: Nanos(n * 1000 + n * 7919 % 500),
            duration: Nanos(100 + n * 31 % 700),
            process: (n % 8) as u32,
            thread: 0,
            file: FileId(n % 50),
            action: if n.is_multiple_of(3) {
                Action::Write
            } else {
                Action::Read
            },
            layer: Layer::Posix,
            context: ContextId::UNKNOWN,
            offset: n * 7919 % 100_000 * 512,
            len: 512 << (n % 6),
            result: 512 << (n % 6),
        };
        (0..count).map(|n| Record::Event(event(n))).collect()
    };
    // Bins, maps and lists are of bounded size: when all are full, a page has no more than this.
    let size = page(&report(&records(120_000))).unwrap().len();
    assert!(size < 8 << 20, "{size} bytes");
}
