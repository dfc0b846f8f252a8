//! `presagio profile`: what is this storage like?
//!
//! SeRRa's steps (thesis, chapter 5) on a real storage or an emulated device, from `presagio_profile`. This file turns
//! arguments into a plan and a target, [`show`] makes tables and JSON of what came of it, [`plot`] draws it.

mod interval;
pub mod plot;
pub mod show;

use crate::failure::failure;
use crate::model;
use crate::progress::progress;
use crate::size::Size;
use crate::whole::Place;
use indicatif::ProgressBar;
use presagio_core::Nanos;
use presagio_device::Profile;
use presagio_device::profile::Interval;
use presagio_profile::compare::Comparison;
use presagio_profile::{
    Emulated, Engine, Progress, Scratch, ScratchError, Target, circumstances, fast, full,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure a storage device: time by request size, in sequence and at random
///
/// How much faster is this storage when requests follow each other than when they are anywhere? Schedulers
/// decide by that ratio. This command measures it for reads and writes in a minute or two, once the file to
/// measure with is written, as SeRRa does (Boito's thesis, chapter 5): at a few request sizes only, each until the confidence interval is narrow, and
/// fits a straight line between them.
///
/// It works on a file without a name, which it makes in DIR (or beside FILE, which stays as it is) and which is
/// gone when the command ends, even if it is killed; so are unfinished files of -o and --svg. Requests go past the page cache, through io_uring. What
/// makes the figures doubtful is said below them: caches, virtual disks, throttles, noise.
///
/// docs/profile.md explains the figures, the file that -o writes, and who reads it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  presagio profile /scratch                  what is it like?
  presagio profile /scratch -o scratch.json  keep it for others to read
  presagio profile --show scratch.json --svg scratch.svg
                                             look at it again, draw it
  presagio profile /scratch --depth 16       16 requests at a time
  presagio profile --emulated hdd --check    how good is the fast way?
  presagio profile /scratch --check --size 40MiB
                                             the same on real storage
  presagio profile . --interval 4K-64K:4K --points 4
  presagio profile . --json | jq .ratios.read.average")]
pub struct Args {
    /// A directory on the storage in question, or a file there
    #[arg(value_name = "DIR|FILE", required_unless_present_any = ["emulated", "show"])]
    place: Option<PathBuf>,
    /// Profile a model instead, in virtual time: hdd, raid0, ssd, pastel, graphene, suno, edel, or a profile's file
    #[arg(long, value_name = "MODEL", conflicts_with = "place")]
    emulated: Option<String>,
    /// Show a profile that was kept, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["place", "emulated", "full", "check"])]
    show: Option<PathBuf>,
    /// Measure every size over the whole file: 6 runs at least, 90 % confidence, 10 % error. Takes hours
    #[arg(long, conflicts_with = "check")]
    full: bool,
    /// Measure both ways, and say how far the fast one is from the full one
    #[arg(long)]
    check: bool,
    /// Request sizes, as LEAST-MOST:STEP; may be given several times, rising [default: 8K-64K:8K and 64K-4M:32K]
    #[arg(long, value_name = "SIZES", value_parser = interval::parse)]
    interval: Vec<Interval>,
    /// How many sizes of each interval are measured; its ends always are, others are drawn at random
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    points: u32,
    /// Size of the file; it should be much larger than the device's caches
    #[arg(long, default_value = "1200MiB", value_name = "SIZE")]
    size: Size,
    /// Requests that the device has at a time; times are then what each adds to the time of all
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Begin nothing new after so many seconds, however noisy the device is
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    budget: u64,
    /// What is random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the profile in this file (with --check, the full one)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw times and ratios
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON document, with the ratio of every size
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // What cannot be written should be known before hours have passed.
    let output = args.output.as_deref().map(Output::new).transpose()?;
    let svg = args.svg.as_deref().map(Output::new).transpose()?;
    let found = args.find()?;
    if let Some(output) = output {
        output.write(&found.best().to_text())?;
    }
    if let Some(svg) = svg {
        svg.write(&plot::svg(found.best()))?;
    }
    show::show(&found, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// What was measured.
pub struct Found {
    pub profile: Profile,
    /// The full way's, and how far the first is from it.
    pub checked: Option<(Profile, Comparison)>,
}

impl Found {
    /// The more exact one.
    fn best(&self) -> &Profile {
        self.checked
            .as_ref()
            .map_or(&self.profile, |(full, _)| full)
    }
}

impl Args {
    fn find(&self) -> anyhow::Result<Found> {
        if let Some(path) = &self.show {
            let profile = model::read(path)?;
            let checked = None;
            return Ok(Found { profile, checked });
        }
        let intervals = self.intervals()?;
        let mut source = self.source(&intervals)?;
        let measured = self.measure(source.target.as_mut(), intervals);
        let found = measured.map_err(|error| source.explain(&error))?;
        let describe =
            |profile: Profile| profile.described(source.name.clone(), source.notes.clone());
        Ok(Found {
            profile: describe(found.profile),
            checked: found.checked.map(|(full, it)| (describe(full), it)),
        })
    }

    fn intervals(&self) -> anyhow::Result<Vec<Interval>> {
        let intervals = match self.interval.is_empty() {
            true => Interval::published(),
            false => self.interval.clone(),
        };
        let most = intervals.iter().map(|i| i.most()).max().unwrap_or(0);
        let what = || format!("cannot measure requests of {}", Size(most));
        if intervals
            .windows(2)
            .any(|two| two[1].least() < two[0].most())
        {
            let cause = "intervals overlap, or do not rise";
            return Err(failure(
                "cannot use these sizes",
                cause,
                "let each begin where the one before ends",
            ));
        }
        if self.size.0 / 8 < most {
            let cause = format!("a file of {} has room for fewer than eight", self.size);
            return Err(failure(what(), cause, "use a larger --size"));
        }
        if most.saturating_mul(self.depth.into()) > 1 << 30 {
            let cause = "that many at a time take more than 1 GiB of memory";
            return Err(failure(what(), cause, "use a smaller --depth"));
        }
        Ok(intervals)
    }

    /// What to measure.
    fn source(&self, intervals: &[Interval]) -> anyhow::Result<Source> {
        match (&self.emulated, &self.place) {
            (Some(name), _) => emulated(name, self.size.0),
            (None, Some(place)) => {
                aligned(intervals)?;
                real(place, self.size, self.depth)
            }
            // The parser asks for one of them.
            (None, None) => Err(failure(
                "nothing to measure",
                "no place was named",
                "name a directory",
            )),
        }
    }

    fn measure(&self, target: &mut dyn Target, intervals: Vec<Interval>) -> std::io::Result<Found> {
        let plan = fast::Plan {
            intervals,
            points: self.points as usize,
            depth: self.depth,
            budget: Nanos::from_secs(self.budget),
            seed: self.seed,
            ..fast::Plan::default()
        };
        let every = full::Plan {
            intervals: plan.intervals.clone(),
            depth: self.depth,
            seed: self.seed,
        };
        if self.full {
            let profile = watched(|step| full::measure(target, &every, step))?;
            let checked = None;
            return Ok(Found { profile, checked });
        }
        let profile = watched(|step| fast::measure(target, &plan, step))?;
        if !self.check {
            let checked = None;
            return Ok(Found { profile, checked });
        }
        if self.emulated.is_none() {
            let minutes = full::expected_s(&profile) / 60.0;
            eprintln!(
                "presagio: the full way takes about {minutes:.0} minutes, more if the device is noisy"
            );
        }
        let full = watched(|step| full::measure(target, &every, step))?;
        let comparison = Comparison::of(&profile, &full);
        let checked = Some((full, comparison));
        Ok(Found { profile, checked })
    }
}

/// Something to measure, its name, and what to know about it.
pub struct Source {
    pub target: Box<dyn Target>,
    pub name: String,
    pub notes: Vec<String>,
}

impl Source {
    fn explain(&self, error: &std::io::Error) -> anyhow::Error {
        let what = format!("cannot measure {}", self.name);
        failure(what, error, "check the storage, or name another place")
    }
}

pub fn emulated(name: &str, bytes: u64) -> anyhow::Result<Source> {
    let model = model::find(name)?;
    let target = Emulated::new(&model, bytes)
        .map_err(|error| failure(format!("cannot emulate {name}"), error, "use another model"))?;
    Ok(Source {
        target: Box::new(target),
        name: format!("emulated {name}"),
        notes: Vec::new(),
    })
}

pub fn real(place: &Path, size: Size, depth: u32) -> anyhow::Result<Source> {
    let bar = progress(size.0 >> 20);
    bar.set_message("MiB of the file are there");
    let scratch = Scratch::new(place, size.0, &mut |bytes| bar.set_position(bytes >> 20));
    bar.finish_and_clear();
    let scratch = scratch.map_err(|error| no_scratch(place, size, error))?;
    let notes = notes(&scratch, depth);
    Ok(Source {
        target: Box::new(scratch),
        name: place.display().to_string(),
        notes,
    })
}

/// What to know about a real file before one believes its figures.
fn notes(scratch: &Scratch, depth: u32) -> Vec<String> {
    let mut notes = ways(scratch.is_direct(), scratch.engine(), depth);
    notes.extend(circumstances::around(scratch.file()));
    notes.extend(circumstances::throttles(scratch.file()));
    notes
}

/// What is not as it should be about the way that requests take.
fn ways(is_direct: bool, engine: Engine, depth: u32) -> Vec<String> {
    let cached = "this file system does not take requests past the page cache: it is dropped before reads, and writes \
                  count until they are on the device";
    let plain = match depth {
        1 => "io_uring is switched off here: plain system calls are measured",
        _ => "io_uring is switched off here: requests are made one at a time, not --depth",
    };
    let said = [(!is_direct, cached), (engine == Engine::Plain, plain)];
    let said = said.into_iter().filter(|(is_so, _)| *is_so);
    said.map(|(_, note)| note.to_owned()).collect()
}

fn no_scratch(place: &Path, size: Size, error: ScratchError) -> anyhow::Error {
    let what = format!("cannot make a file of {size} in {}", place.display());
    match error {
        ScratchError::Space { free, needed } => {
            let cause = format!(
                "{} are free there, and {} would have to be",
                Size(free.max(1)),
                Size(needed)
            );
            failure(what, cause, "free some space, or use a smaller --size")
        }
        ScratchError::Kind(_) => {
            let cause = "it is neither a directory nor a regular file";
            failure(what, cause, "name a directory on the storage in question")
        }
        other => failure(
            what,
            other,
            "name a directory that is there and that you may write to",
        ),
    }
}

/// Past the page cache, requests are multiples of a block.
fn aligned(intervals: &[Interval]) -> anyhow::Result<()> {
    let whole = |size: u64| size.is_multiple_of(4096);
    if intervals
        .iter()
        .all(|i| whole(i.least()) && whole(i.step()))
    {
        return Ok(());
    }
    let cause = "requests past the page cache are multiples of 4 KiB";
    Err(failure(
        "cannot use these sizes",
        cause,
        "use multiples of 4 KiB in --interval",
    ))
}

/// Measures with a bar that shows how far it is.
pub fn watched<T>(measure: impl FnOnce(&mut dyn FnMut(Progress)) -> T) -> T {
    let bar: ProgressBar = progress(1);
    let measured = measure(&mut |step| {
        bar.set_length(step.all);
        bar.set_position(step.done);
        bar.set_message(format!("{} of {}", step.test, Size(step.size)));
    });
    bar.finish_and_clear();
    measured
}

/// A file that is there, whole, when everything is done, and not before.
struct Output {
    path: PathBuf,
    place: Place,
}

impl Output {
    fn new(path: &Path) -> anyhow::Result<Output> {
        let place = Place::open(path, true).map_err(|error| cannot_write(path, &error))?;
        Ok(Output {
            path: path.to_owned(),
            place,
        })
    }

    fn write(self, text: &str) -> anyhow::Result<()> {
        let written = self.place.file().write_all(text.as_bytes());
        let kept = written.and_then(|()| self.place.keep());
        kept.map_err(|error| cannot_write(&self.path, &error))?;
        Ok(())
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let what = format!("cannot write {}", path.display());
    failure(
        what,
        error,
        "name a file in a directory that can be written",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_direct_requests_is_said() {
        assert!(ways(true, Engine::Ring, 1).is_empty());
        let said = ways(false, Engine::Ring, 1);
        assert!(
            said.len() == 1 && said[0].contains("page cache"),
            "{said:?}"
        );
        let said = ways(true, Engine::Plain, 8);
        assert!(
            said.len() == 1 && said[0].contains("not --depth"),
            "{said:?}"
        );
    }
}
