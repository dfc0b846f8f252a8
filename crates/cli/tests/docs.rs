//! The documents hold: every command in them is run, every link leads somewhere, every subcommand has its place.
//!
//! A fence ```` ```sh ```` is a script. All of a page are run one after the other, by bash, in a directory like a checkout
//! after `make build` with what the page takes for granted ([`pages!`]); any command that fails fails the test. Where a
//! command names a place of a real machine (`/scratch`), it gets one below that directory; what runs until it is told to end
//! (a node, a mount) runs beside the rest; what would take minutes is given less to do ([`LESS`]); dashboards are at
//! ports of their own. A page that says how `presagio` comes on the `PATH` has it from there alone.
//!
//! What cannot run here has `<!-- not run: REASON -->` above it. Options of `presagio` and targets of `make` are checked
//! all the same.

mod common;

use common::{TempDir, free_port, library, presagio_ok, program, repository};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// Places that the documents name, which each page has for itself.
const PLACES: &[&str] = &["/scratch", "/lustre", "/mnt", "/run/", "/var/lib/presagio"];

/// What would take long, and the same with less to do.
const LESS: &[(&str, &str)] = &[
    (
        "presagio profile /scratch",
        "--size 4MiB --budget 1 --interval 64K-256K:64K",
    ),
    ("presagio sim 001-fig2a", "--set app.total=16MiB"),
    ("presagio demo", "--reads 40 --rounds 1 --periods 2"),
    ("presagio sched compare", "--size 1MiB --rounds 1"),
];

/// A program as users have it: reads one file and writes another.
const APP: &str = r#"
head -c 3000000 /dev/urandom > input.dat
printf '#!/bin/sh\ncat "${1:-input.dat}" > "${2:-output.dat}"\n' > app
chmod +x app
"#;

/// Two runs of it, as summaries and traces.
const RUNS: &str = r#"
presagio run --quiet --trace app.ptrace --json run.json -- ./app
presagio run --quiet --trace before.ptrace --json before.json -- ./app
presagio run --quiet --trace after.ptrace --json after.json -- ./app
"#;

/// What Darshan's own tool prints of a log: the content tells the format, not the name.
const DARSHAN: &str =
    "cp $REPO/crates/trace/tests/data/darshan/lustre.txt run.darshan; cp run.darshan job.darshan\n";

/// The sources, as in the root of a checkout.
const SOURCES: &str = "ln -s $REPO/crates crates\n";

/// A program that was built for AGIOS.
const SERVICE: &str = r#"
printf '#include <agios.h>\nint main(void) { return agios_last_error() == 0; }\n' > service.c
"#;

/// The middleware of docs/predict-api.md.
const MIDDLEWARE: &str = r#"
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' $REPO/docs/predict-api.md > middleware.c
"#;

/// Traces by the names of docs/pattern.md.
const PATTERNS: &str = r#"
for name in monday tuesday ior@1 ior@2 bt@1; do presagio trace convert app.ptrace $name.ptrace; done
for name in *.ptrace; do echo $name,app; done > what.csv
"#;

/// A program of one process that reads a file in blocks, as CSV has it, by the name of docs/prediction.md.
const READS: &str = r#"
echo time_ns,process,layer,action,file,offset,length > run.darshan
for i in $(seq 100); do echo $((i * 1000)),0,posix,read,data,$((i * 4096)),4096; done >> run.darshan
"#;

const SCENARIO: &str = "presagio sim first --show > mine.toml\n";

/// One test for each page, with what it takes for granted.
macro_rules! pages {
    ($($test:ident: $page:literal, [$($setup:expr),*];)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                Page::read($page).holds(&[$($setup),*].concat());
            }
        )*
    };
}

pages! {
    the_readme: "README.md", [""];
    contributing: "CONTRIBUTING.md", [""];
    installing: "docs/install.md", [""];
    the_guide_for_users: "docs/guide-user.md", [""];
    the_guide_for_administrators: "docs/guide-admin.md", [""];
    the_guide_for_developers: "docs/guide-developer.md", [SOURCES];
    the_guide_for_researchers: "docs/guide-researcher.md", [""];
    all_commands: "docs/commands.md", [APP];
    limits: "docs/limits.md", [APP];
    troubleshooting: "docs/troubleshooting.md", [APP];
    running: "docs/run.md", [APP, "presagio run --quiet --trace t.ptrace -- ./app; presagio advise t.ptrace -o hints.json\n"];
    reports: "docs/report.md", [APP, RUNS, DARSHAN];
    traces: "docs/traces.md", [DARSHAN];
    prediction: "docs/prediction.md", [READS];
    patterns: "docs/pattern.md", [APP, RUNS, PATTERNS];
    profiles: "docs/profile.md", [""];
    simulation: "docs/sim.md", [""];
    tuning: "docs/tune.md", [SCENARIO];
    nodes: "docs/ionode.md", [APP, "cp input.dat $PLACE/scratch/in\n"];
    the_council: "docs/council.md", [""];
    the_dashboard: "docs/dashboard.md", [""];
    embedding: "docs/embedding.md", [SOURCES, SERVICE];
    the_api_of_predictions: "docs/predict-api.md", [SOURCES, MIDDLEWARE];
}

/// What every script begins with: a failing command is named with its page and line; in the end what was started ends.
const PROLOGUE: &str = r#"
set -Eeuo pipefail
trap 'echo "failed at $AT: $BASH_COMMAND" >&2' ERR
ends() {
    local status=$? pid
    for pid in $(tac $PLACE/services); do
        kill -TERM "$pid" 2>/dev/null && tail --pid="$pid" -f /dev/null
    done
    exit $status
}
trap ends EXIT
mkdir -p $PLACE/scratch $PLACE/lustre $PLACE/mnt $PLACE/run $PLACE/var/lib/presagio
touch $PLACE/services
"#;

/// What is called `presagio` there. A node, a council or a mount is started, and waited for until it is ready.
const WRAPPER: &str = r#"#!/bin/bash
ready() {
    local word
    case "$1" in
    mount) mountpoint -q "$3" ;;
    *) for word in "$@"; do
        case "$word" in
        unix:*) [ -S "${word#unix:}" ] && [ -S "${word#unix:}.control" ] || return 1 ;;
        tcp:127.0.0.1:*) (: </dev/tcp/127.0.0.1/"${word##*:}") 2>/dev/null || return 1 ;;
        esac
    done ;;
    esac
}
case " $* " in
*" --help "*) exec $PROGRAM "$@" ;;
" ionode --"* | " council --"* | " mount "*) ;;
*) exec $PROGRAM "$@" ;;
esac
$PROGRAM "$@" >>$PLACE/log 2>&1 </dev/null &
echo $! >>$PLACE/services
for _ in $(seq 600); do
    ready "$@" && exit 0
    kill -0 $! 2>/dev/null || break
    sleep 0.1
done
cat $PLACE/log >&2
exit 1
"#;

/// A script of a page.
struct Block {
    line: usize,
    text: String,
    is_run: bool,
}

/// A document with its scripts.
struct Page {
    name: &'static str,
    blocks: Vec<Block>,
}

impl Page {
    fn read(name: &'static str) -> Page {
        let text = fs::read_to_string(repository().join(name)).unwrap();
        Page {
            name,
            blocks: blocks(&text),
        }
    }

    fn holds(&self, setup: &str) {
        let dir = TempDir::new("docs");
        let run = self.blocks.iter().filter(|block| block.is_run);
        let ports = [free_port(), free_port()];
        let scripts = run.map(|block| self.script(block, dir.path(), ports));
        let scripts: Vec<String> = scripts.collect();
        if !scripts.is_empty() {
            let script = format!(
                "{PROLOGUE}AT={}:setup\n{setup}{}",
                self.name,
                scripts.concat()
            );
            let says_how = scripts.iter().any(|script| script.contains(FROM_CHECKOUT));
            self.succeeds(&dir, &script, !says_how);
        }
        for block in self.blocks.iter().filter(|block| !block.is_run) {
            for command in commands(&block.text).iter().filter_map(|c| checkable(c)) {
                let script = format!("AT={}:{}\n{PROLOGUE}{command}\n", self.name, block.line);
                self.succeeds(&dir, &script, true);
            }
        }
    }

    fn script(&self, block: &Block, place: &str, ports: [u16; 2]) -> String {
        let lines = block.text.lines().map(|line| at_ports(line, ports) + "\n");
        let mut text: String = lines.collect();
        for (command, less) in LESS {
            text = text.replace(command, &format!("{command} {less}"));
        }
        for name in PLACES {
            text = text.replace(name, &format!("{place}{name}"));
        }
        format!("AT={}:{}\n{text}", self.name, block.line)
    }

    /// Runs a script; `presagio` is on its `PATH`, or has to come there.
    fn succeeds(&self, dir: &TempDir, script: &str, is_on_path: bool) {
        let place = Path::new(dir.path());
        let work = place.join("work");
        let (built, program) = (work.join("target/release"), place.join("program"));
        if !built.exists() {
            build(&built, &program);
        }
        let mut path = std::env::var("PATH").unwrap();
        if is_on_path {
            path = format!("{}:{path}", built.display());
        }
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new("timeout")
            .args(["-k", "5", "300", "bash", "-c", script])
            .current_dir(work)
            .env("PATH", path)
            .env("PROGRAM", program.join("presagio"))
            .env("PLACE", place)
            .env("REPO", repository())
            .env("HOME", dir.path())
            .env_remove("XDG_CACHE_HOME")
            .env_remove("PRESAGIO_LIB")
            .env_remove("LD_LIBRARY_PATH")
            // Open MPI refuses it unless it is told.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .output()
            .unwrap();
        let [out, err] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(status.success(), "{}: {status}\n{out}\n{err}", self.name);
    }
}

/// How a page puts what was built on the `PATH`.
const FROM_CHECKOUT: &str = "export PATH=$PWD/target/release:$PATH\n";

/// What `make build` leaves: the libraries, and `presagio`, which here is [`WRAPPER`]. What that starts is in `program`, with
/// its libraries beside it.
fn build(built: &Path, program: &Path) {
    for dir in [built, program] {
        fs::create_dir_all(dir).unwrap();
        for entry in fs::read_dir(library().parent().unwrap()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            let is_library = name.to_string_lossy().starts_with("lib");
            let extension = path.extension().unwrap_or_default();
            if is_library && (extension == "so" || extension == "a") {
                symlink(&path, dir.join(name)).unwrap();
            }
        }
    }
    // No symbolic link: a program looks for its libraries where it really is.
    fs::hard_link(self::program(), program.join("presagio")).unwrap();
    fs::write(built.join("presagio"), WRAPPER).unwrap();
    fs::set_permissions(built.join("presagio"), Permissions::from_mode(0o755)).unwrap();
}

/// A command with the dashboards of a council and a node at these ports, since those that they have by default may be taken.
fn at_ports(line: &str, [council, node]: [u16; 2]) -> String {
    let services = [("presagio council ", council), ("presagio ionode ", node)];
    let service = services.iter().find(|(begin, _)| line.starts_with(begin));
    if let (Some((_, port)), Some((before, after))) = (service, line.split_once(" --dashboard")) {
        return format!("{before} --dashboard tcp:127.0.0.1:{port}{after}");
    }
    // Without an address it is the council's.
    match line.strip_prefix("presagio top ") {
        Some(rest) if rest.trim_start().starts_with('#') => {
            format!("presagio top tcp:127.0.0.1:{council} {rest}")
        }
        _ => line.to_owned(),
    }
}

/// The scripts of a document.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut above, mut inside, mut is_script) = ("", false, false);
    for (number, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(tag) => {
                inside = true;
                is_script = ["sh", "bash", "console", "shell"].contains(&tag.trim());
                let is_run = !above.starts_with("<!-- not run: ");
                if is_script {
                    let (line, text) = (number + 1, String::new());
                    blocks.push(Block { line, text, is_run });
                }
            }
            None if inside && is_script => {
                let block = blocks.last_mut().expect("a script has begun");
                block.text += &format!("{line}\n");
            }
            None => {}
        }
        if !line.trim().is_empty() {
            above = line;
        }
    }
    blocks
}

/// The commands of a script, whole.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    text.lines().map(|line| line.trim().to_owned()).collect()
}

/// What can be known of a command without running it: whether `presagio` has such options, or `make` such a target.
fn checkable(command: &str) -> Option<String> {
    let command = command.split(" #").next()?.trim_end_matches(['&', ' ']);
    let as_user = command.strip_prefix("sudo ").unwrap_or(command);
    if let Some(targets) = as_user.strip_prefix("make ") {
        return Some(format!("make -n -C $REPO {targets} > /dev/null"));
    }
    let at = command
        .find("presagio ")
        .filter(|at| *at == 0 || command[..*at].ends_with(' '))?;
    let command = command[at..].split([';', '|', '>']).next()?;
    let asked = match command.split_once(" -- ") {
        Some((before, _)) => before,
        None => command,
    };
    Some(format!("{asked} --help > /dev/null"))
}

#[test]
fn a_script_that_is_not_run_says_so_above_it_and_is_checked_as_far_as_possible() {
    let text = "<!-- not run: needs two machines -->\n```sh\nsrun presagio run -- ./app  # x\n```\n\n```sh\nls\n```\n";
    let found = blocks(text);
    assert_eq!(found.len(), 2);
    assert!(!found[0].is_run && found[1].is_run);
    let check = |text: &str| checkable(&commands(text)[0]);
    assert_eq!(
        check(&found[0].text).unwrap(),
        "presagio run --help > /dev/null"
    );
    assert_eq!(
        check("make demo  # y").unwrap(),
        "make -n -C $REPO demo > /dev/null"
    );
    assert_eq!(
        check("sudo make install").unwrap(),
        "make -n -C $REPO install > /dev/null"
    );
    assert_eq!(check("cp a b"), None);
}

#[test]
fn dashboards_are_at_ports_of_their_own() {
    let at = |line: &str| at_ports(line, [1, 2]);
    assert_eq!(
        at("presagio council --store /x --dashboard"),
        "presagio council --store /x --dashboard tcp:127.0.0.1:1"
    );
    assert_eq!(
        at("presagio ionode --dashboard   # of a node alone"),
        "presagio ionode --dashboard tcp:127.0.0.1:2   # of a node alone"
    );
    assert_eq!(
        at("presagio top   # all"),
        "presagio top tcp:127.0.0.1:1   # all"
    );
    let another = "presagio top unix:/x    # without --dashboard";
    assert_eq!(at(another), another);
}

#[test]
#[should_panic(expected = "unexpected argument")]
fn a_wrong_option_in_a_document_is_noticed() {
    let text = "<!-- not run: x -->\n```sh\npresagio ionode --no-such-option /x\n```\n".to_owned();
    let page = Page {
        name: "wrong.md",
        blocks: blocks(&text),
    };
    page.holds("");
}

#[test]
#[should_panic(expected = "failed at missing.md:1")]
fn a_missing_file_in_a_document_is_noticed() {
    let page = Page {
        name: "missing.md",
        blocks: blocks("```sh\npresagio trace info missing.ptrace\n```\n"),
    };
    page.holds("");
}

/// All documents, by their paths in the repository.
fn documents() -> Vec<String> {
    let names = |dir: &str| {
        let entries = fs::read_dir(repository().join(dir)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
        names
    };
    let docs = names("docs").into_iter().map(|name| format!("docs/{name}"));
    names(".").into_iter().chain(docs).collect()
}

#[test]
fn no_page_with_commands_is_left_out() {
    for name in documents() {
        let text = fs::read_to_string(repository().join(&name)).unwrap();
        let is_known = PAGES.contains(&name.as_str());
        assert!(
            is_known || blocks(&text).is_empty(),
            "{name} has commands that nobody runs"
        );
    }
}

#[test]
fn every_link_leads_to_a_file_and_every_page_is_in_the_book() {
    let summary = fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap();
    for name in documents() {
        let path = repository().join(&name);
        let text = fs::read_to_string(&path).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.with_file_name(file),
            };
            assert!(target.exists(), "{name}: {link}");
            let is_in_book = !name.starts_with("docs/") || !file.starts_with("..");
            assert!(is_in_book, "{name}: {link} leads out of the book");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let is_there = anchors(&text).contains(&anchor.to_owned());
                assert!(is_there, "{name}: {link}: no such heading");
            }
        }
        let page = name
            .strip_prefix("docs/")
            .filter(|page| *page != "SUMMARY.md");
        let listed = page.is_none_or(|page| summary.contains(&format!("({page})")));
        assert!(listed, "{name} is not in docs/SUMMARY.md");
    }
}

/// What headings are called in links: small letters, digits, and hyphens for spaces.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter_map(|line| {
        let rest = line.trim_start_matches('#');
        (rest.len() < line.len()).then(|| rest.strip_prefix(' '))?
    });
    let anchor = |heading: &str| {
        let letters = heading.trim().to_lowercase();
        let letters = letters.chars().map(|c| if c == ' ' { '-' } else { c });
        letters
            .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
            .collect()
    };
    let mut names: Vec<String> = Vec::new();
    for name in headings.map(anchor) {
        let name: String = name;
        // The second of a name has a number.
        let again = (1..).map(|n| format!("{name}-{n}"));
        let mut free = [name.clone()].into_iter().chain(again);
        names.extend(free.find(|name| !names.contains(name)));
    }
    names
}

#[test]
fn headings_have_the_names_that_links_use() {
    let text = "# Reports: `presagio report`\n#no heading\n## What is seen, when?\n";
    assert_eq!(
        anchors(text),
        ["reports-presagio-report", "what-is-seen-when"]
    );
}

#[test]
fn every_subcommand_has_its_place_in_the_reference() {
    let reference = fs::read_to_string(repository().join("docs/commands.md")).unwrap();
    let help = presagio_ok(&["--help"]).out;
    let listed = help.split("Commands:\n").nth(1).unwrap();
    // What a long description is continued with is further to the right.
    let names = listed.lines().take_while(|line| !line.is_empty());
    let names = names.filter(|line| !line.starts_with("   "));
    let names: Vec<&str> = names
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(
            reference.contains(&format!("`presagio {name}")),
            "docs/commands.md has no `presagio {name}`"
        );
    }
}

#[test]
fn every_column_and_key_of_a_file_has_its_place_in_the_reference() {
    let read = |name: &str| fs::read_to_string(repository().join(name)).unwrap();
    let traces = read("docs/traces.md");
    for column in presagio_trace::csv::COLUMNS {
        assert!(traces.contains(&format!("`{column}`")), "{column}");
    }
    let (embedding, example) = (read("docs/embedding.md"), read("crates/capi/agios.conf"));
    let lines = example
        .lines()
        .map(|line| line.trim().trim_start_matches('#'));
    let keys: Vec<&str> = lines.filter_map(|l| Some(l.split_once(" = ")?.0)).collect();
    assert!(keys.len() > 15, "{keys:?}");
    for key in keys {
        assert!(embedding.contains(&format!("`{key}`")), "{key}");
    }
}

/// A crate of ours and what it needs of others', by its Cargo.toml; without what is for tests alone.
fn needs() -> Vec<(String, String)> {
    let mut needs = Vec::new();
    for entry in fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let need = line.split(['.', ' ', '=']).next().unwrap();
            let is_need = ["[dependencies]", "[build-dependencies]"].contains(&section);
            let is_name = need.starts_with(|c: char| c.is_ascii_lowercase());
            if is_need && is_name && !need.starts_with("presagio-") {
                needs.push((name.clone(), need.to_owned()));
            }
        }
    }
    needs
}

#[test]
fn what_is_taken_from_others_is_named_with_its_reason() {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let (_, table) = text.split_once("## Dependencies, and why").unwrap();
    let needs = needs();
    assert!(needs.len() > 60, "{needs:?}");
    for (name, need) in needs {
        let row = table.lines().find(|line| {
            let what = line.split('|').nth(1).unwrap_or_default();
            what.contains(&format!("`{need}`"))
        });
        let whose = row.and_then(|row| row.split('|').nth(2));
        let whose = whose.unwrap_or_else(|| panic!("{need} is not in the table"));
        let is_named = whose.contains("everywhere") || whose.contains(&format!("`{name}`"));
        assert!(is_named, "{need} is used by {name} too:{whose}");
    }
}
