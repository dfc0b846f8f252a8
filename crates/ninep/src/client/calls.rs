//! Asking: one request or many, waiting or not.

use super::answer::Delivery;
use super::batch::Batch;
use super::incoming::Mine;
use super::outgoing::Sent;
use super::shared::GaveUp;
use super::table::Entry;
use super::{Answer, Ask, Client, Error, ReadInto, Ticket};
use crate::ids::Fid;
use crate::reply::Reply;
use crate::request::Request;
use crate::text::Data;
use smallvec::SmallVec;
use std::time::Instant;

/// Requests that are sent with one system call at most.
pub const BATCH_MAX: usize = 256;

type Tickets = SmallVec<[Ticket; 1]>;

impl Client {
    /// Asks, and waits for the answer.
    pub fn call<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<Answer, Error> {
        self.begin(ask.into())?.wait()
    }

    /// Asks, and returns at once; [`Error::Full`] if too many are under way.
    pub fn submit<'a>(&self, ask: impl Into<Ask<'a>>) -> Result<Ticket, Error> {
        let mut ask = ask.into();
        let mut buffer = [ask.into.take()];
        let mut tickets = self.start(&[ask], &mut buffer)?;
        tickets.pop().ok_or(Error::Full(0))
    }

    /// Asks for up to [`BATCH_MAX`] things with one system call: all of them, or none and an error.
    pub fn submit_all<'a>(
        &self,
        asks: impl IntoIterator<Item = Ask<'a>>,
    ) -> Result<Vec<Ticket>, Error> {
        let mut asks: Vec<Ask<'a>> = asks.into_iter().collect();
        match asks.len() {
            // Nobody has to wait for a turn to say nothing.
            0 => return Ok(Vec::new()),
            1..=BATCH_MAX => {}
            _ => return Err(Error::Full(BATCH_MAX)),
        }
        let mut buffers: Vec<_> = asks.iter_mut().map(|ask| ask.into.take()).collect();
        Ok(self.start(&asks, &mut buffers)?.into_vec())
    }

    /// Reads straight into `to`, and returns how much: at most [`io_max`](Self::io_max), less at the end of a file.
    pub fn read(&self, fid: Fid, offset: u64, to: &mut [u8]) -> Result<usize, Error> {
        let mut read = ReadInto { fid, offset, to };
        let ticket = self.begin(self.ask_for(&read))?;
        let mut mine = [self.mine(&ticket, &mut read)];
        let delivery = ticket.wait_with(&mut mine)?;
        Ok(settle(delivery, mine[0].to))
    }

    /// Many reads at once, up to [`BATCH_MAX`], each straight into its place; how much each got.
    pub fn read_many(
        &self,
        reads: &mut [ReadInto<'_>],
    ) -> Result<Vec<Result<usize, Error>>, Error> {
        let tickets = self.submit_all(reads.iter().map(|read| self.ask_for(read)))?;
        let all = tickets.iter().zip(reads.iter_mut());
        let mut mine: Vec<Mine<'_>> = all.map(|(ticket, read)| self.mine(ticket, read)).collect();
        let Some(deadline) = tickets.iter().map(|ticket| ticket.deadline).max() else {
            return Ok(Vec::new());
        };
        // Whether in time or not: each ticket says below what became of it.
        let _ = self.shared.wait_until(deadline, &mut mine, |table| {
            let mut tags = tickets.iter().map(Ticket::tag);
            match tags.find(|tag| !table.is_answered(*tag)) {
                Some(tag) => Err(Some(tag)),
                None => Ok(()),
            }
        });
        let got = tickets.into_iter().zip(mine);
        let got = got.map(|(ticket, mine)| {
            let delivery = ticket.wait_with(&mut [])?;
            Ok(settle(delivery, mine.to))
        });
        Ok(got.collect())
    }

    /// Writes, and returns how much: at most [`io_max`](Self::io_max).
    pub fn write(&self, fid: Fid, offset: u64, data: &[u8]) -> Result<usize, Error> {
        let most = data.len().min(self.io_max() as usize);
        let data = Data::new(&data[..most])?;
        match self.call(Request::Write { fid, offset, data })?.reply() {
            Reply::Write { count } => Ok(most.min(count as usize)),
            _ => Ok(0),
        }
    }

    fn ask_for<'a>(&self, read: &ReadInto<'_>) -> Ask<'a> {
        let (fid, offset) = (read.fid, read.offset);
        let count = read.to.len().min(self.io_max() as usize) as u32;
        Ask::new(Request::Read { fid, offset, count })
    }

    fn mine<'b>(&self, ticket: &Ticket, read: &'b mut ReadInto<'_>) -> Mine<'b> {
        let most = read.to.len().min(self.io_max() as usize);
        Mine {
            tag: ticket.tag(),
            to: &mut read.to[..most],
        }
    }

    /// Begins a request as soon as there is room.
    fn begin(&self, mut ask: Ask<'_>) -> Result<Ticket, Error> {
        let deadline = self.deadline(&ask, Instant::now());
        let mut buffer = [ask.into.take()];
        let asks = [ask];
        loop {
            let full = match self.start(&asks, &mut buffer) {
                Err(full @ Error::Full(_)) => full,
                Err(other) => return Err(other),
                Ok(mut tickets) => return tickets.pop().ok_or(Error::Full(0)),
            };
            let room = self.shared.wait_until(deadline, &mut [], |table| {
                table.has_room(1).then_some(()).ok_or(None)
            });
            match room {
                Ok(()) => {}
                Err(GaveUp::Late) => return Err(full),
                Err(GaveUp::Dead) => return Err(self.shared.lost(false)),
            }
        }
    }

    fn deadline(&self, ask: &Ask<'_>, now: Instant) -> Instant {
        now + ask.timeout.unwrap_or(self.shared.timeout)
    }

    /// Begins requests if there is room, takes their buffers, and sends them.
    fn start(&self, asks: &[Ask<'_>], buffers: &mut [Option<Vec<u8>>]) -> Result<Tickets, Error> {
        let now = Instant::now();
        let (batch, tickets) = self.register(asks, buffers, now)?;
        let deadline = tickets.iter().map(|ticket| ticket.deadline).min();
        match self.shared.send(&batch, deadline.unwrap_or(now)) {
            Sent::Begun => Ok(tickets),
            Sent::Dead(sent) => {
                let unsent = tickets.iter().skip(batch.whole(sent));
                let mut table = self.shared.lock();
                unsent.for_each(|ticket| table.mark_unsent(ticket.tag()));
                drop(table);
                Ok(tickets)
            }
            Sent::Nothing => {
                tickets.into_iter().for_each(Ticket::withdraw);
                Err(Error::TimedOut { sent: false })
            }
        }
    }

    /// Encodes requests and gives each a slot: all of them, or none.
    fn register<'r>(
        &self,
        asks: &'r [Ask<'_>],
        buffers: &mut [Option<Vec<u8>>],
        now: Instant,
    ) -> Result<(Batch<'r>, Tickets), Error> {
        let mut batch = Batch::default();
        for ask in asks {
            batch.add(&ask.request, self.shared.agreed.msize)?;
        }
        let room = |client: &Client| client.shared.lock().has_room(asks.len());
        if !room(self) {
            // Replies that nobody waits for may have come.
            self.shared.read_what_is_there();
        }
        let mut table = self.shared.lock();
        if let Some(why) = table.dead.clone() {
            return Err(Error::Lost { sent: false, why });
        }
        if !table.has_room(asks.len()) {
            return Err(Error::Full(table.in_flight_max()));
        }
        let mut tickets = Tickets::new();
        for (index, ask) in asks.iter().enumerate() {
            let Some(tag) = table.begin(entry(&ask.request, buffers[index].take()), now) else {
                break;
            };
            batch.set_tag(index, tag);
            tickets.push(Ticket::new(
                self.shared.clone(),
                tag,
                self.deadline(ask, now),
            ));
        }
        Ok((batch, tickets))
    }
}

fn entry(request: &Request<'_>, into: Option<Vec<u8>>) -> Entry {
    let limit = match request {
        Request::Read { count, .. } | Request::ReadDir { count, .. } => *count,
        _ => 0,
    };
    Entry {
        kind: request.kind(),
        expects: request.reply_kind(),
        limit,
        into,
    }
}

/// How much a read got; copies it if another thread received it.
fn settle(delivery: Delivery, to: &mut [u8]) -> usize {
    match delivery {
        Delivery::InPlace(count) => count,
        Delivery::Payload(_, bytes) => {
            to[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }
        Delivery::Fields(..) => 0,
    }
}
