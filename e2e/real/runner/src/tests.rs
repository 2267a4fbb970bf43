//! Every test of a run.

mod agent;
mod definitions;
mod job;
mod manifests;
mod node;
mod parity;

use std::path::Path;

use crate::registry::Test;

/// Every test, in the order in which those that run alone are run.
pub(crate) fn all(repository: &Path) -> Vec<Test> {
    [parity::all(), definitions::all(repository), manifests::all(), node::all(), agent::all(), job::all()]
        .into_iter()
        .flatten()
        .collect()
}
