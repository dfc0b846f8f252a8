//! Random operations on the mount, on a plain directory and in memory: all three must always say the same.

use crate::common::tree::{Node, ROOT, Tree};
use crate::common::{Mount, Random, Server, against, pattern};
use presagio_ninep::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const DIRS: [&str; 3] = ["", "x", "y"];

/// O_NOFOLLOW: what a symbolic link leads to is another name's business.
const NOFOLLOW: i32 = 0o400_000;

type Outcome = Result<Vec<u8>, i32>;

fn outcome<T>(result: io::Result<T>, told: impl FnOnce(T) -> Vec<u8>) -> Outcome {
    result
        .map(told)
        .map_err(|error| error.raw_os_error().expect("a system call failed"))
}

/// Where something is: a directory's index and a name.
#[derive(Clone, Copy, Debug)]
struct Place(usize, usize);

impl Place {
    fn draw(random: &mut Random) -> Place {
        Place(random.below(3) as usize, random.below(5) as usize)
    }

    fn under(self, base: &Path) -> PathBuf {
        base.join(DIRS[self.0]).join(NAMES[self.1])
    }

    fn dir(self, tree: &Tree) -> Result<u64, Errno> {
        match DIRS[self.0] {
            "" => Ok(ROOT),
            name => tree.lookup(ROOT, name.as_bytes()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(Place, bool),
    Write(Place, u64, usize),
    Append(Place, usize),
    Cut(Place, u64),
    CutAtOpen(Place),
    Mkdir(Place),
    MakeDir(usize),
    RemoveDir(usize),
    Symlink(Place),
    Readlink(Place),
    Link(Place, Place),
    Rename(Place, Place),
    Unlink(Place),
    Rmdir(Place),
    Read(Place),
    List(usize),
}

fn draw(random: &mut Random) -> Step {
    let (here, there) = (Place::draw(random), Place::draw(random));
    let length = 1 + random.below(3000) as usize;
    match random.below(24) {
        0..3 => Step::Create(here, random.below(2) == 0),
        3..6 => Step::Write(here, random.below(200_000), length),
        6..8 => Step::Append(here, length),
        8 => Step::Cut(here, random.below(100_000)),
        9 => Step::CutAtOpen(here),
        10 => Step::Mkdir(here),
        11..13 => Step::MakeDir(1 + random.below(2) as usize),
        13 => Step::RemoveDir(1 + random.below(2) as usize),
        14 => Step::Symlink(here),
        15 => Step::Readlink(here),
        16 => Step::Link(here, there),
        17..19 => Step::Rename(here, there),
        19 => Step::Unlink(here),
        20 => Step::Rmdir(here),
        21..23 => Step::Read(here),
        _ => Step::List(random.below(3) as usize),
    }
}

fn open(path: PathBuf, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(NOFOLLOW).open(path)
}

/// Does a step with system calls below a directory.
fn on_disk(base: &Path, step: Step, bytes: &[u8]) -> Outcome {
    let nothing = |_: ()| Vec::new();
    let mut options = OpenOptions::new();
    match step {
        Step::Create(at, exclusive) => {
            options.write(true).create(true).create_new(exclusive);
            outcome(open(at.under(base), &mut options), |_| Vec::new())
        }
        Step::Write(at, offset, length) => {
            let file = open(at.under(base), options.write(true));
            outcome(
                file.and_then(|file| file.write_all_at(&bytes[..length], offset)),
                nothing,
            )
        }
        Step::Append(at, length) => {
            let file = open(at.under(base), options.append(true));
            outcome(
                file.and_then(|mut file| file.write_all(&bytes[..length])),
                nothing,
            )
        }
        Step::Cut(at, size) => {
            let file = open(at.under(base), options.write(true));
            outcome(file.and_then(|file| file.set_len(size)), nothing)
        }
        Step::CutAtOpen(at) => outcome(
            open(at.under(base), options.write(true).truncate(true)),
            |_| Vec::new(),
        ),
        Step::Mkdir(at) => outcome(fs::create_dir(at.under(base)), nothing),
        Step::MakeDir(dir) => outcome(fs::create_dir(base.join(DIRS[dir])), nothing),
        Step::RemoveDir(dir) => outcome(fs::remove_dir(base.join(DIRS[dir])), nothing),
        Step::Symlink(at) => outcome(symlink("target", at.under(base)), nothing),
        Step::Readlink(at) => outcome(fs::read_link(at.under(base)), |target| {
            target.into_os_string().into_encoded_bytes()
        }),
        Step::Link(from, to) => outcome(fs::hard_link(from.under(base), to.under(base)), nothing),
        Step::Rename(from, to) => outcome(fs::rename(from.under(base), to.under(base)), nothing),
        Step::Unlink(at) => outcome(fs::remove_file(at.under(base)), nothing),
        Step::Rmdir(at) => outcome(fs::remove_dir(at.under(base)), nothing),
        Step::Read(at) => outcome(
            open(at.under(base), options.read(true)).and_then(read),
            |b| b,
        ),
        Step::List(dir) => outcome(list(&base.join(DIRS[dir])), |names| names.join("/").into()),
    }
}

fn read(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

fn list(dir: &Path) -> io::Result<Vec<String>> {
    let names =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().into_string().expect("a name")));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

const ELOOP: Errno = Errno(40);

/// The file of a name, for `open` with O_NOFOLLOW.
fn file(tree: &Tree, at: Place) -> Result<u64, Errno> {
    let number = tree.lookup(at.dir(tree)?, NAMES[at.1].as_bytes())?;
    match tree.node(number)? {
        Node::Link(_) => Err(ELOOP),
        _ => Ok(number),
    }
}

/// Does a step in memory.
fn in_memory(tree: &mut Tree, step: Step, bytes: &[u8]) -> Outcome {
    let name = |at: Place| NAMES[at.1].as_bytes();
    let done = (|| {
        match step {
            Step::Create(at, exclusive) => {
                let number = tree.create(at.dir(tree)?, name(at), exclusive)?;
                if let Node::Link(_) = tree.node(number)? {
                    return Err(ELOOP);
                }
            }
            Step::Write(at, offset, length) => {
                let number = file(tree, at)?;
                tree.write(number, offset, &bytes[..length])?;
            }
            Step::Append(at, length) => {
                let number = file(tree, at)?;
                tree.bytes(number)?.extend_from_slice(&bytes[..length]);
            }
            Step::Cut(at, size) => {
                let number = file(tree, at)?;
                tree.bytes(number)?.resize(size as usize, 0);
            }
            Step::CutAtOpen(at) => {
                let number = file(tree, at)?;
                tree.bytes(number)?.clear();
            }
            Step::Mkdir(at) => {
                tree.make(at.dir(tree)?, name(at), Node::Dir(Default::default()))?;
            }
            Step::MakeDir(dir) => {
                tree.make(ROOT, DIRS[dir].as_bytes(), Node::Dir(Default::default()))?;
            }
            Step::RemoveDir(dir) => tree.unlink(ROOT, DIRS[dir].as_bytes(), true)?,
            Step::Symlink(at) => {
                tree.make(at.dir(tree)?, name(at), Node::Link(b"target".to_vec()))?;
            }
            Step::Readlink(at) => {
                let number = tree.lookup(at.dir(tree)?, name(at))?;
                return match tree.node(number)? {
                    Node::Link(target) => Ok(target.clone()),
                    _ => Err(Errno::INVAL),
                };
            }
            Step::Link(from, to) => {
                let number = tree.lookup(from.dir(tree)?, name(from))?;
                let dir = to.dir(tree)?;
                if tree.entries(dir)?.contains_key(name(to)) {
                    return Err(Errno::EXIST);
                }
                tree.link(dir, name(to), number)?;
            }
            Step::Rename(from, to) => {
                let (a, b) = (from.dir(tree)?, to.dir(tree)?);
                tree.rename(a, name(from), b, name(to))?;
            }
            Step::Unlink(at) => tree.unlink(at.dir(tree)?, name(at), false)?,
            Step::Rmdir(at) => tree.unlink(at.dir(tree)?, name(at), true)?,
            Step::Read(at) => {
                let number = file(tree, at)?;
                return Ok(tree.bytes(number)?.clone());
            }
            Step::List(dir) => {
                let entries = tree.entries(Place(dir, 0).dir(tree)?)?;
                let names: Vec<_> = entries
                    .keys()
                    .map(|name| String::from_utf8_lossy(name))
                    .collect();
                return Ok(names.join("/").into_bytes());
            }
        }
        Ok(Vec::new())
    })();
    done.map_err(|errno: Errno| errno.0 as i32)
}

fn run(server: &Server, seed: u64, steps: u64) {
    let mount = Mount::of(server);
    let plain = tempfile::tempdir().unwrap();
    let mut tree = Tree::default();
    let mut random = Random(seed);
    for index in 0..steps {
        let step = draw(&mut random);
        let bytes = pattern(seed ^ index, 3000);
        let here = on_disk(mount.path(), step, &bytes);
        let there = on_disk(plain.path(), step, &bytes);
        assert!(
            here == there,
            "seed {seed}, step {index}: {step:?}: {here:?} is not {there:?}"
        );
        let expected = in_memory(&mut tree, step, &bytes);
        assert!(
            there == expected,
            "seed {seed}, step {index}: {step:?}: {there:?}, {expected:?} in memory"
        );
    }
    crate::common::shell(
        "diff -r --no-dereference $1 $2",
        &[mount.path(), plain.path()],
    );
    // A node of ours keeps what it must remember in the export.
    crate::common::shell(
        "diff -r --no-dereference -x .presagio $1 $2",
        &[&server.export(), plain.path()],
    );
}

#[test]
fn the_mount_a_plain_directory_and_the_model_agree() {
    for seed in [1, 2, 3] {
        against(|server| run(server, seed, 700));
    }
}

#[test]
fn open_files_are_the_same_whatever_becomes_of_their_names() {
    against(|server| {
        let mount = Mount::of(server);
        let plain = tempfile::tempdir().unwrap();
        let mut random = Random(11);
        let mut open: Vec<(File, File)> = Vec::new();
        for index in 0..800u64 {
            let (a, b) = (
                NAMES[random.below(5) as usize],
                NAMES[random.below(5) as usize],
            );
            let both = |act: &dyn Fn(&Path) -> Outcome| {
                let (here, there) = (act(mount.path()), act(plain.path()));
                assert!(here == there, "step {index}: {here:?} is not {there:?}");
            };
            let bytes = pattern(index, 2000);
            let (offset, which) = (random.below(20_000), random.below(6) as usize);
            match random.below(8) {
                0 => both(&|base| outcome(fs::rename(base.join(a), base.join(b)), |()| Vec::new())),
                1 => both(&|base| outcome(fs::remove_file(base.join(a)), |()| Vec::new())),
                2 => {
                    let make = |base: &Path| {
                        let mut options = OpenOptions::new();
                        options.read(true).write(true).create(true).truncate(false);
                        options.open(base.join(a)).unwrap()
                    };
                    open.truncate(5);
                    open.insert(0, (make(mount.path()), make(plain.path())));
                }
                3..6 => {
                    if let Some((here, there)) = open.get(which) {
                        here.write_all_at(&bytes, offset).unwrap();
                        there.write_all_at(&bytes, offset).unwrap();
                    }
                }
                _ => {
                    if let Some((here, there)) = open.get(which) {
                        let (mut one, mut two) = (vec![0; 30_000], vec![0; 30_000]);
                        let one_got = here.read_at(&mut one, offset).unwrap();
                        let two_got = there.read_at(&mut two, offset).unwrap();
                        assert!((one_got, one) == (two_got, two), "step {index}");
                    }
                }
            }
        }
        crate::common::shell("diff -r $1 $2", &[mount.path(), plain.path()]);
    });
}

#[test]
fn a_server_that_is_killed_and_started_again_interrupts_nobody() {
    let mut server = Server::start();
    let mount = Mount::of(&server);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mount.join("file"))
        .unwrap();
    fs::create_dir(mount.join("dir")).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for block in 0..300u64 {
                file.write_all_at(&pattern(block, 4096), block * 4096)
                    .unwrap();
                let mut read = vec![0; 4096];
                file.read_exact_at(&mut read, block * 4096).unwrap();
                assert!(read == pattern(block, 4096));
                assert!(fs::metadata(mount.join("dir")).unwrap().is_dir());
            }
        });
        while !writer.is_finished() {
            std::thread::sleep(Duration::from_millis(30));
            server.kill();
            std::thread::sleep(Duration::from_millis(10));
            server.start_again();
        }
    });
    let written = fs::read(server.export().join("file")).unwrap();
    assert!(
        written
            .chunks(4096)
            .zip(0..)
            .all(|(bytes, block)| bytes == pattern(block, 4096))
    );
    assert!(mount.remote().status().connections > 1);
}

/// Does something that must be done once. Only a node that was killed in the middle of it may say that it cannot tell; then
/// `is_done` looks, and it is done if it was not. How often that was so is counted.
fn surely<T>(unsure: &mut u64, act: impl Fn() -> io::Result<T>, is_done: impl Fn() -> bool) {
    loop {
        match act() {
            Ok(_) => return,
            Err(error) => assert_eq!(error.raw_os_error(), Some(5), "{error}"),
        }
        *unsure += 1;
        if is_done() {
            return;
        }
    }
}

/// What a thread does while the node is killed again and again; how many rounds, and how often nobody could tell.
fn work_through_kills(dir: &Path, until: Instant) -> (u64, u64) {
    let (log, old, sub) = (dir.join("log"), dir.join("old"), dir.join("dir"));
    fs::write(&log, b"").unwrap();
    let open = File::options().append(true).open(&log).unwrap();
    let (mut round, mut unsure) = (0, 0);
    while Instant::now() < until {
        let line = format!("line {round}\n");
        let append = || (&open).write_all(line.as_bytes());
        surely(&mut unsure, append, || {
            fs::read_to_string(&log).unwrap().ends_with(&line)
        });
        let new = dir.join(format!("new{round}"));
        let create = || File::options().write(true).create_new(true).open(&new);
        surely(&mut unsure, create, || new.exists());
        let made = File::options().write(true).open(&new).unwrap();
        made.write_all_at(b"content", 0).unwrap();
        surely(&mut unsure, || fs::rename(&new, &old), || !new.exists());
        made.write_all_at(b"renamed", 3).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "conrenamed");
        surely(&mut unsure, || fs::remove_file(&old), || !old.exists());
        made.write_all_at(b"removed", 0).unwrap();
        surely(&mut unsure, || fs::create_dir(&sub), || sub.exists());
        surely(&mut unsure, || fs::remove_dir(&sub), || !sub.exists());
        round += 1;
    }
    (round, unsure)
}

#[test]
fn a_node_of_ours_that_is_killed_again_and_again_does_everything_once() {
    let mut server = Server::start();
    let mount = Mount::of(&server);
    let until = Instant::now() + Duration::from_secs(5);
    let dirs: Vec<PathBuf> = (0..4)
        .map(|thread| mount.join(&format!("thread{thread}")))
        .collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let rounds: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads = dirs
            .iter()
            .map(|dir| scope.spawn(move || work_through_kills(dir, until)));
        let threads: Vec<_> = threads.collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(150));
            server.kill();
            server.start_again();
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let connections = mount.remote().status().connections;
    for (dir, (rounds, unsure)) in dirs.iter().zip(rounds) {
        let log = fs::read_to_string(dir.join("log")).unwrap();
        let expected: String = (0..rounds).map(|round| format!("line {round}\n")).collect();
        assert!(
            rounds > 0 && log == expected,
            "{} after {rounds} rounds",
            dir.display()
        );
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
        // A kill meets a thread in the middle of one operation at most.
        assert!(
            unsure <= connections,
            "{unsure} times in {connections} connections"
        );
    }
    assert!(connections > 5);
}
