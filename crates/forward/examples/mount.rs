//! A mount by hand: `mount NODE[,NODE…] EXPORT DIR`, until SIGTERM. Prints `ready` when programs can use it.

use presagio_forward::{Address, Options, mount};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, export, dir] = &arguments[..] else {
        return Err("usage: mount NODE[,NODE…] EXPORT DIR".into());
    };
    let mut options = Options::new(Address::list(nodes)?);
    options.export.clone_from(export);
    let ready = || {
        // Whoever started it may not listen.
        let _ = writeln!(std::io::stdout(), "ready");
    };
    mount::run(mount::Options::new(options), dir.as_ref(), ready)?;
    Ok(())
}
