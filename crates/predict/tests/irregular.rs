//! Streams that are regular in part: what can be known of them is, and confidences stay honest.

use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_predict::apps::{self, Random};
use presagio_predict::score::{Options, Score};
use presagio_predict::{Model, Predicted};
use std::collections::VecDeque;

fn operation(number: u64, context: u32, action: Action, file: u64, offset: u64) -> Event {
    let len = if action.is_transfer() { 4096 } else { 0 };
    Event {
        time: Nanos(number * 1000),
        duration: Nanos(100),
        process: 0,
        thread: 0,
        file: FileId(file),
        action,
        layer: Layer::Posix,
        context: ContextId(context),
        offset,
        len,
        result: len as i64,
    }
}

fn score(events: &[Event]) -> Score {
    let mut score = Score::new(Options {
        operations: Some(events.len() as u64),
        ..Options::default()
    });
    events.iter().for_each(|e| score.observe(e));
    score
}

/// One context reads on, and now and then somewhere else: `jumps` times in a hundred.
fn reads_with_jumps(count: u64, jumps: u64) -> Vec<Event> {
    let mut random = Random(5);
    let mut offset = 0;
    let read = |number| {
        if random.percent(jumps) {
            offset = random.below(1 << 30);
        }
        offset += 4096;
        operation(number, 1, Action::Read, 1, offset - 4096)
    };
    (0..count).map(read).collect()
}

#[test]
fn jumps_do_not_spoil_what_is_consecutive() {
    for (jumps, least) in [(1, 0.97), (10, 0.85), (40, 0.5)] {
        let offsets = score(&reads_with_jumps(5000, jumps)).tally().offsets();
        assert!(offsets > least, "{jumps} % jumps: {offsets}");
    }
}

#[test]
fn one_context_that_mostly_stays_with_its_file_is_predicted_to() {
    let mut random = Random(7);
    let mut file = 1;
    let mut ends = [0; 61];
    let read = |number| {
        if random.percent(20) {
            file = 1 + random.below(60);
        }
        ends[file as usize] += 4096;
        let offset = ends[file as usize] - 4096;
        operation(number, 1, Action::Read, file, offset)
    };
    let events: Vec<Event> = (0..5000).map(read).collect();
    let files = score(&events).tally().files();
    assert!(files > 0.75, "{files}");
}

#[test]
fn after_a_time_without_order_the_order_is_learned_again() {
    let mut events = reads_with_jumps(2000, 100);
    let strides = [4096, 4096, 40_960, 0];
    let mut offset = 0;
    for number in 0..6000u64 {
        offset += strides[number as usize % 4] + 4096;
        events.push(operation(2000 + number, 1, Action::Read, 1, offset));
    }
    let mut model = Model::new();
    let mut right = 0;
    for (number, event) in events.iter().enumerate() {
        let next = model.best().and_then(|mut cursor| cursor.next());
        if number >= 7000 {
            right += u32::from(next.is_some_and(|p| p.offset == event.offset));
        }
        model.observe(event);
    }
    assert!(right > 950, "{right} of 1000");
}

/// A new file in each iteration, with so many writes.
fn new_files(iterations: u64, writes: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for file in 1..=iterations {
        let number = |events: &Vec<Event>| events.len() as u64;
        events.push(operation(number(&events), 1, Action::Open, file, 0));
        for write in 0..writes {
            let offset = write * 4096;
            events.push(operation(number(&events), 2, Action::Write, file, offset));
        }
        events.push(operation(number(&events), 3, Action::Close, file, 0));
    }
    events
}

#[test]
fn files_that_are_yet_to_be_opened_are_said_as_surely_as_they_come() {
    for writes in [5, 11, 30] {
        let score = score(&new_files(6000 / writes, writes));
        let ahead = &score.tally().ahead;
        assert!(ahead.error() < 0.05, "{writes} writes: {ahead:?}");
    }
}

/// What is said of operations 16 ahead, less what comes true, in streams that are cut into pieces of this length: each
/// has a model that begins with nothing.
fn too_sure_in_pieces(events: &[Event], length: usize) -> f64 {
    let every = (events.len() / length / 60).max(1);
    let (mut tries, mut said, mut true_) = (0, 0.0, 0);
    for piece in events.chunks_exact(length).step_by(every) {
        for (_, bin) in score(piece).tally().ahead.bins() {
            tries += bin.tries;
            said += bin.said;
            true_ += bin.came_true;
        }
    }
    (said - true_ as f64) / tries as f64
}

/// Some programs are easier at their beginning than others; one cannot know which before anything was judged.
#[test]
fn programs_that_have_just_begun_are_not_said_to_be_known_far_ahead() {
    for (length, most) in [(64, 0.05), (256, 0.03)] {
        let mut by_program = Vec::new();
        for (name, events) in apps::all() {
            by_program.push((name, too_sure_in_pieces(&events, length)));
            let bare = apps::without_stacks(&events);
            by_program.push((name, too_sure_in_pieces(&bare, length)));
        }
        let sum: f64 = by_program.iter().map(|p| p.1).sum();
        let mean = sum / by_program.len() as f64;
        assert!(mean.abs() < most, "{length}: {mean} of {by_program:?}");
    }
}

#[test]
fn what_was_expected_before_a_gap_is_not_held_against_what_comes_after_it() {
    // Each write has its own call stack: one look shows where we are.
    let mut events = new_files(2000, 11);
    for event in events.iter_mut().filter(|e| e.action == Action::Write) {
        event.context.0 += 100 + (event.offset / 4096) as u32;
    }
    let mut random = Random(3);
    let mut model = Model::new();
    let mut pending = VecDeque::new();
    let (mut tries, mut said, mut true_) = (0, 0.0, 0);
    let mut rest = events.iter();
    while let Some(event) = rest.next() {
        if pending.len() == 16
            && let Some(Some(predicted)) = pending.pop_front()
        {
            let Predicted { action, offset, .. } = predicted;
            tries += 1;
            said += predicted.confidence;
            true_ += u32::from((action, offset) == (event.action, event.offset));
        }
        model.observe(event);
        pending.push_back(model.best().and_then(|mut c| c.nth(15)));
        if random.percent(2) {
            let missed = random.below(40) as usize;
            rest.nth(missed);
            model.lose_track();
            pending.clear();
        }
    }
    let (said, true_) = (said / f64::from(tries), f64::from(true_) / f64::from(tries));
    assert!((said - true_).abs() < 0.08, "said {said}, true {true_}");
}
