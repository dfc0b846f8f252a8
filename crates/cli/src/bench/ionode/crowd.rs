//! Memory of a node with many connections.

use super::server::Server;
use presagio_ninep::OpenFlags;
use presagio_ninep::client::Ask;
use presagio_ninep::session::{File, Session};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Kilobytes of a node's memory: with no connection, with idle ones, and with busy ones beside them.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub empty: f64,
    pub idle: f64,
    pub busy: f64,
}

/// What the node may use for payloads.
pub const LIMIT: &str = "64MiB";

/// `idle` connections, then `busy` ones, each with many reads of 64 KiB under way.
pub fn run(dir: &Path, idle: usize, busy: usize) -> anyhow::Result<Memory> {
    let server = Server::presagio(dir, &["--memory", LIMIT])?;
    std::fs::write(server.export().join("file"), vec![7; 1 << 20])?;
    let empty = server.memory()?;
    let waiting: Vec<_> = (0..idle)
        .map(|_| server.connect())
        .collect::<anyhow::Result<_>>()?;
    let with_idle = server.memory()?;
    let crowd: Vec<_> = (0..busy)
        .map(|_| server.connect())
        .collect::<anyhow::Result<_>>()?;
    let left = AtomicUsize::new(busy);
    let peak = std::thread::scope(|scope| -> anyhow::Result<f64> {
        let clients: Vec<_> = crowd
            .into_iter()
            .map(|(session, root)| {
                let left = &left;
                scope.spawn(move || {
                    let result = keep_busy(&session, &root);
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
    })?;
    drop(waiting);
    Ok(Memory {
        empty,
        idle: with_idle,
        busy: peak,
    })
}

/// All reads are asked for at once, then collected: as much as a client can keep a node busy with.
fn keep_busy(session: &Session, root: &File) -> anyhow::Result<()> {
    let mut file = root.walk("file")?;
    file.open(OpenFlags::RDONLY)?;
    let size = session.client().io_max() as usize;
    for _ in 0..4 {
        let asks = (0..64).map(|_| Ask::read(file.fid(), 0, vec![0; size]));
        for ticket in session.client().submit_all(asks)? {
            ticket.wait()?;
        }
    }
    Ok(())
}
