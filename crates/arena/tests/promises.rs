//! What programs and the manager can rely on, with real threads and processes.

use presagio_arena::*;
use presagio_core::Action;
use std::ffi::CString;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A message that outlives the arena's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Operation(Operation),
    Context(u64, Vec<Frame>),
    Module(u32, Vec<u8>),
    Gap(u64),
}

fn keep(message: Message<'_>) -> Kept {
    match message {
        Message::Operation(operation) => Kept::Operation(operation),
        Message::Context { id, frames } => Kept::Context(id, frames.to_vec()),
        Message::Module { index, name } => Kept::Module(index, name.to_vec()),
        Message::Gap { lost } => Kept::Gap(lost),
    }
}

fn small() -> ArenaOptions {
    ArenaOptions {
        slots: 8,
        records: 256,
        files: 64,
        processes: 8,
        ..ArenaOptions::default()
    }
}

fn attach(address: &str) -> Client {
    let path = CString::new(address).unwrap();
    let command = [b"program".as_slice(), b"argument"];
    Client::attach(&path, command.into_iter()).unwrap()
}

fn open(client: &Client) -> Writer {
    let mut writer = Writer::new();
    assert!(writer.open(client));
    writer
}

fn numbered(number: u64) -> Record {
    Record {
        kind: Kind::Operation(Action::Read),
        // Any but one, which says that times are to be translated.
        flags: number as u8 & !Record::TICKS,
        file: number as u32 % 64,
        generation: !number as u32,
        context: number.wrapping_mul(3),
        start: number.wrapping_mul(5),
        duration: number.wrapping_mul(7),
        offset: number,
        len: number.wrapping_mul(11),
        result: -(number as i64),
    }
}

fn operation(record: Record) -> Kept {
    Kept::Operation(Operation {
        action: Action::Read,
        flags: record.flags,
        file: record.file,
        generation: record.generation,
        context: record.context,
        start: record.start,
        duration: record.duration,
        offset: record.offset,
        len: record.len,
        result: record.result,
    })
}

fn drained(arena: &mut Arena) -> Vec<(Origin, Kept)> {
    let mut all = Vec::new();
    arena.drain(|origin, message| all.push((*origin, keep(message))));
    all
}

/// Runs `child` in a forked process, which must do nothing but system calls and writes to the arena.
fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child calls nothing that needs another thread, and leaves by _exit.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            child();
            libc::_exit(0);
        }
        pid
    }
}

fn wait(pid: i32) {
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
}

#[test]
fn every_byte_of_every_message_arrives_in_order_while_the_ring_goes_round() {
    const ROUNDS: u64 = 20_000;
    let mut arena = Arena::create(&ArenaOptions {
        mode: Mode {
            complete: true,
            ..Mode::default()
        },
        ..small()
    })
    .unwrap();
    let address = arena.address();
    let done = AtomicBool::new(false);
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = attach(&address);
            let mut writer = open(&client);
            for number in 0..ROUNDS {
                assert!(write_numbered(&mut writer, &client, number));
            }
            done.store(true, Ordering::Release);
        });
        loop {
            let last = done.load(Ordering::Acquire);
            arena.drain(|_, message| got.push(keep(message)));
            if last {
                break;
            }
        }
    });
    assert_eq!(got.len() as u64, ROUNDS);
    for (number, message) in (0..).zip(got) {
        assert_eq!(message, expected(number), "{number}");
    }
    assert_eq!(arena.losses(), Losses::default());
}

/// An operation, a context or a module by turns, of any length.
fn write_numbered(writer: &mut Writer, client: &Client, number: u64) -> bool {
    let words = |count: usize| {
        (0..count as u64)
            .map(move |i| [number ^ i; 8])
            .collect::<Vec<_>>()
    };
    match number % 3 {
        0 => writer.push(client, &numbered(number)),
        1 => {
            let mut record = Record::new(Kind::Context);
            record.context = number;
            record.len = number % 257;
            let payload = words((number % 257).div_ceil(4) as usize);
            writer.push_message(client, &record, payload.into_iter())
        }
        _ => {
            let mut record = Record::new(Kind::Module);
            record.context = number;
            record.len = number % 4097;
            let payload = words((number % 4097).div_ceil(64) as usize);
            writer.push_message(client, &record, payload.into_iter())
        }
    }
}

fn expected(number: u64) -> Kept {
    match number % 3 {
        0 => operation(numbered(number)),
        1 => {
            let frame = |i: u64| Frame {
                module: (number ^ (i / 4)) as u32,
                offset: number ^ (i / 4),
            };
            Kept::Context(number, (0..number % 257).map(frame).collect())
        }
        _ => {
            let byte = |i: u64| (number ^ (i / 64)).to_le_bytes()[i as usize % 8];
            Kept::Module(number as u32, (0..number % 4097).map(byte).collect())
        }
    }
}

#[test]
fn a_full_ring_drops_counts_and_says_where_the_gap_is() {
    let mut arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let mut writer = open(&client);
    let written = (0..300)
        .filter(|&number| writer.push(&client, &numbered(number)))
        .count();
    // One place went to the record that says who writes.
    assert_eq!(written, 255);
    assert_eq!(arena.losses().dropped, 45);
    let first = drained(&mut arena);
    assert_eq!(first.len(), 255);
    assert_eq!(first[254].1, operation(numbered(254)));
    assert!(writer.push(&client, &numbered(300)));
    let then: Vec<Kept> = drained(&mut arena).into_iter().map(|m| m.1).collect();
    assert_eq!(then, [Kept::Gap(45), operation(numbered(300))]);
}

#[test]
fn each_thread_has_a_ring_and_too_many_threads_are_counted() {
    let mut arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let barrier = std::sync::Barrier::new(12);
    std::thread::scope(|scope| {
        for number in 0..12 {
            let (client, barrier) = (&client, &barrier);
            scope.spawn(move || {
                let mut writer = Writer::new();
                if writer.open(client) {
                    writer.push(client, &numbered(number));
                }
                barrier.wait();
            });
        }
    });
    assert_eq!(arena.losses().no_slot, 4);
    let all = drained(&mut arena);
    assert_eq!(all.len(), 8);
    let tids: std::collections::HashSet<u32> = all.iter().map(|m| m.0.tid).collect();
    assert_eq!(tids.len(), 8);
    assert!(all.iter().all(|m| m.0.pid == std::process::id()));
    // The threads are dead, so their slots serve others.
    wait_for(|| {
        arena.sweep(|_| ());
        let mut writer = Writer::new();
        let open = writer.open(&client);
        writer.release(&client);
        arena.drain(|_, _| ());
        open
    });
}

/// A thread that was joined may still be seen for a moment.
fn wait_for(mut condition: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited five seconds in vain");
}

#[test]
fn a_released_slot_is_free_after_it_was_read() {
    let mut arena = Arena::create(&ArenaOptions {
        slots: 1,
        ..small()
    })
    .unwrap();
    let client = attach(&arena.address());
    for number in 0..100 {
        let mut writer = open(&client);
        writer.push(&client, &numbered(number));
        writer.release(&client);
        arena.sweep(|_| ());
        assert_eq!(drained(&mut arena).len(), 1);
    }
}

#[test]
fn a_process_killed_while_it_writes_loses_nothing_that_it_wrote_and_leaves_nothing_behind() {
    let mut arena = Arena::create(&small()).unwrap();
    let address = arena.address();
    for _ in 0..20 {
        let pid = fork(|| {
            let client = attach(&address);
            let found = found(7, b"/data/file");
            client.open_file(&found);
            let mut writer = open(&client);
            for number in 0.. {
                writer.push(&client, &numbered(number));
            }
        });
        let mut got = Vec::new();
        while got.len() < 1000 {
            got.extend(drained(&mut arena));
        }
        // SAFETY: a child of ours.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        wait(pid);
        got.extend(drained(&mut arena));
        check_counting(&got, pid as u32);
        let mut gone = Vec::new();
        arena.sweep(|process| gone.push(process.clone()));
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].pid, pid as u32);
        assert_eq!(gone[0].command, b"program\0argument\0");
        assert_eq!(gone[0].parent, std::process::id());
        // Its file went with it.
        arena.drain(|_, _| ());
        arena.drain(|_, _| ());
        assert_eq!(arena.file(0, 0), None);
        assert_eq!(arena.processes().count(), 0);
    }
}

/// The numbers count up by one, except over gaps, which say by how many more.
fn check_counting(got: &[(Origin, Kept)], pid: u32) {
    let mut next = 0;
    for (origin, message) in got {
        assert_eq!(origin.pid, pid);
        match message {
            Kept::Gap(lost) => next += lost,
            Kept::Operation(read) => {
                assert_eq!(*message, operation(numbered(next)));
                next = read.offset + 1;
            }
            other => panic!("{other:?}"),
        }
    }
}

fn found(descriptor: i32, path: &[u8]) -> Found<'_> {
    Found {
        descriptor,
        device: 1,
        inode: 2,
        size: 3,
        flags: libc::O_RDWR,
        inherited: true,
        path,
    }
}

#[test]
fn an_entry_that_was_found_closed_twice_is_freed_once() {
    let mut arena = Arena::create(&ArenaOptions {
        files: 1,
        ..small()
    })
    .unwrap();
    let client = attach(&arena.address());
    let mut writer = open(&client);
    let mut use_it = |path: &[u8]| {
        let slot = client.open_file(&found(7, path)).unwrap();
        let mut close = Record::new(Kind::Operation(Action::Close));
        (close.file, close.generation) = (slot.index, slot.generation);
        assert!(writer.push(&client, &close));
        client.close_file(slot);
        slot
    };
    use_it(b"/first");
    drained(&mut arena);
    drained(&mut arena);
    // Its record was read, and it is closed still.
    arena.sweep(|_| ());
    drained(&mut arena);
    let second = use_it(b"/second");
    drained(&mut arena);
    let entry = arena.file(second.index, second.generation);
    assert_eq!(entry.map(|entry| entry.path), Some(b"/second".to_vec()));
}

#[test]
fn a_file_keeps_its_name_until_all_that_was_said_about_it_is_read() {
    let mut arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let mut writer = open(&client);
    let slot = client.open_file(&found(7, b"/data/file")).unwrap();
    client.close_file(slot);
    let mut close = Record::new(Kind::Operation(Action::Close));
    (close.file, close.generation) = (slot.index, slot.generation);
    assert!(writer.push(&client, &close));
    drained(&mut arena);
    let entry = arena.file(slot.index, slot.generation).unwrap();
    assert_eq!(entry.path, b"/data/file");
    assert_eq!((entry.pid, entry.descriptor), (client.pid(), 7));
    assert_eq!((entry.device, entry.inode, entry.size), (1, 2, 3));
    assert!(entry.inherited && !entry.cut);
    // A ring that was read just before the close may speak of it yet.
    drained(&mut arena);
    assert!(arena.file(slot.index, slot.generation).is_some());
    drained(&mut arena);
    assert_eq!(arena.file(slot.index, slot.generation), None);
    // All entries can be used, and again, and the next ones are other generations.
    for round in 0..3 {
        let slots: Vec<FileSlot> = (0..64)
            .map(|fd| client.open_file(&found(fd, b"/x")).unwrap())
            .collect();
        assert_eq!(client.open_file(&found(0, b"/x")), None);
        assert_eq!(arena.losses().no_file, round + 1);
        for slot in slots {
            client.close_file(slot);
        }
        arena.sweep(|_| ());
        arena.drain(|_, _| ());
        arena.drain(|_, _| ());
    }
}

#[test]
fn entries_that_stay_in_use_hide_no_free_ones() {
    let mut arena = Arena::create(&ArenaOptions {
        files: 256,
        ..small()
    })
    .unwrap();
    let client = attach(&arena.address());
    let open = |path: &[u8]| client.open_file(&found(7, path));
    let kept: Vec<_> = (0..250).map(|_| open(b"/kept")).collect();
    assert!(kept.iter().all(Option::is_some));
    for _ in 0..1000 {
        client.close_file(open(b"/brief").expect("free entries"));
        arena.sweep(|_| ());
        drained(&mut arena);
        drained(&mut arena);
    }
    assert_eq!(arena.losses().no_file, 0);
}

#[test]
fn an_entry_that_nothing_was_said_about_can_be_given_back_at_once() {
    let arena = Arena::create(&ArenaOptions {
        files: 1,
        ..small()
    })
    .unwrap();
    let client = attach(&arena.address());
    for _ in 0..3 {
        let slot = client.open_file(&found(7, b"/x")).unwrap();
        assert!(arena.file(slot.index, slot.generation).is_some());
        client.undo_file(slot);
        assert_eq!(arena.file(slot.index, slot.generation), None);
    }
}

#[test]
fn processes_that_live_hide_no_free_entries() {
    const PLACES: u32 = 128;
    let arena = Arena::create(&ArenaOptions {
        processes: PLACES,
        ..small()
    })
    .unwrap();
    let memory = std::fs::File::options()
        .write(true)
        .open(arena.address())
        .unwrap();
    // All entries are those of a process that lives, but one that is far from where we begin to look.
    let free = std::process::id().wrapping_add(100) % PLACES;
    let taken = (1u64 << 32 | 2).to_le_bytes();
    for place in (0..PLACES).filter(|place| *place != free) {
        let owner = 8192 + 8 * (small().slots + place);
        memory.write_all_at(&taken, owner.into()).unwrap();
    }
    let client = attach(&arena.address());
    assert_eq!(arena.losses().no_process, 0);
    assert_eq!(arena.process(free).map(|p| p.pid), Some(client.pid()));
}

#[test]
fn a_process_far_from_its_place_is_found_again_after_an_exec_though_others_have_left() {
    const PLACES: u32 = 128;
    let mut arena = Arena::create(&ArenaOptions {
        processes: PLACES,
        ..small()
    })
    .unwrap();
    let memory = std::fs::File::options()
        .write(true)
        .open(arena.address())
        .unwrap();
    let place = |far: u32| std::process::id().wrapping_add(far) % PLACES;
    let own = |far: u32, word: u64| {
        let owner = 8192 + 8 * (small().slots + place(far));
        memory
            .write_all_at(&word.to_le_bytes(), owner.into())
            .unwrap();
    };
    // Those near it are of a process that lives.
    (0..64).for_each(|far| own(far, 1u64 << 32 | 2));
    let pid = attach(&arena.address()).pid();
    let entry = arena.process(place(64)).expect("the first that is free");
    assert_eq!((entry.pid, entry.image), (pid, 0));
    // They leave, and it becomes another program.
    (0..64).for_each(|far| own(far, 0));
    attach(&arena.address());
    let images = |arena: &Arena| arena.processes().map(|p| p.image).collect::<Vec<_>>();
    assert_eq!(images(&arena), [1]);
    arena.sweep(|_| ());
    attach(&arena.address());
    assert_eq!(images(&arena), [2], "it lives on");
}

#[test]
fn a_path_that_is_too_long_is_cut_and_says_so() {
    let arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let path = vec![b'x'; PATH_MAX + 1];
    let slot = client.open_file(&found(7, &path)).unwrap();
    let entry = arena.file(slot.index, slot.generation).unwrap();
    assert!(entry.cut);
    assert_eq!(entry.path, path[..PATH_MAX]);
}

#[test]
fn a_note_is_found_once_by_the_file_it_is_for() {
    let arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let slot = client.open_file(&found(7, b"/data/file")).unwrap();
    assert_eq!(client.note(slot.index, 0), None);
    let note = Note {
        advice: Advice::Random,
        region: 3,
        serial: 1,
    };
    assert!(arena.leave_note(slot.index, slot.generation, note));
    assert!(!arena.leave_note(slot.index, slot.generation + 1, note));
    let (seen, word) = client.note(slot.index, 0).unwrap();
    assert_eq!(seen, note);
    assert_eq!(client.note(slot.index, word), None);
}

#[test]
fn the_child_of_a_fork_and_the_program_after_an_exec_are_told_apart() {
    let mut arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let mut writer = open(&client);
    writer.push(&client, &numbered(1));
    let pid = fork(|| {
        let child = client
            .after_fork([b"child".as_slice()].into_iter())
            .unwrap();
        writer.forget();
        writer.open(&child);
        writer.push(&child, &numbered(2));
        child.count(Counter::Forks, 3);
    });
    wait(pid);
    // What an exec does: everything anew, with the same numbers.
    let after = attach(&arena.address());
    let mut writer = open(&after);
    writer.push(&after, &numbered(3));
    let got = drained(&mut arena);
    let of = |number| {
        let wanted = operation(numbered(number));
        got.iter().find(|m| m.1 == wanted).unwrap().0
    };
    assert_eq!((of(1).pid, of(1).image), (std::process::id(), 0));
    assert_eq!((of(3).pid, of(3).image), (std::process::id(), 1));
    assert_eq!(of(1).process, of(3).process);
    assert_eq!(of(2).pid, pid as u32);
    assert_ne!(of(2).process, of(1).process);
    let child = arena.process(of(2).process).unwrap();
    assert_eq!(child.counter(Counter::Forks), 3);
    assert_eq!(child.command, b"child\0");
}

#[test]
fn a_sleeping_manager_is_woken_by_the_first_record() {
    let mut arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let mut writer = open(&client);
    drained(&mut arena);
    assert!(!arena.sleep(Duration::from_millis(1)));
    let turn = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..200 {
                turn.wait();
                writer.push(&client, &numbered(number));
            }
        });
        for _ in 0..200 {
            turn.wait();
            // Only the record ends this sleep before the test's patience does.
            while !arena.sleep(Duration::from_secs(3600)) {}
            assert_eq!(drained(&mut arena).len(), 1);
        }
    });
}

#[test]
fn without_a_manager_nothing_waits() {
    let arena = Arena::create(&ArenaOptions {
        mode: Mode {
            complete: true,
            ..Mode::default()
        },
        ..small()
    })
    .unwrap();
    let client = attach(&arena.address());
    let mut writer = open(&client);
    assert!(client.manager_lives());
    drop(arena);
    assert!(!client.manager_lives());
    let written = (0..100_000)
        .filter(|&number| writer.push(&client, &numbered(number)))
        .count();
    assert_eq!(written, 255);
}

#[test]
fn what_is_no_arena_is_refused() {
    let refused =
        |path: &str| Client::attach(&CString::new(path).unwrap(), std::iter::empty()).unwrap_err();
    assert_eq!(refused("/proc/self/fd/98765"), AttachError::Unreachable);
    assert_eq!(refused("/dev/null"), AttachError::Foreign);
    let arena = Arena::create(&small()).unwrap();
    let memory = std::fs::File::options()
        .read(true)
        .write(true)
        .open(arena.address())
        .unwrap();
    // The version, then the number of slots.
    for place in [8, 28] {
        let mut good = [0; 4];
        memory.read_exact_at(&mut good, place).unwrap();
        memory.write_all_at(&99u32.to_le_bytes(), place).unwrap();
        assert_eq!(refused(&arena.address()), AttachError::Foreign);
        memory.write_all_at(&good, place).unwrap();
    }
    attach(&arena.address());
}

/// Makes the kernel refuse to fill pages from here on, as it does where there is no memory.
fn refuse_to_fill() {
    const MADV_POPULATE_WRITE: u32 = 23;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let leave = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32;
    let mut steps = [
        step(load, 0, 0, 0),
        step(equal, 0, 3, libc::SYS_madvise as u32),
        step(load, 0, 0, 16 + 2 * 8),
        step(equal, 0, 1, MADV_POPULATE_WRITE),
        step(leave, 0, 0, refused),
        step(leave, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: a filter on the stack, for this process alone.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        if libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) != 0 {
            libc::_exit(99);
        }
    }
}

/// The memory that an arena has taken, in bytes.
fn taken(arena: &Arena) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(arena.address()).unwrap().blocks() * 512
}

#[test]
fn an_arena_takes_memory_as_it_is_used() {
    let mut arena = Arena::create(&ArenaOptions::default()).unwrap();
    let first = taken(&arena);
    assert!(first < 256 << 10, "{first}");
    let client = attach(&arena.address());
    let mut writer = open(&client);
    drained(&mut arena);
    arena.sweep(|_| ());
    assert!(taken(&arena) < first + (64 << 10), "{}", taken(&arena));
    for number in 0..10_000 {
        writer.push(&client, &numbered(number));
        drained(&mut arena);
    }
    let ring = 4096 * 64;
    let least = first + ring;
    assert!((least..least + (64 << 10)).contains(&taken(&arena)));
}

#[test]
fn where_there_is_no_memory_nothing_is_touched_that_is_not_there() {
    let mut arena = Arena::create(&small()).unwrap();
    let (address, before) = (arena.address(), taken(&arena));
    let pid = fork(|| {
        refuse_to_fill();
        let client = attach(&address);
        client.count(Counter::Forks, 1);
        client.exiting();
        let mut writer = Writer::new();
        let nothing = client.open_file(&found(7, b"/data/file")).is_none()
            && !writer.open(&client)
            && !writer.push(&client, &numbered(1));
        // SAFETY: leaves.
        unsafe { libc::_exit(i32::from(!nothing)) };
    });
    let mut status = 0;
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(taken(&arena), before);
    let losses = arena.losses();
    assert_eq!((losses.no_process, losses.no_file), (1, 1));
    assert!(drained(&mut arena).is_empty());
    arena.sweep(|_| ());
    // Who has memory finds all as it should be.
    let client = attach(&arena.address());
    let mut writer = open(&client);
    writer.push(&client, &numbered(2));
    assert!(client.open_file(&found(7, b"/data/file")).is_some());
    assert_eq!(drained(&mut arena)[0].1, operation(numbered(2)));
}

#[test]
fn a_ring_that_cannot_grow_drops_without_waiting_and_counts() {
    let options = ArenaOptions {
        records: 1024,
        mode: Mode {
            complete: true,
            ..Mode::default()
        },
        ..small()
    };
    let arena = Arena::create(&options).unwrap();
    let address = arena.address();
    let pid = fork(|| {
        let client = attach(&address);
        let mut writer = open(&client);
        refuse_to_fill();
        for number in 0..1024 {
            writer.push(&client, &numbered(number));
        }
    });
    wait(pid); // two seconds for each record, if it waited
    assert!(arena.losses().dropped > 0);
}

#[test]
fn a_slot_that_was_just_claimed_is_nobody_elses() {
    const ROUNDS: u64 = 20_000;
    let mut arena = Arena::create(&ArenaOptions {
        slots: 2,
        ..small()
    })
    .unwrap();
    let client = attach(&arena.address());
    let running = std::sync::atomic::AtomicU32::new(3);
    let mut got = [0; 3];
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (client, running) = (&client, &running);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let record = numbered(round * 3 + thread);
                    let mut writer = Writer::new();
                    // A ring may be taken, or full.
                    while !writer.open(client) || !writer.push(client, &record) {
                        writer.release(client);
                        std::thread::yield_now();
                    }
                    writer.release(client);
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        loop {
            let is_last = running.load(Ordering::Acquire) == 0;
            arena.drain(|_, message| {
                let Message::Operation(read) = message else {
                    panic!("{message:?}");
                };
                // Each thread's come in their order, none twice, none lost.
                let thread = (read.offset % 3) as usize;
                assert_eq!(read.offset / 3, got[thread]);
                got[thread] += 1;
            });
            arena.sweep(|_| ());
            if is_last {
                break;
            }
        }
    });
    assert_eq!(got, [ROUNDS; 3]);
    assert_eq!(arena.losses().nonsense, 0);
}

#[test]
fn what_a_process_was_before_an_exec_is_known() {
    let mut arena = Arena::create(&small()).unwrap();
    let path = CString::new(arena.address()).unwrap();
    for command in ["first", "second", "third"] {
        let words = [command.as_bytes()];
        let client = Client::attach(&path, words.into_iter()).unwrap();
        open(&client).push(&client, &numbered(1));
    }
    let got = drained(&mut arena);
    let known: Vec<_> = got
        .iter()
        .map(|(origin, _)| arena.process_of(origin))
        .map(|entry| entry.map(|e| (e.command, e.is_over)))
        .collect();
    let second = Some((b"second\0".to_vec(), true));
    let third = Some((b"third\0".to_vec(), false));
    assert_eq!(known, [None, second, third]);
}

#[test]
fn an_arena_is_in_no_core_dump() {
    let arena = Arena::create(&ArenaOptions {
        slots: 5, // no other test has one of this size
        ..small()
    })
    .unwrap();
    let _client = attach(&arena.address());
    let size = std::fs::metadata(arena.address()).unwrap().len() / 1024;
    let size = format!("Size: {size} kB");
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let parts = maps.split("VmFlags:");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let ours = |(before, after): &(String, String)| {
        before.contains("presagio-arena") && before.contains(&size) && !after.is_empty()
    };
    // What stands before the flags is about the same mapping; what stands behind them begins with them.
    let parts: Vec<String> = parts.map(words).collect();
    let pairs = parts.iter().cloned().zip(parts.iter().skip(1).cloned());
    let flags: Vec<_> = pairs.filter(ours).map(|pair| pair.1).collect();
    assert_eq!(flags.len(), 2, "the manager's and the program's");
    assert!(flags.iter().all(|f| f.split(' ').any(|f| f == "dd")));
}

mod gone_mad {
    use super::*;
    use proptest::prelude::*;

    /// Where a program could write, and what: any word, biased to the small and the huge.
    fn scribbles() -> impl Strategy<Value = Vec<(usize, u64)>> {
        let value = prop_oneof![
            any::<u64>(),
            0u64..300,
            Just(u64::MAX),
            (0u64..70).prop_map(|k| k << 32 | 64)
        ];
        proptest::collection::vec((0usize..40_000, value), 1..400)
    }

    #[test]
    fn a_thread_that_finds_its_ring_written_over_does_without() {
        let arena = Arena::create(&small()).unwrap();
        let client = attach(&arena.address());
        let memory = std::fs::File::options();
        let memory = memory.clone().write(true).open(arena.address()).unwrap();
        // Owners of slots and processes begin behind the header, at 8192; then come the slots, still free.
        let owners = 8 * (small().slots + small().processes) as usize;
        let slots = 8192 + owners.next_multiple_of(128);
        let ones = vec![0xff; 128 * small().slots as usize];
        memory.write_all_at(&ones, slots as u64).unwrap();
        let mut writer = Writer::new();
        assert!(!writer.open(&client) && !writer.push(&client, &numbered(1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_program_that_writes_anything_anywhere_does_no_harm_to_the_manager(scribbles in scribbles()) {
            let mut arena = Arena::create(&small()).unwrap();
            let client = attach(&arena.address());
            let mut writer = open(&client);
            for number in 0..100 {
                writer.push(&client, &numbered(number));
            }
            let slot = client.open_file(&found(7, b"/data/file"));
            let memory = std::fs::File::options().write(true).open(arena.address()).unwrap();
            let words = memory.metadata().unwrap().len() as usize / 8;
            for (place, value) in scribbles {
                memory.write_all_at(&value.to_le_bytes(), (place % words * 8) as u64).unwrap();
            }
            for _ in 0..3 {
                arena.drain(|_, message| { keep(message); });
                arena.sweep(|_| ());
            }
            for index in 0..100 {
                let _ = (arena.file(index, 0), arena.process(index));
            }
            let _ = arena.losses();
            // Nor to another program that trusts the same arena.
            writer.push(&client, &numbered(0));
            if let Some(slot) = slot {
                client.note(slot.index, 0);
                client.close_file(slot);
            }
            let _ = client.follows(b"/data/file");
        }
    }
}

#[test]
fn times_by_the_processors_counter_arrive_as_times_of_the_clock_in_order() {
    let mut arena = Arena::create(&small()).unwrap();
    let client = attach(&arena.address());
    let mut writer = open(&client);
    let mut starts = Vec::new();
    for _ in 0..20 {
        for _ in 0..10 {
            let stamp = Stamp::now(client.wants_ticks());
            let mut record = Record::new(Kind::Operation(Action::Read));
            sys::sleep_ns(10_000);
            stamp.note(&mut record, stamp.elapsed());
            assert!(writer.push(&client, &record));
        }
        arena.drain(|_, message| {
            let Message::Operation(operation) = message else {
                panic!("{message:?}");
            };
            assert_eq!(operation.flags, 0);
            // Both clocks are looked at one after the other, and in between others may run; the span is one clock's own.
            assert!(operation.duration >= 9_000, "{operation:?}");
            starts.push(operation.start);
        });
        let now = sys::monotonic_ns();
        assert!(starts.iter().rev().take(10).all(|start| *start <= now));
    }
    assert_eq!(starts.len(), 200);
    assert!(starts.is_sorted());
}

#[test]
fn an_address_leads_to_the_arena_from_elsewhere() {
    let leads = |address: &str| {
        let link = std::fs::read_link(address).unwrap();
        link.to_string_lossy().contains("presagio-arena")
    };
    let arena = Arena::create(&small()).unwrap();
    let address = arena.address();
    assert!(!address.contains("task") && leads(&address), "{address}");
    // A thread with descriptors of its own is named.
    let made = std::thread::spawn(move || {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
        let arena = Arena::create(&small()).unwrap();
        let address = arena.address();
        assert!(address.contains("task") && leads(&address), "{address}");
    });
    made.join().unwrap();
}
