//! What a client's model foresees, told to the scheduler.

use super::{Answer, Session};
use crate::error::Result;
use crate::export::FileKey;
use crate::files::id_of;
use crate::node::Shared;
use presagio_core::{Action, Nanos, Op, Range};
use presagio_ninep::extension::{Foreseen, ForeseenFile};
use presagio_ninep::{Errno, List, Reply};
use presagio_sched::{Announced, Predicted};
use presagio_storage::Bytes;
use presagio_trace::{Record, TraceError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

impl Session {
    /// Takes what can be taken: what one program will ask for, in its order. A request that never comes, or of a file that is
    /// not there, does no harm.
    pub(super) fn foresee<const N: usize>(
        &self,
        requests: List<'_, Foreseen<'_>, N>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        let (mut announced, mut known) = (Vec::new(), None);
        for foreseen in requests.iter() {
            let range = foreseen.range;
            if range.len() > u64::from(self.msize) || range.end() > i64::MAX as u64 {
                continue;
            }
            // Most are of the same file as the one before.
            let lies = match &known {
                Some((file, lies)) if *file == foreseen.file => lies,
                _ => match self.foreseen_file(foreseen.file) {
                    Ok(lies) => &known.insert((foreseen.file, lies)).1,
                    Err(_) => continue,
                },
            };
            lies.announce(&foreseen, &mut announced);
        }
        let taken = self.node.data.engine().announce(self.number, &announced);
        let taken = u16::try_from(taken).unwrap_or(u16::MAX);
        answer.reply(Reply::Foresee { taken })
    }

    fn foreseen_file(&self, file: ForeseenFile<'_>) -> Result<Lies> {
        let key = match file {
            ForeseenFile::Fid(fid) => self.held(fid)?.place.key(),
            ForeseenFile::Path(path) => {
                let user = self.user.get().ok_or(Errno::PERM)?;
                self.node.power.act_as(user)?;
                self.node.export.walk(path.bytes())?.key()
            }
        };
        let open = self.node.files.find(key);
        let bytes = open.and_then(|file| file.bytes());
        Ok(Lies { key, bytes })
    }

    /// What this session has foretold does not outlive it.
    pub(super) fn forget_foretold(&self) {
        self.node.data.engine().forget_source(self.number);
    }
}

/// How a file lies on data servers. Of one that nobody has open that is not known: a request is taken to come in one
/// piece.
struct Lies {
    key: FileKey,
    bytes: Option<Arc<dyn Bytes>>,
}

impl Lies {
    /// Adds a request in the pieces that it will come in.
    fn announce(&self, foreseen: &Foreseen<'_>, to: &mut Vec<Announced>) {
        let Foreseen {
            op, range, after, ..
        } = *foreseen;
        let piece = |object, range, after| Announced {
            file: id_of(self.key, object),
            op,
            range,
            after,
        };
        match &self.bytes {
            None => to.push(piece(0, range, after)),
            Some(bytes) => to.extend(bytes.pieces(range).iter().enumerate().map(|(index, it)| {
                let after = if index == 0 { after } else { Nanos::ZERO };
                piece(it.object, it.range, after)
            })),
        }
    }
}

impl Shared {
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
            if !self.data.engine().foresee(predicted) {
                break;
            }
            taken += 1;
        }
        Ok(taken)
    }
}
