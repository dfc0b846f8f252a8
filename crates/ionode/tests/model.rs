//! Random operations of three clients, one after the other: a node does what a plain directory does, and what a small
//! model in memory says.

mod common;
mod model_parts;

use common::Exported;
use common::gate::Cold;
use model_parts::{check, operations};
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::sync::Arc;

/// Operations of one case.
const LENGTH: usize = 80;

fn does_what_a_plain_directory_does(node: &Exported, cases: u32) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let all = prop::collection::vec((0..3usize, operations()), LENGTH);
    proptest!(config, |(steps in all)| {
        check(node, &steps)?;
    });
}

#[test]
fn a_node_does_what_a_plain_directory_does() {
    does_what_a_plain_directory_does(&Exported::start(), 48);
}

/// Whether reads wait in a ring or in a thread.
#[test]
fn a_node_whose_files_are_cold_does_so_with_rings_and_with_threads() {
    for ring in [true, false] {
        let node = Exported::on(Arc::new(Cold), |config| config.ring = ring);
        does_what_a_plain_directory_does(&node, 16);
    }
}
