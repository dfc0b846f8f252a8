//! The closed loop, on by default: a program whose reads wait for a slow device is helped, and whoever ran it is told how.
//!
//! The device is a loop device whose reads a control group limits, so that what a read waits for is known however busy the
//! machine is. Where no such device can be made, the test says so and ends.

use super::*;

const BYTES: u64 = 48 << 20;
/// Pairs of runs, of which most are to be helped.
const ROUNDS: u32 = 5;

/// Reads of 32 KiB on average over about half of the file, onwards with gaps, now and then further back, a short pause after
/// each; prints what was read.
const READER: &str = "
import hashlib, os, random, time
dice, digest, at = random.Random(7), hashlib.sha256(), 0
file = os.open('data', os.O_RDONLY)
for i in range(400):
    length = dice.randrange(16 << 10, 48 << 10)
    back = dice.randrange(1 << 20, 2 << 20) if i % 30 == 29 else 0
    digest.update(os.pread(file, length, max(at - back, 0)))
    if not back:
        at += length + dice.randrange(16 << 10, 96 << 10)
    time.sleep(0.0003)
print(digest.hexdigest())
";

/// Lets the file go, as far as it is in memory.
const COOL: &str = "
import os
file = os.open('data', os.O_RDONLY)
os.fsync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
";

/// A file system on a slow device, and the control group that makes it slow. Both are gone with it.
struct Slow {
    mount: PathBuf,
    group: PathBuf,
    undo: Vec<Vec<String>>,
}

impl Slow {
    /// Below a directory; or why there is none.
    fn new(place: &Place) -> Result<Slow, String> {
        let mount = place.path("mount");
        let mut slow = Slow {
            group: PathBuf::from(format!(
                "/sys/fs/cgroup/blkio/presagio-test-{}",
                std::process::id()
            )),
            mount: mount.clone(),
            undo: Vec::new(),
        };
        let (image, at) = (place.text("image"), place.text("mount"));
        fs::create_dir_all(&mount).map_err(|e| e.to_string())?;
        done(&["fallocate", "-l", &(2 * BYTES).to_string(), &image])?;
        let device = done(&["losetup", "--find", "--show", "--direct-io=on", &image])?;
        slow.undo_by(&["losetup", "--detach", &device]);
        done(&["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", &device])?;
        done(&["mount", &device, &at])?;
        slow.undo_by(&["umount", &at]);
        slow.limit(&device)?;
        Ok(slow)
    }

    /// Few operations a second, and little reading ahead.
    fn limit(&mut self, device: &str) -> Result<(), String> {
        let name = Path::new(device).file_name().unwrap_or_default();
        let block = Path::new("/sys/block").join(name);
        let number = fs::read_to_string(block.join("dev")).map_err(|e| e.to_string())?;
        let write = |path: PathBuf, text: String| {
            fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        write(block.join("queue/read_ahead_kb"), "128".into())?;
        fs::create_dir(&self.group).map_err(|e| e.to_string())?;
        let limit = self.group.join("blkio.throttle.read_iops_device");
        write(limit, format!("{} 250", number.trim()))
    }

    fn undo_by(&mut self, command: &[&str]) {
        let words = command.iter().map(|&word| word.to_owned());
        self.undo.push(words.collect());
    }

    /// Runs a command here, with a cold file.
    fn run(&self, place: &Place, command: &[&str]) -> Ended {
        let mut cool = Command::new("python3");
        let cool = cool.args(["-c", COOL]).current_dir(&self.mount);
        let cooled = cool.status();
        assert!(cooled.unwrap().success());
        let join = format!(
            "echo $$ > {}/cgroup.procs && exec \"$@\"",
            self.group.display()
        );
        let mut run = place.presagio();
        run.current_dir(&self.mount).args(["run", "--off", "--"]);
        let run = run.args(["sh", "-c", &join, "sh"]).args(command);
        Ended::of(run.output().unwrap()).ok()
    }

    /// Runs the reader under `presagio run`: what it printed, and the summary.
    fn guided(&self, place: &Place, models: &str, options: &[&str]) -> (String, Value) {
        let (json, models) = (place.text("s.json"), place.text(models));
        let run = [
            program(),
            "run",
            "-q",
            "--json",
            &json,
            "--model-dir",
            &models,
        ];
        let command = [&run[..], options, &["--", "python3", "-c", READER]].concat();
        let ended = self.run(place, &command);
        let text = fs::read_to_string(json).unwrap();
        (ended.out, serde_json::from_str(&text).unwrap())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        while let Some(command) = self.undo.pop() {
            let _ = Command::new(&command[0]).args(&command[1..]).status();
        }
        // It is empty once the manager of the last run is gone.
        for _ in 0..100 {
            if !self.group.exists() || fs::remove_dir(&self.group).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn done(command: &[&str]) -> Result<String, String> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.map_err(|e| format!("{}: {e}", command[0]))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("{command:?}: {said}")),
    }
}

/// What was asked for, loaded or the like, for a reason; nothing if there was no such reason.
fn by_reason(json: &Value, reason: &str, what: &str) -> u64 {
    let value = &json["prefetch"]["by_reason"][reason][what];
    value.as_u64().unwrap_or(0)
}

/// Bytes that were loaded because they would be read.
fn loaded(json: &Value) -> u64 {
    let of = |reason: &str| by_reason(json, reason, "bytes_loaded");
    of("sieving") + of("exact")
}

/// A method by its name, with what a read waits with it.
fn says_why(json: &Value) -> bool {
    let decided = json["decided"].as_array().unwrap();
    let decided = decided.iter().filter_map(Value::as_str);
    let mut of_file = decided.filter(|line| line.contains("/data: "));
    of_file.any(|line| {
        let method = ["sieving", "exact loads"].iter().any(|m| line.contains(m));
        method && line.contains(" ms with ")
    })
}

/// The report of the last run has what its reads waited, with what was done and without, as figures.
fn is_reported(place: &Place) -> bool {
    let report = presagio_ok(&["report", "--json", &place.text("s.json")]).json();
    let waits = report["runs"][0]["prefetch"]["waits"].as_array().unwrap();
    waits.iter().any(|wait| {
        let is_of_file = wait["name"].as_str().unwrap().ends_with("/data");
        is_of_file && wait["without_ns"].as_u64() > Some(0)
    })
}

#[test]
fn by_default_what_will_be_read_is_loaded_and_the_second_run_knows_it_from_the_start() {
    let place = Place::new("loop");
    let slow = match Slow::new(&place) {
        Ok(slow) => slow,
        Err(reason) => return skipped(&format!("no slow device can be made here: {reason}")),
    };
    let mut noise = fs::read(place.path("in")).unwrap();
    noise = noise.repeat(BYTES as usize / noise.len() + 1);
    noise.truncate(BYTES as usize);
    fs::write(slow.mount.join("data"), noise).unwrap();

    let plain = slow.run(&place, &["python3", "-c", READER]).out;
    let (out, watched) = slow.guided(&place, "none", &["--observe"]);
    assert_eq!(out, plain);
    assert_eq!(watched["prefetch"]["by_reason"], serde_json::json!({}));

    // On a machine where others take all of the time the manager may come too late; but not most of the time. And where loading all
    // there is takes no longer, exact loads need not be the choice of each run.
    let (mut helped, mut exact) = (0, 0);
    for round in 0..ROUNDS {
        let models = format!("models{round}");
        let (out, first) = slow.guided(&place, &models, &[]);
        assert_eq!(out, plain);
        // The second run may never do nothing for long enough to tell what that takes.
        let reported = is_reported(&place);
        let (out, second) = slow.guided(&place, &models, &[]);
        assert_eq!(out, plain);
        let told = says_why(&first) && says_why(&second) && reported;
        let useful = number(&second, "/prefetch/bytes_useful");
        if loaded(&first) > 0 && loaded(&second) > 0 && useful > 0 && told {
            helped += 1;
            exact += u32::from(by_reason(&second, "exact", "bytes_loaded") > 0);
        } else {
            eprintln!("round {round}: {first:#}\n{second:#}");
        }
        if helped > ROUNDS / 2 && exact > 0 {
            return;
        }
    }
    panic!("of {ROUNDS} second runs {helped} were helped, {exact} of them by exact loads");
}
