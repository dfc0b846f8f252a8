//! Real programs on a mount while its node is killed (-9) and comes back, and what they see of storage that is full or may
//! not be written; static ones too; and what becomes of fsync, with a mount and without.
//!
//! Needs root and /dev/fuse.

mod common;

use common::apart::{apart, run};
use common::forwarded::{FAR, forwarded, succeeds};
use common::nodes::{
    At, Mounted, Node, PROGRAMS, Running, beside, killed_while, pattern, script, until,
};
use common::skips::skipped;
use common::{presagio_ok, program};
use rustix::process::{Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(200);
/// What a script may take, so that what hangs is seen to hang.
const SCRIPT: Duration = Duration::from_secs(150);

/// A node, and a mount of it.
struct Site {
    mount: Mounted,
    node: Node,
}

impl Site {
    fn start(dir: &Path, export: &Path, more: &[&str]) -> Site {
        let node = Node::unix(dir, "socket", export, more);
        let mount = Mounted::start(&[&node.at], &dir.join("mnt"), None, &[]);
        Site { mount, node }
    }

    fn on(dir: &Path) -> Site {
        let export = dir.join("export");
        fs::create_dir(&export).unwrap();
        // Locks can be had again soon after the node was killed.
        Site::start(dir, &export, &["--grace", "0.5"])
    }

    /// Runs a script on the mount, and kills the node meanwhile, again and again, until `seconds` are over. Then there is
    /// a file "$OUTSIDE/stop".
    fn survives(&mut self, dir: &Path, seconds: u64, text: &str) {
        let mnt = self.mount.path("");
        let programs = Path::new(PROGRAMS);
        let environment = [("FAR", &*mnt), ("OUTSIDE", dir), ("PROGRAMS", programs)];
        let said = killed_while(&mut self.node, dir, seconds, || {
            script(&mnt, &environment, SCRIPT, text)
        });
        println!("{}", said.trim());
    }
}

#[test]
fn ranks_that_share_files_do_not_see_that_the_node_is_killed() {
    apart(
        "ranks_that_share_files_do_not_see_that_the_node_is_killed",
        BOUND,
        |dir| {
            let mut site = Site::on(dir);
            site.survives(
                dir,
                12,
                r#"
            mpicc.openmpi -O1 -o "$OUTSIDE/ranks" "$PROGRAMS/ranks.c"
            rounds=0
            while [ ! -e "$OUTSIDE/stop" ]; do
                mpirun.openmpi --oversubscribe -n 4 "$OUTSIDE/ranks" "$PWD" 40
                rounds=$((rounds + 40))
            done
            cmp own0 "$OUTSIDE/export/own0"; cmp strided "$OUTSIDE/export/strided"
            echo $rounds rounds
        "#,
            );
        },
    );
}

#[test]
fn a_python_program_that_forks_does_not_see_that_the_node_is_killed() {
    apart(
        "a_python_program_that_forks_does_not_see_that_the_node_is_killed",
        BOUND,
        |dir| {
            let mut site = Site::on(dir);
            let forking = r#"python3 "$PROGRAMS/forking.py" "$PWD" "$OUTSIDE/stop""#;
            site.survives(dir, 12, forking);
        },
    );
}

#[test]
fn sqlite_loses_nothing_that_it_has_committed() {
    apart("sqlite_loses_nothing_that_it_has_committed", BOUND, |dir| {
        let mut site = Site::on(dir);
        site.survives(dir, 15, r#"exec bash "$PROGRAMS/killed-sqlite.sh""#);
    });
}

#[test]
fn git_repositories_stay_whole() {
    apart("git_repositories_stay_whole", BOUND, |dir| {
        let mut site = Site::on(dir);
        site.survives(dir, 15, r#"exec bash "$PROGRAMS/killed-git.sh""#);
    });
}

#[test]
fn a_static_program_uses_the_mount_and_is_run_from_it() {
    let name = "a_static_program_uses_the_mount_and_is_run_from_it";
    apart(name, BOUND, |dir| {
        let site = Site::on(dir);
        let (mnt, programs) = (site.mount.path(""), Path::new(PROGRAMS));
        let environment = [("OUTSIDE", dir), ("PROGRAMS", programs)];
        let text = r#"
            gcc -static -O1 -o program "$PROGRAMS/static.c"
            if readelf -l program | grep INTERP; then exit 1; fi
            mkdir dir; test "$(./program "$PWD/dir")" = done
            cmp dir/old "$OUTSIDE/export/dir/old"
        "#;
        script(&mnt, &environment, SCRIPT, text);
    });
}

#[test]
fn a_lock_of_flock_belongs_to_all_who_have_the_open_file() {
    let name = "a_lock_of_flock_belongs_to_all_who_have_the_open_file";
    apart(name, BOUND, |dir| {
        let site = Site::on(dir);
        // Each `flock` is a process of its own.
        let text = r#"
            others() { (exec 8> file; flock -n 8); }
            is_held() { if others; then echo "$1: not held"; exit 1; fi; }
            exec 9> file
            flock 9; is_held taken; flock -n 9; is_held again
            flock -u 9; others
            exec 9<> file; flock -s 9; is_held shared; flock -n 9; is_held upgraded
            exec 9>&-; others
        "#;
        script(&site.mount.path(""), &[], SCRIPT, text);
    });
}

/// A node of which every fsync and fdatasync that was done is in the file "calls".
fn traced(dir: &Path, export: &Path) -> Option<(Running, At)> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-y", "-z", "-e", "trace=fsync,fdatasync", "-o"]);
    strace.arg(dir.join("calls")).arg(program()).arg("ionode");
    let at = At::Unix(dir.join("socket"));
    strace
        .args(["--listen", &at.text(), "--export"])
        .arg(export);
    let mut can = Command::new("strace");
    let can = can.args(["-f", "-o", "/dev/null", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        skipped("strace cannot follow here");
        return None;
    }
    let node = Running::start(strace);
    until("the node listens", || at.answers());
    Some((node, at))
}

#[test]
fn fsync_reaches_the_storage_with_a_mount_and_without() {
    let name = "fsync_reaches_the_storage_with_a_mount_and_without";
    apart(name, BOUND, |dir| {
        let export = dir.join("export");
        fs::create_dir(&export).unwrap();
        let Some((_node, at)) = traced(dir, &export) else {
            return;
        };
        let mount = Mounted::start(&[&at], &dir.join("mnt"), None, &[]);
        let mnt = mount.path("");
        let mounted = |command: &str| {
            script(&mnt, &[], SCRIPT, command);
        };
        let forwarded = |command: &str| {
            let command = format!("cd {FAR}; {command}");
            let mut run = forwarded(&at.text(), None, &[], dir);
            succeeds(run.args(["bash", "-euc", &command]));
        };
        let ways = ["mounted", "forwarded"].into_iter();
        let runs: [&dyn Fn(&str); 2] = [&mounted, &forwarded];
        // How often it was called for that file.
        let calls = |name: &str, call: &str| {
            let all = fs::read_to_string(dir.join("calls")).unwrap();
            let of_name = |line: &&str| line.contains(call) && line.contains(&format!("{name}>"));
            all.lines().filter(of_name).count()
        };
        for (way, run) in ways.zip(runs) {
            let dd = |name: &str, more: &str| {
                let name = format!("{way}-{name}");
                run(&format!(
                    "dd if=/dev/zero of={name} bs=4k count=3 status=none {more}"
                ));
                (calls(&name, "fsync("), calls(&name, "fdatasync("))
            };
            assert_eq!(dd("plain", ""), (0, 0), "{way}");
            assert_eq!(dd("all", "conv=fsync"), (1, 0), "{way}");
            assert_eq!(dd("data", "conv=fdatasync"), (0, 1), "{way}");
            run(&format!("mkdir {way}; sync {way}"));
            assert_eq!(calls(way, "fsync("), 1, "{way}: a directory");
        }
    });
}

/// The program programs/locker.py on a file.
struct Locker {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Locker {
    fn start(file: &Path) -> Locker {
        let mut run = Command::new("python3");
        run.arg(format!("{PROGRAMS}/locker.py")).arg(file);
        run.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = run.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut locker = Locker { child, answers };
        locker.hear();
        locker
    }

    fn says(&mut self, what: &str) -> String {
        writeln!(self.child.stdin.as_ref().unwrap(), "{what}").unwrap();
        self.hear()
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn a_lock_that_another_one_got_meanwhile_is_lost_also_for_appends() {
    let name = "a_lock_that_another_one_got_meanwhile_is_lost_also_for_appends";
    apart(name, BOUND, |dir| {
        let mut site = Site::on(dir);
        let other = Mounted::start(&[&site.node.at], &dir.join("other"), None, &[]);
        let mut holder = Locker::start(&site.mount.path("file"));
        let mut rival = Locker::start(&other.path("file"));
        assert_eq!(holder.says("lock"), "ok");
        assert_eq!(holder.says("append"), "ok");
        site.mount.freeze();
        site.node.kill();
        site.node.start_again();
        until("the rival gets it", || rival.says("lock") == "ok");
        site.mount.thaw();
        assert_eq!(holder.says("append"), "EIO");
        assert_eq!(holder.says("write"), "EIO");
        assert_eq!(holder.says("append"), "EIO");
        assert_eq!(fs::read(dir.join("export/file")).unwrap(), b"mine");
        drop((holder, rival));
    });
}

/// Lets what a node has left behind be that of another version.
fn forge(export: &Path) {
    let own = export.join(".presagio");
    let change = |path: &Path, at: u64, bytes: &[u8]| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    for entry in fs::read_dir(own.join("once")).unwrap() {
        change(&entry.unwrap().path(), 8, &99u32.to_le_bytes());
    }
    for entry in fs::read_dir(&own).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if name.starts_with("locks.") {
            change(&path, 0, b"plocks 9");
        }
    }
}

/// Appends numbers, until it is told to stop: which were acknowledged, and of which nobody could tell.
fn append_all(log: &mut fs::File, stop: &AtomicBool) -> [Vec<u64>; 2] {
    let mut outcomes = [Vec::new(), Vec::new()];
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match log.write_all(format!("{number}\n").as_bytes()) {
            Ok(()) => outcomes[0].push(number),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "{number}");
                outcomes[1].push(number);
            }
        }
    }
    outcomes
}

/// Renames `to` into `fro` and back. Were one done twice, the second would not find it.
fn rename_all(dir: &Path, stop: &AtomicBool) {
    let names = ["to", "fro"].map(|name| dir.join(name));
    while !stop.load(Ordering::Relaxed) {
        let is_there = names.each_ref().map(|name| name.try_exists());
        let [Ok(to), Ok(fro)] = is_there else {
            // No node could be asked: that says nothing.
            continue;
        };
        assert!(to || fro, "it has a name");
        let old = usize::from(!to);
        if let Err(error) = fs::rename(&names[old], &names[1 - old]) {
            assert_eq!(error.raw_os_error(), Some(5));
        }
    }
}

#[test]
fn a_node_of_another_version_in_the_place_of_one_does_nothing_twice() {
    let name = "a_node_of_another_version_in_the_place_of_one_does_nothing_twice";
    apart(name, BOUND, |dir| {
        let mut site = Site::on(dir);
        let export = dir.join("export");
        let mnt = site.mount.path("");
        let mut holder = Locker::start(&site.mount.path("locked"));
        assert_eq!(holder.says("lock"), "ok");
        // The same version: nobody notices.
        site.node.drain();
        site.node.start_again();
        assert_eq!(holder.says("append"), "ok");
        let stop = AtomicBool::new(false);
        let [done, unknown] = std::thread::scope(|scope| {
            let mut log = fs::File::options();
            // Both files are there before a node ends: whether it made one, it could not tell either.
            let mut log = log.append(true).create(true).open(mnt.join("log")).unwrap();
            fs::write(mnt.join("to"), "").unwrap();
            let appends = scope.spawn({
                let stop = &stop;
                move || append_all(&mut log, stop)
            });
            let renames = scope.spawn(|| rename_all(&mnt, &stop));
            let _stops = Stops(&stop);
            for kill in [false, true, false, true] {
                let before = fs::metadata(export.join("log")).unwrap().len();
                match kill {
                    true => site.node.kill(),
                    false => site.node.drain(),
                }
                forge(&export);
                site.node.start_again();
                until("it goes on", || {
                    fs::metadata(export.join("log")).unwrap().len() > before + 100
                });
            }
            stop.store(true, Ordering::Relaxed);
            renames.join().unwrap();
            appends.join().unwrap()
        });
        // Whose lock that was, nobody knows.
        assert_eq!(holder.says("append"), "EIO");
        let text = fs::read_to_string(export.join("log")).unwrap();
        let mut lines: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        lines.sort_unstable();
        let all = lines.len();
        lines.dedup();
        assert_eq!(lines.len(), all, "none is there twice");
        let is_there = |number: &u64| lines.binary_search(number).is_ok();
        assert!(done.iter().all(is_there), "all that were acknowledged are");
        println!(
            "{} appends, of {} nobody could tell",
            done.len(),
            unknown.len()
        );
    });
}

/// Lets threads stop, also where a test has failed.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file system in memory of so many MiB.
fn small(dir: &Path, mib: usize) -> std::path::PathBuf {
    let path = dir.join("small");
    fs::create_dir(&path).unwrap();
    let text = path.to_str().expect("a path in UTF-8");
    run(
        "mount",
        &["-t", "tmpfs", "-o", &format!("size={mib}m"), "none", text],
    );
    path
}

#[test]
fn a_full_disk_is_said_and_what_was_acknowledged_is_there() {
    let name = "a_full_disk_is_said_and_what_was_acknowledged_is_there";
    apart(name, BOUND, |dir| {
        let export = small(dir, 8);
        let site = Site::start(dir, &export, &[]);
        fill_up(&site.mount.path(""), &export);
    });
}

#[test]
fn a_full_disk_is_said_to_programs_without_a_mount_too() {
    let name = "a_full_disk_is_said_to_programs_without_a_mount_too";
    apart(name, BOUND, |dir| {
        let export = small(dir, 8);
        let node = Node::unix(dir, "socket", &export, &[]);
        let mut run = forwarded(&node.at.text(), None, &[], &export);
        run.arg(std::env::current_exe().unwrap());
        run.args(["--exact", "without_a_mount", "--ignored", "--nocapture"]);
        let said = succeeds(&mut run);
        assert!(said.contains("1 passed"), "{said}");
    });
}

#[test]
#[ignore = "is started by the one above, as a process of its own"]
fn without_a_mount() {
    let export = std::env::var_os("OUTSIDE").expect("a directory");
    fill_up(Path::new(FAR), Path::new(&export));
}

/// Fills the storage, of a few MiB, makes room again, and goes on.
fn fill_up(here: &Path, export: &Path) {
    fs::write(here.join("ballast"), vec![1; 2 << 20]).unwrap();
    let mut log = fs::File::create(here.join("log")).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let file = options.open(here.join("data")).unwrap();
    let (acknowledged, why) = fill(&file, 0);
    assert_eq!(why.kind(), ErrorKind::StorageFull, "{why}");
    assert!(
        (4 << 20..8 << 20).contains(&acknowledged),
        "{acknowledged} bytes fitted"
    );
    let appended = (0..1000).find_map(|_| log.write_all(&[2; 8192]).err());
    assert_eq!(
        appended.expect("appends hear it too").kind(),
        ErrorKind::StorageFull
    );
    check(&file, acknowledged);
    check(&fs::File::open(export.join("data")).unwrap(), acknowledged);
    // With room again, it goes on where it was, through the same descriptor.
    fs::remove_file(here.join("ballast")).unwrap();
    let mut more = acknowledged;
    // The node lets go of a removed file a moment after it is gone.
    until("room for 2 MiB more", || {
        more = fill(&file, more).0;
        more > acknowledged + (1 << 20)
    });
    check(&file, more);
    file.set_len(0).unwrap();
    fs::write(here.join("other"), vec![3; 1 << 20]).unwrap();
    assert_eq!(fs::read(here.join("other")).unwrap(), vec![3; 1 << 20]);
}

/// Fills a file system from outside, to the last byte.
fn fill_to_the_last_byte(export: &Path) {
    let rest = fs::File::create(export.join("rest")).unwrap();
    let (mut at, _) = fill(&rest, 0);
    while let Ok(written @ 1..) = rest.write_at(b"x", at) {
        at += written as u64;
    }
}

#[test]
fn on_a_full_disk_files_can_be_removed_and_cut_by_those_who_come_then() {
    let name = "on_a_full_disk_files_can_be_removed_and_cut_by_those_who_come_then";
    apart(name, BOUND, |dir| {
        let export = small(dir, 4);
        for name in ["big", "cut", "short"] {
            fs::write(export.join(name), vec![1; 500_000]).unwrap();
        }
        let node = Node::unix(dir, "socket", &export, &[]);
        for command in ["rm $FAR/big", ": > $FAR/cut", "truncate -s 9 $FAR/short"] {
            fill_to_the_last_byte(&export);
            let mut run = forwarded(&node.at.text(), None, &[], dir);
            succeeds(run.args(["bash", "-euc", command]));
        }
        let len = |name: &str| fs::metadata(export.join(name)).map(|it| it.len()).ok();
        assert_eq!(["big", "cut", "short"].map(len), [None, Some(0), Some(9)]);
    });
}

#[test]
fn on_a_full_disk_many_files_can_be_removed_and_renamed_through_one_mount() {
    let name = "on_a_full_disk_many_files_can_be_removed_and_renamed_through_one_mount";
    apart(name, BOUND, |dir| {
        let export = small(dir, 4);
        let mut site = Site::start(dir, &export, &[]);
        for number in 0..40 {
            fs::write(site.mount.path(&format!("empty{number}")), "").unwrap();
        }
        fill_to_the_last_byte(&export);
        let act = |number: u32| {
            let old = site.mount.path(&format!("empty{number}"));
            match number % 2 {
                0 => fs::remove_file(old),
                _ => fs::rename(old, site.mount.path(&format!("moved{number}"))),
            }
        };
        (0..20).for_each(|number| act(number).expect("without room"));
        // What the node knows of them ends with it, and no one is kept waiting by that.
        site.node.kill();
        site.node.start_again();
        (20..40).for_each(|number| act(number).expect("at the next one too"));
        let mut left = script(&export, &[], SCRIPT, "ls");
        left.retain(|letter| letter != '\n');
        assert!(!left.contains("empty"), "{left}");
        assert_eq!(left.matches("moved").count(), 20, "{left}");
    });
}

const PIECE: usize = 50_000;

/// Writes until an error: up to where all was acknowledged, and the error.
fn fill(file: &fs::File, from: u64) -> (u64, std::io::Error) {
    let mut at = from;
    loop {
        // What is written at a place depends on the place alone.
        let (piece, skip) = (at / PIECE as u64, (at % PIECE as u64) as usize);
        match file.write_at(&pattern(piece, PIECE)[skip..], at) {
            Ok(0) => panic!("a write of nothing at {at}"),
            Ok(written) => at += written as u64,
            Err(error) => return (at, error),
        }
    }
}

fn check(file: &fs::File, len: u64) {
    for piece in 0..len.div_ceil(PIECE as u64) {
        let start = piece * PIECE as u64;
        let mut read = vec![0; PIECE.min((len - start) as usize)];
        file.read_exact_at(&mut read, start).unwrap();
        assert!(
            read == pattern(piece, PIECE)[..read.len()],
            "the bytes at {start}"
        );
    }
}

#[test]
fn a_full_disk_keeps_nobody_from_reading_and_a_killed_node_from_starting() {
    let name = "a_full_disk_keeps_nobody_from_reading_and_a_killed_node_from_starting";
    apart(name, BOUND, |dir| {
        let export = small(dir, 4);
        let mut site = Site::start(dir, &export, &[]);
        let path = site.mount.path("data");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        let (acknowledged, why) = fill(&file, 0);
        assert_eq!(why.kind(), ErrorKind::StorageFull);
        // Not a byte is left for the node either.
        let _ = fill(&fs::File::create(export.join("rest")).unwrap(), 0);
        site.node.kill();
        site.node.start_again();
        check(&file, acknowledged);
        fs::remove_file(export.join("rest")).unwrap();
        fs::remove_file(&path).expect("names can be removed again");
        check(&file, acknowledged);
        drop(file);
        // Closing a file waits for nobody, so its bytes may be there for a moment.
        until("there is room", || fs::write(&path, "new").is_ok());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    });
}

#[test]
fn storage_that_may_not_be_written_says_so_and_can_be_read() {
    apart(
        "storage_that_may_not_be_written_says_so_and_can_be_read",
        BOUND,
        |dir| {
            let export = small(dir, 8);
            fs::write(export.join("old"), pattern(1, 100_000)).unwrap();
            let text = export.to_str().unwrap();
            let mut site = Site::start(dir, &export, &[]);
            let open = OpenOptions::new()
                .read(true)
                .write(true)
                .open(site.mount.path("old"))
                .unwrap();
            open.write_all_at(b"before", 0).unwrap();
            drop(open);
            // The node's own record of what was done keeps the file system busy: it comes back on one that is read-only.
            site.node.kill();
            run("mount", &["-o", "remount,ro", text]);
            site.node.start_again();
            let read = fs::read(site.mount.path("old")).unwrap();
            assert!(read[..6] == *b"before" && read[6..] == pattern(1, 100_000)[6..]);
            let read_only = |done: std::io::Result<()>| {
                assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
            };
            read_only(fs::write(site.mount.path("new"), "x"));
            read_only(fs::create_dir(site.mount.path("dir")));
            read_only(fs::rename(site.mount.path("old"), site.mount.path("moved")));
            read_only(fs::remove_file(site.mount.path("old")));
            read_only(
                OpenOptions::new()
                    .write(true)
                    .open(site.mount.path("old"))
                    .map(drop),
            );
            let mut far = forwarded(&site.node.at.text(), None, &[], dir);
            let without = r#"cmp "$FAR/old" "$OUTSIDE/mnt/old"
                for make in "touch $FAR/new" "mkdir $FAR/dir" "mv $FAR/old $FAR/moved" "rm $FAR/old" "cp $0 $FAR/old"; do
                    if $make 2> "$OUTSIDE/said"; then echo "$make"; exit 1; fi
                    grep -q "Read-only file system" "$OUTSIDE/said" || { echo "$make"; cat "$OUTSIDE/said"; exit 1; }
                done"#;
            succeeds(far.args(["bash", "-euc", without, "/bin/true"]));
            site.node.kill();
            run("mount", &["-o", "remount,rw", text]);
            site.node.start_again();
            fs::write(site.mount.path("new"), "written").unwrap();
            assert_eq!(fs::read(export.join("new")).unwrap(), b"written");
        },
    );
}

#[test]
fn a_mount_goes_to_the_directory_itself_while_there_is_no_node() {
    let name = "a_mount_goes_to_the_directory_itself_while_there_is_no_node";
    apart(name, BOUND, |dir| {
        let export = dir.join("export");
        fs::create_dir(&export).unwrap();
        let mut node = Node::unix(dir, "socket", &export, &[]);
        // It goes there after a quarter of its patience.
        let direct = ["--direct", export.to_str().unwrap(), "--patience", "8"];
        let mount = Mounted::start(&[&node.at], &dir.join("mnt"), None, &direct);
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true);
            file.open(mount.path(name)).unwrap()
        };
        let (file, nameless) = (open("file"), open("nameless"));
        fs::remove_file(mount.path("nameless")).unwrap();
        let mut log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(mount.path("log"))
            .unwrap();
        let mut work = |round: u64| {
            for file in [&file, &nameless] {
                file.write_all_at(&pattern(round, 5000), 5000 * round)
                    .unwrap();
                for before in 0..=round {
                    let mut read = vec![0; 5000];
                    file.read_exact_at(&mut read, 5000 * before).unwrap();
                    assert!(read == pattern(before, 5000), "round {before}");
                }
            }
            log.write_all(format!("{round}\n").as_bytes()).unwrap();
            fs::write(mount.path(&format!("made{round}")), "x").unwrap();
        };
        work(0);
        for round in [1, 4] {
            node.kill();
            work(round);
            let process = beside(&export).expect("a process");
            kill_process(process, Signal::KILL).unwrap();
            work(round + 1);
            node.start_again();
            until("the mount is back at the node", || {
                // It goes there with what is asked next.
                fs::metadata(mount.path("log")).unwrap();
                let control = format!("unix:{}", dir.join("socket.control").display());
                let status = presagio_ok(&["ionode", "status", &control]).json();
                status["connections"].as_u64() > Some(0)
            });
            work(round + 2);
        }
        let lines: String = (0..7).map(|round| format!("{round}\n")).collect();
        assert_eq!(fs::read_to_string(export.join("log")).unwrap(), lines);
        assert_eq!(fs::read(export.join("file")).unwrap().len(), 35_000);
        assert!((0..7).all(|round| export.join(format!("made{round}")).exists()));
    });
}

/// Each node has the export from a mount of its own, as on GlusterFS: the numbers of file systems differ, and the kernel's
/// handles mean nothing to the other.
#[test]
fn files_stay_open_when_another_node_has_the_export_from_another_mount() {
    let name = "files_stay_open_when_another_node_has_the_export_from_another_mount";
    apart(name, BOUND, |dir| {
        let base = dir.join("base");
        fs::create_dir(&base).unwrap();
        let below = Node::unix(dir, "below", &base, &[]);
        let mounts = ["one", "two"].map(|name| {
            let point = dir.join(format!("mnt-{name}"));
            Mounted::start(&[&below.at], &point, None, &[])
        });
        fs::create_dir(base.join("export")).unwrap();
        let [one, two] = &mounts;
        let mut nodes = [("one", one), ("two", two)]
            .map(|(name, mount)| Node::unix(dir, name, &mount.path("export"), &["--grace", "0.5"]));
        let at: Vec<_> = nodes.iter().map(|node| node.at.clone()).collect();
        let mount = Mounted::start(&[&at[0], &at[1]], &dir.join("mnt"), None, &[]);
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true);
            file.open(mount.path(name)).unwrap()
        };
        fs::create_dir(mount.path("dir")).unwrap();
        let (file, nameless) = (open("dir/file"), open("nameless"));
        let work = |round: u64| {
            for (seed, file) in [(0, &file), (1 << 32, &nameless)] {
                let bytes = pattern(seed | round, 3000);
                file.write_all_at(&bytes, 3000 * round).unwrap();
                for before in 0..=round {
                    let mut read = vec![0; 3000];
                    file.read_exact_at(&mut read, 3000 * before).unwrap();
                    assert!(read == pattern(seed | before, 3000), "round {before}");
                }
            }
        };
        work(0);
        fs::remove_file(mount.path("nameless")).unwrap();
        work(1);
        for (round, node) in (2..).zip([0, 1, 0, 1]) {
            nodes[node].kill();
            work(round);
            nodes[node].start_again();
        }
        let there = fs::read(base.join("export/dir/file")).unwrap();
        assert_eq!(there.len(), 6 * 3000);
        drop((file, nameless));
        drop(mount);
        drop(nodes);
        drop(mounts);
    });
}
