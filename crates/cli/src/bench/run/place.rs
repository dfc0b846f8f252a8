//! The storage that `presagio bench run` runs on: this disk, the same through FUSE, a loop device with a usual
//! read-ahead, and that made slow. What was set up is taken down again.

use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What kind of storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Storage {
    /// The directory's own.
    Disk,
    /// The same through a FUSE file system that passes everything on (bindfs).
    Fuse,
    /// An ext4 file system on a loop device that reads 128 KiB ahead.
    Loop,
}

/// Limits of a cgroup (version 1), for what runs in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throttle {
    /// Reads a second, 0 for any number.
    pub iops: u64,
    /// Bytes a second, 0 for any number.
    pub bytes: u64,
    /// Bytes of memory, page cache included, 0 for any number.
    pub memory: u64,
}

/// Storage, ready to be used.
pub struct Place {
    /// Where files are put.
    pub dir: PathBuf,
    /// Where they really are, which is elsewhere below FUSE.
    pub behind: PathBuf,
    /// The device whose counters tell what was really read, as MAJOR:MINOR.
    device: String,
    undo: Vec<Undo>,
}

enum Undo {
    Unmount(PathBuf),
    Detach(String),
    Remove(PathBuf),
}

/// What a device has done since it was there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Reads that reached it.
    pub reads: u64,
    /// Bytes that it read.
    pub bytes: u64,
}

const LOOP_BYTES: u64 = 4 << 30;

/// A device that reads nothing for so long has nothing more to read; the slowest throttle lets something through every 7 ms.
const SETTLED: Duration = Duration::from_millis(150);
const SETTLE_MAX: Duration = Duration::from_secs(10);

impl Place {
    /// Sets storage up below a directory.
    pub fn new(storage: Storage, below: &Path) -> anyhow::Result<Place> {
        match storage {
            Storage::Disk => Place::disk(below),
            Storage::Fuse => Place::fuse(below),
            Storage::Loop => Place::on_loop(below),
        }
    }

    fn disk(below: &Path) -> anyhow::Result<Place> {
        let dir = below.join("disk");
        fs::create_dir_all(&dir)?;
        let device = device_of(&dir)?;
        Ok(Place {
            undo: vec![Undo::Remove(dir.clone())],
            behind: dir.clone(),
            dir,
            device,
        })
    }

    fn fuse(below: &Path) -> anyhow::Result<Place> {
        let (behind, dir) = (below.join("behind"), below.join("fuse"));
        fs::create_dir_all(&behind)?;
        fs::create_dir_all(&dir)?;
        let device = device_of(&behind)?;
        let mut undo = vec![Undo::Remove(behind.clone())];
        done(Command::new("bindfs").args([&behind, &dir]))?;
        undo.push(Undo::Unmount(dir.clone()));
        Ok(Place {
            dir,
            behind,
            device,
            undo,
        })
    }

    fn on_loop(below: &Path) -> anyhow::Result<Place> {
        let (image, dir) = (below.join("image"), below.join("loop"));
        fs::create_dir_all(&dir)?;
        let mut place = Place {
            dir: dir.clone(),
            behind: dir.clone(),
            device: String::new(),
            undo: vec![Undo::Remove(image.clone())],
        };
        // Every block is there: the disk below must not show through as holes.
        done(
            Command::new("fallocate")
                .args(["-l", &LOOP_BYTES.to_string()])
                .arg(&image),
        )?;
        let name = done(
            Command::new("losetup")
                .args(["--direct-io=on", "--find", "--show"])
                .arg(&image),
        )?;
        place.undo.push(Undo::Detach(name.clone()));
        done(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0", &name]))?;
        done(Command::new("mount").arg(&name).arg(&dir))?;
        place.undo.push(Undo::Unmount(dir.clone()));
        place.device = device_of(&dir)?;
        let setting = format!("/sys/dev/block/{}/queue/read_ahead_kb", place.device);
        fs::write(&setting, "128").with_context(|| setting)?;
        Ok(place)
    }

    /// What its device has done so far.
    pub fn counters(&self) -> anyhow::Result<Counters> {
        let path = format!("/sys/dev/block/{}/stat", self.device);
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let number = |at: usize| text.split_whitespace().nth(at)?.parse::<u64>().ok();
        let (Some(reads), Some(sectors)) = (number(0), number(2)) else {
            bail!("{path} is not what it used to be");
        };
        let bytes = sectors * 512;
        Ok(Counters { reads, bytes })
    }

    /// Waits until the device has nothing more to do. What waits for a throttle outlives who asked for it: it would be counted
    /// for the next run, and take that one's share of the device.
    pub fn settle(&self) -> anyhow::Result<()> {
        let (mut last, mut since) = (self.counters()?, Instant::now());
        let deadline = since + SETTLE_MAX;
        while since.elapsed() < SETTLED && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.counters()?;
            if now.reads != last.reads {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Makes a cgroup whose limits are for this device.
    pub fn limited(&self, throttle: Throttle) -> anyhow::Result<Cgroup> {
        let mut cgroup = Cgroup::default();
        cgroup.device.clone_from(&self.device);
        let limit = |value: u64| format!("{} {value}", self.device);
        if throttle.iops > 0 || throttle.bytes > 0 {
            let group = cgroup.join("blkio")?;
            cgroup.throttled = Some(group.join("blkio.throttle.io_service_bytes"));
            if throttle.iops > 0 {
                set(
                    &group,
                    "blkio.throttle.read_iops_device",
                    &limit(throttle.iops),
                )?;
            }
            if throttle.bytes > 0 {
                set(
                    &group,
                    "blkio.throttle.read_bps_device",
                    &limit(throttle.bytes),
                )?;
            }
        }
        if throttle.memory > 0 {
            let group = cgroup.join("memory")?;
            set(
                &group,
                "memory.limit_in_bytes",
                &throttle.memory.to_string(),
            )?;
        }
        Ok(cgroup)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while let Some(undo) = self.undo.pop() {
            // Nobody is left to tell; what stays behind is in the bench's own directory.
            let _ = match undo {
                Undo::Unmount(dir) => done(Command::new("umount").arg(&dir)).map(drop),
                Undo::Detach(name) => done(Command::new("losetup").args(["-d", &name])).map(drop),
                Undo::Remove(path) if path.is_dir() => fs::remove_dir_all(path).map_err(Into::into),
                Undo::Remove(path) => fs::remove_file(path).map_err(Into::into),
            };
        }
    }
}

/// A group of processes with limits, in as many hierarchies as it needs.
#[derive(Default)]
pub struct Cgroup {
    groups: Vec<PathBuf>,
    /// The device that limits are for.
    device: String,
    /// Where the kernel counts the bytes that it let through the limits.
    throttled: Option<PathBuf>,
}

impl Cgroup {
    fn join(&mut self, controller: &str) -> anyhow::Result<PathBuf> {
        let parent = Path::new("/sys/fs/cgroup").join(controller);
        // In a hierarchy of version 2 this would be made as a group of its own.
        ensure!(
            parent.is_dir(),
            "there is no {}: limits need the controllers of cgroup version 1",
            parent.display()
        );
        let group = parent.join(format!("presagio-bench-{}", std::process::id()));
        fs::create_dir_all(&group)
            .with_context(|| format!("no cgroup can be made in {}", parent.display()))?;
        self.groups.push(group.clone());
        Ok(group)
    }

    /// Bytes that were read from the device through the limits so far; `None` where there are no limits.
    pub fn let_through(&self) -> anyhow::Result<Option<u64>> {
        let Some(path) = &self.throttled else {
            return Ok(None);
        };
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let start = format!("{} Read ", self.device);
        let bytes = text.lines().find_map(|line| line.strip_prefix(&start));
        Ok(Some(bytes.map_or(Ok(0), |bytes| bytes.trim().parse())?))
    }

    /// Whether it limits what is read.
    pub fn throttles(&self) -> bool {
        self.throttled.is_some()
    }

    /// A command that runs in this group, and all that it starts.
    pub fn command(&self, program: &Path) -> Command {
        if self.groups.is_empty() {
            return Command::new(program);
        }
        let mut command = Command::new("sh");
        let join: String = self
            .groups
            .iter()
            .map(|group| format!("echo $$ > '{}/tasks' && ", group.display()))
            .collect();
        command
            .arg("-c")
            .arg(format!("{join}exec \"$0\" \"$@\""))
            .arg(program);
        command
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for group in &self.groups {
            // It is empty as soon as the last of its processes is gone.
            for _ in 0..50 {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

/// Forgets what is in the page cache.
pub fn drop_caches() -> anyhow::Result<()> {
    done(&mut Command::new("sync"))?;
    let path = "/proc/sys/vm/drop_caches";
    fs::write(path, "3").with_context(|| format!("{path} (only root may make the cache cold)"))
}

fn set(group: &Path, file: &str, value: &str) -> anyhow::Result<()> {
    let path = group.join(file);
    fs::write(&path, value).with_context(|| format!("{} = {value}", path.display()))
}

/// The whole device below a directory, as MAJOR:MINOR.
fn device_of(dir: &Path) -> anyhow::Result<String> {
    let stat = rustix::fs::stat(dir)?;
    let (major, minor) = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let real = path
        .canonicalize()
        .with_context(|| format!("{} is on no block device", dir.display()))?;
    let whole = match real.join("partition").exists() {
        true => real.parent().unwrap_or(&real).to_owned(),
        false => real,
    };
    Ok(fs::read_to_string(whole.join("dev"))?.trim().to_owned())
}

/// What a command prints; an error with what it says if it fails.
fn done(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{name} cannot be run"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
