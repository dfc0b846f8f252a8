//! A session: what one connection has agreed on, the fids it holds, and what each of its requests means.
//!
//! A session does no network I/O. [`Session::perform`] does one request, on the thread that calls it, and writes the reply;
//! reads and writes of files are not done here, but go through the scheduler ([`crate::data`]).

mod attach;
mod attributes;
mod fence;
mod fids;
mod foresight;
mod locking;
mod names;
mod opening;
mod recovery;
#[cfg(test)]
mod tests;
mod xattrs;

pub use fence::Fences;
pub use fids::{AllFids, Held, Open};
pub use names::LIST_HEAD;

use crate::accounts::Account;
use crate::auth::shares::Share;
use crate::error::Result;
use crate::identity::{Identity, NOBODY};
use crate::metrics::JobMetrics;
use crate::node::Shared;
use crate::peer::Peer;
use crate::record::Client;
use fence::Fence;
use fids::Fids;
use locking::{Asker, LockRange};
use presagio_core::AppId;
use presagio_ninep::version::Agreed;
use presagio_ninep::{Dialect, Errno, Fid, Name, Reply, Request, Tag};
use recovery::{Greeting, Says};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What opening a device is answered.
const NXIO: Errno = Errno(libc::ENXIO as u32);

/// One session of a connection; a new Tversion begins another.
pub struct Session {
    node: Arc<Shared>,
    peer: Arc<Peer>,
    /// A number that no other session of this node has.
    number: u64,
    /// The largest frame, as agreed on.
    msize: u32,
    dialect: Dialect,
    fids: Mutex<Fids>,
    /// Who the client says it is.
    greeting: OnceLock<Greeting>,
    /// The client as a trace describes it, if it did not say who it is.
    stranger: OnceLock<Arc<Client>>,
    /// Those who proved here who they are, counted as having this connection.
    shares: Mutex<Vec<Share>>,
    fence: Arc<Fence>,
    /// As whose it ended earlier sessions of its instance.
    came_as: OnceLock<u32>,
    /// Of whom the first credential was.
    proved: OnceLock<u32>,
    /// Who attached first.
    user: OnceLock<Arc<Identity>>,
    /// What that user has.
    account: OnceLock<Arc<Account>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forget_foretold();
    }
}

/// Where a reply is written to.
pub struct Answer<'o> {
    out: &'o mut Vec<u8>,
    tag: Tag,
}

impl<'o> Answer<'o> {
    /// Writes to the end of `out`.
    pub fn new(out: &'o mut Vec<u8>, tag: Tag) -> Answer<'o> {
        Answer { out, tag }
    }

    /// The reply.
    pub fn reply(&mut self, reply: Reply<'_>) -> Result<()> {
        reply.encode(self.tag, self.out);
        Ok(())
    }
}

/// Writes the reply that says an error.
pub fn refuse(tag: Tag, error: Errno, out: &mut Vec<u8>) {
    Reply::Error { errno: error }.encode(tag, out);
}

impl Session {
    /// A session of what was agreed on, on a socket.
    pub fn new(
        node: Arc<Shared>,
        peer: Arc<Peer>,
        agreed: Agreed,
        socket: &Arc<OwnedFd>,
    ) -> Session {
        Session {
            number: node.number(),
            fids: Mutex::new(Fids::new(
                node.config.fids_max,
                node.fids.clone(),
                node.accounts.clone(),
            )),
            node,
            peer,
            msize: agreed.msize,
            dialect: agreed.dialect,
            greeting: OnceLock::new(),
            stranger: OnceLock::new(),
            shares: Mutex::default(),
            fence: Arc::new(Fence::new(socket)),
            came_as: OnceLock::new(),
            proved: OnceLock::new(),
            user: OnceLock::new(),
            account: OnceLock::new(),
        }
    }

    /// The application, as the scheduler tells them apart: a job, or else all that a user does.
    pub fn app(&self) -> AppId {
        let job = self.greeting.get().and_then(|greeting| greeting.app);
        let user = || self.user.get().map(|user| user.uid);
        AppId(job.or_else(user).unwrap_or(NOBODY))
    }

    /// Where the client's job is counted, if it said one.
    pub fn job(&self) -> Option<&JobMetrics> {
        self.greeting.get().map(|greeting| &*greeting.metrics)
    }

    /// The client, as a trace describes it.
    pub fn client(&self) -> Arc<Client> {
        let stranger = || Client {
            number: self.number as u32,
            ..Client::default()
        };
        match self.greeting.get() {
            Some(greeting) => greeting.client.clone(),
            None => self.stranger.get_or_init(|| Arc::new(stranger())).clone(),
        }
    }

    /// Whose requests they are, once somebody has attached.
    pub fn account(&self) -> Option<&Arc<Account>> {
        self.account.get()
    }

    /// The largest frame.
    pub fn msize(&self) -> u32 {
        self.msize
    }

    /// What a fid stands for.
    pub fn held(&self, fid: Fid) -> Result<Arc<Held>> {
        self.fids().get(fid)
    }

    fn fids(&self) -> MutexGuard<'_, Fids> {
        self.fids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a fid stands for; from now on this thread acts as its holder.
    fn acting(&self, fid: Fid) -> Result<Arc<Held>> {
        let held = self.held(fid)?;
        self.node.power.act_as(&held.user)?;
        Ok(held)
    }

    /// Does one request, and appends its reply to `out`.
    pub fn perform(&self, request: Request<'_>, tag: Tag, out: &mut Vec<u8>) {
        let start = out.len();
        let mut answer = Answer::new(out, tag);
        if let Err(error) = self.answer(request, &mut answer) {
            out.truncate(start);
            refuse(tag, error, out);
        }
    }

    /// Whether a request may be done for somebody who has not attached yet.
    fn is_for_strangers(request: &Request<'_>) -> bool {
        matches!(
            request,
            Request::Attach { .. }
                | Request::Auth { .. }
                | Request::Hello { .. }
                | Request::Clunk { .. }
                | Request::Read { .. }
                | Request::Write { .. }
        )
    }

    /// Does one request. What the node itself does not allow anybody is audited; what the file system does not is not.
    fn answer(&self, request: Request<'_>, answer: &mut Answer<'_>) -> Result<()> {
        let done = self.do_request(request, answer);
        if let Err(error @ (Errno::PERM | Errno::ROFS | NXIO)) = done
            && let Some(what) = self.forbidden(&request, error)
        {
            self.node.audit(&self.peer, &what);
        }
        done
    }

    /// What was tried, if it was the node that refused it.
    fn forbidden(&self, request: &Request<'_>, error: Errno) -> Option<&'static str> {
        let is_own = |dir: Fid, name: Name<'_>| {
            let held = self.held(dir);
            held.is_ok_and(|held| self.node.export.is_own(&held.place, name.bytes()))
        };
        let names_own = match *request {
            _ if error == Errno::ROFS => {
                let is_ours = self.node.export.writable().is_err();
                return is_ours.then_some("it tried to change what is exported to be read only");
            }
            Request::Open { .. } | Request::Create { .. } if error == NXIO => {
                return Some("it tried to open a device, a pipe or a socket");
            }
            Request::Create { fid, name, .. } => is_own(fid, name),
            Request::Mkdir { dir, name, .. }
            | Request::Symlink { dir, name, .. }
            | Request::Mknod { dir, name, .. }
            | Request::Link { dir, name, .. }
            | Request::Rename { dir, name, .. }
            | Request::UnlinkAt { dir, name, .. } => is_own(dir, name),
            Request::RenameAt {
                old_dir,
                old_name,
                new_dir,
                new_name,
            } => is_own(old_dir, old_name) || is_own(new_dir, new_name),
            _ => false,
        };
        names_own.then_some("it tried to make, change or remove what the node keeps for itself")
    }

    fn do_request(&self, request: Request<'_>, answer: &mut Answer<'_>) -> Result<()> {
        // Of a file, nobody reads or writes anything without a fid, and nobody has one yet.
        if self.user.get().is_none() && !Session::is_for_strangers(&request) {
            return Err(Errno::BADF);
        }
        match request {
            Request::Attach {
                fid,
                auth_fid,
                uid,
                user,
                export,
            } => self.attach(fid, auth_fid, user, export, uid, answer),
            Request::Auth { auth_fid, .. } => self.auth(auth_fid, answer),
            Request::Walk {
                fid,
                new_fid,
                steps,
            } => self.walk(fid, new_fid, steps, answer),
            Request::Clunk { fid } if self.fids().end_credential(fid) => answer.reply(Reply::Clunk),
            Request::Clunk { fid } => self.clunk(fid, answer),
            Request::Open { fid, flags } => self.open(fid, flags, answer),
            Request::Create {
                fid,
                name,
                flags,
                mode,
                gid,
            } => self.create(fid, name, flags, mode, gid, answer),
            Request::Read { fid, .. } if self.credential(fid).is_some() => Err(Errno::OPNOTSUPP),
            Request::Read { fid, offset, count } => self.read_value(fid, offset, count, answer),
            Request::Write { fid, offset, data } => match self.credential(fid) {
                Some(credential) => self.write_credential(&credential, offset, data, answer),
                None => self.write_value(fid, offset, data, answer),
            },
            Request::ReadDir { fid, offset, count } => self.read_dir(fid, offset, count, answer),
            Request::Fsync { fid, datasync } => self.fsync(fid, datasync.0, answer),
            Request::GetAttr { fid, .. } => self.get_attr(fid, answer),
            Request::SetAttr { fid, attr } => self.set_attr(fid, &attr, answer),
            Request::StatFs { fid } => self.stat_fs(fid, answer),
            Request::ReadLink { fid } => self.read_link(fid, answer),
            Request::Mkdir {
                dir,
                name,
                mode,
                gid,
            } => {
                let dir = self.making(dir, gid)?;
                let qid = self.node.export.make_dir(dir.dir()?, name, mode)?;
                answer.reply(Reply::Mkdir { qid })
            }
            Request::Symlink {
                dir,
                name,
                target,
                gid,
            } => {
                let dir = self.making(dir, gid)?;
                let qid = self.node.export.make_link(dir.dir()?, name, target)?;
                answer.reply(Reply::Symlink { qid })
            }
            Request::Mknod {
                dir,
                name,
                mode,
                major,
                minor,
                gid,
            } => {
                let dir = self.making(dir, gid)?;
                let device = (major, minor);
                let qid = self.node.export.make_node(dir.dir()?, name, mode, device)?;
                answer.reply(Reply::Mknod { qid })
            }
            Request::Link { dir, fid, name } => self.link(dir, fid, name, answer),
            Request::Rename { fid, dir, name } => self.rename(fid, dir, name, answer),
            Request::RenameAt {
                old_dir,
                old_name,
                new_dir,
                new_name,
            } => {
                self.rename_at((old_dir, old_name), (new_dir, new_name))?;
                answer.reply(Reply::RenameAt)
            }
            Request::UnlinkAt { dir, name, flags } => self.unlink_at(dir, name, flags, answer),
            Request::Remove { fid } => self.remove(fid, answer),
            Request::XattrWalk { fid, new_fid, name } => {
                self.xattr_walk(fid, new_fid, name, answer)
            }
            Request::XattrCreate {
                fid,
                name,
                size,
                flags,
            } => self.xattr_create(fid, name, size, flags, answer),
            Request::Lock {
                fid,
                lock_type,
                flags,
                start,
                length,
                process,
                client,
            } => {
                let (range, asker) = (LockRange { start, length }, Asker { process, client });
                self.lock(fid, lock_type, flags, &range, &asker, answer)
            }
            Request::GetLock {
                fid,
                lock_type,
                start,
                length,
                process,
                client,
            } => {
                let (range, asker) = (LockRange { start, length }, Asker { process, client });
                self.get_lock(fid, lock_type, &range, &asker, answer)
            }
            Request::Hello {
                instance,
                resume,
                client,
                job,
                rank,
                program,
            } => {
                let says = Says {
                    client,
                    job,
                    rank,
                    program,
                };
                self.hello(instance, resume, &says, answer)
            }
            Request::Foresee { requests } => self.foresee(requests, answer),
            Request::Died { instance } => self.died(instance, answer),
            Request::Once {
                sequence,
                settled,
                request,
            } => self.once(sequence, settled, request, answer),
            Request::Handle { fid } => self.handle(fid, answer),
            Request::Reopen {
                root,
                fid,
                flags,
                handle,
            } => self.reopen(root, fid, flags.flags(), handle, answer),
            // Tversion and Tflush are the connection's own.
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// What a fid stood for is let go.
    fn closed(&self, held: &Held) {
        self.node.closed(held, self.known());
    }

    /// What a fid stood for is let go with the session. The locks and files of a client that may come back wait for it.
    fn lost(&self, held: &Held) {
        match self.known() {
            Some(client) => self.node.lost(held, client),
            None => self.node.closed(held, None),
        }
    }

    /// The session is over: all that it holds is let go. What it is just doing has some time to end, with the fids that it needs
    /// for that.
    pub fn end(&self) {
        self.end_within(fence::PATIENCE);
    }

    /// The same, without waiting for anything.
    pub fn end_now(&self) {
        self.end_within(Duration::ZERO);
    }

    fn end_within(&self, patience: Duration) {
        self.fence.end(Instant::now() + patience);
        let all = self.fids().clear();
        for held in all {
            self.lost(&held);
        }
        if let Some(greeting) = self.greeting.get() {
            self.node.fences.left(greeting.instance, &self.fence);
        }
    }
}
