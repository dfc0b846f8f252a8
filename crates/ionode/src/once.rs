//! Requests that must not be done twice: the replies that were given, kept in the export.
//!
//! A client that loses its connection does not know whether its rename was done. It asks again, under the same number,
//! and gets the reply that it would have got. Each instance of a client has a file of slots:
//!
//! ```text
//! header, 64 bytes:   magic[8] "PRESONCE"  version[4]  boot[36]  nonce[16]
//! slot i, 512 bytes:  sequence[8] state[1] zeros[1] reply_len[2] extra_len[2] zeros[2] crc[4] reply[..] extra[..]
//! ```
//!
//! `nonce` was drawn when the node met the instance first, and is in the token that the client comes back with: who has a
//! token from before everything was forgotten is told that it was.
//!
//! A slot is written before the request is done (state 1: begun) and after (state 2: done, with the reply). A request
//! takes the slot of its number modulo 256; so many may be unsettled. The file outlives the node's process, not
//! certainly the machine: after a restart of that (`boot` differs), and where a slot says that a request was begun,
//! nobody can tell, and the client is told that.

use crate::clock::Clock;
use crate::own::OwnDirectory;
use presagio_ninep::Errno;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Numbered requests that a client may have unsettled.
pub const UNSETTLED_MAX: u64 = 256;

const MAGIC: &[u8; 8] = b"PRESONCE";
const VERSION: u32 = 1;
const HEADER: usize = 64;
const SLOT: usize = 512;
const SLOT_HEAD: usize = 20;
const BEGUN: u8 = 1;
const DONE: u8 = 2;

/// Instances that are kept in memory although nobody uses them.
const KNOWN_MAX: usize = 256;

/// How long a repeated request waits for the first to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Files of instances that were not heard of for so long are removed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A client that was started once and keeps its number over all its connections.
pub type Instance = [u8; 16];

/// All instances that this node knows.
#[derive(Default)]
pub struct OnceTable(Mutex<HashMap<Instance, Arc<Once>>>);

impl OnceTable {
    /// The replies to an instance, from what is on disk if this node does not have them. The second value says whether
    /// there was anything.
    pub fn find(
        &self,
        instance: Instance,
        own: Option<&OwnDirectory>,
    ) -> io::Result<(Arc<Once>, bool)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(once) = all.get(&instance) {
            return Ok((once.clone(), true));
        }
        if all.len() >= KNOWN_MAX {
            all.retain(|_, once| Arc::strong_count(once) > 1);
        }
        let (once, known) = Once::open(instance, own)?;
        let once = Arc::new(once);
        all.insert(instance, once.clone());
        Ok((once, known))
    }

    /// Begins anew with an instance of which nothing is kept.
    pub fn renew(&self, instance: Instance) -> io::Result<Arc<Once>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let once = Arc::new(Once::new(instance)?);
        all.insert(instance, once.clone());
        Ok(once)
    }

    /// Drops what nobody uses from memory, if it is on disk.
    pub fn tidy(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, once| Arc::strong_count(once) > 1 || once.is_only_here());
    }

    /// Removes the files of instances that were not heard of for a day.
    pub fn sweep(&self, own: &OwnDirectory, clock: &Clock) -> io::Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let here: HashSet<String> = all.values().map(|once| once.name.clone()).collect();
        drop(all);
        for entry in rustix::fs::Dir::read_from(own.once())? {
            let entry = entry?;
            let name = entry.file_name();
            let stat = rustix::fs::statat(own.once(), name, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_old = clock.age(stat.st_mtime) > FORGOTTEN_AFTER;
            let is_kept = matches!(name.to_bytes(), b"." | b"..")
                || name.to_str().is_ok_and(|name| here.contains(name));
            if is_old && !is_kept {
                rustix::fs::unlinkat(own.once(), name, AtFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// The numbered requests of one instance.
pub struct Once {
    name: String,
    nonce: [u8; 16],
    /// Made when the first numbered request comes.
    file: OnceLock<Option<OwnedFd>>,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
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
    fn new(instance: Instance) -> io::Result<Once> {
        Ok(Once {
            name: instance.iter().map(|byte| format!("{byte:02x}")).collect(),
            nonce: crate::seal::random()?,
            file: OnceLock::new(),
            state: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    fn open(instance: Instance, own: Option<&OwnDirectory>) -> io::Result<(Once, bool)> {
        let mut once = Once::new(instance)?;
        let Some(own) = own else {
            return Ok((once, false));
        };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(own.once(), &once.name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok((once, false)),
            other => other?,
        };
        let known = once.load(&file)?;
        once.file = OnceLock::from(Some(file));
        Ok((once, known))
    }

    /// The file, made if need be; `None` where nothing can be kept.
    fn file(&self, own: Option<&OwnDirectory>) -> Result<Option<&OwnedFd>, Errno> {
        if self.file.get().is_none() {
            let made = own.map(|own| self.make(own)).transpose();
            // Another thread may have been faster: it made the same.
            let _ = self
                .file
                .set(made.map_err(|error| crate::error::errno(&error))?);
        }
        Ok(self.file.get().and_then(Option::as_ref))
    }

    fn make(&self, own: &OwnDirectory) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(own.once(), &self.name, flags, Mode::RUSR | Mode::WUSR)?;
        // Another node of the export may have made it since this one looked.
        let mut magic = [0; 8];
        if rustix::io::pread(&file, &mut magic, 0)? < magic.len() || magic != *MAGIC {
            begin_file(&file, &self.nonce)?;
        }
        Ok(file)
    }

    /// Whether nothing of it is on disk, and something would be lost with it.
    fn is_only_here(&self) -> bool {
        !matches!(self.file.get(), Some(Some(_))) && self.len() > 0
    }

    /// Reads what is there. A file that is no such file is begun anew: it is ours alone, so a crash of the machine left
    /// it so.
    fn load(&mut self, file: &OwnedFd) -> io::Result<bool> {
        let boot = boot()?;
        let mut bytes = vec![0; HEADER + SLOT * UNSETTLED_MAX as usize];
        let len = rustix::io::pread(file, &mut bytes, 0)?;
        let is_ours =
            len >= HEADER && bytes[..8] == *MAGIC && bytes[8..12] == VERSION.to_le_bytes();
        if !is_ours {
            begin_file(file, &self.nonce)?;
            return Ok(false);
        }
        let same_boot = bytes[12..48] == boot;
        self.nonce.copy_from_slice(&bytes[48..64]);
        rustix::io::pwrite(file, &boot, 12)?;
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for slot in bytes[HEADER..len].chunks_exact(SLOT) {
            if let Some((sequence, step)) = read_slot(slot) {
                let step = if same_boot { step } else { Step::Unknown };
                state.replies.insert(sequence, step);
            }
        }
        Ok(true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in the client's token.
    pub fn nonce(&self) -> &[u8; 16] {
        &self.nonce
    }

    /// How many replies are kept.
    pub fn len(&self) -> usize {
        self.state().replies.len()
    }

    /// Request `sequence` came; the replies up to `settled` are not needed any more.
    pub fn begin(
        &self,
        sequence: u64,
        settled: u64,
        own: Option<&OwnDirectory>,
    ) -> Result<Begin, Errno> {
        let mut state = self.state();
        // Under the lock: two first requests must not both make it.
        self.file(own)?;
        state.settle(settled);
        loop {
            match state.replies.get(&sequence) {
                Some(Step::Done(kept)) => return Ok(Begin::Again(kept.clone())),
                Some(Step::Unknown) => return Err(Errno::IO),
                Some(Step::Running) => {
                    let (next, late) = self
                        .ended
                        .wait_timeout(state, PATIENCE)
                        .unwrap_or_else(PoisonError::into_inner);
                    state = next;
                    if late.timed_out() {
                        return Err(Errno::IO);
                    }
                }
                None => break,
            }
        }
        // Another node of the export may have done it, or begun, after this one last looked.
        if let Some(step) = self.look(sequence) {
            state.replies.insert(sequence, step.clone());
            return match step {
                Step::Done(kept) => Ok(Begin::Again(kept)),
                _ => Err(Errno::IO),
            };
        }
        if sequence <= state.settled || sequence > state.settled.saturating_add(UNSETTLED_MAX) {
            return Err(Errno::INVAL);
        }
        self.write(sequence, BEGUN, &Kept::default())?;
        state.replies.insert(sequence, Step::Running);
        Ok(Begin::First)
    }

    /// Request `sequence`, which had begun, is done.
    pub fn done(&self, sequence: u64, kept: Kept) {
        // If that fails, the client still gets its reply, and gets it again from this process; the next cannot tell.
        let _ = self.write(sequence, DONE, &kept);
        self.state().replies.insert(sequence, Step::Done(kept));
        self.ended.notify_all();
    }

    /// Nobody will ever say what became of request `sequence`, which had begun.
    pub fn abandon(&self, sequence: u64) {
        self.state().replies.insert(sequence, Step::Unknown);
        self.ended.notify_all();
    }

    /// What the file says of a request.
    fn look(&self, sequence: u64) -> Option<Step> {
        let file = self.file.get()?.as_ref()?;
        let mut slot = [0; SLOT];
        let at = HEADER as u64 + (sequence % UNSETTLED_MAX) * SLOT as u64;
        let is_whole = rustix::io::pread(file, &mut slot, at) == Ok(SLOT);
        let (found, step) = is_whole.then(|| read_slot(&slot))??;
        (found == sequence).then_some(step)
    }

    fn write(&self, sequence: u64, state: u8, kept: &Kept) -> Result<(), Errno> {
        let Some(Some(file)) = self.file.get() else {
            return Ok(());
        };
        let slot = make_slot(sequence, state, kept).ok_or(Errno::IO)?;
        let at = HEADER as u64 + (sequence % UNSETTLED_MAX) * SLOT as u64;
        let written = rustix::io::pwrite(file, &slot, at);
        match written {
            Ok(count) if count == slot.len() => Ok(()),
            Ok(_) => Err(Errno::NOSPC),
            Err(error) => Err(Errno(error.raw_os_error().unsigned_abs())),
        }
    }
}

impl State {
    fn settle(&mut self, settled: u64) {
        if settled > self.settled {
            self.settled = settled;
            self.replies.retain(|sequence, _| *sequence > settled);
        }
    }
}

/// An empty file of slots.
fn begin_file(file: &OwnedFd, nonce: &[u8; 16]) -> io::Result<()> {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..48].copy_from_slice(&boot()?);
    header[48..64].copy_from_slice(nonce);
    rustix::fs::ftruncate(file, 0)?;
    match rustix::io::pwrite(file, &header, 0)? {
        HEADER => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// `None` if it does not fit, which no reply that is kept is too long for.
fn make_slot(sequence: u64, state: u8, kept: &Kept) -> Option<Vec<u8>> {
    let (reply, extra) = (&kept.reply, &kept.extra);
    if SLOT_HEAD + reply.len() + extra.len() > SLOT {
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

fn read_slot(slot: &[u8]) -> Option<(u64, Step)> {
    let sequence = u64::from_le_bytes(slot[..8].try_into().ok()?);
    if sequence == 0 {
        return None;
    }
    let mut clean = slot.to_vec();
    clean[16..20].fill(0);
    if crc32fast::hash(&clean).to_le_bytes() != slot[16..20] {
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

/// Changes when the machine starts anew.
fn boot() -> io::Result<[u8; 36]> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    let id = text.first_chunk().copied();
    id.ok_or_else(|| io::Error::other("the kernel's boot id is not what it used to be"))
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

    #[test]
    fn a_request_that_was_done_is_answered_alike_also_by_the_next_node() {
        let (_dir, own) = own();
        let table = OnceTable::default();
        let (once, known) = table.find([1; 16], Some(&own)).unwrap();
        assert!(!known);
        assert_eq!(once.begin(1, 0, Some(&own)), Ok(Begin::First));
        once.done(1, kept(b"first"));
        assert_eq!(
            once.begin(1, 0, Some(&own)),
            Ok(Begin::Again(kept(b"first")))
        );
        let (next, known) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
        assert!(known && next.len() == 1);
        assert_eq!(
            next.begin(1, 0, Some(&own)),
            Ok(Begin::Again(kept(b"first")))
        );
        let (other, known) = OnceTable::default().find([2; 16], Some(&own)).unwrap();
        assert!(!known && other.len() == 0);
    }

    #[test]
    fn what_another_node_did_meanwhile_is_not_done_again() {
        let (_dir, own) = own();
        let (one, _) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
        let (other, _) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
        assert_eq!(other.begin(1, 0, Some(&own)), Ok(Begin::First));
        other.done(1, kept(b"there"));
        assert_eq!(other.begin(2, 0, Some(&own)), Ok(Begin::First));
        assert_eq!(
            one.begin(1, 0, Some(&own)),
            Ok(Begin::Again(kept(b"there")))
        );
        assert_eq!(one.begin(2, 0, Some(&own)), Err(Errno::IO));
        assert_eq!(one.begin(3, 0, Some(&own)), Ok(Begin::First));
    }

    #[test]
    fn of_a_request_that_had_only_begun_nobody_can_tell() {
        let (_dir, own) = own();
        let (once, _) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
        assert_eq!(once.begin(5, 4, Some(&own)), Ok(Begin::First));
        let (next, _) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
        assert_eq!(next.begin(5, 4, Some(&own)), Err(Errno::IO));
        assert_eq!(next.begin(6, 5, Some(&own)), Ok(Begin::First));
    }

    #[test]
    fn settled_replies_are_forgotten_and_too_many_unsettled_refused() {
        let (_dir, own) = own();
        let (once, _) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
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
        let (once, _) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
        once.begin(3, 2, Some(&own)).unwrap();
        once.done(3, kept(b"r"));
        let at = (HEADER + 3 * SLOT + SLOT_HEAD) as u64;
        rustix::io::pwrite(once.file.get().unwrap().as_ref().unwrap(), b"x", at).unwrap();
        let (next, _) = OnceTable::default().find([1; 16], Some(&own)).unwrap();
        assert_eq!(next.begin(3, 2, Some(&own)), Err(Errno::IO));
    }

    #[test]
    fn who_is_here_is_not_forgotten_whatever_the_clock_says() {
        let (_dir, own) = own();
        let table = OnceTable::default();
        let (here, _) = table.find([1; 16], Some(&own)).unwrap();
        let (gone, _) = OnceTable::default().find([2; 16], Some(&own)).unwrap();
        for once in [&here, &gone] {
            once.begin(1, 0, Some(&own)).unwrap();
            once.done(1, kept(b"r"));
        }
        let now = Clock::default();
        table.sweep(&own, &now).unwrap();
        let is_there = |once: &Once| {
            rustix::fs::statat(own.once(), &once.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        };
        assert!(is_there(&here) && is_there(&gone));
        let day = Duration::from_secs(24 * 3600);
        let later = Clock::set_to(now.now() + 2 * day);
        table.sweep(&own, &later).unwrap();
        assert!(is_there(&here) && !is_there(&gone));
    }

    #[test]
    fn of_a_request_that_never_ends_nobody_can_tell() {
        let (once, _) = OnceTable::default().find([1; 16], None).unwrap();
        assert_eq!(once.begin(1, 0, None), Ok(Begin::First));
        once.abandon(1);
        assert_eq!(once.begin(1, 0, None), Err(Errno::IO));
    }

    #[test]
    fn a_repeated_request_waits_for_the_first_to_end() {
        let (once, _) = OnceTable::default().find([1; 16], None).unwrap();
        assert_eq!(once.begin(1, 0, None), Ok(Begin::First));
        let again = once.clone();
        let waiting = std::thread::spawn(move || again.begin(1, 0, None));
        once.done(1, kept(b"r"));
        assert_eq!(waiting.join().unwrap(), Ok(Begin::Again(kept(b"r"))));
    }
}
