//! `presagio run --forward`: programs that know nothing of it, on files that an I/O node serves, with no mount.
//!
//! What they did is compared with what lies in the export in the end, and with what the same programs do on a directory.

mod common;

use common::nodes::{Node, pattern, until};
use common::{Said, TempDir, library, presagio, program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Where programs find what is forwarded. There is no such directory on this machine.
const FAR: &str = "/presagio-far-away";

/// The longest that a script may take.
const BOUND: &str = "180";

/// An export, its node, and a directory beside them.
struct Site {
    node: Node,
    dir: TempDir,
}

impl Site {
    fn new(name: &str) -> Site {
        let dir = TempDir::new(&format!("forward-{name}"));
        let path = Path::new(dir.path());
        fs::create_dir_all(path.join("export")).unwrap();
        let node = Node::unix(path, "socket", &path.join("export"), &[]);
        Site { node, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    fn forward(&self) -> String {
        format!("{FAR}={}", self.node.at.text())
    }

    /// `presagio run` with what is forwarded here.
    fn run(&self, options: &[&str], command: &[&str]) -> Said {
        let forward = self.forward();
        let mut arguments = vec!["run", "--forward", &forward];
        arguments.extend(options);
        arguments.push("--");
        arguments.extend(command);
        presagio(&arguments)
    }

    /// A script that must succeed, with what is forwarded in `$FAR` and a local directory in `$OUTSIDE`.
    fn script(&self, text: &str) -> String {
        self.script_with(&["--quiet"], text)
    }

    fn script_with(&self, options: &[&str], text: &str) -> String {
        let mut command = Command::new("timeout");
        command
            .args([
                "-k",
                "5",
                BOUND,
                program(),
                "run",
                "--forward",
                &self.forward(),
            ])
            .args(options)
            .args(["--", "bash", "-euo", "pipefail", "-c", text])
            .env("PRESAGIO_LIB", library())
            .env("FAR", FAR)
            .env("OUTSIDE", self.dir.path())
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null());
        let output = command.output().expect("timeout");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert!(status.success(), "{text}\n{status}\n{out}{err}");
        out
    }
}

#[test]
fn what_cannot_be_forwarded_is_explained() {
    let site = Site::new("explained");
    let run = |forward: &str| presagio(&["run", "--forward", forward, "--", "true"]);
    for (forward, code, words) in [
        ("far=unix:/x", 2, "is not absolute"),
        ("/=unix:/x", 2, "below /"),
        ("/a:b=unix:/x", 2, "colon"),
        ("/far", 2, "PREFIX=unix:PATH"),
        ("/far=tcp:host:0", 2, "no address"),
        (
            "/far=unix:/no/such/socket",
            125,
            "is `presagio ionode` running there",
        ),
    ] {
        let said = run(forward);
        assert_eq!(said.code, Some(code), "{forward}: {}", said.err);
        assert!(said.err.contains(words), "{forward}: {}", said.err);
    }
    let (one, same) = (site.forward(), format!("{FAR}/={}", site.node.at.text()));
    let said = presagio(&["run", "--forward", &one, "--forward", &same, "--", "true"]);
    assert_eq!(said.code, Some(125), "{}", said.err);
    assert!(said.err.contains("forwarded twice"), "{}", said.err);
    let said = site.run(
        &["--quiet"],
        &[program(), "run", "--forward", &one, "--", "true"],
    );
    assert!(
        said.err.contains("name all prefixes with the outer one"),
        "{}",
        said.err
    );
}

#[test]
fn the_command_ends_as_it_would_and_nothing_is_left_of_the_run() {
    let site = Site::new("ends");
    let runtime = site.path("runtime");
    fs::create_dir(&runtime).unwrap();
    let run = |script: &str| {
        let mut command = Command::new(program());
        command.args(["run", "--quiet", "--forward", &site.forward(), "--"]);
        command
            .args(["sh", "-c", script])
            .env("PRESAGIO_LIB", library())
            .env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    let code = |script: &str| run(script).status().unwrap().code();
    assert_eq!(code("exit 7"), Some(7));
    let inside = format!("mkdir {FAR}/d; cd {FAR}/d && ls -d $XDG_RUNTIME_DIR/presagio-forward-*");
    assert_eq!(code(&inside), Some(0));
    let killed = run("kill -TERM $$").status().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&killed),
        Some(15)
    );
    let left = || -> Vec<String> {
        let entries = fs::read_dir(&runtime).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.starts_with("presagio-forward-"))
            .collect()
    };
    assert_eq!(left(), Vec::<String>::new());
    // One that is killed outright leaves its directory to the next.
    let mut child = run("sleep 60").spawn().unwrap();
    until("it runs", || left().len() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left().len(), 1);
    assert_eq!(code("true"), Some(0));
    assert_eq!(left(), Vec::<String>::new());
}

#[test]
fn it_works_watched_or_not_and_with_a_manager_inside() {
    let site = Site::new("modes");
    fs::write(site.path("export/file"), "content").unwrap();
    let file = format!("{FAR}/file");
    for options in [
        &["--quiet"][..],
        &["--observe", "--quiet"],
        &["--off"],
        &["--in-process", "--quiet"],
    ] {
        let said = site.run(options, &["cat", &file]);
        assert_eq!(
            (said.out.as_str(), said.code),
            ("content", Some(0)),
            "{options:?}: {}",
            said.err
        );
    }
    let said = site.run(&[], &["cat", &file]);
    assert!(
        said.err.contains(&format!("{FAR} was served by unix:")),
        "{}",
        said.err
    );
    assert!(said.err.contains(&file), "it was watched: {}", said.err);
}

#[test]
fn the_longest_prefix_wins() {
    let (one, two) = (Site::new("outer"), Site::new("inner"));
    fs::create_dir(one.path("export/deep")).unwrap();
    fs::write(one.path("export/file"), "outer").unwrap();
    fs::write(two.path("export/file"), "inner").unwrap();
    let inner = format!("{FAR}/deep={}", two.node.at.text());
    let script = format!("cat {FAR}/file {FAR}/deep/file");
    let said = one.run(&["--quiet", "--forward", &inner], &["sh", "-c", &script]);
    assert_eq!(said.out, "outerinner", "{}", said.err);
}

#[test]
fn copies_there_and_back_are_the_same() {
    let site = Site::new("copies");
    fs::write(site.path("bytes"), pattern(1, 9_000_001)).unwrap();
    site.script(
        r#"
        dd if="$OUTSIDE/bytes" of="$FAR/dd" bs=65537 status=none
        dd if="$OUTSIDE/bytes" of="$FAR/seek" bs=1M conv=notrunc seek=3 status=none
        cp "$OUTSIDE/bytes" "$FAR/cp"; cp "$FAR/cp" "$FAR/cp2"; cat "$FAR/cp2" > "$FAR/cat"
        cmp "$OUTSIDE/bytes" "$FAR/dd"; cmp "$FAR/cp" "$FAR/cat"
        test "$(stat -c %s "$FAR/seek")" = $((9000001 + 3*1024*1024))
        cp -r "$FAR" "$OUTSIDE/back"; mv "$FAR/dd" "$OUTSIDE/moved"; test ! -e "$FAR/dd"
    "#,
    );
    for name in ["export/cp", "export/cp2", "export/cat", "back/dd", "moved"] {
        assert!(
            fs::read(site.path(name)).unwrap() == pattern(1, 9_000_001),
            "{name}"
        );
    }
}

#[test]
fn a_tree_goes_through_tar_and_back() {
    let site = Site::new("tar");
    site.script(
        r#"
        mkdir "$OUTSIDE/tree"; cd "$OUTSIDE/tree"
        for i in $(seq 40); do mkdir -p d$((i%5))/e; head -c $((i*997)) /dev/urandom > d$((i%5))/e/f$i; done
        ln -s d1/e/f1 link; ln d2/e/f2 hard; chmod 640 d3/e/f3; touch -d 2001-02-03 d4/e/f4
        tar -cf "$FAR/tree.tar" .; mkdir "$FAR/out"; tar -C "$FAR/out" -xf "$FAR/tree.tar"
        diff -r "$OUTSIDE/tree" "$FAR/out"
        cmp <(tar --sort=name -cf - .) <(tar -C "$FAR/out" --sort=name -cf - .)
        cd "$FAR/out"; find . -type f | sort | xargs sha256sum > "$OUTSIDE/sums"; cd "$OUTSIDE/tree"; sha256sum -c --quiet "$OUTSIDE/sums"
        rm -r "$FAR/out"; test ! -e "$FAR/out"
    "#,
    );
}

#[test]
fn git_clones_and_commits() {
    let site = Site::new("git");
    site.script(
        r#"
        git init -q "$OUTSIDE/repo"; cd "$OUTSIDE/repo"
        git config user.name n; git config user.email e@x
        for i in $(seq 60); do mkdir -p d$((i%7)); head -c $((i*700)) /dev/urandom > d$((i%7))/f$i; done
        git add -A; git commit -qm one; git gc -q
        cd "$FAR"; git clone -q "$OUTSIDE/repo" clone; cd clone
        git fsck --full 2>&1; test -z "$(git status --porcelain)"
        echo more >> d1/f1; git -c user.name=n -c user.email=e@x commit -qam two; git gc -q; git fsck --full 2>&1
    "#,
    );
    let status = Command::new("git")
        .args(["-c", "safe.directory=*", "fsck", "--full"])
        .current_dir(site.path("export/clone"))
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
}

#[test]
fn three_writers_share_a_database() {
    let site = Site::new("sqlite");
    let said = site.script(
        r#"
        cd "$FAR"; sqlite3 db 'create table t(a integer primary key, b text);'
        for w in 1 2 3; do (for i in $(seq 12); do
            sqlite3 -cmd '.timeout 60000' db "insert into t(b) values ('$w-$i');"; done) & done; wait
        sqlite3 db 'pragma integrity_check; select count(*) from t;'
    "#,
    );
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["ok", "36"]);
}

#[test]
fn fio_finds_what_it_wrote() {
    let site = Site::new("fio");
    site.script(
        r#"
        fio --name=verify --verify_state_save=0 --directory="$FAR" --rw=randwrite --bs=4k --size=1m --numjobs=8 --verify=crc32c \
            --ioengine=psync --end_fsync=1 --minimal > "$OUTSIDE/said"
    "#,
    );
}

#[test]
fn ranks_share_a_file() {
    let site = Site::new("ranks");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/shared.c");
    site.script(&format!(
        r#"
        mpicc.openmpi -O1 -o "$OUTSIDE/shared" {source}
        mpirun.openmpi --oversubscribe -n 4 "$OUTSIDE/shared" "$FAR/file"
        mpirun.openmpi --oversubscribe --mca io ompio -n 4 "$OUTSIDE/shared" "$FAR/other"
        cmp "$FAR/file" "$FAR/other"
    "#
    ));
    let read = |name: &str| fs::read(site.path(name)).unwrap();
    assert!(read("export/file") == read("export/other"));
}

#[test]
fn ranks_write_together_by_turns_and_alone() {
    let site = Site::new("patterns");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/patterns.c");
    site.script(&format!(
        r#"
        mpicc.openmpi -O1 -o "$OUTSIDE/patterns" {source}
        mpirun.openmpi --oversubscribe -n 4 "$OUTSIDE/patterns" "$FAR"
        mkdir "$OUTSIDE/plain"; mpirun.openmpi --oversubscribe -n 4 "$OUTSIDE/patterns" "$OUTSIDE/plain"
        diff -r "$OUTSIDE/plain" "$FAR"
    "#
    ));
}

/// Threads and forked children that write and read back blocks of one file, append to a log and replace files by
/// renaming; it says 0 if every byte was what it should be. Of what must be done once, and only of that, a node that was
/// killed in the middle may say that it cannot tell (EIO): then the program looks, as it would anywhere.
const BUSY: &str = r#"
import os, sys, threading
far, rounds = sys.argv[1], int(sys.argv[2])
def block(who, round): return bytes((who * 37 + round * 11 + i) % 251 for i in range(4096)) * 4
def surely(act, is_done):
    while True:
        try: return act()
        except OSError as error:
            if error.errno != 5: raise
            if is_done(): return
def whole(path):
    with open(path, "rb") as file: return file.read()
def replace(path, content):
    with open(path, "wb") as new: new.write(content)
def work(who, name):
    new, old, lines = f"{far}/new-{name}", f"{far}/file-{name}", f"{far}/log-{name}"
    fd = surely(lambda: os.open(f"{far}/shared", os.O_RDWR | os.O_CREAT, 0o644), lambda: False)
    log = surely(lambda: os.open(lines, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), lambda: False)
    for round in range(rounds):
        mine = block(who, round)
        at = (round * 16 + who) * len(mine)
        assert os.pwrite(fd, mine, at) == len(mine)
        assert os.pread(fd, len(mine), at) == mine, (who, round)
        line = b"%d\n" % round
        surely(lambda: os.write(log, line), lambda: whole(lines).endswith(b"\n" + line) or whole(lines) == line)
        surely(lambda: replace(new, mine), lambda: False)
        surely(lambda: os.rename(new, old), lambda: not os.path.exists(new))
        assert whole(old) == mine, (who, round)
    os.close(fd); os.close(log)
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        try: work(child, f"child{child}")
        except BaseException as error: sys.stderr.write(f"child {child}: {error!r}\n"); os._exit(1)
        os._exit(0)
    children.append(pid)
failed = []
def thread(who):
    try: work(who, f"thread{who}")
    except BaseException as error: failed.append(error); sys.stderr.write(f"thread {who}: {error!r}\n")
threads = [threading.Thread(target=thread, args=(4 + t,)) for t in range(3)]
for t in threads: t.start()
for t in threads: t.join()
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
print(len(failed) + sum(codes))
"#;

#[test]
fn threads_and_children_do_not_see_that_the_node_is_killed_again_and_again() {
    const ROUNDS: u32 = 150;
    let mut site = Site::new("killed");
    let script = site.path("busy.py");
    fs::write(&script, BUSY).unwrap();
    let forward = site.forward();
    let (said, kills) = std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            let mut command = Command::new("timeout");
            command.env("PRESAGIO_LIB", library());
            command.args([
                "-k",
                "5",
                BOUND,
                program(),
                "run",
                "--quiet",
                "--forward",
                &forward,
            ]);
            command
                .args(["--", "python3"])
                .arg(&script)
                .args([FAR, &ROUNDS.to_string()]);
            command.env("RUST_BACKTRACE", "0").output().unwrap()
        });
        let mut kills = 0;
        while !working.is_finished() {
            sleep(Duration::from_millis(400));
            site.node.kill();
            sleep(Duration::from_millis(50));
            site.node.start_again();
            kills += 1;
        }
        (working.join().unwrap(), kills)
    });
    let err = String::from_utf8_lossy(&said.stderr);
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "0", "{err}");
    assert!(said.status.success() && kills > 1, "{kills} kills: {err}");
    let lines: String = (0..ROUNDS).map(|round| format!("{round}\n")).collect();
    let names = (0..3)
        .map(|i| format!("child{i}"))
        .chain((4..7).map(|i| format!("thread{i}")));
    for name in names {
        let log = fs::read_to_string(site.path(&format!("export/log-{name}"))).unwrap();
        assert!(log == lines, "{name}: {} lines", log.lines().count());
    }
    let shared = fs::read(site.path("export/shared")).unwrap();
    for who in [0, 1, 2, 4, 5, 6u32] {
        for round in 0..ROUNDS {
            let at = ((round * 16 + who) * 16384) as usize;
            let right = (0..16384u32).all(|i| {
                let expected = (who * 37 + round * 11 + i % 4096) % 251;
                u32::from(shared[at + i as usize]) == expected
            });
            assert!(right, "{who} in round {round}");
        }
    }
}
