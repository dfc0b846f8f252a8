//! What a process hands on to its child, or to the program that it becomes: its locks, each with the node that gave it. For
//! the latter as bytes:
//!
//! ```text
//! magic[16] process[4] count[4], then count times fd[4] owner[1] kind[1] node[4] start[8] end[8]
//!                      count[4], then count times export[4] instance[16]              numbers little-endian
//! ```

use libc::c_int;
use presagio_forward::{Instance, Span};

const MAGIC: &[u8; 16] = b"presagio carried";

/// What a process hands on to what it becomes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Whose it is.
    pub process: u32,
    pub locks: Vec<Handed>,
    /// The clients that are no more then, each with its export.
    pub clients: Vec<(u32, Instance)>,
}

/// A lock that is handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    pub fd: c_int,
    pub of_process: bool,
    pub kind: Kind,
    pub span: Span,
    /// The node that gave it, by its index in the list; `None` for the last resort.
    pub node: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Shared,
    Exclusive,
    /// Whoever had it has it no more.
    Lost,
}

/// For the last resort.
const NO_NODE: u32 = u32::MAX;

impl Note {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.process.to_le_bytes());
        bytes.extend((self.locks.len() as u32).to_le_bytes());
        for lock in &self.locks {
            bytes.extend((lock.fd as u32).to_le_bytes());
            bytes.extend([u8::from(lock.of_process), lock.kind as u8]);
            let node = lock.node.map_or(NO_NODE, |node| node as u32);
            bytes.extend(node.to_le_bytes());
            bytes.extend(lock.span.start.to_le_bytes());
            bytes.extend(lock.span.end.to_le_bytes());
        }
        bytes.extend((self.clients.len() as u32).to_le_bytes());
        for (export, instance) in &self.clients {
            bytes.extend(export.to_le_bytes());
            bytes.extend(instance.0);
        }
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<Note> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut note = Note {
            process: u32::from_le_bytes(take(&mut rest)?),
            ..Note::default()
        };
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            let fd = u32::from_le_bytes(take(&mut rest)?) as c_int;
            let [of_process, kind] = take(&mut rest)?;
            let kinds = [Kind::Shared, Kind::Exclusive, Kind::Lost];
            let kind = kinds.into_iter().find(|one| *one as u8 == kind)?;
            let node = u32::from_le_bytes(take(&mut rest)?);
            let start = u64::from_le_bytes(take(&mut rest)?);
            let end = u64::from_le_bytes(take(&mut rest)?);
            note.locks.push(Handed {
                fd,
                of_process: of_process != 0,
                kind,
                span: Span { start, end },
                node: (node != NO_NODE).then_some(node as usize),
            });
        }
        for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
            let export = u32::from_le_bytes(take(&mut rest)?);
            note.clients.push((export, Instance(take(&mut rest)?)));
        }
        rest.is_empty().then_some(note)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}
