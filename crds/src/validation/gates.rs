//! Kueue's feature gates that change a rule.

/// Gates by their names and defaults (`pkg/features/kube_features.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `AdmissionGatedBy`: the annotation means something.
    pub admission_gated_by: bool,
    /// `ConcurrentAdmission`: ClusterQueues may have a policy for it.
    pub concurrent_admission: bool,
    /// `ElasticJobsViaWorkloadSlices`: jobs may be resized.
    pub elastic_jobs: bool,
    /// `TASMultiLayerTopology`: pod sets may ask for slices within slices.
    pub layers: bool,
    /// `PartialAdmission`: `minCount` means something.
    pub partial_admission: bool,
    /// `PriorityBoost`: the annotation means something.
    pub priority_boost: bool,
    /// `RejectUpdatesToCQWithInvalidOnFlavors`: wrong `onFlavors` that are there already are no longer tolerated.
    pub reject_invalid_on_flavors: bool,
    /// `TASValidateWorkloadSliceSize`.
    pub slice_size: bool,
    /// `TopologyAwareScheduling`: where admitted pods go may be decided later.
    pub topology: bool,
    /// `WorkloadValidateResourcesAreNonNegative`.
    pub non_negative_resources: bool,
    /// `WorkloadValidationForPodSetMetadata`.
    pub pod_set_metadata: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            admission_gated_by: true,
            concurrent_admission: false,
            elastic_jobs: true,
            layers: true,
            partial_admission: true,
            priority_boost: false,
            reject_invalid_on_flavors: false,
            slice_size: true,
            topology: true,
            non_negative_resources: true,
            pod_set_metadata: true,
        }
    }
}

impl Gates {
    /// Opens or closes the gate of this name. `false`: no rule here depends on it.
    pub fn set(&mut self, name: &str, open: bool) -> bool {
        let gate = match name {
            "AdmissionGatedBy" => &mut self.admission_gated_by,
            "ConcurrentAdmission" => &mut self.concurrent_admission,
            "ElasticJobsViaWorkloadSlices" => &mut self.elastic_jobs,
            "PartialAdmission" => &mut self.partial_admission,
            "PriorityBoost" => &mut self.priority_boost,
            "RejectUpdatesToCQWithInvalidOnFlavors" => &mut self.reject_invalid_on_flavors,
            "TASValidateWorkloadSliceSize" => &mut self.slice_size,
            "TopologyAwareScheduling" => &mut self.topology,
            "WorkloadValidateResourcesAreNonNegative" => &mut self.non_negative_resources,
            "WorkloadValidationForPodSetMetadata" => &mut self.pod_set_metadata,
            _ => return false,
        };
        *gate = open;
        true
    }
}
