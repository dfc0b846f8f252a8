//! wip placeholder: a plain FIFO with the final interface, replaced soon.
use crate::*;
use presagio_core::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("queue id {queue} is out of range: there are {queues} queues, 0 to {}", queues - 1)]
    QueueOutOfRange { queue: QueueId, queues: u32 },
}
#[derive(Debug, Default)]
pub struct Statistics;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicted { pub file: FileId, pub op: Op, pub range: Range, pub after: Nanos }

#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    queue: VecDeque<(Ticket, Request)>,
    flying: BTreeMap<Ticket, Request>,
    next: u32,
    statistics: Arc<Statistics>,
}
impl Scheduler {
    pub fn new(settings: Settings) -> Result<Scheduler, SettingsError> {
        settings.check()?;
        Ok(Scheduler { settings, queue: VecDeque::new(), flying: BTreeMap::new(), next: 0, statistics: Arc::default() })
    }
    pub fn settings(&self) -> &Settings { &self.settings }
    pub fn configure(&mut self, settings: Settings, _now: Nanos) -> Result<(), SettingsError> {
        settings.check()?;
        self.settings = settings;
        Ok(())
    }
    pub fn submit(&mut self, mut request: Request, now: Nanos) -> Result<Ticket, Rejected> {
        if request.queue.0 >= self.settings.queues {
            return Err(Rejected::QueueOutOfRange { queue: request.queue, queues: self.settings.queues });
        }
        request.arrival = now;
        let t = Ticket { slot: self.next, generation: 0 };
        self.next += 1;
        self.queue.push_back((t, request));
        Ok(t)
    }
    pub fn next(&mut self, _now: Nanos) -> Next {
        match self.queue.pop_front() {
            None => Next::Idle,
            Some((ticket, request)) => {
                self.flying.insert(ticket, request);
                Next::Dispatch(Batch { parts: smallvec::smallvec![Part { ticket, request }] })
            }
        }
    }
    pub fn finish(&mut self, ticket: Ticket, _now: Nanos) -> bool { self.flying.remove(&ticket).is_some() }
    pub fn cancel(&mut self, ticket: Ticket, _now: Nanos) -> Option<Request> {
        let at = self.queue.iter().position(|q| q.0 == ticket)?;
        self.queue.remove(at).map(|q| q.1)
    }
    pub fn queued(&self) -> usize { self.queue.len() }
    pub fn in_flight(&self) -> usize { self.flying.len() }
    pub fn drain(&mut self) -> Vec<Request> { self.queue.drain(..).map(|q| q.1).collect() }
    pub fn statistics(&self) -> Arc<Statistics> { self.statistics.clone() }
    pub fn foresee(&mut self, _predicted: Predicted) {}
}
