"""Does to the file that is its argument what the lines on stdin ask for, and answers each: "ok", or the name of the error.
Its first line is its process id."""

import errno
import fcntl
import os
import sys


def open_file():
    return os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)


fd = open_file()
print(os.getpid(), flush=True)
for line in sys.stdin:
    try:
        match line.strip():
            case "lock":
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            case "unlock":
                fcntl.lockf(fd, fcntl.LOCK_UN)
            case "write":
                os.pwrite(fd, b"mine", 0)
            case "append":
                # As a program does that changes its mind: the file stays open.
                flags = fcntl.fcntl(fd, fcntl.F_GETFL)
                fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_APPEND)
                try:
                    os.write(fd, b"mine")
                finally:
                    fcntl.fcntl(fd, fcntl.F_SETFL, flags)
            case "close":
                os.close(fd)
            case "open":
                fd = open_file()
        print("ok", flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
