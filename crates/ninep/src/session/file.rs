//! One file or directory: its data and its attributes.

use super::{CHECKED, Session};
use crate::client::{Ask, Error, ReadInto};
use crate::ids::Fid;
use crate::reply::Reply;
use crate::request::{Request, WALK_MAX};
use crate::text::{Data, List, Name, Step, Text};
use crate::values::{
    Attr, DataSync, GetAttr, LockFlags, LockStatus, LockType, OpenFlags, Qid, SetAttr, StatFs,
};

/// Pieces of a large read or write that are under way at once.
const PIECES: usize = 16;

/// A file or directory that the server holds for us. Dropping it lets the server forget it.
pub struct File {
    pub(super) session: Session,
    fid: Fid,
    qid: Qid,
    held: bool,
}

/// Asks, and takes what is wanted out of the reply.
macro_rules! ask {
    ($file:expr, $request:expr, $reply:pat => $wanted:expr) => {
        $file
            .session
            .client
            .call($request)
            .map(|answer| match answer.reply() {
                $reply => $wanted,
                _ => unreachable!("{}", CHECKED),
            })
    };
}
pub(super) use ask;

impl File {
    pub(super) fn new(session: Session, fid: Fid, qid: Qid) -> File {
        File {
            session,
            fid,
            qid,
            held: true,
        }
    }

    /// Its fid.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// What the server calls it.
    pub fn qid(&self) -> Qid {
        self.qid
    }

    /// Another file, some steps from here; with an empty path, a second fid of the same.
    pub fn walk(&self, path: impl AsRef<[u8]>) -> Result<File, Error> {
        let names = path.as_ref().split(|byte| *byte == b'/');
        let steps: Result<Vec<Step>, _> = names
            .filter(|name| !matches!(*name, b"" | b"."))
            .map(Step::new)
            .collect();
        let steps = steps?;
        let mut steps = steps.chunks(WALK_MAX);
        let mut file = self.step(steps.next().unwrap_or_default())?;
        for more in steps {
            file = file.step(more)?;
        }
        Ok(file)
    }

    fn step(&self, steps: &[Step<'_>]) -> Result<File, Error> {
        let new_fid = self.session.draw();
        let answer = self.session.client.call(Request::Walk {
            fid: self.fid,
            new_fid,
            steps: List::new(steps)?,
        });
        let answer = self.session.unless_refused(new_fid, answer)?;
        let Reply::Walk { qids } = answer.reply() else {
            unreachable!("{CHECKED}");
        };
        if qids.len() < steps.len() {
            // The walk ended early, and the new fid stands for nothing.
            self.session.fids().free.push(new_fid);
            return Err(Error::Server(crate::Errno::NOENT));
        }
        let qid = qids.iter().last().unwrap_or(self.qid);
        Ok(File::new(self.session.clone(), new_fid, qid))
    }

    /// Opens it.
    pub fn open(&mut self, flags: OpenFlags) -> Result<(), Error> {
        let fid = self.fid;
        self.qid = ask!(self, Request::Open { fid, flags }, Reply::Open { qid, .. } => qid)?;
        Ok(())
    }

    /// Makes a file in this directory, and opens it.
    pub fn create(
        &self,
        name: impl AsRef<[u8]>,
        flags: OpenFlags,
        mode: u32,
    ) -> Result<File, Error> {
        let mut file = self.walk("")?;
        let request = Request::Create {
            fid: file.fid,
            name: Name::new(&name)?,
            flags,
            mode,
            gid: 0,
        };
        file.qid = ask!(file, request, Reply::Create { qid, .. } => qid)?;
        Ok(file)
    }

    /// Reads until `to` is full or the file ends; large reads in pieces, several at once. Returns how much.
    pub fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
        let client = &self.session.client;
        let (most, fid) = (client.io_max() as usize, self.fid);
        let mut done = 0;
        while done < to.len() {
            let from = offset + done as u64;
            let pieces = to[done..].chunks_mut(most).take(PIECES).enumerate();
            let mut reads: Vec<ReadInto> = pieces
                .map(|(index, to)| ReadInto {
                    fid,
                    offset: from + (index * most) as u64,
                    to,
                })
                .collect();
            let asked: Vec<usize> = reads.iter().map(|read| read.to.len()).collect();
            let got = match &mut reads[..] {
                [one] => vec![client.read(fid, from, one.to)],
                many => client.read_many(many)?,
            };
            if join(&asked, got, &mut done)? == Some(0) {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all of `data`; large writes in pieces, several at once. Returns how much was written before the first
    /// piece of which not all was.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize, Error> {
        let client = &self.session.client;
        let (most, fid) = (client.io_max() as usize, self.fid);
        if data.len() <= most {
            return client.write(fid, offset, data);
        }
        let mut done = 0;
        while done < data.len() {
            let pieces = data[done..].chunks(most).take(PIECES);
            let offsets = (offset + done as u64..).step_by(most);
            let asks: Result<Vec<Ask>, Error> = pieces
                .clone()
                .zip(offsets)
                .map(|(piece, offset)| {
                    let data = Data::new(piece)?;
                    Ok(Ask::new(Request::Write { fid, offset, data }))
                })
                .collect();
            let asked: Vec<usize> = pieces.map(<[u8]>::len).collect();
            let tickets = client.submit_all(asks?)?.into_iter();
            let got = tickets.map(|ticket| match ticket.wait()?.reply() {
                Reply::Write { count } => Ok(count as usize),
                _ => unreachable!("{CHECKED}"),
            });
            if join(&asked, got.collect(), &mut done)?.is_some() {
                break;
            }
        }
        Ok(done)
    }

    /// What `stat` says of it.
    pub fn getattr(&self, mask: GetAttr) -> Result<Attr, Error> {
        let fid = self.fid;
        ask!(self, Request::GetAttr { fid, mask }, Reply::GetAttr { attr } => attr)
    }

    /// Changes attributes.
    pub fn setattr(&self, attr: SetAttr) -> Result<(), Error> {
        let fid = self.fid;
        ask!(self, Request::SetAttr { fid, attr }, Reply::SetAttr => ())
    }

    /// Makes what was written durable.
    pub fn fsync(&self, datasync: bool) -> Result<(), Error> {
        let (fid, datasync) = (self.fid, DataSync(datasync));
        ask!(self, Request::Fsync { fid, datasync }, Reply::Fsync => ())
    }

    /// What the file system is like.
    pub fn statfs(&self) -> Result<StatFs, Error> {
        let fid = self.fid;
        ask!(self, Request::StatFs { fid }, Reply::StatFs { statfs } => statfs)
    }

    /// Takes or gives back a lock of `length` bytes from `start` (0: all that follow), as process `process` of a client.
    pub fn lock(
        &self,
        lock_type: LockType,
        (start, length): (u64, u64),
        (client, process): (&str, u32),
    ) -> Result<LockStatus, Error> {
        let request = Request::Lock {
            fid: self.fid,
            lock_type,
            flags: LockFlags(0),
            start,
            length,
            process,
            client: Text::new(client)?,
        };
        ask!(self, request, Reply::Lock { status } => status)
    }

    /// The type of the lock that would be in the way of such a one: `Unlock` if none is.
    pub fn getlock(
        &self,
        lock_type: LockType,
        (start, length): (u64, u64),
        (client, process): (&str, u32),
    ) -> Result<LockType, Error> {
        let request = Request::GetLock {
            fid: self.fid,
            lock_type,
            start,
            length,
            process,
            client: Text::new(client)?,
        };
        ask!(self, request, Reply::GetLock { lock_type, .. } => lock_type)
    }

    /// Lets the server forget it, and says what that brought to light.
    pub fn close(mut self) -> Result<(), Error> {
        self.held = false;
        self.session.clunk_now(self.fid)
    }

    /// The server has forgotten it already.
    pub(super) fn forgotten(mut self) {
        self.held = false;
        self.session.fids().free.push(self.fid);
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.held {
            self.session.clunk(self.fid);
        }
    }
}

/// Adds up pieces until the first of which not all was done, and says how much of that was: `None` if all were. An error
/// counts only if nothing was done before it.
fn join(
    asked: &[usize],
    got: Vec<Result<usize, Error>>,
    done: &mut usize,
) -> Result<Option<usize>, Error> {
    for (asked, got) in asked.iter().zip(got) {
        let got = match got {
            Ok(got) => got,
            Err(error) if *done == 0 => return Err(error),
            Err(_) => 0,
        };
        *done += got;
        if got < *asked {
            return Ok(Some(got));
        }
    }
    Ok(None)
}
