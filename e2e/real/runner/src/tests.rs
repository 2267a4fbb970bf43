//! Every test of a run.

pub(crate) mod agent;
mod charts;
mod definitions;
mod job;
mod killed;
mod kinds;
mod lifecycle;
mod manifests;
pub(crate) mod node;
mod openapi;
mod parity;
mod replicas;
mod samples;
mod shadow;
mod takeover;
mod up;

use std::path::Path;

use crate::registry::Test;

/// Every test, in the order in which those that run alone are run.
pub(crate) fn all(repository: &Path) -> Vec<Test> {
    [
        parity::all(),
        openapi::all(),
        definitions::all(repository),
        up::all(),
        charts::all(),
        takeover::all(),
        manifests::all(repository),
        lifecycle::all(),
        samples::all(),
        shadow::all(),
        node::all(),
        agent::all(),
        job::all(),
        kinds::all(),
        killed::all(),
        replicas::all(),
        job::last(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
