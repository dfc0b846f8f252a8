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
mod xattrs;

pub use fence::Fences;
pub use fids::{AllFids, Held, Open};

use crate::accounts::Account;
use crate::auth::shares::Share;
use crate::error::Result;
use crate::identity::Identity;
use crate::metrics::JobMetrics;
use crate::node::Shared;
use crate::peer::Peer;
use crate::record::Client;
use fence::Fence;
use fids::Fids;
use locking::{Asker, LockRange};
use presagio_core::AppId;
use presagio_ninep::version::Agreed;
use presagio_ninep::{Dialect, Errno, Fid, Reply, Request, Tag};
use recovery::{Greeting, Says};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
            user: OnceLock::new(),
            account: OnceLock::new(),
        }
    }

    /// The application, as the scheduler tells them apart: a job, or else all that a user does.
    pub fn app(&self) -> AppId {
        AppId(
            self.greeting
                .get()
                .map_or(self.peer.uid(), |greeting| greeting.app),
        )
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

    fn answer(&self, request: Request<'_>, answer: &mut Answer<'_>) -> Result<()> {
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

    /// The session is over: all that it holds is let go. The locks of a client that may come back wait for it.
    pub fn end(&self) {
        if let Some(greeting) = self.greeting.get() {
            let uid = self.peer.uid();
            self.node.fences.left(greeting.instance, uid, &self.fence);
        }
        let all = self.fids().clear();
        for held in all {
            match self.greeting.get() {
                Some(_) => self.node.lost(&held),
                None => self.node.closed(&held),
            }
        }
    }
}
