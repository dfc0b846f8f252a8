//! Clients that are other users: a few lines of Python, started by `setpriv`, that send frames and say what came back.

use super::raw::encoded;
use presagio_ninep::{Dialect, Frame, Kind, Reply, Request};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Sends all of standard input to a socket, and prints the frames that come back, so many, in hexadecimal.
const CLIENT: &str = r#"
import socket, sys
kind, where, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "unix":
    it = socket.socket(socket.AF_UNIX)
    it.connect(where)
else:
    host, port = where.rsplit(":", 1)
    it = socket.create_connection((host, int(port)))
it.settimeout(60)
it.sendall(sys.stdin.buffer.read())
def take(size):
    got = b""
    while len(got) < size:
        more = it.recv(size - len(got))
        if not more:
            sys.exit(0)
        got += more
    return got
for _ in range(count):
    head = take(4)
    print((head + take(int.from_bytes(head, "little") - 4)).hex())
"#;

/// What runs `program` as another user.
pub fn command_as(uid: u32, gid: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={uid}"));
    command.arg(format!("--regid={gid}"));
    command.args(["--clear-groups", "--", program]);
    command
}

/// Where a client connects to.
pub enum To<'a> {
    Unix(&'a std::path::Path),
    Tcp(&'a str),
}

/// Sends a version and these requests as `uid`, and returns their replies, as far as there are any.
pub fn talk_as(uid: u32, gid: u32, to: &To<'_>, requests: &[Request<'_>]) -> Vec<Vec<u8>> {
    let mut command = command_as(uid, gid, "/usr/bin/python3");
    command.args(["-c", CLIENT]);
    match to {
        To::Unix(path) => command.arg("unix").arg(path),
        To::Tcp(host) => command.arg("tcp").arg(host),
    };
    command.arg((requests.len() + 1).to_string());
    let output = run(command, &session(requests));
    let text = String::from_utf8(output.stdout).expect("hexadecimal");
    let replies = text.lines().skip(1).map(bytes_of);
    replies.collect()
}

/// A version and requests, one after the other.
pub fn session(requests: &[Request<'_>]) -> Vec<u8> {
    let version = Dialect::Linux.version();
    let msize = 65536;
    let mut bytes = encoded(u16::MAX, &Request::Version { msize, version });
    for (tag, request) in requests.iter().enumerate() {
        bytes.extend_from_slice(&encoded(tag as u16, request));
    }
    bytes
}

/// Runs a command with this input, to its end.
pub fn run(mut command: Command, input: &[u8]) -> Output {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("setpriv and python3");
    let mut to = child.stdin.take().expect("piped");
    to.write_all(input).expect("it reads its input");
    drop(to);
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{output:?}");
    output
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digits = line.as_bytes().chunks_exact(2);
    let digits = digits.map(|pair| std::str::from_utf8(pair).expect("digits"));
    digits
        .map(|pair| u8::from_str_radix(pair, 16).expect("digits"))
        .collect()
}

/// The type of a reply, and its errno if it is an error.
pub fn kind_and_errno(reply: &[u8]) -> (Kind, Option<u32>) {
    let frame = Frame::new(reply).expect("a frame");
    let reply = Reply::parse(frame, Dialect::Linux).expect("a reply");
    let errno = match reply {
        Reply::Error { errno } => Some(errno.0),
        _ => None,
    };
    (frame.kind, errno)
}
