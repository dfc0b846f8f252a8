//! Says in a sentence what was chosen for a file and why, so that nothing is done to a program that nobody can explain
//! afterwards; and in figures what its reads waited with that and without.

use super::file::File;
use super::governor::{Costs, METHODS, Method};
use super::reader::Reader;
use super::speed::Fit;

/// Why a method is in force.
pub(super) fn why(
    method: Method,
    reader: &Reader,
    fit: Option<Fit>,
    costs: Costs,
    estimates: Costs,
) -> String {
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
    if waits.is_empty() {
        return text;
    }
    text + "; a read " + &waits.join(", ")
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
}

/// What the method in force was measured to do, if it does anything and nothing was measured, too.
pub(super) fn wait(method: Method, costs: Costs) -> Option<Wait> {
    let measured = |m: Method| costs[m as usize].map(|ns| ns.max(0.0).round() as u64);
    let wait = Wait {
        method: name(method),
        with_ns: measured(method)?,
        without_ns: measured(Method::Nothing)?,
    };
    (method != Method::Nothing).then_some(wait)
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
