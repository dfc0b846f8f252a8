//! `presagio advisor`: a manager that stands by itself, for programs that come and go.

use crate::failure::failure;
use crate::run::library::Preload;
use crate::run::settings::Settings;
use crate::run::{job, manager};
use presagio_advise::manager::desk::{Desk, Doors};
use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long a manager may take to notice that it is to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keep one manager standing for all commands that you run on this node
///
/// Every `presagio run` that asks for nothing special then registers with it instead of starting one: several
/// commands are advised together, and what is learned is kept in memory between them. It prints what a shell has to
/// export so that programs report to it without `presagio run`.
///
/// It works until Ctrl-C or SIGTERM, and shows one summary of everything at the end; a second one ends it at once, without.
/// Without programs it uses no processor time.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio advisor &                 in a job script; then:
  presagio run -- ./preprocess       both report to the one manager
  presagio run -- ./simulate
  kill %1; wait                      one summary of all

  presagio advisor > env.sh &        or: the shell's own programs report
  sleep 1; . ./env.sh; ./simulate")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
}

/// Signals that end it. All threads block them; one waits for them.
pub fn ending_signals() -> libc::sigset_t {
    // SAFETY: all zeros is a valid value, which the calls fill.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

/// Waits until one of them comes.
pub fn wait_for(signals: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: the set is a valid one, and the signal is written to memory of ours.
    unsafe { libc::sigwait(signals, &mut signal) };
}

/// The same, for so long at most; whether one came.
fn comes_within(signals: &libc::sigset_t, time: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: the set and the time are valid; nobody wants to know more about the signal.
    unsafe { libc::sigtimedwait(signals, std::ptr::null_mut(), &time) > 0 }
}

/// Has the manager end when a signal comes. If it does not take notice, or if it is told again, it ends as it is: it may write to
/// storage that never answers.
fn end_when_told(desk: &Desk, signals: &libc::sigset_t) {
    wait_for(signals);
    desk.end();
    let is_urged = comes_within(signals, PATIENCE);
    if !is_urged && desk.is_heard() {
        wait_for(signals);
    }
    let why = match desk.is_heard() {
        true => "it was told to end twice",
        false => "the manager does not answer",
    };
    let text =
        format!("presagio: there is no summary; {why}; does the storage of its files hang?\n");
    let _ = io::stderr().write_all(text.as_bytes());
    // SAFETY: nothing is to be flushed or undone: that is what may hang.
    unsafe { libc::_exit(1) };
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let preload = Preload::find()?;
    let mut plan = args.settings.plan()?;
    let report = plan.report.take();
    let quiet = plan.quiet;
    let json = plan.json.as_ref().map(std::fs::File::try_clone);
    let json = json.transpose()?;
    let listener = listen()?;
    // Before there are threads: they inherit it.
    let signals = ending_signals();
    manager::stand_back();
    let manager = plan
        .begin()
        .map_err(|error| failure("the manager could not begin", error, "free some memory"))?;
    print_exports(&preload, &manager.address())?;
    let doors = Doors {
        guests: Vec::new(),
        listener: Some(listener),
        standing: true,
    };
    let desk = Arc::new(Desk::open(doors, manager.address())?);
    let told = desk.clone();
    std::thread::spawn(move || end_when_told(&told, &signals));
    let mut summary = manager.run(&*desk);
    if let Ok((_lock, directory)) = job::lock() {
        let _ = std::fs::remove_file(directory.join(job::ADVISOR));
    }
    manager::complete(&mut summary, Default::default());
    if let Some(report) = report {
        report.write(&mut summary);
    }
    if let Some(file) = json {
        manager::write_json(&summary, file);
    }
    io::stderr().write_all(manager::shown(&summary, quiet).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn print_exports(preload: &Preload, address: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(preload.exports(address).as_bytes())?;
    out.flush()
}

/// Takes the one place where an advisor of this user listens.
fn listen() -> anyhow::Result<UnixListener> {
    let explain = |error: io::Error| {
        failure(
            "the advisor cannot listen",
            error,
            "set XDG_RUNTIME_DIR to a directory of your own",
        )
    };
    let (_lock, directory) = job::lock().map_err(explain)?;
    let path = directory.join(job::ADVISOR);
    if UnixStream::connect(&path).is_ok() {
        let what = "there is an advisor on this node already";
        return Err(failure(
            what,
            format!("it listens on {}", path.display()),
            "use that one, or end it first",
        ));
    }
    let _ = std::fs::remove_file(&path);
    UnixListener::bind(&path).map_err(explain)
}
