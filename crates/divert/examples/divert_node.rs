//! An I/O node by hand: `divert_node EXPORT SOCKET`, until it is killed. For tests, which kill it.

use presagio_ionode::{Address, Config, Node};
use presagio_storage::Directory;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [export, socket] = &arguments[..] else {
        return Err("usage: divert_node EXPORT SOCKET".into());
    };
    // Clients have masks of their own.
    // SAFETY: no pointers, and no other thread yet.
    unsafe { libc::umask(0) };
    let address = Address::Unix(socket.into());
    let mut config = Config::new(export);
    // Nobody takes long to come back in a test.
    config.grace = std::time::Duration::from_secs(3);
    let _node = Node::start(config, Arc::new(Directory), &[address], false)?;
    loop {
        std::thread::park();
    }
}
