//! Live switches: how long does anyone wait while the policy changes under a full queue?
//!
//! A million requests are queued under SJF. The policy is switched, and dispatching and submitting go on
//! until the last request of the old policy has left; the longest single call is the answer.
//!
//! The machine itself can stop us for milliseconds in the middle of any call. But time is virtual here, so a
//! repetition makes exactly the same calls: each call counts with its shortest time. Pauses of our own come
//! back at the same call, the machine's do not.

use super::drive::Driver;
use super::stream::{Pattern, Stream};
use presagio_sched::{Next, PolicyKind};
use std::time::{Duration, Instant};

/// Switches start here.
pub const FROM: PolicyKind = PolicyKind::Sjf;

const STREAM: Stream = Stream {
    files: 64,
    pattern: Pattern::Random,
};

/// Steps after the old policy has run dry: whatever it leaves to be cleaned up happens then.
const STEPS_AFTER: u64 = 1_000;

/// The longest call of one switch.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    pub to: PolicyKind,
    pub longest: Duration,
    /// Which call that was.
    pub call: &'static str,
}

/// Switches to `to` with `queued` requests waiting, up to `repetitions` times; a longest call within `enough`
/// ends the search.
pub fn best_of(
    repetitions: u32,
    to: PolicyKind,
    queued: u64,
    enough: Duration,
) -> anyhow::Result<Switch> {
    let mut watch = Watch::default();
    for _ in 0..repetitions {
        watch.position = 0;
        once(to, queued, &mut watch)?;
        if watch.longest().0 <= enough {
            break;
        }
    }
    let (longest, call) = watch.longest();
    Ok(Switch { to, longest, call })
}

fn once(to: PolicyKind, queued: u64, watch: &mut Watch) -> anyhow::Result<()> {
    let mut driver = Driver::new(FROM)?;
    for i in 0..queued {
        driver.submit(STREAM.at(i))?;
    }
    watch.time("configure", || driver.switch(to))?;
    let (mut old_left, mut steps_after, mut step) = (queued, 0, 0);
    while steps_after < STEPS_AFTER {
        anyhow::ensure!(
            step < 4 * queued + 10_000,
            "{FROM} to {to}: the old policy never runs dry: a bug in the switch"
        );
        watch.time("submit", || driver.submit(STREAM.at(queued + step)))?;
        if let Next::Dispatch(batch) = watch.time("next", || driver.next()) {
            old_left -= batch
                .parts()
                .iter()
                .filter(|part| part.request.id.0 < queued)
                .count() as u64;
            watch.time("finish", || driver.finish(&batch));
        }
        steps_after += u64::from(old_left == 0);
        step += 1;
    }
    Ok(())
}

/// The shortest time of every call, in the order in which a repetition makes them.
#[derive(Default)]
struct Watch {
    calls: Vec<(&'static str, Duration)>,
    /// The next call's place in `calls`.
    position: usize,
}

impl Watch {
    fn time<T>(&mut self, call: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.note(call, start.elapsed());
        result
    }

    fn note(&mut self, call: &'static str, took: Duration) {
        match self.calls.get_mut(self.position) {
            Some((_, shortest)) => *shortest = took.min(*shortest),
            None => self.calls.push((call, took)),
        }
        self.position += 1;
    }

    fn longest(&self) -> (Duration, &'static str) {
        let longest = self.calls.iter().max_by_key(|(_, took)| took);
        longest.map_or((Duration::ZERO, ""), |(call, took)| (*took, call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_ends_with_the_old_policy_dry() {
        for to in PolicyKind::ALL.into_iter().filter(|to| *to != FROM) {
            let switch = best_of(1, to, 500, Duration::MAX).unwrap();
            assert!(switch.longest > Duration::ZERO && !switch.call.is_empty());
        }
    }

    #[test]
    fn only_pauses_that_come_back_at_the_same_call_count() {
        let ms = Duration::from_millis;
        let mut watch = Watch::default();
        for times in [[9, 5, 1], [2, 5, 8]] {
            watch.position = 0;
            for (call, time) in ["submit", "next", "finish"].into_iter().zip(times) {
                watch.note(call, ms(time));
            }
        }
        assert_eq!(watch.longest(), (ms(5), "next"));
    }
}
