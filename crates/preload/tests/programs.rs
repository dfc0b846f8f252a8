//! Real programs: what they print and make is the same with the library, byte by byte; and at least 99 % of the bytes
//! that strace sees them move were seen, in the right file, at the right place.

#![cfg(target_arch = "x86_64")]

mod common;

use common::*;

/// Runs a script plain and watched, and once more under strace.
fn check(prepare: impl Fn(&Dir), text: &str, least: u64) {
    compare_outputs(&prepare, text);
    let dir = Dir::new();
    prepare(&dir);
    let (agreement, report) = compare_with_strace(&dir, &script(&dir, text));
    check_sane(&report);
    agreement.check(least);
}

const MIB: usize = 1 << 20;

fn noise(dir: &Dir) {
    dir.noise("input", 3 * MIB + 77);
}

/// A tree of a few directories and some dozen files, small and not so small.
fn tree(dir: &Dir) {
    for i in 0..40 {
        std::fs::create_dir_all(dir.file(&format!("tree/{}", i % 5))).unwrap();
        dir.noise(&format!("tree/{}/{i}", i % 5), i * 3000 + 1);
    }
}

fn numbers(dir: &Dir) {
    let lines: String = (0..200_000u64)
        .map(|i| format!("{}\n", i * 7_919 % 1_000_003))
        .collect();
    std::fs::write(dir.file("numbers"), lines).unwrap();
}

fn python(dir: &Dir, text: &str) {
    std::fs::write(dir.file("program.py"), text).unwrap();
}

#[test]
fn dd() {
    check(
        noise,
        "dd if=input of=a bs=64k 2>/dev/null; dd if=input of=b bs=4k skip=3 seek=5 count=9 conv=notrunc 2>/dev/null
         dd if=input of=c bs=1000 count=300 oflag=append conv=notrunc 2>/dev/null; cmp input a",
        6 * MIB as u64,
    );
}

#[test]
fn cp() {
    check(
        |dir| {
            noise(dir);
            tree(dir);
        },
        "cp input a; cp -r tree copy; cp --sparse=always a b; cp --reflink=never a c; cmp b c; cat a b > d; cat < a > e",
        20 * MIB as u64,
    );
}

#[test]
fn tar() {
    check(
        tree,
        "tar cf all.tar --sort=name --mtime=@0 tree; mkdir x; tar xf all.tar -C x; diff -r tree x/tree; tar rf all.tar -C x tree --mtime=@0 --sort=name; tar tf all.tar | wc -l",
        10 * MIB as u64,
    );
}

#[test]
fn sort() {
    check(
        numbers,
        "sort -S 256k -T . -n numbers -o sorted; sort -S 1M -T . --parallel=2 -u numbers > unique; tail -1 sorted; head -3 unique; wc -l sorted",
        8 * MIB as u64,
    );
}

#[test]
fn gzip() {
    check(
        |dir| {
            noise(dir);
            numbers(dir);
        },
        "gzip -k input; gzip -n -c numbers > n.gz; gunzip -c n.gz | cmp - numbers; rm input; gunzip -k input.gz; rm input.gz n.gz; gzip -t < <(gzip -n < input) && ls",
        8 * MIB as u64,
    );
}

#[test]
fn sqlite() {
    check(
        |dir| {
            let mut text = String::from("create table t(a integer primary key, b text, c blob);\n");
            for round in 0..30 {
                text += "begin;\n";
                for i in 0..100 {
                    text += &format!("insert into t(b, c) values('row {round} {i}', zeroblob({}));\n", i * 13);
                }
                text += "commit;\nupdate t set b = b || 'x' where a % 7 = 0;\n";
            }
            text += "create index i on t(b); delete from t where a % 3 = 0; vacuum;\nselect count(*), sum(length(b)) from t; pragma integrity_check;\n";
            std::fs::write(dir.file("load.sql"), text).unwrap();
        },
        "sqlite3 data.db < load.sql; sqlite3 wal.db 'pragma journal_mode=wal; pragma synchronous=off;' < /dev/null
         for i in 1 2 3; do sqlite3 -cmd '.timeout 60000' wal.db < load.sql 2>/dev/null | tail -1; rm -f wal.db*; done; sqlite3 data.db .dump | cksum",
        10 * MIB as u64,
    );
}

#[test]
fn git() {
    check(
        tree,
        "export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1
         git config --global user.email a@b; git config --global user.name n; git config --global init.defaultBranch main
         git config --global gc.auto 0; git config --global pack.threads 1
         cd tree; git init -q; git add .; git commit -qm one; echo more >> 1/1; git commit -qam two
         cd ..; git clone -q tree clone; git clone -q --no-local tree far; cd far; git fsck --strict 2>&1; git log --format=%H; git repack -adq; git diff HEAD~1 --stat
         cd ..; rm -f */.git/index clone/.git/logs -r far/.git/logs",
        4 * MIB as u64,
    );
}

#[test]
fn bash_with_pipes() {
    check(
        numbers,
        "head -50000 numbers | tac | sed 's/1/one/' | tee copy | grep -c one > count; cat count
         while read -r a; do echo \"$a.\"; done < count; { echo a; cat numbers; echo b; } > joined; tail -1 joined
         exec 5> log; for i in {1..50}; do echo \"line $i\" >&5; (echo sub $i; echo sub) >&5; done; exec 5>&-; wc log
         exec 6<> log; read -r x <&6; echo \"$x\"; echo overwritten >&6; exec 6>&-; head -3 log; cat <<< here >> log; awk '{ s += $1 } END { print s }' numbers
         printf '%s\\n' one two three > few; mapfile -t lines < few; echo ${lines[1]}; (cat few) | (read -r y; echo $y)",
        3 * MIB as u64,
    );
}

#[test]
fn gcc_building_a_project() {
    check(
        |dir| {
            let mut header = String::new();
            let mut main = String::from(
                "#include <stdio.h>\n#include \"all.h\"\nint main(void) { long s = 0;\n",
            );
            for i in 0..6 {
                header += &format!("long f{i}(long);\n");
                main += &format!("s += f{i}(s);\n");
                let body =
                    format!("#include \"all.h\"\nlong f{i}(long x) {{ return x * {i} + 1; }}\n");
                std::fs::write(dir.file(&format!("f{i}.c")), body).unwrap();
            }
            main += "printf(\"%ld\\n\", s); return 0; }\n";
            std::fs::write(dir.file("all.h"), header).unwrap();
            std::fs::write(dir.file("main.c"), main).unwrap();
        },
        "export TMPDIR=$PWD; for f in *.c; do gcc -pipe -O1 -c $f; done; gcc -c -O1 main.c; ar rcsD lib.a f*.o; gcc -o app main.o lib.a; ./app; g++ -x c++ -c main.c -o plus.o",
        200_000,
    );
}

#[test]
fn python_reads_and_writes_in_all_its_ways() {
    check(
        |dir| {
            noise(dir);
            python(
                dir,
                r#"
import os, shutil, mmap, tempfile, io, struct
data = open('input', 'rb').read()
with open('a', 'wb') as f:
    for i in range(0, len(data), 70001): f.write(data[i:i + 70001])
with open('a', 'r+b') as f:
    f.seek(1000); f.write(b'x' * 5000); f.seek(-3000, 2); print(f.read(100) == data[-3000:-2900]); f.truncate(2_000_000)
with open('a', 'rb', buffering=0) as f: print(len(f.read(123)), f.seek(0, 2), f.readinto(bytearray(10)))
shutil.copyfile('input', 'b'); shutil.copy2('input', 'c'); shutil.copyfileobj(open('b', 'rb'), open('d', 'wb'))
with open('b', 'r+b') as f:
    m = mmap.mmap(f.fileno(), 0); m[10:20] = b'0123456789'; m.flush(); m.close()
fd = os.open('e', os.O_RDWR | os.O_CREAT | os.O_APPEND)
for i in range(100): os.write(fd, b'line %d\n' % i)
os.lseek(fd, 0, 0); print(len(os.read(fd, 10**6)))
print(os.pwrite(fd, b'zz', 0), os.preadv(fd, [bytearray(5), bytearray(7)], 3), os.writev(fd, [b'ab', b'cd']))
os.close(fd)
with open('text', 'w') as f:
    for i in range(20000): print(i, 'text', file=f)
print(sum(len(line) for line in open('text')))
src, dst = os.open('input', os.O_RDONLY), os.open('f', os.O_WRONLY | os.O_CREAT)
print(os.sendfile(dst, src, 100, 50000), os.copy_file_range(src, dst, 40000, 7, None))
with tempfile.NamedTemporaryFile(dir='.') as t: t.write(data[:99999]); t.flush(); print(os.path.getsize(t.name))
"#,
            );
        },
        "python3 -B program.py; rm program.py; rm -rf .cache",
        20 * MIB as u64,
    );
}

#[test]
fn python_processes_and_threads() {
    check(
        |dir| {
            python(
                dir,
                r#"
import multiprocessing as mp, subprocess, threading, os, sys
def work(n):
    with open(f'out{n}', 'wb') as f:
        for i in range(200): f.write(bytes([n]) * 1000)
    with open(f'out{n}', 'rb') as f: return len(f.read())
if __name__ == '__main__':
    for method in ('fork', 'spawn'):
        with mp.get_context(method).Pool(3) as pool: print(method, pool.map(work, range(6)))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(10, 26)]
    [t.start() for t in threads]; [t.join() for t in threads]
    print(subprocess.run(['cat', 'out3'], capture_output=True).stdout == b'\3' * 200000)
    with open('log', 'w') as log:
        log.write('before\n'); log.flush()
        for i in range(5): subprocess.run(['sh', '-c', f'echo child {i}; cat out1 | wc -c'], stdout=log, close_fds=True)
        log.write('after\n')
    print(open('log').read())
    p = subprocess.Popen(['tee', 'teed'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    p.communicate(b'y' * 100000); print(p.returncode, os.path.getsize('teed'))
    pid = os.fork()
    if pid == 0:
        open('forked', 'w').write('child' * 1000); os._exit(0)
    os.waitpid(pid, 0); print(len(open('forked').read()))
    sys.stdout.flush(); os.execvp('sh', ['sh', '-c', 'cat forked > executed; wc -c < executed'])
"#,
            );
        },
        "python3 -B program.py; rm program.py; rm -rf .cache",
        6 * MIB as u64,
    );
}

#[test]
fn rsync() {
    need("rsync", "rsync");
    check(
        |dir| {
            noise(dir);
            tree(dir);
        },
        "rsync -a tree/ copy/; for i in {1..20}; do echo more >> tree/$((i % 5))/$i; done; mkdir far
         rsync -a --no-whole-file --inplace --delete tree/ copy/; diff -r tree copy; rsync --no-whole-file -z input far/
         (head -c 1000000 input; echo changed; tail -c 1000000 input) > changed; rsync --no-whole-file -I changed far/input; cmp changed far/input",
        8 * MIB as u64,
    );
}

#[test]
fn lammps() {
    let text = lammps_command(8, 60);
    check(|_| (), &text, MIB as u64);
}

#[test]
fn lammps_with_two_ranks() {
    let text = format!("{} {}", two_ranks("openmpi"), lammps_command(8, 60));
    check(|_| (), &text, MIB as u64);
}

#[test]
fn hdf5_plain_and_compressed() {
    let programs = Dir::new();
    let program = checkpoint(&programs, "serial");
    let text = format!("mkdir a b; {program} a 4; {program} b 8 gzip");
    check(|_| (), &text, 6 * MIB as u64);
}

#[test]
fn hdf5_through_mpi_io() {
    for library in ["openmpi", "mpich"] {
        let programs = Dir::new();
        let program = checkpoint(&programs, library);
        let text = format!("mkdir out; {} {program} out 4", two_ranks(library));
        check(|_| (), &text, 6 * MIB as u64);
    }
}

#[test]
fn cplusplus_streams() {
    let dir = Dir::new();
    let program = compile(&dir, "fstream.cc", &[]);
    let run = |library: bool| {
        let dir = Dir::new();
        let command = command(&dir, &program, &[]);
        let output = if library {
            watch(command).0
        } else {
            succeed(&mut { command })
        };
        (output.stdout, dir.contents())
    };
    assert!(run(false) == run(true));
    let dir = Dir::new();
    let (agreement, report) = compare_with_strace(&dir, &command(&dir, &program, &[]));
    check_sane(&report);
    agreement.check_exact(5 * MIB as u64);
}
