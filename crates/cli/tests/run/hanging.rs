//! Storage that does not answer keeps nobody from going on who does not use it, and nobody from ending.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// A directory that is mounted once more, by a process that can be stopped.
struct Mount {
    front: PathBuf,
    daemon: Child,
    is_over: Arc<AtomicBool>,
}

impl Mount {
    fn new(place: &Place) -> Option<Mount> {
        let [behind, front] = ["behind", "front"].map(|name| place.path(name));
        for dir in [&behind, &front] {
            fs::create_dir(dir).unwrap();
        }
        fs::copy(place.path("in"), behind.join("data")).unwrap();
        // Who is stopped cannot say that nothing has changed.
        let options = "attr_timeout=3600,entry_timeout=3600,kernel_cache";
        let mut bindfs = Command::new("bindfs");
        bindfs.args(["-f", "-o", options]).args([&behind, &front]);
        let daemon = bindfs.stderr(Stdio::null()).spawn().ok()?;
        let mut mount = Mount {
            front,
            daemon,
            is_over: Arc::default(),
        };
        while !mount.data().exists() {
            if mount.daemon.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(mount)
    }

    fn data(&self) -> PathBuf {
        self.front.join("data")
    }

    /// It may be stopped from here on. Should nothing go on without it, it is woken after a long time; whether it was.
    fn may_stop(&self) -> Arc<AtomicBool> {
        let (woken, is_over) = (Arc::new(AtomicBool::new(false)), self.is_over.clone());
        let (told, daemon) = (woken.clone(), self.daemon.id() as i32);
        std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_secs(60);
            while Instant::now() < until && !is_over.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            if !is_over.load(SeqCst) {
                told.store(true, SeqCst);
                // SAFETY: no memory involved; a child of ours, and whoever ends it says so first.
                unsafe { libc::kill(daemon, libc::SIGCONT) };
            }
        });
        woken
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        signal(&self.daemon, "-CONT");
        let _ = Command::new("umount").arg("-l").arg(&self.front).status();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn a_run_goes_on_and_ends_with_its_summary_while_storage_hangs() {
    let place = Place::new("hanging");
    let Some(mount) = Mount::new(&place) else {
        return skipped("nothing can be mounted with bindfs here");
    };
    // What is read below is in memory: only to open the file anew, and to close it, somebody has to answer.
    drop(fs::read(mount.data()).unwrap());
    let hangs = "exec 3< front/data; kill -STOP $DAEMON; head -c 100 <&3 > beginning";
    let goes_on = "n=0; until [ -s beginning ] || [ $n = 9000 ]; do n=$((n + 1)); sleep 0.01; done; cat in > copy";
    let script = format!("({hangs}) > /dev/null 2>&1 & {goes_on}");
    let mut run = place.run(&["--json", "s.json"], &["sh", "-c", &script]);
    let run = run.env("DAEMON", mount.daemon.id().to_string());
    let woken = mount.may_stop();
    let ended = Ended::of(run.output().unwrap()).ok();
    assert!(!woken.load(SeqCst), "it hung, too: {ended:?}");
    assert!(ended.err.contains("presagio: "), "{ended:?}");
    assert!(!ended.err.contains("no summary"), "{ended:?}");
    let json = fs::read_to_string(place.path("s.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let read = json["totals"]["bytes_read"].as_u64().unwrap();
    assert!(read > 3 * MIB as u64, "{json:#}");
    assert_eq!(
        fs::read(place.path("copy")).unwrap(),
        fs::read(place.path("in")).unwrap()
    );
}
