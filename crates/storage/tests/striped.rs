//! What a striped set promises: it behaves as one file of bytes, for all who have it open, and is only ever the set that
//! it was made as.

mod common;

use common::{BOTH, create, name, open, pattern, read, size, write};
use presagio_core::Range;
use presagio_storage::{Access, Durable, Size, Storage, Striped, StripedSet};
use proptest::prelude::*;
use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Directories of a set.
struct Place {
    root: TempDir,
    set: StripedSet,
}

impl Place {
    fn new(servers: usize, stripe: u64) -> Place {
        let root = tempfile::tempdir().expect("a directory");
        let make = |name: String| {
            let path = root.path().join(name);
            fs::create_dir(&path).expect("a directory");
            path
        };
        let namespace = make("names".into());
        let servers = (0..servers).map(|i| make(format!("server{i}"))).collect();
        let set = StripedSet {
            namespace,
            servers,
            stripe,
        };
        Place { root, set }
    }

    fn start(&self) -> Striped {
        Striped::start(&self.set).expect("a set")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.set.namespace.join(name)
    }

    fn refused(&self) -> String {
        let refused = Striped::start(&self.set).err();
        refused.expect("not this set").to_string()
    }

    /// All objects, with their lengths.
    fn objects(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        for server in &self.set.servers {
            for directory in entries(server) {
                if directory
                    .file_name()
                    .is_some_and(|name| name != ".presagio")
                {
                    let objects = entries(&directory).into_iter();
                    found.extend(objects.map(|path| {
                        let len = fs::metadata(&path).expect("an object").len();
                        (path, len)
                    }));
                }
            }
        }
        found
    }
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Append(usize),
    SetLen(u64),
    Read(u64, u64),
    Reopen,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let step = prop_oneof![
        4 => (0_u64..60_000, 0_usize..30_000).prop_map(|(at, len)| Step::Write(at, len)),
        2 => (0_usize..20_000).prop_map(Step::Append),
        2 => (0_u64..90_000).prop_map(Step::SetLen),
        4 => (0_u64..90_000, 0_u64..50_000).prop_map(|(at, len)| Step::Read(at, len)),
        1 => Just(Step::Reopen),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec((any::<bool>(), step), 1..30)
}

/// The file as it should be.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        if !bytes.is_empty() && self.0.len() < end {
            self.0.resize(end, 0);
        }
        if !bytes.is_empty() {
            self.0[at as usize..end].copy_from_slice(bytes);
        }
    }

    fn read(&self, range: Range) -> &[u8] {
        let len = self.0.len() as u64;
        &self.0[range.start().min(len) as usize..range.end().min(len) as usize]
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_striped_file_is_a_file(
        servers in 1_usize..6,
        stripe in prop::sample::select(vec![4096_u64, 8192, 20_480]),
        steps in steps(),
    ) {
        let place = Place::new(servers, stripe);
        let mut storage = place.start();
        let path = place.file("f");
        let mut files = [create(&storage, &path), open(&storage, &path)];
        let mut model = Model::default();
        for (seed, (which, step)) in (0..).zip(steps) {
            let file = &files[usize::from(which)];
            match step {
                Step::Write(at, len) => {
                    let bytes = pattern(seed, len);
                    write(&**file, at, &bytes);
                    model.write(at, &bytes);
                }
                Step::Append(len) => {
                    let bytes = pattern(seed, len);
                    prop_assert_eq!(file.append(&bytes).expect("append"), len);
                    model.0.extend(bytes);
                }
                Step::SetLen(len) => {
                    file.set_len(len).expect("a length");
                    model.0.resize(len as usize, 0);
                }
                Step::Read(at, len) => {
                    let range = Range::at(at, len);
                    prop_assert_eq!(read(&**file, range), model.read(range));
                }
                Step::Reopen => files[usize::from(which)] = open(&storage, &path),
                Step::Restart => {
                    storage = place.start();
                    files = [open(&storage, &path), open(&storage, &path)];
                }
            }
            let sizes = files.iter().map(|file| size(&**file));
            prop_assert!(sizes.into_iter().all(|size| size == model.0.len() as u64));
        }
        for file in &files {
            prop_assert_eq!(&read(&**file, Range::at(0, 200_000)), &model.0);
        }
        let named = storage.size(name(&path).as_fd()).expect("a size").expect("its own");
        prop_assert_eq!(named.bytes, model.0.len() as u64);
    }
}

#[test]
fn a_hole_between_objects_reads_as_zeros() {
    let place = Place::new(3, 4096);
    let file = create(&place.start(), &place.file("f"));
    write(&*file, 5 * 4096, b"x");
    let mut expected = vec![0; 5 * 4096];
    expected.push(b'x');
    assert_eq!(read(&*file, Range::at(0, 1 << 20)), expected);
    assert_eq!(place.objects().len(), 1, "nobody wrote to the others");
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let place = Place::new(3, 4096);
    let file = create(&place.start(), &place.file("f"));
    write(&*file, 0, &pattern(1, 50_000));
    file.set_len(5_000).expect("cut");
    file.set_len(50_000).expect("extended");
    let bytes = read(&*file, Range::at(0, 60_000));
    assert_eq!(bytes.len(), 50_000);
    assert_eq!(bytes[..5_000], pattern(1, 5_000));
    assert!(bytes[5_000..].iter().all(|byte| *byte == 0));
}

#[test]
fn pieces_name_the_server_that_has_the_bytes() {
    let place = Place::new(4, 4096);
    let storage = place.start();
    let mut firsts = [0; 4];
    for i in 0..64 {
        let file = create(&storage, &place.file(&i.to_string()));
        let pieces = file.pieces(Range::at(0, 4096));
        assert_eq!(pieces.len(), 1);
        let before = place.objects();
        write(&*file, 0, b"x");
        let server = pieces[0].queue.0 as usize;
        firsts[server] += 1;
        let made: Vec<_> = place
            .objects()
            .into_iter()
            .filter(|at| !before.contains(at))
            .collect();
        assert_eq!(made.len(), 1);
        assert!(made[0].0.starts_with(&place.set.servers[server]));
    }
    assert!(firsts.iter().all(|first| *first > 0), "small files spread");
}

#[test]
fn appends_of_two_nodes_do_not_tear_each_other() {
    const LINE: usize = 6_000;
    let place = Place::new(3, 4096);
    let nodes = [place.start(), place.start()];
    let path = place.file("log");
    drop(create(&nodes[0], &path));
    std::thread::scope(|threads| {
        for writer in 1..=4_u8 {
            let (nodes, path) = (&nodes, &path);
            threads.spawn(move || {
                let file = open(&nodes[usize::from(writer) % 2], path);
                for _ in 0..25 {
                    assert_eq!(file.append(&[writer; LINE]).expect("append"), LINE);
                }
            });
        }
    });
    let bytes = read(&*open(&nodes[0], &path), Range::at(0, 10_000_000));
    assert_eq!(bytes.len(), 100 * LINE);
    let mut lines = [0; 5];
    for line in bytes.chunks(LINE) {
        assert!(line.iter().all(|byte| *byte == line[0]), "a torn line");
        lines[usize::from(line[0])] += 1;
    }
    assert_eq!(lines, [0, 25, 25, 25, 25]);
}

#[test]
fn a_reader_that_follows_a_writer_never_sees_zeros() {
    let place = Place::new(3, 4096);
    let storage = place.start();
    let path = place.file("log");
    let writer = create(&storage, &path);
    let reader = open(&storage, &path);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..400 {
                writer.append(&[7; 1000]).expect("append");
            }
        });
        let mut seen = 0;
        while seen < 400_000 {
            // Within a stripe: of two pieces, the second may find what was appended since the first.
            let bytes = read(&*reader, Range::at(seen, 4096 - seen % 4096));
            assert!(bytes.iter().all(|byte| *byte == 7));
            seen += bytes.len() as u64;
        }
    });
}

#[test]
fn a_file_whose_creation_was_cut_short_is_empty_and_can_be_written() {
    let place = Place::new(2, 4096);
    let storage = place.start();
    let path = place.file("f");
    drop(create(&storage, &path));
    let record = fs::read(&path).expect("a record");
    for len in [0, 1, 30, record.len() - 1] {
        fs::write(&path, &record[..len]).expect("half a record");
        let files = [open(&storage, &path), open(&storage, &path)];
        for file in &files {
            assert_eq!(size(&**file), 0);
            assert_eq!(read(&**file, Range::at(0, 100)), b"");
        }
        let named = storage.size(name(&path).as_fd()).expect("a size");
        assert_eq!(
            named,
            Some(Size {
                bytes: 0,
                blocks: 0
            })
        );
        write(&*files[0], 0, b"here");
        assert_eq!(files[1].append(b" again").expect("append"), 6);
        assert_eq!(
            read(&*open(&place.start(), &path), Range::at(0, 100)),
            b"here again"
        );
    }
}

#[test]
fn a_file_created_for_reading_gets_its_record_from_the_first_writer() {
    let place = Place::new(2, 4096);
    let storage = place.start();
    let path = place.file("f");
    fs::write(&path, b"").expect("a file");
    let reading = fs::File::open(&path).expect("a file");
    storage.created(reading.as_fd()).expect("nothing to do yet");
    let read_only = Access {
        read: true,
        write: false,
    };
    let reader = storage.open(reading.into(), read_only).expect("bytes");
    let refused = reader
        .write(0, 0, &[IoSlice::new(b"x")])
        .expect_err("not for writing");
    assert!(refused.raw_os_error().is_some());
    write(&*open(&storage, &path), 0, b"bytes");
    assert_eq!(read(&*reader, Range::at(0, 100)), b"bytes");
}

#[test]
fn a_file_opened_for_writing_only_is_not_read() {
    let place = Place::new(2, 4096);
    let storage = place.start();
    let path = place.file("f");
    write(&*create(&storage, &path), 0, b"secret");
    let writing = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("a file");
    let write_only = Access {
        read: false,
        write: true,
    };
    let file = storage.open(writing.into(), write_only).expect("bytes");
    let mut to = [0; 6];
    let refused = file.read(0, 0, &mut [IoSliceMut::new(&mut to)]);
    assert!(
        refused
            .expect_err("not for reading")
            .raw_os_error()
            .is_some()
    );
    write(&*file, 0, b"public");
    assert_eq!(read(&*open(&storage, &path), Range::at(0, 100)), b"public");
}

#[test]
fn somebody_elses_file_is_an_error_and_stays_as_it_is() {
    let place = Place::new(2, 4096);
    let storage = place.start();
    let path = place.file("f");
    fs::write(&path, b"a letter").expect("a file");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path);
    let refused = storage.open(file.expect("a file").into(), BOTH).err();
    assert!(refused.expect("no record").raw_os_error().is_some());
    assert_eq!(fs::read(&path).expect("a file"), b"a letter");
}

/// Two nodes have the set: what one removes, the other may have open.
#[test]
fn a_file_that_another_node_removes_is_what_it_was_or_gone_and_never_zeros() {
    let place = Place::new(4, 4096);
    let (ours, theirs) = (place.start(), place.start());
    let remove = |path: &Path| {
        let name = name(path);
        fs::remove_file(path).expect("a name");
        theirs.removed(name.as_fd()).expect("removed");
    };
    let bytes = pattern(1, 4 * 4096);
    // All objects were there when it was opened.
    let path = place.file("whole");
    write(&*create(&theirs, &path), 0, &bytes);
    let whole = open(&ours, &path);
    remove(&path);
    assert!(place.objects().is_empty(), "they are gone");
    assert_eq!(read(&*whole, Range::at(0, bytes.len() as u64)), bytes);
    // Some were not, and somebody has asked for the size since, or nobody has.
    for was_seen in [true, false] {
        let path = place.file("grown");
        let other = create(&theirs, &path);
        write(&*other, 0, &bytes[..100]);
        let grown = open(&ours, &path);
        write(&*other, 100, &bytes[100..]);
        if was_seen {
            assert_eq!(size(&*grown), bytes.len() as u64);
        }
        remove(&path);
        let all = (0..4).map(|object| {
            let mut read = vec![0; 4096];
            let got = grown.read(object, 0, &mut [IoSliceMut::new(&mut read)]);
            got.map(|got| read[..got].to_vec())
        });
        let all: Vec<_> = all.collect();
        for (object, read) in all.iter().enumerate() {
            let there = &bytes[4096 * object..4096 * (object + 1)];
            match read {
                Ok(read) if was_seen || object == 0 => assert!(read == there),
                Ok(read) => assert!(read.is_empty(), "nothing that was not there"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(116), "{error}"),
            }
        }
        // And nobody makes objects that nobody would ever remove.
        if !was_seen {
            let wrote = grown.write(3, 0, &[IoSlice::new(b"late")]);
            assert_eq!(wrote.unwrap_err().raw_os_error(), Some(116));
        }
        assert!(place.objects().is_empty(), "{:?}", place.objects());
    }
    // A hole before what is there, in a file that is gone, may have been none.
    let path = place.file("sparse");
    let other = create(&theirs, &path);
    write(&*other, 3 * 4096, b"end");
    let sparse = open(&ours, &path);
    assert_eq!(read(&*sparse, Range::at(0, 4096)), vec![0; 4096]);
    remove(&path);
    let mut buffer = [1; 10];
    let gone = sparse.read(0, 0, &mut [IoSliceMut::new(&mut buffer)]);
    assert_eq!(gone.unwrap_err().raw_os_error(), Some(116));
    assert_eq!(read(&*sparse, Range::at(3 * 4096, 3)), b"end");
}

#[test]
fn directories_of_a_set_are_known_and_what_lies_in_them() {
    let place = Place::new(2, 4096);
    let around = |path: &Path| StripedSet::around(path).expect("a directory");
    assert_eq!(around(&place.set.namespace), None);
    place.start();
    let deep = place.file("a/b");
    fs::create_dir_all(&deep).expect("directories");
    let names = place.set.namespace.canonicalize().expect("a directory");
    assert_eq!(around(&place.set.namespace), Some(names.clone()));
    assert_eq!(around(&deep), Some(names));
    assert!(around(&place.set.servers[1]).is_some());
    assert_eq!(around(place.root.path()), None);
    assert!(StripedSet::around(&place.file("nowhere")).is_err());
}

#[test]
fn a_file_that_is_removed_leaves_nothing() {
    let place = Place::new(3, 4096);
    let storage = place.start();
    let path = place.file("f");
    write(&*create(&storage, &path), 0, &pattern(1, 50_000));
    assert_eq!(place.objects().len(), 3);
    storage.removed(name(&path).as_fd()).expect("removed");
    assert_eq!(place.objects(), []);
}

/// Where the one that is watched finds an empty directory.
const WATCHED: &str = "PRESAGIO_TEST_SYNC";

#[test]
fn a_sync_reaches_all_objects_and_their_names_and_then_the_record() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("strace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fsync,fdatasync,access", "-o"])
        .arg(&log)
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "inside_a_sync", "--ignored", "--nocapture"])
        .env(WATCHED, place.path())
        .output()
        .expect("strace");
    assert!(output.status.success(), "{output:?}");
    let log = fs::read_to_string(log).expect("what was called");
    let (_, watched) = log.split_once("sync begins").expect("a beginning");
    let synced: Vec<&str> = watched.lines().filter_map(synced_path).collect();
    let on_servers = |digits| {
        let names = synced.iter().filter(|path| path.contains("/server"));
        names
            .filter(|path| {
                Path::new(path)
                    .file_name()
                    .is_some_and(|name| name.len() == digits)
            })
            .count()
    };
    assert_eq!(
        (on_servers(32), on_servers(2)),
        (3, 3),
        "objects and directories: {synced:?}"
    );
    assert!(
        synced.last().is_some_and(|last| last.ends_with("/names/f")),
        "{synced:?}"
    );
}

/// The path in `12 fsync(3</a/path>) = 0`.
fn synced_path(line: &str) -> Option<&str> {
    let (call, _) = line.split_once(">)")?;
    call.contains("sync(")
        .then(|| call.split_once('<').map(|(_, path)| path))?
}

#[test]
#[ignore = "is started by the other one, and watched"]
fn inside_a_sync() {
    let root = PathBuf::from(std::env::var_os(WATCHED).expect("a place"));
    let make = |name: &str| {
        fs::create_dir(root.join(name)).expect("a directory");
        root.join(name)
    };
    let set = StripedSet {
        namespace: make("names"),
        servers: ["server0", "server1", "server2"].map(make).to_vec(),
        stripe: 4096,
    };
    let storage = Striped::start(&set).expect("a set");
    let path = set.namespace.join("f");
    write(&*create(&storage, &path), 0, &pattern(1, 50_000));
    // By another who has it open: what was written before is not less to be kept.
    let file = open(&storage, &path);
    let mark = rustix::fs::access("sync begins", rustix::fs::Access::EXISTS);
    assert!(mark.is_err());
    file.sync(Durable::Data).expect("sync");
}

#[test]
fn a_server_that_is_gone_is_an_error_and_no_zeros() {
    let place = Place::new(2, 4096);
    let storage = place.start();
    let path = place.file("f");
    write(&*create(&storage, &path), 0, &pattern(1, 8192));
    for server in &place.set.servers {
        fs::remove_dir_all(server).expect("a server that is lost");
    }
    let file = open(&storage, &path);
    let mut to = [0; 10];
    let lost = file
        .read(0, 0, &mut [IoSliceMut::new(&mut to)])
        .expect_err("no server");
    assert!(lost.raw_os_error().is_some());
    let lost = file
        .write(0, 0, &[IoSlice::new(b"x")])
        .expect_err("no server");
    assert!(lost.raw_os_error().is_some());
    assert!(file.size().is_err());
    assert!(place.refused().contains("server0"));
}

/// Where the one inside finds the set whose last server has little room.
const SMALL: &str = "PRESAGIO_TEST_FULL_SERVER";

#[test]
fn a_server_that_is_full_says_so_and_what_was_written_stays() {
    let place = tempfile::tempdir().expect("a directory");
    let output = Command::new("unshare")
        .arg("--mount")
        .arg(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "inside_a_full_server",
            "--ignored",
            "--nocapture",
        ])
        .env(SMALL, place.path())
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "needs root\n{said}");
}

#[test]
#[ignore = "is started by the other one, in a namespace of mounts"]
fn inside_a_full_server() {
    let root = PathBuf::from(std::env::var_os(SMALL).expect("a place"));
    let make = |name: &str| {
        fs::create_dir(root.join(name)).expect("a directory");
        root.join(name)
    };
    let set = StripedSet {
        namespace: make("names"),
        servers: vec![make("large"), make("small")],
        stripe: 4096,
    };
    let mount = ["-t", "tmpfs", "-o", "size=64k", "none"];
    let mounted = Command::new("mount")
        .args(mount)
        .arg(&set.servers[1])
        .status();
    assert!(mounted.expect("mount").success());
    let storage = Striped::start(&set).expect("a set");
    let file = create(&storage, &set.namespace.join("f"));
    let mut appended = Vec::new();
    let full = loop {
        let bytes = pattern(appended.len() as u64, 10_000);
        match file.append(&bytes) {
            Ok(count) => appended.extend_from_slice(&bytes[..count]),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!(appended.len() > 60_000);
    assert_eq!(size(&*file), appended.len() as u64);
    assert_eq!(read(&*file, Range::at(0, 1 << 20)), appended);
}

#[test]
fn a_set_is_only_ever_used_as_it_was_made() {
    let mut place = Place::new(3, 4096);
    drop(place.start());
    drop(place.start());
    let made = place.set.clone();

    place.set.stripe = 8192;
    let refused = place.refused();
    assert!(refused.contains("4096, not 8192"), "{refused}");

    place.set = made.clone();
    place.set.servers.swap(0, 2);
    let refused = place.refused();
    assert!(
        refused.contains("is server 2 of the set, not server 0"),
        "{refused}"
    );

    place.set = made.clone();
    place.set.servers.pop();
    let refused = place.refused();
    assert!(refused.contains("servers: 3, not 2"), "{refused}");

    let empty = place.root.path().join("unmounted");
    fs::create_dir(&empty).expect("a directory");
    place.set = made.clone();
    place.set.servers[1] = empty;
    let refused = place.refused();
    assert!(
        refused.contains("unmounted") && refused.contains("Is it mounted?"),
        "{refused}"
    );

    let other = Place::new(3, 4096);
    drop(other.start());
    place.set = made;
    place.set.servers[1] = other.set.servers[1].clone();
    assert!(place.refused().contains("belongs to the set"));
}

#[test]
fn a_set_is_not_made_of_directories_with_something_in_them() {
    let place = Place::new(2, 4096);
    fs::write(place.file("thesis.tex"), b"").expect("a file");
    let refused = place.refused();
    assert!(refused.contains("thesis.tex"), "{refused}");
}

#[test]
fn sets_that_cannot_be_are_refused() {
    for stripe in [0, 1000, 2 << 30] {
        assert!(Place::new(2, stripe).refused().contains("stripes of"));
    }
    assert!(Place::new(0, 4096).refused().contains("0 servers"));
}

#[test]
fn making_a_set_can_be_interrupted() {
    let place = Place::new(2, 4096);
    drop(place.start());
    fs::remove_file(place.file(".presagio/striped-set")).expect("the last record");
    drop(place.start());
    write(&*create(&place.start(), &place.file("f")), 0, b"x");
}
