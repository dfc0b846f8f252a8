//! Flags, masks and structures that messages carry. The numbers are the protocol's own: on the wire they are the same
//! whatever machine sends them.

use crate::error::{Fault, Reason};
use crate::field::{Field, Fields, record, transparent};

/// Sets of bits with names.
macro_rules! bits {
    ($(#[$doc:meta])* $name:ident($inner:ty) { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            $($(#[$bit_doc])* pub const $bit: $name = $name($value);)*

            /// Whether every bit of `other` is set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether some bit of `other` is set.
            pub const fn intersects(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }

            /// These without the bits of `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        transparent! { $name($inner), }
    };
}

bits! {
    /// How a file is opened. 9P2000.L takes Linux's `open` flags with the values of x86-64 (the kernel's generic
    /// ones), also between machines whose own values differ.
    OpenFlags(u32) {
        /// For reading: no bit at all.
        RDONLY = 0;
        /// For writing.
        WRONLY = 0o1;
        /// For both.
        RDWR = 0o2;
        /// The bits that say for what.
        ACCESS = 0o3;
        /// Make it if it is not there.
        CREAT = 0o100;
        /// Fail if it is there.
        EXCL = 0o200;
        /// Not as a controlling terminal.
        NOCTTY = 0o400;
        /// Cut it to nothing.
        TRUNC = 0o1000;
        /// Each write goes to the end.
        APPEND = 0o2000;
        /// Fail rather than wait.
        NONBLOCK = 0o4000;
        /// Written data, and what is needed to read it, is durable.
        DSYNC = 0o10000;
        /// Past the page cache.
        DIRECT = 0o40000;
        /// More than 2 GiB: always so.
        LARGEFILE = 0o100000;
        /// Only a directory.
        DIRECTORY = 0o200000;
        /// Not through a symbolic link.
        NOFOLLOW = 0o400000;
        /// Do not change the time of access.
        NOATIME = 0o1000000;
        /// Close when the program is replaced.
        CLOEXEC = 0o2000000;
        /// Written data and attributes are durable.
        SYNC = 0o4010000;
        /// Only its place in the tree: with `Treopen`, a fid that is not open.
        PATH = 0o10000000;
    }
}

bits! {
    /// What `Tgetattr` asks for and `Rgetattr` has.
    GetAttr(u64) {
        /// Type and permissions.
        MODE = 0x1;
        /// Number of links.
        NLINK = 0x2;
        /// Owner.
        UID = 0x4;
        /// Group.
        GID = 0x8;
        /// Device number.
        RDEV = 0x10;
        /// Time of access.
        ATIME = 0x20;
        /// Time of modification.
        MTIME = 0x40;
        /// Time of change.
        CTIME = 0x80;
        /// Inode number.
        INO = 0x100;
        /// Size.
        SIZE = 0x200;
        /// Blocks in use.
        BLOCKS = 0x400;
        /// All that `stat` gives.
        BASIC = 0x7ff;
        /// Time of birth.
        BTIME = 0x800;
        /// Generation.
        GEN = 0x1000;
        /// Version of the data.
        DATA_VERSION = 0x2000;
        /// Everything.
        ALL = 0x3fff;
    }
}

bits! {
    /// What `Tsetattr` changes.
    SetMask(u32) {
        /// Permissions.
        MODE = 0x1;
        /// Owner.
        UID = 0x2;
        /// Group.
        GID = 0x4;
        /// Size.
        SIZE = 0x8;
        /// Time of access: to now, if not [`SetMask::ATIME_SET`].
        ATIME = 0x10;
        /// Time of modification: to now, if not [`SetMask::MTIME_SET`].
        MTIME = 0x20;
        /// Time of change, to now.
        CTIME = 0x40;
        /// The time of access is in the message.
        ATIME_SET = 0x80;
        /// The time of modification is in the message.
        MTIME_SET = 0x100;
    }
}

bits! {
    /// How a lock is asked for.
    LockFlags(u32) {
        /// The client wants to wait. (The server answers "blocked" and the client asks again.)
        BLOCK = 1;
        /// It was held before the server went away, and is claimed again. The protocol reserved this bit; our server
        /// and client use it after `9P2000.L.presagio1` was agreed on.
        RECLAIM = 2;
    }
}

bits! {
    /// What a qid is of.
    QidKind(u8) {
        /// A directory.
        DIR = 0x80;
        /// A file that only grows.
        APPEND = 0x40;
        /// A file that one client at a time may open.
        EXCL = 0x20;
        /// A place of authentication.
        AUTH = 0x08;
        /// A file that is not backed up.
        TMP = 0x04;
        /// A symbolic link.
        SYMLINK = 0x02;
        /// A plain file: no bit at all.
        FILE = 0;
    }
}

bits! {
    /// How `Tunlinkat` removes.
    UnlinkFlags(u32) {
        /// A directory (Linux's `AT_REMOVEDIR`).
        REMOVEDIR = 0x200;
    }
}

bits! {
    /// How `Txattrcreate` sets.
    XattrFlags(u32) {
        /// Fail if it is there.
        CREATE = 1;
        /// Fail if it is not.
        REPLACE = 2;
    }
}

/// Enumerations of which a frame may hold the listed values only.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$choice_doc:meta])* $choice:ident = $value:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$choice_doc])* $choice = $value,)*
        }

        impl<'a> Field<'a> for $name {
            const WIRE: &'static str = "[1]";

            fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
                let at = from.at();
                match u8::get(from, name)? {
                    $($value => Ok($name::$choice),)*
                    other => Err(from.fault(name, at, Reason::Value(other.into()))),
                }
            }

            fn put(&self, out: &mut Vec<u8>) {
                (*self as u8).put(out);
            }

            #[cfg(test)]
            fn sample(from: &mut crate::sample::Source<'a>) -> Self {
                let all = [$($name::$choice),*];
                all[from.number() as usize % all.len()]
            }
        }
    };
}
pub(crate) use choices;

choices! {
    /// What kind of lock.
    LockType {
        /// Shared.
        Read = 0;
        /// Exclusive.
        Write = 1;
        /// None: give it back.
        Unlock = 2;
    }
}

choices! {
    /// What became of a lock.
    LockStatus {
        /// Held.
        Success = 0;
        /// Somebody else has it: ask again.
        Blocked = 1;
        /// It cannot be had.
        Error = 2;
        /// The server came back a moment ago: only reclaims are served yet.
        Grace = 3;
    }
}

record! {
    /// The server's own name for a file: the same for as long as the file lives.
    Qid "[13]" {
        /// What it is of.
        kind: QidKind,
        /// Changes when the file does, if the server keeps track.
        version: u32,
        /// The inode number, mostly.
        path: u64,
    }
}

record! {
    /// A moment, in Unix time.
    Time "[16]" {
        /// Seconds.
        sec: u64,
        /// Nanoseconds.
        nsec: u64,
    }
}

record! {
    /// What `stat` says of a file; `valid` says which of it.
    Attr "[153]" {
        /// What is filled in.
        valid: GetAttr,
        /// The file.
        qid: Qid,
        /// Type and permissions, as Linux has them.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Links.
        nlink: u64,
        /// Device number, of a device.
        rdev: u64,
        /// Bytes.
        size: u64,
        /// Bytes per block, to read and write well.
        blksize: u64,
        /// Blocks of 512 bytes in use.
        blocks: u64,
        /// Last access.
        atime: Time,
        /// Last modification.
        mtime: Time,
        /// Last change.
        ctime: Time,
        /// Birth.
        btime: Time,
        /// Generation.
        generation: u64,
        /// Version of the data.
        data_version: u64,
    }
}

record! {
    /// What `Tsetattr` is to change; `valid` says which of it.
    SetAttr "[56]" {
        /// What to change.
        valid: SetMask,
        /// Permissions.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Bytes.
        size: u64,
        /// Last access.
        atime: Time,
        /// Last modification.
        mtime: Time,
    }
}

record! {
    /// What `statfs` says of a file system.
    StatFs "[60]" {
        /// Its magic number.
        fstype: u32,
        /// Bytes per block.
        bsize: u32,
        /// Blocks.
        blocks: u64,
        /// Free blocks.
        bfree: u64,
        /// Free blocks that users may take.
        bavail: u64,
        /// Inodes.
        files: u64,
        /// Free inodes.
        ffree: u64,
        /// Its identifier.
        fsid: u64,
        /// Longest name.
        namelen: u32,
    }
}

/// Whether `Tfsync` may leave the attributes behind. On the wire a number, which clients of old leave out: then not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSync(pub bool);

impl<'a> Field<'a> for DataSync {
    const WIRE: &'static str = "[4]";

    fn get(from: &mut Fields<'a>, name: &'static str) -> Result<Self, Fault> {
        match from.is_empty() {
            true => Ok(DataSync(false)),
            false => Ok(DataSync(u32::get(from, name)? != 0)),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        u32::from(self.0).put(out);
    }

    #[cfg(test)]
    fn sample(from: &mut crate::sample::Source<'a>) -> Self {
        DataSync(from.number() & 1 == 1)
    }
}
