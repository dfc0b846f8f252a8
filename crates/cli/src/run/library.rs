//! Where libpresagio.so is, and how a command gets it.

use crate::failure::failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NAME: &str = "libpresagio.so";

/// The library that has the manager in it: beside the other.
const INSIDE: &str = "libpresagio_inside.so";

/// The library that serves what is forwarded: beside the other.
const DIVERT: &str = "libpresagio_divert.so";

/// Names the library, where it is not beside the command.
const VARIABLE: &str = "PRESAGIO_LIB";

/// The loader's list of libraries.
const PRELOAD: &str = "LD_PRELOAD";

/// Options of the address sanitizer. A program that is built with it refuses to start with a library that was loaded before
/// its own, unless it is told not to look. It works with ours all the same: what we pass on, it gets.
const SANITIZER: &str = "ASAN_OPTIONS";
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// The library that watches from inside.
#[derive(Debug)]
pub struct Preload {
    library: PathBuf,
}

impl Preload {
    /// Finds the library: where `PRESAGIO_LIB` says, beside this program, or in lib or lib64 above it.
    pub fn find() -> anyhow::Result<Preload> {
        let named = std::env::var_os(VARIABLE).map(PathBuf::from);
        let library = match named {
            Some(path) => Some(path).filter(|path| path.is_file()),
            None => std::env::current_exe().ok().and_then(|exe| beside(&exe)),
        };
        let Some(library) = library.and_then(|path| path.canonicalize().ok()) else {
            let what = format!("{NAME} is not where it should be");
            let cause = "it lies neither beside presagio nor in ../lib or ../lib64";
            return Err(failure(
                what,
                cause,
                "name it with PRESAGIO_LIB, or build it with `cargo build --release`",
            ));
        };
        // The loader's list is divided by both.
        if library
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| b" :".contains(b))
        {
            let what = format!("{} cannot be preloaded", library.display());
            let cause = "the loader takes no path with a space or a colon";
            return Err(failure(
                what,
                cause,
                "put it elsewhere, and name it with PRESAGIO_LIB",
            ));
        }
        Ok(Preload { library })
    }

    /// Puts library and address into the environment of what is started next.
    pub fn enter(&self, address: &OsStr) {
        let list = listed(std::env::var_os(PRELOAD), &self.library);
        // SAFETY: this process has one thread.
        unsafe {
            std::env::set_var(SANITIZER, any_order(std::env::var_os(SANITIZER)));
            std::env::set_var(PRELOAD, list);
            std::env::set_var(presagio_arena::VARIABLE, address);
        }
    }

    /// Puts both libraries into the environment of what is started next, and the directory of this run. The manager's is
    /// the second: the loader starts them from the last to the first, and it has to be there before it is looked for.
    pub fn enter_inside(&self, directory: &Path) -> anyhow::Result<()> {
        let inside = self.beside(INSIDE)?;
        let list = listed(std::env::var_os(PRELOAD), &self.library);
        // SAFETY: this process has one thread.
        unsafe {
            std::env::set_var(SANITIZER, any_order(std::env::var_os(SANITIZER)));
            std::env::set_var(PRELOAD, listed(Some(list), &inside));
            std::env::set_var(presagio_arena::VARIABLE, presagio_arena::NO_ADDRESS);
            std::env::set_var(presagio_arena::INSIDE, directory);
        }
        Ok(())
    }

    /// Puts the library that serves what is forwarded behind the others, and what it has to know.
    pub fn enter_divert(&self, forwarded: &OsStr) -> anyhow::Result<()> {
        let divert = self.beside(DIVERT)?;
        let list = listed(std::env::var_os(PRELOAD), &divert);
        // SAFETY: this process has one thread.
        unsafe {
            std::env::set_var(SANITIZER, any_order(std::env::var_os(SANITIZER)));
            std::env::set_var(PRELOAD, list);
            std::env::set_var(presagio_forward::switchboard::VARIABLE, forwarded);
        }
        Ok(())
    }

    /// Another library, which lies beside the first.
    fn beside(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.library.with_file_name(name);
        if !path.is_file() {
            let what = format!("{name} is not where it should be");
            let cause = format!("it does not lie beside {}", self.library.display());
            let advice = "build it with `cargo build --release`";
            return Err(failure(what, cause, advice));
        }
        Ok(path)
    }

    /// The same for a person's shell, line by line.
    pub fn exports(&self, address: &str) -> String {
        let list = listed(std::env::var_os(PRELOAD), &self.library);
        format!(
            "export {PRELOAD}={}\nexport {SANITIZER}={}\nexport {}={address}\n",
            quoted(&list.to_string_lossy()),
            quoted(&any_order(std::env::var_os(SANITIZER)).to_string_lossy()),
            presagio_arena::VARIABLE
        )
    }
}

/// As a shell reads it, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The list with the library in it: behind what is there, since that was there first.
fn listed(before: Option<OsString>, library: &Path) -> OsString {
    let Some(mut list) = before.filter(|list| !list.is_empty()) else {
        return library.into();
    };
    let mut entries = list.as_bytes().split(|b| b" :".contains(b));
    if !entries.any(|entry| entry == library.as_os_str().as_bytes()) {
        list.push(":");
        list.push(library);
    }
    list
}

/// The sanitizer's options with ours in front, where the user's own have the last word.
fn any_order(before: Option<OsString>) -> OsString {
    let mut options = OsString::from(ANY_ORDER);
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        if before.as_bytes().starts_with(ANY_ORDER.as_bytes()) {
            return before;
        }
        options.push(":");
        options.push(before);
    }
    options
}

fn beside(exe: &Path) -> Option<PathBuf> {
    let here = exe.parent()?;
    let above = here.parent().unwrap_or(here);
    let places = [
        here.to_owned(),
        above.join("lib"),
        above.join("lib64"),
        above.join("lib/presagio"),
    ];
    places
        .into_iter()
        .map(|place| place.join(NAME))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_path_as_it_is() {
        let path = r#"/it's $HOME "here"\x.so"#;
        let script = format!("printf %s {}", quoted(path));
        let shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .output();
        assert_eq!(shell.unwrap().stdout, path.as_bytes());
    }

    #[test]
    fn options_of_the_sanitizer_are_kept_and_ours_is_given_once() {
        let ours = any_order(None);
        assert_eq!(ours, ANY_ORDER);
        let both = any_order(Some("detect_leaks=0".into()));
        assert_eq!(both, "verify_asan_link_order=0:detect_leaks=0");
        assert_eq!(any_order(Some(both.clone())), both);
    }

    #[test]
    fn the_library_comes_behind_what_is_preloaded_already_and_only_once() {
        let library = Path::new("/x/libpresagio.so");
        assert_eq!(listed(None, library), "/x/libpresagio.so");
        assert_eq!(listed(Some("".into()), library), "/x/libpresagio.so");
        let both = listed(Some("/a.so /b.so".into()), library);
        assert_eq!(both, "/a.so /b.so:/x/libpresagio.so");
        assert_eq!(listed(Some(both.clone()), library), both);
    }
}
