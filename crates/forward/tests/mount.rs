//! Programs on the mount: what they write is in the export, and what is in the export is what they read.

mod common;

/// Whether clients may have threads of their own.
pub const THREADS: bool = true;

use common::{Mount, Server, against, pattern, shell};
use presagio_forward::mount::{self, Freshness};
use presagio_ninep::OpenFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::time::Duration;

/// Runs a test on a mount of a server.
fn mounted(test: impl Fn(&Mount, &Server)) {
    against(|server| {
        let mount = Mount::of(server);
        test(&mount, server);
    });
}

#[test]
fn large_writes_and_reads_are_the_bytes_of_the_file() {
    mounted(|mount, server| {
        let bytes = pattern(1, 5_000_001);
        fs::write(mount.join("data"), &bytes).unwrap();
        assert!(fs::read(server.export().join("data")).unwrap() == bytes);
        assert!(fs::read(mount.join("data")).unwrap() == bytes);
        let file = File::open(mount.join("data")).unwrap();
        let mut some = vec![0; 3_000_000];
        file.read_exact_at(&mut some, 1_234_567).unwrap();
        assert!(some == bytes[1_234_567..4_234_567]);
    });
}

#[test]
fn dd_cp_and_tar_copy_trees_that_do_not_differ() {
    mounted(|mount, server| {
        let source = tempfile::tempdir().unwrap();
        shell(
            "cd $1; mkdir -p a/b/c empty; head -c 3000000 /dev/urandom > a/large; head -c 777 /dev/urandom > a/b/small
             : > a/b/c/nothing; ln a/large a/b/hard; ln -s ../large a/b/soft; chmod 640 a/b/small; mkfifo a/pipe
             for i in $(seq 300); do echo $i > a/b/c/file$i; done; touch -d '1969-12-31 23:00:01.5 UTC' a/b/c/file7",
            &[source.path()],
        );
        shell("cp -a $1/. $2/copy", &[source.path(), mount.path()]);
        shell(
            "diff -r --no-dereference -x pipe $1 $2/copy",
            &[source.path(), mount.path()],
        );
        shell(
            "diff -r --no-dereference -x pipe $1 $2/copy",
            &[source.path(), &server.export()],
        );
        shell(
            "mkdir $2/tar; tar -C $1 --format=posix -cf - . | tar -C $2/tar -xf -",
            &[source.path(), mount.path()],
        );
        let listing = "cd $1; find . -printf '%p %y %m %s %n %l %T@\\n' | grep -v '^. ' | sort";
        let directories = |text: String| -> Vec<String> {
            // Sizes of directories differ from one file system to the next.
            text.lines()
                .filter(|line| !line.contains(" d "))
                .map(str::to_owned)
                .collect()
        };
        let expected = directories(shell(listing, &[source.path()]));
        for copy in ["copy", "tar"] {
            assert_eq!(
                directories(shell(listing, &[&mount.join(copy)])),
                expected,
                "{copy}"
            );
        }
        shell(
            "dd if=$1/a/large of=$2/dd bs=4097 2>&1; cmp $1/a/large $2/dd",
            &[source.path(), mount.path()],
        );
        shell(
            "rm -r $1/copy $1/tar $1/dd; test -z \"$(ls -A $1)\"",
            &[mount.path()],
        );
    });
}

/// The largest appends that are promised to be in one piece, and one byte less. Of a program's megabyte that does not begin at the
/// border of a page, FUSE makes two requests.
#[test]
fn appends_of_a_megabyte_are_in_one_piece() {
    const WRITERS: u8 = 4;
    const RECORDS: usize = 6;
    let server = Server::start();
    let (mount, remote) = (Mount::of(&server), server.remote());
    let root = remote.root(rustix::process::geteuid().as_raw()).unwrap();
    fs::write(mount.join("log"), "").unwrap();
    let most = |writer: u8| match writer % 2 {
        0 => 1 << 20,
        _ => (1 << 20) - 4096,
    };
    let length = |writer: u8, record: usize| most(writer) - record % 2;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (mount, root) = (&mount, &root);
            scope.spawn(move || {
                let flags = OpenFlags::WRONLY | OpenFlags::APPEND;
                let straight = root.walk("log").unwrap().open(flags).unwrap();
                let mut options = OpenOptions::new();
                let mut through = options.append(true).open(mount.join("log")).unwrap();
                for record in 0..RECORDS {
                    let bytes = vec![writer; length(writer, record)];
                    match writer % 2 {
                        0 => assert_eq!(straight.append(&bytes).unwrap(), bytes.len()),
                        _ => assert_eq!(through.write(&bytes).unwrap(), bytes.len()),
                    }
                }
            });
        }
    });
    let all = fs::read(server.export().join("log")).unwrap();
    let (mut at, mut seen) = (0, [0; WRITERS as usize]);
    while at < all.len() {
        let writer = all[at];
        let record = &mut seen[usize::from(writer)];
        let end = at + length(writer, *record);
        assert!(all[at..end].iter().all(|byte| *byte == writer), "at {at}");
        (at, *record) = (end, *record + 1);
    }
    assert_eq!(seen, [RECORDS; WRITERS as usize]);
}

#[test]
fn what_another_client_wrote_is_read_at_once() {
    against(|server| {
        let (one, two) = (Mount::of(server), Mount::of(server));
        fs::write(one.join("shared"), b"first").unwrap();
        let reader = File::open(two.join("shared")).unwrap();
        let writer = OpenOptions::new()
            .write(true)
            .open(one.join("shared"))
            .unwrap();
        for round in 0..200u32 {
            let text = format!("round {round:8}");
            writer.write_all_at(text.as_bytes(), 0).unwrap();
            let mut read = vec![0; text.len()];
            reader.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(str::from_utf8(&read).unwrap(), text);
            writer.set_len(14 + u64::from(round)).unwrap();
            assert_eq!(reader.metadata().unwrap().len(), 14 + u64::from(round));
        }
        fs::rename(one.join("shared"), one.join("renamed")).unwrap();
        assert!(!two.join("shared").exists() && two.join("renamed").exists());
    });
}

#[test]
fn with_the_page_cache_a_file_is_fresh_when_it_is_opened() {
    against(|server| {
        let mut options = mount::Options::new(server.options());
        options.freshness = Freshness::AtOpen;
        let (one, two) = (Mount::of(server), Mount::with(options));
        for round in 0..50 {
            let bytes = pattern(round, 10_000);
            fs::write(one.join("shared"), &bytes).unwrap();
            assert!(
                fs::read(two.join("shared")).unwrap() == bytes,
                "round {round}"
            );
        }
        let bytes = pattern(99, 300_000);
        fs::write(two.join("other"), &bytes).unwrap();
        assert!(fs::read(one.join("other")).unwrap() == bytes);
    });
}

#[test]
fn appends_of_four_processes_lose_nothing_and_tear_nothing() {
    mounted(|mount, _| {
        let script =
            "i=0; while [ $i -lt 200 ]; do echo \"process $2 line $i $3\" >> $1; i=$((i+1)); done";
        let filler = "x".repeat(500);
        let mut children: Vec<_> = (0..4)
            .map(|process| {
                let mut command = Command::new("sh");
                command.args(["-euc", script, "sh"]).arg(mount.join("log"));
                command
                    .arg(process.to_string())
                    .arg(&filler)
                    .spawn()
                    .unwrap()
            })
            .collect();
        assert!(
            children
                .iter_mut()
                .all(|child| child.wait().unwrap().success())
        );
        let text = fs::read_to_string(mount.join("log")).unwrap();
        let mut next = [0; 4];
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (process, number): (usize, i32) =
                (words[1].parse().unwrap(), words[3].parse().unwrap());
            assert_eq!((words[4], number), (&*filler, next[process]), "{line}");
            next[process] += 1;
        }
        assert_eq!(next, [200; 4]);
    });
}

#[test]
fn appending_can_be_switched_while_the_file_is_open() {
    mounted(|mount, _| {
        fs::write(mount.join("file"), b"0123456789").unwrap();
        let file = OpenOptions::new()
            .append(true)
            .read(true)
            .open(mount.join("file"))
            .unwrap();
        let set = |flags| rustix::fs::fcntl_setfl(&file, flags).unwrap();
        (&file).write_all(b"end").unwrap();
        set(rustix::fs::OFlags::empty());
        file.write_all_at(b"AB", 2).unwrap();
        set(rustix::fs::OFlags::APPEND);
        (&file).write_all(b"!").unwrap();
        assert_eq!(fs::read(mount.join("file")).unwrap(), b"01AB456789end!");
    });
}

#[test]
fn files_that_are_renamed_over_or_removed_live_while_they_are_open() {
    mounted(|mount, server| {
        fs::write(mount.join("old"), b"old content").unwrap();
        fs::write(mount.join("new"), b"new content").unwrap();
        let mut old = OpenOptions::new()
            .read(true)
            .write(true)
            .open(mount.join("old"))
            .unwrap();
        let mut new = File::open(mount.join("new")).unwrap();
        fs::rename(mount.join("new"), mount.join("old")).unwrap();
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old content");
        text.clear();
        new.read_to_string(&mut text).unwrap();
        assert_eq!(
            (&*text, &*fs::read_to_string(mount.join("old")).unwrap()),
            ("new content", "new content")
        );
        old.write_all_at(b"OLD", 0).unwrap();
        old.seek(SeekFrom::Start(0)).unwrap();
        text.clear();
        old.read_to_string(&mut text).unwrap();
        assert_eq!(text, "OLD content");
        match server.is_ours() {
            true => {
                old.write_all_at(b"still", 100).unwrap();
                assert_eq!(old.metadata().unwrap().len(), 105);
                old.set_len(3).unwrap();
                assert_eq!(old.metadata().unwrap().len(), 3);
            }
            // diod goes by the name, where another file is now: better no answer than that one's.
            false => {
                assert_eq!(old.metadata().unwrap_err().raw_os_error(), Some(116));
                assert_eq!(old.set_len(3).unwrap_err().raw_os_error(), Some(116));
            }
        }
        fs::remove_file(mount.join("old")).unwrap();
        new.seek(SeekFrom::Start(0)).unwrap();
        text.clear();
        new.read_to_string(&mut text).unwrap();
        assert_eq!((&*text, mount.join("old").exists()), ("new content", false));
        fs::write(mount.join("old"), b"a third one").unwrap();
        assert_eq!(fs::read(mount.join("old")).unwrap(), b"a third one");
        new.seek(SeekFrom::Start(0)).unwrap();
        text.clear();
        new.read_to_string(&mut text).unwrap();
        assert_eq!(text, "new content");
    });
}

#[test]
fn directories_move_with_what_is_in_use_below_them() {
    mounted(|mount, server| {
        fs::create_dir_all(mount.join("a/b")).unwrap();
        fs::write(mount.join("a/b/file"), b"content").unwrap();
        let shell_in = |dir: &str, script: &str| {
            let mut command = Command::new("sh");
            command
                .current_dir(mount.join(dir))
                .args(["-euc", script, "sh"]);
            command.arg(mount.path()).output().unwrap()
        };
        // Its working directory moves while it works there.
        let moved = shell_in("a/b", "mv $1/a $1/z; cat file; echo more > another; ls");
        assert_eq!(
            String::from_utf8_lossy(&moved.stdout),
            "contentanother\nfile\n"
        );
        assert_eq!(
            fs::read(server.export().join("z/b/another")).unwrap(),
            b"more\n"
        );
        assert_eq!(fs::read_dir(mount.join("z/b")).unwrap().count(), 2);
        let refused = rustix::fs::renameat_with(
            rustix::fs::CWD,
            mount.join("z"),
            rustix::fs::CWD,
            mount.join("y"),
            rustix::fs::RenameFlags::NOREPLACE,
        );
        assert_eq!(refused, Err(rustix::io::Errno::INVAL));
    });
}

#[test]
fn links_devices_modes_and_times_are_those_of_the_export() {
    mounted(|mount, server| {
        fs::write(mount.join("file"), b"12345").unwrap();
        fs::hard_link(mount.join("file"), mount.join("hard")).unwrap();
        symlink("no/such place", mount.join("soft")).unwrap();
        shell(
            "mkfifo $1/pipe; mknod $1/null c 1 3; mknod $1/plain b 7 300",
            &[mount.path()],
        );
        fs::set_permissions(mount.join("file"), fs::Permissions::from_mode(0o4751)).unwrap();
        for name in ["file", "hard", "soft", "pipe", "null", "plain"] {
            let (here, there) = (
                fs::symlink_metadata(mount.join(name)).unwrap(),
                fs::symlink_metadata(server.export().join(name)).unwrap(),
            );
            let told = |m: &fs::Metadata| {
                (
                    m.mode(),
                    m.nlink(),
                    m.size(),
                    m.uid(),
                    m.gid(),
                    m.rdev(),
                    m.ino(),
                    m.mtime_nsec(),
                )
            };
            assert_eq!(told(&here), told(&there), "{name}");
        }
        assert_eq!(
            fs::read_link(mount.join("soft")).unwrap().to_str(),
            Some("no/such place")
        );
        let exclusive = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(mount.join("file"));
        assert_eq!(
            exclusive.unwrap_err().kind(),
            std::io::ErrorKind::AlreadyExists
        );
        let cut = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(mount.join("file"))
            .unwrap();
        assert_eq!(
            (
                cut.metadata().unwrap().len(),
                fs::read(mount.join("hard")).unwrap()
            ),
            (0, vec![])
        );
        let missing = fs::remove_dir(mount.join("nothing")).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        fs::create_dir(mount.join("full")).unwrap();
        fs::write(mount.join("full/x"), b"").unwrap();
        assert_eq!(
            fs::remove_dir(mount.join("full")).unwrap_err().kind(),
            std::io::ErrorKind::DirectoryNotEmpty
        );
        assert_eq!(
            fs::remove_file(mount.join("full")).unwrap_err().kind(),
            std::io::ErrorKind::IsADirectory
        );
    });
}

#[test]
fn directories_of_thousands_are_listed_completely_also_while_they_change() {
    mounted(|mount, server| {
        fs::create_dir(mount.join("many")).unwrap();
        for i in 0..3000 {
            fs::write(server.export().join(format!("many/entry-{i:05}")), b"").unwrap();
        }
        let listing = fs::read_dir(mount.join("many")).unwrap();
        let mut names: Vec<_> = listing.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 3000);
        // Removing what was listed must not hide the rest.
        shell("rm -r $1/many", &[mount.path()]);
        assert!(!server.export().join("many").exists());
    });
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    mounted(|mount, server| {
        use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
        fs::write(mount.join("tagged"), b"").unwrap();
        let (here, there) = (mount.join("tagged"), server.export().join("tagged"));
        setxattr(&here, "user.colour", b"dark blue", XattrFlags::empty()).unwrap();
        let mut value = [0u8; 64];
        assert_eq!(getxattr(&there, "user.colour", &mut value).unwrap(), 9);
        assert_eq!(getxattr(&here, "user.colour", &mut value).unwrap(), 9);
        assert_eq!(&value[..9], b"dark blue");
        assert_eq!(
            setxattr(&here, "user.colour", b"red", XattrFlags::CREATE),
            Err(rustix::io::Errno::EXIST)
        );
        let mut names = [0u8; 64];
        let count = listxattr(&here, &mut names).unwrap();
        assert_eq!(&names[..count], b"user.colour\0");
        removexattr(&here, "user.colour").unwrap();
        assert_eq!(
            getxattr(&here, "user.colour", &mut value),
            Err(rustix::io::Errno::NODATA)
        );
    });
}

#[test]
fn mapped_files_are_read_and_written() {
    mounted(|mount, server| {
        let bytes = pattern(3, 100_000);
        fs::write(mount.join("mapped"), &bytes).unwrap();
        let program = "import mmap,sys
f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); assert m[:]==open(sys.argv[2],'rb').read(); m[5000:5005]=b'hello'; m.flush(); m.close()";
        let mut python = Command::new("python3");
        python
            .arg("-c")
            .arg(program)
            .arg(mount.join("mapped"))
            .arg(server.export().join("mapped"));
        assert!(python.status().unwrap().success());
        let mut expected = bytes;
        expected[5000..5005].copy_from_slice(b"hello");
        assert!(fs::read(server.export().join("mapped")).unwrap() == expected);
        // Programs are mapped too.
        fs::copy("/bin/true", mount.join("true")).unwrap();
        assert!(Command::new(mount.join("true")).status().unwrap().success());
    });
}

#[test]
fn locks_keep_others_out_and_who_waits_for_one_can_be_killed() {
    against(|server| {
        let (one, two) = (Mount::of(server), Mount::of(server));
        fs::write(one.join("locked"), b"").unwrap();
        let held = File::options()
            .read(true)
            .write(true)
            .open(one.join("locked"))
            .unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let other = File::options()
            .read(true)
            .write(true)
            .open(two.join("locked"))
            .unwrap();
        let refused =
            rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(rustix::io::Errno::AGAIN));
        let mut waits = Command::new("flock")
            .arg(two.join("locked"))
            .arg("true")
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(waits.try_wait().unwrap().is_none());
        waits.kill().unwrap();
        assert!(!waits.wait().unwrap().success());
        let mut waits = Command::new("flock")
            .arg(two.join("locked"))
            .arg("true")
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop(held);
        assert!(waits.wait().unwrap().success());
    });
}

#[test]
fn a_lock_outlives_a_killed_node_or_its_file_says_that_it_is_lost() {
    use rustix::fs::{FlockOperation, flock};
    against(|server| {
        let (one, two) = (Mount::of(server), Mount::of(server));
        fs::write(one.join("locked"), b"").unwrap();
        let open = |mount: &Mount| {
            let mut options = File::options();
            options
                .read(true)
                .write(true)
                .open(mount.join("locked"))
                .unwrap()
        };
        let (held, other) = (open(&one), open(&two));
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        server.kill();
        server.start_again();
        match server.is_ours() {
            true => {
                held.write_all_at(b"mine", 0).unwrap();
                // Within the grace of the node others wait; after it the lock is still ours.
                let refused = flock(&other, FlockOperation::NonBlockingLockExclusive);
                assert_eq!(refused, Err(rustix::io::Errno::AGAIN));
                flock(&held, FlockOperation::Unlock).unwrap();
                flock(&other, FlockOperation::LockExclusive).unwrap();
            }
            false => {
                let lost = held.write_all_at(b"mine", 0).unwrap_err();
                assert_eq!(lost.raw_os_error(), Some(5));
                flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
            }
        }
    });
}

#[test]
fn many_threads_read_and_write_one_file_each_its_own_blocks() {
    mounted(|mount, server| {
        let path = mount.join("shared");
        File::create(&path).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let path = &path;
                scope.spawn(move || {
                    let file = File::options().read(true).write(true).open(path).unwrap();
                    for block in 0..60 {
                        let bytes = pattern(thread * 1000 + block, 7000);
                        let offset = (block * 8 + thread) * 7000;
                        file.write_all_at(&bytes, offset).unwrap();
                        let mut read = vec![0; bytes.len()];
                        file.read_exact_at(&mut read, offset).unwrap();
                        assert!(read == bytes);
                    }
                });
            }
        });
        let all = fs::read(server.export().join("shared")).unwrap();
        for (index, block) in all.chunks(7000).enumerate() {
            let (thread, block_number) = (index as u64 % 8, index as u64 / 8);
            assert!(block == pattern(thread * 1000 + block_number, 7000));
        }
    });
}

#[test]
fn users_are_let_in_as_themselves() {
    mounted(|mount, server| {
        if !common::is_root("acting as other users") {
            return;
        }
        for dir in [
            server.export(),
            mount.path().to_owned(),
            server.export().parent().unwrap().to_owned(),
        ] {
            let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o777));
        }
        fs::write(mount.join("secret"), b"root's").unwrap();
        fs::set_permissions(mount.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let as_nobody = |script: &str| {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "sh",
                "-euc",
                script,
                "sh",
            ]);
            command.arg(mount.path()).output().unwrap()
        };
        let made = as_nobody("echo mine > $1/mine; test -r $1/mine; ! test -r $1/secret");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        assert_eq!(
            fs::metadata(server.export().join("mine")).unwrap().uid(),
            65534
        );
        let refused = as_nobody("cat $1/secret");
        assert!(!refused.status.success() && refused.stdout.is_empty());
    });
}

/// What it may not do to a file of another's, it may not do either when the file has lost its name.
const NAMELESS: &str = r#"
import os, sys
path = sys.argv[1] + '/file'
owner, reader, stranger = 61001, 61002, 61003
def become(user):
    os.seteuid(0); os.setegid(user); os.seteuid(user)
become(owner)
mine = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
become(reader)
theirs = os.open(path, os.O_RDONLY)
become(owner)
os.unlink(path)
for user in (stranger, reader):
    become(user)
    for change in (lambda: os.fchmod(theirs, 0o666), lambda: os.utime(theirs, (1, 1)), lambda: os.fchown(theirs, user, user)):
        try:
            change()
        except OSError:
            continue
        sys.exit(f'{user} changed what is not its own')
become(owner)
assert os.fstat(mine).st_mode & 0o777 == 0o644
os.fchmod(mine, 0o600)
assert os.fstat(mine).st_mode & 0o777 == 0o600
"#;

#[test]
fn nobody_changes_a_file_without_a_name_in_the_name_of_another() {
    if !common::is_root("acting as other users") {
        return;
    }
    let server = Server::start();
    let mount = Mount::of(&server);
    for dir in [
        server.export(),
        mount.path().to_owned(),
        server.export().parent().unwrap().to_owned(),
    ] {
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o777));
    }
    let mut python = Command::new("python3");
    let said = python.args(["-c", NAMELESS]).arg(mount.path()).output();
    let said = said.unwrap();
    let err = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{err}");
}

#[test]
fn fids_are_given_back_when_the_kernel_forgets() {
    mounted(|mount, _| {
        for round in 0..3 {
            for i in 0..200 {
                fs::write(mount.join(&format!("file{i}")), b"x").unwrap();
            }
            for i in 0..200 {
                fs::remove_file(mount.join(&format!("file{i}"))).unwrap();
            }
            let late = std::time::Instant::now() + Duration::from_secs(60);
            while mount.remote().status().files > 20 {
                assert!(
                    std::time::Instant::now() < late,
                    "round {round}: {:?}",
                    mount.remote().status()
                );
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
}

#[test]
fn what_a_killed_mount_leaves_is_cleared_by_the_next() {
    against(|server| {
        // Killed as a process is: the connection to the kernel ends, the mount point stays.
        let directory = tempfile::tempdir().unwrap();
        let mut child = common::mount_process(server, directory.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(fs::metadata(directory.path()).is_err(), "a dead mount");
        let mut child = common::mount_process(server, directory.path());
        fs::write(directory.path().join("file"), b"alive").unwrap();
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(fs::read(server.export().join("file")).unwrap(), b"alive");
    });
}
