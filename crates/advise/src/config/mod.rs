//! MERCURY's configuration: which files are advised, and how.
//!
//! The format is the one of the published system, and its files work unchanged (§III-B, Listing 2, whose printed
//! form has lost some of its braces):
//!
//! ```
//! # use presagio_advise::config::Config;
//! # use std::path::Path;
//! let config: Config = r#"{
//!     "File": [ {
//!         "Path": "/data/events.root",
//!         "BlockSize": 4194304, "CacheSize": 8, "ReadAheadSize": 4,
//!         "WillNeed": [ { "Offset": 0, "Length": 0 } ]
//!     } ],
//!     "Directory": [ {
//!         "Path": "/data/index",
//!         "Random": [ { "Offset": 0, "Length": 0 } ]
//!     } ]
//! }"#.parse().unwrap();
//! let entry = config.lookup(Path::new("/data/events.root")).unwrap();
//! assert_eq!(entry.advice.block_size, 4 << 20);
//! ```
//!
//! - `BlockSize` in bytes, 0 or absent: 4 MiB; rounded up to whole pages, since the page cache holds nothing less.
//!   `CacheSize` in blocks, 0 or absent: 16. `ReadAheadSize` in blocks, 0 or absent: 3; always less than
//!   `CacheSize`, so that what is loaded ahead is not released before it is read.
//! - `WillNeed`, `Random`, `Sequential`, `Normal`, `DontNeed`: lists of regions. `Offset` and `Length` in bytes, 0
//!   where absent; `Length` 0 reaches to the end of the file. Regions that contradict each other are refused: two
//!   modes for one byte, or `WillNeed` and `DontNeed`.
//! - `Path` is a full path, or a pattern: `*` and `?` within a name, `[a-z]`, `{a,b}`, `**` for any directories. One
//!   that does not begin with `/` applies in any directory. A `Directory` applies to all files below it.
//! - Comments are allowed, as MERCURY's reader allowed them.
//!
//! **Which entry applies to a file** ([`Config::lookup`]): the most specific one, and no other. A `File` with just
//! this path comes first, then the `File` pattern with the most literal characters, then the deepest `Directory`
//! (one with just this path before a pattern); between equals, the first in the configuration.

mod json;
mod read;
mod recording;
mod write;

pub use recording::{Recorded, from_recording};

use presagio_core::Range;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The block size where none is given, as in MERCURY.
pub const BLOCK_SIZE_DEFAULT: u64 = 4 << 20;
/// The cache size in blocks where none is given.
pub const CACHE_SIZE_DEFAULT: u32 = 16;
/// The blocks to read ahead where none are given.
pub const READ_AHEAD_SIZE_DEFAULT: u32 = 3;
/// More blocks than this are refused: the work of one read is bounded by them.
pub const BLOCKS_MAX: u32 = 65_536;
/// Blocks are whole pages.
const BLOCK_SIZE_MIN: u64 = 4096;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The line, counted from 1.
    pub line: usize,
    /// The character in the line, counted from 1.
    pub column: usize,
    /// The field, as `File[0].WillNeed[1].Offset`; empty outside of all fields.
    pub field: String,
    /// What is wrong, and what to do about it.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It could not be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Its content is not a configuration.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        error: ConfigError,
    },
}

/// A whole configuration. It prints as JSON that reads back as the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    entries: Vec<Entry>,
}

/// What is wanted for one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the path names.
    pub kind: Kind,
    /// The path or pattern as it was written, without a slash at its end.
    pub path: String,
    /// Where it stands in its file, 0 if it was not read from one.
    pub line: usize,
    /// What to do.
    pub advice: Advice,
}

/// What the path of an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files.
    File,
    /// Directories: the entry applies to all files below.
    Directory,
}

/// What is wanted for a file. Its regions are in order of their offset and do not touch; one that reaches to the
/// end of the file ends at `u64::MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The bytes that are loaded and released as one.
    pub block_size: u64,
    /// How many blocks may be in memory on our behalf.
    pub cache_size: u32,
    /// How many blocks ahead of the one that is being read are loaded; less than `cache_size`.
    pub read_ahead_size: u32,
    /// Where blocks are loaded.
    pub will_need: Vec<Range>,
    /// Where the file is not kept in memory once it has been read.
    pub dont_need: Vec<Range>,
    /// How the kernel's own read-ahead is to behave, by region.
    pub modes: Vec<(Range, Mode)>,
}

/// How the kernel's own read-ahead behaves for an open file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As it does by itself.
    #[default]
    Normal,
    /// Not at all.
    Random,
    /// With a window twice as large.
    Sequential,
}

impl Default for Advice {
    fn default() -> Advice {
        Advice {
            block_size: BLOCK_SIZE_DEFAULT,
            cache_size: CACHE_SIZE_DEFAULT,
            read_ahead_size: READ_AHEAD_SIZE_DEFAULT,
            will_need: Vec::new(),
            dont_need: Vec::new(),
            modes: Vec::new(),
        }
    }
}

impl Advice {
    /// Brings the sizes within what holds for them: whole pages, and less read-ahead than cache.
    fn settle(&mut self) {
        self.block_size = round_up(self.block_size.max(1), BLOCK_SIZE_MIN);
        self.cache_size = self.cache_size.clamp(1, BLOCKS_MAX);
        self.read_ahead_size = self.read_ahead_size.min(self.cache_size - 1);
    }

    /// The mode that was given for this byte, if one was.
    pub fn mode_at(&self, offset: u64) -> Option<Mode> {
        let behind = self
            .modes
            .partition_point(|(region, _)| region.start() <= offset);
        let (region, mode) = self.modes.get(behind.checked_sub(1)?)?;
        (offset < region.end()).then_some(*mode)
    }
}

/// The next multiple of `unit`, or the last there is.
fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes
        .checked_next_multiple_of(unit)
        .unwrap_or(u64::MAX / unit * unit)
}

/// The region among sorted ones that has this byte, or else the first behind it.
pub(crate) fn region_from(regions: &[Range], offset: u64) -> Option<Range> {
    let at = regions.partition_point(|r| r.end() <= offset);
    regions.get(at).copied()
}

impl std::str::FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Config, ConfigError> {
        read::config(text)
    }
}

impl Config {
    /// Reads a configuration file.
    pub fn load(path: &Path) -> Result<Config, LoadError> {
        let name = || path.to_owned();
        let text = std::fs::read_to_string(path).map_err(|error| LoadError::Unreadable {
            path: name(),
            error,
        })?;
        text.parse().map_err(|error| LoadError::Malformed {
            path: name(),
            error,
        })
    }

    /// What it consists of, in its order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry that applies to the file of this full path: see the module's header for the rule.
    pub fn lookup(&self, path: &Path) -> Option<&Entry> {
        self.find(Kind::File, path).or_else(|| {
            let mut above = path.ancestors().skip(1);
            above.find_map(|directory| self.find(Kind::Directory, directory))
        })
    }

    /// The most specific entry of a kind for just this path.
    fn find(&self, kind: Kind, path: &Path) -> Option<&Entry> {
        let path = path.as_os_str().as_bytes();
        let matching = self
            .entries
            .iter()
            .filter(|e| e.kind == kind && e.matches(path));
        // `rev`, since `max_by_key` returns the last of equals
        matching
            .rev()
            .max_by_key(|e| (e.path.as_bytes() == path, e.literals()))
    }
}

impl Entry {
    fn matches(&self, path: &[u8]) -> bool {
        if self.path.as_bytes() == path {
            return true;
        }
        if self.path.starts_with('/') {
            return fast_glob::glob_match(&self.path, path);
        }
        fast_glob::glob_match(format!("/**/{}", self.path), path)
    }

    /// How much of a pattern is no wildcard.
    fn literals(&self) -> usize {
        self.path
            .bytes()
            .filter(|b| !b"*?[]{}!\\".contains(b))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        text.parse().unwrap()
    }

    fn found<'a>(config: &'a Config, path: &str) -> Option<&'a str> {
        config.lookup(Path::new(path)).map(|e| e.path.as_str())
    }

    #[test]
    fn the_most_specific_entry_wins() {
        let config = config(
            r#"{ "Directory": [ {"Path": "/data"}, {"Path": "/data/run*"}, {"Path": "/data/run1/"}, {"Path": "/"} ],
                 "File": [ {"Path": "/data/run1/*"}, {"Path": "/data/run1/*.root"}, {"Path": "/data/run1/a.root"},
                           {"Path": "/**/x[12].{bin,dat}"} ] }"#,
        );
        let cases = [
            ("/data/run1/a.root", "/data/run1/a.root"),
            ("/data/run1/b.root", "/data/run1/*.root"),
            ("/data/run1/b.txt", "/data/run1/*"),
            ("/data/run1/deep/b.root", "/data/run1"),
            ("/data/run2/b", "/data/run*"),
            ("/data/other", "/data"),
            ("/data/q/r/x2.dat", "/**/x[12].{bin,dat}"),
            ("/elsewhere/x3.dat", "/"),
        ];
        for (path, expected) in cases {
            assert_eq!(found(&config, path), Some(expected), "{path}");
        }
    }

    #[test]
    fn a_path_without_a_leading_slash_applies_anywhere() {
        let config =
            config(r#"{ "File": [{"Path": "*.root"}], "Directory": [{"Path": "scratch"}] }"#);
        assert_eq!(found(&config, "/a/b/c.root"), Some("*.root"));
        assert_eq!(found(&config, "/c.root"), Some("*.root"));
        assert_eq!(
            found(&config, "/home/me/scratch/deep/file"),
            Some("scratch")
        );
        assert_eq!(found(&config, "/home/me/c.roots"), None);
    }

    #[test]
    fn a_name_with_the_characters_of_a_pattern_matches_itself() {
        let config = config(r#"{ "File": [{"Path": "/d/a[1].{x"}, {"Path": "/d/*"}] }"#);
        assert_eq!(found(&config, "/d/a[1].{x"), Some("/d/a[1].{x"));
    }

    #[test]
    fn names_that_are_not_utf8_are_matched() {
        use std::ffi::OsStr;
        let config = config(r#"{ "File": [{"Path": "/d/*.dat"}] }"#);
        let path = Path::new(OsStr::from_bytes(b"/d/\xff\xfe.dat"));
        assert!(config.lookup(path).is_some());
    }

    #[test]
    fn the_first_of_equals_wins() {
        let config = config(r#"{ "File": [{"Path": "/d/a*"}, {"Path": "/d/*a"}] }"#);
        assert_eq!(found(&config, "/d/aa"), Some("/d/a*"));
    }

    #[test]
    fn a_pattern_full_of_stars_is_matched_in_time() {
        let config = config(&format!(
            r#"{{ "File": [{{"Path": "/{}b"}}] }}"#,
            "a*".repeat(60)
        ));
        assert_eq!(found(&config, &format!("/{}", "a".repeat(4000))), None);
    }
}
