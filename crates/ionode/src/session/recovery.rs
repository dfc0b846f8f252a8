//! Coming back: who a client is over all its connections, requests that must not be done twice, files found again.

use super::fence::Inside;
use super::{Answer, Held, Open, Session, refuse};
use crate::data::WRITING;
use crate::error::{OrErrno, Result};
use crate::handles;
use crate::identity::NOBODY;
use crate::locks::Known;
use crate::metrics::JobMetrics;
use crate::once::{Begin, Instance, Kept, Once};
use crate::record::Client;
use presagio_ninep::extension::{ReopenFlags, Resumed, Wrapped};
use presagio_ninep::{Errno, Fid, HEADER, Handle, LockFlags, OpenFlags, Reply, Request, Text};
use presagio_storage::Access;
use std::sync::Arc;

/// What a client said of itself.
pub struct Greeting {
    /// Its number over all its connections.
    pub instance: Instance,
    /// The replies to its numbered requests.
    pub once: Arc<Once>,
    /// The client, as a trace describes it.
    pub client: Arc<Client>,
    /// Its job's number, for the scheduler, if it has one.
    pub app: Option<u32>,
    /// Where its job is counted.
    pub metrics: Arc<JobMetrics>,
}

/// What a client says of itself, which proves nothing.
pub struct Says<'a> {
    pub client: Text<'a>,
    pub job: Text<'a>,
    pub rank: u32,
    pub program: Text<'a>,
}

/// A numbered request that has begun. If it does not come to its end, nobody can tell.
struct Begun<'a> {
    once: &'a Once,
    sequence: u64,
}

impl Begun<'_> {
    fn done(self, kept: Kept) {
        self.once.done(self.sequence, kept);
        std::mem::forget(self);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.once.abandon(self.sequence);
    }
}

/// What a handle may take among the replies that are kept.
const KEPT_MAX: usize = 440;

/// And where it is only sent.
const HANDLE_MAX: usize = 6000;

const NOTHING: Access = Access {
    read: false,
    write: false,
};

impl Session {
    pub(super) fn hello(
        &self,
        instance: Instance,
        resume: [u8; 16],
        says: &Says<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        // Clients that do not say who they are have such numbers.
        if instance[..8] == [0; 8] {
            return Err(Errno::INVAL);
        }
        self.node.act_as_node()?;
        let (table, seal) = (&self.node.once, &self.node.seal);
        let found = table.find(instance, resume, seal, self.node.own.as_ref());
        let (once, resumed) = match found.or_errno()? {
            Some(once) => (once, Resumed::Yes),
            None => (table.begin(instance, seal).or_errno()?, Resumed::No),
        };
        let (ours, replies) = (once.token(), once.len() as u32);
        let greeting = self.greeting_of(instance, once, says);
        self.greeting.set(greeting).map_err(|_| Errno::PROTO)?;
        self.came();
        let node = Text::new(&self.node.config.name).map_err(|_| Errno::IO)?;
        answer.reply(Reply::Hello {
            epoch: self.node.epoch,
            resume: ours,
            resumed,
            replies,
            grace_ms: self.node.locks.grace_left().as_millis() as u32,
            node,
        })
    }

    /// Whose session this is, as soon as that is known: who the connection, or its first credential, is proved to be. Not who
    /// attached: a mount does so for many users, after a reconnection in another order. Where nothing is proved, the
    /// token has to do.
    pub(super) fn owner(&self) -> Option<u32> {
        let by_credential = || self.proved.get().copied();
        let trusted = || self.user.get().map(|_| NOBODY);
        self.peer
            .proof
            .uid()
            .or_else(by_credential)
            .or_else(trusted)
    }

    /// The client, if it may come back: it has said which it is, and it is known whose.
    pub(super) fn known(&self) -> Option<Known> {
        let instance = self.greeting.get()?.instance;
        let uid = self.owner()?;
        Some(Known { instance, uid })
    }

    /// As soon as it has attached and said which instance it is: earlier sessions of that are over, and it may come back.
    /// Before, it has no right to either.
    pub(super) fn came(&self) {
        if let (Some(greeting), Some(_), Some(uid)) =
            (self.greeting.get(), self.user.get(), self.owner())
            && self.came_as.set(uid).is_ok()
        {
            let fences = &self.node.fences;
            fences.came(greeting.instance, uid, &self.fence);
            self.node.note_client();
            // Its connection may be gone already, and nobody else would say so.
            if self.fids().has_ended() {
                fences.left(greeting.instance, &self.fence);
            }
        }
    }

    fn greeting_of(&self, instance: Instance, once: Arc<Once>, says: &Says<'_>) -> Greeting {
        let text = |text: Text<'_>| String::from_utf8_lossy(text.bytes()).into_owned();
        let job = text(says.job);
        let client = Client {
            number: self.number as u32,
            host: text(says.client),
            program: text(says.program),
            rank: (says.rank != u32::MAX).then_some(says.rank),
        };
        let client = Arc::new(client);
        self.node.guests.add(&client);
        Greeting {
            instance,
            once,
            client,
            app: (!job.is_empty()).then(|| crc32fast::hash(job.as_bytes())),
            metrics: self.node.metrics.job(&job),
        }
    }

    /// Does a request once, and answers the same whenever it is asked for again.
    pub(super) fn once(
        &self,
        sequence: u64,
        settled: u64,
        wrapped: Wrapped<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let once = self.greeting.get().ok_or(Errno::PROTO)?.once.clone();
        let request = wrapped.request();
        let is_its = self.owner().is_some_and(|uid| once.is_of(uid));
        if !is_its {
            let what = "it asked under the numbers of another user's client";
            self.node.audit(&self.peer, &what);
            return Err(Errno::PERM);
        }
        self.node.act_as_node()?;
        match once.begin(sequence, settled, self.node.own.as_ref())? {
            Begin::Again(kept) => self.answer_again(&kept, request, answer),
            Begin::First => {
                let begun = Begun {
                    once: &once,
                    sequence,
                };
                // That it begins is in the export now: a client that is asked for it elsewhere after this hears that nobody can
                // tell, and one that went there before has hung up here. Dropped, `begun` says the same.
                let _inside = self.fence.enter_now().ok_or(Errno::IO)?;
                let (kept, result) = self.do_first(request, answer);
                self.node.act_as_node()?;
                if self.has_lost_fids(request, &kept, result) {
                    // Dropped, it says that nobody can tell.
                    return Err(Errno::IO);
                }
                begun.done(kept);
                Ok(())
            }
        }
    }

    /// Whether what came of a request is only that the session ended meanwhile and its fids were gone: it may have been done, in
    /// part or not at all, and this reply must not be given to who asks again.
    fn has_lost_fids(&self, request: Request<'_>, kept: &Kept, result: Result<()>) -> bool {
        let opens = matches!(request, Request::Create { .. } | Request::Open { .. });
        let is_cut_short = match result {
            Ok(()) => opens && kept.extra.is_empty(),
            Err(error) => error == Errno::BADF,
        };
        is_cut_short && self.fids().has_ended()
    }

    fn do_first(&self, request: Request<'_>, answer: &mut Answer<'_>) -> (Kept, Result<()>) {
        let start = answer.out.len();
        let result = match request {
            Request::Write { fid, data, .. } => self.append(fid, data.bytes(), answer),
            other => self.answer(other, answer),
        };
        if let Err(error) = result {
            answer.out.truncate(start);
            refuse(answer.tag, error, answer.out);
        }
        let extra = match (request, result) {
            (Request::Create { fid, .. } | Request::Open { fid, .. }, Ok(())) => {
                self.handle_of(fid, KEPT_MAX)
            }
            _ => Ok(Vec::new()),
        };
        let frame = &answer.out[start..];
        // Type and fields, without size and tag.
        let reply = [&frame[4..5], &frame[HEADER..]].concat();
        let extra = extra.unwrap_or_default();
        (Kept { reply, extra }, result)
    }

    /// The old reply, and the fid stands for what it stood for then.
    fn answer_again(
        &self,
        kept: &Kept,
        request: Request<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let failed = kept.reply.first() == Some(&presagio_ninep::Kind::LERROR.0);
        match request {
            _ if failed => {}
            Request::Create { fid, flags, .. } | Request::Open { fid, flags } => {
                let held = self.held(fid)?;
                if matches!(held.open, Open::No) {
                    // There was no handle of it, or none that could be kept: that is no fault of the client's.
                    if kept.extra.is_empty() {
                        return Err(Errno::STALE);
                    }
                    let (found, flags) = (&kept.extra, ReopenFlags::new(flags));
                    let held = self.reopened(found, flags.flags(), &held.user)?;
                    self.fids().replace(fid, held)?;
                }
            }
            Request::Remove { fid } => {
                let removed = self.fids().remove(fid);
                if let Ok(held) = removed {
                    self.closed(&held);
                }
            }
            _ => {}
        }
        let (kind, fields) = kept.reply.split_first().ok_or(Errno::IO)?;
        let size = (HEADER + fields.len()) as u32;
        answer.out.extend_from_slice(&size.to_le_bytes());
        answer.out.push(*kind);
        answer.out.extend_from_slice(&answer.tag.0.to_le_bytes());
        answer.out.extend_from_slice(fields);
        Ok(())
    }

    /// Appends, on this thread. Of writes, only those to the end are numbered: others may be done twice.
    fn append(&self, fid: Fid, bytes: &[u8], answer: &mut Answer<'_>) -> Result<()> {
        let held = self.held(fid)?;
        let file = held.file()?;
        match (file.write, file.append) {
            (false, _) => return Err(Errno::BADF),
            (_, false) => return Err(Errno::INVAL),
            (true, true) => {}
        }
        let count = self.node.data.append_now(self, file, bytes)? as u32;
        answer.reply(Reply::Write { count })
    }

    fn handle_of(&self, fid: Fid, room: usize) -> Result<Vec<u8>> {
        let held = self.held(fid)?;
        let granted = match &held.open {
            Open::File(file) => Access {
                read: file.read,
                write: file.write,
            },
            Open::Dir(_) => Access {
                read: true,
                write: false,
            },
            _ => NOTHING,
        };
        handles::make(
            &self.node.seal,
            &self.node.export,
            &held.place,
            (held.user.uid, granted),
            self.node.clock.now(),
            room,
        )
    }

    pub(super) fn handle(&self, fid: Fid, answer: &mut Answer<'_>) -> Result<()> {
        let handle = self.handle_of(fid, HANDLE_MAX)?;
        let handle = Handle::new(&handle).map_err(|_| Errno::IO)?;
        answer.reply(Reply::Handle { handle })
    }

    pub(super) fn reopen(
        &self,
        root: Fid,
        fid: Fid,
        flags: OpenFlags,
        handle: Handle<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let root = self.held(root)?;
        let held = self.reopened(handle.bytes(), flags, &root.user)?;
        let qid = self.node.export.qid(&held.place.stat()?);
        self.fids().insert(fid, held)?;
        answer.reply(Reply::Reopen {
            qid,
            iounit: self.io_unit(),
        })
    }

    /// What a handle stands for, opened as it was. Who had it open may have it again, whatever its permissions are now.
    fn reopened(
        &self,
        handle: &[u8],
        flags: OpenFlags,
        user: &Arc<crate::identity::Identity>,
    ) -> Result<Held> {
        let found = handles::read(&self.node.seal, handle, self.node.clock.now());
        let found = found.inspect_err(|_| {
            let what = "it came with a handle that no node of this export gave";
            self.node.audit(&self.peer, &what);
        })?;
        if found.uid != user.uid {
            let what = format_args!(
                "as uid {}, it came with a handle of uid {}",
                user.uid, found.uid
            );
            self.node.audit(&self.peer, &what);
            return Err(Errno::PERM);
        }
        self.node.act_as_node()?;
        let place = found.place(&self.node.export, self.node.own.as_ref())?;
        let mut held = Held {
            place,
            user: user.clone(),
            open: Open::No,
        };
        if flags.contains(OpenFlags::PATH) {
            return Ok(held);
        }
        let access = super::opening::access_of(flags)?;
        let was_granted =
            (!access.read || found.granted.read) && (!access.write || found.granted.write);
        if !was_granted {
            self.node.power.act_as(user)?;
        }
        held.open = self.opened(&held.place, flags)?;
        // A node that was killed just before it took the file's last name from it has left it both.
        if let Open::File(file) = &held.open
            && held.place.stat()?.stx_nlink == 1
            && self
                .node
                .own
                .as_ref()
                .is_some_and(|own| own.keeps(file.hold.file().key))
        {
            self.node.files.lost_name(file.hold.file().key);
        }
        if let (Open::File(file), Some(client)) = (&held.open, self.known()) {
            self.node.came_back(client, file.hold.file().key);
        }
        Ok(held)
    }

    /// Something is to be done that must not be done any more if the client was lost: `None` then.
    pub fn enter(&self) -> Option<Option<Inside>> {
        match self.greeting.get() {
            Some(_) => self.fence.enter().map(Some),
            None => Some(None),
        }
    }

    /// Whether a hello, by its fields, is of a client that has another session here.
    pub fn comes_again(&self, hello: &[u8]) -> bool {
        let instance = hello.first_chunk();
        instance.is_some_and(|instance| self.node.fences.knows(*instance))
    }

    /// Whether it may turn out with an attach that the client has another session here.
    pub fn may_come_again(&self) -> bool {
        let greeting = self.greeting.get();
        self.came_as.get().is_none()
            && greeting.is_some_and(|greeting| self.node.fences.knows(greeting.instance))
    }

    /// A request came. The first that is not there to find again what was had before says that all of that is done.
    pub fn asked(&self, request: &Request<'_>) {
        let claims = match request {
            Request::Hello { .. }
            | Request::Auth { .. }
            | Request::Attach { .. }
            | Request::Walk { .. }
            | Request::Reopen { .. }
            | Request::Clunk { .. }
            | Request::Flush { .. }
            | Request::Handle { .. }
            | Request::Foresee { .. }
            | Request::Died { .. } => true,
            Request::Lock { flags, .. } => flags.contains(LockFlags::RECLAIM),
            _ => false,
        };
        // Before the attach it may be anybody.
        if let Some(client) = self.known()
            && self.came_as.get().is_some()
            && !claims
        {
            self.node.locks.is_back(client);
        }
    }

    /// Whether a numbered request, by its fields, may be a repetition, which may have to wait, or is an append that waits until it
    /// is durable.
    pub fn may_wait(&self, once: &[u8]) -> bool {
        let Some(greeting) = self.greeting.get() else {
            return false;
        };
        let number = |at: usize| Some(u64::from_le_bytes(*once.get(at..)?.first_chunk()?));
        let may_repeat = |(sequence, settled)| greeting.once.may_repeat(sequence, settled);
        let is_durable = |fid: &[u8; 4]| {
            let held = self.held(Fid(u32::from_le_bytes(*fid)));
            held.is_ok_and(|held| held.file().is_ok_and(|file| file.durable.is_some()))
        };
        let appends = once.get(16) == Some(&WRITING);
        let to = once.get(17..).and_then(<[u8]>::first_chunk);
        number(0).zip(number(8)).is_none_or(may_repeat) || appends && to.is_none_or(is_durable)
    }
}
