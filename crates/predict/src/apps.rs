//! Replicas of the programs on which the paper measured (§4.1), as far as its text describes them.
//!
//! What tests promise and what the bench times is the I/O of these. All are deterministic: the same numbers give
//! the same operations. Sizes and shares follow Table 6 and the text; where the paper is silent (how many phases a
//! run has) a comment says what was taken, and why.

use presagio_core::{Action, ContextId, Event, FileId, IdHashMap, Layer, Nanos};

/// Random numbers that are the same in every run (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Whether something happens that has this many percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// About `value`, by up to so many per mille more or less.
    pub fn about(&mut self, value: u64, per_mille: u64) -> u64 {
        let reach = value * per_mille / 1000;
        value - reach + self.below(2 * reach + 1)
    }
}

/// A program that does I/O: what it has done so far.
#[derive(Clone, Debug)]
pub struct Program {
    /// All its operations.
    pub events: Vec<Event>,
    /// Chance, for whoever needs it.
    pub random: Random,
    time: u64,
    file: FileId,
    files: u64,
    layer: Layer,
    positions: IdHashMap<FileId, u64>,
    ends: IdHashMap<FileId, u64>,
}

const KIB: u64 = 1024;

/// Bytes a nanosecond: about a gigabyte a second.
const SPEED: u64 = 1;

impl Program {
    /// One that has done nothing.
    pub fn new(seed: u64) -> Program {
        Program {
            events: Vec::new(),
            random: Random(seed),
            time: 0,
            file: FileId(0),
            files: 0,
            layer: Layer::Posix,
            positions: IdHashMap::default(),
            ends: IdHashMap::default(),
        }
    }

    /// Computes for about so long.
    pub fn compute(&mut self, time: Nanos) {
        self.time += self.random.about(time.0, 20);
    }

    /// Opens a file that was not used before.
    pub fn create(&mut self, context: u32) -> FileId {
        self.files += 1;
        self.open(context, FileId(self.files))
    }

    /// Opens a file.
    pub fn open(&mut self, context: u32, file: FileId) -> FileId {
        self.files = self.files.max(file.0);
        self.file = file;
        self.positions.insert(file, 0);
        self.operation(context, Action::Open, 0, 0);
        file
    }

    /// Goes on with a file that is open.
    pub fn switch_to(&mut self, file: FileId) {
        self.file = file;
    }

    /// Closes the file.
    pub fn close(&mut self, context: u32) {
        self.operation(context, Action::Close, 0, 0);
    }

    /// Moves the file's position.
    pub fn seek(&mut self, context: u32, offset: u64) {
        self.operation(context, Action::Seek, offset, 0);
        self.positions.insert(self.file, offset);
    }

    /// Writes at the file's position.
    pub fn write(&mut self, context: u32, len: u64) {
        self.write_at(context, self.position(), len);
    }

    /// Writes somewhere.
    pub fn write_at(&mut self, context: u32, offset: u64, len: u64) {
        self.transfer(context, Action::Write, offset, len);
    }

    /// Reads at the file's position.
    pub fn read(&mut self, context: u32, len: u64) {
        self.transfer(context, Action::Read, self.position(), len);
    }

    /// The file's position.
    pub fn position(&self) -> u64 {
        self.positions.get(&self.file).copied().unwrap_or(0)
    }

    /// Where the file ends.
    pub fn end(&self) -> u64 {
        self.ends.get(&self.file).copied().unwrap_or(0)
    }

    fn transfer(&mut self, context: u32, action: Action, offset: u64, len: u64) {
        self.operation(context, action, offset, len);
        let end = self.ends.entry(self.file).or_default();
        *end = (*end).max(offset + len);
        self.positions.insert(self.file, offset + len);
    }

    fn operation(&mut self, context: u32, action: Action, offset: u64, len: u64) {
        // A library needs some microseconds between two calls, and the storage is not always equally fast.
        self.time += self.random.about(20_000, 200);
        let duration = self.random.about(30_000 + len / SPEED, 100);
        self.events.push(Event {
            time: Nanos(self.time),
            duration: Nanos(duration),
            process: 0,
            thread: 0,
            file: self.file,
            action,
            layer: self.layer,
            context: ContextId(context),
            offset,
            len,
            result: if action.is_transfer() { len as i64 } else { 0 },
        });
        self.time += duration;
    }
}

/// A variable of CM1: three-dimensional ones are large.
fn variable_bytes(variable: u32) -> u64 {
    match variable % 3 {
        0 => 14 * KIB,
        _ => 576_000,
    }
}

const CM1_VARIABLES: u32 = 30;

/// Objects in HDF5's metadata cache that are written when a file is closed: where, and how much.
const CM1_CACHE: [(u64, u64); 24] = [
    (96, 40),
    (136, 544),
    (680, 328),
    (800, 272),
    (1072, 120),
    (1400, 40),
    (1832, 544),
    (2376, 328),
    (96 + 4096, 272),
    (4464, 120),
    (5000, 512),
    (5512, 512),
    (6200, 40),
    (6744, 544),
    (7288, 328),
    (8192, 272),
    (8464, 120),
    (9000, 512),
    (9512, 40),
    (10_056, 544),
    (10_600, 328),
    (11_000, 272),
    (11_272, 120),
    (12_000, 512),
];

/// CM1 with HDF5 over POSIX: one new file a phase, the same sequence in each, a third of it seeks, and HDF5 going
/// back and forth between data and metadata. About 190 contexts. The paper's hit ratio of 84.7 % with a perfect
/// one after learning leaves about 15 % for the first phase, so a run has eight here.
pub fn cm1_posix(phases: u64) -> Vec<Event> {
    let mut program = Program::new(1);
    for _ in 0..phases {
        cm1_phase(&mut program, false);
        program.compute(Nanos::from_secs(60));
    }
    program.events
}

fn cm1_phase(program: &mut Program, is_gzip: bool) {
    program.create(1);
    program.read(2, 8);
    program.read(3, 512);
    program.seek(4, 0);
    program.write(5, 96);
    let mut data = 16 * KIB;
    for variable in 0..CM1_VARIABLES {
        let context = 10 + 6 * variable;
        let header = 2048 + 400 * u64::from(variable);
        program.seek(context, header);
        program.write(context + 1, 272);
        program.write(context + 2, 40);
        program.seek(context + 3, data);
        program.write(context + 4, variable_bytes(variable));
        // Half of the variables have attributes behind their data.
        if variable % 2 == 0 {
            program.write(context + 5, 120);
        }
        data = program
            .position()
            .next_multiple_of(if is_gzip { 8 } else { 2048 });
    }
    flush_cache(program);
    program.seek(6, 0);
    program.write(7, 96);
    program.close(8);
}

/// What HDF5 does when a file is closed: one loop, so the same contexts with many places and sizes; what lies
/// behind the last is written without a seek.
fn flush_cache(program: &mut Program) {
    for (offset, len) in CM1_CACHE {
        if program.position() != offset {
            program.seek(200, offset);
        }
        program.write(201, len);
    }
}

/// CM1 with HDF5 and compression: blocks differ a little in size from phase to phase, what follows them lies
/// elsewhere each time, and metadata is allocated between them, so HDF5 jumps back by distances that vary.
pub fn cm1_gzip(phases: u64) -> Vec<Event> {
    let mut program = Program::new(2);
    for _ in 0..phases {
        gzip_phase(&mut program);
        program.compute(Nanos::from_secs(60));
    }
    program.events
}

fn gzip_phase(program: &mut Program) {
    program.create(1);
    program.read(2, 8);
    program.write_at(3, 0, 96);
    program.write(4, 4000);
    let mut tree = 0;
    for variable in 0..CM1_VARIABLES {
        let context = 10 + 10 * variable;
        // A block of metadata lasts for four variables; then one is allocated behind the data.
        if variable % 4 == 0 {
            tree = program.end();
            program.seek(context, tree);
            program.write(context + 1, 2048);
        }
        let end = program.end();
        program.seek(context + 2, end);
        for _ in 0..3 {
            let size = program.random.about(20 * KIB, 30);
            program.write(context + 3, size);
        }
        program.seek(context + 4, tree + 512 * u64::from(variable % 4));
        program.write(context + 5, 328);
        program.write(context + 6, 120);
        program.seek(context + 7, 96 + 100 * u64::from(variable));
        program.write(context + 8, 100);
    }
    program.seek(400, 0);
    program.write(401, 96);
    program.close(402);
}

/// CM1 with HDF5 over MPI-IO: the same kind of file without seeks, since calls say where they write. The paper's
/// hit ratio of 96.3 % leaves less than 4 % for the first phase, so a run has 40 here.
pub fn cm1_mpiio(phases: u64) -> Vec<Event> {
    let mut program = Program::new(3);
    program.layer = Layer::MpiIo;
    for _ in 0..phases {
        mpiio_phase(&mut program);
        program.compute(Nanos::from_secs(60));
    }
    program.events
}

fn mpiio_phase(program: &mut Program) {
    program.create(1);
    program.write_at(2, 0, 96);
    let mut data = 16 * KIB;
    for variable in 0..CM1_VARIABLES {
        let context = 10 + 6 * variable;
        program.write_at(context, 2048 + 400 * u64::from(variable), 272);
        program.write(context + 1, 40);
        program.write(context + 2, 40);
        program.write_at(context + 3, data, variable_bytes(variable));
        program.write(context + 4, 512);
        program.write(context + 5, 4);
        data = program.position().next_multiple_of(512);
    }
    for (offset, len) in CM1_CACHE {
        program.write_at(201, offset, len);
    }
    program.write_at(6, 0, 96);
    program.close(7);
}

/// GTC: one new file an iteration, a header, and then a loop over all particles, whose number differs each time.
/// 17 contexts. The paper's run has about 13 000 particles a phase.
pub fn gtc(phases: u64, particles: u64) -> Vec<Event> {
    gtc_with(phases, particles, 50)
}

/// The same with particles whose number differs by up to so many per mille.
pub fn gtc_with(phases: u64, particles: u64, per_mille: u64) -> Vec<Event> {
    let mut program = Program::new(4);
    for _ in 0..phases {
        program.create(1);
        for context in 2..13 {
            program.write(context, 4 * u64::from(context));
        }
        // Numbers are written as text: their length varies.
        let digits = program.random.below(3);
        program.write(13, 10 + digits);
        for _ in 0..program.random.about(particles, per_mille) {
            program.write(14, 8000);
        }
        let rest = program.random.about(4000, 900);
        program.write(15, rest);
        program.write(16, 4);
        program.close(17);
        program.compute(Nanos::from_secs(30));
    }
    program.events
}

const NEK_RANKS: u64 = 32;
const NEK_FIELDS: u32 = 5;

/// Nek5000: reads its initial conditions, then rank 0 writes the fields that the others have sent it. Which of two
/// pieces of code writes a block depends on the data; both write the same. The last output is other code.
pub fn nek5000(phases: u64) -> Vec<Event> {
    let mut program = Program::new(5);
    program.open(1, FileId(1));
    program.read(2, 132);
    for _ in 0..NEK_RANKS * 4 {
        program.read(3, 4);
        program.read(4, 96 * KIB);
    }
    program.close(5);
    for _ in 0..phases {
        nek_phase(&mut program, 0);
        program.compute(Nanos::from_secs(10));
    }
    nek_phase(&mut program, 20);
    program.events
}

fn nek_phase(program: &mut Program, other: u32) {
    program.create(6 + other);
    program.write(7 + other, 132);
    program.write(8 + other, 4);
    for field in 0..NEK_FIELDS {
        // Markers of Fortran's records around what each rank has sent.
        let context = 40 + 6 * field + 100 * other;
        for _ in 0..NEK_RANKS {
            program.write(context, 4);
            let branch = u32::from(program.random.percent(10));
            program.write(context + 1 + branch, 96 * KIB);
            program.write(context + 3, 4);
        }
    }
    program.close(9 + other);
}

/// LAMMPS: reads its input in many small pieces of code, then rank 0 writes what 512 ranks have sent it, one after
/// the other into one file. Each batch has almost the same size, and almost never exactly the same. The final
/// output is other code. 124 contexts.
pub fn lammps(dumps: u64) -> Vec<Event> {
    let mut program = Program::new(6);
    program.open(1, FileId(1));
    for context in 2..60 {
        program.read(context, 3 + u64::from(context) % 50);
    }
    program.close(60);
    program.create(61);
    for _ in 0..dumps {
        for context in 62..70 {
            program.write(context, 20 + u64::from(context) % 7);
        }
        for _ in 0..512 {
            program.write(70, 3);
            program.write(71, 4096);
            let size = program.random.about(2_700_000, 10);
            program.write(72, size);
        }
        program.compute(Nanos::from_secs(2));
    }
    program.close(73);
    program.create(74);
    for context in 75..124 {
        program.write(context, 10 + u64::from(context) % 90);
    }
    program.close(124);
    program.events
}

/// Files in turn, a block each.
pub fn round_robin(files: u64, rounds: u64) -> Vec<Event> {
    let mut program = Program::new(7);
    for file in 1..=files {
        program.open(1, FileId(file));
    }
    for _ in 0..rounds {
        for file in 1..=files {
            program.switch_to(FileId(file));
            program.write(2, 4096);
        }
        program.compute(Nanos::from_millis(50));
    }
    program.events
}

/// An index, and for each of its entries a block of four files in turn; a log between rounds.
pub fn nested_files(rounds: u64) -> Vec<Event> {
    let mut program = Program::new(8);
    for file in 1..=6 {
        program.open(1, FileId(file));
    }
    for _ in 0..rounds {
        for _ in 0..5 {
            program.switch_to(FileId(1));
            program.read(2, 64);
            for file in 2..=5 {
                program.switch_to(FileId(file));
                program.read(3, 4096);
                program.read(4, 512);
            }
        }
        program.switch_to(FileId(6));
        program.write(5, 100);
        program.compute(Nanos::from_millis(10));
    }
    program.events
}

/// The same operations as who does not see call stacks records them.
pub fn without_stacks(events: &[Event]) -> Vec<Event> {
    let unknown = |event: &Event| Event {
        context: ContextId::UNKNOWN,
        ..*event
    };
    events.iter().map(unknown).collect()
}

/// All six programs of the paper, at the length at which they are judged.
pub fn all() -> [(&'static str, Vec<Event>); 6] {
    [
        ("CM1 (POSIX)", cm1_posix(8)),
        ("CM1 (Gzip)", cm1_gzip(8)),
        ("CM1 (MPI-I/O)", cm1_mpiio(40)),
        ("Nek5000", nek5000(60)),
        ("GTC", gtc(8, 13_000)),
        ("LAMMPS", lammps(40)),
    ]
}
