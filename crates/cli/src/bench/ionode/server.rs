//! The servers that are compared: processes of their own, on sockets of their own.

use crate::failure::failure;
use presagio_ionode::Address;
use presagio_ninep::client::{Client, Options};
use presagio_ninep::session::{File, Session};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What diod takes at most, and so both.
pub const MSIZE: u32 = 65536;

/// A server that runs until it is dropped.
pub struct Server {
    child: Child,
    socket: PathBuf,
    export: PathBuf,
}

impl Server {
    /// Our own, with further arguments.
    pub fn presagio(dir: &Path, arguments: &[&str]) -> anyhow::Result<Server> {
        let export = dir.join("export");
        let command = Command::new(std::env::current_exe()?);
        Server::presagio_on(command, dir, &export, arguments)
    }

    /// Our own, started by `command`, with an export that is elsewhere.
    pub fn presagio_on(
        mut command: Command,
        dir: &Path,
        export: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Server> {
        std::fs::create_dir_all(export)?;
        let socket = dir.join("socket");
        command.arg("ionode").arg("--export").arg(export);
        command
            .arg("--listen")
            .arg(format!("unix:{}", socket.display()));
        command.args(arguments);
        Server::started(command, socket, export.to_owned())
    }

    /// Debian's diod.
    pub fn diod(dir: &Path) -> anyhow::Result<Server> {
        let (socket, export) = (dir.join("socket"), dir.join("export"));
        std::fs::create_dir_all(&export)?;
        // It does not survive a client that leaves before its replies have come, unless the signal is ignored.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' PIPE; exec /usr/sbin/diod \"$@\"", "sh"]);
        command.current_dir(dir);
        command
            .args(["-f", "-n", "-c", "/dev/null", "-L"])
            .arg(dir.join("log"));
        command.arg("-e").arg(&export).arg("-l").arg(&socket);
        Server::started(command, socket, export)
    }

    fn started(mut command: Command, socket: PathBuf, export: PathBuf) -> anyhow::Result<Server> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(|cause| {
            let program = command.get_program().to_string_lossy().into_owned();
            failure(
                format!("cannot start {program}"),
                cause,
                "install Debian's package diod",
            )
        })?;
        let server = Server {
            child,
            socket,
            export,
        };
        let late = Instant::now() + Duration::from_secs(10);
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            if Instant::now() > late {
                return Err(failure(
                    "a server does not listen",
                    server.socket.display(),
                    "run again",
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Ends it as an administrator would: what it records is whole then.
    pub fn end(mut self) -> anyhow::Result<()> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// What it exports.
    pub fn export(&self) -> &Path {
        &self.export
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    /// Where our own is told what to do.
    pub fn control(&self) -> Address {
        Address::Unix(self.socket.with_file_name("socket.control"))
    }

    /// Kilobytes of memory that it has now.
    pub fn memory(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let figure = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        figure
            .ok_or_else(|| anyhow::anyhow!("the kernel does not say how much memory a process has"))
    }

    /// A new connection, and the root of the export.
    pub fn connect(&self) -> anyhow::Result<(Session, File)> {
        self.connect_with(MSIZE)
    }

    /// The same, with frames of up to so many bytes.
    pub fn connect_with(&self, msize: u32) -> anyhow::Result<(Session, File)> {
        let options = Options {
            msize,
            ..Options::default()
        };
        let session = Session::new(Client::unix(&self.socket, &options)?);
        let export = self.export.to_string_lossy().into_owned();
        let uid = rustix::process::getuid().as_raw();
        let root = session.attach("", &export, uid)?;
        Ok((session, root))
    }

    /// Processor time that it has used.
    pub fn cpu(&self) -> Duration {
        let mut clock = 0;
        // SAFETY: the process is our child, not waited for; the clock's number is written to memory of ours.
        let failed = unsafe { libc::clock_getcpuclockid(self.child.id() as i32, &mut clock) };
        assert_eq!(failed, 0, "a child has a clock");
        // SAFETY: all zeros is a valid value, which the call overwrites.
        let mut time: libc::timespec = unsafe { std::mem::zeroed() };
        // SAFETY: the clock is that of a process that exists, and the time is memory of ours.
        unsafe { libc::clock_gettime(clock, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
