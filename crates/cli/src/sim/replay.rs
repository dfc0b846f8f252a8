//! Recordings as work: what each thread of each recorded process did, and how long it thought in between.

use presagio_core::{Action, Event, FileId, Nanos, Op};
use presagio_sim::{Replay, Run, Step};
use presagio_trace::Record;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Recordings by the name that scenarios have for them.
pub type Replays = HashMap<String, Replay>;

/// Reads every recording that one of the runs replays.
pub fn read_all(runs: &[Run], folder: &Path) -> anyhow::Result<Replays> {
    let mut replays = Replays::new();
    let apps = runs.iter().flat_map(|run| &run.scenario.apps);
    for name in apps.filter_map(|app| app.trace.as_ref()) {
        if !replays.contains_key(name) {
            replays.insert(name.clone(), read(&folder.join(name))?);
        }
    }
    Ok(replays)
}

fn read(path: &Path) -> anyhow::Result<Replay> {
    let mut threads: BTreeMap<(u32, u32), Vec<Event>> = BTreeMap::new();
    for record in presagio_trace::open(path)? {
        if let Record::Event(event) = record?
            && event.action.is_transfer()
            && event.moved() > 0
        {
            let thread = (event.process, event.thread);
            threads.entry(thread).or_default().push(event);
        }
    }
    let replay = replay(threads.into_values().collect());
    anyhow::ensure!(
        !replay.processes.is_empty(),
        "{}: nothing was read or written in it; name another recording",
        path.display()
    );
    Ok(replay)
}

fn replay(threads: Vec<Vec<Event>>) -> Replay {
    let begin = threads.iter().flatten().map(|event| event.time).min();
    let mut files: HashMap<FileId, u32> = HashMap::new();
    let mut processes = Vec::new();
    for mut events in threads {
        events.sort_by_key(|event| event.time);
        let mut last = begin.unwrap_or_default();
        let mut steps = Vec::with_capacity(events.len());
        for event in events {
            let number = files.len() as u32;
            steps.push(Step {
                think: event.time - last,
                file: *files.entry(event.file).or_insert(number),
                op: match event.action {
                    Action::Write => Op::Write,
                    _ => Op::Read,
                },
                offset: event.offset,
                len: event.moved(),
            });
            last = last.max(Nanos(event.end().0));
        }
        processes.push(steps);
    }
    Replay {
        files: files.len() as u32,
        processes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{ContextId, Layer};

    fn event(time: u64, file: u64, action: Action) -> Event {
        Event {
            time: Nanos(time),
            duration: Nanos(10),
            process: 0,
            thread: 0,
            file: FileId(file),
            action,
            layer: Layer::Posix,
            context: ContextId::UNKNOWN,
            offset: time,
            len: 4096,
            result: 4096,
        }
    }

    #[test]
    fn pauses_count_from_the_end_of_what_was_before() {
        let first = vec![event(100, 7, Action::Read), event(150, 9, Action::Write)];
        let replay = replay(vec![first, vec![event(130, 9, Action::Read)]]);
        let thinks: Vec<u64> = replay
            .processes
            .iter()
            .flatten()
            .map(|s| s.think.0)
            .collect();
        assert_eq!(thinks, [0, 40, 30]);
        assert_eq!(replay.files, 2);
        assert_eq!(replay.processes[0][1].file, replay.processes[1][0].file);
    }
}
