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
    /// The share of waiting time that is overlapped with serving others (Eq. 4.2): estimated from the
    /// predictions, then learned.
    alpha: f64,
    /// How many predictions alpha was estimated from.
    estimated: usize,
    waits_learned: u32,
    /// The time that all dispatched batches should take.
    served: Nanos,
    /// Counts the changes of what groups depend on.
    version: u32,
    tolerance: f64,
    slack: Nanos,
    limits: Limits,
}

/// The predicted requests of a file and operation.
#[derive(Clone, Debug, Default)]
struct Forecast {
    /// By offset, then time.
    items: Vec<u32>,
    /// New ones, to be put in order with the others when there are enough of them.
    fresh: Vec<u32>,
    groups: Vec<Group>,
    /// The version and alpha with which the groups were computed.
    grouped: Option<(u32, f64)>,
}

#[derive(Clone, Debug)]
struct Item {
    predicted: Predicted,
    forecast: u32,
    group: u32,
}

#[derive(Clone, Debug, Default)]
struct FileTimes {
    /// When the file's first request arrived, in this time step.
    first: Option<Nanos>,
    /// The latest predicted time of the file.
    span: Nanos,
}

/// A predicted aggregation.
#[derive(Clone, Debug)]
struct Group {
    requests: u32,
    first: Nanos,
    last: Nanos,
}

/// The size by whose time it is judged whether the storage is as it was.
const TYPICAL: u64 = 64 << 10;

/// Predictions of the same offset that are looked at on either side of a moment.
const LOOK_AT: usize = 32;

/// Alpha is estimated from no more predictions than this: beyond, more of them change little.
const ESTIMATED_MAX: usize = 1 << 16;

/// Groups are computed anew when alpha has moved by this much.
const ALPHA_STEP: f64 = 0.05;

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
            estimated: 0,
            waits_learned: 0,
            served: Nanos::ZERO,
            version: 0,
            tolerance: 0.1,
            slack: Nanos::from_millis(1),
            limits: Limits {
                requests: 1,
                bytes: 1,
            },
        }
    }
}

impl Foresight {
    pub(crate) fn configure(&mut self, settings: &Settings) {
        self.tolerance = settings.foresight_tolerance;
        self.slack = settings.foresight_slack;
        let limits = Limits::of(settings);
        if limits != self.limits {
            self.limits = limits;
            self.version += 1;
        }
    }

    pub(crate) fn set_service_time(&mut self, service_time: ServiceTime) {
        self.service_time = service_time;
        self.service_time_given = true;
        self.estimated = 0;
        self.version += 1;
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
            self.estimated = 0;
            self.version += 1;
        }
    }

    /// A wait for announced requests is over, and not all of them came.
    pub(crate) fn disappointed(&mut self, wanted: Wanted) {
        if let Wanted::Run(file, op, range) = wanted {
            self.announced.disappointed(file, op, range);
        }
    }

    /// Adds a predicted request; whether there was room for it.
    pub(crate) fn foresee(&mut self, predicted: Predicted) -> bool {
        if self.items.len() >= PREDICTED_MAX {
            return false;
        }
        let queue = (predicted.file, predicted.op as u8);
        let forecast = *self.numbers.entry(queue).or_insert_with(|| {
            self.forecasts.push(Forecast::default());
            self.forecasts.len() as u32 - 1
        });
        let item = self.items.len() as u32;
        self.items.push(Item {
            predicted,
            forecast,
            group: NONE,
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
        self.estimated = 0;
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
        let (span, first) = (times.span, times.first.unwrap_or(now));
        let forecast = self.numbers.get(&(request.file, request.op as u8)).copied();
        if let Some(forecast) = forecast {
            self.prepare(forecast);
        }
        let elapsed = now.since(first);
        let after = |item: u32| self.items[item as usize].predicted.after;
        let candidates = forecast.map_or(&[][..], |forecast| {
            self.starting_at(forecast, request.range.start())
        });
        let same = |item: u32| self.items[item as usize].predicted.range == request.range;
        let found = self
            .nearest(candidates, elapsed, same)
            .filter(|&item| after(item).0.abs_diff(elapsed.0) <= self.allowance(after(item)).0);
        // Behind all that was predicted: the next time step begins where this range was predicted first.
        let over = elapsed > span + self.allowance(span);
        let (item, first) = match found {
            Some(item) => (item, first),
            None if over => match self.nearest(candidates, Nanos::ZERO, same) {
                Some(item) => (item, now - after(item)),
                None => (NONE, first),
            },
            None => (NONE, first),
        };
        if let Some(times) = self.files.get_mut(&request.file) {
            times.first = Some(first);
        }
        match item {
            NONE => NONE,
            item => self.first_item + item,
        }
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
    fn expect_predicted(
        &self,
        entries: &Arena<Entry, 512>,
        slots: &[Slot],
        now: Nanos,
    ) -> Option<Expectation> {
        let mut largest: Option<GroupId> = None;
        let mut first_arrival = Nanos::MAX;
        for &slot in slots {
            let entry = &entries[slot];
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
        let missing = group.requests.checked_sub(slots.len() as u32)?;
        let lasts = group.last - group.first;
        let wait = lasts.since(now.since(first_arrival));
        (missing > 0 && wait > Nanos::ZERO).then(|| Expectation {
            until: now + wait + self.allowance(lasts),
            wanted: Wanted::Group(number),
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
    /// each is sorted a bounded number of times), and groups that fit alpha.
    fn prepare(&mut self, number: u32) {
        self.estimate_if_needed();
        let forecast = &self.forecasts[number as usize];
        let enough = forecast.fresh.len() > forecast.items.len() / 16;
        if enough {
            self.order(number);
        }
        let grouped = self.forecasts[number as usize].grouped;
        let fits = |(version, alpha): (u32, f64)| {
            version == self.version && (alpha - self.alpha).abs() < ALPHA_STEP
        };
        if !grouped.is_some_and(fits) {
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

    /// Estimates alpha when there are twice as many predictions as last time, until waits teach better.
    fn estimate_if_needed(&mut self) {
        let many = self.items.len().min(ESTIMATED_MAX);
        if self.waits_learned > 0 || many < 2 * self.estimated || many == self.estimated {
            return;
        }
        (0..self.forecasts.len() as u32).for_each(|number| self.order(number));
        self.alpha = self.estimate_alpha();
        self.estimated = many;
    }

    /// α = Ov / T (Eq. 4.2), estimated: going through the predicted requests in the order of their times,
    /// the time to each one's next contiguous request counts as waiting, and as overlapped as far as the
    /// requests between the two take to be served.
    fn estimate_alpha(&self) -> f64 {
        let mut by_time: Vec<u32> = (0..self.items.len() as u32).collect();
        by_time.sort_by_key(|i| self.items[*i as usize].predicted.after);
        let mut rank = vec![0; by_time.len()];
        let mut served_before = Vec::with_capacity(by_time.len() + 1);
        let mut served = 0u64;
        for (at, &item) in by_time.iter().enumerate() {
            rank[item as usize] = at;
            served_before.push(served);
            let p = &self.items[item as usize].predicted;
            served = served.saturating_add(self.time(p.op, p.range.len()) as u64);
        }
        served_before.push(served);
        let (mut waited, mut overlapped) = (0u64, 0u64);
        for item in 0..self.items.len() {
            let Some(next) = self.next_contiguous(item as u32, |_| true) else {
                continue;
            };
            let after = |item: usize| self.items[item].predicted.after.0;
            let apart = after(next as usize).abs_diff(after(item));
            let (a, b) = (rank[item], rank[next as usize]);
            let between = served_before[a.max(b)] - served_before[(a.min(b) + 1).min(a.max(b))];
            waited = waited.saturating_add(apart);
            overlapped = overlapped.saturating_add(between.min(apart));
        }
        overlapped as f64 / waited.max(1) as f64
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
        let items = std::mem::take(&mut self.forecasts[number as usize].items);
        for &item in &items {
            self.items[item as usize].group = NONE;
        }
        let forecast = &mut self.forecasts[number as usize];
        forecast.groups.clear();
        forecast.grouped = Some((self.version, self.alpha));
        forecast.items = items;
        for at in 0..self.forecasts[number as usize].items.len() {
            let item = self.forecasts[number as usize].items[at];
            if self.items[item as usize].group == NONE {
                self.build_group(number, item);
            }
        }
    }

    fn build_group(&mut self, forecast: u32, first: u32) {
        let number = self.forecasts[forecast as usize].groups.len() as u32;
        let mut p = self.items[first as usize].predicted;
        let mut group = Group {
            requests: 1,
            first: p.after,
            last: p.after,
        };
        let mut bytes = p.range.len();
        let mut last = first;
        self.items[first as usize].group = number;
        loop {
            let free = |i: u32| self.items[i as usize].group == NONE;
            let Some(next) = self.next_contiguous(last, free) else {
                break;
            };
            p = self.items[next as usize].predicted;
            if !self.pays(&group, bytes, &p) {
                break;
            }
            self.items[next as usize].group = number;
            group.requests += 1;
            group.first = group.first.min(p.after);
            group.last = group.last.max(p.after);
            bytes = bytes.saturating_add(p.range.len());
            last = next;
        }
        self.forecasts[forecast as usize].groups.push(group);
    }

    /// Eq. 4.1: TTP(S₁) + TTP(S₂) > TTP(S₁ + S₂) + |AT₂ − AT₁| × (1 − α), where the first may be a virtual
    /// request; the time then is what the wait for all of it grows by.
    fn pays(&self, group: &Group, bytes: u64, next: &Predicted) -> bool {
        let both = bytes.saturating_add(next.range.len());
        if group.requests as usize >= self.limits.requests || both > self.limits.bytes {
            return false;
        }
        let ttp = |bytes| self.time(next.op, bytes);
        let longer = next
            .after
            .since(group.last)
            .max(group.first.since(next.after));
        let apart = longer.0 as f64 * (1.0 - self.alpha);
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
        let mut foresight = Foresight::default();
        foresight.configure(&Settings::new(crate::PolicyKind::Aioli));
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
        // 0.5 ms apart: saves 1 ms. 5 ms apart: does not pay (alpha is 0 here: nothing is in between).
        let f = foresight(&[
            predicted(0, 4096, 0),
            predicted(4096, 4096, 500),
            predicted(8192, 4096, 5_500),
        ]);
        assert_eq!(f.alpha, 0.0);
        let groups: Vec<_> = (0..3).map(|i| f.group_of(i)).collect();
        assert!(groups.iter().all(Option::is_some));
        assert_eq!(groups[0], groups[1]);
        assert_ne!(groups[1], groups[2]);
    }

    #[test]
    fn waiting_that_is_overlapped_counts_less() {
        // Three files' worth of other requests fill the 5 ms between the two: alpha is near 1.
        let mut items = vec![predicted(0, 4096, 0), predicted(4096, 4096, 5_000)];
        items.extend((0..10).map(|i| Predicted {
            file: FileId(2),
            ..predicted(i << 20, 4096, 100 + i * 400)
        }));
        let f = foresight(&items);
        assert!(f.alpha > 0.9, "alpha is {}", f.alpha);
        assert_eq!(f.group_of(0), f.group_of(1));
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
