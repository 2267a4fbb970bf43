//! `MultiKueueCluster` and `MultiKueueConfig`: admission to other clusters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{Condition, object::custom_resource},
    names,
    schema::{ConditionSchema, UNIQUE_ITEMS, default, list_atomic, list_map, rule},
};

custom_resource! {
    /// A worker cluster and how to reach it.
    pub struct MultiKueueCluster(names::kueue::GROUP, "v1beta2", "multikueueclusters", ClusterResourceScope) {
        /// How to reach it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<MultiKueueClusterSpec>,
        /// Whether it is reached.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<MultiKueueClusterStatus>,
    }
}

/// How to reach a worker cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// Where its address and credentials are.
    pub cluster_source: ClusterSource,
}

/// Where a worker cluster's address and credentials are. One of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rule(
    "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1",
    "set either kubeConfig or clusterProfileRef",
))]
pub struct ClusterSource {
    /// In a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// In a ClusterProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Where a kubeconfig is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Name of the Secret, or path of the file.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// Which of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = default("Secret"))]
    pub location_type: Option<LocationType>,
}

/// What a kubeconfig's location names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LocationType {
    /// A Secret in the manager's namespace, key `kubeconfig`.
    #[default]
    Secret,
    /// A file of the manager.
    Path,
}

/// Names a ClusterProfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterProfileReference {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// Whether a worker cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MultiKueueClusterStatus {
    /// `Active` says whether it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16), transform = list_map(&["type"]))]
    pub conditions: Vec<Condition>,
}

custom_resource! {
    /// The worker clusters that a MultiKueue admission check may use.
    pub struct MultiKueueConfig(names::kueue::GROUP, "v1beta2", "multikueueconfigs", ClusterResourceScope) {
        /// Which they are.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub spec: Option<MultiKueueConfigSpec>,
    }
}

/// The worker clusters to use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters.
    #[schemars(
        length(min = 1, max = 20),
        inner(length(max = 256)),
        transform = list_atomic,
        transform = rule(UNIQUE_ITEMS, "clusters must not repeat"),
    )]
    pub clusters: Vec<String>,
    /// Who sets the manager's quotas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

/// Who sets the manager's quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum QuotaManagement {
    /// The administrator.
    Manual,
    /// They are the sum of the workers'.
    Automated,
}
