//! What locks promise, against a model that counts bytes and one by one.

use super::file::has_no_locks;
use super::*;
use crate::sys::{FileLock, set_lock};
use proptest::prelude::*;
use std::os::fd::AsFd;

const KEY: FileKey = FileKey {
    device: 1,
    inode: 2,
};

const CLIENT: Client = Client::Known(known(9));

const fn known(number: u8) -> Known {
    Known {
        instance: [number; 16],
        uid: 1000,
    }
}

/// Locks of which those of any number of files may wait for lost clients.
fn new(before: impl IntoIterator<Item = Known>, kept_for: Duration) -> Locks {
    Locks::new(before, kept_for, usize::MAX)
}

fn owner(process: u32) -> Owner {
    Owner {
        uid: 1000,
        client: Some(CLIENT),
        name: b"node1"[..].into(),
        process,
    }
}

fn wanted(process: u32, kind: LockType, start: u64, end: u64) -> Wanted {
    Wanted {
        owner: owner(process),
        client: CLIENT,
        through: process.into(),
        kind,
        start,
        end,
        reclaim: false,
    }
}

/// The same for an owner that clients share, by one of them.
fn shared(client: u8, through: u64, kind: LockType) -> Wanted {
    let plain = wanted(0, kind, 0, 10);
    Wanted {
        owner: Owner {
            client: None,
            ..plain.owner
        },
        client: Client::Known(known(client)),
        through,
        ..plain
    }
}

fn claimed(wanted: Wanted) -> Wanted {
    Wanted {
        reclaim: true,
        ..wanted
    }
}

fn set(locks: &Locks, wanted: &Wanted) -> LockStatus {
    locks.set(
        KEY,
        wanted,
        None,
        || true,
        || Ok(tempfile::tempfile()?.into()),
    )
}

/// What each byte is locked as, by whom.
#[derive(Default)]
struct Model(HashMap<(u32, u64), bool>);

impl Model {
    fn set(&mut self, process: u32, kind: LockType, bytes: std::ops::Range<u64>) -> bool {
        let exclusive = kind == LockType::Write;
        let blocked = kind != LockType::Unlock
            && self.0.iter().any(|((other, byte), theirs)| {
                *other != process && bytes.contains(byte) && (*theirs || exclusive)
            });
        if blocked {
            return false;
        }
        for byte in bytes {
            match kind {
                LockType::Unlock => self.0.remove(&(process, byte)),
                _ => self.0.insert((process, byte), exclusive),
            };
        }
        true
    }
}

proptest! {
    #[test]
    fn locks_are_those_of_a_model_that_counts_bytes(
        steps in proptest::collection::vec((0u32..3, 0u8..3, 0u64..24, 1u64..12), 1..60),
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Ok(file.reopen()?.into());
        let (locks, mut model) = (new([], Duration::from_secs(60)), Model::default());
        for (process, kind, start, len) in steps {
            let kind = [LockType::Read, LockType::Write, LockType::Unlock][usize::from(kind)];
            let wanted = wanted(process, kind, start, start + len);
            let status = locks.set(KEY, &wanted, None, || true, open);
            let expected = model.set(process, kind, start..start + len);
            prop_assert_eq!(status == LockStatus::Success, expected);
            let held = |byte: u64| locks.files().get(&KEY).map_or(0, |file| {
                lock(file).locks.iter().filter(|lock| lock.overlaps(byte, byte + 1)).count()
            });
            // Another description finds in the file system exactly what the table says.
            let other = file.reopen().unwrap();
            for byte in 0..40 {
                let in_model = model.0.keys().filter(|(_, at)| *at == byte).count();
                prop_assert_eq!(held(byte), in_model);
                let free = set_lock(other.as_fd(), FileLock::Exclusive, byte, byte + 1).unwrap();
                prop_assert_eq!(free, in_model == 0);
                set_lock(other.as_fd(), FileLock::None, byte, byte + 1).unwrap();
            }
        }
    }
}

#[test]
fn locks_end_with_the_file_they_were_taken_through() {
    let locks = new([], Duration::from_secs(60));
    assert_eq!(
        set(&locks, &wanted(1, LockType::Write, 0, u64::MAX)),
        LockStatus::Success
    );
    assert_eq!(
        set(&locks, &wanted(2, LockType::Read, 7, 8)),
        LockStatus::Blocked
    );
    assert_eq!(
        locks
            .conflict(KEY, &wanted(2, LockType::Read, 7, 8))
            .unwrap()
            .owner,
        owner(1)
    );
    locks.closed(KEY, 1);
    assert_eq!(
        set(&locks, &wanted(2, LockType::Read, 7, 8)),
        LockStatus::Success
    );
    assert_eq!(locks.len(), 1);
}

#[test]
fn the_locks_of_a_lost_client_wait_for_it_and_not_for_ever() {
    let locks = new([], Duration::from_secs(60));
    set(&locks, &wanted(1, LockType::Write, 0, 10));
    locks.lost(KEY, 1);
    assert_eq!(
        set(&locks, &wanted(2, LockType::Write, 5, 6)),
        LockStatus::Blocked
    );
    let again = Wanted {
        through: 9,
        ..claimed(wanted(1, LockType::Write, 0, 10))
    };
    assert_eq!(set(&locks, &again), LockStatus::Success);
    locks.closed(KEY, 1);
    assert_eq!(locks.len(), 1, "it is held through another file now");
    let short = new([], Duration::ZERO);
    set(&short, &wanted(1, LockType::Write, 0, 10));
    short.lost(KEY, 1);
    assert_eq!(
        set(&short, &wanted(2, LockType::Write, 5, 6)),
        LockStatus::Success
    );
}

/// What user `uid` wants of a file that has the same number as the one it wants it through.
fn of_user(uid: u32, file: u64) -> (FileKey, Wanted) {
    let mut it = wanted(1, LockType::Write, 0, 10);
    (it.owner.uid, it.through) = (uid, file);
    let key = FileKey { inode: file, ..KEY };
    (key, it)
}

fn set_of(locks: &Locks, (key, wanted): &(FileKey, Wanted)) -> LockStatus {
    let open = || Ok(tempfile::tempfile()?.into());
    locks.set(*key, wanted, None, || true, open)
}

#[test]
fn who_leaves_too_many_locks_behind_loses_its_oldest_and_others_none() {
    let locks = Locks::new([], Duration::from_secs(3600), 4);
    let files = [1, 2, 3, 4, 5].map(|file| of_user(1000, file));
    let theirs = of_user(1001, 9);
    let all = [&theirs].into_iter().chain(&files);
    all.clone()
        .for_each(|it| assert_eq!(set_of(&locks, it), LockStatus::Success));
    // The first of all is another user's, the second is held on.
    locks.lost(theirs.0, 9);
    for (key, wanted) in &files[1..] {
        locks.lost(*key, wanted.through);
    }
    assert_eq!(locks.len(), 5);
    assert_eq!(locks.files().len(), 5, "its descriptor is closed");
    let claim = |(key, wanted): &(FileKey, Wanted)| {
        let mut claim = claimed(wanted.clone());
        claim.through += 100;
        set_of(&locks, &(*key, claim))
    };
    assert_eq!(claim(&files[1]), LockStatus::Error, "it is lost");
    for it in all.filter(|it| it.0 != files[1].0) {
        assert_eq!(claim(it), LockStatus::Success);
    }
    // Those who are back count no more.
    assert_eq!(set_of(&locks, &files[1]), LockStatus::Success);
    locks.lost(files[1].0, 2);
    locks.lost(files[2].0, 103);
    assert_eq!(locks.len(), 6);
}

#[test]
fn a_file_that_somebody_holds_on_is_not_given_up() {
    let locks = Locks::new([], Duration::from_secs(3600), 0);
    let (gone, here) = (
        wanted(1, LockType::Write, 0, 10),
        wanted(2, LockType::Write, 20, 30),
    );
    set(&locks, &gone);
    set(&locks, &here);
    locks.lost(KEY, 1);
    assert_eq!(locks.len(), 2);
    assert_eq!(set(&locks, &claimed(gone)), LockStatus::Success);
    locks.lost(KEY, 1);
    locks.closed(KEY, 2);
    assert_eq!(locks.len(), 0, "there may be none that all have left");
}

#[test]
fn a_file_that_is_given_up_while_it_hangs_ends_when_it_goes_on() {
    let locks = Locks::new([], Duration::from_secs(3600), 1);
    let files = [1, 2].map(|file| of_user(1000, file));
    files
        .iter()
        .for_each(|it| assert_eq!(set_of(&locks, it), LockStatus::Success));
    locks.lost(files[0].0, 1);
    locks.with(files[0].0, |_| {
        // It comes back while the other file hangs, or the test never ends.
        locks.lost(files[1].0, 2);
        assert_eq!(locks.len(), 2);
    });
    assert_eq!(locks.len(), 1);
    let (key, wanted) = files[0].clone();
    assert_eq!(set_of(&locks, &(key, claimed(wanted))), LockStatus::Error);
}

#[test]
fn what_was_given_up_is_lost_also_while_the_node_waits_for_old_locks() {
    let locks = Locks::new([known(9)], Duration::from_secs(3600), 0);
    let claim = claimed(wanted(1, LockType::Write, 0, 10));
    assert_eq!(set(&locks, &claim), LockStatus::Success);
    locks.lost(KEY, 1);
    assert_eq!(locks.len(), 0);
    assert_eq!(set(&locks, &claim), LockStatus::Error);
}

#[test]
fn after_a_restart_old_locks_come_first_until_all_are_back() {
    let locks = new([known(9), known(8)], Duration::from_secs(60));
    let new = wanted(1, LockType::Write, 0, 10);
    assert_eq!(set(&locks, &new), LockStatus::Grace);
    let stranger = Wanted {
        client: Client::Known(known(5)),
        ..claimed(wanted(4, LockType::Write, 50, 60))
    };
    assert_eq!(
        set(&locks, &stranger),
        LockStatus::Error,
        "it held none here"
    );
    let claim = |process| claimed(wanted(process, LockType::Write, 0, 10));
    assert_eq!(set(&locks, &claim(1)), LockStatus::Success);
    assert_eq!(set(&locks, &claim(2)), LockStatus::Error);
    let other = wanted(3, LockType::Write, 20, 30);
    locks.is_back(known(9));
    assert_eq!(set(&locks, &other), LockStatus::Grace);
    locks.is_back(known(8));
    assert!(!locks.waits() && locks.grace_left().is_zero());
    assert_eq!(set(&locks, &other), LockStatus::Success);
    let late = claimed(wanted(1, LockType::Write, 70, 80));
    assert_eq!(set(&locks, &late), LockStatus::Error, "the grace is over");
}

#[test]
fn a_lock_that_was_lost_is_not_given_back_as_if_nothing_had_happened() {
    let locks = new([], Duration::ZERO);
    let mine = wanted(1, LockType::Write, 0, 10);
    set(&locks, &mine);
    locks.lost(KEY, 1);
    // Another one has it, writes, and is done.
    assert_eq!(
        set(&locks, &wanted(2, LockType::Write, 0, 10)),
        LockStatus::Success
    );
    set(&locks, &wanted(2, LockType::Unlock, 0, 10));
    assert_eq!(set(&locks, &claimed(mine.clone())), LockStatus::Error);
    // Nobody had it, and nobody can tell.
    set(&locks, &mine);
    locks.lost(KEY, 1);
    locks.tidy(None);
    assert_eq!(set(&locks, &claimed(mine)), LockStatus::Error);
}

#[test]
fn no_more_is_claimed_than_was_held() {
    let locks = new([], Duration::from_secs(60));
    set(&locks, &wanted(1, LockType::Write, 0, 10));
    set(&locks, &wanted(1, LockType::Read, 10, 20));
    locks.lost(KEY, 1);
    let claim = |kind, start, end| set(&locks, &claimed(wanted(1, kind, start, end)));
    assert_eq!(claim(LockType::Write, 5, 15), LockStatus::Error);
    assert_eq!(claim(LockType::Read, 5, 21), LockStatus::Error);
    assert_eq!(claim(LockType::Read, 5, 20), LockStatus::Success);
    assert_eq!(claim(LockType::Write, 0, 5), LockStatus::Success);
    let other_user = Wanted {
        owner: Owner {
            uid: 1001,
            ..owner(1)
        },
        ..claimed(wanted(1, LockType::Read, 0, 5))
    };
    assert_eq!(set(&locks, &other_user), LockStatus::Error);
}

#[test]
fn the_locks_of_another_user_are_not_given_back() {
    let locks = new([], Duration::from_secs(60));
    set(&locks, &wanted(1, LockType::Write, 0, 10));
    let mut theirs = wanted(1, LockType::Unlock, 0, 10);
    theirs.owner.uid = 1001;
    assert_eq!(set(&locks, &theirs), LockStatus::Success);
    assert_eq!(locks.len(), 1);
    theirs.owner.uid = 1000;
    theirs.owner.client = Some(Client::Session(1));
    set(&locks, &theirs);
    assert_eq!(locks.len(), 1);
}

#[test]
fn clients_that_share_an_owner_hold_a_lock_together() {
    let locks = new([], Duration::from_secs(60));
    let other = wanted(7, LockType::Write, 0, 10);
    assert_eq!(
        set(&locks, &shared(1, 1, LockType::Write)),
        LockStatus::Success
    );
    assert_eq!(
        set(&locks, &shared(2, 2, LockType::Write)),
        LockStatus::Success
    );
    locks.closed(KEY, 1);
    assert_eq!(set(&locks, &other), LockStatus::Blocked, "one has it still");
    locks.closed(KEY, 2);
    assert_eq!(set(&locks, &other), LockStatus::Success);
    set(&locks, &wanted(7, LockType::Unlock, 0, 10));
    // Whoever of them gives it back gives it back for all.
    set(&locks, &shared(1, 1, LockType::Write));
    set(&locks, &shared(2, 2, LockType::Write));
    set(&locks, &shared(2, 2, LockType::Unlock));
    assert_eq!(set(&locks, &other), LockStatus::Success);
}

#[test]
fn the_locks_of_the_dead_end_at_once_and_those_of_others_do_not() {
    let locks = new([], Duration::from_secs(60));
    let other = wanted(7, LockType::Write, 0, 10);
    set(&locks, &shared(1, 1, LockType::Write));
    set(&locks, &shared(2, 2, LockType::Write));
    locks.lost(KEY, 1);
    let theirs = Known {
        uid: 1001,
        ..known(1)
    };
    locks.died(theirs, 1000);
    locks.died(known(1), 1001);
    locks.died(known(2), 1000);
    assert_eq!(set(&locks, &other), LockStatus::Blocked, "1 may come back");
    locks.died(known(1), 1000);
    assert_eq!(set(&locks, &other), LockStatus::Success);
    set(&locks, &wanted(7, LockType::Unlock, 0, 10));
    // What it had still asked for is done after that was known.
    set(&locks, &shared(1, 3, LockType::Write));
    locks.lost(KEY, 3);
    assert_eq!(locks.len(), 0);
}

#[test]
fn who_says_the_number_of_another_users_client_gets_nothing_of_it() {
    let locks = new([known(9)], Duration::from_secs(60));
    let theirs = Known {
        uid: 1001,
        ..known(9)
    };
    let mut stolen = claimed(wanted(1, LockType::Write, 0, 10));
    stolen.client = Client::Known(theirs);
    stolen.owner.client = Some(stolen.client);
    assert_eq!(set(&locks, &stolen), LockStatus::Error);
    locks.is_back(theirs);
    assert!(locks.waits(), "the other one is not back");
    let claim = claimed(wanted(1, LockType::Write, 0, 10));
    assert_eq!(set(&locks, &claim), LockStatus::Success);
    // Nor does it end what the other one has now.
    locks.lost(KEY, 1);
    assert_eq!(set(&locks, &stolen), LockStatus::Error);
    assert_eq!(set(&locks, &claim), LockStatus::Success);
}

#[test]
fn the_dead_are_not_waited_for() {
    let locks = new([known(9), known(8)], Duration::from_secs(3600));
    let other = wanted(3, LockType::Write, 0, 10);
    locks.died(known(9), 1000);
    assert_eq!(set(&locks, &other), LockStatus::Grace);
    locks.died(known(8), 1000);
    assert_eq!(set(&locks, &other), LockStatus::Success);
}

#[test]
fn a_user_has_so_many_locks_and_others_have_theirs() {
    let locks = new([], Duration::from_secs(60));
    let max = LOCKS_PER_USER_MAX as u64;
    let whole = wanted(1, LockType::Read, 0, 4 * max);
    assert_eq!(set(&locks, &whole), LockStatus::Success);
    // Each leaves a hole: two of one.
    for at in 1..max {
        let hole = wanted(1, LockType::Unlock, 2 * at, 2 * at + 1);
        assert_eq!(set(&locks, &hole), LockStatus::Success, "{at}");
    }
    assert_eq!(locks.len() as u64, max);
    let beyond = 3 * max;
    assert_eq!(
        set(&locks, &wanted(1, LockType::Unlock, beyond, beyond + 1)),
        LockStatus::Error
    );
    assert_eq!(
        set(&locks, &wanted(2, LockType::Read, 0, 1)),
        LockStatus::Error
    );
    let mut other = wanted(2, LockType::Read, 0, 1);
    other.owner.uid = 1001;
    assert_eq!(set(&locks, &other), LockStatus::Success);
    assert_eq!(
        set(&locks, &wanted(1, LockType::Unlock, 0, u64::MAX)),
        LockStatus::Success
    );
    assert_eq!(locks.len(), 1);
}

#[test]
fn who_has_as_many_locks_as_it_may_gets_them_back() {
    let locks = new([], Duration::from_secs(3600));
    let max = LOCKS_PER_USER_MAX as u64;
    set(&locks, &wanted(1, LockType::Read, 0, 10));
    for at in 1..max {
        set(&locks, &wanted(1, LockType::Read, 20 * at, 20 * at + 10));
    }
    assert_eq!(locks.len() as u64, max);
    locks.lost(KEY, 1);
    let again = |start, end| Wanted {
        through: 9,
        ..claimed(wanted(1, LockType::Read, start, end))
    };
    for at in 1..10 {
        let piece = again(20 * at, 20 * at + 10);
        assert_eq!(set(&locks, &piece), LockStatus::Success, "{at}");
    }
    // A part of one, which would make more of them.
    assert_eq!(set(&locks, &again(3, 5)), LockStatus::Success);
    assert_eq!(set(&locks, &again(3, 15)), LockStatus::Error, "it had less");
    assert_eq!(locks.len() as u64, max);
    let new = wanted(1, LockType::Read, 20 * max, 20 * max + 1);
    assert_eq!(set(&locks, &new), LockStatus::Error);
    locks.closed(KEY, 1);
    assert_eq!(locks.len(), 10, "these are held through another file");
    locks.closed(KEY, 9);
    assert_eq!(locks.len(), 0);
}

#[test]
fn who_does_not_come_back_is_not_waited_for_for_ever() {
    let locks = new([known(7)], Duration::ZERO);
    let new = wanted(1, LockType::Write, 0, 10);
    assert_eq!(set(&locks, &new), LockStatus::Success);
}

#[test]
fn the_next_node_is_told_who_holds_locks() {
    let dir = tempfile::tempdir().unwrap();
    let root = std::fs::File::open(dir.path()).unwrap();
    let own = OwnDirectory::open(root.as_fd(), "node").unwrap();
    let locks = new([], Duration::from_secs(60));
    let of = |client: u8, process| Wanted {
        client: match client {
            0 => Client::Session(1),
            number => Client::Known(known(number)),
        },
        ..wanted(process, LockType::Read, 0, 10)
    };
    let open = || Ok(tempfile::tempfile()?.into());
    assert_eq!(own.holders(), []);
    // One of them never said who it is: it cannot come back.
    for (client, process) in [(0, 1), (7, 2), (8, 3)] {
        locks.set(KEY, &of(client, process), Some(&own), || true, open);
    }
    let told = |own: &OwnDirectory| {
        let mut all = own.holders();
        all.sort_unstable();
        all
    };
    assert_eq!(told(&own), [known(7), known(8)]);
    locks.closed(KEY, 2);
    locks.tidy(Some(&own));
    assert_eq!(told(&own), [known(8)]);
    locks.closed(KEY, 3);
    locks.tidy(Some(&own));
    assert_eq!(own.holders(), []);
}

/// Somebody waits for the file system: others are not held up, and what is told to the next node is not cut short.
#[test]
fn a_file_system_that_hangs_holds_up_its_own_file_only() {
    let other_key = FileKey {
        device: 1,
        inode: 3,
    };
    let locks = new([], Duration::from_secs(60));
    let (hangs, goes_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| {
            locks.set(
                KEY,
                &wanted(1, LockType::Write, 0, 10),
                None,
                || true,
                || {
                    hangs.wait();
                    goes_on.wait();
                    Ok(tempfile::tempfile()?.into())
                },
            )
        });
        hangs.wait();
        let open = || Ok(tempfile::tempfile()?.into());
        let mut other = shared(2, 2, LockType::Write);
        assert_eq!(
            locks.set(other_key, &other, None, || true, open),
            LockStatus::Success
        );
        locks.tidy(None);
        assert!(lock(&locks.noted).contains_key(&known(2)));
        other.kind = LockType::Unlock;
        locks.set(other_key, &other, None, || true, open);
        goes_on.wait();
        assert_eq!(hanging.join().unwrap(), LockStatus::Success);
    });
    locks.tidy(None);
    assert!(!lock(&locks.noted).contains_key(&known(2)));
    assert!(lock(&locks.noted).contains_key(&known(9)));
}

#[test]
fn the_dead_of_a_file_that_hangs_are_let_go_when_it_goes_on() {
    let locks = new([], Duration::from_secs(3600));
    set(&locks, &shared(1, 1, LockType::Read));
    let (hangs, goes_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let other = Wanted {
        start: 20,
        end: 30,
        ..wanted(7, LockType::Write, 0, 0)
    };
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| {
            locks.with(KEY, |_| {
                hangs.wait();
                goes_on.wait();
            });
        });
        hangs.wait();
        // It comes back while the file hangs, or the test never ends.
        locks.died(known(1), 1000);
        locks.tidy(None);
        assert_eq!(locks.len(), 1);
        goes_on.wait();
        hanging.join().unwrap();
    });
    assert_eq!(set(&locks, &other), LockStatus::Success);
    assert_eq!(locks.len(), 1, "whoever looks lets go");
    assert_eq!(
        set(&locks, &wanted(7, LockType::Write, 0, 10)),
        LockStatus::Success
    );
}

#[test]
fn a_lock_that_the_file_system_fails_to_give_is_not_given() {
    let locks = new([], Duration::from_secs(60));
    let wanted = wanted(1, LockType::Write, 0, 10);
    for raw in [libc::EIO, libc::ENOLCK, libc::EMFILE] {
        let failing = || Err(std::io::Error::from_raw_os_error(raw));
        assert_eq!(
            locks.set(KEY, &wanted, None, || true, failing),
            LockStatus::Error
        );
    }
    // To write-lock what can only be read fails: EBADF.
    let file = tempfile::NamedTempFile::new().unwrap();
    let read_only = || Ok(std::fs::File::open(file.path())?.into());
    assert_eq!(
        locks.set(KEY, &wanted, None, || true, read_only),
        LockStatus::Error
    );
    assert_eq!(locks.len(), 0);
    assert_eq!(set(&locks, &wanted), LockStatus::Success);
}

#[test]
fn only_a_file_system_without_locks_has_none_in_the_way() {
    let says = |raw| has_no_locks(&std::io::Error::from_raw_os_error(raw));
    assert!(says(libc::EOPNOTSUPP) && says(libc::ENOSYS));
    assert!(
        ![libc::EIO, libc::ENOLCK, libc::EBADF, libc::EINVAL]
            .map(says)
            .contains(&true)
    );
}
