//! What a manager is told to do by whoever starts it, and how it then begins: the same for one beside a program and for
//! one inside of it, which finds its orders in a file.

use super::{Configured, MakeMind, Manager, Options};
use crate::config::Config;
use crate::strategy::{Adaptive, Options as Choices, Tapes};
use presagio_arena::PathFilter;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Follow only paths that match one of these, if there are any.
    pub include: Vec<Vec<u8>>,
    /// Do not follow paths that match one of these.
    pub exclude: Vec<Vec<u8>>,
    /// Watch, and change nothing.
    pub observe: bool,
    /// Hints that were written by hand.
    pub config: Option<PathBuf>,
    /// Where the trace goes.
    pub trace: Option<PathBuf>,
    /// Where models are kept.
    pub models: Option<PathBuf>,
    /// The processor to stay on.
    pub pin: Option<usize>,
    /// What the batch system calls the job.
    pub job: Option<String>,
    /// The switchboard and the prefixes of files that I/O nodes serve, `switchboard:prefix[:prefix…]`, as the programs
    /// find it in their environment.
    pub forward: Option<Vec<u8>>,
    /// The command that is run, if it is one.
    pub command: Vec<Vec<u8>>,
}

impl Orders {
    /// Which files are followed.
    pub fn filter(&self) -> Result<PathFilter, presagio_arena::FilterTooLong> {
        PathFilter::new(
            self.include.iter().map(Vec::as_slice),
            self.exclude.iter().map(Vec::as_slice),
        )
    }

    /// Makes the manager, with what the orders name already opened and read.
    pub fn begin(self, config: Option<Config>, trace: Option<File>) -> io::Result<Manager> {
        pin(self.pin);
        let name = self.trace.as_ref().map(|path| path.display().to_string());
        Manager::create(Options {
            filter: self.filter().map_err(io::Error::other)?,
            advise: !self.observe,
            mind: mind(!self.observe, config),
            trace: name.zip(trace),
            models: self.models,
            command: self.command,
            job: self.job,
            forward: self.forward,
            slots: slots(),
        })
    }

    /// As a file: fields `name=value`, a zero behind each, since paths may hold anything else.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut add = |name: &str, value: &[u8]| {
            out.extend([name.as_bytes(), b"=", value, b"\0"].concat());
        };
        self.include.iter().for_each(|glob| add("include", glob));
        self.exclude.iter().for_each(|glob| add("exclude", glob));
        if self.observe {
            add("observe", b"");
        }
        let paths = [
            ("config", &self.config),
            ("trace", &self.trace),
            ("models", &self.models),
        ];
        for (name, path) in paths {
            if let Some(path) = path {
                add(name, path.as_os_str().as_bytes());
            }
        }
        if let Some(cpu) = self.pin {
            add("pin", cpu.to_string().as_bytes());
        }
        if let Some(job) = &self.job {
            add("job", job.as_bytes());
        }
        if let Some(forward) = &self.forward {
            add("forward", forward);
        }
        self.command.iter().for_each(|word| add("command", word));
        out
    }

    /// What [`Orders::to_bytes`] wrote; fields that are not known are passed over.
    pub fn from_bytes(bytes: &[u8]) -> Orders {
        let mut orders = Orders::default();
        for field in bytes.split(|b| *b == 0) {
            let Some(end) = field.iter().position(|b| *b == b'=') else {
                continue;
            };
            let value = field[end + 1..].to_vec();
            let path = || Some(PathBuf::from(OsString::from_vec(value.clone())));
            let text = || String::from_utf8_lossy(&value).into_owned();
            match &field[..end] {
                b"include" => orders.include.push(value),
                b"exclude" => orders.exclude.push(value),
                b"observe" => orders.observe = true,
                b"config" => orders.config = path(),
                b"trace" => orders.trace = path(),
                b"models" => orders.models = path(),
                b"pin" => orders.pin = text().parse().ok(),
                b"job" => orders.job = Some(text()),
                b"forward" => orders.forward = Some(value),
                b"command" => orders.command.push(value),
                _ => {}
            }
        }
        orders
    }
}

/// Threads that can report at the same time: two for each processor, up to 512 KiB each, as they need it.
fn slots() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors as u32).clamp(128, 1024)
}

/// What decides: the configuration, or what adapts. Where nothing may be done, that only records for the next run.
fn mind(advise: bool, config: Option<Config>) -> Box<MakeMind> {
    Box::new(move |remembered| {
        let adaptive = Box::new(adaptive(advise, remembered));
        match config.filter(|_| advise) {
            Some(config) => Box::new(Configured::new(config, adaptive)),
            None => adaptive,
        }
    })
}

/// What adapts, with what it learned in earlier runs.
fn adaptive(advises: bool, remembered: Option<&[u8]>) -> Adaptive {
    let tapes = remembered.and_then(|bytes| Tapes::load(bytes).ok());
    let choices = Choices {
        advises,
        ..Choices::default()
    };
    Adaptive::new(choices, tapes.unwrap_or_default())
}

/// Keeps this thread, and those that it starts, on one processor.
fn pin(cpu: Option<usize>) {
    let Some(cpu) = cpu.filter(|cpu| *cpu < libc::CPU_SETSIZE as usize) else {
        return;
    };
    // SAFETY: a set on the stack, and a processor within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_their_file() {
        let all = Orders {
            include: vec![b"*/a=b".to_vec(), b"\xff\n".to_vec()],
            exclude: vec![b"".to_vec()],
            observe: true,
            config: Some("/c.json".into()),
            trace: Some("/t\nrace".into()),
            models: Some("/models".into()),
            pin: Some(3),
            job: Some("7".into()),
            forward: Some(b"board:/scratch".to_vec()),
            command: vec![b"app".to_vec(), b"".to_vec(), b"-x=1".to_vec()],
        };
        assert_eq!(Orders::from_bytes(&all.to_bytes()), all);
        let none = Orders::default();
        assert_eq!(Orders::from_bytes(&none.to_bytes()), none);
    }
}
