//! An operation is done as the user who asked for it, or not at all.

mod auth;
mod common;

use common::users::{To, kind_and_errno, talk_as};
use common::{Exported, errno, is_root, names, opened, read_all, refused, rw_file};
use presagio_ninep::client::{Client, Error};
use presagio_ninep::session::{File, Session};
use presagio_ninep::{
    Errno, Fid, GetAttr, Kind, Name, OpenFlags, Request, SetAttr, SetMask, UnlinkFlags, XattrFlags,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

/// Users that no machine knows.
const ANNA: u32 = 61_001;
const BERT: u32 = 61_002;

/// A node whose root everybody may write to.
fn shared() -> Option<Exported> {
    if !is_root("acting as others") {
        return None;
    }
    let node = Exported::start();
    set_mode(&node, "", 0o777);
    Some(node)
}

fn set_mode(node: &Exported, name: &str, mode: u32) {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(node.path(name), permissions).unwrap();
}

fn mkdir(name: &'static str) -> Request<'static> {
    Request::Mkdir {
        dir: Fid(0),
        name: Name::new(name).unwrap(),
        mode: 0o755,
        gid: u32::MAX,
    }
}

fn set_mask(file: &File, valid: SetMask, attr: SetAttr) -> Result<(), Error> {
    file.setattr(SetAttr { valid, ..attr })
}

#[test]
fn what_a_user_makes_belongs_to_that_user() {
    let Some(node) = shared() else { return };
    let (_session, root) = node.connect_as(ANNA);
    rw_file(&root, "file").write_at(0, b"hers").unwrap();
    root.mkdir("dir", 0o755).unwrap();
    root.symlink("link", "file").unwrap();
    root.mknod("pipe", 0o010_600, (0, 0)).unwrap();
    root.mknod("plain", 0o100_600, (0, 0)).unwrap();
    for name in ["file", "dir", "link", "pipe", "plain"] {
        let stat = fs::symlink_metadata(node.path(name)).unwrap();
        assert_eq!(stat.uid(), ANNA, "{name}");
        assert_ne!(stat.gid(), 0, "{name}");
    }
}

#[test]
fn a_user_cannot_do_what_only_root_may() {
    let Some(node) = shared() else { return };
    fs::write(node.path("roots"), "secret").unwrap();
    set_mode(&node, "roots", 0o600);
    fs::create_dir(node.path("closed")).unwrap();
    fs::write(node.path("closed/inner"), "secret").unwrap();
    set_mode(&node, "closed", 0o700);
    fs::create_dir(node.path("listed")).unwrap();
    set_mode(&node, "listed", 0o755);
    let (_session, root) = node.connect_as(ANNA);
    let mut file = root.walk("roots").unwrap();
    for flags in [OpenFlags::RDONLY, OpenFlags::WRONLY, OpenFlags::RDWR] {
        refused(file.open(flags), Errno::ACCES);
    }
    let cut = OpenFlags::RDONLY | OpenFlags::TRUNC;
    refused(file.open(cut), Errno::ACCES);
    let attr = SetAttr::default();
    refused(set_mask(&file, SetMask::SIZE, attr), Errno::ACCES);
    refused(set_mask(&file, SetMask::MODE, attr), Errno::PERM);
    refused(set_mask(&file, SetMask::UID, attr), Errno::PERM);
    let given = SetAttr { uid: ANNA, ..attr };
    refused(set_mask(&file, SetMask::UID, given), Errno::PERM);
    let tagged = file.set_xattr("user.x", b"x", XattrFlags(0));
    refused(tagged, Errno::ACCES);
    refused(root.walk("closed/inner"), Errno::NOENT);
    let closed = root.walk("closed").unwrap();
    refused(closed.walk("inner"), Errno::ACCES);
    refused(closed.read_dir(), Errno::ACCES);
    refused(closed.unlink("inner", UnlinkFlags(0)), Errno::ACCES);
    let listed = root.walk("listed").unwrap();
    refused(listed.mkdir("dir", 0o700), Errno::ACCES);
    refused(listed.create("x", OpenFlags::RDWR, 0o600), Errno::ACCES);
    refused(listed.symlink("x", "y"), Errno::ACCES);
    refused(root.rename_at("roots", &listed, "x"), Errno::ACCES);
    let device = root.mknod("device", 0o020_600, (1, 3));
    refused(device, Errno::PERM);
    assert_eq!(fs::read(node.path("roots")).unwrap(), b"secret");
}

#[test]
fn root_may_what_a_user_may_not() {
    let Some(node) = shared() else { return };
    fs::write(node.path("roots"), "secret").unwrap();
    set_mode(&node, "roots", 0o600);
    let (_session, root) = node.connect_as(0);
    assert_eq!(
        read_all(&opened(&root, "roots", OpenFlags::RDONLY)),
        b"secret"
    );
    let file = root.walk("roots").unwrap();
    let given = SetAttr {
        uid: BERT,
        gid: BERT,
        ..SetAttr::default()
    };
    set_mask(&file, SetMask::UID | SetMask::GID, given).unwrap();
    let stat = fs::metadata(node.path("roots")).unwrap();
    assert_eq!((stat.uid(), stat.gid()), (BERT, BERT));
}

#[test]
fn many_users_at_once_are_never_mixed_up() {
    let Some(node) = shared() else { return };
    std::thread::scope(|scope| {
        for uid in [0, ANNA, BERT, ANNA, BERT, 0] {
            let node = &node;
            scope.spawn(move || {
                let (_session, root) = node.connect_as(uid);
                for round in 0..60 {
                    let thread = std::thread::current().id();
                    let name = format!("{uid}-{thread:?}-{round}");
                    let file = rw_file(&root, &name);
                    file.write_at(0, name.as_bytes()).unwrap();
                    assert_eq!(read_all(&file), name.as_bytes());
                    let stat = fs::metadata(node.path(&name)).unwrap();
                    assert_eq!(stat.uid(), uid, "{name}");
                }
            });
        }
    });
}

#[test]
fn users_of_one_connection_are_kept_apart() {
    let Some(node) = shared() else { return };
    let client = Client::unix(&node.socket(), &common::options()).unwrap();
    let session = Session::new(client);
    let anna = session.attach("", "/", ANNA).unwrap();
    let bert = session.attach("", "/", BERT).unwrap();
    let hers = anna.create("hers", OpenFlags::RDWR, 0o600).unwrap();
    hers.write_at(0, b"private").unwrap();
    let mut file = bert.walk("hers").unwrap();
    refused(file.open(OpenFlags::RDONLY), Errno::ACCES);
    rw_file(&bert, "his");
    let owner = |name| fs::metadata(node.path(name)).unwrap().uid();
    assert_eq!((owner("hers"), owner("his")), (ANNA, BERT));
    assert_eq!(read_all(&hers), b"private");
}

#[test]
fn groups_of_a_user_count() {
    let Some(node) = shared() else { return };
    // Debian's users `daemon` and `bin` have groups of their own number.
    let (uid, gid) = (1, 1);
    fs::write(node.path("groups"), "for the group").unwrap();
    chown(node.path("groups"), Some(0), Some(gid)).unwrap();
    set_mode(&node, "groups", 0o640);
    let (_member, root) = node.connect_as(uid);
    let file = opened(&root, "groups", OpenFlags::RDONLY);
    assert_eq!(read_all(&file), b"for the group");
    let mut file = root.walk("groups").unwrap();
    refused(file.open(OpenFlags::RDWR), Errno::ACCES);
    let (_other, root) = node.connect_as(2);
    let mut file = root.walk("groups").unwrap();
    refused(file.open(OpenFlags::RDONLY), Errno::ACCES);
}

#[test]
fn a_group_that_a_user_is_not_in_is_not_given() {
    let Some(node) = shared() else { return };
    let (session, root) = node.connect_as(ANNA);
    for gid in [0, 1, 4, 27] {
        let name = format!("dir-{gid}");
        let request = Request::Mkdir {
            dir: root.fid(),
            name: Name::new(&name).unwrap(),
            mode: 0o755,
            gid,
        };
        session.client().call(request).unwrap();
        let stat = fs::metadata(node.path(&name)).unwrap();
        assert_ne!(stat.gid(), gid, "not a group of hers");
    }
    let file = rw_file(&root, "file");
    let attr = SetAttr {
        gid: 0,
        ..SetAttr::default()
    };
    refused(set_mask(&file, SetMask::GID, attr), Errno::PERM);
}

#[test]
fn the_setuid_bit_is_gone_after_a_write_of_another_user() {
    let Some(node) = shared() else { return };
    for (name, uid) in [("by-anna", ANNA), ("by-root", 0)] {
        fs::write(node.path(name), "program").unwrap();
        chown(node.path(name), Some(BERT), Some(BERT)).unwrap();
        set_mode(&node, name, 0o6777);
        let (_session, root) = node.connect_as(uid);
        let file = opened(&root, name, OpenFlags::RDWR);
        file.write_at(0, b"changed").unwrap();
        let mode = fs::metadata(node.path(name)).unwrap().mode();
        assert_eq!(mode & 0o4000, 0, "{name}: {mode:o}");
    }
}

#[test]
fn the_setuid_bit_is_gone_after_an_append_and_a_cut() {
    let Some(node) = shared() else { return };
    for name in ["appended", "cut", "opened"] {
        fs::write(node.path(name), "program").unwrap();
        chown(node.path(name), Some(BERT), Some(BERT)).unwrap();
        set_mode(&node, name, 0o4777);
    }
    let (_session, root) = node.connect_as(ANNA);
    let file = opened(&root, "appended", OpenFlags::WRONLY | OpenFlags::APPEND);
    file.write_at(0, b"more").unwrap();
    let attr = SetAttr::default();
    set_mask(&root.walk("cut").unwrap(), SetMask::SIZE, attr).unwrap();
    opened(&root, "opened", OpenFlags::WRONLY | OpenFlags::TRUNC);
    for name in ["appended", "cut", "opened"] {
        let mode = fs::metadata(node.path(name)).unwrap().mode();
        assert_eq!(mode & 0o4000, 0, "{name}: {mode:o}");
    }
}

#[test]
fn what_was_opened_stays_open_whatever_becomes_of_the_permissions() {
    let Some(node) = shared() else { return };
    let (_session, root) = node.connect_as(ANNA);
    let file = rw_file(&root, "file");
    chown(node.path("file"), Some(0), Some(0)).unwrap();
    set_mode(&node, "file", 0o600);
    file.write_at(0, b"still").unwrap();
    assert_eq!(read_all(&file), b"still");
    let mut again = root.walk("file").unwrap();
    refused(again.open(OpenFlags::RDONLY), Errno::ACCES);
}

#[test]
fn nobody_attaches_as_somebody_else() {
    let Some(node) = shared() else { return };
    let socket = node.socket();
    for to in [To::Unix(&socket), To::Tcp(node.tcp())] {
        for claimed in [0, BERT, 1, u32::MAX - 1] {
            let requests = [common::raw::attach_as(Fid(0), claimed), mkdir("never")];
            let replies = talk_as(ANNA, ANNA, &to, &requests);
            let refused = (Kind::LERROR, Some(Errno::PERM.0));
            assert_eq!(kind_and_errno(&replies[0]), refused, "as {claimed}");
            let no_fid = (Kind::LERROR, Some(Errno::BADF.0));
            assert_eq!(kind_and_errno(&replies[1]), no_fid);
        }
    }
    assert!(!node.path("never").exists());
}

#[test]
fn a_peer_is_who_the_kernel_says() {
    let Some(node) = shared() else { return };
    let socket = node.socket();
    let over = [
        (To::Unix(&socket), ["unix-said", "unix-unsaid"]),
        (To::Tcp(node.tcp()), ["tcp-said", "tcp-unsaid"]),
    ];
    for (to, [said, unsaid]) in over {
        for (uid, name) in [(ANNA, said), (u32::MAX, unsaid)] {
            let requests = [common::raw::attach_as(Fid(0), uid), mkdir(name)];
            let replies = talk_as(ANNA, ANNA, &to, &requests);
            assert_eq!(kind_and_errno(&replies[1]), (Kind(73), None), "{name}");
            let stat = fs::metadata(node.path(name)).unwrap();
            assert_eq!(stat.uid(), ANNA, "{name}");
        }
    }
}

/// What makes this binary a node of another user's, when started by the test below.
const AS_NODE: &str = "PRESAGIO_TEST_NODE";

#[test]
fn a_node_that_is_not_root_acts_for_its_own_user_only() {
    if !is_root("starting a node as another user") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    chown(path, Some(ANNA), Some(ANNA)).unwrap();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, open).unwrap();
    // Where this binary is, other users may not look.
    let binary = path.join("node");
    // Not by this process: a child that another test starts meanwhile would keep it open for writing, and so unstartable.
    let mut copy = std::process::Command::new("cp");
    let copy = copy.arg(std::env::current_exe().unwrap()).arg(&binary);
    assert!(copy.status().unwrap().success());
    let mut command = common::users::command_as(ANNA, ANNA, binary.to_str().unwrap());
    command.args(["--exact", "a_node_for_another_test", "--ignored"]);
    command.env(AS_NODE, path);
    let input = std::process::Stdio::piped();
    let mut node = command.stdin(input).spawn().unwrap();
    let socket = path.join("socket");
    common::wait_until("the node listens", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    check_own_user_only(&socket, path);
    // The node ends with its input.
    drop(node.stdin.take());
    assert!(node.wait().unwrap().success());
}

fn check_own_user_only(socket: &std::path::Path, path: &std::path::Path) {
    let to = To::Unix(socket);
    let attempt = |uid, claimed, name| {
        let requests = [common::raw::attach_as(Fid(0), claimed), mkdir(name)];
        let replies = talk_as(uid, uid, &to, &requests);
        kind_and_errno(&replies[0])
    };
    assert_eq!(attempt(ANNA, ANNA, "hers"), (Kind(105), None));
    let owner = fs::metadata(path.join("export/hers")).unwrap().uid();
    assert_eq!(owner, ANNA);
    let refused = (Kind::LERROR, Some(Errno::PERM.0));
    assert_eq!(attempt(BERT, BERT, "his"), refused);
    assert_eq!(attempt(BERT, ANNA, "his"), refused);
    assert_eq!(attempt(BERT, 0, "his"), refused);
    assert!(!path.join("export/his").exists());
}

#[test]
#[ignore = "not a test: the node of the test above"]
fn a_node_for_another_test() {
    let Some(directory) = std::env::var_os(AS_NODE) else {
        return;
    };
    let directory = std::path::PathBuf::from(directory);
    fs::create_dir(directory.join("export")).unwrap();
    let config = presagio_ionode::Config::new(directory.join("export"));
    let address = presagio_ionode::Address::Unix(directory.join("socket"));
    let storage = std::sync::Arc::new(presagio_storage::Directory);
    let node = common::start(config, storage, &[address]);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    drop(node);
}

#[test]
fn a_user_sees_only_what_it_may_but_lists_it_all() {
    let Some(node) = shared() else { return };
    fs::create_dir(node.path("sticky")).unwrap();
    set_mode(&node, "sticky", 0o1777);
    let (_one, anna) = node.connect_as(ANNA);
    let (_two, bert) = node.connect_as(BERT);
    rw_file(&anna.walk("sticky").unwrap(), "hers");
    let his = bert.walk("sticky").unwrap();
    assert_eq!(names(&his), ["hers"]);
    let attr = his.walk("hers").unwrap().getattr(GetAttr::BASIC).unwrap();
    assert_eq!(attr.uid, ANNA);
    refused(his.unlink("hers", UnlinkFlags(0)), Errno::PERM);
    refused(his.rename_at("hers", &his, "his"), Errno::PERM);
    refused(his.walk("hers").unwrap().remove(), Errno::PERM);
    let linked = his.link(&his.walk("hers").unwrap(), "again");
    // Linux protects hard links, if it was told to.
    if let Err(error) = linked {
        refused::<()>(Err(error), errno(libc::EPERM));
    }
}

/// By what the file of a fid is found again.
fn handle_of(session: &Session, fid: Fid) -> Vec<u8> {
    let answer = session.client().call(Request::Handle { fid }).unwrap();
    match answer.reply() {
        presagio_ninep::Reply::Handle { handle } => handle.bytes().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn reopen(session: &Session, root: &File, handle: &[u8], flags: OpenFlags) -> Result<(), Error> {
    let request = Request::Reopen {
        root: root.fid(),
        fid: Fid(5000),
        flags: presagio_ninep::extension::ReopenFlags::new(flags),
        handle: presagio_ninep::Handle::new(handle).unwrap(),
    };
    session.client().call(request)?;
    session.client().call(Request::Clunk { fid: Fid(5000) })?;
    Ok(())
}

#[test]
fn a_handle_is_good_for_its_user_and_for_what_was_open_only() {
    let Some(node) = shared() else { return };
    auth::listen_to_audit();
    let client = Client::unix(&node.socket(), &common::options()).unwrap();
    let session = Session::new(client);
    let anna = session.attach("", "/", ANNA).unwrap();
    let bert = session.attach("", "/", BERT).unwrap();
    fs::write(node.path("file"), "content").unwrap();
    set_mode(&node, "file", 0o644);
    let reader = opened(&anna, "file", OpenFlags::RDONLY);
    let opened = handle_of(&session, reader.fid());
    let closed = handle_of(&session, anna.walk("file").unwrap().fid());
    set_mode(&node, "file", 0o600);
    reopen(&session, &anna, &opened, OpenFlags::RDONLY).unwrap();
    for flags in [OpenFlags::WRONLY, OpenFlags::RDWR] {
        let more = reopen(&session, &anna, &opened, flags);
        refused(more, Errno::ACCES);
    }
    let never = reopen(&session, &anna, &closed, OpenFlags::RDONLY);
    refused(never, Errno::ACCES);
    for flags in [OpenFlags::RDONLY, OpenFlags::PATH] {
        let others = reopen(&session, &bert, &opened, flags);
        refused(others, Errno::PERM);
    }
    let lines = auth::audited(&format!(
        "as uid {BERT}, it came with a handle of uid {ANNA}"
    ));
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_handle_that_was_made_up_is_refused_and_audited() {
    let Some(node) = shared() else { return };
    auth::listen_to_audit();
    let (session, root) = node.connect_as(0);
    let file = rw_file(&root, "file");
    let handle = handle_of(&session, file.fid());
    for at in 0..handle.len() {
        let mut other = handle.clone();
        other[at] ^= 1;
        let made_up = reopen(&session, &root, &other, OpenFlags::RDONLY);
        refused(made_up, Errno::STALE);
    }
    let short = reopen(&session, &root, &handle[..10], OpenFlags::RDONLY);
    refused(short, Errno::STALE);
    let lines = auth::audited("a handle that no node of this export gave");
    assert_eq!(lines.len(), handle.len() + 1);
    reopen(&session, &root, &handle, OpenFlags::RDWR).unwrap();
}
