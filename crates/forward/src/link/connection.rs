//! One connection, from the first message until it breaks.

use super::{Link, within};
use presagio_ninep::client::{Answer, Ask, Client, Error, Lost, Socket, Ticket};
use presagio_ninep::extension::Resumed;
use presagio_ninep::{Dialect, Errno, Fid, Reply, Request, Text};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a node that has let a request wait may take to say that it lives.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A fid that nobody ever draws.
const NOBODY: Fid = Fid(u32::MAX - 1);

/// Why a reply cannot be of another type.
pub(crate) const CHECKED: &str =
    "the client takes a reply only if it is of the type that was asked for";

/// Whom a connection is with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A node, by its index in the list.
    Node(usize),
    LastResort,
}

pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Counts the connections of a link, from 1.
    pub(crate) generation: u64,
    /// Connections of one lineage share a reply cache: what was sent on one may be repeated on another.
    pub(crate) lineage: u64,
    pub(crate) target: Target,
    pub(crate) name: String,
    /// Of the machine's boot; 0 where the node does not say.
    pub(crate) epoch: u64,
    /// Files are being claimed; then requests may take no longer than connecting, since everybody waits.
    claiming: AtomicBool,
    claim_timeout: Duration,
    claim_until: Option<Instant>,
}

impl Connection {
    /// Connects to a node and says who we are.
    pub(super) fn establish(
        link: &Link,
        target: Target,
        reach_until: Option<Instant>,
        until: Option<Instant>,
    ) -> Result<Connection, Error> {
        let client = reach(link, target, reach_until).map_err(|why| Error::Lost {
            sent: false,
            why: Arc::new(why),
        })?;
        let (generation, old_lineage) = link.next_generation();
        let mut connection = Connection {
            client,
            generation,
            lineage: generation,
            target,
            name: match target {
                Target::Node(node) => link.options.nodes[node].to_string(),
                Target::LastResort => "the last resort".into(),
            },
            epoch: 0,
            claiming: AtomicBool::new(true),
            claim_timeout: link.options.connect_timeout,
            claim_until: until,
        };
        if connection.is_presagio() {
            connection.hello(link, old_lineage)?;
        }
        Ok(connection)
    }

    fn hello(&mut self, link: &Link, old_lineage: u64) -> Result<(), Error> {
        let identity = &link.options.identity;
        let request = Request::Hello {
            instance: link.current_instance().0,
            resume: link.resume(),
            client: Text::new(&identity.client)?,
            job: Text::new(&identity.job)?,
            rank: identity.rank,
            program: Text::new(&identity.program)?,
        };
        let answer = self.call(request).inspect_err(|error| {
            if let Error::Server(Errno::PERM) = error {
                link.came_twice();
            }
        })?;
        let Reply::Hello {
            epoch,
            resume,
            resumed,
            node,
            ..
        } = answer.reply()
        else {
            unreachable!("{CHECKED}");
        };
        if resumed == Resumed::Yes {
            self.lineage = old_lineage;
        }
        link.set_resume(resume, self.lineage);
        self.epoch = epoch;
        self.name = format!("{node} ({})", self.name);
        Ok(())
    }

    pub(crate) fn is_presagio(&self) -> bool {
        self.client.agreed().dialect == Dialect::Presagio
    }

    pub(crate) fn call(&self, request: Request<'_>) -> Result<Answer, Error> {
        self.client.call(self.ask(request))
    }

    /// A request with the time that it may take.
    pub(crate) fn ask<'r>(&self, request: Request<'r>) -> Ask<'r> {
        let claiming = self.claiming.load(Ordering::Relaxed);
        let timeout = claiming.then(|| within(self.claim_timeout, self.claim_until));
        Ask {
            timeout,
            ..Ask::new(request)
        }
    }

    /// Asks several things, each of what the one before it left: at once where the node keeps the order of requests that
    /// name the same fid, else one after the other up to the first that fails.
    pub(crate) fn in_order(
        &self,
        requests: &[Request<'_>],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        if self.is_presagio() {
            return self.all_at_once(requests);
        }
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.call(*request));
            if answers.last().is_some_and(Result::is_err) {
                break;
            }
        }
        Ok(answers)
    }

    /// Asks several things with one message to the kernel, and waits for all answers.
    pub(crate) fn all_at_once(
        &self,
        requests: &[Request<'_>],
    ) -> Result<Vec<Result<Answer, Error>>, Error> {
        if let [one] = requests {
            return Ok(vec![self.call(*one)]);
        }
        let asks = requests.iter().map(|request| self.ask(*request));
        let tickets = self.client.submit_all(asks)?;
        Ok(tickets.into_iter().map(Ticket::wait).collect())
    }

    /// Everything was claimed.
    pub(super) fn claimed(&self) {
        self.claiming.store(false, Ordering::Relaxed);
    }

    /// Whether the node answers anything at all: a clunk of what nobody holds needs no back-end. If not, this was it.
    pub(super) fn lives(&self) -> bool {
        let probe = Ask {
            timeout: Some(PROBE_TIMEOUT),
            ..Ask::new(Request::Clunk { fid: NOBODY })
        };
        let lives = matches!(self.client.call(probe), Ok(_) | Err(Error::Server(_)));
        if !lives {
            self.client.close();
        }
        lives
    }
}

/// Connects, and agrees on a protocol.
pub(super) fn reach(link: &Link, target: Target, until: Option<Instant>) -> Result<Client, Lost> {
    let options = || link.client_options(until);
    match (target, &link.options.dial, &link.options.last_resort) {
        (Target::Node(node), Some(dial), _) => {
            let socket = (dial.0)(node, within(Duration::MAX, until))?;
            Client::connect(Socket::new(socket)?, &options())
        }
        (Target::Node(node), None, _) => link.options.connect(node, &options()),
        (Target::LastResort, _, Some(resort)) => {
            let socket = resort.0.clone().connect(link.has_searched())?;
            Client::connect(Socket::new(socket)?, &options())
        }
        (Target::LastResort, _, None) => Err(Lost::Silent),
    }
}
