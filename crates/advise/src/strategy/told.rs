//! Says in a sentence what was chosen for a file and why, so that nothing is done to a program that nobody can explain
//! afterwards; and in figures what its reads waited with that and without.

use super::file::File;
use super::governor::{Costs, Governor, METHODS, Method};
use super::reader::Reader;
use super::speed::Fit;

/// Why a method is in force.
pub(super) fn why(
    method: Method,
    reader: &Reader,
    fit: Option<Fit>,
    governor: &Governor,
    estimates: Costs,
) -> String {
    let (costs, stalls) = (governor.costs(), governor.stalls());
    let mut text = format!("{}: {}", name(method), pattern(reader));
    if let Some(fit) = fit {
        text += &device(&fit);
    }
    let waits = METHODS.map(|m| {
        let (measured, estimate) = (costs[m as usize], estimates[m as usize]);
        let waits = measured.map(|ns| (ns, "waits"));
        let (ns, how) = waits.or(estimate.map(|ns| (ns, "would wait")))?;
        Some(format!("{how} {:.2} ms with {}", ns / 1e6, name(m)))
    });
    let waits: Vec<String> = waits.into_iter().flatten().collect();
    if !waits.is_empty() {
        text += "; a read ";
        text += &waits.join(", ");
    }
    for method in METHODS {
        if let Some(ns) = stalls[method as usize] {
            text += &format!(
                "; {} is put off, since a read waited {:.0} ms with it",
                name(method),
                ns / 1e6
            );
        }
    }
    text
}

/// What a read of a file waited, on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What was done.
    pub method: &'static str,
    /// With that, in nanoseconds.
    pub with_ns: u64,
    /// With nothing.
    pub without_ns: u64,
    /// Reads that the first figure comes from.
    pub with_reads: u64,
    /// And the second.
    pub without_reads: u64,
}

/// Reads of each method from which on a figure is told.
const READS_MIN: u64 = 8;

/// What reads waited with each method: all of them, and only those of this file in this run. What the governor goes by is another
/// figure: it begins with what was known before, and leaves out what says little about the future.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits([Sum; METHODS.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    reads: u64,
    wait_ns: u64,
}

impl Waits {
    /// A read waited for so long.
    pub fn add(&mut self, method: Method, wait_ns: u64) {
        let sum = &mut self.0[method as usize];
        sum.reads += 1;
        sum.wait_ns = sum.wait_ns.saturating_add(wait_ns);
    }

    /// How many reads there were with a method, and what one waited on average, if there were enough.
    fn of(&self, method: Method) -> Option<(u64, u64)> {
        let sum = self.0[method as usize];
        (sum.reads >= READS_MIN).then(|| (sum.reads, sum.wait_ns / sum.reads))
    }

    /// What a method was measured to do, if it does anything and nothing was measured, too.
    pub fn told(&self, method: Method) -> Option<Wait> {
        let (with_reads, with_ns) = self.of(method)?;
        let (without_reads, without_ns) = self.of(Method::Nothing)?;
        let wait = Wait {
            method: name(method),
            with_ns,
            without_ns,
            with_reads,
            without_reads,
        };
        (method != Method::Nothing).then_some(wait)
    }
}

/// What is said of a file that was hardly read.
pub const TOO_FEW: &str = "nothing: too few reads to tell";

/// The sentence for the summary.
pub(super) fn sentence(file: &File) -> String {
    let ledger = &file.ledger;
    let why = if file.why.is_empty() {
        TOO_FEW
    } else {
        &file.why
    };
    let loaded = ledger.useful + ledger.wasted + ledger.unread();
    if loaded == 0 {
        return format!("{why}.");
    }
    format!(
        "{why}. Loaded ahead: {}, of which {} were read.",
        mebibytes(loaded),
        mebibytes(ledger.useful)
    )
}

fn name(method: Method) -> &'static str {
    match method {
        Method::Nothing => "nothing",
        Method::Exact => "exact loads",
        Method::Bare => "no reading ahead",
        Method::Sieving => "sieving",
    }
}

fn pattern(reader: &Reader) -> String {
    if reader.cursor.is_sure() {
        let (at, of) = (reader.cursor.next(), reader.tape().len());
        return format!("the reads follow an earlier recording (read {at} of {of})");
    }
    match reader.shape {
        Some(shape) => format!(
            "reads cover {:.0} % of a window that moves {}",
            shape.density * 100.0,
            if shape.forward { "forward" } else { "backward" }
        ),
        None => "reads do not move together".into(),
    }
}

fn device(fit: &Fit) -> String {
    format!(
        ", the device takes {:.2} ms an operation and gives {:.0} MB/s",
        fit.operation_ns / 1e6,
        fit.megabytes()
    )
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_waited_is_told_when_enough_of_them_had_each_method() {
        let mut waits = Waits::default();
        let mut add = |method: Method, wait_ns: u64| {
            waits.add(method, wait_ns);
            waits.told(Method::Exact)
        };
        for _ in 0..READS_MIN {
            assert_eq!(add(Method::Exact, 10), None);
        }
        for _ in 1..READS_MIN {
            assert_eq!(add(Method::Nothing, 20), None);
        }
        // The longest counts as any other.
        let wait = add(Method::Nothing, 8020).expect("enough of both");
        assert_eq!((wait.with_ns, wait.without_ns), (10, 1020));
        assert_eq!((wait.with_reads, wait.without_reads), (8, 8));
        assert_eq!(waits.told(Method::Nothing), None);
        assert_eq!(waits.told(Method::Sieving), None);
    }
}
