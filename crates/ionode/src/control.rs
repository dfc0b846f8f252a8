//! The node's window: what it does now, over HTTP, and, from its own Unix socket, what it should do.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /metrics` | all figures, for Prometheus |
//! | `GET /status` | the main ones, as JSON |
//! | `GET /patterns` | the patterns that a node that adapts knows by itself, and what follows what, as JSON |
//! | `POST /policy?name=SJF` | requests that come from now on are scheduled so (`TWINS:0.5ms` with that window); `auto` or `adaptive` if the node was started with that |
//! | `POST /record?file=PATH`, `DELETE /record` | begins and ends a trace |
//! | `POST /foresight?file=TRACE`, `DELETE /foresight` | what came then is expected again; forgets it |
//! | `POST /foresight?clients=off`, `=on` | what clients foretell is not heard any more; is heard again |
//!
//! What changes something is answered on Unix sockets only, which the file system protects.

use crate::accounts::Limited;
use crate::adaptive::Adaptive;
use crate::auto::Auto;
use crate::metrics::prometheus;
use crate::net::Address;
use crate::node::Shared;
use presagio_core::Op;
use presagio_tune::Arm;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Request, Response, Server};

/// An HTTP server of the node. It ends when it is dropped.
pub struct Window {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    socket: Option<std::path::PathBuf>,
}

impl Window {
    /// Listens on `address`.
    pub fn open(address: &Address, node: Arc<Shared>) -> io::Result<Window> {
        let other =
            |error: Box<dyn std::error::Error + Send + Sync>| io::Error::other(error.to_string());
        let (server, socket) = match address {
            Address::Tcp(host) => (Server::http(host).map_err(other)?, None),
            Address::Unix(path) => (open_unix(path)?, Some(path.clone())),
        };
        let (server, private) = (Arc::new(server), socket.is_some());
        let serving = server.clone();
        let builder = std::thread::Builder::new().name("presagio-http".to_owned());
        let thread = builder.spawn(move || {
            for request in serving.incoming_requests() {
                answer(request, &node, private);
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

/// Only its own user, and root, may tell the node what to do.
fn open_unix(path: &Path) -> io::Result<Server> {
    let listener = crate::net::bind_unix(path, 0o600)?;
    Server::from_listener(listener, None).map_err(|error| io::Error::other(error.to_string()))
}

fn answer(request: Request, node: &Shared, private: bool) {
    let url = request.url().to_owned();
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    let answered = match (request.method(), path) {
        (Method::Get, "/metrics") => Ok((prometheus(node), "text/plain; version=0.0.4")),
        (Method::Get, "/status") => Ok((format!("{:#}\n", status(node)), "application/json")),
        (Method::Get, "/patterns") => Ok((format!("{:#}\n", patterns(node)), "application/json")),
        (Method::Get, _) => Err((404, "there are /metrics, /status and /patterns".to_owned())),
        _ if !private => Err((
            403,
            "only the node's own Unix socket takes orders".to_owned(),
        )),
        (method, path) => order(node, method, path, query)
            .map(|done| (done + "\n", "text/plain"))
            .map_err(|why| (400, why)),
    };
    let (status, body, kind) = match answered {
        Ok((body, kind)) => (200, body, kind),
        Err((status, why)) => (status, why + "\n", "text/plain"),
    };
    let header = Header::from_bytes("Content-Type", kind).expect("a header of ours");
    let response = Response::from_string(body)
        .with_status_code(status)
        .with_header(header);
    // Whoever asked may have left.
    let _ = request.respond(response);
}

fn patterns(node: &Shared) -> Value {
    let adaptive = node.adaptive.as_ref();
    adaptive.map_or(Value::Null, |adaptive| adaptive.patterns())
}

fn order(node: &Shared, method: &Method, path: &str, query: &str) -> Result<String, String> {
    let said = |key: &str| parameter(query, key).ok_or_else(|| format!("{path} needs ?{key}=..."));
    let text = |error: &dyn std::fmt::Display| error.to_string();
    match (method, path) {
        (Method::Post, "/policy") => {
            let name = said("name")?;
            if name.eq_ignore_ascii_case("auto") {
                let auto = node.auto.as_ref();
                let auto = auto.ok_or("the node was not started with --policy auto")?;
                *auto.is_on() = true;
                return Ok("the policy is chosen by what arrives".to_owned());
            }
            if name.eq_ignore_ascii_case("adaptive") {
                let adaptive = node.adaptive.as_ref();
                let adaptive = adaptive.ok_or("the node was not started with --policy adaptive")?;
                *adaptive.is_on() = true;
                return Ok("policy and window are learned from what comes of them".to_owned());
            }
            let arm: Arm = name.parse().map_err(|error| text(&error))?;
            let mut auto = node.auto.as_ref().map(Auto::is_on);
            let mut adaptive = node.adaptive.as_ref().map(Adaptive::is_on);
            for is_on in [&mut auto, &mut adaptive].into_iter().flatten() {
                **is_on = false;
            }
            // A window that was not named stays.
            let set = match name.contains(':') {
                true => node.set_arm(arm),
                false => node.set_policy(arm.policy),
            };
            set.map_err(|error| text(&error))?;
            Ok(format!(
                "requests that come from now on are scheduled by {}",
                node.arm()
            ))
        }
        (Method::Post, "/record") => {
            let file = said("file")?;
            node.act_as_node().map_err(|error| text(&error))?;
            node.data
                .recording
                .start(file.as_ref())
                .map_err(|error| format!("{file}: {error}"))?;
            Ok(format!("recording to {file}"))
        }
        (Method::Delete, "/record") => match node.data.recording.stop() {
            Ok(Some(events)) => Ok(format!(
                "{events} events, {} lost",
                node.data.recording.lost()
            )),
            Ok(None) => Err("nothing is being recorded".to_owned()),
            Err(error) => Err(text(&error)),
        },
        (Method::Post, "/foresight") if parameter(query, "clients").is_some() => {
            let hear = match said("clients")?.as_str() {
                "on" => true,
                "off" => false,
                other => return Err(format!("clients={other}: on and off mean something")),
            };
            node.hear_clients(hear);
            Ok(match hear {
                true => "what clients foretell is heard",
                false => "what clients foretell is not heard any more",
            }
            .to_owned())
        }
        (Method::Post, "/foresight") => {
            let file = said("file")?;
            node.act_as_node().map_err(|error| text(&error))?;
            let taken = node
                .foresee_trace(file.as_ref())
                .map_err(|error| text(&error))?;
            Ok(format!("{taken} requests are foreseen"))
        }
        (Method::Delete, "/foresight") => {
            node.data.engine().forget_predictions();
            Ok("nothing is foreseen any more".to_owned())
        }
        _ => Err(format!("{method} {path} means nothing here")),
    }
}

/// A parameter of a query, with its escapes undone.
fn parameter(query: &str, key: &str) -> Option<String> {
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))?;
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

/// The main figures.
pub fn status(node: &Shared) -> Value {
    let statistics = node.data.engine().statistics();
    let operations = Op::ALL.map(|op| {
        let figures = statistics.view(|cell| cell.op == op);
        let value = json!({
            "requests": figures.sizes.count(),
            "bytes": figures.sizes.sum(),
            "requests_per_batch": figures.batch_requests.mean(),
            "queue_ns_p50": figures.time_in_queue.quantile(0.5),
            "queue_ns_p99": figures.time_in_queue.quantile(0.99),
            "service_ns_p50": figures.time_in_service.quantile(0.5),
            "service_ns_p99": figures.time_in_service.quantile(0.99),
        });
        (op.to_string(), value)
    });
    let jobs = node.metrics.jobs().into_iter().map(|(name, job)| {
        let ((reads, read), (writes, written)) = (job.of(Op::Read), job.of(Op::Write));
        let value = json!({ "reads": reads, "read_bytes": read, "writes": writes, "written_bytes": written });
        (name, value)
    });
    let foretold = node.data.engine().foretold();
    let users = node.accounts.list().into_iter().map(|account| {
        let limited =
            Limited::ALL.map(|(what, name)| (name.to_owned(), account.limited(what).into()));
        let value = json!({
            "files": account.files(),
            "requests": account.requests(),
            "memory_bytes": account.bytes(),
            "limited": limited.into_iter().collect::<serde_json::Map<_, _>>(),
        });
        (account.uid.to_string(), value)
    });
    json!({
        "node": node.config.name,
        "export": node.config.export,
        "policy": node.policy().to_string(),
        "window_us": node.arm().window.map(|window| window.0 as f64 / 1e3),
        "auto": node.auto.as_ref().map(Auto::status),
        "adaptive": node.adaptive.as_ref().map(Adaptive::status),
        "connections": node.connections(),
        "open_files": node.files.len(),
        "locks": node.locks.len(),
        "queued": node.data.engine().queued(),
        "in_flight": node.data.engine().in_flight(),
        "memory_bytes": node.data.buffers.in_use(),
        "recording": node.data.recording.path(),
        "foresight": {
            "hears_clients": node.hears_clients.load(Ordering::Relaxed),
            "announced": foretold.announced,
            "came": foretold.came,
            "waits": foretold.waits,
            "in_vain": foretold.in_vain,
            "request_64kib_us": {
                "read": request_us(node, Op::Read),
                "write": request_us(node, Op::Write),
            },
        },
        "operations": operations.into_iter().collect::<serde_json::Map<_, _>>(),
        "users": users.collect::<serde_json::Map<_, _>>(),
        "jobs": jobs.collect::<serde_json::Map<_, _>>(),
    })
}

/// What foresight takes the storage to need for a request of 64 KiB, in microseconds.
fn request_us(node: &Shared, op: Op) -> f64 {
    node.data.engine().service_time(op, 64 << 10).0 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_with_their_escapes() {
        assert_eq!(
            parameter("name=SJF&file=%2Ftmp%2Fa%20b", "file").unwrap(),
            "/tmp/a b"
        );
        assert_eq!(parameter("name=SJF", "file"), None);
        assert_eq!(parameter("file=100%", "file").unwrap(), "100%");
        assert_eq!(parameter("file=%ff", "file"), None);
    }
}
