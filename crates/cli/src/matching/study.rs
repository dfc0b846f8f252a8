//! Recordings go through a knowledge base, period by period.

use crate::trace::input::{self, Reading};
use presagio_core::{Action, Event, Layer, Nanos, Op, Range};
use presagio_pattern::{Judge, KnowledgeBase, PatternId, Recorder, Settings, Tally, Verdict};
use presagio_trace::Record;
use presagio_trace::sorted::{Sorted, Spill};
use std::collections::BTreeMap;
use std::path::Path;

/// What one way of matching found.
pub struct Study {
    pub name: &'static str,
    pub periods: Vec<Period>,
    /// By majority operation.
    pub tallies: [Tally; 2],
    settings: Settings,
    recompare: bool,
    /// What each place knows. The places of all recordings are numbered alike.
    places: BTreeMap<u32, Knowing>,
    /// What is under way in the current recording.
    under_way: BTreeMap<u32, UnderWay>,
    /// When the current recording began.
    begin: Option<Nanos>,
}

/// What was found about a period.
pub struct Period {
    pub trace: String,
    pub place: u32,
    /// Its number within the recording.
    pub number: u64,
    pub requests: [u32; 2],
    pub files: u32,
    pub id: PatternId,
    pub score: Option<f64>,
    pub compared: u32,
    pub label: Option<String>,
    /// The label of the recording that the matched pattern came from.
    pub matched_label: Option<String>,
    pub verdict: Option<Verdict>,
}

struct Knowing {
    base: KnowledgeBase,
    judge: Judge<String>,
}

struct UnderWay {
    recorder: Recorder,
    number: u64,
}

/// Gives a recording to all studies. Whether all of it could be read.
pub fn read(
    path: &Path,
    from: &Reading,
    label: Option<&str>,
    studies: &mut [Study],
) -> anyhow::Result<bool> {
    let bar = input::bar_for(&[path.to_owned()]);
    let source = from.open(path, &bar)?;
    let mut sorted = Sorted::new(source, Spill::default());
    let trace = path.display().to_string();
    for record in &mut sorted {
        if let Record::Event(event) = record.map_err(|error| from.explain(error))? {
            for study in studies.iter_mut() {
                study.observe(&trace, label, &event);
            }
        }
    }
    bar.finish_and_clear();
    for study in studies.iter_mut() {
        study.end_of(&trace, label);
    }
    Ok(from.warn(path, &sorted))
}

impl Study {
    pub fn new(name: &'static str, settings: Settings, recompare: bool) -> Study {
        Study {
            name,
            periods: Vec::new(),
            tallies: Default::default(),
            settings,
            recompare,
            places: BTreeMap::new(),
            under_way: BTreeMap::new(),
            begin: None,
        }
    }

    /// How many patterns are known in all places.
    pub fn known(&self) -> usize {
        self.places.values().map(|place| place.base.len()).sum()
    }

    fn observe(&mut self, trace: &str, label: Option<&str>, event: &Event) {
        let op = match event.action {
            Action::Read => Op::Read,
            Action::Write => Op::Write,
            _ => return,
        };
        // What servers and I/O nodes recorded has one process for each of them.
        let place = match event.layer {
            Layer::Server => event.process,
            Layer::Posix | Layer::MpiIo => 0,
        };
        let begin = *self.begin.get_or_insert(event.time);
        let number = (event.time - begin).0 / self.settings.period.0.max(1);
        let under_way = self.under_way.entry(place).or_insert_with(|| UnderWay {
            recorder: Recorder::new(&self.settings),
            number,
        });
        if under_way.number != number {
            self.end_period(trace, label, place);
        }
        if let Some(under_way) = self.under_way.get_mut(&place) {
            under_way.number = number;
            let range = Range::at(event.offset, event.len);
            under_way.recorder.observe(event.file, op, range);
        }
    }

    /// A recording is over: so are its periods, and what comes next does not follow them.
    fn end_of(&mut self, trace: &str, label: Option<&str>) {
        let places: Vec<u32> = self.under_way.keys().copied().collect();
        for place in places {
            self.end_period(trace, label, place);
        }
        self.under_way.clear();
        self.begin = None;
        for place in self.places.values_mut() {
            place.base.lose_track();
        }
    }

    fn end_period(&mut self, trace: &str, label: Option<&str>, place: u32) {
        let Some(under_way) = self.under_way.get_mut(&place) else {
            return;
        };
        let Some(pattern) = under_way.recorder.end() else {
            return;
        };
        let number = under_way.number;
        let knowing = self.places.entry(place).or_insert_with(|| Knowing {
            base: KnowledgeBase::new(self.settings.clone()),
            judge: Judge::new(),
        });
        let requests = Op::ALL.map(|op| pattern.requests(op));
        let (files, majority) = (pattern.files(), pattern.majority());
        let decision = knowing.base.decide(pattern);
        let label = label.map(str::to_owned);
        let verdict = label
            .as_ref()
            .map(|label| knowing.judge.judge(&decision, label));
        if let Some(verdict) = verdict {
            self.tallies[majority.index()].count(verdict);
        }
        let matched = decision
            .score
            .and(knowing.judge.label(decision.id).cloned());
        self.periods.push(Period {
            trace: trace.to_owned(),
            place,
            number,
            requests,
            files,
            id: decision.id,
            score: decision.score,
            compared: decision.compared,
            label,
            matched_label: matched,
            verdict,
        });
        while self.recompare && knowing.base.may_recompare() {
            let merged = knowing.base.recompare(64);
            knowing.judge.merge(&merged);
        }
    }
}
