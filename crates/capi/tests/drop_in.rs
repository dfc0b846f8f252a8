//! Promises to C programs: one built against `agios.h` and linked with `libagios.so` finds everything as
//! it was with AGIOS, and an answer where AGIOS crashed. Needs a C compiler (`cc`).

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Programs take a second or so; only one that hangs takes this long.
const HANGS_AFTER: Duration = Duration::from_secs(60);

const ALGORITHMS: [&str; 10] = [
    "NOOP", "TO", "TO-agg", "SJF", "MLF", "aIOLi", "SW", "TWINS", "WFQ", "HBRR",
];

/// What a program printed, and whether it succeeded.
struct Outcome {
    success: bool,
    stdout: String,
    stderr: String,
}

impl Outcome {
    fn expect_success(self) -> Outcome {
        let Outcome {
            success,
            stdout,
            stderr,
        } = &self;
        assert!(success, "stdout:\n{stdout}\nstderr:\n{stderr}");
        self
    }
}

/// A directory of one test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("agios-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// Writes a file and gives its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// A configuration for `algorithm`, with windows so short that tests need not wait, and weights.
    fn conf(&self, algorithm: &str, more: &str) -> String {
        self.file("weights.txt", &"65536\n".repeat(8));
        let text = format!(
            "library_options: {{ default_algorithm = \"{algorithm}\"; SW_window = 2; twins_window = 200;
             wfq_conf = \"weights.txt\"; waiting_time = 50000; {more} }};"
        );
        self.file(&format!("{algorithm}.conf"), &text)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory with the libagios.so that was built for this test: that of the test itself.
fn library_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap().to_owned();
    assert!(
        deps.join("libagios.so").is_file(),
        "no libagios.so in {}",
        deps.display()
    );
    deps
}

fn compile(source: &Path) -> PathBuf {
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let library = library_dir();
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wno-unused-variable",
            "-pthread",
        ])
        .arg("-I")
        .arg(manifest().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .arg("-lagios")
        .output()
        .expect("a C compiler named cc: install gcc");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

fn exercise() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile(&manifest().join("tests/c/exercise.c")))
}

/// Runs a program in `dir` and kills it if it hangs.
fn run(program: &Path, dir: &Path, arguments: &[&str]) -> Outcome {
    run_with(program, dir, arguments, &[])
}

fn run_with(
    program: &Path,
    dir: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Outcome {
    let mut child = Command::new(program)
        .args(arguments)
        // Cargo's own value names a directory first where an older build may lie.
        .env("LD_LIBRARY_PATH", library_dir())
        .env_remove("AGIOS_QUIET")
        .envs(environment.iter().copied())
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = read_all(child.stdout.take().unwrap());
    let stderr = read_all(child.stderr.take().unwrap());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if started.elapsed() > HANGS_AFTER {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let status = status.unwrap_or_else(|| panic!("{arguments:?} hangs:\n{stdout}\n{stderr}"));
    Outcome {
        success: status.success(),
        stdout,
        stderr,
    }
}

/// Reads in the background, so that a program that prints much does not wait for us.
fn read_all(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn run_exercise(scratch: &Scratch, arguments: &[&str]) -> Outcome {
    run(exercise(), &scratch.0, arguments).expect_success()
}

#[test]
fn every_algorithm_dispatches_each_request_exactly_once_in_proper_batches() {
    let scratch = Scratch::new("work");
    for algorithm in ALGORITHMS {
        let outcome = run_exercise(&scratch, &["work", &scratch.conf(algorithm, ""), algorithm]);
        assert_eq!(
            outcome.stderr.lines().count(),
            3,
            "one refusal a run: {}",
            outcome.stderr
        );
    }
}

#[test]
fn every_algorithm_works_with_guard_and_starvation_bound() {
    let scratch = Scratch::new("guarded");
    for algorithm in ALGORITHMS {
        let conf = scratch.conf(algorithm, "ordering_guard = true; starvation_bound = 5;");
        run_exercise(&scratch, &["work", &conf, algorithm]);
    }
}

#[test]
fn every_algorithm_lets_queued_requests_be_cancelled_once() {
    let scratch = Scratch::new("cancel");
    for algorithm in ALGORITHMS {
        run_exercise(
            &scratch,
            &["cancel", &scratch.conf(algorithm, ""), algorithm],
        );
    }
}

#[test]
fn nothing_is_lost_while_the_algorithm_changes() {
    let scratch = Scratch::new("switch");
    for algorithm in ["SJF", "NOOP"] {
        run_exercise(&scratch, &["switch", &scratch.conf(algorithm, "")]);
    }
}

#[test]
fn every_fault_returns_false_and_says_why() {
    let scratch = Scratch::new("faults");
    for algorithm in ALGORITHMS {
        let conf = scratch.conf(algorithm, "");
        let outcome = run_exercise(&scratch, &["faults", &conf]);
        let stray = outcome
            .stderr
            .lines()
            .find(|line| !line.starts_with("agios: "));
        assert_eq!(stray, None);
    }
}

#[test]
fn the_lines_on_standard_error_can_be_silenced() {
    let scratch = Scratch::new("quiet");
    let conf = scratch.conf("SJF", "");
    let outcome = run_with(
        exercise(),
        &scratch.0,
        &["faults", &conf],
        &[("AGIOS_QUIET", "1")],
    );
    assert_eq!(outcome.expect_success().stderr, "");
}

#[test]
fn a_fault_that_is_repeated_for_ever_is_told_20_times_and_then_counted() {
    let scratch = Scratch::new("flood");
    let outcome = run_exercise(&scratch, &["flood", &scratch.conf("SJF", "")]);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let told = |line: &&str| line.contains("no dispatched read of 1 bytes");
    assert_eq!(lines.iter().filter(|line| told(line)).count(), 20);
    let rest: Vec<&str> = lines.iter().copied().filter(|line| !told(line)).collect();
    let [announced, other, first_exit, second_exit] = rest[..] else {
        panic!("{rest:#?}");
    };
    assert!(announced.contains("agios_release_request: this kind of fault was told 20 times"));
    assert!(other.contains("no queued read"), "{other}");
    let counted = "further faults like those told before were only counted";
    assert_eq!(first_exit, format!("agios: agios_exit: 99980 {counted}"));
    assert_eq!(second_exit, format!("agios: agios_exit: 1 {counted}"));
}

#[test]
fn an_empty_configuration_means_the_defaults() {
    let scratch = Scratch::new("empty");
    let conf = scratch.file("empty.conf", "");
    let outcome = run_exercise(&scratch, &["work", &conf, "SJF"]);
    let warnings = outcome
        .stderr
        .lines()
        .filter(|l| l.contains("no group library_options"));
    assert_eq!(warnings.count(), 3, "one a run: {}", outcome.stderr);
}

#[test]
fn it_can_be_started_and_stopped_again_and_again() {
    let scratch = Scratch::new("restart");
    for algorithm in ALGORITHMS {
        run_exercise(&scratch, &["restart", &scratch.conf(algorithm, "")]);
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_line_and_key() {
    let scratch = Scratch::new("refuse");
    for (keys, expected) in [
        (
            "\n default_algorithm = \"CFQ\"",
            "x.conf:2:22: default_algorithm: unknown policy \"CFQ\"",
        ),
        (
            "waiting_time = \"long\"",
            "x.conf:1:35: waiting_time: expected an integer, found a string",
        ),
        (
            "aioli_quantum = 0",
            "x.conf:1:36: aioli_quantum: 0 makes no sense",
        ),
        (
            "SW_window = -1",
            "x.conf:1:32: SW_window: -1 makes no sense",
        ),
        (
            "trace = 1",
            "x.conf:1:28: trace: expected true or false, found an integer",
        ),
        (
            "mlf_quantum 5",
            "x.conf:1:32: expected \"=\" or \":\" after \"mlf_quantum\"",
        ),
        (
            "wfq_conf = \"gone\" default_algorithm = \"WFQ\"",
            "x.conf:1:31: wfq_conf: cannot read gone",
        ),
        ("default_algorithm = \"WFQ\"", "WFQ needs weights"),
        (
            "wfq_conf = \"few\" default_algorithm = \"WFQ\"",
            "few:2:1: wfq_conf: 1 weights, but there are 8",
        ),
        (
            "trace = true trace_file_prefix = \"no/such/dir/t\"",
            "trace: cannot create no/such/dir/t.1.out",
        ),
        (
            "foresight_trace = \"gone\"",
            "x.conf:1:38: foresight_trace: cannot read gone: No such file",
        ),
        (
            "foresight_trace = \".\"",
            "x.conf:1:38: foresight_trace: cannot read .: it is not a file",
        ),
        (
            "trace = true foresight_trace = \"bad\"",
            "bad:2: the offset is -1: it must not be negative",
        ),
    ] {
        scratch.file("few", "5\n");
        scratch.file("bad", "1\tf\tR\t0\t1\n1\tf\tR\t-1\t1\n");
        let conf = scratch.file("x.conf", &format!("library_options: {{ {keys} }}"));
        let outcome = run_exercise(&scratch, &["refuse", &conf, "7"]);
        assert!(
            outcome.stdout.contains(expected),
            "{keys}: {}",
            outcome.stdout
        );
        assert!(
            outcome.stderr.contains(expected),
            "{keys}: {}",
            outcome.stderr
        );
    }
    let left_behind = scratch.0.join("agios_tracefile.1.out");
    assert!(!left_behind.exists(), "a start that failed began a trace");
}

#[test]
fn an_unknown_key_is_only_warned_about() {
    let scratch = Scratch::new("unknown");
    let conf = scratch.conf("SJF", "waiting_tiem = 5;");
    let outcome = run_exercise(&scratch, &["trace", &conf]);
    assert!(
        outcome.stderr.contains("waiting_tiem: unknown key"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn the_trace_has_the_format_of_agios() {
    let scratch = Scratch::new("trace");
    let more = "trace = true; trace_file_prefix = \"tr\"; trace_file_sufix = \"txt\";";
    for algorithm in ["NOOP", "SJF"] {
        run_exercise(&scratch, &["trace", &scratch.conf(algorithm, more)]);
    }
    for number in 1..=2 {
        let text = std::fs::read_to_string(scratch.0.join(format!("tr.{number}.txt"))).unwrap();
        let lines: Vec<(u64, &str)> = text.lines().map(split_time).collect();
        let rest: Vec<&str> = lines.iter().map(|line| line.1).collect();
        let expected = [
            "/a\tR\t0\t4096",
            "/with\\ttab\tW\t123456789012\t1",
            "/a\tW\t4096\t512",
        ];
        assert_eq!(rest, expected);
        assert!(lines.is_sorted_by_key(|line| line.0), "{text}");
    }
}

fn split_time(line: &str) -> (u64, &str) {
    let (time, rest) = line.split_once('\t').unwrap();
    (time.parse().unwrap(), rest)
}

#[test]
fn predictions_beyond_the_room_for_them_are_refused_and_nothing_else_is() {
    let scratch = Scratch::new("full");
    run_exercise(&scratch, &["full", &scratch.conf("SJF", "")]);
}

/// What AGIOS's lost prediction module did: wait for the other half of a pair where the last run had one.
/// Halves are 40 ms apart in the trace and 30 ms when it is used: ten milliseconds for the noise of a busy
/// machine. Saving one request saves 200 ms, so that waiting pays.
#[test]
fn requests_that_a_trace_foresees_leave_together_and_others_as_ever() {
    std::thread::scope(|scope| {
        for algorithm in ["TO-agg", "aIOLi"] {
            scope.spawn(move || foresee_pairs(algorithm));
        }
    });
}

fn foresee_pairs(algorithm: &str) {
    let scratch = Scratch::new(&format!("foresight-{algorithm}"));
    let pairs = |more: &str, arguments: &[&str]| {
        let more = format!("foresight_request_us = 200000; {more}");
        together(&scratch, &scratch.conf(algorithm, &more), arguments)
    };
    let (plain, all) = pairs("trace = true;", &["40"]);
    assert!(plain < all / 4, "{algorithm}, no trace: {plain} of {all}");

    // The name of the recorded trace, as a user would give it: beside the configuration.
    let trace = "foresight_trace = \"agios_tracefile.1.out\";";
    let (with, all) = pairs(trace, &["30"]);
    assert!(with > all / 2, "{algorithm}, foreseen: {with} of {all}");

    let (announced, all) = pairs("", &["30", "40"]);
    assert!(
        announced > all / 2,
        "{algorithm}, announced: {announced} of {all}"
    );

    let text = std::fs::read_to_string(scratch.0.join("agios_tracefile.1.out")).unwrap();
    scratch.file("wrong.out", &at_other_offsets(&text));
    let (wrong, all) = pairs("foresight_trace = \"wrong.out\";", &["30"]);
    assert!(
        wrong < all / 4,
        "{algorithm}, wrong trace: {wrong} of {all}"
    );
}

/// Runs foresight.c: how many pairs left together, of how many.
fn together(scratch: &Scratch, conf: &str, arguments: &[&str]) -> (u32, u32) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile(&manifest().join("tests/c/foresight.c")));
    let outcome = run(program, &scratch.0, &[&[conf], arguments].concat()).expect_success();
    let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let ["together", together, "of", all] = words[..] else {
        panic!("{}", outcome.stdout);
    };
    (together.parse().unwrap(), all.parse().unwrap())
}

/// A trace of the same shape that foresees what never comes.
fn at_other_offsets(trace: &str) -> String {
    let other = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [time, file, operation, offset, length] = fields[..] else {
            panic!("{line}");
        };
        let offset = offset.parse::<u64>().unwrap() + 512;
        format!("{time}\t{file}\t{operation}\t{offset}\t{length}\n")
    };
    trace.lines().map(other).collect()
}

#[test]
fn only_the_functions_of_the_header_are_exported() {
    let library = library_dir().join("libagios.so");
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "-j"])
        .arg(library)
        .output();
    let output = output.expect("nm: install binutils");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut symbols: Vec<&str> = text.lines().collect();
    symbols.sort_unstable();
    let expected = [
        "agios_add_request",
        "agios_cancel_request",
        "agios_exit",
        "agios_foresee",
        "agios_init",
        "agios_last_error",
        "agios_release_request",
        "agios_set_algorithm",
    ];
    assert_eq!(symbols, expected);
}

/// The driver with which AGIOS itself was measured lies beside the repository, not in it.
#[test]
fn the_driver_written_for_agios_runs_unchanged() {
    let bench = manifest().join("../../../shared/bench");
    let source = bench.join("agios_driver.c");
    if !source.is_file() {
        println!("skipped: there is no {}", source.display());
        return;
    }
    let driver = compile(&source);
    let conf = bench.join("conf");
    let confs = ALGORITHMS
        .iter()
        .filter(|a| **a != "HBRR")
        .map(|a| format!("{a}.conf"));
    let confs: Vec<String> = confs.collect();
    confs.iter().for_each(|name| drive(&driver, &conf, name));
    std::thread::scope(|scope| {
        for name in &confs {
            scope.spawn(|| uses_no_cpu_when_idle(&driver, &conf, name));
        }
    });
}

fn drive(driver: &Path, dir: &Path, conf: &str) {
    for pattern in ["seq", "rnd"] {
        let e2e = run(
            driver,
            dir,
            &["e2e", conf, "20000", "2", "64", pattern, "8", "50"],
        );
        let text = e2e.expect_success().stdout;
        assert!(
            text.contains(": ok added=20000 done=20000") && text.contains("relfail=0"),
            "{text}"
        );
    }
    // With NOOP the callback runs inside agios_add_request, where this mode blocks it for ever.
    if conf != "NOOP.conf" {
        let back = run(
            driver,
            dir,
            &["back", conf, "20000", "16", "rnd", "8", "50"],
        );
        let text = back.expect_success().stdout;
        assert!(text.contains(": ok queued 20000"), "{text}");
        assert!(text.contains("drain: 20000 of 20000"), "{text}");
    }
    let badq = run(driver, dir, &["badq", conf, "9", "8"]).expect_success();
    assert!(
        badq.stdout.contains("returned 0, done=0") && badq.stdout.contains("exit ok"),
        "{}",
        badq.stdout
    );
    assert!(badq.stderr.contains("queue_id is 9"), "{}", badq.stderr);
}

fn uses_no_cpu_when_idle(driver: &Path, dir: &Path, conf: &str) {
    let idle = run(driver, dir, &["idle", conf, "1"])
        .expect_success()
        .stdout;
    let seconds = idle.trim().trim_end_matches(" s").rsplit(' ').next();
    let cpu: f64 = seconds.unwrap().parse().unwrap();
    assert!(cpu < 0.05, "{conf} idle: {idle}");
}
