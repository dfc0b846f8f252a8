//! What a node tells about a period: what arrived ([`Watch`]), and how fast it was served ([`Observation`]).
//!
//! [`Watch`] sees each request that arrives and keeps the five figures that paper 001 tells accesses apart by (V): file
//! handles, the least, greatest and average size of requests, and the average *handle distance*, how far in bytes a request
//! begins from where the one before it in the same file ended.

use crate::context::{Context, Load, Magnitude, Situation};
use crate::network::Detector;
use presagio_core::{FileId, IdHashMap, Nanos, Op, Request};

/// Files that are followed in a period. Of the others only sizes count.
const FILES_MAX: usize = 8192;

/// Requests in a period below which they tell nothing about who makes them.
pub const REQUESTS_MIN: u64 = 16;

/// A node that was busy for less than this share of a period says nothing about its arm.
const BUSY_MIN: f64 = 0.02;

/// The five figures of paper 001, V.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// Files that requests came for.
    pub handles: u64,
    /// The greatest request, in bytes.
    pub size_max: u64,
    /// The least.
    pub size_min: u64,
    /// The average.
    pub size_mean: f64,
    /// The average distance, in bytes, between consecutive requests of a file.
    pub distance: f64,
}

impl Features {
    /// Their names, in order.
    pub const NAMES: [&str; 5] = ["handles", "size_max", "size_min", "size_mean", "distance"];

    /// Their values, in order.
    pub fn values(&self) -> [f64; 5] {
        [
            self.handles as f64,
            self.size_max as f64,
            self.size_min as f64,
            self.size_mean,
            self.distance,
        ]
    }
}

/// What arrived in a period, of the operation that most of it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived {
    /// Which operation.
    pub op: Op,
    /// Requests of it.
    pub requests: u64,
    /// What they were like.
    pub features: Features,
}

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    ops: [Sums; 2],
}

#[derive(Clone, Debug, Default)]
struct Sums {
    requests: u64,
    bytes: u64,
    size_max: u64,
    size_min: u64,
    /// Where the last request of each file ended.
    ends: IdHashMap<FileId, u64>,
    distance: f64,
    pairs: u64,
}

impl Watch {
    /// Has seen nothing.
    pub fn new() -> Watch {
        Watch::default()
    }

    /// A request arrives. Empty ones tell nothing.
    #[inline]
    pub fn arrived(&mut self, request: &Request) {
        if request.range.is_empty() {
            return;
        }
        let sums = &mut self.ops[request.op.index()];
        let size = request.range.len();
        if sums.requests == 0 {
            sums.size_min = size;
        }
        sums.requests += 1;
        sums.bytes = sums.bytes.saturating_add(size);
        sums.size_max = sums.size_max.max(size);
        sums.size_min = sums.size_min.min(size);
        if let Some(end) = sums.ends.get_mut(&request.file) {
            sums.distance += request.range.start().abs_diff(*end) as f64;
            sums.pairs += 1;
            *end = request.range.end();
        } else if sums.ends.len() < FILES_MAX {
            sums.ends.insert(request.file, request.range.end());
        }
    }

    /// What arrived; none if it was too little to tell anything. The next period begins.
    pub fn end_period(&mut self) -> Option<Arrived> {
        let [reads, writes] = [self.ops[0].requests, self.ops[1].requests];
        let op = if writes > reads { Op::Write } else { Op::Read };
        let sums = &self.ops[op.index()];
        let arrived = (sums.requests >= REQUESTS_MIN).then(|| Arrived {
            op,
            requests: sums.requests,
            features: sums.features(),
        });
        self.ops.iter_mut().for_each(Sums::clear);
        arrived
    }
}

impl Sums {
    fn features(&self) -> Features {
        Features {
            handles: self.ends.len() as u64,
            size_max: self.size_max,
            size_min: self.size_min,
            size_mean: self.bytes as f64 / self.requests.max(1) as f64,
            distance: self.distance / self.pairs.max(1) as f64,
        }
    }

    fn clear(&mut self) {
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        *self = Sums {
            ends,
            ..Sums::default()
        };
    }
}

/// What a node says about a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// How long it was.
    pub period: Nanos,
    /// For how much of it something was queued or in service.
    pub busy: Nanos,
    /// Bytes of requests that were finished.
    pub served: u64,
    /// Data servers behind the node.
    pub servers: u32,
    /// Machines that requests came from.
    pub clients: u32,
    /// Processes that they came from.
    pub processes: u32,
    /// What arrived; none if too little to tell anything.
    pub arrived: Option<Arrived>,
}

/// An observation cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be: {value}")]
pub struct Nonsense {
    /// Which figure.
    pub what: &'static str,
    /// What it was said to be.
    pub value: String,
}

/// No node serves more than this in a second.
const BYTES_PER_S_MAX: f64 = 1e14;

impl Observation {
    /// Whether all of it can be true.
    pub fn check(&self) -> Result<(), Nonsense> {
        let claim = |what, value: String, can_be: bool| match can_be {
            true => Ok(()),
            false => Err(Nonsense { what, value }),
        };
        let length_can_be = (1_000..=3_600_000_000_000).contains(&self.period.0);
        claim(
            "the period's length",
            self.period.to_string(),
            length_can_be,
        )?;
        // A period ends a little late, and what was busy is counted then.
        let busy_can_be = self.busy.0 <= self.period.0.saturating_mul(2);
        claim("the busy time", self.busy.to_string(), busy_can_be)?;
        let bytes_max = BYTES_PER_S_MAX * self.period.as_secs_f64();
        let served_can_be = self.served as f64 <= bytes_max;
        claim("bytes served", self.served.to_string(), served_can_be)?;
        let Some(Arrived {
            features, requests, ..
        }) = &self.arrived
        else {
            return Ok(());
        };
        let sizes = [
            features.size_min as f64,
            features.size_mean,
            features.size_max as f64,
        ];
        let sizes_can_be = features.size_mean.is_finite()
            && sizes[0] <= sizes[1] + 1.0
            && sizes[1] <= sizes[2] + 1.0
            && sizes[2] <= bytes_max;
        claim("sizes of requests", format!("{sizes:?}"), sizes_can_be)?;
        let distance_can_be = (0.0..=1.9e19).contains(&features.distance);
        claim(
            "the distance",
            features.distance.to_string(),
            distance_can_be,
        )?;
        let handles_can_be = (1..=*requests).contains(&features.handles);
        claim("file handles", features.handles.to_string(), handles_can_be)
    }

    /// Bytes served per busy second; none if the node was hardly busy.
    pub fn reward(&self) -> Option<f64> {
        let busy_min = self.period.as_secs_f64() * BUSY_MIN;
        let busy = self.busy.as_secs_f64();
        (self.served > 0 && busy >= busy_min).then(|| self.served as f64 / busy)
    }

    /// The context: what arrived through so many I/O nodes. None where nothing can be told.
    pub fn context(&self, detector: &Detector, ionodes: u32) -> Option<Context> {
        let Arrived { op, features, .. } = self.arrived.as_ref()?;
        let busy = self.busy.as_secs_f64() / self.period.as_secs_f64().max(1e-9);
        Some(Context::Situation(Situation {
            servers: Magnitude::of(self.servers.into()),
            ionodes: Magnitude::of(ionodes.into()),
            clients: Magnitude::of(self.clients.into()),
            processes: Magnitude::of(self.processes.into()),
            op: *op,
            access: detector.access(features),
            size: Magnitude::of(features.size_mean as u64),
            load: Load::of(busy),
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use presagio_core::{Range, RequestId};

    fn request(file: u64, op: Op, start: u64, len: u64) -> Request {
        Request::new(RequestId(0), FileId(file), op, Range::at(start, len))
    }

    /// A busy second in which 100 MB were served.
    pub(crate) fn observation() -> Observation {
        Observation {
            period: Nanos::from_secs(1),
            busy: Nanos::from_secs(1),
            served: 100_000_000,
            servers: 4,
            clients: 32,
            processes: 128,
            arrived: Some(Arrived {
                op: Op::Read,
                requests: 3000,
                features: Features {
                    handles: 1,
                    size_max: 32 << 10,
                    size_min: 32 << 10,
                    size_mean: 32768.0,
                    distance: 1e6,
                },
            }),
        }
    }

    #[test]
    fn distances_are_within_a_file_and_sizes_over_all() {
        let mut watch = Watch::new();
        for at in 0..16 {
            watch.arrived(&request(1, Op::Write, at * 3000, 1000));
            watch.arrived(&request(2, Op::Write, at * 500, 500));
        }
        watch.arrived(&request(3, Op::Read, 0, 7));
        watch.arrived(&request(3, Op::Read, 0, 0));
        let arrived = watch.end_period().expect("enough arrived");
        assert_eq!((arrived.op, arrived.requests), (Op::Write, 32));
        let expected = Features {
            handles: 2,
            size_max: 1000,
            size_min: 500,
            size_mean: 750.0,
            distance: 1000.0,
        };
        assert_eq!(arrived.features, expected);
        assert_eq!(watch.end_period(), None, "a period forgets the one before");
    }

    #[test]
    fn too_little_tells_nothing() {
        let mut watch = Watch::new();
        for at in 0..REQUESTS_MIN - 1 {
            watch.arrived(&request(1, Op::Read, at * 10, 10));
        }
        assert_eq!(watch.end_period(), None);
        let idle = Observation {
            busy: Nanos::from_millis(10),
            ..observation()
        };
        assert_eq!((idle.reward(), idle.check()), (None, Ok(())));
        assert_eq!(observation().reward(), Some(1e8));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        type Lie = fn(&mut Observation);
        let lies: [(Lie, &str); 8] = [
            (|o| o.period = Nanos(0), "the period's length"),
            (|o| o.busy = Nanos(u64::MAX), "the busy time"),
            (|o| o.served = u64::MAX, "bytes served"),
            (|o| features(o).size_mean = f64::NAN, "sizes of requests"),
            (|o| features(o).size_min = 1 << 40, "sizes of requests"),
            (|o| features(o).distance = f64::INFINITY, "the distance"),
            (|o| features(o).distance = -1.0, "the distance"),
            (|o| features(o).handles = 1 << 40, "file handles"),
        ];
        for (lie, said) in lies {
            let mut told = observation();
            lie(&mut told);
            assert_eq!(told.check().expect_err(said).what, said);
        }
    }

    fn features(observation: &mut Observation) -> &mut Features {
        &mut observation
            .arrived
            .as_mut()
            .expect("something arrived")
            .features
    }
}
