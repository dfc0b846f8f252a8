//! What can be set about a node.

use crate::adaptive::AdaptiveConfig;
use crate::auto::AutoConfig;
use presagio_door::TcpProof;
use presagio_ninep::MSIZE_MAX;
use presagio_sched::{PolicyKind, Settings};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of payload that all may have under way, unless somebody says otherwise.
const MEMORY_MAX: usize = 1 << 30;

/// Requests that one user may have under way, unless somebody says otherwise: more than programs ask for at once, and so few that
/// what waits for storage that hangs takes no memory to speak of.
pub const REQUESTS_PER_USER_MAX: usize = 65_536;

/// How a node is to behave; `Config::new` has the defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the node is called.
    pub name: String,
    /// The directory that is exported.
    pub export: PathBuf,
    /// Whether nothing in it may be changed.
    pub read_only: bool,
    /// How requests are scheduled.
    pub settings: Settings,
    /// Whether the policy is chosen while the node runs, and how. It begins with that of `settings`.
    pub auto: Option<AutoConfig>,
    /// Whether policy and window are learned while the node runs, and how.
    pub adaptive: Option<AdaptiveConfig>,
    /// Requests that the storage may have at a time; the others wait in the scheduler.
    pub depth: Option<usize>,
    /// Loops that serve connections: one for each core, at most.
    pub loops: usize,
    /// Whether reads that have to wait go through io_uring, where there is one, or to the threads.
    pub ring: bool,
    /// Threads for what takes long.
    pub threads_max: usize,
    /// The largest frame to agree on.
    pub msize: u32,
    /// Connections at a time.
    pub connections_max: usize,
    /// Connections of one user at a time.
    pub connections_per_user_max: usize,
    /// Files and directories that one user may have open or walked to, over all its connections.
    pub files_per_user_max: usize,
    /// Requests that one user may have under way.
    pub requests_per_user_max: usize,
    /// Bytes of payload that one user may have under way: by default half of what all may, so that who has files on storage that
    /// hangs leaves the others some.
    pub memory_per_user_max: usize,
    /// Fids that one connection may hold.
    pub fids_max: usize,
    /// Requests that one connection may have under way.
    pub requests_max: usize,
    /// Bytes of payload that one connection may have under way.
    pub bytes_max: usize,
    /// Bytes of payload that all may have under way.
    pub memory_max: usize,
    /// How long a client may leave replies unread.
    pub stall_max: Duration,
    /// How long locks wait for their holders to come back, and files without a name for those who had them open.
    pub grace: Duration,
    /// What the node says of when its machine was booted, instead of what is so: for tests.
    pub epoch: Option<u64>,
    /// Act as the node's own user for everybody: for a node that is not root.
    pub squash: bool,
    /// Whether root of another, trusted machine is root here, and may be anybody.
    pub allow_root: bool,
    /// How those who come over TCP prove who they are.
    pub tcp: TcpProof,
}

impl Config {
    /// Exports `export` with the defaults.
    pub fn new(export: impl Into<PathBuf>) -> Config {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Config {
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            export: export.into(),
            read_only: false,
            settings: Settings::new(PolicyKind::ToAgg),
            auto: None,
            adaptive: None,
            depth: None,
            loops: cores.min(64),
            ring: true,
            threads_max: 64,
            msize: MSIZE_MAX,
            connections_max: 16384,
            connections_per_user_max: 16384,
            files_per_user_max: usize::MAX,
            requests_per_user_max: REQUESTS_PER_USER_MAX,
            memory_per_user_max: MEMORY_MAX / 2,
            fids_max: 65536,
            requests_max: 256,
            bytes_max: 32 << 20,
            memory_max: MEMORY_MAX,
            stall_max: Duration::from_secs(60),
            grace: Duration::from_secs(20),
            epoch: None,
            squash: false,
            allow_root: false,
            tcp: TcpProof::default(),
        }
    }
}
