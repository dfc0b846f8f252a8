//! Files and directories on top of a client, for tools and tests: fids are drawn and given back by themselves.
//!
//! ```no_run
//! use presagio_ninep::client::{Client, Options};
//! use presagio_ninep::session::Session;
//! use presagio_ninep::OpenFlags;
//!
//! let client = Client::tcp("127.0.0.1:564", &Options::default())?;
//! let root = Session::new(client).attach("root", "/scratch", 0)?;
//! let mut file = root.walk("results/run1.h5")?;
//! file.open(OpenFlags::RDONLY)?;
//! let mut head = [0; 512];
//! file.read_at(0, &mut head)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
pub mod munge;
mod names;

pub use file::File;
pub use names::DirEntry;

use crate::client::{Answer, Client, Error, Ticket};
use crate::ids::{Errno, Fid};
use crate::reply::Reply;
use crate::request::Request;
use crate::text::Text;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fids on their way back that may pile up before somebody looks which have arrived.
const CLUNKING_MAX: usize = 32;

/// What servers answer to `Tauth` that need none.
const NOT_NEEDED: Errno = Errno(0);

/// A client, and the fids that are in use on its connection. Clones are handles of the same.
#[derive(Clone)]
pub struct Session {
    client: Client,
    fids: Arc<Mutex<Fids>>,
}

/// The numbers of fids. One is used again only when the server has confirmed that it forgot it: requests may overtake
/// one another.
#[derive(Default)]
struct Fids {
    next: u32,
    free: Vec<Fid>,
    clunking: VecDeque<(Fid, Ticket)>,
}

impl Fids {
    fn draw(&mut self) -> Fid {
        if self.clunking.len() > CLUNKING_MAX {
            self.collect();
        }
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            Fid(self.next - 1)
        })
    }

    /// Takes back those that were forgotten. A fid of which that is not known stays out of use.
    fn collect(&mut self) {
        while let Some((fid, ticket)) = self.clunking.pop_front() {
            if !ticket.is_done() && self.clunking.len() < CLUNKING_MAX {
                return self.clunking.push_front((fid, ticket));
            }
            match ticket.wait() {
                Ok(_) | Err(Error::Server(_)) => self.free.push(fid),
                Err(_) => {}
            }
        }
    }
}

impl Session {
    /// A session whose fids nobody else draws.
    pub fn new(client: Client) -> Session {
        let fids = Arc::default();
        Session { client, fids }
    }

    /// The client underneath.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The root of an export, for a user who needs no authentication.
    pub fn attach(&self, user: &str, export: &str, uid: u32) -> Result<File, Error> {
        self.attach_by(Fid::NONE, user, export, uid)
    }

    /// The root of an export, for a user who proves who it is by what `credential` makes, if the server asks for it:
    /// see [`munge`].
    pub fn attach_with(
        &self,
        user: &str,
        export: &str,
        uid: u32,
        credential: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> Result<File, Error> {
        let auth_fid = self.draw();
        let answer = self.client.call(Request::Auth {
            auth_fid,
            user: Text::new(user)?,
            export: Text::new(export)?,
            uid,
        });
        match self.unless_refused(auth_fid, answer) {
            Err(Error::Server(NOT_NEEDED)) => return self.attach(user, export, uid),
            other => other?,
        };
        let attached = credential()
            .map_err(|error| Error::Credential(Arc::new(error)))
            .and_then(|credential| self.client.write(auth_fid, 0, &credential))
            .and_then(|_| self.attach_by(auth_fid, user, export, uid));
        self.clunk(auth_fid);
        attached
    }

    fn attach_by(&self, auth_fid: Fid, user: &str, export: &str, uid: u32) -> Result<File, Error> {
        let fid = self.draw();
        let answer = self.client.call(Request::Attach {
            fid,
            auth_fid,
            user: Text::new(user)?,
            export: Text::new(export)?,
            uid,
        });
        match self.unless_refused(fid, answer)?.reply() {
            Reply::Attach { qid } => Ok(File::new(self.clone(), fid, qid)),
            _ => unreachable!("{CHECKED}"),
        }
    }

    fn fids(&self) -> MutexGuard<'_, Fids> {
        self.fids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) -> Fid {
        self.fids().draw()
    }

    /// A new fid that the server refused is still free; one of which nobody knows is not used again.
    fn unless_refused(&self, fid: Fid, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        if let Err(Error::Server(_)) = answer {
            self.fids().free.push(fid);
        }
        answer
    }

    /// Gives a fid back without waiting.
    fn clunk(&self, fid: Fid) {
        if let Ok(ticket) = self.client.submit(Request::Clunk { fid }) {
            self.fids().clunking.push_back((fid, ticket));
        }
    }

    /// Gives a fid back, and waits for what the server says to it.
    fn clunk_now(&self, fid: Fid) -> Result<(), Error> {
        let answer = self.client.call(Request::Clunk { fid });
        if matches!(answer, Ok(_) | Err(Error::Server(_))) {
            self.fids().free.push(fid);
        }
        answer.map(drop)
    }
}

/// Why a reply cannot be of another type.
const CHECKED: &str = "the client takes a reply only if it is of the type that was asked for";
