//! What is installed works from where it is, and goes without a trace; the units, scripts and recipes that come with it are
//! accepted by those who read them.

mod common;

use common::nodes::{At, Mounted, Running, until};
use common::skips::is_root;
use common::{TempDir, library, program, repository};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a command said, if it succeeded.
fn said(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{out}{err}");
    out + &err
}

/// `make` with what this test was built with.
fn make(target: &str, variables: &[String]) {
    let built = Path::new(program()).parent().unwrap();
    let libraries = library();
    let libraries = libraries.parent().unwrap();
    said(
        Command::new("make")
            .args(["-C", repository().to_str().unwrap(), target])
            .arg(format!("BUILT={}", built.display()))
            .arg(format!("BUILT_LIBS={}", libraries.display()))
            .args(variables),
    );
}

/// All files below a directory, from there.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => found.push(path.strip_prefix(dir).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_installed_works_from_there_and_is_gone_when_it_is_removed() {
    let place = TempDir::new("install");
    let root = Path::new(place.path()).join("root");
    let variables = [
        format!("DESTDIR={}", root.display()),
        "PREFIX=/opt/presagio".to_owned(),
    ];
    make("install", &variables);
    let prefix = root.join("opt/presagio");
    let names = files(&prefix);
    for name in [
        "bin/presagio",
        "lib/presagio/libpresagio_divert.so",
        "lib/libagios.so",
        "lib/libpresagio_predict_c.a",
        "include/presagio_predict.hpp",
        "lib/systemd/system/presagio-ionode@.service",
        "share/man/man1/presagio-trace-convert.1",
        "share/bash-completion/completions/presagio",
        "share/presagio/prolog.sh",
    ] {
        assert!(
            names.contains(&PathBuf::from(name)),
            "no {name} in {names:?}"
        );
    }
    let unit =
        fs::read_to_string(prefix.join("lib/systemd/system/presagio-council.service")).unwrap();
    assert!(
        unit.contains("ExecStart=/opt/presagio/bin/presagio council"),
        "{unit}"
    );

    // The libraries are found without being named, for each way to watch.
    fs::write(root.join("in"), vec![7; 1 << 20]).unwrap();
    for way in [&[][..], &["--in-process"]] {
        let summary = said(
            Command::new(prefix.join("bin/presagio"))
                .args([&["run", "--no-model"], way, &["--", "cp", "in", "out"]].concat())
                .current_dir(&root)
                .env_remove("PRESAGIO_LIB"),
        );
        assert!(summary.contains("1.0 MiB"), "{way:?}: {summary}");
    }
    fs::remove_file(root.join("in")).unwrap();
    fs::remove_file(root.join("out")).unwrap();

    // A service in C finds header and library where they are.
    let source = root.join("service.c");
    fs::write(
        &source,
        "#include <agios.h>\nint main(void) { return agios_last_error() == 0; }\n",
    )
    .unwrap();
    let service = root.join("service");
    said(
        Command::new("cc")
            .arg("-o")
            .arg(&service)
            .arg(&source)
            .args([
                format!("-I{}", prefix.join("include").display()),
                format!("-L{}", prefix.join("lib").display()),
                "-lagios".to_owned(),
            ]),
    );
    said(Command::new(&service).env("LD_LIBRARY_PATH", prefix.join("lib")));
    fs::remove_file(source).unwrap();
    fs::remove_file(service).unwrap();

    make("uninstall", &variables);
    assert_eq!(files(&root), Vec::<PathBuf>::new());
}

#[test]
fn systemd_accepts_the_units() {
    let place = TempDir::new("units");
    make(
        "install",
        &[
            format!("PREFIX={0}", place.path()),
            format!("SYSCONFDIR={0}/etc", place.path()),
        ],
    );
    let units = Path::new(place.path()).join("lib/systemd/system");
    // An instance needs a name, and its file of options.
    fs::rename(
        units.join("presagio-ionode@.service"),
        units.join("presagio-ionode@scratch.service"),
    )
    .unwrap();
    for unit in [
        "presagio-ionode@scratch.service",
        "presagio-council.service",
    ] {
        let said = said(
            Command::new("systemd-analyze")
                .args(["verify", "--man=no"])
                .arg(units.join(unit)),
        );
        // What other units of the machine lack is not ours.
        let ours: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("presagio"))
            .collect();
        assert_eq!(ours, [""; 0]);
    }
}

/// The capabilities that the node's unit leaves it, as setpriv names them.
fn capabilities() -> String {
    let unit = fs::read_to_string(repository().join("packaging/systemd/presagio-ionode@.service"))
        .unwrap();
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    let names = line
        .split(' ')
        .map(|name| name.to_lowercase().replace("cap_", "+"));
    ["-all".to_owned()]
        .into_iter()
        .chain(names)
        .collect::<Vec<_>>()
        .join(",")
}

#[test]
fn a_node_with_the_capabilities_of_its_unit_serves_each_user_as_itself() {
    if !is_root("acting as others") {
        return;
    }
    // Not below the directory of the build, which other users may have no way to.
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let export = dir.join("export");
    fs::create_dir(&export).unwrap();
    fs::set_permissions(&export, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(export.join("secret"), "root's").unwrap();
    fs::set_permissions(export.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let at = At::Unix(dir.join("node"));
    let mut node = Command::new("setpriv");
    node.arg("--no-new-privs")
        .arg(format!("--bounding-set={}", capabilities()));
    node.arg(program())
        .arg("ionode")
        .arg("--export")
        .arg(&export);
    node.args(["--listen", &at.text(), "--policy", "adaptive"]);
    let _node = Running::start(node);
    until("the node listens", || at.answers());
    let mounted = Mounted::start(&[&at], &dir.join("mnt"), None, &[]);
    let as_user = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=4242",
            "--regid=4242",
            "--clear-groups",
            "sh",
            "-c",
            script,
        ]);
        command
            .current_dir(mounted.path("."))
            .status()
            .unwrap()
            .success()
    };
    assert!(as_user(
        "echo hers > mine && mkdir own && mv mine own/mine && chmod 640 own/mine && cat own/mine"
    ));
    let made = fs::metadata(export.join("own/mine")).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (4242, 0o640));
    assert!(!as_user("cat secret"), "a file of root alone");
    // Whoever owns the mount is root, with what the unit leaves of it.
    std::os::unix::fs::chown(mounted.path("secret"), Some(4242), None).unwrap();
    assert!(as_user("cat secret && rm secret"));
}

#[test]
fn a_job_of_root_has_its_mount_from_prolog_to_epilog() {
    a_job_has_its_mount("root");
}

#[test]
fn a_job_of_another_user_has_its_mount_from_prolog_to_epilog() {
    a_job_has_its_mount("nobody");
}

/// A copy of `presagio` that anybody can start, and mount with: where users mount, fusermount3 has root's powers for that, and
/// where tests run there may be no fusermount3, and a /dev/fuse for root alone.
fn with_powers_to_mount(dir: &Path) -> PathBuf {
    fs::create_dir(dir).unwrap();
    let copy = dir.join("presagio");
    fs::copy(program(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    said(
        Command::new("setcap")
            .arg("cap_sys_admin,cap_dac_override+ep")
            .arg(&copy),
    );
    dir.to_owned()
}

fn a_job_has_its_mount(user: &str) {
    if !is_root("acting as others") {
        return;
    }
    // Not below the directory of the build, which other users may have no way to.
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let programs = with_powers_to_mount(&dir.join("bin"));
    let export = dir.join("export");
    fs::create_dir(&export).unwrap();
    fs::write(export.join("file"), "bytes").unwrap();
    let at = At::Unix(dir.join("node"));
    let node = [
        "ionode",
        "--export",
        export.to_str().unwrap(),
        "--listen",
        &at.text(),
    ];
    let _node = Running::presagio(None, &node.map(str::to_owned));
    until("the node listens", || at.answers());
    let script = |name: &str, nodes: &str| {
        said(
            Command::new(repository().join("packaging/slurm").join(name))
                .env("PRESAGIO_NODES", nodes)
                .env("PRESAGIO_ROOT", dir.join("jobs"))
                .env("PRESAGIO_RUN", dir.join("run"))
                .env("PRESAGIO_PATH", &programs)
                .env("SLURM_JOB_ID", "17")
                .env("SLURM_JOB_USER", user),
        )
    };
    let job = dir.join("jobs/17");
    script("prolog.sh", &at.text());
    let as_user = |command: &[&str]| {
        said(
            Command::new("runuser")
                .args(["-u", user, "--"])
                .args(command),
        )
    };
    let file = job.join("file");
    assert_eq!(as_user(&["cat", file.to_str().unwrap()]), "bytes");
    // The task's prolog is run as the user.
    let task = fs::read_to_string(repository().join("packaging/slurm/task-prolog.sh")).unwrap();
    let root = format!("PRESAGIO_ROOT={}", dir.join("jobs").display());
    let task = ["env", &root, "SLURM_JOB_ID=17", "bash", "-c", &task];
    assert_eq!(
        as_user(&task),
        format!("export PRESAGIO_MOUNT={}\n", job.display())
    );
    script("epilog.sh", "");
    assert!(!job.exists());
    assert_eq!(files(&dir.join("run")), Vec::<PathBuf>::new());
    assert_eq!(as_user(&task), "");
}

#[test]
fn shell_scripts_and_the_recipe_are_well_formed() {
    let packaging = repository().join("packaging");
    let scripts = fs::read_dir(packaging.join("slurm")).unwrap();
    said(Command::new("shellcheck").args(scripts.map(|entry| entry.unwrap().path())));
    let check = "import ast, sys; tree = ast.parse(open(sys.argv[1]).read()); \
                 assert any(isinstance(it, ast.ClassDef) and it.name == 'Presagio' for it in tree.body)";
    said(
        Command::new("python3")
            .args(["-c", check])
            .arg(packaging.join("spack/package.py")),
    );
}
