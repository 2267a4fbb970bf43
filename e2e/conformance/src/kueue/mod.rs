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
mod info;
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
    let run = runner(&case.file).or_else(|| webhooks::runner(case))?;
    let verdict = fields::are_known(case).and_then(|()| run(case));
    // A gate that is otherwise than the case has it may be why.
    Some(verdict.map_err(|difference| [vec![difference], cycle::fixed_gates(case.tc())].concat().join("\n")))
}

fn runner(file: &str) -> Option<Runner> {
    let families = [
        admission::TESTS,
        fair::TESTS,
        flavorassigner::TESTS,
        info::TESTS,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_gate_that_is_fixed_is_told_where_a_case_fails() {
        let case = |wanted: &str| Case {
            file: "workload.TestGetQueueOrderTimestamp".to_owned(),
            name: "x".to_owned(),
            line: json!({ "tc": {
                "featureGates": { "MultiKueue": true },
                "wl": { "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" } },
                "want": { "{Creation}": wanted },
            }}),
        };
        assert_eq!(run(&case("2026-01-01T00:00:00Z")), Some(Ok(())));
        let failed = run(&case("2026-01-01T00:00:01Z")).unwrap().unwrap_err();
        assert!(
            failed.ends_with("featureGates.MultiKueue: it is false here and cannot be changed"),
            "{failed}"
        );
    }
}
