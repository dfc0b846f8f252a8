"""Random calls on two directories, which must always say the same: descriptors with positions, duplicates, children that
use what they inherit, names relative to a descriptor or to the working directory, links, modes, times, buffered streams.

Arguments: a seed, how many steps, and the two directories, which are empty."""

import errno
import fcntl
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile

seed, steps, here, there = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
draw = random.Random(seed)
NAMES = ["a", "b", "c", "d/a", "d/b", "d", "e", "d/e/a", "d/e", "missing/x", "a/x"]
FLAGS = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
EXTRA = [0, 0, os.O_CREAT, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_CREAT | os.O_TRUNC, os.O_APPEND,
         os.O_CREAT | os.O_APPEND, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_PATH]


class Side:
    """One of the directories, and what is open there."""

    def __init__(self, root):
        self.root = root
        self.open = {}
        self.streams = {}
        self.dir = os.open(root, os.O_RDONLY | os.O_DIRECTORY)

    def path(self, name):
        return os.path.join(self.root, name)


def attributes(st):
    size = st.st_size if not stat.S_ISDIR(st.st_mode) else 0
    links = st.st_nlink if not stat.S_ISDIR(st.st_mode) else 0
    return oct(st.st_mode), size, links, st.st_uid, st.st_gid


def content():
    return bytes(draw.randrange(256) for _ in range(16)) * draw.choice([1, 7, 300, 5000])


def forked(act):
    """What a child gets who does it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(told(act)).encode()[:60000])
        os._exit(0)
    os.close(writing)
    said = b""
    while more := os.read(reading, 65536):
        said += more
    os.close(reading)
    assert os.waitpid(child, 0)[1] == 0
    return said


def fdopened(fd, bytes_):
    with os.fdopen(os.dup(fd), "r+b") as file:
        start = file.read(10)
        file.write(bytes_)
        file.seek(1)
        return start, file.readline()[:100], file.tell()


def fchdired(fd):
    was = os.getcwd()
    os.fchdir(fd)
    try:
        return sorted(os.listdir(".")), told(lambda: attributes(os.stat("a"))), told(lambda: os.mkdir("made"))
    finally:
        os.chdir(was)


def told(act):
    try:
        return act()
    except OSError as error:
        return errno.errorcode.get(error.errno, "unsupported")
    except ValueError:
        return "ValueError"  # of mmap, when there is nothing to map
    except shutil.Error:
        return "shutil.Error"


def made(temporary):
    fd, path = temporary
    os.write(fd, b"temporary")
    os.close(fd)
    found = attributes(os.stat(path)), open(path, "rb").read()
    os.unlink(path)
    return found


def opens(slot):
    name, flags, mode = draw.choice(NAMES), draw.choice(FLAGS) | draw.choice(EXTRA), draw.choice([0o644, 0o600, 0o400])

    def act(side):
        if slot in side.open:
            os.close(side.open.pop(slot))
        side.open[slot] = os.open(side.path(name), flags, mode)

    return f"open {slot} {name} {flags:o}", act


def opens_at(slot):
    name, flags = draw.choice(NAMES), draw.choice(FLAGS) | os.O_CREAT

    def act(side):
        if slot in side.open:
            os.close(side.open.pop(slot))
        side.open[slot] = os.open(name, flags, 0o640, dir_fd=side.dir)

    return f"openat {slot} {name}", act


def fd_calls(slot):
    """Something with a descriptor."""
    bytes_, count, offset = content(), draw.choice([1, 100, 5000, 90000]), draw.choice([0, 3, 1000, 70000])
    whence, other = draw.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END]), draw.randrange(4)
    move = draw.choice([0, 5, 5000, -3])

    draw_lock = draw.choice([os.F_TLOCK, os.F_ULOCK])

    def dup(side):
        copy = os.dup(side.open[slot])
        if other in side.open:
            os.close(side.open.pop(other))
        side.open[other] = copy

    def dup2(side):
        if other in side.open and other != slot:
            os.dup2(side.open[slot], side.open[other])

    def copies(side):
        if other in side.open and not os.path.sameopenfile(side.open[slot], side.open[other]):
            return os.copy_file_range(side.open[slot], side.open[other], count)

    def sends(side):
        if other in side.open and not os.path.sameopenfile(side.open[slot], side.open[other]):
            return os.sendfile(side.open[other], side.open[slot], offset, count)

    calls = {
        "read": lambda fd: os.read(fd, count),
        "write": lambda fd: os.write(fd, bytes_),
        "pread": lambda fd: os.pread(fd, count, offset),
        "pwrite": lambda fd: os.pwrite(fd, bytes_, offset),
        "readv": lambda fd: (lambda one, two: (os.readv(fd, [one, two]), bytes(one), bytes(two)))(bytearray(7), bytearray(count)),
        "writev": lambda fd: os.writev(fd, [bytes_, b"tail"]),
        "lseek": lambda fd: os.lseek(fd, move, whence),
        "ftruncate": lambda fd: os.ftruncate(fd, offset),
        "fstat": lambda fd: attributes(os.fstat(fd)),
        "fsync": os.fsync,
        "fchmod": lambda fd: os.fchmod(fd, 0o600 + count % 8),
        "posix_fallocate": lambda fd: os.posix_fallocate(fd, offset, count),
        "listdir": lambda fd: sorted(os.listdir(fd)),
        "fcntl": lambda fd: (fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000, os.get_inheritable(fd)),
        "lockf": lambda fd: os.lockf(fd, draw_lock, 10),
        "forked lockf": lambda fd: forked(lambda: os.lockf(fd, os.F_TLOCK, 10)),
        "flock": lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
        "funlock": lambda fd: fcntl.flock(fd, fcntl.LOCK_UN),
        "mmap": lambda fd: mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)[:],
        "preadv": lambda fd: (lambda one: (os.preadv(fd, [one], offset), bytes(one)))(bytearray(count)),
        "pwritev": lambda fd: os.pwritev(fd, [bytes_, b"more"], offset),
        "cat": lambda fd: subprocess.run(["cat"], stdin=fd, capture_output=True).stdout,
        "echo": lambda fd: subprocess.run(["sh", "-c", "echo said; echo more >&2"], stdout=fd, stderr=fd).returncode,
        "passed": lambda fd: subprocess.run(["bash", "-c", f"cat <&{fd}; echo told >&{fd}"], pass_fds=[fd],
                                            capture_output=True).stdout,
        "fdopen": lambda fd: fdopened(fd, bytes_),
        "fchdir": fchdired,
        "forked write": lambda fd: forked(lambda: os.write(fd, bytes_)),
        "forked read": lambda fd: forked(lambda: os.read(fd, min(count, 5000))),
        "forked lseek": lambda fd: forked(lambda: os.lseek(fd, move, whence)),
        "close": None, "dup": dup, "dup2": dup2, "copy_file_range": copies, "sendfile": sends,
    }
    name = draw.choice(list(calls))

    def act(side):
        if slot not in side.open:
            return None
        if "lock" in name and fcntl.fcntl(side.open[slot], fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            return None  # as over NFS, an exclusive lock is for those who may write, and a shared one for those who may read
        if "lseek" in name and stat.S_ISDIR(os.fstat(side.open[slot]).st_mode):
            return None  # what positions in directories are is the file system's business
        if name == "close":
            return os.close(side.open.pop(slot))
        if name in ("dup", "dup2", "copy_file_range", "sendfile"):
            return calls[name](side)
        return calls[name](side.open[slot])

    return f"{name} {slot}/{other} count {count} offset {offset} move {move} whence {whence}", act


def name_calls(_):
    """Something with names."""
    one, two, size, mode = draw.choice(NAMES), draw.choice(NAMES), draw.choice([0, 10, 5000]), draw.choice([0o700, 0o755])
    at = draw.random() < 0.3
    bytes_ = content()

    def stream(side):
        with open(side.path(one), draw_mode) as file:
            if "r" in draw_mode:
                return file.read(100), file.seek(size), file.readline(), file.tell()
            file.write(bytes_)
            file.seek(3)
            file.write(b"in the middle")
            file.flush()
            return file.tell()

    def tree(side):
        return [(path[len(side.root):], sorted(dirs), sorted(files)) for path, dirs, files in sorted(os.walk(side.root))
                if ".presagio" not in path]

    def changed(side):
        was = os.getcwd()
        os.chdir(side.path(one))
        try:
            return os.getcwd()[len(side.root):], sorted(os.listdir(".")), told(lambda: attributes(os.stat("a")))
        finally:
            os.chdir(was)

    draw_mode = draw.choice(["rb", "wb", "ab", "r+b", "w+b"])
    path = (lambda side, name: name) if at else (lambda side, name: side.path(name))
    dir_fd = (lambda side: side.dir) if at else (lambda side: None)
    calls = {
        "mkdir": lambda side: os.mkdir(path(side, one), mode, dir_fd=dir_fd(side)),
        "rmdir": lambda side: os.rmdir(path(side, one), dir_fd=dir_fd(side)),
        "unlink": lambda side: os.unlink(path(side, one), dir_fd=dir_fd(side)),
        "rename": lambda side: os.rename(path(side, one), path(side, two), src_dir_fd=dir_fd(side), dst_dir_fd=dir_fd(side)),
        "link": lambda side: os.link(path(side, one), path(side, two), src_dir_fd=dir_fd(side), dst_dir_fd=dir_fd(side),
                                     follow_symlinks=False),
        "symlink": lambda side: os.symlink(two, path(side, one), dir_fd=dir_fd(side)),
        "readlink": lambda side: os.readlink(path(side, one), dir_fd=dir_fd(side)),
        "stat": lambda side: attributes(os.stat(path(side, one), dir_fd=dir_fd(side))),
        "lstat": lambda side: attributes(os.stat(path(side, one), dir_fd=dir_fd(side), follow_symlinks=False)),
        "access": lambda side: os.access(path(side, one), os.R_OK | os.W_OK, dir_fd=dir_fd(side)),
        "truncate": lambda side: os.truncate(side.path(one), size),
        "chmod": lambda side: os.chmod(side.path(one), mode),
        "utime": lambda side: (os.utime(side.path(one), (5, size)), os.stat(side.path(one)).st_mtime),
        "listdir": lambda side: sorted(name for name in os.listdir(side.path(one))),
        "scandir": lambda side: sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink())
                                       for entry in os.scandir(side.path(one))),
        "stream": stream, "walk": tree, "chdir": changed,
        "setxattr": lambda side: os.setxattr(side.path(one), "user.one", bytes_[:100]),
        "listxattr": lambda side: os.listxattr(side.path(one)),
        "rmtree": lambda side: shutil.rmtree(side.path(one)),
        "copytree": lambda side: shutil.copytree(side.path(one), side.path(two), symlinks=True, dirs_exist_ok=True) and None,
        "mkstemp": lambda side: made(tempfile.mkstemp(dir=side.path("d"), prefix="t")),
        "namemax": lambda side: os.statvfs(side.path(one)).f_namemax,
        "execute": lambda side: os.access(side.path(one), os.X_OK),
        "getxattr": lambda side: os.getxattr(side.path(one), "user.one"),
        "realpath": lambda side: os.path.realpath(side.path(one))[len(os.path.realpath(side.root)):],
    }
    name = draw.choice(list(calls))
    return f"{name} {one} {two} at {at} mode {draw_mode} {mode:o} size {size}", calls[name]


def main():
    os.umask(0o022)
    sides = [Side(here), Side(there)]
    for step in range(steps):
        what, act = draw.choice([opens, opens_at, fd_calls, fd_calls, fd_calls, name_calls, name_calls])(draw.randrange(4))
        got = [told(lambda: act(side)) for side in sides]
        if got[0] != got[1]:
            sys.exit(f"seed {seed}, step {step}: {what}: {got[0]!r:.300} is not {got[1]!r:.300}")
    print("the same")


main()
