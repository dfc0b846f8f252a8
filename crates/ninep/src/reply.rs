//! What servers answer: the R-messages of 9P2000.L, and ours. [`crate::request`] says how to read the table.
//!
//! | type | message | fields |
//! |---|---|---|
//! | 7 | Rlerror | `errno[4]` |
//! | 9 | Rstatfs | `statfs[60]` |
//! | 13 | Rlopen | `qid[13] iounit[4]` |
//! | 15 | Rlcreate | `qid[13] iounit[4]` |
//! | 17 | Rsymlink | `qid[13]` |
//! | 19 | Rmknod | `qid[13]` |
//! | 21 | Rrename | |
//! | 23 | Rreadlink | `target[s]` |
//! | 25 | Rgetattr | `attr[153]` |
//! | 27 | Rsetattr | |
//! | 31 | Rxattrwalk | `size[8]` |
//! | 33 | Rxattrcreate | |
//! | 41 | Rreaddir | `entries[d]` |
//! | 51 | Rfsync | |
//! | 53 | Rlock | `status[1]` |
//! | 55 | Rgetlock | `lock_type[1] start[8] length[8] process[4] client[s]` |
//! | 71 | Rlink | |
//! | 73 | Rmkdir | `qid[13]` |
//! | 75 | Rrenameat | |
//! | 77 | Runlinkat | |
//! | 101 | Rversion | `msize[4] version[s]` |
//! | 103 | Rauth | `qid[13]` |
//! | 105 | Rattach | `qid[13]` |
//! | 109 | Rflush | |
//! | 111 | Rwalk | `qids[13]` |
//! | 117 | Rread | `data[d]` |
//! | 119 | Rwrite | `count[4]` |
//! | 121 | Rclunk | |
//! | 123 | Rremove | |
//!
//! `qids` is a list of at most sixteen, `entries` is what [`crate::Entries`] reads. [`crate::extension`] says what these
//! are for:
//!
//! | type | message | fields |
//! |---|---|---|
//! | 201 | Rhello | `epoch[8] resume[16] resumed[1] replies[4] grace_ms[4] node[s]` |
//! | 203 | Rforesee | `taken[2]` |
//! | 207 | Rhandle | `handle[h]` |
//! | 209 | Rreopen | `qid[13] iounit[4]` |
//! | 211 | Rdied | |

use crate::Dialect;
use crate::error::{Fault, Reason, WireError};
use crate::extension::Resumed;
use crate::field::{Field, Fields, HEADER};
use crate::frame::Frame;
use crate::ids::{Errno, Kind, Tag};
use crate::message::messages;
use crate::request::WALK_MAX;
use crate::text::{Data, Handle, List, Text};
use crate::values::{Attr, LockStatus, LockType, Qid, StatFs};

/// Bytes before the data of an `Rread`, and before the entries of an `Rreaddir`: reserve them, let the storage fill what
/// follows, then put [`read_head`] before it.
pub const READ_HEAD: usize = HEADER + 4;

messages! {
    /// A reply. What has a length lies in the frame that it was parsed from.
    Reply<'a> {
        /// It failed.
        Error = 7 "Rlerror" { errno: Errno };
        /// To `Tstatfs`.
        StatFs = 9 "Rstatfs" { statfs: StatFs };
        /// To `Tlopen`; an `iounit` of 0 leaves the size of reads and writes to msize.
        Open = 13 "Rlopen" { qid: Qid, iounit: u32 };
        /// To `Tlcreate`.
        Create = 15 "Rlcreate" { qid: Qid, iounit: u32 };
        /// To `Tsymlink`.
        Symlink = 17 "Rsymlink" { qid: Qid };
        /// To `Tmknod`.
        Mknod = 19 "Rmknod" { qid: Qid };
        /// To `Trename`.
        Rename = 21 "Rrename";
        /// To `Treadlink`.
        ReadLink = 23 "Rreadlink" { target: Text<'a> };
        /// To `Tgetattr`.
        GetAttr = 25 "Rgetattr" { attr: Attr };
        /// To `Tsetattr`.
        SetAttr = 27 "Rsetattr";
        /// To `Txattrwalk`: how large the attribute or the list is.
        XattrWalk = 31 "Rxattrwalk" { size: u64 };
        /// To `Txattrcreate`.
        XattrCreate = 33 "Rxattrcreate";
        /// To `Treaddir`.
        ReadDir = 41 "Rreaddir" { entries: Data<'a> };
        /// To `Tfsync`.
        Fsync = 51 "Rfsync";
        /// To `Tlock`.
        Lock = 53 "Rlock" { status: LockStatus };
        /// To `Tgetlock`: the lock that is in the way, or of type `Unlock` if none is.
        GetLock = 55 "Rgetlock" { lock_type: LockType, start: u64, length: u64, process: u32, client: Text<'a> };
        /// To `Tlink`.
        Link = 71 "Rlink";
        /// To `Tmkdir`.
        Mkdir = 73 "Rmkdir" { qid: Qid };
        /// To `Trenameat`.
        RenameAt = 75 "Rrenameat";
        /// To `Tunlinkat`.
        UnlinkAt = 77 "Runlinkat";
        /// To `Tversion`.
        Version = 101 "Rversion" { msize: u32, version: Text<'a> };
        /// To `Tauth`.
        Auth = 103 "Rauth" { qid: Qid };
        /// To `Tattach`.
        Attach = 105 "Rattach" { qid: Qid };
        /// To `Tflush`: the old tag is free.
        Flush = 109 "Rflush";
        /// To `Twalk`: a qid for each step; fewer than were asked for if the walk ended early, and then the new fid
        /// stands for nothing.
        Walk = 111 "Rwalk" { qids: List<'a, Qid, WALK_MAX> };
        /// To `Tread`.
        Read = 117 "Rread" { data: Data<'a> };
        /// To `Twrite`.
        Write = 119 "Rwrite" { count: u32 };
        /// To `Tclunk`.
        Clunk = 121 "Rclunk";
        /// To `Tremove`.
        Remove = 123 "Rremove";
        /// To `Thello`.
        Hello = 201 "Rhello" {
            epoch: u64, resume: [u8; 16], resumed: Resumed, replies: u32, grace_ms: u32, node: Text<'a>,
        };
        /// To `Tforesee`: how many of them the scheduler took.
        Foresee = 203 "Rforesee" { taken: u16 };
        /// To `Thandle`.
        Handle = 207 "Rhandle" { handle: Handle<'a> };
        /// To `Treopen`.
        Reopen = 209 "Rreopen" { qid: Qid, iounit: u32 };
        /// To `Tdied`.
        Died = 211 "Rdied";
    }
}

impl<'a> Reply<'a> {
    /// Parses a frame of a session that speaks `dialect`.
    #[inline]
    pub fn parse(frame: Frame<'a>, dialect: Dialect) -> Result<Reply<'a>, WireError> {
        let Frame { kind, tag, body } = frame;
        let refuse = |reason| Fault {
            field: "the type",
            at: 4,
            reason,
        };
        let parsed = match kind.is_extension() && dialect == Dialect::Linux {
            true => Err(refuse(Reason::NotNegotiated)),
            false => Reply::fields(kind, &mut Fields::new(body, HEADER)),
        };
        match parsed.map_err(|fault| fault.within(kind, tag))? {
            Some(reply) => Ok(reply),
            None if kind.is_request() => Err(refuse(Reason::Direction).within(kind, tag)),
            None => Err(refuse(Reason::UnknownKind).within(kind, tag)),
        }
    }
}

/// The header of an `Rread` whose data, `count` bytes, follows.
pub fn read_head(tag: Tag, count: u32) -> [u8; READ_HEAD] {
    payload_head(117, tag, count)
}

/// The header of an `Rreaddir` whose entries, `count` bytes, follow.
pub fn readdir_head(tag: Tag, count: u32) -> [u8; READ_HEAD] {
    payload_head(41, tag, count)
}

fn payload_head(kind: u8, tag: Tag, count: u32) -> [u8; READ_HEAD] {
    let mut head = [0; READ_HEAD];
    head[..4].copy_from_slice(&(READ_HEAD as u32 + count).to_le_bytes());
    head[4] = kind;
    head[5..7].copy_from_slice(&tag.0.to_le_bytes());
    head[7..].copy_from_slice(&count.to_le_bytes());
    head
}
