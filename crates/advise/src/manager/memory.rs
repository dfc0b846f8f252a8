//! How much memory there is: what we load ahead must not push out what the programs need.
//!
//! What counts is the machine, each control group that we are in, and all groups around them. Pages of files that were
//! not used lately are as good as free: the kernel takes them when it needs them.

use crate::plan::Memory;
use std::fs;
use std::path::{Path, PathBuf};

/// Less than this share is left, and memory is short.
const SHORT: u64 = 8;

/// A bound on memory: the machine's, or that of a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    total: u64,
    left: u64,
}

/// What this process and the programs beside it can still use: of what the machine has, or of what their control groups
/// may have, whichever is less.
pub(super) fn now() -> Memory {
    within(&bounds())
}

fn within(bounds: &[Bound]) -> Memory {
    let left = bounds.iter().map(|bound| bound.left);
    Memory {
        left: left.min().unwrap_or(u64::MAX),
        is_short: bounds.iter().any(Bound::is_short),
    }
}

impl Bound {
    fn is_short(&self) -> bool {
        self.left < self.total / SHORT
    }
}

/// All that bound us, the machine first.
fn bounds() -> Vec<Bound> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = groups(&read("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    let machine = machine(&read("/proc/meminfo"));
    machine.into_iter().chain(groups).collect()
}

/// What /proc/meminfo says.
fn machine(text: &str) -> Option<Bound> {
    let kib = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(Bound {
        total: kib("MemTotal:")? * 1024,
        left: kib("MemAvailable:")? * 1024,
    })
}

/// The control groups that a process is in, and those around them, of both versions, as far as they have a limit.
fn groups(groups: &str, root: &Path) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, names) = match controllers {
            "" => (root.to_owned(), &SECOND),
            c if c.split(',').any(|c| c == "memory") => (root.join("memory"), &FIRST),
            _ => continue,
        };
        let around = Path::new(path.trim_start_matches('/')).ancestors();
        bounds.extend(around.filter_map(|group| names.bound(&root.join(group))));
    }
    bounds
}

/// What the files of a control group are called.
struct Names {
    /// Limits, of which the least counts.
    limits: &'static [&'static str],
    used: &'static str,
    /// Of `memory.stat`: pages of files that were not used lately, in this group and those in it.
    inactive: &'static str,
}

const FIRST: Names = Names {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    inactive: "total_inactive_file ",
};
const SECOND: Names = Names {
    // Above `high` processes are held up until they have given memory back.
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    inactive: "inactive_file ",
};

impl Names {
    fn bound(&self, group: &Path) -> Option<Bound> {
        let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let limits = self.limits.iter();
        // A group that has none says "max", or a number that no machine reaches.
        let limits = limits.filter_map(|name| number(group.join(name)));
        let total = limits.min().filter(|limit| *limit < 1 << 60)?;
        let used = number(group.join(self.used)).unwrap_or(0);
        let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let mut lines = statistics.lines();
        let inactive = lines.find_map(|line| line.strip_prefix(self.inactive)?.parse().ok());
        let busy = used.saturating_sub(inactive.unwrap_or(0));
        let left = total.saturating_sub(busy);
        Some(Bound { total, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn what_is_left_of_a_limit_counts_in_all_groups_of_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| write(dir.path(), path, text);
        write("job/memory.max", "1000\n");
        write("job/memory.high", "max\n");
        write("job/memory.current", "900\n");
        write("job/memory.stat", "anon 100\ninactive_file 300\nfile 500\n");
        write("job/step/memory.max", "max\n");
        write("memory/v1/memory.limit_in_bytes", "700\n");
        write("memory/v1/memory.usage_in_bytes", "650\n");
        write(
            "memory/v1/memory.stat",
            "inactive_file 1\ntotal_inactive_file 30\n",
        );
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let found = groups("0::/job/step\n4:cpu,memory:/v1\n5:cpuset:/\n", dir.path());
        let bound = |total, left| Bound { total, left };
        assert_eq!(found, [bound(1000, 400), bound(700, 80)]);
        let short: Vec<bool> = found.iter().map(Bound::is_short).collect();
        assert_eq!(short, [false, true]);
        let memory = Memory {
            left: 80,
            is_short: true,
        };
        assert_eq!(within(&found), memory);
    }

    #[test]
    fn above_its_high_mark_a_group_has_nothing_left() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "job/memory.max", "1000\n");
        write(dir.path(), "job/memory.high", "500\n");
        write(dir.path(), "job/memory.current", "600\n");
        let found = groups("0::/job\n", dir.path());
        assert_eq!(
            found,
            [Bound {
                total: 500,
                left: 0
            }]
        );
    }

    #[test]
    fn the_machine_says_what_is_available() {
        let text = "MemTotal:  10 kB\nMemAvailable:    4 kB\n";
        let found = machine(text).unwrap();
        assert_eq!((found.total, found.left), (10 << 10, 4 << 10));
        assert!(now().left > 0 && now().left < u64::MAX);
    }
}
