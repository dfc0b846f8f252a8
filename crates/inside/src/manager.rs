//! The manager's thread, from its first moment to its last.

use crate::account::{Account, End};
use crate::{life, table};
use presagio_advise::config::Config;
use presagio_advise::manager::{Host, Manager, Orders, Summary, each_begins_with};
use presagio_core::Nanos;
use std::cell::Cell;
use std::ffi::{OsString, c_void};
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two times that the summary is put into its file: at first, and when the run is long.
const REFRESH_MIN: Duration = Duration::from_millis(5);
const REFRESH_MAX: Duration = Duration::from_secs(1);
/// An exec that was said to come has come by then, or never will.
const EXEC_MAX: Duration = Duration::from_secs(10);
/// Names that are tried for the trace of a program that another one became.
const TRACES_MAX: u32 = 1000;

/// What the thread runs. Nothing gets out of it.
pub extern "C" fn manage(_: *mut c_void) -> *mut c_void {
    let _ = catch_unwind(AssertUnwindSafe(work));
    life::set_over();
    std::ptr::null_mut()
}

/// `None` if there can be no manager here.
fn work() -> Option<()> {
    life::begin_thread();
    if !table::leave() {
        return None;
    }
    // Its message would go nowhere; it would be put together with what may be broken.
    set_hook(Box::new(|_| ()));
    each_begins_with(life::begin_thread);
    // SAFETY: a name that ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"presagio".as_ptr()) };
    let directory = life::directory()?;
    let orders = Orders::from_bytes(&std::fs::read(directory.join("orders")).ok()?);
    let account = Account::open(&directory).ok()?;
    let begun = begin(orders, account.number);
    let manager = begun.inspect_err(|error| account.fail(error)).ok()?;
    if !life::set_working(&manager.address(), manager.waker()) {
        return None;
    }
    let inside = Inside {
        account,
        refreshed: Cell::new(Instant::now()),
        refresh: Cell::new(Duration::ZERO),
        asked: Cell::new(0),
        execs: Cell::new(None),
    };
    let summary = manager.run(&inside);
    inside.account.write(End::Done, &summary);
    Some(())
}

fn begin(mut orders: Orders, number: u32) -> io::Result<Manager> {
    let config = orders.config.as_deref().map(Config::load).transpose();
    let config = config.map_err(io::Error::other)?;
    let trace = match orders.trace.take() {
        Some(path) => {
            let (path, file) = open_trace(&path, number)?;
            orders.trace = Some(path);
            Some(file)
        }
        None => None,
    };
    orders.begin(config, trace)
}

/// The trace. The first manager of a run takes the name that was asked for; others add their number, and
/// `presagio run` joins them.
fn open_trace(path: &Path, number: u32) -> io::Result<(PathBuf, File)> {
    if number == 1 {
        let file = File::options().write(true).open(path)?;
        return Ok((path.to_owned(), file));
    }
    let numbered = |number: u32| {
        let mut name = OsString::from(path);
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for path in (number..number + TRACES_MAX).map(numbered) {
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The program, as the manager sees it.
struct Inside {
    account: Account,
    refreshed: Cell<Instant>,
    refresh: Cell<Duration>,
    /// The last question that was heard.
    asked: Cell<u32>,
    /// When the last exec was said to come.
    execs: Cell<Option<Instant>>,
}

impl Inside {
    fn is_due(&self) -> bool {
        self.refreshed.get().elapsed() >= self.refresh.get()
    }
}

impl Host for Inside {
    fn is_over(&self) -> bool {
        life::is_end_wanted() || self.is_due() && life::is_main_thread_gone()
    }

    fn wants_summary(&self) -> bool {
        self.asked.set(life::asked());
        self.asked.get() != life::answered() || self.is_due()
    }

    fn take_summary(&self, summary: &Summary) {
        if self.asked.get() != life::answered() {
            self.execs.set(Some(Instant::now()));
        }
        // Where it still works after so long, the exec has failed.
        let execs = self.execs.get().filter(|t| t.elapsed() < EXEC_MAX);
        let end = execs.map_or(End::Working, |_| End::Exec);
        self.account.write(end, summary);
        self.refreshed.set(Instant::now());
        let longer = self.refresh.get() * 2;
        self.refresh.set(longer.clamp(REFRESH_MIN, REFRESH_MAX));
        life::answer(self.asked.get());
    }

    /// Of this thread: the process is the program.
    fn processor_time(&self) -> Nanos {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes the time.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}
