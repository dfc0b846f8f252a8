//! Traces as they go out: complete under their name, or not there at all.
//!
//! A new file has no name while it is written, so that nothing is left of it when anything goes wrong, Ctrl-C and
//! power included. Where a file system cannot do that, it has a temporary name that an error removes.

use crate::failure::failure;
use clap::ValueEnum;
use presagio_trace::{Record, Sink, agios, csv, native};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

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

/// A place for a file.
enum Place {
    /// A pipe, a terminal, a device: whatever is written is there.
    Stream(File),
    /// A file without a name, and the name that it gets.
    Nameless(File, PathBuf, bool),
    /// A file with a temporary name, and the name that it gets.
    Temporary(File, TempPath, PathBuf, bool),
}

impl Place {
    fn open(path: &Path, force: bool) -> io::Result<Place> {
        if path == Path::new("-") {
            let stdout = io::stdout().as_fd().try_clone_to_owned()?;
            return Ok(Place::Stream(stdout.into()));
        }
        // A link stays one: what it leads to is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        match path.metadata() {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                let stream = OpenOptions::new().write(true).open(&path)?;
                return Ok(Place::Stream(stream));
            }
            Ok(_) if !force => return Err(already_there()),
            _ => {}
        }
        Place::in_directory(directory_of(&path), &path, force)
    }

    fn in_directory(directory: &Path, path: &Path, force: bool) -> io::Result<Place> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => return Ok(Place::Nameless(file.into(), path.to_owned(), force)),
            // What file systems say that know no nameless files.
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR) => {}
            Err(error) => return Err(error.into()),
        }
        let (file, name) = temporary(directory)?.into_parts();
        Ok(Place::Temporary(file, name, path.to_owned(), force))
    }

    fn file(&self) -> &File {
        match self {
            Place::Stream(file) | Place::Nameless(file, ..) | Place::Temporary(file, ..) => file,
        }
    }

    /// Gives the file its name. Its size, if it is a file.
    fn keep(self) -> io::Result<Option<u64>> {
        let (file, temporary, path, force) = match self {
            Place::Stream(_) => return Ok(None),
            Place::Nameless(file, path, false) => {
                link(&file, &path)?;
                return file.metadata().map(|metadata| Some(metadata.len()));
            }
            Place::Nameless(file, path, true) => {
                // No link replaces a file, so it gets another name first.
                let name = temporary(directory_of(&path))?.into_temp_path();
                std::fs::remove_file(&name)?;
                link(&file, &name)?;
                (file, name, path, true)
            }
            Place::Temporary(file, name, path, force) => (file, name, path, force),
        };
        match force {
            true => temporary.persist(&path),
            false => temporary.persist_noclobber(&path),
        }?;
        file.metadata().map(|metadata| Some(metadata.len()))
    }
}

fn already_there() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it is already there")
}

/// A new file that may be read by whom the umask allows, as files that programs write usually are.
fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(".presagio-");
    let everybody = Permissions::from_mode(0o666);
    builder.permissions(everybody).tempfile_in(directory)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Gives a name to a file that has none; an error if the name is taken.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    let linked = rustix::fs::linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW);
    linked.map_err(|error| match io::Error::from(error) {
        taken if taken.kind() == io::ErrorKind::AlreadyExists => already_there(),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn names_ask_for_formats() {
        let of = |name| Format::of(Path::new(name));
        assert_eq!(of("a/b.ptrace"), Some(Format::Native));
        assert_eq!(of("b.csv"), Some(Format::Csv));
        assert_eq!(of("b.parquet"), Some(Format::Parquet));
        assert_eq!(of("b.agios"), Some(Format::Agios));
        assert_eq!([of("csv"), of("b.txt")], [None, None]);
    }

    /// All ways to get a name, also that of file systems which know no nameless files.
    #[test]
    fn a_file_gets_its_name_when_it_is_complete_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let named = |force| {
            let (file, name) = temporary(dir.path()).unwrap().into_parts();
            Place::Temporary(file, name, path.clone(), force)
        };
        let nameless = |force| Place::open(&path, force).unwrap();
        let makers: [&dyn Fn(bool) -> Place; 2] = [&nameless, &named];
        for make in makers {
            let place = make(false);
            place.file().write_all(b"abc").unwrap();
            assert!(!path.exists());
            let late = make(false);
            assert_eq!(place.keep().unwrap(), Some(3));
            let taken = late.keep().unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
            let instead = make(true);
            instead.file().write_all(b"instead").unwrap();
            drop(make(true));
            assert_eq!(std::fs::read(&path).unwrap(), b"abc");
            instead.keep().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"instead");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
