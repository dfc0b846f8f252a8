//! `posix_fadvise`: split to what one call loads, checked, corrected, and replaced by real reads where it does nothing.

use super::residency::{self, Method};
use super::{Counts, HintBackend, Loaded, Storage, Target};
use presagio_core::Range;
use rustix::fs::{Advice, fadvise};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How often one hint is corrected: the first correction says how much a call loads, so few are needed.
const ROUNDS_MAX: usize = 4;

/// See the module's header.
#[derive(Debug, Default)]
pub struct Posix {
    counts: Counts,
}

impl HintBackend for Posix {
    fn name(&self) -> &'static str {
        "posix_fadvise"
    }

    fn will_need(&self, file: &Target, range: Range) -> Loaded {
        let Some(pages) = file.pages(range) else {
            return Loaded::default();
        };
        let asked = pages.len();
        if file.device.storage == Storage::Memory {
            // What is not there is a hole.
            return Loaded {
                asked,
                there: asked,
                already: Some(asked),
            };
        }
        // A look costs a third of a hint that finds everything there. If we may not, all may be missing.
        let method = Method::of(file.device.storage);
        let already = residency::resident(&file.file, pages, method).ok();
        let there = match already {
            Some(already) if already >= asked => asked,
            _ => self.load(file, pages, method),
        };
        self.counts.add(Loaded {
            asked,
            there,
            already,
        })
    }

    fn dont_need(&self, file: &Target, range: Range) {
        if file.device.storage != Storage::Memory {
            file.release(range, &self.counts);
        }
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Posix {
    /// Loads whole pages. Returns how many of their bytes are there or on their way.
    fn load(&self, file: &Target, pages: Range, method: Method) -> u64 {
        if !file.device.worth_a_hint() {
            return file.force(pages, &self.counts).there;
        }
        let (mut rest, mut step) = (pages, file.device.step());
        for _ in 0..ROUNDS_MAX {
            self.advise(file, rest, step);
            if method == Method::Mincore && file.device.is_trusted() {
                return pages.len();
            }
            let Ok(there) = settled(file, rest, method) else {
                return pages.len(); // we may not look: hope
            };
            let before = rest.start() - pages.start();
            if there == rest.len() {
                file.device.worked(step.min(rest.len()));
                return pages.len();
            }
            match self.correct(file, rest, step, there, method) {
                Some(corrected) => (rest, step) = corrected,
                None if there == 0 => return before + file.force(rest, &self.counts).there,
                None => return before + there,
            }
        }
        residency::resident(&file.file, pages, method).unwrap_or(0)
    }

    /// Less is there than was asked for. If one more call, where the gap begins, changes that, calls are cut: returns the
    /// rest, and what one of them loads. Otherwise memory is short, or hints do nothing here.
    fn correct(
        &self,
        file: &Target,
        asked: Range,
        step: u64,
        there: u64,
        method: Method,
    ) -> Option<(Range, u64)> {
        let leading = residency::leading(&file.file, asked, method).ok()?;
        let rest = Range::at(asked.start() + leading, asked.len() - leading);
        self.advise(file, Range::at(rest.start(), step.min(rest.len())), step);
        if settled(file, asked, method).ok()? <= there {
            if there == 0 {
                file.device.did_nothing();
            }
            return None;
        }
        let cut = leading % step;
        if cut == 0 {
            return Some((rest, step));
        }
        file.device.cut_at(cut);
        Some((rest, cut))
    }

    fn advise(&self, file: &Target, range: Range, step: u64) {
        for start in (range.start()..range.end()).step_by(step as usize) {
            let len = NonZeroU64::new(step.min(range.end() - start));
            self.counts.calls.fetch_add(1, Relaxed);
            if fadvise(&file.file, start, len, Advice::WillNeed).is_err() {
                self.counts.errors.fetch_add(1, Relaxed);
                return;
            }
        }
    }
}

/// The bytes that are there. `mincore` does not see pages on their way: there we look again until no more arrive.
fn settled(file: &Target, pages: Range, method: Method) -> std::io::Result<u64> {
    let mut there = residency::resident(&file.file, pages, method)?;
    let mut patience = if method == Method::Mincore { 20 } else { 0 };
    while there < pages.len() && patience > 0 {
        std::thread::sleep(Duration::from_millis(2));
        let now = residency::resident(&file.file, pages, method)?;
        patience = if now > there { 20 } else { patience - 1 };
        there = now;
    }
    Ok(there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hints::Device;
    use crate::hints::testing::{at_last, cold_file};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    const SIZE: u64 = 8 << 20;
    const ALL: Range = Range::at(0, SIZE);

    /// A file whose device pretends to load `kb` with one call, and to be of this kind.
    fn pretending(file: File, kb: u32, storage: Storage) -> Target {
        let sys = tempfile::tempdir().unwrap();
        let bdi = sys.path().join("class/bdi/0:77");
        std::fs::create_dir_all(&bdi).unwrap();
        std::fs::write(bdi.join("read_ahead_kb"), kb.to_string()).unwrap();
        let device = Device::read(sys.path(), rustix::fs::makedev(0, 77), storage);
        Target::new(file, Arc::new(device)).unwrap()
    }

    /// A file of which nothing is in memory, and where hints load nothing: in memory itself, full of holes.
    fn deaf_file() -> File {
        let file = rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.set_len(SIZE).unwrap();
        file
    }

    #[test]
    fn where_hints_do_nothing_the_bytes_are_read() {
        let cold = cold_file(SIZE as usize);
        if cold.device.storage == Storage::Memory {
            println!("skipped: temporary files lie in memory here");
            return;
        }
        (0..3).for_each(|_| cold.device.did_nothing());
        let posix = Posix::default();
        assert!(at_last(|| {
            cold.release(ALL, &Counts::default());
            posix.will_need(&cold, ALL).there == SIZE
        }));
        let done = posix.counts().done();
        assert!(done.bytes_forced >= SIZE, "{done:?}");
        assert_eq!((done.calls, done.errors), (0, 0));
    }

    #[test]
    fn where_nothing_stays_in_memory_either_way_that_is_said_and_soon_not_tried_any_more() {
        let (posix, target) = (
            Posix::default(),
            pretending(deaf_file(), 1024, Storage::Local),
        );
        for i in 0..8 {
            assert_eq!(target.device.ignores_hints(), i >= 3);
            let loaded = posix.will_need(&target, Range::at(i << 20, 1 << 20));
            assert_eq!(
                (loaded.asked, loaded.there, loaded.already),
                (1 << 20, 0, Some(0))
            );
        }
        let done = posix.counts().done();
        assert_eq!(
            (done.bytes_forced, done.bytes_resident, done.errors),
            (3 << 20, 0, 0)
        );
        assert_eq!(done.calls, 6, "two for each of the first three hints");
    }

    #[test]
    fn files_in_memory_are_left_alone() {
        let (posix, target) = (
            Posix::default(),
            pretending(deaf_file(), 1024, Storage::Memory),
        );
        assert_eq!(posix.will_need(&target, ALL).there, SIZE);
        posix.dont_need(&target, ALL);
        assert_eq!(posix.counts().done(), Default::default());
    }

    /// What one call loads is less than the device's facts say: found out, and split accordingly, by either method.
    #[test]
    fn a_step_that_is_too_large_is_learned() {
        for storage in [Storage::Local, Storage::Overlay] {
            let cold = cold_file(SIZE as usize * 3);
            let true_step = cold.device.step();
            if cold.device.storage != Storage::Local || true_step >= 2 * SIZE {
                println!(
                    "skipped: {:?}, one call loads {true_step} bytes",
                    cold.device.storage
                );
                return;
            }
            let target = pretending(cold.file, 1 << 20, storage);
            let (posix, all) = (Posix::default(), Range::at(0, 3 * SIZE));
            assert!(at_last(|| {
                settled(&target, all, Method::Mincore).unwrap(); // nothing is on its way any more
                target.release(all, &Counts::default());
                let there = posix.will_need(&target, all).there;
                target.device.step() == true_step && there == all.len()
            }));
            assert_eq!(posix.counts().done().bytes_forced, 0);
        }
    }

    #[test]
    fn what_is_there_is_not_asked_for_again() {
        assert!(at_last(|| {
            let (posix, target) = (Posix::default(), cold_file(1 << 20));
            if target.device.storage == Storage::Memory {
                println!("skipped: temporary files lie in memory here");
                return true;
            }
            let (first, again) = (posix.will_need(&target, ALL), posix.will_need(&target, ALL));
            let asked: u64 = 1 << 20;
            let calls = asked.div_ceil(target.device.step());
            first
                == Loaded {
                    asked,
                    there: asked,
                    already: Some(0),
                }
                && again
                    == Loaded {
                        asked,
                        there: asked,
                        already: Some(asked),
                    }
                && posix.counts().done().calls == calls
        }));
    }

    #[test]
    fn ranges_behind_the_end_are_cut() {
        let (posix, target) = (Posix::default(), cold_file(10_000));
        assert!(at_last(|| posix
            .will_need(&target, Range::at(4096, u64::MAX))
            .there
            == 2 * 4096));
        assert_eq!(
            posix.will_need(&target, Range::at(20_000, 5)),
            Loaded::default()
        );
        assert!(at_last(|| {
            // What is still on its way could not be let go.
            target.file.read_exact_at(&mut [0; 10_000], 0).unwrap();
            posix.dont_need(&target, Range::at(0, u64::MAX));
            let there = residency::resident(&target.file, Range::at(0, 12_288), Method::Mincore);
            there.unwrap() == 0 || target.device.storage == Storage::Memory
        }));
        assert_eq!(posix.counts().done().errors, 0);
    }
}
