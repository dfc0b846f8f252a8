//! Requests that must not be done twice: the replies that were given, kept in the export.
//!
//! A client that loses its connection does not know whether its rename was done. It asks again, under the same number,
//! and gets the reply that it would have got. For that it comes back with the token that it was given when it came
//! first, which nobody else knows. What was answered to it is in a file whose name follows from the client's number
//! and the token, in slots:
//!
//! ```text
//! header, 128 bytes:  magic[8] "PRESONCE"  version[4]  boot[36]  host[16]  owner[4]  zeros[60]
//! slot i, 512 bytes:  sequence[8] state[1] zeros[1] reply_len[2] extra_len[2] zeros[2] crc[4] reply[..] extra[..]
//! ```
//!
//! A slot is written before the request is done (state 1: begun) and after (state 2: done, with the reply). A request
//! takes the slot of its number modulo 256; so many may be unsettled. Where a slot says that a request was begun, nobody
//! can tell, and the client is told that.
//!
//! Slots are not synced, so the file outlives the node's process, not certainly the machine. `host` and `boot` say which
//! machine wrote to it last, and since when that was up: if that has started anew, slots may be missing, and nothing of
//! the file is believed. A file of another version is neither believed nor changed. Then the client is given a new token
//! and another file, and learns that of what it had asked nobody can tell.
//!
//! The file is as long as all slots from the beginning, with holes where none was written. Where there is no room for a slot
//! the file is given up: cut to nothing, so that a node that has it open sees that, and removed. What is unsettled is then in
//! memory alone, and goes into the next file, which is tried with the next request. So who is out of room can remove and cut
//! files; only if the node ends meanwhile can nobody tell what became of that.

use crate::clock::Clock;
use crate::own::OwnDirectory;
use crate::seal::Seal;
use presagio_ninep::Errno;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Numbered requests that a client may have unsettled.
pub const UNSETTLED_MAX: u64 = 256;

const MAGIC: &[u8; 8] = b"PRESONCE";
const VERSION: u32 = 3;
const HEADER: usize = 128;
const BOOT: usize = 12;
const HOST: usize = 48;
const OWNER: usize = 64;
const SLOT: usize = 512;
const SLOT_HEAD: usize = 20;
const BEGUN: u8 = 1;
const DONE: u8 = 2;

/// How long a file is that was not given up.
const WHOLE: usize = HEADER + SLOT * UNSETTLED_MAX as usize;

/// Disk quota exceeded.
const EDQUOT: Errno = Errno(122);

/// Instances that are kept in memory although nobody uses them.
const KNOWN_MAX: usize = 256;

/// How long a repeated request waits for the first to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Files of instances that were not heard of for so long are removed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// How often such files are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// A client that was started once and keeps its number over all its connections.
pub type Instance = [u8; 16];

/// What a client comes back with.
pub type Token = [u8; 16];

/// All instances that this node knows.
#[derive(Default)]
pub struct OnceTable {
    /// By the names of their files.
    all: Mutex<HashMap<String, Arc<Once>>>,
    swept: Mutex<Option<Instant>>,
}

impl OnceTable {
    /// The replies to an instance that comes back with `token`, from what is on disk if this node does not have them;
    /// `None` if of what it asked nobody can tell.
    pub fn find(
        &self,
        instance: Instance,
        token: Token,
        seal: &Seal,
        own: Option<&OwnDirectory>,
    ) -> io::Result<Option<Arc<Once>>> {
        let name = name_of(instance, token, seal);
        let known = self.all().get(&name).cloned();
        // Files are looked at without the lock: a call that hangs is nobody else's business.
        let given_up = match known {
            Some(once) if !once.is_given_up() => return Ok(Some(once)),
            given_up => given_up,
        };
        let found = own.map(|own| Once::open(name.clone(), token, own));
        let found = found.transpose()?.flatten();
        let mut all = self.all();
        let is_it = |now: &Arc<Once>| given_up.as_ref().is_some_and(|old| Arc::ptr_eq(old, now));
        if all.get(&name).is_some_and(is_it) {
            all.remove(&name);
        }
        // Another connection of it may have been faster.
        if let Some(once) = all.get(&name) {
            return Ok(Some(once.clone()));
        }
        let found = found.map(Arc::new);
        if let Some(once) = &found {
            enter(&mut all, once);
        }
        Ok(found)
    }

    /// Begins with an instance of which nothing is known.
    pub fn begin(&self, instance: Instance, seal: &Seal) -> io::Result<Arc<Once>> {
        let token = crate::seal::random()?;
        let once = Arc::new(Once::new(name_of(instance, token, seal), token));
        enter(&mut self.all(), &once);
        Ok(once)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Once>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what nobody uses from memory, if it is on disk.
    pub fn tidy(&self) {
        self.all()
            .retain(|_, once| Arc::strong_count(once) > 1 || once.is_only_here());
    }

    /// Every hour: shows that those who are here are, and removes the files of instances that were not heard of for a
    /// day.
    pub fn sweep_hourly(&self, own: &OwnDirectory, clock: &Clock) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = swept.is_none_or(|last| last.elapsed() > SWEEP_EVERY);
        if is_time {
            *swept = Some(Instant::now());
        }
        drop(swept);
        if is_time {
            self.sweep(own, clock);
        }
    }

    /// What cannot be looked at or removed stays; the others go.
    fn sweep(&self, own: &OwnDirectory, clock: &Clock) {
        let all: Vec<Arc<Once>> = self.all().values().cloned().collect();
        all.iter().for_each(|once| once.is_here());
        let here: HashSet<String> = all.iter().map(|once| once.name.clone()).collect();
        let entries = rustix::fs::Dir::read_from(own.once());
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_old = rustix::fs::statat(own.once(), name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| clock.age(stat.st_mtime) > FORGOTTEN_AFTER);
            let is_kept = matches!(name.to_bytes(), b"." | b"..")
                || name.to_str().is_ok_and(|name| here.contains(name));
            if is_old && !is_kept {
                let _ = rustix::fs::unlinkat(own.once(), name, AtFlags::empty());
            }
        }
    }
}

fn enter(all: &mut HashMap<String, Arc<Once>>, once: &Arc<Once>) {
    if all.len() >= KNOWN_MAX {
        all.retain(|_, once| Arc::strong_count(once) > 1 || once.is_only_here());
    }
    all.insert(once.name.clone(), once.clone());
}

/// Who lists the directory learns no token.
fn name_of(instance: Instance, token: Token, seal: &Seal) -> String {
    let name = seal.sign("once", &[&instance, &token]);
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The numbered requests of one instance.
pub struct Once {
    name: String,
    token: Token,
    /// Whose requests they are: who asked first.
    owner: OnceLock<u32>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Made when the first numbered request comes; none where nothing can be kept.
    file: Option<Arc<OwnedFd>>,
    replies: HashMap<u64, Step>,
    settled: u64,
}

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Somebody is at it.
    Running,
    /// Somebody was at it when the node ended.
    Unknown,
    /// It was done.
    Done(Kept),
}

/// What is kept of a request that was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Type and fields of the reply.
    pub reply: Vec<u8>,
    /// What is needed to let its fid stand for what it stood for: a handle.
    pub extra: Vec<u8>,
}

/// What a numbered request meets.
#[derive(Debug, PartialEq, Eq)]
pub enum Begin {
    /// It is new: do it, then say [`Once::done`].
    First,
    /// It was done.
    Again(Kept),
}

impl Once {
    fn new(name: String, token: Token) -> Once {
        Once {
            name,
            token,
            owner: OnceLock::new(),
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    fn open(name: String, token: Token, own: &OwnDirectory) -> io::Result<Option<Once>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(own.once(), &name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let mut once = Once::new(name, token);
        let is_known = once.load(&file)?;
        once.state().file = Some(Arc::new(file));
        Ok(is_known.then_some(once))
    }

    /// Whether the requests are this user's; from the first on they are somebody's.
    pub fn is_of(&self, uid: u32) -> bool {
        *self.owner.get_or_init(|| uid) == uid
    }

    /// Whoever it is for is here: its file is not old.
    fn is_here(&self) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        if let Some(file) = self.file_now() {
            // If not, it is as old as it is.
            let _ = rustix::fs::futimens(file, &times);
        }
    }

    /// The file; none if a request is just being begun or ended, which may take as long as the storage hangs.
    fn file_now(&self) -> Option<Arc<OwnedFd>> {
        self.state.try_lock().ok()?.file.clone()
    }

    /// Whether another node has given up the file that this one has open, and knows more. The header tells: it is gone for good,
    /// however long the file is.
    fn is_given_up(&self) -> bool {
        let Some(file) = self.file_now() else {
            return false;
        };
        let mut magic = [0; MAGIC.len()];
        rustix::io::pread(file, &mut magic, 0).is_ok_and(|_| magic != *MAGIC)
    }

    /// Sees to it that there is a file, with all that is unsettled in it, if there is room for one.
    fn have_file(&self, state: &mut State, own: Option<&OwnDirectory>) -> Result<(), Errno> {
        let Some(own) = own.filter(|_| state.file.is_none()) else {
            return Ok(());
        };
        match self.make(own, state) {
            Ok(file) => state.file = Some(Arc::new(file)),
            Err(error) => no_room(crate::error::errno(&error))?,
        }
        Ok(())
    }

    /// The header comes last: before it is there nobody believes the file, who would take slots that are still missing for
    /// requests that were never begun.
    fn make(&self, own: &OwnDirectory, state: &State) -> io::Result<OwnedFd> {
        let file = self.make_empty(own)?;
        let all = state.replies.iter();
        let written = all.into_iter().try_for_each(|(sequence, step)| match step {
            Step::Done(kept) if fits(kept) => write(&file, *sequence, DONE, kept),
            _ => write(&file, *sequence, BEGUN, &Kept::default()),
        });
        let written = written.map_err(|errno| io::Error::from_raw_os_error(errno.0 as i32));
        match written.and_then(|()| self.write_header(&file)) {
            Ok(()) => Ok(file),
            Err(error) => {
                // The next attempt may have more room.
                let _ = rustix::fs::ftruncate(&file, 0);
                let _ = rustix::fs::unlinkat(own.once(), &self.name, AtFlags::empty());
                Err(error)
            }
        }
    }

    /// There is no room for what must be in the file. What cannot be given up must not be done.
    fn give_up(&self, state: &mut State, own: Option<&OwnDirectory>) -> Result<(), Errno> {
        if let (Some(file), Some(own)) = (state.file.clone(), own) {
            state.learn(&file)?;
            rustix::fs::ftruncate(&file, 0).map_err(|_| Errno::NOSPC)?;
            // One that stays is empty, and is taken over when there is room again.
            let _ = rustix::fs::unlinkat(own.once(), &self.name, AtFlags::empty());
        }
        state.file = None;
        Ok(())
    }

    /// Nobody else makes a file of this name: no other node knows the token before there is one. An empty one was given up.
    fn make_empty(&self, own: &OwnDirectory) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let open = |more| {
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::openat(own.once(), &self.name, flags | more, mode)
        };
        let file = match open(OFlags::EXCL) {
            Err(rustix::io::Errno::EXIST) => {
                let left = open(OFlags::NOFOLLOW)?;
                if rustix::fs::fstat(&left)?.st_size != 0 {
                    return Err(rustix::io::Errno::EXIST.into());
                }
                left
            }
            opened => opened?,
        };
        match rustix::fs::ftruncate(&file, WHOLE as u64) {
            Ok(()) => Ok(file),
            Err(error) => {
                let _ = rustix::fs::unlinkat(own.once(), &self.name, AtFlags::empty());
                Err(error.into())
            }
        }
    }

    fn write_header(&self, file: &OwnedFd) -> io::Result<()> {
        let machine = Machine::this()?;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..BOOT].copy_from_slice(&VERSION.to_le_bytes());
        header[BOOT..HOST].copy_from_slice(&machine.boot);
        header[HOST..OWNER].copy_from_slice(&machine.host);
        let owner = self.owner.get().copied().unwrap_or(u32::MAX);
        header[OWNER..OWNER + 4].copy_from_slice(&owner.to_le_bytes());
        match rustix::io::pwrite(file, &header, 0)? {
            HEADER => Ok(()),
            _ => Err(rustix::io::Errno::NOSPC.into()),
        }
    }

    /// Whether nothing of it is on disk, and something would be lost with it.
    fn is_only_here(&self) -> bool {
        let state = self.state.try_lock();
        state.map_or(true, |state| {
            state.file.is_none() && !state.replies.is_empty()
        })
    }

    /// Reads what is there; false if nothing of it can be believed.
    fn load(&mut self, file: &OwnedFd) -> io::Result<bool> {
        let mut bytes = vec![0; WHOLE];
        let len = rustix::io::pread(file, &mut bytes, 0)?;
        let machine = Machine::this()?;
        if len < WHOLE || bytes[..8] != *MAGIC || bytes[8..BOOT] != VERSION.to_le_bytes() {
            return Ok(false);
        }
        let same_boot = bytes[BOOT..HOST] == machine.boot;
        if !same_boot && bytes[HOST..OWNER] == machine.host {
            return Ok(false);
        }
        if !same_boot {
            rustix::io::pwrite(
                file,
                &[&machine.boot[..], &machine.host].concat(),
                BOOT as u64,
            )?;
        }
        let owner = bytes[OWNER..OWNER + 4].try_into().expect("four bytes");
        self.owner = OnceLock::from(u32::from_le_bytes(owner));
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.replies.extend(slots(&bytes));
        Ok(true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the client comes back with.
    pub fn token(&self) -> Token {
        self.token
    }

    /// How many replies are kept.
    pub fn len(&self) -> usize {
        self.state().replies.len()
    }

    /// Whether a request may be one that came before, or have to wait for another. It does not wait to say so.
    pub fn may_repeat(&self, sequence: u64, settled: u64) -> bool {
        // Locked, somebody begins or ends a request, for as long as the storage hangs.
        let Ok(state) = self.state.try_lock() else {
            return true;
        };
        let runs = |(other, step): (&u64, &Step)| *other > settled && *step == Step::Running;
        state.replies.contains_key(&sequence) || state.replies.iter().any(runs)
    }

    /// Request `sequence` came; the replies up to `settled` are not needed any more.
    pub fn begin(
        &self,
        sequence: u64,
        settled: u64,
        own: Option<&OwnDirectory>,
    ) -> Result<Begin, Errno> {
        self.begin_within(PATIENCE, sequence, settled, own)
    }

    fn begin_within(
        &self,
        patience: Duration,
        sequence: u64,
        settled: u64,
        own: Option<&OwnDirectory>,
    ) -> Result<Begin, Errno> {
        let mut state = self.state();
        state.settle(settled);
        // The end of any request wakes: only that of this one ends the wait, or the time that all of it may take.
        let runs = |state: &mut State| state.replies.get(&sequence) == Some(&Step::Running);
        let waited = self.ended.wait_timeout_while(state, patience, runs);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match state.replies.get(&sequence) {
            Some(Step::Done(kept)) => return Ok(Begin::Again(kept.clone())),
            Some(Step::Unknown | Step::Running) => return Err(Errno::IO),
            None => {}
        }
        if sequence <= state.settled || sequence > state.settled.saturating_add(UNSETTLED_MAX) {
            return Err(Errno::INVAL);
        }
        // Under the lock: two first requests must not both make it.
        self.have_file(&mut state, own)?;
        // Another node of the export may have done it, or begun, after this one last looked.
        if let Some(step) = state.look(sequence) {
            if sequence > state.settled {
                state.replies.insert(sequence, step.clone());
            }
            return match step {
                Step::Done(kept) => Ok(Begin::Again(kept)),
                _ => Err(Errno::IO),
            };
        }
        if let Err(errno) = state.write(sequence, BEGUN, &Kept::default()) {
            no_room(errno)?;
            self.give_up(&mut state, own)?;
        }
        state.replies.insert(sequence, Step::Running);
        Ok(Begin::First)
    }

    /// Request `sequence`, which had begun, is done.
    pub fn done(&self, sequence: u64, kept: Kept) {
        self.ended_as(sequence, |state| {
            // If that fails, the client still gets its reply, and gets it again from this process; the next cannot
            // tell. So it is if this node was held up, and another has given the slot to a later request or given up the file.
            if state.has_slot(sequence) {
                let _ = state.write(sequence, DONE, &kept);
            }
            Step::Done(kept)
        });
    }

    /// Nobody will ever say what became of request `sequence`, which had begun.
    pub fn abandon(&self, sequence: u64) {
        self.ended_as(sequence, |_| Step::Unknown);
    }

    /// Under the lock: the slot of a request that was settled meanwhile may be another's by now.
    fn ended_as(&self, sequence: u64, step: impl FnOnce(&State) -> Step) {
        let mut state = self.state();
        if sequence > state.settled {
            let step = step(&state);
            state.replies.insert(sequence, step);
        }
        drop(state);
        self.ended.notify_all();
    }
}

impl State {
    fn settle(&mut self, settled: u64) {
        if settled > self.settled {
            self.settled = settled;
            self.replies.retain(|sequence, _| *sequence > settled);
        }
    }

    /// Takes over what is in the file of unsettled requests: another node may have been asked for them since this one looked.
    fn learn(&mut self, file: &OwnedFd) -> Result<(), Errno> {
        let mut bytes = vec![0; WHOLE];
        if rustix::io::pread(file, &mut bytes, 0) != Ok(WHOLE) {
            return Err(Errno::IO);
        }
        let last = bytes[HEADER..].chunks_exact(SLOT).filter_map(whose).max();
        self.settle_before(last.unwrap_or(0));
        for (sequence, step) in slots(&bytes).filter(|(sequence, _)| *sequence > self.settled) {
            self.replies.entry(sequence).or_insert(step);
        }
        Ok(())
    }

    /// What the file says of a request. Of one that was given up, by another node: that nobody here can tell. Nor of one whose
    /// slot another node has given to a later one: this node was held up, and the client has long gone on from there.
    fn look(&mut self, sequence: u64) -> Option<Step> {
        let file = self.file.as_ref()?;
        let mut slot = [0; SLOT];
        if rustix::io::pread(file, &mut slot, slot_at(sequence)) != Ok(SLOT) {
            return Some(Step::Unknown);
        }
        let (found, step) = read_slot(&slot)?;
        if let Some(later) = whose(&slot).filter(|whose| *whose > sequence) {
            self.settle_before(later);
            return Some(Step::Unknown);
        }
        (found == sequence).then_some(step)
    }

    /// A request that some node has begun says that those are settled that it would have had to wait for.
    fn settle_before(&mut self, begun: u64) {
        self.settle(begun.saturating_sub(UNSETTLED_MAX));
    }

    /// Whether the slot of a request that was begun is still its own.
    fn has_slot(&self, sequence: u64) -> bool {
        let Some(file) = &self.file else {
            return false;
        };
        let mut whose = [0; 8];
        rustix::io::pread(file, &mut whose, slot_at(sequence)) == Ok(whose.len())
            && u64::from_le_bytes(whose) == sequence
    }

    fn write(&self, sequence: u64, state: u8, kept: &Kept) -> Result<(), Errno> {
        let file = self.file.as_ref();
        file.map_or(Ok(()), |file| write(file, sequence, state, kept))
    }
}

/// Where the slot of a request is.
fn slot_at(sequence: u64) -> u64 {
    HEADER as u64 + (sequence % UNSETTLED_MAX) * SLOT as u64
}

fn write(file: &OwnedFd, sequence: u64, state: u8, kept: &Kept) -> Result<(), Errno> {
    let slot = make_slot(sequence, state, kept).ok_or(Errno::IO)?;
    match rustix::io::pwrite(file, &slot, slot_at(sequence)) {
        Ok(count) if count == slot.len() => Ok(()),
        Ok(_) => Err(Errno::NOSPC),
        Err(error) => Err(Errno(error.raw_os_error().unsigned_abs())),
    }
}

/// That there is no room is no reason not to go on, with what is in memory. Anything else is; and since it is about a file that
/// the client knows nothing of, it must not sound as if it were about one of its own: EEXIST would.
fn no_room(errno: Errno) -> Result<(), Errno> {
    match errno {
        Errno::NOSPC | EDQUOT => Ok(()),
        Errno::ROFS => Err(Errno::ROFS),
        _ => Err(Errno::IO),
    }
}

fn fits(kept: &Kept) -> bool {
    SLOT_HEAD + kept.reply.len() + kept.extra.len() <= SLOT
}

/// `None` if it does not fit, as the handle of a file that is found by a path of more than 400 bytes: after a restart
/// nobody can tell what became of that.
fn make_slot(sequence: u64, state: u8, kept: &Kept) -> Option<Vec<u8>> {
    let (reply, extra) = (&kept.reply, &kept.extra);
    if !fits(kept) {
        return None;
    }
    let mut slot = vec![0; SLOT];
    slot[..8].copy_from_slice(&sequence.to_le_bytes());
    slot[8] = state;
    slot[10..12].copy_from_slice(&(reply.len() as u16).to_le_bytes());
    slot[12..14].copy_from_slice(&(extra.len() as u16).to_le_bytes());
    slot[SLOT_HEAD..SLOT_HEAD + reply.len()].copy_from_slice(reply);
    slot[SLOT_HEAD + reply.len()..SLOT_HEAD + reply.len() + extra.len()].copy_from_slice(extra);
    let crc = crc32fast::hash(&slot);
    slot[16..20].copy_from_slice(&crc.to_le_bytes());
    Some(slot)
}

/// The request that has a slot; `None` if it is damaged, or nobody's.
fn whose(slot: &[u8]) -> Option<u64> {
    let sequence = u64::from_le_bytes(*slot.first_chunk()?);
    (sequence > 0 && is_sound(slot)).then_some(sequence)
}

/// Whether a slot is as it was written.
fn is_sound(slot: &[u8]) -> bool {
    let mut clean = slot.to_vec();
    clean[16..20].fill(0);
    crc32fast::hash(&clean).to_le_bytes() == slot[16..20]
}

/// What the slots of a whole file say.
fn slots(file: &[u8]) -> impl Iterator<Item = (u64, Step)> {
    file[HEADER..].chunks_exact(SLOT).filter_map(read_slot)
}

fn read_slot(slot: &[u8]) -> Option<(u64, Step)> {
    let sequence = u64::from_le_bytes(slot[..8].try_into().ok()?);
    if sequence == 0 {
        return None;
    }
    if !is_sound(slot) {
        return Some((sequence, Step::Unknown));
    }
    let length = |at: usize| usize::from(u16::from_le_bytes([slot[at], slot[at + 1]]));
    let (reply, extra) = (length(10), length(12));
    let step = match slot[8] {
        DONE => {
            let bytes = slot.get(SLOT_HEAD..SLOT_HEAD + reply + extra)?;
            let (reply, extra) = bytes.split_at(reply);
            Step::Done(Kept {
                reply: reply.to_vec(),
                extra: extra.to_vec(),
            })
        }
        _ => Step::Unknown,
    };
    Some((sequence, step))
}

/// The machine that this node runs on.
struct Machine {
    /// Changes when it starts anew.
    boot: [u8; 36],
    /// Does not, and other machines have another.
    host: [u8; 16],
}

impl Machine {
    fn this() -> io::Result<&'static Machine> {
        static THIS: OnceLock<Machine> = OnceLock::new();
        if let Some(this) = THIS.get() {
            return Ok(this);
        }
        let text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
        let boot = text.first_chunk().copied();
        let boot =
            boot.ok_or_else(|| io::Error::other("the kernel's boot id is not what it used to be"))?;
        let host = host();
        Ok(THIS.get_or_init(|| Machine { boot, host }))
    }
}

/// What the firmware says, else what the system was installed with, else the name: two that are taken for one cost a
/// client an error, one that is taken for two may do a request twice.
fn host() -> [u8; 16] {
    let sources = ["/sys/class/dmi/id/product_uuid", "/etc/machine-id"];
    let said = sources.iter().filter_map(|path| std::fs::read(path).ok());
    let name = rustix::system::uname().nodename().to_bytes().to_vec();
    let id = said.chain([name]).find(|id| !id.trim_ascii().is_empty());
    let hash = ring::digest::digest(&ring::digest::SHA256, &id.unwrap_or_default());
    *hash.as_ref().first_chunk().expect("32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn own() -> (tempfile::TempDir, OwnDirectory) {
        let dir = tempfile::tempdir().unwrap();
        let root = rustix::fs::open(
            dir.path(),
            OFlags::RDONLY | OFlags::DIRECTORY,
            Mode::empty(),
        );
        let own = OwnDirectory::open(root.unwrap().as_fd(), "node").unwrap();
        (dir, own)
    }

    fn kept(text: &[u8]) -> Kept {
        Kept {
            reply: text.to_vec(),
            extra: b"handle".to_vec(),
        }
    }

    fn seal() -> Seal {
        Seal::new(b"secret")
    }

    /// What a new node says to a client that was here first.
    fn first(own: Option<&OwnDirectory>) -> (OnceTable, Arc<Once>) {
        let table = OnceTable::default();
        let once = table.begin([1; 16], &seal()).unwrap();
        assert!(once.is_of(7) && !once.is_of(8));
        assert!(
            table
                .find([1; 16], [9; 16], &seal(), own)
                .unwrap()
                .is_none()
        );
        (table, once)
    }

    /// What the next node finds of it.
    fn next(once: &Once, own: &OwnDirectory) -> Option<Arc<Once>> {
        let next = OnceTable::default();
        next.find([1; 16], once.token(), &seal(), Some(own))
            .unwrap()
    }

    fn forge(once: &Once, at: usize, bytes: &[u8]) {
        let file = once.state().file.clone().unwrap();
        rustix::io::pwrite(file, bytes, at as u64).unwrap();
    }

    #[test]
    fn a_request_that_was_done_is_answered_alike_also_by_the_next_node() {
        let (_dir, own) = own();
        let (table, once) = first(Some(&own));
        assert_eq!(once.begin(1, 0, Some(&own)), Ok(Begin::First));
        once.done(1, kept(b"first"));
        let again = Ok(Begin::Again(kept(b"first")));
        assert_eq!(once.begin(1, 0, Some(&own)), again);
        let next = next(&once, &own).unwrap();
        assert_eq!((next.len(), next.begin(1, 0, Some(&own))), (1, again));
        assert!(next.is_of(7) && !next.is_of(8), "they are its user's");
        let found = |instance, token| table.find(instance, token, &seal(), Some(&own)).unwrap();
        assert!(found([1; 16], once.token()).is_some());
        assert!(found([2; 16], once.token()).is_none());
        assert!(found([1; 16], [0; 16]).is_none());
    }

    #[test]
    fn what_another_node_did_meanwhile_is_not_done_again() {
        let (_dir, own) = own();
        let (_, one) = first(Some(&own));
        one.begin(1, 0, Some(&own)).unwrap();
        one.done(1, kept(b"here"));
        let other = next(&one, &own).unwrap();
        assert_eq!(other.begin(2, 1, Some(&own)), Ok(Begin::First));
        other.done(2, kept(b"there"));
        assert_eq!(other.begin(3, 1, Some(&own)), Ok(Begin::First));
        assert_eq!(
            one.begin(2, 1, Some(&own)),
            Ok(Begin::Again(kept(b"there")))
        );
        assert_eq!(one.begin(3, 1, Some(&own)), Err(Errno::IO));
        assert_eq!(one.begin(4, 1, Some(&own)), Ok(Begin::First));
    }

    /// A client at A that asks nothing, then at B, then at A again, which is then started anew.
    #[test]
    fn who_goes_back_and_forth_between_nodes_is_known_everywhere() {
        let (_dir, own) = own();
        let (a, b) = (OnceTable::default(), OnceTable::default());
        let at_a = a.begin([1; 16], &seal()).unwrap();
        let find =
            |table: &OnceTable, token| table.find([1; 16], token, &seal(), Some(&own)).unwrap();
        assert!(find(&b, at_a.token()).is_none());
        let at_b = b.begin([1; 16], &seal()).unwrap();
        at_b.begin(1, 0, Some(&own)).unwrap();
        at_b.done(1, kept(b"r"));
        let again = find(&a, at_b.token()).expect("it is in the export");
        again.begin(2, 1, Some(&own)).unwrap();
        again.done(2, kept(b"s"));
        let after = find(&OnceTable::default(), at_b.token()).expect("it still is");
        assert_eq!(after.begin(2, 1, Some(&own)), Ok(Begin::Again(kept(b"s"))));
    }

    #[test]
    fn after_a_restart_of_the_machine_nobody_can_tell() {
        let (_dir, own) = own();
        let (_, once) = first(Some(&own));
        once.begin(1, 0, Some(&own)).unwrap();
        once.done(1, kept(b"r"));
        forge(&once, BOOT, &[b'0'; 36]);
        assert!(next(&once, &own).is_none(), "slots may have been lost");
    }

    #[test]
    fn what_a_node_of_another_machine_answered_counts() {
        let (_dir, own) = own();
        let (_, once) = first(Some(&own));
        once.begin(1, 0, Some(&own)).unwrap();
        once.done(1, kept(b"r"));
        forge(&once, BOOT, &[b'0'; 36]);
        forge(&once, HOST, &[7; 16]);
        for _ in 0..2 {
            let here = next(&once, &own).expect("that machine may never have stopped");
            assert_eq!(here.begin(1, 0, Some(&own)), Ok(Begin::Again(kept(b"r"))));
        }
        // This machine wrote to it last, and is started anew.
        forge(&once, BOOT, &[b'0'; 36]);
        assert!(next(&once, &own).is_none());
    }

    #[test]
    fn a_file_of_another_version_is_neither_believed_nor_changed() {
        let (dir, own) = own();
        let (_, once) = first(Some(&own));
        once.begin(1, 0, Some(&own)).unwrap();
        once.done(1, kept(b"r"));
        forge(&once, 8, &(VERSION + 1).to_le_bytes());
        let path = dir.path().join(".presagio/once").join(&once.name);
        let before = std::fs::read(&path).unwrap();
        let table = OnceTable::default();
        let found = table.find([1; 16], once.token(), &seal(), Some(&own));
        assert!(found.unwrap().is_none());
        let new = table.begin([1; 16], &seal()).unwrap();
        new.begin(1, 0, Some(&own)).unwrap();
        new.done(1, kept(b"new"));
        assert!(std::fs::read(&path).unwrap() == before);
    }

    /// Two nodes know a client; at the first there is no room for its next request.
    #[test]
    fn what_was_asked_when_there_was_no_room_is_not_done_twice_by_another_node() {
        let (_dir, own) = own();
        let (_, one) = first(Some(&own));
        one.begin(1, 0, Some(&own)).unwrap();
        one.done(1, kept(b"r"));
        let table = OnceTable::default();
        let find = || table.find([1; 16], one.token(), &seal(), Some(&own));
        let other = find().unwrap().expect("it is in the export");
        one.give_up(&mut one.state(), Some(&own)).unwrap();
        one.state().replies.insert(2, Step::Running);
        one.done(2, kept(b"s"));
        assert!(one.is_only_here());
        // Who is at the other already is told that nobody can tell, who comes to it begins anew.
        assert_eq!(other.begin(2, 1, Some(&own)), Err(Errno::IO));
        assert!(find().unwrap().is_none());
        // There is room again: what is unsettled is in the next file.
        assert_eq!(one.begin(3, 1, Some(&own)), Ok(Begin::First));
        assert!(!one.is_only_here());
        let next = find().unwrap().expect("it is in the export again");
        assert_eq!(next.begin(2, 1, Some(&own)), Ok(Begin::Again(kept(b"s"))));
        assert_eq!(next.begin(3, 1, Some(&own)), Err(Errno::IO));
    }

    #[test]
    fn what_another_node_did_is_not_forgotten_where_there_is_no_room() {
        let (_dir, own) = own();
        let (_, one) = first(Some(&own));
        one.begin(1, 0, Some(&own)).unwrap();
        one.done(1, kept(b"r"));
        let other = next(&one, &own).unwrap();
        other.begin(2, 1, Some(&own)).unwrap();
        other.done(2, kept(b"there"));
        other.begin(3, 1, Some(&own)).unwrap();
        one.begin(4, 1, Some(&own)).unwrap();
        one.give_up(&mut one.state(), Some(&own)).unwrap();
        let again = Ok(Begin::Again(kept(b"there")));
        assert_eq!(one.begin(2, 1, None), again);
        assert_eq!(one.begin(3, 1, None), Err(Errno::IO));
        assert_eq!(one.begin(1, 1, None), Err(Errno::INVAL), "it is settled");
    }

    /// The node's own directory is lost, after a reply could be kept in memory alone.
    #[test]
    fn what_was_done_is_told_also_where_nothing_more_can_be_kept() {
        let (dir, own) = own();
        let (_, once) = first(Some(&own));
        assert_eq!(once.begin(1, 0, None), Ok(Begin::First));
        once.done(1, kept(b"r"));
        std::fs::remove_dir(dir.path().join(".presagio/once")).unwrap();
        let again = Ok(Begin::Again(kept(b"r")));
        assert_eq!(once.begin(1, 0, Some(&own)), again);
        // Not ENOENT, as if it were about what the client asked for.
        assert_eq!(once.begin(2, 0, Some(&own)), Err(Errno::IO));
    }

    #[test]
    fn a_request_that_ends_late_leaves_the_slot_to_its_successor() {
        let (_dir, own) = own();
        let (_, once) = first(Some(&own));
        let (early, late) = (1, 1 + UNSETTLED_MAX);
        once.begin(early, 0, Some(&own)).unwrap();
        once.begin(late, early, Some(&own)).unwrap();
        once.done(late, kept(b"late"));
        once.done(early, kept(b"early"));
        assert_eq!(once.len(), 1);
        let next = next(&once, &own).unwrap();
        let again = next.begin(late, early, Some(&own));
        assert_eq!(again, Ok(Begin::Again(kept(b"late"))));
    }

    /// One node is held up in a request; at another its client is told that nobody can tell, and goes on.
    #[test]
    fn a_request_that_ends_late_leaves_the_slot_to_what_another_node_did() {
        let (_dir, own) = own();
        let (_, one) = first(Some(&own));
        let (early, late) = (1, 1 + UNSETTLED_MAX);
        one.begin(early, 0, Some(&own)).unwrap();
        let other = next(&one, &own).unwrap();
        assert_eq!(other.begin(early, 0, Some(&own)), Err(Errno::IO));
        assert_eq!(other.begin(late, early, Some(&own)), Ok(Begin::First));
        other.done(late, kept(b"late"));
        one.done(early, kept(b"early"));
        let third = next(&one, &own).unwrap();
        let again = third.begin(late, early, Some(&own));
        assert_eq!(again, Ok(Begin::Again(kept(b"late"))));
    }

    /// One node is held up before it begins; its client has long gone on at another.
    #[test]
    fn a_request_that_begins_late_is_not_done_again_and_leaves_the_slot_alone() {
        let (_dir, own) = own();
        let (_, one) = first(Some(&own));
        one.begin(3, 0, Some(&own)).unwrap();
        one.done(3, kept(b"r"));
        let other = next(&one, &own).unwrap();
        let (early, late) = (4, 4 + UNSETTLED_MAX);
        for sequence in [early, late] {
            let begun = other.begin(sequence, sequence - 1, Some(&own));
            assert_eq!(begun, Ok(Begin::First));
            other.done(sequence, kept(b"there"));
        }
        assert_eq!(one.begin(early, 3, Some(&own)), Err(Errno::IO));
        one.begin(early, 3, Some(&own)).unwrap_err();
        let third = next(&one, &own).unwrap();
        let again = Ok(Begin::Again(kept(b"there")));
        assert_eq!(third.begin(late, late - 1, Some(&own)), again);
        // Nor where there is no room for the file any more.
        let third = next(&one, &own).unwrap();
        third.give_up(&mut third.state(), Some(&own)).unwrap();
        third.begin(early, 3, Some(&own)).unwrap_err();
        assert_eq!(third.begin(late, late - 1, Some(&own)), again);
    }

    #[test]
    fn a_slot_that_was_damaged_keeps_no_other_request_from_being_done() {
        let (_dir, own) = own();
        let (_, once) = first(Some(&own));
        once.begin(3, 2, Some(&own)).unwrap();
        once.done(3, kept(b"r"));
        forge(&once, HEADER + 3 * SLOT, &[0xff; 8]);
        let next = next(&once, &own).unwrap();
        let later = 3 + UNSETTLED_MAX;
        assert_eq!(next.begin(later, later - 1, Some(&own)), Ok(Begin::First));
    }

    #[test]
    fn a_request_that_ends_late_makes_nothing_of_a_file_that_another_node_gave_up() {
        let (_dir, own) = own();
        let (_, one) = first(Some(&own));
        // Its slot is the last in the file.
        let last = UNSETTLED_MAX - 1;
        one.begin(last, 0, Some(&own)).unwrap();
        let other = next(&one, &own).unwrap();
        other.give_up(&mut other.state(), Some(&own)).unwrap();
        one.done(last, kept(b"late"));
        assert!(one.is_given_up());
        assert_eq!(one.begin(3, 0, Some(&own)), Err(Errno::IO));
    }

    #[test]
    fn what_is_in_memory_alone_is_not_forgotten_because_many_come() {
        let table = OnceTable::default();
        let once = table.begin([1; 16], &seal()).unwrap();
        let token = once.token();
        once.begin(1, 0, None).unwrap();
        once.done(1, kept(b"r"));
        drop(once);
        for _ in 0..=KNOWN_MAX {
            drop(table.begin([2; 16], &seal()).unwrap());
        }
        let found = table.find([1; 16], token, &seal(), None).unwrap();
        let again = found.expect("it is here alone").begin(1, 0, None);
        assert_eq!(again, Ok(Begin::Again(kept(b"r"))));
    }

    #[test]
    fn of_a_request_that_had_only_begun_nobody_can_tell() {
        let (_dir, own) = own();
        let (_, once) = first(Some(&own));
        assert_eq!(once.begin(5, 4, Some(&own)), Ok(Begin::First));
        let next = next(&once, &own).unwrap();
        assert_eq!(next.begin(5, 4, Some(&own)), Err(Errno::IO));
        assert_eq!(next.begin(6, 5, Some(&own)), Ok(Begin::First));
    }

    #[test]
    fn settled_replies_are_forgotten_and_too_many_unsettled_refused() {
        let (_dir, own) = own();
        let (_, once) = first(Some(&own));
        for sequence in 1..=UNSETTLED_MAX {
            assert_eq!(once.begin(sequence, 0, Some(&own)), Ok(Begin::First));
            once.done(sequence, kept(b"r"));
        }
        assert_eq!(
            once.begin(UNSETTLED_MAX + 1, 0, Some(&own)),
            Err(Errno::INVAL)
        );
        assert_eq!(
            once.begin(UNSETTLED_MAX + 1, 1, Some(&own)),
            Ok(Begin::First)
        );
        assert_eq!(once.begin(1, 1, Some(&own)), Err(Errno::INVAL));
        assert_eq!(once.len() as u64, UNSETTLED_MAX);
    }

    #[test]
    fn a_slot_that_was_damaged_is_one_of_which_nobody_can_tell() {
        let (_dir, own) = own();
        let (_, once) = first(Some(&own));
        once.begin(3, 2, Some(&own)).unwrap();
        once.done(3, kept(b"r"));
        forge(&once, HEADER + 3 * SLOT + SLOT_HEAD, b"x");
        let next = next(&once, &own).unwrap();
        assert_eq!(next.begin(3, 2, Some(&own)), Err(Errno::IO));
    }

    #[test]
    fn who_is_here_is_not_forgotten_whatever_the_clock_says() {
        let (dir, own) = own();
        let (table, here) = first(Some(&own));
        let (_, gone) = first(Some(&own));
        for once in [&here, &gone] {
            once.begin(1, 0, Some(&own)).unwrap();
            once.done(1, kept(b"r"));
        }
        let now = Clock::default();
        table.sweep(&own, &now);
        let is_there = |once: &Once| {
            rustix::fs::statat(own.once(), &once.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        };
        assert!(is_there(&here) && is_there(&gone));
        let day = Duration::from_secs(24 * 3600);
        let later = Clock::set_to(now.now() + 2 * day);
        // What cannot be removed keeps nothing else from being.
        std::fs::create_dir(dir.path().join(".presagio/once/0")).unwrap();
        table.sweep(&own, &later);
        assert!(is_there(&here) && !is_there(&gone));
    }

    #[test]
    fn of_a_request_that_never_ends_nobody_can_tell() {
        let (_, once) = first(None);
        assert_eq!(once.begin(1, 0, None), Ok(Begin::First));
        once.abandon(1);
        assert_eq!(once.begin(1, 0, None), Err(Errno::IO));
    }

    #[test]
    fn a_repeated_request_waits_for_the_first_to_end() {
        let (_, once) = first(None);
        assert_eq!(once.begin(1, 0, None), Ok(Begin::First));
        let again = once.clone();
        let waiting = std::thread::spawn(move || again.begin(1, 0, None));
        once.done(1, kept(b"r"));
        assert_eq!(waiting.join().unwrap(), Ok(Begin::Again(kept(b"r"))));
    }

    #[test]
    fn a_repeated_request_does_not_wait_longer_because_others_end() {
        let (_, once) = first(None);
        assert_eq!(once.begin(1, 0, None), Ok(Begin::First));
        let again = once.clone();
        let patience = Duration::from_secs(1);
        let waiting = std::thread::spawn(move || again.begin_within(patience, 1, 0, None));
        let late = Instant::now() + Duration::from_secs(60);
        while !waiting.is_finished() && Instant::now() < late {
            once.done(2, kept(b"other"));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(waiting.is_finished(), "it waits for ever");
        assert_eq!(waiting.join().unwrap(), Err(Errno::IO));
    }

    #[test]
    fn only_what_came_before_and_what_is_under_way_keep_a_request_from_being_done_at_once() {
        let (_, once) = first(None);
        once.begin(1, 0, None).unwrap();
        assert!(once.may_repeat(1, 0) && once.may_repeat(2, 0));
        once.done(1, kept(b"r"));
        assert!(once.may_repeat(1, 0), "it was done");
        assert!(!once.may_repeat(2, 0) && !once.may_repeat(2, 1));
        once.begin(2, 1, None).unwrap();
        assert!(once.may_repeat(3, 1) && !once.may_repeat(3, 2));
        once.abandon(2);
        assert!(once.may_repeat(2, 1) && !once.may_repeat(3, 1));
    }

    /// Loops ask that of every request.
    #[test]
    fn whether_a_request_may_repeat_is_said_also_while_the_storage_hangs() {
        let (_, once) = first(None);
        assert!(!once.may_repeat(1, 0));
        let asks = once.clone();
        let (send, said) = std::sync::mpsc::channel();
        let hangs = once.state();
        let asking = std::thread::spawn(move || send.send(asks.may_repeat(1, 0)));
        let said = said.recv_timeout(Duration::from_secs(60));
        drop(hangs);
        asking.join().unwrap().unwrap();
        assert_eq!(said, Ok(true));
    }
}
