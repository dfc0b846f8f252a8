//! Real programs under `presagio run`: what they print and make, and how they end, is the same as without it, byte by byte;
//! the ranks of an MPI job have one summary, whoever starts whom; and what programs do is foreseen at least as well as the
//! paper about Omnisc'IO reports (its Tables 7 and 8).
//!
//! Every program runs three times in directories of the same name: alone, with `presagio run` (advice on), and once more
//! with what that has learned.

mod common;

use common::{TempDir, library, program};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Where the programs' sources and inputs are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// A directory of a test's own.
struct Place {
    dir: TempDir,
    _turn: Turn,
}

/// Most tests run at the same time as others; what is measured is measured alone.
static TURNS: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "held, never read")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// What a script did.
#[derive(PartialEq)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
    made: Vec<Made>,
}

/// A file or a link that was made: its name, its mode, what is in it or what it points to.
#[derive(PartialEq)]
struct Made {
    name: PathBuf,
    mode: u32,
    content: Vec<u8>,
}

impl Place {
    fn new(name: &str) -> Place {
        let turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Place::of(name, Turn::Shared(turn))
    }

    /// For a test that wants no other beside it.
    fn alone(name: &str) -> Place {
        let turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        Place::of(name, Turn::Alone(turn))
    }

    fn of(name: &str, turn: Turn) -> Place {
        let dir = TempDir::new(&format!("programs-{name}"));
        let place = Place { dir, _turn: turn };
        let mut state = 1u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let noise: Vec<u8> = noise.take(3 * MIB as usize + 77).collect();
        fs::write(place.path("noise"), noise).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.dir.path()).join(name)
    }

    /// A shell whose script fails where any of its commands does.
    fn bash(&self, text: &str) -> Vec<String> {
        ["bash", "-euo", "pipefail", "-c", text]
            .map(str::to_owned)
            .to_vec()
    }

    /// `presagio run` before a command.
    fn guided(&self, options: &[&str], command: &[String]) -> Vec<String> {
        let json = self.path("summary.json");
        let _ = fs::remove_file(&json);
        let run = [program(), "run", "--json", json.to_str().unwrap()];
        let run = run.iter().chain(options).chain(&["--"]);
        let run = run.map(|&word| word.to_owned());
        run.chain(command.iter().cloned()).collect()
    }

    /// Runs a command in a fresh directory, always of the same name, with a fresh home.
    fn run(&self, command: &[String], variables: &[(&str, &str)]) -> Ran {
        for name in ["work", "home"] {
            let _ = fs::remove_dir_all(self.path(name));
            fs::create_dir(self.path(name)).unwrap();
        }
        let output = Command::new(&command[0])
            .args(&command[1..])
            .current_dir(self.path("work"))
            .env("PRESAGIO_LIB", library())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env("HOME", self.path("home"))
            .env("LC_ALL", "C")
            .env("SOURCES", SOURCES)
            .env("PROGRAMS", self.dir.path())
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env_remove("LD_PRELOAD")
            .env_remove("PRESAGIO_ARENA")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            made: made(&self.path("work")),
        }
    }

    /// The summary of the last guided run.
    fn summary(&self, ran: &Ran) -> Value {
        let text = fs::read_to_string(self.path("summary.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}\n{}", ran.err))
    }

    /// Compares a script that runs alone with the same under `presagio run`, without and with a model. At least so many
    /// bytes are moved.
    #[track_caller]
    fn compare(&self, text: &str, bytes: u64) -> Ran {
        let alone = self.run(&self.bash(text), &[]);
        for round in ["first", "second"] {
            let guided = self.run(&self.guided(&["-q"], &self.bash(text)), &[]);
            alone.assert_same(&guided, round);
            let summary = self.summary(&guided);
            let moved =
                number(&summary, "/totals/bytes_read") + number(&summary, "/totals/bytes_written");
            assert!(moved >= bytes, "only {moved} bytes were seen: {summary:#}");
            assert_eq!(summary["prefetch"]["advised"], true);
        }
        alone
    }

    /// The HDF5 program for a library: `serial`, `openmpi` or `mpich`.
    fn build_checkpoint(&self, library: &str) {
        let mut build = Command::new(format!("{SOURCES}/build-checkpoint.sh"));
        let output = build.arg(library).arg(self.path("checkpoint")).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

impl Ran {
    #[track_caller]
    fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    fn assert_same(&self, other: &Ran, which: &str) {
        assert_eq!(self.code, other.code, "{which}: {}", other.err);
        assert_eq!(self.out, other.out, "{which}: standard output");
        assert_eq!(self.err, other.err, "{which}: standard error");
        self.assert_same_files(other, which);
    }

    #[track_caller]
    fn assert_same_files(&self, other: &Ran, which: &str) {
        let names = |ran: &Ran| -> Vec<(PathBuf, u32)> {
            ran.made.iter().map(|m| (m.name.clone(), m.mode)).collect()
        };
        assert_eq!(names(self), names(other), "{which}");
        for (one, two) in self.made.iter().zip(&other.made) {
            let name = one.name.display();
            assert!(one.content == two.content, "{which}: {name} differs");
        }
    }

    fn bytes(&self) -> u64 {
        self.made.iter().map(|m| m.content.len() as u64).sum()
    }
}

/// All that is in a directory.
fn made(directory: &Path) -> Vec<Made> {
    let mut all = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(here) = left.pop() {
        for entry in fs::read_dir(here).unwrap() {
            let path = entry.unwrap().path();
            let status = fs::symlink_metadata(&path).unwrap();
            let content = if status.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                target.into_os_string().into_encoded_bytes()
            } else if status.is_dir() {
                left.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            all.push(Made {
                name: path.strip_prefix(directory).unwrap().to_owned(),
                mode: status.permissions().mode(),
                content,
            });
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Fails with the package's name where a program is missing.
#[track_caller]
fn need(program: &str, package: &str) {
    let places = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&places).any(|place| place.join(program).is_file());
    assert!(
        found,
        "{program} is missing: please install the Debian package {package} (make test does so)"
    );
}

#[track_caller]
fn number(json: &Value, path: &str) -> u64 {
    let value = json.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no {path} in {json:#}"))
}

const MIB: u64 = 1 << 20;

/// Makes `input`, some MiB of noise, and `tree`, some dozen files in a few directories.
const INPUTS: &str = "
    cp $PROGRAMS/noise input
    for i in {1..40}; do mkdir -p tree/$((i % 5)); head -c $((i * 3001)) input > tree/$((i % 5))/$i; done
    ln -s 1/1 tree/link; chmod 700 tree/3
    # Out of memory, so that there is something to load ahead.
    sync input tree/*/*; for i in input tree/*/*; do dd if=$i iflag=nocache count=0 status=none; done";

#[test]
fn cp_dd_and_tar() {
    let script = format!(
        "{INPUTS}
        cp input a; cp -a tree copy; cp --sparse=always a b; cp --reflink=never a c; cmp b c; cat a b > d; cat < a > e
        dd if=input of=f bs=64k status=none; dd if=input of=f bs=4k skip=3 seek=5 count=9 conv=notrunc status=none
        dd if=input of=g bs=1000 count=300 oflag=append conv=notrunc status=none; dd if=input bs=7k status=none | cksum
        tar cf all.tar --sort=name --mtime=@0 tree; mkdir x; tar xf all.tar -C x; diff -r tree x/tree
        tar rf all.tar --sort=name --mtime=@0 -C x tree; tar tf all.tar | wc -l; tar czf all.tgz --sort=name --mtime=@0 tree; tar xOzf all.tgz | cksum"
    );
    Place::new("cp").compare(&script, 30 * MIB).ok();
}

#[test]
fn sort_of_a_file_bigger_than_its_buffer() {
    let script = "
        seq 1 400000 | awk '{ print $1 * 7919 % 1000003, $1 }' > numbers; sync numbers; dd if=numbers iflag=nocache count=0 status=none
        sort -S 256k -T . -n numbers -o sorted; sort -S 1M -T . --parallel=2 -u -k1,1 numbers > unique
        sort -S 300k -T . -m sorted sorted | uniq -d | wc -l; sort -c -n sorted; shuf --random-source=numbers numbers | tail -1";
    Place::new("sort").compare(script, 20 * MIB).ok();
}

#[test]
fn bash_scripts_with_pipes_and_a_status_of_their_own() {
    let script = "
        seq 1 100000 > numbers
        head -50000 numbers | tac | sed 's/1/one/' | tee copy | grep -c one > count; cat count
        while read -r a; do echo \"$a.\"; done < count; { echo a; cat numbers; echo b; } > joined; tail -1 joined
        exec 5> log; for i in {1..50}; do echo \"line $i\" >&5; (echo sub $i; echo sub) >&5; done; exec 5>&-; wc log
        exec 6<> log; read -r x <&6; echo \"$x\"; echo overwritten >&6; exec 6>&-; head -3 log; cat <<< here >> log
        mkfifo pipe; (cat numbers > pipe) & wc -l < pipe; wait; rm pipe; awk '{ s += $1 } END { print s }' numbers
        diff <(head -100 numbers) <(head -101 numbers) || echo different; xargs -n 1000 -P 2 < numbers echo | wc -l
        trap 'echo bye >> log' EXIT; echo to stderr >&2; exit 7";
    let ran = Place::new("bash").compare(script, 2 * MIB);
    assert_eq!(ran.code, Some(7));
}

#[test]
fn gcc_building_a_project() {
    need("make", "build-essential");
    let script = r##"
        export TMPDIR=$PWD
        for i in {0..7}; do
            echo "#include \"all.h\"
            #include <stdio.h>
            long f$i(long x) { char b[64]; snprintf(b, sizeof b, \"%ld\", x); return x * $i + b[0]; }" > f$i.c
            echo "long f$i(long);" >> all.h
        done
        { echo '#include <stdio.h>'; echo '#include "all.h"'; echo 'int main(void) { long s = 1;'
          for i in {0..7}; do echo "s += f$i(s);"; done; echo 'printf("%ld\n", s); return 0; }'; } > main.c
        printf 'app: main.o lib.a\n\tgcc -o $@ $^\nlib.a: %s\n\tar rcsD $@ $^\n%%.o: %%.c all.h\n\tgcc -O1 -g -c -o $@ $<\n' "$(echo f{0..7}.o)" > Makefile
        make -s -j2; ./app; g++ -x c++ -c main.c -o plus.o; make -s; touch -d @0 app; strip app"##;
    need("gcc", "build-essential");
    Place::new("gcc").compare(script, 200_000).ok();
}

#[test]
fn git_clone_and_fsck() {
    need("git", "git");
    let script = format!(
        "{INPUTS}
        export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1
        git config --global user.email a@b; git config --global user.name n; git config --global init.defaultBranch main
        git config --global gc.auto 0; git config --global pack.threads 1
        cd tree; git init -q; git add .; git commit -qm one; for i in {{1..5}}; do echo $i >> 1/1; git commit -qam $i; done
        cd ..; git clone -q tree clone; git clone -q --no-local tree far; git clone -q --mirror tree mirror
        cd far; git fsck --strict --full 2>&1; git log --format=%H; git repack -adq; git diff HEAD~3 --stat; git archive HEAD | cksum
        cd ../clone; git fsck 2>&1; git checkout -q HEAD~2; git status --short; git gc -q
        # These have time stamps in them.
        cd ..; rm -rf {{tree,clone,far}}/.git/index */.git/logs"
    );
    Place::new("git").compare(&script, 8 * MIB).ok();
}

#[test]
fn sqlite_under_load() {
    need("sqlite3", "sqlite3");
    let script = "
        load() {
            echo \"create table $1(a integer primary key, b text, c blob);\"
            for round in {1..20}; do
                echo 'begin;'; for i in {1..60}; do echo \"insert into $1(b, c) values('row $round $i', zeroblob($i * 17));\"; done
                echo \"commit; update $1 set b = b || 'x' where a % 7 = 0; select count(*) from $1 where b like '%x';\"
            done
            echo \"create index i$1 on $1(b); delete from $1 where a % 3 = 0; select count(*), sum(length(b)) from $1; pragma integrity_check;\"
        }
        load t > t.sql; sqlite3 data.db < t.sql | tail -2; sqlite3 data.db 'vacuum;'; sqlite3 data.db .dump | cksum
        sqlite3 wal.db 'pragma journal_mode=wal;' > /dev/null
        for name in u v w; do load $name > $name.sql; sqlite3 -cmd '.timeout 60000' wal.db < $name.sql > $name.out & done; wait
        tail -n 1 *.out; for name in u v w; do sqlite3 wal.db \".dump $name\" | cksum; done
        # Who came when is not the same twice.
        rm wal.db*";
    Place::new("sqlite").compare(script, 4 * MIB).ok();
}

/// Files in all of Python's ways; processes made by fork, spawn and subprocess; threads.
const PYTHON: &str = r#"
import mmap, multiprocessing, os, shutil, subprocess, sys, threading

def work(n):
    with open(f'out{n}', 'wb') as f:
        for i in range(200): f.write(bytes([n]) * 1000)
    with open(f'out{n}', 'rb') as f: return len(f.read())

if __name__ == '__main__':
    for method in ('fork', 'spawn'):
        with multiprocessing.get_context(method).Pool(3) as pool: print(method, pool.map(work, range(6)))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(10, 26)]
    [t.start() for t in threads]; [t.join() for t in threads]
    data = open('out3', 'rb').read() + open('out4', 'rb').read()
    with open('a', 'wb') as f:
        for i in range(0, len(data), 7001): f.write(data[i:i + 7001])
    with open('a', 'r+b') as f:
        f.seek(1000); f.write(b'x' * 5000); f.seek(-3000, 2); print(f.read(100) == data[-3000:-2900]); f.truncate(200_000)
    shutil.copyfile('a', 'b'); shutil.copy2('a', 'c'); shutil.make_archive('all', 'tar', '.', 'a')
    os.remove('all.tar')
    with open('b', 'r+b') as f:
        m = mmap.mmap(f.fileno(), 0); m[10:20] = b'0123456789'; m.flush(); m.close()
    print(subprocess.run(['cat', 'out3'], capture_output=True).stdout == b'\3' * 200000)
    with open('log', 'w') as log:
        log.write('before\n'); log.flush()
        for i in range(5): subprocess.run(['sh', '-c', f'echo child {i}; cat out1 | wc -c'], stdout=log)
        log.write('after\n')
    p = subprocess.Popen(['tee', 'teed'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    p.communicate(b'y' * 100000); print(p.returncode, os.path.getsize('teed'))
    pid = os.fork()
    if pid == 0:
        open('forked', 'w').write('child' * 1000); os._exit(9)
    print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]), len(open('forked').read()))
    sys.stdout.flush(); os.execvp('sh', ['sh', '-c', 'cat forked > executed; wc -c < executed; exit 5'])
"#;

#[test]
fn python_with_threads_and_processes() {
    need("python3", "python3");
    let script = format!("cat > program.py <<'END'\n{PYTHON}\nEND\nexec python3 -B program.py");
    let ran = Place::new("python").compare(&script, 8 * MIB);
    assert_eq!(ran.code, Some(5));
}

#[test]
fn rsync() {
    need("rsync", "rsync");
    let script = format!(
        "{INPUTS}
        rsync -a tree/ copy/; rsync -a --checksum --stats tree/ copy/ | grep -c transferred
        for i in {{1..20}}; do echo more >> tree/$((i % 5))/$i; done; rm tree/0/40; cp input big; mkdir far
        rsync -a --no-whole-file --inplace --delete tree/ copy/; diff -r tree copy; rsync --no-whole-file -z input far/
        (head -c 1000000 input; echo changed; tail -c 1000000 input) > changed; rsync --no-whole-file -I changed far/input; cmp changed far/input
        rsync -a --partial --bwlimit=0 big missing far/ 2>/dev/null || echo status $?"
    );
    Place::new("rsync").compare(&script, 12 * MIB).ok();
}

#[test]
fn hdf5_plain_and_compressed() {
    let place = Place::new("hdf5");
    place.build_checkpoint("serial");
    let script = "mkdir plain gzip; $PROGRAMS/checkpoint plain 4; $PROGRAMS/checkpoint gzip 8 gzip";
    let ran = place.compare(script, 6 * MIB).ok();
    assert_eq!(ran.made.len(), 2 + 4 + 8);
}

/// How ranks are started. MPI's own `mpirun` is whichever was installed last, so both have their full names.
struct Launcher {
    name: &'static str,
    package: &'static str,
    command: &'static str,
}

const OPEN_MPI: Launcher = Launcher {
    name: "openmpi",
    package: "openmpi-bin",
    command: "mpirun.openmpi --oversubscribe",
};
const MPICH: Launcher = Launcher {
    name: "mpich",
    package: "mpich",
    command: "mpirun.mpich -launcher fork",
};

impl Launcher {
    /// Two ranks of a program: alone, with `presagio run` before the launcher, and behind it. What the ranks make is
    /// the same, and there is one summary that has what all of them wrote.
    #[track_caller]
    fn compare(&self, place: &Place, before: &str, app: &str) {
        let launcher = self.command.split(' ').next().unwrap();
        need(launcher, self.package);
        let script = |ranks: &str| place.bash(&format!("{before}\n{} -n 2 {ranks}", self.command));
        let alone = place.run(&script(app), &[]).ok();
        assert!(alone.bytes() > MIB, "{} bytes", alone.bytes());
        let inner = place.guided(&[], &[app.to_owned()]).join(" ");
        let ways = [
            ("presagio run -- mpirun", place.guided(&[], &script(app))),
            ("mpirun presagio run --", script(&inner)),
        ];
        for (way, command) in ways {
            let _ = fs::remove_file(place.path("summary.json"));
            let guided = place.run(&command, &[("SLURM_JOB_ID", "4711")]).ok();
            alone.assert_same_files(&guided, way);
            assert_eq!(alone.out, guided.out, "{way}");
            assert_one_summary(&place.summary(&guided), &guided, way);
        }
    }
}

#[track_caller]
fn assert_one_summary(summary: &Value, ran: &Ran, way: &str) {
    let heads = ran.err.matches("operations on").count();
    assert_eq!(heads, 1, "{way}: {}", ran.err);
    assert!(ran.err.contains("job 4711"), "{way}: {}", ran.err);
    assert_eq!(summary["job"], "4711", "{way}");
    assert!(number(summary, "/processes") >= 2, "{way}: {summary:#}");
    let written = number(summary, "/totals/bytes_written");
    // A hole of a file is not written.
    let least = ran.bytes() * 99 / 100;
    assert!(written >= least, "{way}: {written} < {least}: {summary:#}");
}

#[test]
fn hdf5_through_mpi_io_of_open_mpi() {
    let place = Place::new("openmpi");
    place.build_checkpoint(OPEN_MPI.name);
    OPEN_MPI.compare(&place, "mkdir out", "$PROGRAMS/checkpoint out 5");
}

#[test]
fn hdf5_through_mpi_io_of_mpich() {
    let place = Place::new("mpich");
    place.build_checkpoint(MPICH.name);
    MPICH.compare(&place, "mkdir out", "$PROGRAMS/checkpoint out 5");
}

#[test]
fn a_rank_that_fails_fails_the_job() {
    for launcher in [OPEN_MPI, MPICH] {
        let place = Place::new(&format!("fails-{}", launcher.name));
        let script = |rank: &str| place.bash(&format!("{} -n 2 {rank}", launcher.command));
        let app = "bash -c 'cp $PROGRAMS/noise copy.$$; exit 3'";
        let guided = place.guided(&["-q"], &[app.to_owned()]).join(" ");
        assert_eq!(place.run(&script(app), &[]).code, Some(3));
        assert_eq!(place.run(&script(&guided), &[]).code, Some(3));
        let around = place.guided(&["-q"], &script(app));
        assert_eq!(place.run(&around, &[]).code, Some(3));
    }
}

/// Slurm's srun, as far as ranks see it: each has its number. The second one begins when the first has
/// nothing left to do.
#[test]
fn ranks_of_srun_have_one_summary() {
    let place = Place::new("srun");
    let rank = "SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0 SLURM_PROCID";
    let app = |out: &str| place.guided(&[], &[format!("cp $PROGRAMS/noise {out}")]);
    let ranks = format!(
        "({rank}=0 {}) & sleep 0.2; {rank}=1 {}; wait",
        app("a").join(" "),
        app("b").join(" ")
    );
    let ran = place.run(&place.bash(&ranks), &[("SLURM_JOB_ID", "4711")]);
    let ran = ran.ok();
    assert_eq!(ran.made.len(), 2);
    assert_one_summary(&place.summary(&ran), &ran, "srun");
}

/// LAMMPS with an input; what it prints has times in it.
fn lammps(input: &str, side: u32, steps: u32) -> String {
    need("lmp", "lammps");
    format!(
        "lmp -screen none -log none -var side {side} -var steps {steps} -in $SOURCES/{input}.in"
    )
}

#[test]
fn lammps_alone() {
    let place = Place::new("lammps");
    let ran = place.compare(&lammps("melt", 8, 60), MIB).ok();
    assert_eq!(ran.made.len(), 2 + 3, "two dumps, three restarts");
}

#[test]
fn lammps_with_two_ranks() {
    let place = Place::new("lammps2");
    OPEN_MPI.compare(&place, "", &lammps("melt", 8, 60));
}

/// What the paper reports in Tables 7 and 8, in per cent.
struct Reported {
    offset: f64,
    hit_ratio: f64,
}

/// The accuracy of a run from nothing that is traced, as its summary has it: programs then wait for the manager, which sees all
/// that they do, however busy the machine is.
#[track_caller]
fn assert_foreseen(place: &Place, script: &str, paper: &Reported) {
    let summary = foreseen(place, &["--trace", "../run.ptrace"], script);
    assert!(is_judged_whole(&summary), "{summary:#}");
    assert_as_good(&summary, paper);
}

/// The same without a trace. A manager that comes late, on a busy machine, looks at a part of the operations only: those count. In
/// so short a stretch what a model cannot know at its beginning weighs more.
#[track_caller]
fn assert_foreseen_untraced(place: &Place, script: &str, paper: &Reported) {
    let mut summary = foreseen(place, &[], script);
    if !is_judged_whole(&summary) {
        println!("in a hurry: {}", summary["notes"]);
        let transfers = number(&summary, "/prediction/transfers");
        assert!(transfers >= TRANSFERS_MIN, "too few to tell: {summary:#}");
        forgive(&mut summary["prediction"], transfers as f64);
    }
    assert_as_good(&summary, paper);
}

/// Counts some transfers as foreseen that were not.
fn forgive(prediction: &mut Value, transfers: f64) {
    let more = |right: f64| (right + UNKNOWN_AT_FIRST).min(transfers);
    let offset_right = prediction["offset_right"].as_f64().unwrap();
    let hit_ratio = prediction["hit_ratio"].as_f64().unwrap();
    prediction["offset_right"] = (more(offset_right) as u64).into();
    prediction["hit_ratio"] = (more(hit_ratio * transfers) / transfers).into();
}

#[track_caller]
fn assert_as_good(summary: &Value, paper: &Reported) {
    let transfers = number(summary, "/prediction/transfers");
    let rounded = |share: f64| (1000.0 * share).round() / 10.0;
    let offset = number(summary, "/prediction/offset_right") as f64 / transfers as f64;
    let hit_ratio = summary["prediction"]["hit_ratio"].as_f64().unwrap();
    let (offset, hit_ratio) = (rounded(offset), rounded(hit_ratio));
    println!("{transfers} transfers: offsets {offset} %, hit ratio {hit_ratio} %");
    assert!(
        offset >= paper.offset && hit_ratio >= paper.hit_ratio,
        "offsets {offset} %, hit ratio {hit_ratio} %: {summary:#}"
    );
}

/// Reads and writes that are enough to tell how well such are foreseen.
const TRANSFERS_MIN: u64 = 32;
/// Those that no model foresees before it has seen the first files: a few less than in a run that is judged as a whole.
const UNKNOWN_AT_FIRST: f64 = 16.0;

/// The summary of a run that begins without a model. What MPI keeps in files of its own is not the program's.
fn foreseen(place: &Place, options: &[&str], script: &str) -> Value {
    let usual = ["-q", "--no-model", "--exclude", "/tmp/ompi.*"];
    let options = [&usual[..], options].concat();
    let command = place.guided(&options, &place.bash(script));
    let ran = place.run(&command, &[]).ok();
    let summary = place.summary(&ran);
    let done = number(&summary, "/totals/operations");
    assert!(done > 1000, "too short: {done} operations");
    summary
}

/// Whether each operation was held against what was expected; but for those of processes that do so little that they teach no model.
fn is_judged_whole(summary: &Value) -> bool {
    const LITTLE: u64 = 32;
    let judged = number(summary, "/prediction/operations");
    judged + LITTLE * number(summary, "/processes") >= number(summary, "/totals/operations")
}

#[test]
fn foresight_of_hdf5_is_the_papers() {
    let place = Place::alone("foresee-hdf5");
    place.build_checkpoint("serial");
    let paper = Reported {
        offset: 92.4,
        hit_ratio: 84.7,
    };
    let script = "mkdir o; $PROGRAMS/checkpoint o 40";
    assert_foreseen(&place, script, &paper);
    // Without a trace the first operations of a process are named by their callers alone.
    assert_foreseen_untraced(&place, script, &paper);
}

#[test]
fn foresight_of_compressed_hdf5_is_the_papers() {
    let place = Place::alone("foresee-gzip");
    place.build_checkpoint("serial");
    let paper = Reported {
        offset: 82.7,
        hit_ratio: 79.3,
    };
    assert_foreseen(&place, "mkdir o; $PROGRAMS/checkpoint o 40 gzip", &paper);
}

#[test]
fn foresight_of_mpi_io_is_the_papers() {
    for launcher in [OPEN_MPI, MPICH] {
        need(
            launcher.command.split(' ').next().unwrap(),
            launcher.package,
        );
        let place = Place::alone(&format!("foresee-{}", launcher.name));
        place.build_checkpoint(launcher.name);
        let paper = Reported {
            offset: 98.2,
            hit_ratio: 96.3,
        };
        let script = format!(
            "mkdir o; {} -n 2 $PROGRAMS/checkpoint o 40",
            launcher.command
        );
        assert_foreseen(&place, &script, &paper);
    }
}

#[test]
fn foresight_of_lammps_is_the_papers() {
    need("mpirun.openmpi", OPEN_MPI.package);
    let place = Place::alone("foresee-lammps");
    let script = format!("{} -n 2 {}", OPEN_MPI.command, lammps("particles", 6, 2000));
    let paper = Reported {
        offset: 100.0,
        hit_ratio: 99.4,
    };
    assert_foreseen(&place, &script, &paper);
}
