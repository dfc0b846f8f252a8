//! The modules (program and libraries) that code can be in, what identifies each in every run, and where their
//! unwinding tables are.

use crate::{mix, sys};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::{AtomicU32, Ordering};

const MODULES_MAX: usize = 1024;
const BUILD_ID_MAX: usize = 32;
/// The longest name of a module.
pub const NAME_MAX: usize = 200;

/// A module as it was when its code was first met. It stays readable after the module was unloaded.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    code: Extent,
    base: u64,
    identity: u64,
    build_id: Text<BUILD_ID_MAX>,
    name: Text<NAME_MAX>,
}

impl Module {
    /// The path that it was loaded from; only its end where it is very long. The kernel is asked for that of the program itself,
    /// which is put into `room`: that takes longer than all the rest.
    pub fn name<'a>(&'a self, room: &'a mut [u8; NAME_MAX]) -> &'a [u8] {
        match self.name.bytes() {
            [] => sys::read_link(c"/proc/self/exe", room),
            known => known,
        }
    }

    /// The build id that the linker gave it; empty if none.
    pub fn build_id(&self) -> &[u8] {
        self.build_id.bytes()
    }

    /// What stands for it in contexts: a hash of the build id or, where it has none, of the file's name.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// The distance of an address from where the module was loaded: the address that tools such as `addr2line` want.
    pub(crate) fn offset(&self, pc: u64) -> u64 {
        pc.wrapping_sub(self.base)
    }

    fn is(&self, image: &Image) -> bool {
        (self.code, self.base, self.identity) == (image.code, image.base, image.identity)
    }

    fn overlaps(&self, image: &Image) -> bool {
        self.code.0 < image.code.1 && image.code.0 < self.code.1
    }
}

/// Some bytes, without allocation.
#[derive(Clone, Copy, Debug)]
struct Text<const MAX: usize> {
    bytes: [u8; MAX],
    length: usize,
}

impl<const MAX: usize> Text<MAX> {
    /// The last `MAX` of these bytes.
    fn end_of(from: &[u8]) -> Text<MAX> {
        let kept = &from[from.len().saturating_sub(MAX)..];
        let mut bytes = [0; MAX];
        bytes[..kept.len()].copy_from_slice(kept);
        Text {
            bytes,
            length: kept.len(),
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

const FREE: u32 = 0;
const LOADED: u32 = 1;
const GONE: u32 = 2;

struct Slot {
    state: AtomicU32,
    module: UnsafeCell<MaybeUninit<Module>>,
}

/// All modules met so far. Numbers are given in order and never again. Two threads that meet a module at the same
/// time may give it two numbers: names of contexts depend on its identity alone.
#[repr(C)]
pub(crate) struct Modules {
    claimed: AtomicU32,
    slots: [Slot; MODULES_MAX],
}

// SAFETY: a slot's module is written once, by the thread that claimed its number, before its state says so.
unsafe impl Sync for Modules {}

impl Modules {
    /// The bytes that so many modules take.
    pub(crate) const fn size_of_first(count: usize) -> usize {
        core::mem::offset_of!(Modules, slots) + count * size_of::<Slot>()
    }

    /// The module of this number.
    pub(crate) fn get(&self, number: u16) -> Option<&Module> {
        let slot = self.slots.get(usize::from(number))?;
        if slot.state.load(Ordering::Acquire) == FREE {
            return None;
        }
        // SAFETY: written before the state, and never again.
        Some(unsafe { (*slot.module.get()).assume_init_ref() })
    }

    /// The number of the module that this image shows, `None` if there are too many; and whether another module
    /// was found to be gone, since this one lies where it was.
    pub(crate) fn number(&self, image: &Image) -> (Option<u16>, bool) {
        let mut displaced = false;
        for number in 0..self.len() {
            let Some(module) = self.loaded(number) else {
                continue;
            };
            if module.is(image) {
                return (Some(number), displaced);
            }
            if module.overlaps(image) {
                self.slots[usize::from(number)]
                    .state
                    .store(GONE, Ordering::Release);
                displaced = true;
            }
        }
        (self.add(image), displaced)
    }

    fn len(&self) -> u16 {
        self.claimed.load(Ordering::Relaxed).min(MODULES_MAX as u32) as u16
    }

    fn loaded(&self, number: u16) -> Option<&Module> {
        let module = self.get(number)?;
        let state = self.slots[usize::from(number)]
            .state
            .load(Ordering::Relaxed);
        (state == LOADED).then_some(module)
    }

    fn add(&self, image: &Image) -> Option<u16> {
        // Once full, the counter stands still: it must not come round.
        let next = |claimed| ((claimed as usize) < MODULES_MAX).then_some(claimed + 1);
        let number = self
            .claimed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()?;
        let slot = &self.slots[number as usize];
        // SAFETY: the number was given to us alone, and nobody reads before the state changes.
        unsafe { (*slot.module.get()).write(image.module()) };
        slot.state.store(LOADED, Ordering::Release);
        Some(number as u16)
    }
}

/// What lies at an address at this moment. It refers to the module's memory, so it is good only as long as the
/// module stays loaded: while a call that returns into it is under way.
pub(crate) struct Image {
    /// The segment that holds the address. (Between the segments of a module there may be another module.)
    code: Extent,
    base: u64,
    name: *const c_char,
    build_id: &'static [u8],
    pub(crate) identity: u64,
    pub(crate) tables: Option<Tables>,
}

impl Image {
    /// The image that holds the code at this address.
    pub(crate) fn at(pc: u64) -> Option<Image> {
        match finder() {
            Some(find) => Image::found(find, pc),
            None => Image::searched(pc),
        }
    }

    /// The distance of an address from where the image was loaded.
    pub(crate) fn offset(&self, pc: u64) -> u64 {
        pc.wrapping_sub(self.base)
    }

    /// By `_dl_find_object`.
    fn found(find: FindObject, pc: u64) -> Option<Image> {
        let mut found = MaybeUninit::<Found>::zeroed();
        // SAFETY: the structure is the one of <dlfcn.h>; on success it describes a loaded module, whose first bytes
        // are its ELF header.
        unsafe {
            if find(pc as *const c_void, found.as_mut_ptr()) != 0 {
                return None;
            }
            let found = found.assume_init();
            let map = found.link_map.as_ref()?;
            Image::new(pc, map.address, map.name, program_headers(found.start))
        }
    }

    /// By `dl_iterate_phdr`, for C libraries that have nothing better. It takes a lock of the loader.
    fn searched(pc: u64) -> Option<Image> {
        let mut search = Search { pc, image: None };
        // SAFETY: the callback gets the search back, while this call lasts.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        search.image
    }

    /// `None` if the address is not in the module after all.
    ///
    /// # Safety
    /// The headers describe a module that is loaded.
    unsafe fn new(
        pc: u64,
        base: u64,
        name: *const c_char,
        headers: &'static [libc::Elf64_Phdr],
    ) -> Option<Image> {
        let code = segment(base, headers, libc::PF_X, (pc, pc))?;
        // SAFETY: as the caller promises.
        let build_id = unsafe { build_id(base, headers) };
        let tables = Tables::of(base, headers);
        let mut image = Image {
            code,
            base,
            name,
            build_id,
            identity: 0,
            tables,
        };
        image.identity = match build_id {
            [] => mix::bytes(file_name(image.module().name(&mut [0; NAME_MAX]))),
            known => mix::bytes(known),
        };
        Some(image)
    }

    /// The path, which the loader does not know for the program itself.
    fn path(&self) -> &[u8] {
        if self.name.is_null() {
            return &[];
        }
        // SAFETY: the loader keeps the name as long as the module is loaded.
        unsafe { CStr::from_ptr(self.name) }.to_bytes()
    }

    fn module(&self) -> Module {
        Module {
            code: self.code,
            base: self.base,
            identity: self.identity,
            build_id: Text::end_of(self.build_id),
            name: Text::end_of(self.path()),
        }
    }
}

/// Where an image has its unwinding tables: the search table, and the end of the readable memory around it, which holds
/// the entries too.
pub(crate) struct Tables {
    header: &'static [u8],
    segment: Extent,
}

impl Tables {
    fn of(base: u64, headers: &'static [libc::Elf64_Phdr]) -> Option<Tables> {
        let header = headers
            .iter()
            .find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?;
        let start = base.wrapping_add(header.p_vaddr);
        let segment = segment(base, headers, libc::PF_R, (start, start))?;
        let length = header.p_memsz.min(segment.1 - start) as usize;
        // SAFETY: inside a segment that the loader mapped readable.
        let header = unsafe { slice::from_raw_parts(start as *const u8, length) };
        Some(Tables { header, segment })
    }

    /// The search table.
    pub(crate) fn header(&self) -> &'static [u8] {
        self.header
    }

    /// Everything from this address to the end of the segment.
    pub(crate) fn from(&self, start: u64) -> Option<&'static [u8]> {
        let (from, to) = self.segment;
        // SAFETY: inside a segment that the loader mapped readable.
        (from <= start && start < to)
            .then(|| unsafe { slice::from_raw_parts(start as *const u8, (to - start) as usize) })
    }
}

/// First address, and the one after the last.
type Extent = (u64, u64);

/// The addresses that a program header describes.
fn extent(base: u64, header: &libc::Elf64_Phdr) -> Extent {
    let start = base.wrapping_add(header.p_vaddr);
    (start, start.saturating_add(header.p_memsz))
}

/// The segment of a module that holds these addresses and has this permission.
fn segment(base: u64, headers: &[libc::Elf64_Phdr], flag: u32, held: Extent) -> Option<Extent> {
    let loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & flag != 0);
    loaded
        .map(|header| extent(base, header))
        .find(|&(from, to)| from <= held.0 && held.0 < to && held.1 <= to)
}

/// The program headers of a module that is loaded at `start`.
///
/// # Safety
/// A module is loaded there.
unsafe fn program_headers(start: u64) -> &'static [libc::Elf64_Phdr] {
    // SAFETY: a module begins with a page at least.
    let header = unsafe { &*(start as *const libc::Elf64_Ehdr) };
    if header.e_ident[..4] != *b"\x7fELF"
        || usize::from(header.e_phentsize) != size_of::<libc::Elf64_Phdr>()
    {
        return &[];
    }
    // SAFETY: the loader itself reads them there.
    unsafe {
        slice::from_raw_parts(
            (start + header.e_phoff) as *const libc::Elf64_Phdr,
            header.e_phnum.into(),
        )
    }
}

const NOTE_HEAD: usize = 12;
const BUILD_ID_NOTE: u32 = 3;

/// The build id among the notes of a module.
///
/// # Safety
/// The headers describe a module that is loaded.
unsafe fn build_id(base: u64, headers: &[libc::Elf64_Phdr]) -> &'static [u8] {
    let notes = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE)
        .map(|header| extent(base, header))
        .filter(|&held| segment(base, headers, libc::PF_R, held).is_some());
    let mut found = notes.filter_map(|(start, end)| {
        // SAFETY: as the caller promises, and loaded as just seen.
        build_id_in(unsafe { slice::from_raw_parts(start as *const u8, (end - start) as usize) })
    });
    found.next().unwrap_or(&[])
}

/// Notes follow one another: three words (length of the name, length of the content, kind), name, content, both
/// filled up to four bytes.
fn build_id_in(mut notes: &'static [u8]) -> Option<&'static [u8]> {
    loop {
        let word = |at: usize| {
            notes
                .get(at..at + 4)?
                .try_into()
                .map(u32::from_ne_bytes)
                .ok()
        };
        let (name_length, length, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let content = NOTE_HEAD + name_length.next_multiple_of(4);
        let after = content + length.next_multiple_of(4);
        if kind == BUILD_ID_NOTE && notes.get(NOTE_HEAD..NOTE_HEAD + name_length)? == b"GNU\0" {
            return notes.get(content..content + length.min(BUILD_ID_MAX));
        }
        notes = notes.get(after..)?;
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// `struct link_map` of <link.h>, as far as needed.
#[repr(C)]
struct LinkMap {
    address: u64,
    name: *const c_char,
}

/// `struct dl_find_object` of <dlfcn.h>.
#[repr(C)]
struct Found {
    flags: u64,
    start: u64,
    end: u64,
    link_map: *const LinkMap,
    unwinding: *const c_void,
    reserved: [u64; 8],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut Found) -> c_int;

// A weak reference to the loader's function: null where the C library does not have it. (Asking `dlsym` would take the
// loader's lock, which another thread may hold while it waits for us.)
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".weak _dl_find_object",
    ".pushsection .data.rel.ro.presagio_stack_finder,\"aw\",@progbits",
    ".balign 8",
    ".hidden presagio_stack_finder",
    ".globl presagio_stack_finder",
    "presagio_stack_finder: .quad _dl_find_object",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
fn finder() -> Option<FindObject> {
    unsafe extern "C" {
        static presagio_stack_finder: Option<FindObject>;
    }
    // SAFETY: the word above, which the loader filled in.
    unsafe { presagio_stack_finder }
}

#[cfg(not(target_arch = "x86_64"))]
fn finder() -> Option<FindObject> {
    None
}

struct Search {
    pc: u64,
    image: Option<Image>,
}

/// Called for each loaded module, until one holds the address.
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description of a loaded module, and the search that was passed along.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: as above.
    let headers: &'static [libc::Elf64_Phdr] =
        unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // SAFETY: as above.
    search.image = unsafe { Image::new(search.pc, info.dlpi_addr, info.dlpi_name, headers) };
    search.image.is_some().into()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn facts(image: &Image) -> (u64, u64, &'static [u8], *const u8, usize) {
        let header = image.tables.as_ref().expect("unwinding tables").header();
        (
            image.base,
            image.identity,
            image.build_id,
            header.as_ptr(),
            header.len(),
        )
    }

    #[test]
    fn both_ways_to_find_a_module_agree() {
        let Some(find) = finder() else { return };
        for pc in [
            facts as *const () as u64,
            libc::qsort as *const () as u64,
            libc::dl_iterate_phdr as *const () as u64,
        ] {
            let (found, searched) = (
                Image::found(find, pc).unwrap(),
                Image::searched(pc).unwrap(),
            );
            assert_eq!(facts(&found), facts(&searched));
        }
        assert!(Image::found(find, 8).is_none() && Image::searched(8).is_none());
    }

    #[test]
    fn a_module_is_known_by_its_name_and_build_id() {
        let image = Image::at(libc::qsort as *const () as u64).unwrap();
        let module = image.module();
        let mut room = [0; NAME_MAX];
        assert!(module.name(&mut room).ends_with(b"libc.so.6"), "{module:?}");
        assert_eq!(module.build_id().len(), 20);
        assert_eq!(module.identity(), mix::bytes(module.build_id()));
        let program = Image::at(facts as *const () as u64).unwrap().module();
        assert!(
            file_name(program.name(&mut room)).starts_with(b"presagio_stack"),
            "{program:?}"
        );
    }

    #[test]
    fn a_build_id_is_found_after_other_notes_and_not_in_broken_ones() {
        let notes = b"\x04\0\0\0\x05\0\0\0\x01\0\0\0GNU\0abcde\0\0\0\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0xyz\0";
        assert_eq!(build_id_in(notes), Some(&b"xyz"[..]));
        for length in 0..notes.len() - 1 {
            assert_eq!(build_id_in(&notes[..length]), None, "cut to {length} bytes");
        }
        assert_eq!(build_id_in(&[0xff; 64]), None);
    }
}
