//! Cohort.

use serde::Deserialize;

use super::meta::view;
use super::quota::ResourceGroup;

view! {
    /// `kueue.x-k8s.io/v1beta2` Cohort.
    pub struct Cohort("Cohort", crate::names::kueue::GROUP, "v1beta2", "cohorts", ClusterResourceScope) {
        /// `spec`.
        pub spec: CohortSpec,
    }
}

/// `spec` of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortSpec {
    /// `parentName`.
    pub parent_name: Option<String>,
    /// `resourceGroups`.
    pub resource_groups: Vec<ResourceGroup>,
}
