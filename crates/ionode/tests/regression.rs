//! Promises that the node did not always keep: each of these found a fault.

mod common;

use common::gate::{Gate, Gated};
use common::raw::{Raw, encoded, frame};
use common::users::{To, kind_and_errno, session, talk_as};
use common::{
    Exported, errno, is_root, names, opened, options, pattern, read_all, refused, rw_file,
    wait_until,
};
use presagio_ninep::client::{Client, Options};
use presagio_ninep::{
    Data, Errno, Fid, GetAttr, Kind, Name, OpenFlags, Reply, Request, SetAttr, SetMask,
    UnlinkFlags, XattrFlags,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A client that gives up before the node leaves somebody who stalls.
fn impatient() -> Options {
    Options {
        timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(10),
        ..options()
    }
}

/// Lets whoever waits in opening a pipe go on, also when the test fails.
struct Released(PathBuf);

impl Drop for Released {
    fn drop(&mut self) {
        let both = fs::File::options().read(true).write(true).open(&self.0);
        drop(both);
    }
}

#[test]
fn creating_the_name_of_a_pipe_holds_nobody_up() {
    let node = Exported::with(|config| config.loops = 1);
    let (_session, root) = node.connect_with(&impatient());
    root.mknod("pipe", 0o010_666, (0, 0)).unwrap();
    let _released = Released(node.path("pipe"));
    let mut raw = Raw::attached(&node.socket(), 8192);
    let create = Request::Create {
        fid: Fid(0),
        name: Name::new("pipe").unwrap(),
        flags: OpenFlags::WRONLY,
        mode: 0o600,
        gid: 0,
    };
    raw.ask(5, &create);
    for _ in 0..20 {
        root.getattr(GetAttr::BASIC).expect("others are served");
    }
    let error = raw.take().expect("a reply").error();
    assert_eq!(error, Some(errno(libc::ENXIO)), "pipes are not opened");
}

/// Connects, says all at once and is gone before the node has looked who it was.
const HIT_AND_RUN: &str = r#"
import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
said = sys.stdin.buffer.read()
for _ in range(300):
    it = socket.create_connection((host, int(port)))
    it.sendall(said)
    it.close()
"#;

#[test]
fn whoever_has_gone_is_not_taken_for_root() {
    if !is_root("a client of another user") {
        return;
    }
    let node = Exported::start();
    let requests = [
        common::raw::attach_as(Fid(0), 0),
        Request::Mkdir {
            dir: Fid(0),
            name: Name::new("by-nobody").unwrap(),
            mode: 0o755,
            gid: 0,
        },
    ];
    let mut command = common::users::command_as(65533, 65533, "/usr/bin/python3");
    command.args(["-c", HIT_AND_RUN, node.tcp()]);
    common::users::run(command, &session(&requests));
    // Connections are taken in the order in which they came: when ours is, the others were.
    let (_session, root) = node.connect_tcp();
    wait_until("the others have left", || node.node().connections() == 1);
    assert!(
        names(&root).is_empty(),
        "another user made something as root"
    );
}

/// Lets fid 1 of a raw client stand for an open file.
fn open_raw(raw: &mut Raw, name: &str, flags: OpenFlags) {
    let steps = [presagio_ninep::Step::new(name).unwrap()];
    let steps = presagio_ninep::List::new(&steps).unwrap();
    let (fid, new_fid) = (Fid(0), Fid(1));
    let walk = Request::Walk {
        fid,
        new_fid,
        steps,
    };
    assert_eq!(raw.call(2, &walk).kind, Kind(111));
    let open = Request::Open {
        fid: new_fid,
        flags,
    };
    assert_eq!(raw.call(2, &open).kind, Kind(13));
}

#[test]
fn small_limits_slow_nobody_down_for_ever() {
    let node = Exported::with(|config| {
        config.requests_max = 1;
        config.bytes_max = 1;
        config.memory_max = 1;
        config.threads_max = 1;
        config.depth = Some(1);
    });
    let (session, root) = node.connect_with(&impatient());
    let file = rw_file(&root, "file");
    let bytes = pattern(4, 3 * session.client().io_max() as usize);
    assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
    let mut back = vec![0; bytes.len()];
    assert_eq!(file.read_at(0, &mut back).unwrap(), bytes.len());
    assert!(back == bytes);
}

#[test]
fn who_reads_late_still_gets_all_replies() {
    let node = Exported::with(|config| config.bytes_max = 1 << 20);
    fs::write(node.path("file"), pattern(1, 1 << 20)).unwrap();
    let mut raw = Raw::attached(&node.socket(), 1 << 20);
    raw.stream
        .set_read_timeout(Some(impatient().timeout))
        .unwrap();
    open_raw(&mut raw, "file", OpenFlags::RDONLY);
    for tag in 10..30 {
        let read = Request::Read {
            fid: Fid(1),
            offset: 0,
            count: 500_000,
        };
        raw.ask(tag, &read);
    }
    let mut seen: Vec<u16> = (10..30).map(|_| raw.take().expect("a reply").tag).collect();
    seen.sort_unstable();
    assert!(seen == (10..30).collect::<Vec<u16>>());
}

#[test]
fn writes_that_never_arrive_keep_no_memory_from_others() {
    let node = Exported::with(|config| {
        config.memory_max = 16 << 20;
        config.bytes_max = 4 << 20;
    });
    let (_session, root) = node.connect_with(&impatient());
    let file = rw_file(&root, "file");
    let bytes = vec![0; 3 << 20];
    let half: Vec<Raw> = (0..8)
        .map(|_| {
            let mut raw = Raw::attached(&node.socket(), 4 << 20);
            let data = Data::new(&bytes).unwrap();
            let write = Request::Write {
                fid: Fid(7),
                offset: 0,
                data,
            };
            let frame = encoded(9, &write);
            raw.send(&frame[..100_000]).unwrap();
            raw
        })
        .collect();
    for round in 0..50 {
        let bytes = pattern(round, 100_000);
        file.write_at(0, &bytes).expect("others are served");
        assert!(read_all(&file) == bytes);
    }
    drop(half);
}

#[test]
fn a_storage_that_hangs_in_a_write_leaves_other_files_alone() {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| config.loops = 1);
    let (_one, root) = node.connect();
    let stuck = rw_file(&root, "stuck");
    let (_two, other) = node.connect_with(&impatient());
    gate.shut_writes();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| stuck.write_at(0, b"bytes"));
        gate.wait_for(1);
        let served = (0..20).all(|_| other.getattr(GetAttr::BASIC).is_ok());
        gate.open();
        assert_eq!(writing.join().unwrap().unwrap(), 5);
        assert!(served, "others are served while a write hangs");
    });
}

#[test]
fn reads_that_hang_keep_nobody_from_names_and_syncs() {
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| {
        config.threads_max = 2
    });
    fs::write(node.path("stuck"), pattern(1, 100_000)).unwrap();
    let (one, root) = node.connect();
    let stuck = opened(&root, "stuck", OpenFlags::RDONLY);
    let (_two, other) = node.connect_with(&impatient());
    let file = rw_file(&other, "file");
    // So that the node knows that syncs take their time.
    let sync = || file.write_at(0, b"x").and_then(|_| file.fsync(false));
    (0..20).for_each(|_| sync().unwrap());
    gate.shut_reads();
    let reads = (0..8).map(|at| Request::Read {
        fid: stuck.fid(),
        offset: at * 10_000,
        count: 100,
    });
    let reads: Vec<_> = reads
        .map(|read| one.client().submit(read).unwrap())
        .collect();
    gate.wait_for(2);
    let synced = sync();
    gate.open();
    for read in reads {
        read.wait().unwrap();
    }
    synced.expect("others are served while reads hang");
}

/// Lets fids of a raw client stand for one open file.
fn open_many(raw: &mut Raw, name: &str, fids: std::ops::Range<u32>) {
    let steps = [presagio_ninep::Step::new(name).unwrap()];
    for new_fid in fids.map(Fid) {
        let (fid, flags) = (Fid(0), OpenFlags::RDONLY);
        let steps = presagio_ninep::List::new(&steps).unwrap();
        let walk = Request::Walk {
            fid,
            new_fid,
            steps,
        };
        assert_eq!(raw.call(2, &walk).error(), None);
        let open = Request::Open {
            fid: new_fid,
            flags,
        };
        assert_eq!(raw.call(2, &open).error(), None);
    }
}

fn get_attr(fid: u32) -> Request<'static> {
    let (fid, mask) = (Fid(fid), GetAttr::BASIC);
    Request::GetAttr { fid, mask }
}

/// More of them than a loop has threads to lose, each after as many that are quick as make its kind one of the quick ones.
#[test]
fn what_hangs_now_and_then_among_what_is_quick_stops_nobody_else() {
    const HUNG: u32 = 300;
    const QUICK: usize = 64;
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| config.loops = 1);
    fs::write(node.path("stuck"), "").unwrap();
    gate.shut_sizes();
    let mut stuck = [0, 1].map(|_| Raw::attached(&node.socket(), 65536));
    for raw in &mut stuck {
        open_many(raw, "stuck", 1..HUNG / 2 + 1);
    }
    gate.spare_new_files();
    let (_session, other) = node.connect_with(&impatient());
    let quick = rw_file(&other, "quick");
    let mut hung = (1..HUNG / 2 + 1).flat_map(|fid| [(0, fid), (1, fid)]);
    let served = hung.all(|(raw, fid)| {
        stuck[raw].ask(fid as u16, &get_attr(fid));
        (0..QUICK).all(|_| quick.getattr(GetAttr::BASIC).is_ok())
    });
    gate.open();
    assert!(served, "others are served while one after the other hangs");
    for raw in &mut stuck {
        for _ in 1..HUNG / 2 + 1 {
            assert_eq!(raw.take().expect("a reply").error(), None);
        }
    }
}

/// All that a loop has found to do at once.
#[test]
fn many_that_hang_at_once_stop_nobody_else() {
    const HUNG: u32 = 250;
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| config.loops = 1);
    fs::write(node.path("stuck"), "").unwrap();
    gate.shut_sizes();
    let mut stuck = [0, 1].map(|_| Raw::attached(&node.socket(), 65536));
    for raw in &mut stuck {
        open_many(raw, "stuck", 1..HUNG + 1);
    }
    let (_session, other) = node.connect_with(&impatient());
    for raw in &mut stuck {
        let all = (1..HUNG + 1).flat_map(|fid| encoded(fid as u16, &get_attr(fid)));
        raw.send(&all.collect::<Vec<u8>>()).unwrap();
    }
    let served = (0..20).all(|_| other.getattr(GetAttr::BASIC).is_ok());
    gate.open();
    assert!(served, "others are served while many hang");
    for raw in &mut stuck {
        for _ in 0..HUNG {
            assert_eq!(raw.take().expect("a reply").error(), None);
        }
    }
}

#[test]
fn a_fid_that_was_renamed_is_renamed_and_removed_again() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::create_dir(node.path("dir")).unwrap();
    let dir = root.walk("dir").unwrap();
    fs::write(node.path("first"), "content").unwrap();
    let file = root.walk("first").unwrap();
    file.rename(&dir, "second").unwrap();
    file.rename(&root, "third").unwrap();
    assert_eq!(names(&root), ["dir", "third"]);
    file.remove().unwrap();
    assert_eq!(names(&root), ["dir"]);
}

#[test]
fn values_of_attributes_may_be_larger_than_a_page() {
    let node = Exported::start();
    let (session, root) = node.connect();
    fs::write(node.path("file"), "").unwrap();
    let file = root.walk("file").unwrap();
    let value = pattern(3, 40_000);
    let create = Request::XattrCreate {
        fid: file.fid(),
        name: presagio_ninep::Text::new("user.large").unwrap(),
        size: value.len() as u64,
        flags: XattrFlags(0),
    };
    session.client().call(create).unwrap();
    // Whether the file system has room for it shows when the fid is clunked.
    let written = session.client().write(file.fid(), 0, &value).unwrap();
    assert_eq!(written, value.len());
}

#[test]
fn an_empty_value_is_a_value_and_replacing_by_nothing_removes() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "tagged");
    file.set_xattr("user.empty", b"", XattrFlags(0)).unwrap();
    assert_eq!(file.xattr("user.empty").unwrap(), b"");
    // What Linux sends for removexattr(2).
    file.set_xattr("user.empty", b"", XattrFlags::REPLACE)
        .unwrap();
    refused(file.xattr("user.empty"), Errno::NODATA);
}

#[test]
fn one_user_has_no_more_connections_than_allowed() {
    let node = Exported::with(|config| config.connections_per_user_max = 3);
    let kept: Vec<_> = (0..3).map(|_| node.connect()).collect();
    let fourth = Client::unix(&node.socket(), &impatient());
    assert!(fourth.is_err(), "a fourth connection of the same user");
    drop(kept);
}

#[test]
fn a_user_that_this_machine_does_not_know_has_the_group_it_came_with() {
    if !is_root("clients of other users") {
        return;
    }
    let node = Exported::start();
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(node.export(), everybody).unwrap();
    let (uid, socket) = (54321, node.socket());
    // Root looked it up before, without knowing the group.
    node.connect_as(uid);
    let mkdir = Request::Mkdir {
        dir: Fid(0),
        name: Name::new("dir").unwrap(),
        mode: 0o755,
        gid: u32::MAX,
    };
    let requests = [common::raw::attach_as(Fid(0), uid), mkdir];
    let replies = talk_as(uid, 4711, &To::Unix(&socket), &requests);
    assert_eq!(kind_and_errno(&replies[1]), (Kind(73), None));
    let stat = fs::metadata(node.path("dir")).unwrap();
    assert_eq!((stat.uid(), stat.gid()), (uid, 4711));
}

#[test]
fn a_large_write_before_any_version_ends_the_connection() {
    let node = Exported::start();
    let mut raw = Raw::silent(&node.socket());
    let data = [1; 30_000];
    let count = (data.len() as u32).to_le_bytes();
    let write = frame(118, 1, &[&[0; 12], &count, &data]);
    let (first, second) = write.split_at(10_000);
    raw.send(first).unwrap();
    // It may be ended before all is sent.
    let _ = raw.send(second);
    assert!(raw.take().is_none(), "it is answered");
}

#[test]
fn a_listing_with_no_room_for_an_entry_is_no_end() {
    let node = Exported::start();
    let mut raw = Raw::attached(&node.socket(), 8192);
    fs::write(node.path(format!("file-{}", "x".repeat(200))), "").unwrap();
    let open = Request::Open {
        fid: Fid(0),
        flags: OpenFlags::DIRECTORY,
    };
    raw.call(1, &open);
    let mut offset = 0;
    // Behind the dots there is one long name, and no room for it.
    loop {
        let list = Request::ReadDir {
            fid: Fid(0),
            offset,
            count: 30,
        };
        let taken = raw.call(1, &list);
        let Reply::ReadDir { entries } = taken.reply() else {
            return assert_eq!(taken.error(), Some(Errno::INVAL));
        };
        let last = presagio_ninep::Entries::new(entries).last();
        offset = last
            .expect("no end while there are entries")
            .unwrap()
            .offset;
    }
}

#[test]
fn what_has_lost_its_last_name_gets_no_other() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    let file = rw_file(&root, "file");
    root.unlink("file", UnlinkFlags(0)).unwrap();
    // As linkat(2) says it of a file without a name.
    refused(root.link(&file, "again"), Errno::NOENT);
    assert!(names(&root).is_empty());
}

#[test]
fn what_is_no_symbolic_link_cannot_be_read_as_one() {
    let node = Exported::start();
    let (_session, root) = node.connect();
    fs::write(node.path("file"), "").unwrap();
    // As readlink(2) says it.
    refused(root.walk("file").unwrap().readlink(), Errno::INVAL);
    refused(root.readlink(), Errno::INVAL);
}

#[test]
fn a_file_of_a_striped_set_that_is_cut_is_no_longer_its_owners_program() {
    let node = Exported::striped(2, 4096);
    let (_session, root) = node.connect();
    let file = rw_file(&root, "program");
    file.write_at(0, b"program").unwrap();
    file.close().unwrap();
    let set = fs::Permissions::from_mode(0o6755);
    fs::set_permissions(node.path("program"), set).unwrap();
    let cut = SetAttr {
        valid: SetMask::SIZE,
        size: 3,
        ..SetAttr::default()
    };
    root.walk("program").unwrap().setattr(cut).unwrap();
    let mode = fs::metadata(node.path("program")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755);
}
