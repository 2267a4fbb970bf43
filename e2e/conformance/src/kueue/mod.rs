//! Kueue's own tables. One file per family; each lists its tests with their runners.

#![allow(
    clippy::unwrap_used,
    reason = "a case that is not as it should be has failed: `Report::of` catches the panic"
)]

mod admission;
mod conversion;
mod cycle;
mod fair;
mod fields;
mod flavorassigner;
mod preemption;
mod scheduler;
mod tas;
mod topology;
mod webhooks;
mod workload;
mod world;
mod write;

use crate::case::{Case, Runner, Verdict};

/// Where this project differs from the tables, and why.
pub const KNOWN_DIFFERENCES: &str = include_str!("../../known-differences.md");

/// Runs a case; `None` where no runner knows its test.
pub fn run(case: &Case) -> Option<Verdict> {
    let run = runner(&case.file)?;
    Some(fields::are_known(case).and_then(|()| run(case)))
}

fn runner(file: &str) -> Option<Runner> {
    let families = [
        admission::TESTS,
        fair::TESTS,
        flavorassigner::TESTS,
        preemption::TESTS,
        scheduler::TESTS,
        tas::TESTS,
        topology::TESTS,
        webhooks::TESTS,
        workload::TESTS,
    ];
    let named = families.into_iter().flatten().find(|(test, _)| *test == file).map(|(_, run)| *run);
    named.or_else(|| conversion::runner(file))
}
