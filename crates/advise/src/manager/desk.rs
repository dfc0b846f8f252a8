//! Where those register who started a command: the run is over when the last of them has left.
//!
//! A *guest* is a `presagio run` that supervises one command; the ranks of a job on one node are guests of one
//! manager. They talk over a Unix socket:
//!
//! ```text
//! guest    hello RANKS     I take part, and so many of us are expected on this node (0: nobody knows)
//! manager  arena ADDRESS   what the command's environment has to say
//! guest    done            the command has ended
//! manager  text            empty, or, for whoever leaves last, the summary; then the end of the stream
//! ```
//!
//! A guest whose stream ends without `done` was killed; that counts as leaving. The desk has a thread of its own. When the
//! run is over it rings a bell, because the manager may be asleep.

use super::{Host, threads};
use presagio_arena::{Client, Kind, Record, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long ranks that are expected are waited for when all others have left.
const LINGER: Duration = Duration::from_secs(2);
/// A line of a guest is shorter.
const LINE_MAX: usize = 1024;
/// Guests at the same time; more are turned away, and run without a summary of their own.
const GUESTS_MAX: usize = 4096;

/// Wakes the manager: it is a program like any other, that writes a record which says nothing.
struct Bell {
    client: Client,
    writer: Writer,
}

impl Bell {
    fn new(address: &str) -> Option<Bell> {
        let path = CString::new(address).ok()?;
        let client = Client::attach(&path, [&b"presagio"[..]].into_iter()).ok()?;
        let mut writer = Writer::new();
        writer.open(&client).then_some(Bell { client, writer })
    }

    fn ring(&mut self) {
        self.writer.push(&self.client, &Record::new(Kind::Gap));
    }
}

/// The manager's side: see the module's header.
pub struct Desk {
    shared: Arc<Shared>,
    address: String,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// Whether the manager knows that it is over.
    heard: AtomicBool,
    /// Those who wait for the summary.
    last: Mutex<Vec<UnixStream>>,
}

/// Who comes, and when the run is over.
pub struct Doors {
    /// Guests that are there from the beginning.
    pub guests: Vec<UnixStream>,
    /// Where others come in.
    pub listener: Option<UnixListener>,
    /// The run is never over: guests come and go.
    pub standing: bool,
}

impl Desk {
    /// Opens the desk of a manager whose arena is at this address; to be called by the thread that it runs on.
    pub fn open(doors: Doors, address: String) -> io::Result<Desk> {
        let shared = Arc::new(Shared::default());
        let desk = Desk {
            shared: shared.clone(),
            address: address.clone(),
        };
        if let Some(listener) = &doors.listener {
            listener.set_nonblocking(true)?;
        }
        let mut service = Service {
            guests: Vec::new(),
            listener: doors.listener,
            standing: doors.standing,
            expected: 0,
            came: 0,
            is_begun: !doors.guests.is_empty(),
            idle_since: None,
            bell: None,
            manager: std::thread::current(),
            address,
            shared,
        };
        for guest in doors.guests {
            service.admit(guest)?;
        }
        // Who has said hello already gets its answer before there is a thread.
        service.listen();
        threads::spawn("desk", move || service.serve())?;
        Ok(desk)
    }

    /// Says that the run is over, whoever is still there.
    pub fn end(&self) {
        self.shared.over.store(true, SeqCst);
        if let Some(mut bell) = Bell::new(&self.address) {
            bell.ring();
        }
    }

    /// Whether the manager has taken notice that the run is over. One that does not is stuck.
    pub fn is_heard(&self) -> bool {
        self.shared.heard.load(SeqCst)
    }

    /// Hands the summary to who left last; `false` if nobody is there to take it.
    pub fn dismiss(&self, text: &str) -> bool {
        let mut last = lock(&self.shared.last);
        // One of them is enough; the others see the end of the stream.
        let mut taken = false;
        for guest in last.drain(..) {
            let _ = guest.set_nonblocking(false);
            taken = taken || (&guest).write_all(text.as_bytes()).is_ok();
        }
        taken
    }
}

impl Host for Desk {
    /// Whether the last guest has left.
    fn is_over(&self) -> bool {
        let is_over = self.shared.over.load(SeqCst);
        self.shared.heard.fetch_or(is_over, SeqCst);
        is_over
    }

    /// Whoever ends the run need not wait for the end of this.
    fn rest(&self, time: Duration) {
        std::thread::park_timeout(time);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Guest {
    stream: UnixStream,
    line: Vec<u8>,
    /// Whether it said hello.
    is_in: bool,
    is_done: bool,
}

/// What the desk's thread keeps.
struct Service {
    guests: Vec<Guest>,
    listener: Option<UnixListener>,
    standing: bool,
    expected: u32,
    came: u32,
    /// Whether there was anybody at all.
    is_begun: bool,
    /// Since when all that came are done.
    idle_since: Option<Instant>,
    bell: Option<Bell>,
    /// The thread that works until the run is over.
    manager: Thread,
    address: String,
    shared: Arc<Shared>,
}

impl Service {
    fn serve(mut self) {
        // Not before: guests wait for their answers.
        self.bell = Bell::new(&self.address);
        loop {
            let waited = self.wait().is_ok();
            if !self.let_in() || !waited {
                std::thread::sleep(Duration::from_millis(10));
            }
            self.listen();
            if !self.standing && self.is_over() {
                return self.close();
            }
        }
    }

    /// Waits until somebody says something.
    fn wait(&self) -> rustix::io::Result<usize> {
        let mut doors: Vec<PollFd<'_>> = Vec::new();
        if let Some(listener) = &self.listener {
            doors.push(PollFd::new(listener, PollFlags::IN));
        }
        let talking = self.guests.iter().filter(|g| !g.is_done);
        doors.extend(talking.map(|guest| PollFd::new(&guest.stream, PollFlags::IN)));
        let soon = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        let patience = self.idle_since.map(|_| &soon);
        poll(&mut doors, patience)
    }

    /// Lets all in who wait; `false` if they have to wait on, for want of descriptors: they would be heard again at once.
    fn let_in(&mut self) -> bool {
        loop {
            match self.listener.as_ref().map(UnixListener::accept) {
                None => return true,
                Some(Ok((stream, _))) if self.guests.len() < GUESTS_MAX => {
                    let _ = self.admit(stream);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    fn admit(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.guests.push(Guest {
            stream,
            line: Vec::new(),
            is_in: false,
            is_done: false,
        });
        Ok(())
    }

    /// Hears what guests have to say; those who left are no longer there.
    fn listen(&mut self) {
        let mut guests = std::mem::take(&mut self.guests);
        guests.retain_mut(|guest| guest.is_done || self.hear(guest));
        self.guests = guests;
        if self.standing || self.guests.iter().any(|g| !g.is_done) {
            // Others go on: who is done may go.
            self.guests.retain(|g| !g.is_done);
            self.idle_since = None;
        } else if self.is_begun && self.idle_since.is_none() {
            self.idle_since = Some(Instant::now());
        }
    }

    /// Whether the guest is still there.
    fn hear(&mut self, guest: &mut Guest) -> bool {
        let mut bytes = [0; LINE_MAX];
        let count = match guest.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        guest.line.extend(&bytes[..count]);
        while let Some(end) = guest.line.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = guest.line.drain(..=end).collect();
            self.answer(guest, String::from_utf8_lossy(&line).trim_end());
        }
        guest.line.len() < LINE_MAX
    }

    fn answer(&mut self, guest: &mut Guest, line: &str) {
        if let Some(ranks) = line.strip_prefix("hello ") {
            self.expected = self.expected.max(ranks.parse().unwrap_or(0));
            self.came += u32::from(!guest.is_in);
            self.is_begun = true;
            guest.is_in = true;
            // With one call: each would wake the guest.
            let answer = format!("arena {}\n", self.address);
            let _ = guest.stream.write_all(answer.as_bytes());
        }
        guest.is_done |= line == "done";
    }

    /// Whether all have left, and all that were expected had come or were waited for.
    fn is_over(&self) -> bool {
        let since = self.idle_since;
        since.is_some_and(|since| self.came >= self.expected || since.elapsed() > LINGER)
    }

    fn close(mut self) {
        let waiting = self.guests.drain(..).map(|guest| guest.stream);
        // The last one is the one that is told.
        let mut waiting: Vec<UnixStream> = waiting.collect();
        waiting.reverse();
        *lock(&self.shared.last) = waiting;
        self.shared.over.store(true, SeqCst);
        if let Some(bell) = &mut self.bell {
            bell.ring();
        }
        self.manager.unpark();
    }
}

/// A guest's side of the desk.
#[derive(Debug)]
pub struct Ticket {
    stream: UnixStream,
    /// What the command's environment has to say about the arena.
    pub address: String,
}

impl Ticket {
    /// Registers at a desk; `ranks` are expected on this node, 0 if nobody knows.
    pub fn get(mut stream: UnixStream, ranks: u32) -> io::Result<Ticket> {
        stream.write_all(format!("hello {ranks}\n").as_bytes())?;
        let line = read_line(&mut stream)?;
        match line.strip_prefix("arena ") {
            Some(address) => Ok(Ticket {
                stream,
                address: address.to_owned(),
            }),
            // A manager that could not begin says why.
            None => Err(io::Error::other(line)),
        }
    }

    /// Leaves; the stream from which the summary can be read if this was the last guest.
    pub fn leave(mut self) -> io::Result<UnixStream> {
        self.stream.write_all(b"done\n")?;
        Ok(self.stream)
    }
}

/// The first line of what a manager says. Before it is asked for more, it says no more.
fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut bytes = [0; LINE_MAX];
    let mut len = 0;
    while len < LINE_MAX && !bytes[..len].contains(&b'\n') {
        match stream.read(&mut bytes[len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => len += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let line = bytes[..len].split(|byte| *byte == b'\n').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    Ok(line.trim_end().to_owned())
}

/// Whether there is still an arena at this address. A number that was given to another process by now leads elsewhere.
pub fn answers(address: &str) -> bool {
    let leads_to = std::fs::read_link(address).ok();
    let is_arena = |path: std::path::PathBuf| path.to_string_lossy().contains("presagio-arena");
    address.starts_with("/proc/") && leads_to.is_some_and(is_arena)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    fn desk(guests: Vec<UnixStream>) -> Desk {
        let doors = Doors {
            guests,
            listener: None,
            standing: false,
        };
        Desk::open(doors, "/nowhere".into()).unwrap()
    }

    fn wait_until_over(desk: &Desk) {
        while !desk.is_over() {
            std::thread::yield_now();
        }
    }

    fn read(mut stream: UnixStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_last_guest_gets_the_summary_and_the_others_nothing() {
        let ((a, a_desk), (b, b_desk)) = (pair(), pair());
        let desk = desk(vec![a_desk, b_desk]);
        let a = Ticket::get(a, 0).unwrap();
        let b = Ticket::get(b, 0).unwrap();
        assert_eq!(a.address, "/nowhere");
        assert_eq!(read(a.leave().unwrap()), "");
        assert!(!desk.is_over());
        let b = b.leave().unwrap();
        wait_until_over(&desk);
        assert!(desk.dismiss("all is well"));
        drop(desk);
        assert_eq!(read(b), "all is well");
    }

    #[test]
    fn an_answer_that_comes_in_pieces_is_put_together() {
        let (guest, mut manager) = pair();
        let pieces = std::thread::spawn(move || {
            for piece in ["are", "na /proc/1/f", "d/3", "\n"] {
                manager.write_all(piece.as_bytes()).unwrap();
                std::thread::yield_now();
            }
            manager
        });
        assert_eq!(Ticket::get(guest, 0).unwrap().address, "/proc/1/fd/3");
        drop(pieces.join().unwrap());
        let (guest, manager) = pair();
        (&manager).write_all(b"no room\nat all\n").unwrap();
        let error = Ticket::get(guest, 0).unwrap_err();
        assert_eq!(error.to_string(), "no room");
        let (guest, manager) = pair();
        drop(manager);
        assert!(Ticket::get(guest, 0).is_err());
    }

    #[test]
    fn a_guest_that_was_killed_has_left() {
        let (a, a_desk) = pair();
        let desk = desk(vec![a_desk]);
        drop(Ticket::get(a, 0).unwrap());
        wait_until_over(&desk);
        assert!(!desk.dismiss("nobody hears this"));
    }

    #[test]
    fn ranks_that_are_expected_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("desk");
        let doors = Doors {
            guests: Vec::new(),
            listener: Some(UnixListener::bind(&path).unwrap()),
            standing: false,
        };
        let desk = Desk::open(doors, "/nowhere".into()).unwrap();
        let connect = || Ticket::get(UnixStream::connect(&path).unwrap(), 2).unwrap();
        let first = connect().leave().unwrap();
        let second = connect();
        assert_eq!(read(first), "", "another one goes on");
        let second = second.leave().unwrap();
        wait_until_over(&desk);
        desk.dismiss("both");
        assert_eq!(read(second), "both");
    }

    #[test]
    fn nonsense_at_the_desk_is_shown_the_door() {
        let (mut a, a_desk) = pair();
        let (b, b_desk) = pair();
        let _desk = desk(vec![a_desk, b_desk]);
        let _b = Ticket::get(b, 0).unwrap();
        a.write_all(&[b'x'; 4 * LINE_MAX]).unwrap();
        assert_eq!(a.read(&mut [0; 1]).unwrap_or(0), 0);
    }

    #[test]
    fn a_door_that_cannot_be_opened_is_no_reason_to_try_all_the_time() {
        let service = |listener: UnixListener| Service {
            guests: Vec::new(),
            listener: Some(listener),
            standing: true,
            expected: 0,
            came: 0,
            is_begun: false,
            idle_since: None,
            bell: None,
            manager: std::thread::current(),
            address: String::new(),
            shared: Arc::default(),
        };
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("desk")).unwrap();
        listener.set_nonblocking(true).unwrap();
        assert!(service(listener).let_in(), "nobody is there");
        let no_door = std::os::fd::OwnedFd::from(pair().0);
        assert!(!service(no_door.into()).let_in());
    }

    #[test]
    fn who_ends_a_run_can_tell_whether_the_manager_noticed() {
        let desk = desk(Vec::new());
        assert!(!desk.is_over() && !desk.is_heard());
        desk.end();
        assert!(!desk.is_heard(), "it is busy");
        assert!(desk.is_over() && desk.is_heard());
    }

    #[test]
    fn an_address_without_a_manager_does_not_answer() {
        assert!(!answers("/proc/1/fd/999999"));
        assert!(!answers("/etc/passwd"));
    }
}
