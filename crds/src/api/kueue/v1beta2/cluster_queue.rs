//! `ClusterQueue`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quota::{FairSharing, FairSharingStatus, FlavorUsage, ResourceGroup, StopPolicy};
use crate::{
    api::{Condition, object::custom_resource},
    names,
    schema::{
        ConditionSchema, DNS_SUBDOMAIN, Embedded, default, default_empty, list_atomic, list_map, list_set,
        map_atomic, required, rule,
    },
};

custom_resource! {
    /// A quota that workloads of several namespaces draw from.
    pub struct ClusterQueue(names::kueue::GROUP, "v1beta2", "clusterqueues", ClusterResourceScope) {
        /// The quota and the rules of its use.
        #[serde(default)]
        pub spec: ClusterQueueSpec,
        /// How much of it is in use, and whether it works.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<ClusterQueueStatus>,
    }
}

/// The quota and the rules of its use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rule(
    "!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true",
    "borrowingLimit needs a cohort to borrow from",
))]
pub struct ClusterQueueSpec {
    /// Quotas by group of resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = list_atomic)]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort it lends to and borrows from. A Cohort object of that name may exist and need not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub cohort_name: Option<String>,
    /// In which order workloads are considered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("BestEffortFIFO"))]
    pub queueing_strategy: Option<QueueingStrategy>,
    /// Namespaces whose workloads are accepted: absent = none, empty = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Embedded<LabelSelector>>", transform = map_atomic)]
    pub namespace_selector: Option<LabelSelector>,
    /// When to go on to the next flavor instead of borrowing or preempting in this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default_empty)]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Which workloads may be preempted for a pending one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default_empty)]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Checks a workload needs besides quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether workloads are held back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("None"))]
    pub stop_policy: Option<StopPolicy>,
    /// How it competes within its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Whether its LocalQueues are ordered by what they used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Try several flavors at once and move to the better one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// In which order workloads are considered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QueueingStrategy {
    /// By priority, then age; who does not fit keeps all others waiting.
    #[serde(rename = "StrictFIFO")]
    StrictFifo,
    /// By priority, then age; who does not fit lets others pass.
    #[default]
    #[serde(rename = "BestEffortFIFO")]
    BestEffortFifo,
}

/// When to go on to the next flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rule(
    "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
    "preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
))]
pub struct FlavorFungibility {
    /// When the workload fits by borrowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("MayStopSearch"))]
    pub when_can_borrow: Option<FungibilityPolicy>,
    /// When the workload fits by preempting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("TryNextFlavor"))]
    pub when_can_preempt: Option<FungibilityPolicy>,
    /// Which of the two is the lesser evil, once all flavors were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<FungibilityPreference>,
}

/// Stay or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FungibilityPolicy {
    /// Take this flavor.
    MayStopSearch,
    /// Look at the next flavor first.
    TryNextFlavor,
}

/// Which is the lesser evil.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FungibilityPreference {
    /// Rather borrow.
    BorrowingOverPreemption,
    /// Rather preempt.
    PreemptionOverBorrowing,
}

/// Which workloads may be preempted for a pending one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rule(
    "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  self.borrowWithinCohort.policy != 'Never')",
    "borrowWithinCohort needs reclaimWithinCohort to be other than Never",
))]
pub struct ClusterQueuePreemption {
    /// Of other queues of the cohort that borrow, for a workload within its queue's own quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("Never"))]
    pub reclaim_within_cohort: Option<ReclaimWithinCohort>,
    /// Of other queues of the cohort, for a workload that borrows itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default_empty)]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// Of the same queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("Never"))]
    pub within_cluster_queue: Option<WithinClusterQueue>,
}

/// Whom a queue may preempt to take its own back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimWithinCohort {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Any workload that borrows.
    Any,
}

/// Whom a queue may preempt while it borrows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// Who in general.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("Never"))]
    pub policy: Option<BorrowWithinCohortPolicy>,
    /// Only workloads up to this priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Whom a queue may preempt while it borrows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BorrowWithinCohortPolicy {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
}

/// Whom a workload may preempt in its own queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WithinClusterQueue {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and younger ones of the same.
    LowerOrNewerEqualPriority,
}

/// Checks a workload needs besides quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[schemars(length(min = 1, max = 64), transform = list_map(&["name"]))]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One check and the flavors it is needed on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// Flavors it is needed on; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 253), regex(pattern = DNS_SUBDOMAIN)), transform = list_set)]
    pub on_flavors: Vec<String>,
}

/// Whether LocalQueues are ordered by what they used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// By which rule.
    pub admission_mode: AdmissionMode,
}

/// By which rule LocalQueues are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionMode {
    /// Whose LocalQueue used less comes first.
    UsageBasedAdmissionFairSharing,
    /// Past usage does not count.
    NoAdmissionFairSharing,
}

/// Try several flavors at once and move to the better one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConcurrentAdmissionPolicy {
    /// When to move.
    pub migration: ConcurrentAdmissionMigration,
}

/// When a workload moves to another flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = required(&["mode"]))]
pub struct ConcurrentAdmissionMigration {
    /// Whether to move at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 253))]
    pub mode: Option<MigrationMode>,
    /// Which moves are worth it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<MigrationConstraints>,
}

/// Whether a workload moves after it was admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MigrationMode {
    /// To any flavor listed earlier, when it becomes free.
    #[default]
    TryPreferredFlavors,
    /// Never.
    RetainFirstAdmission,
}

/// Which moves are worth it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationConstraints {
    /// On this flavor, or one listed earlier, the workload stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub last_acceptable_flavor_name: Option<String>,
}

/// How much of a quota is in use, and whether the queue works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// `Active` says whether workloads can be admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16), transform = list_map(&["type"]))]
    pub conditions: Vec<Condition>,
    /// Quota of workloads that hold a reservation, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota of workloads that are admitted, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub flavors_usage: Vec<FlavorUsage>,
    /// Workloads that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<i32>,
    /// Workloads that hold a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserving_workloads: Option<i32>,
    /// Workloads that are admitted and not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_workloads: Option<i32>,
    /// How much it borrows, as fair sharing sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
