//! HTTP, as little as a window needs: one request a connection, answers of one piece, and streams of events.
//!
//! A thread takes connections in, and each has one of its own for as long as it lasts. *Bounds*: so many connections at a time
//! (further ones are told so), so much time to ask and to take an answer, so many bytes of a request. Who is slow, silent or
//! talkative costs one of the connections for some seconds, and nobody anything else.

use presagio_door::{Address, bind_unix};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;

/// How long a request may take to come, and an answer, or an event of a stream, to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a request's head.
const HEAD_MAX: usize = 16 << 10;

/// Bytes of a request's body, which nobody looks at.
const BODY_MAX: u64 = 64 << 10;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, ...
    pub method: String,
    /// What stands before the question mark.
    pub path: String,
    /// What stands behind it, with its escapes.
    pub query: String,
    /// Names, in small letters, and values.
    headers: Vec<(String, String)>,
}

impl Request {
    /// Of a head, without the empty line at its end.
    fn parse(head: &[u8]) -> Option<Request> {
        let head = std::str::from_utf8(head).ok()?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return None;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        Some(Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: lines.map(header).collect::<Option<_>>()?,
        })
    }

    /// A header by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| &**value)
    }

    /// A parameter of the query, with its escapes undone.
    pub fn parameter(&self, key: &str) -> Option<String> {
        let mut pairs = self.query.split('&');
        let value = pairs.find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))?;
        let mut bytes = Vec::new();
        let mut rest = value.as_bytes();
        while let Some((first, others)) = rest.split_first() {
            let escaped = (*first == b'%')
                .then(|| std::str::from_utf8(others.get(..2)?).ok())
                .flatten()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(escaped.unwrap_or(*first));
            rest = if escaped.is_some() {
                &others[2..]
            } else {
                others
            };
        }
        String::from_utf8(bytes).ok()
    }

    /// How many bytes of a body follow; none if nobody can tell.
    fn body_length(&self) -> Option<u64> {
        if self.header("transfer-encoding").is_some() {
            return None;
        }
        self.header("content-length").unwrap_or("0").parse().ok()
    }
}

/// An answer of one piece.
#[derive(Clone, Debug)]
pub struct Response {
    /// 200, 404, ...
    pub status: u16,
    /// What it is: `text/plain` ...
    pub kind: &'static str,
    /// The bytes.
    pub body: Vec<u8>,
    headers: Vec<(&'static str, String)>,
}

impl Response {
    /// 200, of this kind.
    pub fn of(kind: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: 200,
            kind,
            body: body.into(),
            headers: Vec::new(),
        }
    }

    /// Something in words, with a status.
    pub fn text(status: u16, text: impl AsRef<str>) -> Response {
        let body = format!("{}\n", text.as_ref());
        Response {
            status,
            ..Response::of("text/plain; charset=utf-8", body)
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }

    fn reason(&self) -> &'static str {
        match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Content Too Large",
            421 => "Misdirected Request",
            503 => "Service Unavailable",
            _ => "Something Else",
        }
    }

    /// What goes over the line before the body; `length` is none for a stream.
    fn head(&self, length: Option<usize>) -> String {
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n",
            self.status,
            self.reason(),
            self.kind
        );
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(length) = length {
            head += &format!("Content-Length: {length}\r\n");
        }
        head + "\r\n"
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(it) => Socket::Tcp(it.try_clone()?),
            Socket::Unix(it) => Socket::Unix(it.try_clone()?),
        })
    }

    fn shutdown(&self, how: Shutdown) {
        // It may have gone by itself.
        let _ = match self {
            Socket::Tcp(it) => it.shutdown(how),
            Socket::Unix(it) => it.shutdown(how),
        };
    }

    fn read(&mut self, room: &mut [u8], left: Duration) -> io::Result<usize> {
        match self {
            Socket::Tcp(it) => it.set_read_timeout(Some(left)).and_then(|()| it.read(room)),
            Socket::Unix(it) => it.set_read_timeout(Some(left)).and_then(|()| it.read(room)),
        }
    }

    fn write(&mut self, bytes: &[u8], left: Duration) -> io::Result<usize> {
        match self {
            Socket::Tcp(it) => it
                .set_write_timeout(Some(left))
                .and_then(|()| it.write(bytes)),
            Socket::Unix(it) => it
                .set_write_timeout(Some(left))
                .and_then(|()| it.write(bytes)),
        }
    }
}

/// What is left until then, if anything is.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// The connection that a request came on.
pub(crate) struct Line {
    socket: Socket,
    number: u64,
    lines: Arc<Lines>,
}

impl Line {
    /// Answers.
    pub fn answer(mut self, response: &Response) {
        let mut bytes = response.head(Some(response.body.len())).into_bytes();
        bytes.extend(&response.body);
        // Whoever asked may have left.
        let _ = self.send(&bytes);
        self.socket.shutdown(Shutdown::Write);
    }

    /// Begins an answer that has no end; [`Line::send`] goes on.
    pub fn begin(&mut self, response: &Response) -> io::Result<()> {
        self.send(response.head(None).as_bytes())
    }

    /// Sends all of it, or says why not: whoever does not take it in time is not waited for.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + self.lines.patience;
        while !bytes.is_empty() {
            match self.socket.write(bytes, left(deadline)?) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the server ends.
    pub fn is_ending(&self) -> bool {
        self.lines.open().ends
    }

    fn receive(&mut self) -> Result<Request, Response> {
        let deadline = Instant::now() + self.lines.patience;
        let mut bytes = Vec::new();
        let end = loop {
            let from = bytes.len().saturating_sub(3);
            self.more(&mut bytes, deadline)?;
            if let Some(at) = bytes[from..].windows(4).position(|it| it == b"\r\n\r\n") {
                break from + at;
            }
            if bytes.len() > HEAD_MAX {
                return Err(Response::text(413, "the request is too long"));
            }
        };
        let request = Request::parse(&bytes[..end]);
        let request = request.ok_or_else(|| Response::text(400, "this is no request"))?;
        let length = request.body_length().filter(|it| *it <= BODY_MAX);
        let length = length.ok_or_else(|| Response::text(413, "no body is wanted"))?;
        // All of it has to come: what is left unread would take the answer with it.
        while ((bytes.len() - end - 4) as u64) < length {
            self.more(&mut bytes, deadline)?;
        }
        Ok(request)
    }

    fn more(&mut self, bytes: &mut Vec<u8>, deadline: Instant) -> Result<(), Response> {
        let late = |_| Response::text(408, "the request did not come in time");
        let mut room = [0; 4096];
        let count = self.socket.read(&mut room, left(deadline).map_err(late)?);
        match count.map_err(late)? {
            0 => Err(Response::text(400, "the request ends early")),
            count => {
                bytes.extend(&room[..count]);
                Ok(())
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.lines.open().sockets.remove(&self.number);
        self.lines.fewer.notify_all();
    }
}

#[derive(Default)]
struct Open {
    sockets: HashMap<u64, Socket>,
    numbers: u64,
    ends: bool,
}

/// The connections that there are.
struct Lines {
    open: Mutex<Open>,
    fewer: Condvar,
    /// How long each of them is waited for.
    patience: Duration,
}

impl Lines {
    fn new(patience: Duration) -> Lines {
        Lines {
            open: Mutex::default(),
            fewer: Condvar::new(),
            patience,
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, if there is room for it.
    fn take(self: &Arc<Lines>, socket: Socket) -> Option<Line> {
        let mut open = self.open();
        if open.ends || open.sockets.len() >= CONNECTIONS_MAX {
            return None;
        }
        open.numbers += 1;
        let number = open.numbers;
        open.sockets.insert(number, socket.try_clone().ok()?);
        Some(Line {
            socket,
            number,
            lines: self.clone(),
        })
    }

    /// Ends all of them, and waits for that.
    fn end(&self) {
        let mut open = self.open();
        open.ends = true;
        open.sockets
            .values()
            .for_each(|it| it.shutdown(Shutdown::Both));
        while !open.sockets.is_empty() {
            open = self
                .fewer
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn bind(address: &Address) -> io::Result<Listener> {
        let listener = match address {
            Address::Tcp(host) => Listener::Tcp(TcpListener::bind(host)?),
            // Only this user, and root.
            Address::Unix(path) => Listener::Unix(bind_unix(path, 0o600)?, path.clone()),
        };
        rustix::io::ioctl_fionbio(listener.as_fd(), true)?;
        Ok(listener)
    }

    fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Listener::Tcp(it) => {
                let (stream, _) = it.accept()?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
            Listener::Unix(it, _) => Socket::Unix(it.accept()?.0),
        })
    }

    fn ip(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(it) => it.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(it) => it.as_fd(),
            Listener::Unix(it, _) => it.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A server. It ends when it is dropped.
pub(crate) struct Server {
    address: Address,
    ending: Arc<OwnedFd>,
    lines: Arc<Lines>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and gives each request to `answer`, on a thread of its own.
    pub fn open(
        address: &Address,
        answer: impl Fn(Request, Line) + Send + Sync + 'static,
    ) -> io::Result<Server> {
        Server::with_patience(address, PATIENCE, answer)
    }

    fn with_patience(
        address: &Address,
        patience: Duration,
        answer: impl Fn(Request, Line) + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let listener = Listener::bind(address)?;
        let address = match listener.ip() {
            Some(ip) => Address::Tcp(ip.to_string()),
            None => address.clone(),
        };
        let ending = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut server = Server {
            address,
            ending: Arc::new(ending),
            lines: Arc::new(Lines::new(patience)),
            thread: None,
        };
        let (lines, ending) = (server.lines.clone(), server.ending.clone());
        let builder = std::thread::Builder::new().name("presagio-http".to_owned());
        let answer = Arc::new(answer);
        server.thread = Some(builder.spawn(move || {
            while wait(&listener, &ending) {
                if let Ok(socket) = listener.accept() {
                    arrived(socket, &lines, &answer);
                }
            }
        })?);
        Ok(server)
    }

    /// Where it listens, with the port that the system chose if it was asked to.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// Whether a connection comes, and not the end.
fn wait(listener: &Listener, ending: &OwnedFd) -> bool {
    let mut waits = [
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        PollFd::new(ending, PollFlags::IN),
    ];
    let _ = poll(&mut waits, None);
    waits[1].revents().is_empty()
}

fn arrived(
    mut socket: Socket,
    lines: &Arc<Lines>,
    answer: &Arc<impl Fn(Request, Line) + Send + Sync + 'static>,
) {
    let copy = socket.try_clone();
    let Some(mut line) = lines.take(socket) else {
        let full = Response::text(503, "too many ask at once");
        let head = full.head(Some(full.body.len()));
        if let Ok(copy) = copy {
            socket = copy;
            // A few bytes, which the kernel has room for.
            let _ = socket.write(head.as_bytes(), Duration::from_millis(1));
            let _ = socket.write(&full.body, Duration::from_millis(1));
        }
        return;
    };
    let answer = answer.clone();
    let serve = move || match line.receive() {
        Ok(request) => answer(request, line),
        Err(refusal) => line.answer(&refusal),
    };
    let builder = std::thread::Builder::new().name("presagio-line".to_owned());
    // Without a thread the line is dropped, and with it the connection.
    let _ = builder.spawn(serve);
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.ending, &1_u64.to_ne_bytes());
        self.lines.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(target: &str) -> Request {
        let head = format!("GET {target} HTTP/1.1\r\nHost: here\r\nX-A:  b ");
        Request::parse(head.as_bytes()).expect("a request")
    }

    #[test]
    fn requests_are_taken_apart() {
        let it = request("/policy?name=SJF&file=%2Ftmp%2Fa%20b");
        assert_eq!((&*it.method, &*it.path), ("GET", "/policy"));
        assert_eq!(
            (it.header("host"), it.header("x-a")),
            (Some("here"), Some("b"))
        );
        assert_eq!(it.parameter("file").unwrap(), "/tmp/a b");
        assert_eq!(it.parameter("nothing"), None);
        assert_eq!(request("/?file=100%").parameter("file").unwrap(), "100%");
        assert_eq!(request("/?file=%ff").parameter("file"), None);
        for bad in [
            "",
            "GET /",
            "GET / FTP/1.0",
            "GET x HTTP/1.0",
            "GET / HTTP/1.1\r\nno colon",
        ] {
            assert_eq!(Request::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(request) = Request::parse(&bytes) {
                prop_assert!(request.path.starts_with('/'));
                let _ = request.parameter("a");
            }
        }
    }

    /// Nobody is let go meanwhile, however slow the machine is.
    const LONG: Duration = Duration::from_secs(3600);

    fn server() -> Server {
        server_with(LONG)
    }

    fn server_with(patience: Duration) -> Server {
        let address = Address::Tcp("127.0.0.1:0".to_owned());
        Server::with_patience(&address, patience, |request, mut line| {
            match &*request.path {
                "/stream" => {
                    let head = Response::of("text/event-stream", "");
                    let mut sent = line.begin(&head);
                    while sent.is_ok() {
                        sent = line.send(&[b'x'; 64 << 10]);
                    }
                }
                path => line.answer(&Response::text(200, path)),
            }
        })
        .expect("it listens")
    }

    fn connect(server: &Server) -> TcpStream {
        let Address::Tcp(host) = server.address() else {
            unreachable!()
        };
        TcpStream::connect(host).expect("it listens")
    }

    fn ask(server: &Server, text: &str) -> String {
        let mut stream = connect(server);
        stream.write_all(text.as_bytes()).expect("sent");
        let mut answer = String::new();
        // One that is refused may be reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn who_asks_is_answered_and_who_asks_badly_told_so() {
        let server = server();
        let good = ask(&server, "GET /a HTTP/1.0\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
        assert!(good.ends_with("\r\n\r\n/a\n"), "{good}");
        let body = "POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nxyz";
        assert!(ask(&server, body).ends_with("/b\n"));
        assert!(ask(&server, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
        let long = format!(
            "GET / HTTP/1.1\r\nA: {}\r\n\r\n",
            "x".repeat(HEAD_MAX + 5000)
        );
        assert!(!ask(&server, &long).starts_with("HTTP/1.1 200"));
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(ask(&server, chunked).starts_with("HTTP/1.1 413"));
    }

    #[test]
    fn the_silent_and_the_deaf_keep_nobody_out_and_the_end_waits_for_none() {
        let server = server();
        let silent: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
        let deaf: Vec<TcpStream> = (0..20)
            .map(|_| {
                let mut stream = connect(&server);
                stream
                    .write_all(b"GET /stream HTTP/1.0\r\n\r\n")
                    .expect("sent");
                stream
            })
            .collect();
        assert!(ask(&server, "GET /a HTTP/1.0\r\n\r\n").ends_with("/a\n"));
        drop(server);
        drop((silent, deaf));
    }

    #[test]
    fn who_is_silent_or_deaf_is_let_go() {
        let server = server_with(Duration::from_millis(20));
        let mut silent = connect(&server);
        let mut answer = String::new();
        silent.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        let mut deaf = connect(&server);
        deaf.write_all(b"GET /stream HTTP/1.0\r\n\r\n")
            .expect("sent");
        let deadline = Instant::now() + Duration::from_secs(60);
        let taken = || server.lines.open().numbers;
        while taken() < 2 || !server.lines.open().sockets.is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn past_the_limit_one_is_told_and_later_served() {
        let server = server();
        let silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(&server)).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        while server.lines.open().sockets.len() < CONNECTIONS_MAX {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert!(!ask(&server, "GET /a HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
        drop(silent);
        while !ask(&server, "GET /a HTTP/1.0\r\n\r\n").ends_with("/a\n") {
            assert!(Instant::now() < deadline);
        }
    }
}
