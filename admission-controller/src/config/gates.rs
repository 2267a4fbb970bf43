//! Feature gates.

use std::collections::BTreeMap;

use quota_engine::topology::Rules;
use quota_engine::{Settings, TopologySettings};
use serde::Deserialize;

/// `featureGates`: those of Kueue's that something here depends on, and the others, which have no effect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FeatureGates {
    /// `PartialAdmission`.
    pub partial_admission: bool,
    /// `MultiKueueOrchestratedPreemption`: without it and `ConcurrentAdmission`, preemption gates are not looked at.
    pub multi_kueue_orchestrated_preemption: bool,
    /// `PrioritySortingWithinCohort`.
    pub priority_sorting_within_cohort: bool,
    /// `RecomputeAssignmentUponPreemptionTargetsOverlap`.
    pub recompute_assignment_upon_preemption_targets_overlap: bool,
    /// `FlavorFungibilityPreserveScanProgress`.
    pub flavor_fungibility_preserve_scan_progress: bool,
    /// `AdmissionFairSharing`.
    pub admission_fair_sharing: bool,
    /// `TopologyAwareScheduling`: without it, topologies and what is asked of them are not looked at.
    pub topology_aware_scheduling: bool,
    /// `TASProfileMixed`.
    #[serde(rename = "TASProfileMixed")]
    pub tas_profile_mixed: bool,
    /// `TASBalancedPlacement`.
    #[serde(rename = "TASBalancedPlacement")]
    pub tas_balanced_placement: bool,
    /// `TASRespectNodeAffinityPreferred`.
    #[serde(rename = "TASRespectNodeAffinityPreferred")]
    pub tas_respect_node_affinity_preferred: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`.
    #[serde(rename = "ElasticJobsViaWorkloadSlicesWithTAS")]
    pub elastic_jobs_with_tas: bool,
    /// `TASRecomputeAssignmentWithinSchedulingCycle`.
    #[serde(rename = "TASRecomputeAssignmentWithinSchedulingCycle")]
    pub tas_recompute: bool,
    /// `TASFailedNodeReplacement`: without it, nothing is done about nodes that fail.
    #[serde(rename = "TASFailedNodeReplacement")]
    pub tas_failed_node_replacement: bool,
    /// `TASFailedNodeReplacementFailFast`.
    #[serde(rename = "TASFailedNodeReplacementFailFast")]
    pub tas_fail_fast: bool,
    /// `TASReplaceNodeOnPodTermination`: a node that is not ready has failed as soon as the pods on it end.
    #[serde(rename = "TASReplaceNodeOnPodTermination")]
    pub tas_replace_on_pod_termination: bool,
    /// `TASReplaceNodeDueToNotReadyOverFixedTime`: a node that has not been ready for 30 seconds has failed, whatever its pods do.
    #[serde(rename = "TASReplaceNodeDueToNotReadyOverFixedTime")]
    pub tas_replace_over_fixed_time: bool,
    /// `TASReplaceNodeOnNodeTaints`: a node has failed, too, that has a taint which the pods on it do not tolerate.
    #[serde(rename = "TASReplaceNodeOnNodeTaints")]
    pub tas_replace_on_taints: bool,
    /// `TASHandleOverlappingFlavors`: what is used of a node counts for every flavor that has the node.
    #[serde(rename = "TASHandleOverlappingFlavors")]
    pub tas_overlapping_flavors: bool,
    /// `SkipReassignmentForPodOwnedWorkloads`.
    pub skip_reassignment_for_pod_owned_workloads: bool,
    /// `FinishOrphanedWorkloads`: a Workload that has lost the job it was made for ends, and its quota is free.
    pub finish_orphaned_workloads: bool,
    /// `ReclaimablePods`: quota of pods that have ended is given back before the job ends.
    pub reclaimable_pods: bool,
    /// `AssignQueueLabelsForPods`: admitted pods are labelled with the queues they came through.
    pub assign_queue_labels_for_pods: bool,
    /// `WorkloadPriorityClassDefaulting`: jobs that name no WorkloadPriorityClass get the one called `default`, if there is one.
    pub workload_priority_class_defaulting: bool,
    /// `TASMultiLayerTopology`: slices within slices may be asked for.
    #[serde(rename = "TASMultiLayerTopology")]
    pub tas_multi_layer: bool,
    /// `VisibilityOnDemand`: whether `visibility.kueue.x-k8s.io` is served.
    pub visibility_on_demand: bool,
    /// `LocalQueueMetrics`: without it, no LocalQueue has metrics.
    pub local_queue_metrics: bool,
    /// `MetricsForCohorts`.
    pub metrics_for_cohorts: bool,
    /// `MetricForWorkloadCreationLatency`.
    pub metric_for_workload_creation_latency: bool,
    /// `SchedulingEquivalenceHashing`: here, whether it is told how many kinds of workloads wait, and whether those of one kind as
    /// one that found nothing are told to be put back with it. They are always judged together.
    pub scheduling_equivalence_hashing: bool,
    /// `UnadmittedWorkloadsExplicitStatus`: a new Workload says at once that it waits. Without it, that is said with the reason,
    /// when there is one.
    pub unadmitted_workloads_explicit_status: bool,
    /// Any other; those that change a rule of validation are in [`Gates`].
    #[serde(flatten)]
    pub others: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// What the engine goes by in placement.
    pub(super) fn topology(&self) -> TopologySettings {
        TopologySettings {
            enabled: self.topology_aware_scheduling,
            rules: Rules {
                mixed_profile: self.tas_profile_mixed,
                balanced: self.tas_balanced_placement,
                preferred_affinity: self.tas_respect_node_affinity_preferred,
                elastic: self.elastic_jobs_with_tas,
            },
            recompute: self.tas_recompute,
            fail_fast: self.tas_fail_fast,
            keep_single_pods: self.skip_reassignment_for_pod_owned_workloads,
            shared_nodes: self.tas_overlapping_flavors,
        }
    }
}

impl Default for FeatureGates {
    fn default() -> Self {
        let kueues = Settings::default();
        let placement = kueues.topology;
        Self {
            topology_aware_scheduling: placement.enabled,
            tas_profile_mixed: placement.rules.mixed_profile,
            tas_balanced_placement: placement.rules.balanced,
            tas_respect_node_affinity_preferred: placement.rules.preferred_affinity,
            elastic_jobs_with_tas: placement.rules.elastic,
            tas_recompute: placement.recompute,
            tas_failed_node_replacement: true,
            tas_fail_fast: placement.fail_fast,
            tas_replace_on_pod_termination: true,
            tas_replace_over_fixed_time: false,
            tas_replace_on_taints: true,
            tas_overlapping_flavors: placement.shared_nodes,
            skip_reassignment_for_pod_owned_workloads: placement.keep_single_pods,
            partial_admission: kueues.partial_admission,
            multi_kueue_orchestrated_preemption: kueues.preemption_gates,
            recompute_assignment_upon_preemption_targets_overlap: kueues.recompute_overlapping_targets,
            flavor_fungibility_preserve_scan_progress: kueues.preserve_scan_progress,
            priority_sorting_within_cohort: kueues.priority_sorting,
            admission_fair_sharing: true,
            finish_orphaned_workloads: true,
            reclaimable_pods: true,
            assign_queue_labels_for_pods: true,
            tas_multi_layer: true,
            workload_priority_class_defaulting: true,
            visibility_on_demand: true,
            local_queue_metrics: true,
            metrics_for_cohorts: true,
            metric_for_workload_creation_latency: true,
            scheduling_equivalence_hashing: kueues.equivalence_hashing,
            unadmitted_workloads_explicit_status: false,
            others: BTreeMap::new(),
        }
    }
}
