//! Third and fourth step of the loop: what models expect is told to the mind, and what the mind decides is done: hints go to
//! the workers, notes to the programs. What came of it is told to the mind again.

use super::Manager;
use super::workers::{Done, Whereabouts, Work, Workers};
use crate::config::Mode as FileMode;
use crate::hints::Device;
use crate::plan::{Expected, FileNumber, Hint, LoadDone, Opened, Reason};
use presagio_arena::{Advice, Note};
use presagio_core::{Action, Nanos, Range};
use presagio_predict::PredictedFile;
use std::sync::Arc;

/// How many operations ahead models are read. However late they are due: a program that computes for minutes finds what
/// it reads then, and the device has nothing else to do meanwhile.
const AHEAD_MAX: usize = 128;
/// Processes whose models are read in one look.
const ASKED_MAX: usize = 16;
/// What a hint costs before the first byte comes: what is due sooner is left out.
const HINT_COST: Nanos = Nanos::from_micros(300);

impl Manager {
    pub(super) fn hear_workers(&mut self) {
        let results = self.workers.as_ref().map(Workers::results);
        for done in results.unwrap_or_default() {
            match done {
                Done::Loaded(done) => self.loaded(&done),
                Done::Opened {
                    path,
                    key,
                    size,
                    device,
                    file,
                } => {
                    let number = self.files.ahead(key, &path, size);
                    let time = self.now();
                    if let Some(workers) = &self.workers {
                        workers.keep(number, file, time);
                    }
                    self.devices.insert(key.device, device.clone());
                    self.mind.opened(&Opened {
                        file: number,
                        process: None,
                        path: &path,
                        size,
                        writes: false,
                        device: &device,
                        time,
                    });
                }
            }
        }
    }

    fn loaded(&mut self, done: &LoadDone) {
        let fresh = done.there.saturating_sub(done.already);
        let loads = self.loads.entry(done.reason).or_default();
        loads.already += done.already;
        loads.loaded += fresh;
        if let Some(file) = self.files.get_mut(done.file) {
            file.gain.load(done.range, fresh);
        }
        self.mind.loaded(done);
    }

    /// Reads the models of processes that did something: what is due too soon is left out, since no hint would be in
    /// time.
    pub(super) fn expect(&mut self) {
        let earliest = self.now() + HINT_COST;
        for number in self.processes.touched(ASKED_MAX) {
            let Some(process) = self.processes.get_mut(number) else {
                continue;
            };
            let Some(cursor) = process.model.best() else {
                continue;
            };
            let last_end = process.last_end;
            let expected: Vec<Expected> = cursor
                .take(AHEAD_MAX)
                .map(|predicted| (last_end + predicted.after, predicted))
                .filter(|(time, p)| p.action == Action::Read && p.len > 0 && *time >= earliest)
                .filter_map(|(time, predicted)| {
                    let PredictedFile::Known(file) = predicted.file else {
                        return None;
                    };
                    Some(Expected {
                        file: FileNumber(u32::try_from(file.0).ok()?),
                        range: Range::at(predicted.offset, predicted.len),
                        time,
                        confidence: predicted.confidence,
                    })
                })
                .collect();
            self.mind.expected(number, &expected);
        }
    }

    pub(super) fn plan(&mut self) {
        let now = self.now();
        let mut hints = std::mem::take(&mut self.hints);
        self.mind.plan(now, &mut hints);
        // To let go what was written gains nothing where there is room for it, and it may be read after all.
        if hints.iter().any(is_of_written) && !(self.is_short)() {
            hints.retain(|hint| !is_of_written(hint));
        }
        for hint in hints.drain(..) {
            self.carry_out(hint);
        }
        self.hints = hints;
    }

    fn carry_out(&mut self, hint: Hint) {
        let work = match hint {
            Hint::Mode { file, mode, .. } => return self.leave_notes(file, mode),
            Hint::OpenAhead { path } => Work::OpenAhead(path),
            Hint::Load {
                file,
                range,
                reason,
            } => {
                let loads = self.loads.entry(reason).or_default();
                loads.hints += 1;
                loads.asked += range.len();
                let Some(at) = self.whereabouts(file) else {
                    return;
                };
                Work::Load(file, range, reason, at)
            }
            Hint::Release { file, range, .. } => {
                let Some(at) = self.whereabouts(file) else {
                    return;
                };
                Work::Release(file, range, at)
            }
        };
        let refused = self.workers.as_mut().and_then(|w| w.submit(work));
        if let Some(done) = refused {
            self.loaded(&done);
        }
    }

    /// Mode advice acts on the open file itself: only the program can give it.
    fn leave_notes(&mut self, number: FileNumber, mode: FileMode) {
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
        for open in self.files.get(number).map_or(&[][..], |f| &f.opens) {
            self.arena.leave_note(open.index, open.generation, note);
        }
    }

    /// The device of a file. One file of each is opened for a look at it.
    pub(super) fn device(&mut self, number: FileNumber) -> Option<Arc<Device>> {
        let at = self.whereabouts(number)?;
        if let Some(device) = self.devices.get(&at.key.device) {
            return Some(device.clone());
        }
        let device = self.workers.as_ref()?.device(&at)?;
        self.devices.insert(at.key.device, device.clone());
        Some(device)
    }

    fn whereabouts(&self, number: FileNumber) -> Option<Whereabouts> {
        let file = self.files.get(number)?;
        let open = file.opens.first();
        Some(Whereabouts {
            key: file.key,
            descriptor: open.map(|open| (open.pid, open.descriptor)),
            path: file.path().to_owned(),
        })
    }
}

fn is_of_written(hint: &Hint) -> bool {
    let written = Reason::Written;
    matches!(hint, Hint::Release { reason, .. } if *reason == written)
}
