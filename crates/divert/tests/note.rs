//! What a program leaves to the one that it becomes. The library has no tests inside: in a test program its symbols would take
//! the place of the C library's.

#[path = "../src/fd/note.rs"]
mod note;

use note::{Handed, Kind, Note};
use presagio_forward::{Instance, Span};

#[test]
fn a_note_is_read_as_it_was_written_or_not_at_all() {
    let lock = |kind, node| Handed {
        fd: 7,
        of_process: true,
        kind,
        span: Span::ALL,
        node,
    };
    let note = Note {
        process: 77,
        locks: vec![
            lock(Kind::Shared, Some(1)),
            lock(Kind::Exclusive, Some(0)),
            lock(Kind::Lost, None),
        ],
        clients: vec![(1, Instance([3; 16]))],
    };
    let bytes = note.bytes();
    assert_eq!(Note::parse(&bytes), Some(note));
    for cut in 0..bytes.len() {
        assert_eq!(Note::parse(&bytes[..cut]), None);
    }
    assert_eq!(Note::parse(&[&bytes[..], &[0]].concat()), None);
}
