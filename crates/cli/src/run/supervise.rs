//! The process in front of the command: passes signals on, stops and continues with it, and ends as it ended.
//!
//! The command is a child in the same process group, so that the terminal treats both alike: what is typed there
//! (Ctrl-C, Ctrl-Z) reaches the command directly, and pipelines and job control work. What is sent to this process alone
//! is passed on. All signals are blocked here and taken one by one; no handler is ever installed, so the command inherits
//! everything as it was. If this process is killed outright, so is the command.

use super::forward::Forward;
use super::inherited;
use presagio_advise::manager::desk::Ticket;
use presagio_page::readable;
use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the summary is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How this process was started.
struct Before {
    mask: libc::sigset_t,
    child_was_ignored: bool,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exited(u8),
    Killed(i32),
}

/// Runs the command in this process's place; only comes back if that is impossible.
pub fn become_it(command: &[OsString]) -> ExitCode {
    let arguments = match Arguments::new(command) {
        Ok(arguments) => arguments,
        Err(error) => return cannot_execute(command, error),
    };
    inherited::restore();
    cannot_execute(command, arguments.execute())
}

/// Runs the command as a child, with a way to the nodes if something is forwarded, shows the summary, and ends as it ended.
pub fn supervise(
    command: &[OsString],
    forward: Option<Forward>,
    summary: impl FnOnce() -> String,
) -> ExitCode {
    let before = block_signals();
    // Its threads have all signals blocked, like this one.
    let forwarding = match forward.map(Forward::begin).transpose() {
        Ok(forwarding) => forwarding,
        Err(error) => {
            summary();
            say(&format!(
                "presagio: nothing can be forwarded; {error}; may you start no thread?\n"
            ));
            return ExitCode::from(super::FAILED);
        }
    };
    let child = match spawn(command, &before) {
        Ok(child) => child,
        Err(error) => {
            // Nobody wants a summary of nothing.
            summary();
            return cannot_execute(command, error);
        }
    };
    // A pipe must close when the command closes it.
    super::manager::lead_nowhere();
    let end = attend(child, forwarding.is_some());
    // The manager may have something to tell the nodes to the end.
    say(&summary());
    if let Some(forwarding) = forwarding {
        forwarding.end();
    }
    end_like(end)
}

/// Leaves the manager; what it has to say.
pub fn leave(ticket: Ticket) -> String {
    let gone = || "presagio: the manager is gone, and its summary with it\n".to_owned();
    match ticket.leave().map(|stream| summary(stream, PATIENCE)) {
        Ok(Ok(text)) => text,
        // Killed, but not quite dead when it was told that we leave.
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => gone(),
        Ok(Err(error)) => format!("presagio: there is no summary: {error}\n"),
        Err(_) => gone(),
    }
}

/// Whoever closed stderr does not want to hear it.
pub fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn cannot_execute(command: &[OsString], error: io::Error) -> ExitCode {
    let name = readable::name(command[0].as_encoded_bytes());
    let (code, advice) = match error.kind() {
        io::ErrorKind::NotFound => (127, "check its name, and PATH"),
        io::ErrorKind::PermissionDenied => (126, "make it executable"),
        _ => (126, "check that it is a program for this machine"),
    };
    say(&format!("presagio: cannot run {name}; {error}; {advice}\n"));
    ExitCode::from(code)
}

/// A command as the system takes it.
struct Arguments {
    /// What `list` points to.
    _words: Vec<CString>,
    list: Vec<*const libc::c_char>,
}

impl Arguments {
    fn new(command: &[OsString]) -> io::Result<Arguments> {
        let words = command.iter().map(|a| CString::new(a.as_bytes()));
        let words: Vec<CString> = words.collect::<Result<_, _>>()?;
        let pointers = words.iter().map(|s| s.as_ptr());
        let list = pointers.chain([std::ptr::null()]).collect();
        Ok(Arguments {
            _words: words,
            list,
        })
    }

    /// Replaces this process; the error if that is impossible.
    fn execute(&self) -> io::Error {
        // SAFETY: strings that end with a zero, in a list that ends with a null.
        unsafe { libc::execvp(self.list[0], self.list.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// All signals wait from here on.
fn block_signals() -> Before {
    // SAFETY: all zeros is a valid value of these structures; the calls fill them.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, &mut mask);
        // Where children are ignored, nobody could tell us how ours ended.
        let child = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        Before {
            mask,
            child_was_ignored: child == libc::SIG_IGN,
        }
    }
}

/// What the child needs that becomes the command, and what it says if it cannot.
struct Birth<'a> {
    arguments: Arguments,
    before: &'a Before,
    supervisor: u32,
    error: AtomicI32,
}

/// As much stack as a process usually has: the C library puts the arguments of a script there.
const STACK: usize = 8 << 20;

/// Starts the command. The child runs in our memory until it becomes the command, while we wait: a copy of all our pages, for the
/// moment, would take longer.
fn spawn(command: &[OsString], before: &Before) -> io::Result<libc::pid_t> {
    let birth = Birth {
        arguments: Arguments::new(command)?,
        before,
        supervisor: std::process::id(),
        error: AtomicI32::new(0),
    };
    let mut stack: Vec<u8> = Vec::new();
    stack.try_reserve_exact(STACK)?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is the child's alone, its end aligned; we go on when the child no longer uses it or `birth`.
    let child = unsafe {
        let end = stack.as_mut_ptr().add(STACK);
        let end = end.sub(end as usize % 16);
        let argument = (&raw const birth).cast_mut().cast();
        libc::clone(become_child, end.cast(), flags, argument)
    };
    match birth.error.load(Relaxed) {
        _ if child < 0 => Err(io::Error::last_os_error()),
        0 => Ok(child),
        error => {
            wait(child, 0);
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// Runs in the supervisor's memory, which waits: nothing here changes any of it but the error.
extern "C" fn become_child(birth: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` waits, and has what it passed.
    let birth = unsafe { &*birth.cast::<Birth<'_>>() };
    // SAFETY: system calls without memory of their own, but for the mask, which is there.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // It may have died before that was said.
        if libc::getppid() as u32 != birth.supervisor {
            libc::_exit(1);
        }
        if birth.before.child_was_ignored {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        inherited::restore();
        libc::sigprocmask(libc::SIG_SETMASK, &birth.before.mask, std::ptr::null_mut());
    }
    let error = birth.arguments.execute();
    let code = error.raw_os_error().unwrap_or(libc::EINVAL);
    birth.error.store(code, Relaxed);
    // SAFETY: nothing of the parent's is to be flushed or undone here.
    unsafe { libc::_exit(127) }
}

/// What a child has to say.
enum News {
    End(End),
    Stopped(i32),
    Nothing,
}

fn wait(child: libc::pid_t, options: i32) -> News {
    let mut status = 0;
    // SAFETY: writes the status.
    let who = unsafe { libc::waitpid(child, &mut status, options) };
    if who != child {
        News::Nothing
    } else if libc::WIFEXITED(status) {
        News::End(End::Exited(libc::WEXITSTATUS(status) as u8))
    } else if libc::WIFSIGNALED(status) {
        News::End(End::Killed(libc::WTERMSIG(status)))
    } else if libc::WIFSTOPPED(status) {
        News::Stopped(libc::WSTOPSIG(status))
    } else {
        News::Nothing
    }
}

/// Passes signals on until the command has ended. Who serves others meanwhile does not stop because the command alone was stopped
/// (with SIGSTOP, which no terminal sends): its children go on, and need their way to the nodes.
fn attend(child: libc::pid_t, serves_others: bool) -> End {
    loop {
        let (signal, is_for_us_alone) = next_signal();
        if signal != libc::SIGCHLD {
            if is_for_us_alone {
                send(child, signal);
            }
            continue;
        }
        match wait(child, libc::WNOHANG | libc::WUNTRACED) {
            News::End(end) => return end,
            News::Stopped(libc::SIGSTOP) if serves_others => {}
            News::Stopped(signal) => {
                stop(signal);
                send(child, libc::SIGCONT);
            }
            News::Nothing => {}
        }
    }
}

/// Waits for a signal; whether it came to us alone.
fn next_signal() -> (i32, bool) {
    // SAFETY: all zeros is a valid value; the calls fill these.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let signal = libc::sigwaitinfo(&all, &mut info);
        match signal {
            // Interrupted, by being stopped and continued: the child may have news.
            -1 => (libc::SIGCHLD, false),
            _ => (signal, is_for_us_alone(signal, info.si_code)),
        }
    }
}

/// Whether a signal came to this process and to no other. What the kernel sends on behalf of the terminal goes to the whole
/// group, so the command has it; its other signals do not: an alarm that was set before we were started is ours. What another
/// process sends to the whole group cannot be told from what it sends to us: better twice than never.
fn is_for_us_alone(signal: i32, code: i32) -> bool {
    let of_terminals = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCONT,
        libc::SIGWINCH,
    ];
    code <= 0 || !of_terminals.contains(&signal)
}

fn send(child: libc::pid_t, signal: i32) {
    // SAFETY: no memory involved. The child was not waited for yet, so the number is its own.
    unsafe { libc::kill(child, signal) };
}

/// Stops as the command did, until somebody continues us.
fn stop(signal: i32) {
    // SAFETY: masks on the stack; the signal is one that stops, since it has stopped the command.
    unsafe {
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut one);
        libc::sigaddset(&mut one, signal);
        let mut blocked: libc::sigset_t = std::mem::zeroed();
        libc::raise(signal);
        // It waits, unless it is SIGSTOP; now it comes.
        libc::sigprocmask(libc::SIG_UNBLOCK, &one, &mut blocked);
        libc::sigprocmask(libc::SIG_SETMASK, &blocked, std::ptr::null_mut());
    }
}

/// What the manager has to say, unless a signal says that nobody wants to wait for it.
fn summary(mut stream: UnixStream, patience: Duration) -> io::Result<String> {
    let began = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut text = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(count) => text.extend(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_in_a_hurry() || began.elapsed() > patience {
                    return Err(io::Error::other("it was not waited for"));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether a signal waits that would end us.
pub fn is_in_a_hurry() -> bool {
    // SAFETY: fills the set.
    unsafe {
        let mut waiting: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&mut waiting);
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]
            .into_iter()
            .any(|signal| libc::sigismember(&waiting, signal) == 1)
    }
}

/// Ends as the command did: with its status, or by the same signal.
fn end_like(end: End) -> ExitCode {
    let signal = match end {
        End::Exited(code) => return ExitCode::from(code),
        End::Killed(signal) => signal,
    };
    // SAFETY: sets and masks on the stack.
    unsafe {
        // One core file is enough.
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut one);
        libc::sigaddset(&mut one, signal);
        libc::raise(signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &one, std::ptr::null_mut());
    }
    ExitCode::from(128u8.wrapping_add(signal as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_tells_the_command_itself_and_an_alarm_has_to_be_passed_on() {
        assert!(!is_for_us_alone(libc::SIGINT, libc::SI_KERNEL));
        assert!(is_for_us_alone(libc::SIGINT, libc::SI_USER));
        assert!(is_for_us_alone(libc::SIGALRM, libc::SI_KERNEL));
    }
}
