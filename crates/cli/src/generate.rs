//! `presagio completions` and `presagio man`: what is generated from the command line's own definition,
//! so that neither can fall behind it.

use crate::Cli;
use crate::failure::failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio completions bash > ~/.local/share/bash-completion/completions/presagio
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
    clap_complete::generate(args.shell, &mut Cli::command(), "presagio", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dir))
        .map_err(|cause| {
            let what = format!("cannot write manual pages to {}", args.dir.display());
            failure(what, cause, "name a directory that you may write to")
        })?;
    Ok(ExitCode::SUCCESS)
}
