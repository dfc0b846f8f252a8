//! Traces as they come in: opened, watched while they are read, explained where they cannot be.

use crate::failure::failure;
use crate::progress::progress_bytes;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::ProgressBar;
use presagio_page::readable::without_controls;
use presagio_trace::{Format, OpenOptions, Place, Reason, Record, Source, TraceError, open_with};
use std::io;
use std::path::{Path, PathBuf};

/// How traces are opened.
#[derive(clap::Args)]
pub struct Reading {
    /// The format that is read [default: what the content tells]
    #[arg(long, value_name = "FORMAT", value_parser = format_names())]
    from: Option<Format>,
    /// Go on behind damaged parts of a native trace instead of giving up
    #[arg(long)]
    salvage: bool,
}

/// The formats' names, which help and completions then know too.
fn format_names() -> impl TypedValueParser<Value = Format> {
    let unknown = "no such format";
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .try_map(move |name| Format::from_name(&name).ok_or(unknown))
}

impl Reading {
    /// Opens the trace at `path`, or on the standard input for `-`, and shows on `bar` how far it is read.
    pub fn open(&self, path: &Path, bar: &ProgressBar) -> anyhow::Result<Watched> {
        let options = OpenOptions {
            format: self.from,
            salvage: self.salvage,
        };
        let source = open_with(path, options).map_err(|error| self.explain(error))?;
        Ok(Watched {
            source,
            begin: bar.position(),
            bar: bar.clone(),
            records: 0,
        })
    }

    /// What was wrong with a trace, and what to do about it.
    pub fn explain(&self, error: TraceError) -> anyhow::Error {
        let path = error.path.display();
        match (&error.reason, error.place) {
            (Reason::Io(cause), _) => failure(path, cause, advice(cause)),
            (Reason::Malformed(_), Place::Byte(at)) if at > 0 && !self.salvage => {
                let advice = "--salvage keeps what is behind the damage of a native trace";
                anyhow::anyhow!("{error}; {advice}")
            }
            (Reason::Malformed(_), Place::Line(_)) if self.from.is_none() => {
                let advice = "correct it, or name the format with --from if this is another";
                anyhow::anyhow!("{error}; {advice}")
            }
            _ => error.into(),
        }
    }

    /// Says on stderr what one should know about a trace that was read to its end. Whether all of it is there.
    pub fn warn(&self, path: &Path, source: &(impl Source + ?Sized)) -> bool {
        // Names of files come from anybody.
        let say = |text: String| eprintln!("presagio: {}", without_controls(&text));
        let warnings = source.warnings();
        for warning in &warnings {
            say(format!("{}: {warning}", path.display()));
        }
        let cut = source.cut_short();
        if let Some(why) = cut {
            say(why.to_string());
        }
        // Who salvages is warned of what was left out.
        cut.is_none() && (!self.salvage || warnings.is_empty())
    }
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "check the name",
        io::ErrorKind::IsADirectory => "name a file",
        io::ErrorKind::PermissionDenied => "ask its owner for access",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or name another directory with TMPDIR"
        }
        _ => "check the storage",
    }
}

/// A progress bar for these files.
pub fn bar_for(paths: &[PathBuf]) -> ProgressBar {
    let sizes: Option<Vec<u64>> = paths.iter().map(|path| size_of(path)).collect();
    progress_bytes(sizes.map(|sizes| sizes.iter().sum()))
}

/// The size of a file, unless it is none.
pub fn size_of(path: &Path) -> Option<u64> {
    let metadata = path.metadata().ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// A trace whose progress is shown.
pub struct Watched {
    source: Box<dyn Source + Send>,
    bar: ProgressBar,
    /// Where the bar stood when this trace began.
    begin: u64,
    records: u64,
}

/// So many records go by between two looks at the bar.
const RECORDS_UNSEEN: u64 = 4096;

impl Iterator for Watched {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.source.next();
        self.records += 1;
        if next.is_none() || self.records.is_multiple_of(RECORDS_UNSEEN) {
            self.bar.set_position(self.begin + self.source.progress().0);
        }
        next
    }
}

impl Source for Watched {
    fn behind(&self) -> Option<&dyn Source> {
        Some(&*self.source)
    }
}
