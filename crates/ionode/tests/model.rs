//! Random operations of three clients, one after the other: a node does what a plain directory does, and what a small
//! model in memory says.

mod common;
mod model_parts;

use common::Exported;
use model_parts::{Model, Operation, Plain, Through, operations};
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Each case has a directory of its own.
static CASES: AtomicUsize = AtomicUsize::new(0);

/// Operations of one case.
const LENGTH: usize = 80;

#[test]
fn a_node_does_what_a_plain_directory_does() {
    let node = Exported::start();
    let config = Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    };
    let all = prop::collection::vec((0..3usize, operations()), LENGTH);
    proptest!(config, |(steps in all)| {
        check(&node, &steps)?;
    });
}

fn check(node: &Exported, steps: &[(usize, Operation)]) -> Result<(), TestCaseError> {
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
    prop_assert_eq!(
        model_parts::tree(&node.path(&name)),
        model_parts::tree(&beside)
    );
    Ok(())
}
