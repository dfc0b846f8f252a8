//! Call stacks of real programs: each operation has the context that the C runtime's own unwinder, asked at every single
//! call, says it should have (tests/c/witness.c).

#![cfg(target_arch = "x86_64")]

mod common;

use common::*;
use presagio_arena::{ArenaOptions, Record};
use presagio_core::Action;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The call stacks that the witness saw: by thread, in the order of time.
type Stacks = HashMap<u32, BTreeMap<u64, String>>;

/// Runs a script with the library and the witness behind it, and compares. At least so many operations are compared.
#[track_caller]
fn judge(prepare: impl Fn(&Dir), text: &str, least: usize) {
    let (dir, tools) = (Dir::new(), Dir::new());
    prepare(&dir);
    judge_command(&tools, script(&dir, text), least);
}

#[track_caller]
fn judge_command(tools: &Dir, command: Command, least: usize) {
    let (report, stacks) = witness(Manager::start(), tools, command);
    check_sane(&report);
    compare(&report, &stacks, least);
}

/// Runs a command with the library and the witness behind it: what each of them saw.
fn witness(manager: Manager, tools: &Dir, mut command: Command) -> (Report, Stacks) {
    let witness = compile(tools, "witness.c", &["-shared", "-fPIC"]);
    manager.preload(&mut command);
    let both = format!("{}:{}", library().display(), witness.display());
    command
        .env("LD_PRELOAD", both)
        .env("WITNESS", tools.file("stacks"));
    succeed(&mut command);
    (manager.finish(), witnessed(&tools.file("stacks")))
}

/// The same without a trace, as most runs are: nobody is told what contexts consist of, and the first operations of a process
/// are named by their callers alone. All others are in the right class: those of one name have one call stack, and those of
/// one call stack one name.
#[track_caller]
fn judge_untraced(text: &str, least: usize) {
    let (dir, tools) = (Dir::new(), Dir::new());
    let manager = Manager::with(&ArenaOptions {
        slots: 512,
        ..ArenaOptions::default()
    });
    let (report, stacks) = witness(manager, &tools, script(&dir, text));
    assert!(report.contexts.is_empty(), "this is not the usual mode");
    compare_classes(&report, &stacks, least);
}

/// Operations of a process that are named by their callers alone (`EARLY` in context.rs), and some more: threads may be told
/// in another order.
const EARLY: usize = 32 + 8;

#[track_caller]
fn compare_classes(report: &Report, stacks: &Stacks, least: usize) {
    let mut operations: Vec<&Seen> = report.seen.iter().collect();
    let end = |seen: &Seen| seen.operation.start + seen.operation.duration;
    operations.sort_by_key(|seen| end(seen));
    let mut begun: HashMap<(u32, u32), usize> = HashMap::new();
    let mut pairs: HashMap<(Class, Class), usize> = HashMap::new();
    let (mut modules, mut compared) = (Modules::default(), 0);
    for seen in operations {
        let process = (seen.origin.pid, seen.origin.image);
        let number = begun.entry(process).or_default();
        *number += 1;
        // A file that dup2 closes is reported before its call, and what is left at exit by nobody's.
        let is_odd =
            seen.operation.action == Action::Close || seen.operation.flags & Record::AT_EXIT != 0;
        let calls = stacks.get(&seen.origin.tid);
        let call = calls.and_then(|calls| calls.range(..=end(seen)).next_back());
        let Some((_, stack)) = call.filter(|_| *number > EARLY && !is_odd) else {
            continue;
        };
        compared += 1;
        let name = (process, seen.operation.context.to_string());
        let stack = (process, modules.canonical(stack));
        *pairs.entry((name, stack)).or_default() += 1;
    }
    assert!(compared >= least, "only {compared} operations");
    let wrong = misplaced(&pairs, |pair| &pair.0) + misplaced(&pairs, |pair| &pair.1);
    println!("{compared} operations in classes, {wrong} wrong");
    let right = 1.0 - wrong as f64 / compared as f64;
    assert!(right >= 0.999, "{right} of {compared}");
}

/// A name, or a call stack, of one process.
type Class = ((u32, u32), String);

/// Of operations that are alike in one way, those that are not in the other as most of them are.
fn misplaced(
    pairs: &HashMap<(Class, Class), usize>,
    way: impl Fn(&(Class, Class)) -> &Class,
) -> usize {
    let mut classes: HashMap<&Class, (usize, usize)> = HashMap::new();
    for (pair, count) in pairs {
        let (all, most) = classes.entry(way(pair)).or_default();
        *all += count;
        *most = (*most).max(*count);
    }
    classes.values().map(|(all, most)| all - most).sum()
}

fn witnessed(log: &Path) -> Stacks {
    let mut stacks = Stacks::new();
    for line in std::fs::read_to_string(log).unwrap().lines() {
        let mut fields = line.split('\t');
        let mut number = || fields.next().unwrap().parse::<u64>().unwrap();
        let (thread, time) = (number() as u32, number());
        let stack = fields.next().unwrap_or_default().to_owned();
        stacks.entry(thread).or_default().insert(time, stack);
    }
    stacks
}

/// A call stack whose modules are named by what they are: a program may have several names.
#[derive(Default)]
struct Modules(HashMap<String, String>);

impl Modules {
    fn canonical(&mut self, stack: &str) -> String {
        let frames = stack.split(';').map(|frame| {
            let (module, offset) = frame.rsplit_once('+').unwrap_or((frame, ""));
            let file = self.0.entry(module.to_owned()).or_insert_with(|| {
                let status = std::fs::metadata(module);
                status.map_or(module.to_owned(), |s| format!("{}:{}", s.dev(), s.ino()))
            });
            format!("{file}+{offset}")
        });
        frames.collect::<Vec<_>>().join(";")
    }
}

/// An operation is reported right after its call, so the witness's last word before its end is about it; but a file that dup2
/// closes is reported before. What is still in streams when a program exits is reported by nobody's call.
#[track_caller]
fn compare(report: &Report, stacks: &Stacks, least: usize) {
    let operations = report
        .seen
        .iter()
        .filter(|seen| seen.operation.flags & Record::AT_EXIT == 0);
    let (mut compared, mut wrong) = (0, Vec::new());
    let mut modules = Modules::default();
    for seen in operations {
        let end = seen.operation.start + seen.operation.duration;
        let calls = stacks.get(&seen.origin.tid);
        let before = calls.and_then(|calls| calls.range(..=end).next_back());
        let after = calls.and_then(|calls| calls.range(end..).next());
        let after = after.filter(|_| seen.operation.action == Action::Close);
        let frames = report.contexts.get(&seen.operation.context);
        let named = frames.map(|frames| modules.canonical(&frames.join(";")));
        let mut called = before.iter().chain(&after);
        compared += 1;
        if !called.any(|call| Some(modules.canonical(call.1)) == named) {
            wrong.push((seen, before, frames));
        }
    }
    assert!(compared >= least, "only {compared} operations");
    println!(
        "{compared} operations in {} contexts, {} wrong",
        report.contexts.len(),
        wrong.len()
    );
    let right = 1.0 - wrong.len() as f64 / compared as f64;
    let examples = &wrong[..wrong.len().min(3)];
    assert!(right >= 0.999, "{right} of {compared}: {examples:#?}");
}

#[test]
fn of_callers_with_alloca() {
    let (dir, tools) = (Dir::new(), Dir::new());
    let program = compile(&tools, "alloca.c", &[]);
    judge_command(&tools, command(&dir, &program, &[]), 20_000);
    judge_untraced(&program.display().to_string(), 10_000);
}

#[test]
fn of_lammps() {
    judge(|_| (), &lammps_command(5, 100), 50);
    let two = format!("{} {}", two_ranks("openmpi"), lammps_command(5, 100));
    judge(|_| (), &two, 50);
}

#[test]
fn of_hdf5() {
    let programs = Dir::new();
    let program = checkpoint(&programs, "serial");
    judge(|_| (), &format!("{program} . 20"), 500);
    judge(|_| (), &format!("{program} . 20 gzip"), 500);
    judge_untraced(&format!("{program} . 20"), 400);
}

#[test]
fn of_hdf5_through_mpi_io() {
    for library in ["openmpi", "mpich"] {
        let programs = Dir::new();
        let program = checkpoint(&programs, library);
        judge(
            |_| (),
            &format!("{} {program} . 20", two_ranks(library)),
            1000,
        );
    }
}

#[test]
fn of_sqlite() {
    need("sqlite3", "sqlite3");
    let text = "
        { echo 'create table t(a integer primary key, b text);'
          for i in {1..300}; do echo \"insert into t(b) values('row $i'); select max(a) from t;\"; done
          echo 'create index i on t(b); delete from t where a % 3 = 0; vacuum; pragma integrity_check;'; } > load.sql
        sqlite3 data.db < load.sql > out";
    judge(|_| (), text, 2000);
    judge_untraced(text, 1500);
}

#[test]
fn of_git() {
    need("git", "git");
    let text = "
        git config --global user.email a@b; git config --global user.name n; git config --global init.defaultBranch main
        mkdir tree; cd tree; for i in {1..60}; do seq 1 $((i * 50)) > $i; done
        git init -q; git add .; git commit -qm one; for i in {1..5}; do echo $i >> $i; git commit -qam $i; done
        cd ..; git clone -q --no-local tree far; cd far; git fsck --strict; git repack -adq; git log --stat > ../log";
    judge(|_| (), text, 1000);
}

#[test]
fn of_python() {
    need("python3", "python3");
    let program = r#"
import json, multiprocessing, os, shutil, threading
def work(n):
    with open(f'out{n}', 'w') as f:
        for i in range(2000): print(i, 'text', file=f)
    with open(f'out{n}', 'rb', buffering=0) as f:
        while f.read(1000): pass
    json.dump(list(range(1000)), open(f'json{n}', 'w')); json.load(open(f'json{n}'))
    shutil.copyfile(f'out{n}', f'copy{n}')
if __name__ == '__main__':
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [t.start() for t in threads]; [t.join() for t in threads]
    with multiprocessing.get_context('fork').Pool(2) as pool: pool.map(work, range(10, 14))
    fd = os.open('raw', os.O_RDWR | os.O_CREAT)
    for i in range(500): os.pwrite(fd, bytes(100), i * 200); os.pread(fd, 50, i * 100)
"#;
    let write = |dir: &Dir| std::fs::write(dir.file("program.py"), program).unwrap();
    judge(write, "python3 -B program.py", 1500);
}
