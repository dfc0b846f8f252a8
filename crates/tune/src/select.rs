//! From what arrives to a policy: which trees there are, what they may ask, and who asks them.

use crate::lookout::Lookout;
use crate::metrics::{FileMetrics, Period};
use crate::text::{self, TextError};
use crate::tree::{Feature, Kind, Schema, Tree};
use presagio_core::{Nanos, Op, Range, Request};
use presagio_device::Model;
use presagio_sched::PolicyKind;
use std::collections::BTreeMap;
use std::fmt;

/// What an application does to a file, as the application sees it (thesis 3.2.2 and 4.3).
///
/// Its *contiguous* is non-contiguous at a server, to which several processes go at once, each in its own part; processes that
/// take turns (1-D strided) ask for what lies side by side. Large requests touch all servers, small ones less than a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Each process has its own part; small requests.
    ContiguousSmall,
    /// Each process has its own part; large requests.
    ContiguousLarge,
    /// Processes take turns; small requests.
    NoncontiguousSmall,
    /// Processes take turns; large requests.
    NoncontiguousLarge,
}

impl Class {
    /// All of them, in the order of the tables.
    pub const ALL: [Class; 4] = [
        Class::ContiguousSmall,
        Class::ContiguousLarge,
        Class::NoncontiguousSmall,
        Class::NoncontiguousLarge,
    ];

    /// As trees call it.
    pub const fn name(self) -> &'static str {
        match self {
            Class::ContiguousSmall => "contiguous-small",
            Class::ContiguousLarge => "contiguous-large",
            Class::NoncontiguousSmall => "noncontiguous-small",
            Class::NoncontiguousLarge => "noncontiguous-large",
        }
    }

    /// Whether each process has its own part.
    pub const fn is_contiguous(self) -> bool {
        matches!(self, Class::ContiguousSmall | Class::ContiguousLarge)
    }

    /// Whether requests are large.
    pub const fn is_large(self) -> bool {
        matches!(self, Class::ContiguousLarge | Class::NoncontiguousLarge)
    }

    /// The class of both.
    pub const fn of(contiguous: bool, large: bool) -> Class {
        match (contiguous, large) {
            (true, false) => Class::ContiguousSmall,
            (true, true) => Class::ContiguousLarge,
            (false, false) => Class::NoncontiguousSmall,
            (false, true) => Class::NoncontiguousLarge,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of the tree that tells classes apart.
pub const DETECTION: &str = "detection";

/// Requests for a file below which it says nothing about the application: while more may come in the window, and when it
/// is over. One large request is eight at a server, and says nothing about who comes next.
const REQUESTS_MIN: u64 = 32;
const REQUESTS_MIN_WHOLE: u64 = 8;

/// What the detection tree may ask of a file, in order.
const FEATURES: [&str; 7] = [
    "distance",
    "touching",
    "reach",
    "density",
    "stripe_us",
    "stripe_turns",
    "files",
];

impl FileMetrics {
    /// What the detection tree may ask.
    pub fn schema() -> Schema {
        Schema {
            features: FEATURES.map(Feature::number).to_vec(),
            classes: Class::ALL.map(|class| class.name().to_owned()).to_vec(),
        }
    }

    /// Its values, in the order of [`FileMetrics::schema`].
    pub fn values(&self) -> Vec<f64> {
        vec![
            self.distance,
            self.touching,
            self.reach,
            self.density,
            self.stripe_us,
            self.stripe_turns,
            self.files as f64,
        ]
    }

    /// Whether there were enough requests to say anything.
    pub fn is_telling(&self) -> bool {
        let least = match self.is_whole {
            true => REQUESTS_MIN_WHOLE,
            false => REQUESTS_MIN,
        };
        self.requests >= least
    }
}

/// What can be known of a situation (thesis 6.1). What is not known is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// What is done, mostly.
    pub op: Option<Op>,
    /// How many files requests come for.
    pub files: Option<u64>,
    /// What the application does.
    pub class: Option<Class>,
    /// Bytes of each file that are accessed, on one server.
    pub file_bytes: Option<f64>,
    /// The device's sequential to random throughput ratio for the operation (see [`Drive::ratio`]).
    pub ratio: Option<f64>,
    /// Bytes of memory of a server.
    pub memory: Option<f64>,
}

impl Selection {
    /// Everything that a selection tree may ask, in order.
    pub fn features() -> Vec<Feature> {
        vec![
            Feature::one_of("operation", &["read", "write"]),
            Feature::number("files"),
            Feature::number("file_bytes"),
            Feature::one_of("spatiality", &["contiguous", "noncontiguous"]),
            Feature::one_of("requests", &["small", "large"]),
            Feature::number("ratio"),
            Feature::number("memory"),
        ]
    }

    /// The trees of Table 6.1, and one that needs nothing but what arrives: name, and what each may ask.
    pub const TREES: [(&str, &[&str]); 6] = [
        (
            "T1",
            &[
                "operation",
                "files",
                "file_bytes",
                "spatiality",
                "requests",
                "ratio",
                "memory",
            ],
        ),
        (
            "T2",
            &[
                "operation",
                "files",
                "file_bytes",
                "spatiality",
                "requests",
                "ratio",
            ],
        ),
        (
            "T3",
            &["operation", "files", "spatiality", "requests", "ratio"],
        ),
        ("T4", &["operation", "spatiality", "requests", "ratio"]),
        (
            "T5",
            &["operation", "files", "file_bytes", "spatiality", "requests"],
        ),
        (
            "application",
            &["operation", "files", "spatiality", "requests"],
        ),
    ];

    /// The trees that are of use while requests arrive: how much will be accessed of a file is not known then.
    pub const LIVE: [&str; 2] = ["T3", "application"];

    /// The schema of a tree that may ask these and answers with these policies.
    pub fn schema(features: &[&str], policies: &[&str]) -> Schema {
        let asked = |feature: &Feature| features.contains(&feature.name.as_str());
        Schema {
            features: Selection::features().into_iter().filter(asked).collect(),
            classes: policies.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// The values that a tree wants; none if one of them is not known.
    pub fn values(&self, schema: &Schema) -> Option<Vec<f64>> {
        let value = |feature: &Feature| self.value(&feature.name);
        schema.features.iter().map(value).collect()
    }

    /// The values that a tree wants, as far as they are known. None if it asks for what requests will never tell.
    fn values_so_far(&self, schema: &Schema) -> Option<Vec<Option<f64>>> {
        let will_be_known = |name: &str| !matches!(name, "file_bytes" | "ratio" | "memory");
        let value = |feature: &Feature| {
            let value = self.value(&feature.name);
            (value.is_some() || will_be_known(&feature.name)).then_some(value)
        };
        schema.features.iter().map(value).collect()
    }

    fn value(&self, feature: &str) -> Option<f64> {
        let number = |yes: bool| f64::from(u8::from(yes));
        match feature {
            "operation" => self.op.map(|op| number(op == Op::Write)),
            "files" => self.files.map(|files| files as f64),
            "file_bytes" => self.file_bytes,
            "spatiality" => self.class.map(|class| number(!class.is_contiguous())),
            "requests" => self.class.map(|class| number(class.is_large())),
            "ratio" => self.ratio,
            "memory" => self.memory,
            _ => None,
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(class), Some(op), Some(files)) = (self.class, self.op, self.files) else {
            return f.write_str("nothing yet");
        };
        write!(f, "{class} {op} of {files} files")
    }
}

/// A detection tree, and selection trees to choose from.
#[derive(Clone, Debug, PartialEq)]
pub struct Trees {
    detection: Tree,
    /// The first whose every feature is known is asked.
    selection: Vec<Tree>,
}

/// Why a text has no trees that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreesError {
    /// It is no text of trees.
    #[error(transparent)]
    Text(#[from] TextError),
    /// It has not what is needed.
    #[error("the tree {tree} {reason}")]
    Tree {
        /// Which.
        tree: String,
        /// Why not.
        reason: String,
    },
}

impl Trees {
    /// Trees that can be used: all they ask is known here, and all they answer.
    pub fn new(detection: Tree, selection: Vec<Tree>) -> Result<Trees, TreesError> {
        let wrong = |tree: &Tree, reason: String| TreesError::Tree {
            tree: tree.name.clone(),
            reason,
        };
        if detection.schema != FileMetrics::schema() {
            let reason =
                "asks or answers something else than the metrics of files and their classes";
            return Err(wrong(&detection, reason.to_owned()));
        }
        for tree in &selection {
            let known = Selection::features();
            let strange = tree.schema.features.iter().find(|f| !known.contains(f));
            if let Some(feature) = strange {
                let reason = format!("asks for {}, which is not known", describe(feature));
                return Err(wrong(tree, reason));
            }
            for class in &tree.schema.classes {
                policy(class)
                    .map_err(|error| wrong(tree, format!("answers what cannot be: {error}")))?;
            }
        }
        Ok(Trees {
            detection,
            selection,
        })
    }

    /// Reads a text of trees: one is called `detection`, the others select.
    pub fn from_text(text: &str) -> Result<Trees, TreesError> {
        let mut trees = text::read(text)?;
        let missing = || TreesError::Tree {
            tree: DETECTION.to_owned(),
            reason: "is not there".to_owned(),
        };
        let at = trees.iter().position(|tree| tree.name == DETECTION);
        let detection = trees.remove(at.ok_or_else(missing)?);
        Trees::new(detection, trees)
    }

    /// The text, with some lines for people at its head.
    pub fn to_text(&self, about: &str) -> String {
        let all = std::iter::once(&self.detection).chain(&self.selection);
        text::write(about, &all.cloned().collect::<Vec<_>>())
    }

    /// Those that come with Presagio, as `presagio train` made them.
    pub fn shipped() -> Trees {
        // A test reads it, too.
        Trees::from_text(include_str!("../trees/default.txt"))
            .expect("the text is part of this crate")
    }

    /// The tree that tells classes apart.
    pub fn detection(&self) -> &Tree {
        &self.detection
    }

    /// The trees that select, in the order in which they are tried.
    pub fn selection(&self) -> &[Tree] {
        &self.selection
    }

    /// What the detection tree takes a file's requests for.
    pub fn class_of(&self, file: &FileMetrics) -> Class {
        Class::ALL[self.detection.classify(&file.values())]
    }

    /// See [`majority_of`].
    pub fn majority(&self, period: &Period, op: Op) -> Option<(Class, u64, u64)> {
        majority_of(&self.detection, period, op)
    }
}

/// The class that most requests of an operation are taken for, with how many files are of it and how many tell anything;
/// none if no file tells. (4.3: the majority of the files stands for all. Here a file counts by its requests: one that few
/// came for has told little.)
pub fn majority_of(detection: &Tree, period: &Period, op: Op) -> Option<(Class, u64, u64)> {
    let (mut files, mut requests) = ([0; 4], [0; 4]);
    let telling = period.files.iter();
    for file in telling.filter(|file| file.op == op && file.is_telling()) {
        let class = detection.classify(&file.values());
        files[class] += 1;
        requests[class] += file.requests;
    }
    let more = |best, at| {
        if requests[at] > requests[best] {
            at
        } else {
            best
        }
    };
    let most = (0..4).reduce(more)?;
    let all = files.iter().sum();
    (all > 0).then_some((Class::ALL[most], files[most], all))
}

fn describe(feature: &Feature) -> String {
    match &feature.kind {
        Kind::Number => format!("{} (a number)", feature.name),
        Kind::OneOf(values) => format!("{} ({})", feature.name, values.join(", ")),
    }
}

/// The policy of a name; `none` is no scheduler at all.
fn policy(name: &str) -> Result<Option<PolicyKind>, presagio_sched::UnknownPolicy> {
    match name {
        "none" => Ok(None),
        name => name.parse().map(Some),
    }
}

/// What a device is like, for trees: ratios that are worked out when they are first asked for.
///
/// *Sizes.* A ratio is no figure of a device alone: a disk's falls with the size of requests, to what an SSD has of small ones. So
/// trees are asked with the ratio of a size that they were made with ([`Drive::SIZES`]), whatever arrives: that large requests
/// come is a question of its own. With the ratio of 1 MiB they would take every disk for an SSD.
#[derive(Clone, Debug)]
pub struct Drive {
    model: Model,
    /// By operation and the power of two of the size.
    known: BTreeMap<(usize, u32), f64>,
}

impl Drive {
    /// The least and the largest request whose ratios trees were made with: the messages of the campaign, all of them alike.
    pub const SIZES: (u64, u64) = (8 << 10, 8 << 10);

    /// This device.
    pub fn new(model: Model) -> Drive {
        Drive {
            model,
            known: BTreeMap::new(),
        }
    }

    /// The sequential to random throughput ratio for requests of about this size, or the nearest of [`Drive::SIZES`] that was measured. What a
    /// profile measured is read from it; a model is tried, in virtual time, with the power of two that is nearest.
    pub fn ratio(&mut self, op: Op, size: u64) -> f64 {
        let size = size.clamp(Drive::SIZES.0, Drive::SIZES.1);
        if let Model::Fitted(profile) = &self.model {
            // A line tells nothing of sizes far below those that it was drawn through.
            let least = profile.sizes().min().unwrap_or(size);
            return profile.ratio(op, size.max(least));
        }
        let power = (size + size / 2).ilog2();
        let model = &self.model;
        *self
            .known
            .entry((op.index(), power))
            .or_insert_with(|| tried(model, op, 1 << power))
    }
}

/// As the thesis measures (5.2.1), a file of 1200 MB, but not all of it where that takes more than this many requests.
const TRIED_MAX: u64 = 40_000;

fn tried(model: &Model, op: Op, size: u64) -> f64 {
    let records = (1200 << 20) / size;
    let count = records.min(TRIED_MAX);
    let took = |sequential: bool| {
        let Ok(mut device) = model.device() else {
            return 1;
        };
        let (mut now, mut random) = (Nanos::ZERO, crate::Random::new(7));
        for at in 0..count {
            let record = if sequential {
                at
            } else {
                random.below(records)
            };
            now = device.serve(op, Range::at(record * size, size), now);
        }
        now.0.max(1)
    };
    took(false) as f64 / took(true) as f64
}

/// What was decided, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The policy; none is no scheduler.
    pub policy: Option<PolicyKind>,
    /// The tree that said so.
    pub tree: String,
    /// What was asked on the way through it, in words.
    pub reason: String,
    /// What was known.
    pub situation: Selection,
    /// Files of that class, and all that told anything.
    pub votes: (u64, u64),
}

impl Decision {
    /// The policy's name.
    pub fn name(&self) -> &'static str {
        self.policy.map_or("none", PolicyKind::name)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, all) = self.votes;
        write!(f, "{} by {}: {}", self.name(), self.tree, self.reason)?;
        match self.situation.class {
            Some(class) => write!(f, "; {of} of {all} files are {class}"),
            None => Ok(()),
        }
    }
}

/// Decides for a period: trees, and the device if it is known.
#[derive(Clone, Debug)]
pub struct Chooser {
    trees: Trees,
    drive: Option<Drive>,
}

/// Requests in a period below which nothing is decided.
const DECIDE_MIN: u64 = 32;

impl Chooser {
    /// Without a device, only trees that do not ask for one are asked.
    pub fn new(trees: Trees, drive: Option<Drive>) -> Chooser {
        Chooser { trees, drive }
    }

    /// What to begin with, before anything has arrived: what suits the device in most of the cases that the tree was made from.
    /// None if the device is not known.
    pub fn begin(&mut self) -> Option<Decision> {
        let drive = self.drive.as_mut()?;
        let either = Op::ALL.map(|op| Selection {
            op: Some(op),
            ratio: Some(drive.ratio(op, Drive::SIZES.0)),
            ..Selection::default()
        });
        self.by_votes(&either)
    }

    /// What suits this period. None where too little arrived to say anything: what was decided before still holds.
    pub fn decide(&mut self, period: &Period) -> Option<Decision> {
        let op = period.op()?;
        let requests = period.requests[op.index()];
        if requests < DECIDE_MIN {
            return None;
        }
        let (class, of, all) = self.trees.majority(period, op)?;
        let size = period.bytes[op.index()] / requests;
        let situation = Selection {
            op: Some(op),
            files: Some(period.accessed[op.index()]),
            class: Some(class),
            file_bytes: None,
            ratio: self.drive.as_mut().map(|drive| drive.ratio(op, size)),
            memory: None,
        };
        let mut trees = self.trees.selection.iter();
        let (tree, values) =
            trees.find_map(|tree| Some((tree, situation.values(&tree.schema)?)))?;
        Some(Decision {
            policy: policy(tree.answer(&values)).ok()?,
            tree: tree.name.clone(),
            reason: tree.reason(&values),
            situation,
            votes: (of, all),
        })
    }

    /// What a tree answers in most of its cases, each of these situations being as likely. Nothing is known of them that requests
    /// tell, but for the operation.
    fn by_votes(&self, either: &[Selection; 2]) -> Option<Decision> {
        let shares = |tree: &Tree, situation: &Selection| -> Option<Vec<f64>> {
            let votes = tree.votes(&situation.values_so_far(&tree.schema)?);
            let all = votes.iter().sum::<u64>().max(1) as f64;
            Some(votes.iter().map(|count| *count as f64 / all).collect())
        };
        let mut trees = self.trees.selection.iter();
        let (tree, reads, writes) = trees.find_map(|tree| {
            let [reads, writes] = either;
            Some((tree, shares(tree, reads)?, shares(tree, writes)?))
        })?;
        let share = |class: usize| (reads[class] + writes[class]) / 2.0;
        let more = |best, at| if share(at) > share(best) { at } else { best };
        let class = (0..tree.schema.classes.len()).reduce(more)?;
        let [read, write] = either.each_ref().map(|it| it.ratio.unwrap_or(f64::NAN));
        Some(Decision {
            policy: policy(&tree.schema.classes[class]).ok()?,
            tree: tree.name.clone(),
            reason: format!(
                "nothing has arrived, ratio {read:.1} (read), {write:.1} (write): so in {:.0} % of such cases",
                100.0 * share(class)
            ),
            situation: Selection::default(),
            votes: (0, 0),
        })
    }
}

/// Sees what arrives and decides: see [`Lookout`] for when.
#[derive(Clone, Debug)]
pub struct Selector {
    lookout: Lookout,
    chooser: Chooser,
}

impl Selector {
    /// A selector for a storage with such stripes.
    pub fn new(chooser: Chooser, stripe: u64) -> Selector {
        Selector {
            lookout: Lookout::new(stripe),
            chooser,
        }
    }

    /// Stripes where nobody says how large they are: those of the thesis.
    pub const STRIPE: u64 = 32 << 10;

    /// A request arrives.
    #[inline]
    pub fn arrived(&mut self, request: &Request, now: Nanos) {
        self.lookout.arrived(request, now);
    }

    /// A part of a period is over. See [`Chooser::decide`].
    pub fn part_over(&mut self) -> Option<Decision> {
        let period = self.lookout.part_over()?;
        self.chooser.decide(&period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Access, Context, Load, Magnitude, Situation};
    use crate::tree::Node;
    use crate::tuner::WarmStart;
    use presagio_core::{FileId, RequestId};

    fn leaf(class: usize) -> Node {
        Node::Leaf { class, cases: 1 }
    }

    /// Whoever is far from the one before is contiguous; contiguous writes get SJF on devices that seek.
    fn trees() -> Trees {
        let detection = Tree {
            name: DETECTION.to_owned(),
            schema: FileMetrics::schema(),
            root: Node::Number {
                feature: 0,
                threshold: 4.0,
                below: Box::new(leaf(2)),
                above: Box::new(leaf(0)),
            },
        };
        let with_ratio = Tree {
            name: "T3".to_owned(),
            schema: Selection::schema(Selection::TREES[2].1, &["none", "SJF"]),
            root: Node::Number {
                feature: 4,
                threshold: 2.0,
                below: Box::new(leaf(0)),
                above: Box::new(leaf(1)),
            },
        };
        let without = Tree {
            name: "application".to_owned(),
            schema: Selection::schema(Selection::TREES[5].1, &["none", "aIOLi"]),
            root: leaf(1),
        };
        Trees::new(detection, vec![with_ratio, without]).expect("good")
    }

    fn arrivals(selector: &mut Selector, count: u64, apart: u64) {
        for at in 0..count {
            let range = Range::at(at * apart * 8192, 8192);
            let request = Request::new(RequestId(at), FileId(at % 2), Op::Write, range);
            selector.arrived(&request, Nanos(at * 1000));
        }
    }

    #[test]
    fn the_device_decides_where_it_is_known() {
        let drive = |name| Some(Drive::new(Model::named(name).expect(name)));
        let decide = |drive| {
            let mut selector = Selector::new(Chooser::new(trees(), drive), 32 << 10);
            arrivals(&mut selector, 100, 50);
            selector.part_over().expect("enough")
        };
        let disk = decide(drive("pastel"));
        assert_eq!(disk.policy, Some(PolicyKind::Sjf));
        assert!(disk.situation.ratio.is_some_and(|ratio| ratio > 15.0));
        assert_eq!(disk.situation.class, Some(Class::ContiguousSmall));
        assert_eq!((disk.situation.files, disk.votes), (Some(2), (2, 2)));
        let said = disk.to_string();
        assert!(
            said.starts_with("SJF by T3: ratio") && said.contains("2 of 2 files"),
            "{said}"
        );
        assert_eq!(decide(drive("edel")).policy, None);
        assert_eq!(decide(None).policy, Some(PolicyKind::Aioli));
    }

    #[test]
    fn too_little_decides_nothing() {
        let mut selector = Selector::new(Chooser::new(trees(), None), 32 << 10);
        assert_eq!(selector.part_over(), None);
        arrivals(&mut selector, 31, 1);
        assert_eq!(selector.part_over(), None);
        arrivals(&mut selector, 32, 1);
        assert!(selector.part_over().is_some());
    }

    #[test]
    fn before_anything_arrives_the_device_decides_if_it_is_known() {
        let begin = |name| {
            let drive = Drive::new(Model::named(name).expect(name));
            let first = Chooser::new(trees(), Some(drive)).begin().expect("known");
            assert_eq!(first.situation, Selection::default());
            assert!(first.reason.contains("nothing has arrived"), "{first}");
            first.policy
        };
        assert_eq!(begin("pastel"), Some(PolicyKind::Sjf));
        assert_eq!(begin("edel"), None);
        assert_eq!(Chooser::new(trees(), None).begin(), None);
    }

    #[test]
    fn the_shipped_trees_begin_with_what_disks_and_ssds_want() {
        let begin = |name| {
            let drive = Drive::new(Model::named(name).expect(name));
            let mut chooser = Chooser::new(Trees::shipped(), Some(drive));
            chooser.begin().expect("known").policy
        };
        for disk in ["pastel", "graphene", "suno"] {
            assert_eq!(begin(disk), Some(PolicyKind::Aioli), "{disk}");
        }
        assert_ne!(begin("edel"), Some(PolicyKind::Aioli), "it waits in vain");
    }

    #[test]
    fn what_a_context_begins_with_on_a_disk_is_no_matter_of_the_size_of_requests() {
        let begin = |device: &str, size: u64| {
            let drive = Drive::new(Model::named(device).expect(device));
            let mut warm = WarmStart::new(Trees::shipped(), Some(drive), 64 << 10);
            let situation = Situation {
                servers: Magnitude::of(4),
                ionodes: Magnitude::of(1),
                clients: Magnitude::of(8),
                processes: Magnitude::of(32),
                op: Op::Read,
                access: Access::SharedStrided,
                size: Magnitude::of(size),
                load: Load::Full,
            };
            let first = warm.policy(&Context::Situation(situation));
            first.expect("a situation").0.policy
        };
        for size in [128 << 10, 1 << 20, 16 << 20] {
            assert_eq!(begin("pastel", size), PolicyKind::Aioli, "{size}");
            assert_ne!(begin("edel", size), PolicyKind::Aioli, "{size}");
        }
    }

    #[test]
    fn trees_that_ask_or_answer_what_is_not_known_are_refused() {
        let good = trees().to_text("");
        assert_eq!(Trees::from_text(&good), Ok(trees()));
        for (from, to, said) in [
            ("class aIOLi", "class LIFO", "LIFO"),
            ("feature spatiality", "feature colour", "colour"),
            ("tree detection", "tree detector", "is not there"),
            (
                "class contiguous-small",
                "class contiguous-tiny",
                "something else",
            ),
        ] {
            let text = good
                .replace(from, to)
                .replace("choose aIOLi", "choose LIFO");
            let text = match to.contains("tiny") {
                true => text.replace("choose contiguous-small", "choose contiguous-tiny"),
                false => text,
            };
            let text = if to.contains("LIFO") {
                text
            } else {
                text.replace("choose LIFO", "choose aIOLi")
            };
            let error = Trees::from_text(&text).expect_err(to).to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn ratios_of_presets_are_near_the_published_ones() {
        for (name, write, read) in [("pastel", 21.29, 38.91), ("edel", 0.66, 2.37)] {
            let mut drive = Drive::new(Model::named(name).expect(name));
            for (op, published) in [(Op::Write, write), (Op::Read, read)] {
                let ours = drive.ratio(op, 8192);
                assert!((ours / published - 1.0).abs() < 0.1, "{name} {op}: {ours}");
            }
        }
    }

    #[test]
    fn the_shipped_trees_can_be_read_and_know_what_they_need() {
        let trees = Trees::shipped();
        let names: Vec<&str> = trees.selection().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, Selection::LIVE);
        for (tree, asked) in trees.selection().iter().zip(["ratio", "files"]) {
            assert!(tree.schema.features.iter().any(|f| f.name == asked));
        }
    }
}
