//! What the tests share: scenarios in a line, and devices that keep a record.

#![allow(dead_code)]

use presagio_core::{Nanos, Op, Range};
use presagio_device::Device;
use presagio_sim::{Report, Scenario, Simulation};
use std::sync::{Arc, Mutex};

/// The scenario of a text.
pub fn scenario(text: &str) -> Scenario {
    Scenario::from_toml(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// What comes of it.
pub fn run(scenario: &Scenario) -> Report {
    Simulation::new(scenario)
        .run()
        .unwrap_or_else(|e| panic!("{e}"))
}

/// What a device was asked for.
pub type Log = Arc<Mutex<Vec<(Op, Range)>>>;

/// A device that takes the same for every operation and byte, and writes down what it is asked.
pub struct Logged {
    log: Log,
    free: Nanos,
}

impl Logged {
    pub const PER_OPERATION: Nanos = Nanos::from_micros(100);

    pub fn device(log: &Log) -> Box<dyn Device> {
        Box::new(Logged {
            log: log.clone(),
            free: Nanos::ZERO,
        })
    }

    /// As many as there are servers, with their logs.
    pub fn all(servers: u32) -> (Vec<Box<dyn Device>>, Vec<Log>) {
        let logs: Vec<Log> = (0..servers).map(|_| Log::default()).collect();
        (logs.iter().map(Logged::device).collect(), logs)
    }
}

impl Device for Logged {
    fn serve(&mut self, op: Op, at: Range, now: Nanos) -> Nanos {
        self.log.lock().expect("no panic").push((op, at));
        self.free = self.free.max(now) + Logged::PER_OPERATION + Nanos(at.len());
        self.free
    }

    fn flush(&mut self, now: Nanos) -> Nanos {
        self.free.max(now)
    }
}

/// The ranges of a log in order, those that touch put together; an error where two overlap.
pub fn covered(log: &Log) -> Result<Vec<(u64, u64)>, String> {
    let log = log.lock().expect("no panic");
    let mut ranges: Vec<(u64, u64)> = log.iter().map(|(_, r)| (r.start(), r.end())).collect();
    ranges.sort_unstable();
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match covered.last_mut() {
            Some(last) if start < last.1 => return Err(format!("byte {start} is served twice")),
            Some(last) if start == last.1 => last.1 = end,
            _ => covered.push((start, end)),
        }
    }
    Ok(covered)
}
