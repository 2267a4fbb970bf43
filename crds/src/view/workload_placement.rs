//! Kueue's Workload, as far as placement depends on it: was it admitted, and for how many pods of what size.

use std::collections::BTreeMap;

use model::quantity::Written;
use model::resources::ResourceName;
use serde::Deserialize;

use super::meta::view;

view! {
    /// A Workload.
    pub struct WorkloadPlacement("Workload", crate::names::kueue::GROUP, "v1beta2", "workloads", NamespaceResourceScope) {
        /// What was asked.
        #[serde(deserialize_with = "model::null_as_default")]
        pub spec: WorkloadPlacementSpec,
        /// What was granted.
        #[serde(deserialize_with = "model::null_as_default")]
        pub status: WorkloadPlacementStatus,
    }
}

/// `spec` of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadPlacementSpec {
    /// Its pod sets.
    #[serde(deserialize_with = "model::null_as_default")]
    pub pod_sets: Vec<WorkloadPodSet>,
}

/// A pod set of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct WorkloadPodSet {
    /// Its name.
    #[serde(deserialize_with = "model::null_as_default")]
    pub name: String,
    /// How many pods were asked for.
    #[serde(deserialize_with = "model::null_as_default")]
    pub count: i64,
}

/// `status` of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct WorkloadPlacementStatus {
    /// Its conditions.
    #[serde(deserialize_with = "model::null_as_default")]
    pub conditions: Vec<WorkloadCondition>,
    /// What was granted.
    pub admission: Option<WorkloadAdmission>,
}

/// One condition of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct WorkloadCondition {
    /// `QuotaReserved`, `Admitted`, `Evicted`, …
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

/// `status.admission` of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadAdmission {
    /// Pod set by pod set.
    #[serde(deserialize_with = "model::null_as_default")]
    pub pod_set_assignments: Vec<AdmittedPodSet>,
}

/// What a pod set was granted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmittedPodSet {
    /// The pod set's name.
    #[serde(deserialize_with = "model::null_as_default")]
    pub name: String,
    /// So many pods; absent: as many as were asked for.
    pub count: Option<i64>,
    /// For all of them together.
    #[serde(deserialize_with = "model::null_as_default")]
    pub resource_usage: BTreeMap<ResourceName, Written>,
    /// The places it was given, if any: how many, not where.
    pub topology_assignment: Option<AdmittedPlaces>,
}

/// `topologyAssignment`, without the domains.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AdmittedPlaces {
    /// Parts of the list of domains.
    #[serde(deserialize_with = "model::null_as_default")]
    pub slices: Vec<AdmittedDomains>,
}

/// `topologyAssignment.slices[]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmittedDomains {
    /// How many domains.
    pub domain_count: i64,
    /// How many pods each of them takes.
    #[serde(deserialize_with = "model::null_as_default")]
    pub pod_counts: AdmittedCounts,
}

/// `podCounts`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AdmittedCounts {
    /// The same number for all.
    pub universal: Option<i64>,
    /// One number for each.
    #[serde(deserialize_with = "model::null_as_default")]
    pub individual: Vec<i64>,
}

impl AdmittedPlaces {
    /// How many pods have places.
    pub fn pods(&self) -> i64 {
        let of_slice = |slice: &AdmittedDomains| match slice.pod_counts.universal {
            Some(each) => each.saturating_mul(slice.domain_count),
            None => slice.pod_counts.individual.iter().fold(0i64, |sum, pods| sum.saturating_add(*pods)),
        };
        self.slices.iter().map(of_slice).fold(0, i64::saturating_add)
    }
}

impl WorkloadPlacement {
    /// Whether a condition of this type is `True`.
    pub fn has(&self, condition: &str) -> bool {
        self.status.conditions.iter().any(|one| one.r#type == condition && one.status == "True")
    }
}
