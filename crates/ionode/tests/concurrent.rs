//! Many clients read and write one file at the same time, whatever the policy and however much the storage takes at once:
//! every byte is where its client put it.

mod common;

use common::gate::{Cold, Gate, Gated};
use common::{Exported, Random, opened, pattern, rw_file, wait_until};
use presagio_ninep::client::{Ask, Ticket};
use presagio_ninep::{Data, OpenFlags, Reply, Request};
use presagio_sched::{PolicyKind, Settings};
use presagio_storage::{Directory, Storage};
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::fs;
use std::sync::Arc;

const CLIENTS: usize = 4;
const BLOCKS: usize = 24;
const BLOCK: usize = 3000;

/// All policies, and each with the storage taking one request at a time, a few, or any number.
fn settings() -> impl Iterator<Item = (PolicyKind, Option<usize>)> {
    let depths = [Some(1), Some(4), None];
    PolicyKind::ALL
        .into_iter()
        .flat_map(move |policy| depths.map(|depth| (policy, depth)))
}

#[test]
fn every_byte_is_where_its_client_put_it_with_every_policy() {
    let config = Config {
        cases: 2,
        failure_persistence: None,
        ..Config::default()
    };
    proptest!(config, |(seed in any::<u64>())| {
        for (policy, depth) in settings() {
            run(Arc::new(Directory), true, policy, depth, seed);
        }
    });
}

/// Nothing that is read is in memory: what waits, waits in a ring or in a thread.
#[test]
fn rings_and_threads_read_the_same() {
    // Many sites switch it off.
    let can_ring = io_uring::IoUring::new(8).is_ok();
    for ring in [true, false] {
        for (policy, depth) in settings() {
            let by_ring = run(Arc::new(Cold), ring, policy, depth, 1);
            assert_eq!(by_ring > 0, ring && can_ring, "{policy:?}, {depth:?}");
        }
    }
}

/// How many reads waited in a ring.
fn run(
    storage: Arc<dyn Storage>,
    ring: bool,
    policy: PolicyKind,
    depth: Option<usize>,
    seed: u64,
) -> u64 {
    let node = Exported::on(storage, |config| {
        config.settings = Settings::new(policy);
        config.depth = depth;
        config.ring = ring;
    });
    let (_session, root) = node.connect();
    rw_file(&root, "shared");
    let parts: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let node = &node;
                scope.spawn(move || write_and_read(node, client, seed))
            })
            .collect();
        let parts = clients.into_iter().map(|client| client.join());
        parts.map(|part| part.expect("its bytes")).collect()
    });
    let all = fs::read(node.path("shared")).unwrap();
    for (at, block) in all.chunks(BLOCK).enumerate() {
        let expected = &parts[at % CLIENTS][at / CLIENTS];
        assert!(block == expected, "block {at}, {policy:?}, depth {depth:?}");
    }
    assert_eq!(all.len(), CLIENTS * BLOCKS * BLOCK);
    let page = node.node().metrics();
    let mut lines = page.lines();
    let reads = lines.find_map(|line| line.strip_prefix("presagio_ionode_ring_reads_total "));
    reads.expect("it is counted").parse().expect("a number")
}

/// Writes every fourth block, some of them twice, many at a time, and reads while writing; returns what is in them at
/// the end.
fn write_and_read(node: &Exported, client: usize, seed: u64) -> Vec<Vec<u8>> {
    let (session, root) = node.connect();
    let file = opened(&root, "shared", OpenFlags::RDWR);
    let mut random = Random::new(seed ^ client as u64);
    let mut blocks: Vec<Vec<u8>> = vec![Vec::new(); BLOCKS];
    for _round in 0..3 {
        let mut order: Vec<usize> = (0..BLOCKS).collect();
        order.sort_by_cached_key(|_| random.next());
        for some in order.chunks(1 + random.below(BLOCKS)) {
            for at in some {
                blocks[*at] = pattern(random.next(), BLOCK);
            }
            let fid = file.fid();
            // A read right behind each write, before that is answered: it has to see it.
            let asks = some.iter().flat_map(|at| {
                let offset = ((at * CLIENTS + client) * BLOCK) as u64;
                let data = Data::new(&blocks[*at]).unwrap();
                let write = Ask::new(Request::Write { fid, offset, data });
                [write, Ask::read(fid, offset, vec![0; BLOCK])]
            });
            let tickets = session.client().submit_all(asks).unwrap();
            for (number, ticket) in tickets.into_iter().enumerate() {
                let answer = ticket.wait().unwrap();
                match answer.reply() {
                    Reply::Write { count } => assert_eq!(count as usize, BLOCK),
                    _ => assert!(
                        answer.into_data() == blocks[some[number / 2]],
                        "a read overtook the write before it"
                    ),
                }
            }
        }
    }
    blocks
}

#[test]
fn contiguous_requests_that_waited_are_one_call() {
    const COUNT: usize = 12;
    let gate = Arc::new(Gate::default());
    let node = Exported::on(Arc::new(Gated(gate.clone())), |config| {
        config.depth = Some(1);
    });
    let (session, root) = node.connect();
    let (plug, file) = (rw_file(&root, "plug"), rw_file(&root, "file"));
    let all = pattern(1, COUNT * BLOCK);
    let at = |block: usize| (block * BLOCK) as u64;
    // In no order.
    let order = (0..COUNT).map(|number| number * 5 % COUNT);
    let write = |fid, block: usize| {
        let (offset, data) = (at(block), &all[block * BLOCK..][..BLOCK]);
        let data = Data::new(data).unwrap();
        Ask::new(Request::Write { fid, offset, data })
    };
    let read = |fid, block: usize| Ask::read(fid, at(block), vec![0; BLOCK]);
    // One before them keeps the storage busy.
    let wait_behind = |first: Ask<'_>, others: Vec<Ask<'_>>| -> Vec<Ticket> {
        let first = session.client().submit(first).unwrap();
        gate.wait_for(1);
        let others = session.client().submit_all(others).unwrap();
        wait_until("all of them are queued", || {
            node.node().engine().queued() == COUNT
        });
        gate.open();
        first.wait().unwrap();
        others
    };
    gate.shut_writes();
    let writes = order.clone().map(|block| write(file.fid(), block));
    for ticket in wait_behind(write(plug.fid(), 0), writes.collect()) {
        assert!(
            matches!(ticket.wait().unwrap().reply(), Reply::Write { count } if count == BLOCK as u32)
        );
    }
    assert_eq!(gate.batches(), [1, COUNT]);
    assert!(fs::read(node.path("file")).unwrap() == all);
    gate.shut_reads();
    let reads = order.clone().map(|block| read(file.fid(), block));
    let tickets = wait_behind(read(plug.fid(), 0), reads.collect());
    for (block, ticket) in order.zip(tickets) {
        assert!(ticket.wait().unwrap().into_data() == all[block * BLOCK..][..BLOCK]);
    }
    assert_eq!(gate.batches(), [1, COUNT, 1, COUNT]);
}
