//! The live dashboard in a browser and in a terminal, of a council and of a node alone, while they are switched, killed and started again.

mod common;

use common::nodes::{At, Node, Running, until};
use common::{TempDir, free_port, presagio, presagio_ok};
use presagio_dashboard::UPDATE_EVERY;
use presagio_ninep::OpenFlags;
use presagio_ninep::client::{Client, Options};
use presagio_ninep::session::Session;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A name that would be markup, if anything became that.
const NAME: &str = "io1 <b>\"'&";

/// Reads and writes through a node until somebody says stop, whatever happens to the node meanwhile.
fn load(socket: &Path, stop: &AtomicBool) {
    let block = vec![7; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        let Ok(client) = Client::unix(socket, &Options::default()) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let session = Session::new(client);
        let uid = rustix::process::getuid().as_raw();
        let Ok(root) = session.attach("", "/", uid) else {
            continue;
        };
        let name = format!("load-{:?}", std::thread::current().id());
        let Ok(file) = root.create(&name, OpenFlags::RDWR, 0o600) else {
            continue;
        };
        let mut back = vec![0; block.len()];
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            let place = at * 37 % 64 * block.len() as u64;
            let is_good =
                file.write_at(place, &block).is_ok() && file.read_at(place, &mut back).is_ok();
            if !is_good {
                break;
            }
            at += 1;
        }
    }
}

/// While there is load on a node, does something.
fn under_load<T>(socket: &Path, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| load(socket, &stop));
        }
        // Also where the work panics: or the load would go on for ever.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs the browser's part, and does meanwhile what it asks for.
fn in_a_browser(dir: &Path, url: &str, plan: &Value, mut please: impl FnMut(&str)) {
    let browser = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let path = dir.join("plan.json");
    fs::write(&path, plan.to_string()).expect("a plan");
    let mut child = Command::new("node")
        .arg(browser.join("dashboard.mjs"))
        .arg(url)
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("node is needed: apt-get install nodejs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut errors = child.stderr.take().expect("a pipe");
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    });
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        if let Some(what) = line.strip_prefix("! ") {
            please(what);
            // If it has ended meanwhile, that is seen below.
            let _ = stdin.write_all(b"done\n");
        }
        said.push(line);
    }
    let status = child.wait().expect("it ends");
    let errors = errors.join().expect("read");
    assert!(status.success(), "{errors}\n{}", said.join("\n"));
    println!("{}", said.join("\n"));
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// A council that can be started again, with its dashboard at the same place.
struct Council {
    arguments: Vec<String>,
    port: u16,
    process: Running,
}

impl Council {
    fn start(dir: &Path) -> Council {
        let port = free_port();
        let arguments = [
            "council",
            "--listen",
            &format!("unix:{}", text(&dir.join("council.sock"))),
            "--store",
            &text(&dir.join("store")),
            "--period",
            "0.25",
            "--seed",
            "1",
            "--dashboard",
            &format!("tcp:127.0.0.1:{port}"),
        ]
        .map(str::to_owned)
        .to_vec();
        let process = Running::presagio(None, &arguments);
        let council = Council {
            arguments,
            port,
            process,
        };
        council.listens();
        council
    }

    fn listens(&self) {
        until("the dashboard is there", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn start_again(&mut self) {
        self.process = Running::presagio(None, &self.arguments);
        self.listens();
    }

    fn address(&self) -> String {
        format!("tcp:127.0.0.1:{}", self.port)
    }
}

/// What is shown now, as soon as it answers: a node serves a moment before it does.
fn snapshot(address: &str) -> Value {
    let mut said = None;
    until("it answers", || {
        let asked = presagio(&["top", address, "--json"]);
        said = (asked.code == Some(0)).then(|| asked.json());
        said.is_some()
    });
    said.expect("it answered")
}

/// Whether there is something to look at: situations, and a few samples of the node.
fn is_telling(now: &Value) -> bool {
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    count(&now["chain"]) > 0 && count(&now["nodes"][0]["recent"]) > 2
}

fn socket(node: &Node) -> PathBuf {
    match &node.at {
        At::Unix(path) => path.clone(),
        At::Tcp(_) => unreachable!("nodes of these tests have sockets"),
    }
}

/// A node on an emulated device.
fn node(dir: &Path, more: &[&str]) -> Node {
    let export = dir.join("export");
    fs::create_dir_all(&export).expect("a directory");
    let mut arguments = vec!["--emulate", "ssd", "--depth", "2"];
    arguments.extend(more);
    Node::unix(dir, "node.sock", &export, &arguments)
}

#[test]
fn a_council_is_watched_in_a_browser() {
    let dir = TempDir::new("dashboard-council");
    let dir = Path::new(dir.path());
    let mut council = Council::start(dir);
    let address = format!("unix:{}", text(&dir.join("council.sock")));
    let learns = ["--policy", "adaptive", "--period", "0.25", "--seed", "3"];
    let named = ["--council", &address, "--council-name", NAME];
    let mut node = node(dir, &[&learns[..], &named[..]].concat());
    let control = format!("{}.control", node.at.text());
    let url = format!("http://127.0.0.1:{}/", council.port);
    let plan =
        json!({ "node": NAME, "arms": ["TWINS:3ms", "WFQ"], "council": true, "learns": true });
    let socket = socket(&node);
    under_load(&socket, || {
        until("something is known", || {
            is_telling(&snapshot(&council.address()))
        });
        in_a_browser(dir, &url, &plan, |what| match what {
            "kill" => node.kill(),
            "start" => node.start_again(),
            "kill council" => council.process.kill(),
            "start council" => council.start_again(),
            order => {
                let arm = order.strip_prefix("order ").expect("an order");
                presagio_ok(&["ionode", "policy", arm, &control]);
            }
        });
    });
}

#[test]
fn a_node_alone_shows_itself_and_obeys_who_has_the_token() {
    let dir = TempDir::new("dashboard-node");
    let dir = Path::new(dir.path());
    let token = dir.join("token");
    fs::write(&token, "a token that is long enough\n").expect("a file");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("ours");
    let port = free_port();
    let address = format!("tcp:127.0.0.1:{port}");
    let shows = ["--dashboard", &address, "--dashboard-token", &text(&token)];
    let mut node = node(
        dir,
        &[&shows[..], &["--policy", "adaptive", "--period", "0.25"]].concat(),
    );
    let control = format!("{}.control", node.at.text());
    let socket = socket(&node);
    let mut name = String::new();
    under_load(&socket, || {
        until("something is known", || {
            let now = snapshot(&address);
            name = now["nodes"][0]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            is_telling(&now)
        });
        let plan = json!({ "node": name, "arms": ["TWINS:3ms", "WFQ"], "learns": true, "token": "a token that is long enough" });
        let url = format!("http://127.0.0.1:{port}/");
        in_a_browser(dir, &url, &plan, |what| match what {
            "kill" => node.kill(),
            "start" => node.start_again(),
            order => {
                let arm = order.strip_prefix("order ").expect("an order");
                presagio_ok(&["ionode", "policy", arm, &control]);
            }
        });
    });
}

/// One who watches `/events`, as a browser does.
struct Watcher {
    stream: TcpStream,
    /// What came and was not looked at yet.
    came: Vec<u8>,
}

impl Watcher {
    fn comes(port: u16) -> Watcher {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let asks = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        stream.write_all(asks).expect("sent");
        let came = Vec::new();
        let mut watcher = Watcher { stream, came };
        let head = watcher.until(b"\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        watcher
    }

    /// What comes up to these bytes.
    fn until(&mut self, end: &[u8]) -> String {
        loop {
            let found = self.came.windows(end.len()).position(|it| it == end);
            if let Some(at) = found {
                let rest = self.came.split_off(at + end.len());
                let text = std::mem::replace(&mut self.came, rest);
                return String::from_utf8(text).expect("UTF-8");
            }
            let mut room = [0; 1 << 16];
            let count = self.stream.read(&mut room).expect("it goes on");
            assert!(count > 0, "it ended");
            self.came.extend(&room[..count]);
        }
    }

    /// The next message.
    fn next(&mut self) -> Value {
        let text = self.until(b"\n\n");
        let (_, data) = text.split_once("data: ").expect("a message");
        serde_json::from_str(data.trim_end()).expect("JSON")
    }

    /// Passes over what has come already.
    fn skips(&mut self) {
        self.stream.set_nonblocking(true).expect("a socket");
        let mut room = [0; 1 << 16];
        while let Ok(count) = self.stream.read(&mut room) {
            assert!(count > 0, "it ended");
            self.came.extend(&room[..count]);
        }
        self.stream.set_nonblocking(false).expect("a socket");
        while self.came.windows(2).any(|it| it == b"\n\n") {
            self.next();
        }
    }
}

/// Messages come every second: the second one after an order is there within two.
#[test]
fn who_watches_is_told_of_a_switch_with_the_next_message() {
    assert!(UPDATE_EVERY <= Duration::from_secs(1));
    let dir = TempDir::new("dashboard-switch");
    let dir = Path::new(dir.path());
    let port = free_port();
    let address = format!("tcp:127.0.0.1:{port}");
    let node = node(dir, &["--policy", "SJF", "--dashboard", &address]);
    let control = format!("{}.control", node.at.text());
    until("the dashboard is there", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let in_force = |told: &Value| {
        let node = &told["nodes"][0];
        (node["policy"].clone(), node["window_us"].clone())
    };
    let mut watches = Watcher::comes(port);
    assert_eq!(in_force(&watches.next()), (json!("SJF"), Value::Null));
    for (order, policy, window) in [
        ("TWINS:3ms", "TWINS", json!(3000.0)),
        ("WFQ", "WFQ", Value::Null),
        ("TWINS:0.5ms", "TWINS", json!(500.0)),
        ("NOOP", "NOOP", Value::Null),
    ] {
        let wanted = (json!(policy), window);
        presagio_ok(&["ionode", "policy", order, &control]);
        assert_eq!(in_force(&Watcher::comes(port).next()), wanted);
        watches.skips();
        // A message may have been on its way when the order was carried out; the one after it was not.
        let is_told = (0..2).any(|_| in_force(&watches.next()) == wanted);
        assert!(is_told, "{order} is not in the next message");
    }
}

#[test]
fn the_patterns_of_a_node_that_learns_them_are_shown() {
    let dir = TempDir::new("dashboard-patterns");
    let dir = Path::new(dir.path());
    let learns = ["--policy", "adaptive", "--period", "0.25", "--seed", "3"];
    let node = node(dir, &[&learns[..], &["--context", "pattern"]].concat());
    let control = format!("{}.control", node.at.text());
    under_load(&socket(&node), || {
        let mut now = Value::Null;
        until("a pattern is known, and what followed it", || {
            now = snapshot(&control);
            let chain = now["patterns"]["chain"].as_array();
            chain.is_some_and(|chain| !chain.is_empty())
        });
        let patterns = &now["patterns"];
        assert!(patterns["known"].as_u64() > Some(0), "{patterns}");
        let first = &patterns["list"][0];
        assert!(first["times"].as_u64() > Some(0), "{patterns}");
        assert!(first["requests"].as_u64() > Some(0), "{patterns}");
        let shape = first["shape"].as_array().expect("a shape");
        assert!(shape.iter().any(|at| at.as_f64() == Some(1.0)), "{shape:?}");
        // Beside what can be counted, which a new pattern begins with.
        let contexts = now["contexts"].as_array().expect("situations");
        let mut names = contexts.iter().filter_map(|it| it["context"].as_str());
        assert!(names.any(|name| name.starts_with("pattern ")), "{now}");
        let once = presagio_ok(&["top", &control, "--once"]).out;
        assert!(
            once.contains("Patterns: ") && !once.contains("Patterns: 0"),
            "{once}"
        );
    });
}

/// Starts the program on a terminal of its own, waits until it shows something, presses a key, and says how it ended.
const ON_A_TERMINAL: &str = r#"
import fcntl, os, pty, struct, subprocess, sys, termios, threading
mark, key, *command = sys.argv[1:]
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
before = termios.tcgetattr(slave)
def own_terminal():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal, env={**os.environ, 'TERM': 'xterm-256color'})
said = b''
def late():
    print('it takes too long:', said, file=sys.stderr, flush=True)
    child.kill()
    os._exit(1)
watch = threading.Timer(60, late)
watch.daemon = True
watch.start()
while mark.encode() not in said:
    said += os.read(master, 65536)
is_raw = termios.tcgetattr(slave) != before
os.write(master, key.encode())
def read():
    global said
    while not said.endswith(b'END'):
        said += os.read(master, 65536)
reader = threading.Thread(target=read)
reader.start()
code = child.wait()
is_restored = termios.tcgetattr(slave) == before
# All that it wrote is read when a word of ours has come through.
os.write(slave, b'END')
reader.join()
entered, left = said.rfind(b'[?1049h'), said.rfind(b'[?1049l')
print('code', code, 'raw', is_raw, 'restored', is_restored, 'left', 0 <= entered < left, 'cursor', said.rfind(b'[?25h') > said.rfind(b'[?25l'))
"#;

#[test]
fn a_screen_is_live_until_q_is_pressed_and_leaves_the_terminal_as_it_was() {
    let dir = TempDir::new("dashboard-screen");
    let node = node(Path::new(dir.path()), &["--policy", "SJF"]);
    let control = format!("{}.control", node.at.text());
    snapshot(&control);
    let ran = Command::new("python3")
        .args(["-c", ON_A_TERMINAL, "● live", "q"])
        .args([common::program(), "top", &control])
        .output()
        .expect("python3 is needed: apt-get install python3");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let wanted = "code 0 raw True restored True left True cursor True\n";
    assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_terminal_shows_what_the_snapshot_has() {
    let dir = TempDir::new("dashboard-top");
    let dir = Path::new(dir.path());
    let node = node(dir, &["--policy", "SJF"]);
    let control = format!("{}.control", node.at.text());
    let mut last = Value::Null;
    until("it has looked at itself", || {
        last = snapshot(&control);
        !last["nodes"][0]["now"].is_null()
    });
    assert_eq!(last["service"], "ionode");
    assert_eq!(last["nodes"][0]["policy"], "SJF");
    assert_eq!(last["nodes"][0]["by"], "start");
    let once = presagio_ok(&["top", &control, "--once"]);
    let name = last["name"].as_str().expect("a name");
    assert!(
        once.out.contains(&format!("I/O node {name}")),
        "{}",
        once.out
    );
    assert!(
        once.out.contains("SJF") && once.out.contains("as started"),
        "{}",
        once.out
    );
    presagio_ok(&["ionode", "policy", "TWINS:0.5ms", &control]);
    let once = presagio_ok(&["top", &control]);
    assert!(
        once.out.contains("TWINS:0.5ms") && once.out.contains("a person"),
        "{}",
        once.out
    );
    let now = snapshot(&control);
    assert_eq!(now["nodes"][0]["window_us"], 500.0);
    assert_eq!(now["decisions"][0]["by"], "person");
    assert_eq!(now["decisions"][0]["before"], "SJF");
    let nowhere = presagio(&["top", "unix:/nowhere/at-all", "--once"]);
    assert_eq!(nowhere.code, Some(2));
    assert!(nowhere.err.contains("nothing to show"), "{}", nowhere.err);
}

#[test]
fn a_dashboard_is_for_this_machine_unless_told_otherwise() {
    let dir = TempDir::new("dashboard-who");
    let dir = Path::new(dir.path());
    let export = text(dir);
    let listen = format!("unix:{}", text(&dir.join("node.sock")));
    let token = dir.join("token");
    fs::write(&token, "0123456789abcdef").expect("a file");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("ours");
    let start = |more: &[&str]| {
        let first = ["ionode", "--export", &export, "--listen", &listen];
        presagio(&[&first[..], more].concat())
    };
    let open = start(&[
        "--dashboard",
        "tcp:0.0.0.0:0",
        "--dashboard-token",
        &text(&token),
    ]);
    assert_eq!(open.code, Some(2));
    assert!(open.err.contains("over the network"), "{}", open.err);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("ours");
    let readable = start(&[
        "--dashboard",
        "tcp:127.0.0.1:0",
        "--dashboard-token",
        &text(&token),
    ]);
    assert_eq!(readable.code, Some(2));
    assert!(
        readable.err.contains("can be read by others"),
        "{}",
        readable.err
    );
    let help = presagio_ok(&["help", "council"]);
    assert!(help.out.contains("this machine alone"), "{}", help.out);
}
