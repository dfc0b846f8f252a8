//! Debian's diodcat and diodls talk to Debian's diod, and we listen: every frame of theirs is one that our codec takes, and
//! would have sent just so.

mod common;

use common::{Diod, against};
use presagio_ninep::{Dialect, Frame, Frames, Kind, MSIZE_MAX, Reply, Request};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;

/// Passes on what comes, frame by frame, until the sender has closed; which types of message there were.
fn relay(
    mut from: UnixStream,
    mut to: UnixStream,
    check: fn(Frame<'_>, &mut Vec<u8>),
) -> BTreeSet<Kind> {
    let _ends = [&from, &to].map(|end| HangUp(end.try_clone().expect("a copy")));
    let (mut frames, mut seen, mut again) = (Frames::new(MSIZE_MAX), BTreeSet::new(), Vec::new());
    loop {
        while let Some(frame) = frames.next().expect("a frame") {
            again.clear();
            check(frame, &mut again);
            assert_eq!(again[7..], *frame.body, "{}", frame.kind);
            seen.insert(frame.kind);
            // Whoever listens may have left.
            let _ = to.write_all(&again);
        }
        match from.read(frames.space()) {
            Ok(received @ 1..) => frames.received(received),
            _ => return seen,
        }
    }
}

/// Whoever leaves, for whatever reason, lets both sides know: else they would wait for ever.
struct HangUp(UnixStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        // It may be closed already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

fn take_request(frame: Frame<'_>, again: &mut Vec<u8>) {
    let request = Request::parse(frame, Dialect::Linux).expect("a request");
    request.encode(frame.tag, again);
}

fn take_reply(frame: Frame<'_>, again: &mut Vec<u8>) {
    let reply = Reply::parse(frame, Dialect::Linux).expect("a reply");
    reply.encode(frame.tag, again);
}

/// Listens between one client and the server.
fn listen_in(path: &Path, server: &Path) -> JoinHandle<(BTreeSet<Kind>, BTreeSet<Kind>)> {
    let listener = UnixListener::bind(path).expect("a socket");
    let server = UnixStream::connect(server).expect("diod");
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("a client");
        let (to_client, from_server) = (client.try_clone(), server.try_clone());
        let (to_client, from_server) = (to_client.expect("a copy"), from_server.expect("a copy"));
        let replies = std::thread::spawn(move || relay(from_server, to_client, take_reply));
        let requests = relay(client, server, take_request);
        (requests, replies.join().expect("replies of diod"))
    })
}

/// Runs one of diod's programs against the export, with us in between.
fn run(diod: &Diod, program: &str, arguments: &[&str]) -> (String, BTreeSet<Kind>, BTreeSet<Kind>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("between");
    let heard = listen_in(&socket, &diod.socket());
    let output = Command::new(Path::new("/usr/sbin").join(program))
        .arg("-s")
        .arg(&socket)
        .arg("-a")
        .arg(diod.export())
        .args(arguments)
        .output()
        .expect("Debian's package diod");
    assert!(output.status.success(), "{output:?}");
    let (requests, replies) = heard.join().expect("frames that we understand");
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        requests,
        replies,
    )
}

#[test]
fn we_understand_what_diodcat_and_diodls_say() {
    against(Diod::start, |diod| {
        let text = "a line\n".repeat(30_000);
        fs::create_dir(diod.export().join("dir")).unwrap();
        fs::write(diod.export().join("dir/file"), &text).unwrap();
        let (printed, requests, _) = run(diod, "diodcat", &["dir/file"]);
        assert!(printed == text);
        assert!(
            [100, 104, 110, 12, 116]
                .iter()
                .all(|kind| requests.contains(&Kind(*kind))),
            "{requests:?}"
        );
        let (printed, requests, replies) = run(diod, "diodls", &["-l", "dir"]);
        assert!(printed.contains("file"), "{printed}");
        assert!(
            requests.contains(&Kind(40)) && replies.contains(&Kind(41)),
            "{requests:?}"
        );
    });
}
