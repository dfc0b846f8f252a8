//! Real programs on a mount while its node is killed (-9) and comes back, and what they see of storage that is full or may
//! not be written.
//!
//! Needs root and /dev/fuse.

mod common;

use common::apart::{apart, run};
use common::nodes::{Mounted, Node, pattern, script, until};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
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
    /// a file "$OUTSIDE/stop". What the script said, and how often the node was killed.
    fn survives(&mut self, dir: &Path, seconds: u64, text: &str) -> (String, u32) {
        let mnt = self.mount.path("");
        let programs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs"));
        let environment = [("OUTSIDE", dir), ("PROGRAMS", programs)];
        std::thread::scope(|scope| {
            let said = scope.spawn(|| script(&mnt, &environment, SCRIPT, text));
            let stop = std::time::Instant::now() + Duration::from_secs(seconds);
            let mut kills = 0;
            while !said.is_finished() {
                sleep(Duration::from_millis(250 + 130 * (kills % 5)));
                match std::time::Instant::now() < stop {
                    true => {
                        self.node.kill();
                        self.node.start_again();
                        kills += 1;
                    }
                    false => fs::write(dir.join("stop"), "").unwrap(),
                }
            }
            let said = said.join().unwrap();
            println!("{kills} kills: {}", said.trim());
            assert!(kills > 0, "the node was killed while it was used");
            (said, kills as u32)
        })
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
        // What it said is committed must be there. If the node cannot tell (EIO), SQLite says so, and its caller does it again.
        let (said, _) = site.survives(
            dir,
            15,
            r#"
            sqlite3 db 'create table t(w integer, i integer, b blob, primary key(w, i));'
            writer() {
                local i=0
                while [ ! -e "$OUTSIDE/stop" ]; do
                    i=$((i + 1))
                    until sqlite3 -cmd '.timeout 60000' db \
                        "insert or ignore into t values ($1, $i, randomblob(3000)); select 1;" \
                        > "$OUTSIDE/said$1" 2>> "$OUTSIDE/errors"; do sleep 0.1; done
                    echo $i > "$OUTSIDE/committed$1"
                done
            }
            for w in 1 2 3; do writer $w & done; wait
            sqlite3 db 'pragma integrity_check;'
            for w in 1 2 3; do
                test "$(sqlite3 db "select count(*), max(i) from t where w=$w;")" = \
                    "$(cat "$OUTSIDE/committed$w")|$(cat "$OUTSIDE/committed$w")"
            done
            cat "$OUTSIDE"/committed*
        "#,
        );
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("ok"));
        assert!(lines.all(|line| line.parse::<u32>().unwrap() > 0));
        let errors = fs::read_to_string(dir.join("errors")).unwrap_or_default();
        println!("{errors}");
        let known = |line: &str| line.contains("disk I/O error") || line.contains("locked");
        assert!(errors.lines().all(known), "{errors}");
    });
}

#[test]
fn git_repositories_stay_whole() {
    apart("git_repositories_stay_whole", BOUND, |dir| {
        let mut site = Site::on(dir);
        // git gives up where nobody can tell (EIO), says so, and can be asked again; what it said is done is done.
        site.survives(dir, 15, r#"
            export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e@x GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e@x
            git init -q "$OUTSIDE/source"; cd "$OUTSIDE/source"
            for i in $(seq 40); do mkdir -p d$((i%7)); head -c $((i*900)) /dev/urandom > d$((i%7))/f$i; done
            git add -A; git commit -qm one
            cd "$OUTSIDE/mnt"
            again() { # a command, after what it left of its last attempt was removed
                for attempt in $(seq 10); do
                    if "$@" 2>> "$OUTSIDE/errors"; then return 0; fi
                    rm -rf "$PWD/.git/index.lock" "$PWD/.git/HEAD.lock" "$PWD"/.git/refs/heads/*.lock
                done
                return 1
            }
            clone() { rm -rf "$1"; git clone -q "$OUTSIDE/source" "$1"; }
            n=0
            while [ ! -e "$OUTSIDE/stop" ]; do
                n=$((n + 1))
                again clone clone$n; cd clone$n
                git fsck --full --strict 2>> "$OUTSIDE/errors"
                for k in 1 2 3; do
                    echo "$n $k" > d1/f1; again git add -A
                    again git commit -qm "commit $k" --allow-empty
                done
                test "$(git rev-list --count HEAD)" -ge 4
                git fsck --full; test -z "$(git status --porcelain)"; test "$(cat d1/f1)" = "$n 3"
                diff -r --exclude=.git --exclude=f1 . "$OUTSIDE/source"
                cd ..
            done
            echo $n clones
        "#);
    });
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
    apart(
        "a_full_disk_is_said_and_what_was_acknowledged_is_there",
        BOUND,
        |dir| {
            let export = small(dir, 8);
            let site = Site::start(dir, &export, &[]);
            fs::write(site.mount.path("ballast"), vec![1; 2 << 20]).unwrap();
            let (path, mut log) = (
                site.mount.path("data"),
                fs::File::create(site.mount.path("log")).unwrap(),
            );
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)
                .unwrap();
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
            fs::remove_file(site.mount.path("ballast")).unwrap();
            let mut more = acknowledged;
            // The mount lets go of a removed file a moment after it is gone.
            until("room for 2 MiB more", || {
                more = fill(&file, more).0;
                more > acknowledged + (1 << 20)
            });
            check(&file, more);
            file.set_len(0).unwrap();
            fs::write(site.mount.path("other"), vec![3; 1 << 20]).unwrap();
            assert_eq!(
                fs::read(site.mount.path("other")).unwrap(),
                vec![3; 1 << 20]
            );
        },
    );
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
            site.node.kill();
            run("mount", &["-o", "remount,rw", text]);
            site.node.start_again();
            fs::write(site.mount.path("new"), "written").unwrap();
            assert_eq!(fs::read(export.join("new")).unwrap(), b"written");
        },
    );
}
