//! The fields of cases that are gone by: one that is not here would be dropped in silence, so a case that has it fails.

use crate::case::{Case, Verdict};

/// By the beginning of a file's name; where several fit, the longest counts. [`EVERYWHERE`] are not named.
const FIELDS: &[(&str, &[&str])] = &[
    (
        "flavorassigner.TestAssignFlavors",
        &[
            "clusterQueue",
            "clusterQueueUsage",
            "enableFairSharing",
            "preemptWorkloadSlice",
            "secondaryClusterQueue",
            "secondaryClusterQueueUsage",
            "simulationResult",
            "topologies",
            "wantAssignment",
            "wantRepMode",
            "wlPods",
            "wlReclaimablePods",
        ],
    ),
    ("flavorassigner.TestAssignFlavorsWithAllowedFlavors", &["allowedFlavors", "wantFlavor", "wantRepMode"]),
    (
        "flavorassigner.TestAssignFlavors_LeaderWorkerSetTASFlavor",
        &["clusterQueue", "wantPodSetErrors", "wantPodSetFlavors", "wlPods"],
    ),
    (
        "flavorassigner.TestDeletedFlavors",
        &["clusterQueue", "wantAssignment", "wantRepMode", "wlPods", "wlReclaimablePods"],
    ),
    (
        "flavorassigner.TestHierarchical",
        &[
            "flavorFungibility",
            "otherClusterQueueUsage",
            "simulationResult",
            "testClusterQueueFlavors",
            "testClusterQueueUsage",
            "wantAssigment",
            "wantMode",
            "workloadRequests",
        ],
    ),
    (
        "flavorassigner.TestIsNoFitDueToCapacityAndLimits",
        &[
            "allowedFlavors",
            "cq",
            "cqUsage",
            "podSet",
            "replaceWl",
            "resourceFlavors",
            "siblingCQUsage",
            "siblingCQs",
            "simulationResult",
            "topologies",
            "wantFlavorAttempts",
            "wantNoFitReason",
        ],
    ),
    (
        "flavorassigner.TestReclaimBeforePriorityPreemption",
        &[
            "flavorFungibility",
            "otherClusterQueueUsage",
            "simulationResult",
            "testClusterQueueUsage",
            "wantAssigment",
            "wantMode",
            "workloadRequests",
        ],
    ),
    (
        "preemption.",
        &[
            "admitted",
            "assignment",
            "assignmentFlavor",
            "clusterQueues",
            "cohorts",
            "flavors",
            "incoming",
            "strategies",
            "targetCQ",
            "wantPreempted",
            "wantWorkloads",
        ],
    ),
    (
        "scheduler.TestAvailable",
        &["clusterQueues", "cohorts", "usage", "wantAvailable", "wantPotentiallyAvailable"],
    ),
    (
        "scheduler.TestDominantResourceShare",
        &["clusterQueue", "cohorts", "flvResQ", "lendingClusterQueue", "usage", "want"],
    ),
    (
        "scheduler.TestFindTopologyAssignments",
        &[
            "levels",
            "nodeLabels",
            "nodes",
            "podSets",
            "pods",
            "priorFlavorUsage",
            "priorOwnUsage",
            "workload",
        ],
    ),
    (
        "scheduler.TestFindTopologyAssignmentsMultiLayerReplacement",
        &[
            "admissionCount",
            "count",
            "existingTA",
            "levels",
            "nodes",
            "priorFlavorUsage",
            "topologyRequest",
            "unhealthyNode",
            "wantAssignment",
            "wantReason",
        ],
    ),
    (
        "scheduler.TestSchedule",
        &[
            "additionalClusterQueues",
            "additionalLocalQueues",
            "admissionError",
            "cohorts",
            "enableFairSharing",
            "eventCmpOpts",
            "objects",
            "wantAssignments",
            "wantEvents",
            "wantInadmissibleLeft",
            "wantLeft",
            "wantPreemptionTargetRecomputations",
            "wantSkippedPreemptions",
            "wantWorkloads",
            "workloads",
        ],
    ),
    ("scheduler.TestScheduleForAFS", &["deleteQueue", "initialUsage", "wantWorkloads", "workloads"]),
    ("scheduler.TestScheduleForPreserveFlavorScanProgress", &["gateEnabled", "noChurn", "wantPendingFlavor"]),
    (
        "scheduler.TestScheduleForTAS",
        &[
            "admissionChecks",
            "clusterQueues",
            "cohorts",
            "eventCmpOpts",
            "fairSharing",
            "nodes",
            "patchStatusErr",
            "pods",
            "resourceFlavors",
            "resourceTransformations",
            "topologies",
            "wantEvents",
            "wantInadmissibleLeft",
            "wantLeft",
            "wantNewAssignments",
            "wantWorkloads",
            "workload",
            "workloads",
        ],
    ),
    ("scheduler.TestSchedulerWhenWorkloadModifiedConcurrently", &["wantEvents", "wantWorkloads", "workload"]),
    // The one gate that a conversion looks at says how places are cut, which is not compared.
    ("v1beta1.", &["expected", "input", "v1beta1Obj", "v1beta2Obj"]),
    (
        "webhooks.",
        &[
            "after",
            "before",
            "clusterQueue",
            "cohort",
            "newClusterQueue",
            "newCohort",
            "newResourceFlavor",
            "newRf",
            "newWorkload",
            "numCoveredRes",
            "numFlavors",
            "numResources",
            "oldClusterQueue",
            "oldCohort",
            "oldResourceFlavor",
            "oldRf",
            "oldWorkload",
            "resourceFlavor",
            "rf",
            "wantBadValue",
            "wantDetail",
            "wantErr",
            "workload",
        ],
    ),
    ("workload.TestAdjustResources", &["limitranges", "runtimeClasses", "wantWl", "wl"]),
    ("workload.TestAdmissionChecksForWorkload", &["wantAdmissionChecks", "wl"]),
    (
        "workload.TestEvictionPendingLatency",
        &["newWl", "now", "oldWl", "wantCQ", "wantLatency", "wantOK", "wantReason"],
    ),
    ("workload.TestFilterChecksForAdmission", &["cq", "wantAdmissionChecks", "wl"]),
    ("workload.TestFromQuotaReservedOrAdmittedToPending", &["new", "prev", "want"]),
    ("workload.TestGetMaxRetryTime", &["checkStates", "wantRetryTime"]),
    ("workload.TestGetQueueOrderTimestamp", &["want", "wl"]),
    ("workload.TestIsOnHold", &["want", "wl"]),
    ("workload.TestLimitReclaimablePodsToPodSetSizes", &["reclaimablePods", "want"]),
    ("workload.TestNewInfo", &["infoOptions", "wantInfo", "workload"]),
    ("workload.TestReclaimablePodsAreEqual", &["a", "b", "wantResult"]),
    ("workload.TestSetQuotaReservation", &["args", "want"]),
    (
        "workload.TestSetRequeueState",
        &["incrementCount", "waitUntil", "wantCount", "wantRequeueAt", "wantUpdated", "workload"],
    ),
    (
        "workload.TestSyncAdmittedCondition",
        &[
            "admission",
            "checkStates",
            "conditions",
            "pastAdmittedTime",
            "wantAdmittedTime",
            "wantChange",
            "wantConditions",
        ],
    ),
    ("workload.TestTotalExecutionTime", &["want", "wl"]),
    ("workload.TestUpdateReclaimablePods", &["err", "oldStatus", "reclaimablePods", "wantErr", "wantStatus"]),
    ("workload.TestValidateLimitRange", &["limitRange", "wantError", "workload"]),
    ("workload.TestValidateResources", &["wantError", "workloadInfo"]),
    (
        "workload.TestWithPreprocessedDRAResources",
        &["draResources", "infoOptions", "replacedExtendedResources", "wantInfo", "wl", "workload"],
    ),
    ("workload.TestWorkloadPriorityClassChanged", &["newWorkload", "oldWorkload", "wantChanged"]),
];

/// Those that any case may have.
const EVERYWHERE: [&str; 2] = ["name", "featureGates"];

/// Whether nothing of the case would be dropped.
pub(super) fn are_known(case: &Case) -> Verdict {
    let fitting = FIELDS.iter().filter(|(file, _)| case.file.starts_with(file));
    let known = fitting.max_by_key(|(file, _)| file.len()).map_or(&[] as &[&str], |(_, fields)| fields);
    let given = case.tc().as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    let unknown: Vec<&str> =
        given.filter(|field| !EVERYWHERE.contains(field) && !known.contains(field)).collect();
    match unknown.as_slice() {
        [] => Ok(()),
        unknown => Err(format!("nobody looks at {}", unknown.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_looks_at_is_told() {
        for (file, tc, told) in [
            ("scheduler.TestScheduleForFairSharing", json!({ "name": "x", "workloads": [] }), None),
            (
                "scheduler.TestScheduleForTASCohorts",
                json!({ "enableFairSharing": true }),
                Some("enableFairSharing"),
            ),
            ("scheduler.TestSchedule", json!({ "queues": [], "objects": [] }), Some("queues")),
            ("nobodys.Test", json!({ "want": 1 }), Some("want")),
        ] {
            let line = json!({ "tc": tc });
            let case = Case { file: file.to_owned(), name: String::new(), line };
            let told = told.map(|field| format!("nobody looks at {field}"));
            assert_eq!(are_known(&case).err(), told, "{file}");
        }
    }
}
