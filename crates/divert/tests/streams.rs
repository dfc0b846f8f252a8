//! Streams on forwarded files behave as the C library's own.

#![cfg(target_arch = "x86_64")]

mod common;

use common::{PREFIX, Site, succeed};
use std::process::Stdio;

#[test]
fn streams_give_what_they_give_on_a_plain_directory() {
    let site = Site::new();
    let printed = site.same("streams.c", &[]);
    assert!(
        printed.contains("random 1, then 3000000 same 1"),
        "{printed}"
    );
}

#[test]
fn output_of_any_program_can_be_redirected() {
    let site = Site::new();
    site.script(
        "cd $FAR\n\
         seq 100000 > lines\n\
         ls -1 / > names 2>&1\n\
         { printf 'builtin %s\\n' one; echo two; /bin/echo three; awk 'BEGIN { print \"four\" }'; } > mixed\n\
         perl -e 'print \"perl\\n\"; print STDERR \"error\\n\"' > out 2> err\n\
         /usr/bin/python3 -c 'print(\"python\")' >> out\n\
         sort -rn < lines | sed -n 1p >> out\n\
         cat lines | grep -c 7 >> out; tr a-z A-Z < out > upper; ls none 2>> err || true",
    );
    let read = |name: &str| std::fs::read_to_string(site.export().join(name)).unwrap();
    assert_eq!(read("lines").lines().count(), 100_000);
    assert!(read("names").contains("etc\n"));
    assert_eq!(read("mixed"), "builtin one\ntwo\nthree\nfour\n");
    assert_eq!(read("upper"), "PERL\nPYTHON\n100000\n40951\n");
    assert!(
        read("err").starts_with("error\nls: cannot access 'none'"),
        "{}",
        read("err")
    );
}

#[test]
fn a_program_started_with_forwarded_standard_streams_uses_them() {
    let site = Site::new();
    let program = site.compile("streams.c");
    let inner = format!(
        "mkdir {PREFIX}/d; {} {PREFIX}/d > {PREFIX}/out 2> {PREFIX}/err; tail -n 2 {PREFIX}/out",
        program.display()
    );
    let output = succeed(site.command("bash", &["-c", &inner]).stdin(Stdio::null()));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.ends_with("unbuffered 2\n"), "{printed}");
    assert_eq!(
        std::fs::read(site.export().join("d/left")).unwrap(),
        b"flushed at the end"
    );
    assert_eq!(std::fs::read(site.export().join("err")).unwrap(), b"");
}

#[test]
fn nothing_is_printed_twice_when_a_child_is_redirected() {
    let site = Site::new();
    let text = "#include <stdio.h>\n#include <fcntl.h>\n#include <unistd.h>\n#include <sys/wait.h>\n\
        int main(int c, char **v) { (void)c; printf(\"pending \"); if (fork() == 0) { int fd = open(v[1], O_WRONLY | O_CREAT, 0644);\n\
        dup2(fd, 1); close(fd); if (v[2]) { execl(\"/bin/echo\", \"echo\", \"child\", (char *)0); } printf(\"child\\n\"); return 0; }\n\
        wait(0); printf(\"parent\\n\"); return 0; }\n";
    let (source, program) = (site.room().join("twice.c"), site.room().join("twice"));
    std::fs::write(&source, text).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    succeed(gcc.arg("-o").arg(&program).arg(&source));
    for (more, expected) in [(&["exec"][..], "child\n"), (&[][..], "pending child\n")] {
        let file = format!("{PREFIX}/redirected");
        let _ = std::fs::remove_file(site.export().join("redirected"));
        let output = succeed(site.command(&program, &[&file]).args(more));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "pending parent\n");
        let written = std::fs::read_to_string(site.export().join("redirected")).unwrap();
        assert_eq!(written, expected);
    }
}
