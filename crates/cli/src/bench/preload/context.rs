//! What it takes to name the call stack, by its depth: a call that was made before, against a hook that names nothing.

#[cfg(target_arch = "x86_64")]
pub use measure::warm;

/// Elsewhere a context is named by its caller alone.
#[cfg(not(target_arch = "x86_64"))]
pub fn warm(_rounds: usize, _extra: usize) -> (u64, f64) {
    (1, f64::NAN)
}

#[cfg(target_arch = "x86_64")]
mod measure {
    use super::super::costs::middle;
    use presagio_stack::{Contexts, Entry, ThreadState, entry};
    use std::hint::black_box;
    use std::sync::LazyLock;
    use std::time::Instant;

    const CALLS: usize = 20_000;

    static CONTEXTS: LazyLock<Option<Contexts>> = LazyLock::new(Contexts::new);

    thread_local! {
        static THREAD: ThreadState = const { ThreadState::new() };
    }

    entry!(named => name);
    entry!(bare => nothing);
    entry!(walked => walk);

    extern "C" fn nothing(_entry: &Entry, argument: usize) -> usize {
        argument
    }

    extern "C" fn name(entry: &Entry, _argument: usize) -> usize {
        let Some(contexts) = &*CONTEXTS else {
            return 0;
        };
        // SAFETY: the entry of the hook that called this.
        THREAD.with(|thread| unsafe { contexts.context(thread, entry) }.id as usize)
    }

    extern "C" fn walk(entry: &Entry, _argument: usize) -> usize {
        let mut frames = 0;
        if let Some(contexts) = &*CONTEXTS {
            // SAFETY: as above.
            THREAD.with(|thread| unsafe { contexts.frames(thread, entry, |_| frames += 1) });
        }
        frames
    }

    /// The frames that a stack has with so many more on it, and the nanoseconds that naming them takes.
    pub fn warm(rounds: usize, extra: usize) -> (u64, f64) {
        let mut found = (0, f64::NAN);
        at_depth(extra, &mut || {
            let more = (0..rounds.max(1)).map(|_| round(named) - round(bare));
            found = (walked(0) as u64, middle(more.collect()));
        });
        found
    }

    #[inline(never)]
    fn at_depth(extra: usize, work: &mut dyn FnMut()) {
        if extra == 0 {
            work();
        } else {
            at_depth(extra - 1, work);
        }
        black_box(extra);
    }

    #[inline(never)]
    fn round(hook: extern "C" fn(usize) -> usize) -> f64 {
        let began = Instant::now();
        for i in 0..CALLS {
            black_box(hook(i));
        }
        began.elapsed().as_nanos() as f64 / CALLS as f64
    }
}
