//! Quota: what ClusterQueues and Cohorts have, and what LocalQueues report.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Quantity, Time},
    schema::{DNS_SUBDOMAIN, default, list_atomic, list_map, rule},
};

/// Resources whose quota comes from the same flavors, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rule(
    "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
    "every flavor must have as many resources as coveredResources",
))]
pub struct ResourceGroup {
    /// The resources, in the order in which every flavor lists them.
    #[schemars(length(min = 1, max = 64), transform = list_atomic)]
    pub covered_resources: Vec<String>,
    /// The flavors, most wanted first.
    #[schemars(length(min = 1, max = 64), transform = list_map(&["name"]))]
    pub flavors: Vec<FlavorQuotas>,
}

/// Quotas of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlavorQuotas {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub name: String,
    /// One entry a covered resource, in the same order.
    #[schemars(length(min = 1, max = 64), transform = list_map(&["name"]))]
    pub resources: Vec<ResourceQuota>,
}

/// Quota of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// Name of the resource.
    pub name: String,
    /// What is the holder's own.
    pub nominal_quota: Quantity,
    /// How much may come from the cohort on top; absent = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<Quantity>,
    /// How much of its own the cohort may have while it is unused; absent = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<Quantity>,
}

/// Whether and how workloads are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    /// They are not.
    #[default]
    None,
    /// Nothing new is admitted; what is admitted goes on.
    Hold,
    /// Nothing new is admitted and what is admitted is evicted.
    HoldAndDrain,
}

/// How a queue competes when shares are fair.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FairSharing {
    /// Its share in proportion to its siblings'. 0 = it borrows only what nobody wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default(1))]
    pub weight: Option<Quantity>,
}

/// How much a queue borrows, in the measure that fair sharing compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// Largest borrowed part of any resource's lendable quota in thousandths, divided by the weight, rounded up. 0 = not
    /// borrowing; the largest 64-bit number = weight 0 and borrowing.
    pub weighted_share: i64,
}

/// Like [`FairSharingStatus`], with what a LocalQueue has consumed lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// As in [`FairSharingStatus`].
    pub weighted_share: i64,
    /// The usage that admission fair sharing orders by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Usage of the past, decaying.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Decayed usage by resource.
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// When it was last decayed.
    pub last_update: Time,
}

/// Usage of one flavor in a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlavorUsage {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub name: String,
    /// Usage by resource.
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub resources: Vec<ResourceUsage>,
}

/// Usage of one resource in one flavor of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// All of it, what is borrowed included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Quantity>,
    /// What is borrowed from the cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<Quantity>,
}

/// Usage of one flavor in a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalQueueFlavorUsage {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub name: String,
    /// Usage by resource.
    #[schemars(length(max = 64), transform = list_map(&["name"]))]
    pub resources: Vec<LocalQueueResourceUsage>,
}

/// Usage of one resource in one flavor of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalQueueResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// All of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Quantity>,
}
