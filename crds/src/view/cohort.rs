//! Cohort.

use serde::Deserialize;

use super::meta::view;
use super::quota::{FairSharing, ResourceGroup};

view! {
    /// `kueue.x-k8s.io/v1beta2` Cohort.
    pub struct Cohort("Cohort", crate::names::kueue::GROUP, "v1beta2", "cohorts", ClusterResourceScope) {
        /// `spec`.
        pub spec: CohortSpec,
        /// `status`.
        pub status: CohortStatus,
    }
}

/// What is read back of a Cohort's status, so as not to write what it says already.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortStatus {
    /// `fairSharing`, as it is.
    pub fair_sharing: Option<serde_json::Value>,
}

/// `spec` of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortSpec {
    /// `parentName`.
    pub parent_name: Option<String>,
    /// `resourceGroups`.
    pub resource_groups: Vec<ResourceGroup>,
    /// `fairSharing`.
    pub fair_sharing: FairSharing,
}
