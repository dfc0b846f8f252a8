//! Models that are kept from run to run, one for each program as it is usually called.
//!
//! A program is known by its build id (or else its path), its arguments with numbers left out, and its rank: the
//! second run of `app -step 7` finds what was learned from `app -step 6`, a rebuilt `app` begins anew. Models lie in one
//! directory, whose size is bounded: what was used longest ago goes first. They are written whole or not at all; one that
//! is damaged is not used, and said so.

use super::elf;
use presagio_predict::Model;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A process that did less teaches nothing that is worth a file.
const OPERATIONS_MIN: u64 = 32;
/// A model that is larger is not kept.
const MODEL_BYTES_MAX: usize = 8 << 20;
/// All models in memory.
const KNOWN_BYTES_MAX: usize = 64 << 20;
/// Programs that are remembered in memory, with a model or without.
const KNOWN_MAX: usize = 4096;
/// All models in the directory.
const DIRECTORY_BYTES_MAX: u64 = 256 << 20;
/// More than so many complaints are no help.
const NOTES_MAX: usize = 3;

/// A program as it is usually called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    /// The program's file name, for people who look at the directory.
    pub name: String,
    /// All that it is known by, as a number.
    pub hash: u64,
}

impl Identity {
    /// The program in the file `image`, with these arguments and rank.
    pub fn new(image: &Path, arguments: &[&[u8]], rank: Option<u32>) -> Identity {
        let mut hash = Hash::new();
        match elf::build_id(image) {
            Some(id) => hash.add(&id),
            None => hash.add(image.as_os_str().as_encoded_bytes()),
        }
        // One file can be several programs, by the name that it is called with.
        let first = arguments.first().copied().unwrap_or(b"program");
        let name = first.rsplit(|b| *b == b'/').next().unwrap_or(first);
        hash.add(name);
        for argument in arguments.iter().skip(1) {
            hash.add(&without_numbers(argument));
        }
        hash.add(format!("{rank:?}").as_bytes());
        let plain = |b: &u8| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => char::from(*b),
            _ => '_',
        };
        Identity {
            name: name.iter().take(40).map(plain).collect(),
            hash: hash.0,
        }
    }
}

/// Runs of digits count as one.
fn without_numbers(argument: &[u8]) -> Vec<u8> {
    let mut text: Vec<u8> = argument
        .iter()
        .map(|b| if b.is_ascii_digit() { b'#' } else { *b })
        .collect();
    text.dedup_by(|a, b| *a == b'#' && *b == b'#');
    text
}

/// FNV-1a, with a mark between parts.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Models {
    directory: Option<PathBuf>,
    known: BTreeMap<u64, Known>,
    /// How many processes began with a model.
    pub begun: u64,
    /// How many models were written.
    pub saved: u64,
    pub notes: Vec<String>,
}

#[derive(Debug, Default)]
struct Known {
    name: String,
    bytes: Option<Arc<[u8]>>,
    is_changed: bool,
}

impl Models {
    /// Models of this directory; none are kept if there is none.
    pub fn new(directory: Option<PathBuf>) -> Models {
        Models {
            directory,
            ..Models::default()
        }
    }

    /// What is known of a program; an empty model if nothing is.
    pub fn begin(&mut self, identity: &Identity) -> Model {
        let Some(bytes) = self.bytes(identity) else {
            return Model::new();
        };
        match Model::load(&bytes, identity.hash) {
            Ok(model) => {
                self.begun += 1;
                model
            }
            Err(error) => {
                let path = self.path(identity, "model").unwrap_or_default();
                self.note(format!("{}: {error}", path.display()));
                self.known.remove(&identity.hash);
                Model::new()
            }
        }
    }

    fn bytes(&mut self, identity: &Identity) -> Option<Arc<[u8]>> {
        if let Some(known) = self.known.get(&identity.hash) {
            return known.bytes.clone();
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|_, known| known.is_changed);
        }
        let bytes = self.read(identity, "model").map(Arc::from);
        let known = Known {
            name: identity.name.clone(),
            bytes: bytes.clone(),
            is_changed: false,
        };
        self.known.insert(identity.hash, known);
        bytes
    }

    /// A process has ended, and this is what was learned from it in so many operations.
    pub fn end(&mut self, identity: &Identity, model: &Model, operations: u64) {
        if self.directory.is_none() || operations < OPERATIONS_MIN {
            return;
        }
        let bytes = model.save(identity.hash);
        if bytes.len() > MODEL_BYTES_MAX {
            self.note(format!(
                "the model of {} would take {} MiB: it is not kept",
                identity.name,
                bytes.len() >> 20
            ));
            return;
        }
        let known = self.known.entry(identity.hash).or_default();
        known.name.clone_from(&identity.name);
        known.bytes = Some(bytes.into());
        known.is_changed = true;
        let held = self.known.values().filter_map(|k| k.bytes.as_ref());
        if held.map(|bytes| bytes.len()).sum::<usize>() > KNOWN_BYTES_MAX {
            self.save();
            self.known.clear();
        }
    }

    /// Writes what is new.
    pub fn save(&mut self) {
        let changed: Vec<(Identity, Arc<[u8]>)> = self
            .known
            .iter_mut()
            .filter_map(|(hash, known)| {
                if !std::mem::take(&mut known.is_changed) {
                    return None;
                }
                let (name, hash) = (known.name.clone(), *hash);
                Some((Identity { name, hash }, known.bytes.clone()?))
            })
            .collect();
        for (identity, bytes) in changed {
            self.saved += u64::from(self.write(&identity, "model", &bytes));
        }
    }

    /// What was kept of a program under another name than that of its model.
    pub fn read(&mut self, identity: &Identity, kind: &str) -> Option<Vec<u8>> {
        let path = self.path(identity, kind)?;
        let size = fs::metadata(&path).ok()?.len();
        if size > 4 * MODEL_BYTES_MAX as u64 {
            self.note(format!(
                "{}: it is too large to be ours: delete it",
                path.display()
            ));
            return None;
        }
        fs::read(&path).ok()
    }

    /// Keeps something of a program; whether that worked.
    pub fn write(&mut self, identity: &Identity, kind: &str, bytes: &[u8]) -> bool {
        let Some(path) = self.path(identity, kind) else {
            return false;
        };
        let written = replace(&path, bytes);
        if let Err(error) = &written {
            let directory = path.parent().unwrap_or(&path).display();
            self.note(format!(
                "what was learned cannot be kept in {directory}: {error}; name another directory with --model-dir, or use --no-model"
            ));
        }
        written.is_ok()
    }

    fn path(&self, identity: &Identity, kind: &str) -> Option<PathBuf> {
        let name = format!("{}-{:016x}.{kind}", identity.name, identity.hash);
        Some(self.directory.as_ref()?.join(name))
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Keeps the directory within its bounds.
    pub fn tidy(&self) {
        if let Some(directory) = &self.directory {
            tidy(directory, DIRECTORY_BYTES_MAX);
        }
    }
}

/// Writes a file whole or not at all.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    // What a program does is its user's business alone.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut file = tempfile::Builder::new()
        .prefix(".presagio-")
        .tempfile_in(directory)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// Deletes what was used longest ago, of what is ours, until the rest is small enough.
fn tidy(directory: &Path, bytes_max: u64) {
    let ours = |name: &str| name.ends_with(".model") || name.ends_with(".mind");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(ours))
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut total: u64 = files.iter().map(|file| file.1).sum();
    for (_, size, path) in files {
        if total <= bytes_max {
            return;
        }
        let _ = fs::remove_file(path);
        total -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};

    fn identity(arguments: &[&str]) -> Identity {
        let arguments: Vec<&[u8]> = arguments.iter().map(|a| a.as_bytes()).collect();
        Identity::new(Path::new("/nowhere/app"), &arguments, None)
    }

    fn learned() -> Model {
        let mut model = Model::new();
        for step in 0..100 {
            model.observe(&Event {
                time: Nanos(step * 1000),
                duration: Nanos(10),
                process: 0,
                thread: 0,
                file: FileId(1),
                action: Action::Read,
                layer: Layer::Posix,
                context: ContextId::UNKNOWN,
                offset: step * 10,
                len: 10,
                result: 10,
            });
        }
        model
    }

    #[test]
    fn numbers_in_arguments_do_not_make_another_program() {
        assert_eq!(
            identity(&["app", "-n", "17"]),
            identity(&["app", "-n", "4"])
        );
        assert_ne!(identity(&["app", "-n"]), identity(&["app", "-m"]));
        assert_ne!(identity(&["app", "ab"]), identity(&["app", "a", "b"]));
    }

    #[test]
    fn a_second_run_begins_with_what_the_first_learned() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("new/models");
        let mut models = Models::new(Some(place.clone()));
        assert_eq!(models.begin(&identity(&["app"])).observed(), 0);
        models.end(&identity(&["app"]), &learned(), 100);
        models.save();
        assert_eq!((models.begun, models.saved), (0, 1));
        let mut models = Models::new(Some(place));
        assert_eq!(models.begin(&identity(&["app"])).observed(), 100);
        assert_eq!(models.begin(&identity(&["other"])).observed(), 0);
        assert!(models.notes.is_empty());
    }

    #[test]
    fn a_damaged_model_is_ignored_and_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut models = Models::new(Some(dir.path().into()));
        models.write(&identity(&["app"]), "model", b"nonsense");
        assert_eq!(models.begin(&identity(&["app"])).observed(), 0);
        assert!(
            models.notes[0].contains("not a model"),
            "{:?}",
            models.notes
        );
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_a_note_with_advice() {
        let mut models = Models::new(Some("/proc/no/such".into()));
        models.end(&identity(&["app"]), &learned(), 100);
        models.save();
        assert_eq!(models.saved, 0);
        assert!(
            models.notes[0].contains("--model-dir"),
            "{:?}",
            models.notes
        );
    }

    #[test]
    fn the_oldest_models_go_first() {
        let dir = tempfile::tempdir().unwrap();
        for (age, name) in ["new.model", "old.model", "oldest.mind"].iter().enumerate() {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            (&file).write_all(&[0; 100]).unwrap();
            let when = SystemTime::now() - std::time::Duration::from_secs(1000 * age as u64);
            file.set_modified(when).unwrap();
        }
        fs::write(dir.path().join("yours"), [0; 1000]).unwrap();
        tidy(dir.path(), 150);
        let left = |name: &str| dir.path().join(name).exists();
        assert!(left("new.model") && left("yours"));
        assert!(!left("old.model") && !left("oldest.mind"));
    }
}
