//! How many requests a second go through an engine: submitted, dispatched, finished.
//!
//! `cargo run --release -p presagio-engine --example throughput [REQUESTS [MODE]]`; MODE is a part of the name of
//! the lines wanted. The service does nothing but finish, so this is what the engine itself costs; compare
//! lines of one run, not of different machines.

use presagio_core::{FileId, Op, Range, Request, RequestId};
use presagio_engine::{DispatchBy, Engine, EngineConfig, Service};
use presagio_sched::{Batch, PolicyKind, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Finishes each part at once and counts it.
struct Finisher {
    by_range: bool,
    done: AtomicU64,
}

impl Service for Finisher {
    fn dispatch(&self, engine: &Engine, batch: Batch) {
        for part in batch.parts() {
            let r = &part.request;
            let known = match self.by_range {
                true => engine.finish_range(r.file, r.op, r.range),
                false => engine.finish(part.ticket),
            };
            assert!(known);
        }
        self.done
            .fetch_add(batch.parts().len() as u64, Ordering::Release);
    }
}

/// What is measured in one line.
#[derive(Clone, Copy)]
enum Mode {
    Callback {
        dispatch: DispatchBy,
        detached: bool,
    },
    Pull,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let requests = args
        .next()
        .map_or(1_000_000, |n| n.parse().expect("REQUESTS is a number"));
    let wanted = args.next().unwrap_or_default();
    let caller = Mode::Callback {
        dispatch: DispatchBy::Caller,
        detached: false,
    };
    let thread = Mode::Callback {
        dispatch: DispatchBy::Thread,
        detached: false,
    };
    let detached = Mode::Callback {
        dispatch: DispatchBy::Thread,
        detached: true,
    };
    println!(
        "{:<32} {:>10} {:>12} {:>12}",
        "mode", "submitters", "requests/s", "ns a submit"
    );
    for submitters in [1, 2] {
        for (name, policy, mode) in [
            ("NOOP caller", PolicyKind::Noop, caller),
            ("TO caller", PolicyKind::To, caller),
            ("TO thread", PolicyKind::To, thread),
            ("TO thread, detached, by range", PolicyKind::To, detached),
            ("TO pull, one taker", PolicyKind::To, Mode::Pull),
        ] {
            if !name.contains(&wanted) {
                continue;
            }
            let (rate, cost) = measure(policy, mode, submitters, requests);
            println!("{name:<32} {submitters:>10} {rate:>12.0} {cost:>12.0}");
        }
    }
}

/// Requests per second end to end, and nanoseconds per call of submit.
fn measure(policy: PolicyKind, mode: Mode, submitters: u64, requests: u64) -> (f64, f64) {
    let config = EngineConfig::new(Settings::new(policy));
    match mode {
        Mode::Pull => pull(config, submitters, requests),
        Mode::Callback { dispatch, detached } => {
            let config = EngineConfig {
                dispatch,
                by_range: detached,
                ..config
            };
            callback(config, detached, submitters, requests)
        }
    }
}

fn callback(config: EngineConfig, detached: bool, submitters: u64, requests: u64) -> (f64, f64) {
    let service = Arc::new(Finisher {
        by_range: config.by_range,
        done: AtomicU64::new(0),
    });
    let engine = Engine::start(config, service.clone()).expect("valid settings");
    let began = Instant::now();
    let cost = submit_all(&engine, submitters, requests, detached);
    while service.done.load(Ordering::Acquire) < requests / submitters * submitters {
        std::hint::spin_loop();
    }
    (requests as f64 / began.elapsed().as_secs_f64(), cost)
}

fn pull(config: EngineConfig, submitters: u64, requests: u64) -> (f64, f64) {
    let engine = Engine::start_pull(config).expect("valid settings");
    let began = Instant::now();
    let cost = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = requests / submitters * submitters;
            while left > 0 {
                let batch = engine.take(None).expect("not shut down");
                batch
                    .parts()
                    .iter()
                    .for_each(|p| assert!(engine.finish(p.ticket)));
                left -= batch.parts().len() as u64;
            }
        });
        submit_all(&engine, submitters, requests, false)
    });
    (requests as f64 / began.elapsed().as_secs_f64(), cost)
}

fn submit_all(engine: &Engine, submitters: u64, requests: u64, detached: bool) -> f64 {
    let share = requests / submitters;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for s in 0..submitters {
            scope.spawn(move || {
                for i in s * share..(s + 1) * share {
                    let request =
                        Request::new(RequestId(i), FileId(1), Op::Read, Range::at(i << 12, 4096));
                    match detached {
                        true => engine.submit_detached(request).expect("accepted"),
                        false => engine.submit(request).map(|_| ()).expect("accepted"),
                    }
                }
            });
        }
    });
    began.elapsed().as_nanos() as f64 / share as f64
}
