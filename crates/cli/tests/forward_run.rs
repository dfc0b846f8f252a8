//! `presagio run --forward`: programs that know nothing of it, on files that an I/O node serves, with no mount.
//!
//! What they did is compared with what lies in the export in the end, and with what the same programs do on a directory.

mod common;

use common::nodes::{Node, pattern, until};
use common::skips::is_root;
use common::{Said, TempDir, library, presagio, program};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
        Site::with(name, &[])
    }

    /// With options of its node.
    fn with(name: &str, options: &[&str]) -> Site {
        let dir = TempDir::new(&format!("forward-{name}"));
        let path = Path::new(dir.path());
        fs::create_dir_all(path.join("export")).unwrap();
        let node = Node::unix(path, "socket", &path.join("export"), options);
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

/// The node would wait for it for an hour.
#[test]
fn the_locks_of_a_program_that_is_killed_are_free_for_the_next() {
    let site = Site::with("killed", &["--grace", "3600"]);
    for how in ["fcntl.lockf", "fcntl.flock"] {
        let hold = format!(
            "import fcntl, os, sys, time\nf = open(os.environ['FAR'] + '/locked', 'w')\n\
             {how}(f, fcntl.LOCK_EX)\nprint('held', flush=True)\nif sys.argv[1] == 'on': time.sleep(600)\n"
        );
        fs::write(site.path("hold.py"), hold).unwrap();
        let script = "coproc python3 $OUTSIDE/hold.py on; read -r said <&${COPROC[0]}; echo $said
             kill -9 $COPROC_PID; wait || true; python3 $OUTSIDE/hold.py once";
        assert_eq!(site.script(script), "held\nheld\n", "{how}");
        // And one that the whole command is killed with.
        let killed = "python3 $OUTSIDE/hold.py once; python3 -c 'import os,signal; \
             exec(open(os.environ[\"OUTSIDE\"] + \"/hold.py\").read().split(\"if sys\")[0]); \
             os.kill(os.getpid(), signal.SIGKILL)' || true";
        assert_eq!(site.script(killed), "held\nheld\n", "{how}");
        assert_eq!(site.script("python3 $OUTSIDE/hold.py once"), "held\n");
    }
}

#[test]
fn a_command_may_begin_while_its_node_is_being_started_again() {
    let mut site = Site::new("restarted");
    let forward = site.forward();
    let arguments = ["run", "--forward", &forward, "--", "true"];
    let begin = |node: &mut Node| {
        node.kill();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| presagio(&arguments));
            std::thread::sleep(Duration::from_millis(100));
            node.start_again();
            run.join().unwrap()
        })
    };
    let mut said = begin(&mut site.node);
    // It waits for five seconds: on a machine that is busy with other things a node may take longer.
    for _ in 0..3 {
        if said.code != Some(0) {
            said = begin(&mut site.node);
        }
    }
    assert_eq!(said.code, Some(0), "{}", said.err);
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
    for (direct, code, words) in [
        ("/far", 2, "PREFIX=DIR"),
        ("/other=/tmp", 125, "that prefix is not forwarded"),
        (&*format!("{FAR}=/no/such/place"), 125, "no directory here"),
    ] {
        let said = site.run(&["--forward-direct", direct], &["true"]);
        assert_eq!(said.code, Some(code), "{direct}: {}", said.err);
        assert!(said.err.contains(words), "{direct}: {}", said.err);
    }
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
fn a_file_without_a_name_can_be_given_to_a_child_and_closed() {
    let site = Site::new("given");
    let said = site.script(
        r#"
        python3 -c '
import os, subprocess, tempfile
file = tempfile.TemporaryFile(dir=os.environ["FAR"])
file.write(b"passed on")
file.seek(0)
child = subprocess.Popen(["cat"], stdin=file)
file.close()
assert child.wait() == 0'
        "#,
    );
    assert_eq!(said, "passed on");
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
    let is_locked = |name: &String| runtime.join(name).join("lock").exists();
    until("it runs", || {
        left().iter().filter(|&name| is_locked(name)).count() == 1
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left().len(), 1);
    // To the first that comes after it is quite gone: what it had just started may still be on its way to another program.
    until("a later run clears it away", || {
        assert_eq!(code("true"), Some(0));
        left().is_empty()
    });
}

/// What goes on in a forwarded working directory when the run is killed outright must fail, and make nothing anywhere.
#[test]
fn what_outlives_a_run_that_was_killed_loses_nothing_in_silence() {
    let site = Site::new("outlives");
    let script = r#"
        cd "$FAR"
        setsid sh -c 'while test ! -e "$OUTSIDE/go"; do sleep 0.01; done
            touch lost 2>> "$OUTSIDE/said"; ls -l lost 2>> "$OUTSIDE/said"; echo done >> "$OUTSIDE/said"' &
        touch "$OUTSIDE/ready"; wait
    "#;
    let mut command = Command::new(program());
    command.args(["run", "--off", "--forward", &site.forward(), "--"]);
    command
        .args(["sh", "-c", script])
        .env("PRESAGIO_LIB", library())
        .env("FAR", FAR)
        .env("OUTSIDE", site.dir.path())
        .env("LC_ALL", "C")
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    until("it runs", || site.path("ready").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(site.path("go"), "").unwrap();
    let said = || fs::read_to_string(site.path("said")).unwrap_or_default();
    until("it has tried", || said().ends_with("done\n"));
    let lines: Vec<String> = said().lines().map(str::to_owned).collect();
    let [touched, listed, _] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert!(touched.ends_with("Input/output error"), "{touched}");
    assert!(listed.ends_with("Input/output error"), "{listed}");
    assert!(!site.path("export/lost").exists());
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

/// Writes block after block and reads it back, and now and then has another program do so, until it is told to stop.
const STEADY: &str = r#"
import os, subprocess, sys, time
far, out = sys.argv[1:]
def block(number): return bytes((number * 7 + i) % 251 for i in range(4096))
fd, number = os.open(f"{far}/shared", os.O_RDWR | os.O_CREAT, 0o644), 0
while not os.path.exists(f"{out}/stop"):
    mine, at = block(number), number * 4096
    assert os.pwrite(fd, mine, at) == len(mine)
    assert os.pread(fd, len(mine), at) == mine, number
    if number % 50 == 0:
        seen = subprocess.run(["tail", "-c", "4096", f"{far}/shared"], stdout=subprocess.PIPE, check=True)
        assert seen.stdout == mine, number
    number += 1
    with open(f"{out}/new", "w") as new: new.write(str(number))
    os.rename(f"{out}/new", f"{out}/number")
    time.sleep(0.002)
"#;

#[test]
fn while_no_node_is_there_the_export_is_reached_directly_and_then_again_through_the_node() {
    let mut site = Site::new("direct");
    fs::write(site.path("steady.py"), STEADY).unwrap();
    let direct = format!("{FAR}={}", site.path("export").display());
    let mut command = Command::new("timeout");
    command.args(["-k", "5", BOUND, program(), "run", "--quiet"]);
    command.args(["--forward", &site.forward(), "--forward-direct", &direct]);
    command.args(["--patience", "4", "--", "python3"]);
    command
        .arg(site.path("steady.py"))
        .args([FAR, site.dir.path()]);
    command
        .env("PRESAGIO_LIB", library())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let path = site.path("number");
    let number = || -> u32 {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.parse().unwrap_or(0)
    };
    let control = format!("{}.control", site.node.at.text());
    let goes_on = |what: &str| {
        let before = number();
        until(what, || number() > before + 100);
    };
    goes_on("it works with a node");
    site.node.kill();
    goes_on("it works without");
    site.node.start_again();
    until("it is back", || {
        let status = presagio(&["ionode", "status", &control]);
        status.code == Some(0) && status.json()["open_files"].as_u64() > Some(0)
    });
    goes_on("it works with a node again");
    fs::write(site.path("stop"), "").unwrap();
    let said = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{err}");
    assert!(err.contains(&format!("{FAR} was served from")), "{err}");
    let shared = fs::read(site.path("export/shared")).unwrap();
    assert_eq!(shared.len(), number() as usize * 4096);
    for (number, block) in shared.chunks(4096).enumerate() {
        let is_right = |(i, byte): (usize, &u8)| usize::from(*byte) == (number * 7 + i) % 251;
        assert!(block.iter().enumerate().all(is_right), "block {number}");
    }
}

#[test]
fn a_run_can_begin_without_a_node_where_it_may_go_directly() {
    let mut site = Site::new("begins");
    fs::write(site.path("export/file"), "content").unwrap();
    site.node.kill();
    let direct = format!("{FAR}={}", site.path("export").display());
    let options = ["--quiet", "--forward-direct", &direct];
    let script = format!("cat {FAR}/file; echo more > {FAR}/new; cat {FAR}/new");
    let said = site.run(&options, &["sh", "-c", &script]);
    assert_eq!(said.out, "contentmore\n", "{}", said.err);
    assert_eq!(fs::read(site.path("export/new")).unwrap(), b"more\n");
    assert!(said.err.contains("directly"), "{}", said.err);
}

/// A process that is killed with the value.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a user does with what it has made, all of which belongs to somebody else.
const STRANGER: &str = r##"
import os, subprocess, sys, tempfile
os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
with open("script", "w") as script: script.write("#!/bin/sh\necho ran\n")
os.chmod("script", 0o700)
print(os.stat("script").st_uid != os.getuid(), os.access("script", os.R_OK | os.W_OK | os.X_OK), os.access(".", os.R_OK | os.X_OK), flush=True)
subprocess.run(["./script"], check=True)
os.chmod("script", 0o600); os.mkdir("closed"); os.chmod("closed", 0)
print(os.access("script", os.X_OK), os.access("closed", os.R_OK), os.access("closed", os.X_OK))
try: os.chdir("closed")
except PermissionError: print("closed")
"##;

/// A node that does everything as its own user.
#[test]
fn a_user_whom_the_node_takes_for_another_works_in_what_it_makes() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    const NODE: u32 = 64_001;
    const USER: u32 = 64_002;
    if !is_root("acting as others") {
        return;
    }
    // Others may not be let in where this is built.
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, owner) in [("node", NODE), ("node/export", NODE), ("user", USER)] {
        fs::create_dir(path(name)).unwrap();
        chown(path(name), Some(owner), Some(owner)).unwrap();
    }
    fs::set_permissions(path("user"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy(program(), path("presagio")).unwrap();
    for name in ["libpresagio.so", "libpresagio_divert.so"] {
        fs::copy(library().with_file_name(name), path(name)).unwrap();
    }
    let socket = format!("unix:{}", path("node/socket").display());
    let mut node = Command::new(path("presagio"));
    node.args(["ionode", "--squash", "--listen", &socket, "--export"]);
    node.arg(path("node/export")).uid(NODE).gid(NODE);
    let _node = Killed(node.stderr(Stdio::null()).spawn().unwrap());
    until("the node listens", || {
        std::os::unix::net::UnixStream::connect(path("node/socket")).is_ok()
    });
    let mut command = Command::new(path("presagio"));
    command.args(["run", "--off", "--forward", &format!("{FAR}={socket}")]);
    command.args(["--", "/usr/bin/python3", "-c", STRANGER, FAR]);
    command
        .env("XDG_RUNTIME_DIR", path("user"))
        .env("PRESAGIO_LIB", path("libpresagio.so"))
        .current_dir("/");
    let said = command.uid(USER).gid(USER).output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&said.stdout),
        String::from_utf8_lossy(&said.stderr),
    );
    let expected = "True True True\nran\nFalse False False\nclosed\n";
    assert_eq!(out, expected, "{err}");
}
