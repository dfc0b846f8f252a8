//! Which code is running: the name of the call stack, and what it consists of when it is new.

use crate::hot::HOT;
use presagio_arena::{Client, Counter, Kind, Record};
use presagio_stack::{Contexts, Entry, NAME_MAX};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::thread::{Own, stack_pointer};

static CONTEXTS: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));

#[repr(align(64))]
struct Place(UnsafeCell<MaybeUninit<Contexts>>);
// SAFETY: written once, before anybody can read it.
unsafe impl Sync for Place {}

/// A hook's frame, with whatever is inlined into it, is smaller than this.
const FRAME_MAX: u64 = 16 << 10;

/// Frames that are reported of a new context.
const FRAMES_MAX: usize = presagio_stack::DEPTH_MAX;

/// Operations of a process that are named by their callers alone, where there is no trace: to look at call stacks takes a
/// compiler's helper longer than all its reads and writes, and nobody learns from it. The manager begins to think about a process
/// after as many.
const EARLY: u32 = 32;

/// Makes room for contexts, once. Who comes while another thread is at it does without.
fn start() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Some(contexts) = Contexts::new() {
        // SAFETY: only one thread ever comes here; nobody knows of the place yet.
        let contexts = unsafe { (*CONTEXTS.0.get()).write(contexts) };
        HOT.contexts.store(contexts, Ordering::Release);
    }
}

/// Modules were unloaded.
pub fn modules_changed() {
    if let Some(contexts) = contexts() {
        contexts.modules_changed();
    }
}

fn contexts() -> Option<&'static Contexts> {
    // SAFETY: null, or memory that stays and was filled before.
    unsafe { HOT.contexts.load(Ordering::Acquire).as_ref() }
}

/// Brings near what [`name`] will look at.
#[inline(always)]
pub fn prefetch(entry: &Entry) {
    if let Some(contexts) = contexts()
        && is_ours(entry)
    {
        // SAFETY: as in `name`.
        unsafe { contexts.prefetch(entry) };
    }
}

/// Whether what was taken down is the running hook's. It is another hook's if a signal came between: then it does not lie right
/// above us.
#[inline(always)]
fn is_ours(entry: &Entry) -> bool {
    let here = stack_pointer();
    entry.sp >= here && entry.sp - here <= FRAME_MAX
}

/// The name of the call stack that a hook was called from, 0 if it cannot be told. A new one is reported first.
#[inline]
pub fn name(client: &Client, own: &mut Own, entry: &Entry) -> u64 {
    if !is_ours(entry) {
        return 0;
    }
    let Some(contexts) = contexts().or_else(|| begin(client)) else {
        // SAFETY: as below.
        return unsafe { presagio_stack::caller(entry) };
    };
    // SAFETY: taken down by the trampoline of the hook that is running on this thread, as was just checked.
    let context = unsafe { contexts.context(&own.stack, entry) };
    // Only a trace says what they consist of.
    if context.fresh && client.mode().complete {
        report(client, own, contexts, entry, context.id);
    }
    context.id
}

/// Call stacks, from when on they are looked at.
#[cold]
#[inline(never)]
fn begin(client: &Client) -> Option<&'static Contexts> {
    if client.mode().complete || HOT.named.fetch_add(1, Ordering::Relaxed) >= EARLY {
        start();
    }
    contexts()
}

/// Reports the frames of a new context, and before them the names of their modules: always, since only then does the manager
/// surely know them when it reads this ring.
#[cold]
#[inline(never)]
fn report(client: &Client, own: &mut Own, contexts: &Contexts, entry: &Entry, id: u64) {
    let mut words = [[0u64; 8]; FRAMES_MAX / 4];
    let mut count = 0;
    let mut last = None;
    let Own { writer, stack } = own;
    let mut visit = |frame: presagio_stack::Frame| {
        if frame.module != last {
            last = frame.module;
            if let Some((number, module)) = last.and_then(|n| Some((n, contexts.module(n)?))) {
                report_module(client, writer, number, module.name(&mut [0; NAME_MAX]));
            }
        }
        if let Some(row) = words.get_mut(count / 4) {
            row[count % 4 * 2] = frame.module.map_or(u64::from(u32::MAX), u64::from);
            row[count % 4 * 2 + 1] = frame.offset;
            count += 1;
        }
    };
    // SAFETY: as in `name`.
    unsafe { contexts.frames(stack, entry, &mut visit) };
    let mut record = Record::new(Kind::Context);
    record.context = id;
    record.len = count as u64;
    let rows = words.into_iter().take(count.div_ceil(4));
    if !writer.push_message(client, &record, rows) {
        client.count(Counter::LostContexts, 1);
    }
}

fn report_module(client: &Client, writer: &mut presagio_arena::Writer, number: u16, name: &[u8]) {
    let mut record = Record::new(Kind::Module);
    record.context = number.into();
    let kept = name
        .get(..name.len().min(64 * presagio_arena::PAYLOAD_MAX))
        .unwrap_or(&[]);
    record.len = kept.len() as u64;
    let rows = kept.chunks(64).map(|chunk| {
        let mut row = [0; 8];
        for (word, bytes) in row.iter_mut().zip(chunk.chunks(8)) {
            let mut all = [0; 8];
            for (to, from) in all.iter_mut().zip(bytes) {
                *to = *from;
            }
            *word = u64::from_le_bytes(all);
        }
        row
    });
    writer.push_message(client, &record, rows);
}
