//! Descriptors of forwarded files behave as descriptors.

#![cfg(target_arch = "x86_64")]

mod common;

use common::{PREFIX, Site, finish, finish_within, succeed};
use presagio_forward::Spread;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn calls_return_what_they_return_on_a_plain_directory() {
    let site = Site::new();
    let printed = site.same("calls.c", &[]);
    assert!(printed.lines().count() > 150, "{printed}");
}

#[test]
fn processes_that_share_a_descriptor_share_its_position() {
    let site = Site::new();
    let printed = site.same("shared.c", &[]);
    assert_eq!(
        printed.matches("records 900 strange 0 ordered 1").count(),
        3
    );
}

#[test]
fn threads_that_first_use_a_descriptor_at_once_share_its_position() {
    let site = Site::new();
    let printed = site.run("first.c", &[]);
    assert_eq!(printed, "wrong 0 position 80\n");
}

#[test]
fn descriptors_go_through_fork_and_exec() {
    let site = Site::new();
    let printed = site.same("execs.c", &[]);
    assert!(
        printed.contains("write 6\nclosed -1 EBADF\nread 3 ren\n"),
        "{printed}"
    );
}

#[test]
fn system_calls_around_the_library_get_an_error_and_no_wrong_byte() {
    let site = Site::new();
    let printed = site.run("raw.c", &[]);
    assert_eq!(printed.matches(": refused\n").count(), 26, "{printed}");
    assert!(
        printed.ends_with("write 4\nwrite to null 20\nread from null 0\nread 9 oursuched\n"),
        "{printed}"
    );
    assert_eq!(
        std::fs::read(site.export().join("raw")).unwrap(),
        b"oursuched"
    );
}

#[test]
fn threads_and_signal_handlers_lose_nothing() {
    let site = Site::new();
    let printed = site.run("threads.c", &[]);
    assert_eq!(printed, "bad 0 lines 720 of 720\nsignals some logged all\n");
}

#[test]
fn memory_that_is_not_there_is_efault_and_nobody_elses_trouble() {
    let site = Site::new();
    let printed = site.same("faults.c", &[]);
    assert!(printed.ends_with("others fine\n"), "{printed}");
}

#[test]
fn a_program_with_threads_forks_under_load() {
    let site = Site::new();
    let printed = site.run("forkload.c", &[]);
    assert_eq!(printed, "failed 0 bad 0 position 600\n");
}

#[test]
fn a_fork_meets_threads_in_the_middle_of_anything() {
    let site = Site::new();
    let printed = site.run("forks.c", &[]);
    assert_eq!(printed, "stat failed 0\nspawn failed 0\nflush failed 0\n");
}

#[test]
fn children_of_vfork_redirect_and_exec() {
    let site = Site::new();
    let printed = site.same("vforks.c", &[]);
    assert!(
        printed.contains("begin\none\ntwo\nbetween\nthree\nend\nappended\n"),
        "{printed}"
    );
}

#[test]
fn what_a_child_of_vfork_connects_to_is_not_taken_for_its_parents() {
    let site = Site::new();
    let printed = site.same("guests.c", &[]);
    assert!(printed.ends_with("5 child\n0 guests failed\n"), "{printed}");
}

#[test]
fn cancelled_threads_leave_no_lock_and_no_half_of_a_write() {
    let site = Site::new();
    let printed = site.run("cancels.c", &[]);
    assert_eq!(printed, "cancelled 40 whole 1 strange 0 some 1\n");
}

#[test]
fn mappings_are_copies_and_shared_ones_for_writing_are_refused() {
    let site = Site::new();
    site.same("maps.c", &[]);
    let printed = site.run("maps.c", &["forwarded"]);
    assert!(
        printed.contains("shared for writing ENODEV\nmade writable later refused\n"),
        "{printed}"
    );
}

#[test]
fn locks_hold_between_processes() {
    let site = Site::new();
    let printed = site.same("locks.c", &[]);
    assert!(printed.contains("interrupted: EINTR"), "{printed}");
}

#[test]
fn locks_are_handed_on_though_there_are_two_nodes() {
    for spread in [Spread::Clients, Spread::Files] {
        let site = Site::with_two_nodes(spread);
        let printed = site.run("handed.c", &[]);
        assert_eq!(printed, "forked 12\nexecuted 8\nclosed 8\n", "{spread:?}");
    }
}

#[test]
fn a_lock_that_cannot_be_handed_on_is_not_lost_in_silence() {
    for spread in [Spread::Clients, Spread::Files] {
        let site = Site::with_two_nodes(spread);
        let room = site.room().display().to_string();
        let printed = site.run("handed.c", &["hidden", &room]);
        assert_eq!(
            printed, "forked: 1 lost, 1 kept\nexecuted: 1 lost, 1 kept\nat home: kept\n",
            "{spread:?}"
        );
    }
}

/// The process has not noticed yet: it did nothing since.
#[test]
fn a_lock_that_a_restarted_node_gave_to_others_meanwhile_is_not_handed_on() {
    let mut site = Site::new();
    let program = site.compile("handed.c");
    for way in ["fork", "exec"] {
        let mut command = site.command(&program, &[PREFIX, "forgotten", way]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 7];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        assert_eq!(&said, b"locked\n");
        site.kill_node();
        site.start_node();
        let other = site.script("flock $FAR/locked0 echo others");
        assert_eq!(String::from_utf8_lossy(&other.stdout), "others\n");
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let status = finish(child, "handed").status;
        assert_eq!(status.code(), Some(1), "{way}: it is lost");
    }
}

/// What is written down for it needs a descriptor, and those that it may have are our connections'.
#[test]
fn who_has_a_lock_and_many_connections_can_become_another_program() {
    let site = Site::with_many_names(40);
    let output = site.script(
        "ulimit -n 4096; python3 -c '
import fcntl, os
far = os.environ[\"FAR\"]
fds = [os.open(f\"{far}/file{i}\", os.O_RDWR | os.O_CREAT) for i in range(400)]
ours = sum(os.path.exists(f\"/proc/self/fd/{i}\") for i in range(1000, 1024))
print(ours, flush=True)
fcntl.flock(fds[0], fcntl.LOCK_EX)
os.set_inheritable(fds[0], True)
os.execv(\"/bin/sh\", [\"sh\", \"-c\", f\"echo locked >&{fds[0]}; cat {far}/file0\"])'",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "24\nlocked\n");
}

#[test]
fn what_is_synced_is_what_was_written_to_append_or_not() {
    let (site, noted) = Site::with_noted_syncs();
    let nothing = site.compile_library("nosync.c");
    let mut command = site.command(site.compile("syncs.c"), &[PREFIX]);
    let libraries = [common::library(), nothing].map(|path| path.display().to_string());
    let output = succeed(command.env("LD_PRELOAD", libraries.join(":")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    let mut counts = std::collections::BTreeMap::<u32, u32>::new();
    for fid in noted.lock().unwrap().iter() {
        *counts.entry(*fid).or_default() += 1;
    }
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable();
    // Two of the file that is written in both ways, and one that is open beside it.
    assert_eq!(counts, [2, 6, 6]);
}

#[test]
fn directories_have_no_locks_and_say_so() {
    let site = Site::new();
    let output = site.script(
        "mkdir $FAR/dir; python3 -c '
import errno, fcntl, os
fd = os.open(os.environ[\"FAR\"] + \"/dir\", os.O_RDONLY)
for lock in (lambda: fcntl.flock(fd, fcntl.LOCK_EX), lambda: fcntl.lockf(fd, fcntl.LOCK_SH)):
    try:
        lock()
        print(\"locked\")
    except OSError as error:
        print(errno.errorcode[error.errno])'",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ENOLCK\nENOLCK\n");
}

#[test]
fn a_test_does_not_wait_for_ever_for_what_its_program_left_behind() {
    let site = Site::new();
    let mut command = site.command("bash", &["-c", "sleep 1000000 &"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let waits = || finish_within(Duration::from_millis(200), child, "bash");
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(waits)).unwrap_err();
}

#[test]
fn forks_at_once_leave_no_pipe_in_each_others_children() {
    let site = Site::new();
    let printed = site.run("pipes.c", &[]);
    assert_eq!(printed, "400 forks, 0 strange descriptors\n");
}

#[test]
fn no_signal_handler_runs_in_the_middle_of_a_fork() {
    let site = Site::new();
    let printed = site.run("uninterrupted.c", &[]);
    assert_eq!(printed, "before 64\nhere 64\nthere 64\n");
}

#[test]
fn links_and_dots_lead_where_the_kernel_goes() {
    let site = Site::new();
    let elsewhere = site.room().join("elsewhere");
    for name in ["elsewhere", "elsewhere/below"] {
        std::fs::create_dir(site.room().join(name)).unwrap();
    }
    std::fs::write(elsewhere.join("below/outside"), "outside").unwrap();
    let below = elsewhere.join("below").display().to_string();
    // What the first run wrote outside is there in the second: both write the same.
    std::fs::write(elsewhere.join("below/outside"), "written outside").unwrap();
    let printed = site.same("links.c", &[&below]);
    assert!(printed.contains("get chain 3 top\n"), "{printed}");
}

#[test]
fn a_program_that_closes_all_descriptors_goes_on() {
    let site = Site::new();
    // What it inherits from whoever runs the test it closes in both runs.
    let printed = site.same("closeall.c", &[]);
    assert!(
        printed.ends_with("1\n0\n1\n1\n-1\n120 7\n0\n7\n"),
        "{printed}"
    );
}

#[test]
fn a_node_that_is_killed_and_started_again_loses_nothing() {
    let mut site = Site::new();
    let program = site.compile("keeps_on.c");
    let mut command = site.command(program, &[PREFIX, "8"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut kills = 0;
    while child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(400));
        site.kill_node();
        std::thread::sleep(Duration::from_millis(30));
        site.start_node();
        kills += 1;
    }
    let output = finish(child, "keeps_on");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "failed 0\n",
        "{told}"
    );
    assert!(output.status.success() && kills > 5, "{kills} kills");
}

#[test]
fn a_descriptor_can_be_passed_through_a_socket() {
    let site = Site::new();
    let printed = site.same("passes.c", &[]);
    assert!(
        printed.contains("read 22 parent, from the child\n"),
        "{printed}"
    );
}

#[test]
fn a_descriptor_by_its_name_is_the_file_again() {
    let site = Site::new();
    let output = site.script(
        "printf abcdef > $FAR/file; cat /dev/stdin < $FAR/file; cat 5< $FAR/file < /dev/fd/5
         { head -c 2 > /dev/null; cat /proc/self/fd/0; } < $FAR/file; bash -c 'echo gh >> /dev/stdout' >> $FAR/file; cat $FAR/file",
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "abcdefabcdefabcdefabcdefgh\n");
}

#[test]
fn every_call_takes_the_name_of_a_descriptor_for_its_file() {
    let site = Site::new();
    let printed = site.same("magic.c", &[]);
    assert!(printed.contains("/dev/stdin: 3 zer\n"), "{printed}");
}

#[test]
fn a_lock_that_would_end_with_its_taker_is_refused() {
    let site = Site::new();
    let output = site.script(
        "flock $FAR/lock echo locked; exec 9> $FAR/lock; flock 9 2> /dev/null && echo taken || echo refused",
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "locked\nrefused\n");
}

#[test]
fn large_transfers_arrive_whole() {
    let site = Site::new();
    let output = site.script(
        "head -c 50000001 /dev/urandom > noise; dd if=noise of=$FAR/a bs=7M 2> /dev/null; dd if=$FAR/a of=back bs=3M 2> /dev/null
         cmp noise back; cp $FAR/a $FAR/b; cmp $FAR/b noise; cat $FAR/b | cmp - noise; echo same",
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "same\n");
    let noise = std::fs::read(site.room().join("noise")).unwrap();
    assert!(std::fs::read(site.export().join("b")).unwrap() == noise);
}

#[test]
fn what_is_mapped_or_run_is_whole_though_reads_are_short() {
    let site = Site::with_short_reads();
    let output = site.script(
        r#"seq 300000 > numbers; cp numbers /bin/echo $FAR; cmp numbers $FAR/numbers; $FAR/echo run
         python3 -c '
import mmap, os
with open(os.environ["FAR"] + "/numbers", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    print(mapped[:] == open("numbers", "rb").read())'"#,
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run\nTrue\n");
}

#[test]
fn without_a_node_calls_fail_and_nothing_hangs() {
    let mut site = Site::new();
    site.script("echo there > $FAR/file");
    let text = "exec 5< $FAR/file; read -r first <&5; echo $first; touch killed; while [ ! -e gone ]; do sleep 0.1; done
                cat <&5 2>/dev/null || echo failed; cat $FAR/file 2> /dev/null || echo failed";
    let mut command = site.command("bash", &["-c", text]);
    command.current_dir(site.room()).env("FAR", PREFIX);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !site.room().join("killed").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    site.kill_node();
    std::fs::write(site.room().join("gone"), "").unwrap();
    let output = finish(child, "bash");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "there\nfailed\nfailed\n");
}
