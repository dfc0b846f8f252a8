//! Reads and writes of files: the way through the scheduler.
//!
//! 1. A loop calls [`Data::read`] or [`Data::write`]. The range is split at the borders of data servers; each piece waits in
//!    the loop's table of operations, and its request, which carries the place in that table and no bytes, goes to the
//!    engine.
//! 2. The engine decides, on the thread of some loop, and gives batches to [`Dispatcher`], which only passes them on: to the
//!    mailbox of the loop that has the first of its parts.
//! 3. That loop calls [`Data::serve`]. A read that the page cache can answer, and a write while writes are quick, is done at
//!    once, all parts in one vectored call; else it goes to the threads ([`crate::jobs`]).
//! 4. Each part gets its share of what was read or written. Its reply goes to the mailbox of its own loop, and the engine is
//!    told that it is finished.

use crate::accounts::Load;
use crate::buffer::{Buffer, Buffers};
use crate::error::{OrErrno, Result, errno};
use crate::export::stat_of;
use crate::files::OpenFile;
use crate::identity::{Identity, Power};
use crate::jobs::{Jobs, Pace, unharmed};
use crate::net::{Done, Mailbox, Mailboxes, Out, ReplyTo};
use crate::record::{Answered, Recording};
use crate::session::Session;
use presagio_core::{HandleId, Nanos, Op, Range, Request, RequestId};
use presagio_engine::{Engine, Service};
use presagio_ninep::{Errno, Tag};
use presagio_sched::{Batch, Part, Ticket};
use presagio_storage::Piece;
use slab::Slab;
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Under which kind the pace of writes is kept.
pub const WRITING: u8 = 118;

/// Where in a request's id the loop's number is.
const LOOP_SHIFT: u32 = 48;

/// All reads and writes that are under way.
pub struct Data {
    engine: OnceLock<Engine>,
    /// Per loop, what its connections have under way.
    pending: Vec<Mutex<Slab<Pending>>>,
    mail: Mailboxes,
    jobs: Arc<Jobs>,
    pace: Arc<Pace>,
    power: Power,
    /// Whom data is moved as.
    mover: Arc<Identity>,
    /// Whether loops have rings.
    ring: bool,
    /// Buffers for what is read.
    pub buffers: Arc<Buffers>,
    /// Who is told of what was answered.
    pub recording: Recording,
}

/// A piece of a request that is under way.
struct Pending {
    to: ReplyTo,
    session: Arc<Session>,
    file: Arc<OpenFile>,
    whole: Whole,
    object: u16,
    work: Work,
    /// The whole, if this is not all of it.
    join: Option<(Arc<Join>, usize)>,
}

/// The request that a piece is of.
#[derive(Clone, Copy)]
struct Whole {
    op: Op,
    range: Range,
    since: Nanos,
}

enum Work {
    Read(Buffer),
    Write(Payload),
}

/// Bytes to write: a part of what came.
#[derive(Clone)]
pub struct Payload {
    buffer: Arc<Buffer>,
    start: usize,
    len: usize,
}

impl Payload {
    /// All of a buffer.
    pub fn new(buffer: Buffer) -> Payload {
        let len = buffer.len();
        Payload {
            buffer: Arc::new(buffer),
            start: 0,
            len,
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.start..self.start + self.len]
    }

    fn part(&self, start: usize, len: usize) -> Payload {
        Payload {
            buffer: self.buffer.clone(),
            start: self.start + start,
            len,
        }
    }
}

/// A part of a batch, with what it needs.
pub struct Taken {
    ticket: Ticket,
    start: u64,
    pending: Pending,
    /// Bytes that were moved.
    done: usize,
    /// Why there are not more, if not because the file ends.
    failed: Option<Errno>,
}

/// The parts of a batch: of one file, contiguous.
pub type Parts = SmallVec<[Taken; 1]>;

impl Data {
    /// For as many loops as there are mailboxes. Data is moved as `mover`.
    pub fn new(
        mail: Mailboxes,
        jobs: Arc<Jobs>,
        pace: Arc<Pace>,
        buffers: Arc<Buffers>,
        power: Power,
        mover: Arc<Identity>,
        ring: bool,
    ) -> Data {
        Data {
            engine: OnceLock::new(),
            pending: mail.iter().map(|_| Mutex::default()).collect(),
            mail,
            jobs,
            pace,
            power,
            mover,
            ring,
            buffers,
            recording: Recording::default(),
        }
    }

    /// The engine that decides; once, before the first request.
    pub fn set_engine(&self, engine: Engine) {
        assert!(self.engine.set(engine).is_ok(), "one engine");
    }

    /// The engine that decides.
    pub fn engine(&self) -> &Engine {
        self.engine.get().expect("set before the first request")
    }

    /// The mailbox of a loop.
    pub fn mailbox(&self, turner: usize) -> &Mailbox {
        &self.mail[turner]
    }

    /// Writes to the end of `file`, wherever that is when its turn comes: not through the scheduler, which sorts by
    /// place.
    pub fn append(
        self: &Arc<Self>,
        to: ReplyTo,
        session: Arc<Session>,
        file: Arc<OpenFile>,
        payload: Payload,
    ) {
        let is_quick = self.pace.is_quick(WRITING) && file.durable.is_none();
        let data = self.clone();
        let work = move || {
            let count = unharmed(|| {
                let _inside = session.enter().ok_or(Errno::IO)?;
                data.append_now(&session, &file, payload.bytes())
            });
            let out = match count.unwrap_or(Err(Errno::IO)) {
                Ok(count) => Out::written(to.tag, count as u32),
                Err(error) => Out::failed(to.tag, error),
            };
            data.mail[to.turner].post(|mail| mail.done.push(Done { to, out }));
        };
        match is_quick {
            true => work(),
            false => self.jobs.run(work),
        }
    }

    /// Appends, on this thread. It is counted and recorded as other writes are, at the place where the file ended just
    /// after it.
    pub fn append_now(&self, session: &Session, file: &OpenFile, bytes: &[u8]) -> Result<usize> {
        let nowhere = Range::at(0, bytes.len() as u64);
        let mut whole = self.whole(Op::Write, nowhere);
        let appended = self.append_bytes(file, bytes);
        let outcome = match appended {
            Ok(count) => Outcome::Written(count),
            Err(error) => Outcome::Failed(error),
        };
        if whole.since != Nanos::ZERO {
            let end = end_of(file).unwrap_or(0);
            let start = end.saturating_sub(outcome.len() as u64);
            whole.range = Range::new(start, nowhere.len()).unwrap_or(nowhere);
        }
        self.answered(session, file, whole, &outcome);
        appended
    }

    fn append_bytes(&self, file: &OpenFile, bytes: &[u8]) -> Result<usize> {
        self.power.act_on_data(&self.mover)?;
        let moved = bytes.len() as u64;
        let count = self
            .pace
            .measure(WRITING, moved, || file.bytes.append(bytes))
            .or_errno()?;
        if let Some(how) = file.durable {
            file.bytes.sync(how).or_errno()?;
        }
        Ok(count)
    }

    /// Reads `range` of `file`.
    pub fn read(&self, to: ReplyTo, session: &Arc<Session>, file: &Arc<OpenFile>, range: Range) {
        let whole = self.whole(Op::Read, range);
        let pieces = file.bytes.pieces(range);
        let mut asked = Asked::of(to, pieces.len());
        for piece in &pieces {
            let work = Work::Read(self.buffers.take(piece.range.len() as usize));
            self.submit(asked.next(), session, file, whole, piece, work);
        }
    }

    /// Writes `payload` to `file` from the start of `range` on, which is as long.
    pub fn write(
        &self,
        to: ReplyTo,
        session: &Arc<Session>,
        file: &Arc<OpenFile>,
        range: Range,
        payload: &Payload,
    ) {
        let whole = self.whole(Op::Write, range);
        let pieces = file.bytes.pieces(range);
        let mut asked = Asked::of(to, pieces.len());
        let mut start = 0;
        for piece in &pieces {
            let len = piece.range.len() as usize;
            let work = Work::Write(payload.part(start, len));
            start += len;
            self.submit(asked.next(), session, file, whole, piece, work);
        }
    }

    /// The time is read only if somebody wants to know it.
    fn whole(&self, op: Op, range: Range) -> Whole {
        let since = match self.recording.is_on() {
            true => self.engine().now(),
            false => Nanos::ZERO,
        };
        Whole { op, range, since }
    }

    fn submit(
        &self,
        (to, join): (ReplyTo, Option<(Arc<Join>, usize)>),
        session: &Arc<Session>,
        file: &Arc<OpenFile>,
        whole: Whole,
        piece: &Piece,
        work: Work,
    ) {
        let turner = to.turner;
        let pending = Pending {
            to,
            session: session.clone(),
            file: file.clone(),
            whole,
            object: piece.object,
            work,
            join,
        };
        let at = self.pending(turner).insert(pending);
        let id = request_id(turner, at);
        // Some four thousand million opened files later they are the same again, which harms nobody.
        let handle = HandleId(file.number as u32);
        let file = file.hold.file().id(piece.object);
        let request = Request {
            queue: piece.queue,
            app: session.app(),
            handle,
            ..Request::new(id, file, whole.op, piece.range)
        };
        if self.engine().submit(request).is_err() {
            // The node is going down.
            let pending = self.pending(turner).remove(at);
            self.settle(pending, 0, Some(Errno::IO));
        }
    }

    fn pending(&self, turner: usize) -> MutexGuard<'_, Slab<Pending>> {
        self.pending[turner]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a batch, here if that is quick.
    pub fn serve(self: &Arc<Self>, batch: &Batch) {
        let (op, range) = (batch.op(), batch.range());
        let parts: Parts = batch.parts().iter().map(|part| self.take(part)).collect();
        let first = parts[0].pending.file.hold.file();
        // Files whose ids are the same by chance are told apart here.
        if parts
            .iter()
            .all(|part| Arc::ptr_eq(part.pending.file.hold.file(), first))
        {
            return self.serve_file(parts, op, range);
        }
        for part in parts {
            let range = Range::at(part.start, part.wanted() as u64);
            self.serve_file(SmallVec::from_iter([part]), op, range);
        }
    }

    /// Serves parts of one file.
    fn serve_file(self: &Arc<Self>, mut parts: Parts, op: Op, range: Range) {
        let read = match op {
            Op::Read => self.read_now(&mut parts, range.start()),
            Op::Write => ReadNow::ByThread,
        };
        if let ReadNow::Done = read {
            return self.finish(parts);
        }
        let is_quick = op == Op::Write
            && self.pace.is_quick(WRITING)
            && parts.iter().all(|part| part.pending.file.durable.is_none());
        if is_quick {
            return self.serve_patiently(parts, op);
        }
        let by_ring = matches!(read, ReadNow::Waits) && self.ring && parts[0].has_descriptor();
        match by_ring {
            true => {
                let turner = parts[0].pending.to.turner;
                self.mail[turner].post(|mail| mail.cold.push(parts));
            }
            false => self.hand_over(parts, op),
        }
    }

    /// No more work comes: the threads end.
    pub fn close(&self) {
        self.jobs.close();
    }

    /// Reads that have to wait, and there is no ring.
    pub fn read_by_thread(self: &Arc<Self>, parts: Parts) {
        self.hand_over(parts, Op::Read);
    }

    fn hand_over(self: &Arc<Self>, parts: Parts, op: Op) {
        let data = self.clone();
        self.jobs.run(move || data.serve_patiently(parts, op));
    }

    /// A ring is done with reads: `result` is what the kernel says.
    pub fn collected(self: &Arc<Self>, mut parts: Parts, result: i32) {
        let wanted: usize = parts.iter().map(|part| part.wanted() - part.done).sum();
        let bytes = usize::try_from(result).unwrap_or(0);
        share(&mut parts, bytes);
        match bytes == wanted {
            true => self.finish(parts),
            false => self.hand_over(parts, Op::Read),
        }
    }

    fn take(&self, part: &Part) -> Taken {
        let (turner, at) = place_of(part.request.id);
        Taken {
            ticket: part.ticket,
            start: part.request.range.start(),
            pending: self.pending(turner).remove(at),
            done: 0,
            failed: None,
        }
    }

    /// Reads what is at hand.
    fn read_now(&self, parts: &mut Parts, start: u64) -> ReadNow {
        if self.power.act_on_data(&self.mover).is_err() {
            return ReadNow::ByThread;
        }
        let (file, object) = parts[0].file();
        let mut room = room_of(parts);
        let wanted = lengths(&room);
        match unharmed(|| file.bytes.read_now(object, start, &mut room)) {
            Some(Ok(now)) => {
                drop(room);
                share(parts, now.bytes);
                match now.end || now.bytes == wanted {
                    true => ReadNow::Done,
                    false => ReadNow::Waits,
                }
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => ReadNow::Waits,
            _ => ReadNow::ByThread,
        }
    }

    /// Does what is left of a batch, however long it takes.
    fn serve_patiently(&self, mut parts: Parts, op: Op) {
        match op {
            Op::Read => self.move_unharmed(&mut parts, op),
            Op::Write => self.write_entered(&mut parts),
        }
        self.finish(parts);
    }

    /// Writes what is still to be written: clients that were lost meanwhile may have written other bytes elsewhere.
    fn write_entered(&self, parts: &mut [Taken]) {
        let enter = |part: &Taken| part.pending.session.enter();
        let inside: SmallVec<[_; 4]> = parts.iter().map(enter).collect();
        if inside.iter().all(Option::is_some) {
            return self.move_unharmed(parts, Op::Write);
        }
        for (part, inside) in parts.iter_mut().zip(&inside) {
            match inside {
                Some(_) => self.move_unharmed(std::slice::from_mut(part), Op::Write),
                None => part.fail(Errno::IO),
            }
        }
    }

    fn move_unharmed(&self, parts: &mut [Taken], op: Op) {
        let moved = unharmed(|| self.move_all(parts, op));
        if let Err(error) = moved.unwrap_or(Err(Errno::IO)) {
            parts.iter_mut().for_each(|part| part.fail(error));
        }
    }

    fn move_all(&self, parts: &mut [Taken], op: Op) -> Result<()> {
        self.power.act_on_data(&self.mover)?;
        match op {
            Op::Read => read_on(parts),
            Op::Write => {
                let bytes = parts.iter().map(|part| part.wanted() as u64).sum();
                self.pace.measure(WRITING, bytes, || write_on(parts));
            }
        }
        Ok(())
    }

    fn finish(&self, parts: Parts) {
        for part in parts {
            self.engine().finish(part.ticket);
            self.settle(part.pending, part.done, part.failed);
        }
    }

    /// A piece is done, as far as it could be: what was moved before something failed counts.
    fn settle(&self, pending: Pending, done: usize, failed: Option<Errno>) {
        let wanted = pending.work.len();
        let outcome = match (failed, pending.work) {
            (Some(error), _) if done == 0 => Outcome::Failed(error),
            (_, Work::Read(mut data)) => {
                data.truncate(done);
                Outcome::Read(data)
            }
            (_, Work::Write(_)) => Outcome::Written(done),
        };
        let (mut to, session, file) = (pending.to, pending.session, pending.file);
        let whole = pending.whole;
        let outcome = match pending.join {
            None => outcome,
            Some((join, index)) => match join.arrived(index, wanted, outcome) {
                Some((pieces, load)) => {
                    to.load = load;
                    joined(pieces)
                }
                None => return,
            },
        };
        self.answered(&session, &file, whole, &outcome);
        let out = outcome.reply(to.tag);
        self.mail[to.turner].post(|mail| mail.done.push(Done { to, out }));
    }

    /// Counts what was moved, and records it if somebody wants that.
    fn answered(&self, session: &Session, file: &OpenFile, whole: Whole, outcome: &Outcome) {
        if let Some(job) = session.job() {
            job.count(whole.op, outcome.len() as u64);
        }
        if !self.recording.is_on() || whole.since == Nanos::ZERO {
            return;
        }
        self.recording.answered(Answered {
            client: session.client(),
            file: file.hold.file().clone(),
            op: whole.op,
            offset: whole.range.start(),
            len: whole.range.len(),
            since: whole.since,
            until: self.engine().now(),
            result: match outcome {
                Outcome::Failed(error) => -i64::from(error.0),
                moved => moved.len() as i64,
            },
        });
    }
}

/// What came of reading without waiting.
enum ReadNow {
    Done,
    /// The rest has to come from the device: a ring may wait for it.
    Waits,
    /// The file system cannot say that it would wait. Then io_uring only has threads of its own for it; and Linux 6.18 gives the
    /// last bytes of a file over and over again that way, where FUSE is told to cache nothing (`direct_io`).
    ByThread,
}

/// Passes batches on to the loops.
pub struct Dispatcher(pub Mailboxes);

impl Service for Dispatcher {
    fn dispatch(&self, _: &Engine, batch: Batch) {
        let (turner, _) = place_of(batch.parts()[0].request.id);
        self.0[turner].post(|mail| mail.batches.push(batch));
    }
}

/// How long a file is now.
fn end_of(file: &OpenFile) -> Option<u64> {
    match file.bytes.size().ok()? {
        Some(size) => Some(size.bytes),
        None => Some(stat_of(file.bytes.name()).ok()?.stx_size),
    }
}

fn request_id(turner: usize, at: usize) -> RequestId {
    RequestId((turner as u64) << LOOP_SHIFT | at as u64)
}

fn place_of(id: RequestId) -> (usize, usize) {
    let at = id.0 & ((1 << LOOP_SHIFT) - 1);
    ((id.0 >> LOOP_SHIFT) as usize, at as usize)
}

impl Work {
    fn len(&self) -> usize {
        match self {
            Work::Read(buffer) => buffer.len(),
            Work::Write(payload) => payload.len,
        }
    }
}

impl Taken {
    pub fn file(&self) -> (Arc<OpenFile>, u16) {
        (self.pending.file.clone(), self.pending.object)
    }

    fn wanted(&self) -> usize {
        self.pending.work.len()
    }

    fn has_descriptor(&self) -> bool {
        self.pending
            .file
            .bytes
            .descriptor(self.pending.object)
            .is_some()
    }

    /// All of it fails, whatever was moved.
    fn fail(&mut self, error: Errno) {
        (self.done, self.failed) = (0, Some(error));
    }

    /// Where the next byte of it lies.
    fn at(&self) -> u64 {
        self.start + self.done as u64
    }
}

/// Where the first byte lies that is not moved yet.
pub fn next_byte(parts: &[Taken]) -> u64 {
    let done: usize = parts.iter().map(|part| part.done).sum();
    parts[0].start + done as u64
}

/// Where what is not read yet goes.
pub fn room_of(parts: &mut [Taken]) -> SmallVec<[IoSliceMut<'_>; 16]> {
    let room = parts
        .iter_mut()
        .filter_map(|part| match &mut part.pending.work {
            Work::Read(buffer) => Some(IoSliceMut::new(&mut buffer.bytes_mut()[part.done..])),
            Work::Write(_) => None,
        });
    room.collect()
}

fn lengths(room: &[IoSliceMut<'_>]) -> usize {
    room.iter().map(|part| part.len()).sum()
}

/// What is not written yet.
fn rest_of(parts: &[Taken]) -> SmallVec<[IoSlice<'_>; 16]> {
    let rest = parts.iter().filter_map(|part| match &part.pending.work {
        Work::Write(payload) => Some(IoSlice::new(&payload.bytes()[part.done..])),
        Work::Read(_) => None,
    });
    rest.collect()
}

/// Each part gets its share of `bytes` that were moved, from the first that was not complete on. Returns what follows
/// the parts that are complete now.
fn share(parts: &mut [Taken], mut bytes: usize) -> usize {
    let mut complete = 0;
    for part in parts {
        let share = bytes.min(part.wanted() - part.done);
        part.done += share;
        bytes -= share;
        complete += usize::from(part.done == part.wanted());
    }
    complete
}

/// Reads until all is there or the file ends. What cannot be read fails its own part: the others go on behind it.
fn read_on(parts: &mut [Taken]) {
    let mut rest = skip_complete(parts);
    while let Some(first) = rest.first() {
        let (file, object) = first.file();
        let at = first.at();
        let mut room = room_of(rest);
        let result = file.bytes.read(object, at, &mut room);
        drop(room);
        match result {
            Ok(bytes) => {
                share(rest, bytes);
                // Less than was wanted may be what lies before a bad block: only nothing is the end.
                if bytes == 0 {
                    return;
                }
            }
            Err(error) => rest[0].failed = Some(errno(&error)),
        }
        rest = match rest[0].failed {
            Some(_) => &mut rest[1..],
            None => skip_complete(rest),
        };
    }
}

fn skip_complete(parts: &mut [Taken]) -> &mut [Taken] {
    let complete = parts
        .iter()
        .take_while(|part| part.done == part.wanted())
        .count();
    &mut parts[complete..]
}

/// Writes all of it, and what is to be durable is made so.
fn write_on(parts: &mut [Taken]) {
    let mut rest = &mut *parts;
    while let Some(first) = rest.first() {
        let (file, object) = first.file();
        let result = file.bytes.write(object, first.at(), &rest_of(rest));
        match result {
            Ok(bytes) if bytes > 0 => drop(share(rest, bytes)),
            Ok(_) => rest[0].failed = Some(Errno::IO),
            Err(error) => rest[0].failed = Some(errno(&error)),
        }
        rest = match rest[0].failed {
            Some(_) => &mut rest[1..],
            None => skip_complete(rest),
        };
    }
    parts.iter_mut().for_each(make_durable);
}

fn make_durable(part: &mut Taken) {
    let file = part.pending.file.clone();
    if let Some(how) = file.durable
        && let Err(error) = file.bytes.sync(how)
    {
        part.fail(errno(&error));
    }
}

/// What became of a piece, or of all of them.
enum Outcome {
    Read(Buffer),
    ReadParts(Vec<Buffer>),
    Written(usize),
    Failed(Errno),
}

impl Outcome {
    fn reply(self, tag: Tag) -> Out {
        match self {
            Outcome::Read(data) => Out::read(tag, data),
            Outcome::ReadParts(parts) => Out::read_parts(tag, parts),
            Outcome::Written(count) => Out::written(tag, count as u32),
            Outcome::Failed(error) => Out::failed(tag, error),
        }
    }

    fn len(&self) -> usize {
        match self {
            Outcome::Read(data) => data.len(),
            Outcome::ReadParts(parts) => parts.iter().map(Buffer::len).sum(),
            Outcome::Written(count) => *count,
            Outcome::Failed(_) => 0,
        }
    }
}

/// A request in several pieces, waiting for the last of them.
struct Join(Mutex<Joining>);

struct Joining {
    pieces: Vec<Option<(usize, Outcome)>>,
    arrived: usize,
    /// What the request counts for.
    load: Load,
}

/// Whom the pieces of a request are answered to: one by itself, several through what joins them.
enum Asked {
    One(Option<ReplyTo>),
    Several(ReplyTo, Arc<Join>, usize),
}

impl Asked {
    fn of(mut to: ReplyTo, pieces: usize) -> Asked {
        if pieces == 1 {
            return Asked::One(Some(to));
        }
        let joining = Joining {
            pieces: std::iter::repeat_with(|| None).take(pieces).collect(),
            arrived: 0,
            load: std::mem::take(&mut to.load),
        };
        Asked::Several(to, Arc::new(Join(Mutex::new(joining))), 0)
    }

    /// For the next piece.
    fn next(&mut self) -> (ReplyTo, Option<(Arc<Join>, usize)>) {
        match self {
            Asked::One(to) => (to.take().expect("one piece"), None),
            Asked::Several(to, join, next) => {
                *next += 1;
                (to.part(), Some((join.clone(), *next - 1)))
            }
        }
    }
}

impl Join {
    /// A piece of `wanted` bytes is done. Returns all of them with the last.
    fn arrived(
        &self,
        index: usize,
        wanted: usize,
        outcome: Outcome,
    ) -> Option<(Vec<(usize, Outcome)>, Load)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.pieces[index] = Some((wanted, outcome));
        all.arrived += 1;
        let is_last = all.arrived == all.pieces.len();
        is_last.then(|| {
            let pieces = std::mem::take(&mut all.pieces).into_iter().flatten();
            (pieces.collect(), std::mem::take(&mut all.load))
        })
    }
}

/// The pieces that count are those up to the first that is not complete: a reply has no gaps.
fn joined(pieces: Vec<(usize, Outcome)>) -> Outcome {
    let (mut data, mut written) = (Vec::new(), 0);
    for (wanted, outcome) in pieces {
        let is_short = outcome.len() < wanted;
        match outcome {
            Outcome::Failed(error) if data.is_empty() && written == 0 => {
                return Outcome::Failed(error);
            }
            Outcome::Failed(_) => break,
            Outcome::Read(buffer) => data.push(buffer),
            Outcome::ReadParts(parts) => data.extend(parts),
            Outcome::Written(count) => written += count,
        }
        if is_short {
            break;
        }
    }
    match data.is_empty() {
        true => Outcome::Written(written),
        false => Outcome::ReadParts(data),
    }
}
