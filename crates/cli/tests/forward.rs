//! `presagio ionode` and `presagio mount`, as people start them, and real programs on what is mounted.
//!
//! Needs root and /dev/fuse.

mod common;

use common::skips::skipped;
use common::{TempDir, presagio, presagio_ok, program};
use presagio_forward::{Options, Remote};
use presagio_ninep::OpenFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A process of ours; it is told to end, and waited for.
struct Running(Child);

impl Running {
    fn start(arguments: &[String]) -> Running {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        Running(command.spawn().expect("presagio starts"))
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Tells it to end, and returns how it did.
    fn end(mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.0.wait().expect("a child").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.signal(rustix::process::Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < late, "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// A directory with an export, a socket and a mount point.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new(name: &str) -> Place {
        let dir = TempDir::new(name);
        for sub in ["export", "mnt"] {
            fs::create_dir_all(Path::new(dir.path()).join(sub)).unwrap();
        }
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name)
            .to_str()
            .expect("a path in UTF-8")
            .to_owned()
    }

    fn address(&self, name: &str) -> String {
        format!("unix:{}", self.text(name))
    }

    fn control(&self) -> String {
        self.address("socket.control")
    }

    fn node(&self, more: &[&str]) -> Running {
        let mut arguments = vec!["ionode".into(), "--export".into(), self.text("export")];
        arguments.extend(["--listen".into(), self.address("socket")]);
        arguments.extend(more.iter().map(|text| (*text).to_owned()));
        let node = Running::start(&arguments);
        let listens = |name| std::os::unix::net::UnixStream::connect(self.path(name)).is_ok();
        until("the node listens", || {
            listens("socket") && listens("socket.control")
        });
        node
    }

    fn mount(&self) -> Mounted {
        let arguments = ["mount".into(), self.address("socket"), self.text("mnt")];
        let process = Running::start(&arguments);
        let device =
            |path: PathBuf| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
        until("it is mounted", || {
            device(self.path("mnt")) != device(self.path("export"))
        });
        Mounted(Some(process))
    }
}

/// Unmounted before its directory is removed.
struct Mounted(Option<Running>);

impl Drop for Mounted {
    fn drop(&mut self) {
        let code = self.0.take().and_then(Running::end);
        if !std::thread::panicking() {
            assert_eq!(code, Some(0), "the mount ends well");
        }
    }
}

/// A script that must succeed, with the mount as its working directory.
fn on_mount(place: &Place, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(place.path("mnt"))
        .env("OUTSIDE", place.dir.path())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether what these tests need is there.
fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        skipped("mounting needs root and /dev/fuse");
    }
    can
}

#[test]
fn a_node_says_what_it_does_and_takes_orders() {
    let place = Place::new("orders");
    let node = place.node(&["--policy", "SJF"]);
    let status = presagio_ok(&["ionode", "status", &place.control()]).json();
    assert_eq!(status["policy"], "SJF");
    assert_eq!(status["export"], place.text("export"));
    presagio_ok(&["ionode", "policy", "aIOLi", &place.control()]);
    assert_eq!(
        presagio_ok(&["ionode", "status", &place.control()]).json()["policy"],
        "aIOLi"
    );
    let refused = presagio(&["ionode", "policy", "FASTEST", &place.control()]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("FASTEST"), "{}", refused.err);
    let metrics = presagio_ok(&["ionode", "status", "--metrics", &place.control()]);
    assert!(
        metrics.out.contains("presagio_ionode_connections_total "),
        "{}",
        metrics.out
    );
    assert_eq!(node.end(), Some(0));
    assert!(!place.path("socket").exists(), "its socket is gone");
}

#[test]
fn what_a_node_records_can_be_read_and_foreseen() {
    if !can_mount() {
        return;
    }
    let place = Place::new("recorded");
    let _node = place.node(&[]);
    let trace = place.text("trace.ptrace");
    presagio_ok(&["ionode", "record", &place.control(), &trace]);
    {
        let _mount = place.mount();
        on_mount(
            &place,
            "dd if=/dev/zero of=written bs=64k count=32 status=none; cat written > /dev/null",
        );
    }
    let stopped = presagio_ok(&["ionode", "record", &place.control()]);
    assert!(stopped.out.contains(" events, 0 lost"), "{}", stopped.out);
    let info = presagio_ok(&["trace", "info", &trace, "--json"]).json();
    let text = info.to_string();
    assert!(text.contains("written"), "{text}");
    let foreseen = presagio_ok(&["ionode", "foresight", &place.control(), &trace]);
    assert!(!foreseen.out.starts_with("0 "), "{}", foreseen.out);
    presagio_ok(&["ionode", "foresight", &place.control()]);
}

#[test]
fn what_cannot_work_is_explained() {
    let place = Place::new("explained");
    let (export, socket) = (place.text("export"), place.address("socket"));
    let missing = presagio(&["ionode", "--export", "/nowhere/at/all", "--listen", &socket]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("/nowhere/at/all"), "{}", missing.err);
    let open = presagio(&["ionode", "--export", &export, "--listen", "tcp:0.0.0.0:0"]);
    assert_eq!(open.code, Some(2));
    assert!(open.err.contains("identity"), "{}", open.err);
    let nobody = presagio(&[
        "mount",
        &place.address("nobody"),
        &place.text("mnt"),
        "--patience",
        "0.1",
    ]);
    assert_eq!(nobody.code, Some(2));
    assert!(
        nobody.err.contains("is a node running there"),
        "{}",
        nobody.err
    );
    let talk = presagio(&["ionode", "status", &place.address("nobody")]);
    assert!(talk.err.contains("is the node running"), "{}", talk.err);
}

#[test]
fn the_names_of_a_striped_set_are_not_taken_for_its_bytes() {
    let place = Place::new("names");
    let servers = ["0", "1"].map(|name| place.text(name));
    servers
        .iter()
        .for_each(|path| fs::create_dir(path).unwrap());
    let node = place.node(&["--server", &servers[0], "--server", &servers[1]]);
    fs::create_dir(place.path("export/dir")).unwrap();
    let (export, below) = (place.text("export"), place.text("export/dir"));
    let listen = place.address("other");
    for export in [&export, &below, &servers[1]] {
        for more in [
            &[][..],
            &["--direct"],
            &["--layout", "stripe=64KiB servers=2"],
        ] {
            let ionode = ["ionode", "--export", export, "--listen", &listen];
            let refused = presagio(&[&ionode, more].concat());
            assert_eq!(refused.code, Some(2), "{}", refused.err);
            assert!(refused.err.contains("striped set"), "{}", refused.err);
        }
        let (socket, mnt) = (place.address("socket"), place.text("mnt"));
        let refused = presagio(&["mount", &socket, &mnt, "--direct", export]);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains("striped set"), "{}", refused.err);
    }
    assert_eq!(node.end(), Some(0));
}

/// Which stripe of a file a node serves first when all are asked for at once.
fn first_served(socket: &str, stripe: u64) -> u64 {
    let (sent, served) = std::sync::mpsc::channel();
    for number in 0..4 {
        let (sent, socket) = (sent.clone(), socket.to_owned());
        std::thread::spawn(move || {
            let mut options = Options::new(vec![socket.parse().unwrap()]);
            options.patience = Duration::from_secs(5);
            let remote = Remote::new(options).unwrap();
            let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
            let file = root.walk("file").unwrap().open(OpenFlags::RDONLY).unwrap();
            let got = file.read_at(number * stripe, &mut [0; 100]);
            // The others are cut off when the first has come.
            if got.is_ok() {
                let _ = sent.send(number);
            }
        });
    }
    served.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn nodes_that_share_servers_begin_on_different_ones() {
    let place = Place::new("twins");
    let servers: Vec<String> = (0..4).map(|i| place.text(&format!("server{i}"))).collect();
    servers
        .iter()
        .for_each(|path| fs::create_dir(path).unwrap());
    let set: Vec<&str> = servers.iter().flat_map(|path| ["--server", path]).collect();
    let set = [&set[..], &["--stripe", "4KiB", "--nodes", "2"]].concat();
    // Windows go by the time of day: so long that none ends while this runs.
    let twins = ["--policy", "TWINS", "--window", "1000000000000000"];
    let filler = place.node(&set);
    let root = Remote::new(Options::new(vec![place.address("socket").parse().unwrap()]));
    let root = root
        .unwrap()
        .root(rustix::process::geteuid().as_raw())
        .unwrap();
    let file = root.create("file", OpenFlags::RDWR, 0o644, 0).unwrap();
    assert_eq!(file.write_at(0, &[1; 4 * 4096]).unwrap(), 4 * 4096);
    drop((file, root));
    assert_eq!(filler.end(), Some(0));
    let first = ["0", "1"].map(|id| {
        let mut node = place.node(&[&set[..], &twins, &["--node-id", id]].concat());
        let first = first_served(&place.address("socket"), 4096);
        // It would wait for those that it has not served.
        node.0.kill().unwrap();
        node.0.wait().unwrap();
        first
    });
    assert_eq!(first[0].abs_diff(first[1]), 2, "{first:?}");
}

#[test]
fn programs_work_on_a_mount_as_on_a_disk() {
    if !can_mount() {
        return;
    }
    let place = Place::new("programs");
    let _node = place.node(&["--policy", "aIOLi", "--depth", "8"]);
    let _mount = place.mount();
    // git: many small files that nobody may write once they are made, renames, locks.
    on_mount(
        &place,
        r#"
        git init -q "$OUTSIDE/repo"; cd "$OUTSIDE/repo"
        git config user.name n; git config user.email e@x
        for i in $(seq 60); do mkdir -p d$((i%7)); head -c $((i*700)) /dev/urandom > d$((i%7))/f$i; done
        git add -A; git commit -qm one; git gc -q
        cd "$OUTSIDE/mnt"; git clone -q "$OUTSIDE/repo" clone; cd clone
        git fsck --full 2>&1; test -z "$(git status --porcelain)"
        echo more >> d1/f1; git -c user.name=n -c user.email=e@x commit -qam two; git gc -q; git fsck --full
    "#,
    );
    // tar there and back.
    on_mount(
        &place,
        r#"
        tar -C "$OUTSIDE/repo" -cf tree.tar .; mkdir out; tar -C out -xf tree.tar; diff -r "$OUTSIDE/repo" out
        cmp <(tar -C "$OUTSIDE/repo" --sort=name -cf - .) <(tar -C out --sort=name -cf - .)
    "#,
    );
    // SQLite, several writers at a time.
    let count = on_mount(
        &place,
        r#"
        sqlite3 db 'create table t(a integer primary key, b text);'
        for w in 1 2 3; do (for i in $(seq 12); do
            sqlite3 -cmd '.timeout 60000' db "insert into t(b) values ('$w-$i');"; done) & done; wait
        sqlite3 db 'pragma integrity_check; select count(*) from t;'
    "#,
    );
    assert_eq!(count.split_whitespace().collect::<Vec<_>>(), ["ok", "36"]);
    // fio reads back what it wrote, in no order, eight jobs at a time.
    on_mount(
        &place,
        r#"
        fio --name=verify --directory=. --rw=randwrite --bs=4k --size=1m --numjobs=8 --verify=crc32c \
            --ioengine=psync --end_fsync=1 --minimal > /dev/null
    "#,
    );
}

#[test]
fn ranks_share_a_file_on_a_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new("ranks");
    let _node = place.node(&[]);
    let _mount = place.mount();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/shared.c");
    on_mount(
        &place,
        &format!(
            r#"
        mpicc.openmpi -O1 -o "$OUTSIDE/shared" {source}
        mpirun.openmpi --oversubscribe -n 4 "$OUTSIDE/shared" "$PWD/file"
        mpirun.openmpi --oversubscribe --mca io ompio -n 4 "$OUTSIDE/shared" "$PWD/other"
        cmp file other; cmp file "$OUTSIDE/export/file"
    "#
        ),
    );
}

#[test]
fn a_node_is_replaced_while_it_is_used() {
    if !can_mount() {
        return;
    }
    let place = Place::new("replaced");
    let node = place.node(&[]);
    let _mount = place.mount();
    let script = r#"
        for i in $(seq 400); do echo "line $i" >> log; echo $i > f$((i%9)).new; mv f$((i%9)).new f$((i%9)); done
        wc -l < log
    "#;
    let lines = std::thread::scope(|scope| {
        let working = scope.spawn(|| on_mount(&place, script));
        let mut node = Some(node);
        while !working.is_finished() {
            sleep(Duration::from_millis(150));
            let old = node.take().expect("one runs");
            assert_eq!(old.end(), Some(0), "it is drained");
            node = Some(place.node(&[]));
        }
        working.join().unwrap()
    });
    assert_eq!(lines.trim(), "400");
    let log = fs::read_to_string(place.path("export/log")).unwrap();
    let lines = log.lines().enumerate();
    assert!(
        lines
            .into_iter()
            .all(|(at, line)| line == format!("line {}", at + 1))
    );
}
