//! Where the files of a trace go: below one directory, whatever they are called.

use presagio_core::FileId;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Longer paths, or deeper ones, are replaced.
const PATH_MAX: usize = 3000;
const DEPTH_MAX: usize = 64;
/// Most file systems take names of up to 255 bytes.
const NAME_MAX: usize = 200;

/// A file of the trace and its place in the directory.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    root: Arc<Path>,
    /// The directories on the way are there.
    reachable: AtomicBool,
}

impl Target {
    /// Makes the directories on the way. None of them may be a link: that could lead elsewhere.
    pub(super) fn reach(&self) -> io::Result<()> {
        if self.reachable.load(Relaxed) {
            return Ok(());
        }
        let parent = self.path.parent().unwrap_or(&self.root);
        let below = parent.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let mut at = self.root.to_path_buf();
        for part in below {
            at.push(part);
            make_directory(&at)?;
        }
        self.reachable.store(true, Relaxed);
        Ok(())
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other,
    }
    match path.symlink_metadata()?.is_dir() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{} is no directory; replay into an empty one",
            path.display()
        ))),
    }
}

/// The files of a trace that were named so far.
#[derive(Debug)]
pub(super) struct Names {
    root: Arc<Path>,
    targets: HashMap<FileId, Arc<Target>>,
    files: HashSet<PathBuf>,
    directories: HashSet<PathBuf>,
}

impl Names {
    pub(super) fn new(root: &Path) -> Names {
        Names {
            root: root.into(),
            targets: HashMap::new(),
            files: HashSet::new(),
            directories: HashSet::new(),
        }
    }

    /// Notes what a file is called; the first name counts.
    pub(super) fn define(&mut self, id: FileId, name: &[u8]) {
        if self.targets.contains_key(&id) {
            return;
        }
        let path = safe(name)
            .filter(|path| self.is_free(path))
            .unwrap_or_else(|| PathBuf::from(format!("~{id}")));
        let ancestors = path.ancestors().skip(1).map(Path::to_path_buf);
        self.directories.extend(ancestors);
        self.files.insert(path.clone());
        let target = Target {
            path: self.root.join(path),
            root: self.root.clone(),
            reachable: AtomicBool::new(false),
        };
        self.targets.insert(id, Arc::new(target));
    }

    /// The place of a file, also of one that the trace forgot to name.
    pub(super) fn target(&mut self, id: FileId) -> Arc<Target> {
        self.define(id, b"");
        self.targets[&id].clone()
    }

    /// No other file is there, below, or in between.
    fn is_free(&self, path: &Path) -> bool {
        !self.directories.contains(path) && !path.ancestors().any(|a| self.files.contains(a))
    }
}

/// The name as a relative path that cannot leave the directory.
fn safe(name: &[u8]) -> Option<PathBuf> {
    let parts = name.split(|&b| b == b'/');
    let real = parts.filter(|part| !matches!(*part, b"" | b"." | b".."));
    let mut path = PathBuf::new();
    for (depth, part) in real.enumerate() {
        if part.len() > NAME_MAX || depth >= DEPTH_MAX || path.as_os_str().len() > PATH_MAX {
            return None;
        }
        let mut part: Vec<u8> = part
            .iter()
            .map(|&b| if b == 0 { b'_' } else { b })
            .collect();
        // Names with a tilde are ours.
        if part[0] == b'~' {
            part.insert(0, b'_');
        }
        path.push(OsStr::from_bytes(&part));
    }
    (!path.as_os_str().is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    fn place(names: &[&[u8]]) -> Vec<String> {
        let mut all = Names::new(Path::new("root"));
        let place = |(i, name): (usize, &&[u8])| {
            all.define(FileId(i as u64), name);
            all.target(FileId(i as u64))
                .path
                .to_str()
                .unwrap()
                .to_owned()
        };
        names.iter().enumerate().map(place).collect()
    }

    #[test]
    fn names_stay_recognisable_and_inside() {
        let long = [b'x'; 300];
        let names: [&[u8]; 8] = [
            b"/etc/passwd",
            b"../../etc/shadow",
            b"a/./b//c",
            b"..",
            b"~1",
            b"a\0b",
            &long,
            b"",
        ];
        let expected = [
            "root/etc/passwd",
            "root/etc/shadow",
            "root/a/b/c",
            "root/~3",
            "root/_~1",
            "root/a_b",
            "root/~6",
            "root/~7",
        ];
        assert_eq!(place(&names), expected);
    }

    #[test]
    fn names_that_get_in_each_other_s_way_are_replaced() {
        let names: [&[u8]; 6] = [b"/a/b", b"a/b", b"/a", b"/a/b/c", b"/a/c", b"a/../c"];
        let expected = [
            "root/a/b", "root/~1", "root/~2", "root/~3", "root/a/c", "root/~5",
        ];
        // The last is a/c: two dots lead nowhere.
        assert_eq!(place(&names), expected);
    }

    proptest! {
        #[test]
        fn no_name_leads_out_and_no_two_to_the_same_place(
            names in proptest::collection::vec("[a-b./~\0]{0,12}", 1..40)
        ) {
            let names: Vec<&[u8]> = names.iter().map(|n| n.as_bytes()).collect();
            let places = place(&names);
            let distinct: HashSet<&String> = places.iter().collect();
            prop_assert_eq!(distinct.len(), places.len());
            for (i, path) in places.iter().enumerate() {
                let mut parts = Path::new(path).components();
                prop_assert_eq!(parts.next(), Some(Component::Normal(OsStr::new("root"))));
                prop_assert!(parts.clone().count() > 0);
                prop_assert!(parts.all(|part| matches!(part, Component::Normal(_))));
                let below = |other: &String| other.starts_with(&format!("{path}/"));
                prop_assert!(!places.iter().enumerate().any(|(j, other)| i != j && below(other)));
            }
        }
    }
}
