//! Kueue's own tables. One file per family; each lists its tests with their runners.

#![allow(
    clippy::unwrap_used,
    reason = "a case that is not as it should be has failed: `Report::of` catches the panic"
)]

mod admission;
mod conversion;
mod cycle;
mod fair;
mod flavorassigner;
mod preemption;
mod scheduler;
mod tas;
mod topology;
mod webhooks;
mod workload;
mod world;
mod write;

use crate::case::Runner;

/// Where this project differs from the tables, and why.
pub const KNOWN_DIFFERENCES: &str = include_str!("../../known-differences.md");

/// The runner of a file's cases.
pub fn runner(file: &str) -> Option<Runner> {
    let families = [
        admission::TESTS,
        conversion::TESTS,
        fair::TESTS,
        flavorassigner::TESTS,
        preemption::TESTS,
        scheduler::TESTS,
        tas::TESTS,
        topology::TESTS,
        webhooks::TESTS,
        workload::TESTS,
    ];
    families.into_iter().flatten().find(|(test, _)| *test == file).map(|(_, run)| *run)
}
