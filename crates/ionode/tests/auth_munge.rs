//! Over TCP, a MUNGE credential says who somebody is, and nothing else does.

mod auth;
mod common;

use auth::munged::Munged;
use auth::{Guarded, audited, open_to_all};
use common::{errno, is_root, options, own_uid, pattern, read_all, refusal, refused, rw_file};
use presagio_ionode::TcpProof;
use presagio_ninep::client::{Client, Error};
use presagio_ninep::extension::Wrapped;
use presagio_ninep::session::{File, Session};
use presagio_ninep::{
    Data, Dialect, Errno, Fid, GetAttr, Name, OpenFlags, QidKind, Reply, Request, Text,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Users that no machine knows, each in one test.
const ANNA: u32 = 62_001;
const BERT: u32 = 62_002;

fn guarded(munged: &Munged) -> Guarded {
    guarded_with(munged, false)
}

fn guarded_with(munged: &Munged, allow_root: bool) -> Guarded {
    Guarded::with(|config| {
        config.allow_root = allow_root;
        config.tcp = TcpProof::Munge {
            socket: Some(munged.socket()),
        };
    })
}

fn session(node: &Guarded) -> Session {
    Session::new(Client::tcp(node.tcp(), &options()).expect("the node listens"))
}

/// The root of the export, for `uid` with this credential.
fn attach(session: &Session, uid: u32, credential: Vec<u8>) -> Result<File, Error> {
    session.attach_with("", "/", uid, || Ok(credential))
}

/// Tauth by hand.
fn begin(session: &Session, auth_fid: Fid) -> Result<(), Error> {
    let text = Text::new("").unwrap();
    let request = Request::Auth {
        auth_fid,
        user: text,
        export: text,
        uid: ANNA,
    };
    let answer = session.client().call(request)?;
    let Reply::Auth { qid } = answer.reply() else {
        unreachable!("what was asked for")
    };
    assert_eq!(qid.kind, QidKind::AUTH);
    Ok(())
}

fn attach_by(session: &Session, fid: Fid, auth_fid: Fid, uid: u32) -> Result<(), Error> {
    let text = Text::new("").unwrap();
    let request = Request::Attach {
        fid,
        auth_fid,
        user: text,
        export: text,
        uid,
    };
    session.client().call(request).map(drop)
}

/// That an attempt is refused with this errno, counted, and audited once with these words.
#[track_caller]
fn is_refused(node: &Guarded, uid: u32, result: Result<File, Error>, wanted: Errno, why: &str) {
    assert_eq!(refusal(result), wanted);
    assert_eq!(node.refused(), 1);
    let lines = audited(&format!("uid {uid}: "));
    assert!(
        lines.len() == 1 && lines[0].contains(why),
        "{why}: {lines:?}"
    );
}

#[test]
fn a_credential_lets_its_user_in_and_bytes_are_right() {
    let munged = Munged::start();
    let node = guarded_with(&munged, true);
    let session = session(&node);
    let root = attach(&session, own_uid(), munged.own()).expect("our own user");
    let bytes = pattern(7, 300_000);
    let file = rw_file(&root, "file");
    assert_eq!(file.write_at(0, &bytes).unwrap(), bytes.len());
    assert!(read_all(&file) == bytes);
    assert!(std::fs::read(node.path("file")).unwrap() == bytes);
    assert_eq!(
        std::fs::metadata(node.path("file")).unwrap().uid(),
        own_uid()
    );
    assert_eq!(node.refused(), 0);
}

#[test]
fn what_a_user_makes_is_that_users() {
    if !is_root("acting as others") {
        return;
    }
    let munged = Munged::start();
    let node = guarded(&munged);
    let session = session(&node);
    let root = attach(&session, ANNA, munged.credential_of(ANNA, &[])).expect("Anna");
    rw_file(&root, "hers");
    let stat = std::fs::metadata(node.path("hers")).unwrap();
    assert_eq!((stat.uid(), stat.gid()), (ANNA, ANNA));
    // Two users on one connection, each with what proves it.
    let root = attach(&session, BERT, munged.credential_of(BERT, &[])).expect("Bert");
    rw_file(&root, "his");
    assert_eq!(std::fs::metadata(node.path("his")).unwrap().uid(), BERT);
    let mut hers = root.walk("hers").unwrap();
    refused(hers.open(OpenFlags::RDWR), Errno::ACCES);
}

#[test]
fn nobody_comes_in_without_a_credential() {
    let munged = Munged::start();
    let node = guarded(&munged);
    let result = session(&node).attach("", "/", 62_010);
    is_refused(&node, 62_010, result, Errno::PERM, "not proved");
}

#[test]
fn a_user_is_no_other() {
    if !is_root("credentials of others") {
        return;
    }
    let munged = Munged::start();
    let node = guarded(&munged);
    let result = attach(&session(&node), 62_020, munged.credential_of(ANNA, &[]));
    is_refused(&node, 62_020, result, Errno::PERM, "of uid 62001");
}

#[test]
fn what_is_no_credential_proves_nothing() {
    let munged = Munged::start();
    for (uid, wrong) in [
        (62_030, &b""[..]),
        (62_031, b"nothing"),
        (62_032, b"MUNGE:AAAA:"),
        (62_033, b"MUNGE:\0AAA:"),
    ] {
        let node = guarded(&munged);
        let result = attach(&session(&node), uid, wrong.to_vec());
        is_refused(&node, uid, result, Errno::PERM, "credential");
    }
    let mut changed = munged.own();
    let middle = changed.len() / 2;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    let node = guarded(&munged);
    let result = attach(&session(&node), 62_034, changed);
    is_refused(&node, 62_034, result, Errno::PERM, "credential");
}

#[test]
fn a_credential_is_good_for_one_time() {
    let munged = Munged::start();
    let node = guarded_with(&munged, true);
    let credential = munged.own();
    attach(&session(&node), own_uid(), credential.clone()).expect("the first time");
    let result = attach(&session(&node), 62_040, credential);
    is_refused(&node, 62_040, result, Errno::PERM, "Replayed");
}

#[test]
fn a_credential_that_is_too_old_is_none() {
    let munged = Munged::start();
    let node = guarded(&munged);
    let credential = munged.credential_of(own_uid(), &["--ttl=1"]);
    std::thread::sleep(Duration::from_millis(2500));
    let result = attach(&session(&node), 62_050, credential);
    is_refused(&node, 62_050, result, Errno::PERM, "Expired");
}

#[test]
fn a_credential_of_another_cluster_is_none() {
    let (munged, other) = (Munged::start(), Munged::start());
    let node = guarded(&munged);
    let result = attach(&session(&node), 62_060, other.own());
    is_refused(&node, 62_060, result, Errno::PERM, "Invalid credential");
}

#[test]
fn a_daemon_that_is_gone_is_an_error_and_lets_nobody_in() {
    let munged = Munged::start();
    let node = guarded(&munged);
    let credential = munged.own();
    drop(munged);
    let result = attach(&session(&node), 62_070, credential);
    is_refused(&node, 62_070, result, Errno::IO, "could not be checked");
}

#[test]
fn root_of_another_machine_is_nobody_unless_that_is_allowed() {
    if !is_root("credentials of root") {
        return;
    }
    let munged = Munged::start();
    let node = guarded(&munged);
    let root = attach(&session(&node), 0, munged.own()).expect("as nobody");
    rw_file(&root, "nobodys");
    assert_eq!(
        std::fs::metadata(node.path("nobodys")).unwrap().uid(),
        65_534
    );
    let result = attach(&session(&node), 62_080, munged.own());
    is_refused(&node, 62_080, result, Errno::PERM, "another user");
    let node = guarded_with(&munged, true);
    let root = attach(&session(&node), 62_081, munged.own()).expect("as anybody");
    rw_file(&root, "somebodys");
    assert_eq!(
        std::fs::metadata(node.path("somebodys")).unwrap().uid(),
        62_081
    );
}

#[test]
fn what_was_proved_counts_for_its_connection_and_no_other() {
    let munged = Munged::start();
    let node = guarded_with(&munged, true);
    let (one, other) = (session(&node), session(&node));
    let (auth_fid, credential) = (Fid(1), munged.own());
    begin(&one, auth_fid).unwrap();
    let (head, tail) = credential.split_at(40);
    assert_eq!(one.client().write(auth_fid, 0, head).unwrap(), 40);
    one.client().write(auth_fid, 40, tail).unwrap();
    attach_by(&one, Fid(2), auth_fid, own_uid()).expect("proved");
    attach_by(&one, Fid(3), auth_fid, own_uid()).expect("proved before");
    refused(attach_by(&other, Fid(2), auth_fid, own_uid()), Errno::BADF);
    begin(&other, auth_fid).unwrap();
    refused(attach_by(&other, Fid(2), auth_fid, own_uid()), Errno::PERM);
    // A fid that is a file proves nothing.
    refused(attach_by(&one, Fid(4), Fid(2), own_uid()), Errno::BADF);
    assert_eq!(node.refused(), 3);
}

#[test]
fn the_fid_of_a_credential_is_no_file() {
    let munged = Munged::start();
    let node = guarded_with(&munged, true);
    let session = session(&node);
    let (client, fid) = (session.client(), Fid(1));
    begin(&session, fid).unwrap();
    refused(client.read(fid, 0, &mut [0; 10]), Errno::OPNOTSUPP);
    let name = Name::new("made").unwrap();
    let requests = [
        Request::GetAttr {
            fid,
            mask: GetAttr::BASIC,
        },
        Request::Open {
            fid,
            flags: OpenFlags::RDONLY,
        },
        Request::Mkdir {
            dir: fid,
            name,
            mode: 0o777,
            gid: 0,
        },
        Request::Create {
            fid,
            name,
            flags: OpenFlags::RDWR,
            mode: 0o666,
            gid: 0,
        },
        Request::Walk {
            fid,
            new_fid: Fid(9),
            steps: presagio_ninep::List::new(&[]).unwrap(),
        },
        Request::StatFs { fid },
        Request::Handle { fid },
        Request::Remove { fid },
    ];
    for request in requests {
        refused(client.call(request), Errno::BADF);
    }
    assert!(!node.path("made").exists());
    refused(begin(&session, fid), Errno::BADF);
    refused(begin(&session, Fid::NONE), Errno::BADF);
    client.call(Request::Clunk { fid }).unwrap();
    refused(client.call(Request::Clunk { fid }), Errno::BADF);
    begin(&session, fid).unwrap();
}

#[test]
fn who_has_proved_nothing_gets_little_memory() {
    let munged = Munged::start();
    let node = guarded(&munged);
    let session = session(&node);
    let many: Vec<_> = (0..100).map(|fid| begin(&session, Fid(fid))).collect();
    let taken = many.iter().filter(|begun| begun.is_ok()).count();
    assert!(taken < 64, "{taken}");
    for (offset, size, wanted) in [(0, 5000, libc::EMSGSIZE), (7, 10, libc::EINVAL)] {
        let bytes = vec![b'x'; size];
        let data = Data::new(&bytes).unwrap();
        let written = session.client().call(Request::Write {
            fid: Fid(0),
            offset,
            data,
        });
        refused(written, errno(wanted));
    }
    // Larger than anything that proves something.
    let large = session.client().write(Fid(0), 0, &vec![b'x'; 200_000]);
    is_lost(large.map(drop));
}

/// Says who it is, before it has proved that; returns what to come back with.
fn hello(session: &Session, resume: [u8; 16]) -> [u8; 16] {
    let text = Text::new("").unwrap();
    let answer = session.client().call(Request::Hello {
        instance: [0x62; 16],
        resume,
        client: text,
        job: text,
        rank: 0,
        program: text,
    });
    match answer.expect("anybody may").reply() {
        Reply::Hello { resume, .. } => resume,
        other => panic!("{other:?}"),
    }
}

fn make_once(session: &Session, root: &File, name: &str) -> Result<(), Error> {
    let mkdir = Request::Mkdir {
        dir: root.fid(),
        name: Name::new(name).unwrap(),
        mode: 0o755,
        gid: u32::MAX,
    };
    let request = Wrapped::new(&mkdir).unwrap();
    let (sequence, settled) = (1, 0);
    let once = Request::Once {
        sequence,
        settled,
        request,
    };
    session.client().call(once).map(drop)
}

#[test]
fn nobody_comes_as_the_client_of_another_user() {
    if !is_root("acting as others") {
        return;
    }
    let munged = Munged::start();
    let node = guarded(&munged);
    let (anna, bert) = (62_110, 62_111);
    let come = |uid, resume| {
        let session = session(&node);
        let token = hello(&session, resume);
        let root = attach(&session, uid, munged.credential_of(uid, &[])).expect("itself");
        (session, root, token)
    };
    let (hers, her_root, token) = come(anna, [0; 16]);
    make_once(&hers, &her_root, "hers").unwrap();
    // He has seen what she comes back with.
    let (his, his_root, _) = come(bert, token);
    refused(make_once(&his, &his_root, "hers"), Errno::PERM);
    assert_eq!(audited("another user's client").len(), 1);
    rw_file(&her_root, "her-session-goes-on");
    let (again, root, _) = come(anna, token);
    make_once(&again, &root, "hers").expect("the answer of then");
    refused(her_root.walk("hers"), Errno::IO);
}

/// Begins sessions without end, and proves nothing.
#[test]
fn who_says_only_versions_is_left_after_a_while() {
    let munged = Munged::start();
    let node = guarded(&munged);
    let mut stream = TcpStream::connect(node.tcp()).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let (msize, version) = (65536, Dialect::Linux.version());
    let version = common::raw::encoded(u16::MAX, &Request::Version { msize, version });
    let mut reply = vec![0; version.len()];
    let late = Instant::now() + common::PATIENCE;
    while stream.write_all(&version).is_ok() && stream.read_exact(&mut reply).is_ok() {
        assert!(Instant::now() < late, "it is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(node.ended(), 1);
}

#[test]
fn who_does_not_say_who_it_is_is_left_after_a_while() {
    let munged = Munged::start();
    let node = guarded_with(&munged, true);
    let known = session(&node);
    let root = attach(&known, own_uid(), munged.own()).expect("our own user");
    let silent = session(&node);
    begin(&silent, Fid(1)).unwrap();
    common::wait_until("it is left", || node.ended() == 1);
    is_lost(begin(&silent, Fid(2)));
    rw_file(&root, "still-there");
}

fn is_lost(result: Result<(), Error>) {
    assert!(matches!(result, Err(Error::Lost { .. })), "{result:?}");
}

#[test]
fn where_no_credential_is_asked_for_none_is_made() {
    let node = Guarded::with(|_| {});
    let made = || panic!("it was not asked for");
    let session = session(&node);
    let root = session.attach_with("", "/", own_uid(), made);
    rw_file(&root.expect("the kernel knows us"), "file");
}

#[test]
fn unix_sockets_ask_the_kernel_still() {
    let munged = Munged::start();
    let node = guarded(&munged);
    let client = Client::unix(&node.socket(), &options()).unwrap();
    let session = Session::new(client);
    let root = session.attach_with("", "/", own_uid(), || panic!("it was not asked for"));
    rw_file(&root.unwrap(), "file");
}

/// Runs a command where munged's usual socket is that of ours, which only root can arrange.
fn where_munge_is(munged: &Munged, command: &str) -> Command {
    let mut shell = Command::new("unshare");
    let script = format!(
        "mount -t tmpfs none /run && mkdir /run/munge && \
         mount --bind {} /run/munge && exec {command}",
        munged.directory().display()
    );
    shell.args(["--mount", "sh", "-c", &script]);
    shell
}

#[test]
fn diods_own_clients_come_in_by_their_credential() {
    if !is_root("a mount for munged's usual socket") {
        return;
    }
    let munged = Munged::start();
    let node = guarded_with(&munged, true);
    let bytes = pattern(3, 150_000);
    std::fs::write(node.path("file"), &bytes).unwrap();
    let run = |program: &str| -> Output {
        let command = format!("/usr/sbin/{program} -s {} -a /", node.tcp());
        where_munge_is(&munged, &command).output().expect("unshare")
    };
    let output = run("diodcat -a / file");
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == bytes);
    let output = run("diodls -l .");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("150000"));
    // Where there is no munged, there is no way in.
    let output = Command::new("/usr/sbin/diodcat")
        .args(["-s", node.tcp(), "-a", "/", "file"])
        .output()
        .unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
}

#[test]
fn diods_server_takes_our_credential() {
    if !is_root("a mount for munged's usual socket") {
        return;
    }
    let munged = Munged::start();
    let directory = tempfile::tempdir().unwrap();
    open_to_all(directory.path());
    let (export, port) = (directory.path().join("export"), free_port());
    std::fs::create_dir(&export).unwrap();
    std::fs::write(export.join("file"), "forwarded").unwrap();
    let command = format!(
        "/usr/sbin/diod -f -c /dev/null -L {} -e {} -l 127.0.0.1:{port}",
        directory.path().join("log").display(),
        export.display()
    );
    let mut child = where_munge_is(&munged, &command).spawn().expect("unshare");
    let read = || -> Result<Vec<u8>, Error> {
        let client = Client::tcp(("127.0.0.1", port), &options()).expect("diod listens");
        let session = Session::new(client);
        let root = session.attach_with("", export.to_str().unwrap(), 0, || Ok(munged.own()))?;
        let mut file = root.walk("file")?;
        file.open(OpenFlags::RDONLY)?;
        Ok(read_all(&file))
    };
    common::wait_until("diod listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let read = read();
    // The shell has become diod.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(read.unwrap(), b"forwarded");
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
