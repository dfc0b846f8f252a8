//! Whether a control group limits what this process may do to a device.

use super::system::device;
use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};

/// The files of the first version that have limits, and what they limit.
const FIRST: [(&str, &str); 4] = [
    ("blkio.throttle.read_bps_device", "reads to {} bytes/s"),
    ("blkio.throttle.write_bps_device", "writes to {} bytes/s"),
    ("blkio.throttle.read_iops_device", "reads to {} a second"),
    ("blkio.throttle.write_iops_device", "writes to {} a second"),
];

/// Keys of the second version's `io.max`.
const SECOND: [(&str, &str); 4] = [
    ("rbps", "reads to {} bytes/s"),
    ("wbps", "writes to {} bytes/s"),
    ("riops", "reads to {} a second"),
    ("wiops", "writes to {} a second"),
];

/// Notes on limits of this process for the device that a file is on.
pub fn throttles(file: &File) -> Vec<String> {
    let Some(number) = device(file).and_then(|it| read_to_string(it.join("dev")).ok()) else {
        return Vec::new();
    };
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = read_to_string("/proc/self/mounts").unwrap_or_default();
    let directories = directories(&groups, &mounts);
    let limits = directories.iter().flat_map(|it| limits(it, number.trim()));
    limits
        .map(|limit| format!("a control group limits {limit}: the figures are of that limit"))
        .collect()
}

/// The directories of this process's groups and all groups above them.
fn directories(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let Some(root) = mounted(mounts, controllers) else {
            continue;
        };
        let group = root.join(group.trim_start_matches('/'));
        let above = group.ancestors().take_while(|path| path.starts_with(&root));
        found.extend(above.map(Path::to_owned));
    }
    found
}

/// Where the groups are: of the second version (no controllers named), or of the first with the block controller.
fn mounted(mounts: &str, controllers: &str) -> Option<PathBuf> {
    let is_first = controllers.split(',').any(|name| name == "blkio");
    if !controllers.is_empty() && !is_first {
        return None;
    }
    let matches = |fields: &Vec<&str>| match (fields.get(2), fields.get(3)) {
        (Some(&"cgroup2"), _) => !is_first,
        (Some(&"cgroup"), Some(options)) => is_first && options.split(',').any(|it| it == "blkio"),
        _ => false,
    };
    let mut lines = mounts.lines().map(|line| line.split(' ').collect());
    let fields: Vec<&str> = lines.find(matches)?;
    fields.get(1).map(PathBuf::from)
}

/// What a group's directory says about a device, by its number.
fn limits(group: &Path, number: &str) -> Vec<String> {
    let read = |name: &str| read_to_string(group.join(name)).unwrap_or_default();
    let of_device = |text: &str| -> Option<String> {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(number)?.strip_prefix(' '))?;
        Some(line.to_owned())
    };
    let first = FIRST.iter().filter_map(|(name, says)| {
        let limit = of_device(&read(name))?;
        Some(says.replace("{}", limit.trim()))
    });
    let second = of_device(&read("io.max")).unwrap_or_default();
    let second = second.split(' ').filter_map(|pair| {
        let (key, limit) = pair.split_once('=')?;
        let (_, says) = SECOND.iter().find(|(name, _)| *name == key)?;
        (limit != "max").then(|| says.replace("{}", limit))
    });
    first.chain(second).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_both_versions_are_found_for_the_device_alone() {
        let group = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(group.path().join(name), text).expect("written");
        };
        assert!(limits(group.path(), "8:0").is_empty());
        write(
            "io.max",
            "8:16 rbps=5 wbps=max\n8:0 rbps=1000 wbps=max riops=max wiops=20\n",
        );
        write("blkio.throttle.read_iops_device", "8:0 77\n");
        let expected = [
            "reads to 77 a second",
            "reads to 1000 bytes/s",
            "writes to 20 a second",
        ];
        assert_eq!(limits(group.path(), "8:0"), expected);
        assert_eq!(limits(group.path(), "8:1"), Vec::<String>::new());
    }

    #[test]
    fn all_groups_above_count() {
        let mounts =
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ncgroup /old/blkio cgroup rw,blkio 0 0\n";
        let found = directories("0::/a/b\n7:blkio:/c\n4:memory:/d\n", mounts);
        let expected = [
            "/sys/fs/cgroup/a/b",
            "/sys/fs/cgroup/a",
            "/sys/fs/cgroup",
            "/old/blkio/c",
            "/old/blkio",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
