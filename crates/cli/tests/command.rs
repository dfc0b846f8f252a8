//! What the command promises whatever it is asked to do: help that teaches, errors that help, scripts and
//! manual pages that match it.

mod common;

use common::{TempDir, presagio, presagio_at, presagio_ok, program};
use std::process::{Command, Stdio};

/// Every command that the help names, however deep, and the one above them all.
fn subcommands() -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut next = 0;
    while next < found.len() {
        let above = found[next].clone();
        found.extend(
            below(&above)
                .into_iter()
                .map(|name| [&above[..], &[name]].concat()),
        );
        next += 1;
    }
    found
}

/// The commands that the help of one lists.
fn below(command: &[String]) -> Vec<String> {
    let help = help_of(command);
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return Vec::new();
    };
    let lines = list.lines().take_while(|line| !line.is_empty());
    // What a long description is continued with is further to the right.
    let lines = lines.filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn help_of(command: &[String]) -> String {
    let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
    args.push("--help");
    presagio_at(200, &args).out
}

#[test]
fn the_help_of_every_subcommand_shows_an_example() {
    let subcommands = subcommands();
    for known in [&["sched", "compare"][..], &["trace", "info"], &["man"]] {
        assert!(subcommands.iter().any(|one| one == known), "{known:?}");
    }
    for subcommand in subcommands {
        let help = help_of(&subcommand);
        let example = ["presagio", &subcommand.join(" ")].join(" ");
        let examples = help.split("Examples:").nth(1).unwrap_or_default();
        assert!(
            examples.contains(example.trim_end()),
            "{example} --help:\n{help}"
        );
    }
}

#[test]
fn examples_fit_a_page_of_80_columns() {
    for subcommand in subcommands() {
        let help = help_of(&subcommand);
        let examples = help.split("Examples:").nth(1).unwrap_or_default();
        // Manual pages indent by seven, the help by two.
        let wide: Vec<&str> = examples.lines().filter(|l| l.len() > 75).collect();
        assert_eq!(wide, [""; 0], "{subcommand:?}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = concat!("presagio ", env!("CARGO_PKG_VERSION"));
    assert_eq!(presagio_ok(&["--version"]).out.trim(), version);
}

#[test]
fn without_a_subcommand_the_help_is_shown() {
    let said = presagio(&[]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("Examples:"), "{}", said.err);
}

#[test]
fn completions_know_the_subcommands_of_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = presagio_ok(&["completions", shell]);
        assert!(
            said.out.contains("compare") && said.out.contains("strict"),
            "{shell}"
        );
        let hidden = ["tiny", "bench-count", "direct-node"];
        assert!(!hidden.iter().any(|h| said.out.contains(h)), "{shell}");
    }
}

#[test]
fn completions_and_help_name_policies_and_parts() {
    for args in [
        &["sched", "compare", "--help"][..],
        &["completions", "bash"],
    ] {
        let said = presagio_ok(args);
        assert!(said.out.contains("TO-agg") && said.out.contains("HBRR"));
    }
    let said = presagio_ok(&["bench", "--help"]);
    assert!(said.out.contains("possible values: sched"), "{}", said.out);
}

#[test]
fn there_is_a_manual_page_for_every_subcommand() {
    let dir = TempDir::new("man");
    let pages = format!("{}/new/man1", dir.path());
    presagio_ok(&["man", &pages]);
    for subcommand in subcommands() {
        let name = [&["presagio".to_owned()], &subcommand[..]]
            .concat()
            .join("-");
        let page = std::fs::read_to_string(format!("{pages}/{name}.1"));
        let page = page.unwrap_or_else(|error| panic!("{name}.1: {error}"));
        assert!(!page.contains(".SH EXTRA"), "{name}.1:\n{page}");
        assert!(page.contains(".SH EXAMPLES\n.nf\n"), "{name}.1:\n{page}");
        assert!(
            page.contains(env!("CARGO_PKG_VERSION")),
            "{name}.1:\n{page}"
        );
    }
    for hidden in ["bench-count", "direct-node"] {
        let page = format!("{pages}/presagio-{hidden}.1");
        assert!(
            !std::path::Path::new(&page).exists(),
            "what is hidden has no manual page"
        );
    }
    let page = std::fs::read_to_string(format!("{pages}/presagio.1")).unwrap();
    assert!(!page.contains("direct\\-node"), "{page}");
    let help = presagio_ok(&["--help"]).out;
    assert!(!help.contains("direct-node"), "{help}");
}

#[test]
fn what_is_a_part_of_other_commands_is_none_for_people() {
    let said = presagio(&["direct-node", "/"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
    let advice = "use `presagio run --forward-direct`";
    assert!(said.err.contains(advice), "{}", said.err);
}

#[test]
fn manual_pages_that_cannot_be_written_are_explained() {
    let said = presagio(&["man", "/dev/null/pages"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.err
            .starts_with("presagio: cannot write manual pages to /dev/null/pages; "),
        "{}",
        said.err
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    // The reader leaves before presagio has parsed its arguments, let alone written anything.
    let mut child = Command::new(program())
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("presagio starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("presagio ends");
    assert!(output.status.success(), "{:?}", output.status);
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
