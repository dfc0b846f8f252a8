//! `presagio top`: the live dashboard of a council or an I/O node, in a terminal.
//!
//! [`fetch`] asks for the snapshot that the page shows too; [`plain`] prints it once, [`screen`] draws it on a screen, and [`keys`] is what a
//! person has chosen to see. A thread asks once a second, so that keys are never waited for.

mod fetch;
mod keys;
mod plain;
mod screen;

use crate::failure::failure;
use fetch::Heard;
use keys::{Press, View};
use presagio_dashboard::UPDATE_EVERY;
use presagio_door::Address;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How often the screen looks for keys and news.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Show in a terminal what a council or an I/O node does now
///
/// Nodes with their policies and the last minutes, situations and what works in them, decisions and why, patterns and what follows
/// them: the same as in the browser, and the same figures. It comes back by itself when what it shows was away. If stdout is no terminal, it prints once.
#[derive(clap::Args)]
#[group(id = "top")]
#[command(after_help = "\
Keys: q quits, tab and 1 2 3 4 choose what is shown, arrows (or j and k) a row,
enter unfolds it, ? explains.

Examples:
  presagio top                                   what this machine has
  presagio top unix:/run/council.sock.control    of that council
  presagio top tcp:127.0.0.1:9645 --once         a table, once
  presagio top --json | jq '.nodes[].policy'")]
pub struct Args {
    /// Where its dashboard or its control socket is [default: where --dashboard puts it, the council's first]
    #[arg(value_name = "ADDRESS")]
    address: Option<Address>,
    /// Print it once, as tables
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print it once, as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let addresses = fetch::addresses(args.address.as_ref());
    if !args.once && !args.json && io::stdout().is_terminal() {
        return watch(addresses);
    }
    let snapshot = fetch::first(&addresses).map_err(|cause| {
        failure(
            "nothing to show",
            cause,
            "start it with --dashboard, or name its control socket (unix:PATH.control)",
        )
    })?;
    match args.json {
        true => serde_json::to_writer_pretty(io::stdout(), &snapshot)?,
        false => plain::print(&snapshot, &mut io::stdout().lock())?,
    }
    if args.json {
        println!();
    }
    Ok(ExitCode::SUCCESS)
}

/// Until somebody has seen enough.
fn watch(addresses: Vec<Address>) -> anyhow::Result<ExitCode> {
    let (send, receive) = channel();
    // It ends with the process.
    std::thread::spawn(move || ask(&addresses, &send));
    let mut terminal = ratatui::try_init()?;
    let watched = follow(&mut terminal, &receive);
    ratatui::restore();
    watched.map(|()| ExitCode::SUCCESS)
}

/// Asks again and again, until nobody wants to know.
fn ask(addresses: &[Address], send: &Sender<Heard>) {
    while send.send(fetch::first(addresses)).is_ok() {
        std::thread::sleep(UPDATE_EVERY);
    }
}

fn follow(terminal: &mut DefaultTerminal, news: &Receiver<Heard>) -> anyhow::Result<()> {
    let mut view = View::default();
    loop {
        if let Some(heard) = news.try_iter().last() {
            view.hear(heard);
        }
        terminal.draw(|frame| screen::draw(frame, &mut view))?;
        if !event::poll(LOOK_EVERY)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && view.press(key) == Press::Quit
        {
            return Ok(());
        }
    }
}
