//! An engine with nothing to do costs nothing. Alone in its file, and so in its process: what is measured is
//! the processor time of the whole process.
#![cfg(not(feature = "shuttle"))]

use presagio_core::{FileId, Op, Range, Request, RequestId};
use presagio_engine::{DispatchBy, Engine, EngineConfig, Service};
use presagio_sched::{Batch, PolicyKind, Settings};
use std::sync::Arc;
use std::time::Duration;

struct Finisher;

impl Service for Finisher {
    fn dispatch(&self, engine: &Engine, batch: Batch) {
        batch
            .parts()
            .iter()
            .for_each(|part| assert!(engine.finish(part.ticket)));
    }
}

/// User and system time of this process, in clock ticks (hundredths of a second).
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name in parentheses comes the state; user and system time are the 12th and 13th field.
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn idle_engines_use_no_processor_time() {
    let engines = [DispatchBy::Caller, DispatchBy::Thread].map(|dispatch| {
        let config = EngineConfig {
            dispatch,
            ..EngineConfig::new(Settings::new(PolicyKind::To))
        };
        Engine::start(config, Arc::new(Finisher)).unwrap()
    });
    // They have worked, and rest.
    let request = Request::new(RequestId(0), FileId(0), Op::Read, Range::at(0, 1));
    engines
        .iter()
        .for_each(|engine| engine.submit_detached(request).unwrap());
    std::thread::sleep(Duration::from_millis(20));
    let before = ticks();
    std::thread::sleep(Duration::from_millis(300));
    let used = ticks() - before;
    assert!(used <= 5, "{used} of 30 ticks were used while idle");
}
