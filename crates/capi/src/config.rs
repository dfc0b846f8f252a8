//! From `agios.conf` to the parameters of a scheduler: the second step of `agios_init`.
//!
//! AGIOS took other defaults in silence, or crashed, when its configuration was wrong. Here everything
//! wrong is an error that says in which file, line and column, at which key, and why; only a key that
//! nobody knows is merely warned about, since a later version may know it. Keys that are missing have
//! AGIOS's defaults.

use crate::libconfig::{self, Group, Placed, Position, Setting, SyntaxError, Value};
use presagio_core::{Nanos, Op};
use presagio_device::Profile;
use presagio_device::profile::{Pattern, Test};
use presagio_sched::{PolicyKind, ServiceTime, Settings};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where AGIOS looks when no file is named.
pub const DEFAULT_FILE: &str = "/etc/agios.conf";

/// The group that all keys stand in.
const GROUP: &str = "library_options";

/// Files larger than this are no configuration (and a device would never end).
const FILE_BYTES_MAX: u64 = 1 << 20;

/// AGIOS's keys, then our own.
const KEYS: [&str; 24] = [
    "trace",
    "trace_file_prefix",
    "trace_file_sufix",
    "max_trace_buffer_size",
    "waiting_time",
    "aioli_quantum",
    "mlf_quantum",
    "SW_window",
    "twins_window",
    "performance_values",
    "default_algorithm",
    "select_algorithm_period",
    "select_algorithm_min_reqnumber",
    "enable_SW",
    "starting_algorithm",
    "wfq_conf",
    "ordering_guard",
    "starvation_bound",
    "hbrr_quantum",
    "aioli_synchronous",
    "foresight_trace",
    "foresight_request_us",
    "foresight_mb_per_s",
    "foresight_profile",
];

/// What a configuration says.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The policy to start with, and all parameters but those that depend on the number of queues.
    pub settings: Settings,
    /// Where to write a trace of all arrivals, if one is wanted.
    pub trace: Option<Trace>,
    /// What is expected to come, and how long it will take.
    pub foresight: Foresight,
    /// What is odd but does no harm; a line each.
    pub warnings: Vec<String>,
    weights: Option<NamedFile>,
}

/// What the scheduler is told about the future.
#[derive(Clone, Debug, PartialEq)]
pub struct Foresight {
    /// A trace of requests that are expected to come again.
    pub trace: Option<NamedFile>,
    /// How long the storage takes for a request: waiting for more pays if that takes less. Where a profile is named, that
    /// counts instead.
    pub service_time: ServiceTime,
    profile: Option<NamedFile>,
}

impl Foresight {
    /// How long the storage takes for a request, as the profile of it says if there is one. The file is read here.
    pub fn service_time(&self) -> Result<ServiceTime, ConfigError> {
        match &self.profile {
            None => Ok(self.service_time.clone()),
            Some(file) => file.profile().map(|profile| measured(&profile)),
        }
    }
}

/// What requests take that have to seek, as those do that others come between.
fn measured(profile: &Profile) -> ServiceTime {
    let [reads, writes] = Op::ALL.map(|op| profile.corners(Test::of(op, Pattern::Random)));
    ServiceTime::measured(&reads, &writes)
}

/// A trace to write: `prefix.N.suffix`, N being the first number that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The name up to the number; may contain a path.
    pub prefix: Vec<u8>,
    /// The name behind the number.
    pub suffix: Vec<u8>,
    /// How many bytes to collect before writing them.
    pub buffer_bytes: usize,
}

/// A file that the configuration names, and where it does.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFile {
    config: PathBuf,
    at: Position,
    key: &'static str,
    path: PathBuf,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is missing, unreadable or not a file.
    #[error("{}: cannot read it: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is not in libconfig's syntax.
    #[error("{}:{error}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: SyntaxError,
    },
    /// A key has a value that it cannot have.
    #[error("{}:{at}: {key}: {reason}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Where the value stands.
        at: Position,
        /// The key.
        key: String,
        /// Why the value cannot be used, and what can.
        reason: String,
    },
    /// WFQ was asked for and nothing says where its weights are.
    #[error(
        "WFQ needs weights: set wfq_conf in {GROUP} to the name of a file with one weight per queue"
    )]
    NoWeights,
}

impl Config {
    /// Reads the named file. Without a name, AGIOS's default file, or the defaults if that is missing.
    pub fn load(name: Option<&Path>) -> Result<Config, ConfigError> {
        let path = name.unwrap_or(Path::new(DEFAULT_FILE));
        match read_bounded(path) {
            Ok(text) => Config::parse(&text, path),
            Err(error) if name.is_none() && error.kind() == io::ErrorKind::NotFound => {
                let mut config = Config::defaults();
                let warning = format!("{DEFAULT_FILE} does not exist: using the defaults (SJF)");
                config.warnings.push(warning);
                Ok(config)
            }
            Err(error) => Err(ConfigError::Unreadable {
                path: path.to_owned(),
                error,
            }),
        }
    }

    /// What an empty group says: AGIOS's defaults.
    pub fn defaults() -> Config {
        let keys = Keys {
            path: Path::new(DEFAULT_FILE),
            group: &Group::default(),
        };
        keys.config().expect("no key is set, so none is wrong")
    }

    /// All keys are optional, so the group is too. One that was forgotten around keys that were not is worth
    /// one line, not one for each of them.
    fn without_group(path: &Path) -> Config {
        let mut config = Config::defaults();
        let path = path.display();
        let warning = format!(
            "{path}: no group {GROUP}: using the defaults (SJF) and nothing else that is in the file; \
             write {GROUP}: {{ key = value; ... }}"
        );
        config.warnings.push(warning);
        config
    }

    /// Understands the text of the file at `path`, which is only named in errors and for paths in it.
    pub fn parse(text: &[u8], path: &Path) -> Result<Config, ConfigError> {
        let file = libconfig::parse(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            error,
        })?;
        let Some(options) = file.get(GROUP) else {
            return Ok(Config::without_group(path));
        };
        let Value::Group(group) = &options.value.value else {
            return Err(wrong_type(path, options, "a group { ... }"));
        };
        let mut config = Keys { path, group }.config()?;
        config.warnings = unknown_keys(path, &file, group);
        Ok(config)
    }

    /// The parameters for `policy` with queue ids from 0 to `max_queue_id`, and what is odd about them.
    /// WFQ's weights are read here, so that only who uses WFQ needs the file. AGIOS hands the requests of
    /// SW and WFQ out one by one (the most that it aggregates is 1 there): so do we.
    pub fn settings_for(
        &self,
        policy: PolicyKind,
        max_queue_id: u32,
    ) -> Result<(Settings, Option<String>), ConfigError> {
        let mut settings = Settings {
            policy,
            queues: max_queue_id + 1,
            ..self.settings.clone()
        };
        if matches!(policy, PolicyKind::Sw | PolicyKind::Wfq) {
            settings.batch_requests_max = 1;
        }
        if policy != PolicyKind::Wfq {
            return Ok((settings, None));
        }
        let file = self.weights.as_ref().ok_or(ConfigError::NoWeights)?;
        settings.wfq_weights = file.weights(max_queue_id)?;
        let short = settings.wfq_weights.len() <= max_queue_id as usize;
        let warning = short.then(|| {
            let default = settings.wfq_weight;
            format!("wfq_conf has no weight for queue {max_queue_id}: using {default}")
        });
        Ok((settings, warning))
    }
}

/// The group's keys, and the file to name in errors.
struct Keys<'a> {
    path: &'a Path,
    group: &'a Group,
}

impl Keys<'_> {
    fn config(&self) -> Result<Config, ConfigError> {
        self.check_unused()?;
        Ok(Config {
            settings: self.settings()?,
            trace: self.trace()?,
            foresight: self.foresight()?,
            warnings: Vec::new(),
            weights: self.named_file("wfq_conf", "of weights")?,
        })
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let policy = self.algorithm("default_algorithm")?;
        Ok(Settings {
            wait: Nanos(self.integer("waiting_time", 900_000, 0..=SPAN_MAX)?),
            aioli_quantum: self.integer("aioli_quantum", 65_536, 1..=BYTES_MAX)?,
            mlf_quantum: self.integer("mlf_quantum", 8_192, 1..=BYTES_MAX)?,
            sw_window: Nanos::from_millis(self.integer("SW_window", 1_000, 1..=COUNT_MAX)?),
            twins_window: Nanos::from_micros(self.integer("twins_window", 1_000, 1..=COUNT_MAX)?),
            guard: self.boolean("ordering_guard", false)?,
            starvation_bound: match self.integer("starvation_bound", 0, 0..=COUNT_MAX)? {
                0 => None,
                ms => Some(Nanos::from_millis(ms)),
            },
            hbrr_quantum: self.integer("hbrr_quantum", 8, 1..=COUNT_MAX)? as u32,
            aioli_synchronous: self.boolean("aioli_synchronous", false)?,
            ..Settings::new(policy)
        })
    }

    fn trace(&self) -> Result<Option<Trace>, ConfigError> {
        let trace = Trace {
            prefix: self.text("trace_file_prefix", "agios_tracefile")?,
            suffix: self.text("trace_file_sufix", "out")?,
            buffer_bytes: self.integer("max_trace_buffer_size", 1_024, 1..=1 << 20)? as usize
                * 1024,
        };
        Ok(self.boolean("trace", false)?.then_some(trace))
    }

    fn foresight(&self) -> Result<Foresight, ConfigError> {
        let per_request = self.integer("foresight_request_us", 100, 0..=COUNT_MAX)?;
        let megabytes = self.integer("foresight_mb_per_s", 1_000, 1..=COUNT_MAX)?;
        Ok(Foresight {
            trace: self.named_file("foresight_trace", "with the trace")?,
            service_time: ServiceTime::linear(
                Nanos::from_micros(per_request),
                megabytes * 1_000_000,
            ),
            profile: self.named_file("foresight_profile", "with the profile")?,
        })
    }

    /// Keys that AGIOS has for choosing an algorithm while running, which its second version does not
    /// do and neither do we: they must make sense all the same.
    fn check_unused(&self) -> Result<(), ConfigError> {
        self.integer("performance_values", 5, 1..=COUNT_MAX)?;
        self.integer("select_algorithm_min_reqnumber", 1, 0..=COUNT_MAX)?;
        self.boolean("enable_SW", false)?;
        self.algorithm("starting_algorithm")?;
        self.period("select_algorithm_period")
    }

    /// Milliseconds, or -1 for "once".
    fn period(&self, key: &str) -> Result<(), ConfigError> {
        match self.group.get(key) {
            Some(setting) if setting.value.value == Value::Int(-1) => Ok(()),
            _ => self
                .integer(key, 1, 1..=COUNT_MAX)
                .map(drop)
                .map_err(|error| error.or("-1 for once")),
        }
    }

    /// The file that `key` names, if it is set; `what` says which one that is.
    fn named_file(&self, key: &'static str, what: &str) -> Result<Option<NamedFile>, ConfigError> {
        let Some(setting) = self.group.get(key) else {
            return Ok(None);
        };
        let name = self.text(key, "")?;
        if name.is_empty() {
            return Err(self.wrong(setting, &format!("the name of the file {what} is empty")));
        }
        Ok(Some(NamedFile {
            config: self.path.to_owned(),
            at: setting.value.at,
            key,
            path: PathBuf::from(OsStr::from_bytes(&name)),
        }))
    }

    fn algorithm(&self, key: &str) -> Result<PolicyKind, ConfigError> {
        let name = self.text(key, PolicyKind::Sjf.name())?;
        let name = String::from_utf8_lossy(&name);
        name.parse()
            .map_err(|error: presagio_sched::UnknownPolicy| {
                let setting = self.group.get(key).expect("the default has a known name");
                self.wrong(setting, &error.to_string())
            })
    }

    fn integer(
        &self,
        key: &str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, ConfigError> {
        let Some(setting) = self.group.get(key) else {
            return Ok(default);
        };
        let Value::Int(value) = setting.value.value else {
            return Err(wrong_type(self.path, setting, "an integer"));
        };
        match u64::try_from(value) {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => {
                let (low, high) = (range.start(), range.end());
                let reason = format!("{value} makes no sense: it must be from {low} to {high}");
                Err(self.wrong(setting, &reason))
            }
        }
    }

    fn boolean(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        match self.group.get(key) {
            None => Ok(default),
            Some(setting) => match setting.value.value {
                Value::Bool(value) => Ok(value),
                _ => Err(wrong_type(self.path, setting, "true or false")),
            },
        }
    }

    fn text(&self, key: &str, default: &str) -> Result<Vec<u8>, ConfigError> {
        match self.group.get(key) {
            None => Ok(default.as_bytes().to_vec()),
            Some(setting) => match &setting.value.value {
                Value::Text(bytes) => Ok(bytes.clone()),
                _ => Err(wrong_type(self.path, setting, "a \"string\"")),
            },
        }
    }

    fn wrong(&self, setting: &Setting, reason: &str) -> ConfigError {
        wrong(self.path, setting, reason.to_owned())
    }
}

/// Spans in nanoseconds: up to eleven days.
const SPAN_MAX: u64 = 1_000_000_000_000_000;
/// Quanta in bytes: up to a pebibyte, which leaves room for them to double.
const BYTES_MAX: u64 = 1 << 50;
/// Everything counted, and spans in larger units.
const COUNT_MAX: u64 = u32::MAX as u64;

fn wrong(path: &Path, setting: &Setting, reason: String) -> ConfigError {
    ConfigError::Key {
        path: path.to_owned(),
        at: setting.value.at,
        key: setting.name.clone(),
        reason,
    }
}

fn wrong_type(path: &Path, setting: &Setting, expected: &str) -> ConfigError {
    let Placed { value, .. } = &setting.value;
    let reason = format!("expected {expected}, found {}", value.kind());
    wrong(path, setting, reason)
}

impl ConfigError {
    /// The same error with one more thing that the key may be.
    fn or(mut self, also: &str) -> ConfigError {
        if let ConfigError::Key { reason, .. } = &mut self {
            reason.push_str(", or ");
            reason.push_str(also);
        }
        self
    }
}

fn unknown_keys(path: &Path, file: &Group, options: &Group) -> Vec<String> {
    let outside = file.iter().filter(|s| s.name != GROUP);
    let inside = options.iter().filter(|s| !KEYS.contains(&s.name.as_str()));
    let line = |s: &Setting, place: &str| {
        let (path, at, name) = (path.display(), s.at, &s.name);
        format!("{path}:{at}: {name}: unknown key{place}, ignored")
    };
    outside
        .map(|s| line(s, " (outside of library_options)"))
        .chain(inside.map(|s| line(s, "")))
        .collect()
}

impl NamedFile {
    /// The file as WFQ's weights: one weight for each of the queues 0 to `max_queue_id`. The last one's may be missing: programs
    /// also pass the *number* of queues as `max_queue_id`, and never use that queue.
    fn weights(&self, max_queue_id: u32) -> Result<Vec<u64>, ConfigError> {
        let (path, text) = self.open(read_bounded)?;
        let fail = |line: usize, column: usize, reason: String| ConfigError::Key {
            path: path.clone(),
            at: Position { line, column },
            key: self.key.to_owned(),
            reason,
        };
        let mut weights = Vec::new();
        for (line, column, word) in words(&text) {
            let weight = std::str::from_utf8(word).ok().and_then(|w| w.parse().ok());
            match weight {
                Some(weight @ 1..=BYTES_MAX) => weights.push(weight),
                _ => {
                    let word = String::from_utf8_lossy(word);
                    let reason =
                        format!("the weight \"{word}\" is not a number from 1 to {BYTES_MAX}");
                    return Err(fail(line, column, reason));
                }
            }
        }
        if weights.len() < (max_queue_id as usize).max(1) {
            let (found, needed) = (weights.len(), max_queue_id + 1);
            let reason = format!("{found} weights, but there are {needed} queues: one weight each");
            return Err(fail(text.split(|b| *b == b'\n').count(), 1, reason));
        }
        weights.truncate(max_queue_id as usize + 1);
        Ok(weights)
    }

    /// The file as a profile of the storage, which `presagio profile -o` writes.
    fn profile(&self) -> Result<Profile, ConfigError> {
        let (path, text) = self.open(read_bounded)?;
        let read = Profile::from_text(&String::from_utf8_lossy(&text));
        read.map_err(|error| ConfigError::Key {
            path: self.config.clone(),
            at: self.at,
            key: self.key.to_owned(),
            reason: format!(
                "{} is no profile: {error}; write it anew with presagio profile -o",
                path.display()
            ),
        })
    }

    /// What `open` makes of the file, and its path: relative to the current directory as in AGIOS, else
    /// beside the configuration.
    pub fn open<T>(
        &self,
        open: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<(PathBuf, T), ConfigError> {
        let beside = self.config.parent().unwrap_or(Path::new(""));
        let beside = beside.join(&self.path);
        let tried = match open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => open(&beside)
                .map(|opened| (beside, opened))
                .map_err(|_| error),
            other => other.map(|opened| (self.path.clone(), opened)),
        };
        tried.map_err(|error| ConfigError::Key {
            path: self.config.clone(),
            at: self.at,
            key: self.key.to_owned(),
            reason: format!("cannot read {}: {error}", self.path.display()),
        })
    }
}

/// The words of a text, each with its line and column.
fn words(text: &[u8]) -> impl Iterator<Item = (usize, usize, &[u8])> {
    let lines = text.split(|b| *b == b'\n').enumerate();
    lines.flat_map(|(row, line)| {
        let mut column = 1;
        line.split(u8::is_ascii_whitespace).filter_map(move |word| {
            let at = column;
            column += word.len() + 1;
            (!word.is_empty()).then_some((row + 1, at, word))
        })
    })
}

/// The content of a file that is no larger than a configuration can be.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let reason = "more than 1 MiB: this is no configuration";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EVERYTHING: &[u8] = include_bytes!("../tests/conf/everything.conf");

    fn parse(keys: &str) -> Result<Config, ConfigError> {
        let text = format!("library_options:\n{{\n{keys}\n}}");
        Config::parse(text.as_bytes(), Path::new("some.conf"))
    }

    fn error(keys: &str) -> String {
        parse(keys).unwrap_err().to_string()
    }

    /// A directory of this test's own, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let dir = format!("agios-config-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(dir);
            std::fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn missing_keys_have_agios_defaults() {
        let config = parse("").unwrap();
        let s = &config.settings;
        assert_eq!((s.policy, s.guard), (PolicyKind::Sjf, false));
        assert_eq!(
            (s.wait, s.aioli_quantum, s.mlf_quantum),
            (Nanos(900_000), 65_536, 8_192)
        );
        assert_eq!(s.sw_window, Nanos::from_millis(1_000));
        assert_eq!(s.twins_window, Nanos::from_micros(1_000));
        assert_eq!((s.starvation_bound, s.aioli_synchronous), (None, false));
        assert_eq!((config.trace, config.warnings.len()), (None, 0));
        let foresight = config.foresight;
        assert_eq!(foresight.trace, None);
        let same = foresight.service_time == ServiceTime::default();
        assert!(same, "the scheduler's own default");
    }

    #[test]
    fn every_key_is_understood() {
        let config = Config::parse(EVERYTHING, Path::new("everything.conf")).unwrap();
        let s = &config.settings;
        assert_eq!((s.policy, s.guard), (PolicyKind::Aioli, true));
        assert_eq!(
            (s.aioli_quantum, s.mlf_quantum, s.hbrr_quantum),
            (65_536, 8_192, 4)
        );
        assert_eq!(s.sw_window, Nanos::from_millis(1_000));
        assert_eq!(s.twins_window, Nanos::from_micros(2_000));
        assert_eq!(s.starvation_bound, Some(Nanos::from_millis(250)));
        assert!(s.aioli_synchronous);
        let foresight = &config.foresight;
        let trace = foresight.trace.as_ref().map(|file| file.path.as_path());
        assert_eq!(trace, Some(Path::new("agios_tracefile.1.out")));
        // 5 ms, and 8 MB at 40 MB/s.
        let of_8_mb = foresight.service_time.of(Op::Read, 8_000_000);
        assert_eq!(of_8_mb, Nanos::from_millis(205));
        assert_eq!(
            config.warnings.len(),
            1,
            "extras is not ours: {:?}",
            config.warnings
        );
        assert!(config.warnings[0].contains("everything.conf:29:1: extras: unknown key"));
    }

    #[test]
    fn a_trace_is_named_and_buffered_as_configured() {
        let keys = "trace = true trace_file_prefix = \"p\" trace_file_sufix = \"s\" max_trace_buffer_size = 2";
        let trace = parse(keys).unwrap().trace.unwrap();
        assert_eq!((trace.prefix, trace.suffix), (b"p".to_vec(), b"s".to_vec()));
        assert_eq!(trace.buffer_bytes, 2048);
    }

    #[test]
    fn wrong_values_name_file_line_column_key_and_reason() {
        for (keys, expected) in [
            (
                "trace = 1",
                "some.conf:3:9: trace: expected true or false, found an integer",
            ),
            (
                "trace_file_prefix = 1",
                "some.conf:3:21: trace_file_prefix: expected a \"string\"",
            ),
            (
                "waiting_time = \"1\"",
                "some.conf:3:16: waiting_time: expected an integer, found a string",
            ),
            (
                "waiting_time = -1",
                "some.conf:3:16: waiting_time: -1 makes no sense",
            ),
            (
                "\naioli_quantum = 0",
                "some.conf:4:17: aioli_quantum: 0 makes no sense: it must be from 1",
            ),
            (
                "mlf_quantum = -8192",
                "some.conf:3:15: mlf_quantum: -8192 makes no sense",
            ),
            (
                "SW_window = 0",
                "some.conf:3:13: SW_window: 0 makes no sense",
            ),
            (
                "twins_window = 1.5",
                "some.conf:3:16: twins_window: expected an integer, found a floating",
            ),
            (
                "max_trace_buffer_size = 0",
                "some.conf:3:25: max_trace_buffer_size: 0 makes",
            ),
            (
                "performance_values = 0",
                "some.conf:3:22: performance_values: 0 makes",
            ),
            (
                "select_algorithm_period = 0",
                "some.conf:3:27: select_algorithm_period: 0 makes",
            ),
            (
                "select_algorithm_min_reqnumber = -1",
                "some.conf:3:34: select_algorithm_min_reqnumber: -1",
            ),
            (
                "enable_SW = \"no\"",
                "some.conf:3:13: enable_SW: expected true or false",
            ),
            (
                "default_algorithm = \"CFQ\"",
                "some.conf:3:21: default_algorithm: unknown policy \"CFQ\"",
            ),
            (
                "starting_algorithm = \"\"",
                "some.conf:3:22: starting_algorithm: unknown policy",
            ),
            (
                "default_algorithm = 3",
                "some.conf:3:21: default_algorithm: expected a \"string\"",
            ),
            (
                "wfq_conf = \"\"",
                "some.conf:3:12: wfq_conf: the name of the file",
            ),
            (
                "foresight_trace = \"\"",
                "some.conf:3:19: foresight_trace: the name of the file with the trace",
            ),
            (
                "foresight_trace = true",
                "some.conf:3:19: foresight_trace: expected a \"string\"",
            ),
            (
                "foresight_request_us = -1",
                "some.conf:3:24: foresight_request_us: -1 makes no sense",
            ),
            (
                "foresight_profile = 5",
                "some.conf:3:21: foresight_profile: expected a \"string\"",
            ),
            (
                "foresight_mb_per_s = 0",
                "some.conf:3:22: foresight_mb_per_s: 0 makes no sense",
            ),
            (
                "hbrr_quantum = 4294967296",
                "some.conf:3:16: hbrr_quantum: 4294967296 makes no sense",
            ),
            (
                "waiting_time 5",
                "some.conf:3:14: expected \"=\" or \":\" after \"waiting_time\"",
            ),
        ] {
            let got = error(keys);
            assert!(got.starts_with(expected), "{keys:?} gave {got:?}");
        }
        assert!(error("select_algorithm_period = 0").ends_with("or -1 for once"));
    }

    #[test]
    fn a_text_without_the_group_means_the_defaults_and_one_warning() {
        for text in [
            "",
            "# nothing",
            "trace = true; other: { waiting_time = 5 };",
        ] {
            let mut config = Config::parse(text.as_bytes(), Path::new("x")).unwrap();
            let warnings = std::mem::take(&mut config.warnings);
            assert_eq!(config, Config::defaults(), "{text:?}");
            assert_eq!(warnings.len(), 1, "{text:?}: {warnings:?}");
            assert!(warnings[0].starts_with("x: no group library_options: using the defaults"));
        }
    }

    #[test]
    fn options_that_are_no_group_are_an_error() {
        let error = Config::parse(b"library_options = 5", Path::new("x")).unwrap_err();
        let expected = "x:1:19: library_options: expected a group";
        assert!(error.to_string().starts_with(expected), "{error}");
    }

    const EXAMPLE: &str = include_str!("../agios.conf");
    const HEADER: &str = include_str!("../include/agios.h");

    /// The configuration in the header's first comment, as who copies it gets it.
    fn header_block() -> String {
        let lines = HEADER
            .lines()
            .map(|line| line.strip_prefix(" *").unwrap_or(line));
        let block = lines.skip_while(|line| line.trim() != "library_options: {");
        let mut block: Vec<&str> = block.take_while(|line| line.trim() != "};").collect();
        block.push("};");
        block.join("\n")
    }

    /// The example file and the header's block: what users copy.
    fn examples() -> [String; 2] {
        [EXAMPLE.to_owned(), header_block()]
    }

    fn parse_example(text: &str) -> Config {
        Config::parse(text.as_bytes(), Path::new(DEFAULT_FILE)).unwrap()
    }

    #[test]
    fn the_example_file_and_the_headers_block_say_the_defaults() {
        for text in examples() {
            assert_eq!(parse_example(&text), Config::defaults(), "{text}");
            // What a trace would be called shows only if there is one.
            let traced = text.replacen("trace = false;", "trace = true;", 1);
            assert_eq!(parse_example(&traced), parse("trace = true").unwrap());
        }
    }

    #[test]
    fn the_example_file_and_the_headers_block_have_every_key_that_does_something() {
        let unused = [
            "performance_values",
            "select_algorithm_period",
            "select_algorithm_min_reqnumber",
            "enable_SW",
            "starting_algorithm",
        ];
        for text in examples() {
            let text = text.replace("#wfq_conf", "wfq_conf");
            let text = text.replace("#foresight_", "foresight_");
            let config = parse_example(&text);
            assert!(config.weights.is_some() && config.foresight.trace.is_some());
            assert!(config.foresight.profile.is_some());
            assert_eq!(config.warnings, [""; 0]);
            let file = libconfig::parse(text.as_bytes()).unwrap();
            let Value::Group(group) = &file.get(GROUP).unwrap().value.value else {
                panic!("{text}");
            };
            let missing = KEYS.iter().filter(|key| group.get(key).is_none());
            let missing: Vec<&str> = missing.copied().collect();
            assert_eq!(missing, unused, "{text}");
        }
    }

    #[test]
    fn unknown_keys_are_warned_about_and_ignored() {
        let config = parse("waiting_tiem = 5").unwrap();
        assert_eq!(
            config.warnings,
            ["some.conf:3:1: waiting_tiem: unknown key, ignored"]
        );
    }

    #[test]
    fn files_that_cannot_be_read_are_errors_that_name_them() {
        let scratch = Scratch::new("unreadable");
        for path in [
            scratch.0.join("missing.conf"),
            scratch.0.clone(),
            "/dev/zero".into(),
        ] {
            let error = Config::load(Some(&path)).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{}: cannot read it", path.display())),
                "{error}"
            );
        }
    }

    /// A profile of a disk that takes 10 ms to read anything and 20 ms to write it, as `presagio profile` would write it.
    fn disk() -> String {
        use presagio_device::profile::{About, Interval, Point};
        let interval = Interval::new(8 << 10, 64 << 10, 8 << 10).unwrap();
        let points = Test::ALL.map(|test| {
            let ns = match test.op() {
                Op::Read => 10e6,
                Op::Write => 20e6,
            };
            let at = |size| Point {
                size,
                ns,
                plus_minus_ns: 0.0,
                runs: 6,
                requests: 60,
            };
            interval.sizes().map(at).collect()
        });
        let profile = Profile::new(About::default(), vec![interval], points).unwrap();
        profile.to_text()
    }

    #[test]
    fn what_the_storage_takes_is_read_from_its_profile() {
        let scratch = Scratch::new("profile");
        let keys = "foresight_request_us = 5; foresight_profile = \"disk.json\"";
        let conf = scratch.file("a.conf", &format!("library_options: {{ {keys} }}"));
        scratch.file("disk.json", &disk());
        let foresight = Config::load(Some(&conf)).unwrap().foresight;
        let time = foresight.service_time().unwrap();
        assert_eq!(time.of(Op::Read, 8 << 10), Nanos::from_millis(10));
        assert_eq!(time.of(Op::Write, 64 << 10), Nanos::from_millis(20));
    }

    #[test]
    fn a_profile_that_is_missing_or_is_none_is_an_error_that_names_it() {
        let scratch = Scratch::new("profile-wrong");
        let text = "library_options: { foresight_profile = \"disk.json\" }";
        let conf = scratch.file("a.conf", text);
        let error = || {
            let foresight = Config::load(Some(&conf)).unwrap().foresight;
            foresight.service_time().unwrap_err().to_string()
        };
        let missing = error();
        assert!(
            missing.contains("a.conf:1:40: foresight_profile: cannot read disk.json"),
            "{missing}"
        );
        scratch.file("disk.json", "{}");
        let wrong = error();
        assert!(wrong.contains("disk.json is no profile: "), "{wrong}");
    }

    #[test]
    fn weights_are_found_beside_the_configuration() {
        let scratch = Scratch::new("weights");
        let conf = scratch.file("a.conf", "library_options: { wfq_conf = \"w.txt\" }");
        scratch.file("w.txt", "10 20\n30\t40\n50");
        let config = Config::load(Some(&conf)).unwrap();
        let (settings, warning) = config.settings_for(PolicyKind::Wfq, 3).unwrap();
        assert_eq!(
            (settings.wfq_weights, settings.queues),
            (vec![10, 20, 30, 40], 4)
        );
        assert_eq!(warning, None);
        let (settings, warning) = config.settings_for(PolicyKind::Wfq, 5).unwrap();
        assert_eq!((settings.wfq_weights.len(), settings.queues), (5, 6));
        assert!(warning.unwrap().contains("queue 5"));
    }

    #[test]
    fn weights_that_are_missing_few_or_no_numbers_are_errors() {
        let scratch = Scratch::new("weights-wrong");
        let weights = |text: &str, max_queue_id| {
            scratch.file("w.txt", text);
            let conf = scratch.file("a.conf", "library_options: { wfq_conf = \"w.txt\" }");
            let config = Config::load(Some(&conf)).unwrap();
            let wrong = config.settings_for(PolicyKind::Wfq, max_queue_id);
            wrong.unwrap_err().to_string()
        };
        assert!(weights("1 2 3", 4).contains("w.txt:1:1: wfq_conf: 3 weights, but there are 5"));
        assert!(weights("", 0).contains("0 weights, but there are 1"));
        assert!(weights("1\n2 x", 1).contains("w.txt:2:3: wfq_conf: the weight \"x\" is not"));
        assert!(weights("1 0", 1).contains("w.txt:1:3: wfq_conf: the weight \"0\" is not"));
        assert!(weights("1 -5", 1).contains("the weight \"-5\" is not a number"));
        let gone = parse("wfq_conf = \"no-such-file\"").unwrap();
        let gone = gone
            .settings_for(PolicyKind::Wfq, 1)
            .unwrap_err()
            .to_string();
        assert!(
            gone.starts_with("some.conf:3:12: wfq_conf: cannot read no-such-file"),
            "{gone}"
        );
        let none = parse("").unwrap().settings_for(PolicyKind::Wfq, 1);
        assert!(none.unwrap_err().to_string().contains("wfq_conf"));
    }

    #[test]
    fn weights_are_not_needed_by_others() {
        let config = parse("wfq_conf = \"no-such-file\"").unwrap();
        for policy in PolicyKind::ALL
            .into_iter()
            .filter(|p| *p != PolicyKind::Wfq)
        {
            let (settings, _) = config.settings_for(policy, 7).unwrap();
            assert_eq!((settings.check(), settings.queues), (Ok(()), 8));
        }
    }

    #[test]
    fn sw_and_wfq_hand_requests_out_one_by_one_as_in_agios_and_the_others_do_not() {
        let scratch = Scratch::new("one-by-one");
        scratch.file("w.txt", "1");
        let conf = scratch.file("a.conf", "library_options: { wfq_conf = \"w.txt\" }");
        let config = Config::load(Some(&conf)).unwrap();
        for policy in PolicyKind::ALL {
            let (settings, _) = config.settings_for(policy, 0).unwrap();
            let expected = match policy.name() {
                "SW" | "WFQ" => 1,
                _ => Settings::BATCH_REQUESTS_MAX,
            };
            assert_eq!(settings.batch_requests_max, expected, "{policy}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_can_be_used(
            key in proptest::sample::select(KEYS.to_vec()), value in any::<i64>(), small in -2..3i64
        ) {
            for value in [value, small] {
                if let Ok(config) = parse(&format!("{key} = {value}")) {
                    prop_assert_eq!(config.settings.check(), Ok(()));
                }
            }
        }
    }
}
