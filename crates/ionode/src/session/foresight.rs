//! What a client's model foresees, told to the scheduler.

use super::{Answer, Session};
use crate::error::Result;
use crate::export::FileKey;
use crate::files::{OpenFile, id_of};
use crate::node::Shared;
use presagio_core::{Action, Nanos, Op, Range};
use presagio_ninep::extension::{Foreseen, ForeseenFile};
use presagio_ninep::{Errno, List, Reply};
use presagio_sched::Predicted;
use presagio_trace::{Record, TraceError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests that one session may have foretold in all: nobody fills the scheduler's memory.
const FORETOLD_MAX: usize = 1 << 16;

impl Session {
    /// Takes what can be taken. A request that never comes, or of a file that is not there, does no harm.
    pub(super) fn foresee<const N: usize>(
        &self,
        requests: List<'_, Foreseen<'_>, N>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let (mut taken, mut begins) = (0, HashMap::new());
        for foreseen in requests.iter() {
            if self.foretold.fetch_add(1, Ordering::Relaxed) >= FORETOLD_MAX {
                break;
            }
            let range = foreseen.range;
            if range.len() > u64::from(self.msize) || range.end() > i64::MAX as u64 {
                continue;
            }
            let Ok((key, open)) = self.foreseen_file(foreseen.file) else {
                continue;
            };
            let begin = *begins
                .entry(key)
                .or_insert_with(|| self.node.begin_of(key, foreseen.after));
            let predicted = Predicted {
                file: id_of(key, 0),
                op: foreseen.op,
                range: foreseen.range,
                after: begin.since(foreseen.after),
            };
            taken += u16::from(self.node.foresee(predicted, open.as_deref()));
        }
        answer.reply(Reply::Foresee { taken })
    }

    /// Which file it is, and how it is open, if it is.
    fn foreseen_file(&self, file: ForeseenFile<'_>) -> Result<(FileKey, Option<Arc<OpenFile>>)> {
        match file {
            ForeseenFile::Fid(fid) => {
                let held = self.held(fid)?;
                Ok((held.place.key(), held.file().ok().cloned()))
            }
            ForeseenFile::Path(path) => {
                let user = self.user.get().ok_or(Errno::PERM)?;
                self.node.power.act_as(user)?;
                Ok((self.node.export.walk(path.bytes())?.key(), None))
            }
        }
    }
}

/// When the first request of a file is, by which the scheduler counts.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// It was so long ago.
    Ago(Nanos),
    /// It will be in so long.
    In(Nanos),
}

impl Begin {
    /// How long after the first request a moment is that is `after` away.
    fn since(self, after: Nanos) -> Nanos {
        match self {
            Begin::Ago(age) => after + age,
            Begin::In(wait) => after - wait,
        }
    }
}

impl Shared {
    /// When the first request of a file is, if the next one is `after` away.
    fn begin_of(&self, key: FileKey, after: Nanos) -> Begin {
        let first = self
            .files
            .find(key)
            .and_then(|file| file.first.get().copied());
        match first {
            Some(first) => Begin::Ago(self.data.engine().now() - first),
            None => Begin::In(after),
        }
    }

    /// Tells the scheduler of a request that is likely to come, in the pieces that it will come in. Of a file that is not
    /// open it is not known how it lies on several servers: it is taken to come in one piece.
    fn foresee(&self, predicted: Predicted, open: Option<&OpenFile>) -> bool {
        let Some(open) = open else {
            return self.data.engine().foresee(predicted);
        };
        let pieces = open.bytes.pieces(predicted.range);
        pieces.iter().all(|piece| {
            self.data.engine().foresee(Predicted {
                file: open.hold.file().id(piece.object),
                range: piece.range,
                ..predicted
            })
        })
    }

    /// Foresees what a trace of an earlier run has, of files that are in the export: what came then is expected to come
    /// again. Returns how many requests the scheduler took.
    pub fn foresee_trace(&self, path: &Path) -> std::result::Result<u64, TraceError> {
        let (mut files, mut firsts, mut taken) = (HashMap::new(), HashMap::new(), 0);
        for record in presagio_trace::open(path)? {
            let event = match record? {
                Record::File { id, name } => {
                    files.insert(id, self.export.find_path(&name).ok());
                    continue;
                }
                Record::Event(event) if event.action.is_transfer() && event.moved() > 0 => event,
                _ => continue,
            };
            let Some(Some(key)) = files.get(&event.file) else {
                continue;
            };
            let first = *firsts.entry(event.file).or_insert(event.time);
            let Some(range) = Range::new(event.offset, event.moved()) else {
                continue;
            };
            let predicted = Predicted {
                file: id_of(*key, 0),
                op: if event.action == Action::Read {
                    Op::Read
                } else {
                    Op::Write
                },
                range,
                after: event.time - first,
            };
            if !self.foresee(predicted, None) {
                break;
            }
            taken += 1;
        }
        Ok(taken)
    }
}
