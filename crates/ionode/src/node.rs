//! The node: all its parts, from start to end.

use crate::buffer::Buffers;
use crate::config::Config;
use crate::data::{Data, Dispatcher};
use crate::error::{OrErrno, Result};
use crate::export::{Export, FileKey, Place};
use crate::files::Files;
use crate::identity::{Identity, Power};
use crate::jobs::{Jobs, Pace};
use crate::net::{Address, Arrival, Listener, Mailbox, Mailboxes, Turner};
use crate::peer::Peer;
use crate::users::Users;
use presagio_engine::{Engine, EngineConfig};
use presagio_ninep::Name;
use presagio_storage::Storage;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Memory that is kept for payloads when none is under way.
const KEPT_MAX: usize = 128 << 20;

/// What all parts of a node share.
pub struct Shared {
    pub config: Config,
    pub export: Export,
    pub files: Arc<Files>,
    pub data: Arc<Data>,
    pub jobs: Arc<Jobs>,
    pub pace: Arc<Pace>,
    pub power: Power,
    pub nobody: Arc<Identity>,
    pub users: Users,
    connections: AtomicUsize,
}

impl Shared {
    /// Somebody tried what is not allowed.
    pub fn audit(&self, peer: &Peer, what: &dyn fmt::Display) {
        tracing::warn!(target: "audit", "{peer} refused: {what}");
    }

    /// A connection ended.
    pub fn gone(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether an open file has lost its last name.
    pub fn is_nameless(&self, key: FileKey) -> bool {
        self.files.find(key).is_some_and(|file| file.is_nameless())
    }

    /// Removes a name, and the bytes if it was the last and nobody has the file open.
    pub fn remove_name(&self, dir: &Place, name: Name<'_>, is_dir: bool) -> Result<()> {
        let last = self.last_name(dir, name, is_dir);
        self.export.unlink(dir, name, is_dir)?;
        self.without_name(last)
    }

    /// Renames; what the new name stood for is removed.
    pub fn move_name(
        &self,
        old_dir: &Place,
        old: Name<'_>,
        new_dir: &Place,
        new: Name<'_>,
    ) -> Result<()> {
        let last = self.last_name(new_dir, new, false);
        self.export.rename(old_dir, old, new_dir, new)?;
        self.without_name(last)
    }

    /// The regular file that has no other name than this.
    fn last_name(&self, dir: &Place, name: Name<'_>, is_dir: bool) -> Option<Place> {
        let place = (!is_dir).then(|| self.export.find(dir, name).ok())??;
        let stat = place.stat().ok()?;
        let is_file = place.kind() == rustix::fs::FileType::RegularFile;
        (is_file && stat.stx_nlink == 1).then_some(place)
    }

    fn without_name(&self, file: Option<Place>) -> Result<()> {
        match file {
            Some(file) if !self.files.lost_name(file.key()) => {
                self.export.storage().removed(file.fd()).or_errno()
            }
            _ => Ok(()),
        }
    }
}

/// A node could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The directory cannot be exported.
    #[error("cannot export {path}: {error}")]
    Export {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An address cannot be listened to.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// The scheduler does not take its settings.
    #[error(transparent)]
    Engine(#[from] presagio_engine::EngineError),
    /// The system gives no threads or descriptors.
    #[error("the system does not give what a node needs: {0}")]
    System(#[from] io::Error),
}

/// A node that runs. It ends when it is dropped.
pub struct Node {
    shared: Arc<Shared>,
    mail: Mailboxes,
    addresses: Vec<Address>,
    /// Wakes those who wait for connections, to end.
    ending: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Node {
    /// Starts a node that keeps bytes in `storage` and listens on `addresses`; with `trusted`, whoever can reach
    /// a TCP address is believed who it says it is.
    pub fn start(
        config: Config,
        storage: Arc<dyn Storage>,
        addresses: &[Address],
        trusted: bool,
    ) -> std::result::Result<Node, StartError> {
        let listeners = addresses.iter().map(|address| {
            Listener::bind(address, trusted).map_err(|error| StartError::Listen {
                address: address.clone(),
                error,
            })
        });
        let listeners: Vec<Listener> = listeners.collect::<std::result::Result<_, _>>()?;
        let mail: Mailboxes = (0..config.loops.max(1))
            .map(Mailbox::new)
            .collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared::new(config, storage, mail.clone())?);
        let addresses = listeners
            .iter()
            .map(Listener::address)
            .collect::<io::Result<_>>()?;
        let ending =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let mut node = Node {
            shared,
            mail,
            addresses,
            ending: Arc::new(ending),
            threads: Vec::new(),
        };
        node.start_threads(listeners)?;
        Ok(node)
    }

    fn start_threads(&mut self, listeners: Vec<Listener>) -> io::Result<()> {
        for number in 0..self.mail.len() {
            let turner = Turner::new(number, self.shared.clone())?;
            let builder = std::thread::Builder::new().name(format!("presagio-loop{number}"));
            self.threads.push(builder.spawn(move || turner.run())?);
        }
        for listener in listeners {
            let (shared, mail) = (self.shared.clone(), self.mail.clone());
            let ending = self.ending.clone();
            let builder = std::thread::Builder::new().name("presagio-listen".to_owned());
            self.threads
                .push(builder.spawn(move || listen(&listener, &shared, &mail, &ending))?);
        }
        Ok(())
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The scheduler, to look at and to change.
    pub fn engine(&self) -> &Engine {
        self.shared.data.engine()
    }

    /// Connections at the moment.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.ending, &1u64.to_ne_bytes());
        for mailbox in self.mail.iter() {
            mailbox.post(|mail| mail.stop = true);
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.shared.data.engine().shutdown();
        self.shared.jobs.close();
    }
}

impl Shared {
    fn new(
        config: Config,
        storage: Arc<dyn Storage>,
        mail: Mailboxes,
    ) -> std::result::Result<Shared, StartError> {
        let export = Export::new(&config.export, storage.clone(), config.read_only);
        let export = export.map_err(|error| StartError::Export {
            path: config.export.clone(),
            error,
        })?;
        let (jobs, pace) = (Jobs::new(config.threads_max), Arc::<Pace>::default());
        let buffers = Buffers::new(KEPT_MAX.min(config.memory_max), config.memory_max);
        let (power, nobody) = (Power::of_this_process(), Arc::new(Identity::nobody()));
        let data = Data::new(
            mail.clone(),
            jobs.clone(),
            pace.clone(),
            buffers,
            power,
            nobody.clone(),
        );
        let mut settings = config.settings.clone();
        settings.queues = settings.queues.max(storage.servers());
        let mut engine = EngineConfig::new(settings);
        engine.in_flight_max = config.depth;
        data.set_engine(Engine::start(engine, Arc::new(Dispatcher(mail)))?);
        Ok(Shared {
            config,
            export,
            files: Arc::default(),
            data: Arc::new(data),
            jobs,
            pace,
            power,
            nobody,
            users: Users::default(),
            connections: AtomicUsize::new(0),
        })
    }
}

/// Takes connections as they come, and gives each to a loop.
fn listen(listener: &Listener, shared: &Shared, mail: &Mailboxes, ending: &OwnedFd) {
    let mut numbers = 0;
    loop {
        let mut waits = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::new(ending, PollFlags::IN),
        ];
        let _ = poll(&mut waits, None);
        if !waits[1].revents().is_empty() {
            return;
        }
        loop {
            numbers += 1;
            match listener.accept(numbers) {
                Ok(Some(arrival)) => take_in(arrival, shared, mail),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("a connection was lost before it began: {error}");
                    // Out of descriptors, most likely: some may be given back.
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    break;
                }
            }
        }
    }
}

fn take_in(arrival: Arrival, shared: &Shared, mail: &Mailboxes) {
    let before = shared.connections.fetch_add(1, Ordering::Relaxed);
    if before >= shared.config.connections_max {
        shared.gone();
        return tracing::warn!("{} refused: there are {before} connections", arrival.peer);
    }
    mail[before % mail.len()].post(|mail| mail.arrivals.push(arrival));
}
