//! `posix_spawn`: programs that are forwarded files, and file actions that name such.
//!
//! The C library carries out a list of file actions in the child, where we do not see it. So each list is written down here while it
//! grows. When something is spawned with it, it is followed as the child will follow it, and a list for this one child is
//! made of it: what the child would open of an export is opened here and duplicated there, and a directory of an export is
//! entered as its shadow. A list that meets nothing of an export is left alone.
//!
//! What differs: files of an export are opened before anything else that the list does.

use crate::call::{Errno, errno, get_errno, guarded};
use crate::exec::{From, Memory, Texts, candidates, carry_out, find_from, prepare, search};
use crate::fd::{is_exclusive, open_for_another};
use crate::hook::Real;
use crate::names::{discard, full_path, is_directory, may_enter, shadow_of};
use crate::resolve::{Last, Spot, Where, directory_of, resolve};
use crate::table;
use libc::{AT_FDCWD, c_char, c_int, c_void, mode_t, pid_t, posix_spawn_file_actions_t};
use presagio_forward::File;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

hooks! {
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts) -> c_int = |real, other| spawn(path, actions, environment, |path, actions, arguments| other(pid, path, actions, attributes, arguments, environment), arguments);
    fn posix_spawnp(pid: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts) -> c_int = |real, other| spawn_found(name, actions, environment, (pid, attributes), |actions| other(pid, name, actions, attributes, arguments, environment), arguments);
    fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int = |real| { forget(actions); real() };
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int = |real| { forget(actions); real() };
    fn posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |real| noted(actions, real(), || Action::Open { fd, path: CStr::from_ptr(path).to_owned(), flags, mode });
    fn posix_spawn_file_actions_addclose(actions: *mut c_void, fd: c_int) -> c_int = |real| noted(actions, real(), || Action::Close(fd));
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int = |real| noted(actions, real(), || Action::Duplicate(from, to));
    fn posix_spawn_file_actions_addchdir_np(actions: *mut c_void, path: *const c_char) -> c_int = |real| noted(actions, real(), || Action::Go(CStr::from_ptr(path).to_owned()));
    fn posix_spawn_file_actions_addfchdir_np(actions: *mut c_void, fd: c_int) -> c_int = |real| noted(actions, real(), || Action::GoOpen(fd));
    fn posix_spawn_file_actions_addclosefrom_np(actions: *mut c_void, first: c_int) -> c_int = |real| noted(actions, real(), || Action::CloseFrom(first));
    fn posix_spawn_file_actions_addtcsetpgrp_np(actions: *mut c_void, fd: c_int) -> c_int = |real| noted(actions, real(), || Action::Foreground(fd));
}

unsafe extern "C" {
    fn posix_spawn_file_actions_addchdir_np(
        list: *mut posix_spawn_file_actions_t,
        path: *const c_char,
    ) -> c_int;
    fn posix_spawn_file_actions_addfchdir_np(
        list: *mut posix_spawn_file_actions_t,
        fd: c_int,
    ) -> c_int;
    fn posix_spawn_file_actions_addclosefrom_np(
        list: *mut posix_spawn_file_actions_t,
        first: c_int,
    ) -> c_int;
    fn posix_spawn_file_actions_addtcsetpgrp_np(
        list: *mut posix_spawn_file_actions_t,
        fd: c_int,
    ) -> c_int;
}

/// What a child is to do before it becomes a program.
#[derive(Clone, Debug)]
enum Action {
    Open {
        fd: c_int,
        path: CString,
        flags: c_int,
        mode: mode_t,
    },
    Close(c_int),
    Duplicate(c_int, c_int),
    Go(CString),
    GoOpen(c_int),
    CloseFrom(c_int),
    Foreground(c_int),
}

gates! {
    /// What was added to each list, by its address.
    static LISTS: BTreeMap<usize, Vec<Action>> = Table, BTreeMap::new();
}

/// Writes down what was added to a list, if it was.
fn noted(list: *mut c_void, result: c_int, action: impl FnOnce() -> Action) -> c_int {
    if result == 0 {
        let _ = guarded(|| {
            let action = action();
            LISTS.with(|all| all.entry(list as usize).or_default().push(action));
            Ok(())
        });
    }
    result
}

fn forget(list: *mut c_void) {
    let _ = guarded(|| {
        drop(LISTS.with(|all| all.remove(&(list as usize))));
        Ok(())
    });
}

/// What is in a list; `None` if we do not know all of it.
///
/// # Safety
///
/// Null, or a list of the program's.
unsafe fn actions_of(list: *const c_void) -> Option<Vec<Action>> {
    if list.is_null() {
        return Some(Vec::new());
    }
    let known = LISTS.with(|all| all.get(&(list as usize)).cloned());
    let known = known.unwrap_or_default();
    // SAFETY: as the caller vouches. <spawn.h> has it so: how many there is room for, and how many there are.
    let count = unsafe { *list.cast::<[c_int; 2]>() }[1];
    (usize::try_from(count) == Ok(known.len())).then_some(known)
}

/// A list of actions for one child, and what has to be open for it.
struct Prepared {
    /// `None` if the program's own will do.
    list: Option<List>,
    /// Where the child is when it becomes a program.
    from: From,
    _helpers: Vec<OwnedFd>,
    _files: Vec<File>,
}

impl Prepared {
    /// # Safety
    ///
    /// Null, or a list of the program's. Within a guard.
    unsafe fn new(list: *const c_void) -> Result<Prepared, Errno> {
        // SAFETY: as the caller vouches.
        let actions = unsafe { actions_of(list) }.unwrap_or_default();
        let mut child = Child::new(&actions);
        for action in actions {
            child.follow(action)?;
        }
        let list = child.is_ours.then(|| List::of(&child.steps)).transpose()?;
        Ok(Prepared {
            list,
            from: child.from,
            _helpers: child.helpers,
            _files: child.files,
        })
    }

    fn list_or(&self, given: *const c_void) -> *const c_void {
        self.list
            .as_ref()
            .map_or(given, |list| std::ptr::from_ref(&*list.0).cast())
    }
}

/// What a descriptor of the child is.
#[derive(Clone)]
enum Source {
    /// This one of ours.
    Inherited(c_int),
    /// Opened by this path.
    Opened(From, CString),
    Closed,
}

/// A child, as far as its actions were followed.
struct Child {
    from: From,
    descriptors: BTreeMap<c_int, Source>,
    steps: Vec<Action>,
    /// Whether the steps are others than the program's.
    is_ours: bool,
    /// What the child inherits beside what the program knows; it closes when the child becomes a program.
    helpers: Vec<OwnedFd>,
    /// They are numbered from here: what the program's actions name is below.
    first: c_int,
    files: Vec<File>,
}

impl Child {
    fn new(actions: &[Action]) -> Child {
        let named = actions.iter().map(|action| match action {
            Action::Open { fd, .. } | Action::Close(fd) => *fd,
            Action::Duplicate(from, to) => *from.max(to),
            Action::GoOpen(fd) | Action::CloseFrom(fd) | Action::Foreground(fd) => *fd,
            Action::Go(_) => 0,
        });
        Child {
            from: From::Here,
            descriptors: BTreeMap::new(),
            steps: Vec::new(),
            is_ours: false,
            helpers: Vec::new(),
            first: named.max().unwrap_or(0).max(2) + 1,
            files: Vec::new(),
        }
    }

    fn source(&self, fd: c_int) -> Source {
        let known = self.descriptors.get(&fd).cloned();
        known.unwrap_or(Source::Inherited(fd))
    }

    fn follow(&mut self, action: Action) -> Result<(), Errno> {
        match action {
            Action::Open {
                fd,
                path,
                flags,
                mode,
            } => return self.open(fd, path, flags, mode),
            Action::Go(path) => return self.go(path),
            Action::GoOpen(fd) => return self.go_open(fd),
            Action::Close(fd) => drop(self.descriptors.insert(fd, Source::Closed)),
            Action::Duplicate(from, to) => {
                let source = self.source(from);
                self.descriptors.insert(to, source);
            }
            Action::CloseFrom(_) | Action::Foreground(_) => {}
        }
        self.steps.push(action);
        Ok(())
    }

    /// Whose a path is for the child, and what it is for it.
    fn find(&self, path: &CStr, last: Last) -> Result<Where, Errno> {
        match self.from.seen(path) {
            // SAFETY: a text of ours.
            Some(path) => unsafe { resolve(AT_FDCWD, path.as_ptr(), last) },
            None => Ok(Where::Local),
        }
    }

    fn open(&mut self, fd: c_int, path: CString, flags: c_int, mode: mode_t) -> Result<(), Errno> {
        let keeps = flags & libc::O_NOFOLLOW != 0 || is_exclusive(flags);
        let last = if keeps { Last::Keep } else { Last::Follow };
        let source = Source::Opened(self.from.clone(), path.clone());
        let step = match self.find(&path, last)? {
            Where::Ours(spot) => Action::Duplicate(self.open_ours(&spot, flags, mode)?, fd),
            place => Action::Open {
                fd,
                path: self.left(place).unwrap_or(path),
                flags,
                mode,
            },
        };
        self.steps.push(step);
        self.descriptors.insert(fd, source);
        Ok(())
    }

    /// The path to take instead of the program's.
    fn left(&mut self, place: Where) -> Option<CString> {
        match place {
            Where::Left(path) => {
                self.is_ours = true;
                Some(path)
            }
            _ => None,
        }
    }

    fn open_ours(&mut self, spot: &Spot, flags: c_int, mode: mode_t) -> Result<c_int, Errno> {
        let (fd, _, file) = open_for_another(spot, flags | libc::O_CLOEXEC, mode)?;
        self.files.push(file);
        // SAFETY: it was just made.
        self.help(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A descriptor for the child; its number there.
    fn help(&mut self, with: OwnedFd) -> Result<c_int, Errno> {
        // SAFETY: it is open. Our own calls reach the real functions.
        let fd = unsafe { libc::fcntl(with.as_raw_fd(), libc::F_DUPFD_CLOEXEC, self.first) };
        if fd < 0 {
            return Err(errno(get_errno()));
        }
        // SAFETY: it was just made.
        self.helpers.push(unsafe { OwnedFd::from_raw_fd(fd) });
        self.is_ours = true;
        Ok(fd)
    }

    fn go(&mut self, path: CString) -> Result<(), Errno> {
        match self.find(&path, Last::Follow)? {
            Where::Ours(spot) if is_directory(spot.existing()?.qid()) => {
                may_enter(spot.existing()?)?;
                self.enter(spot.export, &spot.path)
            }
            Where::Ours(_) => Err(Errno::NOTDIR),
            place => {
                let path = self.left(place).unwrap_or(path);
                self.from = beyond(&self.from, &path);
                self.steps.push(Action::Go(path));
                Ok(())
            }
        }
    }

    fn go_open(&mut self, fd: c_int) -> Result<(), Errno> {
        let from = match self.source(fd) {
            Source::Inherited(fd) => match table::get(fd) {
                Some(open) if !open.is_dir => return Err(Errno::NOTDIR),
                Some(open) => return self.enter(open.export, &open.path),
                None => directory_of(fd).map_or(From::Unknown, From::At),
            },
            Source::Opened(from, path) => match from.seen(&path) {
                // SAFETY: a text of ours.
                Some(seen) => match unsafe { resolve(AT_FDCWD, seen.as_ptr(), Last::Follow) }? {
                    Where::Ours(spot) => return self.enter(spot.export, &spot.path),
                    _ => beyond(&from, &path),
                },
                None => From::Unknown,
            },
            Source::Closed => From::Unknown,
        };
        self.from = from;
        self.steps.push(Action::GoOpen(fd));
        Ok(())
    }

    fn enter(&mut self, export: usize, path: &[u8]) -> Result<(), Errno> {
        let shadow = self.help(shadow_of(export, path)?)?;
        self.steps.push(Action::GoOpen(shadow));
        self.from = From::At(full_path(export, path));
        Ok(())
    }
}

/// Where one is who goes from a place to a local directory.
fn beyond(from: &From, path: &CStr) -> From {
    let seen = from
        .seen(path)
        .filter(|seen| seen.to_bytes().starts_with(b"/"));
    match (seen, from) {
        (Some(seen), _) => From::At(seen.into_bytes()),
        (None, From::Here) => {
            use std::os::unix::ffi::OsStringExt;
            let here = std::env::current_dir().map(|here| here.into_os_string().into_vec());
            here.map_or(From::Unknown, |here| beyond(&From::At(here), path))
        }
        (None, _) => From::Unknown,
    }
}

/// A list as the C library has it.
struct List(Box<posix_spawn_file_actions_t>);

impl List {
    fn of(steps: &[Action]) -> Result<List, Errno> {
        // SAFETY: zeros are what it is made of; it is set before it is used.
        let mut list = Box::new(unsafe { std::mem::zeroed::<posix_spawn_file_actions_t>() });
        // SAFETY: room for a list. Our own calls reach the real functions.
        good(unsafe { libc::posix_spawn_file_actions_init(&mut *list) })?;
        let mut list = List(list);
        for (at, step) in steps.iter().enumerate() {
            match step {
                Action::CloseFrom(first) => list.close_from(*first, &steps[at..])?,
                step => list.add(step)?,
            }
        }
        Ok(list)
    }

    fn add(&mut self, step: &Action) -> Result<(), Errno> {
        let list = &mut *self.0;
        // SAFETY: the list was made; paths end with zeros, and are copied.
        good(unsafe {
            match step {
                Action::Open {
                    fd,
                    path,
                    flags,
                    mode,
                } => {
                    libc::posix_spawn_file_actions_addopen(list, *fd, path.as_ptr(), *flags, *mode)
                }
                Action::Close(fd) => libc::posix_spawn_file_actions_addclose(list, *fd),
                Action::Duplicate(from, to) => {
                    libc::posix_spawn_file_actions_adddup2(list, *from, *to)
                }
                Action::Go(path) => posix_spawn_file_actions_addchdir_np(list, path.as_ptr()),
                Action::GoOpen(fd) => posix_spawn_file_actions_addfchdir_np(list, *fd),
                Action::CloseFrom(first) => posix_spawn_file_actions_addclosefrom_np(list, *first),
                Action::Foreground(fd) => posix_spawn_file_actions_addtcsetpgrp_np(list, *fd),
            }
        })
    }

    /// Closes all from one on but what later steps need; those descriptors of ours close later by themselves.
    fn close_from(&mut self, first: c_int, later: &[Action]) -> Result<(), Errno> {
        let needed = later.iter().filter_map(|step| match step {
            Action::Duplicate(fd, _) | Action::GoOpen(fd) if *fd >= first => Some(*fd),
            _ => None,
        });
        let needed: BTreeSet<c_int> = needed.collect();
        let end = needed.last().map_or(first, |last| last + 1);
        for fd in (first..end).filter(|fd| !needed.contains(fd)) {
            self.add(&Action::Close(fd))?;
        }
        self.add(&Action::CloseFrom(end))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it was made.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut *self.0) };
    }
}

fn good(error: c_int) -> Result<(), Errno> {
    match error {
        0 => Ok(()),
        error => Err(errno(error)),
    }
}

fn fail(errno: Errno) -> c_int {
    errno.0 as c_int
}

/// # Safety
///
/// What `posix_spawn` takes.
unsafe fn spawn(
    path: *const c_char,
    actions: *const c_void,
    environment: Texts,
    real: impl Fn(*const c_char, *const c_void, Texts) -> c_int,
    arguments: Texts,
) -> c_int {
    // SAFETY: as the caller vouches.
    let prepared = match guarded(|| unsafe { Prepared::new(actions) }) {
        Ok(prepared) => prepared,
        Err(errno) => return fail(errno),
    };
    let list = prepared.list_or(actions);
    // SAFETY: as the caller vouches.
    let result = unsafe {
        let path = CStr::from_ptr(path);
        attempt(
            path,
            &prepared.from,
            arguments,
            environment,
            |path, arguments| real(path, list, arguments),
        )
    };
    discard(prepared);
    result
}

/// Spawns a program from a path, wherever that leads.
///
/// # Safety
///
/// Lists of texts, with a null at their ends.
unsafe fn attempt(
    path: &CStr,
    from: &From,
    arguments: Texts,
    environment: Texts,
    real: impl Fn(*const c_char, Texts) -> c_int,
) -> c_int {
    let ready = guarded(|| {
        let program = find_from(from, path)?;
        // SAFETY: as the caller vouches.
        unsafe { prepare(program, from, arguments, environment, Memory::Child) }
    });
    carry_out(ready, fail, || real(path.as_ptr(), arguments), &real)
}

type Spawn = unsafe extern "C-unwind" fn(
    *mut pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Texts,
    Texts,
) -> c_int;

/// For those that are searched for.
static SPAWN: Real = Real::new("posix_spawn\0");
#[used]
#[unsafe(link_section = "presagio_reals")]
static LISTED: &Real = &SPAWN;

/// # Safety
///
/// What `posix_spawnp` takes.
unsafe fn spawn_found(
    name: *const c_char,
    actions: *const c_void,
    environment: Texts,
    (pid, attributes): (*mut pid_t, *const c_void),
    real: impl FnOnce(*const c_void) -> c_int,
    arguments: Texts,
) -> c_int {
    // SAFETY: as the caller vouches.
    let prepared = guarded(|| unsafe {
        let prepared = Prepared::new(actions)?;
        let paths = candidates(name, &prepared.from);
        Ok((prepared, paths))
    });
    let (prepared, paths) = match prepared {
        Ok(prepared) => prepared,
        Err(errno) => return fail(errno),
    };
    let list = prepared.list_or(actions);
    let result = match &paths {
        None => real(list),
        // SAFETY: the C library declares it so; as the caller vouches.
        Some(paths) => search(paths, |path| unsafe {
            let spawn = std::mem::transmute::<*mut c_void, Spawn>(SPAWN.get());
            attempt(
                path,
                &prepared.from,
                arguments,
                environment,
                |path, arguments| spawn(pid, path, list, attributes, arguments, environment),
            )
        }),
    };
    discard((prepared, paths));
    result
}
