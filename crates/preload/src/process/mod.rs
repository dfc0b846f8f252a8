//! Processes: what starts them is noted, since they share positions of descriptors with us from then on, and the
//! real function is jumped to. The child of a fork finds out by itself (`life`); the one of an exec starts anew.

mod unwatched;
mod vfork;

use crate::life::{self, Reason};
use crate::real::{self, Symbol};
use crate::{descriptors, fd, inside, stdio, thread};
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use presagio_arena::Counter;
use unwatched::{Environment, Start};

/// Defines trampolines that note a call and jump to the real function.
macro_rules! notes {
    ($($name:ident => $note:expr;)*) => {
        $(
            const _: () = {
                extern "C-unwind" fn note() -> *mut c_void {
                    life::with_errno_kept(|| $note());
                    real::get(Symbol::$name)
                }
                noted!($name => note);
            };
        )*
    };
}

notes! {
    fork => forks;
    _Fork => forks;
    forkpty => forks;
    daemon => forks;
    popen => spawns;
    system => spawns;
    fexecve => execs;
    execveat => execs;
}

/// The same for those that are given a path, and perhaps an environment: `execve(path, _, environment)`.
macro_rules! notes_of_programs {
    ($($($name:ident),+ => |$path:ident, $environment:ident| $note:expr;)*) => {
        $($(
            const _: () = {
                extern "C-unwind" fn note($path: *const c_char, _: usize, $environment: *const *const c_char) -> *mut c_void {
                    life::with_errno_kept(|| $note);
                    real::get(Symbol::$name)
                }
                noted!($name => note);
            };
        )+)*
    };
}

notes_of_programs! {
    execve => |path, environment| execs_program(path, Environment::List(environment), false);
    execvpe => |path, environment| execs_program(path, Environment::List(environment), true);
    execv, execl => |path, _environment| execs_program(path, Environment::Same, false);
    execvp, execlp => |path, _environment| execs_program(path, Environment::Same, true);
    execle => |path, _environment| execs_program(path, Environment::Unknown, false);
}

fn execs_program(path: *const c_char, environment: Environment, is_looked_for: bool) {
    unwatched::starts(&Start {
        path,
        environment,
        is_looked_for,
        is_exec: true,
    });
    execs();
}

/// The same for `posix_spawn(pid, path, actions, attributes, arguments, environment)`.
macro_rules! notes_of_spawns {
    ($($name:ident $is_looked_for:literal)*) => {
        $(
            const _: () = {
                extern "C-unwind" fn note(
                    _: usize,
                    path: *const c_char,
                    _: usize,
                    _: usize,
                    _: usize,
                    environment: *const *const c_char,
                ) -> *mut c_void {
                    life::with_errno_kept(|| {
                        unwatched::starts(&Start {
                            path,
                            environment: Environment::List(environment),
                            is_looked_for: $is_looked_for,
                            is_exec: false,
                        });
                        spawns();
                    });
                    real::get(Symbol::$name)
                }
                noted!($name => note);
            };
        )*
    };
}

notes_of_spawns!(posix_spawn false posix_spawnp true);

fn forks() {
    starts(Counter::Forks);
}

fn spawns() {
    starts(Counter::Spawns);
}

fn execs() {
    if life::is_on() && !thread::current().is_guest() {
        life::count(Counter::Execs);
        descriptors::put_modes_back();
        inside::tell(inside::News::Exec);
    }
}

/// Descriptors are about to be shared.
fn starts(counter: Counter) {
    if life::is_on() && !thread::current().is_guest() {
        life::process_starts();
        descriptors::put_modes_back();
        life::count(counter);
    }
}

/// `clone(function, stack, flags, ...)`: threads come this way too, and share everything anyway.
extern "C-unwind" fn note_clone(_: usize, _: usize, flags: c_int) -> *mut c_void {
    clones(flags);
    real::get(Symbol::clone)
}
noted!(clone => note_clone);

fn clones(flags: c_int) {
    if flags & libc::CLONE_THREAD == 0 {
        life::with_errno_kept(forks);
        if flags & libc::CLONE_VM != 0 {
            thread::expect_guests();
        }
    }
}

/// The stream's descriptor is closed inside the C library.
extern "C-unwind" fn note_pclose(stream: *mut libc::FILE) -> *mut c_void {
    if life::is_on() && !stream.is_null() {
        // SAFETY: the program's own stream.
        life::with_errno_kept(|| fd::ops::closing_one(unsafe { stdio::descriptor(stream) }));
    }
    real::get(Symbol::pclose)
}
noted!(pclose => note_pclose);

/// A program that forbids itself system calls would be killed for ours.
extern "C-unwind" fn note_prctl(option: c_int, mode: c_ulong, filter: c_ulong) -> *mut c_void {
    if option == libc::PR_SET_SECCOMP {
        let is_filter = mode == c_ulong::from(libc::SECCOMP_MODE_FILTER);
        life::with_errno_kept(|| sets_seccomp(is_filter, filter));
    }
    real::get(Symbol::prctl)
}
noted!(prctl => note_prctl);

/// A filter that is not there only asks whether the kernel knows of filters.
fn sets_seccomp(is_filter: bool, filter: c_ulong) {
    if !is_filter || filter != 0 {
        forbids();
    }
}

/// What a child forbids itself, its parent may do, whose memory it may be in.
fn forbids() {
    let thread = thread::current();
    if thread.is_vforked() {
        return thread.forbid();
    }
    if thread.is_let_go() {
        // Once more, and if it is the parent this time, all its threads may be meant.
        return life::turn_off(Reason::Seccomp);
    }
    if thread.is_guest() {
        unwatched::look_no_more();
        // Positions may be moved unseen from here on.
        life::process_starts();
        return thread.let_go();
    }
    inside::tell(inside::News::Forbids);
    descriptors::put_modes_back();
    life::turn_off(Reason::Seccomp);
}

/// A system call by number: what it does to files is not followed, but counted, and positions are not trusted after it.
extern "C-unwind" fn note_syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
) -> *mut c_void {
    if life::is_on() {
        life::with_errno_kept(|| raw_call(number, [first, second, third, fourth]));
    }
    real::get(Symbol::syscall)
}
noted!(syscall => note_syscall);

fn raw_call(number: c_long, [first, second, third, fourth]: [c_long; 4]) {
    match number {
        libc::SYS_io_uring_setup | libc::SYS_io_uring_enter => {
            life::process_starts();
            life::count(Counter::IoUring);
        }
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_sendfile
        | libc::SYS_copy_file_range
        | libc::SYS_splice
        | libc::SYS_lseek => {
            life::process_starts();
            life::count(Counter::RawCalls);
        }
        libc::SYS_close => fd::ops::closing_one(first as c_int),
        libc::SYS_close_range => {
            fd::ops::close_range(first as c_uint, second as c_uint, third as c_int, || 0);
        }
        libc::SYS_dup => fd::ops::replacing(first as c_int, -1),
        libc::SYS_dup2 | libc::SYS_dup3 => fd::ops::replacing(first as c_int, second as c_int),
        libc::SYS_fcntl => fcntls(first as c_int, second as c_int, third as usize),
        libc::SYS_clone => clones(first as c_int),
        libc::SYS_clone3 => clones(unwatched::flags_of(first as usize)),
        libc::SYS_fork => clones(0),
        libc::SYS_vfork => clones(libc::CLONE_VM),
        libc::SYS_seccomp => match first as c_uint {
            libc::SECCOMP_SET_MODE_STRICT => sets_seccomp(false, 0),
            libc::SECCOMP_SET_MODE_FILTER => sets_seccomp(true, third as c_ulong),
            // Asks what there is.
            _ => {}
        },
        libc::SYS_prctl if first == c_long::from(libc::PR_SET_SECCOMP) => {
            let is_filter = second == c_long::from(libc::SECCOMP_MODE_FILTER);
            sets_seccomp(is_filter, third as c_ulong);
        }
        libc::SYS_fadvise64 => fd::ops::advises(first as c_int, fourth as c_int),
        _ => {}
    }
}

/// What it duplicates is looked at when it is used, and so is where writes go.
fn fcntls(fd: c_int, command: c_int, argument: usize) {
    let done = || match command {
        // Whichever it will be, it is not known yet.
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => -1,
        _ => 0,
    };
    fd::ops::fcntl(fd, command, argument, done);
}
