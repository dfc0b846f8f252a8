//! The three sides of the model test: operations, and what does them.

mod memory;
mod plain;
mod through;

use memory::Model;
use plain::{Plain, tree};
use through::Through;

use crate::common::Exported;
use proptest::prelude::*;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A name in a small tree.
pub type Path = Vec<&'static str>;

/// What is done. `held` is one of a client's open files.
#[derive(Clone, Debug)]
pub enum Operation {
    Create {
        path: Path,
        exclusive: bool,
    },
    Write {
        path: Path,
        offset: u64,
        bytes: Vec<u8>,
    },
    Append {
        path: Path,
        bytes: Vec<u8>,
    },
    Truncate {
        path: Path,
        size: u64,
    },
    Read {
        path: Path,
        offset: u64,
        count: usize,
    },
    Rename {
        from: Path,
        to: Path,
    },
    Unlink {
        path: Path,
    },
    Mkdir {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Link {
        from: Path,
        to: Path,
    },
    ReadDir {
        path: Path,
    },
    GetAttr {
        path: Path,
    },
    Hold {
        path: Path,
        held: usize,
    },
    WriteHeld {
        held: usize,
        offset: u64,
        bytes: Vec<u8>,
    },
    ReadHeld {
        held: usize,
        offset: u64,
        count: usize,
    },
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    File {
        size: u64,
        links: u64,
    },
    Directory,
    /// Nothing is held there.
    NotHeld,
}

/// Files that a client has open at most.
pub const HELD: usize = 2;

fn path() -> impl Strategy<Value = Path> {
    let component = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(component, 1..=3)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![0..100usize, 0..20_000usize];
    (any::<u64>(), size).prop_map(|(seed, size)| crate::common::pattern(seed, size))
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..100u64, 0..50_000u64]
}

/// Any operation.
pub fn operations() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let held = || 0..HELD;
    prop_oneof![
        4 => (path(), any::<bool>()).prop_map(|(path, exclusive)| Create { path, exclusive }),
        4 => (path(), offset(), bytes())
            .prop_map(|(path, offset, bytes)| Write { path, offset, bytes }),
        2 => (path(), bytes()).prop_map(|(path, bytes)| Append { path, bytes }),
        1 => (path(), offset()).prop_map(|(path, size)| Truncate { path, size }),
        3 => (path(), offset(), 0..40_000usize)
            .prop_map(|(path, offset, count)| Read { path, offset, count }),
        3 => (path(), path()).prop_map(|(from, to)| Rename { from, to }),
        2 => path().prop_map(|path| Unlink { path }),
        4 => path().prop_map(|path| Mkdir { path }),
        1 => path().prop_map(|path| Rmdir { path }),
        2 => (path(), path()).prop_map(|(from, to)| Link { from, to }),
        2 => path().prop_map(|path| ReadDir { path }),
        2 => path().prop_map(|path| GetAttr { path }),
        2 => (path(), held()).prop_map(|(path, held)| Hold { path, held }),
        2 => (held(), offset(), bytes())
            .prop_map(|(held, offset, bytes)| WriteHeld { held, offset, bytes }),
        2 => (held(), offset(), 0..40_000usize)
            .prop_map(|(held, offset, count)| ReadHeld { held, offset, count }),
    ]
}

/// Each case has a directory of its own.
static CASES: AtomicUsize = AtomicUsize::new(0);

/// That a node does these steps of three clients as a plain directory does, and as the model says.
pub fn check(node: &Exported, steps: &[(usize, Operation)]) -> Result<(), TestCaseError> {
    let case = CASES.fetch_add(1, Ordering::Relaxed);
    let name = format!("case-{case}");
    let beside = node.outside().join(&name);
    fs::create_dir(node.path(&name)).unwrap();
    fs::create_dir(&beside).unwrap();
    let mut clients: Vec<Through> = (0..3).map(|_| Through::new(node, &name)).collect();
    let (mut plain, mut model) = (Plain::new(&beside), Model::default());
    for (number, (client, operation)) in steps.iter().enumerate() {
        let got = clients[*client].act(operation, *client);
        let expected = plain.act(operation, *client);
        prop_assert_eq!(&got, &expected, "{}: {:?}", number, operation);
        let modelled = model.act(operation, *client);
        prop_assert_eq!(got.ok(), modelled, "model, {}: {:?}", number, operation);
    }
    prop_assert_eq!(tree(&node.path(&name)), tree(&beside));
    Ok(())
}
