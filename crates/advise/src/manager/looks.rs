//! Tells the mind of files, once it is known where they lie.
//!
//! The first file of each device is opened for a look at it. Storage may take any time to answer, or never answer, so a
//! worker looks; what happens to files of that device meanwhile is held back, and told in its order afterwards.

use super::Manager;
use super::act::whereabouts;
use super::files::Open;
use super::workers::Work;
use crate::hints::Device;
use crate::plan::{Access, FileNumber, Holder, OpenNumber, Opened};
use presagio_core::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pieces of news that are held back for one device. What comes then is not told.
const HELD_MAX: usize = 4096;
/// Looks by way of one open file: where the first few could not be, no other will.
const LOOKS_MAX: u8 = 3;
/// How long a look is waited for when the run is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// Something that the mind wants to know about a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    Opened(FileNumber, Open, Nanos),
    Accessed(Access),
    Closed(FileNumber, Holder, Nanos),
}

impl News {
    fn file(&self) -> FileNumber {
        match self {
            News::Opened(number, ..) | News::Closed(number, ..) => *number,
            News::Accessed(access) => access.file,
        }
    }
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

    /// As if somebody looked, and no more could be held back.
    #[cfg(test)]
    pub fn fill(&mut self, id: u64) {
        let holder = Holder {
            process: u32::MAX,
            open: OpenNumber(u64::MAX),
        };
        let news = News::Closed(FileNumber(u32::MAX), holder, Nanos::ZERO);
        let full = Known::Awaited(vec![news; HELD_MAX]);
        self.devices.insert(id, full);
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
        if !self.looks.devices.contains_key(&id) && !self.begin_look(id, number, open.number) {
            return false;
        }
        self.tell_news(News::Opened(number, open, time));
        true
    }

    /// Has a device looked at, by way of a file; `false` if nobody can, or if that was in vain too often.
    fn begin_look(&mut self, id: u64, number: FileNumber, open: OpenNumber) -> bool {
        if let Some(open) = self.files.open_mut(number, open) {
            if open.looks >= LOOKS_MAX {
                return false;
            }
            open.looks += 1;
        }
        let at = whereabouts(&self.files, number);
        let Some(at) = at else {
            return false;
        };
        let is_begun = self.workers.submit(Work::Look(at)).is_ok();
        if is_begun {
            self.looks.devices.insert(id, Known::Awaited(Vec::new()));
        }
        is_begun
    }

    /// Tells the mind, or holds back what it cannot be told yet.
    pub(super) fn tell_news(&mut self, news: News) {
        let id = self.files.get(news.file()).map(|file| file.key.device);
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

    /// Somebody has looked at a device.
    pub(super) fn looked(&mut self, id: u64, found: Option<Arc<Device>>) {
        let Some(device) = found else {
            return self.looked_in_vain(id);
        };
        let before = self.looks.devices.insert(id, Known::Seen(device));
        if let Some(Known::Awaited(held)) = before {
            held.into_iter().for_each(|news| self.tell_now(news));
        }
    }

    /// A device could not be seen by way of the file that was the first to be held back. Nothing is told of that one until its next
    /// access, and the device is looked at by way of the next.
    fn looked_in_vain(&mut self, id: u64) {
        // It may have been seen by way of a file that was opened ahead.
        let Some(Known::Awaited(held)) = self.looks.devices.get_mut(&id) else {
            return;
        };
        let mut held = std::mem::take(held);
        self.looks.devices.remove(&id);
        while let Some(failed) = held.first().map(News::file) {
            let (untold, left) = held.into_iter().partition(|news| news.file() == failed);
            held = left;
            self.untell(untold);
            if let Some(News::Opened(number, open, _)) = held.first()
                && self.begin_look(id, *number, open.number)
            {
                self.looks.devices.insert(id, Known::Awaited(held));
                return;
            }
        }
    }

    /// The mind was not told this after all.
    fn untell(&mut self, news: Vec<News>) {
        for news in news {
            if let News::Opened(number, open, _) = news
                && let Some(open) = self.files.open_mut(number, open.number)
            {
                open.told = false;
            }
        }
    }

    /// Waits a moment for looks that were begun: what a short program did would be lost with them.
    pub(super) fn await_looks(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.looks.is_awaited() {
            let left = until.saturating_duration_since(Instant::now());
            let next = self.workers.wait(left);
            let Some(done) = next else {
                return;
            };
            self.hear(done);
        }
    }
}
