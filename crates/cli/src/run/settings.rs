//! What a person can ask of a manager, for `presagio run` and `presagio advisor` alike.

use super::supervise::say;
use crate::failure::failure;
use presagio_advise::config::Config;
use presagio_advise::manager::{Configured, MakeMind, Nothing, memory_left};
use presagio_advise::strategy::{Adaptive, Options as Choices, Tapes};
use presagio_arena::PathFilter;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How to watch, and what to do about it.
#[derive(clap::Args, Clone, Debug)]
pub struct Settings {
    /// Record what is done; `presagio trace` and `presagio predict` read it. Programs then wait for a manager that
    /// cannot keep up, instead of dropping records. A trace that is there is replaced
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Hints by hand, in MERCURY's JSON; files that it does not name are treated as without it [default: what the
    /// variable MERCURY_CONFIG names]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Watch and predict only, and change nothing
    #[arg(long, conflicts_with = "advise")]
    observe: bool,
    /// Load ahead what will be read, where that pays [this is the default]
    #[arg(long)]
    advise: bool,
    /// Follow only files whose full path matches; `*` stands for slashes too [default: all but the system's]
    #[arg(long, value_name = "GLOB")]
    include: Vec<OsString>,
    /// Do not follow files whose full path matches
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// Where what was learned is kept for the next run [default: presagio in your cache directory]
    #[arg(long, value_name = "DIR", conflicts_with = "no_model")]
    model_dir: Option<PathBuf>,
    /// Neither use nor keep what was learned
    #[arg(long)]
    no_model: bool,
    /// Print no summary
    #[arg(long, short)]
    quiet: bool,
    /// Write the summary to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the manager on this processor
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
}

/// What a manager is to do, with all that can fail done.
pub struct Plan {
    pub filter: PathFilter,
    pub advise: bool,
    pub config: Option<Config>,
    pub trace: Option<(String, File)>,
    pub json: Option<File>,
    pub models: Option<PathBuf>,
    pub quiet: bool,
    pub pin: Option<usize>,
    pub command: Vec<OsString>,
    /// What will not be seen, as far as that is known before.
    pub blind: Vec<String>,
}

impl Settings {
    /// Whether nothing was asked for that a manager has to be told when it begins.
    pub fn is_usual(&self) -> bool {
        self.trace.is_none()
            && self.config.is_none()
            && !self.observe
            && self.include.is_empty()
            && self.exclude.is_empty()
            && self.model_dir.is_none()
            && !self.no_model
            && self.json.is_none()
    }

    /// Says that these settings are not the ones that hold.
    pub fn say_unused(&self, whose: &str) {
        if !self.is_usual() {
            let text =
                format!("presagio: the settings of {whose} hold; those given here are not used\n");
            say(&text);
        }
    }

    /// Reads, opens and checks everything.
    pub fn plan(&self) -> anyhow::Result<Plan> {
        let globs = |list: &[OsString]| -> Vec<Vec<u8>> {
            list.iter().map(|glob| glob.as_bytes().to_vec()).collect()
        };
        let (include, exclude) = (globs(&self.include), globs(&self.exclude));
        Ok(Plan {
            filter: PathFilter::new(
                include.iter().map(Vec::as_slice),
                exclude.iter().map(Vec::as_slice),
            )?,
            advise: !self.observe,
            config: self.config()?,
            trace: self.trace.as_deref().map(open_trace).transpose()?,
            json: self.json.as_deref().map(open_json).transpose()?,
            models: self.models(),
            quiet: self.quiet,
            pin: self.pin,
            command: Vec::new(),
            blind: Vec::new(),
        })
    }

    fn config(&self) -> anyhow::Result<Option<Config>> {
        let named = std::env::var_os("MERCURY_CONFIG").map(PathBuf::from);
        let path = self
            .config
            .clone()
            .or(named.filter(|p| !p.as_os_str().is_empty()));
        Ok(path.map(|path| Config::load(&path)).transpose()?)
    }

    /// Where models are kept.
    fn models(&self) -> Option<PathBuf> {
        if self.no_model {
            return None;
        }
        let absolute = |path: &PathBuf| std::path::absolute(path).ok();
        let cache = || {
            let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
            let cache = set.filter(|p| p.is_absolute()).or_else(home)?;
            Some(cache.join("presagio"))
        };
        self.model_dir.as_ref().map_or_else(cache, absolute)
    }
}

impl Plan {
    /// What decides: nothing, or the configuration, or what adapts.
    pub fn mind(&mut self) -> Box<MakeMind> {
        let (advise, config) = (self.advise, self.config.take());
        Box::new(move |remembered| {
            if !advise {
                return Box::new(Nothing);
            }
            let adaptive = Box::new(adaptive(remembered));
            match config {
                Some(config) => Box::new(Configured::new(config, adaptive)),
                None => adaptive,
            }
        })
    }
}

/// What adapts, with what it learned in earlier runs, within what memory there is.
fn adaptive(remembered: Option<&[u8]>) -> Adaptive {
    let tapes = remembered.and_then(|bytes| Tapes::load(bytes).ok());
    let usual = Choices::default();
    let choices = Choices {
        memory_max: usual.memory_max.min(memory_left() / 8),
        ..usual
    };
    Adaptive::new(choices, tapes.unwrap_or_default())
}

/// Opens a new trace. What is no trace is not replaced: it was not meant.
fn open_trace(path: &Path) -> anyhow::Result<(String, File)> {
    let explain = |error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::AlreadyExists => "choose another name, or remove it",
            io::ErrorKind::NotFound => "create the directory first",
            _ => "choose a place that you may write to",
        };
        failure(
            format!("cannot write the trace {}", path.display()),
            error,
            advice,
        )
    };
    if path.is_file() && !is_trace(path).map_err(explain)? {
        let kind = io::ErrorKind::AlreadyExists;
        return Err(explain(io::Error::new(kind, "another file has this name")));
    }
    let mut options = OpenOptions::new();
    let options = options
        .write(true)
        .create(true)
        .truncate(path.is_file() || !path.exists());
    let file = options.open(path).map_err(explain)?;
    Ok((path.display().to_string(), file))
}

/// Whether a file is a native trace, or empty.
fn is_trace(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(8).read_to_end(&mut begin)?;
    Ok(begin.is_empty() || begin == presagio_trace::native::format::MAGIC)
}

fn open_json(path: &Path) -> anyhow::Result<File> {
    File::create(path).map_err(|error| {
        let what = format!("cannot write the summary {}", path.display());
        failure(what, error, "choose a place that you may write to")
    })
}
