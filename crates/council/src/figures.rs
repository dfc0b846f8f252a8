//! What an I/O node does at the moment: shown to people by the council's dashboard. Nothing is decided by it.
//!
//! ```text
//! body of the message   1  flags: bit 0 the arm was named by a person, 1 requests were dispatched, 2 requests were finished
//!                       s  the arm in force
//!                       8  span, in ns; 0: only the arm is told, at once    8  bytes read    8  bytes written    8  requests finished in it
//!                       4  queued   4  in flight   4  connections
//!                       8  time in the queue, median   8  99th percentile   in ns, if bit 1 is set
//!                       8  time in service, median     8  99th percentile   in ns, if bit 2 is set
//! ```

use crate::wire::{Malformed, Rest, put_text};
use presagio_core::Nanos;
use presagio_dashboard::Sample;
use presagio_tune::Arm;

/// See the module's header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// What is in force.
    pub arm: Arm,
    /// Whether a person said so.
    pub by_hand: bool,
    /// How long the rest was counted; 0 if it was not, and only the arm is told.
    pub span: Nanos,
    /// Bytes of reads and of writes that were finished.
    pub bytes: [u64; 2],
    /// Requests that were.
    pub requests: u64,
    /// Requests that wait.
    pub queued: u32,
    /// Requests that the storage has.
    pub in_flight: u32,
    /// Connections of clients.
    pub connections: u32,
    /// How long requests waited: the median, and the 99th percentile, in nanoseconds.
    pub queue_ns: Option<[u64; 2]>,
    /// How long the storage took.
    pub service_ns: Option<[u64; 2]>,
}

const BY_HAND: u8 = 1;
const HAS_QUEUE: u8 = 2;
const HAS_SERVICE: u8 = 4;

/// No span is longer, and no node moves more in one: 2^53 is what a browser can count to.
const SPAN_MAX: Nanos = Nanos(3_600_000_000_000);
const NUMBER_MAX: u64 = 1 << 53;

impl Figures {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        out.push(
            flag(self.by_hand, BY_HAND)
                | flag(self.queue_ns.is_some(), HAS_QUEUE)
                | flag(self.service_ns.is_some(), HAS_SERVICE),
        );
        put_text(out, &self.arm.to_string());
        for number in [self.span.0, self.bytes[0], self.bytes[1], self.requests] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.queued, self.in_flight, self.connections] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.queue_ns, self.service_ns]
            .into_iter()
            .flatten()
            .flatten()
        {
            out.extend(number.to_le_bytes());
        }
    }

    pub(crate) fn read(rest: &mut Rest<'_>) -> Result<Figures, Malformed> {
        let flags = rest.u8("flags")?;
        if flags & !(BY_HAND | HAS_QUEUE | HAS_SERVICE) != 0 {
            return Err(Malformed::Value("the flags"));
        }
        let arm = rest.arm()?;
        let mut number = |what| match rest.u64(what)? {
            number if number <= NUMBER_MAX => Ok(number),
            _ => Err(Malformed::Value(what)),
        };
        let span = Nanos(number("span")?);
        if span > SPAN_MAX {
            return Err(Malformed::Value("the span"));
        }
        let bytes = [number("bytes")?, number("bytes")?];
        let requests = number("requests")?;
        let (queued, in_flight, connections) = (
            rest.u32("queued")?,
            rest.u32("in flight")?,
            rest.u32("connections")?,
        );
        let mut times = |bit: u8, what| match flags & bit {
            0 => Ok(None),
            _ => Ok(Some(
                [rest.u64(what)?, rest.u64(what)?].map(|it| it.min(NUMBER_MAX)),
            )),
        };
        Ok(Figures {
            arm,
            by_hand: flags & BY_HAND != 0,
            span,
            bytes,
            requests,
            queued,
            in_flight,
            connections,
            queue_ns: times(HAS_QUEUE, "times in the queue")?,
            service_ns: times(HAS_SERVICE, "times in service")?,
        })
    }

    /// As the dashboard has it, dated now.
    pub fn sample(&self, at_ms: u64) -> Sample {
        let seconds = self.span.as_secs_f64().max(1e-9);
        let per_s = |number: u64| number as f64 / seconds;
        Sample {
            at_ms,
            span_ms: self.span.0 / 1_000_000,
            read_bytes_per_s: per_s(self.bytes[0]),
            write_bytes_per_s: per_s(self.bytes[1]),
            requests_per_s: per_s(self.requests),
            queue_ns_p50: self.queue_ns.map(|it| it[0]),
            queue_ns_p99: self.queue_ns.map(|it| it[1]),
            service_ns_p50: self.service_ns.map(|it| it[0]),
            service_ns_p99: self.service_ns.map(|it| it[1]),
            queued: self.queued.into(),
            in_flight: self.in_flight.into(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::wire::Message;
    use presagio_ninep::HEADER;

    pub(crate) fn figures() -> Figures {
        Figures {
            arm: "TWINS:0.5ms".parse().expect("an arm"),
            by_hand: true,
            span: Nanos::from_millis(500),
            bytes: [100, 50],
            requests: 7,
            queued: 3,
            in_flight: 2,
            connections: 9,
            queue_ns: Some([10, 20]),
            service_ns: None,
        }
    }

    #[test]
    fn figures_are_rates_for_people() {
        let sample = figures().sample(5);
        assert_eq!((sample.at_ms, sample.span_ms), (5, 500));
        assert_eq!(
            (sample.read_bytes_per_s, sample.requests_per_s),
            (200.0, 14.0)
        );
        assert_eq!(
            (sample.queue_ns_p99, sample.service_ns_p50),
            (Some(20), None)
        );
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let read = |figures: Figures| {
            let mut bytes = Vec::new();
            Message::Figures(figures).write(&mut bytes);
            Message::read(bytes[4], &bytes[HEADER..])
        };
        assert!(read(figures()).is_ok());
        let lies = [
            Figures {
                span: Nanos(u64::MAX),
                ..figures()
            },
            Figures {
                bytes: [u64::MAX, 0],
                ..figures()
            },
            Figures {
                requests: 1 << 60,
                ..figures()
            },
        ];
        for lie in lies {
            assert!(matches!(read(lie), Err(Malformed::Value(_))), "{lie:?}");
        }
    }
}
