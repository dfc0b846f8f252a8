//! What a client's model foresees, told to the scheduler.

use super::{Answer, Session};
use crate::error::Result;
use crate::export::{FileKey, Place};
use crate::files::id_of;
use crate::node::Shared;
use presagio_core::{Action, Nanos, Op, Range};
use presagio_ninep::extension::{Foreseen, ForeseenFile};
use presagio_ninep::{Errno, List, Reply};
use presagio_sched::{Announced, Predicted};
use presagio_storage::{Access, Bytes};
use presagio_trace::{Record, TraceError};
use rustix::fs::OFlags;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Files that are open at a time to see how they lie, while a trace is read.
const OPEN_MAX: usize = 256;

impl Session {
    /// Takes what can be taken: what one program will ask for, in its order. A request that never comes, or of a file that is
    /// not there, does no harm.
    pub(super) fn foresee<const N: usize>(
        &self,
        requests: List<'_, Foreseen<'_>, N>,
        answer: &mut Answer<'_>,
    ) -> Result<()> {
        if !self.node.hears_clients.load(Ordering::Relaxed) {
            return answer.reply(Reply::Foresee { taken: 0 });
        }
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
    /// A file that nobody need have open.
    fn of(node: &Shared, place: &Place) -> Lies {
        let key = place.key();
        let open = node.files.find(key).and_then(|file| file.bytes());
        let bytes = open.or_else(|| {
            if node.export.storage().servers() == 1 {
                return None;
            }
            let opened = node.export.open(place, OFlags::RDONLY).ok()?;
            let access = Access {
                read: true,
                write: false,
            };
            node.export.storage().open(opened, access).ok()
        });
        Lies { key, bytes }
    }

    /// The pieces that a request will come in: object and range.
    fn pieces(&self, range: Range) -> SmallVec<[(u16, Range); 2]> {
        match &self.bytes {
            None => SmallVec::from_iter([(0, range)]),
            Some(bytes) => {
                let pieces = bytes.pieces(range);
                pieces.iter().map(|it| (it.object, it.range)).collect()
            }
        }
    }

    /// Adds a request in the pieces that it will come in.
    fn announce(&self, foreseen: &Foreseen<'_>, to: &mut Vec<Announced>) {
        let Foreseen {
            op, range, after, ..
        } = *foreseen;
        let pieces = self.pieces(range).into_iter().enumerate();
        to.extend(pieces.map(|(index, (object, range))| Announced {
            file: id_of(self.key, object),
            op,
            range,
            after: if index == 0 { after } else { Nanos::ZERO },
        }));
    }
}

impl Shared {
    /// Whether what clients foretell goes to the scheduler from now on. What they have foretold is forgotten if not.
    pub fn hear_clients(&self, hear: bool) {
        self.hears_clients.store(hear, Ordering::Relaxed);
        if !hear {
            self.data.engine().forget_announced();
        }
    }

    /// Foresees what a trace of an earlier run has, of files that are in the export: what came then is expected to come
    /// again. Returns how many requests the scheduler took.
    pub fn foresee_trace(&self, path: &Path) -> std::result::Result<u64, TraceError> {
        let (mut names, mut files) = (HashMap::new(), HashMap::new());
        let (mut firsts, mut taken) = (HashMap::new(), 0);
        for record in presagio_trace::open(path)? {
            let event = match record? {
                Record::File { id, name } => {
                    names.insert(id, name);
                    continue;
                }
                Record::Event(event) if event.action.is_transfer() && event.moved() > 0 => event,
                _ => continue,
            };
            if files.len() >= OPEN_MAX && !files.contains_key(&event.file) {
                files.clear();
            }
            let lies = files.entry(event.file).or_insert_with(|| {
                let place = self.export.find_path(names.get(&event.file)?).ok()?;
                Some(Lies::of(self, &place))
            });
            let (Some(lies), Some(range)) = (lies, Range::new(event.offset, event.moved())) else {
                continue;
            };
            for (object, range) in lies.pieces(range) {
                let first = *firsts.entry((event.file, object)).or_insert(event.time);
                let predicted = Predicted {
                    file: id_of(lies.key, object),
                    op: if event.action == Action::Read {
                        Op::Read
                    } else {
                        Op::Write
                    },
                    range,
                    after: event.time - first,
                };
                if !self.data.engine().foresee(predicted) {
                    return Ok(taken);
                }
            }
            taken += 1;
        }
        Ok(taken)
    }
}
