//! How a file is gone through: in order, in steps, or here and there.
//!
//! Each read or write is compared with the one before it of the same process, file and direction.

use crate::common::Common;
use presagio_core::{Action, Event, IdHashMap};

/// How an access lies to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Step {
    /// There was none before.
    First = 0,
    /// Where the last one ended.
    Consecutive = 1,
    /// As far from the last one's beginning as that was from the one before.
    Strided = 2,
    /// Further on.
    Forward = 3,
    /// Further back.
    Backward = 4,
    /// At the same place again.
    Again = 5,
}

impl Step {
    pub const ALL: [Step; 6] = [
        Step::First,
        Step::Consecutive,
        Step::Strided,
        Step::Forward,
        Step::Backward,
        Step::Again,
    ];
}

/// The last access of a process to a file.
#[derive(Clone, Copy, Debug)]
struct Position {
    offset: u64,
    end: u64,
    stride: i64,
}

/// So many pairs of process and file are followed.
const POSITIONS_MAX: usize = 1 << 20;

/// Where processes are in their files.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    known: IdHashMap<(u32, u32), Position>,
}

impl Positions {
    /// How this access lies to the one before it, and how far from its beginning. `process` and `file` are numbers of ours.
    pub fn step(&mut self, process: u32, file: u32, event: &Event) -> (Step, i64) {
        let is_write = u32::from(event.action == Action::Write);
        let key = (process, file << 1 | is_write);
        let end = event.offset.saturating_add(event.moved());
        let fresh = Position {
            offset: event.offset,
            end,
            stride: 0,
        };
        let Some(last) = self.known.get_mut(&key) else {
            if self.known.len() < POSITIONS_MAX {
                self.known.insert(key, fresh);
            }
            return (Step::First, 0);
        };
        let stride = event.offset.wrapping_sub(last.offset) as i64;
        let step = last.step_to(event.offset, stride);
        *last = Position { stride, ..fresh };
        (step, stride)
    }

    /// How many processes used each file.
    pub fn sharers(&self) -> IdHashMap<u32, u64> {
        let mut both: IdHashMap<(u32, u32), ()> = IdHashMap::default();
        both.extend(
            self.known
                .keys()
                .map(|(process, file)| ((*process, file >> 1), ())),
        );
        let mut sharers = IdHashMap::default();
        for (_, file) in both.keys() {
            *sharers.entry(*file).or_default() += 1;
        }
        sharers
    }
}

impl Position {
    fn step_to(&self, offset: u64, stride: i64) -> Step {
        if offset == self.end && self.end != self.offset {
            Step::Consecutive
        } else if offset == self.offset {
            Step::Again
        } else if stride == self.stride {
            Step::Strided
        } else if offset > self.offset {
            Step::Forward
        } else {
            Step::Backward
        }
    }
}

/// What was done to one file from one place in the program, or sums of that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Habit {
    pub operations: u64,
    pub failed: u64,
    pub bytes: u64,
    pub busy: u64,
    pub steps: [u64; Step::ALL.len()],
    pub sizes: Common,
    pub strides: Common,
}

impl Habit {
    pub fn add(&mut self, event: &Event) {
        self.operations += 1;
        self.failed += u64::from(event.result < 0);
        self.bytes = self.bytes.saturating_add(event.moved());
        self.busy = self.busy.saturating_add(event.duration.0);
        if event.action.is_transfer() {
            self.sizes.add(event.len);
        }
    }

    /// How it lies to the access before.
    pub fn step(&mut self, step: Step, stride: i64) {
        self.steps[step as usize] += 1;
        if matches!(step, Step::Strided | Step::Forward | Step::Backward) {
            self.strides.add(stride as u64);
        }
    }

    pub fn merge(&mut self, other: &Habit) {
        self.operations += other.operations;
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.busy = self.busy.saturating_add(other.busy);
        for (mine, its) in self.steps.iter_mut().zip(other.steps) {
            *mine += its;
        }
        self.sizes.merge(&other.sizes);
        self.strides.merge(&other.strides);
    }

    /// The word for how it goes through the file, if one fits nearly all of it.
    pub fn word(&self) -> &'static str {
        let all: u64 = self.steps.iter().sum();
        let of = |step: Step| self.steps[step as usize];
        // What comes first says nothing.
        let rest = all.saturating_sub(of(Step::First));
        let is_most = |count: u64| count * 10 >= rest * 7;
        if of(Step::First) > rest {
            "single"
        } else if is_most(of(Step::Consecutive)) {
            "consecutive"
        } else if is_most(of(Step::Strided)) {
            "strided"
        } else if is_most(of(Step::Again)) {
            "repeated"
        } else if is_most(of(Step::Consecutive) + of(Step::Strided) + of(Step::Forward)) {
            "forward"
        } else {
            "scattered"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{ContextId, FileId, Layer, Nanos};

    fn read(offset: u64, len: u64) -> Event {
        Event {
            time: Nanos(0),
            duration: Nanos(1),
            process: 0,
            thread: 0,
            file: FileId(1),
            action: Action::Read,
            layer: Layer::Posix,
            context: ContextId::UNKNOWN,
            offset,
            len,
            result: len as i64,
        }
    }

    fn word(accesses: &[(u64, u64)]) -> &'static str {
        let (mut positions, mut habit) = (Positions::default(), Habit::default());
        for (offset, len) in accesses {
            let event = read(*offset, *len);
            habit.add(&event);
            let (step, stride) = positions.step(0, 0, &event);
            habit.step(step, stride);
        }
        habit.word()
    }

    #[test]
    fn ways_through_a_file_have_names() {
        let each = |f: fn(u64) -> u64| -> Vec<(u64, u64)> { (0..20).map(|n| (f(n), 10)).collect() };
        assert_eq!(word(&each(|n| n * 10)), "consecutive");
        assert_eq!(word(&each(|n| n * 100)), "strided");
        assert_eq!(word(&each(|_| 0)), "repeated");
        assert_eq!(word(&each(|n| n * n * 100)), "forward");
        assert_eq!(word(&each(|n| n * n * 7919 % 1009 * 64)), "scattered");
        assert_eq!(word(&[(0, 10)]), "single");
    }

    #[test]
    fn processes_and_directions_do_not_mix() {
        let mut positions = Positions::default();
        assert_eq!(positions.step(1, 1, &read(0, 10)).0, Step::First);
        assert_eq!(positions.step(2, 1, &read(10, 10)).0, Step::First);
        let write = Event {
            action: Action::Write,
            ..read(10, 10)
        };
        assert_eq!(positions.step(1, 1, &write).0, Step::First);
        assert_eq!(positions.step(1, 1, &read(10, 10)).0, Step::Consecutive);
        assert_eq!(positions.sharers().get(&1), Some(&2));
    }
}
