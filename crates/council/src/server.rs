//! The council's loop: one thread that has all connections, and never waits for any of them.
//!
//! Threads beside it do what may wait: one for each address takes connections in (asking the kernel whose they are), one asks
//! MUNGE. They leave what they found in a [`Mailbox`]. What a node announces is decided at once ([`Hall`]), and the answer
//! leaves in the same turn.
//!
//! *Whose is a name?* That of the node that has it, for as long as it announces. The same life of the node (its epoch, which
//! only it knows) may come anew at any time. Another one of that name is told so and waits: two of one name never throw each
//! other out. It has the name when the first has been silent for a few periods, as one is whose machine was lost.
//!
//! *Invariants.* What one connection sends or does not read ends that connection and no other. A turn takes at most
//! [`FRAMES_PER_TURN`] messages of each. Nothing here waits for a disk: the store and the log have threads of their own, which give
//! way to this one. The loop does not turn for what it cannot act upon.

use crate::connection::{Connection, End, Guest, Phase};
use crate::hall::Hall;
use crate::lobby::{Lobby, Whence};
use crate::wire::{Hello, Message};
use presagio_door::munge::Munge;
use presagio_door::{Address, Arrival, Door, DoorError, Listener, Proof, TcpProof};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Resource, getrlimit};
use rustix::time::Timespec;
use slab::Slab;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the events of the bell carry: no connection has such a place.
const BELL: u64 = u64::MAX;

/// Messages of one connection that are looked at before the others have their turn.
const FRAMES_PER_TURN: usize = 8;

/// Credentials that wait to be checked; who comes when there are more is refused.
const CHECKS_MAX: usize = 1024;

/// How often those that are held up are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_LEAST: Duration = Duration::from_millis(2);

/// Periods without an announcement after which another node of the same name, and user, takes its place; at least a second.
const LOST_PERIODS: u32 = 3;

/// Periods without an announcement after which a connection is taken for one that nobody has any more; at least a minute.
const GONE_PERIODS: u32 = 60;

/// Descriptors for all but connections.
const DESCRIPTORS: u64 = 64;

/// Who may come, and how that is known.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// How those who come over TCP prove who they are.
    pub tcp: TcpProof,
    /// Whether whoever can reach a TCP address is believed.
    pub trusted: bool,
    /// Users whose nodes are heard, besides root and the council's own.
    pub users: Vec<u32>,
    /// Connections at a time; no more than the system has descriptors.
    pub connections_max: usize,
    /// Nodes that one of these users may have at a time; or a machine, where users are not known.
    pub nodes_per_user_max: usize,
    /// How long a node may take to say who it is, or leave an answer unread.
    pub patience: Duration,
}

impl Default for DoorConfig {
    fn default() -> DoorConfig {
        DoorConfig {
            tcp: TcpProof::default(),
            trusted: false,
            users: Vec::new(),
            connections_max: 8192,
            nodes_per_user_max: 1024,
            patience: Duration::from_secs(10),
        }
    }
}

/// A council cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// An address cannot be listened to.
    #[error("cannot listen on {address}: {error}")]
    Address {
        /// Which.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// Those who come could not prove who they are.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// The system gives no threads or descriptors.
    #[error("the system does not give what a council needs: {0}")]
    System(#[from] io::Error),
}

/// What others leave for the loop.
#[derive(Default)]
struct Mail {
    arrivals: Vec<Arrival>,
    /// By place and number of a connection, what its credential proves.
    proofs: Vec<(usize, u64, Result<Proof, String>)>,
    ends: bool,
}

/// See [`Mail`].
pub struct Mailbox {
    mail: Mutex<Mail>,
    bell: OwnedFd,
}

impl Mailbox {
    fn new() -> io::Result<Mailbox> {
        Ok(Mailbox {
            mail: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn post(&self, put: impl FnOnce(&mut Mail)) {
        put(&mut self.mail());
        // It cannot fail but by being rung already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Mail {
        let mut number = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut number);
        std::mem::take(&mut *self.mail())
    }
}

/// A council that listens. It ends when it is dropped.
pub struct Server {
    addresses: Vec<Address>,
    mailbox: Arc<Mailbox>,
    ending: Arc<OwnedFd>,
    hall: Arc<Hall>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens on `addresses` for I/O nodes, which `hall` hears.
    pub fn start(
        hall: Hall,
        addresses: &[Address],
        config: DoorConfig,
    ) -> Result<Server, ListenError> {
        // Who may come is decided by who it is: sockets are for all.
        let door = Door::new(&config.tcp, config.trusted, true)?;
        let bind = |address: &Address| {
            Listener::bind(address, &door).map_err(|error| ListenError::Address {
                address: address.clone(),
                error,
            })
        };
        let listeners: Vec<Listener> = addresses.iter().map(bind).collect::<Result<_, _>>()?;
        let addresses: Vec<Address> = listeners
            .iter()
            .map(Listener::address)
            .collect::<io::Result<_>>()?;
        let ending =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let mut server = Server {
            addresses,
            mailbox: Arc::new(Mailbox::new()?),
            ending: Arc::new(ending),
            hall: Arc::new(hall),
            threads: Vec::new(),
        };
        server.start_threads(listeners, config, door.munge())?;
        Ok(server)
    }

    fn start_threads(
        &mut self,
        listeners: Vec<Listener>,
        config: DoorConfig,
        munge: Option<Arc<Munge>>,
    ) -> io::Result<()> {
        let (send, receive) = sync_channel(CHECKS_MAX);
        let mailbox = self.mailbox.clone();
        if let Some(munge) = munge {
            self.spawn("presagio-munge", move || check(&munge, &receive, &mailbox))?;
        }
        let turner = Turner::new(self.hall.clone(), self.mailbox.clone(), config, send)?;
        self.spawn("presagio-council", move || turner.run())?;
        for listener in listeners {
            let (mailbox, ending) = (self.mailbox.clone(), self.ending.clone());
            self.spawn("presagio-listen", move || {
                listen(&listener, &mailbox, &ending)
            })?;
        }
        Ok(())
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let builder = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(builder.spawn(work)?);
        Ok(())
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// What it knows and decides.
    pub fn hall(&self) -> &Arc<Hall> {
        &self.hall
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.ending, &1_u64.to_ne_bytes());
        self.mailbox.post(|mail| mail.ends = true);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        // Whoever else looks at the hall: what was decided is explained when the server has ended.
        self.hall.catch_up();
    }
}

/// A credential that is to be checked.
struct Claim {
    place: usize,
    number: u64,
    credential: Vec<u8>,
}

fn check(munge: &Munge, claims: &Receiver<Claim>, mailbox: &Mailbox) {
    while let Ok(claim) = claims.recv() {
        let proof = munge
            .check(&claim.credential)
            .map_err(|refusal| refusal.why);
        mailbox.post(|mail| mail.proofs.push((claim.place, claim.number, proof)));
    }
}

/// Takes connections in as they come.
fn listen(listener: &Listener, mailbox: &Mailbox, ending: &OwnedFd) {
    let mut number = 0;
    loop {
        let mut waits = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::new(ending, PollFlags::IN),
        ];
        let _ = poll(&mut waits, None);
        if !waits[1].revents().is_empty() {
            return;
        }
        number += 1;
        match listener.accept(number) {
            Ok(Some(arrival)) => mailbox.post(|mail| mail.arrivals.push(arrival)),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("a connection was lost before it began: {error}");
                // Out of descriptors, most likely: some may be given back.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// See the module's header.
struct Turner {
    hall: Arc<Hall>,
    mailbox: Arc<Mailbox>,
    config: DoorConfig,
    claims: SyncSender<Claim>,
    epoll: OwnedFd,
    connections: Slab<Connection>,
    /// By a node's name, the place of its connection.
    names: HashMap<String, usize>,
    lobby: Lobby,
    numbers: u64,
    /// Connections of which more is there than a turn takes.
    unread: Vec<usize>,
    looked: Instant,
}

impl Turner {
    fn new(
        hall: Arc<Hall>,
        mailbox: Arc<Mailbox>,
        mut config: DoorConfig,
        claims: SyncSender<Claim>,
    ) -> io::Result<Turner> {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(most.saturating_sub(DESCRIPTORS)).unwrap_or(usize::MAX);
        config.connections_max = config.connections_max.min(most).max(1);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = EventData::new_u64(BELL);
        epoll::add(&epoll, &mailbox.bell, data, EventFlags::IN)?;
        Ok(Turner {
            hall,
            mailbox,
            config,
            claims,
            epoll,
            connections: Slab::new(),
            names: HashMap::new(),
            lobby: Lobby::default(),
            numbers: 0,
            unread: Vec::new(),
            looked: Instant::now(),
        })
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(512);
        loop {
            self.wait(&mut events);
            self.hall.counts.turns.fetch_add(1, Relaxed);
            let unread = std::mem::take(&mut self.unread);
            for event in events.drain(..) {
                match event.data.u64() {
                    BELL => {
                        if self.open_mail() {
                            self.hall.flush();
                            return;
                        }
                    }
                    place => self.happened(place as usize, event.flags),
                }
            }
            for place in unread {
                self.receive(place);
            }
            self.hall.flush();
            self.look();
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) {
        // Not sooner than the clock of timeouts ticks: it would turn for nothing.
        let due = self.hall.due().map(|due| due.max(LOOK_LEAST));
        let timeout = match self.unread.is_empty() {
            true => due.map_or(LOOK_EVERY, |due| due.min(LOOK_EVERY)),
            false => Duration::ZERO,
        };
        let timeout = Timespec::try_from(timeout).ok();
        let room = rustix::buffer::spare_capacity(events);
        // It fails only by being interrupted.
        let _ = epoll::wait(&self.epoll, room, timeout.as_ref());
    }

    /// Takes what others left: true if all is over.
    fn open_mail(&mut self) -> bool {
        let mail = self.mailbox.take();
        for arrival in mail.arrivals {
            self.arrived(arrival);
        }
        for (place, number, proof) in mail.proofs {
            let connection = self.connections.get_mut(place);
            let Some(connection) = connection.filter(|it| it.number == number) else {
                continue; // It has left meanwhile.
            };
            match proof {
                Ok(proof) => {
                    connection.peer.proof = proof;
                    let phase = std::mem::replace(&mut connection.phase, Phase::New);
                    if let Phase::Proving(hello) = phase {
                        self.admit(place, hello);
                        self.receive(place);
                        self.watch(place);
                    }
                }
                Err(why) => self.refuse(place, &why),
            }
        }
        mail.ends
    }

    fn arrived(&mut self, arrival: Arrival) {
        let count = self.connections.len();
        if count >= self.config.connections_max {
            let Some((silent, _)) = self.lobby.oldest_of_most() else {
                let why = format!("there are {count} connections");
                return self.hall.audit(&arrival.peer, &why);
            };
            self.hall.ended();
            let peer = &self.connections[silent].peer;
            tracing::info!("{peer} makes room: it has not said who it is");
            self.remove(silent);
        }
        self.numbers += 1;
        let peer = arrival.peer.clone();
        let connection = match Connection::new(arrival, self.numbers) {
            Ok(connection) => connection,
            Err(error) => return self.hall.audit(&peer, &error),
        };
        let (whence, number) = (connection.whence, connection.number);
        let place = self.connections.insert(connection);
        self.lobby.enter(whence, (place, number));
        self.watch(place);
    }

    /// Tells epoll what to look for, where that has changed.
    fn watch(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        let wanted = connection.interest();
        let data = EventData::new_u64(place as u64);
        let told = match (connection.watched, wanted) {
            (None, None) => return,
            (Some(before), Some(after)) if before == after => return,
            (None, Some(flags)) => epoll::add(&self.epoll, &connection.socket, data, flags),
            (Some(_), Some(flags)) => epoll::modify(&self.epoll, &connection.socket, data, flags),
            (Some(_), None) => epoll::delete(&self.epoll, &connection.socket),
        };
        connection.watched = wanted;
        if let Err(error) = told {
            self.end(place, &End::Broken(error));
        }
    }

    fn happened(&mut self, place: usize, flags: EventFlags) {
        let is_over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if is_over && self.connections.get(place).is_some_and(|it| it.ends) {
            return self.remove(place);
        }
        if flags.contains(EventFlags::OUT) {
            self.send(place);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(place);
        }
    }

    /// Receives what has come, and understands some of it.
    fn receive(&mut self, place: usize) {
        for _ in 0..FRAMES_PER_TURN {
            let Some(connection) = self.connections.get_mut(place) else {
                return;
            };
            if connection.ends || matches!(connection.phase, Phase::Proving(_)) {
                return;
            }
            let next = match connection.next() {
                Ok(None) => match connection.receive() {
                    Ok(true) => continue,
                    Ok(false) => return self.send(place),
                    Err(end) => Err(end),
                },
                next => next,
            };
            match next {
                Ok(Some(message)) => self.heard(place, message),
                Ok(None) => {}
                Err(end) => return self.end(place, &end),
            }
        }
        self.send(place);
        let connection = self.connections.get(place);
        if connection.is_some_and(|it| it.has_more() && !it.ends) {
            self.unread.push(place);
        }
    }

    fn heard(&mut self, place: usize, message: Message) {
        let now = Instant::now();
        let connection = &mut self.connections[place];
        match (&mut connection.phase, message) {
            (Phase::New, Message::Hello(hello)) => self.greeted(place, hello),
            (Phase::Open(guest), Message::Announcement(announcement)) => {
                guest.heard = now;
                let decision = self.hall.announced(&guest.name, announcement);
                if let Err(end) = connection.count(now) {
                    return self.end(place, &end);
                }
                if let Some(decision) = decision {
                    connection.say(&Message::Decision(decision));
                }
            }
            (Phase::Open(guest), Message::Figures(figures)) => {
                self.hall.shown(&guest.name, &figures);
                if let Err(end) = connection.count(now) {
                    self.end(place, &end);
                }
            }
            (Phase::New, _) => self.refuse(place, "it does not say who it is"),
            (Phase::Proving(_) | Phase::Open(_), _) => {
                self.refuse(place, "it says what it has no reason to say");
            }
        }
    }

    /// A node says who it is.
    fn greeted(&mut self, place: usize, hello: Hello) {
        let connection = &mut self.connections[place];
        if connection.is_proved() {
            return self.admit(place, hello);
        }
        let claim = Claim {
            place,
            number: connection.number,
            credential: hello.credential.clone(),
        };
        connection.phase = Phase::Proving(hello);
        if self.claims.try_send(claim).is_err() {
            self.refuse(place, "too many credentials wait to be checked");
        }
        self.watch(place);
    }

    /// It is known who it is: is it heard?
    fn admit(&mut self, place: usize, hello: Hello) {
        let (name, epoch) = (hello.name.clone(), hello.epoch);
        match self.may_enter(place, &hello) {
            Err(why) => self.refuse(place, &why),
            Ok((whence, kept)) => {
                let connection = &mut self.connections[place];
                let who = (place, connection.number);
                self.lobby.leave(connection.whence, who);
                connection.say(&Message::Welcome {
                    kept,
                    patterns: self.hall.wants_patterns(),
                });
                let heard = Instant::now();
                connection.phase = Phase::Open(Guest {
                    name: name.clone(),
                    epoch,
                    whence,
                    heard,
                });
                self.names.insert(name, place);
                self.send(place);
            }
        }
    }

    /// As one of whose nodes it is counted, and what is kept of it; or why it is not heard.
    fn may_enter(&mut self, place: usize, hello: &Hello) -> Result<(Whence, u64), String> {
        let peer = self.connections[place].peer.clone();
        self.hall.may_come(&peer, &self.config.users)?;
        if let Some(other) = self.names.get(&hello.name).copied() {
            self.make_way(place, other, hello)?;
        }
        let whence = Whence::of(&peer);
        let max = match self.hall.is_own(&peer) {
            true => usize::MAX,
            false => self.config.nodes_per_user_max,
        };
        self.lobby.admit(whence, max)?;
        let joined = self.hall.joined(hello, &peer);
        if joined.is_err() {
            self.lobby.dismiss(whence);
        }
        Ok((whence, joined?))
    }

    /// A node that comes anew takes the place of its old connection. Nobody takes another's.
    fn make_way(&mut self, place: usize, other: usize, hello: &Hello) -> Result<(), String> {
        let (new, old) = (&self.connections[place].peer, &self.connections[other]);
        let name = &hello.name;
        if new.proof.uid() != old.peer.proof.uid() {
            return Err(format!("node {name} is here already, of another user"));
        }
        let is_same = matches!(&old.phase, Phase::Open(guest) if guest.epoch == hello.epoch);
        let lost = (LOST_PERIODS * self.hall.period()).max(Duration::from_secs(1));
        if !is_same && !old.is_silent(Instant::now(), lost) {
            return Err(format!(
                "another node is called {name}: {}; give one of them another name with --council-name",
                old.peer
            ));
        }
        tracing::info!("node {name} comes anew: its old connection ends");
        self.remove(other);
        Ok(())
    }

    fn send(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        if let Err(end) = connection.send() {
            return self.end(place, &end);
        }
        if connection.ends && !connection.has_output() {
            return self.remove(place);
        }
        self.watch(place);
    }

    /// Tells why, in the audit and to the other end, and ends the connection.
    fn refuse(&mut self, place: usize, why: &str) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        self.hall.audit(&connection.peer, &why);
        connection.say(&Message::Refusal {
            why: why.to_owned(),
        });
        connection.ends = true;
        self.send(place);
    }

    fn end(&mut self, place: usize, end: &End) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        match end {
            End::Left | End::Broken(_) => {
                tracing::debug!("{} left: {end:?}", connection.peer);
            }
            End::Malformed(why) => {
                self.hall.ended();
                return self.refuse(place, &why.to_string());
            }
            End::Unproved(why) => self.hall.audit(&connection.peer, why),
            End::Floods => {
                self.hall.ended();
                return self.refuse(place, "it announces without end");
            }
        }
        self.remove(place);
    }

    fn remove(&mut self, place: usize) {
        let Some(connection) = self.connections.try_remove(place) else {
            return;
        };
        // With its descriptor, the only one, it leaves epoll, too.
        let Phase::Open(Guest { name, whence, .. }) = &connection.phase else {
            return self
                .lobby
                .leave(connection.whence, (place, connection.number));
        };
        self.lobby.dismiss(*whence);
        if self.names.get(name) == Some(&place) {
            self.names.remove(name);
            self.hall.left(name);
        }
    }

    /// Once in a while: who is held up goes.
    fn look(&mut self) {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        let patience = self.config.patience;
        let gone = (GONE_PERIODS * self.hall.period()).max(Duration::from_secs(60));
        let stalled: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, it)| it.is_stalled(now, patience) || it.is_silent(now, gone))
            .map(|(place, _)| place)
            .collect();
        for place in stalled {
            self.hall.ended();
            tracing::info!("{} is held up, and goes", self.connections[place].peer);
            self.remove(place);
        }
        self.hall.look();
    }
}
