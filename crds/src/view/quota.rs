//! Quotas as ClusterQueues and Cohorts write them.

use model::ResourceName;
use model::quantity::Written;
use serde::Deserialize;

/// `resourceGroups[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceGroup {
    /// `coveredResources`.
    pub covered_resources: Vec<ResourceName>,
    /// `flavors`.
    pub flavors: Vec<FlavorQuotas>,
}

/// `spec.fairSharing`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FairSharing {
    /// `weight`; absent is 1.
    pub weight: Option<Written>,
}

/// `resourceGroups[].flavors[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FlavorQuotas {
    /// The ResourceFlavor's name.
    pub name: String,
    /// `resources`.
    pub resources: Vec<ResourceQuota>,
}

/// `resourceGroups[].flavors[].resources[]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// The resource.
    pub name: ResourceName,
    /// `nominalQuota`.
    pub nominal_quota: Written,
    /// `borrowingLimit`.
    #[serde(default)]
    pub borrowing_limit: Option<Written>,
    /// `lendingLimit`.
    #[serde(default)]
    pub lending_limit: Option<Written>,
}
