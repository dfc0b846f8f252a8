//! Everything that the dashboard shows, at one moment. `GET /snapshot` is this as JSON, and so is `presagio top --json`.
//!
//! Names of nodes and words of other machines come in through [`plain`]: one line without anything that could change how the
//! text around it looks.

use presagio_page::readable;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What [`Snapshot::format`] says.
pub const FORMAT: &str = "presagio-dashboard-1";

/// Harmless text of any text.
pub fn plain(text: &str) -> String {
    readable::name(text.as_bytes())
}

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`FORMAT`].
    pub format: String,
    /// The version of Presagio.
    pub presagio: String,
    /// `council` or `ionode`.
    pub service: String,
    /// What it is called.
    pub name: String,
    /// Another number each time that the service starts.
    pub life: String,
    /// When this was so: milliseconds since 1970, by the service's clock.
    pub at_ms: u64,
    /// For how long it runs.
    pub up_s: f64,
    /// Whether this window takes orders from who has the token.
    pub takes_orders: bool,
    /// How is decided.
    pub how: How,
    /// The figures of all of it.
    pub totals: Totals,
    /// I/O nodes, by name: those that are here, and those that left a short while ago.
    pub nodes: Vec<Node>,
    /// How many more there are.
    pub nodes_left_out: u64,
    /// Situations: those seen lately, and of the others those that are known best; the best known first.
    pub contexts: Vec<Context>,
    /// How many more are known.
    pub contexts_left_out: u64,
    /// What followed what, of these situations.
    pub chain: Vec<Link>,
    /// The patterns that are known, where situations are patterns.
    pub patterns: Option<Patterns>,
    /// What was decided lately, the newest first.
    pub decisions: Vec<Decision>,
}

/// How is decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct How {
    /// `learned`, `trees` or `given`.
    pub decides: String,
    /// How often, if at all.
    pub period_s: Option<f64>,
    /// How one choice comes of many, at a council.
    pub consensus: Option<String>,
    /// How arms are chosen, where that is learned.
    pub strategy: Option<String>,
    /// What all nodes are told, if they are told the same.
    pub agreed: Option<String>,
    /// What can be chosen.
    pub arms: Vec<String>,
}

/// The figures of all nodes together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Nodes that are here.
    pub nodes_here: u64,
    /// Nodes that left a short while ago.
    pub nodes_gone: u64,
    /// Bytes that were read a second.
    pub read_bytes_per_s: f64,
    /// Bytes that were written a second.
    pub write_bytes_per_s: f64,
    /// Reads and writes a second.
    pub requests_per_s: f64,
    /// Requests that wait in schedulers.
    pub queued: u64,
    /// Requests that the storage has.
    pub in_flight: u64,
    /// Situations that are known.
    pub contexts: u64,
    /// Decisions since the service began.
    pub decisions: u64,
    /// Those among them that try something.
    pub explorations: u64,
    /// What a decision takes: half of them less.
    pub decision_ns_p50: Option<u64>,
    /// Of a hundred, all but one less.
    pub decision_ns_p99: Option<u64>,
}

/// Whether a node is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It is, and says what it does.
    #[default]
    Here,
    /// It is connected, and has not said anything for a while.
    Silent,
    /// It has left.
    Gone,
}

/// An I/O node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it is called.
    pub name: String,
    /// Whether it is here.
    pub state: NodeState,
    /// Since when: milliseconds since 1970.
    pub since_ms: u64,
    /// The policy that is in force.
    pub policy: Option<String>,
    /// TWINS's window.
    pub window_us: Option<f64>,
    /// Who said so: `council`, `node`, `trees`, `person`, or `start` where nothing was decided.
    pub by: String,
    /// Whether it is tried rather than believed to be best.
    pub explores: bool,
    /// The situation that it is in.
    pub context: Option<String>,
    /// Why that policy.
    pub why: Option<String>,
    /// Connections of clients.
    pub connections: Option<u64>,
    /// Its line to the council, if it has one: whether that listens.
    pub council: Option<bool>,
    /// The last sample.
    pub now: Option<Sample>,
    /// The last minutes, oldest first.
    pub recent: Vec<Sample>,
}

/// What a node did in a second or so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it ended: milliseconds since 1970, by the clock of who tells.
    pub at_ms: u64,
    /// How long it was.
    pub span_ms: u64,
    /// Bytes that were read a second.
    pub read_bytes_per_s: f64,
    /// Bytes that were written a second.
    pub write_bytes_per_s: f64,
    /// Reads and writes a second.
    pub requests_per_s: f64,
    /// How long requests waited in the scheduler: half of them less. None if none was served.
    pub queue_ns_p50: Option<u64>,
    /// Of a hundred, all but one less.
    pub queue_ns_p99: Option<u64>,
    /// How long the storage took: half of them less.
    pub service_ns_p50: Option<u64>,
    /// Of a hundred, all but one less.
    pub service_ns_p99: Option<u64>,
    /// Requests that waited at its end.
    pub queued: u64,
    /// Requests that the storage had at its end.
    pub in_flight: u64,
}

/// What is known of an arm in a situation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Which.
    pub arm: String,
    /// Its average as a share of the best; none if it was never tried.
    pub value: Option<f64>,
    /// How often it was tried.
    pub tries: u64,
    /// The average, in bytes per busy second.
    pub bytes_per_busy_s: Option<f64>,
    /// Whether it was so bad that it is not tried any more.
    pub barred: bool,
}

/// A situation and its bandit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// In words.
    pub context: String,
    /// Tries of all arms.
    pub tries: u64,
    /// The best average, in bytes per busy second.
    pub best_bytes_per_busy_s: f64,
    /// What was chosen in it last.
    pub choice: Option<String>,
    /// Why.
    pub why: Option<String>,
    /// When it was last seen: milliseconds since 1970; none if not since the service began.
    pub last_ms: Option<u64>,
    /// Nodes that are in it.
    pub nodes: Vec<String>,
    /// Its arms.
    pub arms: Vec<Arm>,
}

/// One situation came after another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The first.
    pub from: String,
    /// The second.
    pub to: String,
    /// How often.
    pub times: u64,
    /// The share of that in all that came after the first, of what is listed.
    #[serde(default)]
    pub share: f64,
}

impl Link {
    /// What came after what, and how often.
    pub fn all(links: impl Iterator<Item = (String, String, u64)>) -> Vec<Link> {
        let mut all: Vec<Link> = links
            .map(|(from, to, times)| Link {
                from,
                to,
                times,
                share: 0.0,
            })
            .collect();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for link in &all {
            *sums.entry(link.from.clone()).or_default() += link.times;
        }
        for link in &mut all {
            link.share = link.times as f64 / sums[&link.from].max(1) as f64;
        }
        all
    }
}

/// The patterns that are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Patterns {
    /// How many there are.
    pub known: u64,
    /// What comes next, by what came after the current one until now, and how likely that is.
    pub next: Option<(u64, f64)>,
    /// Those that came most often.
    pub list: Vec<Pattern>,
    /// What came after what, of these.
    pub chain: Vec<Link>,
}

/// A pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    /// Its number.
    pub id: u64,
    /// How often it came.
    pub times: u64,
    /// Requests of a period of it.
    pub requests: u64,
    /// Its shape, in a few points from 0 to 1.
    pub shape: Vec<f64>,
}

/// What there was to choose from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which arm.
    pub arm: String,
    /// Its average as a share of the best; none if it was never tried.
    pub value: Option<f64>,
    /// How often it was tried.
    pub tries: u64,
    /// Whether it is not to be tried any more.
    pub barred: bool,
}

/// Something that was decided, once or several times in a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Its number.
    pub id: u64,
    /// Grows whenever a decision comes or comes again.
    pub revision: u64,
    /// When, for the first time: milliseconds since 1970.
    pub at_ms: u64,
    /// When, for the last time.
    pub last_ms: u64,
    /// How often in a row.
    pub times: u64,
    /// For which node.
    pub node: String,
    /// By whom: as [`Node::by`].
    pub by: String,
    /// In which situation.
    pub context: Option<String>,
    /// What was in force before.
    pub before: Option<String>,
    /// What is to be in force.
    pub chosen: String,
    /// What the node's own situation chose, where nodes agree.
    pub own: Option<String>,
    /// Whether it is tried rather than believed to be best.
    pub explores: bool,
    /// Why, in words.
    pub why: String,
    /// How votes were counted.
    pub consensus: Option<String>,
    /// What was seen, of the last time.
    pub evidence: Map<String, Value>,
    /// What there was to choose from, of the last time.
    pub candidates: Vec<Candidate>,
    /// What there was for each arm.
    pub votes: Vec<(String, f64)>,
}

impl Decision {
    /// The same with harmless texts.
    pub(crate) fn harmless(mut self) -> Decision {
        for text in [&mut self.node, &mut self.chosen, &mut self.why] {
            *text = plain(text);
        }
        let maybe = [&mut self.context, &mut self.before, &mut self.own];
        for text in maybe.into_iter().flatten() {
            *text = plain(text);
        }
        for value in self.evidence.values_mut() {
            if let Value::String(text) = value {
                *text = plain(text);
            }
        }
        self
    }
}

impl Totals {
    /// Adds up what nodes do now.
    pub fn add_up(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node.state {
                NodeState::Gone => self.nodes_gone += 1,
                NodeState::Here | NodeState::Silent => self.nodes_here += 1,
            }
            let Some(now) = node.now.filter(|_| node.state == NodeState::Here) else {
                continue;
            };
            self.read_bytes_per_s += now.read_bytes_per_s;
            self.write_bytes_per_s += now.write_bytes_per_s;
            self.requests_per_s += now.requests_per_s;
            self.queued += now.queued;
            self.in_flight += now.in_flight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_came_after_the_same() {
        let link = |from: &str, to: &str, times| (from.to_owned(), to.to_owned(), times);
        let links = [link("a", "b", 3), link("b", "a", 5), link("a", "a", 1)];
        let shares: Vec<f64> = Link::all(links.into_iter())
            .iter()
            .map(|l| l.share)
            .collect();
        assert_eq!(shares, [0.75, 1.0, 0.25]);
    }

    #[test]
    fn the_figures_of_nodes_that_left_do_not_count() {
        let node = |state, read| Node {
            state,
            now: Some(Sample {
                read_bytes_per_s: read,
                queued: 2,
                ..Sample::default()
            }),
            ..Node::default()
        };
        let mut totals = Totals::default();
        totals.add_up(&[
            node(NodeState::Here, 5.0),
            node(NodeState::Here, 7.0),
            node(NodeState::Silent, 100.0),
            node(NodeState::Gone, 1000.0),
        ]);
        assert_eq!((totals.nodes_here, totals.nodes_gone), (3, 1));
        assert_eq!((totals.read_bytes_per_s, totals.queued), (12.0, 4));
    }
}
