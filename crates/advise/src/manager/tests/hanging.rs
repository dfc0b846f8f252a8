//! Storage that does not answer: a FUSE file system whose process is stopped. Where there is no bindfs, or where nothing may be
//! mounted, a test says so and ends.

#[path = "../../../../core/tests/common/skips.rs"]
mod skips;

use super::*;
use skips::skipped;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A directory and where it is mounted once more.
struct Mount {
    daemon: Child,
    place: tempfile::TempDir,
    is_over: Arc<AtomicBool>,
}

impl Mount {
    /// With a file of a page, of which all is in memory.
    fn new() -> Option<Mount> {
        let place = directory();
        let [behind, front] = ["behind", "front"].map(|name| place.path().join(name));
        for dir in [&behind, &front] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::write(behind.join("data"), [7; 4096]).unwrap();
        // Who is stopped cannot say that nothing has changed.
        let options = "attr_timeout=3600,entry_timeout=3600,kernel_cache";
        let mut bindfs = Command::new("bindfs");
        bindfs.args(["-f", "-o", options]).args([&behind, &front]);
        let daemon = bindfs.stderr(Stdio::null()).spawn().ok()?;
        let mut mount = Mount {
            daemon,
            place,
            is_over: Arc::default(),
        };
        while !mount.path().exists() {
            if mount.daemon.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(mount)
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("front/data")
    }

    fn send(&self, signal: i32) {
        // SAFETY: no memory involved; a child of ours that was not waited for.
        unsafe { libc::kill(self.daemon.id() as i32, signal) };
    }

    /// Stops it; should nothing go on without it, it is woken after a long time. Whether it was can be asked then.
    fn stop(&self) -> Arc<AtomicBool> {
        self.send(libc::SIGSTOP);
        let (woken, is_over) = (Arc::new(AtomicBool::new(false)), self.is_over.clone());
        let (told, daemon) = (woken.clone(), self.daemon.id() as i32);
        std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_secs(60);
            while Instant::now() < until && !is_over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            if !is_over.load(SeqCst) {
                told.store(true, SeqCst);
                // SAFETY: as above; whoever ends it says so first.
                unsafe { libc::kill(daemon, libc::SIGCONT) };
            }
        });
        woken
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        self.send(libc::SIGCONT);
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.place.path().join("front"))
            .status();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn storage_that_does_not_answer_holds_up_nothing_on_others() {
    let Some(mount) = Mount::new() else {
        return skipped("nothing can be mounted with bindfs here");
    };
    let hanging = File::open(mount.path()).unwrap();
    hanging.read_exact_at(&mut [0; 10], 0).unwrap();
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let began = manager.began;
    let mut stuck = Program::with_file(&manager, &hanging, &mount.path());
    let path = mount.place.path().join("healthy");
    let file = file_on_disk(&path, 1 << 20);
    let mut healthy = Program::with_file(&manager, &file, &path);
    let woken = mount.stop();

    stuck.tell_at(Kind::Operation(Action::Read), began, 0, 10);
    manager.look();
    healthy.tell_at(Kind::Operation(Action::Read), began, 0, 10);
    look_until(&mut manager, || scribe.book().accessed > 0);
    let (number, name) = scribe.book().opened[0].clone();
    assert_eq!(name, path, "the other one was not seen yet");
    scribe.book().says.push(Hint::Load {
        file: number,
        range: Range::at(0, 1 << 20),
        reason: Reason::Exact,
    });
    look_until(&mut manager, || !scribe.book().loaded.is_empty());
    manager.await_looks();
    assert_eq!(manager.finish().totals.read, 20);
    let was_woken = woken.load(SeqCst);
    mount.send(libc::SIGCONT); // to close a file, it has to answer
    assert!(!was_woken, "it hung, too");
}

#[test]
fn files_that_cannot_be_opened_ahead_hold_up_none_on_other_devices() {
    let Some(mount) = Mount::new() else {
        return skipped("nothing can be mounted with bindfs here");
    };
    let hanging = File::open(mount.path()).unwrap();
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let began = manager.began;
    let healthy = mount.place.path().join("healthy");
    let file = file_on_disk(&healthy, 4096);
    let mut programs = [
        Program::with_file(&manager, &hanging, &mount.path()),
        Program::with_file(&manager, &file, &healthy),
    ];
    for program in &mut programs {
        program.tell_at(Kind::Operation(Action::Read), began, 0, 10);
    }
    look_until(&mut manager, || scribe.book().accessed == 2);
    let woken = mount.stop();

    let open_ahead = |path: PathBuf| scribe.book().says.push(Hint::OpenAhead { path });
    let stuck = |n: u32| mount.path().with_file_name(format!("step_{n}"));
    (0..8).for_each(|n| open_ahead(stuck(n)));
    manager.look();
    let next = mount.place.path().join("next");
    std::fs::write(&next, [7; 10]).unwrap();
    open_ahead(next.clone());
    let is_next = |file: &(FileNumber, PathBuf)| file.1 == next;
    look_until(&mut manager, || {
        woken.load(SeqCst) || scribe.book().opened.iter().any(is_next)
    });
    let was_woken = woken.load(SeqCst);
    mount.send(libc::SIGCONT);
    assert!(!was_woken, "it hung, too");
}

#[test]
fn what_happened_while_a_device_was_looked_at_is_told_afterwards_in_its_order() {
    let Some(mount) = Mount::new() else {
        return skipped("nothing can be mounted with bindfs here");
    };
    let file = File::open(mount.path()).unwrap();
    file.read_exact_at(&mut [0; 10], 0).unwrap();
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let began = manager.began;
    let mut program = Program::with_file(&manager, &file, &mount.path());
    mount.stop();
    for offset in 0..3 {
        program.tell_at(Kind::Operation(Action::Read), began + offset, offset, 10);
        manager.look();
    }
    program.tell_at(Kind::Operation(Action::Close), began + 3, 0, 0);
    manager.look();
    assert!(scribe.book().opened.is_empty());
    mount.send(libc::SIGCONT);
    look_until(&mut manager, || scribe.book().closed > 0);
    let book = scribe.book();
    assert_eq!((book.opened.len(), book.accessed, book.closed), (1, 3, 1));
}
