//! Traces as Parquet, for data frames: one row an event, with the columns of [`crate::csv`].
//!
//! Other than there, `stack`, `host`, `command` and `start_ns` are in every row, which costs little where a column
//! has a dictionary. What is not known is null. A row with the action `gap` has the time of the event before it.

use crate::csv::GAP;
use crate::names::Known;
use crate::text;
use crate::{Process, Record, Sink};
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use presagio_core::{Action, Event, Layer};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

const SCHEMA: &str = "message trace {
    required int64 time_ns (INTEGER(64,false));
    required int64 duration_ns (INTEGER(64,false));
    required int32 process (INTEGER(32,false));
    optional int32 rank (INTEGER(32,false));
    optional int32 pid (INTEGER(32,false));
    required int32 thread (INTEGER(32,false));
    required binary layer (STRING);
    required binary action (STRING);
    optional binary file (STRING);
    required int64 offset (INTEGER(64,false));
    required int64 length (INTEGER(64,false));
    required int64 result;
    required int64 file_id (INTEGER(64,false));
    required int32 context (INTEGER(32,false));
    optional binary stack (STRING);
    optional binary host (STRING);
    optional binary command (STRING);
    optional int64 start_ns (INTEGER(64,false));
}";

/// So many rows are collected before they are written: some 40 MB.
const GROUP_ROWS: usize = 1 << 17;

/// Writes a trace as Parquet.
pub struct Writer<W: Write + Send> {
    out: SerializedFileWriter<W>,
    group_rows: usize,
    known: Known,
    texts: Texts,
    rows: Rows,
    last_time: u64,
}

impl<W: Write + Send> Writer<W> {
    /// Writes to `out`, which should have a buffer.
    pub fn new(out: W) -> io::Result<Writer<W>> {
        Writer::with_groups(out, GROUP_ROWS)
    }

    fn with_groups(out: W, group_rows: usize) -> io::Result<Writer<W>> {
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
        let mut properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        for growing in ["time_ns", "offset"] {
            let column = ColumnPath::from(growing);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        let properties = Arc::new(properties.build());
        Ok(Writer {
            out: SerializedFileWriter::new(out, schema, properties).map_err(failed)?,
            group_rows,
            known: Known::default(),
            texts: Texts::new(),
            rows: Rows::default(),
            last_time: 0,
        })
    }

    fn define(&mut self, record: &Record) -> io::Result<()> {
        self.known.learn(record).map_err(io::Error::other)?;
        match record {
            Record::File { id, name } => {
                let text = text::name_to_text(name).into_bytes();
                self.texts.files.insert(id.0, text.into());
            }
            Record::Context { id, frames } => {
                let text = text::stack_to_text(frames).into_bytes();
                self.texts.stacks.insert(id.0, text.into());
            }
            Record::Process(process) => self.texts.define(process),
            Record::Gap { .. } | Record::Event(_) => {}
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.last_time = event.time.0;
        let process = self.known.processes.get(&event.process);
        self.rows.add(event, process, &self.texts);
        self.write_full_group()
    }

    fn gap(&mut self, process: u32, lost: u64) -> io::Result<()> {
        let known = self.known.processes.get(&process);
        self.rows
            .add_gap(self.last_time, process, lost, known, &self.texts);
        self.write_full_group()
    }

    fn write_full_group(&mut self) -> io::Result<()> {
        match self.rows.time_ns.values.len() >= self.group_rows {
            true => self.write_group(),
            false => Ok(()),
        }
    }

    fn write_group(&mut self) -> io::Result<()> {
        let mut group = self.out.next_row_group().map_err(failed)?;
        self.rows.write(&mut group).map_err(failed)?;
        group.close().map(drop).map_err(failed)
    }
}

impl<W: Write + Send> Sink for Writer<W> {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Event(event) => self.event(event),
            Record::Gap { process, lost } => self.gap(*process, *lost),
            definition => self.define(definition),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        if !self.rows.time_ns.values.is_empty() {
            self.write_group()?;
        }
        self.out.finish().map_err(failed)?;
        self.out.inner_mut().flush()
    }
}

/// What the system said is what people should read.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => *cause,
            Err(cause) => io::Error::other(cause),
        },
        other => io::Error::other(other),
    }
}

/// Texts as the rows share them.
struct Texts {
    files: HashMap<u64, ByteArray>,
    stacks: HashMap<u32, ByteArray>,
    hosts: HashMap<u32, ByteArray>,
    commands: HashMap<u32, ByteArray>,
    actions: [ByteArray; Action::ALL.len()],
    layers: [ByteArray; Layer::ALL.len()],
    gap: ByteArray,
}

impl Texts {
    fn new() -> Texts {
        Texts {
            files: HashMap::new(),
            stacks: HashMap::new(),
            hosts: HashMap::new(),
            commands: HashMap::new(),
            actions: Action::ALL.map(|action| action.name().into()),
            layers: Layer::ALL.map(|layer| layer.name().into()),
            gap: GAP.into(),
        }
    }

    fn define(&mut self, process: &Process) {
        let set = |texts: &mut HashMap<u32, ByteArray>, text: &Option<String>| match text {
            Some(text) => drop(texts.insert(process.id, text.as_str().into())),
            None => drop(texts.remove(&process.id)),
        };
        set(&mut self.hosts, &process.host);
        set(&mut self.commands, &process.command);
    }
}

/// The values of a column that wait to be written; of a column with nulls, also where these are.
struct Column<T> {
    values: Vec<T>,
    present: Vec<i16>,
}

impl<T> Default for Column<T> {
    fn default() -> Column<T> {
        Column {
            values: Vec::new(),
            present: Vec::new(),
        }
    }
}

impl<T> Column<T> {
    fn push(&mut self, value: T) {
        self.values.push(value);
    }

    /// For a column with nulls.
    fn push_if_any(&mut self, value: Option<T>) {
        self.present.push(value.is_some().into());
        self.values.extend(value);
    }

    fn write<D: DataType<T = T>>(
        &mut self,
        group: &mut SerializedRowGroupWriter<impl Write + Send>,
    ) -> Result<(), ParquetError> {
        let column = group.next_column()?;
        let mut column = column.ok_or_else(|| ParquetError::General("too many columns".into()))?;
        let present = (!self.present.is_empty()).then_some(&self.present[..]);
        column
            .typed::<D>()
            .write_batch(&self.values, present, None)?;
        self.values.clear();
        self.present.clear();
        column.close()
    }
}

/// The rows that wait to be written, as columns. Parquet has no unsigned numbers: these are stored as the signed
/// ones with the same bits, and the schema says so.
#[derive(Default)]
struct Rows {
    time_ns: Column<i64>,
    duration_ns: Column<i64>,
    process: Column<i32>,
    rank: Column<i32>,
    pid: Column<i32>,
    thread: Column<i32>,
    layer: Column<ByteArray>,
    action: Column<ByteArray>,
    file: Column<ByteArray>,
    offset: Column<i64>,
    length: Column<i64>,
    result: Column<i64>,
    file_id: Column<i64>,
    context: Column<i32>,
    stack: Column<ByteArray>,
    host: Column<ByteArray>,
    command: Column<ByteArray>,
    start_ns: Column<i64>,
}

impl Rows {
    fn add(&mut self, event: &Event, process: Option<&Process>, texts: &Texts) {
        self.time_ns.push(event.time.0 as i64);
        self.duration_ns.push(event.duration.0 as i64);
        self.add_process(event.process, process, texts);
        self.thread.push(event.thread as i32);
        self.layer.push(texts.layers[event.layer as usize].clone());
        self.action
            .push(texts.actions[event.action as usize].clone());
        self.file
            .push_if_any(texts.files.get(&event.file.0).cloned());
        self.offset.push(event.offset as i64);
        self.length.push(event.len as i64);
        self.result.push(event.result);
        self.file_id.push(event.file.0 as i64);
        self.context.push(event.context.0 as i32);
        self.stack
            .push_if_any(texts.stacks.get(&event.context.0).cloned());
    }

    fn add_gap(&mut self, time: u64, id: u32, lost: u64, process: Option<&Process>, texts: &Texts) {
        self.time_ns.push(time as i64);
        self.add_process(id, process, texts);
        self.length.push(lost as i64);
        self.layer.push(texts.layers[Layer::Posix as usize].clone());
        self.action.push(texts.gap.clone());
        for zero in [
            &mut self.duration_ns,
            &mut self.offset,
            &mut self.result,
            &mut self.file_id,
        ] {
            zero.push(0);
        }
        for zero in [&mut self.thread, &mut self.context] {
            zero.push(0);
        }
        for none in [&mut self.file, &mut self.stack] {
            none.push_if_any(None);
        }
    }

    fn add_process(&mut self, id: u32, process: Option<&Process>, texts: &Texts) {
        self.process.push(id as i32);
        let number = |number: Option<u32>| number.map(|number| number as i32);
        self.rank.push_if_any(number(process.and_then(|p| p.rank)));
        self.pid.push_if_any(number(process.and_then(|p| p.pid)));
        self.host.push_if_any(texts.hosts.get(&id).cloned());
        self.command.push_if_any(texts.commands.get(&id).cloned());
        let start = process.and_then(|p| p.start).map(|start| start.0 as i64);
        self.start_ns.push_if_any(start);
    }

    /// Writes all columns, in the order of the schema.
    fn write(
        &mut self,
        group: &mut SerializedRowGroupWriter<impl Write + Send>,
    ) -> Result<(), ParquetError> {
        self.time_ns.write::<Int64Type>(group)?;
        self.duration_ns.write::<Int64Type>(group)?;
        self.process.write::<Int32Type>(group)?;
        self.rank.write::<Int32Type>(group)?;
        self.pid.write::<Int32Type>(group)?;
        self.thread.write::<Int32Type>(group)?;
        self.layer.write::<ByteArrayType>(group)?;
        self.action.write::<ByteArrayType>(group)?;
        self.file.write::<ByteArrayType>(group)?;
        self.offset.write::<Int64Type>(group)?;
        self.length.write::<Int64Type>(group)?;
        self.result.write::<Int64Type>(group)?;
        self.file_id.write::<Int64Type>(group)?;
        self.context.write::<Int32Type>(group)?;
        self.stack.write::<ByteArrayType>(group)?;
        self.host.write::<ByteArrayType>(group)?;
        self.command.write::<ByteArrayType>(group)?;
        self.start_ns.write::<Int64Type>(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::csv::COLUMNS;
    use crate::strategies::event;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use presagio_core::{ContextId, FileId, Nanos};
    use std::fs::File;

    fn records() -> Vec<Record> {
        let frames = [Frame {
            module: "a.out".into(),
            offset: 16,
            symbol: Some("main".into()),
        }];
        vec![
            Record::File {
                id: FileId(3),
                name: Arc::from(&b"a\xFF"[..]),
            },
            Record::Process(Process {
                id: 1,
                rank: Some(5),
                host: Some("node".to_owned()),
                ..Process::default()
            }),
            Record::Context {
                id: ContextId(9),
                frames: frames.into(),
            },
            Record::Event(Event {
                context: ContextId(9),
                ..event()
            }),
            Record::Event(Event {
                file: FileId(4),
                offset: u64::MAX,
                result: -2,
                ..event()
            }),
            Record::Gap {
                process: 1,
                lost: 8,
            },
        ]
    }

    fn written(records: &[Record], group_rows: usize) -> SerializedFileReader<File> {
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::with_groups(&file, group_rows).unwrap();
        records.iter().for_each(|r| writer.write(r).unwrap());
        writer.finish().unwrap();
        drop(writer);
        SerializedFileReader::new(file).unwrap()
    }

    fn field(reader: &SerializedFileReader<File>, row: usize, name: &str) -> Field {
        let row = reader
            .get_row_iter(None)
            .unwrap()
            .nth(row)
            .unwrap()
            .unwrap();
        let mut columns = row.get_column_iter();
        columns
            .find(|(column, _)| *column == name)
            .unwrap()
            .1
            .clone()
    }

    #[test]
    fn rows_have_what_the_events_have() {
        let reader = written(&records(), 100);
        let get = |row, name| field(&reader, row, name);
        assert_eq!(get(0, "time_ns"), Field::ULong(event().time.0));
        assert_eq!(get(0, "file"), Field::Str("a\\xFF".to_owned()));
        assert_eq!(get(0, "stack"), Field::Str("a.out+0x10(main)".to_owned()));
        assert_eq!(get(0, "action"), Field::Str("write".to_owned()));
        assert_eq!(
            (get(0, "rank"), get(0, "pid")),
            (Field::UInt(5), Field::Null)
        );
        assert_eq!(
            (get(1, "file"), get(1, "file_id")),
            (Field::Null, Field::ULong(4))
        );
        assert_eq!(
            (get(1, "offset"), get(1, "result")),
            (Field::ULong(u64::MAX), Field::Long(-2))
        );
        assert_eq!(
            (get(1, "stack"), get(1, "host")),
            (Field::Null, Field::Str("node".to_owned()))
        );
        assert_eq!(
            (get(2, "action"), get(2, "length")),
            (Field::Str("gap".to_owned()), Field::ULong(8))
        );
    }

    #[test]
    fn the_columns_are_those_of_the_table() {
        let reader = written(&records(), 100);
        let schema = reader.metadata().file_metadata().schema_descr();
        let names: Vec<&str> = schema.columns().iter().map(|c| c.name()).collect();
        assert_eq!(names, COLUMNS);
    }

    #[test]
    fn rows_go_out_in_groups_so_that_memory_is_bounded() {
        let at = |i| {
            Record::Event(Event {
                time: Nanos(i),
                ..event()
            })
        };
        let records: Vec<Record> = (0..25).map(at).collect();
        let reader = written(&records, 10);
        assert_eq!(reader.num_row_groups(), 3);
        assert_eq!(field(&reader, 24, "time_ns"), Field::ULong(24));
        assert_eq!(written(&[], 10).metadata().file_metadata().num_rows(), 0);
    }

    #[test]
    fn a_full_disk_is_reported() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut writer = Writer::new(full).unwrap();
        writer.write(&Record::Event(event())).unwrap();
        let error = writer.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    }
}
