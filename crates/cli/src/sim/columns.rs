//! One row a run, as Parquet: for whoever goes on with a data frame.

use super::Done;

#[cfg(feature = "parquet")]
pub use written::parquet;

/// Without Parquet in the build there is none.
#[cfg(not(feature = "parquet"))]
pub fn parquet(_done: &[Done]) -> anyhow::Result<Vec<u8>> {
    Err(crate::failure::failure(
        "cannot write Parquet",
        "this presagio was built without it",
        "build it with `cargo build --release -p presagio-cli --features parquet`, or use --json",
    ))
}

#[cfg(feature = "parquet")]
mod written {
    use super::super::show::{busy_percent, gain, seconds};
    use super::Done;
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
    use parquet::errors::ParquetError;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;
    use presagio_sim::{LevelReport, Report};
    use std::sync::Arc;

    /// What is known of a run as a whole number.
    type Count = (&'static str, fn(&Report) -> u64);

    const COUNTS: [Count; 8] = [
        ("makespan_ns", |r| r.makespan.0),
        ("bytes", Report::bytes),
        ("requests", Report::requests),
        ("server_requests", |r| r.servers.requests),
        ("server_batches", |r| r.servers.batches),
        ("ionode_batches", |r| batches(r.ionodes.as_ref())),
        ("device_operations", |r| r.devices.operations.iter().sum()),
        ("events", |r| r.events),
    ];

    fn batches(level: Option<&LevelReport>) -> u64 {
        level.map_or(0, |level| level.batches)
    }

    /// The file, in memory: a row is small, and there are no millions of runs.
    pub fn parquet(done: &[Done]) -> anyhow::Result<Vec<u8>> {
        let names: Vec<&str> = match done.first() {
            Some(first) => first
                .run
                .varied
                .iter()
                .map(|(name, _)| name.as_str())
                .collect(),
            None => Vec::new(),
        };
        let schema = Arc::new(parse_message_type(&schema(&names))?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let mut out = Vec::new();
        let mut file = SerializedFileWriter::new(&mut out, schema, Arc::new(properties.build()))?;
        let mut group = file.next_row_group()?;
        for column in 0..names.len() {
            let text = |d: &Done| ByteArray::from(d.run.varied[column].1.as_str());
            write::<ByteArrayType>(&mut group, done.iter().map(text).collect())?;
        }
        let seed = |d: &Done| d.run.scenario.seed as i64;
        write::<Int64Type>(&mut group, done.iter().map(seed).collect())?;
        for (_, count) in COUNTS {
            let counts = done.iter().map(|d| count(&d.report) as i64);
            write::<Int64Type>(&mut group, counts.collect())?;
        }
        write::<DoubleType>(&mut group, done.iter().map(seconds).collect())?;
        write::<DoubleType>(&mut group, done.iter().map(busy_percent).collect())?;
        let gains = (0..done.len()).map(|at| gain(done, at).unwrap_or(0.0));
        write::<DoubleType>(&mut group, gains.collect())?;
        group.close()?;
        file.close()?;
        Ok(out)
    }

    fn schema(names: &[&str]) -> String {
        let varied = names.iter().map(|name| {
            let name = name.replace('.', "_");
            format!("required binary {name} (STRING);\n")
        });
        let varied: String = varied.collect();
        let counts = COUNTS
            .iter()
            .map(|(name, _)| format!("required int64 {name};\n"));
        let counts: String = counts.collect();
        // A sweep over seeds has a column of that name already.
        format!(
            "message runs {{\n{varied}required int64 run_seed;\n{counts}required double makespan_s;\n\
             required double device_busy_percent;\nrequired double gain_percent;\n}}"
        )
    }

    fn write<T: DataType>(
        group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
        values: Vec<T::T>,
    ) -> Result<(), ParquetError> {
        if let Some(mut column) = group.next_column()? {
            column.typed::<T>().write_batch(&values, None, None)?;
            column.close()?;
        }
        Ok(())
    }
}
