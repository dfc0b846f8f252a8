//! Faults of the node itself, of the kernel's interface to it, and of users who want too much: who is concerned is told,
//! and nobody else notices.

mod auth;
mod common;

use auth::{Guarded, audited};
use common::gate::{Gate, Gated};
use common::raw::{Raw, encoded};
use common::{Exported, errno, is_root, opened, options, pattern, refusal, refused, rw_file};
use presagio_ionode::{Address, Config, Node};
use presagio_ninep::client::{Client, Options};
use presagio_ninep::extension::ReopenFlags;
use presagio_ninep::session::Session;
use presagio_ninep::{
    Data, Dialect, Errno, Fid, GetAttr, Handle, List, OpenFlags, Reply, Request, Step, Text,
    XattrFlags,
};
use presagio_storage::Directory;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn an_operation_that_panics_is_eio_and_the_node_goes_on() {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| {
        config.loops = 1;
        config.threads_max = 1;
    });
    let (_session, root) = node.connect();
    let file = rw_file(&root, "file");
    let appended = opened(&root, "file", OpenFlags::WRONLY | OpenFlags::APPEND);
    let mut back = [0; 5];
    for round in 0..20 {
        gate.break_down();
        refused(file.write_at(0, b"wrong"), Errno::IO);
        refused(appended.write_at(0, b"wrong"), Errno::IO);
        refused(file.read_at(0, &mut back), Errno::IO);
        refused(file.fsync(false), Errno::IO);
        gate.open();
        assert_eq!(file.write_at(0, b"right").unwrap(), 5, "round {round}");
        assert_eq!(file.read_at(0, &mut back).unwrap(), 5);
        assert_eq!(&back, b"right");
        file.fsync(false).unwrap();
    }
    assert_eq!(fs::read(node.path("file")).unwrap(), b"right");
}

const AS_NODE: &str = "PRESAGIO_TEST_NODE";

/// No test: a node that another test starts. It ends with its input.
#[test]
fn a_node_that_is_started() {
    let Some(directory) = std::env::var_os(AS_NODE) else {
        return;
    };
    let directory = Path::new(&directory);
    let mut config = Config::new(directory.join("export"));
    config.loops = 1;
    let address = Address::Unix(directory.join("socket"));
    let node = Node::start(config, Arc::new(Directory), &[address], false).unwrap();
    fs::write(directory.join("ready"), "").unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    drop(node);
}

/// The first call by which each loop tells the kernel of a read fails.
#[test]
fn a_read_that_the_kernel_did_not_take_is_told_again_without_another() {
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export");
    fs::create_dir(&export).unwrap();
    fs::write(export.join("file"), pattern(1, 1 << 20)).unwrap();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-o"])
        .arg(directory.path().join("calls"));
    command.args(["-e", "trace=io_uring_enter"]);
    command.args(["-e", "inject=io_uring_enter:error=EAGAIN:when=1..3"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "a_node_that_is_started"]);
    command.env(AS_NODE, directory.path());
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        return common::skipped("no strace here");
    };
    let ready = directory.path().join("ready");
    let mut ended = false;
    common::wait_until("the node listens", || {
        ended = child.try_wait().is_ok_and(|it| it.is_some());
        ended || ready.exists()
    });
    if ended {
        return common::skipped("strace cannot follow here");
    }
    let impatient = Options {
        timeout: Duration::from_secs(20),
        ..options()
    };
    let client = Client::unix(&directory.path().join("socket"), &impatient).unwrap();
    let session = Session::new(client);
    let root = session.attach("", "/", common::own_uid()).unwrap();
    let file = opened(&root, "file", OpenFlags::RDONLY);
    make_cold(&export.join("file"));
    let mut bytes = vec![0; 10_000];
    let read = file.read_at(500_000, &mut bytes);
    drop((file, root, session, child.stdin.take()));
    child.wait().unwrap();
    assert_eq!(read.expect("it is answered"), bytes.len());
    assert!(bytes == pattern(1, 1 << 20)[500_000..510_000]);
    let calls = fs::read_to_string(directory.path().join("calls")).unwrap();
    if !calls.contains("INJECTED") {
        common::skipped("no io_uring here, or the file was not cold");
    }
}

/// Takes a file's bytes out of the page cache.
fn make_cold(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn a_handle_of_another_user_is_refused_and_audited() {
    if !is_root("acting as other users") {
        return;
    }
    let node = Guarded::with(|_| {});
    fs::write(node.path("file"), "content").unwrap();
    let connect = |uid| {
        let client = Client::unix(&node.socket(), &options()).unwrap();
        let session = Session::new(client);
        let root = session.attach("", "/", uid).unwrap();
        (session, root)
    };
    let (theirs, root) = connect(61_001);
    let file = opened(&root, "file", OpenFlags::RDONLY);
    let answer = theirs.client().call(Request::Handle { fid: file.fid() });
    let answer = answer.unwrap();
    let Reply::Handle { handle } = answer.reply() else {
        panic!("a handle");
    };
    let (ours, root) = connect(61_002);
    let reopen = Request::Reopen {
        root: root.fid(),
        fid: Fid(5000),
        flags: ReopenFlags::new(OpenFlags::RDONLY),
        handle: Handle::new(handle.bytes()).unwrap(),
    };
    refused(ours.client().call(reopen), Errno::PERM);
    assert_eq!(
        audited("as uid 61002, it came with a handle of uid 61001").len(),
        1
    );
    assert_eq!(node.refused(), 1);
}

#[test]
fn a_user_has_no_more_files_than_allowed_over_all_its_connections() {
    if !is_root("acting as other users") {
        return;
    }
    let node = Exported::with(|config| config.files_per_user_max = 10);
    fs::write(node.path("file"), "content").unwrap();
    let connections: Vec<_> = (0..4).map(|_| node.connect_as(61_003)).collect();
    // Each has the root.
    let mut files = Vec::new();
    let refused = loop {
        let (_, root) = &connections[files.len() % 4];
        match root.walk("file") {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(refusal::<()>(Err(refused)), errno(libc::EMFILE));
    assert_eq!(files.len(), 6);
    let (_session, other) = node.connect_as(61_004);
    let theirs: Vec<_> = (0..9).map(|_| other.walk("file").unwrap()).collect();
    files.pop();
    common::wait_until("what was given back can be had again", || {
        connections[0].1.walk("file").is_ok()
    });
    drop(theirs);
}

#[test]
fn a_user_whose_requests_hang_keeps_nobody_else_waiting() {
    if !is_root("acting as other users") {
        return;
    }
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| {
        config.requests_per_user_max = 3;
    });
    fs::write(node.path("file"), pattern(1, 100_000)).unwrap();
    gate.shut_reads();
    let connections: Vec<_> = (0..3).map(|_| node.connect_as(61_005)).collect();
    let files = connections
        .iter()
        .map(|(_, root)| opened(root, "file", OpenFlags::RDONLY));
    let files: Vec<_> = files.collect();
    let mut reads = Vec::new();
    for (at, ((session, _), file)) in (0..4)
        .flat_map(|_| connections.iter().zip(&files))
        .enumerate()
    {
        let read = Request::Read {
            fid: file.fid(),
            offset: at as u64 * 8192,
            count: 100,
        };
        reads.push(session.client().submit(read).unwrap());
    }
    gate.wait_for(1);
    let (_session, other) = node.connect_as(61_006);
    for _ in 0..50 {
        other.getattr(GetAttr::BASIC).expect("others are served");
    }
    let engine = node.node().engine();
    let under_way = engine.queued() + engine.in_flight();
    gate.open();
    assert!(under_way <= 3, "{under_way} of its requests were taken in");
    for read in reads {
        read.wait().expect("all are answered in the end");
    }
}

/// With the defaults.
#[test]
fn requests_that_hang_are_taken_in_up_to_a_bound() {
    const BOUND: u64 = 65_536;
    let gate = Arc::new(Gate::default());
    const LOOPS: u64 = 2;
    let node = Guarded::on(Arc::new(Gated(gate.clone())), |config| {
        config.loops = LOOPS as usize;
    });
    fs::write(node.path("stuck"), "").unwrap();
    gate.shut_sizes();
    let steps = [Step::new("stuck").unwrap()];
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: List::new(&steps).unwrap(),
    };
    let open = Request::Open {
        fid: Fid(1),
        flags: OpenFlags::RDONLY,
    };
    let attributes = Request::GetAttr {
        fid: Fid(1),
        mask: GetAttr::BASIC,
    };
    let asked = (0..256).flat_map(|tag| encoded(tag, &attributes));
    let asked: Vec<u8> = asked.collect();
    let mut all: Vec<Raw> = (0..300)
        .map(|_| Raw::attached(&node.socket(), 65536))
        .collect();
    for raw in &mut all {
        assert_eq!(raw.call(1, &walk).error(), None);
        assert_eq!(raw.call(1, &open).error(), None);
    }
    all.iter_mut().for_each(|raw| raw.send(&asked).unwrap());
    let figure = format!(
        "presagio_ionode_user_requests{{uid=\"{}\"}}",
        common::own_uid()
    );
    let taken = || node.figure(&figure);
    common::wait_until("as many as it may have", || taken() >= BOUND);
    // A moment in which a node without a bound would take more; each loop may find room at once.
    for _ in 0..50 {
        assert!(taken() <= BOUND + LOOPS, "{} were taken in", taken());
        std::thread::sleep(Duration::from_millis(1));
    }
    gate.open();
    for raw in &mut all {
        for _ in 0..256 {
            assert_eq!(raw.take().expect("all are answered").error(), None);
        }
    }
}

#[test]
fn appends_are_counted_and_recorded_as_other_writes_are() {
    let node = Guarded::with(|_| {});
    let trace = node.path("../trace");
    let client = Client::unix(&node.socket(), &options()).unwrap();
    let (nothing, job) = (Text::new("").unwrap(), Text::new("42").unwrap());
    let hello = Request::Hello {
        instance: [0x42; 16],
        resume: [0; 16],
        client: nothing,
        job,
        rank: 3,
        program: nothing,
    };
    client.call(hello).unwrap();
    let session = Session::new(client);
    let root = session.attach("", "/", common::own_uid()).unwrap();
    rw_file(&root, "file").write_at(0, &[0; 10]).unwrap();
    node.node().record(&trace).unwrap();
    let file = opened(&root, "file", OpenFlags::WRONLY | OpenFlags::APPEND);
    assert_eq!(file.write_at(0, &[1; 100]).unwrap(), 100);
    let bytes = [2; 30];
    let write = Request::Write {
        fid: file.fid(),
        offset: 0,
        data: Data::new(&bytes).unwrap(),
    };
    let once = Request::Once {
        sequence: 1,
        settled: 0,
        request: presagio_ninep::extension::Wrapped::new(&write).unwrap(),
    };
    session.client().call(once).unwrap();
    assert_eq!(node.node().stop_recording().unwrap(), Some(2));
    let events = presagio_trace::open(&trace)
        .unwrap()
        .filter_map(|record| match record.unwrap() {
            presagio_trace::Record::Event(event) => Some((event.offset, event.moved())),
            _ => None,
        });
    assert_eq!(events.collect::<Vec<_>>(), [(10, 100), (110, 30)]);
    let counted = node.figure("presagio_ionode_job_bytes_total{job=\"42\",op=\"write\"}");
    assert_eq!(counted, 140);
}

/// Sends writes, and hangs up.
#[test]
fn what_a_user_has_asked_for_counts_also_when_its_connection_is_gone() {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| {
        config.requests_per_user_max = 3;
        config.depth = Some(1);
    });
    fs::write(node.path("file"), "").unwrap();
    gate.shut_writes();
    let steps = [Step::new("file").unwrap()];
    let walk = Request::Walk {
        fid: Fid(0),
        new_fid: Fid(1),
        steps: List::new(&steps).unwrap(),
    };
    let open = Request::Open {
        fid: Fid(1),
        flags: OpenFlags::RDWR,
    };
    let (bytes, engine) = (pattern(1, 5000), node.node().engine());
    for round in 0..3u64 {
        let mut raw = Raw::attached(&node.socket(), 65536);
        // The node takes in what it may; whatever it does not goes with the connection.
        let mut all = [encoded(1, &walk), encoded(2, &open)].concat();
        for tag in 3..11 {
            let offset = (round * 8 + u64::from(tag)) * 100_000;
            let data = Data::new(&bytes).unwrap();
            let fid = Fid(1);
            all.extend(encoded(tag, &Request::Write { fid, offset, data }));
        }
        raw.send(&all).unwrap();
        let taken = || engine.queued() + engine.in_flight();
        if round == 0 {
            common::wait_until("as many as it may have", || taken() == 3);
        }
        // A moment in which a node that had forgotten them would take more.
        for _ in 0..50 {
            assert_eq!(taken(), 3, "those of the first, and no more");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(raw);
        common::wait_until("it has left", || node.node().connections() == 0);
    }
    gate.open();
    common::wait_until("they are done", || {
        engine.queued() + engine.in_flight() == 0
    });
    let (_session, root) = node.connect();
    opened(&root, "file", OpenFlags::RDWR)
        .write_at(0, &bytes)
        .expect("it may ask again");
}

#[test]
fn attributes_that_are_held_count() {
    let node = Exported::with(|config| config.memory_per_user_max = 256 << 10);
    fs::write(node.path("file"), "").unwrap();
    let mut raw = Raw::attached(&node.socket(), 65536);
    let steps = [Step::new("file").unwrap()];
    let create = |raw: &mut Raw, fid: u32| {
        let walk = Request::Walk {
            fid: Fid(0),
            new_fid: Fid(fid),
            steps: List::new(&steps).unwrap(),
        };
        assert_eq!(raw.call(1, &walk).error(), None);
        let create = Request::XattrCreate {
            fid: Fid(fid),
            name: Text::new("user.x").unwrap(),
            size: 64 << 10,
            flags: XattrFlags(0),
        };
        raw.call(1, &create).error()
    };
    assert_eq!(create(&mut raw, 1), None);
    assert_eq!(create(&mut raw, 2), Some(errno(libc::ENOMEM)));
    let clunk = raw.call(1, &Request::Clunk { fid: Fid(1) }).error();
    assert_eq!(clunk, Some(Errno::INVAL), "nothing was written to it");
    assert_eq!(create(&mut raw, 3), None);
}

/// Sends all but the last byte of a large numbered request.
#[test]
fn a_frame_that_is_there_in_part_counts() {
    let node = Guarded::with(|_| {});
    let mut raw = Raw::silent(&node.socket());
    let (msize, version) = (4 << 20, Dialect::Presagio.version());
    raw.call(u16::MAX, &Request::Version { msize, version });
    raw.attach(Fid(0));
    assert_eq!(node.memory(), 0);
    let head = [&(2u32 << 20).to_le_bytes()[..], &[204, 1, 0]].concat();
    raw.send(&head).unwrap();
    raw.send(&vec![0; 1 << 20]).unwrap();
    common::wait_until("it counts", || node.memory() >= 2 << 20);
    drop(raw);
    common::wait_until("it does not any more", || node.memory() == 0);
}

/// As many large numbered requests at once as there is memory, each in two parts.
#[test]
fn frames_that_come_in_parts_do_not_wait_for_each_other() {
    let node = Exported::with(|config| config.memory_max = 4 << 20);
    fs::write(node.path("file"), "").unwrap();
    let (_session, root) = node.connect();
    let bytes = pattern(1, 1 << 20);
    let all: Vec<_> = (1..=4u8)
        .map(|number| {
            let mut raw = Raw::silent(&node.socket());
            let (msize, version) = (2 << 20, Dialect::Presagio.version());
            raw.call(u16::MAX, &Request::Version { msize, version });
            let nothing = Text::new("").unwrap();
            let hello = Request::Hello {
                instance: [number; 16],
                resume: [0; 16],
                client: nothing,
                job: nothing,
                rank: 0,
                program: nothing,
            };
            assert_eq!(raw.call(1, &hello).error(), None);
            raw.attach(Fid(0));
            let steps = [Step::new("file").unwrap()];
            let walk = Request::Walk {
                fid: Fid(0),
                new_fid: Fid(1),
                steps: List::new(&steps).unwrap(),
            };
            assert_eq!(raw.call(1, &walk).error(), None);
            let open = Request::Open {
                fid: Fid(1),
                flags: OpenFlags::WRONLY | OpenFlags::APPEND,
            };
            assert_eq!(raw.call(1, &open).error(), None);
            let write = Request::Write {
                fid: Fid(1),
                offset: 0,
                data: Data::new(&bytes).unwrap(),
            };
            let once = Request::Once {
                sequence: 1,
                settled: 0,
                request: presagio_ninep::extension::Wrapped::new(&write).unwrap(),
            };
            let whole = encoded(1, &once);
            raw.send(&whole[..100_000]).unwrap();
            (raw, whole)
        })
        .collect();
    // The node has seen what it was sent.
    for _ in 0..20 {
        root.getattr(GetAttr::BASIC).unwrap();
    }
    for (mut raw, whole) in all {
        raw.send(&whole[100_000..]).unwrap();
        assert_eq!(raw.take().unwrap().error(), None);
    }
    assert_eq!(fs::metadata(node.path("file")).unwrap().len(), 4 << 20);
}

#[test]
fn a_users_small_share_of_memory_slows_it_down_and_no_more() {
    let node = Exported::with(|config| config.memory_per_user_max = 1);
    let (_one, root) = node.connect();
    let (_two, other) = node.connect();
    let bytes = pattern(3, 3 << 20);
    std::thread::scope(|scope| {
        for (name, root) in [("one", &root), ("two", &other)] {
            let bytes = &bytes;
            scope.spawn(move || {
                let file = rw_file(root, name);
                assert_eq!(file.write_at(0, bytes).unwrap(), bytes.len());
                let mut back = vec![0; bytes.len()];
                assert_eq!(file.read_at(0, &mut back).unwrap(), bytes.len());
                assert!(back == *bytes);
            });
        }
    });
}
