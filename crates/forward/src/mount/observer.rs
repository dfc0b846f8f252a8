//! What the reads and writes of an open file teach, and what of it is foretold to the node.
//!
//! Each open file has a model of its own, once it has been used a few times: whoever opened it is most often one program.
//! A node that gets the requests of several programs then knows which of them belong together. It all happens after
//! the program has its answer.

use crate::ahead::Ahead;
use crate::file::File;
use crate::remote::{Foreseen, Remote};
use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos, Op, Range};
use presagio_predict::Model;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A file that is used less often teaches nothing.
const USED_MIN: u32 = 8;
/// Models at the same time, of some hundred kilobytes each at most.
const MODELS_MAX: usize = 1024;
/// Operations of one model before it is made anew: it would grow for ever where nothing repeats.
const OBSERVED_MAX: u64 = 1 << 16;
/// A larger request goes to a node in several pieces, and gains nothing by company.
const LENGTH_MAX: u64 = 1 << 20;
/// From here on a request is foretold.
const LIKELY: f64 = 0.5;

/// What all open files share.
pub(super) struct Observers {
    remote: Remote,
    since: Instant,
    models: AtomicUsize,
}

impl Observers {
    pub(super) fn new(remote: Remote) -> Observers {
        Observers {
            remote,
            since: Instant::now(),
            models: AtomicUsize::new(0),
        }
    }
}

/// What is known of one open file.
#[derive(Default)]
pub(super) struct Observer(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    used: u32,
    model: Option<Box<Counted>>,
    ahead: Ahead<(Op, Range)>,
}

impl Observer {
    /// Bytes were read or written. Of several at the same moment, one is seen.
    pub(super) fn saw(
        &self,
        all: &Arc<Observers>,
        file: &File,
        op: Op,
        range: Range,
        moved: usize,
        began: Instant,
    ) {
        let Ok(mut seen) = self.0.try_lock() else {
            return;
        };
        seen.used = seen.used.saturating_add(1);
        if seen.used < USED_MIN || range.is_empty() || !seen.has_model(all) {
            return;
        }
        let now = Instant::now();
        let event = event(all, op, range, moved, (began, now));
        let was_expected = seen.ahead.happened(&(op, range)).is_some();
        if let Some(counted) = &mut seen.model {
            counted.model.observe(&event);
        }
        if !was_expected || seen.ahead.is_low() {
            seen.foretell(&all.remote, file);
        }
    }
}

/// A model, and its place among all that there may be.
struct Counted {
    model: Model,
    all: Arc<Observers>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.models.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seen {
    /// Makes a model if there is none, and may be one.
    fn has_model(&mut self, all: &Arc<Observers>) -> bool {
        if let Some(counted) = &mut self.model {
            if counted.model.observed() >= OBSERVED_MAX {
                counted.model = Model::new();
            }
            return true;
        }
        if all.models.load(Ordering::Relaxed) >= MODELS_MAX {
            return false;
        }
        all.models.fetch_add(1, Ordering::Relaxed);
        self.model = Some(Box::new(Counted {
            model: Model::new(),
            all: all.clone(),
        }));
        true
    }

    /// Asks the model what comes, and tells the node what it has not been told.
    fn foretell(&mut self, remote: &Remote, file: &File) {
        let Some(mut cursor) = self.model.as_ref().and_then(|it| it.model.best()) else {
            return;
        };
        let (mut coming, mut afters, mut end) = (Vec::new(), Vec::new(), Nanos::ZERO);
        while coming.len() < Ahead::<(Op, Range)>::MAX
            && let Some(predicted) = cursor.next()
            && predicted.confidence >= LIKELY
            && (1..=LENGTH_MAX).contains(&predicted.len)
        {
            let op = match predicted.action {
                Action::Write => Op::Write,
                _ => Op::Read,
            };
            coming.push((op, Range::at(predicted.offset, predicted.len)));
            afters.push(predicted.after.since(end));
            end = cursor.end();
        }
        let Some(from) = self.ahead.renew(&coming) else {
            return;
        };
        let foreseen: Vec<Foreseen<'_>> = std::iter::zip(&coming[from..], &afters[from..])
            .map(|((op, range), after)| Foreseen {
                file: Ok(file),
                op: *op,
                range: *range,
                after: *after,
            })
            .collect();
        remote.foresee(&foreseen);
    }
}

fn event(
    all: &Observers,
    op: Op,
    range: Range,
    moved: usize,
    (began, ended): (Instant, Instant),
) -> Event {
    Event {
        time: Nanos::from(began.saturating_duration_since(all.since)),
        duration: Nanos::from(ended.saturating_duration_since(began)),
        process: 0,
        thread: 0,
        file: FileId(1),
        action: match op {
            Op::Read => Action::Read,
            Op::Write => Action::Write,
        },
        layer: Layer::Posix,
        context: ContextId(0),
        offset: range.start(),
        len: range.len(),
        result: moved as i64,
    }
}
