//! `Cohort`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quota::{FairSharing, FairSharingStatus, ResourceGroup};
use crate::{
    api::object::custom_resource,
    names,
    schema::{DNS_SUBDOMAIN, list_atomic},
};

custom_resource! {
    /// A node of the tree within which ClusterQueues share quota.
    pub struct Cohort(names::kueue::GROUP, "v1beta2", "cohorts", ClusterResourceScope) {
        /// Its place in the tree and what it adds.
        #[serde(default)]
        pub spec: CohortSpec,
        /// How much it borrows.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<CohortStatus>,
    }
}

/// A cohort's place in the tree and what it adds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    /// The cohort above; absent = this one is the root. It may name a cohort without an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = DNS_SUBDOMAIN))]
    pub parent_name: Option<String>,
    /// Quota that belongs to no single queue below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = list_atomic)]
    pub resource_groups: Vec<ResourceGroup>,
    /// How it competes with its siblings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// How much a cohort borrows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// As fair sharing sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
