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
//! What changes something is answered on Unix sockets only, which the file system protects; the policy also where the dashboard
//! is, for who has the token. The dashboard itself is `presagio-dashboard`'s.

use crate::accounts::Limited;
use crate::adaptive::Adaptive;
use crate::auto::Auto;
use crate::metrics::prometheus;
use crate::node::Shared;
use presagio_core::Op;
use presagio_dashboard::{Access, Bell, Request, Response, Service, Snapshot};
use presagio_tune::Arm;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

impl Service for Shared {
    fn snapshot(&self) -> Snapshot {
        self.view.snapshot(self)
    }

    fn bell(&self) -> &Bell {
        &self.view.bell
    }

    fn answer(&self, request: &Request, access: Access) -> Response {
        let may_order = match access {
            Access::Private => true,
            Access::Token => request.path == "/policy",
            Access::Read => false,
        };
        let json = |value| Response::of("application/json", format!("{value:#}\n"));
        match (&*request.method, &*request.path) {
            ("GET", "/metrics") => Response::of("text/plain; version=0.0.4", prometheus(self)),
            ("GET", "/status") => json(status(self)),
            ("GET", "/patterns") => json(patterns(self)),
            ("GET", _) => Response::text(404, "there are /metrics, /status and /patterns"),
            _ if !may_order => Response::text(
                403,
                "only the node's own Unix socket takes orders, and about the policy who has the token",
            ),
            _ => match order(self, request) {
                Ok(done) => Response::text(200, done),
                Err(why) => Response::text(400, why),
            },
        }
    }
}

fn patterns(node: &Shared) -> Value {
    let adaptive = node.adaptive.as_ref();
    adaptive.map_or(Value::Null, |adaptive| adaptive.patterns())
}

fn order(node: &Shared, request: &Request) -> Result<String, String> {
    let (method, path) = (&*request.method, &*request.path);
    let parameter = |key: &str| request.parameter(key);
    let said = |key: &str| parameter(key).ok_or_else(|| format!("{path} needs ?{key}=..."));
    let text = |error: &dyn std::fmt::Display| error.to_string();
    match (method, path) {
        ("POST", "/policy") => {
            let (name, before) = (said("name")?, node.arm());
            if name.eq_ignore_ascii_case("auto") {
                let auto = node.auto.as_ref();
                let auto = auto.ok_or("the node was not started with --policy auto")?;
                *auto.is_on() = true;
                node.view.ordered(node, before, false);
                return Ok("the policy is chosen by what arrives".to_owned());
            }
            if name.eq_ignore_ascii_case("adaptive") {
                let adaptive = node.adaptive.as_ref();
                let adaptive = adaptive.ok_or("the node was not started with --policy adaptive")?;
                *adaptive.is_on() = true;
                node.view.ordered(node, before, false);
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
            node.view.ordered(node, before, true);
            Ok(format!(
                "requests that come from now on are scheduled by {}",
                node.arm()
            ))
        }
        ("POST", "/record") => {
            let file = said("file")?;
            node.act_as_node().map_err(|error| text(&error))?;
            node.data
                .recording
                .start(file.as_ref())
                .map_err(|error| format!("{file}: {error}"))?;
            Ok(format!("recording to {file}"))
        }
        ("DELETE", "/record") => match node.data.recording.stop() {
            Ok(Some(events)) => Ok(format!(
                "{events} events, {} lost",
                node.data.recording.lost()
            )),
            Ok(None) => Err("nothing is being recorded".to_owned()),
            Err(error) => Err(text(&error)),
        },
        ("POST", "/foresight") if parameter("clients").is_some() => {
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
        ("POST", "/foresight") => {
            let file = said("file")?;
            node.act_as_node().map_err(|error| text(&error))?;
            let taken = node
                .foresee_trace(file.as_ref())
                .map_err(|error| text(&error))?;
            Ok(format!("{taken} requests are foreseen"))
        }
        ("DELETE", "/foresight") => {
            node.data.engine().forget_predictions();
            Ok("nothing is foreseen any more".to_owned())
        }
        _ => Err(format!("{method} {path} means nothing here")),
    }
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
