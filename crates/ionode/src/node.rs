//! The node: all its parts, from start to end.

use crate::accounts::{Accounts, Limits};
use crate::adaptive::{Adaptive, AdaptiveError};
use crate::auth::munge::Munge;
use crate::auth::shares::{Share, Shares};
use crate::auth::{Door, DoorError};
use crate::auto::Auto;
use crate::buffer::Buffers;
use crate::clock::Clock;
use crate::config::Config;
use crate::data::{Data, Dispatcher};
use crate::error::Result;
use crate::export::{Export, FileKey, Place};
use crate::files::{Files, Hold, Moving, Reaper};
use crate::guests::Guests;
use crate::identity::{Identity, Power};
use crate::jobs::{Jobs, Pace};
use crate::locks::{Known, Locks};
use crate::metrics::Metrics;
use crate::net::{Address, Arrival, Listener, Mailbox, Mailboxes, Seat, arrived, watch};
use crate::once::OnceTable;
use crate::own::{OwnDirectory, node_name};
use crate::peer::{Peer, Proof};
use crate::ring::Ring;
use crate::seal::{self, Seal};
use crate::session::{AllFids, Fences, Held, Open};
use crate::users::Users;
use crate::view::View;
use presagio_dashboard::{Opened, Window};
use presagio_engine::{Engine, EngineConfig};
use presagio_ninep::Name;
use presagio_sched::{PolicyKind, Settings, SettingsError};
use presagio_storage::{Storage, StripedSet};
use presagio_trace::TraceError;
use presagio_tune::Arm;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Memory that is kept for payloads when none is under way.
const KEPT_MAX: usize = 128 << 20;

/// For so long a file without a name that a client has closed may be opened by whom it gave the handle to.
const PASSED_ON: Duration = Duration::from_secs(5);

/// Files that wait for their clients at most.
const LINGERING_MAX: usize = 1 << 16;

/// How long the end of a trace may take where the node has not ended in time.
const TRACE_MAX: Duration = Duration::from_secs(2);

/// How often the other nodes are told which files without a name are in use: often enough for what they let go after a day.
const TELL_EVERY: Duration = Duration::from_secs(3600);

/// A file that counts as open for a while.
struct Lingers {
    until: Instant,
    client: Known,
    hold: Hold,
}

/// What all parts of a node share.
pub struct Shared {
    pub config: Config,
    pub export: Export,
    pub files: Arc<Files>,
    moving: Moving,
    pub fids: Arc<AllFids>,
    pub data: Arc<Data>,
    pub jobs: Arc<Jobs>,
    pub pace: Arc<Pace>,
    pub power: Power,
    pub nobody: Arc<Identity>,
    pub users: Users,
    /// What checks the credentials of those who come over TCP.
    pub munge: Option<Arc<Munge>>,
    shares: Arc<Shares>,
    /// What each user has.
    pub accounts: Arc<Accounts>,
    /// What the node must not forget; `None` where nothing can be kept.
    pub own: Option<OwnDirectory>,
    pub seal: Seal,
    pub once: OnceTable,
    pub locks: Locks,
    /// What was asked for on connections that were lost is not done.
    pub fences: Fences,
    pub clock: Clock,
    pub metrics: Metrics,
    /// How requests are scheduled now.
    settings: Mutex<Settings>,
    /// Chooses the policy, if somebody asked for that.
    pub auto: Option<Auto>,
    /// Whether what clients foretell goes to the scheduler.
    pub hears_clients: AtomicBool,
    /// Learns what to do, if somebody asked for that.
    pub adaptive: Option<Adaptive>,
    /// What a person who looks sees.
    pub view: View,
    /// How often the settings were changed.
    settings_changed: AtomicU64,
    /// Clients that said who they are.
    pub guests: Guests,
    /// Changes when this machine is booted anew, and is another one on every machine: what was not synced may be lost then.
    pub epoch: u64,
    itself: Arc<Identity>,
    /// Files that lost their last name before those who had them open could come back.
    claimable: Mutex<Vec<FileKey>>,
    /// Until when they may: `None` if the node before had no clients.
    claims_until: Option<Instant>,
    /// Whether the next node is told that there are clients.
    told_of_clients: Mutex<bool>,
    /// Files whose clients were lost and may come back.
    lingering: Mutex<VecDeque<Lingers>>,
    /// When the others were last told which files without a name are in use.
    told_of_files: Mutex<Instant>,
    connections: AtomicUsize,
    numbers: AtomicU64,
}

impl Shared {
    /// Somebody tried what is not allowed.
    pub fn audit(&self, peer: &Peer, what: &dyn fmt::Display) {
        self.metrics.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(target: "audit", "{peer} refused: {what}");
    }

    /// One more connection of whom `proof` names, if it names somebody; or why it may have no more.
    pub fn count_in(&self, proof: Proof) -> std::result::Result<Option<Share>, String> {
        let max = self.config.connections_per_user_max;
        let Some(uid) = proof.uid() else {
            return Ok(None);
        };
        match self.shares.take(uid, max) {
            Some(share) => Ok(Some(share)),
            None => Err(format!(
                "uid {uid} has {max} connections, and that is the limit"
            )),
        }
    }

    /// Connections at the moment.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How requests are scheduled now.
    pub fn policy(&self) -> PolicyKind {
        self.settings().policy
    }

    /// Schedules requests that come from now on by another policy.
    pub fn set_policy(&self, policy: PolicyKind) -> std::result::Result<(), SettingsError> {
        self.change(|settings| Settings {
            policy,
            ..settings.clone()
        })
    }

    /// The policy of now, with TWINS's window.
    pub fn arm(&self) -> Arm {
        Arm::in_force(&self.settings())
    }

    /// The same, for requests that come from now on.
    pub fn set_arm(&self, arm: Arm) -> std::result::Result<(), SettingsError> {
        self.change(|settings| arm.applied_to(settings))
    }

    /// How often the policy or a parameter of one was changed.
    pub fn settings_changed(&self) -> u64 {
        self.settings_changed.load(Ordering::Relaxed)
    }

    fn change(
        &self,
        change: impl FnOnce(&Settings) -> Settings,
    ) -> std::result::Result<(), SettingsError> {
        let mut settings = self.settings();
        let next = change(&settings);
        self.data.engine().configure(next.clone())?;
        *settings = next;
        self.settings_changed.fetch_add(1, Ordering::Relaxed);
        drop(settings);
        self.view.switched();
        Ok(())
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The storage may have to be called as the node.
    pub fn act_for_storage(&self) -> Result<()> {
        match self.export.storage().is_private() {
            true => self.act_as_node(),
            false => Ok(()),
        }
    }

    /// From now on this thread acts as the node itself.
    pub fn act_as_node(&self) -> Result<()> {
        self.power.act_as(&self.itself)
    }

    /// A number that was not used before.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A fid is let go: with it go the locks that were taken through it. A file without a name stays for a moment, since a
    /// client may have given its handle to another (a process to its child), if it is one of those who have such.
    pub fn closed(&self, held: &Held, client: Option<Known>) {
        let Open::File(file) = &held.open else {
            return;
        };
        self.locks.closed(held.place.key(), file.number);
        if let Some(client) = client
            && file.hold.file().is_nameless()
        {
            self.linger(client, &file.hold, PASSED_ON.min(self.config.grace));
        }
    }

    /// A client that may come back was lost: its locks and files wait for it. What loses its last name meanwhile is kept.
    pub fn lost(&self, held: &Held, client: Known) {
        let Open::File(file) = &held.open else {
            return;
        };
        self.locks.lost(held.place.key(), file.number);
        self.linger(client, &file.hold, self.config.grace);
    }

    /// A file counts as open for so long.
    fn linger(&self, client: Known, hold: &Hold, time: Duration) {
        let hold = hold.clone();
        let mut lingering = self.lingering();
        let first = (lingering.len() >= LINGERING_MAX).then(|| lingering.pop_front());
        lingering.push_back(Lingers {
            until: Instant::now() + time,
            client,
            hold,
        });
        drop(lingering);
        // Without the lock: it may be the last that had the file.
        drop(first);
    }

    /// A client has opened a file again: it need not wait for it any more.
    pub fn came_back(&self, client: Known, key: FileKey) {
        let mut lingering = self.lingering();
        let of_it = |it: &Lingers| it.client == client && it.hold.file().key == key;
        let place = lingering.iter().position(of_it);
        let back = place.and_then(|place| lingering.remove(place));
        drop(lingering);
        drop(back);
    }

    /// Whether clients of the node before may still come back: then anything may be open.
    fn is_claimable(&self) -> bool {
        self.claims_until
            .is_some_and(|until| Instant::now() < until)
    }

    fn claimable(&self) -> MutexGuard<'_, Vec<FileKey>> {
        self.claimable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that may come back is here: the next node has to know that. Cheap when it does.
    pub fn note_client(&self) {
        let told = self.told_of_clients.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = &self.own
            && !*told
        {
            *told = own.note_clients(true).is_ok();
        }
    }

    /// Nobody may come back any more, if nobody is here.
    fn note_no_clients(&self) {
        let told = self.told_of_clients.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = &self.own
            && self.fences.is_empty()
            && self.lingering().is_empty()
            && (*told || own.had_clients())
        {
            *told = own.note_clients(false).is_err();
        }
    }

    fn lingering(&self) -> MutexGuard<'_, VecDeque<Lingers>> {
        self.lingering
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody has a file without a name open any more.
    fn reap(&self, key: FileKey) {
        let Some(own) = &self.own else {
            return;
        };
        // Others may have had it open as well, at the node before.
        if self.is_claimable() {
            return self.claimable().push(key);
        }
        let reaped = self.act_as_node().map_err(io::Error::from).and_then(|()| {
            let Some(_unopened) = self.files.losing(key) else {
                return Ok(()); // Somebody came back for it.
            };
            let (kept, stat) = Place::of(own.kept(key)?, None)?;
            // First the name, then the bytes: who has it open at another node can tell a file that is gone from a hole.
            own.let_go(key)?;
            match stat.stx_nlink {
                1 => self.export.storage().removed(kept.fd()),
                _ => Ok(()),
            }
        });
        if let Err(error) = reaped
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("a file without a name stays in the node's own directory: {error}");
        }
    }

    /// Once in a while: what nobody came back for is let go.
    fn tidy(&self, age: Duration) {
        self.locks.tidy(self.own.as_ref());
        self.once.tidy();
        let (now, mut lingering) = (Instant::now(), self.lingering());
        let all = std::mem::take(&mut *lingering).into_iter();
        let (left, gone): (VecDeque<_>, VecDeque<_>) = all.partition(|it| now < it.until);
        *lingering = left;
        drop(lingering);
        drop(gone);
        self.tell_of_files();
        if age < self.config.grace {
            return;
        }
        for key in std::mem::take(&mut *self.claimable()) {
            if self.files.find(key).is_none() {
                self.reap(key);
            }
        }
        self.note_no_clients();
        // Not before: who comes back in time shows that it is there, also after a clock was set.
        if let Some(own) = &self.own {
            self.once.sweep_hourly(own, &self.clock);
        }
        let kept = self
            .own
            .as_ref()
            .and_then(|own| own.leftovers(&self.clock).ok());
        for key in kept.into_iter().flatten() {
            if self.files.find(key).is_none() {
                self.reap(key);
            }
        }
    }

    /// What is open here is no leftover for the others.
    fn tell_of_files(&self) {
        let told = self.told_of_files.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = &self.own
            && told.elapsed() >= TELL_EVERY
        {
            *told = Instant::now();
            for key in self.files.nameless() {
                // It may have been closed just now.
                let _ = own.touch(key);
            }
        }
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
    pub fn remove_name(
        &self,
        user: &Arc<Identity>,
        dir: &Place,
        name: Name<'_>,
        is_dir: bool,
    ) -> Result<()> {
        let _alone = self.moving.hold([(dir.key(), name.bytes())]);
        let last = self.last_name(dir, name, is_dir);
        self.losing(user, last, || self.export.unlink(dir, name, is_dir))
    }

    /// Renames; what the new name stood for is removed.
    pub fn move_name(
        &self,
        user: &Arc<Identity>,
        old: (&Place, Name<'_>),
        new: (&Place, Name<'_>),
    ) -> Result<()> {
        let names = [old, new].map(|(dir, name)| (dir.key(), name.bytes()));
        let _alone = self.moving.hold(names);
        let source = self.export.find(old.0, old.1)?;
        let last = self.last_name(new.0, new.1, false);
        // Two names of one file: nothing is renamed, and nothing lost.
        let last = last.filter(|last| last.key() != source.key());
        self.losing(user, last, || {
            self.export.rename(old.0, old.1, new.0, new.1)
        })
    }

    /// The regular file that has no other name than this.
    fn last_name(&self, dir: &Place, name: Name<'_>, is_dir: bool) -> Option<Place> {
        let place = (!is_dir).then(|| self.export.find(dir, name).ok())??;
        let stat = place.stat().ok()?;
        let is_file = place.kind() == rustix::fs::FileType::RegularFile;
        // A node that was killed may have left it a name of ours beside its own.
        let ours = || self.own.as_ref().is_some_and(|own| own.keeps(place.key()));
        let is_last = stat.stx_nlink == 1 || stat.stx_nlink == 2 && ours();
        (is_file && is_last).then_some(place)
    }

    /// Does what takes a file's last name from it. One that is open gets a name in the node's own directory first, so
    /// that it is found again if the node ends.
    fn losing(
        &self,
        user: &Arc<Identity>,
        file: Option<Place>,
        lose: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Some(file) = file else {
            return lose();
        };
        let claimable = self.is_claimable();
        let unopened = self.files.losing(file.key());
        let mut kept = false;
        if (claimable || unopened.is_none())
            && let Some(own) = &self.own
        {
            self.act_as_node()?;
            kept = own.keep(file.fd(), file.key()).is_ok();
            self.power.act_as(user)?;
        }
        let lost = lose();
        if lost.is_ok() && self.files.lost_name(file.key()) {
            return Ok(());
        }
        if lost.is_ok() && claimable && kept {
            self.claimable().push(file.key());
            return Ok(());
        }
        self.act_as_node()?;
        if kept && let Some(own) = &self.own {
            let _ = own.let_go(file.key());
        }
        // It may have got another name meanwhile. GlusterFS shows nothing (ESTALE) of what has none left.
        let gone = || file.stat().map_or(true, |stat| stat.stx_nlink == 0);
        if lost.is_ok() && gone() {
            // The name is gone whatever comes of it, and so it is answered: what stays is waste.
            if let Err(error) = self.export.storage().removed(file.fd()) {
                tracing::warn!(%error, "the bytes of a file that was removed stay");
            }
        }
        lost
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
    /// The directory has the names of a striped set, whose bytes are elsewhere.
    #[error(
        "{path} belongs to a striped set: its files say where their bytes are, and have none. Name all \
         directories of its data servers"
    )]
    Striped {
        /// Which.
        path: std::path::PathBuf,
    },
    /// An address cannot be listened to.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// Those who come could not prove who they are.
    #[error("cannot let anybody in over TCP: {0}")]
    Door(String),
    /// The scheduler does not take its settings.
    #[error(transparent)]
    Engine(#[from] presagio_engine::EngineError),
    /// It cannot learn.
    #[error(transparent)]
    Adaptive(#[from] AdaptiveError),
    /// The system gives no threads or descriptors.
    #[error("the system does not give what a node needs: {0}")]
    System(#[from] io::Error),
}

impl From<DoorError> for StartError {
    fn from(error: DoorError) -> StartError {
        StartError::Door(error.0)
    }
}

/// A node that runs. It ends when it is dropped.
pub struct Node {
    shared: Arc<Shared>,
    mail: Mailboxes,
    addresses: Vec<Address>,
    /// Wakes those who wait for connections, to end.
    ending: Arc<OwnedFd>,
    windows: Vec<Window>,
    seats: Vec<Arc<Seat>>,
    watchman: Option<JoinHandle<()>>,
    unwatched: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    listeners: Vec<JoinHandle<()>>,
}

impl Node {
    /// Starts a node that keeps bytes in `storage` and listens on `addresses`; with `trusted`, whoever can reach
    /// a TCP address is believed who it says it is.
    ///
    /// Files are made with the permissions that clients ask for: the process should have no umask.
    pub fn start(
        config: Config,
        storage: Arc<dyn Storage>,
        addresses: &[Address],
        trusted: bool,
    ) -> std::result::Result<Node, StartError> {
        if !storage.is_private() {
            not_striped(&config.export)?;
        }
        let is_root = Power::of_this_process().is_root();
        // The kernel says who connects; but a node that acts for its own user alone has nothing to say to others.
        let door = Door::new(&config.tcp, trusted, is_root || config.squash)?;
        let listeners = addresses.iter().map(|address| {
            Listener::bind(address, &door).map_err(|error| StartError::Listen {
                address: address.clone(),
                error,
            })
        });
        let listeners: Vec<Listener> = listeners.collect::<std::result::Result<_, _>>()?;
        let mail: Mailboxes = (0..config.loops.max(1))
            .map(Mailbox::new)
            .collect::<io::Result<_>>()?;
        let addresses: Vec<Address> = listeners
            .iter()
            .map(Listener::address)
            .collect::<io::Result<_>>()?;
        let name = node_name(&config.name, &addresses);
        let munge = door.munge();
        let name = (&*name, !addresses.is_empty());
        let shared = Arc::new(Shared::new(config, name, storage, mail.clone(), munge)?);
        let node = Arc::downgrade(&shared);
        shared.files.tell(Reaper(Box::new(move |key| {
            if let Some(node) = node.upgrade() {
                let jobs = node.jobs.clone();
                jobs.run(move || node.reap(key));
            }
        })));
        let ending =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let mut node = Node {
            shared,
            mail,
            addresses,
            ending: Arc::new(ending),
            windows: Vec::new(),
            seats: Vec::new(),
            watchman: None,
            unwatched: Arc::default(),
            threads: Vec::new(),
            listeners: Vec::new(),
        };
        node.start_threads(listeners)?;
        Ok(node)
    }

    fn start_threads(&mut self, listeners: Vec<Listener>) -> io::Result<()> {
        for number in 0..self.mail.len() {
            let seat = Seat::new(number, self.shared.clone())?;
            seat.take()?;
            self.seats.push(seat);
        }
        let (seats, unwatched) = (self.seats.clone(), self.unwatched.clone());
        let builder = std::thread::Builder::new().name("presagio-watch".to_owned());
        self.watchman = Some(builder.spawn(move || watch(&seats, &unwatched))?);
        let (shared, ending) = (self.shared.clone(), self.ending.clone());
        let builder = std::thread::Builder::new().name("presagio-tidy".to_owned());
        self.threads
            .push(builder.spawn(move || tidy_up(&shared, &ending))?);
        let (shared, ending) = (self.shared.clone(), self.ending.clone());
        let builder = std::thread::Builder::new().name("presagio-looks".to_owned());
        self.threads
            .push(builder.spawn(move || crate::view::run(&shared, &ending))?);
        if self.shared.auto.is_some() {
            let (shared, ending) = (self.shared.clone(), self.ending.clone());
            let builder = std::thread::Builder::new().name("presagio-auto".to_owned());
            let decide = move || {
                if let Some(auto) = &shared.auto {
                    crate::auto::run(auto, &shared, &ending);
                }
            };
            self.threads.push(builder.spawn(decide)?);
        }
        if self.shared.adaptive.is_some() {
            let (shared, ending) = (self.shared.clone(), self.ending.clone());
            let builder = std::thread::Builder::new().name("presagio-adapts".to_owned());
            let decide = move || {
                if let Some(adaptive) = &shared.adaptive {
                    crate::adaptive::run(adaptive, &shared, &ending);
                }
            };
            self.threads.push(builder.spawn(decide)?);
        }
        for listener in listeners {
            let (shared, mail) = (self.shared.clone(), self.mail.clone());
            let ending = self.ending.clone();
            let builder = std::thread::Builder::new().name("presagio-listen".to_owned());
            self.listeners
                .push(builder.spawn(move || listen(&listener, &shared, &mail, &ending))?);
        }
        Ok(())
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Serves whoever is at the other end of `stream`: the process that made it.
    pub fn adopt(&self, stream: UnixStream) -> io::Result<()> {
        let arrival = arrived(stream, self.shared.number())?;
        take_in(arrival, &self.shared, &self.mail);
        Ok(())
    }

    /// What its parts share.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens a window: HTTP, for those who want to know what the node does, and to tell it.
    pub fn open_window(
        &mut self,
        address: &Address,
        opened: Opened,
    ) -> std::result::Result<Address, StartError> {
        let window = Window::open(address, self.shared.clone(), opened);
        let window = window.map_err(|error| StartError::Listen {
            address: address.clone(),
            error,
        })?;
        let address = window.address().clone();
        self.windows.push(window);
        Ok(address)
    }

    /// Begins a trace of all reads and writes.
    pub fn record(&self, path: &Path) -> io::Result<()> {
        self.shared.data.recording.start(path)
    }

    /// Ends the trace. Returns how many events it has, if there was one.
    pub fn stop_recording(&self) -> io::Result<Option<u64>> {
        self.shared.data.recording.stop()
    }

    /// Expects what a trace of an earlier run has. Returns how many requests were taken.
    pub fn foresee(&self, trace: &Path) -> std::result::Result<u64, TraceError> {
        self.shared.foresee_trace(trace)
    }

    /// All figures, as Prometheus reads them.
    pub fn metrics(&self) -> String {
        crate::metrics::prometheus(&self.shared)
    }

    /// The scheduler, to look at and to change.
    pub fn engine(&self) -> &Engine {
        self.shared.data.engine()
    }

    /// Takes no new connections, answers what was asked, and leaves the clients, who may go to another node or come back to
    /// the next one here. What is not answered after `patience` stays unanswered: clients ask again.
    pub fn drain(mut self, patience: Duration) {
        self.stop_listening();
        for mailbox in self.mail.iter() {
            mailbox.post(|mail| mail.drain = true);
        }
        let late = Instant::now() + patience;
        while self.connections() > 0 && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Drains it and ends it, within `patience` and `more` on top of that. False if it has not ended by then, since storage hangs: what
    /// is left of it ends with the process. A trace that it records is whole in any case, unless what that lies on hangs as well:
    /// for that it waits two seconds.
    pub fn end(self, patience: Duration, more: Duration) -> bool {
        let shared = self.shared.clone();
        let (ended, ends) = std::sync::mpsc::channel();
        let builder = std::thread::Builder::new().name("presagio-ends".to_owned());
        let drain = move || {
            self.drain(patience);
            // Nobody may listen any more.
            let _ = ended.send(());
        };
        let has_ended = match builder.spawn(drain) {
            Ok(_) => ends.recv_timeout(patience + more).is_ok(),
            Err(_) => false,
        };
        if !has_ended {
            shared.end_trace();
        }
        has_ended
    }

    fn stop_listening(&mut self) {
        let _ = rustix::io::write(&*self.ending, &1u64.to_ne_bytes());
        for thread in self.listeners.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }

    /// Connections at the moment.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop_listening();
        for mailbox in self.mail.iter() {
            mailbox.post(|mail| mail.stop = true);
        }
        // While somebody watches, a loop that is held up ends too.
        self.seats.drain(..).for_each(|seat| seat.join());
        self.unwatched.store(true, Ordering::SeqCst);
        if let Some(watchman) = self.watchman.take() {
            watchman.thread().unpark();
            let _ = watchman.join();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.windows.clear();
        if self.shared.act_as_node().is_ok() {
            self.shared.locks.tidy(self.shared.own.as_ref());
        }
        self.shared.data.engine().shutdown();
        self.shared.data.close();
        self.shared.jobs.close();
        if let Err(error) = self.shared.data.recording.stop() {
            tracing::warn!("the trace is cut short: {error}");
        }
    }
}

impl Shared {
    /// Ends the trace, of a node that has not ended: a thread does, since it may be the trace that hangs.
    fn end_trace(self: Arc<Shared>) {
        let (ended, ends) = std::sync::mpsc::channel();
        let stop = move || {
            // Nobody may listen any more.
            let _ = ended.send(self.data.recording.stop());
        };
        let builder = std::thread::Builder::new().name("presagio-trace".to_owned());
        let why = match builder.spawn(stop).map(|_| ends.recv_timeout(TRACE_MAX)) {
            Ok(Ok(Ok(_))) => return,
            Ok(Ok(Err(error))) | Err(error) => error.to_string(),
            Ok(Err(_)) => "what it lies on hangs".to_owned(),
        };
        tracing::warn!("the trace is cut short: {why}");
    }

    /// Of the node of this name, which nobody else must have if it `is_taken`.
    fn new(
        config: Config,
        (name, is_taken): (&str, bool),
        storage: Arc<dyn Storage>,
        mail: Mailboxes,
        munge: Option<Arc<Munge>>,
    ) -> std::result::Result<Shared, StartError> {
        let export = Export::new(&config.export, storage.clone(), config.read_only);
        let export = export.map_err(|error| StartError::Export {
            path: config.export.clone(),
            error,
        })?;
        let grace = config.grace;
        let limits = Limits {
            files: config.files_per_user_max,
            requests: config.requests_per_user_max,
            bytes: config.memory_per_user_max,
        };
        let (jobs, pace) = (Jobs::new(config.threads_max), Arc::<Pace>::default());
        let buffers = Buffers::new(KEPT_MAX.min(config.memory_max), config.memory_max);
        let (power, nobody) = (Power::of_this_process(), Arc::new(Identity::nobody()));
        let itself = Arc::new(Identity::node());
        let mover = match storage.is_private() {
            true => itself.clone(),
            false => nobody.clone(),
        };
        let data = Data::new(
            mail.clone(),
            Jobs::new(config.threads_max),
            pace.clone(),
            buffers,
            power,
            mover,
            config.ring && Ring::new().is_ok(),
        );
        // An object on each server, and what reads the record of a file that was opened to be written only.
        let private_files = match storage.is_private() {
            true => storage.servers() as usize + 1,
            false => 0,
        };
        let mut settings = config.settings.clone();
        settings.queues = settings.queues.max(storage.servers());
        let mut engine = EngineConfig::new(settings.clone());
        engine.in_flight_max = config.depth;
        let own = match config.read_only {
            true => None,
            false => OwnDirectory::open(export.mount(), name)
                .map_err(|error| {
                    tracing::warn!(
                        "nothing can be kept in {}: {error}",
                        config.export.display()
                    );
                })
                .ok(),
        };
        // Before anything is read that is kept under this name: whoever has it may still change that.
        if let Some(own) = own.as_ref().filter(|_| is_taken) {
            own.take_name().map_err(|error| StartError::Export {
                path: config.export.clone(),
                error,
            })?;
        }
        let secret = own
            .as_ref()
            .map_or_else(seal::random, |own| Ok(*own.secret()))?;
        let epoch = match config.epoch.or_else(booted) {
            Some(epoch) => epoch,
            None => u64::from_le_bytes(seal::random()?),
        };
        let had_clients = own.as_ref().is_some_and(OwnDirectory::had_clients);
        let holders = own.as_ref().map(OwnDirectory::holders);
        let auto = config.auto.clone().map(Auto::new);
        let adaptive = config.adaptive.clone().map(Adaptive::new).transpose()?;
        let engine = Engine::start(engine, Arc::new(Dispatcher(mail)))?;
        if let Some(auto) = &auto {
            engine.record(Some(auto.watcher()));
        }
        if let Some(adaptive) = &adaptive {
            engine.record(Some(adaptive.watcher()));
        }
        data.set_engine(engine);
        let fids = AllFids::of_this_process(private_files);
        Ok(Shared {
            config,
            export,
            files: Arc::default(),
            moving: Moving::default(),
            data: Arc::new(data),
            jobs,
            pace,
            power,
            nobody,
            users: Users::default(),
            munge,
            shares: Arc::default(),
            accounts: Accounts::new(limits),
            seal: Seal::new(&secret),
            own,
            once: OnceTable::default(),
            locks: Locks::new(holders.into_iter().flatten(), grace, fids.max()),
            fids,
            fences: Fences::default(),
            clock: Clock::default(),
            metrics: Metrics::default(),
            settings: Mutex::new(settings),
            auto,
            hears_clients: AtomicBool::new(true),
            adaptive,
            view: View::new()?,
            settings_changed: AtomicU64::new(0),
            guests: Guests::default(),
            epoch,
            itself,
            claimable: Mutex::default(),
            claims_until: had_clients.then(|| Instant::now() + grace),
            told_of_clients: Mutex::new(false),
            lingering: Mutex::default(),
            told_of_files: Mutex::new(Instant::now()),
            connections: AtomicUsize::new(0),
            numbers: AtomicU64::new(1),
        })
    }
}

/// That the bytes of a directory's files are in them.
fn not_striped(export: &Path) -> std::result::Result<(), StartError> {
    let set = StripedSet::around(export).map_err(|error| StartError::Export {
        path: export.to_owned(),
        error,
    })?;
    set.map_or(Ok(()), |path| Err(StartError::Striped { path }))
}

/// A number of this machine, which it has until it is booted anew.
fn booted() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let number = u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()?;
    // 0 would say nothing.
    Some((number >> 64) as u64 ^ number as u64 | 1)
}

/// How often what nobody came back for is let go.
const TIDY_EVERY: Duration = Duration::from_secs(5);

fn tidy_up(shared: &Shared, ending: &OwnedFd) {
    let start = Instant::now();
    loop {
        let mut waits = [PollFd::new(ending, PollFlags::IN)];
        let timeout = rustix::time::Timespec::try_from(TIDY_EVERY).ok();
        let _ = poll(&mut waits, timeout.as_ref());
        if !waits[0].revents().is_empty() {
            return;
        }
        if shared.act_as_node().is_ok() {
            shared.tidy(start.elapsed());
        }
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

fn take_in(mut arrival: Arrival, shared: &Shared, mail: &Mailboxes) {
    shared.metrics.connections.fetch_add(1, Ordering::Relaxed);
    let before = shared.connections.fetch_add(1, Ordering::Relaxed);
    let counted = match before >= shared.config.connections_max {
        true => Err(format!("there are {before} connections")),
        false => shared.count_in(arrival.peer.proof),
    };
    match counted {
        Ok(share) => arrival.share = share,
        Err(why) => {
            shared.gone();
            return shared.audit(&arrival.peer, &why);
        }
    }
    mail[before % mail.len()].post(|mail| mail.arrivals.push(arrival));
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_storage::Directory;
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::mpsc::channel;

    fn node(directory: &Path) -> Node {
        let mut config = Config::new(directory);
        config.loops = 1;
        Node::start(config, Arc::new(Directory), &[], false).unwrap()
    }

    #[test]
    fn a_node_whose_storage_hangs_does_not_keep_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut hangs = node(directory.path());
        let trace = directory.path().join("trace");
        hangs.record(&trace).unwrap();
        let (goes_on, wait) = channel::<()>();
        // As the thread that looks for leftovers in a directory that cannot be read.
        let stuck = std::thread::spawn(move || wait.recv().unwrap_or_default());
        hangs.threads.push(stuck);
        let shared = hangs.shared.clone();
        assert!(!hangs.end(Duration::ZERO, Duration::from_millis(50)));
        assert!(trace.exists() && matches!(shared.data.recording.stop(), Ok(None)));
        drop(goes_on);
    }

    /// It is a pipe that is full, and nobody reads it.
    #[test]
    fn a_node_whose_trace_hangs_too_does_not_keep_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut hangs = node(directory.path());
        let trace = directory.path().join("trace");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &trace, kind, mode, 0).unwrap();
        let mut options = std::fs::File::options();
        let options = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK);
        let mut pipe = options.open(&trace).unwrap();
        hangs.record(&trace).unwrap();
        while pipe.write(&[0]).is_ok() {}
        let (goes_on, wait) = channel::<()>();
        let stuck = std::thread::spawn(move || wait.recv().unwrap_or_default());
        hangs.threads.push(stuck);
        let (send, ended) = channel();
        std::thread::spawn(move || send.send(hangs.end(Duration::ZERO, Duration::from_millis(50))));
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(false));
        drop((goes_on, pipe));
    }

    #[test]
    fn a_node_that_has_nothing_to_do_ends() {
        let directory = tempfile::tempdir().unwrap();
        assert!(node(directory.path()).end(Duration::ZERO, Duration::from_secs(60)));
    }
}
