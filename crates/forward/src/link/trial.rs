//! Asking until there is an answer: what may be repeated and what must not.

use super::{Connection, IN_FLIGHT_MAX, Link, lock};
use crate::TIMED_OUT;
use crate::held::{Held, Walk};
use presagio_ninep::client::{Answer, Error};
use presagio_ninep::extension::Wrapped;
use presagio_ninep::{Errno, OpenFlags, Request};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait when as much is under way as may be.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// What to do after a failed attempt.
enum Verdict {
    /// Give this to the caller.
    Final(Errno),
    /// The connection is gone, or has no room: begin again.
    Again,
}

/// Something that must not be done twice, with what is asked in the same breath.
pub(crate) struct Deed<'r> {
    /// Comes before: lets a new fid stand for what the deed is done to.
    pub(crate) walk: Option<Walk<'r>>,
    pub(crate) request: &'r Request<'r>,
    /// Comes behind, where the node keeps the order.
    pub(crate) then: Option<Request<'r>>,
}

impl Deed<'_> {
    /// Whether it does not matter how often it is done, so that nobody has to be told that nobody can tell.
    fn may_be_repeated(&self) -> bool {
        let once = OpenFlags::EXCL | OpenFlags::TRUNC;
        matches!(self.request, Request::Create { flags, .. } if !flags.intersects(once))
    }

    /// The walk was done, and can be done again on this connection.
    fn take_back(&self, connection: &Connection) {
        if let Some(walk) = &self.walk {
            let fid = walk.new.fid;
            // If the node does not know it, the better.
            let _ = connection.in_order(&[Request::Clunk { fid }]);
        }
    }
}

/// What became of a deed.
pub(crate) struct Done {
    /// `None` if the walk did not get there, so that nothing was done.
    pub(crate) answer: Option<Answer>,
    pub(crate) then: Option<Result<Answer, Error>>,
    pub(crate) connection: Arc<Connection>,
    /// Of the machine that may have done it: the first that was asked, whoever gave the answer.
    pub(crate) epoch: u64,
}

impl Done {
    /// It may have been done before, at that epoch.
    fn since(self, first: Option<u64>) -> Done {
        let epoch = first.filter(|first| *first != 0).unwrap_or(self.epoch);
        Done { epoch, ..self }
    }
}

/// The next of several answers: all were asked for, up to one that failed, where nobody looks any further.
pub(crate) fn next(
    answers: &mut impl Iterator<Item = Result<Answer, Error>>,
) -> Result<Answer, Error> {
    answers.next().expect("an answer for each")
}

impl Link {
    /// Does something that may be done twice: on each connection that comes, until one does not break. The node knows
    /// `files` before `attempt` is called.
    pub(crate) fn repeat<T>(
        self: &Arc<Self>,
        files: &[&Held],
        mut attempt: impl FnMut(&Arc<Connection>) -> Result<T, Error>,
    ) -> Result<T, Errno> {
        let mut give_up = None;
        loop {
            let connection = self.connection(give_up)?;
            let error = match self
                .ready(&connection, files)
                .and_then(|()| attempt(&connection))
            {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match self.judge(&connection, &error, give_up) {
                Verdict::Final(errno) => return Err(errno),
                Verdict::Again => self.begin_patience(&mut give_up),
            }
        }
    }

    /// Does something that must not be done twice: where the node keeps replies, it is repeated under its number; else
    /// it is EIO as soon as the request may have arrived.
    pub(crate) fn once(
        self: &Arc<Self>,
        files: &[&Held],
        request: &Request<'_>,
    ) -> Result<(Answer, Done), Errno> {
        let deed = Deed {
            walk: None,
            request,
            then: None,
        };
        let mut done = self.do_once(files, &deed)?;
        let answer = done.answer.take().ok_or(Errno::NOENT)?;
        Ok((answer, done))
    }

    /// The same, with what goes before and behind it.
    pub(crate) fn do_once(
        self: &Arc<Self>,
        files: &[&Held],
        deed: &Deed<'_>,
    ) -> Result<Done, Errno> {
        let mut number = None;
        let outcome = self.try_once(files, deed, &mut number);
        if let Some(number) = number {
            lock(&self.sequence).settle(number);
        }
        outcome
    }

    fn try_once(
        self: &Arc<Self>,
        files: &[&Held],
        deed: &Deed<'_>,
        number: &mut Option<u64>,
    ) -> Result<Done, Errno> {
        let (mut give_up, mut sent_to, mut first) = (None, None, None);
        loop {
            let connection = self.connection(give_up)?;
            if sent_to.is_some_and(|lineage| lineage != connection.lineage) {
                // This node does not know what became of it.
                match deed.may_be_repeated() {
                    true => self.begin_anew(number, &mut sent_to),
                    false => return Err(Errno::IO),
                }
            }
            let (asked, error) = match self.ready(&connection, files) {
                Ok(()) => match self.ask_once(&connection, deed, number) {
                    Ok(done) => return Ok(done.since(first)),
                    Err(error) => (true, error),
                },
                Err(error) => (false, error),
            };
            if asked && error.may_have_happened() {
                sent_to = Some(connection.lineage);
                first.get_or_insert(connection.epoch);
            }
            match self.judge(&connection, &error, give_up) {
                // A file that cannot be had again, after the request may have been done.
                Verdict::Final(_) if !asked && sent_to.is_some() => return Err(Errno::IO),
                // The node was killed in the middle of it, and cannot tell.
                Verdict::Final(Errno::IO) if sent_to.is_some() && deed.may_be_repeated() => {
                    deed.take_back(&connection);
                    self.begin_anew(number, &mut sent_to);
                }
                Verdict::Final(errno) => return Err(errno),
                Verdict::Again => self.begin_patience(&mut give_up),
            }
        }
    }

    /// What was asked is forgotten; what comes now is another request.
    fn begin_anew<T>(&self, number: &mut Option<u64>, sent_to: &mut Option<T>) {
        if let Some(number) = number.take() {
            lock(&self.sequence).settle(number);
        }
        *sent_to = None;
    }

    fn ask_once(
        &self,
        connection: &Arc<Connection>,
        deed: &Deed<'_>,
        number: &mut Option<u64>,
    ) -> Result<Done, Error> {
        let once = match connection.is_presagio() {
            true => self.numbered(deed.request, number)?,
            false => *deed.request,
        };
        let walk = deed.walk.as_ref().map(Walk::request);
        let then = deed.then.filter(|_| connection.is_presagio());
        let requests: Vec<Request> = walk.into_iter().chain([once]).chain(then).collect();
        if let Some(walk) = &deed.walk {
            walk.new.begin(connection);
        }
        let mut answers = connection.in_order(&requests)?.into_iter();
        let is_there = match &deed.walk {
            Some(walk) => walk.arrived(connection, next(&mut answers))?.is_some(),
            None => true,
        };
        let answer = is_there.then(|| next(&mut answers)).transpose()?;
        Ok(Done {
            answer,
            then: answers.next(),
            connection: connection.clone(),
            epoch: connection.epoch,
        })
    }

    /// A request under its number: the same each time.
    fn numbered<'r>(
        &self,
        request: &'r Request<'r>,
        number: &mut Option<u64>,
    ) -> Result<Request<'r>, Error> {
        let mut count = lock(&self.sequence);
        let sequence = match number.or_else(|| count.draw()) {
            Some(sequence) => sequence,
            None => return Err(Error::Full(IN_FLIGHT_MAX)),
        };
        *number = Some(sequence);
        let settled = count.settled();
        let request = Wrapped::new(request)?;
        Ok(Request::Once {
            sequence,
            settled,
            request,
        })
    }

    fn judge(&self, connection: &Connection, error: &Error, give_up: Option<Instant>) -> Verdict {
        match error {
            Error::Lost { .. } => Verdict::Again,
            Error::TimedOut { .. } if connection.lives() => Verdict::Final(TIMED_OUT),
            Error::TimedOut { .. } => {
                self.was_silent(connection);
                Verdict::Again
            }
            Error::Full(_) if give_up.is_some_and(|end| end <= Instant::now()) => {
                Verdict::Final(Errno::IO)
            }
            Error::Full(_) => {
                // Others have all there is, and will be done in a moment.
                std::thread::sleep(FULL_PAUSE);
                Verdict::Again
            }
            other => Verdict::Final(other.errno()),
        }
    }

    /// From the first failure on, a call has so long.
    fn begin_patience(&self, give_up: &mut Option<Instant>) {
        give_up.get_or_insert_with(|| Instant::now() + self.options.patience);
    }

    /// The node of this connection knows these files of this link.
    fn ready(&self, connection: &Arc<Connection>, files: &[&Held]) -> Result<(), Error> {
        let is_ours = |held: &&Held| std::ptr::eq(Arc::as_ptr(&held.link), self);
        debug_assert!(files.iter().all(is_ours), "fids are a link's own");
        files.iter().try_for_each(|held| held.ready(connection))
    }
}
