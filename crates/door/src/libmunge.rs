//! libmunge, loaded when it is asked for: all of this crate's `unsafe`.

#![allow(unsafe_code, reason = "this is where the crate faces C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// libmunge's functions; its contexts are pointers to what only it knows.
pub struct MungeLibrary {
    create: unsafe extern "C" fn() -> *mut c_void,
    set: unsafe extern "C" fn(*mut c_void, c_int, ...) -> c_int,
    destroy: unsafe extern "C" fn(*mut c_void),
    decode: MungeDecode,
    explain: unsafe extern "C" fn(c_int) -> *const c_char,
}

type MungeDecode = unsafe extern "C" fn(
    *const c_char,
    *mut c_void,
    *mut *mut c_void,
    *mut c_int,
    *mut libc::uid_t,
    *mut libc::gid_t,
) -> c_int;

/// What libmunge says of a credential that it does not take.
#[derive(Debug)]
pub struct MungeError {
    /// Its number.
    pub code: i32,
    /// In words.
    pub text: String,
}

/// The option of a context that says where the daemon listens: MUNGE_OPT_SOCKET.
const MUNGE_SOCKET: c_int = 8;

impl MungeLibrary {
    /// Loads the library, which then stays.
    pub fn load() -> Result<MungeLibrary, String> {
        // SAFETY: the name ends with a NUL; what the library does when it is loaded is to set up its own memory.
        let handle = unsafe { libc::dlopen(c"libmunge.so.2".as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err("libmunge.so.2 cannot be loaded".to_owned());
        }
        let find = |name: &CStr| {
            // SAFETY: the handle is of a library that stays loaded, and the name ends with a NUL.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            match found.is_null() {
                true => Err(format!("libmunge.so.2 has no {}", name.to_string_lossy())),
                false => Ok(found),
            }
        };
        let create = find(c"munge_ctx_create")?;
        let set = find(c"munge_ctx_set")?;
        let destroy = find(c"munge_ctx_destroy")?;
        let decode = find(c"munge_decode")?;
        let explain = find(c"munge_strerror")?;
        // SAFETY: each is the function of that name in version 2 of the library, whose header declares it so; none is
        // null, and they stay as long as the library does.
        Ok(unsafe {
            MungeLibrary {
                create: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_void>(
                    create,
                ),
                set: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, c_int, ...) -> c_int,
                >(set),
                destroy: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(
                    destroy,
                ),
                decode: std::mem::transmute::<*mut c_void, MungeDecode>(decode),
                explain: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int) -> *const c_char,
                >(explain),
            }
        })
    }

    /// The uid and gid of whom a credential was made for, as the daemon at `socket` says, or the one at the usual place.
    pub fn decode(
        &self,
        socket: Option<&CStr>,
        credential: &CStr,
    ) -> Result<(u32, u32), MungeError> {
        // SAFETY: it takes nothing, and gives a context or null.
        let context = unsafe { (self.create)() };
        if context.is_null() {
            return Err(self.error(5));
        }
        let (mut uid, mut gid) = (u32::MAX, u32::MAX);
        let code = match socket {
            // SAFETY: the context is alive, and this option takes a text, which is copied.
            Some(socket) => unsafe { (self.set)(context, MUNGE_SOCKET, socket.as_ptr()) },
            None => 0,
        };
        let code = match code {
            // SAFETY: the credential ends with a NUL, the context is alive, the payload is not asked for, and the two
            // numbers are ours.
            0 => unsafe {
                (self.decode)(
                    credential.as_ptr(),
                    context,
                    ptr::null_mut(),
                    ptr::null_mut(),
                    &raw mut uid,
                    &raw mut gid,
                )
            },
            failed => failed,
        };
        // SAFETY: the context is alive, and not used after this.
        unsafe { (self.destroy)(context) };
        match code {
            0 => Ok((uid, gid)),
            code => Err(self.error(code)),
        }
    }

    fn error(&self, code: c_int) -> MungeError {
        // SAFETY: it takes any number, and gives a constant text or null.
        let text = unsafe { (self.explain)(code) };
        let text = match text.is_null() {
            true => format!("error {code}"),
            // SAFETY: it is not null: a constant text that ends with a NUL.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        };
        MungeError { code, text }
    }
}
