//! Functions and lines for the frames of call stacks, from the debug information of the programs themselves.
//!
//! A trace says which file a frame lies in and where; it may come from anywhere, so only regular files are opened, and only
//! so many. A program that was built anew since the recording has other lines: that is said.

use addr2line::Loader;
use presagio_report::doc::Place;
use presagio_report::{Nameless, Names, readable};
use presagio_trace::Frame;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Programs and libraries that are looked into.
const MODULES_MAX: usize = 128;
/// One that is larger is left alone.
const MODULE_BYTES_MAX: u64 = 4 << 30;

/// See the module's header.
pub struct DebugInfo {
    is_wanted: bool,
    /// When the recording ended, as far as its file says.
    recorded: Option<SystemTime>,
    modules: HashMap<Arc<str>, Option<Loader>>,
    places: HashMap<(Arc<str>, u64), Place>,
    newer: BTreeSet<String>,
}

impl DebugInfo {
    /// For frames of this trace.
    pub fn new(is_wanted: bool, trace: Option<&Path>) -> DebugInfo {
        let metadata = trace.and_then(|path| fs::metadata(path).ok());
        DebugInfo {
            is_wanted,
            recorded: metadata.and_then(|m| m.modified().ok()),
            modules: HashMap::new(),
            places: HashMap::new(),
            newer: BTreeSet::new(),
        }
    }

    fn load(&mut self, module: &str) -> Option<Loader> {
        let path = Path::new(module);
        if !path.is_absolute() || self.modules.len() >= MODULES_MAX {
            return None;
        }
        let metadata = fs::metadata(path).ok()?;
        if !metadata.is_file() || metadata.len() > MODULE_BYTES_MAX {
            return None;
        }
        let loader = Loader::new(path).ok()?;
        if is_newer(metadata.modified().ok(), self.recorded) {
            self.newer.insert(readable::name(module.as_bytes()));
        }
        Some(loader)
    }

    fn find(&mut self, frame: &Frame) -> Place {
        let mut place = Nameless.place(frame);
        if !self.modules.contains_key(&frame.module) {
            let loader = self.load(&frame.module);
            self.modules.insert(frame.module.clone(), loader);
        }
        // A return address is behind the call.
        let probe = frame.offset.saturating_sub(1);
        if let Some(Some(loader)) = self.modules.get(&frame.module) {
            fill(&mut place, loader, probe);
        }
        place
    }
}

/// Whether a program was built after the recording; nobody knows that of a recording without a time, as one from a pipe.
fn is_newer(built: Option<SystemTime>, recorded: Option<SystemTime>) -> bool {
    matches!((built, recorded), (Some(built), Some(recorded)) if built > recorded)
}

/// What debug information says, or else the table of symbols.
fn fill(place: &mut Place, loader: &Loader, probe: u64) {
    let text = |text: &str| readable::name(text.as_bytes());
    if let Ok(mut frames) = loader.find_frames(probe)
        && let Ok(Some(inner)) = frames.next()
    {
        let function = inner.function.as_ref().and_then(|f| f.demangle().ok());
        place.function = function.map(|f| text(&f)).or(place.function.take());
        if let Some(location) = inner.location {
            place.file = location.file.map(text);
            place.line = location.line;
        }
    }
    if place.function.is_none() {
        let symbol = loader.find_symbol(probe);
        place.function = symbol.map(|s| text(&addr2line::demangle_auto(s.into(), None)));
    }
}

impl Names for DebugInfo {
    fn place(&mut self, frame: &Frame) -> Place {
        if !self.is_wanted {
            return Nameless.place(frame);
        }
        let key = (frame.module.clone(), frame.offset);
        if let Some(known) = self.places.get(&key) {
            return known.clone();
        }
        let place = self.find(frame);
        self.places.insert(key, place.clone());
        place
    }

    fn notes(&self) -> Vec<String> {
        let newer = self.newer.iter().take(3);
        newer
            .map(|module| {
                format!("{module} is newer than the recording: functions and lines may be wrong")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_recording_without_a_time_is_not_older_than_anything() {
        let (early, late) = (
            SystemTime::UNIX_EPOCH,
            SystemTime::UNIX_EPOCH + Duration::from_secs(1),
        );
        assert!(is_newer(Some(late), Some(early)));
        assert!(!is_newer(Some(early), Some(late)));
        assert!(!is_newer(Some(late), None) && !is_newer(None, Some(early)));
    }
}
