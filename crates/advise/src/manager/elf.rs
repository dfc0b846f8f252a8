//! What the file of a program says about itself: its build id, and whether anything can be preloaded into it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The kinds of program headers that we look at.
const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;
/// More headers, and longer notes, than these are no program of ours.
const HEADERS_MAX: u16 = 128;
const NOTE_BYTES_MAX: u64 = 64 << 10;
/// The build id among the notes.
const BUILD_ID: u32 = 3;

/// A part of the file that a program header describes.
struct Part {
    kind: u32,
    offset: u64,
    len: u64,
}

/// The program headers of a 64-bit little-endian ELF file; `None` if it is something else.
fn parts(file: &File) -> Option<Vec<Part>> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if &header[..6] != b"\x7fELF\x02\x01" {
        return None;
    }
    let start = word(&header, 32)?;
    let (size, count) = (half(&header, 54)?, half(&header, 56)?);
    if size < 56 || count > HEADERS_MAX {
        return None;
    }
    let mut table = vec![0; usize::from(size) * usize::from(count)];
    file.read_exact_at(&mut table, start).ok()?;
    let part = |entry: &[u8]| {
        Some(Part {
            kind: u32::from_le_bytes(entry.get(..4)?.try_into().ok()?),
            offset: word(entry, 8)?,
            len: word(entry, 32)?,
        })
    };
    table.chunks(size.into()).map(part).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The build id of a program or library.
pub(super) fn build_id(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let parts = parts(&file)?;
    let notes = parts
        .iter()
        .filter(|p| p.kind == NOTE && p.len <= NOTE_BYTES_MAX);
    notes.into_iter().find_map(|part| {
        let mut notes = vec![0; part.len as usize];
        file.read_exact_at(&mut notes, part.offset).ok()?;
        id_in(&notes)
    })
}

/// The build id in a list of notes: lengths of name and content, kind, name, content, each to a multiple of 4.
fn id_in(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let number = |at: usize| {
            let bytes = notes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let (name, content, kind) = (number(0)? as usize, number(4)? as usize, number(8)?);
        let begin = 12 + name.next_multiple_of(4);
        if kind == BUILD_ID && notes.get(12..12 + name)? == b"GNU\0" {
            return notes.get(begin..begin + content).map(<[u8]>::to_vec);
        }
        notes = notes.get(begin + content.next_multiple_of(4)..)?;
    }
}

/// Whether a program is linked statically, so that nothing can be preloaded into it; `None` if it is no 64-bit ELF
/// program.
pub fn is_static(path: &Path) -> Option<bool> {
    let parts = parts(&File::open(path).ok()?)?;
    Some(!parts.iter().any(|part| part.kind == INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_program_is_not_static_and_a_script_is_no_program() {
        assert_eq!(is_static(Path::new("/bin/sh")), Some(false));
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n".repeat(20)).unwrap();
        assert_eq!(is_static(&script), None);
        assert_eq!(build_id(&script), None);
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let note = |kind: u32, content: &[u8]| {
            let mut note = vec![4, 0, 0, 0];
            note.extend((content.len() as u32).to_le_bytes());
            note.extend(kind.to_le_bytes());
            note.extend(b"GNU\0");
            note.extend(content);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let notes = [note(1, b"12345"), note(3, b"abcdef"), note(5, b"x")].concat();
        assert_eq!(id_in(&notes), Some(b"abcdef".to_vec()));
        assert_eq!(id_in(&notes[..20]), None);
        assert_eq!(
            build_id(Path::new("/bin/sh")),
            build_id(Path::new("/bin/sh"))
        );
    }
}
