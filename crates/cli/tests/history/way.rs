//! The ways to the files of a node: a directory, mounted or forwarded, as programs see it, and the forwarding client.

use presagio_forward::{Address, File, Options, Owner, Remote, Span};
use presagio_ninep::{LockStatus, LockType, OpenFlags, SetAttr, SetMask};
use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

/// What was done, or the number of the error.
pub type Done<T> = Result<T, i32>;

/// The files of an export.
pub trait Files {
    /// Makes a file that is not there, to read and write.
    fn create(&self, path: &str) -> Done<Box<dyn Open>>;
    /// Opens one that is, to read and either write or append.
    fn open(&self, path: &str, append: bool) -> Done<Box<dyn Open>>;
    fn rename(&self, old: &str, new: &str) -> Done<()>;
    fn link(&self, old: &str, new: &str) -> Done<()>;
    fn unlink(&self, path: &str) -> Done<()>;
    fn mkdir(&self, path: &str) -> Done<()>;
    fn rmdir(&self, path: &str) -> Done<()>;
    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> Done<Vec<String>>;
}

/// An open file.
pub trait Open {
    /// Reads so much, or what there is.
    fn read_at(&self, offset: u64, count: usize) -> Done<Vec<u8>>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done<usize>;
    fn append(&self, bytes: &[u8]) -> Done<usize>;
    fn set_len(&self, size: u64) -> Done<()>;
    fn len(&self) -> Done<u64>;
    fn sync(&self) -> Done<()>;
    /// Takes the lock on all of it, if it can be had now.
    fn try_lock(&self) -> Done<bool>;
    fn unlock(&self) -> Done<()>;

    fn all(&self) -> Done<Vec<u8>> {
        self.read_at(0, 1 << 20)
    }
}

/// A directory, with the system's calls.
pub struct Plain(PathBuf);

impl Plain {
    pub fn new(root: &str) -> Plain {
        Plain(root.into())
    }
}

fn number(error: std::io::Error) -> i32 {
    error.raw_os_error().expect("an error of the system")
}

impl Files for Plain {
    fn create(&self, path: &str) -> Done<Box<dyn Open>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(self.0.join(path)).map_err(number)?;
        Ok(Box::new(RefCell::new(file)))
    }

    fn open(&self, path: &str, append: bool) -> Done<Box<dyn Open>> {
        let mut options = OpenOptions::new();
        options.read(true).write(!append).append(append);
        let open = || options.open(self.0.join(path)).map_err(number);
        let mut file = open();
        // A file that is replaced between being found and being opened, and whose node is killed there too, is gone. The
        // kernel looks again, once; and that may happen to what it finds then.
        for _ in 0..4 {
            file = match file {
                Err(libc::ESTALE) => open(),
                opened => opened,
            };
        }
        Ok(Box::new(RefCell::new(file?)))
    }

    fn rename(&self, old: &str, new: &str) -> Done<()> {
        fs::rename(self.0.join(old), self.0.join(new)).map_err(number)
    }

    fn link(&self, old: &str, new: &str) -> Done<()> {
        fs::hard_link(self.0.join(old), self.0.join(new)).map_err(number)
    }

    fn unlink(&self, path: &str) -> Done<()> {
        fs::remove_file(self.0.join(path)).map_err(number)
    }

    fn mkdir(&self, path: &str) -> Done<()> {
        fs::create_dir(self.0.join(path)).map_err(number)
    }

    fn rmdir(&self, path: &str) -> Done<()> {
        fs::remove_dir(self.0.join(path)).map_err(number)
    }

    fn list(&self, path: &str) -> Done<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.0.join(path)).map_err(number)? {
            let name = entry.map_err(number)?.file_name();
            names.push(name.into_string().expect("a name in UTF-8"));
        }
        names.sort();
        Ok(names)
    }
}

impl Open for RefCell<fs::File> {
    fn read_at(&self, offset: u64, count: usize) -> Done<Vec<u8>> {
        let (mut bytes, mut done) = (vec![0; count], 0);
        while done < count {
            let file = self.borrow();
            let got = FileExt::read_at(&*file, &mut bytes[done..], offset + done as u64);
            match got.map_err(number)? {
                0 => break,
                got => done += got,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done<usize> {
        FileExt::write_at(&*self.borrow(), bytes, offset).map_err(number)
    }

    fn append(&self, bytes: &[u8]) -> Done<usize> {
        self.borrow_mut().write(bytes).map_err(number)
    }

    fn set_len(&self, size: u64) -> Done<()> {
        self.borrow().set_len(size).map_err(number)
    }

    fn len(&self) -> Done<u64> {
        Ok(self.borrow().metadata().map_err(number)?.len())
    }

    fn sync(&self) -> Done<()> {
        self.borrow().sync_data().map_err(number)
    }

    fn try_lock(&self) -> Done<bool> {
        match lock(&self.borrow(), libc::F_WRLCK) {
            Ok(()) => Ok(true),
            Err(libc::EAGAIN | libc::EACCES) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn unlock(&self) -> Done<()> {
        lock(&self.borrow(), libc::F_UNLCK)
    }
}

/// A record lock on all of a file, or none; with the C library's call, which can be forwarded.
fn lock(file: &fs::File, kind: i32) -> Done<()> {
    // SAFETY: all zeros is a value of it: from the beginning to the end.
    let mut all: libc::flock = unsafe { std::mem::zeroed() };
    all.l_type = kind as libc::c_short;
    // SAFETY: an open file, and what this call reads.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &all) } {
        0 => Ok(()),
        _ => Err(number(std::io::Error::last_os_error())),
    }
}

/// The forwarding client.
pub struct Through(File);

impl Through {
    pub fn new(nodes: &str) -> Through {
        let nodes = Address::list(nodes).expect("addresses");
        let mut options = Options::new(nodes);
        options.patience = Duration::from_secs(40);
        let remote = Remote::new(options).expect("a client");
        Through(remote.root(0).expect("a node"))
    }

    /// The directory of a path, and the name in it.
    fn place<'a>(&self, path: &'a str) -> Done<(File, &'a str)> {
        match path.rsplit_once('/') {
            Some((dir, name)) => Ok((self.0.walk(dir).map_err(code)?, name)),
            None => Ok((self.0.clone(), path)),
        }
    }
}

fn code(errno: presagio_ninep::Errno) -> i32 {
    errno.0 as i32
}

impl Files for Through {
    fn create(&self, path: &str) -> Done<Box<dyn Open>> {
        let (dir, name) = self.place(path)?;
        let flags = OpenFlags::RDWR | OpenFlags::EXCL;
        let file = dir.create(name, flags, 0o644, 0).map_err(code)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &str, append: bool) -> Done<Box<dyn Open>> {
        let flags = match append {
            true => OpenFlags::RDWR | OpenFlags::APPEND,
            false => OpenFlags::RDWR,
        };
        loop {
            match self.0.walk(path).and_then(|file| file.open(flags)) {
                // It was replaced between the two: look again, as the kernel does.
                Err(presagio_ninep::Errno::STALE) => {}
                opened => return Ok(Box::new(opened.map_err(code)?)),
            }
        }
    }

    fn rename(&self, old: &str, new: &str) -> Done<()> {
        let ((from, old), (to, new)) = (self.place(old)?, self.place(new)?);
        from.rename(old, &to, new).map_err(code)
    }

    fn link(&self, old: &str, new: &str) -> Done<()> {
        let (dir, new) = self.place(new)?;
        let file = self.0.walk(old).map_err(code)?;
        dir.link(&file, new).map_err(code)
    }

    fn unlink(&self, path: &str) -> Done<()> {
        let (dir, name) = self.place(path)?;
        dir.unlink(name).map_err(code)
    }

    fn mkdir(&self, path: &str) -> Done<()> {
        let (dir, name) = self.place(path)?;
        dir.mkdir(name, 0o755, 0).map(drop).map_err(code)
    }

    fn rmdir(&self, path: &str) -> Done<()> {
        let (dir, name) = self.place(path)?;
        dir.rmdir(name).map_err(code)
    }

    fn list(&self, path: &str) -> Done<Vec<String>> {
        let dir = self.0.walk(path).map_err(code)?;
        let dir = dir.open(OpenFlags::DIRECTORY).map_err(code)?;
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let listed = dir.read_dir(offset, 8192).map_err(code)?;
            let Some(last) = listed.last() else {
                break;
            };
            offset = last.offset;
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            names.extend(listed.iter().map(|entry| text(&entry.name)));
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }
}

/// Locks of one process have one owner.
const ME: Owner = Owner { process: 1, key: 1 };

impl Open for File {
    fn read_at(&self, offset: u64, count: usize) -> Done<Vec<u8>> {
        let mut bytes = vec![0; count];
        let got = File::read_at(self, offset, &mut bytes).map_err(code)?;
        bytes.truncate(got);
        Ok(bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done<usize> {
        File::write_at(self, offset, bytes).map_err(code)
    }

    fn append(&self, bytes: &[u8]) -> Done<usize> {
        File::append(self, bytes).map_err(code)
    }

    fn set_len(&self, size: u64) -> Done<()> {
        let size = SetAttr {
            valid: SetMask::SIZE,
            size,
            ..SetAttr::default()
        };
        self.setattr(size).map_err(code)
    }

    fn len(&self) -> Done<u64> {
        Ok(self.getattr().map_err(code)?.size)
    }

    fn sync(&self) -> Done<()> {
        self.fsync(true).map_err(code)
    }

    fn try_lock(&self) -> Done<bool> {
        let status = File::lock(self, ME, LockType::Write, Span::ALL);
        Ok(status.map_err(code)? == LockStatus::Success)
    }

    fn unlock(&self) -> Done<()> {
        let unlocked = File::lock(self, ME, LockType::Unlock, Span::ALL);
        unlocked.map(drop).map_err(code)
    }
}
