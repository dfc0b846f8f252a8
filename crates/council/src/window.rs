//! The council's window: what it does and knows, over HTTP. It takes no orders.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | all figures, for Prometheus |
//! | `GET /status` | the main ones and each node, as JSON |
//! | `GET /learned` | what was learned, context by context, as JSON |
//! | `GET /patterns` | the patterns that are known, and what follows what, as JSON |

use crate::hall::Hall;
use presagio_door::{Address, bind_unix};
use std::fmt::{Display, Write};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Request, Response, Server};

/// An HTTP server of the council. It ends when it is dropped.
pub struct Window {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

impl Window {
    /// Listens on `address`; a Unix socket is for this user alone.
    pub fn open(address: &Address, hall: Arc<Hall>) -> io::Result<Window> {
        let other =
            |error: Box<dyn std::error::Error + Send + Sync>| io::Error::other(error.to_string());
        let (server, socket) = match address {
            Address::Tcp(host) => (Server::http(host).map_err(other)?, None),
            Address::Unix(path) => {
                let listener = bind_unix(path, 0o600)?;
                let server = Server::from_listener(listener, None).map_err(other)?;
                (server, Some(path.clone()))
            }
        };
        let server = Arc::new(server);
        let serving = server.clone();
        let builder = std::thread::Builder::new().name("presagio-http".to_owned());
        let thread = builder.spawn(move || {
            for request in serving.incoming_requests() {
                answer(request, &hall);
            }
        })?;
        Ok(Window {
            server,
            thread: Some(thread),
            socket,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        match (&self.socket, self.server.server_addr().to_ip()) {
            (Some(path), _) => Address::Unix(path.clone()),
            (None, address) => Address::Tcp(address.map(|it| it.to_string()).unwrap_or_default()),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn answer(request: Request, hall: &Hall) {
    let is_get = *request.method() == Method::Get;
    let (status, body, kind) = match (is_get, request.url()) {
        (true, "/metrics") => (200, prometheus(hall), "text/plain; version=0.0.4"),
        (true, "/status") => (200, format!("{:#}\n", hall.status()), "application/json"),
        (true, "/learned") => (200, format!("{:#}\n", hall.learned("")), "application/json"),
        (true, "/patterns") => (200, format!("{:#}\n", hall.patterns()), "application/json"),
        (true, _) => {
            let there_are = "there are /metrics, /status, /learned and /patterns\n";
            (404, there_are.to_owned(), "text/plain")
        }
        (false, _) => (405, "a council takes no orders\n".to_owned(), "text/plain"),
    };
    let header = Header::from_bytes("Content-Type", kind).expect("a header of ours");
    let response = Response::from_string(body)
        .with_status_code(status)
        .with_header(header);
    // Whoever asked may have left.
    let _ = request.respond(response);
}

/// All figures of a council, in Prometheus's text format.
pub fn prometheus(hall: &Hall) -> String {
    let totals = hall.totals();
    let counts = &hall.counts;
    let mut page = Page(String::new());
    page.gauge("nodes", "I/O nodes that are here", totals.here);
    page.gauge("nodes_known", "I/O nodes that were ever here", totals.known);
    page.gauge(
        "contexts",
        "Contexts in which something was learned",
        totals.contexts,
    );
    page.gauge("patterns", "Patterns that are known", totals.patterns);
    page.gauge("memory_bytes", "Memory of what was learned", totals.bytes);
    let counters: [(&str, &str, &AtomicU64); 8] = [
        ("turns_total", "Turns of the loop", &counts.turns),
        (
            "announcements_total",
            "Announcements that came",
            &counts.announcements,
        ),
        (
            "announcements_again_total",
            "Announcements that came again",
            &counts.again,
        ),
        ("decisions_total", "Decisions", &counts.decisions),
        (
            "explorations_total",
            "Decisions that try an arm",
            &counts.explorations,
        ),
        (
            "refused_total",
            "Attempts at what is not allowed",
            &counts.refused,
        ),
        (
            "ended_total",
            "Connections that were ended because of what they did",
            &counts.ended,
        ),
        (
            "suspect_total",
            "Announcements of nodes whose figures were far off",
            &counts.suspect,
        ),
    ];
    for (name, help, count) in counters {
        page.counter(name, help, count.load(Relaxed));
    }
    page.counter(
        "explanations_lost_total",
        "Decisions that could not be logged",
        totals.lost,
    );
    page.counter(
        "store_failures_total",
        "Writes to the store that failed and were tried again",
        totals.write_failures,
    );
    page.counter(
        "contexts_written_total",
        "Contexts that were written to the store",
        totals.contexts_written,
    );
    page.head(
        "decision_seconds",
        "summary",
        "From announcement to decision",
    );
    for quantile in [0.5, 0.99, 1.0] {
        let seconds = totals.times.quantile(quantile).unwrap_or(0) as f64 / 1e9;
        page.line(
            &format!("decision_seconds{{quantile=\"{quantile}\"}}"),
            seconds,
        );
    }
    page.line("decision_seconds_sum", totals.times.sum() as f64 / 1e9);
    page.line("decision_seconds_count", totals.times.count());
    page.head("told", "gauge", "I/O nodes that were told to use an arm");
    for (arm, nodes) in &totals.arms {
        page.line(&format!("told{{arm=\"{arm}\"}}"), nodes);
    }
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP presagio_council_{name} {help}");
        let _ = writeln!(self.0, "# TYPE presagio_council_{name} {kind}");
    }

    fn line(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "presagio_council_{name} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: usize) {
        self.head(name, "gauge", help);
        self.line(name, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, value);
    }
}
