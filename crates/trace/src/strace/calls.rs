//! What each system call means: which files it touches, where, and how it moves descriptors and positions.
//!
//! A call that is not here is none of our business and skipped without being taken apart.

use super::errno::{O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_TRUNC, O_WRONLY, open_flags};
use super::line::{self, Call, Target};
use super::world::{self, Descriptor, Group, OpenFile};
use super::{Moment, Reader};
use presagio_core::{Action, FileId, Nanos};
use std::sync::Arc;

/// Whether the call returns a new task.
pub(super) fn bears(name: &[u8]) -> bool {
    matches!(name, b"fork" | b"vfork" | b"clone" | b"clone2" | b"clone3")
}

/// A call that we look into, and what it does.
type Handler = fn(&mut Reader, Moment, &Call<'_>) -> Option<()>;

fn handler(name: &[u8]) -> Option<Handler> {
    Some(match name {
        b"open" => |r, m, c| r.open(m, c, None, 0, open_flags(c.argument(1))),
        b"creat" => |r, m, c| r.open(m, c, None, 0, O_CREAT | O_WRONLY | O_TRUNC),
        b"openat" => |r, m, c| r.open(m, c, Some(0), 1, open_flags(c.argument(2))),
        b"openat2" => |r, m, c| {
            r.open(
                m,
                c,
                Some(0),
                1,
                open_flags(field(c.argument(2), b"flags=")?),
            )
        },
        b"close" => Reader::close,
        b"close_range" => Reader::close_range,
        b"read" => |r, m, c| r.transfer(m, c, Action::Read, length(c, 2)?, None),
        b"write" => |r, m, c| r.transfer(m, c, Action::Write, length(c, 2)?, None),
        b"pread64" | b"pread" => |r, m, c| r.transfer(m, c, Action::Read, length(c, 2)?, Some(3)),
        b"pwrite64" | b"pwrite" => {
            |r, m, c| r.transfer(m, c, Action::Write, length(c, 2)?, Some(3))
        }
        b"readv" => |r, m, c| r.transfer(m, c, Action::Read, vector_length(c)?, None),
        b"writev" => |r, m, c| r.transfer(m, c, Action::Write, vector_length(c)?, None),
        b"preadv" | b"preadv2" => {
            |r, m, c| r.transfer(m, c, Action::Read, vector_length(c)?, Some(3))
        }
        b"pwritev" | b"pwritev2" => {
            |r, m, c| r.transfer(m, c, Action::Write, vector_length(c)?, Some(3))
        }
        b"lseek" => Reader::seek,
        b"_llseek" | b"llseek" => Reader::seek_wide,
        b"fsync" | b"fdatasync" | b"syncfs" => |r, m, c| r.on_file(m, c, Action::Sync, (0, 0)),
        b"sync_file_range" => {
            |r, m, c| r.on_file(m, c, Action::Sync, (length(c, 1)?, length(c, 2)?))
        }
        b"ftruncate" | b"ftruncate64" => Reader::truncate_open,
        b"truncate" | b"truncate64" => Reader::truncate_path,
        b"fallocate" => Reader::allocate,
        b"mmap" | b"mmap2" => Reader::map,
        b"sendfile" | b"sendfile64" => |r, m, c| r.copy(m, c, (1, Some(2)), (0, None), 3),
        b"copy_file_range" | b"splice" => |r, m, c| r.copy(m, c, (0, Some(1)), (2, Some(3)), 4),
        b"unlink" => |r, m, c| r.remove(m, c, None, 0),
        b"unlinkat" => Reader::remove_at,
        b"rename" => |r, m, c| r.rename(m, c, (None, 0), (None, 1)),
        b"renameat" | b"renameat2" => |r, m, c| r.rename(m, c, (Some(0), 1), (Some(2), 3)),
        b"dup" | b"dup2" => |r, m, c| r.duplicate(m, c, false),
        b"dup3" => |r, m, c| r.duplicate(m, c, c.argument(2) == b"O_CLOEXEC"),
        b"fcntl" | b"fcntl64" => Reader::control,
        b"fstat" | b"fstat64" | b"newfstatat" | b"statx" => Reader::status,
        b"chdir" => Reader::change_directory,
        b"fchdir" => Reader::change_directory_open,
        b"getcwd" => Reader::current_directory,
        b"execve" | b"execveat" => Reader::execute,
        name if bears(name) => Reader::bear,
        _ => return None,
    })
}

impl Reader {
    pub(super) fn call(
        &mut self,
        task: u32,
        time: Nanos,
        name: &[u8],
        text: &[u8],
    ) -> Result<(), String> {
        let Some(handler) = handler(name) else {
            return Ok(());
        };
        let call = Call::parse(text).ok_or_else(|| line::broken(name))?;
        if call.outcome.value.is_some() {
            let duration = call.outcome.duration;
            // Arguments that are not as they should be, such as pointers to nowhere, make no event.
            let _ = handler(
                self,
                Moment {
                    task,
                    time,
                    duration,
                },
                &call,
            );
        }
        Ok(())
    }

    /// The rest of a `close` whose descriptor was taken out when it began.
    pub(super) fn closed(
        &mut self,
        task: u32,
        time: Nanos,
        open: &Arc<OpenFile>,
        text: &[u8],
    ) -> Result<(), String> {
        let call = Call::parse(text).ok_or_else(|| line::broken(b"close"))?;
        if let Some(result) = result(&call) {
            let duration = call.outcome.duration;
            let moment = Moment {
                task,
                time,
                duration,
            };
            self.event(moment, open.file, Action::Close, (0, 0), result);
        }
        Ok(())
    }

    /// The open file of argument `i`. One that we do not know yet was there before strace, or came from afar.
    fn open_file(&mut self, moment: Moment, call: &Call<'_>, i: usize) -> Option<Arc<OpenFile>> {
        let text = call.argument(i);
        let fd = line::integer(text.split(|&b| b == b'<').next()?)?;
        let target = line::target(text);
        if let Some(open) = self.world.open(moment.task, fd, &target) {
            return Some(open);
        }
        let failed = matches!(call.outcome.value, Some(Err(_)));
        let table = self.world.tasks.get(&moment.task)?.table.clone();
        match target {
            Target::Path(path) if !failed => {
                let open = OpenFile::new(self.file(&path), false);
                table.lock().insert(fd, descriptor(open.clone(), false));
                Some(open)
            }
            Target::Other => {
                table.lock().remove(&fd);
                None
            }
            _ => None,
        }
    }

    /// The path in argument `i`, seen from the directory in argument `directory`.
    fn path(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        directory: Option<usize>,
        i: usize,
    ) -> Option<Vec<u8>> {
        let path = line::string(call.argument(i))?;
        let given = directory.map(|d| call.argument(d)).unwrap_or_default();
        let group = self.world.group_mut(moment.task)?;
        let from = match line::target(given) {
            Target::Path(from) if given.starts_with(b"AT_FDCWD") => {
                if group.directory.as_deref() != Some(&from) {
                    group.directory = Some(from.into());
                }
                None
            }
            Target::Path(from) => Some(from),
            _ => None,
        };
        let from = from.as_deref().or(group.directory.as_deref());
        Some(world::join(from, &path))
    }

    fn open(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        directory: Option<usize>,
        path: usize,
        flags: u64,
    ) -> Option<()> {
        let named = self.path(moment, call, directory, path);
        let path = match line::target(call.outcome.text) {
            Target::Path(path) => path,
            Target::Unsaid => named?,
            Target::Other => return None,
        };
        let result = result(call)?;
        if flags & O_DIRECTORY != 0 || !line::is_file(&path) {
            return None;
        }
        let file = self.file(&path);
        self.event(moment, file, Action::Open, (0, flags), result);
        if let Some(Ok(fd)) = call.outcome.value {
            if flags & O_TRUNC != 0 {
                self.world.set_size(file, 0);
            }
            let open = OpenFile::new(file, flags & O_APPEND != 0);
            self.put(moment, fd, descriptor(open, flags & O_CLOEXEC != 0));
        }
        Some(())
    }

    fn put(&mut self, moment: Moment, fd: i64, descriptor: Descriptor) {
        if let Some(task) = self.world.tasks.get(&moment.task) {
            task.table.lock().insert(fd, descriptor);
        }
    }

    fn close(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let open = self.open_file(moment, call, 0)?;
        let fd = line::integer(call.argument(0))?;
        self.world.tasks.get(&moment.task)?.table.lock().remove(&fd);
        self.event(moment, open.file, Action::Close, (0, 0), result(call)?);
        Some(())
    }

    fn close_range(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let (first, last) = (
            line::integer(call.argument(0))?,
            line::integer(call.argument(1))?,
        );
        if call.outcome.value != Some(Ok(0)) || call.argument(2) != b"0" || last < first {
            return None;
        }
        let table = self.world.tasks.get(&moment.task)?.table.clone();
        let closed: Vec<FileId> = table
            .lock()
            .range(first..=last)
            .map(|(_, d)| d.open.file)
            .collect();
        table.lock().retain(|fd, _| *fd < first || *fd > last);
        for file in closed {
            self.event(moment, file, Action::Close, (0, 0), 0);
        }
        Some(())
    }

    fn transfer(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        action: Action,
        len: u64,
        offset: Option<usize>,
    ) -> Option<()> {
        let open = self.open_file(moment, call, 0)?;
        // preadv2 and pwritev2 take −1 for the position.
        let offset = offset.and_then(|i| u64::try_from(line::integer(call.argument(i))?).ok());
        self.moved(moment, &open, action, len, offset, returned(call)?);
        Some(())
    }

    /// A transfer at `offset`, or where the open file stands, which then moves.
    fn moved(
        &mut self,
        moment: Moment,
        open: &OpenFile,
        action: Action,
        len: u64,
        offset: Option<u64>,
        result: i64,
    ) {
        let appends = action == Action::Write && open.appends();
        let at = if appends {
            self.world.size(open.file)
        } else {
            offset.unwrap_or_else(|| open.position())
        };
        // A vector that strace cut short is at least as long as what was moved.
        let len = len.max(u64::try_from(result).unwrap_or(0));
        self.event(moment, open.file, action, (at, len), result);
        if let Ok(moved) = u64::try_from(result) {
            let end = at.saturating_add(moved);
            if offset.is_none() {
                open.seek(end);
            }
            if moved > 0 {
                self.world.grow(open.file, end);
            }
        }
    }

    fn seek(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let open = self.open_file(moment, call, 0)?;
        match call.outcome.value? {
            Ok(position) => {
                let position = u64::try_from(position).ok()?;
                if call.argument(1) == b"0" && call.argument(2) == b"SEEK_END" {
                    self.world.set_size(open.file, position);
                }
                self.sought(moment, &open, position);
            }
            Err(errno) => {
                let wanted = length(call, 1).unwrap_or(0);
                self.event(moment, open.file, Action::Seek, (wanted, 0), -errno);
            }
        }
        Some(())
    }

    /// Where it went is written through a pointer: `_llseek(3, 4096, [4096], SEEK_SET) = 0`.
    fn seek_wide(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let open = self.open_file(moment, call, 0)?;
        let position = bracketed(call.argument(2)).or_else(|| bracketed(call.argument(3)))?;
        if call.outcome.value? == Ok(0) {
            self.sought(moment, &open, position);
        }
        Some(())
    }

    fn sought(&mut self, moment: Moment, open: &OpenFile, position: u64) {
        open.seek(position);
        self.event(moment, open.file, Action::Seek, (position, 0), 0);
    }

    /// An event on the file of the first argument that moves nothing.
    fn on_file(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        action: Action,
        at: (u64, u64),
    ) -> Option<()> {
        let open = self.open_file(moment, call, 0)?;
        self.event(moment, open.file, action, at, result(call)?);
        Some(())
    }

    fn truncate_open(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let file = self.open_file(moment, call, 0)?.file;
        self.truncate(moment, call, file)
    }

    fn truncate_path(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let path = self
            .path(moment, call, None, 0)
            .filter(|path| line::is_file(path))?;
        let file = self.file(&path);
        self.truncate(moment, call, file)
    }

    fn truncate(&mut self, moment: Moment, call: &Call<'_>, file: FileId) -> Option<()> {
        let size = length(call, 1)?;
        let result = result(call)?;
        if result == 0 {
            self.world.set_size(file, size);
        }
        self.event(moment, file, Action::Truncate, (size, 0), result);
        Some(())
    }

    fn allocate(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let keeps_size = match call.argument(1) {
            b"0" => false,
            b"FALLOC_FL_KEEP_SIZE" => true,
            _ => return None,
        };
        let (offset, len) = (length(call, 2)?, length(call, 3)?);
        let file = self.open_file(moment, call, 0)?.file;
        if !keeps_size && call.outcome.value == Some(Ok(0)) {
            self.world.grow(file, offset.saturating_add(len));
        }
        self.on_file(moment, call, Action::Allocate, (offset, len))
    }

    fn map(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        if call.argument(4) == b"-1" {
            return None;
        }
        let open = self.open_file(moment, call, 4)?;
        let at = (length(call, 5)?, length(call, 1)?);
        let result = result(call)?;
        self.event(moment, open.file, Action::Map, at, result);
        Some(())
    }

    /// Bytes that the kernel moves from one descriptor to another: a read and a write, where these are files.
    fn copy(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        from: (usize, Option<usize>),
        to: (usize, Option<usize>),
        len: usize,
    ) -> Option<()> {
        let (len, result) = (length(call, len)?, returned(call)?);
        // Programs ask for 2^63 bytes to get whatever there is: what was moved says more.
        let len = u64::try_from(result).unwrap_or(len);
        for ((fd, offset), action) in [(from, Action::Read), (to, Action::Write)] {
            if let Some(open) = self.open_file(moment, call, fd) {
                let offset = offset.and_then(|i| bracketed(call.argument(i)));
                self.moved(moment, &open, action, len, offset, result);
            }
        }
        Some(())
    }

    fn remove(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        directory: Option<usize>,
        path: usize,
    ) -> Option<()> {
        let path = self
            .path(moment, call, directory, path)
            .filter(|path| line::is_file(path))?;
        let file = self.file(&path);
        let result = result(call)?;
        self.event(moment, file, Action::Remove, (0, 0), result);
        if result == 0 {
            self.world.set_size(file, 0);
        }
        Some(())
    }

    fn remove_at(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        if call.argument(2) == b"AT_REMOVEDIR" {
            return None;
        }
        self.remove(moment, call, Some(0), 1)
    }

    /// For our purposes the old name is gone and the new one has what it had.
    fn rename(
        &mut self,
        moment: Moment,
        call: &Call<'_>,
        from: (Option<usize>, usize),
        to: (Option<usize>, usize),
    ) -> Option<()> {
        let from = self
            .path(moment, call, from.0, from.1)
            .filter(|path| line::is_file(path))?;
        let to = self.path(moment, call, to.0, to.1)?;
        let result = result(call)?;
        let file = self.file(&from);
        self.event(moment, file, Action::Remove, (0, 0), result);
        if result == 0 {
            let target = self.file(&to);
            self.world.rename(file, target, &to);
        }
        Some(())
    }

    fn duplicate(&mut self, moment: Moment, call: &Call<'_>, close_on_exec: bool) -> Option<()> {
        let Some(Ok(fd)) = call.outcome.value else {
            return None;
        };
        match self.open_file(moment, call, 0) {
            Some(open) => self.put(moment, fd, descriptor(open, close_on_exec)),
            None => drop(self.world.tasks.get(&moment.task)?.table.lock().remove(&fd)),
        }
        Some(())
    }

    fn control(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        if !matches!(call.outcome.value, Some(Ok(_))) {
            return None;
        }
        let has = |flag: &[u8]| call.argument(2).split(|&b| b == b'|').any(|f| f == flag);
        match call.argument(1) {
            b"F_DUPFD" => self.duplicate(moment, call, false)?,
            b"F_DUPFD_CLOEXEC" => self.duplicate(moment, call, true)?,
            b"F_SETFL" => self
                .open_file(moment, call, 0)?
                .set_append(has(b"O_APPEND")),
            b"F_SETFD" => {
                let fd = line::integer(call.argument(0))?;
                let table = &self.world.tasks.get(&moment.task)?.table;
                table.lock().get_mut(&fd)?.close_on_exec = has(b"FD_CLOEXEC");
            }
            _ => {}
        }
        Some(())
    }

    /// The size of an open file, which tells where a write to its end goes.
    fn status(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let text = call.arguments.iter().find(|a| a.starts_with(b"{st"))?;
        let regular = memchr::memmem::find(text, b"S_IFREG").is_some();
        let by_path = line::string(call.argument(1)).is_some_and(|path| !path.is_empty());
        if !regular || by_path || call.outcome.value != Some(Ok(0)) {
            return None;
        }
        let size = field(text, b"st_size=").or_else(|| field(text, b"stx_size="))?;
        let open = self.open_file(moment, call, 0)?;
        self.world.set_size(open.file, crate::input::number(size)?);
        Some(())
    }

    fn change_directory(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let path = self.path(moment, call, None, 0)?;
        self.set_directory(moment, call, path)
    }

    fn change_directory_open(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        match line::target(call.argument(0)) {
            Target::Path(path) => self.set_directory(moment, call, path),
            _ => None,
        }
    }

    fn current_directory(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let path = line::string(call.argument(0))?;
        self.set_directory(moment, call, path)
    }

    fn set_directory(&mut self, moment: Moment, call: &Call<'_>, path: Vec<u8>) -> Option<()> {
        if matches!(call.outcome.value, Some(Ok(_))) && path.starts_with(b"/") {
            self.world.group_mut(moment.task)?.directory = Some(path.into());
        }
        Some(())
    }

    /// Another program: descriptors that were to be closed are, and the table is its own.
    fn execute(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        if call.outcome.value != Some(Ok(0)) {
            return None;
        }
        let table = self.world.copy_table(moment.task)?;
        table
            .lock()
            .retain(|_, descriptor| !descriptor.close_on_exec);
        self.world.tasks.get_mut(&moment.task)?.table = table;
        let group = self.world.group_mut(moment.task)?;
        group.command = command(call).map(Arc::from);
        group.defined = false;
        Some(())
    }

    /// A new task: a thread of this process, or another process.
    fn bear(&mut self, moment: Moment, call: &Call<'_>) -> Option<()> {
        let Some(Ok(child)) = call.outcome.value else {
            return None;
        };
        let child = u32::try_from(child).ok()?;
        if self.world.tasks.contains_key(&child) {
            // Its lines could wait no longer, and it had to begin without a parent.
            return None;
        }
        let flags = call
            .arguments
            .iter()
            .find_map(|a| field(a, b"flags="))
            .unwrap_or_default();
        let has = |flag: &[u8]| flags.split(|&b| b == b'|').any(|f| f == flag);
        let parent = self.world.tasks.get(&moment.task)?;
        let process = parent.process;
        let table = match has(b"CLONE_FILES") {
            true => parent.table.clone(),
            false => self.world.copy_table(moment.task)?,
        };
        if has(b"CLONE_THREAD") {
            self.world.join(child, process, table);
        } else {
            let group = Group {
                pid: Some(child),
                defined: false,
                ..self.world.group(moment.task)?.clone()
            };
            self.world.begin(child, group, table);
        }
        self.release(child);
        Some(())
    }
}

fn descriptor(open: Arc<OpenFile>, close_on_exec: bool) -> Descriptor {
    Descriptor {
        open,
        close_on_exec,
    }
}

/// The value of a call, or the negated error number.
fn returned(call: &Call<'_>) -> Option<i64> {
    Some(match call.outcome.value? {
        Ok(value) => value.max(0),
        Err(errno) => -errno,
    })
}

/// The result of an event that moves nothing: 0, or the negated error number.
fn result(call: &Call<'_>) -> Option<i64> {
    returned(call).map(|value| value.min(0))
}

/// The number that argument `i` is; of a negative one 0.
fn length(call: &Call<'_>, i: usize) -> Option<u64> {
    line::integer(call.argument(i)).map(|n| n.max(0) as u64)
}

/// The sum of the lengths in `[{iov_base="abc", iov_len=3}, ...]`.
fn vector_length(call: &Call<'_>) -> Option<u64> {
    let mut rest = call.argument(1);
    let mut sum = 0u64;
    while let Some(&byte) = rest.first() {
        // What stands in the data is not for us.
        if byte == b'"' {
            rest = line::after_string(rest)?;
        } else if let Some(digits) = rest.strip_prefix(b"iov_len=") {
            let end = digits.iter().take_while(|b| b.is_ascii_digit()).count();
            sum = sum.saturating_add(crate::input::number(&digits[..end]).unwrap_or(0));
            rest = &digits[end..];
        } else {
            rest = &rest[1..];
        }
    }
    Some(sum)
}

/// The first number in `[123] => [456]`.
fn bracketed(text: &[u8]) -> Option<u64> {
    let inner = text.strip_prefix(b"[")?;
    let end = inner.iter().position(|&b| b == b']')?;
    crate::input::number(&inner[..end])
}

/// The value of `name=` in a structure.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(text, name)?;
    let value = &text[at + name.len()..];
    let end = value
        .iter()
        .position(|b| b",} )".contains(b))
        .unwrap_or(value.len());
    Some(&value[..end])
}

/// What was executed: its arguments, or its path where strace could not read them.
fn command(call: &Call<'_>) -> Option<String> {
    let list = call.arguments.iter().find(|a| a.starts_with(b"["));
    let mut words = Vec::new();
    let mut rest = list.copied().unwrap_or_default();
    while let Some(at) = rest.iter().position(|&b| b == b'"') {
        rest = &rest[at..];
        words.push(String::from_utf8_lossy(&line::string(rest)?).into_owned());
        rest = line::after_string(rest)?;
    }
    if words.is_empty() {
        let path = call.arguments.iter().find_map(|a| line::string(a))?;
        words.push(String::from_utf8_lossy(&path).into_owned());
    }
    Some(words.join(" "))
}
