//! The next function of a name: the one that `dlsym(RTLD_NEXT, name)` would find, found without the dynamic loader.
//!
//! A process that lives for ten milliseconds cannot be made to look up two hundred functions when it starts; and to ask the loader
//! later, when one is called, would take its lock, which another thread may hold while it waits for us. So the tables of the
//! modules behind ours are read here, when a function is called for the first time: those up to the C library, which were
//! loaded before the program began and stay as long as it runs. What is out of the ordinary is left to the loader.

use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// `struct link_map` of <link.h>, a module that is loaded.
#[repr(C)]
struct Module {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *mut Module,
}

/// `struct r_debug` of <link.h>, as far as needed.
#[repr(C)]
struct Loaded {
    version: c_int,
    first: *mut Module,
}

/// `Elf64_Dyn` of <elf.h>.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

const END: i64 = 0;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const SONAME: i64 = 14;
const GNU_HASH: i64 = 0x6fff_fef5;
const VERSIONS: i64 = 0x6fff_fff0;

unsafe extern "C" {
    /// The modules of the program, in the order in which the loader looks for symbols.
    static _r_debug: Loaded;
    /// This module's own dynamic section.
    #[link_name = "_DYNAMIC"]
    static OURS: Dynamic;
}

/// This module; null before [`start`], and where it did not find what it looked for.
#[unsafe(link_section = ".data")]
static FIRST: AtomicPtr<Module> = AtomicPtr::new(std::ptr::null_mut());
/// The C library.
#[unsafe(link_section = ".data")]
static LAST: AtomicPtr<Module> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the modules to look in; `false` if they are not where they should be. To be called before the program begins.
#[inline(always)]
pub fn start() -> bool {
    let is_ours = |module: &&Module| std::ptr::eq(module.dynamic, &raw const OURS);
    // SAFETY: the loader's list. Nothing is loaded or unloaded while it runs a module's start.
    let Some(ours) = (unsafe { modules(_r_debug.first) }).find(is_ours) else {
        return false;
    };
    // SAFETY: as above.
    let Some(libc) = (unsafe { modules(ours.next) }).find(|module| module.is_libc()) else {
        return false;
    };
    LAST.store(std::ptr::from_ref(libc).cast_mut(), Relaxed);
    FIRST.store(std::ptr::from_ref(ours).cast_mut(), Release);
    true
}

/// The function of this name, whose [`hash`] this is; `None` if the loader has to be asked.
pub fn find(name: &CStr, hash: u32) -> Option<*mut c_void> {
    // SAFETY: null, or a module that stays.
    let ours = unsafe { FIRST.load(Acquire).as_ref() }?;
    let last = LAST.load(Relaxed).cast_const();
    // SAFETY: modules up to the last one stay, and nothing is put between them.
    for module in unsafe { modules(ours.next) } {
        // SAFETY: it is loaded.
        let function = unsafe { module.tables()?.function(name, hash) };
        match function {
            Function::None if !std::ptr::eq(module, last) => {}
            Function::None | Function::Strange => return None,
            Function::At(value) => return Some((module.base + value) as *mut c_void),
        }
    }
    None
}

/// The hash of a name, as tables have it.
pub const fn hash(name: &[u8]) -> u32 {
    let mut hash = 5381u32;
    let mut rest = name;
    while let [byte @ 1..=u8::MAX, behind @ ..] = rest {
        hash = hash.wrapping_mul(33).wrapping_add(*byte as u32);
        rest = behind;
    }
    hash
}

/// # Safety
///
/// Null, or the loader's description of a module; it and those behind it stay as long as they are looked at.
unsafe fn modules(first: *mut Module) -> impl Iterator<Item = &'static Module> {
    // SAFETY: as the caller vouches.
    let at = |module: *mut Module| unsafe { module.as_ref() };
    std::iter::successors(at(first), move |module| at(module.next))
}

/// What a module has under a name.
enum Function {
    None,
    At(usize),
    /// Something that only the loader understands.
    Strange,
}

/// Where a module's symbols are.
struct Tables {
    hashes: *const u32,
    symbols: *const libc::Elf64_Sym,
    strings: *const c_char,
    /// Null if it has no versions.
    versions: *const u16,
}

impl Module {
    /// What its dynamic section says, 0 if nothing.
    ///
    /// # Safety
    ///
    /// It is loaded.
    unsafe fn get<const N: usize>(&self, tags: [i64; N]) -> [usize; N] {
        let mut values = [0; N];
        let mut entry = self.dynamic;
        // SAFETY: the section ends with an entry that says so.
        unsafe {
            while !entry.is_null() && (*entry).tag != END {
                for (value, tag) in values.iter_mut().zip(tags) {
                    if tag == (*entry).tag {
                        *value = (*entry).value;
                    }
                }
                entry = entry.add(1);
            }
        }
        values
    }

    fn is_libc(&self) -> bool {
        // SAFETY: it is loaded; its name is among its strings.
        unsafe {
            let [strings, name] = self.get([STRINGS, SONAME]);
            strings != 0
                && name != 0
                && CStr::from_ptr((self.at(strings) + name) as *const c_char) == c"libc.so.6"
        }
    }

    /// An address of the dynamic section. Mostly the loader has added the base to it.
    fn at(&self, address: usize) -> usize {
        match address < self.base {
            true => address + self.base,
            false => address,
        }
    }

    /// # Safety
    ///
    /// It is loaded.
    unsafe fn tables(&self) -> Option<Tables> {
        // SAFETY: as the caller vouches.
        let [hashes, symbols, strings, versions] =
            unsafe { self.get([GNU_HASH, SYMBOLS, STRINGS, VERSIONS]) };
        let has_all = hashes != 0 && symbols != 0 && strings != 0;
        has_all.then(|| Tables {
            hashes: self.at(hashes) as *const u32,
            symbols: self.at(symbols) as *const libc::Elf64_Sym,
            strings: self.at(strings) as *const c_char,
            versions: match versions {
                0 => std::ptr::null(),
                _ => self.at(versions) as *const u16,
            },
        })
    }
}

impl Tables {
    /// Looks a name up: a filter of bits, whose words say of most names that they are not here; then a bucket, whose symbols stand
    /// side by side, with their hashes, the last of which is odd.
    ///
    /// # Safety
    ///
    /// The tables of a module that is loaded.
    unsafe fn function(&self, name: &CStr, hash: u32) -> Function {
        // SAFETY: as the loader itself reads them.
        unsafe {
            let head = self.hashes.cast::<[u32; 4]>().read();
            let [buckets, first, words, shift] = head;
            let filter = self.hashes.add(4).cast::<u64>();
            let word = filter.add((hash / 64 % words) as usize).read_unaligned();
            if word >> (hash % 64) & word >> ((hash >> shift) % 64) & 1 == 0 {
                return Function::None;
            }
            let bucket = filter.add(words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut symbol = *bucket.add((hash % buckets) as usize);
            while symbol >= first {
                let other = *chain.add((symbol - first) as usize);
                if (other ^ hash) >> 1 == 0 && self.is(symbol, name) {
                    return self.value(symbol);
                }
                if other & 1 != 0 {
                    break;
                }
                symbol += 1;
            }
            Function::None
        }
    }

    /// Whether a symbol is a definition of this name: the one that programs get which are linked today, where there are
    /// several versions.
    unsafe fn is(&self, symbol: u32, name: &CStr) -> bool {
        const HIDDEN: u16 = 0x8000;
        // SAFETY: a symbol of the table.
        unsafe {
            let entry = &*self.symbols.add(symbol as usize);
            let is_current =
                self.versions.is_null() || *self.versions.add(symbol as usize) & HIDDEN == 0;
            let text = self.strings.add(entry.st_name as usize);
            is_current && entry.st_shndx != 0 && CStr::from_ptr(text) == name
        }
    }

    unsafe fn value(&self, symbol: u32) -> Function {
        const FUNCTION: u8 = 2;
        const GLOBAL: u8 = 1;
        const WEAK: u8 = 2;
        // SAFETY: as above.
        let entry = unsafe { &*self.symbols.add(symbol as usize) };
        let (kind, reach) = (entry.st_info & 0xf, entry.st_info >> 4);
        let is_plain =
            kind == FUNCTION && matches!(reach, GLOBAL | WEAK) && entry.st_other & 3 == 0;
        match is_plain && entry.st_value != 0 {
            true => Function::At(entry.st_value as usize),
            false => Function::Strange,
        }
    }
}
