//! What a user may choose.

use presagio_ninep::Address;
use presagio_ninep::client::{self, Client, Lost};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// The number that a client drew when it started, and under which a node keeps the replies to what must not be done
/// twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance(pub [u8; 16]);

impl Instance {
    /// Draws one.
    pub fn draw() -> io::Result<Instance> {
        let mut number = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut number)?;
        Ok(Instance(number))
    }

    /// That of one of several connections of the same client: replies are counted for each connection.
    pub(crate) fn of_link(self, link: usize) -> Instance {
        let mut number = self.0;
        number[15] ^= link as u8;
        number[14] ^= (link >> 8) as u8;
        Instance(number)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is spread over the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Clients: each talks to one node, chosen by its instance. What one client wrote it reads through the same node.
    #[default]
    Clients,
    /// Files: names and attributes as with [`Clients`](Spread::Clients), but a file is opened at the node that its inode
    /// number prefers, by all clients alike, so that the requests of many clients for one file meet in one scheduler.
    Files,
}

/// Who a client says that it is: for the scheduler, the metrics and the owners of locks. It gives no right to anything.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The machine.
    pub client: String,
    /// The job.
    pub job: String,
    /// The rank in it.
    pub rank: u32,
    /// The program.
    pub program: String,
}

impl Identity {
    /// What the environment says: the host, and the job and rank of Slurm, PBS, Open MPI or MPICH.
    pub fn from_environment(program: &str) -> Identity {
        let first = |names: &[&str]| names.iter().find_map(|name| std::env::var(name).ok());
        let rank = first(&["SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"]);
        Identity {
            client: rustix::system::uname().nodename().to_string_lossy().into(),
            job: first(&["SLURM_JOB_ID", "PBS_JOBID"]).unwrap_or_default(),
            rank: rank.and_then(|rank| rank.parse().ok()).unwrap_or(0),
            program: program.to_owned(),
        }
    }
}

/// Something that speaks the protocol and can be had when no node can: say, a node on this machine that serves the
/// same export from a local mount of it. It is left again when a node answers: by the client, or where that has no
/// [threads](Options::threads) by whoever gives it.
#[derive(Clone)]
pub struct LastResort(pub Arc<dyn Resort>);

/// How to get a [`LastResort`].
pub trait Resort: Send + Sync {
    /// A connection to it; an error if it is not time for that yet. Who asks has found no node for so long.
    fn connect(self: Arc<Self>, without: Duration) -> io::Result<Connected>;

    /// Whether everybody is to go there, and to no node, for the time being.
    fn is_used(&self) -> bool {
        false
    }

    /// A connection to it if it is in use already, for whoever has something to tell those who are asked there.
    fn visit(self: Arc<Self>) -> io::Result<Option<Connected>> {
        match self.is_used() {
            true => self.connect(Duration::ZERO).map(Some),
            false => Ok(None),
        }
    }
}

impl<F: Fn(Duration) -> io::Result<Connected> + Send + Sync> Resort for F {
    fn connect(self: Arc<Self>, without: Duration) -> io::Result<Connected> {
        self(without)
    }
}

impl fmt::Debug for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastResort")
    }
}

/// How to get a connected stream socket to a node, by its index in the list, in no more than so much time: for those who cannot
/// reach nodes themselves.
#[derive(Clone)]
pub struct Dial(pub Arc<dyn Fn(usize, Duration) -> io::Result<Connected> + Send + Sync>);

/// A connected stream socket, whoever owns it.
pub type Connected = Box<dyn AsFd + Send + Sync>;

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

/// What proves who we are to a node that asks: a new credential of MUNGE each time.
#[derive(Clone)]
pub struct Credential(pub Arc<dyn Fn() -> io::Result<Vec<u8>> + Send + Sync>);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// Who sees this process end, and tells the nodes so: it is told the number of a client that has locks.
#[derive(Clone)]
pub struct Witness(pub Arc<dyn Fn(Instance) -> io::Result<()> + Send + Sync>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

/// The other processes of a run, which are to be at the same node.
#[derive(Clone)]
pub struct Others {
    /// Where one of them went that had lost its node, or did not find it.
    pub node: Option<usize>,
    /// Is told where this one went then, for those that begin later.
    pub told: Arc<dyn Fn(usize) + Send + Sync>,
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Others({:?})", self.node)
    }
}

/// How files are reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// The nodes: all of them serve the same export.
    pub nodes: Vec<Address>,
    /// The name of the export; a node that has only one does not need it.
    pub export: String,
    /// What is spread over the nodes.
    pub spread: Spread,
    /// Who we are.
    pub identity: Identity,
    /// The number of this client; drawn if not given.
    pub instance: Option<Instance>,
    /// The size of the largest frame to offer.
    pub msize: u32,
    /// How long one request may take.
    pub timeout: Duration,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long a call waits for a connection before it fails. No call takes longer than this and one time-out.
    pub patience: Duration,
    /// How many files may be held at a node, open or not.
    pub files_max: usize,
    /// What to talk to when no node can be reached, if the user allows such a thing.
    pub last_resort: Option<LastResort>,
    /// How to get a socket to a node, if not by its address.
    pub dial: Option<Dial>,
    /// Whether there may be threads of ours: else whoever needs a connection makes it.
    pub threads: bool,
    /// What to prove with who we are, where a node asks.
    pub credential: Option<Credential>,
    /// Who we are to nodes that are reached over TCP with TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<presagio_ninep::client::TlsIdentity>,
    /// How data gets into the memory of who reads, where that memory may not be there.
    pub fill: client::Fill,
    /// The number under which nodes know the owners of our locks, where several clients share owners; else each has its
    /// own.
    pub owners: Option<Instance>,
    /// Who is told before the first lock, so that our locks end with us.
    pub witness: Option<Witness>,
    /// With whom we are to be at the same node, if clients are spread.
    pub others: Option<Others>,
}

impl Options {
    /// The defaults, for these nodes.
    pub fn new(nodes: Vec<Address>) -> Options {
        Options {
            nodes,
            export: String::new(),
            spread: Spread::default(),
            identity: Identity::from_environment("presagio"),
            instance: None,
            // A megabyte of data and what goes before it, so that an append of a megabyte is one message.
            msize: (1 << 20) + 4096,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            files_max: 1 << 20,
            last_resort: None,
            dial: None,
            threads: true,
            credential: None,
            #[cfg(feature = "tls")]
            tls: None,
            fill: client::Options::default().fill,
            owners: None,
            witness: None,
            others: None,
        }
    }

    /// Connects to a node by its address, and agrees on a protocol.
    pub(crate) fn connect(&self, node: usize, options: &client::Options) -> Result<Client, Lost> {
        #[cfg(feature = "tls")]
        if let (Some(identity), Address::Tcp(host)) = (&self.tls, &self.nodes[node]) {
            return Client::tls(host, identity, options);
        }
        self.nodes[node].connect(options)
    }
}
