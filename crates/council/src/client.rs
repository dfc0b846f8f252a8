//! An I/O node's line to the council. Whoever uses it never waits: announcements are left here, decisions are found here.
//!
//! Two threads have the connection, one for each direction; when it breaks, the one that receives connects anew. Of what
//! taught something, each announcement is kept until the council says that it will not forget it, and is said again after a
//! connection was lost; past a bound the oldest are given up.

use crate::figures::Figures;
use crate::wire::{Announcement, Decision, FRAME_MAX, Hello, Malformed, Message};
use presagio_ninep::client::{Options, Socket, Stream, TlsIdentity, TlsSocket};
use presagio_ninep::session::munge;
use presagio_ninep::{Address, Frames};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Announcements that are kept for a council that may have missed them.
const UNKEPT_MAX: usize = 256;

/// How long connecting, an answer to a hello, and the sending of one message may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait before another attempt: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How often whoever receives looks whether all is over.
const LOOK: Duration = Duration::from_millis(500);

/// How the node proves who it is.
#[derive(Clone, Debug, Default)]
pub enum Proof {
    /// The kernel tells the council, or the council trusts its network.
    #[default]
    Kernel,
    /// By a MUNGE credential, of the daemon at this socket or at the usual one.
    Munge(Option<PathBuf>),
    /// By a certificate, over TLS.
    Tls(TlsIdentity),
}

/// To whom, as whom.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where the council listens.
    pub council: Address,
    /// What the node is called.
    pub name: String,
    /// Which life of the node it is: another number each time.
    pub epoch: u64,
    /// How it proves who it is.
    pub proof: Proof,
}

/// What there is to say about the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineState {
    /// Whether the council listens.
    pub connected: bool,
    /// Why not, the last time that it did not.
    pub trouble: Option<String>,
    /// Announcements that were sent.
    pub sent: u64,
    /// Decisions that came.
    pub decisions: u64,
    /// Announcements that the council may have to hear again.
    pub unkept: usize,
    /// Whether the council wants patterns.
    pub patterns: bool,
}

#[derive(Default)]
struct State {
    stream: Option<Arc<dyn Stream>>,
    /// The newest announcement, if it was not sent.
    waiting: Option<Announcement>,
    /// To be said again, on the connection of now.
    again: VecDeque<Announcement>,
    unkept: VecDeque<Announcement>,
    /// What the node does now, if that was not sent: for people, so only the newest counts.
    figures: Option<Figures>,
    decision: Option<Decision>,
    line: LineState,
    ends: bool,
}

impl State {
    fn is_unkept(&self, sequence: u64) -> bool {
        let unkept = self.unkept.iter().rev();
        unkept.take(UNKEPT_MAX).any(|it| it.sequence == sequence)
    }
}

struct Desk {
    config: ClientConfig,
    state: Mutex<State>,
    changed: Condvar,
    /// Can be read when a decision has come.
    came: OwnedFd,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's header. It ends when it is dropped; its threads, which have nothing but the desk, as soon as they see that.
pub struct Client {
    desk: Arc<Desk>,
}

impl Client {
    /// Begins to connect, and goes on doing so.
    pub fn start(config: ClientConfig) -> io::Result<Client> {
        let desk = Arc::new(Desk {
            config,
            state: Mutex::default(),
            changed: Condvar::new(),
            came: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let spawn = |name: &str, work: fn(&Desk)| {
            let desk = desk.clone();
            let builder = std::thread::Builder::new().name(name.to_owned());
            builder.spawn(move || work(&desk))
        };
        spawn("presagio-hears", hear)?;
        spawn("presagio-tells", tell)?;
        Ok(Client { desk })
    }

    /// Tells the council, as soon as that can be; one that was not sent yet is replaced.
    pub fn announce(&self, announcement: Announcement) {
        let mut state = self.desk.state();
        if announcement.settled && announcement.observation.reward().is_some() {
            state.unkept.push_back(Announcement {
                again: true,
                ..announcement.clone()
            });
            if state.unkept.len() > UNKEPT_MAX {
                state.unkept.pop_front();
            }
        }
        let replaced = state.waiting.replace(announcement);
        // It is too old to be answered, and still teaches something. Without a connection all of that is looked for anew.
        if let Some(old) = replaced.filter(|old| state.is_unkept(old.sequence))
            && state.again.len() < UNKEPT_MAX
        {
            state.again.push_back(Announcement { again: true, ..old });
        }
        drop(state);
        self.desk.changed.notify_all();
    }

    /// Shows the council what the node does now, as soon as that can be.
    pub fn show(&self, figures: Figures) {
        self.desk.state().figures = Some(figures);
        self.desk.changed.notify_all();
    }

    /// The newest decision, if none was taken since it came.
    pub fn take(&self) -> Option<Decision> {
        let mut number = [0; 8];
        // It may not be set; what counts is whether a decision is there.
        let _ = rustix::io::read(&self.desk.came, &mut number);
        self.desk.state().decision.take()
    }

    /// What can be read when a decision has come: for those who wait for other things, too.
    pub fn came(&self) -> BorrowedFd<'_> {
        self.desk.came.as_fd()
    }

    /// How the line is.
    pub fn state(&self) -> LineState {
        let state = self.desk.state();
        LineState {
            unkept: state.unkept.len(),
            ..state.line.clone()
        }
    }

    /// With whom it speaks.
    pub fn council(&self) -> &Address {
        &self.desk.config.council
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut state = self.desk.state();
        state.ends = true;
        if let Some(stream) = &state.stream {
            stream.close();
        }
        drop(state);
        // Nobody waits for the threads: they may be connecting, which takes as long as names are looked up and credentials made.
        self.desk.changed.notify_all();
    }
}

/// Connects and receives, until the end.
fn hear(desk: &Desk) {
    let mut retry = RETRY.0;
    loop {
        let trouble = match open(desk) {
            Ok((stream, frames)) => {
                retry = RETRY.0;
                listen(desk, &*stream, frames)
            }
            Err(trouble) => trouble,
        };
        let mut state = desk.state();
        state.stream = None;
        let was_known = state.line.trouble.as_deref() == Some(&*trouble);
        state.line.connected = false;
        state.line.trouble = Some(trouble.clone());
        if state.ends {
            return;
        }
        if !was_known {
            tracing::warn!("no council at {}: {trouble}", desk.config.council);
        }
        let until = Instant::now() + retry.mul_f64(1.0 + jitter(desk));
        retry = (2 * retry).min(RETRY.1);
        while !state.ends && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let waited = desk.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.ends {
            return;
        }
    }
}

/// Nodes that lost the same council do not come back at the same moment: a number from 0 to 1 that each has for itself.
fn jitter(desk: &Desk) -> f64 {
    let mixed = desk.config.epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    mixed as f64 / f64::from(u32::MAX)
}

type Opened = (Arc<dyn Stream>, Frames);

/// A connection on which the council listens.
fn open(desk: &Desk) -> Result<Opened, String> {
    let text = |error: io::Error| error.to_string();
    let stream = dial(&desk.config).map_err(text)?;
    if desk.state().ends {
        return Err("it is not needed any more".to_owned());
    }
    let credential = match &desk.config.proof {
        Proof::Munge(socket) => munge::credential(socket.as_deref()).map_err(text)?,
        Proof::Kernel | Proof::Tls(_) => Vec::new(),
    };
    let hello = Message::Hello(Hello {
        epoch: desk.config.epoch,
        name: desk.config.name.clone(),
        credential,
    });
    send(&*stream, &hello).map_err(text)?;
    let mut frames = Frames::new(FRAME_MAX);
    let deadline = Instant::now() + PATIENCE;
    let (kept, patterns) = loop {
        match receive(&*stream, &mut frames, LOOK.min(PATIENCE))? {
            Some(Message::Welcome { kept, patterns }) => break (kept, patterns),
            Some(Message::Refusal { why }) => return Err(format!("it refuses: {why}")),
            Some(_) => return Err("it answers a hello with something else".to_owned()),
            None if Instant::now() > deadline => return Err("it does not answer".to_owned()),
            None if desk.state().ends => return Err("it is not needed any more".to_owned()),
            None => {}
        }
    };
    let mut state = desk.state();
    // Whoever ended it has not seen this connection, and could not close it.
    if state.ends {
        return Err("it is not needed any more".to_owned());
    }
    forget(&mut state.unkept, kept);
    let newest = state.waiting.as_ref().map(|it| it.sequence);
    let missed = state.unkept.iter();
    state.again = missed
        .filter(|it| Some(it.sequence) != newest)
        .cloned()
        .collect();
    state.stream = Some(stream.clone());
    state.line.connected = true;
    state.line.patterns = patterns;
    if state.line.trouble.take().is_some() {
        tracing::info!("the council at {} listens", desk.config.council);
    }
    drop(state);
    desk.changed.notify_all();
    Ok((stream, frames))
}

fn dial(config: &ClientConfig) -> io::Result<Arc<dyn Stream>> {
    if let (Proof::Tls(identity), Address::Tcp(host)) = (&config.proof, &config.council) {
        let options = Options {
            connect_timeout: PATIENCE,
            ..Options::default()
        };
        return Ok(Arc::new(TlsSocket::connect(host, identity, &options)?));
    }
    let socket = config.council.dial(PATIENCE)?;
    Ok(Arc::new(Socket::new(socket)?))
}

fn forget(unkept: &mut VecDeque<Announcement>, kept: u64) {
    while unkept.front().is_some_and(|first| first.sequence <= kept) {
        unkept.pop_front();
    }
}

/// Takes decisions in until the connection is lost; says why.
fn listen(desk: &Desk, stream: &dyn Stream, mut frames: Frames) -> String {
    loop {
        let message = receive(stream, &mut frames, LOOK);
        let mut state = desk.state();
        match message {
            Ok(None) if !state.ends => {}
            Ok(None) => return String::new(),
            Ok(Some(Message::Decision(decision))) => {
                forget(&mut state.unkept, decision.kept);
                state.decision = Some(decision);
                state.line.decisions += 1;
                // It cannot fail but by being set already.
                let _ = rustix::io::write(&desk.came, &1_u64.to_ne_bytes());
            }
            Ok(Some(Message::Refusal { why })) => return format!("it refuses: {why}"),
            Ok(Some(_)) => return "it says what only nodes say".to_owned(),
            Err(trouble) => return trouble,
        }
    }
}

/// The next message, if one comes in time.
fn receive(
    stream: &dyn Stream,
    frames: &mut Frames,
    patience: Duration,
) -> Result<Option<Message>, String> {
    let deadline = Instant::now() + patience;
    loop {
        let next = frames.next().map_err(|_| Malformed::Frame);
        if let Some(frame) = next.map_err(|error| error.to_string())? {
            let message = Message::read(frame.kind.0, frame.body);
            return message.map(Some).map_err(|error| error.to_string());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match stream.recv(frames.space(), left) {
            Ok(0) => return Err("it has closed the connection".to_owned()),
            Ok(count) => frames.received(count),
            Err(error) if is_nothing_yet(&error) => {
                if left.is_zero() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn is_nothing_yet(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind())
}

/// Sends announcements, until the end.
fn tell(desk: &Desk) {
    let mut state = desk.state();
    loop {
        if state.ends {
            return;
        }
        let next = match &state.stream {
            Some(stream) => Some(stream.clone()).zip(next(&mut state)),
            None => None,
        };
        let Some((stream, message)) = next else {
            state = desk
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let is_announcement = matches!(message, Message::Announcement(_));
        let sent = send(&*stream, &message);
        state = desk.state();
        match sent {
            Ok(()) => state.line.sent += u64::from(is_announcement),
            Err(_) => {
                // Whoever receives finds out, and connects anew.
                stream.close();
                // It may have connected anew already.
                let is_this = |it: &Arc<dyn Stream>| Arc::ptr_eq(it, &stream);
                if state.stream.as_ref().is_some_and(is_this) {
                    state.stream = None;
                }
            }
        }
    }
}

/// First what the council may have missed, so that it hears things in their order.
fn next(state: &mut State) -> Option<Message> {
    let announcement = state.again.pop_front().or_else(|| state.waiting.take());
    let figures = || state.figures.take().map(Message::Figures);
    announcement.map(Message::Announcement).or_else(figures)
}

fn send(stream: &dyn Stream, message: &Message) -> io::Result<()> {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    let deadline = Instant::now() + PATIENCE;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match stream.send(&[IoSlice::new(rest)]) {
            Ok(count) => rest = &rest[count..],
            Err(error) if is_nothing_yet(&error) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                stream.wait(false, left)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    };

    fn socket() -> OwnedFd {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    /// It takes connections in as long as its queue has room, and never looks at one.
    #[test]
    fn who_ends_a_line_does_not_wait_for_a_council_that_swallows_connections() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("council");
        let address = SocketAddrUnix::new(&path).unwrap();
        let swallows = socket();
        bind(&swallows, &address).unwrap();
        listen(&swallows, 0).unwrap();
        let mut queue = vec![socket()];
        while connect(&queue[0], &address).is_ok() {
            queue.insert(0, socket());
        }
        let client = Client::start(ClientConfig {
            council: Address::Unix(path),
            name: "node".to_owned(),
            epoch: 1,
            proof: Proof::Kernel,
        });
        let desk = Arc::downgrade(&client.as_ref().unwrap().desk);
        drop(client);
        assert!(desk.strong_count() > 0, "a thread still connects");
        // And does not for ever.
        drop((swallows, queue));
        let late = Instant::now() + Duration::from_secs(60);
        while desk.strong_count() > 0 {
            assert!(Instant::now() < late, "the threads end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
