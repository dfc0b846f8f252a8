//! What a person can ask of a manager, for `presagio run` and `presagio advisor` alike.

use super::names::Names;
use super::reported::Reported;
use super::supervise::say;
use crate::failure::failure;
use presagio_advise::config::Config;
use presagio_advise::manager::{Manager, Orders};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How to watch, and what to do about it.
#[derive(clap::Args, Clone, Debug)]
pub struct Settings {
    /// Record what is done; `presagio trace` and `presagio predict` read it. Programs then wait for a manager that
    /// cannot keep up, instead of dropping records. A trace that is there is replaced. In this name, and in those of
    /// --json and --report, %h stands for the node and %j for the job
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Hints by hand, in MERCURY's JSON; files that it does not name are treated as without it [default: what the
    /// variable MERCURY_CONFIG names]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Watch and predict only, and change nothing; the next run knows what was learned
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
    /// Write a report of the run to this file, as one page of HTML; records what is done, as --trace does
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Keep the manager on this processor
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
}

/// What a manager is to do, with all that can fail done.
pub struct Plan {
    pub orders: Orders,
    pub config: Option<Config>,
    pub trace: Option<File>,
    pub json: Option<File>,
    pub report: Option<Reported>,
    pub quiet: bool,
    pub known: Known,
}

/// What the summary has to say that is known before.
#[derive(Default)]
pub struct Known {
    /// What will not be seen.
    pub blind: Vec<String>,
    /// What else one should know.
    pub notes: Vec<String>,
}

impl Settings {
    /// Whether nothing was asked for that a manager has to be told when it begins, here or in the environment.
    pub fn is_usual(&self) -> bool {
        self.says_nothing() && self.config().is_none()
    }

    /// Whether no option was given that a manager has to be told when it begins. (What the environment says, the manager of a
    /// run around this one was told.)
    pub fn says_nothing(&self) -> bool {
        self.trace.is_none()
            && self.config.is_none()
            && !self.observe
            && self.include.is_empty()
            && self.exclude.is_empty()
            && self.model_dir.is_none()
            && !self.no_model
            && self.json.is_none()
            && self.pin.is_none()
            && self.report.is_none()
    }

    /// All that was asked for, as text: ranks that have the same ask for the same.
    pub fn text(&self) -> String {
        let config = self.config();
        format!(
            "{:?}",
            Settings {
                config,
                ..self.clone()
            }
        )
    }

    /// Whether there are files that one manager alone can write.
    pub fn names_files(&self) -> bool {
        self.trace.is_some() || self.json.is_some() || self.report.is_some()
    }

    /// Says that these settings are not the ones that hold.
    pub fn say_unused(&self, whose: &str) {
        say(&format!(
            "presagio: the settings of {whose} hold; those given here are not used\n"
        ));
    }

    /// Reads, opens and checks everything.
    pub fn plan(&self) -> anyhow::Result<Plan> {
        let globs = |list: &[OsString]| -> Vec<Vec<u8>> {
            list.iter().map(|glob| glob.as_bytes().to_vec()).collect()
        };
        let mut known = Known::default();
        let [named, json, report] = self.names(&mut known);
        let orders = Orders {
            include: globs(&self.include),
            exclude: globs(&self.exclude),
            observe: self.observe,
            config: self.config(),
            trace: named,
            models: self.models(),
            pin: self.pin,
            job: super::job::name(),
            forward: None,
            command: Vec::new(),
        };
        orders.filter()?;
        self.pin.map_or(Ok(()), can_pin)?;
        let config = orders.config.as_deref().map(Config::load).transpose()?;
        let trace = orders.trace.as_deref().map(open_trace).transpose()?;
        let json = json.as_deref().map(open_json).transpose()?;
        let report = report.map(|to| Reported::plan(&to, orders.trace.as_deref()));
        let report = report.transpose()?;
        let ours = report.as_ref().map(Reported::trace).transpose()?.flatten();
        let (trace, orders) = match ours {
            Some((name, file)) => {
                let trace = Some(name);
                (Some(file), Orders { trace, ..orders })
            }
            None => (trace, orders),
        };
        Ok(Plan {
            config,
            trace,
            report,
            json,
            quiet: self.quiet,
            known,
            orders,
        })
    }

    /// What trace, summary and report are called on this node.
    fn names(&self, known: &mut Known) -> [Option<PathBuf>; 3] {
        let asked = [&self.trace, &self.json, &self.report];
        if !self.names_files() {
            return asked.map(|_| None);
        }
        let mut names = Names::here();
        let names_here = asked.map(|name| name.as_deref().map(|name| names.expand(name)));
        if let Some(name) = names.changed {
            known.notes.push(format!(
                "ranks of this job ran on other nodes too, so that each node wrote files of its own, here {} (say %h where the node's name is to be)",
                name.display()
            ));
        }
        names_here
    }

    fn config(&self) -> Option<PathBuf> {
        let named = std::env::var_os("MERCURY_CONFIG").map(PathBuf::from);
        let named = named.filter(|path| !path.as_os_str().is_empty());
        self.config.clone().or(named)
    }

    /// Where models are kept.
    fn models(&self) -> Option<PathBuf> {
        if self.no_model {
            return None;
        }
        let absolute = |path: &PathBuf| std::path::absolute(path).ok();
        let cache = || {
            let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            let home = std::env::var_os("HOME").map(PathBuf::from);
            cache_directory(set, home)
        };
        self.model_dir.as_ref().map_or_else(cache, absolute)
    }
}

/// Where models are kept if nobody says otherwise. What is relative would be another place for each command.
fn cache_directory(set: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let is_some_place = |path: &PathBuf| path.is_absolute();
    let below_home = || Some(home.filter(is_some_place)?.join(".cache"));
    let cache = set.filter(is_some_place).or_else(below_home)?;
    Some(cache.join("presagio"))
}

impl Plan {
    /// Makes the manager.
    pub fn begin(self) -> io::Result<Manager> {
        self.orders.begin(self.config, self.trace)
    }

    /// Names files so that another process finds them, wherever it goes.
    pub fn make_absolute(&mut self) -> anyhow::Result<()> {
        for path in [&mut self.orders.config, &mut self.orders.trace] {
            *path = path.take().map(std::path::absolute).transpose()?;
        }
        let report = self.report.as_mut().map(Reported::make_absolute);
        if let Some(trace) = report.transpose()?.flatten() {
            (self.orders.trace, self.trace) = (Some(trace), None);
        }
        Ok(())
    }
}

/// Whether a manager can be kept on this processor.
fn can_pin(cpu: usize) -> anyhow::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let listed = |line: &'static str| status.lines().find_map(|l| l.strip_prefix(line));
    let Some(allowed) = listed("Cpus_allowed_list:").map(str::trim) else {
        return Ok(());
    };
    if is_listed(allowed, cpu) {
        return Ok(());
    }
    Err(failure(
        format!("cannot keep the manager on processor {cpu}"),
        "there is none of this number that may be used here",
        format!("choose one of {allowed}"),
    ))
}

/// Whether a number is in a list as the kernel writes it, `0-3,8`.
fn is_listed(list: &str, number: usize) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.parse().ok().zip(last.parse().ok());
        ends.is_some_and(|(first, last): (usize, usize)| (first..=last).contains(&number))
    })
}

/// Opens a new trace. What is no trace is not replaced: it was not meant.
fn open_trace(path: &Path) -> anyhow::Result<File> {
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
    options.open(path).map_err(explain)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_found_in_the_kernels_list() {
        let found = (0..12).filter(|cpu| is_listed("0-2,5,8-9", *cpu));
        assert_eq!(found.collect::<Vec<_>>(), [0, 1, 2, 5, 8, 9]);
        assert!(!is_listed("", 0));
    }

    #[test]
    fn models_are_never_kept_where_the_command_happens_to_run() {
        let at = |set: &str, home: &str| cache_directory(Some(set.into()), Some(home.into()));
        assert_eq!(at("/c", "/h"), Some("/c/presagio".into()));
        assert_eq!(at("", "/h"), Some("/h/.cache/presagio".into()));
        assert_eq!(at("c", "h"), None);
        assert_eq!(at("", ""), None);
    }
}
