//! Third and fourth step of the loop: what models expect is told to the mind, and what the mind decides is done: hints go to
//! the workers, notes to the programs. What came of it is told to the mind again.

use super::Manager;
use super::files::Files;
use super::foretell::{self, Coming, Soon};
use super::workers::{Done, OpenedAhead, Whereabouts, Work};
use crate::config::Mode as FileMode;
use crate::plan::{Expected, FileNumber, Hint, LoadDone, OpenNumber, Opened};
use presagio_arena::{Advice, Note};
use presagio_core::{Action, Nanos, Op, Range};
use presagio_predict::{Cursor, Predicted, PredictedFile};
use std::sync::Arc;
use std::time::Instant;

/// How many operations ahead models are read. However late they are due: a program that computes for minutes finds what
/// it reads then, and the device has nothing else to do meanwhile.
const AHEAD_MAX: usize = 128;
/// Processes whose models are read in one look.
const ASKED_MAX: usize = 16;
/// What a hint costs before the first byte comes: what is due sooner is left out.
const HINT_COST: Nanos = Nanos::from_micros(300);
/// From here on a request is foretold.
const LIKELY: f64 = 0.5;

impl Manager {
    pub(super) fn hear_workers(&mut self) {
        let results = self.workers.results();
        results.into_iter().for_each(|done| self.hear(done));
    }

    pub(super) fn hear(&mut self, done: Done) {
        match done {
            Done::Loaded(done) => self.loaded(&done),
            Done::Looked { device, found } => self.looked(device, found),
            Done::Opened(ahead) => self.opened_ahead(ahead),
        }
    }

    fn opened_ahead(&mut self, ahead: OpenedAhead) {
        let OpenedAhead {
            path,
            key,
            size,
            file,
        } = ahead;
        let number = self.files.ahead(key, &path, size);
        let (time, device) = (self.now(), file.target().device.clone());
        self.workers.keep(number, file, time);
        self.looked(key.device, Some(device.clone()));
        self.mind.opened(&Opened {
            file: number,
            by: None,
            path: &path,
            size,
            writes: false,
            device: &device,
            time,
        });
    }

    fn loaded(&mut self, done: &LoadDone) {
        let already = done.already.unwrap_or(0);
        let fresh = done.there.saturating_sub(already);
        let loads = self.loads.entry(done.reason).or_default();
        loads.already += already;
        loads.loaded += fresh;
        if let Some(file) = self.files.get_mut(done.file) {
            file.gain.load(done.range, fresh);
        }
        self.mind.loaded(done);
    }

    /// Reads the models of processes that did something.
    pub(super) fn expect(&mut self) {
        let now = self.now();
        for number in self.processes.touched(ASKED_MAX) {
            let Some(process) = self.processes.get_mut(number) else {
                continue;
            };
            let Some(cursor) = process.model.best() else {
                continue;
            };
            let (expected, soon) = read(cursor, process.last_end, now, &self.files);
            self.mind.expected(number, &expected);
            if let Some(foretelling) = &mut self.foretelling {
                let files = &self.files;
                foretelling.expects(number, &soon, |file| forwarded(files, file));
            }
        }
    }

    /// Tells the mind how much memory there is: that changes while programs run.
    pub(super) fn mind_memory(&mut self) {
        self.memory_asked = Some(Instant::now());
        let now = self.now();
        self.mind.memory((self.memory)(), now);
    }

    pub(super) fn plan(&mut self) {
        let now = self.now();
        let mut hints = std::mem::take(&mut self.hints);
        self.mind.plan(now, &mut hints);
        for hint in hints.drain(..) {
            self.carry_out(hint);
        }
        self.hints = hints;
    }

    fn carry_out(&mut self, hint: Hint) {
        let work = match hint {
            Hint::Mode {
                file, open, mode, ..
            } => return self.leave_note(file, open, mode),
            Hint::OpenAhead { path } => {
                let device = self.files.device_beside(&path);
                Work::OpenAhead { path, device }
            }
            Hint::Load {
                file,
                range,
                reason,
            } => {
                let loads = self.loads.entry(reason).or_default();
                loads.hints += 1;
                loads.asked += range.len();
                let Some(at) = whereabouts(&self.files, file) else {
                    return;
                };
                Work::Load(file, range, reason, at)
            }
            Hint::Release { file, range, .. } => {
                let Some(at) = whereabouts(&self.files, file) else {
                    return;
                };
                Work::Release(file, range, at)
            }
        };
        if self.is_over && !matches!(work, Work::Release(..)) {
            // It would be loaded for nobody.
            return;
        }
        let refused = self.workers.submit(work).err();
        if let Some(Some(done)) = refused {
            self.loaded(&done);
        }
    }

    /// Mode advice acts on the open file itself: only the program can give it.
    fn leave_note(&mut self, number: FileNumber, open: OpenNumber, mode: FileMode) {
        let opens = self.files.get(number).map_or(&[][..], |f| &f.opens);
        let Some(open) = opens.iter().find(|o| o.number == open) else {
            return;
        };
        self.notes_left = self.notes_left.wrapping_add(1);
        let note = Note {
            advice: match mode {
                FileMode::Normal => Advice::Normal,
                FileMode::Random => Advice::Random,
                FileMode::Sequential => Advice::Sequential,
            },
            region: 0,
            serial: self.notes_left,
        };
        self.arena.leave_note(open.index, open.generation, note);
    }
}

/// Where a file can be found.
pub(super) fn whereabouts(files: &Files, number: FileNumber) -> Option<Whereabouts> {
    let file = files.get(number)?;
    let open = file.opens.first();
    Some(Whereabouts {
        key: file.key,
        descriptor: open.map(|open| (open.pid, open.descriptor)),
        path: file.path().to_owned(),
    })
}

/// What a model expects: reads of local files, except what is due too soon, since no hint would be in time; and what will be
/// asked of I/O nodes, in its order, as far as it is likely.
fn read(
    mut cursor: Cursor<'_>,
    last_end: Nanos,
    now: Nanos,
    files: &Files,
) -> (Vec<Expected>, Vec<Soon>) {
    let (mut expected, mut soon) = (Vec::new(), Vec::new());
    let mut is_likely = !files.prefixes.is_empty();
    for _ in 0..AHEAD_MAX {
        let Some(predicted) = cursor.next() else {
            break;
        };
        is_likely &= predicted.confidence >= LIKELY;
        let Some(file) = transferred(&predicted) else {
            continue;
        };
        let (time, range) = (
            last_end + predicted.after,
            Range::at(predicted.offset, predicted.len),
        );
        let is_forwarded = files.get(file).is_some_and(|f| f.forwarded.is_some());
        if is_forwarded {
            let op = match predicted.action {
                Action::Write => Op::Write,
                _ => Op::Read,
            };
            if is_likely && soon.len() < foretell::AHEAD && range.len() <= foretell::LENGTH_MAX {
                soon.push(Soon {
                    coming: Coming { file, op, range },
                    begin: time.since(now),
                    end: (last_end + cursor.end()).since(now),
                });
            }
        } else if predicted.action == Action::Read && time >= now + HINT_COST {
            expected.push(Expected {
                file,
                range,
                time,
                confidence: predicted.confidence,
            });
        }
    }
    (expected, soon)
}

/// The file that bytes will be read from or written to.
fn transferred(predicted: &Predicted) -> Option<FileNumber> {
    let PredictedFile::Known(file) = predicted.file else {
        return None;
    };
    let moves = predicted.action.is_transfer() && predicted.len > 0;
    moves.then_some(FileNumber(u32::try_from(file.0).ok()?))
}

/// The prefix, inode and path below the prefix of a forwarded file.
fn forwarded(files: &Files, number: FileNumber) -> Option<(usize, u64, Arc<[u8]>)> {
    let file = files.get(number)?;
    let prefix = file.forwarded?;
    let below = foretell::below(&file.path, files.prefixes.get(prefix)?)?;
    Some((prefix, file.key.inode, below.into()))
}
