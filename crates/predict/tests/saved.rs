//! Models that are kept from run to run.

use presagio_core::{Action, ContextId, Event, FileId, Layer, Nanos};
use presagio_predict::{LoadError, Model, PredictedFile};
use proptest::prelude::*;

/// A program that opens a new file in each of its iterations, writes a header, blocks and an index, and closes it.
fn run(iterations: u64, first_file: u64) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for iteration in 0..iterations {
        let mut offset = 0;
        let mut add = |context: u32, action: Action, at: u64, len: u64| {
            events.push(Event {
                time: Nanos(events.len() as u64 * 1000),
                duration: Nanos(300),
                process: 0,
                thread: 0,
                file: FileId(first_file + iteration),
                action,
                layer: Layer::Posix,
                context: ContextId(context),
                offset: at,
                len,
                result: len as i64,
            });
        };
        add(1, Action::Open, 0, 0);
        add(2, Action::Write, 0, 96);
        for block in 0..5 {
            add(3, Action::Write, 2048 + offset, 4096 + block % 2 * 512);
            offset += 4096 + block % 2 * 512;
        }
        add(4, Action::Write, 96, 32);
        add(5, Action::Close, 0, 0);
    }
    events
}

fn learned() -> Model {
    let mut model = Model::new();
    run(4, 100).iter().for_each(|event| model.observe(event));
    model
}

#[test]
fn a_second_run_is_predicted_from_its_first_operation() {
    let mut model = Model::load(&learned().save(7), 7).unwrap();
    for (number, event) in run(3, 900).iter().enumerate() {
        let predicted = model.best().unwrap().next().unwrap();
        assert_eq!(predicted.action, event.action, "operation {number}");
        let file = match number % 9 {
            0 => matches!(predicted.file, PredictedFile::New(_)),
            _ => predicted.file == PredictedFile::Known(event.file),
        };
        assert!(file, "operation {number}: {:?}", predicted.file);
        assert_eq!(
            (predicted.offset, predicted.len),
            (
                event.offset,
                if event.action.is_transfer() {
                    event.len
                } else {
                    0
                }
            ),
            "operation {number}"
        );
        model.observe(event);
    }
}

#[test]
fn a_model_of_another_program_or_version_is_not_used() {
    let saved = learned().save(7);
    assert_eq!(
        Model::load(&saved, 8).unwrap_err(),
        LoadError::OtherProgram(7)
    );
    let mut newer = saved.clone();
    newer[8] = 99;
    assert_eq!(
        Model::load(&newer, 7).unwrap_err(),
        LoadError::OtherVersion(99)
    );
    assert_eq!(
        Model::load(b"something else", 7).unwrap_err(),
        LoadError::NotAModel
    );
    assert_eq!(
        Model::load(&saved[..20], 7).unwrap_err(),
        LoadError::NotAModel
    );
    let mut damaged = saved.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(
        Model::load(&damaged, 7),
        Err(LoadError::Damaged(_))
    ));
}

#[test]
fn contexts_are_known_again_by_their_stacks_whatever_their_numbers() {
    let mut model = Model::new();
    (1..=5).for_each(|c| model.name_context(ContextId(c), u64::from(c) * 1000));
    run(4, 100).iter().for_each(|event| model.observe(event));
    let mut again = Model::load(&model.save(7), 7).unwrap();
    (1..=5).for_each(|c| again.name_context(ContextId(c + 40), u64::from(c) * 1000));
    let symbols = again.symbols();
    for event in run(2, 900) {
        let context = ContextId(event.context.0 + 40);
        again.observe(&Event { context, ..event });
    }
    assert_eq!(again.symbols(), symbols, "no symbol is new");
}

/// The checksum would hide what is behind it, so it is made right again.
fn mend(bytes: &mut [u8]) {
    let sum = bytes[28..]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
    bytes[20..28].copy_from_slice(&sum.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damage_is_an_error_or_a_model_that_works(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = learned().save(7);
        for (at, byte) in changes {
            let at = 28 + at.index(bytes.len() - 28);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(28 + cut.index(bytes.len() - 28));
        }
        mend(&mut bytes);
        if let Ok(mut model) = Model::load(&bytes, 7) {
            for event in run(2, 5) {
                let _ = model.best().map(|cursor| cursor.take(20).count());
                model.observe(&event);
            }
        }
    }
}
