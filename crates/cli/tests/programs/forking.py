"""A Python program that forks: workers by fork, by spawn, and programs that it starts, all on files in one directory.

Its parent's descriptors are used by the children; everybody's lines are in one log, each once; each worker's own file has
what it wrote. Runs until the file named by the second argument is there. Says how many rounds it did."""

import errno
import multiprocessing
import os
import subprocess
import sys

WORKERS = 3


def content(who, turn):
    return (f"{who}-{turn} " * 700).encode()


def known(work, done=lambda: False):
    """Where the node was killed in the middle of something, nobody can tell whether it was done (EIO). Then we look, and do it
    again if it was not."""
    while True:
        try:
            return work()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            if done():
                return None


def say(directory, line):
    path = os.path.join(directory, "log")

    def work():
        # Not through a stream of Python's: after an error it would write what it still has once more when it is closed.
        log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(log, (line + "\n").encode())
        finally:
            os.close(log)

    def done():
        with open(path) as log:
            return line in log.read().splitlines()

    known(work, done)


def work(directory, who, turn):
    path = os.path.join(directory, f"own-{who}")
    with known(lambda: open(path, "wb")) as file:
        file.write(content(who, turn))
        file.flush()
        os.fsync(file.fileno())
    with open(path, "rb") as file:
        assert file.read() == content(who, turn), path
    known(lambda: os.rename(path, path + ".done"), lambda: not os.path.exists(path))
    say(directory, f"{who} {turn}")


def by_fork(directory, turn):
    """Children that have what the parent has: they write through its descriptor, each in its place."""
    path = os.path.join(directory, "inherited")
    shared = known(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
    children = []
    for who in range(WORKERS):
        child = os.fork()
        if child == 0:
            try:
                os.pwrite(shared, content(who, turn)[:1000], 1000 * who)
                work(directory, f"forked{who}", turn)
            except BaseException as error:
                print("forked:", repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    for child in children:
        status = os.waitpid(child, 0)[1]
        assert status == 0, f"a forked child ended with {status}"
    for who in range(WORKERS):
        assert os.pread(shared, 1000, 1000 * who) == content(who, turn)[:1000], "inherited"
    os.close(shared)


def by_multiprocessing(directory, turn, method):
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=work, args=(directory, f"{method}{who}", turn)) for who in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, f"{method}: {worker.exitcode}"


def by_program(directory, turn):
    """What a child writes to its stdout, which is a file of ours, is there when it has ended."""
    path = os.path.join(directory, "printed")
    with known(lambda: open(path, "w")) as out:
        subprocess.run(["sh", "-c", f"echo started; cat '{path}' > /dev/null; seq 500"], stdout=out, check=True)
    with open(path) as out:
        assert out.read().split() == ["started"] + [str(i) for i in range(1, 501)], "printed"
    copy = path + ".copy"
    while (copied := subprocess.run(["cp", path, copy], capture_output=True, text=True)).returncode:
        assert "Input/output error" in copied.stderr, copied.stderr
    assert subprocess.check_output(["cat", copy]) == open(path, "rb").read(), "copied"
    known(lambda: os.unlink(copy), lambda: not os.path.exists(copy))


def main(directory, stop):
    turn = 0
    while turn < 2 or not os.path.exists(stop):
        by_fork(directory, turn)
        by_multiprocessing(directory, turn, "fork")
        if turn % 4 == 0:
            by_multiprocessing(directory, turn, "spawn")
        by_program(directory, turn)
        turn += 1
    lines = open(os.path.join(directory, "log")).read().splitlines()
    expected = [f"{kind}{who} {at}" for at in range(turn) for who in range(WORKERS) for kind in ("forked", "fork")]
    expected += [f"spawn{who} {at}" for at in range(0, turn, 4) for who in range(WORKERS)]
    assert sorted(lines) == sorted(expected), f"{len(lines)} lines, not {len(expected)}"
    print(turn)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
