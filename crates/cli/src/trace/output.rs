//! Traces as they go out: complete under their name, or not there at all (see [`crate::whole`]).

use crate::failure::failure;
use crate::whole::Place;
use clap::ValueEnum;
use presagio_trace::{Record, Sink, agios, csv, native};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// The formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Our own, .ptrace: small, fast, everything is in it
    Native,
    /// Comma-separated values, .csv: everything is in it
    Csv,
    /// Parquet, .parquet: for data frames; presagio does not read it
    Parquet,
    /// AGIOS's, .agios: reads and writes only, for a scheduler's foresight
    Agios,
}

impl Format {
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The format that a file's name asks for.
    fn of(path: &Path) -> Option<Format> {
        match path.extension()?.to_str()? {
            "ptrace" => Some(Format::Native),
            "csv" => Some(Format::Csv),
            "parquet" => Some(Format::Parquet),
            "agios" => Some(Format::Agios),
            _ => None,
        }
    }
}

/// Where a trace goes to, and how.
#[derive(clap::Args)]
pub struct Writing {
    /// The format that is written [default: what the name's ending tells]
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Format>,
    /// Replace the output file if it exists
    #[arg(long)]
    force: bool,
}

impl Writing {
    /// In the format that the name tells, and replacing nothing.
    pub fn plain() -> Writing {
        Writing {
            to: None,
            force: false,
        }
    }

    /// Begins a trace at `path`, or on the standard output for `-`.
    pub fn create(&self, path: &Path) -> anyhow::Result<Output> {
        let format = self.to.or_else(|| Format::of(path));
        let Some(format) = format else {
            let what = format!("cannot tell which format {} is to have", path.display());
            let cause = "its name ends neither in .ptrace, .csv, .parquet nor .agios";
            return Err(failure(what, cause, "name the format with --to"));
        };
        let explain = |cause| cannot_write(path, &cause);
        let place = Place::open(path, self.force).map_err(explain)?;
        let sink = place.file().try_clone().map_err(explain)?;
        let sink = sink_for(format, sink).map_err(explain)?;
        Ok(Output {
            path: path.to_owned(),
            format,
            place,
            sink,
        })
    }
}

fn cannot_write(path: &Path, cause: &io::Error) -> anyhow::Error {
    let advice = match cause.kind() {
        io::ErrorKind::AlreadyExists => "choose another name, or replace it with --force",
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "create the directory first",
        io::ErrorKind::IsADirectory => "name a file",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a directory that you may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or choose another place"
        }
        io::ErrorKind::Unsupported if cfg!(not(feature = "parquet")) => {
            "build it with `cargo build --release -p presagio-cli --features parquet`, or write .csv"
        }
        // The cause has to stay one that can be recognised: who left is no error.
        io::ErrorKind::BrokenPipe => return io::Error::from(cause.kind()).into(),
        _ => "check the storage, or choose another place",
    };
    failure(format!("cannot write {}", path.display()), cause, advice)
}

/// A trace that is being written.
pub struct Output {
    path: PathBuf,
    pub format: Format,
    place: Place,
    sink: Box<dyn Sink>,
}

impl Output {
    pub fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        let written = self.sink.write(record);
        written.map_err(|cause| cannot_write(&self.path, &cause))
    }

    /// Completes the trace and gives it its name. Its size, if it is a file.
    pub fn finish(mut self) -> anyhow::Result<Option<u64>> {
        let explain = |cause| cannot_write(&self.path, &cause);
        self.sink.finish().map_err(explain)?;
        self.place.keep().map_err(explain)
    }

    /// Whether the trace goes to stdout, which then is not for us to talk on.
    pub fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }
}

fn sink_for(format: Format, out: File) -> io::Result<Box<dyn Sink>> {
    const BUFFER_BYTES: usize = 128 << 10;
    let buffered = |out| BufWriter::with_capacity(BUFFER_BYTES, out);
    Ok(match format {
        Format::Native => Box::new(native::Writer::new(out)?),
        Format::Csv => Box::new(csv::Writer::new(buffered(out))?),
        Format::Agios => Box::new(agios::Writer::new(buffered(out))),
        Format::Parquet => parquet(buffered(out))?,
    })
}

#[cfg(feature = "parquet")]
fn parquet(out: BufWriter<File>) -> io::Result<Box<dyn Sink>> {
    Ok(Box::new(presagio_trace::parquet::Writer::new(out)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: BufWriter<File>) -> io::Result<Box<dyn Sink>> {
    let problem = "this presagio was built without Parquet";
    Err(io::Error::new(io::ErrorKind::Unsupported, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ask_for_formats() {
        let of = |name| Format::of(Path::new(name));
        assert_eq!(of("a/b.ptrace"), Some(Format::Native));
        assert_eq!(of("b.csv"), Some(Format::Csv));
        assert_eq!(of("b.parquet"), Some(Format::Parquet));
        assert_eq!(of("b.agios"), Some(Format::Agios));
        assert_eq!([of("csv"), of("b.txt")], [None, None]);
    }
}
