//! Several summaries become one: inside programs, a run can have had a manager after another, each of which left its
//! summary in a file.

use super::Judged;
use super::account::busiest_first;
use super::summary::{Foretold, Loads, Named, Summary, Totals, Waited, reason_name};
use crate::plan::Reason;
use crate::strategy::Followed;
use presagio_core::{Action, Nanos};
use serde_json::Value;
use std::collections::BTreeMap;

const REASONS: [Reason; 5] = [
    Reason::Exact,
    Reason::Sieving,
    Reason::Configured,
    Reason::Random,
    Reason::Written,
];

impl Summary {
    /// Reads what [`Summary::json`] wrote; what is not there counts as nothing.
    pub fn from_json(json: &Value) -> Summary {
        let prediction = &json["prediction"];
        let prefetch = &json["prefetch"];
        let by_reason = REASONS.into_iter().filter_map(|reason| {
            let loads = prefetch["by_reason"].get(reason_name(reason))?;
            Some((reason, loads_of(loads)))
        });
        Summary {
            elapsed: Nanos(number(&json["elapsed_ns"])),
            job: json["job"].as_str().map(str::to_owned),
            processes: number(&json["processes"]),
            still_running: number(&json["still_running"]),
            files: number(&json["files"]),
            contexts: number(&json["contexts"]),
            totals: totals(&json["totals"]),
            programs: named(&json["programs"]),
            busiest: named(&json["busiest_files"]),
            judged: judged(prediction),
            followed: followed(&prediction["recorded"]),
            models_begun: number(&prediction["models_begun"]),
            models_saved: number(&prediction["models_saved"]),
            advised: prefetch["advised"].as_bool().unwrap_or_default(),
            loads: by_reason.collect(),
            waits: waits(&prefetch["waits"]),
            useful: number(&prefetch["bytes_useful"]),
            wasted: number(&prefetch["bytes_wasted"]),
            backends: texts(&prefetch["backends"]),
            foretold: foretold(&json["forwarded"]),
            decided: texts(&json["decided"]),
            unseen: texts(&json["not_seen"]),
            notes: texts(&json["notes"]),
            trace: json["trace"]["path"]
                .as_str()
                .map(|path| (path.to_owned(), number(&json["trace"]["records"]))),
            manager_time: Nanos(number(&json["manager_cpu_ns"])),
        }
    }

    /// Adds what another manager of the same run saw, after this one or beside it. A file that both saw counts twice.
    pub fn add(&mut self, other: Summary) {
        self.elapsed += other.elapsed;
        self.job = self.job.take().or(other.job);
        self.processes += other.processes;
        self.still_running += other.still_running;
        self.files += other.files;
        self.contexts += other.contexts;
        self.totals.add(&other.totals);
        self.programs = joined(std::mem::take(&mut self.programs), other.programs);
        self.busiest = joined(std::mem::take(&mut self.busiest), other.busiest);
        self.judged.add(&other.judged);
        self.followed.add(other.followed);
        self.models_begun += other.models_begun;
        self.models_saved += other.models_saved;
        self.advised |= other.advised;
        self.loads = added(&self.loads, &other.loads);
        self.waits.extend(other.waits);
        self.useful += other.useful;
        self.wasted += other.wasted;
        self.backends.extend(other.backends);
        self.foretold.files += other.foretold.files;
        self.foretold.requests += other.foretold.requests;
        self.foretold.came += other.foretold.came;
        self.foretold.given_up += other.foretold.given_up;
        self.decided.extend(other.decided);
        for (mine, its) in [
            (&mut self.unseen, other.unseen),
            (&mut self.notes, other.notes),
        ] {
            let new: Vec<String> = its.into_iter().filter(|n| !mine.contains(n)).collect();
            mine.extend(new);
        }
        self.trace = match (self.trace.take(), other.trace) {
            (Some((path, mine)), Some((_, its))) => Some((path, mine + its)),
            (mine, its) => mine.or(its),
        };
        self.manager_time += other.manager_time;
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

fn totals(json: &Value) -> Totals {
    let mut totals = Totals {
        read: number(&json["bytes_read"]),
        written: number(&json["bytes_written"]),
        failed: number(&json["failed"]),
        ..Totals::default()
    };
    for action in Action::ALL {
        let one = &json["actions"][action.name()];
        totals.operations[action as usize] = number(&one["operations"]);
        totals.time_ns[action as usize] = number(&one["time_ns"]);
    }
    totals
}

fn named(json: &Value) -> Vec<Named> {
    let list = json.as_array().into_iter().flatten();
    let one = |value: &Value| Named {
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        processes: number(&value["processes"]),
        totals: totals(&value["totals"]),
    };
    list.map(one).collect()
}

fn waits(json: &Value) -> Vec<Waited> {
    let list = json.as_array().into_iter().flatten();
    let one = |value: &Value| Waited {
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        method: value["method"].as_str().unwrap_or_default().to_owned(),
        with_ns: number(&value["with_ns"]),
        without_ns: number(&value["without_ns"]),
        with_reads: number(&value["with_reads"]),
        without_reads: number(&value["without_reads"]),
    };
    list.map(one).collect()
}

fn judged(json: &Value) -> Judged {
    let of = |name: &str| number(&json[name]);
    let ratio = json["hit_ratio"].as_f64().unwrap_or_default();
    Judged {
        operations: of("operations"),
        confident: of("confident"),
        confident_right: of("confident_right"),
        context_right: of("context_right"),
        right: of("right"),
        transfers: of("transfers"),
        offset_right: of("offset_right"),
        size_right: of("size_right"),
        hit: ratio * of("transfers") as f64,
    }
}

fn followed(json: &Value) -> Followed {
    Followed {
        reads: number(&json["reads"]),
        told: number(&json["told"]),
        right: number(&json["right"]),
    }
}

fn foretold(json: &Value) -> Foretold {
    Foretold {
        files: number(&json["files"]),
        requests: number(&json["foretold"]),
        came: number(&json["came"]),
        given_up: number(&json["given_up"]),
    }
}

fn loads_of(json: &Value) -> Loads {
    Loads {
        hints: number(&json["hints"]),
        asked: number(&json["bytes_asked"]),
        already: number(&json["bytes_already"]),
        loaded: number(&json["bytes_loaded"]),
    }
}

/// Two lists in one, each name once.
fn joined(mine: Vec<Named>, its: Vec<Named>) -> Vec<Named> {
    let mut all: BTreeMap<String, Named> = BTreeMap::new();
    for one in mine.into_iter().chain(its) {
        match all.get_mut(&one.name) {
            Some(known) => {
                known.processes += one.processes;
                known.totals.add(&one.totals);
            }
            None => {
                all.insert(one.name.clone(), one);
            }
        }
    }
    busiest_first(all.into_values().collect())
}

fn added(mine: &[(Reason, Loads)], its: &[(Reason, Loads)]) -> Vec<(Reason, Loads)> {
    let mut all: BTreeMap<Reason, Loads> = BTreeMap::new();
    for (reason, loads) in mine.iter().chain(its) {
        let sum = all.entry(*reason).or_default();
        sum.hints += loads.hints;
        sum.asked += loads.asked;
        sum.already += loads.already;
        sum.loaded += loads.loaded;
    }
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str) -> Summary {
        let mut totals = Totals {
            read: 4096,
            written: 7,
            failed: 1,
            ..Totals::default()
        };
        totals.operations[Action::Read as usize] = 3;
        totals.time_ns[Action::Read as usize] = 1000;
        let named = Named {
            name: name.into(),
            processes: 2,
            totals,
        };
        Summary {
            elapsed: Nanos(5),
            processes: 2,
            totals,
            programs: vec![named.clone()],
            busiest: vec![named],
            judged: Judged {
                operations: 3,
                transfers: 2,
                hit: 1.0,
                ..Judged::default()
            },
            followed: Followed {
                reads: 3,
                told: 2,
                right: 1,
            },
            advised: true,
            loads: vec![(
                Reason::Sieving,
                Loads {
                    hints: 1,
                    asked: 2,
                    already: 3,
                    loaded: 4,
                },
            )],
            waits: vec![Waited {
                name: name.into(),
                method: "sieving".into(),
                with_ns: 5,
                without_ns: 6,
                with_reads: 7,
                without_reads: 8,
            }],
            useful: 4,
            foretold: Foretold {
                files: 1,
                requests: 20,
                came: 19,
                given_up: 2,
            },
            decided: vec![name.into()],
            notes: vec!["the same".into()],
            trace: Some(("/t".into(), 9)),
            ..Summary::default()
        }
    }

    #[test]
    fn a_summary_survives_its_json() {
        let json = example("app").json();
        assert_eq!(Summary::from_json(&json).json(), json);
        let nothing = Summary::from_json(&Value::Null);
        assert_eq!(nothing.json(), Summary::default().json());
    }

    #[test]
    fn two_summaries_are_one_with_the_sums_of_both() {
        let mut both = example("sh");
        both.add(example("app"));
        both.add(example("app"));
        let json = both.json();
        assert_eq!(json["processes"], 6);
        assert_eq!(json["totals"]["actions"]["read"]["operations"], 9);
        assert_eq!(json["programs"].as_array().unwrap().len(), 2);
        assert_eq!(json["programs"][0]["name"], "app");
        assert_eq!(json["programs"][0]["totals"]["bytes_read"], 8192);
        assert_eq!(json["prefetch"]["by_reason"]["sieving"]["bytes_loaded"], 12);
        assert_eq!(json["prefetch"]["waits"].as_array().unwrap().len(), 3);
        assert_eq!(json["prediction"]["hit_ratio"], 0.5);
        assert_eq!(json["notes"], serde_json::json!(["the same"]));
        assert_eq!(json["trace"]["records"], 27);
    }
}
