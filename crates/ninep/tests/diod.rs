//! Our client against Debian's diod: what one does to files, seen from both sides.

mod common;

use common::{Diod, against};
use presagio_ninep::client::{Ask, Error, Options};
use presagio_ninep::session::File;
use presagio_ninep::{
    Dialect, Errno, GetAttr, LockStatus, LockType, OpenFlags, QidKind, Request, SetAttr, SetMask,
    Time, UnlinkFlags, XattrFlags,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Bytes that differ from block to block.
fn pattern(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(count);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

fn refused<T>(result: Result<T, Error>, errno: Errno) {
    match result {
        Err(Error::Server(got)) => assert_eq!(got, errno),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("not refused"),
    }
}

fn rw_file(root: &File, name: &str) -> File {
    root.create(name, OpenFlags::RDWR, 0o640)
        .expect("a new file")
}

#[test]
fn a_server_that_knows_no_extensions_is_spoken_to_in_plain_9p() {
    against(Diod::start, |diod| {
        let (session, _root) = diod.connect(&Options::default());
        let agreed = session.client().agreed();
        assert_eq!(agreed.dialect, Dialect::Linux);
        assert!(agreed.msize >= 65_536, "{agreed:?}");
    });
}

#[test]
fn what_is_written_is_in_the_file_and_can_be_read() {
    against(Diod::start, |diod| {
        let (session, root) = diod.connect(&Options::default());
        let file = rw_file(&root, "data");
        // Larger than all pieces that are under way at once.
        let bytes = pattern(1, 20 * session.client().io_max() as usize + 12_345);
        assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
        file.fsync(true).unwrap();
        file.fsync(false).unwrap();
        assert!(fs::read(diod.export().join("data")).unwrap() == bytes);
        let mut read = vec![0; bytes.len() + 100];
        assert_eq!(file.read_at(0, &mut read).unwrap(), bytes.len());
        assert!(read[..bytes.len()] == bytes);
        assert_eq!(file.read_at(bytes.len() as u64, &mut read).unwrap(), 0);
        let mut few = [0; 33];
        assert_eq!(file.read_at(1001, &mut few).unwrap(), 33);
        assert_eq!(few[..], bytes[1001..1034]);
    });
}

#[test]
fn attributes_are_those_of_the_file() {
    against(Diod::start, |diod| {
        let (_session, root) = diod.connect(&Options::default());
        let file = rw_file(&root, "attributes");
        file.write_at(0, b"twelve bytes").unwrap();
        let path = diod.export().join("attributes");
        let (attr, stat) = (
            file.getattr(GetAttr::ALL).unwrap(),
            fs::metadata(&path).unwrap(),
        );
        assert!(attr.valid.contains(GetAttr::BASIC));
        assert_eq!((attr.size, attr.qid.path), (12, stat.ino()));
        assert_eq!(
            (attr.mode, attr.uid, attr.gid),
            (stat.mode(), stat.uid(), stat.gid())
        );
        assert_eq!(
            (attr.nlink, attr.blksize, attr.blocks),
            (1, stat.blksize(), stat.blocks())
        );
        assert_eq!(attr.mtime.sec, stat.mtime() as u64);
        let change = SetAttr {
            valid: SetMask::MODE | SetMask::SIZE | SetMask::MTIME | SetMask::MTIME_SET,
            mode: 0o600,
            size: 5,
            mtime: Time {
                sec: 1_000_000,
                nsec: 7_000,
            },
            ..SetAttr::default()
        };
        file.setattr(change).unwrap();
        let stat = fs::metadata(&path).unwrap();
        assert_eq!((stat.mode() & 0o777, stat.size()), (0o600, 5));
        assert_eq!((stat.mtime(), stat.mtime_nsec()), (1_000_000, 7_000));
        let statfs = root.statfs().unwrap();
        assert!(statfs.bsize > 0 && statfs.blocks >= statfs.bavail);
    });
}

#[test]
fn directories_of_thousands_of_entries_are_listed_completely() {
    against(Diod::start, |diod| {
        let options = Options {
            msize: 8192,
            ..Options::default()
        };
        let (_session, root) = diod.connect(&options);
        assert!(
            root.mkdir("many", 0o755)
                .unwrap()
                .kind
                .contains(QidKind::DIR)
        );
        let names: BTreeSet<Vec<u8>> = (0..3000)
            .map(|i| format!("entry-{i:05}").into_bytes())
            .collect();
        for name in &names {
            let name = str::from_utf8(name).unwrap();
            fs::write(diod.export().join("many").join(name), "").unwrap();
        }
        let listed = root.walk("many").unwrap().read_dir().unwrap();
        assert_eq!(listed.len(), names.len(), "each once");
        assert_eq!(
            listed
                .into_iter()
                .map(|entry| entry.name)
                .collect::<BTreeSet<_>>(),
            names
        );
    });
}

#[test]
fn names_are_made_moved_and_removed() {
    against(Diod::start, |diod| {
        let (_session, root) = diod.connect(&Options::default());
        rw_file(&root, "first").write_at(0, b"content").unwrap();
        root.mkdir("dir", 0o700).unwrap();
        let dir = root.walk("dir").unwrap();
        root.rename_at("first", &dir, "second").unwrap();
        refused(root.walk("first"), Errno::NOENT);
        let second = root.walk("dir/second").unwrap();
        root.link(&second, "hard").unwrap();
        assert_eq!(second.getattr(GetAttr::BASIC).unwrap().nlink, 2);
        second.rename(&root, "third").unwrap();
        assert_eq!(fs::read(diod.export().join("third")).unwrap(), b"content");
        root.symlink("soft", "dir/no such thing").unwrap();
        assert_eq!(
            root.walk("soft").unwrap().readlink().unwrap(),
            b"dir/no such thing"
        );
        assert_eq!(
            fs::read_link(diod.export().join("soft")).unwrap().to_str(),
            Some("dir/no such thing")
        );
        root.mknod("pipe", 0o010_600, (0, 0)).unwrap();
        refused(root.mkdir("dir", 0o700), Errno::EXIST);
        refused(root.unlink("dir", UnlinkFlags(0)), Errno::ISDIR);
        root.unlink("dir", UnlinkFlags::REMOVEDIR).unwrap();
        root.unlink("soft", UnlinkFlags(0)).unwrap();
        root.walk("hard").unwrap().remove().unwrap();
        let left: BTreeSet<Vec<u8>> = root
            .read_dir()
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(left, BTreeSet::from([b"third".to_vec(), b"pipe".to_vec()]));
    });
}

#[test]
fn walks_go_deeper_than_one_message_can_say() {
    against(Diod::start, |diod| {
        let (_session, root) = diod.connect(&Options::default());
        let path: Vec<String> = (0..40).map(|i| format!("level{i}")).collect();
        let path = path.join("/");
        fs::create_dir_all(diod.export().join(&path)).unwrap();
        let deepest = root.walk(&path).unwrap();
        assert_eq!(
            deepest.qid().path,
            fs::metadata(diod.export().join(&path)).unwrap().ino()
        );
        refused(root.walk(format!("{path}/nothing")), Errno::NOENT);
    });
}

#[test]
fn extended_attributes_are_set_listed_and_read() {
    against(Diod::start, |diod| {
        let (_session, root) = diod.connect(&Options::default());
        let file = rw_file(&root, "tagged");
        file.set_xattr("user.colour", b"dark blue", XattrFlags(0))
            .unwrap();
        assert_eq!(file.xattr("user.colour").unwrap(), b"dark blue");
        let names = file.xattr("").unwrap();
        assert!(
            names
                .split(|byte| *byte == 0)
                .any(|name| name == b"user.colour"),
            "{names:?}"
        );
        refused(
            file.set_xattr("user.colour", b"red", XattrFlags::CREATE),
            Errno::EXIST,
        );
        refused(file.xattr("user.shape"), Errno::NODATA);
    });
}

#[test]
fn locks_keep_others_out_until_they_are_given_back() {
    against(Diod::start, |diod| {
        let (_one, root) = diod.connect(&Options::default());
        let mine = rw_file(&root, "locked");
        let (_two, other_root) = diod.connect(&Options::default());
        let mut theirs = other_root.walk("locked").unwrap();
        theirs.open(OpenFlags::RDWR).unwrap();
        let (whole, me, you) = ((0, 0), ("one", 1), ("two", 2));
        assert_eq!(
            mine.lock(LockType::Write, whole, me).unwrap(),
            LockStatus::Success
        );
        assert_eq!(
            theirs.lock(LockType::Write, whole, you).unwrap(),
            LockStatus::Blocked
        );
        assert_eq!(
            theirs.getlock(LockType::Write, whole, you).unwrap(),
            LockType::Write
        );
        assert_eq!(
            mine.lock(LockType::Unlock, whole, me).unwrap(),
            LockStatus::Success
        );
        assert_eq!(
            theirs.getlock(LockType::Write, whole, you).unwrap(),
            LockType::Unlock
        );
        assert_eq!(
            theirs.lock(LockType::Write, whole, you).unwrap(),
            LockStatus::Success
        );
    });
}

#[test]
fn sixteen_threads_share_one_connection_and_each_gets_its_own_bytes() {
    against(Diod::start, |diod| {
        let (_session, root) = diod.connect(&Options::default());
        let root = &root;
        std::thread::scope(|scope| {
            for thread in 0..16u64 {
                scope.spawn(move || {
                    let file = rw_file(root, &format!("of-{thread}"));
                    for block in 0..100 {
                        let bytes = pattern(thread * 1000 + block, 4096 + 37 * thread as usize);
                        let offset = block * 8192;
                        assert_eq!(file.write_at(offset, &bytes).unwrap(), bytes.len());
                        let mut read = vec![0; bytes.len()];
                        assert_eq!(file.read_at(offset, &mut read).unwrap(), bytes.len());
                        assert!(read == bytes, "thread {thread}, block {block}");
                    }
                });
            }
        });
        let written = fs::read(diod.export().join("of-7")).unwrap();
        assert!(written[99 * 8192..] == pattern(7099, 4096 + 37 * 7));
    });
}

#[test]
fn one_thread_has_many_requests_under_way() {
    against(Diod::start, |diod| {
        let (session, root) = diod.connect(&Options::default());
        let file = rw_file(&root, "blocks");
        let blocks: Vec<Vec<u8>> = (0..200).map(|block| pattern(block, 4096)).collect();
        let writes = blocks
            .iter()
            .zip((0..).step_by(4096))
            .map(|(block, offset)| {
                let data = presagio_ninep::Data::new(block).unwrap();
                Ask::new(Request::Write {
                    fid: file.fid(),
                    offset,
                    data,
                })
            });
        for ticket in session.client().submit_all(writes).unwrap() {
            ticket.wait().unwrap();
        }
        let reads = (0..200).map(|block| Ask::read(file.fid(), block * 4096, vec![0; 4096]));
        let tickets = session.client().submit_all(reads).unwrap();
        // In the other order, so that all but the last are delivered while another is waited for.
        for (ticket, block) in tickets.into_iter().zip(&blocks).rev() {
            assert!(ticket.wait().unwrap().into_data() == *block);
        }
        assert!(session.client().outstanding().is_empty());
    });
}

#[test]
fn the_same_over_tcp() {
    against(Diod::start_tcp, |diod| {
        let (_session, root) = diod.connect_tcp(&Options::default());
        let file = rw_file(&root, "over-tcp");
        let bytes = pattern(5, 3_000_000);
        assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
        let mut read = vec![0; bytes.len()];
        assert_eq!(file.read_at(0, &mut read).unwrap(), bytes.len());
        assert!(read == bytes && fs::read(diod.export().join("over-tcp")).unwrap() == bytes);
    });
}

#[test]
fn a_killed_server_is_an_error_for_everybody_at_once() {
    let mut diod = Diod::start();
    let (session, root) = diod.connect(&Options::default());
    let mut pipe = root
        .create("pipe-to-nobody", OpenFlags::RDWR, 0o600)
        .unwrap();
    pipe.write_at(0, b"x").unwrap();
    let root = &root;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    loop {
                        if let Err(error) = root.getattr(GetAttr::BASIC) {
                            return error;
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        diod.kill();
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Error::Lost { .. }));
        }
    });
    assert!(matches!(
        pipe.open(OpenFlags::RDONLY),
        Err(Error::Lost { sent: false, .. })
    ));
    assert!(session.client().lost().is_some());
}
