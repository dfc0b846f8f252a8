"""Threads and forked children that write and read back blocks of one file, append to a log and replace files by renaming,
until the file named by the second argument is there. After each round each of them adds a byte to a file of its own in the
third directory. In the end it says, for each, its name, its number, and how many rounds it did.

Of what must be done once, and only of that, a node that was killed in the middle may say that it cannot tell (EIO): then
the program looks, as it would anywhere."""

import os
import sys
import threading

far, stop, outside = sys.argv[1:]
# Blocks that each has in the shared file: they are written again and again.
BLOCKS = 32


def block(who, round):
    return bytes((who * 37 + round * 11 + i) % 251 for i in range(4096)) * 4


def place(who, round):
    return (round % BLOCKS * 16 + who) * 16384


def surely(act, is_done):
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno != 5:
                raise
            if is_done():
                return None


def whole(path):
    with open(path, "rb") as file:
        return file.read()


def replace(path, content):
    with open(path, "wb") as new:
        new.write(content)


def work(who, name):
    new, old, lines = f"{far}/new-{name}", f"{far}/file-{name}", f"{far}/log-{name}"
    fd = surely(lambda: os.open(f"{far}/shared", os.O_RDWR | os.O_CREAT, 0o644), lambda: False)
    log = surely(lambda: os.open(lines, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), lambda: False)
    done = os.open(f"{outside}/done-{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    round = 0
    while not os.path.exists(stop):
        mine = block(who, round)
        assert os.pwrite(fd, mine, place(who, round)) == len(mine)
        os.fsync(fd)
        for before in range(max(0, round - 3), round + 1):
            assert os.pread(fd, len(mine), place(who, before)) == block(who, before), (who, before, round)
        line = b"%d\n" % round
        surely(lambda: os.write(log, line), lambda: whole(lines).endswith(b"\n" + line) or whole(lines) == line)
        surely(lambda: replace(new, mine), lambda: False)
        surely(lambda: os.rename(new, old), lambda: not os.path.exists(new))
        assert whole(old) == mine, (who, round)
        round += 1
        os.write(done, b".")
    os.close(fd)
    os.close(log)


def child(who, name):
    pid = os.fork()
    if pid == 0:
        try:
            work(who, name)
        except BaseException as error:
            sys.stderr.write(f"{name}: {error!r}\n")
            os._exit(1)
        os._exit(0)
    return pid


def thread(who, name, failed):
    try:
        work(who, name)
    except BaseException as error:
        sys.stderr.write(f"{name}: {error!r}\n")
        failed.append(name)


def main():
    all_of_us = [(who, f"child{who}") for who in range(3)] + [(who, f"thread{who}") for who in range(3, 6)]
    failed = []
    children = [child(who, name) for who, name in all_of_us[:3]]
    threads = [threading.Thread(target=thread, args=(who, name, failed)) for who, name in all_of_us[3:]]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    for who, name in all_of_us:
        print(name, who, os.path.getsize(f"{outside}/done-{name}"))
    sys.exit(len(failed) + sum(codes))


main()
