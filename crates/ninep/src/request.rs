//! What clients ask: the T-messages of 9P2000.L, and ours.
//!
//! Every frame begins with `size[4] type[1] tag[2]`, the size counting itself; then come these fields, numbers in little
//! endian, without gaps. `[s]` is `length[2]` and so many bytes, `[h]` the same for a handle, `[d]` is `count[4]` and so
//! many bytes, a list is `count[2]` and its elements.
//!
//! | type | message | fields |
//! |---|---|---|
//! | 8 | Tstatfs | `fid[4]` |
//! | 12 | Tlopen | `fid[4] flags[4]` |
//! | 14 | Tlcreate | `fid[4] name[s] flags[4] mode[4] gid[4]` |
//! | 16 | Tsymlink | `dir[4] name[s] target[s] gid[4]` |
//! | 18 | Tmknod | `dir[4] name[s] mode[4] major[4] minor[4] gid[4]` |
//! | 20 | Trename | `fid[4] dir[4] name[s]` |
//! | 22 | Treadlink | `fid[4]` |
//! | 24 | Tgetattr | `fid[4] mask[8]` |
//! | 26 | Tsetattr | `fid[4] attr[56]` |
//! | 30 | Txattrwalk | `fid[4] new_fid[4] name[s]` |
//! | 32 | Txattrcreate | `fid[4] name[s] size[8] flags[4]` |
//! | 40 | Treaddir | `fid[4] offset[8] count[4]` |
//! | 50 | Tfsync | `fid[4] datasync[4]` |
//! | 52 | Tlock | `fid[4] lock_type[1] flags[4] start[8] length[8] process[4] client[s]` |
//! | 54 | Tgetlock | `fid[4] lock_type[1] start[8] length[8] process[4] client[s]` |
//! | 70 | Tlink | `dir[4] fid[4] name[s]` |
//! | 72 | Tmkdir | `dir[4] name[s] mode[4] gid[4]` |
//! | 74 | Trenameat | `old_dir[4] old_name[s] new_dir[4] new_name[s]` |
//! | 76 | Tunlinkat | `dir[4] name[s] flags[4]` |
//! | 100 | Tversion | `msize[4] version[s]` |
//! | 102 | Tauth | `auth_fid[4] user[s] export[s] uid[4]` |
//! | 104 | Tattach | `fid[4] auth_fid[4] user[s] export[s] uid[4]` |
//! | 108 | Tflush | `old_tag[2]` |
//! | 110 | Twalk | `fid[4] new_fid[4] steps[s]` |
//! | 116 | Tread | `fid[4] offset[8] count[4]` |
//! | 118 | Twrite | `fid[4] offset[8] data[d]` |
//! | 120 | Tclunk | `fid[4]` |
//! | 122 | Tremove | `fid[4]` |
//!
//! `steps` is a list of at most sixteen. Older clients leave `datasync` out. [`crate::extension`] says what these are for:
//!
//! | type | message | fields |
//! |---|---|---|
//! | 200 | Thello | `instance[16] resume[16] client[s] job[s] rank[4] program[s]` |
//! | 202 | Tforesee | `requests[f]` |
//! | 204 | Tonce | `sequence[8] settled[8] request[m]` |
//! | 206 | Thandle | `fid[4]` |
//! | 208 | Treopen | `root[4] fid[4] flags[4] handle[h]` |
//! | 210 | Tdied | `instance[16]` |

use crate::Dialect;
use crate::error::{Fault, Reason, WireError};
use crate::extension::{Foreseen, ReopenFlags, Wrapped};
use crate::field::{Field, Fields, HEADER};
use crate::frame::Frame;
use crate::ids::{Fid, Kind, Tag};
use crate::message::messages;
use crate::text::{Data, Handle, List, Name, Step, Text};
use crate::values::{
    DataSync, GetAttr, LockFlags, LockType, OpenFlags, SetAttr, UnlinkFlags, XattrFlags,
};

/// Steps that one walk may take.
pub const WALK_MAX: usize = 16;

/// Requests that one `Tforesee` may announce.
pub const FORESEEN_MAX: usize = 1024;

/// Bytes before the data of a `Twrite`.
pub const WRITE_HEAD: usize = HEADER + 16;

messages! {
    /// A request. What has a length lies in the frame that it was parsed from.
    Request<'a> {
        /// What is the file system like?
        StatFs = 8 "Tstatfs" { fid: Fid };
        /// Open the file of a fid.
        Open = 12 "Tlopen" { fid: Fid, flags: OpenFlags };
        /// Make a file in the directory of a fid and open it; the fid then stands for the file.
        Create = 14 "Tlcreate" { fid: Fid, name: Name<'a>, flags: OpenFlags, mode: u32, gid: u32 };
        /// Make a symbolic link.
        Symlink = 16 "Tsymlink" { dir: Fid, name: Name<'a>, target: Text<'a>, gid: u32 };
        /// Make a device, a pipe or a socket.
        Mknod = 18 "Tmknod" { dir: Fid, name: Name<'a>, mode: u32, major: u32, minor: u32, gid: u32 };
        /// Give the file of a fid another place.
        Rename = 20 "Trename" { fid: Fid, dir: Fid, name: Name<'a> };
        /// Where does a symbolic link lead?
        ReadLink = 22 "Treadlink" { fid: Fid };
        /// What are the attributes?
        GetAttr = 24 "Tgetattr" { fid: Fid, mask: GetAttr };
        /// Change attributes.
        SetAttr = 26 "Tsetattr" { fid: Fid, attr: SetAttr };
        /// Let a new fid stand for an extended attribute, or, without a name, for the list of them.
        XattrWalk = 30 "Txattrwalk" { fid: Fid, new_fid: Fid, name: Text<'a> };
        /// Let the fid stand for an extended attribute that is written next, and set when the fid is clunked.
        XattrCreate = 32 "Txattrcreate" { fid: Fid, name: Text<'a>, size: u64, flags: XattrFlags };
        /// Read entries of a directory.
        ReadDir = 40 "Treaddir" { fid: Fid, offset: u64, count: u32 };
        /// Make what was written durable.
        Fsync = 50 "Tfsync" { fid: Fid, datasync: DataSync };
        /// Take or give back a lock.
        Lock = 52 "Tlock" {
            fid: Fid, lock_type: LockType, flags: LockFlags, start: u64, length: u64, process: u32, client: Text<'a>,
        };
        /// Who has a lock that would be in the way?
        GetLock = 54 "Tgetlock" {
            fid: Fid, lock_type: LockType, start: u64, length: u64, process: u32, client: Text<'a>,
        };
        /// Give a file a second name.
        Link = 70 "Tlink" { dir: Fid, fid: Fid, name: Name<'a> };
        /// Make a directory.
        Mkdir = 72 "Tmkdir" { dir: Fid, name: Name<'a>, mode: u32, gid: u32 };
        /// Give a name in a directory another place.
        RenameAt = 74 "Trenameat" { old_dir: Fid, old_name: Name<'a>, new_dir: Fid, new_name: Name<'a> };
        /// Remove a name from a directory.
        UnlinkAt = 76 "Tunlinkat" { dir: Fid, name: Name<'a>, flags: UnlinkFlags };
        /// Begin a session: how large may frames be, and which protocol is it?
        Version = 100 "Tversion" { msize: u32, version: Text<'a> };
        /// Begin an authentication.
        Auth = 102 "Tauth" { auth_fid: Fid, user: Text<'a>, export: Text<'a>, uid: u32 };
        /// Let a fid stand for the root of an export, for a user.
        Attach = 104 "Tattach" { fid: Fid, auth_fid: Fid, user: Text<'a>, export: Text<'a>, uid: u32 };
        /// Do not answer a request any more, if it is not too late.
        Flush = 108 "Tflush" { old_tag: Tag };
        /// Let a new fid stand for what lies some steps from another.
        Walk = 110 "Twalk" { fid: Fid, new_fid: Fid, steps: List<'a, Step<'a>, WALK_MAX> };
        /// Read.
        Read = 116 "Tread" { fid: Fid, offset: u64, count: u32 };
        /// Write.
        Write = 118 "Twrite" { fid: Fid, offset: u64, data: Data<'a> };
        /// Forget a fid.
        Clunk = 120 "Tclunk" { fid: Fid };
        /// Remove the file of a fid, and forget the fid.
        Remove = 122 "Tremove" { fid: Fid };
        /// Who is the client?
        Hello = 200 "Thello" {
            instance: [u8; 16], resume: [u8; 16], client: Text<'a>, job: Text<'a>, rank: u32, program: Text<'a>,
        };
        /// These requests are about to come.
        Foresee = 202 "Tforesee" { requests: List<'a, Foreseen<'a>, FORESEEN_MAX> };
        /// Do this once, however often it is sent. It gets the reply of the request inside.
        Once = 204 "Tonce" { sequence: u64, settled: u64, request: Wrapped<'a> };
        /// By what could the file of a fid be found again?
        Handle = 206 "Thandle" { fid: Fid };
        /// Let a fid stand for the file of a handle, open as it was.
        Reopen = 208 "Treopen" { root: Fid, fid: Fid, flags: ReopenFlags, handle: Handle<'a> };
        /// Another client of this user never comes back.
        Died = 210 "Tdied" { instance: [u8; 16] };
    }
}

impl<'a> Request<'a> {
    /// Parses a frame of a session that speaks `dialect`.
    #[inline]
    pub fn parse(frame: Frame<'a>, dialect: Dialect) -> Result<Request<'a>, WireError> {
        let Frame { kind, tag, body } = frame;
        let mut from = Fields::new(body, HEADER);
        Request::from_fields(kind, &mut from, dialect).map_err(|fault| fault.within(kind, tag))
    }

    #[inline]
    pub(crate) fn from_fields(
        kind: Kind,
        from: &mut Fields<'a>,
        dialect: Dialect,
    ) -> Result<Request<'a>, Fault> {
        let refuse = |reason| Fault {
            field: "the type",
            at: 4,
            reason,
        };
        if kind.is_extension() && dialect == Dialect::Linux {
            return Err(refuse(Reason::NotNegotiated));
        }
        match Request::fields(kind, from)? {
            Some(request) => Ok(request),
            None if kind.is_request() => Err(refuse(Reason::UnknownKind)),
            None => Err(refuse(Reason::Direction)),
        }
    }

    /// The type of the reply that it gets when it succeeds.
    pub fn reply_kind(&self) -> Kind {
        match self {
            Request::Once { request, .. } => request.kind().reply(),
            other => other.kind().reply(),
        }
    }
}

/// The header of a `Twrite` whose data, `count` bytes, follows from elsewhere.
pub fn write_head(tag: Tag, fid: Fid, offset: u64, count: u32) -> [u8; WRITE_HEAD] {
    let mut head = [0; WRITE_HEAD];
    head[..4].copy_from_slice(&(WRITE_HEAD as u32 + count).to_le_bytes());
    head[4] = 118;
    head[5..7].copy_from_slice(&tag.0.to_le_bytes());
    head[7..11].copy_from_slice(&fid.0.to_le_bytes());
    head[11..19].copy_from_slice(&offset.to_le_bytes());
    head[19..].copy_from_slice(&count.to_le_bytes());
    head
}
