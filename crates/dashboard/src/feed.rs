//! Snapshots for those who watch: at most so many a second, however many watch; and what is new in them for each.

use crate::http::{Line, Response};
use crate::{Service, Snapshot};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often who watches is told.
pub const UPDATE_EVERY: Duration = Duration::from_secs(1);

/// Not more often, whatever happens.
const SPACED: Duration = Duration::from_millis(250);

/// Browsers that may watch at a time.
const STREAMS_MAX: usize = 16;

/// Rings when something happened that a person waits for: a switch, a node that comes or leaves.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened.
    pub fn ring(&self) {
        *self.lock() += 1;
        self.changed.notify_all();
    }

    /// How often it was rung.
    pub fn rung(&self) -> u64 {
        *self.lock()
    }

    /// Waits until it was rung more often than `heard`, at most so long; how often it was rung.
    pub fn wait(&self, heard: u64, at_most: Duration) -> u64 {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), at_most, |rung| *rung == heard);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// See the module's header.
pub(crate) struct Feed {
    service: Arc<dyn Service>,
    latest: Mutex<Option<(Instant, u64, Arc<Snapshot>)>>,
    streams: AtomicUsize,
}

impl Feed {
    pub fn new(service: Arc<dyn Service>) -> Feed {
        Feed {
            service,
            latest: Mutex::default(),
            streams: AtomicUsize::new(0),
        }
    }

    /// How it is now, or was a moment ago if nothing happened since.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let rung = self.service.bell().rung();
        if let Some((at, heard, snapshot)) = &*latest
            && *heard == rung
            && at.elapsed() < SPACED
        {
            return snapshot.clone();
        }
        let snapshot = Arc::new(self.service.snapshot());
        *latest = Some((Instant::now(), rung, snapshot.clone()));
        snapshot
    }

    /// Tells what happens until nobody listens any more.
    pub fn stream(&self, mut line: Line, prepare: impl Fn(&mut Snapshot)) {
        if self.streams.fetch_add(1, SeqCst) >= STREAMS_MAX {
            let full = format!("{STREAMS_MAX} watch already");
            line.answer(&Response::text(503, full));
        } else if line.begin(&Response::of("text/event-stream", "")).is_ok() {
            self.tell(&mut line, prepare);
        }
        self.streams.fetch_sub(1, SeqCst);
    }

    fn tell(&self, line: &mut Line, prepare: impl Fn(&mut Snapshot)) {
        let bell = self.service.bell();
        let mut told = Told::default();
        let mut heard = bell.rung();
        while !line.is_ending() {
            let mut news = told.news(&self.snapshot());
            prepare(&mut news);
            // Numbers and texts can be written.
            let json = serde_json::to_string(&news).unwrap_or_default();
            let event = format!("event: {}\ndata: {json}\n\n", told.name());
            if line.send(event.as_bytes()).is_err() {
                return;
            }
            told.count += 1;
            let sent = Instant::now();
            let rung = bell.wait(heard, UPDATE_EVERY);
            if rung != heard {
                heard = rung;
                std::thread::sleep(SPACED.saturating_sub(sent.elapsed()));
            }
        }
    }
}

/// How far one who watches was told.
#[derive(Default)]
struct Told {
    count: u64,
    at_ms: u64,
    revision: u64,
}

impl Told {
    /// What the next event is called: first all of it, then what is new.
    fn name(&self) -> &'static str {
        match self.count {
            0 => "snapshot",
            _ => "update",
        }
    }

    /// What is new: of samples and decisions those that were not told yet, of the rest everything.
    fn news(&mut self, now: &Snapshot) -> Snapshot {
        let mut news = now.clone();
        for node in &mut news.nodes {
            node.recent.retain(|sample| sample.at_ms > self.at_ms);
        }
        news.decisions.retain(|it| it.revision > self.revision);
        // Samples are dated when they are noted: none comes later that is older than the newest of now.
        let newest = now.nodes.iter().filter_map(|node| node.now);
        self.at_ms = newest.map(|it| it.at_ms).max().unwrap_or(0).max(self.at_ms);
        let revisions = now.decisions.iter().map(|it| it.revision);
        self.revision = revisions.max().unwrap_or(0).max(self.revision);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decision, Node, Sample};

    fn snapshot(samples: &[u64], revisions: &[u64]) -> Snapshot {
        let recent: Vec<Sample> = samples
            .iter()
            .map(|at_ms| Sample {
                at_ms: *at_ms,
                ..Sample::default()
            })
            .collect();
        Snapshot {
            nodes: vec![Node {
                now: recent.last().copied(),
                recent,
                ..Node::default()
            }],
            decisions: revisions
                .iter()
                .map(|revision| Decision {
                    revision: *revision,
                    ..Decision::default()
                })
                .collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn first_all_is_told_then_what_is_new() {
        let mut told = Told::default();
        let all = snapshot(&[1, 2], &[2, 1]);
        assert_eq!(told.news(&all), all);
        let news = told.news(&snapshot(&[1, 2, 3], &[4, 3, 1]));
        assert_eq!(
            news,
            Snapshot {
                nodes: vec![Node {
                    now: Some(Sample {
                        at_ms: 3,
                        ..Sample::default()
                    }),
                    ..snapshot(&[3], &[]).nodes[0].clone()
                }],
                ..snapshot(&[], &[4, 3])
            }
        );
        let nothing = told.news(&snapshot(&[1, 2, 3], &[4, 3, 1]));
        assert!(nothing.nodes[0].recent.is_empty() && nothing.decisions.is_empty());
        assert!(nothing.nodes[0].now.is_some());
    }

    #[test]
    fn a_bell_is_heard_by_who_waits_and_by_who_comes_late() {
        let bell = Arc::new(Bell::default());
        let heard = bell.rung();
        let ringer = bell.clone();
        let thread = std::thread::spawn(move || ringer.ring());
        assert_eq!(bell.wait(heard, Duration::from_secs(60)), heard + 1);
        thread.join().expect("it rings");
        assert_eq!(bell.wait(heard, Duration::from_secs(60)), heard + 1);
        assert_eq!(bell.wait(heard + 1, Duration::from_millis(1)), heard + 1);
    }
}
