//! `presagio completions` and `presagio man`: what is generated from the command line's own definition,
//! so that neither can fall behind it.

use crate::Cli;
use crate::failure::failure;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  source <(presagio completions bash)       in your ~/.bashrc
  presagio completions zsh  > ~/.zfunc/_presagio
  presagio completions fish > ~/.config/fish/completions/presagio.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write the manual pages, one per subcommand
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio man ~/.local/share/man/man1 && man presagio-sched-compare
  presagio man pages && man -l pages/presagio.1")]
pub struct ManArgs {
    /// The directory to write them to; it is created if it does not exist
    dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    // Through a buffer: the generator panics when it cannot write, and a reader may leave early.
    let mut script = Vec::new();
    let mut command = visible(&Cli::command());
    clap_complete::generate(args.shell, &mut command, "presagio", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The command as its help shows it: generators of completions know nothing of what is hidden.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let copy = Command::new(command.get_name().to_owned())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(command.get_version().is_none())
        .args(arguments.cloned())
        .subcommands(subcommands.map(visible));
    match command.get_about() {
        Some(about) => copy.about(about.clone()),
        None => copy,
    }
}

pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(&args.dir)
        .and_then(|()| write_pages(&command, &args.dir))
        .map_err(|cause| {
            let what = format!("cannot write manual pages to {}", args.dir.display());
            failure(what, cause, "name a directory that you may write to")
        })?;
    Ok(ExitCode::SUCCESS)
}

/// The pages of a command and of its subcommands.
fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_pages(subcommand, dir)?;
    }
    let page = page(command);
    std::fs::write(dir.join(page.get_filename()), rendered(&page, command)?)
}

/// The page without its examples: the generator would fill their lines like prose. The version is the same for
/// all, but only the topmost command knows it.
fn page(command: &Command) -> Man {
    let version = env!("CARGO_PKG_VERSION");
    let command = command.clone().version(version);
    Man::new(command.after_help(None::<&str>)).source(format!("presagio {version}"))
}

/// The whole page, the examples just before the version.
fn rendered(page: &Man, command: &Command) -> io::Result<Vec<u8>> {
    const VERSION: &[u8] = b".SH VERSION\n";
    let mut out = Vec::new();
    page.render(&mut out)?;
    let text = command.get_after_help().map(ToString::to_string);
    let examples = examples(&text.unwrap_or_default()).into_bytes();
    let at = out.windows(VERSION.len()).position(|w| w == VERSION);
    let at = at.unwrap_or(out.len());
    out.splice(at..at, examples);
    Ok(out)
}

/// The help's examples as a section whose lines stay as they are; what follows an empty line is prose.
fn examples(help: &str) -> String {
    let text = help.trim_start_matches("Examples:\n");
    let (lines, prose) = text.split_once("\n\n").unwrap_or((text, ""));
    let lines: Vec<String> = lines.lines().map(roff_line).collect();
    let mut section = format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n"));
    if !prose.is_empty() {
        section.push_str(&format!(".PP\n{}\n", roff_line(prose)));
    }
    section
}

/// A line of text in which nothing means anything to roff. Quotes, backquotes and dashes are to be copied into
/// a shell, so they must not become typography.
fn roff_line(line: &str) -> String {
    let line = line.trim_start_matches("  ").replace('\\', "\\e");
    let line = line.replace('-', "\\-").replace('\'', "\\(aq");
    let line = line.replace('`', "\\(ga").replace('~', "\\(ti");
    if line.starts_with('.') {
        return format!("\\&{line}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines_and_can_be_copied() {
        let help = "Examples:\n  presagio man ~/x --y 'z'\n  .hidden \\\n\nMore: `help`.";
        let expected = ".SH EXAMPLES\n.nf\npresagio man \\(ti/x \\-\\-y \\(aqz\\(aq\n\\&.hidden \\e\n.fi\n\
                        .PP\nMore: \\(gahelp\\(ga.\n";
        assert_eq!(examples(help), expected);
    }
}
