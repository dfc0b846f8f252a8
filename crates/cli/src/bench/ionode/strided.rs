//! Many clients read one file, each every so-manieth block: what aggregation gains where every operation costs.

use super::server::Server;
use presagio_ninep::OpenFlags;
use presagio_ninep::session::File;
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// As in the bar.
pub const CLIENTS: usize = 128;
const BLOCK: usize = 32 << 10;

/// The file that all of them read, of `blocks` blocks for each client.
pub fn fill(server: &Server, blocks: usize) -> anyhow::Result<()> {
    let bytes = vec![7; CLIENTS * BLOCK * blocks];
    Ok(std::fs::write(server.export().join("shared"), bytes)?)
}

/// Megabytes a second that the clients of a node read together, each `blocks` blocks.
pub fn run(server: &Server, blocks: usize) -> anyhow::Result<f64> {
    let barrier = Arc::new(Barrier::new(CLIENTS + 1));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| -> anyhow::Result<_> {
            let (session, root) = server.connect()?;
            let mut file = root.walk("shared")?;
            file.open(OpenFlags::RDONLY)?;
            let barrier = barrier.clone();
            Ok(std::thread::spawn(move || {
                barrier.wait();
                let result = read(&file, client, blocks);
                drop((file, session));
                result
            }))
        })
        .collect::<anyhow::Result<_>>()?;
    barrier.wait();
    let start = Instant::now();
    for client in clients {
        client.join().expect("a client does not panic")?;
    }
    let bytes = (CLIENTS * BLOCK * blocks) as f64;
    Ok(bytes / 1e6 / start.elapsed().as_secs_f64())
}

fn read(file: &File, client: usize, blocks: usize) -> anyhow::Result<()> {
    let mut block = vec![0; BLOCK];
    for row in 0..blocks {
        let at = (row * CLIENTS + client) * BLOCK;
        anyhow::ensure!(
            file.read_at(at as u64, &mut block)? == BLOCK,
            "a short read"
        );
        anyhow::ensure!(block.iter().all(|byte| *byte == 7), "other bytes");
    }
    Ok(())
}
