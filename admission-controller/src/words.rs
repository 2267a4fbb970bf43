//! Words for what the engine decided. The tokens beside them are Kueue's, the sentences are ours.

mod placement;

use std::collections::BTreeSet;

use crds::names::kueue;
use crds::reasons::workload::evicted;
use jiff::Timestamp;
use model::ResourceName;
use quota_engine::input::KeptOut;
use quota_engine::{CheckName, EvictReason, Inactive, Obstacle, PendingReason, PreemptionReason, Unready};

use crate::ready::PodsReadyState;

/// The longest message of a condition (`metav1.Condition`).
const MAX_MESSAGE: usize = 32_768;

/// Why a workload waits.
pub fn pending(reason: &PendingReason) -> String {
    let text = match reason {
        PendingReason::Behind => "workloads before it in the StrictFIFO queue come first".to_owned(),
        PendingReason::Deactivated => {
            "the workload is deactivated; set spec.active to true to queue it again".to_owned()
        }
        PendingReason::Defect(defect) => defect.clone(),
        PendingReason::AdmissionRefused(words) => format!("the admission was refused: {words}"),
        PendingReason::NoQueueName => {
            "it names no LocalQueue; label its job with kueue.x-k8s.io/queue-name".to_owned()
        }
        PendingReason::LocalQueueMissing(key) => {
            format!(
                "LocalQueue {key} does not exist or is being deleted; create it or correct the queue name"
            )
        }
        PendingReason::LocalQueueStopped(key) => {
            format!("LocalQueue {key} is stopped by its stopPolicy; set that to None")
        }
        PendingReason::ClusterQueueMissing(name) => {
            format!(
                "ClusterQueue {name} does not exist or is being deleted; create it or correct spec.clusterQueue of the LocalQueue"
            )
        }
        PendingReason::ClusterQueueInactive(name, inactive) => {
            format!("ClusterQueue {name} admits nothing: {}", self::inactive(inactive))
        }
        PendingReason::NamespaceMismatch(name) => {
            format!(
                "ClusterQueue {name} does not serve this namespace; change its spec.namespaceSelector or the namespace's labels"
            )
        }
        PendingReason::NoFit(pod_sets) => pod_sets
            .iter()
            .map(|one| {
                let obstacles: Vec<String> = one.obstacles.iter().map(obstacle).collect();
                format!("no flavor for pod set {}: {}", one.pod_set, obstacles.join(", "))
            })
            .collect::<Vec<_>>()
            .join("; "),
        PendingReason::PutOff { until_ms } => match Timestamp::from_millisecond(*until_ms) {
            Ok(until) => format!("it was put off until {until}"),
            Err(_) => "it was put off".to_owned(),
        },
        PendingReason::PodsNotReady => {
            "nobody is admitted before the pods of all who were admitted are ready (waitForPodsReady.blockAdmission)"
                .to_owned()
        }
        PendingReason::AdmissionGated(by) => {
            format!("admission is held back by {by}; it is queued when nobody is left in the annotation kueue.x-k8s.io/admission-gated-by")
        }
        PendingReason::KeptOut(KeptOut::ReplacementPods) => {
            "pods of its group have failed or are gone; it is queued again when others have taken their places"
                .to_owned()
        }
        PendingReason::KeptOut(KeptOut::NotRequeued(reason)) => {
            format!("its condition Requeued is False ({reason}); it is queued again when whoever wrote that makes it True")
        }
        PendingReason::ChecksFailed => {
            "an admission check refuses it, or wants it to try again later; status.admissionChecks says why"
                .to_owned()
        }
        PendingReason::NoLongerFits => {
            "it fitted until workloads of other queues, whose turn came first, took the quota, or had it kept for them".to_owned()
        }
        PendingReason::TargetsTaken => {
            "the workloads it would preempt leave for another one that came first".to_owned()
        }
        PendingReason::PreemptionGated => {
            "it would have to preempt, which a closed preemption gate forbids; open it in status.preemptionGates"
                .to_owned()
        }
        PendingReason::WaitingForPreempted { victims } => {
            format!("it will be admitted when {victims} preempted workload(s) have released their quota")
        }
    };
    truncated(text)
}

fn obstacle(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::FlavorNotFound(flavor) => format!("ResourceFlavor {flavor} does not exist; create it"),
        Obstacle::UntoleratedTaint(flavor, taint) => {
            format!(
                "taint {}={}:{:?} of flavor {flavor} is not tolerated",
                taint.key, taint.value, taint.effect
            )
        }
        Obstacle::AffinityMismatch(flavor) => {
            format!("the pods' node selector or affinity excludes flavor {flavor}")
        }
        Obstacle::MalformedAffinity(flavor, label) => {
            format!(
                "the pods' node affinity is malformed where it names {label}, a label of flavor {flavor}; correct its \
                operator or values"
            )
        }
        Obstacle::NeedsTopology(flavor) => {
            format!("flavor {flavor} is for pods that are placed by topology")
        }
        Obstacle::NoTopology(flavor) => format!("flavor {flavor} has no topology to place the pods by"),
        Obstacle::NoLevel(flavor, level) => {
            format!("the topology of flavor {flavor} has no level {level}")
        }
        Obstacle::LevelNotGiven(flavor) => format!("flavor {flavor}: {}", placement::LEVEL_NOT_GIVEN),
        Obstacle::NotOneTopology(defect) => placement::defect(defect),
        Obstacle::FlavorNotAllowed(flavor) => {
            format!("the annotation {} does not name flavor {flavor}", kueue::ALLOWED_RESOURCE_FLAVORS)
        }
        Obstacle::HoldsOther { flavor, holds } => {
            let holds = holds.as_ref().map_or("no flavor", |holds| holds.as_str());
            format!("flavor {flavor} cannot be added to: the slice that is replaced has {holds}")
        }
        Obstacle::ResourceNotCovered(resource) => format!("the ClusterQueue has no quota for {resource}"),
        Obstacle::ExceedsMaximum { flavor, resource, requested, previously, maximum } => {
            let besides = if *previously > 0 {
                format!(" beside {} of its other pod sets", quantity(resource, *previously))
            } else {
                String::new()
            };
            format!(
                "{} {resource} of flavor {flavor}{besides} are more than the {} the queue could ever have",
                quantity(resource, *requested),
                quantity(resource, *maximum)
            )
        }
        Obstacle::NoPlaces(flavor, reason) => {
            format!("no places on the nodes of flavor {flavor}: {}", placement::reason(reason))
        }
        Obstacle::Insufficient { flavor, resource, missing } => {
            format!("{} more {resource} of flavor {flavor} needed", quantity(resource, *missing))
        }
    }
}

fn quantity(resource: &ResourceName, amount: i64) -> String {
    resource.quantity(amount).to_string()
}

/// Why a ClusterQueue admits nothing.
pub fn inactive(inactive: &Inactive) -> String {
    match inactive {
        Inactive::Terminating => "it is being deleted".to_owned(),
        Inactive::Stopped => "it is stopped by its stopPolicy; set that to None".to_owned(),
        Inactive::FlavorNotFound(flavors) => {
            let names: Vec<&str> = flavors.iter().map(|name| name.as_str()).collect();
            format!("it names ResourceFlavors that do not exist; create {}", names.join(", "))
        }
        Inactive::CheckNotFound(checks) => {
            format!("it names AdmissionChecks that do not exist; create {}", names(checks))
        }
        Inactive::CheckInactive(checks) => {
            format!(
                "nobody answers its AdmissionChecks {}: their controllers have not said that they are Active, or it is MultiKueue, \
                 which is not supported",
                names(checks)
            )
        }
        Inactive::MultipleMultiKueue(checks) => {
            format!("it names more than one AdmissionCheck of MultiKueue: {}", names(checks))
        }
        Inactive::MultiKueuePerFlavor(checks) => {
            format!("an AdmissionCheck of MultiKueue must be for all flavors: {}", names(checks))
        }
        Inactive::MultiKueueWithProvisioning(checks) => {
            format!(
                "an AdmissionCheck of MultiKueue and one that provisions nodes cannot be combined: {}",
                names(checks)
            )
        }
        Inactive::TopologyNotFound(flavors) => {
            let missing = flavors.iter().map(|(flavor, topology)| format!("{topology} (of flavor {flavor})"));
            format!("Topologies do not exist: {}; create them", missing.collect::<Vec<_>>().join(", "))
        }
        Inactive::CohortCycle(cohort) => {
            format!("its cohort {cohort} is part of a cycle or hangs on one; correct spec.parentName")
        }
        Inactive::Defects(defects) => defects.join("; "),
    }
}

fn names(checks: &[CheckName]) -> String {
    checks.iter().map(CheckName::as_str).collect::<Vec<_>>().join(", ")
}

/// Why a workload that was put off is in its queue again, for this reason of condition Requeued.
pub fn requeued(reason: &str) -> &'static str {
    match reason {
        evicted::CLUSTER_QUEUE_RESTARTED => "the ClusterQueue runs again",
        evicted::LOCAL_QUEUE_RESTARTED => "the LocalQueue runs again",
        evicted::REACTIVATED => "the workload is active again",
        _ => "it may be admitted again",
    }
}

/// Whether the pods of a workload are ready.
pub fn pods_ready(state: PodsReadyState) -> &'static str {
    match state {
        PodsReadyState::WaitForStart => "not all its pods are ready or have succeeded",
        PodsReadyState::Started => "all its pods are ready or have succeeded",
        PodsReadyState::WaitForRecovery => "pods of it have failed and are not ready again",
        PodsReadyState::Recovered => "all its pods are ready again or have succeeded",
    }
}

/// Who places the pods of a job, where these schedulers do and not the one that jobs are given to.
pub fn placed_by(others: &BTreeSet<String>) -> Option<String> {
    let names: Vec<&str> = others.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| format!("its pods are placed by another scheduler: {}", names.join(", ")))
}

/// What is wrong with a cohort whose way up does not end.
pub fn cohort_cycle(way: &[&str]) -> String {
    format!(
        "its parents form a cycle: {}; correct spec.parentName of one of them, until then their ClusterQueues admit nothing",
        way.join(" > ")
    )
}

/// Why a workload is evicted.
pub fn eviction(reason: EvictReason, preemptor: Option<(&str, &str)>, paths: (&str, &str)) -> String {
    let text = match reason {
        EvictReason::Preempted(right) => {
            let by = match right {
                PreemptionReason::InClusterQueue => "its priority in the ClusterQueue",
                PreemptionReason::InCohortReclamation => {
                    "its ClusterQueue taking back what it lent to the cohort"
                }
                PreemptionReason::InCohortReclaimWhileBorrowing => {
                    "its priority in the cohort while borrowing"
                }
                PreemptionReason::InCohortFairSharing => {
                    "its ClusterQueue's smaller share of what the cohort lends"
                }
            };
            let (uid, job) = preemptor.unwrap_or(("UNKNOWN", "UNKNOWN"));
            format!(
                "makes room for a workload (UID: {uid}, JobUID: {job}) by {by}; preemptor path: {}; preemptee path: {}",
                paths.0, paths.1
            )
        }
        EvictReason::ClusterQueueStopped => "the ClusterQueue is stopped and drained".to_owned(),
        EvictReason::LocalQueueStopped => "the LocalQueue is stopped and drained".to_owned(),
        EvictReason::Deactivated => "the workload is deactivated".to_owned(),
        EvictReason::NodeFailures => {
            "a node of it has failed, and no other can take its pods within what the topology request allows"
                .to_owned()
        }
        EvictReason::AdmissionCheck => "an admission check wants it to try again later".to_owned(),
        EvictReason::PodsReadyTimeout(Unready::SinceStart) => {
            "its pods did not get ready in time after it was admitted".to_owned()
        }
        EvictReason::PodsReadyTimeout(Unready::SinceFailure) => {
            "its pods did not get ready again in time after some had failed".to_owned()
        }
    };
    truncated(text)
}

/// Cut to what a condition holds, at a character.
pub fn truncated(mut text: String) -> String {
    if text.len() > MAX_MESSAGE {
        let mut end = MAX_MESSAGE - 3;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use quota_engine::Hindrance;
    use quota_engine::reason::PodSetObstacles;

    use super::*;

    #[test]
    fn numbers_are_told_in_the_users_units() {
        let reason = PendingReason::NoFit(
            [PodSetObstacles {
                pod_set: "worker".into(),
                hindrance: Hindrance::MaxQuota,
                obstacles: vec![
                    Obstacle::Insufficient { flavor: "a100".into(), resource: "cpu".into(), missing: 1500 },
                    Obstacle::ExceedsMaximum {
                        flavor: "a100".into(),
                        resource: "memory".into(),
                        requested: 2 << 30,
                        previously: 1 << 30,
                        maximum: 2 << 30,
                    },
                ],
            }]
            .into(),
        );
        assert_eq!(
            pending(&reason),
            "no flavor for pod set worker: 1500m more cpu of flavor a100 needed, 2Gi memory of flavor a100 beside 1Gi \
             of its other pod sets are more than the 2Gi the queue could ever have"
        );
    }

    #[test]
    fn long_words_are_cut_at_a_character() {
        let cut = truncated("\u{e9}".repeat(MAX_MESSAGE));
        assert!(cut.len() <= MAX_MESSAGE && cut.ends_with("..."));
    }
}
