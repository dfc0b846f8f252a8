//! A node that leaves the page cache alone does what any other does.

mod common;
mod model_parts;

use common::{Exported, Random, opened, pattern, rw_file};
use model_parts::{check, operations};
use presagio_ninep::OpenFlags;
use presagio_storage::{Direct, Directory};
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::fs;
use std::sync::Arc;

/// A node on a file system that can do it; `None`, and a printed reason, where it cannot.
fn start() -> Option<Exported> {
    let node = Exported::on(Arc::new(Direct::new(Arc::new(Directory))), |_| {});
    match Direct::is_possible(&node.export()) {
        Ok(true) => Some(node),
        other => {
            common::skipped(&format!("no O_DIRECT here: {other:?}"));
            None
        }
    }
}

#[test]
fn a_node_past_the_page_cache_does_what_a_plain_directory_does() {
    let Some(node) = start() else { return };
    let config = Config {
        cases: 32,
        failure_persistence: None,
        ..Config::default()
    };
    let all = prop::collection::vec((0..3usize, operations()), 80);
    proptest!(config, |(steps in all)| {
        check(&node, &steps)?;
    });
}

/// Each client has every other record of a file; records are of any length and begin anywhere, so that clients share
/// blocks. Some are whole blocks.
#[test]
fn two_clients_that_share_blocks_lose_nothing() {
    let Some(node) = start() else { return };
    let mut random = Random::new(7);
    let (mut at, mut records) = (0, Vec::new());
    while records.len() < 64 {
        let len = match random.below(3) {
            0 => 4096 * (1 + random.below(16)),
            _ => 1 + random.below(20_000),
        };
        records.push((at, len));
        at += len;
        if random.below(4) == 0 {
            at = at.next_multiple_of(4096);
        }
    }
    let (_session, root) = node.connect();
    drop(rw_file(&root, "shared"));
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (session, root) = node.connect();
            let mine: Vec<_> = records.iter().skip(client).step_by(2).copied().collect();
            scope.spawn(move || {
                let file = opened(&root, "shared", OpenFlags::RDWR);
                for round in 0..8 {
                    for (at, len) in &mine {
                        let bytes = pattern(round * 1000 + *at as u64, *len);
                        assert_eq!(file.write_at(*at as u64, &bytes).unwrap(), *len);
                        let mut back = vec![0; *len];
                        assert_eq!(file.read_at(*at as u64, &mut back).unwrap(), *len);
                        assert!(back == bytes, "client {client}, round {round}, at {at}");
                    }
                }
                drop(session);
            });
        }
    });
    let all = fs::read(node.path("shared")).unwrap();
    for (at, len) in records {
        assert!(all[at..at + len] == pattern(7000 + at as u64, len), "{at}");
    }
}
