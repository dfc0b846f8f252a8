//! What this process has: the prefixes, and for each the way to its nodes.
//!
//! The prefixes are in the environment, `PRESAGIO_FORWARD=SWITCHBOARD:SHADOWS:PREFIX[:PREFIX…]`; everything else is asked of the switchboard
//! (crates/forward) when the first path under one of them is used.
//!
//! Whose process this is stands in a page that the kernel wipes in the child of a fork: one that finds it wiped lets go
//! of all that was its parent's and begins anew. Where the page has another's number we are a *guest*: a child of vfork,
//! which runs in its parent's memory but has descriptors of its own. It uses the parent's connections, which it has
//! inherited; if it has to make one, the parent gives up all it has, since the number of that one means nothing there.

use crate::call::{Errno, Quiet, guarded};
use crate::{fd, gate, hook, own, stdio, table, theirs};
use libc::{c_char, c_int, mode_t};
use presagio_arena::{SITE_SWITCH, SWITCH, sys};
use presagio_forward::switchboard::{Forwarded, Line, VARIABLE};
use presagio_forward::{Connected, Dial, File, Instance, LastResort, Remote, Witness};
use presagio_ninep::{OpenFlags, Qid};
use std::ffi::CStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use std::sync::{Arc, OnceLock};

/// Device numbers from here on are those of exports. No device has them: the kernel's own are shorter.
const FIRST_DEVICE: u64 = libc::makedev(0xffff, 0x7072_0000);

/// What the environment said.
pub struct Orders {
    /// The name of the switchboard.
    pub switchboard: String,
    /// Where directories are made that stand for working directories of exports (`names::shadow_of`).
    pub shadows: Vec<u8>,
    /// Absolute, without a slash at the end, no dots.
    pub prefixes: Vec<Vec<u8>>,
}

/// An export: how its files are reached.
pub struct Export {
    remote: Remote,
}

struct World {
    exports: Vec<Export>,
}

struct Page {
    /// Whose this memory is; 0 if nobody has looked since a fork.
    pid: AtomicU32,
    world: AtomicPtr<World>,
    /// A guest has made a connection.
    stale: AtomicBool,
}

static ON: AtomicBool = AtomicBool::new(false);
static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
static ORDERS: OnceLock<Orders> = OnceLock::new();

gates! {
    /// Who makes a world, or begins anew.
    static MAKING: () = World, ();
}

/// Run by the loader before the program, with what `main` will get.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    let _ = guarded(|| {
        // SAFETY: the loader passes the environment, a list of strings that ends with a null.
        if let Some(orders) = unsafe { orders(environment) } {
            begin(orders);
        }
        Ok(())
    });
    if is_on() {
        stdio::start();
        fd::take_over();
    }
}

/// Run by the loader when the program exits: nobody has to wait for locks until the node finds out. What streams hold belongs
/// before that.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    if is_on() && fd::has_locks() {
        // SAFETY: all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        fd::release_all();
    }
}

fn begin(orders: Orders) {
    // Its message would go to the program's standard error.
    std::panic::set_hook(Box::new(|_| ()));
    let (Some(page), true) = (wiped_page(), table::start()) else {
        return;
    };
    hook::start();
    page.pid.store(sys::process_id(), Relaxed);
    PAGE.store(std::ptr::from_ref(page).cast_mut(), Release);
    let _ = ORDERS.set(orders);
    // SAFETY: the functions stay.
    let registered = unsafe {
        libc::pthread_atfork(
            Some(fork_begins),
            Some(fork_over_here),
            Some(fork_over_there),
        )
    };
    ON.store(registered == 0, Release);
}

/// What the environment says; `None` if nothing is forwarded, or the library is switched off.
unsafe fn orders(environment: *const *const c_char) -> Option<Orders> {
    // SAFETY: as the caller vouches.
    let value = |name: &str| unsafe {
        variables(environment)
            .find_map(|text| text.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    };
    let text = value(VARIABLE)?;
    let is_off = value(SWITCH) == Some(b"off");
    // SAFETY: the path ends with a zero.
    if is_off || unsafe { libc::access(SITE_SWITCH.as_ptr(), libc::F_OK) } == 0 {
        return None;
    }
    let mut parts = text.split(|byte| *byte == b':');
    let switchboard = String::from_utf8(parts.next()?.to_vec()).ok()?;
    let shadows = parts.next()?.to_vec();
    let prefixes: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    let are_good = prefixes
        .iter()
        .all(|prefix| prefix.starts_with(b"/") && prefix.len() > 1);
    (are_good && !prefixes.is_empty()).then_some(Orders {
        switchboard,
        shadows,
        prefixes,
    })
}

/// The strings of a list that ends with a null.
unsafe fn variables<'a>(list: *const *const c_char) -> impl Iterator<Item = &'a [u8]> {
    (0..).map_while(move |index| {
        // SAFETY: within the list, since the one before was no null.
        let text = unsafe { *list.add(index) };
        // SAFETY: a string that ends with a zero.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
    })
}

fn wiped_page() -> Option<&'static Page> {
    let length = 4096;
    let memory = sys::map_memory(length).ok()?;
    let args = [
        memory as usize,
        length,
        libc::MADV_WIPEONFORK as usize,
        0,
        0,
        0,
    ];
    // SAFETY: a mapping of ours.
    let wiped = unsafe { sys::call(libc::SYS_madvise, args) } == 0;
    // SAFETY: zeros are a page that says nothing; it is never unmapped.
    wiped.then(|| unsafe { &*memory.cast::<Page>() })
}

/// Whether anything is forwarded.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

pub fn prefixes() -> &'static [Vec<u8>] {
    ORDERS.get().map_or(&[], |orders| &orders.prefixes)
}

pub fn switchboard() -> &'static str {
    ORDERS.get().map_or("", |orders| &orders.switchboard)
}

pub fn shadows() -> &'static [u8] {
    ORDERS.get().map_or(b"", |orders| &orders.shadows)
}

fn page() -> &'static Page {
    // SAFETY: set before the library is on, and never unmapped.
    unsafe { &*PAGE.load(Acquire) }
}

/// Whether we run in another process's memory: then its tables are not ours to change.
pub fn is_guest() -> bool {
    let pid = page().pid.load(Relaxed);
    pid != 0 && pid != sys::process_id()
}

/// Makes sure that what is there belongs to this process.
pub fn settle() {
    let page = page();
    let (pid, me) = (page.pid.load(Acquire), sys::process_id());
    match pid {
        0 => MAKING.with(|()| begin_anew(page, me)),
        _ if pid == me && page.stale.load(Relaxed) => MAKING.with(|()| give_up(page)),
        _ => {}
    }
}

/// In the child of a fork.
fn begin_anew(page: &Page, me: u32) {
    if page.pid.load(Relaxed) == 0 {
        own::close_all();
        table::forget();
        page.pid.store(me, Release);
    }
}

/// A guest has made connections, of which only it had the descriptors.
fn give_up(page: &Page) {
    if page.stale.swap(false, Relaxed) {
        page.world.store(std::ptr::null_mut(), Release);
        own::close_all();
        table::forget();
    }
}

fn here() -> Result<&'static World, Errno> {
    settle();
    let page = page();
    // SAFETY: null, or a world that stays.
    let known = || unsafe { page.world.load(Acquire).as_ref() };
    if let Some(world) = known() {
        return Ok(world);
    }
    MAKING.with(|()| match known() {
        Some(world) => Ok(world),
        None => {
            let made: &'static World = Box::leak(Box::new(make()?));
            page.world
                .store(std::ptr::from_ref(made).cast_mut(), Release);
            Ok(made)
        }
    })
}

/// Asks the switchboard.
fn make() -> Result<World, Errno> {
    let line = Line::call(switchboard()).map_err(|_| Errno::IO)?;
    let all = line.exports().map_err(|_| Errno::IO)?;
    let exports = prefixes().iter().map(|prefix| {
        let mut found = all.iter().filter(|one| one.prefix == *prefix);
        Export::new(found.next().ok_or(Errno::IO)?)
    });
    let exports = exports.collect::<Result<Vec<Export>, _>>()?;
    for (export, qid, node) in BEGINNINGS.with(|all| all.clone()) {
        if let Some(export) = exports.get(export) {
            export.remote.prefer(qid, node);
        }
    }
    Ok(World { exports })
}

/// The export of a prefix, by its index. The first time this asks the switchboard.
pub fn export(index: usize) -> Result<&'static Export, Errno> {
    here()?.exports.get(index).ok_or(Errno::IO)
}

impl Export {
    fn new(forwarded: &Forwarded) -> Result<Export, Errno> {
        let mut options = forwarded.options.clone();
        let dial = |dial: Dial| {
            Dial(Arc::new(move |node, left| {
                (dial.0)(node, left).and_then(connected)
            }))
        };
        options.dial = options.dial.map(dial);
        let resort = |resort: LastResort| {
            LastResort(Arc::new(move |without| {
                resort.0.clone().connect(without).and_then(connected)
            }))
        };
        options.last_resort = options.last_resort.map(resort);
        options.fill = theirs::fill;
        options.witness = options
            .witness
            .map(|witness| Witness(Arc::new(move |instance| own_end(&witness, instance))));
        Ok(Export {
            remote: Remote::new(options).map_err(|_| Errno::IO)?,
        })
    }

    /// Its root, for the user that we are now.
    pub fn root(&self) -> Result<File, Errno> {
        self.remote.root(uid())
    }

    /// Clients of ours are no more.
    pub fn died(&self, clients: &[Instance]) {
        self.remote.died(uid(), clients);
    }

    /// A file that somebody opened before.
    pub fn reopen(
        &self,
        uid: u32,
        flags: OpenFlags,
        qid: Qid,
        path: &[u8],
        handle: Option<&[u8]>,
    ) -> Result<File, Errno> {
        self.remote.reopen(uid, flags, qid, path, handle)
    }
}

fn connected(socket: Connected) -> std::io::Result<Connected> {
    if is_guest() {
        page().stale.store(true, Relaxed);
    }
    Ok(Box::new(own::take(socket)?))
}

/// A guest ends before whose memory this is, and that one's locks must not end with it.
fn own_end(witness: &Witness, instance: Instance) -> std::io::Result<()> {
    match is_guest() {
        true => Err(std::io::ErrorKind::Unsupported.into()),
        false => (witness.0)(instance),
    }
}

/// What `stat` gives as the device of an export.
pub fn device(export: usize) -> u64 {
    FIRST_DEVICE + export as u64
}

/// As whom files are opened and made.
pub fn uid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// The group of what is made.
pub fn gid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::getegid() }
}

/// The mask of what is made, plus one; 0 if it is not known.
static UMASK: AtomicU32 = AtomicU32::new(0);

/// The bits that are not given to what is made. The kernel tells only who changes it, or reads a long text.
pub fn umask() -> u32 {
    let guest = is_guest();
    match UMASK.load(Relaxed) {
        known @ 1.. if !guest => known - 1,
        _ => {
            let mask = read_umask();
            if !guest {
                UMASK.store(mask + 1, Relaxed);
            }
            mask
        }
    }
}

fn read_umask() -> u32 {
    let text = std::fs::read("/proc/thread-self/status").unwrap_or_default();
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"Umask:"));
    let digits = line.and_then(|line| std::str::from_utf8(line.trim_ascii()).ok());
    digits
        .and_then(|digits| u32::from_str_radix(digits, 8).ok())
        .unwrap_or(0o022)
}

hooks! {
    fn umask(mask: mode_t) -> mode_t = |real| {
        let old = real();
        if !is_guest() {
            UMASK.store((mask & 0o777) + 1, Relaxed);
        }
        old
    };
}

unsafe extern "C" {
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn _IO_list_resetlock();
}

gates! {
    /// What a fork that is going on carries over. Only the thread that forks looks at it, while it holds the gates.
    static CARRIED: Option<fd::Carried> = Table, None;
    /// Of which nodes this process was handed locks: by export and file, for when it connects.
    static BEGINNINGS: Vec<(usize, Qid, usize)> = Table, Vec::new();
}

/// These locks are handed on: whoever gets them begins at their nodes, since a lock is had again only from the one that gave it.
pub fn begin_at(locks: &[fd::Handed]) {
    let _ = guarded(|| {
        let nodes = locks.iter().filter_map(|lock| {
            let open = table::get(lock.fd)?;
            Some((open.export, open.qid, lock.node?))
        });
        let nodes: Vec<_> = nodes.collect();
        drop(BEGINNINGS.with(|all| std::mem::replace(all, nodes)));
        Ok(())
    });
}

/// Who flushes all streams holds the C library's list of them when it comes to a gate of ours; the C library itself, in a fork,
/// takes the list behind our gates. So it is taken here first, which it may be twice.
///
/// None of these is interrupted: a signal handler would wait for ever for a gate that the thread under it is about to open.
extern "C" fn fork_begins() {
    let _quiet = Quiet::begin();
    // SAFETY: no arguments; it is given back below.
    unsafe { _IO_list_lock() };
    // This talks to nobody, but takes locks that others hold while they do.
    let locks = fd::carried();
    begin_at(&locks);
    gate::close_all();
    let carried = (!locks.is_empty()).then(|| fd::Carried::new(locks));
    CARRIED.with(|place| *place = carried);
}

extern "C" fn fork_over_here() {
    let _quiet = Quiet::begin();
    let carried = CARRIED.with(Option::take);
    let given = carried.and_then(fd::Carried::given);
    gate::open_all();
    // SAFETY: taken above.
    unsafe { _IO_list_unlock() };
    if let Some(given) = given {
        given.wait();
    }
}

extern "C" fn fork_over_there() {
    let _quiet = Quiet::begin();
    let carried = CARRIED.with(Option::take);
    gate::open_all();
    // SAFETY: no other thread is there. The C library has done this by now, but only if there were others before.
    unsafe { _IO_list_resetlock() };
    let _ = guarded(|| {
        settle();
        Ok(())
    });
    if let Some(carried) = carried {
        carried.take();
    }
}
