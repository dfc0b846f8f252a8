//! Memory of a node with many connections.

use super::server::{MSIZE, Server};
use presagio_core::Op;
use presagio_ninep::client::Ask;
use presagio_ninep::session::{File, Session};
use presagio_ninep::{Data, OpenFlags, Request};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Kilobytes of a node's memory: with no connection, with idle ones, and with busy ones beside them.
#[derive(Clone, Debug)]
pub struct Memory {
    pub empty: f64,
    pub idle: f64,
    /// At its peak, by what the busy ones did.
    pub busy: Vec<(&'static str, f64)>,
}

/// What each of the busy ones has under way, again and again.
struct Load {
    name: &'static str,
    op: Op,
    msize: u32,
    requests: usize,
}

/// Together more than the node may use, each of them.
const LOADS: [Load; 4] = [
    Load::new("reads of 64 KiB", Op::Read, MSIZE, 64),
    Load::new("writes of 64 KiB", Op::Write, MSIZE, 64),
    Load::new("reads of 1 MiB", Op::Read, MIB + 4096, 2),
    Load::new("writes of 1 MiB", Op::Write, MIB + 4096, 2),
];

const MIB: u32 = 1 << 20;

impl Load {
    const fn new(name: &'static str, op: Op, msize: u32, requests: usize) -> Load {
        Load {
            name,
            op,
            msize,
            requests,
        }
    }
}

/// What the node may use for payloads.
pub const LIMIT: &str = "64MiB";

/// `idle` connections, then `busy` ones beside them, each with much under way.
pub fn run(dir: &Path, idle: usize, busy: usize) -> anyhow::Result<Memory> {
    let server = Server::presagio(dir, &["--memory", LIMIT])?;
    std::fs::write(server.export().join("file"), vec![7; 1 << 20])?;
    let empty = server.memory()?;
    let waiting: Vec<_> = (0..idle)
        .map(|_| server.connect())
        .collect::<anyhow::Result<_>>()?;
    let with_idle = server.memory()?;
    let mut all = Vec::new();
    for load in &LOADS {
        all.push((load.name, peak(&server, load, busy)?));
    }
    drop(waiting);
    Ok(Memory {
        empty,
        idle: with_idle,
        busy: all,
    })
}

/// The most memory that the node has while so many clients are busy.
fn peak(server: &Server, load: &Load, busy: usize) -> anyhow::Result<f64> {
    let crowd: Vec<_> = (0..busy)
        .map(|_| server.connect_with(load.msize))
        .collect::<anyhow::Result<_>>()?;
    let left = AtomicUsize::new(busy);
    std::thread::scope(|scope| -> anyhow::Result<f64> {
        let clients: Vec<_> = crowd
            .into_iter()
            .map(|(session, root)| {
                let left = &left;
                scope.spawn(move || {
                    let result = keep_busy(&session, &root, load);
                    left.fetch_sub(1, Ordering::Relaxed);
                    result
                })
            })
            .collect();
        let mut peak = 0.0f64;
        while left.load(Ordering::Relaxed) > 0 {
            peak = peak.max(server.memory()?);
            std::thread::sleep(Duration::from_millis(1));
        }
        for client in clients {
            client.join().expect("a client does not panic")?;
        }
        Ok(peak)
    })
}

/// All is asked for at once, then collected: as much as a client can keep a node busy with.
fn keep_busy(session: &Session, root: &File, load: &Load) -> anyhow::Result<()> {
    let mut file = root.walk("file")?;
    file.open(OpenFlags::RDWR)?;
    let (fid, size) = (file.fid(), session.client().io_max().min(MIB) as usize);
    let bytes = vec![7; size];
    let write = Request::Write {
        fid,
        offset: 0,
        data: Data::new(&bytes)?,
    };
    for _ in 0..4 {
        let asks = (0..load.requests).map(|_| match load.op {
            Op::Read => Ask::read(fid, 0, vec![0; size]),
            Op::Write => Ask::new(write),
        });
        for ticket in session.client().submit_all(asks)? {
            ticket.wait()?;
        }
    }
    Ok(())
}
