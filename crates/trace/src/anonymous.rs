//! A trace without its names, to be shown to others: what was done stays, who did what to which files goes.
//!
//! Each part of a path becomes a word of letters, the same wherever the part occurs, so that directories stay
//! directories. Parts that differ only by numbers share their word and are numbered in the order in which they come
//! (`out_0010.h5`, `out_0020.h5` become `b1.h5`, `b2.h5`): a series stays one. Endings are kept where everybody uses them.
//! Programs and libraries of call stacks are words too. Commands, functions, machines, process ids and the moment of
//! the start are left out.

use crate::names::Budget;
use crate::{Frame, Place, Process, Record, Source, TraceError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Endings that say how a file is made, not whose it is.
const ENDINGS: &[&str] = &[
    "bin", "bp", "bz2", "c", "chk", "cpp", "csv", "dat", "db", "f90", "fits", "grib", "gz", "h",
    "h5", "hdf5", "html", "in", "ini", "json", "log", "nc", "npy", "npz", "o", "out", "parquet",
    "pdb", "pkl", "py", "pyc", "root", "sh", "so", "tar", "tmp", "toml", "txt", "vtk", "vtu",
    "xml", "xz", "yaml", "zip", "zst",
];

/// Another source without its names.
#[derive(Debug)]
pub struct Anonymous<S> {
    source: S,
    words: Words,
}

impl<S: Source> Anonymous<S> {
    /// Hides the names of `source`.
    pub fn new(source: S) -> Anonymous<S> {
        Anonymous {
            source,
            words: Words::default(),
        }
    }

    fn hidden(&mut self, record: Record) -> Result<Record, TraceError> {
        let hidden = match record {
            Record::File { id, name } => self.words.path(&name).map(|name| Record::File {
                id,
                name: name.into(),
            }),
            Record::Process(process) => Ok(Record::Process(Process {
                id: process.id,
                rank: process.rank,
                ..Process::default()
            })),
            Record::Context { id, frames } => self
                .words
                .frames(&frames)
                .map(|frames| Record::Context { id, frames }),
            other @ (Record::Gap { .. } | Record::Event(_)) => Ok(other),
        };
        hidden.map_err(|problem| {
            let place = Place::Byte(self.source.progress().0);
            TraceError::new(Path::new("trace to be hidden"), place, problem)
        })
    }
}

impl<S: Source> Iterator for Anonymous<S> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.source.next()?;
        Some(record.and_then(|record| self.hidden(record)))
    }
}

impl<S: Source> Source for Anonymous<S> {
    fn behind(&self) -> Option<&dyn Source> {
        Some(&self.source)
    }
}

/// Words for names, in the order of their first use.
#[derive(Debug, Default)]
struct Words {
    /// By names with their numbers cut out: the word, and how many names there are of which only numbers differ.
    families: HashMap<Vec<u8>, (String, u64)>,
    /// By whole names.
    known: HashMap<Vec<u8>, String>,
    budget: Budget,
}

impl Words {
    fn path(&mut self, path: &[u8]) -> Result<Vec<u8>, String> {
        let parts = path.split(|byte| *byte == b'/');
        let words: Result<Vec<String>, String> = parts.map(|part| self.part(part)).collect();
        Ok(words?.join("/").into_bytes())
    }

    /// A part of a path: a word for it, and its ending if everybody uses that.
    fn part(&mut self, part: &[u8]) -> Result<String, String> {
        if matches!(part, b"" | b"." | b"..") {
            return Ok(String::from_utf8_lossy(part).into_owned());
        }
        let (stem, ending) = divided(part);
        let word = self.word(stem)?;
        Ok(match ending {
            Some(ending) => format!("{word}.{ending}"),
            None => word,
        })
    }

    fn word(&mut self, name: &[u8]) -> Result<String, String> {
        if let Some(word) = self.known.get(name) {
            return Ok(word.clone());
        }
        self.budget.take(2 * name.len())?;
        let family: Vec<u8> = name
            .iter()
            .copied()
            .filter(|byte| !byte.is_ascii_digit())
            .collect();
        let is_numbered = family.len() < name.len();
        let count = self.families.len();
        let (letters, members) = self
            .families
            .entry(family)
            .or_insert_with(|| (letters(count), 0));
        let mut word = letters.clone();
        if is_numbered {
            *members += 1;
            word.push_str(&members.to_string());
        }
        self.known.insert(name.to_vec(), word.clone());
        Ok(word)
    }

    fn frames(&mut self, frames: &[Frame]) -> Result<Arc<[Frame]>, String> {
        let hidden = frames.iter().map(|frame| {
            let module = self.path(frame.module.as_bytes())?;
            Ok(Frame {
                module: String::from_utf8_lossy(&module).into(),
                offset: frame.offset,
                symbol: None,
            })
        });
        hidden.collect()
    }
}

/// A name without its ending, and the ending if it is one that everybody uses.
fn divided(name: &[u8]) -> (&[u8], Option<&'static str>) {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let known = dot.filter(|dot| *dot > 0).and_then(|dot| {
        let ending = ENDINGS
            .iter()
            .find(|ending| ending.as_bytes() == &name[dot + 1..]);
        Some((&name[..dot], *ending?))
    });
    match known {
        Some((stem, ending)) => (stem, Some(ending)),
        None => (name, None),
    }
}

/// a, b, … z, aa, ab, …
fn letters(number: usize) -> String {
    let last = char::from(b'a' + (number % 26) as u8);
    match number / 26 {
        0 => last.to_string(),
        more => letters(more - 1) + last.encode_utf8(&mut [0; 4]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(paths: &[&str]) -> Vec<String> {
        let mut words = Words::default();
        let hide = |path: &&str| String::from_utf8(words.path(path.as_bytes()).unwrap()).unwrap();
        paths.iter().map(hide).collect()
    }

    #[test]
    fn directories_stay_directories_and_series_stay_series() {
        let paths = [
            "/home/anna/run_10.h5",
            "/home/anna/run_20.h5",
            "/home/run_10.h5",
            "./anna/../x",
        ];
        assert_eq!(
            hidden(&paths),
            ["/a/b/c1.h5", "/a/b/c2.h5", "/a/c1.h5", "./b/../d"]
        );
    }

    #[test]
    fn an_ending_stays_only_if_it_tells_nothing() {
        let paths = [
            "a.json",
            "a.secretproject",
            ".json",
            "json",
            "a.b.gz",
            "7.7",
        ];
        assert_eq!(hidden(&paths), ["a.json", "b", "c", "d", "e.gz", "f1"]);
    }

    #[test]
    fn there_are_words_enough() {
        let words: Vec<String> = [0, 25, 26, 51, 52, 701, 702].map(letters).into();
        assert_eq!(words, ["a", "z", "aa", "az", "ba", "zz", "aaa"]);
    }

    #[test]
    fn words_do_not_take_memory_without_end() {
        let mut words = Words {
            budget: Budget::of(1000),
            ..Words::default()
        };
        let good = (0..100).take_while(|n| words.path(letters(*n).as_bytes()).is_ok());
        assert_eq!(good.count(), 9);
    }
}
