//! Second step of the loop: whose operation is it, on which file, from which call stack? It is counted, written to the
//! trace, shown to the model of its process, and told to the mind.

use super::batch::{Item, What};
use super::files::Open;
use super::foretell::Coming;
use super::looks::News;
use super::skim::Skimmed;
use super::{Manager, SUSPICIOUS_SWEEPS};
use crate::plan::{Access, FileNumber};
use presagio_arena::{Operation, Origin};
use presagio_core::{Action, Event, FileId, IdHashMap, Layer, Nanos, Op, Range};
use presagio_trace::{Process as TraceProcess, Record};

impl Manager {
    pub(super) fn write_contexts(&mut self) {
        let fresh = self.contexts.take_fresh();
        if let Some((_, recorder)) = &mut self.recorder {
            fresh.iter().for_each(|record| recorder.write(record));
        }
    }

    /// Understands one item, and passes it on to all that want to know.
    pub(super) fn take(&mut self, item: &Item, allowance: u32, seen: &mut IdHashMap<u32, u32>) {
        let process = self.process(&item.origin);
        let (operation, skimmed) = match &item.what {
            What::Gap(lost) => return self.lose(process, *lost),
            What::Operation(operation) => (operation, false),
            What::Skimmed(operation) => (operation, true),
        };
        let file = self.file(operation, process);
        let event = self.event(item, operation, process, file);
        self.files.count(file, &event);
        self.record(&event, file);
        if let Some(known) = self.processes.get_mut(process) {
            let (action, time, result) = (event.action, event.duration.0, event.result);
            known.totals.count(action, time, result);
        }
        if skimmed {
            self.skimmed += 1;
        } else {
            self.learn(&event, operation.context, allowance, seen);
        }
        if !skimmed {
            self.tell(&event, file, operation);
        }
        if event.action == Action::Close {
            self.close(operation.file, operation.generation, event.end());
        }
    }

    /// Counts what was skimmed.
    pub(super) fn skim(&mut self, sum: &Skimmed) {
        let process = self.process(&sum.origin);
        let file = self.file(&sum.operation, process);
        self.files.count_many(file, &sum.totals, sum.end);
        if let Some(known) = self.processes.get_mut(process) {
            known.totals.add(&sum.totals);
        }
        self.skimmed += sum.totals.all();
    }

    /// From here on the model of a thread's process misses operations that it has seen up to now, or sees others again.
    pub(super) fn miss(&mut self, origin: &Origin) {
        let process = self.process(origin);
        if let Some(known) = self.processes.get_mut(process) {
            known.is_behind = true;
        }
    }

    fn process(&mut self, origin: &Origin) -> u32 {
        let (number, is_new) = self.processes.find(origin, &self.arena);
        if is_new {
            self.rings.began(origin.pid, self.now());
            self.introduce(number);
        }
        number
    }

    fn file(&mut self, operation: &Operation, process: u32) -> FileNumber {
        let (arena, at) = (&self.arena, (operation.file, operation.generation));
        let entry = || arena.file(at.0, at.1);
        self.files.find(operation, process, entry)
    }

    /// Lets the model of the process see the operation, as far as there is time for that.
    fn learn(&mut self, event: &Event, stack: u64, allowance: u32, seen: &mut IdHashMap<u32, u32>) {
        let Some(known) = self.processes.get_mut(event.process) else {
            return;
        };
        let seen = seen.entry(event.process).or_insert(0);
        *seen += 1;
        if *seen <= allowance {
            let aids = (&self.arena, &mut self.models);
            let is_hurried = allowance < u32::MAX;
            self.processes.learn(event, stack, is_hurried, aids);
        } else {
            known.is_behind = true;
            self.unlearned += 1;
        }
    }

    fn event(
        &mut self,
        item: &Item,
        operation: &Operation,
        process: u32,
        file: FileNumber,
    ) -> Event {
        Event {
            time: Nanos(operation.start.saturating_sub(self.began)),
            duration: Nanos(operation.duration),
            process,
            thread: item.origin.tid,
            file: FileId(file.0.into()),
            action: operation.action,
            layer: Layer::Posix,
            context: self.contexts.number(operation.context),
            offset: operation.offset,
            len: operation.len,
            result: operation.result,
        }
    }

    /// Writes who a process is.
    fn introduce(&mut self, number: u32) {
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        if let Some((_, recorder)) = &mut self.recorder {
            recorder.write(&Record::Process(TraceProcess {
                id: number,
                pid: Some(process.pid()),
                rank: process.rank(),
                host: self.host.clone(),
                command: Some(process.command.clone()),
                start: Some(self.wall),
            }));
        }
    }

    fn lose(&mut self, process: u32, lost: u64) {
        self.lost = self.lost.saturating_add(lost);
        self.suspicious = SUSPICIOUS_SWEEPS;
        if let Some(known) = self.processes.get_mut(process) {
            known.is_behind = true;
        }
        if let Some((_, recorder)) = &mut self.recorder {
            recorder.write(&Record::Gap { process, lost });
        }
    }

    fn record(&mut self, event: &Event, number: FileNumber) {
        let Some((_, recorder)) = &mut self.recorder else {
            return;
        };
        if let Some(file) = self.files.get_mut(number)
            && !std::mem::replace(&mut file.traced, true)
        {
            recorder.write(&Record::File {
                id: event.file,
                name: file.path.clone(),
            });
        }
        recorder.write(&Record::Event(*event));
    }

    /// Tells the mind about a transfer, and before the first one that the file is open.
    fn tell(&mut self, event: &Event, number: FileNumber, operation: &Operation) {
        if !event.action.is_transfer() || event.moved() == 0 {
            return;
        }
        let range = Range::at(event.offset, event.moved());
        let write = event.action == Action::Write;
        let Some(file) = self.files.get_mut(number) else {
            return;
        };
        if file.forwarded.is_some() {
            return self.tell_forwarded(event, number);
        }
        let place = (operation.file, operation.generation);
        let open = file.opens.iter().find(|open| is_at(open, place)).copied();
        // What others load is not what it gets, and nothing that we could load would be.
        if open.is_some_and(|open| open.direct) {
            file.passed_by = true;
            return;
        }
        if !write {
            file.gain.read(range);
        }
        let Some(open) = open else {
            return;
        };
        // What could not be told at the first access may be at the next.
        if !open.told && !self.begin_telling(number, open, event.time) {
            return;
        }
        self.tell_news(News::Accessed(Access {
            file: number,
            by: open.holder(),
            time: event.time,
            duration: event.duration,
            range,
            write,
        }));
    }

    /// Nothing is to be done here about a file that an I/O node serves.
    fn tell_forwarded(&mut self, event: &Event, file: FileNumber) {
        let op = if event.action == Action::Write {
            Op::Write
        } else {
            Op::Read
        };
        if let Some(foretelling) = &mut self.foretelling {
            let range = Range::at(event.offset, event.len);
            foretelling.happened(event.process, &Coming { file, op, range });
        }
    }

    /// From here on the mind is told what happens to an open file.
    fn begin_telling(&mut self, number: FileNumber, open: Open, time: Nanos) -> bool {
        let is_told = self.tell_opened(number, open, time);
        if let Some(open) = self.files.open_mut(number, open.number) {
            open.told = is_told;
        }
        is_told
    }

    pub(super) fn close(&mut self, index: u32, generation: u32, now: Nanos) {
        let Some((number, open)) = self.files.close(index, generation) else {
            return;
        };
        if open.told {
            self.tell_news(News::Closed(number, open.holder(), now));
        }
        let is_last = self.files.get(number).is_none_or(|f| f.opens.is_empty());
        if is_last {
            self.workers.closed(number);
        }
    }
}

fn is_at(open: &Open, place: (u32, u32)) -> bool {
    (open.index, open.generation) == place
}
