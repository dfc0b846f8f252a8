//! What is asked of a server.

use super::server::Server;
use presagio_ninep::client::{Ask, Client};
use presagio_ninep::session::File;
use presagio_ninep::{Data, Fid, OpenFlags, Request};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The file that is read and written: in the page cache of both.
const FILE: u64 = 64 << 20;
const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
const UNDER_WAY: usize = 16;

/// One kind of load, and how much faster than diod we have to be.
pub struct Load {
    pub name: &'static str,
    pub bar: f64,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    SmallReads,
    SmallWrites,
    LargeReads,
    LargeWrites,
}

/// What a server did in a round.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Operations a second.
    pub rate: f64,
    /// Microseconds of the server's processor time per operation.
    pub cpu_us: f64,
}

impl Load {
    pub const ALL: [Load; 4] = [
        Load {
            name: "4 KiB random reads, 16 in flight",
            bar: 1.5,
            kind: Kind::SmallReads,
        },
        Load {
            name: "4 KiB random writes, 16 in flight",
            bar: 1.5,
            kind: Kind::SmallWrites,
        },
        Load {
            name: "1 MiB sequential reads",
            bar: 1.2,
            kind: Kind::LargeReads,
        },
        Load {
            name: "1 MiB sequential writes",
            bar: 1.2,
            kind: Kind::LargeWrites,
        },
    ];

    /// Loads a server for about `long`.
    pub fn run(&self, server: &Server, long: Duration) -> anyhow::Result<Outcome> {
        let (session, root) = server.connect()?;
        let file = filled(&root)?;
        let client = session.client();
        let mut next = offsets();
        let mut buffer = vec![7; LARGE];
        let mut at = 0;
        match self.kind {
            Kind::SmallReads => {
                let mut window = Window::fill(client, |_| read(file.fid(), next()))?;
                let outcome = measure(server, long, || {
                    window.turn(client, read(file.fid(), next()))
                });
                window.drain(outcome)
            }
            Kind::SmallWrites => {
                let data = buffer[..SMALL].to_vec();
                let mut window = Window::fill(client, |_| write(file.fid(), next(), &data))?;
                let outcome = measure(server, long, || {
                    window.turn(client, write(file.fid(), next(), &data))
                });
                window.drain(outcome)
            }
            Kind::LargeReads => measure(server, long, || {
                at = (at + LARGE as u64) % FILE;
                anyhow::ensure!(file.read_at(at, &mut buffer)? == LARGE, "a short read");
                Ok(())
            }),
            Kind::LargeWrites => measure(server, long, || {
                at = (at + LARGE as u64) % FILE;
                anyhow::ensure!(file.write_at(at, &buffer)? == LARGE, "a short write");
                Ok(())
            }),
        }
    }
}

/// The file, made at the first time.
fn filled(root: &File) -> anyhow::Result<File> {
    if let Ok(mut file) = root.walk("load") {
        file.open(OpenFlags::RDWR)?;
        return Ok(file);
    }
    let file = root.create("load", OpenFlags::RDWR, 0o600)?;
    let block = vec![7; LARGE];
    for at in (0..FILE).step_by(LARGE) {
        file.write_at(at, &block)?;
    }
    Ok(file)
}

fn read<'a>(fid: Fid, offset: u64) -> Ask<'a> {
    Ask::read(fid, offset, vec![0; SMALL])
}

fn write(fid: Fid, offset: u64, data: &[u8]) -> Ask<'_> {
    let data = Data::new(data).expect("a small block");
    Ask::new(Request::Write { fid, offset, data })
}

/// Always so many under way: one is collected, one is sent.
struct Window(VecDeque<presagio_ninep::client::Ticket>);

impl Window {
    fn fill<'a>(client: &Client, ask: impl FnMut(usize) -> Ask<'a>) -> anyhow::Result<Window> {
        Ok(Window(client.submit_all((0..UNDER_WAY).map(ask))?.into()))
    }

    fn turn(&mut self, client: &Client, ask: Ask<'_>) -> anyhow::Result<()> {
        let oldest = self.0.pop_front().expect("some are under way");
        oldest.wait()?;
        self.0.push_back(client.submit(ask)?);
        Ok(())
    }

    /// The next load is not to meet what is left of this one.
    fn drain(self, outcome: anyhow::Result<Outcome>) -> anyhow::Result<Outcome> {
        for ticket in self.0 {
            ticket.wait()?;
        }
        outcome
    }
}

fn measure(
    server: &Server,
    long: Duration,
    mut operation: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    for _ in 0..UNDER_WAY {
        operation()?;
    }
    let (mut count, cpu, start) = (0, server.cpu(), Instant::now());
    while start.elapsed() < long {
        operation()?;
        count += 1;
    }
    let (spent, cpu) = (start.elapsed(), server.cpu() - cpu);
    Ok(Outcome {
        rate: f64::from(count) / spent.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / f64::from(count),
    })
}

/// Blocks in no order, the same in every round.
fn offsets() -> impl FnMut() -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (FILE / SMALL as u64) * SMALL as u64
    }
}
