//! Random operations of three clients, one after the other: a node does what a plain directory does, and what a small
//! model in memory says.

mod common;
mod model_parts;

use common::Exported;
use model_parts::{check, operations};
use proptest::prelude::*;
use proptest::test_runner::Config;

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
