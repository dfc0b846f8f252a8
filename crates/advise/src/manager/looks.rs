//! Tells the mind of files, once it is known where they lie.
//!
//! The first file of each device is opened for a look at it. Storage may take any time to answer, or never answer, so a
//! worker looks; what happens to files of that device meanwhile is held back, and told in its order afterwards.

use super::Manager;
use super::act::whereabouts;
use super::files::Open;
use super::workers::Work;
use crate::hints::Device;
use crate::plan::{Access, FileNumber, Holder, Opened};
use presagio_core::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pieces of news that are held back for one device. What comes then is not told.
const HELD_MAX: usize = 4096;
/// How long a look is waited for when the run is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// Something that the mind wants to know about a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    Opened(FileNumber, Open, Nanos),
    Accessed(Access),
    Closed(FileNumber, Holder, Nanos),
}

/// What is known of a device.
#[derive(Debug)]
enum Known {
    /// Somebody looks, and this is held back.
    Awaited(Vec<News>),
    Seen(Arc<Device>),
}

/// The devices, by the number that the system gives them.
#[derive(Debug, Default)]
pub(super) struct Looks {
    devices: BTreeMap<u64, Known>,
}

impl Looks {
    /// What is known already.
    fn device(&self, id: u64) -> Option<Arc<Device>> {
        match self.devices.get(&id) {
            Some(Known::Seen(device)) => Some(device.clone()),
            _ => None,
        }
    }

    /// Holds news back, if somebody looks.
    fn hold(&mut self, id: u64, news: News) -> bool {
        let Some(Known::Awaited(held)) = self.devices.get_mut(&id) else {
            return false;
        };
        // An end is never left out: there are no more of them than of beginnings.
        if held.len() < HELD_MAX || matches!(news, News::Closed(..)) {
            held.push(news);
        }
        true
    }

    fn is_awaited(&self) -> bool {
        let mut known = self.devices.values();
        known.any(|known| matches!(known, Known::Awaited(_)))
    }

    /// Whether there is a beginning more that can be held back.
    fn has_room(&self, id: u64) -> bool {
        match self.devices.get(&id) {
            Some(Known::Awaited(held)) => held.len() < HELD_MAX,
            _ => true,
        }
    }
}

impl Manager {
    /// Tells the mind that a file is open, or will when it is known where it lies; `false` if it will not be told.
    pub(super) fn tell_opened(&mut self, number: FileNumber, open: Open, time: Nanos) -> bool {
        let Some(id) = self.files.get(number).map(|file| file.key.device) else {
            return false;
        };
        if !self.looks.has_room(id) {
            return false;
        }
        if !self.looks.devices.contains_key(&id) && !self.begin_look(id, number) {
            return false;
        }
        self.tell_news(News::Opened(number, open, time));
        true
    }

    /// Has a device looked at, by way of a file; `false` if nobody can.
    fn begin_look(&mut self, id: u64, number: FileNumber) -> bool {
        let at = whereabouts(&self.files, number);
        let (Some(at), Some(workers)) = (at, &mut self.workers) else {
            return false;
        };
        let is_begun = workers.submit(Work::Look(at)).is_ok();
        if is_begun {
            self.looks.devices.insert(id, Known::Awaited(Vec::new()));
        }
        is_begun
    }

    /// Tells the mind, or holds back what it cannot be told yet.
    pub(super) fn tell_news(&mut self, news: News) {
        let number = match news {
            News::Opened(number, ..) | News::Closed(number, ..) => number,
            News::Accessed(access) => access.file,
        };
        let id = self.files.get(number).map(|file| file.key.device);
        if id.is_some_and(|id| !self.looks.hold(id, news)) {
            self.tell_now(news);
        }
    }

    fn tell_now(&mut self, news: News) {
        match news {
            News::Opened(number, open, time) => self.tell_opened_now(number, &open, time),
            News::Accessed(access) => self.mind.accessed(&access),
            News::Closed(number, holder, time) => self.mind.closed(number, holder, time),
        }
    }

    fn tell_opened_now(&mut self, number: FileNumber, open: &Open, time: Nanos) {
        let Some(file) = self.files.get(number) else {
            return;
        };
        let Some(device) = self.looks.device(file.key.device) else {
            return;
        };
        self.mind.opened(&Opened {
            file: number,
            by: Some(open.holder()),
            path: file.path(),
            size: file.size,
            writes: open.writes,
            device: &device,
            time,
        });
    }

    /// Somebody has looked at a device. Of one that could not be seen nothing is told; the next file of it is looked at.
    pub(super) fn looked(&mut self, id: u64, found: Option<Arc<Device>>) {
        let before = match &found {
            Some(device) => self.looks.devices.insert(id, Known::Seen(device.clone())),
            None => self.looks.devices.remove(&id),
        };
        let Some(Known::Awaited(held)) = before else {
            return;
        };
        for news in held {
            match (&found, news) {
                (Some(_), news) => self.tell_now(news),
                (None, News::Opened(number, open, _)) => self.files.untell(number, &open),
                (None, _) => {}
            }
        }
    }

    /// Waits a moment for looks that were begun: what a short program did would be lost with them.
    pub(super) fn await_looks(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.looks.is_awaited() {
            let left = until.saturating_duration_since(Instant::now());
            let next = self.workers.as_ref().and_then(|w| w.wait(left));
            let Some(done) = next else {
                return;
            };
            self.hear(done);
        }
    }
}
