//! `ClusterQueue` and `Cohort`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        Condition, Time,
        kueue::v1beta2::{
            AdmissionCheckStrategyRule, ClusterQueuePreemption, CohortSpec, FairSharing, FlavorUsage,
            FungibilityPreference, LocalQueueFairSharingStatus, QueueingStrategy, ResourceGroup, StopPolicy,
        },
        object::custom_resource,
    },
    names,
    schema::{
        ConditionSchema, DNS_SUBDOMAIN, Embedded, default, default_empty, list_atomic, list_map, map_atomic,
        relax, rule,
    },
};

custom_resource! {
    /// A quota that workloads of several namespaces draw from.
    pub struct ClusterQueue(names::kueue::GROUP, "v1beta1", "clusterqueues", ClusterResourceScope) {
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
    "!has(self.cohort) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true",
    "borrowingLimit needs a cohort to borrow from",
))]
pub struct ClusterQueueSpec {
    /// Quotas by group of resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        transform = list_atomic,
        transform = relax("/items/properties/coveredResources", &["x-kubernetes-list-type"]),
    )]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort it lends to and borrows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub cohort: Option<String>,
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
    /// Checks a workload needs on every flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 316)))]
    pub admission_checks: Vec<String>,
    /// Checks a workload needs, by flavor.
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
    pub when_can_borrow: Option<BorrowFungibility>,
    /// When the workload fits by preempting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("TryNextFlavor"))]
    pub when_can_preempt: Option<PreemptFungibility>,
    /// Which of the two is the lesser evil, once all flavors were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<FungibilityPreference>,
}

/// Borrow or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BorrowFungibility {
    /// Take this flavor.
    MayStopSearch,
    /// Look at the next flavor first.
    TryNextFlavor,
    /// Old name of `MayStopSearch`.
    Borrow,
}

/// Preempt or go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PreemptFungibility {
    /// Take this flavor.
    MayStopSearch,
    /// Look at the next flavor first.
    TryNextFlavor,
    /// Old name of `MayStopSearch`.
    Preempt,
}

/// Checks a workload needs, by flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        transform = relax("/items/properties/name", &["minLength"]),
        transform = relax("/items/properties/onFlavors", &["maxItems", "x-kubernetes-list-type"]),
    )]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// Whether LocalQueues are ordered by what they used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// By which rule: `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`.
    pub admission_mode: String,
}

/// How much of a quota is in use, and whether the queue works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// `Active` says whether workloads can be admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", transform = list_map(&["type"]))]
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
    /// Names of waiting workloads. Not in v1beta2: conversion drops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads_status: Option<ClusterQueuePendingWorkloadsStatus>,
    /// How much it borrows, as fair sharing sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// Names of waiting workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePendingWorkloadsStatus {
    /// The first of them.
    #[serde(rename = "clusterQueuePendingWorkload", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = list_atomic)]
    pub head: Vec<ClusterQueuePendingWorkload>,
    /// When the list last changed.
    pub last_change_time: Time,
}

/// A waiting workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterQueuePendingWorkload {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

custom_resource! {
    /// A node of the tree within which ClusterQueues share quota.
    pub struct Cohort(names::kueue::GROUP, "v1beta1", "cohorts", ClusterResourceScope) {
        /// Its place in the tree and what it adds.
        #[serde(default)]
        #[schemars(transform = relax(
            "/properties/resourceGroups/items/properties/coveredResources",
            &["x-kubernetes-list-type"],
        ))]
        pub spec: CohortSpec,
        /// How much it borrows.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<CohortStatus>,
    }
}

/// How much a cohort borrows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// As fair sharing sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}
