//! `presagio sched compare DIR`: the policies on real storage, side by side.
//!
//! Clients issue synchronous requests to one shared file, like the processes of a parallel program. An
//! [`presagio_engine::Engine`] schedules them, a few workers serve each batch with one vectored system call
//! ([`serve`]) on a scratch file that vanishes with the process ([`scratch`]). Each policy serves exactly the
//! same requests, several rounds of it, and every byte is verified. [`judge`] finds out which differences are
//! more than chance, [`show`] says what came of it.

mod auto;
mod judge;
mod scratch;
mod serve;
mod show;

use crate::failure::failure;
use crate::progress::progress;
use crate::size::Size;
use crate::terminal::counted;
use auto::{Auto, Contest};
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::ProgressBar;
use judge::Tried;
use presagio_core::Op;
use presagio_sched::{PolicyKind, UnknownPolicy};
use presagio_tune::{Chooser, Drive};
use scratch::Scratch;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve the same requests under every policy, on real storage, and compare
///
/// Client threads issue synchronous requests to one shared file in DIR; each waits for its own before it
/// issues the next. Worker threads serve what the scheduler gives them, each batch with one system call,
/// past the page cache where the file system allows it. Every byte is verified. The file is removed as
/// soon as it is open, so that nothing is left behind whatever happens.
///
/// All policies run once a round, each time in another order. A policy counts with its median round; the
/// column ± % says how far its rounds lie apart. Only where all rounds agree is a difference named.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio sched compare /scratch               ten policies, 64 clients
  presagio sched compare /scratch --op write    writes instead of reads
  presagio sched compare . --workers 4          four operations at a time
  presagio sched compare . --pattern random     nothing to aggregate?
  presagio sched compare . --policy SJF         only this one, and NOOP
  presagio sched compare . --policy auto --policy aIOLi --profile disk.json
                                                does it choose well?
  presagio sched compare . --json | jq '.policies[] | {policy, gain}'")]
pub struct Args {
    /// A directory on the storage in question
    dir: PathBuf,
    /// Clients, each with one request at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// Size of a request, from 512 bytes to 64 MiB
    #[arg(long, default_value = "8KiB", value_name = "SIZE")]
    request: Size,
    /// Size of the file; each policy serves all of it in each round
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    size: Size,
    /// How often each policy runs; one round cannot tell a difference from chance
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Which parts of the file a client asks for
    #[arg(long, value_enum, default_value_t = Pattern::Strided)]
    pattern: Pattern,
    /// What the clients do
    #[arg(long, value_enum, default_value_t = Operation::Read)]
    op: Operation,
    /// A policy to try; may be given several times; auto chooses by what arrives [default: all ten]
    #[arg(long, value_name = "NAME", ignore_case = true, value_parser = policy_or_auto())]
    policy: Vec<Policy>,
    /// --policy auto: what the storage is like: a profile's file, or hdd, raid0, ssd, pastel, graphene, suno, edel
    #[arg(long, value_name = "DEVICE")]
    profile: Option<String>,
    /// --policy auto: what decides, as `presagio train` wrote it [default: the one that comes with Presagio]
    #[arg(long, value_name = "FILE")]
    trees: Option<PathBuf>,
    /// Workers that serve batches, which is how many operations the storage sees at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// A policy, or whichever suits what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Chosen by what arrives.
    Auto,
    /// Learned from what comes of it.
    Adaptive,
    /// This one.
    Given(PolicyKind),
}

impl Policy {
    /// As the command line and tables write it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Auto => "auto",
            Policy::Adaptive => "adaptive",
            Policy::Given(policy) => policy.name(),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<PolicyKind> for Policy {
    fn from(policy: PolicyKind) -> Policy {
        Policy::Given(policy)
    }
}

/// The policies' names and `auto`, which help and completions then know too.
fn policy_or_auto() -> impl TypedValueParser<Value = Policy> {
    policy_or(&["auto"])
}

/// The policies' names, and these words.
pub fn policy_or(words: &'static [&'static str]) -> impl TypedValueParser<Value = Policy> {
    let names = PolicyKind::ALL.map(PolicyKind::name).into_iter();
    PossibleValuesParser::new(names.chain(words.iter().copied())).try_map(
        |name| -> Result<Policy, UnknownPolicy> {
            match &*name.to_ascii_lowercase() {
                "auto" => Ok(Policy::Auto),
                "adaptive" => Ok(Policy::Adaptive),
                _ => name.parse().map(Policy::Given),
            }
        },
    )
}

/// Which blocks of the file a client asks for, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Client c asks for blocks c, c + N, c + 2N, … (N clients): neighbours ask for neighbouring blocks
    Strided,
    /// Client c asks for the c-th part of the file from start to end
    Contiguous,
    /// Blocks are dealt out at random
    Random,
}

/// Read or write, as the command line spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    /// Clients read
    Read,
    /// Clients write; the time includes making it durable
    Write,
}

impl Operation {
    fn op(self) -> Op {
        match self {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
        }
    }
}

/// Smaller ones are no requests to storage.
const REQUEST_MIN: Size = Size(512);

/// Every client keeps one request in memory.
const REQUEST_MAX: Size = Size(64 << 20);

/// More requests than this take long enough to say so beforehand.
const REQUESTS_MANY: u64 = 1_000_000;

/// What every policy is asked to serve.
struct Workload {
    clients: u64,
    workers: u64,
    /// Bytes of a request.
    request: u64,
    /// Requests in all; together they cover the file exactly once.
    blocks: u64,
    pattern: Pattern,
    op: Op,
}

impl Workload {
    fn new(args: &Args) -> anyhow::Result<Workload> {
        let (request, clients) = (args.request.0, u64::from(args.clients));
        check_request(args.request)?;
        let blocks = args.size.0 / request;
        if blocks < clients {
            let clients = counted(clients, "client");
            let what = format!("cannot share {} among {clients}", args.size);
            let cause = format!("that is less than one request of {} each", args.request);
            return Err(failure(
                what,
                cause,
                "use a larger --size, a smaller --request, or fewer --clients",
            ));
        }
        let (pattern, op, workers) = (args.pattern, args.op.op(), u64::from(args.workers));
        Ok(Workload {
            clients,
            workers,
            request,
            blocks,
            pattern,
            op,
        })
    }

    /// What to know before it starts.
    fn warning(&self) -> Option<String> {
        let many = self.blocks > REQUESTS_MANY;
        many.then(|| {
            format!(
                "each policy serves {} requests in each round, which may take long; a larger --request or a \
                 smaller --size makes fewer",
                self.blocks
            )
        })
    }

    fn bytes(&self) -> u64 {
        self.blocks * self.request
    }

    /// The blocks that `client` asks for, in order. Over all clients, each block occurs once.
    fn blocks_of(&self, client: u64) -> impl Iterator<Item = u64> + '_ {
        let (first, behind, step) = match self.pattern {
            Pattern::Strided | Pattern::Random => (client, self.blocks, self.clients),
            Pattern::Contiguous => (self.part(client), self.part(client + 1), 1),
        };
        (first..behind)
            .step_by(step as usize)
            .map(|block| self.dealt(block))
    }

    /// The block at which a client's part of the file begins, when each gets one part.
    fn part(&self, client: u64) -> u64 {
        client * self.blocks / self.clients
    }

    /// With the random pattern, the block that is dealt out in place of `block`: the next power of two of
    /// blocks is shuffled one to one, and whatever falls outside is shuffled again until it falls inside.
    fn dealt(&self, block: u64) -> u64 {
        if self.pattern != Pattern::Random {
            return block;
        }
        let bits = u64::BITS - (self.blocks - 1).leading_zeros();
        let mut dealt = shuffled(block, bits);
        while dealt >= self.blocks {
            dealt = shuffled(dealt, bits);
        }
        dealt
    }
}

fn check_request(request: Size) -> anyhow::Result<()> {
    let (cause, advice) = if request.0 < REQUEST_MIN.0 {
        (format!("they are smaller than {REQUEST_MIN}"), "a larger")
    } else if request.0 > REQUEST_MAX.0 {
        (format!("they are larger than {REQUEST_MAX}"), "a smaller")
    } else {
        return Ok(());
    };
    let what = format!("cannot use requests of {request}");
    Err(failure(what, cause, format!("use {advice} --request")))
}

/// Maps the numbers of `bits` bits one to one: odd multiplications, additions and right-shifted exclusive ors
/// each do.
fn shuffled(number: u64, bits: u32) -> u64 {
    let mask = if bits == 0 {
        0
    } else {
        u64::MAX >> (u64::BITS - bits)
    };
    let mut x = number;
    for multiplier in [
        0x9E37_79B9_7F4A_7C15u64,
        0xBF58_476D_1CE4_E5B9,
        0x94D0_49BB_1331_11EB,
    ] {
        x = x.wrapping_add(multiplier >> 32).wrapping_mul(multiplier) & mask;
        x ^= x >> (bits / 2).max(1);
    }
    x
}

/// All results, and how they came about.
struct Comparison {
    workload: Workload,
    rounds: u32,
    /// How the storage was reached, for the reader.
    path: &'static str,
    /// NOOP first.
    results: Vec<Tried>,
    /// What `auto` decided last, and why.
    decided: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let workload = Workload::new(args)?;
    if let Some(warning) = workload.warning() {
        eprintln!("presagio: {warning}");
    }
    let contest = contest(args)?;
    let progress = progress(contest.policies.len() as u64 * u64::from(args.rounds) + 2);
    progress.set_message("writing the file");
    let mut scratch = Scratch::create(&args.dir, workload.bytes(), workload.request)?;
    progress.inc(1);
    let results = serve_all(&contest, args.rounds, &workload, &mut scratch, &progress)?;
    progress.finish_and_clear();
    let comparison = Comparison {
        workload,
        rounds: args.rounds,
        path: scratch.path(),
        results,
        decided: contest.auto.as_ref().map(decided),
    };
    show::show(&comparison, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// What is tried.
fn contest(args: &Args) -> anyhow::Result<Contest> {
    let policies = policies(&args.policy);
    if !policies.contains(&Policy::Auto) {
        if args.profile.is_some() || args.trees.is_some() {
            let what = "--profile and --trees decide nothing here";
            return Err(failure(what, "no policy is chosen", "add --policy auto"));
        }
        return Ok(Contest {
            policies,
            auto: None,
        });
    }
    let device = args
        .profile
        .as_deref()
        .map(crate::model::find)
        .transpose()?;
    let trees = crate::train::trees(args.trees.as_ref())?;
    let auto = Some(Auto::new(Chooser::new(trees, device.map(Drive::new))));
    Ok(Contest { policies, auto })
}

/// What `auto` ended with, in words.
fn decided(auto: &Auto) -> String {
    match auto.last() {
        Some(decision) => format!("auto ended with {}, chosen: {decision}.", auto.policy()),
        None => format!(
            "auto stayed with {}: too little arrived to decide.",
            auto.policy()
        ),
    }
}

/// All rounds of all policies.
fn serve_all(
    contest: &Contest,
    rounds: u32,
    workload: &Workload,
    scratch: &mut Scratch,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<Tried>> {
    let policies = &contest.policies;
    let mut serve = |policy: Policy| {
        progress.set_message(policy.name());
        let served = serve::serve(policy, contest.auto_of(policy), workload, scratch);
        progress.inc(1);
        served
    };
    // A file that was just written and a device that was idle are unlike what follows: this one does not count.
    serve(PolicyKind::Noop.into())?;
    let mut served = vec![Vec::new(); policies.len()];
    for index in (0..rounds).flat_map(|round| order(policies.len(), round, rounds)) {
        served[index].push(serve(policies[index])?);
    }
    let both = policies.iter().zip(&served);
    Ok(both
        .filter_map(|(policy, rounds)| Tried::new(*policy, rounds))
        .collect())
}

/// Who runs when in a round: each round begins elsewhere, so that nobody is always the first, or always behind
/// the same share of the others.
fn order(policies: usize, round: u32, rounds: u32) -> impl Iterator<Item = usize> {
    let first = policies * round as usize / rounds as usize;
    (0..policies).map(move |index| (first + index) % policies)
}

/// The policies to try, each once, in the usual order; NOOP always, because the others are compared with it.
fn policies(asked: &[Policy]) -> Vec<Policy> {
    let wanted = |policy: &Policy| {
        let all = asked.is_empty() && *policy != Policy::Auto;
        all || *policy == PolicyKind::Noop.into() || asked.contains(policy)
    };
    let given = PolicyKind::ALL.into_iter().map(Policy::Given);
    given.chain([Policy::Auto]).filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn workload(pattern: Pattern, clients: u64, blocks: u64) -> Workload {
        Workload {
            clients,
            workers: 1,
            request: 512,
            blocks,
            pattern,
            op: Op::Read,
        }
    }

    #[test]
    fn all_clients_together_ask_for_each_block_once() {
        for pattern in [Pattern::Strided, Pattern::Contiguous, Pattern::Random] {
            for (clients, blocks) in [(1, 1), (3, 10), (7, 64), (64, 1000)] {
                let workload = workload(pattern, clients, blocks);
                let asked: Vec<u64> = (0..clients).flat_map(|c| workload.blocks_of(c)).collect();
                let distinct: BTreeSet<u64> = asked.iter().copied().collect();
                assert_eq!(asked.len() as u64, blocks, "{pattern:?} {clients} {blocks}");
                assert!(
                    distinct.into_iter().eq(0..blocks),
                    "{pattern:?} {clients} {blocks}"
                );
            }
        }
    }

    #[test]
    fn patterns_are_what_they_are_called() {
        let of = |pattern, client| {
            workload(pattern, 4, 16)
                .blocks_of(client)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Pattern::Strided, 1), [1, 5, 9, 13]);
        assert_eq!(of(Pattern::Contiguous, 1), [4, 5, 6, 7]);
        let random = workload(Pattern::Random, 1, 1000)
            .blocks_of(0)
            .collect::<Vec<_>>();
        let neighbours = random
            .windows(2)
            .filter(|pair| pair[0] + 1 == pair[1])
            .count();
        assert!(
            neighbours < 20,
            "{neighbours} of 999 steps go to the next block"
        );
    }

    #[test]
    fn every_round_runs_every_policy_and_begins_with_another() {
        let orders = [0, 1, 2].map(|round| order(10, round, 3).collect::<Vec<_>>());
        assert_eq!(orders.each_ref().map(|order| order[0]), [0, 3, 6]);
        for order in orders {
            assert!(
                order
                    .into_iter()
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .eq(0..10)
            );
        }
    }

    #[test]
    fn many_requests_are_announced() {
        let warning = |blocks| workload(Pattern::Strided, 64, blocks).warning();
        assert_eq!(warning(REQUESTS_MANY), None);
        assert!(warning(REQUESTS_MANY + 1).is_some_and(|said| said.contains("--request")));
    }

    #[test]
    fn noop_is_always_there_to_compare_with() {
        let both = [PolicyKind::Noop, PolicyKind::Sjf].map(Policy::Given);
        assert_eq!(policies(&[PolicyKind::Sjf.into()]), both);
        assert_eq!(policies(&[Policy::Auto]), [both[0], Policy::Auto]);
        assert_eq!(policies(&[]).len(), 10);
    }
}
