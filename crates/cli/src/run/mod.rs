//! `presagio run`: a command, watched and advised.
//!
//! Three processes work together. This one stays in front as a *supervisor* ([`supervise`]): it passes signals on to the
//! command and ends as the command ended, after it has shown the summary. (If it became the command itself, the shell's
//! prompt would be back, and the next line of a script would run, before summary and trace were complete.) The
//! *command* gets the library and the manager's address through its environment. The *manager* ([`manager`]) is a fork of
//! this process in a session of its own, where signals for the command do not reach it.
//!
//! With `--in-process` there is no manager beside the command, but one inside of it ([`inside`]).
//!
//! With `--forward`, the supervisor also keeps the way to the I/O nodes ([`mod@forward`]).
//!
//! Ranks of one job on one node share a manager ([`job`]); a `presagio run` within another one simply becomes its
//! command.

mod forward;
mod inherited;
mod inside;
pub mod job;
pub mod library;
pub mod manager;
mod names;
mod place;
pub mod reported;
pub mod settings;
mod supervise;

use crate::failure::{failure, one_line};
use forward::Forward;
use job::Job;
use library::Preload;
use presagio_advise::manager::desk::{Ticket, answers};
use presagio_advise::manager::is_static;
use settings::{Plan, Settings};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run a command so that it waits less for its I/O, and see what it did
///
/// The command runs unchanged: same output, exit status, signals, terminal. Its reads and writes are watched from
/// inside (a preloaded library), learned and predicted by a manager process beside it, and what will be read is
/// loaded ahead where that pays. Programs that it starts are followed, and so are MPI ranks: both
/// `presagio run -- mpirun -n 4 app` and `mpirun -n 4 presagio run -- app` give one summary per node.
///
/// At the end a summary on stderr says what was done, how well it was predicted, what was gained, what could not
/// be seen, and what was decided and why. What was learned is kept for the next run of the same command.
///
/// Statically linked programs, io_uring, system calls that a program makes itself, and pages of mapped files
/// cannot be seen; the summary says so where it was noticed.
///
/// With --forward, what lies under a prefix is served by I/O nodes (`presagio ionode`): no mount, no root. The command
/// sees these files as if they lay there. Programs that are linked statically or make system calls themselves do not
/// see them: for those there is `presagio mount`. With --forward-direct, they are served from a local mount of the
/// export while no node can be reached. Where a node asks who you are, a credential of MUNGE is made; with
/// the --tls options, a certificate says it.
///
/// Exit status: the command's; if it was killed by a signal, so is this. 125 if presagio itself could not do
/// what was asked, 126 if the command cannot be executed, 127 if it was not found.
///
/// PRESAGIO=off in the environment turns everything off, and so does the file /etc/presagio/off.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio run -- ./app input.dat             less waiting, and a summary
  presagio run --observe --trace t.ptrace -- ./app   only watch, and record
  presagio trace info t.ptrace                what was recorded?
  presagio run --config hints.json -- ./app   hints by hand, as for MERCURY
  presagio run --include '*.h5' -- python3 train.py
  presagio run --json run.json --quiet -- ./app   a summary for a script
  presagio run --report app.html -- ./app     a page that shows all of it
  presagio run --in-process -- ./app          threads inside, no process
  mpirun -n 4 presagio run -- ./app           one summary for all four
  presagio run --forward /data=tcp:io1:5640,tcp:io2:5640 -- ./app
                                              /data is what they export
  presagio run --off --forward /data=unix:/run/node.sock -- ls /data
                                              only forward, watch nothing")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    forward: forward::Args,
    /// Run the command as if presagio were not there, but for what --forward says
    #[arg(long, conflicts_with_all = ["observe", "advise", "trace", "config", "json", "report", "in_process"])]
    off: bool,
    /// Run the manager on a thread inside the command, where there may be no second process. With ranks, put
    /// `presagio run` before the launcher, or each has a manager and a summary of its own
    #[arg(long)]
    in_process: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// When presagio itself is what failed, as env, nice and timeout say it.
const FAILED: u8 = 125;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let code = start(args).unwrap_or_else(|error| {
        supervise::say(&format!("presagio: {}\n", one_line(&error)));
        ExitCode::from(FAILED)
    });
    Ok(code)
}

fn start(args: &Args) -> anyhow::Result<ExitCode> {
    if is_switched_off() {
        args.forward.say_switched_off();
        return Ok(supervise::become_it(&args.command));
    }
    let forward = args.forward.prepare()?;
    if args.off && forward.is_none() {
        return Ok(supervise::become_it(&args.command));
    }
    let preload = Preload::find()?;
    if args.off {
        return unwatched(args, &preload, forward);
    }
    if let Some(address) = outer_manager() {
        if !args.settings.says_nothing() {
            args.settings.say_unused("another presagio run around it");
        }
        preload.enter(&address);
        return unwatched(args, &preload, forward);
    }
    if args.in_process {
        refuse_shared_files(args)?;
        let mut plan = plan(args, forward.as_ref())?;
        plan.make_absolute()?;
        return inside::run(&args.command, &preload, plan, forward);
    }
    match register(args, forward.as_ref())? {
        Some(ticket) => {
            preload.enter(OsStr::new(&ticket.address));
            forward::enter(forward.as_ref(), &preload)?;
            let leave = || supervise::leave(ticket);
            Ok(supervise::supervise(&args.command, forward, leave))
        }
        None => unwatched(args, &preload, forward),
    }
}

/// Runs the command without a manager of our own. Where something is forwarded, this process stays for that.
fn unwatched(args: &Args, preload: &Preload, forward: Option<Forward>) -> anyhow::Result<ExitCode> {
    forward::enter(forward.as_ref(), preload)?;
    Ok(match forward {
        Some(_) => supervise::supervise(&args.command, forward, String::new),
        None => supervise::become_it(&args.command),
    })
}

/// Ranks with a manager each would write the same files.
fn refuse_shared_files(args: &Args) -> anyhow::Result<()> {
    if Job::of_environment().is_some() && args.settings.names_files() {
        let what = "ranks that each have a manager inside cannot share a trace or summary";
        let cause = "each would replace that of the others";
        let advice = "put `presagio run` before the launcher, or leave --in-process out";
        return Err(failure(what, cause, advice));
    }
    Ok(())
}

/// The same switches that the library looks at.
fn is_switched_off() -> bool {
    let variable = std::env::var_os(presagio_arena::SWITCH);
    let site = OsStr::new(presagio_arena::SITE_SWITCH.to_str().unwrap_or_default());
    variable.is_some_and(|v| v == "off") || Path::new(site).exists()
}

/// The manager that already watches us.
fn outer_manager() -> Option<OsString> {
    let address = std::env::var_os(presagio_arena::VARIABLE)?;
    answers(address.to_str()?).then_some(address)
}

/// Finds a manager to register with, or starts one. `None`: there can be none, and the command runs without.
fn register(args: &Args, forward: Option<&Forward>) -> anyhow::Result<Option<Ticket>> {
    // One that stands does not know this command's way to the nodes.
    if args.settings.is_usual()
        && forward.is_none()
        && let Some(ticket) = job::standing_advisor()
    {
        return Ok(Some(ticket));
    }
    let job = Job::of_environment();
    let start = |listener| {
        let plan = plan(args, forward)?;
        Ok(manager::start(
            plan,
            listener,
            job.as_ref().map_or(0, |job| job.ranks),
        ))
    };
    let started = match &job {
        None => start(None)?,
        Some(job) => {
            let say = || args.settings.say_unused("the first of this job");
            job.join_or_start(&args.settings.text(), say, start)?
        }
    };
    match started {
        Ok(ticket) => Ok(Some(ticket)),
        Err(error) => {
            // Never make it worse: the command is what the user wants most.
            let text = format!(
                "presagio: the manager could not begin: {error}; the command runs without it\n"
            );
            supervise::say(&text);
            Ok(None)
        }
    }
}

/// What the manager is to do, as far as it can go wrong because of what the user asked for.
fn plan(args: &Args, forward: Option<&Forward>) -> anyhow::Result<Plan> {
    let mut plan = args.settings.plan()?;
    let words = args.command.iter().cloned();
    plan.orders.command = words.map(OsStringExt::into_vec).collect();
    plan.orders.forward = forward.map(|forward| forward.value().into_vec());
    plan.known.notes.extend(args.forward.notes());
    let program = find_program(&args.command[0]);
    if program.as_deref().and_then(is_static) == Some(true) {
        let name = args.command[0].to_string_lossy();
        let blind = format!(
            "anything that {name} does itself: it is linked statically, so that no library can be preloaded"
        );
        plan.known.blind.push(blind);
    }
    Ok(plan)
}

/// Where the shell would find a program.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let places = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&places).map(|place| place.join(path));
    found.find(|program| program.is_file())
}
