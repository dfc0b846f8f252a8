//! One case of the table: a policy, a stream, a backlog. What does a request cost?
//!
//! The ordered map that submits are compared with lives beside the scheduler, holds the same requests, and
//! takes its turn chunk by chunk: whatever slows the machine down hits both.

use super::drive::Driver;
use super::stream::{Pattern, Stream};
use crate::bench::alloc::live_bytes_added;
use presagio_core::{FileId, Op, Request};
use presagio_sched::PolicyKind;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Requests are made outside the timed sections, this many at a time.
const FILL_CHUNK: u64 = 1024;

/// Filling and draining is repeated until about this many requests went through.
const ROUNDS_REQUESTS: u64 = 20_000;

/// What one case found.
#[derive(Clone, Debug)]
pub struct Measured {
    pub policy: PolicyKind,
    pub stream: Stream,
    pub backlog: u64,
    /// Submit, next and finish of one request together.
    pub request_ns: f64,
    pub submit_ns: f64,
    /// An insert into an ordered map of as many requests; `None` without a backlog.
    pub insert_ns: Option<f64>,
    /// Memory of a queued request beyond the request itself; `None` without a backlog.
    pub bytes: Option<f64>,
}

impl Measured {
    /// Submit against insert.
    pub fn ratio(&self) -> Option<f64> {
        self.insert_ns.map(|insert_ns| self.submit_ns / insert_ns)
    }
}

/// With nothing queued: each request is submitted, dispatched and finished before the next one comes.
pub fn without_backlog(
    policy: PolicyKind,
    stream: Stream,
    samples: u64,
) -> anyhow::Result<Measured> {
    const CHUNK: u64 = 512;
    let mut driver = Driver::new(policy)?;
    let mut requests = Vec::new();
    let mut means = Vec::new();
    for sample in 0..samples {
        stream.chunk(sample * CHUNK, CHUNK, &mut requests);
        let took = timed(|| one_by_one(&mut driver, &requests))?;
        means.push(ns_each(took, CHUNK));
    }
    let submit_ns = submits_into_an_empty_queue(&mut driver, stream, samples * CHUNK, samples)?;
    let request_ns = median(&mut means);
    Ok(Measured {
        policy,
        stream,
        backlog: 0,
        request_ns,
        submit_ns,
        insert_ns: None,
        bytes: None,
    })
}

fn one_by_one(driver: &mut Driver, requests: &[Request]) -> anyhow::Result<()> {
    for request in requests {
        driver.submit(*request)?;
        driver.serve_all()?;
    }
    Ok(())
}

/// A clock costs as much as a submit, so a few go together, and are served before the next few.
fn submits_into_an_empty_queue(
    driver: &mut Driver,
    stream: Stream,
    first: u64,
    samples: u64,
) -> anyhow::Result<f64> {
    const CHUNK: u64 = 16;
    let (mut requests, mut tickets, mut means) = (Vec::new(), VecDeque::new(), Vec::new());
    for sample in 0..samples {
        stream.chunk(first + sample * CHUNK, CHUNK, &mut requests);
        let took = timed(|| driver.submit_all(&requests, &mut tickets))?;
        means.push(ns_each(took, CHUNK));
        tickets.clear();
        driver.serve_all()?;
    }
    Ok(median(&mut means))
}

/// With as many requests queued as `map` holds.
pub fn with_backlog(policy: PolicyKind, map: &mut Map, samples: u64) -> anyhow::Result<Measured> {
    let (stream, backlog) = (map.stream, map.backlog);
    // Room for everything that is not the scheduler's own is taken before its memory is counted.
    let mut tickets = VecDeque::with_capacity(backlog as usize + 2 * FILL_CHUNK as usize);
    let mut requests = Vec::with_capacity(FILL_CHUNK as usize);
    let mut driver = Driver::new(policy)?;
    let (filled, added) =
        live_bytes_added(|| fill(&mut driver, stream, backlog, &mut requests, &mut tickets));
    let fill_took = filled?;
    let (submit_ns, insert_ns) = in_turn(&mut driver, &mut tickets, map, samples)?;
    tickets.clear();
    let mut rounds = vec![ns_each(fill_took, backlog) + drain_ns(&mut driver)?];
    // A small backlog is gone in no time: several rounds, or one hiccup of the machine decides.
    for _ in 1..(ROUNDS_REQUESTS / backlog).min(samples) {
        let fill_took = fill(&mut driver, stream, backlog, &mut requests, &mut tickets)?;
        tickets.clear();
        rounds.push(ns_each(fill_took, backlog) + drain_ns(&mut driver)?);
    }
    Ok(Measured {
        policy,
        stream,
        backlog,
        request_ns: median(&mut rounds),
        submit_ns,
        insert_ns: Some(insert_ns),
        bytes: Some(added as f64 / backlog as f64 - size_of::<Request>() as f64),
    })
}

/// Serves everything; returns the time per request.
fn drain_ns(driver: &mut Driver) -> anyhow::Result<f64> {
    let start = Instant::now();
    let served = driver.serve_all()?;
    Ok(ns_each(start.elapsed(), served))
}

/// Queues the first `backlog` requests of the stream; returns the time that the submits took.
fn fill(
    driver: &mut Driver,
    stream: Stream,
    backlog: u64,
    requests: &mut Vec<Request>,
    tickets: &mut VecDeque<presagio_sched::Ticket>,
) -> anyhow::Result<Duration> {
    let mut took = Duration::ZERO;
    for first in (0..backlog).step_by(FILL_CHUNK as usize) {
        stream.chunk(first, FILL_CHUNK.min(backlog - first), requests);
        took += timed(|| driver.submit_all(requests, tickets))?;
    }
    Ok(took)
}

/// Submits and inserts, chunk by chunk in turn, each side first every other time; the oldest as many are
/// taken out again, untimed, so that both keep their size. Returns both medians, in ns per request.
fn in_turn(
    driver: &mut Driver,
    tickets: &mut VecDeque<presagio_sched::Ticket>,
    map: &mut Map,
    samples: u64,
) -> anyhow::Result<(f64, f64)> {
    let chunk = (map.backlog / 16).clamp(16, 256);
    let (mut submits, mut inserts, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for sample in 0..samples {
        map.stream
            .chunk(map.backlog + sample * chunk, chunk, &mut requests);
        for turn in [sample % 2, (sample + 1) % 2] {
            if turn == 0 {
                submits.push(ns_each(
                    timed(|| driver.submit_all(&requests, tickets))?,
                    chunk,
                ));
                driver.cancel_oldest(chunk as usize, tickets)?;
            } else {
                inserts.push(ns_each(timed(|| map.insert(&requests))?, chunk));
                map.remove(sample * chunk, chunk);
            }
        }
    }
    map.restore(samples * chunk);
    Ok((median(&mut submits), median(&mut inserts)))
}

/// The bare ordered map: what any scheduler that keeps requests in order has to pay at least.
pub struct Map {
    stream: Stream,
    backlog: u64,
    map: BTreeMap<Key, Request>,
}

type Key = (FileId, Op, u64, u64);

fn key(request: &Request) -> Key {
    (
        request.file,
        request.op,
        request.range.start(),
        request.id.0,
    )
}

impl Map {
    /// A map of the first `backlog` requests of the stream.
    pub fn filled(stream: Stream, backlog: u64) -> Map {
        let map = (0..backlog)
            .map(|i| stream.at(i))
            .fold(BTreeMap::new(), |mut map, request| {
                map.insert(key(&request), request);
                map
            });
        Map {
            stream,
            backlog,
            map,
        }
    }

    fn insert(&mut self, requests: &[Request]) -> anyhow::Result<()> {
        for request in requests {
            self.map.insert(key(request), *request);
        }
        Ok(())
    }

    /// Takes requests `first..first + count` out.
    fn remove(&mut self, first: u64, count: u64) {
        for i in first..first + count {
            self.map.remove(&key(&self.stream.at(i)));
        }
    }

    /// After `moved` requests were put in and as many taken out: back to the first ones, for the next case.
    fn restore(&mut self, moved: u64) {
        self.remove(moved.max(self.backlog), self.backlog.min(moved));
        for i in 0..moved.min(self.backlog) {
            let request = self.stream.at(i);
            self.map.insert(key(&request), request);
        }
    }
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn ns_each(took: Duration, count: u64) -> f64 {
    took.as_nanos() as f64 / count.max(1) as f64
}

/// The middle value: the machine's hiccups end up at the far end.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// All streams of the table.
pub fn streams(files: &[u64]) -> Vec<Stream> {
    let both = |files: &u64| {
        Pattern::ALL.map(|pattern| Stream {
            files: *files,
            pattern,
        })
    };
    files.iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_the_same_again_after_each_case() {
        for stream in streams(&[1, 5]) {
            let mut map = Map::filled(stream, 300);
            let before = map.map.clone();
            with_backlog(PolicyKind::Noop, &mut map, 5).unwrap();
            assert!(map.map == before, "fewer moved than the backlog");
            with_backlog(PolicyKind::Noop, &mut map, 50).unwrap();
            assert!(map.map == before, "more moved than the backlog");
        }
    }

    #[test]
    fn the_median_is_not_impressed_by_one_hiccup() {
        assert_eq!(median(&mut [3.0, 1e9, 2.0]), 3.0);
        assert!(median(&mut []).is_nan());
    }
}
