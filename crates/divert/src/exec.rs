//! Programs that are forwarded files: `exec` and `posix_spawn`.
//!
//! The kernel cannot run what it cannot read, so the bytes of a program are copied into memory, and that is run. A script is
//! not: its interpreter is run, as the kernel would, and opens the script itself, by the name that was used for it; unless it
//! will not have this library, then it gets a copy too. File actions of `posix_spawn`, which the C library carries out in the child
//! where we do not see it, get what they need beforehand: a file that is open by then, a shadow for a directory.
//!
//! What differs: /proc/self/exe names memory (`readlink` tells programs the path all the same), so `$ORIGIN` in a program's list of
//! libraries leads nowhere; set-user-ID bits mean nothing. Not served: a local script whose interpreter is forwarded, and
//! `dlopen` of forwarded libraries: the kernel and the loader open these themselves.

use crate::call::{Errno, errno, get_errno, guarded};
use crate::names::{discard, full_path, is_directory, may, shadow_of};
use crate::resolve::{Last, Where, may_be_ours, resolve};
use crate::table;
use libc::{AT_FDCWD, c_char, c_int, c_void, mode_t, pid_t};
use presagio_arena::sys;
use presagio_forward::File;
use presagio_ninep::OpenFlags;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

type Texts = *const *const c_char;

hooks! {
    fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int = |real| run((AT_FDCWD, path), arguments, environment, real);
    fn execv(path: *const c_char, arguments: Texts) -> c_int = |real| run((AT_FDCWD, path), arguments, environ, real);
    fn execvp(name: *const c_char, arguments: Texts) -> c_int = |real| run_found(name, arguments, environ, real);
    fn execvpe(name: *const c_char, arguments: Texts, environment: Texts) -> c_int = |real| run_found(name, arguments, environment, real);
    fn fexecve(fd: c_int, arguments: Texts, environment: Texts) -> c_int = |real| run_open(fd, arguments, environment, real);
    fn execveat(at: c_int, path: *const c_char, arguments: Texts, environment: Texts, flags: c_int) -> c_int = |real| run_at(at, path, arguments, environment, flags, real);
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts) -> c_int = |real, other| spawn(path, arguments, environment, real, |path, arguments| other(pid, path, actions, attributes, arguments, environment));
    fn posix_spawnp(pid: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts) -> c_int = |real| spawn_found(pid, name, actions, attributes, arguments, environment, real);
    fn posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |real| will_open(actions, fd, path, flags, mode, real);
    fn posix_spawn_file_actions_addchdir_np(actions: *mut c_void, path: *const c_char) -> c_int = |real, other| will_go(path, real, |path| other(actions, path));
    fn posix_spawn_file_actions_addfchdir_np(actions: *mut c_void, fd: c_int) -> c_int = |real| will_go_open(actions, fd, real);
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int = |real| { let result = real(); let_go(actions); result };
}

unsafe extern "C" {
    static environ: Texts;
    fn posix_spawn_file_actions_addchdir_np(actions: *mut c_void, path: *const c_char) -> c_int;
}

/// How the memory is called that a program is copied into, before its path.
const MEMORY: &[u8] = b"presagio-exec:";
/// The longest name of a memfd.
const MEMORY_NAME_MAX: usize = 249;

/// The kernel's limits: the first line of a script, and interpreters that are scripts themselves.
const LINE_MAX: usize = 256;
const SCRIPTS_MAX: usize = 5;

/// What is read at a time.
const PIECE: usize = 1 << 20;

/// The path that a program was run by, from the name of the memory that it was copied into.
pub fn executed(memory: &[u8]) -> Option<Vec<u8>> {
    let path = memory.strip_prefix(MEMORY)?;
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    Some(path.to_vec())
}

/// A call that the kernel can carry out instead of the program's.
struct Ready {
    path: CString,
    /// With a null at its end.
    arguments: Vec<*const c_char>,
    /// What the arguments point to, if it is ours.
    _texts: Vec<CString>,
    /// What the path stands for.
    _memory: Option<OwnedFd>,
}

/// Something to run.
enum Program {
    /// The program's own business.
    Local,
    /// The same, by this path.
    Left(CString),
    /// A forwarded file, and the path to tell a script by.
    Ours {
        file: File,
        path: Vec<u8>,
        told: Vec<u8>,
    },
}

/// # Safety
///
/// The path is the program's.
unsafe fn find(at: c_int, path: *const c_char, last: Last) -> Result<Program, Errno> {
    // SAFETY: as the caller vouches.
    let (place, text) = unsafe { (resolve(at, path, last)?, CStr::from_ptr(path).to_bytes()) };
    Ok(match place {
        Where::Local => Program::Local,
        Where::Left(path) => Program::Left(path),
        Where::Ours(spot) => {
            let file = spot.existing()?.clone();
            if file.qid().kind.contains(presagio_ninep::QidKind::SYMLINK) {
                return Err(errno(libc::ELOOP));
            }
            let path = full_path(spot.export, &spot.path);
            // A relative path means something else to who starts elsewhere.
            let told = if at == AT_FDCWD {
                text.to_vec()
            } else {
                path.clone()
            };
            Program::Ours { file, path, told }
        }
    })
}

/// Makes a call ready, if it needs to be: `None` if the real function is to be called as it was.
///
/// # Safety
///
/// Lists of texts, with a null at their ends.
unsafe fn prepare(
    program: Program,
    arguments: Texts,
    environment: Texts,
    memory_of: Memory,
) -> Result<Option<Ready>, Errno> {
    // SAFETY: as the caller vouches.
    let (mut list, has_us) = unsafe { (copy(arguments), has_this_library(environment)) };
    let (mut texts, mut program) = (Vec::new(), program);
    for _ in 0..=SCRIPTS_MAX {
        let (file, path, told) = match program {
            Program::Local => return Ok(None),
            Program::Left(path) => return Ok(Some(Ready::new(path, list, texts, None))),
            Program::Ours { file, path, told } => (file, path, told),
        };
        let file = readable(&file)?;
        let line = first_line(&file)?;
        let Some((interpreter, argument)) = line.filter(|_| has_us) else {
            let fd = to_memory(&file, &path, memory_of)?;
            let path = memory_path(fd.as_raw_fd(), memory_of)?;
            return Ok(Some(Ready::new(path, list, texts, Some(fd))));
        };
        let own = [Some(interpreter.clone()), argument, CString::new(told).ok()];
        let own: Vec<CString> = own.into_iter().flatten().collect();
        let rest = list.iter().skip(1).copied();
        list = own.iter().map(|text| text.as_ptr()).chain(rest).collect();
        texts.extend(own);
        // SAFETY: a text of ours.
        program = match unsafe { find(AT_FDCWD, interpreter.as_ptr(), Last::Follow) }? {
            Program::Local => Program::Left(interpreter),
            program => program,
        };
    }
    Err(errno(libc::ELOOP))
}

impl Ready {
    fn new(
        path: CString,
        mut arguments: Vec<*const c_char>,
        texts: Vec<CString>,
        memory: Option<OwnedFd>,
    ) -> Ready {
        arguments.push(null());
        Ready {
            path,
            arguments,
            _texts: texts,
            _memory: memory,
        }
    }
}

/// Who opens the memory that a program was copied into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// This process, which becomes the program.
    Here,
    /// A child of ours, which may have closed whatever it inherited.
    Child,
}

/// The texts of a list that may be null.
///
/// # Safety
///
/// It has a null at its end.
unsafe fn copy(list: Texts) -> Vec<*const c_char> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller vouches.
    let at = |index| unsafe { *list.add(index) };
    (0..).map(at).take_while(|text| !text.is_null()).collect()
}

/// Whether a program with this environment will have this library, and something to do for it.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn has_this_library(environment: Texts) -> bool {
    // SAFETY: as the caller vouches.
    let all = unsafe { copy(environment) };
    let has = |start: &[u8], part: &[u8]| {
        all.iter().any(|text| {
            // SAFETY: it ends with a zero.
            let text = unsafe { CStr::from_ptr(*text) }.to_bytes();
            text.starts_with(start) && text.windows(part.len()).any(|window| window == part)
        })
    };
    has(b"LD_PRELOAD=", b"libpresagio_divert.so") && has(b"PRESAGIO_FORWARD=", b":")
}

/// Opens what is to be run.
fn readable(file: &File) -> Result<File, Errno> {
    let attr = file.getattr()?;
    if is_directory(file.qid()) || attr.mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Errno::ACCES);
    }
    may(&attr, libc::X_OK)?;
    file.open(OpenFlags::RDONLY)
}

/// The interpreter of a script and its argument, as the kernel reads them; `None` if it is no script.
fn first_line(file: &File) -> Result<Option<(CString, Option<CString>)>, Errno> {
    let mut start = [0; LINE_MAX];
    let length = file.read_at(0, &mut start)?;
    let Some(line) = start[..length].strip_prefix(b"#!") else {
        return Ok(None);
    };
    let end = line.iter().position(|byte| matches!(byte, b'\n' | 0));
    let line = line[..end.unwrap_or(line.len())].trim_ascii();
    let space = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (name, rest) = line.split_at(space.unwrap_or(line.len()));
    if name.is_empty() {
        return Err(errno(libc::ENOEXEC));
    }
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| errno(libc::ENOEXEC));
    let rest = rest.trim_ascii();
    let argument = if rest.is_empty() {
        None
    } else {
        Some(text(rest)?)
    };
    Ok(Some((text(name)?, argument)))
}

/// Copies a file into memory that has its name.
fn to_memory(file: &File, path: &[u8], memory_of: Memory) -> Result<OwnedFd, Errno> {
    let is_script = first_line(file)?.is_some();
    let name = [MEMORY, path].concat();
    let name = match name.len() > MEMORY_NAME_MAX {
        true => &path[path.len().saturating_sub(MEMORY_NAME_MAX)..],
        false => &name,
    };
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    // An interpreter opens it after everything else was closed.
    let stays = is_script && memory_of == Memory::Here;
    let memory = new_memory(&name, if stays { 0 } else { libc::MFD_CLOEXEC })?;
    let (mut piece, mut offset) = (vec![0; PIECE], 0);
    loop {
        match file.read_at(offset, &mut piece)? {
            0 => return Ok(memory),
            length => write_all(&memory, &piece[..length])?,
        }
        offset += PIECE as u64;
    }
}

/// Newer kernels want to be told that it is to be run; older ones do not understand.
fn new_memory(name: &CStr, flags: u32) -> Result<OwnedFd, Errno> {
    const EXECUTABLE: u32 = 0x10;
    let make = |flags: u32| {
        let args = [name.as_ptr() as usize, flags as usize, 0, 0, 0, 0];
        // SAFETY: the name ends with a zero.
        sys::checked(unsafe { sys::call(libc::SYS_memfd_create, args) })
    };
    let fd = make(flags | EXECUTABLE)
        .or_else(|_| make(flags))
        .map_err(errno)?;
    // SAFETY: it was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let args = [
            to.as_raw_fd() as usize,
            bytes.as_ptr() as usize,
            bytes.len(),
            0,
            0,
            0,
        ];
        // SAFETY: reads the bytes.
        let written = sys::checked(unsafe { sys::call(libc::SYS_write, args) }).map_err(errno)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

fn memory_path(fd: c_int, memory_of: Memory) -> Result<CString, Errno> {
    let path = match memory_of {
        Memory::Here => format!("/proc/self/fd/{fd}"),
        Memory::Child => format!("/proc/{}/fd/{fd}", std::process::id()),
    };
    CString::new(path).map_err(|_| Errno::INVAL)
}

/// Calls the real function with what was made ready, or as it was.
fn carry_out(
    ready: Result<Option<Ready>, Errno>,
    failed: impl FnOnce(Errno) -> c_int,
    real: impl FnOnce() -> c_int,
    other: impl FnOnce(*const c_char, Texts) -> c_int,
) -> c_int {
    match ready {
        Ok(None) => real(),
        Ok(Some(ready)) => {
            let result = other(ready.path.as_ptr(), ready.arguments.as_ptr());
            discard(ready);
            result
        }
        Err(errno) => failed(errno),
    }
}

fn fail(errno: Errno) -> c_int {
    crate::call::fail(errno)
}

/// Becomes another program, without looking at its path again.
///
/// # Safety
///
/// What `execve` takes.
unsafe fn become_it(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    let args = [
        path as usize,
        arguments as usize,
        environment as usize,
        0,
        0,
        0,
    ];
    // SAFETY: as the caller vouches.
    match sys::checked(unsafe { sys::call(libc::SYS_execve, args) }) {
        Ok(_) => 0,
        Err(error) => fail(errno(error)),
    }
}

/// # Safety
///
/// What `execve` takes.
unsafe fn run(
    (at, path): (c_int, *const c_char),
    arguments: Texts,
    environment: Texts,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        if !may_be_ours(at, path) {
            return real();
        }
        let ready = guarded(|| {
            prepare(
                find(at, path, Last::Follow)?,
                arguments,
                environment,
                Memory::Here,
            )
        });
        carry_out(ready, fail, real, |path, arguments| {
            become_it(path, arguments, environment)
        })
    }
}

/// # Safety
///
/// What `fexecve` takes.
unsafe fn run_open(
    fd: c_int,
    arguments: Texts,
    environment: Texts,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let Some(open) = table::get(fd) else {
        return real();
    };
    let ready = guarded(|| {
        let open = open;
        let path = full_path(open.export, &open.path);
        // One that is open for writing only, say, cannot be read from.
        let file = crate::world::export(open.export)?
            .root()?
            .walk(&open.path)?;
        let file = if file.qid().path == open.qid.path {
            file
        } else {
            open.file()?.clone()
        };
        let program = Program::Ours {
            file,
            told: path.clone(),
            path,
        };
        // SAFETY: as the caller vouches.
        unsafe { prepare(program, arguments, environment, Memory::Here) }
    });
    // SAFETY: as the caller vouches.
    carry_out(ready, fail, real, |path, arguments| unsafe {
        become_it(path, arguments, environment)
    })
}

/// # Safety
///
/// What `execveat` takes.
unsafe fn run_at(
    at: c_int,
    path: *const c_char,
    arguments: Texts,
    environment: Texts,
    flags: c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        if !path.is_null() && *path == 0 && flags & libc::AT_EMPTY_PATH != 0 {
            return run_open(at, arguments, environment, real);
        }
        if !may_be_ours(at, path) {
            return real();
        }
        let last = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 {
            Last::Keep
        } else {
            Last::Follow
        };
        let ready =
            guarded(|| prepare(find(at, path, last)?, arguments, environment, Memory::Here));
        carry_out(ready, fail, real, |path, arguments| {
            become_it(path, arguments, environment)
        })
    }
}

/// The places where a program of this name is to be looked for; `None` if none of them is ours.
///
/// # Safety
///
/// The name is the program's.
unsafe fn candidates(name: *const c_char) -> Option<Vec<CString>> {
    // SAFETY: as the caller vouches; the environment does not change meanwhile, as for the real function.
    unsafe {
        let text = CStr::from_ptr(name).to_bytes();
        if text.contains(&b'/') {
            return may_be_ours(AT_FDCWD, name).then(|| vec![CStr::from_ptr(name).to_owned()]);
        }
        let places = libc::getenv(c"PATH".as_ptr());
        let places = if places.is_null() {
            c"/bin:/usr/bin"
        } else {
            CStr::from_ptr(places)
        };
        let paths = places
            .to_bytes()
            .split(|byte| *byte == b':')
            .map(|place| match place {
                b"" => text.to_vec(),
                place => [place, b"/", text].concat(),
            });
        let paths: Vec<CString> = paths.filter_map(|path| CString::new(path).ok()).collect();
        let has_ours = !text.is_empty()
            && paths
                .iter()
                .any(|path| may_be_ours(AT_FDCWD, path.as_ptr()));
        has_ours.then_some(paths)
    }
}

/// Whether the search goes on behind a place, with this error there.
fn goes_on(error: c_int) -> bool {
    matches!(
        error,
        libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT | libc::EACCES
    )
}

/// Tries one place after the other; what the last one said, or that there was one which may not be used.
fn search(paths: &[CString], mut attempt: impl FnMut(&CStr) -> c_int) -> c_int {
    let mut last = libc::ENOENT;
    for path in paths {
        match attempt(path) {
            error if !goes_on(error) => return error,
            libc::EACCES => last = libc::EACCES,
            error if last != libc::EACCES => last = error,
            _ => {}
        }
    }
    last
}

/// # Safety
///
/// What `execvpe` takes.
unsafe fn run_found(
    name: *const c_char,
    arguments: Texts,
    environment: Texts,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        let Ok(Some(paths)) = guarded(|| Ok(candidates(name))) else {
            return real();
        };
        let error = search(&paths, |path| {
            libc::execve(path.as_ptr(), arguments.cast(), environment.cast());
            match get_errno() {
                libc::ENOEXEC => run_by_shell(path, arguments, environment),
                error => error,
            }
        });
        discard(paths);
        fail(errno(error))
    }
}

/// A file that is no program is taken for a script of the shell.
///
/// # Safety
///
/// What `execvpe` takes.
unsafe fn run_by_shell(path: &CStr, arguments: Texts, environment: Texts) -> c_int {
    let list = guarded(|| {
        // SAFETY: as the caller vouches.
        let rest = unsafe { copy(arguments) }.into_iter().skip(1);
        let own = [c"/bin/sh".as_ptr(), path.as_ptr()].into_iter();
        Ok(own.chain(rest).chain([null()]).collect::<Vec<_>>())
    });
    let Ok(list) = list else {
        return libc::ENOMEM;
    };
    // SAFETY: as the caller vouches.
    unsafe { libc::execve(c"/bin/sh".as_ptr(), list.as_ptr(), environment.cast()) };
    discard(list);
    get_errno()
}

/// # Safety
///
/// What `posix_spawn` takes.
unsafe fn spawn(
    path: *const c_char,
    arguments: Texts,
    environment: Texts,
    real: impl FnOnce() -> c_int,
    other: impl FnOnce(*const c_char, Texts) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe {
        if !may_be_ours(AT_FDCWD, path) {
            return real();
        }
        let ready = guarded(|| {
            prepare(
                find(AT_FDCWD, path, Last::Follow)?,
                arguments,
                environment,
                Memory::Child,
            )
        });
        carry_out(ready, |errno| errno.0 as c_int, real, other)
    }
}

/// # Safety
///
/// What `posix_spawnp` takes.
unsafe fn spawn_found(
    pid: *mut pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches. This `posix_spawn` is ours.
    unsafe {
        let Ok(Some(paths)) = guarded(|| Ok(candidates(name))) else {
            return real();
        };
        let result = search(&paths, |path| {
            libc::posix_spawn(
                pid,
                path.as_ptr(),
                actions.cast(),
                attributes.cast(),
                arguments.cast(),
                environment.cast(),
            )
        });
        discard(paths);
        result
    }
}

/// Descriptors that were opened for a list of actions, to be closed when it is destroyed.
static OPENED: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// Ours for children are not below this, where programs put what they pass on.
const HIGH: c_int = 300;

/// A forwarded file is opened now, and duplicated in the child.
///
/// # Safety
///
/// The actions and the path are the program's.
unsafe fn will_open(
    actions: *mut c_void,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches. These functions are ours.
    unsafe {
        if !may_be_ours(AT_FDCWD, path) {
            return real();
        }
        let opened = libc::open(path, flags | libc::O_CLOEXEC, mode);
        if opened < 0 || table::get(opened).map(discard).is_none() {
            // What it says in the child is what the program is to hear.
            if opened >= 0 {
                libc::close(opened);
            }
            return real();
        }
        let high = libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, HIGH);
        libc::close(opened);
        if high < 0 {
            return get_errno();
        }
        let _ = guarded(|| {
            let mut all = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((actions as usize, high));
            Ok(())
        });
        libc::posix_spawn_file_actions_adddup2(actions.cast(), high, fd)
    }
}

/// # Safety
///
/// The actions are destroyed.
unsafe fn let_go(actions: *mut c_void) {
    let closed = guarded(|| {
        let mut all = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|(of, _)| *of == actions as usize);
        Ok(found.map(|index| all.swap_remove(index).1))
    });
    if let Ok(Some(fd)) = closed {
        // SAFETY: ours. There may be more.
        unsafe {
            libc::close(fd);
            let_go(actions);
        }
    }
}

/// # Safety
///
/// The path is the program's.
unsafe fn will_go(
    path: *const c_char,
    real: impl FnOnce() -> c_int,
    other: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    let shadow = guarded(|| unsafe {
        if !may_be_ours(AT_FDCWD, path) {
            return Ok(None);
        }
        match resolve(AT_FDCWD, path, Last::Follow)? {
            Where::Ours(spot) if is_directory(spot.existing()?.qid()) => {
                shadow_of(spot.export, &spot.path).map(Some)
            }
            Where::Left(path) => Ok(Some(path)),
            _ => Ok(None),
        }
    });
    match shadow {
        Ok(Some(shadow)) => {
            let result = other(shadow.as_ptr());
            discard(shadow);
            result
        }
        // What is wrong with it, the child finds out.
        _ => real(),
    }
}

/// # Safety
///
/// The actions are the program's.
unsafe fn will_go_open(actions: *mut c_void, fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let Some(open) = table::get(fd) else {
        return real();
    };
    let added = guarded(|| {
        let open = open;
        let shadow = shadow_of(open.export, &open.path)?;
        // SAFETY: as the caller vouches. Our own call reaches the real function, which copies the path.
        Ok(unsafe { posix_spawn_file_actions_addchdir_np(actions, shadow.as_ptr()) })
    });
    added.unwrap_or_else(|errno| errno.0 as c_int)
}

/// The arguments of `execl` and its relatives: those in registers, and the rest on the stack.
///
/// # Safety
///
/// They have a null at their end.
unsafe fn listed(
    first: *const [*const c_char; 5],
    rest: Texts,
) -> (Vec<*const c_char>, *const *const c_char) {
    // SAFETY: as the caller vouches.
    let at = |index: usize| unsafe {
        match index {
            0..5 => (*first)[index],
            _ => *rest.add(index - 5),
        }
    };
    let mut all: Vec<_> = (0..).map(at).take_while(|text| !text.is_null()).collect();
    let behind = at(all.len() + 1).cast();
    all.push(null());
    (all, behind)
}

/// # Safety
///
/// As for [`listed`].
unsafe fn with_list(
    first: *const [*const c_char; 5],
    rest: Texts,
    call: impl FnOnce(Texts, Texts) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    match guarded(|| Ok(unsafe { listed(first, rest) })) {
        Ok((list, behind)) => {
            let result = call(list.as_ptr(), behind);
            discard(list);
            result
        }
        Err(errno) => fail(errno),
    }
}

unsafe extern "C-unwind" fn list_run(
    path: *const c_char,
    first: *const [*const c_char; 5],
    rest: Texts,
) -> c_int {
    // SAFETY: what `execl` takes. This `execve` is ours.
    unsafe {
        with_list(first, rest, |list, _| {
            libc::execve(path, list.cast(), environ.cast())
        })
    }
}

unsafe extern "C-unwind" fn list_run_found(
    name: *const c_char,
    first: *const [*const c_char; 5],
    rest: Texts,
) -> c_int {
    // SAFETY: what `execlp` takes. This `execvp` is ours.
    unsafe { with_list(first, rest, |list, _| libc::execvp(name, list.cast())) }
}

unsafe extern "C-unwind" fn list_run_with(
    path: *const c_char,
    first: *const [*const c_char; 5],
    rest: Texts,
) -> c_int {
    // SAFETY: what `execle` takes: the environment comes behind the null. This `execve` is ours.
    unsafe {
        with_list(first, rest, |list, environment| {
            libc::execve(path, list.cast(), environment.cast())
        })
    }
}

/// Defines a function with variable arguments: those in registers are put on the stack, and where all are is handed on.
macro_rules! with_arguments {
    ($name:ident => $target:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                ".cfi_adjust_cfa_offset 40",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {target}",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "ret",
                ".cfi_endproc",
                target = sym $target,
            )
        }
    };
}

with_arguments!(execl => list_run);
with_arguments!(execlp => list_run_found);
with_arguments!(execle => list_run_with);
