//! The council's loop: one thread that has all connections, and never waits for any of them.
//!
//! Threads beside it do what may wait: one for each address takes connections in (asking the kernel whose they are), one asks
//! MUNGE. They leave what they found in a [`Mailbox`]. What a node announces is decided at once ([`Hall`]), and the answer
//! leaves in the same turn.
//!
//! *Invariants.* What one connection sends or does not read ends that connection and no other. A turn takes at most
//! [`FRAMES_PER_TURN`] messages of each. Nothing here waits for a disk but the log's write to memory of the kernel.

use crate::connection::{Connection, End, Phase};
use crate::hall::Hall;
use crate::wire::{Hello, Message};
use presagio_door::munge::Munge;
use presagio_door::{Address, Arrival, Door, DoorError, Listener, Proof, TcpProof};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use slab::Slab;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
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

/// Who may come, and how that is known.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// How those who come over TCP prove who they are.
    pub tcp: TcpProof,
    /// Whether whoever can reach a TCP address is believed.
    pub trusted: bool,
    /// Users whose nodes are heard, besides root and the council's own.
    pub users: Vec<u32>,
    /// Connections at a time.
    pub connections_max: usize,
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
    numbers: u64,
    /// Connections of which more is there than a turn takes.
    unread: Vec<usize>,
    looked: Instant,
}

impl Turner {
    fn new(
        hall: Arc<Hall>,
        mailbox: Arc<Mailbox>,
        config: DoorConfig,
        claims: SyncSender<Claim>,
    ) -> io::Result<Turner> {
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
            numbers: 0,
            unread: Vec::new(),
            looked: Instant::now(),
        })
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(512);
        loop {
            self.wait(&mut events);
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
        let timeout = match self.unread.is_empty() {
            true => LOOK_EVERY,
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
            let why = format!("there are {count} connections");
            return self.hall.audit(&arrival.peer, &why);
        }
        self.numbers += 1;
        let peer = arrival.peer.clone();
        let connection = match Connection::new(arrival, self.numbers) {
            Ok(connection) => connection,
            Err(error) => return self.hall.audit(&peer, &error),
        };
        let entry = self.connections.vacant_entry();
        let data = EventData::new_u64(entry.key() as u64);
        match epoll::add(&self.epoll, &connection.socket, data, EventFlags::IN) {
            Ok(()) => {
                entry.insert(connection);
            }
            Err(error) => tracing::warn!("{peer} refused: {error}"),
        }
    }

    fn happened(&mut self, place: usize, flags: EventFlags) {
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
        match (&connection.phase, message) {
            (Phase::New, Message::Hello(hello)) => self.greeted(place, hello),
            (Phase::Open(name), Message::Announcement(announcement)) => {
                let decision = self.hall.announced(name, &announcement);
                if let Err(end) = connection.count(now) {
                    return self.end(place, &end);
                }
                if let Some(decision) = decision {
                    connection.say(&Message::Decision(decision));
                }
            }
            (Phase::Open(name), Message::Figures(figures)) => {
                self.hall.shown(name, &figures);
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
    }

    /// It is known who it is: is it heard?
    fn admit(&mut self, place: usize, hello: Hello) {
        let connection = &mut self.connections[place];
        if let Err(why) = self.hall.may_come(&connection.peer, &self.config.users) {
            return self.refuse(place, &why);
        }
        if let Some(other) = self.names.get(&hello.name).copied()
            && let Err(why) = self.make_way(place, other, &hello.name)
        {
            return self.refuse(place, &why);
        }
        let connection = &mut self.connections[place];
        let kept = match self.hall.joined(&hello, &connection.peer) {
            Ok(kept) => kept,
            Err(why) => return self.refuse(place, &why),
        };
        connection.say(&Message::Welcome { kept });
        connection.phase = Phase::Open(hello.name.clone());
        self.names.insert(hello.name, place);
        self.send(place);
    }

    /// A node that comes anew takes the place of its old connection; nobody takes another user's.
    fn make_way(&mut self, place: usize, other: usize, name: &str) -> Result<(), String> {
        let uid = |place: usize| self.connections[place].peer.proof.uid();
        if uid(place) != uid(other) {
            return Err(format!("node {name} is here already, of another user"));
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
        let waits = connection.has_output();
        if connection.ends && !waits {
            return self.remove(place);
        }
        if waits != connection.waits_to_send {
            connection.waits_to_send = waits;
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, waits);
            let data = EventData::new_u64(place as u64);
            if let Err(error) = epoll::modify(&self.epoll, &connection.socket, data, flags) {
                self.end(place, &End::Broken(error));
            }
        }
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
        if let Phase::Open(name) = &connection.phase
            && self.names.get(name) == Some(&place)
        {
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
        let stalled: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.is_stalled(now, patience))
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
