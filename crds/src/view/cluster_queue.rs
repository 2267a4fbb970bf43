//! ClusterQueue, as admission-controller reads it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::selector::LabelSelector;
use serde::Deserialize;

use super::meta::view;
use super::quota::{FairSharing, ResourceGroup};

view! {
    /// `kueue.x-k8s.io/v1beta2` ClusterQueue.
    pub struct ClusterQueue("ClusterQueue", crate::names::kueue::GROUP, "v1beta2", "clusterqueues", ClusterResourceScope) {
        /// `spec`.
        pub spec: ClusterQueueSpec,
        /// `status`.
        pub status: QueueStatus,
    }
}

/// `spec` of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueueSpec {
    /// `cohortName`.
    pub cohort_name: Option<String>,
    /// `resourceGroups`.
    pub resource_groups: Vec<ResourceGroup>,
    /// `queueingStrategy`.
    pub queueing_strategy: Option<String>,
    /// `namespaceSelector`; absent matches nothing.
    pub namespace_selector: Option<LabelSelector>,
    /// `preemption`.
    pub preemption: Preemption,
    /// `flavorFungibility`.
    pub flavor_fungibility: FlavorFungibility,
    /// `fairSharing`.
    pub fair_sharing: FairSharing,
    /// `admissionScope`.
    pub admission_scope: AdmissionScope,
    /// `stopPolicy`.
    pub stop_policy: Option<String>,
    /// `admissionChecksStrategy`.
    pub admission_checks_strategy: AdmissionChecksStrategy,
    /// `concurrentAdmissionPolicy`, which is not supported: only whether it is there.
    pub concurrent_admission_policy: Option<serde::de::IgnoredAny>,
}

/// `spec.admissionScope`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionScope {
    /// `admissionMode`.
    pub admission_mode: Option<String>,
}

/// `spec.preemption`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preemption {
    /// `withinClusterQueue`.
    pub within_cluster_queue: Option<String>,
    /// `reclaimWithinCohort`.
    pub reclaim_within_cohort: Option<String>,
    /// `borrowWithinCohort`.
    pub borrow_within_cohort: BorrowWithinCohort,
}

/// `spec.preemption.borrowWithinCohort`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BorrowWithinCohort {
    /// `policy`.
    pub policy: Option<String>,
    /// `maxPriorityThreshold`.
    pub max_priority_threshold: Option<i32>,
}

/// `spec.flavorFungibility`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorFungibility {
    /// `whenCanBorrow`.
    pub when_can_borrow: Option<String>,
    /// `whenCanPreempt`.
    pub when_can_preempt: Option<String>,
    /// `preference`.
    pub preference: Option<String>,
}

/// `spec.admissionChecksStrategy`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionChecksStrategy {
    /// `admissionChecks`.
    pub admission_checks: Vec<AdmissionCheckRule>,
}

/// `spec.admissionChecksStrategy.admissionChecks[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckRule {
    /// The AdmissionCheck's name.
    pub name: String,
    /// `onFlavors`; empty is all flavors of the queue.
    pub on_flavors: Vec<String>,
}

/// What is read back of a ClusterQueue's or LocalQueue's status, so as not to write what it says already.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// `conditions`.
    pub conditions: Vec<Condition>,
    /// Everything else, as it is.
    #[serde(flatten)]
    pub rest: std::collections::BTreeMap<String, serde_json::Value>,
}
