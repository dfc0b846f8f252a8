//! The manager as programs meet it: through its arena.

mod hanging;

use super::*;
use crate::hints::residency;
use crate::plan::{Access, Expected, FileNumber, Holder, LoadDone, Memory, Opened, Strategy};
use presagio_arena::{Client, FileSlot, Found, Kind, Writer};
use presagio_core::{Action, Range};
use std::ffi::CString;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A mind that does nothing.
pub(super) struct Nothing;

impl Strategy for Nothing {
    fn opened(&mut self, _: &Opened<'_>) {}
    fn closed(&mut self, _: FileNumber, _: Holder, _: Nanos) {}
    fn accessed(&mut self, _: &Access) {}
    fn expected(&mut self, _: u32, _: &[Expected]) {}
    fn loaded(&mut self, _: &LoadDone) {}
    fn memory(&mut self, _: Memory, _: Nanos) {}
    fn plan(&mut self, _: Nanos, _: &mut Vec<Hint>) {}
}

impl Mind for Nothing {}

fn manager() -> Manager {
    make(false, Box::new(|_| Box::new(Nothing)), None)
}

fn make(advise: bool, mind: Box<MakeMind>, trace: Option<File>) -> Manager {
    Manager::create(options(advise, mind, trace)).unwrap()
}

fn options(advise: bool, mind: Box<MakeMind>, trace: Option<File>) -> Options {
    Options {
        filter: PathFilter::default(),
        advise,
        mind,
        trace: trace.map(|file| ("trace".into(), file)),
        models: None,
        command: Vec::new(),
        job: None,
        forward: None,
        slots: 4,
    }
}

/// A program with a file open, as the manager's arena has it.
struct Program {
    client: Client,
    writer: Writer,
    slot: FileSlot,
    /// Where in it the operations are that it tells.
    context: u64,
}

impl Program {
    /// With a file that is nowhere.
    fn new(manager: &Manager) -> Program {
        Program::with(manager, (1, 2), -1, b"/data")
    }

    /// With a real file.
    fn with_file(manager: &Manager, file: &File, path: &Path) -> Program {
        Program::opened(manager, file, path, libc::O_RDONLY)
    }

    /// The same, opened in this way.
    fn opened(manager: &Manager, file: &File, path: &Path, flags: i32) -> Program {
        let metadata = file.metadata().unwrap();
        Program::found(
            manager,
            &Found {
                descriptor: file.as_raw_fd(),
                device: metadata.dev(),
                inode: metadata.ino(),
                size: metadata.len(),
                flags,
                inherited: false,
                path: path.as_os_str().as_bytes(),
            },
        )
    }

    fn with(manager: &Manager, key: (u64, u64), descriptor: i32, path: &[u8]) -> Program {
        let found = Found {
            descriptor,
            device: key.0,
            inode: key.1,
            size: 100,
            flags: libc::O_RDONLY,
            inherited: false,
            path,
        };
        Program::found(manager, &found)
    }

    fn found(manager: &Manager, found: &Found<'_>) -> Program {
        let address = CString::new(manager.address()).unwrap();
        let client = Client::attach(&address, [&b"app"[..]].into_iter()).unwrap();
        let mut writer = Writer::new();
        assert!(writer.open(&client));
        let slot = client.open_file(found).unwrap();
        Program {
            client,
            writer,
            slot,
            context: 0,
        }
    }

    fn tell(&mut self, kind: Kind, len: u64) {
        self.tell_at(kind, 0, 0, len);
    }

    fn tell_at(&mut self, kind: Kind, start: u64, offset: u64, len: u64) {
        let mut record = presagio_arena::Record::new(kind);
        (record.file, record.generation) = (self.slot.index, self.slot.generation);
        (record.start, record.offset, record.context) = (start, offset, self.context);
        (record.len, record.result) = (len, len as i64);
        assert!(self.writer.push(&self.client, &record));
    }

    /// Reads of ten bytes, one after the other, a microsecond apart.
    fn read_in_a_loop(&mut self, clock: &mut u64, count: u64) {
        for i in 0..count {
            *clock += 1000;
            self.tell_at(Kind::Operation(Action::Read), *clock, i * 10, 10);
        }
    }
}

/// What a mind was told, and what it is to say next.
#[derive(Default)]
struct Notebook {
    expected: Vec<Expected>,
    opened: Vec<(FileNumber, PathBuf)>,
    accessed: u64,
    closed: u64,
    loaded: Vec<LoadDone>,
    says: Vec<Hint>,
    memory: Vec<Memory>,
}

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Scribe(Arc<Mutex<Notebook>>);

impl Scribe {
    fn made(&self) -> Box<MakeMind> {
        let mind = Box::new(self.clone());
        Box::new(|_| mind)
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Notebook> {
        self.0.lock().unwrap()
    }
}

impl Strategy for Scribe {
    fn opened(&mut self, opened: &Opened<'_>) {
        let file = (opened.file, opened.path.to_owned());
        self.book().opened.push(file);
    }
    fn closed(&mut self, _: FileNumber, _: Holder, _: Nanos) {
        self.book().closed += 1;
    }
    fn accessed(&mut self, _: &Access) {
        self.book().accessed += 1;
    }
    fn expected(&mut self, _: u32, expected: &[Expected]) {
        self.book().expected = expected.to_vec();
    }
    fn loaded(&mut self, done: &LoadDone) {
        self.book().loaded.push(*done);
    }
    fn memory(&mut self, memory: Memory, _: Nanos) {
        self.book().memory.push(memory);
    }
    fn plan(&mut self, _: Nanos, hints: &mut Vec<Hint>) {
        hints.append(&mut self.book().says);
    }
}

impl Mind for Scribe {}

/// A file of so many bytes on a disk, in memory and written back.
fn file_on_disk(path: &Path, len: usize) -> File {
    let mut file = File::options();
    let mut file = file.read(true).write(true).create(true).open(path).unwrap();
    file.write_all(&vec![7; len]).unwrap();
    file.sync_all().unwrap();
    file
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// Looks until something is so.
fn look_until(manager: &mut Manager, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        manager.look();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The same for what must not take long, if it is to happen at all.
fn looks_soon(manager: &mut Manager, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    look_until(manager, || is_so() || Instant::now() > until);
    is_so()
}

fn opens(manager: &Manager) -> usize {
    manager.files.iter().map(|(_, file)| file.opens.len()).sum()
}

/// As often as a loss is looked into; each sweep comes after a look, however long that takes.
fn look_and_sweep(manager: &mut Manager) {
    for _ in 0..SUSPICIOUS_SWEEPS {
        manager.swept -= SWEEP;
        manager.look();
    }
}

#[test]
fn what_a_program_lost_is_counted_wherever_the_manager_is() {
    let mut manager = manager();
    let mut program = Program::new(&manager);
    program.tell(Kind::Gap, 7);
    manager.look();
    assert_eq!(manager.lost, 7);
}

#[test]
fn of_a_file_that_an_io_node_serves_the_node_is_told_and_nobody_else() {
    let (scribe, directory) = (Scribe::default(), directory());
    let path = directory.path().join("data");
    let file = file_on_disk(&path, 4096);
    let forward = format!(
        "no-such-switchboard:/shadows:{}",
        directory.path().display()
    );
    let mut manager = Manager::create(Options {
        forward: Some(forward.into_bytes()),
        ..options(true, scribe.made(), None)
    })
    .unwrap();
    let mut program = Program::with_file(&manager, &file, &path);
    for step in 0..100 {
        let start = sys::monotonic_ns();
        program.tell_at(Kind::Operation(Action::Read), start, step * 10, 10);
        manager.look();
        std::thread::sleep(Duration::from_micros(50));
    }
    let summary = manager.glimpse();
    assert_eq!(summary.foretold.files, 1);
    assert!(summary.foretold.came > 30, "{:?}", summary.foretold);
    let book = scribe.book();
    assert!(book.opened.is_empty() && book.accessed == 0 && book.expected.is_empty());
    drop(book);
    // There is nobody to tell it to.
    let mut trouble = None;
    while trouble.is_none() {
        trouble = manager.foretelling.as_ref().unwrap().trouble();
    }
    let notes = manager.finish().notes;
    assert!(
        notes.iter().any(|n| n.contains("could not be told")),
        "{notes:?}"
    );
}

#[test]
fn who_reads_past_the_page_cache_is_left_alone_and_told_why() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let path = here.path().join("data");
    let file = file_on_disk(&path, 1 << 20);
    // They are one thread, which has the file open in two ways.
    let usual = Program::with_file(&manager, &file, &path).slot;
    let flags = libc::O_RDWR | libc::O_DIRECT;
    let mut program = Program::opened(&manager, &file, &path, flags);
    let direct = std::mem::replace(&mut program.slot, usual);
    let began = manager.began;
    let tell = |program: &mut Program, action: Action, at: u64| {
        program.tell_at(Kind::Operation(action), began + at, at * 4096, 4096);
    };
    tell(&mut program, Action::Read, 0);
    look_until(&mut manager, || scribe.book().accessed > 0);
    let number = scribe.book().opened[0].0;
    let gain = &mut manager.files.get_mut(number).unwrap().gain;
    gain.load(Range::at(0, 1 << 20), 1 << 20);
    program.slot = direct;
    (1..20).for_each(|at| tell(&mut program, Action::Read, at));
    tell(&mut program, Action::Write, 20);
    program.tell_at(Kind::Operation(Action::Close), began + 21, 0, 0);
    manager.look();
    assert_eq!(opens(&manager), 1);
    let book = scribe.book();
    assert_eq!((book.opened.len(), book.accessed, book.closed), (1, 1, 0));
    drop(book);
    let summary = manager.finish();
    assert_eq!(summary.useful, 0, "it did not read that");
    assert_eq!(summary.totals.read, 20 * 4096);
    let told = format!("nothing was loaded ahead for {}: ", path.display());
    let notes = summary.notes;
    assert!(notes.iter().any(|n| n.starts_with(&told)), "{notes:?}");
}

#[test]
fn a_file_whose_closing_was_lost_does_not_stay_open() {
    let mut manager = manager();
    let mut program = Program::new(&manager);
    program.tell(Kind::Operation(Action::Open), 0);
    manager.look();
    assert_eq!(opens(&manager), 1);
    program.client.close_file(program.slot); // and its record found no room
    program.tell(Kind::Gap, 1);
    look_and_sweep(&mut manager);
    assert_eq!(opens(&manager), 0);
}

#[test]
fn a_file_that_is_open_stays_so_whatever_else_was_lost() {
    let mut manager = manager();
    let mut program = Program::new(&manager);
    program.tell(Kind::Operation(Action::Open), 0);
    program.tell(Kind::Gap, 1);
    look_and_sweep(&mut manager);
    assert_eq!((opens(&manager), manager.suspicious), (1, 0));
}

#[test]
fn a_hot_loop_is_counted_to_the_last_byte_and_not_thought_about() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let path = here.path().join("data");
    let mut program = Program::with_file(&manager, &file_on_disk(&path, 10), &path);
    let mut clock = manager.began;
    program.tell_at(Kind::Operation(Action::Open), clock, 0, 0);
    let many = u64::from(skim::RING) / 2;
    (0..4).for_each(|_| {
        program.read_in_a_loop(&mut clock, many);
        manager.look();
    });
    assert_eq!(scribe.book().accessed, 0, "the mind was told");
    program.read_in_a_loop(&mut clock, 10);
    program.tell_at(Kind::Operation(Action::Close), clock + 1, 0, 0);
    manager.look();
    assert_eq!(
        opens(&manager),
        0,
        "a file is closed, however fast its program is"
    );
    let summary = manager.finish();
    let reads = summary.totals.operations[Action::Read as usize];
    assert_eq!(
        (reads, summary.totals.read),
        (4 * many + 10, (4 * many + 10) * 10)
    );
    assert_eq!(summary.totals, summary.busiest[0].totals);
    let note = format!("not modelled: {} operations", 4 * many + 12);
    assert!(
        summary.notes.iter().any(|n| n.starts_with(&note)),
        "{:?}",
        summary.notes
    );
}

#[test]
fn a_trace_has_every_operation_of_a_hot_loop() {
    let here = directory();
    let path = here.path().join("trace");
    let trace = File::create(&path).unwrap();
    let mut manager = make(false, Box::new(|_| Box::new(Nothing)), Some(trace));
    let mut program = Program::new(&manager);
    let many = u64::from(skim::RING) / 2;
    let mut clock = manager.began;
    (0..3).for_each(|_| {
        program.read_in_a_loop(&mut clock, many);
        manager.look();
    });
    assert_eq!(manager.skimmed, 3 * many);
    manager.finish();
    let read = presagio_trace::open(&path).unwrap().map(Result::unwrap);
    let events = read.filter(|record| matches!(record, presagio_trace::Record::Event(_)));
    assert_eq!(events.count() as u64, 3 * many);
}

#[test]
fn what_comes_after_a_long_computation_is_expected_before_it() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let mut program = Program::new(&manager);
    let offset = |phase: u64, read: u64| (phase * 4 + read) << 20;
    let mut clock = manager.began + Nanos::from_secs(100).0;
    for phase in 0..12 {
        clock += Nanos::from_secs(10).0;
        for read in 0..4 {
            clock += Nanos::from_millis(1).0;
            program.context = 1 + read;
            program.tell_at(
                Kind::Operation(Action::Read),
                clock,
                offset(phase, read),
                1000,
            );
        }
        manager.look();
    }
    let book = scribe.book();
    let next = book.expected.first().expect("nothing is expected");
    assert_eq!(next.range, Range::at(offset(12, 0), 1000));
    let ahead = next.time.since(Nanos(clock - manager.began));
    assert!(ahead > Nanos::from_secs(9), "{ahead}");
}

#[test]
fn a_file_never_opened_before_is_opened_ahead_and_loaded_and_is_then_the_programs() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let path = here.path().join("step_0007.dat");
    let file = file_on_disk(&path, 1 << 20);
    scribe
        .book()
        .says
        .push(Hint::OpenAhead { path: path.clone() });
    look_until(&mut manager, || !scribe.book().opened.is_empty());
    let (number, name) = scribe.book().opened[0].clone();
    assert_eq!(name, path);
    scribe.book().says.push(Hint::Load {
        file: number,
        range: Range::at(0, 1 << 20),
        reason: Reason::Exact,
    });
    look_until(&mut manager, || !scribe.book().loaded.is_empty());
    assert_eq!(scribe.book().loaded[0].there, 1 << 20);
    let mut program = Program::with_file(&manager, &file, &path);
    program.tell_at(Kind::Operation(Action::Read), manager.began, 0, 10);
    look_until(&mut manager, || scribe.book().accessed > 0);
    assert_eq!(scribe.book().opened[1], (number, path));
}

/// Bytes of a file that are in memory.
fn there(file: &File) -> u64 {
    residency(file, Range::at(0, 1 << 20)).unwrap()
}

#[test]
fn what_was_written_is_let_go_when_the_mind_says_so() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let path = here.path().join("data");
    let file = file_on_disk(&path, 1 << 20);
    let mut program = Program::with_file(&manager, &file, &path);
    program.tell_at(Kind::Operation(Action::Write), manager.began, 0, 1 << 20);
    look_until(&mut manager, || scribe.book().accessed > 0);
    assert_eq!(there(&file), 1 << 20);
    let release = Hint::Release {
        file: scribe.book().opened[0].0,
        range: Range::at(0, 1 << 20),
        reason: Reason::Written,
    };
    scribe.book().says.push(release);
    assert!(looks_soon(&mut manager, || there(&file) == 0));
}

/// Advises to let all go that was read.
fn passing() -> Box<MakeMind> {
    let config =
        r#"{ "File": [ { "Path": "*/data", "DontNeed": [ { "Offset": 0, "Length": 0 } ] } ] }"#;
    Box::new(|_| Box::new(Configured::new(config.parse().unwrap(), Box::new(Nothing))))
}

/// A small file that is configured to be let go, of which a program has read the first MiB: all but so many bytes.
fn passed(manager: &mut Manager, here: &Path, left: usize) -> (File, Program) {
    let path = here.join("data");
    let file = file_on_disk(&path, (1 << 20) + left);
    let mut program = Program::with_file(manager, &file, &path);
    let began = manager.began;
    for at in (0..1 << 20).step_by(1 << 16) {
        program.tell_at(Kind::Operation(Action::Read), began + at, at, 1 << 16);
    }
    (file, program)
}

#[test]
fn a_file_that_is_not_needed_again_is_let_go_at_its_end_however_small_it_is() {
    let here = directory();
    let mut manager = make(true, passing(), None);
    let (file, _program) = passed(&mut manager, here.path(), 0);
    assert!(looks_soon(&mut manager, || there(&file) == 0));
}

#[test]
fn what_was_read_and_is_not_needed_again_is_let_go_when_the_file_is_closed() {
    let here = directory();
    let mut manager = make(true, passing(), None);
    let (file, mut program) = passed(&mut manager, here.path(), 4096);
    let close = Kind::Operation(Action::Close);
    program.tell_at(close, manager.began + (1 << 30), 0, 0);
    assert!(looks_soon(&mut manager, || there(&file) == 0));
}

#[test]
fn what_is_not_needed_again_is_let_go_though_the_program_ends_with_the_run() {
    let here = directory();
    let mut manager = make(true, passing(), None);
    let (file, mut program) = passed(&mut manager, here.path(), 4096);
    let close = Kind::Operation(Action::Close);
    program.tell_at(close, manager.began + (1 << 30), 0, 0);
    manager.work(&Over);
    assert_eq!(there(&file), 0);
}

#[test]
fn where_one_file_of_a_device_cannot_be_opened_the_next_is_and_the_first_is_told_of_then() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let path = here.path().join("data");
    let file = file_on_disk(&path, 4096);
    let device = file.metadata().unwrap().dev();
    let mut hidden = Program::with(&manager, (device, 1), -1, b"/nowhere");
    let mut seen = Program::with_file(&manager, &file, &path);
    let began = manager.began;
    let read = |program: &mut Program, offset: u64| {
        let action = Kind::Operation(Action::Read);
        program.tell_at(action, began + offset, offset, 10);
    };
    // Both are held back while the first is looked for.
    read(&mut hidden, 0);
    read(&mut seen, 1);
    assert!(looks_soon(&mut manager, || scribe.book().accessed == 1));
    assert_eq!(scribe.book().opened[0].1, path);
    // They are one thread, and the ring is that of the one that came later.
    seen.slot = hidden.slot;
    read(&mut seen, 2);
    assert!(looks_soon(&mut manager, || scribe.book().accessed == 2));
    assert_eq!(scribe.book().opened[1].1, Path::new("/nowhere"));
}

#[test]
fn a_file_that_could_not_be_opened_at_first_is_told_of_when_it_can() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let [path, moved] = ["data", "moved"].map(|name| here.path().join(name));
    let metadata = file_on_disk(&path, 4096).metadata().unwrap();
    let key = (metadata.dev(), metadata.ino());
    std::fs::rename(&path, &moved).unwrap();
    let mut program = Program::with(&manager, key, -1, path.as_os_str().as_bytes());
    let (began, mut clock) = (manager.began, 0);
    let mut read = |program: &mut Program| {
        clock += 1;
        program.tell_at(Kind::Operation(Action::Read), began + clock, clock, 10);
    };
    read(&mut program);
    manager.look();
    manager.await_looks();
    assert!(scribe.book().opened.is_empty());
    std::fs::rename(&moved, &path).unwrap();
    read(&mut program);
    assert!(looks_soon(&mut manager, || scribe.book().accessed > 0));
}

#[test]
fn a_file_that_cannot_be_opened_is_not_tried_for_ever() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let mut program = Program::new(&manager);
    for clock in 0..10 {
        let start = manager.began + clock;
        program.tell_at(Kind::Operation(Action::Read), start, clock, 10);
        manager.look();
        manager.await_looks();
    }
    let files = manager.files.iter().flat_map(|(_, file)| &file.opens);
    let looks: Vec<u8> = files.map(|open| open.looks).collect();
    assert!(matches!(looks[..], [1..=3]), "{looks:?}");
}

#[test]
fn what_found_no_place_among_what_is_held_back_is_told_of_afterwards() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let path = here.path().join("data");
    let file = file_on_disk(&path, 4096);
    let mut program = Program::with_file(&manager, &file, &path);
    let (id, began) = (file.metadata().unwrap().dev(), manager.began);
    manager.looks.fill(id);
    program.tell_at(Kind::Operation(Action::Read), began, 0, 10);
    manager.look();
    let device = crate::hints::Device::of(&file).unwrap();
    manager.looked(id, Some(Arc::new(device)));
    assert!(scribe.book().opened.is_empty(), "there was no place");
    program.tell_at(Kind::Operation(Action::Read), began + 1, 10, 10);
    manager.look();
    let book = scribe.book();
    assert_eq!((book.opened.len(), book.accessed), (1, 1));
}

/// A run that is over as soon as somebody asks.
struct Over;

impl Host for Over {
    fn is_over(&self) -> bool {
        true
    }
}

#[test]
fn when_the_run_is_over_what_is_planned_is_counted_and_not_done() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    scribe.book().says = vec![
        Hint::OpenAhead {
            path: "/nowhere".into(),
        },
        Hint::Load {
            file: FileNumber(0),
            range: Range::at(0, 10),
            reason: Reason::Exact,
        },
    ];
    let summary = manager.work(&Over);
    assert!(scribe.book().says.is_empty(), "it was asked");
    let [(Reason::Exact, loads)] = summary.loads[..] else {
        panic!("{:?}", summary.loads);
    };
    assert_eq!((loads.hints, loads.asked), (1, 10));
    assert_eq!(manager.workers.threads(), 0, "nobody had anything to do");
}

#[test]
fn memory_that_gets_short_later_is_noticed() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let told = || scribe.book().memory.clone();
    manager.look();
    assert_eq!(told().len(), 1, "from the beginning");
    manager.memory = || Memory {
        left: 5,
        is_short: true,
    };
    manager.memory_asked = Some(Instant::now());
    manager.look();
    assert_eq!(told().len(), 1, "not in every round");
    manager.memory_asked = Instant::now().checked_sub(MEMORY);
    manager.look();
    assert_eq!(told()[1..], [(manager.memory)()]);
}

#[test]
fn a_note_is_left_for_the_open_file_that_it_is_about() {
    let scribe = Scribe::default();
    let mut manager = make(true, scribe.made(), None);
    let here = directory();
    let path = here.path().join("data");
    let file = file_on_disk(&path, 4096);
    let mut programs = [0, 1].map(|_| Program::with_file(&manager, &file, &path));
    let began = manager.began;
    let tell = |p: &mut Program| p.tell_at(Kind::Operation(Action::Read), began, 0, 10);
    programs.iter_mut().for_each(tell);
    look_until(&mut manager, || scribe.book().accessed == 2);
    let number = scribe.book().opened[0].0;
    let opens = manager.files.get(number).unwrap().opens.clone();
    let second = programs[1].slot.index;
    let open = opens.iter().find(|open| open.index == second).unwrap();
    scribe.book().says.push(Hint::Mode {
        file: number,
        open: open.number,
        mode: crate::config::Mode::Random,
        reason: Reason::Random,
    });
    manager.look();
    let noted = programs.map(|p| p.client.note(p.slot.index, 0).is_some());
    assert_eq!(noted, [false, true]);
}

#[test]
fn programs_that_go_on_without_the_manager_can_tell() {
    let mut manager = make(true, Scribe::default().made(), None);
    let program = Program::new(&manager);
    assert!(program.client.manager_lives());
    // Its process lives, as it does where it is inside of the program.
    manager.finish();
    assert!(!program.client.manager_lives());
}
