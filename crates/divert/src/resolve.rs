//! Whose a path is: the program's own business, or a file of an export; and which.
//!
//! An absolute path is compared with the prefixes after its dots have been taken out by their text, as far as it is local. Within an export
//! it is walked as the kernel does: names are looked up, symbolic links followed, `..` goes back to what was really
//! walked. An absolute link starts again from "/", and `..` may leave the export: then the path goes on elsewhere, and may come
//! back. One message to the node walks as many names as there are, and only where a link turns up it is looked at.
//!
//! The name of a descriptor, such as /dev/fd/5, which the kernel takes for what that is of, is the forwarded file if it is of one;
//! /proc/self/cwd is the working directory.

use crate::call::{Errno, errno, guarded};
use crate::names::behind_shadow;
use crate::table::{self, Open};
use crate::world;
use libc::{c_char, c_int};
use presagio_arena::sys;
use presagio_forward::File;
use presagio_ninep::QidKind;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// The kernel's limits.
const LINKS_MAX: u32 = 40;
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;

const LOOP: Errno = errno(libc::ELOOP);

/// What to do with a link that is the last of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Follow,
    Keep,
}

/// Whose a path is.
pub enum Where {
    /// The program's business: call the real function as it is.
    Local,
    /// The same, with this absolute path instead.
    Left(CString),
    /// A file of an export, or a place for one.
    Ours(Spot),
}

/// A place in an export.
pub struct Spot {
    pub export: usize,
    /// Its last name; empty for the root.
    pub name: Vec<u8>,
    /// From the root of the export, without a slash at either end.
    pub path: Vec<u8>,
    /// What is there; none if the last name does not exist, while all before it do.
    pub file: Option<File>,
    /// The path had a slash at its end, or a dot.
    pub must_be_directory: bool,
    /// Where the walk began, and the names from there.
    start: File,
    below: Vec<Vec<u8>>,
}

impl Spot {
    /// The directory that it is in; the root is its own.
    pub fn parent(&self) -> Result<File, Errno> {
        match self.below.split_last() {
            Some((_, [])) => Ok(self.start.clone()),
            Some((_, before)) => self.start.walk(before.join(&b'/')),
            None => {
                let root = world::export(self.export)?.root()?;
                match self.path.iter().rposition(|byte| *byte == b'/') {
                    Some(end) => root.walk(&self.path[..end]),
                    None => Ok(root),
                }
            }
        }
    }

    /// What is there, or why not.
    pub fn existing(&self) -> Result<&File, Errno> {
        match &self.file {
            Some(file) => Ok(file),
            None => match self.parent()?.walk(&self.name) {
                Err(errno) => Err(errno),
                // It is there by now: but it was not when we looked.
                Ok(_) => Err(Errno::NOENT),
            },
        }
    }
}

/// Whether a path might be ours. Cheap for what is not: then nothing has to be resolved.
///
/// # Safety
///
/// The path is null, or ends with a zero.
#[inline]
pub unsafe fn may_be_ours(at: c_int, path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: as the caller vouches.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    match path.first() {
        None => false,
        Some(b'/') => {
            may_lead_to_prefix(path)
                || behind_working(path).is_some()
                || behind_descriptor(path).is_some()
        }
        Some(_) if at == libc::AT_FDCWD => {
            WORKING_STATE.load(Relaxed) != PLAIN || has_dots(path) || world::is_guest()
        }
        Some(_) => true,
    }
}

fn has_dots(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"..")
}

/// Whether an absolute path lies under a prefix, or is not plain enough to tell.
fn may_lead_to_prefix(path: &[u8]) -> bool {
    let is_plain = !path.windows(2).any(|pair| pair == b"//" || pair == b"/.");
    !is_plain
        || world::prefixes()
            .iter()
            .any(|prefix| is_below(path, prefix))
}

fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Says whose a path is. To be called within a guard.
///
/// # Safety
///
/// The path ends with a zero.
pub unsafe fn resolve(at: c_int, path: *const c_char, last: Last) -> Result<Where, Errno> {
    // SAFETY: as the caller vouches.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    match Walk::begin(at, path, last)? {
        Some(_) if path.len() >= PATH_MAX => Err(Errno::NAMETOOLONG),
        Some(walk) => walk.run(last),
        None => Ok(Where::Local),
    }
}

/// What became of a call that has a path.
pub enum Routed<T> {
    /// The real function is to be called as it is.
    Real,
    /// The same with this path, and AT_FDCWD.
    RealAt(CString),
    /// It was ours, and is done.
    Done(T),
}

/// Resolves a path, and acts on it if it is ours.
///
/// # Safety
///
/// The path is null, or ends with a zero.
pub unsafe fn route<T>(
    at: c_int,
    path: *const c_char,
    last: Last,
    act: impl FnOnce(Spot) -> Result<T, Errno>,
) -> Result<Routed<T>, Errno> {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(at, path) } {
        return Ok(Routed::Real);
    }
    // SAFETY: as the caller vouches; it is not null.
    guarded(|| match unsafe { resolve(at, path, last) }? {
        Where::Local => Ok(Routed::Real),
        Where::Left(path) => Ok(Routed::RealAt(path)),
        Where::Ours(spot) => Ok(Routed::Done(act(spot)?)),
    })
}

/// A path as it is being walked.
struct Walk {
    export: usize,
    /// A directory of the export, and its own names; the root has none.
    start: File,
    above: Vec<Vec<u8>>,
    /// The names that were walked from there: directories and no links.
    below: Vec<Vec<u8>>,
    /// What `below` leads to, if that is known.
    here: Option<File>,
    /// What is left of the path: names and `..`.
    todo: VecDeque<Vec<u8>>,
    must_be_directory: bool,
    links: u32,
}

/// How a step of a walk ended.
enum Step {
    On,
    /// An absolute path, which may be anywhere.
    Elsewhere(Vec<u8>),
    /// The last name does not exist.
    Missing,
}

impl Walk {
    /// The walk of a path that begins in an export; `None` if it does not.
    fn begin(at: c_int, path: &[u8], last: Last) -> Result<Option<Walk>, Errno> {
        if path.is_empty() {
            return Ok(None);
        }
        if path[0] == b'/' {
            return Walk::from_text(path, last);
        }
        if at == libc::AT_FDCWD {
            return Walk::from_working(path, last);
        }
        match table::get(at) {
            Some(open) => Walk::from_open(&open, path).map(Some),
            None => match directory_of(at) {
                Some(directory) => Walk::from_text(&joined(&directory, path), last),
                None => Ok(None),
            },
        }
    }

    /// Of an absolute path.
    fn from_text(path: &[u8], last: Last) -> Result<Option<Walk>, Errno> {
        if let Some((export, rest)) = enter(path) {
            return Walk::new(export, std::iter::empty(), rest).map(Some);
        }
        match behind_working(path) {
            // To the kernel it is a link.
            Some(b"") if last == Last::Keep => return Ok(None),
            Some(rest) => return Walk::from_working(rest, last),
            None => {}
        }
        match behind_descriptor(path) {
            // So is this.
            Some((_, b"")) if last == Last::Keep => Ok(None),
            Some((open, rest)) => Walk::from_open(&open, rest).map(Some),
            None => Ok(None),
        }
    }

    fn from_working(path: &[u8], last: Last) -> Result<Option<Walk>, Errno> {
        match working_place() {
            Place::Export(export, names) => Walk::new(export, names.into_iter(), path).map(Some),
            Place::Local(directory) => Walk::from_text(&joined(&directory, path), last),
            Place::Nowhere => Ok(None),
        }
    }

    /// From what a descriptor is of.
    fn from_open(open: &Open, path: &[u8]) -> Result<Walk, Errno> {
        if !open.is_dir && !path.is_empty() {
            return Err(Errno::NOTDIR);
        }
        let mut walk = Walk::new(open.export, std::iter::empty(), path)?;
        walk.start = open.file()?.clone();
        walk.above = names_of(&open.path).collect();
        Ok(walk)
    }

    /// From a directory of an export, which `names` lead to.
    fn new(
        export: usize,
        names: impl Iterator<Item = Vec<u8>>,
        path: &[u8],
    ) -> Result<Walk, Errno> {
        let mut walk = Walk {
            export,
            start: world::export(export)?.root()?,
            above: Vec::new(),
            below: Vec::new(),
            here: None,
            todo: names.collect(),
            must_be_directory: false,
            links: 0,
        };
        walk.add(path)?;
        Ok(walk)
    }

    /// Adds what comes behind all that is left.
    fn add(&mut self, path: &[u8]) -> Result<(), Errno> {
        for name in names_of(path) {
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            self.todo.push_back(name);
        }
        let last = path.rsplit(|byte| *byte == b'/').next();
        self.must_be_directory |= !path.is_empty() && matches!(last, Some(b"" | b"." | b".."));
        Ok(())
    }

    fn run(mut self, last: Last) -> Result<Where, Errno> {
        loop {
            match self.step(last)? {
                Step::On if self.todo.is_empty() && self.here.is_some() => return self.arrive(),
                Step::On => {}
                Step::Missing => return self.arrive(),
                Step::Elsewhere(path) => {
                    if path.len() >= PATH_MAX {
                        return Err(Errno::NAMETOOLONG);
                    }
                    let links = self.links;
                    match Walk::from_text(&path, last)? {
                        Some(walk) => self = Walk { links, ..walk },
                        None => {
                            let path = CString::new(path).map_err(|_| Errno::INVAL)?;
                            return Ok(Where::Left(path));
                        }
                    }
                }
            }
        }
    }

    fn arrive(self) -> Result<Where, Errno> {
        let kind = self.here.as_ref().map(|file| file.qid().kind);
        if self.must_be_directory && kind.is_some_and(|kind| !kind.contains(QidKind::DIR)) {
            return Err(Errno::NOTDIR);
        }
        let all: Vec<Vec<u8>> = [&self.above[..], &self.below[..]].concat();
        Ok(Where::Ours(Spot {
            export: self.export,
            name: all.last().cloned().unwrap_or_default(),
            path: all.join(&b'/'),
            file: self.here,
            must_be_directory: self.must_be_directory,
            start: self.start,
            below: self.below,
        }))
    }

    /// Walks up to the next `..`, or back over it.
    fn step(&mut self, last: Last) -> Result<Step, Errno> {
        if self.todo.front().is_some_and(|name| name == b"..") {
            return self.step_back();
        }
        let known = self.below.len();
        while let Some(name) = self.todo.pop_front_if(|name| name != b"..") {
            self.below.push(name);
        }
        if self.below.is_empty() {
            self.here = Some(self.start.clone());
            return Ok(Step::On);
        }
        let names: Vec<&[u8]> = self.below.iter().map(Vec::as_slice).collect();
        let far = self.start.walk_far(&names)?;
        let link = far
            .qids
            .iter()
            .position(|qid| qid.kind.contains(QidKind::SYMLINK));
        if let Some(at) = link
            && self.is_followed(at, last)
        {
            return self.follow(at);
        }
        self.here = far.file;
        let walked = far.qids.len();
        if walked == self.below.len() {
            return Ok(Step::On);
        }
        let is_last = walked + 1 == self.below.len() && self.todo.is_empty() && walked >= known;
        let before = far.qids.last().map_or(QidKind::DIR, |qid| qid.kind);
        match is_last && before.contains(QidKind::DIR) {
            true => Ok(Step::Missing),
            false => Err(self.reason(walked, before)),
        }
    }

    /// Why a walk ended so early: the protocol does not say.
    fn reason(&self, walked: usize, before: QidKind) -> Errno {
        if !before.contains(QidKind::DIR) {
            return Errno::NOTDIR;
        }
        let directory = match walked {
            0 => Ok(self.start.clone()),
            _ => self.start.walk(self.below[..walked].join(&b'/')),
        };
        let next = directory.and_then(|directory| directory.walk(&self.below[walked]));
        next.err().unwrap_or(Errno::NOENT)
    }

    fn is_followed(&self, at: usize, last: Last) -> bool {
        let is_last = at + 1 == self.below.len() && self.todo.is_empty();
        !is_last || last == Last::Follow || self.must_be_directory
    }

    /// Goes where a link among the names leads.
    fn follow(&mut self, at: usize) -> Result<Step, Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(LOOP);
        }
        let link = self.start.walk(self.below[..=at].join(&b'/'))?;
        let target = link.readlink()?;
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        let behind = self.below.split_off(at + 1);
        self.below.pop();
        self.here = None;
        let rest = behind.into_iter().chain(std::mem::take(&mut self.todo));
        let rest: Vec<Vec<u8>> = rest.collect();
        if target[0] == b'/' {
            return Ok(Step::Elsewhere(self.text(target, &rest)));
        }
        let is_last = rest.is_empty();
        let must_be_directory = self.must_be_directory;
        self.add(&target)?;
        if !is_last {
            // Whatever the target looks like, more comes behind it.
            self.must_be_directory = must_be_directory;
        }
        self.todo.extend(rest);
        Ok(Step::On)
    }

    /// Over a `..`.
    fn step_back(&mut self) -> Result<Step, Errno> {
        let is_dir = match &self.here {
            Some(here) => here.qid().kind.contains(QidKind::DIR),
            // What was popped before, or nothing walked yet.
            None => true,
        };
        if !is_dir {
            return Err(Errno::NOTDIR);
        }
        self.todo.pop_front();
        self.here = None;
        if self.below.pop().is_some() {
            return Ok(Step::On);
        }
        if self.above.pop().is_some() {
            // By their names from the root.
            self.below = std::mem::take(&mut self.above);
            self.start = world::export(self.export)?.root()?;
            return Ok(Step::On);
        }
        let prefix = &world::prefixes()[self.export];
        let slash = prefix.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let rest: Vec<Vec<u8>> = std::mem::take(&mut self.todo).into();
        Ok(Step::Elsewhere(self.text(prefix[..slash].to_vec(), &rest)))
    }

    /// An absolute path and what is to come behind it.
    fn text(&self, mut path: Vec<u8>, rest: &[Vec<u8>]) -> Vec<u8> {
        for name in rest {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if self.must_be_directory || path.is_empty() {
            path.push(b'/');
        }
        path
    }
}

/// The names of a path, without dots that mean nothing.
fn names_of(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
}

pub fn joined(directory: &[u8], path: &[u8]) -> Vec<u8> {
    [directory, b"/", path].concat()
}

/// The forwarded file whose descriptor an absolute path names, as /dev/fd/5 or /proc/self/fd/5 does, and what comes behind
/// that.
fn behind_descriptor(path: &[u8]) -> Option<(Arc<Open>, &[u8])> {
    let rest = match path.strip_prefix(b"/dev/") {
        Some(b"stdin") => b"0",
        Some(b"stdout") => b"1",
        Some(b"stderr") => b"2",
        Some(rest) => rest.strip_prefix(b"fd/")?,
        None => in_own_proc(path)?.strip_prefix(b"/fd/")?,
    };
    let end = rest.iter().position(|byte| *byte == b'/');
    let (digits, behind) = rest.split_at(end.unwrap_or(rest.len()));
    let fd = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((table::get(fd)?, behind))
}

/// What comes behind the kernel's name of the working directory.
fn behind_working(path: &[u8]) -> Option<&[u8]> {
    let rest = in_own_proc(path)?.strip_prefix(b"/cwd")?;
    matches!(rest.first(), None | Some(b'/')).then_some(rest)
}

/// What comes behind /proc/self, or another name of this process there.
fn in_own_proc(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    let (process, rest) = rest.split_at(rest.iter().position(|byte| *byte == b'/')?);
    let is_us = matches!(process, b"self" | b"thread-self")
        || process == sys::process_id().to_string().as_bytes();
    is_us.then_some(rest)
}

/// The prefix that an absolute path comes to, the longest if there are several, and the rest behind it.
fn enter(path: &[u8]) -> Option<(usize, &[u8])> {
    let mut normal = Vec::with_capacity(path.len());
    let mut found = None;
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'/');
        let name = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(&[], |end| &rest[end + 1..]);
        match name {
            b"" | b"." => {}
            // Where that leads only a walk can tell.
            b".." if found.is_some() => break,
            b".." => {
                let parent = normal.iter().rposition(|byte| *byte == b'/');
                normal.truncate(parent.unwrap_or(0));
            }
            name => {
                normal.push(b'/');
                normal.extend_from_slice(name);
                let prefixes = world::prefixes().iter();
                let here = { prefixes }.position(|prefix| *prefix == normal);
                found = here.map(|export| (export, rest)).or(found);
            }
        }
    }
    found
}

/// Whether the working directory is so that plain relative paths are never ours.
static WORKING_STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const PLAIN: u8 = 1;
const SPECIAL: u8 = 2;

gates! {
    /// The working directory, if it is known.
    static WORKING: Option<Place> = Table, None;
}

#[derive(Clone)]
enum Place {
    Local(Vec<u8>),
    Export(usize, Vec<Vec<u8>>),
    /// It was removed, or cannot be told.
    Nowhere,
}

/// The working directory was changed.
pub fn working_changed() {
    if !world::is_guest() {
        WORKING.with(|known| *known = None);
        WORKING_STATE.store(UNKNOWN, Relaxed);
    }
}

/// The working directory, if it is one of an export: which, and its path there.
pub fn working() -> Option<(usize, Vec<u8>)> {
    match working_place() {
        Place::Export(export, names) => Some((export, names.join(&b'/'))),
        Place::Local(_) | Place::Nowhere => None,
    }
}

/// Found out and noted without letting go: else what another thread's `chdir` has just made wrong might be noted after it.
fn working_place() -> Place {
    if world::is_guest() {
        return kernel_working();
    }
    WORKING.with(|known| {
        let place = known.get_or_insert_with(kernel_working).clone();
        let state = if is_plain(&place) { PLAIN } else { SPECIAL };
        WORKING_STATE.store(state, Relaxed);
        place
    })
}

/// Whether no relative path without dots can lead into an export.
fn is_plain(place: &Place) -> bool {
    let Place::Local(path) = place else {
        return false;
    };
    let path = path.strip_suffix(b"/").unwrap_or(path);
    !world::prefixes()
        .iter()
        .any(|prefix| is_below(prefix, path))
}

/// What the kernel says. Those of exports have no path there, but a link tells which they stand for; nobody else is asked,
/// since whoever is in one has to know even if there is nobody.
fn kernel_working() -> Place {
    let mut path = vec![0u8; PATH_MAX];
    let args = [path.as_mut_ptr() as usize, path.len(), 0, 0, 0, 0];
    // SAFETY: the kernel writes at most so much.
    if let Ok(length) = sys::checked(unsafe { sys::call(libc::SYS_getcwd, args) }) {
        path.truncate(length.saturating_sub(1));
        return Place::Local(path);
    }
    let length = sys::read_link(c"/proc/thread-self/cwd", &mut path);
    let shadow = length.and_then(|length| behind_shadow(&path[..length]));
    shadow.map_or(Place::Nowhere, |(export, below)| {
        Place::Export(export, names_of(below).collect())
    })
}

/// The path of a directory that is not ours.
pub fn directory_of(fd: c_int) -> Option<Vec<u8>> {
    let link = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
    let mut path = vec![0; PATH_MAX];
    let length = sys::read_link(&link, &mut path)?;
    path.truncate(length);
    path.starts_with(b"/").then_some(path)
}
