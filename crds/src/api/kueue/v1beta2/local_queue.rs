//! `LocalQueue`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quota::{FairSharing, LocalQueueFairSharingStatus, LocalQueueFlavorUsage, StopPolicy};
use crate::{
    api::{Condition, object::custom_resource},
    names,
    schema::{ConditionSchema, DNS_SUBDOMAIN, default, immutable, list_map},
};

custom_resource! {
    /// The name under which a namespace's jobs reach a ClusterQueue.
    pub struct LocalQueue(names::kueue::GROUP, "v1beta2", "localqueues", NamespaceResourceScope) {
        /// Where it leads.
        #[serde(default)]
        pub spec: LocalQueueSpec,
        /// What went through it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<LocalQueueStatus>,
    }
}

/// Where a LocalQueue leads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    /// The ClusterQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN), transform = immutable)]
    pub cluster_queue: Option<String>,
    /// Whether workloads are held back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("None"))]
    pub stop_policy: Option<StopPolicy>,
    /// How it competes with the ClusterQueue's other LocalQueues, where admission fair sharing is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What went through a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// `Active` says whether workloads can be submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16), transform = list_map(&["type"]))]
    pub conditions: Vec<Condition>,
    /// Workloads that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_workloads: Option<i32>,
    /// Workloads that hold a reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserving_workloads: Option<i32>,
    /// Workloads that are admitted and not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_workloads: Option<i32>,
    /// Quota of its workloads that hold a reservation, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub flavors_reservation: Vec<LocalQueueFlavorUsage>,
    /// Quota of its workloads that are admitted, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub flavors_usage: Vec<LocalQueueFlavorUsage>,
    /// What it used, as admission fair sharing sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}
