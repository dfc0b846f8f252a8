//! The loop of a thread that owns connections.
//!
//! One turn: wait until something can be received or sent, or the bell rings; receive and understand what came; take
//! what others left in the mailbox; serve the batches that the scheduler chose for this loop; send all replies, each
//! connection's with one call.
//!
//! A connection that has too much under way, or while all have, is not read from until some of it is answered: what its
//! client sends then waits in the network, not in our memory.

use super::connection::{Arriving, Connection, Interest, Sent, UnderWay};
use super::mailbox::{Mail, ReplyTo};
use super::{Arrival, Done, Mailbox, Out};
use crate::data::Payload;
use crate::node::Shared;
use crate::ring::Ring;
use crate::session::{Open, Session, refuse};
use presagio_core::Range;
use presagio_ninep::request::WRITE_HEAD;
use presagio_ninep::{Dialect, Errno, Fid, Frame, Frames, Kind, Request, Tag, WireError, version};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{RecvFlags, recv};
use slab::Slab;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What the events of the bell and of the ring carry: no connection has such a place.
const BELL: u64 = u64::MAX;
const RING: u64 = u64::MAX - 1;

/// Calls to receive on one connection before the others have their turn.
const ROUNDS_MAX: usize = 8;

/// How often connections are looked over: those that stall, those that are idle.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often those that wait for memory try again.
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// How long a client may leave its replies unread while others wait for memory.
const STALL_MAX_FULL: Duration = Duration::from_secs(5);

/// A write with more data than this gets its data received to its place, without a copy.
const COPY_MAX: u32 = 8 << 10;

/// Before it has said a version, nobody has to send larger frames.
const FIRST_MSIZE: u32 = 64 << 10;

/// A loop.
pub struct Turner {
    number: usize,
    node: Arc<Shared>,
    epoll: OwnedFd,
    connections: Slab<Connection>,
    epochs: u64,
    /// Connections that have replies to send.
    to_send: Vec<usize>,
    /// Connections that wait for memory.
    starved: Vec<usize>,
    mail: Mail,
    /// For reads that have to wait, where the system gives one.
    ring: Option<Ring>,
    /// Nothing more is taken in.
    draining: bool,
    looked: Instant,
}

/// Why a connection ends.
enum End {
    /// The client left.
    Left,
    /// It sent what no client may send.
    Malformed(WireError),
    /// It used a tag that was in use.
    TagInUse(Tag),
    /// It spoke before it said a version.
    NoVersion(Kind),
    /// The node is being drained.
    Drained,
    /// It does not read.
    Stalled,
    /// The system says so.
    Broken(io::Error),
}

impl Turner {
    /// Loop `number` of a node.
    pub fn new(number: usize, node: Arc<Shared>) -> io::Result<Turner> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = node.data.mailbox(number).bell();
        epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let ring = node.config.ring.then(Ring::new).and_then(|ring| {
            ring.map_err(|error| tracing::info!("no io_uring ({error}): threads do its work")).ok()
        });
        if let Some(ring) = &ring {
            epoll::add(&epoll, ring.bell(), EventData::new_u64(RING), EventFlags::IN)?;
        }
        Ok(Turner {
            number,
            node,
            epoll,
            connections: Slab::new(),
            epochs: 0,
            to_send: Vec::new(),
            starved: Vec::new(),
            mail: Mail::default(),
            ring,
            draining: false,
            looked: Instant::now(),
        })
    }

    fn mailbox(&self) -> &Mailbox {
        self.node.data.mailbox(self.number)
    }

    /// Turns until it is told to stop.
    pub fn run(mut self) {
        self.mailbox().own();
        let mut events = Vec::with_capacity(256);
        loop {
            self.wait(&mut events);
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                match data.u64() {
                    BELL => self.mailbox().hush(),
                    RING => self.collect(),
                    slot => self.happened(slot as usize, flags),
                }
            }
            self.retry_starved();
            self.drain();
            while self.take_mail() {}
            if self.mail.stop {
                return self.stop();
            }
            self.look_over();
        }
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        events.clear();
        let sleeps = self.mailbox().doze();
        let timeout = match (sleeps, self.starved.is_empty() && !self.draining) {
            (false, _) => Duration::ZERO,
            (true, false) => RETRY_EVERY,
            (true, true) if self.connections.is_empty() => Duration::from_secs(3600),
            (true, true) => LOOK_EVERY,
        };
        let timeout = rustix::time::Timespec::try_from(timeout).ok();
        let room = rustix::buffer::spare_capacity(events);
        // It fails only by being interrupted.
        let _ = epoll::wait(&self.epoll, room, timeout.as_ref());
        self.mailbox().awake();
    }

    fn happened(&mut self, slot: usize, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        connection.was_active = true;
        if flags.contains(EventFlags::OUT) {
            self.send(slot);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(slot);
        }
    }

    /// Takes and does what is in the mailbox, and sends what came of it. False if there was nothing.
    fn take_mail(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        self.node.data.mailbox(self.number).swap(&mut mail);
        let found = !mail.has_no_work();
        for arrival in mail.arrivals.drain(..) {
            self.arrived(arrival);
        }
        for batch in mail.batches.drain(..) {
            self.node.data.serve(&batch, self.ring.as_mut());
        }
        if let Some(ring) = &mut self.ring {
            ring.submit();
        }
        for done in mail.done.drain(..) {
            self.done(done);
        }
        self.draining |= std::mem::take(&mut mail.drain);
        self.mail = mail;
        if !found {
            self.send_all();
        }
        found
    }

    /// Takes what the ring is done with.
    fn collect(&mut self) {
        let done = self.ring.as_mut().map(Ring::collect);
        for (parts, result) in done.into_iter().flatten() {
            self.node.data.collected(parts, result);
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        self.epochs += 1;
        let epoch = self.epochs;
        let peer = Arc::new(arrival.peer);
        let connection = Connection::new(arrival.socket, peer, FIRST_MSIZE, epoch);
        let entry = self.connections.vacant_entry();
        let data = EventData::new_u64(entry.key() as u64);
        match epoll::add(&self.epoll, &connection.socket, data, EventFlags::IN) {
            Ok(()) => {
                tracing::debug!("{} arrived", connection.peer);
                entry.insert(connection);
            }
            Err(error) => {
                tracing::warn!("{} refused: {error}", connection.peer);
                self.node.gone();
            }
        }
    }

    /// Receives what has come, and understands it.
    fn receive(&mut self, slot: usize) {
        for _ in 0..ROUNDS_MAX {
            let Some(connection) = self.connections.get_mut(slot) else {
                return;
            };
            if connection.held_back {
                break;
            }
            let received = match &mut connection.arriving {
                Some(write) => {
                    let room = &mut write.buffer.bytes_mut()[write.received..];
                    recv(&connection.socket, room, RecvFlags::DONTWAIT)
                }
                None => {
                    let frames = connection.frames.as_mut().expect(NESTED);
                    recv(&connection.socket, frames.space(), RecvFlags::DONTWAIT)
                }
            };
            match received.map(|(count, _)| count) {
                Ok(0) => return self.end(slot, End::Left),
                Ok(count) => match self.took(slot, count) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(end) => return self.end(slot, end),
                },
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(rustix::io::Errno::CONNRESET) => return self.end(slot, End::Left),
                Err(error) => return self.end(slot, End::Broken(error.into())),
            }
        }
        self.interest(slot);
    }

    /// So many bytes were received. True if there may be more.
    fn took(&mut self, slot: usize, count: usize) -> Result<bool, End> {
        let connection = &mut self.connections[slot];
        if let Some(write) = &mut connection.arriving {
            write.received += count;
            if write.received == write.buffer.len() {
                self.write_arrived(slot);
            }
            return Ok(true);
        }
        let frames = connection.frames.as_mut().expect(NESTED);
        let had_room = frames.space().len() > count;
        frames.received(count);
        self.understand(slot)?;
        Ok(!had_room
            || self
                .connections
                .get(slot)
                .is_some_and(|it| it.arriving.is_some()))
    }

    /// Takes complete frames one after the other, as long as the connection may have more under way.
    fn understand(&mut self, slot: usize) -> Result<(), End> {
        let connection = &mut self.connections[slot];
        connection.held_back = false;
        let mut frames = connection.frames.take().expect(NESTED);
        let result = self.understand_all(slot, &mut frames);
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.frames = Some(frames);
        }
        result
    }

    fn understand_all(&mut self, slot: usize, frames: &mut Frames) -> Result<(), End> {
        loop {
            let Some(head) = frames.head().map_err(End::Malformed)? else {
                return Ok(());
            };
            if !self.may_have_more(slot, head.kind) {
                self.connections[slot].held_back = true;
                return Ok(());
            }
            if self.large_write(slot, frames)? {
                return Ok(());
            }
            let Some(frame) = frames.next().map_err(End::Malformed)? else {
                return Ok(());
            };
            let (kind, tag) = (frame.kind, frame.tag);
            if kind.0 == 100 {
                let msize = self.version(slot, frame)?;
                frames.set_msize(msize);
            } else {
                self.request(slot, kind, tag, frame)?;
            }
        }
    }

    /// Leaves connections that have nothing under way, once the node is being drained.
    fn drain(&mut self) {
        if !self.draining {
            return;
        }
        let idle =
            |connection: &Connection| connection.under_way.is_empty() && !connection.has_output();
        let done: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| idle(connection))
            .map(|(slot, _)| slot)
            .collect();
        for slot in done {
            self.end(slot, End::Drained);
        }
    }

    /// Whether another request of the connection may be taken in. Only what carries data needs memory.
    fn may_have_more(&mut self, slot: usize, kind: Kind) -> bool {
        if self.draining {
            return false;
        }
        let (connection, config) = (&self.connections[slot], &self.node.config);
        let bytes = connection.bytes + connection.unsent();
        if connection.under_way.len() >= config.requests_max || bytes >= config.bytes_max {
            return false;
        }
        let starves = matches!(kind.0, 116 | 118 | 204) && self.node.data.buffers.is_full();
        if starves && !self.starved.contains(&slot) {
            self.starved.push(slot);
        }
        !starves
    }

    /// If what follows is a large write: its data is received to where it stays. True if it is.
    fn large_write(&mut self, slot: usize, frames: &mut Frames) -> Result<bool, End> {
        let Some(head) = frames.head().map_err(End::Malformed)? else {
            return Ok(false);
        };
        let is_large = head.kind.0 == 118
            && head.size > COPY_MAX
            && frames.bytes().len() >= WRITE_HEAD
            && frames.bytes().len() < head.size as usize;
        if !is_large {
            return Ok(false);
        }
        let number = |at: usize| {
            let bytes = frames.bytes()[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes)
        };
        let (fid, low, high, count) = (number(7), number(11), number(15), number(19));
        if count != head.size - WRITE_HEAD as u32 {
            // The codec says what is wrong with it, from the header alone.
            let error = Request::parse(
                Frame {
                    kind: head.kind,
                    tag: head.tag,
                    body: &frames.bytes()[7..WRITE_HEAD],
                },
                Dialect::Linux,
            );
            return Err(error.map_or_else(End::Malformed, |_| End::Left));
        }
        self.begin(slot, head.tag, count as usize)?;
        let mut buffer = self.node.data.buffers.take(count as usize);
        frames.skip(WRITE_HEAD);
        let received = frames.take(buffer.bytes_mut());
        self.connections[slot].arriving = Some(Arriving {
            tag: head.tag,
            fid: Fid(fid),
            offset: u64::from(low) | u64::from(high) << 32,
            buffer,
            received,
        });
        Ok(true)
    }

    fn write_arrived(&mut self, slot: usize) {
        self.node.metrics.request(Kind(118));
        let connection = &mut self.connections[slot];
        let write = connection.arriving.take().expect("it was there just now");
        let session = connection.session.clone();
        let to = self.reply_to(slot, write.tag);
        match session {
            Some(session) => self.write(
                &session,
                to,
                write.fid,
                write.offset,
                Payload::new(write.buffer),
            ),
            None => self.done(Done {
                to,
                out: Out::failed(write.tag, Errno::PROTO),
            }),
        }
    }

    /// A request is under way.
    fn begin(&mut self, slot: usize, tag: Tag, bytes: usize) -> Result<(), End> {
        let connection = &mut self.connections[slot];
        let under_way = UnderWay {
            bytes,
            ..UnderWay::default()
        };
        if connection.under_way.insert(tag.0, under_way).is_some() {
            return Err(End::TagInUse(tag));
        }
        connection.bytes += bytes;
        Ok(())
    }

    fn reply_to(&self, slot: usize, tag: Tag) -> ReplyTo {
        ReplyTo {
            turner: self.number,
            slot,
            epoch: self.connections[slot].epoch,
            tag,
        }
    }

    /// A new session begins. Returns the largest frame.
    fn version(&mut self, slot: usize, frame: Frame<'_>) -> Result<u32, End> {
        let tag = frame.tag;
        let request = Request::parse(frame, Dialect::Linux).map_err(End::Malformed)?;
        let Request::Version { msize, version } = request else {
            unreachable!("a frame of its type")
        };
        let ours = self.node.config.msize;
        let agreed = version::answer(msize, version, ours);
        self.epochs += 1;
        let connection = &mut self.connections[slot];
        connection.epoch = self.epochs;
        connection.under_way.clear();
        connection.bytes = 0;
        let old = connection.session.take();
        let reply = match agreed {
            Some(agreed) => {
                let (node, peer) = (self.node.clone(), connection.peer.clone());
                connection.dialect = agreed.dialect;
                connection.session = Some(Arc::new(Session::new(node, peer, agreed)));
                agreed.reply()
            }
            None => version::refusal(ours),
        };
        reply.encode(tag, connection.tail());
        self.to_send.push(slot);
        if let Some(old) = old {
            self.node.jobs.run(move || old.end());
        }
        Ok(agreed.map_or(FIRST_MSIZE, |agreed| agreed.msize))
    }

    fn request(&mut self, slot: usize, kind: Kind, tag: Tag, frame: Frame<'_>) -> Result<(), End> {
        self.node.metrics.request(kind);
        let connection = &mut self.connections[slot];
        let Some(session) = connection.session.clone() else {
            return Err(End::NoVersion(kind));
        };
        let request = Request::parse(frame, connection.dialect).map_err(End::Malformed)?;
        match request {
            Request::Flush { old_tag } => return self.flush(slot, tag, old_tag),
            Request::Read { fid, offset, count } => {
                let count = count.min(session.msize() - presagio_ninep::IO_HEADER);
                self.begin(slot, tag, count as usize)?;
                let to = self.reply_to(slot, tag);
                if self.read(&session, to, fid, offset, count) {
                    return Ok(());
                }
            }
            Request::Write { fid, offset, data } => {
                self.begin(slot, tag, data.bytes().len())?;
                if session
                    .held(fid)
                    .is_ok_and(|held| matches!(held.open, Open::File(_)))
                {
                    let mut buffer = self.node.data.buffers.take(data.bytes().len());
                    buffer.bytes_mut().copy_from_slice(data.bytes());
                    let to = self.reply_to(slot, tag);
                    self.write(&session, to, fid, offset, Payload::new(buffer));
                    return Ok(());
                }
            }
            _ => self.begin(slot, tag, 0)?,
        }
        self.perform(slot, session, request, kind, tag, frame);
        Ok(())
    }

    /// Reads of files go through the scheduler; false if it is no file.
    fn read(
        &mut self,
        session: &Arc<Session>,
        to: ReplyTo,
        fid: Fid,
        offset: u64,
        count: u32,
    ) -> bool {
        let Ok(held) = session.held(fid) else {
            return false;
        };
        let Open::File(file) = &held.open else {
            return false;
        };
        let range = Range::new(offset, count.into()).filter(|range| range.end() <= i64::MAX as u64);
        let out = match range {
            _ if !file.read => Out::failed(to.tag, Errno::BADF),
            None => Out::failed(to.tag, Errno::INVAL),
            Some(range) if range.is_empty() => Out::read(to.tag, self.node.data.buffers.take(0)),
            Some(range) => {
                self.node.data.read(to, session, file, range);
                return true;
            }
        };
        self.done(Done { to, out });
        true
    }

    /// Writes to files go through the scheduler, except those to the end, which have no place before they are done.
    fn write(&mut self, session: &Arc<Session>, to: ReplyTo, fid: Fid, offset: u64, data: Payload) {
        let out = match session.held(fid).map(|held| held.file().cloned()) {
            Err(error) | Ok(Err(error)) => Out::failed(to.tag, error),
            Ok(Ok(file)) if !file.write => Out::failed(to.tag, Errno::BADF),
            Ok(Ok(_)) if data.bytes().is_empty() => Out::written(to.tag, 0),
            Ok(Ok(file)) if file.append => return self.node.data.append(to, file, data),
            Ok(Ok(file)) => {
                let range = Range::new(offset, data.bytes().len() as u64);
                match range.filter(|range| range.end() <= i64::MAX as u64) {
                    None => Out::failed(to.tag, Errno(libc::EFBIG as u32)),
                    Some(range) => {
                        return self.node.data.write(to, session, &file, range, &data);
                    }
                }
            }
        };
        self.done(Done { to, out });
    }

    /// All that is no read or write of a file: here if such requests are quick, else on a thread.
    fn perform(
        &mut self,
        slot: usize,
        session: Arc<Session>,
        request: Request<'_>,
        kind: Kind,
        tag: Tag,
        frame: Frame<'_>,
    ) {
        let to = self.reply_to(slot, tag);
        let may_wait = kind.0 == 204 && session.may_repeat();
        if self.node.pace.is_quick(kind.0) && !may_wait {
            let mut out = Vec::new();
            let pace = &self.node.pace;
            pace.measure(kind.0, 0, || session.perform(request, tag, &mut out));
            return self.done(Done {
                to,
                out: Out::Encoded(out),
            });
        }
        let (node, dialect) = (self.node.clone(), self.connections[slot].dialect);
        let body = frame.body.to_vec();
        self.node.jobs.run(move || {
            let frame = Frame {
                kind,
                tag,
                body: &body,
            };
            let mut out = Vec::new();
            match Request::parse(frame, dialect) {
                Ok(request) => {
                    let pace = &node.pace;
                    pace.measure(kind.0, 0, || session.perform(request, tag, &mut out));
                }
                Err(_) => refuse(tag, Errno::PROTO, &mut out),
            }
            let out = Out::Encoded(out);
            let mailbox = node.data.mailbox(to.turner);
            mailbox.post(|mail| mail.done.push(Done { to, out }));
        });
    }

    /// Tells that an old request is answered, once it is.
    fn flush(&mut self, slot: usize, tag: Tag, old: Tag) -> Result<(), End> {
        let connection = &mut self.connections[slot];
        match connection.under_way.get_mut(&old.0) {
            Some(request) => request.flushed_by.push(tag),
            None => flushed(connection, tag),
        }
        self.to_send.push(slot);
        Ok(())
    }

    /// A request is answered.
    fn done(&mut self, done: Done) {
        let Done { to, out } = done;
        let Some(connection) = self.connections.get_mut(to.slot) else {
            return;
        };
        if connection.epoch != to.epoch {
            return;
        }
        let Some(request) = connection.under_way.remove(&to.tag.0) else {
            return;
        };
        connection.bytes -= request.bytes;
        connection.push(out);
        for tag in request.flushed_by {
            flushed(connection, tag);
        }
        self.to_send.push(to.slot);
    }

    /// Sends all replies that are ready, and goes on with connections that were held back.
    fn send_all(&mut self) {
        for slot in std::mem::take(&mut self.to_send) {
            self.send(slot);
            let held_back = self.connections.get(slot).is_some_and(|it| it.held_back);
            if held_back {
                match self.understand(slot) {
                    Ok(()) => self.interest(slot),
                    Err(end) => self.end(slot, end),
                }
            }
        }
    }

    fn send(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        match connection.has_output().then(|| connection.send()) {
            Some(Sent::Gone) => self.end(slot, End::Left),
            Some(Sent::All | Sent::Some) => self.interest(slot),
            None => {}
        }
    }

    /// Tells epoll what the connection waits for, if that has changed.
    fn interest(&mut self, slot: usize) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let now = Interest {
            receive: !connection.held_back,
            send: connection.has_output(),
        };
        if now == connection.waits_for {
            return;
        }
        connection.waits_for = now;
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, now.receive);
        flags.set(EventFlags::OUT, now.send);
        let data = EventData::new_u64(slot as u64);
        if let Err(error) = epoll::modify(&self.epoll, &connection.socket, data, flags) {
            self.end(slot, End::Broken(error.into()));
        }
    }

    fn retry_starved(&mut self) {
        if self.starved.is_empty() || self.node.data.buffers.is_full() {
            return;
        }
        for slot in std::mem::take(&mut self.starved) {
            self.to_send.push(slot);
        }
    }

    /// Once in a while: clients that do not read are left, memory of idle connections is given back.
    fn look_over(&mut self) {
        if self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        let stall_max = match self.node.data.buffers.is_full() {
            true => self.node.config.stall_max.min(STALL_MAX_FULL),
            false => self.node.config.stall_max,
        };
        let mut stalled = Vec::new();
        for (slot, connection) in &mut self.connections {
            let idle = !std::mem::take(&mut connection.was_active);
            if idle && let Some(frames) = &mut connection.frames {
                frames.release();
            }
            if connection
                .stuck_since
                .is_some_and(|since| since.elapsed() > stall_max)
            {
                stalled.push(slot);
            }
        }
        for slot in stalled {
            self.end(slot, End::Stalled);
        }
    }

    fn end(&mut self, slot: usize, why: End) {
        let Some(connection) = self.connections.try_remove(slot) else {
            return;
        };
        let peer = &connection.peer;
        if matches!(
            why,
            End::Malformed(_) | End::TagInUse(_) | End::NoVersion(_) | End::Stalled
        ) {
            self.node.metrics.ended.fetch_add(1, Ordering::Relaxed);
        }
        match why {
            End::Left => tracing::debug!("{peer} left"),
            End::Malformed(error) => tracing::warn!("{peer} ended: {error}"),
            End::TagInUse(tag) => {
                tracing::warn!("{peer} ended: it used {tag} again, which is under way")
            }
            End::NoVersion(kind) => tracing::warn!("{peer} ended: {kind} before Tversion"),
            End::Drained => tracing::debug!("{peer} left: the node is being drained"),
            End::Stalled => tracing::warn!("{peer} ended: it does not read its replies"),
            End::Broken(error) => tracing::warn!("{peer} ended: {error}"),
        }
        self.starved.retain(|starved| *starved != slot);
        self.node.gone();
        if let Some(session) = connection.session {
            self.node.jobs.run(move || session.end());
        }
    }

    fn stop(mut self) {
        for (_, connection) in std::mem::take(&mut self.connections) {
            if let Some(session) = connection.session {
                session.end();
            }
            self.node.gone();
        }
    }
}

/// Why frames are always there: they are out only while frames of the same connection are being understood.
const NESTED: &str = "a connection's frames are looked at by one at a time";

fn flushed(connection: &mut Connection, tag: Tag) {
    presagio_ninep::Reply::Flush.encode(tag, connection.tail());
}
