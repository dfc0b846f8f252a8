//! What is durable when a node's machine was booted anew: what was synced before, and nobody says more.

use presagio_forward::{Address, File, Options, Remote};
use presagio_ionode::{Config, Node};
use presagio_ninep::{Errno, OpenFlags};
use presagio_storage::Directory;
use std::path::Path;
use std::sync::Arc;

/// A node on a machine that was booted then.
fn node(dir: &Path, epoch: u64) -> Node {
    let mut config = Config::new(dir.join("export"));
    config.epoch = Some(epoch);
    let address = Address::Unix(dir.join("socket"));
    Node::start(config, Arc::new(Directory), &[address], false).unwrap()
}

fn file(root: &File, name: &str) -> File {
    let flags = OpenFlags::RDWR | OpenFlags::APPEND;
    root.create(name, flags, 0o644, 0).unwrap()
}

#[test]
fn a_sync_fails_once_if_what_was_written_may_have_been_lost_with_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("export")).unwrap();
    let first = node(dir.path(), 1);
    let options = Options::new(vec![Address::Unix(dir.path().join("socket"))]);
    let remote = Remote::new(options).unwrap();
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    let [synced, written, appended, untouched] =
        ["synced", "written", "appended", "untouched"].map(|name| file(&root, name));
    assert_eq!(synced.write_at(0, b"bytes").unwrap(), 5);
    synced.fsync(false).unwrap();
    assert_eq!(written.write_at(0, b"bytes").unwrap(), 5);
    assert_eq!(appended.append(b"bytes").unwrap(), 5);
    // The node alone was started anew.
    drop(first);
    let again = node(dir.path(), 1);
    assert_eq!(synced.write_at(0, b"more").unwrap(), 4);
    synced.fsync(true).unwrap();
    // Its machine was.
    drop(again);
    let _rebooted = node(dir.path(), 2);
    assert_eq!(written.write_at(5, b"more").unwrap(), 4);
    for lost in [&written, &appended] {
        assert_eq!(lost.fsync(false).unwrap_err(), Errno::IO);
        lost.fsync(false).unwrap();
    }
    synced.fsync(false).unwrap();
    untouched.fsync(false).unwrap();
    assert_eq!(synced.write_at(0, b"and more").unwrap(), 8);
    synced.fsync(false).unwrap();
}
