//! A node that chooses its policy: what it decides, what it says of it, and who has the last word.

mod common;

use common::{Exported, rw_file, wait_until};
use presagio_device::Model;
use presagio_ionode::{Address, AutoConfig, Opened};
use presagio_tune::{Chooser, Drive, Trees};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Whatever arrives is one class; writes get SJF, reads MLF.
const TREES: &str = "\
presagio trees 1
tree detection
feature distance: number
feature touching: number
feature reach: number
feature density: number
feature stripe_us: number
feature stripe_turns: number
feature files: number
class contiguous-small
class contiguous-large
class noncontiguous-small
class noncontiguous-large
choose noncontiguous-large (7)
end
tree application
feature operation: read, write
class MLF
class SJF
if operation is read
  choose MLF (3)
if operation is write
  choose SJF (4)
end
";

fn ask(socket: &Path, method: &str, target: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the window is open");
    write!(
        stream,
        "{method} {target} HTTP/1.0\r\nHost: node\r\nContent-Length: 0\r\n\r\n"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (_, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    body.to_owned()
}

#[test]
fn a_node_chooses_by_what_arrives_says_why_and_obeys() {
    let trees = Trees::from_text(TREES).expect("good trees");
    let mut exported = Exported::with(|config| {
        config.auto = Some(AutoConfig {
            chooser: Chooser::new(trees, None),
            period: Duration::from_millis(20),
        });
    });
    let control = exported.outside().join("control");
    let node = exported.node_mut();
    node.open_window(&Address::Unix(control.clone()), Opened::default())
        .expect("a window");
    let status = || -> serde_json::Value {
        serde_json::from_str(&ask(&control, "GET", "/status")).expect("JSON")
    };
    assert_eq!(status()["policy"], "TO-agg", "it begins with the default");
    assert_eq!(status()["auto"]["on"], true);
    let (_session, root) = exported.connect();
    let file = rw_file(&root, "file");
    let block = vec![7; 512];
    let write = || {
        for at in 0..200 {
            assert_eq!(file.write_at(at * 512, &block).expect("written"), 512);
        }
    };
    wait_until("writes are scheduled by SJF", || {
        write();
        status()["policy"] == "SJF"
    });
    let last = status()["auto"]["last"].clone();
    assert_eq!(
        (&last["class"], &last["tree"]),
        (&"noncontiguous-large".into(), &"application".into())
    );
    assert_eq!(last["reason"], "operation write (4 cases)");
    let metrics = ask(&control, "GET", "/metrics");
    assert!(
        metrics.contains("auto_changes_total")
            && metrics.contains("reason=\"operation write (4 cases)\""),
        "{metrics}"
    );

    // By hand: it stays, whatever arrives. Decisions are still made, and seen.
    ask(&control, "POST", "/policy?name=HBRR");
    let before = status()["auto"]["decisions"].as_u64().expect("a count");
    wait_until("more was decided", || {
        write();
        status()["auto"]["decisions"].as_u64() > Some(before + 1)
    });
    assert_eq!(
        (&status()["policy"], &status()["auto"]["on"]),
        (&"HBRR".into(), &false.into())
    );

    ask(&control, "POST", "/policy?name=auto");
    wait_until("reads are scheduled by MLF", || {
        let mut to = vec![0; 512];
        for at in 0..200 {
            file.read_at(at * 512, &mut to).expect("read");
        }
        status()["policy"] == "MLF"
    });
}

#[test]
fn a_node_begins_with_what_suits_its_device() {
    let text = TREES.replace("tree application", "tree T3").replace(
        "feature operation: read, write\n",
        "feature operation: read, write\nfeature ratio: number\n",
    );
    let trees = Trees::from_text(&text).expect("good trees");
    let disk = Drive::new(Model::named("hdd").expect("a preset"));
    let mut exported = Exported::with(|config| {
        config.auto = Some(AutoConfig {
            chooser: Chooser::new(trees, Some(disk)),
            period: Duration::from_secs(3600),
        });
    });
    let control = exported.outside().join("control");
    let node = exported.node_mut();
    node.open_window(&Address::Unix(control.clone()), Opened::default())
        .expect("a window");
    let status = || -> serde_json::Value {
        serde_json::from_str(&ask(&control, "GET", "/status")).expect("JSON")
    };
    // Reads are as likely as writes, and of answers that are as good the first counts.
    wait_until("the device has decided", || status()["policy"] == "MLF");
    let last = status()["auto"]["last"].clone();
    assert_eq!(
        (&last["class"], &last["tree"]),
        (&serde_json::Value::Null, &"T3".into())
    );
    let reason = last["reason"].as_str().expect("a reason");
    assert!(reason.contains("nothing has arrived"), "{reason}");
}

#[test]
fn a_node_that_was_not_asked_to_choose_says_so() {
    let mut exported = Exported::start();
    let control = exported.outside().join("control");
    let node = exported.node_mut();
    node.open_window(&Address::Unix(control.clone()), Opened::default())
        .expect("a window");
    let answer = ask(&control, "POST", "/policy?name=auto");
    assert!(answer.contains("--policy auto"), "{answer}");
    let status: serde_json::Value =
        serde_json::from_str(&ask(&control, "GET", "/status")).expect("JSON");
    assert_eq!(status["auto"], serde_json::Value::Null);
}
