//! What a node counts, and how Prometheus reads it.

use crate::accounts::{Account, Limited};
use crate::adaptive::Adaptive;
use crate::auto::Auto;
use crate::node::Shared;
use presagio_core::{Histogram, Op};
use presagio_ninep::Kind;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Jobs that are counted apart. When there are more, those that nobody is there for any more are forgotten; while all are
/// in use, further ones are counted as one.
const JOBS_MAX: usize = 1024;

/// What all clients did.
pub struct Metrics {
    requests: [AtomicU64; 256],
    /// Connections that came.
    pub connections: AtomicU64,
    /// Attempts at what is not allowed.
    pub refused: AtomicU64,
    /// Connections that were ended because of what they sent.
    pub ended: AtomicU64,
    /// Reads that waited for the device in a ring.
    pub ring_reads: AtomicU64,
    jobs: Mutex<HashMap<String, Arc<JobMetrics>>>,
}

/// What the clients of one job did.
#[derive(Debug, Default)]
pub struct JobMetrics {
    requests: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
}

impl JobMetrics {
    /// A read or write that moved `bytes`.
    pub fn count(&self, op: Op, bytes: u64) {
        self.requests[op.index()].fetch_add(1, Ordering::Relaxed);
        self.bytes[op.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether nothing was counted.
    fn is_nothing(&self) -> bool {
        Op::ALL.iter().all(|op| self.of(*op).0 == 0)
    }

    /// Reads or writes, and their bytes.
    pub fn of(&self, op: Op) -> (u64, u64) {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        (
            load(&self.requests[op.index()]),
            load(&self.bytes[op.index()]),
        )
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            ring_reads: AtomicU64::new(0),
            jobs: Mutex::default(),
        }
    }
}

impl Metrics {
    /// A request came.
    pub fn request(&self, kind: Kind) {
        self.requests[usize::from(kind.0)].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests of each type that came.
    pub fn requests(&self) -> impl Iterator<Item = (Kind, u64)> {
        let all = self.requests.iter().enumerate();
        all.map(|(kind, count)| (Kind(kind as u8), count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
    }

    /// Where the clients of a job are counted.
    pub fn job(&self, name: &str) -> Arc<JobMetrics> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !jobs.contains_key(name);
        if is_new && jobs.len() >= JOBS_MAX {
            jobs.retain(|_, job| Arc::strong_count(job) > 1 || !job.is_nothing());
        }
        if is_new && jobs.len() >= JOBS_MAX {
            jobs.retain(|_, job| Arc::strong_count(job) > 1);
        }
        let name = match jobs.len() < JOBS_MAX || !is_new {
            true => name,
            false => "other",
        };
        jobs.entry(name.to_owned()).or_default().clone()
    }

    /// All jobs, by name.
    pub fn jobs(&self) -> Vec<(String, Arc<JobMetrics>)> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = jobs
            .iter()
            .map(|(name, job)| (name.clone(), job.clone()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

/// All figures of a node, in Prometheus's text format.
pub fn prometheus(node: &Shared) -> String {
    let mut page = Page(String::new());
    let metrics = &node.metrics;
    page.gauge(
        "connections",
        "Connections at the moment",
        node.connections() as f64,
    );
    page.counter(
        "connections_total",
        "Connections that came",
        &metrics.connections,
    );
    page.counter(
        "refused_total",
        "Attempts at what is not allowed",
        &metrics.refused,
    );
    page.counter(
        "ended_total",
        "Connections that were ended because of what they sent",
        &metrics.ended,
    );
    page.counter(
        "ring_reads_total",
        "Reads that waited for the device in an io_uring",
        &metrics.ring_reads,
    );
    page.gauge(
        "queued",
        "Requests in the scheduler",
        node.data.engine().queued() as f64,
    );
    page.gauge(
        "in_flight",
        "Requests at the storage",
        node.data.engine().in_flight() as f64,
    );
    page.gauge(
        "jobs_waiting",
        "Operations that wait for a thread",
        node.jobs.waiting() as f64,
    );
    page.gauge(
        "memory_bytes",
        "Memory of payloads under way",
        node.data.buffers.in_use() as f64,
    );
    page.gauge(
        "open_files",
        "Files that some client has open",
        node.files.len() as f64,
    );
    page.gauge(
        "locks",
        "Byte ranges that are locked",
        node.locks.len() as f64,
    );
    page.head("requests_total", "Requests that came, by type", "counter");
    for (kind, count) in metrics.requests() {
        page.line("requests_total", &format!("type=\"{kind}\""), count as f64);
    }
    page.head(
        "job_bytes_total",
        "Bytes that the clients of a job moved",
        "counter",
    );
    for (name, job) in metrics.jobs() {
        for op in Op::ALL {
            let labels = format!("job=\"{}\",op=\"{op}\"", escaped(&name));
            page.line("job_bytes_total", &labels, job.of(op).1 as f64);
        }
    }
    users(node, &mut page);
    scheduler(node, &mut page);
    if let Some(auto) = &node.auto {
        chosen(auto, &mut page);
    }
    if let Some(adaptive) = &node.adaptive {
        learned(adaptive, &mut page);
    }
    page.0
}

fn chosen(auto: &Auto, page: &mut Page) {
    page.counter(
        "auto_decisions_total",
        "Times that a policy was chosen",
        &auto.decisions,
    );
    page.counter(
        "auto_changes_total",
        "Times that the policy was changed",
        &auto.changes,
    );
    let Some(decision) = auto.last() else { return };
    page.head("auto_decision", "What was decided last, and why", "gauge");
    let labels = format!(
        "policy=\"{}\",class=\"{}\",tree=\"{}\",reason=\"{}\"",
        decision.name(),
        decision
            .situation
            .class
            .map_or("unknown", presagio_tune::Class::name),
        escaped(&decision.tree),
        escaped(&decision.reason)
    );
    page.line("auto_decision", &labels, 1.0);
}

fn learned(adaptive: &Adaptive, page: &mut Page) {
    for (name, help, count) in [
        (
            "adaptive_decisions_total",
            "Decisions of the council and of the node",
            &adaptive.decisions,
        ),
        (
            "adaptive_alone_total",
            "Decisions of the node alone",
            &adaptive.alone,
        ),
        (
            "adaptive_changes_total",
            "Times that the policy or its window was changed",
            &adaptive.changes,
        ),
    ] {
        page.counter(name, help, count);
    }
    if let Some(is_heard) = adaptive.is_heard() {
        let connected = if is_heard { 1.0 } else { 0.0 };
        page.gauge(
            "council_connected",
            "Whether the council listens",
            connected,
        );
    }
    let Some(said) = adaptive.last() else { return };
    page.head(
        "adaptive_decision",
        "What was decided last, and why",
        "gauge",
    );
    let labels = format!(
        "arm=\"{}\",by=\"{}\",context=\"{}\",why=\"{}\"",
        said.arm,
        said.by,
        escaped(&said.context),
        escaped(&said.why)
    );
    page.line("adaptive_decision", &labels, 1.0);
}

fn users(node: &Shared, page: &mut Page) {
    let all = node.accounts.list();
    type Figure = fn(&Account) -> usize;
    let gauges: [(&str, &str, Figure); 3] = [
        ("user_files", "Files that a user has", Account::files),
        (
            "user_requests",
            "Requests of a user under way",
            Account::requests,
        ),
        (
            "user_memory_bytes",
            "Payload of a user under way",
            Account::bytes,
        ),
    ];
    for (name, help, figure) in gauges {
        page.head(name, help, "gauge");
        for account in &all {
            let labels = format!("uid=\"{}\"", account.uid);
            page.line(name, &labels, figure(account) as f64);
        }
    }
    let name = "user_limited_total";
    page.head(name, "How often a user had reached a limit", "counter");
    for account in &all {
        for (what, limit) in Limited::ALL {
            let labels = format!("uid=\"{}\",limit=\"{limit}\"", account.uid);
            page.line(name, &labels, account.limited(what) as f64);
        }
    }
}

fn scheduler(node: &Shared, page: &mut Page) {
    let foretold = node.data.engine().foretold();
    for (name, help, count) in [
        (
            "foreseen_total",
            "Requests that clients announced",
            foretold.announced,
        ),
        (
            "foreseen_came_total",
            "Announced requests that came",
            foretold.came,
        ),
        (
            "foresight_waits_total",
            "Batches that were held back for announced requests",
            foretold.waits,
        ),
        (
            "foresight_waits_in_vain_total",
            "Those whose requests did not all come in time",
            foretold.in_vain,
        ),
    ] {
        page.head(name, help, "counter");
        page.line(name, "", count as f64);
    }
    let statistics = node.data.engine().statistics();
    let figures = Op::ALL.map(|op| (op, statistics.view(|cell| cell.op == op)));
    page.head(
        "bytes_total",
        "Bytes of requests that came to the scheduler",
        "counter",
    );
    for (op, figures) in &figures {
        page.line(
            "bytes_total",
            &format!("op=\"{op}\""),
            figures.sizes.sum() as f64,
        );
    }
    let seconds = 1e-9;
    for (op, figures) in &figures {
        page.summary(
            "queue_seconds",
            "From arrival to dispatch",
            *op,
            &figures.time_in_queue,
            seconds,
        );
        page.summary(
            "service_seconds",
            "From dispatch to completion",
            *op,
            &figures.time_in_service,
            seconds,
        );
        page.summary(
            "batch_requests",
            "Requests that one operation served",
            *op,
            &figures.batch_requests,
            1.0,
        );
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let head = format!("# HELP presagio_ionode_{name} {help}\n");
        // Two operations share a name: it is described once.
        if !self.0.contains(&head) {
            let _ = writeln!(self.0, "{head}# TYPE presagio_ionode_{name} {kind}");
        }
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        let _ = writeln!(self.0, "presagio_ionode_{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.line(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: &AtomicU64) {
        self.head(name, help, "counter");
        self.line(name, "", value.load(Ordering::Relaxed) as f64);
    }

    fn summary(&mut self, name: &str, help: &str, op: Op, of: &Histogram, unit: f64) {
        self.head(name, help, "summary");
        for quantile in [0.5, 0.9, 0.99] {
            let value = of.quantile(quantile).unwrap_or(0) as f64 * unit;
            self.line(name, &format!("op=\"{op}\",quantile=\"{quantile}\""), value);
        }
        self.line(
            &format!("{name}_sum"),
            &format!("op=\"{op}\""),
            of.sum() as f64 * unit,
        );
        self.line(
            &format!("{name}_count"),
            &format!("op=\"{op}\""),
            of.count() as f64,
        );
    }
}

/// A label's value may not end itself.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_are_over_make_room_for_new_ones() {
        let metrics = Metrics::default();
        let (runs, done) = (metrics.job("runs"), metrics.job("done"));
        done.count(Op::Read, 7);
        drop(done);
        // Somebody who says names, and does nothing.
        for number in 0..3 * JOBS_MAX {
            metrics.job(&number.to_string());
        }
        let names = || metrics.jobs().into_iter().map(|(name, _)| name);
        assert!(metrics.jobs().len() <= JOBS_MAX && names().all(|name| name != "other"));
        assert!(names().any(|name| name == "done"), "what was counted stays");
        let held: Vec<_> = (0..JOBS_MAX)
            .map(|number| metrics.job(&format!("held {number}")))
            .collect();
        assert!(names().any(|name| name == "runs") && names().all(|name| name != "done"));
        metrics.job("one too many").count(Op::Write, 3);
        assert_eq!(metrics.job("other").of(Op::Write), (1, 3));
        drop((runs, held));
        assert_eq!(metrics.job("another").of(Op::Read), (0, 0));
        assert!(names().any(|name| name == "another"));
    }
}
