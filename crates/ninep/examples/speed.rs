//! What the codec costs, and how many requests a second go through the client to a diod on this machine, hot cache.
//!
//! `cargo run --release -p presagio-ninep --example speed [PART]`; PART is a part of the name of the lines wanted.
//! Compare lines of one run, not of different machines.

#[path = "../tests/common/mod.rs"]
mod common;

use common::Diod;
use presagio_ninep::client::{Ask, Client, Options, ReadInto};
use presagio_ninep::session::File;
use presagio_ninep::{
    Data, Dialect, Fid, Frame, Frames, List, MSIZE_MAX, OpenFlags, Qid, Reply, Request, Step, Tag,
};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long each line is measured.
const LONG: Duration = Duration::from_millis(700);

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    codec(&wanted);
    let diod = Diod::start();
    let options = Options {
        msize: MSIZE_MAX,
        ..Options::default()
    };
    let (session, root) = diod.connect(&options);
    let file = root
        .create("speed", OpenFlags::RDWR, 0o600)
        .expect("a file");
    let file_size = 64 << 20;
    let written = file.write_at(0, &vec![7; file_size]);
    assert_eq!(written.ok(), Some(file_size));
    let client = session.client();
    println!("diod agrees on {:?}", client.agreed());
    let run = Run {
        wanted: &wanted,
        client,
        fid: file.fid(),
        blocks: file_size as u64 / 4096,
    };
    run.one_thread();
    run.threads(&root);
}

fn codec(wanted: &str) {
    let block = vec![7; 4096];
    let data = Data::new(&block).expect("it fits");
    let steps =
        ["scratch", "user", "results", "run-0001.h5"].map(|name| Step::new(name).expect("a name"));
    let (fid, new_fid) = (Fid(1), Fid(2));
    let read = Request::Read {
        fid,
        offset: 4096,
        count: 4096,
    };
    let write = Request::Write {
        fid,
        offset: 4096,
        data,
    };
    let walk = Request::Walk {
        fid,
        new_fid,
        steps: List::new(&steps).expect("few"),
    };
    for (name, request) in [
        ("Tread", read),
        ("Twrite 4 KiB", write),
        ("Twalk of 4", walk),
    ] {
        let mut out = Vec::with_capacity(8192);
        per_operation(wanted, &format!("encode head of {name}"), || {
            out.clear();
            black_box(black_box(&request).encode_head(Tag(3), &mut out).len());
        });
        out.clear();
        request.encode(Tag(3), &mut out);
        per_operation(wanted, &format!("parse {name}"), || {
            let frame = Frame::new(black_box(&out)).expect("a frame");
            black_box(Request::parse(frame, Dialect::Linux).is_ok());
        });
    }
    let qids = [Qid::default(); 4];
    for (name, reply) in [
        ("Rread 4 KiB", Reply::Read { data }),
        ("Rwrite", Reply::Write { count: 4096 }),
        (
            "Rwalk of 4",
            Reply::Walk {
                qids: List::new(&qids).expect("few"),
            },
        ),
    ] {
        let mut out = Vec::with_capacity(8192);
        per_operation(wanted, &format!("encode head of {name}"), || {
            out.clear();
            black_box(black_box(&reply).encode_head(Tag(3), &mut out).len());
        });
        out.clear();
        reply.encode(Tag(3), &mut out);
        per_operation(wanted, &format!("parse {name}"), || {
            let frame = Frame::new(black_box(&out)).expect("a frame");
            black_box(Reply::parse(frame, Dialect::Linux).is_ok());
        });
    }
    reassembly(wanted, &write);
}

/// What it costs to find a frame in a stream that is received 16 KiB at a time, the copy of the receiving included.
fn reassembly(wanted: &str, write: &Request<'_>) {
    let mut stream = Vec::new();
    (0..64).for_each(|_| write.encode(Tag(3), &mut stream));
    let (mut frames, mut at) = (Frames::new(MSIZE_MAX), 0);
    per_operation(wanted, "receive and find a Twrite of 4 KiB", || {
        loop {
            if let Ok(Some(frame)) = frames.next() {
                black_box(frame.body.len());
                return;
            }
            let space = frames.space();
            let count = space.len().min(stream.len() - at);
            space[..count].copy_from_slice(&stream[at..at + count]);
            frames.received(count);
            at = (at + count) % stream.len();
        }
    });
}

fn per_operation(wanted: &str, name: &str, mut operation: impl FnMut()) {
    if !name.contains(wanted) {
        return;
    }
    let (mut count, start) = (0u32, Instant::now());
    while start.elapsed() < LONG / 4 {
        (0..1000).for_each(|_| operation());
        count += 1000;
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(count);
    println!("{name:<44} {ns:>10.1} ns");
}

/// Processor time of this process, without diod's.
fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

struct Run<'r> {
    wanted: &'r str,
    client: &'r Client,
    fid: Fid,
    blocks: u64,
}

impl Run<'_> {
    /// Offsets of 4 KiB blocks in no order.
    fn offsets(&self) -> impl FnMut() -> u64 + use<> {
        let (mut state, blocks) = (0x9E37_79B9_7F4A_7C15u64, self.blocks);
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % blocks * 4096
        }
    }

    fn line(&self, name: &str, bytes: usize, mut round: impl FnMut() -> u64) {
        if !name.contains(self.wanted) {
            return;
        }
        let (mut count, cpu, start) = (0, cpu_seconds(), Instant::now());
        while start.elapsed() < LONG {
            count += round();
        }
        let seconds = start.elapsed().as_secs_f64();
        let (rate, us) = (count as f64 / seconds, seconds * 1e6 / count as f64);
        let cpu = (cpu_seconds() - cpu) * 1e6 / count as f64;
        let mib = rate * bytes as f64 / f64::from(1 << 20);
        println!(
            "{name:<44} {rate:>10.0} /s {us:>8.1} us {mib:>8.0} MiB/s {cpu:>8.2} us of our CPU"
        );
    }

    fn one_thread(&self) {
        let (client, fid) = (self.client, self.fid);
        let mut next = self.offsets();
        let mut block = vec![0; 4096];
        self.line("client read 4 KiB, 1 under way", 4096, || {
            client.read(fid, next(), &mut block).expect("a read");
            1
        });
        self.line("client write 4 KiB, 1 under way", 4096, || {
            client.write(fid, next(), &block).expect("a write");
            1
        });
        self.sliding("client read 4 KiB, 16 under way", 4096, 16);
        let mut memory = vec![0; 16 * 4096];
        self.line("client read_many 16 x 4 KiB", 4096, || {
            let places = memory.chunks_mut(4096);
            let mut reads: Vec<_> = places
                .map(|to| ReadInto {
                    fid,
                    offset: next(),
                    to,
                })
                .collect();
            let got = client.read_many(&mut reads).expect("reads");
            got.into_iter().filter(Result::is_ok).count() as u64
        });
        let data = Data::new(&block).expect("it fits");
        self.line("client write 4 KiB, 16 at a time", 4096, || {
            let asks = (0..16).map(|_| {
                Ask::new(Request::Write {
                    fid,
                    offset: next(),
                    data,
                })
            });
            let tickets = client.submit_all(asks).expect("room");
            let written = tickets.into_iter().filter_map(|ticket| ticket.wait().ok());
            written.count() as u64
        });
        let most = (client.io_max() as usize).min(1 << 20);
        let mut large = vec![0; most];
        self.line(
            &format!("client read {most} bytes, 1 under way"),
            most,
            || {
                client.read(fid, 0, &mut large).expect("a read");
                1
            },
        );
        self.sliding(&format!("client read {most} bytes, 16 under way"), most, 16);
        self.line(
            &format!("client write {most} bytes, 1 under way"),
            most,
            || {
                client.write(fid, 0, &large).expect("a write");
                1
            },
        );
    }

    /// Always so many under way: one is collected, one is sent.
    fn sliding(&self, name: &str, size: usize, count: usize) {
        let (client, fid) = (self.client, self.fid);
        let mut next = self.offsets();
        let asks = (0..count).map(|_| Ask::read(fid, 0, vec![0; size]));
        let mut under_way = VecDeque::from(client.submit_all(asks).expect("room"));
        self.line(name, size, || {
            let oldest = under_way.pop_front().expect("some are under way");
            let buffer = oldest.wait().expect("a read").into_data();
            assert_eq!(buffer.len(), size);
            let offset = if size == 4096 { next() } else { 0 };
            under_way.push_back(client.submit(Ask::read(fid, offset, buffer)).expect("room"));
            1
        });
    }

    fn threads(&self, root: &File) {
        let mut file = root.walk("speed").expect("the file");
        file.open(OpenFlags::RDONLY).expect("it opens");
        let (client, fid) = (self.client, file.fid());
        self.line("client read 4 KiB, 16 threads", 4096, || {
            std::thread::scope(|scope| {
                for thread in 0..16 {
                    scope.spawn(move || {
                        let mut block = vec![0; 4096];
                        for i in 0..500 {
                            let offset = (i * 16 + thread) * 4096;
                            client.read(fid, offset, &mut block).expect("a read");
                        }
                    });
                }
            });
            16 * 500
        });
    }
}
