//! How much memory there is: what we load ahead must not push out what the programs need.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that this process and the programs beside it can still use: what the machine has, or what their control group
/// may have, whichever is less.
pub fn memory_left() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| available(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = limits(&groups, Path::new("/sys/fs/cgroup")).min();
    machine.unwrap_or(u64::MAX).min(limit.unwrap_or(u64::MAX))
}

/// `MemAvailable` of /proc/meminfo, in bytes.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The limits of the control groups that a process is in, and of those around them, of both versions.
fn limits(groups: &str, root: &Path) -> impl Iterator<Item = u64> {
    let places = groups.lines().filter_map(move |line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some((root.to_owned(), path.to_owned(), "memory.max")),
            c if c.split(',').any(|c| c == "memory") => Some((
                root.join("memory"),
                path.to_owned(),
                "memory.limit_in_bytes",
            )),
            _ => None,
        }
    });
    let files: Vec<PathBuf> = places
        .flat_map(|(root, path, file)| {
            let around = Path::new(&path).ancestors();
            around
                .map(|group| root.join(group).join(file))
                .collect::<Vec<_>>()
        })
        .collect();
    let limit = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    files.into_iter().filter_map(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts_of_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("job/memory.max", "1000\n");
        write("job/step/memory.max", "max\n");
        write("memory/v1/memory.limit_in_bytes", "700\n");
        let groups = "0::/job/step\n4:cpu,memory:/v1\n5:cpuset:/\n";
        let mut found: Vec<u64> = limits(groups, dir.path()).collect();
        found.sort_unstable();
        assert_eq!(found, [700, 1000]);
    }

    #[test]
    fn the_machine_says_what_is_available() {
        let text = "MemTotal:  10 kB\nMemAvailable:    4 kB\n";
        assert_eq!(available(text), Some(4096));
        assert!(memory_left() > 0);
    }
}
