//! Starts a manager: a fork of this process, in a session of its own.
//!
//! It keeps stderr, to show the summary there if whoever started it was killed, and nothing else that it inherited: a
//! pipe to another program must close when the command closes it.

use super::settings::{Known, Plan};
use super::supervise::say;
use presagio_advise::manager::Summary;
use presagio_advise::manager::desk::{Desk, Doors, Ticket};
use presagio_page::readable;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// How long a manager may take to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where other ranks of the job come in, and the name of that place.
pub struct Door {
    pub listener: UnixListener,
    pub path: PathBuf,
}

/// Starts a manager and registers with it.
pub fn start(plan: Plan, door: Option<Door>, ranks: u32) -> io::Result<Ticket> {
    let (ours, theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so that the child may do what it likes.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            std::process::exit(manage(plan, theirs, door));
        }
        child => {
            drop(theirs);
            // The command must not find one that could not begin among its children.
            get_ticket(ours, ranks, PATIENCE).inspect_err(|_| end(child))
        }
    }
}

/// Registers with a manager that has so much time to begin.
fn get_ticket(stream: UnixStream, ranks: u32, patience: Duration) -> io::Result<Ticket> {
    stream.set_read_timeout(Some(patience))?;
    Ticket::get(stream, ranks).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other("it did not answer"),
        _ => error,
    })
}

/// Ends a manager that is of no use.
fn end(child: libc::pid_t) {
    // SAFETY: a child of ours that nobody has waited for; nobody wants the status.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

/// The life of a manager.
fn manage(mut plan: Plan, guest: UnixStream, door: Option<Door>) -> i32 {
    leave_home(&plan, &guest, door.as_ref());
    let (json, report) = (plan.json.take(), plan.report.take());
    let (quiet, known) = (plan.quiet, std::mem::take(&mut plan.known));
    let (listener, path) = door.map(|d| (d.listener, d.path)).unzip();
    let begun = plan.begin().and_then(|manager| {
        let doors = Doors {
            guests: vec![guest.try_clone()?],
            listener,
            standing: false,
        };
        let desk = Desk::open(doors, manager.address())?;
        Ok((manager, desk))
    });
    // The manager goes when this process does: nobody has to wait until all its memory is given back.
    let (mut manager, desk) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let _ = writeln!(&guest, "{error}");
            return 1;
        }
    };
    drop(guest); // the desk has its own
    let mut summary = manager.work(&desk);
    if let Some(path) = path {
        super::job::close_door(&path);
    }
    complete(&mut summary, known);
    if let Some(report) = report {
        report.write(&mut summary);
    }
    if let Some(file) = json {
        write_json(&summary, file);
    }
    let text = shown(&summary, quiet);
    if !desk.dismiss(&text) {
        say(&text);
    }
    0
}

/// Says what was known from the beginning.
pub fn complete(summary: &mut Summary, known: Known) {
    if summary.processes == 0 && known.blind.is_empty() {
        let note = "nothing was reported: the command used none of the files that are followed, or cannot be preloaded";
        summary.notes.push(note.into());
    }
    summary.unseen.splice(0..0, known.blind);
    summary.notes.extend(known.notes);
}

/// What a person gets to see. Who wants it quiet wants to know that the trace is not what it should be, though.
pub fn shown(summary: &Summary, quiet: bool) -> String {
    if !quiet {
        return summary.text();
    }
    let is_trouble = |note: &&String| {
        note.starts_with("the trace") || note.starts_with("cannot write the report")
    };
    let trouble = summary.notes.iter().filter(is_trouble);
    let told = trouble.map(|note| readable::sentence(note));
    told.map(|note| format!("presagio: {note}\n")).collect()
}

/// Writes the summary for machines.
pub fn write_json(summary: &Summary, mut file: File) {
    let written = writeln!(file, "{:#}", summary.json());
    if let Err(error) = written {
        say(&format!(
            "presagio: the summary could not be written as JSON; {error}; choose another place for it\n"
        ));
    }
}

/// Programs come first where all cores are busy.
pub fn stand_back() {
    const NICE: libc::c_int = 10;
    // SAFETY: no memory involved. Who may not do this stays as important as others.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    // A session of its own is a group of its own to the scheduler, whatever its processes' niceness, where these are on.
    let _ = std::fs::write("/proc/self/autogroup", NICE.to_string());
}

/// Away from the terminal and from all that the command has to do with.
fn leave_home(plan: &Plan, guest: &UnixStream, door: Option<&Door>) {
    be_apart(c"presagio-mgr");
    stand_back();
    let ours = [
        Some(guest.as_raw_fd()),
        door.map(|d| d.listener.as_raw_fd()),
        plan.trace.as_ref().map(AsRawFd::as_raw_fd),
        plan.json.as_ref().map(AsRawFd::as_raw_fd),
        plan.report.as_ref().and_then(|report| report.descriptor()),
    ];
    close_all_but(&ours.into_iter().flatten().collect());
}

/// Into a session of its own, under a name of its own, where no signal for the command does anything.
pub fn be_apart(name: &CStr) {
    // SAFETY: no memory involved, but for the mask and the name, which are there.
    unsafe {
        libc::setsid();
        // What is meant for a job reaches us too; the job decides what becomes of it, and we end with it.
        for signal in [
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGUSR1,
            libc::SIGUSR2,
            libc::SIGPIPE,
            libc::SIGXFSZ,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
}

/// Closes what was inherited, but for stderr; stdin and stdout lead nowhere.
pub fn close_all_but(ours: &BTreeSet<RawFd>) {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<RawFd>().ok());
    let numbers: Vec<RawFd> = numbers.filter(|fd| *fd > 2 && !ours.contains(fd)).collect();
    for fd in numbers {
        // SAFETY: nothing here knows of these descriptors; the one that listed them is closed already.
        unsafe { libc::close(fd) };
    }
    lead_nowhere();
}

/// Stdin and stdout lead nowhere from here on.
pub fn lead_nowhere() {
    if let Ok(nowhere) = File::options().read(true).write(true).open("/dev/null") {
        for fd in [0, 1] {
            // SAFETY: both are open.
            unsafe { libc::dup2(nowhere.as_raw_fd(), fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_does_not_answer_is_not_waited_for_for_ever() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = get_ticket(ours, 0, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.to_string(), "it did not answer");
        let sleeper = std::process::Command::new("sleep").arg("600").spawn();
        end(sleeper.unwrap().id() as libc::pid_t); // comes back
    }
}
