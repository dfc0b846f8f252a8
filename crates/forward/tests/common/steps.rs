//! Random operations with the system's calls on one directory, on a plain one and in memory: all must always say the same.
//!
//! The directory is a mount here; tests of the command take it for one that is forwarded without.

use super::tree::{Node, ROOT, Tree};
use super::{Random, pattern};
use presagio_ninep::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

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

/// Does so many random steps in both directories, which are empty, and in memory.
pub fn agree(here: &Path, plain: &Path, seed: u64, steps: u64) {
    let mut tree = Tree::default();
    let mut random = Random(seed);
    for index in 0..steps {
        let step = draw(&mut random);
        let bytes = pattern(seed ^ index, 3000);
        let done = on_disk(here, step, &bytes);
        let there = on_disk(plain, step, &bytes);
        assert!(
            done == there,
            "seed {seed}, step {index}: {step:?}: {done:?} is not {there:?}"
        );
        let expected = in_memory(&mut tree, step, &bytes);
        assert!(
            there == expected,
            "seed {seed}, step {index}: {step:?}: {there:?}, {expected:?} in memory"
        );
    }
}

/// Writes and reads files that are open, in both directories, while their names are changed and removed.
pub fn open_files_agree(here: &Path, plain: &Path) {
    let mut random = Random(11);
    let mut open: Vec<(File, File)> = Vec::new();
    for index in 0..800u64 {
        let (a, b) = (
            NAMES[random.below(5) as usize],
            NAMES[random.below(5) as usize],
        );
        let both = |act: &dyn Fn(&Path) -> Outcome| {
            let (done, there) = (act(here), act(plain));
            assert!(done == there, "step {index}: {done:?} is not {there:?}");
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
                open.insert(0, (make(here), make(plain)));
            }
            3..6 => {
                if let Some((one, two)) = open.get(which) {
                    one.write_all_at(&bytes, offset).unwrap();
                    two.write_all_at(&bytes, offset).unwrap();
                }
            }
            _ => {
                if let Some((first, second)) = open.get(which) {
                    let (mut one, mut two) = (vec![0; 30_000], vec![0; 30_000]);
                    let one_got = first.read_at(&mut one, offset).unwrap();
                    let two_got = second.read_at(&mut two, offset).unwrap();
                    assert!((one_got, one) == (two_got, two), "step {index}");
                }
            }
        }
    }
}
