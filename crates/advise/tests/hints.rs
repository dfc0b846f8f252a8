//! Hints do what they claim, on real storage: this machine's disk, a loop device with little read-ahead, FUSE.
//!
//! Files are made cold by writing them out and letting them go, not by dropping all of the machine's caches. Loop
//! devices need root; where there is no root or no FUSE, a test says so and ends.

#[path = "../../core/tests/common/skips.rs"]
mod skips;

use presagio_advise::hints::{Device, HintedFile, Hints, Storage, residency};
use presagio_core::Range;
use rustix::fs::{Advice, fadvise};
use skips::skipped;
use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: u64 = 24 << 20;
const ALL: Range = Range::at(0, SIZE);

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn write_file(path: &Path) -> File {
    let mut file = File::create(path).unwrap();
    let piece: Vec<u8> = (0..1 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for _ in 0..SIZE >> 20 {
        file.write_all(&piece).unwrap();
    }
    file.sync_all().unwrap();
    File::open(path).unwrap()
}

/// Lets all of a file go. Pages that are still on their way cannot be, hence the read.
fn cool(file: &File) {
    let mut piece = vec![0; 1 << 20];
    let is_cold = |_| {
        for start in (0..SIZE).step_by(piece.len()) {
            file.read_exact_at(&mut piece, start).unwrap();
        }
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        residency(file, ALL).unwrap() == 0
    };
    assert!((0..20).any(is_cold), "the file could not be made cold");
}

/// What one call really loads.
fn one_call(file: &File, device: &Device) -> u64 {
    let loads = |_| {
        cool(file);
        fadvise(file, 0, NonZeroU64::new(SIZE), Advice::WillNeed).unwrap();
        residency(file, ALL).unwrap()
    };
    let loaded = (0..3).map(loads).max().unwrap();
    let (name, step) = (&device.name, device.step() >> 10);
    println!(
        "{name}: one call loads {} KiB, we split at {step} KiB",
        loaded >> 10
    );
    loaded
}

/// A page may be taken away at any moment, on machines that reclaim idle ones; but not always.
fn loads_everything(hinted: &HintedFile) {
    let file = &hinted.target().file;
    let loaded = |_| {
        cool(file);
        hinted.will_need(ALL).there == SIZE && residency(file, ALL).unwrap() == SIZE
    };
    assert!((0..20).any(loaded), "{hinted:?}");
}

/// What is undone at the end of a test, in this order.
#[derive(Default)]
struct Undo(Vec<Vec<String>>);

impl Undo {
    fn add(&mut self, command: &[&str]) {
        self.0
            .insert(0, command.iter().map(|&c| c.to_owned()).collect());
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for command in &self.0 {
            let status = Command::new(&command[0]).args(&command[1..]).status();
            println!("{command:?}: {status:?}");
        }
    }
}

fn run(command: &[&str]) -> Result<String, String> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.map_err(|e| format!("{}: {e}", command[0]))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!(
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

#[test]
fn on_the_disk_split_hints_load_everything_and_one_does_not() {
    let directory = directory();
    let file = write_file(&directory.path().join("data"));
    let device = Device::of(&file).unwrap();
    if device.storage != Storage::Local {
        return skipped(&format!("the build directory lies on {:?}", device.storage));
    }
    let loaded = one_call(&file, &device);
    assert!(loaded >= device.step().min(SIZE), "split too coarsely");
    let hints = Hints::default();
    let hinted = hints.open(file).unwrap();
    loads_everything(&hinted);
    println!("{}", hints.summary()[0]);
}

/// An ext4 file system on a loop device, or why there is none.
fn loop_device(directory: &Path, undo: &mut Undo) -> Result<(PathBuf, PathBuf), String> {
    if fs::metadata("/proc/self").map_err(|e| e.to_string())?.uid() != 0 {
        return Err("loop devices need root".into());
    }
    let (image, mount) = (directory.join("image"), directory.join("mount"));
    File::create(&image)
        .and_then(|f| f.set_len(4 * SIZE))
        .map_err(|e| e.to_string())?;
    fs::create_dir(&mount).map_err(|e| e.to_string())?;
    let (image, mount_point) = (image.to_str().unwrap(), mount.to_str().unwrap());
    let device = run(&["losetup", "--find", "--show", "--direct-io=on", image])?;
    undo.add(&["losetup", "--detach", &device]);
    run(&["mkfs.ext4", "-q", &device])?;
    run(&["mount", &device, mount_point])?;
    undo.add(&["umount", mount_point]);
    let name = Path::new(&device).file_name().unwrap();
    let queue = Path::new("/sys/block").join(name).join("queue");
    // The next user of the loop device finds it as it was.
    let limit = queue.join("max_sectors_kb");
    let before = fs::read_to_string(&limit).map_err(|e| e.to_string())?;
    let restore = format!("echo {} > {}", before.trim(), limit.display());
    undo.add(&["sh", "-c", &restore]);
    fs::write(queue.join("read_ahead_kb"), "128").map_err(|e| e.to_string())?;
    Ok((mount, queue))
}

#[test]
fn on_a_loop_device_split_hints_load_everything_and_a_smaller_limit_is_learned() {
    let directory = directory();
    let mut undo = Undo::default();
    let (mount, queue) = match loop_device(directory.path(), &mut undo) {
        Ok(made) => made,
        Err(reason) => return skipped(&reason),
    };
    let file = write_file(&mount.join("data"));
    let hints = Hints::default();
    let device = Device::of(&file).unwrap();
    assert_eq!(device.read_ahead_kb, Some(128));
    let loaded = one_call(&file, &device);
    assert!(loaded < SIZE && loaded >= device.step());
    loads_everything(&hints.open(file).unwrap());

    // The limit shrinks behind our back.
    fs::write(queue.join("max_sectors_kb"), "64").unwrap();
    let hinted = hints.open(File::open(mount.join("data")).unwrap()).unwrap();
    let learned = |_| {
        loads_everything(&hinted);
        hinted.target().device.step() == 128 << 10
    };
    assert!((0..20).any(learned), "{hinted:?}");
    one_call(&hinted.target().file, &hinted.target().device);
    println!("{}", hints.summary()[0]);
    assert!(!hints.summary()[0].contains("force"));
}

/// A directory seen through FUSE, or why it cannot be.
fn fuse(directory: &Path, undo: &mut Undo) -> Result<PathBuf, String> {
    let (below, mount) = (directory.join("below"), directory.join("mount"));
    fs::create_dir(&below)
        .and_then(|()| fs::create_dir(&mount))
        .map_err(|e| e.to_string())?;
    if !Path::new("/dev/fuse").exists() {
        return Err("there is no /dev/fuse".into());
    }
    write_file(&below.join("data"));
    match run(&["bindfs", below.to_str().unwrap(), mount.to_str().unwrap()]) {
        Err(e) if e.contains("os error 2") => {
            panic!("the tests need bindfs (make test installs it)")
        }
        Err(e) => return Err(e),
        Ok(_) => {}
    }
    let unmount = if run(&["fusermount3", "-V"]).is_ok() {
        "fusermount3"
    } else {
        "fusermount"
    };
    undo.add(&[unmount, "-u", mount.to_str().unwrap()]);
    Ok(mount)
}

#[test]
fn on_fuse_split_hints_load_everything_and_one_does_not() {
    let directory = directory();
    let mut undo = Undo::default();
    let mount = match fuse(directory.path(), &mut undo) {
        Ok(mount) => mount,
        Err(reason) => return skipped(&reason),
    };
    let file = File::open(mount.join("data")).unwrap();
    let hints = Hints::default();
    let hinted = hints.open(file).unwrap();
    assert_eq!(hinted.target().device.storage, Storage::Fuse);
    let device = &hinted.target().device;
    let loaded = one_call(&hinted.target().file, device);
    assert!(loaded < SIZE && loaded >= device.step());
    loads_everything(&hinted);
    println!("{}", hints.summary()[0]);
}

#[test]
fn on_an_overlay_hints_load_everything_and_the_step_is_found_by_trying() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    ["lower", "upper", "work", "mount"]
        .iter()
        .for_each(|name| fs::create_dir(path(name)).unwrap());
    write_file(&directory.path().join("lower/data"));
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        path("lower"),
        path("upper"),
        path("work")
    );
    if let Err(reason) = run(&[
        "mount",
        "-t",
        "overlay",
        "overlay",
        "-o",
        &layers,
        &path("mount"),
    ]) {
        return skipped(&reason);
    }
    let mut undo = Undo::default();
    undo.add(&["umount", &path("mount")]);
    let hints = Hints::default();
    let hinted = hints.open(File::open(path("mount/data")).unwrap()).unwrap();
    assert_eq!(hinted.target().device.storage, Storage::Overlay);
    let before = hinted.target().device.step();
    loads_everything(&hinted);
    loads_everything(&hinted);
    println!(
        "overlay: we split at {} KiB, then at {} KiB",
        before >> 10,
        hinted.target().device.step() >> 10
    );
    println!("{}", hints.summary()[0]);
    assert!(!hints.summary()[0].contains("force"));
}
