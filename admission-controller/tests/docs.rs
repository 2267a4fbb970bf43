//! Every token that a user can meet has a page.

use std::path::Path;

/// What the engine, the conditions and the events of this program say.
const TOKENS: &[&str] = &[
    "PendingEvaluation",
    "Suspended",
    "Misconfigured",
    "NoMatchingFlavor",
    "ExceedsMaxQuota",
    "WaitingForQuota",
    "WaitingForPreemptedWorkloads",
    "Preempted",
    "InClusterQueue",
    "InCohortReclamation",
    "InCohortReclaimWhileBorrowing",
    "ClusterQueueStopped",
    "LocalQueueStopped",
    "Deactivated",
    "QuotaReserved",
    "Admitted",
    "NoReservation",
    "Succeeded",
    "Failed",
    "FailedToStart",
    "ErrWorkloadCompose",
    "Ready",
    "Terminating",
    "Stopped",
    "FlavorNotFound",
    "AdmissionCheckInactive",
    "CohortCycle",
    "ClusterQueueIsInactive",
    "ClusterQueueDoesNotExist",
];

#[test]
fn every_reason_has_a_page() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reasons");
    let missing: Vec<&&str> = TOKENS
        .iter()
        .filter(|token| {
            let page = std::fs::read_to_string(pages.join(format!("{token}.md"))).unwrap_or_default();
            !page.starts_with(&format!("# {token}\n"))
        })
        .collect();
    assert!(missing.is_empty(), "no page for {missing:?}");
}
