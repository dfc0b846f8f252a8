//! What cannot be seen from inside a program is said: never is a summary taken for the whole that is not.

use super::*;

/// Compiles a program of the library's tests, or of this text.
fn build(place: &Place, name: &str, source: &str, flags: &[&str]) -> String {
    let file = place.text(&format!("{name}.c"));
    fs::write(&file, source).unwrap();
    let program = place.text(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-D_GNU_SOURCE", "-o", &program, &file]);
    let output = gcc.args(flags).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    program
}

/// What the summary of a script says was not seen.
#[track_caller]
fn not_seen(place: &Place, script: &str) -> Vec<String> {
    let (ended, json) = place.json(&[], script);
    ended.ok();
    let said = json["not_seen"].as_array().unwrap();
    said.iter()
        .map(|line| line.as_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn assert_said(said: &[String], what: &str) {
    assert!(said.iter().any(|line| line.contains(what)), "{said:?}");
}

const QUIET: &str = "int main(void) { return 0; }";

#[test]
fn raw_calls_and_mapped_files_are_said() {
    let place = Place::new("rawcalls");
    let raw = include_str!("../../../preload/tests/c/rawcalls.c");
    // It writes to a file that is called "raw", which must not be itself.
    build(&place, "rawcalls", raw, &[]);
    let said = not_seen(&place, "./rawcalls");
    assert_said(
        &said,
        "1 reads and writes that the program made as raw system calls",
    );
    assert_said(&said, "1 calls of io_uring");
    let maps = "
        #include <fcntl.h>
        #include <sys/mman.h>
        int main(void) { int fd = open(\"in\", O_RDONLY);
            return mmap(0, 8192, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED; }";
    build(&place, "maps", maps, &[]);
    let said = not_seen(&place, "./maps");
    assert_eq!(
        said,
        ["8.0 KiB of files that were mapped into memory: page faults do their I/O"]
    );
    assert_eq!(not_seen(&place, "cat in > out"), [""; 0]);
}

#[test]
fn rings_that_are_used_without_a_call_of_the_c_library_are_said() {
    let place = Place::new("rings");
    // As liburing does it: the instruction itself. With an argument it stays until it was looked at.
    let rings = "
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static char room[256];
        int main(int count, char **arguments) {
            (void)arguments;
            long ring = SYS_io_uring_setup;
            __asm__ volatile(\"syscall\" : \"+a\"(ring) : \"D\"(4), \"S\"(room) : \"rcx\", \"r11\", \"memory\");
            char byte;
            if (ring < 0 || read(open(\"in\", O_RDONLY), &byte, 1) != 1) return 77;
            if (count > 1) sleep(3);
            return 0; }";
    build(&place, "rings", rings, &[]);
    let alone = Command::new(place.path("rings"))
        .current_dir(place.path(""))
        .status();
    if alone.unwrap().code() == Some(77) {
        return skipped("there is no io_uring here");
    }
    assert_said(
        &not_seen(&place, "./rings stay"),
        "1 processes that have rings of io_uring",
    );
}

#[test]
fn programs_that_a_shell_starts_and_that_cannot_be_watched_are_said() {
    let place = Place::new("started");
    build(&place, "fixed", QUIET, &["-static"]);
    build(&place, "usual", QUIET, &[]);
    assert_said(
        &not_seen(&place, "./fixed"),
        "1 programs that are linked statically",
    );
    assert_said(
        &not_seen(&place, "./fixed; ./fixed; true"),
        "2 programs that are linked statically",
    );
    assert_said(
        &not_seen(&place, "env -i ./usual; true"),
        "1 programs that were started without the variables",
    );
    assert_eq!(not_seen(&place, "./usual; ./usual"), [""; 0]);
}

#[test]
fn ranks_on_other_nodes_are_said_to_be_missing() {
    let place = Place::new("elsewhere");
    let rank = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_SIZE";
    // Its variables can be read while it lives: it stays a while, and on a very busy machine there is another one.
    let rank_of = "import time; [open('in', 'rb').read(65536) for _ in range(40)]; time.sleep(0.5)";
    let notes = |size: u32| {
        let script = format!("{rank}={size} python3 -c \"{rank_of}\"");
        let (ended, json) = place.json(&["--no-model"], &script);
        ended.ok();
        json["notes"].to_string()
    };
    assert!(!notes(1).contains("other nodes"));
    let is_said = |_| notes(2).contains("mpirun presagio run");
    assert!((0..10).any(is_said), "never said");
}
