//! What the papers published and nobody can repeat here, and why. Tables that only describe an experiment (machines, sizes of
//! files, features) are not results, and not in this list.

/// A result that is not repeated.
pub struct Missing {
    /// The paper's number, and the table or figure.
    pub name: &'static str,
    pub about: &'static str,
    pub why: &'static str,
}

const fn missing(name: &'static str, about: &'static str, why: &'static str) -> Missing {
    Missing { name, about, why }
}

const LOST: &str = "its curves are lost in the paper's text";

pub const MISSING: &[Missing] = &[
    missing(
        "000-table1",
        "how many patterns of each kind there are",
        "says what the authors recorded",
    ),
    missing(
        "000-fig1",
        "precision and recall by threshold",
        "its curves are lost in the paper's text; the best of them are 000-table6",
    ),
    missing(
        "001-fig3",
        "two real programs by access pattern",
        "Darshan logs of the authors' machines; `presagio report` draws those one has",
    ),
    missing("001-fig5", "which metrics go with the access", LOST),
    missing(
        "001-fig7d",
        "learning in three situations at once",
        "each learns as if alone (a test of crates/tune says so), with a third of the steps: 001-fig7 has them",
    ),
    missing(
        "001-fig8",
        "windows that a council selects in three real runs",
        "takes a cluster; what a council costs is in 001-6e, `presagio bench council` has phases on one live node",
    ),
    missing(
        "002-table3.2",
        "what a request costs under each algorithm",
        "orders of growth, not figures; `presagio bench sched` measures ours",
    ),
    missing(
        "002-fig3.5 to 3.9, A.1 to A.16",
        "makespans of each situation and algorithm",
        "bars are lost in the text; what is concluded from them is 002-table3.8",
    ),
    missing(
        "002-fig4.3, 4.4",
        "foresight, by pattern and number of processes",
        "bars are lost in the text; their averages are 002-table4.2",
    ),
    missing(
        "002-fig4.5, 4.6",
        "recording on Pastel; arrival times on Suno",
        "bars are lost in the text; their averages are 002-table4.4 and 002-fig4.7",
    ),
    missing(
        "002-table5.1, fig5.1 to 5.3",
        "access times of nine real devices, and errors of each",
        "takes the devices; medians are 002-table5.3 to 5.5, `presagio bench profile` has yours",
    ),
    missing(
        "002-fig6.2",
        "selection trees, patterns as detected",
        "bars are lost in the text; what is concluded from them is 002-table6.7 and 6.8",
    ),
    missing(
        "003-table3, 4",
        "predictors that follow and that are found",
        "examples, not results; tests of crates/grammar have them word by word",
    ),
    missing(
        "003-table6",
        "sizes of accesses",
        "says what the authors' programs do; replicas are made after it",
    ),
    missing(
        "003-fig6",
        "hit ratios over the course of runs",
        "its curves are lost in the paper's text; what they come to is 003-table8",
    ),
    missing(
        "003-fig7, 8",
        "times between operations over the course of runs",
        "its curves are lost in the paper's text; what they come to is 003-table9",
    ),
    missing(
        "004-fig4",
        "reads of the program",
        "says what the authors' program does",
    ),
    missing(
        "004-fig5",
        "hints for a whole file, and for what comes next",
        "takes a real disk and root: `presagio bench run --only disk`",
    ),
    missing(
        "004-fig6",
        "time of ROOT with and without hints, 1 to 8 at once",
        "takes a real disk and root, and ROOT: `presagio bench run` has a reader like it",
    ),
    missing(
        "004-fig7",
        "reads that reach the storage",
        "takes a real disk and root: `presagio bench run` counts the device's reads",
    ),
];
