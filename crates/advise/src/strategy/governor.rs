//! The governor of a file: which of the methods is in force, by what each has been measured to do.
//!
//! A method's cost is the time that a read waits, averaged over *epochs* of reads; until it was measured, an estimate
//! from the device's speed stands for it. The method with the least cost is in force. Those that lost are tried again
//! for one epoch, rarely, and more rarely each time they lose: so doing nothing is the control group of the others,
//! and what failed gets its second chance, by one rule. After a change the first reads do not count.

/// What can be done for the reads of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Leave it to the kernel.
    Nothing,
    /// Load what is known to come.
    Exact,
    /// Load nothing, and switch the kernel's reading ahead off: where runs of reads are short, it reads beyond their ends.
    Bare,
    /// Load everything ahead of a window that is read densely.
    Sieving,
}

/// All of them, in the order of their indices.
pub const METHODS: [Method; 4] = [
    Method::Nothing,
    Method::Exact,
    Method::Bare,
    Method::Sieving,
];

/// Nanoseconds that a read waits with each of them, as far as that is known.
pub type Costs = [Option<f64>; METHODS.len()];

/// A method is judged by so many reads: enough that one slow read does not decide, few enough that a wrong try costs little.
const EPOCH: u32 = 32;
/// A limited device makes no read wait for a while, and then one for all of them: an epoch goes on until there were some
/// such stalls in it, or so many reads.
const STALLS: f64 = 3.0;
const EPOCH_MAX: u32 = 4 * EPOCH;
/// More than this share of all waiting is a single stall.
const SINGLE: f64 = 0.8;
/// A stall within so many reads is the end of a method that is only tried.
const STALLED_MAX: u32 = EPOCH / 2;
/// The first judgement is made earlier, since all reads before it wait.
const EPOCH_FIRST: u32 = 16;
/// And earlier still where an earlier run, or the file before, has told what to expect.
const EPOCH_SEEDED: u32 = 4;
/// After more reads than this, a method whose reads wait longer than those of another is given up.
const EPOCH_HOPELESS: u32 = 7;
/// Reads after a change that do not count: what was underway, and what came too late.
const SETTLING: u32 = 8;
/// They are the end of a method all the same if they wait so many times as long as with nothing.
const SETTLING_HOPELESS: f64 = 2.0;
/// Reads until a method that lost is tried again: an epoch each is 4 %, less with each doubling.
const RETRY: u64 = 1024;
/// The same for one that was given up before its epoch was over, the first time: on a device that is hardly faster than the program
/// it may only have been too short a time to get ahead. If what is known of the device by then promises a gain.
const RETRY_SOON: u64 = 192;
/// The share of the time that such a gain leaves.
const GAIN_SOON: f64 = 0.8;
/// Doubled no more often than this.
const RETRY_DOUBLINGS_MAX: u32 = 10;
/// Another method must promise to save this share of the time, or the change is not worth its unrest.
const GAIN_MIN: f64 = 0.05;
/// The same for one that was never measured, where another was and gains.
const GAIN_UNTRIED: f64 = 0.25;
/// An estimate has the benefit of the doubt: what was never measured is tried where it might gain.
const DOUBT: f64 = 0.85;
/// Less than this is not known so well, in nanoseconds.
const COST_MIN: f64 = 50_000.0;
/// What was measured before counts like so many reads at most, next to what is measured now.
const MEMORY: f64 = 4.0 * EPOCH as f64;
/// A program that waits for less than this share of its time has nothing to gain.
const WAIT_MIN: f64 = 0.03;

/// See the module's header. Costs are nanoseconds that a read waits.
#[derive(Clone, Debug)]
pub struct Governor {
    method: Method,
    costs: Costs,
    /// The reads that the costs come from.
    weights: [f64; METHODS.len()],
    tallies: [Tally; METHODS.len()],
    retries: [Retry; METHODS.len()],
    /// The read whose stall has ended one of them before it was measured.
    stalls: Costs,
    /// Which of them were forgiven a single stall: it may be the price of what was done before, but the next one is its own.
    forgiven: [bool; METHODS.len()],
    seeded: bool,
    trial: bool,
    waits: bool,
    settling: u32,
    /// What the reads waited that did not count.
    settled: Tally,
    reads: u64,
    /// The longest that a read waited; less with each decision, since it may have been an accident.
    longest_ns: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    reads: u32,
    wait_ns: f64,
    longest_ns: f64,
}

impl Tally {
    fn add(&mut self, wait_ns: f64) {
        self.reads += 1;
        self.wait_ns += wait_ns;
        self.longest_ns = self.longest_ns.max(wait_ns);
    }

    /// Whether these reads waited for a share of the time that is worth the trouble. The longest one does not count: it may
    /// have been interrupted.
    fn waits(&self, think_ns: f64) -> bool {
        let others = f64::from(self.reads.saturating_sub(1).max(1));
        is_worth(self.rest_ns() / others, think_ns)
    }

    /// Whether a single stall was nearly all that was waited.
    fn is_single_stall(&self) -> bool {
        self.longest_ns > SINGLE * self.wait_ns
    }

    /// What all but the longest waited.
    fn rest_ns(&self) -> f64 {
        self.wait_ns - self.longest_ns
    }
}

/// Which of two methods with their times, one of which was never measured: what is known to gain is not given up for a
/// little that an estimate promises, since a device may be far from what is known of it.
fn preferred(proven: (Method, f64), untried: (Method, f64)) -> (Method, f64) {
    let gain_min = match proven.0 {
        Method::Nothing => 0.0,
        _ => GAIN_UNTRIED,
    };
    match untried.1 < (1.0 - gain_min) * proven.1 {
        true => untried,
        false => proven,
    }
}

/// Whether waiting for so long is worth the trouble.
fn is_worth(wait_ns: f64, think_ns: f64) -> bool {
    wait_ns > WAIT_MIN * (wait_ns + think_ns)
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    at: u64,
    /// From here on, if a gain is promised.
    soon: u64,
    doublings: u32,
}

impl Default for Governor {
    fn default() -> Governor {
        let retry = Retry {
            at: RETRY,
            soon: u64::MAX,
            doublings: 0,
        };
        Governor {
            method: Method::Nothing,
            costs: Costs::default(),
            weights: Default::default(),
            tallies: Default::default(),
            retries: [retry; METHODS.len()],
            stalls: Costs::default(),
            forgiven: Default::default(),
            seeded: false,
            trial: false,
            waits: false,
            settling: 0,
            settled: Tally::default(),
            reads: 0,
            longest_ns: 0.0,
        }
    }
}

impl Governor {
    /// One that knows what the methods cost in an earlier run.
    pub fn seeded(costs: Costs) -> Governor {
        Governor {
            seeded: costs[0].is_some(),
            costs,
            weights: [MEMORY; METHODS.len()],
            ..Governor::default()
        }
    }

    /// For the next file of the same kind: it goes on as it is.
    pub fn heir(&self) -> Governor {
        Governor {
            seeded: self.costs[0].is_some(),
            ..self.clone()
        }
    }

    /// The method in force.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Whether the method in force is only tried again.
    pub fn is_trial(&self) -> bool {
        self.trial
    }

    /// Whether the method in force was not measured yet.
    pub fn is_tried(&self) -> bool {
        self.costs[self.method as usize].is_none()
    }

    /// What a method costs, as far as it was measured.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// What a method costs as far as that can be said without knowing the device: what was measured; else nothing, which makes it
    /// worth a try; and if such a try ended with a stall, nobody knows until it is time for another, or others
    /// wait as long.
    pub fn cost_or_hope(&self, method: Method) -> Option<f64> {
        let is_time = self.reads >= self.retries[method as usize].at;
        let stall = self.stalls[method as usize];
        let is_put_off = stall.is_some_and(|ns| self.is_stall(method, ns));
        let hope = (is_time || !is_put_off).then_some(0.0);
        self.costs[method as usize].or(hope)
    }

    /// How long the read waited that ended a method before it was measured, of those that are not measured yet.
    pub fn stalls(&self) -> Costs {
        METHODS.map(|m| self.stalls[m as usize].filter(|_| self.costs[m as usize].is_none()))
    }

    /// Whether reads were measured to wait for less with a method than with nothing.
    pub fn gains(&self, method: Method) -> bool {
        let nothing = self.costs[Method::Nothing as usize];
        matches!((self.costs[method as usize], nothing), (Some(cost), Some(nothing)) if cost < nothing)
    }

    /// A read took so long. `found` is the method that had asked for its bytes, if any.
    pub fn read(&mut self, found: Option<Method>, wait_ns: f64) {
        self.reads += 1;
        self.longest_ns = self.longest_ns.max(wait_ns);
        if self.settling > 0 {
            self.settling -= 1;
            self.settled.add(wait_ns);
            return;
        }
        let method = found.unwrap_or(self.method);
        // What is left of a method that was put off is no judgement of it, nor of the one that took its place.
        let is_left_over = method != self.method && self.stalls()[method as usize].is_some();
        if !is_left_over {
            self.tallies[method as usize].add(wait_ns);
        }
    }

    /// Whether an epoch is over, and a decision due.
    pub fn is_due(&self) -> bool {
        let tally = &self.tallies[self.method as usize];
        let told = tally.reads < EPOCH
            || tally.reads >= EPOCH_MAX
            || tally.wait_ns >= STALLS * self.longest_ns;
        let ended = self.has_stalled() || self.is_hopeless() || self.began_hopeless();
        tally.reads >= self.epoch() && told || ended
    }

    /// Whether sieving, which was never measured, soon made a read wait for longer than a whole epoch with another method: a limit
    /// that lets bursts pass makes somebody wait for what is read in vain. Or others will have such a wait, too: that is
    /// found out before it is tried again, and then it is judged as any other.
    fn has_stalled(&self) -> bool {
        let tally = self.tallies[self.method as usize];
        self.method == Method::Sieving
            && self.is_tried()
            && tally.reads <= STALLED_MAX
            && self.stalls[self.method as usize].is_none()
            && self.is_stall(self.method, tally.longest_ns)
    }

    /// Whether a single read waited for longer with a method than a whole epoch with the best of the others.
    fn is_stall(&self, method: Method, wait_ns: f64) -> bool {
        let best = self.best_but(method);
        best.is_some_and(|best| wait_ns > best * f64::from(EPOCH))
    }

    /// What the best of the other methods was measured to cost.
    fn best_but(&self, method: Method) -> Option<f64> {
        let others = METHODS.into_iter().filter(|m| *m != method);
        let best = others.filter_map(|m| self.costs[m as usize]);
        best.min_by(f64::total_cmp).map(|cost| cost.max(COST_MIN))
    }

    /// Whether the reads after the change to the method in force, which do not count else, say enough: what is so much worse
    /// than nothing at the beginning does not become the best.
    fn began_hopeless(&self) -> bool {
        let nothing = self.costs[Method::Nothing as usize];
        let limit = |cost: f64| SETTLING_HOPELESS * f64::from(SETTLING) * cost.max(COST_MIN);
        let waited = self.settled.rest_ns();
        self.settling > 0
            && self.method != Method::Nothing
            && nothing.is_some_and(|cost| waited > limit(cost))
    }

    /// Whether the method in force cannot become the best of its epoch any more, or not likely so: it has already waited for
    /// as long as another would in all of it, or its first reads waited for longer.
    fn is_hopeless(&self) -> bool {
        let Some(best) = self.best_but(self.method) else {
            return false;
        };
        let tally = self.tallies[self.method as usize];
        let reads = if tally.reads > EPOCH_HOPELESS {
            f64::from(tally.reads - 1)
        } else {
            f64::from(EPOCH)
        };
        self.method != Method::Nothing && tally.rest_ns() > best * reads
    }

    /// Decides. `think_ns` is what the program does between reads; `estimates` has a figure for each method that is
    /// possible now (the one for `Nothing` is not used). Whether the method changed.
    pub fn decide(&mut self, think_ns: f64, estimates: Costs) -> bool {
        if !self.is_due() {
            return false;
        }
        if self.method == Method::Nothing {
            // The first reads may be let pass by a limit that others will wait for: what is known counts, too.
            let known = self.costs[Method::Nothing as usize].filter(|_| self.seeded);
            self.waits = self.tallies[Method::Nothing as usize].waits(think_ns)
                || known.is_some_and(|cost| is_worth(cost, think_ns));
        }
        if self.has_stalled() {
            self.put_off(&estimates);
            return true;
        }
        let was_hopeless = self.is_hopeless() || self.began_hopeless();
        if self.began_hopeless() {
            self.tallies[self.method as usize] = self.settled;
        }
        self.fold();
        self.longest_ns /= 2.0;
        self.seeded = false;
        let choice = if self.waits {
            self.choice(think_ns, &estimates)
        } else {
            Method::Nothing
        };
        let changed = choice != self.method;
        if changed {
            self.lose(self.method, was_hopeless);
            self.change(choice);
        }
        changed
    }

    /// The method in force was stalled: it is tried again much later, and what was measured to be best until then takes its place.
    fn put_off(&mut self, estimates: &Costs) {
        let method = self.method;
        let tally = std::mem::take(&mut self.tallies[method as usize]);
        self.stalls[method as usize] = Some(tally.longest_ns);
        self.lose(method, false);
        self.trial = false;
        let possible = |m: &Method| *m == Method::Nothing || estimates[*m as usize].is_some();
        let others = METHODS.into_iter().filter(|m| *m != method && possible(m));
        let measured = others.filter_map(|m| Some((m, self.costs[m as usize]?)));
        let best = measured.min_by(|a, b| a.1.total_cmp(&b.1));
        self.change(best.map_or(Method::Nothing, |(m, _)| m));
    }

    /// The method in force is no longer possible.
    pub fn give_up(&mut self) {
        self.trial = false;
        self.change(Method::Nothing);
    }

    /// The method in force does nothing that was not there anyway: back to nothing.
    pub fn useless(&mut self) {
        self.costs[self.method as usize] = self.costs[Method::Nothing as usize];
        self.lose(self.method, false);
        self.change(Method::Nothing);
    }

    /// A method works in another way now: what it was measured to do no longer holds.
    pub fn forget(&mut self, method: Method) {
        self.costs[method as usize] = None;
        self.tallies[method as usize] = Tally::default();
    }

    /// Whether the program waits for its reads at all, as far as is known.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The one to try again if it is time, else the cheapest, unless it is hardly cheaper than the one in force.
    fn choice(&mut self, think_ns: f64, estimates: &Costs) -> Method {
        let time = |m: Method| {
            let measured = self.costs[m as usize];
            let cost = match m {
                Method::Nothing => measured,
                // Whatever is promised of one that is put off.
                _ => estimates[m as usize]
                    .filter(|_| self.cost_or_hope(m).is_some())
                    .map(|ns| measured.unwrap_or(DOUBT * ns)),
            };
            cost.map(|cost| cost + think_ns)
        };
        let possible = METHODS.into_iter().filter_map(|m| Some((m, time(m)?)));
        let (proven, untried): (Vec<_>, Vec<_>) =
            possible.partition(|(m, _)| self.costs[*m as usize].is_some());
        let least_of = |all: Vec<(Method, f64)>| all.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let best = match (least_of(proven), least_of(untried)) {
            (Some(proven), Some(untried)) => Some(preferred(proven, untried)),
            (proven, untried) => proven.or(untried),
        };
        let (Some((best, least)), Some(now)) = (best, time(self.method)) else {
            return self.method;
        };
        if least < (1.0 - GAIN_MIN) * now {
            self.trial = false;
            return best;
        }
        let is_promised =
            |m: Method| estimates[m as usize].is_some_and(|ns| ns + think_ns < GAIN_SOON * now);
        let is_time = |m: Method| {
            let retry = self.retries[m as usize];
            self.reads >= retry.at || self.reads >= retry.soon && is_promised(m)
        };
        let mut others = METHODS.into_iter().filter(|m| *m != self.method);
        let retried = others.find(|m| time(*m).is_some() && is_time(*m));
        self.trial = retried.is_some();
        retried.unwrap_or(self.method)
    }

    /// Closes the epochs that are full.
    fn fold(&mut self) {
        for method in METHODS {
            let tally = self.tallies[method as usize];
            let full = tally.reads >= EPOCH || method == self.method;
            if !full || tally.reads == 0 {
                continue;
            }
            self.tallies[method as usize] = Tally::default();
            let counted_ns = self.counted_ns(method, &tally);
            let cost = &mut self.costs[method as usize];
            let weight = &mut self.weights[method as usize];
            let before = cost.map_or(0.0, |_| weight.min(MEMORY));
            let reads = f64::from(tally.reads);
            let waited = cost.unwrap_or(0.0) * before + counted_ns;
            *weight = before + reads;
            *cost = Some(waited / *weight);
        }
    }

    /// What counts of an epoch: all, unless it ended with a stall, which is half a stall too many. The first time that nearly all of it
    /// is a single stall, this says nothing.
    fn counted_ns(&mut self, method: Method, tally: &Tally) -> f64 {
        if tally.reads < EPOCH_MAX {
            return tally.wait_ns - 0.5 * tally.longest_ns;
        }
        let is_forgiven = tally.is_single_stall() && !self.forgiven[method as usize];
        self.forgiven[method as usize] |= is_forgiven;
        match is_forgiven {
            true => tally.rest_ns(),
            false => tally.wait_ns,
        }
    }

    fn epoch(&self) -> u32 {
        match (self.method, self.costs[0], self.seeded) {
            (Method::Nothing, _, true) => EPOCH_SEEDED,
            (Method::Nothing, None, false) => EPOCH_FIRST,
            _ => EPOCH,
        }
    }

    fn lose(&mut self, method: Method, was_hopeless: bool) {
        let retry = &mut self.retries[method as usize];
        retry.at = self.reads + (RETRY << retry.doublings);
        retry.soon = match was_hopeless && retry.doublings == 0 {
            true => self.reads + RETRY_SOON,
            false => u64::MAX,
        };
        retry.doublings = (retry.doublings + 1).min(RETRY_DOUBLINGS_MAX);
    }

    fn change(&mut self, method: Method) {
        self.method = method;
        self.seeded = false;
        self.settling = SETTLING;
        self.settled = Tally::default();
        self.tallies[method as usize] = Tally::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THINK: f64 = 300_000.0;
    const ALL: Costs = [None, Some(0.0), None, Some(0.0)];
    const SIEVING: Costs = [None, None, None, Some(0.0)];

    #[test]
    fn what_is_known_to_gain_is_not_given_up_for_the_little_that_an_estimate_promises() {
        let after = |sieving: f64| {
            let mut governor = Governor::seeded([Some(1.4e6), None, None, Some(sieving)]);
            reads(&mut governor, EPOCH_SEEDED, ALL, [1.4e6; 4]);
            governor.method()
        };
        assert_eq!(after(80_000.0), Method::Sieving);
        assert_eq!(after(500_000.0), Method::Exact, "much is left to gain");
    }

    /// So many reads, each of which takes what `wait` says for the method in force. How many had each method.
    fn reads(governor: &mut Governor, count: u32, possible: Costs, wait: [f64; 4]) -> [u32; 4] {
        let mut had = [0; 4];
        for _ in 0..count {
            let method = governor.method();
            had[method as usize] += 1;
            governor.read(None, wait[method as usize]);
            governor.decide(THINK, possible);
        }
        had
    }

    #[test]
    fn a_program_that_does_not_wait_is_left_alone() {
        let mut governor = Governor::default();
        let had = reads(&mut governor, 100_000, ALL, [5_000.0, 0.0, 0.0, 0.0]);
        assert_eq!(had, [100_000, 0, 0, 0]);
    }

    #[test]
    fn what_is_measured_decides_whatever_was_promised() {
        let mut governor = Governor::default();
        let had = reads(&mut governor, 10_000, ALL, [1e6, 3e6, 0.0, 2e5]);
        assert!(had[3] > 9_300, "{had:?}");
    }

    #[test]
    fn the_control_group_is_a_few_per_cent_and_shrinks() {
        let mut governor = Governor::default();
        reads(&mut governor, 1_000, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        let early = reads(&mut governor, 9_000, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        let late = reads(&mut governor, 90_000, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert!(early[0] > 0 && early[0] < 450, "{early:?}");
        assert!(late[0] > 0 && late[0] < 450, "{late:?}");
    }

    #[test]
    fn what_does_not_pay_is_tried_again_ever_more_rarely() {
        let mut governor = Governor::default();
        let had = reads(&mut governor, 100_000, SIEVING, [1e6, 0.0, 0.0, 1.5e6]);
        assert!(had[3] > EPOCH && had[3] < 500, "{had:?}");
    }

    #[test]
    fn what_is_much_worse_is_stopped_at_once() {
        let mut governor = Governor::default();
        let had = reads(&mut governor, 200, SIEVING, [1e6, 0.0, 0.0, 2e7]);
        assert!((1..=SETTLING + 4).contains(&had[3]), "{had:?}");
    }

    #[test]
    fn what_is_ruinous_from_its_beginning_is_stopped_before_it_counts() {
        let mut governor = Governor::seeded([Some(1e6), None, None, Some(2e5)]);
        let had = reads(&mut governor, 200, ALL, [1e6, 6e6, 0.0, 2e5]);
        assert!((2..SETTLING).contains(&had[1]), "{had:?}");
        assert!(had[3] > 180, "{had:?}");
    }

    #[test]
    fn one_long_wait_at_the_beginning_is_no_reason_to_stop() {
        let mut governor = Governor::seeded([Some(1e6), None, None, None]);
        reads(&mut governor, EPOCH_SEEDED, SIEVING, [1e6; 4]);
        assert_eq!(governor.method(), Method::Sieving);
        governor.read(None, 1e9);
        let had = reads(&mut governor, 1_000, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert!(had[3] > 900, "{had:?}");
    }

    #[test]
    fn one_stall_in_a_long_epoch_is_no_reason_to_stop_either() {
        let mut governor = Governor::default();
        reads(&mut governor, EPOCH_FIRST, SIEVING, [60_000.0; 4]);
        assert_eq!(governor.method(), Method::Sieving);
        let had = reads(&mut governor, SETTLING + EPOCH, SIEVING, [0.0; 4]);
        assert_eq!(had[3], SETTLING + EPOCH);
        governor.read(None, 60e6);
        let then = [60_000.0, 0.0, 0.0, 0.0];
        let had = reads(&mut governor, 2 * EPOCH_MAX, SIEVING, then);
        assert_eq!(had[3], 2 * EPOCH_MAX, "{had:?}");
    }

    #[test]
    fn sieving_that_makes_a_read_wait_for_a_whole_epoch_is_put_off_once_and_judged_the_next_time() {
        let mut governor = Governor::default();
        let fast = [100_000.0, 0.0, 0.0, 0.0];
        reads(&mut governor, EPOCH_FIRST + SETTLING + 4, SIEVING, fast);
        assert_eq!(governor.method(), Method::Sieving);
        let stall = |governor: &mut Governor| {
            governor.read(None, 80e6);
            governor.decide(THINK, SIEVING)
        };
        assert!(stall(&mut governor));
        assert_eq!(governor.method(), Method::Nothing);
        // It was not measured, and nobody hopes for anything.
        assert_eq!(governor.costs()[Method::Sieving as usize], None);
        assert_eq!(governor.cost_or_hope(Method::Sieving), None);
        // Whatever the device promises, it is tried once more much later, and a stall is one of many waits then.
        let had = reads(&mut governor, RETRY as u32 - 1, SIEVING, fast);
        assert_eq!(had[3], 0);
        while governor.method() == Method::Nothing {
            reads(&mut governor, 1, SIEVING, fast);
        }
        reads(&mut governor, SETTLING + 4, SIEVING, fast);
        assert_eq!(governor.method(), Method::Sieving);
        assert!(!stall(&mut governor));
    }

    /// One that has just put sieving off, where it had tried it with these costs.
    fn stalled(costs: Costs, possible: Costs) -> Governor {
        let mut governor = Governor::seeded(costs);
        let settled = EPOCH_SEEDED + SETTLING + 4;
        reads(&mut governor, settled, possible, [1e6, 2e5, 0.0, 0.0]);
        assert_eq!(governor.method(), Method::Sieving);
        governor.read(None, 80e6);
        assert!(governor.decide(THINK, possible));
        governor
    }

    #[test]
    fn what_was_measured_to_be_best_takes_the_place_of_what_is_put_off() {
        let governor = stalled([Some(1e6), Some(2e5), None, None], ALL);
        assert_eq!(governor.method(), Method::Exact);
        assert!(!governor.is_trial());
        assert_eq!(governor.stalls(), [None, None, None, Some(80e6)]);
    }

    #[test]
    fn what_is_put_off_is_hoped_for_again_much_later_also_by_heirs() {
        let mut heir = stalled([Some(1e6), Some(2e5), None, None], ALL).heir();
        let mut until = 0;
        while heir.method() != Method::Sieving {
            // As for a file whose device is not known.
            let hope = heir.cost_or_hope(Method::Sieving);
            let possible = [None, Some(2e5), None, hope];
            reads(&mut heir, 1, possible, [1e6, 2e5, 0.0, 0.0]);
            until += 1;
        }
        let rarely = RETRY..RETRY + u64::from(EPOCH_MAX);
        assert!(rarely.contains(&until), "{until}");
        reads(&mut heir, 2 * EPOCH_MAX, ALL, [1e6, 2e5, 0.0, 0.0]);
        assert_eq!(heir.stalls(), Costs::default(), "it was measured");
    }

    #[test]
    fn what_was_loaded_before_it_was_put_off_is_no_judgement() {
        let mut governor = stalled([Some(1e6), None, None, None], SIEVING);
        // Its blocks are read for a long time yet, and the device is known well.
        for _ in 0..RETRY / 2 {
            governor.read(Some(Method::Sieving), 0.0);
            governor.read(None, 1e6);
            governor.decide(THINK, SIEVING);
            assert_eq!(governor.method(), Method::Nothing);
        }
        assert_eq!(governor.costs()[Method::Sieving as usize], None);
        let had = reads(&mut governor, 2 * EPOCH_MAX, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert!(had[3] > EPOCH, "{had:?}");
    }

    #[test]
    fn a_stall_is_none_where_all_reads_wait_that_long() {
        let mut governor = stalled([Some(1e6), None, None, None], SIEVING);
        assert_eq!(governor.method(), Method::Nothing);
        assert_eq!(governor.cost_or_hope(Method::Sieving), None);
        reads(
            &mut governor,
            SETTLING + EPOCH_MAX,
            Costs::default(),
            [2e7; 4],
        );
        assert_eq!(governor.cost_or_hope(Method::Sieving), Some(0.0));
    }

    #[test]
    fn a_stall_in_each_epoch_is_forgiven_once() {
        let mut governor = Governor::default();
        let wait = [60_000.0, 0.0, 0.0, 0.0];
        reads(&mut governor, EPOCH_FIRST, SIEVING, wait);
        reads(&mut governor, SETTLING, SIEVING, wait);
        let mut sieved = 0;
        while governor.method() == Method::Sieving && sieved < 10 {
            reads(&mut governor, EPOCH_MAX - 1, SIEVING, wait);
            governor.read(None, 60e6);
            governor.decide(THINK, SIEVING);
            sieved += 1;
        }
        assert_eq!(sieved, 2);
    }

    #[test]
    fn what_came_too_late_the_first_time_is_tried_again_soon() {
        let mut governor = Governor::default();
        let first = reads(&mut governor, 60, SIEVING, [1e6, 0.0, 0.0, 2e7]);
        assert!(first[3] > 0);
        let then = reads(&mut governor, 1_000, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert!(then[3] > 700, "{then:?}");
    }

    #[test]
    fn what_pays_again_is_found() {
        let mut governor = Governor::default();
        reads(&mut governor, 2_000, SIEVING, [1e6, 0.0, 0.0, 1.5e6]);
        assert_eq!(governor.method(), Method::Nothing);
        reads(&mut governor, 10_000, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert_eq!(governor.method(), Method::Sieving);
    }

    #[test]
    fn what_is_given_up_can_come_back() {
        let mut governor = Governor::default();
        reads(&mut governor, 100, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert_eq!(governor.method(), Method::Sieving);
        governor.give_up();
        assert_eq!(governor.method(), Method::Nothing);
        reads(&mut governor, 100, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert_eq!(governor.method(), Method::Sieving);
    }

    #[test]
    fn an_earlier_run_shortens_the_wait() {
        let mut governor = Governor::seeded([Some(1e6), None, None, Some(0.0)]);
        reads(&mut governor, EPOCH_SEEDED, SIEVING, [1e6, 0.0, 0.0, 0.0]);
        assert_eq!(governor.method(), Method::Sieving);
    }
}
