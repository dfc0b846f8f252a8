//! Names, directories and working directories of forwarded files behave as those of a plain directory.

#![cfg(target_arch = "x86_64")]

mod common;

use common::{PREFIX, Site, succeed};

#[test]
fn every_call_on_names_gives_what_it_gives_on_a_plain_directory() {
    let site = Site::new();
    let printed = site.same("names.c", &[]);
    assert!(printed.lines().count() > 300, "{printed}");
}

#[test]
fn programs_are_run_in_every_way_there_is() {
    let site = Site::new();
    let printed = site.same("runs.c", &[]);
    assert!(
        printed.contains("self called as ./self with ./by-self"),
        "{printed}"
    );
}

#[test]
fn a_name_cannot_be_moved_or_linked_out_of_the_export() {
    let site = Site::new();
    std::fs::write(site.export().join("file"), "inside").unwrap();
    let outside = site.room().join("outside");
    std::fs::write(&outside, "outside").unwrap();
    let text = format!(
        "import os, errno\n\
         def tried(call, *names):\n\
         \x20   try: call(*names); return 'done'\n\
         \x20   except OSError as error: return errno.errorcode[error.errno]\n\
         far, out = '{PREFIX}/file', '{}'\n\
         print(tried(os.rename, far, out + '2'), tried(os.rename, out, far), tried(os.link, far, out + '3'), tried(os.link, out, far + '4'))",
        outside.display()
    );
    let output = succeed(&mut site.command("/usr/bin/python3", &["-c", &text]));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "EXDEV EXDEV EXDEV EXDEV\n"
    );
    assert_eq!(
        std::fs::read(site.export().join("file")).unwrap(),
        b"inside"
    );
    assert_eq!(std::fs::read(outside).unwrap(), b"outside");
}

#[test]
fn a_move_between_the_export_and_a_local_directory_copies() {
    let site = Site::new();
    let tree = site.room().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/b/c"), vec![7; 300_000]).unwrap();
    site.script("mv tree $FAR/moved; test ! -e tree; mv $FAR/moved back");
    assert_eq!(
        std::fs::read(site.room().join("back/a/b/c")).unwrap(),
        vec![7; 300_000]
    );
    assert!(!site.export().join("moved").exists());
}

#[test]
fn paths_lead_in_and_out_of_the_export() {
    let site = Site::new();
    std::fs::create_dir_all(site.export().join("d/e")).unwrap();
    std::fs::write(site.room().join("local"), "local\n").unwrap();
    std::fs::write(site.export().join("d/far"), "far\n").unwrap();
    let local = site.room().display().to_string();
    std::os::unix::fs::symlink(&local, site.export().join("out")).unwrap();
    std::os::unix::fs::symlink(format!("{PREFIX}/d"), site.export().join("in")).unwrap();
    let output = site.script(
        "cat $FAR/out/local $FAR/in/far $FAR/d/e/../far /tmp/../$FAR/d//./far $FAR/../$FAR/d/far\n\
         cd $FAR/d/e; cat ../far ../../out/local; cd ../../..; pwd; cd $FAR/out; pwd -P; cat local; echo new > made; cd -; pwd\n\
         realpath $FAR/out/local $FAR/in/far",
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed = printed.replace(&local, "LOCAL").replace(PREFIX, "FAR");
    let expected =
        "local\nfar\nfar\nfar\nfar\nfar\nlocal\n/\nLOCAL\nlocal\n/\n/\nLOCAL/local\nFAR/d/far\n";
    assert_eq!(printed, expected);
    assert_eq!(std::fs::read(site.room().join("made")).unwrap(), b"new\n");
}

#[test]
fn what_is_made_has_the_mode_and_the_umask_of_the_program() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    site.script("umask 027; cd $FAR; mkdir d; touch f; mkfifo p; (umask 0; touch g; mkdir e); mkdir -m 700 m");
    let mode = |name: &str| {
        let metadata = site.export().join(name).symlink_metadata().unwrap();
        metadata.permissions().mode() & 0o7777
    };
    let modes = ["d", "f", "p", "g", "e", "m"].map(mode);
    assert_eq!(modes, [0o750, 0o640, 0o640, 0o666, 0o777, 0o700]);
}
