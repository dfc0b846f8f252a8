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
use super::order::named;
use super::tls::{Received, Tls, Trouble};
use super::{Arrival, Done, Mailbox, Out};
use crate::accounts::Load;
use crate::buffer::Counted;
use crate::data::{Payload, WRITING};
use crate::files::OpenFile;
use crate::jobs::unharmed;
use crate::node::Shared;
use crate::peer::{Peer, Proof};
use crate::ring::Ring;
use crate::session::{LIST_HEAD, Open, Session, refuse};
use presagio_core::Range;
use presagio_ninep::request::WRITE_HEAD;
use presagio_ninep::{
    Dialect, Errno, Fid, Frame, Frames, Head, IO_HEADER, Kind, Reason, Request, Tag, WireError,
    version,
};
use presagio_sched::Batch;
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

/// Events that are taken at a time.
const EVENTS_MAX: usize = 64;

/// The type of requests for what is in a directory.
const LISTING: u8 = 40;

/// The type of what wraps a request that must not be done twice.
const ONCE: u8 = 204;

/// Calls to receive on one connection before the others have their turn.
const ROUNDS_MAX: usize = 8;

/// How often connections are looked over: those that stall, those that are idle.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often those that wait for memory try again.
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// Replies that may wait to be read before no more requests are taken in.
const UNSENT_MAX: usize = 8 << 20;

/// How long a client may leave its replies unread while others wait for memory.
const STALL_MAX_FULL: Duration = Duration::from_secs(2);

/// A write with more data than this gets its data received to its place, without a copy.
const COPY_MAX: u32 = 8 << 10;

/// Only what carries data may be larger.
const PLAIN_MAX: u32 = 256 << 10;

/// Before it has attached, nobody has to send larger frames.
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
    /// Connections that wait for memory, or for others of their user.
    starved: Vec<usize>,
    /// Connections of which something was received that was not looked at: epoll knows nothing of it.
    unread: Vec<usize>,
    mail: Mail,
    /// What has to be done, by who does not hold the loop meanwhile.
    tasks: Vec<Task>,
    /// Requests that waited for others, and may not have to any more.
    next: Vec<(usize, Tag)>,
    /// For reads that have to wait, where the system gives one.
    ring: Option<Ring>,
    /// Nothing more is taken in.
    draining: bool,
    /// It is to end.
    stopping: bool,
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
    /// It does not read its replies, or does not send what it began.
    Stalled,
    /// The system says so.
    Broken(io::Error),
    /// What it sent is no TLS.
    NotTls(rustls::Error),
    /// It did not say in time who it is.
    Silent,
    /// It may not come.
    Refused(String),
}

impl Turner {
    /// Loop `number` of a node.
    pub fn new(number: usize, node: Arc<Shared>) -> io::Result<Turner> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = node.data.mailbox(number).bell();
        epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let ring = node.config.ring.then(Ring::new).and_then(|ring| {
            ring.map_err(|error| tracing::info!("no io_uring ({error}): threads do its work"))
                .ok()
        });
        if let Some(ring) = &ring {
            epoll::add(
                &epoll,
                ring.bell(),
                EventData::new_u64(RING),
                EventFlags::IN,
            )?;
        }
        Ok(Turner {
            number,
            node,
            epoll,
            connections: Slab::new(),
            epochs: 0,
            to_send: Vec::new(),
            starved: Vec::new(),
            unread: Vec::new(),
            mail: Mail::default(),
            tasks: Vec::new(),
            next: Vec::new(),
            ring,
            draining: false,
            stopping: false,
            looked: Instant::now(),
        })
    }

    fn mailbox(&self) -> &Mailbox {
        self.node.data.mailbox(self.number)
    }

    /// One turn, or as much of it as there is until something has to be done: that is returned. `None` when it is to stop.
    pub fn turn(&mut self) -> Option<Vec<Task>> {
        self.take_mail();
        if self.tasks.is_empty() {
            self.send_all();
            if self.stopping {
                return None;
            }
        }
        // Sending may have let a connection go on that was held back.
        if self.tasks.is_empty() {
            self.wait_and_receive();
            self.take_mail();
        }
        Some(std::mem::take(&mut self.tasks))
    }

    fn wait_and_receive(&mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        self.wait(&mut events);
        for event in &events {
            let (data, flags) = (event.data, event.flags);
            match data.u64() {
                BELL => self.mailbox().hush(),
                RING => self.collect(),
                slot => self.happened(slot as usize, flags),
            }
        }
        for slot in std::mem::take(&mut self.unread) {
            self.receive(slot);
        }
        self.retry_starved();
        self.drain();
        self.look_over();
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        let idle = self.to_send.is_empty() && self.next.is_empty();
        let sleeps = idle && self.mailbox().doze();
        let is_behind = self.ring.as_ref().is_some_and(Ring::is_behind);
        let hurries = !self.starved.is_empty() || self.draining || is_behind;
        let timeout = match (sleeps, !hurries) {
            _ if !self.unread.is_empty() => Duration::ZERO,
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
        // Nobody is there any more: what is held back has nobody to be answered to.
        if connection.held_back && flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.end(slot, End::Left);
        }
        if flags.contains(EventFlags::OUT) {
            self.to_send.push(slot);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(slot);
        }
    }

    /// Takes what is in the mailbox.
    fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        // What is given in exchange must not carry the order back to the box.
        let stop = std::mem::take(&mut mail.stop);
        self.node.data.mailbox(self.number).swap(&mut mail);
        mail.stop |= stop;
        for arrival in mail.arrivals.drain(..) {
            self.arrived(arrival);
        }
        self.tasks.extend(mail.batches.drain(..).map(Task::Serve));
        for parts in mail.cold.drain(..) {
            match &mut self.ring {
                Some(ring) if ring.has_room() => ring.push(parts),
                _ => self.node.data.read_by_thread(parts),
            }
        }
        if let Some(ring) = &mut self.ring {
            ring.submit();
        }
        for done in mail.done.drain(..) {
            self.done(done);
        }
        self.start_next();
        self.draining |= std::mem::take(&mut mail.drain);
        self.stopping |= std::mem::take(&mut mail.stop);
        self.mail = mail;
    }

    /// Takes what the ring is done with.
    fn collect(&mut self) {
        let done = self.ring.as_mut().map(Ring::collect);
        for (parts, result) in done.into_iter().flatten() {
            if result >= 0 {
                let reads = &self.node.metrics.ring_reads;
                reads.fetch_add(parts.len() as u64, Ordering::Relaxed);
            }
            self.node.data.collected(parts, result);
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        self.epochs += 1;
        let epoch = self.epochs;
        let peer = Arc::new(arrival.peer);
        let mut connection = Connection::new(arrival.socket, peer, FIRST_MSIZE, epoch);
        connection.share = arrival.share;
        match arrival.tls.map(Tls::new).transpose() {
            Ok(tls) => connection.tls = tls.map(Box::new),
            Err(error) => {
                tracing::warn!("{} refused: {error}", connection.peer);
                return self.node.gone();
            }
        }
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
            let room = match &mut connection.arriving {
                Some(write) => &mut write.buffer.bytes_mut()[write.received..],
                None => room_in(connection.frames.as_mut().expect(NESTED)),
            };
            let received = match &mut connection.tls {
                None => recv(&connection.socket, room, RecvFlags::DONTWAIT).map(|(count, _)| count),
                Some(tls) => match tls.recv(&connection.socket, room) {
                    Ok(Received::Bytes(count)) => Ok(count),
                    Ok(Received::Proved(proof)) => match self.proved(slot, proof) {
                        Ok(()) => continue,
                        Err(end) => return self.end(slot, end),
                    },
                    Err(Trouble::Socket(error)) => Err(error),
                    Err(Trouble::Broken(error)) => return self.end(slot, End::NotTls(error)),
                    Err(Trouble::Unproved(why)) => return self.end(slot, End::Refused(why)),
                },
            };
            match received {
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
        let answers = |it: &Connection| it.tls.as_ref().is_some_and(|tls| tls.wants_write());
        match self.connections.get(slot).is_some_and(answers) {
            true => self.send(slot),
            false => self.interest(slot),
        }
    }

    /// A certificate says who is at the other end.
    fn proved(&mut self, slot: usize, proof: Proof) -> Result<(), End> {
        let share = self.node.count_in(proof).map_err(End::Refused)?;
        let connection = &mut self.connections[slot];
        connection.share = share;
        connection.peer = Arc::new(Peer {
            proof,
            ..Peer::clone(&connection.peer)
        });
        Ok(())
    }

    /// So many bytes were received. True if there may be more.
    fn took(&mut self, slot: usize, count: usize) -> Result<bool, End> {
        let connection = &mut self.connections[slot];
        if let Some(write) = &mut connection.arriving {
            write.received += count;
            write.last = Instant::now();
            if write.received == write.buffer.len() {
                self.write_arrived(slot);
            }
            return Ok(true);
        }
        let frames = connection.frames.as_mut().expect(NESTED);
        let had_room = room_in(frames).len() > count;
        frames.received(count);
        self.understand(slot)?;
        let more = |it: &Connection| it.arriving.is_some() || it.tls.is_some();
        Ok(!had_room || self.connections.get(slot).is_some_and(more))
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
            let Some(head) = self.head(slot, frames)? else {
                return Ok(());
            };
            if !self.may_have_more(slot, &head) {
                self.connections[slot].held_back = true;
                return Ok(());
            }
            if self.large_write(slot, frames)? {
                self.connections[slot].half = None;
                return Ok(());
            }
            let Some(frame) = frames.next().map_err(End::Malformed)? else {
                if head.size > COPY_MAX {
                    let count = || self.node.data.buffers.count(head.size as usize);
                    self.connections[slot].half.get_or_insert_with(count);
                }
                return Ok(());
            };
            self.connections[slot].half = None;
            let (kind, tag) = (frame.kind, frame.tag);
            match kind.0 {
                100 => self.version(slot, frame)?,
                _ => self.request(slot, kind, tag, frame)?,
            }
        }
    }

    /// The beginning of the next frame; none is larger than it has to be.
    fn head(&self, slot: usize, frames: &mut Frames) -> Result<Option<Head>, End> {
        let msize = frame_max(&self.connections[slot]);
        frames.set_msize(msize);
        let head = frames.head().map_err(End::Malformed)?;
        if head.is_some_and(|head| !matches!(head.kind.0, WRITING | ONCE)) {
            frames.set_msize(msize.min(PLAIN_MAX));
        }
        frames.head().map_err(End::Malformed)
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

    /// Whether another request of the connection may be taken in. Only what carries data, or gets some, needs memory.
    fn may_have_more(&mut self, slot: usize, head: &Head) -> bool {
        if self.draining {
            return false;
        }
        let (connection, config) = (&self.connections[slot], &self.node.config);
        if connection.under_way.len() >= config.requests_max
            || connection.bytes >= config.bytes_max
            || connection.unsent() >= config.bytes_max.min(UNSENT_MAX)
        {
            return false;
        }
        let with_data =
            matches!(head.kind.0, 116 | LISTING | WRITING | ONCE) || head.size > COPY_MAX;
        let session = connection.session.as_ref();
        let account = session.and_then(|session| session.account());
        // What has come in part, and counts, may come to its end: it would wait for itself.
        let needs_memory = with_data && connection.half.is_none();
        let starves = needs_memory && self.node.data.buffers.is_full()
            || account.is_some_and(|account| !account.may_ask(with_data));
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
        if self.connections[slot].session.is_none() {
            return Err(End::NoVersion(head.kind));
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
            last: Instant::now(),
        });
        Ok(true)
    }

    fn write_arrived(&mut self, slot: usize) {
        self.node.metrics.request(Kind(118));
        let connection = &mut self.connections[slot];
        let write = connection.arriving.take().expect("it was there just now");
        let Some(session) = connection.session.clone() else {
            unreachable!(
                "a write begins only in a session, and a version does not come in its middle"
            )
        };
        let data = Payload::new(write.buffer);
        let is_file = session
            .held(write.fid)
            .is_ok_and(|held| matches!(held.open, Open::File(_)));
        if is_file && !self.connections[slot].order.is_busy(write.fid) {
            let to = self.reply_to(slot, write.tag);
            return self.write(&session, to, write.fid, write.offset, data);
        }
        // No file, or one that is still being opened: as any other request.
        let mut body = Vec::with_capacity(16 + data.bytes().len());
        body.extend_from_slice(&write.fid.0.to_le_bytes());
        body.extend_from_slice(&write.offset.to_le_bytes());
        body.extend_from_slice(&(data.bytes().len() as u32).to_le_bytes());
        body.extend_from_slice(data.bytes());
        let frame = Frame {
            kind: Kind(118),
            tag: write.tag,
            body: &body,
        };
        if let Ok(request) = Request::parse(frame, Dialect::Linux)
            && self.is_its_turn(slot, write.tag, &request, frame)
        {
            self.start(slot, session, request, frame);
        }
    }

    /// A request is under way.
    fn begin(&mut self, slot: usize, tag: Tag, bytes: usize) -> Result<(), End> {
        let connection = &mut self.connections[slot];
        let session = connection.session.as_ref();
        let account = session.and_then(|session| session.account());
        let load = Load {
            _share: account.map(|account| account.request(bytes)),
            body: None,
        };
        let under_way = UnderWay {
            bytes,
            load,
            ..UnderWay::default()
        };
        if connection.under_way.insert(tag.0, under_way).is_some() {
            return Err(End::TagInUse(tag));
        }
        connection.bytes += bytes;
        Ok(())
    }

    /// Whom a request that is done now is answered to. Who has that has what it counts for.
    fn reply_to(&mut self, slot: usize, tag: Tag) -> ReplyTo {
        let connection = &mut self.connections[slot];
        let under_way = connection.under_way.get_mut(&tag.0);
        ReplyTo {
            turner: self.number,
            slot,
            epoch: connection.epoch,
            tag,
            load: under_way
                .map(|it| std::mem::take(&mut it.load))
                .unwrap_or_default(),
        }
    }

    /// A new session begins.
    fn version(&mut self, slot: usize, frame: Frame<'_>) -> Result<(), End> {
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
        connection.order.clear();
        connection.bytes = 0;
        let old = connection.session.take();
        // Who has proved nothing so far gets no more time for it.
        if old.as_ref().is_some_and(|old| old.has_proved()) {
            connection.since = Instant::now();
        }
        let reply = match agreed {
            Some(agreed) => {
                let (node, peer) = (self.node.clone(), connection.peer.clone());
                connection.dialect = agreed.dialect;
                let session = Session::new(node, peer, agreed, &connection.socket);
                connection.session = Some(Arc::new(session));
                agreed.reply()
            }
            None => version::refusal(ours),
        };
        connection.encode(|out| reply.encode(tag, out));
        self.to_send.push(slot);
        if let Some(old) = old {
            self.node.jobs.run(move || old.end());
        }
        Ok(())
    }

    fn request(&mut self, slot: usize, kind: Kind, tag: Tag, frame: Frame<'_>) -> Result<(), End> {
        self.node.metrics.request(kind);
        let connection = &mut self.connections[slot];
        let Some(session) = connection.session.clone() else {
            return Err(End::NoVersion(kind));
        };
        let request = Request::parse(frame, connection.dialect).map_err(End::Malformed)?;
        if self.node.locks.waits() {
            session.asked(&request);
        }
        let bytes = match request {
            Request::Flush { old_tag } => return self.flush(slot, tag, old_tag),
            Request::Read { count, .. } => count.min(session.msize() - IO_HEADER) as usize,
            Request::Write { data, .. } => data.bytes().len(),
            Request::ReadDir { count, .. } => session.list_max(count) + LIST_HEAD,
            _ => frame.body.len(),
        };
        self.begin(slot, tag, bytes)?;
        if kind.0 == LISTING {
            self.count_reply(slot, tag, bytes);
        }
        if self.is_its_turn(slot, tag, &request, frame) {
            self.start(slot, session, request, frame);
        }
        Ok(())
    }

    /// What the reply will take counts from now on: as many may be asked for at once as there is memory for.
    fn count_reply(&mut self, slot: usize, tag: Tag, bytes: usize) {
        let counted = self.node.data.buffers.count(bytes);
        if let Some(under_way) = self.connections[slot].under_way.get_mut(&tag.0) {
            under_way.load.body = Some(counted);
        }
    }

    /// Whether a request may be done now; if not, it waits for those before it.
    fn is_its_turn(
        &mut self,
        slot: usize,
        tag: Tag,
        request: &Request<'_>,
        frame: Frame<'_>,
    ) -> bool {
        let connection = &mut self.connections[slot];
        let fids = named(request);
        let is_data = matches!(request, Request::Read { .. } | Request::Write { .. });
        if fids.is_empty() || is_data && !connection.order.is_busy(fids[0]) {
            return true;
        }
        let is_first = connection.order.enter(tag, &fids);
        if let Some(under_way) = connection.under_way.get_mut(&tag.0) {
            under_way.fids = fids;
            if !is_first {
                under_way.waiting = Some((frame.kind, frame.body.to_vec()));
                let body = &mut under_way.load.body;
                *body = body.take().or_else(|| body_of(&self.node, frame));
            }
        }
        is_first
    }

    /// Does a request, or sees to it that it is done.
    fn start(
        &mut self,
        slot: usize,
        session: Arc<Session>,
        request: Request<'_>,
        frame: Frame<'_>,
    ) {
        let mut to = self.reply_to(slot, frame.tag);
        match request {
            Request::Read { fid, offset, count } => {
                self.leave(slot, frame.tag);
                let count = count.min(session.msize() - IO_HEADER);
                match self.read(&session, to, fid, offset, count) {
                    Ok(()) => return,
                    Err(no_file) => to = no_file,
                }
            }
            Request::Write { fid, offset, data } => {
                self.leave(slot, frame.tag);
                let held = session.held(fid);
                if held.is_ok_and(|held| matches!(held.open, Open::File(_))) {
                    let mut buffer = self.node.data.buffers.take(data.bytes().len());
                    buffer.bytes_mut().copy_from_slice(data.bytes());
                    to.load.body = None;
                    return self.write(&session, to, fid, offset, Payload::new(buffer));
                }
            }
            _ => {}
        }
        self.perform(slot, session, to, frame);
    }

    /// A request stands in line no longer: others may go on.
    fn leave(&mut self, slot: usize, tag: Tag) {
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let Some(under_way) = connection.under_way.get_mut(&tag.0) else {
            return;
        };
        let fids = std::mem::take(&mut under_way.fids);
        if !fids.is_empty() {
            let next = connection.order.leave(tag, &fids);
            self.next.extend(next.into_iter().map(|tag| (slot, tag)));
        }
    }

    /// Starts what waited for others that are done.
    fn start_next(&mut self) {
        while let Some((slot, tag)) = self.next.pop() {
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            let (order, session, dialect) = (
                &connection.order,
                connection.session.clone(),
                connection.dialect,
            );
            let under_way = connection.under_way.get_mut(&tag.0);
            let Some(under_way) = under_way.filter(|it| order.is_first(tag, &it.fids)) else {
                continue;
            };
            let (Some((kind, body)), Some(session)) = (under_way.waiting.take(), session) else {
                continue;
            };
            let frame = Frame {
                kind,
                tag,
                body: &body,
            };
            if let Ok(request) = Request::parse(frame, dialect) {
                self.start(slot, session, request, frame);
            }
        }
    }

    /// Reads of files go through the scheduler; who asked is returned if it is no file.
    fn read(
        &mut self,
        session: &Arc<Session>,
        to: ReplyTo,
        fid: Fid,
        offset: u64,
        count: u32,
    ) -> Result<(), ReplyTo> {
        let Ok(held) = session.held(fid) else {
            return Err(to);
        };
        let Open::File(file) = &held.open else {
            return Err(to);
        };
        let range = Range::new(offset, count.into()).filter(|range| range.end() <= i64::MAX as u64);
        let out = match range {
            _ if !file.read => Out::failed(to.tag, Errno::BADF),
            None => Out::failed(to.tag, Errno::INVAL),
            Some(range) if range.is_empty() => Out::read(to.tag, self.node.data.buffers.take(0)),
            Some(range) => {
                self.node.data.read(to, session, file, range);
                return Ok(());
            }
        };
        self.done(Done { to, out });
        Ok(())
    }

    /// Writes to files go through the scheduler, except those to the end, which have no place before they are done.
    fn write(&mut self, session: &Arc<Session>, to: ReplyTo, fid: Fid, offset: u64, data: Payload) {
        let out = match session.held(fid).map(|held| held.file().cloned()) {
            Err(error) | Ok(Err(error)) => Out::failed(to.tag, error),
            Ok(Ok(file)) if !file.write => Out::failed(to.tag, Errno::BADF),
            Ok(Ok(_)) if data.bytes().is_empty() => Out::written(to.tag, 0),
            Ok(Ok(file)) if file.append => {
                let session = session.clone();
                return self.tasks.push(Task::Append(to, session, file, data));
            }
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

    /// All that is no read or write of a file: by this loop if such requests are quick, else on a thread.
    fn perform(&mut self, slot: usize, session: Arc<Session>, to: ReplyTo, frame: Frame<'_>) {
        let load = Load {
            body: to.load.body.or_else(|| body_of(&self.node, frame)),
            ..to.load
        };
        let perform = Perform {
            to: ReplyTo { load, ..to },
            may_wait: match frame.kind.0 {
                // Somebody else may have to say whose the credential is.
                104 => self.node.munge.is_some() || session.may_come_again(),
                // What the client was just doing on another connection has to end first.
                200 => session.comes_again(frame.body),
                _ => false,
            },
            session,
            dialect: self.connections[slot].dialect,
            kind: frame.kind,
            body: frame.body.to_vec(),
        };
        self.do_or_hand_over(perform);
    }

    fn do_or_hand_over(&mut self, perform: Perform) {
        match perform.is_for_threads(&self.node) {
            true => perform.hand_over(&self.node),
            false => self.tasks.push(Task::Perform(perform)),
        }
    }

    /// Tells that an old request is answered, once it is.
    fn flush(&mut self, slot: usize, tag: Tag, old: Tag) -> Result<(), End> {
        let connection = &mut self.connections[slot];
        match connection.under_way.get_mut(&old.0) {
            Some(request) if request.flushed_by.len() >= self.node.config.requests_max => {
                return Err(End::TagInUse(old));
            }
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
        if !request.fids.is_empty() {
            let next = connection.order.leave(to.tag, &request.fids);
            self.next.extend(next.into_iter().map(|tag| (to.slot, tag)));
        }
        connection.bytes -= request.bytes;
        connection.push(out, to.load);
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
        let unread = connection.tls.as_ref().is_some_and(|tls| tls.has_pending());
        if unread && !connection.held_back && !self.unread.contains(&slot) {
            self.unread.push(slot);
        }
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
        let (mut stalled, mut silent) = (Vec::new(), Vec::new());
        for (slot, connection) in &mut self.connections {
            let idle = !std::mem::take(&mut connection.was_active);
            if idle && let Some(frames) = &mut connection.frames {
                frames.release();
            }
            if idle && let Some(tls) = &mut connection.tls {
                tls.release();
            }
            if connection.owes_proof() {
                silent.push(slot);
            }
            let arriving = connection.arriving.as_ref().map(|write| write.last);
            let half = (idle && arriving.is_none() && connection.owes_rest())
                .then(|| *connection.half_since.get_or_insert_with(Instant::now));
            connection.half_since = half;
            let waits_since = [connection.stuck_since, arriving, half]
                .into_iter()
                .flatten()
                .min();
            if waits_since.is_some_and(|since| since.elapsed() > stall_max) {
                stalled.push(slot);
            }
        }
        for slot in stalled {
            self.end(slot, End::Stalled);
        }
        for slot in silent {
            self.end(slot, End::Silent);
        }
    }

    fn end(&mut self, slot: usize, why: End) {
        let Some(mut connection) = self.connections.try_remove(slot) else {
            return;
        };
        // Somebody may be just looking at the socket, and it must not be heard of under this number any more.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        if let Some(tls) = &mut connection.tls {
            // It may not hear why.
            let _ = tls.flush(&connection.socket);
        }
        let peer = &connection.peer;
        if matches!(
            why,
            End::Malformed(_)
                | End::TagInUse(_)
                | End::NoVersion(_)
                | End::Stalled
                | End::NotTls(_)
                | End::Silent
        ) {
            self.node.metrics.ended.fetch_add(1, Ordering::Relaxed);
        }
        match why {
            End::Left => tracing::debug!("{peer} left"),
            // A name that would lead elsewhere is more than a mistake.
            End::Malformed(error) if matches!(error.reason, Reason::Slash | Reason::Dots) => {
                self.node.audit(peer, &error);
            }
            End::Malformed(error) => tracing::warn!("{peer} ended: {error}"),
            End::TagInUse(tag) => {
                tracing::warn!("{peer} ended: it used {tag} again, which is under way")
            }
            End::NoVersion(kind) => tracing::warn!("{peer} ended: {kind} before Tversion"),
            End::Drained => tracing::debug!("{peer} left: the node is being drained"),
            End::Stalled => {
                tracing::warn!("{peer} ended: it neither reads its replies nor sends what it began")
            }
            End::Broken(error) => tracing::warn!("{peer} ended: {error}"),
            End::NotTls(error) => tracing::warn!("{peer} ended: no TLS as it has to be: {error}"),
            End::Silent => tracing::warn!("{peer} ended: it did not say in time who it is"),
            End::Refused(why) => self.node.audit(peer, &why),
        }
        self.starved.retain(|starved| *starved != slot);
        self.node.gone();
        if let Some(session) = connection.session {
            self.node.jobs.run(move || session.end());
        }
    }

    /// Lets all connections go.
    pub fn stop(&mut self) {
        for (_, connection) in std::mem::take(&mut self.connections) {
            if let Some(session) = connection.session {
                session.end_now();
            }
            self.node.gone();
        }
    }
}

/// Something to do that may wait, although it should not.
pub enum Task {
    /// A batch that the scheduler chose.
    Serve(Batch),
    /// A write to the end of a file.
    Append(ReplyTo, Arc<Session>, Arc<OpenFile>, Payload),
    /// Any other request.
    Perform(Perform),
}

impl Task {
    /// Under which kind its pace is kept.
    pub fn kind(&self) -> u8 {
        match self {
            Task::Serve(_) | Task::Append(..) => WRITING,
            Task::Perform(perform) => perform.kind.0,
        }
    }

    /// Does it, on this thread or by handing it over.
    pub fn run(self, node: &Arc<Shared>) {
        match self {
            Task::Serve(batch) => node.data.serve(&batch),
            Task::Append(to, session, file, data) => node.data.append(to, session, file, data),
            // Many may have been found to do before one of them hung, or another loop began the same.
            Task::Perform(perform) if perform.is_for_threads(node) => perform.hand_over(node),
            Task::Perform(perform) => perform.run(node),
        }
    }
}

/// A request that is no read or write of a file, with all that it needs.
pub struct Perform {
    to: ReplyTo,
    session: Arc<Session>,
    dialect: Dialect,
    kind: Kind,
    body: Vec<u8>,
    may_wait: bool,
}

impl Perform {
    /// Whether it may have to wait, or its like took long lately.
    fn is_for_threads(&self, node: &Shared) -> bool {
        let is_numbered = self.kind.0 == ONCE;
        // Behind two numbers: an append takes as long as any write does.
        let appends = is_numbered && self.body.get(16) == Some(&WRITING);
        let is_slow = |kind| !node.pace.is_quick(kind);
        is_slow(self.kind.0)
            || appends && is_slow(WRITING)
            || self.may_wait
            || is_numbered && self.session.may_wait(&self.body)
    }

    fn hand_over(self, node: &Arc<Shared>) {
        let here = node.clone();
        node.jobs.run(move || self.run(&here));
    }

    fn run(self, node: &Shared) {
        let (kind, tag) = (self.kind, self.to.tag);
        let frame = Frame {
            kind,
            tag,
            body: &self.body,
        };
        let mut out = Vec::new();
        let inside = self.session.enter();
        match Request::parse(frame, self.dialect) {
            Ok(_) if inside.is_none() => refuse(tag, Errno::IO, &mut out),
            Ok(request) => {
                let perform = || self.session.perform(request, tag, &mut out);
                if unharmed(|| node.pace.measure(kind.0, 0, perform)).is_none() {
                    out.clear();
                    refuse(tag, Errno::IO, &mut out);
                }
            }
            Err(_) => refuse(tag, Errno::PROTO, &mut out),
        }
        let (mut to, out) = (self.to, reply_of(node, out));
        // The request is gone, and the reply counts for itself.
        to.load.body = None;
        let mailbox = node.data.mailbox(to.turner);
        mailbox.post(|mail| mail.done.push(Done { to, out }));
    }
}

/// Why frames are always there: they are out only while frames of the same connection are being understood.
const NESTED: &str = "a connection's frames are looked at by one at a time";

/// What the copy of a frame's fields counts for, if that is worth counting.
fn body_of(node: &Shared, frame: Frame<'_>) -> Option<Counted> {
    let bytes = frame.body.len();
    (bytes > COPY_MAX as usize).then(|| node.data.buffers.count(bytes))
}

/// A reply; a large one is counted until it was sent.
fn reply_of(node: &Shared, encoded: Vec<u8>) -> Out {
    if encoded.len() <= COPY_MAX as usize {
        return Out::Encoded(encoded);
    }
    let mut buffer = node.data.buffers.take(encoded.len());
    buffer.bytes_mut().copy_from_slice(&encoded);
    Out::Data(buffer)
}

/// The largest frame that is taken now.
fn frame_max(connection: &Connection) -> u32 {
    match &connection.session {
        Some(session) if session.account().is_some() => session.msize(),
        Some(session) => session.msize().min(FIRST_MSIZE),
        None => FIRST_MSIZE,
    }
}

/// Where to receive: room for as much again as there is, so that a frame that was only announced takes no memory.
fn room_in(frames: &mut Frames) -> &mut [u8] {
    let there = frames.bytes().len();
    let whole = match frames.head() {
        Ok(Some(head)) => head.size as usize,
        _ => 0,
    };
    frames.space_for(whole.min(2 * there + Frames::ROOM))
}

fn flushed(connection: &mut Connection, tag: Tag) {
    connection.encode(|out| presagio_ninep::Reply::Flush.encode(tag, out));
}
