//! A window of a service: the dashboard, and whatever else the service answers over HTTP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the page |
//! | `GET /snapshot` | a [`Snapshot`] as JSON |
//! | `GET /events` | the same again and again, as server-sent events: `snapshot` first, then `update`, with what is new |
//!
//! *Who may ask.* Whoever reaches the address. A page of another site cannot: what is served names this origin only, and on a
//! loopback address a `Host` that is no address of this machine is refused, so that no name of somebody else's leads here. *Who may
//! order.* See [`Access`].

use crate::feed::Feed;
use crate::http::{Line, Request, Response, Server};
use crate::page::page;
use crate::{Bell, Snapshot, Token};
use presagio_door::Address;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

/// What a service shows.
pub trait Service: Send + Sync + 'static {
    /// How it is now.
    fn snapshot(&self) -> Snapshot;

    /// Rings when something happened.
    fn bell(&self) -> &Bell;

    /// What else is asked for.
    fn answer(&self, request: &Request, access: Access) -> Response;
}

/// What who asks may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look.
    Read,
    /// Has the token.
    Token,
    /// Came through a Unix socket that only this user and root can use.
    Private,
}

/// What a window offers.
#[derive(Clone, Debug, Default)]
pub struct Opened {
    /// Whether the dashboard is there.
    pub dashboard: bool,
    /// Who may give orders besides those who come through a Unix socket.
    pub token: Option<Token>,
}

/// See the module's header. It ends when it is dropped.
pub struct Window {
    server: Option<Server>,
    service: Arc<dyn Service>,
    address: Address,
}

impl Window {
    /// Listens on `address`; a Unix socket is for this user alone.
    pub fn open(
        address: &Address,
        service: Arc<dyn Service>,
        opened: Opened,
    ) -> io::Result<Window> {
        let inside = Inside {
            feed: Feed::new(service.clone()),
            service: service.clone(),
            is_private: matches!(address, Address::Unix(_)),
            hosts: opened.dashboard.then(|| Hosts::of(address)).flatten(),
            opened,
        };
        let server = Server::open(address, move |request, line| inside.serve(request, line))?;
        Ok(Window {
            address: server.address().clone(),
            server: Some(server),
            service,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Those who wait for news find that it is over.
        let server = self.server.take();
        std::thread::scope(|scope| {
            let ends = scope.spawn(move || drop(server));
            while !ends.is_finished() {
                self.service.bell().ring();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
    }
}

/// Whether only this machine can reach an address.
pub fn is_loopback(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(host) => host
            .to_socket_addrs()
            .is_ok_and(|mut all| all.all(|it| it.ip().is_loopback())),
    }
}

struct Inside {
    service: Arc<dyn Service>,
    feed: Feed,
    is_private: bool,
    /// What may be asked for, where not everything may.
    hosts: Option<Hosts>,
    opened: Opened,
}

impl Inside {
    fn serve(&self, request: Request, line: Line) {
        let host = request.header("host").unwrap_or("localhost");
        if self.hosts.as_ref().is_some_and(|hosts| !hosts.have(host)) {
            return line.answer(&Response::text(
                421,
                "ask for an address of this machine, or localhost",
            ));
        }
        let is_here = self.opened.dashboard && request.method == "GET";
        match &*request.path {
            "/" if is_here => line.answer(&page()),
            "/events" if is_here => self.feed.stream(line, |news| self.prepare(news)),
            "/snapshot" if is_here => {
                let mut snapshot = Snapshot::clone(&self.feed.snapshot());
                self.prepare(&mut snapshot);
                let json = serde_json::to_vec(&snapshot).unwrap_or_default();
                line.answer(&Response::of("application/json", json));
            }
            _ => match self.access(&request) {
                Ok(access) => line.answer(&self.service.answer(&request, access)),
                Err(refusal) => line.answer(&refusal),
            },
        }
    }

    fn prepare(&self, snapshot: &mut Snapshot) {
        snapshot.takes_orders = self.opened.token.is_some();
    }

    /// What who asks may do. A wrong token is refused, whatever is asked for.
    fn access(&self, request: &Request) -> Result<Access, Response> {
        let shown = request.header("authorization");
        match (shown, &self.opened.token) {
            _ if self.is_private => Ok(Access::Private),
            (Some(shown), Some(token)) => {
                let guess = shown.strip_prefix("Bearer ").unwrap_or_default();
                match token.is(guess) {
                    true => Ok(Access::Token),
                    false => {
                        tracing::warn!(target: "audit", "an order with a wrong token was refused");
                        Err(Response::text(401, "this is not the token"))
                    }
                }
            }
            (Some(_), None) => Err(Response::text(403, "no orders are taken here")),
            (None, _) => Ok(Access::Read),
        }
    }
}

/// What a browser may take a dashboard for that is on this machine alone: addresses, `localhost`, and the name that it was opened with.
struct Hosts(String);

impl Hosts {
    fn of(address: &Address) -> Option<Hosts> {
        match address {
            Address::Tcp(host) if is_loopback(address) => Some(Hosts(name(host).to_owned())),
            _ => None,
        }
    }

    fn have(&self, host: &str) -> bool {
        let name = name(host);
        let is_known = ["localhost", &self.0]
            .iter()
            .any(|it| it.eq_ignore_ascii_case(name));
        is_known || name.parse::<IpAddr>().is_ok()
    }
}

/// A host without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    #[derive(Default)]
    struct Lamp(Bell);

    impl Service for Lamp {
        fn snapshot(&self) -> Snapshot {
            Snapshot {
                name: "</script>\u{1b}".to_owned(),
                at_ms: self.0.rung(),
                ..Snapshot::default()
            }
        }

        fn bell(&self) -> &Bell {
            &self.0
        }

        fn answer(&self, request: &Request, access: Access) -> Response {
            match (&*request.method, access) {
                ("POST", Access::Read) => Response::text(403, "no"),
                _ => Response::text(200, format!("{access:?}")),
            }
        }
    }

    fn token() -> Token {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Token::read(&path).unwrap()
    }

    fn window(token: Option<Token>) -> Window {
        let opened = Opened {
            dashboard: true,
            token,
        };
        let address = Address::Tcp("127.0.0.1:0".to_owned());
        Window::open(&address, Arc::new(Lamp::default()), opened).expect("it listens")
    }

    fn ask(window: &Window, head: &str) -> String {
        let Address::Tcp(host) = window.address() else {
            unreachable!()
        };
        let mut stream = TcpStream::connect(host).expect("it listens");
        stream
            .write_all(format!("{head}\r\n\r\n").as_bytes())
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn the_page_the_snapshot_and_the_rest() {
        let window = window(None);
        let page = ask(&window, "GET / HTTP/1.1\r\nHost: localhost:9");
        assert!(
            page.contains("Content-Security-Policy: default-src 'none'"),
            "{}",
            &page[..400]
        );
        assert!(page.contains("frame-ancestors 'none'"));
        let snapshot = ask(&window, "GET /snapshot HTTP/1.1");
        let (_, body) = snapshot.split_once("\r\n\r\n").unwrap();
        let snapshot: Snapshot = serde_json::from_str(body).unwrap();
        assert!(!snapshot.takes_orders);
        assert!(ask(&window, "GET /else HTTP/1.1").ends_with("Read\n"));
        assert!(ask(&window, "POST /snapshot HTTP/1.1").starts_with("HTTP/1.1 403"));
    }

    #[test]
    fn a_name_of_somebody_else_does_not_lead_here() {
        let window = window(None);
        let asked = |host: &str| ask(&window, &format!("GET /snapshot HTTP/1.1\r\nHost: {host}"));
        for good in ["127.0.0.1:1", "[::1]:80", "[::1]", "localhost", "10.0.0.1"] {
            assert!(asked(good).starts_with("HTTP/1.1 200"), "{good}");
        }
        for bad in [
            "evil.example",
            "127.0.0.1.evil.example:80",
            "",
            "localhost.evil.example",
        ] {
            assert!(asked(bad).starts_with("HTTP/1.1 421"), "{bad}");
        }
    }

    #[test]
    fn orders_need_the_token_in_a_header() {
        let window = window(Some(token()));
        let order = |more: &str| ask(&window, &format!("POST /policy HTTP/1.1{more}"));
        assert!(order("").starts_with("HTTP/1.1 403"));
        assert!(order("\r\nCookie: token=0123456789abcdef").starts_with("HTTP/1.1 403"));
        for wrong in ["Bearer x", "0123456789abcdef", "Basic 0123456789abcdef"] {
            assert!(order(&format!("\r\nAuthorization: {wrong}")).starts_with("HTTP/1.1 401"));
        }
        assert!(order("\r\nAuthorization: Bearer 0123456789abcdef").ends_with("Token\n"));
        let without = super::tests::window(None);
        let refused = ask(
            &without,
            "POST /policy HTTP/1.1\r\nAuthorization: Bearer 0123456789abcdef",
        );
        assert!(refused.starts_with("HTTP/1.1 403"));
    }

    #[test]
    fn a_unix_socket_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let address = Address::Unix(path.clone());
        let window = Window::open(&address, Arc::new(Lamp::default()), Opened::default()).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"POST /policy HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("Private\n"), "{answer}");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        drop(window);
        assert!(!path.exists());
    }

    /// Reads until so many events came.
    fn events(stream: &mut TcpStream, count: usize) -> String {
        let (mut text, mut room) = (String::new(), [0; 4096]);
        while text.matches("\n\n").count() < count {
            let read = stream.read(&mut room).expect("it goes on");
            assert!(read > 0, "{text}");
            text += &String::from_utf8_lossy(&room[..read]);
        }
        text
    }

    #[test]
    fn who_watches_is_told_when_something_happens_and_the_end_waits_for_nobody() {
        let service = Arc::new(Lamp::default());
        let opened = Opened {
            dashboard: true,
            token: None,
        };
        let address = Address::Tcp("127.0.0.1:0".to_owned());
        let window = Window::open(&address, service.clone(), opened).expect("it listens");
        let Address::Tcp(host) = window.address() else {
            unreachable!()
        };
        let mut stream = TcpStream::connect(host).unwrap();
        stream
            .write_all(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            .unwrap();
        let first = events(&mut stream, 1);
        assert!(
            first.contains("text/event-stream") && first.contains("event: snapshot\ndata: {"),
            "{first}"
        );
        service.0.ring();
        let next = events(&mut stream, 1);
        assert!(
            next.contains("event: update\ndata: {") && next.contains("\"at_ms\":1,"),
            "{next}"
        );
        drop(window);
        let mut rest = Vec::new();
        // Ended, or reset.
        let _ = stream.read_to_end(&mut rest);
    }

    #[test]
    fn more_than_so_many_do_not_watch_and_a_place_is_free_again() {
        let window = window(None);
        let Address::Tcp(host) = window.address().clone() else {
            unreachable!()
        };
        let watch = || {
            let mut stream = TcpStream::connect(&host).unwrap();
            stream.write_all(b"GET /events HTTP/1.1\r\n\r\n").unwrap();
            stream
        };
        let begun = |stream: &mut TcpStream| {
            let mut room = [0; 12];
            stream.read_exact(&mut room).is_ok() && &room == b"HTTP/1.1 200"
        };
        let mut watching = Vec::new();
        for _ in 0..16 {
            let mut stream = watch();
            assert!(begun(&mut stream));
            watching.push(stream);
        }
        assert!(!begun(&mut watch()));
        watching.clear();
        let late = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !begun(&mut watch()) {
            assert!(std::time::Instant::now() < late, "nobody watches any more");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
