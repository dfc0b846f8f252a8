//! What the library finds without asking: the next function of a name, and the path of a file.

#![cfg(target_arch = "x86_64")]

#[path = "../src/next.rs"]
mod next;
#[allow(dead_code)] // what is not asked for here
#[path = "../src/paths.rs"]
mod paths;

use presagio_arena::PATH_MAX;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

fn found(name: &str) -> Option<*mut libc::c_void> {
    let text = CString::new(name).unwrap();
    next::find(&text, next::hash(name.as_bytes()))
}

#[test]
fn the_next_function_of_a_name_is_the_one_that_the_loader_finds() {
    assert!(next::start());
    // Some have several versions, and one has two names.
    let names = "open open64 openat read write close fopen fclose fgets getc _IO_getc posix_spawn execve fork mmap __read_chk \
                 fgetwc vfprintf system popen fsetpos __isoc99_vfscanf preadv64v2 getdelim syscall";
    for name in names.split_whitespace() {
        let text = CString::new(name).unwrap();
        // SAFETY: the name ends with a zero.
        let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, text.as_ptr()) };
        assert_eq!(found(name), Some(expected), "{name}");
    }
    assert_eq!(found("no_such_function_anywhere"), None);
    // Which of them it is, only the loader decides.
    assert_eq!(found("memcpy"), None);
}

fn absolute(at: i32, path: &str) -> Option<String> {
    let mut room = [0; PATH_MAX];
    let path = paths::absolute(at, path.as_bytes(), &mut room)?;
    Some(String::from_utf8_lossy(path).into_owned())
}

#[test]
fn a_clean_path_is_put_behind_the_directory_that_it_starts_at() {
    let here = std::env::current_dir().unwrap();
    let here = here.to_str().unwrap();
    assert_eq!(
        absolute(libc::AT_FDCWD, "./a/.b"),
        Some(format!("{here}/a/.b"))
    );
    assert_eq!(absolute(libc::AT_FDCWD, "/x"), Some("/x".into()));
    let root = std::fs::File::open("/").unwrap();
    assert_eq!(absolute(root.as_raw_fd(), "x"), Some("/x".into()));
    assert_eq!(absolute(libc::AT_FDCWD, &"x".repeat(PATH_MAX)), None);
}

#[test]
fn a_directory_that_was_renamed_is_found_by_its_new_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let (old, new) = (dir.join("old"), dir.join("new"));
    std::fs::create_dir(&old).unwrap();
    let open = std::fs::File::open(&old).unwrap();
    let of = |name: &std::path::Path| Some(name.join("f").to_str().unwrap().to_owned());
    assert_eq!(absolute(open.as_raw_fd(), "f"), of(&old));
    // Times have the kernel's clock tick.
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::rename(&old, &new).unwrap();
    assert_eq!(absolute(open.as_raw_fd(), "f"), of(&new));
}

#[test]
fn a_directory_below_one_that_this_process_renamed_is_found_by_its_new_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let (old, new) = (dir.join("old"), dir.join("new"));
    std::fs::create_dir_all(old.join("sub")).unwrap();
    let open = std::fs::File::open(old.join("sub")).unwrap();
    let of = |name: &std::path::Path| Some(name.join("sub/f").to_str().unwrap().to_owned());
    assert_eq!(absolute(open.as_raw_fd(), "f"), of(&old));
    std::fs::rename(&old, &new).unwrap();
    paths::renamed();
    assert_eq!(absolute(open.as_raw_fd(), "f"), of(&new));
}

#[test]
fn a_path_that_leads_elsewhere_is_left_to_the_kernel() {
    for path in ["a", "./a", "/a/b", ".a", "a/..b", "././a"] {
        assert!(paths::is_clean(path.as_bytes()), "{path}");
    }
    for path in ["", "..", "a/../b", "a//b", "//a", "/a/./b", "a/", "/.."] {
        assert!(!paths::is_clean(path.as_bytes()), "{path}");
    }
}

#[test]
fn a_file_without_a_name_is_told_by_the_one_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("f");
    let file = std::fs::File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let fd = file.as_raw_fd();
    let stat = presagio_arena::sys::status(fd).unwrap();
    let mut room = [0; PATH_MAX];
    let found = paths::of_descriptor(fd, &stat, &mut room);
    assert_eq!(found, Some(path.as_os_str().as_bytes()));
}
