//! An I/O node in memory that breaks off where it is told to: before it does what was asked, or after that and before
//! the answer. It speaks Presagio's dialect or the plain one, and keeps what it answered as a node does.

use super::Random;
use super::tree::{Node, ROOT, Tree};
use presagio_forward::{Address, Options};
use presagio_ninep::extension::Resumed;
use presagio_ninep::{
    Attr, Data, Dialect, Entry, EntryName, Errno, Fid, Frame, Frames, GetAttr, Handle, Kind, List,
    LockFlags, LockStatus, LockType, MSIZE_MAX, OpenFlags, Qid, QidKind, Reply, Request, SetMask,
    Tag, Text, UnlinkFlags, version,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// When a connection breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The request is not done.
    Before,
    /// It is done, and not answered.
    After,
}

/// What all connections share.
#[derive(Default)]
pub struct World {
    pub tree: Tree,
    pub plain: bool,
    /// The next request of each of these types breaks the connection off.
    pub planned: VecDeque<(u8, When)>,
    /// So many of a thousand requests do.
    pub per_mille: u64,
    pub random: u64,
    /// When a connection breaks, the node may lose what it knows of its clients.
    pub forgetful: bool,
    /// Who comes as an instance that is known must prove that it is that.
    pub strict: bool,
    /// What was done under a number, and how often.
    pub done: BTreeMap<u64, u32>,
    pub breaks: u64,
    /// Clients by instance: their token, and what they were answered.
    clients: HashMap<[u8; 16], Known>,
    pub locks: Vec<(u64, Vec<u8>, LockType)>,
    /// Locks that were held before are given to somebody else.
    pub steal_locks: bool,
    /// Locks are refused, but to those who had them before.
    pub refuse_locks: Option<Errno>,
    /// Connections may not be made.
    pub closed: bool,
    /// Requests of this type are never answered.
    pub mute: Option<u8>,
    /// Nothing is answered at all.
    pub frozen: bool,
    pub foreseen: usize,
    /// It will have lost them when the request is done.
    forgetting: bool,
    streams: Vec<UnixStream>,
    tokens: u8,
    pub settled_max: u64,
}

#[derive(Default)]
struct Known {
    resume: [u8; 16],
    replies: BTreeMap<u64, Kept>,
}

/// A reply, and what the fid stood for after it.
struct Kept {
    frame: Vec<u8>,
    fid: Option<(Fid, Stands)>,
}

#[derive(Clone, Copy, Debug)]
struct Stands {
    number: u64,
    open: Option<OpenFlags>,
}

/// A listening node; several may share a world.
pub struct Memory {
    pub world: Arc<Mutex<World>>,
    refuses_reopen: Arc<AtomicBool>,
    opened: Arc<Mutex<BTreeSet<u64>>>,
    directory: tempfile::TempDir,
}

impl Memory {
    pub fn start() -> Memory {
        Memory::sharing(Arc::default())
    }

    /// A second way into the same export.
    pub fn sharing(world: Arc<Mutex<World>>) -> Memory {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let (shared, refuses_reopen) = (world.clone(), Arc::new(AtomicBool::new(false)));
        let refuses = refuses_reopen.clone();
        let opened: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
        let opens = opened.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let world = shared.clone();
                let mut guard = world.lock().expect("no test has panicked here");
                if guard.closed {
                    continue;
                }
                guard.streams.push(stream.try_clone().expect("a stream"));
                drop(guard);
                let mut connection = Connection::new(stream, world);
                connection.refuses_reopen = refuses.clone();
                connection.opened = opens.clone();
                std::thread::spawn(move || connection.serve());
            }
        });
        Memory {
            world,
            refuses_reopen,
            opened,
            directory,
        }
    }

    /// The numbers of files that were opened through this way in, other than by creating them.
    pub fn opened(&self) -> BTreeSet<u64> {
        self.opened
            .lock()
            .expect("no test has panicked here")
            .clone()
    }

    /// From now on this way in does not answer Treopen.
    pub fn refuse_reopen(&self) {
        self.refuses_reopen.store(true, Ordering::Relaxed);
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn options(&self) -> Options {
        let mut options = Options::new(vec![Address::Unix(self.socket())]);
        options.patience = Duration::from_secs(10);
        options.threads = crate::THREADS;
        options
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("the server has not panicked")
    }

    /// Breaks every connection off.
    pub fn break_off(&self) {
        for stream in self.world().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Serves one connection that was made elsewhere.
pub fn serve(stream: UnixStream, world: Arc<Mutex<World>>) {
    std::thread::spawn(move || Connection::new(stream, world).serve());
}

struct Connection {
    stream: UnixStream,
    refuses_reopen: Arc<AtomicBool>,
    opened: Arc<Mutex<BTreeSet<u64>>>,
    world: Arc<Mutex<World>>,
    fids: HashMap<Fid, Stands>,
    instance: [u8; 16],
    dialect: Dialect,
}

/// What to send, or why not.
enum Outcome {
    Reply(Vec<u8>),
    Break,
    Silence,
}

fn encoded(tag: Tag, reply: &Reply<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    reply.encode(tag, &mut frame);
    frame
}

impl Connection {
    fn new(stream: UnixStream, world: Arc<Mutex<World>>) -> Connection {
        Connection {
            stream,
            refuses_reopen: Arc::default(),
            opened: Arc::default(),
            world,
            fids: HashMap::new(),
            instance: [0; 16],
            dialect: Dialect::Linux,
        }
    }

    fn serve(&mut self) {
        let mut frames = Frames::new(MSIZE_MAX);
        loop {
            while let Some(frame) = frames.next().expect("good frames") {
                match self.outcome(frame) {
                    Outcome::Reply(bytes) => {
                        if self.stream.write_all(&bytes).is_err() {
                            return;
                        }
                    }
                    Outcome::Silence => {}
                    Outcome::Break => {
                        let _ = self.stream.shutdown(Shutdown::Both);
                        return;
                    }
                }
            }
            match self.stream.read(frames.space()) {
                Ok(count) if count > 0 => frames.received(count),
                _ => return,
            }
        }
    }

    fn outcome(&mut self, frame: Frame<'_>) -> Outcome {
        let shared = self.world.clone();
        let mut world = shared.lock().expect("the server has not panicked");
        if world.frozen || world.mute == Some(frame.kind.0) {
            return Outcome::Silence;
        }
        let request = Request::parse(frame, Dialect::Presagio).expect("good requests");
        let refuses = self.refuses_reopen.load(Ordering::Relaxed);
        if refuses && matches!(request, Request::Reopen { .. }) {
            return Outcome::Silence;
        }
        let when = world.breaks_at(&request);
        let reply = match when {
            Some(When::Before) => Vec::new(),
            _ => self.answer(&mut world, frame.tag, &request),
        };
        if std::mem::take(&mut world.forgetting) {
            world.forget();
        }
        match when {
            Some(_) => Outcome::Break,
            None => Outcome::Reply(reply),
        }
    }

    fn answer(&mut self, world: &mut World, tag: Tag, request: &Request<'_>) -> Vec<u8> {
        if let Request::Once {
            sequence,
            settled,
            request,
        } = request
        {
            return self.once(world, tag, (*sequence, *settled), &request.request());
        }
        self.execute(world, tag, request)
            .unwrap_or_else(|errno| encoded(tag, &Reply::Error { errno }))
    }

    fn once(
        &mut self,
        world: &mut World,
        tag: Tag,
        (sequence, settled): (u64, u64),
        request: &Request<'_>,
    ) -> Vec<u8> {
        world.settled_max = world.settled_max.max(settled);
        let known = world
            .clients
            .get_mut(&self.instance)
            .expect("a hello came first");
        assert!(sequence > settled, "{sequence} was settled by {settled}");
        known.replies.retain(|kept, _| *kept > settled);
        if let Some(kept) = known.replies.get(&sequence) {
            if let Some((fid, stands)) = kept.fid {
                self.fids.insert(fid, stands);
            }
            let mut frame = kept.frame.clone();
            frame[5..7].copy_from_slice(&tag.0.to_le_bytes());
            return frame;
        }
        *world.done.entry(sequence).or_default() += 1;
        let frame = self
            .execute(world, tag, request)
            .unwrap_or_else(|errno| encoded(tag, &Reply::Error { errno }));
        let fid = match request {
            Request::Create { fid, .. } | Request::Open { fid, .. } => Some(*fid),
            _ => None,
        };
        let fid = fid.and_then(|fid| Some((fid, *self.fids.get(&fid)?)));
        let kept = Kept {
            frame: frame.clone(),
            fid,
        };
        let known = world
            .clients
            .get_mut(&self.instance)
            .expect("a hello came first");
        known.replies.insert(sequence, kept);
        frame
    }

    fn at(&self, fid: Fid) -> Result<u64, Errno> {
        self.fids
            .get(&fid)
            .map(|stands| stands.number)
            .ok_or(Errno::BADF)
    }

    fn stand(&mut self, fid: Fid, number: u64, open: Option<OpenFlags>) {
        self.fids.insert(fid, Stands { number, open });
    }

    fn new_fid(&self, fid: Fid) -> Result<(), Errno> {
        assert!(!self.fids.contains_key(&fid), "{fid} is in use");
        Ok(())
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each message")]
    fn execute(
        &mut self,
        world: &mut World,
        tag: Tag,
        request: &Request<'_>,
    ) -> Result<Vec<u8>, Errno> {
        let reply = match *request {
            Request::Version { msize, version } => {
                let agreed = version::answer(msize, version, 1 << 16).expect("an offer");
                let dialect = match world.plain {
                    true => Dialect::Linux,
                    false => agreed.dialect,
                };
                self.dialect = dialect;
                version::Agreed { dialect, ..agreed }.reply()
            }
            Request::Hello {
                instance, resume, ..
            } => {
                self.instance = instance;
                if world.strict && world.clients.contains_key(&instance) {
                    let known = &world.clients[&instance];
                    if known.resume != resume {
                        return Err(Errno::PERM);
                    }
                }
                let known = world.clients.entry(instance).or_default();
                let resumed = match resume == known.resume && resume != [0; 16] {
                    true => Resumed::Yes,
                    false => {
                        *known = Known::default();
                        // Another one each time: an old one must not fit what is new.
                        world.tokens += 1;
                        known.resume = [world.tokens; 16];
                        Resumed::No
                    }
                };
                Reply::Hello {
                    epoch: 1,
                    resume: known.resume,
                    resumed,
                    replies: 0,
                    grace_ms: 0,
                    node: Text::new("memory").expect("a text"),
                }
            }
            Request::Attach { fid, .. } => {
                self.new_fid(fid)?;
                self.stand(fid, ROOT, None);
                Reply::Attach {
                    qid: qid(&world.tree, ROOT)?,
                }
            }
            Request::Walk {
                fid,
                new_fid,
                steps,
            } => {
                let mut number = self.at(fid)?;
                let mut qids = Vec::new();
                for step in steps.iter() {
                    number = match world.tree.lookup(number, step.bytes()) {
                        Ok(number) => number,
                        // Only of the first name is an error told.
                        Err(_) if !qids.is_empty() => break,
                        Err(errno) => return Err(errno),
                    };
                    qids.push(qid(&world.tree, number)?);
                }
                if qids.len() == steps.len() {
                    if fid != new_fid {
                        self.new_fid(new_fid)?;
                    }
                    self.stand(new_fid, number, None);
                }
                let qids = List::new(&qids).expect("few");
                return Ok(encoded(tag, &Reply::Walk { qids }));
            }
            Request::Handle { fid } => {
                let handle = self.at(fid)?.to_le_bytes();
                let handle = Handle::new(&handle).expect("a handle");
                return Ok(encoded(tag, &Reply::Handle { handle }));
            }
            Request::Reopen {
                fid,
                flags,
                handle,
                root,
            } => {
                self.at(root)?;
                self.new_fid(fid)?;
                let number = u64::from_le_bytes(handle.bytes().try_into().expect("ours"));
                let flags = flags.flags();
                let open = (!flags.contains(OpenFlags::PATH)).then_some(flags);
                if open.is_none() && world.tree.links(number) == 0 && number != ROOT {
                    return Err(Errno::STALE);
                }
                self.stand(fid, number, open);
                let (qid, iounit) = (qid(&world.tree, number)?, 0);
                Reply::Reopen { qid, iounit }
            }
            Request::Open { fid, flags } => {
                let number = self.at(fid)?;
                if flags.contains(OpenFlags::TRUNC) {
                    world.tree.bytes(number)?.clear();
                }
                self.stand(fid, number, Some(flags));
                let mut opened = self.opened.lock().expect("no test has panicked here");
                opened.insert(number);
                drop(opened);
                let (qid, iounit) = (qid(&world.tree, number)?, 0);
                Reply::Open { qid, iounit }
            }
            Request::Create {
                fid, name, flags, ..
            } => {
                let dir = self.at(fid)?;
                let exclusive = flags.contains(OpenFlags::EXCL);
                let number = world.tree.create(dir, name.bytes(), exclusive)?;
                if flags.contains(OpenFlags::TRUNC) {
                    world.tree.bytes(number)?.clear();
                }
                self.stand(fid, number, Some(flags));
                let (qid, iounit) = (qid(&world.tree, number)?, 0);
                Reply::Create { qid, iounit }
            }
            Request::Read { fid, offset, count } => {
                let bytes = world.tree.bytes(self.open(fid)?.0)?;
                let start = bytes.len().min(offset as usize);
                let end = bytes.len().min(start + count as usize);
                let data = Data::new(&bytes[start..end]).expect("it fits");
                return Ok(encoded(tag, &Reply::Read { data }));
            }
            Request::Write { fid, offset, data } => {
                let (number, flags) = self.open(fid)?;
                let offset = match flags.contains(OpenFlags::APPEND) {
                    true => world.tree.bytes(number)?.len() as u64,
                    false => offset,
                };
                world.tree.write(number, offset, data.bytes())?;
                let count = data.bytes().len() as u32;
                Reply::Write { count }
            }
            Request::GetAttr { fid, .. } => Reply::GetAttr {
                attr: attr(&world.tree, self.at(fid)?)?,
            },
            Request::SetAttr { fid, attr } => {
                let number = self.at(fid)?;
                if attr.valid.contains(SetMask::SIZE) {
                    world.tree.bytes(number)?.resize(attr.size as usize, 0);
                }
                Reply::SetAttr
            }
            Request::ReadDir { fid, offset, count } => {
                let entries = world.tree.entries(self.at(fid)?)?;
                let mut out = Vec::new();
                for (index, (name, number)) in entries.iter().enumerate().skip(offset as usize) {
                    let entry = Entry {
                        qid: qid(&world.tree, *number)?,
                        offset: index as u64 + 1,
                        file_type: 8,
                        name: EntryName::new(name).expect("a name"),
                    };
                    if !entry.append(&mut out, count as usize) {
                        break;
                    }
                }
                let entries = Data::new(&out).expect("it fits");
                return Ok(encoded(tag, &Reply::ReadDir { entries }));
            }
            Request::Mkdir { dir, name, .. } => {
                let node = Node::Dir(BTreeMap::new());
                let made = world.tree.make(self.at(dir)?, name.bytes(), node)?;
                Reply::Mkdir {
                    qid: qid(&world.tree, made)?,
                }
            }
            Request::Symlink {
                dir, name, target, ..
            } => {
                let node = Node::Link(target.bytes().to_vec());
                let made = world.tree.make(self.at(dir)?, name.bytes(), node)?;
                Reply::Symlink {
                    qid: qid(&world.tree, made)?,
                }
            }
            Request::ReadLink { fid } => match world.tree.node(self.at(fid)?)? {
                Node::Link(target) => {
                    let target = Text::new(target).expect("a text");
                    return Ok(encoded(tag, &Reply::ReadLink { target }));
                }
                _ => return Err(Errno::INVAL),
            },
            Request::Link { dir, fid, name } => {
                let (dir, number) = (self.at(dir)?, self.at(fid)?);
                world.tree.link(dir, name.bytes(), number)?;
                Reply::Link
            }
            Request::RenameAt {
                old_dir,
                old_name,
                new_dir,
                new_name,
            } => {
                let (from, to) = (self.at(old_dir)?, self.at(new_dir)?);
                world
                    .tree
                    .rename(from, old_name.bytes(), to, new_name.bytes())?;
                Reply::RenameAt
            }
            Request::UnlinkAt { dir, name, flags } => {
                let is_dir = flags.contains(UnlinkFlags::REMOVEDIR);
                world.tree.unlink(self.at(dir)?, name.bytes(), is_dir)?;
                Reply::UnlinkAt
            }
            Request::Lock {
                fid,
                lock_type,
                flags,
                client,
                ..
            } => {
                let (number, client) = (self.at(fid)?, client.bytes());
                if let (Some(errno), 0) = (world.refuse_locks, flags.0) {
                    return Err(errno);
                }
                Reply::Lock {
                    status: world.lock(number, client, lock_type, flags),
                }
            }
            Request::Fsync { .. } => Reply::Fsync,
            Request::Flush { .. } => Reply::Flush,
            Request::Foresee { requests } => {
                world.foreseen += requests.len();
                Reply::Foresee { taken: 0 }
            }
            Request::Clunk { fid } => {
                self.fids.remove(&fid).ok_or(Errno::BADF)?;
                Reply::Clunk
            }
            Request::XattrWalk { .. } => return Err(Errno::NODATA),
            ref other => panic!("{other:?}"),
        };
        Ok(encoded(tag, &reply))
    }

    fn open(&self, fid: Fid) -> Result<(u64, OpenFlags), Errno> {
        let stands = self.fids.get(&fid).ok_or(Errno::BADF)?;
        Ok((stands.number, stands.open.ok_or(Errno::BADF)?))
    }
}

impl World {
    /// Nothing is known any more of any client.
    pub fn forget(&mut self) {
        self.clients.clear();
        self.done.clear();
    }

    fn breaks_at(&mut self, request: &Request<'_>) -> Option<When> {
        let kind = match request {
            Request::Once { request, .. } => request.kind(),
            other => other.kind(),
        };
        let planned = self.planned.front().copied();
        if let Some((_, when)) = planned.filter(|(planned, _)| Kind(*planned) == kind) {
            self.planned.pop_front();
            self.breaks += 1;
            return Some(when);
        }
        if self.per_mille == 0 || matches!(request, Request::Version { .. }) {
            return None;
        }
        let mut random = Random(self.random);
        let breaks = random.below(1000) < self.per_mille;
        let before = random.below(2) == 0;
        let forgets = self.forgetful && breaks && random.below(2) == 0;
        self.random = random.0;
        self.breaks += u64::from(breaks);
        if forgets {
            self.forgetting = true;
        }
        breaks.then_some(if before { When::Before } else { When::After })
    }

    fn lock(&mut self, file: u64, client: &[u8], kind: LockType, flags: LockFlags) -> LockStatus {
        if self.steal_locks && flags.contains(LockFlags::RECLAIM) {
            return LockStatus::Error;
        }
        let others = |(there, who, _): &&(u64, Vec<u8>, LockType)| *there == file && who != client;
        if kind != LockType::Unlock && self.locks.iter().any(|lock| others(&lock)) {
            return LockStatus::Blocked;
        }
        self.locks
            .retain(|(there, who, _)| *there != file || who != client);
        if kind != LockType::Unlock {
            self.locks.push((file, client.to_vec(), kind));
        }
        LockStatus::Success
    }
}

fn qid(tree: &Tree, number: u64) -> Result<Qid, Errno> {
    let kind = match tree.node(number)? {
        Node::File(_) => QidKind::FILE,
        Node::Dir(_) => QidKind::DIR,
        Node::Link(_) => QidKind::SYMLINK,
    };
    Ok(Qid {
        kind,
        version: 0,
        path: number,
    })
}

fn attr(tree: &Tree, number: u64) -> Result<Attr, Errno> {
    let (mode, size) = match tree.node(number)? {
        Node::File(bytes) => (0o100_644, bytes.len()),
        Node::Dir(_) => (0o040_755, 4096),
        Node::Link(target) => (0o120_777, target.len()),
    };
    Ok(Attr {
        valid: GetAttr::BASIC,
        qid: qid(tree, number)?,
        mode,
        nlink: tree.links(number),
        size: size as u64,
        ..Attr::default()
    })
}
