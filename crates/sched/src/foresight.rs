//! Foresight: predicted requests, the aggregations they promise, and when waiting for one pays (thesis 4.1).
//!
//! Predicted requests come from a trace or from whoever knows better. An arriving request is matched with a
//! predicted one of the same file, operation and range whose time since the file's first request is about the
//! same. When a policy selects a batch whose requests belong to a larger predicted aggregation, it waits,
//! once, for as long as that aggregation took to arrive. Predictions stay after use, so the next time step
//! profits again. Without predictions, or with wrong ones, nothing matches and the policy goes on as ever.
//!
//! What clients announce while they run comes once, and soon: that is [`crate::announced`]. A selected batch waits for
//! announced requests that would extend it, if that pays by the same equation.

use crate::announced::{Announced, Chains, Due, Foretold, Measured, has_waited};
use crate::arena::{Arena, NONE};
use crate::book::{Entry, Slot};
use crate::offsets::Limits;
use crate::settings::Settings;
use presagio_core::{FileId, IdHashMap, Nanos, Op, Range, Request};

/// In an entry's `foreseen`: it is part of a batch that has waited already.
pub(crate) const WAITED: u32 = NONE - 1;

/// Predictions beyond this number are refused, so that nobody can fill our memory.
const PREDICTED_MAX: usize = 1 << 22;

/// A request that is expected to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicted {
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// Its bytes.
    pub range: Range,
    /// When, counted from the first request to this file.
    pub after: Nanos,
}

/// How long the storage takes for a request of a given size: TTP(x) of the thesis, per operation.
///
/// Known at some sizes and linear in between; beyond the last it goes on at the last slope.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceTime {
    points: [Vec<(u64, Nanos)>; 2],
}

impl ServiceTime {
    /// The same fixed time for every request plus its bytes at the same speed, for reads and writes.
    pub fn linear(per_request: Nanos, bytes_per_second: u64) -> ServiceTime {
        let gib = 1u64 << 30;
        let transfer = u128::from(gib) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
        let end = per_request + Nanos(u64::try_from(transfer).unwrap_or(u64::MAX));
        let points = vec![(0, per_request), (gib, end)];
        ServiceTime {
            points: [points.clone(), points],
        }
    }

    /// From measurements: (size in bytes, time) for reads and for writes, at least one each.
    ///
    /// # Panics
    /// If either list is empty.
    pub fn measured(reads: &[(u64, Nanos)], writes: &[(u64, Nanos)]) -> ServiceTime {
        ServiceTime {
            points: [reads, writes].map(|points| {
                assert!(!points.is_empty(), "no measurement");
                let mut points = points.to_vec();
                points.sort_unstable();
                points.dedup_by_key(|p| p.0);
                points
            }),
        }
    }

    /// The time for one request of `bytes`.
    pub fn of(&self, op: Op, bytes: u64) -> Nanos {
        let points = &self.points[op.index()];
        let above = points.partition_point(|p| p.0 < bytes);
        let high = above.clamp(1, (points.len() - 1).max(1));
        let (Some(&a), Some(&b)) = (points.get(high - 1), points.get(high)) else {
            return points[0].1;
        };
        let slope = (b.1.0 as f64 - a.1.0 as f64) / (b.0 - a.0) as f64;
        let time = a.1.0 as f64 + slope * (bytes as f64 - a.0 as f64);
        Nanos(time.max(0.0) as u64)
    }
}

impl Default for ServiceTime {
    /// A disk's order of magnitude, for want of a profile: 100 µs a request and 1 GB/s.
    fn default() -> Self {
        ServiceTime::linear(Nanos::from_micros(100), 1_000_000_000)
    }
}

/// What a selected batch should wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    pub until: Nanos,
    /// Until when it pays if there is nothing else to serve meanwhile.
    pub idle_until: Nanos,
    pub wanted: Wanted,
    pub missing: u32,
}

/// Which requests those are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Those of a predicted aggregation.
    Group(GroupId),
    /// Announced ones, within this run of bytes.
    Run(FileId, Op, Range),
}

/// A predicted aggregation: its queue among the forecasts, and its number there.
pub(crate) type GroupId = (u32, u32);

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Foresight {
    items: Vec<Item>,
    /// The number of the first item: numbers of forgotten ones are not used again, since requests that
    /// matched them may still be queued.
    first_item: u32,
    /// What is predicted of a file and operation.
    forecasts: Vec<Forecast>,
    numbers: IdHashMap<(FileId, u8), u32>,
    files: IdHashMap<FileId, FileTimes>,
    service_time: ServiceTime,
    /// Whether somebody said so; else what is measured counts for more.
    service_time_given: bool,
    measured: [Measured; 2],
    /// What a batch took, by which the groups were computed: see [`Foresight::served_in`].
    grouped_for: [f64; 2],
    announced: Chains,
    /// The share of waiting time that is overlapped with serving others (Eq. 4.2), learned: what counts less when we wait
    /// for announced requests.
    alpha: f64,
    waits_learned: u32,
    /// The time that all dispatched batches should take.
    served: Nanos,
    /// Counts the changes of what groups depend on.
    version: u32,
    tolerance: f64,
    slack: Nanos,
    limits: Limits,
    wait_max: Option<Nanos>,
    /// Alpha as predictions let expect it: see [`Foresight::expect_alpha`]. With the version and the number of predictions.
    expected: (u32, usize, f64),
}

/// The predicted requests of a file and operation.
#[derive(Clone, Debug)]
struct Forecast {
    /// By offset, then time.
    items: Vec<u32>,
    /// New ones, to be put in order with the others when there are enough of them.
    fresh: Vec<u32>,
    groups: Vec<Group>,
    /// The version with which the groups were computed.
    grouped: Option<u32>,
    belief: Belief,
}

impl Forecast {
    fn new() -> Forecast {
        Forecast {
            items: Vec::new(),
            fresh: Vec::new(),
            groups: Vec::new(),
            grouped: None,
            belief: Belief::default(),
        }
    }
}

/// What waits for the predicted requests of a file and operation have taught.
#[derive(Clone, Debug)]
struct Belief {
    /// The share of waits that were not in vain, lately.
    trust: f64,
    /// Requests of one aggregation are predicted no further apart than this. Behind it lie those that do not come while we
    /// wait: the next ones of the processes that wait for us.
    reach: Nanos,
    /// Waits since the reach has changed.
    waits: u32,
    /// How far those reached that were in vain since then, at least.
    in_vain: Nanos,
}

impl Default for Belief {
    fn default() -> Belief {
        Belief {
            trust: 1.0,
            reach: Nanos::MAX,
            waits: 0,
            in_vain: Nanos::MAX,
        }
    }
}

impl Belief {
    /// A wait for requests that were predicted so far apart is over. Whether the reach is another one now.
    fn learn(&mut self, apart: Nanos, came_true: bool) -> bool {
        self.waits += 1;
        self.trust += (f64::from(u8::from(came_true)) - self.trust) / TRUST_OVER;
        if !came_true {
            self.in_vain = self.in_vain.min(apart);
        }
        let reach = if self.trust < 0.5 && self.waits >= WAITS_MIN {
            Nanos(self.in_vain.0 / 2)
        } else if self.trust > 0.9 && self.waits >= WAITS_MANY && self.reach < Nanos::MAX {
            Nanos(self.reach.0 + self.reach.0 / 4)
        } else {
            return false;
        };
        *self = Belief {
            reach,
            trust: self.trust.max(0.75),
            ..Belief::default()
        };
        true
    }
}

#[derive(Clone, Debug)]
struct Item {
    predicted: Predicted,
    forecast: u32,
    group: u32,
    /// The time step in which it came last: when that began.
    came: Option<Nanos>,
}

#[derive(Clone, Debug, Default)]
struct FileTimes {
    /// When the file's first request arrived, in this time step.
    first: Option<Nanos>,
    /// The latest predicted time of the file.
    span: Nanos,
    /// How much later than predicted requests come lately, in nanoseconds; less than 0 where they come sooner. A run that
    /// foresight makes faster is soon far ahead of the one that was recorded.
    drift: i64,
}

/// A predicted aggregation.
#[derive(Clone, Debug)]
struct Group {
    requests: u32,
    /// How many of them came, in the time step that began then.
    came: u32,
    step: Option<Nanos>,
    bytes: u64,
    first: Nanos,
    last: Nanos,
    /// By how much the wait for all of it grew at most when one more joined.
    apart: Nanos,
}

impl Group {
    /// How much longer all of it takes to arrive if it has a request of this moment too.
    fn grows_by(&self, after: Nanos) -> Nanos {
        after.since(self.last).max(self.first.since(after))
    }
}

/// The size by whose time it is judged whether the storage is as it was.
const TYPICAL: u64 = 64 << 10;

/// Predictions of the same offset that are looked at on either side of a moment.
const LOOK_AT: usize = 32;

/// Over about how many waits trust is averaged.
const TRUST_OVER: f64 = 8.0;

/// Of a wait at least the rest is taken for lost.
const ALPHA_MAX: f64 = 0.9;

/// So many waits tell that we reach too far, and so many that we could reach further.
const WAITS_MIN: u32 = 4;
const WAITS_MANY: u32 = 256;

/// The part of a new difference by which the drift of a file follows.
const DRIFT_FOLLOWS: i64 = 4;

impl Default for Foresight {
    fn default() -> Self {
        Foresight {
            items: Vec::new(),
            first_item: 0,
            forecasts: Vec::new(),
            numbers: IdHashMap::default(),
            files: IdHashMap::default(),
            service_time: ServiceTime::default(),
            service_time_given: false,
            measured: Default::default(),
            grouped_for: [0.0; 2],
            announced: Chains::default(),
            alpha: 0.0,
            waits_learned: 0,
            served: Nanos::ZERO,
            version: 0,
            tolerance: 0.1,
            slack: Nanos::from_millis(1),
            limits: Limits {
                requests: 1,
                bytes: 1,
            },
            wait_max: None,
            expected: (0, 0, 0.0),
        }
    }
}

impl Foresight {
    pub(crate) fn configure(&mut self, settings: &Settings) {
        self.tolerance = settings.foresight_tolerance;
        self.slack = settings.foresight_slack;
        let (limits, wait_max) = (Limits::of(settings), settings.foresight_wait_max);
        if (limits, wait_max) != (self.limits, self.wait_max) {
            (self.limits, self.wait_max) = (limits, wait_max);
            self.version += 1;
        }
    }

    /// Whether no batch waits for predicted requests longer than was set.
    pub(crate) fn waits_are_short(&self) -> bool {
        self.wait_max.is_some()
    }

    pub(crate) fn set_service_time(&mut self, service_time: ServiceTime) {
        self.service_time = service_time;
        self.service_time_given = true;
        self.version += 1;
    }

    pub(crate) fn service_time(&self, op: Op, bytes: u64) -> Nanos {
        Nanos(self.time(op, bytes) as u64)
    }

    /// Whether nothing is predicted or announced.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.announced.is_empty()
    }

    /// What a source says that a program will ask for; how much there was room for.
    pub(crate) fn announce(&mut self, source: u64, requests: &[Announced], now: Nanos) -> usize {
        self.announced.announce(source, requests, now)
    }

    pub(crate) fn forget_source(&mut self, source: u64) {
        self.announced.forget_source(source);
    }

    pub(crate) fn forget_announced(&mut self) {
        self.announced.clear();
    }

    pub(crate) fn foretold(&self) -> Foretold {
        self.announced.foretold
    }

    /// A request with this mark was answered.
    pub(crate) fn answered(&mut self, mark: u32, now: Nanos) {
        self.announced.answered(mark, now);
    }

    /// A batch of so many bytes was served in so long.
    pub(crate) fn served_in(&mut self, op: Op, bytes: u64, time: Nanos) {
        self.measured[op.index()].add(bytes, time);
        // Groups are computed anew when the storage is found to be quite different.
        let (now, then) = (self.time(op, TYPICAL), self.grouped_for[op.index()]);
        if !self.items.is_empty() && (now > 2.0 * then || 2.0 * now < then) {
            self.grouped_for[op.index()] = now;
            self.version += 1;
        }
    }

    /// A wait is over, and so many are missing still.
    pub(crate) fn waited_for(&mut self, wanted: Wanted, missing: u32) {
        match wanted {
            Wanted::Run(file, op, range) if missing > 0 => {
                self.announced.disappointed(file, op, range);
            }
            Wanted::Run(..) => {}
            Wanted::Group((forecast, group)) => {
                // It may have been forgotten while it was waited for.
                let Some(forecast) = self.forecasts.get_mut(forecast as usize) else {
                    return;
                };
                let Some(group) = forecast.groups.get(group as usize) else {
                    return;
                };
                if forecast.belief.learn(group.apart, missing == 0) {
                    forecast.grouped = None;
                }
            }
        }
    }

    /// Adds a predicted request; whether there was room for it.
    pub(crate) fn foresee(&mut self, predicted: Predicted) -> bool {
        if self.items.len() >= PREDICTED_MAX {
            return false;
        }
        let queue = (predicted.file, predicted.op as u8);
        let forecast = *self.numbers.entry(queue).or_insert_with(|| {
            self.forecasts.push(Forecast::new());
            self.forecasts.len() as u32 - 1
        });
        let item = self.items.len() as u32;
        self.items.push(Item {
            predicted,
            forecast,
            group: NONE,
            came: None,
        });
        self.forecasts[forecast as usize].fresh.push(item);
        let times = self.files.entry(predicted.file).or_default();
        times.span = times.span.max(predicted.after);
        true
    }

    /// Forgets all predictions.
    pub(crate) fn clear(&mut self) {
        let next = self.first_item + self.items.len() as u32;
        // Begins again long before the names of nothing.
        self.first_item = if next < WAITED / 4 { next } else { 0 };
        self.items.clear();
        self.forecasts.clear();
        self.numbers.clear();
        self.files.clear();
        self.announced.clear();
    }

    /// The mark of an arriving request: the predicted one that it matches, or the chain that announced it, or NONE.
    pub(crate) fn observe(&mut self, request: &Request, now: Nanos) -> u32 {
        let tolerance = self.tolerance;
        let slack = self.patience(request.op, request.range.len());
        let late = |after| allowance(after, tolerance, slack);
        match self.announced.observe(request, now, late) {
            Some(mark) => mark,
            None => self.observe_predicted(request, now),
        }
    }

    fn observe_predicted(&mut self, request: &Request, now: Nanos) -> u32 {
        let Some(times) = self.files.get(&request.file) else {
            return NONE;
        };
        let (span, first, drift) = (times.span, times.first.unwrap_or(now), times.drift);
        let forecast = self.numbers.get(&(request.file, request.op as u8)).copied();
        if let Some(forecast) = forecast {
            self.prepare(forecast);
        }
        let elapsed = now.since(first);
        // The moment in the recorded run.
        let moment = Nanos(elapsed.0.saturating_add_signed(drift.saturating_neg()));
        let after = |item: u32| self.items[item as usize].predicted.after;
        let candidates = forecast.map_or(&[][..], |forecast| {
            self.starting_at(forecast, request.range.start())
        });
        let same = |item: u32| self.items[item as usize].predicted.range == request.range;
        let found = self
            .nearest(candidates, moment, same)
            .filter(|&item| after(item).0.abs_diff(moment.0) <= self.allowance(after(item)).0);
        // Behind all that was predicted: the next time step begins where this range was predicted first.
        let over = moment > span + self.allowance(span);
        let (item, first, drift) = match found {
            Some(item) => {
                let off = elapsed.0 as i64 - after(item).0 as i64;
                (item, first, drift + (off - drift) / DRIFT_FOLLOWS)
            }
            None if over => match self.nearest(candidates, Nanos::ZERO, same) {
                Some(item) => (item, now - after(item), 0),
                None => (NONE, first, drift),
            },
            None => (NONE, first, drift),
        };
        if let Some(times) = self.files.get_mut(&request.file) {
            times.first = Some(first);
            times.drift = drift;
        }
        match item {
            NONE => NONE,
            item => {
                self.came(item, first);
                self.first_item + item
            }
        }
    }

    /// A predicted request came, in the time step that began at `step`: nobody has to wait for it.
    fn came(&mut self, number: u32, step: Nanos) {
        let item = &mut self.items[number as usize];
        if item.came.replace(step) == Some(step) || item.group == NONE {
            return;
        }
        let group = &mut self.forecasts[item.forecast as usize].groups[item.group as usize];
        if group.step.replace(step) != Some(step) {
            group.came = 0;
        }
        group.came += 1;
    }

    /// The aggregation that a predicted request belongs to.
    pub(crate) fn group_of(&self, item: u32) -> Option<GroupId> {
        let at = item.wrapping_sub(self.first_item);
        let item = self.items.get(at as usize)?;
        (item.group != NONE).then_some((item.forecast, item.group))
    }

    fn group(&self, (forecast, group): GroupId) -> &Group {
        &self.forecasts[forecast as usize].groups[group as usize]
    }

    /// Whether the selected batch should wait for more, and until when. A batch waits once.
    pub(crate) fn expect(
        &mut self,
        entries: &Arena<Entry, 512>,
        slots: &[Slot],
        now: Nanos,
    ) -> Option<Expectation> {
        let mut marks = slots.iter().map(|&slot| entries[slot].foreseen);
        if marks.any(has_waited) {
            return None;
        }
        let announced = self.expect_announced(entries, slots, now);
        self.announced.foretold.waits += u64::from(announced.is_some());
        announced.or_else(|| self.expect_predicted(entries, slots, now))
    }

    /// Whether the selected batch has waited for what was predicted with it, or all of that has come.
    pub(crate) fn is_complete(&self, entries: &Arena<Entry, 512>, slots: &[Slot]) -> bool {
        let has_come = |group: &Group| group.requests > 1 && group.came >= group.requests;
        slots.iter().all(|&slot| match entries[slot].foreseen {
            WAITED => true,
            mark => self
                .group_of(mark)
                .is_some_and(|number| has_come(self.group(number))),
        })
    }

    /// Whether announced requests are about to arrive that would extend the batch on either side, as far as waiting for
    /// each of them pays. No longer than is gained in all is waited: where times are wrong this bounds the loss.
    fn expect_announced(
        &self,
        entries: &Arena<Entry, 512>,
        slots: &[Slot],
        now: Nanos,
    ) -> Option<Expectation> {
        let (first, last) = (&entries[*slots.first()?], &entries[*slots.last()?]);
        let (file, op) = (first.request.file, first.request.op);
        let start = first.range().start();
        let mut hope = Hope {
            run: Range::at(start, last.range().end() - start),
            requests: slots.len(),
            latest: now,
            until: now,
            gain: 0.0,
        };
        while let Some(due) = self.extends(&hope, file, op, now) {
            self.extend(&mut hope, op, due);
        }
        let missing = (hope.requests - slots.len()) as u32;
        let most = Nanos((hope.gain / (1.0 - self.alpha).max(0.1)) as u64);
        let until = hope.until.min(now + most);
        (missing > 0 && until > now).then_some(Expectation {
            until,
            idle_until: until,
            wanted: Wanted::Run(file, op, hope.run),
            missing,
        })
    }

    /// An announced request that would extend the run, and for which waiting pays.
    fn extends(&self, hope: &Hope, file: FileId, op: Op, now: Nanos) -> Option<Due> {
        let behind = self.announced.starting(file, op, hope.run.end());
        let before = self.announced.ending(file, op, hope.run.start());
        let mut both = [behind, before].into_iter().flatten();
        both.find(|due| {
            let bytes = hope.run.len().saturating_add(due.range.len());
            let fits = hope.requests < self.limits.requests && bytes <= self.limits.bytes;
            let apart = due.at.since(hope.latest).0 as f64 * (1.0 - self.alpha);
            fits && self.until(op, due) > now && self.gain(hope, op, due) > apart
        })
    }

    /// TTP(S₁) + TTP(S₂) − TTP(S₁ + S₂).
    fn gain(&self, hope: &Hope, op: Op, due: &Due) -> f64 {
        let (here, more) = (hope.run.len(), due.range.len());
        self.time(op, here) + self.time(op, more) - self.time(op, here + more)
    }

    fn extend(&self, hope: &mut Hope, op: Op, due: Due) {
        hope.gain += self.gain(hope, op, &due);
        let start = hope.run.start().min(due.range.start());
        let end = hope.run.end().max(due.range.end());
        hope.run = Range::at(start, end - start);
        hope.requests += 1;
        hope.latest = hope.latest.max(due.at);
        hope.until = hope.until.max(self.until(op, &due));
    }

    /// Until when an announced request may come and still be in time.
    fn until(&self, op: Op, due: &Due) -> Nanos {
        let slack = self.patience(op, due.range.len());
        due.at + allowance(due.after, self.tolerance, slack)
    }

    /// What an announced request may be late at least: half of what serving it alone would take is well spent.
    fn patience(&self, op: Op, bytes: u64) -> Nanos {
        self.slack.max(Nanos((self.time(op, bytes) / 2.0) as u64))
    }

    /// What a batch takes, in nanoseconds: as was said, or measured, or supposed.
    fn time(&self, op: Op, bytes: u64) -> f64 {
        let measured = self.measured[op.index()].time(bytes);
        let measured = measured.filter(|_| !self.service_time_given);
        measured.unwrap_or_else(|| self.service_time.of(op, bytes).0 as f64)
    }

    /// Whether the selected batch should wait for a larger predicted aggregation, and until when.
    ///
    /// W = Time_diff(P₁ … P_M) − (T_K − min AT(R₁ … R_N)), Eq. 4.3 and 4.4: as long as the predicted
    /// aggregation takes to arrive, less what has passed since the batch's first request arrived. To that we
    /// add what a request may be late and still be the predicted one: it would be a pity to have waited in
    /// vain for one that comes a moment later. The wait ends early when the last one arrives.
    ///
    /// The equations suppose that the missing ones come when they came before. Where clients ask again only when they are
    /// answered, those that we hold back may be the very ones whose next requests we wait for, and nothing comes. So we
    /// wait only if what is left of the wait is at most twice what joining the rest saves, times the share of
    /// such hopes that came true, and no longer than that with nothing else to serve. Twice: the rest may come in several
    /// parts; not more, because what comes while one batch is served joins the next one anyway.
    fn expect_predicted(
        &self,
        entries: &Arena<Entry, 512>,
        slots: &[Slot],
        now: Nanos,
    ) -> Option<Expectation> {
        let mut largest: Option<GroupId> = None;
        let mut first_arrival = Nanos::MAX;
        let mut bytes = 0u64;
        let op = entries[*slots.first()?].request.op;
        for &slot in slots {
            let entry = &entries[slot];
            bytes = bytes.saturating_add(entry.range().len());
            first_arrival = first_arrival.min(entry.request.arrival);
            let Some(group) = self.group_of(entry.foreseen) else {
                continue;
            };
            let requests = self.group(group).requests;
            if largest.is_none_or(|l| requests > self.group(l).requests) {
                largest = Some(group);
            }
        }
        let number = largest?;
        let group = self.group(number);
        // Some may have come, and even left, without those that are selected now.
        let missing = group.requests.saturating_sub(group.came);
        let lasts = group.last - group.first;
        let wait = lasts.since(now.since(first_arrival));
        let rest = group.bytes / u64::from(group.requests) * u64::from(missing);
        let all = bytes.saturating_add(rest);
        if let Some(most) = self.wait_max {
            return self.expect_soon(number, missing, wait, most, now);
        }
        let saved = self.time(op, bytes) + self.time(op, rest) - self.time(op, all);
        let trust = self.forecasts[number.0 as usize].belief.trust;
        let worth = Nanos((2.0 * saved.max(0.0) * trust) as u64);
        let pays = missing > 0 && wait > Nanos::ZERO && wait <= worth;
        pays.then(|| {
            let until = now + wait + self.allowance(lasts);
            Expectation {
                until,
                idle_until: until.min(now + worth),
                wanted: Wanted::Group(number),
                missing,
            }
        })
    }

    /// The published wait, but never longer than was set; as long where all should be here already.
    fn expect_soon(
        &self,
        group: GroupId,
        missing: u32,
        wait: Nanos,
        most: Nanos,
        now: Nanos,
    ) -> Option<Expectation> {
        let wait = if wait == Nanos::ZERO {
            most
        } else {
            wait.min(most)
        };
        let until = now + wait;
        (missing > 0 && wait > Nanos::ZERO).then_some(Expectation {
            until,
            idle_until: until,
            wanted: Wanted::Group(group),
            missing,
        })
    }

    /// A batch was dispatched.
    pub(crate) fn dispatched(&mut self, op: Op, bytes: u64) {
        self.served += Nanos(self.time(op, bytes) as u64);
    }

    /// The time that all batches dispatched so far should take.
    pub(crate) fn served(&self) -> Nanos {
        self.served
    }

    /// A wait of `waited` is over, which began when `served_before` was the time of all batches: adjusts
    /// alpha by the share of it that others were served in.
    pub(crate) fn learn(&mut self, waited: Nanos, served_before: Nanos) {
        if waited == Nanos::ZERO {
            return;
        }
        let overlapped = self.served.since(served_before).0 as f64 / waited.0 as f64;
        self.waits_learned = (self.waits_learned + 1).min(64);
        let weight = 1.0 / f64::from(8 + self.waits_learned);
        self.alpha += (overlapped.min(1.0) - self.alpha) * weight;
    }

    /// The predicted requests of a forecast that start at `offset`, in the order of their times.
    fn starting_at(&self, forecast: u32, offset: u64) -> &[u32] {
        let items = &self.forecasts[forecast as usize].items;
        let start = |i: &u32| self.items[*i as usize].predicted.range.start();
        let from = items.partition_point(|i| start(i) < offset);
        let len = items[from..].partition_point(|i| start(i) == offset);
        &items[from..from + len]
    }

    /// Of items in the order of their times, the wanted one whose time is closest to `time`. Looks at a
    /// bounded number on either side.
    fn nearest(&self, items: &[u32], time: Nanos, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let after = |i: u32| self.items[i as usize].predicted.after;
        let at = items.partition_point(|i| after(*i) < time);
        let near = at.saturating_sub(LOOK_AT)..(at + LOOK_AT).min(items.len());
        let near = items[near].iter().copied().filter(|i| wanted(*i));
        near.min_by_key(|i| after(*i).0.abs_diff(time.0))
    }

    fn allowance(&self, after: Nanos) -> Nanos {
        allowance(after, self.tolerance, self.slack)
    }

    /// Brings a forecast up to date: new predictions in order, once they are a sixteenth of all (so that
    /// each is sorted a bounded number of times), and groups that fit the storage.
    fn prepare(&mut self, number: u32) {
        let forecast = &self.forecasts[number as usize];
        let enough = forecast.fresh.len() > forecast.items.len() / 16;
        if enough {
            self.order(number);
        }
        if self.forecasts[number as usize].grouped != Some(self.version) {
            self.predict_aggregations(number);
        }
    }

    /// Puts the new predictions of a forecast in order with the others.
    fn order(&mut self, number: u32) {
        let forecast = &mut self.forecasts[number as usize];
        forecast.items.append(&mut forecast.fresh);
        forecast.grouped = None;
        let items = &self.items;
        forecast.items.sort_by_key(|i| {
            let p = &items[*i as usize].predicted;
            (p.range.start(), p.after, p.range.len(), *i)
        });
    }

    /// The predicted request that starts where `item` ends and whose time is closest to its.
    fn next_contiguous(&self, item: u32, free: impl Fn(u32) -> bool) -> Option<u32> {
        let Item {
            predicted,
            forecast,
            ..
        } = &self.items[item as usize];
        let items = self.starting_at(*forecast, predicted.range.end());
        let nonempty = |i: u32| !self.items[i as usize].predicted.range.is_empty();
        self.nearest(items, predicted.after, |i| free(i) && nonempty(i))
    }

    /// Predicts the aggregations of a forecast: in offset order, a request joins the virtual request before
    /// it if that is expected to pay (Eq. 4.1).
    fn predict_aggregations(&mut self, number: u32) {
        self.expect_alpha();
        let items = std::mem::take(&mut self.forecasts[number as usize].items);
        for &item in &items {
            self.items[item as usize].group = NONE;
        }
        let forecast = &mut self.forecasts[number as usize];
        forecast.groups.clear();
        forecast.grouped = Some(self.version);
        forecast.items = items;
        for at in 0..self.forecasts[number as usize].items.len() {
            let item = self.forecasts[number as usize].items[at];
            if self.items[item as usize].group == NONE {
                self.build_group(number, item);
            }
        }
    }

    /// What alpha will be about (thesis 4.1.1): the share of a wait in which others are served is at most that of the time in which
    /// the storage has something to do, if all comes as predicted. Files may be used one after the other, so a part
    /// of a wait always counts.
    fn expect_alpha(&mut self) {
        let (version, len, _) = self.expected;
        let is_known = version == self.version && self.items.len() <= len + len / 16;
        if is_known || self.wait_max.is_none() {
            return;
        }
        let each = self.items.iter().map(|item| &item.predicted);
        let busy: f64 = each.map(|p| self.time(p.op, p.range.len())).sum();
        let span = self.files.values().map(|times| times.span.0).max();
        let share = busy / span.unwrap_or(0).max(1) as f64;
        self.expected = (self.version, self.items.len(), share.min(ALPHA_MAX));
    }

    fn build_group(&mut self, forecast: u32, first: u32) {
        let number = self.forecasts[forecast as usize].groups.len() as u32;
        let mut p = self.items[first as usize].predicted;
        let mut group = Group {
            requests: 1,
            came: 0,
            step: None,
            bytes: p.range.len(),
            first: p.after,
            last: p.after,
            apart: Nanos::ZERO,
        };
        let mut last = first;
        let step = self.files.get(&p.file).and_then(|times| times.first);
        group.step = step;
        group.came = u32::from(step.is_some() && self.items[first as usize].came == step);
        self.items[first as usize].group = number;
        loop {
            let free = |i: u32| self.items[i as usize].group == NONE;
            let Some(next) = self.next_contiguous(last, free) else {
                break;
            };
            p = self.items[next as usize].predicted;
            let apart = group.grows_by(p.after);
            let reach = self.forecasts[forecast as usize].belief.reach;
            let far = apart > reach && self.wait_max.is_none();
            if far || !self.pays(&group, &p) {
                break;
            }
            group.apart = group.apart.max(apart);
            group.came += u32::from(step.is_some() && self.items[next as usize].came == step);
            self.items[next as usize].group = number;
            group.requests += 1;
            group.first = group.first.min(p.after);
            group.last = group.last.max(p.after);
            group.bytes = group.bytes.saturating_add(p.range.len());
            last = next;
        }
        self.forecasts[forecast as usize].groups.push(group);
    }

    /// Eq. 4.1: TTP(S₁) + TTP(S₂) > TTP(S₁ + S₂) + |AT₂ − AT₁| × (1 − α), where the first may be a virtual
    /// request; the time then is what the wait for all of it grows by.
    ///
    /// With α = 0, as far as traces go, unless waits are short anyway. Where many files are busy α is almost 1, and an aggregation would grow by whatever comes
    /// next, be it the next request of the very process that waits for this one: held back, it never asks.
    fn pays(&self, group: &Group, next: &Predicted) -> bool {
        let bytes = group.bytes;
        let both = bytes.saturating_add(next.range.len());
        if group.requests as usize >= self.limits.requests || both > self.limits.bytes {
            return false;
        }
        let ttp = |bytes| self.time(next.op, bytes);
        let alpha = self.wait_max.map_or(0.0, |_| self.expected.2);
        let apart = group.grows_by(next.after).0 as f64 * (1.0 - alpha);
        ttp(bytes) + ttp(next.range.len()) > ttp(both) + apart
    }
}

/// A batch with the announced requests that it may wait for.
struct Hope {
    run: Range,
    requests: usize,
    /// When the last of them is due, and until when it may come.
    latest: Nanos,
    until: Nanos,
    /// What is gained by serving all of them at once, in nanoseconds.
    gain: f64,
}

/// What a request may be late that was to come after this time.
fn allowance(after: Nanos, tolerance: f64, slack: Nanos) -> Nanos {
    Nanos((after.0 as f64 * tolerance) as u64).max(slack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::RequestId;

    fn predicted(offset: u64, len: u64, after_us: u64) -> Predicted {
        Predicted {
            file: FileId(1),
            op: Op::Write,
            range: Range::at(offset, len),
            after: Nanos::from_micros(after_us),
        }
    }

    fn request(offset: u64, len: u64) -> Request {
        Request::new(RequestId(0), FileId(1), Op::Write, Range::at(offset, len))
    }

    fn foresight(items: &[Predicted]) -> Foresight {
        foresight_with(items, None)
    }

    fn foresight_with(items: &[Predicted], wait_max: Option<Nanos>) -> Foresight {
        let mut foresight = Foresight::default();
        foresight.configure(&Settings {
            foresight_wait_max: wait_max,
            ..Settings::new(crate::PolicyKind::Aioli)
        });
        // 1 ms a request, next to nothing a byte: aggregating two saves 1 ms.
        foresight.set_service_time(ServiceTime::linear(Nanos::from_millis(1), 10_000_000_000));
        items.iter().for_each(|p| assert!(foresight.foresee(*p)));
        (0..foresight.forecasts.len() as u32).for_each(|f| foresight.prepare(f));
        foresight
    }

    #[test]
    fn service_time_is_linear_between_measurements_and_beyond() {
        let t = ServiceTime::measured(
            &[(4096, Nanos(100)), (8192, Nanos(300))],
            &[(4096, Nanos(50))],
        );
        assert_eq!(t.of(Op::Read, 6144), Nanos(200));
        assert_eq!(t.of(Op::Read, 16384), Nanos(700));
        assert_eq!(t.of(Op::Read, 0), Nanos(0));
        assert_eq!(t.of(Op::Write, 1 << 20), Nanos(50));
    }

    #[test]
    fn requests_that_come_soon_after_one_another_are_aggregated_and_others_are_not() {
        // 0.5 ms apart: saves 1 ms. 5 ms apart: does not pay.
        let f = foresight(&[
            predicted(0, 4096, 0),
            predicted(4096, 4096, 500),
            predicted(8192, 4096, 5_500),
        ]);
        let groups: Vec<_> = (0..3).map(|i| f.group_of(i)).collect();
        assert!(groups.iter().all(Option::is_some));
        assert_eq!(groups[0], groups[1]);
        assert_ne!(groups[1], groups[2]);
    }

    /// It may be the next request of a process that waits for the first: held back, it would not come.
    #[test]
    fn what_comes_much_later_is_not_waited_for_however_busy_others_are() {
        let f = foresight(&far_apart_while_others_are_busy());
        assert_ne!(f.group_of(0), f.group_of(1));
    }

    #[test]
    fn where_waits_are_short_what_comes_later_is_waited_for_while_others_are_served() {
        let most = Nanos::from_micros(500);
        let f = foresight_with(&far_apart_while_others_are_busy(), Some(most));
        assert_eq!(f.group_of(0), f.group_of(1));
        let group = f.group_of(0).unwrap();
        let now = Nanos::from_millis(7);
        let until = |wait| f.expect_soon(group, 1, wait, most, now).map(|e| e.until);
        assert_eq!(
            until(Nanos::from_micros(200)),
            Some(now + Nanos::from_micros(200))
        );
        assert_eq!(until(Nanos::from_millis(5)), Some(now + most));
        assert!(
            f.expect_soon(group, 0, most, most, now).is_none(),
            "all are here"
        );
        // With nobody else to serve it would not pay.
        let idle = [predicted(0, 4096, 0), predicted(4096, 4096, 15_000)];
        let f = foresight_with(&idle, Some(most));
        assert_ne!(f.group_of(0), f.group_of(1));
    }

    /// Three files' worth of other requests fill the 5 ms between the two.
    fn far_apart_while_others_are_busy() -> Vec<Predicted> {
        let mut items = vec![predicted(0, 4096, 0), predicted(4096, 4096, 5_000)];
        items.extend((0..10).map(|i| Predicted {
            file: FileId(2),
            ..predicted(i << 20, 4096, 100 + i * 400)
        }));
        items
    }

    #[test]
    fn predictions_that_come_in_between_are_used_soon_and_do_not_cost_all_others_anew() {
        let mut f = foresight(&[predicted(0, 4096, 0)]);
        for block in 1..1000u64 {
            assert!(f.foresee(predicted(block * 4096, 4096, block)));
            f.observe(&request(0, 4096), Nanos::ZERO);
            let waiting = f.forecasts[0].fresh.len();
            assert!(waiting <= f.forecasts[0].items.len() / 16);
        }
        assert_eq!(
            f.observe(&request(900 * 4096, 4096), Nanos::from_micros(900)),
            900
        );
    }

    #[test]
    fn a_request_matches_its_prediction_within_the_tolerance_and_again_in_the_next_time_step() {
        let mut f = foresight(&[predicted(0, 4096, 0), predicted(4096, 4096, 100_000)]);
        let ms = Nanos::from_millis;
        assert_eq!(f.observe(&request(0, 4096), ms(7)), 0);
        assert_eq!(f.observe(&request(4096, 4096), ms(7 + 109)), 1);
        assert_eq!(f.observe(&request(4096, 4096), ms(7 + 85)), NONE);
        assert_eq!(f.observe(&request(4096, 512), ms(7 + 100)), NONE);
        // A minute later it all begins again.
        assert_eq!(f.observe(&request(0, 4096), ms(60_000)), 0);
        assert_eq!(f.observe(&request(4096, 4096), ms(60_101)), 1);
    }

    #[test]
    fn the_next_time_step_may_begin_with_any_of_the_predicted_requests() {
        let mut f = foresight(&[predicted(0, 4096, 0), predicted(4096, 4096, 50_000)]);
        let ms = Nanos::from_millis;
        assert_eq!(f.observe(&request(0, 4096), ms(0)), 0);
        assert_eq!(f.observe(&request(4096, 4096), ms(9_000)), 1);
        assert_eq!(f.observe(&request(0, 4096), ms(8_950)), 0);
    }

    /// Every request comes a fifth sooner than it was recorded, as in a run that foresight makes faster.
    #[test]
    fn a_run_that_gets_ahead_of_the_recorded_one_is_still_recognised() {
        let items: Vec<Predicted> = (0..500)
            .map(|i| predicted(i * 4096, 4096, i * 1000))
            .collect();
        let mut f = foresight(&items);
        for i in 0..500 {
            let now = Nanos::from_micros(i * 800);
            assert_eq!(f.observe(&request(i * 4096, 4096), now), i as u32, "{i}");
        }
    }

    /// The second of each two was asked for when the first was answered: held back, it never comes.
    #[test]
    fn what_does_not_come_while_we_wait_is_soon_not_waited_for() {
        let mut belief = Belief::default();
        let ms = Nanos::from_millis;
        let changes = (0..10).filter(|_| belief.learn(ms(3), false)).count();
        assert!(changes > 0);
        assert!(belief.reach < ms(3), "{:?}", belief.reach);
        assert!(belief.trust >= 0.5, "what is nearer is believed in");
        // What comes true lets it reach further again, in time.
        let before = belief.reach;
        for _ in 0..1000 {
            belief.learn(ms(1), true);
        }
        assert!(belief.reach > before);
    }

    #[test]
    fn alpha_is_learned_from_what_was_served_during_waits() {
        let mut f = foresight(&[predicted(0, 4096, 0)]);
        for _ in 0..100 {
            let before = f.served();
            f.dispatched(Op::Write, 4096);
            f.learn(Nanos::from_millis(2), before);
        }
        assert!((f.alpha - 0.5).abs() < 0.05, "alpha is {}", f.alpha);
    }
}
