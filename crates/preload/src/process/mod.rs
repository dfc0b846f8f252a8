//! Processes: what starts them is noted, since they share positions of descriptors with us from then on, and the
//! real function is jumped to. The child of a fork finds out by itself (`life`); the one of an exec starts anew.

mod vfork;

use crate::life::{self, Reason};
use crate::real::{self, Symbol};
use crate::{fd, inside, thread};
use libc::{c_int, c_long, c_void};
use presagio_arena::Counter;

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
    posix_spawn => spawns;
    posix_spawnp => spawns;
    execve => execs;
    execv => execs;
    execvp => execs;
    execvpe => execs;
    execl => execs;
    execlp => execs;
    execle => execs;
    fexecve => execs;
    execveat => execs;
}

fn forks() {
    starts(Counter::Forks);
}

fn spawns() {
    starts(Counter::Spawns);
}

fn execs() {
    if life::is_on() && !thread::current().is_guest() {
        life::count(Counter::Execs);
        inside::tell(inside::News::Exec);
    }
}

/// Descriptors are about to be shared.
fn starts(counter: Counter) {
    if life::is_on() && !thread::current().is_guest() {
        life::process_starts();
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
        life::with_errno_kept(|| fd::ops::closing_one(unsafe { libc::fileno(stream) }));
    }
    real::get(Symbol::pclose)
}
noted!(pclose => note_pclose);

/// A program that forbids itself system calls would be killed for ours.
extern "C-unwind" fn note_prctl(option: c_int) -> *mut c_void {
    if option == libc::PR_SET_SECCOMP {
        forbids();
    }
    real::get(Symbol::prctl)
}
noted!(prctl => note_prctl);

fn forbids() {
    inside::tell(inside::News::Forbids);
    life::turn_off(Reason::Seccomp);
}

/// A system call by number: what it does to files is not followed, but counted, and positions are not trusted after it.
extern "C-unwind" fn note_syscall(number: c_long, first: c_long) -> *mut c_void {
    if life::is_on() {
        life::with_errno_kept(|| raw_call(number, first));
    }
    real::get(Symbol::syscall)
}
noted!(syscall => note_syscall);

fn raw_call(number: c_long, first: c_long) {
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
        libc::SYS_clone => clones(first as c_int),
        libc::SYS_dup
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_clone3 => life::process_starts(),
        libc::SYS_seccomp => forbids(),
        libc::SYS_prctl if first == libc::PR_SET_SECCOMP as c_long => forbids(),
        _ => {}
    }
}
