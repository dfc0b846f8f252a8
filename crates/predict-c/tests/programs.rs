//! Promises to programs in C and C++: what is built against the headers alone, without a warning, finds what they
//! say; and the examples of docs/predict-api.md print what is written there. Needs gcc, g++, valgrind and nm.

use presagio_core::Action;
use presagio_predict_c::{Event, Predicted, Status, Way};
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// How a program gets the library.
enum Link {
    Shared,
    Static,
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the library is that was built for this test: beside the test itself.
fn library_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// Compiles a source file of C, or C++ by its ending, to a program called `name`.
fn compile(source: &Path, name: &str, link: Link) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (compiler, standard) = match source.extension().unwrap().to_str() {
        Some("cpp") => ("g++", "-std=c++17"),
        _ => ("gcc", "-std=c99"),
    };
    let mut command = Command::new(compiler);
    command.args([standard, "-O1", "-g"]).args(WARNINGS);
    command.arg("-I").arg(manifest().join("include"));
    command.arg(source).arg("-o").arg(&program);
    match link {
        Link::Shared => command
            .arg("-L")
            .arg(library_dir())
            .arg("-lpresagio_predict_c"),
        Link::Static => command
            .arg(library_dir().join("libpresagio_predict_c.a"))
            .args(["-lpthread", "-ldl"]),
    };
    succeeded(command.arg("-lm"));
    program
}

/// Runs a command to its end and gives what it printed.
fn succeeded(command: &mut Command) -> String {
    let output = command.env("LD_LIBRARY_PATH", library_dir()).output();
    let output =
        output.unwrap_or_else(|e| panic!("{command:?}: {e}: install build-essential and valgrind"));
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    let (stdout, stderr) = (text(stdout), text(stderr));
    assert!(
        status.success(),
        "{command:?}: {status}\n{stdout}\n{stderr}"
    );
    stdout
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// A directory for the files of one program.
fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{name}"));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn source(name: &str) -> PathBuf {
    manifest().join("tests/c").join(name)
}

#[test]
fn a_c_program_finds_what_the_header_promises() {
    let program = compile(&source("exercise.c"), "exercise-shared", Link::Shared);
    let printed = succeeded(Command::new(program).arg("promises").arg(scratch("c")));
    let expected = format!(
        "libpresagio_predict_c {} keeps its promises\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(printed, expected);
}

#[test]
fn a_cpp_program_finds_what_the_header_promises() {
    let program = compile(&source("exercise.cpp"), "exercise-cpp", Link::Shared);
    succeeded(&mut Command::new(program));
}

/// Valgrind knows nothing of memory that is handed from one language to the other, which is the point.
#[test]
fn a_statically_linked_program_leaks_nothing_and_reads_nothing_it_should_not() {
    let program = compile(&source("exercise.c"), "exercise-static", Link::Static);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    succeeded(valgrind.arg(program).arg("promises").arg(scratch("static")));
}

/// The lines that exercise.c prints of a structure, from what Rust knows of it.
macro_rules! layout {
    ($name:literal, $type:ty $(, $field:ident)*) => {
        [format!("{} {}", $name, size_of::<$type>())].into_iter()
            $(.chain([format!("{}.{} {}", $name, stringify!($field), offset_of!($type, $field))]))*
    };
}

#[test]
fn structures_and_numbers_are_the_same_in_c_and_rust() {
    let program = compile(&source("exercise.c"), "exercise-layout", Link::Shared);
    let printed = succeeded(Command::new(program).arg("layout"));
    let event = layout!(
        "presagio_event",
        Event,
        time,
        duration,
        file,
        offset,
        len,
        result,
        action,
        context
    );
    let predicted = layout!(
        "presagio_predicted",
        Predicted,
        action,
        file_is_new,
        file,
        offset,
        len,
        after,
        elapsed,
        confidence
    );
    let way = layout!("presagio_way", Way, cursor, weight);
    let status = layout!("presagio_status", Status);
    let structures = event.chain(predicted).chain(way).chain(status);
    let expected: Vec<String> = structures.chain(actions()).chain(statuses()).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

fn actions() -> impl Iterator<Item = String> {
    let name = |action: Action| action.name().to_uppercase();
    Action::ALL
        .into_iter()
        .map(move |action| format!("PRESAGIO_{} {}", name(action), action as u8))
}

fn statuses() -> impl Iterator<Item = String> {
    let all = [
        Status::Ok,
        Status::None,
        Status::Stale,
        Status::Null,
        Status::Invalid,
        Status::Broken,
        Status::File,
    ];
    let name = |status: Status| format!("{status:?}").to_uppercase();
    all.into_iter()
        .map(move |status| format!("PRESAGIO_{} {}", name(status), status as i32))
}

#[test]
fn what_is_exported_is_what_the_header_declares() {
    let header = manifest().join("include/presagio_predict.h");
    let declared = succeeded(Command::new("gcc").args(["-E", "-P"]).arg(header));
    let mut declared: Vec<&str> = declared.split(';').filter_map(function_of).collect();
    let library = library_dir().join("libpresagio_predict_c.so");
    let exported = succeeded(
        Command::new("nm")
            .args(["-D", "--defined-only", "-j"])
            .arg(library),
    );
    let mut exported: Vec<&str> = exported.lines().collect();
    declared.sort_unstable();
    exported.sort_unstable();
    assert!(declared.contains(&"presagio_observe"), "{declared:?}");
    assert_eq!(declared, exported);
}

/// The name of the function that is declared, if one is.
fn function_of(declaration: &str) -> Option<&str> {
    let before = declaration.split_once('(')?.0;
    let start = before.rfind("presagio_")?;
    Some(&before[start..])
}

/// The blocks of the guide in a language, with the block of text that follows: what it prints.
fn examples(language: &str) -> Vec<(String, String)> {
    let guide = std::fs::read_to_string(manifest().join("../../docs/predict-api.md")).unwrap();
    let begin = format!("```{language}\n");
    let blocks = guide.split(&begin).skip(1);
    blocks
        .map(|block| {
            let (code, rest) = block.split_once("```").unwrap();
            let printed = rest.split_once("```text\n").unwrap().1;
            let printed = printed.split_once("```").unwrap().0;
            (code.to_owned(), printed.to_owned())
        })
        .collect()
}

#[test]
fn the_examples_of_the_guide_print_what_it_says() {
    for language in ["c", "cpp"] {
        let examples = examples(language);
        assert!(
            !examples.is_empty(),
            "the guide has no example in {language}"
        );
        for (number, (code, expected)) in examples.into_iter().enumerate() {
            let name = format!("guide-{number}.{language}");
            let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&name);
            std::fs::write(&source, code).unwrap();
            let program = compile(&source, &format!("{name}.out"), Link::Shared);
            assert_eq!(succeeded(&mut Command::new(program)), expected, "{name}");
        }
    }
}
